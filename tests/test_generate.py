import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import EACH_CHOICE, POSITIONS, SMALL, ReadByTorch, each_reader, numpy_of
from conftest import random_gpt
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sancho.config import SampleConfig
from sancho.generate import (
    StopAt,
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
from sancho.model import GPT, CachedDecoder
from sancho.numpy_model import Decoder as NumpyDecoder
from sancho.tokenizer import CharTokenizer
from train import until_sentence_ends

pytestmark = pytest.mark.filterwarnings("error")  # also where a number overflows

PLAIN = SampleConfig(temperature=1.0)
GREEDY = SampleConfig(temperature=0.0)
FILTERED = SampleConfig(temperature=1.5, top_k=6, top_p=0.95, min_p=0.01)
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
    config = SampleConfig(temperature=temperature)
    result = shape_logits(logits, config)
    for uniform in (0.0, 0.5, ALMOST_ONE):
        assert np.array_equal(sample_ids(result, np.full(20, uniform)), logits.argmax(-1))
    equals = shape_logits(np.ones((1, 7)), GREEDY)
    assert (equals > NEVER).sum() == 1


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-8, 0.01, 1.0, 1e308])
def test_extremes_together_stay_numbers(temperature):
    largest, smallest = np.finfo(np.float32).max, np.finfo(np.float32).smallest_subnormal
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
    before, expected = logits.copy(), logits / 0.5
    config = SampleConfig(temperature=0.5, top_k=5, top_p=0.95, min_p=0.05)
    result = softmax(shape_logits(logits, config))
    assert np.array_equal(logits, before)
    for keep, limit in ((keep_top_k, 5), (keep_top_p, 0.95), (keep_min_p, 0.05)):
        expected = keep(expected, limit)
    np.testing.assert_allclose(result, softmax(expected), atol=1e-12)
    assert len(set((result > 0).sum(1).tolist())) > 2


# Choosing


@pytest.mark.parametrize("vocab_size", [1, 2, 7, 1000])
def test_never_is_never_chosen(vocab_size):
    logits = random_logits(200, vocab_size)
    hidden = random_logits(200, vocab_size, seed=5) < 1  # some of them at the front or at the end
    hidden[np.arange(200), np.arange(200) % vocab_size] = False
    logits[hidden] = NEVER
    rows = kept(logits, logits)
    for uniform in (0.0, 5e-324, 1e-17, 0.5, ALMOST_ONE):
        chosen = sample_ids(logits, np.full(200, uniform)).tolist()
        assert all(choice in row for choice, row in zip(chosen, rows, strict=True))
        if uniform in (0.0, ALMOST_ONE):
            assert chosen == [row[0 if uniform == 0.0 else -1] for row in rows]


# Generating


def test_numpy_reads_for_every_model_on_a_cpu():
    model = small_gpt()
    for each in (model, numpy_of(model), small_gpt().double()):
        assert isinstance(incremental_decoder(each, 1), NumpyDecoder)
    on_no_cpu = GPT(SMALL).to("meta")
    assert isinstance(incremental_decoder(on_no_cpu, 1), CachedDecoder)


def text_by_hand(model, prompt, config, count, seed, samples):
    """Read all of the context anew for every character: what no cache may change."""
    block, texts = model.config.block_size, []
    for number in samples:
        random, context, new = generator(seed, Purpose.SAMPLING, number), prompt[-block:], []
        for _ in range(count):
            with torch.no_grad():
                logits = model(torch.tensor([context]))[:, -1].numpy()
            new += sample_ids(shape_logits(logits, config), np.array([random.random()])).tolist()
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
    """Texts are decided by the seed and their numbers alone, whatever is written beside them."""
    model = random_gpt(config)
    for prompt, how in (([1], GREEDY), ([1, 2, 3], PLAIN), (list(range(11)) * 2, FILTERED)):
        numbers = {"seed": 4, "samples": (5, 0, 2)}
        found = sample(read_by(model), prompt, how, **numbers)
        assert found == text_by_hand(model, prompt, how, 24, **numbers)
        assert how is GREEDY or len(set(zip(*found, strict=True))) == 3


@each_reader
@pytest.mark.parametrize("training", [False, True])
def test_generating_leaves_no_trace(training, read_by):
    """Also where a step of training comes between two characters, or an error."""
    model = small_gpt(dropout=0.5, ngram_dropout=0.5).train(training)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    text = []
    for ids in generate(read_by(model), np.array([1, 2, 3]), PLAIN, max_new_tokens=24):
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
        sample(read_by(model), prompt=(1, 200))
    assert all(module.training == training for module in model.modules())
    assert text == sample(small_gpt()), "dropout is off"


# What a character costs


