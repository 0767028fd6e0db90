import itertools
import json
import pickle
import tracemalloc
from copy import deepcopy
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from architectures import EACH_CHOICE, ODD_SHAPES, OTHERS, SMALL
from audit import Hostile
from conftest import CPU, assert_same_arrays
from runs import corpus_of, run, start, train_config

from sancho import checkpoint
from sancho.checkpoint import FORMAT, Checkpoint, Progress, count_parameters, weight_shapes
from sancho.config import ModelConfig, RunConfig
from sancho.errors import UserError
from sancho.model import GPT
from sancho.presets import PRESETS
from sancho.training import TrainingState

SHAPE = {"vocab_size": 3, "block_size": 4, "n_layer": 1, "n_head": 1, "n_embd": 2}
TINY = replace(SMALL, ngram_size=2, ngram_rows=5, ngram_vocabulary=True, **SHAPE)
OURS = {"format": FORMAT, "version": str(checkpoint.VERSION)}
WITHOUT_CONTENT = {"__metadata__": OURS | {"content": "{}"}}
HEAD = "model.head.weight"  # (3, 2)


def make_checkpoint(config: ModelConfig = TINY, optimizer: str = "muon") -> Checkpoint:
    """Return the checkpoint of a model that has made two steps."""
    corpus = corpus_of("".join(chr(ord("ñ") + i) for i in range(config.vocab_size)) * 40)
    train = train_config(optimizer=optimizer, look_ahead=1)
    state = TrainingState.start(config, train, CPU, corpus.train)
    run(state, corpus, 2)
    done = {"step": 2, "tokens": 16, "seconds": 0.1 + 0.2, "val_loss": 1 / 3, "best_val_loss": 0.1}
    done |= {"evaluations_since_best": 1, "recent_losses": [1.1, 2.2]}
    return replace(
        state.to_checkpoint(corpus, with_optimizer=True),
        run=RunConfig(preset="mini", device="cpu", dtype="bfloat16", compile=True),
        progress=Progress(**done),
        corpus_name="a text",
    )


def assert_same(ours: Checkpoint, theirs: Checkpoint) -> None:
    for name in "model characters train run progress corpus_name corpus_sha256".split():
        assert getattr(ours, name) == getattr(theirs, name), name
    assert_same_arrays(ours.weights, theirs.weights)
    assert_same_arrays(ours.optimizer, theirs.optimizer)


def forge(path: Path, content: object, tensors: dict, **metadata: str) -> Path:
    """Write a file whose checksum is right, whatever it holds; a text is taken as it is."""
    text = content if isinstance(content, str) else json.dumps(content)
    head = OURS | {"content": text, "sha256": checkpoint._digest(text, tensors)}
    path.write_bytes(safetensors.numpy.save(tensors, head | metadata))
    return path


def write_head(path: Path, head: object, data: bytes = b"") -> Path:
    """Write a file with this head, bytes or what becomes JSON, before some data."""
    raw = head if isinstance(head, bytes) else json.dumps(head).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return path


