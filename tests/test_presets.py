"""What --preset stands for."""

import typing
from dataclasses import fields, replace

import pytest
from conftest import SCRIPTS

from sancho.checkpoint import count_parameters
from sancho.config import ModelConfig, RunConfig
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


def test_mini_is_the_default_and_a_table_of_sequences_and_base_has_none():
    bare = {"ngram_size": 1, "ngram_vocabulary": False, "embedding_skip": False}
    assert replace(MINI.model, **bare) == ModelConfig()
    assert MINI.model.ngram_size > BASE.model.ngram_size == 1
    assert 10_000_000 < count_parameters(BASE.model) < SCRIPTS["sample.py"].LARGEST_ON_CPU
