"""Models of every family do what golden/make.py once wrote down; NumPy's: test_without_torch."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from architectures import ReadByTorch
from golden.make import FAMILIES, FOLDER, make
from runs import bits

from sancho import checkpoint
from sancho.config import SampleConfig
from sancho.generate import continue_texts

all_families = pytest.mark.parametrize("family", FAMILIES)


def kept(family):
    """The checkpoint, and the answers that it must give."""
    saved = checkpoint.load(FOLDER / f"{family}.safetensors")
    answers = json.loads((FOLDER / f"{family}.json").read_text(encoding="utf-8"))
    answers["ids"] = np.array([answers["ids"]])
    answers["logits"] = np.array([answers["logits"]])
    return saved, SimpleNamespace(**answers)


@all_families
def test_logits_are_those_written_down(family):
    saved, golden = kept(family)
    with torch.inference_mode():
        logits = saved.build_model()(torch.from_numpy(golden.ids)).numpy()
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, golden.logits, rtol=0, atol=1e-4)


@all_families
def test_texts_are_those_written_down(family):
    saved, golden = kept(family)
    prompt = saved.tokenizer.encode(golden.start)
    greedy, drawn = SampleConfig(temperature=0), SampleConfig(temperature=golden.temperature)
    model = ReadByTorch(saved.build_model())
    for config, text in ((greedy, golden.greedy), (drawn, golden.seeded)):
        assert len(golden.start + text) > 2 * saved.model.block_size
        options = {"max_new_tokens": len(text), "seed": golden.seed}
        assert continue_texts(model, saved.tokenizer, prompt, config, **options) == [text]


@all_families
def test_they_would_be_written_again(family):
    saved, golden = kept(family)
    again, answers = make(family)
    assert (saved.model, saved.characters) == (again.model, again.characters)
    assert bits(saved.weights) == bits(again.weights)
    assert answers.keys() == vars(golden).keys()
    assert [answers["ids"]] == golden.ids.tolist()
    # Where the last of six digits is rounded to its other neighbour, that is 1e-5 of 1.
    np.testing.assert_allclose([answers["logits"]], golden.logits, rtol=1.1e-5, atol=0)
    for name in ("start", "greedy", "temperature", "seed", "seeded"):
        assert answers[name] == getattr(golden, name), name
