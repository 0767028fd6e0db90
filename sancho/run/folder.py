"""What a run leaves in its folder: two checkpoints, metrics and their curve."""

import json
import time
import warnings
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import FolderConfig
from sancho.corpus import Corpus
from sancho.errors import UserError
from sancho.machine.files import atomic_write, locked, replace
from sancho.run.curve import draw_curve
from sancho.training import Report, TrainingState

SAVE_SECONDS = 60.0  # last.safetensors is never older, so a kill costs no more of a run
FIGURES = "train_loss val_loss val_bpc lr tokens_per_second".split()


class RunFolder:
    """best.safetensors, last.safetensors, metrics.jsonl and curve.svg of one run."""

    def __init__(self, path: Path, *, tensorboard: bool = False) -> None:
        """Raises UserError where TensorBoard's event files are asked for and it is missing."""
        self.path = path
        self.best = path / "best.safetensors"
        self.last = path / "last.safetensors"
        self.metrics = path / "metrics.jsonl"
        self.curve = path / "curve.svg"
        self.events = path / "tensorboard"
        self._writer: Any = None
        self._new_writer: Any = None
        self._last_save = time.monotonic()
        try:
            if tensorboard:
                from torch.utils.tensorboard import SummaryWriter

                self._new_writer = SummaryWriter
        except ImportError:
            advice = "install it (pip install tensorboard), or leave --tensorboard out"
            raise UserError(f"--tensorboard needs the package tensorboard; {advice}") from None

    def lock(self) -> AbstractContextManager[None]:
        """Return a context that keeps other processes out, as `files.locked` does."""
        return locked(self.path)

    def start(self, config: FolderConfig, step: int) -> None:
        """Make the folder ready for a run that goes on after `step`, or else to `begin` one."""
        if config.resume:
            self.go_on(step)
        else:
            self.begin(overwrite=config.overwrite)
        if self._new_writer:  # hides the events of later steps
            self._writer = self._new_writer(str(self.events), purge_step=step + 1)

    def begin(self, *, overwrite: bool = False) -> None:
        """Make the folder ready for a new run. Raises UserError where that would lose another one.

        A folder without a checkpoint has nothing to lose. Only files of a run are removed, and none
        of them unless all can be.
        """
        if not overwrite and (self.best.exists() or self.last.exists()):
            ways = "go on with it (--resume), " if self.last.exists() else ""
            ways += "replace it (--overwrite), or choose another --out_dir"
            raise UserError(f"{self.path} holds a run already; {ways}")
        # The checkpoints last: whatever can't be removed is met before them.
        old = [*self.events.glob("events.out.tfevents.*"), self.curve, self.metrics]
        old += [_beside(self.last), _beside(self.best), self.last, self.best]
        if folders := [path for path in old if path.is_dir() and not path.is_symlink()]:
            advice = "move it away, or choose another --out_dir"
            raise UserError(f"{folders[0]} is a folder where the run keeps a file; {advice}")
        for path in old:
            path.unlink(missing_ok=True)

    def go_on(self, step: int) -> None:
        """Make the folder ready for a run that goes on after `step`: drop what came later."""
        if self.metrics.exists():
            lines = self.metrics.read_bytes().splitlines(keepends=True)
            with atomic_write(self.metrics) as out:
                out.writelines(line for line in lines if _is_until(line, step))

    def load_last(self) -> Checkpoint:
        """Return the last checkpoint that was saved."""
        return checkpoint.load(newest(self.last))

    def record(self, report: Report) -> None:
        """Append a line to metrics.jsonl if the report has figures."""
        if report.train_loss is None:
            return
        names = ("step", "tokens", "seconds", *FIGURES, "sample")
        line = {name: getattr(report, name) for name in names}
        line["seconds"] = round(report.seconds, 3)
        line["tokens_per_second"] = round(report.tokens_per_second)
        with open(self.metrics, "a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(line) + "\n")
        if self._writer:
            for name in FIGURES:
                if line[name] is not None:
                    self._writer.add_scalar(name, line[name], report.step)
            self._writer.flush()

    @property
    def is_save_due(self) -> bool:
        """Whether SAVE_SECONDS have passed since the last save, or since the beginning."""
        return time.monotonic() - self._last_save >= SAVE_SECONDS

    def save(self, state: TrainingState, corpus: Corpus, *, is_best: bool) -> None:
        """Write last.safetensors, best.safetensors if this is the best model so far, curve.svg."""
        if is_best:
            _save(self.best, state.to_checkpoint(corpus, with_optimizer=False))
        elif _beside(self.best).exists():
            with suppress(PermissionError):
                replace(_beside(self.best), self.best)
        _save(self.last, state.to_checkpoint(corpus, with_optimizer=True))
        self._last_save = time.monotonic()
        if self.metrics.exists():
            lines = self.metrics.read_text(encoding="utf-8").splitlines()
            # Where somebody looks at it on Windows, the next save draws it.
            with suppress(PermissionError), atomic_write(self.curve) as out:
                out.write(draw_curve([json.loads(line) for line in lines]).encode())

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._writer:
            self._writer.close()


def newest(path: Path) -> Path:
    """Return where the newest checkpoint is that belongs to `path`: there, or beside it."""
    return _beside(path) if _beside(path).exists() else path


def _beside(path: Path) -> Path:
    return path.with_suffix(".new.safetensors")


def _save(path: Path, saved: Checkpoint) -> None:
    beside = _beside(path)
    try:
        checkpoint.save(path, saved)
    except PermissionError:  # Windows replaces no file that another process has open
        checkpoint.save(beside, saved)
        where = f"the new one is {beside} until that one is closed"
        warnings.warn(f"another program has {path} open; {where}", stacklevel=2)
    else:
        beside.unlink(missing_ok=True)


def _is_until(line: bytes, step: int) -> bool:
    """Return whether a line of metrics is whole and was written up to `step`."""
    with suppress(ValueError, KeyError, TypeError):
        return line.endswith(b"\n") and json.loads(line)["step"] <= step
    return False
