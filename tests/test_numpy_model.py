import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from architectures import (
    ACTIVATIONS,
    NORMS,
    ODD_SHAPES,
    SMALL,
    each_choice,
    every_architecture,
    random_ids,
)
from conftest import random_gpt

from sancho import numpy_model
from sancho.numpy_model import NumpyGPT

pytestmark = pytest.mark.filterwarnings("error")  # also where a number overflows

TORCH = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "relu2": lambda x: F.relu(x).square(),
}


def numpy_of(model):
    return NumpyGPT(model.config, model.arrays())


@torch.no_grad()
def exact(model, ids):
    """The model's logits, (B, T, V), in float64. Makes the model one of float64."""
    return model.double()(torch.from_numpy(ids)).numpy()


def assert_close(actual, expected, tolerance=1e-5):
    """Compare float32 with float64.

    A number rounds by 6e-8 of itself. Sums of a few hundred terms, some of which cancel out, one
    layer after another, come to a hundred times that, and to no more where nothing is wrong.
    """
    assert actual.dtype == np.float32
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def assert_reads_as_the_model_in_float64(model, tolerance=1e-5):
    """Compare all at once, and character by character. Makes the model one of float64."""
    config, ours = model.config, numpy_of(model)
    ids = random_ids(3, config.block_size, vocab_size=config.vocab_size)
    at_once, decoder = ours.logits(ids), ours.decoder(3)
    one_by_one = [decoder.read(ids[:, t : t + 1]) for t in range(config.block_size)]
    expected = exact(model, ids)
    assert_close(at_once, expected, tolerance)
    assert_close(np.stack(one_by_one, axis=1), expected, tolerance)


# As the model in float64


@every_architecture
def test_every_architecture_is_the_model_in_float64(config):
    for bias, skip, ngram_size in itertools.product((False, True), (False, True), (1, 4)):
        changes = {"bias": bias, "embedding_skip": skip, "ngram_size": ngram_size}
        changes |= {"tie_embeddings": bias != skip, "n_head": 4 if bias else 2}
        assert_reads_as_the_model_in_float64(random_gpt(replace(config, **changes)))


@pytest.mark.parametrize("config", ODD_SHAPES)
def test_odd_shapes(config):
    assert_reads_as_the_model_in_float64(random_gpt(config))


@pytest.mark.parametrize("norm", NORMS)
def test_a_width_of_one_channel(norm):
    changes = {"position": "learned", "n_embd": 1, "n_head": 1, "bias": True}
    # A number near zero has few digits left to be divided by itself.
    assert_reads_as_the_model_in_float64(random_gpt(replace(SMALL, norm=norm, **changes)), 1e-4)


@each_choice
def test_small_numbers_are_divided_by_no_less_than_epsilon(config):
    assert_reads_as_the_model_in_float64(random_gpt(config, std=0.001))


@each_choice
def test_huge_weights_give_finite_logits(config):
    model, ids = random_gpt(config, std=30.0), random_ids(3, 8)
    with torch.no_grad():
        model.head.weight.mul_(10)
    logits = numpy_of(model).logits(ids)
    assert np.isfinite(logits).all()
    assert np.abs(logits).max() > 2000
    # Products of queries and keys of size 1e5 are right to 1e-2, and so are their exponentials.
    assert_close(logits, exact(model, ids), 1e-2)


@each_choice
def test_embeddings_far_from_zero(config):
    """LayerNorm takes away what all channels have in common, however large it is."""
    model = random_gpt(config)
    with torch.no_grad():
        model.token_embedding.weight += 20.0
        model.ngram_embedding.weight -= 7.0
        for block in model.blocks:
            block.attention.proj.bias += 5.0
            block.feed_forward.proj.weight += 0.5
    assert_reads_as_the_model_in_float64(model)


