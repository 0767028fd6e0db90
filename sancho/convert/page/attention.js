// Dónde mira: how each head distributes its attention, for the letter that was read last.

const MAP_SIZE = 20; // positions on a side of the small pictures
const LEVELS = [0.03, 0.1, 0.3, 0.6]; // weights from which a square is darker
const AFTER = 12; // letters of the future that are shown, crossed out
const STRONGEST = 8;

views.mira = {
  head: 0,
  pointed: null,

  open(box) {
    const { n_layer, n_head } = app.model.config;
    this.pictures = [];
    const heads = element(
      'fieldset',
      { class: 'heads' },
      element('legend', {}, 'Elige una cabeza'),
    );
    for (let layer = 0; layer < n_layer; layer++) {
      const row = element('div', { class: 'layer' }, element('span', {}, `bloque ${layer + 1}`));
      for (let head = 0; head < n_head; head++) row.append(this.headChoice(layer, head, n_head));
      heads.append(row);
    }
    this.sentence = element('p', { class: 'verdict' });
    this.text = letterBox(
      'El texto que lee el modelo, más oscuro donde más mira la cabeza',
      'small',
    );
    this.letters = new Letters(this.text, {
      ask: (s) => this.point(s),
      choose: (s) => this.point(s, true),
    });
    this.detail = element('p', { class: 'detail', 'aria-live': 'polite' });
    this.strongest = element('div');
    box.append(
      hint(
        'Cada cuadro es una cabeza: una fila por letra que pregunta, una columna por letra a ' +
          'la que mira, las últimas veinte. Encima de la diagonal está el futuro: nadie mira ' +
          'allí. ',
        chapter('04_autoatencion'),
        '.',
      ),
      element(
        'div',
        { class: 'beside' },
        heads,
        element('div', {}, this.sentence, this.text, this.detail),
      ),
      this.strongest,
    );
  },

  headChoice(layer, head, n_head) {
    const number = layer * n_head + head;
    const label = `bloque ${layer + 1}, cabeza ${head + 1}`;
    const input = element('input', { type: 'radio', name: 'cabeza', 'aria-label': label });
    input.checked = number === this.head;
    input.addEventListener('change', () => {
      this.head = number;
      if (asking.moment) this.show(asking.moment);
    });
    const paths = LEVELS.map((_, level) => svg('path', { class: `level${level}` }));
    this.pictures.push({ layer, head, paths });
    const size = MAP_SIZE;
    const map = svg(
      'svg',
      { viewBox: `-0.5 -0.5 ${size + 1} ${size + 1}`, 'aria-hidden': true },
      svg('path', { class: 'past', d: `M0 0V${size}H${size}Z` }),
      ...paths,
    );
    return element('label', { class: 'head', title: label }, input, map);
  },

  show(moment) {
    const { reader, t } = moment;
    const { head_size: D } = app.model.config;
    this.pictures.forEach((one) => drawMap(one, reader, t));
    const { layer, head } = this.pictures[this.head];
    const { scores, weights } = reader.attention(layer, head, t);
    Object.assign(this, { moment, scores, weights, D, pointed: null });
    const asker = spoken(letterAt(moment.i - 1));
    this.sentence.textContent =
      `Bloque ${layer + 1}, cabeza ${head + 1}. Pregunta la última letra leída, ${asker}; ` +
      `los pesos de las ${t + 1} letras que puede ver suman 1.`;
    this.showText();
    this.showTable();
    this.point(null);
  },

  showText() {
    const { start, t } = this.moment;
    const characters = story.ids
      .slice(start, start + t + 1 + AFTER)
      .map(characterOf);
    const highest = Math.max(...this.weights);
    this.letters.clear();
    this.letters.add(characters, (span, s) => {
      if (s > t) span.classList.add('future');
      else span.style.setProperty('--tint-share', `${100 * Math.sqrt(this.weights[s] / highest)}%`);
      if (s === t) span.classList.add('asker');
    });
    const here = this.text.children[t];
    this.text.scrollTop = here.offsetTop - this.text.offsetTop - this.text.clientHeight / 2;
  },

  showTable() {
    const { t } = this.moment;
    const order = ranking(this.weights).slice(0, STRONGEST);
    const rows = order.map((s) => [
      glyph(visible(letterAt(this.moment.start + s))),
      t - s ? String(t - s) : 'ella misma',
      decimals(this.scores[s]),
      percent(this.weights[s]),
      bar(this.weights[s]),
    ]);
    // Always as many rows, so that nothing below moves.
    while (rows.length < STRONGEST) rows.push(['\u00a0', '', '', '', '']);
    this.strongest.replaceChildren(
      table('A lo que más mira', ['letra', 'hace', 'q · k / √D', 'peso', ''], rows),
    );
  },

  /** Says what a letter gets; by default the one that gets most. */
  point(s, stays = false) {
    if (!this.moment) return;
    if (stays) {
      this.pointed = s;
      this.letters.mark(s);
    }
    const at = s ?? this.pointed ?? ranking(this.weights)[0];
    const { t } = this.moment;
    const name = spoken(letterAt(this.moment.start + at));
    const away = at === t ? 'ella misma' : `hace ${count(t - at, 'letra', 'letras')}`;
    this.detail.textContent =
      at > t
        ? `${name}: todavía no se ha leído. Su puntuación es −∞ y su peso, exactamente 0.`
        : `${name}, ${away}: consulta · clave / √${this.D} = ${decimals(this.scores[at])}; ` +
          `después de softmax, ${percent(this.weights[at])}.`;
  },
};

/** Draws the weights of the last positions: rows ask, columns are looked at. */
function drawMap({ layer, head, paths }, reader, t) {
  const first = Math.max(0, t - MAP_SIZE + 1);
  const squares = LEVELS.map(() => '');
  for (let row = first; row <= t; row++) {
    const { weights } = reader.attention(layer, head, row);
    for (let s = first; s <= row; s++) {
      const level = LEVELS.filter((least) => weights[s] >= least).length - 1;
      if (level >= 0) squares[level] += `M${s - first} ${row - first}h1v1h-1z`;
    }
  }
  paths.forEach((path, level) => path.setAttribute('d', squares[level]));
}
