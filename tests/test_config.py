"""Options: what each one may be, and how it is refused."""

import dataclasses
import typing
from dataclasses import FrozenInstanceError, fields, is_dataclass
from pathlib import Path

import pytest

from sancho import config as config_module
from sancho.config import (
    RANGES,
    EvaluateOptions,
    ModelConfig,
    Range,
    RunConfig,
    SampleConfig,
    SampleOptions,
    TrainConfig,
    TrainOptions,
    from_dict,
    with_given,
)
from sancho.errors import UserError
from sancho.presets import PRESETS

NAN, INFINITE = float("nan"), float("inf")
CLASSES = [c for c in vars(config_module).values() if isinstance(c, type)]
CONFIGS = [c for c in CLASSES if is_dataclass(c) and c is not Range]

# What is just out of range and is refused, what is just in it and is taken, and whose that is.
EDGES = [
    ([0, 65537], [1, 65536], "vocab_size"),
    ([0, -1, 65537], [1], "block_size"),
    ([0, -1, 1001], [1, 1000], "n_layer"),
    ([0, -6, 5, 7, 192, 64], [1, 2, 32], "n_head"),
    ([0, -96, 65537], [4, 65536], "n_embd"),
    ([0, -1, 17], [1, 16], "ngram_size"),
    ([0, -1, 2**31, 10**400], [1, 2**31 - 1], "ngram_rows max_iters batch_size"),
    ([0, -1, 2**31], [1, 2**31 - 1], "gradient_accumulation_steps eval_interval log_interval"),
    ([-0.1, 1, 1.0, NAN, INFINITE], [0, 0.0, 0.999], "dropout ngram_dropout beta1 beta2"),
    ([0, 0.0, -1e-3, NAN, 1e31, INFINITE], [1e-9, 1e30], "learning_rate muon_learning_rate"),
    ([0, 0.0, -1e-3, NAN, 1e31, INFINITE], [1e-9, 1e30], "ngram_learning_rate"),
    ([-0.1, NAN, 1e7, INFINITE], [0.0, 1e6], "weight_decay"),
    ([-1.0, NAN, INFINITE], [0.0, 1e308], "grad_clip"),
    ([-1, 2**31], [0, 10**6], "warmup_iters patience"),
    ([-1, 17], [0, 16], "look_ahead"),
    ([-0.1, 1.1, NAN, INFINITE], [0.0, 1.0], "decay_fraction top_p min_p"),
    ([-1, 2**128], [0, 2**64, 2**128 - 1], "seed"),
    ([-1, 1025], [0, 1, 1024], "threads"),
    ([-0.1, NAN, INFINITE], [0.0, 1e-8, 100.0], "temperature"),
    ([0, -1], [None, 1, 10**12], "top_k"),
    ([0, 0.0, -1.0, NAN, INFINITE], [0.5, 1.0, 2.0], "repetition_penalty"),
    ([0, -1, 10_001], [1, 10_000], "num_samples"),
    ([-1], [0, 10**12], "max_new_tokens"),
    ([("a", "")], [(), ("a",)], "stop"),
]
VALUES = {name: edges for *edges, names in EDGES for name in names.split()}
OPTIONS = [(cls, o.name) for cls in CONFIGS for o in fields(cls) if o.name in VALUES]
CHOICES = [
    (cls, option.name, typing.get_args(option.type))
    for cls in CONFIGS
    for option in fields(cls)
    if typing.get_origin(option.type) is typing.Literal
]


