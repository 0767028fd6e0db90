// El viaje de una letra: the whole model as a house of rooms, and the numbers that are in each.

views.viaje = {
  open(box) {
    this.rooms = makeRooms();
    this.title = element('h3');
    this.text = element('p');
    this.numbers = element('div', { class: 'numbers-of-room' });
    this.link = element('p', { class: 'hint' });
    const step = (by, label, arrow) =>
      element(
        'button',
        { type: 'button', 'aria-label': label, onclick: () => this.step(by) },
        arrow,
      );
    this.room = element(
      'div',
      { class: 'room', role: 'region', tabindex: 0 },
      element(
        'div',
        { class: 'chosen' },
        step(-1, 'Sala anterior', '←'),
        this.title,
        step(1, 'Sala siguiente', '→'),
      ),
      this.text,
      this.numbers,
      this.link,
    );
    box.append(
      element(
        'p',
        { class: 'hint' },
        'El modelo entero, de arriba abajo, con sus medidas. Elige una sala y mira qué ' +
          'números deja en ella la última letra leída antes de la elegida.',
      ),
      element('div', { class: 'house' }, this.draw(), this.room),
    );
    this.enter(0);
  },

  show(moment) {
    this.moment = moment;
    this.fill();
  },

  /** Goes to a room; `follow` moves what is seen along with it. */
  enter(n, follow = false) {
    this.at = n;
    this.rooms.forEach((room, i) => {
      room.node.setAttribute('aria-pressed', i === n);
      room.node.setAttribute('tabindex', i === n ? 0 : -1);
    });
    this.room.setAttribute('aria-label', this.rooms[n].title);
    this.fill();
    if (follow)
      this.room.scrollIntoView({ block: 'nearest', behavior: calm() ? 'auto' : 'smooth' });
  },

  step(by) {
    this.enter(Math.max(0, Math.min(this.rooms.length - 1, this.at + by)));
  },

  fill() {
    const room = this.rooms[this.at];
    this.title.textContent = room.title;
    this.link.textContent = '';
    this.link.append(chapter(room.chapter), '.');
    this.numbers.textContent = '';
    this.text.textContent = '';
    if (!this.moment) return;
    this.text.textContent = room.say(this.moment);
    this.numbers.append(...room.show(this.moment));
  },

  /** Returns the drawing; each room gets its node. */
  draw() {
    const drawing = svg('svg', {
      class: 'plan',
      role: 'group',
      'aria-label': 'Las salas del modelo, de la entrada a la salida',
    });
    let y = 8;
    let block = null;
    const line = svg('path', { class: 'stream' });
    drawing.append(line);
    for (const room of this.rooms) {
      if (room.block !== block) {
        block = room.block;
        if (block !== undefined) {
          drawing.append(frame(y, block));
          y += 44;
        }
      }
      room.node = svg(
        'g',
        { class: `place ${room.shape}`, role: 'button' },
        svg('title', {}, room.title),
        ...SHAPES[room.shape](y, room),
      );
      room.node.addEventListener('click', () => this.enter(this.rooms.indexOf(room), true));
      room.node.addEventListener('keydown', (event) => this.key(event));
      drawing.append(room.node);
      y += HEIGHTS[room.shape];
    }
    line.setAttribute('d', `M40 20V${y - 20}`);
    drawing.setAttribute('viewBox', `0 0 300 ${y}`);
    return drawing;
  },

  key(event) {
    const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (by) {
      event.preventDefault();
      this.step(by);
      this.rooms[this.at].node.focus();
    } else if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      this.enter(this.at, true);
    }
  },
};

const calm = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

// --- the drawing ----------------------------------------------------------------------------

/** How far below a room the next one begins: a sum and its sublayer stand in one row. */
const HEIGHTS = { hall: 44, norm: 0, attention: 46, forward: 46, sum: 46 };

