// The sampler of generate.py: logits to probabilities to the next id, in double precision.

const SAMPLING = 3; // the purpose of that name in seeds.py

/** Options that leave the logits as they are. Those of SampleConfig come with the page's facts. */
const SAMPLING_DEFAULTS = { temperature: 1, top_k: null, top_p: null, min_p: null };

/** Returns the ids, the likeliest first, equal ones in their order. */
function ranking(logits) {
  return Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);
}

/** Drops all but the first n of a ranking. */
function keepFirst(logits, order, n) {
  for (const id of order.slice(n)) logits[id] = -Infinity;
}

function keepTopP(logits, p) {
  if (p === 1) return;
  const order = ranking(logits);
  const probabilities = softmax(logits);
  let before = 0;
  let kept = 0;
  while (kept < order.length && (kept === 0 || before < p)) before += probabilities[order[kept++]];
  keepFirst(logits, order, kept);
}

function keepMinP(logits, p) {
  const probabilities = softmax(logits);
  const threshold = p * Math.max(...probabilities);
  for (let id = 0; id < logits.length; id++) {
    if (probabilities[id] < threshold) logits[id] = -Infinity;
  }
}

/** Returns logits after temperature, top-k, top-p and min-p, in this order. */
function shapeLogits(raw, options) {
  const highest = raw.reduce((a, b) => Math.max(a, b), -Infinity);
  let logits = Float64Array.from(raw, (value) => value - highest);
  if (options.temperature === 0) {
    keepFirst(logits, ranking(logits), 1);
    return logits;
  }
  logits = logits.map((value) => value / options.temperature);
  if (options.top_k != null) keepFirst(logits, ranking(logits), options.top_k);
  if (options.top_p != null) keepTopP(logits, options.top_p);
  if (options.min_p != null) keepMinP(logits, options.min_p);
  return logits;
}

/** Returns the first id at which the cumulated probability passes a number in [0, 1). */
function choose(logits, uniform) {
  const highest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  let sum = 0;
  const cumulated = logits.map((value) => (sum += Math.exp(value - highest)));
  return cumulated.findIndex((value) => value > uniform * sum);
}

/** Lets a reader read what it lacks of ids; returns whether that was wanted to the end. */
async function readOn(reader, ids, isWanted) {
  const breath = breather();
  while (reader.length < ids.length) {
    reader.readSome(ids.slice(reader.length));
    await breath();
    if (!isWanted()) return false;
  }
  return true;
}

/**
 * Writes on, one id at a time; `logits` are those that the last id was drawn from, before they were
 * shaped. Once the block is full, its newest quarter is kept, and read by another reader.
 */
class Writer {
  constructor(model, prompt, options, seed) {
    this.model = model;
    this.options = options;
    this.context = prompt.slice(-model.config.block_size);
    this.reader = new Reader(model);
    this.generator = new Generator(seed, [SAMPLING, 0]);
    this.logits = null;
  }

  /** Reads on; returns the next id, or null while there is more to read before. */
  step() {
    const { n_embd, block_size } = this.model.config;
    const x = this.reader.readSome(this.context.slice(this.reader.length));
    if (this.reader.length < this.context.length) return null;
    this.logits = this.model.logits(x.subarray(-n_embd));
    const id = choose(shapeLogits(this.logits, this.options), this.generator.random());
    this.context.push(id);
    if (this.context.length > block_size) {
      this.context = this.context.slice(-Math.max(1, block_size >> 2));
      this.reader = new Reader(this.model);
    }
    return id;
  }
}

/** Resolves to the n ids that a model writes after others. */
async function writtenAfter(ids, n, model, options, seed) {
  const writer = new Writer(model, ids, options, seed);
  const breath = breather();
  const written = [];
  while (written.length < n) {
    const id = writer.step();
    if (id !== null) written.push(id);
    await breath();
  }
  return written;
}
