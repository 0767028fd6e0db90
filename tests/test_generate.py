import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import random_gpt
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sancho import plain
from sancho.config import ModelConfig, SampleConfig
from sancho.generate import (
    StopAt,
    choose,
    continue_text,
    continue_texts,
    generate,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise_repetition,
    shape_logits,
    softmax,
)
from sancho.model import GPT, CachedReader
from sancho.plain import PlainGPT
from sancho.tokenizer import CharTokenizer

pytestmark = [
    pytest.mark.filterwarnings("error"),  # also where a number overflows
    pytest.mark.usefixtures("one_thread"),
]

SMALL = ModelConfig(
    vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=16, embedding_skip=True
)
WIDE = ModelConfig(
    vocab_size=92,
    block_size=32,
    n_layer=2,
    n_head=4,
    n_embd=128,
    ngram_size=4,
    ngram_rows=61,
    embedding_skip=True,
)
PLAIN = SampleConfig(temperature=1.0)
GREEDY = SampleConfig(temperature=0.0)
ALPHABET = CharTokenizer("abcdefghijk")
NEVER = -math.inf
ALMOST_ONE = float(np.nextafter(1.0, 0.0))


def small_gpt(**changes):
    return random_gpt(replace(SMALL, **changes))


@torch.no_grad()
def alphabet_gpt(vocab_size=11, block_size=8):
    """A model that says the alphabet: after id i comes i + 1, at the end 0."""
    model = GPT(replace(SMALL, vocab_size=vocab_size, block_size=block_size))  # blocks add nothing
    ids = torch.arange(vocab_size)
    model.token_embedding.weight.zero_()
    model.token_embedding.weight[ids, ids] = 1.0
    model.head.weight[(ids + 1) % vocab_size, ids] = 1.0
    return model.eval()


@torch.no_grad()
def fixed_gpt(logits):
    """A model that has the same distribution after every context."""
    model = GPT(replace(SMALL, vocab_size=len(logits)))
    model.token_embedding.weight.fill_(1.0)
    model.head.weight[:, 0] = torch.tensor(logits)
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


READERS = {
    "numpy": lambda model, batch_size: PlainGPT(model.config, model.arrays()).reader(batch_size),
    "torch": CachedReader,
    "anew": Rereader,
}


def read_by(reader, model):
    """The same model, read by one of READERS."""
    return SimpleNamespace(
        config=model.config, reader=lambda batch_size: READERS[reader](model, batch_size)
    )


def random_logits(*shape, seed=0, scale=2.0):
    return np.random.default_rng(seed).normal(scale=scale, size=shape)


def softmax_by_hand(row):
    top = max(row)
    weights = [math.exp(value - top) for value in row]
    return [weight / math.fsum(weights) for weight in weights]


def kept(logits):
    return [[i for i, value in enumerate(row) if value > NEVER] for row in logits.tolist()]


def sample(model, prompt=(1, 2, 3), config=PLAIN, count=24, **options):
    return list(generate(model, np.array(prompt), config, max_new_tokens=count, **options))


# What shapes the distribution


def test_softmax_equals_softmax_by_hand():
    logits = np.concatenate((random_logits(20, 7), random_logits(20, 7, scale=300.0)))
    logits[::3, 2:5] = NEVER
    expected = [softmax_by_hand(row) for row in logits.tolist()]
    np.testing.assert_allclose(softmax(logits), expected, rtol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 5, 10, 11, 12, 1000])
def test_top_k_keeps_the_likeliest(k):
    logits = random_logits(6, 11)
    result = keep_top_k(logits, k)
    for row, before, after in zip(kept(result), logits.tolist(), result.tolist(), strict=True):
        expected = sorted(range(11), key=lambda i: -before[i])[:k]
        assert row == sorted(expected)
        assert all(after[i] == before[i] for i in row)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_top_k_keeps_exactly_k_of_equals(k):
    logits = np.array([[1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 2.0, 1.0, 1.0, 1.0]])
    result = keep_top_k(logits, k)
    assert [len(row) for row in kept(result)] == [k, k]
    assert 1 in kept(result)[1]


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.77, 0.9, 0.99])
def test_top_p_keeps_the_smallest_set(p):
    logits = random_logits(20, 7)
    result = keep_top_p(logits, p)
    for before, after, row in zip(logits.tolist(), result.tolist(), kept(result), strict=True):
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
        assert all(after[i] == before[i] for i in row)


