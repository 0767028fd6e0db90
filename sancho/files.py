"""Files that are either whole or not there, and folders that one process has to itself."""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from sancho.errors import MissingFile, UserError


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside `path` for writing; it takes the place of `path` when the block ends well.

    Whatever interrupts the block (an exception, a full disk, a power cut), `path` holds its old
    content or the new one, whole. Raises OSError where the folder cannot be written.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def check_new(path: Path) -> None:
    """Raise UserError unless `path` can be made: its folder is there and itself is not."""
    if not path.parent.is_dir():
        raise UserError(f"--output {path}: the folder {path.parent} does not exist; make it first")
    if path.exists() or path.is_symlink():
        raise UserError(f"--output {path} is there already; choose another name")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Make a folder beside `path` to write in; it becomes `path` when the block ends well.

    Whatever interrupts the block, nothing is left of it. An empty folder may stand at `path`.
    Raises UserError where something else does, OSError where the disk cannot be written.
    """
    is_folder = path.is_dir()
    if is_folder and any(path.iterdir()):
        raise UserError(f"--output {path} is a folder that is not empty; choose another name")
    if is_folder and (path.is_symlink() or path.samefile(os.curdir)):
        raise UserError(f"--output {path} is where you are or a link; choose another name")
    if not is_folder:
        check_new(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.iterdir():
            _sync(file)
        _sync(temporary)
        if is_folder:
            path.rmdir()  # Windows puts nothing in its place
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Make what was written durable. Windows has no such call for a folder and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder while the block runs; make it if it is missing.

    The system lets go of the lock when the process ends, however it ends, so a crash locks nobody
    out; the file .lock may stay. Blocks on one folder may be nested.
    Raises UserError that says who holds the folder, or why it can't be written.
    """
    lock = FileLock(Path(os.path.realpath(folder), ".lock"), is_singleton=True)
    holder = folder / ".holder"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        who = "another process"
        with suppress(OSError):
            who = holder.read_text(encoding="utf-8") or who
        raise UserError(
            f"{folder} is in use by {who}; wait for it to end, or choose another folder"
        ) from None
    except OSError as error:
        raise UserError(
            f"{folder} can't be written ({error.strerror}); choose another folder"
        ) from None
    try:
        now = datetime.now().astimezone().isoformat(" ", "seconds")
        text = f"process {os.getpid()} on {socket.gethostname()} since {now}"
        holder.write_text(text, encoding="utf-8")
        yield
    finally:
        if lock.lock_counter == 1:
            with suppress(OSError):
                holder.unlink()
        lock.release()


def existing_file(path: Path, what: str) -> Path:
    """Return `path` if it is a file; `what` names it in the message otherwise.

    Raises MissingFile where nothing is there, UserError where it is a folder, or a pipe or a
    device, which may have no end.
    """
    if path.is_dir():
        raise UserError(f"{what} {path} is a folder; give the path of a file")
    if not path.exists():
        raise MissingFile(f"{what} {path} does not exist; check the path")
    if not path.is_file():
        raise UserError(f"{what} {path} is a pipe or a device; give the path of a file")
    return path
