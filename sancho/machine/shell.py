"""Commands that can be pasted into the shell of this machine."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

ON_WINDOWS = os.name == "nt"
PLAIN = re.compile(r"[\w.:~/\\=+-]+")
"""What neither shell of Windows reads anything into."""


def command(script: str, *args: str | Path) -> str:
    """Return what runs one of the project's scripts, as "train.py", from the current folder.

    The interpreter, and the folder of the scripts, are those of the program that runs now.
    """
    beside = Path(sys.argv[0]).parent / script
    words = [_python(), str(beside if beside.is_file() else script), *map(str, args)]
    if not ON_WINDOWS:
        return shlex.join(words)
    return " ".join(word if PLAIN.fullmatch(word) else f'"{word}"' for word in words)


def _python() -> str:
    """Return this interpreter by its name if that finds it, else by its path."""
    python = Path(sys.executable or "python")
    for name in ("python", python.name):
        found = shutil.which(name)
        # In one folder, too: the interpreters of two environments may be links to one file.
        if found and _is_same(Path(found).parent, python.parent) and _is_same(Path(found), python):
            return name
    here = Path.cwd()
    return str(python.relative_to(here) if python.is_relative_to(here) else python)


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
