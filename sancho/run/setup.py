"""Set up a run: new, resumed or fine-tuned."""

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from sancho import checkpoint
from sancho.checkpoint import Checkpoint, count_parameters
from sancho.config import (
    CorpusConfig,
    DeviceConfig,
    ModelConfig,
    PresetName,
    RunConfig,
    TrainConfig,
    TrainOptions,
    from_dict,
    with_given,
)
from sancho.corpus import Corpus, remap_ids
from sancho.errors import MissingFile, UserError
from sancho.machine.device import Device, has_bfloat16
from sancho.machine.distributed import launch
from sancho.presets import PRESETS
from sancho.run.folder import RunFolder
from sancho.tokenizer import CharTokenizer
from sancho.training import TrainingState

FREE_TO_CHANGE = {"vocab_size", "dropout", "ngram_dropout"}
"""Options of a model that change no weight's shape or meaning (vocab_size is no option)."""
FINE_TUNING_RATE = 0.2
"""Peak learning rates of fine-tuning, as a fraction of the preset's."""
FINE_TUNING_PASSES = 0.5
"""Most epochs of fine-tuning, as a fraction of the preset's."""
READ_AGAIN = 200_000
"""Characters that are read more than once up to which dropout costs a tuned model more than it
saves. All three were measured on texts of 59,000 to 480,000 characters (docs/options.md)."""
SHOWN = 20
"""How many new characters are listed."""


