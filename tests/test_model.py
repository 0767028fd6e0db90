import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import random_gpt, randomise
from torch import nn

from sancho import plain
from sancho.config import ModelConfig
from sancho.model import (
    GPT,
    Block,
    CachedReader,
    FeedForward,
    KVCache,
    MultiHeadAttention,
    cross_entropy,
    rotary_angles,
    sinusoids,
)
from sancho.presets import PRESETS

pytestmark = pytest.mark.usefixtures("one_thread")

NORMS = ("layernorm", "rmsnorm")
POSITIONS = ("learned", "sinusoidal", "rope")
ACTIVATIONS = ("relu", "gelu", "silu", "relu2", "geglu", "swiglu")
SMALL = ModelConfig(
    vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=16, embedding_skip=True
)
NGRAMS = replace(SMALL, ngram_size=4, ngram_rows=61)
CLASSIC_LIKE = replace(
    PRESETS["classic"].model, vocab_size=11, block_size=8, n_layer=2, n_head=4, n_embd=16
)

all_architectures = pytest.mark.parametrize(
    ("norm", "position", "activation", "qk_norm"),
    list(itertools.product(NORMS, POSITIONS, ACTIVATIONS, (False, True))),
)


def small_gpt(**changes):
    return random_gpt(replace(SMALL, **changes))


def ngram_gpt(**changes):
    return random_gpt(replace(NGRAMS, **changes))


def random_ids(*shape, vocab_size=11, seed=1):
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def random_input(*shape, seed=2):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=random, dtype=torch.float64)


# Oracles inside PyTorch


@torch.no_grad()
def copy_attention(ours, theirs):
    theirs.in_proj_weight.copy_(ours.qkv.weight)
    theirs.in_proj_bias.copy_(ours.qkv.bias)
    theirs.out_proj.weight.copy_(ours.proj.weight)
    theirs.out_proj.bias.copy_(ours.proj.bias)


def test_classic_block_equals_transformer_encoder_layer():
    config = CLASSIC_LIKE
    block = randomise(Block(config)).double()
    layer = nn.TransformerEncoderLayer(
        config.n_embd,
        config.n_head,
        dim_feedforward=4 * config.n_embd,
        dropout=0,
        activation="relu",
        batch_first=True,
        norm_first=True,
        dtype=torch.float64,
    )
    copy_attention(block.attention, layer.self_attn)
    layer.linear1.load_state_dict(block.feed_forward.expand.state_dict())
    layer.linear2.load_state_dict(block.feed_forward.proj.state_dict())
    layer.norm1.load_state_dict(block.norm1.state_dict())
    layer.norm2.load_state_dict(block.norm2.state_dict())
    x = random_input(3, 8, config.n_embd)
    mask = nn.Transformer.generate_square_subsequent_mask(8, dtype=torch.float64)
    torch.testing.assert_close(block(x), layer(x, src_mask=mask, is_causal=True))


def test_attention_equals_multihead_attention():
    attention = randomise(MultiHeadAttention(CLASSIC_LIKE)).double()
    theirs = nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64)
    copy_attention(attention, theirs)
    x = random_input(3, 8, 16)
    future = torch.ones(8, 8, dtype=torch.bool).triu(1)
    expected, _ = theirs(x, x, x, attn_mask=future, need_weights=False)
    torch.testing.assert_close(attention(x), expected)


def turn_by_hand(x):
    """Rotate the pair of channels (2j, 2j + 1) of row t by the angle t / 10000^(2j/D)."""
    result = x.clone()
    length, size = x.shape
    for t in range(length):
        for j in range(0, size, 2):
            angle = t / 10000 ** (j / size)
            first, second = x[t, j], x[t, j + 1]
            result[t, j] = first * math.cos(angle) - second * math.sin(angle)
            result[t, j + 1] = first * math.sin(angle) + second * math.cos(angle)
    return result


