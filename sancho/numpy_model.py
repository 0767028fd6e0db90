"""Inference in NumPy, with a KV cache.

Reading one character takes many operations on few numbers, and PyTorch needs longer to call them
than to compute them. The model is that of model.py, but its weights are laid out for speed:

- Norm gains and biases are folded into the next linear layer, and so are the √C of every
  normalisation and the 1/√D of attention.
- LayerNorm subtracts the mean of the channels. Every matrix that writes to the residual stream has
  its output centred here, so nothing is left to subtract, and LayerNorm is RMSNorm.

The result for one text does not depend on the others, to the last bit. Axes are as in model.py.
"""

from collections.abc import Callable, Collection
from functools import partial

import numpy as np

from sancho.config import ModelConfig
from sancho.shared import ngrams
from sancho.shared.weights import (
    NGRAM_KEYS,
    QK_EPSILON,
    norm_epsilon,
    require_choices,
    rotary_angles,
    sinusoids,
)

Function = Callable[[np.ndarray], np.ndarray]
Weights = dict[str, np.ndarray]


def relu(x: np.ndarray) -> np.ndarray:
    """max(x, 0)"""
    return np.maximum(x, 0)


def relu2(x: np.ndarray) -> np.ndarray:
    """max(x, 0)²"""
    return np.square(np.maximum(x, 0))


def silu(x: np.ndarray) -> np.ndarray:
    """x · sigmoid(x)"""
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    """x · Φ(x), Φ being the normal distribution, to 2e-7 (of x).

    Abramowitz & Stegun 1964, formula 7.1.26, for the error function.
    """
    z = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * z)
    tail = np.float32(1.061405429) * t
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail = (tail + np.float32(coefficient)) * t
    tail *= np.float32(0.5) * np.exp(-z * z)  # Φ(−|x|)
    return x * np.where(x > 0, 1 - tail, tail)


ACTIVATIONS: dict[str, Function] = {
    "relu": relu,
    "gelu": gelu,
    "silu": silu,
    "relu2": relu2,
    "geglu": gelu,
    "swiglu": silu,
}


CHOICES: dict[str, Collection[str]] = {
    "norm": ("layernorm", "rmsnorm"),
    "position": ("learned", "sinusoidal", "rope"),
    "activation": ACTIVATIONS,
}
"""The options of ModelConfig whose values are names, and the names that this file knows."""


class NumpyGPT:
    """The weights of a GPT, laid out for inference."""

    file = "sancho/numpy_model.py"

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        """Take weights by name (weights.py); the largest of them are not copied.

        Raises OtherFunction if this file does not know the name in an option.
        """
        require_choices(config, CHOICES, self.file)
        self.config = config
        centred = config.norm == "layernorm"
        self.token_embedding = _rows(weights["token_embedding.weight"], centred)
        if config.ngram_size > 1:
            self.ngram_embedding = _rows(weights["ngram_embedding.weight"], centred)
            self.powers = np.array(ngrams.signed_powers(config.ngram_size))
            self.ngram_keys = weights[NGRAM_KEYS]  # (rows,)
        self.positions = None
        if config.position == "learned":
            self.positions = _rows(weights["position_embedding.weight"], centred)
        elif config.position == "sinusoidal":
            self.positions = _rows(sinusoids(config), centred)
        self.blocks = [_Block(config, weights, layer) for layer in range(config.n_layer)]
        self.normalise = _normaliser(config.n_embd, norm_epsilon(config))
        self.head = _after_norm(config, weights, "norm", "head")

    def decoder(self, batch_size: int) -> "Decoder":
        """Return an incremental decoder of B texts."""
        return Decoder(self, batch_size)

    def logits(self, ids: np.ndarray) -> np.ndarray:
        """(B, T) ids -> (B, T, V) logits of the character after each, as GPT.forward."""
        return self.head(self.decoder(len(ids)).features(ids))


class Decoder:
    """An incremental decoder: reads B growing texts, computing every position once."""

    def __init__(self, model: NumpyGPT, batch_size: int) -> None:
        self.model = model
        config = model.config
        shape = (config.n_layer, batch_size, config.n_head, config.block_size, config.head_size)
        self.keys, self.values = np.zeros((2, *shape), np.float32)  # each (n_layer, B, H, block, D)
        self.length = 0
        before = config.ngram_size - 1
        ids = np.full((batch_size, before + config.block_size), ngrams.NOTHING, np.int64)
        self.ids = ids[:, before:]
        windows = np.lib.stride_tricks.sliding_window_view(ids, before + 1, axis=1)
        self.newest_first = windows[..., ::-1]  # (B, block, ngram_size)

    def restart(self) -> None:
        """Begin new texts."""
        self.length = 0

    def read(self, ids: np.ndarray) -> np.ndarray:
        """Append the next ids of each text, (B, T); return the logits after the last, (B, V)."""
        return self.model.head(self.features(ids)[:, -1:])[:, 0]

    def features(self, ids: np.ndarray) -> np.ndarray:
        """Append the next ids of each text; return what the output head reads, (B, T, C)."""
        model = self.model
        start = self.length
        end = start + ids.shape[1]
        if end > model.config.block_size:
            raise ValueError(f"{end} characters do not fit block_size")
        embedding = model.token_embedding.take(ids, axis=0)  # (B, T, C)
        if model.config.ngram_size > 1:
            self.ids[:, start:end] = ids
            newest_first = self.newest_first[:, start:end]  # (B, T, ngram_size)
            rows = ngrams.rows_of(newest_first, model.powers, model.ngram_keys, np)
            embedding += model.ngram_embedding.take(rows, axis=0).sum(2)
        if model.positions is not None:
            embedding += model.positions[start:end]
        x = embedding
        for block, keys, values in zip(model.blocks, self.keys, self.values, strict=True):
            if block.skip:
                x = x + block.skip * embedding
            x = x + block.attend(model.normalise(x), keys, values, start)
            x = x + block.feed_forward(model.normalise(x))
        self.length = end
        return model.normalise(x)


