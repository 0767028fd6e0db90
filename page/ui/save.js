// What was learned here, to keep: a page of its own, and a checkpoint that sample.py opens.

import { wordsIn } from '../engine/duel.js';
import { GPT, NGRAM_KEYS } from '../engine/model.js';
import { passagesOf } from '../engine/passages.js';
import { proofOf } from '../engine/proof.js';
import { namedWeights } from '../engine/unpack.js';
import { Vocabulary } from '../engine/vocabulary.js';
import { writtenAfter } from '../engine/writer.js';
import { app } from './app.js';
import { $, element } from './elements.js';
import { fileName } from './titles.js';
import { pageTitle, say } from './words.js';
import { compiledKernel } from './workers.js';

const EXAMPLE = 300; // letters
const COMPARED = 600; // letters, as many as are written at once; where half precision changes one of the first, a page has single precision

const FILLED = ['header', 'main', 'footer']; // the parts of the page that its scripts change

/** Lets a page that was made here speak as who made it reads. */
function speakAsMade() {
  const root = document.documentElement;
  if (!root.dataset.made || location.search) return;
  root.lang = root.dataset.language = root.dataset.made;
}

/**
 * Returns the page as it was made, without its facts and weights, to make others of it.
 *
 * A browser that saves an open page saves what the scripts have added, and they would add it once
 * more. So the page carries the parts that they change as they were, and begins with these.
 */
function pageAsMade() {
  const carried = $('as-made');
  if (carried) {
    const made = new DOMParser().parseFromString(JSON.parse(carried.textContent), 'text/html');
    for (const part of FILLED) document.querySelector(part).replaceWith(made.querySelector(part));
    for (const added of document.querySelectorAll('#as-made, body > .notice')) added.remove();
    for (const node of [document.documentElement, document.body]) node.removeAttribute('style');
    document.body.removeAttribute('class');
  }
  const page = document.documentElement.cloneNode(true);
  delete page.dataset.drafts;
  for (const id of ['facts', 'weights']) page.querySelector(`#${id}`).textContent = '';
  const parts = FILLED.map((part) => document.querySelector(part).outerHTML).join('');
  const json = JSON.stringify(parts).replaceAll('<', '\\u003c');
  $('engine').before(element('script', { type: 'text/plain', id: 'as-made' }, json));
  return page;
}

speakAsMade();
const blankPage = pageAsMade();

/** Returns the bytes of numbers as planes: all first bytes, all second ones, … */
function planesOf({ buffer, length, BYTES_PER_ELEMENT: size }) {
  const bytes = new Uint8Array(buffer);
  return bytes.map((_, i) => bytes[(i % length) * size + Math.floor(i / length)]);
}

/** Returns the bits of the half precision numbers nearest to others (IEEE 754 binary16). */
function halfBits(numbers) {
  const scaled = numbers.map((x) => x * 2 ** -112); // their exponents begin where those of binary16 do
  return new Uint16Array(
    new Uint32Array(scaled.buffer).map((bits) => {
      const size = bits & 0x7fffffff;
      const nearest = (size + 0xfff + ((size >> 13) & 1)) >> 13; // of two as near, the even one
      return ((bits >>> 16) & 0x8000) | Math.min(nearest, 0x7c00);
    }),
  );
}

/** Returns the shapes of the weights of a model that was learned here, the table's keys left out. */
function shapesOf(weights, config) {
  const named = Object.entries(weights).filter(([name]) => name !== NGRAM_KEYS);
  const columns = (name) => (name.endsWith('feed_forward.proj.weight') ? config.hidden_size : config.n_embd);
  return named.map(([name, { length }]) => [
    name,
    name === 'skips' ? [length] : [length / columns(name), columns(name)],
  ]);
}

/** Resolves to weights as unpack.js reads them: the bytes of their planes. */
async function laidOut(weights, { layout, precision }) {
  const joined = (parts) => new Blob(parts).arrayBuffer();
  const all = new Float32Array(await joined(layout.map(([name]) => weights[name])));
  const keys = weights[NGRAM_KEYS] ?? new Int32Array(0);
  const differences = keys.map((key, i) => key - (i ? keys[i - 1] : 0));
  const numbers = precision === 'float16' ? halfBits(all) : all;
  return new Uint8Array(await joined([planesOf(numbers), planesOf(differences)]));
}