def attention_by_hand(attention, x, config):
    qkv = x @ attention.qkv.weight.T
    output = attention.proj.weight
    if config.bias:
        qkv = qkv + attention.qkv.bias
    length, size = x.shape[1], config.head_size
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    rows = []
    for row in qkv:
        queries, keys, values = row.split(config.n_embd, dim=-1)
        heads = []
        for head in range(config.n_head):
            channels = slice(head * size, (head + 1) * size)
            q, k, v = queries[:, channels], keys[:, channels], values[:, channels]
            if config.position == "rope":
                q, k = turn_by_hand(q), turn_by_hand(k)
            if config.qk_norm:
                q = q / (q.square().mean(-1, keepdim=True) + 1e-6).sqrt()
                k = k / (k.square().mean(-1, keepdim=True) + 1e-6).sqrt()
            scores = (q @ k.T / math.sqrt(size)).masked_fill(future, -math.inf)
            heads.append(torch.softmax(scores, dim=-1) @ v)
        rows.append(torch.cat(heads, dim=-1) @ output.T)
    y = torch.stack(rows)
    return y + attention.proj.bias if config.bias else y


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("position", ["learned", "rope"])
def test_attention_equals_attention_written_out(position, qk_norm, bias):
    config = replace(SMALL, position=position, qk_norm=qk_norm, bias=bias)
    attention = randomise(MultiHeadAttention(config)).double()
    x = random_input(2, 8, config.n_embd)
    # Rope turns in float32.
    torch.testing.assert_close(
        attention(x), attention_by_hand(attention, x, config), rtol=1e-5, atol=1e-5
    )


ACTIVATION_FORMULAS = {
    "relu": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "relu2": lambda x: torch.where(x > 0, x * x, torch.zeros_like(x)),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + torch.exp(-x)),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_feed_forward_equals_formula(activation, bias):
    config = replace(SMALL, activation=activation, bias=bias)
    layer = randomise(FeedForward(config)).double()
    x = random_input(2, 8, config.n_embd)
    expanded = torch.einsum("btc,hc->bth", x, layer.expand.weight)
    if bias:
        expanded = expanded + layer.expand.bias
    if activation in ("geglu", "swiglu"):
        width = 8 * config.n_embd // 3
        assert expanded.shape[-1] == 2 * width
        formula = ACTIVATION_FORMULAS["gelu" if activation == "geglu" else "silu"]
        hidden = expanded[..., :width] * formula(expanded[..., width:])
    else:
        assert expanded.shape[-1] == 4 * config.n_embd
        hidden = ACTIVATION_FORMULAS[activation](expanded)
    expected = torch.einsum("bth,ch->btc", hidden, layer.proj.weight)
    if bias:
        expected = expected + layer.proj.bias
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize(("length", "channels"), [(1, 2), (7, 6), (64, 16), (5000, 10)])
def test_sinusoids_equal_formula(length, channels):
    expected = torch.empty(length, channels, dtype=torch.float64)
    for t in range(length):
        for j in range(0, channels, 2):
            angle = t / 10000 ** (j / channels)
            expected[t, j] = math.sin(angle)
            expected[t, j + 1] = math.cos(angle)
    assert sinusoids(length, channels).dtype == torch.float32
    torch.testing.assert_close(sinusoids(length, channels).double(), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("length", "channels"), [(1, 2), (7, 6), (5000, 10)])
def test_angles_equal_formula_to_the_last_position(length, channels):
    expected = torch.tensor(
        [[t / 10000 ** (j / channels) for j in range(0, channels, 2)] for t in range(length)],
        dtype=torch.float64,
    )
    torch.testing.assert_close(rotary_angles(length, channels), expected, rtol=1e-14, atol=0)
    ours = torch.from_numpy(plain.rotary_angles(length, channels))
    torch.testing.assert_close(ours, expected, rtol=1e-14, atol=0)
    config = replace(SMALL, position="rope", block_size=length, n_head=1, n_embd=channels)
    cosines, sines = MultiHeadAttention(config).turns[:, : channels // 2].double().unbind(-1)
    torch.testing.assert_close(cosines, expected.cos(), rtol=0, atol=1e-7)
    torch.testing.assert_close(sines, expected.sin(), rtol=0, atol=1e-7)


@pytest.mark.parametrize("qk_norm", [False, True])
@torch.no_grad()
def test_rope_depends_on_distance_only(qk_norm):
    # The first half of the channels, the same at every position, makes queries and keys; the
    # second half is the position's own axis and passes through as the value. So what comes out
    # at position i are its attention weights, and their logarithms are q_i · k_j / √D + constant.
    config = replace(SMALL, n_head=1, n_embd=16, position="rope", qk_norm=qk_norm)
    attention = randomise(MultiHeadAttention(config)).double()
    weights = attention.qkv.weight.view(3, 16, 16)
    weights[:2, :, 8:] = 0
    weights[2] = torch.eye(16)
    attention.proj.weight.copy_(torch.eye(16))
    x = torch.cat((random_input(8).expand(8, 8), torch.eye(8, dtype=torch.float64)), dim=1)
    shares = attention(x[None])[0, :, 8:]  # row i: how much i looks at each j
    products = shares.log() - shares.log().diagonal()[:, None]
    by_distance = []
    for distance in range(8):
        diagonal = products.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-5, atol=1e-5)
        by_distance.append(diagonal[0])
    assert torch.stack(by_distance).std() > 0.05, "and it does depend on the distance"


