import assert from 'node:assert/strict';
import { test } from 'node:test';

import { softmax } from '../../../sancho/convert/page/engine/probability.js';
import { choose, ranking, shapeLogits } from '../../../sancho/convert/page/engine/sampler.js';
import { cases, farthest } from './given.mjs';

for (const { options, shaped } of cases.shaped) {
  test(`logits after ${JSON.stringify(options)} are those of generate.py`, () => {
    const found = Array.from(shapeLogits(cases.logits, options));
    assert.deepEqual(found.map(Number.isFinite), shaped.map((x) => x !== null));
    const kept = (numbers) => numbers.filter((_, id) => shaped[id] !== null);
    assert.ok(farthest(kept(found), kept(shaped)) < 1e-12);
  });
}

test('a number chooses the first id that passes it', () => {
  const logits = Float64Array.from([0.5, 0.2, 0.3], Math.log);
  assert.deepEqual([0, 0.49, 0.51, 0.69, 0.71, 0.99].map((x) => choose(logits, x)), [0, 0, 1, 1, 2, 2]);
  assert.ok(farthest(softmax(logits), [0.5, 0.2, 0.3]) < 1e-12);
  assert.deepEqual(ranking([1, 3, 1, 2]), [1, 3, 0, 2]);
});
