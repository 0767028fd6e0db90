"""A script and its terminal: how it ends, Ctrl+C and other signals, the progress bar of a run."""

import errno
import io
import logging
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from sancho.command import preflight
from sancho.errors import LOG, UserError, say, shown

if TYPE_CHECKING:
    from sancho.run.report import Report
    from sancho.run.state import TrainingState

LINE_SECONDS = 10.0  # between lines about a run in a log file
LONGEST_LINE = 2000  # characters


def run_script(main: Callable[[], int | None]) -> None:
    """Run a script and exit with its status or 0, or with 2 and one line for an error of the user.

    Any other exception is a bug and keeps its traceback. In a notebook, whose %run goes on after
    the script, the streams are then what they were before.
    """
    preflight.hear_interrupts()
    before = (sys.stdin, sys.stdout, sys.stderr)
    level = LOG.level
    _prepare_streams()
    lines = _Lines()
    LOG.addHandler(lines)
    LOG.setLevel(logging.INFO)
    try:
        status = _status_of(main)
    finally:
        LOG.removeHandler(lines)
        LOG.setLevel(level)
        _settle(sys.stderr)
        sys.stdin, sys.stdout, sys.stderr = before
    sys.exit(status)


def _prepare_streams() -> None:
    for name in ("stdin", "stdout", "stderr"):
        file = getattr(sys, name)
        if file is None:  # closed; the next file that is opened would take its place
            file = open(os.devnull, "r+", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, file)
        if isinstance(
            file, io.TextIOWrapper
        ):  # UTF-8, even if the terminal has another encoding, as on Windows
            file.reconfigure(encoding="utf-8", errors="surrogateescape")
    sys.stdout = _Output(sys.stdout)
    sys.stderr = _Screen(sys.stderr)


def _settle(stream: Any) -> None:
    """Let what can't be written to a stream go nowhere, or Python would try again at its end."""
    try:
        stream.stream.flush()
    except (OSError, ValueError):
        stream.discard()


def _status_of(main: Callable[[], int | None]) -> int:
    """Return the exit status of a script, and say what went wrong."""
    try:
        status = _ended(main)
        sys.stdout.flush()  # here, where a refusal is handled
        return status
    except UserError as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:
        preflight.require(*(["torch"] if error.name == "torch" else []))
        raise
    except ReaderGone:
        return 0
    except OSError as error:
        if error.strerror is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror}; nothing that was saved before is lost")
    except (MemoryError, RuntimeError) as error:
        # PyTorch raises a plain RuntimeError; its words differ on a CPU, on Windows and on a GPU.
        words = "allocate memory|not enough memory|out of memory"
        if isinstance(error, RuntimeError) and not re.search(words, str(error)):
            raise
        return _fail("not enough memory; try a smaller model, batch or text, or fewer samples")
    except KeyboardInterrupt:
        say("\ninterrupted")
        return 130


def _ended(main: Callable[[], int | None]) -> int:
    """Return the status with which a script returns, or exits as --help does."""
    try:
        return main() or 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0


def _fail(message: str) -> int:
    LOG.error(f"{Path(sys.argv[0]).name}: error: {' '.join(message.split())}")
    return 2


