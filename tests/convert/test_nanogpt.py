"""What nanoGPT trained becomes a checkpoint of ours, and nothing in its files is executed.

nanogpt.json has the logits of nanoGPT's own code for the models below.
"""

import codecs
import io
import json
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT, Hostile, assert_refused, assert_same_arrays, run

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.convert.nanogpt import HARMLESS

CHARACTERS = "\n !abcdehilmnopqrstuvyñáé,.E"
V, C, BLOCK = len(CHARACTERS), 16, 12
ARGUMENTS = {"n_layer": 2, "n_head": 2, "n_embd": C, "block_size": BLOCK, "vocab_size": V}
ARGUMENTS |= {"dropout": 0.1}
# Some of what train.py keeps, of which eleven are options here too.
CONFIG = {"eval_interval": 250, "log_interval": 10, "max_iters": 5000, "warmup_iters": 100}
CONFIG |= {"learning_rate": 1e-3, "weight_decay": 1e-1, "beta1": 0.9, "beta2": 0.99}
CONFIG |= {"batch_size": 64, "gradient_accumulation_steps": 2, "grad_clip": 1.0}
CONFIG |= {"dataset": "shakespeare_char", "decay_lr": True, "device": "cpu"}
IDS = np.random.Generator(np.random.PCG64(7)).integers(0, V, BLOCK).tolist()
GOLDEN = json.loads((ROOT / "tests" / "nanogpt.json").read_text("utf-8"))
EXECUTES = "exec import marshal.loads pickle.find_class subprocess.Popen os.system os.fork".split()


@cache
def executed() -> list[str]:
    """What Python is asked to execute from now on; such a hook stays for as long as the process."""
    asked: list[str] = []
    for name in ("latin1", "raw_unicode_escape", "cp437"):
        codecs.lookup(name)  # so that texts in an old pickle or a zip file import nothing more
    for is_zip in (True, False):  # PyTorch imports some of its modules when it first reads a file
        file = io.BytesIO()
        torch.save({}, file, _use_new_zipfile_serialization=is_zip)
        torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    sys.addaudithook(lambda event, args: event in EXECUTES and asked.append(event))
    return asked


def their_weights(bias: bool = True) -> dict[str, torch.Tensor]:
    """Every tensor of nanoGPT's state_dict(), in its order.

    Evenly distributed numbers, the same on every machine.
    """
    block = {"ln_1": (C,), "attn.c_attn": (3 * C, C), "attn.c_proj": (C, C)}
    block |= {"ln_2": (C,), "mlp.c_fc": (4 * C, C), "mlp.c_proj": (C, 4 * C)}
    parts = {f"h.{layer}.{part}": shape for layer in (0, 1) for part, shape in block.items()}
    shapes = {"wte.weight": (V, C), "wpe.weight": (BLOCK, C)}
    for part, shape in (parts | {"ln_f": (C,)}).items():
        shapes |= {f"{part}.weight": shape} | ({f"{part}.bias": shape[:1]} if bias else {})
    random = np.random.Generator(np.random.PCG64(5))
    weights = OrderedDict()
    for name, shape in shapes.items():
        values = random.random(shape) - 0.5 + ("ln_" in name and name.endswith("weight"))
        weights[f"transformer.{name}"] = torch.from_numpy(values.astype(np.float32))
    weights["lm_head.weight"] = weights["transformer.wte.weight"]
    return weights


def their_optimizer(decayed: int = 10) -> dict:
    """AdamW's state; of the weights of two blocks and of embeddings so many decay."""
    weights = [torch.zeros(1, requires_grad=True) for _ in range(28)]
    groups = [{"params": weights[:decayed]}, {"params": weights[decayed:]}]
    return torch.optim.AdamW(groups).state_dict()


