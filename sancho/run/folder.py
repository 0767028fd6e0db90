"""The folder of a run: two checkpoints, its text, its metrics and their curve."""

import math
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from sancho import checkpoint
from sancho.checkpoint import PRETRAINED, Checkpoint, Origin, Progress
from sancho.config import FolderConfig
from sancho.errors import MissingFile, UserError, note
from sancho.machine.files import FolderLock, atomic_write
from sancho.run import curve, metrics
from sancho.run.learned import CORPUS
from sancho.run.plan import Beginning
from sancho.run.report import Report
from sancho.run.state import TrainingState
from sancho.text.corpus import Corpus, digest

SAVE_SECONDS = 60.0  # between saves, but for the step or evaluation under way


class RunFolder(ExitStack):
    """best.safetensors, last.safetensors, corpus.txt, metrics.jsonl and curve.svg of one run.

    If a run has several processes, only the one that `writes` locks, records and saves; the others
    just read. The folder is locked before anything of an older run in it is read: by `beginning`
    for a run that goes on, by `require_free` if the folder exists, and at the latest by `begin`,
    which makes the folder. The end of the block releases the lock and closes TensorBoard's file.

    Every file carries the id of its run, and the text its digest. A file of one of these names that
    no checkpoint in the folder proves to be a run's is somebody's, and is never touched. A run that
    replaces another takes over its id: what is still there of the old run can be removed later.
    """

    def __init__(self, options: FolderConfig, *, writes: bool = True) -> None:
        super().__init__()
        self.options = options
        self.writes = writes
        self.path = options.out_dir
        if self.path.resolve() == PRETRAINED.parent.resolve():
            raise UserError(f"--out_dir {self.path} is the pretrained model's; choose another")
        self.best = self.path / checkpoint.BEST
        self.last = self.path / checkpoint.LAST
        self.text = self.path / CORPUS
        self.metrics = self.path / "metrics.jsonl"
        self.curve = self.path / "curve.svg"
        self.events = self.path / "tensorboard"
        self.resumes = options.resume and self.last.exists()
        """Whether the run in the folder goes on; otherwise a new one begins."""
        self._run = ""  # the id of the run
        self._lock: FolderLock | None = None
        self._is_refused = False
        """Whether the last save, or a line of metrics after it, was refused."""
        self._writer: Any = None
        self._last_save = time.monotonic()
        self._best_loss = math.inf  # the validation loss of best.safetensors

    def beginning(self) -> Beginning:
        """Return the last checkpoint of the run that goes on, or what --init_from names."""
        if self.resumes:
            self._take()
            return Beginning(checkpoint.load(self.last), resumes=True)
        path = self.options.init_from
        return Beginning(checkpoint.load(checkpoint.find_checkpoint(path)) if path else None)

    def require_free(self) -> None:
        """Raise UserError if the run would replace another one without --overwrite, or any file
        that is no run's."""
        if not self.writes:
            return
        if self.path.exists():
            self._take()
        found = [path for path in (self.last, self.best) if path.exists()]
        runs = [origin.run for path in found if (origin := checkpoint.origin_of(path))]
        self._run = next(filter(None, runs), "")
        if self._run and not (self.resumes or self.options.overwrite):
            ways = f"begin with its model (--init_from {self.best} and another --out_dir), "
            if self.last.exists():
                ways = "go on with it (--resume), "
            ways += "replace it (--overwrite), or choose another --out_dir"
            raise UserError(f"{self.path} holds a run already; {ways}")
        if stranger := next(self._strangers(), None):
            raise UserError(
                f"{stranger} is in the way: no checkpoint in {self.path} says that a run wrote it; "
                "move it away, or choose another --out_dir"
            )

    def begin(self, state: TrainingState, corpus: Corpus, *, tensorboard: bool) -> None:
        """Save a new run before its first step, remove what it replaces, and write its text.

        A run that goes on keeps its files, but for the metrics of steps that it repeats. Raises
        UserError if another run has begun here in the meantime.
        """
        self._corpus = corpus
        if not self.writes:
            return
        self._take()
        self.require_free()
        progress = state.progress
        if not self.resumes:
            self._run = self._run or secrets.token_hex(8)
            checkpoint.save(self.last, self._checkpoint(state))
        if progress.step == 0:
            self._replace_old(progress)
        else:
            self._write_beside(progress)
        self._best_loss = self._loss_of_best(progress)
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # not above: it may be missing

            writer = SummaryWriter(
                str(self.events), purge_step=progress.step + 1, filename_suffix=f".{self._run}"
            )
            self._writer = self.enter_context(writer)

    def _replace_old(self, progress: Progress) -> None:
        """Replace what an older run left beside its checkpoint, which is replaced already.

        A run that was killed here does the rest when it goes on.
        """
        try:
            events = self.events.glob("events.out.tfevents.*")
            for path in (self.best, self.curve, *events):
                path.unlink(missing_ok=True)
            self._write_beside(progress)
        except OSError as error:
            raise UserError(
                f"the new run has its place in {self.path}, but other files there can't be "
                f"replaced ({reason(error)}); once that is fixed, begin again with --overwrite"
            ) from None

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
        """Append a line to metrics.jsonl if the report has losses.

        A line that is refused is lost, and so is one for a folder that is gone until the next save.
        """
        has_losses = report.train_loss is not None or report.val_loss is not None
        if not (self.writes and has_losses):
            return
        record = metrics.as_record(report)
        self._try(lambda: self._append(record))
        if self._writer:
            for name in metrics.METRICS:
                if record[name] is not None:
                    self._writer.add_scalar(name, record[name], report.step)
            self._writer.flush()

    @property
    def is_save_due(self) -> bool:
        """Whether SAVE_SECONDS have passed since the last save, or since the beginning."""
        return time.monotonic() - self._last_save >= SAVE_SECONDS

    def save(self, state: TrainingState) -> None:
        """Write best.safetensors if this model is better, last.safetensors and curve.svg.

        If the system refuses a write, a note says so, and the next save tries again. Raises
        UserError if the folder is now another run's or somebody's.
        """
        if not self.writes:
            return
        self._is_refused = False
        self._try(lambda: self._write(state))
        self._last_save = time.monotonic()

    def retry_save(self, state: TrainingState) -> None:
        """Try again what the last save could not write.

        Raises UserError, with how to go on, if it is refused again.
        """
        if not self._is_refused:
            return
        try:
            self._write(state)
        except (OSError, MemoryError) as error:
            raise UserError(
                f"the run could not be saved at step {state.progress.step} ({reason(error)}); once "
                f"that is fixed, go on with --resume --out_dir {self.path}: what was saved before "
                "is intact"
            ) from None

    def _append(self, record: dict) -> None:
        if self._is_in_place:
            metrics.append_record(self.metrics, record)

    def _try(self, write: Callable[[], None]) -> None:
        """Write something; what the system refuses, or has no memory for, becomes a note."""
        try:
            write()
        except (OSError, MemoryError) as error:
            self._is_refused = True
            note(f"not saved ({reason(error)}); the run goes on, and the next save tries again")

    def _write(self, state: TrainingState) -> None:
        if not self._is_in_place:
            self._make_again(state.progress)
        saved = self._checkpoint(state)
        loss = saved.progress.val_loss
        if saved.progress.is_evaluated and loss is not None and loss < self._best_loss:
            # The best comes first, because the last one records the loss of the best.
            checkpoint.save(self.best, replace(saved, optimizer={}))
            self._best_loss = loss
        checkpoint.save(self.last, saved)
        try:
            self._draw()
        except OSError as error:
            note(f"the curve is not drawn ({reason(error)}); the run is saved")

    def _draw(self) -> None:
        if records := metrics.read_metrics(self.metrics):
            with atomic_write(self.curve) as out:
                out.write(curve.draw_curve(records, self._run).encode())

    def _checkpoint(self, state: TrainingState) -> Checkpoint:
        return replace(state.to_checkpoint(self._corpus), run=self._run)

    def _write_beside(self, progress: Progress) -> None:
        """Write what stands beside a checkpoint from the beginning: the text, and the metrics.

        The text comes first: the metrics of a run that is replaced prove that its text is a run's.
        """
        corpus = self._corpus
        with atomic_write(self.text) as out:
            out.write(corpus.text.encode())
        origin = Origin(self._run, corpus.sha256, corpus.lengths)
        metrics.begin_metrics(self.metrics, origin, progress)

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

    def _strangers(self) -> Iterator[Path]:
        """Yield each file that has a name of a run's files, and is not of this run."""
        events = self.events.glob("events.out.tfevents.*")
        for path in (self.last, self.best, self.text, self.metrics, self.curve, *events):
            if path.exists() and not (self._run and self._is_own(path)):
                yield path

    def _is_own(self, path: Path) -> bool:
        """Return whether a file that is there is of this run, or of the one that it replaces."""
        if path in (self.last, self.best):
            origin = checkpoint.origin_of(path)
            return origin is not None and origin.run == self._run
        if path == self.metrics:
            origin = metrics.origin_of(path)
            return origin is not None and origin.run == self._run
        if path == self.curve:
            return curve.run_of(path) == self._run
        if path == self.text:
            raw = path.read_bytes()
            return any(digest(raw, origin.lengths) == origin.sha256 for origin in self._origins())
        return path.suffix == f".{self._run}"

    def _origins(self) -> Iterator[Origin]:
        """Yield what the files of this run, or of the one that it replaces, say of their text."""
        places = (
            (self.last, checkpoint.origin_of),
            (self.best, checkpoint.origin_of),
            (self.metrics, metrics.origin_of),
        )
        for path, origin_of in places:
            origin = origin_of(path) if path.exists() else None
            if origin and origin.run == self._run:
                yield origin

    def _take(self) -> None:
        """Lock the folder, once."""
        if self.writes and self._lock is None:
            self._lock = FolderLock(self.path)
            self._lock.acquire()
            self.callback(self._let_go)

    def _let_go(self) -> None:
        if self._lock:
            self._lock.release()

    @property
    def _is_in_place(self) -> bool:
        """Whether the folder is still this run's: it has its last checkpoint."""
        return self.last.exists() and self._is_own(self.last)

    def _make_again(self, progress: Progress) -> None:
        """Make the folder again, which was moved or removed.

        Raises UserError if another folder took its place: one that is another run's, or that has
        files in the way.
        """
        if self._lock:
            self._lock.release(is_lost=True)
        self._lock = FolderLock(self.path)
        try:
            self._lock.acquire()
            if stranger := next(self._strangers(), None):
                raise UserError(f"{stranger} is not this run's")
        except UserError as why:
            raise UserError(
                f"the run ends at step {progress.step}, because its folder was moved or replaced: "
                f"{why}. Nothing there was overwritten; its saves lie where its own folder is now"
            ) from None
        self._write_beside(progress)
        if not self.best.exists():
            self._best_loss = math.inf
        note(f"{self.path} is gone; it is made again, to hold the run from this step on")


def reason(error: OSError | MemoryError) -> str:
    """Return why something could not be saved, in a few words."""
    if isinstance(error, MemoryError):
        return "not enough memory"
    return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
