// A lesson that begins from a model that can read: the text in its ids, and rows for letters that it lacks.

const ROWS = ['token_embedding.weight', 'head.weight']; // the weights that have a row for each character

/**
 * Returns a text, { characters, train, val }, in the ids of a model, whose characters are `known`. Those
 * that it lacks get the ids after its own, as start.py does.
 */
export function inIdsOf(known, text) {
  const ids = new Map(known.map((character, id) => [character, id]));
  const characters = [...known, ...text.characters.filter((character) => !ids.has(character))];
  characters.forEach((character, id) => ids.set(character, id));
  const Ids = characters.length > 256 ? Int32Array : Uint8Array;
  const places = text.characters.map((character) => ids.get(character));
  const moved = (part) => new Ids(part.length).map((_, i) => places[part[i]]);
  return { ...text, characters, train: moved(text.train), val: moved(text.val) };
}

/**
 * Returns weights with rows for all characters, as start.py: new ones begin as those of the nearest known
 * character, or else as the mean of all rows. known: how many characters the model has; nearest: as of
 * Vocabulary; C: n_embd.
 */
export function withRowsFor(characters, weights, known, nearest, C) {
  const added = characters.slice(known);
  const grown = Object.entries(weights).map(([name, numbers]) => {
    if (!ROWS.includes(name)) return [name, numbers.slice()];
    const rows = new Float32Array(characters.length * C);
    rows.set(numbers);
    added.forEach((character, i) => {
      const like = characters.indexOf(nearest.get(character));
      const row = like >= 0 && like < known ? numbers.subarray(like * C, (like + 1) * C) : meanRow(numbers, C);
      rows.set(row, (known + i) * C);
    });
    return [name, rows];
  });
  return Object.fromEntries(grown);
}

function meanRow(numbers, C) {
  const mean = new Float64Array(C);
  numbers.forEach((x, i) => (mean[i % C] += x));
  return mean.map((sum) => (sum * C) / numbers.length);
}
