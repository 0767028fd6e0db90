"""Seeds: which random numbers are drawn where.

What is drawn at one place (a step, a sample) depends on the seed and on that place alone, and not
on what was drawn before. So a run that is resumed, evaluated more often or sampled from on the way
draws the same numbers, and no random state has to be saved.
"""

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """Random streams that never touch each other."""

    INITIALISATION = 0
    BATCHES = 1
    DROPOUT = 2
    SAMPLING = 3


def _sequence(seed: int, stream: Stream, index: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(stream, *index))


def seed_of(seed: int, stream: Stream, *index: int) -> int:
    """Return a 63-bit seed for one place of one stream: a hash of all that it is given."""
    return int(_sequence(seed, stream, index).generate_state(1, np.uint64)[0] >> 1)


def generator(seed: int, stream: Stream, *index: int) -> np.random.Generator:
    """Return a NumPy generator for one place of one stream."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, stream, index)))