def test_model_equals_its_parts():
    model = random_gpt(CLASSIC_LIKE).double()
    ids = random_ids(2, 8)
    x = model.token_embedding.weight[ids] + model.position_embedding.weight[None]
    for block in model.blocks:
        attended = x + block.attention(block.norm1(x))
        x = attended + block.feed_forward(block.norm2(attended))
    x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    x = x * model.norm.weight + model.norm.bias
    torch.testing.assert_close(model(ids), x @ model.head.weight.T)


def test_sinusoidal_model_adds_the_sinusoids():
    model = small_gpt(position="sinusoidal")
    ids = random_ids(1, 8)
    learned = small_gpt(position="learned")
    state = model.state_dict() | {"position_embedding.weight": sinusoids(8, 16)}
    learned.load_state_dict(state)
    torch.testing.assert_close(model(ids), learned(ids))


def test_rmsnorm_divides_by_root_mean_square():
    model = small_gpt(norm="rmsnorm")
    x = random_input(3, 16).float()
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(model.norm(x), expected)


# The embedding, shown again to every block after the first


def test_embedding_skip_equals_the_loop_written_out():
    model = ngram_gpt(n_layer=4, position="learned")
    assert (model.skips != 0).all()
    ids = random_ids(2, 8)
    embedding = model.token_embedding.weight[ids] + model.position_embedding.weight[None]
    embedding = embedding + model.ngram_embedding(nn.functional.pad(ids, (3, 0), value=-1))
    x = model.blocks[0](embedding)
    for i in (1, 2, 3):
        x = model.blocks[i](x + model.skips[i].item() * embedding)
    torch.testing.assert_close(model(ids), model.head(model.norm(x)))


def test_strengths_of_zero_equal_a_model_without_them():
    model, other = ngram_gpt(), ngram_gpt(embedding_skip=False)
    assert not hasattr(other, "skips")
    state = model.state_dict()
    assert state.pop("skips").shape == (2,)
    other.load_state_dict(state)
    ids = random_ids(2, 8)
    assert (model(ids) - other(ids)).abs().max() > 1e-3
    with torch.no_grad():
        model.skips[1] = 0.0
    assert model.skips[0] != 0
    assert torch.equal(model(ids), other(ids))


def test_new_strengths_are_zero_and_draw_no_random_number():
    models = []
    for skip in (True, False):
        torch.manual_seed(1)
        models.append(GPT(replace(NGRAMS, embedding_skip=skip)).state_dict())
    assert (models[0].pop("skips") == 0).all()
    assert models[0].keys() == models[1].keys()
    assert all(torch.equal(models[0][name], value) for name, value in models[1].items())


# Any combination of options


@all_architectures
def test_future_does_not_reach_the_past(norm, position, activation, qk_norm):
    model = ngram_gpt(norm=norm, position=position, activation=activation, qk_norm=qk_norm)
    ids = random_ids(1, 8)
    with torch.no_grad():
        original = model(ids)[0]
        changed_ids = ids.repeat(8, 1)  # row t has another token at t
        changed_ids.diagonal().add_(1).remainder_(11)
        changed = model(changed_ids)
    for t in range(8):
        torch.testing.assert_close(changed[t, :t], original[:t], rtol=0, atol=1e-6)
        difference = (changed[t, t:] - original[t:]).abs().amax(-1)
        assert (difference > 1e-4).all()


@all_architectures
def test_cache_changes_nothing(norm, position, activation, qk_norm):
    model = ngram_gpt(
        norm=norm, position=position, activation=activation, qk_norm=qk_norm, bias=True
    )
    ids = random_ids(2, 8)
    with torch.no_grad():
        expected = model(ids)
        for sizes in ((3, 1, 1, 1, 1, 1), (1, 3, 4), (2, 2, 3, 1), (8,)):
            cache = KVCache(model.config, batch_size=2)
            pieces = [model(piece, cache) for piece in ids.split(sizes, dim=1)]
            torch.testing.assert_close(torch.cat(pieces, dim=1), expected, rtol=0, atol=1e-5)


