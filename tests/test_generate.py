import itertools
import math
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import EACH_CHOICE, POSITIONS, SMALL
from conftest import random_gpt
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sancho.config import DEFAULT_SAMPLING, SampleConfig
from sancho.generate import (
    StopAt,
    choose,
    continue_text,
    continue_texts,
    generate,
    incremental_decoder,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise_repetition,
    shape_logits,
    softmax,
    stream_texts,
    until_sentence_ends,
)
from sancho.model import GPT, CachedDecoder
from sancho.numpy_model import Decoder as NumpyDecoder
from sancho.numpy_model import NumpyGPT
from sancho.tokenizer import CharTokenizer

pytestmark = pytest.mark.filterwarnings("error")  # also where a number overflows

PLAIN = SampleConfig(temperature=1.0)
GREEDY = SampleConfig(temperature=0.0)
FILTERED = SampleConfig(temperature=1.5, top_k=6, top_p=0.95, min_p=0.01, repetition_penalty=1.5)
ALPHABET = CharTokenizer("abcdefghijk")
NEVER = -math.inf
ALMOST_ONE = float(np.nextafter(1.0, 0.0))


def small_gpt(**changes):
    return random_gpt(replace(SMALL, **changes))


@torch.no_grad()
def alphabet_gpt():
    """A model that says the alphabet: after id i comes i + 1, at the end 0."""
    model, ids = GPT(SMALL), torch.arange(11)  # its blocks add nothing
    model.token_embedding.weight.zero_()
    model.token_embedding.weight[ids, ids] = 1.0
    model.head.weight[(ids + 1) % 11, ids] = 1.0
    return model.eval()


class Rereader:
    """Reads all of a text anew for every character: what no cache may change."""

    def __init__(self, model, batch_size):
        self.model, self.batch_size = model, batch_size
        self.restart()

    @torch.no_grad()
    def read(self, ids):
        self.text = np.concatenate((self.text, ids), axis=1)
        return self.model(torch.from_numpy(self.text))[:, -1].float().numpy()

    def restart(self):
        self.text = np.empty((self.batch_size, 0), dtype=np.int64)


DECODERS = {
    "numpy": lambda model, batch_size: NumpyGPT(model.config, model.arrays()).decoder(batch_size),
    "torch": CachedDecoder,
    "anew": Rereader,
}


