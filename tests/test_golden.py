"""Models of every family do what golden/make.py once wrote down; NumPy's: test_without_torch."""

import json

import numpy as np
import pytest
import torch
from architectures import ReadByTorch
from golden.make import FAMILIES, FOLDER
from golden.writing import assert_writes

from sancho import checkpoint


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_texts_are_those_written_down(family):
    golden = json.loads((FOLDER / f"{family}.json").read_text(encoding="utf-8"))
    saved = checkpoint.load(FOLDER / f"{family}.safetensors")
    model = saved.build_model()
    with torch.inference_mode():
        logits = model(torch.tensor([golden["ids"]])).numpy()
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, [golden["logits"]], rtol=0, atol=1e-4)
    start = golden["start"]
    for name, temperature in (("greedy", 0.0), ("seeded", golden["temperature"])):
        assert len(start + golden[name]) > 2 * saved.model_config.block_size
        writer = ReadByTorch(model)
        assert_writes(writer, saved.tokenizer, start, temperature, golden["seed"], golden[name])
