"""What a run is to be: its options, its weights, its vocabulary, and what is refused."""

import re
from dataclasses import asdict, fields, replace
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import torch
from conftest import CPU, TEXT, corpus_from, instead
from runs import bits

from sancho.checkpoint import Checkpoint, Progress
from sancho.command import cli
from sancho.config import DeviceConfig, ModelConfig, TrainConfig, options_of
from sancho.errors import UserError
from sancho.machine.device import choose_device
from sancho.presets import PRESETS, TrainOptions
from sancho.run.plan import Beginning, defaults, device_config, follow_text, make_plan
from sancho.run.start import Run, start_run
from sancho.shared import ngrams
from sancho.text.corpus import Corpus
from sancho.tokenizer import CharTokenizer
from sancho.training import fit

SMALL = "--n_layer=1 --n_head=1 --n_embd=4 --block_size=8 --ngram_size=3 --ngram_rows=16".split()
SMALL += "--batch_size=2 --threads=1 --max_iters=6".split()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    return corpus_from(TEXT[:-200] + 20 * "otra razón\n")


def plan(
    corpus: Corpus, *args: str, initial: Checkpoint | None = None, resumes: bool = False
) -> Run:
    """Plan as train.py does."""
    typed = cli.read(TrainOptions(), args)
    beginning = Beginning(initial, resumes)
    usual = defaults(typed, CPU, beginning)
    return start_run(make_plan(typed, usual, corpus, beginning), corpus, CPU, beginning)


def trained(found: Run) -> Checkpoint:
    """Return what a run has saved; nobody trains on with its arrays."""
    last = [*fit(found.state, found.corpus)][-1]
    assert last.step == found.state.train_config.max_iters
    return found.state.to_checkpoint(found.corpus)


@pytest.fixture(scope="module")
def initial(corpus) -> Checkpoint:
    """What a run of six steps has saved."""
    return trained(plan(corpus, *SMALL))


def refused(words: str) -> Any:
    return pytest.raises(UserError, match=f"^[^\n]*{re.escape(words)}[^\n]*$")


def test_a_run_that_goes_on_has_its_own_options(corpus, initial):
    """And nothing is decided anew, but for what is said."""
    saved = replace(initial, device_config=DeviceConfig(device="cpu", dtype="bfloat16"))
    beginning = Beginning(saved, resumes=True)
    usual = defaults({}, CPU, beginning)
    assert options_of(ModelConfig, usual) == saved.model_config
    assert options_of(TrainConfig, usual) == saved.train_config
    assert device_config({}, beginning) == saved.device_config
    assert device_config({"dtype": "float32"}, beginning) == DeviceConfig(
        device="cpu", dtype="float32"
    )
    found = plan(corpus, "--max_iters=9", "--dropout=0.5", initial=initial, resumes=True)
    assert found.state.train_config == replace(initial.train_config, max_iters=9)
    assert found.state.model.config == replace(initial.model_config, dropout=0.5)
    assert found.state.progress == initial.progress
    assert found.decided == {}


