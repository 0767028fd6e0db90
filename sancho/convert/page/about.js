// Sobre este modelo: its size, what it is made of, what it read, how it learned.

function openAbout() {
  const { corpus, parameters, precision, cost, progress } = app.facts;
  const { block_size, vocab_size } = app.model.config;
  const facts = [
    [
      say('what_it_read'),
      say('read_so_much', {
        corpus,
        letters: say('letters', { n: progress.tokens }),
        steps: say('steps', { n: progress.step }),
      }),
    ],
    [say('how_long'), duration(progress.seconds)],
    [say('size'), say('parameters', { n: parameters })],
    [say('shape'), shapeInWords()],
    [say('window'), say('window_size', { n: block_size })],
    [say('vocabulary'), say('vocabulary_size', { n: vocab_size })],
    [say('not_read'), lossInWords(progress.val_loss)],
    [say('weights_here'), costInWords(say(precision), cost)],
  ];
  const list = element(
    'dl',
    {},
    ...facts.flatMap(([name, text]) => [element('dt', {}, name), element('dd', {}, text)]),
  );
  $('ficha').append(
    element(
      'div',
      { class: 'columns even' },
      list,
      element('div', {}, ...learningCurve()),
    ),
  );
  const { course, project } = app.facts.links;
  $('pie').append(say('made_with'), linkOrName(project, 'sancho-mini'), '. ');
  if (course) $('pie').append(say('how_it_works'), linkOrName(course, say('the_course')), '.');
  $('lema').textContent = say('motto_of', { corpus });
}

function shapeInWords() {
  const c = app.model.config;
  const positions = { rope: 'rope', learned: 'learned_positions', sinusoidal: 'sinusoidal' };
  const parts = [
    say('blocks', { n: c.n_layer }),
    say('heads', { n: c.n_head }),
    say('width', { n: c.n_embd }),
    { rmsnorm: 'RMSNorm', layernorm: 'LayerNorm' }[c.norm],
    say(positions[c.position]),
    ACTIVATION_NAMES[c.activation],
  ];
  if (c.qk_norm) parts.push('QK-norm');
  if (c.ngram_size > 1) parts.push(say('table_of', { n: c.ngram_size }));
  if (c.embedding_skip) parts.push(say('embedding_skip'));
  if (c.tie_embeddings) parts.push(say('tied_head'));
  if (c.bias) parts.push(say('biases'));
  return parts.join(', ');
}

function duration(seconds) {
  if (seconds < 90) return say('seconds', { n: Math.round(seconds) });
  if (seconds < 5400) return say('minutes', { n: Math.round(seconds / 60) });
  return say('hours', { n: (seconds / 3600).toFixed(1) });
}

function lossInWords(loss) {
  if (loss === null) return say('not_measured');
  return say('loss', { nats: loss.toFixed(3), bits: (loss / Math.LN2).toFixed(3) });
}

function costInWords(precision, cost) {
  if (!cost) return precision;
  const change = cost.after - cost.before;
  const sign = change < 0 ? '−' : '+';
  return say('packing_cost', {
    precision,
    change: sign + Math.abs(change).toFixed(5),
    n: cost.characters,
    text: cost.text,
  });
}

// --- the learning curve ---------------------------------------------------------------------

/** Returns a figure of the losses by step, and a table of them; nothing where they are not known. */
function learningCurve() {
  const { measured, train, line } = pointsOf(app.facts.curve);
  if (line.length < 2) return [];
  const columns = [say('step'), ...(train.length ? [say('while_learning')] : []), say('unread_column')];
  const rows = measured.map(([step, loss, val]) => [
    thousands(step),
    ...(train.length ? [loss === null ? '' : loss.toFixed(3)] : []),
    val.toFixed(3),
  ]);
  const numbers = table('', columns, rows);
  const saved = app.facts.progress.val_loss;
  const reached = measured.length ? measured[measured.length - 1][2] : saved;
  const caption = [
    say(train.length ? 'curve_caption' : 'curve_unread'),
    // A model that was trained in several runs: the curve is that of the first.
    saved < reached - 0.002 ? ' ' + say('curve_goes_on', { loss: saved.toFixed(3) }) : '',
  ];
  return [
    element('h3', {}, say('how_it_learned')),
    element(
      'figure',
      {},
      drawnCurve(app.facts.curve),
      element('figcaption', {}, ...caption),
    ),
    rows.length ? element('details', {}, element('summary', {}, say('the_numbers')), numbers) : '',
  ];
}

/** Returns which lines of a curve were measured, which have a training loss, and the line to draw. */
function pointsOf(lines) {
  const measured = lines.filter(([, , val]) => val !== null);
  const train = lines.filter(([, loss]) => loss !== null);
  return { measured, train, line: train.length ? train : measured.map(([step, , val]) => [step, val]) };
}

/** Returns the drawing of the losses by step: [step, training loss, validation loss]. */
function drawnCurve(lines) {
  const { measured, line } = pointsOf(lines);
  const losses = [...line.map(([, loss]) => loss), ...measured.map(([, , val]) => val)];
  const [low, high] = [Math.min(...losses), Math.min(Math.max(...losses), 4 * Math.min(...losses))];
  const last = lines[lines.length - 1][0] || 1;
  const x = (step) => 40 + (350 * step) / last;
  const y = (loss) => 170 - (150 * (Math.min(loss, high) - low)) / (high - low || 1);
  const path = line.map(
    ([step, loss], i) => `${i ? 'L' : 'M'}${x(step).toFixed(1)} ${y(loss).toFixed(1)}`,
  );
  const dots = measured.map(([step, , val]) =>
    svg('circle', { cx: x(step), cy: y(val), r: 3.5, class: 'dot' }),
  );
  return svg(
    'svg',
    {
      viewBox: '0 0 400 200',
      class: 'curve',
      role: 'img',
      'aria-label': say('curve_aloud', {
        high: high.toFixed(2),
        low: low.toFixed(2),
        steps: say('steps', { n: last }),
      }),
    },
    svg('path', { class: 'axis', d: 'M40 10V170H395' }),
    label(36, 24, high.toFixed(2), 'end'),
    label(36, 172, low.toFixed(2), 'end'),
    label(40, 190, '0'),
    label(392, 190, say('step_n', { n: last }), 'end'),
    svg('path', { class: 'learning', d: path.join('') }),
    ...dots,
  );
}

function label(x, y, text, anchor = 'start') {
  return svg('text', { x, y, 'text-anchor': anchor, 'aria-hidden': true }, text);
}
