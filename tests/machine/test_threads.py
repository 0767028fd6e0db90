import threading

from sancho.machine.threads import thread_pool


def test_a_pool_has_as_many_threads_as_were_asked_for():
    barrier = threading.Barrier(3, timeout=20)
    with thread_pool(3) as parallel_map:
        names = parallel_map(lambda _: barrier.wait() >= 0 and threading.get_ident(), range(3))
    assert len(set(names)) == 3
