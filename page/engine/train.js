// Training as train.py does it: the n-gram vocabulary, first weights, windows, three optimizers.

import { requireLearned, rowOf, TABLE } from './gradients.js';
import { add, dot, matrix, NGRAM_KEYS, NO_KEY, transposed } from './model.js';
import { Generator } from './random.js';

const [INITIAL, BATCHES] = [0, 1]; // purposes of those names in seeds.py

export const LEAST_STEPS = 20;
const EVALUATIONS = 8; // of a lesson at least, on the part of the text that is not learned from
const LEAST_INTERVAL = 5; // steps between them

/**
 * The options of training, each with the values that are heeded here; null: any. The maker of the
 * page reads this table, too.
 * @type {Record<string, any[] | null>}
 */
const LEARNED_OPTIONS = {
  max_iters: null,
  batch_size: null,
  gradient_accumulation_steps: [1],
  optimizer: ['muon', 'adamw'],
  learning_rate: null,
  muon_learning_rate: null,
  ngram_learning_rate: null,
  weight_decay: null,
  beta1: null,
  beta2: null,
  grad_clip: null,
  warmup_iters: null,
  look_ahead: [0],
  logit_scale: null,
  ngram_dropout: null,
  decay_fraction: null,
  patience: [0],
  seed: null,
  preset: ['mini'],
  compile: [false],
  // What a run reports, and how many threads it has: the page has its own ways, and learns the same.
  eval_interval: null,
  log_interval: null,
  threads: null,
  tensorboard: null,
};

/**
 * Returns the options of a lesson of so many steps, as plan.py: the more often the text is read, the
 * more n-grams are dropped. The loss on what is not read is measured about once a reading, or more
 * often, since reading after reading a text is learned by heart. letters: of the text. teaching: of the
 * page's facts; train: of them, or those with which the page's own model goes on.
 */
export function optionsFor(letters, config, steps, teaching, train = teaching.train) {
  const max_iters = Math.max(LEAST_STEPS, steps);
  const stepsOfReading = letters / (config.block_size * train.batch_size);
  const readings = max_iters / stepsOfReading;
  const eval_interval = Math.ceil(Math.max(LEAST_INTERVAL, Math.min(max_iters / EVALUATIONS, stepsOfReading)));
  const { most, less } = teaching.dropout;
  const dropped = config.ngram_size > 1 ? Math.max(0, most - less / readings) : 0;
  const rounded = (x) => Number(x.toFixed(2));
  const logit_scale = rounded(1 + teaching.scale * dropped);
  return { ...train, max_iters, eval_interval, ngram_dropout: rounded(dropped), logit_scale };
}

/** Returns the keys of the most frequent n-grams of a text, ascending, as ngrams.py. */
function ngramVocabulary(ids, size, rows) {
  const sums = Int32Array.from(ids, (id) => id + 2);
  const [keys, counts] = [[], []];
  let power = 1;
  for (let n = 2; n <= size; n++) {
    power = Math.imul(power, 0x9e3779b1);
    for (let i = ids.length - 1; i >= n - 1; i--) {
      sums[i] += Math.imul(ids[i - n + 1] + 2, power);
    }
    const sorted = sums.slice(n - 1).sort();
    for (let i = 0, next; i < sorted.length; i = next) {
      for (next = i + 1; sorted[next] === sorted[i]; ) next++;
      if (next - i === 1) continue; // it would be learned by heart
      keys.push(sorted[i]);
      counts.push(next - i);
    }
  }
  // The most frequent first, and of equally frequent ones the one that was found first.
  const order = Float64Array.from(counts, (count, i) => i - count * 2 ** 26).sort();
  const place = (rank) => rank + 2 ** 26 * Math.ceil(-rank / 2 ** 26);
  const most = Int32Array.from(order.subarray(0, rows - 1), (rank) => keys[place(rank)]).sort();
  const padded = new Int32Array(rows).fill(NO_KEY);
  padded.set(most);
  return padded;
}

