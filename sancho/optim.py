"""How the weights move: Muon, AdamW and RowAdagrad, and the learning rate over time."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from sancho.config import TrainConfig
from sancho.errors import UserError
from sancho.model import GPT

NEWTON_SCHULZ_STEPS = 5


def learning_rate_factor(step: int, config: TrainConfig) -> float:
    """Return what share of the peak learning rate step `step` (from 0) uses, in (0, 1].

    It rises linearly over warmup_iters, stays at 1, and falls linearly towards 0 over the last
    decay_fraction of max_iters. Positive at every step of the run.
    """
    rise = (step + 1) / (config.warmup_iters + 1)
    decay_iters = config.decay_fraction * config.max_iters
    fall = (config.max_iters - step) / decay_iters if decay_iters else 1.0
    return min(1.0, rise, fall)


@torch.no_grad()
def orthogonalise(matrices: Tensor, steps: int = NEWTON_SCHULZ_STEPS) -> Tensor:
    """Return matrices with the same singular vectors, their singular values brought near 1.

    (N, rows, columns) -> the same. Quintic Newton-Schulz iteration with the coefficients of
    Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon), which trade exactness for
    speed: the values end between 0.7 and 1.2.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.mT if matrices.shape[1] > matrices.shape[2] else matrices
    x = x / (x.flatten(1).norm(dim=1).view(-1, 1, 1) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if matrices.shape[1] > matrices.shape[2] else x


class Optimizer:
    """Groups of parameters with their settings, and what is remembered of each parameter.

    Used like torch.optim.Optimizer, which at its first step loads torch.compile's machinery: two
    seconds more at every start.
    """

    state_names: frozenset[str]
    """What `state` holds of a parameter that has moved."""

    def __init__(self, params: Iterable, **settings: object) -> None:
        """Take parameters, or groups of them as dicts, whose settings come before the others."""
        params = list(params)
        groups = params if params and isinstance(params[0], dict) else [{"params": params}]
        self.param_groups = [settings | group for group in groups]
        self.state: dict[nn.Parameter, dict[str, Tensor]] = defaultdict(dict)

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            if params := [p for p in group["params"] if p.grad is not None]:
                self._step_group(params, group)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def _step_group(self, params: list[nn.Parameter], group: dict) -> None:
        raise NotImplementedError


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2).

    With m and v the bias-corrected running means of the gradients and of their squares: p moves by
    −lr · (m / (√v + 1e-8) + weight_decay · p), all in one kernel.
    """

    state_names = frozenset({"step", "exp_avg", "exp_avg_sq"})

    def __init__(
        self,
        params: Iterable,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, weight_decay=weight_decay)

    def _step_group(self, params: list[nn.Parameter], group: dict) -> None:
        for p in params:
            if not self.state[p]:
                self.state[p]["step"] = torch.zeros((), device=p.device)
                self.state[p]["exp_avg"] = torch.zeros_like(p)
                self.state[p]["exp_avg_sq"] = torch.zeros_like(p)
        states = [self.state[p] for p in params]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            params,
            [p.grad for p in params],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


class Muon(Optimizer):
    """Momentum whose update is orthogonalised, matrix by matrix (Jordan et al. 2024).

    Matrices of one shape are stacked, so that a step is a few batched products, however many
    layers there are.
    """

    state_names = frozenset({"momentum"})

    def __init__(
        self, params: Iterable, lr: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, lr=lr, momentum=momentum, weight_decay=weight_decay)

    def _step_group(self, params: list[nn.Parameter], group: dict) -> None:
        by_shape: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for p in params:
            by_shape.setdefault(tuple(p.shape), []).append(p)
        for stack in by_shape.values():
            self._step_stack(stack, group)

    def _step_stack(self, params: list[nn.Parameter], group: dict) -> None:
        for p in params:
            if not self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
        moments = [self.state[p]["momentum"] for p in params]
        grads = [p.grad for p in params]
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

    state_names = frozenset({"sum"})

    def __init__(self, params: Iterable, lr: float) -> None:
        super().__init__(params, lr=lr)

    def _step_group(self, params: list[nn.Parameter], group: dict) -> None:
        for p in params:
            self._step_rows(p, group["lr"])

    def _step_rows(self, p: nn.Parameter, lr: float) -> None:
        if not self.state[p]:
            self.state[p]["sum"] = p.new_zeros(p.shape[0])
        grad = p.grad.coalesce() if p.grad.is_sparse else p.grad.to_sparse(1)
        rows, grads = grad.indices()[0], grad.values()  # (N,), (N, columns)
        total = self.state[p]["sum"].index_add_(0, rows, grads.square().mean(1))[rows]
        p.index_add_(0, rows, grads * (total + 1e-20).rsqrt()[:, None], alpha=-lr)


def make_optimizers(
    model: GPT, config: TrainConfig, more_heads: Sequence[nn.Parameter] = ()
) -> list[Optimizer]:
    """Return the optimizers of a model: AdamW, Muon if `config.optimizer` says so, RowAdagrad.

    Muon takes the matrices inside the blocks and RowAdagrad the table of character sequences, if
    there is one; embeddings, heads, gains and biases are AdamW's. Only matrices decay, and
    not the table. The peak learning rate is kept in each group as "peak_lr".
    """
    table = [model.ngram_embedding.weight] if model.config.ngram_size > 1 else []
    inside = {id(p) for p in model.blocks.parameters() if p.dim() == 2}
    matrices = [p for p in model.parameters() if p.dim() == 2 and p not in set(table)]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    muon = [p for p in matrices if id(p) in inside and config.optimizer == "muon"]
    taken = {id(p) for p in muon}
    groups = [
        {"params": [p for p in matrices if id(p) not in taken] + list(more_heads)}
        | {"weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    adamw = AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
    )
    optimizers: list[Optimizer] = [adamw]
    if muon:
        optimizers.append(
            Muon(muon, lr=config.muon_learning_rate, weight_decay=config.weight_decay)
        )
    if table:
        optimizers.append(RowAdagrad(table, lr=config.ngram_learning_rate))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def set_learning_rate(optimizers: list[Optimizer], factor: float) -> None:
    """Set every group's learning rate to `factor` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * factor


