from dataclasses import replace

import numpy as np
import pytest
import torch

from sancho.config import ModelConfig
from sancho.decode import Decoder
from sancho.model import GPT, KVCache

pytestmark = pytest.mark.filterwarnings("error")  # also where a number overflows

NORMS = ("layernorm", "rmsnorm")
POSITIONS = ("learned", "sinusoidal", "rope")
ACTIVATIONS = ("relu", "gelu", "silu", "relu2", "geglu", "swiglu")
SMALL = ModelConfig(
    vocab_size=11, block_size=6, n_layer=2, n_head=2, n_embd=16, ngram_size=4, ngram_rows=61
)


def random_gpt(std=0.3, **changes):
    model = GPT(replace(SMALL, **changes))
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, std, generator=random)
    return model.eval()


def random_ids(*shape, vocab_size=11, seed=1):
    return np.random.default_rng(seed).integers(vocab_size, size=shape)


def read(model, ids, cache):
    """The Decoder's logits, (B, T, V), after each of ids (B, T)."""
    decoder = Decoder(model, cache)
    logits = np.stack([decoder.read(column[:, None]) for column in ids.T], axis=1)
    assert logits.dtype == np.float32
    return logits


@torch.no_grad()
def forward(model, ids, cache=None):
    return model(torch.from_numpy(ids), cache).numpy()


