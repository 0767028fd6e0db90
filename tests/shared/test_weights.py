import itertools
from dataclasses import replace

import pytest
from architectures import EACH_CHOICE, ODD_SHAPES, OTHERS

from sancho.model import GPT
from sancho.shared.weights import weight_shapes


# The sizes of SMALL are different numbers, so that none can stand for another.
@pytest.mark.parametrize("config", EACH_CHOICE + ODD_SHAPES + OTHERS)
def test_shapes_are_those_of_the_model(config):
    for bias, skip, tied in itertools.product((False, True), repeat=3):
        changed = replace(config, bias=bias, embedding_skip=skip, tie_embeddings=tied)
        found = GPT(changed).state_dict()
        assert weight_shapes(changed) == {name: tuple(w.shape) for name, w in found.items()}