def refused(cls, name, value) -> str:
    """Return the error line of a value, which names the option and the value."""
    with pytest.raises(UserError) as caught:
        cls(**{name: value})
    message = str(caught.value)
    assert message.startswith(f"--{name} is {value!r}; it must be ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("cls", "name"), OPTIONS, ids=[name for _, name in OPTIONS])
def test_values_at_the_edges(cls, name):
    outside, inside = VALUES[name]
    for value in outside:
        refused(cls, name, value)
    for value in inside:
        assert getattr(cls(**{name: value}), name) == value


def test_every_number_has_a_range():
    numbers = {
        option.name
        for cls in CONFIGS
        for option in fields(cls)
        if option.type in (int, float, int | None, float | None)
    }
    assert numbers == RANGES.keys() == VALUES.keys() - {"stop"}


@pytest.mark.parametrize(
    ("cls", "name", "value", "rule"),
    [
        (ModelConfig, "n_layer", 0, "at least 1 and at most 1000"),
        (ModelConfig, "dropout", 1, "at least 0 and less than 1"),
        (TrainConfig, "learning_rate", 0, "more than 0 and at most 1e+30"),
        (TrainConfig, "grad_clip", INFINITE, "finite and at least 0"),
        (SampleConfig, "repetition_penalty", 0, "finite and more than 0"),
        (RunConfig, "preset", "huge", "one of auto, mini, classic, base"),
    ],
)
def test_an_error_says_the_rule(cls, name, value, rule):
    assert refused(cls, name, value).endswith(f"; it must be {rule}")


@pytest.mark.parametrize(("cls", "name", "choices"), CHOICES)
def test_choices(cls, name, choices):
    for value in ("nonsense", "", None, 3, ["relu"]):
        assert all(choice in refused(cls, name, value) for choice in choices)
    for value in choices:
        assert getattr(cls(**{name: value}), name) == value


def test_what_positions_need():
    shape = {"n_embd": 9, "n_head": 3}
    assert ModelConfig(position="learned", **shape).head_size == 3
    for position, option in (("rope", "--n_head is 3"), ("sinusoidal", "--n_embd is 9")):
        with pytest.raises(UserError, match=f"{option}; .*{position}"):
            ModelConfig(position=position, **shape)
    assert ModelConfig(position="sinusoidal", n_embd=6, n_head=2).head_size == 3


def test_a_model_whose_positions_alone_would_fill_the_memory_is_refused():
    shape = {"n_layer": 64, "n_embd": 64, "n_head": 1}
    assert ModelConfig(block_size=65536, **shape).block_size == 65536
    with pytest.raises(UserError, match=r"--block_size is 65536; it must be at most 2\^28 / "):
        ModelConfig(block_size=65536, **shape | {"n_layer": 65})


def test_resume_excludes_overwrite_and_init_from():
    for other in ({"overwrite": True}, {"init_from": Path("other.safetensors")}):
        with pytest.raises(UserError, match="--resume .*--" + next(iter(other))):
            RunConfig(resume=True, **other)
        assert not RunConfig(**other).resume
    assert RunConfig(resume=True).resume


def test_a_gated_layer_has_as_many_weights():
    """Two expansions and a projection, two thirds as wide, for one expansion and a projection."""
    for activation, n_matrices in (("relu2", 2), ("swiglu", 3)):
        config = ModelConfig(n_embd=48, activation=activation)
        assert config.hidden_size * n_matrices * 48 == 8 * 48 * 48


def test_a_step_reads_every_window_of_every_micro_batch():
    config = TrainConfig(batch_size=5, gradient_accumulation_steps=3)
    assert config.characters_per_step(ModelConfig(block_size=7)) == 5 * 3 * 7


# --- from what a file holds -----------------------------------------------------------------


def test_from_dict_gives_back_what_was_saved():
    for preset in PRESETS.values():
        for original in (preset.model, preset.train):
            assert from_dict(type(original), dataclasses.asdict(original)) == original
    assert from_dict(ModelConfig, {"dropout": 0}) == ModelConfig()


@pytest.mark.parametrize("name", ["n_layers", "", "__post_init__", "head_size", "max_iters"])
def test_from_dict_rejects_unknown_names(name):
    with pytest.raises(ValueError, match=f"unknown option '{name}'"):
        from_dict(ModelConfig, {name: 1})


@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [
        *((ModelConfig, "n_layer", value) for value in ("4", 4.0, True, None, 0)),
        *((ModelConfig, "dropout", value) for value in ("0.1", False)),
        *((ModelConfig, "norm", value) for value in (3, ["rmsnorm"], "batchnorm")),
        (ModelConfig, "bias", 1),
        (TrainConfig, "learning_rate", [0.1]),
        *((TrainConfig, "seed", value) for value in (1.5, 10**400)),
        (TrainConfig, "grad_clip", 10**400),
    ],
)
def test_from_dict_rejects_wrong_values(cls, name, value):
    with pytest.raises(ValueError, match=name) as caught:
        from_dict(cls, {name: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("values", [None, [], "n_layer", 4])
def test_from_dict_takes_an_object_alone(values):
    with pytest.raises(ValueError, match="ModelConfig is not an object"):
        from_dict(ModelConfig, values)


def test_what_is_given_takes_its_place_at_any_depth():
    found = with_given(TrainOptions(), {"compile": True, "n_layer": 7, "another": 1})
    assert found == TrainOptions(compile=True, model=ModelConfig(n_layer=7))


# --- how the classes are written; the help under each option: test_house.py ------------------


@pytest.mark.parametrize("cls", CONFIGS)
def test_configurations_are_frozen_and_keyword_only(cls):
    config, names = cls(), [option.name for option in fields(cls)]
    for name in names:
        with pytest.raises(FrozenInstanceError):
            setattr(config, name, getattr(config, name))
    if names:
        with pytest.raises(TypeError):
            cls(getattr(config, names[0]))
    assert cls() == config
    assert hash(cls()) == hash(config)


@pytest.mark.parametrize("command", [TrainOptions, SampleOptions, EvaluateOptions])
def test_no_option_name_is_used_twice_in_one_command(command):
    names = []
    for option in fields(command):
        inner = option.default_factory
        names += [o.name for o in fields(inner)] if is_dataclass(inner) else [option.name]
    assert len(names) == len(set(names)) > 4
