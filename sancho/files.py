"""Files that are either whole or not there, and folders that one process has to itself."""

import os
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
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable. Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
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