class _Block:
    def __init__(self, config: ModelConfig, weights: Weights, layer: int) -> None:
        name = f"blocks.{layer}"
        self.config = config
        self.skip = np.float32(weights["skips"][layer]) if config.embedding_skip and layer else None
        scale = config.head_size**-0.25  # of queries and of keys, so 1/√D for their product
        # Normalisation takes a factor √D from both.
        before, after = (1.0, 1 / scale) if config.qk_norm else (scale, 1.0)
        scales = np.repeat((before, before, 1.0), config.n_embd)  # (3C,)
        self.qkv = _after_norm(config, weights, f"{name}.norm1", f"{name}.attention.qkv", scales)
        self.scale = np.float32(after)
        self.normalise = _normaliser(config.head_size, QK_EPSILON)
        self.rotations = None
        if config.position == "rope":
            rotations = after * np.exp(1j * rotary_angles(config))  # (block, D/2)
            self.rotations = rotations[:, None].astype(np.complex64)
        self.project = _onto_stream(config, weights, f"{name}.attention.proj")
        self.expand = _after_norm(config, weights, f"{name}.norm2", f"{name}.feed_forward.expand")
        self.contract = _onto_stream(config, weights, f"{name}.feed_forward.proj")
        self.activation = ACTIVATIONS[config.activation]

    def attend(self, x: np.ndarray, keys: np.ndarray, values: np.ndarray, start: int) -> np.ndarray:
        """(B, T, C), the first at position `start` -> (B, T, C). Adds to keys and values.

        keys, values: (B, H, block, D), what was read before that position.
        """
        B, T, C = x.shape
        H, D = self.config.n_head, self.config.head_size
        end = start + T
        heads = self.qkv(x).reshape(B, T, 3 * H, D)
        qk = heads[:, :, : 2 * H]
        if self.config.qk_norm:
            qk = self.normalise(qk)
        if self.rotations is not None:
            qk = (qk.view(np.complex64) * self.rotations[start:end]).view(np.float32)
        elif self.config.qk_norm:
            qk = qk * self.scale
        keys[:, :, start:end] = qk[:, :, H:].swapaxes(1, 2)
        values[:, :, start:end] = heads[:, :, 2 * H :].swapaxes(1, 2)
        q = qk[:, :, :H].transpose(0, 2, 3, 1)  # (B, H, D, T)
        scores = (keys[:, :, :end] @ q).swapaxes(2, 3)  # (B, H, T, S)
        if T > 1:
            scores = np.where(np.tri(T, end, start, dtype=bool), scores, np.float32(-np.inf))
        # With qk_norm the scores lie between −√D and √D, and exp can't overflow.
        if not self.config.qk_norm:
            scores -= scores.max(-1, keepdims=True)
        weights = np.exp(scores)
        y = weights @ values[:, :, :end] / weights.sum(-1, keepdims=True)  # (B, H, T, D)
        return self.project(y.swapaxes(1, 2).reshape(B, T, C))

    def feed_forward(self, x: np.ndarray) -> np.ndarray:
        """(B, T, C) -> (B, T, C)"""
        x = self.expand(x)
        hidden = self.config.hidden_size
        active = self.activation(x[..., -hidden:])
        return self.contract(x[..., :hidden] * active if self.config.is_gated else active)


def _rows(rows: np.ndarray, centred: bool) -> np.ndarray:
    """Return rows that are added to the residual stream, their mean subtracted if `centred`."""
    if centred:
        rows = rows - rows.mean(-1, keepdims=True, dtype=np.float64)
    return rows.astype(np.float32, copy=False)


def _after_norm(
    config: ModelConfig, weights: Weights, norm: str, name: str, scales: np.ndarray | float = 1.0
) -> Function:
    """Return a layer for x / |x| instead of norm(x), its outputs multiplied by `scales`, (out,)."""
    matrix = weights[f"{name}.weight"].astype(np.float64)  # (out, in)
    bias = np.zeros(len(matrix)) + weights.get(f"{name}.bias", 0)
    bias += matrix @ weights.get(f"{norm}.bias", np.zeros(config.n_embd))
    matrix = matrix * weights.get(f"{norm}.weight", 1) * config.n_embd**0.5
    return _linear((matrix.T * scales).T, bias * scales)


def _onto_stream(config: ModelConfig, weights: Weights, name: str) -> Function:
    """Return a layer that writes to the residual stream."""
    centred = config.norm == "layernorm"
    bias = weights.get(f"{name}.bias", np.zeros(config.n_embd))
    return _linear(_rows(weights[f"{name}.weight"].T, centred).T, _rows(bias, centred))


def _linear(matrix: np.ndarray, bias: np.ndarray) -> Function:
    """Return x, (B, T, in) -> x · matrixᵀ + bias, (B, T, out), in float32."""
    weight = np.ascontiguousarray(matrix.T, dtype=np.float32)  # (in, out): read in order
    return partial(_affine, weight, bias.astype(np.float32) if bias.any() else None)


def _affine(weight: np.ndarray, shift: np.ndarray | None, x: np.ndarray) -> np.ndarray:
    product = x @ weight
    return product if shift is None else product + shift


def _normaliser(size: int, epsilon: float) -> Function:
    """Return x -> x / |x| over the last axis, with ε added to the mean of the squares."""
    return partial(_normalised, np.float32(size * epsilon))


def _normalised(floor: np.float32, x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.vecdot(x, x)[..., None] + floor)