@all_architectures
def test_gradients_reach_every_parameter(norm, position, activation, qk_norm):
    model = ngram_gpt(
        norm=norm, position=position, activation=activation, qk_norm=qk_norm, bias=True
    )
    ids = torch.arange(11).repeat(8)[:88].view(11, 8)  # every character, every position
    cross_entropy(model(ids), ids.roll(1, 1)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        gradient = parameter.grad.to_dense()
        assert gradient.isfinite().all(), name
        rows = gradient.flatten(1) if parameter.dim() > 1 else gradient[:, None]
        if (
            name.startswith(("token", "position"))
            or "head" in name
            or "norm" in name
            or "proj" in name
        ):
            assert (rows.abs().amax(1) > 0).all(), name
        assert gradient.abs().max() > 0, name
    assert model.ngram_embedding.weight.grad.is_sparse
    assert (model.skips.grad[1:] != 0).all()
    assert model.skips.grad[0] == 0, "the first block has the embedding as it is"


@pytest.mark.parametrize("position", POSITIONS)
def test_order_of_the_past_matters(position):
    model = small_gpt(position=position, n_layer=1)
    ids = torch.tensor([[1, 2, 3, 4], [2, 1, 3, 4]])
    with torch.no_grad():
        first, second = model(ids)[:, -1]
    assert (first - second).abs().max() > 1e-3


@pytest.mark.parametrize("position", POSITIONS)
def test_short_input_equals_beginning_of_long_one(position):
    model = small_gpt(position=position)
    ids = random_ids(2, 8)
    with torch.no_grad():
        for length in range(1, 9):
            torch.testing.assert_close(
                model(ids[:, :length]), model(ids)[:, :length], rtol=0, atol=1e-5
            )


# Dropout, first loss, parameters


@pytest.mark.parametrize("position", POSITIONS)
def test_dropout_acts_in_training_alone(position):
    model = small_gpt(position=position, dropout=0.5)
    other = small_gpt(position=position, dropout=0.0)
    ids = random_ids(2, 8)
    with torch.no_grad():
        model.train()
        assert not torch.equal(model(ids), model(ids))
        model.eval()
        assert torch.equal(model(ids), model(ids))
        assert torch.equal(model(ids), other(ids))
        assert torch.equal(other.train()(ids), other.eval()(ids))


def test_dropout_leaves_the_weights_of_attention_alone():
    attention = randomise(MultiHeadAttention(replace(SMALL, dropout=0.5)))
    x = random_input(1, 8, 16).float()
    with torch.no_grad():
        assert torch.equal(attention.train()(x), attention.eval()(x))


def test_dropout_acts_on_the_embeddings():
    model = GPT(replace(SMALL, dropout=0.5))  # its blocks still add nothing
    torch.nn.init.normal_(model.head.weight)
    ids = random_ids(2, 8)
    assert not torch.equal(model(ids), model(ids))


@pytest.mark.parametrize("part", ["attention", "feed_forward"])
@torch.no_grad()
def test_dropout_acts_on_what_a_block_adds(part):
    block = Block(replace(SMALL, dropout=0.5, bias=True))
    for each in (block.attention, block.feed_forward):
        each.proj.weight.zero_()
        each.proj.bias.zero_()
    getattr(block, part).proj.bias.fill_(1.0)
    x = torch.zeros(4, 8, 16)
    assert set(block(x).unique().tolist()) == {0.0, 2.0}
    assert set(block.eval()(x).unique().tolist()) == {1.0}


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("vocab_size", [1, 2, 92])
def test_first_loss_is_log_of_vocabulary(preset, vocab_size):
    config = replace(
        PRESETS[preset].model, vocab_size=vocab_size, block_size=8, n_layer=2, n_head=2, n_embd=16
    )
    model = GPT(config)
    ids = random_ids(3, 8, vocab_size=vocab_size)
    logits = model(ids)
    assert (logits == 0).all()
    assert cross_entropy(logits, ids).item() == pytest.approx(math.log(vocab_size), abs=1e-6)


def test_cross_entropy_equals_formula():
    logits, targets = random_input(2, 8, 11), random_ids(2, 8)
    total = 0.0
    for b, t in itertools.product(range(2), range(8)):
        row = logits[b, t].tolist()
        total += math.log(sum(map(math.exp, row))) - row[targets[b, t]]
    loss = cross_entropy(logits, targets)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(total / 16, abs=1e-6)
    assert cross_entropy(logits.bfloat16(), targets).dtype == torch.float32


def test_new_weights_come_from_the_global_stream():
    states = []
    for seed in (1, 1, 2):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            states.append(GPT(SMALL).state_dict())
    first, again, other = states
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["token_embedding.weight"], other["token_embedding.weight"])


