"""Deterministic seeding: an independent random generator per purpose, step and place.

What is drawn there depends on the seed and on that place alone, and not on what was drawn before.
So a run that is resumed, evaluated more often or sampled from on the way draws the same numbers,
and no random state has to be saved.
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What random numbers are for; those of one purpose never touch those of another."""

    INITIALISATION = 0
    BATCHES = 1
    DROPOUT = 2
    SAMPLING = 3


def _sequence(seed: int, purpose: Purpose, index: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(purpose, *index))


def seed_of(seed: int, purpose: Purpose, *index: int) -> int:
    """Return a seed in [0, 2^63): a hash of the seed, the purpose and the index of the place."""
    return int(_sequence(seed, purpose, index).generate_state(1, np.uint64)[0] >> 1)


def generator(seed: int, purpose: Purpose, *index: int) -> np.random.Generator:
    """Return the NumPy generator of one place (for example the step and the micro-step)."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, index)))
