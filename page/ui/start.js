// The beginning: unpack, open every part, write a first text. And the page's functions for others.

import { inflate } from '../engine/base64.js';
import { breather } from '../engine/breather.js';
import { Deck } from '../engine/deck.js';
import { GPT, Reader } from '../engine/model.js';
import { comparison } from '../engine/proof.js';
import { namedWeights } from '../engine/unpack.js';
import { Vocabulary } from '../engine/vocabulary.js';
import { writtenAfter } from '../engine/writer.js';
import { openAbout } from './about.js';
import { app } from './app.js';
import { asking, askLetter, chooseLetter, openAsking, tapLetter } from './asking.js';
import { attentionView } from './attention.js';
import { openDrafts, restoreDrafts, withStore } from './drafts.js';
import { duel, openDuel, playRound } from './duel.js';
import { $, element } from './elements.js';
import { board, openGame, openLinkedGame } from './game.js';
import { journeyView } from './journey.js';
import { keepAddress, openAddress, openLinks, SEEN } from './link.js';
import { openSurprise, reading } from './surprise.js';
import { compareSwitched, openSwitches, switches } from './switches.js';
import { openTeaching } from './teach.js';
import { openTyping } from './typing.js';
import { duration, pageTitle, say, translate } from './words.js';
import { compiledKernel } from './workers.js';
import {
  describeUnknown, goOn, newStory, openWriting, startIds, stopWriting, story,
} from './write.js';

const FIRST_TEXT = [200, 1000]; // letters; between the two it ends with a sentence, if it can
// Slices of the proof that the first letter waits for: the logits of three places, some 50 ms where all
// of it takes half a second.
const COMPARED_FIRST = 2;
// What the page can't be opened without, and not every browser has.
const NEEDED = ['DecompressionStream', 'ReadableStream', 'MessageChannel'];

async function openPage() {
  app.facts = JSON.parse($('facts').textContent);
  translate();
  introduce(app.facts);
  openTheme();
  const names = NEEDED.filter((name) => !(name in window)).join(', ');
  if (names) throw new Error(say('missing', { names }));
  const { config, characters, nearest, precision, layout, proof } = app.facts;
  const bytes = await inflate($('weights').textContent);
  app.model = new GPT(config, namedWeights(bytes, precision, layout), compiledKernel());
  app.comparison = comparison(app.model, proof);
  for (let slice = 0; slice < COMPARED_FIRST; slice++) app.comparison.next();
  app.vocabulary = new Vocabulary(characters, nearest);
  app.deck = new Deck(app.facts.passages.length);
  openWriting({
    ask: askLetter,
    tap: tapLetter,
    choose: chooseLetter,
    rest() {
      keepAddress();
      compareSwitched();
    },
  });
  openTyping();
  openAsking({ mira: attentionView, viaje: journeyView });
  openLinks();
  openSurprise();
  openGame();
  openDuel();
  openSwitches();
  openTeaching();
  if (!('Worker' in window)) $('ensena-titulo').after(element('p', { class: 'notice' }, say('no_worker')));
  openCards();
  openAbout();
  openDrafts();
}

/** Says whose the page is, and what its model has read. */
function introduce({ taught, corpus, characters, progress }) {
  const said = { corpus, spanish: characters.includes('¿') ? say('in_spanish') : '' };
  if (taught) {
    document.title = document.querySelector('h1').textContent = pageTitle(taught.name, corpus);
    said.letters = say('letters', { n: taught.letters });
    said.time = duration(progress.seconds);
    const { val_loss: loss } = progress;
    said.doubts = loss === null ? '' : say('doubts', { n: Math.round(Math.exp(loss)) });
    said.after = taught.after ? say('read_before', { corpus: taught.after }) : '';
  }
  const motto = say(taught ? 'taught_motto' : 'motto_of', said);
  $('lema').replaceChildren(motto, element('span', {}, say('all_here')));
}

/** Shows the cards of the games that are there, the duel's with its name. */
function openCards() {
  $('a-duelo').firstChild.textContent = $('duelo-titulo').textContent;
  for (const part of ['adivina', 'duelo', 'ensena']) {
    $(`a-${part}`).hidden = $(part).hidden;
  }
}

