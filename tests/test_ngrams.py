import math

import numpy as np
import pytest
import torch
from architectures import random_ids

from sancho.ngrams import NOTHING, hashed_rows, signed_powers


def rows_of(ids, size, rows):
    """The table's rows at each place of texts (B, T): (B, T, size − 1), by NumPy and PyTorch."""
    text = np.pad(ids, ((0, 0), (size - 1, 0)), constant_values=NOTHING)
    newest_first = np.lib.stride_tricks.sliding_window_view(text, size, axis=1)[..., ::-1].copy()
    powers = np.array(signed_powers(size))
    found = hashed_rows(newest_first, powers, rows)
    in_torch = hashed_rows(torch.from_numpy(newest_first), torch.from_numpy(powers), rows)
    assert np.array_equal(found, in_torch)
    return found


def row_by_hand(newest_first, rows):
    """Return the row of an n-gram in whole numbers without end, cut to 64 bits."""
    values = [1 if i is None else i + 2 for i in newest_first]
    key = sum(value * 0x9E3779B1**age for age, value in enumerate(values))
    key = (key + 2**63) % 2**64 - 2**63
    return ((key ^ (key >> 17)) * 0x85EBCA6B) % 2**31 % rows


@pytest.mark.parametrize("vocab_size", [3, 65536])
@pytest.mark.parametrize(("size", "rows"), [(2, 61), (5, 65536), (16, 2**31 - 1), (4, 1)])
def test_rows_equal_the_formula_by_hand(size, rows, vocab_size):
    # The weights of a checkpoint belong to these rows: another formula would be another model.
    texts = random_ids(3, 20, vocab_size=vocab_size)
    for ids, found in zip(texts.tolist(), rows_of(texts, size, rows).tolist(), strict=True):
        for t, of_each_size in enumerate(found):
            newest_first = (ids[t::-1] + [None] * size)[:size]
            by_hand = [row_by_hand(newest_first[:n], rows) for n in range(2, size + 1)]
            assert of_each_size == by_hand


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("rows", [1021, 1024])
def test_ngrams_are_spread_over_the_rows(size, rows):
    ids = np.unique(random_ids(8000, size, vocab_size=92, seed=size), axis=0)
    counts = np.bincount(rows_of(ids, size, rows)[:, -1, -1], minlength=rows)
    expected = len(ids) / rows
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < rows + 6 * math.sqrt(2 * rows)  # chi-square: mean rows, variance 2 rows
