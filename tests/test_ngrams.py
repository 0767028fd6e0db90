import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import random_gpt
from torch import nn

from sancho.config import ModelConfig
from sancho.model import GPT
from sancho.ngrams import NgramEmbedding
from sancho.plain import PlainGPT

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = ModelConfig(
    vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=16, embedding_skip=True
)
NGRAMS = replace(SMALL, ngram_size=4, ngram_rows=61)


def random_ids(*shape, vocab_size=11, seed=1):
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def behind_nothing(ids, size):
    """Put before each text the −1 that stand before its first character."""
    return nn.functional.pad(ids, (size - 1, 0), value=-1)


def rows_of(ids, size, rows):
    """The table rows at each position of texts (B, T)."""
    layer = NgramEmbedding(replace(NGRAMS, ngram_size=size, ngram_rows=1))
    layer.num_embeddings = rows  # a real table of 2^31 rows would take all memory
    return layer.rows(behind_nothing(ids, size))


# Which rows


def sequences(ids, size):
    """What the last 2, 3, … `size` ids are at each position; None before the first."""
    padded = [None] * size + ids.tolist()
    return [
        [tuple(padded[t + size - n + 1 : t + size + 1]) for n in range(2, size + 1)]
        for t in range(len(ids))
    ]


def test_row_is_decided_by_the_last_ids():
    size, rows = 4, 2**31 - 1
    row_of = {}
    for ids in random_ids(30, 20, vocab_size=4):
        found = rows_of(ids[None], size, rows)[0]
        assert found.shape == (20, size - 1)
        for keys, values in zip(sequences(ids, size), found.tolist(), strict=True):
            for key, value in zip(keys, values, strict=True):
                assert row_of.setdefault(key, value) == value
    assert len(row_of) > 300
    assert len(set(row_of.values())) == len(row_of), "different sequences, different rows"


def row_by_hand(newest_first, rows):
    """Return the table row of a sequence in whole numbers without end, cut to 64 bits."""
    values = [1 if i is None else i + 2 for i in newest_first]
    key = sum(value * 0x9E3779B1**age for age, value in enumerate(values))
    key = (key + 2**63) % 2**64 - 2**63
    return ((key ^ (key >> 17)) * 0x85EBCA6B) % 2**31 % rows


@pytest.mark.parametrize("vocab_size", [3, 65536])
@pytest.mark.parametrize(("size", "rows"), [(2, 61), (5, 65536), (16, 2**31 - 1)])
def test_rows_equal_the_formula_by_hand(size, rows, vocab_size):
    # The weights of a checkpoint belong to these rows: another formula would be another model.
    ids = random_ids(20, vocab_size=vocab_size)
    found = rows_of(ids[None], size, rows)[0].tolist()
    for row, keys in zip(found, sequences(ids, size), strict=True):
        assert row == [row_by_hand(key[::-1], rows) for key in keys]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_type_of_the_weights_is_not_that_of_the_rows(dtype):
    layer, text = NgramEmbedding(NGRAMS), behind_nothing(random_ids(2, 20, vocab_size=65536), 4)
    expected = layer.rows(text)
    assert torch.equal(layer.to(dtype).rows(text), expected)
    assert layer(text).dtype == dtype


@pytest.mark.parametrize("size", [2, 4, 16])
@pytest.mark.parametrize("rows", [1, 2, 61, 65536, 2**31 - 1])
@pytest.mark.parametrize("vocab_size", [1, 92, 65536])
def test_rows_lie_in_the_table(size, rows, vocab_size):
    found = rows_of(random_ids(5, 40, vocab_size=vocab_size), size, rows)
    assert found.shape == (5, 40, size - 1)
    assert ((found >= 0) & (found < rows)).all()


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("rows", [1021, 1024])
def test_sequences_are_spread_over_the_rows(size, rows):
    random = torch.Generator().manual_seed(size)
    ids = torch.randint(92, (8000, size), generator=random).unique(dim=0)
    counts = torch.bincount(rows_of(ids, size, rows)[:, -1, -1], minlength=rows).double()
    expected = len(ids) / rows
    statistic = ((counts - expected) ** 2 / expected).sum().item()
    assert statistic < rows + 6 * math.sqrt(2 * rows)  # chi-square: mean rows, variance 2 rows


