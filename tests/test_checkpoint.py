import errno
import json
import pickle
import random
import tracemalloc
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from sancho import checkpoint
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import ModelConfig, TrainConfig
from sancho.errors import MissingFile, UserError
from sancho.model import GPT, cross_entropy
from sancho.optim import make_optimizers, optimizer_arrays
from sancho.presets import PRESETS

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = ModelConfig(
    vocab_size=3,
    block_size=4,
    n_layer=1,
    n_head=1,
    n_embd=2,
    ngram_size=2,
    ngram_rows=5,
    embedding_skip=True,
)


def make_checkpoint(config: ModelConfig = TINY, optimizer: str = "muon", name: str = "a text"):
    """Return the checkpoint of a model that has made two steps."""
    torch.manual_seed(7)
    model = GPT(config)
    train = TrainConfig(optimizer=optimizer, max_iters=9)
    optimizers = make_optimizers(model, train)
    for _ in range(2):
        ids = torch.randint(config.vocab_size, (2, config.block_size + 1))
        cross_entropy(model(ids[:, :-1]), ids[:, 1:]).backward()
        for each in optimizers:
            each.step()
            each.zero_grad()
    return Checkpoint(
        model=config,
        characters="".join(chr(ord("ñ") + i) for i in range(config.vocab_size)),
        train=train,
        progress=Progress(
            step=2,
            tokens=16,
            seconds=0.1 + 0.2,
            val_loss=1 / 3,
            best_val_loss=0.1,
            evaluations_since_best=1,
            recent_losses=[1.1, 2.2],
        ),
        corpus_name=name,
        corpus_sha256="0f" * 32,
        weights=model.arrays(),
        optimizer=optimizer_arrays(dict(model.named_parameters()), optimizers),
    )


def assert_same_arrays(ours: dict, theirs: dict) -> None:
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        other = theirs[name]
        assert (array.dtype, array.shape) == (other.dtype, other.shape), name
        assert array.tobytes() == other.tobytes(), name