def their_checkpoint(bias: bool = True, **changes) -> dict:
    """What nanoGPT's train.py saves."""
    return {
        "model": their_weights(bias),
        "optimizer": their_optimizer(),
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


def convert(
    folder: Path, content: dict | None = None, meta: object = None, protocol: int | None = None
) -> SimpleNamespace:
    """Write both files and run the command; without `meta` the one that belongs there."""
    is_zip = protocol in (None, pickle.HIGHEST_PROTOCOL)
    content = content or their_checkpoint()
    torch.save(content, folder / "ckpt.pt", _use_new_zipfile_serialization=is_zip)
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta or their_meta(), protocol))
    return command(folder, "--meta", folder / "meta.pkl")


def command(folder: Path, *args: str | Path) -> SimpleNamespace:
    paths = ("--checkpoint", folder / "ckpt.pt", "--output", folder / "ours.safetensors")
    executed().clear()
    done = run("convert.py", "from-nanogpt", *paths, *args)
    assert executed() == []
    return done


def converted(folder: Path, **changes) -> Checkpoint:
    """Return what becomes of a checkpoint of nanoGPT's with some changes."""
    done = convert(folder, their_checkpoint(**changes))
    assert (done.status, done.out) == (0, "")
    saved = checkpoint.load(folder / "ours.safetensors")
    (folder / "ours.safetensors").unlink()
    return saved


def refuses(folder: Path, done: SimpleNamespace, words: str) -> None:
    assert_refused(done, "convert.py", words)
    assert not list(folder.glob("ours*"))


# --- the same model -------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
def test_logits_are_those_of_its_own_code(tmp_path, bias):
    with torch.inference_mode():
        logits = converted(tmp_path, bias=bias).build_model()(torch.tensor([IDS]))[0].numpy()
    np.testing.assert_allclose(logits, GOLDEN[f"bias {bias}"], rtol=0, atol=1e-5)


def test_what_is_known_of_the_run_comes_along(tmp_path):
    done = convert(tmp_path)
    assert "ours.safetensors: 7,232 parameters, 28 characters, 250 steps" in done.err
    assert "validation loss 1.7500" in done.err
    saved = checkpoint.load(tmp_path / "ours.safetensors")
    assert saved.characters == CHARACTERS
    assert asdict(saved.model_config).items() >= (ARGUMENTS | {"bias": True}).items()
    assert saved.model_config.tie_embeddings
    assert saved.corpus_name == "shakespeare_char"
    assert (saved.progress.step, saved.progress.val_loss) == (250, 1.75)
    assert saved.progress.tokens == 250 * 2 * 64 * BLOCK
    train = asdict(saved.train_config)
    assert train["optimizer"] == "adamw"
    known = CONFIG.keys() & train.keys()
    assert len(known) == 11
    assert all(train[name] == CONFIG[name] for name in known)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "_orig_mod.module."])
def test_what_wrappers_and_old_versions_add_is_dropped(tmp_path, prefix):
    weights = {f"{prefix}{name}": tensor for name, tensor in their_weights().items()}
    mask = torch.ones(BLOCK, BLOCK).tril().view(1, 1, BLOCK, BLOCK)
    weights |= {f"{prefix}transformer.h.{layer}.attn.bias": mask for layer in (0, 1)}
    wrapped = converted(tmp_path, model=weights)
    assert_same_arrays(wrapped.weights, converted(tmp_path).weights)


@pytest.mark.parametrize("vocab_size", [64, V])
def test_rows_that_fill_up_the_vocabulary_are_cut_and_told(tmp_path, vocab_size):
    weights = their_weights()
    filled = torch.nn.functional.pad(weights["lm_head.weight"], (0, 0, 0, 64 - V), value=9.0)
    weights |= {"lm_head.weight": filled, "transformer.wte.weight": filled}
    model_args = ARGUMENTS | {"bias": True, "vocab_size": vocab_size}
    done = convert(tmp_path, their_checkpoint(model=weights, model_args=model_args))
    assert "its embedding has 64 rows for 28 characters" in done.err
    saved = checkpoint.load(tmp_path / "ours.safetensors")
    (tmp_path / "ours.safetensors").unlink()
    assert_same_arrays(saved.weights, converted(tmp_path).weights)


