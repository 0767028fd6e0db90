"""What a page trains with computes and learns what PyTorch and the library do."""

import base64
import json
import shutil
import subprocess
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from conftest import CPU, ROOT
from golden.make import FOLDER as GOLDEN

from sancho import checkpoint, ngrams
from sancho.batches import Batches
from sancho.config import AskedConfig, ModelConfig, TrainConfig, TrainOptions
from sancho.convert.page import FOLDER as PAGE
from sancho.convert.page import scripts, teaching_facts, with_derived
from sancho.corpus import Corpus
from sancho.plan import follow_text
from sancho.state import TrainingState
from sancho.tokenizer import CharTokenizer
from sancho.training import fit

MODULES = scripts.in_order("engine/train.js", "ui/workers.js")
TABLE, KEYS = "ngram_embedding.weight", "ngram_embedding.keys"
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")

# A number array goes to and fro as the base64 of its bytes.
HARNESS = """
const given = JSON.parse(require('fs').readFileSync(0));
const bytesOf = (text) => new Uint8Array(Buffer.from(text, 'base64')).buffer;
const inBase64 = ({ buffer, byteOffset, byteLength }) =>
  Buffer.from(buffer, byteOffset, byteLength).toString('base64');
const module_ = given.kernel ? new WebAssembly.Module(bytesOf(given.kernel)) : null;
const weights = Object.fromEntries(Object.entries(given.weights ?? {}).map(([name, text]) => [
  name, name.endsWith('keys') ? new Int32Array(bytesOf(text)) : new Float32Array(bytesOf(text)),
]));
const tell = (values) => console.log(JSON.stringify(values));
"""


def run_in_node(program, *, kernel=True, **given):
    """Run a program after the page's scripts; return what it tells."""
    if kernel:
        given["kernel"] = base64.b64encode((PAGE / "engine" / "kernel.wasm").read_bytes()).decode()
    source = f"'use strict';\n{scripts.joined(MODULES)}{{{HARNESS}{program}}}"
    command = [str(NODE), "-e", source]
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def packed(weights):
    return {name: base64.b64encode(np.ascontiguousarray(w)).decode() for name, w in weights.items()}


def test_kernel_is_what_its_text_assembles_to(tmp_path):
    assembler = ROOT / "node_modules" / "wabt" / "bin" / "wat2wasm"
    if not assembler.exists():
        pytest.skip("wat2wasm is not there: npm ci")
    output = tmp_path / "kernel.wasm"
    command = [str(NODE), assembler, PAGE / "engine" / "kernel.wat", "-o", output]
    subprocess.run(command, check=True)
    assert output.read_bytes() == (PAGE / "engine" / "kernel.wasm").read_bytes()


WINDOW = """
const learner = new Learner(given.config, weights, module_);
learner.begin();
const loss = learner.window(given.ids, 1 / (given.ids.length - 1), { logit_scale: 1.1 });
const { table, gradients } = learner;
const ofTable = new Float32Array(weights[TABLE].length);
table.rows.forEach((row, i) => ofTable.set(rowOf(table.vectors, i, table.C), row * table.C));
const named = Object.entries({ ...gradients, [TABLE]: ofTable });
tell({ loss, gradients: Object.fromEntries(named.map(([name, x]) => [name, inBase64(x)])) });
"""


@pytest.mark.parametrize("kernel", [True, False], ids=["wasm", "javascript"])
def test_loss_and_every_gradient_are_pytorchs(kernel):
    """Of the golden weights, none of which is zero."""
    saved = checkpoint.load(GOLDEN / "mini.safetensors")
    model = saved.build_model().double()
    random = np.random.default_rng(5)
    ids = random.integers(saved.model_config.vocab_size, size=saved.model_config.block_size + 1)
    inputs = torch.from_numpy(ids[None])
    loss = torch.nn.functional.cross_entropy(1.1 * model(inputs[:, :-1])[0], inputs[0, 1:])
    loss.backward()
    expected = {name: weight.grad.to_dense().numpy() for name, weight in model.named_parameters()}
    config = with_derived(saved.model_config)
    given = {"weights": packed(saved.weights), "config": config, "ids": ids.tolist()}
    told = run_in_node(WINDOW, kernel=kernel, **given)
    assert told["loss"] / (len(ids) - 1) == pytest.approx(loss.item(), abs=1e-5)
    assert told["gradients"].keys() == expected.keys()
    for name, gradient in expected.items():
        found = np.frombuffer(base64.b64decode(told["gradients"][name]), np.float32)
        assert gradient.any(), name
        np.testing.assert_allclose(found, gradient.flat, rtol=0, atol=1e-4, err_msg=name)


def test_ngrams_are_those_of_the_library():
    random = np.random.default_rng(2)
    ids = np.minimum(random.geometric(0.2, 5_000), 19)
    for rows in (300, 30_000):
        program = "tell(Array.from(ngramVocabulary(given.ids, 5, given.rows)));"
        ours = run_in_node(program, ids=ids.tolist(), rows=rows)
        np.testing.assert_array_equal(ours, ngrams.vocabulary(ids, 5, rows))


