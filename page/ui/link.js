// A link to what one sees: after its # stand the beginning, the controls, the seed, the chosen letter.

import { app } from './app.js';
import { $ } from './elements.js';
import { say } from './words.js';
import { goOn, nearestIds, newStory, offerKnown, settingsInLink, startIds, story } from './write.js';

const ADDRESS_REST = 400; // ms; browsers refuse to change an address many times a second

export const SEEN = 'seen'; // the state of an entry of the history that was on show

const link = { timer: null };

/** Returns what comes after the address of the page. */
function linkToStory() {
  // A text that was written in several ways is given as a whole.
  const given = story.settings === null ? story.ids.length : story.given;
  const text = app.vocabulary.decode(story.ids.slice(0, given));
  const parts = { inicio: text, letras: story.ids.length - given };
  if (story.chosen !== null) parts.letra = story.chosen + 1;
  return `#${new URLSearchParams(parts)}&${story.settings ?? settingsInLink()}`;
}

/** Puts the link in the address, once somebody has touched the page. */
export function keepAddress() {
  clearTimeout(link.timer);
  if (navigator.userActivation?.hasBeenActive === false) return;
  link.timer = setTimeout(putInAddress, ADDRESS_REST);
}

const putInAddress = () => history.replaceState(history.state ?? SEEN, '', linkToStory());

/** Returns the address of the page for others; empty where only a disk has it, and none is known. */
export function pageAddress() {
  const isPublished = /^https?:$/.test(location.protocol); // file: and blob: lead nobody anywhere
  if (isPublished) return location.href.split('#')[0];
  const { page } = app.facts.links;
  return page && page + location.search;
}

async function copyLink() {
  clearTimeout(link.timer);
  putInAddress();
  const said = (words) => ($('estado').textContent = words);
  try {
    await navigator.clipboard.writeText(pageAddress() + linkToStory());
    said(say('link_copied'));
  } catch {
    said(say('link_in_address'));
  }
}

/** Shows what the address asks for; returns null where it asks for nothing. */
export function openAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (!asked.has('inicio')) return null;
  const fields = [...Object.values(story.controls.inputs), $('semilla'), $('inicio')];
  for (const field of fields.filter(({ id }) => asked.has(id))) {
    field.value = asked.get(field.id);
    field.dispatchEvent(new Event('input', { bubbles: true }));
  }
  const { ids, unknown } = nearestIds($('inicio').value);
  newStory(startIds(ids), $('inicio').value);
  if (unknown.length) offerKnown(unknown);
  const number = (name) => Math.floor(Number(asked.get(name))) || 0;
  const letters = Math.min(number('letras'), $('cuantas').max);
  const letter = number('letra') - 1;
  return goOn((n) => n >= letters, letter >= 0 ? letter : null);
}

export function openLinks() {
  $('enlace').hidden = !pageAddress(); // a part of an address leads nowhere
  $('enlace').addEventListener('click', copyLink);
}
