// El viaje: a letter's way through the model, station by station, and what the model would say if
// it ended there (the logit lens).

const GUESSES = 5;

views.viaje = {
  at: 0,
  timer: null,
  seen: false,
  pause: 2500, // ms that the walk stays at a station

  open(box) {
    this.stations = makeStations();
    this.stations.forEach((station, n) => this.makeStop(station, n));
    this.walker = element('b', { class: 'walker', 'aria-hidden': true });
    this.written = element('span');
    this.list = element(
      'fieldset',
      { class: 'stations' },
      element('legend', { class: 'hidden' }, 'Estaciones del viaje'),
      element(
        'p',
        { class: 'station names', 'aria-hidden': true },
        element('span', {}, 'después de'),
        element('span', {}, 'diría'),
        this.written,
      ),
      this.walker,
      ...this.stations.map((station) => station.stop),
    );
    this.title = element('h3');
    this.text = element('p');
    this.shown = element('div');
    this.numbers = element(
      'details',
      {},
      element('summary', {}, 'Todos los números'),
      element('div'),
    );
    this.numbers.addEventListener('toggle', () => this.fillNumbers());
    this.links = hint();
    this.here = element(
      'div',
      { class: 'stop', role: 'region' },
      this.title,
      this.text,
      this.shown,
      this.numbers,
      this.links,
    );
    box.append(
      hint(
        'La última letra leída baja por el modelo. En cada estación, lo que diría el modelo si ' +
          'terminara ahí. ',
        chapter('11_rayos_x'),
        '.',
      ),
      this.makeButtons(),
      element('div', { class: 'journey' }, this.list, this.here),
    );
    this.enter(0);
  },

  makeStop(station, n) {
    const input = element('input', { type: 'radio', name: 'estacion' });
    input.addEventListener('change', () => this.choose(n));
    const parts = {
      glyph: glyph(''),
      chance: element('span'),
      share: element('span'),
      bar: bar(0),
    };
    const block = station.opens ? `bloque ${station.block + 1} ` : '';
    station.stop = element(
      'label',
      { class: station.opens ? 'station first' : 'station' },
      input,
      element('span', {}, element('small', {}, block), station.name),
      element('span', { class: 'guess' }, parts.glyph, parts.chance),
      element('span', { class: 'given' }, parts.share, parts.bar),
    );
    Object.assign(station, parts, { input });
  },

  makeButtons() {
    const button = (words, onclick, label = null) =>
      element('button', { type: 'button', onclick, 'aria-label': label }, words);
    const step = (by) => () => {
      this.choose(Math.max(0, Math.min(this.stations.length - 1, this.at + by)));
      $('dicho').textContent = this.stations[this.at].input.getAttribute('aria-label');
    };
    this.start = button('', () => (this.timer ? this.halt() : this.walk()));
    return element(
      'div',
      { class: 'row walk' },
      button('←', step(-1), 'Estación anterior'),
      this.start,
      button('→', step(1), 'Estación siguiente'),
    );
  },

  /** Shows a moment. The walk begins by itself the first time, unless no motion is wanted. */
  show(moment) {
    this.moment = moment;
    this.written.textContent = `da a «${visible(characterOf(moment.id))}»`;
    this.stations.forEach((station) => fillStop(station, moment));
    this.enter(this.at);
    if (this.timer || this.seen || calm()) return;
    this.walk();
  },

  walk() {
    this.seen = true;
    if (this.at === this.stations.length - 1) this.enter(0);
    this.timer = setInterval(() => this.advance(), this.pause);
    this.enter(this.at);
  },

  advance() {
    if (asking.view !== 'viaje' || !this.moment) return this.halt();
    this.enter(this.at + 1);
    if (this.at === this.stations.length - 1) this.halt();
  },

  halt() {
    clearInterval(this.timer);
    this.timer = null;
    this.seen = true;
    this.enter(this.at);
  },

  /** Goes to a station by hand. */
  choose(n) {
    this.at = n;
    this.halt();
  },

  enter(n) {
    this.at = n;
    this.start.textContent = this.timer ? 'Para' : 'Recorre';
    this.list.classList.toggle('walking', Boolean(this.timer));
    this.list.style.setProperty('--at', n);
    this.stations.forEach(({ stop, input }, i) => {
      input.checked = i === n;
      stop.classList.toggle('ahead', i > n);
    });
    if (this.moment) this.describe();
  },

  describe() {
    const { moment } = this;
    const station = this.stations[this.at];
    this.walker.textContent = station.glyph.textContent;
    this.title.textContent = titleOf(station);
    this.here.setAttribute('aria-label', titleOf(station));
    this.text.textContent = station.say(moment);
    this.shown.replaceChildren(...(station.show ? station.show(moment) : []));
    if (station.stream) this.shown.append(guessTable(station, moment));
    this.links.replaceChildren();
    for (const file of station.chapters) this.links.append(chapter(file), '. ');
    this.fillNumbers();
  },

  fillNumbers() {
    if (!this.moment) return;
    const vectors = this.stations[this.at].vectors(this.moment);
    this.numbers.hidden = !vectors.length;
    const pictures = this.numbers.open ? vectors.map(([title, x]) => picture(x, title)) : [];
    this.numbers.lastChild.replaceChildren(...pictures);
  },
};

