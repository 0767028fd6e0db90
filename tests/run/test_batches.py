import numpy as np
import pytest
import torch
from conftest import CPU
from runs import (
    train_config,
)

from sancho.run.batches import Batches


def batches_of(ids: np.ndarray, **options) -> Batches:
    return Batches(ids, 8, train_config(**options), CPU.torch_device)


@pytest.mark.parametrize(
    ("length", "first", "dtype"), [(9, 0, np.uint8), (10, 0, "<u2"), (12, 65524, "<u2")]
)
def test_every_start_within_range_is_drawn(length, first, dtype):
    batches = batches_of(np.arange(first, first + length).astype(dtype), batch_size=64)
    starts = set()
    for step in range(4):
        inputs, targets = batches.get(step, 0)
        assert inputs.dtype == targets.dtype == torch.int64
        assert torch.equal(inputs + 1, targets)
        assert torch.equal(inputs - inputs[:, :1], torch.arange(8).expand(64, 8))
        starts |= set(inputs[:, 0].tolist())
    assert starts == set(range(first, first + length - 8))


@pytest.mark.parametrize("length", [8 * 37 + 1, 8 * 38])
def test_an_epoch_reads_each_window_once_and_the_next_cuts_elsewhere(length):
    batches = batches_of(np.arange(length, dtype="<u2"), batch_size=37)
    epochs = []
    for epoch in range(20):
        starts = batches.get(epoch, 0)[0][:, 0]
        in_order = starts.sort().values
        assert in_order.unique().numel() == 37
        # Neighbours, but for one that was moved past the end and so to the beginning.
        assert (in_order.diff() == 8).sum() >= 35
        epochs.append((in_order[-1].item() % 8, tuple(starts.tolist())))
    assert len({cut for cut, _ in epochs}) >= 5
    assert len({order for _, order in epochs}) == 20


def test_a_batch_depends_on_seed_step_and_micro_step_alone():
    ids = np.arange(250, dtype=np.uint8)
    one, same, other = (
        batches_of(ids, seed=seed, gradient_accumulation_steps=3) for seed in (1, 1, 2)
    )
    asked = [(step, micro) for step in range(6) for micro in range(3)]
    found = {place: one.get(*place)[0] for place in asked}
    torch.manual_seed(9)
    for place in reversed(asked):
        assert torch.equal(same.get(*place)[0], found[place])
        assert not torch.equal(other.get(*place)[0], found[place])
    assert len({tuple(batch.flatten().tolist()) for batch in found.values()}) == len(asked)
