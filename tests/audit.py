"""Sees what Python is asked to execute while it reads what others have written."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

FORBIDDEN = set(
    "exec import marshal.loads pickle.find_class code.__new__ ctypes.dlopen "
    "subprocess.Popen os.system os.exec os.fork os.posix_spawn os.spawn "
    "socket.connect socket.getaddrinfo".split()
)
watching: list[list[str]] = []
"""What each of the blocks that are being watched has asked for so far."""


@cache
def install() -> None:
    """Let Python report to `watching`; such a hook stays for as long as the process."""

    def hook(event: str, args: tuple) -> None:
        if watching and event in FORBIDDEN:
            watching[-1].append(f"{event} {args[:1]}")

    sys.addaudithook(hook)


@contextmanager
def nothing_executed() -> Iterator[None]:
    """Assert that the block begins no code, new module, process or connection."""
    install()
    watching.append([])
    try:
        yield
    finally:
        assert watching.pop() == []


class Hostile:
    """A pickle of it makes a folder when it is opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.folder,)
