"""Threads that compute side by side and seldom wait for each other."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch

ParallelMap: TypeAlias = Callable[..., list[Any]]
"""Like `map`, but for the list."""


@contextmanager
def side_by_side(threads: int) -> Iterator[ParallelMap]:
    """Yield a map whose calls run in so many threads, with one core for each.

    PyTorch by itself divides every operation among the cores, hundreds in a step, and after each
    its threads wait for one another in a loop that takes all of a core. Where another program needs
    one of the cores, that costs 30 times the time (pytorch/pytorch issue 57715). Calls that take a
    part of the batch meet once.
    """
    if threads == 1:
        yield lambda *work: list(map(*work))
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield lambda *work: list(pool.map(*work))
    finally:
        torch.set_num_threads(before)
