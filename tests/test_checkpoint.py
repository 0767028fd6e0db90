"""Checkpoints: what is saved comes back to the bit, and whatever else is refused in one line."""

import errno
import json
import os
import pickle
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from architectures import SMALL
from conftest import CPU, Hostile, assert_same_arrays
from runs import corpus_of, run, train_config

from sancho import checkpoint
from sancho.checkpoint import FORMAT, PRETRAINED, VERSION, Checkpoint, Progress
from sancho.config import DeviceConfig, ModelConfig
from sancho.errors import MissingFile, UserError
from sancho.presets import PRESETS
from sancho.run.state import TrainingState
from sancho.shared.proof import in_base64

SHAPE = {"vocab_size": 3, "block_size": 4, "n_layer": 1, "n_head": 1, "n_embd": 2}
TINY = replace(SMALL, ngram_size=2, ngram_rows=5, **SHAPE)
OURS = {"format": FORMAT, "version": VERSION}
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
        state.to_checkpoint(corpus),
        device_config=DeviceConfig(device="cpu", dtype="bfloat16"),
        progress=Progress(**done),
        corpus_name="a text",
    )


def assert_same(ours: Checkpoint, theirs: Checkpoint) -> None:
    assert_same_arrays(ours.weights, theirs.weights)
    assert_same_arrays(ours.optimizer, theirs.optimizer)
    np.testing.assert_array_equal(ours.proof, theirs.proof)
    no_arrays = {"weights": {}, "optimizer": {}, "proof": None}
    assert replace(ours, **no_arrays) == replace(theirs, **no_arrays)


def forge(path: Path, content: object, tensors: dict, **metadata: str) -> Path:
    """Write a file whose checksum is right, whatever it holds; a text is taken as it is."""
    text = content if isinstance(content, str) else json.dumps(content)
    head = OURS | {"content": text, "sha256": checkpoint._digest(text, tensors)}
    path.write_bytes(safetensors.numpy.save(tensors, head | metadata))
    return path


def refuse(path: Path) -> str:
    """Assert that loading raises one clear line, and return it."""
    with pytest.raises(UserError) as caught:
        checkpoint.load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
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


@pytest.mark.parametrize(("optimizer", "tie_embeddings"), [("muon", False), ("adamw", True)])
@pytest.mark.parametrize("preset", PRESETS)
def test_round_trip_bit_for_bit(tmp_path, preset, optimizer, tie_embeddings):
    shape = {"vocab_size": 7, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 8}
    shape |= {"ngram_rows": 16, "tie_embeddings": tie_embeddings}
    before = make_checkpoint(replace(PRESETS[preset].model, **shape), optimizer)
    assert before.optimizer
    # As arrays may lie in memory in any order, and a path may be a str.
    turned = {name: np.asfortranarray(array) for name, array in before.weights.items()}
    checkpoint.save(str(tmp_path / "x"), replace(before, weights=turned))
    after = checkpoint.load(str(tmp_path / "x"))
    assert_same(before, after)
    model = after.build_model()
    assert not model.training
    assert_same_arrays(before.weights, model.arrays())
    ids = np.arange(16).reshape(2, 8) % 7
    with torch.no_grad():
        expected = model(torch.from_numpy(ids)).numpy()
    np.testing.assert_allclose(after.build_numpy().logits(ids), expected, rtol=0, atol=1e-5)


def test_it_is_written_without_the_metadata_of_torch(tmp_path, saved, monkeypatch):
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(checkpoint, "version", version)
    checkpoint.save(tmp_path / "x", saved)
    assert_same(checkpoint.load(tmp_path / "x"), saved)


@pytest.mark.parametrize("length", [0x4B50, 0x4B80])
def test_a_head_whose_length_looks_like_another_kind_of_file_can_be_read(tmp_path, saved, length):
    """The first two bytes of a file are that length: as a zip begins, "PK", or a pickle, 0x80."""
    path = tmp_path / "x"
    checkpoint.save(path, replace(saved, run=""))
    missing = length - int.from_bytes(path.read_bytes()[:8], "little")
    before = replace(saved, run="n" * missing)
    checkpoint.save(path, before)
    assert path.read_bytes()[:2] == length.to_bytes(2, "little")
    assert_same(before, checkpoint.load(path))