class _Lines(logging.Handler):
    """Shows lines on stderr; what a file has put into one can't control the terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        lines = record.getMessage().split("\n")
        sys.stderr.write("\n".join(shown(line, LONGEST_LINE) for line in lines) + "\n")


class ReaderGone(Exception):
    """The reader of our text has closed the pipe or the terminal, as `| head` does."""


class _Stream:
    """A stream whose subclass decides what happens if a write is refused."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> None:
        with self._watch():
            self.stream.write(text)

    def flush(self) -> None:
        with self._watch():
            self.stream.flush()

    def discard(self) -> None:
        """Let what is left of the text go nowhere."""
        with suppress(OSError, ValueError):  # it may have no descriptor
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)

    def _watch(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Screen(_Stream):
    """The stream of notes and progress: a run goes on even if nobody reads them any more."""

    def _watch(self) -> AbstractContextManager[None]:
        return suppress(OSError)


class _Output(_Stream):
    """The text that was asked for: if nobody reads it any more, the script ends without error.

    A missing reader is EPIPE for a pipe (EINVAL on Windows) and EIO for a terminal. Any other
    refusal, such as that of a full disk, is an error.
    """

    @contextmanager
    def _watch(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            is_file = self._is_file()
            self.discard()  # or Python would write it again at its end
            if error.errno in (errno.EPIPE, errno.EIO, errno.EINVAL) and not is_file:
                raise ReaderGone from None
            error.filename = "standard output"
            raise

    def _is_file(self) -> bool:
        with suppress(OSError, ValueError):  # it may have no descriptor
            return stat.S_ISREG(os.fstat(self.stream.fileno()).st_mode)
        return False


@contextmanager
def stop_signals(alone: bool) -> Iterator[list[int]]:
    """Inside the block, Ctrl+C, SIGTERM and SIGHUP (a closed terminal) are only put into the list.

    A second Ctrl+C stops at once. If SIGHUP is ignored (nohup), it stays ignored.

    alone: whether this is the only process. One of several may get a Ctrl+C twice, from the
    terminal and from torchrun, so a second one does not stop it. After the block it ignores
    signals, so that none is killed while another still ends.
    """
    received: list[int] = []

    def receive(number: int, frame: object) -> None:
        if alone and number == signal.SIGINT and received[-1:] == [number]:
            raise KeyboardInterrupt
        received.append(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    hang_up = getattr(signal, "SIGHUP", None)  # Windows has none
    if hang_up and signal.getsignal(hang_up) != signal.SIG_IGN:
        numbers.append(hang_up)
    before = {number: signal.signal(number, receive) for number in numbers}
    ended = False
    try:
        yield received
        ended = True
    finally:
        if alone or not ended:
            for number, handler in before.items():
                signal.signal(number, handler)


def with_progress(reports: "Iterable[Report]", state: "TrainingState") -> "Iterator[Report]":
    """Pass reports on, and show on stderr steps, losses, time left, evaluations and samples.

    In a log file or a notebook, which have no moving bar, a line is printed now and then.
    """
    losses: dict[str, str] = {}
    total = state.train_config.max_iters
    begin = (state.progress.step, state.progress.seconds)
    last_line = time.monotonic()
    in_notebook = "JPY_PARENT_PID" in os.environ  # its !command has a terminal that keeps each bar
    with tqdm(
        total=total,
        initial=state.progress.step,
        unit="step",
        dynamic_ncols=True,
        disable=in_notebook or None,
    ) as bar:
        for report in reports:
            bar.update(report.step - bar.n)
            if report.train_loss is not None:
                losses["loss"] = f"{report.train_loss:.3f}"
            if report.val_loss is not None:
                losses["val"] = f"{report.val_loss:.3f}"
            if state.is_evaluation_due:
                bar.set_postfix(losses | {"evaluating": "…"})
            elif report.train_loss is not None:
                bar.set_postfix(losses)
                is_due = time.monotonic() - last_line >= LINE_SECONDS
                if bar.disable and (is_due or report.val_loss is not None):
                    last_line = time.monotonic()
                    say(_as_line(report, losses, total, begin))
            if report.sample is not None:
                bar.write(f"    {' '.join(report.sample.split())}", file=sys.stderr)
            yield report


def _as_line(
    report: "Report", figures: dict[str, str], total: int, begin: tuple[int, float]
) -> str:
    """Return a report as a line; begin: steps and seconds of the run when this process began."""
    text = ", ".join(f"{name} {value}" for name, value in figures.items())
    step, seconds = begin
    left = (report.seconds - seconds) / max(1, report.step - step) * (total - report.step)
    times = f"{tqdm.format_interval(report.seconds)} gone, {tqdm.format_interval(left)} left"
    return f"step {report.step:,} of {total:,}: {text}; {times}"
