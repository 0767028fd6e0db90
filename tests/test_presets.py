"""What --preset stands for."""

from dataclasses import asdict

import pytest

from sancho.config import DEFAULT_SAMPLING
from sancho.presets import PRESETS

# What the published figures are of, by hand: mini, and where the others differ from it.
MINI_MODEL = {
    "vocab_size": 92,
    "block_size": 256,
    "n_layer": 4,
    "n_head": 2,
    "n_embd": 64,
    "dropout": 0.0,
    "bias": False,
    "norm": "rmsnorm",
    "position": "rope",
    "activation": "relu2",
    "ngram_size": 5,
    "ngram_rows": 65536,
    "ngram_dropout": 0.0,
    "embedding_skip": True,
    "qk_norm": True,
    "tie_embeddings": False,
}
MINI_TRAIN = {
    "max_iters": 1700,
    "batch_size": 8,
    "gradient_accumulation_steps": 1,
    "optimizer": "muon",
    "learning_rate": 0.02,
    "muon_learning_rate": 0.015,
    "ngram_learning_rate": 0.15,
    "weight_decay": 0.0,
    "beta1": 0.8,
    "beta2": 0.98,
    "grad_clip": 1.0,
    "warmup_iters": 20,
    "look_ahead": 2,
    "logit_scale": 1.0,
    "decay_fraction": 0.6,
    "eval_interval": 850,
    "log_interval": 10,
    "patience": 0,
    "seed": 1605,
    "threads": 0,
    "preset": "mini",
    "compile": False,
    "tensorboard": False,
}
PUBLISHED = {
    "mini": ({}, {}, 6.5),
    "midi": ({"n_embd": 144, "n_head": 3}, {"max_iters": 5000}, 6.5),
    "classic": (
        {
            "block_size": 64,
            "n_head": 4,
            "n_embd": 128,
            "bias": True,
            "norm": "layernorm",
            "position": "learned",
            "activation": "relu",
            "ngram_size": 1,
            "embedding_skip": False,
            "qk_norm": False,
        },
        {
            "max_iters": 2000,
            "batch_size": 12,
            "optimizer": "adamw",
            "learning_rate": 1e-3,
            "weight_decay": 0.1,
            "beta1": 0.9,
            "beta2": 0.99,
            "warmup_iters": 100,
            "look_ahead": 0,
        },
        12,
    ),
    "base": (
        {"n_layer": 6, "n_head": 6, "n_embd": 384, "dropout": 0.2, "ngram_size": 1},
        {
            "max_iters": 5000,
            "batch_size": 64,
            "muon_learning_rate": 0.02,
            "weight_decay": 0.1,
            "beta2": 0.95,
            "look_ahead": 0,
        },
        50,
    ),
}


@pytest.mark.parametrize("name", PRESETS)
def test_on_don_quijote_all_steps_of_a_preset_are_made(name):
    preset = PRESETS[name]
    train = preset.train
    assert train.warmup_iters < train.max_iters * (1 - train.decay_fraction)
    assert preset.epochs >= 1
    assert train.max_iters * train.characters_per_step(preset.model) <= preset.epochs * 1_899_635


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_is_what_its_published_figures_are_of(name):
    """A new option has its default in them, and a new preset has none."""
    model, train, epochs = PUBLISHED[name]
    preset = PRESETS[name]
    published = MINI_MODEL | MINI_TRAIN | model | train | {"preset": "mini", "epochs": epochs}
    ours = asdict(preset.model) | asdict(preset.train) | {"epochs": preset.epochs}
    changed = [option for option, value in published.items() if ours.get(option) != value]
    assert not changed, f"{changed} of {name} changed: measure README's figures anew"


def test_texts_are_drawn_as_the_published_ones_were():
    expected = {"temperature": 1.0, "top_k": None, "top_p": None, "min_p": 0.1}
    assert asdict(DEFAULT_SAMPLING) == expected
