import io
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import randomise
from hypothesis import example, given
from hypothesis import strategies as st

from sancho import checkpoint, start
from sancho.checkpoint import Checkpoint
from sancho.config import CorpusConfig, ModelConfig, RunConfig, TrainConfig, TrainOptions
from sancho.corpus import Corpus, prepare, recode
from sancho.device import Device
from sancho.errors import MissingFile, UserError
from sancho.presets import PRESETS
from sancho.start import (
    default_options,
    differences,
    find_source,
    follow_length,
    limit_length,
    make_state,
)
from sancho.tokenizer import CharTokenizer
from sancho.training import TrainingState, fit

CPU = Device(torch.device("cpu"), torch.float32)
TEXT = "La razón de la sinrazón que a mi razón se hace.\n" * 20
pytestmark = pytest.mark.usefixtures("one_thread")


def follow_text(options: TrainOptions, corpus: Corpus) -> TrainOptions:
    """Return what train.py makes of the options when it has seen the text."""
    return follow_length(limit_length(options, corpus), corpus)


def prepared(text: str, folder: Path) -> Corpus:
    return prepare([("a text", io.BytesIO(text.encode()))], folder, "a test")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    return prepared(TEXT, tmp_path_factory.mktemp("data") / "tiny")


def options_for(run: RunConfig | None = None, **train) -> TrainOptions:
    shape = {"block_size": 8, "n_layer": 1, "n_head": 1, "n_embd": 4}
    shape |= {"ngram_size": 3, "ngram_rows": 16, "embedding_skip": True}
    train = {"max_iters": 6, "batch_size": 2, "eval_interval": 3, "log_interval": 2} | train
    return TrainOptions(
        run=run or RunConfig(), model=ModelConfig(**shape), train=TrainConfig(**train)
    )


RESUME = RunConfig(resume=True)


@pytest.fixture(scope="module")
def source(corpus) -> Checkpoint:
    """What a run of six steps has saved; nobody trains on with its arrays."""
    state, corpus = make_state(options_for(), None, corpus, CPU)
    assert [report.step for report in fit(state, corpus, CPU)] == [1, 2, 3, 4, 5, 6]
    return state.to_checkpoint(corpus, with_optimizer=True)


def refused(options: TrainOptions, source: Checkpoint, corpus: Corpus) -> str:
    with pytest.raises(UserError) as caught:
        make_state(options, source, corpus, CPU)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_same_arrays(ours: dict, theirs: dict) -> None:
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


# --- the source -----------------------------------------------------------------------------


def test_a_new_run_has_no_source(tmp_path, source):
    checkpoint.save(tmp_path / "last.safetensors", source)
    assert find_source(RunConfig(out_dir=tmp_path)) is None


def test_the_source_of_a_run_that_goes_on_is_its_last_checkpoint(tmp_path, source):
    checkpoint.save(tmp_path / "best.safetensors", replace(source, corpus_name="another"))
    with pytest.raises(MissingFile, match=r"last\.safetensors is missing"):
        find_source(RunConfig(out_dir=tmp_path, resume=True))
    checkpoint.save(tmp_path / "last.safetensors", source)
    found = find_source(RunConfig(out_dir=tmp_path, resume=True))
    assert found.corpus_name == source.corpus_name
    assert_same_arrays(found.optimizer, source.optimizer)


def test_the_source_of_other_weights_is_the_file_that_was_named(tmp_path, source):
    path = tmp_path / "any.safetensors"
    with pytest.raises(MissingFile, match=r"any\.safetensors"):
        find_source(RunConfig(out_dir=tmp_path / "out", init_from=path))
    checkpoint.save(path, source)
    found = find_source(RunConfig(out_dir=tmp_path / "out", init_from=path))
    assert_same_arrays(found.weights, source.weights)
    assert not (tmp_path / "out").exists()


