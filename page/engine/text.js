// A text to learn from: bytes to clean text, as clean.py, and text to ids. A worker does it.

export const LARGEST_TEXT = 20e6; // bytes; a larger one would fill the memory of a small computer
const BEGINNING = 4096; // bytes that say what a file is

/**
 * Resolves to the text of a string or a Blob; or to why there is none, and in what to read it instead.
 * rules: the tables of clean.py, as the page has them in its facts.
 */
export async function readSource(source, encoding, rules) {
  if (typeof source === 'string') return learnable(source, rules);
  const bytes = new Uint8Array(await source.arrayBuffer());
  const begin = String.fromCharCode(...bytes.subarray(0, BEGINNING));
  const kind = kindOf(begin, rules);
  if (kind) return { refused: 'no_plain_text', kind };
  const found = unicodeOf(begin, rules);
  if (found && encoding !== found) return { refused: 'other_unicode', offer: found };
  let text;
  try {
    text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    return whyNotRead(bytes, begin, encoding);
  }
  if (isWebPage(text, rules)) return { refused: 'no_plain_text', kind: rules.web_page };
  return learnable(text, rules);
}

/** Returns a text as it is learned, and how often it has what is seldom meant, by name. */
function learnable(raw, rules) {
  const text = cleanText(raw.replace(/^\ufeff/, ''), rules);
  const counts = rules.suspicious.map(([name, pattern]) => [name, countOf(text, new RegExp(pattern, 'gu'))]);
  return { text: splitText(text), odd: counts.filter(([, count]) => count) };
}

function countOf(text, pattern) {
  let count = 0;
  while (pattern.test(text)) count++;
  return count;
}

const isWebPage = (begin, { web_page_begins: begins }) => new RegExp(`^(?:${begins})`, 'i').test(begin.slice(0, 1000));

/** Returns what a file is that holds no plain text; of others nothing. */
function kindOf(begin, rules) {
  if (isWebPage(begin.replace(/^\xef\xbb\xbf/, ''), rules)) return rules.web_page;
  if (begin.slice(60, 68) === 'BOOKMOBI') return rules.e_book;
  return rules.signatures.find(([signature]) => begin.startsWith(signature))?.[1];
}

/** Returns which encoding a text is in, by its mark or by where its NULs are; or null. */
function unicodeOf(begin, { marks }) {
  const count = (rest) => Array.from(begin).filter((byte, i) => byte === '\0' && i % 2 === rest).length;
  const [even, odd] = [count(0), count(1)];
  const isWide =
    Math.max(even, odd) > Math.floor(begin.length / 5) && Math.min(even, odd) < Math.floor(begin.length / 100) + 1;
  const wide = odd > even || begin.startsWith('\xff\xfe') ? 'UTF-16LE' : 'UTF-16BE'; // as a browser names it
  const marked = marks.find(([mark]) => begin.startsWith(mark))?.[1] ?? (isWide ? 'UTF-16' : 'UTF-8');
  if (marked === 'UTF-8') return null;
  return marked === 'UTF-16' ? wide : marked;
}

/** Returns why bytes are not of an encoding, and which to try. */
function whyNotRead(bytes, begin, encoding) {
  if (begin.includes('\0')) return { refused: 'no_plain_text', kind: 'binary_file' };
  const read = new TextDecoder().decode(bytes);
  const damaged = countOf(read, /\ufffd/g);
  if (encoding === 'utf-8' && 2 * damaged < countOf(read, /[^\0-\x7f]/gu)) return { refused: 'damaged_utf8', damaged };
  return { refused: 'not_utf8', offer: 'windows-1252' };
}

/** Returns a text without what Project Gutenberg puts around it, or around each of several. */
function withoutLicence(text, { gutenberg }) {
  const [first, ...rest] = text.split(new RegExp(gutenberg, 'i')); // of each mark its `start`, and what follows it
  const books = rest.filter((_, i) => i % 2 && rest[i - 1]);
  return books.length ? books.join('') : first;
}

/** Returns a text without licence, in NFC, no blanks at the ends of lines nor blank lines around it. */
function cleanText(raw, rules) {
  const lines = withoutLicence(raw.replace(/\r\n?/g, '\n'), rules).split('\n').map(withoutBlanks);
  const [first, last] = [lines.findIndex(Boolean), lines.findLastIndex(Boolean)];
  const text = lines.slice(first, last + 1).join('\n').normalize('NFC');
  return /[^\p{C}\p{Z}]/u.test(text) ? `${text}\n` : '';
}

/** Returns a line without the blanks at its end; a regular expression would try each blank in it. */
function withoutBlanks(line) {
  let end = line.length;
  while (line[end - 1] === ' ' || line[end - 1] === '\t') end--;
  return line.slice(0, end);
}

function codePoints(text) {
  const codes = new Int32Array(text.length);
  let n = 0;
  for (let i = 0; i < text.length; i++) {
    codes[n] = text.codePointAt(i);
    if (codes[n++] > 0xffff) i++; // it takes two places
  }
  return codes.subarray(0, n);
}

/** Returns { characters, train, val }: those of a text, sorted, and the ids of its two parts. */
function splitText(text) {
  const codes = codePoints(text);
  const places = new Int32Array(0x110000);
  for (const code of codes) places[code] = 1;
  const known = Array.from(places.keys()).filter((code) => places[code]);
  known.forEach((code, id) => (places[code] = id));
  const Ids = known.length > 256 ? Int32Array : Uint8Array;
  const ids = new Ids(codes.map((code) => places[code]));
  const cut = ids.length - Math.floor(ids.length / 10);
  const characters = known.map((code) => String.fromCodePoint(code));
  return { characters, train: ids.slice(0, cut), val: ids.slice(cut) };
}
