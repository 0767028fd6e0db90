"""Optimizers and the learning-rate schedule: AdamW, Muon, row-wise Adagrad."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from sancho.config import TrainConfig
from sancho.errors import UserError
from sancho.model import GPT

Parameters = dict[str, nn.Parameter]
Arrays = dict[str, np.ndarray]


def learning_rate_factor(step: int, config: TrainConfig) -> float:
    """Return which fraction of the peak learning rate step `step` (from 0) uses, in (0, 1].

    It rises linearly over warmup_iters, stays at 1, and falls linearly towards 0 over the last
    decay_fraction of max_iters. Positive at every step of the run.
    """
    # AdamW's means of squares are rough at first, and the decay evens out what single batches did.
    rise = (step + 1) / (config.warmup_iters + 1)
    decay_iters = config.decay_fraction * config.max_iters
    fall = (config.max_iters - step) / decay_iters if decay_iters else 1.0
    return min(1.0, rise, fall)


@torch.no_grad()
def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """Return matrices with the same singular vectors, their singular values brought near 1.

    (N, rows, columns) -> the same. Quintic Newton-Schulz iteration with the coefficients of
    Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon), which trade exactness for
    speed: the values end between 0.7 and 1.2. Under autocast its products are in bfloat16.
    """
    # Five steps bring most singular values into that range. Three, with coefficients that change
    # from step to step (Amsel et al. 2025), ended at 1.310 where five ended at 1.305.
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.mT if matrices.shape[1] > matrices.shape[2] else matrices
    x = x / (x.flatten(1).norm(dim=1).view(-1, 1, 1) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    x = x.mT if matrices.shape[1] > matrices.shape[2] else x
    return x.type_as(matrices).contiguous()  # else _foreach_add_ is a kernel for each matrix


class Optimizer:
    """An optimizer of some parameters, with one learning rate, `lr`, and its peak, `peak_lr`.

    It is used like torch.optim.Optimizer, which loads torch.compile's machinery at its first step
    and so would make every start two seconds longer.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, weight_decay: float = 0.0) -> None:
        self.params = list(params)
        self.lr = lr
        self.peak_lr = lr
        self.weight_decay = weight_decay
        # Made before the first step, so that a run can go on from the checkpoint of its beginning.
        self.state = {p: self._new_state(p) for p in self.params}

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        pairs = [(p, p.grad) for p in self.params if p.grad is not None]
        if pairs:
            self._move([p for p, _ in pairs], [grad for _, grad in pairs])

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for p in self.params:
            p.grad = None

    def _new_state(self, p: Tensor) -> dict[str, Tensor]:
        raise NotImplementedError

    def _move(self, params: list[Tensor], grads: list[Tensor]) -> None:
        raise NotImplementedError

    def _states(self, name: str, params: list[Tensor]) -> list[Tensor]:
        return [self.state[p][name] for p in params]


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2).

    With m and v the bias-corrected running means of the gradients and of their squares: p moves by
    −lr · (m / (√v + 1e-8) + weight_decay · p), all in one kernel.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float, betas: tuple[float, float], weight_decay: float
    ) -> None:
        super().__init__(params, lr, weight_decay)
        self.betas = betas

    def _new_state(self, p: Tensor) -> dict[str, Tensor]:
        step = torch.zeros((), device=p.device)
        return {"step": step, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}

    def _move(self, params: list[Tensor], grads: list[Tensor]) -> None:
        steps = self._states("step", params)
        means = self._states("exp_avg", params)
        squares = self._states("exp_avg_sq", params)
        settings: dict[str, Any] = {"fused": True, "amsgrad": False, "maximize": False}
        settings |= {"lr": self.lr, "weight_decay": self.weight_decay, "eps": 1e-8}
        settings |= {"beta1": self.betas[0], "beta2": self.betas[1]}
        adamw(params, grads, means, squares, [], steps, **settings)


class Muon(Optimizer):
    """Momentum whose update is orthogonalised, matrix by matrix (Jordan et al. 2024).

    All matrices of one optimizer have one shape and are stacked, so that a step is a few batched
    products, however many layers there are.
    """

    # Jordan's value. Rising to it from 0.85 over 300 steps gained 0.001, which is noise.
    momentum = 0.95

    def _new_state(self, p: Tensor) -> dict[str, Tensor]:
        return {"momentum": torch.zeros_like(p)}

    def _move(self, params: list[Tensor], grads: list[Tensor]) -> None:
        moments = self._states("momentum", params)
        torch._foreach_lerp_(moments, grads, 1 - self.momentum)
        nesterov = torch._foreach_lerp(grads, moments, self.momentum)
        update = orthogonalise(torch.stack(nesterov))  # (N, rows, columns)
        rows, columns = update.shape[1:]
        torch._foreach_mul_(params, 1 - self.lr * self.weight_decay)
        # An orthogonal matrix moves a tall one's outputs less: √(rows / columns) makes up for it.
        scale = max(1.0, rows / columns) ** 0.5
        torch._foreach_add_(params, list(update), alpha=-self.lr * scale)


