"""What all implementations of the model share: names and shapes of weights, tables, constants."""

import math
from collections.abc import Collection, Mapping

import numpy as np

from sancho.config import ModelConfig
from sancho.errors import OtherFunction

Shapes = dict[str, tuple[int, ...]]
NGRAM_KEYS = "ngram_embedding.keys"
QK_EPSILON = 1e-6
"""The ε that the normalisation of queries and keys adds to the mean of their squares."""


def weight_shapes(config: ModelConfig) -> Shapes:
    """Return the shape of every weight by its name, in the order of the forward pass.

    All are float32, row after row, except the keys of n-grams, which are int32. With C = n_embd,
    H heads of D = C / H channels, V characters:

    - A matrix of shape (out, in) maps x, (…, in), to x · Wᵀ + bias, as torch.nn.Linear does.
    - `attention.qkv` gives the queries of all heads, then the keys, then the values: 3·H·D rows.
    - Rotary positions rotate the channels (2j, 2j + 1) of queries and keys together, by the angle
      t / 10000^(2j/D) at position t, before they are normalised.
    - `feed_forward.expand` of a gated activation gives the factors first and then the gates: the
      output is factor · activation(gate).
    - `ngram_embedding` is the table of ngrams.py; `skips` are the strengths with which the
      embedding is added before each block (the first one is not used).
    - A tied output head is stored twice.
    """
    C, V, hidden = config.n_embd, config.vocab_size, config.hidden_size

    def linear(name: str, *shape: int) -> Shapes:
        bias: Shapes = {f"{name}.bias": shape[:1]} if config.bias else {}
        return {f"{name}.weight": shape} | bias

    def norm(name: str) -> Shapes:
        return linear(name, C) if config.norm == "layernorm" else {}

    shapes: Shapes = {"token_embedding.weight": (V, C)}
    if config.ngram_size > 1:
        shapes["ngram_embedding.weight"] = (config.ngram_rows, C)
        shapes[NGRAM_KEYS] = (config.ngram_rows,)
    if config.position == "learned":
        shapes["position_embedding.weight"] = (config.block_size, C)
    if config.embedding_skip:
        shapes["skips"] = (config.n_layer,)
    for layer in range(config.n_layer):
        block = f"blocks.{layer}"
        shapes |= norm(f"{block}.norm1")
        shapes |= linear(f"{block}.attention.qkv", 3 * C, C)
        shapes |= linear(f"{block}.attention.proj", C, C)
        shapes |= norm(f"{block}.norm2")
        shapes |= linear(f"{block}.feed_forward.expand", hidden * (1 + config.is_gated), C)
        shapes |= linear(f"{block}.feed_forward.proj", C, hidden)
    return shapes | norm("norm") | {"head.weight": (V, C)}


def count_parameters(config: ModelConfig) -> int:
    """Return the number of trained weights; those of a tied head count once."""
    shapes = weight_shapes(config)
    total = sum(math.prod(shape) for name, shape in shapes.items() if name != NGRAM_KEYS)
    return total - config.tie_embeddings * config.vocab_size * config.n_embd


def norm_epsilon(config: ModelConfig) -> float:
    """Return the ε that the normalisation adds to the variance, or to the mean of the squares."""
    return 1e-5 if config.norm == "layernorm" else QK_EPSILON


def rotary_angles(config: ModelConfig) -> np.ndarray:
    """Return the angles of rotary positions: t / 10000^(j/D) for even j < D, (block, D/2) float64.

    Su et al. 2021, arXiv:2104.09864, section 3.2.
    """
    return _angles(config.block_size, config.head_size)


def sinusoids(config: ModelConfig) -> np.ndarray:
    """Return sinusoidal positions, (block, C) float64; angles t / 10000^(j/C) for even j < C.

    Their sines in the even channels j, their cosines in the odd channels after them. Vaswani et al.
    2017, arXiv:1706.03762, section 3.5.
    """
    angles = _angles(config.block_size, config.n_embd)
    return np.stack((np.sin(angles), np.cos(angles)), -1).reshape(config.block_size, -1)


def _angles(length: int, channels: int) -> np.ndarray:
    return np.outer(np.arange(length), 10000.0 ** (-np.arange(0, channels, 2) / channels))


def require_choices(
    config: ModelConfig, known: Mapping[str, Collection[str]], implementation: str
) -> None:
    """Raise OtherFunction if an implementation does not know the name in an option.

    known: for each option, the names that it knows.
    """
    for option, names in known.items():
        name = getattr(config, option)
        if name not in names:
            raise OtherFunction(f"{implementation} does not know --{option} {name}")
