// A text to learn from: bytes to clean text, as corpus.py, text to ids; passages of it, as passages.py.

const LARGEST_TEXT = 20e6; // bytes; a larger one would fill the memory of a small computer
const MOST_PASSAGES = 12;
const BEFORE_PASSAGE = 200; // letters
const SEARCHED = 20_000; // letters in which a passage is looked for
const PASSAGE = /(?<=[.!?]\s)\p{L}(?:(?!\n\n)[^]){200,299}?[.!?](?=\s)/gu;
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

/** Returns passages of a text for the game, spread evenly: [what comes before, what is guessed]. */
function passagesOf(text) {
  const step = Math.max(1, Math.floor(text.length / MOST_PASSAGES));
  const found = [];
  for (let start = 0; start < text.length; start += step) {
    const passage = firstPassage(text.slice(start, start + Math.min(step, SEARCHED)));
    if (passage) found.push(passage);
  }
  return found;
}

function firstPassage(text) {
  PASSAGE.lastIndex = BEFORE_PASSAGE; // from there on matchAll searches
  for (const { index, 0: passage } of text.matchAll(PASSAGE)) {
    if (!/^\p{Lu}/u.test(passage)) continue;
    const before = text.slice(index - BEFORE_PASSAGE, index);
    return [before.trimStart().replace(/^\S+\s+/, ''), passage]; // the first word may be half a one
  }
  return null;
}
