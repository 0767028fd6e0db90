"""Runs that are killed and disks that are full: what was saved stays, and the run goes on."""

import builtins
import errno
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import start_process

import train
from sancho import checkpoint, cli, training
from sancho.generate import continue_text
from sancho.optim import AdamW
from sancho.presets import PRESETS
from sancho.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("project", "one_thread", "server_of_processes")

# All that has a state: dropout, parts of a step, both optimizers and the table; saved every step.
ARGS = (
    "--dataset tiny --n_layer 1 --n_head 2 --n_embd 8 --block_size 8 --ngram_rows 16 --batch_size 2"
    " --dropout 0.1 --gradient_accumulation_steps 2 --eval_interval 1 --log_interval 1 --device cpu"
).split()
posix = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL and forkserver of POSIX")


def train_quietly(project: Path, out: Path, max_iters: int, *more: str) -> int:
    """Run train.py in this process; go on with what is in `out`, or begin anew.

    What was killed before its first checkpoint needs no --overwrite.
    """
    torch.set_num_threads(1)
    train.DATA = project / "data"
    args = [*ARGS, "--out_dir", str(out), "--max_iters", str(max_iters), *more]
    if any(out.glob("*.safetensors")):
        args.append("--resume" if RunFolder(out).last.exists() else "--overwrite")
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return train.main(args)


def what_was_saved(out: Path) -> list[checkpoint.Checkpoint]:
    """Load every checkpoint that is there."""
    folder = RunFolder(out)
    return [checkpoint.load(path) for path in (folder.best, folder.last) if path.exists()]


def metrics_of(out: Path) -> list[dict]:
    """Read metrics.jsonl without what depends on the clock."""
    lines = RunFolder(out).metrics.read_text("utf-8").splitlines()
    clock = {"seconds", "tokens_per_second"}
    return [{k: v for k, v in json.loads(line).items() if k not in clock} for line in lines]


def assert_same_run(out: Path, expected: Path) -> None:
    """Compare weights, optimizer, losses and metrics bit for bit."""
    for ours, theirs in zip(what_was_saved(out), what_was_saved(expected), strict=True):
        for part in ("weights", "optimizer"):
            ours_part, theirs_part = getattr(ours, part), getattr(theirs, part)
            assert ours_part.keys() == theirs_part.keys()
            assert all(np.array_equal(ours_part[name], theirs_part[name]) for name in ours_part)
        assert ours.progress.step == theirs.progress.step
        assert ours.progress.best_val_loss == theirs.progress.best_val_loss
    assert metrics_of(out) == metrics_of(expected)


def is_done(out: Path, steps: int) -> bool:
    """Return whether a run was saved after its last step, having loaded all that was saved."""
    saved = what_was_saved(out)
    return bool(saved) and saved[-1].progress.step == steps


def wait_for_a_save(process: multiprocessing.Process, out: Path) -> bool:
    """Return whether the process saved something before it ended."""
    last, begin = RunFolder(out).last, time.monotonic()
    before = last.stat().st_mtime_ns if last.exists() else None
    while process.is_alive() and time.monotonic() < begin + 60:
        if last.exists() and last.stat().st_mtime_ns != before:
            return True
        time.sleep(0.001)
    return False


def survive_kills(project: Path, kills: int, *more: str) -> int:
    """Kill runs at random moments; return how many kills found a run between two saves."""
    chance, under_way, steps = random.Random(kills), 0, 4 * kills
    out, expected = project / "out", project / "expected"
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
    train_quietly(project, expected, steps, *more)
    assert [line["step"] for line in metrics_of(out)] == list(range(1, steps + 1))
    assert_same_run(out, expected)
    return under_way


@posix
def test_twenty_kills_lose_nothing(project):
    assert survive_kills(project, 20) > 10


@posix
@pytest.mark.slow
@pytest.mark.parametrize(("preset", "kills"), [("mini", 200), ("classic", 60), ("base", 60)])
def test_many_kills_lose_nothing(project, preset, kills):
    assert survive_kills(project, kills, "--preset", preset) > kills * 3 // 5


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
        get, move, evaluate = training.Batches.get, AdamW.step, training.evaluate
        record, save, rename = RunFolder.record, checkpoint.save, Path.replace

        def watched_get(batches, step, micro_step):
            self.now = step + 1
            if micro_step == 1:
                self("between two parts of a step")
            return get(batches, step, micro_step)

        def watched_move(optimizer) -> None:
            move(optimizer)
            self("between two optimizers")

        def watched_evaluate(*args, **options):
            self("before the evaluation")
            loss = evaluate(*args, **options)
            self("after the evaluation")
            return loss

        def watched_record(folder, report) -> None:
            if (self.moment, self.now) == ("in a line of figures", self.step):
                with open(folder.metrics, "a", encoding="utf-8") as file:
                    file.write('{"step": ')
                self("in a line of figures")
            record(folder, report)

        def watched_save(path, saved) -> None:
            if path.name == "last.safetensors":
                self("between best and last")
            save(path, saved)
            if path.name == "last.safetensors":
                self("after the checkpoint")

        def watched_rename(temporary, target):
            if target.name == "last.safetensors":
                self("in the checkpoint")
            return rename(temporary, target)

        training.Batches.get, AdamW.step, training.evaluate = (
            watched_get,
            watched_move,
            watched_evaluate,
        )
        RunFolder.record, checkpoint.save, Path.replace = (
            watched_record,
            watched_save,
            watched_rename,
        )


