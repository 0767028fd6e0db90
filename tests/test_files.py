import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from filelock import FileLock

from sancho.errors import UserError
from sancho.files import atomic_write, check_new, locked, new_folder

ROOT = Path(__file__).resolve().parent.parent
# The folder is argv[1]. The first stays in it until its standard input ends; the second too, but it
# has not come so far as to say who it is; the third, once all have started, comes in and goes a
# hundred times, and alone in the folder it can make a file that must not be there.
STAY = """
with locked(folder):
    print("in", flush=True)
    sys.stdin.read()
"""
STAY_UNKNOWN = """
with FileLock(folder / ".lock").acquire(timeout=0):
    print("in", flush=True)
    sys.stdin.read()
"""
COME_AND_GO = """
entered, alone = 0, folder.parent / "alone"
print("ready", flush=True)
sys.stdin.read()
while entered < 100:
    try:
        with locked(folder):
            alone.touch(exist_ok=False)
            entered += 1
            alone.unlink()
    except UserError as error:
        assert re.search(" in use by (process [0-9]+ on .+|another process); ", str(error)), error
"""


def start_process(code: str, folder: Path) -> subprocess.Popen:
    head = (
        "import re, sys\n"
        "from pathlib import Path\n"
        "from filelock import FileLock\n"
        "from sancho.errors import UserError\n"
        "from sancho.files import locked\n"
        "folder = Path(sys.argv[1])\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [sys.executable, "-c", head + code, str(folder)], cwd=ROOT, text=True, **pipes
    )


@contextmanager
def somebody_in(folder: Path, code: str = STAY) -> Iterator[subprocess.Popen]:
    """Let another process hold the folder until the block, or the process, ends."""
    with start_process(code, folder) as process:
        assert process.stdout.readline() == "in\n", process.stderr.read()
        yield process
        process.stdin.close()


def try_from_elsewhere(folder: Path) -> str:
    """Return what another process is told that comes to the folder and leaves at once."""
    with start_process(STAY, folder) as process:
        process.stdin.close()
        return process.stdout.read() + process.stderr.read()


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
    with somebody_in(folder) as process:
        (folder / "x").touch()
        before = {path: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(UserError) as caught, locked(folder):
            pytest.fail("two are in")
        message = str(caught.value)
        assert message.startswith(f"{folder} is in use by process {process.pid} on ")
        assert "\n" not in message
        assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert set(names_in(folder)) <= {".lock", "x"}
    with locked(folder):
        assert f"is in use by process {os.getpid()} on " in try_from_elsewhere(folder)
    assert try_from_elsewhere(folder) == "in\n"


def test_a_process_that_was_killed_keeps_nobody_out(tmp_path):
    with somebody_in(tmp_path / "x") as process:
        process.kill()
        process.wait()
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
        assert f"process {os.getpid()} on " in try_from_elsewhere(tmp_path / "x")
    assert try_from_elsewhere(tmp_path / "x") == "in\n"


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_however_the_block_ends_the_folder_stays_and_lets_others_in(tmp_path, error):
    for files in ([], ["notes.txt"]):
        with suppress(ValueError, KeyboardInterrupt), locked(tmp_path / "x"):
            for name in files:
                (tmp_path / "x" / name).touch()
            if error:
                raise error
        assert {*files} <= set(names_in(tmp_path / "x")) <= {*files, ".lock"}
        assert try_from_elsewhere(tmp_path / "x") == "in\n"


@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_a_folder_that_cannot_be_made(tmp_path, below):
    (tmp_path / "file").write_text("mine")
    folder = tmp_path / "file" / below
    with pytest.raises(UserError) as caught, locked(folder):
        pytest.fail("it is a file")
    why = os.strerror(errno.ENOTDIR if below else errno.EEXIST)
    assert str(caught.value) == f"{folder} can't be written ({why}); choose another folder"
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
        monkeypatch.undo()
        others.enter_context(somebody_in(tmp_path / "x", STAY_UNKNOWN))

    with others:
        monkeypatch.setattr(FileLock, "release", release_and_let_in)
        with locked(tmp_path / "x"):
            pass
        assert "x is in use by another process; " in try_from_elsewhere(tmp_path / "x")


def test_four_that_come_and_go_are_never_in_together(tmp_path):
    with ExitStack() as stack:
        begun = [start_process(COME_AND_GO, tmp_path / "x") for _ in range(4)]
        processes = [stack.enter_context(process) for process in begun]
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.close()
        assert [process.stderr.read() for process in processes] == [""] * 4
    assert [process.returncode for process in processes] == [0] * 4
    assert set(names_in(tmp_path / "x")) <= {".lock"}
    assert names_in(tmp_path) == ["x"]
