// The two passages of a duel: how both begin, what is shown of them, and whether they can be told apart.
// All is counted in letters: a table, code and Chinese have words of any length, or none.

const DUEL_LETTERS = 120; // letters of each passage, about
const MOST_SHARED = 40; // letters with which both begin
const WORD = /\p{L}{4,}/gu; // shorter ones seldom show who has written them
const FIRST_WORDS = /^(?:\S+\s+){1,3}/;

/** Returns with what both begin: a few words of a passage, or letters where the first word is a long one. */
export function beginningOf(passage) {
  const letters = Array.from(passage).slice(0, MOST_SHARED);
  return FIRST_WORDS.exec(letters.join(''))?.[0] ?? letters.slice(0, MOST_SHARED / 2).join('');
}

/** Returns how many letters the model writes after that beginning: a longer text would be known by its length. */
export function lettersToWrite(passage) {
  return Math.min(DUEL_LETTERS, Array.from(passage).length) - Array.from(beginningOf(passage)).length;
}

/** Returns a passage as it is shown: on one line, in whole words where the last one is not a long one. */
export function shownOf(passage) {
  const letters = Array.from(passage.replace(/\s+/g, ' ')).slice(0, DUEL_LETTERS);
  const blank = letters.lastIndexOf(' ');
  return letters.slice(0, 3 * blank > 2 * letters.length ? blank : letters.length).join('');
}

/** Returns whether two texts differ in most of what they show: no piece that both have is half of one. */
export function canBeToldApart(one, other) {
  const [a, b] = [one, other].map((text) => Array.from(text));
  return 2 * longestCommon(a, b) < Math.min(a.length, b.length);
}

/** Returns how long the longest piece is that stands in both. */
function longestCommon(a, b) {
  let longest = 0;
  let ending = new Array(b.length + 1).fill(0); // how long the common piece is that ends at a place of b
  for (const letter of a) {
    ending = [0, ...b.map((own, j) => (own === letter ? ending[j] + 1 : 0))];
    longest = Math.max(longest, ...ending);
  }
  return longest;
}

/** Returns the different words of a text, in small letters. */
export const wordsIn = (text) => [...new Set(text.toLowerCase().match(WORD))];

/** Returns how many words of a text are none of others. */
export const countInvented = (text, words) => wordsIn(text).filter((word) => !words.has(word)).length;