@pytest.mark.parametrize("changes", [{"corpus_name": "a\ud800"}, {"characters": "a\udcffb"}])
def test_half_a_character_is_refused_when_it_is_written(tmp_path, saved, changes):
    """And the checkpoint that was there stays."""
    checkpoint.save(tmp_path / "x", saved)
    with pytest.raises(UserError, match="half a character, which can't be written"):
        checkpoint.save(tmp_path / "x", replace(saved, **changes))
    assert_same(checkpoint.load(tmp_path / "x"), saved)


def test_truncated(tmp_path, raw):
    path = tmp_path / "x"
    for length in [*range(20), *range(20, len(raw), 17), len(raw) - 1]:
        path.write_bytes(raw[:length])
        message = refuse(path)
        assert length or "empty" in message
    path.write_bytes(raw + b"\0")
    refuse(path)


@pytest.mark.parametrize(
    "head",
    [
        *(b"", b"{}", b"[]", b"7", b"{\0}", b"{" * 9, b"[" * 100_000, b"\xff\xfe\x00"),
        *({"__metadata__": metadata} for metadata in ([], {"format": [FORMAT]}, {"format": None})),
        *(WITHOUT_CONTENT | {HEAD: tensor} for tensor in ({"dtype": "F32"}, 7)),
        *(
            WITHOUT_CONTENT | {HEAD: {"dtype": "F32", "shape": shape, "data_offsets": offsets}}
            for shape, offsets in (([2**40], (0, 2**42)), ([2**62, 2**62], (0, 8)), ([2], (8, 0)))
        ),
    ],
    ids=lambda head: str(head)[:60],
)
def test_a_head_that_is_not_ours_or_announces_what_is_not_there(tmp_path, head):
    raw = head if isinstance(head, bytes) else json.dumps(head).encode()
    (tmp_path / "x").write_bytes(len(raw).to_bytes(8, "little") + raw + b"\0" * 8)
    refuse(tmp_path / "x")


@pytest.mark.parametrize("protocol", [0, 2, 5, "torch", "torch of old"])
def test_a_pickle_is_refused_and_not_run(tmp_path, protocol):
    path = tmp_path / "x.safetensors"
    trap = {"model": 1, "trap": Hostile(tmp_path / "marker")}
    if isinstance(protocol, int):
        path.write_bytes(pickle.dumps(trap, protocol))
    else:
        torch.save(trap, path, _use_new_zipfile_serialization=protocol == "torch")
    message = refuse(path)
    assert not (tmp_path / "marker").exists()
    assert "is a pickle" in message or protocol == 0
    if isinstance(protocol, int):
        pickle.loads(path.read_bytes())
        assert (tmp_path / "marker").exists(), "the trap itself must work"


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        *(
            (metadata, "is not a checkpoint of sancho-mini")
            for metadata in (None, {"format": "pt"})
        ),
        *(
            (OURS | {"version": v}, f"has version {v}, but this program reads version 5")
            for v in "46"
        ),
    ],
)
def test_a_file_of_others_or_of_another_version(tmp_path, metadata, words):
    safetensors.numpy.save_file({"weight": np.ones(2)}, tmp_path / "x", metadata)
    assert words in refuse(tmp_path / "x")


