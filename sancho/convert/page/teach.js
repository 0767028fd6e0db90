// Enséñale otro libro: a new model learns a text in front of whoever opened the page.

const LEAST_LETTERS = 3000; // of a text; with fewer there is nothing to measure the loss on
const FIRST_POINTS = 3; // from so many on the curve is drawn
const MOST_WORKERS = 4; // they share the eight windows of a batch
const OVERHEAD = 1.6; // a step takes so much more than its windows: workers share a memory, and the optimizer
const SLOW = 0.5; // seconds; where a step of the larger model takes longer, the smaller one learns
const PACE_KNOWN = 3; // seconds of steps, after which their pace decides how many there will be
const AT_THE_END = 10; // steps that take as long as to measure the loss and to keep the model

/** The text that was given, then the workers, what they told, and the model since they stopped. */
const teaching = { text: null, workers: [], points: [], result: null, plan: null };

const teachingSays = (key, values) => ($('aprendizaje').textContent = say(key, values));

// --- the text -------------------------------------------------------------------------------

/** Takes a text to learn from, or says why it can't be. */
function takeText(raw, name) {
  const text = cleanText(raw);
  const letters = text.length;
  if (letters < LEAST_LETTERS) return refuseText(say('text_too_short', { n: letters, least: LEAST_LETTERS }));
  teaching.text = { name, ...splitText(text) };
  teaching.result = null;
  $('leido').textContent = textInWords();
  $('aprender').disabled = false;
  $('guardar').hidden = $('continuar').hidden = true;
}

function textInWords() {
  const { name, characters, train, val } = teaching.text;
  return say('text_taken', { name, n: train.length + val.length, kinds: characters.length });
}

function refuseText(why) {
  teaching.text = null;
  $('leido').textContent = why;
  $('aprender').disabled = true;
}

async function takeFile(file, encoding = 'utf-8') {
  $('como-windows').hidden = true;
  if (file.size > LARGEST_TEXT) {
    return refuseText(say('text_too_large', { name: file.name, n: LARGEST_TEXT / 1e6 }));
  }
  const raw = decoded(await file.arrayBuffer(), encoding);
  if (raw !== null) return takeText(raw, file.name.replace(/\.\w+$/, ''));
  refuseText(say('not_utf8', { name: file.name }));
  $('como-windows').hidden = false;
}

async function takeSample() {
  const bytes = await inflate(app.facts.teaching.sample);
  takeText(decoded(bytes), app.facts.teaching.sample_name);
}

// --- learning -------------------------------------------------------------------------------

/** Returns the kernel's bytes, or null where the browser has no WebAssembly with SIMD. */
function kernelBytes() {
  const bytes = Uint8Array.from(atob(app.facts.teaching.kernel), (letter) => letter.charCodeAt(0));
  return typeof WebAssembly === 'object' && WebAssembly.validate(bytes) ? bytes : null;
}

/** Returns a worker with the scripts that train. */
function newWorker(heed) {
  const source = `${$('engine').textContent}\nserveTraining();`;
  const address = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
  const worker = new Worker(address);
  URL.revokeObjectURL(address);
  worker.onmessage = ({ data }) => heed(data);
  worker.onerror = ({ message }) => heed({ error: message });
  return worker;
}

/** Returns a promise of the seconds that a window of a model takes. */
function trial(config, kernel) {
  return new Promise((resolve, reject) => {
    const worker = newWorker(({ trial: seconds, error }) => {
      worker.terminate();
      if (error) reject(new Error(error));
      else resolve(seconds);
    });
    worker.postMessage({ trial: true, config, kernel });
  });
}

async function learn() {
  const clicked = performance.now();
  setLearning(true);
  teachingSays('trying_pace');
  const { text } = teaching;
  const kernel = kernelBytes();
  $('sin-nucleo').hidden = kernel !== null;
  const workers = workersToUse();
  try {
    const { models, train: how } = app.facts.teaching;
    const [first, smaller] = models.map((m) => ({ ...m, vocab_size: text.characters.length }));
    const share = (OVERHEAD * how.batch_size) / workers;
    let [config, seconds] = [first, share * (await trial(first, kernel))];
    if (seconds > SLOW) [config, seconds] = [smaller, share * (await trial(smaller, kernel))];
    const asked = 60 * Number($('tiempo').value);
    const steps = Math.floor(asked / seconds);
    const options = optionsFor(text.train.length, config, steps, app.facts.teaching);
    const end = clicked + 1000 * asked;
    teaching.points = [];
    const isSmall = config === smaller;
    teaching.plan = { config, options, kernel, workers, isSmall, end, seconds: 0 };
    await keepForLater('state', null); // it is of another text
    await keepForLater('text', text);
    train(null, null);
  } catch (error) {
    failed(error.message);
  }
}

