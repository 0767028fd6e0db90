"""Character n-grams: from ids to rows of an embedding table, in NumPy and in PyTorch.

The most frequent n-grams of the training text have a row each and all others share the last one.
Vectors of n-grams: Bojanowski et al. 2017, arXiv:1607.04606, section 3.2; in a model that reads one
character after the other: Pagnoni et al. 2024, arXiv:2412.09871, section 3.2.1.
"""

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", np.ndarray, "Tensor")
FACTOR = 0x9E3779B1  # 2^32 divided by the golden ratio (Knuth, volume 3, section 6.4)
NOTHING = -1
"""The id that stands before the first character."""
NO_KEY = 2**31 - 1
"""The key of table rows that belong to no n-gram."""
COUNTED = 2**23  # characters; of a longer text, only pieces all over it are counted, to save time
PIECE = 2**12


def signed_powers(size: int) -> list[int]:
    """Return FACTOR^age for age < size modulo 2^64, as signed 64-bit integers."""
    return [(FACTOR**age + 2**63) % 2**64 - 2**63 for age in range(size)]


def ngram_keys(newest_first: Array, powers: Array) -> Array:
    """Return the keys of the n-grams of 2, 3, … size ids: (…, size) int64 -> (…, size − 1).

    newest_first: the ids up to a place, the newest first; NOTHING before the first character.
    powers: `signed_powers(size)`, (size,). The key of an n-gram is the sum of (id + 2) · FACTOR^age
    modulo 2^64, age 0 being the newest. A table knows it by its lower 32 bits.
    """
    return ((newest_first + 2) * powers).cumsum(-1)[..., 1:]


def rows_of(newest_first: Array, powers: Array, vocabulary: Array, library: Any) -> Array:
    """Return the rows of n-grams in their table: (…, size) int64 ids -> (…, size − 1).

    newest_first, powers: as in `ngram_keys`. vocabulary: ascending keys, (n_rows,) int32. library:
    numpy or torch, whose arrays they are.
    """
    keys = library.asarray(ngram_keys(newest_first, powers), dtype=library.int32)
    places = library.searchsorted(vocabulary, keys)
    return library.where(vocabulary[places] == keys, places, len(vocabulary) - 1)


def vocabulary(ids: np.ndarray, size: int, n_rows: int) -> np.ndarray:
    """Return the keys of the n_rows − 1 most frequent n-grams of a text, (n,) -> (n_rows,) int32.

    The keys ascend, with NO_KEY at the end. The n-grams have 2, 3, … size characters; of equally
    frequent ones the shorter are preferred. An n-gram that occurs only once gets no row, because it
    would be learned by heart.
    """
    starts = range(0, len(ids), PIECE * (1 + len(ids) // COUNTED))
    ids = np.concatenate([ids[start : start + PIECE] for start in starts])
    values = ids.astype(np.int32) + 2
    sums = values
    found = []
    for n, power in enumerate(signed_powers(size)[1:], 2):
        sums = sums[1:] + values[: 1 - n] * np.int64(power).astype(np.int32)
        found.append(np.unique(sums, return_counts=True))
    keys, counts = map(np.concatenate, zip(*found, strict=True))
    is_repeated = counts > 1
    keys = keys[is_repeated]
    counts = counts[is_repeated]
    most = np.sort(keys[np.argsort(-counts, kind="stable")[: n_rows - 1]])
    return np.pad(most, (0, n_rows - len(most)), constant_values=NO_KEY)
