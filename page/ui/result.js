// The result of a game: squares, a card worth a picture, and a button that sends what it says, with the page
// itself where no address leads to it.

import { app } from './app.js';
import { thisPage } from './drafts.js';
import { element } from './elements.js';
import { pageAddress } from './link.js';
import { fileName } from './titles.js';
import { say } from './words.js';

// By what a square holds: its look, its mark, for who sees no colours, what it is in a message.
const KINDS = {
  1: { name: 'won', mark: '✓', sent: '🟩' },
  0: { name: 'even', mark: '=', sent: '🟨' },
  '-1': { name: 'lost', mark: '✗', sent: '🟥' },
};

/** Returns squares as a message has them. */
export const squaresInText = (marks) => marks.map((mark) => KINDS[mark].sent).join('');

/** Returns squares as they are seen, `all` of them: those that have no mark yet are empty. */
export function squares(marks, all = marks.length) {
  const kinds = Array.from({ length: all }, (_, n) => KINDS[marks[n]]);
  const heard = kinds.map((kind) => say(kind ? `square_${kind.name}` : 'square_empty'));
  const label = say('squares', { marks: heard.join(', ') });
  const seen = kinds.map((kind) => element('span', { class: kind?.name ?? null }, kind?.mark ?? ''));
  return element('div', { class: 'squares', role: 'img', 'aria-label': label }, ...seen);
}

/** Returns a message, and the page of which no address is known, where a browser can send files. */
function whatToSend(text) {
  const message = { title: document.title, text };
  if (pageAddress() && !app.facts.taught) return message;
  const page = thisPage(document.documentElement.lang);
  const file = new File([page], fileName(document.title, 'html'), { type: page.type });
  const withPage = { ...message, files: [file] };
  return navigator.canShare?.(withPage) ? withPage : message;
}

/** The card of a game, at the beginning of an element. */
export class Result {
  constructor(box) {
    this.card = element('div', { class: 'card' });
    this.text = element('textarea', { rows: 5, readonly: true, hidden: true, 'aria-label': say('to_tell') });
    this.said = element('span', { role: 'status' });
    const press = () => this.send();
    const send = element('button', { type: 'button', class: 'primary', onclick: press }, say('send'));
    box.prepend(this.card, element('div', { class: 'row' }, send, this.said), this.text);
  }

  /**
   * Shows a result.
   *
   * figures: the large ones, each with a few words; marks: of the squares; about: what they are;
   * lines: of the message, to which the question and the address are added; place: after the address.
   */
  show({ title, figures, marks, about = [], lines, place = '' }) {
    const large = ([figure, words]) => element('span', {}, element('b', {}, String(figure)), ` ${words}`);
    const address = pageAddress();
    this.card.replaceChildren(
      element('p', { class: 'which' }, title),
      element('p', { class: 'score' }, ...figures.map(large)),
      ...about.map((words) => element('p', { class: 'hint' }, words)),
      squares(marks),
      element('p', { class: 'and-you' }, say('and_you')),
      element('p', { class: 'hint' }, address ? address.replace(/^\w+:\/\//, '') : document.title),
    );
    const message = [...lines, say('and_you'), address && address + place];
    this.text.value = message.filter(Boolean).join('\n');
    this.text.hidden = true;
    this.said.textContent = '';
  }

  async send() {
    if (!navigator.share) return this.copy();
    try {
      await navigator.share(whatToSend(this.text.value));
    } catch (error) {
      if (error.name !== 'AbortError') this.copy(); // whoever closes the list sends nothing
    }
  }

  copy() {
    this.text.hidden = false;
    this.text.select();
    // Other than navigator.clipboard, this works in pages that no https brought, too.
    const isCopied = document.execCommand('copy');
    this.said.textContent = say(isCopied ? 'copied' : 'copy_yourself');
  }
}
