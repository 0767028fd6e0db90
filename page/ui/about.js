// Sobre este modelo: its size, what it is made of, what it read, how it learned.

import { app } from './app.js';
import { drawnCurve, pointsOf } from './curve.js';
import { $, element, table } from './elements.js';
import { decimals, thousands } from './notation.js';
import {
  ACTIVATION_NAMES, duration, foldedNumbers, linkOrName, NORM_NAMES, POSITION_NAMES, say,
} from './words.js';

export function openAbout() {
  const { corpus, parameters, precision, cost, progress } = app.facts;
  const { block_size, vocab_size } = app.model.config;
  const letters = say('letters', { n: progress.tokens });
  const steps = say('steps', { n: progress.step });
  const facts = [
    [say('what_it_read'), say('read_so_much', { corpus, letters, steps })],
    [say('how_long'), duration(progress.seconds)],
    [say('size'), say('parameters', { n: parameters })],
    [say('shape'), shapeInWords()],
    [say('window'), say('window_size', { n: block_size })],
    [say('vocabulary'), say('vocabulary_size', { n: vocab_size })],
    [say('not_read'), lossInWords(progress.val_loss)],
    [say('weights_here'), costInWords(say(precision), cost)],
  ];
  const entries = facts.flatMap(([name, text]) => [element('dt', {}, name), element('dd', {}, text)]);
  const curve = element('div', {}, ...learningCurve());
  $('ficha').append(element('div', { class: 'columns' }, element('dl', {}, ...entries), curve));
  const { course, project } = app.facts.links;
  $('pie').append(say('made_with'), linkOrName(project, 'sancho-mini'), '. ');
  if (course) $('pie').append(say('how_it_works'), linkOrName(course, say('the_course')), '.');
}

function shapeInWords() {
  const c = app.model.config;
  const parts = [
    say('blocks', { n: c.n_layer }),
    say('heads', { n: c.n_head }),
    say('width', { n: c.n_embd }),
    NORM_NAMES[c.norm],
    say(POSITION_NAMES[c.position]),
    ACTIVATION_NAMES[c.activation],
  ];
  if (c.qk_norm) parts.push('QK-norm');
  if (c.ngram_size > 1) parts.push(say('table_of', { n: c.ngram_size }));
  if (c.embedding_skip) parts.push(say('embedding_skip'));
  if (c.tie_embeddings) parts.push(say('tied_head'));
  if (c.bias) parts.push(say('biases'));
  return parts.join(', ');
}

function lossInWords(loss) {
  if (loss === null) return say('not_measured');
  return say('loss', { nats: loss.toFixed(3), bits: (loss / Math.LN2).toFixed(3) });
}

function costInWords(precision, cost) {
  if (!cost) return precision;
  const { before, after, characters: n, text } = cost;
  const change = (after < before ? '' : '+') + decimals(after - before, 5);
  return say('packing_cost', { precision, change, n, text });
}

// --- the learning curve ---------------------------------------------------------------------

/** Returns a figure of the losses by step, and a table of them; nothing where they are not known. */
function learningCurve() {
  const { measured, train, line } = pointsOf(app.facts.curve);
  if (line.length < 2) return [];
  const columns = [say('step'), ...(train.length ? [say('while_learning')] : []), say('unread_column')];
  const rows = measured.map(([step, loss, val]) => [
    thousands(step),
    ...(train.length ? [loss === null ? '' : loss.toFixed(3)] : []),
    val.toFixed(3),
  ]);
  const saved = app.facts.progress.val_loss;
  const reached = measured.length ? measured[measured.length - 1][2] : saved;
  const caption = [
    say(train.length ? 'curve_caption' : 'curve_unread'),
    // A model that was trained in several runs: the curve is that of the first.
    saved < reached - 0.002 ? ' ' + say('curve_goes_on', { loss: saved.toFixed(3) }) : '',
  ];
  return [
    element('h3', {}, say('how_it_learned')),
    element('figure', {}, drawnCurve(app.facts.curve), element('figcaption', {}, ...caption)),
    rows.length ? foldedNumbers(table('', columns, rows)) : '',
  ];
}
