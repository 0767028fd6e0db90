"""Disks that are full: one clear line, and nothing that was saved before is lost."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import conftest
import pytest
from conftest import ROOT, SCRIPTS, TEXT, run, succeed

from sancho import checkpoint
from sancho.corpus import is_prepared, open_prepared, prepare_files

pytestmark = pytest.mark.usefixtures("project")

FULL = "No space left on device; nothing that was saved before is lost"
PAGE = 4096  # of which such a file system is made


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A file system of its own, of 256 kB."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(path)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
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
