import assert from 'node:assert/strict';
import { test } from 'node:test';

import { GPT } from '../engine/model.js';
import { comparison, proofOf } from '../engine/proof.js';
import { cases, FAMILIES, weightsOf } from './given.mjs';

for (const family of FAMILIES) {
  const config = cases.configs[family];
  const modelWith = (change) => {
    const weights = weightsOf(family);
    weights['blocks.0.feed_forward.proj.weight'][0] += change;
    return new GPT(config, weights);
  };

  test(`only ${family} itself, or what differs from it by rounding, has its proof`, async () => {
    const proof = await proofOf(modelWith(0));
    const compare = (change) => Array.from(comparison(modelWith(change), proof));
    for (const rounding of [0, 1e-5]) assert.doesNotThrow(() => compare(rounding));
    for (const change of [1, NaN, Infinity]) assert.throws(() => compare(change), { message: 'other_function' });
  });
}
