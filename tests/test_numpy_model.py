import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from architectures import (
    ODD_SHAPES,
    SMALL,
    assert_close,
    each_choice,
    every_architecture,
    exact_logits,
    random_ids,
)
from conftest import random_gpt

from sancho import numpy_model
from sancho.model import GPT
from sancho.numpy_model import NumpyGPT

pytestmark = pytest.mark.filterwarnings("error")  # also where a number overflows


def numpy_of(model: GPT) -> NumpyGPT:
    """Return the same model in NumPy, of weights that can't be written to."""
    arrays = model.arrays()
    for array in arrays.values():
        array.setflags(write=False)
    return NumpyGPT(model.config, arrays)


def assert_rounded(actual: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    """Compare float32 with float64.

    A number rounds by 6e-8 of itself. Sums of a few hundred terms, some of which cancel out, one
    layer after another, come to a hundred times that, and to no more where nothing is wrong.
    """
    assert (actual.dtype, actual.shape) == (np.float32, expected.shape)
    assert_close(actual, expected, atol=tolerance * np.abs(expected).max())


def assert_is_read_exactly(model: GPT, tolerance: float = 1e-5) -> None:
    """Assert that NumPy's decoder reads three texts as the model does in float64.

    Character by character, at once, and in pieces, one text after another; and all places at once.
    """
    length = model.config.block_size
    ids = random_ids(3, length, vocab_size=model.config.vocab_size)
    expected = exact_logits(model, ids)
    ids.setflags(write=False)
    decoder = numpy_of(model).decoder(3)
    for cuts in (range(1, length), (), (1,), (length - 1,), (2, 5), (3, 4, 7)):
        ends = [cut for cut in cuts if 0 < cut < length]
        decoder.restart()
        found = [decoder.read(piece) for piece in np.split(ids, ends, axis=1)]
        lasts = [end - 1 for end in (*ends, length)]
        assert_rounded(np.stack(found, axis=1), expected[:, lasts], tolerance)
    assert_rounded(numpy_of(model).logits(ids), expected, tolerance)


# The model in float64


@every_architecture
def test_every_architecture(config):
    for bias, skip, ngram_size in itertools.product((False, True), (False, True), (1, 4)):
        changes = {"bias": bias, "embedding_skip": skip, "ngram_size": ngram_size}
        changes |= {"tie_embeddings": bias != skip, "n_head": 4 if bias else 2}
        assert_is_read_exactly(random_gpt(replace(config, **changes)))


@pytest.mark.parametrize("config", ODD_SHAPES)
def test_odd_shapes(config):
    # Of one channel, a number near zero has few digits left to be divided by itself.
    assert_is_read_exactly(random_gpt(config), 1e-4 if config.n_embd == 1 else 1e-5)


@each_choice
def test_small_numbers_and_embeddings_far_from_zero(config):
    """The ones are divided by no less than ε; LayerNorm takes away what all channels have."""
    assert_is_read_exactly(random_gpt(config, std=0.001))
    model = random_gpt(config)
    with torch.no_grad():
        model.token_embedding.weight += 20.0
        model.ngram_embedding.weight -= 7.0
        for block in model.blocks:
            block.attention.proj.bias += 5.0
            block.feed_forward.proj.weight += 0.5
    assert_is_read_exactly(model)


@each_choice
def test_huge_weights_give_finite_logits(config):
    model = random_gpt(config, std=30.0)
    ids = random_ids(3, 8)
    with torch.no_grad():
        model.head.weight.mul_(10)
    logits = numpy_of(model).logits(ids)
    assert np.isfinite(logits).all()
    assert np.abs(logits).max() > 2000
    # Products of queries and keys of size 1e5 are right to 1e-2, and so are their exponentials.
    assert_rounded(logits, exact_logits(model, ids), 1e-2)


TORCH = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "relu2": lambda x: F.relu(x).square()}


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


@pytest.mark.parametrize(
    "shape",
    [
        {"n_embd": 128, "n_head": 4, "activation": "relu2"},
        {"n_embd": 96, "n_head": 3, "norm": "layernorm", "qk_norm": False, "activation": "swiglu"},
        {"n_embd": 6, "n_head": 1, "position": "learned", "qk_norm": False, "activation": "gelu"},
        {"n_embd": 4, "n_head": 2, "norm": "layernorm", "activation": "geglu"},
        {"n_embd": 18, "n_head": 9, "position": "sinusoidal", "activation": "silu"},
    ],
)
def test_bits_of_a_text_do_not_depend_on_the_others(shape):
    """The products of one text have the same shapes, however many texts there are."""
    model = numpy_of(random_gpt(replace(SMALL, vocab_size=92, block_size=32, bias=True, **shape)))
    text = random_ids(10, 100, vocab_size=92)
    decoder = model.decoder(10)
    decoders = [model.decoder(1) for _ in text]
    # Each is a new context: first a piece, then a character at a time.
    for start, first, last in ((0, 28, 32), (17, 33, 36), (60, 61, 65), (70, 74, 76)):
        for each in (decoder, *decoders):
            each.restart()
        for new, end in itertools.pairwise((start, *range(first, last + 1))):
            together = decoder.read(text[:, new:end])
            alone = [one.read(text[i : i + 1, new:end]) for i, one in enumerate(decoders)]
            np.testing.assert_array_equal(together, np.concatenate(alone))


def test_too_long_a_context_is_an_error():
    model = random_gpt(SMALL)
    decoder = NumpyGPT(SMALL, model.arrays()).decoder(3)
    for read, ids in (
        (model, torch.from_numpy(random_ids(3, 9))),
        (decoder.read, random_ids(3, 9)),
    ):
        with pytest.raises(ValueError, match="9 characters do not fit block_size"):
            read(ids)
    decoder.read(random_ids(3, 8))
    with pytest.raises(ValueError, match="9 characters do not fit block_size"):
        decoder.read(random_ids(3, 1))