def test_top_p_of_zero_keeps_one():
    logits = np.concatenate((random_logits(5, 7), np.zeros((1, 7))))
    result = keep_top_p(logits, 0.0)
    assert [len(row) for row in kept(result)] == [1] * 6
    assert [row[0] for row in kept(result)[:5]] == logits[:5].argmax(-1).tolist()


@pytest.mark.parametrize("scale", [0.0, 1.0, 3.0])
def test_top_p_of_one_keeps_all(scale):
    logits = random_logits(5, 92, scale=scale)
    assert np.array_equal(keep_top_p(logits, 1.0), logits)


@pytest.mark.parametrize("row", [[0.0, -50.0, -60.0], [0.0, 0.0, -45.0], [0.0, -20.0, -45.0]])
def test_top_p_of_one_keeps_even_the_unlikeliest(row):
    assert kept(keep_top_p(np.array([row]), 1.0)) == [[0, 1, 2]]


@pytest.mark.parametrize("p", [0.0, 0.02, 0.2, 0.7, 1.0])
def test_min_p_drops_what_is_less_likely_than_a_share(p):
    logits = random_logits(20, 7)
    result = keep_min_p(logits, p)
    for before, after, row in zip(logits.tolist(), result.tolist(), kept(result), strict=True):
        probabilities = softmax_by_hand(before)
        threshold = p * max(probabilities)
        assert row == [i for i in range(7) if probabilities[i] >= threshold]
        assert all(after[i] == before[i] for i in row)
    if p == 0:
        assert np.array_equal(result, logits)
    if p == 1:
        assert [row[0] for row in kept(result)] == logits.argmax(-1).tolist()


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3, 4.0])
def test_penalty_acts_on_the_context_alone(penalty):
    logits = random_logits(3, 7)
    logits[0, 2] = 0.0
    context = np.array([[2, 2, 5], [0, 1, 0], [6, 6, 6]])
    result = penalise_repetition(logits, context, penalty)
    for before, after, seen in zip(logits.tolist(), result.tolist(), context.tolist(), strict=True):
        for i in range(7):
            expected = before[i]
            if i in seen:
                expected = expected / penalty if expected > 0 else expected * penalty
            assert after[i] == pytest.approx(expected, abs=1e-12)


NOTHING_SEEN = np.zeros((1, 1), dtype=np.int64)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_temperature_divides_the_logits(temperature):
    logits = random_logits(1, 7).astype(np.float32)
    result = shape_logits(logits, NOTHING_SEEN, SampleConfig(temperature=temperature))
    expected = softmax_by_hand([value / temperature for value in logits[0].tolist()])
    assert result.dtype == np.float64
    assert softmax(result)[0] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-300, 1e-8])
def test_temperature_near_zero_is_greedy(temperature):
    logits = random_logits(20, 7).astype(np.float32)
    config = SampleConfig(temperature=temperature)
    result = shape_logits(logits, NOTHING_SEEN.repeat(20, 0), config)
    assert not np.isnan(result).any()
    assert np.array_equal(softmax(result), np.eye(7)[logits.argmax(-1)])
    for uniform in (0.0, 0.5, ALMOST_ONE):
        assert np.array_equal(choose(result, np.full(20, uniform)), logits.argmax(-1))


