"""A pool of threads for parts of a batch."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

QUOTA = Path("/sys/fs/cgroup/cpu.max")  # what a container gets: microseconds, in how many
ParallelMap = Callable[..., list[Any]]  # like `map`, but for the list


def cores() -> int:
    """Return the number of cores that PyTorch would use, or of those a container may."""
    number = torch.get_num_threads()
    with suppress(OSError, ValueError):  # no such file; "max"
        quota, period = map(int, QUOTA.read_text().split())
        number = min(number, math.ceil(quota / period))
    return number


def serial_map(*work: Any) -> list[Any]:
    """Return the list of what `map` yields."""
    return list(map(*work))


@contextmanager
def thread_pool(threads: int) -> Iterator[ParallelMap]:
    """Yield a map whose calls run in so many threads, each of which computes on one core.

    PyTorch by itself divides every operation among the cores, and after each its threads busy-wait
    for one another: with another program on a core, 30 times the time (pytorch issue 57715).
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
