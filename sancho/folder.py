"""What a run leaves in its folder: two checkpoints, metrics and their curve."""

import json
import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

from sancho import checkpoint
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import FolderConfig
from sancho.corpus import Corpus
from sancho.curve import draw_curve, read_metrics
from sancho.errors import UserError, note
from sancho.files import atomic_write, locked
from sancho.training import Report, TrainingState

SAVE_SECONDS = 60.0  # between saves, but for the step or evaluation under way
FIGURES = "train_loss val_loss val_bpc lr tokens_per_second".split()


class RunFolder(ExitStack):
    """best.safetensors, last.safetensors, metrics.jsonl and curve.svg of one run.

    At the end of its block it lets go of the lock and of TensorBoard's file. Of several processes
    one `writes`; the others may only load what is there.
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

    def load_last(self) -> Checkpoint:
        """Lock the folder and return the checkpoint that its run goes on from."""
        if self.writes:
            self.enter_context(locked(self.path))
        return checkpoint.load(self.last)

    def claim(self) -> None:
        """Lock the folder, if it is there.

        Raises UserError where a new run would take the place of another unasked.
        """
        if self.path.exists():
            self.enter_context(locked(self.path))
        is_taken = self.best.exists() or self.last.exists()
        if is_taken and not (self.resumes or self.options.overwrite):
            ways = f"begin with its model (--init_from {self.best}, another --out_dir), "
            if self.last.exists():
                ways = "go on with it (--resume), "
            ways += "replace it (--overwrite), or choose another --out_dir"
            raise UserError(f"{self.path} holds a run already; {ways}")

    def make_room(self, progress: Progress, *, tensorboard: bool) -> None:
        """Lock the folder; remove the old run in it, or of one that resumes what comes later.

        Only files of a run are removed.
        """
        self.enter_context(locked(self.path))
        if self.resumes:
            self._trim_metrics(progress)
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

    def _trim_metrics(self, progress: Progress) -> None:
        """Drop the lines of what is done again: later steps, and the evaluation that comes next."""
        kept = []
        for record in read_metrics(self.metrics):
            is_evaluation = record.get("val_loss") is not None
            last = progress.step - (is_evaluation and not progress.is_evaluated)
            if record["step"] <= last:
                kept.append(json.dumps(record) + "\n")
        with atomic_write(self.metrics) as out:
            out.write("".join(kept).encode())

    def record(self, report: Report) -> None:
        """Append a line to metrics.jsonl if the report has losses; one that is refused is lost."""
        if report.train_loss is None and report.val_loss is None:
            return
        names = ("step", "tokens", "seconds", *FIGURES, "sample")
        line = {name: getattr(report, name) for name in names}
        line["seconds"] = round(report.seconds, 3)
        line["tokens_per_second"] = round(report.tokens_per_second)
        with (
            self._noting_refusals(),
            open(self.metrics, "a", encoding="utf-8", newline="\n") as file,
        ):
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

    def save(self, state: TrainingState, corpus: Corpus) -> None:
        """Write best.safetensors if this model is better, last.safetensors and curve.svg.

        What the system refuses is told, and tried at the next save.
        """
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
