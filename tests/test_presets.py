"""What --preset stands for."""

import ast
import inspect
import typing
from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch
from conftest import randomise

from sancho import presets
from sancho.checkpoint import count_parameters
from sancho.config import ModelConfig, RunConfig, TrainConfig
from sancho.model import GPT, cross_entropy
from sancho.optim import AdamW, Muon, RowAdagrad, make_optimizers
from sancho.presets import PRESETS

pytestmark = pytest.mark.usefixtures("one_thread")
MINI, CLASSIC, BASE = PRESETS["mini"], PRESETS["classic"], PRESETS["base"]
names = pytest.mark.parametrize("name", PRESETS)


def test_presets_are_the_choices_of_the_option():
    (option,) = (option for option in fields(RunConfig) if option.name == "preset")
    choices = typing.get_args(option.type)
    assert sorted(choices) == sorted(["auto", *PRESETS]) == ["auto", "base", "classic", "mini"]


@names
def test_each_preset_is_a_model_that_computes_and_is_trained(name):
    config = replace(PRESETS[name].model, n_layer=2)
    model = randomise(GPT(config), std=0.05)
    assert model.count_parameters() == count_parameters(config)
    ids = torch.arange(33)[None] % config.vocab_size
    loss = cross_entropy(model(ids[:, :-1]), ids[:, 1:])
    loss.backward()
    optimizers = make_optimizers(model, PRESETS[name].train)
    before = {key: p.detach().clone() for key, p in model.named_parameters()}
    for optimizer in optimizers:
        optimizer.step()
    for key, p in model.named_parameters():
        assert not torch.equal(p, before[key]), key
        assert p.isfinite().all(), key


def test_a_preset_says_only_what_differs_from_the_defaults():
    seen = 0
    for call in ast.walk(ast.parse(inspect.getsource(presets))):
        name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
        defaults = {"ModelConfig": ModelConfig(), "TrainConfig": TrainConfig()}.get(name)
        for option in call.keywords if defaults else ():
            assert ast.literal_eval(option.value) != getattr(defaults, option.arg), option.arg
            seen += 1
    assert seen > 20


@names
def test_on_don_quijote_all_steps_of_a_preset_are_made(name):
    model, train, passes = PRESETS[name].model, PRESETS[name].train, PRESETS[name].passes
    assert train.warmup_iters < train.max_iters * (1 - train.decay_fraction)
    assert passes >= 1
    assert train.max_iters * train.characters_per_step(model) <= passes * 1_899_635


@names
def test_a_preset_cannot_be_changed(name):
    preset = PRESETS[name]
    for owner, option in ((preset, "passes"), (preset.model, "n_layer"), (preset.train, "seed")):
        with pytest.raises(FrozenInstanceError):
            setattr(owner, option, 1)


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
    shape = {"n_layer": 1, "n_embd": 8, "n_head": 2}
    optimizers = make_optimizers(GPT(replace(CLASSIC.model, **shape)), CLASSIC.train)
    assert [type(optimizer) for optimizer in optimizers] == [AdamW]


def test_mini_is_the_default_and_has_a_table_of_sequences():
    model = MINI.model
    assert (model.ngram_size, model.ngram_rows) == (5, 65536)
    assert model.ngram_dropout > 0
    assert model.embedding_skip is True
    bare = {"ngram_size": 1, "ngram_dropout": 0.0, "embedding_skip": False}
    assert replace(model, **bare) == ModelConfig()
    assert MINI.train == TrainConfig(look_ahead=2)
    small = GPT(replace(model, n_layer=1, n_embd=8, ngram_rows=16))
    assert small.ngram_embedding.weight.shape == (16, 8)
    optimizers = make_optimizers(small, MINI.train)
    assert {type(optimizer) for optimizer in optimizers} == {AdamW, Muon, RowAdagrad}


def test_base_is_larger_than_mini_and_has_no_table():
    base, mini = BASE.model, replace(MINI.model, ngram_size=1)
    assert base.ngram_size == 1
    assert base.dropout > 0
    assert base.block_size >= mini.block_size
    assert count_parameters(base) > 10 * count_parameters(mini)
    # sample.py writes with it on a CPU if nothing is said.
    assert 10_000_000 < count_parameters(base) < 15_000_000
    optimizers = make_optimizers(GPT(replace(base, n_layer=1, n_embd=8, n_head=2)), BASE.train)
    assert {type(optimizer) for optimizer in optimizers} == {AdamW, Muon}
