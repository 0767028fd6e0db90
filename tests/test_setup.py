"""Where a run begins: its options, its weights, its vocabulary, and what is said of it."""

import re
import shutil
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import torch
from conftest import CPU, ROOT, prepared, small_options
from hypothesis import example, given
from hypothesis import strategies as st
from runs import bits

from sancho import checkpoint
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import CorpusConfig, FolderConfig, ModelConfig, RunConfig, TrainOptions
from sancho.corpus import Corpus
from sancho.errors import UserError
from sancho.presets import PRESETS
from sancho.run import setup
from sancho.run.setup import follow_text, make_state, preset_options
from sancho.tokenizer import CharTokenizer
from sancho.training import TrainingState, fit

RESUME = FolderConfig(resume=True)
INIT = FolderConfig(init_from=Path("x"))


def options_for(folder: FolderConfig, initial: Checkpoint, **train) -> TrainOptions:
    """Return options for a run of 9 steps with the model of a checkpoint."""
    options = small_options(**{"max_iters": 9} | train)
    return replace(options, folder=folder, model=initial.model)


@pytest.fixture(scope="module")
def initial(corpus) -> Checkpoint:
    """What a run of six steps has saved; nobody trains on with its arrays."""
    state, corpus = make_state(small_options(), None, corpus, CPU)
    assert [report.step for report in fit(state, corpus, CPU)] == [1, 2, 3, 4, 5, 6]
    return state.to_checkpoint(corpus, with_optimizer=True)


def chosen(processes: int = 1, **given: Any) -> tuple[TrainOptions, Checkpoint | None]:
    """Return the options of a run, and the checkpoint that it begins with or goes on from."""
    with ExitStack() as locks:
        return setup.choose_options(given, processes, locks)


def test_a_file_of_that_name_comes_before_the_pretrained_model(tmp_path, monkeypatch, initial):
    monkeypatch.chdir(tmp_path)
    checkpoint.save(Path("pretrained"), initial)
    assert bits(chosen(init_from=Path("pretrained"))[1].weights) == bits(initial.weights)


# --- what holds where the user says nothing -------------------------------------------------


def test_a_run_of_an_older_version_goes_on_in_float32_on_a_cpu(tmp_path):
    """Its checkpoint does not say where and how it computed; what is said now wins."""
    shutil.copy(ROOT / "tests" / "format-2.safetensors", tmp_path / "last.safetensors")
    found, last = chosen(out_dir=tmp_path, resume=True, device="cpu", compile=True, max_iters=301)
    assert last.run == RunConfig()
    assert found.run == RunConfig(device="cpu", dtype="float32", compile=True)
    assert found.train == replace(last.train, max_iters=301)


@pytest.mark.parametrize("name", PRESETS)
def test_other_weights_bring_their_preset(initial, name):
    model = replace(PRESETS[name].model, vocab_size=9, ngram_dropout=0.3)
    other = replace(initial, model=model)
    for preset in ("auto", *PRESETS):  # unless another is named
        wanted = name if preset == "auto" else preset
        found, train = preset_options({"preset": preset}, other), PRESETS[wanted].train
        rates = {n: 0.2 * getattr(train, n) for n in ("learning_rate", "muon_learning_rate")}
        assert found.run == RunConfig(preset=wanted)
        assert (found.model, found.train) == (model, replace(train, **rates))
        assert (found.data, found.folder) == (CorpusConfig(), FolderConfig())


def test_weights_of_no_preset_are_trained_as_suits_the_device(initial):
    found, train = preset_options({"device": "cpu"}, initial), PRESETS["mini"].train
    assert (found.run.preset, found.model) == ("mini", initial.model)
    assert found.train == replace(train, learning_rate=0.004, muon_learning_rate=0.003)


# --- a length that suits the text -----------------------------------------------------------


