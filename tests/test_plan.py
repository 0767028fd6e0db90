"""Where a run begins: its options, its weights, its vocabulary, and what is refused."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import torch
from conftest import CPU, ROOT, TEXT, prepared, small_options
from hypothesis import example, given
from hypothesis import strategies as st
from runs import bits

from sancho import checkpoint, ngrams
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import (
    CorpusConfig,
    FolderConfig,
    ModelConfig,
    RunConfig,
    TrainOptions,
    with_values,
)
from sancho.corpus import Corpus, open_prepared
from sancho.errors import UserError
from sancho.presets import PRESETS
from sancho.run.folder import RunFolder
from sancho.run.plan import RunPlan, follow_text, make_plan, preset_options, typed_options
from sancho.run.state import make_state
from sancho.tokenizer import CharTokenizer
from sancho.training import TrainingState, fit

INIT = FolderConfig(init_from=Path("x"))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    prepared(TEXT[:-200] + 20 * "otra razón\n", folder / "tiny")
    return folder


@pytest.fixture(scope="module")
def corpus(data) -> Corpus:
    return open_prepared(data / "tiny")


def new_state(options: TrainOptions, corpus: Corpus) -> TrainingState:
    return make_state(RunPlan(options, Path()), corpus, CPU)[0]


@pytest.fixture(scope="module")
def initial(corpus) -> Checkpoint:
    """What a run of six steps has saved; nobody trains on with its arrays."""
    state = new_state(replace(small_options(threads=1), run=RunConfig(preset="mini")), corpus)
    assert [*fit(state, corpus, CPU)][-1].step == 6
    return state.to_checkpoint(corpus, with_optimizer=True)


@pytest.fixture
def out(tmp_path, initial) -> Path:
    """The folder of that run."""
    checkpoint.save(tmp_path / "last.safetensors", initial)
    return tmp_path


def plan(data: Path, out_dir: Path, **typed: Any) -> RunPlan:
    with RunFolder(out_dir) as folder:
        typed = {"dataset": "tiny", "device": "cpu", "out_dir": out_dir} | typed
        return make_plan(typed, folder, str(data))


def refused(words: str) -> Any:
    return pytest.raises(UserError, match=f"^[^\n]*{re.escape(words)}[^\n]*$")


def test_a_newer_file_that_an_older_version_left_beside_is_gone_on_with(data, out, initial):
    newer = replace(initial, progress=replace(initial.progress, step=8))
    checkpoint.save(out / "last.new.safetensors", newer)
    assert plan(data, out, resume=True, max_iters=9).initial.progress.step == 8


def test_a_file_of_that_name_comes_before_the_pretrained_model(data, out, monkeypatch, initial):
    monkeypatch.chdir(out)
    checkpoint.save("pretrained", initial)
    found = plan(data, out / "new", init_from=Path("pretrained"))
    assert not found.goes_on
    assert bits(found.initial.weights) == bits(initial.weights)
    assert typed_options(FolderConfig, {"resume": True, "n_layer": 2}) == FolderConfig(resume=True)


# --- what holds where the user says nothing -------------------------------------------------


def test_a_run_of_an_older_version_goes_on_in_float32_on_a_cpu(data, out, corpus):
    """Its checkpoint does not say where and how it computed; what is typed now wins."""
    old = checkpoint.load(ROOT / "tests" / "format-2.safetensors")
    old = replace(old, corpus_name=corpus.name, corpus_sha256=corpus.sha256)
    assert old.run == RunConfig()
    checkpoint.save(out / "last.safetensors", old)
    found = plan(data, out, resume=True, preset="mini", compile=True, max_iters=301)
    run = RunConfig(preset="mini", device="cpu", dtype="float32", compile=True)
    assert found.options.run == run
    assert found.options.train == replace(old.train, max_iters=301)
    assert found.goes_on and found.initial.progress == old.progress


@pytest.mark.parametrize(("bfloat16", "expected"), [(True, "base"), (False, "mini")])
def test_a_gpu_trains_base_where_it_has_bfloat16(monkeypatch, bfloat16, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **options: bfloat16)
    for processes in (1, 8):  # a micro-batch for each, and losses are read seldom
        found = preset_options({}, processes=processes)
        assert found.run.preset == expected
        assert found.train.gradient_accumulation_steps == processes
        assert found.train.log_interval == 100


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
    return with_values(preset_options({"preset": name, "device": "cpu"}), train)


def suited(options: TrainOptions, corpus: Corpus, **typed: Any) -> TrainOptions:
    return follow_text(options, corpus, typed)[0]


@pytest.mark.parametrize("name", PRESETS)
def test_how_often_a_text_is_read(name):
    """A long one for as long as the preset says, a short one as often as it says."""
    options = options_of(name)
    found = suited(options, corpus_of(2 * characters_read(options)))
    train = replace(options.train, eval_interval=found.train.eval_interval)
    model = replace(options.model, ngram_dropout=found.model.ngram_dropout)
    assert found == replace(options, train=train, model=model)
    for length in (1, 20, 1_000, 20_000, 100_000):
        corpus = corpus_of(length)
        found = suited(options, corpus)
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
    found = suited(options, corpus)
    assert 1 <= found.train.max_iters <= max_iters
    assert 1 <= found.train.eval_interval <= found.train.max_iters
    evaluations = -(-found.train.max_iters // found.train.eval_interval)
    assert evaluations <= 10
    if evaluations > 1:
        assert 5 * evaluations * len(corpus.val) <= characters_read(found)
    same = {"max_iters": max_iters, "eval_interval": options.train.eval_interval, "logit_scale": 1}
    assert replace(found.train, **same) == options.train


@pytest.mark.parametrize(
    ("length", "steps", "interval", "dropped", "scale"),
    [
        (1_000_000, 1700, 284, 0.5, 1.08),  # 3.9 times; 6.96 evaluations would be a fifth
        (2_000_000, 1700, 567, 0.15, 1.02),  # 1.93 times; three evaluations
        (30_000_000, 5000, 2500, 0.0, 1.0),  # each evaluation reads a million characters
    ],
)
def test_what_the_length_decides(length, steps, interval, dropped, scale):
    found, said = follow_text(options_of("mini", max_iters=steps), corpus_of(length), {})
    assert found.train.eval_interval == interval
    assert (found.model.ngram_dropout, found.train.logit_scale) == (dropped, scale)
    for words in (f"eval_interval {interval}", f"ngram_dropout {dropped:g}"):
        assert words in said
    assert "max_iters" not in said
    _, said = follow_text(options_of("mini"), corpus_of(length), {"ngram_dropout": 0.0})
    assert "ngram_dropout" not in said and "logit_scale" in said


@pytest.mark.parametrize("name", ["classic", "base"])
def test_without_a_table_nothing_is_dropped_or_made_less_sure(name):
    found = suited(options_of(name), corpus_of(10_000))
    assert (found.model, found.train.logit_scale) == (PRESETS[name].model, 1)


def test_a_tuned_model_reads_half_as_often_and_drops_nothing_where_little_is_read_again():
    options = options_of("mini")
    options = replace(options, model=replace(options.model, dropout=0.1))
    tuned = replace(options, folder=INIT)
    short, long = corpus_of(60_000), corpus_of(480_000)
    steps = [suited(each, short).train.max_iters for each in (options, tuned)]
    assert steps[1] == pytest.approx(steps[0] / 2, abs=1)
    for max_iters, dropout in ((308, 0.0), (309, 0.1)):  # of 2,048 characters
        of_length = replace(tuned, train=replace(tuned.train, max_iters=max_iters))
        assert suited(of_length, long, max_iters=max_iters).model.dropout == dropout
    assert suited(options, short).model.dropout == 0.1
    assert suited(tuned, short, dropout=0.1).model.dropout == 0.1


def test_what_is_given_wins_over_the_length_of_the_text():
    options, short = options_of("mini", max_iters=300, eval_interval=200), corpus_of(60)
    steps = suited(options, short, max_iters=300)
    train = {"eval_interval": 30, "logit_scale": 1.13}  # ten evaluations
    assert steps.train == replace(options.train, **train)
    assert steps.model.ngram_dropout > options.model.ngram_dropout
    other = {"eval_interval": 200, "ngram_dropout": 0.0, "logit_scale": 1.0}
    found = suited(options, short, **other)
    assert found.train.max_iters < 300
    assert found == replace(options, train=replace(options.train, max_iters=found.train.max_iters))


# --- the state ------------------------------------------------------------------------------


def test_the_vocabulary_is_learned_from_the_part_to_train_on(corpus):
    state = new_state(small_options(), corpus)
    expected, other = (ngrams.vocabulary(ids, 3, 16) for ids in (corpus.train, corpus.val))
    assert np.array_equal(state.model.ngram_embedding.keys, expected)
    assert not np.array_equal(expected, other)
    with pytest.raises(ValueError, match="give one"):
        TrainingState.start(state.model.config, state.config, CPU)


def grown(initial: Checkpoint, text: str, folder: Path) -> tuple[TrainingState, Corpus]:
    """Return the state that begins with other weights on a text with other characters."""
    options = replace(small_options(max_iters=9), folder=INIT, model=initial.model)
    return make_state(RunPlan(options, folder, initial), prepared(text, folder), CPU)


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
        rows = [mean, before[known.index("r")], before[known.index("o")], mean]
        assert np.array_equal(after, [*before, *rows])
        assert after.dtype == np.float32
    assert bits(arrays) == bits({name: initial.weights[name] for name in arrays})


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_more_than_256_characters(tmp_path, corpus, tied):
    """The ids of a text of few characters take two bytes where the model knows many."""
    options = small_options()
    options = replace(options, model=replace(options.model, tie_embeddings=tied))
    initial = new_state(options, corpus).to_checkpoint(corpus, with_optimizer=True)
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 250))) + "\n"
    state, recoded = grown(initial, 3 * text, tmp_path / "other")
    assert recoded.train.dtype == recoded.val.dtype == np.dtype("<u2")
    assert recoded.tokenizer.decode([*recoded.train, *recoded.val]) == 3 * text
    arrays = state.model.arrays()
    assert np.array_equal(arrays["token_embedding.weight"], arrays["head.weight"]) is tied
    assert [*fit(state, recoded, CPU)][-1].step == 9
    checkpoint.save(tmp_path / "saved", state.to_checkpoint(recoded, with_optimizer=True))
    saved = checkpoint.load(tmp_path / "saved")
    other = prepared(3 * text, tmp_path / "again")  # the same text by another name
    options = TrainOptions(model=saved.model, train=saved.train)
    _, again = make_state(RunPlan(options, Path(), saved, goes_on=True), other, CPU)
    assert np.array_equal(again.train, recoded.train)


# --- what a run cannot change ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"max_iters": 5}, "--max_iters is 5, but the run has done 6 steps"),
        ({"look_ahead": 1}, "--look_ahead is 1, but 2 in the checkpoint;"),
        ({"preset": "base"}, "--preset is base, but mini in the checkpoint;"),
        ({"dataset": "other"}, "the run learned from another text than other"),
    ],
)
def test_what_a_run_cannot_change_is_refused(data, out, typed, words):
    prepared("Otro texto.\n" * 50, data / "other")
    with refused(words):
        plan(data, out, resume=True, **typed)


def test_neither_the_optimizer(data, out, corpus):
    changed = plan(data, out, resume=True, optimizer="adamw")
    with refused("--optimizer that the run began with"):
        make_state(changed, corpus, CPU)


@pytest.mark.parametrize("preset", ["mini", "classic"])
def test_a_best_model_that_was_copied_is_no_run_to_go_on_with(data, out, initial, preset):
    best = replace(initial, optimizer={}, run=RunConfig(preset=preset))
    if preset == "classic":
        best = replace(best, train=replace(best.train, look_ahead=0, optimizer="adamw"))
    checkpoint.save(out / "last.safetensors", best)
    with refused("last.safetensors has no state of an optimizer to go on with; begin a new run"):
        plan(data, out, resume=True)


@pytest.mark.parametrize("option", fields(ModelConfig), ids=lambda option: option.name)
def test_every_option_that_changes_a_weight_counts(data, out, initial, option):
    value = getattr(initial.model, option.name)
    if get_origin(option.type) is Literal:
        new = next(choice for choice in get_args(option.type) if choice != value)
    else:
        new = {bool: not value, int: 2 * value, float: 0.5}[type(value)]
    path = out / "last.safetensors"
    for typed in ({"resume": True}, {"init_from": path, "out_dir": out / "new"}):
        folder = typed.pop("out_dir", out)
        if option.name in ("vocab_size", "dropout", "ngram_dropout"):
            found = plan(data, folder, **typed, **{option.name: new})
            assert getattr(found.options.model, option.name) == new
            continue
        with refused(f"--{option.name} is {new}, but {value} in the checkpoint; leave it out"):
            plan(data, folder, **typed, **{option.name: new})
