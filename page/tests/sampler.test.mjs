import assert from 'node:assert/strict';
import { test } from 'node:test';

import { softmax } from '../engine/probability.js';
import { choose, ranking, SAMPLING_DEFAULTS, shapeLogits } from '../engine/sampler.js';
import { cases, farthest } from './given.mjs';

for (const { options, shaped } of cases.shaped) {
  test(`logits after ${JSON.stringify(options)} are those of generate.py`, () => {
    const found = Array.from(shapeLogits(cases.logits, options));
    assert.deepEqual(found.map(Number.isFinite), shaped.map((x) => x !== null));
    const kept = (numbers) => numbers.filter((_, id) => shaped[id] !== null);
    assert.ok(farthest(kept(found), kept(shaped)) < 1e-12);
  });
}

/** Returns the ids that some options leave. */
function left(logits, options) {
  const shaped = shapeLogits(logits, { ...SAMPLING_DEFAULTS, ...options });
  return Array.from(shaped.keys()).filter((id) => shaped[id] > -Infinity);
}

test('what just reaches a limit is kept, and no more than that', () => {
  const equal = [0, 0, 0, 0]; // a quarter each
  for (const n of [1, 2, 3, 4]) {
    assert.deepEqual(left(equal, { top_p: n / 4 }), [0, 1, 2, 3].slice(0, n));
    assert.deepEqual(left(equal, { top_k: n }), [0, 1, 2, 3].slice(0, n));
  }
  assert.deepEqual(left(equal, { top_p: 0 }), [0]);
  assert.deepEqual(left(equal, { min_p: 1 }), [0, 1, 2, 3]);
  assert.deepEqual(left([0, 1, 0.5], { min_p: 1 }), [1]);
});

test('no number chooses an id that has no probability', () => {
  const logits = Float64Array.of(-Infinity, 0, -Infinity, 0, -Infinity);
  const numbers = [0, 0.5 - 2 ** -54, 0.5, 1 - 2 ** -53];
  assert.deepEqual(numbers.map((uniform) => choose(logits, uniform)), [1, 1, 3, 3]);
});

test('a number chooses the first id that passes it', () => {
  const logits = Float64Array.from([0.5, 0.2, 0.3], Math.log);
  assert.deepEqual([0, 0.49, 0.51, 0.69, 0.71, 0.99].map((x) => choose(logits, x)), [0, 0, 1, 1, 2, 2]);
  assert.ok(farthest(softmax(logits), [0.5, 0.2, 0.3]) < 1e-12);
  assert.deepEqual(ranking([1, 3, 1, 2]), [1, 3, 0, 2]);
});
