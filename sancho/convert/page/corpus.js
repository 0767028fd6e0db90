// A text to learn from: bytes to clean text, as text.py, and text to ids. A worker does it.

const LARGEST_TEXT = 20e6; // bytes; a larger one would fill the memory of a small computer
const LICENCE = /\*\*\* (START|END) OF TH(?:E|IS) PROJECT GUTENBERG[^\n]*\n?/;
/** How files begin that hold no plain text, and what they are. */
const SIGNATURES = {
  'PK\x03\x04': 'zip_file',
  '%PDF-': 'pdf_file',
  '{\\rtf': 'rtf_file',
};

/** Resolves to the text of a string or a Blob; or to why there is none, and in what to read it instead. */
async function readSource(source, encoding) {
  if (typeof source === 'string') return { text: splitText(cleanText(source)) };
  const bytes = new Uint8Array(await source.arrayBuffer());
  const begin = String.fromCharCode(...bytes.subarray(0, 4096));
  const signature = Object.keys(SIGNATURES).find((those) => begin.startsWith(those));
  if (signature) return { refused: 'no_plain_text', kind: SIGNATURES[signature] };
  const found = unicodeOf(begin);
  if (found && encoding !== found) return { refused: 'other_unicode', offer: found };
  try {
    return { text: splitText(cleanText(new TextDecoder(encoding, { fatal: true }).decode(bytes))) };
  } catch {
    if (begin.includes('\0')) return { refused: 'no_plain_text', kind: 'binary_file' };
    return { refused: 'not_utf8', offer: 'windows-1252' };
  }
}

/** Returns which UTF-16 a text is in, by its mark or by where its NULs are; or null. */
function unicodeOf(begin) {
  const count = (rest) => Array.from(begin).filter((byte, i) => byte === '\0' && i % 2 === rest).length;
  const [even, odd] = [count(0), count(1)];
  const isWide = Math.max(even, odd) > begin.length / 5 && Math.min(even, odd) <= begin.length / 100;
  if (begin.startsWith('\xff\xfe') || (isWide && odd > even)) return 'UTF-16LE';
  return begin.startsWith('\xfe\xff') || isWide ? 'UTF-16BE' : null;
}

/** Returns a text without licence, in NFC, no blanks at the ends of lines nor blank lines around it. */
function cleanText(raw) {
  let text = raw.replace(/\r\n?/g, '\n');
  const start = text.match(LICENCE);
  if (start?.[1] === 'START') text = text.slice(start.index + start[0].length);
  const end = text.match(LICENCE);
  if (end?.[1] === 'END') text = text.slice(0, end.index);
  const lines = text.split('\n').map(withoutBlanks);
  const [first, last] = [lines.findIndex(Boolean), lines.findLastIndex(Boolean)];
  return first < 0 ? '' : `${lines.slice(first, last + 1).join('\n').normalize('NFC')}\n`;
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
