"""Between the command line and the library: options in, one clear line out, Ctrl+C in order."""

import argparse
import ast
import difflib
import errno
import inspect
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import Field, fields, is_dataclass
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeVar, get_args, get_origin

from tqdm import tqdm

from sancho.config import FOLLOWS_TEXT, with_values
from sancho.errors import AnotherProcessFailed, UserError

if TYPE_CHECKING:
    from sancho.machine.distributed import World
    from sancho.training import Report, TrainingState

Options = TypeVar("Options")
LINE_SECONDS = 10.0  # between lines about a run in a log file


def parse(default: Options, args: Sequence[str], command: str = "") -> Options:
    """Return `default`, a dataclass, with what `parse_typed` finds in `args`."""
    return with_values(default, parse_typed(default, args, command))


def parse_typed(
    default: object,
    args: Sequence[str],
    command: str = "",
    help_defaults: Callable[[dict[str, Any]], object] | None = None,
) -> dict[str, Any]:
    """Return the options that `args` hold, by name, and no others.

    The fields of `default`, a dataclass, are options, and so are those of the dataclasses in it.
    Raises UserError for an unknown option, a value of the wrong type or none. --help prints the
    help and exits; the defaults in it are those of `help_defaults(typed)`, or else of `default`.
    """
    typed, unknown = _Parser(default, command).read_args(args)
    if typed.pop("help", False):
        shown = help_defaults(typed) if help_defaults else default
        _Parser(shown, command).print_help()
        sys.exit(0)
    if unknown:
        options = [arg for arg in unknown if arg.startswith("-")]
        name = (options or unknown)[0].partition("=")[0]
        known = [f"--{option}" for option in option_names(default)]
        hint = nearest(name, known, otherwise="--help lists all options")
        raise UserError(f"unknown option {name}; {hint}")
    return typed


def option_names(options: object) -> list[str]:
    """Return the names of all options of a dataclass."""
    return [option.name for _, group in _groups(options) for option in group]


