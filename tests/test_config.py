"""Options: what each one may be, and how it is refused."""

import dataclasses
import math
import re
from dataclasses import fields
from types import UnionType
from typing import Annotated, Literal, get_args, get_origin

import pytest
from conftest import SCRIPTS

from sancho import config as config_module
from sancho.config import DeviceConfig, ModelConfig, Range, TrainConfig, from_dict, options_of
from sancho.errors import UserError
from sancho.presets import PRESETS, TrainOptions

NAN = math.nan
INFINITE = math.inf
CLASSES = [c for c in vars(config_module).values() if isinstance(c, type)]
CONFIGS = [c for c in CLASSES if issubclass(c, config_module.Checked)]
CONFIGS += [TrainOptions, SCRIPTS["sample.py"].SampleOptions]

# What is just out of range and is refused, what is just in it and is taken, and whose that is.
EDGES = [
    ([0, -1, 65537], [1, 65536], "vocab_size batch_size"),
    ([0, -1, 65537], [1], "block_size"),
    ([0, -1, 1001], [1, 1000], "n_layer"),
    ([0, -6, 5, 7, 192, 64], [1, 2, 32], "n_head"),
    ([0, -96, 65537], [4, 65536], "n_embd"),
    ([0, -1, 17], [1, 16], "ngram_size"),
    ([0, -1, 2**31, 10**400], [1, 2**31 - 1], "ngram_rows max_iters"),
    ([0, -1, 2**31], [1, 2**31 - 1], "gradient_accumulation_steps eval_interval log_interval"),
    ([0, -1, 2**31], [1, 2**31 - 1], "num_samples"),
    ([-0.1, 1, 1.0, NAN, INFINITE], [0, 0.0, 0.999], "dropout ngram_dropout beta1 beta2"),
    ([-1e-3, NAN, 1e31, INFINITE], [0, 1e-9, 1e30], "learning_rate muon_learning_rate"),
    ([-1e-3, NAN, 1e31, INFINITE], [0, 1e-9, 1e30], "ngram_learning_rate"),
    ([-0.1, NAN, 1e7, INFINITE], [0.0, 1e6], "weight_decay"),
    ([-1.0, NAN, INFINITE], [0.0, 1e308], "grad_clip"),
    ([-1, 2**31], [0, 10**6], "warmup_iters patience"),
    ([-1, 17], [0, 16], "look_ahead"),
    ([0, -1.0, NAN, 1001], [1e-3, 1000], "logit_scale"),
    ([-0.1, 1.1, NAN, INFINITE], [0.0, 1.0], "decay_fraction top_p min_p"),
    ([-1, 2**128], [0, 2**64, 2**128 - 1], "seed"),
    ([-1, 1025], [0, 1, 1024], "threads"),
    ([-0.1, NAN, INFINITE], [0.0, 1e-8, 100.0], "temperature"),
    ([0, -1], [None, 1, 10**12], "top_k"),
    ([-1, 2**31], [0, 2**31 - 1], "max_new_tokens"),
    ([("a", "")], [(), ("a",)], "stop"),
]
VALUES = {name: edges for *edges, names in EDGES for name in names.split()}
FIELDS = [(cls, option) for cls in CONFIGS for option in fields(cls)]
OPTIONS = [(cls, option.name) for cls, option in FIELDS if option.name in VALUES]
CHOICES = [(cls, o.name, get_args(o.type)) for cls, o in FIELDS if get_origin(o.type) is Literal]
CHOICES += [(TrainOptions, "preset", ("auto", *PRESETS))]


def refused(cls, name, value) -> str:
    """Return the error line of a value, which names the option and the value."""
    with pytest.raises(UserError) as caught:
        cls(**{name: value})
    assert str(caught.value).startswith(f"--{name} is {value!r}; it must be ")
    return str(caught.value)


@pytest.mark.parametrize(("cls", "name"), OPTIONS, ids=[name for _, name in OPTIONS])
def test_values_at_the_edges(cls, name):
    outside, inside = VALUES[name]
    without_table = {"ngram_size": 1} if cls is ModelConfig else {}  # which bounds its sizes
    for value in outside:
        refused(cls, name, value)
    for value in inside:
        assert getattr(cls(**without_table | {name: value}), name) == value


def numbers_of(kind) -> set[type]:
    """Return int or float if an option of this type is a number, with a range or without."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return {int, float} & {*(get_args(kind) if isinstance(kind, UnionType) else [kind])}


def test_every_number_has_a_range():
    numbers = [option for _, option in FIELDS if numbers_of(option.type)]
    assert all(isinstance(get_args(option.type)[1], Range) for option in numbers)
    untested = {option.name for option in numbers} - VALUES.keys()
    assert not untested, f"give EDGES, above, what is just in and just out of {untested}"


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


@pytest.mark.parametrize(
    ("shape", "name", "most", "words"),
    [
        ({"n_layer": 64, "n_embd": 64, "n_head": 1}, "block_size", 65536, r"2\^28 / \(n_layer"),
        ({"n_layer": 1, "n_embd": 64}, "ngram_rows", 2**25, r"2\^31 / n_embd"),
    ],
)
def test_a_model_whose_positions_or_table_alone_would_fill_the_memory(shape, name, most, words):
    assert getattr(ModelConfig(**shape, **{name: most}), name) == most
    wider = {name: value * 2 for name, value in shape.items()}
    with pytest.raises(UserError, match=rf"--{name} is {most}; it must be at most {words}"):
        ModelConfig(**wider, **{name: most})


def test_a_gated_layer_has_as_many_weights():
    """Two expansions and a projection, two thirds as wide, for one expansion and a projection."""
    for activation, n_matrices in (("relu2", 2), ("swiglu", 3)):
        config = ModelConfig(n_embd=48, activation=activation)
        assert config.hidden_size * n_matrices * 48 == 8 * 48 * 48


def test_from_dict_gives_back_what_was_saved():
    for preset in PRESETS.values():
        for original in (preset.model, preset.train, DeviceConfig(device="cpu", dtype="bfloat16")):
            assert from_dict(type(original), dataclasses.asdict(original)) == original
    assert from_dict(ModelConfig, {"dropout": 0}) == ModelConfig()


WRONG = [
    *((ModelConfig, "n_layer", value) for value in ("4", 4.0, True, None, 0)),
    *((ModelConfig, "norm", value) for value in (3, ["rmsnorm"], "batchnorm")),
    *((ModelConfig, "dropout", value) for value in (False, None)),
    (TrainConfig, "compile", 1),
    *((TrainConfig, name, 10**400) for name in ("seed", "grad_clip")),
]


@pytest.mark.parametrize(
    ("cls", "values", "words"),
    [
        *((ModelConfig, values, "not an object") for values in (None, [], "n_layer")),
        *((ModelConfig, {name: 1}, f"option '{name}'") for name in ("n_layers", "head_size")),
        *((cls, {name: value}, f"{name} .*{re.escape(repr(value))}") for cls, name, value in WRONG),
    ],
)
def test_from_dict_rejects_what_no_dataclass_holds(cls, values, words):
    with pytest.raises(ValueError, match=words):
        from_dict(cls, values)


def test_values_go_to_the_fields_that_they_name():
    values = {"dropout": 0.5, "max_iters": 7, "another": 1}
    assert options_of(ModelConfig, values) == ModelConfig(dropout=0.5)
    assert options_of(TrainConfig, values) == TrainConfig(max_iters=7)
