"""Data-parallel training on several processes, which torchrun starts.

Each process holds the whole model and its optimizers. They share the micro-batches of a step, and
each takes the step with the sum of all gradients. Any number of processes and threads trains the
same model, to rounding; the same number of both, to the same bits.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sancho.errors import AnotherProcessFailed, FailedInAllProcesses, UserError

Made = TypeVar("Made")
TIMEOUT_SECONDS = 600.0  # for which a process waits for another: enough to prepare a text
# What gloo and NCCL say where another process is gone.
LOST = "closed by peer|reset by peer|timed? ?out|broken pipe|refused|unreachable|abort"


@dataclass(frozen=True)
class World:
    """The processes of a run: which of them this one is, and their collective operations."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def choose_gpu(self, device: torch.device) -> None:
        """Let process i of a machine compute on its GPU i, if the device is a GPU.

        Raises UserError where there are fewer GPUs than processes, or the device can't be shared.
        """
        if self.size > 1 and device.type == "mps":
            raise UserError("--device mps works in one process; start train.py without torchrun")
        if self.size > 1 and device.type == "cuda":
            place = int(os.environ["LOCAL_RANK"])
            gpus = torch.cuda.device_count()
            if place >= gpus:
                raise UserError(f"there are {gpus} GPUs; give --nproc_per_node {gpus} or less")
            torch.cuda.set_device(place)

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """End every process where the block raises anything in one or more of them.

        The first of those raises it, and the others AnotherProcessFailed: one line, not several.
        """
        error = None
        last = self.size - self.rank
        try:
            yield
        except BaseException as raised:
            error = raised
        (failed,) = self.max_over_processes(last if error else 0)
        if error and failed == last:
            raise error
        if failed:
            raise AnotherProcessFailed

    def broadcast_from_first(self, make: Callable[[], Made]) -> Made:
        """Return what `make` returns in the first process, where all `fail_together`."""
        with self.fail_together():
            made: list[Any] = [make() if self.is_first else None]
        if self.size > 1:
            with _explained():
                dist.broadcast_object_list(made, device=torch.device("cpu"))
        return made[0]

    def max_over_processes(self, *numbers: int) -> list[int]:
        """Return the highest that any process gives in each place."""
        return self._reduce(torch.tensor(numbers), dist.ReduceOp.MAX).tolist()

    def sum(self, tensor: Tensor) -> Tensor:
        """Return `tensor`, changed into the sum of those of all processes."""
        return self._reduce(tensor, dist.ReduceOp.SUM)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Change every gradient into the sum of those of all processes."""
        if self.size == 1:
            return
        grads = {p: p.grad for p in parameters if p.grad is not None}
        dense = [grad for grad in grads.values() if not grad.is_sparse]
        total = self.sum(torch.cat([grad.flatten() for grad in dense]))
        for grad, part in zip(dense, total.split([grad.numel() for grad in dense]), strict=True):
            grad.copy_(part.view_as(grad))
        for p, grad in grads.items():
            if grad.is_sparse:  # NCCL sums none, and a dense one would have every row
                (most,) = self.max_over_processes(grad._nnz())
                missing = most - grad._nnz()  # zeros for row 0 make them as many as the others'
                rows = self._gather(nn.functional.pad(grad._indices()[0], (0, missing)))
                values = self._gather(nn.functional.pad(grad._values(), (0, 0, 0, missing)))
                p.grad = torch.sparse_coo_tensor(
                    rows[None], values, p.shape, check_invariants=False
                )

    def _reduce(self, tensor: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        if self.size > 1:
            with _explained():
                dist.all_reduce(tensor, operation)
        return tensor

    def _gather(self, tensor: Tensor) -> Tensor:
        found = [torch.empty_like(tensor) for _ in range(self.size)]
        with _explained():
            dist.all_gather(found, tensor)
        return torch.cat(found)


@contextmanager
def process_group() -> Iterator[World]:
    """Yield the processes that torchrun has started, or World() for this one alone.

    A FailedInAllProcesses that ends the block is raised by the first process alone.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) == 1 or "RANK" not in os.environ:
        yield World()
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    timeout = timedelta(seconds=TIMEOUT_SECONDS)
    with _explained():
        store, rank, size = next(dist.rendezvous("env://", timeout=timeout))
        # torchrun may keep what the processes of the attempt before, now dead, have left in it.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"attempt {attempt}", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    try:
        yield World(rank, size)
    except FailedInAllProcesses:
        if rank == 0:
            raise
        raise AnotherProcessFailed from None
    except BaseException:
        if group := dist.group.WORLD:
            group.abort()  # what still waits for another process is given up
        raise
    finally:
        # Threads of the group that are left to the interpreter's end would crash it.
        dist.destroy_process_group()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not re.search(LOST, str(error), re.IGNORECASE):
            raise
        raise UserError(
            f"another process of the run has ended, or did not answer for {TIMEOUT_SECONDS:.0f} s "
            f"({str(error).splitlines()[0][:120]}); what was saved is whole, go on with --resume"
        ) from None
