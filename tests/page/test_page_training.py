"""What a page trains with computes and learns what PyTorch and the library do."""

import base64
import json
import math
import shutil
import subprocess
from dataclasses import asdict, fields, replace
from typing import get_args

import numpy as np
import pytest
import torch
from architectures import checkpoint_of, exact_logits, random_ids
from conftest import CPU, ROOT
from golden.make import FOLDER as GOLDEN

from sancho import checkpoint
from sancho.config import ModelConfig, TrainConfig
from sancho.convert import page, scripts
from sancho.convert.page import teaching_facts, with_derived
from sancho.convert.scripts import FOLDER as PAGE
from sancho.errors import OtherFunction
from sancho.optim import Arrays
from sancho.presets import MINI
from sancho.run.batches import Batches
from sancho.run.plan import follow_text
from sancho.run.start import _with_new_characters
from sancho.run.state import TrainingState
from sancho.shared import ngrams
from sancho.shared.dropout import Dropout
from sancho.text.corpus import Corpus
from sancho.tokenizer import CharTokenizer
from sancho.training import fit

MODULES = scripts.in_order("engine/worker.js", "ui/workers.js")
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


def run_in_node(program, *, kernel=True, changes=(), **given):
    """Run a program after the page's scripts, with some changes; return what it tells."""
    if kernel:
        given["kernel"] = base64.b64encode((PAGE / "engine" / "kernel.wasm").read_bytes()).decode()
    joined = scripts.joined(MODULES)
    for old, new in changes:
        assert joined.count(old) == 1
        joined = joined.replace(old, new)
    source = f"'use strict';\n{joined}{{{HARNESS}{program}}}"
    command = [str(NODE), "-e", source]
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def packed(weights):
    return {name: base64.b64encode(np.ascontiguousarray(w)).decode() for name, w in weights.items()}


@pytest.mark.generated
def test_kernel_is_what_its_text_assembles_to(tmp_path):
    assembler = ROOT / "page" / "node_modules" / "wabt" / "bin" / "wat2wasm"
    if not assembler.exists():
        pytest.skip("wat2wasm is not there: npm ci")
    output = tmp_path / "kernel.wasm"
    command = [str(NODE), assembler, PAGE / "engine" / "kernel.wat", "-o", output]
    subprocess.run(command, check=True)
    assert output.read_bytes() == (PAGE / "engine" / "kernel.wasm").read_bytes(), (
        "page/engine/kernel.wasm is out of date; run: node page/node_modules/wabt/bin/wat2wasm "
        "page/engine/kernel.wat -o page/engine/kernel.wasm"
    )


WINDOW = """
const learner = new Learner(given.config, weights, module_);
learner.begin();
const loss = learner.window(given.ids, 1 / (given.ids.length - 1), { logit_scale: 1.1 });
const { table, gradients } = learner;
const named = Object.entries(gradients);
if (weights[TABLE]) {
  const ofTable = new Float32Array(weights[TABLE].length);
  table.rows.forEach((row, i) => ofTable.set(rowOf(table.vectors, i, table.C), row * table.C));
  named.push([TABLE, ofTable]);
}
tell({ loss, gradients: Object.fromEntries(named.map(([name, x]) => [name, inBase64(x)])) });
"""


@pytest.mark.parametrize("family", ["mini", "base"])
@pytest.mark.parametrize("kernel", [True, False], ids=["wasm", "javascript"])
def test_loss_and_every_gradient_are_pytorchs(kernel, family):
    """Of the golden weights, none of which is zero. As the pretrained model, base has no table."""
    saved = checkpoint.load(GOLDEN / f"{family}.safetensors")
    saved = replace(saved, model_config=replace(saved.model_config, dropout=0.0))
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


