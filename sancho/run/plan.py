"""What a run is to be: one plan, made of what was typed, preset, checkpoint, device and text."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import (
    Checked,
    FolderConfig,
    ModelConfig,
    PresetName,
    RunConfig,
    TrainConfig,
    TrainOptions,
    with_values,
)
from sancho.corpus import Corpus, open_corpus
from sancho.errors import UserError
from sancho.machine.device import choose_device, has_bfloat16
from sancho.presets import PRESETS
from sancho.run.folder import RunFolder
from sancho.training import EVALUATED

Options = TypeVar("Options", bound=Checked)

# Options of a model that change no weight's shape or meaning.
FREE_TO_CHANGE = {"vocab_size", "dropout", "ngram_dropout"}

# Up to so many evaluations are made, so that all take a fifth of the characters of a run at most.
MOST_EVALUATIONS = 10
EVALUATION_FRACTION = 1 / 5

# Of a text that is read E times, 0.85 − 1.35 / E of the vectors of its n-grams are dropped and the
# logits are multiplied by 1 + 0.15 times that (benchmarks/diary.md).
MOST_NGRAMS_DROPPED = 0.85
NGRAMS_KEPT_BY_READING = 1.35
SCALE_BY_DROPOUT = 0.15

# Fine-tuning, measured on texts of 59,000 to 480,000 characters (docs/options.md): fractions of the
# preset's peak learning rates and of its most epochs, and up to how many characters that are read
# again dropout costs more than it saves.
FINE_TUNING_RATE = 0.2
FINE_TUNING_EPOCHS = 0.5
READ_AGAIN = 200_000

Typed = Mapping[str, Any]
"""Values by the names of the options that were typed."""


@dataclass(frozen=True)
class RunPlan:
    """A run before it begins."""

    options: TrainOptions
    corpus: Path
    """The folder of the prepared text."""
    initial: Checkpoint | None = None
    """What the run goes on from, or takes its first weights from."""
    goes_on: bool = False
    decided: str = ""
    """What the length of the text decided, in a line."""


def make_plan(typed: Typed, folder: RunFolder, data: str | Path, processes: int = 1) -> RunPlan:
    """Return the plan to go on with the run in `folder`, if that is asked for, or of a new one.

    data: the folder of the texts, where the text is prepared if it is not yet. A run that goes on
    has its own options, with what is typed, and its folder is locked. A new run has the options of
    a preset, with what is typed. Raises UserError where options, checkpoint and text do not fit.
    """
    typed = {name: value for name, value in typed.items() if (name, value) != ("preset", "auto")}
    asked = typed_options(FolderConfig, typed)
    if asked.resume and folder.last.exists():
        folder.lock()
        plan = _plan_to_go_on(typed, folder, Path(data))
    else:
        plan = _plan_anew(typed, asked, Path(data), processes)
    if plan.options.run.tensorboard and not find_spec("tensorboard"):
        advice = "install it (pip install tensorboard), or leave --tensorboard out"
        raise UserError(f"--tensorboard needs the package tensorboard; {advice}")
    return plan


def typed_options(cls: type[Options], typed: Typed) -> Options:
    """Return one of the dataclasses of TrainOptions with those of its options that were typed."""
    names = {option.name for option in fields(cls)}
    return cls(**{name: value for name, value in typed.items() if name in names})


def _plan_to_go_on(typed: Typed, folder: RunFolder, data: Path) -> RunPlan:
    last = folder.load_last()
    if not last.optimizer:
        advice = "begin a new run with its weights (--init_from) in another --out_dir"
        raise UserError(f"{folder.last} has no state of an optimizer to go on with; {advice}")
    own = TrainOptions(model=last.model, train=last.train, run=last.run)
    options = with_values(own, {"dataset": last.corpus_name, **typed})
    if options.run.dtype == "auto" and choose_device(options.run).on_cpu:
        # Checkpoints of version 1 don't say it: the run had float32 there.
        options = with_values(options, {"dtype": "float32"})
    corpus = open_corpus(data, options.data)
    _check_same_model(options, last, {"look_ahead", "preset"})
    if corpus.sha256 != last.corpus_sha256:
        advice = "give it the same --dataset or --corpus, or start a new run with --init_from"
        raise UserError(f"the run learned from another text than {corpus.name}; {advice}")
    train = options.train
    if train.max_iters < last.progress.step:
        raise UserError(
            f"--max_iters is {train.max_iters}, but the run has done {last.progress.step} steps "
            "already; give more, or leave it out"
        )
    return RunPlan(options, data / corpus.name, last, goes_on=True)


def _plan_anew(typed: Typed, asked: FolderConfig, data: Path, processes: int) -> RunPlan:
    initial = checkpoint.load_or_pretrained(asked.init_from) if asked.init_from else None
    options = with_values(preset_options(typed, initial, processes), typed)
    corpus = open_corpus(data, options.data)
    if initial:
        _check_same_model(options, initial, set())
    options, decided = follow_text(options, corpus, typed)
    return RunPlan(options, data / corpus.name, initial, decided=decided)


def preset_options(
    typed: Typed, initial: Checkpoint | None = None, processes: int = 1
) -> TrainOptions:
    """Return the options that hold for a new run where nothing is typed for them.

    They are those of a preset: the typed one, that of the initial model, or what suits the device.
    A new run on several GPUs gives each of them a micro-batch of the preset's size. On a GPU losses
    are read less often: it waits meanwhile.
    """
    run = typed_options(RunConfig, typed)
    is_gpu = choose_device(run).torch_device.type == "cuda"
    name: PresetName | None = run.preset
    if initial and name == "auto":
        name = preset_of(initial.model)
    if name in ("auto", None):  # a CUDA GPU without bfloat16 would take hours for base
        name = "base" if is_gpu and has_bfloat16("cuda") else "mini"
    assert name is not None
    model = PRESETS[name].model
    train = PRESETS[name].train
    if initial:  # the n-gram table keeps its rate: a new text brings other n-grams
        model = initial.model
        train = replace(
            train,
            learning_rate=FINE_TUNING_RATE * train.learning_rate,
            muon_learning_rate=FINE_TUNING_RATE * train.muon_learning_rate,
        )
    if is_gpu:
        train = replace(train, gradient_accumulation_steps=processes, log_interval=100)
    return TrainOptions(model=model, train=train, run=RunConfig(preset=name))


def follow_text(options: TrainOptions, corpus: Corpus, typed: Typed) -> tuple[TrainOptions, str]:
    """Return options of a new run that suit the length of its text, and a line that says which.

    What is typed stays. A short text is read as often as the preset allows, at most. Evaluations
    are few, but there is one at the end. The more often a text is read, the more of its n-grams are
    dropped and the more the logits are scaled, else it would be learned by heart.
    """
    is_tuned = options.folder.init_from is not None
    characters_per_step = options.train.characters_per_step(options.model)
    epochs = PRESETS[options.run.preset].epochs * (FINE_TUNING_EPOCHS if is_tuned else 1)
    most = math.ceil(epochs * len(corpus.train) / characters_per_step)
    found: dict[str, float] = {}
    if most < options.train.max_iters:
        found["max_iters"] = most
    max_iters = typed.get("max_iters", min(options.train.max_iters, most))
    characters = max_iters * characters_per_step
    evaluated = min(max(1, len(corpus.val)), EVALUATED)
    evaluations = int(EVALUATION_FRACTION * characters / evaluated)
    found["eval_interval"] = math.ceil(max_iters / min(max(1, evaluations), MOST_EVALUATIONS))
    if is_tuned and characters - len(corpus.train) < READ_AGAIN:
        found["dropout"] = 0.0
    if options.model.ngram_size > 1:
        readings = characters / len(corpus.train)
        dropped = max(0.0, MOST_NGRAMS_DROPPED - NGRAMS_KEPT_BY_READING / readings)
        found["ngram_dropout"] = round(dropped, 2)
        found["logit_scale"] = round(1 + SCALE_BY_DROPOUT * dropped, 2)
    found = {name: value for name, value in found.items() if name not in typed}
    if not found:
        return options, ""
    decided = ", ".join(f"{name} {value:g}" for name, value in found.items())
    return with_values(options, found), f"the length of the text decides: {decided}"


def preset_of(model: ModelConfig) -> PresetName | None:
    """Return the name of the preset that has this model, or None."""
    for name, preset in PRESETS.items():
        if shape_options(preset.model) == shape_options(model):
            return name
    return None


def shape_options(model: ModelConfig) -> dict[str, object]:
    """Return the options of a model that its weights depend on."""
    return {name: x for name, x in asdict(model).items() if name not in FREE_TO_CHANGE}


def _check_same_model(options: TrainOptions, initial: Checkpoint, more: set[str]) -> None:
    """Raise UserError where an option that the weights depend on, or one of `more`, differs."""
    theirs = _all_options(initial.model, initial.train, initial.run)
    ours = _all_options(options.model, options.train, options.run)
    for name in [*shape_options(options.model), *sorted(more)]:
        if theirs[name] not in (ours[name], "auto"):
            raise UserError(
                f"--{name} is {ours[name]}, but {theirs[name]} in the checkpoint; leave it out, or "
                "start a new run in another --out_dir"
            )


def _all_options(model: ModelConfig, train: TrainConfig, run: RunConfig) -> dict[str, object]:
    return asdict(model) | asdict(train) | asdict(run)
