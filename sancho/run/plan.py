"""The plan of a run, made without PyTorch from options, preset, checkpoint, device and text."""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from sancho.checkpoint import Checkpoint
from sancho.config import EVALUATED, DeviceConfig, ModelConfig, TrainConfig, options_of
from sancho.errors import UserError
from sancho.presets import LESS_DROPPED, MOST_DROPPED, PRESETS, SCALED
from sancho.text.corpus import Corpus, require_length

if TYPE_CHECKING:
    from sancho.machine.device import Device

Options = TypeVar("Options", ModelConfig, TrainConfig, DeviceConfig)

# Options of a model that may differ from its checkpoint: the text decides the vocabulary.
FREE_TO_CHANGE = {"vocab_size", "dropout", "ngram_dropout"}

FOLLOW_TEXT = "max_iters eval_interval dropout ngram_dropout logit_scale".split()
"""Options that the length of the text may decide unless they are typed (auto)."""

# A run has at least one evaluation, and at most this many, on at most this fraction of its
# characters.
MOST_EVALUATIONS = 10
EVALUATION_FRACTION = 1 / 5

# Fine-tuning, measured on texts of 59,000 to 480,000 characters (docs/options.md): fractions of the
# preset's peak learning rates and of its epochs; and the number of characters read again below
# which dropout makes the loss worse.
FINE_TUNING_RATE = 0.2
FINE_TUNING_EPOCHS = 0.5
READ_AGAIN = 200_000


@dataclass(frozen=True)
class Beginning:
    """The checkpoint that a run begins from, if any."""

    checkpoint: Checkpoint | None = None
    """The last one of the run that goes on, or the one whose weights a new run takes."""
    resumes: bool = False
    """Whether the run of that checkpoint goes on."""


NOTHING = Beginning()


@dataclass(frozen=True)
class Plan:
    """The options of a run, all decided."""

    model: ModelConfig
    train: TrainConfig
    decided: Mapping[str, float]
    """The values that the length of the text decided, by the names of options."""


def device_config(typed: Mapping[str, Any], beginning: Beginning) -> DeviceConfig:
    """Return the device options that are typed; a run that goes on keeps its own for the rest."""
    initial = beginning.checkpoint
    before = asdict(initial.device_config) if initial and beginning.resumes else {}
    return options_of(DeviceConfig, {**before, **typed})


def defaults(
    typed: Mapping[str, Any],
    device: "Device",
    beginning: Beginning = NOTHING,
    processes: int = 1,
) -> dict[str, Any]:
    """Return the values of a run's options, by name, before the text and what is typed change them.

    A run that goes on keeps its own options. A new run has those of a preset: the one that is
    typed, that of the initial model, or the one that suits the device. On several GPUs each gets a
    micro-batch of the preset's size. A GPU reads losses less often, because it waits meanwhile.
    """
    initial = beginning.checkpoint
    if initial and beginning.resumes:
        own = (initial.model_config, initial.train_config, initial.device_config)
        return {name: value for config in own for name, value in asdict(config).items()}
    name = typed.get("preset", "auto")
    if initial and name == "auto":
        name = preset_of(initial.model_config) or "auto"
    if name == "auto":
        name = "base" if device.suits_base else "mini"
    values = asdict(PRESETS[name].model) | asdict(PRESETS[name].train) | {"preset": name}
    if initial:  # the n-gram table keeps its rate, because a new text has other n-grams
        values |= asdict(initial.model_config)
        values["learning_rate"] *= FINE_TUNING_RATE
        values["muon_learning_rate"] *= FINE_TUNING_RATE
    if device.torch_device.type == "cuda":
        values |= {"gradient_accumulation_steps": processes, "log_interval": 100}
    return values


def make_plan(
    typed: Mapping[str, Any],
    usual: Mapping[str, Any],
    corpus: Corpus,
    beginning: Beginning = NOTHING,
    processes: int = 1,
) -> Plan:
    """Return the plan of a run on a text.

    usual: the `defaults` of its options. What the length of the text decides replaces them, and
    what is typed replaces both. Raises UserError if options, checkpoint and text do not fit
    together.
    """
    initial = beginning.checkpoint
    values = {**usual, **typed, "preset": usual["preset"]}
    decided = {}
    if not beginning.resumes:
        decided = follow_text(values, typed, corpus, is_tuned=initial is not None)
    model = options_of(ModelConfig, values | decided)
    train = options_of(TrainConfig, values | decided)
    if initial:
        _check_same(model, train, typed.get("preset", "auto"), initial, beginning.resumes)
    if initial and beginning.resumes:
        _check_resumed(train, initial, corpus)
    _check_run(model, train, corpus, processes, is_trained=initial is not None)
    return Plan(model, train, decided)


