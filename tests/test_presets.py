"""What --preset stands for."""

import typing

import pytest

from sancho.config import ModelConfig, PresetName, TrainConfig
from sancho.presets import PRESETS


def test_presets_are_the_choices_of_the_option():
    choices = sorted(typing.get_args(PresetName))
    assert choices == sorted(["auto", *PRESETS]) == "auto base classic midi mini".split()


@pytest.mark.parametrize("name", PRESETS)
def test_on_don_quijote_all_steps_of_a_preset_are_made(name):
    preset = PRESETS[name]
    train = preset.train
    assert train.warmup_iters < train.max_iters * (1 - train.decay_fraction)
    assert preset.epochs >= 1
    assert train.max_iters * train.characters_per_step(preset.model) <= preset.epochs * 1_899_635


def test_mini_is_what_its_published_figures_are_of():
    """And the dataclasses as they stand."""
    model = PRESETS["mini"].model
    train = PRESETS["mini"].train
    assert (model, train) == (ModelConfig(), TrainConfig())
    assert (model.block_size, model.n_layer, model.n_head, model.n_embd) == (256, 4, 2, 64)
    assert (train.max_iters, train.batch_size, train.look_ahead) == (1700, 8, 2)