/** Lets a button say whether the colours for the dark hold, which the system decides until then. */
function openTheme() {
  const rules = Array.from(document.styleSheets[0].cssRules);
  const { media } = rules.find((rule) => rule.media?.mediaText.includes('color-scheme'));
  const button = $('tema');
  const paint = (theme) => {
    media.mediaText = theme === 'dark' ? 'screen' : 'not all';
    document.documentElement.style.colorScheme = theme;
    button.setAttribute('aria-pressed', theme === 'dark');
  };
  button.setAttribute('aria-pressed', matchMedia('(prefers-color-scheme: dark)').matches);
  const kept = withStore((store) => store.getItem('sancho-tema'));
  if (kept) paint(kept);
  button.addEventListener('click', () => {
    const theme = button.getAttribute('aria-pressed') === 'true' ? 'light' : 'dark';
    paint(theme);
    withStore((store) => store.setItem('sancho-tema', theme));
  });
}

/** Returns the ids of a text. Throws where it holds unknown characters, or nothing. */
function knownIds(text) {
  const { ids, unknown } = app.vocabulary.encode(String(text));
  if (unknown.length) throw new Error(say('never_seen', { letters: describeUnknown(unknown) }));
  if (!ids.length) throw new Error(say('empty'));
  return ids;
}

/**
 * What the console and the tests may use; all else is the page's own.
 *
 * ready: a promise that the model can be used.
 * busy: whether the page still writes, reads, guesses, or looks for the letter to show.
 * look(text): what is computed at the end of a text. logits: what the output head makes of each
 * residual stream (n_layer + 1, V), of the last one what the model says; attention (n_layer, H, T).
 * write(text, n, options): a promise of the n characters that sample.py writes after a text.
 */
window.sancho = {
  ready: openPage(),

  get busy() {
    const { chosen } = story;
    const tried = board.game?.pending || duel.isBusy || switches.run;
    const work = story.running || reading.run || tried;
    return Boolean(work || (chosen && asking.moment?.i !== chosen));
  },

  look(text) {
    const { block_size, n_head } = app.model.config;
    const reader = new Reader(app.model);
    const ids = knownIds(text).slice(-block_size);
    while (reader.length < ids.length) reader.readSome(ids.slice(reader.length));
    const t = ids.length - 1;
    const { blocks } = reader.look(t);
    const streams = [blocks[0].input, ...blocks.map(({ output }) => output)];
    const weights = (layer, head) => Array.from(reader.attention(layer, head, t).weights);
    return {
      logits: streams.map((x) => Array.from(app.model.logits(x))),
      attention: blocks.map((block, layer) =>
        Array.from({ length: n_head }, (_, head) => weights(layer, head)),
      ),
    };
  },

  async write(text, n, { seed = app.facts.seed, ...options } = {}) {
    const settings = { ...app.facts.sampling, ...options };
    return app.vocabulary.decode(await writtenAfter(knownIds(text), n, app.model, settings, seed));
  },
};

/** Says whether a sentence has just ended, its point and a blank after it. */
function sentenceEnded() {
  return /[.!?…][»”")]*\s$/.test(app.vocabulary.decode(story.ids.slice(-4)));
}

/** Opens what a new address asks for. Who goes back or forward keeps what is on show. */
function heedAddress() {
  if (history.state) return;
  history.replaceState(SEEN, '');
  openLinkedGame();
  openAddress();
}

/** Writes a first text, or what the address asks for. */
function writeFirst() {
  const asked = openAddress();
  if (asked) return asked;
  newStory(startIds(app.vocabulary.encode(app.facts.start).ids), app.facts.start);
  const [least, most] = FIRST_TEXT;
  return goOn((n) => n >= most || (n >= least && sentenceEnded()));
}

/** Compares the rest of the proof, when there is time. */
async function compareOn() {
  const breath = breather();
  while (!app.comparison.next().done) await breath();
}

/** Says in a line why the page does not write, in place of all that it would show. */
function refuse({ message, cause }) {
  stopWriting();
  const isOurs = message in app.facts.strings;
  const line = isOurs ? say(message, cause) : say('not_opened', { error: message });
  document.querySelector('main').hidden = true;
  document.querySelector('header').after(element('p', { class: 'notice', role: 'alert' }, line));
}

window.sancho.ready.then(async () => {
  $('estado').textContent = '';
  addEventListener('hashchange', heedAddress);
  history.replaceState(SEEN, '');
  const writing = writeFirst();
  restoreDrafts();
  if (app.facts.taught && !$('duelo').hidden) await playRound();
  await writing;
  await compareOn().catch(refuse);
}, refuse);
