import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Generator, seedOf } from '../engine/random.js';
import { cases } from './given.mjs';

for (const { seed, key, numbers } of cases.random) {
  test(`numbers of seed ${seed} and key ${key} are NumPy's`, () => {
    const generator = new Generator(BigInt(seed), key);
    assert.deepEqual(numbers.map(() => generator.random()), numbers);
  });
}

test('a seed is a whole number that sample.py takes', () => {
  assert.equal(seedOf(' 1605 '), 1605n);
  assert.equal(seedOf('0'), 0n);
  assert.equal(seedOf('0007'), 7n);
  assert.equal(seedOf(String(2n ** 128n - 1n)), 2n ** 128n - 1n);
  for (const text of ['', 'x', '-1', '1.5', '1e3', '0x10', String(2n ** 128n)]) assert.equal(seedOf(text), null);
});

test('a seed of millions of digits is refused, and not made a number first, which would take an hour', () => {
  for (const text of ['9'.repeat(1e7), '0'.repeat(1e6) + 'x']) assert.equal(seedOf(text), null);
});
