"""Every place of every purpose draws its own numbers, and always the same ones."""

import itertools

import numpy as np

from sancho.machine.seeds import Purpose, generator, seed_of

SEEDS = (0, 1, 2, 1605, 2**32, 2**63, 2**128 - 1)
INDICES = [(), (0,), (1,), (2,), (2**31 - 1,), (0, 0), (0, 1), (1, 0), (1, 1), (5, 1000)]
INDICES += itertools.product(range(100, 400), range(3))  # steps and their parts


def draws(*place: int, shape: int = 4) -> tuple[int, ...]:
    return tuple(generator(*place).integers(2**63, size=shape).tolist())


def test_no_two_places_share_a_seed_or_a_draw():
    few = itertools.product(SEEDS, Purpose, INDICES[:10])
    steps = itertools.product([1605], Purpose, INDICES[10:])
    everywhere = [(seed, purpose, *index) for seed, purpose, index in (*few, *steps)]
    seeds = {seed_of(*place) for place in everywhere}
    assert len(seeds) == len(everywhere)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len({draws(*place) for place in everywhere}) == len(everywhere)


def test_a_place_draws_what_it_has_always_drawn():
    """Or a run that was saved would go on with other numbers than it was to have."""
    place = (1605, Purpose.DROPOUT, 3, 1)
    np.random.seed(3)  # what others draw does not matter
    # Two names of one number would be one purpose, so it is names that are counted.
    assert {name: purpose.value for name, purpose in Purpose.__members__.items()} == {
        "INITIALISATION": 0,
        "BATCHES": 1,
        "DROPOUT": 2,
        "SAMPLING": 3,
    }
    assert seed_of(*place) == 8283902560930225250
    assert draws(*place, shape=2) == (2673541464800984109, 1262088370116075496)
    by_hand = np.random.PCG64(np.random.SeedSequence(1605, spawn_key=(2, 3, 1)))
    assert draws(*place) == tuple(np.random.Generator(by_hand).integers(2**63, size=4).tolist())
