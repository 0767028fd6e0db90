"""What is known without a network: letter counts, xz, and figures that others reached."""

import lzma

import numpy as np

LONGEST = 8
"""Letters that the count models look at, the predicted one among them, at most."""
DON_QUIJOTE = "5656fd8ea46cee79795cb46d6f7225813966a1d752f026ad8f1d11812009d078"
"""sha256 of the clean text for which PUBLISHED holds."""
PUBLISHED = {
    "PPMd, order 12": 1.780,
    "nanoGPT's recipe for a CPU": 2.498,
}
"""Bits per character on the last tenth of Don Quijote. PPMd (variant H, as in 7-Zip) has read the
nine tenths before and goes on learning; nanoGPT: benchmarks/time_to_loss.py, 2,000 steps."""


def count_losses(train: np.ndarray, val: np.ndarray, vocab_size: int) -> np.ndarray:
    """Return what counting sequences of 1, 2, … letters in `train` reaches on `val`: (LONGEST,).

    train, val: ids, (n,), one text. In nats per character. Interpolated Kneser-Ney smoothing with
    one discount for each length (Kneser & Ney 1995; Chen & Goodman 1999): what a longer
    sequence leaves over goes to the shorter one, which counts the different letters before it.
    Shorter than nothing is 1/V.
    """
    ids = np.concatenate((train, val)).astype(np.int64)
    n_train, losses = len(train), []
    grams = ids  # number of the sequence of m letters that ends at each place
    contexts = np.zeros_like(ids)  # number of the one of m − 1 letters before the place
    lower = np.full(len(val), 1 / vocab_size)
    for m in range(1, LONGEST + 1):
        longer = np.concatenate(([0], grams[:-1])) * vocab_size + ids
        longer = np.unique(longer, return_inverse=True)[1]  # of m + 1 letters
        seen = slice(m - 1, n_train)  # places in train that have m letters
        counts = np.bincount(grams[seen], minlength=grams.max() + 1)
        losses.append(-np.log(_smoothed(counts, grams, contexts, n_train, lower)).mean())
        place = np.full(longer.max() + 1, -1)  # one of those where a longer sequence ends
        place[longer[m:n_train]] = np.arange(m, n_train)
        before = np.bincount(grams[place[place >= 0]], minlength=len(counts))
        lower = _smoothed(before, grams, contexts, n_train, lower)
        grams, contexts = longer, np.concatenate(([0], grams[:-1]))
    return np.array(losses)


def _smoothed(
    counts: np.ndarray, grams: np.ndarray, contexts: np.ndarray, n_train: int, lower: np.ndarray
) -> np.ndarray:
    """Return the probability of every letter after the first n_train: (n_val,).

    counts: of each sequence; grams, contexts: the sequence that ends at each place, and what it is
    without its last letter; lower: the probabilities from shorter sequences, (n_val,).
    """
    once, twice = (counts == 1).sum(), (counts == 2).sum()
    discount = once / (once + 2 * twice) if once else 0.5
    context_of = np.zeros(len(counts), dtype=np.int64)
    context_of[grams] = contexts
    total, followers = np.bincount(context_of, counts), np.bincount(context_of, counts > 0)
    new, old = grams[n_train:], contexts[n_train:]
    all_of, left = total[old].clip(1), discount * followers[old]
    probabilities = ((counts[new] - discount).clip(0) + left * lower) / all_of
    return np.where(total[old] > 0, probabilities, lower)


def xz_loss(train: str, val: str) -> float:
    """Return how many bits per character xz -9e takes for `val` once it has packed `train`."""
    sizes = [
        len(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
        for text in (train, train + val)
    ]
    return 8 * (sizes[1] - sizes[0]) / len(val)
