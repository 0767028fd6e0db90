// What the tests of the engine compare with: what Python says, and the golden files.

import { readFileSync } from 'node:fs';

const read = (name) => readFileSync(new URL(name, import.meta.url));

export const cases = JSON.parse(read('cases.json'));
export const FAMILIES = Object.keys(cases.configs);

/** Returns what a golden file says of its model. */
export const golden = (family) => JSON.parse(read(`../../tests/golden/${family}.json`));

/** Returns the weights of a golden file, by name. */
export function weightsOf(family) {
  const file = read(`../../tests/golden/${family}.safetensors`);
  const bytes = file.buffer.slice(file.byteOffset, file.byteOffset + file.length);
  const start = 8 + Number(new DataView(bytes).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.slice(8, start)));
  const weights = {};
  for (const [name, { dtype, data_offsets }] of Object.entries(header)) {
    if (!name.startsWith('model.')) continue;
    const numbers = bytes.slice(...data_offsets.map((offset) => start + offset));
    weights[name.slice('model.'.length)] = dtype === 'I32' ? new Int32Array(numbers) : new Float32Array(numbers);
  }
  return weights;
}

/** Returns the largest difference between numbers. */
export function farthest(found, expected) {
  return expected.reduce((most, x, i) => Math.max(most, Math.abs(x - found[i])), 0);
}
