import itertools
import math
import unicodedata
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import EACH_CHOICE, POSITIONS, SMALL, ReadByTorch
from conftest import assert_read_in_no_time, random_gpt
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sancho import model as model_module
from sancho.config import SampleConfig
from sancho.generate import (
    StopAt,
    WindowDecoder,
    continue_texts,
    generate,
    incremental_decoder,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    sample_ids,
    shape_logits,
    softmax,
    stream_texts,
)
from sancho.machine.seeds import Purpose, generator
from sancho.model import GPT
from sancho.numpy_model import Decoder as NumpyDecoder
from sancho.numpy_model import NumpyGPT
from sancho.tokenizer import CharTokenizer

pytestmark = pytest.mark.filterwarnings("error")  # also where a number overflows

PLAIN = SampleConfig(temperature=1.0)
GREEDY = SampleConfig(temperature=0.0)
FILTERED = SampleConfig(temperature=1.5, top_k=6, top_p=0.95, min_p=0.01)
ALPHABET = CharTokenizer("abcdefghijk")
NEVER = -math.inf
ALMOST_ONE = float(np.nextafter(1.0, 0.0))
READERS = {"numpy": lambda model: model, "torch": ReadByTorch}
each_reader = pytest.mark.parametrize("read_by", READERS.values(), ids=READERS)


def small_gpt(**changes):
    return random_gpt(replace(SMALL, **changes))


@torch.no_grad()
def alphabet_gpt():
    """A model that says the alphabet: after id i comes i + 1, at the end 0."""
    model = GPT(SMALL)  # its blocks add nothing
    ids = torch.arange(11)
    model.token_embedding.weight.zero_()
    model.token_embedding.weight[ids, ids] = 1.0
    model.head.weight[(ids + 1) % 11, ids] = 1.0
    return model.eval()


def random_logits(*shape, seed=0, scale=2.0):
    return np.random.default_rng(seed).normal(scale=scale, size=shape)


def softmax_by_hand(row):
    top = max(row)
    weights = [math.exp(value - top) for value in row]
    return [weight / math.fsum(weights) for weight in weights]


def kept(before, after):
    """The ids that are left in each row; checks that their logits are as before."""
    assert np.array_equal(after[after > NEVER], before[after > NEVER])
    return [np.flatnonzero(row > NEVER).tolist() for row in after]


def sample(model, prompt=(1, 2, 3), config=PLAIN, count=24, **options):
    return list(generate(model, np.array(prompt), config, max_new_tokens=count, **options))


# What shapes the distribution


def test_softmax_equals_softmax_by_hand():
    logits = np.concatenate((random_logits(20, 7), random_logits(20, 7, scale=300.0)))
    logits[::3, 2:5] = NEVER
    expected = [softmax_by_hand(row) for row in logits.tolist()]
    np.testing.assert_allclose(softmax(logits), expected, rtol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 10, 11, 1000])
def test_top_k_keeps_the_likeliest_and_exactly_k_of_equals(k):
    logits = np.concatenate((random_logits(6, 11), np.ones((1, 11)), np.eye(2, 11)))
    expected = [sorted(np.argsort(-row, kind="stable")[:k].tolist()) for row in logits]
    assert kept(logits, keep_top_k(logits, k)) == expected


@pytest.mark.parametrize("p", [0.0, 0.05, 0.3, 0.5, 0.77, 0.9, 0.99])
def test_top_p_keeps_the_smallest_set(p):
    logits = random_logits(20, 7)
    for before, row in zip(logits.tolist(), kept(logits, keep_top_p(logits, p)), strict=True):
        probabilities = softmax_by_hand(before)
        subsets = (each for n in range(1, 8) for each in itertools.combinations(range(7), n))
        smallest = next(s for s in subsets if math.fsum(probabilities[i] for i in s) >= p)
        assert row == sorted(sorted(range(7), key=lambda i: -before[i])[: len(smallest)])


@pytest.mark.parametrize(("p", "count"), [(0.0, 1), (0.25, 1), (0.5, 2), (0.75, 3)])
def test_top_p_of_equals_keeps_no_more_than_reach_it_exactly(p, count):
    equals = np.zeros((1, 4))  # each has a probability of 1/4, without rounding
    assert kept(equals, keep_top_p(equals, p)) == [list(range(count))]


