// Escribe: a text to begin with, and what the model makes of it.

import { breather } from '../engine/breather.js';
import { bitsOf, entropy, softmax } from '../engine/probability.js';
import { seedOf } from '../engine/random.js';
import { Writer } from '../engine/writer.js';
import { app, characterOf } from './app.js';
import { CONTROLS, Controls, optionsInWords } from './controls.js';
import { $, element } from './elements.js';
import { Letters } from './letters.js';
import { branchOf, givenText, Texts } from './texts.js';
import { quoted, say, spoken } from './words.js';

const LONGEST_START = 3000; // letters of the start that are shown; the model reads fewer
const OPENING = 300; // letters among which the one to look at first is sought
const KEPT = 4; // readers of the text on show, each of one window of it

// Beginnings to try, where the model knows all their letters.
const BEGINNINGS = ['En un lugar de la Mancha', 'Había una vez', 'La inteligencia artificial'];

export const TINTS = [1, 2, 4, 6, 9]; // bits from which a letter has a deeper tint

/**
 * The text on show, as texts.js has it, and who writes and reads it; readers: what was read of it, by
 * where that began; said: what its writing took. tell: whom it tells what happens, as start.js says.
 */
export const story = {
  ...givenText([], [], ''),
  version: 0,
  writer: null,
  running: false,
  texts: new Texts(),
  offered: null, // the seed that was taken last for another text
  tell: null,
};

export const tintOf = (bits) => TINTS.filter((least) => bits >= least).length;

/** Returns a patch of each tint, the first of none; say what stands in it of the bits that it means, least to most. */
export function swatches(wordsOf) {
  return [0, ...TINTS].map((least, level) =>
    element('span', { class: `swatch tint${level}` }, wordsOf(least, TINTS[level])),
  );
}

/** Says in a line what the looks of a letter mean: the tints of those that were written, and bold. */
function explainLooks() {
  const [, ...tinted] = swatches(() => '\u00a0\u00a0\u00a0');
  const patches = element('span', { 'aria-hidden': true }, ...tinted);
  const given = element('span', {}, element('i', {}, `${say('bold')} `), element('b', {}, say('given')));
  $('colores').replaceChildren(say('little_surprise'), patches, say('much_surprise'), given);
}

/** Returns the seed in its field; that of the page, where none is there. */
export const seed = () => seedOf($('semilla').value) ?? BigInt(app.facts.seed);

/** Returns a text's ids; where there are none, those of a new line or of the first character. */
export function startIds(ids) {
  if (ids.length) return ids;
  return [app.vocabulary.ids.get('\n') ?? 0];
}

/** Returns what is shown of the ids of a start. */
const shownStart = (ids) => ids.slice(-Math.max(LONGEST_START, app.model.config.block_size));

/** Returns whether the start, the controls and the seed are those with which the text on show was written. */
function wouldRepeat() {
  const given = shownStart(startIds(app.vocabulary.encode($('inicio').value).ids));
  const isSame = given.length === story.given && given.every((id, i) => id === story.ids[i]);
  return isSame && story.settings === settingsInLink();
}

export const newSeed = () => Math.floor(Math.random() * 10_000);

/** Begins to write another text, with a new seed where the one in its field has written its own. */
function beginAnew() {
  if (wouldRepeat()) {
    story.offered = newSeed();
    $('semilla').value = story.offered;
    $('semilla').dispatchEvent(new Event('input', { bubbles: true }));
  }
  begin();
}

/** Begins to write, or says which letters of the start are unknown. */
function begin() {
  const text = $('inicio').value;
  const { unknown } = app.vocabulary.encode(text);
  if (unknown.length) offerKnown(unknown);
  else beginWith(text);
}

/** Says which letters of the start are unknown, and offers to replace or to remove them. */
export function offerKnown(unknown) {
  const button = (label, onclick) => element('button', { type: 'button', onclick }, label);
  const start = () => $('inicio').value;
  const nearest = unknown.some((one) => one.nearest !== undefined);
  const hopeless = unknown.some((one) => one.nearest === undefined);
  const label = say(hopeless ? 'replace_some' : 'replace_all');
  $('desconocidas').replaceChildren(
    element('p', {}, say('never_seen', { letters: describeUnknown(unknown) })),
    nearest ? button(label, () => beginWith(app.vocabulary.replaceUnknown(start()))) : '',
    button(say('remove'), () => beginWith(start())),
  );
  $('desconocidas').hidden = false;
}

/** Returns { ids, unknown } of a text: the ids, with the nearest letter for each unknown one. */
export function nearestIds(text) {
  const { unknown } = app.vocabulary.encode(text);
  return { ids: app.vocabulary.encode(app.vocabulary.replaceUnknown(text)).ids, unknown };
}

export function describeUnknown(unknown) {
  const shown = unknown.slice(0, 8).map(({ character, position, nearest }) => {
    const near = nearest === undefined ? say('no_nearest') : say('nearest', { letter: quoted(nearest) });
    return say('unknown_letter', { letter: spoken(character), n: position + 1, nearest: near });
  });
  const letters = shown.join(', ');
  const more = unknown.length - shown.length;
  return more ? say('and_more', { letters, n: more }) : letters;
}

