// El viaje: a letter's way down a picture of the model, station by station, and what the model would say if
// it ended there (the logit lens).

import { add, countLess, dot, NGRAM_KEYS, NO_KEY } from '../engine/model.js';
import { softmax } from '../engine/probability.js';
import { ranking } from '../engine/sampler.js';
import { app, characterOf } from './app.js';
import { asking, isSeen, isSheet, letterAt } from './asking.js';
import { $, bar, element, glyph, hint, table } from './elements.js';
import { decimals, percent, shortPercent, thousands, visible } from './notation.js';
import { ACTIVATION_NAMES, chapters, say, spoken } from './words.js';
import { story } from './write.js';

const GUESSES = 5;

export const journeyView = {
  at: 0,
  timer: null,
  seen: false,
  pause: 3000, // ms that the walk stays at a station, for a sentence of some ten words

  open(box) {
    this.stations = makeStations();
    this.stations.forEach((station, n) => this.makeStop(station, n));
    this.walker = element('b', { class: 'walker', 'aria-hidden': true });
    this.stream = element('i', { class: 'stream', 'aria-hidden': true });
    this.written = element('span');
    const names = ['after', 'would_say'].map((key) => element('span', {}, say(key)));
    this.picture = element(
      'fieldset',
      { class: 'machine' },
      element('legend', { class: 'hidden' }, say('stations')),
      element('p', { class: 'station names', 'aria-hidden': true }, ...names, this.written),
      ...boxesOf(this.stations),
      this.stream,
      this.walker,
    );
    new ResizeObserver(() => this.place()).observe(this.picture);
    this.title = element('h3');
    this.text = element('p');
    this.shown = element('div');
    this.links = hint();
    const told = [this.title, this.text, this.shown, this.links];
    this.here = element('div', { class: 'stop', role: 'region' }, ...told);
    box.append(
      hint(say('journey_hint'), ...chapters('ramas/rayos_x')),
      this.makeButtons(),
      element('div', { class: 'journey' }, this.picture, this.here),
    );
    this.enter(0);
  },

  makeStop(station, n) {
    const input = element('input', { type: 'radio', name: 'estacion', value: n });
    input.addEventListener('change', () => this.choose(n));
    const parts = { glyph: glyph(''), chance: element('span'), share: element('span'), bar: bar(0) };
    station.stop = element(
      'label',
      { class: `station ${station.kind ?? ''}` },
      input,
      element('span', { class: 'part' }, station.name),
      element('span', { class: 'guess' }, parts.glyph, parts.chance),
      element('span', { class: 'given' }, parts.share, parts.bar),
    );
    Object.assign(station, parts, { input });
  },

  makeButtons() {
    const button = (words, onclick, label = null) =>
      element('button', { type: 'button', onclick, 'aria-label': label }, words);
    const step = (by) => () => {
      this.choose(Math.max(0, Math.min(this.stations.length - 1, this.at + by)));
      $('dicho').textContent = this.stations[this.at].input.getAttribute('aria-label');
    };
    this.start = button('', () => (this.timer ? this.halt() : this.walk()));
    return element(
      'div',
      { class: 'row walk' },
      button('←', step(-1), say('station_before')),
      this.start,
      button('→', step(1), say('station_after')),
    );
  },

  /** Shows a moment. The walk begins by itself the first time, unless no motion is wanted. */
  show(moment) {
    this.moment = moment;
    this.written.textContent = say('gives', { letter: visible(characterOf(moment.id)) });
    this.stations.forEach((station) => fillStop(station, moment));
    this.enter(this.at);
    // Beside the other views it waits until it is asked to: what moves there nobody has opened.
    if (asking.view === 'viaje' && !this.timer && !this.seen && !calm()) this.walk();
  },

  walk() {
    this.seen = true;
    if (this.at === this.stations.length - 1) this.enter(0);
    this.timer = setInterval(() => this.advance(), this.pause);
    this.enter(this.at);
  },

  advance() {
    if (!isSeen('viaje') || !this.moment) return this.halt();
    this.enter(this.at + 1);
    if (this.at === this.stations.length - 1) this.halt();
  },

  halt() {
    clearInterval(this.timer);
    this.timer = null;
    this.seen = true;
    this.enter(this.at);
  },

  /** Goes to a station by hand. */
  choose(n) {
    this.at = n;
    this.halt();
  },

  enter(n) {
    this.at = n;
    this.start.textContent = say(this.timer ? 'stop' : 'walk');
    this.picture.classList.toggle('walking', Boolean(this.timer));
    this.stations.forEach(({ stop, input }, i) => {
      input.checked = i === n;
      stop.classList.toggle('ahead', i > n);
    });
    if (this.moment) this.describe();
    this.place();
    if (this.timer) this.keepInSight();
  },

  /** Puts the letter beside its station, and draws the stream from the first one to the last. */
  place() {
    const middleOf = ({ stop }) => stop.offsetTop + stop.offsetHeight / 2;
    const [first, last] = [this.stations[0], this.stations.at(-1)].map(middleOf);
    this.picture.style.setProperty('--from', `${first}px`);
    this.picture.style.setProperty('--to', `${last}px`);
    this.picture.style.setProperty('--here', `${middleOf(this.stations[this.at])}px`);
  },

  /** Moves the sheet along with the walker, where a sheet it is. */
  keepInSight() {
    if (!isSheet()) return;
    this.stations[this.at].stop.scrollIntoView({ block: 'center' });
  },

  describe() {
    const { moment } = this;
    const station = this.stations[this.at];
    this.walker.textContent = station.glyph.textContent;
    this.title.textContent = titleOf(station);
    this.here.setAttribute('aria-label', titleOf(station));
    this.text.textContent = this.timer ? station.brief : station.say(moment);
    this.shown.replaceChildren();
    this.links.replaceChildren();
    if (this.timer) return; // all words, and the figures, are for who stands still
    if (station.show) this.shown.append(...station.show(moment));
    if (station.stream) this.shown.append(guessTable(station, moment));
    this.links.append(...chapters(...station.chapters));
  },
};