@pytest.mark.parametrize("row", [[0.0, -50.0, -60.0], [0.0, 0.0, -45.0], [0.0, -20.0, -45.0]])
def test_top_p_of_one_keeps_all(row):
    assert keep_top_p(np.array([row]), 1.0).tolist() == [row]


@pytest.mark.parametrize("p", [0.0, 0.02, 0.2, 0.7, 1.0])
def test_min_p_drops_what_is_less_likely_than_a_fraction(p):
    logits = random_logits(20, 7)
    for before, row in zip(logits.tolist(), kept(logits, keep_min_p(logits, p)), strict=True):
        probabilities = softmax_by_hand(before)
        assert row == [i for i in range(7) if probabilities[i] >= p * max(probabilities)]


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-300, 1e-8])
def test_temperature_near_zero_is_greedy(temperature):
    logits = random_logits(20, 7).astype(np.float32)
    result = shape_logits(logits, SampleConfig(temperature=temperature))
    for uniform in (0.0, 0.5, ALMOST_ONE):
        assert np.array_equal(sample_ids(result, np.full(20, uniform)), logits.argmax(-1))
    equals = shape_logits(np.ones((1, 7)), GREEDY)
    assert (equals > NEVER).sum() == 1


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-8, 0.01, 1.0, 1e308])
def test_extremes_together_stay_numbers(temperature):
    largest = np.finfo(np.float32).max
    smallest = np.finfo(np.float32).smallest_subnormal
    values = (-largest, -1e4, -smallest, 0.0, smallest, 1e4, largest)
    logits = np.array(list(itertools.product(values, repeat=3)), dtype=np.float32)
    for filters in ({}, {"top_k": 2, "top_p": 0.9, "min_p": 0.1}, {"top_p": 0.0}, {"min_p": 1.0}):
        result = shape_logits(logits, SampleConfig(temperature=temperature, **filters))
        assert result.dtype == np.float64
        assert (result.max(-1) == 0).all()
        assert softmax(result).sum(-1) == pytest.approx(1)
        for uniform in (0.0, 0.5, ALMOST_ONE):
            chosen = sample_ids(result, np.full(len(logits), uniform))
            assert (np.take_along_axis(result, chosen[:, None], axis=1) > NEVER).all()


def test_order_is_temperature_top_k_top_p_min_p():
    logits = random_logits(50, 9)
    before = logits.copy()
    config = SampleConfig(temperature=0.5, top_k=5, top_p=0.95, min_p=0.05)
    result = softmax(shape_logits(logits, config))
    assert np.array_equal(logits, before)
    expected = logits / 0.5
    for keep, limit in ((keep_top_k, 5), (keep_top_p, 0.95), (keep_min_p, 0.05)):
        expected = keep(expected, limit)
    np.testing.assert_allclose(result, softmax(expected), atol=1e-12)
    assert len(set((result > 0).sum(1).tolist())) > 2


# Choosing


def test_ids_are_drawn_by_their_probabilities_and_never_is_never():
    """By 10,000 numbers evenly over [0, 1): each id has the part of them that is its own."""
    logits = random_logits(70, 7)
    logits[random_logits(70, 7, seed=5) < 1] = NEVER  # some of them at the front or at the end
    logits[np.arange(70), np.arange(70) % 7] = 0.0
    for row in logits:
        chosen = sample_ids(np.tile(row, (10_000, 1)), np.arange(10_000) / 10_000)
        assert (np.diff(chosen) >= 0).all()
        counts = np.bincount(chosen, minlength=7)
        np.testing.assert_allclose(counts, 10_000 * np.array(softmax_by_hand(row)), atol=1)
        possible = np.flatnonzero(row > NEVER)
        for uniform, place in ((0.0, 0), (5e-324, 0), (ALMOST_ONE, -1)):
            assert sample_ids(row[None], np.array([uniform])) == possible[place]


# Generating


