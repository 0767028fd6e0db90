// The loss of a window of a text, and its gradients: a model of the kind of `mini` or of `base`, as
// model.js computes it, and the way back. The latter has neither n-gram table nor embedding skips.
//
// An operation returns [y, back]. back(dy) adds to the gradients of the weights that it used, and
// returns dx; dy is the derivative of the loss by y, and has its shape. T positions, C channels, H
// heads of D numbers, V characters. Matrices are in the memory of the kernel, row after row.

import { Kernel } from './kernel.js';
import {
  add, dot, GPT, matrix, NGRAM_KEYS, NORM_EPSILON, QK_EPSILON, Reader, rmsNorm, transposed,
  vectorsOf,
} from './model.js';

/** @typedef {[Float32Array, (dy: Float32Array) => Float32Array]} Operation - y and the way back */

export const TABLE = 'ngram_embedding.weight';
const SLICE = 64; // positions whose scores are computed at once, up to the last of them

/**
 * The options of a model, each with the values that are computed here; null: with any. The maker of
 * the page reads this table, too.
 * @type {Record<string, any[] | null>}
 */
const LEARNED_MODELS = {
  vocab_size: null,
  block_size: null,
  n_layer: null,
  n_head: null,
  n_embd: null,
  head_size: null,
  hidden_size: null,
  dropout: [0],
  bias: [false],
  norm: ['rmsnorm'],
  position: ['rope'],
  activation: ['relu2'],
  is_gated: [false],
  ngram_size: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
  ngram_rows: null,
  // What the length of a text decides stands among the options of training.
  ngram_dropout: null,
  embedding_skip: null,
  qk_norm: [true],
  tie_embeddings: [false],
};

/** Throws `not_learned` where an option is not in such a table, or has another value than there. */
export function requireLearned(options, table) {
  for (const option of new Set([...Object.keys(table), ...Object.keys(options)])) {
    const [values, value] = [table[option], options[option]];
    if (values === null || values?.includes(value)) continue;
    throw new Error('not_learned', { cause: { option, value } });
  }
}

/** The activation, ReLU², and its derivative. */
const LEARNED_ACTIVATION = {
  value: (x) => Math.max(x, 0) ** 2,
  slope: (x) => 2 * Math.max(x, 0),
};

/** Returns how many numbers the memory holds for a model: weights thrice, and what a window needs. */
function roomToLearn(config, sizes) {
  const { block_size: T, n_embd: C, hidden_size, n_head: H, n_layer, vocab_size: V } = config;
  const layer = T * (22 * C + 6 * hidden_size) + 2 * H * T * T;
  const optimizer = 6 * C * hidden_size + 3 * C * C * 9;
  return 3 * sizes + n_layer * layer + T * (8 * C + 4 * V) + optimizer + (1 << 16);
}

export class Learner {
  /**
   * config: as of GPT. weights: by name; all but the table and its keys are copied to the kernel's
   * memory, one after another in `flat`, their gradients in `flatGradients`. Throws `not_learned`.
   */
  constructor(config, weights, module) {
    requireLearned(config, LEARNED_MODELS);
    const names = Object.keys(weights).filter((name) => name !== TABLE && name !== NGRAM_KEYS);
    const sizes = names.reduce((sum, name) => sum + weights[name].length, 0);
    this.config = config;
    this.kernel = new Kernel(module, roomToLearn(config, sizes));
    this.flat = this.kernel.take(sizes);
    this.flatGradients = this.kernel.take(sizes);
    this.weights = { ...weights };
    this.gradients = {};
    this.turned = {};
    let start = 0;
    for (const name of names) {
      const end = start + weights[name].length;
      this.weights[name] = this.flat.subarray(start, end);
      this.weights[name].set(weights[name]);
      this.gradients[name] = this.flatGradients.subarray(start, end);
      if (this.isMatrix(name)) this.turned[name] = this.kernel.take(end - start);
      start = end;
    }
    this.table = new TableGradients(config);
    this.model = new GPT(config, { ...this.weights });
  }