def test_tied_embeddings_are_one_tensor():
    tied, untied = GPT(replace(SMALL, tie_embeddings=True)), GPT(SMALL)
    assert tied.head.weight is tied.token_embedding.weight
    assert untied.head.weight is not untied.token_embedding.weight
    assert untied.count_parameters() - tied.count_parameters() == 11 * 16
    assert tied.head.weight.std().item() == pytest.approx(0.02, rel=0.3)
    tied(random_ids(1, 8)).sum().backward()
    with torch.no_grad():
        tied.head.weight.fill_(1.0)
    assert (tied.token_embedding.weight == 1).all()


def test_parameters_of_feed_forward_with_biases():
    layer = FeedForward(replace(SMALL, activation="relu", bias=True))
    assert sum(p.numel() for p in layer.parameters()) == 8 * 16**2 + 5 * 16


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("norm", NORMS)
def test_parameter_count_by_formula(norm, position, activation):
    width, vocabulary, rows = 16, 11, 37
    gated = activation in ("geglu", "swiglu")
    hidden = 8 * width // 3 if gated else 4 * width
    for bias, tie_embeddings, skip, ngram_size in itertools.product((0, 1), (0, 1), (0, 1), (1, 3)):
        config = replace(
            SMALL,
            n_layer=3,
            norm=norm,
            position=position,
            activation=activation,
            bias=bool(bias),
            tie_embeddings=bool(tie_embeddings),
            embedding_skip=bool(skip),
            ngram_size=ngram_size,
            ngram_rows=rows,
        )
        attention = 4 * width**2 + 4 * width * bias
        if gated:
            feed_forward = 3 * hidden * width + (2 * hidden + width) * bias
        else:
            feed_forward = 8 * width**2 + 5 * width * bias
        one_norm = width * (1 + bias) if norm == "layernorm" else 0
        expected = 3 * (attention + feed_forward + 2 * one_norm) + one_norm
        expected += vocabulary * width * (1 if tie_embeddings else 2)
        expected += 8 * width if position == "learned" else 0
        expected += rows * width if ngram_size > 1 else 0
        expected += 3 * skip
        model = GPT(config)
        assert model.count_parameters() == expected
        assert len(nn.utils.parameters_to_vector(model.parameters())) == expected


# Limits and odd shapes


@pytest.mark.parametrize("position", POSITIONS)
def test_too_long_a_context_is_an_error(position):
    model = small_gpt(position=position)
    assert model(random_ids(1, 8)).shape == (1, 8, 11)
    with pytest.raises(ValueError, match="9"):
        model(random_ids(1, 9))


