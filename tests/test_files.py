"""Files and folders that are whole or not there, and folders that one process has to itself."""

import errno
import multiprocessing
import os
import re
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import start_process
from filelock import FileLock

from sancho.errors import UserError
from sancho.machine import files
from sancho.machine.files import atomic_write, check_new, locked, new_folder

pytestmark = pytest.mark.usefixtures("server_of_processes")


def hear(pipe: Connection) -> None:
    """Wait until something is said, or the other end is closed."""
    with suppress(BrokenPipeError):  # Windows calls the second so
        pipe.poll(None)


def stay(pipe: Connection, folder: Path) -> None:
    """What another process does: say "in" or why not, and stay until it hears or is left alone."""
    try:
        with locked(folder):
            pipe.send("in")
            hear(pipe)
    except UserError as error:
        pipe.send(str(error))


@contextmanager
def somebody(folder: Path, says: str = "in") -> Iterator[SimpleNamespace]:
    """Let another process come to the folder until the block ends, or it is told to go.

    Yields its pid, its kill() and its leave().
    """
    here, there = multiprocessing.Pipe()
    process = start_process(stay, there, folder)
    there.close()
    assert re.search(says, here.recv())

    def leave() -> None:
        here.close()
        process.join()

    def kill() -> None:
        process.kill()
        process.join()

    try:
        yield SimpleNamespace(pid=process.pid, kill=kill, leave=leave)
    finally:
        leave()


def assert_free(folder: Path) -> None:
    """Let another process come to the folder and leave at once."""
    with somebody(folder, "^in$"):
        pass


def assert_taken(folder: Path, by: str) -> None:
    with somebody(folder, f"{folder.name} is in use by {by}"):
        pass


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- whole or not at all --------------------------------------------------------------------


def test_a_file_is_replaced_when_the_block_ends_well(tmp_path):
    path = tmp_path / "x"
    for content in (b"old", b"new and longer"):
        before = path.read_bytes() if path.exists() else None
        with atomic_write(path) as out:
            out.write(content)
            out.flush()
            assert (path.read_bytes() if path.exists() else None) == before
        assert path.read_bytes() == content
        assert names_in(tmp_path) == ["x"]
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as out:
        out.write(b"never whole")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"new and longer"
    assert names_in(tmp_path) == ["x"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such call for folders")
def test_what_is_whole_is_on_the_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    """And its new name is there, too, before anybody is told so."""
    events, fsync, replace = [], os.fsync, Path.replace

    def watched_fsync(descriptor: int) -> None:
        events.append(f"sync {os.fstat(descriptor).st_ino}")
        fsync(descriptor)

    def watched_replace(path: Path, target: Path) -> Path:
        events.append("move")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "replace", watched_replace)
    with atomic_write(tmp_path / "file") as out:
        out.write(b"new")
    with new_folder(tmp_path / "folder") as folder:
        (folder / "inside").write_bytes(b"new")
    monkeypatch.undo()
    file, made, inside, parent = (
        f"sync {(tmp_path / name).stat().st_ino}"
        for name in ("file", "folder", "folder/inside", "")
    )
    assert events == [file, "move", parent, inside, made, "move", parent]


@pytest.mark.parametrize("refusals", [0, 3, 100])
def test_a_file_that_is_open_on_windows_is_waited_for(tmp_path, monkeypatch, refusals):
    clock, replace, path = SimpleNamespace(now=0.0, tries=0), Path.replace, tmp_path / "x"
    path.write_bytes(b"old")

    def replace_later(new: Path, target: Path) -> None:
        clock.tries += 1
        if clock.tries <= refusals:
            raise PermissionError(errno.EACCES, "Access is denied")
        replace(new, target)

    def sleep(seconds: float) -> None:
        assert 0 < seconds < 0.5
        clock.now += seconds

    monkeypatch.setattr(Path, "replace", replace_later)
    monkeypatch.setattr(files, "time", SimpleNamespace(sleep=sleep))
    expected = pytest.raises(PermissionError) if refusals == 100 else nullcontext()
    with expected, atomic_write(path) as out:
        out.write(b"new")
    assert path.read_bytes() == (b"old" if refusals == 100 else b"new")
    assert names_in(tmp_path) == ["x"]
    assert 1.5 < clock.now < 3 if refusals == 100 else clock.tries == refusals + 1


@pytest.mark.parametrize("empty", [False, True])
def test_a_folder_appears_when_the_block_ends_well(tmp_path, empty):
    path, ordinary = tmp_path / "x", tmp_path / "ordinary"
    ordinary.mkdir()
    if empty:
        path.mkdir()
    with pytest.raises(KeyboardInterrupt), new_folder(path) as folder:
        (folder / "a").write_text("never whole")
        raise KeyboardInterrupt
    assert names_in(tmp_path) == ["ordinary", "x"][: 1 + empty]
    with new_folder(path) as folder:
        (folder / "b").write_text("1")
        assert not path.exists() or names_in(path) == []
    assert names_in(tmp_path) == ["ordinary", "x"]
    assert names_in(path) == ["b"]
    assert (path / "b").read_text() == "1"
    assert path.stat().st_mode == ordinary.stat().st_mode


