"""Measures of a trained model: loss beside baselines, known words, verbatim copies."""

import lzma
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from sancho.config import DEFAULT_SAMPLING, SampleConfig
from sancho.corpus import Corpus
from sancho.generate import continue_texts
from sancho.model import GPT
from sancho.training import character_losses

SAMPLINGS = {
    "by default": DEFAULT_SAMPLING,
    "plain 0.5": SampleConfig(temperature=0.5),
    "plain 1.0": SampleConfig(temperature=1.0),
}
"""How texts are written to be measured; plain: at that temperature and nothing else."""
STAGES = 7 + len(SAMPLINGS)
SAMPLES, SAMPLE_LENGTH, SEED = 10, 2000, 1605  # texts of each sampling, and their characters
LONGEST_TRAINING, LONGEST_VALIDATION = 10_000_000, 500_000
"""Characters at the end of the training part and at the beginning of the validation part that all
measures but the loss in windows look at, so that a long text takes about 1 GB and no more."""
COPY = 32  # characters from which a passage of the training text counts as copied
MAX_ORDER = 8  # letters in the longest sequences that are counted
# The sha256 of the clean text for which PUBLISHED holds.
DON_QUIJOTE = "5656fd8ea46cee79795cb46d6f7225813966a1d752f026ad8f1d11812009d078"
PUBLISHED = {"PPMd, order 12": 1.780, "nanoGPT's recipe for a CPU": 2.498}
"""Bits per character on the last tenth of Don Quijote. PPMd (variant H, as in 7-Zip) has read the
nine tenths before and goes on learning; nanoGPT: benchmarks/time_to_loss.py, 2,000 steps."""


def measure(model: GPT, corpus: Corpus) -> Iterator[tuple[str, Any]]:
    """Yield names and values of what JSON is to hold, in STAGES; later ones replace earlier ones.

    characters, measured: of the validation part, and how many of them are looked at but for the
    loss in windows. losses, in nats: of baselines, from the worst to the best, and of the model.
    by_place: losses by the number of characters before one in its window. by_kind: (fraction, loss)
    of kinds of characters. copied: the fraction of the validation part in passages of COPY or more
    that the training part has. texts: of the model by each sampling, and the author's.
    """
    decode, block = corpus.tokenizer.decode, model.config.block_size
    train, val = corpus.train[-LONGEST_TRAINING:], corpus.val[:LONGEST_VALIDATION]
    train_text, val_text = decode(train), decode(val)
    yield "characters", len(corpus.val)
    yield "measured", len(val)
    losses = _baselines(corpus, train, val)
    yield "losses", losses
    in_windows = character_losses(model, corpus.val, threads=torch.get_num_threads())
    losses[f"this model, in windows of {block}"] = float(in_windows.mean())
    yield "by_place", _by_place(in_windows, block)
    sliding = sliding_losses(model, val, in_windows[: len(val) - 1])
    losses[f"this model, after at least {block // 2}"] = float(sliding.mean())
    yield "by_kind", _by_kind(sliding, val_text)
    is_copied = copied(val_text, train_text)
    if (new := ~is_copied[1:]).any():
        losses["the same, without copied passages"] = float(sliding[new].mean())
    yield "copied", float(is_copied.mean())
    texts, known = {}, set(words_of(train_text))
    length = {"num_samples": SAMPLES, "max_new_tokens": SAMPLE_LENGTH, "seed": SEED}
    for name, sampling in SAMPLINGS.items():
        pieces = continue_texts(model, corpus.tokenizer, val[:1], sampling, **length)
        # What is left of a last word is cut off.
        text = "\n".join(piece[: piece.rfind(" ")] if " " in piece else piece for piece in pieces)
        texts[name] = _measures_of(text, train_text, known)
        yield "texts", texts
    texts["the author"] = _measures_of(val_text, train_text, known)
    yield "bits_per_character", {name: loss / math.log(2) for name, loss in losses.items()}


def _baselines(corpus: Corpus, train: np.ndarray, val: np.ndarray) -> dict[str, float]:
    tokenizer = corpus.tokenizer
    counted = count_losses(train, val, tokenizer.vocab_size).tolist()
    xz = xz_loss(tokenizer.decode(train), tokenizer.decode(val))
    losses = {
        "nothing known": math.log(tokenizer.vocab_size),
        "how often each letter occurs": counted[0],
        "pairs of letters": counted[1],
        f"counts of up to {np.argmin(counted) + 1} letters (Kneser-Ney)": min(counted),
        "xz -9e, after the nine tenths before": xz * math.log(2),
    }
    if corpus.sha256 == DON_QUIJOTE:
        losses |= {name: bits * math.log(2) for name, bits in PUBLISHED.items()}
    return dict(sorted(losses.items(), key=lambda item: -item[1]))


