// Enséñale otro libro: a new model learns a text in front of whoever opened the page.

import { inflate } from '../engine/base64.js';
import { isLesson } from '../engine/lesson.js';
import { passagesOf } from '../engine/passages.js';
import { LARGEST_TEXT } from '../engine/text.js';
import { mostSteps } from '../engine/train.js';
import { app } from './app.js';
import { drawnCurve } from './curve.js';
import { $, element } from './elements.js';
import { momentOf, thousands } from './notation.js';
import { fragmentsOf, keepCheckpoint, keepPage, learnedPage, openInTab, unreadOf } from './save.js';
import { forgetLesson, keepLesson, keptLesson, keptLessons } from './store.js';
import { firstWords, toldApart } from './titles.js';
import { duration, modelNames, say } from './words.js';
import { answered, endWorkers, kernelBytes, paceAt, planOf, secondsOf, train } from './workers.js';

const LEAST_LETTERS = 3000; // of a text; with fewer there is nothing to measure the loss on
const SHORT_STEPS = 300; // a text that is learned in fewer ends before a minute on two cores does
const FIRST_POINTS = 3; // from so many on the curve is drawn
const TITLING = 200; // letters of the beginning of a text, in which its title is
const STAYS = 5; // seconds; what is written after so many, twice and four times as many, … stays in sight
const TYPED = 300; // ms without another key, after which what was typed is read
const SPOKEN_EVERY = 10_000; // ms; of each step nobody wants to hear

/** The lesson, of which showLesson() makes all that one sees. */
export const lesson = {
  given: null, // what somebody gave to learn, and its text once it has been read
  run: null, // what learns now
  learned: null, // its last good state, or that of the run before while it has none
  earlier: [], // the lessons in the store, but for the one that was learned
  keeping: Promise.resolve(), // a promise that no state is on its way there
  isRefused: false, // whether the browser keeps none
  titled: null, // the text whose title is in its field
  drawn: null, // the newest of what it wrote that is shown
  says: { kind: '', line: '' },
  spoken: { kind: '', at: 0 }, // what of it was read aloud, and when
};

function tell(kind, values, more = '') {
  lesson.says = { kind, line: say(kind, values) + more };
  showLesson();
}

// --- what one sees --------------------------------------------------------------------------

/** Sets every control and every line by the lesson. */
function showLesson() {
  const { given, run, learned } = lesson;
  const focused = document.activeElement;
  const holdLine = lineInSight();
  const isHidden = {
    muestra: run || !app.facts.teaching.sample,
    releer: !given?.offer,
    aprender: run,
    parar: !run,
    progreso: !run,
    aprendidos: run || !lesson.earlier.length,
    guardar: run || !learned,
    'no-guarda': !lesson.isRefused,
    'sin-nucleo': !run?.plan || run.plan.kernel,
    'copiar-escrito': !(run ?? learned)?.writings.length,
  };
  for (const [id, is] of Object.entries(isHidden)) $(id).hidden = Boolean(is);
  const words = {
    leido: given?.about ?? '',
    releer: say('read_as', { encoding: given?.offer ?? '' }),
    'por-que': run || given?.text ? '' : say('needs_text', { n: LEAST_LETTERS }),
    'lo-aprendido': learned ? say('learned_of', { name: learned.text.name }) : '',
    continuar: say(learned && isDone(learned) ? 'learn_longer' : 'learn_on'),
    aprendizaje: lesson.says.line,
  };
  for (const [id, text] of Object.entries(words)) putWords(id, text);
  if (learned && lesson.titled !== learned.text) {
    lesson.titled = learned.text;
    $('titulo').value = learned.text.name;
    showFragments(learned.text);
  }
  $('aprender').disabled = !given?.text;
  // One of them is what to do next.
  const isOwn = given?.text || app.facts.taught; // who was sent a page comes with a text, not for the sample
  const next = run ? 'parar' : learned ? 'guardar-pagina' : isOwn ? 'aprender' : 'muestra';
  for (const id of ['muestra', 'aprender', 'parar', 'guardar-pagina']) $(id).classList.toggle('primary', id === next);
  holdLine();
  if (run?.part) $('progreso').value = run.part;
  else $('progreso').removeAttribute('value'); // it moves by itself until the pace is known
  speak();
  drawLearning();
  drawWritings();
  if (!focused?.closest('#ensena [hidden]')) return;
  $(run ? 'parar' : learned ? 'continuar' : 'aprender').focus({ preventScroll: true });
}