/** Returns the boxes of the picture: one for each block, which holds its stations, and all others by themselves. */
function boxesOf(stations) {
  const boxes = [];
  for (const { block, kind, stop } of stations) {
    if (block === undefined) boxes.push(stop);
    else if (kind !== 'attention') boxes.at(-1).append(stop);
    else boxes.push(element('div', { class: 'block' }, element('small', {}, say('block', { n: block + 1 })), stop));
  }
  return boxes;
}

const calm = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

function titleOf({ name, block }) {
  return block === undefined ? name : say('block_title', { n: block + 1, name });
}

/** Says at a stop what the model would say there, and what it would give to the letter written. */
function fillStop(station, moment) {
  const { characters } = app.vocabulary;
  let heard = titleOf(station);
  let [best, chance, share] = [story.ids[moment.i - 1], '', ''];
  if (station.stream) {
    const p = softmax(app.model.logits(station.stream(moment)));
    best = ranking(p)[0];
    chance = (best === moment.id ? '✓ ' : '') + shortPercent(p[best]);
    share = shortPercent(p[moment.id]);
    station.bar.firstChild.style.width = `${100 * p[moment.id]}%`;
    const letter = spoken(characters[best]);
    heard = say('stop_aloud', { title: heard, letter, chance, share });
  }
  station.bar.hidden = !station.stream;
  station.glyph.textContent = visible(characters[best]);
  station.chance.textContent = chance;
  station.share.textContent = share;
  station.input.setAttribute('aria-label', heard);
}

/** Returns a table of what the output head makes of a residual stream. */
function guessTable({ stream }, moment) {
  const p = softmax(app.model.logits(stream(moment)));
  const shown = ranking(p).slice(0, GUESSES);
  if (!shown.includes(moment.id)) shown.push(moment.id);
  const rows = shown.map((id) => [
    glyph(visible(characterOf(id))),
    percent(p[id]),
    bar(p[id]),
    id === moment.id ? say('written') : '',
  ]);
  const caption = say(stream === lastStream ? 'model_says' : 'if_ended');
  return table(caption, [say('letter'), say('probability'), '', ''], rows, { class: 'guesses' });
}

// --- the stations ---------------------------------------------------------------------------
//
// name; chapters; brief: a sentence while it walks; say(moment): a text; and some of these:
// block; kind: how it looks, as what is added to the stream; show(moment): nodes;
// stream(moment): what the output head can read there.

function makeStations() {
  const { config } = app.model;
  const stations = firstStations();
  if (config.ngram_size > 1) stations.push(tableStation());
  if (config.position !== 'rope') stations.push(positionStation());
  for (let block = 0; block < config.n_layer; block++) {
    stations.push(attentionStation(block), forwardStation(block));
  }
  return [...stations, ...lastStations()];
}

/** Returns the length of a vector. */
const lengthOf = (x) => Math.sqrt(dot(x, 0, x, 0, x.length));

/** Returns the letter itself, and its vector. */
function firstStations() {
  const { vocab_size, n_embd } = app.model.config;
  const letter = {
    name: say('station_letter'),
    brief: say('walk_letter'),
    chapters: ['01_tokens'],
    say: ({ i }) => say('say_letter', { letter: spoken(letterAt(i - 1)), all: vocab_size }),
    show: ({ i }) => [element('p', { class: 'big' }, `${visible(letterAt(i - 1))} → ${story.ids[i - 1]}`)],
  };
  const embedding = {
    name: say('station_embedding'),
    brief: say('walk_embedding'),
    chapters: ['02_embeddings_y_posiciones'],
    say: () => say('say_embedding', { width: n_embd }),
    stream: ({ notes }) => notes.token,
  };
  return [letter, embedding];
}

