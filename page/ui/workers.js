// Workers that read a text, try how fast a model learns, and train it: a run has those that it needs.

import { fromBase64 } from '../engine/base64.js';
import { LEAST_STEPS, optionsFor } from '../engine/train.js';
import { inIdsOf, withRowsFor } from '../engine/tuning.js';
import { app } from './app.js';
import { $ } from './elements.js';

const MOST_WORKERS = 4; // they share the eight windows of a batch
const OVERHEAD = 1.6; // a step takes so much more than its windows: workers share a memory, and the optimizer
const SLOW = 0.5; // seconds; where a step of the larger new model takes longer, the smaller one learns
const TUNED_WINDOW = 256; // letters; with longer ones the page's own model would make fewer steps
const MOST_LOSS = 3; // nats a letter; a text that the page's own model expects worse is learned by a new one
const PLANNED_EVERY = 3; // seconds
const AT_THE_END = 4; // steps that take as long as to measure the loss and to keep the model

/** Returns the kernel's bytes, or null: without a lesson, or where the browser has no WebAssembly with SIMD. */
export function kernelBytes() {
  const { teaching } = app.facts;
  if (!teaching) return null;
  const bytes = fromBase64(teaching.kernel);
  return typeof WebAssembly === 'object' && WebAssembly.validate(bytes) ? bytes : null;
}

/** Returns the kernel, or null as kernelBytes(), and where a server's policy lets nothing be compiled. */
export function compiledKernel() {
  try {
    const bytes = kernelBytes();
    return bytes && new WebAssembly.Module(bytes);
  } catch {
    return null;
  }
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

/** Returns the page's own model as a lesson of a text begins with it, and the text in its ids. */
function ownBeginning(text) {
  const { model, vocabulary } = app;
  const known = vocabulary.characters;
  const own = inIdsOf(known, text);
  const [vocab_size, block_size] = [own.characters.length, Math.min(TUNED_WINDOW, model.config.block_size)];
  const config = { ...model.config, vocab_size, block_size, dropout: 0 };
  const weights = withRowsFor(own.characters, model.weights, known.length, vocabulary.nearest, config.n_embd);
  return { text: own, config, weights };
}

/** Returns the seconds of a step of a model on a machine, { kernel, count }: the time of some windows, scaled. */
async function secondsOfStep(run, config, { batch_size }, { kernel, count }) {
  const { trial } = await answered(run, { trial: true, config, kernel });
  return (trial * OVERHEAD * batch_size) / count;
}

/** Returns what a run is to be, once it is known with what it begins, and how long a step takes. */
function planFor(run, machine, begins, { loss, config, seconds, how }) {
  const steps = Math.floor(machine.asked / seconds);
  const options = optionsFor(run.text.train.length, config, steps, app.facts.teaching, how);
  return { ...machine, begins, loss, config, options };
}

/** Resolves to what planOf() does of the page's own model; to { begins }: why a new one learns. */
async function tunedPlan(run, machine) {
  const { tuning: how } = app.facts.teaching;
  const { text, config, weights } = ownBeginning(run.text);
  const seconds = await secondsOfStep(run, config, how, machine);
  if (machine.asked < seconds * LEAST_STEPS) return { begins: 'slow' };
  const question = { measure: true, config, weights, val: text.val, kernel: machine.kernel };
  const { loss } = await answered(run, question);
  if (loss > MOST_LOSS) return { begins: 'unknown' };
  return { plan: planFor(run, machine, 'tuned', { loss, config, seconds, how }), text, weights };
}

/** Resolves to what planOf() does of a new model. */
async function newPlan(run, machine, begins) {
  const { models, train: how } = app.facts.teaching;
  const vocab_size = run.text.characters.length;
  const loss = Math.log(vocab_size); // all letters are as likely at first
  const [larger, smaller] = models.map((model) => ({ ...model, vocab_size }));
  const found = { loss, config: larger, seconds: await secondsOfStep(run, larger, how, machine), how };
  if (found.seconds > SLOW) {
    Object.assign(found, { config: smaller, seconds: await secondsOfStep(run, smaller, how, machine) });
    begins = 'small';
  }
  return { plan: planFor(run, machine, begins, found), text: run.text, weights: null };
}

/**
 * Resolves to what a run is to be, { plan, text, weights }: which model learns, how, and in how many of
 * the seconds asked for; the text in its ids; the weights with which it begins, null those of a new one.
 *
 * The page's own model goes on with the text where it expects its letters well enough, and where this
 * computer is fast enough; else, or where that is asked for, a new model learns it.
 */
export async function planOf(run, asked) {
  const machine = { kernel: kernelBytes(), count: workersToUse(), asked };
  const isTuned = app.facts.teaching.tuning && !run.isNew;
  const tuned = isTuned ? await tunedPlan(run, machine) : { begins: 'new' };
  return tuned.plan ? tuned : newPlan(run, machine, tuned.begins);
}

/**
 * Lets all workers of a run learn. weights, memory: those with which it begins, null where it is a new
 * model, and the optimizer's of a run that was stopped. listener: hears the first worker.
 */
export function train(run, { weights, memory = null }, listener) {
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
  const { teaching } = app.facts;
  const how = plan.begins === 'tuned' ? teaching.tuning : teaching.train;
  const options = optionsFor(text.train.length, plan.config, step + left, teaching, how);
  run.plan = { ...plan, options };
  run.workers[0].postMessage({ planned: options });
  return pace;
}
