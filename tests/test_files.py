"""Files and folders that are whole or not there, and folders that one process has to itself."""

import errno
import multiprocessing
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
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


# What another process does. It says "in" or why not, and stays until it hears something or is left
# alone. The second has not come so far as to say who it is. The third comes in and goes a hundred
# times, and alone in the folder it can make a file that must not be there.


def stay(pipe: Connection, folder: Path) -> None:
    try:
        with locked(folder):
            pipe.send("in")
            hear(pipe)
    except UserError as error:
        pipe.send(str(error))


def stay_unknown(pipe: Connection, folder: Path) -> None:
    with FileLock(folder / ".lock").acquire(timeout=0):
        pipe.send("in")
        hear(pipe)


def come_and_go(pipe: Connection, folder: Path) -> None:
    entered, alone = 0, folder.parent / "alone"
    pipe.send("ready")
    hear(pipe)
    while entered < 100:
        try:
            with locked(folder):
                alone.touch(exist_ok=False)
                entered += 1
                alone.unlink()
        except UserError as error:
            known = " in use by (process [0-9]+ on .+|another process); "
            assert re.search(known, str(error)), error


@contextmanager
def somebody(what: Callable, folder: Path, says: str = "in") -> Iterator[multiprocessing.Process]:
    """Let another process do something with the folder until the block ends."""
    here, there = multiprocessing.Pipe()
    process = start_process(what, there, folder)
    there.close()
    assert re.search(says, here.recv())
    try:
        yield process
    finally:
        here.close()
        process.join()


def assert_free(folder: Path) -> None:
    """Let another process come to the folder and leave at once."""
    with somebody(stay, folder, "^in$"):
        pass


def assert_taken(folder: Path, by: str) -> None:
    with somebody(stay, folder, f"{folder.name} is in use by {by}"):
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


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_block_that_does_not_end_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(error), atomic_write(path) as out:
        out.write(b"new")
        raise error
    assert path.read_bytes() == b"old"
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
        f"sync {path.stat().st_ino}"
        for path in (
            tmp_path / "file",
            folder.with_name("folder"),
            tmp_path / "folder/inside",
            tmp_path,
        )
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
    fake = SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep)
    monkeypatch.setattr(files, "time", fake)
    expected = pytest.raises(PermissionError) if refusals == 100 else nullcontext()
    with expected, atomic_write(path) as out:
        out.write(b"new")
    assert path.read_bytes() == (b"old" if refusals == 100 else b"new")
    assert names_in(tmp_path) == ["x"]
    assert 1.5 < clock.now < 3 if refusals == 100 else clock.tries == refusals + 1


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(OSError, match="nothing"), atomic_write(tmp_path / "nothing" / "x"):
        pytest.fail("there is no such folder")


@pytest.mark.parametrize("empty", [False, True])
def test_a_folder_appears_when_the_block_ends_well(tmp_path, empty):
    path = tmp_path / "x"
    if empty:
        path.mkdir()
    with new_folder(path) as folder:
        (folder / "a").write_text("1")
        assert not path.exists() or names_in(path) == []
    assert (path / "a").read_text() == "1"
    assert names_in(tmp_path) == ["x"]
    ordinary = tmp_path / "ordinary"
    ordinary.mkdir()
    assert path.stat().st_mode == ordinary.stat().st_mode


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_a_block_that_does_not_end_leaves_no_folder(tmp_path, error, empty):
    path = tmp_path / "x"
    if empty:
        path.mkdir()
    with pytest.raises(error), new_folder(path) as folder:
        (folder / "a").write_text("1")
        raise error
    assert names_in(tmp_path) == ["x"] * empty
    assert not empty or names_in(path) == []


def test_a_folder_takes_no_place_of_anything(tmp_path, monkeypatch):
    full, file, link, here = (tmp_path / name for name in ("full", "file", "link", "here"))
    full.mkdir()
    here.mkdir()
    (full / "mine").write_text("mine")
    file.write_text("mine")
    link.symlink_to(here)
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
    with somebody(stay, folder) as process:
        (folder / "x").touch()
        # What is locked can't be read on Windows.
        before = {path: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}
        with pytest.raises(UserError) as caught, locked(folder):
            pytest.fail("two are in")
        message = str(caught.value)
        assert message.startswith(f"{folder} is in use by process {process.pid} on ")
        assert "\n" not in message
        assert {path: path.read_bytes() for path in before} == before
        assert names_in(folder) == [".holder", ".lock", "x"]
    assert set(names_in(folder)) <= {".lock", "x"}
    with locked(folder):
        assert_taken(folder, by=f"process {os.getpid()} on ")
    assert_free(folder)


def test_a_process_that_was_killed_keeps_nobody_out(tmp_path):
    with somebody(stay, tmp_path / "x") as process:
        process.kill()
        process.join()
        assert ".holder" in names_in(tmp_path / "x")
        with locked(tmp_path / "x"):
            assert f"process {os.getpid()} on " in (tmp_path / "x" / ".holder").read_text("utf-8")
    assert set(names_in(tmp_path / "x")) <= {".lock"}


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


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_however_the_block_ends_the_folder_stays_and_lets_others_in(tmp_path, error):
    for names in ([], ["notes.txt"]):
        with suppress(ValueError, KeyboardInterrupt), locked(tmp_path / "x"):
            for name in names:
                (tmp_path / "x" / name).touch()
            if error:
                raise error
        assert {*names} <= set(names_in(tmp_path / "x")) <= {*names, ".lock"}
        assert_free(tmp_path / "x")


@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_a_folder_that_cannot_be_made(tmp_path, below):
    (tmp_path / "file").write_text("mine")
    folder = tmp_path / "file" / below
    with pytest.raises(UserError) as caught, locked(folder):
        pytest.fail("it is a file")
    begin, end = str(caught.value).split(" (")
    assert begin == f"{folder} can't be written"
    assert end.endswith("); choose another folder")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("place", ["the folder", "the lock"])
def test_a_folder_that_is_not_ours_to_write(tmp_path, monkeypatch, place):
    def refuse(*args, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "x"))

    owner, method = (Path, "mkdir") if place == "the folder" else (FileLock, "acquire")
    monkeypatch.setattr(owner, method, refuse)
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
    release, others = FileLock.release, ExitStack()

    def release_and_let_in(lock, *args, **options) -> None:
        release(lock, *args, **options)
        # The collector may release locks of other folders here.
        if Path(lock.lock_file).parent == tmp_path / "x":
            monkeypatch.undo()
            others.enter_context(somebody(stay_unknown, tmp_path / "x"))

    with others:
        monkeypatch.setattr(FileLock, "release", release_and_let_in)
        with locked(tmp_path / "x"):
            pass
        assert_taken(tmp_path / "x", by="another process; ")


def test_four_that_come_and_go_are_never_in_together(tmp_path):
    with ExitStack() as stack:
        four = [
            stack.enter_context(somebody(come_and_go, tmp_path / "x", "ready")) for _ in range(4)
        ]
    assert [process.exitcode for process in four] == [0] * 4
    assert set(names_in(tmp_path / "x")) <= {".lock"}
    assert names_in(tmp_path) == ["x"]
