// Whether what learns computes what writes: the loss of gradients.js is compared with that of model.js.
//
// Somebody may have changed one of them alone, and the model that is kept would not be what was learned.

import { Learner } from './gradients.js';
import { GPT, Reader } from './model.js';
import { softmax } from './probability.js';
import { Generator } from './random.js';
import { newWeights } from './train.js';

/** The largest sizes of the model that is compared: it takes no time, and computes what a larger one does. */
const COMPARED_SIZES = { vocab_size: 64, block_size: 64, n_layer: 3, n_head: 2, head_size: 8, ngram_rows: 256 };
const ROUNDING = 1e-5; // nats per id

/**
 * Throws `other_lesson` unless both have the same loss on a window, with a small model of the kind of
 * a config. Its weights are drawn: the logits of a new model are all zero, whatever it computes.
 */
export function requireAgreement(given, module) {
  const config = smallerModel(given);
  const generator = new Generator(0, []);
  const below = (most) => Math.floor(most * generator.random());
  const ids = Int32Array.from({ length: config.block_size + 1 }, () => below(config.vocab_size));
  // Some of its n-grams are known, and others are not.
  const known = ids.subarray(0, Math.ceil(ids.length / 2));
  const weights = newWeights(config, Int32Array.of(...known, ...known), 0);
  for (const [name, numbers] of Object.entries(weights)) {
    if (numbers instanceof Float32Array) weights[name] = numbers.map(() => generator.random() - 0.5);
  }
  const learner = new Learner(config, weights, module);
  learner.begin();
  const difference = Math.abs(learner.window(ids) - lossOf(new GPT(config, weights), ids));
  // What is not a number is no agreement either.
  if (!(difference <= ROUNDING * config.block_size)) throw new Error('other_lesson');
}

function smallerModel(given) {
  const sizes = Object.entries(COMPARED_SIZES).map(([name, most]) => [name, Math.min(given[name], most)]);
  const config = { ...given, ...Object.fromEntries(sizes) };
  const n_embd = config.n_head * config.head_size;
  return { ...config, n_embd, hidden_size: (n_embd * given.hidden_size) / given.n_embd };
}

/** Returns the sum of the losses of a window as the model that writes computes it. */
function lossOf(model, ids) {
  const reader = new Reader(model);
  let loss = 0;
  for (let t = 0; t + 1 < ids.length; t++) loss -= Math.log(softmax(reader.read(ids[t]))[ids[t + 1]]);
  return loss;
}
