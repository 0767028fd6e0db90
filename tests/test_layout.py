import itertools
from dataclasses import replace

import pytest

from sancho.config import ModelConfig
from sancho.layout import count_parameters, weight_shapes
from sancho.model import GPT
from sancho.presets import PRESETS

pytestmark = pytest.mark.usefixtures("one_thread")

NORMS = ("layernorm", "rmsnorm")
POSITIONS = ("learned", "sinusoidal", "rope")
ACTIVATIONS = ("relu", "gelu", "silu", "relu2", "geglu", "swiglu")
FLAGS = ("bias", "qk_norm", "embedding_skip", "tie_embeddings")
# All numbers are different, so that none can stand for another.
SMALL = ModelConfig(vocab_size=11, block_size=5, n_layer=3, n_head=2, n_embd=8, ngram_rows=13)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("norm", NORMS)
def test_the_layout_is_that_of_the_model(norm, position, activation):
    for flags, ngram_size in itertools.product(itertools.product((False, True), repeat=4), (1, 3)):
        config = replace(
            SMALL,
            norm=norm,
            position=position,
            activation=activation,
            ngram_size=ngram_size,
            **dict(zip(FLAGS, flags, strict=True)),
        )
        model = GPT(config)
        shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
        assert weight_shapes(config) == shapes
        assert count_parameters(config) == model.count_parameters()


@pytest.mark.parametrize("preset", PRESETS)
def test_the_layout_of_a_preset_is_that_of_its_model(preset):
    config = PRESETS[preset].model
    model = GPT(config)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert weight_shapes(config) == shapes
    assert count_parameters(config) == model.count_parameters()


@pytest.mark.parametrize(
    "changes",
    [
        {"n_embd": 1, "n_head": 1, "activation": "geglu"},
        {"n_embd": 1, "n_head": 1, "activation": "relu"},
        {"vocab_size": 1, "block_size": 1, "n_layer": 1},
        {"ngram_size": 16, "ngram_rows": 1},
    ],
    ids=str,
)
def test_the_layout_of_odd_shapes(changes):
    config = replace(SMALL, position="learned", bias=True, norm="layernorm", **changes)
    shapes = {name: tuple(weight.shape) for name, weight in GPT(config).state_dict().items()}
    assert weight_shapes(config) == shapes


def test_names_come_in_the_order_of_the_forward_pass():
    config = replace(
        SMALL, n_layer=1, position="learned", ngram_size=2, embedding_skip=True, norm="layernorm"
    )
    assert list(weight_shapes(config)) == [
        "token_embedding.weight",
        "ngram_embedding.weight",
        "position_embedding.weight",
        "skips",
        "blocks.0.norm1.weight",
        "blocks.0.attention.qkv.weight",
        "blocks.0.attention.proj.weight",
        "blocks.0.norm2.weight",
        "blocks.0.feed_forward.expand.weight",
        "blocks.0.feed_forward.proj.weight",
        "norm.weight",
        "head.weight",
    ]
