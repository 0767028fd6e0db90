"""Runs that are killed and writes that fail: what was saved stays, and the run goes on."""

import builtins
import errno
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import assert_same_run, metrics_of, start_process, train_quietly, what_was_saved

import train
from sancho import checkpoint, training
from sancho.optim import AdamW
from sancho.run.folder import RunFolder

pytestmark = pytest.mark.usefixtures("project", "one_thread", "server_of_processes")
posix = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL and forkserver of POSIX")
slow = pytest.mark.slow


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


@posix
@pytest.mark.parametrize(
    ("preset", "kills"),
    [
        ("mini", 5),
        *(
            pytest.param(*case, marks=slow)
            for case in [("mini", 200), ("classic", 60), ("base", 60)]
        ),
    ],
)
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


# --- killed at one moment -------------------------------------------------------------------


class Death:
    """Kills this process at a moment of a step (from 1)."""

    def __init__(self, moment: str, step: int) -> None:
        self.moment, self.step, self.now = moment, step, 0

    def __call__(self, moment: str) -> None:
        if (moment, self.now) == (self.moment, self.step):
            os.kill(os.getpid(), signal.SIGKILL)

    def lie_in_wait(self) -> None:
        """Look at every moment that there is."""
        get = training.Batches.get

        def watched_get(batches, step, micro_step):
            self.now = step + 1
            if micro_step == 1:
                self("between two parts of a step")
            return get(batches, step, micro_step)

        def of_last(path: Path, *others: object) -> bool:
            return "last" in path.name

        training.Batches.get = watched_get
        self.watch(AdamW, "step", after="between two optimizers")
        self.watch(training, "validation_loss", "before the evaluation", "after the evaluation")
        self.watch(RunFolder, "record", "in a line of figures")
        self.watch(checkpoint, "save", "between best and last", "after the checkpoint", of_last)
        self.watch(Path, "replace", "in the checkpoint", when=of_last)

    def watch(
        self,
        owner: object,
        name: str,
        before: str = "",
        after: str = "",
        when: Callable[..., bool] = lambda *args: True,
    ) -> None:
        """Let two moments stand before and after each call of a function."""
        function = getattr(owner, name)

        def watched(*args, **options):
            if not when(*args):
                return function(*args, **options)
            self(before)
            result = function(*args, **options)
            self(after)
            return result

        setattr(owner, name, watched)


def train_until_killed(moment: str, step: int, *args) -> None:
    Death(moment, step).lie_in_wait()
    train_quietly(*args)


def tear_last_line(out: Path) -> None:
    """As a kill in the middle of writing it does."""
    with open(RunFolder(out).metrics, "a", encoding="utf-8") as file:
        file.write('{"step": ')


@posix
@pytest.mark.parametrize(
    "preset", ["mini", pytest.param("classic", marks=slow), pytest.param("base", marks=slow)]
)
def test_a_run_that_is_killed_at_every_moment_ends_the_same(project, preset):
    """The steps are such that some kills come before anything was saved and some after the end."""
    out, steps = project / "out", 9
    more = ("--preset", preset, "--eval_interval", "2")
    for moment, step in (
        ("between two parts of a step", 1),
        ("before the evaluation", 2),
        ("between best and last", 2),
        ("between two optimizers", 3),
        ("in a line of figures", 3),
        ("in the checkpoint", 4),
        ("in the checkpoint", 4),
        ("after the evaluation", 6),
        ("after the checkpoint", 9),
    ):
        process = start_process(train_until_killed, moment, step, project, out, steps, *more)
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, (moment, step)
        what_was_saved(out)
        if moment == "in a line of figures":
            tear_last_line(out)
    assert is_done(out, steps)
    assert_whole_run(project, steps, *more)


# --- writes that fail -----------------------------------------------------------------------


class Faults:
    """Lets everything that reaches the disk pass `count` times, and then fails once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.left, self.happened = count, False
        fsync, replace, open_file = os.fsync, Path.replace, builtins.open

        def open_with_faults(path, mode="r", *args, **options):
            file = open_file(path, mode, *args, **options)
            return _FaultyFile(file, self) if mode in ("wb", "a") else file

        def after(function: Callable) -> Callable:
            return lambda *args: (self.pass_or_fail(), function(*args))[1]

        monkeypatch.setattr(os, "fsync", after(fsync))
        monkeypatch.setattr(Path, "replace", after(replace))
        for module in ("sancho.machine.files", "sancho.run.folder"):
            monkeypatch.setattr(f"{module}.open", open_with_faults, raising=False)

    def pass_or_fail(self) -> None:
        self.left -= 1
        if self.left < 0 and not self.happened:
            self.happened = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class _FaultyFile:
    """A file of which a write that fails has come half way."""

    def __init__(self, file, faults: Faults) -> None:
        self.file, self.faults = file, faults

    def write(self, content) -> int:
        try:
            self.faults.pass_or_fail()
        except OSError:
            self.file.write(content[: len(content) // 2])
            raise
        return self.file.write(content)

    def writelines(self, lines) -> None:
        for line in lines:
            self.write(line)

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        self.file.close()

    def __getattr__(self, name: str):
        return getattr(self.file, name)


@pytest.mark.parametrize("steps", [2, pytest.param(3, marks=slow)])
def test_a_fault_at_every_write_sync_and_rename_loses_nothing(project, monkeypatch, steps):
    monkeypatch.setattr(train, "show_result", lambda *args: None)  # which only reads
    expected, faults, count = project / "expected", SimpleNamespace(happened=True), 0
    train_quietly(project, expected, steps)
    while faults.happened:
        out = project / f"out{count}"
        with monkeypatch.context() as patch:
            faults = Faults(patch, count)
            try:
                train_quietly(project, out, steps)
            except (OSError, ValueError) as error:
                assert faults.happened
                assert "space" in str(error)
        if not is_done(out, steps):
            train_quietly(project, out, steps)
        assert_same_run(out, expected)
        count += 1
    assert count > 20
