// A worker reads a text, tries how fast this computer is, or trains: then it takes its windows of each
// batch, and shares its gradients with the others.
//
// All of them have the same weights, and make the same step with the same sum. The first one tells
// the page how far it is, what it writes, and, at the end, the weights.

import { requireAgreement } from './agreement.js';
import { breather } from './breather.js';
import { Learner } from './gradients.js';
import { GPT } from './model.js';
import { Generator } from './random.js';
import { SAMPLING_DEFAULTS } from './sampler.js';
import { readSource } from './text.js';
import { newWeights, Optimizer, windowStarts } from './train.js';
import { writtenAfter } from './writer.js';

const DROPOUT = 2; // purpose of that name in seeds.py
const SAYS_EVERY = 200; // ms
const WRITES_EVERY = 5000; // ms
const KEPT_EVERY = 8000; // ms
const WRITTEN = 160; // letters
const EXAMINED_LETTERS = 20000; // of the part that is not learned from, to measure the loss

/** Lets a worker answer the page; for a Worker whose script is that of the engine and this call. */
export function serveTraining() {
  const run = { stopped: false, planned: null };
  const reply = async (data, ports) => {
    if (data.stop) run.stopped = true;
    else if (data.planned) run.planned = data.planned;
    else if (data.trial) self.postMessage({ trial: secondsOfWindow(data) });
    else if (data.measure) self.postMessage({ loss: measuredLoss(data) });
    else if ('read' in data) self.postMessage(await readSource(data.read, data.encoding, data.rules));
    else await trainTogether(data, ports, run);
  };
  self.onmessage = ({ data, ports }) => {
    reply(data, ports).catch(({ message, cause }) => self.postMessage({ error: message, cause }));
  };
}

const moduleOf = (bytes) => bytes && new WebAssembly.Module(bytes);

/** Returns how long a window takes, the best of three. */
function secondsOfWindow({ config, kernel }) {
  const ids = Int32Array.from({ length: 2 * config.block_size }, (_, i) => (i * i) % config.vocab_size);
  const learner = new Learner(config, newWeights(config, ids, 0), moduleOf(kernel));
  learner.begin();
  const times = [1, 2, 3].map(() => {
    const since = performance.now();
    learner.window(ids.subarray(0, config.block_size + 1), 1);
    return performance.now() - since;
  });
  return Math.min(...times) / 1000;
}

function measuredLoss({ config, weights, kernel, val }) {
  return unreadLoss(learnerOf(config, weights, kernel), val);
}

/** Returns a learner, once one of its kind has agreed with the model that writes. */
function learnerOf(config, weights, kernel) {
  const module = moduleOf(kernel);
  requireAgreement(config, module);
  return new Learner(config, weights, module);
}

/** Returns the loss on the part of a text that is not learned from. */
const unreadLoss = (learner, val) => meanLoss(learner, val.subarray(0, EXAMINED_LETTERS + 1));

/** Returns a function to await: the next message of each port, in their order. */
function listener(ports) {
  const queues = ports.map(() => []);
  /** @type {(value?: any) => void} */
  let wake = () => {};
  ports.forEach((port, i) => {
    port.onmessage = ({ data }) => {
      queues[i].push(data);
      wake();
    };
  });
  return async () => {
    while (queues.some((queue) => !queue.length)) await new Promise((resolve) => (wake = resolve));
    return queues.map((queue) => queue.shift());
  };
}

/**
 * Trains until the last step, or until it is stopped. rank: which of `count` workers this is; ports:
 * to the others, by rank. weights may be null: those of a new model are made here.
 */
async function trainTogether(given, ports, run) {
  const { config, options, train, val, rank, count } = given;
  const weights = given.weights ?? newWeights(config, train, options.seed);
  const learner = learnerOf(config, weights, given.kernel);
  const optimizer = new Optimizer(learner, options, given.memory);
  const { memory } = optimizer;
  const { block_size: T } = config;
  const starts = windowStarts(train.length, T, options.seed);
  for (let skipped = 0; skipped < memory.step * options.batch_size; skipped++) starts.next();
  const others = listener(ports);
  const share = 1 / (options.batch_size * T);
  const breath = breather();
  const begun = performance.now() - (Date.now() - given.since);
  const told = { said: 0, written: begun, kept: begun };
  const write = async () => self.postMessage({ text: await textOf(learner, given.prompt) });
  if (rank === 0 && memory.step === 0) await write();
  let last = memory.step >= options.max_iters;
  while (!last) {
    const random = new Generator(options.seed, [DROPOUT, memory.step, rank]);
    const dropout = { ...options, random: () => random.random() };
    learner.begin();
    let loss = 0;
    for (let b = 0; b < options.batch_size; b++) {
      const start = starts.next().value;
      if (b % count === rank) loss += learner.window(train.subarray(start, start + T + 1), share, dropout);
    }
    const mine = { ...learner.gradientsToShare(), loss, last: run.stopped, planned: run.planned };
    for (const port of ports) port.postMessage(mine);
    const all = await others();
    all.splice(rank, 0, mine);
    learner.takeGradients(all);
    Object.assign(options, all[0].planned); // the page plans by the pace; all follow the first one
    optimizer.step();
    last = all[0].last || memory.step >= options.max_iters;
    if (rank > 0) continue;
    const now = performance.now();
    if (now - told.said > SAYS_EVERY || last) {
      told.said = now;
      const total = all.reduce((sum, one) => sum + one.loss, 0);
      self.postMessage({ step: memory.step, loss: share * total });
    }
    if (now - told.written > WRITES_EVERY && !last) {
      told.written = now - ((now - told.written) % WRITES_EVERY);
      await write();
    }
    if (now - told.kept > KEPT_EVERY && !last) {
      told.kept = now;
      self.postMessage({ weights: ownWeights(learner), memory });
    }
    await breath(); // a message of the page may wait
  }
  if (rank > 0) return self.close();
  const loss = unreadLoss(learner, val);
  const text = await textOf(learner, given.prompt);
  self.postMessage({ done: true, loss, text, memory, options, weights: ownWeights(learner) });
}

/** Returns copies of the weights, out of the kernel's memory. */
function ownWeights({ weights }) {
  return Object.fromEntries(Object.entries(weights).map(([name, array]) => [name, array.slice()]));
}

/** Resolves to the ids that the model writes after a prompt. */
function textOf({ config, weights }, prompt) {
  const model = new GPT(config, { ...weights });
  return writtenAfter(prompt, WRITTEN, model, { ...SAMPLING_DEFAULTS, min_p: 0.1 }, 1605n);
}

/** Returns the mean loss of a text, window after window, in nats. */
function meanLoss(learner, ids) {
  const { block_size: T } = learner.config;
  let sum = 0;
  learner.begin();
  for (let start = 0; start < ids.length - 1; start += T) {
    sum += learner.window(ids.subarray(start, start + T + 1));
  }
  return sum / (ids.length - 1);
}
