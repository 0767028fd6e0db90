"""The state that a planned run begins with: new, read from a checkpoint, or fine-tuned."""

from dataclasses import replace

import numpy as np

from sancho.checkpoint import Checkpoint
from sancho.corpus import Corpus, remap_ids
from sancho.machine.device import Device
from sancho.run.plan import RunPlan
from sancho.training import TrainingState


def make_state(plan: RunPlan, corpus: Corpus, device: Device) -> tuple[TrainingState, Corpus]:
    """Return the state to train from, and the corpus in the ids of its model."""
    options = plan.options
    initial = plan.initial
    if initial is None:
        model = replace(options.model, vocab_size=corpus.tokenizer.vocab_size)
        state = TrainingState.start(model, options.train, device, corpus.train)
    else:
        model = replace(options.model, vocab_size=initial.model.vocab_size)
        initial = replace(initial, model=model)
        if plan.goes_on:
            state = TrainingState.restore(initial, options.train, device)
        else:
            initial = with_new_characters(initial, corpus)
            state = TrainingState.from_model(initial.build_model(), options.train, device)
        corpus = remap_ids(corpus, initial.tokenizer)
    state.run = replace(options.run, dtype=device.dtype_name)
    return state, corpus


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
