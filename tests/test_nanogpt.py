"""What nanoGPT trained becomes a checkpoint of ours, and nothing in its files is executed.

nanogpt.json has the logits of nanoGPT's own code for the models below. With NANOGPT=FOLDER, where
a copy of it lies, that code runs here as well.
"""

import importlib.util
import json
import os
import pickle
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT, run

from sancho import checkpoint
from sancho.convert.huggingface import export_of

pytestmark = pytest.mark.usefixtures("one_thread")

CHARACTERS = "\n !abcdehilmnopqrstuvyñáé,.E"
V, C, BLOCK = len(CHARACTERS), 16, 12
ARGUMENTS = {"n_layer": 2, "n_head": 2, "n_embd": C, "block_size": BLOCK, "vocab_size": V}
ARGUMENTS |= {"dropout": 0.1}
CONFIG = {  # some of what train.py keeps
    "eval_interval": 250,
    "log_interval": 10,
    "dataset": "shakespeare_char",
    "gradient_accumulation_steps": 2,
    "batch_size": 64,
    "learning_rate": 1e-3,
    "max_iters": 5000,
    "weight_decay": 1e-1,
    "beta1": 0.9,
    "beta2": 0.99,
    "grad_clip": 1.0,
    "decay_lr": True,
    "warmup_iters": 100,
    "device": "cpu",
}
IDS = np.random.Generator(np.random.PCG64(7)).integers(0, V, BLOCK).tolist()
GOLDEN = json.loads((ROOT / "tests" / "nanogpt.json").read_text("utf-8"))

with_and_without_bias = pytest.mark.parametrize("bias", [True, False])


def their_shapes(bias: bool) -> dict[str, tuple[int, ...]]:
    """Every tensor of nanoGPT's state_dict(), in its order, the tied head aside."""
    shapes = {"transformer.wte.weight": (V, C), "transformer.wpe.weight": (BLOCK, C)}

    def norm(name: str) -> None:
        shapes[f"{name}.weight"] = (C,)
        shapes.update({f"{name}.bias": (C,)} if bias else {})

    def linear(name: str, rows: int, columns: int) -> None:
        shapes[f"{name}.weight"] = (rows, columns)
        shapes.update({f"{name}.bias": (rows,)} if bias else {})

    for layer in range(ARGUMENTS["n_layer"]):
        block = f"transformer.h.{layer}"
        norm(f"{block}.ln_1")
        linear(f"{block}.attn.c_attn", 3 * C, C)
        linear(f"{block}.attn.c_proj", C, C)
        norm(f"{block}.ln_2")
        linear(f"{block}.mlp.c_fc", 4 * C, C)
        linear(f"{block}.mlp.c_proj", C, 4 * C)
    norm("transformer.ln_f")
    return shapes


def their_weights(bias: bool = True) -> dict[str, torch.Tensor]:
    """Evenly distributed numbers, the same on every machine."""
    random = np.random.Generator(np.random.PCG64(5))
    weights = OrderedDict()
    for name, shape in their_shapes(bias).items():
        values = random.random(shape) - 0.5 + (".ln_" in name and name.endswith("weight"))
        weights[name] = torch.from_numpy(values.astype(np.float32))
    weights["lm_head.weight"] = weights["transformer.wte.weight"]
    return weights


def their_checkpoint(bias: bool = True, **changes) -> dict:
    """What nanoGPT's train.py saves; its optimizer is that of a real run."""
    weights = their_weights(bias)
    optimizer = torch.optim.AdamW([torch.zeros(3, requires_grad=True)])
    return {
        "model": weights,
        "optimizer": optimizer.state_dict(),
        "model_args": ARGUMENTS | {"bias": bias},
        "iter_num": 250,
        "best_val_loss": torch.tensor(1.75),
        "config": CONFIG,
    } | changes


def their_meta(characters: str = CHARACTERS) -> dict:
    return {
        "vocab_size": len(characters),
        "itos": dict(enumerate(characters)),
        "stoi": {c: i for i, c in enumerate(characters)},
    }


@pytest.fixture
def files(tmp_path) -> Callable:
    """Writes both files and runs the command."""

    def convert(content: object = None, meta: object = None) -> SimpleNamespace:
        torch.save(their_checkpoint() if content is None else content, tmp_path / "ckpt.pt")
        (tmp_path / "meta.pkl").write_bytes(pickle.dumps(meta or their_meta()))
        return command(tmp_path)

    return convert


def command(folder: Path, meta: bool = True) -> SimpleNamespace:
    args = ["--checkpoint", folder / "ckpt.pt", "--output", folder / "ours.safetensors"]
    return run("convert.py", "from-nanogpt", *args, *(["--meta", folder / "meta.pkl"] * meta))


def assert_refused(done: SimpleNamespace, words: str, folder: Path) -> None:
    assert (done.status, done.out) == (2, "")
    assert done.err.count("\n") == 1, done.err
    assert words in done.err
    assert not list(folder.glob("ours*"))


# --- the same model -------------------------------------------------------------------------


