// The proof of the page's model, as proof.py: logits after a fixed window of ids.
//
// Its code may have been changed since the model was trained, so the page computes them and compares.

import { fromBase64 } from './base64.js';
import { breather } from './breather.js';
import { Reader, vectorsOf } from './model.js';
import { Generator } from './random.js';

const PROOF = 4; // the purpose of that name in seeds.py
const LONGEST_WINDOW = 256;
const PROVEN_PLACES = 16; // of the window, besides its end, of which a logit is kept
const TOLERANCE = 1e-3; // of the largest logit, if that is more than 1

/** Returns the ids of which a proof has the logits. */
function proofWindow({ block_size, vocab_size }) {
  const generator = new Generator(0, [PROOF]);
  const length = Math.min(block_size, LONGEST_WINDOW);
  return Array.from({ length }, () => Math.floor(generator.random() * vocab_size));
}

/** Yields the numbers of a model's proof, slice after slice of the window. */
function* proofInSlices(model) {
  const ids = proofWindow(model.config);
  const following = ids.length - 1;
  const count = Math.min(PROVEN_PLACES, following);
  const places = Array.from({ length: count }, (_, k) => Math.floor((k * following) / count));
  const reader = new Reader(model);
  while (reader.length < ids.length) {
    const first = reader.length;
    const streams = vectorsOf(reader.readSome(ids.slice(first)), model.config.n_embd);
    const here = places.filter((t) => t >= first && t < reader.length);
    const found = here.map((t) => model.logits(streams[t - first])[ids[t + 1]]);
    const isLast = reader.length === ids.length;
    yield isLast ? [...found, ...model.logits(streams.at(-1))] : found;
  }
}

/** Resolves to the proof of a model, as files hold it: single precision, in base64. */
export async function proofOf(model) {
  const breath = breather();
  const slices = [];
  for (const found of proofInSlices(model)) {
    slices.push(found);
    await breath();
  }
  const bytes = new Uint8Array(new Float32Array(slices.flat()).buffer);
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
}

/** Compares a model with its proof; yields after each slice. Throws where it is another one. */
export function* comparison(model, proof) {
  const expected = new Float32Array(fromBase64(proof).buffer);
  const limit = TOLERANCE * expected.reduce((most, x) => Math.max(most, Math.abs(x)), 1);
  let place = 0;
  for (const found of proofInSlices(model)) {
    // What is not a number is not within the limit either.
    const isNear = found.every((x) => Math.abs(x - expected[place++]) <= limit);
    if (!isNear) throw new Error('other_function');
    yield;
  }
}
