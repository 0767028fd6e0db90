"""Every place of every purpose draws its own numbers, and always the same ones."""

import numpy as np

from sancho.machine.seeds import Purpose, generator, seed_of


def test_a_place_draws_what_it_has_always_drawn():
    """Or a run that was saved would go on with other numbers than it was to have."""
    place = (1605, Purpose.DROPOUT, 3, 1)
    np.random.seed(3)  # what others draw does not matter
    assert seed_of(*place) == 8283902560930225250
    found = generator(*place).integers(2**63, size=2).tolist()
    assert found == [2673541464800984109, 1262088370116075496]
    by_hand = np.random.PCG64(np.random.SeedSequence(1605, spawn_key=(2, 3, 1)))
    assert found == np.random.Generator(by_hand).integers(2**63, size=2).tolist()


def test_no_two_purposes_draw_the_same_numbers():
    # Two names of one number would be one purpose, so it is names that are counted.
    purposes = Purpose.__members__.values()
    drawn = {int(generator(1605, purpose, 3, 1).integers(2**63)) for purpose in purposes}
    assert len(drawn) == len(purposes)
