// The duel: two passages begin with the same words; one is the book's, one the model's. A page of what
// somebody taught opens on it.

import { writtenAfter } from '../engine/writer.js';
import { app } from './app.js';
import { $, element, hint } from './elements.js';
import { copyFrom } from './game.js';
import { pageAddress } from './link.js';
import { say } from './words.js';
import { newSeed } from './write.js';

const ROUNDS = 10;
const TAUGHT_ROUNDS = 5;
const LEAST_TAUGHT = 3; // with fewer, a page of what somebody taught opens on its text
const DUEL_LETTERS = 120; // of each passage, about
const FIRST_WORDS = /^(?:\S+\s+){3}/; // with which both begin

/**
 * How many rounds were played, in how many the book's passage was found, and how many there ever were;
 * seed: of the first rival, another one at each visit.
 */
export const duel = { played: 0, right: 0, ever: 0, seed: newSeed(), isBusy: false };

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

function roundsToPlay() {
  const { taught, passages } = app.facts;
  return Math.min(taught ? TAUGHT_ROUNDS : ROUNDS, passages.length);
}

/** Returns a passage as it is shown: on one line, as many whole words as there is room for. */
function shortened(text) {
  const whole = text.slice(0, DUEL_LETTERS).replace(/\s+\S*$/, '');
  return `${whole.replace(/\s+/g, ' ')} …`;
}

/** Returns what the model makes of the text before a passage and of its first words. */
async function rivalOf([before, passage]) {
  const [start] = FIRST_WORDS.exec(passage) ?? [''];
  const { ids } = app.vocabulary.encode(before + start);
  const letters = Math.min(DUEL_LETTERS, passage.length) - start.length; // a longer one would be known by that
  const written = await writtenAfter(ids, letters, app.model, app.facts.sampling, duel.seed + duel.ever++);
  return start + app.vocabulary.decode(written);
}

/** Shows two passages to choose from; resolves when both are there. */
export async function playRound() {
  if (duel.played === roundsToPlay()) duel.played = duel.right = 0;
  const isAsked = document.activeElement === $('ronda');
  duel.isBusy = $('ronda').hidden = $('duelo-final').hidden = true;
  $('fallo').textContent = say('sancho_writes');
  const both = app.facts.passages[duel.ever % app.facts.passages.length];
  const pair = [choiceOf(both[1], true), choiceOf(await rivalOf(both), false)];
  if (Math.random() < 0.5) pair.reverse();
  $('pareja').replaceChildren(...pair);
  if (isAsked) pair[0].focus({ preventScroll: true }); // the button that was pressed is gone
  $('fallo').textContent = sayInDuel('which_is_real', { round: duel.played + 1, all: roundsToPlay() });
  duel.isBusy = false;
}

/** Returns a button with one of the two; what follows from its text is whose it is. */
function choiceOf(text, isReal) {
  const press = ({ currentTarget }) => {
    currentTarget.setAttribute('aria-pressed', true);
    decide(isReal);
  };
  const whose = element('b', { hidden: true }, sayInDuel(isReal ? 'of_the_book' : 'of_sancho'));
  return element('button', { type: 'button', onclick: press }, `${shortened(text)} `, whose);
}

function decide(isRight) {
  duel.played++;
  duel.right += isRight;
  for (const button of $('pareja').children) {
    button.disabled = true;
    button.lastChild.hidden = false;
  }
  const score = say('n_of', { n: duel.right, all: duel.played });
  const isOver = duel.played === roundsToPlay();
  const soFar = say(isOver ? 'you_found' : 'found_so_far', { score });
  $('fallo').textContent = `${say(isRight ? 'was_right' : 'was_wrong')} ${soFar}.`;
  $('ronda').textContent = say(isOver ? 'play_again' : 'next_round');
  $('ronda').hidden = false;
  $('ronda').focus();
  $('duelo-final').hidden = !isOver;
  const line = sayInDuel('duel_score', { duel: duelName(), score });
  $('cuenta-duelo').value = [line, pageAddress()].join('\n').trim();
}

/** Opens the duel; on a page of what somebody taught, before all else. */
export function openDuel() {
  const { taught, passages } = app.facts;
  if (taught && passages.length < LEAST_TAUGHT) {
    const why = say('few_rounds', { n: passages.length, least: LEAST_TAUGHT });
    $('lema').after(hint(why));
    return;
  }
  if (!passages.length) return;
  const link = document.querySelector('[href="#duelo"]');
  $('duelo').hidden = link.hidden = false;
  if (taught) {
    $('escribe').before($('duelo'));
    document.querySelector('[href="#escribe"]').before(link, ' ');
    $('ronda').textContent = say('next_round');
    $('duelo-sigue').hidden = false;
  }
  $('duelo-titulo').textContent = duelName();
  $('duelo-intro').textContent = sayInDuel('duel_intro', app.facts);
  $('ronda').addEventListener('click', playRound);
  $('copiar-duelo').addEventListener('click', () => copyFrom('cuenta-duelo', 'duelo-copiado'));
}
