import math
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import SMALL, assert_close, behind_nothing, every_architecture, random_tensor
from architectures import random_ids as random_arrays
from conftest import random_gpt, randomise
from runs import needs_gpu
from torch import nn

from sancho.model import (
    GPT,
    Block,
    Dropout,
    MultiHeadAttention,
    NgramEmbedding,
    cross_entropy,
    rotate,
)
from sancho.presets import PRESETS

CLASSIC = replace(
    PRESETS["classic"].model, vocab_size=11, block_size=8, n_layer=2, n_head=4, n_embd=16
)


def random_ids(*shape, **options):
    return torch.from_numpy(random_arrays(*shape, **options))


# PyTorch's own modules


@torch.no_grad()
def test_classic_block_equals_transformer_encoder_layer():
    """With its nn.MultiheadAttention, causal by a mask."""
    block = randomise(Block(CLASSIC)).double()
    options = {"activation": "relu", "batch_first": True, "norm_first": True, "dropout": 0}
    layer = nn.TransformerEncoderLayer(16, 4, 4 * 16, dtype=torch.float64, **options)
    layer.self_attn.in_proj_weight.copy_(block.attention.qkv.weight)
    layer.self_attn.in_proj_bias.copy_(block.attention.qkv.bias)
    layer.self_attn.out_proj.load_state_dict(block.attention.proj.state_dict())
    layer.linear1.load_state_dict(block.feed_forward.expand.state_dict())
    layer.linear2.load_state_dict(block.feed_forward.proj.state_dict())
    layer.norm1.load_state_dict(block.norm1.state_dict())
    layer.norm2.load_state_dict(block.norm2.state_dict())
    x = random_tensor(3, 8, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(8, dtype=torch.float64)
    assert_close(block(x), layer(x, src_mask=mask, is_causal=True), atol=1e-10)


# Written out


def rotated_by_hand(x):
    """Rotate the pair of channels (2j, 2j + 1) of row t by the angle t / 10000^(2j/D)."""
    length, size = x.shape
    angles = [[t / 10000 ** (j / size) for j in range(0, size, 2)] for t in range(length)]
    cosines, sines = torch.tensor(angles).cos(), torch.tensor(angles).sin()
    first, second = x[:, ::2], x[:, 1::2]
    rotated = (first * cosines - second * sines, first * sines + second * cosines)
    return torch.stack(rotated, dim=-1).flatten(1)


def rms_norm_by_hand(x):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def norm_by_hand(norm, x):
    if isinstance(norm, nn.RMSNorm):
        return rms_norm_by_hand(x)
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias


def attention_by_hand(attention, x, config):
    """Compute one head of one text after another."""
    length, size = x.shape[1], config.head_size
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    rows = []
    for row in attention.qkv(x):
        heads = []
        for head in range(config.n_head):
            channels = slice(head * size, (head + 1) * size)
            q, k, v = (part[:, channels] for part in row.split(config.n_embd, dim=-1))
            if config.position == "rope":
                q, k = rotated_by_hand(q), rotated_by_hand(k)
            if config.qk_norm:
                q, k = rms_norm_by_hand(q), rms_norm_by_hand(k)
            scores = (q @ k.T / math.sqrt(size)).masked_fill(future, -math.inf)
            heads.append(torch.softmax(scores, dim=-1) @ v)
        rows.append(torch.cat(heads, dim=-1))
    return attention.proj(torch.stack(rows))


ACTIVATION_FORMULAS = {
    "relu": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "relu2": lambda x: torch.where(x > 0, x * x, torch.zeros_like(x)),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + torch.exp(-x)),
}