@pytest.mark.parametrize("position", POSITIONS)
def test_too_long_a_context_in_the_cache_is_an_error(position):
    model = small_gpt(position=position)
    cache = KVCache(model.config, batch_size=1)
    with torch.no_grad():
        model(random_ids(1, 7), cache)
        with pytest.raises(ValueError, match="9"):
            model(random_ids(1, 2), cache)
        assert cache.length == 7
        model(random_ids(1, 1), cache)
        with pytest.raises(ValueError, match="9"):
            model(random_ids(1, 1), cache)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize(
    "changes",
    [
        {"block_size": 1},
        {"n_layer": 1},
        {"n_head": 1},
        {"vocab_size": 1},
        {"n_embd": 4, "n_head": 2},
        {"ngram_size": 16, "ngram_rows": 1},
        {"ngram_size": 2, "ngram_rows": 2**20, "n_embd": 2, "n_head": 1},
        {"block_size": 1, "ngram_size": 4, "ngram_rows": 50},
        {"n_embd": 2, "n_head": 1, "activation": "swiglu"},
        {"block_size": 1, "n_layer": 1, "n_head": 1, "vocab_size": 1, "n_embd": 2},
    ],
    ids=str,
)
def test_odd_shapes(changes, position):
    config = replace(SMALL, position=position, **changes)
    model = random_gpt(config)
    for batch, length in itertools.product((1, 3), {1, config.block_size}):
        ids = random_ids(batch, length, vocab_size=config.vocab_size)
        logits = model(ids)
        assert logits.shape == (batch, length, config.vocab_size)
        assert logits.isfinite().all()
        with torch.no_grad():
            cache = KVCache(config, batch)
            steps = [model(ids[:, t : t + 1], cache) for t in range(length)]
        torch.testing.assert_close(torch.cat(steps, dim=1), logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", NORMS)
def test_width_of_one_channel(norm):
    model = small_gpt(position="learned", n_embd=1, n_head=1, activation="geglu", norm=norm)
    assert model(random_ids(2, 8)).isfinite().all()


def test_rows_of_a_batch_do_not_touch_each_other():
    model = small_gpt()
    ids = random_ids(4, 8)
    with torch.no_grad():
        together = model(ids)
        for row in range(4):
            alone = model(ids[row : row + 1])[0]
            torch.testing.assert_close(together[row], alone, rtol=0, atol=1e-6)


def test_positions_are_not_saved():
    assert set(GPT(replace(SMALL, position="rope")).state_dict()) == set(
        dict(GPT(replace(SMALL, position="sinusoidal")).named_parameters())
    )


@pytest.mark.parametrize("position", POSITIONS)
def test_type_of_the_weights_is_only_precision(position):
    model = small_gpt(position=position)
    ids = random_ids(2, 8)
    with torch.no_grad():
        expected = model(ids).double()
        torch.testing.assert_close(model.to(torch.float64)(ids), expected, rtol=0, atol=1e-5)


# Weights as arrays


@pytest.mark.parametrize("tie_embeddings", [False, True])
def test_arrays_are_the_weights_themselves(tie_embeddings):
    model = ngram_gpt(tie_embeddings=tie_embeddings)
    arrays, state = model.arrays(), model.state_dict()
    assert arrays.keys() == state.keys()
    for name, array in arrays.items():
        assert (array == state[name].numpy()).all(), name
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert all((array == state[name].numpy()).all() for name, array in arrays.items())
    assert np.shares_memory(arrays["head.weight"], arrays["token_embedding.weight"]) == (
        tie_embeddings
    )


@pytest.mark.parametrize("tie_embeddings", [False, True])
def test_a_model_with_given_weights_has_copies_of_them(tie_embeddings):
    first = ngram_gpt(tie_embeddings=tie_embeddings)
    expected = {name: value.clone() for name, value in first.state_dict().items()}
    random_state = torch.get_rng_state()
    second = GPT.with_weights(first.config, first.arrays())
    assert torch.equal(torch.get_rng_state(), random_state)
    randomise(first, seed=1)
    assert all(torch.equal(value, expected[name]) for name, value in second.state_dict().items())
    assert (second.head.weight is second.token_embedding.weight) == tie_embeddings
    assert second.config == first.config


# Readers


def test_a_cache_made_empty_is_as_good_as_new():
    model, ids = ngram_gpt(), random_ids(2, 8)
    cache = KVCache(model.config, batch_size=2)
    with torch.no_grad():
        model(random_ids(2, 8, seed=5), cache)
        cache.clear()
        pieces = [model(piece, cache) for piece in ids.split((1, 4, 3), dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), model(ids), rtol=0, atol=1e-5)


def test_what_reads_is_numpy_on_a_cpu_in_float32_and_else_torch():
    model = small_gpt()
    assert isinstance(model.reader(1), plain.Reader)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert isinstance(model.reader(1), CachedReader)
    assert isinstance(small_gpt().double().reader(1), CachedReader)
    assert isinstance(small_gpt().bfloat16().reader(1), CachedReader)


@pytest.mark.parametrize("autocast", [False, True])
@all_architectures
def test_bfloat16_is_only_precision(norm, position, activation, qk_norm, autocast):
    model = ngram_gpt(norm=norm, position=position, activation=activation, qk_norm=qk_norm)
    ids = random_ids(2, 8)
    with torch.no_grad():
        expected = model(ids)[:, -1].numpy()
    if not autocast:
        model.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        reader = model.reader(2)
        assert reader.cache.keys.dtype == torch.bfloat16
        for piece in ids.split((3, 1, 4), dim=1):
            logits = reader.read(piece.numpy())
    assert logits.dtype == np.float32
    # A number has 8 bits here; sums of some dozens, layer after layer, have a few less.
    np.testing.assert_allclose(logits, expected, rtol=0, atol=0.1 * np.abs(expected).max())
