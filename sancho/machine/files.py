"""Atomic writes and directory locks."""

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from sancho.errors import MissingFile, UserError

PATIENCE_SECONDS = 2.0  # for which a file that can't be replaced is waited for


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file beside `path` for writing; it takes the place of `path` when the block ends well.

    Whatever interrupts the block (an exception, a full disk, a power cut), `path` holds its old
    content or the new one, whole. The file beside it has always the same name, so what a killed
    process left unfinished is overwritten by the next one; two processes must not write `path` at
    once (`locked`). Raises OSError where the folder cannot be written, and PermissionError where
    another process keeps `path` open on Windows.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.sancho-tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def replace(new: Path, path: Path) -> None:
    """Let `new`, a file or a folder, take the place of `path`.

    Raises PermissionError where another process keeps `path` open on Windows for PATIENCE_SECONDS.
    """
    for _ in range(20):
        with suppress(PermissionError):
            new.replace(path)
            return
        time.sleep(PATIENCE_SECONDS / 20)
    new.replace(path)


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
    Blocks on one folder may be nested.
    timeout: seconds for which another process that holds the lock is waited for, with a warning.
    Raises UserError where it still holds it then, or where the folder can't be written.
    """
    lock = FileLock(Path(os.path.realpath(folder), ".lock"), is_singleton=True)
    in_use = f"{folder} is in use by another process"
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not timeout:
                raise
            warnings.warn(f"{in_use}; waiting for up to {timeout:.0f} s", stacklevel=3)
            lock.acquire(timeout=timeout)
    except Timeout:
        advice = "wait for it to end, or choose another folder"
        raise UserError(f"{in_use}; {advice}") from None
    except OSError as error:
        advice = "choose another folder"
        raise UserError(f"{folder} can't be written ({error.strerror}); {advice}") from None
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


def require_replaceable(path: Path) -> None:
    """Raise UserError where another program has a file open that Windows then won't replace."""
    try:
        if path.exists():
            path.replace(path)
    except PermissionError:
        advice = (
            "close it (a training run, an evaluation or a notebook that reads it), then try again"
        )
        raise UserError(f"{path} is open in another program; {advice}") from None
