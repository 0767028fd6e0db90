"""What a run leaves in its folder: two checkpoints, metrics and their curve."""

import json
import time
import warnings
from contextlib import ExitStack, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.corpus import Corpus
from sancho.errors import UserError
from sancho.machine.files import atomic_write, locked, replace
from sancho.run.curve import draw_curve
from sancho.training import Report, TrainingState

SAVE_SECONDS = 60.0  # last.safetensors is never older, so a kill costs no more of a run
FIGURES = "train_loss val_loss val_bpc lr tokens_per_second".split()


class RunFolder:
    """best.safetensors, last.safetensors, metrics.jsonl and curve.svg of one run.

    A context manager: at the end of its block it lets go of the lock and of TensorBoard's file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.best = self.path / "best.safetensors"
        self.last = self.path / "last.safetensors"
        self.metrics = self.path / "metrics.jsonl"
        self.curve = self.path / "curve.svg"
        self.events = self.path / "tensorboard"
        self._until_end = ExitStack()
        self._writer: Any = None
        self._last_save = time.monotonic()
        self._unsaved_best: Checkpoint | None = None
        self._refused: list[Path] = []  # what the last save could not replace

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *exception: object) -> None:
        self._until_end.close()

    def lock(self) -> None:
        """Keep other processes out until the end of the block, as `files.locked` does."""
        self._until_end.enter_context(locked(self.path))
        for path in (self.best, self.last):
            newer = path.with_suffix(".new.safetensors")  # which version 2.0 left on Windows
            if newer.exists():
                replace(newer, path)

    def begin(self, *, overwrite: bool = False) -> None:
        """Make the folder ready for a new run. Raises UserError where that would lose another one.

        A folder without a checkpoint has nothing to lose. Only files of a run are removed.
        """
        self.lock()
        if not overwrite and (self.best.exists() or self.last.exists()):
            ways = "go on with it (--resume), " if self.last.exists() else ""
            ways += "replace it (--overwrite), or choose another --out_dir"
            raise UserError(f"{self.path} holds a run already; {ways}")
        # The checkpoints last: whatever can't be removed is met before them.
        old = [*self.events.glob("events.out.tfevents.*"), self.curve, self.metrics]
        old += [self.last, self.best]
        for path in old:
            if path.is_dir() and not path.is_symlink():
                advice = "move it away, or choose another --out_dir"
                raise UserError(f"{path} is a folder where the run keeps a file; {advice}")
        for path in old:
            path.unlink(missing_ok=True)

    def go_on(self, step: int, evaluated_step: int) -> None:
        """Make the folder ready for a run that goes on after `step`: drop what came later.

        evaluated_step: that of the last evaluation that was saved; a later one is made again.
        """
        self.lock()
        if self.metrics.exists():
            lines = self.metrics.read_bytes().splitlines(keepends=True)
            with atomic_write(self.metrics) as out:
                out.writelines(line for line in lines if _is_until(line, step, evaluated_step))

    def write_events(self, step: int) -> None:
        """Write event files for TensorBoard, too, from now on; hide those after `step`."""
        from torch.utils.tensorboard import SummaryWriter  # not above: it may not be installed

        self._writer = SummaryWriter(str(self.events), purge_step=step + 1)
        self._until_end.callback(self._writer.close)

    def load_last(self) -> Checkpoint:
        """Return the last checkpoint that was saved."""
        return checkpoint.load(self.last)

    def record(self, report: Report) -> None:
        """Append a line to metrics.jsonl if the report has losses."""
        if report.train_loss is None and report.val_loss is None:
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
        """Write last.safetensors, best.safetensors if this is the best model so far, curve.svg.

        What the system refuses to replace, as Windows does while another program has it open, is
        tried again at the next save. The best model waits for that in memory.
        """
        self._refused = []
        if is_best:
            self._unsaved_best = state.to_checkpoint(corpus, with_optimizer=False)
        # Before the last one, which says how good the best one is.
        if self._unsaved_best and self._try_save(self.best, self._unsaved_best):
            self._unsaved_best = None
        elif is_best:
            self._unsaved_best = deepcopy(self._unsaved_best)  # they share memory with the state
        self._try_save(self.last, state.to_checkpoint(corpus, with_optimizer=True))
        self._last_save = time.monotonic()
        if self._refused:
            names = " and ".join(path.name for path in self._refused)
            warnings.warn(
                f"another program has {names} in {self.path} open; close it, the next save tries "
                "again",
                stacklevel=2,
            )
        lines = (
            self.metrics.read_text(encoding="utf-8").splitlines() if self.metrics.exists() else []
        )
        if lines:
            # If another program has it open on Windows, the next save draws it.
            with suppress(PermissionError), atomic_write(self.curve) as out:
                out.write(draw_curve([json.loads(line) for line in lines]).encode())

    def _try_save(self, path: Path, saved: Checkpoint) -> bool:
        try:
            checkpoint.save(path, saved)
        except PermissionError:  # Windows replaces no file that another process has open
            self._refused.append(path)
            return False
        return True

    def finish(self, state: TrainingState, corpus: Corpus) -> None:
        """Try again what the last save could not replace.

        Raises UserError where it still can't be; it says which file is whole.
        """
        if self._refused:
            self.save(state, corpus, is_best=False)
        if not self._refused:
            return
        names = " and ".join(path.name for path in self._refused)
        whole = "neither is new"
        if self.last not in self._refused:
            whole = f"{self.last} has the newest model, and --resume goes on from it"
        elif self.best not in self._refused:
            whole = f"{self.best} is the best model, whole; --resume goes on from an older step"
        raise UserError(f"another program has {names} in {self.path} open: not saved; {whole}")


def _is_until(line: bytes, step: int, evaluated_step: int) -> bool:
    """Return whether a line of metrics is whole and was written up to these steps."""
    with suppress(ValueError, KeyError, TypeError):
        record = json.loads(line)
        last = step if record["val_loss"] is None else evaluated_step
        return line.endswith(b"\n") and record["step"] <= last
    return False