def text_by_hand(model, prompt, config, count, seed, samples):
    """Read all of the context anew for every character, in float64: what no cache may change."""
    block = model.config.block_size
    noise = random_logits(5, model.config.vocab_size, scale=1e-5)
    texts = []
    for number in samples:
        random = generator(seed, Purpose.SAMPLING, number)
        context = prompt[-block:]
        new = []
        for _ in range(count):
            with torch.no_grad():
                logits = model(torch.tensor([context]))[:, -1].numpy()
            nearby = shape_logits(np.concatenate((logits, logits + noise)), config)
            choices = set(sample_ids(nearby, np.full(6, random.random())).tolist())
            assert len(choices) == 1, "a close race, which rounding decides: take another seed"
            new += choices
            context = [*context, new[-1]]
            if len(context) > block:
                context = context[-max(1, block // 4) :]
        texts.append(new)
    return [list(ids) for ids in zip(*texts, strict=True)]


@each_reader
@pytest.mark.parametrize(
    "config",
    [
        *EACH_CHOICE,
        *(replace(SMALL, block_size=n, position=POSITIONS[n % 3]) for n in (1, 2, 3, 16)),
        replace(SMALL, vocab_size=92, block_size=32, n_head=4, n_embd=128),
    ],
)
def test_generating_equals_reading_by_hand(config, read_by):
    """Far past the block. Seed and number alone decide a text, whatever is written beside it."""
    model = random_gpt(config)
    exact = random_gpt(config).double()
    for prompt, how in (([1], GREEDY), ([1, 2, 3], PLAIN), (list(range(11)) * 2, FILTERED)):
        options = {"count": 30, "seed": 4, "samples": (5, 0, 2)}
        found = sample(read_by(model), prompt, how, **options)
        assert found == text_by_hand(exact, prompt, how, **options)
        assert how is GREEDY or len(set(zip(*found, strict=True))) == 3


def test_numpy_reads_for_a_model_on_a_cpu_if_it_is_the_same_function(monkeypatch):
    model = small_gpt()
    for each in (model, NumpyGPT(model.config, model.arrays()), small_gpt().double().train()):
        assert isinstance(incremental_decoder(each, 1), NumpyDecoder)
    assert isinstance(incremental_decoder(GPT(SMALL).to("meta"), 1), WindowDecoder)
    own = model_module.ACTIVATIONS["relu2"]
    monkeypatch.setitem(model_module.ACTIVATIONS, "relu2", lambda x: 1.5 * own(x))
    changed = small_gpt()
    assert isinstance(incremental_decoder(changed, 1), WindowDecoder)
    expected = text_by_hand(small_gpt().double(), [1, 2, 3], PLAIN, 24, 0, [0])
    assert sample(changed) == expected != sample(model)


@each_reader
@pytest.mark.parametrize("training", [False, True])
def test_generating_leaves_no_trace(training, read_by):
    """Also where a step of training comes between two characters, or an error."""
    model = small_gpt(dropout=0.5, ngram_dropout=0.5).train(training)
    torch_state = torch.get_rng_state()
    text = []
    for ids in generate(read_by(model), np.array([1, 2, 3]), PLAIN, max_new_tokens=24):
        text.append(ids)
        assert all(module.training == training for module in model.modules())
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        assert torch.equal(torch.get_rng_state(), torch_state)
        if training:
            model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()
            torch_state = torch.get_rng_state()
    with pytest.raises(IndexError):
        sample(read_by(model), prompt=(1, 200))
    assert all(module.training == training for module in model.modules())
    assert text == sample(read_by(small_gpt())), "dropout is off"


# Text


def pieces_of(prompt="a", model=None, config=GREEDY, count=20, sample=0, **options):
    """The pieces of one continuation."""
    options |= {"max_new_tokens": count, "samples": [sample]}
    ids = ALPHABET.encode(prompt)
    return [p for (p,) in stream_texts(model or alphabet_gpt(), ALPHABET, ids, config, **options)]


def texts_of(prompt="a", model=None, config=GREEDY, count=20, samples=(0, 1), **options):
    """The whole texts of several continuations side by side."""
    options |= {"max_new_tokens": count, "samples": samples}
    return continue_texts(
        model or alphabet_gpt(), ALPHABET, ALPHABET.encode(prompt), config, **options
    )


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ((), "bcdefghijkabcdefghijk"),
        (("ij", "def"), "bc"),
        (("jkl",), "bcdefghijkabcdefghijk"),  # what was held back comes at the end
        (("ab",), "bcdefghijk"),  # the prompt does not count
    ],
)
def test_text_ends_before_the_stop(stop, expected):
    assert "".join(pieces_of(stop=stop, count=21)) == expected
    assert texts_of(stop=stop, count=21) == [expected, expected]


