import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
import torch
from conftest import CPU, prepared, randomise, small_options
from hypothesis import example, given
from hypothesis import strategies as st

from sancho import checkpoint
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import CorpusConfig, ModelConfig, RunConfig, TrainConfig, TrainOptions
from sancho.corpus import Corpus
from sancho.errors import MissingFile, UserError
from sancho.presets import PRESETS
from sancho.run import setup
from sancho.run.setup import default_options, differences, find_initial, follow_text, make_state
from sancho.tokenizer import CharTokenizer
from sancho.training import TrainingState, fit

pytestmark = pytest.mark.usefixtures("one_thread")
RESUME = RunConfig(resume=True)
INIT = RunConfig(init_from=Path("x"))
ANOTHER = {"n_layer": 3, "norm": "layernorm", "dropout": 0.5}


def options_for(run: RunConfig, initial: Checkpoint, **train) -> TrainOptions:
    """Return options for a run of 9 steps with the model of a checkpoint."""
    options = small_options(**{"max_iters": 9} | train)
    return replace(options, run=run, model=initial.model)


@pytest.fixture(scope="module")
def initial(corpus) -> Checkpoint:
    """What a run of six steps has saved; nobody trains on with its arrays."""
    state, corpus = make_state(small_options(), None, corpus, CPU)
    assert [report.step for report in fit(state, corpus, CPU)] == [1, 2, 3, 4, 5, 6]
    return state.to_checkpoint(corpus, with_optimizer=True)


def assert_same_arrays(ours: dict, theirs: dict) -> None:
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


# --- the initial checkpoint -----------------------------------------------------------------


def test_a_run_begins_with_nothing_its_last_checkpoint_or_the_one_that_was_named(tmp_path, initial):
    best, last = tmp_path / "best.safetensors", tmp_path / "last.safetensors"
    checkpoint.save(best, replace(initial, corpus_name="another"))
    with pytest.raises(MissingFile, match=r"last\.safetensors is missing"):
        find_initial(RunConfig(out_dir=tmp_path, resume=True))
    checkpoint.save(last, initial)
    assert find_initial(RunConfig(out_dir=tmp_path)) is None
    assert find_initial(RunConfig(out_dir=tmp_path, resume=True)).corpus_name == "tiny"
    run = RunConfig(out_dir=tmp_path / "out", init_from=best)
    assert find_initial(run).corpus_name == "another"
    with pytest.raises(MissingFile, match=r"nothing\.safetensors.*--init_from pretrained"):
        find_initial(replace(run, init_from=tmp_path / "nothing.safetensors"))
    assert not (tmp_path / "out").exists()


def test_pretrained_is_the_model_that_comes_with_the_project(tmp_path, monkeypatch, initial):
    monkeypatch.chdir(tmp_path)
    run = RunConfig(init_from=Path("pretrained"))
    Path("pretrained").mkdir()
    assert_same_arrays(find_initial(run).weights, checkpoint.pretrained().weights)
    Path("pretrained").rmdir()
    checkpoint.save(Path("pretrained"), initial)  # unless there is a file of that name
    assert_same_arrays(find_initial(run).weights, initial.weights)


# --- what holds where the user says nothing -------------------------------------------------


def test_a_run_that_goes_on_keeps_its_options(initial):
    for name in PRESETS:
        model = replace(PRESETS[name].model, vocab_size=9, dropout=0.3)
        found = default_options(RESUME, CPU, replace(initial, model=model))
        assert found.run == RunConfig(preset=name, resume=True)
        assert (found.model, found.train) == (model, initial.train)
        assert found.data == CorpusConfig(dataset="tiny")


def gently(train: TrainConfig) -> TrainConfig:
    """Return how a preset trains a model that can read already."""
    adamw, muon = 0.2 * train.learning_rate, 0.2 * train.muon_learning_rate
    return replace(train, learning_rate=adamw, muon_learning_rate=muon)