def assert_same(ours: Checkpoint, theirs: Checkpoint) -> None:
    for name in ("model", "characters", "train", "progress", "corpus_name", "corpus_sha256"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert_same_arrays(ours.weights, theirs.weights)
    assert_same_arrays(ours.optimizer, theirs.optimizer)


def content_of(saved: Checkpoint) -> dict:
    return {
        "model": asdict(saved.model),
        "characters": saved.characters,
        "train": asdict(saved.train),
        "progress": asdict(saved.progress),
        "corpus": {"name": saved.corpus_name, "sha256": saved.corpus_sha256},
        "versions": {},
    }


def forge(path: Path, content: object, tensors: dict, **metadata: str) -> Path:
    """Write a file whose checksum is right, whatever it holds."""
    text = json.dumps(content)
    head = {
        "format": checkpoint.FORMAT,
        "version": str(checkpoint.VERSION),
        "content": text,
        "sha256": checkpoint._digest(text, tensors),
    }
    path.write_bytes(safetensors.numpy.save(tensors, head | metadata))
    return path


def tensors_of(saved: Checkpoint) -> dict:
    return {f"model.{name}": array for name, array in saved.weights.items()}


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


# --- what is saved comes back ---------------------------------------------------------------


@pytest.mark.parametrize("tie_embeddings", [False, True])
@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("preset", PRESETS)
def test_round_trip_bit_for_bit(tmp_path, preset, optimizer, tie_embeddings):
    shape = {"vocab_size": 7, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 8}
    shape["ngram_rows"] = 16
    config = replace(PRESETS[preset].model, tie_embeddings=tie_embeddings, **shape)
    before = make_checkpoint(config, optimizer)
    assert before.optimizer
    checkpoint.save(tmp_path / "x.safetensors", before)
    after = checkpoint.load(tmp_path / "x.safetensors")
    assert_same(before, after)
    model = after.build_model()
    assert not model.training
    assert_same_arrays(before.weights, model.arrays())
    ids = np.arange(16).reshape(2, 8) % 7
    with torch.no_grad():
        expected = model(torch.from_numpy(ids)).numpy()
    np.testing.assert_allclose(after.build_plain().logits(ids), expected, rtol=0, atol=1e-5)
    assert (model.head.weight is model.token_embedding.weight) == tie_embeddings
    assert after.tokenizer.characters == before.characters


def test_special_numbers_in_the_optimizer_survive(tmp_path, saved):
    odd = np.array([[-0.0, 1e-45], [np.inf, np.nan], [3.4e38, -1e-38]], dtype=np.float32)
    before = replace(saved, optimizer=saved.optimizer | {"head.weight.exp_avg": odd})
    assert saved.optimizer["head.weight.exp_avg"].shape == odd.shape
    checkpoint.save(tmp_path / "x", before)
    assert_same_arrays(before.optimizer, checkpoint.load(tmp_path / "x").optimizer)


def test_half_precision_on_disk_is_float32_again_when_read(tmp_path, saved):
    half = saved.in_half_precision()
    checkpoint.save(tmp_path / "whole", replace(saved, optimizer={}))
    checkpoint.save(tmp_path / "half", half)
    found = checkpoint.load(tmp_path / "half")
    assert (found.characters, found.progress, found.optimizer) == (
        *(saved.characters, saved.progress),
        {},
    )
    for name, array in saved.weights.items():
        assert found.weights[name].dtype == np.float32
        np.testing.assert_array_equal(found.weights[name], array.astype(np.float16))
    with safetensors.safe_open(tmp_path / "half", "numpy") as file:
        assert all(file.get_tensor(name).dtype == np.float16 for name in file.keys())  # noqa: SIM118
    sizes = [sum(a.nbytes for a in part.weights.values()) for part in (saved, half)]
    assert sizes[0] == 2 * sizes[1]


def test_an_optimizer_in_half_precision_is_refused(tmp_path, saved):
    arrays = {name: array.astype(np.float16) for name, array in saved.optimizer.items()}
    checkpoint.save(tmp_path / "x", replace(saved, optimizer=arrays))
    assert "float16" in refuse(tmp_path / "x")


def test_how_arrays_lie_in_memory_is_not_saved(tmp_path, saved):
    turned = {name: np.asfortranarray(array) for name, array in saved.weights.items()}
    strided = {name: array.repeat(2, -1)[..., ::2] for name, array in saved.weights.items()}
    for weights in (turned, strided):
        checkpoint.save(tmp_path / "x", replace(saved, weights=weights))
        assert_same(saved, checkpoint.load(tmp_path / "x"))


def test_building_a_model_draws_no_random_number(saved):
    state = torch.get_rng_state()
    saved.build_model()
    assert torch.equal(state, torch.get_rng_state())


def test_saving_does_not_tie_the_file_to_the_folder(tmp_path, monkeypatch, saved):
    monkeypatch.chdir(tmp_path)
    checkpoint.save(Path("x.safetensors"), saved)
    assert_same(saved, checkpoint.load("x.safetensors"))
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_every_length_of_the_head_can_be_read(tmp_path):
    # The first two bytes of a file are the length of its head: any bytes at all.
    lengths, path = set(), tmp_path / "x"
    saved = make_checkpoint()
    for size in range(0, 256, 8):  # a head is filled up to a multiple of 8
        before = replace(saved, corpus_name="n" * size)
        checkpoint.save(path, before)
        lengths.add(path.read_bytes()[0])
        assert checkpoint.load(path).corpus_name == before.corpus_name, f"name of {size}"
    assert 0x80 in lengths


def test_a_head_that_begins_like_a_zip_can_be_read(tmp_path):
    # 0x4b50 is "PK" in little-endian: a head of 19280 bytes.
    path = tmp_path / "x"
    checkpoint.save(path, make_checkpoint(name=""))
    missing = 0x4B50 - int.from_bytes(path.read_bytes()[:8], "little")
    before = make_checkpoint(name="n" * missing)
    checkpoint.save(path, before)
    assert path.read_bytes()[:2] == b"PK"
    assert_same(before, checkpoint.load(path))


# --- whole or not at all --------------------------------------------------------------------


class HalfWritten:
    """A file that takes half of what it is given, and then the disk is full."""

    def __init__(self, file, error: BaseException) -> None:
        self.file, self.error = file, error

    def write(self, data: bytes) -> None:
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        raise self.error

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        self.file.close()


@pytest.mark.parametrize("old", [True, False], ids=["old file", "no old file"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()], ids=repr)
def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path, monkeypatch, error, old):
    path = tmp_path / "last.safetensors"
    if old:
        checkpoint.save(path, make_checkpoint(name="old"))
    before = path.read_bytes() if old else None

    def half_open(file, mode):
        return HalfWritten(open(file, mode), error)

    monkeypatch.setattr("sancho.files.open", half_open, raising=False)
    with pytest.raises(type(error)):
        checkpoint.save(path, make_checkpoint(name="new"))
    assert (path.read_bytes() if path.exists() else None) == before
    assert [p.name for p in tmp_path.iterdir()] == (["last.safetensors"] if old else [])
    monkeypatch.undo()
    checkpoint.save(path, make_checkpoint(name="new"))
    assert checkpoint.load(path).corpus_name == "new"