function tableStation() {
  const { ngram_size } = app.model.config;
  const keys = app.model.weights[NGRAM_KEYS];
  const known = countLess(keys, NO_KEY);
  return {
    name: say('station_table'),
    kind: 'added',
    brief: say('walk_table'),
    chapters: ['06_bloque_y_gpt'],
    say: () => say('say_known_rows', { longest: ngram_size, known }),
    show: ({ notes, i, start }) => {
      const rows = notes.tableRows.map((row, n) => {
        const from = Math.max(start, i - n - 2);
        const sequence = story.ids.slice(from, i).map(characterOf).map(visible);
        const vector = app.model.row('ngram_embedding.weight', row);
        const isShared = row === keys.length - 1;
        const place = isShared ? say('last_row') : thousands(row);
        return [glyph(sequence.join('')), place, decimals(lengthOf(vector))];
      });
      return [table('', [say('sequence'), say('row'), say('length')], rows)];
    },
    stream: ({ notes }) => {
      const sum = notes.token.slice();
      for (const row of notes.tableRows) add(sum, app.model.row('ngram_embedding.weight', row));
      return sum;
    },
  };
}

function positionStation() {
  const kind = say(app.model.config.position === 'learned' ? 'learned' : 'waves');
  return {
    name: say('station_position'),
    kind: 'added',
    brief: say('walk_position'),
    chapters: ['02_embeddings_y_posiciones'],
    say: ({ t }) => say('say_position', { kind, place: t + 1 }),
    stream: ({ notes }) => notes.embedding,
  };
}

/** Says what a sum does to the residual stream. */
function sumInWords(before, added, after) {
  const [a, b, c] = [before, added, after].map((x) => decimals(lengthOf(x), 1));
  return say('sum', { before: a, added: b, after: c });
}

function attentionStation(block) {
  const { n_head: H, position, qk_norm, embedding_skip } = app.model.config;
  const turn = position === 'rope' ? say('turned') : '';
  const normed = qk_norm ? say('normed') : '';
  const { skips } = app.model.weights;
  const skip = embedding_skip && block ? say('skipped', { scale: decimals(skips[block]) }) : '';
  return {
    name: say('attention'),
    brief: say('walk_attention'),
    block,
    kind: 'attention',
    chapters: ['03_autoatencion', '05_residuales_y_normalizacion'],
    say: ({ notes }) => {
      const { input, attention, middle } = notes.blocks[block];
      return say('say_attention', { skip, turn, normed, sum: sumInWords(input, attention, middle) });
    },
    show: ({ reader, t, start }) => {
      const heads = Array.from({ length: H }, (_, head) => {
        const { weights } = reader.attention(block, head, t);
        const s = ranking(weights)[0];
        const away = s === t ? say('itself') : String(t - s);
        return [String(head + 1), glyph(visible(letterAt(start + s))), away, percent(weights[s])];
      });
      return [table('', ['head_column', 'looks_most', 'ago', 'weight'].map((key) => say(key)), heads)];
    },
    stream: ({ notes }) => notes.blocks[block].middle,
  };
}

function forwardStation(block) {
  const { n_embd: width, hidden_size, is_gated, activation } = app.model.config;
  const shape = { wide: hidden_size, activation: ACTIVATION_NAMES[activation], width };
  return {
    name: say('feed_forward'),
    brief: say('walk_feed_forward'),
    block,
    kind: 'forward',
    chapters: ['04_feed_forward', '05_residuales_y_normalizacion'],
    say: ({ notes }) => {
      const { expanded, middle, feedForward, output } = notes.blocks[block];
      const awake = expanded.subarray(is_gated ? hidden_size : 0).filter((x) => x > 0).length;
      const share = percent(awake / hidden_size);
      const sum = sumInWords(middle, feedForward, output);
      return say('say_feed_forward', { ...shape, awake, share, sum });
    },
    stream: ({ notes }) => notes.blocks[block].output,
  };
}

const lastStream = ({ notes }) => notes.blocks[notes.blocks.length - 1].output;

/** Returns the output head, and the softmax of its logits. */
function lastStations() {
  const { vocab_size, norm, tie_embeddings } = app.model.config;
  const tied = tie_embeddings ? say('tied') : '';
  const head = {
    name: say('station_head'),
    brief: say('walk_head'),
    chapters: ['07_salida'],
    say: () => say('say_head', { norm: say(norm), all: vocab_size, tied }),
    stream: lastStream,
  };
  const last = {
    name: say('station_softmax'),
    brief: say('walk_softmax'),
    chapters: ['07_salida', '09_generacion'],
    say: ({ id }) => say('say_softmax', { letter: spoken(characterOf(id)) }),
    stream: lastStream,
  };
  return [head, last];
}
