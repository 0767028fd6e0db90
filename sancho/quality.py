"""What a text is worth beside another one: known words, different words, what it copies."""

import re

import numpy as np

COPY = 32
"""From so many characters on a run that stands in the other text counts as copied."""


def words_of(text: str) -> list[str]:
    """Return the runs of letters in a text, in small letters."""
    return re.findall(r"[^\W\d_]+", text.lower())


def share_of_known_words(text: str, known: set[str]) -> float:
    """Return which share of the words of a text is in `known`; 0 for a text without words."""
    words = words_of(text)
    return sum(word in known for word in words) / max(1, len(words))


def different_words(text: str, length: int) -> float:
    """Return how many different words a piece of `length` characters has, in the mean.

    The pieces stand one behind the other; what is left at the end is not looked at, unless it is
    all there is.
    """
    starts = range(0, max(1, len(text) - length + 1), length)
    return float(np.mean([len(set(words_of(text[i : i + length]))) for i in starts]))


class Source:
    """A text in which runs of another text are looked up.

    All windows of one length are found at once: by a 64-bit hash that is made by doubling, and
    then compared character by character, so that nothing counts that does not stand there.
    """

    def __init__(self, text: str) -> None:
        self.text, self.codes = text, _codes(text)
        self._sorted: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def holds(self, text: str, length: int) -> np.ndarray:
        """Return for every window of a text whether it stands here: (len − length + 1,) bool.

        length: a power of two.
        """
        codes = _codes(text)
        if length > min(len(codes), len(self.codes)):
            return np.zeros(max(0, len(codes) - length + 1), dtype=bool)
        if length not in self._sorted:
            hashes = _hashes(self.codes, length)
            order = np.argsort(hashes)
            self._sorted[length] = order, hashes[order]
        order, hashes = self._sorted[length]
        wanted = _hashes(codes, length)
        at = np.searchsorted(hashes, wanted).clip(max=len(hashes) - 1)
        found = hashes[at] == wanted
        here, there = order[at[found]], np.flatnonzero(found)
        for k in range(length):
            found[there] &= self.codes[here + k] == codes[there + k]
        return found

    def copied(self, text: str, length: int = COPY) -> np.ndarray:
        """Return for each character of a text whether it lies in a run of `length` or more that
        stands here: (len,) bool. length: a power of two.
        """
        edges = np.zeros(len(text) + 1, dtype=np.int64)
        starts = np.flatnonzero(self.holds(text, length))
        np.add.at(edges, starts, 1)
        np.add.at(edges, starts + length, -1)
        return edges[:-1].cumsum() > 0

    def longest_run(self, text: str) -> str:
        """Return the longest run of a text that stands here; the first of equally long ones."""
        length, starts = 1, self.holds(text, 1)
        if not starts.any():
            return ""
        while (wider := self.holds(text, 2 * length)).any():
            length, starts = 2 * length, wider
        best, where = length, int(np.flatnonzero(starts)[0])
        for i in map(int, np.flatnonzero(starts)):
            # Two windows that are known to stand here cover a run: else it need not be searched.
            while i + best + 1 <= len(text) and starts[i + best + 1 - length]:
                if text[i : i + best + 1] not in self.text:
                    break
                best, where = best + 1, i
        return text[where : where + best]


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _hashes(codes: np.ndarray, length: int) -> np.ndarray:
    """Return a hash of every window of `length` codes, a power of two: (len − length + 1,)."""
    hashes, width = codes.astype(np.uint64), 1
    while True:
        # Without the shift only the low bits of the codes would reach the low bits of the hash.
        hashes = (hashes + np.uint64(width)) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(32)
        if width == length:
            return hashes
        hashes = hashes[:-width] * np.uint64(0xC2B2AE3D27D4EB4F) + hashes[width:]
        width *= 2