def test_temperature_zero_takes_one_of_equals():
    result = shape_logits(np.ones((1, 7)), NOTHING_SEEN, GREEDY)
    assert [len(row) for row in kept(result)] == [1]


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e30])
@pytest.mark.parametrize(
    "config",
    [
        SampleConfig(temperature=0.01),
        SampleConfig(temperature=1e-8),
        SampleConfig(temperature=1e-300),
        SampleConfig(temperature=1.0),
        SampleConfig(temperature=1e6),
        SampleConfig(temperature=0.0, repetition_penalty=1.5),
        SampleConfig(temperature=0.01, top_k=3, top_p=0.9, min_p=0.1, repetition_penalty=1.5),
        SampleConfig(temperature=0.01, top_p=0.0),
        SampleConfig(temperature=0.01, min_p=1.0),
    ],
    ids=str,
)
def test_large_logits_and_small_temperatures_stay_numbers(config, scale):
    logits = (scale * random_logits(5, 7)).astype(np.float32)
    result = shape_logits(logits, np.array([[0, 1]] * 5), config)
    assert not np.isnan(result).any()
    assert (result < math.inf).all()
    assert (result.max(-1) > NEVER).all()
    assert softmax(result).sum(-1) == pytest.approx(np.ones(5))


@pytest.mark.parametrize("penalty", [1e-308, 1e308])
def test_extreme_penalties_stay_numbers(penalty):
    config = SampleConfig(repetition_penalty=penalty)
    for logits in ([[30.0, 20.0]], [[-30.0, -20.0]], [[1e308, -1e308]]):
        result = shape_logits(np.array(logits), np.array([[0, 1]]), config)
        assert not np.isnan(softmax(result)).any()


@pytest.mark.parametrize("penalty", [5e-324, 1e-308, 1.0, 1.5, 1e308])
@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-8, 1.0, 1e308])
@pytest.mark.parametrize("filters", [{}, {"top_k": 2, "top_p": 0.9, "min_p": 0.1}], ids=str)
def test_extremes_together_stay_numbers(filters, temperature, penalty):
    config = SampleConfig(temperature=temperature, repetition_penalty=penalty, **filters)
    largest, smallest = np.finfo(np.float32).max, np.finfo(np.float32).smallest_subnormal
    values = (-largest, -1e4, -smallest, 0.0, smallest, 1e4, largest)
    logits = np.array(list(itertools.product(values, repeat=3)), dtype=np.float32)
    for seen in ([0], [0, 1], [0, 1, 2]):
        result = shape_logits(logits, np.array([seen] * len(logits)), config)
        assert (result.max(-1) == 0).all()
        for uniform in (0.0, 0.5, ALMOST_ONE):
            chosen = choose(result, np.full(len(logits), uniform))
            assert (np.take_along_axis(result, chosen[:, None], axis=1) > NEVER).all()


def test_order_is_penalty_temperature_top_k_top_p_min_p():
    config = SampleConfig(temperature=0.5, top_k=5, top_p=0.95, min_p=0.05, repetition_penalty=1.7)
    logits = random_logits(50, 9)
    context = np.random.default_rng(1).integers(9, size=(50, 4))
    results = softmax(shape_logits(logits, context, config)).tolist()
    sizes = set()
    for row, seen, result in zip(logits.tolist(), context.tolist(), results, strict=True):
        for i in set(seen):
            row[i] = row[i] / 1.7 if row[i] > 0 else row[i] * 1.7
        row = [value / 0.5 for value in row]
        order = sorted(range(9), key=lambda i: -row[i])[:5]
        top = dict(zip(order, softmax_by_hand([row[i] for i in order]), strict=True))
        nucleus, reached = [], 0.0
        for i in order:
            if reached < 0.95:
                nucleus.append(i)
            reached += top[i]
        likely = [i for i in nucleus if top[i] >= 0.05 * top[order[0]]]
        sizes.add(len(likely))
        expected = dict(zip(likely, softmax_by_hand([row[i] for i in likely]), strict=True))
        assert result == pytest.approx([expected.get(i, 0.0) for i in range(9)], abs=1e-12)
    assert len(sizes) > 2


def test_shaping_leaves_its_argument_alone():
    logits = random_logits(4, 7)
    before = logits.copy()
    config = SampleConfig(temperature=0.5, top_k=4, top_p=0.9, min_p=0.1, repetition_penalty=2.0)
    shape_logits(logits, NOTHING_SEEN.repeat(4, 0), config)
    assert np.array_equal(logits, before)


# Choosing


