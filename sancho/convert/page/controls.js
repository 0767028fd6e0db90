// The controls of the sampler, one range for each; at its end, a filter filters nothing.

const SAMPLING_CONTROLS = {
  temperature: {
    id: 'temperatura',
    name: 'Temperatura',
    range: () => ({ min: 0, max: 2, step: 0.05 }),
    hint: '0 toma siempre la más probable; cuanto más alta, más se arriesga.',
  },
  min_p: {
    id: 'min-p',
    name: 'Min-p',
    range: () => ({ min: 0, max: 0.5, step: 0.01 }),
    off: () => 0,
    hint: 'Quita las letras que no lleguen a esta parte de la más probable.',
  },
  top_p: {
    id: 'top-p',
    name: 'Top-p',
    range: () => ({ min: 0.01, max: 1, step: 0.01 }),
    off: () => 1,
    hint: 'Deja solo las más probables que juntas llegan a esta parte.',
  },
  top_k: {
    id: 'top-k',
    name: 'Top-k',
    range: () => ({ min: 1, max: app.model.config.vocab_size, step: 1 }),
    off: () => app.model.config.vocab_size,
    hint: 'Deja solo las k más probables.',
  },
};

class Controls {
  /** Puts the controls at the head of a box; prefix: what tells their ids from those of others. */
  constructor(box, options, prefix = '') {
    this.inputs = {};
    const fields = Object.entries(SAMPLING_CONTROLS).map(([key, control]) =>
      this._field(key, control, options[key], prefix),
    );
    box.prepend(...fields.flat());
  }

  _field(key, { id, name, range, off, hint }, value, prefix) {
    id = prefix + id;
    const note = `${id}-nota`;
    const input = element('input', { id, type: 'range', ...range(), 'aria-describedby': note });
    input.value = value ?? off();
    const output = element('output', { for: id });
    const say = () => {
      output.textContent = this.options[key] ?? 'apagado';
      input.setAttribute('aria-valuetext', output.textContent);
    };
    input.addEventListener('input', say);
    this.inputs[key] = input;
    say();
    return [
      element('label', { for: id }, `${name} `, output),
      input,
      element('p', { class: 'hint', id: note }, hint),
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
    .map(([key, { name }]) => `${name.toLowerCase()} ${options[key]}`)
    .join(' · ');
}