@pytest.mark.parametrize("steps", [50, 400, 1600])
@pytest.mark.parametrize("letters", [70_000, 212_345, 2_000_001])
def test_the_length_of_a_text_decides_what_plan_decides(letters, steps):
    facts = teaching_facts("")
    values = asdict(ModelConfig()) | asdict(TrainConfig(look_ahead=0, max_iters=steps))
    ids = np.zeros(letters, np.uint8)
    corpus = Corpus("text", CharTokenizer("a"), ids, ids[:9], "")
    program = "tell(optionsFor(given.letters, given.config, given.steps, given.facts));"
    given = {"letters": letters, "config": facts["models"][0], "steps": steps}
    ours = run_in_node(program, facts=facts, **given)
    found = follow_text(values, {"max_iters": steps}, corpus, is_tuned=False)
    assert ours == facts["train"] | {
        "max_iters": steps,
        "eval_interval": math.ceil(min(steps / 8, letters / (256 * 8))),
        "ngram_dropout": found["ngram_dropout"],
        "logit_scale": found["logit_scale"],
    }


def test_a_model_without_a_table_has_nothing_to_drop():
    facts = teaching_facts("")
    config = facts["models"][0] | {"ngram_size": 1}
    program = "tell(optionsFor(9000, given.config, 400, given.facts, given.facts.tuning));"
    ours = run_in_node(program, config=config, facts=facts)
    decided = {"max_iters": 400, "eval_interval": 9, "ngram_dropout": 0, "logit_scale": 1}
    assert ours == facts["tuning"] | decided


TUNING = """
const text = inIdsOf(Array.from(given.known), given.text);
const { characters } = text;
const nearest = new Map(Object.entries(given.nearest));
const grown = withRowsFor(characters, weights, given.known.length, nearest, given.C);
const named = Object.fromEntries(Object.entries(grown).map(([name, x]) => [name, inBase64(x)]));
tell({ characters, train: Array.from(text.train), weights: named });
"""


def test_letters_that_the_model_lacks_are_added_as_the_library_adds_them():
    """One with a letter near it, and one with none."""
    saved = checkpoint.load(GOLDEN / "base.safetensors")
    known = saved.tokenizer
    letters = sorted({*known.characters[3:9], "ê", "🐴"})
    ids = np.arange(len(letters), dtype=np.uint8)
    corpus = Corpus("text", CharTokenizer("".join(letters)), ids, ids, "")
    expected = _with_new_characters(saved, corpus)
    nearest = page.nearest_known(known)
    assert "ê" in nearest and "🐴" not in nearest
    text = {"characters": letters, "train": ids.tolist(), "val": []}
    given = {"known": known.characters, "text": text, "nearest": nearest}
    told = run_in_node(TUNING, weights=packed(saved.weights), C=saved.model_config.n_embd, **given)
    assert "".join(told["characters"]) == expected.characters
    assert [told["characters"][i] for i in told["train"]] == letters
    assert told["weights"].keys() == expected.weights.keys()
    for name, array in expected.weights.items():
        np.testing.assert_allclose(unpacked(told["weights"], name, array), array, atol=1e-6)


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
    options = asdict(TrainConfig(look_ahead=0))
    given = {"config": with_derived(saved.model_config), "options": options}
    told = run_in_node(NOT_FINITE, weights=packed(saved.weights), ids=[1, 2, 3, 1], **given)
    assert told == ["not_finite", True]


STEPS = """
try {
  const learner = new Learner(given.config, weights, module_);
  const optimizer = new Optimizer(learner, given.options);
  const share = 1 / (given.options.batch_size * given.config.block_size);
  const losses = given.steps.map((windows) => {
    learner.begin();
    const loss = windows.reduce((sum, ids) => sum + learner.window(ids, share, given.options), 0);
    optimizer.step();
    return share * loss;
  });
  const named = Object.entries(learner.weights).map(([name, array]) => [name, inBase64(array)]);
  tell({ losses, weights: Object.fromEntries(named) });
} catch ({ message, cause }) {
  tell({ refused: [message, cause.option] });
}
"""
SMALL = {"vocab_size": 13, "block_size": 32, "n_layer": 3, "ngram_rows": 500}


