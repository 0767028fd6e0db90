// A model that reads and writes on, one id at a time.

import { breather } from './breather.js';
import { Reader } from './model.js';
import { Generator, SAMPLING } from './random.js';
import { choose, shapeLogits } from './sampler.js';


/** Lets a reader read what it lacks of ids; returns whether that was wanted to the end. */
export async function readOn(reader, ids, isWanted) {
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
export class Writer {
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
export async function writtenAfter(ids, n, model, options, seed) {
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