/** Returns how many numbers each weight of a model has, by name. */
export function weightSizes(config) {
  const { vocab_size: V, n_embd: C, hidden_size, n_layer, ngram_rows } = config;
  const sizes = { 'token_embedding.weight': V * C };
  if (config.ngram_size > 1) Object.assign(sizes, { [TABLE]: ngram_rows * C, [NGRAM_KEYS]: ngram_rows });
  if (config.embedding_skip) sizes.skips = n_layer;
  for (let layer = 0; layer < n_layer; layer++) {
    sizes[`blocks.${layer}.attention.qkv.weight`] = 3 * C * C;
    sizes[`blocks.${layer}.attention.proj.weight`] = C * C;
    sizes[`blocks.${layer}.feed_forward.expand.weight`] = hidden_size * C;
    sizes[`blocks.${layer}.feed_forward.proj.weight`] = C * hidden_size;
  }
  sizes['head.weight'] = V * C;
  return sizes;
}

/** Returns the weights of a model that knows nothing, by name. */
export function newWeights(config, ids, seed) {
  const generator = new Generator(seed, [INITIAL]);
  const normal = (n, deviation) =>
    Float32Array.from({ length: n }, () => {
      const radius = Math.sqrt(-2 * Math.log(1 - generator.random()));
      return deviation * radius * Math.cos(2 * Math.PI * generator.random());
    });
  const first = (name, size) => {
    if (name === NGRAM_KEYS) return ngramVocabulary(ids, config.ngram_size, config.ngram_rows);
    if (name.startsWith('token')) return normal(size, 0.02);
    return /(qkv|expand)\.weight$/.test(name) ? normal(size, config.n_embd ** -0.5) : new Float32Array(size);
  };
  const sizes = Object.entries(weightSizes(config));
  return Object.fromEntries(sizes.map(([name, size]) => [name, first(name, size)]));
}

/** Yields where each window of T + 1 among n > T ids begins: all of them, in another order each time. */
export function* windowStarts(n, T, seed) {
  if (n <= T) throw new Error(`${n} letters are no window of ${T + 1}`);
  for (let reading = 0; ; reading++) {
    const generator = new Generator(seed, [BATCHES, reading]);
    const below = (most) => Math.floor(generator.random() * most);
    const places = Array.from({ length: Math.floor((n - 1) / T) }, (_, i) => i * T);
    for (let i = places.length - 1; i > 0; i--) {
      const j = below(i + 1);
      [places[i], places[j]] = [places[j], places[i]];
    }
    const shift = below(T);
    for (const place of places) yield (place + shift) % (n - T);
  }
}

/** Changes the weights of a learner by their gradients. What it remembers is in `memory`. */
export class Optimizer {
  /**
   * options: as of TrainConfig; memory: of an optimizer that was stopped, to go on with. Throws
   * `not_learned`.
   */
  constructor(learner, options, memory = null) {
    requireLearned(options, LEARNED_OPTIONS);
    const zeros = () => new Float32Array(learner.flat.length);
    const sums = new Float32Array(learner.config.ngram_rows);
    this.learner = learner;
    this.options = options;
    this.memory = memory ?? { step: 0, moments: zeros(), squares: zeros(), sums };
  }

  /** The factor of all learning rates: up, level, down to zero. */
  rate() {
    const { max_iters, warmup_iters, decay_fraction } = this.options;
    const { step } = this.memory;
    const down = decay_fraction ? (max_iters - step) / (decay_fraction * max_iters) : 1;
    return Math.min(1, (step + 1) / (warmup_iters + 1), down);
  }

