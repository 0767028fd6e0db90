// Sobre este modelo: its size, what it is made of, what it read, how it learned.

const PRECISION_NAMES = {
  float16: 'media precisión (float16)',
  float32: 'precisión simple (float32), sin perder un bit',
};

function openAbout() {
  const { corpus, parameters, precision, cost, progress } = app.facts;
  const { block_size, vocab_size } = app.model.config;
  const facts = [
    [
      'Qué leyó',
      `«${corpus}»: ${count(progress.tokens, 'letra', 'letras')} en ` +
        `${count(progress.step, 'paso', 'pasos')}, contando las veces que volvió sobre ellas`,
    ],
    ['Cuánto tardó', duration(progress.seconds)],
    ['Tamaño', `${thousands(parameters)} números aprendidos`],
    ['Forma', shapeInWords()],
    [
      'Ventana',
      `${thousands(block_size)} letras; cuando se llena, conserva la última cuarta parte`,
    ],
    ['Vocabulario', `${vocab_size} letras y signos`],
    [
      'Lo que no leyó',
      progress.val_loss === null ? 'aún sin medir' : lossInWords(progress.val_loss),
    ],
    ['Pesos en esta página', PRECISION_NAMES[precision] + costInWords(cost)],
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
      element('div', {}, ...learningCurve(), ...makeYourOwn()),
    ),
  );
  const { course, project } = app.facts;
  const link = (href, text) => (href ? element('a', { href }, text) : text);
  $('pie').append('Hecho con ', link(project, 'sancho-mini'), course ? '. ' : '.');
  if (course) $('pie').append('Cómo funciona por dentro, en ', link(course, 'el curso'), '.');
  $('lema').textContent =
    `Un modelo pequeño que leyó «${corpus}» letra a letra y aprendió a escribir. Está entero ` +
    `en esta página y no necesita red.`;
}

function shapeInWords() {
  const c = app.model.config;
  const positions = {
    rope: 'posiciones rotatorias (RoPE)',
    learned: 'posiciones aprendidas',
    sinusoidal: 'posiciones de senos y cosenos',
  };
  const parts = [
    count(c.n_layer, 'bloque', 'bloques'),
    count(c.n_head, 'cabeza por bloque', 'cabezas por bloque'),
    `ancho ${c.n_embd}`,
    { rmsnorm: 'RMSNorm', layernorm: 'LayerNorm' }[c.norm],
    positions[c.position],
    ACTIVATION_NAMES[c.activation],
  ];
  if (c.qk_norm) parts.push('QK-norm');
  if (c.ngram_size > 1) parts.push(`tabla de secuencias de hasta ${c.ngram_size} letras`);
  if (c.embedding_skip) parts.push('embedding sumado en cada bloque');
  if (c.tie_embeddings) parts.push('cabeza atada al embedding');
  if (c.bias) parts.push('con sesgos');
  return parts.join(', ');
}

function duration(seconds) {
  if (seconds < 90) return count(Math.round(seconds), 'segundo', 'segundos');
  if (seconds < 5400) return count(Math.round(seconds / 60), 'minuto', 'minutos');
  return `${(seconds / 3600).toFixed(1)} horas`;
}

function lossInWords(loss) {
  return `pérdida ${loss.toFixed(3)} nats, ${(loss / Math.LN2).toFixed(3)} bits por carácter`;
}

function costInWords(cost) {
  if (!cost) return '';
  const change = cost.after - cost.before;
  const sign = change < 0 ? '−' : '+';
  return (
    `; guardarlos así cambia la pérdida en ${sign}${Math.abs(change).toFixed(5)} nats, ` +
    `medido en ${thousands(cost.characters)} letras de «${cost.text}»`
  );
}

// --- the learning curve ---------------------------------------------------------------------

/** Returns a figure of the losses by step, and a table of them; nothing where they are not known. */
function learningCurve() {
  const lines = app.facts.curve;
  const measured = lines.filter(([, , val]) => val !== null);
  const train = lines.filter(([, loss]) => loss !== null);
  if (train.length < 2) return [];
  const losses = [...train.map(([, loss]) => loss), ...measured.map(([, , val]) => val)];
  const [low, high] = [Math.min(...losses), Math.min(Math.max(...losses), 4 * Math.min(...losses))];
  const last = lines[lines.length - 1][0] || 1;
  const x = (step) => 40 + (350 * step) / last;
  const y = (loss) => 170 - (150 * (Math.min(loss, high) - low)) / (high - low || 1);
  const path = train.map(
    ([step, loss], i) => `${i ? 'L' : 'M'}${x(step).toFixed(1)} ${y(loss).toFixed(1)}`,
  );
  const dots = measured.map(([step, , val]) =>
    svg('circle', { cx: x(step), cy: y(val), r: 3.5, class: 'dot' }),
  );
  const drawing = svg(
    'svg',
    {
      viewBox: '0 0 400 200',
      class: 'curve',
      role: 'img',
      'aria-label':
        `La pérdida baja de ${high.toFixed(2)} a ${low.toFixed(2)} nats en ${last} pasos`,
    },
    svg('path', { class: 'axis', d: 'M40 10V170H395' }),
    label(36, 24, high.toFixed(2), 'end'),
    label(36, 172, low.toFixed(2), 'end'),
    label(40, 190, '0'),
    label(392, 190, `paso ${thousands(last)}`, 'end'),
    svg('path', { class: 'learning', d: path.join('') }),
    ...dots,
  );
  const rows = measured.map(([step, loss, val]) => [
    thousands(step),
    loss === null ? '' : loss.toFixed(3),
    val.toFixed(3),
  ]);
  const numbers = table('', ['paso', 'al aprender', 'lo que no leyó'], rows);
  return [
    element('h3', {}, 'Cómo aprendió'),
    element(
      'figure',
      {},
      drawing,
      element(
        'figcaption',
        {},
        'Línea: pérdida en lo que lee. Puntos: en lo que no leyó. En nats por carácter.',
      ),
    ),
    rows.length ? element('details', {}, element('summary', {}, 'los números'), numbers) : '',
  ];
}

function label(x, y, text, anchor = 'start') {
  return svg('text', { x, y, 'text-anchor': anchor, 'aria-hidden': true }, text);
}

function makeYourOwn() {
  const commands = [
    'python train.py --corpus mi_texto.txt --out_dir out-mio',
    'python convert.py to-page --checkpoint out-mio/best.safetensors',
  ];
  return [
    element('h3', {}, 'Haz el tuyo'),
    element('p', {}, 'Con sancho-mini y un texto de un megabyte o más, sin tarjeta gráfica:'),
    element('pre', { tabindex: 0, 'aria-label': 'Órdenes' }, commands.join('\n')),
    element(
      'p',
      {},
      'Después abre sancho.html con un doble clic. Para los curiosos, la consola del ' +
        'navegador entiende ',
      element('code', {}, 'await sancho.write("En un", 100, {seed: 1605})'),
      '.',
    ),
  ];
}
