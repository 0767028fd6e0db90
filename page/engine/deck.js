// Which passages the games show: each is drawn at random, and stands in one of the games alone. Who has
// guessed a passage letter by letter would know it in the duel.

/** Returns the whole numbers below n in a random order. random(): a number in [0, 1). */
function shuffled(n, random) {
  const numbers = Array.from({ length: n }, (_, i) => i);
  for (let i = n - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [numbers[i], numbers[j]] = [numbers[j], numbers[i]];
  }
  return numbers;
}

export class Deck {
  /** count: of passages, which are named by their numbers. */
  constructor(count, random = Math.random) {
    this.left = shuffled(count, random); // those that stood in no game yet
    this.drawn = {}; // by game, the one that was drawn longest ago first
  }

  /** Returns how many passages a game can have. */
  sizeFor(game) {
    return this.left.length + (this.drawn[game]?.length ?? 0);
  }

  /** Draws a passage for a game; where no more than `kept` are left, one that it had before, if it had any. */
  draw(game, kept = 0) {
    const own = (this.drawn[game] ??= []);
    const isNew = this.left.length > (own.length ? kept : 0);
    return this.take(game, isNew ? this.left.at(-1) : own[0]);
  }

  /** Gives a game the passage of that number, and returns the number. */
  take(game, number) {
    const others = (numbers) => numbers.filter((one) => one !== number);
    this.left = others(this.left);
    this.drawn[game] = [...others(this.drawn[game] ?? []), number];
    return number;
  }
}
