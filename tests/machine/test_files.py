"""Files that are whole or not there, and folders that one process has to itself."""

import errno
import multiprocessing
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import filelock
import pytest
from conftest import ROOT, names_in, start_process

from sancho.errors import MissingFile, UserError
from sancho.machine import files
from sancho.machine.files import atomic_write, existing_file, locked

pytestmark = pytest.mark.usefixtures("server_of_processes")


def stay(pipe: Connection, folder: Path) -> None:
    """Say "entered", or why not, and stay in the folder until told to go."""
    try:
        with locked(folder):
            pipe.send("entered")
            pipe.recv()
    except UserError as error:
        pipe.send(str(error))


@contextmanager
def somebody(folder: Path, says: str = "entered") -> Iterator[tuple]:
    """Let another process try to be in a folder; yield it, and the pipe by which it is told."""
    here, there = multiprocessing.Pipe()
    process = start_process(stay, there, folder)
    there.close()
    try:
        assert says in here.recv()
        yield process, here
    finally:
        with suppress(OSError):  # it may be gone
            here.send("go")
        process.join()


def test_a_file_is_replaced_when_the_block_ends_well(tmp_path):
    """What a killed process has left is overwritten, and nothing of others is touched."""
    path = tmp_path / "x"
    (tmp_path / "x.sancho-tmp").write_bytes(b"never whole")
    (tmp_path / "y.sancho-tmp").write_bytes(b"another program's")
    for content in (b"old", b"new and longer"):
        before = path.read_bytes() if path.exists() else None
        with atomic_write(str(path)) as out:
            out.write(content)
            out.flush()
            assert (path.read_bytes() if path.exists() else None) == before
        assert path.read_bytes() == content
        assert names_in(tmp_path) == ["x", "y.sancho-tmp"]
    assert (tmp_path / "y.sancho-tmp").read_bytes() == b"another program's"


@pytest.mark.skipif(os.name == "nt", reason="here: Windows has no such call for folders")
def test_what_is_whole_is_on_the_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    """And then its new name, where the file system has a call for that."""
    asked: list[object] = []
    replace = Path.replace

    def sync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        asked.append("folder" if stat.S_ISDIR(status.st_mode) else status.st_size)
        if asked[-1] == "folder":
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", lambda *paths: asked.append("replace") or replace(*paths))
    with atomic_write(tmp_path / "x") as out:
        out.write(b"new")
    assert asked == [3, "replace", "folder"]


