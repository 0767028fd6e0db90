"""Set up a run: new, resumed or fine-tuned."""

import math
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import FolderConfig, ModelConfig, RunConfig, TrainOptions, with_given
from sancho.corpus import Corpus, remap_ids
from sancho.errors import UserError
from sancho.machine.device import Device, choose_device, has_bfloat16
from sancho.presets import PRESETS
from sancho.run.folder import RunFolder
from sancho.training import TrainingState

# Options of a model that change no weight's shape or meaning.
FREE_TO_CHANGE = {"vocab_size", "dropout", "ngram_dropout"}
FINE_TUNING_RATE = 0.2  # of the preset's peak learning rates
COMPILED_FROM = 1_000  # steps on a CUDA GPU: fewer may not repay the compiling
ADAMW_AND_MUON = ("learning_rate", "muon_learning_rate")
FINE_TUNING_EPOCHS = 0.5  # of the preset's most epochs
READ_AGAIN = 200_000
"""Characters that are read more than once up to which dropout costs a tuned model more than it
saves. All three were measured on texts of 59,000 to 480,000 characters (docs/options.md)."""


def choose_options(
    given: Mapping[str, object], processes: int, locks: ExitStack
) -> tuple[TrainOptions, Checkpoint | None]:
    """Return the options of a run, and the checkpoint that it begins with or goes on from.

    The options are the run's own where it goes on, else the preset's, with what is given. A run
    that goes on has `folder.resume`, and its folder is locked until `locks` is closed.
    """
    given = {name: x for name, x in given.items() if (name, x) != ("preset", "auto")}
    asked = with_given(FolderConfig(), given)
    folder = RunFolder(asked.out_dir)
    if asked.resume and folder.last.exists():
        locks.enter_context(folder.lock())
        last = folder.load_last()
        own = TrainOptions(model=last.model, train=last.train, run=last.run)
        options = with_given(own, {"dataset": last.corpus_name, **given})
        if options.run.dtype == "auto" and choose_device(options.run).on_cpu:
            # Checkpoints of version 1 don't say it: the run had float32 there.
            options = with_given(options, {"dtype": "float32"})
        return options, last
    path = asked.init_from
    if path == Path("pretrained") and not path.is_file():
        path = checkpoint.PRETRAINED
    initial = checkpoint.load(path) if path else None
    options = with_given(preset_options(given, initial, processes), given)
    return replace(options, folder=replace(asked, resume=False)), initial


def preset_options(
    given: Mapping[str, object], initial: Checkpoint | None = None, processes: int = 1
) -> TrainOptions:
    """Return the options that hold for a new run where nothing is given for them.

    They are those of a preset: the given one, that of the initial model, or what suits the device.
    A new run on several GPUs gives each of them a micro-batch of the preset's size. On a GPU losses
    are read less often: it waits meanwhile.
    """
    run = with_given(RunConfig(), given)
    is_gpu = choose_device(run).torch_device.type == "cuda"
    name: Any = run.preset if run.preset != "auto" or not initial else preset_of(initial.model)
    if name in ("auto", None):  # a CUDA GPU without bfloat16 would take hours for base
        name = "base" if is_gpu and has_bfloat16("cuda") else "mini"
    model, train = PRESETS[name].model, PRESETS[name].train
    if initial:  # the n-gram table keeps its rate: a new text brings other n-grams
        rates = {n: FINE_TUNING_RATE * getattr(train, n) for n in ADAMW_AND_MUON}
        model, train = initial.model, replace(train, **rates)
    if is_gpu:
        train = replace(train, gradient_accumulation_steps=processes, log_interval=100)
    return TrainOptions(model=model, train=train, run=RunConfig(preset=name))


