// As one types: the letters that the model expects next, beside the cursor; a click writes one.

import { Reader } from '../engine/model.js';
import { softmax } from '../engine/probability.js';
import { ranking } from '../engine/sampler.js';
import { readOn } from '../engine/writer.js';
import { app, characterOf } from './app.js';
import { rest } from './controls.js';
import { $, element } from './elements.js';
import { percent, shortPercent, visible } from './notation.js';
import { spoken } from './words.js';
import { nearestIds, startIds } from './write.js';

const OFFERED = 5;

const typing = { reader: null, request: 0 };

/** Offers letters once the keys rest, if the cursor is at the end of the text. */
async function offerLetters() {
  const request = ++typing.request;
  const isWanted = () => request === typing.request;
  $('candidatas').hidden = true;
  await rest();
  const field = $('inicio');
  if (!isWanted() || document.activeElement !== field) return;
  if (field.selectionStart !== field.value.length) return;
  const ids = startIds(nearestIds(field.value).ids).slice(-app.model.config.block_size);
  const { reader } = typing;
  // What was read before stays, up to the first letter that is another one now; the last is read anew.
  const other = ids.findIndex((id, i) => id !== reader.ids[i]);
  reader.ids.length = Math.min(reader.length, ids.length - 1, other < 0 ? ids.length : other);
  if (await readOn(reader, ids.slice(0, -1), isWanted)) showOffer(softmax(reader.read(ids.at(-1))));
}

function showOffer(p) {
  const box = $('candidatas');
  const offer = (id) => {
    const letter = characterOf(id);
    const label = `${spoken(letter)}, ${percent(p[id])}`;
    const seen = [element('b', {}, visible(letter)), element('small', {}, ` ${shortPercent(p[id])}`)];
    const press = () => writeLetter(letter);
    return element('button', { type: 'button', 'aria-label': label, onclick: press }, ...seen);
  };
  box.replaceChildren(...ranking(p).slice(0, OFFERED).map(offer));
  box.hidden = false;
  const [x, y, line] = cursorAtEnd();
  const field = $('inicio');
  const fits = x + box.offsetWidth <= field.clientWidth;
  box.style.left = `${fits ? x : 0}px`;
  box.style.top = `${Math.min(fits ? y : y + line, field.clientHeight - box.offsetHeight)}px`;
}

/** Returns where the text in its field ends, and how high a line is: of a copy that can be measured. */
function cursorAtEnd() {
  const field = $('inicio');
  const end = element('span', {}, '\u200b');
  const copy = element('div', { class: 'copy', dir: 'auto', 'aria-hidden': true }, field.value, end);
  copy.style.width = `${field.clientWidth}px`;
  field.after(copy);
  const place = [end.offsetLeft + 6, end.offsetTop - field.scrollTop, end.offsetHeight];
  copy.remove();
  return place;
}

function writeLetter(character) {
  const field = $('inicio');
  field.focus();
  field.setRangeText(character, field.value.length, field.value.length, 'end');
  field.dispatchEvent(new Event('input', { bubbles: true }));
}

export function openTyping() {
  typing.reader = new Reader(app.model);
  const box = $('candidatas');
  $('inicio').addEventListener('input', offerLetters);
  // The keyboard of a phone stays while letters are taken.
  box.addEventListener('pointerdown', (event) => event.preventDefault());
  box.parentNode.addEventListener('focusout', ({ relatedTarget }) => {
    if (!box.parentNode.contains(relatedTarget)) box.hidden = true;
  });
}
