"""onnxruntime computes from the file that to-onnx writes what the model does."""

import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from architectures import exact_logits, random_ids
from conftest import assert_refused, contents, names_in, run, succeed
from golden.make import FAMILIES, FOLDER, SIZE

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import ModelConfig, from_dict
from sancho.convert import onnx

LIBRARIES = ("onnx", "onnxscript", "onnxruntime")
MISSING = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
needs_libraries = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
BLOCK = SIZE["block_size"]
HOSTILE = "\n aé\0—\u2028𝕏x"
# To export one takes seconds.
FAST = "mini"
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES if name != FAST]
all_families = pytest.mark.parametrize("family", [FAST, *SLOW])


def hostile(family: str) -> Checkpoint:
    """A golden checkpoint with characters that are hard to write down."""
    saved = checkpoint.load(FOLDER / f"{family}.safetensors")
    if saved.model_config.ngram_size > 1:  # rows for n-grams of no text: 100 is no power of two
        table, keys = "ngram_embedding.weight", "ngram_embedding.keys"
        more = np.arange(-(2**31), 36 - 2**31, dtype=np.int32)
        saved.weights[keys] = np.concatenate([more, saved.weights[keys]])
        saved.weights[table] = np.pad(saved.weights[table], ((36, 0), (0, 0)))
        saved = replace(saved, model_config=replace(saved.model_config, ngram_rows=100))
    others = (chr(0x400 + i) for i in range(SIZE["vocab_size"] - len(HOSTILE)))
    return replace(saved, characters=HOSTILE + "".join(others))


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Callable[[str], Path]:
    """Returns the folder in which a family was exported, once."""

    @cache
    def export(family: str) -> Path:
        folder = tmp_path_factory.mktemp(family)
        checkpoint.save(folder / "a.safetensors", hostile(family))
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            done = succeed("convert.py", "to-onnx", "--checkpoint=a.safetensors")
        assert done.out == ""
        model, facts = done.err.splitlines()
        assert re.fullmatch(r"sancho\.onnx: \d\.\d\d MB; ids \(B, T\) → .* T up to 16", model)
        assert facts.startswith("sancho.json: ")
        assert names_in(folder) == ["a.safetensors", "sancho.json", "sancho.onnx"]
        return folder

    return export


@pytest.fixture
def session(exported) -> Callable:
    """Returns an onnxruntime session of a family."""
    import onnxruntime

    return lambda family: onnxruntime.InferenceSession(exported(family) / "sancho.onnx")


@needs_libraries
@all_families
def test_logits_of_any_batch_and_length_up_to_the_block_and_none_past_it(session, family):
    saved, opened = hostile(family), session(family)
    golden = json.loads((FOLDER / f"{family}.json").read_text(encoding="utf-8"))
    (logits,) = opened.run(["logits"], {"ids": np.array([golden["ids"]])})
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits[0], golden["logits"], rtol=0, atol=1e-3)
    for batch, length in ((1, 1), (1, 2), (3, 11), (2, BLOCK), (5, 1)):
        ids = random_ids(batch, length, vocab_size=saved.model_config.vocab_size)
        (logits,) = opened.run(["logits"], {"ids": ids})
        expected = exact_logits(saved.build_model(), ids)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-3)
    with pytest.raises(Exception, match="broadcast"):
        opened.run(["logits"], {"ids": np.zeros((1, BLOCK + 1), np.int64)})
    # The file knows its vocabulary and shape.
    facts = opened.get_modelmeta().custom_metadata_map
    assert json.loads(facts["characters"]) == saved.characters
    assert from_dict(ModelConfig, json.loads(facts["config"])) == saved.model_config
    ends = [(end.name, end.shape) for end in (*opened.get_inputs(), *opened.get_outputs())]
    assert ends == [("ids", ["B", "T"]), ("logits", ["B", "T", saved.model_config.vocab_size])]


@needs_libraries
def test_the_json_beside_it_is_enough_to_encode_and_to_decode(exported, session):
    facts = json.loads((exported(FAST) / "sancho.json").read_text(encoding="utf-8"))
    characters, saved = facts["characters"], hostile(FAST)
    ids = [characters.index(c) for c in HOSTILE]
    assert "".join(characters[i] for i in ids) == HOSTILE
    assert len(characters) == saved.model_config.vocab_size
    assert from_dict(ModelConfig, facts["config"]) == saved.model_config
    (logits,) = session(FAST).run(["logits"], {"ids": np.array([ids])})
    expected = exact_logits(
        saved.build_model(), np.array([saved.tokenizer.encode(HOSTILE)], np.int64)
    )
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-3)


@needs_libraries
@pytest.mark.parametrize(
    ("there", "output", "words"),
    [
        ("x.onnx", "x.onnx", "x.onnx exists already"),
        ("x.json", "x.onnx", "x.json beside it exists already"),
        ("x.json", "x.json", "x.json exists already"),
        ("y", "x.json", "x.json is the name of the JSON file; choose one in .onnx"),
        ("y", "x.Json", "x.Json is the name of the JSON file"),
    ],
)
def test_neither_file_takes_the_place_of_anything(tmp_path, there, output, words):
    (tmp_path / there).write_text("mine")
    args = ("--checkpoint", FOLDER / "mini.safetensors", "--output", tmp_path / output)
    assert_refused(run("convert.py", "to-onnx", *args), "convert.py", words)
    assert contents(tmp_path) == {there: b"mine"}


@needs_libraries
def test_what_cannot_be_made_is_refused(tmp_path, monkeypatch):
    args = ("--checkpoint", FOLDER / "base.safetensors", "--output", tmp_path / "x.onnx")
    monkeypatch.setattr(onnx, "LARGEST", 1000)
    assert_refused(
        run("convert.py", "to-onnx", *args), "convert.py", "an ONNX file can have 2 GB at most"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = run("convert.py", "to-onnx", *args)
    assert_refused(
        done, "convert.py", " lacks onnx onnxscript; ", " -m pip install onnx onnxscript"
    )
    assert not list(tmp_path.iterdir())
