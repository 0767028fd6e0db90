"""Counting is Kneser and Ney's formula as it is written; sliding windows have the context they say."""

import math
from collections import Counter
from copy import deepcopy

import numpy as np
import pytest
import torch

from medidas import sliding_losses
from sancho.config import ModelConfig
from sancho.evaluation.counting import MAX_ORDER, kneser_ney_losses
from sancho.loss import character_losses
from sancho.model import GPT

BOOK = (
    "En un lugar de la Mancha, de cuyo nombre no quiero acordarme, no ha mucho tiempo que vivía un "
    "hidalgo de los de lanza en astillero, adarga antigua, rocín flaco y galgo corredor. Una olla "
    "de algo más vaca que carnero, salpicón las más noches, duelos y quebrantos los sábados.\n"
)
CHARACTERS = sorted(set(BOOK))
IDS = np.array([CHARACTERS.index(c) for c in BOOK], dtype=np.uint8)
V = len(CHARACTERS)


def kneser_ney(train: tuple[int, ...], context: tuple[int, ...], new: int, below: float) -> float:
    """The probability of `new` as it is written down, with counters; `below`: without a context.

    Sequences that are shorter than the longest are counted once for each letter before them.
    """
    n = len(context) + 1
    for m in range(1, n + 1):
        width, before = min(m + 1, n), context[n - m :]
        found = [train[i : i + width] for i in range(len(train) - width + 1)]
        counts = Counter(found if m == n else (longer[1:] for longer in set(found)))
        rows = {key[-1]: count for key, count in counts.items() if key[:-1] == before}
        if rows:
            once, twice = (sum(count == k for count in counts.values()) for k in (1, 2))
            discount = once / (once + 2 * twice) if once else 0.5
            left = discount * len(rows) * below
            below = (max(rows.get(new, 0) - discount, 0) + left) / sum(rows.values())
    return below


def test_counts_are_those_of_the_written_formula():
    train, val = IDS[:220], IDS[220:]
    losses = kneser_ney_losses(train, val, V).mean(1)
    assert losses.shape == (MAX_ORDER,)
    known = tuple(train.tolist())
    for n in range(1, MAX_ORDER + 1):
        contexts = [tuple(IDS[i - n + 1 : i].tolist()) for i in range(220, len(IDS))]
        chances = [kneser_ney(known, c, new, 1 / V) for c, new in zip(contexts, val, strict=True)]
        assert losses[n - 1] == pytest.approx(-np.log(chances).mean(), rel=1e-9), n


@pytest.mark.parametrize("before", ["En un lugar de ", "zzz", "de la Mancha, y"])
def test_what_is_given_to_all_characters_sums_to_1(before):
    context = np.array([CHARACTERS.index(c) if c in CHARACTERS else 0 for c in before], np.uint8)
    given = [
        np.exp(-kneser_ney_losses(IDS, np.append(context, np.uint8(c)), V, 12)[:, -1])
        for c in range(V)
    ]
    np.testing.assert_allclose(np.sum(given, axis=0), 1, rtol=1e-12)


@pytest.mark.parametrize("n_train", [0, 1, 5])
def test_almost_nothing_to_count(n_train):
    losses = kneser_ney_losses(IDS[:n_train], IDS[n_train:60], V).mean(1)
    assert np.isfinite(losses).all()
    if not n_train:
        np.testing.assert_allclose(losses, math.log(V))


@pytest.mark.parametrize("block_size", [1, 2, 5, 16])
@pytest.mark.parametrize("n", [2, 3, 9, 16, 17, 18, 40])
def test_sliding_losses_are_those_of_a_long_context(block_size, n):
    shape = {"block_size": block_size, "n_layer": 1, "n_head": 1, "n_embd": 8, "ngram_size": 1}
    torch.manual_seed(1)
    model = GPT(ModelConfig(vocab_size=V, embedding_skip=False, **shape)).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    exact = deepcopy(model).double()
    ids = IDS[:n].astype(np.int64)
    half = block_size // 2
    losses = sliding_losses(model, ids, character_losses(model, ids))
    assert losses.shape == (n - 1,)
    for i in range(n - 1):  # what is predicted is character i + 1
        begin = i - i % block_size
        if i - begin < half <= i:
            begin = i - half - (i - half) % block_size + half
        assert i - begin >= min(i, half)
        with torch.no_grad():
            logits = exact(torch.from_numpy(ids[None, begin : i + 1]))[0, -1]
        assert losses[i] == pytest.approx(-logits.log_softmax(0)[ids[i + 1]].item(), abs=1e-5)
