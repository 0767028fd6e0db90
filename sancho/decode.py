"""The model once more, for reading a text on a CPU character by character, in NumPy.

Reading one character takes two hundred operations on a few numbers each. To call one costs PyTorch
more than to compute it, and NumPy much less. The arithmetic is that of GPT.forward, which is
there to be read; here it is laid out for speed. Axes as in model.py. Products go stream by stream,
as do PyTorch's activations, so a stream's bits do not depend on the others.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from sancho.model import (
    ACTIVATIONS,
    GPT,
    FeedForward,
    KVCache,
    MultiHeadAttention,
    ngram_powers,
    spread,
)

Layer = Callable[[np.ndarray], np.ndarray]


def linear(module: nn.Linear) -> Layer:
    """Return the layer as a function of (B, T, in) -> (B, T, out)."""
    weight = np.ascontiguousarray(module.weight.detach().numpy().T)  # (in, out): read in order
    if module.bias is None:
        return lambda x: x @ weight
    bias = module.bias.detach().numpy()
    return lambda x: x @ weight + bias


def rms_norm(x: np.ndarray, eps: np.float32) -> np.ndarray:
    """Return x divided by the root of the mean of its squares over the last axis."""
    share = np.float32(1 / x.shape[-1])
    return x / np.sqrt(np.vecdot(x, x)[..., None] * share + eps)


def norm(module: nn.RMSNorm | nn.LayerNorm) -> Layer:
    """Return the normalisation as a function of (B, T, C) -> (B, T, C)."""
    eps = np.float32(module.eps)
    if isinstance(module, nn.RMSNorm):
        return lambda x: rms_norm(x, eps)
    weight = module.weight.detach().numpy()
    bias = np.float32(0) if module.bias is None else module.bias.detach().numpy()
    return lambda x: rms_norm(x - x.mean(-1, keepdims=True), eps) * weight + bias


def feed_forward(module: FeedForward) -> Layer:
    """Return the layer as a function of (B, T, C) -> (B, T, C)."""
    expand, project = linear(module.expand), linear(module.proj)
    activation = module.activation
    if activation is ACTIVATIONS["relu2"]:
        return lambda x: project(np.square(np.maximum(expand(x), 0)))
    if activation is ACTIVATIONS["relu"]:
        return lambda x: project(np.maximum(expand(x), 0))

    def apply(x: np.ndarray) -> np.ndarray:
        x, factor = expand(x), 1
        if module.gated:
            factor, x = np.split(x, 2, axis=-1)
        rows = [activation(torch.from_numpy(row)).numpy() for row in np.ascontiguousarray(x)]
        return project(np.stack(rows) * factor)

    return apply


def attention(module: MultiHeadAttention, keys: np.ndarray, values: np.ndarray) -> Layer:
    """Return the layer as a function of (B, T, C) and its first position -> (B, T, C).

    keys, values: (B, H, block, D), what was read before that position; it adds to them.
    """
    qkv, project = linear(module.qkv), linear(module.proj)
    H, D = module.n_head, module.head_size
    scale = np.float32(D**-0.5)
    if module.rope:
        turns = torch.view_as_complex(module.turns[:, None, : D // 2]).numpy()  # (block, 1, D/2)

    def apply(x: np.ndarray, start: int) -> np.ndarray:
        B, T, C = x.shape
        end = start + T
        heads = qkv(x).reshape(B, T, 3 * H, D)
        qk, v = heads[:, :, : 2 * H], heads[:, :, 2 * H :]
        if module.rope:
            qk = (qk.view(np.complex64) * turns[start:end]).view(np.float32)
        if module.qk_norm:
            qk = rms_norm(qk, np.float32(1e-6))
        keys[:, :, start:end] = qk[:, :, H:].swapaxes(1, 2)
        values[:, :, start:end] = v.swapaxes(1, 2)
        q = qk[:, :, :H].transpose(0, 2, 3, 1) * scale  # (B, H, D, T)
        scores = (keys[:, :, :end] @ q).swapaxes(2, 3)  # (B, H, T, S)
        if T > 1:
            scores = np.where(np.tri(T, end, start, dtype=bool), scores, np.float32(-np.inf))
        if not module.qk_norm:  # else they lie between −√D and √D, and no exponential overflows
            scores = scores - scores.max(-1, keepdims=True)
        weights = np.exp(scores)
        y = weights @ values[:, :, :end] / weights.sum(-1, keepdims=True)  # (B, H, T, D)
        return project(y.swapaxes(1, 2).reshape(B, T, C))

    return apply


class Decoder:
    """Reads on in each stream of a cache."""

    def __init__(self, model: GPT, cache: KVCache) -> None:
        """Lay out the weights of a float32 model on the CPU, to go on with what `cache` holds.

        While it reads, they must not change: some are copied here and some are not.
        """
        self.config, self.cache = model.config, cache
        self.ids = cache.ids.numpy()
        self.token_embedding = model.token_embedding.weight.detach().numpy()
        if self.config.ngram_size > 1:
            size = self.config.ngram_size
            self.powers = ngram_powers(size)
            self.newest_first = np.arange(self.config.block_size)[:, None] + np.arange(size)[::-1]
            self.ngram_embedding = model.ngram_embedding.weight.detach().numpy()
        self.positions = None
        if self.config.position == "learned":
            self.positions = model.position_embedding.weight.detach().numpy()
        elif self.config.position == "sinusoidal":
            self.positions = model.positions.numpy()
        skips = model.skips.tolist() if self.config.embedding_skip else [0] * self.config.n_layer
        self.blocks = [
            (
                skip,
                norm(block.norm1),
                attention(block.attention, keys.numpy(), values.numpy()),
                norm(block.norm2),
                feed_forward(block.feed_forward),
            )
            for skip, block, keys, values in zip(
                [0, *skips[1:]], model.blocks, cache.keys, cache.values, strict=True
            )
        ]
        self.norm, self.head = norm(model.norm), linear(model.head)

    def read(self, ids: np.ndarray) -> np.ndarray:
        """Take in the next ids of each stream, (B, T); return the logits after the last, (B, V)."""
        start, T = self.cache.length, ids.shape[1]
        end = start + T
        self.ids[:, self.cache.history + start : self.cache.history + end] = ids
        x = self.token_embedding[ids]  # (B, T, C)
        if self.config.ngram_size > 1:
            newest_first = self.ids[:, self.newest_first[start:end]]  # (B, T, ngram_size)
            keys = ((newest_first + 2) * self.powers).cumsum(-1)[..., 1:]
            rows = spread(keys, self.config.ngram_rows)
            x = x + self.ngram_embedding[rows].sum(2)  # (B, T, ngram_size − 1, C) summed
        if self.positions is not None:
            x = x + self.positions[start:end]
        embedding = x
        for skip, norm1, attend, norm2, feed in self.blocks:
            if skip:
                x = x + skip * embedding
            x = x + attend(norm1(x), start)
            x = x + feed(norm2(x))
        self.cache.length = end
        return self.head(self.norm(x[:, -1:]))[:, 0]
