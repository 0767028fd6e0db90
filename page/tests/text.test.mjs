import assert from 'node:assert/strict';
import { test } from 'node:test';

import { readSource } from '../engine/text.js';
import { cases } from './given.mjs';

cases.cleaned.forEach(([raw, clean], n) => {
  test(`text ${n} is cleaned as by text.py`, async () => {
    const { text } = await readSource(new Blob([raw]), 'utf-8', cases.rules);
    const ids = [...text.train, ...text.val];
    assert.equal(ids.map((id) => text.characters[id]).join(''), clean);
  });
});

test('what is no plain text is refused', async () => {
  const refused = (bytes) => readSource(new Blob([bytes]), 'utf-8', cases.rules);
  assert.equal((await refused('%PDF-1.7')).refused, 'no_plain_text');
  assert.deepEqual(await refused(new Uint8Array([97, 241])), { refused: 'not_utf8', offer: 'windows-1252' });
});

test('a byte order mark is not learned, in a file or pasted', async () => {
  for (const source of [new Blob(['\ufeffuno']), '\ufeffuno']) {
    const { text } = await readSource(source, 'utf-8', cases.rules);
    assert.deepEqual(text.characters, ['\n', 'n', 'o', 'u']);
  }
});

test('a text is called damaged where most of what is no ASCII in it is whole', async () => {
  const read = (whole) => readSource(new Blob(['é'.repeat(whole), new Uint8Array([241, 97])]), 'utf-8', cases.rules);
  assert.deepEqual(await read(1), { refused: 'not_utf8', offer: 'windows-1252' });
  assert.deepEqual(await read(2), { refused: 'damaged_utf8', damaged: 1 });
});