@pytest.mark.parametrize(("bfloat16", "expected"), [(True, "base"), (False, "mini")])
def test_a_gpu_trains_base_where_it_has_bfloat16(monkeypatch, bfloat16, expected):
    monkeypatch.setattr("sancho.machine.device._refusal", lambda device: "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **options: bfloat16)
    gpu = choose_device(DeviceConfig())
    for processes in (1, 8):  # a micro-batch for each, and losses are read seldom
        usual = defaults({}, gpu, processes=processes)
        assert (usual["preset"], usual["log_interval"]) == (expected, 100)
        assert usual["gradient_accumulation_steps"] == processes


@pytest.mark.parametrize("name", PRESETS)
def test_other_weights_bring_their_preset(initial, name):
    model = replace(PRESETS[name].model, vocab_size=9, ngram_dropout=0.3)
    for preset in ("auto", *PRESETS):  # unless another is named
        wanted = name if preset == "auto" else preset
        beginning = Beginning(replace(initial, model_config=model))
        train = PRESETS[wanted].train
        rates = {n: 0.2 * getattr(train, n) for n in ("learning_rate", "muon_learning_rate")}
        expected = asdict(model) | asdict(train) | rates | {"preset": wanted}
        assert defaults({"preset": preset}, CPU, beginning) == expected


@pytest.mark.parametrize("name", ["classic", "base"])
def test_other_weights_are_not_made_the_model_of_a_preset(corpus, initial, name):
    """But a preset that has that model, or that of the run before, brings its training."""
    with refused(f"--preset is {name}, but mini in the checkpoint; leave it out, or train a new m"):
        plan(corpus, f"--preset={name}", "--init_from=x", initial=initial)
    again = plan(corpus, "--preset=mini", "--init_from=x", *SMALL[5:], initial=initial)
    assert again.state.train_config.preset == "mini"
    preset = PRESETS[name]
    model = replace(preset.model, vocab_size=corpus.tokenizer.vocab_size)
    typed = {"preset": name}
    beginning = Beginning(replace(initial, model_config=model))  # its run was said to be mini
    usual = defaults(typed, CPU, beginning)
    found = make_plan(typed, usual, corpus_of(10_000), beginning)
    assert found.model.n_layer == model.n_layer


def test_weights_of_no_preset_are_trained_as_suits_the_device(initial):
    found = defaults({}, CPU, Beginning(initial))
    train = replace(PRESETS["mini"].train, learning_rate=0.004, muon_learning_rate=0.003)
    assert found == asdict(initial.model_config) | asdict(train)


def corpus_of(length: int) -> Corpus:
    val, train = np.split(np.zeros(length, dtype=np.uint8), [length // 10])
    return Corpus("a text", CharTokenizer("a"), train, val, "")


def decided(name: str, length: int, *, is_tuned: bool = False, **typed) -> dict[str, float]:
    """Return what a text of some length decides of a preset's options and what is typed."""
    values = defaults({"preset": name}, CPU) | typed
    return follow_text(values, typed, corpus_of(length), is_tuned=is_tuned)


def characters_per_step(name: str) -> int:
    return PRESETS[name].train.characters_per_step(PRESETS[name].model)


@pytest.mark.parametrize("name", PRESETS)
def test_how_often_a_text_is_read(name):
    """A long one for as long as the preset says, a short one as often as it says."""
    one_step = characters_per_step(name)
    assert "max_iters" not in decided(name, 2 * PRESETS[name].train.max_iters * one_step)
    for length in (1, 20, 1_000, 20_000, 100_000):
        read = decided(name, length)["max_iters"] * one_step
        wanted = PRESETS[name].epochs * len(corpus_of(length).train)
        assert read - one_step < wanted <= read


def test_a_text_of_600_000_characters_takes_as_long_as_the_book():
    """README says so of mini."""
    assert "max_iters" not in decided("mini", 600_000)
    assert 1650 < decided("mini", 590_000)["max_iters"] < 1700


@pytest.mark.parametrize(
    ("length", "steps", "interval", "dropped", "scale"),
    [
        (1_000_000, 1700, 284, 0.5, 1.08),  # 3.9 times; 6.96 evaluations would be a fifth
        (2_000_000, 1700, 567, 0.15, 1.02),  # 1.93 times; three evaluations
        (30_000_000, 5000, 2500, 0.0, 1.0),  # each evaluation reads a million characters
    ],
)
def test_what_the_length_decides(length, steps, interval, dropped, scale):
    expected = {"eval_interval": interval, "ngram_dropout": dropped, "logit_scale": scale}
    assert decided("mini", length, max_iters=steps) == expected
    for name, value in expected.items():  # and what is said stays
        rest = {other: found for other, found in expected.items() if other != name}
        assert decided("mini", length, max_iters=steps, **{name: value}) == rest


def test_what_is_decided_is_trained_with(corpus):
    found = plan(corpus, *SMALL[:-1], "--logit_scale=1.5")
    train = found.state.train_config
    assert found.decided.keys() == {"max_iters", "eval_interval", "ngram_dropout"}
    assert train.max_iters == found.decided["max_iters"]
    assert train.eval_interval == found.decided["eval_interval"]
    assert found.state.model.config.ngram_dropout == found.decided["ngram_dropout"] > 0
    assert train.logit_scale == 1.5


@pytest.mark.parametrize("name", ["classic", "base"])
def test_without_a_table_nothing_is_dropped_or_made_less_sure(name):
    assert decided(name, 10_000).keys() == {"max_iters", "eval_interval"}


def test_a_tuned_model_reads_half_as_often_and_drops_nothing_where_little_is_read_again():
    steps = [decided("mini", 60_000, is_tuned=tuned)["max_iters"] for tuned in (False, True)]
    assert steps[1] == pytest.approx(steps[0] / 2, abs=1)
    for max_iters, expected in ((308, {"dropout"}), (309, set())):  # of 2,048 characters
        found = decided("mini", 480_000, is_tuned=True, max_iters=max_iters)
        assert found.keys() & {"dropout", "max_iters"} == expected
        assert found.get("dropout", 0.0) == 0.0
    assert "dropout" not in decided("mini", 60_000)
    assert "dropout" not in decided("mini", 60_000, is_tuned=True, dropout=0.1)


def test_the_vocabulary_is_learned_from_the_part_to_train_on(corpus):
    found = plan(corpus, *SMALL).state.model.ngram_embedding.keys
    expected = ngrams.vocabulary(corpus.train, 3, 16)
    other = ngrams.vocabulary(corpus.val, 3, 16)
    assert np.array_equal(found, expected)
    assert not np.array_equal(expected, other)


def test_a_new_character_begins_like_the_nearest_or_else_as_the_mean(corpus, initial):
    """The others keep the ids that the weights know them by, and all else begins anew."""
    text = "Razön 8 œ\n" * 30
    found = plan(corpus_from(text, "other"), "--init_from=x", initial=initial)
    known = corpus.tokenizer.characters
    assert found.corpus.tokenizer.characters == known + "8Röœ"  # œ would be two characters, oe
    assert found.corpus.tokenizer.decode([*found.corpus.train, *found.corpus.val]) == text
    assert found.state.model.config.vocab_size == len(known) + 4
    assert found.state.progress == Progress()
    states = [state for each in found.state.optimizers for state in each.state.values()]
    assert not any(value.any() for state in states for value in state.values())
    arrays = found.state.model.arrays()
    for name in ("token_embedding.weight", "head.weight"):
        before = initial.weights[name]
        mean = before.mean(axis=0)
        rows = [mean, before[known.index("r")], before[known.index("o")], mean]
        assert np.array_equal(arrays.pop(name), [*before, *rows])
    assert bits(arrays) == bits({name: initial.weights[name] for name in arrays})


@pytest.mark.parametrize("tied", ["tie_embeddings", "no-tie_embeddings"])
def test_more_than_256_characters(corpus, tied):
    """The ids of a text of few characters take two bytes where the model knows many."""
    initial = trained(plan(corpus, *SMALL, f"--{tied}"))
    text = 3 * ("".join(map(chr, range(0x4E00, 0x4E00 + 250))) + "\n")
    other = corpus_from(text, "other")
    found = plan(other, "--init_from=x", "--max_iters=9", initial=initial)
    assert found.corpus.train.dtype == found.corpus.val.dtype == np.dtype("<u2")
    assert found.corpus.tokenizer.decode([*found.corpus.train, *found.corpus.val]) == text
    arrays = found.state.model.arrays()
    same = np.array_equal(arrays["token_embedding.weight"], arrays["head.weight"])
    assert same == (tied == "tie_embeddings")
    again = plan(other, "--max_iters=10", initial=trained(found), resumes=True)
    assert np.array_equal(again.corpus.train, found.corpus.train)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--max_iters=5", "--max_iters is 5, but the run has done 6 steps"),
        ("--look_ahead=1", "--look_ahead is 1, but 2 in the checkpoint;"),
        ("--preset=base", "--preset is base, but mini in the checkpoint;"),
        ("--optimizer=adamw", "go on with the --optimizer that the run began with"),
    ],
)
def test_what_a_run_cannot_change_is_refused(corpus, initial, line, words):
    with refused(words):
        plan(corpus, line, initial=initial, resumes=True)


def test_a_run_does_not_go_on_with_another_text_of_the_same_name(corpus, initial):
    other = corpus_from(corpus.text.replace("Mancha", "Mancho"), corpus.name)
    with refused("the run learned from another text than tiny; leave --corpus out"):
        plan(other, "--max_iters=9", initial=initial, resumes=True)


def test_a_run_does_not_go_on_as_that_of_another_preset_even_if_it_has_its_model(corpus, initial):
    model = replace(PRESETS["midi"].model, vocab_size=corpus.tokenizer.vocab_size)
    saved = replace(initial, model_config=model)
    with refused("--preset is midi, but mini in the checkpoint; leave it out"):
        plan(corpus, "--preset=midi", initial=saved, resumes=True)


def test_a_run_goes_on_with_its_optimizer_alone(corpus, initial):
    best = replace(initial, optimizer={})
    with refused("the checkpoint has no optimizer state, so the run can't go on; begin a new run"):
        plan(corpus, initial=best, resumes=True)


@pytest.mark.parametrize("option", fields(ModelConfig), ids=lambda option: option.name)
def test_every_option_that_changes_a_weight_counts(corpus, initial, option):
    name = option.name
    value = getattr(initial.model_config, name)
    if name == "vocab_size":
        return  # no option
    if get_origin(option.type) is Literal:
        new = next(choice for choice in get_args(option.type) if choice != value)
    else:
        new = {bool: not value, int: 2 * value, float: 0.5}[type(value)]
    said = f"--{name}={new}" if type(value) is not bool else f"--{'' if new else 'no-'}{name}"
    for resumes in (True, False):
        if name in ("dropout", "ngram_dropout"):
            found = plan(corpus, said, initial=initial, resumes=resumes)
            assert getattr(found.state.model.config, name) == new
            continue
        with refused(f"--{name} is {new}, but {value} in the checkpoint; leave it out"):
            plan(corpus, said, initial=initial, resumes=resumes)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "--compile",
            "--compile does not work with the sparse gradients of the n-gram table; leave it out",
        ),
        ("--tensorboard", "install it (pip install tensorboard)"),
    ],
)
def test_what_no_run_can_be_is_refused(corpus, monkeypatch, line, words):
    monkeypatch.setattr("sancho.run.plan.find_spec", lambda name: None)
    with refused(words):
        plan(corpus, *SMALL, line)
    if line == "--compile":
        plan(corpus, *instead(SMALL, line, "--ngram_size=1"))