@pytest.mark.parametrize("name", PRESETS)
def test_other_weights_bring_their_preset(initial, name):
    model = replace(PRESETS[name].model, vocab_size=9, ngram_dropout=0.3)
    found = default_options(INIT, CPU, replace(initial, model=model))
    assert found.run == replace(INIT, preset=name)
    assert (found.model, found.train) == (model, gently(PRESETS[name].train))
    assert found.data == CorpusConfig()
    for other in PRESETS:  # unless the user names another
        found = default_options(replace(INIT, preset=other), CPU, replace(initial, model=model))
        assert found.run.preset == other
        assert (found.model, found.train) == (model, gently(PRESETS[other].train))


def test_weights_of_no_preset_are_trained_as_suits_the_device(initial):
    found = default_options(INIT, CPU, initial)
    assert (found.run.preset, found.model) == ("mini", initial.model)
    assert found.train == replace(
        PRESETS["mini"].train, learning_rate=0.004, muon_learning_rate=0.003
    )


# --- a length that suits the text -----------------------------------------------------------


def corpus_of(length: int) -> Corpus:
    ids = np.zeros(length, dtype=np.uint8)
    n_train = length - length // 10
    return Corpus("a text", CharTokenizer("a"), ids[:n_train], ids[n_train:], "")


def characters_read(options: TrainOptions) -> int:
    return options.train.max_iters * options.train.characters_per_step(options.model)


def preset_options(name: str, **train) -> TrainOptions:
    preset = PRESETS[name]
    run, train = RunConfig(preset=name), replace(preset.train, **train)
    return TrainOptions(run=run, model=preset.model, train=train)


