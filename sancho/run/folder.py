"""What a run leaves in its folder: two checkpoints, metrics and their curve, its configuration."""

import json
import math
import time
import warnings
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import TrainOptions
from sancho.corpus import Corpus
from sancho.errors import MissingFile, UserError
from sancho.machine.distributed import launch
from sancho.machine.files import atomic_write, locked, replace
from sancho.run.curve import draw_curve
from sancho.training import Report, TrainingState

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

SAVE_SECONDS = 60.0
"""last.safetensors is never older than this, so a kill costs no more of a run."""


class RunFolder:
    """best.safetensors, last.safetensors, metrics.jsonl, curve.svg and config.json of one run."""

    def __init__(self, path: Path, *, tensorboard: bool = False) -> None:
        """Raises UserError where TensorBoard's event files are asked for and it is missing."""
        self.path = path
        self.best = path / "best.safetensors"
        self.last = path / "last.safetensors"
        self.metrics = path / "metrics.jsonl"
        self.curve = path / "curve.svg"
        self.config = path / "config.json"
        self.events = path / "tensorboard"
        self.launch = path / ".launch"
        self._new_writer = _find_tensorboard() if tensorboard else None
        self._writer: SummaryWriter | None = None
        self._last_save = time.monotonic()

    def held(self) -> AbstractContextManager[None]:
        """Return a context that keeps other processes out; it makes the folder if it is missing.

        Entering it raises UserError where another process is there, or where it can't be written.
        """
        return locked(self.path)

    def start(self, options: TrainOptions, step: int) -> None:
        """Make the folder ready for a run that goes on from `step`, or for a new one: `begin`."""
        if options.run.resume:
            self.truncate_metrics(step)
        else:
            self.begin(options)

    def begin(self, options: TrainOptions) -> None:
        """Make the folder ready for a new run. Raises UserError where that would lose another one.

        A folder without a checkpoint has nothing to lose. Nothing is removed unless all of the old
        run can be.
        """
        if not options.run.overwrite and (self.best.exists() or self.last.exists()):
            raise UserError(
                f"{self.path} holds a run already; go on with it (--resume), replace it "
                "(--overwrite), or choose another --out_dir"
            )
        # The checkpoints last: whatever can't be removed is met before them.
        old = [*self.events.glob("*"), self.curve, self.metrics, self.config]
        old += [_beside(self.last), _beside(self.best), self.last, self.best]
        for path in old:
            if path.is_dir() and not path.is_symlink():
                raise UserError(
                    f"{path} is a folder where the run keeps a file; move it away, or choose "
                    "another --out_dir"
                )
        for path in old:
            path.unlink(missing_ok=True)
        with atomic_write(self.config) as out:
            out.write(json.dumps(asdict(options), indent=1, default=str).encode())
        self._note_start(0)

    def truncate_metrics(self, step: int) -> None:
        """Drop later steps and incomplete lines."""
        if self.metrics.exists():
            lines = self.metrics.read_bytes().splitlines(keepends=True)
            with atomic_write(self.metrics) as out:
                out.writelines(line for line in lines if _step_of(line) <= step)
        self._note_start(step)

    def load_last(self) -> Checkpoint:
        """Return the last checkpoint. Raises MissingFile where there is none."""
        if not self.last.exists():
            instead = "replace what is there (--overwrite)" if self.best.exists() else "start one"
            raise MissingFile(
                f"{self.path} holds no run to resume ({self.last.name} is missing); "
                f"{instead} without --resume"
            )
        return checkpoint.load(newest(self.last))

    def record(self, report: Report) -> None:
        """Append a line to metrics.jsonl if the report has figures."""
        if report.train_loss is None:
            return
        line = {
            "step": report.step,
            "tokens": report.tokens,
            "seconds": round(report.seconds, 3),
            "train_loss": report.train_loss,
            "val_loss": report.val_loss,
            "val_bpc": report.val_bpc,
            "lr": report.lr,
            "tokens_per_second": round(report.tokens_per_second),
            "sample": report.sample,
        }
        with open(self.metrics, "a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(line) + "\n")
        if self._writer:
            for name in ("train_loss", "val_loss", "val_bpc", "lr", "tokens_per_second"):
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

    def _note_start(self, step: int) -> None:
        """Note which torchrun it is, if any, and begin a file of events that hides later ones."""
        self.launch.unlink(missing_ok=True)
        if name := launch():
            self.launch.write_text(name, encoding="utf-8")
        if self._new_writer:
            self._writer = self._new_writer(str(self.events), purge_step=step + 1)

    def close(self) -> None:
        """Write what TensorBoard has not written yet, and let go of its file."""
        if self._writer:
            self._writer.close()

    def started_by(self, launch: str | None) -> bool:
        """Whether the run here was begun, or gone on with, by this very torchrun."""
        return bool(launch) and self.launch.exists() and self.launch.read_text("utf-8") == launch


def newest(path: Path) -> Path:
    """Return where the newest checkpoint is that belongs to `path`: there, or beside it."""
    return _beside(path) if _beside(path).exists() else path


def _beside(path: Path) -> Path:
    return path.with_suffix(".new.safetensors")


def _save(path: Path, saved: Checkpoint) -> None:
    """Write a checkpoint; beside `path`, with a warning, where another process keeps `path` open.

    So it is on Windows alone, where an open file can't be replaced.
    """
    beside = _beside(path)
    try:
        checkpoint.save(path, saved)
    except PermissionError:
        checkpoint.save(beside, saved)
        warnings.warn(
            f"{path} can't be replaced, another program has it open; the new one is {beside} "
            "until that one is closed",
            stacklevel=2,
        )
    else:
        beside.unlink(missing_ok=True)


def _find_tensorboard() -> "type[SummaryWriter]":
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            "--tensorboard needs the package tensorboard; install it (pip install tensorboard), "
            "or leave --tensorboard out"
        ) from None
    return SummaryWriter


def _step_of(line: bytes) -> float:
    """Return the step of a line of metrics; a torn line counts as never reached."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf
    return step if isinstance(step, int) and line.endswith(b"\n") else math.inf
