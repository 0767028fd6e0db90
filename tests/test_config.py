import ast
import dataclasses
import inspect
import typing
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path

import pytest

from sancho import config as config_module
from sancho.config import (
    CorpusConfig,
    DeviceConfig,
    EvaluateOptions,
    FromNanogptOptions,
    ModelConfig,
    RunConfig,
    SampleConfig,
    SampleOptions,
    ToHuggingFaceOptions,
    ToOnnxOptions,
    ToPageOptions,
    TrainConfig,
    TrainOptions,
    from_dict,
)
from sancho.errors import UserError
from sancho.presets import PRESETS

NAN, INFINITE = float("nan"), float("inf")
CONFIGS = [value for value in vars(config_module).values() if is_dataclass(value)]

OUT_OF_RANGE = {
    ModelConfig: {
        "vocab_size": [0, -1, 65537],
        "block_size": [0, -8, 65537],
        "n_layer": [0, -1],
        "n_head": [0, -6, 5, 7, 192, 96, 64],
        "n_embd": [0, -96],
        "ngram_size": [0, -1, 17],
        "ngram_rows": [0, -1, 2**31],
        "dropout": [-0.1, 1, 1.0, 1.5, NAN, INFINITE],
        "ngram_dropout": [-0.1, 1, NAN],
    },
    TrainConfig: {
        "max_iters": [0, -1, 2**31],
        "batch_size": [0, -1, 2**31],
        "gradient_accumulation_steps": [0, -1, 2**31],
        "learning_rate": [0, 0.0, -1e-3, NAN, 1e31, INFINITE],
        "muon_learning_rate": [0, 0.0, -1e-3, NAN, 1e31, INFINITE],
        "ngram_learning_rate": [0, 0.0, -1e-3, NAN, 1e31, INFINITE],
        "weight_decay": [-0.1, NAN, 1e7, INFINITE],
        "beta1": [-0.1, 1, 1.0, 2, NAN],
        "beta2": [-0.1, 1, 1.0, 2, NAN],
        "grad_clip": [-1.0, NAN, INFINITE],
        "warmup_iters": [-1, 2**31],
        "decay_fraction": [-0.1, 1.1, NAN, INFINITE],
        "eval_interval": [0, -1, 2**31],
        "log_interval": [0, -1, 2**31],
        "patience": [-1, 2**31],
        "seed": [-1, 2**128],
    },
    SampleConfig: {
        "temperature": [-0.1, NAN, INFINITE],
        "top_k": [0, -1],
        "top_p": [-0.1, 1.1, NAN],
        "min_p": [-0.1, 1.1, NAN],
        "repetition_penalty": [0, 0.0, -1.0, NAN, INFINITE],
    },
    SampleOptions: {
        "num_samples": [0, -1],
        "max_new_tokens": [-1],
        "seed": [-1],
    },
}

IN_RANGE = {
    ModelConfig: {
        "vocab_size": [1, 65536],
        "block_size": [1],
        "n_layer": [1],
        "n_head": [1, 2, 32],
        "ngram_size": [1, 16],
        "ngram_rows": [1, 2**31 - 1],
        "dropout": [0, 0.0, 0.999],
        "ngram_dropout": [0, 0.999],
    },
    TrainConfig: {
        "max_iters": [1, 2**31 - 1],
        "batch_size": [1],
        "weight_decay": [0.0],
        "beta1": [0.0],
        "beta2": [0.0],
        "grad_clip": [0.0],
        "warmup_iters": [0, 10**6],
        "decay_fraction": [0.0, 1.0],
        "seed": [0, 2**64, 2**128 - 1],
    },
    SampleConfig: {
        "temperature": [0.0, 1e-8, 100.0],
        "top_k": [None, 1, 10**6],
        "top_p": [None, 0.0, 1.0],
        "min_p": [None, 0.0, 1.0],
        "repetition_penalty": [0.5, 1.0, 2.0],
    },
    SampleOptions: {"max_new_tokens": [0], "seed": [0]},
}


def cases(table):
    return [
        pytest.param(cls, name, value, id=f"{cls.__name__}-{name}-{value}")
        for cls, options in table.items()
        for name, values in options.items()
        for value in values
    ]


def literal_options():
    return [
        (cls, option.name, typing.get_args(option.type))
        for cls in CONFIGS
        for option in fields(cls)
        if typing.get_origin(option.type) is typing.Literal
    ]


@pytest.mark.parametrize(("cls", "name", "value"), cases(OUT_OF_RANGE))
def test_value_out_of_range_is_named(cls, name, value):
    with pytest.raises(UserError) as caught:
        cls(**{name: value})
    message = str(caught.value)
    assert f"--{name} " in message
    assert repr(value) in message
    assert "\n" not in message


