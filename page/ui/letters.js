// A text whose letters can be asked one by one: by pointer, by touch, by the arrow keys.

import { element } from './elements.js';

export class Letters {
  /** ask(i): a letter is pointed at (null: no more). choose(i): one was chosen. */
  constructor(box, { ask, choose }) {
    this.box = box;
    this.chosen = this.pointed = null;
    this.actions = { ask, choose };
    // Not pointerover: a text that moves under a resting pointer asks for nothing.
    box.addEventListener('pointermove', (event) => this._point(event));
    box.addEventListener('pointerleave', () => this._point(null));
    box.addEventListener('click', (event) => this._click(event));
    box.addEventListener('keydown', (event) => this._key(event));
  }

  get length() {
    return this.box.children.length;
  }

  clear() {
    this.box.textContent = '';
    this.chosen = this.pointed = null;
  }

  /** Adds letters; dress(span, i) may say how each of them looks. */
  add(characters, dress = () => {}) {
    const piece = document.createDocumentFragment();
    characters.forEach((character, i) => {
      const span = element('span', character === '\n' ? { class: 'newline' } : {}, character);
      dress(span, i);
      piece.append(span);
    });
    this.box.append(piece);
  }

  /** Shows which letter is chosen, and keeps it in sight. */
  mark(i) {
    if (this.chosen !== null) this.box.children[this.chosen]?.classList.remove('chosen-letter');
    this.chosen = i;
    const span = i === null ? null : this.box.children[i];
    if (!span) return;
    span.classList.add('chosen-letter');
    const [outer, inner] = [this.box.getBoundingClientRect(), span.getBoundingClientRect()];
    if (inner.top < outer.top || inner.bottom > outer.bottom) {
      this.box.scrollTop += inner.top - outer.top - outer.height / 3;
    }
  }

  _index(event) {
    const span = event.target;
    if (span.parentNode !== this.box) return null;
    return Array.prototype.indexOf.call(this.box.children, span);
  }

  _point(event) {
    if (event && (event.pointerType !== 'mouse' || event.buttons)) return;
    const i = event ? this._index(event) : null;
    if (i !== this.pointed) this.actions.ask(i);
    this.pointed = i;
  }

  _click(event) {
    const i = this._index(event);
    // Who selects a piece of text to copy it asks for no letter.
    if (i !== null && getSelection().isCollapsed) this.actions.choose(i);
  }

  _key(event) {
    const to = this._target(event.key);
    const isHeld = event.shiftKey || event.ctrlKey || event.metaKey || event.altKey;
    if (to === undefined || isHeld || !this.length) return;
    event.preventDefault();
    this.actions.choose(Math.max(0, Math.min(this.length - 1, to)));
  }

  _target(key) {
    const at = this.chosen ?? -1;
    if (key === 'ArrowDown') return this._line(at, 1);
    if (key === 'ArrowUp') return this._line(at, -1);
    return { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: this.length - 1 }[key];
  }

  /** Returns the letter above or below. */
  _line(at, step) {
    const spans = this.box.children;
    if (at < 0) return 0;
    const from = spans[at].getBoundingClientRect();
    let row = null;
    for (let i = at + step; i >= 0 && i < spans.length; i += step) {
      const place = spans[i].getBoundingClientRect();
      if (Math.abs(place.top - from.top) < 3) continue;
      row = row ?? place.top;
      if (Math.abs(place.top - row) >= 3) return i - step;
      if (step > 0 ? place.left >= from.left : place.left <= from.left) return i;
    }
    return step > 0 ? spans.length - 1 : 0;
  }
}

/** Returns a box for Letters. */
export function letterBox(label, kind = '') {
  return element('div', {
    class: `letters ${kind}`,
    dir: 'auto',
    role: 'textbox',
    'aria-readonly': true,
    'aria-multiline': true,
    tabindex: 0,
    'aria-label': label,
  });
}