  /** One step, by the gradients that the learner holds. Throws `not_finite` where they are not. */
  step() {
    const { learner, options } = this;
    const { flatGradients: all } = learner;
    const factor = this.rate();
    const norm = Math.sqrt(dot(all, 0, all, 0, all.length));
    if (!Number.isFinite(norm)) throw new Error('not_finite');
    const clip = Math.min(1, (options.grad_clip || Infinity) / (norm + 1e-6)); // 0 means none
    for (let i = 0; i < all.length; i++) all[i] *= clip;
    this.memory.step++;
    let start = 0;
    for (const [name, gradient] of Object.entries(learner.gradients)) {
      const end = start + gradient.length;
      const [m, v] = [this.memory.moments, this.memory.squares].map((x) => x.subarray(start, end));
      const w = learner.weights[name];
      const isMatrix = learner.isMatrix(name);
      if (options.optimizer === 'muon' && isMatrix && name.startsWith('blocks.')) {
        this.muon(w, gradient, m, learner.rowsOf(name), factor * options.muon_learning_rate);
      } else {
        const decay = isMatrix || name.includes('embedding') ? options.weight_decay : 0;
        this.adamw(w, gradient, m, v, factor * options.learning_rate, decay);
      }
      start = end;
    }
    this.adagrad(factor * options.ngram_learning_rate);
  }

  /** AdamW (Loshchilov & Hutter 2019). */
  adamw(w, g, m, v, rate, decay) {
    const { beta1, beta2 } = this.options;
    const { step } = this.memory;
    const [m1, v1] = [1 - beta1 ** step, 1 - beta2 ** step];
    for (let i = 0; i < w.length; i++) {
      m[i] += (1 - beta1) * (g[i] - m[i]);
      v[i] += (1 - beta2) * (g[i] * g[i] - v[i]);
      w[i] -= rate * (decay * w[i] + m[i] / m1 / (Math.sqrt(v[i] / v1) + 1e-8));
    }
  }

  /** Muon (Jordan and others 2024), of a matrix of so many rows. */
  muon(w, g, m, rows, rate) {
    const columns = w.length / rows;
    this.learner.kernel.borrow(() => {
      const ahead = this.learner.kernel.take(w.length);
      for (let i = 0; i < w.length; i++) {
        m[i] += 0.05 * (g[i] - m[i]);
        ahead[i] = 0.95 * m[i] + 0.05 * g[i];
      }
      const direction = orthogonalised(this.learner.kernel, ahead, rows);
      const far = rate * Math.sqrt(Math.max(1, rows / columns));
      const kept = 1 - rate * this.options.weight_decay;
      for (let i = 0; i < w.length; i++) w[i] = kept * w[i] - far * direction[i];
    });
  }

  /** Adagrad with one sum for each row of the table. */
  adagrad(rate) {
    const { table, weights, config } = this.learner;
    table.rows.forEach((row, place) => {
      const g = rowOf(table.vectors, place, table.C);
      this.memory.sums[row] += dot(g, 0, g, 0, table.C) / config.n_embd;
      add(rowOf(weights[TABLE], row, table.C), g, -rate / Math.sqrt(this.memory.sums[row] + 1e-20));
    });
  }
}

/** Brings the singular values s of a matrix near to 1: five times 3.44 s − 4.78 s³ + 2.03 s⁵. */
function orthogonalised(kernel, numbers, rows) {
  const columns = numbers.length / rows;
  const room = () => kernel.take(numbers.length);
  if (rows > columns) {
    const across = transposed(numbers, rows, room());
    return transposed(orthogonalised(kernel, across, columns), columns, room());
  }
  const norm = Math.sqrt(dot(numbers, 0, numbers, 0, numbers.length)) + 1e-7;
  const [x, change, across] = [room(), room(), room()];
  const [square, fourth] = [kernel.take(rows * rows), kernel.take(rows * rows)];
  const whole = (y, n) => matrix(y, 0, rows, n);
  for (let i = 0; i < x.length; i++) x[i] = numbers[i] / norm;
  for (let time = 0; time < 5; time++) {
    const facing = matrix(transposed(x, rows, across), 0, columns, rows);
    kernel.multiply(whole(x, columns), facing, whole(square, rows), columns, rows);
    kernel.multiply(whole(square, rows), whole(square, rows), whole(fourth, rows), rows, rows);
    for (let i = 0; i < square.length; i++) square[i] = 2.0315 * fourth[i] - 4.775 * square[i];
    kernel.multiply(whole(square, rows), whole(x, columns), whole(change, columns), rows, columns);
    for (let i = 0; i < x.length; i++) x[i] = 3.4445 * x[i] + change[i];
  }
  return x;
}