def sliding_losses(model: GPT, ids: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Return the losses with sliding windows: after at least half a block of context, (n − 1,).

    losses: `character_losses(model, ids)`. Those in the first half of a window are replaced by the
    losses in windows that begin half a block later; the very first ones stay.
    """
    block = model.config.block_size
    half, places = block // 2, np.arange(len(losses))
    early = (places % block < half) & (places >= half)
    if early.any():
        later = character_losses(model, ids[half:], threads=torch.get_num_threads())
        losses = np.where(early, np.pad(later, (half, 0)), losses)
    return losses


def _by_place(losses: np.ndarray, block: int) -> dict[str, float]:
    """Return the mean loss after 1, 2–3, 4–7, … characters, up to a block, of the window."""
    before, groups = np.arange(len(losses)) % block + 1, {}
    edges = [2**k for k in range(max(1, block.bit_length() - 1))]
    for first, end in pairwise([*edges, block + 1]):
        here = losses[(first <= before) & (before < end)]
        if len(here):
            groups[f"{first}–{end - 1}" if end - first > 1 else f"{first}"] = float(here.mean())
    return groups


def _by_kind(losses: np.ndarray, text: str) -> dict[str, tuple[float, float]]:
    def kind(before: str, new: str) -> str:
        if new.isalpha():
            return "inside a word" if before.isalpha() else "first letters"
        return "blanks" if new.isspace() else "signs"

    kinds = np.array([kind(before, new) for before, new in pairwise(text)])
    masks = {name: kinds == name for name in ("inside a word", "first letters", "blanks", "signs")}
    return {k: (float(m.mean()), float(losses[m].mean())) for k, m in masks.items() if m.any()}


def _measures_of(text: str, train_text: str, known: set[str]) -> dict[str, Any]:
    return {
        "known_words": fraction_of_known_words(text, known),
        "different_words": different_words(text, min(len(text), SAMPLES * SAMPLE_LENGTH)),
        "copied": float(copied(text, train_text).mean()),
        "longest_copy": longest_copy(text, train_text),
    }


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
    best, common = "", _common_windows(text, source, length)
    known = set(common)
    for i in common:
        # A longer passage ends with a window that stands there, too: else it need not be searched.
        while (end := i + max(length, len(best) + 1)) - length in known and text[i:end] in source:
            best = text[i:end]
    return best


def _common_windows(text: str, source: str, length: int) -> list[int]:
    """Return where windows of `length` characters of `text` begin that stand in `source`."""
    windows = [text[i : i + length] for i in range(len(text) - length + 1)]
    starts = range(len(source) - length + 1)
    found = set(windows).intersection(source[j : j + length] for j in starts)
    return [i for i, window in enumerate(windows) if window in found]


def count_losses(train: np.ndarray, val: np.ndarray, vocab_size: int) -> np.ndarray:
    """Return what counting sequences of 1, 2, … letters in `train` reaches on `val`: (MAX_ORDER,).

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
    for m in range(1, MAX_ORDER + 1):
        places = np.arange(m - 1, n_train)
        losses.append(-np.log(_smoothed(grams, contexts, places, lower)).mean())
        before = np.concatenate(([0], grams[:-1]))
        longer = np.unique(before * vocab_size + ids, return_inverse=True)[1]  # of m + 1 letters
        last = np.full(longer.max() + 1, -1)  # place in train of each of them
        last[longer[m:n_train]] = np.arange(m, n_train)
        lower = _smoothed(grams, contexts, last[last >= 0], lower)
        grams, contexts = longer, before
    return np.array(losses)


def _smoothed(
    grams: np.ndarray, contexts: np.ndarray, places: np.ndarray, lower: np.ndarray
) -> np.ndarray:
    """Return the probabilities of the last letters of a text, given those by shorter sequences."""
    counts = np.bincount(grams[places], minlength=grams.max() + 1)
    once, twice = (counts == 1).sum(), (counts == 2).sum()
    discount = once / (once + 2 * twice) if once else 0.5
    context_of = np.zeros(len(counts), dtype=np.int64)
    context_of[grams] = contexts
    total, followers = np.bincount(context_of, counts), np.bincount(context_of, counts > 0)
    new, old = grams[-len(lower) :], contexts[-len(lower) :]
    discounted = (counts[new] - discount).clip(0)
    probabilities = (discounted + discount * followers[old] * lower) / total[old].clip(1)
    return np.where(total[old] > 0, probabilities, lower)


def xz_loss(train: str, val: str) -> float:
    """Return how many bits per character xz -9e takes for `val` once it has packed `train`."""
    best = 9 | lzma.PRESET_EXTREME
    before, after = (len(lzma.compress(t.encode(), preset=best)) for t in (train, train + val))
    return 8 * (after - before) / len(val)
