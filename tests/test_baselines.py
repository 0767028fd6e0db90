import lzma
import math
from collections import defaultdict

import numpy as np
import pytest

from sancho.baselines import LONGEST, count_losses, xz_loss

TEXT = (
    "En un lugar de la Mancha, de cuyo nombre no quiero acordarme, no ha mucho tiempo que vivía un "
    "hidalgo de los de lanza en astillero, adarga antigua, rocín flaco y galgo corredor. Una olla "
    "de algo más vaca que carnero, salpicón las más noches, duelos y quebrantos los sábados.\n"
)


class KneserNey:
    """Interpolated Kneser-Ney as it is written down, with dictionaries, for one length."""

    def __init__(self, train: list[int], n: int, vocab_size: int) -> None:
        self.n, self.vocab_size = n, vocab_size
        self.counts = [None]  # by length m: sequence -> count
        for m in range(1, n + 1):
            counts: dict[tuple, int] = defaultdict(int)
            if m == n:
                for i in range(len(train) - m + 1):
                    counts[tuple(train[i : i + m])] += 1
            else:
                for longer in {tuple(train[i : i + m + 1]) for i in range(len(train) - m)}:
                    counts[longer[1:]] += 1
            self.counts.append(counts)

    def probability(self, context: tuple, new: int) -> float:
        below = 1 / self.vocab_size
        for m in range(1, self.n + 1):
            counts, before = self.counts[m], context[len(context) - m + 1 :]
            rows = {key[-1]: value for key, value in counts.items() if key[:-1] == before}
            if rows:
                once = sum(value == 1 for value in counts.values())
                twice = sum(value == 2 for value in counts.values())
                discount = once / (once + 2 * twice) if once else 0.5
                left = discount * len(rows) * below
                kept = max(rows.get(new, 0) - discount, 0)
                below = (kept + left) / sum(rows.values())
        return below


def ids_of(text: str) -> tuple[np.ndarray, int]:
    characters = sorted(set(text))
    return np.array([characters.index(c) for c in text], dtype=np.uint8), len(characters)


def test_counts_are_those_of_the_written_formula():
    ids, V = ids_of(TEXT)
    train, val = ids[:220], ids[220:]
    found = count_losses(train, val, V)
    assert found.shape == (LONGEST,)
    for n in range(1, LONGEST + 1):
        model, total = KneserNey(train.tolist(), n, V), 0.0
        for i in range(220, len(ids)):
            total -= math.log(model.probability(tuple(ids[max(0, i - n + 1) : i].tolist()), ids[i]))
        assert found[n - 1] == pytest.approx(total / len(val), rel=1e-9), n


def test_the_probabilities_of_all_letters_sum_to_one():
    ids, V = ids_of(TEXT)
    train, context = ids[:200], ids[200:220]
    sums = np.zeros(LONGEST)
    whole = count_losses(train, context, V) * len(context)
    for letter in range(V):  # the loss of one more letter is what the sum grows by
        longer = np.append(context, np.uint8(letter))
        sums += np.exp(whole - count_losses(train, longer, V) * len(longer))
    np.testing.assert_allclose(sums, 1, rtol=1e-9)


@pytest.mark.parametrize("n_train", [0, 1, 5])
def test_almost_nothing_to_count(n_train):
    ids, V = ids_of(TEXT)
    losses = count_losses(ids[:n_train], ids[n_train:60], V)
    assert np.isfinite(losses).all()
    if not n_train:
        np.testing.assert_allclose(losses, math.log(V))


def test_xz_packs_what_it_has_read_already_into_nothing():
    text = "".join(np.random.default_rng(0).choice(list("abcdefghijklmnop"), 4000))
    alone = 8 * len(lzma.compress(text[2000:].encode())) / 2000
    assert 3.9 < xz_loss(text[:2000], text[2000:]) < alone + 0.3
    assert xz_loss(text, text) < 0.2
