"""Where a conversion writes: new files and folders, whole or not at all."""

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
    """Raise UserError unless `path` can be made: its folder is there and itself is not."""
    path = Path(path)
    if not path.parent.is_dir():
        raise UserError(f"--output {path}: the folder {path.parent} does not exist; make it first")
    if path.exists() or path.is_symlink():
        raise UserError(f"--output {path} exists already; choose another name")


def require_computed(
    saved: Checkpoint, choices: Mapping[str, Collection[str]], implementation: str
) -> NumpyGPT:
    """Return the model in NumPy, whose logits stand for those of an export.

    choices: the names of each option that the export's own code, in the file `implementation`,
    knows. Raises OtherFunction for a model that the export, or NumPy, would not compute.
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

    Whatever interrupts the block, nothing is left of it, or nothing that the next export does not
    remove, where the process was killed. An empty folder may stand at `path`.
    Raises UserError where something else does, or where another process is making it; OSError where
    the disk cannot be written.
    """
    path = Path(path)
    is_folder = path.is_dir()
    if is_folder and any(path.iterdir()):
        raise UserError(f"--output {path} is a folder that is not empty; choose another name")
    if is_folder and (path.is_symlink() or path.samefile(os.curdir)):
        raise UserError(f"--output {path} is the current folder or a link; choose another name")
    if not is_folder:
        check_new(path)
    place = path.with_name(f"{path.name}.sancho-new")  # not that of a file, as in atomic_write
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
    """Make a folder, hand it out, and let what was written there take the place of `path`."""
    shutil.rmtree(new, ignore_errors=True)  # what a killed process has left
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