const calm = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

function titleOf({ name, block }) {
  return block === undefined ? name : `Bloque ${block + 1}: ${name}`;
}

/** Says at a stop what the model would say there, and what it would give to the letter written. */
function fillStop(station, moment) {
  const { characters } = app.vocabulary;
  const heard = [titleOf(station)];
  let [best, chance, share] = [story.ids[moment.i - 1], '', ''];
  if (station.stream) {
    const p = softmax(app.model.logits(station.stream(moment)));
    best = ranking(p)[0];
    chance = (best === moment.id ? '✓ ' : '') + shortPercent(p[best]);
    share = shortPercent(p[moment.id]);
    station.bar.firstChild.style.width = `${100 * p[moment.id]}%`;
    heard.push(`diría ${spoken(characters[best])}, ${chance}; la escrita, ${share}`);
  }
  station.bar.hidden = !station.stream;
  station.glyph.textContent = visible(characters[best]);
  station.chance.textContent = chance;
  station.share.textContent = share;
  station.input.setAttribute('aria-label', heard.join(': '));
}

/** Returns a table of what the output head makes of a residual stream. */
function guessTable({ stream }, moment) {
  const p = softmax(app.model.logits(stream(moment)));
  const shown = ranking(p).slice(0, GUESSES);
  if (!shown.includes(moment.id)) shown.push(moment.id);
  const rows = shown.map((id) => [
    glyph(visible(characterOf(id))),
    percent(p[id]),
    bar(p[id]),
    id === moment.id ? '✓ escrita' : '',
  ]);
  const caption = stream === lastStream ? 'Lo que dice el modelo' : 'Si el modelo terminara aquí';
  return table(caption, ['letra', 'probabilidad', '', ''], rows, { class: 'guesses' });
}

// --- the stations ---------------------------------------------------------------------------
//
// name; chapters; say(moment): a text; vectors(moment): [title, numbers], …; and some of these:
// block; show(moment): nodes; stream(moment): what the output head can read there.

function makeStations() {
  const { config } = app.model;
  const stations = [letterStation(), embeddingStation()];
  if (config.ngram_size > 1) stations.push(tableStation());
  if (config.position !== 'rope') stations.push(positionStation());
  for (let block = 0; block < config.n_layer; block++) {
    stations.push(attentionStation(block), forwardStation(block));
  }
  return [...stations, headStation(), softmaxStation()];
}

/** Returns the length of a vector. */
const lengthOf = (x) => Math.sqrt(dot(x, 0, x, 0, x.length));

function letterStation() {
  const V = app.model.config.vocab_size;
  return {
    name: 'La letra',
    chapters: ['01_tokens'],
    say: ({ i }) =>
      `Entra la última letra leída, ${spoken(letterAt(i - 1))}. El modelo no ve su forma: para ` +
      `él es un número, su sitio entre los ${V} del vocabulario.`,
    show: ({ i }) => [
      element('p', { class: 'big' }, `${visible(letterAt(i - 1))} → ${story.ids[i - 1]}`),
    ],
    vectors: () => [],
  };
}

