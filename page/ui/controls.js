// The controls of the sampler, one range for each; at its end, a filter filters nothing. And the rest
// of a hand that moves them or types.

import { app } from './app.js';
import { element } from './elements.js';
import { say } from './words.js';

export const CONTROLS = ['riesgo', 'mandos']; // the boxes in which they are
const REST = 100; // ms without a key

export const rest = () => new Promise((resolve) => setTimeout(resolve, REST));

/** By option: the id and the ends of its range, and off, the value with which it does nothing. */
function samplingControls() {
  const all = app.model.config.vocab_size;
  return {
    temperature: { id: 'temperatura', min: 0, max: 2, step: 0.05 },
    min_p: { id: 'min-p', min: 0, max: 0.5, step: 0.01, off: 0 },
    top_p: { id: 'top-p', min: 0.01, max: 1, step: 0.01, off: 1 },
    top_k: { id: 'top-k', min: 1, max: all, step: 1, off: all },
  };
}

export class Controls {
  /** Puts the temperature into a box of its own, the others at the head of another one. */
  constructor(risk, box, options) {
    this.inputs = {};
    this.off = {};
    const fields = Object.entries(samplingControls()).map(([key, { off, ...range }]) => {
      this.off[key] = off;
      return this._field(key, range, options[key] ?? off);
    });
    const [temperature, ...others] = fields;
    risk.append(...temperature);
    box.prepend(...others.flat());
  }

  _field(key, range, value) {
    const { id } = range;
    const note = `${id}-nota`;
    const input = element('input', { type: 'range', ...range, 'aria-describedby': note });
    input.value = value;
    const output = element('output', { for: id });
    const show = () => {
      output.textContent = this.options[key] ?? say('off');
      input.setAttribute('aria-valuetext', output.textContent);
    };
    input.addEventListener('input', show);
    this.inputs[key] = input;
    show();
    return [
      element('label', { for: id }, `${say(key)} `, output),
      input,
      element('p', { class: 'hint', id: note }, say(`${key}_hint`)),
    ];
  }

  /** The options as sampler.js takes them. */
  get options() {
    const inputs = Object.entries(this.inputs);
    const valueOf = (key, { valueAsNumber: value }) => (value === this.off[key] ? null : value);
    return Object.fromEntries(inputs.map(([key, input]) => [key, valueOf(key, input)]));
  }
}

/** Returns options in a few words: cuánto se arriesga 1.1 · min-p 0.1. */
export function optionsInWords(options) {
  const on = Object.entries(options).filter(([, value]) => value !== null);
  return on.map(([key, value]) => `${say(key).toLowerCase()} ${value}`).join(' · ');
}
