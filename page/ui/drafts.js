// Drafts: what somebody has typed stays for the tab, as a reload or the other language begins the page
// anew. What can't stay, the browser asks about first.

import { app } from './app.js';
import { $ } from './elements.js';
import { filledPage, saveAs } from './save.js';
import { isUnsaved, lesson } from './lesson.js';
import { fileName } from './titles.js';
import { pageTitle } from './words.js';

const DRAFTS = ['inicio', 'cuantas', 'pegado', 'ajeno', 'tiempo', 'nombre'];

/** What stood in the fields at first; isSaved: whether a page that was made here is in a file. */
const drafts = { first: {}, isSaved: false, isCarried: false };

/** Returns what is done with what the browser keeps for the next visit; null where it refuses. */
export function withStore(act, name = 'localStorage') {
  try {
    return act(window[name]);
  } catch {
    return null;
  }
}

const draftsKey = () => `sancho-borrador ${location.pathname}`;

/** Returns what the fields hold that they did not hold at first, and the address with which. */
function typedDrafts() {
  const fields = DRAFTS.map((id) => [id, $(id).value]);
  const typed = fields.filter(([id, value]) => value !== drafts.first[id]);
  return { hash: location.hash, typed: Object.fromEntries(typed), isSaved: drafts.isSaved };
}

/** Keeps them; returns whether nothing is lost now with the page. */
function keepDrafts() {
  const kept = typedDrafts();
  const isKept = withStore((store) => (store.setItem(draftsKey(), JSON.stringify(kept)), true), 'sessionStorage');
  return Boolean(isKept || drafts.isCarried || !Object.keys(kept.typed).length);
}

/** Puts drafts back; that of a start only beside the text for which it was typed. */
export function restoreDrafts() {
  const carried = document.documentElement.dataset.drafts;
  const kept = carried ?? withStore((store) => store.getItem(draftsKey()), 'sessionStorage');
  const { hash, typed, isSaved } = JSON.parse(kept ?? '{"typed":{}}');
  if (hash !== location.hash) delete typed.inicio;
  for (const [id, value] of Object.entries(typed)) {
    $(id).value = value;
    $(id).dispatchEvent(new Event('input', { bubbles: true }));
  }
  drafts.isSaved = Boolean(carried && isSaved);
  showUnsaved();
}

// --- a page that was made here, and is in no file yet ----------------------------------------

const isUnsavedPage = () => location.protocol === 'blob:' && !drafts.isSaved;

function showUnsaved() {
  $('sin-guardar').hidden = !isUnsavedPage();
}

/** Returns this page in a language, as it was made. */
export function thisPage(language, carried) {
  return filledPage($('facts').textContent, $('weights').textContent, language, carried);
}

function keepThisPage() {
  const { taught, corpus } = app.facts;
  saveAs(thisPage(document.documentElement.lang), fileName(pageTitle(taught.name, corpus), 'html'));
  drafts.isSaved = true;
  showUnsaved();
}

/** Goes on in the other language, where no address can ask for it, with what was typed. */
function changeLanguage(event) {
  event.preventDefault();
  const carried = JSON.stringify(typedDrafts());
  const other = thisPage(event.currentTarget.lang, carried);
  drafts.isCarried = true;
  location.replace(URL.createObjectURL(other) + location.hash);
}

/** Lets the browser ask before a lesson is broken off, or what is nowhere else is lost. */
function askFirst(event) {
  const isKept = keepDrafts();
  const isLostPage = isUnsavedPage() && !drafts.isCarried;
  if (isKept && !lesson.run && !isUnsaved(lesson) && !isLostPage) return;
  event.preventDefault();
  event.returnValue = true; // what older browsers heed
}

export function openDrafts() {
  drafts.first = Object.fromEntries(DRAFTS.map((id) => [id, $(id).value]));
  addEventListener('beforeunload', askFirst);
  addEventListener('pagehide', keepDrafts);
  $('guardar-esta').addEventListener('click', keepThisPage);
  if (location.protocol === 'blob:') $('idioma').addEventListener('click', changeLanguage);
}
