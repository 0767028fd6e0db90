"""What a run is to be: one plan, made of options, preset, checkpoint, device and text."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import (
    BeginOptions,
    CorpusConfig,
    FolderConfig,
    ModelConfig,
    PresetName,
    TrainConfig,
    TrainOptions,
    with_values,
)
from sancho.corpus import Corpus, remap_ids, require_length
from sancho.device import Device, choose_device, has_bfloat16
from sancho.errors import UserError
from sancho.optim import learning_rate_factor
from sancho.presets import LESS_DROPPED, MOST_DROPPED, PRESETS, SCALED
from sancho.training import EVALUATED, TrainingState
from sancho.weights import count_parameters

# Options of a model that may be others than in its checkpoint: the text decides the vocabulary.
FREE_TO_CHANGE = {"vocab_size", "dropout", "ngram_dropout"}

# One evaluation is made, or more: so many at most, on a fifth of a run's characters at most.
MOST_EVALUATIONS = 10
EVALUATION_FRACTION = 1 / 5

# Fine-tuning, measured on texts of 59,000 to 480,000 characters (docs/options.md): fractions of the
# preset's peak learning rates and of its most epochs; and where fewer characters than so many are
# read again, dropout costs more than it saves.
FINE_TUNING_RATE = 0.2
FINE_TUNING_EPOCHS = 0.5
READ_AGAIN = 200_000

SHOWN = 40  # new characters that are listed


@dataclass(frozen=True)
class Plan:
    """A run before its first step: its model and its optimizers are built."""

    state: TrainingState
    corpus: Corpus
    """In the ids of the model."""
    initial: Checkpoint | None
    """What the run goes on from, or took its first weights from."""
    decided: Mapping[str, float]
    """What the length of the text decided, by the names of options."""


def initial_checkpoint(options: FolderConfig) -> Checkpoint | None:
    """Return the checkpoint that a new run takes its first weights from, if one is asked for."""
    path = options.init_from
    return checkpoint.load(checkpoint.find_checkpoint(path)) if path else None


def default_options(
    early: BeginOptions,
    initial: Checkpoint | None = None,
    *,
    resumes: bool = False,
    processes: int = 1,
) -> TrainOptions:
    """Return the options that hold where nothing is said.

    A run that goes on has its own. A new one has those of a preset: the one asked for, that of the
    initial model, or what suits the device. On several GPUs each gets a micro-batch of the preset's
    size. On a GPU losses are read less often: it waits meanwhile.
    """
    if resumes and initial:
        return TrainOptions(
            data=CorpusConfig(dataset=initial.corpus_name),
            model=initial.model_config,
            train=initial.train_config,
            device=initial.device_config,
        )
    is_gpu = choose_device(early.device).torch_device.type == "cuda"
    name = early.preset
    if initial and name == "auto":
        name = preset_of(initial.model_config) or "auto"
    if name == "auto":  # a CUDA GPU without bfloat16 would take hours for base
        name = "base" if is_gpu and has_bfloat16("cuda") else "mini"
    model = PRESETS[name].model
    train = replace(PRESETS[name].train, preset=name)
    if initial:  # the n-gram table keeps its rate: a new text brings other n-grams
        model = initial.model_config
        train = replace(
            train,
            learning_rate=FINE_TUNING_RATE * train.learning_rate,
            muon_learning_rate=FINE_TUNING_RATE * train.muon_learning_rate,
        )
    if is_gpu:
        train = replace(train, gradient_accumulation_steps=processes, log_interval=100)
    return TrainOptions(model=model, train=train)


def make_plan(
    options: TrainOptions,
    corpus: Corpus,
    device: Device,
    initial: Checkpoint | None = None,
    *,
    resumes: bool = False,
    processes: int = 1,
) -> Plan:
    """Return the plan of a new run or, if it `resumes`, of the one that saved `initial`.

    Raises UserError where options, checkpoint and text do not fit.
    """
    found = {} if resumes else follow_text(options, corpus)
    # What was typed of these five is in options.auto; options.model and .train have the preset's.
    said = {name: value for name, value in vars(options.auto).items() if value is not None}
    model = with_values(options.model, found | said)
    train = with_values(options.train, found | said)
    if initial:
        _check_same(options, initial, resumes)
    if initial and resumes:
        _check_resumed(train, initial, corpus)
    _check_run(model, train, corpus, processes, is_trained=initial is not None)
    if initial is None:
        model = replace(model, vocab_size=corpus.tokenizer.vocab_size)
        state = TrainingState.start(model, train, device, corpus.train)
        return Plan(state, corpus, None, found)
    known = replace(initial, model_config=model)
    if resumes:
        state = TrainingState.restore(known, train, device)
    else:
        known = _with_new_characters(known, corpus)
        state = TrainingState.from_model(known.build_model(), train, device)
    return Plan(state, remap_ids(corpus, known.tokenizer), initial, found)


def follow_text(options: TrainOptions, corpus: Corpus) -> dict[str, float]:
    """Return the values of a new run's options that the length of its text decides, by name.

    What is said stays. A short text is read at most as often as the preset allows. Evaluations are
    few, but there is one at the end. The more often a text is read, the more of its n-grams are
    dropped and the more the logits are scaled, else it would be learned by heart.
    """
    said = options.auto
    is_tuned = options.folder.init_from is not None
    characters_per_step = options.train.characters_per_step(options.model)
    epochs = PRESETS[options.train.preset].epochs * (FINE_TUNING_EPOCHS if is_tuned else 1)
    most = math.ceil(epochs * len(corpus.train) / characters_per_step)
    found: dict[str, float] = {}
    if most < options.train.max_iters:
        found["max_iters"] = most
    max_iters = said.max_iters or min(options.train.max_iters, most)
    characters = max_iters * characters_per_step
    evaluated = min(max(1, len(corpus.val)), EVALUATED)
    evaluations = int(EVALUATION_FRACTION * characters / evaluated)
    found["eval_interval"] = math.ceil(max_iters / min(max(1, evaluations), MOST_EVALUATIONS))
    if is_tuned and characters - len(corpus.train) < READ_AGAIN:
        found["dropout"] = 0.0
    if options.model.ngram_size > 1:
        readings = characters / len(corpus.train)
        dropped = max(0.0, MOST_DROPPED - LESS_DROPPED / readings)
        found["ngram_dropout"] = round(dropped, 2)
        found["logit_scale"] = round(1 + SCALED * dropped, 2)
    return {name: value for name, value in found.items() if getattr(said, name) is None}


def _check_run(
    model: ModelConfig, train: TrainConfig, corpus: Corpus, processes: int, is_trained: bool
) -> None:
    require_length(corpus, model.block_size, is_fixed=is_trained)
    if train.gradient_accumulation_steps % processes:
        raise UserError(
            f"--gradient_accumulation_steps is {train.gradient_accumulation_steps}; the processes "
            f"share them, so it must be a multiple of {processes} (and --batch_size so much "
            "smaller)"
        )
    if train.compile and model.ngram_size > 1:
        advice = "leave it out, or give --ngram_size 1"
        raise UserError(f"--compile knows no sparse gradients, as of the n-gram table; {advice}")
    if train.tensorboard and not find_spec("tensorboard"):
        advice = "install it (pip install tensorboard), or leave --tensorboard out"
        raise UserError(f"--tensorboard needs the package tensorboard; {advice}")


def _check_same(options: TrainOptions, initial: Checkpoint, resumes: bool) -> None:
    ours = shape_options(options.model)
    theirs = shape_options(initial.model_config)
    if resumes:
        ours["look_ahead"] = options.train.look_ahead
        theirs["look_ahead"] = initial.train_config.look_ahead
    if resumes and options.preset != "auto":
        ours["preset"] = options.preset
        theirs["preset"] = initial.train_config.preset
    for name, value in ours.items():
        if value != theirs[name]:
            raise UserError(
                f"--{name} is {value}, but {theirs[name]} in the checkpoint; leave it out, or "
                "train a new model, without --resume and --init_from"
            )


def _check_resumed(train: TrainConfig, last: Checkpoint, corpus: Corpus) -> None:
    if not last.optimizer:
        advice = "begin a new run with its weights (--init_from) in another --out_dir"
        raise UserError(f"the run has no state of an optimizer to go on with; {advice}")
    if corpus.sha256 != last.corpus_sha256:
        advice = "give it the same --dataset or --corpus, or start a new run with --init_from"
        raise UserError(f"the run learned from another text than {corpus.name}; {advice}")
    if train.max_iters < last.progress.step:
        done = f"the run has done {last.progress.step} steps already"
        raise UserError(f"--max_iters is {train.max_iters}, but {done}; give more, or leave it out")


def preset_of(model: ModelConfig) -> PresetName | None:
    """Return the name of the preset that has this model, or None."""
    for name, preset in PRESETS.items():
        if shape_options(preset.model) == shape_options(model):
            return name
    return None


def shape_options(model: ModelConfig) -> dict[str, object]:
    """Return the options of a model but for FREE_TO_CHANGE."""
    return {name: x for name, x in asdict(model).items() if name not in FREE_TO_CHANGE}


def _with_new_characters(initial: Checkpoint, corpus: Corpus) -> Checkpoint:
    """Return a model that knows the characters of a text, too.

    The new ones get the ids after the known ones. Their rows of embedding and output head begin as
    those of the nearest known character, or else as the mean of all.
    """
    known = initial.tokenizer
    new = sorted(set(corpus.tokenizer.characters) - set(known.characters))
    ids = {character: i for i, character in enumerate(known.characters)}
    like = [ids.get(known.nearest(character) or "", -1) for character in new]
    weights = dict(initial.weights)
    for name in ("token_embedding.weight", "head.weight"):
        rows = weights[name]
        with_mean = np.concatenate([rows, rows.mean(axis=0, keepdims=True)])  # its place: −1
        weights[name] = np.concatenate([rows, with_mean[like]])
    characters = known.characters + "".join(new)
    config = replace(initial.model_config, vocab_size=len(characters))
    return replace(initial, model_config=config, characters=characters, weights=weights)


def describe(plan: Plan, out_dir: Path, *, processes: int) -> str:
    """Return a few lines: where a run begins, what is trained on what, for how long, and where."""
    state = plan.state
    corpus = plan.corpus
    model = state.model.config
    train = state.train_config
    step = state.progress.step
    first_line = f"a new run in {out_dir}"
    if step:
        first_line = f"going on with the run in {out_dir} after step {step:,}"
    if state.is_done:
        first_line += "; it is done: a larger --max_iters, or --patience 0, goes on"
    elif plan.initial and step >= plan.initial.train_config.max_iters:
        factor = learning_rate_factor(step, train)
        first_line += f"; it was done: its learning rates rise again, to {factor:.2f} of the peak"
    shape = f"{model.n_layer} layers × {model.n_head} heads × {model.n_embd} wide"
    epochs = train.max_iters * train.characters_per_step(model) / len(corpus.train)
    lines = [
        first_line,
        f"{preset_of(model) or shape}: {count_parameters(model):,} parameters; "
        f"{corpus.name}: {len(corpus.train):,} characters to train on; {train.max_iters:,} steps, "
        f"{epochs:,.1f} times the text",
    ]
    if plan.decided:
        decided = ", ".join(f"{name} {value:g}" for name, value in plan.decided.items())
        lines.append(f"the length of the text decides: {decided}")
    new = corpus.tokenizer.characters[len(plan.initial.characters) :] if plan.initial else ""
    if new:
        shown = " ".join(map(repr, new[:SHOWN])) + " …" * (len(new) > SHOWN)
        lines.append(f"{len(new):,} characters that the model did not know: {shown}")
    compiled = ", compiled" if train.compile else ""
    shared = f", {processes} processes" if processes > 1 else ""
    threads = f", threads: {train.threads}" if state.device.on_cpu else ""
    lines.append(f"{state.device}{threads}{compiled}{shared}")
    return "\n".join(lines)