const SHAPES = {
  hall: (y, room) => [
    svg('rect', { x: 10, y, width: 280, height: 32, rx: 6 }),
    label(24, y + 20, room.title),
    label(278, y + 20, room.size, 'end'),
  ],
  norm: (y) => [
    svg('path', { class: 'wire', d: `M40 ${y}H70` }),
    svg('rect', { x: 70, y: y - 15, width: 58, height: 30, rx: 15 }),
    label(99, y + 4, 'norma', 'middle'),
  ],
  attention: (y, room) => [
    ...wires(y),
    svg('rect', { x: 144, y: y - 19, width: 140, height: 38, rx: 4 }),
    ...twoLines(y, 'atención', room.size),
  ],
  forward: (y, room) => [
    ...wires(y),
    svg('path', {
      class: 'body',
      d:
        `M144 ${y - 11}L166 ${y - 19}H262L284 ${y - 11}V${y + 11}L262 ${y + 19}H166L144 ` +
        `${y + 11}Z`,
    }),
    ...twoLines(y, 'feed-forward', room.size),
  ],
  sum: (y) => [
    svg('circle', { cx: 40, cy: y, r: 12 }),
    svg('path', { class: 'cross', d: `M34 ${y}H46M40 ${y - 6}V${y + 6}` }),
  ],
};

/** Returns the ways into a sublayer and from it back to the sum. */
function wires(y) {
  return [svg('path', { class: 'wire', d: `M128 ${y}H144M214 ${y + 19}V${y + 46}H52` })];
}

function twoLines(y, name, size) {
  return [label(214, y - 2, name, 'middle'), label(214, y + 12, size, 'middle')];
}

function label(x, y, text, anchor = 'start') {
  return svg('text', { x, y, 'text-anchor': anchor, 'aria-hidden': true }, text);
}

function frame(y, block) {
  return svg(
    'g',
    { 'aria-hidden': true },
    svg('rect', { class: 'frame', x: 2, y: y - 4, width: 296, height: 214, rx: 8 }),
    label(60, y + 14, `bloque ${block + 1}`),
  );
}

// --- the rooms ------------------------------------------------------------------------------

function makeRooms() {
  const { config } = app.model;
  const rooms = [letterRoom(), embeddingRoom()];
  if (config.ngram_size > 1) rooms.push(tableRoom());
  if (config.position !== 'rope') rooms.push(positionRoom());
  for (let block = 0; block < config.n_layer; block++) rooms.push(...blockRooms(block));
  return [...rooms, lastNormRoom(), headRoom(), softmaxRoom()];
}

const letterAt = (index) => app.vocabulary.characters[story.ids[index]];

/** Returns the length of a vector. */
const lengthOf = (x) => Math.sqrt(dot(x, 0, x, 0, x.length));

function letterRoom() {
  const V = app.model.config.vocab_size;
  return {
    title: 'La letra',
    size: `1 de ${V}`,
    shape: 'hall',
    chapter: '01_tokens',
    say: ({ i }) =>
      `Viaja la última letra leída, ${spoken(letterAt(i - 1))}. El modelo no ve su forma: ` +
      `para él es un número, su sitio en el vocabulario.`,
    show: ({ i }) => [
      element('p', { class: 'big' }, `${visible(letterAt(i - 1))} → ${story.ids[i - 1]}`),
    ],
  };
}

function embeddingRoom() {
  const C = app.model.config.n_embd;
  return {
    title: 'Embedding',
    size: `${C} números`,
    shape: 'hall',
    chapter: '02_embeddings_y_posiciones',
    say: () =>
      `El número se cambia por una fila de una tabla: ${C} números que el modelo aprendió y ` +
      `que dicen cómo se usa esa letra.`,
    show: ({ notes }) => [picture(notes.token, 'El vector de la letra')],
  };
}

function tableRoom() {
  const { ngram_size, ngram_rows } = app.model.config;
  return {
    title: 'Tabla de secuencias',
    size: `${thousands(ngram_rows)} filas`,
    shape: 'hall',
    chapter: '06_bloque_y_gpt',
    say: () =>
      `Las dos últimas letras juntas señalan una fila de una tabla grande; las tres últimas, ` +
      `otra; y así hasta ${ngram_size}. Esas filas se suman al embedding: lo que se repite ` +
      `mucho no hay que deducirlo, se recuerda.`,
    show: ({ notes, i, start }) => {
      const sum = new Float32Array(notes.token.length);
      const lines = notes.tableRows.map((row, n) => {
        const vector = app.model.row('ngram_embedding.weight', row);
        add(sum, vector);
        const from = Math.max(start, i - n - 2);
        const sequence = Array.from(story.ids.slice(from, i), (id) =>
          visible(app.vocabulary.characters[id]),
        );
        return tableRow(
          element('b', { class: 'glyph' }, sequence.join('')),
          thousands(row),
          decimals(lengthOf(vector)),
        );
      });
      return [
        element(
          'table',
          {},
          headRow('secuencia', 'fila', 'longitud'),
          element('tbody', {}, ...lines),
        ),
        picture(sum, 'La suma de esas filas'),
      ];
    },
  };
}