@contextmanager
def read_by(make_decoder):
    """Let all models be read by such decoders inside the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sancho.generate.incremental_decoder", make_decoder)
        yield


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


def samples_by_decoder(model, *args, **options):
    """What `sample` gives with each of DECODERS."""
    texts = []
    for make_decoder in DECODERS.values():
        with read_by(make_decoder):
            texts.append(sample(model, *args, **options))
    return texts


# What shapes the distribution


def test_softmax_equals_softmax_by_hand():
    logits = np.concatenate((random_logits(20, 7), random_logits(20, 7, scale=300.0)))
    logits[::3, 2:5] = NEVER
    expected = [softmax_by_hand(row) for row in logits.tolist()]
    np.testing.assert_allclose(softmax(logits), expected, rtol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 10, 11, 1000])
def test_top_k_keeps_the_likeliest_and_exactly_k_of_equals(k):
    logits = np.concatenate((random_logits(6, 11), np.ones((1, 11)), np.eye(2, 11)))
    expected = [sorted(sorted(range(11), key=lambda i: -row[i])[:k]) for row in logits.tolist()]
    assert kept(logits, keep_top_k(logits, k)) == expected


@pytest.mark.parametrize("p", [0.0, 0.05, 0.3, 0.5, 0.77, 0.9, 0.99])
def test_top_p_keeps_the_smallest_set(p):
    logits = random_logits(20, 7)
    for before, row in zip(logits.tolist(), kept(logits, keep_top_p(logits, p)), strict=True):
        probabilities = softmax_by_hand(before)
        size = next(
            size
            for size in range(1, 8)
            if any(
                math.fsum(probabilities[i] for i in subset) >= p
                for subset in itertools.combinations(range(7), size)
            )
        )
        assert row == sorted(sorted(range(7), key=lambda i: -before[i])[:size])


def test_top_p_of_equals_keeps_one_and_top_p_of_one_keeps_all():
    assert [len(row) for row in kept(np.zeros((1, 7)), keep_top_p(np.zeros((1, 7)), 0.0))] == [1]
    for row in ([0.0, -50.0, -60.0], [0.0, 0.0, -45.0], [0.0, -20.0, -45.0]):
        assert keep_top_p(np.array([row]), 1.0).tolist() == [row]


@pytest.mark.parametrize("p", [0.0, 0.02, 0.2, 0.7, 1.0])
def test_min_p_drops_what_is_less_likely_than_a_fraction(p):
    logits = random_logits(20, 7)
    for before, row in zip(logits.tolist(), kept(logits, keep_min_p(logits, p)), strict=True):
        probabilities = softmax_by_hand(before)
        assert row == [i for i in range(7) if probabilities[i] >= p * max(probabilities)]


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3, 4.0])
def test_penalty_acts_on_the_context_alone(penalty):
    logits = random_logits(3, 7)
    logits[0, 2] = 0.0
    context = np.array([[2, 2, 5], [0, 1, 0], [6, 6, 6]])
    expected = logits.tolist()
    for row, seen in zip(expected, context.tolist(), strict=True):
        for i in set(seen):
            row[i] = row[i] / penalty if row[i] > 0 else row[i] * penalty
    np.testing.assert_allclose(penalise_repetition(logits, context, penalty), expected, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-300, 1e-8])
def test_temperature_near_zero_is_greedy(temperature):
    logits = random_logits(20, 7).astype(np.float32)
    config = SampleConfig(temperature=temperature)
    result = shape_logits(logits, np.zeros((20, 1), int), config)
    for uniform in (0.0, 0.5, ALMOST_ONE):
        assert np.array_equal(choose(result, np.full(20, uniform)), logits.argmax(-1))
    equals = shape_logits(np.ones((1, 7)), np.zeros((1, 1), int), GREEDY)
    assert (equals > NEVER).sum() == 1


@pytest.mark.parametrize("penalty", [5e-324, 1e-308, 1.0, 1.5, 1e308])
@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-8, 0.01, 1.0, 1e308])
def test_extremes_together_stay_numbers(temperature, penalty):
    largest, smallest = np.finfo(np.float32).max, np.finfo(np.float32).smallest_subnormal
    values = (-largest, -1e4, -smallest, 0.0, smallest, 1e4, largest)
    logits = np.array(list(itertools.product(values, repeat=3)), dtype=np.float32)
    for filters in ({}, {"top_k": 2, "top_p": 0.9, "min_p": 0.1}, {"top_p": 0.0}, {"min_p": 1.0}):
        config = SampleConfig(temperature=temperature, repetition_penalty=penalty, **filters)
        for seen in ([0], [0, 1], [0, 1, 2]):
            result = shape_logits(logits, np.array([seen] * len(logits)), config)
            assert result.dtype == np.float64
            assert (result.max(-1) == 0).all()
            assert softmax(result).sum(-1) == pytest.approx(1)
            for uniform in (0.0, 0.5, ALMOST_ONE):
                chosen = choose(result, np.full(len(logits), uniform))
                assert (np.take_along_axis(result, chosen[:, None], axis=1) > NEVER).all()


def test_order_is_penalty_temperature_top_k_top_p_min_p():
    config = SampleConfig(temperature=0.5, top_k=5, top_p=0.95, min_p=0.05, repetition_penalty=1.7)
    logits, context = random_logits(50, 9), np.random.default_rng(1).integers(9, size=(50, 4))
    before = logits.copy()
    result = softmax(shape_logits(logits, context, config))
    assert np.array_equal(logits, before)
    expected = penalise_repetition(logits, context, 1.7) / 0.5
    for keep, limit in ((keep_top_k, 5), (keep_top_p, 0.95), (keep_min_p, 0.05)):
        expected = keep(expected, limit)
    np.testing.assert_allclose(result, softmax(expected), atol=1e-12)
    assert len(set((result > 0).sum(1).tolist())) > 2


# Choosing


def test_choosing_is_row_by_row():
    logits, uniforms = random_logits(50, 7), np.random.default_rng(3).random(50)
    chosen = choose(logits, uniforms).tolist()
    for row, uniform, choice in zip(logits.tolist(), uniforms.tolist(), chosen, strict=True):
        below = list(itertools.accumulate(softmax_by_hand(row)))
        assert choice == next(i for i in range(7) if below[i] > uniform)


@pytest.mark.parametrize("vocab_size", [1, 2, 7, 1000])
def test_never_is_never_chosen(vocab_size):
    logits = random_logits(200, vocab_size)
    hidden = random_logits(200, vocab_size, seed=5) < 1  # some of them at the front or at the end
    hidden[np.arange(200), np.arange(200) % vocab_size] = False
    logits[hidden] = NEVER
    rows = kept(logits, logits)
    for uniform in (0.0, 5e-324, 1e-17, 0.5, ALMOST_ONE):
        chosen = choose(logits, np.full(200, uniform)).tolist()
        assert all(choice in row for choice, row in zip(chosen, rows, strict=True))
        if uniform in (0.0, ALMOST_ONE):
            assert chosen == [row[0 if uniform == 0.0 else -1] for row in rows]


# Generating


def test_one_seed_gives_one_text():
    model, texts = small_gpt(), []
    for torch_seed, seed in ((1, 1), (2, 1), (1, 2)):
        with torch.random.fork_rng():
            torch.manual_seed(torch_seed)  # must not matter
            texts.append(sample(model, seed=seed, samples=range(3)))
    assert texts[0] == texts[1] != texts[2]
    assert len(set(zip(*texts[0], strict=True))) == 3


def test_numpy_reads_for_a_float32_model_on_a_cpu_and_else_torch():
    model = small_gpt()
    assert isinstance(incremental_decoder(model, 1), NumpyDecoder)
    of_numpy = NumpyGPT(model.config, model.arrays())
    assert isinstance(incremental_decoder(of_numpy, 1), NumpyDecoder)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert isinstance(incremental_decoder(model, 1), CachedDecoder)
    assert isinstance(incremental_decoder(small_gpt().double(), 1), CachedDecoder)
    assert isinstance(incremental_decoder(small_gpt().bfloat16(), 1), CachedDecoder)


@pytest.mark.parametrize(
    "config",
    EACH_CHOICE + [replace(SMALL, block_size=n, position=POSITIONS[n % 3]) for n in (1, 2, 3)],
)
def test_cache_changes_the_cost_not_the_text(config):
    model = random_gpt(config)
    for prompt, how in (((1,), PLAIN), (tuple(range(11)), FILTERED)):
        first, *others = samples_by_decoder(model, prompt, how, count=16, samples=(0, 1), seed=4)
        assert len(first) == 16
        assert others == [first, first]


@pytest.mark.parametrize("block_size", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("prompt", [[1], [1, 2, 3], list(range(11)) * 2])
def test_generating_equals_reading_by_hand(block_size, prompt):
    """The penalty, too, is on what the model has read, not on all the text."""
    model, config = small_gpt(block_size=block_size), replace(GREEDY, repetition_penalty=1.4)
    context, expected = prompt[-block_size:], []
    for _ in range(24):
        with torch.no_grad():
            logits = model(torch.tensor([context]))[0, -1].tolist()
        for i in set(context):
            logits[i] = logits[i] / 1.4 if logits[i] > 0 else logits[i] * 1.4
        expected.append([logits.index(max(logits))])
        context = context + expected[-1]
        if len(context) > block_size:
            context = context[-max(1, block_size // 4) :]
    assert sample(model, prompt, config) == expected


def test_a_sample_is_the_same_alone_and_in_a_batch():
    wide = {"vocab_size": 92, "block_size": 32, "n_head": 4, "n_embd": 128}
    model, prompt = small_gpt(**wide), np.arange(20)
    together = sample(model, prompt, FILTERED, count=60, samples=range(5), seed=9)
    for number in range(5):
        alone = sample(model, prompt, FILTERED, count=60, samples=(number,), seed=9)
        assert [ids[0] for ids in alone] == [ids[number] for ids in together]
    backwards = sample(model, prompt, FILTERED, count=60, samples=(4, 0), seed=9)
    assert backwards == [[ids[4], ids[0]] for ids in together]


def test_prompts_of_any_type_are_left_alone():
    model = small_gpt()
    for dtype in (np.uint8, np.uint16, np.int32, np.int64):
        prompt = np.array([1, 2, 3], dtype=dtype)
        assert list(generate(model, prompt, PLAIN, max_new_tokens=24)) == sample(model)
        assert prompt.tolist() == [1, 2, 3]
    assert sample(model, count=0) == []
    plain = list(generate(model, prompt, max_new_tokens=24))
    assert plain == sample(model, config=DEFAULT_SAMPLING), "without one, the default"


@pytest.mark.parametrize("decoder", ["numpy", "torch"])
@pytest.mark.parametrize("training", [False, True])
def test_generating_leaves_no_trace(training, decoder):
    """Also where a step of training comes between two characters, or an error."""
    model = small_gpt(dropout=0.5, ngram_dropout=0.5).train(training)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    text = []
    with read_by(DECODERS[decoder]):
        for ids in generate(model, np.array([1, 2, 3]), PLAIN, max_new_tokens=24):
            text.append(ids)
            assert all(module.training == training for module in model.modules())
            assert torch.is_grad_enabled()
            assert not torch.is_inference_mode_enabled()
            assert torch.equal(torch.get_rng_state(), torch_state)
            assert (np.random.get_state()[1] == numpy_state).all()
            assert all(p.grad is None for p in model.parameters())
            if training:
                model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()
                model.zero_grad()
                torch_state = torch.get_rng_state()
        with pytest.raises(IndexError):
            sample(model, prompt=(1, 200))
    assert all(module.training == training for module in model.modules())
    assert text == sample(small_gpt()), "dropout is off"


# Text


def pieces_of(prompt="a", model=None, config=GREEDY, count=20, **options):
    """The pieces of one continuation."""
    prompt = ALPHABET.encode(prompt)
    options = {"max_new_tokens": count} | options
    return list(continue_text(model or alphabet_gpt(), ALPHABET, prompt, config, **options))


def texts_of(prompt="a", model=None, config=GREEDY, count=20, samples=2, **options):
    """The whole texts of several continuations side by side."""
    prompt = ALPHABET.encode(prompt)
    options = {"max_new_tokens": count, "num_samples": samples} | options
    return continue_texts(model or alphabet_gpt(), ALPHABET, prompt, config, **options)


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
    assert pieces_of(stop=("dx",), count=5) == ["b", "c", "de", "f"]
    assert pieces_of(stop=("efg",)) == ["b", "c", "d"]
    gate = StopAt(["end"])
    assert [gate.push(c) for c in "theenne"] == ["t", "h", "", "e", "", "enn", ""]
    assert (gate.held, gate.stopped) == ("e", False)


def test_nothing_is_computed_after_all_samples_stopped(monkeypatch):
    read, calls = NumpyDecoder.read, []
    monkeypatch.setattr(NumpyDecoder, "read", lambda *args: calls.append(1) or read(*args))
    texts_of(count=500, stop=("de",))
    assert len(calls) == 4
    pieces_of(count=500, stop=("de",))
    assert len(calls) == 8


@pytest.mark.parametrize("stop", [(), ("ab", "k", "cde")])
def test_streamed_text_equals_text_side_by_side(stop):
    model = small_gpt()
    options = {"config": FILTERED, "stop": stop, "seed": 11}
    together = texts_of("abc", model, count=30, samples=6, **options)
    alone = ["".join(pieces_of("abc", model, count=30, sample=n, **options)) for n in range(6)]
    assert together == alone
    assert len(set(together)) > 1
    prompt = ALPHABET.encode("abc")
    steps = stream_texts(model, ALPHABET, prompt, max_new_tokens=30, samples=(4, 0), **options)
    assert ["".join(pieces) for pieces in zip(*steps, strict=True)] == [together[4], together[0]]
    if not stop:
        ids = sample(model, prompt, FILTERED, 30, seed=11, samples=[3])
        assert alone[3] == ALPHABET.decode([new for (new,) in ids])


def test_empty_prompt_is_an_error():
    with pytest.raises(ValueError, match="prompt is empty"):
        pieces_of("")


# StopAt


def feed(stops, text):
    gate = StopAt(stops)
    shown = "".join(gate.push(character) for character in text)
    return shown + gate.held, gate.stopped


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
def test_text_ends_where_the_first_stop_is_complete(text, stops):
    assert feed(stops, text) == up_to_first_stop(text, stops)


def test_stop_is_compared_after_normalisation():
    assert feed(["e\N{COMBINING ACUTE ACCENT}l"], "aquél") == ("aqu", True)


def test_empty_stop_string_is_an_error():
    with pytest.raises(ValueError, match="--stop"):
        pieces_of(stop=["a", ""])


@pytest.mark.parametrize(
    ("text", "least", "expected"),
    [
        ("Uno. Dos. Tres", 0, "Uno."),
        ("Uno. Dos. Tres", 4, "Uno."),
        ("Uno. Dos. Tres", 5, "Uno. Dos."),
        ("«¿Uno?»\nDos", 2, "«¿Uno?»"),
        ("a 3.5 b.c\n\nd!\ne", 0, "a 3.5 b.c\n\nd!"),
        ("\n Uno, dos", 0, "\n Uno, dos"),
        ("Uno.", 0, "Uno."),
    ],
)
def test_text_until_a_sentence_ends(text, least, expected):
    assert "".join(until_sentence_ends(text, least)) == expected
