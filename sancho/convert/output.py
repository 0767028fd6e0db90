"""New files and folders for the output of a conversion, written completely or not at all."""

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from sancho.checkpoint import Checkpoint
from sancho.errors import OtherFunction, UserError
from sancho.machine.files import locked, sync_folder
from sancho.numpy_model import NumpyGPT
from sancho.shared.weights import require_choices

REPLACES_FOLDERS = os.name != "nt"
"""Whether a folder can take the place of an empty one; on Windows it can't."""


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
    export removes what is left. There may be an empty folder at `path`, which stays until then.
    Raises UserError if there is anything else, if another process is making the folder, or if the
    system does not let it take its place, and OSError if the disk can't be written.
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
                shutil.rmtree(place / path.name, ignore_errors=True)
                with suppress(OSError):
                    (place / ".lock").unlink()
    finally:
        with suppress(OSError):
            # Windows removes no lock that is held; it may be another process's; and somebody may
            # keep files of their own in a folder of that name.
            place.rmdir()


def _written(new: Path, path: Path) -> Iterator[Path]:
    """Make a folder, yield it, and then move it to `path`."""
    shutil.rmtree(new, ignore_errors=True)  # left by a killed process
    new.mkdir()
    yield new
    for written in new.iterdir():
        with open(written, "rb+") as file:
            os.fsync(file.fileno())
    sync_folder(new)
    _put(new, path)
    sync_folder(path.parent)


def _put(new: Path, path: Path) -> None:
    """Move a folder to where nothing is, or an empty folder.

    Raises UserError if the system refuses that.
    """
    is_removed = path.is_dir() and not REPLACES_FOLDERS
    try:
        if is_removed:
            path.rmdir()
        new.replace(path)
    except OSError as error:
        if is_removed:
            path.mkdir(exist_ok=True)
        raise UserError(
            f"--output {path}: the system does not let the new folder take its place "
            f"({error.strerror}); what was there is there still; choose another name"
        ) from None
