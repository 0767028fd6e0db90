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
    assert_rounded,
    each_choice,
    each_decoder,
    equivalent,
    every_architecture,
    exact_logits,
    numpy_of,
    random_ids,
)
from conftest import random_gpt

from sancho import numpy_model
from sancho.numpy_model import NumpyGPT

pytestmark = pytest.mark.filterwarnings("error")  # also where a number overflows

TORCH = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "relu2": lambda x: F.relu(x).square()}


def assert_reads_as(model, make_decoder, tolerance=1e-5):
    """Let a decoder of three texts read as many as fit into the block."""
    shape = model.config
    ids = random_ids(3, shape.block_size, vocab_size=shape.vocab_size)
    equivalent(model, make_decoder(model, 3), ids, tolerance)


# Either decoder, as the model in float64


@each_decoder
@every_architecture
def test_every_architecture_is_the_model_in_float64(config, decoder):
    for bias, skip, ngram_size in itertools.product((False, True), (False, True), (1, 4)):
        changes = {"bias": bias, "embedding_skip": skip, "ngram_size": ngram_size}
        changes |= {"tie_embeddings": bias != skip, "n_head": 4 if bias else 2}
        assert_reads_as(random_gpt(replace(config, **changes)), decoder)


@each_decoder
@pytest.mark.parametrize("config", ODD_SHAPES)
def test_odd_shapes(config, decoder):
    # Of one channel, a number near zero has few digits left to be divided by itself.
    assert_reads_as(random_gpt(config), decoder, 1e-4 if config.n_embd == 1 else 1e-5)


@each_decoder
@each_choice
def test_small_numbers_are_divided_by_no_less_than_epsilon(config, decoder):
    assert_reads_as(random_gpt(config, std=0.001), decoder)


@each_decoder
@each_choice
def test_embeddings_far_from_zero(config, decoder):
    """LayerNorm takes away what all channels have in common, however large it is."""
    model = random_gpt(config)
    with torch.no_grad():
        model.token_embedding.weight += 20.0
        model.ngram_embedding.weight -= 7.0
        for block in model.blocks:
            block.attention.proj.bias += 5.0
            block.feed_forward.proj.weight += 0.5
    assert_reads_as(model, decoder)


@each_decoder
def test_too_long_a_context_is_an_error(decoder):
    model = random_gpt(SMALL)
    reader, texts = decoder(model, 3), random_ids(3, 9)
    for read, ids in ((model, torch.from_numpy(texts)), (reader.read, texts)):
        with pytest.raises(ValueError, match="9"):
            read(ids)
    reader.read(random_ids(3, 7))
    with pytest.raises(ValueError, match="9"):
        reader.read(random_ids(3, 2))
    reader.read(random_ids(3, 1))
    with pytest.raises(ValueError, match="9"):
        reader.read(random_ids(3, 1))


# NumPy's


@every_architecture
def test_logits_of_all_places_at_once(config):
    model, ids = random_gpt(config), random_ids(3, 8)
    assert_rounded(numpy_of(model).logits(ids), exact_logits(model, ids))


@each_choice
def test_huge_weights_give_finite_logits(config):
    model, ids = random_gpt(config, std=30.0), random_ids(3, 8)
    with torch.no_grad():
        model.head.weight.mul_(10)
    logits = numpy_of(model).logits(ids)
    assert np.isfinite(logits).all()
    assert np.abs(logits).max() > 2000
    # Products of queries and keys of size 1e5 are right to 1e-2, and so are their exponentials.
    assert_rounded(logits, exact_logits(model, ids), 1e-2)


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


@pytest.mark.parametrize("norm", NORMS)
def test_reading_changes_neither_weights_nor_ids(norm):
    config = replace(SMALL, position="learned", norm=norm, bias=True)
    arrays, ids = random_gpt(config).arrays(), random_ids(3, 8)
    for array in (*arrays.values(), ids):
        array.setflags(write=False)
    model = NumpyGPT(config, arrays)
    first = model.logits(ids)
    assert (model.logits(ids) == first).all()
    # The head reads one place instead of eight, for which BLAS may have another kernel.
    assert_rounded(model.decoder(3).read(ids), first[:, -1].astype(np.float64))
