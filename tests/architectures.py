"""Small models of every architecture, and what makes two implementations the same model."""

import itertools
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import random_gpt
from golden.make import new_checkpoint
from torch import Tensor

from sancho.checkpoint import Checkpoint
from sancho.config import ModelConfig
from sancho.generate import WindowDecoder
from sancho.model import GPT
from sancho.numpy_model import NumpyGPT

NORMS = ("layernorm", "rmsnorm")
POSITIONS = ("learned", "sinusoidal", "rope")
ACTIVATIONS = ("relu", "gelu", "silu", "relu2", "geglu", "swiglu")
SIZE = {"vocab_size": 11, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 16}
SMALL = ModelConfig(ngram_size=4, ngram_rows=61, **SIZE)
ODD_SHAPES = [
    pytest.param(replace(SMALL, **changes), id=" ".join(f"{k}={v}" for k, v in changes.items()))
    for changes in (
        {"block_size": 1},
        {"block_size": 2, "ngram_size": 1, "position": "learned"},
        {"n_layer": 1, "position": "sinusoidal", "embedding_skip": False},
        {"n_head": 8, "vocab_size": 1},
        {"vocab_size": 65536, "ngram_size": 16, "ngram_rows": 10007, "n_embd": 4, "block_size": 3},
        {"ngram_size": 16, "ngram_rows": 1},
        {"ngram_size": 2, "ngram_rows": 2**16, "n_embd": 2, "n_head": 1},
        {"n_embd": 1, "n_head": 1, "norm": "layernorm", "position": "learned", "bias": True},
        {"n_embd": 1, "n_head": 1, "norm": "rmsnorm", "position": "learned", "bias": True},
        {"n_embd": 2, "n_head": 1, "activation": "swiglu"},
        {"n_embd": 3, "n_head": 3, "position": "learned", "qk_norm": True},
        {"n_layer": 4, "n_head": 3, "n_embd": 96, "block_size": 20, "vocab_size": 92},
    )
]


def _architectures() -> dict[bool, list]:
    """Six of them (True) hold every choice, each norm with each position; the others are slow."""
    chosen = {
        (NORMS[i % 2], POSITIONS[i % 3], activation, i >= 3)
        for i, activation in enumerate(ACTIVATIONS)
    }
    found: dict[bool, list] = {True: [], False: []}
    for choices in itertools.product(NORMS, POSITIONS, ACTIVATIONS, (False, True)):
        is_chosen = choices in chosen
        shape = dict(zip(("norm", "position", "activation", "qk_norm"), choices, strict=True))
        config = replace(SMALL, bias=True, **shape)
        marks = () if is_chosen else pytest.mark.slow
        found[is_chosen].append(pytest.param(config, id="-".join(map(str, choices)), marks=marks))
    return found


EACH_CHOICE, OTHERS = _architectures().values()
each_choice = pytest.mark.parametrize("config", EACH_CHOICE)
every_architecture = pytest.mark.parametrize("config", EACH_CHOICE + OTHERS)


def random_ids(*shape: int, vocab_size: int = 11, seed: int = 1) -> np.ndarray:
    """Return ids drawn from one seeded generator."""
    return np.random.default_rng(seed).integers(vocab_size, size=shape)


def random_tensor(*shape: int, seed: int = 2, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return normally distributed numbers drawn from one seeded generator."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def assert_close(actual: object, expected: object, atol: float = 0.0, rtol: float = 0.0) -> None:
    """Compare tensors or arrays; torch.testing takes a second to import."""
    arrays = [x.detach().numpy() if isinstance(x, Tensor) else x for x in (actual, expected)]
    np.testing.assert_allclose(*arrays, rtol=rtol, atol=atol)


class ReadByTorch(NumpyGPT):
    """A model for `generate` to read with PyTorch, as it does on a GPU."""

    def __init__(self, model: GPT) -> None:
        self.config = model.config
        self.model = model

    def decoder(self, batch_size: int) -> WindowDecoder:
        return WindowDecoder(self.model, batch_size)


@torch.no_grad()
def exact_logits(model: GPT, ids: np.ndarray) -> np.ndarray:
    """Return the model's logits, (B, T, V), in float64."""
    return deepcopy(model).double()(torch.from_numpy(ids)).numpy()


def checkpoint_of(config: ModelConfig, characters: str) -> Checkpoint:
    """Return a checkpoint with random weights, of a run of no steps on a text without a name."""
    return new_checkpoint(config, characters, random_gpt(config).arrays())
