import itertools
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import ROOT, random_gpt

from sancho import checkpoint, plain
from sancho.config import ModelConfig
from sancho.generate import continue_text
from sancho.plain import PlainGPT

pytestmark = [
    pytest.mark.filterwarnings("error"),  # also where a number overflows
    pytest.mark.usefixtures("one_thread"),
]

NORMS = ("layernorm", "rmsnorm")
POSITIONS = ("learned", "sinusoidal", "rope")
SMALL = ModelConfig(
    vocab_size=11,
    block_size=6,
    n_layer=2,
    n_head=2,
    n_embd=16,
    ngram_size=4,
    ngram_rows=61,
    embedding_skip=True,
)
TORCH = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "relu2": lambda x: F.relu(x).square(),
    "geglu": F.gelu,
    "swiglu": F.silu,
}


def random_ids(*shape, vocab_size=11, seed=1):
    return np.random.default_rng(seed).integers(vocab_size, size=shape)


def plain_of(model):
    return PlainGPT(model.config, model.arrays())


def read(reader, ids, sizes):
    """The reader's logits after each of some pieces of ids, (B, len(sizes), V)."""
    pieces = np.split(ids, np.cumsum(sizes)[:-1], axis=1)
    return np.stack([reader.read(piece) for piece in pieces], axis=1)


@torch.no_grad()
def exact(model, ids):
    """The model's logits, (B, T, V), in float64. Makes the model one of float64."""
    return model.double()(torch.from_numpy(ids)).numpy()


def assert_close(actual, expected, tolerance=1e-5):
    """Compare float32 with float64.

    A number rounds by 6e-8 of itself. Sums of a few hundred terms, some of which cancel out, one
    layer after another, come to a hundred times that, and to no more where nothing is wrong.
    """
    assert actual.dtype == np.float32
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def assert_reads_as_the_model_in_float64(model, batch_size=3, tolerance=1e-5):
    """Compare all at once, and character by character. Makes the model one of float64."""
    config, ours = model.config, plain_of(model)
    ids = random_ids(batch_size, config.block_size, vocab_size=config.vocab_size)
    at_once = ours.logits(ids)
    one_by_one = read(ours.reader(batch_size), ids, [1] * config.block_size)
    expected = exact(model, ids)
    assert_close(at_once, expected, tolerance)
    assert_close(one_by_one, expected, tolerance)


# As the model in float64


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("activation", TORCH)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("norm", NORMS)
def test_every_architecture_is_the_model_in_float64(norm, position, activation, qk_norm):
    for bias, skip, ngram_size in itertools.product((False, True), (False, True), (1, 4)):
        config = replace(
            SMALL,
            norm=norm,
            position=position,
            activation=activation,
            qk_norm=qk_norm,
            bias=bias,
            embedding_skip=skip,
            tie_embeddings=bias != skip,
            ngram_size=ngram_size,
            n_head=4 if bias else 2,
        )
        assert_reads_as_the_model_in_float64(random_gpt(config))


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize(
    "changes",
    [
        {"block_size": 1},
        {"block_size": 2},
        {"n_layer": 1},
        {"n_head": 1},
        {"n_head": 8},
        {"vocab_size": 1},
        {"ngram_size": 2},
        {"n_embd": 2, "n_head": 1, "activation": "swiglu"},
        {"ngram_size": 16, "ngram_rows": 1},
        {"ngram_size": 2, "ngram_rows": 2**16, "n_embd": 2, "n_head": 1},
        {"n_layer": 4, "n_head": 3, "n_embd": 96, "block_size": 40, "vocab_size": 92},
    ],
    ids=str,
)
def test_odd_and_larger_shapes(changes, position):
    for batch_size in (1, 3):
        model = random_gpt(replace(SMALL, position=position, **changes))
        assert_reads_as_the_model_in_float64(model, batch_size)


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_heads_of_one_channel(qk_norm, position):
    n_embd = 2 if position == "sinusoidal" else 3
    changes = {"position": position, "n_embd": n_embd, "n_head": n_embd, "qk_norm": qk_norm}
    assert_reads_as_the_model_in_float64(random_gpt(replace(SMALL, **changes)))


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_a_width_of_one_channel(norm, qk_norm):
    changes = {"position": "learned", "n_embd": 1, "n_head": 1, "bias": True}
    model = random_gpt(replace(SMALL, norm=norm, qk_norm=qk_norm, **changes))
    # A number near zero has few digits left to be divided by itself.
    assert_reads_as_the_model_in_float64(model, tolerance=1e-4)


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_small_numbers_are_divided_by_no_less_than_epsilon(norm, qk_norm):
    config = replace(SMALL, norm=norm, qk_norm=qk_norm, bias=True)
    assert_reads_as_the_model_in_float64(random_gpt(config, std=0.001))


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("activation", TORCH)
@pytest.mark.parametrize("norm", NORMS)
def test_huge_weights_give_finite_logits(norm, activation, qk_norm):
    config = replace(SMALL, norm=norm, activation=activation, qk_norm=qk_norm, bias=True)
    model = random_gpt(config, std=30.0)
    with torch.no_grad():
        model.head.weight.mul_(10)
    ids = random_ids(3, 6)
    logits = plain_of(model).logits(ids)
    assert np.isfinite(logits).all()
    assert np.abs(logits).max() > 2000
    # Products of queries and keys of size 1e5 are right to 1e-2, and so are their exponentials.
    assert_close(logits, exact(model, ids), 1e-2)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("position", POSITIONS)
