"""Inspection of a model: attention weights, residual streams, the logit lens, per-character loss.

Nothing here changes the model: dropout is off, and its mode is put back afterwards.
"""

import math
from collections.abc import Callable, Iterable
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sancho.machine.threads import side_by_side
from sancho.model import GPT, MultiHeadAttention
from sancho.training import evaluation_mode, windows


def attention_weights(model: GPT, ids: Tensor) -> Tensor:
    """Return the attention weights of each head: (B, T) ids -> (n_layer, B, H, T, T).

    Row t of a head holds its weights for the characters up to t, which sum to 1.
    """

    def weights(attention: MultiHeadAttention, inputs: tuple[Tensor, ...], _: Tensor) -> Tensor:
        q, k, _ = attention.queries_keys_values(inputs[0])  # (B, H, T, D)
        scores = q @ k.mT / math.sqrt(attention.head_size)
        future = torch.ones_like(scores, dtype=torch.bool).triu(1)
        return scores.masked_fill(future, -math.inf).softmax(-1)

    layers = (module for module in model.modules() if isinstance(module, MultiHeadAttention))
    return torch.stack(_watch(model, ids, layers, weights))


def residual_streams(model: GPT, ids: Tensor) -> Tensor:
    """Return the residual stream before the first block and after each: (n_layer + 1, B, T, C)."""
    before = _watch(model, ids, [model.blocks[0]], lambda _, inputs, __: inputs[0])
    after = _watch(model, ids, model.blocks, lambda _, __, output: output)
    return torch.stack(before + after)


@torch.inference_mode()
def layer_logits(model: GPT, ids: Tensor) -> Tensor:
    """Return the logits that the output head makes of each residual stream: (n_layer + 1, B, T, V).

    The last ones are the model's own. The "logit lens": nostalgebraist 2020, Interpreting GPT.
    """
    return model.head(model.norm(residual_streams(model, ids)))


def character_losses(model: GPT, ids: np.ndarray, batch_size: int = 16) -> np.ndarray:
    """Return −ln p of each id but the first, in nats: (n,) -> (n − 1,) float32.

    Over the windows of `validation_loss`, so their mean is that loss: the context of a character
    begins at the last multiple of block_size. Raises ValueError for fewer than two ids.
    """
    if len(ids) < 2:
        raise ValueError("a loss needs at least two characters")
    device = next(model.parameters()).device

    @torch.inference_mode()
    def losses_of(batch: tuple[Tensor, Tensor]) -> Tensor:
        logits, targets = model(batch[0].to(device)).float(), batch[1].to(device)
        return F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="none"
        )  # (B · T,)

    losses: list[Tensor] = []
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    batches = windows(ids, model.config.block_size, batch_size)
    with evaluation_mode(model), side_by_side(threads) as parallel_map:
        while group := list(islice(batches, threads)):
            losses += parallel_map(losses_of, group)
    return torch.cat(losses).cpu().numpy()


def sliding_losses(model: GPT, ids: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Return the losses with sliding windows: after at least half a block of context, (n − 1,).

    losses: `character_losses(model, ids)`. Those in the first half of a window are replaced by the
    losses in windows that begin half a block later; the very first ones stay.
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
def _watch(
    model: GPT, ids: Tensor, modules: Iterable[nn.Module], note: Callable[..., Tensor]
) -> list[Tensor]:
    """Run the model; return `note(module, inputs, output)` of each of the modules."""
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