function embeddingStation() {
  const C = app.model.config.n_embd;
  return {
    name: 'Embedding',
    chapters: ['02_embeddings_y_posiciones'],
    say: () =>
      `El número se cambia por una fila de una tabla: ${C} números que el modelo aprendió y que ` +
      `dicen cómo se usa esa letra. Aquí nace la corriente residual, que baja por todo el modelo.`,
    vectors: ({ notes }) => [['El vector de la letra', notes.token]],
    stream: ({ notes }) => notes.token,
  };
}

function tableStation() {
  const { ngram_size, n_embd } = app.model.config;
  const keys = app.model.weights[NGRAM_KEYS];
  const known = keys && thousands(countLess(keys, NO_KEY));
  const added = ({ notes }, sum = new Float32Array(n_embd)) => {
    for (const row of notes.tableRows) add(sum, app.model.row('ngram_embedding.weight', row));
    return sum;
  };
  return {
    name: 'Tabla de secuencias',
    chapters: ['06_bloque_y_gpt'],
    say: () =>
      (keys
        ? `Las dos últimas letras juntas son una secuencia; las tres últimas, otra; y así hasta ` +
          `${ngram_size}. En una tabla grande, cada una de las ${known} secuencias más ` +
          `frecuentes tiene su propia fila, y todas las demás comparten la última.`
        : `Las dos últimas letras juntas señalan una fila de una tabla grande; las tres últimas, ` +
          `otra; y así hasta ${ngram_size}.`) +
      ` Esas filas se suman al embedding: lo que se repite mucho no hay que deducirlo, se ` +
      `recuerda.`,
    show: ({ notes, i, start }) => {
      const rows = notes.tableRows.map((row, n) => {
        const from = Math.max(start, i - n - 2);
        const sequence = story.ids.slice(from, i).map(characterOf).map(visible);
        const vector = app.model.row('ngram_embedding.weight', row);
        const isShared = keys && row === keys.length - 1;
        const place = isShared ? 'la última' : thousands(row);
        return [glyph(sequence.join('')), place, decimals(lengthOf(vector))];
      });
      return [table('', ['secuencia', 'fila', 'longitud'], rows)];
    },
    vectors: (moment) => [['La suma de esas filas', added(moment)]],
    stream: (moment) => added(moment, moment.notes.token.slice()),
  };
}

function positionStation() {
  const how = app.model.config.position === 'learned' ? 'aprendido' : 'hecho de senos y cosenos';
  return {
    name: 'Posición',
    chapters: ['02_embeddings_y_posiciones'],
    say: ({ t }) =>
      `La atención no sabe de orden. Por eso se suma un vector ${how} que dice en qué posición ` +
      `de la ventana está la letra: la ${t + 1}.`,
    vectors: ({ notes }) => [
      ['El vector de la posición', notes.position],
      ['La suma, que entra en el primer bloque', notes.embedding],
    ],
    stream: ({ notes }) => notes.embedding,
  };
}

/** Says what a sum does to the residual stream. */
function sumInWords(before, added, after) {
  const [a, b, c] = [before, added, after].map((x) => decimals(lengthOf(x), 1));
  return (
    `Nada se borra, se suma: a un vector de longitud ${a} le llega uno de ${b}, y sale uno de ` +
    `${c}.`
  );
}

