import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Generator } from '../engine/random.js';
import { cases } from './given.mjs';

for (const { seed, key, numbers } of cases.random) {
  test(`numbers of seed ${seed} and key ${key} are NumPy's`, () => {
    const generator = new Generator(BigInt(seed), key);
    assert.deepEqual(numbers.map(() => generator.random()), numbers);
  });
}