@pytest.mark.parametrize("refused", ["write", "fsync", "replace"])
def test_whatever_is_refused_the_old_file_stays(tmp_path, monkeypatch, refused):
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def refuse(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if refused != "write":
        monkeypatch.setattr({"fsync": os, "replace": Path}[refused], refused, refuse)
    with pytest.raises(OSError, match="No space left"), atomic_write(path) as out:
        out.write(b"never whole")
        if refused == "write":
            refuse()
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["x"]


def test_another_process_is_kept_out_until_it_goes_or_is_killed(tmp_path):
    folder = tmp_path / "a folder"
    for way in ("go", "kill"):
        with somebody(folder) as (other, pipe):
            with pytest.raises(UserError) as caught, locked(str(folder), 0.01):
                pytest.fail("two are in")
            assert str(caught.value).startswith(f"{folder} is in use by another process; wait for")
            leave = other.kill if way == "kill" else partial(pipe.send, "go")
            threading.Timer(0.2, leave).start()
            with locked(folder, 60), somebody(folder, "is in use by another process"):
                pass


@pytest.mark.skipif(sys.platform == "win32", reason="here: Windows has other locks")
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_a_file_system_knows_no_locks_a_note_says_so(tmp_path, monkeypatch, caplog, number):
    def refuse(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    with locked(tmp_path):
        (said,) = caplog.messages
    assert (
        said == f"note: {tmp_path} can't be locked ({os.strerror(number)}): let no other run use it"
    )


def test_a_lock_that_a_computer_left_names_its_file(tmp_path, monkeypatch):
    """A file instead of a lock, where the system has none."""
    monkeypatch.setattr(files, "FileLock", filelock.SoftFileLock)
    (tmp_path / ".lock").write_text("4711\nnodo-17\n")
    words = f"; if it was on another computer and has ended, remove {tmp_path / '.lock'}"
    with pytest.raises(UserError, match=re.escape(words)), locked(tmp_path):
        pytest.fail("it is taken")


def test_blocks_can_be_nested_and_the_outermost_lets_go(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with locked("x"):
        with locked(tmp_path / "x"), locked(Path("x")):
            pass
        with pytest.raises(PermissionError, match="mine"), locked("x"):
            raise PermissionError(errno.EACCES, "mine")  # of the block, not of the folder
        with somebody(tmp_path / "x", "in use"):
            pass
    with somebody(tmp_path / "x"):
        pass


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_folder_that_cannot_be_made(tmp_path, below):
    (tmp_path / "file").write_text("mine")
    words = r"file\S* can't be written \(.+\); choose another folder$"
    with pytest.raises(UserError, match=words), locked(tmp_path / "file" / below):
        pytest.fail("it is a file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.name == "nt", reason="here: no pipes of POSIX")
def test_only_a_file_is_read(tmp_path):
    """Who opened the pipe would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path, words in (("pipe", "a pipe or"), (os.devnull, "a pipe or"), ("", "a folder")):
        with pytest.raises(UserError, match=f"^the text .* is {words}.*; give the path of a file"):
            existing_file(tmp_path / path, "the text")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(MissingFile, match=r"circle does not exist; check the path$"):
        existing_file(tmp_path / "circle", "the text")
    assert existing_file(__file__, "the text") == Path(__file__)


@pytest.mark.skipif(sys.platform == "win32", reason="here: no links and pipes of POSIX")
def test_what_stands_at_the_temporary_name_is_neither_followed_nor_waited_for(tmp_path):
    """A link there would have its file overwritten, and a pipe would keep the writer waiting."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    temporary = tmp_path / "x.sancho-tmp"
    for stand in (lambda: temporary.symlink_to(precious), lambda: os.mkfifo(temporary)):
        stand()
        with atomic_write(tmp_path / "x") as out:
            out.write(b"new")
        assert (precious.read_bytes(), (tmp_path / "x").read_bytes()) == (b"mine", b"new")
        assert not temporary.exists() and not temporary.is_symlink()


def test_a_refused_unlock_is_no_error(tmp_path, monkeypatch):
    """All is done by then, and the system releases the lock at the end of the process."""

    def refusing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with locked(tmp_path / "folder"):
        monkeypatch.setattr(filelock.FileLock, "release", refusing)
    monkeypatch.undo()
    filelock.FileLock(tmp_path / "folder" / ".lock", is_singleton=True).release(force=True)


@pytest.mark.skipif(sys.platform == "win32", reason="here: no links of POSIX")
def test_a_link_to_a_folder_is_the_folder(tmp_path):
    """To other processes, and to this one: else it would wait for itself."""
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    lock = f"FolderLock({str(tmp_path / 'link')!r}).acquire()"
    code = f"from sancho.machine.files import FolderLock; {lock}"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"]
    with locked(tmp_path / "folder"), locked(tmp_path / "link"):
        done = subprocess.run(command, capture_output=True, text=True)
    assert "is in use by another process" in done.stderr
    assert subprocess.run(command).returncode == 0


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES], ids=errno.errorcode.get)
def test_a_folder_that_cannot_be_written_is_an_error_and_no_note(
    tmp_path, monkeypatch, caplog, number
):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    words = rf"out can't be written \({os.strerror(number)}\); choose another folder$"
    with pytest.raises(UserError, match=words), locked(tmp_path / "out"):
        pytest.fail("it can't be written")
    assert caplog.messages == []
