"""Models of every family do what golden/make.py once wrote down; NumPy's: test_without_torch."""

import numpy as np
import pytest
import torch
from architectures import ReadByTorch
from golden.make import FAMILIES, FOLDER
from golden.writing import assert_is_golden

from sancho import checkpoint


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_texts_are_those_written_down(family):
    path = FOLDER / f"{family}.safetensors"
    saved = checkpoint.load(path)
    model = saved.build_model()

    @torch.inference_mode()
    def logits(ids: np.ndarray) -> np.ndarray:
        return model(torch.from_numpy(ids)).numpy()

    assert_is_golden(path, logits, ReadByTorch(model), saved.tokenizer)
