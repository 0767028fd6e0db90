// What a text, a page and its file are called.

const LONGEST = 40; // letters of a title that a text gives itself

/** Returns the first words of a text, as its title; nothing of blanks. */
export function firstWords(text) {
  const line = text.trimStart().slice(0, 4 * LONGEST).split('\n', 1)[0];
  const letters = Array.from(line.replace(/\s+/g, ' ').trim());
  if (letters.length <= LONGEST) return letters.join('');
  const begun = letters.slice(0, LONGEST + 1).join('');
  const words = / \S*$/.test(begun) ? begun.replace(/ \S*$/, '') : letters.slice(0, LONGEST).join('');
  return `${words.replace(/\p{P}+$/u, '')}…`;
}

/** Returns titles that can be told apart: of equal ones the later have a number. */
export function toldApart(titles) {
  const seen = new Map();
  return titles.map((title) => {
    const n = (seen.get(title) ?? 0) + 1;
    seen.set(title, n);
    return n > 1 ? `${title} (${n})` : title;
  });
}

/** Returns the name of a file, of a title: without what some system does not take. */
export function fileName(title, ending) {
  const name = title.replace(/[\\/:*?"<>|\p{C}\s]+/gu, ' ').trim();
  return `${name || 'sancho'}.${ending}`;
}