ODD = {"max_iters": 5000.0, "eval_interval": 0, "log_interval": 0, "seed": None, "beta1": "0.9"}
ODD |= {"batch_size": 100000, "out_dir": Path("out"), "loss": np.float32(1.5), "dataset": None}
READ = 250 * 2 * 64 * BLOCK  # characters


@pytest.mark.parametrize(
    ("changes", "options", "tokens"),
    [
        ({"config": None}, {}, 0),
        ({"config": CONFIG | ODD}, {"max_iters": 5000, "learning_rate": 1e-3}, 0),
        ({"config": CONFIG | {"seed": -1, "eval_interval": 2.5}}, {"batch_size": 64}, READ),
        ({"config": CONFIG | {"batch_size": np.int64(32)}}, {"batch_size": 32}, READ / 2),
        ({"optimizer": [their_optimizer()]}, {}, READ),
        ({"optimizer": {"param_groups": 3}}, {}, READ),
        ({"iter_num": np.int64(250), "best_val_loss": np.float64(1.75)}, {}, READ),
        ({"iter_num": torch.tensor(250.0), "best_val_loss": 1.75}, {}, READ),
    ],
)
def test_what_is_not_the_model_does_not_keep_it_out(tmp_path, changes, options, tokens):
    saved = converted(tmp_path, **changes)
    assert_same_arrays(saved.weights, converted(tmp_path).weights)
    progress = saved.progress
    # What was read is not guessed where the size of a batch is unknown.
    assert (progress.step, progress.val_loss, progress.tokens) == (250, 1.75, tokens)
    assert asdict(saved.train_config).items() >= options.items()


@pytest.mark.parametrize("loss", [None, torch.inf, torch.tensor(torch.nan)])
def test_a_loss_that_is_no_number_is_left_out(tmp_path, loss):
    assert converted(tmp_path, best_val_loss=loss).progress.val_loss is None


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_harmless_objects_in_meta_are_read(tmp_path, protocol):
    meta = OrderedDict(their_meta()) | {"chars": set(CHARACTERS), "path": Path("data")}
    meta |= {"vocab_size": np.int64(V), "itos": OrderedDict(meta["itos"])}
    assert convert(tmp_path, meta=meta, protocol=protocol).status == 0
    assert checkpoint.load(tmp_path / "ours.safetensors").characters == CHARACTERS


def test_a_pickle_changes_nothing_of_what_stands_in(tmp_path):
    state = b"N}X\x01\x00\x00\x00aK\x01s\x86b."  # (None, {"a": 1}), set on a function
    convert(tmp_path)
    (tmp_path / "ours.safetensors").unlink()
    (tmp_path / "meta.pkl").write_bytes(b"\x80\x02cpathlib\nPosixPath\n" + state)
    refuses(tmp_path, command(tmp_path, "--meta", tmp_path / "meta.pkl"), "not the meta.pkl")
    assert not hasattr(HARMLESS["pathlib.PosixPath"], "a")


def test_a_head_that_is_not_tied_stays_so(tmp_path):
    saved = converted(tmp_path, model=their_weights() | {"lm_head.weight": torch.ones(V, C)})
    assert not saved.model_config.tie_embeddings
    assert (saved.weights["head.weight"] == 1).all()


@pytest.mark.parametrize(
    ("changes", "is_old"),
    [
        ({}, False),
        ({"optimizer": their_optimizer(8)}, True),  # until May 2023 the embeddings did not decay
        ({"model_args": ARGUMENTS}, True),  # until January 2023 there was no `bias`
    ],
)
def test_it_says_which_gelu_the_model_was_trained_with(tmp_path, changes, is_old):
    _, note = convert(tmp_path, their_checkpoint(**changes)).err.splitlines()
    assert ("was trained with the tanh" if is_old else "an exact GELU is assumed") in note


# --- hostile, damaged, and other files ------------------------------------------------------


@pytest.mark.parametrize("name", ["meta.pkl", "ckpt.pt"])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_calls_something_is_refused_by_name(tmp_path, name, protocol):
    files = {"content": their_checkpoint(), "meta": their_meta()}
    file, key = ("meta", "stoi") if name == "meta.pkl" else ("content", "config")
    files[file][key] = Hostile(tmp_path / "opened")
    done = convert(tmp_path, **files, protocol=protocol)
    refuses(tmp_path, done, f"{name} is refused: opening it would call ")
    assert ".mkdir" in done.err
    assert not (tmp_path / "opened").exists()