def test_embeddings_far_from_zero(position, norm):
    """LayerNorm takes away what all channels have in common, however large it is."""
    model = random_gpt(replace(SMALL, position=position, norm=norm, bias=True))
    with torch.no_grad():
        model.token_embedding.weight += 20.0
        model.ngram_embedding.weight -= 7.0
        for block in model.blocks:
            block.attention.proj.bias += 5.0
            block.feed_forward.proj.weight += 0.5
    assert_reads_as_the_model_in_float64(model)


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("position", POSITIONS)
def test_pieces_of_any_length_are_read_alike(position, qk_norm):
    ids = random_ids(3, 6)
    model = random_gpt(replace(SMALL, position=position, qk_norm=qk_norm, activation="swiglu"))
    ours = plain_of(model)
    expected = exact(model, ids)
    for sizes in ((6,), (1, 5), (2, 3, 1), (3, 2, 1), (4, 2), (5, 1), (1, 1, 4), (2, 2, 1, 1)):
        assert_close(read(ours.reader(3), ids, sizes), expected[:, np.cumsum(sizes) - 1])
        reader = ours.reader(3)
        pieces = np.split(ids, np.cumsum(sizes)[:-1], axis=1)
        assert_close(np.concatenate([reader.read_all(p) for p in pieces], axis=1), expected)


# Each activation


@pytest.mark.parametrize("name", TORCH)
def test_activations_are_those_of_torch_in_float64(name):
    small = np.geomspace(1e-30, 1e18, 5000, dtype=np.float32)
    x = np.concatenate((-small[::-1], [-0.0, 0.0], small, np.linspace(-20, 20, 5001))).astype("f4")
    result = plain.ACTIVATIONS[name](x)
    expected = TORCH[name](torch.from_numpy(x).double()).numpy()
    assert result.dtype == np.float32
    # gelu is right to 2e-7 of x, and rounds like the others.
    error = 3e-7 * np.abs(x) if name in ("gelu", "geglu") else 3e-7 * np.abs(expected)
    assert (np.abs(result - expected) <= error + 1e-37).all()


def test_every_activation_is_compared():
    assert plain.ACTIVATIONS.keys() == TORCH.keys()


# Texts side by side


@pytest.mark.parametrize("activation", TORCH)
@pytest.mark.parametrize(
    ("n_embd", "n_head", "norm", "position", "qk_norm"),
    [
        (128, 4, "rmsnorm", "rope", True),
        (96, 3, "layernorm", "rope", False),
        (6, 1, "rmsnorm", "learned", False),
        (4, 2, "layernorm", "rope", True),
        (18, 9, "rmsnorm", "sinusoidal", True),
    ],
)
def test_bits_of_a_text_do_not_depend_on_the_others(
    n_embd, n_head, norm, position, qk_norm, activation
):
    config = replace(
        SMALL,
        vocab_size=92,
        block_size=32,
        n_embd=n_embd,
        n_head=n_head,
        norm=norm,
        position=position,
        qk_norm=qk_norm,
        activation=activation,
        bias=True,
    )
    model, text = plain_of(random_gpt(config)), random_ids(10, 100, vocab_size=92)
    reader, readers = model.reader(10), [model.reader(1) for _ in text]
    # Each is a new context: first a piece, then a character at a time.
    for start, first, last in ((0, 28, 32), (17, 33, 36), (60, 61, 65), (70, 74, 76)):
        for each in (reader, *readers):
            each.restart()
        for new, end in itertools.pairwise((start, *range(first, last + 1))):
            together = reader.read(text[:, new:end])
            alone = [one.read(text[i : i + 1, new:end]) for i, one in enumerate(readers)]
            np.testing.assert_array_equal(together, np.concatenate(alone))


