// Small things that every part of the page uses.

const $ = (id) => document.getElementById(id);

/** What the page is made of, once start.js has opened it. */
const app = { facts: null, model: null, vocabulary: null };

const characterOf = (id) => app.vocabulary.characters[id];

/** Returns an element; children that are strings become text, never HTML. */
function element(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false)
      node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/**
 * Returns a function to await in long work: every 12 ms it calls what it is given, and lets the
 * browser draw and answer.
 */
function breather() {
  const channel = new MessageChannel();
  let since = performance.now();
  return async (before = () => {}) => {
    if (performance.now() - since < 12) return;
    before();
    await new Promise((resolve) => {
      channel.port1.onmessage = resolve;
      channel.port2.postMessage(null);
    });
    since = performance.now();
  };
}

// --- numbers and letters in words -----------------------------------------------------------

const isEnglish = () => document.documentElement.lang === 'en';

/** Returns a figure with its sign, which Spanish sets apart. */
const ofHundred = (figure) => `${figure}${isEnglish() ? '' : '\u00a0'}%`;

function percent(p) {
  return ofHundred(p > 0 && p < 0.0005 ? '< 0.1' : (100 * p).toFixed(1));
}

/** Returns a percentage for where there is little room. */
function shortPercent(p) {
  return ofHundred(p < 0.005 ? '< 1' : Math.round(100 * p));
}

function decimals(x, digits = 2) {
  return x.toFixed(digits).replace('-', '−');
}

/** Returns a whole number in groups of three digits: 1,234, or in Spanish from five digits on 12 345. */
function thousands(n) {
  const digits = String(Math.round(n));
  if (digits.length < 5 && !isEnglish()) return digits;
  return digits.replace(/\B(?=(\d{3})+$)/g, isEnglish() ? ',' : '\u202f');
}

/** Returns a character so that it can be seen: ␣, ↵, or its code. */
function visible(character) {
  if (character === ' ') return '␣';
  if (character === '\n') return '↵';
  return /[\p{C}\p{Z}\p{M}]/u.test(character) ? code(character) : character;
}

function code(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;
}

const bitsOf = (p) => -Math.log2(p);

/** Returns how undecided probabilities are, in bits. */
function entropy(probabilities) {
  return probabilities.reduce((sum, p) => sum + (p && p * bitsOf(p)), 0);
}

// --- pictures -------------------------------------------------------------------------------

/** Returns a bar of a length between 0 and 1. */
function bar(length, kind = '') {
  const box = element('span', { class: `bar ${kind}`, 'aria-hidden': true }, element('span'));
  box.firstChild.style.width = `${100 * length}%`;
  return box;
}

const WIDEST = 192; // numbers side by side

/** Returns a picture of numbers, up for positive and down for negative, and the numbers as text. */
function picture(values, title) {
  const numbers = Array.from(values);
  const largest = Math.max(1e-9, ...numbers.map(Math.abs));
  const caption = element('figcaption', {}, element('b', {}, title), ` ${summary(numbers)}`);
  const rows = [];
  const width =
    numbers.length > WIDEST
      ? Math.ceil(numbers.length / Math.ceil(numbers.length / WIDEST))
      : numbers.length;
  for (let i = 0; i < numbers.length; i += width) {
    rows.push(barRow(numbers.slice(i, i + width), width, largest));
  }
  const list = element('details', { class: 'numbers' }, element('summary', {}, say('the_numbers')));
  list.addEventListener('toggle', () => {
    if (list.open && list.children.length === 1) {
      list.append(element('p', {}, numbers.map((x) => decimals(x)).join('  ')));
    }
  });
  return element('figure', { class: 'vector' }, caption, ...rows, list);
}

function summary(numbers) {
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const count = say('numbers', { n: numbers.length });
  return say('range', { count, low: decimals(low), high: decimals(high) });
}

function barRow(numbers, width, largest) {
  const path = (sign) =>
    numbers.map((x, i) => (x * sign > 0 ? `M${i} 20h.8v${(-19 * x) / largest}h-.8z` : '')).join('');
  return svg(
    'svg',
    {
      viewBox: `0 0 ${width} 40`,
      preserveAspectRatio: 'none',
      class: 'strip',
      'aria-hidden': true,
    },
    svg('path', { d: `M0 20H${width}`, class: 'axis' }),
    svg('path', { d: path(1), class: 'plus' }),
    svg('path', { d: path(-1), class: 'minus' }),
  );
}

const ACTIVATION_NAMES = {
  relu: 'ReLU',
  relu2: 'ReLU²',
  gelu: 'GELU',
  silu: 'SiLU',
  geglu: 'GEGLU',
  swiglu: 'SwiGLU',
};
