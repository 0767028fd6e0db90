"""Hashed character n-grams: from ids to rows of an embedding table.

There are too many n-grams for a row each, so a hash gives each of them one of `ngram_rows` rows,
and some share theirs (Bojanowski et al. 2017, arXiv:1607.04606, section 3.2; in a model that reads
one character after the other: Pagnoni et al. 2024, arXiv:2412.09871, section 3.2.1).

Written once for NumPy arrays and for PyTorch tensors, whose operators are the same.
"""

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", np.ndarray, "Tensor")
FACTOR = 0x9E3779B1  # 2^32 divided by the golden ratio (Knuth, volume 3, section 6.4)
NOTHING = -1
"""The id that stands before the first character."""


def signed_powers(size: int) -> list[int]:
    """Return FACTOR^age for age < size modulo 2^64, as signed 64-bit integers."""
    return [(FACTOR**age + 2**63) % 2**64 - 2**63 for age in range(size)]


def hashed_rows(newest_first: Array, powers: Array, n_rows: int) -> Array:
    """Return the rows of the n-grams of 2, 3, … size ids: (…, size) int64 -> (…, size − 1).

    newest_first: the ids up to a place, the newest first; NOTHING before the first character.
    powers: `signed_powers(size)`, (size,). The key of an n-gram is the sum of (id + 2) · FACTOR^age
    modulo 2^64, age 0 being the newest; its row is a hash of the key modulo n_rows.
    """
    keys = ((newest_first + 2) * powers).cumsum(-1)[..., 1:]
    return (((keys ^ (keys >> 17)) * 0x85EBCA6B) & 0x7FFFFFFF) % n_rows