@pytest.mark.parametrize(("cls", "name", "value"), cases(IN_RANGE))
def test_value_at_the_edge_of_the_range_is_taken(cls, name, value):
    assert getattr(cls(**{name: value}), name) == value


@pytest.mark.parametrize(
    ("cls", "name"), [(TrainConfig, "grad_clip"), (SampleConfig, "temperature")]
)
def test_message_for_an_infinite_value_is_true(cls, name):
    with pytest.raises(UserError, match="finite"):
        cls(**{name: INFINITE})


@pytest.mark.parametrize(("cls", "name", "choices"), literal_options())
@pytest.mark.parametrize("value", ["nonsense", "", None, 3])
def test_value_that_is_no_choice_is_named(cls, name, choices, value):
    with pytest.raises(UserError) as caught:
        cls(**{name: value})
    message = str(caught.value)
    assert f"--{name} " in message
    assert repr(value) in message
    assert all(choice in message for choice in choices)


def test_options_with_choices_were_found():
    names = {name for _, name, _ in literal_options()}
    assert names >= {"norm", "position", "activation", "optimizer", "device", "dtype", "preset"}


@pytest.mark.parametrize(("cls", "name", "choices"), literal_options())
def test_every_choice_is_taken(cls, name, choices):
    for choice in choices:
        assert getattr(cls(**{name: choice}), name) == choice


def test_heads_must_be_even_for_rope_alone():
    with pytest.raises(UserError, match=r"--n_head is 2; .*rope"):
        ModelConfig(n_embd=6, n_head=2, position="rope")
    assert ModelConfig(n_embd=6, n_head=2, position="learned").head_size == 3
    assert ModelConfig(n_embd=6, n_head=2, position="sinusoidal").head_size == 3
    assert ModelConfig(n_embd=8, n_head=2, position="rope").head_size == 4


def test_width_must_be_even_for_sinusoids_alone():
    with pytest.raises(UserError, match=r"--n_embd is 9; .*sinusoidal"):
        ModelConfig(n_embd=9, n_head=3, position="sinusoidal")
    assert ModelConfig(n_embd=9, n_head=3, position="learned").head_size == 3


def test_resume_excludes_overwrite_and_init_from():
    for other in ({"overwrite": True}, {"init_from": Path("other.safetensors")}):
        with pytest.raises(UserError, match="--resume .*--" + next(iter(other))):
            RunConfig(resume=True, **other)
        assert not RunConfig(**other).resume
    assert RunConfig(resume=True).resume


@pytest.mark.parametrize("cls", [ModelConfig, TrainConfig])
def test_from_dict_gives_back_what_was_saved(cls):
    for preset in PRESETS.values():
        original = preset.model if cls is ModelConfig else preset.train
        assert from_dict(cls, dataclasses.asdict(original)) == original
    assert from_dict(cls, {}) == cls()


def test_from_dict_takes_a_whole_number_for_a_real_one():
    assert from_dict(ModelConfig, {"dropout": 0}).dropout == 0


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (ModelConfig, "n_layers"),
        (ModelConfig, ""),
        (ModelConfig, "__post_init__"),
        (ModelConfig, "head_size"),
        (TrainConfig, "n_layer"),
    ],
)
def test_from_dict_rejects_unknown_names(cls, name):
    with pytest.raises(ValueError, match=f"unknown option '{name}'"):
        from_dict(cls, {name: 1})


@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [
        (ModelConfig, "n_layer", "4"),
        (ModelConfig, "n_layer", 4.0),
        (ModelConfig, "n_layer", True),
        (ModelConfig, "n_layer", None),
        (ModelConfig, "dropout", "0.1"),
        (ModelConfig, "dropout", False),
        (ModelConfig, "bias", 1),
        (ModelConfig, "norm", 3),
        (ModelConfig, "norm", ["rmsnorm"]),
        (TrainConfig, "learning_rate", [0.1]),
        (TrainConfig, "seed", 1.5),
        (TrainConfig, "seed", 10**400),
        (TrainConfig, "grad_clip", 10**400),
    ],
)
def test_from_dict_rejects_wrong_types(cls, name, value):
    with pytest.raises(ValueError, match=name) as caught:
        from_dict(cls, {name: value})
    assert repr(value) in str(caught.value)


def test_from_dict_rejects_values_out_of_range():
    with pytest.raises(ValueError, match="n_layer is 0"):
        from_dict(ModelConfig, {"n_layer": 0})
    with pytest.raises(ValueError, match="norm is 'batchnorm'"):
        from_dict(ModelConfig, {"norm": "batchnorm"})


@pytest.mark.parametrize(
    ("activation", "gated", "hidden"),
    [
        *((name, False, 192) for name in ("relu", "gelu", "silu", "relu2")),
        *((name, True, 128) for name in ("geglu", "swiglu")),
    ],
)
def test_a_gated_layer_has_as_many_weights(activation, gated, hidden):
    """Two expansions and a projection, two thirds as wide, for one expansion and a projection."""
    config = ModelConfig(n_embd=48, activation=activation)
    assert (config.is_gated, config.hidden_size) == (gated, hidden)
    assert config.hidden_size * (3 if gated else 2) * 48 == 8 * 48 * 48


