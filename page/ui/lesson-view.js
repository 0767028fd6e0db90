// What one sees of a lesson: its controls and lines, the curve, what the model writes meanwhile.

import { app } from './app.js';
import { drawnCurve } from './curve.js';
import { $, element } from './elements.js';
import { isDone, LEAST_LETTERS, lesson } from './lesson.js';
import { fragmentsOf } from './save.js';
import { duration, modelNames, say } from './words.js';

const FIRST_POINTS = 3; // from so many on the curve is drawn
const EARLY = 0.8; // of the time that was asked for; a lesson that takes less says why
const SPOKEN_EVERY = 10_000; // ms; of each step nobody wants to hear

/** Says how the lesson is going; kind: the key of what is said. */
export function tell(kind, values, more = '') {
  lesson.says = { kind, line: say(kind, values) + more };
  showLesson();
}

/** Sets every control and every line by the lesson. */
export function showLesson() {
  const { given, run, learned } = lesson;
  const focused = document.activeElement;
  const holdLine = lineInSight();
  const isHidden = {
    muestra: run || !app.facts.teaching.sample,
    empieza: run || !app.facts.teaching.tuning,
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
  // One of them is what to do next, once there is a text.
  const next = run ? 'parar' : learned ? 'guardar-pagina' : given?.text ? 'aprender' : '';
  for (const id of ['aprender', 'parar', 'guardar-pagina']) $(id).classList.toggle('primary', id === next);
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

/** Copies what was written; other than navigator.clipboard, this works in pages that no https brought, too. */
export function copyWritings() {
  getSelection().selectAllChildren($('escrito'));
  putWords('escrito-copiado', say(document.execCommand('copy') ? 'copied' : 'copy_yourself'));
}

/** Says what was learned, and why a lesson took less than the time that was asked for. */
export function tellLearned() {
  const { plan, seconds, memory, loss } = lesson.learned;
  const said = { step: memory.step, time: duration(seconds), loss: unreadInWords(loss) };
  if (!isDone(lesson.learned)) return tell('was_stopped', said);
  const isEarly = seconds < EARLY * plan.asked;
  tell('has_learned', { ...said, begins: beginningInWords(plan) }, isEarly ? ` ${say('was_enough')}` : '');
}

/** Returns with what a lesson began, and why. */
export const beginningInWords = ({ begins }) => say(`begins_${begins}`, modelNames());

/** Returns what is said of a loss, null where only that of what is read is known. */
function unreadInWords(loss) {
  return loss === null ? say('unread_unmeasured') : say('unread_measured', { nats: loss.toFixed(2) });
}
