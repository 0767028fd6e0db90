from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import behind_nothing, random_ids
from conftest import random_gpt

from sancho import ngrams
from sancho.config import ModelConfig
from sancho.ngrams import NO_KEY, NOTHING, signed_powers


def rows_of(ids, size, rows):
    """The table's rows at each place of texts (B, T): (B, T, size − 1), by NumPy and PyTorch."""
    text = np.pad(ids, ((0, 0), (size - 1, 0)), constant_values=NOTHING)
    newest_first = np.lib.stride_tricks.sliding_window_view(text, size, axis=1)[..., ::-1].copy()
    powers = np.array(signed_powers(size))
    found = ngrams.rows(newest_first, powers, None, rows, np)
    in_torch = map(torch.from_numpy, (newest_first, powers))
    in_torch = ngrams.rows(*in_torch, None, rows, torch)
    assert np.array_equal(found, in_torch)
    return found


def key_by_hand(ngram, bits=32):
    """Return the key of an n-gram, oldest id first: whole numbers without end, cut to `bits`."""
    key = sum((i + 2) * 0x9E3779B1**age for age, i in enumerate(reversed(ngram)))
    return (key + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def row_by_hand(ngram, rows):
    key = key_by_hand(ngram, 64)
    return ((key ^ (key >> 17)) * 0x85EBCA6B) % 2**31 % rows


@pytest.mark.parametrize("vocab_size", [3, 65536])
@pytest.mark.parametrize(("size", "rows"), [(2, 61), (5, 65536), (16, 2**31 - 1), (4, 1)])
def test_rows_equal_the_formula_by_hand(size, rows, vocab_size):
    # The weights of a checkpoint belong to these rows: another formula would be another model.
    texts = random_ids(3, 20, vocab_size=vocab_size)
    for ids, found in zip(texts.tolist(), rows_of(texts, size, rows).tolist(), strict=True):
        for t, of_each_size in enumerate(found):
            read = [NOTHING] * size + ids[: t + 1]
            by_hand = [row_by_hand(read[-n:], rows) for n in range(2, size + 1)]
            assert of_each_size == by_hand


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("size", [2, 4, 16])
@pytest.mark.parametrize("n_rows", [1, 2, 20, 1000])
def test_the_vocabulary_has_the_most_frequent_ngrams(kind, size, n_rows):
    ids = (random_ids(300, vocab_size=3) + random_ids(300, vocab_size=5, seed=2)).astype(kind)
    places = ((i, i + n) for n in range(2, size + 1) for i in range(len(ids) - n + 1))
    counts = Counter(tuple(ids[begin:end].tolist()) for begin, end in places)
    found = ngrams.vocabulary(ids, size, n_rows)
    assert (found.dtype, found.shape, found[-1]) == (np.int32, (n_rows,), NO_KEY)
    assert (np.diff(found.astype(np.int64)) >= 0).all()
    ngram_of = {key_by_hand(ngram): ngram for ngram in counts}
    assert len(ngram_of) == len(counts)
    chosen = [ngram_of[key] for key in found.tolist() if key != NO_KEY]
    # What a text has the more often, and then the shorter, goes first; what occurs once, never.
    rank = {ngram: (-count, len(ngram)) for ngram, count in counts.items() if count > 1}
    assert sorted(rank[ngram] for ngram in chosen) == sorted(rank.values())[: n_rows - 1]


@pytest.mark.parametrize("n_rows", [1, 30])
def test_an_ngram_of_the_vocabulary_has_its_row_and_any_other_the_last(n_rows):
    config = ModelConfig(ngram_size=3, ngram_rows=n_rows, ngram_vocabulary=True, vocab_size=4)
    model, learned = random_gpt(replace(config, n_embd=4)), random_ids(99, vocab_size=4)
    model.ngram_embedding.keys.fill_(NO_KEY)
    model.ngram_embedding.learn_vocabulary(learned)
    keys = model.ngram_embedding.keys.tolist()
    text = random_ids(1, 60, vocab_size=4, seed=5)
    rows = model.ngram_embedding.rows(behind_nothing(torch.from_numpy(text), 3))[0].tolist()
    ids, known = [NOTHING, NOTHING, *text[0].tolist()], set()
    for t, found in enumerate(rows, 2):
        for n, row in zip((2, 3), found, strict=True):
            key = key_by_hand(ids[t - n + 1 : t + 1])
            known.add(key in keys[:-1])
            assert row == (keys.index(key) if key in keys[:-1] else n_rows - 1)
    assert known == ({True, False} if n_rows > 1 else {False})


def test_of_a_long_text_pieces_from_all_over_it_are_counted(monkeypatch):
    monkeypatch.setattr(ngrams, "COUNTED", 640)
    monkeypatch.setattr(ngrams, "PIECE", 10)
    ids = np.arange(6400) // 1600  # the n-grams of four letters, each in its quarter
    keys = ngrams.vocabulary(ids, 2, 100)
    assert {key_by_hand((i, i)) for i in range(4)} <= set(keys.tolist())