def test_a_folder_takes_no_place_of_anything(tmp_path, monkeypatch):
    full, file, link, here = (tmp_path / name for name in ("full", "file", "link", "here"))
    for folder in (full, here, tmp_path / "empty"):
        folder.mkdir()
    (full / "mine").write_text("mine")
    file.write_text("mine")
    link.symlink_to(tmp_path / "empty")
    monkeypatch.chdir(here)
    before = names_in(tmp_path)
    for path, words in (
        (full, "not empty"),
        (file, "there already"),
        (link, "or a link"),
        (here, "where you are"),
        (Path(), "where you are"),
        (tmp_path / "no" / "x", "no does not exist"),
        (file / "x", "file does not exist"),
    ):
        with pytest.raises(UserError, match=words), new_folder(path):
            pytest.fail("it can't be made")
    assert names_in(tmp_path) == before
    assert (full / "mine").read_text() == file.read_text() == "mine"


def test_a_new_file_needs_a_place(tmp_path):
    check_new(tmp_path / "x")
    (tmp_path / "x").symlink_to("nowhere")
    for path in (tmp_path, tmp_path / "x", tmp_path / "no" / "x"):
        with pytest.raises(UserError, match="--output"):
            check_new(path)


# --- one process at a time ------------------------------------------------------------------


def test_another_process_is_kept_out_and_told_who_is_in(tmp_path):
    folder = tmp_path / "a folder"
    with somebody(folder) as other:
        (folder / "x").touch()
        # What is locked can't be read on Windows.
        before = {path: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}
        with pytest.raises(UserError) as caught, locked(folder):
            pytest.fail("two are in")
        message = str(caught.value)
        assert message.startswith(f"{folder} is in use by process {other.pid} on ")
        assert "\n" not in message
        assert {path: path.read_bytes() for path in before} == before
        assert names_in(folder) == [".holder", ".lock", "x"]
    assert set(names_in(folder)) <= {".lock", "x"}
    with locked(folder):
        assert_taken(folder, by=f"process {os.getpid()} on ")
    assert_free(folder)


def test_a_process_that_was_killed_keeps_nobody_out(tmp_path):
    with somebody(tmp_path / "x") as other:
        other.kill()
        assert ".holder" in names_in(tmp_path / "x")
        with locked(tmp_path / "x"):
            assert f"process {os.getpid()} on " in (tmp_path / "x" / ".holder").read_text("utf-8")
    assert set(names_in(tmp_path / "x")) <= {".lock"}


def test_another_process_is_waited_for_but_not_for_ever(tmp_path, monkeypatch):
    with somebody(tmp_path / "x") as other:
        waits = pytest.warns(UserWarning, match=f"x is in use by process {other.pid} .*; waiting$")
        begin = time.monotonic()
        with waits, pytest.raises(UserError, match="wait for it"), locked(tmp_path / "x", 0.01):
            pytest.fail("two are in")
        assert time.monotonic() < begin + 5
        soon = threading.Timer(0.1, other.leave)
        monkeypatch.setattr(warnings, "warn", lambda *args, **options: soon.start())
        with locked(tmp_path / "x", 30):
            assert_taken(tmp_path / "x", by=f"process {os.getpid()} on ")


def test_blocks_can_be_nested_and_the_outermost_lets_go(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with locked(Path("x")):
        with locked(tmp_path / "x"), locked(Path("x")):
            pass
        assert names_in(Path("x")) == [".holder", ".lock"]
        with pytest.raises(ValueError, match="inside"), locked(Path("x")):
            raise ValueError("inside")
        assert_taken(tmp_path / "x", by=f"process {os.getpid()} on ")
    assert_free(tmp_path / "x")


@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_a_folder_that_cannot_be_made(tmp_path, below):
    (tmp_path / "file").write_text("mine")
    words = r"file\S* can't be written \(.+\); choose another folder$"
    with pytest.raises(UserError, match=words), locked(tmp_path / "file" / below):
        pytest.fail("it is a file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_is_not_ours_to_write(tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "x"))

    monkeypatch.setattr(FileLock, "acquire", refuse)
    with pytest.raises(UserError) as caught, locked(tmp_path / "x"):
        pytest.fail("nobody may write there")
    assert str(caught.value) == (
        f"{tmp_path / 'x'} can't be written (Permission denied); choose another folder"
    )


def test_an_error_in_the_block_is_not_taken_for_one_of_the_folder(tmp_path):
    for error in (PermissionError(errno.EACCES, "mine"), TimeoutError("mine")):
        with pytest.raises(type(error), match="mine"), locked(tmp_path / "x"):
            raise error


def test_whoever_comes_in_as_the_last_one_goes_has_the_folder(tmp_path, monkeypatch):
    """What is done after letting go must not touch what is theirs by then."""
    release, theirs = FileLock.release, FileLock(tmp_path / "x" / ".lock")

    def release_and_let_in(lock, *args, **options) -> None:
        release(lock, *args, **options)
        # The collector may release locks of other folders here.
        if Path(lock.lock_file).parent == tmp_path / "x":
            monkeypatch.undo()
            theirs.acquire(timeout=0)  # without having said yet who they are
            (tmp_path / "x" / ".holder").touch()

    monkeypatch.setattr(FileLock, "release", release_and_let_in)
    with locked(tmp_path / "x"):
        pass
    assert_taken(tmp_path / "x", by="another process; ")
    assert names_in(tmp_path / "x") == [".holder", ".lock"]
    theirs.release()
