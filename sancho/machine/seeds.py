"""Deterministic seeding: an independent random generator for each purpose, step and place.

A run that is resumed, or evaluated more often, therefore draws the same numbers, and no random
state needs to be saved.
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What random numbers are for; each purpose has numbers independent of the others."""

    INITIALISATION = 0
    BATCHES = 1
    DROPOUT = 2
    SAMPLING = 3
    PROOF = 4


def seed_of(seed: int, purpose: Purpose, *index: int) -> int:
    """Return a seed in [0, 2^63): a hash of the seed, the purpose and the index of the place."""
    sequence = np.random.SeedSequence(seed, spawn_key=(purpose, *index))
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)


def generator(seed: int, purpose: Purpose, *index: int) -> np.random.Generator:
    """Return the NumPy generator of one place (for example the step and the micro-step)."""
    sequence = np.random.SeedSequence(seed, spawn_key=(purpose, *index))
    return np.random.Generator(np.random.PCG64(sequence))