@pytest.mark.parametrize("call", ["os.fsync", "pathlib.Path.replace"])
def test_a_write_that_fails_at_the_end_leaves_the_old_file(tmp_path, monkeypatch, call):
    path = tmp_path / "last.safetensors"
    checkpoint.save(path, make_checkpoint(name="old"))

    def fail(*args):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(call, fail)
    with pytest.raises(OSError, match="broken"):
        checkpoint.save(path, make_checkpoint(name="new"))
    assert checkpoint.load(path).corpus_name == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["last.safetensors"]


def test_the_file_is_whole_before_it_takes_its_place(tmp_path, monkeypatch, saved):
    """What a power cut between writing and renaming would leave is not the new name."""
    path, seen = tmp_path / "x", []
    replace_file = Path.replace

    def look(temporary, target):
        seen.append((checkpoint.load(temporary).progress, Path(target).exists()))
        return replace_file(temporary, target)

    monkeypatch.setattr(Path, "replace", look)
    checkpoint.save(path, saved)
    assert seen == [(saved.progress, False)]


def test_what_a_power_cut_left_is_no_hindrance(tmp_path, saved):
    (tmp_path / "x.tmp").write_bytes(b"half")
    checkpoint.save(tmp_path / "x", saved)
    assert_same(saved, checkpoint.load(tmp_path / "x"))
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


# --- damaged files --------------------------------------------------------------------------


def test_truncated(tmp_path, raw):
    path, weights = tmp_path / "x", 8 + int.from_bytes(raw[:8], "little")
    spread = range(20, len(raw), 17)
    for length in [*range(20), *spread, *range(weights - 20, weights + 20), len(raw) - 1]:
        path.write_bytes(raw[:length])
        message = refuse(path)
        assert length or "empty" in message


def test_bytes_behind_the_end(tmp_path, raw):
    path = tmp_path / "x"
    path.write_bytes(raw + b"\0")
    refuse(path)


def test_one_flipped_bit(tmp_path, raw, saved):
    path, choice = tmp_path / "x", random.Random(1605)
    for at in [*range(8), *choice.sample(range(8, len(raw)), 250)]:
        damaged = bytearray(raw)
        damaged[at] ^= 1 << choice.randrange(8)
        path.write_bytes(damaged)
        try:
            found = checkpoint.load(path)
        except UserError as error:
            assert "\n" not in str(error)
            assert str(path) in str(error)
        else:
            assert_same(saved, found)


def test_every_bit_of_the_weights_is_guarded(tmp_path, raw):
    path, choice = tmp_path / "x", random.Random(7)
    begin = 8 + int.from_bytes(raw[:8], "little")
    for at in choice.sample(range(begin, len(raw)), 60):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << choice.randrange(8)
        path.write_bytes(damaged)
        assert "checksum" in refuse(path)