def refuse(path: Path) -> str:
    """Assert that loading raises one clear line, and return it."""
    with pytest.raises(UserError) as caught:
        checkpoint.load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def refuse_in_little_memory(path: Path) -> str:
    """As `refuse`, and what Python and NumPy take for it is next to nothing."""
    tracemalloc.start()
    try:
        message = refuse(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    return message


@pytest.fixture(scope="module")
def saved() -> Checkpoint:
    return make_checkpoint()


@pytest.fixture(scope="module")
def raw(saved, tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "tiny.safetensors"
    checkpoint.save(path, saved)
    return path.read_bytes()


@pytest.fixture
def content(raw) -> dict:
    """What the JSON of a good file says, to be changed."""
    head = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    return json.loads(head["__metadata__"]["content"])


@pytest.fixture
def tensors(raw) -> dict:
    """The weights of a good file, by the names that they have in it, to be changed."""
    return {k: t for k, t in safetensors.numpy.load(raw).items() if k.startswith("model.")}


# --- what is saved comes back ---------------------------------------------------------------


@pytest.mark.parametrize(("optimizer", "tie_embeddings"), [("muon", False), ("adamw", True)])
@pytest.mark.parametrize("preset", PRESETS)
def test_round_trip_bit_for_bit(tmp_path, preset, optimizer, tie_embeddings):
    shape = {"vocab_size": 7, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 8}
    shape |= {"ngram_rows": 16, "tie_embeddings": tie_embeddings}
    before = make_checkpoint(replace(PRESETS[preset].model, **shape), optimizer)
    assert before.optimizer
    checkpoint.save(tmp_path / "x.safetensors", before)
    after = checkpoint.load(tmp_path / "x.safetensors")
    assert_same(before, after)
    assert after.tokenizer.characters == before.characters
    random_state = torch.get_rng_state()
    model = after.build_model()
    assert torch.equal(random_state, torch.get_rng_state())
    assert not model.training
    assert_same_arrays(before.weights, model.arrays())
    assert (model.head.weight is model.token_embedding.weight) == tie_embeddings
    ids = np.arange(16).reshape(2, 8) % 7
    with torch.no_grad():
        expected = model(torch.from_numpy(ids)).numpy()
    np.testing.assert_allclose(after.build_numpy().logits(ids), expected, rtol=0, atol=1e-5)


def test_arrays_may_lie_in_memory_in_any_order(tmp_path, saved):
    """And a path may be a str."""
    turned = {name: np.asfortranarray(array) for name, array in saved.weights.items()}
    checkpoint.save(str(tmp_path / "x"), replace(saved, weights=turned))
    assert_same(checkpoint.load(str(tmp_path / "x")), saved)


def test_half_precision_on_disk_is_float32_again_when_read(tmp_path, saved):
    floats = {name: array for name, array in saved.weights.items() if array.dtype == "f4"}
    halves = saved.weights | {name: array.astype("f2") for name, array in floats.items()}
    checkpoint.save(tmp_path / "half", replace(saved, weights=halves))
    rounded = saved.weights | {n: a.astype("f2").astype("f4") for n, a in floats.items()}
    assert_same(checkpoint.load(tmp_path / "half"), replace(saved, weights=rounded))
    with safetensors.safe_open(tmp_path / "half", "numpy") as file:
        assert file.get_tensor("model.head.weight").dtype == np.float16


@pytest.mark.parametrize("length", [0x4B50, 0x4B80])
def test_a_head_whose_length_looks_like_another_kind_of_file_can_be_read(tmp_path, saved, length):
    """The first two bytes of a file are that length: as a zip begins, "PK", or a pickle, 0x80."""
    path = tmp_path / "x"
    checkpoint.save(path, replace(saved, corpus_name=""))
    missing = length - int.from_bytes(path.read_bytes()[:8], "little")
    before = replace(saved, corpus_name="n" * missing)
    checkpoint.save(path, before)
    assert path.read_bytes()[:2] == length.to_bytes(2, "little")
    assert_same(before, checkpoint.load(path))


# --- damaged files --------------------------------------------------------------------------


def test_truncated(tmp_path, raw):
    path = tmp_path / "x"
    for length in [*range(20), *range(20, len(raw), 17), len(raw) - 1]:
        path.write_bytes(raw[:length])
        message = refuse(path)
        assert length or "empty" in message
    path.write_bytes(raw + b"\0")
    refuse(path)


def tensor_of(shape: list[int], *offsets: int) -> dict:
    return {HEAD: {"dtype": "F32", "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    "head",
    [
        *(b"", b"{}", b"[]", b"7", b"{\0}", b"{" * 9, b"[" * 100_000, b"\xff\xfe\x00"),
        *({"__metadata__": metadata} for metadata in ([], {"format": [FORMAT]}, {"format": None})),
        *(WITHOUT_CONTENT | tensor for tensor in ({HEAD: {"dtype": "F32"}}, {HEAD: 7})),
        WITHOUT_CONTENT | tensor_of([2**40], 0, 2**42),  # terabytes
        WITHOUT_CONTENT | tensor_of([2**62, 2**62], 0, 8),
        WITHOUT_CONTENT | tensor_of([-2], 0, 8),
        WITHOUT_CONTENT | tensor_of([2], 8, 0),
    ],
    ids=lambda head: str(head)[:60],
)
def test_a_head_that_is_not_ours_or_announces_what_is_not_there(tmp_path, head):
    for data in (b"", b"\0" * 8):
        refuse_in_little_memory(write_head(tmp_path / "x", head, data))


# --- files of another kind ------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        *[partial(pickle.dump, protocol=protocol) for protocol in range(6)],
        *[partial(torch.save, _use_new_zipfile_serialization=zipped) for zipped in (True, False)],
    ],
    ids=lambda write: str(write.keywords),
)
def test_a_pickle_is_refused_and_not_run(tmp_path, write):
    path, marker = tmp_path / "x.safetensors", tmp_path / "marker"
    with open(path, "wb") as file:
        write({"model": 1, "trap": Hostile(marker)}, file)
    message = refuse(path)
    assert not marker.exists()
    assert "is a pickle" in message or write.keywords.get("protocol", 2) < 2
    if "protocol" in write.keywords:
        pickle.loads(path.read_bytes())
        assert marker.exists(), "the trap itself must work"


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"format": "sancho-mini-2"}])
def test_a_safetensors_file_of_others(tmp_path, metadata):
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({"weight": np.ones(2)}, path, metadata)
    assert "sancho-mini" in refuse(path)