def corpus_of(length: int) -> Corpus:
    val, train = np.split(np.zeros(length, dtype=np.uint8), [length // 10])
    return Corpus("a text", CharTokenizer("a"), train, val, "")


def characters_read(options: TrainOptions) -> int:
    return options.train.max_iters * options.train.characters_per_step(options.model)


def options_of(name: str, **train) -> TrainOptions:
    return setup.with_given(preset_options({"preset": name, "device": "cpu"}), train)


@pytest.mark.parametrize("name", PRESETS)
def test_how_often_a_text_is_read(name):
    """A long one for as long as the preset says, a short one as often as it says."""
    options = options_of(name)
    found = follow_text(options, corpus_of(2 * characters_read(options)), {})
    train = replace(options.train, eval_interval=found.train.eval_interval)
    model = replace(options.model, ngram_dropout=found.model.ngram_dropout)
    assert found == replace(options, train=train, model=model)
    went_on = replace(options, folder=RESUME)
    assert follow_text(went_on, corpus_of(20), {}) == went_on
    for length in (1, 20, 1_000, 20_000, 100_000):
        corpus = corpus_of(length)
        found = follow_text(options, corpus, {})
        wanted = PRESETS[name].epochs * len(corpus.train)
        a_step = options.train.characters_per_step(options.model)
        assert characters_read(found) - a_step < wanted <= characters_read(found)


@given(
    length=st.integers(1, 3_000_000),
    name=st.sampled_from(sorted(PRESETS)),
    max_iters=st.integers(1, 10_000),
    batch_size=st.integers(1, 100),
)
@example(length=1, name="mini", max_iters=1, batch_size=1)
@example(length=5_000_000, name="mini", max_iters=1800, batch_size=6)
def test_evaluations_are_few_and_take_a_fifth_at_most(length, name, max_iters, batch_size):
    options = options_of(name, max_iters=max_iters, batch_size=batch_size)
    corpus = corpus_of(length)
    found = follow_text(options, corpus, {})
    assert 1 <= found.train.max_iters <= max_iters
    assert 1 <= found.train.eval_interval <= found.train.max_iters
    evaluations = -(-found.train.max_iters // found.train.eval_interval)
    assert evaluations <= 10
    if evaluations > 1:
        assert 5 * evaluations * len(corpus.val) <= characters_read(found)
    same = {"max_iters": max_iters, "eval_interval": options.train.eval_interval, "logit_scale": 1}
    assert replace(found.train, **same) == options.train


def test_what_is_read_more_often_is_dropped_more_and_made_less_sure():
    lengths = [10_000, 200_000, 600_000, 900_000, 1_500_000, 2_500_000, 5_000_000]
    found = {
        name: [follow_text(options_of(name), corpus_of(n), {}) for n in lengths]
        for name in ("mini", "classic", "base")
    }
    mini, classic, base = ([each.model for each in suited] for suited in found.values())
    scales = [each.train.logit_scale for each in found["mini"]]
    assert 1.2 > scales[0] > scales[3] > scales[-1] == 1 and scales == sorted(scales, reverse=True)
    assert {each.train.logit_scale for each in found["classic"] + found["base"]} == {1}
    dropped = [model.ngram_dropout for model in mini]
    assert dropped == sorted(dropped, reverse=True)
    assert 0.9 > dropped[0] > dropped[-1] + 0.3 >= 0.3
    assert {*classic, *base} == {PRESETS["classic"].model, PRESETS["base"].model}  # without a table


def test_a_tuned_model_reads_half_as_often_and_drops_nothing_where_little_is_read_again():
    options = options_of("mini")
    options = replace(options, model=replace(options.model, dropout=0.1))
    tuned = replace(options, folder=INIT)
    short, long = corpus_of(60_000), corpus_of(480_000)
    steps = [follow_text(each, short, {}).train.max_iters for each in (options, tuned)]
    assert steps[1] == pytest.approx(steps[0] / 2, abs=1)
    for max_iters, dropout in ((308, 0.0), (309, 0.1)):  # of 2,048 characters
        of_length = replace(tuned, train=replace(tuned.train, max_iters=max_iters))
        assert follow_text(of_length, long, {"max_iters": max_iters}).model.dropout == dropout
    assert follow_text(options, short, {}).model.dropout == 0.1
    assert follow_text(tuned, short, {"dropout": 0.1}).model.dropout == 0.1


def test_what_is_given_wins_over_the_length_of_the_text():
    options, short = options_of("mini", max_iters=300, eval_interval=200), corpus_of(60)
    steps = follow_text(options, short, {"max_iters": 300})
    suited = {"eval_interval": 30, "logit_scale": 1.13}  # ten evaluations
    assert steps.train == replace(options.train, **suited)
    assert steps.model.ngram_dropout > options.model.ngram_dropout
    other = {"eval_interval": 200, "ngram_dropout": 0.0, "logit_scale": 1.0}
    found = follow_text(options, short, other)
    assert found.train.max_iters < 300
    assert found == replace(options, train=replace(options.train, max_iters=found.train.max_iters))


# --- the state ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "device", "max_iters", "expected"),
    [
        (None, "cuda", 1000, True),
        (None, "cuda", 999, False),
        (None, "mps", 5000, False),
        (False, "cuda", 5000, False),
    ],
)
def test_what_is_compiled(corpus, monkeypatch, said, device, max_iters, expected):
    """And the run keeps it, wherever and however long it goes on."""
    start = TrainingState.start
    monkeypatch.setattr(TrainingState, "start", lambda *args: start(*args[:2], CPU))
    options = replace(small_options(max_iters=max_iters), run=RunConfig(compile=said))
    state, _ = make_state(options, None, corpus, replace(CPU, torch_device=torch.device(device)))
    assert state.run.compile is expected


def grown(initial: Checkpoint, text: str, folder: Path) -> tuple[TrainingState, Corpus]:
    """Return the state that begins with other weights on a text with other characters."""
    return make_state(options_for(INIT, initial), initial, prepared(text, folder), CPU)


def test_a_new_character_begins_like_the_nearest_or_else_as_the_mean(tmp_path, corpus, initial):
    """The others keep the ids that the weights know them by, and all else begins anew."""
    text = "Razön 8 œ\n" * 30
    state, recoded = grown(initial, text, tmp_path / "other")
    known = corpus.tokenizer.characters
    assert recoded.tokenizer.characters == known + "8Röœ"  # œ would be two characters, oe
    assert recoded.tokenizer.decode([*recoded.train, *recoded.val]) == text
    assert state.model.config.vocab_size == len(known) + 4
    assert state.progress == Progress()
    assert not any(optimizer.state for optimizer in state.optimizers)
    arrays = state.model.arrays()
    for name in ("token_embedding.weight", "head.weight"):
        before, after = initial.weights[name], arrays.pop(name)
        mean = before.mean(axis=0)
        rows = [mean, before[known.index("r")], before[known.index("ó")], mean]
        assert np.array_equal(after, [*before, *rows])
        assert after.dtype == np.float32
    assert bits(arrays) == bits({name: initial.weights[name] for name in arrays})


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_more_than_256_characters(tmp_path, corpus, tied):
    """The ids of a text of few characters take two bytes where the model knows many."""
    options = small_options()
    options = replace(options, model=replace(options.model, tie_embeddings=tied))
    state, same = make_state(options, None, corpus, CPU)
    initial = state.to_checkpoint(same, with_optimizer=True)
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 250))) + "\n"
    state, recoded = grown(initial, 3 * text, tmp_path / "other")
    assert recoded.train.dtype == recoded.val.dtype == np.dtype("<u2")
    assert recoded.tokenizer.decode([*recoded.train, *recoded.val]) == 3 * text
    arrays = state.model.arrays()
    assert np.array_equal(arrays["token_embedding.weight"], arrays["head.weight"]) is tied
    assert len(list(fit(state, recoded, CPU))) == 9
    checkpoint.save(tmp_path / "saved", state.to_checkpoint(recoded, with_optimizer=True))
    saved = checkpoint.load(tmp_path / "saved")
    other = prepared(3 * text, tmp_path / "again")  # the same text by another name
    _, again = make_state(options_for(RESUME, saved), saved, other, CPU)
    assert np.array_equal(again.train, recoded.train)


