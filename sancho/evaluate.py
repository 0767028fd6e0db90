"""How well a model predicts a text: the loss over all of it, always the same way."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sancho.distributed import ALONE, World
from sancho.model import GPT


def windows(ids: np.ndarray, block_size: int, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (inputs, targets), each (B, T), that cover `ids` in order, each target once.

    All windows have T = block_size, but for the last one, which takes what is left.
    """
    whole = (len(ids) - 1) // block_size
    for first in range(0, whole, batch_size):
        last = min(first + batch_size, whole)
        piece = torch.from_numpy(ids[first * block_size : last * block_size + 1].astype(np.int64))
        yield piece[:-1].view(-1, block_size), piece[1:].view(-1, block_size)
    rest = torch.from_numpy(ids[whole * block_size :].astype(np.int64))
    if len(rest) > 1:
        yield rest[None, :-1], rest[None, 1:]


@contextmanager
def evaluation_mode(model: GPT) -> Iterator[None]:
    """Switch dropout off inside the block; put the model's mode back after it."""
    was_training = model.training
    try:
        model.eval()
        yield
    finally:
        model.train(was_training)


@torch.inference_mode()
def evaluate(model: GPT, ids: np.ndarray, batch_size: int = 16, world: World = ALONE) -> float:
    """Return the mean loss in nats per character over every window of `ids`.

    Dropout is off; the model's mode is put back afterwards, and no random number is drawn. The
    processes of a `world` share the batches out. Raises ValueError for fewer than two ids.
    """
    if len(ids) < 2:
        raise ValueError("a loss needs at least two characters")
    device = next(model.parameters()).device
    # One place for each batch: sums kept one by one would lie between what each batch frees.
    sums = torch.zeros(len(ids) // (model.config.block_size * batch_size) + 2, device=device)
    with evaluation_mode(model):
        for turn, (inputs, targets) in enumerate(windows(ids, model.config.block_size, batch_size)):
            if turn % world.size != world.rank:
                continue
            logits = model(inputs.to(device)).float()
            sums[turn] = F.cross_entropy(
                logits.flatten(0, 1), targets.to(device).flatten(), reduction="sum"
            )
    every = torch.cat(world.all(sums.cpu()))
    return math.fsum(every.tolist()) / (len(ids) - 1)  # exact, whoever computed which


def bits_per_character(nats: float) -> float:
    """Return a loss in nats per character as bits per character."""
    return nats / math.log(2)
