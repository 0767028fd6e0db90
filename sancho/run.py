"""What a run leaves in its folder: two checkpoints, its metrics, its configuration."""

import json
import math
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import ModelConfig, TrainOptions, differences
from sancho.corpus import Corpus, recode
from sancho.errors import MissingFile, UserError
from sancho.files import atomic_write, locked
from sancho.runtime import Runtime
from sancho.training import Report, TrainingState


class RunFolder:
    """best.safetensors, last.safetensors, metrics.jsonl and config.json of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.best = path / "best.safetensors"
        self.last = path / "last.safetensors"
        self.metrics = path / "metrics.jsonl"
        self.config = path / "config.json"
        self._files = (self.best, self.last, self.metrics, self.config)

    def held(self) -> ExitStack:
        """Return a context manager that keeps other processes out of the folder.

        Raises UserError where one is in it already, or where it can't be written.
        """
        stack = ExitStack()
        try:
            stack.enter_context(locked(self.path))
        except OSError as error:
            raise self._not_writable(error) from None
        return stack

    def begin(
        self, options: TrainOptions, corpus: Corpus, runtime: Runtime
    ) -> tuple[TrainingState, Corpus]:
        """Return the state to train from, new or with given weights or as saved, and its corpus.

        Nothing is written. Raises UserError where the options do not fit the folder, or the
        checkpoint that they name.
        """
        if options.run.resume:
            return self._resume(options, corpus, runtime), corpus
        if not options.run.overwrite and any(file.exists() for file in self._files):
            raise UserError(
                f"{self.path} holds a run already; go on with it (--resume), replace it "
                "(--overwrite), or choose another --out_dir"
            )
        if options.run.init_from:
            source = checkpoint.load(options.run.init_from)
            check_model(replace(options.model, dropout=source.model.dropout), source)
            state = TrainingState.start_from(source, options.model, options.train, runtime)
            return state, recode(corpus, source.tokenizer)
        model = replace(options.model, vocab_size=corpus.tokenizer.vocab_size)
        return TrainingState.start(model, options.train, runtime), corpus

    def _resume(self, options: TrainOptions, corpus: Corpus, runtime: Runtime) -> TrainingState:
        saved = self.load_last()
        check_model(options.model, saved)
        check_corpus(corpus, saved)
        state = TrainingState.restore(saved, options.train, runtime)
        if state.is_done:
            raise UserError(
                f"the run has ended after {saved.progress.step} steps; to go on, give --max_iters "
                "or --patience more"
            )
        return state

    def open(self, options: TrainOptions, state: TrainingState) -> None:
        """Make the folder ready for what `begin` returned: empty, or as it was at state's step.

        Raises UserError where it can't be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if options.run.resume:
                self._take_back_metrics(state.progress.step)
                return
            for file in self._files:
                file.unlink(missing_ok=True)
            options = replace(options, model=state.model.config)
            with atomic_write(self.config) as out:
                out.write(json.dumps(asdict(options), indent=1, default=str).encode())
        except OSError as error:
            raise self._not_writable(error) from None

    def _take_back_metrics(self, step: int) -> None:
        """Remove the lines of later steps, and what is no whole line."""
        if self.metrics.exists():
            lines = self.metrics.read_bytes().splitlines(keepends=True)
            with atomic_write(self.metrics) as out:
                out.writelines(line for line in lines if _step_of(line) <= step)

    def _not_writable(self, error: OSError) -> UserError:
        return UserError(
            f"--out_dir {self.path} can't be written ({error.strerror}); choose another one"
        )

    def load_last(self) -> Checkpoint:
        """Return the last checkpoint. Raises MissingFile where there is none."""
        if not self.last.exists():
            raise MissingFile(
                f"{self.path} holds no run to resume ({self.last.name} is missing); "
                "start one without --resume"
            )
        return checkpoint.load(self.last)

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
        }
        with open(self.metrics, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def save(self, state: TrainingState, corpus: Corpus, *, is_best: bool) -> None:
        """Write last.safetensors, and best.safetensors if this is the best model so far."""
        if is_best:
            checkpoint.save(self.best, state.to_checkpoint(corpus, with_optimizer=False))
        checkpoint.save(self.last, state.to_checkpoint(corpus, with_optimizer=True))


def check_model(ours: ModelConfig, found: Checkpoint) -> None:
    """Raise UserError listing the options in which the checkpoint's model is another one."""
    if different := differences(ours, found.model):
        raise UserError(
            f"the model in the checkpoint differs ({'; '.join(different)}); leave these options "
            "out, or start a new run in another --out_dir"
        )


def check_corpus(corpus: Corpus, found: Checkpoint) -> None:
    """Raise UserError where a run would go on with another text."""
    if corpus.sha256 != found.corpus_sha256:
        raise UserError(
            f"the run in the checkpoint learned from another text than {corpus.name}; give it the "
            "same --dataset or --corpus, or start a new run with --init_from"
        )


def _step_of(line: bytes) -> float:
    """Return the step of a line of metrics; a torn line counts as never reached."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf
    return step if isinstance(step, int) and line.endswith(b"\n") else math.inf
