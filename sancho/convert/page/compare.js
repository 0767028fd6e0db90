// Compara: the same beginning and the same seed, written in two ways side by side.

const COMPARED = 400; // letters that each of them writes

const comparison = { run: null, ways: [], seed: null };

/** One of the two ways: its controls, its text, and what it is worth. */
class Way {
  constructor(name, options) {
    this.name = name;
    this.title = element('h3');
    this.text = element('p', { class: 'letters way', hidden: true });
    this.verdict = element('p', { class: 'verdict' });
    const fields = element('div', { class: 'controls' });
    this.controls = new Controls(fields, options, `${name}-`);
    const mandos = element('details', {}, element('summary', {}, say('controls_of', { name })), fields);
    mandos.addEventListener('input', () => this.sum());
    // Whoever moves a control sees both anew, with the same seed.
    mandos.addEventListener('change', () => comparison.seed !== null && compare(comparison.seed));
    this.box = element('div', {}, this.title, mandos, this.text, this.verdict);
    this.sum();
  }

  sum() {
    this.title.textContent = `${this.name}: ${optionsInWords(this.controls.options)}`;
  }

  begin(ids, seed, other) {
    Object.assign(this, { written: 0, bits: 0, slips: 0, fresh: [] });
    this.other = other.controls.options;
    this.writer = new Writer(app.model, ids, this.controls.options, seed);
    this.text.hidden = false;
    this.text.replaceChildren(element('b', {}, app.vocabulary.decode(ids)));
    this.verdict.textContent = '';
  }

  /** Takes one step; a letter that the other way would not have drawn is marked. */
  step() {
    const id = this.writer.step();
    if (id === null) return;
    const { logits } = this.writer;
    const isSlip = shapeLogits(logits, this.other)[id] === -Infinity;
    const character = characterOf(id);
    this.fresh.push(isSlip ? element('mark', { class: 'slip' }, character) : character);
    this.written++;
    this.slips += isSlip;
    this.bits += bitsOf(softmax(logits)[id]);
  }

  show(other) {
    this.text.append(...this.fresh);
    this.fresh = [];
    if (!this.written) return;
    this.verdict.textContent = say('way_verdict', {
      letters: say('letters', { n: this.written }),
      other: other.name,
      removed: say(this.slips ? 'would_remove' : 'would_remove_none', { n: this.slips }),
      bits: (this.bits / this.written).toFixed(2),
    });
  }
}

/** Lets both write, turn by turn, until they have enough or are stopped. */
async function compare(seed) {
  const run = (comparison.run = {});
  comparison.seed = seed;
  const { ways } = comparison;
  const { ids, unknown } = nearestIds($('comienzo').value);
  ways.forEach((way, n) => way.begin(startIds(ids), seed, ways[1 - n]));
  $('comparar').textContent = say('stop');
  $('comparado').textContent = say('with_seed', { seed, replaced: describeReplaced(unknown) });
  const show = () => ways.forEach((way, n) => way.show(ways[1 - n]));
  const breath = breather();
  while (comparison.run === run && ways.some((way) => way.written < COMPARED)) {
    for (const way of ways) if (way.written < COMPARED) way.step();
    await breath(show);
  }
  if (comparison.run && comparison.run !== run) return;
  show();
  comparison.run = null;
  $('comparar').textContent = say('other_seed');
  $('comparado').textContent += say('done');
}

function openComparison() {
  comparison.ways = [new Way('A', SAMPLING_DEFAULTS), new Way('B', app.facts.sampling)];
  $('maneras').append(...comparison.ways.map((way) => way.box));
  $('comienzo').value = app.facts.start;
  $('comparar').addEventListener('click', () => {
    if (comparison.run) comparison.run = null;
    else compare(comparison.seed === null ? seed() : comparison.seed + 1n);
  });
  $('comparar').disabled = false;
}
