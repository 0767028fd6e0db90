// Esta letra: what the model expected in its place. And who is asked, for all the other views.

import { Reader } from '../engine/model.js';
import { bitsOf, entropy, softmax } from '../engine/probability.js';
import { ranking, shapeLogits } from '../engine/sampler.js';
import { readOn } from '../engine/writer.js';
import { app, characterOf } from './app.js';
import { CONTROLS } from './controls.js';
import { $, aside, bar, element, glyph, hint, walkWithArrows } from './elements.js';
import { keepAddress, SEEN } from './link.js';
import { percent, visible } from './notation.js';
import { chapters, foldedNumbers, say, spoken } from './words.js';
import { keepReader, story, whatIf } from './write.js';

const SHOWN = 10;
const SIDE_BY_SIDE = matchMedia('screen and (min-width: 100rem)'); // as in asking.css: no tabs, all views
const SHEET = 'sheet'; // the state of an entry of the history in which the sheet is open
export const asking = { view: 'letra', request: 0, moment: null };
const views = {}; // by name: { open(box), show(moment) }

/** A letter is pointed at: it is shown for as long as that lasts. */
export function askLetter(i) {
  if (!story.running) showLetter(i ?? story.chosen);
}

/** A letter is chosen, and stays so. */
export async function chooseLetter(i) {
  story.chosen = i;
  story.letters.mark(i);
  keepInSight();
  keepAddress();
  await showLetter(i);
  if (story.chosen === i) $('dicho').textContent = asking.moment ? momentInWords(asking.moment) : '';
}

// --- the sheet that answers where there is one column ---------------------------------------

/** A letter is chosen by hand. */
export function tapLetter(i) {
  openSheet();
  chooseLetter(i);
}

export const isSheet = () => getComputedStyle($('preguntas')).position === 'fixed';

/** Opens the sheet, which Back closes, as a phone's user expects. */
function openSheet() {
  const { classList } = $('preguntas');
  if (classList.contains('open')) return;
  classList.add('open');
  if (isSheet()) history.pushState(SHEET, '');
}

function closeSheet() {
  const { classList } = $('preguntas');
  if (!classList.contains('open')) return;
  classList.remove('open');
  if (history.state === SHEET) history.back();
}

/** Moves the page so far that the sheet does not cover the chosen letter. */
function keepInSight() {
  if (!$('preguntas').matches('.open') || !isSheet()) return;
  story.letters.box.children[story.chosen]?.scrollIntoView({ block: 'nearest' });
}

function listenToSheet() {
  addEventListener('popstate', () => {
    $('preguntas').classList.remove('open');
    if (history.state === SEEN) keepAddress(); // it has that of a letter before
  });
  $('cerrar').addEventListener('click', closeSheet);
  document.addEventListener('keydown', ({ key }) => key === 'Escape' && closeSheet());
  // Who reads on elsewhere has no letter in mind any more.
  new IntersectionObserver(([text]) => text.isIntersecting || closeSheet()).observe($('texto'));
}

// --- the moment of a letter -----------------------------------------------------------------

/** Reads up to a letter and shows the moment before it was written. */
async function showLetter(i) {
  const request = ++asking.request;
  if (i === null || i === undefined || i >= story.ids.length) return showNone();
  const moment = await momentBefore(i, () => request === asking.request);
  if (request !== asking.request) return;
  if (!moment && i > 0) return;
  asking.moment = moment;
  showPlace(i);
  showMoment();
}

/** Shows that no letter is chosen: one of another text is nothing of this one. */
function showNone() {
  asking.moment = null;
  $('lugar').classList.add('idle');
  $('lugar').textContent = say('none_chosen');
  showMoment();
}

/** Returns what the model computes before letter i; null before the first, which nothing foretells. */
async function momentBefore(i, isWanted) {
  if (i === 0) return null;
  const start = story.starts[i];
  const { version } = story;
  const reader = story.readers.get(start) ?? new Reader(app.model);
  keepReader(start, reader);
  const isMine = () => isWanted() && story.version === version;
  if (!(await readOn(reader, story.ids.slice(start, i), isMine))) return null;
  const t = i - 1 - start;
  const notes = reader.look(t);
  return { i, t, start, reader, notes, id: story.ids[i], logits: notes.logits };
}

export const letterAt = (i) => characterOf(story.ids[i]);

/** Returns some of the letters of a text on one line. */
export function lineOf(ids, from, to) {
  return app.vocabulary.decode(ids.slice(Math.max(0, from), to)).replace(/\n/g, '↵');
}

function showPlace(i) {
  $('lugar').classList.remove('idle');
  $('lugar').dir = getComputedStyle($('texto')).direction; // what comes before stands where one reads it first
  $('lugar').replaceChildren(
    element('span', { class: 'context' }, lineOf(story.ids, i - 14, i)),
    element('mark', {}, visible(letterAt(i))),
    element('span', { class: 'context' }, lineOf(story.ids, i + 1, i + 8)),
  );
}

/** Shows the moment in the view that is open, or in all of them. */
function showMoment() {
  const { moment } = asking;
  $('nada').hidden = Boolean(moment) || story.chosen === null;
  for (const name of Object.keys(views).filter(isSeen)) {
    $(`vista-${name}`).classList.toggle('empty', !moment);
    if (moment) views[name].show(moment);
  }
}