def follow_text(options: TrainOptions, corpus: Corpus, given: Mapping[str, object]) -> TrainOptions:
    """Return options that suit the length of the text, where they are not given, for a new run.

    A short text is read as often as the preset allows, at most. Up to ten evaluations take a fifth
    of the characters that are trained on, or less. The more often a text is read, the more of the
    n-gram table is dropped and the more the logits are scaled, else it would be learned by heart
    (benchmarks/README.md).
    """
    if options.folder.resume:
        return options
    train, per_step = options.train, options.train.characters_per_step(options.model)
    epochs = PRESETS[options.run.preset].epochs
    if options.folder.init_from:
        epochs *= FINE_TUNING_EPOCHS
    most = math.ceil(epochs * len(corpus.train) / per_step)
    max_iters = train.max_iters if "max_iters" in given else min(train.max_iters, most)
    characters = max_iters * per_step
    evaluations = min(10, max(1, characters // (5 * max(1, len(corpus.val)))))
    suited: dict[str, float] = {
        "max_iters": max_iters,
        "eval_interval": math.ceil(max_iters / evaluations),
    }
    if options.folder.init_from and characters - len(corpus.train) < READ_AGAIN:
        suited["dropout"] = 0.0
    if options.model.ngram_size > 1:
        dropped = max(0.0, 0.85 - 1.35 * len(corpus.train) / characters)
        suited |= {"ngram_dropout": round(dropped, 2), "logit_scale": round(1 + 0.15 * dropped, 2)}
    return with_given(options, {n: value for n, value in suited.items() if n not in given})


def preset_of(model: ModelConfig) -> str | None:
    """Return the name of the preset that has this model, or None."""
    same = (name for name, preset in PRESETS.items() if _fixed(preset.model) == _fixed(model))
    return next(same, None)


def _fixed(model: ModelConfig) -> dict[str, object]:
    return {name: x for name, x in asdict(model).items() if name not in FREE_TO_CHANGE}


def make_state(
    options: TrainOptions, initial: Checkpoint | None, corpus: Corpus, device: Device
) -> tuple[TrainingState, Corpus]:
    """Return the state to train from, and the corpus in the ids of its model.

    Raises UserError where the options or the corpus do not fit the initial checkpoint.
    """
    if initial is None:
        model = replace(options.model, vocab_size=corpus.tokenizer.vocab_size)
        state = TrainingState.start(model, options.train, device)
    else:
        _check_fit(options, initial, corpus)
        model = replace(options.model, vocab_size=initial.model.vocab_size)
        initial = replace(initial, model=model)
        if options.folder.resume:
            state = TrainingState.restore(initial, options.train, device)
        else:
            initial = with_new_characters(initial, corpus)
            state = TrainingState.start_from(initial.build_model(), options.train, device)
        corpus = remap_ids(corpus, initial.tokenizer)
    is_long = device.torch_device.type == "cuda" and options.train.max_iters >= COMPILED_FROM
    compile = is_long if options.run.compile is None else options.run.compile
    state.run = replace(options.run, dtype=device.dtype_name, compile=compile)
    return state, corpus


def _check_fit(options: TrainOptions, initial: Checkpoint, corpus: Corpus) -> None:
    ours, theirs = _fixed(options.model), _fixed(initial.model)
    train, before = options.train, initial.train
    if options.folder.resume:
        ours |= {"look_ahead": train.look_ahead, "preset": options.run.preset}
        theirs |= {"look_ahead": before.look_ahead, "preset": initial.run.preset}
    for name in ours:
        if ours[name] != theirs[name] != "auto":
            raise UserError(
                f"--{name} is {ours[name]}, but {theirs[name]} in the checkpoint; leave it out, or "
                "start a new run in another --out_dir"
            )
    if not options.folder.resume:
        return
    if corpus.sha256 != initial.corpus_sha256:
        advice = "give it the same --dataset or --corpus, or start a new run with --init_from"
        raise UserError(f"the run learned from another text than {corpus.name}; {advice}")
    if train.max_iters < initial.progress.step:
        raise UserError(
            f"--max_iters is {train.max_iters}, but the run has done {initial.progress.step} steps "
            "already; give more, or leave it out"
        )
    if 0 < train.threads != before.threads > 0:
        change = f"--threads is {train.threads}, the run had {before.threads}"
        warnings.warn(f"{change}: it goes on with other bits than it would have had", stacklevel=2)


def with_new_characters(initial: Checkpoint, corpus: Corpus) -> Checkpoint:
    """Return the checkpoint with the characters of a text that its model lacks.

    They get the ids after the known ones. Their rows of embedding and output head begin as those
    of the nearest known character, or else as the mean of all.
    """
    known = initial.tokenizer
    new = sorted(set(corpus.tokenizer.characters) - set(known.characters))
    if not new:
        return initial
    nearest = [known.nearest(character) or "" for character in new]
    like = [known.characters.find(near) if len(near) == 1 else -1 for near in nearest]
    weights = dict(initial.weights)
    for name in ("token_embedding.weight", "head.weight"):
        rows = weights[name]
        with_mean = np.concatenate([rows, rows.mean(axis=0, keepdims=True)])
        weights[name] = np.concatenate([rows, with_mean[like]])
    characters = known.characters + "".join(new)
    model = replace(initial.model, vocab_size=len(characters))
    return replace(initial, model=model, characters=characters, weights=weights, optimizer={})