@pytest.mark.parametrize("steps", [None, 97, 1600])
@pytest.mark.parametrize("letters", [70_000, 212_345, 2_000_001])
def test_the_length_of_a_text_decides_what_plan_decides(letters, steps):
    facts = teaching_facts("")
    model, train = ModelConfig(), TrainConfig(look_ahead=0)
    options = TrainOptions(model=model, train=train)
    ids = np.zeros(letters, np.uint8)
    corpus = Corpus("text", CharTokenizer("a"), ids, ids[:9], "")
    program = "tell(optionsFor(given.letters, given.config, given.steps, given.facts));"
    given = {"letters": letters, "config": facts["models"][0], "steps": steps or 10**9}
    ours = run_in_node(program, facts=facts, **given)
    most = follow_text(options, corpus).get("max_iters", train.max_iters)
    asked = AskedConfig(max_iters=min(steps or most, most))
    found = follow_text(replace(options, asked=asked), corpus)
    assert ours == asdict(train) | {
        "max_iters": asked.max_iters,
        "ngram_dropout": found["ngram_dropout"],
        "logit_scale": found["logit_scale"],
    }


PACE = """
let now = 0;
Object.defineProperty(globalThis, 'performance', { value: { now: () => now } });
app.facts = { teaching: given.facts };
const config = given.facts.models[0];
const plan = { config, options: optionsFor(1e6, config, 600, given.facts) };
const text = { train: { length: 1e6 } };
const run = { text, plan, end: 60_000, pace: null, noted: null, workers: [{ postMessage() {} }] };
for (let step = 1; step <= run.plan.options.max_iters; step++) {
  now += now < 10_000 ? 100 : given.later;
  paceAt(run, step);
}
tell([now / 1000, run.plan.options.max_iters]);
"""


@pytest.mark.parametrize("later", [100, 400, 40])
def test_a_minute_is_a_minute_whatever_else_takes_the_cores(later):
    """Steps take 0.1 s for ten seconds, and then longer or shorter."""
    seconds, steps = run_in_node(PACE, later=later, facts=teaching_facts(""))
    assert 60 - 15 * later / 1000 < seconds < 60
    assert steps == pytest.approx(100 + 1000 * (seconds - 10) / later, abs=2)


def test_a_text_shorter_than_a_window_is_refused():
    program = """
    const first = (n) => {
      try {
        return windowStarts(n, 32, 1).next().value;
      } catch ({ message }) {
        return message;
      }
    };
    tell([32, 33].map(first));
    """
    assert run_in_node(program) == ["32 letters are no window of 33", 0]


NOT_FINITE = """
const learner = new Learner(given.config, weights, module_);
learner.begin();
learner.window(given.ids, 1);
learner.flatGradients[5] = NaN;
const before = learner.flat.slice();
try {
  new Optimizer(learner, given.options).step();
} catch ({ message }) {
  tell([message, before.every((w, i) => w === learner.flat[i])]);
}
"""


def test_numbers_that_are_not_finite_change_no_weight():
    saved = checkpoint.load(GOLDEN / "mini.safetensors")
    given = {"config": with_derived(saved.model_config), "options": asdict(TrainConfig())}
    told = run_in_node(NOT_FINITE, weights=packed(saved.weights), ids=[1, 2, 3, 1], **given)
    assert told == ["not_finite", True]


TWENTY = """
const learner = new Learner(given.config, weights, module_);
const optimizer = new Optimizer(learner, given.options);
const share = 1 / (given.options.batch_size * given.config.block_size);
tell(given.steps.map((windows) => {
  learner.begin();
  const loss = windows.reduce((sum, ids) => sum + learner.window(ids, share), 0);
  optimizer.step();
  return share * loss;
}));
"""


@pytest.mark.parametrize("n_embd, n_head", [(16, 2), (24, 3)])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_twenty_steps_have_the_losses_of_fit(n_embd, n_head, weight_decay):
    """From the same weights and windows, in float32, without dropout."""
    shape = {"n_embd": n_embd, "n_head": n_head, "n_layer": 3, "ngram_rows": 500}
    config = ModelConfig(vocab_size=13, block_size=32, **shape)
    how = {"warmup_iters": 5, "weight_decay": weight_decay, "grad_clip": 0.5, "look_ahead": 0}
    steps = {"max_iters": 20, "eval_interval": 20, "log_interval": 1}
    options = TrainConfig(batch_size=4, threads=1, **how, **steps)
    random = np.random.default_rng(7)
    ids = ((np.arange(3_000) * 5 + random.integers(3, size=3_000).cumsum()) % 13).astype(np.uint8)
    corpus = Corpus("text", CharTokenizer("abcdefghijklm"), ids[:2_700], ids[2_700:], "")
    state = TrainingState.start(config, options, CPU, corpus.train)
    weights = {name: array.copy() for name, array in state.model.arrays().items()}
    losses = [r.train_loss for r in fit(state, corpus) if r.train_loss is not None]
    batches = Batches(corpus.train, 32, options, torch.device("cpu"))
    windows = []
    for step in range(20):
        inputs, targets = batches.get(step, 0)
        windows.append(torch.cat((inputs, targets[:, -1:]), 1).tolist())
    given = {"config": with_derived(config), "options": asdict(options), "steps": windows}
    ours = run_in_node(TWENTY, weights=packed(weights), **given)
    assert losses[-1] < losses[0] - 0.3
    np.testing.assert_allclose(ours, losses, rtol=0, atol=1e-3)
