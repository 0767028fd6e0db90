from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import SMALL, random_ids
from conftest import random_gpt

from sancho.shared import ngrams
from sancho.shared.ngrams import NO_KEY, NOTHING, signed_powers


def key_by_hand(ngram):
    """Return the key of an n-gram, oldest id first: whole numbers without end, cut to 32 bits.

    The weights of a checkpoint belong to these keys: another formula would be another model.
    """
    key = sum((i + 2) * 0x9E3779B1**age for age, i in enumerate(reversed(ngram)))
    return (key + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("vocab_size", [4, 65536])
@pytest.mark.parametrize(("size", "n_rows"), [(2, 30), (5, 100), (16, 300), (3, 1)])
def test_an_ngram_of_the_vocabulary_has_its_row_and_any_other_the_last(size, n_rows, vocab_size):
    shape = {"vocab_size": vocab_size, "ngram_size": size, "ngram_rows": n_rows, "n_embd": 4}
    table = random_gpt(replace(SMALL, **shape)).ngram_embedding
    texts = random_ids(3, 8, vocab_size=vocab_size)
    behind_nothing = np.pad(texts, ((0, 0), (size - 1, 0)), constant_values=NOTHING)
    table.learn_vocabulary(np.tile(behind_nothing[0], 3))
    keys = table.keys.tolist()
    found = table.rows_of(torch.from_numpy(texts)).numpy()  # (B, T, size − 1)
    newest_first = np.lib.stride_tricks.sliding_window_view(behind_nothing, size, 1)[..., ::-1]
    powers = np.array(signed_powers(size))
    assert np.array_equal(ngrams.rows_of(newest_first, powers, table.keys.numpy(), np), found)
    known = set()
    for (text, t, n), row in np.ndenumerate(found):
        key = key_by_hand(behind_nothing[text].tolist()[t + size - 2 - n : t + size])
        known.add(key in keys[:-1])
        assert row == (keys.index(key) if key in keys[:-1] else n_rows - 1)
    assert known == ({True, False} if n_rows > 1 else {False})


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("size", [2, 4, 16])
@pytest.mark.parametrize("n_rows", [1, 2, 20, 100, 1000])
def test_the_vocabulary_has_the_most_frequent_ngrams(kind, size, n_rows):
    ids = (random_ids(300, vocab_size=3) + random_ids(300, vocab_size=5, seed=2)).astype(kind)
    places = ((i, i + n) for n in range(2, size + 1) for i in range(len(ids) - n + 1))
    counts = Counter(tuple(ids[begin:end].tolist()) for begin, end in places)
    found = ngrams.vocabulary(ids, size, n_rows)
    assert (found.dtype, found.shape, found[-1]) == (np.int32, (n_rows,), NO_KEY)
    assert (np.diff(found.astype(np.int64)) >= 0).all()
    ngram_of = {key_by_hand(ngram): ngram for ngram in counts}
    assert len(ngram_of) == len(counts)
    # What a text has the more often goes first, then the shorter, and then that of the lower key,
    # so that every machine chooses the same; what occurs once, never.
    repeated = [key for key, ngram in ngram_of.items() if counts[ngram] > 1]
    repeated.sort(key=lambda key: (-counts[ngram_of[key]], len(ngram_of[key]), key))
    assert [key for key in found.tolist() if key != NO_KEY] == sorted(repeated[: n_rows - 1])


@pytest.mark.parametrize("length", [641, 960, 1279])
def test_no_more_of_a_long_text_is_counted_than_is_said(monkeypatch, length):
    monkeypatch.setattr(ngrams, "COUNTED", 640)
    monkeypatch.setattr(ngrams, "PIECE", 10)
    ids = np.arange(length) // 10 % 2  # every second piece is of another letter
    keys = ngrams.vocabulary(ids, 2, 100).tolist()
    assert key_by_hand((0, 0)) in keys and key_by_hand((1, 1)) not in keys


def test_of_a_long_text_pieces_from_all_over_it_are_counted(monkeypatch):
    monkeypatch.setattr(ngrams, "COUNTED", 640)
    monkeypatch.setattr(ngrams, "PIECE", 10)
    ids = np.arange(6400) // 1600  # the n-grams of four letters, each in its quarter
    keys = ngrams.vocabulary(ids, 2, 100)
    assert {key_by_hand((i, i)) for i in range(4)} <= set(keys.tolist())


def test_ngrams_of_all_of_a_book_are_counted():
    """As of 2^23 characters; so the last sentence of a book has its rows, too."""
    ids = np.tile(np.arange(1, 5, dtype=np.uint8), 2**19)  # two million characters
    ids[-64:] = np.tile(np.array([7, 9], np.uint8), 32)
    assert key_by_hand((7, 9)) in ngrams.vocabulary(ids, 2, 64)
