import assert from 'node:assert/strict';
import { test } from 'node:test';

import { GPT, Reader } from '../engine/model.js';
import { SAMPLING_DEFAULTS } from '../engine/sampler.js';
import { Vocabulary } from '../engine/vocabulary.js';
import { writtenAfter } from '../engine/writer.js';
import { cases, FAMILIES, farthest, golden, weightsOf } from './given.mjs';

const vocabulary = new Vocabulary(cases.characters, cases.nearest);

for (const family of FAMILIES) {
  const expected = golden(family);
  const model = new GPT(cases.configs[family], weightsOf(family));

  test(`logits of ${family} are those of its golden file`, () => {
    const reader = new Reader(model);
    const found = expected.ids.map((id) => Array.from(reader.read(id)));
    assert.ok(farthest(found.flat(), expected.logits.flat()) < 1e-4);
  });

  test(`${family} writes the letters of its golden file`, async () => {
    const { ids } = vocabulary.encode(expected.start);
    const written = async (options) => {
      const settings = { ...SAMPLING_DEFAULTS, ...options };
      const found = await writtenAfter(ids, expected.greedy.length, model, settings, expected.seed);
      return vocabulary.decode(found);
    };
    assert.equal(await written({ temperature: 0 }), expected.greedy);
    assert.equal(await written({ temperature: expected.temperature }), expected.seeded);
  });
}

test('an option with a name that is not known is refused', () => {
  const config = { ...cases.configs.mini, norm: 'batchnorm' };
  assert.throws(() => new GPT(config, {}), { message: 'unknown_choice', cause: { option: 'norm', name: 'batchnorm' } });
});
