"""The n-gram baseline: interpolated Kneser-Ney smoothing, as Chen and Goodman write it down."""

import math
from collections import Counter

import numpy as np
import pytest
from architectures import random_ids

from sancho.evaluation.counting import kneser_ney_losses

Ngram = tuple[int, ...]


def probability_by_hand(
    train: Ngram, before: Ngram, character: int, vocab_size: int, longest: int
) -> float:
    """Return the probability of a character after others, with n-grams of up to `longest`."""
    probability = 1 / vocab_size
    for n in range(1, longest + 1):
        grams = ngrams_of(train, n)
        if n < longest:  # of how many characters each of them is the continuation
            grams = [gram[1:] for gram in set(ngrams_of(train, n + 1))]
        counts = Counter(grams)
        context = before[len(before) - n + 1 :]
        once, twice = ([*counts.values()].count(number) for number in (1, 2))
        discount = once / (once + 2 * twice) if once else 0.5
        after = {gram: count for gram, count in counts.items() if gram[:-1] == context}
        if after:
            seen = max(after.get((*context, character), 0) - discount, 0)
            left_over = discount * len(after) * probability
            probability = (seen + left_over) / sum(after.values())
    return probability


def ngrams_of(text: Ngram, n: int) -> list[Ngram]:
    return [text[i : i + n] for i in range(len(text) - n + 1)]


@pytest.mark.parametrize(
    "train",
    [
        random_ids(80, vocab_size=4),
        random_ids(300, vocab_size=3),  # no character or pair of them occurs only once
        np.array([0, 1, 1, 0] * 9),
        np.array([0]),
    ],
    ids="few many periodic single".split(),
)
def test_losses_are_those_of_the_formulas(train):
    """Also after contexts that the training part has not, and for a character that is new."""
    val = random_ids(25, vocab_size=5, seed=2)
    text = (*train.tolist(), *val.tolist())
    found = kneser_ney_losses(train.astype(np.uint8), val.astype(np.uint8), 6, longest=4)
    expected = [
        [
            -math.log(probability_by_hand(text[: len(train)], text[:i], text[i], 6, longest))
            for i in range(len(train), len(text))
        ]
        for longest in range(1, 5)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_sequences_of_eight_characters_are_counted():
    """The eighth is sure after these seven, and after no six."""
    random = np.random.default_rng(3)
    pieces = [np.append(random.integers(2, size=7), 0) for _ in range(4000)]
    for piece in pieces:
        piece[7] = 2 + piece[0]  # what comes follows from seven characters before
    ids = np.concatenate(pieces)
    losses = kneser_ney_losses(ids[:-800], ids[-800:], 4)
    assert len(losses) == 8
    at_ends = losses[:, 7::8].mean(1)
    assert at_ends[7] < 0.2 < at_ends[6]