  /** Returns whether a weight is that of a linear layer. */
  isMatrix(name) {
    return /(qkv|proj|expand|head)\.weight$/.test(name);
  }

  /** Forgets all gradients, and turns the weights as they are now for the products with them. */
  begin() {
    this.flatGradients.fill(0);
    this.table.clear();
    for (const [name, turned] of Object.entries(this.turned)) {
      transposed(this.weights[name], this.rowsOf(name), turned);
    }
  }

  /** Returns the gradients as they are sent to another worker. */
  gradientsToShare() {
    const { rows, vectors, C } = this.table;
    return {
      dense: this.flatGradients.slice(),
      rows: Int32Array.from(rows),
      vectors: vectors.slice(0, rows.length * C),
    };
  }

  /** Takes the sum of what several workers have sent, in their order, for the gradients. */
  takeGradients(all) {
    this.flatGradients.fill(0);
    this.table.clear();
    for (const { dense, rows, vectors } of all) {
      add(this.flatGradients, dense);
      rows.forEach((row, place) => this.table.add(row, rowOf(vectors, place, this.table.C)));
    }
  }

  rowsOf(name) {
    const { n_embd, hidden_size, vocab_size } = this.config;
    if (name.includes('qkv')) return 3 * n_embd;
    if (name.includes('expand')) return hidden_size;
    return name.startsWith('head') ? vocab_size : n_embd;
  }

  /**
   * Returns the sum of the losses of a window, (T + 1) ids, in nats; if `share` is given, adds the
   * gradients of that sum times it. Options: logit_scale, and ngram_dropout with `random`, which
   * returns numbers in [0, 1).
   */
  window(ids, share = 0, options = {}) {
    return this.kernel.borrow(() => {
      const [logits, back] = this.forward(ids.slice(0, -1), options);
      const loss = crossEntropy(logits, ids.slice(1), options.logit_scale ?? 1, share);
      if (share) back(logits);
      return loss;
    });
  }

  /**
   * ids, (T,) -> the logits of what follows each, (T, V), of the head alone.
   * @returns {[Float32Array, (dLogits: Float32Array) => void]}
   */
  forward(ids, options) {
    const { n_layer, embedding_skip } = this.config;
    const [embedding, fromEmbedding] = this.embed(ids, options);
    const steps = [];
    let x = embedding;
    for (let layer = 0; layer < n_layer; layer++) {
      const name = `blocks.${layer}`;
      if (embedding_skip && layer > 0) add((x = this.copy(x)), embedding, this.weights.skips[layer]);
      const [middle, fromAttention] = this.residual(x, (y) => this.attend(y, name));
      const [end, fromThought] = this.residual(middle, (y) => this.think(y, name));
      steps.push({ layer, fromAttention, fromThought });
      x = end;
    }
    const [normal, fromNorm] = this.norm(x);
    const [logits, fromHead] = this.linear(normal, 'head');
    const back = (dLogits) => {
      const dEmbedding = this.kernel.take(embedding.length).fill(0);
      const dx = this.copy(embedding);
      this.kernel.borrow(() => dx.set(fromNorm(fromHead(dLogits))));
      for (const { layer, fromAttention, fromThought } of steps.reverse()) {
        // Nothing of a block's way back is used again but its dx.
        this.kernel.borrow(() => dx.set(fromAttention(fromThought(dx))));
        if (!embedding_skip || layer === 0) continue;
        this.gradients.skips[layer] += dot(dx, 0, embedding, 0, dx.length);
        add(dEmbedding, dx, this.weights.skips[layer]);
      }
      add(dEmbedding, dx);
      fromEmbedding(dEmbedding);
    };
    return [logits, back];
  }

  copy(x) {
    const y = this.kernel.take(x.length);
    y.set(x);
    return y;
  }

