// The sampler of generate.py: logits to probabilities to the next id, in double precision.

import { softmax } from './probability.js';

/** Options that leave the logits as they are. Those of SampleConfig come with the page's facts. */
export const SAMPLING_DEFAULTS = { temperature: 1, top_k: null, top_p: null, min_p: null };

/** Returns the ids, the likeliest first, equal ones in their order. */
export function ranking(logits) {
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
export function shapeLogits(raw, options) {
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
export function choose(logits, uniform) {
  const highest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  let sum = 0;
  const cumulated = logits.map((value) => (sum += Math.exp(value - highest)));
  return cumulated.findIndex((value) => value > uniform * sum);
}
