"""What --preset stands for."""

import typing
from dataclasses import fields

import pytest
from conftest import SCRIPTS

from sancho.checkpoint import count_parameters
from sancho.config import ModelConfig, RunConfig, TrainConfig
from sancho.presets import PRESETS

MINI, CLASSIC, BASE = PRESETS["mini"], PRESETS["classic"], PRESETS["base"]


def test_presets_are_the_choices_of_the_option():
    (option,) = (option for option in fields(RunConfig) if option.name == "preset")
    choices = typing.get_args(option.type)
    assert sorted(choices) == sorted(["auto", *PRESETS]) == "auto base classic midi mini".split()


@pytest.mark.parametrize("name", PRESETS)
def test_on_don_quijote_all_steps_of_a_preset_are_made(name):
    model, train, epochs = PRESETS[name].model, PRESETS[name].train, PRESETS[name].epochs
    assert train.warmup_iters < train.max_iters * (1 - train.decay_fraction)
    assert epochs >= 1
    assert train.max_iters * train.characters_per_step(model) <= epochs * 1_899_635


def test_classic_is_the_model_of_the_course():
    model = CLASSIC.model
    assert (model.norm, model.position, model.activation) == ("layernorm", "learned", "relu")
    assert (model.bias, model.qk_norm, model.tie_embeddings) == (True, False, False)
    assert (model.ngram_size, model.embedding_skip) == (1, False)
    assert CLASSIC.train.optimizer == "adamw"


def test_mini_is_what_its_published_figures_are_of():
    """And the dataclasses as they stand."""
    assert (MINI.model, MINI.train) == (ModelConfig(), TrainConfig())
    shape = (MINI.model.block_size, MINI.model.n_layer, MINI.model.n_head, MINI.model.n_embd)
    assert shape == (256, 4, 2, 64)
    train = MINI.train
    assert (train.max_iters, train.batch_size, train.look_ahead) == (1700, 8, 2)
    assert (train.beta1, train.beta2, train.grad_clip, train.warmup_iters) == (0.8, 0.98, 1.0, 20)
    rates = (train.learning_rate, train.muon_learning_rate, train.ngram_learning_rate)
    assert rates == (0.02, 0.015, 0.15)


def test_base_is_too_large_for_a_cpu_and_no_other_is():
    assert MINI.model.ngram_size > BASE.model.ngram_size == 1
    assert 10_000_000 < count_parameters(BASE.model) < SCRIPTS["sample.py"].LARGEST_ON_CPU
