"""The start of a run: its model and optimizers, and the lines that describe it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sancho.checkpoint import Checkpoint
from sancho.machine.device import Device
from sancho.optim import learning_rate_factor
from sancho.run.learned import CORPUS
from sancho.run.plan import NOTHING, Beginning, Plan, changes, preset_of
from sancho.run.state import TrainingState
from sancho.shared.weights import count_parameters
from sancho.text.clean import beginning, what_is_odd
from sancho.text.corpus import Corpus, remap_ids

SHOWN = 40  # characters that are listed
MANY = 50  # characters that occur once; a book has a few
NOTICED = 1e-3  # the fraction of characters that were never seen above which they are told


@dataclass(frozen=True)
class Run:
    """A run before its first step: its model and its optimizers are built."""

    state: TrainingState
    corpus: Corpus
    """The corpus, with the ids of the model."""
    beginning: Beginning
    decided: Mapping[str, float]
    """The values that the length of the text decided, by the names of options."""


def start_run(plan: Plan, corpus: Corpus, device: Device, beginning: Beginning = NOTHING) -> Run:
    """Return the run that was planned."""
    initial = beginning.checkpoint
    if initial is None:
        model = replace(plan.model, vocab_size=corpus.tokenizer.vocab_size)
        state = TrainingState.start(model, plan.train, device, corpus.train)
        return Run(state, corpus, beginning, plan.decided)
    known = replace(initial, model_config=plan.model)
    if beginning.resumes:
        state = TrainingState.restore(known, plan.train, device)
    else:
        known = _with_new_characters(known, corpus)
        state = TrainingState.from_model(known.build_model(), plan.train, device)
    return Run(state, remap_ids(corpus, known.tokenizer), beginning, plan.decided)


def _with_new_characters(initial: Checkpoint, corpus: Corpus) -> Checkpoint:
    """Return the model with the characters of a text added to its vocabulary.

    The new characters get the ids after the known ones. Their rows in the embedding and the output
    head begin as those of the nearest known character, or if there is none as the mean of all.
    """
    known = initial.tokenizer
    new = sorted(set(corpus.tokenizer.characters) - set(known.characters))
    if not new:
        return initial
    initial.build_model()  # it gives the note on a changed model.py, which can't be detected later
    ids = {character: i for i, character in enumerate(known.characters)}
    like = [ids.get(known.nearest(character) or "", -1) for character in new]
    weights = dict(initial.weights)
    for name in ("token_embedding.weight", "head.weight"):
        rows = weights[name]
        with_mean = np.concatenate([rows, rows.mean(axis=0, keepdims=True)])  # at place −1
        weights[name] = np.concatenate([rows, with_mean[like]])
    characters = known.characters + "".join(new)
    config = replace(initial.model_config, vocab_size=len(characters))
    found = replace(initial, model_config=config, characters=characters, weights=weights)
    return replace(found, proof=None)


def describe(run: Run, out_dir: Path, processes: int = 1) -> str:
    """Return the lines that describe a run: its beginning, model, text, length and device."""
    state = run.state
    initial = run.beginning.checkpoint
    corpus = run.corpus
    model = state.model.config
    train = state.train_config
    step = state.progress.step
    first_line = f"a new run in {out_dir}"
    if step:
        first_line = f"going on with the run in {out_dir} after step {step:,}"
    if state.is_done:
        first_line += "; it is done: to go on, give a larger --max_iters, or --patience 0"
    elif initial and step >= initial.train_config.max_iters:
        factor = learning_rate_factor(step, train)
        first_line += f"; it was done: its learning rates rise again, to {factor:.2f} of the peak"
    shape = f"{model.n_layer} layers × {model.n_head} heads × {model.n_embd} wide"
    epochs = train.max_iters * train.characters_per_step(model) / len(corpus.train)
    lines = [
        first_line,
        f"{preset_of(model) or shape}: {count_parameters(model):,} parameters; "
        f"{corpus.name}: {len(corpus.train):,} characters to train on; {train.max_iters:,} steps, "
        f"which read the text {epochs:,.1f} times",
    ]
    of_what = f"each of {len(corpus.lengths)} files" if len(corpus.lengths) > 1 else "the text"
    lines.append(
        f"validation part: the last tenth of {of_what}, {len(corpus.val):,} characters that "
        "are not trained on"
    )
    if initial and run.beginning.resumes:
        changed = changes(initial.model_config, model) | changes(initial.train_config, train)
        changed |= changes(initial.device_config, state.device.config)
        if changed:
            words = (f"{name} {old} → {new}" for name, (old, new) in changed.items())
            lines.append(f"changed: {', '.join(words)}")
    if run.decided:
        decided = ", ".join(f"{name} {value:g}" for name, value in run.decided.items())
        lines.append(f"the length of the text decides: {decided}")
    new = corpus.tokenizer.characters[len(initial.characters) :] if initial else ""
    if new:
        listed = " ".join(map(repr, new[:SHOWN])) + " …" * (len(new) > SHOWN)
        lines.append(f"{len(new):,} characters that the model did not know: {listed}")
    compiled = ", compiled" if train.compile else ""
    shared = f", {processes} processes" if processes > 1 else ""
    threads = f", threads: {train.threads}" if state.device.on_cpu else ""
    lines.append(f"{state.device}{threads}{compiled}{shared}")
    return "\n".join(lines)


def describe_text(corpus: Corpus, out_dir: Path) -> str:
    """Return the lines about the text of a new run: its beginning, what is odd in it, its copy."""
    lines = [f"{corpus.name} begins with {beginning(corpus.text)}"]
    if odd := what_is_odd(corpus.text, corpus.tokenizer.characters):
        lines.append(f"note: {corpus.name} has {odd}")
    lines += [f"note: {each}" for each in _about_rare_characters(corpus)]
    lines.append(f"{out_dir} keeps the text ({CORPUS}): who gets the folder gets the text")
    return "\n".join(lines)


def _about_rare_characters(corpus: Corpus) -> Iterator[str]:
    """Yield what to know of characters that a model learns from one place of the text, or none."""
    size = corpus.tokenizer.vocab_size
    train, val = (np.bincount(part, minlength=size) for part in (corpus.train, corpus.val))
    is_new = (train == 0) & (val > 0)
    if val[is_new].sum() > NOTICED * len(corpus.val):
        yield (
            "the validation part has characters that the training part has not, which make its "
            f"loss higher: {_named(corpus, is_new)}"
        )
    once = train + val == 1
    if once.sum() >= MANY:
        yield (
            f"{once.sum():,} characters occur only once, too seldom to be learned; if they are "
            f"strays, take them out of the text: {_named(corpus, once)}"
        )


def _named(corpus: Corpus, chosen: np.ndarray) -> str:
    """Return the first of the chosen characters, (V,) bool, of a vocabulary."""
    names = [repr(corpus.tokenizer.characters[i]) for i in np.flatnonzero(chosen)]
    return " ".join(names[:SHOWN]) + " …" * (len(names) > SHOWN)