def test_evenly_spaced_numbers_reproduce_the_distribution():
    count = 10_000
    logits = random_logits(1, 7)
    uniforms = (np.arange(count) + 0.5) / count
    chosen = choose(logits.repeat(count, 0), uniforms)
    shares = np.bincount(chosen, minlength=7) / count
    assert shares == pytest.approx(softmax_by_hand(logits[0].tolist()), abs=1 / count)
    assert (np.diff(chosen) >= 0).all()


def test_choosing_is_row_by_row():
    logits = random_logits(50, 7)
    uniforms = np.random.default_rng(3).random(50)
    chosen = choose(logits, uniforms).tolist()
    for row, uniform, choice in zip(logits.tolist(), uniforms.tolist(), chosen, strict=True):
        below = list(itertools.accumulate(softmax_by_hand(row)))
        assert choice == next(i for i in range(7) if below[i] > uniform)


@pytest.mark.parametrize("uniform", [0.0, 5e-324, 1e-17, 0.5, ALMOST_ONE])
@pytest.mark.parametrize("vocab_size", [1, 2, 7, 92, 1000])
def test_never_is_never_chosen(vocab_size, uniform):
    logits = random_logits(200, vocab_size, seed=vocab_size)
    hidden = np.random.default_rng(5).random((200, vocab_size)) < 0.7
    hidden[np.arange(200), np.arange(200) % vocab_size] = False
    hidden[100:, 0] = vocab_size > 1  # nothing at the front, nothing at the end
    hidden[100:, -1] = vocab_size > 2
    hidden[100:, vocab_size // 2] = False
    logits[hidden] = NEVER
    chosen = choose(logits, np.full(200, uniform))
    assert ((chosen >= 0) & (chosen < vocab_size)).all()
    assert (logits[np.arange(200), chosen] > NEVER).all()
    first_or_last = {0.0: lambda row: row[0], ALMOST_ONE: lambda row: row[-1]}
    if uniform in first_or_last:
        assert chosen.tolist() == [first_or_last[uniform](row) for row in kept(logits)]


@pytest.mark.parametrize("logits", [[1e308, 0.0, -1e308], [700.0, 699.0, 0.0]])
def test_choosing_from_very_large_logits(logits):
    for uniform in (0.0, 0.3, ALMOST_ONE):
        (choice,) = choose(np.array([logits]), np.array([uniform]))
        assert softmax_by_hand(logits)[choice] > 0


# Statistics of the draws


def chi_square(observed, expected):
    return sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))


def chi_square_bound(freedom):
    """Passed by one in a million (Wilson & Hilferty 1931)."""
    spread = 2 / (9 * freedom)
    return freedom * (1 - spread + 4.75 * math.sqrt(spread)) ** 3


@pytest.fixture(scope="module")
def many_draws():
    """(10, 2000): ten characters of two thousand samples, and their exact distribution."""
    model = fixed_gpt([1.0, 0.5, 0.0, -1.0, -2.0])
    draws = sample(model, (0,), count=10, seed=3, samples=range(2000))
    with torch.no_grad():
        logits = model(torch.tensor([[0]]))[0, -1].double().tolist()
    return np.array(draws), np.array(softmax_by_hand(logits))


def test_draws_follow_the_distribution(many_draws):
    draws, probabilities = many_draws
    assert draws.size == 20_000
    observed = np.bincount(draws.ravel(), minlength=5)
    assert chi_square(observed, 20_000 * probabilities) < chi_square_bound(4)
    wrong = probabilities.copy()
    wrong[:2] += (0.02, -0.02)
    assert chi_square(observed, 20_000 * wrong) > chi_square_bound(4), "the bound can fail"


@pytest.mark.parametrize("pairs", ["of neighbouring samples", "of consecutive characters"])
def test_draws_are_independent(many_draws, pairs):
    draws, probabilities = many_draws
    if pairs == "of neighbouring samples":
        first, second = draws[:, :-1:2], draws[:, 1::2]
    else:
        first, second = draws[:-1:2], draws[1::2]
    observed = np.bincount((5 * first + second).ravel(), minlength=25)
    expected = first.size * np.outer(probabilities, probabilities).ravel()
    assert chi_square(observed, expected) < chi_square_bound(24)


