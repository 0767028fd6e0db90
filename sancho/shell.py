"""Commands as they work when they are pasted: the interpreter and the scripts of this project."""

import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def quoted(word: str | Path) -> str:
    """Return a word as it is typed in a shell."""
    if os.name == "nt":
        return subprocess.list2cmdline([str(word)])
    return shlex.quote(str(word))


def python() -> str:
    """Return this interpreter as it is typed: as it was started, if that leads to it from here."""
    ours = Path(sys.executable)
    started = sys.orig_argv[0] if sys.orig_argv else ""
    found = shutil.which(started)
    # Environments may share one interpreter by links: it is the folder that tells them apart.
    if found and Path(found).absolute().parent == ours.parent:
        with suppress(OSError):
            if ours.samefile(found):
                return quoted(started)
    return quoted(ours)


def command(script: str, *words: str | Path, launcher: str = "") -> str:
    """Return what is typed to start a script of this project, as "sample.py", with its options.

    launcher: what stands between the interpreter and the script.
    """
    path = str(ROOT / script)
    with suppress(ValueError):  # on another drive
        path = min(os.path.relpath(path), path, key=len)
    parts = [python(), launcher, quoted(path), *map(quoted, words)]
    return " ".join(part for part in parts if part)


def resume_command(out_dir: Path, processes: int) -> str:
    """Return how a run of train.py is started again, by itself or by torchrun."""
    if os.environ.get("GROUP_WORLD_SIZE", "1") != "1" and processes > 1:
        return "start it again as before on each machine, with --resume"
    torchrun = f"-m torch.distributed.run --nproc_per_node {processes}" if processes > 1 else ""
    return command("train.py", "--resume", "--out_dir", out_dir, launcher=torchrun)
