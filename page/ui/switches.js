// Apágalo: what becomes of the model's loss and of its text where some parts of it add nothing. The model is
// a stack of blocks, whose heads and feed-forward are cells of it.

import { breather } from '../engine/breather.js';
import { meanOf } from '../engine/probability.js';
import { Writer } from '../engine/writer.js';
import { app, characterOf } from './app.js';
import { headInWords } from './attention.js';
import { CONTROLS, rest } from './controls.js';
import { $, element, walkWithArrows } from './elements.js';
import { readSurprises } from './surprise.js';
import { say } from './words.js';
import { nearestIds, seed, startIds, story } from './write.js';

const EXAMINED = 200; // letters that are read, and that are written

/** Both models: the whole one, and the one with the parts that are off. */
export const switches = { run: null, boxes: [], sides: [] };

/** One of the two: its loss on the text that is shown, and what it writes. */
class Side {
  constructor(title) {
    this.figure = element('p', { class: 'figure' });
    this.text = element('p', { class: 'letters', dir: 'auto' });
    this.known = null; // for which text, start and options they are
    this.box = element('div', {}, element('h3', {}, title), this.figure, this.text);
  }

  /** Reads and writes with a model; what is there already for the same `key` stays. */
  async show(model, key, isMine) {
    if (this.known === key) return;
    this.known = null;
    this.figure.textContent = '…';
    this.text.replaceChildren();
    const bits = await readSurprises(shownIds(), isMine, () => {}, model);
    if (!isMine()) return;
    this.figure.textContent = bits.length
      ? say('bits_each', { bits: meanOf(bits).toFixed(3) })
      : say('no_text');
    await this.write(model, isMine);
    if (isMine()) this.known = key;
  }

  async write(model, isMine) {
    const { ids } = nearestIds($('inicio').value);
    const start = startIds(ids);
    const writer = new Writer(model, start, story.controls.options, seed());
    this.text.append(element('b', {}, app.vocabulary.decode(start)));
    const breath = breather();
    for (let written = 0; written < EXAMINED && isMine(); ) {
      const id = writer.step();
      if (id !== null) this.text.append(characterOf(id));
      written += id !== null;
      await breath();
    }
  }
}

const shownIds = () => story.ids.slice(0, EXAMINED);
const partsOff = () => switches.boxes.filter((box) => !box.checked).map((box) => box.value);

export async function compareSwitched() {
  const run = (switches.run = {});
  const isMine = () => switches.run === run;
  const off = partsOff();
  $('encender').disabled = !off.length;
  showIdle(off);
  $('apagado').textContent = '';
  const [whole, damaged] = switches.sides;
  whole.box.hidden = damaged.box.hidden = !off.length;
  if (!off.length) return (switches.run = null);
  await rest();
  if (!isMine()) return;
  if (story.running) return (switches.run = null); // what is written will tell when it rests
  $('apagado').textContent = say('reads_and_writes');
  const options = Object.values(story.controls.options);
  const about = [...shownIds(), $('inicio').value, seed(), ...options];
  await whole.show(app.model, about.join(), isMine);
  const model = app.model.without(new Set(off));
  if (isMine()) await damaged.show(model, [...about, off].join(), isMine);
  if (!isMine()) return;
  switches.run = null;
  $('apagado').textContent =
    say('both_losses', { whole: whole.figure.textContent, damaged: damaged.figure.textContent });
}

/** Says of the cells of a block that is off that they add nothing, on or off. */
function showIdle(off) {
  for (const box of switches.boxes) {
    const [block, part] = box.value.split('.');
    if (part) box.setAttribute('aria-disabled', off.includes(block));
  }
}

function partSwitch(kind, value, text, label) {
  const input = element('input', { type: 'checkbox', role: 'switch', value, 'aria-label': label });
  input.checked = true;
  switches.boxes.push(input);
  return element('label', { class: `cell ${kind}` }, input, text);
}

export function openSwitches() {
  const { n_layer, n_head } = app.model.config;
  $('interruptores').append(element('p', { class: 'hint', 'aria-hidden': true }, say('attention_heads')));
  for (let layer = 0; layer < n_layer; layer++) {
    const block = say('block', { n: layer + 1 });
    const whole = partSwitch('whole', `${layer}`, block, say('whole_block', { block }));
    const heads = Array.from({ length: n_head }, (_, head) =>
      partSwitch('attention', `${layer}.${head}`, String(head + 1), headInWords(layer, head)),
    );
    const inWords = `${block}, ${say('feed_forward')}`;
    const thought = partSwitch('forward', `${layer}.f`, say('feed_forward'), inWords);
    const row = element('div', {}, whole, ...heads, thought);
    walkWithArrows(Array.from(row.children, (label) => label.control));
    $('interruptores').append(row);
  }
  switches.sides = [new Side(say('whole')), new Side(say('damaged'))];
  $('dos-modelos').append(...switches.sides.map((side) => side.box));
  $('interruptores').addEventListener('click', (event) => {
    if (event.target.ariaDisabled === 'true') event.preventDefault();
  });
  $('interruptores').addEventListener('change', compareSwitched);
  for (const id of [...CONTROLS, 'inicio']) $(id).addEventListener('input', compareSwitched);
  $('encender').addEventListener('click', () => {
    for (const box of switches.boxes) box.checked = true;
    compareSwitched();
  });
  for (const side of switches.sides) side.box.hidden = true;
}