def train_until_killed(moment: str, step: int, *args) -> None:
    Death(moment, step).lie_in_wait()
    train_quietly(*args)


@posix
@pytest.mark.parametrize(
    "preset", [pytest.param(name, marks=[pytest.mark.slow] * (name != "mini")) for name in PRESETS]
)
def test_a_run_that_is_killed_at_every_moment_ends_the_same(project, preset):
    """The steps are such that some kills come before anything was saved and some after the end."""
    out, expected, steps = project / "out", project / "expected", 9
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
        ("after the checkpoint", 6),
        ("in the checkpoint", 9),
        ("after the checkpoint", 9),
    ):
        process = start_process(train_until_killed, moment, step, project, out, steps, *more)
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, (moment, step)
        what_was_saved(out)
    assert is_done(out, steps)
    train_quietly(project, expected, steps, *more)
    assert [line["step"] for line in metrics_of(out)] == list(range(1, steps + 1))
    assert_same_run(out, expected)
    for name in ("best", "last"):
        ours, theirs = (text_of(path / f"{name}.safetensors") for path in (out, expected))
        assert ours == theirs


def text_of(path: Path) -> str:
    saved = checkpoint.load(path)
    prompt = saved.tokenizer.encode("En un lugar")
    return "".join(
        continue_text(saved.build_model(), saved.tokenizer, prompt, max_new_tokens=30, seed=7)
    )


class Faults:
    """Lets everything that reaches the disk pass `count` times, and then fails once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.left = count
        self.happened = False
        faults, real_fsync, real_replace, real_open = self, os.fsync, Path.replace, builtins.open

        def fsync(descriptor: int) -> None:
            faults.pass_or_fail()
            real_fsync(descriptor)

        def replace(path: Path, target: Path) -> Path:
            faults.pass_or_fail()
            return real_replace(path, target)

        def open_file(path, mode="r", *args, **options):
            file = real_open(path, mode, *args, **options)
            if mode not in ("wb", "a"):
                return file
            real_write = file.write

            def write(content) -> int:
                try:
                    faults.pass_or_fail()
                except OSError:
                    real_write(content[: len(content) // 2])
                    raise
                return real_write(content)

            return _Writes(file, write)

        monkeypatch.setattr("sancho.files.os.fsync", fsync)
        monkeypatch.setattr(Path, "replace", replace)
        for module in ("sancho.files", "sancho.run_folder"):
            monkeypatch.setattr(f"{module}.open", open_file, raising=False)

    def pass_or_fail(self) -> None:
        self.left -= 1
        if self.left < 0 and not self.happened:
            self.happened = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class _Writes:
    """A file with another write()."""

    def __init__(self, file, write) -> None:
        self.file, self.write = file, write

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        self.file.close()

    def __getattr__(self, name: str):
        return getattr(self.file, name)


def faults_until_none_happens(project: Path, monkeypatch) -> Iterator[Path]:
    """Yield the out_dir of a run with a fault at each place in turn."""
    for count in range(1000):
        out = project / f"out{count}"
        with monkeypatch.context() as patch:
            faults = Faults(patch, count)
            try:
                train_quietly(project, out, 3)
            except (OSError, ValueError) as error:
                assert faults.happened
                assert "space" in str(error)
            if not faults.happened:
                return
        yield out


def test_a_fault_at_every_write_sync_and_rename_loses_nothing(project, monkeypatch):
    expected, count = project / "expected", 0
    train_quietly(project, expected, 3)
    for out in faults_until_none_happens(project, monkeypatch):
        count += 1
        before = [saved.progress.step for saved in what_was_saved(out)]
        if not before or before[-1] < 3:
            train_quietly(project, out, 3)
        assert_same_run(out, expected)
    assert count > 20


def limited(project: Path, out: Path, message: Path) -> None:
    """Train where no file can grow past 20 kB, as the shell would."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    train.DATA = project / "data"
    sys.argv = ["train.py", *ARGS, "--out_dir", str(out), "--max_iters", "3", "--n_embd", "64"]
    with open(message, "w", encoding="utf-8") as sys.stderr:
        cli.exit_with(train.main)


@posix
def test_a_file_that_cannot_grow_is_one_clear_line(project):
    process = start_process(limited, project, project / "o", project / "message")
    process.join(60)
    assert process.exitcode == 2
    last = (project / "message").read_text("utf-8").splitlines()[-1]
    assert last.startswith("train.py: error: ")
    assert "too large" in last
    assert "nothing that was saved before is lost" in last
    assert what_was_saved(project / "o") == []
    assert not list((project / "o").glob("*.tmp"))