def test_seeds_are_independent():
    model = fixed_gpt([1.0, 0.5, 0.0, -1.0, -2.0])
    runs = [np.array(sample(model, count=20, seed=seed, samples=range(50))) for seed in (5, 6)]
    with torch.no_grad():
        logits = model(torch.tensor([[0]]))[0, -1].double().tolist()
    probabilities = np.array(softmax_by_hand(logits))
    observed = np.bincount((5 * runs[0] + runs[1]).ravel(), minlength=25)
    expected = 1000 * np.outer(probabilities, probabilities).ravel()
    assert chi_square(observed, expected) < chi_square_bound(24)


# Generating


def test_one_seed_gives_one_text():
    model = small_gpt()
    first = sample(model, seed=1, samples=range(3))
    assert sample(model, seed=1, samples=range(3)) == first
    assert sample(model, seed=2, samples=range(3)) != first
    columns = list(zip(*first, strict=True))
    assert len(set(columns)) == 3


@pytest.mark.parametrize("config", [PLAIN, GREEDY], ids=["sampled", "greedy"])
@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rope"])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("ngram_size", [1, 4])
def test_cache_changes_the_cost_not_the_text(ngram_size, norm, position, config):
    model = small_gpt(norm=norm, position=position, ngram_size=ngram_size, ngram_rows=61)
    for prompt in ((1,), tuple(range(11))):
        options = {"config": config, "count": 3 * 8, "samples": (0, 1), "seed": 4}
        anew = sample(read_by("anew", model), prompt, **options)
        assert len(anew) == 24
        assert sample(model, prompt, **options) == anew
        assert sample(read_by("numpy", model), prompt, **options) == anew
        assert sample(read_by("torch", model), prompt, **options) == anew


@pytest.mark.parametrize("block_size", [1, 2, 3])
@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rope"])
@pytest.mark.parametrize("ngram_size", [1, 4])
def test_tiny_blocks(ngram_size, position, block_size):
    model = small_gpt(
        position=position, block_size=block_size, ngram_size=ngram_size, ngram_rows=61
    )
    for prompt in ((1,), (1, 2, 3, 4)):
        texts = [
            sample(read_by(reader, model), prompt, count=12, samples=(0, 1)) for reader in READERS
        ]
        assert texts[0] == texts[1] == texts[2]
        assert len(texts[0]) == 12


def test_penalty_and_filters_are_the_same_with_the_cache():
    config = SampleConfig(temperature=1.5, top_k=6, top_p=0.95, min_p=0.01, repetition_penalty=1.5)
    model = small_gpt()
    anew = sample(read_by("anew", model), config=config, samples=range(4))
    assert sample(read_by("numpy", model), config=config, samples=range(4)) == anew
    assert sample(read_by("torch", model), config=config, samples=range(4)) == anew
    assert sample(model, config=PLAIN, samples=range(4)) != anew


def test_generating_equals_reading_by_hand():
    model, config = small_gpt(), SampleConfig(temperature=0.0, repetition_penalty=1.4)
    context, expected = [1, 2, 3], []
    for _ in range(24):
        with torch.no_grad():
            logits = model(torch.tensor([context]))[0, -1].tolist()
        for i in set(context):  # the penalty is on what the model has read, not on all the text
            logits[i] = logits[i] / 1.4 if logits[i] > 0 else logits[i] * 1.4
        expected.append([logits.index(max(logits))])
        context = context + expected[-1]
        context = context if len(context) <= 8 else context[-2:]
    assert sample(model, config=config) == expected
    assert sample(model, config=GREEDY) != expected


def test_generating_in_bfloat16():
    model = alphabet_gpt()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for each in (model, read_by("torch", model), read_by("anew", model)):
            new = sample(each, [5], config=GREEDY)
            assert [ids[0] for ids in new] == [(6 + i) % 11 for i in range(24)]


