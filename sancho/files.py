"""Files that are either whole or not there: the one place that replaces a file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

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


def existing_file(path: Path, what: str) -> Path:
    """Return `path` if it is a file; `what` names it in the message otherwise.

    Raises MissingFile where nothing is there, UserError where it is a folder.
    """
    if path.is_dir():
        raise UserError(f"{what} {path} is a folder; give the path of a file")
    if not path.exists():
        raise MissingFile(f"{what} {path} does not exist; check the path")
    return path
