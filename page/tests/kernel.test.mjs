import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { FixedMatrices } from '../engine/kernel.js';
import { GPT, Reader } from '../engine/model.js';
import { Generator } from '../engine/random.js';
import { SAMPLING_DEFAULTS } from '../engine/sampler.js';
import { writtenAfter } from '../engine/writer.js';
import { cases, FAMILIES, golden, weightsOf } from './given.mjs';

const module = new WebAssembly.Module(readFileSync(new URL('../engine/kernel.wasm', import.meta.url)));
const generator = new Generator(1605n, [0, 0]);

/** Returns n numbers, so many a row: its first half of very different sizes, and then that half times `sign`. */
function twice(n, columns, sign) {
  const half = columns / 2;
  const numbers = new Float32Array(n);
  for (let i = 0; i < n; i++) {
    const isFirst = i % columns < half;
    numbers[i] = isFirst ? (generator.random() - 0.5) * 10 ** (9 * generator.random()) : sign * numbers[i - half];
  }
  return numbers;
}

// The products of a row come to nothing but what rounding leaves, which depends on their order.
test('matrices of any number of rows multiply as in JavaScript, to the last bit', () => {
  for (const columns of [6, 62]) {
    const matrices = [1, 7, 8, 9, 24, 37].map((rows) => [rows, twice(rows * columns, columns, -1)]);
    const fixed = new FixedMatrices(module, matrices, columns);
    for (const [rows, matrix] of matrices) {
      const x = twice(3 * columns, columns, 1);
      const expected = Float32Array.from({ length: 3 * rows }, (_, i) => {
        const [vector, row] = [Math.floor(i / rows), i % rows];
        let sum = 0;
        for (let p = 0; p < columns; p++) sum += matrix[row * columns + p] * x[vector * columns + p];
        return sum;
      });
      assert.ok(rows < 8 || expected.some(Boolean));
      assert.deepEqual(fixed.products(rows, x, rows), expected);
    }
  }
});

for (const family of FAMILIES) {
  const config = cases.configs[family];
  const both = [null, module].map((given) => new GPT(config, weightsOf(family), given));
  const { ids, seed } = golden(family);

  test(`${family} computes and writes the same with WebAssembly and without, parts switched off, too`, async () => {
    for (const off of [[], ['0.0', `${config.n_layer - 1}.f`]]) {
      const [slow, fast] = both.map((model) => model.without(new Set(off)));
      const looked = [slow, fast].map((model) => {
        const reader = new Reader(model);
        reader.readSome(ids.slice(0, -1)); // many at once, and then one
        return [reader.read(ids.at(-1)), reader.look(1)];
      });
      assert.deepEqual(looked[1], looked[0]);
      const write = (model) => writtenAfter(ids, 2 * config.block_size, model, SAMPLING_DEFAULTS, seed);
      assert.deepEqual(await write(fast), await write(slow));
    }
  });
}
