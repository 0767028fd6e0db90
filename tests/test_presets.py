"""What --preset stands for."""

import ast
import inspect
import typing
from dataclasses import fields, replace

import pytest

from sancho import presets
from sancho.checkpoint import count_parameters
from sancho.config import ModelConfig, RunConfig, TrainConfig
from sancho.generate import LARGEST_ON_CPU
from sancho.presets import PRESETS

MINI, CLASSIC, BASE = PRESETS["mini"], PRESETS["classic"], PRESETS["base"]


def test_presets_are_the_choices_of_the_option():
    (option,) = (option for option in fields(RunConfig) if option.name == "preset")
    choices = typing.get_args(option.type)
    assert sorted(choices) == sorted(["auto", *PRESETS]) == ["auto", "base", "classic", "mini"]


def test_a_preset_says_only_what_differs_from_the_defaults():
    seen = 0
    for call in ast.walk(ast.parse(inspect.getsource(presets))):
        name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
        defaults = {"ModelConfig": ModelConfig(), "TrainConfig": TrainConfig()}.get(name)
        for option in call.keywords if defaults else ():
            assert ast.literal_eval(option.value) != getattr(defaults, option.arg), option.arg
            seen += 1
    assert seen > 20


@pytest.mark.parametrize("name", PRESETS)
def test_on_don_quijote_all_steps_of_a_preset_are_made(name):
    model, train, passes = PRESETS[name].model, PRESETS[name].train, PRESETS[name].passes
    assert train.warmup_iters < train.max_iters * (1 - train.decay_fraction)
    assert passes >= 1
    assert train.max_iters * train.characters_per_step(model) <= passes * 1_899_635


def test_each_preset_has_a_model_of_its_own():
    """Whatever may change in a run that goes on, its preset is known by its model."""
    free = {"vocab_size": 7, "dropout": 0.0, "ngram_dropout": 0.0}
    models = [replace(preset.model, **free) for preset in PRESETS.values()]
    assert len(set(models)) == len(models) == 3


def test_classic_is_the_model_of_the_course():
    """LayerNorm, learned positions, ReLU and biases, as in Vaswani et al., trained with AdamW."""
    model = CLASSIC.model
    assert (model.norm, model.position, model.activation) == ("layernorm", "learned", "relu")
    assert (model.bias, model.qk_norm, model.tie_embeddings) == (True, False, False)
    assert (model.ngram_size, model.embedding_skip) == (1, False)
    assert CLASSIC.train.optimizer == "adamw"


def test_mini_is_the_default_and_a_table_of_sequences():
    bare = {"ngram_size": 1, "ngram_dropout": 0.0, "embedding_skip": False}
    assert replace(MINI.model, **bare) == ModelConfig()
    assert MINI.model.ngram_size > 1


def test_base_has_no_table_and_is_as_large_as_sampling_on_a_cpu_allows():
    assert BASE.model.ngram_size == 1
    assert 10_000_000 < count_parameters(BASE.model) < LARGEST_ON_CPU
