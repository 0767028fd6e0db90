import math
from dataclasses import replace

import pytest
import torch
from architectures import SMALL, assert_close, random_ids, random_tensor
from conftest import randomise
from runs import needs_bfloat16

from sancho.config import TrainConfig
from sancho.loss import cross_entropy
from sancho.model import GPT
from sancho.optim import (
    AdamW,
    Muon,
    RowAdagrad,
    learning_rate_factor,
    make_optimizers,
    orthogonalise,
    set_learning_rate,
)
from sancho.presets import PRESETS

CONFIG = replace(SMALL, norm="layernorm", position="learned", bias=True)


def train(model: GPT, optimizers: list) -> None:
    """Make five steps, each with its own batch and learning rate."""
    for step in range(5):
        ids = torch.from_numpy(random_ids(4, 9, seed=step))
        for optimizer in optimizers:
            optimizer.lr = 0.01 / (step + 1)
            for group in getattr(optimizer, "param_groups", ()):  # as PyTorch's have
                group["lr"] = optimizer.lr
        cross_entropy(model(ids[:, :-1]), ids[:, 1:]).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


# The learning rate


@pytest.mark.parametrize(
    ("max_iters", "warmup_iters", "decay_fraction", "expected"),
    [
        (10, 3, 0.4, [0.25, 0.5, 0.75, 1, 1, 1, 1, 0.75, 0.5, 0.25]),
        (6, 0, 0.5, [1, 1, 1, 1, 2 / 3, 1 / 3]),
        (6, 2, 0.0, [1 / 3, 2 / 3, 1, 1, 1, 1]),
        (4, 0, 1.0, [1, 0.75, 0.5, 0.25]),
        (4, 4, 1.0, [0.2, 0.4, 0.5, 0.25]),
        (1, 3, 0.6, [0.25]),
    ],
)
def test_learning_rate_rises_stays_and_falls(max_iters, warmup_iters, decay_fraction, expected):
    options = {"warmup_iters": warmup_iters, "decay_fraction": decay_fraction}
    config = TrainConfig(max_iters=max_iters, **options)
    found = [learning_rate_factor(step, config) for step in range(max_iters)]
    assert found == pytest.approx(expected)


# Muon


