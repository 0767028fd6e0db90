import assert from 'node:assert/strict';
import { test } from 'node:test';

import { isLesson } from '../engine/lesson.js';
import { newWeights, weightSizes } from '../engine/train.js';
import { cases } from './given.mjs';

const mini = { ...cases.configs.mini, vocab_size: 3 };
const base = { ...cases.configs.base, vocab_size: 3 }; // without a table, as the model that the page carries
const train = { max_iters: 100, batch_size: 8, learning_rate: 0.01, optimizer: 'muon', seed: 1605, compile: false };
const teaching = { models: [cases.configs.mini], train };

/** Returns a lesson as the store keeps it, changed by a function. */
function kept(change = () => {}, config = mini) {
  const ids = Uint8Array.from({ length: 60 }, (_, i) => (i * i) % 3);
  const weights = newWeights(config, ids, 1);
  const dense = Object.entries(weightSizes(config)).filter(([name]) => !name.startsWith('ngram'));
  const zeros = () => new Float32Array(dense.reduce((sum, [, size]) => sum + size, 0));
  const state = {
    text: { name: 'cartas', characters: ['\n', 'a', 'b'], train: ids.subarray(0, 54), val: ids.subarray(54) },
    plan: { config: { ...config }, options: { ...train, ngram_dropout: 0.2 }, kernel: null, count: 2, asked: 60, begins: 'new', loss: 1.1 },
    points: [[5, 3.2, null], [9, 2.9, 3.1]],
    writings: [{ seconds: 0, loss: 3.4, letters: 'ab', isPassing: false }],
    seconds: 9.5,
    loss: null,
    memory: { step: 9, moments: zeros(), squares: zeros(), sums: new Float32Array(config.ngram_rows) },
    weights,
  };
  change(state);
  return state;
}

test('a lesson that was kept is one', () => {
  for (const config of [mini, base]) assert.ok(isLesson(kept(() => {}, config), teaching));
});

const FAULTS = {
  'another set of letters': (state) => (state.text = { ...state.text, characters: ['a', 'b'] }),
  'letters that are none': (state) => (state.text.characters = [1, 2, 3]),
  'ids without a letter': (state) => (state.text.val = Uint8Array.of(1, 3)),
  'no text': (state) => (state.text = null),
  'no plan': (state) => (state.plan = null),
  'an empty plan': (state) => (state.plan = { config: {}, options: {} }),
  'a plan without figures': (state) => (state.plan.options.max_iters = null),
  'a plan with a figure that is none': (state) => (state.plan.options.learning_rate = NaN),
  'a window longer than the text': (state) => (state.plan.config.block_size = 54),
  'a model of another width': (state) => (state.plan.config.n_embd = 32),
  'a model of very many blocks': (state) => (state.plan.config.n_layer = 1e9),
  'heads that do not fill the width': (state) => (state.plan.config.n_head = 3),
  'no number of workers': (state) => (state.plan.count = 0),
  'no time': (state) => (state.plan.asked = null),
  'no word of its beginning': (state) => delete state.plan.begins,
  'null seconds': (state) => (state.seconds = null),
  'no points': (state) => (state.points = null),
  'a point without a loss': (state) => state.points.push([9, null, null]),
  'a point that is none': (state) => state.points.push(null),
  'a writing that is none': (state) => state.writings.push(null),
  'a writing without a loss': (state) => (state.writings[0].loss = null),
  'a writing without letters': (state) => delete state.writings[0].letters,
  'no step': (state) => (state.memory.step = 0),
  'no memory': (state) => (state.memory = null),
  'moments of another model': (state) => (state.memory.moments = new Float32Array(5)),
  'no weights': (state) => delete state.weights,
  'a weight less': (state) => delete state.weights.skips,
  'a weight of another kind': (state) => (state.weights.skips = [0, 0]),
  'a weight that is no number': (state) => (state.weights.skips[0] = NaN),
};

for (const [fault, change] of Object.entries(FAULTS)) {
  test(`what was kept with ${fault} is no lesson`, () => {
    assert.ok(!isLesson(kept(change), teaching));
  });
}

test('nothing is no lesson', () => {
  for (const state of [null, undefined, {}, 5]) assert.ok(!isLesson(state, teaching));
});
