"""Looking inside a model: where its heads look, what its blocks hand on, what surprises it.

Nothing here changes the model: dropout is off, and its mode is put back afterwards.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sancho.evaluate import evaluation_mode, windows
from sancho.model import GPT


def attention_weights(model: GPT, ids: Tensor) -> Tensor:
    """Return how each head spreads its attention: (B, T) ids -> (n_layer, B, H, T, T).

    Row t of a head holds what it gives to each character up to t; it sums to 1.
    """

    def weights(attention: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> Tensor:
        q, k, _ = attention.queries_keys_values(inputs[0])  # (B, H, T, D)
        scores = q @ k.mT / math.sqrt(attention.head_size)
        future = torch.ones_like(scores, dtype=torch.bool).triu(1)
        return scores.masked_fill(future, -math.inf).softmax(-1)

    return torch.stack(_watch(model, ids, [block.attention for block in model.blocks], weights))


def residual_streams(model: GPT, ids: Tensor) -> Tensor:
    """Return what enters the first block and what leaves each: (n_layer + 1, B, T, C)."""
    before = _watch(model, ids, [model.blocks[0]], lambda _, inputs, __: inputs[0])
    after = _watch(model, ids, model.blocks, lambda _, __, output: output)
    return torch.stack(before + after)


@torch.inference_mode()
def layer_logits(model: GPT, ids: Tensor) -> Tensor:
    """Return what the head makes of each residual stream: (n_layer + 1, B, T, V).

    The last ones are the model's own logits. The "logit lens": nostalgebraist 2020,
    Interpreting GPT.
    """
    return model.head(model.norm(residual_streams(model, ids)))


@torch.inference_mode()
def character_losses(model: GPT, ids: np.ndarray, batch_size: int = 16) -> np.ndarray:
    """Return −ln p of each id but the first, in nats: (n,) -> (n − 1,) float32.

    Over the windows of `evaluate`, so their mean is its loss: the context of a character begins
    at the last multiple of block_size. Raises ValueError for fewer than two ids.
    """
    if len(ids) < 2:
        raise ValueError("a loss needs at least two characters")
    device = next(model.parameters()).device
    losses = []
    with evaluation_mode(model):
        for inputs, targets in windows(ids, model.config.block_size, batch_size):
            logits = model(inputs.to(device)).float().flatten(0, 1)  # (B · T, V)
            losses.append(F.cross_entropy(logits, targets.to(device).flatten(), reduction="none"))
    return torch.cat(losses).cpu().numpy()


def sliding_losses(model: GPT, ids: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Return the losses where each character has at least half a block before it, (n − 1,).

    losses: `character_losses(model, ids)`. What stands in the first half of a window is replaced
    by its loss in windows that begin half a block later; the very first ones stay.
    """
    block = model.config.block_size
    half, places = block // 2, np.arange(len(losses))
    early = np.flatnonzero((places % block < half) & (places >= half))
    if not len(early):
        return losses
    longer = losses.copy()
    longer[early] = character_losses(model, ids[half:])[early - half]
    return longer


@torch.inference_mode()
def _watch(model: GPT, ids: Tensor, modules: list[nn.Module], note: Callable) -> list[Tensor]:
    """Read ids; return what `note(module, inputs, output)` says of each module."""
    notes: list[Tensor] = []

    def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        notes.append(note(module, inputs, output))

    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        with evaluation_mode(model):
            model(ids)
    finally:
        for handle in handles:
            handle.remove()
    return notes
