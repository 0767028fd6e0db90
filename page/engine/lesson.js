// Whether what a browser has kept of a lesson is one: what another page or a hand has put there may not be.

import { TABLE } from './gradients.js';
import { NGRAM_KEYS } from './model.js';
import { weightSizes } from './train.js';

/** With what a lesson begins, and why: as strings.json says it. */
const BEGUN_WITH = ['tuned', 'new', 'unknown', 'slow', 'small'];

const isCount = (x) => Number.isInteger(x) && x > 0;

/** Returns whether these are numbers of a kind, so many of them, and none is NaN or infinite. */
const areNumbers = (array, Kind, length) =>
  array instanceof Kind && array.length === length && array.every(Number.isFinite);

/** Returns whether options have all of a sample, of the same types, and no number is NaN or infinite. */
function isLike(options, sample) {
  const fits = ([name, value]) => {
    const found = options?.[name];
    return typeof found === typeof value && (typeof found !== 'number' || Number.isFinite(found));
  };
  return Object.entries(sample).every(fits);
}

/** Returns whether ids are those of so many characters. */
const areIds = (ids, size) =>
  (ids instanceof Uint8Array || ids instanceof Int32Array) && ids.every((id) => id >= 0 && id < size);

function isText(text) {
  const { name, characters, train, val } = text ?? {};
  const size = characters?.length;
  const isNamed = typeof name === 'string' && Array.isArray(characters);
  return isNamed && characters.every((one) => typeof one === 'string') && [train, val].every((ids) => areIds(ids, size));
}

function isPlan(plan, text, teaching) {
  const { config, options, count, asked, loss, begins } = plan ?? {};
  if (!isLike(config, teaching.models[0]) || !isLike(options, { ...teaching.train, ngram_dropout: 0 })) return false;
  const { vocab_size, block_size, n_embd, n_head, head_size } = config;
  const isOfText = vocab_size === text.characters.length && block_size < text.train.length;
  const isWhole = n_head * head_size === n_embd;
  const counts = [block_size, n_head, head_size, options.batch_size, options.max_iters, count];
  const isMeasured = [asked, loss].every(Number.isFinite);
  return isOfText && isWhole && counts.every(isCount) && isMeasured && BEGUN_WITH.includes(begins);
}

/** Returns whether weights, and what an optimizer remembers of them, are those of a model. */
function areOfModel(weights, memory, config) {
  if (!(config.n_layer < Object.keys(weights ?? {}).length)) return false; // before so many are counted up
  const sizes = weightSizes(config);
  const names = Object.keys(sizes);
  const isWhole = Object.keys(weights).length === names.length && isCount(memory?.step);
  const kind = (name) => (name === NGRAM_KEYS ? Int32Array : Float32Array);
  if (!isWhole || !names.every((name) => areNumbers(weights[name], kind(name), sizes[name]))) return false;
  const dense = names.filter((name) => name !== TABLE && name !== NGRAM_KEYS);
  const all = dense.reduce((sum, name) => sum + sizes[name], 0);
  const { moments, squares, sums } = memory;
  return [moments, squares].every((one) => areNumbers(one, Float32Array, all)) && areNumbers(sums, Float32Array, config.ngram_rows);
}

/** Returns whether these are the losses of a lesson, and what its model wrote. */
function areTold(points, writings) {
  if (!Array.isArray(points) || !Array.isArray(writings)) return false;
  const isPoint = (one) => Array.isArray(one) && [one[0], one[1], one[2] ?? 0].every(Number.isFinite);
  const isWriting = (one) => [one?.seconds, one?.loss].every(Number.isFinite) && typeof one.letters === 'string';
  return points.every(isPoint) && writings.every(isWriting);
}

/** Returns whether a state is a lesson of one text and one model. teaching: of the page's facts. */
export function isLesson(state, teaching) {
  const { text, plan, points, writings, seconds, memory, weights } = state ?? {};
  return (
    isText(text) &&
    isPlan(plan, text, teaching) &&
    areOfModel(weights, memory, plan.config) &&
    areTold(points, writings) &&
    Number.isFinite(seconds)
  );
}
