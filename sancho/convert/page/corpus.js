// A text to learn from: bytes to clean text, as corpus.py, and text to ids.

const LARGEST_TEXT = 20e6; // bytes; a larger one would fill the memory of a small computer
const LICENCE = /\*\*\* (START|END) OF TH(?:E|IS) PROJECT GUTENBERG[^\n]*\n?/;

/** Returns the text of bytes in UTF-8 or another encoding; null where they are not of it. */
function decoded(bytes, encoding = 'utf-8') {
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** Returns a text without licence, in NFC, no blanks at the ends of lines nor blank lines around it. */
function cleanText(raw) {
  let text = raw.replace(/\r\n?/g, '\n');
  const start = text.match(LICENCE);
  if (start?.[1] === 'START') text = text.slice(start.index + start[0].length);
  const end = text.match(LICENCE);
  if (end?.[1] === 'END') text = text.slice(0, end.index);
  text = text.replace(/[ \t]+$/gm, '').normalize('NFC');
  text = text.replace(/^\n+/, '').trimEnd();
  return text && `${text}\n`;
}

/** Returns { characters, train, val }: those of a text, sorted, and the ids of its two parts. */
function splitText(text) {
  const letters = Array.from(text);
  const characters = Array.from(new Set(letters)).sort((a, b) => a.codePointAt() - b.codePointAt());
  const places = new Map(characters.map((character, id) => [character, id]));
  const ids = Int32Array.from(letters, (letter) => places.get(letter));
  const cut = ids.length - Math.floor(ids.length / 10);
  return { characters, train: ids.slice(0, cut), val: ids.slice(cut) };
}