@each_choice
def test_pieces_of_any_length_are_read_alike(config):
    ids, model = random_ids(3, 8), random_gpt(config)
    decoder, expected = numpy_of(model).decoder(3), exact(model, ids)
    for sizes in ((8,), (1, 7), (2, 3, 3), (5, 3), (7, 1), (1, 1, 6), (2, 2, 1, 3)):
        ends = np.cumsum(sizes)
        pieces = np.split(ids, ends[:-1], axis=1)
        found = np.stack([decoder.read(piece) for piece in pieces], axis=1)
        assert_close(found, expected[:, ends - 1])
        decoder.restart()


@pytest.mark.parametrize("name", TORCH)
def test_activations_are_those_of_torch_in_float64(name):
    small = np.geomspace(1e-30, 1e18, 5000, dtype=np.float32)
    x = np.concatenate((-small[::-1], [-0.0, 0.0], small, np.linspace(-20, 20, 5001))).astype("f4")
    result = numpy_model.ACTIVATIONS[name](x)
    expected = TORCH[name](torch.from_numpy(x).double()).numpy()
    assert result.dtype == np.float32
    # gelu is right to 2e-7 of x, and rounds like the others.
    error = 3e-7 * np.abs(x if name == "gelu" else expected)
    assert (np.abs(result - expected) <= error + 1e-37).all()


# Texts side by side


SHAPES = (
    {"n_embd": 128, "n_head": 4, "norm": "rmsnorm", "position": "rope", "qk_norm": True},
    {"n_embd": 96, "n_head": 3, "norm": "layernorm", "position": "rope", "qk_norm": False},
    {"n_embd": 6, "n_head": 1, "norm": "rmsnorm", "position": "learned", "qk_norm": False},
    {"n_embd": 4, "n_head": 2, "norm": "layernorm", "position": "rope", "qk_norm": True},
    {"n_embd": 18, "n_head": 9, "norm": "rmsnorm", "position": "sinusoidal", "qk_norm": True},
)


CASES = [
    pytest.param(shape, activation, marks=() if i == j + 1 else pytest.mark.slow)
    for i, activation in enumerate(ACTIVATIONS)
    for j, shape in enumerate(SHAPES)
]


@pytest.mark.parametrize(("shape", "activation"), CASES)
def test_bits_of_a_text_do_not_depend_on_the_others(shape, activation):
    size = {"vocab_size": 92, "block_size": 32, "bias": True, "activation": activation}
    model = numpy_of(random_gpt(replace(SMALL, **size, **shape)))
    text = random_ids(10, 100, vocab_size=92)
    decoder, decoders = model.decoder(10), [model.decoder(1) for _ in text]
    # Each is a new context: first a piece, then a character at a time.
    for start, first, last in ((0, 28, 32), (17, 33, 36), (60, 61, 65), (70, 74, 76)):
        for each in (decoder, *decoders):
            each.restart()
        for new, end in itertools.pairwise((start, *range(first, last + 1))):
            together = decoder.read(text[:, new:end])
            alone = [one.read(text[i : i + 1, new:end]) for i, one in enumerate(decoders)]
            np.testing.assert_array_equal(together, np.concatenate(alone))


def test_too_long_a_context_is_an_error():
    decoder = numpy_of(random_gpt(SMALL)).decoder(3)
    decoder.read(random_ids(3, 7))
    with pytest.raises(ValueError, match="9"):
        decoder.read(random_ids(3, 2))
    decoder.read(random_ids(3, 1))
    with pytest.raises(ValueError, match="9"):
        decoder.read(random_ids(3, 1))


@pytest.mark.parametrize("norm", NORMS)
def test_reading_changes_neither_weights_nor_ids(norm):
    config = replace(SMALL, position="learned", norm=norm, bias=True)
    arrays, ids = random_gpt(config).arrays(), random_ids(3, 8)
    for array in (*arrays.values(), ids):
        array.setflags(write=False)
    model = NumpyGPT(config, arrays)
    first = model.logits(ids)
    assert (model.logits(ids) == first).all()
