"""Data-parallel training on several processes, which torchrun starts.

Each process holds the whole model and its optimizers. They share the micro-batches of a step, and
each takes the step with the sum of all gradients. Any number of processes and threads trains the
same model, to rounding; the same number of both, to the same bits.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from sancho.errors import LOG, UserError

GRACE_SECONDS = 10.0  # for the first process to report an error and torchrun to end the others
OF_TORCHRUN = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT")  # numbers that it sets
# What gloo and NCCL say if another process is gone.
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
        """Let process i of a machine compute on its GPU i. Raises UserError if there is none."""
        if self.size == 1 or device.type == "cpu":
            return
        place = int(os.environ["LOCAL_RANK"])
        gpus = torch.cuda.device_count()  # 0 where the device is mps
        if place >= gpus:
            advice = f"give --nproc_per_node {gpus} or less, or --device cpu"
            raise UserError(f"there are {gpus} CUDA GPUs; {advice}")
        torch.cuda.set_device(place)

    def require_same_text(self, sha256: str) -> None:
        """Raise UserError in every process unless all have the text with this digest."""
        number = int(sha256[:15], 16)
        if self.max(number) != -self.max(-number):
            advice = "let --corpus be the same text on each machine"
            raise UserError(f"the processes of the run read different texts; {advice}")

    def max(self, number: int) -> int:
        """Return the highest number that any process gives."""
        tensor = torch.tensor(number)
        if self.size > 1:
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor)

    def sum(self, tensor: Tensor) -> Tensor:
        """Replace `tensor` by its sum over all processes, and return it."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its sum over all processes."""
        if self.size == 1:
            return
        grads = {p: p.grad for p in parameters if p.grad is not None}
        dense = [grad for grad in grads.values() if not grad.is_sparse]
        vector_to_parameters(self.sum(parameters_to_vector(dense)), dense)
        for p, grad in grads.items():
            if grad.is_sparse:  # NCCL sums no sparse ones, and a dense one would have every row
                # Zeros for row 0 give each process the same number of rows.
                missing = self.max(grad._nnz()) - grad._nnz()
                rows = self._gather(nn.functional.pad(grad._indices()[0], (0, missing)))
                values = self._gather(nn.functional.pad(grad._values(), (0, 0, 0, missing)))
                p.grad = torch.sparse_coo_tensor(
                    rows[None], values, p.shape, check_invariants=False
                )

    def _gather(self, tensor: Tensor) -> Tensor:
        found = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(found, tensor)
        return torch.cat(found)


ALONE = World()
"""This process alone."""


@contextmanager
def process_group() -> Iterator[World]:
    """Yield the processes that torchrun has started, or World() for this one alone.

    An error that all processes meet is reported by the first one, while the others wait for
    torchrun to end them. Raises UserError if another process is gone.
    """
    if os.environ.get("WORLD_SIZE", "") in ("", "1") or not os.environ.get("RANK"):
        yield ALONE
        return
    advice = (
        "start several processes with torchrun; to start one alone, first unset WORLD_SIZE RANK"
    )
    wrong = [name for name in OF_TORCHRUN if not os.environ.get(name, "").isdigit()]
    if not wrong and int(os.environ["RANK"]) >= int(os.environ["WORLD_SIZE"]):
        wrong = ["RANK"]
    if wrong:
        names = ", ".join(wrong)
        raise UserError(
            f"WORLD_SIZE and RANK are set, but these are missing or wrong: {names}; {advice}"
        )
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        store, rank, size = next(dist.rendezvous("env://"))
        # torchrun's store may still have entries of processes of an earlier attempt.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"attempt {attempt}", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    except (ValueError, RuntimeError) as error:
        what = str(error).splitlines()[0][:120]
        raise UserError(f"the processes can't find each other ({what}); {advice}") from None
    if rank:
        LOG.disabled = True  # the first process says it
    try:
        yield World(rank, size)
    except Exception as error:
        if rank:
            time.sleep(GRACE_SECONDS)
        if isinstance(error, RuntimeError) and re.search(LOST, str(error), re.IGNORECASE):
            what = str(error).splitlines()[0][:120]
            advice = "what was saved is intact: go on with --resume"
            raise UserError(f"another process of the run has ended ({what}); {advice}") from None
        raise
    finally:
        # Threads of the group that still run when the interpreter ends would crash it.
        dist.destroy_process_group()
