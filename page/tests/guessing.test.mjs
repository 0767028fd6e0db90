import assert from 'node:assert/strict';
import { test } from 'node:test';

import { atOnce, betterByPart, entropyBounds, keyOf, modelTries } from '../engine/guessing.js';

test('a character is guessed with the key of its letter, and ñ has its own', () => {
  const keys = { Á: 'a', ü: 'u', Ñ: 'ñ', n: 'n', '\n': ' ', '—': '—', '😀': '😀' };
  for (const [character, key] of Object.entries(keys)) assert.equal(keyOf(character), key);
});

test('the model tries keys from the likeliest on, and all characters of a key count for it', () => {
  // Of 10: a has 3, b 4, c 1 and the accented á 2. So the key of a has 5, before that of b.
  const characters = ['a', 'b', 'c', 'á'];
  const logits = [3, 4, 1, 2].map(Math.log);
  const tries = ['a', 'b', 'c'].map((key) => modelTries(logits, characters, key));
  assert.deepEqual(tries, [1, 2, 3]);
});

test('keys that are as likely need as many tries', () => {
  const tries = ['a', 'b', 'c'].map((key) => modelTries([0, 0, -1], ['a', 'b', 'c'], key));
  assert.deepEqual(tries, [1, 1, 3]);
});

/** Compares the bounds of tries with what was worked by hand. */
function assertBounds(tries, lower, upper) {
  const found = entropyBounds(tries);
  [lower, upper].forEach((bits, n) => assert.ok(Math.abs(found[n] - bits) < 1e-12, `${found}`));
}

test("a letter holds between Shannon's two bounds", () => {
  // q = ½, ¼, ¼: 2 (¼ − ¼) log₂ 2 + 3 · ¼ log₂ 3 at least, ½ · 1 + ¼ · 2 + ¼ · 2 at most.
  assertBounds([1, 1, 2, 3], 0.75 * Math.log2(3), 1.5);
  // q = ½, ½: both are a bit.
  assertBounds([1, 2, 1, 2], 1, 1);
  assertBounds([1, 1, 1], 0, 0);
});

test('fractions that do not descend are sorted, and the lower bound stays below the upper one', () => {
  assertBounds([3, 3, 1, 2], 0.75 * Math.log2(3), 1.5);
});

test('each tenth of the letters goes to who guesses more of it at the first try', () => {
  const few = [1, 2, 3]; // one of three at the first try
  const more = [1, 1, 9];
  const none = [2, 2, 2];
  const mine = [few, few, few, more, more, none, none, few, none, more].flat();
  const others = [few, more, none, few, more, none, few, few, more, none].flat();
  assert.deepEqual(betterByPart(mine, others), [0, -1, 1, 1, 0, 0, -1, 0, -1, 1]);
});

test('tenths of a number that ten does not divide have all letters, each once', () => {
  for (const length of [31, 37, 99]) {
    for (let n = 0; n < length; n++) {
      const marks = betterByPart(Array(length).fill(2).with(n, 1), Array(length).fill(2));
      assert.equal(marks.filter((mark) => mark === 1).length, 1);
    }
  }
  assert.equal(atOnce([1, 2, 1, 5]), 2);
});
