// Qué le sorprende: any text, tinted by how little the model expected each letter of it.

import { breather } from '../engine/breather.js';
import { Reader, vectorsOf } from '../engine/model.js';
import { bitsOf, meanOf, softmax } from '../engine/probability.js';
import { app, characterOf } from './app.js';
import { lineOf } from './asking.js';
import { $, bar, element, hint, table } from './elements.js';
import { letterBox, Letters } from './letters.js';
import { percent, thousands, visible } from './notation.js';
import { say, spoken } from './words.js';
import { describeUnknown, nearestIds, paceInWords, swatches, tintOf } from './write.js';

const PAGE = 2000; // letters that are shown at once
const PLACES = 10;

/** The first sentence of the book, its lines as they are there. */
const FIRST_SENTENCE = `En un lugar de la Mancha, de cuyo nombre no quiero acordarme, no ha mucho
tiempo que vivía un hidalgo de los de lanza en astillero, adarga antigua,
rocín flaco y galgo corredor.`;

export const reading = { run: null, ids: [], bits: [], first: 0, letters: null };

/** Reads ids as validation_loss() does: every block_size letters the context begins anew. */
export async function readSurprises(ids, isWanted, progress, model = app.model) {
  const { block_size: B, vocab_size: V } = model.config;
  const reader = new Reader(model);
  const breath = breather();
  const bits = [];
  while (bits.length < ids.length - 1 && isWanted()) {
    const read = bits.length;
    if (read % B === 0) reader.restart();
    const window = ids.slice(read, Math.min(ids.length - 1, read - (read % B) + B));
    const logits = model.logits(reader.readSome(window));
    for (const one of vectorsOf(logits, V)) bits.push(bitsOf(softmax(one)[ids[bits.length + 1]]));
    await breath(() => progress(bits.length / ids.length));
  }
  return bits;
}

/** Returns how many letters the model has read in its window before it foretells letter i > 0. */
const readBefore = (i) => ((i - 1) % app.model.config.block_size) + 1;

async function readText() {
  const { ids, unknown } = nearestIds($('ajeno').value);
  if (ids.length < 2) {
    $('lectura').textContent = say('too_short');
    $('medias').replaceChildren(); // that of another text is nothing of this one
    $('sorprendido').hidden = true;
    return;
  }
  const run = (reading.run = {});
  const isMine = () => reading.run === run;
  showReading(true);
  const began = performance.now();
  const bits = await readSurprises(ids, isMine, (part) => {
    $('avance').value = part;
    $('lectura').textContent = percent(part);
  });
  if (reading.run && !isMine()) return;
  showReading(false);
  reading.run = null;
  if (!bits.length) return;
  $('lectura').textContent = paceInWords(bits.length, began);
  showSurprises(ids.slice(0, bits.length + 1), bits, unknown);
}

function showReading(isReading) {
  $('leer').textContent = say(isReading ? 'stop' : 'read');
  $('avance').hidden = !isReading;
  if (!isReading) $('lectura').textContent = '';
}

function showSurprises(ids, bits, unknown) {
  Object.assign(reading, { ids, bits: [NaN, ...bits], first: 0 });
  const mean = meanOf(bits);
  const text = letterBox(say('text_read'));
  reading.letters = new Letters(text, { ask: saySurprise, choose: chooseSurprise });
  reading.detail = element('p', { class: 'detail', 'aria-live': 'polite' }, '\u00a0');
  reading.turn = element('div', { class: 'row' });
  const letters = describeUnknown(unknown);
  $('medias').replaceChildren(
    element('p', { class: 'figure' }, say('bits_each', { bits: mean.toFixed(2) })),
    meansTable(mean, bits.length),
    unknown.length ? element('p', { class: 'notice' }, say('replaced', { letters })) : '',
  );
  const windows = say('windows', { letters: say('letters', { n: app.model.config.block_size }) });
  $('sorprendido').hidden = false;
  $('sorprendido').replaceChildren(
    tintLegend(),
    text,
    reading.detail,
    reading.turn,
    surprisingPlaces(),
    hint(windows),
  );
  showPage(0);
}

