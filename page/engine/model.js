// The GPT of model.py, a few characters at a time: ids in, logits out.
//
// Weights have the names and shapes of weights.py. C channels, H heads, D head size, V characters;
// t is a position in the context, n characters are read at once, their vectors one after another.
// Sums are in double precision, what is kept in single precision.

import { FixedMatrices } from './kernel.js';
import { softmax } from './probability.js';

export const NORM_EPSILON = { layernorm: 1e-5, rmsnorm: 1e-6 };
export const QK_EPSILON = 1e-6;
export const NGRAM_KEYS = 'ngram_embedding.keys';
export const NO_KEY = 2 ** 31 - 1; // of the rows that no n-gram has for its own

const LINEAR = /(qkv|attention\.proj|expand|head)\.weight$/; // the matrices of C columns

const silu = (x) => x / (1 + Math.exp(-x));
const gelu = (x) => x * normalDistribution(x);
const ACTIVATIONS = {
  relu: (x) => Math.max(x, 0),
  relu2: (x) => Math.max(x, 0) ** 2,
  silu,
  gelu,
  geglu: gelu,
  swiglu: silu,
};

/** The options that name something, and the names that are known here. */
const CHOICES = {
  norm: ['layernorm', 'rmsnorm'],
  position: ['learned', 'sinusoidal', 'rope'],
  activation: Object.keys(ACTIVATIONS),
};

/** Throws `unknown_choice` where an option has another name. */
function requireKnown(config) {
  for (const [option, names] of Object.entries(CHOICES)) {
    const name = config[option];
    if (!names.includes(name)) throw new Error('unknown_choice', { cause: { option, name } });
  }
}

/** Φ(x), to 2e-7: Abramowitz & Stegun 1964, formula 7.1.26. */
function normalDistribution(x) {
  const z = Math.abs(x) * Math.SQRT1_2;
  const t = 1 / (1 + 0.3275911 * z);
  let tail = 1.061405429 * t;
  for (const c of [-1.453152027, 1.421413741, -0.284496736, 0.254829592]) tail = (tail + c) * t;
  tail *= 0.5 * Math.exp(-z * z);
  return x > 0 ? 1 - tail : tail;
}

/** Returns the vectors of n numbers that x holds. */
export function vectorsOf(x, n) {
  return Array.from({ length: x.length / n }, (_, i) => x.subarray(i * n, (i + 1) * n));
}

/** A matrix in an array: where it starts, how far apart its rows are, and the numbers of a row. */
export function matrix(numbers, start, rows, stride, step = 1) {
  return { numbers, start, rows, stride, step };
}

/**
 * Returns the product of each row of b with each row of a, (b.rows, a.rows), n numbers each. The last
 * four or eight at a time may begin among those before them, which are computed once more.
 */
function products(a, b, n) {
  const out = new Float32Array(b.rows * a.rows);
  if (a.rows < 4 || b.rows < 4) {
    for (let j = 0; j < b.rows; j++) productsOfOne(a, b, j, n, out);
    return out;
  }
  for (let i = 0; i < a.rows; i += 4) {
    const first = Math.min(i, a.rows - 4);
    for (let j = 0; j < b.rows; j += 4) {
      productsOfFour(a, first, b, Math.min(j, b.rows - 4), n, out);
    }
  }
  return out;
}

/** Eight products at once: no sum waits for the one before it, and b is read once for all. */
function productsOfOne(a, b, row, n, out) {
  const { numbers: x, step, stride, rows } = a;
  const { numbers: y, step: ahead } = b;
  const from = b.start + row * b.stride;
  for (let eight = 0; rows > 7 && eight < rows; eight += 8) {
    const first = Math.min(eight, rows - 8);
    let i = a.start + first * stride;
    let j = from;
    let s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
    for (let p = 0; p < n; p++, i += step, j += ahead) {
      const value = y[j];
      s0 += x[i] * value;
      s1 += x[i + stride] * value;
      s2 += x[i + 2 * stride] * value;
      s3 += x[i + 3 * stride] * value;
      s4 += x[i + 4 * stride] * value;
      s5 += x[i + 5 * stride] * value;
      s6 += x[i + 6 * stride] * value;
      s7 += x[i + 7 * stride] * value;
    }
    putFour(out, row * rows + first, s0, s1, s2, s3);
    putFour(out, row * rows + first + 4, s4, s5, s6, s7);
  }
  for (let r = 0; rows < 8 && r < rows; r++) {
    let sum = 0;
    for (let p = 0; p < n; p++) sum += x[a.start + r * stride + p * step] * y[from + p * ahead];
    out[row * rows + r] = sum;
  }
}

