"""Dropout, whose masks depend only on the seed of a run and the place in it."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sancho.config import ModelConfig, TrainConfig
from sancho.machine.device import Device, torch_seed
from sancho.machine.seeds import Purpose, seed_of


class Dropout(nn.Module):
    """Dropout (Srivastava et al. 2014) of single numbers, or of whole vectors of the last axis."""

    thread = threading.local()

    def __init__(self, p: float, of_vectors: bool = False) -> None:
        super().__init__()
        self.p = p
        self.of_vectors = of_vectors

    @classmethod
    @contextmanager
    def drawing_from(cls, generators: Sequence[torch.Generator]) -> Iterator[None]:
        """Inside the block, the dropout masks of this thread are drawn from these generators.

        There is one generator for each window of a batch, so that a mask does not depend on which
        windows share a batch, or a thread. Outside, masks come from torch's global generator.
        """
        cls.thread.generators = generators
        try:
            yield
        finally:
            del cls.thread.generators

    def forward(self, x: Tensor) -> Tensor:
        """(N, …, C) -> the same; N is B, or B times something."""
        is_compiling = torch.compiler.is_compiling()
        generators = None if is_compiling else getattr(self.thread, "generators", None)
        if generators is None or not self.training or self.p == 0:
            drop = F.dropout1d if self.of_vectors else F.dropout
            return drop(x, self.p, self.training)
        mask = x.new_empty((*x.shape[:-1], 1) if self.of_vectors else x.shape)
        windows = mask.view(len(generators), -1)
        for window, generator in zip(windows, generators, strict=True):
            window.bernoulli_(1 - self.p, generator=generator)
        return x * mask.div_(1 - self.p)


def masks(
    model: ModelConfig,
    train: TrainConfig,
    device: Device,
    step: int,
    micro_step: int,
    numbers: Tensor,
) -> AbstractContextManager[None]:
    """Return a context for the forward pass of the windows of these numbers in a micro-batch.

    On a CPU the masks of a window depend only on its number in the step, and not on how many
    threads, processes or micro-batches share the step.
    """
    if not (model.dropout or model.ngram_dropout):
        return nullcontext()
    if train.compile or not device.on_cpu:
        place = (step, micro_step)
        return torch_seed(device.torch_device, train.seed, Purpose.DROPOUT, *place)
    generators = []
    for number in (micro_step * train.batch_size + numbers).tolist():
        seed = seed_of(train.seed, Purpose.DROPOUT, step, number)
        generators.append(torch.Generator().manual_seed(seed))
    return Dropout.drawing_from(generators)