def test_without_meta_it_says_what_is_missing(tmp_path):
    torch.save(their_checkpoint(), tmp_path / "ckpt.pt")
    refuses(tmp_path, command(tmp_path), "--meta is missing: give the meta.pkl")


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        (their_meta(CHARACTERS[1:]), "has 27 characters"),
        ({"vocab_size": 3}, "'itos'"),
        (7, "not the meta.pkl"),
        ({"itos": ["ab", "c"]}, "not single characters"),
        ({"itos": ["a", "a"]}, "a character twice"),
        ({"itos": ["a", "\ud800"]}, "not the meta.pkl"),
    ],
)
def test_another_meta_is_refused(tmp_path, meta, words):
    refuses(tmp_path, convert(tmp_path, meta=meta), words)


NOT_FINITE = torch.full((BLOCK, C), torch.inf)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_args": {"n_layer": 2}}, "'vocab_size' is missing"),
        ({"model_args": ARGUMENTS | {"vocab_size": 50257}}, "GPT-2's 50257 tokens, which are"),
        ({"model_args": ARGUMENTS | {"vocab_size": 50304}}, "GPT-2's 50304 tokens, which are"),
        ({"model_args": ARGUMENTS | {"vocab_size": 65537}}, "ckpt.pt has 65537; give the meta.pkl"),
        ({"model_args": ARGUMENTS | {"n_layer": 1}}, "tensor transformer.h.1.attn.c_attn.bias"),
        ({"model_args": ARGUMENTS | {"n_layer": 900}}, "too few tensors"),
        ({"model_args": ARGUMENTS | {"n_layer": 10**9}}, "damaged: n_layer is 1000000000; it must"),
        ({"model": their_weights() | {"transformer.wpe.weight": NOT_FINITE}}, "not finite"),
        ({"model_args": ARGUMENTS | {"block_size": 13}}, "transformer.wpe.weight has shape"),
    ],
)
def test_another_checkpoint_is_refused(tmp_path, changes, words):
    refuses(tmp_path, convert(tmp_path, their_checkpoint(**changes)), words)


# --- small files that would take hours or all memory; here they would take little, but be read ---


class Called:
    """A pickle of it calls something with the result of another such call."""

    def __init__(self, function: object, *parts: object) -> None:
        self.call = function, parts

    def __reduce__(self) -> tuple:
        return self.call


def doubled(make: Callable, thing: object, times: int = 20) -> object:
    """Return what is made of a thing twice, of the result twice, and so on."""
    for _ in range(times):
        thing = make(thing, thing)
    return thing


DEEP = doubled(lambda a, b: (a, b), "a")
JOINED = doubled(lambda a, b: Called(type(Path()), a, b), "a")
HEX = doubled(lambda a, _: Called(codecs.encode, a, "hex"), b"a")
TOO_LARGE = "its pickle would grow too large when it is read"
CAREFUL = [
    ({DEEP: 1}, TOO_LARGE),
    ({DEEP}, TOO_LARGE),
    (JOINED, TOO_LARGE),
    (2**70, "which nanoGPT never writes"),
]


@pytest.mark.parametrize(
    ("extra", "words"),
    [*CAREFUL, ({frozenset("a")}, "the instruction FROZENSET, which nanoGPT never writes")],
)
def test_a_meta_that_grows_is_refused(tmp_path, extra, words):
    refuses(tmp_path, convert(tmp_path, meta=their_meta() | {"extra": extra}), words)