/** Returns a moment as it is read aloud. */
function momentInWords({ i, id, logits }) {
  const p = softmax(logits);
  const best = ranking(logits)[0];
  return say('letter_aloud', {
    letter: spoken(characterOf(id)),
    place: i + 1,
    chance: percent(p[id]),
    bits: bitsOf(p[id]).toFixed(1),
    best: spoken(characterOf(best)),
    best_chance: percent(p[best]),
  });
}

// --- the view -------------------------------------------------------------------------------

const letterView = {
  open(box) {
    this.box = box;
    this.verdict = element('p', { class: 'verdict' });
    this.surprise = element('p');
    this.rows = Array.from({ length: SHOWN + 1 }, () => barsOfLetter());
    const list = element('ol', { class: 'bars' }, ...this.rows.map((row) => row.item));
    const asModel = element('span', { class: 'key' }, bar(1), say('as_model'));
    const asDrawn = element('span', { class: 'key' }, bar(1, 'after'), say('as_drawn'));
    box.append(
      this.verdict,
      element('p', { class: 'legend', 'aria-hidden': true }, asModel, asDrawn),
      list,
      foldedNumbers(this.surprise),
      hint(say('what_if_hint'), ...chapters('07_salida', '09_generacion')),
    );
  },

  show({ i, id, logits }) {
    const p = softmax(logits);
    const order = ranking(logits);
    const place = order.indexOf(id);
    const choices = Math.round(2 ** entropy(p));
    const chance = percent(p[id]);
    const doubt = say(choices > 1 ? 'doubted' : 'hardly_doubted', { n: choices });
    this.verdict.textContent = say('verdict', { chance, place: place + 1, all: logits.length, doubt });
    this.surprise.textContent = say('surprise_of', { bits: bitsOf(p[id]).toFixed(1), chance });
    const after = softmax(shapeLogits(logits, story.controls.options));
    const shown = order.slice(0, SHOWN);
    if (place >= SHOWN) shown.push(id);
    const longest = Math.max(p[order[0]], ...shown.map((one) => after[one]));
    this.rows.forEach((row, n) => {
      const one = shown[n];
      row.item.classList.toggle('absent', one === undefined);
      row.button.disabled = one === undefined;
      if (one !== undefined) fillRow(row, { i, one, p, after, longest, drawn: one === id });
    });
  },
};

function barsOfLetter() {
  const row = {
    glyph: glyph(''),
    name: aside(''),
    bars: [bar(0), bar(0, 'after')],
    figures: [element('span'), element('span')],
    tag: element('span', { class: 'tag' }),
  };
  row.button = element(
    'button',
    { type: 'button', onclick: () => row.act() },
    element('span', {}, row.glyph, row.name),
    element('span', { class: 'pair' }, ...row.bars),
    element('span', { class: 'figures' }, row.figures[0], aside(say('with_controls')), row.figures[1]),
    element('span', {}, row.tag, aside(say('what_if'))),
  );
  row.item = element('li', {}, row.button);
  return row;
}

function fillRow(row, { i, one, p, after, longest, drawn }) {
  const character = characterOf(one);
  row.glyph.textContent = visible(character);
  row.name.textContent = /\s/.test(character) ? spoken(character) : '';
  row.tag.textContent = drawn ? say('written') : '';
  row.item.classList.toggle('drawn', drawn);
  row.figures[0].textContent = percent(p[one]);
  row.figures[1].textContent = percent(after[one]);
  row.bars[0].firstChild.style.width = `${(100 * p[one]) / longest}%`;
  row.bars[1].firstChild.style.width = `${(100 * after[one]) / longest}%`;
  row.act = () => whatIf(i, one);
}

// --- tabs and steps -------------------------------------------------------------------------

/** others: the views besides that of the letter, by name. */
export function openAsking(others) {
  Object.assign(views, { letra: letterView, ...others });
  for (const [name, view] of Object.entries(views)) view.open($(`vista-${name}`));
  listenToSheet();
  for (const id of CONTROLS) $(id).addEventListener('input', showMoment);
  openView(asking.view);
  SIDE_BY_SIDE.addEventListener('change', () => openView(asking.view));
  const tabs = Array.from($('vistas').children);
  const openTab = (tab) => openView(tab.id.slice(4));
  for (const tab of tabs) tab.addEventListener('click', () => openTab(tab));
  walkWithArrows(tabs, openTab);
  const step = (by) => () => {
    const to = (story.chosen ?? 0) + by;
    if (to >= 0 && to < story.ids.length) chooseLetter(to);
  };
  $('anterior').addEventListener('click', step(-1));
  $('siguiente').addEventListener('click', step(1));
}

function openView(name) {
  asking.view = name;
  $('vistas').hidden = SIDE_BY_SIDE.matches;
  for (const tab of $('vistas').children) {
    const isOpen = tab.id === `tab-${name}`;
    tab.setAttribute('aria-selected', isOpen);
    tab.tabIndex = isOpen ? 0 : -1;
    $(tab.getAttribute('aria-controls')).hidden = !isOpen && !SIDE_BY_SIDE.matches;
  }
  showMoment();
}

/** Returns whether a view is on show. */
export const isSeen = (name) => !$(`vista-${name}`).hidden;