function positionRoom() {
  const { position, block_size } = app.model.config;
  const how = position === 'learned' ? 'aprendido' : 'hecho de senos y cosenos';
  return {
    title: 'Posición',
    size: `${thousands(block_size)} sitios`,
    shape: 'hall',
    chapter: '02_embeddings_y_posiciones',
    say: ({ t }) =>
      `La atención no sabe de orden. Por eso se suma un vector ${how} que dice en qué sitio ` +
      `del contexto está la letra: el ${t + 1}.`,
    show: ({ notes }) => [
      picture(notes.position, 'El vector del sitio'),
      picture(notes.embedding, 'La suma, que entra en el primer bloque'),
    ],
  };
}

function blockRooms(block) {
  const named = (room) => ({ ...room, block, title: `Bloque ${block + 1}: ${room.title}` });
  return [
    normRoom(block, 'norm1', 'input'),
    attentionRoom(block),
    sumRoom(block, 'input', 'attention', 'middle'),
    normRoom(block, 'norm2', 'middle'),
    forwardRoom(block),
    sumRoom(block, 'middle', 'feedForward', 'output'),
  ].map(named);
}

function normRoom(block, name, before) {
  const { norm, embedding_skip } = app.model.config;
  const what =
    norm === 'layernorm'
      ? 'LayerNorm resta la media y divide por la desviación típica'
      : 'RMSNorm divide por la raíz de la media de los cuadrados';
  const skip =
    embedding_skip && block && name === 'norm1'
      ? ` Antes se ha sumado otra vez el embedding, multiplicado por ` +
        `${decimals(app.model.weights.skips[block])}.`
      : '';
  return {
    title: name === 'norm1' ? 'norma de la atención' : 'norma de la feed-forward',
    shape: 'norm',
    chapter: '03_normalizacion_y_residuales',
    say: () =>
      `${what}: la subcapa recibe siempre números de la misma escala. Se normaliza una copia ` +
      `(pre-norm); la corriente sigue su camino sin tocar.${skip}`,
    show: ({ notes }) => [
      picture(notes.blocks[block][before], 'Lo que trae la corriente'),
      picture(notes.blocks[block][name], 'Normalizado'),
    ],
  };
}

function attentionRoom(block) {
  const { n_embd: C, n_head: H, head_size: D, position, qk_norm } = app.model.config;
  const turn =
    position === 'rope'
      ? ' Consultas y claves giran según su posición (RoPE): así se sabe a qué distancia está ' +
        'cada letra.'
      : '';
  const normed = qk_norm ? ' Las dos se normalizan antes de multiplicarse.' : '';
  return {
    title: 'atención',
    size: `${count(H, 'cabeza', 'cabezas')} de ${D}`,
    shape: 'attention',
    chapter: '04_autoatencion',
    say: () =>
      `El único lugar donde las letras se hablan. Cada cabeza compara su consulta con las ` +
      `claves de todo lo leído y mezcla los valores en esa proporción.${turn}${normed}`,
    show: ({ notes, reader, t, start }) => {
      const { qkv, mixed, attention } = notes.blocks[block];
      const heads = Array.from({ length: H }, (_, head) => {
        const { weights } = reader.attention(block, head, t);
        const s = ranking(weights)[0];
        const away = s === t ? 'ella misma' : `hace ${t - s}`;
        return tableRow(
          String(head + 1),
          element('b', { class: 'glyph' }, visible(letterAt(start + s))),
          away,
          percent(weights[s]),
        );
      });
      return [
        element(
          'table',
          {},
          headRow('cabeza', 'más mira', 'hace', 'peso'),
          element('tbody', {}, ...heads),
        ),
        picture(qkv.subarray(0, C), 'Consulta'),
        picture(qkv.subarray(C, 2 * C), 'Clave'),
        picture(qkv.subarray(2 * C), 'Valor'),
        picture(mixed, 'La mezcla de valores'),
        picture(attention, 'Lo que se suma a la corriente'),
      ];
    },
  };
}