/** Four rows of a with four of b: each number that is read serves four products. */
function productsOfFour(a, first, b, row, n, out) {
  const { numbers: x, step, stride, rows } = a;
  const { numbers: y, step: ahead, stride: other } = b;
  let i = a.start + first * stride;
  let j = b.start + row * other;
  let a0 = 0, a1 = 0, a2 = 0, a3 = 0;
  let b0 = 0, b1 = 0, b2 = 0, b3 = 0;
  let c0 = 0, c1 = 0, c2 = 0, c3 = 0;
  let d0 = 0, d1 = 0, d2 = 0, d3 = 0;
  for (let t = 0; t < n; t++, i += step, j += ahead) {
    const p = y[j];
    const q = y[j + other];
    const r = y[j + 2 * other];
    const s = y[j + 3 * other];
    let value = x[i];
    a0 += value * p;
    a1 += value * q;
    a2 += value * r;
    a3 += value * s;
    value = x[i + stride];
    b0 += value * p;
    b1 += value * q;
    b2 += value * r;
    b3 += value * s;
    value = x[i + 2 * stride];
    c0 += value * p;
    c1 += value * q;
    c2 += value * r;
    c3 += value * s;
    value = x[i + 3 * stride];
    d0 += value * p;
    d1 += value * q;
    d2 += value * r;
    d3 += value * s;
  }
  const to = row * rows + first;
  putFour(out, to, a0, b0, c0, d0);
  putFour(out, to + rows, a1, b1, c1, d1);
  putFour(out, to + 2 * rows, a2, b2, c2, d2);
  putFour(out, to + 3 * rows, a3, b3, c3, d3);
}

function putFour(out, to, a, b, c, d) {
  out[to] = a;
  out[to + 1] = b;
  out[to + 2] = c;
  out[to + 3] = d;
}

/** Returns the sum of vectors of n numbers, each at its place, as often as its weight says. */
function mixture(vectors, places, weights, n) {
  const out = new Float64Array(n);
  const rows = places.length;
  let row = 0;
  for (; row + 3 < rows; row += 4) {
    const i = places[row];
    const j = places[row + 1];
    const k = places[row + 2];
    const l = places[row + 3];
    const a = weights[row];
    const b = weights[row + 1];
    const c = weights[row + 2];
    const d = weights[row + 3];
    for (let p = 0; p < n; p++) {
      out[p] += a * vectors[i + p] + b * vectors[j + p] + c * vectors[k + p] + d * vectors[l + p];
    }
  }
  for (; row < rows; row++) {
    for (let p = 0; p < n; p++) out[p] += weights[row] * vectors[places[row] + p];
  }
  return out;
}

/** Returns W · x, W being given by its columns; those that meet a zero are not even read. */
function sparseProduct(columns, x, rows) {
  const places = new Int32Array(x.length);
  const weights = new Float64Array(x.length);
  let awake = 0;
  for (let unit = 0; unit < x.length; unit++) {
    if (x[unit] === 0) continue;
    places[awake] = unit * rows;
    weights[awake++] = x[unit];
  }
  const sum = mixture(columns, places.subarray(0, awake), weights, rows);
  return new Float32Array(sum);
}

/** Returns the columns of a matrix of so many rows, one after another. */
export function transposed(numbers, rows, out = new Float32Array(numbers.length)) {
  const columns = numbers.length / rows;
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) out[j * rows + i] = numbers[i * columns + j];
  }
  return out;
}

export function dot(a, i, b, j, n) {
  let sum = 0;
  for (let p = 0; p < n; p++) sum += a[i + p] * b[j + p];
  return sum;
}

/** x += scale · y */
export function add(x, y, scale = 1) {
  for (let p = 0; p < x.length; p++) x[p] += scale * y[p];
}

