"""Disks that are full or cannot be written: one clear line, and nothing that was saved is lost."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import conftest
import pytest
from conftest import ARGS, ROOT, SCRIPTS, TEXT, contents, run, succeed

from sancho import checkpoint
from sancho.corpus import is_prepared, open_prepared, prepare_files

pytestmark = pytest.mark.usefixtures("project")

FULL = "No space left on device; nothing that was saved before is lost"
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
        pytest.skip("here: to mount a file system takes root on Linux")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def assert_ends_refused(result: SimpleNamespace, words: str) -> None:
    last = result.err.splitlines()[-1]
    assert result.status == 2, result.err
    assert last.partition(": error: ")[0] in SCRIPTS, result.err
    assert words in last
    assert "Traceback" not in result.err


def fill(disk: Path, room: int) -> None:
    """Leave `room` bytes."""
    free = os.statvfs(disk)
    (disk / "filler").write_bytes(b"\0" * (free.f_bavail * free.f_frsize - room))


# --- full -----------------------------------------------------------------------------------


@pytest.mark.parametrize("old", [False, True], ids=["a new text", "a text that is there"])
def test_preparing_a_text_for_which_there_is_no_room(project, disk, monkeypatch, old):
    conftest.use_data(monkeypatch, disk)
    folder, text = disk / "mine", "Rinconete y Cortadillo\n"
    (project / "mine.txt").write_text(text, encoding="utf-8")
    if old:
        prepare_files(["mine.txt"], folder)
    (project / "mine.txt").write_text(TEXT * 10, encoding="utf-8")
    line = ["--input", "mine.txt", "--name", "mine", "--overwrite"]
    for pages in (0, 4, 8, 10):  # for the text, for its ids
        fill(disk, pages * PAGE)
        assert_ends_refused(run("prepare.py", *line), FULL)
        (disk / "filler").unlink()
        assert is_prepared(folder) == old
        if old:
            found = open_prepared(folder)
            assert found.tokenizer.decode([*found.train, *found.val]) == text
            assert (folder / "input.txt").read_text("utf-8") == text
    succeed("prepare.py", *line)
    assert (folder / "input.txt").read_text("utf-8") == TEXT * 10
    assert len(open_prepared(folder).train) == len(TEXT) * 9


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="here: there is no /dev/full")
def test_a_text_that_cannot_be_written(tmp_path):
    line = [sys.executable, ROOT / "sample.py", "--checkpoint", checkpoint.PRETRAINED]
    with open("/dev/full", "wb") as full:
        result = subprocess.run(line, stdout=full, stderr=subprocess.PIPE)
    assert result.stderr.decode().splitlines() == [f"sample.py: error: {FULL}"]
    assert result.returncode == 2


# --- read-only ------------------------------------------------------------------------------


def test_a_disk_that_is_read_only(project, disk, monkeypatch):
    conftest.use_data(monkeypatch, disk / "data")
    shutil.copytree(project / "data", disk / "data")
    out, words = disk / "out", "Read-only file system"
    succeed("train.py", *ARGS, "--max_iters=2", "--out_dir", out)
    before = contents(out)
    assert mount("-o", "remount,ro", disk)
    for folder, mode in ((out, "--resume"), (out, "--overwrite"), (disk / "another", "--seed=1")):
        line = [*ARGS, "--max_iters=4", mode, "--out_dir", folder]
        assert_ends_refused(run("train.py", *line), words)
    for name in ("tiny", "another"):
        line = ["--input", "tiny.txt", "--name", name, "--overwrite"]
        assert_ends_refused(run("prepare.py", *line), words)
    shutil.copy("tiny.txt", "new.txt")
    assert_ends_refused(run("train.py", *ARGS, "--corpus", "new.txt", "--out_dir=here"), words)
    assert contents(out) == before

    # What only reads works.
    succeed("sample.py", "--checkpoint", out / "best.safetensors")
    line = [*ARGS, "--max_iters=1", "--init_from", out / "best.safetensors", "--out_dir=here"]
    succeed("train.py", *line)
