// The GPT of model.py, one character at a time: ids in, logits out.
//
// Weights have the names and shapes of checkpoint.py. C channels, H heads, D head size, V characters;
// t is a position in the context. Sums are in double precision, what is kept in single precision.

const NORM_EPSILON = { layernorm: 1e-5, rmsnorm: 1e-6 };
const QK_EPSILON = 1e-6;
const NGRAM_KEYS = 'ngram_embedding.keys';
const NO_KEY = 2 ** 31 - 1; // of the rows that no n-gram has for its own

const ACTIVATIONS = {
  relu: (x) => Math.max(x, 0),
  relu2: (x) => Math.max(x, 0) ** 2,
  silu: (x) => x / (1 + Math.exp(-x)),
  gelu: (x) => x * normalDistribution(x),
};
ACTIVATIONS.geglu = ACTIVATIONS.gelu;
ACTIVATIONS.swiglu = ACTIVATIONS.silu;

/** Φ(x), to 2e-7: Abramowitz & Stegun 1964, formula 7.1.26. */
function normalDistribution(x) {
  const z = Math.abs(x) * Math.SQRT1_2;
  const t = 1 / (1 + 0.3275911 * z);
  let tail = 1.061405429 * t;
  for (const c of [-1.453152027, 1.421413741, -0.284496736, 0.254829592]) tail = (tail + c) * t;
  tail *= 0.5 * Math.exp(-z * z);
  return x > 0 ? 1 - tail : tail;
}

/** Returns W · x + bias; W is (rows, x.length), row after row. */
function linear(weight, bias, x, rows) {
  const out = products(weight, 0, x.length, rows, x, 0, x.length);
  if (bias) add(out, bias);
  return out;
}

/** Returns the products of `rows` vectors with x: n numbers each, at `start`, `stride` apart. */
function products(vectors, start, stride, rows, x, from, n) {
  const out = new Float32Array(rows);
  let row = 0;
  // Eight at once: no sum waits for the one before it, and x is read once for all.
  for (; row + 7 < rows; row += 8) {
    let i = start + row * stride;
    let a = 0,
      b = 0,
      c = 0,
      d = 0,
      e = 0,
      f = 0,
      g = 0,
      h = 0;
    for (let p = 0; p < n; p++, i++) {
      const value = x[from + p];
      a += vectors[i] * value;
      b += vectors[i + stride] * value;
      c += vectors[i + 2 * stride] * value;
      d += vectors[i + 3 * stride] * value;
      e += vectors[i + 4 * stride] * value;
      f += vectors[i + 5 * stride] * value;
      g += vectors[i + 6 * stride] * value;
      h += vectors[i + 7 * stride] * value;
    }
    out[row] = a;
    out[row + 1] = b;
    out[row + 2] = c;
    out[row + 3] = d;
    out[row + 4] = e;
    out[row + 5] = f;
    out[row + 6] = g;
    out[row + 7] = h;
  }
  for (; row < rows; row++) out[row] = dot(vectors, start + row * stride, x, from, n);
  return out;
}

