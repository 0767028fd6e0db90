import assert from 'node:assert/strict';
import { test } from 'node:test';

import { branchOf, givenText, Texts } from '../ui/texts.js';

test('back and forth lose no text, and another one stands behind the one from which it was begun', () => {
  const texts = new Texts();
  assert.deepEqual([texts.shown, texts.has(-1), texts.has(1)], [undefined, false, false]);
  for (const name of 'abc') texts.add(name);
  assert.equal(texts.go(-1), 'b');
  assert.equal(texts.go(1), 'c');
  assert.equal(texts.go(1), 'c'); // there is none after it
  texts.go(-1);
  texts.add('d');
  assert.deepEqual([texts.all, texts.shown], [['a', 'b', 'd', 'c'], 'd']);
  assert.deepEqual([texts.has(-2), texts.has(-3), texts.has(1), texts.has(2)], [true, false, true, false]);
});

test('a text with another letter keeps who wrote what before it, and that letter was given', () => {
  const typed = givenText([5, 6], [0, 0], 'un');
  const written = { ...typed, ids: [5, 6, 7, 8], starts: [0, 0, 0, 1], tints: [null, null, 3, 0], settings: 'a=1' };
  const branch = branchOf(written, 3, 9);
  assert.deepEqual(branch.ids, [5, 6, 7, 9]);
  assert.deepEqual(branch.tints, [null, null, 3, null]);
  assert.deepEqual(branch.starts, [0, 0, 0, 1]);
  assert.deepEqual([branch.start, branch.chosen, branch.given, branch.settings], ['un', 3, 4, undefined]);
  assert.deepEqual(written.ids, [5, 6, 7, 8]);
});
