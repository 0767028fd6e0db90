"""The loss: cross-entropy, the objective with its prediction heads, and the loss of a text."""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sancho.config import TrainConfig
from sancho.machine.distributed import ALONE, World
from sancho.machine.threads import ParallelMap, cores, thread_pool
from sancho.model import GPT, evaluating

# Of the first prediction head's loss at the start. The further ahead a character is, the less can
# be known of it, so each next head has half. With two heads, and Muon at 0.015 instead of 0.02,
# `mini` ended at 1.238 instead of 1.252 (benchmarks/diary.md).
FIRST_WEIGHT = 0.3
# The fraction of the steps after which the heads have no weight: the model is measured by the next
# character alone, so the last steps, whose learning rates are low, are for that alone.
FADE_END = 0.7


def cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Return the mean of −ln p(target) in nats, in float32: (B, T, V), (B, T) -> ().

    reduction: "none" for all of them, (B · T,).
    """
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction=reduction)


class Objective(nn.Module):
    """Training loss: cross-entropy plus auxiliary multi-token-prediction heads.

    Prediction head j (from 1) is a linear layer that reads what the output head reads and predicts
    the character j places after the next one. Only training has them. Gloeckle et al. 2024,
    arXiv:2404.19737; for characters: Al-Rfou et al. 2018, arXiv:1808.04444.
    """

    def __init__(self, model: GPT, config: TrainConfig) -> None:
        """Add `config.look_ahead` prediction heads, all zero like a new output head."""
        super().__init__()
        self.model = model
        self.logit_scale = config.logit_scale
        heads = (torch.zeros_like(model.head.weight) for _ in range(config.look_ahead))  # (V, C)
        self.prediction_heads = nn.ParameterList(heads)

    def forward(self, ids: Tensor, targets: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the loss to report and the loss to minimise, (B, T), (B, T) -> (), ().

        The second one includes the losses of the prediction heads, times `weight`, which is from
        `look_ahead_weight`.
        """
        features = self.model.features(ids)  # (B, T, C)
        logits = self.logit_scale * self.model.head(features).float()  # (B, T, V)
        reported = cross_entropy(logits, targets)
        minimised = reported
        if weight is not None:
            for j, head in enumerate(self.prediction_heads[: ids.shape[1] - 1], 1):
                ahead = cross_entropy(F.linear(features[:, :-j], head), targets[:, j:])
                minimised = minimised + weight * FIRST_WEIGHT / 2 ** (j - 1) * ahead
        return reported, minimised

    def look_ahead_weight(self, step: int, max_iters: int) -> Tensor | None:
        """Return the factor of the heads' losses at step `step` (from 0), (), or None for 0.

        It falls linearly from 1 at the start to 0 at FADE_END of the run.
        """
        weight = 1 - step / (FADE_END * max_iters)
        return torch.tensor(weight) if len(self.prediction_heads) and weight > 0 else None

    def named_trained(self) -> dict[str, nn.Parameter]:
        """Return all trained parameters: named as in weights.py, and look_ahead.0, look_ahead.1,
        …"""
        heads = {f"look_ahead.{j}": head for j, head in enumerate(self.prediction_heads)}
        return dict(self.model.named_parameters()) | heads


def windows(
    ids: np.ndarray, block_size: int, batch_size: int = 16, most: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (inputs, targets), each (B, T), that cover `ids`, (n,), in order, each target once.

    All windows have T = block_size, except the last one, which may be shorter.
    most: the largest number of targets; if there are more, windows all over the text are taken.
    Raises ValueError for fewer than two ids.
    """
    if len(ids) < 2:
        raise ValueError("a loss needs at least two characters")
    whole = (len(ids) - 1) // block_size
    starts = np.arange(whole) * block_size
    rest = ids[whole * block_size :]
    if most is not None and len(ids) - 1 > most:
        count = max(1, most // block_size)
        starts = starts[np.arange(count) * whole // count]
        rest = rest[:0]
    for first in range(0, len(starts), batch_size):
        places = starts[first : first + batch_size, None] + np.arange(block_size + 1)
        pieces = torch.from_numpy(ids[places].astype(np.int64))  # (B, T + 1)
        yield pieces[:, :-1], pieces[:, 1:]
    if len(rest) > 1:
        piece = torch.from_numpy(rest.astype(np.int64))
        yield piece[None, :-1], piece[None, 1:]


def losses_of_windows(
    model: GPT, batches: Iterable[tuple[Tensor, Tensor]], parallel_map: ParallelMap
) -> list[np.ndarray]:
    """Return −ln p of the targets of each batch of windows, (B · T,) float32 in nats."""
    device = model.head.weight.device

    @torch.inference_mode()
    def losses_of(batch: tuple[Tensor, Tensor]) -> np.ndarray:
        inputs, targets = (part.to(device) for part in batch)
        return cross_entropy(model(inputs), targets, reduction="none").cpu().numpy()

    with evaluating(model):
        return parallel_map(losses_of, batches)


def character_losses(
    model: GPT, ids: np.ndarray, batch_size: int = 16, threads: int = 0
) -> np.ndarray:
    """Return −ln p of each id but the first, in nats: (n,) -> (n − 1,) float32.

    Each is predicted in its window (see `windows`), with dropout off. threads: how many CPU threads
    share the windows; 0 means one for each core. Raises ValueError for fewer than two ids.
    """
    on_cpu = model.head.weight.device.type == "cpu"
    with thread_pool(threads or cores() if on_cpu else 1) as parallel_map:
        batches = windows(ids, model.config.block_size, batch_size)
        return np.concatenate(losses_of_windows(model, batches, parallel_map))


def validation_loss(
    model: GPT,
    ids: np.ndarray,
    *,
    most: int | None = None,
    world: World = ALONE,
    parallel_map: ParallelMap | None = None,
) -> float:
    """Return the mean loss of each id but the first, in nats per character.

    most: see `windows`. world: processes that share the windows. parallel_map: of threads that
    share those of this process, by default one for each core of a CPU. Raises ValueError for fewer
    than two ids.
    """
    on_cpu = model.head.weight.device.type == "cpu"
    with nullcontext(parallel_map) if parallel_map else thread_pool(cores() if on_cpu else 1) as do:
        every = windows(ids, model.config.block_size, most=most)
        losses = losses_of_windows(model, islice(every, world.rank, None, world.size), do)
    total = sum(part.sum(dtype=np.float64) for part in losses)
    count = sum(map(len, losses))
    sums = world.sum(torch.tensor([total, count], dtype=torch.float64))
    return (sums[0] / sums[1]).item()
