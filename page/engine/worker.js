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
const WRITES_PAUSE = 8; // times as long as it takes to write, at least
const KEPT_EVERY = 8000; // ms
const WRITTEN = 160; // letters
const EXAMINED_LETTERS = 4096; // of the part that is not learned from, to measure the loss
const PATIENCE = 3; // evaluations without a lower loss, after which a lesson ends

/** Lets a worker answer the page; for a Worker whose script is that of the engine and this call. */
export function serveTraining() {
  const run = { stopped: false, planned: null };
  const reply = async (data, ports) => {
    if (data.stop) run.stopped = true;
    else if (data.planned) run.planned = data.planned;
    else if (data.trial) self.postMessage({ trial: secondsOfWindow(data) });
    else if (data.measure) self.postMessage({ loss: unreadLoss(learnerOf(data), data.val) });
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

/** Returns a learner, once one of its kind has agreed with the model that writes. */
function learnerOf({ config, weights, kernel }) {
  const module = moduleOf(kernel);
  requireAgreement(config, module);
  return new Learner(config, weights, module);
}

/**
 * Returns the loss on the part of a text that is not learned from, in nats a letter. Of several workers
 * that measure together each returns its share: that of every so-manyth window.
 */
function unreadLoss(learner, val, rank = 0, count = 1) {
  const { block_size: T } = learner.config;
  const ids = val.subarray(0, EXAMINED_LETTERS + 1);
  let sum = 0;
  learner.begin();
  for (let start = rank * T; start < ids.length - 1; start += count * T) {
    sum += learner.window(ids.subarray(start, start + T + 1));
  }
  return sum / (ids.length - 1);
}

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

/** Returns a function that gives the others something, and resolves to what each has given, by rank. */
function sharing(ports, rank) {
  const others = listener(ports);
  return async (mine) => {
    for (const port of ports) port.postMessage(mine);
    const all = await others();
    all.splice(rank, 0, mine);
    return all;
  };
}

/** The lowest loss that was measured on what is not learned from, and the weights that had it. */
class Best {
  loss = Infinity;
  weights = null;
  since = 0; // evaluations

  take(loss, weightsOf) {
    this.since++;
    if (loss < this.loss) Object.assign(this, { loss, weights: weightsOf(), since: 0 });
  }
}

/**
 * Trains until the last step, until the loss on what is not learned from no longer falls, or until it is
 * stopped; tells the best weights that were measured. rank: which of `count` workers this is; ports: to
 * the others, by rank. weights may be null: those of a new model are made here.
 */
async function trainTogether(given, ports, run) {
  const { config, options, train, val, rank, count } = given;
  const weights = given.weights ?? newWeights(config, train, options.seed);
  const learner = learnerOf({ ...given, weights });
  const optimizer = new Optimizer(learner, options, given.memory);
  const { memory } = optimizer;
  const { block_size: T } = config;
  const starts = windowStarts(train.length, T, options.seed);
  for (let skipped = 0; skipped < memory.step * options.batch_size; skipped++) starts.next();
  const shared = sharing(ports, rank);
  const best = new Best();
  const reporter = rank === 0 ? reporterOf(given, learner, memory) : null;
  if (memory.step === 0) await reporter?.write();
  const breath = breather();
  const share = 1 / (options.batch_size * T);
  let last = false;
  while (!last) {
    const random = new Generator(options.seed, [DROPOUT, memory.step, rank]);
    const dropout = { ...options, random: () => random.random() };
    learner.begin();
    let loss = 0;
    for (let b = 0; b < options.batch_size; b++) {
      const start = starts.next().value;
      if (b % count === rank) loss += learner.window(train.subarray(start, start + T + 1), share, dropout);
    }
    const all = await shared({ ...learner.gradientsToShare(), loss, last: run.stopped, planned: run.planned });
    learner.takeGradients(all);
    Object.assign(options, all[0].planned); // the page plans by the pace; all follow the first one
    optimizer.step();
    last = all[0].last || memory.step >= options.max_iters;
    let unread = null;
    if (last || memory.step % options.eval_interval === 0) {
      unread = sumOf(await shared(unreadLoss(learner, val, rank, count)));
      best.take(unread, () => (reporter ? ownWeights(learner) : null));
    }
    if (best.since === PATIENCE) {
      last = true;
      options.max_iters = memory.step;
    }
    await reporter?.report(share * sumOf(all.map((one) => one.loss)), unread, last);
    await breath(); // a message of the page may wait
  }
  if (rank > 0) return self.close();
  const text = await textOf({ config, weights: best.weights }, given);
  self.postMessage({ done: true, loss: best.loss, text, memory, options, weights: best.weights });
}

const sumOf = (numbers) => numbers.reduce((sum, one) => sum + one, 0);

/** Returns what tells the page how far the lesson is: at times the loss, what the model writes, and its weights to keep. */
function reporterOf(given, learner, memory) {
  const begun = performance.now() - (Date.now() - given.since);
  const told = { said: 0, kept: begun };
  let next = begun + WRITES_EVERY;
  const write = async () => {
    const before = performance.now();
    self.postMessage({ text: await textOf(learner, given) });
    const now = performance.now();
    // A large model, whose letters take long, writes less often: what it learns is worth more.
    next = begun + WRITES_EVERY * Math.ceil((now - begun + WRITES_PAUSE * (now - before)) / WRITES_EVERY);
  };
  const report = async (loss, unread, last) => {
    const now = performance.now();
    if (now - told.said > SAYS_EVERY || unread !== null) {
      told.said = now;
      self.postMessage({ step: memory.step, loss, unread });
    }
    if (now > next && !last) await write();
    if (now - told.kept > KEPT_EVERY && !last) {
      told.kept = now;
      self.postMessage({ weights: ownWeights(learner), memory });
    }
  };
  return { write, report };
}

/** Returns copies of the weights, out of the kernel's memory. */
function ownWeights({ weights }) {
  return Object.fromEntries(Object.entries(weights).map(([name, array]) => [name, array.slice()]));
}

/** Resolves to the ids that the model writes after a prompt. */
function textOf({ config, weights }, { prompt, kernel }) {
  const model = new GPT(config, { ...weights }, moduleOf(kernel));
  return writtenAfter(prompt, WRITTEN, model, { ...SAMPLING_DEFAULTS, min_p: 0.1 }, 1605n);
}
