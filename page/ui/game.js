// ¿Adivinas mejor que Sancho?: Shannon's game (1951, «Prediction and Entropy of Printed English», 5).
//
// Each letter of a passage is guessed until it is right, by whoever plays and by the model, which
// tries the likeliest first. From how often one try was enough, or two, … follow bounds of the bits
// that a letter holds. Both choose among the same keys, and both have read the same.

import { atOnce, betterByPart, entropyBounds, keyOf, modelTries } from '../engine/guessing.js';
import { Reader } from '../engine/model.js';
import { meanOf } from '../engine/probability.js';
import { readOn } from '../engine/writer.js';
import { app, characterOf } from './app.js';
import { $, element, table, walkWithArrows } from './elements.js';
import { visible } from './notation.js';
import { Result, squaresInText } from './result.js';
import { modelNames, say, spoken } from './words.js';
import { TINTS } from './write.js';

const SCORED = 30; // letters from which there is a score
const BOUNDED = 100; // letters from which the bounds say something
const KEPT_FOR_DUEL = 5; // passages
const RECENT = 8; // letters in the table of the last ones
const KEY_ROWS = ['qwertyuiop', 'asdfghjklñ', 'zxcvbnm'];

/** The keys, by what they are guessed with, and the game that is played, and its card, once there are. */
export const board = { keys: new Map(), game: null, result: null };

// --- playing --------------------------------------------------------------------------------

const drawGame = () => newGame(app.deck.draw('game', KEPT_FOR_DUEL));

function newGame(number) {
  const { passages } = app.facts;
  const [before, passage] = passages[number].map((text) => app.vocabulary.encode(text).ids);
  const B = app.model.config.block_size;
  board.game = {
    number,
    ids: [...before, ...passage],
    at: before.length, // of the letter to guess
    start: Math.max(0, before.length - B), // where the model's context began
    reader: null, // until something is guessed
    tried: new Set(),
    yours: [], // tries, letter by letter
    models: [],
    last: Promise.resolve(), // guesses are answered one after another
    pending: 0,
  };
  const text = asOneLine(app.vocabulary.decode(before));
  $('pasaje').replaceChildren(element('span', { class: 'context' }, `… ${text}`), nextMark());
  $('acierto').textContent = say('which_next');
  $('otro-pasaje').textContent = say('passage_of', { n: number + 1, all: passages.length });
  showTried();
  showTries();
}

/** Returns a text as it is guessed: a line of the book ends with a blank. */
const asOneLine = (text) => text.split('\n\n').map((part) => part.replace(/\n/g, ' ')).join('\n\n');
const nextMark = () => element('span', { class: 'next', 'aria-hidden': true }, '\u2002');

async function guess(key) {
  const { game } = board;
  game.pending++;
  game.last = game.last.then(() => answer(game, key));
  await game.last;
  game.pending--;
}

async function answer(game, key) {
  const { ids, at, tried } = game;
  if (at === ids.length || tried.has(key)) return;
  if (!board.keys.has(key)) return void ($('acierto').textContent = say('no_key', { letter: capital(spoken(key)) }));
  tried.add(key);
  const wanted = keyOf(characterOf(ids[at]));
  if (key === wanted) {
    game.models.push(modelTries(await expectedNext(game), app.vocabulary.characters, wanted));
    game.yours.push(tried.size);
    tried.clear();
    game.at++;
  }
  if (game !== board.game) return;
  showTried();
  if (key === wanted) showRight(game);
  else $('acierto').textContent = say('wrong', { letter: capital(spoken(key)), n: tried.size });
}

/** Returns the logits of the letter to guess. Past the model's window, its newer half is kept. */
async function expectedNext(game) {
  const reader = (game.reader ??= new Reader(app.model));
  const { ids, at } = game;
  const B = app.model.config.block_size;
  if (at - game.start > B) {
    reader.restart();
    game.start = at - Math.max(1, B >> 1);
  }
  await readOn(reader, ids.slice(game.start, at - 1), () => true);
  return reader.read(ids[at - 1]);
}

// --- what is seen ---------------------------------------------------------------------------

const capital = (text) => text[0].toUpperCase() + text.slice(1);

function showTried() {
  for (const [key, button] of board.keys) {
    button.setAttribute('aria-disabled', board.game.tried.has(key));
  }
}

function showRight(game) {
  const { ids, at, yours, models } = game;
  const [mine, its] = [yours.at(-1), models.at(-1)];
  const character = characterOf(ids[at - 1]);
  const tint = `tint${Math.min(mine - 1, TINTS.length)}`;
  const title = say('you_and_sancho', { yours: mine, its, ...modelNames() });
  const span = element('span', { class: tint, title }, asOneLine(character));
  $('pasaje').lastChild.before(span);
  const letter = capital(spoken(keyOf(character)));
  const parts = [say('right', { letter, yours: say('tries', { n: mine }), its, ...modelNames() })];
  if (yours.length === SCORED) parts.push(say('score_is_there', { verdict: verdict(game) }));
  if (at === ids.length) {
    parts.push(say('passage_ends'));
    $('pasaje').lastChild.remove();
  }
  $('acierto').textContent = parts.join(' ');
  showTries();
}