@pytest.mark.parametrize("length", [2**60, 2**63, 2**64 - 1, 99_999_999])
def test_a_huge_head_is_refused_unread(tmp_path, raw, length):
    path = tmp_path / "x"
    path.write_bytes(length.to_bytes(8, "little") + raw[8:])
    assert "damaged" in refuse_in_little_memory(path)


@pytest.mark.parametrize(
    "tensor",
    [
        {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]},
        {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2**70], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2**61], "data_offsets": [0, 2**63]},
        {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1] * 100_000, "data_offsets": [0, 8]},
        {"dtype": "F4", "shape": [16], "data_offsets": [0, 8]},
        {"dtype": "spare", "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F32"},
        [],
        7,
    ],
    ids=lambda tensor: str(tensor)[:60],
)
def test_a_tensor_of_a_size_that_is_not_there(tmp_path, tensor):
    """What is announced is terabytes: to make room for it would be no UserError."""
    metadata = {"format": checkpoint.FORMAT, "version": str(checkpoint.VERSION), "content": "{}"}
    head = json.dumps({"__metadata__": metadata, "model.head.weight": tensor}).encode()
    path = tmp_path / "x"
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"\0" * 8)
    assert "damaged" in refuse(path)


@pytest.mark.parametrize(
    "head",
    [b"{}", b"[]", b"null", b"7", b'"x"', b"{" * 9, b"[" * 100_000, b"\xff\xfe\x00", b"{\0}", b""],
    ids=lambda head: repr(head[:8]),
)
def test_a_head_that_is_not_ours(tmp_path, head):
    path = tmp_path / "x"
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"\0" * 32)
    refuse(path)


@pytest.mark.parametrize("metadata", [[], 7, "x", {"format": ["sancho-mini"]}, {"format": None}])
def test_metadata_that_is_no_table_of_texts(tmp_path, metadata):
    path, head = tmp_path / "x", json.dumps({"__metadata__": metadata}).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head)
    refuse(path)


# --- files of another kind ------------------------------------------------------------------