function attentionStation(block) {
  const { n_embd: C, n_head: H, position, qk_norm, embedding_skip } = app.model.config;
  const turn =
    position === 'rope'
      ? ' Consultas y claves giran según su posición (RoPE): así se sabe a qué distancia está ' +
        'cada letra.'
      : '';
  const normed = qk_norm ? ' Las dos se normalizan antes de multiplicarse.' : '';
  const skip =
    embedding_skip && block
      ? `Primero se suma otra vez el embedding, por ${decimals(app.model.weights.skips[block])}. `
      : '';
  return {
    name: 'atención',
    block,
    opens: true,
    chapters: ['04_autoatencion', '03_normalizacion_y_residuales'],
    say: ({ notes }) => {
      const { input, attention, middle } = notes.blocks[block];
      return (
        `${skip}El único lugar donde las letras se hablan. Cada cabeza lee una copia normalizada ` +
        `de la corriente, compara su consulta con las claves de todo lo leído y mezcla los ` +
        `valores en esa proporción.${turn}${normed} ${sumInWords(input, attention, middle)}`
      );
    },
    show: ({ reader, t, start }) => {
      const heads = Array.from({ length: H }, (_, head) => {
        const { weights } = reader.attention(block, head, t);
        const s = ranking(weights)[0];
        const away = s === t ? 'ella misma' : String(t - s);
        return [String(head + 1), glyph(visible(letterAt(start + s))), away, percent(weights[s])];
      });
      return [table('', ['cabeza', 'más mira', 'hace', 'peso'], heads)];
    },
    vectors: ({ notes }) => {
      const { input, norm1, qkv, mixed, attention, middle } = notes.blocks[block];
      return [
        ['Lo que trae la corriente', input],
        ['Normalizado', norm1],
        ['Consulta', qkv.subarray(0, C)],
        ['Clave', qkv.subarray(C, 2 * C)],
        ['Valor', qkv.subarray(2 * C)],
        ['La mezcla de valores', mixed],
        ['Lo que se suma', attention],
        ['La corriente después', middle],
      ];
    },
    stream: ({ notes }) => notes.blocks[block].middle,
  };
}

function forwardStation(block) {
  const { n_embd: C, hidden_size, is_gated, activation } = app.model.config;
  const name = ACTIVATION_NAMES[activation];
  return {
    name: 'feed-forward',
    block,
    chapters: ['05_feed_forward', '03_normalizacion_y_residuales'],
    say: ({ notes }) => {
      const { expanded, middle, feedForward, output } = notes.blocks[block];
      const awake = expanded.subarray(is_gated ? hidden_size : 0).filter((x) => x > 0).length;
      return (
        `Cada letra, por su cuenta: otra copia normalizada se ensancha a ` +
        `${thousands(hidden_size)} neuronas, ${name} decide cuáles se encienden y se vuelve a ` +
        `${C}. Despiertas ahora: ${thousands(awake)} de ${thousands(hidden_size)} ` +
        `(${percent(awake / hidden_size)}). ${sumInWords(middle, feedForward, output)}`
      );
    },
    vectors: ({ notes }) => {
      const { middle, norm2, expanded, active, feedForward, output } = notes.blocks[block];
      const wide = is_gated
        ? [
            ['Contenido', expanded.subarray(0, hidden_size)],
            ['Puerta', expanded.subarray(hidden_size)],
          ]
        : [['Ensanchado', expanded]];
      return [
        ['Lo que trae la corriente', middle],
        ['Normalizado', norm2],
        ...wide,
        [`Después de ${name}`, active],
        ['Lo que se suma', feedForward],
        ['La corriente después', output],
      ];
    },
    stream: ({ notes }) => notes.blocks[block].output,
  };
}

const lastStream = ({ notes }) => notes.blocks[notes.blocks.length - 1].output;

function headStation() {
  const { vocab_size: V, tie_embeddings } = app.model.config;
  const norm =
    app.model.config.norm === 'layernorm'
      ? 'LayerNorm: se resta la media y se divide por la desviación típica'
      : 'RMSNorm: se divide por la raíz de la media de los cuadrados';
  const tied = tie_embeddings ? ' Es la misma tabla del embedding, leída al revés.' : '';
  return {
    name: 'Cabeza de salida',
    chapters: ['07_salida'],
    say: () =>
      `La corriente se normaliza por última vez (${norm}): ya solo cuenta hacia dónde apunta. ` +
      `Cada una de las ${V} letras compara su fila con ella, y el producto son sus puntos, su ` +
      `logit.${tied}`,
    vectors: ({ notes, logits }) => [
      ['Normalizado', notes.norm],
      ['Los logits', logits],
    ],
    stream: lastStream,
  };
}

function softmaxStation() {
  return {
    name: 'Probabilidades',
    chapters: ['07_salida', '09_generacion'],
    say: ({ id }) =>
      `Softmax: la exponencial hace positivos los puntos y una división los hace sumar 1. De ` +
      `estas probabilidades sale, por sorteo, la letra siguiente; la escrita es ` +
      `${spoken(characterOf(id))}.`,
    vectors: ({ logits }) => [['Las probabilidades', softmax(logits)]],
    stream: lastStream,
  };
}