def test_a_reader_that_restarts_is_as_good_as_new():
    model, first, second = plain_of(random_gpt(SMALL)), random_ids(3, 6), random_ids(3, 6, seed=2)
    reader = model.reader(3)
    read(reader, first, [1] * 6)
    reader.restart()
    logits = read(reader, second, [2, 1, 1, 1, 1])
    assert (logits == read(model.reader(3), second, [2, 1, 1, 1, 1])).all()


def test_readers_of_a_model_do_not_touch_each_other():
    model, ids = plain_of(random_gpt(SMALL)), random_ids(6, 6)
    expected = [read(model.reader(3), part, [1] * 6) for part in (ids[:3], ids[3:])]
    readers = [model.reader(3), model.reader(3)]
    for t in range(6):
        for part, reader, logits in zip((ids[:3], ids[3:]), readers, expected, strict=True):
            assert (reader.read(part[:, t : t + 1]) == logits[:, t]).all()


@pytest.mark.parametrize("position", POSITIONS)
def test_too_long_a_context_is_an_error(position):
    model = plain_of(random_gpt(replace(SMALL, position=position)))
    with pytest.raises(ValueError, match="7"):
        model.logits(random_ids(3, 7))
    reader = model.reader(3)
    reader.read(random_ids(3, 5))
    with pytest.raises(ValueError, match="7"):
        reader.read(random_ids(3, 2))
    reader.read(random_ids(3, 1))
    for length in (1, 2):
        with pytest.raises(ValueError, match=str(6 + length)):
            reader.read(random_ids(3, length))
    reader.restart()
    assert reader.read(random_ids(3, 6)).shape == (3, 11)


# What is given stays as it is


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("position", POSITIONS)
def test_reading_changes_neither_weights_nor_ids(position, norm):
    config = replace(SMALL, position=position, norm=norm, bias=True)
    arrays, ids = random_gpt(config).arrays(), random_ids(3, 6)
    before = {name: array.copy() for name, array in arrays.items()}
    for array in (*arrays.values(), ids):
        array.setflags(write=False)
    model = PlainGPT(config, arrays)
    first = model.logits(ids)
    assert (model.logits(ids) == first).all()
    assert all((array == before[name]).all() for name, array in arrays.items())


def test_nothing_is_dropped_in_training_mode():
    model, ids = random_gpt(replace(SMALL, dropout=0.5, ngram_dropout=0.5)), random_ids(3, 6)
    expected = model.reader(3).read(ids)
    assert (model.train().reader(3).read(ids) == expected).all()
    assert all(module.training for module in model.modules())


# Without PyTorch

WRITE = """
import sys
sys.modules["torch"] = None  # an import of it would fail
from pathlib import Path
from sancho import checkpoint, generate, plain
saved = checkpoint.load(Path(sys.argv[1]))
prompt = saved.tokenizer.encode(sys.argv[2])
model = saved.build_plain()
assert type(model) is plain.PlainGPT
pieces = generate.continue_text(model, saved.tokenizer, prompt, max_new_tokens=40, seed=1605)
sys.stdout.buffer.write("".join(pieces).encode())
"""


def test_a_page_is_written_without_torch():
    path, start = ROOT / "tests" / "golden" / "mini.safetensors", "en un lugar"
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", WRITE, path, start],
        cwd=ROOT,
        capture_output=True,
        timeout=120,
    )
    assert process.stderr == b""
    saved = checkpoint.load(path)
    prompt = saved.tokenizer.encode(start)
    model = saved.build_model()
    pieces = continue_text(model, saved.tokenizer, prompt, max_new_tokens=40, seed=1605)
    assert process.stdout.decode() == "".join(pieces)


def test_importing_it_imports_no_torch():
    code = "import sys, sancho.plain; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=120).returncode == 0