  /**
   * x + f(norm(x))
   * @returns {Operation}
   */
  residual(x, f) {
    const [normal, fromNorm] = this.norm(x);
    const [y, fromF] = f(normal);
    add(y, x);
    const back = (dy) => {
      const dx = fromNorm(fromF(dy));
      add(dx, dy);
      return dx;
    };
    return [y, back];
  }

  /**
   * x · Wᵀ: (n, columns of W) -> (n, rows of W).
   * @returns {Operation}
   */
  linear(x, name) {
    const weight = this.weights[`${name}.weight`];
    const rows = this.rowsOf(`${name}.weight`);
    const columns = weight.length / rows;
    const n = x.length / columns;
    const inputs = matrix(x, 0, n, columns);
    const y = this.kernel.take(n * rows);
    const turned = matrix(this.turned[`${name}.weight`], 0, columns, rows);
    this.kernel.multiply(inputs, turned, matrix(y, 0, n, rows), columns, rows);
    const back = (dy) => {
      const across = matrix(dy, 0, rows, 1, rows); // dyᵀ
      const dWeight = this.kernel.take(weight.length);
      this.kernel.multiply(across, inputs, matrix(dWeight, 0, rows, columns), n, columns);
      add(this.gradients[`${name}.weight`], dWeight);
      const dx = this.kernel.take(x.length);
      const along = matrix(dy, 0, n, rows);
      this.kernel.multiply(along, matrix(weight, 0, rows, columns), matrix(dx, 0, n, columns), rows, columns);
      return dx;
    };
    return [y, back];
  }

  /**
   * RMSNorm of each vector.
   * @returns {Operation}
   */
  norm(x) {
    const { n_embd: C } = this.config;
    const y = this.copy(x);
    const scales = vectorsOf(y, C).map((one) => rmsNorm(one, 0, C, NORM_EPSILON.rmsnorm));
    const back = (dy) => {
      const d = this.copy(dy);
      scales.forEach((scale, t) => normaliseBack(d, y, t * C, C, scale));
      return d;
    };
    return [y, back];
  }

  /** @returns {Operation} */
  attend(x, name) {
    const [all, fromAll] = this.linear(x, `${name}.attention.qkv`);
    const [qkv, fromTurned] = this.turnHeads(all);
    const [mixed, fromMixed] = this.mix(qkv);
    const [y, fromOut] = this.linear(mixed, `${name}.attention.proj`);
    return [y, (dy) => fromAll(fromTurned(fromMixed(fromOut(dy))))];
  }

  /**
   * Turns queries and keys by their positions and normalises them: in place.
   * @returns {Operation}
   */
  turnHeads(qkv) {
    const { n_embd: C, n_head: H, head_size: D } = this.config;
    const rows = vectorsOf(qkv, 3 * C);
    const heads = Array.from({ length: 2 * H }, (_, h) => h * D);
    rows.forEach((row, t) => this.model.turn(row, 2 * H, t));
    const scales = rows.map((row) => heads.map((h) => rmsNorm(row, h, D, QK_EPSILON)));
    const back = (d) => {
      vectorsOf(d, 3 * C).forEach((one, t) => {
        heads.forEach((h, i) => normaliseBack(one, rows[t], h, D, scales[t][i]));
        this.model.turn(one, 2 * H, t, -1);
      });
      return d;
    };
    return [qkv, back];
  }

  /**
   * What the heads mix of the values, (T, 3C) -> (T, C): softmax(q · kᵀ / √D) · v, causally.
   * @returns {Operation}
   */
  mix(qkv) {
    const { n_embd: C, n_head: H } = this.config;
    const T = qkv.length / (3 * C);
    const mixed = this.kernel.take(T * C);
    const weights = Array.from({ length: H }, () => this.kernel.take(T * T));
    for (let h = 0; h < H; h++) this.kernel.borrow(() => this.mixHead(qkv, h, weights[h], mixed));
    const back = (dMixed) => {
      const d = this.kernel.take(qkv.length);
      for (let h = 0; h < H; h++) {
        this.kernel.borrow(() => this.mixHeadBack(qkv, h, weights[h], dMixed, d));
      }
      return d;
    };
    return [mixed, back];
  }