def learned(config: ModelConfig, options: TrainConfig) -> tuple[dict, list[float], Arrays]:
    """What the page tells of a training without dropout, and losses and weights of fit().

    Both begin with the same weights and windows, and compute in float32.
    """
    random = np.random.default_rng(7)
    ids = ((np.arange(3_000) * 5 + random.integers(3, size=3_000).cumsum()) % 13).astype(np.uint8)
    corpus = Corpus("text", CharTokenizer("abcdefghijklm"), ids[:2_700], ids[2_700:], "")
    state = TrainingState.start(config, options, CPU, corpus.train)
    weights = packed(state.model.arrays())
    batches = Batches(corpus.train, config.block_size, options, torch.device("cpu"))
    windows = []
    for step in range(options.max_iters):
        inputs, targets = batches.get(step, 0)
        windows.append(torch.cat((inputs, targets[:, -1:]), 1).tolist())
    given = {"config": with_derived(config), "options": asdict(options), "steps": windows}
    told = run_in_node(STEPS, weights=weights, **given)
    if "refused" in told:
        return told, [], {}
    losses = [r.train_loss for r in fit(state, corpus) if r.train_loss is not None]
    return told, losses, state.model.arrays()


def unpacked(told: dict[str, str], name: str, like: np.ndarray) -> np.ndarray:
    """Return an array that the page has told, in the type and shape of another."""
    return np.frombuffer(base64.b64decode(told[name]), like.dtype).reshape(like.shape)


def assert_near(told: dict[str, str], weights: Arrays) -> None:
    """Compare weights; where a gradient is nearly zero, AdamW makes a step of what is rounding."""
    assert told.keys() == weights.keys()
    for name, array in weights.items():
        distance = np.linalg.norm(unpacked(told, name, array) - array.astype(np.float64))
        assert distance <= 0.02 * np.linalg.norm(array), name


def assert_same(told: dict, losses: list[float], weights: Arrays) -> None:
    if len(losses) == len(told["losses"]):  # not every step may be reported
        np.testing.assert_allclose(told["losses"], losses, rtol=0, atol=1e-3)
    assert_near(told["weights"], weights)


@pytest.mark.parametrize("n_embd, n_head", [(16, 2), (24, 3)])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_twenty_steps_have_the_losses_and_weights_of_fit(n_embd, n_head, weight_decay):
    config = ModelConfig(n_embd=n_embd, n_head=n_head, **SMALL)
    how = {"warmup_iters": 5, "weight_decay": weight_decay, "grad_clip": 0.5, "look_ahead": 0}
    steps = {"max_iters": 20, "eval_interval": 20, "log_interval": 1}
    told, losses, weights = learned(config, TrainConfig(batch_size=4, threads=1, **how, **steps))
    assert losses[-1] < losses[0] - 0.3
    assert_same(told, losses, weights)


OTHER_OPTIONS = {
    "max_iters": 9,
    "batch_size": 3,
    "gradient_accumulation_steps": 2,
    "optimizer": "adamw",
    "learning_rate": 0.007,
    "muon_learning_rate": 0.04,
    "ngram_learning_rate": 0.05,
    "weight_decay": 0.3,
    "beta1": 0.5,
    "beta2": 0.7,
    "grad_clip": 0.0,
    "warmup_iters": 0,
    "look_ahead": 1,
    "logit_scale": 1.4,
    "decay_fraction": 0.0,
    "eval_interval": 3,
    "log_interval": 2,
    "patience": 1,
    "seed": 7,
    "threads": 2,
    "preset": "midi",
    "compile": True,
    "tensorboard": True,
}
REFUSED = {
    "gradient_accumulation_steps",
    "look_ahead",
    "patience",
    "preset",
    "compile",
}


