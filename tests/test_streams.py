"""Every place of every stream draws its own numbers, and always the same ones."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sancho.streams import Stream, generator, seed_of

SEEDS = (0, 1, 2, 1605, 2**32, 2**63, 2**128 - 1)
INDICES = [(), (0,), (1,), (2,), (1000,), (2**31 - 1,), (0, 0), (0, 1), (1, 0), (1, 1), (5, 1000)]
numbers = st.integers(0, 2**31 - 1)
places = st.tuples(st.integers(0, 2**128 - 1), st.sampled_from(Stream)).flatmap(
    lambda place: st.lists(numbers, max_size=3).map(lambda index: (*place, *index))
)


def draws(*place: int, shape: int = 4) -> tuple[int, ...]:
    return tuple(generator(*place).integers(2**63, size=shape).tolist())


def test_no_two_streams_share_a_number():
    members = Stream.__members__  # two names of one number would be one stream
    assert len(members) == len({stream.value for stream in members.values()}) == len(Stream)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_no_two_streams_share_a_seed_or_a_draw(seed, index):
    assert len({seed_of(seed, stream, *index) for stream in Stream}) == len(Stream)
    assert len({draws(seed, stream, *index) for stream in Stream}) == len(Stream)


def test_no_two_places_share_a_seed_or_a_draw():
    everywhere = [(*place, *index) for *place, index in itertools.product(SEEDS, Stream, INDICES)]
    assert len({seed_of(*place) for place in everywhere}) == len(everywhere)
    assert len({draws(*place) for place in everywhere}) == len(everywhere)


@pytest.mark.parametrize("stream", Stream)
def test_ten_thousand_steps_of_three_parts_have_a_seed_each(stream):
    places = list(itertools.product(range(10_000), range(3)))
    assert len({seed_of(1605, stream, *place) for place in places}) == len(places)


@given(places, places)
@settings(deadline=None)
def test_one_place_one_seed(place, other):
    expected, drawn = seed_of(*place), draws(*place)
    if other != place:
        assert seed_of(*other) != expected
        assert draws(*other) != drawn
    np.random.seed(3)  # what others draw does not matter
    assert seed_of(*place) == expected
    assert draws(*place) == drawn
    assert 0 <= expected < 2**63


def test_the_numbers_of_a_place_look_random():
    """Bits and their neighbours, at neighbouring places, are as often 0 as 1."""
    seeds = np.array([seed_of(1605, Stream.BATCHES, step) for step in range(4096)])
    bits = seeds[:, None] >> np.arange(63) & 1  # (4096, 63)
    for what in (bits, bits[1:] ^ bits[:-1], bits[:, 1:] ^ bits[:, :-1]):
        assert np.abs(what.mean(0) - 0.5).max() < 5 * 0.5 / 4095**0.5  # five standard deviations


def test_a_place_draws_what_it_has_always_drawn():
    """Or a run that was saved would go on with other numbers than it was to have."""
    place = (1605, Stream.DROPOUT, 3, 1)
    assert {stream.name: stream.value for stream in Stream} == {
        "INITIALISATION": 0,
        "BATCHES": 1,
        "DROPOUT": 2,
        "SAMPLING": 3,
    }
    assert seed_of(*place) == 8283902560930225250
    assert draws(*place, shape=2) == (2673541464800984109, 1262088370116075496)
    by_hand = np.random.PCG64(np.random.SeedSequence(1605, spawn_key=(2, 3, 1)))
    assert draws(*place) == tuple(np.random.Generator(by_hand).integers(2**63, size=4).tolist())
