import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import SMALL, assert_close, random_ids
from conftest import randomise

from sancho.config import TrainConfig
from sancho.loss import Objective, character_losses, cross_entropy, validation_loss, windows
from sancho.model import GPT

# The objective and its prediction heads


def objective(look_ahead: int, logit_scale: float) -> Objective:
    config = TrainConfig(look_ahead=look_ahead, logit_scale=logit_scale)
    return randomise(Objective(GPT(SMALL), config))


def loss_by_hand(objective: Objective, text: torch.Tensor, weight: float) -> float:
    """Add −log p of every character that every head should name, one after another, in float64."""
    vectors = objective.model.features(text[:, :-1]).double()
    B, T, _ = vectors.shape
    weights = (1.0, 0.3 * weight, 0.15 * weight, 0.075 * weight)
    scales = (objective.logit_scale, 1, 1, 1)
    total = 0.0
    for j, head in enumerate([objective.model.head.weight, *objective.prediction_heads]):
        surprises = []
        for b, t in itertools.product(range(B), range(T - j)):
            logits = scales[j] * head.double() @ vectors[b, t]
            surprises.append(logits.logsumexp(0) - logits[text[b, t + 1 + j]])
        if surprises:
            total += weights[j] * float(sum(surprises)) / len(surprises)
    return total


@pytest.mark.parametrize("length", [1, 2, 8])
@pytest.mark.parametrize("look_ahead", [0, 1, 3])
@torch.no_grad()
def test_head_j_names_the_character_j_places_after_the_next(look_ahead, length):
    heads = objective(look_ahead, 2.0)
    text = torch.from_numpy(random_ids(2, length + 1))
    told, minimised = heads(text[:, :-1], text[:, 1:], torch.tensor(0.5))
    assert minimised.item() == pytest.approx(loss_by_hand(heads, text, 0.5), abs=1e-5)
    assert told.item() == pytest.approx(loss_by_hand(heads, text, 0.0), abs=1e-5)
    assert heads(text[:, :-1], text[:, 1:], None) == (told, told)


def test_the_weight_of_the_heads_falls_from_one_to_nothing_at_seven_tenths():
    weights = [objective(2, 1.0).look_ahead_weight(step, 10) for step in range(10)]
    assert [w.item() for w in weights[:7]] == pytest.approx([1 - step / 7 for step in range(7)])
    assert weights[7:] == [None] * 3
    assert objective(0, 1.0).look_ahead_weight(0, 10) is None


@torch.no_grad()
def test_the_scale_is_applied_in_float32():
    """To multiply in bfloat16 would round the logits once more."""
    scaled = objective(0, 1.13)
    text = torch.from_numpy(random_ids(2, 9))
    with torch.autocast("cpu", torch.bfloat16):
        logits = scaled.model(text[:, :-1])
        told, _ = scaled(text[:, :-1], text[:, 1:], None)
    assert logits.dtype == torch.bfloat16
    assert torch.equal(told, cross_entropy(1.13 * logits.float(), text[:, 1:]))


# The loss of a text


@torch.no_grad()
def losses_by_hand(model: GPT, ids: np.ndarray) -> np.ndarray:
    """−log p of every character but the first, window by window, in float64."""
    block_size = model.config.block_size
    losses = []
    for begin in range(0, len(ids) - 1, block_size):
        window = [int(i) for i in ids[begin : begin + block_size + 1]]
        logits = model(torch.tensor([window[:-1]]))[0].double()
        for row, target in zip(logits, window[1:], strict=True):
            losses.append((row.exp().sum().log() - row[target]).item())
    return np.array(losses)


@pytest.mark.parametrize(
    ("block_size", "length"), [(1, 2), (1, 20), (8, 2), (8, 8), (8, 9), (8, 10), (8, 60)]
)
def test_losses_in_windows_are_those_by_hand(block_size, length):
    model = randomise(GPT(replace(SMALL, block_size=block_size)))
    ids = random_ids(length)
    expected = losses_by_hand(model, ids)
    assert abs(expected.mean() - math.log(11)) > 1e-3
    for batch_size, threads, dtype in ((1, 1, "u1"), (2, 3, "<u2"), (7, 2, "i8"), (1000, 0, "u1")):
        ids = ids.astype(dtype)
        sizes = [len(inputs) for inputs, _ in windows(ids, block_size, batch_size)]
        assert sizes[0] == min(batch_size, max((length - 1) // block_size, 1))
        assert max(sizes) <= batch_size
        assert_close(character_losses(model, ids, batch_size, threads), expected, atol=1e-5)
        assert validation_loss(model, ids) == pytest.approx(expected.mean(), abs=1e-6)


def test_of_a_long_text_whole_windows_all_over_it_are_read():
    ids = np.arange(200)
    found = [*windows(ids, 8, 3, 100)]
    assert [len(inputs) for inputs, _ in found] == [3, 3, 3, 3]
    inputs = torch.cat([inputs for inputs, _ in found])
    assert inputs.tolist() == [list(range(start, start + 8)) for start in range(0, 192, 16)]
    assert torch.equal(torch.cat([targets for _, targets in found]), inputs + 1)
    assert sum(inputs.numel() for inputs, _ in windows(ids, 8, 3, 199)) == 199, "it is not longer"


def test_cross_entropy_is_in_float32():
    logits = torch.zeros(1, 2, 3, dtype=torch.bfloat16)
    assert cross_entropy(logits, torch.zeros(1, 2, dtype=torch.long)).dtype == torch.float32