# --- what holds where the user says nothing -------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "bfloat16", "expected"),
    [
        ("cpu", False, "mini"),
        ("cpu", True, "mini"),
        ("mps", True, "mini"),
        ("cuda", False, "mini"),
        ("cuda", True, "base"),
    ],
)
def test_the_preset_that_suits_the_device(monkeypatch, kind, bfloat16, expected):
    monkeypatch.setattr(start, "has_bfloat16", lambda: bfloat16)
    device, preset = Device(torch.device(kind), torch.float32), PRESETS[expected]
    found = default_options(RunConfig(), device, None)
    assert (found.run.preset, found.model, found.train) == (expected, preset.model, preset.train)
    assert found.data == CorpusConfig()
    for name, preset in PRESETS.items():
        found = default_options(RunConfig(preset=name), device, None)
        assert (found.run.preset, found.model, found.train) == (name, preset.model, preset.train)


def test_a_run_that_goes_on_keeps_its_options(source):
    for name in PRESETS:
        source_of = replace(source, model=replace(PRESETS[name].model, vocab_size=9, dropout=0.3))
        found = default_options(RESUME, CPU, source_of)
        assert found.run == RunConfig(preset=name, resume=True)
        assert (found.model, found.train) == (source_of.model, source.train)
        assert found.data == CorpusConfig(dataset="tiny")


@pytest.mark.parametrize("name", PRESETS)
def test_other_weights_bring_their_preset(source, name):
    run = RunConfig(init_from=Path("x"))
    model = replace(PRESETS[name].model, vocab_size=9, ngram_dropout=0.3)
    found = default_options(run, CPU, replace(source, model=model))
    assert found.run == replace(run, preset=name)
    assert (found.model, found.train) == (model, PRESETS[name].train)
    assert found.data == CorpusConfig()
    for other in PRESETS:  # unless the user names another
        found = default_options(replace(run, preset=other), CPU, replace(source, model=model))
        assert found.run.preset == other
        assert (found.model, found.train) == (model, PRESETS[other].train)


def test_weights_of_no_preset_are_trained_as_suits_the_device(source):
    found = default_options(RunConfig(init_from=Path("x")), CPU, source)
    assert (found.run.preset, found.model) == ("mini", source.model)
    assert found.train == PRESETS["mini"].train


# --- a length that suits the text -----------------------------------------------------------


def corpus_of(length: int) -> Corpus:
    ids = np.zeros(length, dtype=np.uint8)
    n_train = length - length // 10
    return Corpus("a text", CharTokenizer("a"), ids[:n_train], ids[n_train:], "")


def characters_read(options: TrainOptions) -> int:
    per_step = options.model.block_size * options.train.batch_size
    return options.train.max_iters * options.train.gradient_accumulation_steps * per_step


def preset_options(name: str, **train) -> TrainOptions:
    preset = PRESETS[name]
    run, train = RunConfig(preset=name), replace(preset.train, **train)
    return TrainOptions(run=run, model=preset.model, train=train)


@pytest.mark.parametrize("name", PRESETS)
def test_a_long_text_is_read_for_as_long_as_the_preset_says(name):
    options = preset_options(name)
    found = follow_text(options, corpus_of(2 * characters_read(options)))
    assert found.train == replace(options.train, eval_interval=found.train.eval_interval)
    assert found.model == replace(options.model, ngram_dropout=found.model.ngram_dropout)
    assert (found.run, found.data, found.device) == (options.run, options.data, options.device)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("length", [1, 20, 1_000, 20_000, 100_000])
def test_a_short_text_is_read_as_often_as_the_preset_says(name, length):
    corpus, options = corpus_of(length), preset_options(name)
    found = follow_text(options, corpus)
    wanted = PRESETS[name].passes * len(corpus.train)
    a_step = characters_read(options) / options.train.max_iters
    assert characters_read(found) - a_step < wanted <= characters_read(found)


