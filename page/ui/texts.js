// The texts of a visit: none is lost when another one comes on show.

/** A list of texts, and which of them is on show. */
export class Texts {
  constructor() {
    this.all = [];
    this.at = -1;
  }

  get shown() {
    return this.all[this.at];
  }

  /** Puts a text behind the one on show, and on show itself. */
  add(text) {
    this.at++;
    this.all.splice(this.at, 0, text);
  }

  /** Returns whether there is a text so many places on; before, where that is negative. */
  has(by) {
    return this.all[this.at + by] !== undefined;
  }

  go(by) {
    if (this.has(by)) this.at += by;
    return this.shown;
  }
}

/**
 * Returns a text that nobody has written on yet: its ids, and from where on the model reads each of them.
 * start: what was typed for it, which may hold more than the model knows.
 *
 * tints: of each letter that the model wrote; null of those that somebody gave. given and settings are
 * for a link: how many letters it gives, and how the others were written (undefined: there are none;
 * null: in several ways).
 */
export function givenText(ids, starts, start) {
  const tints = ids.map(() => null);
  return { ids, starts, tints, start, given: ids.length, settings: undefined, chosen: null, said: '' };
}

/** Returns what a text is up to letter i with another one in its place: who wrote what before it stays. */
export function branchOf({ ids, starts, tints, start }, i, id) {
  const before = { tints: [...tints.slice(0, i), null], chosen: i };
  return { ...givenText([...ids.slice(0, i), id], starts.slice(0, i + 1), start), ...before };
}