def test_a_place_far_off_in_the_memo_is_refused(tmp_path):
    convert(tmp_path)
    (tmp_path / "ours.safetensors").unlink()
    far = b"\x80\x02Nr" + (10**7).to_bytes(4, "little")
    (tmp_path / "meta.pkl").write_bytes(far + pickle.dumps(their_meta(), 2)[2:])
    done = command(tmp_path, "--meta", tmp_path / "meta.pkl")
    refuses(tmp_path, done, "the instruction LONG_BINPUT, which nanoGPT never writes")


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize(
    ("extra", "words"),
    [
        *CAREFUL,
        (HEX, TOO_LARGE),
        (Called(bytearray, 10**6), "bytearray, and no file of nanoGPT calls anything"),
        (Called(torch.FloatTensor, 10**6), "opening it would call torch.FloatTensor"),
    ],
)
def test_a_checkpoint_that_grows_is_refused(tmp_path, extra, words, is_zip):
    config = CONFIG | {"extra": extra}
    protocol = None if is_zip else 2
    done = convert(tmp_path, their_checkpoint(config=config), protocol=protocol)
    refuses(tmp_path, done, words)


def test_what_calls_no_function_is_refused(tmp_path):
    """PyTorch would say what is called, which may be a list of lists of lists."""
    convert(tmp_path)
    (tmp_path / "ours.safetensors").unlink()
    called = b"\x80\x02]q\x00" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(16))
    first = b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {}))
    (tmp_path / "ckpt.pt").write_bytes(first + called + b")R." + pickle.dumps([], 2))
    done = command(tmp_path, "--meta", tmp_path / "meta.pkl")
    refuses(tmp_path, done, "calls something that is not a function")


def test_numbers_that_are_repeated_are_refused_before_they_are_copied(tmp_path):
    weights = their_weights() | {"extra": torch.zeros(1).expand(10**6)}
    done = convert(tmp_path, their_checkpoint(model=weights))
    refuses(tmp_path, done, "its tensors are larger than the file")


def test_a_compressed_checkpoint_is_refused(tmp_path):
    convert(tmp_path)
    (tmp_path / "ours.safetensors").unlink()
    with zipfile.ZipFile(tmp_path / "ckpt.pt") as parts:
        content = {part: parts.read(part) for part in parts.namelist()}
    with zipfile.ZipFile(tmp_path / "ckpt.pt", "w", zipfile.ZIP_DEFLATED) as parts:
        for name, raw in content.items():
            parts.writestr(name, raw)
    done = command(tmp_path, "--meta", tmp_path / "meta.pkl")
    refuses(tmp_path, done, "it is compressed, which no file of PyTorch is")


def test_values_that_are_none_are_named_by_their_type(tmp_path):
    lists = doubled(lambda a, b: [a, b], 1)
    assert converted(tmp_path, config=CONFIG | {"dataset": lists}).corpus_name == ""
    done = convert(tmp_path, their_checkpoint(model_args=ARGUMENTS | {"n_layer": lists}))
    refuses(tmp_path, done, "n_layer is a list")


def test_half_a_surrogate_is_refused_before_it_is_written(tmp_path):
    done = convert(tmp_path, their_checkpoint(config=CONFIG | {"dataset": "a\ud800"}))
    refuses(tmp_path, done, r"the name of the corpus has '\ud800', half a character")


def test_weights_alone_lack_the_shape(tmp_path):
    refuses(tmp_path, convert(tmp_path, their_weights()), "it is a bare state_dict")


@pytest.mark.parametrize("name", ["meta.pkl", "ckpt.pt"])
def test_damaged_files_are_refused(tmp_path, name):
    convert(tmp_path)
    random, whole = np.random.default_rng(1), (tmp_path / name).read_bytes()
    cut = [whole[: len(whole) * quarters // 4] for quarters in range(4)]
    for number in range(12):
        raw = bytearray(whole)
        for place in random.integers(0, min(len(whole), 2000), 3):
            raw[place] ^= int(random.integers(1, 256))
        (tmp_path / name).write_bytes(cut[number] if number < len(cut) else raw)
        (tmp_path / "ours.safetensors").unlink(missing_ok=True)
        done = command(tmp_path, "--meta", tmp_path / "meta.pkl")
        # A flipped bit in a weight can't be known.
        assert done.status == 2 or (done.status == 0 and number >= len(cut)), done.err