def kept_options(run: RunConfig) -> TrainOptions:
    """Return what holds where the user says nothing, of what no checkpoint decides.

    For a run that goes on that is what it was started with: preset, --tensorboard, --device,
    --dtype and --compile. Warns where its config.json does not say so.
    """
    folder = RunFolder(run.out_dir)
    if not run.resume or not folder.last.exists():
        return TrainOptions()
    try:
        found = json.loads(folder.config.read_bytes())
        of_run = {name: found["run"][name] for name in ("preset", "tensorboard")}
        return replace(
            from_dict(TrainOptions, {"compile": found["compile"]}),
            run=from_dict(RunConfig, of_run),
            device=from_dict(DeviceConfig, found["device"]),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        warnings.warn(
            f"{folder.config} is missing or damaged: --device, --dtype, --compile and "
            "--tensorboard are not as the run had them, unless you give them",
            stacklevel=2,
        )
        return TrainOptions()


def check_preset(run: RunConfig, kept: RunConfig, initial: Checkpoint | None) -> None:
    """Raise UserError where a run that goes on is asked for another preset than its own."""
    if not run.resume or not initial or run.preset in ("auto", kept.preset):
        return
    if run.preset != preset_of(initial.model):
        raise UserError(
            f"--preset {run.preset} is not the preset of the run in {run.out_dir}; leave it out, "
            "or start a new run in another --out_dir"
        )


def check_memory(options: TrainOptions, device: Device) -> None:
    """Raise UserError where a step takes more memory than the device has, however it is computed.

    That is 4 bytes for each weight, and 16 for each channel of each character in each block, where
    the backward pass wants 50 and more.
    """
    model, train = options.model, options.train
    characters = train.batch_size * model.block_size
    needed = 4 * count_parameters(model) + 16 * model.n_layer * model.n_embd * characters
    if needed > device.memory:
        raise UserError(
            f"this model with --batch_size {train.batch_size} takes more than "
            f"{needed / 2**30:,.0f} GiB of memory, and the {device.where.type} has "
            f"{device.memory / 2**30:,.0f}; give a smaller --batch_size or a smaller model"
        )


def find_initial(run: RunConfig) -> Checkpoint | None:
    """Return the checkpoint that a run begins with, or None for a new model."""
    if run.resume:
        return RunFolder(run.out_dir).load_last()
    path = run.init_from
    if path == Path("pretrained") and not path.is_file():
        path = checkpoint.PRETRAINED
    try:
        return checkpoint.load(path) if path else None
    except MissingFile as error:
        raise MissingFile(
            f"{error}; or begin with the model that comes with the project: --init_from pretrained"
        ) from None


def after_restart(run: RunConfig) -> RunConfig:
    """Return `run`; where torchrun starts it once more, that goes on with what it has begun."""
    folder = RunFolder(run.out_dir)
    if not folder.started_by(launch()):
        return run
    if folder.last.exists():
        return replace(run, resume=True, overwrite=False, init_from=None, preset="auto")
    return replace(run, overwrite=not run.resume)


def default_options(
    run: RunConfig, device: Device, initial: Checkpoint | None, processes: int = 1
) -> TrainOptions:
    """Return the options that hold where the user says nothing: the preset's, or the checkpoint's.

    A new run on several GPUs gives each of them a micro-batch of the preset's size.
    """
    is_gpu = device.where.type == "cuda"
    name = run.preset
    if name == "auto" and initial:
        name = preset_of(initial.model) or name
    if name == "auto":
        # A CUDA GPU without bfloat16 would take hours for base.
        name = "base" if is_gpu and has_bfloat16() else "mini"
    model, train, data = PRESETS[name].model, PRESETS[name].train, CorpusConfig()
    if initial:
        model, train = initial.model, for_fine_tuning(train)
    if initial and run.resume:
        train, data = initial.train, CorpusConfig(dataset=initial.corpus_name)
    elif is_gpu:
        train = replace(train, gradient_accumulation_steps=processes)
    return TrainOptions(run=replace(run, preset=name), data=data, model=model, train=train)


def for_fine_tuning(train: TrainConfig) -> TrainConfig:
    """Return a preset's training for a model that has learned already.

    The n-gram table keeps its rate: its rows belong to sequences, and a new text brings others.
    """
    return replace(
        train,
        learning_rate=FINE_TUNING_RATE * train.learning_rate,
        muon_learning_rate=FINE_TUNING_RATE * train.muon_learning_rate,
    )


def follow_text(options: TrainOptions, corpus: Corpus, given: Mapping[str, object]) -> TrainOptions:
    """Return options that suit the length of the text, where they are not given.

    A short text is read as often as the preset allows, at most. Up to ten evaluations take a fifth
    of the characters that are trained on, or less. The more often a text is read, the more the
    n-gram table would learn it by heart, so the more of it is dropped (benchmarks/README.md).
    """
    train, per_step = options.train, options.train.characters_per_step(options.model)
    passes = PRESETS[options.run.preset].passes
    if options.run.init_from:
        passes *= FINE_TUNING_PASSES
    most = math.ceil(passes * len(corpus.train) / per_step)
    max_iters = train.max_iters if "max_iters" in given else min(train.max_iters, most)
    characters = max_iters * per_step
    evaluations = min(10, max(1, characters // (5 * max(1, len(corpus.val)))))
    suited: dict[str, float] = {
        "max_iters": max_iters,
        "eval_interval": math.ceil(max_iters / evaluations),
    }
    if options.run.init_from and characters - len(corpus.train) < READ_AGAIN:
        suited["dropout"] = 0.0
    if options.model.ngram_size > 1:
        suited["ngram_dropout"] = round(max(0.0, 0.8 - len(corpus.train) / characters), 2)
    return with_given(options, {n: value for n, value in suited.items() if n not in given})


def preset_of(model: ModelConfig) -> PresetName | None:
    """Return the name of the preset that has this model, or None."""
    same = (name for name, preset in PRESETS.items() if not differences(preset.model, model))
    return next(same, None)


def describe(state: TrainingState, corpus: Corpus) -> str:
    """Say what is trained on what, for how long; a model of no preset by its shape."""
    model, train = state.model.config, state.config
    shape = f"{model.n_layer} layers × {model.n_head} heads × {model.n_embd} wide"
    passes = train.max_iters * train.characters_per_step(model) / len(corpus.train)
    return (
        f"{preset_of(model) or shape}: {count_parameters(model):,} parameters; "
        f"{corpus.name}: {len(corpus.train):,} characters to train on; {train.max_iters:,} steps, "
        f"{passes:,.1f} times the text"
    )


def make_state(
    options: TrainOptions, initial: Checkpoint | None, corpus: Corpus, device: Device
) -> tuple[TrainingState, Corpus]:
    """Return the state to train from, and the corpus in the ids of its model.

    Raises UserError where the options or the corpus do not fit the initial checkpoint.
    """
    if initial is None:
        model = replace(options.model, vocab_size=corpus.tokenizer.vocab_size)
        return TrainingState.start(model, options.train, device), corpus
    if different := differences(options.model, initial.model):
        raise UserError(
            f"the model in the checkpoint differs ({'; '.join(different)}); leave these options "
            "out, or start a new run in another --out_dir"
        )
    model = replace(options.model, vocab_size=initial.model.vocab_size)
    initial = replace(initial, model=model)
    if options.run.resume:
        _check_same_run(options.train, initial, corpus)
        state = TrainingState.restore(initial, options.train, device)
    else:
        initial = with_new_characters(initial, corpus)
        state = TrainingState.start_from(initial.build_model(), options.train, device)
    return state, remap_ids(corpus, initial.tokenizer)


def with_new_characters(initial: Checkpoint, corpus: Corpus) -> Checkpoint:
    """Return the checkpoint with the characters of a text that its model lacks.

    They get the ids after the known ones, which keep theirs: an n-gram's hash is made of ids.
    Their rows of the embedding and of the output head begin as those of the nearest known
    character, or else as the mean of all.
    """
    known = initial.tokenizer
    new = sorted(set(corpus.tokenizer.characters) - set(known.characters))
    if not new:
        return initial
    like = [_most_like(character, known) for character in new]
    weights = dict(initial.weights)
    for name in ("token_embedding.weight", "head.weight"):
        rows = weights[name]
        with_mean = np.concatenate([rows, rows.mean(axis=0, keepdims=True)])
        weights[name] = np.concatenate([rows, with_mean[like]])
    characters = known.characters + "".join(new)
    model = replace(initial.model, vocab_size=len(characters))
    return replace(initial, model=model, characters=characters, weights=weights, optimizer={})


def _most_like(character: str, known: CharTokenizer) -> int:
    """Return the id of the known character that a new one begins like; -1 for the mean of all."""
    near = known.nearest(character) or ""
    return known.characters.find(near) if len(near) == 1 else -1


def describe_new_characters(initial: Checkpoint, corpus: Corpus) -> str:
    """Say what a corpus from `make_state` holds that the initial model lacks; "" for nothing."""
    known, n_known = initial.tokenizer, len(initial.characters)
    new = corpus.tokenizer.characters[n_known:]
    if not new:
        return ""
    like = {character: _most_like(character, known) for character in new[:SHOWN]}
    shown = [f"{c!r} as {known.characters[near]!r}" for c, near in like.items() if near >= 0]
    if others := [repr(c) for c, near in like.items() if near < 0]:
        shown.append(f"{' '.join(others)} as the mean")
    if len(new) > SHOWN:
        shown.append(f"{len(new) - SHOWN:,} more")
    count = sum(np.count_nonzero(ids >= n_known) for ids in (corpus.train, corpus.val))
    return (
        f"{len(new):,} new character{'s' * (len(new) > 1)}, {count:,} of the text's "
        f"{len(corpus.train) + len(corpus.val):,}: {', '.join(shown)}"
    )


def _check_same_run(train: TrainConfig, initial: Checkpoint, corpus: Corpus) -> None:
    """Raise UserError where a run can't go on with these options or this text."""
    if corpus.sha256 != initial.corpus_sha256:
        raise UserError(
            f"the run in the checkpoint learned from another text than {corpus.name}; give it the "
            "same --dataset or --corpus, or start a new run with --init_from"
        )
    step = initial.progress.step
    if train.max_iters < step:
        raise UserError(
            f"--max_iters is {train.max_iters}, but the run has done {step} steps already; "
            "give more, or leave it out"
        )
    if 0 < train.threads != (before := initial.train.threads) > 0:
        warnings.warn(
            f"--threads is {train.threads}, the run had {before}: it goes on with other bits than "
            "it would have had",
            stacklevel=2,
        )
    if train.look_ahead != initial.train.look_ahead:
        raise UserError(
            f"--look_ahead is {train.look_ahead}, but the run has {initial.train.look_ahead} "
            "such heads; leave it out, or start a new run"
        )


def differences(ours: ModelConfig, theirs: ModelConfig) -> list[str]:
    """Return "name: theirs, not ours" for each option in which two models are not the same."""
    values = asdict(theirs)
    return [
        f"{name}: {values[name]!r}, not {value!r}"
        for name, value in asdict(ours).items()
        if name not in FREE_TO_CHANGE and value != values[name]
    ]