/** Begins to write after what the model knows of a text. */
function beginWith(text) {
  newStory(startIds(app.vocabulary.encode(text).ids), $('inicio').value);
  goOn();
}

/** Returns the controls and the seed as they stand in a link. */
export function settingsInLink() {
  const values = Object.values(story.controls.inputs).map(({ id, value }) => [id, value]);
  return new URLSearchParams([...values, ['semilla', seed()]]).toString();
}

/** Puts another text on show, to be written on; start: what was typed for it. */
export function newStory(ids, start) {
  const B = app.model.config.block_size;
  const cut = shownStart(ids);
  const first = Math.max(0, cut.length - B);
  // What came before the model's context was never read by it; it gets contexts of its own.
  const starts = cut.map((_, i) => (i > first ? first : Math.max(0, Math.floor((i - 1) / B) * B)));
  openText(givenText(cut, starts, start), null);
}

/** Puts a text on show; the others of the visit can be had back. */
function openText(text, typed) {
  leaveText(typed);
  story.texts.add(text);
  showText();
}

/** Puts away what belongs to the text on show; typed: a start that was typed beside it and not begun with. */
function leaveText(typed) {
  stopWriting();
  story.run = null;
  const { texts, ids, starts, tints, start, given, settings, chosen, said } = story;
  if (texts.shown) Object.assign(texts.shown, { ids, starts, tints, start, given, settings, chosen, said, typed });
}

/** Shows the text whose turn it is, and lets field, status and panel speak of it. */
function showText() {
  const { shown } = story.texts;
  Object.assign(story, shown, { writer: null, readers: new Map() });
  story.version++;
  story.letters.clear();
  addLetters();
  $('texto').scrollTop = $('texto').scrollHeight;
  $('desconocidas').hidden = true;
  putInField(shown.typed ?? shown.start);
  $('estado').textContent = shown.said;
  story.tell.choose(shown.chosen);
}

function putInField(text) {
  const field = $('inicio');
  if (field.value === text) return; // no letters are offered to who has pressed Enter
  field.value = text;
  field.dispatchEvent(new Event('input', { bubbles: true }));
}

/** Keeps what was read from a place on, so that letters there can be asked without reading anew. */
export function keepReader(start, reader) {
  const { readers } = story;
  readers.delete(start);
  readers.set(start, reader);
  if (readers.size > KEPT) readers.delete(readers.keys().next().value);
}

export function stopWriting() {
  story.running = false;
}

function wantedLetters() {
  return Math.max(1, Math.floor($('cuantas').valueAsNumber) || 600);
}

/**
 * Writes letters until there are enough or it is stopped. Then, unless a letter is chosen already,
 * shows the one that is given, or else the one of the first where the model hesitated most.
 */
export async function goOn(isEnough = (n) => n >= wantedLetters(), letter = null) {
  if (story.running) return;
  const run = (story.run = {});
  story.running = true;
  showRunning();
  if (!story.writer) {
    if (story.settings !== undefined) story.settings = null; // two writers draw other letters than one
    story.writer = new Writer(app.model, story.ids, story.controls.options, seed());
  }
  const breath = breather();
  const began = performance.now();
  const isMine = () => story.running && story.run === run;
  let written = 0;
  let doubt = { bits: -1, at: story.ids.length - 1 };
  const flush = () => {
    addWritten();
    sayOfText(paceInWords(written, began));
  };
  while (isMine() && !isEnough(written)) {
    if (writeOne() && written++ < OPENING) doubt = moreDoubtful(doubt);
    await breath(flush);
  }
  if (story.run !== run) return;
  flush();
  story.running = false;
  showRunning();
  story.tell.rest();
  if (story.chosen !== null && story.chosen !== letter) return;
  $('texto').scrollTop = 0; // who followed it to its end reads it from its beginning
  if (letter !== null) return story.tell.choose(Math.min(letter, story.ids.length - 1));
  if (written && $('preguntas').offsetWidth) sayOfText(say('pace_and_doubt', { pace: story.said }));
  return story.tell.choose(doubt.at);
}

/** Returns the last letter, if the model hesitated within a word more than ever, or else where it did. */
function moreDoubtful(doubt) {
  if (!/^\p{L}{3}$/u.test(app.vocabulary.decode(story.ids.slice(-3)))) return doubt;
  const bits = entropy(softmax(story.writer.logits));
  return bits > doubt.bits ? { bits, at: story.ids.length - 1 } : doubt;
}

/** Says how the text on show was written. */
function sayOfText(words) {
  story.said = $('estado').textContent = words;
}

/** Takes one step; returns whether a letter came of it. Its tint tells its surprise. */
function writeOne() {
  const { writer } = story;
  writer.options = story.controls.options;
  const settings = settingsInLink();
  if (story.settings !== settings) story.settings = story.settings === undefined ? settings : null;
  const start = story.ids.length - writer.context.length;
  keepReader(start, writer.reader);
  const id = writer.step();
  if (id === null) return false;
  story.ids.push(id);
  story.starts.push(start);
  story.tints.push(tintOf(bitsOf(softmax(writer.logits)[id])));
  return true;
}