/** Returns the sum of vectors of n numbers, each at its place, as often as its weight says. */
function mixture(vectors, places, weights, n) {
  const out = new Float64Array(n);
  const rows = places.length;
  let row = 0;
  for (; row + 3 < rows; row += 4) {
    const i = places[row],
      j = places[row + 1],
      k = places[row + 2],
      l = places[row + 3];
    const a = weights[row],
      b = weights[row + 1],
      c = weights[row + 2],
      d = weights[row + 3];
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

/** Returns the columns of a matrix of (rows, columns), one after another. */
function transposed(matrix, rows) {
  const columns = matrix.length / rows;
  const out = new Float32Array(matrix.length);
  for (let i = 0; i < matrix.length; i++)
    out[(i % columns) * rows + Math.floor(i / columns)] = matrix[i];
  return out;
}

function dot(a, i, b, j, n) {
  let sum = 0;
  for (let p = 0; p < n; p++) sum += a[i + p] * b[j + p];
  return sum;
}

/** x += scale · y */
function add(x, y, scale = 1) {
  for (let p = 0; p < x.length; p++) x[p] += scale * y[p];
}

/** Divides n numbers of x by the root of their mean square. */
function rmsNorm(x, start, n, epsilon) {
  const scale = 1 / Math.sqrt(dot(x, start, x, start, n) / n + epsilon);
  for (let p = start; p < start + n; p++) x[p] *= scale;
}

function softmax(scores) {
  let highest = -Infinity;
  for (const score of scores) if (score > highest) highest = score;
  const weights = new Float64Array(scores.length);
  let sum = 0;
  for (let p = 0; p < scores.length; p++) sum += weights[p] = Math.exp(scores[p] - highest);
  for (let p = 0; p < weights.length; p++) weights[p] /= sum;
  return weights;
}

/** t / 10000^(j/n) for even j < n. */
function anglesAt(t, n) {
  return Float64Array.from({ length: n / 2 }, (_, j) => t * 10000 ** ((-2 * j) / n));
}

class GPT {
  /**
   * config: ModelConfig and what it derives; weights: by name, each a Float32Array, but the keys of
   * n-grams an Int32Array.
   */
  constructor(config, weights) {
    this.config = config;
    this.weights = weights;
    this.activation = ACTIVATIONS[config.activation];
    this.contractions = Array.from({ length: config.n_layer }, (_, layer) =>
      transposed(weights[`blocks.${layer}.feed_forward.proj.weight`], config.n_embd),
    );
    if (config.tie_embeddings) weights['head.weight'] = weights['token_embedding.weight'];
    if (config.position === 'rope') {
      const angles = (t) => anglesAt(t, config.head_size);
      const table = Array.from({ length: config.block_size }, (_, t) => angles(t));
      this.cosines = table.map((row) => Float32Array.from(row, Math.cos));
      this.sines = table.map((row) => Float32Array.from(row, Math.sin));
    }
  }

  /** Returns the C numbers of one row of a table. */
  row(name, index) {
    const C = this.config.n_embd;
    return this.weights[name].subarray(index * C, (index + 1) * C);
  }

  linear(name, x, rows) {
    return linear(this.weights[`${name}.weight`], this.weights[`${name}.bias`], x, rows);
  }

  /** Returns the normalised x; `name` is that of its gain and bias, if it has any. */
  norm(name, x) {
    const out = x.slice();
    const [gain, bias] = [this.weights[`${name}.weight`], this.weights[`${name}.bias`]];
    if (this.config.norm === 'layernorm') {
      const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
      for (let p = 0; p < x.length; p++) out[p] -= mean;
    }
    rmsNorm(out, 0, out.length, NORM_EPSILON[this.config.norm]);
    if (gain) for (let p = 0; p < x.length; p++) out[p] *= gain[p];
    if (bias) add(out, bias);
    return out;
  }

  /** Returns the logits that the output head makes of what leaves a block. */
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

  /** Rotates each pair of channels of n heads by the angles of position t. */
  turn(x, heads, t) {
    const D = this.config.head_size;
    const [cos, sin] = [this.cosines[t], this.sines[t]];
    for (let p = 0; p < heads * D; p += 2) {
      const [even, odd, j] = [x[p], x[p + 1], (p % D) >> 1];
      x[p] = even * cos[j] - odd * sin[j];
      x[p + 1] = even * sin[j] + odd * cos[j];
    }
  }
}

/** Reads a growing text, no character twice; what it has read can be looked at again. */
class Reader {
  constructor(model) {
    const { n_layer, block_size, n_embd } = model.config;
    const room = () => Array.from({ length: n_layer }, () => new Float32Array(block_size * n_embd));
    this.model = model;
    [this.queries, this.keys, this.values] = [room(), room(), room()]; // each (t, C) by layer
    this.ids = [];
  }

  get length() {
    return this.ids.length;
  }

  restart() {
    this.ids.length = 0;
  }

  /** Takes in an id. Returns the logits of what comes next, if they are wanted. */
  read(id, wanted = true) {
    this.ids.push(id);
    const x = this._stream(this.length - 1, () => {});
    return wanted ? this.model.logits(x) : null;
  }

  /** Returns all that is computed at position t, which was read before, by name. */
  look(t) {
    const notes = { blocks: this.keys.map(() => ({})) };
    const x = this._stream(t, (name, values, layer) => {
      const place = layer === undefined ? notes : notes.blocks[layer];
      place[name] = values.slice();
    });
    notes.norm = this.model.norm('norm', x);
    notes.logits = this.model.logits(x);
    return notes;
  }

  /** Returns what a head gives to each position up to t: its scores, and their softmax. */
  attention(layer, head, t) {
    const { n_embd: C, head_size: D } = this.model.config;
    const [queries, keys, start] = [this.queries[layer], this.keys[layer], head * D];
    const scores = products(keys, start, C, t + 1, queries, t * C + start, D);
    const scale = 1 / Math.sqrt(D);
    for (let s = 0; s <= t; s++) scores[s] *= scale;
    return { scores, weights: softmax(scores) };
  }

  /** Returns the rows of the table for the last 2, 3, … characters at t, as ngrams.py. */
  tableRows(t) {
    const { ngram_size, ngram_rows } = this.model.config;
    const symbol = (age) => (age <= t ? this.ids[t - age] + 2 : 1);
    const newestFirst = Array.from({ length: ngram_size }, (_, age) => symbol(age));
    const keys = this.model.weights[NGRAM_KEYS];
    return keys ? knownRows(newestFirst, keys) : hashedRows(newestFirst, ngram_rows);
  }

  /** Returns what leaves the last block at t; tells `note` of every step on the way. */
  _stream(t, note) {
    const { n_layer, embedding_skip } = this.model.config;
    const embedding = this._embed(t, note);
    const x = embedding.slice();
    note('embedding', embedding);
    for (let layer = 0; layer < n_layer; layer++) {
      if (embedding_skip && layer) add(x, embedding, this.model.weights.skips[layer]);
      note('input', x, layer);
      add(x, this._attend(x, layer, t, note));
      note('middle', x, layer);
      add(x, this._feedForward(x, layer, note));
      note('output', x, layer);
    }
    return x;
  }

  _embed(t, note) {
    const x = this.model.row('token_embedding.weight', this.ids[t]).slice();
    note('token', x);
    if (this.model.config.ngram_size > 1) {
      const rows = this.tableRows(t);
      note('tableRows', rows);
      for (const row of rows) add(x, this.model.row('ngram_embedding.weight', row));
    }
    const position = this.model.position(t);
    if (position) {
      note('position', position);
      add(x, position);
    }
    return x;
  }

  _attend(x, layer, t, note) {
    const { model } = this;
    const { n_embd: C, n_head: H, head_size: D, position, qk_norm } = model.config;
    const name = `blocks.${layer}`;
    const normalised = model.norm(`${name}.norm1`, x);
    note('norm1', normalised, layer);
    const qkv = model.linear(`${name}.attention.qkv`, normalised, 3 * C);
    if (position === 'rope') model.turn(qkv, 2 * H, t);
    if (qk_norm) for (let h = 0; h < 2 * H; h++) rmsNorm(qkv, h * D, D, QK_EPSILON);
    [this.queries, this.keys, this.values].forEach((kept, part) => {
      kept[layer].set(qkv.subarray(part * C, (part + 1) * C), t * C);
    });
    note('qkv', qkv, layer);
    const mixed = new Float32Array(C);
    const places = new Int32Array(t + 1);
    for (let h = 0; h < H; h++) {
      const { weights } = this.attention(layer, h, t);
      for (let s = 0; s <= t; s++) places[s] = s * C + h * D;
      mixed.set(mixture(this.values[layer], places, weights, D), h * D);
    }
    note('mixed', mixed, layer);
    const out = model.linear(`${name}.attention.proj`, mixed, C);
    note('attention', out, layer);
    return out;
  }

  _feedForward(x, layer, note) {
    const { model } = this;
    const { n_embd: C, hidden_size, is_gated } = model.config;
    const name = `blocks.${layer}`;
    const normalised = model.norm(`${name}.norm2`, x);
    note('norm2', normalised, layer);
    const rows = is_gated ? 2 * hidden_size : hidden_size;
    const expanded = model.linear(`${name}.feed_forward.expand`, normalised, rows);
    note('expanded', expanded, layer);
    const active = expanded.subarray(is_gated ? hidden_size : 0).map(model.activation);
    if (is_gated) for (let p = 0; p < hidden_size; p++) active[p] *= expanded[p];
    note('active', active, layer);
    // Most units of a relu sleep, and a third of the block's weights need not be looked at.
    const out = sparseProduct(model.contractions[layer], active, C);
    const bias = model.weights[`${name}.feed_forward.proj.bias`];
    if (bias) add(out, bias);
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
function countLess(ascending, number) {
  let [low, high] = [0, ascending.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ascending[middle] < number) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Returns the row of each n-gram by its hash, of a key of 64 bits. */
function hashedRows(newestFirst, n_rows) {
  let key = 0n;
  let power = 1n;
  const rows = newestFirst.map((symbol) => {
    key = BigInt.asIntN(64, key + BigInt(symbol) * power);
    power = BigInt.asUintN(64, power * 0x9e3779b1n);
    const hash = ((key ^ (key >> 17n)) * 0x85ebca6bn) & 0x7fffffffn;
    return Number(hash % BigInt(n_rows));
  });
  return rows.slice(1);
}