def test_one_way_to_find_a_checkpoint(tmp_path, saved, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    find = checkpoint.find_checkpoint
    Path("pretrained").mkdir()  # as in a copy of the project
    assert find("pretrained") == find(Path("pretrained")) == PRETRAINED
    Path("pretrained").rmdir()
    checkpoint.save("pretrained", saved)  # a file is what was asked for
    assert find("pretrained") == Path("pretrained")
    assert caplog.messages == []
    Path("out").mkdir()
    assert find(None) == PRETRAINED
    assert "note: there is no run in out, so this is the pretrained model" in caplog.text
    with pytest.raises(MissingFile, match="does not exist"):
        find("pretrained/x")


def test_the_best_checkpoint_of_a_folder_or_else_its_last_but_never_another_model(
    tmp_path, saved, monkeypatch, caplog
):
    monkeypatch.chdir(tmp_path)
    find = checkpoint.find_checkpoint
    out, best, last = Path("out"), Path("out/best.safetensors"), Path("out/last.safetensors")
    out.mkdir()
    with pytest.raises(MissingFile, match="the folder out has no checkpoint; name another"):
        find(out)
    checkpoint.save(last, saved)
    for name in (None, out, best):
        assert find(name) == last
        assert "note: out has no best.safetensors yet, so this is out" in caplog.messages.pop()
    checkpoint.save(best, saved)
    assert [find(name) for name in (None, "out", out, best, last)] == [best] * 4 + [last]


def test_the_forger_can_write_a_good_file(tmp_path, saved, content, tensors):
    found = checkpoint.load(forge(tmp_path / "x", content, tensors))
    assert_same(replace(saved, optimizer={}), found)


def test_a_wrong_checksum_or_none(tmp_path, content, tensors):
    path = tmp_path / "x"
    assert "checksum does not match" in refuse(forge(path, content, tensors, sha256="0" * 64))
    whole = OURS | {"content": json.dumps(content)}  # but for the checksum
    for head, words in ((OURS, "'content' is missing"), (whole, "checksum does not match")):
        path.write_bytes(safetensors.numpy.save(tensors, head))
        assert words in refuse(path)


def test_half_precision_on_disk_is_float32_again_when_read(tmp_path, saved):
    halves = {k: w.astype(np.float16) if w.dtype == FLOAT else w for k, w in saved.weights.items()}
    checkpoint.save(tmp_path / "x", replace(saved, weights=halves))
    rounded = {k: w.astype(FLOAT) if w.dtype == np.float16 else w for k, w in halves.items()}
    assert_same(checkpoint.load(tmp_path / "x"), replace(saved, weights=rounded))


FLOAT = np.float32
KEYS = "model.ngram_embedding.keys"  # (5,)
NO_STATE = "is missing, or is not the state of an optimizer"


@pytest.mark.parametrize(
    ("name", "tensor", "complaint"),
    [
        (HEAD, None, "head.weight is float64 (0,); there should be float32 (3, 2)"),
        ("model.spare", np.ones(2, FLOAT), "spare is float32 (2,); there should be float32 no su"),
        (HEAD, np.ones((2, 3), FLOAT), "is float32 (2, 3); there should be float32 (3, 2)"),
        (HEAD, np.ones((3, 2)), "is float64 (3, 2); there should be float32 (3, 2)"),
        (HEAD, np.full((3, 2), np.nan, FLOAT), "head.weight holds numbers that are not finite"),
        (HEAD, np.full((3, 2), -np.inf, FLOAT), "head.weight holds numbers that are not finite"),
        (KEYS, np.zeros(5, FLOAT), "is float32 (5,); there should be int32 (5,)"),
        (KEYS, np.arange(5, dtype=np.int32), "keys does not ascend to 2147483647"),
        (KEYS, np.array([0, 2, 1, 3, 2**31 - 1], np.int32), "keys does not ascend"),
        ("optimizer.spare.weight.momentum", np.ones(2, FLOAT), NO_STATE),
        ("optimizer.head.weight.exp_avg", np.ones(2, FLOAT), NO_STATE),
        ("optimizer.head.weight.exp_avg", np.ones((3, 2), np.float16), NO_STATE),
        ("optimizer.skips.exp_avg", np.ones(1, FLOAT), f"look_ahead.0.weight {NO_STATE}"),
        ("optimizer.look_ahead.0.weight", np.ones((2, 2), FLOAT), NO_STATE),
    ],
)
def test_tensors_of_another_model(tmp_path, content, tensors, name, tensor, complaint):
    tensors[name] = tensor
    if tensor is None:
        del tensors[name]
    if name.startswith("optimizer") and "look_ahead" not in complaint + name:
        tensors["optimizer.look_ahead.0.weight"] = np.ones((3, 2), FLOAT)
    assert complaint in refuse(forge(tmp_path / "x", content, tensors))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2], ids=str)
def test_weights_of_a_type_that_numpy_does_not_have(tmp_path, content, tensors, dtype):
    of_torch = {name: torch.from_numpy(array) for name, array in tensors.items()}
    of_torch[HEAD] = of_torch[HEAD].to(dtype)
    metadata = OURS | {"content": json.dumps(content)}
    (tmp_path / "x").write_bytes(safetensors.torch.save(of_torch, metadata))
    refuse(tmp_path / "x")


NAN = float("nan")
INFINITE = float("inf")
# Each part is read by `from_dict`, of which test_config.py has more.
UNSOUND = [
    *(("model", "n_layer", value) for value in (10**9, "1", True)),
    *(("model", "vocab_size", value) for value in (4, 65537)),
    *((part, "spare", 1) for part in ("model", "train", "device", "progress")),
    *(("progress", "step", value) for value in ("2", -1, 10**400)),
    *(("progress", name, NAN) for name in ("seconds", "val_loss", "best_val_loss")),
    *(("progress", "recent_losses", value) for value in ("none", [NAN], [10**400])),
    ("corpus", "name", "\udcff"),
]