function workersToUse() {
  const cores = Math.min(MOST_WORKERS, navigator.hardwareConcurrency ?? 1);
  return 2 ** Math.floor(Math.log2(cores));
}

/** Lets all workers train, from the weights and the memory of a result, or anew. */
function train(weights, memory) {
  const { text, plan } = teaching;
  setLearning(true);
  $('retomar').hidden = true;
  const { workers: count } = plan;
  const prompt = [text.characters.includes('\n') ? text.characters.indexOf('\n') : 0];
  const hear = (rank) => (told) => rank === 0 || told.error ? heed(told) : null;
  teaching.workers = Array.from({ length: count }, (_, rank) => newWorker(hear(rank)));
  const ports = teaching.workers.map(() => []);
  for (let i = 0; i < count; i++) {
    for (let j = i + 1; j < count; j++) {
      const { port1, port2 } = new MessageChannel();
      ports[i].push(port1);
      ports[j].push(port2);
    }
  }
  teaching.since = performance.now();
  teaching.first = null;
  const { config, options, kernel } = plan;
  const common = { config, options, kernel, weights, memory, count, prompt };
  teaching.workers.forEach((worker, rank) => {
    const parts = { train: text.train, val: text.val, rank };
    worker.postMessage({ ...common, ...parts }, ports[rank]);
  });
}

/** What the first worker tells. */
function heed(told) {
  if (told.error) return failed(told.error);
  if (told.text) showLearned(told.text);
  if (told.step) showStep(told);
  if (told.done) finish(told);
  else if (told.weights) keepState(told);
}

function showStep({ step, loss }) {
  const { plan, points } = teaching;
  const now = performance.now();
  points.push([step, loss, null]);
  teaching.first ??= { step, now };
  const { first } = teaching;
  if (step === first.step) return;
  const pace = (now - first.now) / 1000 / (step - first.step);
  if (plan.end && now - first.now > 1000 * PACE_KNOWN) planByPace(step, pace);
  const left = pace * (plan.options.max_iters - step);
  $('progreso').value = step / plan.options.max_iters;
  const nats = loss.toFixed(2);
  const said = { step, steps: plan.options.max_iters, nats, left: duration(Math.ceil(left)) };
  teachingSays(plan.isSmall ? 'learning_small' : 'learning', said);
  drawLearning();
}

/** Plans as many steps as fit into the time that was asked for. */
function planByPace(step, pace) {
  const { plan, text, workers } = teaching;
  const left = (plan.end - performance.now()) / 1000 / pace - AT_THE_END;
  const steps = step + Math.floor(left);
  plan.options = optionsFor(text.train.length, plan.config, steps, app.facts.teaching);
  plan.end = null;
  workers[0].postMessage({ planned: plan.options });
}

function drawLearning() {
  if (teaching.points.length < FIRST_POINTS) return;
  const every = Math.ceil(teaching.points.length / 200);
  const shown = teaching.points.filter(([, , val], i) => i % every === 0 || val !== null);
  const caption = element('p', { class: 'hint' }, say('curve_caption'));
  $('curva').replaceChildren(drawnCurve(shown), caption);
}

function showLearned(ids) {
  $('escrito').textContent = ids.map((id) => teaching.text.characters[id]).join('');
}

function finish({ loss, memory, weights }) {
  const { plan, points } = teaching;
  plan.seconds += (performance.now() - teaching.since) / 1000;
  points.push([memory.step, points.at(-1)?.[1] ?? loss, loss]);
  drawLearning();
  endWorkers();
  keepState({ loss, memory, weights });
  showResult({ loss, memory, weights });
}

function showResult({ loss, memory, weights }) {
  const { plan } = teaching;
  teaching.result = { loss, memory, weights };
  const isDone = memory.step >= plan.options.max_iters;
  const said = { step: memory.step, nats: loss.toFixed(2), time: duration(plan.seconds) };
  teachingSays(isDone ? 'has_learned' : 'was_stopped', said);
  $('continuar').textContent = say(isDone ? 'learn_longer' : 'learn_on');
  $('guardar').hidden = $('continuar').hidden = false;
}

/** Keeps what has been learned for another visit; says so where the browser does not allow it. */
async function keepState({ loss = null, memory, weights }) {
  const { plan, points } = teaching;
  const seconds = plan.seconds + (teaching.workers.length && performance.now() - teaching.since) / 1000;
  const state = { plan: { ...plan, seconds }, points, loss, memory, weights };
  $('no-guarda').hidden = await keepForLater('state', state);
}