  /** Returns part 0, 1, 2 of a head, its queries, keys, values, from position t on: (rows, D). */
  part(qkv, head, part, t = 0, rows = 0) {
    const { n_embd: C, head_size: D } = this.config;
    return matrix(qkv, t * 3 * C + part * C + head * D, rows, 3 * C);
  }

  /** Returns a part of a head turned, (D, T), T in a row. */
  turnedPart(qkv, head, part) {
    const { n_embd: C, head_size: D } = this.config;
    const T = qkv.length / (3 * C);
    const { start } = this.part(qkv, head, part);
    const turned = this.kernel.take(T * D);
    for (let t = 0; t < T; t++) {
      for (let p = 0; p < D; p++) turned[p * T + t] = qkv[start + t * 3 * C + p];
    }
    return matrix(turned, 0, D, T);
  }

  mixHead(qkv, head, weights, mixed) {
    const { n_embd: C, head_size: D } = this.config;
    const T = mixed.length / C;
    const keys = this.turnedPart(qkv, head, 1);
    for (let t = 0; t < T; t += SLICE) {
      const end = Math.min(t + SLICE, T);
      const slice = matrix(weights, t * T, end - t, T);
      this.kernel.multiply(this.part(qkv, head, 0, t), keys, slice, D, end);
      for (let row = t; row < end; row++) {
        causalSoftmax(weights.subarray(row * T, row * T + end), row + 1, 1 / Math.sqrt(D));
      }
      const out = matrix(mixed, t * C + head * D, end - t, C);
      this.kernel.multiply(slice, this.part(qkv, head, 2), out, end, D);
    }
  }

  mixHeadBack(qkv, head, weights, dMixed, d) {
    const { n_embd: C, head_size: D } = this.config;
    const T = dMixed.length / C;
    const values = this.turnedPart(qkv, head, 2);
    const dScores = this.kernel.take(T * T);
    const dOut = (t) => matrix(dMixed, t * C + head * D, 0, C);
    for (let t = 0; t < T; t += SLICE) {
      const end = Math.min(t + SLICE, T);
      const slice = matrix(dScores, t * T, end - t, T);
      this.kernel.multiply(dOut(t), values, slice, D, end);
      for (let row = t; row < end; row++) {
        softmaxBack(dScores, weights, row * T, end, 1 / Math.sqrt(D));
      }
      const dQueries = this.part(d, head, 0, t, end - t);
      this.kernel.multiply(slice, this.part(qkv, head, 1), dQueries, end, D);
    }
    for (let s = 0; s < T; s += SLICE) {
      const rows = Math.min(SLICE, T - s);
      // A key and a value at s serve the positions from s on.
      const across = (numbers) => matrix(numbers, s * T + s, rows, 1, T);
      const dKeys = this.part(d, head, 1, s, rows);
      this.kernel.multiply(across(dScores), this.part(qkv, head, 0, s), dKeys, T - s, D);
      this.kernel.multiply(across(weights), dOut(s), this.part(d, head, 2, s, rows), T - s, D);
    }
  }

  /**
   * The feed-forward sublayer.
   * @returns {Operation}
   */
  think(x, name) {
    const [wide, fromWide] = this.linear(x, `${name}.feed_forward.expand`);
    const active = this.kernel.take(wide.length);
    for (let i = 0; i < wide.length; i++) active[i] = LEARNED_ACTIVATION.value(wide[i]);
    const [y, fromOut] = this.linear(active, `${name}.feed_forward.proj`);
    const back = (dy) => {
      const d = fromOut(dy);
      for (let i = 0; i < d.length; i++) d[i] *= LEARNED_ACTIVATION.slope(wide[i]);
      return fromWide(d);
    };
    return [y, back];
  }

