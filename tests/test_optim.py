import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import randomise
from hypothesis import given, settings
from hypothesis import strategies as st

from sancho.config import ModelConfig, TrainConfig
from sancho.errors import UserError
from sancho.model import GPT, cross_entropy
from sancho.optim import (
    AdamW,
    Muon,
    RowAdagrad,
    learning_rate_factor,
    load_optimizer_arrays,
    make_optimizers,
    optimizer_arrays,
    orthogonalise,
    set_learning_rate,
)
from sancho.presets import PRESETS

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = ModelConfig(
    vocab_size=11,
    block_size=8,
    n_layer=2,
    n_head=2,
    n_embd=16,
    norm="layernorm",
    ngram_size=3,
    ngram_rows=32,
    ngram_dropout=0,
    bias=True,
)
LEARNED = replace(SMALL, position="learned")


def random_gpt(config=SMALL, seed=0):
    return randomise(GPT(config), seed=seed)


def random_matrix(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def named(model):
    return dict(model.named_parameters())


def train(model, optimizers, steps):
    for step in steps:
        random = torch.Generator().manual_seed(step)
        ids = torch.randint(11, (4, 9), generator=random)
        set_learning_rate(optimizers, 1 / (step + 1))
        cross_entropy(model(ids[:, :-1]), ids[:, 1:]).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


# The learning rate


def factors(**options):
    config = TrainConfig(**options)
    return [learning_rate_factor(step, config) for step in range(config.max_iters)]


def test_learning_rate_rises_stays_and_falls():
    values = factors(max_iters=100, warmup_iters=9, decay_fraction=0.5)
    assert values[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert values[9:51] == [1.0] * 42
    assert values[50:] == pytest.approx([(50 - i) / 50 for i in range(50)])


def test_learning_rate_without_warm_up_begins_at_the_peak():
    assert factors(max_iters=10, warmup_iters=0, decay_fraction=0.5)[:6] == [1.0] * 6


def test_learning_rate_without_decay_stays_at_the_peak():
    values = factors(max_iters=10, warmup_iters=2, decay_fraction=0.0)
    assert values == pytest.approx([1 / 3, 2 / 3] + [1.0] * 8)


def test_learning_rate_that_falls_from_the_start():
    values = factors(max_iters=10, warmup_iters=0, decay_fraction=1.0)
    assert values == pytest.approx([1 - i / 10 for i in range(10)])


@pytest.mark.parametrize("decay_fraction", [0.0, 0.6, 1.0])
def test_learning_rate_of_a_single_step(decay_fraction):
    assert factors(max_iters=1, warmup_iters=0, decay_fraction=decay_fraction) == [1.0]
    (value,) = factors(max_iters=1, warmup_iters=3, decay_fraction=decay_fraction)
    assert value == pytest.approx(1 / 4)


def test_learning_rate_when_warm_up_is_longer_than_the_run():
    values = factors(max_iters=10, warmup_iters=99, decay_fraction=0.0)
    assert values == pytest.approx([(i + 1) / 100 for i in range(10)])
    values = factors(max_iters=10, warmup_iters=19, decay_fraction=1.0)
    assert values[:6] == pytest.approx([(i + 1) / 20 for i in range(6)])
    assert values[-1] == pytest.approx(1 / 10)


@settings(deadline=None, max_examples=100)
@given(
    max_iters=st.integers(1, 300),
    warmup_iters=st.integers(0, 400),
    decay_fraction=st.floats(0, 1),
)
def test_learning_rate_is_positive_and_has_one_peak(max_iters, warmup_iters, decay_fraction):
    values = factors(max_iters=max_iters, warmup_iters=warmup_iters, decay_fraction=decay_fraction)
    assert all(0 < value <= 1 for value in values)
    top = values.index(max(values))
    assert values[:top] == sorted(values[:top])
    assert values[top:] == sorted(values[top:], reverse=True)
    if warmup_iters < max_iters and warmup_iters <= max_iters * (1 - decay_fraction):
        assert max(values) == 1
    rising = [(step + 1) / (warmup_iters + 1) for step in range(max_iters)]
    assert all(value <= rise for value, rise in zip(values, rising, strict=True))


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_presets_reach_their_peak(preset):
    config = PRESETS[preset].train
    values = [learning_rate_factor(step, config) for step in range(config.max_iters)]
    assert max(values) == 1.0
    assert 0 < values[0] < 0.1
    assert 0 < values[-1] < 0.01


# Muon


SHAPES = [(1, 16, 16), (3, 16, 16), (1, 16, 48), (4, 64, 16), (2, 5, 32), (1, 32, 2), (2, 1, 8)]


def newton_schulz_by_svd(matrix):
    """The quintic polynomial of Jordan et al., five times, on the singular values alone."""
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    values = values / values.square().sum().sqrt()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left @ torch.diag(values) @ right


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_orthogonalise_is_near_the_polar_factor(shape):
    matrices = random_matrix(*shape)
    for matrix, result in zip(matrices, orthogonalise(matrices), strict=True):
        assert result.shape == matrix.shape
        left, _, right = torch.linalg.svd(matrix.double(), full_matrices=False)
        inside = left.T @ result.double() @ right.T  # diagonal if the singular vectors are kept
        values = inside.diagonal()
        assert (inside - values.diag()).abs().max() < 1e-3
        assert values.min() > 0.6
        assert values.max() < 1.3
        polar_factor = left @ right
        assert torch.linalg.matrix_norm(result.double() - polar_factor, 2) < 0.4
        torch.testing.assert_close(
            result.double(), newton_schulz_by_svd(matrix), rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_orthogonalise_does_not_depend_on_scale(scale):
    matrices = random_matrix(2, 8, 16)
    torch.testing.assert_close(
        orthogonalise(matrices * scale), orthogonalise(matrices), rtol=1e-3, atol=1e-3
    )


def test_orthogonalise_in_float64_equals_the_polynomial():
    matrices = random_matrix(2, 12, 7, dtype=torch.float64)
    expected = torch.stack([newton_schulz_by_svd(matrix) for matrix in matrices])
    torch.testing.assert_close(orthogonalise(matrices), expected, rtol=1e-5, atol=1e-5)


def test_orthogonalise_leaves_its_argument_alone_and_zero_at_zero():
    for matrices in (random_matrix(2, 8, 16), random_matrix(2, 16, 8)):
        before = matrices.clone()
        orthogonalise(matrices)
        assert torch.equal(matrices, before)
    assert (orthogonalise(torch.zeros(2, 4, 8)) == 0).all()


def test_orthogonalise_does_not_mix_a_batch():
    matrices = random_matrix(3, 16, 48)
    alone = torch.cat([orthogonalise(matrix[None]) for matrix in matrices])
    torch.testing.assert_close(orthogonalise(matrices), alone, rtol=1e-4, atol=1e-4)


def parameters_with_gradients(seed=0):
    shapes = [(16, 16), (48, 16), (16, 64), (16, 16), (48, 16)]
    parameters = []
    for i, shape in enumerate(shapes):
        parameter = torch.nn.Parameter(random_matrix(*shape, seed=seed + i))
        parameter.grad = random_matrix(*shape, seed=seed + 100 + i)
        parameters.append(parameter)
    return parameters


def test_muon_moves_each_matrix_along_its_own_update():
    parameters = parameters_with_gradients()
    before = [parameter.detach().clone() for parameter in parameters]
    Muon(parameters, lr=0.1, weight_decay=0.5).step()
    for parameter, start in zip(parameters, before, strict=True):
        rows, columns = start.shape
        update = newton_schulz_by_svd(parameter.grad) * max(1, rows / columns) ** 0.5
        expected = start.double() * (1 - 0.1 * 0.5) - 0.1 * update
        torch.testing.assert_close(parameter.detach().double(), expected, rtol=1e-3, atol=1e-4)


def test_muon_equals_momentum_by_hand():
    parameter = torch.nn.Parameter(random_matrix(8, 16))
    expected, average = parameter.detach().double().clone(), torch.zeros(8, 16).double()
    optimizer = Muon([parameter], lr=0.1, momentum=0.9)
    for step in range(4):
        gradient = random_matrix(8, 16, seed=step + 1)
        parameter.grad = gradient.clone()
        optimizer.step()
        average = 0.9 * average + 0.1 * gradient.double()
        nesterov = 0.1 * gradient.double() + 0.9 * average
        expected -= 0.1 * newton_schulz_by_svd(nesterov)
    torch.testing.assert_close(parameter.detach().double(), expected, rtol=1e-3, atol=1e-3)


def test_muon_without_a_gradient_leaves_a_matrix_alone():
    parameters = parameters_with_gradients()
    parameters[1].grad = None
    before = [parameter.detach().clone() for parameter in parameters]
    Muon(parameters, lr=0.1, weight_decay=0.5).step()
    moved = [
        not torch.equal(parameter, start)
        for parameter, start in zip(parameters, before, strict=True)
    ]
    assert moved == [True, False, True, True, True]


def test_muon_of_two_models_equals_two_muons():
    together = [random_gpt(seed=0), random_gpt(seed=1)]
    apart = copy.deepcopy(together)

    def matrices(model):
        return [p for p in model.blocks.parameters() if p.dim() == 2]

    one = [Muon([p for model in together for p in matrices(model)], lr=0.02)]
    two = [Muon(matrices(model), lr=0.02) for model in apart]
    for step in range(3):
        ids = torch.randint(11, (4, 9), generator=torch.Generator().manual_seed(step))
        for model in [*together, *apart]:
            model.zero_grad()
            cross_entropy(model(ids[:, :-1]), ids[:, 1:]).backward()
        for optimizer in one + two:
            optimizer.step()
    for ours, theirs in zip(together, apart, strict=True):
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=0, atol=1e-4)
    first, second = matrices(together[0])[0], matrices(together[1])[0]
    assert (first - second).abs().max() > 0.1


# RowAdagrad


def row_gradient(rows, columns, seed, table_rows=7):
    """Return a sparse gradient as an embedding gives it: a row as often as it was looked up."""
    values = random_matrix(len(rows), columns, seed=seed, dtype=torch.float64)
    table = torch.nn.Embedding(table_rows, columns, sparse=True).double()
    table(torch.tensor(rows, dtype=torch.long)).backward(values)
    assert table.weight.grad._nnz() == len(rows), "not summed up yet"
    return table.weight.grad


def adagrad_by_hand(table, sums, gradient, lr):
    """Make one step in lists of Python's numbers."""
    for i, row in enumerate(gradient.to_dense().tolist()):
        if any(row):
            sums[i] += math.fsum(g * g for g in row) / len(row)
            table[i] = [w - lr * g / math.sqrt(sums[i]) for w, g in zip(table[i], row, strict=True)]


@pytest.mark.parametrize("columns", [1, 5])
def test_row_adagrad_equals_the_formula_by_hand(columns):
    start = random_matrix(7, columns, dtype=torch.float64)
    sparse, dense = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimizers = [RowAdagrad([p], lr=0.3) for p in (sparse, dense)]
    table, sums = start.tolist(), [0.0] * 7
    for step, rows in enumerate([[0, 1, 1, 5], [1, 1, 1, 1], [5], [], [4, 0, 4, 2, 0], [1, 5]]):
        before, kept = sparse.detach().clone(), dict(optimizers[0].state[sparse])
        kept = {name: value.clone() for name, value in kept.items()}
        sparse.grad = row_gradient(rows, columns, seed=step)
        dense.grad = sparse.grad.to_dense()
        adagrad_by_hand(table, sums, sparse.grad, lr=0.3)
        for optimizer, p in zip(optimizers, (sparse, dense), strict=True):
            optimizer.step()
            torch.testing.assert_close(p.tolist(), table, rtol=1e-12, atol=1e-12)
            state = optimizer.state[p]
            assert state.keys() == {"sum"}
            torch.testing.assert_close(state["sum"].tolist(), sums, rtol=1e-12, atol=0.0)
        rest = [i for i in range(7) if i not in rows]
        assert torch.equal(sparse[rest], before[rest])
        if kept:
            assert torch.equal(optimizers[0].state[sparse]["sum"][rest], kept["sum"][rest])
    assert torch.equal(sparse[[3, 6]], start[[3, 6]])
    assert (sparse - start)[[0, 1, 2, 4, 5]].abs().amin() > 1e-3


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_first_step_of_a_row_is_as_long_whatever_its_gradient(scale):
    table = torch.nn.Parameter(torch.zeros(7, 16))
    table.grad = scale * row_gradient([2, 4, 4], 16, seed=1).float()
    RowAdagrad([table], lr=0.25).step()
    lengths = table.detach().norm(dim=1)
    assert lengths[[2, 4]].tolist() == pytest.approx([0.25 * 4] * 2, rel=1e-5)  # lr · √columns
    assert lengths.count_nonzero() == 2
    moved, gradient = -table.detach()[[2, 4]], table.grad.to_dense()[[2, 4]]
    assert torch.cosine_similarity(moved, gradient / scale).tolist() == pytest.approx([1.0, 1.0])


def test_row_adagrad_without_anything_to_do_moves_nothing():
    table = torch.nn.Parameter(random_matrix(7, 3, dtype=torch.float64))
    before = table.detach().clone()
    optimizer = RowAdagrad([table], lr=0.3)
    optimizer.step()
    assert not optimizer.state
    for gradient in (row_gradient([], 3, seed=0), 0 * row_gradient([1, 1], 3, seed=0)):
        for table.grad in (gradient, gradient.to_dense()):
            optimizer.step()
            assert torch.equal(table, before)
            assert torch.equal(optimizer.state[table]["sum"], torch.zeros(7).double())
    optimizer.param_groups[0]["lr"] = 0.0
    table.grad = row_gradient([1, 1], 3, seed=0)
    optimizer.step()
    assert torch.equal(table, before)
    assert optimizer.state[table]["sum"].nonzero().tolist() == [[1]]


# Groups


def owners(optimizers):
    return [
        (id(p), optimizer, group)
        for optimizer in optimizers
        for group in optimizer.param_groups
        for p in group["params"]
    ]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("tie_embeddings", [False, True])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("position", ["learned", "rope"])
@pytest.mark.parametrize("bias", [False, True])
def test_every_parameter_is_in_one_group(optimizer, tie_embeddings, norm, position, bias):
    model_config = replace(
        SMALL, tie_embeddings=tie_embeddings, norm=norm, position=position, bias=bias
    )
    model = GPT(model_config)
    config = TrainConfig(
        optimizer=optimizer,
        weight_decay=0.25,
        learning_rate=0.125,
        muon_learning_rate=0.5,
        ngram_learning_rate=0.0625,
        beta1=0.75,
        beta2=0.875,
    )
    optimizers = make_optimizers(model, config)
    found = owners(optimizers)
    assert sorted(key for key, _, _ in found) == sorted(id(p) for p in model.parameters())
    by_id = {key: (owner, group) for key, owner, group in found}
    for name, p in model.named_parameters():
        owner, group = by_id[id(p)]
        is_muon = optimizer == "muon" and name.startswith("blocks.") and p.dim() == 2
        is_table = name == "ngram_embedding.weight"
        kind = Muon if is_muon else RowAdagrad if is_table else AdamW
        assert type(owner) is kind, name
        assert is_table or group["weight_decay"] == (0.25 if p.dim() == 2 else 0.0), name
        rate = 0.5 if is_muon else 0.0625 if is_table else 0.125
        assert group["lr"] == group["peak_lr"] == rate, name
        assert kind is not AdamW or group["betas"] == (0.75, 0.875), name
    assert len(optimizers) == (3 if optimizer == "muon" else 2)


INSIDE = {
    f"blocks.0.{name}.weight"
    for name in ("attention.qkv", "attention.proj", "feed_forward.expand", "feed_forward.proj")
}
CHARACTERS = {"token_embedding.weight", "head.weight"}
VECTORS = {f"blocks.0.{name}" for name in ("norm1.weight", "norm1.bias", "norm2.weight")}
VECTORS |= {name.replace("weight", "bias") for name in INSIDE} | {"blocks.0.norm2.bias"}
VECTORS |= {"norm.weight", "norm.bias"}
WHO_MOVES_WHAT = {
    ("mini", "muon"): {
        "AdamW with decay": CHARACTERS,
        "AdamW": {"skips"},
        "Muon": INSIDE,
        "RowAdagrad": {"ngram_embedding.weight"},
    },
    ("mini", "adamw"): {
        "AdamW with decay": CHARACTERS | INSIDE,
        "AdamW": {"skips"},
        "RowAdagrad": {"ngram_embedding.weight"},
    },
    ("base", "muon"): {"AdamW with decay": CHARACTERS, "AdamW": {"skips"}, "Muon": INSIDE},
    ("base", "adamw"): {"AdamW with decay": CHARACTERS | INSIDE, "AdamW": {"skips"}},
    ("classic", "muon"): {
        "AdamW with decay": CHARACTERS | {"position_embedding.weight"},
        "AdamW": VECTORS,
        "Muon": INSIDE,
    },
    ("classic", "adamw"): {
        "AdamW with decay": CHARACTERS | INSIDE | {"position_embedding.weight"},
        "AdamW": VECTORS,
    },
}


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_who_moves_what_in_each_preset(preset, optimizer):
    shape = {"n_layer": 1, "n_embd": 8, "n_head": 2, "ngram_rows": 16}
    model = GPT(replace(PRESETS[preset].model, **shape))
    config = replace(PRESETS[preset].train, optimizer=optimizer, weight_decay=0.5)
    names, found = {id(p): name for name, p in model.named_parameters()}, {}
    for key, owner, group in owners(make_optimizers(model, config)):
        decays = isinstance(owner, AdamW) and group["weight_decay"]
        kind = type(owner).__name__ + (" with decay" if decays else "")
        found.setdefault(kind, set()).add(names[key])
    assert found == WHO_MOVES_WHAT[preset, optimizer]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_only_matrices_but_not_the_table_decay(optimizer):
    model = random_gpt(LEARNED)
    config = TrainConfig(
        optimizer=optimizer, weight_decay=0.5, learning_rate=0.1, muon_learning_rate=0.2
    )
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for each in make_optimizers(model, config):
        each.step()
    for name, p in model.named_parameters():
        rate = 0.2 if optimizer == "muon" and "blocks" in name else 0.1
        decays = p.dim() == 2 and name != "ngram_embedding.weight"
        expected = before[name] * (1 - rate * 0.5) if decays else before[name]
        torch.testing.assert_close(p.detach(), expected)


def test_learning_rate_of_every_group_is_set():
    optimizers = make_optimizers(
        GPT(SMALL),
        TrainConfig(learning_rate=0.5, muon_learning_rate=0.25, ngram_learning_rate=0.125),
    )
    for factor in (0.5, 0.125, 1.0):
        set_learning_rate(optimizers, factor)
        rates = [group["lr"] for each in optimizers for group in each.param_groups]
        assert rates == [0.5 * factor, 0.5 * factor, 0.25 * factor, 0.125 * factor]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_learning_rate_of_zero_moves_nothing(optimizer):
    model = random_gpt()
    before = copy.deepcopy(model.state_dict())
    optimizers = make_optimizers(model, TrainConfig(optimizer=optimizer, weight_decay=0.5))
    set_learning_rate(optimizers, 0.0)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    for each in optimizers:
        each.step()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_adamw_equals_torch_by_hand():
    model_config = replace(LEARNED, ngram_size=1)  # the table is not AdamW's
    ours, theirs = random_gpt(model_config), random_gpt(model_config)
    config = TrainConfig(
        optimizer="adamw", learning_rate=0.01, weight_decay=0.5, beta1=0.7, beta2=0.9
    )
    by_hand = torch.optim.AdamW(
        [
            {"params": [p for p in theirs.parameters() if p.dim() == 2], "weight_decay": 0.5},
            {"params": [p for p in theirs.parameters() if p.dim() == 1], "weight_decay": 0.0},
        ],
        lr=0.01,
        betas=(0.7, 0.9),
        eps=1e-8,
        foreach=False,
        fused=False,
    )
    for group in by_hand.param_groups:
        group["peak_lr"] = 0.01
    start = [p.detach().clone() for p in ours.parameters()]
    train(ours, make_optimizers(ours, config), range(5))
    train(theirs, [by_hand], range(5))
    for p, q, first in zip(ours.parameters(), theirs.parameters(), start, strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-5)
        assert (p - first).abs().max() > 1e-3


def test_adamw_equals_the_paper_in_float64():
    parameter_name = "token_embedding.weight"
    model = random_gpt()
    config = TrainConfig(
        optimizer="adamw", learning_rate=0.01, weight_decay=0.5, beta1=0.7, beta2=0.9
    )
    optimizer, _ = make_optimizers(model, config)
    parameter = dict(model.named_parameters())[parameter_name]
    expected = parameter.detach().double().clone()
    mean, square = torch.zeros_like(expected), torch.zeros_like(expected)
    for step in range(1, 5):
        gradient = random_matrix(*parameter.shape, seed=step)
        parameter.grad = gradient.clone()
        optimizer.step()
        mean = 0.7 * mean + 0.3 * gradient.double()
        square = 0.9 * square + 0.1 * gradient.double() ** 2
        expected *= 1 - 0.01 * 0.5
        expected -= 0.01 * (mean / (1 - 0.7**step)) / ((square / (1 - 0.9**step)).sqrt() + 1e-8)
    torch.testing.assert_close(parameter.detach().double(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_training_lowers_the_loss(optimizer):
    torch.manual_seed(0)
    model = GPT(SMALL)
    optimizers = make_optimizers(
        model, TrainConfig(optimizer=optimizer, learning_rate=0.01, muon_learning_rate=0.02)
    )
    ids = (torch.arange(9) + torch.arange(4)[:, None]) % 11
    for _ in range(30):
        loss = cross_entropy(model(ids[:, :-1]), ids[:, 1:])
        loss.backward()
        for each in optimizers:
            each.step()
            each.zero_grad()
    assert loss.item() < 0.5 * math.log(11)


# State


@pytest.mark.parametrize("tie_embeddings", [False, True])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_going_on_equals_going_through(optimizer, tie_embeddings):
    model_config = replace(LEARNED, tie_embeddings=tie_embeddings)
    config = TrainConfig(optimizer=optimizer, weight_decay=0.1)
    through = random_gpt(model_config)
    optimizers = make_optimizers(through, config)
    train(through, optimizers, range(3))
    weights = copy.deepcopy(through.state_dict())
    arrays = {
        name: value.copy() for name, value in optimizer_arrays(named(through), optimizers).items()
    }
    assert arrays["ngram_embedding.weight.sum"].shape == (32,)
    assert (arrays["ngram_embedding.weight.sum"] > 0).any()
    train(through, optimizers, range(3, 6))

    resumed, forgetful = random_gpt(model_config, seed=7), random_gpt(model_config, seed=8)
    for model in (resumed, forgetful):
        model.load_state_dict(weights)
    new_optimizers = make_optimizers(resumed, config)
    load_optimizer_arrays(named(resumed), new_optimizers, arrays)
    train(resumed, new_optimizers, range(3, 6))
    train(forgetful, make_optimizers(forgetful, config), range(3, 6))

    end = through.state_dict()
    assert all(torch.equal(value, end[name]) for name, value in resumed.state_dict().items())
    assert not all(torch.equal(v, end[name]) for name, v in forgetful.state_dict().items())
    ours, theirs = (
        optimizer_arrays(named(through), optimizers),
        optimizer_arrays(named(resumed), new_optimizers),
    )
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_optimizer_arrays_name_every_parameter(optimizer):
    model = random_gpt()
    optimizers = make_optimizers(model, TrainConfig(optimizer=optimizer))
    assert optimizer_arrays(named(model), optimizers) == {}
    train(model, optimizers, range(1))
    arrays = optimizer_arrays(named(model), optimizers)
    assert all(type(value) is np.ndarray for value in arrays.values())
    assert all(value.dtype == np.float32 for value in arrays.values())
    parameters = dict(model.named_parameters())
    assert {name.rpartition(".")[0] for name in arrays} == parameters.keys()
    for name, p in parameters.items():
        (state,) = (each.state[p] for each in optimizers if p in each.state)
        found = {key for key in arrays if key.rpartition(".")[0] == name}
        assert found == {f"{name}.{key}" for key in state}
        assert all(np.array_equal(arrays[f"{name}.{key}"], state[key]) for key in state)


def test_loaded_arrays_are_copies():
    first, second = random_gpt(), random_gpt()
    config = TrainConfig()
    optimizers = make_optimizers(first, config)
    train(first, optimizers, range(1))
    arrays = optimizer_arrays(named(first), optimizers)
    before = {name: value.copy() for name, value in arrays.items()}
    new_optimizers = make_optimizers(second, config)
    load_optimizer_arrays(named(second), new_optimizers, arrays)
    train(second, new_optimizers, range(1, 3))
    assert all(np.array_equal(arrays[name], before[name]) for name in arrays)


def test_state_of_an_unknown_parameter_is_an_error():
    model = random_gpt()
    optimizers = make_optimizers(model, TrainConfig())
    with pytest.raises(ValueError, match=r"blocks\.9\.nothing"):
        load_optimizer_arrays(named(model), optimizers, {"blocks.9.nothing.momentum": np.zeros(1)})


@pytest.mark.parametrize(("saved", "loaded"), [("adamw", "muon"), ("muon", "adamw")])
def test_state_of_another_optimizer_is_an_error(saved, loaded):
    first, second = random_gpt(), random_gpt()
    optimizers = make_optimizers(first, TrainConfig(optimizer=saved))
    train(first, optimizers, range(1))
    with pytest.raises(ValueError, match=r"blocks\."):
        load_optimizer_arrays(
            named(second),
            make_optimizers(second, TrainConfig(optimizer=loaded)),
            optimizer_arrays(named(first), optimizers),
        )


@pytest.mark.parametrize(
    "saved",
    [
        ("ngram_embedding.weight.exp_avg", "ngram_embedding.weight.exp_avg_sq"),
        ("ngram_embedding.weight.momentum",),
        ("ngram_embedding.weight.sum", "ngram_embedding.weight.step"),
        ("head.weight.sum",),
        ("blocks.1.attention.qkv.weight.sum",),
    ],
    ids=lambda names: names[-1],
)
def test_state_of_another_kind_is_an_error(saved):
    model = random_gpt()
    optimizers = make_optimizers(model, TrainConfig())
    owner = saved[0].rpartition(".")[0]
    with pytest.raises(UserError, match=rf"state for {owner};") as caught:
        load_optimizer_arrays(named(model), optimizers, dict.fromkeys(saved, np.zeros((32, 16))))
    assert "\n" not in str(caught.value)
