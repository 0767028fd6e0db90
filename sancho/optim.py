"""Optimizers and the learning-rate schedule: AdamW, Muon, row-wise Adagrad."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

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
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.mT if matrices.shape[1] > matrices.shape[2] else matrices
    x = x / (x.flatten(1).norm(dim=1).view(-1, 1, 1) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    x = x.mT if matrices.shape[1] > matrices.shape[2] else x
    return x.type_as(matrices).contiguous()  # else _foreach_add_ is a kernel for each matrix


class Optimizer:
    """Groups of parameters with their settings, and the state of each parameter.

    A group's "peak_lr" is the "lr" that it begins with. Used like torch.optim.Optimizer, which at
    its first step loads torch.compile's machinery: two seconds more at every start.
    """

    state_names: tuple[str, ...]
    """The names in the state of a parameter that has moved."""
    defaults: Mapping[str, Any] = MappingProxyType({})
    """Settings besides lr, where nothing else is said."""

    def __init__(self, params: Iterable[Any], lr: float, **settings: Any) -> None:
        """Take parameters, or groups of them as dicts, whose settings come before the others."""
        params, settings = list(params), {**self.defaults, "lr": lr, **settings}
        groups = params if params and isinstance(params[0], dict) else [{"params": params}]
        self.param_groups: list[dict[str, Any]] = [settings | group for group in groups]
        for group in self.param_groups:
            group["peak_lr"] = group["lr"]
        self.state: dict[Tensor, dict[str, Tensor]] = defaultdict(dict)

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            pairs = [(p, p.grad) for p in group["params"] if p.grad is not None]
            if pairs:
                self._step_group([p for p, _ in pairs], [grad for _, grad in pairs], group)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def _step_group(self, params: list[Tensor], grads: list[Tensor], group: dict) -> None:
        raise NotImplementedError

    def _states(self, name: str, params: list[Tensor]) -> list[Tensor]:
        for p in params:
            if name not in self.state[p]:
                self.state[p][name] = torch.zeros_like(p)
        return [self.state[p][name] for p in params]


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2).

    With m and v the bias-corrected running means of the gradients and of their squares: p moves by
    −lr · (m / (√v + 1e-8) + weight_decay · p), all in one kernel.
    """

    state_names = ("step", "exp_avg", "exp_avg_sq")
    defaults = MappingProxyType({"betas": (0.9, 0.999), "weight_decay": 0.01})

    def _step_group(self, params: list[Tensor], grads: list[Tensor], group: dict) -> None:
        for p in params:
            self.state[p].setdefault("step", torch.zeros((), device=p.device))
        steps, means, squares = (self._states(name, params) for name in self.state_names)
        torch._foreach_add_(steps, 1)
        settings = {"lr": group["lr"], "weight_decay": group["weight_decay"], "eps": 1e-8}
        settings |= dict(zip(("beta1", "beta2"), group["betas"], strict=True))
        settings |= {"amsgrad": False, "maximize": False}
        torch._fused_adamw_(params, grads, means, squares, [], steps, **settings)


class Muon(Optimizer):
    """Momentum whose update is orthogonalised, matrix by matrix (Jordan et al. 2024).

    Matrices of one shape are stacked, so that a step is a few batched products, however many
    layers there are.
    """

    state_names = ("momentum",)
    defaults = MappingProxyType({"momentum": 0.95, "weight_decay": 0.0})

    def _step_group(self, params: list[Tensor], grads: list[Tensor], group: dict) -> None:
        by_shape: dict[torch.Size, list[int]] = defaultdict(list)
        for i, p in enumerate(params):
            by_shape[p.shape].append(i)
        for places in by_shape.values():
            self._step_stack([params[i] for i in places], [grads[i] for i in places], group)

    def _step_stack(self, params: list[Tensor], grads: list[Tensor], group: dict) -> None:
        moments = self._states("momentum", params)
        torch._foreach_lerp_(moments, grads, 1 - group["momentum"])
        nesterov = torch._foreach_lerp(grads, moments, group["momentum"])
        update = orthogonalise(torch.stack(nesterov))  # (N, rows, columns)
        rows, columns = update.shape[1:]
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        scale = max(1.0, rows / columns) ** 0.5
        torch._foreach_add_(params, list(update), alpha=-group["lr"] * scale)


class RowAdagrad(Optimizer):
    """Adagrad with one step size for each row, for a table of which a step touches few rows.

    A row moves by −lr · g / √(sum of the mean squares of its gradients so far): the first times
    far, then less and less. Adagrad: Duchi et al. 2011, Adaptive Subgradient Methods; by rows:
    Mudigere et al. 2021, arXiv:2104.05158. Gradients may be sparse.
    """

    state_names = ("sum",)

    def _step_group(self, params: list[Tensor], grads: list[Tensor], group: dict) -> None:
        for p, grad in zip(params, grads, strict=True):
            if not self.state[p]:
                self.state[p]["sum"] = p.new_zeros(p.shape[0])
            grad = grad.coalesce() if grad.is_sparse else grad.to_sparse(1)
            rows, values = grad.indices()[0], grad.values()  # (N,), (N, columns)
            total = self.state[p]["sum"].index_add_(0, rows, values.square().mean(1))[rows]
            p.index_add_(0, rows, values * (total + 1e-20).rsqrt()[:, None], alpha=-group["lr"])


def make_optimizers(
    model: GPT, config: TrainConfig, prediction_heads: Sequence[nn.Parameter] = ()
) -> list[Optimizer]:
    """Return the optimizers of a model: AdamW, Muon if `config.optimizer` says so, RowAdagrad.

    Muon takes the matrices inside the blocks and RowAdagrad the n-gram table, if there is one;
    embeddings, output and prediction heads, gains and biases are AdamW's. Only matrices decay, and
    not the table.
    """
    decay, betas = config.weight_decay, (config.beta1, config.beta2)
    table = [model.ngram_embedding.weight] if model.config.ngram_size > 1 else []
    muon: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
    for p in model.blocks.parameters():
        if p.dim() == 2 and config.optimizer == "muon":
            muon[p.shape].append(p)
    taken = {*table, *chain(*muon.values())}
    matrices = [p for p in model.parameters() if p.dim() == 2 and p not in taken]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": [*matrices, *prediction_heads], "weight_decay": decay}]
    groups += [{"params": vectors, "weight_decay": 0.0}]
    return [
        AdamW(groups, config.learning_rate, betas=betas),
        # One for each shape: they step in parallel threads.
        *(Muon(same, config.muon_learning_rate, weight_decay=decay) for same in muon.values()),
        *(RowAdagrad([p], config.ngram_learning_rate) for p in table),
    ]


def set_learning_rate(optimizers: list[Optimizer], factor: float) -> None:
    """Set every group's learning rate to `factor` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * factor


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

    Raises UserError where it is the state of another kind of optimizer.
    """
    owners = {p: o for o in optimizers for group in o.param_groups for p in group["params"]}
    for name, array in arrays.items():
        owner, _, key = name.rpartition(".")
        p = parameters[owner]
        owners[p].state[p][key] = torch.from_numpy(array).to(p.device, copy=True)
    for p, optimizer in owners.items():
        if optimizer.state[p].keys() not in (set(), set(optimizer.state_names)):
            advice = "go on with the --optimizer that the run began with"
            raise UserError(f"the checkpoint has another optimizer's state; {advice}")
