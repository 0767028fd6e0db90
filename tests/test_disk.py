"""Disks that are full or cannot be written: one clear line, and nothing that was saved is lost."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ARGS, ROOT, SCRIPTS, TEXT, assert_same_run, run, use_data

from sancho import checkpoint, cli
from sancho.corpus import load, prepare_files
from sancho.errors import MissingFile

pytestmark = pytest.mark.usefixtures("project", "one_thread")

PAGE = 4096  # of which such a file system is made


def mount(*args: str | Path) -> bool:
    """Return whether the system could be asked for it and did it."""
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("mount"):
        return False
    return subprocess.run(["mount", *map(str, args)], capture_output=True).returncode == 0


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A file system of its own, of 256 kB."""
    path = tmp_path / "disk"
    path.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=256k", "tmpfs", path):
        pytest.skip("to mount a file system takes root on Linux")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def assert_refused(result: SimpleNamespace, words: str) -> None:
    last = result.err.splitlines()[-1]
    assert result.status == 2, result.err
    assert last.partition(": error: ")[0] in SCRIPTS, result.err
    assert words in last
    assert "Traceback" not in result.err


def fill(disk: Path, room: int) -> None:
    """Leave `room` bytes."""
    free = os.statvfs(disk)
    (disk / "filler").write_bytes(b"\0" * (free.f_bavail * free.f_frsize - room))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def checkpoints_in(out: Path) -> dict[str, bytes]:
    """Assert that each checkpoint can be loaded, and return them."""
    found = {name: raw for name, raw in contents(out).items() if name.endswith(".safetensors")}
    for name in found:
        checkpoint.load(out / name)
    return found


# --- full -----------------------------------------------------------------------------------


def fills_up(monkeypatch, disk: Path, room: int) -> None:
    """From now on, when the second step is done somebody else fills the disk."""
    show = cli.ProgressBar.show

    def show_and_fill(bar, report) -> None:
        show(bar, report)
        if report.step == 2:
            fill(disk, room)

    monkeypatch.setattr(cli.ProgressBar, "show", show_and_fill)


def test_a_disk_that_fills_up_while_training(project, disk, monkeypatch):
    out, expected, refused = disk / "out", project / "expected", 0
    line = [*ARGS, "--max_iters=4", "--out_dir"]
    assert run("train.py", *line, expected).status == 0
    for room in range(0, 20 * PAGE, 2 * PAGE):
        with monkeypatch.context() as patch:
            fills_up(patch, disk, room)
            result = run("train.py", *line, out)
        if result.status == 0:
            break
        refused += 1
        assert_refused(result, "No space left on device; nothing that was saved before is lost")
        assert sorted(checkpoints_in(out)) == ["best.safetensors", "last.safetensors"]
        assert checkpoint.load(out / "last.safetensors").progress.step == 1
        assert not list(out.glob("*.tmp"))
        before = checkpoints_in(out)
        if room == 0:
            assert_refused(run("train.py", "--resume", "--out_dir", out), "No space left on device")
            assert checkpoints_in(out) == before

        (disk / "filler").unlink()
        result = run("train.py", "--resume", "--device=cpu", "--out_dir", out)
        assert result.status == 0, result.err
        assert_same_run(out, expected)
        shutil.rmtree(out)
    assert refused >= 3
    assert result.status == 0
    assert_same_run(out, expected)


def test_a_disk_that_is_full_from_the_beginning(disk):
    fill(disk, 0)
    line = [*ARGS, "--max_iters=1", "--out_dir", disk / "out"]
    assert_refused(run("train.py", *line), "No space left on device")
    (disk / "filler").unlink()
    result = run("train.py", *line)
    assert result.status == 0, result.err


@pytest.mark.parametrize("old", [False, True], ids=["a new text", "a text that is there"])
def test_preparing_a_text_for_which_there_is_no_room(project, disk, monkeypatch, old):
    use_data(monkeypatch, disk)
    old_text, new_text = "Rinconete y Cortadillo\n", TEXT * 10
    refused, states = 0, set()
    for room in range(0, 64 * PAGE, 4 * PAGE):
        shutil.rmtree(disk / "mine", ignore_errors=True)
        if old:
            (project / "mine.txt").write_text(old_text, encoding="utf-8")
            prepare_files([project / "mine.txt"], disk / "mine")
        (project / "mine.txt").write_text(new_text, encoding="utf-8")
        fill(disk, room)
        result = run("prepare.py", "--input", "mine.txt", "--name", "mine")
        if result.status == 0:
            break
        refused += 1
        assert_refused(result, "No space left on device; nothing that was saved before is lost")
        line = [*ARGS, "--max_iters=1", "--corpus", "mine.txt"]
        assert_refused(run("train.py", *line), "No space left on device")
        assert not list(disk.rglob("*.tmp"))
        states.add(state_of(disk / "mine", old_text))
        (disk / "filler").unlink()
    assert refused >= 3
    assert states == {"the old text" if old else "not prepared"}
    assert (disk / "mine" / "input.txt").read_text("utf-8") == new_text
    assert len(load(disk / "mine").train) + len(load(disk / "mine").val) == len(new_text)


def state_of(folder: Path, old_text: str) -> str:
    """Say what a prepared folder holds; it is never half of one thing and half of another."""
    try:
        found = load(folder)
    except MissingFile:
        return "not prepared"
    assert found.tokenizer.decode([*found.train, *found.val]) == old_text
    assert (folder / "input.txt").read_text("utf-8") == old_text
    return "the old text"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_text_that_cannot_be_written(project):
    result = run("train.py", *ARGS, "--max_iters=1")
    assert result.status == 0, result.err
    line = [sys.executable, ROOT / "sample.py", "--checkpoint", "out/best.safetensors"]
    with open("/dev/full", "wb") as full:
        result = subprocess.run(line, stdout=full, stderr=subprocess.PIPE)
    assert result.stderr.decode().splitlines() == [
        "sample.py: error: No space left on device; nothing that was saved before is lost"
    ]
    assert result.returncode == 2


# --- read-only ------------------------------------------------------------------------------


def test_a_disk_that_is_read_only(project, disk, monkeypatch):
    use_data(monkeypatch, disk / "data")
    shutil.copytree(project / "data", disk / "data")
    out = disk / "out"
    assert run("train.py", *ARGS, "--max_iters=2", "--out_dir", out).status == 0
    before = contents(out)
    assert mount("-o", "remount,ro", disk)
    words = "Read-only file system"
    for mode in ("--resume", "--overwrite", "--dataset=tiny"):
        line = [*ARGS, "--max_iters=4", mode, "--out_dir"]
        assert_refused(run("train.py", *line, out), words)
        if mode != "--resume":
            assert_refused(run("train.py", *line, disk / "another"), words)
    for name in ("tiny", "another"):
        assert_refused(run("prepare.py", "--input", "tiny.txt", "--name", name), words)
    shutil.copy("tiny.txt", "new.txt")
    assert_refused(run("train.py", *ARGS, "--corpus", "new.txt", "--out_dir=here"), words)
    assert contents(out) == before

    # What only reads works.
    result = run("sample.py", "--checkpoint", out / "best.safetensors", "--max_new_tokens=9")
    assert result.status == 0, result.err
    line = [*ARGS, "--max_iters=1", "--init_from", out / "best.safetensors", "--out_dir=here"]
    result = run("train.py", *line)
    assert result.status == 0, result.err

    assert mount("-o", "remount,rw", disk)
    result = run("train.py", "--resume", "--max_iters=4", "--device=cpu", "--out_dir", out)
    assert result.status == 0, result.err