@pytest.mark.parametrize(
    ("preset", "train", "words"),
    [
        ("mini", {"optimizer": "adamw"}, "--optimizer that the run began with"),
        ("mini", {"max_iters": 5}, "--max_iters is 5, but the run has done 6 steps"),
        ("mini", {"look_ahead": 1}, "--look_ahead is 1, but 0 in the checkpoint;"),
        ("base", {}, "--preset is base, but mini in the checkpoint;"),
    ],
)
def test_what_a_run_cannot_change_is_refused(corpus, initial, preset, train, words):
    initial = replace(initial, run=RunConfig(preset="mini"))
    options = replace(options_for(RESUME, initial, **train), run=RunConfig(preset=preset))
    with pytest.raises(UserError, match=f"^[^\n]*{re.escape(words)}[^\n]*$"):
        make_state(options, initial, corpus, CPU)


# --- the same model -------------------------------------------------------------------------


@pytest.mark.parametrize("option", fields(ModelConfig), ids=lambda option: option.name)
def test_every_option_that_changes_a_weight_counts(corpus, initial, option):
    value = getattr(initial.model, option.name)
    if get_origin(option.type) is Literal:
        new = next(choice for choice in get_args(option.type) if choice != value)
    else:
        new = {bool: not value, int: 2 * value, float: 0.5}[type(value)]
    changed = replace(initial, model=replace(initial.model, **{option.name: new}))
    for folder in (RESUME, INIT):
        if option.name in ("vocab_size", "dropout", "ngram_dropout"):
            make_state(options_for(folder, changed), initial, corpus, CPU)
            continue
        words = f"^--{option.name} is {new}, but {value} in the checkpoint; leave it out"
        with pytest.raises(UserError, match=words):
            make_state(options_for(folder, changed), initial, corpus, CPU)
