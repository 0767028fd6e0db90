import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Vocabulary } from '../engine/vocabulary.js';
import { cases } from './given.mjs';

const vocabulary = new Vocabulary(cases.characters, cases.nearest);

for (const { text, ids } of cases.encoded) {
  test(`ids of "${text}" are those of tokenizer.py`, () => {
    assert.deepEqual(vocabulary.encode(text).ids, ids);
    const known = vocabulary.decode(ids);
    assert.equal(vocabulary.decode(vocabulary.encode(known).ids), known);
  });
}

test('unknown characters are told once, with their place and what is nearest', () => {
  const { unknown } = vocabulary.encode('añ«b«😀');
  assert.deepEqual(unknown, [
    { character: '«', position: 2, nearest: undefined },
    { character: '😀', position: 5, nearest: undefined },
  ]);
  assert.deepEqual(vocabulary.encode('É').unknown, [{ character: 'É', position: 0, nearest: 'é' }]);
  assert.equal(vocabulary.replaceUnknown('É«'), 'é');
});