class Recorder:
    """A model, and its own reader, that notes the contexts that it is asked about."""

    def __init__(self, block_size):
        self.config = replace(SMALL, block_size=block_size)
        self.context, self.contexts = [], []

    def reader(self, batch_size):
        assert batch_size == 1
        return self

    def read(self, ids):
        self.context = self.context + ids[0].tolist()
        self.contexts.append(self.context)
        return np.zeros((1, 11), dtype=np.float32)

    def restart(self):
        self.context = []


@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("prompt_length", [1, 2, 4, 8, 9, 30])
def test_context_holds_a_quarter_of_a_block_to_a_block(block_size, prompt_length):
    model = Recorder(block_size)
    prompt = [i % 11 for i in range(prompt_length)]
    new = sample(model, prompt, count=4 * block_size + 3)
    text = prompt + [ids[0] for ids in new]
    quarter = max(1, block_size // 4)
    lengths = [len(context) for context in model.contexts]
    assert len(lengths) == len(new)
    assert lengths[0] == min(prompt_length, block_size)
    for step, context in enumerate(model.contexts):
        end = prompt_length + step
        assert context == text[end - len(context) : end], "the newest characters, in order"
    for before, after in itertools.pairwise(lengths):
        assert after == (before + 1 if before < block_size else quarter)
    first_full = lengths.index(block_size)
    assert all(quarter <= length <= block_size for length in lengths[first_full:])


def test_only_the_end_of_a_long_prompt_counts():
    model = small_gpt()
    tail = [3, 1, 4, 1, 5, 9, 2, 6]
    expected = sample(model, tail, samples=range(50))
    assert sample(model, [7] * 20 + tail, samples=range(50)) == expected
    assert sample(model, [7, *tail[1:]], samples=range(50)) != expected


@pytest.mark.parametrize("config", [PLAIN, SampleConfig(top_k=4, repetition_penalty=1.5)])
@pytest.mark.parametrize(
    ("shape", "prompt_length"), [(SMALL, 1), (SMALL, 3), (WIDE, 1), (WIDE, 20)]
)
def test_a_sample_is_the_same_alone_and_in_a_batch(shape, prompt_length, config):
    model, prompt = random_gpt(shape), np.arange(prompt_length) % 11
    together = sample(model, prompt, config, count=100, samples=range(5), seed=9)
    for number in range(5):
        alone = sample(model, prompt, config, count=100, samples=(number,), seed=9)
        assert [ids[0] for ids in alone] == [ids[number] for ids in together]
    backwards = sample(model, prompt, config, count=100, samples=(4, 0), seed=9)
    assert backwards == [[ids[4], ids[0]] for ids in together]


def test_greedy_is_deterministic_and_takes_the_likeliest():
    model = small_gpt()
    texts = [sample(model, config=GREEDY, seed=seed, samples=(0, 1)) for seed in (0, 1)]
    assert texts[0] == texts[1]
    assert all(first == second for first, second in texts[0])
    with torch.no_grad():
        likeliest = model(torch.tensor([[1, 2, 3]]))[0, -1].argmax().item()
    assert texts[0][0][0] == likeliest


def test_greedy_says_the_alphabet():
    new = sample(alphabet_gpt(), [5], config=GREEDY, count=30)
    assert [ids[0] for ids in new] == [(6 + i) % 11 for i in range(30)]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_as_many_characters_as_asked_for(count):
    assert len(sample(small_gpt(), count=count)) == count


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.int64])
def test_prompts_of_any_type(dtype):
    model = small_gpt()
    prompt = np.array([1, 2, 3], dtype=dtype)
    assert list(generate(model, prompt, PLAIN, max_new_tokens=24)) == sample(model)


def test_prompt_is_left_alone():
    prompt = np.array([1, 2, 3])
    list(generate(small_gpt(), prompt, PLAIN, max_new_tokens=24))
    assert prompt.tolist() == [1, 2, 3]