class Hostile:
    """When it is unpickled, it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_is_refused_and_not_run(tmp_path, protocol):
    path, marker = tmp_path / "x.safetensors", tmp_path / "marker"
    path.write_bytes(pickle.dumps(Hostile(marker), protocol=protocol))
    message = refuse(path)
    assert not marker.exists()
    assert protocol < 2 or "pickle" in message
    pickle.loads(path.read_bytes())
    assert marker.exists(), "the trap itself must work"


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_of_torch_save_is_refused_and_not_run(tmp_path, zipped):
    path, marker = tmp_path / "x.pt", tmp_path / "marker"
    content = {"model": GPT(TINY).state_dict(), "trap": Hostile(marker)}
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    assert "pickle" in refuse(path)
    assert not marker.exists()


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"format": "sancho-mini-2"}])
def test_a_safetensors_file_of_others(tmp_path, metadata):
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({"weight": np.ones(2)}, path, metadata)
    assert "sancho-mini" in refuse(path)


@pytest.mark.parametrize("version", ["0", str(checkpoint.VERSION + 1), "one"])
def test_another_version(tmp_path, saved, version):
    path = forge(tmp_path / "x", content_of(saved), tensors_of(saved), version=version)
    assert f"version {version}" in refuse(path)


def test_a_folder(tmp_path):
    assert "folder" in refuse(tmp_path)


def test_a_missing_file(tmp_path):
    with pytest.raises(MissingFile) as caught:
        checkpoint.load(tmp_path / "nothing.safetensors")
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, UserError)
    assert "nothing.safetensors" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_checkpoint_beside_the_last_one_names_that(tmp_path):
    last = tmp_path / "last.safetensors"
    last.write_bytes(b"")
    with pytest.raises(MissingFile) as caught:
        checkpoint.load(tmp_path / "best.safetensors")
    assert str(last) in str(caught.value)


def test_a_path_below_a_file_is_missing(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(MissingFile):
        checkpoint.load(tmp_path / "file" / "x.safetensors")


# --- sound files with unsound content -------------------------------------------------------


def test_the_forger_can_write_a_good_file(tmp_path, saved):
    found = checkpoint.load(forge(tmp_path / "x", content_of(saved), tensors_of(saved)))
    assert_same(replace(saved, optimizer={}), found)


def test_a_wrong_checksum(tmp_path, saved):
    path = forge(tmp_path / "x", content_of(saved), tensors_of(saved), sha256="0" * 64)
    assert "checksum" in refuse(path)


def test_no_checksum(tmp_path, saved):
    path = tmp_path / "x"
    version = str(checkpoint.VERSION)
    metadata = {"format": checkpoint.FORMAT, "version": version, "content": "{}"}
    safetensors.numpy.save_file(tensors_of(saved), path, metadata)
    refuse(path)
    del metadata["content"]
    safetensors.numpy.save_file(tensors_of(saved), path, metadata)
    refuse(path)


@pytest.mark.parametrize("name", ["head.weight", "blocks.0.attention.qkv.weight"])
def test_a_missing_tensor(tmp_path, saved, name):
    tensors = tensors_of(saved)
    del tensors[f"model.{name}"]
    assert f"{name} is missing" in refuse(forge(tmp_path / "x", content_of(saved), tensors))


def test_an_extra_tensor(tmp_path, saved):
    tensors = tensors_of(saved) | {"model.blocks.1.spare": np.ones(2, np.float32)}
    message = refuse(forge(tmp_path / "x", content_of(saved), tensors))
    assert "blocks.1.spare is unknown" in message


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: t.T, lambda t: t[None]])
def test_a_wrong_shape(tmp_path, saved, change):
    tensors = tensors_of(saved)
    tensors["model.head.weight"] = change(tensors["model.head.weight"]).copy()
    message = refuse(forge(tmp_path / "x", content_of(saved), tensors))
    assert "head.weight has shape" in message
    assert str(tensors["model.head.weight"].shape) in message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite(tmp_path, saved, value):
    tensors = tensors_of(saved)
    tensors["model.head.weight"] = tensors["model.head.weight"].copy()
    tensors["model.head.weight"][-1, -1] = value
    message = refuse(forge(tmp_path / "x", content_of(saved), tensors))
    assert "head.weight" in message
    assert "finite" in message


@pytest.mark.parametrize(
    "dtype", "uint8 bool complex64 float8_e4m3fn float8_e5m2 bfloat16 float64".split()
)
def test_weights_of_another_type(tmp_path, saved, dtype):
    """What is finite in float64 need not be so in the model."""
    path, tensors = tmp_path / "x", tensors_of(saved)
    head = tensors["model.head.weight"].astype(getattr(np, dtype, np.float32))
    forge(path, content_of(saved), tensors | {"model.head.weight": head})
    with safetensors.safe_open(path, "numpy") as file:  # PyTorch knows more types than NumPy
        metadata = file.metadata()
    tensors = {name: torch.from_numpy(array) for name, array in tensors.items()}
    tensors["model.head.weight"] = tensors["model.head.weight"].to(getattr(torch, dtype))
    path.write_bytes(safetensors.torch.save(tensors, metadata))
    message = refuse(path)
    assert "head.weight" in message
    assert dtype in message


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("n_layer", 10**9),
        ("n_layer", 0),
        ("n_layer", "1"),
        ("n_layer", 1.0),
        ("n_layer", True),
        ("n_layer", None),
        ("n_layer", [1]),
        ("n_embd", 10**9),
        ("ngram_rows", 10**9),
        ("ngram_size", 1),
        ("ngram_size", 10**9),
        ("n_embd", 10**20),
        ("block_size", 10**15),
        ("block_size", 10**30),
        ("vocab_size", 4),
        ("vocab_size", 65537),
        ("dropout", 1.5),
        ("dropout", float("nan")),
        ("dropout", "0"),
        ("bias", 1),
        ("norm", "batchnorm"),
        ("norm", ["rmsnorm"]),
        ("spare", 1),
        ("head_size", 2),
        ("__class__", "x"),
    ],
)
def test_a_model_that_cannot_be(tmp_path, saved, option, value):
    content = content_of(saved)
    content["model"][option] = value
    path = forge(tmp_path / "x", content, tensors_of(saved))
    refuse_in_little_memory(path)


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
def test_a_block_of_another_size_or_too_large_to_be(tmp_path, position):
    saved = make_checkpoint(replace(TINY, position=position))
    content = content_of(saved)
    content["model"]["block_size"] = 10**18
    refuse(forge(tmp_path / "x", content, tensors_of(saved)))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_iters", "9"),
        ("max_iters", 0),
        ("learning_rate", True),
        ("learning_rate", float("inf")),
        ("optimizer", "sgd"),
        ("seed", -1),
        ("spare", 1),
    ],
)
def test_a_training_that_cannot_be(tmp_path, saved, option, value):
    content = content_of(saved)
    content["train"][option] = value
    assert option in refuse(forge(tmp_path / "x", content, tensors_of(saved)))


@pytest.mark.parametrize(
    "change",
    [
        {"progress": {"spare": 1}},
        {"progress": {"step": "2"}},
        {"progress": {"recent_losses": "none"}},
        {"progress": []},
        {"progress": None},
        {"progress": {"step": -1}},
        {"progress": {"step": 10**400}},
        {"progress": {"tokens": -1}},
        {"progress": {"seconds": -1.0}},
        {"progress": {"seconds": float("nan")}},
        {"progress": {"seconds": 10**400}},
        {"progress": {"evaluations_since_best": -1}},
        {"progress": {"val_loss": float("nan")}},
        {"progress": {"best_val_loss": float("-inf")}},
        {"progress": {"best_val_loss": 10**400}},
        {"progress": {"recent_losses": [1.0, float("inf")]}},
        {"progress": {"recent_losses": [10**400]}},
        {"model": []},
        {"model": None},
        {"train": "x"},
        {"corpus": None},
        {"corpus": {"name": "x"}},
        {"characters": ""},
        {"characters": "aab"},
        {"characters": "abcd"},
        {"characters": "ab\ud800"},
        {"corpus": {"name": "\udcff", "sha256": ""}},
        {"characters": ["a", "b", "c"]},
    ],
    ids=lambda change: ascii(change)[:60],
)
def test_content_of_another_kind(tmp_path, saved, change):
    refuse(forge(tmp_path / "x", content_of(saved) | change, tensors_of(saved)))


@pytest.mark.parametrize("part", ["model", "characters", "train", "progress", "corpus"])
def test_content_that_is_not_complete(tmp_path, saved, part):
    content = content_of(saved)
    del content[part]
    refuse(forge(tmp_path / "x", content, tensors_of(saved)))


@pytest.mark.parametrize("content", [None, [], 7, "x"])
def test_content_that_is_no_table(tmp_path, saved, content):
    refuse(forge(tmp_path / "x", content, tensors_of(saved)))


@pytest.mark.parametrize("text", ["{", "", "[" * 100_000, '{"model": ' + "9" * 5000 + "}"])
def test_content_that_is_no_json(tmp_path, saved, text):
    path, tensors = tmp_path / "x", tensors_of(saved)
    metadata = {
        "format": checkpoint.FORMAT,
        "version": str(checkpoint.VERSION),
        "content": text,
        "sha256": checkpoint._digest(text, tensors),
    }
    safetensors.numpy.save_file(tensors, path, metadata)
    refuse(path)


@pytest.mark.parametrize(
    "optimizer",
    [
        {"spare.weight.momentum": np.ones(2, np.float32)},
        {"head.weight.exp_avg": np.ones(2, np.float32)},
        {"head.weight.exp_avg": np.ones(3, np.float32)},
        {"ngram_embedding.weight.sum": np.ones(2, np.float32)},
        {"ngram_embedding.weight.sum": np.ones((5, 2), np.float32)},
        {"head.weight": np.ones((3, 2), np.float32)},
    ],
    ids=str,
)
def test_an_optimizer_of_another_model(tmp_path, saved, optimizer):
    tensors = tensors_of(saved) | {f"optimizer.{name}": t for name, t in optimizer.items()}
    refuse(forge(tmp_path / "x", content_of(saved), tensors))
