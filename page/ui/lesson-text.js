// The text that is given to learn: a file, what was pasted, or the sample.

import { inflate } from '../engine/base64.js';
import { passagesOf } from '../engine/passages.js';
import { LARGEST_TEXT } from '../engine/text.js';
import { app } from './app.js';
import { LEAST_LETTERS, lesson } from './lesson.js';
import { showLesson } from './lesson-view.js';
import { thousands } from './notation.js';
import { unreadOf } from './save.js';
import { firstWords } from './titles.js';
import { say } from './words.js';
import { answered, endWorkers } from './workers.js';

const TITLING = 200; // letters of the beginning of a text, in which its title is

/** Takes a string or a Blob to learn from, and reads it; says why where it can't be learned. */
export async function take(source, title, encoding = 'utf-8') {
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
  const more = [oddInWords(odd), noGameInWords(text)];
  return { text: { name: title, ...text }, about: about + more.join('') };
}

/** Returns the title that a text gives itself. */
export function ownTitle(text) {
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

/** Returns why a page that learned a text has no game; nothing where it has one. */
const noGameInWords = (text) => (passagesOf(unreadOf(text)).length ? '' : ` ${say('no_game')}`);

/** Takes the sample text. */
export async function takeSample() {
  const { sample, sample_name } = app.facts.teaching;
  await take(new Blob([await inflate(sample)]), sample_name);
}
