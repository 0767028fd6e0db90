// NumPy's random numbers: SeedSequence spreads a seed over a generator's state, and PCG64 draws.
// Generator(PCG64(SeedSequence(seed, spawn_key=key))).random() gives the same numbers.

/** The purpose of that name in seeds.py: part of the key of the generator that draws letters. */
export const SAMPLING = 3;

const MASK32 = 0xffffffffn;
const MASK64 = (1n << 64n) - 1n;
const MASK128 = (1n << 128n) - 1n;
const POOL_SIZE = 4;

/** Returns the seed that somebody typed; null where it is none that sample.py takes, a whole number below 2^128. */
export function seedOf(text) {
  const [, digits] = /^\s*0*(\d{1,39})\s*$/.exec(text) ?? []; // a million digits would take long to be a number
  const seed = digits ? BigInt(digits) : null;
  return seed === null || seed > MASK128 ? null : seed;
}

/** Returns a whole number as 32-bit words, the lowest first. */
function words(number) {
  const found = [];
  for (let rest = BigInt(number); rest || !found.length; rest >>= 32n) {
    found.push(Number(rest & MASK32));
  }
  return found;
}

/** Returns a function that hashes one 32-bit word after another (O'Neill 2015, randutils). */
function hasher(start, factor) {
  let constant = start;
  return (value) => {
    value = (value ^ constant) >>> 0;
    constant = Math.imul(constant, factor) >>> 0;
    value = Math.imul(value, constant) >>> 0;
    return (value ^ (value >>> 16)) >>> 0;
  };
}

function mix(x, y) {
  const value = (Math.imul(x, 0xca01f9dd) - Math.imul(y, 0x4973f715)) >>> 0;
  return (value ^ (value >>> 16)) >>> 0;
}

/** Returns `count` 64-bit words that a seed and a key stand for. */
function seedSequence(seed, key, count) {
  const entropy = words(seed);
  while (entropy.length < POOL_SIZE) entropy.push(0);
  entropy.push(...key.flatMap(words));
  const pool = [];
  const hashed = hasher(0x43b0d7e5, 0x931e8875);
  for (let i = 0; i < POOL_SIZE; i++) pool.push(hashed(entropy[i]));
  for (let from = 0; from < POOL_SIZE; from++) {
    for (let to = 0; to < POOL_SIZE; to++) {
      if (from !== to) pool[to] = mix(pool[to], hashed(pool[from]));
    }
  }
  for (const word of entropy.slice(POOL_SIZE)) {
    for (let to = 0; to < POOL_SIZE; to++) pool[to] = mix(pool[to], hashed(word));
  }
  const drawn = hasher(0x8b51f9dd, 0x58f38ded);
  const half = (i) => BigInt(drawn(pool[i % POOL_SIZE]));
  return Array.from({ length: count }, (_, i) => half(2 * i) | (half(2 * i + 1) << 32n));
}

/** PCG64 (O'Neill 2014), the 128-bit generator that NumPy takes by default. */
export class Generator {
  constructor(seed, key) {
    const [a, b, c, d] = seedSequence(seed, key, 4);
    this.increment = ((((c << 64n) | d) << 1n) | 1n) & MASK128;
    this.state = 0n;
    this._step();
    this.state = (this.state + ((a << 64n) | b)) & MASK128;
    this._step();
  }

  /** Returns a number in [0, 1). */
  random() {
    this._step();
    const folded = ((this.state >> 64n) ^ this.state) & MASK64;
    const turn = this.state >> 122n;
    const output = ((folded >> turn) | (folded << (64n - turn))) & MASK64;
    return Number(output >> 11n) / 2 ** 53;
  }

  _step() {
    this.state = (this.state * 0x2360ed051fc65da44385df649fccf645n + this.increment) & MASK128;
  }
}