@pytest.mark.parametrize("name", PRESETS)
def test_how_often_a_text_is_read(name):
    """A long one for as long as the preset says, a short one as often as it says."""
    options = preset_options(name)
    found = follow_text(options, corpus_of(2 * characters_read(options)), {})
    train = replace(options.train, eval_interval=found.train.eval_interval)
    model = replace(options.model, ngram_dropout=found.model.ngram_dropout)
    assert found == replace(options, train=train, model=model)
    for length in (1, 20, 1_000, 20_000, 100_000):
        corpus = corpus_of(length)
        found = follow_text(options, corpus, {})
        wanted = PRESETS[name].passes * len(corpus.train)
        a_step = options.train.characters_per_step(options.model)
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
    found = follow_text(options, corpus, {})
    assert 1 <= found.train.max_iters <= max_iters
    assert 1 <= found.train.eval_interval <= found.train.max_iters
    evaluations = -(-found.train.max_iters // found.train.eval_interval)
    assert evaluations <= 10
    if evaluations > 1:
        assert 5 * evaluations * len(corpus.val) <= characters_read(found)
    same = {"max_iters": max_iters, "eval_interval": options.train.eval_interval}
    assert replace(found.train, **same) == options.train


def test_what_is_read_more_often_is_dropped_more():
    lengths = [10_000, 200_000, 600_000, 900_000, 1_500_000, 2_500_000, 5_000_000]
    mini, classic, base = (
        [follow_text(preset_options(name), corpus_of(n), {}).model for n in lengths]
        for name in ("mini", "classic", "base")
    )
    dropped = [model.ngram_dropout for model in mini]
    assert dropped == sorted(dropped, reverse=True)
    assert 0.9 > dropped[0] > dropped[-1] + 0.3 >= 0.3
    assert {*classic, *base} == {PRESETS["classic"].model, PRESETS["base"].model}  # without a table


def test_a_tuned_model_reads_half_as_often_and_drops_nothing_where_little_is_read_again():
    options = preset_options("mini")
    options = replace(options, model=replace(options.model, dropout=0.1))
    tuned = replace(options, run=replace(options.run, init_from=Path("a")))
    short, long = corpus_of(60_000), corpus_of(480_000)
    steps = [follow_text(each, short, {}).train.max_iters for each in (options, tuned)]
    assert steps[1] == pytest.approx(steps[0] / 2, abs=1)
    for max_iters, dropout in ((411, 0.0), (412, 0.1)):  # of 1,536 characters
        of_length = replace(tuned, train=replace(tuned.train, max_iters=max_iters))
        assert follow_text(of_length, long, {"max_iters": max_iters}).model.dropout == dropout
    assert follow_text(options, short, {}).model.dropout == 0.1
    assert follow_text(tuned, short, {"dropout": 0.1}).model.dropout == 0.1


def test_what_is_given_wins_over_the_length_of_the_text():
    options, short = preset_options("mini", max_iters=300, eval_interval=200), corpus_of(60)
    steps = follow_text(options, short, {"max_iters": 300})
    assert steps.train == replace(options.train, eval_interval=30)  # ten evaluations
    assert steps.model.ngram_dropout > options.model.ngram_dropout
    other = {"eval_interval": 200, "ngram_dropout": options.model.ngram_dropout}
    found = follow_text(options, short, other)
    assert found.train.max_iters < 300
    assert found == replace(options, train=replace(options.train, max_iters=found.train.max_iters))


# --- the state ------------------------------------------------------------------------------


def test_a_new_state_knows_the_characters_of_its_text(corpus):
    options = small_options()
    state, same = make_state(options, None, corpus, CPU)
    assert same is corpus
    expected = replace(options.model, vocab_size=corpus.tokenizer.vocab_size)
    assert (state.model.config, state.config) == (expected, replace(options.train, threads=1))
    by_hand = TrainingState.start(expected, options.train, CPU)
    assert_same_arrays(state.model.arrays(), by_hand.model.arrays())


def test_a_state_from_other_weights_begins_anew(tmp_path, corpus, initial):
    """The characters keep the ids that the weights know them by."""
    text = "mi sinrazón\n" * 30
    other = prepared(text, tmp_path / "other")
    assert other.tokenizer.characters != corpus.tokenizer.characters
    state, recoded = make_state(options_for(INIT, initial), initial, other, CPU)
    assert_same_arrays(state.model.arrays(), initial.weights)
    assert state.progress == Progress()
    assert not any(optimizer.state for optimizer in state.optimizers)
    assert recoded.tokenizer.characters == corpus.tokenizer.characters
    assert recoded.tokenizer.decode([*recoded.train, *recoded.val]) == text


def grown(initial: Checkpoint, text: str, folder: Path) -> tuple[TrainingState, Corpus]:
    """Return the state that begins with other weights on a text with other characters."""
    return make_state(options_for(INIT, initial), initial, prepared(text, folder), CPU)


def test_a_new_character_begins_like_the_nearest_or_else_as_the_mean(tmp_path, corpus, initial):
    text = "Razön 8 œ\n" * 30
    state, recoded = grown(initial, text, tmp_path / "other")
    known = corpus.tokenizer.characters
    assert recoded.tokenizer.characters == known + "8Röœ"  # œ would be two characters, oe
    assert recoded.tokenizer.decode([*recoded.train, *recoded.val]) == text
    assert state.model.config.vocab_size == len(known) + 4
    arrays = state.model.arrays()
    for name in ("token_embedding.weight", "head.weight"):
        before, after = initial.weights[name], arrays.pop(name)
        mean = before.mean(axis=0)
        rows = [mean, before[known.index("r")], before[known.index("ó")], mean]
        assert np.array_equal(after, [*before, *rows])
        assert after.dtype == np.float32
    assert_same_arrays(arrays, {name: initial.weights[name] for name in arrays})
    assert setup.describe_new_characters(initial, recoded) == (
        "4 new characters, 120 of the text's 300: 'R' as 'r', 'ö' as 'ó', '8' 'œ' as the mean"
    )


def test_known_characters_keep_their_logits(tmp_path, initial):
    model = randomise(initial.build_model())
    initial = replace(initial, weights=model.arrays())
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    n_known = initial.model.vocab_size
    for text, is_same in (("la razón\n" * 30, True), ("ψυχή\n" * 30, False)):
        state, recoded = grown(initial, text, tmp_path / text[:2])
        assert (setup.describe_new_characters(initial, recoded) == "") is is_same
        logits = state.model.eval()(ids)
        assert logits.shape[-1] == n_known + (0 if is_same else 4)
        # Rows that were added may change the order of a sum, and with it the last bit.
        difference = (logits[..., :n_known] - model(ids)).abs().max()
        assert difference <= (0 if is_same else 1e-6)


def test_a_text_in_another_script(tmp_path, initial):
    letters = "".join(map(chr, range(0x3B1, 0x3CA)))
    state, recoded = grown(initial, f"{letters}\n" * 30, tmp_path / "other")
    said = setup.describe_new_characters(initial, recoded)
    assert said.startswith("25 new characters, 750 of the text's 780: 'α' 'β' 'γ' ")
    assert said.endswith("'σ' 'τ' as the mean, 5 more")
    assert len(list(fit(state, recoded, CPU))) == 9


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
    assert saved.model.vocab_size == corpus.tokenizer.vocab_size + 250
    other = prepared(3 * text, tmp_path / "again")
    _, again = make_state(options_for(RESUME, saved), saved, other, CPU)
    assert np.array_equal(again.train, recoded.train)


@pytest.mark.parametrize(
    ("run", "model", "train", "words"),
    [
        (RESUME, ANOTHER, {}, "differs (n_layer: 1, not 3; norm: 'rmsnorm', not 'layernorm');"),
        (INIT, ANOTHER, {}, "differs (n_layer: 1, not 3; norm: 'rmsnorm', not 'layernorm');"),
        (RESUME, {}, {"optimizer": "adamw"}, "--optimizer that the run began with"),
        (RESUME, {}, {"max_iters": 5}, "--max_iters is 5, but the run has done 6 steps already"),
        (RESUME, {}, {"look_ahead": 1}, "--look_ahead is 1, but the run has 0 such heads"),
    ],
)
def test_what_a_run_cannot_change_is_refused(corpus, initial, run, model, train, words):
    changed = replace(initial, model=replace(initial.model, **model))
    with pytest.raises(UserError, match=f"^[^\n]*{re.escape(words)}[^\n]*$"):
        make_state(options_for(run, changed, **train), initial, corpus, CPU)


def test_another_text_is_refused_and_one_by_another_name_is_not(tmp_path, corpus, initial):
    other, options = prepared("Otro texto. " * 30, tmp_path / "other"), options_for(RESUME, initial)
    with pytest.raises(UserError, match=r"another text than other.*--dataset"):
        make_state(options, initial, other, CPU)
    state, _ = make_state(options, initial, replace(corpus, name="a copy of it"), CPU)
    assert state.progress.step == 6


# --- the same model -------------------------------------------------------------------------


@pytest.mark.parametrize("option", fields(ModelConfig), ids=lambda option: option.name)
def test_every_option_that_changes_a_weight_counts(initial, option):
    value = getattr(initial.model, option.name)
    if get_origin(option.type) is Literal:
        new = next(choice for choice in get_args(option.type) if choice != value)
    else:
        new = {bool: not value, int: 2 * value, float: 0.5}[option.type]
    ours = replace(initial.model, **{option.name: new})
    is_free = option.name in ("vocab_size", "dropout", "ngram_dropout")
    expected = [] if is_free else [f"{option.name}: {value!r}, not {new!r}"]
    assert differences(ours, initial.model) == expected


# --- what to call it ------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_a_model_is_known_by_its_preset(name):
    model = replace(PRESETS[name].model, vocab_size=9, dropout=0.3, ngram_dropout=0.2)
    assert setup.preset_of(model) == name
    assert setup.preset_of(replace(model, n_layer=model.n_layer + 1)) is None


def test_a_run_is_described(corpus, initial):
    state, _ = make_state(options_for(RESUME, initial), initial, corpus, CPU)
    parameters = sum(weight.size for weight in initial.weights.values())
    passes, characters = 9 * 2 * 8 / len(corpus.train), f"{len(corpus.train):,} characters"
    assert setup.describe(state, corpus) == (
        f"1 layers × 1 heads × 4 wide: {parameters:,} parameters; tiny: {characters} to train on; "
        f"9 steps, {passes:.1f} times the text"
    )
