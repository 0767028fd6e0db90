"""Where a run starts: at nothing, at its own last checkpoint, or at another one's weights."""

import math
from dataclasses import fields, replace

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import CorpusConfig, ModelConfig, RunConfig, TrainOptions
from sancho.corpus import Corpus, recode
from sancho.device import Device, has_bfloat16
from sancho.distributed import launch
from sancho.errors import UserError
from sancho.presets import PRESETS
from sancho.run_folder import RunFolder
from sancho.training import TrainingState

FREE_TO_CHANGE = {"vocab_size", "dropout", "ngram_dropout"}
"""Options of a model that change no weight's shape or meaning (vocab_size is no option)."""


def find_source(run: RunConfig) -> Checkpoint | None:
    """Return the checkpoint that a run starts from, or None for a new one."""
    if run.resume:
        return RunFolder(run.out_dir).load_last()
    return checkpoint.load(run.init_from) if run.init_from else None


def after_restart(run: RunConfig) -> RunConfig:
    """Return `run`; where torchrun starts it once more, that goes on with what it has begun."""
    folder = RunFolder(run.out_dir)
    if not folder.is_of(launch()):
        return run
    if folder.last.exists():
        return replace(run, resume=True, overwrite=False, init_from=None)
    return replace(run, overwrite=not run.resume)


def default_options(
    run: RunConfig, device: Device, source: Checkpoint | None, processes: int = 1
) -> TrainOptions:
    """Return the options that hold where the user says nothing: the preset's, or the source's.

    A new run on several GPUs gives each of them a micro-batch of the preset's size.
    """
    name = run.preset
    if name == "auto" and source:
        name = preset_of(source.model) or name
    if name == "auto":
        # A CUDA GPU without bfloat16 would take hours for base.
        fast = device.where.type == "cuda" and has_bfloat16()
        name = "base" if fast else "mini"
    preset, data = PRESETS[name], CorpusConfig()
    model, train = source.model if source else preset.model, preset.train
    if run.resume:
        train, data = source.train, CorpusConfig(dataset=source.corpus_name)
    elif device.where.type == "cuda":
        train = replace(train, gradient_accumulation_steps=processes)
    return TrainOptions(run=replace(run, preset=name), data=data, model=model, train=train)


def limit_length(options: TrainOptions, corpus: Corpus) -> TrainOptions:
    """Return options by which a short text is read as often as the preset allows, at most."""
    per_step = options.train.characters_per_step(options.model)
    most = math.ceil(PRESETS[options.run.preset].passes * len(corpus.train) / per_step)
    train = replace(options.train, max_iters=min(options.train.max_iters, most))
    return replace(options, train=train)


def follow_length(options: TrainOptions, corpus: Corpus) -> TrainOptions:
    """Return options with evaluations and table dropout for the length of run and text.

    Up to ten evaluations take a fifth of the characters that are trained on, or less. The more
    often a text is read, the more the table of sequences would learn it by heart, so the more of
    it is dropped (benchmarks/README.md).
    """
    config, model = options.train, options.model
    characters = config.max_iters * config.characters_per_step(model)
    evaluations = min(10, max(1, characters // (5 * max(1, len(corpus.val)))))
    train = replace(config, eval_interval=math.ceil(config.max_iters / evaluations))
    if model.ngram_size > 1:
        dropout = round(max(0.0, 0.8 - len(corpus.train) / characters), 2)
        model = replace(model, ngram_dropout=dropout)
    return replace(options, train=train, model=model)


def preset_of(model: ModelConfig) -> str | None:
    """Return the name of the preset that has this model, or None."""
    return next(
        (name for name, preset in PRESETS.items() if not differences(preset.model, model)), None
    )


def describe(state: TrainingState, corpus: Corpus) -> str:
    """Say what is trained on what, for how long; a model of no preset by its shape."""
    model, config = state.model.config, state.config
    name = f"{model.n_layer} layers × {model.n_head} heads × {model.n_embd} wide"
    passes = config.max_iters * config.characters_per_step(model) / len(corpus.train)
    return (
        f"{preset_of(model) or name}: {state.model.count_parameters():,} parameters; "
        f"{corpus.name}: {len(corpus.train):,} characters to train on; {config.max_iters:,} steps, "
        f"{passes:,.1f} times the text"
    )


def make_state(
    options: TrainOptions, source: Checkpoint | None, corpus: Corpus, device: Device
) -> tuple[TrainingState, Corpus]:
    """Return the state to train from, and the corpus in the ids of its model.

    Raises UserError where the options or the corpus do not fit the source.
    """
    if source is None:
        model = replace(options.model, vocab_size=corpus.tokenizer.vocab_size)
        return TrainingState.start(model, options.train, device), corpus
    if different := differences(options.model, source.model):
        raise UserError(
            f"the model in the checkpoint differs ({'; '.join(different)}); leave these options "
            "out, or start a new run in another --out_dir"
        )
    source = replace(source, model=replace(options.model, vocab_size=source.model.vocab_size))
    if not options.run.resume:
        state = TrainingState.start_from(source, options.train, device)
        return state, recode(corpus, source.tokenizer)
    if corpus.sha256 != source.corpus_sha256:
        raise UserError(
            f"the run in the checkpoint learned from another text than {corpus.name}; give it the "
            "same --dataset or --corpus, or start a new run with --init_from"
        )
    if options.train.max_iters < source.progress.step:
        raise UserError(
            f"--max_iters is {options.train.max_iters}, but the run has done "
            f"{source.progress.step} steps already; give more, or leave it out"
        )
    if options.train.look_ahead != source.train.look_ahead:
        raise UserError(
            f"--look_ahead is {options.train.look_ahead}, but the run has "
            f"{source.train.look_ahead} such heads; leave it out, or start a new run"
        )
    return TrainingState.restore(source, options.train, device), corpus


def differences(ours: ModelConfig, theirs: ModelConfig) -> list[str]:
    """Return "name: theirs, not ours" for each option in which two models are not the same."""
    return [
        f"{field.name}: {getattr(theirs, field.name)!r}, not {getattr(ours, field.name)!r}"
        for field in fields(ours)
        if field.name not in FREE_TO_CHANGE
        and getattr(ours, field.name) != getattr(theirs, field.name)
    ]
