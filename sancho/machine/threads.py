"""Threads of a CPU: a pool of them, and the gradient of a batch whose windows they share."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

QUOTA = Path(
    "/sys/fs/cgroup/cpu.max"
)  # a container's share: microseconds, and the period that they are part of
ParallelMap = Callable[..., list[Any]]  # like `map`, but returns a list


def cores() -> int:
    """Return the number of cores that PyTorch would use, or fewer if a container limits them."""
    number = torch.get_num_threads()
    with suppress(OSError, ValueError):  # no such file; "max"
        quota, period = map(int, QUOTA.read_text().split())
        number = min(number, math.ceil(quota / period))
    return number


def serial_map(*work: Any) -> list[Any]:
    """Return what `map` yields, as a list."""
    return list(map(*work))


@contextmanager
def thread_pool(threads: int) -> Iterator[ParallelMap]:
    """Yield a map whose calls run in this many threads, each of which computes on one core.

    PyTorch by itself divides every operation among the cores, and after each one its threads
    busy-wait for one another, which takes 30 times as long if another program uses a core (pytorch
    issue 57715).
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if threads == 1:
            yield serial_map
        else:
            with ThreadPoolExecutor(threads) as pool:
                yield lambda *work: list(pool.map(*work))
    finally:
        torch.set_num_threads(before)


def backward(
    losses: Callable[..., tuple[Tensor, Tensor]],
    batch: Sequence[Tensor],
    parameters: Sequence[nn.Parameter],
    threads: int,
    parallel_map: ParallelMap,
) -> Tensor:
    """Add the gradient of a loss of a batch to that of the parameters; return a loss, ().

    losses: of some rows of the batch, the loss to return and the loss whose gradient is taken, both
    (). Each thread takes some rows, (B / threads, …); what they find is added in the order of the
    rows, so that threads that end in another order change no bit.
    """

    def of_some(*rows: Tensor) -> tuple[Tensor, tuple]:
        reported, minimised = losses(*rows)
        return reported.detach(), torch.autograd.grad(minimised, parameters, allow_unused=True)

    parts = (tensor.tensor_split(threads) for tensor in batch)
    reported, by_thread = zip(*parallel_map(of_some, *parts), strict=True)
    for p, *grads in zip(parameters, *by_thread, strict=True):
        if grads[0] is not None:
            total = reduce(torch.add, grads)
            if not total.is_sparse:  # AdamW's kernel reads numbers as they lie in memory
                total = total.contiguous()
            p.grad = total if p.grad is None else p.grad + total
    return reduce(torch.add, reported)
