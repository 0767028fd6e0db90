"""Data-parallel training on several processes, bit for bit that of one.

torchrun starts the processes; each holds the whole model and its optimizers. The micro-batches of
a step are shared among them, and their gradients are added in the order of the micro-steps, whoever
computed them: one, two or four processes take the same steps, to the last bit on CPUs with as many
threads each.
"""

import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed
from torch import Tensor, nn

from sancho.errors import SaidByAnother, UserError

Made = TypeVar("Made")
TIMEOUT_SECONDS = 600.0
"""How long a process waits for another one that does not answer: long enough to prepare a text."""
LOST = "closed by peer|reset by peer|timed? ?out|broken pipe|refused|unreachable|abort"
"""What gloo and NCCL say where another process is gone."""


@dataclass(frozen=True)
class World:
    """The processes of a run: which of them this one is, and what they do together."""

    rank: int = 0
    """Which process this is, from 0."""
    size: int = 1
    """How many there are."""

    def __str__(self) -> str:
        return f", {self.size} processes" if self.size > 1 else ""

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def check(self, gradient_accumulation_steps: int) -> None:
        """Raise UserError unless every process gets as many micro-steps as the others."""
        if gradient_accumulation_steps % self.size:
            raise UserError(
                f"--gradient_accumulation_steps is {gradient_accumulation_steps}; the {self.size} "
                f"processes share them, so it must be a multiple of {self.size}. With a "
                "--batch_size that much smaller a step still reads as many characters"
            )

    @contextmanager
    def together(self) -> Iterator[None]:
        """Where the block raises UserError in one process or more, all of them end.

        The first of those raises it, and the others leave quietly: one line, not one for each.
        """
        error = None
        try:
            yield
        except UserError as raised:
            error = raised
        failed = [bool(flag) for flag in self.all_gather(torch.tensor(error is not None))]
        if error and failed.index(True) == self.rank:
            raise error
        if any(failed):
            raise SaidByAnother

    def broadcast_from_first(self, make: Callable[[], Made]) -> Made:
        """Return what `make` returns in the first process; the other processes wait for it.

        If it raises anything there, they leave quietly.
        """
        made: list[tuple[Made] | None] = [None]
        try:
            if self.is_first:
                made = [(make(),)]
        finally:
            if self.size > 1:
                with _others():
                    torch.distributed.broadcast_object_list(made, device=torch.device("cpu"))
        if made[0] is None:
            raise SaidByAnother
        return made[0][0]

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return every process's `tensor`, all of one shape, in their order."""
        if self.size == 1:
            return [tensor]
        with _others():
            found = [torch.empty_like(tensor) for _ in range(self.size)]
            torch.distributed.all_gather(found, tensor)
        return found

    def all_reduce_max(self, number: int) -> int:
        """Return the highest of the numbers that the processes give."""
        return max(int(other) for other in self.all_gather(torch.tensor(number)))

    @contextmanager
    def summed_gradients(self, parameters: Iterable[nn.Parameter]) -> Iterator[None]:
        """The block computes gradients of one micro-batch; afterwards there is the sum of all.

        All: those of before the block and those of every process, added one after the other, as
        when one process computes them in that order.
        """
        if self.size == 1:
            yield  # who computes a gradient adds it to the one that is there
            return
        sums = {p: p.grad for p in parameters}
        for p in sums:
            p.grad = None
        yield
        grads = {p: p.grad for p in sums if p.grad is not None}
        dense = {p: grad for p, grad in grads.items() if not grad.is_sparse}
        self._add_dense(dense, [total for p in dense if (total := sums[p]) is not None])
        for p, grad in grads.items():
            if grad.is_sparse:
                self._add_sparse(p, grad, sums[p])

    def _add_dense(self, grads: dict[nn.Parameter, Tensor], sums: list[Tensor]) -> None:
        """Set the gradients to their sum: each process adds up one slice of all that there is.

        So twice the gradients' size goes over the wire, as in a ring all-reduce (Patarasuk & Yuan
        2009), and not the size times the number of processes.
        """
        mine = self._flat(grads.values())  # (size, n)
        slices = torch.empty_like(mine)
        with _others():
            torch.distributed.all_to_all_single(slices, mine)
        total, *terms = [self._flat(sums)[self.rank], *slices] if sums else slices
        for term in terms:
            total += term
        with _others():
            torch.distributed.all_gather(list(mine), total)  # into its rows
        sizes = [p.numel() for p in grads]
        for p, part in zip(grads, mine.flatten()[: sum(sizes)].split(sizes), strict=True):
            p.grad = part.view_as(p)

    def _flat(self, tensors: Iterable[Tensor]) -> Tensor:
        """Return tensors as one, (size, n), filled up with zeros."""
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        return nn.functional.pad(flat, (0, -len(flat) % self.size)).view(self.size, -1)

    def _add_sparse(self, p: nn.Parameter, grad: Tensor, total: Tensor | None) -> None:
        """Set the sparse gradient of a table to the sum: all get its rows and values as they are.

        NCCL sums no sparse tensors, and a dense one would have every row of the table.
        """
        rows, values = self.all_gather(grad._indices()), self.all_gather(grad._values())
        for row, value in zip(rows, values, strict=True):
            term = torch.sparse_coo_tensor(row, value, grad.shape, check_invariants=False)
            total = term if total is None else total + term
        p.grad = total


ALONE = World()


@contextmanager
def joined(device: torch.device) -> Iterator[World]:
    """Yield the world that torchrun made, or ALONE; process i of a machine takes its GPU i.

    Raises UserError where the machine has fewer GPUs than processes, or the device can't share.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    if device.type == "mps":
        raise UserError("--device mps works in one process; start train.py without torchrun")
    if device.type == "cuda":
        place, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if place >= gpus:
            raise UserError(f"this machine has {gpus} GPUs; give --nproc_per_node {gpus} or less")
        torch.cuda.set_device(place)
    with _others():
        world = _meet("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield world
    except BaseException:
        if group := torch.distributed.group.WORLD:
            group.abort()  # what still waits for another process is given up
        raise
    finally:
        # Threads of the group that are left to the interpreter's end would crash it.
        torch.distributed.destroy_process_group()


def _meet(backend: str) -> World:
    """Wait for the other processes and make a group with them."""
    timeout = timedelta(seconds=TIMEOUT_SECONDS)
    store, rank, size = next(torch.distributed.rendezvous("env://", timeout=timeout))
    # torchrun may keep what the processes of the attempt before, now dead, have left in it.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = torch.distributed.PrefixStore(f"attempt {attempt}", store)
    torch.distributed.init_process_group(
        backend, store=store, rank=rank, world_size=size, timeout=timeout
    )
    return World(rank, size)


@contextmanager
def _others() -> Iterator[None]:
    """Inside the block the other processes are needed; raises UserError where one is gone."""
    try:
        yield
    except RuntimeError as error:
        if not re.search(LOST, str(error), re.IGNORECASE):
            raise
        raise UserError(
            f"another process of the run has ended, or did not answer for {TIMEOUT_SECONDS:.0f} s "
            f"({str(error).splitlines()[0][:120]}); what was saved is whole, go on with --resume"
        ) from None


def launch() -> str | None:
    """Return what is the same for all that one torchrun starts, restarts included; else None."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return f"{os.environ['TORCHELASTIC_RUN_ID']} {socket.gethostname()} {os.getppid()}"