@given(
    length=st.integers(1, 3_000_000),
    name=st.sampled_from(sorted(PRESETS)),
    max_iters=st.integers(1, 10_000),
    batch_size=st.integers(1, 100),
    parts=st.integers(1, 4),
)
@example(length=1, name="mini", max_iters=1, batch_size=1, parts=1)
@example(length=5_000_000, name="mini", max_iters=1800, batch_size=6, parts=1)
def test_evaluations_are_few_and_take_a_fifth_at_most(length, name, max_iters, batch_size, parts):
    options = preset_options(
        name, max_iters=max_iters, batch_size=batch_size, gradient_accumulation_steps=parts
    )
    corpus = corpus_of(length)
    found = follow_text(options, corpus)
    assert 1 <= found.train.max_iters <= max_iters
    assert 1 <= found.train.eval_interval <= found.train.max_iters
    evaluations = -(-found.train.max_iters // found.train.eval_interval)
    assert evaluations <= 10
    if evaluations > 1:
        assert 5 * evaluations * len(corpus.val) <= characters_read(found)
    same = {"max_iters": max_iters, "eval_interval": options.train.eval_interval}
    assert replace(found.train, **same) == options.train


def test_fewer_steps_than_suit_the_text_are_made():
    found = follow_text(preset_options("mini", max_iters=7), corpus_of(1_000_000))
    assert found.train.max_iters == 7


def test_what_is_read_more_often_is_dropped_more():
    lengths = [10_000, 200_000, 600_000, 900_000, 1_500_000, 2_500_000, 5_000_000]
    found = [follow_text(preset_options("mini"), corpus_of(length)) for length in lengths]
    shares = [options.model.ngram_dropout for options in found]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1] + 0.3
    assert all(0 <= share < 0.9 for share in shares)
    for name in ("classic", "base"):  # they have no table
        model = PRESETS[name].model
        assert all(follow_text(preset_options(name), corpus_of(n)).model == model for n in lengths)


# --- the state ------------------------------------------------------------------------------


def test_a_new_state_knows_the_characters_of_its_text(corpus):
    options = options_for()
    state, same = make_state(options, None, corpus, CPU)
    assert same is corpus
    assert options.model.vocab_size != corpus.tokenizer.vocab_size
    expected = replace(options.model, vocab_size=corpus.tokenizer.vocab_size)
    assert (state.model.config, state.config) == (expected, options.train)
    assert (state.progress.step, state.progress.tokens) == (0, 0)
    by_hand = TrainingState.start(expected, options.train, CPU)
    assert_same_arrays(state.model.arrays(), by_hand.model.arrays())


def test_a_state_that_goes_on_is_the_one_that_was_saved(corpus, source):
    options = replace(options_for(RESUME, max_iters=9), model=source.model)
    state, same = make_state(options, source, corpus, CPU)
    assert same is corpus
    assert state.progress == source.progress
    assert state.config.max_iters == 9
    again = state.to_checkpoint(corpus, with_optimizer=True)
    assert_same_arrays(again.weights, source.weights)
    assert_same_arrays(again.optimizer, source.optimizer)
    assert [report.step for report in fit(state, corpus, CPU)] == [7, 8, 9]


def test_a_state_from_other_weights_begins_anew(tmp_path, corpus, source):
    """The characters keep the ids that the weights know them by."""
    text = "mi sinrazón\n" * 30
    other = prepared(text, tmp_path / "other")
    assert other.tokenizer.characters != corpus.tokenizer.characters
    run = RunConfig(init_from=Path("x"))
    state, recoded = make_state(replace(options_for(run), model=source.model), source, other, CPU)
    assert_same_arrays(state.model.arrays(), source.weights)
    assert (state.progress.step, state.progress.tokens, state.progress.val_loss) == (0, 0, None)
    assert not any(optimizer.state for optimizer in state.optimizers)
    assert recoded.tokenizer.characters == corpus.tokenizer.characters
    assert recoded.tokenizer.decode([*recoded.train, *recoded.val]) == text
    assert recoded.name == "other"
    assert np.array_equal(recoded.train, recode(other, corpus.tokenizer).train)


def test_characters_that_other_weights_do_not_know_are_refused(tmp_path, source):
    other = prepared("¿Qué?\n" * 30, tmp_path / "other")
    options = replace(options_for(RunConfig(init_from=Path("x"))), model=source.model)
    message = refused(options, source, other)
    assert "'¿'" in message
    assert "other" in message


@pytest.mark.parametrize("run", [RESUME, RunConfig(init_from=Path("x"))], ids=["resume", "init"])
def test_dropout_may_change(corpus, source, run):
    model = replace(source.model, dropout=0.25, ngram_dropout=0.5)
    state, _ = make_state(replace(options_for(run, max_iters=9), model=model), source, corpus, CPU)
    assert state.model.config == model
    randomise(state.model)  # or the blocks add nothing, and nothing is dropped
    torch.manual_seed(0)
    ids = torch.from_numpy(corpus.train[:8].astype(np.int64))[None]
    ours = state.model.train()(ids), state.model(ids)
    assert not torch.equal(*ours)
    assert len(list(fit(state, corpus, CPU))) == (3 if run.resume else 9)


