// The learning curve: which losses were measured, and their drawing.

import { svg } from './elements.js';
import { say } from './words.js';

/** Returns which lines of a curve were measured, which have a training loss, and the line to draw. */
export function pointsOf(lines) {
  const measured = lines.filter(([, , val]) => val !== null);
  const train = lines.filter(([, loss]) => loss !== null);
  return { measured, train, line: train.length ? train : measured.map(([step, , val]) => [step, val]) };
}

/** Returns the drawing of the losses by step: [step, training loss, validation loss]. */
export function drawnCurve(lines) {
  const { measured, line } = pointsOf(lines);
  const losses = [...line.map(([, loss]) => loss), ...measured.map(([, , val]) => val)];
  const [low, high] = [Math.min(...losses), Math.min(Math.max(...losses), 4 * Math.min(...losses))];
  const last = lines[lines.length - 1][0] || 1;
  const x = (step) => 40 + (350 * step) / last;
  const y = (loss) => 170 - (150 * (Math.min(loss, high) - low)) / (high - low || 1);
  const path = line.map(([step, loss], i) => `${i ? 'L' : 'M'}${x(step).toFixed(1)} ${y(loss).toFixed(1)}`);
  const dot = ([step, , val]) => svg('circle', { cx: x(step), cy: y(val), r: 3.5, class: 'dot' });
  const ends = { high: high.toFixed(2), low: low.toFixed(2), steps: say('steps', { n: last }) };
  return svg(
    'svg',
    { viewBox: '0 0 400 200', class: 'curve', role: 'img', 'aria-label': say('curve_aloud', ends) },
    svg('path', { class: 'axis', d: 'M40 10V170H395' }),
    label(36, 24, ends.high, 'end'),
    label(36, 172, ends.low, 'end'),
    label(40, 190, '0'),
    label(392, 190, say('step_n', { n: last }), 'end'),
    svg('path', { class: 'learning', d: path.join('') }),
    ...measured.map(dot),
  );
}

function label(x, y, text, anchor = 'start') {
  return svg('text', { x, y, 'text-anchor': anchor, 'aria-hidden': true }, text);
}
