"""Commands of this project, with its interpreter, that work when they are pasted in a shell."""

import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def quoted(word: str | Path) -> str:
    """Return a word, quoted for the shell if it has to be."""
    if os.name == "nt":
        return subprocess.list2cmdline([str(word)])
    return shlex.quote(str(word))


def python() -> str:
    """Return this interpreter as it was started, or by its path if that would start another."""
    ours = Path(sys.executable)
    started = sys.orig_argv[0] if sys.orig_argv else ""
    found = shutil.which(started)
    # Environments may link to the same interpreter; only the folder tells them apart.
    if found and Path(found).absolute().parent == ours.parent:
        with suppress(OSError):
            if ours.samefile(found):
                return quoted(started)
    return quoted(ours)


def command(script: str, *words: str | Path, launcher: str = "") -> str:
    """Return the command that starts a script of this project, such as "sample.py".

    words: its options. launcher: words between the interpreter and the script.
    """
    path = str(ROOT / script)
    with suppress(ValueError):  # on another drive
        path = min(os.path.relpath(path), path, key=len)
    parts = [python(), launcher, quoted(path), *map(quoted, words)]
    return " ".join(part for part in parts if part)


def resume_command(out_dir: Path, processes: int) -> str:
    """Return the command that resumes a run of train.py, with torchrun if it had processes."""
    if os.environ.get("GROUP_WORLD_SIZE", "1") != "1" and processes > 1:
        return "start it again as before on each machine, with --resume"
    torchrun = f"-m torch.distributed.run --nproc_per_node {processes}" if processes > 1 else ""
    return command("train.py", "--resume", "--out_dir", out_dir, launcher=torchrun)
