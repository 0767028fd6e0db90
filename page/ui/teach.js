// Enséñale otro libro: the section in which a model learns a text in front of whoever opened the page.

import { app } from './app.js';
import { $ } from './elements.js';
import { lesson } from './lesson.js';
import { showEarlier } from './lesson-kept.js';
import { goOnLearning, learn, stopLearning } from './lesson-run.js';
import { ownTitle, take, takeSample } from './lesson-text.js';
import { copyWritings, showLesson, tell } from './lesson-view.js';
import { keepCheckpoint, keepPage, learnedPage, openInTab } from './save.js';
import { keepLesson } from './store.js';

const TYPED = 300; // ms without another key, after which what was typed is read

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
  listen('muestra', () => takeSample().then(learn));
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
  $('parte').hidden = !app.facts.teaching.tuning;
  showEarlier();
  showLesson();
}