@pytest.mark.parametrize("run", [RESUME, RunConfig(init_from=Path("x"))], ids=["resume", "init"])
def test_another_model_is_refused(corpus, source, run):
    model = replace(source.model, n_layer=3, norm="layernorm", dropout=0.5)
    message = refused(replace(options_for(run), model=model), source, corpus)
    assert "n_layer: 1, not 3" in message
    assert "norm: 'rmsnorm', not 'layernorm'" in message
    for same in ("n_head", "n_embd", "block_size", "dropout"):
        assert same not in message


def test_another_text_is_refused(tmp_path, corpus, source):
    other = prepared("Otro texto. " * 30, tmp_path / "other")
    options = replace(options_for(RESUME, max_iters=9), model=source.model)
    message = refused(options, source, other)
    assert "other" in message
    assert "--dataset" in message
    state, _ = make_state(options, source, replace(corpus, name="a copy of it"), CPU)
    assert state.progress.step == 6


def test_another_optimizer_is_refused(corpus, source):
    options = replace(options_for(RESUME, max_iters=9, optimizer="adamw"), model=source.model)
    assert "--optimizer that the run began with" in refused(options, source, corpus)


# --- the same model -------------------------------------------------------------------------

OTHERS = {
    "block_size": 9,
    "n_layer": 2,
    "n_head": 2,
    "n_embd": 8,
    "bias": True,
    "norm": "layernorm",
    "position": "learned",
    "activation": "gelu",
    "ngram_size": 2,
    "ngram_rows": 32,
    "embedding_skip": False,
    "qk_norm": False,
    "tie_embeddings": True,
}
FREE = {"vocab_size": 5, "dropout": 0.5, "ngram_dropout": 0.5}


def test_every_option_of_the_model_is_here():
    assert OTHERS.keys() | FREE.keys() == {field.name for field in fields(ModelConfig)}


@pytest.mark.parametrize("option", OTHERS)
def test_every_option_that_changes_the_weights_counts(source, option):
    ours, theirs = replace(source.model, **{option: OTHERS[option]}), source.model
    assert differences(theirs, theirs) == []
    was = getattr(theirs, option)
    assert differences(ours, theirs) == [f"{option}: {was!r}, not {OTHERS[option]!r}"]
    assert differences(theirs, ours) == [f"{option}: {OTHERS[option]!r}, not {was!r}"]


def test_all_differences_are_named_in_order():
    ours = ModelConfig(n_layer=4, norm="rmsnorm")
    theirs = replace(ours, norm="layernorm", n_layer=7)
    assert differences(ours, replace(ours)) == []
    assert differences(ours, theirs) == ["n_layer: 7, not 4", "norm: 'layernorm', not 'rmsnorm'"]
    assert differences(theirs, ours) == ["n_layer: 4, not 7", "norm: 'rmsnorm', not 'layernorm'"]


@pytest.mark.parametrize("option", FREE)
def test_options_that_change_no_weight_do_not_count(source, option):
    assert differences(replace(source.model, **{option: FREE[option]}), source.model) == []


# --- what to call it ------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_a_model_is_known_by_its_preset(name):
    model = replace(PRESETS[name].model, vocab_size=9, dropout=0.3, ngram_dropout=0.2)
    assert start.preset_of(model) == name
    assert start.preset_of(replace(model, n_layer=model.n_layer + 1)) is None


def test_a_run_is_described(corpus, source):
    options = replace(options_for(RESUME, max_iters=9), model=source.model)
    state, _ = make_state(options, source, corpus, CPU)
    parameters = sum(weight.size for weight in source.weights.values())
    line = start.describe(state, corpus)
    assert line.startswith(f"1 layers × 1 heads × 4 wide: {parameters:,} parameters; tiny: ")
    passes = 9 * 2 * 8 / len(corpus.train)
    assert f"{len(corpus.train):,} characters" in line
    assert "9 steps" in line
    assert f"{passes:.1f} times the text" in line
