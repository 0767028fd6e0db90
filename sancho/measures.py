"""Measures of a text: its words, what it copies, and the loss that counting reaches on it."""

import re

import numpy as np

COPY = 32
"""Characters from which a passage of the training part counts as copied."""
MAX_ORDER = 8
"""Characters of the longest sequences that are counted: the next one, and up to 7 before it."""


def whole_words(text: str) -> str:
    """Return a text without what comes after its last blank: the beginning of a word, perhaps."""
    if " " not in text:
        return text
    return text[: text.rindex(" ")]


def words_of(text: str) -> list[str]:
    """Return the words of a text, sequences of letters, in lower case."""
    return re.findall(r"[^\W\d_]+", text.lower())


def fraction_of_known_words(text: str, known: set[str]) -> float:
    """Return which fraction of the words of a text is in `known`; 0 for a text without words."""
    words = words_of(text)
    return sum(word in known for word in words) / max(1, len(words))


def different_words(text: str, length: int) -> float:
    """Return how many different words a whole piece of `length` characters has, in the mean."""
    starts = range(0, max(1, len(text) - length + 1), length)
    return float(np.mean([len(set(words_of(text[i : i + length]))) for i in starts]))


def copied(text: str, source: str, length: int = COPY) -> np.ndarray:
    """Return which characters of `text` lie in passages of `length` or more of `source`, (n,)."""
    inside = np.zeros(len(text), dtype=bool)
    for i in _common_windows(text, source, length):
        inside[i : i + length] = True
    return inside


def longest_copy(text: str, source: str, length: int = COPY) -> str:
    """Return the first of the longest passages, of `length` or more, that stand in `source`."""
    starts = _common_windows(text, source, length)
    known = set(starts)
    longest = ""
    for start in starts:
        end = start + max(length, len(longest) + 1)
        # A longer passage ends with a window that stands there, too: else it need not be searched.
        while end - length in known and text[start:end] in source:
            longest = text[start:end]
            end += 1
    return longest


def _common_windows(text: str, source: str, length: int) -> list[int]:
    """Return where windows of `length` characters of `text` begin that stand in `source`."""
    windows = [text[i : i + length] for i in range(len(text) - length + 1)]
    starts = range(len(source) - length + 1)
    found = set(windows).intersection(source[j : j + length] for j in starts)
    return [i for i, window in enumerate(windows) if window in found]


def count_losses(
    train: np.ndarray, val: np.ndarray, vocab_size: int, longest: int = MAX_ORDER
) -> np.ndarray:
    """Return the losses in `val` of who has counted sequences of 1, 2, … characters in `train`.

    train, val: ids of one text. Returns (longest, len(val)), in nats. Interpolated Kneser-Ney
    smoothing, a discount a length (Kneser and Ney 1995; Chen and Goodman 1999): what is taken from
    a sequence goes to the next shorter one, which counts before how many it occurs; at last 1/V.
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
