// A lesson from its plan to its end: what its workers tell is shown, and kept for another visit.

import { app } from './app.js';
import { $ } from './elements.js';
import { isDone, isUnsaved, lesson } from './lesson.js';
import { showEarlier } from './lesson-kept.js';
import { beginningInWords, showLesson, tell, tellLearned } from './lesson-view.js';
import { keepLesson } from './store.js';
import { duration, say } from './words.js';
import { endWorkers, paceAt, planOf, secondsOf, train } from './workers.js';

const STAYS = 5; // seconds; what is written after so many, twice and four times as many, … stays in sight

/** Begins to learn the text that was given. */
export async function learn() {
  const { run: busy, given } = lesson;
  if (busy || !given?.text || (isUnsaved(lesson) && !confirm(say('replaces_learned')))) return;
  const clicked = performance.now();
  const nothing = { plan: null, points: [], writings: [], seconds: 0 };
  const run = (lesson.run = newRun({ text: given.text, ...nothing }));
  run.isNew = $('desde-cero').checked;
  tell('trying_pace');
  showBeginning();
  try {
    const { weights, ...planned } = await planOf(run, 60 * Number($('tiempo').value));
    Object.assign(run, planned);
    run.end = clicked + 1000 * run.plan.asked;
    train(run, { weights }, heed);
  } catch (error) {
    failed(error);
  }
}

/**
 * Returns a run of a state, or of what it begins with; key: in the store, once it is there; noted, pace:
 * how fast it is, once that is known.
 */
function newRun({ text, plan, points, writings, seconds, key = null }) {
  const told = { points: points.slice(), writings: writings.slice(), seconds };
  return { text, plan, ...told, key, workers: [], noted: null, pace: null };
}

/** Goes on: to the end that was planned, or, from there, as many steps again. */
export function goOnLearning() {
  const { learned } = lesson;
  const { plan, memory } = learned;
  const longer = { ...plan.options, max_iters: 2 * memory.step, warmup_iters: 0 };
  const options = isDone(learned) ? longer : plan.options;
  lesson.run = newRun({ ...learned, plan: { ...plan, options } });
  train(lesson.run, learned, heed);
  tell('goes_on');
  showBeginning();
}

/** Brings a lesson that begins onto the screen: on a small one it may begin far from what was pressed. */
const showBeginning = () => $('parar').scrollIntoView({ block: 'nearest' });

/** What the first worker tells. */
function heed(told) {
  const { run } = lesson;
  if (told.error) return failed({ message: told.error, cause: told.cause });
  if (told.text) takeWriting(run, told.text);
  if (told.step) showStep(run, told);
  if (told.weights) keepState(run, told);
  if (told.done) finish(run);
}

/** Takes what the model has just written; it stays, or is replaced by what it writes next. */
function takeWriting({ text, plan, points, writings, ...run }, ids) {
  if (writings.at(-1)?.isPassing) writings.pop();
  const seconds = points.length ? secondsOf(run) : 0;
  const mark = seconds < STAYS ? 0 : STAYS * 2 ** Math.floor(Math.log2(seconds / STAYS));
  const isPassing = writings.length > 0 && writings.at(-1).seconds >= mark;
  const loss = points.at(-1)?.[1] ?? plan.loss;
  const letters = ids.map((id) => text.characters[id]).join('');
  writings.push({ seconds, loss, letters, isPassing });
  showLesson();
}

function showStep(run, { step, loss, unread }) {
  const { plan, points } = run;
  points.push([step, loss, unread]);
  const pace = paceAt(run, step);
  if (!pace || run.isStopping) return;
  const { max_iters: steps } = run.plan.options;
  run.part = step / steps;
  const left = duration(Math.ceil(pace * Math.max(0, steps - step)));
  const begins = beginningInWords(plan);
  tell('learning', { begins, step, steps, nats: loss.toFixed(2), left });
}

/** Takes the state of a run for what was learned, and keeps it for another visit, if the browser does. */
function keepState(run, { loss = null, options = run.plan.options, memory, weights }) {
  const { text, points, writings } = run;
  const plan = { ...run.plan, options };
  const told = { points: points.slice(), writings: writings.slice(), seconds: secondsOf(run) };
  const state = { text, plan, ...told, loss, memory, weights, key: run.key };
  lesson.learned = state;
  lesson.keeping = lesson.keeping.then(async () => {
    const key = await keepLesson(state, run.key);
    lesson.isRefused = key === null;
    state.key = run.key = key ?? run.key;
    showLesson();
  });
}

function finish(run) {
  endWorkers(run);
  lesson.run = null;
  tellLearned();
  lesson.keeping.then(showEarlier);
}

/** Ends a lesson: after this step, or at once where none is done or somebody asks again. */
export function stopLearning() {
  const { run } = lesson;
  if (!run.noted || run.isStopping) return giveUp('given_up');
  run.isStopping = true;
  run.part = 0;
  run.workers[0].postMessage({ stop: true });
  tell('stopping');
}

function failed({ message, cause = {} }) {
  const isOurs = message in app.facts.strings;
  giveUp(isOurs ? message : 'worker_died', cause);
}

/** Ends a lesson as it is; what was learned until then, or before, stays. */
function giveUp(kind, values) {
  endWorkers(lesson.run);
  lesson.run = null;
  tell(kind, values, lesson.learned ? ` ${say('can_go_on', { n: lesson.learned.memory.step })}` : '');
}
