// Passages for the game, of the part of a text that was not learned from, as passages.py.

const MOST_PASSAGES = 12;
const LEAST_PIECE = 500; // letters of a text for each passage: a short text has fewer
const SEARCHED = 20_000; // letters in which a passage is looked for
// Shorter sentences than those of a book, or lines, as chats and poems have them.
const LINES = {
  is: /\S[^]{80,299}?(?:[.!?](?=\s)|(?=\n))/uy,
  begins: /^[—–\-¿¡«“"( ]*\p{Uppercase}/u,
  after: /(?:\n|[.!?]\s)$/,
  context: 100,
};
/**
 * What passages are, the better kind first: whole sentences in a paragraph, shorter ones, any lines;
 * begins: how they begin; after: what ends before them, as there are browsers that can't look behind;
 * context: how many letters before them are shown, at most.
 */
const PASSAGES = [
  { is: /\p{L}(?:(?!\n\n)[^]){200,299}?[.!?](?=\s)/uy, begins: /^\p{Lu}/u, after: /[.!?]\s$/, context: 200 },
  LINES,
  { ...LINES, begins: /^/ },
];

/** Returns passages of a text for the game, spread evenly: [what comes before, what is guessed]. */
export function passagesOf(text) {
  const letters = Array.from(text);
  const count = Math.min(MOST_PASSAGES, Math.max(1, Math.floor(letters.length / LEAST_PIECE)));
  const step = Math.floor(letters.length / count);
  const pieces = Array.from({ length: count }, (_, n) => letters.slice(n * step).slice(0, Math.min(step, SEARCHED)));
  return pieces.map(firstPassage).filter(Boolean);
}

function firstPassage(letters) {
  const text = letters.join('');
  for (const kind of PASSAGES) {
    const { is, begins, after, context } = kind;
    let at = letters.slice(0, context).join('').length;
    while (at < text.length) {
      is.lastIndex = at;
      const found = after.test(text.slice(at - 2, at)) && is.exec(text);
      if (found && begins.test(found[0])) {
        const before = Array.from(text.slice(0, at)).slice(-context).join('');
        return [before.trimStart().replace(/^\S+\s+/, ''), found[0]]; // the first word may be half a one
      }
      at = found ? is.lastIndex : at + 1;
    }
  }
  return null;
}