@pytest.mark.parametrize("version", ["0", "1", str(checkpoint.VERSION + 1), "one"])
def test_another_version(tmp_path, content, tensors, version):
    path = forge(tmp_path / "x", content, tensors, version=version)
    assert f"version {version}" in refuse(path)


@pytest.mark.parametrize(
    ("step", "val_loss", "expected"),
    [(6, 1.5, 6), (8, 1.5, 8), (5, 1.5, 4), (5, None, 0)],
    ids=["at its end", "at an evaluation", "between two", "before the first"],
)
def test_an_older_file_does_not_say_when_it_was_evaluated(
    tmp_path, content, tensors, step, val_loss, expected
):
    """Its evaluations came every fourth step here, and at the end."""
    content = deepcopy(content)
    content["progress"] |= {"step": step, "val_loss": val_loss}
    del content["progress"]["evaluated_step"]
    content["train"] |= {"max_iters": 6 if step == 6 else 20, "eval_interval": 4}
    content["run"]["compile"] = None  # the program decided it
    found = checkpoint.load(forge(tmp_path / "x", content, tensors))
    assert found.progress.evaluated_step == expected
    assert found.run.compile is False


def test_a_missing_file(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "best.safetensors", tmp_path / "file" / "x.safetensors"):
        assert "does not exist" in refuse(path)
        with pytest.raises(FileNotFoundError):
            checkpoint.load(path)
    last = tmp_path / "last.safetensors"
    last.touch()
    assert f"there is {last}" in refuse(tmp_path / "best.safetensors")


# --- sound files with unsound content -------------------------------------------------------


def test_the_forger_can_write_a_good_file(tmp_path, saved, content, tensors):
    """Also one from before a run was kept."""
    found = checkpoint.load(forge(tmp_path / "x", content, tensors))
    assert_same(replace(saved, optimizer={}), found)
    del content["run"]
    assert checkpoint.load(forge(tmp_path / "x", content, tensors)).run == RunConfig()


def test_a_wrong_checksum_or_none(tmp_path, content, tensors):
    path = tmp_path / "x"
    assert "checksum" in refuse(forge(path, content, tensors, sha256="0" * 64))
    for head, words in ((OURS, "'content' is missing"), (OURS | {"content": "{}"}, "checksum")):
        assert words in refuse(write_head(path, {"__metadata__": head}))


FLOAT = np.float32
KEYS = "model.ngram_embedding.keys"  # (5,)
LOOK_AHEAD, HEADS = "optimizer.look_ahead.0.weight", np.ones((3, 2), FLOAT)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({HEAD: None}, "head.weight is missing; there should be float32 (3, 2)"),
        ({"model.spare": np.ones(2, FLOAT)}, "spare is float32 (2,); there should be no such"),
        ({HEAD: np.ones((2, 3), FLOAT)}, "is float32 (2, 3); there should be float32 (3, 2)"),
        ({HEAD: np.ones((3, 2))}, "is float64 (3, 2); there should be float32 (3, 2)"),
        ({HEAD: np.array([[1, 1], [1, 1], [1, np.nan]], FLOAT)}, "head.weight holds numbers that"),
        ({HEAD: np.array([[1, 1], [1, 1], [1, -np.inf]], FLOAT)}, "are not finite"),
        ({KEYS: np.zeros(5, FLOAT)}, "is float32 (5,); there should be int32 (5,)"),
        ({KEYS: np.arange(5, dtype=np.int32)}, "keys does not ascend to 2147483647"),
        ({KEYS: np.array([0, 2, 1, 3, 2**31 - 1], np.int32)}, "keys does not ascend"),
        ({"optimizer.spare.weight.momentum": np.ones(2, FLOAT)}, "spare.weight.momentum belongs"),
        ({"optimizer.head.weight.exp_avg": np.ones(2, FLOAT)}, "exp_avg is float32 (2,)"),
        ({"optimizer.head.weight.exp_avg": np.ones((3, 2), np.float16)}, "is float16 (3, 2)"),
        ({"optimizer.head.weight.step": np.ones(1, FLOAT)}, "there should be float32 ()"),
        ({"optimizer.skips.exp_avg": np.ones(1, FLOAT)}, "look_ahead.0.weight is missing"),
        ({LOOK_AHEAD: HEADS[1:]}, "there should be float32 (3, 2)"),
        ({LOOK_AHEAD: HEADS, "optimizer.ngram_embedding.weight.sum": HEADS}, "float32 (5,)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tensors_of_another_model(tmp_path, content, tensors, change, complaint):
    changed = {k: t for k, t in (tensors | change).items() if t is not None}
    assert complaint in refuse(forge(tmp_path / "x", content, changed))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2], ids=str)