/** Shows the tries of the last letters, and the score if there are enough. */
function showTries() {
  const { ids, at, yours, models } = board.game;
  const n = Math.min(RECENT, yours.length);
  const room = Array(RECENT - n).fill('');
  const glyphs = ids.slice(at - n, at).map((id) => visible(keyOf(characterOf(id))));
  const tries = (numbers) => [...(n ? numbers.slice(-n) : []).map(String), ...room];
  const rows = [[say('you'), ...tries(yours)], [modelNames().name, ...tries(models)]];
  $('ultimas').replaceChildren(table(say('last_tries'), [say('letter'), ...glyphs, ...room], rows));
  $('resultado').hidden = yours.length < SCORED;
  $('faltan').textContent = whatIsLeft(yours.length);
  if (yours.length >= SCORED) showScore(board.game);
}

function whatIsLeft(n) {
  if (n < SCORED) return say('until_score', { needed: SCORED, n });
  if (n < BOUNDED) return say('until_bounds', { needed: BOUNDED });
  const keys = board.keys.size;
  return say('bounds', { bits: Math.log2(keys).toFixed(2), n: keys });
}

function verdict({ yours, models }) {
  const first = Math.sign(atOnce(yours) - atOnce(models));
  const fewer = Math.sign(meanOf(models) - meanOf(yours));
  const told = (key) => say(key, modelNames());
  if (first * fewer < 0) return told(first > 0 ? 'you_first_sancho_fewer' : 'sancho_first_you_fewer');
  if (!first && !fewer) return told('draw');
  return told(first + fewer > 0 ? 'you_win' : 'sancho_wins');
}

function showScore(game) {
  const { number, yours, models } = game;
  const { name } = modelNames();
  board.result.show({
    title: say('game', modelNames()),
    figures: [[atOnce(yours), say('you')], [atOnce(models), name]],
    marks: betterByPart(yours, models),
    about: [say('at_first_of', { n: yours.length }), say('squares_of_game', { name })],
    lines: scoreLines(game),
    place: `#game=${number + 1}`,
  });
  const names = ['', say('at_first'), say('tries_each')];
  if (yours.length >= BOUNDED) names.push(say('bits_a_letter'));
  const line = (whose, tries) => {
    const first = say('n_of', { n: atOnce(tries), all: tries.length });
    const cells = [whose, first, meanOf(tries).toFixed(2)];
    if (tries.length < BOUNDED) return cells;
    const [low, high] = entropyBounds(tries).map((bits) => bits.toFixed(2));
    return [...cells, say('n_to', { low, high })];
  };
  const rows = [line(say('you'), yours), line(name, models)];
  $('marcador').replaceChildren(element('p', { class: 'figure' }, verdict(game)), table('', names, rows));
}

/** Returns the lines of a score to send to somebody. */
function scoreLines({ number, yours, models }) {
  const { Name, name } = modelNames();
  const line = (whose, tries) =>
    say('score_line', { name: whose, first: atOnce(tries), mean: meanOf(tries).toFixed(2) });
  const letters = say('letters', { n: yours.length });
  return [
    say('score_head', { n: number + 1, letters, ...modelNames() }),
    say('score_squares', { squares: squaresInText(betterByPart(yours, models)), name }),
    line(say('me'), yours),
    line(Name, models),
  ];
}

// --- the keys -------------------------------------------------------------------------------

function addKeys() {
  const keys = new Set(app.vocabulary.characters.map(keyOf));
  const letters = KEY_ROWS.map((row) => Array.from(row).filter((key) => keys.has(key)));
  const others = [...keys].filter((key) => key !== ' ' && !letters.flat().includes(key)).sort();
  for (const row of [...letters, [' '].filter((key) => keys.has(key)), others]) {
    for (const key of row) board.keys.set(key, keyButton(key));
    $('teclas').append(element('div', {}, ...row.map((key) => board.keys.get(key))));
  }
  walkWithArrows([...board.keys.values()]);
}

function keyButton(key) {
  const name = key === ' ' ? { class: 'blank' } : { 'aria-label': spoken(key) };
  const press = (event) => {
    guess(key);
    // After a finger or the mouse, whoever types goes on; who came with the tab key stays here.
    if (event.detail) $('pasaje').focus({ preventScroll: true });
  };
  const attributes = { type: 'button', ...name, onclick: press };
  return element('button', attributes, key === ' ' ? say('blank') : visible(key));
}

function typeKey(event) {
  const { key, target, ctrlKey, metaKey, altKey } = event;
  if (ctrlKey || metaKey || altKey || Array.from(key).length !== 1) return;
  if (key === ' ' && target.tagName === 'BUTTON') return; // it presses that button
  event.preventDefault();
  guess(keyOf(key));
}

/** Opens the passage that the address names, as #game=3; returns whether it names one. */
export function openLinkedGame() {
  const number = Number(new URLSearchParams(location.hash.slice(1)).get('game')) - 1;
  if (!app.facts.passages[number]) return false;
  newGame(app.deck.take('game', number));
  goToGame();
  return true;
}

/** Shows the game, where whoever types guesses at once. */
function goToGame() {
  $('adivina').scrollIntoView();
  $('pasaje').focus({ preventScroll: true });
}

export function openGame() {
  const { passages } = app.facts;
  if (!passages.length) return;
  $('adivina').hidden = false;
  addKeys();
  board.result = new Result($('resultado'));
  $('a-adivina').addEventListener('click', (event) => {
    event.preventDefault();
    goToGame();
  });
  $('juego').addEventListener('keydown', typeKey);
  $('otro-pasaje').addEventListener('click', () => {
    drawGame();
    $('pasaje').focus();
  });
  if (!openLinkedGame()) drawGame();
}