/** Divides n numbers of x by the root of their mean square; returns what they were multiplied by. */
export function rmsNorm(x, start, n, epsilon) {
  const scale = 1 / Math.sqrt(dot(x, start, x, start, n) / n + epsilon);
  for (let p = start; p < start + n; p++) x[p] *= scale;
  return scale;
}

/** t / 10000^(j/n) for even j < n. */
function anglesAt(t, n) {
  return Float64Array.from({ length: n / 2 }, (_, j) => t * 10000 ** ((-2 * j) / n));
}

export class GPT {
  /**
   * config: ModelConfig and what it derives; weights: by name, each a Float32Array, but the keys of
   * n-grams an Int32Array; module: kernel.wasm as a WebAssembly.Module, or null to compute all in
   * JavaScript. Throws `unknown_choice`.
   */
  constructor(config, weights, module = null) {
    requireKnown(config);
    this.config = config;
    this.weights = weights;
    this.activation = ACTIVATIONS[config.activation];
    this.off = new Set(); // names of parts that add nothing, as switches.js calls them
    this.contractions = Array.from({ length: config.n_layer }, (_, layer) =>
      transposed(weights[`blocks.${layer}.feed_forward.proj.weight`], config.n_embd),
    );
    if (config.tie_embeddings) weights['head.weight'] = weights['token_embedding.weight'];
    const linear = Object.entries(weights).filter(([name]) => LINEAR.test(name));
    this.matrices = module && new FixedMatrices(module, linear, config.n_embd);
    if (config.position === 'rope') {
      const table = Array.from({ length: config.block_size }, (_, t) => anglesAt(t, config.head_size));
      this.cosines = table.map((row) => Float32Array.from(row, Math.cos));
      this.sines = table.map((row) => Float32Array.from(row, Math.sin));
    }
  }

  /** Returns this model, of the same weights, with some parts switched off. */
  without(off) {
    return Object.assign(Object.create(this), { off });
  }

  /** Returns the C numbers of one row of a table. */
  row(name, index) {
    const C = this.config.n_embd;
    return this.weights[name].subarray(index * C, (index + 1) * C);
  }

  /** Returns W · x + bias of each vector in x. */
  linear(name, x, rows) {
    const [weight, bias] = [this.weights[`${name}.weight`], this.weights[`${name}.bias`]];
    const C = this.config.n_embd;
    const out = this.matrices
      ? this.matrices.products(`${name}.weight`, x, rows)
      : products(matrix(weight, 0, rows, C), matrix(x, 0, x.length / C, C), C);
    if (bias) for (const one of vectorsOf(out, rows)) add(one, bias);
    return out;
  }

  /** Returns the normalised vectors of x; `name` is that of their gain and bias, if they have any. */
  norm(name, x) {
    const { norm, n_embd: C } = this.config;
    const out = x.slice();
    const [gain, bias] = [this.weights[`${name}.weight`], this.weights[`${name}.bias`]];
    for (const one of vectorsOf(out, C)) {
      if (norm === 'layernorm') {
        const mean = one.reduce((sum, value) => sum + value, 0) / C;
        for (let p = 0; p < C; p++) one[p] -= mean;
      }
      rmsNorm(one, 0, C, NORM_EPSILON[norm]);
      if (gain) for (let p = 0; p < C; p++) one[p] *= gain[p];
      if (bias) add(one, bias);
    }
    return out;
  }

  /** Returns the logits that the output head makes of each vector that leaves a block. */
  logits(x) {
    return this.linear('head', this.norm('norm', x), this.config.vocab_size);
  }

  /** Returns the vector of position t, or null where the model has none (rope rotates instead). */
  position(t) {
    const { position, n_embd } = this.config;
    if (position === 'learned') return this.row('position_embedding.weight', t);
    if (position !== 'sinusoidal') return null;
    const angles = anglesAt(t, n_embd);
    return Float32Array.from({ length: n_embd }, (_, c) =>
      c % 2 ? Math.cos(angles[c >> 1]) : Math.sin(angles[c >> 1]),
    );
  }