def feed_forward_by_hand(layer, x, activation):
    hidden = layer.expand(x)
    if activation in ("geglu", "swiglu"):
        linear, gate = hidden.split(8 * 16 // 3, dim=-1)
        function = ACTIVATION_FORMULAS["gelu" if activation == "geglu" else "silu"]
        return layer.proj(linear * function(gate))
    return layer.proj(ACTIVATION_FORMULAS[activation](hidden))


@every_architecture
@torch.no_grad()
def test_model_equals_the_formulas(config):
    for changes in ({"n_layer": 3}, {"ngram_size": 1, "embedding_skip": False, "n_head": 4}):
        config = replace(config, **changes)
        model, ids = random_gpt(config).double(), random_ids(2, 8)
        embedding = model.token_embedding.weight[ids]
        if config.ngram_size > 1:
            embedding = embedding + model.ngram_embedding(behind_nothing(ids, config.ngram_size))
        if config.position == "learned":
            embedding = embedding + model.position_embedding.weight[None]
        if config.position == "sinusoidal":
            embedding = embedding + model.positions
        x = embedding
        for layer, block in enumerate(model.blocks):
            if config.embedding_skip and layer:
                x = x + model.skips[layer].item() * embedding
            x = x + attention_by_hand(block.attention, norm_by_hand(block.norm1, x), config)
            after_norm = norm_by_hand(block.norm2, x)
            x = x + feed_forward_by_hand(block.feed_forward, after_norm, config.activation)
        expected = norm_by_hand(model.norm, x) @ model.head.weight.T
        # The cosines and sines of rope are float32.
        assert_close(model(ids), expected, atol=2e-5 if config.position == "rope" else 1e-10)


@pytest.mark.parametrize(("length", "channels"), [(1, 2), (7, 6), (5000, 10)])
def test_angles_equal_the_formula_to_the_last_position(length, channels):
    expected = np.arange(length)[:, None] / 10000 ** (np.arange(0, channels, 2) / channels)
    shape = {"block_size": length, "n_head": 1, "n_embd": channels}
    config = replace(SMALL, position="rope", **shape)
    assert_close(config.rotary_angles, expected, rtol=1e-14)
    cosines, sines = MultiHeadAttention(config).rotations[:, : channels // 2].unbind(-1)
    assert_close(cosines, np.cos(expected), atol=1e-7)
    assert_close(sines, np.sin(expected), atol=1e-7)
    positions = GPT(replace(SMALL, position="sinusoidal", **shape)).positions
    assert positions.dtype == torch.float32
    assert_close(positions[:, ::2], np.sin(expected), atol=1e-7)
    assert_close(positions[:, 1::2], np.cos(expected), atol=1e-7)


@pytest.mark.parametrize("where", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_real_pairs_are_rotated_as_complex_numbers_are(monkeypatch, dtype, where):
    """The ones where the model is compiled or on a GPU, the others on a CPU."""
    rotations = MultiHeadAttention(replace(SMALL, position="rope")).rotations
    x = random_tensor(3, 8, 4, 8, dtype=dtype).requires_grad_()  # (B, T, 2H, D)
    found = [rotate(x, rotations)]
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: where == "cpu")
        patch.setattr(torch, "view_as_complex", lambda _: pytest.fail("it is complex"))
        found.append(rotate(x.to(where), rotations.to(where)).cpu())
    of_texts_and_heads = torch.vmap(torch.vmap(rotated_by_hand, 1, 1))
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in found]
    for y, gradient in zip(found, gradients, strict=True):
        assert y.dtype == torch.promote_types(dtype, torch.float32)
        assert_close(y, of_texts_and_heads(x.double()), atol=1e-6)
        assert_close(gradient.float(), 2 * x.float(), atol=1e-6)  # lengths stay as they are


def test_attention_is_in_float32_on_a_cpu_that_trains_in_bfloat16(monkeypatch):
    """There its gradient takes longer in bfloat16."""
    attend, kinds = torch.nn.functional.scaled_dot_product_attention, set()

    def watched(*args, **options):
        result = attend(*args, **options)
        kinds.update(x.dtype for x in (*args[:3], result))
        return result

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    model = random_gpt(SMALL)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(random_ids(2, 8)).dtype == torch.bfloat16
    assert kinds == {torch.float32}


def test_cross_entropy_equals_formula():
    logits, targets = random_tensor(2, 8, 11), random_ids(2, 8)
    surprises = logits.exp().sum(-1).log() - logits.gather(-1, targets[..., None])[..., 0]
    assert_close(cross_entropy(logits, targets), surprises.mean(), atol=1e-6)
    assert_close(cross_entropy(logits, targets, "sum"), surprises.sum(), atol=1e-5)
    assert_close(cross_entropy(logits, targets, "none"), surprises.flatten(), atol=1e-6)
    assert cross_entropy(logits.bfloat16(), targets).dtype == torch.float32


# The table of character n-grams


def test_the_table_adds_up_its_rows():
    table, text = random_gpt(SMALL).ngram_embedding, behind_nothing(random_ids(2, 8), 4)
    found, rows = table(text), table.rows(text)
    assert rows.shape == (2, 8, 3)
    assert_close(found, sum(table.weight[rows[..., i]] for i in range(3)), atol=1e-6)
    found.sum().backward()
    assert table.weight.grad.is_sparse
    counts = torch.bincount(rows.flatten(), minlength=61)
    assert_close(table.weight.grad.to_dense(), counts[:, None].expand(61, 16))


def generators(numbers: range) -> list[torch.Generator]:
    """Return one for each window."""
    return [torch.Generator().manual_seed(number) for number in numbers]


@pytest.mark.parametrize("own", [False, True], ids=["torch's generator", "one for each window"])
def test_ngram_dropout_drops_whole_vectors_of_the_table(own):
    """What is found is each vector, as much larger as there are fewer, or not at all."""
    config = replace(SMALL, ngram_size=3, ngram_rows=10007, ngram_dropout=0.2)
    table, text = randomise(NgramEmbedding(config)), behind_nothing(random_ids(50, 8), 3)
    first, second = table.weight[table.rows(text)].unbind(2)  # each (B, T, C)
    torch.manual_seed(0)
    with Dropout.drawing_from(generators(range(50))) if own else nullcontext():
        found = table.train()(text)
    cases = torch.stack([0 * first, first, second, first + second]) / 0.8
    matches = torch.isclose(cases, found[None], atol=1e-5).all(-1)  # (4, B, T)
    assert (matches.sum(0) == 1).all()
    # Of 400, by the chances 0.2², 0.2 · 0.8 twice, and 0.8².
    assert matches.sum((1, 2)).tolist() == pytest.approx([16, 64, 64, 256], abs=30)
    assert_close(table.eval()(text), first + second, atol=1e-6)
    if own:  # whichever windows share a batch
        with Dropout.drawing_from(generators(range(30, 50))):
            assert torch.equal(table.train()(text[30:]), found[30:])


# Any combination of options


@every_architecture
def test_future_does_not_reach_the_past(config):
    model, ids = random_gpt(config), random_ids(1, 8)
    with torch.no_grad():
        original = model(ids)[0]
        changed_ids = ids.repeat(8, 1)  # row t has another character at t
        changed_ids.diagonal().add_(1).remainder_(11)
        changed = model(changed_ids)
    for t in range(8):
        assert_close(changed[t, :t], original[:t], atol=1e-6)
        assert ((changed[t, t:] - original[t:]).abs().amax(-1) > 1e-4).all()


@every_architecture
def test_gradients_reach_every_parameter(config):
    model = random_gpt(config)
    ids = torch.arange(88).remainder(11).view(11, 8)  # every character, every position
    cross_entropy(model(ids), ids.roll(1, 1)).backward()
    for name, parameter in model.named_parameters():
        gradient = parameter.grad.to_dense()
        assert gradient.isfinite().all(), name
        assert gradient.abs().max() > 0, name
        if any(part in name for part in ("token", "position", "head", "norm", "proj")):
            assert (gradient.view(len(gradient), -1).abs().amax(1) > 0).all(), name
    assert model.ngram_embedding.weight.grad.is_sparse
    assert (model.skips.grad[1:] != 0).all()
    assert model.skips.grad[0] == 0, "the first block has the embedding as it is"


# Dropout


def test_dropout_acts_on_the_embeddings_in_training_alone():
    model, ids = GPT(replace(SMALL, dropout=0.5)), random_ids(2, 8)  # its blocks still add nothing
    nn.init.normal_(model.head.weight)
    nn.init.ones_(model.skips)
    streams = []
    model.norm.register_forward_hook(lambda module, args, output: streams.append(args[0]))
    assert not torch.equal(model(ids), model(ids))
    assert 0.4 < (streams[0] == 0).float().mean() < 0.6, "no skip brings back what was dropped"
    assert torch.equal(model.eval()(ids), model(ids))


def test_where_a_block_raises_the_thread_draws_as_before_it():
    dropout, x = Dropout(0.5), torch.ones(1, 99)
    with pytest.raises(KeyboardInterrupt), Dropout.drawing_from(generators(range(1))):
        raise KeyboardInterrupt
    found = []
    for _ in range(2):
        torch.manual_seed(7)
        found.append(dropout(x))
    assert torch.equal(*found)


@pytest.mark.parametrize("part", ["attention", "feed_forward"])
@torch.no_grad()
def test_dropout_acts_on_what_a_block_adds(part):
    block = Block(replace(SMALL, dropout=0.5, bias=True))
    for each in (block.attention, block.feed_forward):
        nn.init.zeros_(each.proj.weight)
        nn.init.zeros_(each.proj.bias)
    getattr(block, part).proj.bias.fill_(1.0)
    x = torch.zeros(4, 8, 16)
    assert set(block(x).unique().tolist()) == {0.0, 2.0}
    assert set(block.eval()(x).unique().tolist()) == {1.0}


# New weights


@pytest.mark.parametrize("tied", [False, True])
def test_new_weights_are_drawn_as_the_sources_say(tied):
    wide = replace(SMALL, vocab_size=92, n_embd=64, position="learned", bias=True)
    model = GPT(replace(wide, tie_embeddings=tied))
    block = model.blocks[1]
    for layer in (model.token_embedding, model.position_embedding):
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.1)
    for layer in (block.attention.qkv, block.feed_forward.expand):
        assert layer.weight.std().item() == pytest.approx(64**-0.5, rel=0.1)
        assert (layer.bias == 0).all()
    for layer in (block.attention.proj, block.feed_forward.proj, model.ngram_embedding):
        assert (layer.weight == 0).all()
    assert (model.skips == 0).all()
    assert tied or (model.head.weight == 0).all(), "all characters are equally likely"


# Weights as arrays


@pytest.mark.parametrize("tied", [False, True])
def test_arrays_are_the_weights_themselves_and_a_model_with_them_has_copies(tied):
    first = random_gpt(replace(SMALL, tie_embeddings=tied))
    arrays, random_state = first.arrays(), torch.get_rng_state()
    second = GPT.with_weights(first.config, arrays)
    assert torch.equal(torch.get_rng_state(), random_state)
    before = {name: array.copy() for name, array in arrays.items()}
    randomise(first, seed=1)
    assert first.state_dict().keys() == second.state_dict().keys() == arrays.keys()
    for name, array in arrays.items():
        assert (array == first.state_dict()[name].numpy()).all()
        assert (before[name] == second.state_dict()[name].numpy()).all()
    for model in (first, second):
        assert (model.head.weight is model.token_embedding.weight) == tied
