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

    Whatever interrupts the block (an exception, a full disk, a power cut), `path` holds all of its
    old content or all of the new. What a killed process left beside it is removed next time. Two
    processes must not write `path` at once (see `locked`). Raises OSError.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.sancho-tmp")
    try:
        temporary.unlink(missing_ok=True)
        with open(temporary, "xb") as file:  # neither through a link nor into a pipe
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):  # the first error is the one to report
            temporary.unlink()
        if isinstance(error, OSError):  # an error of write or fsync names no file
            error.filename = str(path)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut, if the system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class FolderLock:
    """A lock that keeps other processes out of a folder.

    The system releases it when the process ends, however it ends; the file .lock may stay. Locks of
    one process on one folder may be nested.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.path = Path(os.path.realpath(folder), ".lock")
        self._lock = FileLock(self.path, is_singleton=True)

    def acquire(self, timeout: float = 0.0) -> None:
        """Lock the folder; make it if it is missing.

        Where the file system knows no locks, a note says so. Raises UserError where another process
        still holds the lock after `timeout` seconds, or where the folder can't be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=timeout)
        except Timeout:
            advice = "wait for it to end, or choose another folder"
            # Where the system has no locks, the file names a process and its computer instead.
            if self.path.stat().st_size:
                advice += f"; if it was on another computer and has ended, remove {self.path}"
            raise UserError(f"{self.folder} is in use by another process; {advice}") from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP):
                why = f"can't be written ({error.strerror})"
                raise UserError(f"{self.folder} {why}; choose another folder") from None
            note(f"{self.folder} can't be locked ({error.strerror}): let no other run use it")

    def release(self, *, is_lost: bool = False) -> None:
        """Let others in again. is_lost: whether the locked folder is no longer there."""
        with suppress(OSError):  # the system releases it at the end of the process
            self._lock.release(force=is_lost)


@contextmanager
def locked(folder: str | Path, timeout: float = 0.0) -> Iterator[None]:
    """Keep other processes out of a folder while the block runs: see FolderLock."""
    lock = FolderLock(folder)
    lock.acquire(timeout)
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
