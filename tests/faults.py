"""A file system that is watched, and fails on purpose."""

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, NoReturn

import pytest


class Disk:
    """All that is written, synced and replaced below a folder, in the order in which it happens.

    It is noted before it happens, and does not if `refuse` raises; a write has come half way then.
    """

    def __init__(self, patch: pytest.MonkeyPatch, root: Path) -> None:
        self.root, self.asked = root, []
        self.refuse: Callable[[str, Path], object] = lambda operation, path: None
        open_file, fsync, replace = io.open, os.fsync, Path.replace

        def watched_open(path, mode="r", *args, **options) -> IO:
            file = open_file(path, mode, *args, **options)
            is_ours = isinstance(path, str | Path) and root in Path(path).absolute().parents
            return _File(file, Path(path), self) if is_ours and mode[0] in "wa" else file

        def watched_fsync(descriptor: int) -> None:
            status = os.fstat(descriptor)
            for path in (root, *root.rglob("*")):
                if os.path.samestat(path.stat(), status):
                    self.ask("sync", path)
            fsync(descriptor)

        def watched_replace(path: Path, target: Path) -> Path:
            if root in Path(target).absolute().parents:
                self.ask("replace", target)
            return replace(path, target)

        for module in (builtins, io):
            patch.setattr(module, "open", watched_open)
        patch.setattr(os, "fsync", watched_fsync)
        patch.setattr(Path, "replace", watched_replace)

    def ask(self, operation: str, path: Path) -> None:
        """Note "write", "sync" or "replace" of a path; raise what it fails with."""
        self.asked.append((operation, path))
        self.refuse(operation, path)

    def count(self, operation: str) -> int:
        """Return how often it was asked for."""
        return sum(operation == asked for asked, _ in self.asked)


class _File:
    """A file that asks in the middle of every write."""

    def __init__(self, file: IO, path: Path, disk: Disk) -> None:
        self.file, self.path, self.disk = file, path, disk

    def write(self, content: str | bytes) -> int:
        half = len(content) // 2
        self.file.write(content[:half])
        self.file.flush()
        self.disk.ask("write", self.path)
        return half + self.file.write(content[half:])

    def writelines(self, lines) -> None:
        for line in lines:
            self.write(line)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *exception) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)


def fail(number: int = errno.ENOSPC) -> NoReturn:
    """Raise what the system would: ENOSPC for a full disk, EACCES for an open file on Windows."""
    raise OSError(number, os.strerror(number))