@pytest.mark.parametrize("vocab_size", [3, 65536])
@pytest.mark.parametrize(("size", "rows"), [(2, 61), (5, 65536), (16, 10007)])
def test_numpy_takes_the_same_rows(size, rows, vocab_size):
    changes = {"vocab_size": vocab_size, "ngram_size": size, "ngram_rows": rows}
    model = random_gpt(replace(NGRAMS, block_size=20, n_embd=4, **changes))
    ids = random_ids(1, 20, vocab_size=vocab_size)
    logits = PlainGPT(model.config, model.arrays()).logits(ids.numpy())
    with torch.no_grad():
        expected = model.double()(ids).numpy()
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
        text = behind_nothing(ids, size)
        model.ngram_embedding.weight[model.ngram_embedding.rows(text)[0, -1, 0]] += 0.1
        assert (model(ids).numpy() - expected)[0, -1].std() > 1e-3, "each row counts"


# What is found there


def test_the_layer_adds_up_its_rows():
    model, ids = random_gpt(NGRAMS), random_ids(2, 8)
    text = behind_nothing(ids, 4)
    found = model.ngram_embedding(text)
    assert found.shape == (2, 8, 16)
    for b in range(2):
        for t, keys in enumerate(sequences(ids[b], 4)):
            rows = [model.ngram_embedding.weight[row_by_hand(key[::-1], 61)] for key in keys]
            torch.testing.assert_close(found[b, t], sum(rows))


def test_ngram_model_adds_the_rows_of_its_table():
    model, other = random_gpt(NGRAMS), random_gpt(SMALL)
    state = model.state_dict()
    table = state.pop("ngram_embedding.weight")
    other.load_state_dict(state)
    ids = random_ids(2, 8)
    added = torch.stack([table[rows_of(row[None], 4, 61)[0]].sum(1) for row in ids])  # (B, T, C)
    other.token_embedding.register_forward_hook(lambda module, inputs, output: output + added)
    torch.testing.assert_close(model(ids), other(ids))
    assert (added.abs().amax(-1) > 0).all()


def test_new_ngram_table_adds_nothing():
    assert (GPT(NGRAMS).ngram_embedding.weight == 0).all()
    assert not hasattr(GPT(SMALL), "ngram_embedding")


def test_nothing_but_the_table_is_saved():
    assert list(NgramEmbedding(NGRAMS).state_dict()) == ["weight"]


def test_ngram_table_sees_no_more_than_its_size():
    model = random_gpt(replace(NGRAMS, n_layer=1))
    torch.nn.init.zeros_(model.blocks[0].attention.proj.weight)  # no other way to the past
    first, second = random_ids(2, 8)
    second[-4:] = first[-4:]
    with torch.no_grad():
        ours, theirs = model(torch.stack((first, second)))
    torch.testing.assert_close(ours[-1], theirs[-1])
    second[-4] = (first[-4] + 1) % 11
    with torch.no_grad():
        ours, theirs = model(torch.stack((first, second)))
    assert (ours[-1] - theirs[-1]).abs().max() > 1e-3


def test_ngram_dropout_drops_whole_vectors_of_the_table():
    """What enters the blocks is the letter and each vector, doubled or not at all."""
    config = replace(SMALL, ngram_size=3, ngram_dropout=0.5, position="learned")
    model = random_gpt(config).train()
    for p in (model.token_embedding.weight, model.position_embedding.weight):
        torch.nn.init.zeros_(p)
    entered = []
    model.blocks[0].register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    ids = random_ids(1, 8)
    table = model.ngram_embedding
    found = table.weight[table.rows(behind_nothing(ids, 3))[0]]  # (T, 2, C)
    kept = torch.zeros(2, 2)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(50):
            model(ids)
            for x, (pair, triple) in zip(entered.pop()[0], found, strict=True):
                sums = {(a, b): 2 * (a * pair + b * triple) for a in (0, 1) for b in (0, 1)}
                (match,) = [key for key, total in sums.items() if torch.allclose(x, total)]
                kept[match] += 1
    assert (kept > 50).all(), "each of the four cases is one in four of 400"
    model.eval()(ids)
    torch.testing.assert_close(entered.pop()[0], found.sum(1))


def test_gradients_are_sparse_and_those_of_the_rows_taken():
    layer, text = random_gpt(NGRAMS).ngram_embedding, behind_nothing(random_ids(2, 8), 4)
    layer(text).sum().backward()
    assert layer.weight.grad.is_sparse
    counts = torch.bincount(layer.rows(text).flatten(), minlength=61)
    expected = counts[:, None].expand(61, 16).float()
    torch.testing.assert_close(layer.weight.grad.to_dense(), expected)
