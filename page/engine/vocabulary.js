// Text to ids and back, as tokenizer.py: NFC first, and then one code point after another.

export class Vocabulary {
  /** characters: a string, one code point for each id; nearest: what stands for unknown ones. */
  constructor(characters, nearest) {
    this.characters = Array.from(characters);
    this.ids = new Map(this.characters.map((character, id) => [character, id]));
    this.nearest = new Map(Object.entries(nearest));
  }

  /** Returns { ids, unknown }, unknown being a list of { character, position, nearest }. */
  encode(text) {
    const ids = [];
    const unknown = new Map();
    let position = 0;
    for (const character of text.normalize('NFC')) {
      const id = this.ids.get(character);
      if (id !== undefined) ids.push(id);
      else if (!unknown.has(character)) {
        unknown.set(character, { character, position, nearest: this.nearest.get(character) });
      }
      position++;
    }
    return { ids, unknown: [...unknown.values()] };
  }

  /** Returns the text with the nearest known character for each unknown one, or without it. */
  replaceUnknown(text) {
    const known = (character) =>
      this.ids.has(character) ? character : this.nearest.get(character) || '';
    return Array.from(text.normalize('NFC'), known).join('');
  }

  decode(ids) {
    return Array.from(ids, (id) => this.characters[id]).join('');
  }
}
