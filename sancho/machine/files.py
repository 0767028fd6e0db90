"""Atomic writes and directory locks."""

import os
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from sancho.errors import MissingFile, UserError

PATIENCE_SECONDS = 2.0  # for which a file that can't be replaced is waited for
TEMPORARY = ".sancho-tmp"  # how the names of unfinished files end


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside `path` for writing; it takes the place of `path` when the block ends well.

    Whatever interrupts the block (an exception, a full disk, a power cut), `path` holds its old
    content or the new one, whole. Raises OSError where the folder cannot be written, and
    PermissionError where another process keeps `path` open on Windows.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}")
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
def locked(folder: Path, timeout: float = 0.0) -> Iterator[None]:
    """Keep other processes out of a folder while the block runs; make it if it is missing.

    The system releases the lock when the process ends, however it ends; the file .lock may stay.
    Blocks on one folder may be nested. What a process that was killed left unfinished is removed.
    timeout: seconds for which another process that holds the lock is waited for, with a warning.
    Raises UserError that says who holds it, or why the folder can't be written.
    """
    lock = FileLock(Path(os.path.realpath(folder), ".lock"), is_singleton=True)
    holder = folder / ".holder"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if timeout:
                warnings.warn(f"{folder} is in use by {_named_in(holder)}; waiting", stacklevel=3)
            lock.acquire(timeout=timeout)
    except Timeout:
        advice = "wait for it to end, or choose another folder"
        raise UserError(f"{folder} is in use by {_named_in(holder)}; {advice}") from None
    except OSError as error:
        advice = "choose another folder"
        raise UserError(f"{folder} can't be written ({error.strerror}); {advice}") from None
    try:
        if lock.lock_counter == 1:
            now = datetime.now().astimezone().isoformat(" ", "seconds")
            text = f"process {os.getpid()} on {socket.gethostname()} since {now}"
            holder.write_text(text, encoding="utf-8")
            for unfinished in folder.glob(f"*{TEMPORARY}"):
                unfinished.unlink(missing_ok=True)
        yield
    finally:
        if lock.lock_counter == 1:
            with suppress(OSError):
                holder.unlink()
        lock.release()


def _named_in(holder: Path) -> str:
    with suppress(OSError):
        return holder.read_text(encoding="utf-8") or "another process"
    return "another process"


def existing_file(path: Path, what: str) -> Path:
    """Return `path` if it is a file; `what` names it in the message otherwise.

    Raises MissingFile where nothing is there, UserError for a folder, a pipe or a device.
    """
    if not path.exists():
        raise MissingFile(f"{what} {path} does not exist; check the path")
    if not path.is_file():
        kind = "folder" if path.is_dir() else "pipe or a device"
        raise UserError(f"{what} {path} is a {kind}; give the path of a file")
    return path