/** Resolves to bytes in zlib and base64. */
async function packed(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream('deflate'));
  const zipped = await new Response(stream).blob();
  const reader = new FileReader();
  return new Promise((resolve) => {
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(',') + 1));
    reader.readAsDataURL(zipped);
  });
}

/** Resolves to what a page of such weights and facts writes first. */
async function firstLetters(weights, { config, characters, start, sampling, seed }) {
  const { ids } = new Vocabulary(characters, {}).encode(start);
  const model = new GPT(config, { ...weights }, compiledKernel());
  const written = await writtenAfter(ids, COMPARED, model, sampling, seed);
  return written.join();
}

/** Returns a page, as a Blob, of its facts in JSON and its packed weights; drafts: to begin with. */
export function filledPage(facts, weights, language, drafts) {
  const page = blankPage.cloneNode(true);
  page.dataset.made = language;
  if (drafts) page.dataset.drafts = drafts;
  page.querySelector('#facts').textContent = facts;
  page.querySelector('#weights').textContent = weights;
  return new Blob(['<!doctype html>\n', page.outerHTML], { type: 'text/html' });
}

/** Resolves to the page of another model, as a Blob; `facts`: what differs from those of this page. */
async function pageOf(weights, facts) {
  const layout = shapesOf(weights, facts.config);
  const all = { ...app.facts, ...facts, layout, precision: 'float16' };
  let bytes = await laidOut(weights, all);
  let stored = namedWeights(bytes, 'float16', layout);
  if ((await firstLetters(stored, all)) !== (await firstLetters(weights, all))) {
    all.precision = 'float32';
    bytes = await laidOut(weights, all);
    stored = { ...weights };
  }
  const isSame = (name) => stored[name].every((x, i) => x === weights[name][i]);
  all.exact = layout.every(([name]) => isSame(name));
  all.proof = await proofOf(new GPT(all.config, stored));
  const json = JSON.stringify(all).replaceAll('<', '\\u003c');
  return filledPage(json, await packed(bytes), document.documentElement.lang);
}

