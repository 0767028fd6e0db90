"""What a run leaves in its folder: two checkpoints, metrics and their curve."""

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from sancho import checkpoint
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import FolderConfig
from sancho.corpus import Corpus
from sancho.curve import draw_curve
from sancho.errors import MissingFile, UserError, note
from sancho.files import FolderLock, atomic_write
from sancho.metrics import METRICS, append_record, as_record, read_metrics, trim_metrics
from sancho.plan import Beginning
from sancho.training import Report, TrainingState

SAVE_SECONDS = 60.0  # between saves, but for the step or evaluation under way


class RunFolder(ExitStack):
    """best.safetensors, last.safetensors, metrics.jsonl and curve.svg of one run.

    If a run has several processes, only the one that `writes` locks, records and saves; the others
    just read. The folder is locked before anything of an older run in it is read: by `beginning`
    for a run that goes on, by `require_free` if the folder exists, and at the latest by `begin`,
    which makes the folder. The end of the block releases the lock and closes TensorBoard's file.

    Before each write, the run checks whether its folder was moved, removed or replaced. If so, it
    goes on in a new folder of that name, or beside it if the name now belongs to another run.
    """

    def __init__(self, options: FolderConfig, *, writes: bool = True) -> None:
        super().__init__()
        self.options = options
        self.writes = writes
        self._go_to(options.out_dir)
        self.resumes = options.resume and self.last.exists()
        """Whether the run in the folder goes on; otherwise a new one begins."""
        self._lock: FolderLock | None = None
        self._own: set[tuple[int, int, int]] = set()  # stamps of this run's checkpoints
        self._is_refused = False
        """Whether the last save, or a line of metrics after it, was refused."""
        self._writer: Any = None
        self._last_save = time.monotonic()
        self._best_loss = math.inf  # the validation loss of best.safetensors

    def _go_to(self, path: Path) -> None:
        self.path = path
        self.best = path / checkpoint.BEST
        self.last = path / checkpoint.LAST
        self.metrics = path / "metrics.jsonl"
        self.curve = path / "curve.svg"
        self.events = path / "tensorboard"

    def beginning(self) -> Beginning:
        """Return the last checkpoint of the run that goes on, or what --init_from names."""
        if self.resumes:
            self._take()
            return Beginning(checkpoint.load(self.last), resumes=True)
        path = self.options.init_from
        return Beginning(checkpoint.load(checkpoint.find_checkpoint(path)) if path else None)

    def require_free(self) -> None:
        """Raise UserError if a new run would replace another one without --overwrite."""
        if not self.writes:
            return
        if self.path.exists():
            self._take()
        is_taken = self.best.exists() or self.last.exists()
        if is_taken and not (self.resumes or self.options.overwrite):
            ways = f"begin with its model (--init_from {self.best} and another --out_dir), "
            if self.last.exists():
                ways = "go on with it (--resume), "
            ways += "replace it (--overwrite), or choose another --out_dir"
            raise UserError(f"{self.path} holds a run already; {ways}")

    def begin(self, progress: Progress, *, tensorboard: bool) -> None:
        """Remove the files of an old run, or from a run that goes on the metrics of repeated steps.

        Nothing else in the folder is touched. Raises UserError if another run has begun here in
        the meantime.
        """
        if not self.writes:
            return
        self._take()
        self.require_free()
        if self.resumes:
            trim_metrics(self.metrics, progress)
            self._own = stamps_of(self.path)
            self._best_loss = self._loss_of_best(progress)
        else:
            # The checkpoints come last: if another file can't be removed, they are still there.
            events = self.events.glob("events.out.tfevents.*")
            for path in (*events, self.curve, self.metrics, self.last, self.best):
                path.unlink(missing_ok=True)
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # not above: it may be missing

            writer = SummaryWriter(str(self.events), purge_step=progress.step + 1)
            self._writer = self.enter_context(writer)

    def _loss_of_best(self, progress: Progress) -> float:
        """Return the validation loss of best.safetensors; a damaged file is renamed."""
        try:
            return checkpoint.load(self.best).progress.val_loss or math.inf
        except MissingFile:
            if progress.best_val_loss is not None:
                note(f"{self.best} is missing; the next evaluation makes a new one")
        except UserError as why:
            aside = self.best.with_name(f"{self.best.name}.damaged")
            self.best.replace(aside)
            note(f"{why}; it was renamed to {aside}, and the next evaluation makes a new one")
        return math.inf

    def result(self) -> Checkpoint:
        """Return the best checkpoint, or if it can't be read the last one, with a note."""
        try:
            return checkpoint.load(checkpoint.find_checkpoint(self.path))
        except MissingFile:
            raise
        except UserError as why:
            note(f"{why}; using {self.last} instead")
            return checkpoint.load(self.last)

    def record(self, report: Report) -> None:
        """Append a line to metrics.jsonl if the report has losses; a refused line is lost."""
        has_losses = report.train_loss is not None or report.val_loss is not None
        if not (self.writes and has_losses):
            return
        record = as_record(report)
        with self._noting_refusals():
            append_record(self.metrics, record)
        if self._writer:
            for name in METRICS:
                if record[name] is not None:
                    self._writer.add_scalar(name, record[name], report.step)
            self._writer.flush()

    @property
    def is_save_due(self) -> bool:
        """Whether SAVE_SECONDS have passed since the last save, or since the beginning."""
        return time.monotonic() - self._last_save >= SAVE_SECONDS

    def save(self, state: TrainingState, corpus: Corpus) -> None:
        """Write best.safetensors if this model is better, last.safetensors and curve.svg.

        If the system refuses a write, a note says so, and the next save tries again.
        """
        if not self.writes:
            return
        self._is_refused = False
        with self._noting_refusals():
            self._write(state, corpus)
        self._last_save = time.monotonic()

    def retry_save(self, state: TrainingState, corpus: Corpus) -> None:
        """Try again what the last save could not write.

        Raises UserError, with how to go on, if it is refused again.
        """
        if not self._is_refused:
            return
        try:
            self._stay()
            self._write(state, corpus)
        except (OSError, MemoryError) as error:
            how = "start the run again: nothing of it is saved"
            if self.last.exists():
                how = f"go on with --resume --out_dir {self.path}: what was saved before is intact"
            raise UserError(
                f"the run could not be saved at step {state.progress.step} ({reason(error)}); "
                f"once that is fixed, {how}"
            ) from None

    def _write(self, state: TrainingState, corpus: Corpus) -> None:
        saved = state.to_checkpoint(corpus)
        loss = saved.progress.val_loss
        try:
            if saved.progress.is_evaluated and loss is not None and loss < self._best_loss:
                # The best comes first, because the last one records the loss of the best.
                checkpoint.save(self.best, replace(saved, optimizer={}))
                self._best_loss = loss
            checkpoint.save(self.last, saved)
        finally:
            self._own = stamps_of(self.path)
        if records := read_metrics(self.metrics):
            with atomic_write(self.curve) as out:
                out.write(draw_curve(records).encode())

    @contextmanager
    def _noting_refusals(self) -> Iterator[None]:
        """Turn what the system refuses to write, or has no memory for, into a note."""
        try:
            self._stay()
            yield
        except (OSError, MemoryError) as error:
            self._is_refused = True
            note(f"not saved ({reason(error)}); the run goes on, and the next save tries again")

    def _take(self) -> None:
        """Lock the folder, once."""
        if self.writes and self._lock is None:
            self._lock = FolderLock(self.path)
            self._lock.acquire()
            self.callback(self._let_go)

    def _let_go(self) -> None:
        if self._lock:
            self._lock.release()

    def _stay(self) -> None:
        """Make sure that the folder is still this run's, or else take another one.

        The other one has the same name, if that is free, or the name with a number behind it.
        """
        if self._lock is None or self._lock.is_in_place():
            return
        was_there = self.path.exists()
        self._lock.release()
        first = self.options.out_dir
        first = first if first.name else first.absolute()  # "." has no name
        beside = (first.with_name(f"{first.name}-{number}") for number in count(2))
        for path in chain([self.path], beside):
            lock = FolderLock(path)
            if lock.try_acquire():
                if stamps_of(path) <= self._own:  # no checkpoint of another run is there
                    break
                lock.release()
        if path != self.path:
            note(f"{self.path} now belongs to another run; this run goes on in {path}")
        elif not was_there:
            note(f"{self.path} is gone; it is made again, to hold the run from this step on")
        self._lock = lock
        self._go_to(path)
        if not self.best.exists():
            self._best_loss = math.inf


def stamps_of(path: Path) -> set[tuple[int, int, int]]:
    """Return device, inode and time of each checkpoint in a folder, to recognise it again."""
    checkpoints = (path / checkpoint.BEST, path / checkpoint.LAST)
    found = [each.stat() for each in checkpoints if each.exists()]
    return {(each.st_dev, each.st_ino, each.st_mtime_ns) for each in found}


def reason(error: OSError | MemoryError) -> str:
    """Return why something could not be saved, in a few words."""
    if isinstance(error, MemoryError):
        return "not enough memory"
    return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
