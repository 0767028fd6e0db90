import io
from dataclasses import fields, replace
from pathlib import Path
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
import torch
from conftest import randomise
from hypothesis import example, given
from hypothesis import strategies as st

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import CorpusConfig, ModelConfig, RunConfig, TrainConfig, TrainOptions
from sancho.corpus import Corpus, prepare, remap_ids
from sancho.errors import MissingFile, UserError
from sancho.machine.device import Device
from sancho.presets import PRESETS
from sancho.run import setup
from sancho.run.setup import (
    default_options,
    differences,
    find_initial,
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


def options_for(
    run: RunConfig | None = None, initial: Checkpoint | None = None, **train
) -> TrainOptions:
    """Return options for a new run of 6 steps, or one of 9 with the model of a checkpoint."""
    shape = {"block_size": 8, "n_layer": 1, "n_head": 1, "n_embd": 4}
    shape |= {"ngram_size": 3, "ngram_rows": 16, "embedding_skip": True}
    model = initial.model if initial else ModelConfig(**shape)
    given = {"batch_size": 2, "eval_interval": 3, "log_interval": 2}
    given |= {"max_iters": 9 if initial else 6} | train
    return TrainOptions(run=run or RunConfig(), model=model, train=TrainConfig(**given))


RESUME = RunConfig(resume=True)
INIT = RunConfig(init_from=Path("x"))
both_ways = pytest.mark.parametrize("run", [RESUME, INIT], ids=["resume", "init"])


@pytest.fixture(scope="module")
def initial(corpus) -> Checkpoint:
    """What a run of six steps has saved; nobody trains on with its arrays."""
    state, corpus = make_state(options_for(), None, corpus, CPU)
    assert [report.step for report in fit(state, corpus, CPU)] == [1, 2, 3, 4, 5, 6]
    return state.to_checkpoint(corpus, with_optimizer=True)


def refused(options: TrainOptions, initial: Checkpoint, corpus: Corpus) -> str:
    with pytest.raises(UserError) as caught:
        make_state(options, initial, corpus, CPU)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_same_arrays(ours: dict, theirs: dict) -> None:
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


# --- the initial checkpoint -----------------------------------------------------------------


def test_a_run_begins_with_nothing_its_last_checkpoint_or_the_one_that_was_named(tmp_path, initial):
    other = replace(initial, corpus_name="another")
    checkpoint.save(tmp_path / "best.safetensors", other)
    with pytest.raises(MissingFile, match=r"last\.safetensors is missing"):
        find_initial(RunConfig(out_dir=tmp_path, resume=True))
    checkpoint.save(tmp_path / "last.safetensors", initial)
    assert find_initial(RunConfig(out_dir=tmp_path)) is None
    found = find_initial(RunConfig(out_dir=tmp_path, resume=True))
    assert found.corpus_name == initial.corpus_name
    assert_same_arrays(found.optimizer, initial.optimizer)
    run = RunConfig(out_dir=tmp_path / "out", init_from=tmp_path / "best.safetensors")
    found = find_initial(run)
    assert found.corpus_name == "another"
    assert_same_arrays(found.weights, initial.weights)
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
    monkeypatch.setattr(setup, "has_bfloat16", lambda: bfloat16)
    device, preset = Device(torch.device(kind), torch.float32), PRESETS[expected]
    found = default_options(RunConfig(), device, None)
    assert (found.run.preset, found.model, found.train) == (expected, preset.model, preset.train)
    assert found.data == CorpusConfig()
    for name, preset in PRESETS.items():
        found = default_options(RunConfig(preset=name), device, None)
        assert (found.run.preset, found.model, found.train) == (name, preset.model, preset.train)


def test_a_run_that_goes_on_keeps_its_options(initial):
    for name in PRESETS:
        model = replace(PRESETS[name].model, vocab_size=9, dropout=0.3)
        found = default_options(RESUME, CPU, replace(initial, model=model))
        assert found.run == RunConfig(preset=name, resume=True)
        assert (found.model, found.train) == (model, initial.train)
        assert found.data == CorpusConfig(dataset="tiny")


def gently(train: TrainConfig) -> TrainConfig:
    """Return how a preset trains a model that can read already."""
    adamw, muon = 0.4 * train.learning_rate, 0.4 * train.muon_learning_rate
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
        PRESETS["mini"].train, learning_rate=0.008, muon_learning_rate=0.006
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
    found = follow_text(options, corpus_of(2 * characters_read(options)))
    train = replace(options.train, eval_interval=found.train.eval_interval)
    model = replace(options.model, ngram_dropout=found.model.ngram_dropout)
    assert found == replace(options, train=train, model=model)
    for length in (1, 20, 1_000, 20_000, 100_000):
        corpus = corpus_of(length)
        found = follow_text(options, corpus)
        wanted = PRESETS[name].passes * len(corpus.train)
        a_step = options.train.characters_per_step(options.model)
        assert characters_read(found) - a_step < wanted <= characters_read(found)
    assert follow_text(preset_options(name, max_iters=7), corpus_of(10**6)).train.max_iters == 7


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


def test_what_is_read_more_often_is_dropped_more():
    lengths = [10_000, 200_000, 600_000, 900_000, 1_500_000, 2_500_000, 5_000_000]
    found = [follow_text(preset_options("mini"), corpus_of(length)) for length in lengths]
    dropped = [options.model.ngram_dropout for options in found]
    assert dropped == sorted(dropped, reverse=True)
    assert 0.9 > dropped[0] > dropped[-1] + 0.3 >= 0.3
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
    assert (state.model.config, state.config) == (expected, replace(options.train, threads=1))
    assert (state.progress.step, state.progress.tokens) == (0, 0)
    by_hand = TrainingState.start(expected, options.train, CPU)
    assert_same_arrays(state.model.arrays(), by_hand.model.arrays())


def test_a_state_that_goes_on_is_the_one_that_was_saved(corpus, initial):
    state, same = make_state(options_for(RESUME, initial), initial, corpus, CPU)
    assert same is corpus
    assert state.progress == initial.progress
    assert state.config.max_iters == 9
    again = state.to_checkpoint(corpus, with_optimizer=True)
    assert_same_arrays(again.weights, initial.weights)
    assert_same_arrays(again.optimizer, initial.optimizer)
    assert [report.step for report in fit(state, corpus, CPU)] == [7, 8, 9]


def test_a_state_from_other_weights_begins_anew(tmp_path, corpus, initial):
    """The characters keep the ids that the weights know them by."""
    text = "mi sinrazón\n" * 30
    other = prepared(text, tmp_path / "other")
    assert other.tokenizer.characters != corpus.tokenizer.characters
    state, recoded = make_state(options_for(INIT, initial), initial, other, CPU)
    assert_same_arrays(state.model.arrays(), initial.weights)
    assert (state.progress.step, state.progress.tokens, state.progress.val_loss) == (0, 0, None)
    assert not any(optimizer.state for optimizer in state.optimizers)
    assert recoded.tokenizer.characters == corpus.tokenizer.characters
    assert recoded.tokenizer.decode([*recoded.train, *recoded.val]) == text
    assert recoded.name == "other"
    assert np.array_equal(recoded.train, remap_ids(other, corpus.tokenizer).train)


def test_a_state_that_goes_on_keeps_the_ids_of_other_weights(tmp_path, initial):
    """Its text has fewer characters than the weights know, so its own ids are others."""
    other = prepared("mi sinrazón\n" * 30, tmp_path / "other")
    state, begun = make_state(options_for(INIT, initial), initial, other, CPU)
    saved = state.to_checkpoint(begun, with_optimizer=False)
    _, again = make_state(options_for(RESUME, saved), saved, other, CPU)
    assert np.array_equal(again.train, begun.train)
    assert np.array_equal(again.val, begun.val)


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
    options = options_for()
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


@both_ways
def test_dropout_may_change(corpus, initial, run):
    model = replace(initial.model, dropout=0.25, ngram_dropout=0.5)
    options = options_for(run, replace(initial, model=model))
    state, _ = make_state(options, initial, corpus, CPU)
    assert state.model.config == model
    randomise(state.model)  # or the blocks add nothing, and nothing is dropped
    torch.manual_seed(0)
    ids = torch.from_numpy(corpus.train[:8].astype(np.int64))[None]
    ours = state.model.train()(ids), state.model(ids)
    assert not torch.equal(*ours)
    assert len(list(fit(state, corpus, CPU))) == (3 if run.resume else 9)


@both_ways
def test_another_model_is_refused(corpus, initial, run):
    model = replace(initial.model, n_layer=3, norm="layernorm", dropout=0.5)
    message = refused(options_for(run, replace(initial, model=model)), initial, corpus)
    assert "n_layer: 1, not 3" in message
    assert "norm: 'rmsnorm', not 'layernorm'" in message
    for same in ("n_head", "n_embd", "block_size", "dropout"):
        assert same not in message


def test_another_text_is_refused(tmp_path, corpus, initial):
    other, options = prepared("Otro texto. " * 30, tmp_path / "other"), options_for(RESUME, initial)
    message = refused(options, initial, other)
    assert "another text than other" in message
    assert "--dataset" in message
    state, _ = make_state(options, initial, replace(corpus, name="a copy of it"), CPU)
    assert state.progress.step == 6


@pytest.mark.parametrize(
    ("train", "answer"),
    [
        ({"optimizer": "adamw"}, "--optimizer that the run began with"),
        ({"max_iters": 5}, "--max_iters is 5, but the run has done 6 steps already"),
        ({"look_ahead": 1}, "--look_ahead is 1, but the run has 0 such heads"),
    ],
)
def test_what_a_run_cannot_change_is_refused(corpus, initial, train, answer):
    assert answer in refused(options_for(RESUME, initial, **train), initial, corpus)


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


def test_all_differences_are_named_in_order():
    ours = ModelConfig(n_layer=4, norm="rmsnorm")
    theirs = replace(ours, norm="layernorm", n_layer=7)
    assert differences(ours, theirs) == ["n_layer: 7, not 4", "norm: 'layernorm', not 'rmsnorm'"]


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