def optimizer_arrays(
    parameters: dict[str, nn.Parameter], optimizers: list[Optimizer]
) -> dict[str, np.ndarray]:
    """Return the optimizers' state as "parameter name.state name" -> array, not copied on a CPU."""
    return {
        f"{name}.{key}": value.cpu().numpy()
        for name, p in parameters.items()
        for optimizer in optimizers
        for key, value in optimizer.state.get(p, {}).items()
    }


def load_optimizer_arrays(
    parameters: dict[str, nn.Parameter],
    optimizers: list[Optimizer],
    arrays: dict[str, np.ndarray],
) -> None:
    """Put back copies of what `optimizer_arrays` returned.

    Raises UserError where it is the state of another kind of optimizer.
    """
    found: dict[str, set[str]] = {}
    for name in arrays:
        owner, _, key = name.rpartition(".")
        found.setdefault(owner, set()).add(key)
    if unknown := found.keys() - parameters.keys():
        raise UserError(f"the checkpoint has optimizer state of unknown weights: {min(unknown)}")
    for optimizer in optimizers:
        kept = optimizer.state_names
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            name = next(name for name, other in parameters.items() if other is p)
            if found.get(name, kept) != kept:
                raise UserError(
                    f"the checkpoint has another optimizer's state for {name}; go on with the "
                    "--optimizer that the run began with"
                )
            for key in found.get(name, ()):
                state = torch.from_numpy(arrays[f"{name}.{key}"])
                optimizer.state[p][key] = state.to(p.device, copy=True)
