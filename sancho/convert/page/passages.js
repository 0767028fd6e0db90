// Passages for the game, of the part of a text that was not learned from, as passages.py.

const MOST_PASSAGES = 12;
const BEFORE_PASSAGE = 200; // letters
const SEARCHED = 20_000; // letters in which a passage is looked for
// What stands before it is matched, too: there are browsers that can't look behind.
const PASSAGE = /[.!?]\s(\p{L}(?:(?!\n\n)[^]){200,299}?[.!?])(?=\s)/gu;

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
  PASSAGE.lastIndex = BEFORE_PASSAGE - 2; // from there on it is searched
  for (let found; (found = PASSAGE.exec(text)); PASSAGE.lastIndex--) {
    const { index, 1: passage } = found;
    if (!/^\p{Lu}/u.test(passage)) continue;
    const before = text.slice(index + 2 - BEFORE_PASSAGE, index + 2);
    return [before.trimStart().replace(/^\S+\s+/, ''), passage]; // the first word may be half a one
  }
  return null;
}