def assert_close(actual, expected, tolerance=1e-5):
    """Compare float32 with float64.

    A number rounds by 6e-8 of itself. Sums of a few hundred terms, some of which cancel out, one
    layer after another, come to a hundred times that, and to no more where nothing is wrong.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def assert_reads_as_the_model_in_float64(model, batch_size):
    """Compare logits and what is left in the cache. Makes the model one of float64."""
    config = model.config
    ids = random_ids(batch_size, config.block_size, vocab_size=config.vocab_size)
    cache = KVCache(config, batch_size)
    exact = KVCache(config, batch_size, dtype=torch.float64)
    logits = read(model, ids, cache)
    assert_close(logits, forward(model.double(), ids, exact))
    assert_close(cache.values, exact.values)
    # A head's key that is short gets a long way off when it is normalised.
    assert_close(cache.keys, exact.keys, 1e-4 if config.qk_norm else 1e-5)
    assert cache.length == exact.length == config.block_size
    assert (cache.ids.numpy()[:, config.ngram_size - 1 :] == ids).all()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("norm", NORMS)
def test_decoder_equals_the_model_in_float64(norm, position, activation, qk_norm, bias):
    for ngram_size, n_head, batch_size, tie in (
        (1, 4, 3, False),
        (2, 1, 1, True),
        (4, 2, 3, False),
    ):
        model = random_gpt(
            norm=norm,
            position=position,
            activation=activation,
            qk_norm=qk_norm,
            bias=bias,
            ngram_size=ngram_size,
            n_head=n_head,
            tie_embeddings=tie,
            embedding_skip=not tie,
        )
        assert_reads_as_the_model_in_float64(model, batch_size)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize(
    "changes",
    [
        {"block_size": 1},
        {"block_size": 2},
        {"n_layer": 1},
        {"n_head": 8},
        {"vocab_size": 1},
        {"n_embd": 2, "n_head": 1, "activation": "swiglu"},
        {"ngram_size": 16, "ngram_rows": 1},
        {"ngram_size": 2, "ngram_rows": 2**16, "n_embd": 2, "n_head": 1},
        {"n_layer": 4, "n_head": 3, "n_embd": 96, "block_size": 40, "vocab_size": 92},
    ],
    ids=str,
)
def test_odd_and_larger_shapes(changes, position):
    for batch_size in (1, 3):
        model = random_gpt(position=position, **changes)
        assert_reads_as_the_model_in_float64(model, batch_size)


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_heads_of_one_channel(qk_norm, position):
    n_embd = 2 if position == "sinusoidal" else 3
    model = random_gpt(position=position, n_embd=n_embd, n_head=n_embd, qk_norm=qk_norm)
    assert_reads_as_the_model_in_float64(model, batch_size=3)


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_small_numbers_are_divided_by_no_less_than_epsilon(norm, qk_norm):
    model = random_gpt(std=0.001, norm=norm, qk_norm=qk_norm, bias=True)
    assert_reads_as_the_model_in_float64(model, batch_size=3)


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", NORMS)
def test_huge_weights_give_finite_logits(norm, activation, qk_norm):
    model = random_gpt(std=30.0, norm=norm, activation=activation, qk_norm=qk_norm, bias=True)
    with torch.no_grad():
        model.head.weight.mul_(10)
    ids = random_ids(3, 6)
    logits = read(model, ids, KVCache(model.config, batch_size=3))
    assert np.isfinite(logits).all()
    assert np.abs(logits).max() > 2000
    # Products of queries and keys of size 1e5 are right to 1e-2, and so are their exponentials.
    assert_close(logits, forward(model.double(), ids), 1e-2)


@pytest.mark.parametrize("ngram_size", [1, 2, 4])
@pytest.mark.parametrize("position", POSITIONS)
def test_decoder_and_model_take_turns_at_one_cache(position, ngram_size):
    ids = random_ids(3, 6)
    for sizes in ((1, 1, 4), (3, 3), (5, 1), (0, 1, 5), (0, 4, 2), (2, 2, 1, 1)):
        model = random_gpt(position=position, ngram_size=ngram_size)
        cache, logits = KVCache(model.config, batch_size=3), []
        for turn, piece in enumerate(np.split(ids, np.cumsum(sizes)[:-1], axis=1)):
            if piece.size:
                reads = read if turn % 2 else forward
                logits.append(reads(model, piece, cache))
        exact = KVCache(model.config, batch_size=3, dtype=torch.float64)
        assert_close(np.concatenate(logits, axis=1), forward(model.double(), ids, exact))
        assert_close(cache.values, exact.values)
        assert_close(cache.keys, exact.keys, 1e-4)
        assert cache.length == 6


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("position", POSITIONS)
def test_pieces_of_any_length_are_read_alike(position, qk_norm):
    ids = random_ids(3, 6)
    for sizes in ((6,), (1, 5), (2, 3, 1), (3, 2, 1), (4, 2), (5, 1)):
        model = random_gpt(position=position, qk_norm=qk_norm, activation="swiglu")
        cache = KVCache(model.config, batch_size=3)
        decoder = Decoder(model, cache)
        exact = KVCache(model.config, batch_size=3, dtype=torch.float64)
        pieces = np.split(ids, np.cumsum(sizes)[:-1], axis=1)
        logits = [decoder.read(piece) for piece in pieces]
        expected = forward(model.double(), ids, exact)[:, np.cumsum(sizes) - 1]
        assert_close(np.stack(logits, axis=1), expected)
        assert_close(cache.values, exact.values)
        assert_close(cache.keys, exact.keys, 1e-4)
        assert cache.length == 6


def test_a_cache_made_empty_is_as_good_as_new():
    model, first, second = random_gpt(), random_ids(3, 6), random_ids(3, 6, seed=2)
    cache = KVCache(model.config, batch_size=3)
    decoder = Decoder(model, cache)
    for column in first.T:
        decoder.read(column[:, None])
    cache.length = 0
    logits = np.stack([decoder.read(column[:, None]) for column in second.T], axis=1)
    assert (logits == read(model, second, KVCache(model.config, batch_size=3))).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("position", POSITIONS)
def test_reading_changes_neither_weights_nor_ids(position, norm):
    model, ids = random_gpt(position=position, norm=norm, bias=True), random_ids(3, 6)
    tensors = [*model.parameters(), *model.buffers()]
    before = [tensor.detach().clone() for tensor in tensors]
    read(model, ids, KVCache(model.config, batch_size=3))
    assert all(torch.equal(*pair) for pair in zip(tensors, before, strict=True))
    assert (ids == random_ids(3, 6)).all()
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_nothing_is_dropped_in_training_mode():
    model, ids = random_gpt(dropout=0.5), random_ids(3, 6)
    expected = read(model, ids, KVCache(model.config, batch_size=3))
    assert (read(model.train(), ids, KVCache(model.config, batch_size=3)) == expected).all()
    assert all(module.training for module in model.modules())