def test_weights_of_a_type_that_numpy_does_not_have(tmp_path, content, tensors, dtype):
    of_torch = {name: torch.from_numpy(array) for name, array in tensors.items()}
    of_torch[HEAD] = of_torch[HEAD].to(dtype)
    metadata = OURS | {"content": json.dumps(content)}
    (tmp_path / "x").write_bytes(safetensors.torch.save(of_torch, metadata))
    refuse(tmp_path / "x")


NAN, INFINITE, MISSING = float("nan"), float("inf"), "missing"
# Each part is read by `from_dict`, of which test_config.py has more.
UNSOUND = [
    *(("model", "n_layer", value) for value in (10**9, "1", True)),
    *(("model", name, 10**9) for name in ("n_embd", "ngram_rows", "ngram_size")),
    *(("model", "block_size", value) for value in (10**15, 10**30)),
    *(("model", "vocab_size", value) for value in (4, 65537)),
    *((part, "spare", 1) for part in ("model", "train", "run", "progress")),
    ("train", "max_iters", "9"),
    ("train", "learning_rate", INFINITE),
    ("run", "device", "tpu"),
    *(("progress", "step", value) for value in ("2", -1, 10**400)),
    *(("progress", name, -1) for name in ("tokens", "seconds", "evaluations_since_best")),
    *(("progress", name, NAN) for name in ("seconds", "val_loss", "best_val_loss")),
    *(("progress", "recent_losses", value) for value in ("none", [1.0, INFINITE], [10**400])),
    *(("corpus", "name", value) for value in ("\udcff", MISSING)),
    ("corpus", "sha256", MISSING),
]


@pytest.mark.parametrize(("part", "option", "value"), UNSOUND, ids=lambda value: ascii(value)[:40])
def test_options_that_cannot_be(tmp_path, content, tensors, part, option, value):
    content[part][option] = value
    if value is MISSING:
        del content[part][option]
    message = refuse_in_little_memory(forge(tmp_path / "x", content, tensors))
    assert part != "train" or option in message


@pytest.mark.parametrize("part", ["model", "characters", "train", "run", "progress", "corpus"])
def test_content_of_another_kind_or_not_complete(tmp_path, content, tensors, part):
    values = [None, [], "x"]
    if part == "characters":
        values = ["", "aab", "abcd", "ab\ud800", ["a", "b", "c"]]
    contents = [content | {part: value} for value in values]
    if part != "run":  # which older ones lack
        contents.append({name: value for name, value in content.items() if name != part})
    contents += ["null", "[]", "7", '"x"', "{", "", "[" * 100_000, '{"model": ' + "9" * 5000 + "}"]
    for changed in contents:
        refuse(forge(tmp_path / "x", changed, tensors))


# --- names and shapes -----------------------------------------------------------------------


# The sizes of SMALL are different numbers, so that none can stand for another.
@pytest.mark.parametrize("config", EACH_CHOICE + ODD_SHAPES + OTHERS)
def test_shapes_are_those_of_the_model(config):
    for bias, skip, tied in itertools.product((False, True), repeat=3):
        changed = replace(config, bias=bias, embedding_skip=skip, tie_embeddings=tied)
        model = GPT(changed)
        shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
        assert weight_shapes(changed) == shapes
        assert count_parameters(changed) == model.count_parameters()


def test_to_write_takes_no_pytorch(tmp_path, monkeypatch, corpus):
    def version(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr(checkpoint, "version", version)
    saved = start(corpus, train_config()).to_checkpoint(corpus, with_optimizer=False)
    checkpoint.save(tmp_path / "x.safetensors", saved)
    assert checkpoint.load(tmp_path / "x.safetensors").model == saved.model