class RowAdagrad(Optimizer):
    """Adagrad with one step size per row, for a table of which each step uses only a few rows.

    The table has an optimizer of its own because a row is seen as seldom as its n-gram: AdamW would
    go on moving it by its running means. It ends as low (1.303 for 1.306) in a quarter of the time,
    and at 0.15 by 0.002 lower than at 0.06 or at 0.3 (benchmarks/diary.md).
    A row moves by −lr · g / √(sum of the mean squares of its gradients so far): far at first, then
    less and less. Adagrad: Duchi et al. 2011, Adaptive Subgradient Methods; by rows:
    Mudigere et al. 2021, arXiv:2104.05158. Gradients may be sparse.
    """

    def _new_state(self, p: Tensor) -> dict[str, Tensor]:
        return {"sum": p.new_zeros(p.shape[0])}

    def _move(self, params: list[Tensor], grads: list[Tensor]) -> None:
        for p, grad in zip(params, grads, strict=True):
            grad = grad.coalesce() if grad.is_sparse else grad.to_sparse(1)
            rows = grad.indices()[0]  # (N,)
            values = grad.values()  # (N, columns)
            sums = self.state[p]["sum"]
            sums.index_add_(0, rows, values.square().mean(1))
            steps = values * (sums[rows] + 1e-20).rsqrt()[:, None]
            p.index_add_(0, rows, steps, alpha=-self.lr)


def make_optimizers(
    model: GPT, config: TrainConfig, prediction_heads: Sequence[nn.Parameter] = ()
) -> list[Optimizer]:
    """Return the optimizers of a model: AdamW, Muon if `config.optimizer` says so, RowAdagrad.

    Muon trains the matrices inside the blocks, and RowAdagrad the n-gram table, if there is one.
    AdamW trains the embeddings, the output and prediction heads, the gains and biases. Weight decay
    applies to matrices only, and not to the table.
    """
    table = [model.ngram_embedding.weight] if model.config.ngram_size > 1 else []
    by_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
    if config.optimizer == "muon":
        for p in model.blocks.parameters():
            if p.dim() == 2:
                by_shape[p.shape].append(p)
    taken = {*table, *chain(*by_shape.values())}
    matrices = [p for p in model.parameters() if p.dim() == 2 and p not in taken]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    betas = (config.beta1, config.beta2)
    decay = config.weight_decay
    return [  # they step in parallel threads, so those that take longest come first
        *(RowAdagrad([p], config.ngram_learning_rate) for p in table),
        *(Muon(same, config.muon_learning_rate, weight_decay=decay) for same in by_shape.values()),
        AdamW([*matrices, *prediction_heads], config.learning_rate, betas, decay),
        AdamW(vectors, config.learning_rate, betas, weight_decay=0.0),
    ]


def set_learning_rate(optimizers: list[Optimizer], factor: float) -> None:
    """Set every learning rate to `factor` times its peak."""
    for optimizer in optimizers:
        optimizer.lr = factor * optimizer.peak_lr


def optimizer_arrays(parameters: Parameters, optimizers: list[Optimizer]) -> Arrays:
    """Return the optimizers' state as "parameter name.state name" -> array, not copied on a CPU."""
    return {
        f"{name}.{key}": value.cpu().numpy()
        for name, p in parameters.items()
        for optimizer in optimizers
        for key, value in optimizer.state.get(p, {}).items()
    }


def load_optimizer_arrays(
    parameters: Parameters, optimizers: list[Optimizer], arrays: Arrays
) -> None:
    """Put back copies of what `optimizer_arrays` returned.

    Raises UserError if it is the state of another kind of optimizer.
    """
    owners = {p: optimizer for optimizer in optimizers for p in optimizer.params}
    for name, array in arrays.items():
        owner, _, key = name.rpartition(".")
        p = parameters[owner]
        state = owners[p].state[p]
        if key not in state:
            advice = "go on with the --optimizer that the run began with"
            raise UserError(f"the checkpoint has the state of another optimizer; {advice}")
        state[key] = torch.from_numpy(array).to(p.device, copy=True)
