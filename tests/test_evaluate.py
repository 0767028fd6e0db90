import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import randomise
from hypothesis import given, settings
from hypothesis import strategies as st

from sancho.config import ModelConfig
from sancho.evaluate import bits_per_character, evaluate, windows
from sancho.model import GPT

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = ModelConfig(
    vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=16, embedding_skip=True
)


def random_gpt(config=SMALL):
    """A model in training mode, as a run hands it to evaluate()."""
    return randomise(GPT(config))


def random_ids(length, dtype=np.uint8, seed=1):
    return np.random.default_rng(seed).integers(11, size=length).astype(dtype)


@torch.no_grad()
def loss_by_hand(model, ids):
    """The mean of −ln p of every character but the first, window by window, in float64."""
    block_size, total = model.config.block_size, 0.0
    for start in range(0, len(ids) - 1, block_size):
        window = [int(i) for i in ids[start : start + block_size + 1]]
        logits = model(torch.tensor([window[:-1]]))[0].double()
        for row, target in zip(logits, window[1:], strict=True):
            total += (row.exp().sum().log() - row[target]).item()
    return total / (len(ids) - 1)


@settings(deadline=None, max_examples=200)
@given(
    length=st.integers(0, 70),
    block_size=st.integers(1, 12),
    batch_size=st.integers(1, 5),
    dtype=st.sampled_from([np.uint8, np.uint16, np.int64]),
)
def test_windows_cover_each_target_once_in_order(length, block_size, batch_size, dtype):
    ids = np.arange(length, dtype=dtype)
    all_inputs, all_targets, lengths = [], [], []
    for inputs, targets in windows(ids, block_size, batch_size):
        assert inputs.dtype == targets.dtype == torch.int64
        assert inputs.shape == targets.shape
        assert 1 <= inputs.shape[0] <= batch_size
        all_inputs += inputs.flatten().tolist()
        all_targets += targets.flatten().tolist()
        lengths += [inputs.shape[1]] * inputs.shape[0]
    assert all_inputs == list(range(length - 1))
    assert all_targets == list(range(1, length))
    assert all(window == block_size for window in lengths[:-1])
    assert all(1 <= window <= block_size for window in lengths[-1:])


def test_windows_fill_their_batches():
    shapes = [tuple(inputs.shape) for inputs, _ in windows(np.arange(46), 4, 3)]
    assert shapes == [(3, 4), (3, 4), (3, 4), (2, 4), (1, 1)]


def test_windows_of_ids_past_the_signed_range():
    ids = np.array([65535, 40000, 3], dtype=np.uint16)
    ((inputs, targets),) = windows(ids, 8, 1)
    assert (inputs.tolist(), targets.tolist()) == ([[65535, 40000]], [[40000, 3]])


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rope"])
@pytest.mark.parametrize("length", [2, 3, 8, 9, 10, 17, 83])
@pytest.mark.parametrize("ngram_size", [1, 3])
def test_evaluate_equals_the_loss_by_hand(ngram_size, length, position):
    model = random_gpt(replace(SMALL, position=position, ngram_size=ngram_size, ngram_rows=61))
    ids = random_ids(length)
    expected = loss_by_hand(model, ids)
    assert evaluate(model, ids) == pytest.approx(expected, abs=1e-6)
    assert abs(expected - math.log(11)) > 1e-3


def test_evaluate_does_not_depend_on_batch_size():
    model, ids = random_gpt(), random_ids(203)
    losses = [evaluate(model, ids, batch_size) for batch_size in (1, 2, 7, 25, 64, 1000)]
    assert losses == pytest.approx([losses[0]] * 6, abs=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64])
def test_evaluate_takes_any_type_of_ids(dtype):
    model = random_gpt()
    assert evaluate(model, random_ids(40, dtype)) == evaluate(model, random_ids(40))


def test_evaluate_takes_ids_from_a_file(tmp_path):
    ids = random_ids(40)
    ids.tofile(tmp_path / "val.bin")
    mapped = np.memmap(tmp_path / "val.bin", dtype=np.uint8, mode="r")
    assert evaluate(random_gpt(), mapped) == evaluate(random_gpt(), ids)


@pytest.mark.parametrize("training", [False, True])
def test_evaluate_leaves_the_mode_as_it_was(training):
    model = random_gpt().train(training)
    evaluate(model, random_ids(40))
    assert all(module.training == training for module in model.modules())


def test_evaluate_leaves_the_mode_as_it_was_after_an_error():
    model = random_gpt().train()
    with pytest.raises(IndexError):
        evaluate(model, np.array([1, 200, 3], dtype=np.uint8))
    assert all(module.training for module in model.modules())


def test_evaluate_draws_no_random_number():
    model = random_gpt(replace(SMALL, dropout=0.5)).train()
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    evaluate(model, random_ids(40))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()


def test_evaluate_leaves_gradients_and_weights_alone():
    model = random_gpt().train()
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    evaluate(model, random_ids(40))
    for name, p in model.named_parameters():
        assert p.grad is None
        assert torch.equal(p, weights[name])
    model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()


def test_evaluate_is_without_dropout():
    model = random_gpt(replace(SMALL, dropout=0.5)).train()
    ids = random_ids(60)
    plain = evaluate(random_gpt(), ids)
    assert evaluate(model, ids) == plain
    assert evaluate(model.eval(), ids) == plain
    model.train()
    assert loss_by_hand(model, ids) != pytest.approx(plain, abs=1e-3)


@pytest.mark.parametrize("length", [2, 9, 100])
def test_uniform_model_has_the_loss_of_a_guess(length):
    assert evaluate(GPT(SMALL), random_ids(length)) == pytest.approx(math.log(11), abs=1e-6)


@pytest.mark.parametrize("length", [0, 1])
def test_too_few_ids_are_an_error(length):
    with pytest.raises(ValueError, match="at least two"):
        evaluate(GPT(SMALL), random_ids(length))


def test_block_of_one_character():
    model = random_gpt(replace(SMALL, block_size=1))
    ids = random_ids(20)
    assert evaluate(model, ids) == pytest.approx(loss_by_hand(model, ids), abs=1e-6)


@pytest.mark.parametrize(
    ("nats", "bits"), [(0.0, 0.0), (math.log(2), 1.0), (math.log(256), 8.0), (1.0, 1.442695041)]
)
def test_bits_per_character(nats, bits):
    assert bits_per_character(nats) == pytest.approx(bits, abs=1e-9)
