"""What the golden files ask of every implementation; it imports no PyTorch."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sancho.config import SampleConfig
from sancho.generate import Model, continue_texts
from sancho.tokenizer import CharTokenizer


def assert_is_golden(
    path: Path, logits: Callable[[np.ndarray], np.ndarray], model: Model, tokenizer: CharTokenizer
) -> None:
    """Assert that a model computes and writes what a golden file says, far past its block.

    logits: (B, T) ids -> (B, T, V).
    """
    golden = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    found = logits(np.array([golden["ids"]]))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [golden["logits"]], rtol=0, atol=1e-4)
    start = golden["start"]
    for temperature, text in ((0.0, golden["greedy"]), (golden["temperature"], golden["seeded"])):
        assert len(start + text) > 2 * model.config.block_size
        assert_writes(model, tokenizer, start, temperature, golden["seed"], text)


def assert_writes(
    model: Model, tokenizer: CharTokenizer, start: str, temperature: float, seed: int, text: str
) -> None:
    """Assert that a model goes on with a start by this text, at this temperature and seed."""
    options = {"max_new_tokens": len(text), "seed": seed}
    config = SampleConfig(temperature=temperature)
    assert continue_texts(model, tokenizer, tokenizer.encode(start), config, **options) == [text]