/** Returns a function that puts the line of the buttons back where it is now, if somebody sees how a lesson ends. */
function lineInSight() {
  const line = $('aprender').parentElement;
  const top = () => line.getBoundingClientRect().top;
  const before = top();
  const isSeen = !lesson.run && before >= 0 && before < innerHeight;
  return () => isSeen && scrollBy({ top: top() - before, behavior: 'instant' });
}

/** Shows what of the text the page will carry to whoever gets it. */
function showFragments(text) {
  const { passages, example } = fragmentsOf(text);
  const fragments = passages.length ? passages.map(([before, passage]) => before + passage) : [example];
  $('lleva').querySelector('summary').textContent = say('carries', { n: fragments.length });
  $('lleva').lastElementChild.replaceChildren(...fragments.map((each) => element('p', { dir: 'auto' }, each)));
}

/** Lists the lessons of other visits and tabs, each to be taken up or forgotten. */
async function showEarlier() {
  const all = await keptLessons();
  lesson.earlier = all.filter(({ key }) => key !== lesson.learned?.key);
  const button = (word, act, title) =>
    element('button', { type: 'button', onclick: act, 'aria-label': `${say(word)}: ${title}` }, say(word));
  const titles = toldApart(lesson.earlier.map(({ title }) => title));
  const items = lesson.earlier.map(({ key, step, at }, i) => {
    const title = titles[i];
    const said = say('learned_then', { title, n: step, time: momentOf(at) });
    const [goOn, forget] = [() => takeUp(key), () => forgetLesson(key).then(showEarlier)];
    return element('li', {}, `${said} `, button('take_up', goOn, title), ' ', button('forget', forget, title));
  });
  $('aprendidos').querySelector('ul').replaceChildren(...items);
  showLesson();
}

