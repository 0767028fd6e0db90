"""Runs that are killed: what was saved stays, and the run goes on to the same bits."""

import multiprocessing
import random
import sys
import time
from pathlib import Path

import pytest
from conftest import assert_same_run, folder_at, start_process, train_quietly, what_was_saved
from runs import slow

posix = pytest.mark.skipif(sys.platform == "win32", reason="here: no SIGKILL of POSIX")


def wait_for_a_save(process: multiprocessing.Process, out: Path) -> bool:
    """Return whether the process saved something before it ended."""
    last = folder_at(out).last
    before = last.stat().st_mtime_ns if last.exists() else None
    end = time.monotonic() + 60
    while process.is_alive() and time.monotonic() < end:
        if last.exists() and last.stat().st_mtime_ns != before:
            return True
        time.sleep(0.001)
    return False


@slow
@posix
@pytest.mark.usefixtures("server_of_processes")
@pytest.mark.parametrize(("preset", "kills"), [("mini", 60), ("base", 60)])
def test_kills_lose_nothing(project, preset, kills):
    chance = random.Random(kills)
    out = project / "out"
    steps = 4 * kills
    under_way = 0
    for number in range(kills):
        process = start_process(train_quietly, project, out, steps, "--preset", preset)
        # Most runs are killed while they train and save, every fifth while it starts.
        under_way += number % 5 != 0 and wait_for_a_save(process, out)
        process.join(chance.uniform(0, 0.05 if number % 5 else 0.5))
        process.kill()
        process.join()
        saved = what_was_saved(out)  # all of it can be read
        if saved and saved[-1].progress.step == steps and number < kills - 1:
            for path in out.iterdir():
                path.unlink()
    train_quietly(project, out, steps, "--preset", preset)
    train_quietly(project, project / "expected", steps, "--preset", preset)
    assert_same_run(out, project / "expected")
    assert under_way > kills * 2 // 5


@posix
@pytest.mark.usefixtures("server_of_processes")
def test_a_run_that_is_killed_goes_on_to_the_same_bits(project):
    """One kill, in the fast suite; above there are many."""
    out = project / "out"
    steps = 20
    process = start_process(train_quietly, project, out, steps)
    assert wait_for_a_save(process, out)
    process.kill()
    process.join()
    assert 0 < what_was_saved(out)[-1].progress.step < steps
    for folder in (out, project / "expected"):
        train_quietly(project, folder, steps)
    assert_same_run(out, project / "expected")
