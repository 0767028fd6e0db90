import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Deck } from '../engine/deck.js';
import { beginningOf, canBeToldApart, countInvented, lettersToWrite, shownOf, wordsIn } from '../engine/duel.js';
import { Generator } from '../engine/random.js';

const TEXTS = {
  prose: 'Salieron del aposento, cerró la puerta don\nAntonio con llave, y fuéronse a la sala, donde los esperaban.'.repeat(2),
  table: '2026-01-07,Madrid,30.1,14.5\n2026-02-06,Bilbao,37.1,29.2\n2026-01-26,Vigo,40.0,8.7\n'.repeat(3),
  addresses: 'https://example.org/una/pagina/con/una/direccion/muy/larga/que/no/acaba ahi.\n'.repeat(3),
  code: '    assert.deepEqual(Object.fromEntries(entries.map(([key,value])=>[value,key])),expected);\n'.repeat(2),
  chinese: '话说天下大势分久必合合久必分周末七国分争并入于秦及秦灭之后楚汉分争又并入于汉汉朝自高祖斩白蛇而起义一统天下后来光武中兴传至献帝遂分为三国。'.repeat(2),
  word: 'a'.repeat(200),
};

for (const [kind, passage] of Object.entries(TEXTS)) {
  test(`two passages of ${kind} share a beginning, and it is the lesser part of what is shown`, () => {
    const start = beginningOf(passage);
    const shared = Array.from(start).length;
    assert.ok(passage.startsWith(start) && shared > 0 && shared <= 40);
    const shown = Array.from(shownOf(passage)).length;
    assert.ok(shown > 2 * shared && shown <= 120);
    assert.equal(shared + lettersToWrite(passage), 120);
    const rival = start + 'ñandú '.repeat(20).slice(0, lettersToWrite(passage));
    assert.ok(canBeToldApart(shownOf(passage), shownOf(rival)));
  });
}

test('words that a text has not are invented', () => {
  const words = new Set(wordsIn('El ingenioso hidalgo, y el Hidalgo; ñandúes de Ávila. ¿Qué?'));
  assert.deepEqual([...words], ['ingenioso', 'hidalgo', 'ñandúes', 'ávila']);
  assert.equal(countInvented('Hidalgo de ÁVILA, ingeniosa y ñandúes: hidalgos de él', words), 2);
  assert.equal(countInvented('你好 12345', words), 0);
  assert.deepEqual(wordsIn('1, 2 y 3'), []);
});

test('a rival is as long as a short passage', () => {
  const passage = 'Tres palabras son '.padEnd(90, 'y más ');
  assert.equal(Array.from(beginningOf(passage)).length + lettersToWrite(passage), 90);
});

test('letters of two places are not cut in two', () => {
  const shown = shownOf('😀'.repeat(200));
  assert.equal(Array.from(shown).length, 120);
  assert.ok(!/\p{Cs}/u.test(shown));
});

test('what is equal, or is so but for a few letters at an end, can not be told apart', () => {
  const text = shownOf(TEXTS.prose);
  assert.ok(!canBeToldApart(text, text));
  assert.ok(!canBeToldApart(text, `xy${text}`));
  assert.ok(!canBeToldApart(text, text.slice(0, 70).padEnd(120, 'xyz')));
  assert.ok(canBeToldApart(text, text.slice(0, 50).padEnd(120, 'xyz')));
});

/** Returns a deck whose order a seed decides. */
function deckOf(count, seed) {
  const generator = new Generator(seed, []);
  return new Deck(count, () => generator.random());
}

test('no passage stands in both games, and another visit has another order', () => {
  const visits = [1, 2].map((seed) => {
    const deck = deckOf(12, seed);
    const guessed = [deck.draw('game', 5)];
    const duel = Array.from({ length: 10 }, () => deck.draw('duel'));
    for (let n = 0; n < 30; n++) guessed.push(deck.draw('game', 5));
    duel.push(...Array.from({ length: deck.sizeFor('duel') }, () => deck.draw('duel')));
    assert.equal(new Set(duel.slice(0, 10)).size, 10);
    assert.deepEqual(guessed.filter((number) => duel.includes(number)), []);
    return duel.join();
  });
  assert.notEqual(visits[0], visits[1]);
});

test('one game leaves some for the other', () => {
  const deck = deckOf(12, 3);
  const guessed = new Set(Array.from({ length: 40 }, () => deck.draw('game', 5)));
  assert.deepEqual([guessed.size, deck.sizeFor('duel')], [7, 5]);
});

test('a passage that an address names is that game’s from then on', () => {
  const deck = deckOf(3, 4);
  deck.take('game', 2);
  const duel = [deck.draw('duel'), deck.draw('duel'), deck.draw('duel')];
  assert.ok(!duel.includes(2));
  assert.equal(deck.draw('game', 5), 2);
});

test('a deck of one passage has none for the second game', () => {
  const deck = deckOf(1, 5);
  assert.equal(deck.draw('game', 5), 0);
  assert.equal(deck.sizeFor('duel'), 0);
});