def test_text_comes_as_it_is_written_and_only_what_may_begin_a_stop_is_held_back():
    assert pieces_of(stop=("dx",), count=5) == ["b", "c", "", "de", "f", ""]
    assert pieces_of(stop=("efg",)) == ["b", "c", "d", "", "", ""]
    assert pieces_of(stop=("dx",), count=3) == ["b", "c", "", "d"]


@pytest.mark.parametrize("stop", [(), ("ab", "k", "cde")])
def test_streamed_text_equals_text_side_by_side(stop):
    options = {"prompt": "abc", "model": small_gpt(), "config": FILTERED, "count": 30, "seed": 11}
    options["stop"] = stop
    together = texts_of(samples=range(6), **options)
    assert together == ["".join(pieces_of(sample=n, **options)) for n in range(6)]
    assert len(set(together)) > 1
    assert texts_of(samples=(4, 0), **options) == [together[4], together[0]]


# StopAt


def up_to_first_stop(text, stops):
    """The text before the stop string that is complete first; the longest of several."""
    for end in range(1, len(text) + 1):
        begins = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if begins:
            return text[: min(begins)], True
    return text, False


@settings(max_examples=100)
@given(
    text=st.text("ab", max_size=16),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
@example(text="aab", stops=["ab"])
@example(text="abab", stops=["b", "ab"])
@example(text="abc", stops=["abc", "b"])
@example(text="aquél", stops=["él"])
def test_text_ends_where_the_first_stop_is_complete(text, stops):
    gate = StopAt([unicodedata.normalize("NFD", stop) for stop in stops])
    shown = "".join(gate.push(character) for character in text)
    assert (shown + gate.pending, gate.stopped) == up_to_first_stop(text, stops)


@pytest.mark.parametrize(
    ("text", "least", "expected"),
    [
        ("Uno. Dos. Tres", 4, "Uno."),
        ("Uno. Dos. Tres", 5, "Uno. Dos."),
        ("«¿Uno?»\nDos", 2, "«¿Uno?»"),
        ("a 3.5 b.c\n\nd!\ne", 0, "a 3.5 b.c\n\nd!"),
        ("\n Uno, dos", 0, "\n Uno, dos"),
    ],
)
def test_text_until_a_sentence_ends(text, least, expected):
    gate = StopAt([], sentence_after=least)
    assert "".join(map(gate.push, text)) == expected
    assert gate.stopped == (text != expected)


SENTENCES = CharTokenizer("ab. ")


class Sentences:
    """Stands for `generate`: each sample is a text of its own, whatever the model says."""

    def __init__(self, *texts):
        self.texts = texts

    def __call__(self, *args, max_new_tokens, **options):
        columns = zip(*(map(SENTENCES.look_up, self.texts)), strict=True)
        return (list(ids) for ids in itertools.islice(columns, max_new_tokens))


def test_each_of_several_texts_goes_on_until_its_own_sentence_ends(monkeypatch):
    """For as many characters again at most; what a stop string began comes before the end."""
    texts = ("a. b. ab. a. ", "ab ab ab ab a", "aaab. a. a. a", "ab a b a. b. ")
    monkeypatch.setattr("sancho.generate.generate", Sentences(*texts))
    options = {"samples": range(4), "max_new_tokens": 5, "until_sentence": True}
    found = continue_texts(None, SENTENCES, [0], **options)
    assert found == ["a. b.", "ab ab ab a", "aaab.", "ab a b a."]
    assert continue_texts(None, SENTENCES, [0], stop=(". a",), **options) == [
        "a. b.",
        "ab ab ab a",
        "aaab.",
        "ab a b a.",
    ]
    assert continue_texts(None, SENTENCES, [0], stop=("b.",), **options)[3] == "ab a b a."
    monkeypatch.setattr("sancho.generate.generate", Sentences(*texts[:1]))
    pieces = stream_texts(None, SENTENCES, [0], samples=[0], max_new_tokens=5, until_sentence=True)
    assert [*pieces] == [["a"], ["."], [" "], ["b"], ["."], [""]]


def test_a_text_in_place_of_ids_is_told():
    model = GPT(SMALL)
    with pytest.raises(TypeError, match=r"the prompt is a text; give its ids: tokenizer\.encode"):
        next(generate(model, "Hola", max_new_tokens=1))


def test_a_long_run_of_a_character_to_stop_at_is_read_in_no_time():
    def stop(text: str) -> None:
        gate = StopAt([text])
        for character in text[:3]:
            gate.push(character)

    assert_read_in_no_time(stop)