def test_a_step_reads_every_window_of_every_part():
    config = TrainConfig(batch_size=5, gradient_accumulation_steps=3)
    assert config.characters_per_step(ModelConfig(block_size=7)) == 5 * 3 * 7


def test_presets_are_the_choices_of_the_option():
    (option,) = (option for option in fields(RunConfig) if option.name == "preset")
    assert {*PRESETS, "auto"} == set(typing.get_args(option.type))


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_are_valid(name):
    model, train = PRESETS[name].model, PRESETS[name].train
    assert isinstance(model, ModelConfig)
    assert isinstance(train, TrainConfig)
    assert replace(model) == model
    assert replace(train) == train
    assert train.warmup_iters < train.max_iters
    assert model.head_size * model.n_head == model.n_embd
    assert PRESETS[name].passes >= 1


def test_classic_preset_is_the_model_of_the_course():
    model, train = PRESETS["classic"].model, PRESETS["classic"].train
    assert model.norm == "layernorm"
    assert model.position == "learned"
    assert model.activation == "relu"
    assert model.bias is True
    assert model.qk_norm is False
    assert model.ngram_size == 1
    assert model.embedding_skip is False
    assert model.tie_embeddings is False
    assert train.optimizer == "adamw"


def test_mini_preset_is_the_default_and_a_table():
    model = PRESETS["mini"].model
    assert (model.ngram_size, model.embedding_skip) == (5, True)
    plain = {"ngram_size": 1, "ngram_dropout": 0.0, "embedding_skip": False}
    assert replace(model, **plain) == ModelConfig()
    assert PRESETS["mini"].train == TrainConfig(look_ahead=2)


def test_base_preset_is_larger_than_mini():
    base, mini = PRESETS["base"].model, PRESETS["mini"].model
    for name in ("n_layer", "n_embd"):
        assert getattr(base, name) > getattr(mini, name)
    assert base.block_size >= mini.block_size


def test_presets_differ_in_what_makes_a_model_another():
    """Or a run that goes on could not be told by its model; see start.preset_of."""
    free = {"vocab_size": 1, "dropout": 0.0, "ngram_dropout": 0.0}
    assert len({replace(preset.model, **free) for preset in PRESETS.values()}) == len(PRESETS)


# How the classes are written


def class_definitions():
    tree = ast.parse(inspect.getsource(config_module))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def is_group(statement):
    return ast.unparse(statement.annotation).endswith("Config")


def is_text(statement):
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


@pytest.mark.parametrize("cls", CONFIGS)
def test_every_option_has_help_under_it(cls):
    body = class_definitions()[cls.__name__].body
    documented, options = set(), set()
    for statement, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and not is_group(statement):
            options.add(statement.target.id)
            if is_text(below) and below.value.value.strip().endswith("."):
                documented.add(statement.target.id)
    groups = {option.name for option in fields(cls) if is_dataclass(option.default_factory)}
    assert options == {option.name for option in fields(cls)} - groups
    assert documented == options


def test_all_configurations_were_found():
    assert set(CONFIGS) == {
        ModelConfig,
        TrainConfig,
        SampleConfig,
        DeviceConfig,
        RunConfig,
        CorpusConfig,
        TrainOptions,
        SampleOptions,
        EvaluateOptions,
        ToPageOptions,
        ToHuggingFaceOptions,
        ToOnnxOptions,
        FromNanogptOptions,
    }


@pytest.mark.parametrize("cls", CONFIGS)
def test_configurations_are_frozen_and_keyword_only(cls):
    config = cls()
    first = fields(cls)[0]
    with pytest.raises(FrozenInstanceError):
        setattr(config, first.name, getattr(config, first.name))
    with pytest.raises(TypeError):
        cls(getattr(config, first.name))
    assert all(option.kw_only for option in fields(cls))
    assert cls() == config
    assert hash(cls()) == hash(config)


def test_no_option_name_is_used_twice_in_one_command():
    for command in (TrainOptions, SampleOptions):
        names = []
        for option in fields(command):
            if is_dataclass(option.default_factory):
                names += [inner.name for inner in fields(option.default_factory)]
            else:
                names.append(option.name)
        assert len(names) == len(set(names))


def test_a_model_whose_positions_alone_would_fill_the_memory_is_refused():
    shape = {"n_layer": 64, "n_embd": 64, "n_head": 1}
    assert ModelConfig(block_size=65536, **shape).block_size == 65536
    with pytest.raises(UserError, match=r"--block_size is 65536; it must be 2\^28 / "):
        ModelConfig(block_size=65536, **shape | {"n_layer": 65})
