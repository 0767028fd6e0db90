"""Atomic writes and directory locks."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from sancho.errors import MissingFile, UserError, note


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file beside `path` for writing; it takes the place of `path` when the block ends well.

    Whatever interrupts the block (an exception, a full disk, a power cut), `path` holds its old
    content or the new one, whole. What a killed process left beside it is overwritten by the next
    one; two must not write `path` at once (`locked`). Raises OSError where the system refuses it.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.sancho-tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):  # why it failed is what matters
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable, where the system has a call for it and allows it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def locked(folder: str | Path, timeout: float = 0.0) -> Iterator[None]:
    """Keep other processes out of a folder while the block runs; make it if it is missing.

    The system releases the lock when the process ends, however it ends; the file .lock may stay.
    Blocks on one folder may be nested. Where the file system knows no locks, a note says so.
    Raises UserError where another process still holds the lock after `timeout` seconds, or where
    the folder can't be written.
    """
    path = Path(os.path.realpath(folder), ".lock")
    lock = FileLock(path, is_singleton=True)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=timeout)
    except Timeout:
        advice = "wait for it to end, or choose another folder"
        if path.stat().st_size:  # the name of its process and computer: a file instead of a lock
            advice += f"; if it was on another computer and has ended, remove {path}"
        raise UserError(f"{folder} is in use by another process; {advice}") from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP):
            why = f"can't be written ({error.strerror})"
            raise UserError(f"{folder} {why}; choose another folder") from None
        note(f"{folder} can't be locked ({error.strerror}): let no other run use it")
    try:
        yield
    finally:
        lock.release()


def existing_file(path: str | Path, what: str) -> Path:
    """Return `path` if it is a file; `what` names it in the message otherwise.

    Raises MissingFile where nothing is there, UserError for a folder, a pipe or a device.
    """
    path = Path(path)
    if not path.exists():
        raise MissingFile(f"{what} {path} does not exist; check the path")
    if not path.is_file():
        kind = "folder" if path.is_dir() else "pipe or a device"
        raise UserError(f"{what} {path} is a {kind}; give the path of a file")
    return path
