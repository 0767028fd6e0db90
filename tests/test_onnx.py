"""onnxruntime computes from the file that to-onnx writes what the model does."""

import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT, run
from golden.make import FOLDER, TOKENIZER, random_weights

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import ModelConfig, from_dict
from sancho.doors import onnx
from sancho.presets import PRESETS

pytestmark = pytest.mark.usefixtures("one_thread")

LIBRARIES = ("onnx", "onnxscript", "onnxruntime")
MISSING = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
needs_libraries = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
BLOCK = 32
# To export one takes seconds; the presets' families now, the rest when there is time.
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("gated", "sinusoidal")]
all_families = pytest.mark.parametrize("family", [*PRESETS, *SLOW])


@cache
def longer(family: str) -> Checkpoint:
    """A golden checkpoint with a longer block: within the old one its logits are the same."""
    saved = checkpoint.load(FOLDER / f"{family}.safetensors")
    weights = dict(saved.weights)
    if saved.model.position == "learned":
        old = weights["position_embedding.weight"]
        new = random_weights(saved.model, 9)["position_embedding.weight"]
        weights["position_embedding.weight"] = np.concatenate((old, new))
    return replace(saved, model=replace(saved.model, block_size=BLOCK), weights=weights)


@cache
def exported(family: str) -> bytes:
    """Each is exported once."""
    return onnx.onnx_file(longer(family))


@pytest.fixture(scope="module")
def session() -> Callable:
    """Returns an onnxruntime session of a family."""
    import onnxruntime

    def opened(family: str) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4  # a length that is refused is an error we ask for
        return onnxruntime.InferenceSession(exported(family), options)

    return opened


@needs_libraries
@all_families
def test_logits_are_those_written_down(session, family):
    golden = json.loads((FOLDER / f"{family}.json").read_text(encoding="utf-8"))
    (logits,) = session(family).run(["logits"], {"ids": np.array([golden["ids"]])})
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits[0], golden["logits"], rtol=0, atol=1e-3)


@needs_libraries
@all_families
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (1, 2), (3, 17), (2, BLOCK), (5, 1)])
def test_any_batch_and_length_up_to_the_block(session, family, batch, length):
    saved = longer(family)
    ids = np.random.default_rng(length).integers(0, saved.model.vocab_size, (batch, length))
    with torch.inference_mode():
        expected = saved.build_model().double()(torch.from_numpy(ids)).numpy()
    (logits,) = session(family).run(["logits"], {"ids": ids})
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-3)


@needs_libraries
@all_families
def test_past_the_block_it_fails(session, family):
    with pytest.raises(Exception, match="broadcast"):
        session(family).run(["logits"], {"ids": np.zeros((1, BLOCK + 1), np.int64)})


@needs_libraries
@all_families
def test_the_file_knows_its_vocabulary_and_shape(session, family):
    facts = session(family).get_modelmeta().custom_metadata_map
    assert json.loads(facts["characters"]) == TOKENIZER.characters
    assert from_dict(ModelConfig, json.loads(facts["config"])) == longer(family).model
    assert [(x.name, x.shape) for x in session(family).get_inputs()] == [("ids", ["B", "T"])]
    (output,) = session(family).get_outputs()
    assert (output.name, output.shape) == ("logits", ["B", "T", len(TOKENIZER.characters)])


@needs_libraries
def test_what_the_blocks_share_is_in_the_file_once():
    import onnx as library

    weights = library.load_from_string(exported("base")).graph.initializer
    assert sum("turns" in weight.name for weight in weights) == 1


def ten_lines(page: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.search("```python\n(import json.*?)```", text, re.DOTALL)[1]


@needs_libraries
def test_one_file_and_the_ten_lines_that_write_with_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ModelConfig(vocab_size=9, block_size=8, n_layer=1, n_head=1, n_embd=4)
    saved = replace(
        longer("base"), model=small, weights=random_weights(small, 1), characters="\n aé\0—\u2028𝕏x"
    )
    checkpoint.save(Path("a.safetensors"), saved)
    done = run("convert.py", "to-onnx", "--checkpoint=a.safetensors")
    assert (done.status, done.out) == (0, "")
    assert re.fullmatch(r"sancho\.onnx: \d\.\d\d MB; ids \(B, T\) → .* T up to 8\n", done.err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors", "sancho.onnx"]
    codes = {ten_lines(page) for page in ("README.md", "README.es.md")}
    assert len(codes) == 1
    code = codes.pop().replace("En un lugar de la Mancha", "aé—x").replace("300", "30")
    found = {}
    exec(code, found)
    assert found["text"].startswith("aé—x")
    assert len(found["text"]) == 34
    assert json.loads(found["facts"]["config"]) == asdict(small)
    done = run("convert.py", "to-onnx", "--checkpoint=a.safetensors")
    assert done.status == 2
    assert "sancho.onnx is there already; choose another name" in done.err


def test_without_the_libraries_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    output = tmp_path / "x.onnx"
    done = run("convert.py", "to-onnx", "--checkpoint", FOLDER / "base.safetensors",
               "--output", output)  # fmt: skip
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert 'pip install ".[convert]"' in done.err
    assert 'convert = ["onnx", ' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == []


@needs_libraries
def test_a_model_that_no_file_can_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx, "LARGEST", 1000)
    done = run("convert.py", "to-onnx", "--checkpoint", FOLDER / "base.safetensors",
               "--output", tmp_path / "x.onnx")  # fmt: skip
    assert done.status == 2
    assert "is too large: an ONNX file ends at 2 GB" in done.err
    assert list(tmp_path.iterdir()) == []