@pytest.mark.parametrize("name", [option.name for option in fields(TrainConfig)])
def test_every_option_of_training_is_heeded_or_refused(name, monkeypatch):
    """By the page and by its maker, who makes a page without a lesson then."""
    how = {"max_iters": 8, "warmup_iters": 2, "look_ahead": 0, "batch_size": 2, "threads": 1}
    value = {name: OTHER_OPTIONS[name]}
    told, losses, weights = learned(ModelConfig(n_embd=16, **SMALL), TrainConfig(**how | value))
    monkeypatch.setattr(page, "MINI", replace(MINI, train=replace(MINI.train, **value)))
    if name not in REFUSED:
        assert_same(told, losses, weights)
        assert teaching_facts("")["train"][name] == OTHER_OPTIONS[name]
        return
    assert told == {"refused": ["not_learned", name]}
    if name == "look_ahead":  # the heads of mini are left out in the page, as the checkpoint says
        return
    with pytest.raises(OtherFunction, match=rf"engine/train\.js does not learn with --{name} "):
        teaching_facts("")


OTHER_MODELS = [
    ("vocab_size", 11),
    ("block_size", 16),
    ("n_layer", 2),
    ("n_head", 4),
    ("n_embd", 24),
    ("dropout", 0.1),
    ("bias", True),
    ("norm", "layernorm"),
    *(("position", name) for name in ("learned", "sinusoidal")),
    *(("activation", name) for name in ("relu", "gelu", "silu", "geglu", "swiglu")),
    ("ngram_size", 1),
    ("ngram_size", 3),
    ("ngram_rows", 61),
    ("ngram_dropout", 0.5),
    ("embedding_skip", False),
    ("qk_norm", False),
    ("tie_embeddings", True),
]
LOSS = """
try {
  const learner = new Learner(given.config, weights, module_);
  learner.begin();
  tell({ loss: learner.window(given.ids) });
} catch ({ message, cause }) {
  tell({ refused: [message, cause?.option] });
}
"""


@pytest.mark.parametrize(("name", "value"), OTHER_MODELS)
def test_every_option_of_a_model_is_computed_or_refused(name, value, monkeypatch):
    config = ModelConfig(**{"n_embd": 16, **SMALL, name: value})
    saved = checkpoint_of(config, "".join(map(chr, range(97, 97 + config.vocab_size))))
    ids = random_ids(1, config.block_size + 1, vocab_size=config.vocab_size)[0].tolist()
    given = {"config": with_derived(config), "ids": ids}
    told = run_in_node(LOSS, weights=packed(saved.weights), **given)
    monkeypatch.setattr(page, "MINI", replace(MINI, model=replace(MINI.model, **{name: value})))
    if "loss" in told:
        logits = torch.from_numpy(exact_logits(saved.build_model(), np.array([ids[:-1]]))[0])
        expected = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]))
        assert told["loss"] / config.block_size == pytest.approx(expected.item(), abs=1e-5)
        assert teaching_facts("")["models"][0][name] == value
        return
    assert told == {"refused": ["not_learned", name]}
    with pytest.raises(OtherFunction, match=rf"engine/gradients\.js .* --{name} {value}, which"):
        teaching_facts("")


def test_the_options_that_are_tried_are_all_there_are():
    assert OTHER_OPTIONS.keys() == {option.name for option in fields(TrainConfig)}
    assert {name for name, _ in OTHER_MODELS} == {option.name for option in fields(ModelConfig)}
    choices = {o.name: get_args(o.type) for o in fields(ModelConfig)}
    tried = {*OTHER_MODELS, *((name, getattr(ModelConfig(), name)) for name in choices)}
    for name, values in choices.items():
        missing = [v for v in values if isinstance(v, str) and (name, v) not in tried]
        assert not missing, f"{name} {missing}"


AGREEMENT = """
try {
  requireAgreement(given.config, module_);
  tell('agrees');
} catch ({ message }) {
  tell(message);
}
"""