@pytest.mark.parametrize(("part", "option", "value"), UNSOUND, ids=lambda value: ascii(value)[:40])
def test_options_that_cannot_be(tmp_path, content, tensors, part, option, value):
    content[part][option] = value
    refuse(forge(tmp_path / "x", content, tensors))


@pytest.mark.parametrize("part", "model characters train device progress corpus".split())
def test_content_of_another_kind_or_not_complete(tmp_path, content, tensors, part):
    values = [None, [], "x"]
    if part == "characters":
        values = ["", "aab", "abcd", "ab\ud800", ["a", "b", "c"]]
    contents = [content | {part: value} for value in values]
    contents.append({name: value for name, value in content.items() if name != part})
    contents += ["null", "[]", "7", '"x"', "{", "", "[" * 100_000, '{"model": ' + "9" * 5000 + "}"]
    for changed in contents:
        refuse(forge(tmp_path / "x", changed, tensors))


@pytest.mark.parametrize("forged", ["AAAA", "!", 3, None, "AAAAAA=="])
def test_a_proof_that_cannot_be_read_is_damage(tmp_path, content, tensors, forged):
    assert "is damaged" in refuse(forge(tmp_path / "x", content | {"proof": forged}, tensors))


@pytest.mark.parametrize("number", [NAN, -INFINITE])
def test_a_proof_that_is_not_finite_is_damage(tmp_path, saved, content, tensors, number):
    """No logits would differ from it."""
    proof = saved.proof.copy()
    proof[-1] = number
    message = refuse(forge(tmp_path / "x", content | {"proof": in_base64(proof)}, tensors))
    assert "is damaged: its proof does not fit its model" in message


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("name", "\x1b[2J", "the name of its text is"),
        ("name", "x" * 201, "the name of its text is"),
        ("name", 3, "the name of its text is"),
        ("lengths", [-1], "the lengths of its text are"),
        ("lengths", [True], "the lengths of its text are"),
        ("lengths", "9", "the lengths of its text are"),
        ("run", "../x", "the id of its run is"),
        ("run", None, "the id of its run is"),
    ],
)
def test_what_a_forged_file_says_of_its_text_is_checked(tmp_path, saved, part, value, words):
    """Names of files end with the id; the name is shown in a terminal and on a page."""
    path = tmp_path / "x"
    checkpoint.save(path, saved)
    with safetensors.safe_open(path, "numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    content = json.loads(metadata["content"])
    (content if part == "run" else content["corpus"])[part] = value
    metadata["content"] = json.dumps(content)
    metadata["sha256"] = checkpoint._digest(metadata["content"], tensors)
    safetensors.numpy.save_file(tensors, path, metadata)
    said = refuse(path)
    assert words in said and said.isprintable() and len(said) < 600
    assert checkpoint.origin_of(path) is None or part == "name"


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ENOMEM])
def test_a_refused_reading_says_why_and_is_no_damage(tmp_path, saved, monkeypatch, number):
    """safetensors' own errors have no reason, and call a file missing that is there."""
    checkpoint.save(tmp_path / "x", saved)

    def refusing(path: Path) -> bytes:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "read_bytes", refusing)
    with pytest.raises(OSError) as refused:
        checkpoint.load(tmp_path / "x")
    assert (refused.value.errno, refused.value.filename) == (number, str(tmp_path / "x"))
    assert not isinstance(refused.value, UserError)


def test_a_checkpoint_shows_its_options_and_not_its_numbers(saved):
    assert len(repr(saved)) < 3000 and "n_embd" in repr(saved)


class PanicException(BaseException):
    """As safetensors raises it, which is written in Rust."""


@pytest.mark.parametrize("call", ["save", "load"])
def test_where_safetensors_panics_memory_is_short(tmp_path, saved, monkeypatch, call):
    path = tmp_path / "x"
    checkpoint.save(path, saved)
    before = path.read_bytes()

    def panic(*_: object) -> None:
        raise PanicException("capacity overflow")

    monkeypatch.setattr(safetensors.numpy, call, panic)
    with pytest.raises(MemoryError, match="capacity overflow"):
        checkpoint.save(path, saved) if call == "save" else checkpoint.load(path)
    assert path.read_bytes() == before
