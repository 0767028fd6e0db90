"""What a page trains with computes and learns what PyTorch and the library do."""

import base64
import json
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from golden.make import FOLDER as GOLDEN

from sancho import checkpoint, ngrams
from sancho.config import DeviceConfig, ModelConfig, TrainConfig
from sancho.convert.page import with_derived
from sancho.corpus import Corpus
from sancho.machine.device import choose_device
from sancho.model import GPT
from sancho.tokenizer import CharTokenizer
from sancho.training import Batches, TrainingState, fit

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "sancho" / "convert" / "page"
SCRIPTS = "random model kernel gradients train".split()
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
        given["kernel"] = base64.b64encode((PAGE / "kernel.wasm").read_bytes()).decode()
    scripts = [(PAGE / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    source = "\n".join(["'use strict';", *scripts, HARNESS, program])
    command = [str(NODE), "-e", source]
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def packed(weights):
    return {name: base64.b64encode(np.ascontiguousarray(w)).decode() for name, w in weights.items()}


def unpacked(texts, weights):
    """Return arrays of the shapes of `weights`."""
    arrays = {}
    for name, text in texts.items():
        numbers = np.frombuffer(base64.b64decode(text), weights[name].dtype)
        arrays[name] = numbers.reshape(weights[name].shape)
    return arrays


@pytest.mark.parametrize("rows, inner, columns", [(4, 1, 8), (9, 13, 12), (64, 64, 91)])
@pytest.mark.parametrize("is_turned", [False, True])
def test_kernel_multiplies_as_numpy(rows, inner, columns, is_turned):
    """The last rows and columns, too, and where the rows of a stand in columns."""
    random = np.random.default_rng(rows)
    a = random.standard_normal((rows, inner), dtype=np.float32)
    b = random.standard_normal((inner, columns), dtype=np.float32)
    stored = {"a": a.T if is_turned else a, "b": b}
    program = """
    const { rows, inner, columns, is_turned } = given;
    const kernel = new Kernel(module_, 1 << 15);
    const [a, b, c] = [rows * inner, inner * columns, rows * columns].map((n) => kernel.take(n));
    a.set(weights.a);
    b.set(weights.b);
    const first = is_turned ? matrix(a, 0, rows, 1, rows) : matrix(a, 0, rows, inner);
    const second = matrix(b, 0, inner, columns);
    kernel.multiply(first, second, matrix(c, 0, rows, columns), inner, columns);
    tell(inBase64(c));
    """
    sizes = {"rows": rows, "inner": inner, "columns": columns, "is_turned": is_turned}
    told = run_in_node(program, weights=packed(stored), **sizes)
    product = np.frombuffer(base64.b64decode(told), np.float32).reshape(rows, columns)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(product, expected, rtol=0, atol=1e-5)


def test_kernel_is_what_its_text_assembles_to(tmp_path):
    assembler = ROOT / "node_modules" / "wabt" / "bin" / "wat2wasm"
    if not assembler.exists():
        pytest.skip("wat2wasm is not there: npm install --no-save wabt")
    output = tmp_path / "kernel.wasm"
    command = [str(NODE), assembler, PAGE / "kernel.wat", "-o", output]
    subprocess.run(command, check=True)
    assert output.read_bytes() == (PAGE / "kernel.wasm").read_bytes()


WINDOW = """
const learner = new Learner(given.config, weights, module_);
learner.begin();
const loss = learner.window(given.ids, 1 / (given.ids.length - 1), { logit_scale: 1.1 });
const { table, gradients } = learner;
const ofTable = weights[TABLE] && new Float32Array(weights[TABLE].length);
table.rows.forEach((row, i) => ofTable.set(rowOf(table.vectors, i, table.C), row * table.C));
const named = Object.entries({ ...gradients, ...(ofTable && { [TABLE]: ofTable }) });
tell({ loss, gradients: Object.fromEntries(named.map(([name, x]) => [name, inBase64(x)])) });
"""


@pytest.mark.parametrize("kernel", [True, False], ids=["wasm", "javascript"])
@pytest.mark.parametrize("family", ["vocabulary", "base", "classic"])
def test_loss_and_every_gradient_are_pytorchs(family, kernel):
    """Of every family that a preset trains, whose golden weights are none of them zero."""
    saved = checkpoint.load(GOLDEN / f"{family}.safetensors")
    model = saved.build_model().double()
    model.eval()
    random = np.random.default_rng(5)
    ids = random.integers(saved.model.vocab_size, size=saved.model.block_size + 1)
    inputs = torch.from_numpy(ids[None])
    loss = torch.nn.functional.cross_entropy(1.1 * model(inputs[:, :-1])[0], inputs[0, 1:])
    loss.backward()
    expected = {name: weight.grad.to_dense().numpy() for name, weight in model.named_parameters()}
    weights = dict(saved.weights)
    given = {"weights": packed(weights), "config": with_derived(saved.model), "ids": ids.tolist()}
    told = run_in_node(WINDOW, kernel=kernel, **given)
    assert told["loss"] / (len(ids) - 1) == pytest.approx(loss.item(), abs=1e-5)
    gradients = unpacked(told["gradients"], weights)
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradient.any(), name
        np.testing.assert_allclose(gradients[name], gradient, rtol=0, atol=1e-4, err_msg=name)


def test_ngrams_are_those_of_the_library():
    random = np.random.default_rng(2)
    ids = np.minimum(random.geometric(0.2, 5_000), 19)
    for rows in (300, 30_000):
        program = "tell(Array.from(ngramVocabulary(given.ids, 5, given.rows)));"
        ours = run_in_node(program, ids=ids.tolist(), rows=rows)
        np.testing.assert_array_equal(ours, ngrams.vocabulary(ids, 5, rows))


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
    config = ModelConfig(
        vocab_size=13,
        block_size=32,
        n_layer=3,
        n_embd=n_embd,
        n_head=n_head,
        ngram_rows=500,
        dropout=0.0,
        ngram_dropout=0.0,
    )
    options = TrainConfig(
        max_iters=20,
        batch_size=4,
        warmup_iters=5,
        weight_decay=weight_decay,
        grad_clip=0.5,
        look_ahead=0,
        eval_interval=20,
        log_interval=1,
        threads=1,
    )
    random = np.random.default_rng(7)
    ids = ((np.arange(3_000) * 5 + random.integers(3, size=3_000).cumsum()) % 13).astype(np.uint8)
    corpus = Corpus("text", CharTokenizer("abcdefghijklm"), ids[:2_700], ids[2_700:], "")
    device = choose_device(DeviceConfig(device="cpu", dtype="float32"))
    torch.manual_seed(1)
    model = GPT(config)
    model.ngram_embedding.learn_vocabulary(corpus.train)
    weights = {name: array.copy() for name, array in model.arrays().items()}
    state = TrainingState.from_model(model, options, device)
    losses = [r.train_loss for r in fit(state, corpus, device) if r.train_loss is not None]
    batches = Batches(corpus.train, 32, options, torch.device("cpu"))
    steps = []
    for step in range(20):
        inputs, targets = batches.get(step, 0)
        windows = torch.cat((inputs, targets[:, -1:]), 1)
        steps.append(windows.tolist())
    given = {"config": with_derived(config), "options": asdict(options), "steps": steps}
    ours = run_in_node(TWENTY, weights=packed(weights), **given)
    assert losses[-1] < losses[0] - 0.3
    np.testing.assert_allclose(ours, losses, rtol=0, atol=1e-3)