@with_and_without_bias
def test_logits_are_those_of_its_own_code(files, tmp_path, bias):
    assert files(their_checkpoint(bias)).status == 0
    saved = checkpoint.load(tmp_path / "ours.safetensors")
    with torch.inference_mode():
        logits = saved.build_model()(torch.tensor([IDS]))[0].numpy()
    np.testing.assert_allclose(logits, GOLDEN[f"bias {bias}"], rtol=0, atol=1e-5)


@with_and_without_bias
def test_its_own_code_gives_them_again(bias):
    if not (folder := os.environ.get("NANOGPT")):
        pytest.skip("NANOGPT does not say where a copy of nanoGPT lies")
    np.testing.assert_allclose(run_nanogpt(Path(folder), bias), GOLDEN[f"bias {bias}"], atol=1e-5)


def run_nanogpt(folder: Path, bias: bool) -> np.ndarray:
    """Return the logits after each of IDS, (T, V), as nanoGPT's model.py computes them."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.GPT(module.GPTConfig(**ARGUMENTS | {"bias": bias})).eval()
    model.load_state_dict(their_weights(bias))
    ids = torch.tensor([IDS])
    with torch.inference_mode():
        return model(ids, targets=ids)[0][0].numpy()


def test_what_is_known_of_the_run_comes_along(files, tmp_path):
    done = files()
    assert (done.status, done.out) == (0, "")
    assert "ours.safetensors: 7,232 parameters, 28 characters, 250 steps" in done.err
    assert "validation loss 1.7500" in done.err
    saved = checkpoint.load(tmp_path / "ours.safetensors")
    assert saved.characters == CHARACTERS
    assert asdict(saved.model).items() >= (ARGUMENTS | {"bias": True}).items()
    assert saved.model.tie_embeddings
    assert saved.corpus_name == "shakespeare_char"
    assert (saved.progress.step, saved.progress.val_loss) == (250, 1.75)
    assert saved.progress.tokens == 250 * 2 * 64 * BLOCK
    train = asdict(saved.train)
    assert train["optimizer"] == "adamw"
    known = CONFIG.keys() & train.keys()
    assert len(known) == 11
    assert all(train[name] == CONFIG[name] for name in known)


def test_what_torch_compile_and_old_versions_add_is_dropped(files, tmp_path):
    files()
    plain = checkpoint.load(tmp_path / "ours.safetensors")
    (tmp_path / "ours.safetensors").unlink()
    weights = {f"_orig_mod.{name}": tensor for name, tensor in their_weights().items()}
    mask = torch.ones(BLOCK, BLOCK).tril().view(1, 1, BLOCK, BLOCK)
    weights |= {f"_orig_mod.transformer.h.{layer}.attn.bias": mask for layer in (0, 1)}
    assert files(their_checkpoint(model=weights)).status == 0
    compiled = checkpoint.load(tmp_path / "ours.safetensors")
    assert plain.weights.keys() == compiled.weights.keys()
    assert all((plain.weights[name] == a).all() for name, a in compiled.weights.items())


def test_a_head_that_is_not_tied_stays_so(files, tmp_path):
    weights = their_weights() | {"lm_head.weight": torch.ones(V, C)}
    assert files(their_checkpoint(model=weights)).status == 0
    saved = checkpoint.load(tmp_path / "ours.safetensors")
    assert not saved.model.tie_embeddings
    assert (saved.weights["head.weight"] == 1).all()


def test_to_transformers_it_is_a_gpt2(files, tmp_path):
    files()
    saved = checkpoint.load(tmp_path / "ours.safetensors")
    export = export_of(saved)
    assert export.name == "GPT2LMHeadModel"
    assert (export.config["activation_function"], export.config["n_positions"]) == ("gelu", BLOCK)
    theirs = their_weights()
    assert export.weights.keys() == theirs.keys() - {"lm_head.weight"}
    for name, array in export.weights.items():
        is_linear = re.search(r"(attn|mlp)\.c_\w+\.weight", name)
        assert (array == (theirs[name].T if is_linear else theirs[name]).numpy()).all()


def test_training_goes_on_with_it(files, project):
    # The project's text has characters that the model must know.
    text = set((project / "tiny.txt").read_text("utf-8"))
    more = sorted(set("ÑÁÉÍÓÚáéíóúñü¿¡—«»;") - text)
    characters = "".join(sorted([*text, *more[: V - len(text)]]))
    assert files(meta=their_meta(characters)).status == 0
    shape = "--n_layer 2 --n_head 2 --n_embd 16 --block_size 12 --activation gelu --bias".split()
    shape += ["--tie_embeddings", "--preset=classic", "--device=cpu"]
    more = "--max_iters 3 --batch_size 2 --eval_interval 3".split()
    done = run("train.py", "--dataset=tiny", "--init_from=ours.safetensors", *shape, *more)
    assert done.status == 0, done.err
    assert checkpoint.load(project / "out" / "last.safetensors").progress.step == 3


# --- hostile, damaged, and other files ------------------------------------------------------


class Call:
    """A pickle of it calls a function when it is opened."""

    def __init__(self, function: Callable, *args) -> None:
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.fixture
def opened(tmp_path) -> Iterator[Call]:
    """A call that would leave a trace, and must not."""
    yield Call(os.mkdir, str(tmp_path / "opened"))
    assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_meta_that_calls_something_is_refused_by_name(opened, tmp_path, protocol):
    torch.save(their_checkpoint(), tmp_path / "ckpt.pt")
    forged = pickle.dumps(their_meta() | {"stoi": opened}, protocol)
    (tmp_path / "meta.pkl").write_bytes(forged)
    done = command(tmp_path)
    assert_refused(done, "meta.pkl is refused: to open it would call ", tmp_path)
    assert ".mkdir" in done.err


@pytest.mark.parametrize("old_format", [False, True])
def test_a_checkpoint_that_calls_something_is_refused_by_name(opened, tmp_path, old_format):
    options = {"_use_new_zipfile_serialization": not old_format}
    torch.save(their_checkpoint(config=opened), tmp_path / "ckpt.pt", **options)
    done = command(tmp_path)
    assert_refused(done, "ckpt.pt is refused: to open it would call ", tmp_path)
    assert ".mkdir" in done.err


@pytest.mark.parametrize("size", [50257, 50304])
def test_gpt2_tokens_are_refused_with_a_reason(files, tmp_path, size):
    words = f"GPT-2's {size} tokens, which are pieces of words"
    done = files(their_checkpoint(model_args=ARGUMENTS | {"vocab_size": size}))
    assert_refused(done, words, tmp_path)
    assert_refused(command(tmp_path, meta=False), words, tmp_path)


def test_without_meta_it_says_what_is_missing(tmp_path):
    torch.save(their_checkpoint(), tmp_path / "ckpt.pt")
    done = command(tmp_path, meta=False)
    assert_refused(done, "--meta is missing: give the meta.pkl", tmp_path)


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        (their_meta(CHARACTERS[1:]), "has 27 characters"),
        ({"vocab_size": 3}, "'itos'"),
        ([1, 2], "no meta.pkl"),
        (7, "no meta.pkl"),
        ({"itos": {0: "a", 2: "b"}}, "no meta.pkl"),
        ({"itos": ["ab", "c"]}, "not single characters"),
        ({"itos": ["a", "a"]}, "not single characters"),
        ({"itos": [1, 2]}, "no meta.pkl"),
        ({"itos": ["a", "\ud800"]}, "no meta.pkl"),
    ],
)
def test_another_meta_is_refused(files, tmp_path, meta, words):
    assert_refused(files(meta=meta), words, tmp_path)


NOT_FINITE = torch.full((BLOCK, C), torch.inf)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_args": {"n_layer": 2}}, "'vocab_size' is missing"),
        ({"model_args": None}, "no checkpoint of nanoGPT's"),
        ({"model": {}}, "'lm_head.weight' is missing"),
        ({"model": 3}, "no checkpoint of nanoGPT's"),
        ({"model_args": ARGUMENTS | {"n_layer": 1}}, "tensor transformer.h.1.attn.c_attn.bias"),
        ({"model_args": ARGUMENTS | {"n_layer": 3}}, "'transformer.h.2.ln_1.weight' is missing"),
        ({"model_args": ARGUMENTS | {"n_layer": 900}}, "too few tensors"),
        ({"model_args": ARGUMENTS | {"n_layer": 10**9}}, "n_layer"),
        ({"model": their_weights() | {"transformer.wpe.weight": NOT_FINITE}}, "not finite"),
        ({"model_args": ARGUMENTS | {"block_size": 13}}, "transformer.wpe.weight has shape"),
        ({"best_val_loss": torch.tensor(float("nan"))}, "a loss is nan"),
        ({"iter_num": -1}, "step is -1"),
        ({"iter_num": "x"}, "no checkpoint of nanoGPT's"),
    ],
)
def test_another_checkpoint_is_refused(files, tmp_path, changes, words):
    assert_refused(files(their_checkpoint(**changes)), words, tmp_path)


@pytest.mark.parametrize("name", ["meta.pkl", "ckpt.pt"])
def test_damaged_files_are_refused(files, tmp_path, name):
    files()
    random, whole = np.random.default_rng(1), (tmp_path / name).read_bytes()
    for damage in range(12):
        (tmp_path / "ours.safetensors").unlink(missing_ok=True)
        raw = bytearray(whole if damage >= 4 else whole[: len(whole) * damage // 4])
        for place in random.integers(0, min(len(whole), 2000), 3) if damage >= 4 else ():
            raw[place] ^= int(random.integers(1, 256))
        (tmp_path / name).write_bytes(raw)
        done = command(tmp_path)
        assert done.status in (0, 2), done.err  # a flipped bit in a weight can't be known
        assert damage >= 4 or done.status == 2
        assert "Traceback" not in done.err


def test_nothing_is_replaced(files, tmp_path):
    (tmp_path / "ours.safetensors").write_text("mine")
    done = files()
    assert done.status == 2
    assert "is there already; choose another name" in done.err
    assert (tmp_path / "ours.safetensors").read_text() == "mine"