def test_empty_prompt_is_an_error():
    prompt = np.array([], dtype=np.uint8)
    with pytest.raises(ValueError, match="prompt is empty"):
        list(generate(small_gpt(), prompt, max_new_tokens=1))
    with pytest.raises(ValueError, match="prompt is empty"):
        list(continue_text(small_gpt(), ALPHABET, prompt, max_new_tokens=1))
    with pytest.raises(ValueError, match="prompt is empty"):
        continue_texts(small_gpt(), ALPHABET, prompt, num_samples=2, max_new_tokens=1)


@pytest.mark.parametrize("reader", ["numpy", "torch"])
@pytest.mark.parametrize("training", [False, True])
def test_generating_leaves_no_trace(training, reader):
    model = small_gpt(dropout=0.5).train(training)
    expected = sample(small_gpt(dropout=0.0))
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    text = []
    steps = generate(read_by(reader, model), np.array([1, 2, 3]), PLAIN, max_new_tokens=24)
    for ids in steps:
        text.append(ids)
        assert all(module.training == training for module in model.modules())
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
    assert text == expected, "dropout is off"
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()
    assert all(p.grad is None for p in model.parameters())
    model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()


def test_global_random_state_does_not_reach_the_text():
    texts = []
    for seed in (1, 2):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            texts.append(sample(small_gpt()))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("reader", ["numpy", "torch"])
def test_generating_leaves_the_mode_as_it_was_after_an_error(reader):
    model = small_gpt().train()
    with pytest.raises(IndexError):
        sample(read_by(reader, model), prompt=(1, 200))
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("reader", ["numpy", "torch"])
def test_training_in_between_does_not_break_the_text(reader):
    model = small_gpt().train()
    steps = generate(read_by(reader, model), np.array([1, 2, 3]), PLAIN, max_new_tokens=24)
    text = []
    for ids in steps:
        model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()
        model.zero_grad()
        text.append(ids)
    assert text == sample(small_gpt())


# Text


def alphabet_text(prompt="a", **options):
    options = {"max_new_tokens": 20, "config": GREEDY} | options
    return "".join(continue_text(alphabet_gpt(), ALPHABET, ALPHABET.encode(prompt), **options))


def alphabet_texts(prompt="a", **options):
    options = {"max_new_tokens": 20, "config": GREEDY, "num_samples": 2} | options
    return continue_texts(alphabet_gpt(), ALPHABET, ALPHABET.encode(prompt), **options)


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ((), "bcdefghijkabcdefghij" + "k"),
        (("f",), "bcde"),
        (("fgh",), "bcde"),
        (("fgx", "ab"), "bcdefghijk"),
        (("ij", "def"), "bc"),
        (("def", "ij"), "bc"),
        (("xyz",), "bcdefghijkabcdefghijk"),
        (("jkl",), "bcdefghijkabcdefghijk"),  # what was held back comes at the end
        (("b",), ""),
        (("ab",), "bcdefghijk"),  # the prompt does not count
    ],
)
def test_text_ends_before_the_stop(stop, expected):
    options = {"stop": stop, "max_new_tokens": 21}
    assert alphabet_text(**options) == expected
    assert alphabet_texts(**options) == [expected, expected]


def test_pieces_never_show_part_of_a_stop():
    pieces = continue_text(
        alphabet_gpt(), ALPHABET, ALPHABET.encode("a"), GREEDY, max_new_tokens=20, stop=("efg",)
    )
    shown = []
    for piece in pieces:
        assert piece
        shown.append(piece)
    assert shown == ["b", "c", "d"]


def test_text_comes_as_it_is_written():
    pieces = continue_text(
        alphabet_gpt(), ALPHABET, ALPHABET.encode("a"), GREEDY, max_new_tokens=5, stop=("dx",)
    )
    assert list(pieces) == ["b", "c", "de", "f"]


def test_nothing_is_computed_after_all_samples_stopped(monkeypatch):
    model, read, calls = alphabet_gpt(), plain.Reader.read, []
    monkeypatch.setattr(plain.Reader, "read", lambda *args: calls.append(1) or read(*args))
    prompt = ALPHABET.encode("a")
    continue_texts(model, ALPHABET, prompt, GREEDY, num_samples=2, max_new_tokens=500, stop=("de",))
    list(continue_text(model, ALPHABET, prompt, GREEDY, max_new_tokens=500, stop=("de",)))
    assert len(calls) == 8


