// Numbers and letters as the page writes them.

// Not by lang: the course's pieces stand in notebooks whose own language may be any.
export const isEnglish = () => document.documentElement.dataset.language === 'en';

/** Returns a figure with its sign, which Spanish sets apart. */
const ofHundred = (figure) => `${figure}${isEnglish() ? '' : '\u00a0'}%`;

export function percent(p) {
  return ofHundred(p > 0 && p < 0.0005 ? '< 0.1' : (100 * p).toFixed(1));
}

/** Returns a percentage for where there is little room. */
export function shortPercent(p) {
  return ofHundred(p < 0.005 ? '< 1' : Math.round(100 * p));
}

export function decimals(x, digits = 2) {
  return x.toFixed(digits).replace('-', '−');
}

/** Returns a whole number in groups of three digits: 1,234, or in Spanish from five digits on 12 345. */
export function thousands(n) {
  const digits = String(Math.round(n));
  if (digits.length < 5 && !isEnglish()) return digits;
  return digits.replace(/\B(?=(\d{3})+$)/g, isEnglish() ? ',' : '\u202f');
}

/** Returns a time in milliseconds as the day and the hour of where the page is read. */
export function momentOf(time) {
  const parts = { day: 'numeric', month: 'short', hour: 'numeric', minute: '2-digit' };
  return new Date(time).toLocaleString(isEnglish() ? 'en' : 'es', parts);
}

/** Returns a character so that it can be seen: ␣, ↵, or its code. */
export function visible(character) {
  if (character === ' ') return '␣';
  if (character === '\n') return '↵';
  return /[\p{C}\p{Z}\p{M}]/u.test(character) ? code(character) : character;
}

function code(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;
}
