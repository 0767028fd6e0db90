"""The batches of a run: windows of its text, in an order that the seed decides."""

import numpy as np
import torch
from torch import Tensor

from sancho.config import TrainConfig
from sancho.machine.seeds import Purpose, generator


class Batches:
    """Windows of a text in random order; in each epoch every window is read once.

    Every epoch cuts the text at other places, and the window that reaches past the end is moved to
    the beginning. The windows of a batch depend only on the seed and on its place in the run.
    """

    def __init__(
        self, ids: np.ndarray, block_size: int, config: TrainConfig, device: torch.device
    ) -> None:
        """Take windows of `ids`, (n,) with n > block_size."""
        self.block_size = block_size
        self.config = config
        self.device = device
        self.n_starts = len(ids) - block_size
        self.n_windows = (len(ids) - 1) // block_size
        self.epoch = -1
        self.starts = np.empty(0, np.int64)
        self.offsets = torch.arange(block_size + 1, device=device)
        # torch indexes no uint16: get() undoes the sign.
        self.ids = torch.from_numpy(ids if ids.dtype == np.uint8 else ids.view(np.int16))
        self.ids = self.ids.to(device)

    def window_start(self, index: int) -> int:
        """Return the place in the text at which the run's window `index` (from 0) begins."""
        epoch, place = divmod(index, self.n_windows)
        if epoch != self.epoch:
            random = generator(self.config.seed, Purpose.BATCHES, epoch)
            places = random.permutation(self.n_windows) * self.block_size
            # What the shift moves past the end wraps around.
            self.starts = (places + random.integers(self.block_size)) % self.n_starts
            self.epoch = epoch
        return self.starts[place]

    def get(self, step: int, micro_step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, each (B, T) int64, of one micro-batch."""
        number = step * self.config.gradient_accumulation_steps + micro_step
        first = number * self.config.batch_size
        indices = range(first, first + self.config.batch_size)
        on_cuda = self.device.type == "cuda"  # which copies pinned memory without waiting
        starts = torch.tensor([self.window_start(i) for i in indices], pin_memory=on_cuda)
        starts = starts.to(self.device, non_blocking=on_cuda)
        pieces = self.ids[starts[:, None] + self.offsets].long()  # (B, T + 1)
        pieces &= 0xFFFF  # ids past 32767 come as negative numbers
        return pieces[:, :-1], pieces[:, 1:]