@pytest.mark.parametrize("stop", [(), ("a",), ("ab", "k", "cde")])
@pytest.mark.parametrize("config", [PLAIN, SampleConfig(top_p=0.9, repetition_penalty=1.3)])
def test_streamed_text_equals_text_side_by_side(stop, config):
    model, prompt = small_gpt(), ALPHABET.encode("abc")
    options = {"config": config, "max_new_tokens": 30, "stop": stop, "seed": 11}
    together = continue_texts(model, ALPHABET, prompt, num_samples=6, **options)
    alone = [
        "".join(continue_text(model, ALPHABET, prompt, sample=number, **options))
        for number in range(6)
    ]
    assert together == alone
    assert len(set(together)) > 1
    assert not any(string in text for string in stop for text in together)


def test_text_is_the_text_of_the_ids():
    model, prompt = small_gpt(), ALPHABET.encode("abc")
    ids = generate(model, prompt, PLAIN, max_new_tokens=24, seed=5, samples=(3,))
    text = continue_text(model, ALPHABET, prompt, PLAIN, max_new_tokens=24, seed=5, sample=3)
    assert "".join(text) == ALPHABET.decode([new for (new,) in ids])


def test_default_is_the_default_configuration():
    model, prompt = small_gpt(), np.array([1, 2, 3])
    assert list(generate(model, prompt, max_new_tokens=24)) == sample(model, config=SampleConfig())


# StopAt


def feed(stops, pieces):
    gate, shown = StopAt(stops), ""
    for piece in pieces:
        shown += gate.push(piece)
        if gate.stopped:
            return SimpleNamespace(text=shown, stopped=True)
    return SimpleNamespace(text=shown + gate.held, stopped=False)


def up_to_first_stop(text, stops):
    """The text before the stop string that is complete first; the longest of several."""
    for end in range(1, len(text) + 1):
        begins = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if begins:
            return SimpleNamespace(text=text[: min(begins)], stopped=True)
    return SimpleNamespace(text=text, stopped=False)


@settings(deadline=None, max_examples=300)
@given(
    text=st.text("ab", max_size=16),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    sizes=st.lists(st.integers(0, 5), max_size=16),
)
@example(text="aab", stops=["ab"], sizes=[1, 1])
@example(text="abab", stops=["b", "ab"], sizes=[])
def test_pieces_do_not_change_where_text_stops(text, stops, sizes):
    pieces, start = [], 0
    for size in sizes:
        pieces.append(text[start : start + size])
        start += size
    pieces.append(text[start:])
    assert feed(stops, pieces) == up_to_first_stop(text, stops)
    assert feed(stops, list(text)) == up_to_first_stop(text, stops)


def test_stop_inside_a_longer_stop():
    assert feed(["abc", "b"], ["a", "b", "c"]).text == "a"
    assert feed(["abc", "b"], ["abc"]).text == "a"


def test_text_that_cannot_stop_is_not_held_back():
    gate = StopAt(["end"])
    assert [gate.push(piece) for piece in ("th", "e", "e", "n", "n", "e")] == [
        "th", "", "e", "", "enn", "",
    ]  # fmt: skip
    assert gate.held == "e"
    assert not gate.stopped


def test_nothing_is_shown_after_the_stop():
    gate = StopAt(["b"])
    assert [gate.push(piece) for piece in ("ab", "c", "b", "d")] == ["a", "", "", ""]
    assert gate.stopped


def test_stop_is_compared_after_normalisation():
    assert feed(["e\N{COMBINING ACUTE ACCENT}l"], ["aquél"]).text == "aqu"


@pytest.mark.parametrize("stops", [[""], ["a", ""]])
def test_empty_stop_string_is_an_error(stops):
    with pytest.raises(ValueError, match="--stop"):
        StopAt(stops)
    with pytest.raises(ValueError, match="--stop"):
        alphabet_text(stop=stops)
    with pytest.raises(ValueError, match="--stop"):
        alphabet_texts(stop=stops)
