import assert from 'node:assert/strict';
import { test } from 'node:test';

import { fileName, firstWords, toldApart } from '../ui/titles.js';

test('a text is called by its first words', () => {
  assert.equal(firstWords('\n  Querida Ana:\nhoy te escribo'), 'Querida Ana:');
  assert.equal(firstWords('En un lugar de la Mancha, de cuyo nombre no quiero'), 'En un lugar de la Mancha, de cuyo nombre…');
  assert.equal(firstWords('La razón de la sinrazón, que a mi razón, se hace'), 'La razón de la sinrazón, que a mi razón…');
  assert.equal(firstWords(' \n\t'), '');
  assert.equal(firstWords('a'.repeat(50)), `${'a'.repeat(40)}…`);
  assert.equal(firstWords('😀'.repeat(50)), `${'😀'.repeat(40)}…`);
});

test('equal titles are told apart', () => {
  assert.deepEqual(toldApart(['a', 'b', 'a', 'a']), ['a', 'b', 'a (2)', 'a (3)']);
});

test('a file has no letter that some system does not take', () => {
  assert.equal(fileName('Lo que escribe Ana: «¿1/2?»', 'html'), 'Lo que escribe Ana «¿1 2 ».html');
  assert.equal(fileName(' \n', 'html'), 'sancho.html');
});