def follow_text(
    values: Mapping[str, Any], typed: Collection[str], corpus: Corpus, *, is_tuned: bool
) -> dict[str, float]:
    """Return those of FOLLOW_TEXT that the length of a new run's text decides, by name.

    `values` are those of all options, and the ones that are typed stay. A short text is read at
    most as often as the preset allows. Evaluations are few, but there is always one at the end. The
    more often a text is read, the more of its n-grams are dropped and the more the logits are
    scaled; otherwise the model would learn it by heart.
    """
    windows = values["batch_size"] * values["gradient_accumulation_steps"]
    characters_per_step = values["block_size"] * windows
    max_iters = values["max_iters"]
    found: dict[str, float] = {}
    epochs = PRESETS[values["preset"]].epochs * (FINE_TUNING_EPOCHS if is_tuned else 1)
    most = math.ceil(epochs * len(corpus.train) / characters_per_step)
    if most < max_iters and "max_iters" not in typed:
        max_iters = found["max_iters"] = most
    characters = max_iters * characters_per_step
    evaluated = min(max(1, len(corpus.val)), EVALUATED)
    evaluations = int(EVALUATION_FRACTION * characters / evaluated)
    found["eval_interval"] = math.ceil(max_iters / min(max(1, evaluations), MOST_EVALUATIONS))
    if is_tuned and characters - len(corpus.train) < READ_AGAIN:
        found["dropout"] = 0.0
    if values["ngram_size"] > 1:
        readings = characters / len(corpus.train)
        dropped = max(0.0, MOST_DROPPED - LESS_DROPPED / readings)
        found["ngram_dropout"] = round(dropped, 2)
        found["logit_scale"] = round(1 + SCALED * dropped, 2)
    return {name: value for name, value in found.items() if name not in typed}


def _check_run(
    model: ModelConfig, train: TrainConfig, corpus: Corpus, processes: int, is_trained: bool
) -> None:
    require_length(corpus, model.block_size, is_fixed=is_trained)
    if train.gradient_accumulation_steps % processes:
        raise UserError(
            f"--gradient_accumulation_steps is {train.gradient_accumulation_steps}; make it a "
            f"multiple of {processes}, since the processes share the micro-batches (and make "
            "--batch_size smaller in return)"
        )
    if train.compile and model.ngram_size > 1:
        advice = "leave it out, or give --ngram_size 1"
        raise UserError(
            f"--compile does not work with the sparse gradients of the n-gram table; {advice}"
        )
    if train.tensorboard and not find_spec("tensorboard"):
        advice = "install it (pip install tensorboard), or leave --tensorboard out"
        raise UserError(f"--tensorboard needs the package tensorboard; {advice}")


def _check_same(
    model: ModelConfig, train: TrainConfig, preset: str, initial: Checkpoint, resumes: bool
) -> None:
    ours = shape_options(model)
    its_model = shape_options(initial.model_config)
    theirs = dict(its_model)
    if resumes:
        ours["look_ahead"] = train.look_ahead
        theirs["look_ahead"] = initial.train_config.look_ahead
    if preset != "auto":
        ours["preset"] = preset
        theirs["preset"] = initial.train_config.preset
        has_its_model = shape_options(PRESETS[preset].model) == its_model
        if has_its_model and not resumes:  # a new run may take only the training of a preset
            theirs["preset"] = preset
    for name, value in ours.items():
        if value != theirs[name]:
            raise UserError(
                f"--{name} is {value}, but {theirs[name]} in the checkpoint; leave it out, or "
                "train a new model, without --resume and --init_from"
            )


def _check_resumed(train: TrainConfig, last: Checkpoint, corpus: Corpus) -> None:
    if not last.optimizer:
        advice = "begin a new run with its weights (--init_from) in another --out_dir"
        raise UserError(f"the checkpoint has no optimizer state, so the run can't go on; {advice}")
    if corpus.sha256 != last.corpus_sha256:
        advice = "leave --corpus out, or start a new run with --init_from in another --out_dir"
        raise UserError(f"the run learned from another text than {corpus.name}; {advice}")
    if train.max_iters < last.progress.step:
        done = f"the run has done {last.progress.step} steps already"
        raise UserError(f"--max_iters is {train.max_iters}, but {done}; give more, or leave it out")


def preset_of(model: ModelConfig) -> str | None:
    """Return the name of the preset that has this model, or None."""
    for name, preset in PRESETS.items():
        if shape_options(preset.model) == shape_options(model):
            return name
    return None


def changes(before: Options, after: Options) -> dict[str, tuple[object, object]]:
    """Return the options that differ between two dataclasses: by name, the value in each."""
    values = asdict(before)
    return {
        name: (values[name], value)
        for name, value in asdict(after).items()
        if value != values[name]
    }


def shape_options(model: ModelConfig) -> dict[str, object]:
    """Return the options of a model without those in FREE_TO_CHANGE."""
    return {name: x for name, x in asdict(model).items() if name not in FREE_TO_CHANGE}
