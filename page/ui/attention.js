// Dónde mira: how each head distributes its attention, for the letter that was read last.

import { ranking } from '../engine/sampler.js';
import { app, characterOf } from './app.js';
import { asking, letterAt } from './asking.js';
import { bar, element, glyph, hint, svg, table } from './elements.js';
import { letterBox, Letters } from './letters.js';
import { decimals, percent, visible } from './notation.js';
import { chapters, foldedNumbers, say, spoken } from './words.js';
import { story } from './write.js';

const MAP_SIZE = 20; // positions on a side of the small pictures
const LEVELS = [0.03, 0.1, 0.3, 0.6]; // weights from which a square is darker
const AFTER = 12; // letters of the future that are shown, crossed out
const STRONGEST = 8;

export const attentionView = {
  head: 0,
  pointed: null,

  open(box) {
    const { n_layer, n_head } = app.model.config;
    this.pictures = [];
    const legend = element('legend', {}, say('choose_head'));
    const heads = element('fieldset', { class: 'heads' }, legend);
    for (let layer = 0; layer < n_layer; layer++) {
      const name = element('span', {}, say('block', { n: layer + 1 }));
      const row = element('div', { class: 'layer' }, name);
      for (let head = 0; head < n_head; head++) row.append(this.headChoice(layer, head, n_head));
      heads.append(row);
    }
    this.sentence = element('p', { class: 'verdict' });
    this.text = letterBox(say('looked_at'), 'small');
    const actions = { ask: (s) => this.point(s), choose: (s) => this.point(s, true) };
    this.letters = new Letters(this.text, actions);
    this.detail = element('p', { class: 'detail', 'aria-live': 'polite' });
    this.formula = element('p');
    this.strongest = element('div');
    const told = element('div', {}, this.sentence, this.text, this.detail);
    box.append(
      hint(say('maps_hint'), ...chapters('03_autoatencion')),
      element('div', { class: 'beside' }, heads, told),
      foldedNumbers(this.formula, this.strongest),
    );
  },

  headChoice(layer, head, n_head) {
    const number = layer * n_head + head;
    const label = headInWords(layer, head);
    const input = element('input', { type: 'radio', name: 'cabeza', 'aria-label': label });
    input.checked = number === this.head;
    input.addEventListener('change', () => {
      this.head = number;
      if (asking.moment) this.show(asking.moment);
    });
    const paths = LEVELS.map((_, level) => svg('path', { class: `level${level}` }));
    this.pictures.push({ layer, head, paths });
    const past = svg('path', { class: 'past', d: `M0 0V${MAP_SIZE}H${MAP_SIZE}Z` });
    const side = MAP_SIZE + 1;
    const map = svg('svg', { viewBox: `-0.5 -0.5 ${side} ${side}`, 'aria-hidden': true }, past, ...paths);
    return element('label', { class: 'head', title: label }, input, map);
  },

  show(moment) {
    const { reader, t } = moment;
    this.pictures.forEach((one) => drawMap(one, reader, t));
    const { layer, head } = this.pictures[this.head];
    const { scores, weights } = reader.attention(layer, head, t);
    Object.assign(this, { moment, scores, weights, pointed: null });
    const letter = spoken(letterAt(moment.i - 1));
    this.sentence.textContent = say('who_asks', { block: layer + 1, head: head + 1, letter, n: t + 1 });
    this.showText();
    this.showTable();
    this.point(null);
  },

  showText() {
    const { start, t } = this.moment;
    const characters = story.ids.slice(start, start + t + 1 + AFTER).map(characterOf);
    const highest = Math.max(...this.weights);
    this.letters.clear();
    this.letters.add(characters, (span, s) => {
      if (s > t) span.classList.add('future');
      else span.style.setProperty('--tint-share', `${100 * Math.sqrt(this.weights[s] / highest)}%`);
      if (s === t) span.classList.add('asker');
    });
    const here = this.text.children[t];
    this.text.scrollTop = here.offsetTop - this.text.offsetTop - this.text.clientHeight / 2;
  },

  showTable() {
    const { t } = this.moment;
    const order = ranking(this.weights).slice(0, STRONGEST);
    const rows = order.map((s) => [
      glyph(visible(letterAt(this.moment.start + s))),
      t - s ? String(t - s) : say('itself'),
      decimals(this.scores[s]),
      percent(this.weights[s]),
      bar(this.weights[s]),
    ]);
    // Always as many rows, so that nothing below moves.
    while (rows.length < STRONGEST) rows.push(['\u00a0', '', '', '', '']);
    const names = [say('letter'), say('ago'), 'q · k / √D', say('weight'), ''];
    this.strongest.replaceChildren(table(say('most_looked_at'), names, rows));
  },

  /** Says what a letter gets; by default the one that gets most. */
  point(s, stays = false) {
    if (!this.moment) return;
    if (stays) {
      this.pointed = s;
      this.letters.mark(s);
    }
    const at = s ?? this.pointed ?? ranking(this.weights)[0];
    const { t } = this.moment;
    const letter = spoken(letterAt(this.moment.start + at));
    if (at > t) {
      this.detail.textContent = say('in_future', { letter });
      this.formula.textContent = '';
      return;
    }
    const away = say('letters', { n: t - at });
    const values = {
      letter,
      place: at === t ? say('itself') : say('letters_ago', { letters: away }),
      size: app.model.config.head_size,
      score: decimals(this.scores[at]),
      weight: percent(this.weights[at]),
    };
    this.detail.textContent = say('weight_of', values);
    this.formula.textContent = say('score_and_weight', values);
  },
};

export const headInWords = (layer, head) => say('block_and_head', { block: layer + 1, head: head + 1 });

/** Draws the weights of the last positions: rows ask, columns are looked at. */
function drawMap({ layer, head, paths }, reader, t) {
  const first = Math.max(0, t - MAP_SIZE + 1);
  const squares = LEVELS.map(() => '');
  for (let row = first; row <= t; row++) {
    const { weights } = reader.attention(layer, head, row);
    for (let s = first; s <= row; s++) {
      const level = LEVELS.filter((least) => weights[s] >= least).length - 1;
      if (level >= 0) squares[level] += `M${s - first} ${row - first}h1v1h-1z`;
    }
  }
  paths.forEach((path, level) => path.setAttribute('d', squares[level]));
}