  /** Rotates each pair of channels of n heads by the angles of position t; sense −1: back. */
  turn(x, heads, t, sense = 1) {
    const D = this.config.head_size;
    const [cos, sin] = [this.cosines[t], this.sines[t]];
    for (let p = 0; p < heads * D; p += 2) {
      const [even, odd, j] = [x[p], x[p + 1], (p % D) >> 1];
      x[p] = even * cos[j] - sense * odd * sin[j];
      x[p + 1] = sense * even * sin[j] + odd * cos[j];
    }
  }
}

const AT_ONCE = 16; // characters that are read in one slice: few, so that nobody waits

/** Reads a growing text, no character twice; what it has read can be looked at again. */
export class Reader {
  constructor(model) {
    const { n_layer, block_size, n_embd } = model.config;
    const room = () => Array.from({ length: n_layer }, () => new Float32Array(block_size * n_embd));
    this.model = model;
    this.queries = room(); // (t, C) by layer, as the other two
    this.keys = room();
    this.values = room();
    this.ids = [];
  }

  get length() {
    return this.ids.length;
  }

  restart() {
    this.ids.length = 0;
  }

  /** Takes in an id. Returns the logits of what comes next. */
  read(id) {
    return this.model.logits(this.readSome([id]));
  }

  /** Takes in the first AT_ONCE of some ids. Returns what leaves the last block for each, (n, C). */
  readSome(ids) {
    const taken = ids.slice(0, AT_ONCE);
    this.ids.push(...taken);
    return this._stream(this.length - taken.length, taken.length, () => {});
  }

  /** Returns what is computed at position t, which was read before, by name. */
  look(t) {
    const notes = { blocks: this.keys.map(() => ({})) };
    const x = this._stream(t, 1, (name, values, layer) => {
      const place = layer === undefined ? notes : notes.blocks[layer];
      place[name] = values.slice();
    });
    notes.logits = this.model.logits(x);
    return notes;
  }

  /** Returns what a head gives to each position up to t: its scores, and their softmax. */
  attention(layer, head, t) {
    const scores = this._scores(layer, head, t, 1);
    return { scores, weights: softmax(scores) };
  }

  /** Returns a head's scores of all that is read up to t + n, for n positions from t on. */
  _scores(layer, head, t, n) {
    const { n_embd: C, head_size: D } = this.model.config;
    const keys = matrix(this.keys[layer], head * D, t + n, C);
    const scores = products(keys, matrix(this.queries[layer], t * C + head * D, n, C), D);
    const scale = 1 / Math.sqrt(D);
    for (let p = 0; p < scores.length; p++) scores[p] *= scale;
    return scores;
  }

  /** Returns the values that all heads mix for n positions from t on, (n, C). */
  _mix(layer, t, n) {
    const { n_head: H, n_embd: C, head_size: D } = this.model.config;
    const mixed = new Float32Array(n * C);
    const places = Int32Array.from({ length: n === 1 ? t + 1 : 0 }, (_, s) => s * C);
    for (let h = 0; h < H; h++) {
      if (this.model.off.has(`${layer}.${h}`)) continue;
      const sums =
        n === 1
          ? mixture(this.values[layer].subarray(h * D), places, this.attention(layer, h, t).weights, D)
          : this._mixMany(layer, h, t, n);
      vectorsOf(sums, D).forEach((sum, k) => mixed.set(sum, k * C + h * D));
    }
    return mixed;
  }

  _mixMany(layer, head, t, n) {
    const { n_embd: C, head_size: D } = this.model.config;
    const read = t + n;
    const weights = new Float32Array(n * read);
    // What comes after a position has no weight for it.
    vectorsOf(this._scores(layer, head, t, n), read).forEach((scores, k) => {
      weights.set(softmax(scores.subarray(0, t + k + 1)), k * read);
    });
    const channels = matrix(this.values[layer], head * D, D, 1, C);
    return products(channels, matrix(weights, 0, n, read), read);
  }

  /** Returns the rows of the table for the last 2, 3, … characters at t, as ngrams.py. */
  tableRows(t) {
    const { ngram_size } = this.model.config;
    const symbol = (age) => (age <= t ? this.ids[t - age] + 2 : 1);
    const newestFirst = Array.from({ length: ngram_size }, (_, age) => symbol(age));
    return knownRows(newestFirst, this.model.weights[NGRAM_KEYS]);
  }