/** Changes words where they are others: a status is read aloud with each change. */
function putWords(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

/** Lets the line be read aloud: at once what is of another kind, else every ten seconds at most. */
function speak() {
  const { says, spoken } = lesson;
  const now = performance.now();
  if (says.kind === spoken.kind && now - spoken.at < SPOKEN_EVERY) return;
  lesson.spoken = { kind: says.kind, at: now };
  putWords('anuncio', says.line);
}

function drawLearning() {
  const { points } = lesson.run ?? lesson.learned ?? { points: [] };
  if (points.length < FIRST_POINTS) return $('curva').replaceChildren();
  const every = Math.ceil(points.length / 200);
  const shown = points.filter(([, , val], i) => i % every === 0 || val !== null);
  const caption = element('p', { class: 'hint' }, say('curve_caption'));
  $('curva').replaceChildren(drawnCurve(shown), caption);
}

/** Returns what was written in the lesson that is shown while there is none here, and whose it is. */
function recordedLesson() {
  const { taught, progress, teaching } = app.facts;
  const { writings, cores } = teaching.recorded;
  const time = duration(progress.seconds);
  if (taught) return { writings, of: say('wrote_here', { name: modelNames().whose, time }) };
  if (teaching.sample) return { writings, of: say('wrote_then', { n: cores }) };
  return { writings: [], of: say('writes_now') }; // the text that it learned is not in this page
}

/** Shows what the model has written, the newest below. */
function drawWritings() {
  const own = lesson.run ?? lesson.learned;
  const { writings, of } = own ? { ...own, of: say('writes_now') } : recordedLesson();
  putWords('escribe-ahora', of);
  const newest = writings.at(-1) ?? null;
  if (newest === lesson.drawn) return; // who reads or marks it is left alone
  lesson.drawn = newest;
  const shown = writings.map(({ seconds, loss, letters }) => {
    const said = say('written_after', { time: duration(seconds), nats: loss.toFixed(2) });
    return element('p', {}, element('span', { class: 'hint' }, said), element('br'), element('span', { dir: 'auto' }, letters));
  });
  const box = $('escrito');
  box.replaceChildren(...shown);
  box.scrollTop = own ? box.scrollHeight : 0;
  putWords('escrito-copiado', '');
}

/** Copies it; other than navigator.clipboard, this works in pages that no https brought, too. */
function copyWritings() {
  getSelection().selectAllChildren($('escrito'));
  putWords('escrito-copiado', say(document.execCommand('copy') ? 'copied' : 'copy_yourself'));
}

// --- the text -------------------------------------------------------------------------------

/** Takes a string or a Blob to learn from, and reads it; says why where it can't be learned. */
async function take(source, title, encoding = 'utf-8') {
  if (lesson.given) endWorkers(lesson.given);
  const name = title ?? say('your_text_name'); // until its first words are known
  const given = (lesson.given = { source, name, isUnnamed: title === null, workers: [] });
  given.about = say('reading_text', { name });
  showLesson();
  Object.assign(given, await textOrWhy(given, encoding));
  showLesson();
}

/** Resolves to the text of what was given, if it can be learned; about: what is said of it. */
async function textOrWhy(given, encoding) {
  const { source, name } = given;
  if ((source.size ?? source.length) > LARGEST_TEXT) {
    return { about: say('text_too_large', { name, n: LARGEST_TEXT / 1e6 }) };
  }
  const question = { read: source, encoding, rules: app.facts.teaching.text };
  const told = await answered(given, question).catch(() => ({ refused: 'unreadable' }));
  const { text, odd, refused, kind, offer: encodingFound, damaged } = told;
  if (refused) {
    const said = { name, kind: kind && say(kind), encoding: encodingFound, n: damaged };
    return { about: say(refused, said), offer: canDecode(encodingFound) ? encodingFound : null };
  }
  const letters = text.train.length + text.val.length;
  if (letters < LEAST_LETTERS) {
    return { about: say('text_too_short', { n: letters, least: LEAST_LETTERS }) };
  }
  const title = given.isUnnamed ? ownTitle(text) : name.replace(/\.\w+$/, '');
  const about = say('text_taken', { name: title, n: letters, kinds: text.characters.length });
  const more = [oddInWords(odd), shortInWords(text), noGameInWords(text)];
  return { text: { name: title, ...text }, about: about + more.join('') };
}

/** Returns the title that a text gives itself. */
function ownTitle(text) {
  const beginning = Array.from(text.train.subarray(0, TITLING), (id) => text.characters[id]).join('');
  return firstWords(beginning) || say('your_text_name');
}

/** Returns whether the browser reads an encoding. */
function canDecode(encoding) {
  try {
    return Boolean(encoding && new TextDecoder(encoding));
  } catch {
    return false;
  }
}

/** Returns what in a text can't be seen or is seldom meant; nothing of others. */
function oddInWords(odd) {
  if (!odd.length) return '';
  const found = odd.map(([name, n]) => `${thousands(n)} ${say(name)}`).join(', ');
  return ` ${say('odd_in_text', { found })}`;
}

/** Returns what is said before a lesson that ends before the time does; nothing of a longer text. */
function shortInWords({ train: ids }) {
  const { teaching } = app.facts;
  const steps = mostSteps(ids.length, teaching.models[0], teaching);
  return steps < SHORT_STEPS ? ` ${say('short_text', { n: steps })}` : '';
}

/** Returns why a page that learned a text has no game; nothing where it has one. */
const noGameInWords = (text) => (passagesOf(unreadOf(text)).length ? '' : ` ${say('no_game')}`);

async function takeSample() {
  const { sample, sample_name } = app.facts.teaching;
  await take(new Blob([await inflate(sample)]), sample_name);
  await learn();
}

// --- learning -------------------------------------------------------------------------------

async function learn() {
  const { run: busy, given, learned, isRefused } = lesson;
  const isLost = isRefused && learned && !learned.isSaved;
  if (busy || !given?.text || (isLost && !confirm(say('replaces_learned')))) return;
  const clicked = performance.now();
  const nothing = { plan: null, points: [], writings: [], seconds: 0 };
  const run = (lesson.run = newRun({ text: given.text, ...nothing }));
  tell('trying_pace');
  showBeginning();
  try {
    run.plan = await planOf(run, 60 * Number($('tiempo').value));
    run.end = clicked + 1000 * run.plan.asked;
    train(run, null, heed);
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
function goOnLearning() {
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

const isDone = ({ plan, memory }) => memory.step >= plan.options.max_iters;

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
function takeWriting({ text, points, writings, ...run }, ids) {
  if (writings.at(-1)?.isPassing) writings.pop();
  const seconds = points.length ? secondsOf(run) : 0;
  const mark = seconds < STAYS ? 0 : STAYS * 2 ** Math.floor(Math.log2(seconds / STAYS));
  const isPassing = writings.length > 0 && writings.at(-1).seconds >= mark;
  const loss = points.at(-1)?.[1] ?? Math.log(text.characters.length);
  const letters = ids.map((id) => text.characters[id]).join('');
  writings.push({ seconds, loss, letters, isPassing });
  showLesson();
}

function showStep(run, { step, loss }) {
  const { plan, points } = run;
  points.push([step, loss, null]);
  const pace = paceAt(run, step);
  if (!pace || run.isStopping) return;
  const { max_iters: steps } = run.plan.options;
  run.part = step / steps;
  const left = duration(Math.ceil(pace * Math.max(0, steps - step)));
  tell(plan.isSmall ? 'learning_small' : 'learning', { step, steps, nats: loss.toFixed(2), left });
}

/** Takes the state of a run for what was learned, and keeps it for another visit, if the browser does. */
function keepState(run, { loss = null, options = run.plan.options, memory, weights }) {
  const { text, points, writings } = run;
  if (loss !== null) points.push([memory.step, points.at(-1)?.[1] ?? loss, loss]);
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

function tellLearned() {
  const { text, plan, seconds, memory, loss } = lesson.learned;
  const said = { step: memory.step, time: duration(seconds), loss: unreadInWords(loss) };
  if (!isDone(lesson.learned)) return tell('was_stopped', said);
  const ids = text.train.length;
  const isShort = memory.step >= mostSteps(ids, plan.config, app.facts.teaching) && seconds < 0.8 * plan.asked;
  const enough = 1000 * Math.ceil((ids * plan.asked) / seconds / 1000);
  const more = { n: enough, time: duration(plan.asked) };
  tell('has_learned', said, isShort ? ` ${say('was_short', more)}` : '');
}

/** Returns what is said of a loss, null where only that of what is read is known. */
function unreadInWords(loss) {
  return loss === null ? say('unread_unmeasured') : say('unread_measured', { nats: loss.toFixed(2) });
}

/** Ends a lesson: after this step, or at once where none is done or somebody asks again. */
function stopLearning() {
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

/** Takes up what was learned in another visit or tab. */
async function takeUp(key) {
  const [state] = await Promise.all([keptLesson(key), lesson.keeping]);
  if (lesson.run) return;
  if (!isLesson(state, app.facts.teaching)) return tell('does_not_fit');
  lesson.learned = Object.assign(state, { key });
  showEarlier();
  // What was kept on the way was not measured yet.
  state.loss = state.points.at(-1)?.[2] ?? null;
  state.loss ??= await measured(state);
  if (lesson.learned === state && !lesson.run) tellLearned();
}

/** Resolves to the loss of a state on the part that is not learned from; to null where it can't be had. */
async function measured({ text: { val }, plan: { config }, weights }) {
  tell('measuring');
  const told = answered({}, { measure: true, config, weights, val, kernel: kernelBytes() });
  return (await told.catch(() => ({ loss: null }))).loss;
}

// --- the section ----------------------------------------------------------------------------

/** Returns a listener that opens or saves what was learned, and says where the browser refuses. */
function keeping(act) {
  const refused = ({ message }) => tell(message === 'no_seal' ? message : 'not_saved');
  return () => act(lesson.learned).catch(refused);
}

/** Returns a listener that acts once no other key follows. */
function onceTyped(act) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, TYPED);
  };
}

/** Gives the text that was learned another title. */
function nameText({ target: { value } }) {
  const { text } = lesson.learned;
  text.name = value.trim() || ownTitle(text);
  showLesson();
}

/** Keeps the new title with what was learned. */
function keepTitle() {
  const { learned } = lesson;
  if (learned.key !== null) lesson.keeping = lesson.keeping.then(() => keepLesson(learned, learned.key));
}

/** Takes a file that is dropped anywhere; a browser would open it in place of the page. */
function takeDropped(event) {
  const [file] = event.dataTransfer.files;
  if (!file) return; // a text goes where it is dropped
  event.preventDefault();
  if (lesson.run) return;
  take(file, file.name);
  if (!$('ensena').contains(event.target)) $('ensena').scrollIntoView();
}

/** Hides the lesson, with what leads there, in a page whose scripts can't teach. */
function leaveOut() {
  for (const node of document.querySelectorAll('#ensena, [href="#ensena"]')) node.hidden = true;
}

const allowFiles = (event) => event.dataTransfer.types.includes('Files') && event.preventDefault();

export function openTeaching() {
  if (!app.facts.teaching) return leaveOut();
  const listen = (id, act, kind = 'click') => $(id).addEventListener(kind, act);
  listen('muestra', takeSample);
  listen('archivo', ({ target: { files } }) => files[0] && take(files[0], files[0].name), 'change');
  document.addEventListener('dragover', allowFiles);
  document.addEventListener('drop', takeDropped);
  listen('releer', () => take(lesson.given.source, lesson.given.name, lesson.given.offer));
  listen('pegado', onceTyped(() => take($('pegado').value, null)), 'input');
  listen('titulo', nameText, 'input');
  listen('titulo', onceTyped(keepTitle), 'input');
  listen('aprender', learn);
  listen('continuar', goOnLearning);
  listen('parar', stopLearning);
  listen('copiar-escrito', copyWritings);
  listen('abrir-pagina', keeping((learned) => openInTab(learnedPage(learned))));
  listen('guardar-pagina', keeping(keepPage));
  listen('guardar-modelo', keeping(keepCheckpoint));
  showEarlier();
  showLesson();
}
