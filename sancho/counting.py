"""Counting as a language model: n-grams of characters with Kneser-Ney smoothing, a baseline."""

import numpy as np

MAX_ORDER = 8
"""Characters of the longest sequences that are counted: the next one, and up to 7 before it."""


def kneser_ney_losses(
    train: np.ndarray, val: np.ndarray, vocab_size: int, longest: int = MAX_ORDER
) -> np.ndarray:
    """Return the losses of n-gram models of 1, 2, … `longest` characters: (longest, len(val)).

    train: the ids that are counted; val: those that are predicted, in nats each. Interpolated
    Kneser-Ney smoothing with one discount for each length (Kneser and Ney 1995; Chen and Goodman
    1999): what is taken from the counts of a sequence goes to the next shorter one, which is
    counted by how many different characters it occurs after; the shortest to 1/V.
    """
    ids = np.concatenate((train, val)).astype(np.int64)
    n_train = len(train)
    losses = []
    grams = ids  # the number of the sequence of m characters that ends at each place
    contexts = np.zeros_like(ids)  # that of the m − 1 characters before that place
    lower = np.full(len(val), 1 / vocab_size)
    for m in range(1, longest + 1):
        losses.append(-np.log(_smoothed(grams, contexts, np.arange(m - 1, n_train), lower)))
        before = np.concatenate(([0], grams[:-1]))
        longer = np.unique(before * vocab_size + ids, return_inverse=True)[1]  # of m + 1
        last = np.full(longer.max() + 1, -1)  # the place of each of them in train
        last[longer[m:n_train]] = np.arange(m, n_train)
        lower = _smoothed(grams, contexts, last[last >= 0], lower)
        grams = longer
        contexts = before
    return np.array(losses)


def _smoothed(
    grams: np.ndarray, contexts: np.ndarray, places: np.ndarray, lower: np.ndarray
) -> np.ndarray:
    """Return the probability of the last characters of the text, given that by shorter sequences.

    places: those of the training part at which a sequence counts.
    """
    counts = np.bincount(grams[places], minlength=grams.max() + 1)
    once = (counts == 1).sum()
    twice = (counts == 2).sum()
    discount = once / (once + 2 * twice) if once else 0.5
    context_of = np.zeros(len(counts), dtype=np.int64)
    context_of[grams] = contexts
    total = np.bincount(context_of, counts)
    followers = np.bincount(context_of, counts > 0)
    new = grams[-len(lower) :]
    old = contexts[-len(lower) :]
    discounted = (counts[new] - discount).clip(0)
    probabilities = (discounted + discount * followers[old] * lower) / total[old].clip(1)
    return np.where(total[old] > 0, probabilities, lower)