@pytest.fixture
def lengths_read(monkeypatch) -> list[int]:
    """How many characters of each text the decoder is given, one call after another."""
    lengths, read = [], NumpyDecoder.read

    def read_and_note(decoder: NumpyDecoder, ids: np.ndarray) -> np.ndarray:
        lengths.append(ids.shape[1])
        return read(decoder, ids)

    monkeypatch.setattr(NumpyDecoder, "read", read_and_note)
    return lengths


def test_a_character_is_read_once_and_then_a_quarter_of_the_block_anew(lengths_read):
    sample(small_gpt(block_size=32, n_layer=1), prompt=(1, 2, 3), count=200)
    whole_round = [8] + 24 * [1]
    assert lengths_read == ([3] + 29 * [1] + 9 * whole_round)[:200]


class Counted(np.ndarray):
    """Counts the numbers that operations on it, and on what comes of it, read and write."""

    numbers = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        plain = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
        if out:
            options["out"] = tuple(x.view(np.ndarray) for x in out)
        result = np.asarray(getattr(ufunc, method)(*plain, **options))
        Counted.numbers += result.size + sum(map(np.size, plain))
        return result.view(Counted)

    def __array_function__(self, function, types, args, kwargs):
        result = np.asarray(super().__array_function__(function, types, args, kwargs))
        Counted.numbers += result.size
        return result.view(Counted)


class CountTensors(TorchDispatchMode):
    """Counts the numbers of all tensors that PyTorch's operations take and return."""

    numbers = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, result)) if isinstance(x, torch.Tensor)]
        CountTensors.numbers += sum(x.numel() for x in tensors)
        return result


def counted_numpy(model):
    """The model in NumPy, whose operations are counted."""
    found = numpy_of(model)
    found.token_embedding = found.token_embedding.view(Counted)
    return found


def costs(steps, first, count):
    """How many numbers are read and written in each of `count` steps, after `first` others."""
    numbers = [0] * len(list(itertools.islice(steps, first)))
    with CountTensors():
        for _ in range(count + 1):
            numbers.append(Counted.numbers + CountTensors.numbers)
            next(steps)
    return np.diff(numbers[first:]).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("counted", [counted_numpy, ReadByTorch])
def test_a_character_costs_after_5000_others_what_it_costs_after_100(counted):
    """In a whole round, in which the context grows from a quarter of the block to all of it."""
    shape = {"n_layer": 1, "norm": "layernorm", "position": "learned", "qk_norm": False}
    model, block = counted(small_gpt(block_size=32, **shape)), 32
    steps = generate(model, np.array([1, 2, 3]), max_new_tokens=10_000)
    length = block - block // 4 + 1
    early = costs(steps, 100, length)
    late = costs(steps, 5000 - 100 - length - 1, length)
    assert sorted(early) == sorted(late)
    *others, anew = sorted(early)
    assert 0 < others[0] < others[-1] < 1.5 * others[0], "more context costs more, and that is seen"
    assert anew < 3 * others[0], "a quarter of the block is read anew, and once"


# Text


def pieces_of(prompt="a", model=None, config=GREEDY, count=20, sample=0, **options):
    """The pieces of one continuation."""
    model, ids = model or alphabet_gpt(), ALPHABET.encode(prompt)
    options |= {"max_new_tokens": count, "samples": [sample]}
    return [piece for (piece,) in stream_texts(model, ALPHABET, ids, config, **options)]


def texts_of(prompt="a", model=None, config=GREEDY, count=20, samples=2, **options):
    """The whole texts of several continuations side by side."""
    model, ids = model or alphabet_gpt(), ALPHABET.encode(prompt)
    options |= {"max_new_tokens": count, "samples": range(samples)}
    return continue_texts(model, ALPHABET, ids, config, **options)


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
    gate = StopAt(["end"])
    assert [gate.push(c) for c in "theenne"] == ["t", "h", "", "e", "", "enn", ""]
    assert (gate.pending, gate.stopped) == ("e", False)


@pytest.mark.parametrize("written", [pieces_of, texts_of])
def test_nothing_is_computed_after_all_samples_stopped(written, lengths_read):
    written(count=500, stop=("de",))
    assert len(lengths_read) == 4


@pytest.mark.parametrize("stop", [(), ("ab", "k", "cde")])
def test_streamed_text_equals_text_side_by_side(stop):
    model = small_gpt()
    options = {"config": FILTERED, "stop": stop, "seed": 11}
    together = texts_of("abc", model, count=30, samples=6, **options)
    alone = ["".join(pieces_of("abc", model, count=30, sample=n, **options)) for n in range(6)]
    assert together == alone
    assert len(set(together)) > 1
    prompt = ALPHABET.encode("abc")
    two = continue_texts(model, ALPHABET, prompt, max_new_tokens=30, samples=(4, 0), **options)
    assert two == [together[4], together[0]]
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
    return shown + gate.pending, gate.stopped


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
