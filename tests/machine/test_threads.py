import threading
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

from sancho.machine.threads import cores, thread_pool


def test_a_pool_has_as_many_threads_as_were_asked_for():
    barrier = threading.Barrier(3, timeout=20)
    with thread_pool(3) as parallel_map:
        names = parallel_map(lambda _: barrier.wait() >= 0 and threading.get_ident(), range(3))
    assert len(set(names)) == 3


@pytest.fixture
def three_threads() -> Iterator[None]:
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("threads", [1, 2])
def test_each_thread_of_a_pool_computes_on_one_core(three_threads, threads):
    for error in (None, ValueError):
        with pytest.raises(error) if error else nullcontext(), thread_pool(threads) as parallel_map:
            assert parallel_map(lambda _: torch.get_num_threads(), range(9)) == [1] * 9
            if error:
                raise error
        assert torch.get_num_threads() == 3


def test_a_container_that_may_use_half_the_cores_gets_as_many_threads(tmp_path, monkeypatch):
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr("sancho.machine.threads.QUOTA", quota)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    for said, expected in ((None, 8), ("max 100000", 8), ("150000 100000", 2), ("1000 100000", 1)):
        if said:
            quota.write_text(f"{said}\n")
        assert cores() == expected
