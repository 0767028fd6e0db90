// The duel: two passages have the same beginning; one is the book's, one the model's. A page of what
// somebody taught opens on it.

import { beginningOf, canBeToldApart, countInvented, lettersToWrite, shownOf } from '../engine/duel.js';
import { writtenAfter } from '../engine/writer.js';
import { app } from './app.js';
import { $, element, hint } from './elements.js';
import { Result, squares, squaresInText } from './result.js';
import { say } from './words.js';
import { newSeed } from './write.js';

const ROUNDS = 10;
const TAUGHT_ROUNDS = 5;
const DRAWINGS = 16; // of a rival at most
const TEMPERATURE = 0.7; // of a rival; with that of the page the model invents more words
const LEAST = 2; // passages: the game has one of them
const LEAST_TAUGHT = 3; // with fewer, a page of what somebody taught opens on its text

/**
 * The marks of the rounds that were played, 1 where the book's passage was found and else −1, of how many,
 * and how many rivals there ever were; seed: of the first rival, another one at each visit; result: its card.
 */
export const duel = { marks: [], all: 0, ever: 0, seed: newSeed(), isBusy: false, result: null };

/** Returns what the duel says: on a page of what somebody taught, of a person and a model. */
function sayInDuel(key, values = {}) {
  const { taught } = app.facts;
  if (!taught) return say(key, values);
  return say(`taught_${key}`, { ...values, name: taught.name || say('somebody') });
}

function duelName() {
  const isOfCervantes = app.facts.corpus === 'Don Quijote' && !app.facts.taught;
  return sayInDuel(isOfCervantes ? 'cervantes_or_sancho' : 'book_or_sancho');
}

/**
 * Resolves to what the model makes of the text before a passage and of its beginning: of some drawings
 * the one that has the fewest words which its text has not, as invented ones would betray it.
 */
async function rivalOf([before, passage]) {
  const start = beginningOf(passage);
  const { ids } = app.vocabulary.encode(before + start);
  const sampling = { ...app.facts.sampling, temperature: TEMPERATURE };
  const words = new Set(app.facts.words.split(' '));
  const best = { text: '', invented: Infinity };
  for (let left = app.facts.words ? DRAWINGS : 1; left && best.invented; left--) {
    const seed = duel.seed + duel.ever++;
    const written = await writtenAfter(ids, lettersToWrite(passage), app.model, sampling, seed);
    const text = start + app.vocabulary.decode(written);
    const invented = countInvented(shownOf(text), words);
    if (invented < best.invented) Object.assign(best, { text, invented });
  }
  return best.text;
}

/** Resolves to a passage and its rival as they are shown; to null where the model writes all of them alike. */
async function nextPair() {
  for (let left = app.deck.sizeFor('duel'); left; left--) {
    const both = app.facts.passages[app.deck.draw('duel')];
    const pair = [both[1], await rivalOf(both)].map(shownOf);
    if (canBeToldApart(...pair)) return pair;
  }
  return null;
}

/** Shows two passages to choose from; resolves when both are there. */
export async function playRound() {
  if (duel.marks.length === duel.all) {
    const most = app.facts.taught ? TAUGHT_ROUNDS : ROUNDS;
    Object.assign(duel, { marks: [], all: Math.min(most, app.deck.sizeFor('duel')) });
  }
  const isAsked = document.activeElement === $('ronda');
  duel.isBusy = $('ronda').hidden = $('duelo-final').hidden = true;
  $('fallo').textContent = say('sancho_writes');
  const shown = await nextPair();
  duel.isBusy = false;
  $('pareja').replaceChildren();
  if (!shown) return void ($('fallo').textContent = say('all_alike'));
  showRounds();
  const pair = shown.map((text, n) => choiceOf(text, n === 0));
  if (Math.random() < 0.5) pair.reverse();
  $('pareja').replaceChildren(...pair);
  if (isAsked) pair[0].focus({ preventScroll: true }); // the button that was pressed is gone
  $('fallo').textContent = sayInDuel('which_is_real', { round: duel.marks.length + 1, all: duel.all });
}

const showRounds = () => $('rondas').replaceChildren(squares(duel.marks, duel.all));

/** Returns a button with one of the two; what follows from its text is whose it is. */
function choiceOf(text, isReal) {
  const press = ({ currentTarget }) => {
    currentTarget.setAttribute('aria-pressed', true);
    decide(isReal);
  };
  const whose = element('b', { hidden: true }, sayInDuel(isReal ? 'of_the_book' : 'of_sancho'));
  const kind = isReal ? 'real' : 'written';
  return element('button', { type: 'button', class: kind, dir: 'auto', onclick: press }, `${text} … `, whose);
}

function decide(isRight) {
  duel.marks.push(isRight ? 1 : -1);
  for (const button of $('pareja').children) {
    button.disabled = true;
    button.lastChild.hidden = false;
  }
  const right = duel.marks.filter((mark) => mark === 1).length;
  const score = say('n_of', { n: right, all: duel.marks.length });
  const isOver = duel.marks.length === duel.all;
  const soFar = say(isOver ? 'you_found' : 'found_so_far', { score });
  showRounds();
  $('fallo').textContent = `${say(isRight ? 'was_right' : 'was_wrong')} ${soFar}.`;
  $('ronda').textContent = say(isOver ? 'play_again' : 'next_round');
  $('ronda').classList.toggle('primary', !isOver); // then it is the one that sends the result
  $('ronda').hidden = false;
  $('duelo-final').hidden = !isOver;
  if (isOver) showResult(right, score);
  $('ronda').focus();
}

function showResult(right, score) {
  duel.result.show({
    title: duelName(),
    figures: [[right, say('of_all', { all: duel.all })]],
    marks: duel.marks,
    lines: [sayInDuel('duel_score', { duel: duelName(), score }), squaresInText(duel.marks)],
  });
}

/** Opens the duel; on a page of what somebody taught, before all else. */
export function openDuel() {
  const { taught, passages } = app.facts;
  const least = taught ? LEAST_TAUGHT : LEAST;
  if (passages.length < least) {
    const why = say('few_rounds', { n: passages.length, least });
    if (taught || passages.length) $('lema').after(hint(why));
    return;
  }
  $('duelo').hidden = false;
  if (taught) {
    $('escribe').before($('duelo'));
    $('ronda').textContent = say('next_round');
    $('duelo-sigue').hidden = false;
  }
  $('duelo-titulo').textContent = duelName();
  $('duelo-intro').textContent = sayInDuel('duel_intro', app.facts);
  $('ronda').addEventListener('click', playRound);
  duel.result = new Result($('duelo-final'));
}