/** Takes up what was learned before the page was closed. */
async function takeUp() {
  const [text, state] = await Promise.all([keptBefore('text'), keptBefore('state')]);
  const { plan, points, memory, weights } = state;
  Object.assign(teaching, { text, plan, points });
  $('leido').textContent = textInWords();
  $('retomar').hidden = true;
  drawLearning();
  showResult({ loss: state.loss ?? points.at(-1)[1], memory, weights });
}

/** Goes on: to the end that was planned, or, from there, as many steps again. */
function goOnLearning() {
  const { plan, result } = teaching;
  const { step } = result.memory;
  plan.end = null;
  if (step >= plan.options.max_iters) {
    plan.options = { ...plan.options, max_iters: 2 * step, warmup_iters: 0 };
  }
  train(result.weights, result.memory);
}

function failed(message) {
  endWorkers();
  teachingSays('learning_failed', { error: message });
}

function endWorkers() {
  for (const worker of teaching.workers) worker.terminate();
  teaching.workers = [];
  setLearning(false);
}

function setLearning(isOn) {
  $('parar').hidden = $('progreso').hidden = !isOn;
  $('progreso').removeAttribute('value'); // it moves by itself until the pace is known
  for (const id of ['muestra', 'archivo', 'pegado', 'tiempo']) $(id).disabled = isOn;
  $('aprender').disabled = isOn || !teaching.text;
  if (isOn) $('guardar').hidden = $('continuar').hidden = true;
}

// --- what was learned, as a page and as a file ----------------------------------------------

/** Returns what a page of the model that was learned knows. */
function learnedFacts() {
  const { text, plan, result, points } = teaching;
  const known = new Set(text.characters);
  const near = Object.entries(app.facts.nearest);
  const sizes = Object.entries(result.weights).filter(([name]) => name !== NGRAM_KEYS);
  const start = Array.from(app.facts.start).every((letter) => known.has(letter));
  return {
    config: plan.config,
    characters: text.characters.join(''),
    nearest: Object.fromEntries(near.filter(([far, to]) => known.has(to) && !known.has(far))),
    start: start ? app.facts.start : '',
    parameters: sizes.reduce((sum, [, { length }]) => sum + length, 0),
    corpus: text.name,
    progress: {
      step: result.memory.step,
      tokens: result.memory.step * plan.config.block_size * plan.options.batch_size,
      seconds: plan.seconds,
      val_loss: result.loss,
    },
    cost: null,
    curve: points,
    passages: passagesOf(Array.from(text.val, (id) => text.characters[id]).join('')),
  };
}

const learnedPage = () => pageOf(teaching.result.weights, learnedFacts());

const openLearned = () => openInTab(learnedPage());

async function keepPage() {
  saveAs(await learnedPage(), `${teaching.text.name}.html`);
}

async function keepCheckpoint() {
  const { text, plan, result } = teaching;
  const { head_size, hidden_size, is_gated, ...model } = plan.config;
  const { ngram_dropout, ...options } = plan.options;
  const content = {
    model: { ...model, ngram_dropout },
    train: options,
    device: {},
    progress: { step: result.memory.step },
    characters: text.characters.join(''),
    corpus: { name: '', sha256: '' },
  };
  saveAs(await checkpointOf(result.weights, plan.config, content), `${text.name}.safetensors`);
}

/** Returns a listener that opens or keeps the model, and says where the browser refuses. */
function keeping(act) {
  return () => act().catch(({ message }) => teachingSays('not_saved', { error: message }));
}

function openTeaching() {
  $('muestra').hidden = !app.facts.teaching.sample;
  $('muestra').addEventListener('click', takeSample);
  $('archivo').addEventListener('change', ({ target }) => target.files[0] && takeFile(target.files[0]));
  $('como-windows').addEventListener('click', () => takeFile($('archivo').files[0], 'windows-1252'));
  $('pegado').addEventListener('change', ({ target }) => takeText(target.value, say('your_text_name')));
  $('aprender').addEventListener('click', learn);
  $('retomar').addEventListener('click', takeUp);
  keptBefore('state', 'getKey').then((kept) => ($('retomar').hidden = !kept));
  $('continuar').addEventListener('click', goOnLearning);
  $('parar').addEventListener('click', () => teaching.workers[0]?.postMessage({ stop: true }));
  $('abrir-pagina').addEventListener('click', keeping(openLearned));
  $('guardar-pagina').addEventListener('click', keeping(keepPage));
  $('guardar-modelo').addEventListener('click', keeping(keepCheckpoint));
}
