// Shannon's guessing game: with what a character is guessed, how many tries the model needs, and what the
// tries of many letters say.

import { entropy, softmax } from './probability.js';

const PARTS = 10; // of what was guessed, in each of which one of the two does better

/** Returns what a character is guessed with: capitals and accents do not count, but ñ is no n. */
export function keyOf(character) {
  const small = character.toLowerCase();
  if (/\s/.test(small)) return ' ';
  return small === 'ñ' ? small : Array.from(small.normalize('NFD'))[0];
}

/**
 * Returns how many tries the model needs for a key: as many as none is likelier than.
 *
 * characters: the vocabulary, of which `logits` has one each.
 */
export function modelTries(logits, characters, key) {
  const chances = new Map();
  softmax(logits).forEach((p, id) => {
    const one = keyOf(characters[id]);
    chances.set(one, (chances.get(one) ?? 0) + p);
  });
  const own = chances.get(key);
  return 1 + [...chances.values()].filter((p) => p > own).length;
}

/** Returns how many letters took one try alone. */
export const atOnce = (tries) => tries.filter((n) => n === 1).length;

/**
 * Returns [lower, upper], the bounds of the bits that a letter holds, of how many tries each took.
 *
 * With q_i the fraction of letters that took i tries: Σ i (q_i − q_{i+1}) log₂ i and −Σ q_i log₂ q_i.
 * The lower one supposes that the q_i descend. Those of few letters do not quite, and are sorted, so
 * that it never exceeds the upper one.
 */
export function entropyBounds(tries) {
  const q = new Array(Math.max(...tries)).fill(0);
  for (const n of tries) q[n - 1] += 1 / tries.length;
  q.sort((a, b) => b - a);
  const term = (sum, x, i) => sum + (i + 1) * (x - (q[i + 1] ?? 0)) * Math.log2(i + 1);
  return [q.reduce(term, 0), entropy(q)];
}

/** Returns for each tenth of the letters who guessed more of them at the first try: 1, mine; −1, others; 0. */
export function betterByPart(mine, others) {
  const first = (n) => Math.floor((n * mine.length) / PARTS);
  return Array.from({ length: PARTS }, (_, n) => {
    const [own, its] = [mine, others].map((tries) => atOnce(tries.slice(first(n), first(n + 1))));
    return Math.sign(own - its);
  });
}
