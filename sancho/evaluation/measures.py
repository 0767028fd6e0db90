"""Measures of a generated text: its words, and the passages that it copies."""

import re

import numpy as np

COPY = 32
"""Length, in characters, from which a passage of the training part counts as copied."""


def whole_words(text: str) -> str:
    """Return a text up to its last blank, because the word after it may be incomplete."""
    if " " not in text:
        return text
    return text[: text.rindex(" ")]


def words_of(text: str) -> list[str]:
    """Return the words of a text, sequences of letters, in lower case."""
    return re.findall(r"[^\W\d_]+", text.lower())


def fraction_of_known_words(text: str, known: set[str]) -> float:
    """Return the fraction of a text's words that is in `known`; 0 for a text without words."""
    words = words_of(text)
    return sum(word in known for word in words) / max(1, len(words))


def different_words(text: str, length: int) -> float:
    """Return the mean number of different words in pieces of `length` characters."""
    starts = range(0, max(1, len(text) - length + 1), length)
    return float(np.mean([len(set(words_of(text[i : i + length]))) for i in starts]))


def copied(text: str, source: str, length: int = COPY) -> np.ndarray:
    """Return which characters of `text` lie in passages of `length` or more of `source`, (n,)."""
    inside = np.zeros(len(text), dtype=bool)
    for i in _common_windows(text, source, length):
        inside[i : i + length] = True
    return inside


def longest_copy(text: str, source: str, length: int = COPY) -> str:
    """Return the first of the longest passages, of `length` or more, that occur in `source`."""
    starts = _common_windows(text, source, length)
    known = set(starts)
    longest = ""
    for start in starts:
        end = start + max(length, len(longest) + 1)
        # The end of a longer passage is a common window, too; if not, no search is needed.
        while end - length in known and text[start:end] in source:
            longest = text[start:end]
            end += 1
    return longest


def _common_windows(text: str, source: str, length: int) -> list[int]:
    """Return where `text` has windows of `length` characters that occur in `source`, too."""
    windows = [text[i : i + length] for i in range(len(text) - length + 1)]
    starts = range(len(source) - length + 1)
    found = set(windows).intersection(source[j : j + length] for j in starts)
    return [i for i, window in enumerate(windows) if window in found]
