// Words: what the page says, letters and durations too, as strings.json has it in Spanish and English.

import { app } from './app.js';
import { $, element } from './elements.js';
import { isEnglish, thousands, visible } from './notation.js';

document.documentElement.lang = document.documentElement.dataset.language = askedLanguage();

/** Returns the language that the address asks for, else that of the browser: en for all but es. */
function askedLanguage() {
  const asked = new URLSearchParams(location.search).get('lang') ?? navigator.language ?? '';
  return asked.startsWith('es') ? 'es' : 'en';
}

/** Returns what stands under a key, each {name} filled in; of "one|many" what suits n. */
export function say(key, values = {}) {
  const [one, many = one] = app.facts.strings[key][isEnglish() ? 1 : 0].split('|');
  const text = values.n === 1 ? one : many;
  const inWords = (value) => (typeof value === 'number' ? thousands(value) : value);
  return text.replace(/\{(\w+)\}/g, (_, name) => inWords(values[name]));
}

/** Returns seconds in words, as few as suit their number. */
export function duration(seconds) {
  if (seconds < 90 && seconds !== 60) return say('seconds', { n: Math.round(seconds) });
  if (seconds < 5400) return say('minutes', { n: Math.round(seconds / 60) });
  return say('hours', { n: (seconds / 3600).toFixed(1) });
}

/** Returns what the page calls its model: in a title, in the middle of a sentence, where one begins. */
export function modelNames() {
  const { taught } = app.facts;
  if (!taught) return { whose: 'Sancho', name: 'Sancho', Name: 'Sancho' };
  const name = say('the_model');
  const whose = taught.name ? say('model_of', taught) : name;
  return { whose, name, Name: name[0].toUpperCase() + name.slice(1) };
}

/** Returns the title of the page of what somebody has taught, and the name of its file. */
export const pageTitle = (name, corpus) => say('title_of', { name: name || say('reader_of', { corpus }) });

/** Puts the texts of the skeleton, which are Spanish, into the page's language. */
export function translate() {
  const names = modelNames();
  const nodes = (name) => document.querySelectorAll(`[data-${name}]`);
  for (const node of nodes('text')) node.textContent = say(node.dataset.text, names);
  for (const node of nodes('label')) node.setAttribute('aria-label', say(node.dataset.label));
  const link = $('idioma');
  link.lang = isEnglish() ? 'es' : 'en';
  link.href = `?lang=${link.lang}`;
  // What one sees goes along.
  link.addEventListener('click', () => (link.hash = location.hash));
}

/** Returns a character as it is read aloud. */
export function spoken(character) {
  if (character === ' ') return say('blank');
  if (character === '\n') return say('line_end');
  return quoted(visible(character));
}

export const quoted = (text) => say('quoted', { text });

/** Returns links to chapters of the course, each after a blank; none where the page has no address for them. */
export function chapters(...files) {
  const address = app.facts.links.chapter;
  if (!address) return [];
  return files.flatMap((file) => [' ', element('a', { href: address.replace('{file}', file) }, say(file)), '.']);
}

export function linkOrName(href, text) {
  return href ? element('a', { href }, text) : element('span', {}, text);
}

/** Returns what is there for who wants the numbers, folded. */
export function foldedNumbers(...children) {
  return element('details', {}, element('summary', {}, say('the_numbers')), ...children);
}

export const NORM_NAMES = {
  layernorm: 'LayerNorm',
  rmsnorm: 'RMSNorm',
};

/** The keys under which strings.json has the names of positions. */
export const POSITION_NAMES = {
  learned: 'learned_positions',
  sinusoidal: 'sinusoidal',
  rope: 'rope',
};

export const ACTIVATION_NAMES = {
  relu: 'ReLU',
  relu2: 'ReLU²',
  gelu: 'GELU',
  silu: 'SiLU',
  geglu: 'GEGLU',
  swiglu: 'SwiGLU',
};