@pytest.mark.parametrize("model", [0, 1])
@pytest.mark.parametrize("kernel", [True, False], ids=["wasm", "javascript"])
def test_a_lesson_that_computes_another_function_than_the_model_is_told(model, kernel):
    """As where an activation of one's own stands in one of the two files alone."""
    config = teaching_facts("")["models"][model] | {"vocab_size": 92}
    writes = ("relu2: (x) => Math.max(x, 0) ** 2", "relu2: (x) => Math.max(x, 0.1 * x) ** 2")
    learns = ("value: (x) => Math.max(x, 0) ** 2", "value: (x) => Math.max(x, 0.1 * x) ** 2")
    found = [
        run_in_node(AGREEMENT, kernel=kernel, changes=changes, config=config)
        for changes in ([], [writes], [learns], [writes, learns])
    ]
    assert found == ["agrees", "other_lesson", "other_lesson", "agrees"]


TOGETHER = """
const named = (weights) => Object.fromEntries(
  Object.entries(weights).map(([name, array]) => [name, inBase64(array)]));
// Open channels would keep Node waiting.
const end = (told) => process.stdout.write(JSON.stringify(told), () => process.exit(0));
globalThis.self = { postMessage: (told) => told.done && end(named(told.weights)), close() {} };
const ports = given.ranks.map(() => []);
for (const i of given.ranks) {
  for (const j of given.ranks.slice(i + 1)) {
    const { port1, port2 } = new MessageChannel();
    ports[i].push(port1);
    ports[j].push(port2);
  }
}
const { config, options } = given;
const ids = Uint8Array.from(given.ids);
const kernel = bytesOf(given.kernel);
const common = { config, options, kernel, weights, train: ids, val: ids, count: ports.length };
for (const rank of given.ranks) {
  const own = { ...structuredClone(common), rank, since: Date.now(), prompt: [0] };
  trainTogether(own, ports[rank], { stopped: false, planned: null });
}
"""


@pytest.mark.parametrize("count", [2, 4])
def test_several_workers_learn_what_one_does(count):
    """They share the windows of a batch: each of them is read once."""
    config = ModelConfig(n_embd=16, **SMALL)
    options = TrainConfig(max_iters=6, warmup_iters=2, look_ahead=0, batch_size=5)
    ids = np.random.default_rng(3).geometric(0.3, 2_000) % 13
    state = TrainingState.start(config, options, CPU, ids.astype(np.uint8))
    begin = state.model.arrays()
    given = {"config": with_derived(config), "options": asdict(options), "ids": ids.tolist()}
    given["weights"] = packed(begin)
    alone, shared = (run_in_node(TOGETHER, ranks=list(range(n)), **given) for n in (1, count))
    assert_near(shared, {name: unpacked(alone, name, array) for name, array in begin.items()})


DROPPED = """
const learner = new Learner(given.config, weights, module_);
learner.begin();
let drawn = 0;
const options = { ngram_dropout: given.dropped, random: () => given.numbers[drawn++] };
const loss = learner.window(given.ids, 1 / (given.ids.length - 1), options);
const { table } = learner;
const ofTable = new Float32Array(weights[TABLE].length);
table.rows.forEach((row, i) => ofTable.set(rowOf(table.vectors, i, table.C), row * table.C));
tell({ loss, drawn, table: inBase64(ofTable) });
"""


