// The controls of the sampler, one range for each; at its end, a filter filters nothing. And the rest
// of a hand that moves them or types.

const REST = 100; // ms without a key

const rest = () => new Promise((resolve) => setTimeout(resolve, REST));

const SAMPLING_CONTROLS = {
  temperature: {
    id: 'temperatura',
    name: 'temperature',
    range: () => ({ min: 0, max: 2, step: 0.05 }),
    hint: 'temperature_hint',
  },
  min_p: {
    id: 'min-p',
    name: 'min_p',
    range: () => ({ min: 0, max: 0.5, step: 0.01 }),
    off: () => 0,
    hint: 'min_p_hint',
  },
  top_p: {
    id: 'top-p',
    name: 'top_p',
    range: () => ({ min: 0.01, max: 1, step: 0.01 }),
    off: () => 1,
    hint: 'top_p_hint',
  },
  top_k: {
    id: 'top-k',
    name: 'top_k',
    range: () => ({ min: 1, max: app.model.config.vocab_size, step: 1 }),
    off: () => app.model.config.vocab_size,
    hint: 'top_k_hint',
  },
};

class Controls {
  /** Puts the controls at the head of a box. */
  constructor(box, options) {
    this.inputs = {};
    const fields = Object.entries(SAMPLING_CONTROLS).map(([key, control]) =>
      this._field(key, control, options[key]),
    );
    box.prepend(...fields.flat());
  }

  _field(key, { id, name, range, off, hint }, value) {
    const note = `${id}-nota`;
    const input = element('input', { id, type: 'range', ...range(), 'aria-describedby': note });
    input.value = value ?? off();
    const output = element('output', { for: id });
    const show = () => {
      output.textContent = this.options[key] ?? say('off');
      input.setAttribute('aria-valuetext', output.textContent);
    };
    input.addEventListener('input', show);
    this.inputs[key] = input;
    show();
    return [
      element('label', { for: id }, `${say(name)} `, output),
      input,
      element('p', { class: 'hint', id: note }, say(hint)),
    ];
  }

  /** The options as sampler.js takes them. */
  get options() {
    const options = {};
    for (const [key, input] of Object.entries(this.inputs)) {
      const { off } = SAMPLING_CONTROLS[key];
      const value = input.valueAsNumber;
      options[key] = off && value === off() ? null : value;
    }
    return options;
  }
}

/** Returns options in a few words: temperatura 1.1 · min-p 0.1. */
function optionsInWords(options) {
  return Object.entries(SAMPLING_CONTROLS)
    .filter(([key]) => options[key] !== null)
    .map(([key, { name }]) => `${say(name).toLowerCase()} ${options[key]}`)
    .join(' · ');
}
