"""A baseline that only counts: a language model of character n-grams, Kneser-Ney smoothed."""

import numpy as np

MAX_ORDER = 8
"""Length of the longest sequences that are counted: a character and up to 7 before it."""


def kneser_ney_losses(
    train: np.ndarray, val: np.ndarray, vocab_size: int, longest: int = MAX_ORDER
) -> np.ndarray:
    """Return the losses of n-gram models of 1, 2, … `longest` characters: (longest, len(val)).

    train: the ids that are counted; val: those that are predicted, in nats each. Interpolated
    Kneser-Ney smoothing with one discount for each length (Kneser and Ney 1995; Chen and Goodman
    1999): the discount from the counts of a length goes to the distribution of the next shorter
    length, whose counts are the numbers of different characters before a sequence. The discount of
    the shortest length goes to the uniform distribution, 1/V.
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
    """Return the probability of each validation character; `lower` is that by shorter sequences.

    places: the places of the training part at which a sequence is counted.
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
