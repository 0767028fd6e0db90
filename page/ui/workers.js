// Workers that read a text, try how fast a model learns, and train it: a run has those that it needs.

import { fromBase64 } from '../engine/base64.js';
import { optionsFor } from '../engine/train.js';
import { app } from './app.js';
import { $ } from './elements.js';

const MOST_WORKERS = 4; // they share the eight windows of a batch
const OVERHEAD = 1.6; // a step takes so much more than its windows: workers share a memory, and the optimizer
const SLOW = 0.5; // seconds; where a step of the larger model takes longer, the smaller one learns
const PLANNED_EVERY = 3; // seconds
const AT_THE_END = 10; // steps that take as long as to measure the loss and to keep the model

/** Returns the kernel's bytes, or null where the browser has no WebAssembly with SIMD. */
export function kernelBytes() {
  const bytes = fromBase64(app.facts.teaching.kernel);
  return typeof WebAssembly === 'object' && WebAssembly.validate(bytes) ? bytes : null;
}

/** Returns a worker with the scripts that train. */
function newWorker(listener) {
  const source = `${$('engine').textContent}\nserveTraining();`;
  const address = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
  const worker = new Worker(address);
  URL.revokeObjectURL(address);
  worker.onmessage = ({ data }) => listener(data);
  worker.onerror = ({ message }) => listener({ error: message || 'unknown' });
  return worker;
}

/** Returns a promise of a worker's answer; where the run is ended before, there is none. */
export function answered(run, question) {
  return new Promise((resolve, reject) => {
    const worker = newWorker((told) => {
      endWorkers(run);
      if (told.error) reject(new Error(told.error, { cause: told.cause }));
      else resolve(told);
    });
    run.workers = [worker];
    worker.postMessage(question);
  });
}

export function endWorkers(run) {
  for (const worker of run.workers) {
    worker.onmessage = worker.onerror = null; // what it told last may still be on its way
    worker.terminate();
  }
  run.workers = [];
}

function workersToUse() {
  const cores = Math.min(MOST_WORKERS, navigator.hardwareConcurrency ?? 1);
  return 2 ** Math.floor(Math.log2(cores));
}

/** Resolves to what a run is to be: which model learns, how, and in how many of the seconds asked for. */
export async function planOf(run, asked) {
  const { models, train: how } = app.facts.teaching;
  const [kernel, count] = [kernelBytes(), workersToUse()];
  const stepOf = async (config) => {
    const { trial } = await answered(run, { trial: true, config, kernel });
    return (trial * OVERHEAD * how.batch_size) / count;
  };
  const { characters, train: ids } = run.text;
  const [first, smaller] = models.map((model) => ({ ...model, vocab_size: characters.length }));
  let config = first;
  let seconds = await stepOf(first);
  if (seconds > SLOW) {
    config = smaller;
    seconds = await stepOf(smaller);
  }
  const options = optionsFor(ids.length, config, Math.floor(asked / seconds), app.facts.teaching);
  return { config, options, kernel, count, asked, isSmall: config === smaller };
}

/** Lets all workers of a run learn: anew, or from what was learned. listener: hears the first of them. */
export function train(run, learned, listener) {
  const { text, plan } = run;
  const { config, options, kernel, count } = plan;
  const hear = (rank) => (told) => rank === 0 || told.error ? listener(told) : null;
  run.workers = Array.from({ length: count }, (_, rank) => newWorker(hear(rank)));
  const ports = run.workers.map(() => []);
  for (let i = 0; i < count; i++) {
    for (let j = i + 1; j < count; j++) {
      const { port1, port2 } = new MessageChannel();
      ports[i].push(port1);
      ports[j].push(port2);
    }
  }
  const prompt = [Math.max(0, text.characters.indexOf('\n'))];
  const { weights = null, memory = null } = learned ?? {};
  const since = Date.now();
  const common = { config, options, kernel, weights, memory, count, prompt, since };
  run.workers.forEach((worker, rank) => {
    const parts = { train: text.train, val: text.val, rank };
    worker.postMessage({ ...common, ...parts }, ports[rank]);
  });
  run.since = performance.now();
}

/** Returns for how many seconds a run has learned, the times before included. */
export const secondsOf = (run) => run.seconds + (performance.now() - run.since) / 1000;

/**
 * Returns the seconds that a step takes of late, or null before two are done. Every few seconds it
 * plans as many steps as fit into what is left of the time: something else may have taken the cores.
 */
export function paceAt(run, step) {
  const now = performance.now();
  run.noted ??= { step, now };
  const steps = step - run.noted.step;
  if (!steps) return run.pace;
  const seconds = (now - run.noted.now) / 1000;
  const pace = run.pace ? (run.pace + seconds / steps) / 2 : seconds / steps;
  if (seconds < PLANNED_EVERY) return pace;
  Object.assign(run, { pace, noted: { step, now } });
  if (!run.end) return pace;
  const { text, plan } = run;
  const left = Math.floor((run.end - now) / 1000 / pace) - AT_THE_END;
  const options = optionsFor(text.train.length, plan.config, step + left, app.facts.teaching);
  run.plan = { ...plan, options };
  run.workers[0].postMessage({ planned: options });
  return pace;
}
