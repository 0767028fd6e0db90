"""Runs that are killed and writes that fail: what was saved stays, and the run goes on."""

import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import assert_same_run, metrics_of, start_process, train_quietly, what_was_saved
from faults import Disk, fail
from runs import ALL_PRESETS, slow

import train
from sancho.run.folder import RunFolder

pytestmark = pytest.mark.usefixtures("project", "server_of_processes")
posix = pytest.mark.skipif(sys.platform == "win32", reason="here: no SIGKILL of POSIX")


def is_done(out: Path, steps: int) -> bool:
    """Return whether a run was saved after its last step, having loaded all that was saved."""
    saved = what_was_saved(out)
    return bool(saved) and saved[-1].progress.step == steps


def assert_whole_run(project: Path, steps: int, *more: str) -> None:
    """Compare what is in `out` with a run that nothing has interrupted."""
    train_quietly(project, project / "expected", steps, *more)
    assert [line["step"] for line in metrics_of(project / "out")] == list(range(1, steps + 1))
    assert_same_run(project / "out", project / "expected")


# --- killed at any moment -------------------------------------------------------------------


def wait_for_a_save(process: multiprocessing.Process, out: Path) -> bool:
    """Return whether the process saved something before it ended."""
    last, begin = RunFolder(out).last, time.monotonic()
    before = last.stat().st_mtime_ns if last.exists() else None
    while process.is_alive() and time.monotonic() < begin + 60:
        if last.exists() and last.stat().st_mtime_ns != before:
            return True
        time.sleep(0.001)
    return False


MANY = [pytest.param(*case, marks=slow) for case in (("mini", 200), ("classic", 60), ("base", 60))]


@slow
@posix
@pytest.mark.parametrize(("preset", "kills"), [("mini", 5), *MANY])
def test_kills_lose_nothing(project, preset, kills):
    chance, under_way, steps = random.Random(kills), 0, 4 * kills
    out, more = project / "out", ("--preset", preset)
    for number in range(kills):
        process = start_process(train_quietly, project, out, steps, *more)
        # Most runs are killed while they train and save, every fifth while it starts.
        under_way += number % 5 != 0 and wait_for_a_save(process, out)
        process.join(chance.uniform(0, 0.05 if number % 5 else 0.5))
        process.kill()
        process.join()
        if is_done(out, steps) and number < kills - 1:
            for path in out.iterdir():
                path.unlink()
    if not is_done(out, steps):
        train_quietly(project, out, steps, *more)
    assert_whole_run(project, steps, *more)
    assert under_way > kills * 2 // 5


# --- at every moment that the disk knows of -------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train_until(number: int, act: Callable[[], None], project: Path, out: Path, *args) -> None:
    """Train, and act whenever the disk is asked for something from the `number`-th time on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "show_result", lambda *args: None)  # which only reads
        disk = Disk(patch, out)
        disk.refuse = lambda *_: len(disk.asked) >= number and act()
        train_quietly(project, out, *args)


@pytest.mark.parametrize("preset", ALL_PRESETS)
@pytest.mark.parametrize("act", [pytest.param(die, marks=[posix, slow]), fail])
def test_a_run_that_ends_wherever_it_writes_syncs_or_renames_loses_nothing(project, act, preset):
    """What is killed in between leaves the disk as it is before the next of these moments.

    To go on, to make a step and to save it takes less than 30 of them. --resume gets past all of
    them, those of the first saves too.
    """
    out, steps, more = project / "out", 12, ("--preset", preset)
    for number in range(1, 30):
        if act is fail:  # as where the disk is full
            with pytest.raises(OSError, match="space"):
                train_until(number, act, project, out, steps, *more)
            assert not list(out.glob("*.sancho-tmp"))
        else:
            process = start_process(train_until, number, act, project, out, steps, *more)
            process.join(60)
            assert process.exitcode == -signal.SIGKILL, number
        what_was_saved(out)
    assert 1 < RunFolder(out).load_last().progress.step < steps
    train_quietly(project, out, steps, *more)
    assert_whole_run(project, steps, *more)