function sumRoom(block, before, added, after) {
  return {
    title: added === 'attention' ? 'suma de la atención' : 'suma de la feed-forward',
    shape: 'sum',
    chapter: '03_normalizacion_y_residuales',
    say: ({ notes }) => {
      const parts = notes.blocks[block];
      const lengths = [before, added, after].map((name) => decimals(lengthOf(parts[name]), 1));
      return (
        `La corriente residual: nada se borra, se suma. Traía un vector de longitud ` +
        `${lengths[0]}; le llega uno de ${lengths[1]}; sale uno de ${lengths[2]}.`
      );
    },
    show: ({ notes }) => [
      picture(notes.blocks[block][added], 'Lo que se suma'),
      picture(notes.blocks[block][after], 'La corriente después'),
    ],
  };
}

function forwardRoom(block) {
  const { n_embd: C, hidden_size, is_gated, activation } = app.model.config;
  const name = ACTIVATION_NAMES[activation];
  return {
    title: 'feed-forward',
    size: `${C} → ${thousands(hidden_size)} → ${C}`,
    shape: 'forward',
    chapter: '05_feed_forward',
    say: ({ notes }) => {
      const gates = notes.blocks[block].expanded.subarray(is_gated ? hidden_size : 0);
      const awake = gates.filter((x) => x > 0).length;
      return (
        `El taller: cada letra piensa a solas. Se ensancha a ${thousands(hidden_size)} ` +
        `neuronas, ${name} decide cuáles se encienden y se vuelve a ${C}. Despiertas ahora: ` +
        `${thousands(awake)} de ${thousands(hidden_size)} (${percent(awake / hidden_size)}).`
      );
    },
    show: ({ notes }) => {
      const { expanded, active, feedForward } = notes.blocks[block];
      const wide = is_gated
        ? [
            picture(expanded.subarray(0, hidden_size), 'Contenido'),
            picture(expanded.subarray(hidden_size), 'Puerta'),
          ]
        : [picture(expanded, 'Ensanchado')];
      return [
        ...wide,
        picture(active, `Después de ${name}`),
        picture(feedForward, 'Lo que se suma a la corriente'),
      ];
    },
  };
}

function lastNormRoom() {
  return {
    title: 'Última norma',
    size: `${app.model.config.n_embd} números`,
    shape: 'hall',
    chapter: '07_salida',
    say: () =>
      'Lo que dejó el último bloque, puesto a una escala fija: desde aquí solo cuenta hacia ' +
      'dónde apunta.',
    show: ({ notes }) => [picture(notes.norm, 'Normalizado')],
  };
}

function headRoom() {
  const { vocab_size: V, tie_embeddings } = app.model.config;
  const tied = tie_embeddings ? ' Es la misma tabla del embedding, leída al revés.' : '';
  return {
    title: 'Cabeza',
    size: `${V} logits`,
    shape: 'hall',
    chapter: '07_salida',
    say: () =>
      `Cada una de las ${V} letras compara su fila con el vector: el producto son sus puntos, ` +
      `su logit.${tied}`,
    show: ({ logits }) => [
      picture(logits, 'Los logits'),
      bestTable(logits, (id) => decimals(logits[id]), 'logit'),
    ],
  };
}

function softmaxRoom() {
  return {
    title: 'Softmax',
    size: 'suman 1',
    shape: 'hall',
    chapter: '07_salida',
    say: ({ id }) =>
      `La exponencial hace positivos los puntos y una división los hace sumar 1. De estas ` +
      `probabilidades sale, por sorteo, la letra siguiente; la escrita es ` +
      `${spoken(app.vocabulary.characters[id])}.`,
    show: ({ logits }) => {
      const p = softmax(logits);
      return [
        bestTable(
          logits,
          (id) => percent(p[id]),
          'probabilidad',
          (id) => bar(p[id]),
        ),
      ];
    },
  };
}

function bestTable(logits, figure, name, extra = () => '') {
  const rows = ranking(logits)
    .slice(0, SHOWN)
    .map((id) =>
      tableRow(
        element('b', { class: 'glyph' }, visible(app.vocabulary.characters[id])),
        figure(id),
        extra(id),
      ),
    );
  return element('table', {}, headRow('letra', name, ''), element('tbody', {}, ...rows));
}
