"""Runs that are killed: what was saved stays, and the run goes on to the same bits."""

import multiprocessing
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from conftest import (
    ARGS,
    assert_same_run,
    be_train,
    folder_at,
    instead,
    metrics_of,
    start_process,
    succeed,
    train_quietly,
    what_was_saved,
)
from runs import slow
from test_distributed import at_step, send

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


def be_killed(project: Path, step: int, *args: str) -> None:
    """Train until a step (from 0) begins."""
    at_step(step, {0: partial(send, signal.SIGKILL)}, 0)
    be_train(project, "killed", *args)


@posix
@pytest.mark.parametrize(
    ("preset", "step", "saved", "said"),
    [
        # Two steps after the last save, whose lines are there already.
        ("mini", 6, [4, 4], "going on with the run in out after step 4\n"),
        ("base", 0, [0], "a new run in out\n"),
    ],
)
def test_a_run_that_is_killed_goes_on_to_the_same_bits(
    project, server_of_processes, preset, step, saved, said
):
    """The fast suite kills two runs: one that has not saved its last steps, and one of a preset
    without prediction heads before its first step."""
    line = instead(ARGS, f"--preset={preset}", "--max_iters=9", "--eval_interval=4")
    process = start_process(be_killed, project, step, *line)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert [each.progress.step for each in what_was_saved(project / "out")] == saved
    lines = metrics_of(project / "out")
    assert [line["step"] for line in lines] == list(range(1, step + 1))
    assert succeed("train.py", "--resume", "--device=cpu").err.startswith(said)
    succeed("train.py", *line, "--out_dir=whole")
    assert_same_run(project / "out", project / "whole")