def test_dropped_ngrams_and_their_gradients_are_pytorchs(monkeypatch):
    """Of each place its n-grams, the shorter first."""
    dropped = 0.4
    saved = checkpoint.load(GOLDEN / "mini.safetensors")
    config = replace(saved.model_config, ngram_dropout=dropped)
    length, count = config.block_size, config.ngram_size - 1
    random = np.random.default_rng(6)
    numbers = random.random((length, count))
    ids = random.integers(config.vocab_size, size=length + 1)
    mask = torch.from_numpy((numbers >= dropped) / (1 - dropped))[:, :, None]
    monkeypatch.setattr(Dropout, "forward", lambda self, x: x * mask if self.of_vectors else x)
    model = replace(saved, model_config=config).build_model().double()
    inputs = torch.from_numpy(ids[None])
    loss = torch.nn.functional.cross_entropy(model(inputs[:, :-1])[0], inputs[0, 1:])
    loss.backward()
    given = {"weights": packed(saved.weights), "config": with_derived(config), "ids": ids.tolist()}
    numbers_given = numbers.reshape(-1).tolist()
    told = run_in_node(DROPPED, dropped=dropped, numbers=numbers_given, **given)
    assert told["drawn"] == length * count
    assert told["loss"] / length == pytest.approx(loss.item(), abs=1e-5)
    gradient = model.ngram_embedding.weight.grad.to_dense().numpy()
    found = np.frombuffer(base64.b64decode(told["table"]), np.float32)
    assert gradient.any()
    np.testing.assert_allclose(found, gradient.flat, rtol=0, atol=1e-4)


def test_a_letter_that_seemed_impossible_costs_much_and_not_infinitely_much():
    saved = checkpoint.load(GOLDEN / "mini.safetensors")
    saved.weights["head.weight"] *= 1000
    length = saved.model_config.block_size
    ids = np.random.default_rng(8).integers(saved.model_config.vocab_size, size=length + 1)
    given = {"config": with_derived(saved.model_config), "ids": ids.tolist()}
    told = run_in_node(WINDOW, weights=packed(saved.weights), **given)
    assert 60 < told["loss"] / length < 100
    for name in told["gradients"]:
        found = np.frombuffer(base64.b64decode(told["gradients"][name]), np.float32)
        assert np.isfinite(found).all(), name


CLIPPED = """
const learner = new Learner(given.config, weights, module_);
tell(given.norms.map((norm) => {
  learner.begin();
  learner.flatGradients.fill(norm / Math.sqrt(learner.flat.length));
  new Optimizer(learner, given.options).step();
  return Math.hypot(...learner.flatGradients);
}));
"""


@pytest.mark.parametrize(
    ("most", "expected"), [(1.0, [0.25, 1, 1]), (2.0, [0.25, 1, 2]), (0.0, [0.25, 1, 40])]
)
def test_gradients_longer_than_the_norm_allowed_are_clipped_to_it(most, expected):
    saved = checkpoint.load(GOLDEN / "mini.safetensors")
    options = asdict(TrainConfig(look_ahead=0, grad_clip=most))
    given = {"config": with_derived(saved.model_config), "options": options}
    found = run_in_node(CLIPPED, weights=packed(saved.weights), norms=[0.25, 1, 40], **given)
    assert found == pytest.approx(expected, rel=1e-4)


FIRST = """
if (given.number !== null) Generator.prototype.random = () => given.number;
const found = newWeights(given.config, given.ids, 5);
tell(Object.fromEntries(Object.entries(found).map(([name, array]) => [name, inBase64(array)])));
"""


@pytest.mark.parametrize("number", [None, 0.0, 1 - 2**-53])
def test_first_weights_are_those_of_the_library_whatever_is_drawn(number):
    """In their names, their shapes and how far they spread; every number in [0, 1) may be drawn."""
    config = ModelConfig(vocab_size=60, n_embd=32, n_layer=2, ngram_rows=50)
    ids = np.random.default_rng(1).integers(60, size=500).astype(np.uint8)
    given = {"config": with_derived(config), "ids": ids.tolist()}
    told = run_in_node(FIRST, number=number, **given)
    expected = TrainingState.start(config, TrainConfig(), CPU, ids).model.arrays()
    assert told.keys() == expected.keys()
    for name, array in expected.items():
        found = unpacked(told, name, array)
        assert np.isfinite(found).all(), name
        if number is None and name != KEYS:
            spread = array.std()
            assert found.std() == pytest.approx(spread, rel=0.1), name
            assert abs(found.mean()) <= 0.1 * spread, name
