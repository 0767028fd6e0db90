// The beginning: unpack, open every part, write a first text. And functions for the console.

const FIRST_TEXT = [200, 1000]; // letters; between the two it ends with a sentence, if it can

async function open() {
  app.facts = JSON.parse($('facts').textContent);
  const { config, characters, nearest, precision, layout } = app.facts;
  const planes = await inflate($('weights').textContent);
  app.model = new GPT(config, namedWeights(numbersOf(planes, precision), layout));
  app.vocabulary = new Vocabulary(characters, nearest);
  openWriting();
  openAsking();
  openComparison();
  openSurprise();
  openAbout();
}

/** Returns the ids of a text. Throws where it holds unknown characters, or nothing. */
function knownIds(text) {
  const { ids, unknown } = app.vocabulary.encode(String(text));
  if (unknown.length) throw new Error(`El modelo nunca ha visto ${describeUnknown(unknown)}`);
  if (!ids.length) throw new Error('El texto está vacío');
  return ids;
}

window.sancho = {
  /** Resolves when the model can be used. */
  ready: open(),

  /** Returns the logits of what comes after a text, an array of V numbers. */
  logits(text) {
    const reader = new Reader(app.model);
    const ids = knownIds(text).slice(-app.model.config.block_size);
    return Array.from(ids.map((id, i) => reader.read(id, i === ids.length - 1)).pop());
  },

  /** Resolves to the n characters that sample.py writes after a text with the same options. */
  async write(text, n, { seed = app.facts.seed, ...options } = {}) {
    const settings = { ...app.facts.sampling, ...options };
    const writer = new Writer(app.model, knownIds(text), settings, seed);
    const breath = breather();
    const ids = [];
    while (ids.length < n) {
      const id = writer.step();
      if (id !== null) ids.push(id);
      await breath();
    }
    return app.vocabulary.decode(ids);
  },
};

/** Says whether a sentence has just ended, its point and a blank after it. */
function sentenceEnded() {
  return /[.!?…][»”")]*\s$/.test(app.vocabulary.decode(story.ids.slice(-4)));
}

window.sancho.ready.then(
  () => {
    $('estado').textContent = '';
    newStory(startIds(app.vocabulary.encode(app.facts.start).ids));
    const [least, most] = FIRST_TEXT;
    return goOn((n) => n >= most || (n >= least && sentenceEnded()));
  },
  (error) => {
    $('estado').textContent =
      `El modelo no se pudo abrir (${error.message}). Prueba con un navegador más reciente.`;
  },
);
