"""Files that are whole or not there, and folders that one process has to itself."""

import errno
import multiprocessing
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import contents, names_in, start_process
from faults import Disk, fail
from filelock import FileLock

from sancho.errors import UserError
from sancho.machine import files
from sancho.machine.files import atomic_write, locked

pytestmark = pytest.mark.usefixtures("server_of_processes")


# --- another process ------------------------------------------------------------------------


def hear(pipe: Connection) -> None:
    """Wait until the other end is closed."""
    with suppress(BrokenPipeError):  # Windows calls it so
        pipe.poll(None)


def stay(pipe: Connection, folder: Path) -> None:
    """Say "in", or why not, and stay in the folder."""
    try:
        with locked(folder):
            pipe.send("in")
            hear(pipe)
    except UserError as error:
        pipe.send(str(error))


def write_slowly(pipe: Connection, path: Path) -> None:
    """Say "half", and write the other half when it is time to go."""
    with atomic_write(path) as out:
        out.write(b"theirs, ")
        out.flush()
        pipe.send("half")
        hear(pipe)
        out.write(b"whole")


@contextmanager
def somebody(path: Path, says: str = "in", does: Callable = stay) -> Iterator[SimpleNamespace]:
    """Let another process do something until the block ends, or it is told to go.

    Yields its kill(), its go(), and its leave(), which waits until it has gone.
    """
    here, there = multiprocessing.Pipe()
    process = start_process(does, there, path)
    there.close()
    assert re.search(says, here.recv())

    def leave() -> None:
        here.close()
        process.join()

    def kill() -> None:
        process.kill()
        process.join()

    try:
        yield SimpleNamespace(kill=kill, go=here.close, leave=leave)
    finally:
        leave()


def assert_free(folder: Path) -> None:
    """Let another process come to the folder and leave at once."""
    with somebody(folder, "^in$"):
        pass


def assert_taken(folder: Path) -> None:
    with somebody(folder, f"{folder.name} is in use by another process"):
        pass


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


@pytest.mark.skipif(os.name == "nt", reason="here: Windows has no such call for folders")
@pytest.mark.parametrize("can_sync_folders", [True, False])  # some file systems of networks can't
def test_what_is_whole_is_on_the_disk_before_it_takes_its_place(
    tmp_path, monkeypatch, can_sync_folders
):
    """And its new name is there, too, before anybody is told so."""
    disk = Disk(monkeypatch, tmp_path)
    if not can_sync_folders:
        disk.refuse = lambda operation, path: path == tmp_path and fail(errno.EINVAL)
    with atomic_write(tmp_path / "x") as out:
        out.write(b"new")
    temporary = disk.asked[0][1]
    assert temporary.parent == tmp_path
    assert disk.asked == [
        ("write", temporary),
        ("sync", temporary),
        ("replace", tmp_path / "x"),
        ("sync", tmp_path),
    ]
    assert (tmp_path / "x").read_bytes() == b"new"


@pytest.mark.parametrize("refusals", [0, 3, 100])
def test_a_file_that_is_open_on_windows_is_waited_for(tmp_path, monkeypatch, refusals):
    path, waits, disk = tmp_path / "x", [], Disk(monkeypatch, tmp_path)
    path.write_bytes(b"old")
    disk.refuse = lambda *_: 0 < disk.count("replace") <= refusals and fail(errno.EACCES)
    monkeypatch.setattr(files.time, "sleep", waits.append)
    expected = pytest.raises(PermissionError) if refusals == 100 else nullcontext()
    with expected, atomic_write(path) as out:
        out.write(b"new")
    assert path.read_bytes() == (b"old" if refusals == 100 else b"new")
    assert names_in(tmp_path) == ["x"]
    assert 0 <= min(waits, default=0) <= max(waits, default=0) < 0.5
    assert 1.5 < sum(waits) < 3 if refusals == 100 else len(waits) == refusals


def test_what_a_kill_has_left_is_overwritten_and_nothing_of_others_is_touched(tmp_path):
    theirs = tmp_path / "y.sancho-tmp"
    theirs.write_bytes(b"another program's")
    with somebody(tmp_path / "x", says="half", does=write_slowly) as other:
        other.kill()
    assert names_in(tmp_path) == ["x.sancho-tmp", "y.sancho-tmp"]
    with locked(tmp_path), atomic_write(str(tmp_path / "x")) as out:
        out.write(b"ours")
    assert set(names_in(tmp_path)) - {".lock"} == {"x", "y.sancho-tmp"}
    assert theirs.read_bytes() == b"another program's"
    assert (tmp_path / "x").read_bytes() == b"ours"


# --- one process at a time ------------------------------------------------------------------


def test_another_process_is_kept_out_until_it_goes_or_is_killed(tmp_path):
    folder = tmp_path / "a folder"
    for ends in ("leave", "kill"):
        with somebody(folder) as other:
            (folder / "x").touch()
            before = contents(folder)
            with pytest.raises(UserError) as caught, locked(str(folder)):
                pytest.fail("two are in")
            assert str(caught.value).startswith(f"{folder} is in use by another process; wait for")
            assert "\n" not in str(caught.value)
            assert contents(folder) == before
            getattr(other, ends)()
            with locked(folder):
                assert_taken(folder)
    assert_free(folder)


def test_another_process_is_waited_for_but_not_for_ever(tmp_path, monkeypatch):
    with somebody(tmp_path / "x") as other:
        waits = pytest.warns(UserWarning, match="x is in use by another process; waiting for up to")
        with waits, pytest.raises(UserError, match="wait for it"), locked(tmp_path / "x", 0.01):
            pytest.fail("two are in")
        monkeypatch.setattr(warnings, "warn", lambda *args, **options: other.go())
        with locked(tmp_path / "x", 60):
            assert_taken(tmp_path / "x")


def test_blocks_can_be_nested_and_the_outermost_lets_go(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with locked("x"):
        with locked(tmp_path / "x"), locked(Path("x")):
            pass
        with pytest.raises(ValueError, match="inside"), locked("x"):
            raise ValueError("inside")
        assert_taken(tmp_path / "x")
    assert_free(tmp_path / "x")


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_folder_that_cannot_be_made(tmp_path, below):
    (tmp_path / "file").write_text("mine")
    words = r"file\S* can't be written \(.+\); choose another folder$"
    with pytest.raises(UserError, match=words), locked(tmp_path / "file" / below):
        pytest.fail("it is a file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_is_not_ours_to_write(tmp_path, monkeypatch):
    monkeypatch.setattr(FileLock, "acquire", lambda *args, **options: fail(errno.EACCES))
    words = r"x can't be written \(Permission denied\); choose another folder$"
    with pytest.raises(UserError, match=words), locked(tmp_path / "x"):
        pytest.fail("nobody may write there")


def test_an_error_in_the_block_is_not_taken_for_one_of_the_folder(tmp_path):
    for error in (PermissionError(errno.EACCES, "mine"), TimeoutError("mine")):
        with pytest.raises(type(error), match="mine"), locked(tmp_path / "x"):
            raise error
