"""Runs that are killed and disks that are full: what was saved stays, and the run goes on."""

import builtins
import errno
import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch

import train
from sancho import checkpoint, cli
from sancho.corpus import prepare_files
from sancho.run import RunFolder

TEXT = "En un lugar de la Mancha, de cuyo nombre no quiero acordarme.\n" * 30
# All that has a state: dropout, parts of a step, both optimizers and the table; saved every step.
ARGS = (
    "--dataset tiny --n_layer 1 --n_head 2 --n_embd 8 --block_size 8 --ngram_rows 16 --batch_size 2"
    " --dropout 0.1 --gradient_accumulation_steps 2 --eval_interval 1 --log_interval 1 --device cpu"
).split()
posix = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL and forkserver of POSIX")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch) -> Path:
    """A folder of its own with a data/tiny that is prepared."""
    (tmp_path / "tiny.txt").write_text(TEXT, encoding="utf-8")
    prepare_files([tmp_path / "tiny.txt"], tmp_path / "data" / "tiny")
    monkeypatch.setattr(train, "DATA", tmp_path / "data")
    return tmp_path


def train_quietly(project: Path, out: Path, max_iters: int, *more: str) -> int:
    """Run train.py in this process; go on with what is in `out`, or begin anew."""
    torch.set_num_threads(1)
    train.DATA = project / "data"
    begin = "--resume" if RunFolder(out).last.exists() else "--overwrite"
    args = [*ARGS, begin, "--out_dir", str(out), "--max_iters", str(max_iters), *more]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return train.main(args)


def start_process(project: Path, out: Path, max_iters: int) -> multiprocessing.Process:
    """Start it in a process that need not import PyTorch first."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["train"])
    process = context.Process(target=train_quietly, args=(project, out, max_iters))
    process.start()
    return process


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
            assert all(torch.equal(ours_part[name], theirs_part[name]) for name in ours_part)
        assert ours.progress.step == theirs.progress.step
        assert ours.progress.best_val_loss == theirs.progress.best_val_loss
    assert metrics_of(out) == metrics_of(expected)


def wait_for_a_save(process: multiprocessing.Process, out: Path) -> bool:
    """Return whether the process saved something before it ended."""
    last, begin = RunFolder(out).last, time.monotonic()
    before = last.stat().st_mtime_ns if last.exists() else None
    while process.is_alive() and time.monotonic() < begin + 60:
        if last.exists() and last.stat().st_mtime_ns != before:
            return True
        time.sleep(0.001)
    return False


def survive_kills(project: Path, kills: int) -> int:
    """Kill runs at random moments; return how many kills found a run between two saves."""
    chance, under_way, steps = random.Random(kills), 0, 10 * kills
    out, expected = project / "out", project / "expected"
    for number in range(kills):
        process = start_process(project, out, steps)
        # Most runs are killed while they train and save, every fifth while it starts.
        under_way += number % 5 != 0 and wait_for_a_save(process, out)
        process.join(chance.uniform(0, 0.05 if number % 5 else 0.5))
        process.kill()
        process.join()
        saved = what_was_saved(out)
        if saved and saved[-1].progress.step == steps:
            for path in out.iterdir():
                path.unlink()
    train_quietly(project, out, steps)
    train_quietly(project, expected, steps)
    assert [line["step"] for line in metrics_of(out)] == list(range(1, steps + 1))
    assert_same_run(out, expected)
    return under_way


@posix
def test_twenty_kills_lose_nothing(project):
    assert survive_kills(project, 20) > 10


@posix
@pytest.mark.slow
def test_two_hundred_kills_lose_nothing(project):
    assert survive_kills(project, 200) > 150


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
        for module in ("sancho.files", "sancho.run"):
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
        cli.run_main(train.main)


@posix
def test_a_file_that_cannot_grow_is_one_clear_line(project):
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=limited, args=(project, project / "o", project / "message"))
    process.start()
    process.join(60)
    assert process.exitcode == 2
    last = (project / "message").read_text("utf-8").splitlines()[-1]
    assert last.startswith("train.py: error: ")
    assert "too large" in last
    assert "nothing that was saved before is lost" in last
    assert what_was_saved(project / "o") == []
    assert not list((project / "o").glob("*.tmp"))