/** Sets a figure beside that of the validation part, in words and as bars. */
function meansTable(mean, n) {
  const loss = app.facts.progress.val_loss;
  const rows = [[say('this_text'), mean]];
  if (loss !== null) rows.push([say('unread_part'), loss / Math.LN2]);
  rows.push([say('knowing_nothing'), Math.log2(app.model.config.vocab_size)]);
  const widest = Math.max(...rows.map(([, bits]) => bits));
  return table(
    say('mean_of', { letters: say('letters', { n }) }),
    [say('text_column'), say('bits_column'), ''],
    rows.map(([name, bits]) => [name, bits.toFixed(2), bar(bits / widest)]),
    { class: 'comparison' },
  );
}

function tintLegend() {
  const steps = swatches((low, high) => say(high ? 'bits_from_to' : 'bits_or_more', { low, high }));
  const opening = element('span', { class: 'window' }, say('window_begins'));
  return element('p', { class: 'legend' }, `${say('bits')}: `, ...steps, opening);
}

function showPage(first) {
  const { ids, bits, letters, turn } = reading;
  reading.first = first;
  letters.clear();
  const piece = ids.slice(first, first + PAGE).map(characterOf);
  const { block_size } = app.model.config;
  letters.add(piece, (span, i) => {
    span.classList.add(`tint${tintOf(bits[first + i])}`);
    span.classList.toggle('window', (first + i) % block_size === 0);
  });
  letters.box.scrollTop = 0;
  turn.textContent = '';
  const pages = Math.ceil(ids.length / PAGE);
  if (pages === 1) return;
  const to = (label, place) => {
    const disabled = place < 0 || place >= ids.length;
    return element('button', { type: 'button', disabled, onclick: () => showPage(place) }, label);
  };
  turn.append(
    to(say('earlier'), first - PAGE),
    element('span', {}, say('page_of', { n: first / PAGE + 1, all: pages })),
    to(say('later'), first + PAGE),
  );
}

function saySurprise(i) {
  const at = i ?? reading.letters.chosen;
  if (at === null) return;
  const place = reading.first + at;
  const bits = reading.bits[place];
  reading.detail.textContent = say(Number.isNaN(bits) ? 'first_is_unexpected' : 'letter_surprise', {
    letter: spoken(characterOf(reading.ids[place])),
    bits: bits.toFixed(1),
    chance: percent(2 ** -bits),
    read: say('letters', { n: readBefore(place) }),
  });
}

function surprisingPlaces() {
  const { ids, bits } = reading;
  const order = Array.from(bits.keys()).slice(1);
  order.sort((a, b) => bits[b] - bits[a]);
  const rows = order.slice(0, PLACES).map((i) => {
    const go = element(
      'button',
      { type: 'button', class: 'place-link', onclick: () => goToPlace(i) },
      lineOf(ids, i - 16, i),
      element('mark', {}, visible(characterOf(ids[i]))),
      lineOf(ids, i + 1, i + 8),
    );
    return [go, bits[i].toFixed(1), thousands(readBefore(i))];
  });
  return table(say('most_surprised'), [say('place'), say('bits'), say('letters_read')], rows);
}

function chooseSurprise(i) {
  reading.letters.mark(i);
  saySurprise(i);
}

function goToPlace(i) {
  showPage(i - (i % PAGE));
  chooseSurprise(i % PAGE);
}

export function openSurprise() {
  $('leer').addEventListener('click', () => {
    if (reading.run) reading.run = null;
    else readText();
  });
  $('ejemplo').addEventListener('click', () => {
    $('ajeno').value = app.facts.taught?.example ?? FIRST_SENTENCE;
    readText();
  });
  $('leer').disabled = $('ejemplo').disabled = false;
}
