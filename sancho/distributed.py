"""Several processes that share one run, as torchrun starts them; nothing of it for one alone.

Every process holds the whole model and its optimizers. The micro-batches of a step are shared out,
and their gradients are added in the order of the micro-steps, whoever computed them: one, two or
four processes take the same steps, to the last bit on CPUs with as many threads each.
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
PATIENCE_SECONDS = 600.0
"""How long a process waits for another one that does not answer: long enough to prepare a text."""
LOST = "closed by peer|reset by peer|timed? ?out|broken pipe|refused|unreachable|abort"
"""What gloo and NCCL say where another process is gone."""
ATTEMPT = "TORCHELASTIC_RESTART_COUNT"


@dataclass(frozen=True)
class World:
    """The processes of a run: which of them this one is, and what they do together."""

    rank: int = 0
    size: int = 1

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
                f"processes share them out, so it must be a multiple of {self.size}. With a "
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
        failed = [bool(flag) for flag in self.all(torch.tensor(error is not None))]
        if error and failed.index(True) == self.rank:
            raise error
        if any(failed):
            raise SaidByAnother

    def from_first(self, make: Callable[[], Made]) -> Made:
        """Return what `make` returns in the first process; the others wait for it.

        If it raises anything there, they leave quietly.
        """
        made, is_made = None, False
        try:
            if self.is_first:
                made, is_made = make(), True
        finally:
            if self.size > 1:
                box = [made, is_made]
                with _others():
                    torch.distributed.broadcast_object_list(box, device=torch.device("cpu"))
                made, is_made = box
        if not is_made:
            raise SaidByAnother
        return made

    def all(self, tensor: Tensor) -> list[Tensor]:
        """Return every process's `tensor`, all of one shape, in their order."""
        if self.size == 1:
            return [tensor]
        with _others():
            found = [torch.empty_like(tensor) for _ in range(self.size)]
            torch.distributed.all_gather(found, tensor)
        return found

    def highest(self, number: int) -> int:
        """Return the highest of the numbers that the processes give."""
        return max(int(other) for other in self.all(torch.tensor(number)))

    @contextmanager
    def summed_gradients(self, parameters: Iterable[nn.Parameter]) -> Iterator[None]:
        """The block computes gradients of one micro-batch; afterwards there is the sum of all.

        All: those of before the block and those of every process, added one after the other, as
        when one process computes them in that order.
        """
        if self.size == 1:
            yield  # PyTorch adds a gradient to the one that is there
            return
        parameters = list(parameters)
        before = [p.grad for p in parameters]
        for p in parameters:
            p.grad = None
        yield
        moved = [(p, old) for p, old in zip(parameters, before, strict=True) if p.grad is not None]
        self._sum_dense([(p, old) for p, old in moved if not p.grad.is_sparse])
        for p, old in moved:
            if p.grad.is_sparse:
                self._sum_rows(p, old)

    def _sum_dense(self, moved: list[tuple[nn.Parameter, Tensor | None]]) -> None:
        """Set the gradients to their sum: each process adds up one slice of all that there is.

        So twice the gradients' size goes over the wire, as in a ring all-reduce (Patarasuk & Yuan
        2009), and not the size times the number of processes.
        """
        mine = self._flat([p.grad for p, _ in moved])  # (size, n)
        slices = torch.empty_like(mine)
        with _others():
            torch.distributed.all_to_all_single(slices, mine)
        terms = list(slices)
        if moved[0][1] is not None:
            terms.insert(0, self._flat([old for _, old in moved])[self.rank])
        total = terms[0]
        for term in terms[1:]:
            total += term
        with _others():
            torch.distributed.all_gather(list(mine), total)  # into its rows
        start, whole = 0, mine.flatten()
        for p, _ in moved:
            p.grad = whole[start : start + p.numel()].view_as(p)
            start += p.numel()

    def _flat(self, tensors: list[Tensor]) -> Tensor:
        """Return tensors as one, (size, n), filled up with zeros."""
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        return nn.functional.pad(flat, (0, -len(flat) % self.size)).view(self.size, -1)

    def _sum_rows(self, p: nn.Parameter, old: Tensor | None) -> None:
        """Set the sparse gradient of a table to the sum: its rows and values go round as they are.

        NCCL sums no sparse tensors, and a dense one would have every row of the table.
        """
        mine = p.grad
        p.grad = old
        for rows, values in zip(self.all(mine._indices()), self.all(mine._values()), strict=True):
            grad = torch.sparse_coo_tensor(rows, values, mine.shape, check_invariants=False)
            p.grad = grad if p.grad is None else p.grad + grad


ALONE = World()


@contextmanager
def joined(device: torch.device) -> Iterator[World]:
    """Yield the world that torchrun made, or ALONE; process i of a machine takes its GPU i.

    Raises UserError where the machine has fewer GPUs than processes, or the device can't share.
    """
    size = int(os.environ.get("WORLD_SIZE", 1))
    if size == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    if device.type == "mps":
        raise UserError("--device mps works in one process; start train.py without torchrun")
    if device.type == "cuda":
        place, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if place >= gpus:
            raise UserError(f"this machine has {gpus} GPUs; give --nproc_per_node {gpus} or less")
        torch.cuda.set_device(place)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    patience, attempt = timedelta(seconds=PATIENCE_SECONDS), os.environ.get(ATTEMPT, "0")
    with _others():
        store, rank, size = next(torch.distributed.rendezvous("env://", timeout=patience))
        # torchrun may keep what the processes of the attempt before, now dead, have left in it.
        store = torch.distributed.PrefixStore(f"attempt {attempt}", store)
        torch.distributed.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=patience
        )
    yield World(rank, size)
    torch.distributed.destroy_process_group()


@contextmanager
def _others() -> Iterator[None]:
    """Inside the block the others are needed; raises UserError where one is gone."""
    try:
        yield
    except RuntimeError as error:
        if not re.search(LOST, str(error), re.IGNORECASE):
            raise
        raise UserError(
            f"another process of the run has ended, or did not answer for {PATIENCE_SECONDS:.0f} s "
            f"({str(error).splitlines()[0][:120]}); what was saved is whole, go on with --resume"
        ) from None


def launch() -> str | None:
    """Return what is the same for all that one torchrun starts, restarts included; else None."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return f"{os.environ['TORCHELASTIC_RUN_ID']} {socket.gethostname()} {os.getppid()}"