class _Parser(argparse.ArgumentParser):
    """Options for the fields of dataclasses; what is not on the command line is left out."""

    def __init__(self, options: object, command: str) -> None:
        super().__init__(
            prog=f"{Path(sys.argv[0]).name} {command}".strip(),
            description=inspect.getdoc(type(options)),
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
            add_help=False,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34),
        )
        self.add_argument("-h", "--help", action="store_true", help="show this help and exit")
        for owner, group in _groups(options):
            inner = owner is not options
            target = self.add_argument_group(summary(owner).rstrip(".")) if inner else self
            helps = _helps(owner.__class__)
            for option in group:
                _add(target, option, getattr(owner, option.name), helps[option.name])

    def read_args(self, args: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        found, unknown = self.parse_known_args([self._respelt(arg) for arg in args])
        typed = vars(found)
        for name, value in typed.items():
            if isinstance(value, list):
                typed[name] = tuple(value)
        return typed, unknown

    def _respelt(self, arg: str) -> str:
        name, sign, value = arg.partition("=")
        respelt = name[:2] + name[2:].replace("-", "_")
        return respelt + sign + value if respelt in self._option_string_actions else arg

    def error(self, message: str) -> NoReturn:
        """Raise UserError: a value is missing, of the wrong type, or given to a switch."""
        hint = "; one that begins with - is given as --name=VALUE" if "expected" in message else ""
        raise UserError(message.removeprefix("argument ") + hint)


def summary(options: object) -> str:
    """Return the first line of a dataclass's docstring."""
    return (inspect.getdoc(type(options)) or "").partition("\n")[0]


def _groups(options: Any) -> Iterator[tuple[Any, list[Field[Any]]]]:
    """Yield each dataclass in `options`, itself first, with the fields that are options."""
    inner = [field for field in fields(options) if is_dataclass(getattr(options, field.name))]
    yield options, [f for f in fields(options) if f not in inner and f.name != "vocab_size"]
    for field in inner:
        yield from _groups(getattr(options, field.name))


def _add(target: argparse._ActionsContainer, option: Field[Any], default: Any, text: str) -> None:
    name = f"--{option.name}"
    negated = f"--no_{option.name}"
    kind: Any = option.type
    if FOLLOWS_TEXT in get_args(kind):
        default = "auto"
    while get_origin(kind) in (Annotated, UnionType):
        kind = get_args(kind)[0]  # without its range, or the None that it may be instead
    if kind is bool:
        text += f" (default: {default}; the opposite: {negated})"
    elif default not in ((), None):
        text += f" (default: {default if str(default).isprintable() else repr(default)})"
    text = text.replace("%", "%%")
    if kind is bool:
        target.add_argument(name, action="store_true", help=text)
        target.add_argument(negated, action="store_false", dest=option.name, help=argparse.SUPPRESS)
    elif get_origin(kind) is tuple:
        target.add_argument(name, nargs="+", action="extend", metavar="TEXT", help=text)
    elif get_origin(kind) is Literal:
        target.add_argument(name, metavar=f"{{{','.join(get_args(kind))}}}", help=text)
    else:
        target.add_argument(name, type=kind, metavar=kind.__name__.upper(), help=text)


@cache
def _helps(cls: type) -> dict[str, str]:
    """Return the help of each field, those of base classes too: the text that stands under it."""
    helps = {}
    for owner in filter(is_dataclass, reversed(cls.__mro__)):
        (definition,) = ast.parse(inspect.cleandoc(inspect.getsource(owner))).body
        for pair in pairwise(ast.iter_child_nodes(definition)):
            match pair:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    helps[name] = " ".join(text.split())
    return helps


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint at the name that is most like `name`, if any is."""
    # More than difflib's 0.6: the dashes of two options are alike already.
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else otherwise


def exit_with(main: Callable[[Sequence[str]], int | None]) -> None:
    """Run a script's main(args) and exit: 0, or 2 and one line for what the user can mend.

    Everything else that is raised is a bug and keeps its traceback.
    """
    warnings.showwarning = lambda message, *_, **__: say(f"note: {message}")
    for file in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(file, io.TextIOWrapper):  # UTF-8 whatever the terminal has, as on Windows
            file.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        sys.exit(main(sys.argv[1:]))
    except AnotherProcessFailed:
        sys.exit(0)
    except UserError as error:
        _fail(str(error))
    except ModuleNotFoundError:
        require_torch()
        raise
    except OSError as error:
        # The reader of our text went away (| head), which Windows calls an invalid argument.
        is_invalid = error.errno == errno.EINVAL and error.filename is None
        if isinstance(error, BrokenPipeError) or (sys.platform == "win32" and is_invalid):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        if error.filename is None and error.errno is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror}; nothing that was saved before is lost")
    except (MemoryError, RuntimeError) as error:
        # PyTorch on a CPU, on Windows and on a GPU: a RuntimeError like any other.
        words = "allocate memory|not enough memory|out of memory"
        if isinstance(error, RuntimeError) and not re.search(words, str(error)):
            raise
        _fail("not enough memory; a smaller model, batch or text, or fewer samples, take less")
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)


def _fail(message: str) -> NoReturn:
    print(f"{Path(sys.argv[0]).name}: error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


def require_torch(options: object = None) -> None:
    """End the script with one line where PyTorch is not installed; or with the help, if asked for.

    options: a dataclass, whose help can be asked for.
    """
    if not find_spec("torch"):
        if options and {"-h", "--help"} & set(sys.argv):
            parse_typed(options, ["--help"])
        install = "-m pip install torch --index-url https://download.pytorch.org/whl/cpu"
        _fail(f"this needs PyTorch; for a CPU: {command(*install.split())} (GPU: pytorch.org)")


def say(message: str) -> None:
    """Tell the user something on stderr."""
    print(message, file=sys.stderr, flush=True)


def command(script: str, *args: str | Path) -> str:
    """Return a line for the shell that runs one of the project's scripts with this interpreter."""
    found = shutil.which("python")
    beside = Path(sys.argv[0]).parent / script
    is_found = found and Path(found).parent == Path(sys.executable).parent
    python = "python" if is_found else sys.executable
    words = [python, str(beside if beside.is_file() else script), *map(str, args)]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


@contextmanager
def stop_signals(world: "World") -> Iterator[list[int]]:
    """Inside the block, Ctrl+C and SIGTERM only go into the list; a second Ctrl+C stops at once.

    Not so for several processes, which may get one twice, from the terminal and from torchrun.
    They ignore signals until they end, so that none is killed while another leaves.
    """
    received: list[int] = []

    def receive(number: int, frame: object) -> None:
        is_second = number == signal.SIGINT and signal.SIGINT in received[-1:]
        if is_second and world.size == 1:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        if world.size == 1:
            for number, handler in before.items():
                signal.signal(number, handler)


def with_progress(reports: "Iterable[Report]", state: "TrainingState") -> "Iterator[Report]":
    """Pass reports on, and show on stderr steps, losses, time left, evaluations and samples.

    Where lines can't be drawn over, in a log file or a notebook, a line now and then.
    """
    losses: dict[str, str] = {}
    total = state.config.max_iters
    last_line = time.monotonic()
    with tqdm(
        total=total, initial=state.progress.step, unit="step", dynamic_ncols=True, disable=None
    ) as bar:
        for report in reports:
            bar.update(report.step - bar.n)
            if report.train_loss is not None:
                losses["loss"] = f"{report.train_loss:.3f}"
            if report.val_loss is not None:
                losses["val"] = f"{report.val_loss:.3f}"
            shown = dict(losses)
            if report.evaluated is not None:
                shown["evaluating"] = f"{report.evaluated:.0%}"
            if shown != losses or report.train_loss is not None:
                bar.set_postfix(shown)
                is_due = time.monotonic() - last_line >= LINE_SECONDS
                if bar.disable and (is_due or report.val_loss is not None):
                    last_line = time.monotonic()
                    say(_as_line(report, shown, total))
            if report.sample is not None:
                bar.write(f"    {' '.join(report.sample.split())}", file=sys.stderr)
            yield report


def _as_line(report: "Report", shown: dict[str, str], total: int) -> str:
    text = ", ".join(f"{name} {value}" for name, value in shown.items())
    left = report.seconds / report.step * (total - report.step)
    times = f"{tqdm.format_interval(report.seconds)} gone, {tqdm.format_interval(left)} left"
    return f"step {report.step:,} of {total:,}: {text}; {times}"
