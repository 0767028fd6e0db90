// Small things that every part of the page uses.

const $ = (id) => document.getElementById(id);

/** What the page is made of, once start.js has opened it. */
const app = { facts: null, model: null, vocabulary: null, comparison: null };

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

/** Returns the bytes that base64 text holds. */
function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
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

// Not by lang: the course's pieces stand in notebooks whose own language may be any.
const isEnglish = () => document.documentElement.dataset.language === 'en';

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

/** Returns a bar of a length between 0 and 1. */
function bar(length, kind = '') {
  const box = element('span', { class: `bar ${kind}`, 'aria-hidden': true }, element('span'));
  box.firstChild.style.width = `${100 * length}%`;
  return box;
}

const ACTIVATION_NAMES = {
  relu: 'ReLU',
  relu2: 'ReLU²',
  gelu: 'GELU',
  silu: 'SiLU',
  geglu: 'GEGLU',
  swiglu: 'SwiGLU',
};
