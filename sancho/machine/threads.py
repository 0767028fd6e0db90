"""Threads: what the numerical libraries do with theirs, and a pool for parts of a batch."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeAlias

ParallelMap: TypeAlias = Callable[..., list[Any]]  # like `map`, but for the list


def configure_threads() -> None:
    """Keep the libraries' threads from busy-waiting on cores that other programs need.

    Call it before NumPy and PyTorch are imported; what the user has set stays. OpenBLAS gets one
    thread: the matrices of an incremental decoder are too small for a second. OpenMP's threads
    sleep while they wait: at once (LLVM, Intel), or after 20,000 looks (libgomp).
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    os.environ.setdefault("KMP_BLOCKTIME", "0")


def serial_map(*work: Any) -> list[Any]:
    """Return the list of what `map` yields."""
    return list(map(*work))


@contextmanager
def thread_pool(threads: int) -> Iterator[ParallelMap]:
    """Yield a map whose calls run in so many threads, each of which computes on one core.

    PyTorch by itself divides every operation among the cores, and after each its threads busy-wait
    for one another: with another program on a core, 30 times the time (pytorch issue 57715).
    """
    import torch  # not above: `configure_threads` comes before it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if threads == 1:
            yield serial_map
            return
        with ThreadPoolExecutor(threads) as pool:
            yield lambda *work: list(pool.map(*work))
    finally:
        torch.set_num_threads(before)
