"""What a run leaves in its folder: two checkpoints, metrics and their curve."""

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

from sancho import checkpoint
from sancho.checkpoint import Progress
from sancho.config import FolderConfig
from sancho.corpus import Corpus
from sancho.curve import draw_curve
from sancho.errors import UserError, note
from sancho.files import atomic_write, locked
from sancho.metrics import METRICS, append_record, as_record, read_metrics, trim_metrics
from sancho.plan import Beginning
from sancho.training import Report, TrainingState

SAVE_SECONDS = 60.0  # between saves, but for the step or evaluation under way


class RunFolder(ExitStack):
    """best.safetensors, last.safetensors, metrics.jsonl and curve.svg of one run.

    Of several processes one `writes`: it alone locks, records and saves; the others read what is
    there. The lock is taken before anything of an older run is read or judged: by `beginning` for
    a run that goes on, by `require_free` where the folder is there, and at the latest by `begin`,
    which makes the folder. The end of the block lets go of it, and of TensorBoard's file.
    """

    def __init__(self, options: FolderConfig, *, writes: bool = True) -> None:
        super().__init__()
        self.options = options
        self.writes = writes
        self.path = options.out_dir
        self.best = self.path / checkpoint.BEST
        self.last = self.path / checkpoint.LAST
        self.metrics = self.path / "metrics.jsonl"
        self.curve = self.path / "curve.svg"
        self.events = self.path / "tensorboard"
        self.resumes = options.resume and self.last.exists()
        """Whether the run in the folder goes on; else a new one begins."""
        self._is_refused = False  # the last save, or a line of metrics after it
        self._writer: Any = None
        self._last_save = time.monotonic()
        self._best_loss = math.inf  # of what best.safetensors holds

    def beginning(self) -> Beginning:
        """Return what the run begins from: the last checkpoint of the run that goes on, or what
        --init_from names, or nothing.
        """  # fmt: skip
        if self.resumes:
            self._lock()
            return Beginning(checkpoint.load(self.last), resumes=True)
        path = self.options.init_from
        return Beginning(checkpoint.load(checkpoint.find_checkpoint(path)) if path else None)

    def require_free(self) -> None:
        """Raise UserError where a new run would take the place of another unasked."""
        if self.path.exists():
            self._lock()
        is_taken = self.best.exists() or self.last.exists()
        if self.writes and is_taken and not (self.resumes or self.options.overwrite):
            ways = f"begin with its model (--init_from {self.best}, another --out_dir), "
            if self.last.exists():
                ways = "go on with it (--resume), "
            ways += "replace it (--overwrite), or choose another --out_dir"
            raise UserError(f"{self.path} holds a run already; {ways}")

    def begin(self, progress: Progress, *, tensorboard: bool) -> None:
        """Remove the files of an old run; where it goes on, the metrics of what is done again.

        Nothing else in the folder is touched.
        """
        if not self.writes:
            return
        self._lock()
        if self.resumes:
            trim_metrics(self.metrics, progress)
            with suppress(UserError):  # it may be missing
                self._best_loss = checkpoint.load(self.best).progress.val_loss or math.inf
        else:
            # The checkpoints last: where another file can't be removed, they are still there.
            events = self.events.glob("events.out.tfevents.*")
            for path in (*events, self.curve, self.metrics, self.last, self.best):
                path.unlink(missing_ok=True)
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # not above: it may be missing

            writer = SummaryWriter(str(self.events), purge_step=progress.step + 1)
            self._writer = self.enter_context(writer)

    def _lock(self) -> None:
        if self.writes:
            self.enter_context(locked(self.path))

    def record(self, report: Report) -> None:
        """Append a line to metrics.jsonl if the report has losses; one that is refused is lost."""
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

        What the system refuses is told, and tried at the next save.
        """
        if not self.writes:
            return
        self._is_refused = False
        with self._noting_refusals():
            self._write(state, corpus)
        self._last_save = time.monotonic()

    def retry_save(self, state: TrainingState, corpus: Corpus) -> None:
        """Try again what the last save could not write. Raises OSError if it is refused again."""
        if self._is_refused:
            self._write(state, corpus)

    def _write(self, state: TrainingState, corpus: Corpus) -> None:
        saved = state.to_checkpoint(corpus)
        loss = saved.progress.val_loss
        if saved.progress.is_evaluated and loss is not None and loss < self._best_loss:
            # The best first: the last one says how good that is.
            checkpoint.save(self.best, replace(saved, optimizer={}))
            self._best_loss = loss
        checkpoint.save(self.last, saved)
        if records := read_metrics(self.metrics):
            with atomic_write(self.curve) as out:
                out.write(draw_curve(records).encode())

    @contextmanager
    def _noting_refusals(self) -> Iterator[None]:
        """Turn what the system refuses to write into a note.

        A folder that is gone, moved or removed, is made again, without what was in it.
        """
        try:
            if not self.path.exists():
                self.path.mkdir(parents=True)
                self._best_loss = math.inf
                note(f"{self.path} is gone: it is made again, and holds the run from here on")
            yield
        except OSError as error:
            self._is_refused = True
            why = f"{error.strerror}: {error.filename or self.path}"
            note(f"not saved ({why}); the run goes on, and the next save tries again")
