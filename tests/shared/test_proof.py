"""The proof in a checkpoint: its window, its numbers, and how near other logits have to be."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from architectures import SMALL
from conftest import random_gpt

from sancho.errors import OtherFunction
from sancho.implementation import model_proof, torch_logits
from sancho.model import MultiHeadAttention, NgramEmbedding
from sancho.shared.proof import proof_of, proof_window, require_proof

LONG = replace(SMALL, block_size=300, n_embd=32)


def test_the_window_is_always_the_same():
    """Files that were written once are compared by it."""
    assert proof_window(SMALL).tolist() == [[7, 3, 1, 6, 1, 4, 8, 2]]
    whole = proof_window(replace(SMALL, vocab_size=92, block_size=1024))[0]
    assert (len(whole), whole[:5].tolist(), whole[-1]) == (256, [60, 29, 15, 53, 16], 79)
    assert proof_window(replace(SMALL, block_size=1)).shape == (1, 1)


def test_a_proof_holds_logits_of_places_all_over_the_window_and_of_its_end():
    config = replace(SMALL, block_size=300)
    numbers = np.random.default_rng(0).normal(size=(1, 256, 11))
    found = proof_of(lambda ids: numbers, config)
    ids = proof_window(config)[0]
    places = [i * 255 // 16 for i in range(16)]
    expected = [numbers[0, place, ids[place + 1]] for place in places]
    np.testing.assert_array_equal(found, np.float32([*expected, *numbers[0, 255]]))
    assert len(proof_of(lambda ids: numbers[:, :1], replace(SMALL, block_size=1))) == 11


def nearby_attention(self, x):
    """See the newest 199 positions alone."""
    B, T, C = x.shape
    q, k, v = self.queries_keys_values(x)
    places = torch.arange(T)
    distance = places[:, None] - places
    y = F.scaled_dot_product_attention(q, k, v, (distance >= 0) & (distance < 199))
    return self.proj(y.transpose(1, 2).reshape(B, T, C))


def test_a_change_that_shows_only_far_into_a_text_is_found(monkeypatch):
    model = random_gpt(LONG)
    found = model_proof(model)
    turned = deepcopy(model)
    for block in turned.blocks:
        block.attention.rotations[200:] *= -1
    own_rows = NgramEmbedding.rows_of

    def other_rows(self, ids):
        rows = own_rows(self, ids)
        rows[:, 200:] = rows[:, 200:].flip(-1).roll(1, 1)
        return rows

    def require() -> None:
        require_proof(found, lambda ids: torch_logits(model, ids), LONG, "model.py")

    require()
    with pytest.raises(OtherFunction):
        require_proof(found, lambda ids: torch_logits(turned, ids), LONG, "model.py")
    for owner, name, other in (
        (MultiHeadAttention, "forward", nearby_attention),
        (NgramEmbedding, "rows_of", other_rows),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, other)
            with pytest.raises(OtherFunction, match=r"^model\.py computes another function"):
                require()


def test_the_tolerance_follows_the_largest_logit():
    for scale, moved, agrees in ((1, 9e-4, True), (1, 2e-3, False), (50, 0.04, True)):
        numbers = scale * np.sin(np.arange(256 * 11.0)).reshape(1, 256, 11)
        numbers /= np.abs(proof_of(lambda ids, x=numbers: x, LONG)).max() / scale
        expected = proof_of(lambda ids, x=numbers: x, LONG)
        try:
            require_proof(expected, lambda ids, x=numbers, y=moved: x + y, LONG, "x")
            assert agrees
        except OtherFunction:
            assert not agrees


def test_an_implementation_whose_logits_are_not_finite_is_another_function():
    expected = proof_of(lambda ids: np.ones((1, 256, 11)), LONG)
    with pytest.raises(OtherFunction, match=r"^x computes logits that are not finite$"):
        require_proof(expected, lambda ids: np.full((1, 256, 11), np.nan), LONG, "x")
