"""New files and folders for the output of a conversion, written completely or not at all."""

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from sancho.checkpoint import Checkpoint
from sancho.errors import OtherFunction, UserError
from sancho.files import locked, sync_folder
from sancho.numpy_model import NumpyGPT
from sancho.weights import require_choices


def check_new(path: str | Path) -> None:
    """Raise UserError unless `path` is new and its folder exists."""
    path = Path(path)
    if not path.parent.is_dir():
        raise UserError(f"--output {path}: the folder {path.parent} does not exist; make it first")
    if path.exists() or path.is_symlink():
        raise UserError(f"--output {path} exists already; choose another name")


def require_computed(
    saved: Checkpoint, choices: Mapping[str, Collection[str]], implementation: str
) -> NumpyGPT:
    """Return the model in NumPy, with whose logits an export can be compared.

    choices: for each option, the names that the export's own code knows; that code is in the file
    `implementation`. Raises OtherFunction for a model that the export, or NumPy, can't compute.
    """
    try:
        require_choices(saved.model_config, choices, implementation)
        return saved.build_numpy()
    except OtherFunction as why:
        advice = 'docs/changing.md says under "An activation of your own" what to change'
        raise OtherFunction(f"the model can't be exported: {why}; {advice}") from None


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """Make a folder beside `path` to write files in; it becomes `path` when the block ends well.

    If the block is interrupted, nothing is left of the folder; if the process is killed, the next
    export removes what is left. There may be an empty folder at `path`.
    Raises UserError if there is anything else, or if another process is making the folder, and
    OSError if the disk can't be written.
    """
    path = Path(path)
    is_folder = path.is_dir()
    if is_folder and any(path.iterdir()):
        raise UserError(f"--output {path} is a folder that is not empty; choose another name")
    if is_folder and (path.is_symlink() or path.samefile(os.curdir)):
        raise UserError(f"--output {path} is the current folder or a link; choose another name")
    if not is_folder:
        check_new(path)
    place = path.with_name(f"{path.name}.sancho-new")  # atomic_write has another name, for files
    try:
        with locked(place):
            try:
                yield from _written(place / path.name, path)
            finally:
                shutil.rmtree(place, ignore_errors=True)
    finally:
        with suppress(OSError):
            place.rmdir()  # Windows removes no lock that is held; and it may be another process's


def _written(new: Path, path: Path) -> Iterator[Path]:
    """Make a folder, yield it, and then move it to `path`."""
    shutil.rmtree(new, ignore_errors=True)  # left by a killed process
    new.mkdir()
    yield new
    for written in new.iterdir():
        with open(written, "rb+") as file:
            os.fsync(file.fileno())
    sync_folder(new)
    if path.is_dir():
        path.rmdir()  # Windows replaces no folder
    new.replace(path)
    sync_folder(path.parent)
