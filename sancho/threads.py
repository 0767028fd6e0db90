"""A pool of threads for parts of a batch."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

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
