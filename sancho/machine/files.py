"""Atomic writes and directory locks."""

import os
import shutil
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from sancho.errors import MissingFile, UserError

PATIENCE_SECONDS = 2.0
"""How long a file that can't be replaced is waited for."""


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside `path` for writing; it takes the place of `path` when the block ends well.

    Whatever interrupts the block (an exception, a full disk, a power cut), `path` holds its old
    content or the new one, whole. Raises OSError where the folder cannot be written, and
    PermissionError where another process keeps `path` open on Windows.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def replace(new: Path, path: Path) -> None:
    """Let `new`, a file or a folder, take the place of `path`.

    Windows refuses it while another process has `path` open, which is mostly not for long: it is
    tried for PATIENCE_SECONDS. Raises PermissionError after that.
    """
    for _ in range(20):
        with suppress(PermissionError):
            new.replace(path)
            return
        time.sleep(PATIENCE_SECONDS / 20)
    new.replace(path)


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
    with _passing_folder(path.with_name(f"{path.name}.{os.getpid()}.tmp")) as new:
        yield new
        for written in (*new.iterdir(), new):
            _sync(written)
        if is_folder:
            path.rmdir()  # Windows puts nothing in its place
        replace(new, path)
        _sync(path.parent)


@contextmanager
def _passing_folder(path: Path) -> Iterator[Path]:
    """Make an empty folder at `path`; when the block ends, nothing of it is left there."""
    shutil.rmtree(path, ignore_errors=True)  # what a crash has left
    path.mkdir(exist_ok=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


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
def locked(folder: Path, timeout: float = 0.0) -> Iterator[None]:
    """Keep other processes out of a folder while the block runs; make it if it is missing.

    The system lets go of the lock when the process ends, however it ends, so a crash locks nobody
    out; the file .lock may stay. Blocks on one folder may be nested.
    timeout: seconds for which another process that is there is waited for, with a warning.
    Raises UserError that says who holds the folder, or why it can't be written.
    """
    lock = FileLock(Path(os.path.realpath(folder), ".lock"), is_singleton=True)
    holder = folder / ".holder"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not timeout:
                raise
            warnings.warn(f"{folder} is in use by {_named_in(holder)}; waiting", stacklevel=3)
            lock.acquire(timeout=timeout)
    except Timeout:
        raise UserError(
            f"{folder} is in use by {_named_in(holder)}; wait for it to end, or choose another "
            "folder"
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


def _named_in(holder: Path) -> str:
    with suppress(OSError):
        return holder.read_text(encoding="utf-8") or "another process"
    return "another process"


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


@contextmanager
def replaced_together(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Make a folder to write the files `names` in; they go to `folder` when the block ends well.

    Whatever interrupts the block, the files that were in `folder` stay; so they do where one of
    them can't be replaced, as on Windows while another process has it open: that raises UserError.
    The first of `names` goes first and comes last, so whoever finds it finds all, even after a
    power cut.
    """
    with _passing_folder(folder / ".new") as new, _passing_folder(folder / ".old") as old:
        yield new
        _exchange(folder, new, old, names)


def _exchange(folder: Path, new: Path, old: Path, names: Sequence[str]) -> None:
    moves = [(folder / name, old / name) for name in names if (folder / name).exists()]
    moves += [(new / name, folder / name) for name in reversed(names)]
    try:
        for path, target in moves:
            path.replace(target)
            _sync(folder)
    except OSError as error:
        for name in reversed(names):
            with suppress(FileNotFoundError):
                (old / name).replace(folder / name)
        raise UserError(
            f"{error.filename} can't be replaced ({error.strerror}), and what was there still is; "
            "end the run or program that has it open, or choose another folder"
        ) from None