/** Returns SHA-256 in hexadecimal; a browser hides its own from pages that plain http brings. */
async function sealOf(parts) {
  if (!crypto.subtle) throw new Error('no_seal');
  const bytes = await new Blob(parts).arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Returns a checkpoint as checkpoint.py reads it, as a Blob; content: of its JSON. */
async function checkpointOf(weights, config, content) {
  const shapes = new Map(shapesOf(weights, config));
  if (weights[NGRAM_KEYS]) shapes.set(NGRAM_KEYS, [weights[NGRAM_KEYS].length]);
  const json = JSON.stringify(content);
  const tensors = {};
  const hashed = [json];
  const parts = [];
  let offset = 0;
  for (const name of [...shapes.keys()].sort()) {
    const [array, shape] = [weights[name], shapes.get(name)];
    const isKeys = name === NGRAM_KEYS;
    const inPython = shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(', ')})`;
    hashed.push(`model.${name} torch.${isKeys ? 'int32' : 'float32'} ${inPython}`, array);
    const end = offset + array.byteLength;
    tensors[`model.${name}`] = { dtype: isKeys ? 'I32' : 'F32', shape, data_offsets: [offset, end] };
    parts.push(array);
    offset = end;
  }
  const metadata = { format: 'sancho-mini', version: '5', content: json, sha256: await sealOf(hashed) };
  const header = new TextEncoder().encode(JSON.stringify({ __metadata__: metadata, ...tensors }));
  const padded = new Uint8Array(Math.ceil(header.length / 8) * 8).fill(32);
  padded.set(header);
  const length = new BigUint64Array([BigInt(padded.length)]);
  return new Blob([length, padded, ...parts], { type: 'application/octet-stream' });
}

/** Opens a page that is still being made, and forgets it once its tab is closed. */
export async function openInTab(making) {
  const tab = window.open('', '_blank'); // at once: later a browser would take it for an advertisement
  making.catch(() => tab.close());
  const address = URL.createObjectURL(await making);
  tab.location = address;
  const watch = setInterval(() => {
    if (!tab.closed) return;
    clearInterval(watch);
    URL.revokeObjectURL(address);
  }, 1000);
}

/** Lets the browser save a Blob as a file of that name. */
export function saveAs(blob, name) {
  const href = URL.createObjectURL(blob);
  element('a', { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

const partOf = ({ characters }, ids) => Array.from(ids, (id) => characters[id]).join('');

/** Returns the part of a text that is not learned from. */
export const unreadOf = (text) => partOf(text, text.val);

/** Returns a text from its first whole word on, where there is one. */
const wholeWords = (text) => text.replace(/^\S*\s+(?=\S)/, '');

/** Returns what a page carries of a text that was learned here: passages for its games, and an example. */
export function fragmentsOf(text) {
  const unread = unreadOf(text);
  const passages = passagesOf(unread);
  return { passages, example: passages[0]?.[1] ?? wholeWords(unread).slice(0, EXAMPLE) };
}

/** Returns who is said to write in the page to send. */
const writerName = () => $('nombre').value.trim();

/** Returns what a page of a model that was learned here knows. */
function learnedFacts({ text, plan, memory, weights, points, writings, seconds, loss }) {
  const known = new Set(text.characters);
  const near = Object.entries(app.facts.nearest);
  const sizes = Object.entries(weights).filter(([name]) => name !== NGRAM_KEYS);
  const { passages, example } = fragmentsOf(text);
  const after = plan.begins === 'tuned' ? app.facts.corpus : ''; // what the model had read before
  const recorded = { writings: writings.map(({ isPassing, ...told }) => told) };
  return {
    taught: { name: writerName(), letters: text.train.length + text.val.length, example, after },
    config: plan.config,
    characters: text.characters.join(''),
    nearest: Object.fromEntries(near.filter(([far, to]) => known.has(to) && !known.has(far))),
    start: /(\S+\s+){0,2}\S+/.exec(example)[0], // its first three words
    parameters: sizes.reduce((sum, [, { length }]) => sum + length, 0),
    corpus: text.name,
    progress: {
      step: memory.step,
      tokens: memory.step * plan.config.block_size * plan.options.batch_size,
      seconds,
      val_loss: loss,
    },
    cost: null,
    curve: points,
    teaching: { ...app.facts.teaching, recorded },
    passages,
    words: wordsIn(partOf(text, text.train)).join(' '),
    links: { ...app.facts.links, page: '' }, // that is of another model
  };
}

export const learnedPage = (learned) => pageOf(learned.weights, learnedFacts(learned));


async function learnedCheckpoint({ text, plan, memory, weights }) {
  const { head_size, hidden_size, is_gated, ...model } = plan.config;
  const { ngram_dropout, ...options } = plan.options;
  const content = {
    model: { ...model, ngram_dropout },
    train: options,
    device: {},
    progress: { step: memory.step },
    characters: text.characters.join(''),
    corpus: { name: '', sha256: '', lengths: [] },
    run: '',
    proof: await proofOf(new GPT(plan.config, { ...weights })),
  };
  return checkpointOf(weights, plan.config, content);
}

/** Saves what is made of what was learned in a file, and says when and where. */
async function keepAs(learned, file, make) {
  let said = '';
  $('guardado').textContent = say('being_kept', { file });
  try {
    saveAs(await make(learned), file);
    learned.isSaved = true;
    said = say('is_kept', { file });
  } finally {
    $('guardado').textContent = said;
  }
}

/** Saves the page to send, under its own title. */
export function keepPage(learned) {
  const title = pageTitle(writerName(), learned.text.name);
  return keepAs(learned, fileName(title, 'html'), learnedPage);
}

export const keepCheckpoint = (learned) =>
  keepAs(learned, fileName(learned.text.name, 'safetensors'), learnedCheckpoint);
