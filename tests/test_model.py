from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import SMALL, assert_close, every_architecture, random_tensor
from architectures import random_ids as random_arrays
from conftest import random_gpt, randomise
from runs import needs_gpu
from torch import nn

from sancho.loss import cross_entropy
from sancho.model import GPT, Block, MultiHeadAttention, NgramEmbedding, rotate
from sancho.presets import PRESETS
from sancho.shared.dropout import Dropout
from sancho.shared.ngrams import NOTHING
from sancho.shared.weights import count_parameters, rotary_angles


def random_ids(*shape, **options):
    return torch.from_numpy(random_arrays(*shape, **options))


# PyTorch's own modules


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@torch.no_grad()
def test_classic_block_equals_transformer_encoder_layer(activation):
    """With its nn.MultiheadAttention, causal by a mask. All else: test_numpy_model.py."""
    shape = {"block_size": 8, "n_head": 4, "n_embd": 16, "activation": activation}
    block = randomise(Block(replace(PRESETS["classic"].model, **shape))).double()
    options = {"activation": activation, "batch_first": True, "norm_first": True, "dropout": 0}
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
    cosines = torch.tensor(angles).cos()
    sines = torch.tensor(angles).sin()
    first = x[:, ::2]
    second = x[:, 1::2]
    rotated = (first * cosines - second * sines, first * sines + second * cosines)
    return torch.stack(rotated, dim=-1).flatten(1)


@pytest.mark.parametrize(("length", "channels"), [(1, 2), (7, 6), (5000, 10)])
def test_angles_equal_the_formula_to_the_last_position(length, channels):
    expected = np.arange(length)[:, None] / 10000 ** (np.arange(0, channels, 2) / channels)
    shape = {"block_size": length, "n_head": 1, "n_embd": channels}
    config = replace(SMALL, position="rope", **shape)
    assert_close(rotary_angles(config), expected, rtol=1e-14)
    cosines, sines = MultiHeadAttention(config).rotations[:, : channels // 2].unbind(-1)
    positions = GPT(replace(SMALL, position="sinusoidal", **shape)).positions
    assert positions.dtype == torch.float32
    for found in (cosines, positions[:, 1::2]):
        assert_close(found, np.cos(expected), atol=1e-7)
    for found in (sines, positions[:, ::2]):
        assert_close(found, np.sin(expected), atol=1e-7)


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
    expected = torch.vmap(torch.vmap(rotated_by_hand, 1, 1))(x.double())
    for y in found:
        assert y.dtype == torch.promote_types(dtype, torch.float32)
        assert_close(y, expected, atol=1e-6)
        gradient = torch.autograd.grad(y.square().sum(), x)[0]
        assert_close(gradient.float(), 2 * x.float(), atol=1e-6)  # lengths stay as they are


# The table of character n-grams; which rows those of a text are: test_ngrams.py


def generators(numbers: range) -> list[torch.Generator]:
    """Return one for each window."""
    return [torch.Generator().manual_seed(number) for number in numbers]


@pytest.mark.parametrize("own", [False, True], ids=["torch's generator", "one for each window"])
def test_ngram_dropout_drops_whole_vectors_of_the_table(own):
    """What is found is each vector, as much larger as there are fewer, or not at all."""
    config = replace(SMALL, ngram_size=3, ngram_rows=10007, ngram_dropout=0.2)
    table = randomise(NgramEmbedding(config))
    ids = random_ids(50, 8)
    with_nothing = np.pad(ids, ((0, 0), (2, 0)), constant_values=NOTHING)
    table.learn_vocabulary(np.tile(with_nothing.flatten(), 2))  # each of its n-grams has a row
    first, second = table.weight[table.rows_of(ids)].unbind(2)  # each (B, T, C)
    torch.manual_seed(0)
    with Dropout.drawing_from(generators(range(50))) if own else nullcontext():
        found = table.train()(ids)
    cases = torch.stack([0 * first, first, second, first + second]) / 0.8
    matches = torch.isclose(cases, found[None], atol=1e-5).all(-1)  # (4, B, T)
    assert (matches.sum(0) == 1).all()
    # Of 400, by the chances 0.2², 0.2 · 0.8 twice, and 0.8².
    assert matches.sum((1, 2)).tolist() == pytest.approx([16, 64, 64, 256], abs=30)
    assert_close(table.eval()(ids), first + second, atol=1e-6)
    if own:  # whichever windows share a batch
        with Dropout.drawing_from(generators(range(30, 50))):
            assert torch.equal(table.train()(ids[30:]), found[30:])


# Any combination of options


@every_architecture
def test_future_does_not_reach_the_past(config):
    model = random_gpt(config)
    ids = random_ids(1, 8)
    changed_ids = ids.repeat(8, 1)  # row t has another character at t
    changed_ids.diagonal().add_(1).remainder_(11)
    with torch.no_grad():
        original = model(ids)[0]
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
    model = GPT(replace(SMALL, dropout=0.5))  # its blocks still add nothing
    ids = random_ids(2, 8)
    nn.init.normal_(model.head.weight)
    nn.init.ones_(model.skips)
    streams = []
    model.norm.register_forward_hook(lambda module, args, output: streams.append(args[0]))
    assert not torch.equal(model(ids), model(ids))
    assert 0.4 < (streams[0] == 0).float().mean() < 0.6, "no skip brings back what was dropped"
    assert torch.equal(model.eval()(ids), model(ids))


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


# Weights


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


@pytest.mark.parametrize("tied", [False, True])
def test_arrays_are_the_weights_themselves_and_a_model_with_them_has_copies(tied):
    first = random_gpt(replace(SMALL, tie_embeddings=tied))
    arrays = first.arrays()
    random_state = torch.get_rng_state()
    second = GPT.with_weights(first.config, arrays)
    assert torch.equal(torch.get_rng_state(), random_state)
    before = {name: array.copy() for name, array in arrays.items()}
    randomise(first, seed=1)
    assert first.state_dict().keys() == second.state_dict().keys() == arrays.keys()
    for name, array in arrays.items():
        assert (array == first.state_dict()[name].numpy()).all()
        assert (before[name] == second.state_dict()[name].numpy()).all()
    numbers = sum(p.numel() for p in first.parameters())
    assert count_parameters(first.config) == numbers
    for model in (first, second):
        assert (model.head.weight is model.token_embedding.weight) == tied


def test_attention_is_in_float32_on_a_cpu_that_trains_in_bfloat16(monkeypatch):
    """There its gradient takes longer in bfloat16."""
    attend = torch.nn.functional.scaled_dot_product_attention
    kinds = set()

    def watched(*args: torch.Tensor, **options: object) -> torch.Tensor:
        result = attend(*args, **options)
        kinds.update(x.dtype for x in (*args, result))
        return result

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    with torch.autocast("cpu", torch.bfloat16):
        assert random_gpt(SMALL)(random_ids(2, 8)).dtype == torch.bfloat16
    assert kinds == {torch.float32}