  /**
   * The vectors of ids and of the n-grams that end there: (T,) -> (T, C).
   * @returns {[Float32Array, (dy: Float32Array) => void]}
   */
  embed(ids, { ngram_dropout: dropped = 0, random = null }) {
    const { n_embd: C, ngram_size } = this.config;
    const y = this.kernel.take(ids.length * C);
    const reader = { ids, model: this.model };
    const notes = vectorsOf(y, C).map((one, t) => {
      one.set(this.model.row('token_embedding.weight', ids[t]));
      const rows = ngram_size > 1 ? Reader.prototype.tableRows.call(reader, t) : [];
      const kept = dropped ? rows.filter(() => random() >= dropped) : rows;
      for (const row of kept) add(one, this.model.row(TABLE, row), 1 / (1 - dropped));
      return kept;
    });
    const back = (dy) => {
      vectorsOf(dy, C).forEach((d, t) => {
        add(rowOf(this.gradients['token_embedding.weight'], ids[t], C), d);
        for (const row of notes[t]) this.table.add(row, d, 1 / (1 - dropped));
      });
    };
    return [y, back];
  }
}

export const rowOf = (numbers, row, C) => numbers.subarray(row * C, (row + 1) * C);

/** The gradients of those rows of the table that were read: `rows`, and as many vectors. */
class TableGradients {
  constructor({ ngram_rows, n_embd }) {
    this.C = n_embd;
    this.places = new Int32Array(ngram_rows).fill(-1);
    this.rows = [];
    this.vectors = new Float32Array(0);
  }

  clear() {
    for (const row of this.rows) this.places[row] = -1;
    this.rows = [];
  }

  add(row, d, scale = 1) {
    const { C } = this;
    let place = this.places[row];
    if (place < 0) {
      place = this.places[row] = this.rows.push(row) - 1;
      if (this.vectors.length < this.rows.length * C) {
        const larger = new Float32Array(Math.max(2 * this.vectors.length, 1024 * C));
        larger.set(this.vectors);
        this.vectors = larger;
      }
      this.vectors.fill(0, place * C, (place + 1) * C);
    }
    add(rowOf(this.vectors, place, C), d, scale);
  }
}

/** d = scale · (d − y · mean of d · y), of n numbers from a place on. */
function normaliseBack(d, y, start, n, scale) {
  const mean = dot(d, start, y, start, n) / n;
  for (let p = start; p < start + n; p++) d[p] = scale * (d[p] - y[p] * mean);
}

/** Makes weights of the first n scores times a scale; what comes after them has none. */
function causalSoftmax(scores, n, scale) {
  let highest = -Infinity;
  for (let p = 0; p < n; p++) if (scores[p] > highest) highest = scores[p];
  let sum = 0;
  for (let p = 0; p < n; p++) sum += scores[p] = Math.exp(scale * (scores[p] - highest));
  for (let p = 0; p < n; p++) scores[p] /= sum;
  scores.fill(0, n);
}

/** d = scale · weights · (d − mean of d with these weights), of n numbers from a place on. */
function softmaxBack(d, weights, start, n, scale) {
  const mean = dot(weights, start, d, start, n);
  for (let p = start; p < start + n; p++) d[p] = scale * weights[p] * (d[p] - mean);
}

/**
 * Returns the sum of −ln p(target), p being the softmax of the logits, (T, V), times a scale. In their
 * place it leaves the derivatives of that sum by them, times `share`.
 */
function crossEntropy(logits, targets, logitScale, share) {
  const V = logits.length / targets.length;
  let loss = 0;
  for (let t = 0; t < targets.length; t++) {
    const row = rowOf(logits, t, V);
    causalSoftmax(row, V, logitScale);
    loss -= Math.log(Math.max(row[targets[t]], 1e-38));
    row[targets[t]] -= 1;
    for (let v = 0; v < V; v++) row[v] *= share * logitScale;
  }
  return loss;
}