/** Shows the letters that are not shown yet: those that were given bold, those that were written in their tint. */
function addLetters() {
  const { letters, ids, tints } = story;
  const first = letters.length;
  letters.add(ids.slice(first).map(characterOf), (span, i) => {
    const tint = tints[first + i];
    if (tint !== null) span.classList.add('written', `tint${tint}`);
  });
}

function addWritten() {
  const box = $('texto');
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  addLetters();
  if (atEnd) box.scrollTop = box.scrollHeight;
}

export function paceInWords(n, began) {
  const pace = n / Math.max(0.001, (performance.now() - began) / 1000);
  return say('pace', { letters: say('letters', { n }), pace });
}

function showRunning() {
  document.body.classList.toggle('running', story.running); // the mills turn meanwhile
  showWhatIsBegun();
  $('seguir').disabled = story.running || !story.ids.length;
  $('enlace').disabled = !story.ids.length;
  const { texts } = story;
  $('volver').hidden = $('avanzar').hidden = texts.all.length < 2;
  $('volver').disabled = !texts.has(-1);
  $('avanzar').disabled = !texts.has(1);
  // A screen reader is told the last figure, not each on the way.
  $('estado').setAttribute('aria-live', story.running ? 'off' : 'polite');
}

/** Lets the buttons say whether another text is written, or the same one again. */
function showWhatIsBegun() {
  const repeats = !story.running && wouldRepeat();
  $('escribir').textContent = say(story.running ? 'stop' : repeats ? 'write_another' : 'write');
  $('otra-vez').textContent = say('write_again', { seed: seed() });
  $('otra-vez').hidden = !repeats || !isNewSeed();
}

/** Returns whether the page took the seed in its field itself. */
const isNewSeed = () => $('semilla').value === String(story.offered);

/** Returns a listener that shows the text so many places on; before, where that is negative. */
const turner = (by) => () => {
  leaveText($('inicio').value);
  story.texts.go(by);
  showText();
  showRunning();
  story.tell.rest();
};

/** Goes on from before letter i with another one in its place: ¿y si…? */
export function whatIf(i, id) {
  openText(branchOf(story, i, id), $('inicio').value);
  goOn(undefined, i);
}

function showControls() {
  const options = optionsInWords(story.controls.options);
  $('resumen').textContent = say('summary', { options, seed: seed() });
  const isWrong = seedOf($('semilla').value) === null;
  $('semilla').setAttribute('aria-invalid', isWrong);
  $('semilla-mal').hidden = !isWrong;
}

/** Writes where somebody ends the start with Enter; with Shift, that begins a line of it. */
function writeOnEnter(event) {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  beginAnew();
}

/** Brings the opened controls onto the screen, where the text stays beside them. */
function showOpened() {
  const [controls, column] = [$('mandos'), document.querySelector('.writing')];
  const isBeside = getComputedStyle(column).position === 'sticky';
  if (controls.open && isBeside) controls.scrollIntoView({ block: 'nearest' });
}

function offerBeginnings() {
  const isKnown = (text) => !app.vocabulary.encode(text).unknown.length;
  const chip = (text) => element('button', { type: 'button', onclick: () => tryBeginning(text) }, text);
  $('comienzos').replaceChildren(...BEGINNINGS.filter(isKnown).map(chip));
}

function tryBeginning(text) {
  $('inicio').value = text;
  $('inicio').dispatchEvent(new Event('input', { bubbles: true }));
  beginAnew();
}

/** tell: ask(i), tap(i), choose(i), a letter is pointed at, touched, sought; rest(), a text is there. */
export function openWriting(tell) {
  story.tell = tell;
  story.letters = new Letters($('texto'), { ask: tell.ask, choose: tell.tap });
  story.controls = new Controls($('riesgo'), $('mandos').querySelector('.controls'), app.facts.sampling);
  $('semilla').value = app.facts.seed;
  $('semilla-mal').textContent = say('wrong_seed', { seed: String(app.facts.seed) });
  if (!app.facts.exact) $('semilla-nota').textContent = say('seed_hint_here');
  $('inicio').value = app.facts.start;
  $('escribir').addEventListener('click', () => (story.running ? stopWriting() : beginAnew()));
  $('otra-vez').addEventListener('click', begin);
  $('inicio').addEventListener('keydown', writeOnEnter);
  $('mandos').addEventListener('toggle', showOpened);
  $('seguir').addEventListener('click', () => goOn());
  $('volver').addEventListener('click', turner(-1));
  $('avanzar').addEventListener('click', turner(1));
  for (const id of CONTROLS) $(id).addEventListener('input', showControls);
  $('semilla').addEventListener('input', () => (story.writer = null));
  for (const id of [...CONTROLS, 'inicio']) $(id).addEventListener('input', showWhatIsBegun);
  offerBeginnings();
  explainLooks();
  showControls();
  showRunning();
  $('escribir').disabled = false;
}