def newton_schulz_by_svd(matrix):
    """The quintic polynomial of Jordan et al., five times, on the singular values alone."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    values = values / values.square().sum().sqrt()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left @ torch.diag(values) @ right


SHAPES = [(3, 16, 16), (1, 16, 48), (4, 64, 16), (2, 5, 32), (1, 32, 2), (2, 1, 8)]


@pytest.mark.parametrize("scale", [1e-2, 1e6])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_orthogonalise_equals_the_polynomial_near_the_polar_factor(shape, scale):
    matrices = scale * random_tensor(*shape)
    before = matrices.clone()
    for matrix, result in zip(matrices, orthogonalise(matrices), strict=True):
        assert_close(result, newton_schulz_by_svd(matrix), atol=1e-4)
        left, _, right = torch.linalg.svd(matrix, full_matrices=False)
        assert torch.linalg.matrix_norm(result - left @ right, 2) < 0.4
    assert torch.equal(matrices, before)
    in_float32 = orthogonalise(matrices.float())
    assert_close(in_float32, orthogonalise(matrices), atol=1e-3)
    assert (orthogonalise(torch.zeros(shape)) == 0).all()


@pytest.mark.parametrize("where", ["cpu", pytest.param("cuda", marks=needs_bfloat16)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_orthogonalise_in_bfloat16_is_near(shape, where):
    """As on a GPU; and in the type and layout for one kernel that moves all matrices."""
    matrices = random_tensor(*shape, dtype=torch.float32).to(where)
    with torch.autocast(where, torch.bfloat16):
        found = orthogonalise(matrices)
    assert 0 < torch.linalg.matrix_norm(found - orthogonalise(matrices), 2).max() < 0.1
    assert found.dtype == torch.float32
    assert found.is_contiguous()


@pytest.mark.parametrize("shape", [(8, 8), (24, 8), (8, 32)])
def test_muon_equals_momentum_by_hand(shape):
    """Matrices are moved together, but each along its own update."""
    rows, columns = shape
    parameters = [torch.nn.Parameter(random_tensor(*shape, seed=i)) for i in range(3)]
    expected = [p.detach().clone() for p in parameters]
    averages = [torch.zeros_like(p) for p in expected]
    optimizer = Muon(parameters, lr=0.1, weight_decay=0.5)
    for step in range(3):
        for i, (p, matrix, average) in enumerate(zip(parameters, expected, averages, strict=True)):
            p.grad = None
            if (step, i) == (1, 2):
                continue  # without a gradient it stays where it is
            p.grad = random_tensor(*shape, seed=10 * step + i)
            average.mul_(0.95).add_(0.05 * p.grad)
            update = newton_schulz_by_svd(0.05 * p.grad + 0.95 * average)
            matrix.mul_(1 - 0.1 * 0.5).sub_(0.1 * max(1, rows / columns) ** 0.5 * update)
        optimizer.step()
        for p, matrix in zip(parameters, expected, strict=True):
            assert_close(p, matrix, atol=1e-6)


# RowAdagrad


def row_gradient(rows, columns, seed=0):
    """Return a sparse gradient as an embedding gives it: a row as often as it was looked up."""
    table = torch.nn.Embedding(7, columns, sparse=True).double()
    table(torch.tensor(rows, dtype=torch.long)).backward(
        random_tensor(len(rows), columns, seed=seed)
    )
    assert table.weight.grad._nnz() == len(rows), "not summed up yet"
    return table.weight.grad


@pytest.mark.parametrize("is_sparse", [True, False])
@pytest.mark.parametrize("columns", [1, 5])
def test_row_adagrad_equals_the_formula_by_hand(columns, is_sparse):
    p = torch.nn.Parameter(random_tensor(7, columns))
    table = p.tolist()
    sums = [0.0] * 7
    optimizer = RowAdagrad([p], lr=0.3)
    for step, rows in enumerate([[0, 1, 1, 5], [1, 1, 1, 1], [5], [], [4, 0, 4, 2, 0], [1, 5]]):
        gradient = row_gradient(rows, columns, seed=step)
        p.grad = gradient if is_sparse else gradient.to_dense()
        for i in set(rows):
            row = gradient.to_dense()[i].tolist()
            sums[i] += math.fsum(g * g for g in row) / columns
            rate = 0.3 / math.sqrt(sums[i])
            table[i] = [w - rate * g for w, g in zip(table[i], row, strict=True)]
        optimizer.step()
        assert_close(p, table, atol=1e-12)
        assert optimizer.state[p].keys() == {"sum"}
        assert_close(optimizer.state[p]["sum"], sums, rtol=1e-12)
    assert sums[3] == sums[6] == 0


# AdamW


ADAMW = TrainConfig(optimizer="adamw", learning_rate=0.01, weight_decay=0.5, beta1=0.7, beta2=0.9)


def test_adamw_equals_that_of_torch():
    config = replace(CONFIG, ngram_size=1)  # the table is not AdamW's
    start, ours, theirs = (randomise(GPT(config)) for _ in range(3))
    of_torch = []
    for axes, decay in ((2, 0.5), (1, 0.0)):
        params = [p for p in theirs.parameters() if p.dim() == axes]
        of_torch.append(torch.optim.AdamW(params, 0.01, (0.7, 0.9), 1e-8, decay, foreach=False))
    train(ours, make_optimizers(ours, ADAMW))
    train(theirs, of_torch)
    for name, p in ours.named_parameters():
        assert_close(p, theirs.get_parameter(name), atol=1e-5)
        assert (p - start.get_parameter(name)).abs().max() > 1e-3, name


# Which parameter is whose


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("tie_embeddings", [False, True])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_parameter_has_one_optimizer(preset, tie_embeddings, optimizer):
    shape = {"n_layer": 1, "n_embd": 8, "n_head": 2, "ngram_rows": 16}
    model = GPT(replace(PRESETS[preset].model, tie_embeddings=tie_embeddings, **shape))
    rates = {"learning_rate": 0.125, "muon_learning_rate": 0.5, "ngram_learning_rate": 0.0625}
    config = replace(ADAMW, optimizer=optimizer, weight_decay=0.25, **rates)
    head = torch.nn.Parameter(torch.zeros(92, 8))
    optimizers = make_optimizers(model, config, [head])
    owners = {p: owner for owner in optimizers for p in owner.params}
    assert sum(len(owner.params) for owner in optimizers) == len(owners)
    assert owners.keys() == {*model.parameters(), head}
    for name, p in [*model.named_parameters(), ("look_ahead.0", head)]:
        expected = (AdamW, 0.125, 0.25 if p.dim() == 2 else 0.0)
        if name == "ngram_embedding.weight":
            expected = (RowAdagrad, 0.0625, 0.0)
        elif optimizer == "muon" and name.startswith("blocks.") and p.dim() == 2:
            expected = (Muon, 0.5, 0.25)
        owner = owners[p]
        assert (type(owner), owner.lr, owner.weight_decay) == expected, name
        assert owner.peak_lr == owner.lr, name
        assert getattr(owner, "betas", (0.7, 0.9)) == (0.7, 0.9), name
    of_muon = [{p.shape for p in owner.params} for owner in optimizers if type(owner) is Muon]
    assert all(len(shapes) == 1 for shapes in of_muon), "they are stacked"
    for factor in (0.5, 0.125, 1.0):
        set_learning_rate(optimizers, factor)
        assert all(owner.lr == owner.peak_lr * factor for owner in optimizers)