  /** Returns what leaves the last block at n positions from t on; tells `note` of its steps. */
  _stream(t, n, note) {
    const { n_layer, embedding_skip } = this.model.config;
    const isOn = (...parts) => !parts.some((part) => this.model.off.has(part));
    const embedding = this._embed(t, n, note);
    const x = embedding.slice();
    note('embedding', embedding);
    for (let layer = 0; layer < n_layer; layer++) {
      if (embedding_skip && layer) add(x, embedding, this.model.weights.skips[layer]);
      note('input', x, layer);
      if (isOn(`${layer}`)) add(x, this._attend(x, layer, t, n, note));
      note('middle', x, layer);
      if (isOn(`${layer}`, `${layer}.f`)) add(x, this._feedForward(x, layer, note));
      note('output', x, layer);
    }
    return x;
  }

  _embed(t, n, note) {
    const { n_embd: C, ngram_size } = this.model.config;
    const out = new Float32Array(n * C);
    vectorsOf(out, C).forEach((x, k) => {
      x.set(this.model.row('token_embedding.weight', this.ids[t + k]));
      note('token', x);
      if (ngram_size > 1) {
        const rows = this.tableRows(t + k);
        note('tableRows', rows);
        for (const row of rows) add(x, this.model.row('ngram_embedding.weight', row));
      }
      const position = this.model.position(t + k);
      if (position) add(x, position);
    });
    return out;
  }

  _attend(x, layer, t, n, note) {
    const { model } = this;
    const { n_embd: C, n_head: H, head_size: D, position, qk_norm } = model.config;
    const name = `blocks.${layer}`;
    const normalised = model.norm(`${name}.norm1`, x);
    const all = model.linear(`${name}.attention.qkv`, normalised, 3 * C);
    vectorsOf(all, 3 * C).forEach((qkv, k) => {
      if (position === 'rope') model.turn(qkv, 2 * H, t + k);
      if (qk_norm) for (let h = 0; h < 2 * H; h++) rmsNorm(qkv, h * D, D, QK_EPSILON);
      [this.queries, this.keys, this.values].forEach((kept, part) => {
        kept[layer].set(qkv.subarray(part * C, (part + 1) * C), (t + k) * C);
      });
    });
    const mixed = this._mix(layer, t, n);
    const out = model.linear(`${name}.attention.proj`, mixed, C);
    note('attention', out, layer);
    return out;
  }

  _feedForward(x, layer, note) {
    const { model } = this;
    const { n_embd: C, hidden_size, is_gated } = model.config;
    const name = `blocks.${layer}`;
    const normalised = model.norm(`${name}.norm2`, x);
    const rows = is_gated ? 2 * hidden_size : hidden_size;
    const expanded = model.linear(`${name}.feed_forward.expand`, normalised, rows);
    note('expanded', expanded, layer);
    const out = new Float32Array(x.length);
    const bias = model.weights[`${name}.feed_forward.proj.bias`];
    vectorsOf(expanded, rows).forEach((wide, k) => {
      const active = wide.subarray(is_gated ? hidden_size : 0).map(model.activation);
      if (is_gated) for (let p = 0; p < hidden_size; p++) active[p] *= wide[p];
      // Most units of a relu sleep, and a third of the block's weights need not be looked at.
      const sum = sparseProduct(model.contractions[layer], active, C);
      if (bias) add(sum, bias);
      out.set(sum, k * C);
    });
    note('feedForward', out, layer);
    return out;
  }
}

/** Returns the row of each n-gram that a vocabulary knows, and the last one for all others. */
function knownRows(newestFirst, keys) {
  let key = 0;
  let power = 1;
  const rows = newestFirst.map((symbol) => {
    key = (key + Math.imul(symbol, power)) | 0;
    power = Math.imul(power, 0x9e3779b1);
    const row = countLess(keys, key);
    return keys[row] === key ? row : keys.length - 1;
  });
  return rows.slice(1);
}

/** Returns how many of ascending numbers are less than one. */
export function countLess(ascending, number) {
  let [low, high] = [0, ascending.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ascending[middle] < number) low = middle + 1;
    else high = middle;
  }
  return low;
}
