"""Between the command line and the library: options in, one clear line out, Ctrl+C in order."""

import contextlib
import difflib
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TypeVar

import tyro
from tqdm import tqdm

from sancho import checkpoint
from sancho.config import PRESETS, CorpusConfig, RunConfig, RuntimeConfig, TrainOptions
from sancho.errors import UserError
from sancho.run import RunFolder
from sancho.runtime import choose_device
from sancho.training import Report, TrainingState

Options = TypeVar("Options")


def parse(cls: type[Options], args: Sequence[str], default: Options | None = None) -> Options:
    """Return the options in `args`; those that are not there are as in `default`.

    Raises UserError for an unknown option, a value of the wrong type or out of range.
    --help prints the help and raises SystemExit.
    """
    found, unknown = _run_tyro(cls, args, default or cls())
    if unknown:
        name = next((arg for arg in unknown if arg.startswith("-")), unknown[0])
        raise UserError(_unknown_option(name.partition("=")[0], cls))
    return found


def parse_train(args: Sequence[str]) -> TrainOptions:
    """Return train.py's options: the defaults are those of the preset, or of the run to resume."""
    first = [arg for arg in args if arg not in ("-h", "--help")]
    run, _ = _run_tyro(RunConfig, first, RunConfig())
    runtime, _ = _run_tyro(RuntimeConfig, first, RuntimeConfig())
    defaults = _train_defaults(run, runtime)
    options = parse(TrainOptions, args, defaults)
    return replace(options, run=replace(options.run, preset=defaults.run.preset))


def _train_defaults(run: RunConfig, runtime: RuntimeConfig) -> TrainOptions:
    name = run.preset
    if name == "auto":
        name = "mini" if choose_device(runtime.device).type == "cpu" else "base"
    model, train = PRESETS[name]
    data = CorpusConfig()
    if run.resume:
        found = RunFolder(run.out_dir).load_last()
        model, train, data = found.model, found.train, CorpusConfig(dataset=found.corpus_name)
    elif run.init_from:
        model = checkpoint.load(run.init_from).model
    return TrainOptions(run=replace(run, preset=name), data=data, model=model, train=train)


def _run_tyro(
    cls: type[Options], args: Sequence[str], default: Options
) -> tuple[Options, list[str]]:
    """Parse with tyro; its framed message becomes a UserError of one line."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(
                cls,
                args=list(args),
                default=default,
                return_unknown_args=True,
                use_underscores=True,
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UserError(_first_message(errors.getvalue())) from None


def _first_message(framed: str) -> str:
    """Return the text between the title and the first rule of tyro's frame, on one line."""
    lines = [line.strip(" │\r") for line in framed.splitlines()]
    body = [line for line in lines if line and not line.startswith("╰")]
    start = 1 if body and body[0].startswith("╭") else 0
    end = next((i for i, line in enumerate(body) if line.startswith("───")), len(body))
    message = " ".join(body[start:end])
    # "Error parsing model: …" is a message of ours; "Error parsing --n_layer: …" is Python's.
    message = re.sub(r"^Error parsing (?!-)[\w.]*: ", "", message)
    for python_says, we_say in (
        (r"invalid literal for int\(\) with base 10: (.*)", r"\1 is \2; it must be a whole number"),
        (r"could not convert string to float: (.*)", r"\1 is \2; it must be a number"),
    ):
        message = re.sub(f"^Error parsing (--\\S+): {python_says}", we_say, message)
    return message


def _unknown_option(name: str, cls: type) -> str:
    names = [f"--{name}" for name in _option_names(cls())]
    near = difflib.get_close_matches(name.replace("-", "_").replace("__", "--", 1), names, n=1)
    hint = f"did you mean {near[0]}?" if near else "--help lists all options"
    return f"unknown option {name}; {hint}"


def _option_names(options: object) -> list[str]:
    names = []
    for option in fields(options):
        value = getattr(options, option.name)
        names += _option_names(value) if is_dataclass(value) else [option.name]
    return [name for name in names if name != "vocab_size"]  # the corpus decides that one


def run_main(main: Callable[[Sequence[str]], int | None]) -> None:
    """Run a script's main(args) and exit: 0, or 2 and one line for what the user can mend.

    Everything else that is raised is a bug and keeps its traceback.
    """
    warnings.showwarning = _show_warning
    _use_utf8()
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        _fail(str(error))
    except BrokenPipeError:
        # The reader of our text went away (| head): no error, and nothing more to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror}; nothing that was saved before is lost")
    except (MemoryError, RuntimeError) as error:
        # PyTorch on a CPU, on Windows and on a GPU: a RuntimeError like any other.
        words = "allocate memory|not enough memory|out of memory"
        if isinstance(error, RuntimeError) and not re.search(words, str(error)):
            raise
        _fail("not enough memory; a smaller model, --batch_size or --num_samples takes less")
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)


def say(message: str) -> None:
    """Tell the user something; stdout is kept for the text that a model writes."""
    print(message, file=sys.stderr, flush=True)


def _fail(message: str) -> None:
    print(f"{Path(sys.argv[0]).name}: error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"note: {message}", file=sys.stderr)


def _use_utf8() -> None:
    """Read and write UTF-8 whatever the terminal's encoding is, as on Windows."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")


class StopSignals:
    """Inside the block, Ctrl+C and SIGTERM only set `received`; a second Ctrl+C stops at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def __enter__(self) -> "StopSignals":
        self._before = {
            number: signal.signal(number, self._receive)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame) -> None:
        if self.received == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)

    @property
    def exit_status(self) -> int:
        """128 + the signal's number, as shells count; 0 where none came."""
        return 128 + self.received if self.received else 0


class ProgressBar:
    """Steps done and left, loss and time left, on stderr."""

    def __init__(self, state: TrainingState) -> None:
        # In a log file, where lines can't be drawn over, a line every now and then is enough.
        interval = 0.1 if sys.stderr.isatty() else 10
        self.bar = tqdm(
            total=state.config.max_iters,
            initial=state.progress.step,
            unit="step",
            mininterval=interval,
            dynamic_ncols=True,
        )
        self.losses = {}

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *exception) -> None:
        self.bar.close()

    def show(self, report: Report) -> None:
        """Move on to the report's step."""
        if report.train_loss is not None:
            self.losses["loss"] = f"{report.train_loss:.3f}"
        if report.val_loss is not None:
            self.losses["val"] = f"{report.val_loss:.3f}"
        if report.train_loss is not None:
            self.bar.set_postfix(self.losses, refresh=False)
        self.bar.update(report.step - self.bar.n)
