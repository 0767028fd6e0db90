"""Between the command line and the library: options in, one clear line out, Ctrl+C in order."""

import argparse
import ast
import difflib
import errno
import inspect
import io
import os
import re
import signal
import sys
import time
import warnings
from argparse import SUPPRESS
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args, get_origin

from tqdm import tqdm

from sancho.config import with_given
from sancho.errors import SaidByAnother, UserError

if TYPE_CHECKING:
    from sancho.machine.distributed import World
    from sancho.training import Report, TrainingState

Options = TypeVar("Options")
NO_OPTIONS = ("vocab_size",)  # the text decides it
LINE_SECONDS = 10.0
"""Between lines about a run in a log file."""


# --- options --------------------------------------------------------------------------------


def parse(default: Options, args: Sequence[str], command: str = "") -> Options:
    """Return the options in `args`; those that are not there are as in `default`, a dataclass.

    Raises UserError as `read` does, and for a value out of range.
    """
    return with_given(default, read(default, args, command))


def read(default: object, args: Sequence[str], command: str = "") -> dict[str, Any]:
    """Return what `args` give, by the names of the options.

    The fields of `default`, a dataclass, are options, and so are those of the dataclasses in it.
    Raises UserError for an unknown option, a value of the wrong type or none. --help prints the
    help, which says what is in `default`, and exits.
    """
    given, unknown = _Parser(default, command).read(args)
    if unknown:
        name = next((arg for arg in unknown if arg.startswith("-")), unknown[0]).partition("=")[0]
        known = [f"--{option}" for option in option_names(default)]
        hint = _nearest(name, known, otherwise="--help lists all options")
        raise UserError(f"unknown option {name}; {hint}")
    return given


def parse_part(default: Options, args: Sequence[str]) -> Options:
    """Return the options of one dataclass among others, which are left alone, as is --help."""
    return with_given(default, _Parser(default, add_help=False).read(args)[0])


def parse_command(commands: Mapping[str, Options], args: Sequence[str]) -> tuple[str, Options]:
    """Return the command that comes first in `args`, and its options.

    Raises UserError for none or an unknown one. --help in its place lists them and exits.
    """
    name = args[0].replace("_", "-") if args else ""
    if name in commands:
        return name, parse(commands[name], args[1:], name)
    if name in ("-h", "--help"):
        print(f"usage: {Path(sys.argv[0]).name} COMMAND [--help]\n\ncommands:")
        for command, options in commands.items():
            print(f"  {command:20} {_summary(options)}")
        sys.exit(0)
    hint = _nearest(name, commands, otherwise=f"there is {', '.join(commands)}")
    raise UserError(f"{f'unknown command {args[0]}' if args else 'give a command'}; {hint}")


def option_names(options: object) -> list[str]:
    """Return the names of all options of a dataclass."""
    return [option.name for _, group in _groups(options) for option in group]


class _Parser(argparse.ArgumentParser):
    """Options for the fields of dataclasses; what is not on the command line is left out."""

    def __init__(self, options: object, command: str = "", *, add_help: bool = True) -> None:
        super().__init__(
            prog=f"{Path(sys.argv[0]).name} {command}".strip(),
            description=inspect.getdoc(type(options)),
            argument_default=SUPPRESS,
            allow_abbrev=False,
            add_help=add_help,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34),
        )
        for owner, group in _groups(options):
            inner = owner is not options
            target = self.add_argument_group(_summary(owner).rstrip(".")) if inner else self
            helps = _helps(owner.__class__)
            for option in group:
                _add(target, option, getattr(owner, option.name), helps[option.name])

    def read(self, args: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Return what is given, by the names of the options, and the words that name none."""
        found, unknown = self.parse_known_args([self._respelt(arg) for arg in args])
        values = vars(found).items()
        return {n: tuple(v) if isinstance(v, list) else v for n, v in values}, unknown

    def _respelt(self, arg: str) -> str:
        """Return --n-layer=2 as --n_layer=2, and what names no option as it is."""
        name, sign, value = arg.partition("=")
        respelt = name[:2] + name[2:].replace("-", "_")
        return respelt + sign + value if respelt in self._option_string_actions else arg

    def error(self, message: str) -> NoReturn:
        """Raise UserError: a value is missing, of the wrong type, or given to a switch."""
        name, _, problem = message.removeprefix("argument ").partition(": ")
        if problem.startswith("expected"):
            raise UserError(f"{name} needs a value (one that begins with -: {name}=VALUE)")
        kind, is_invalid, value = problem.partition(" value: ")
        if is_invalid:
            rule = "a whole number" if kind == "invalid int" else "a number"
            raise UserError(f"{name} is {value}; it must be {rule}")
        value = problem.removeprefix("ignored explicit argument ")
        raise UserError(f"{name} is a switch and takes no value ({value})")


def _summary(options: object) -> str:
    """Return the first line of a dataclass's docstring."""
    return (inspect.getdoc(type(options)) or "").partition("\n")[0]


def _groups(options: Any) -> Iterator[tuple[Any, list[Field[Any]]]]:
    """Yield each dataclass in `options`, itself first, with the fields that are options."""
    inner = [field for field in fields(options) if is_dataclass(getattr(options, field.name))]
    yield options, [f for f in fields(options) if f not in inner and f.name not in NO_OPTIONS]
    for field in inner:
        yield from _groups(getattr(options, field.name))


def _add(target: argparse._ActionsContainer, option: Field[Any], default: Any, text: str) -> None:
    name, opposite = f"--{option.name}", f"--no_{option.name}"
    kind: Any = option.type
    if isinstance(kind, UnionType):
        kind = get_args(kind)[0]  # the other one is None
    if kind is bool:
        text += f" (default: {default}; the opposite: {opposite})"
    elif default not in ((), None):
        text += f" (default: {default if str(default).isprintable() else repr(default)})"
    text = text.replace("%", "%%")
    if kind is bool:
        target.add_argument(name, action="store_true", help=text)
        target.add_argument(opposite, action="store_false", dest=option.name, help=SUPPRESS)
    elif get_origin(kind) is tuple:
        target.add_argument(name, nargs="+", action="extend", metavar="TEXT", help=text)
    elif choices := ",".join(get_args(kind)):
        target.add_argument(name, metavar=f"{{{choices}}}", help=text)
    else:
        target.add_argument(name, type=kind, metavar=kind.__name__.upper(), help=text)


@cache
def _helps(cls: type) -> dict[str, str]:
    """Return the help of each field, those of base classes too: the text that stands under it."""
    helps = {}
    for owner in filter(is_dataclass, reversed(cls.__mro__)):
        (definition,) = ast.parse(inspect.cleandoc(inspect.getsource(owner))).body
        assert isinstance(definition, ast.ClassDef)
        for pair in pairwise(definition.body):
            match pair:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    helps[name] = " ".join(text.split())
    return helps


def _nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    # More than difflib's 0.6: the dashes of two options are alike already.
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else otherwise


# --- running a script -----------------------------------------------------------------------


def exit_with(main: Callable[[Sequence[str]], int | None]) -> None:
    """Run a script's main(args) and exit: 0, or 2 and one line for what the user can mend.

    Everything else that is raised is a bug and keeps its traceback.
    """
    warnings.showwarning = lambda message, *_, **__: say(f"note: {message}")
    _use_utf8()
    try:
        sys.exit(main(sys.argv[1:]))
    except SaidByAnother:
        sys.exit(0)
    except UserError as error:
        _fail(str(error))
    except OSError as error:
        if _is_closed_pipe(error):  # the reader of our text went away (| head): no error
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


def _is_closed_pipe(error: OSError) -> bool:
    """Return whether nobody reads what is written; Windows calls that an invalid argument."""
    is_invalid = error.errno == errno.EINVAL and error.filename is None
    return isinstance(error, BrokenPipeError) or (sys.platform == "win32" and is_invalid)


def say(message: str, world: "World | None" = None) -> None:
    """Tell the user something; stdout is kept for the text that a model writes.

    Of the processes of a `world` only the first one speaks.
    """
    if world is None or world.is_first:
        print(message, file=sys.stderr, flush=True)


def _fail(message: str) -> NoReturn:
    print(f"{Path(sys.argv[0]).name}: error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


def _use_utf8() -> None:
    """Read and write UTF-8 whatever the terminal's encoding is, as on Windows."""
    for file in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(file, io.TextIOWrapper):
            file.reconfigure(encoding="utf-8", errors="surrogateescape")


@contextmanager
def stop_signals(world: "World") -> Iterator[list[int]]:
    """Inside the block, Ctrl+C and SIGTERM only go into the list; a second Ctrl+C stops at once.

    Of several processes each may get one Ctrl+C twice, from the terminal and from torchrun, so for
    them it is one; and they stay deaf until they end, so that none is killed while another leaves.
    """
    received: list[int] = []

    def receive(number: int, frame: object) -> None:
        if world.size == 1 and received[-1:] == [number] == [signal.SIGINT]:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        if world.size == 1:
            for number, handler in before.items():
                signal.signal(number, handler)


class ProgressBar(tqdm):
    """Steps done and left, losses, time left and samples, on stderr.

    Where lines can't be drawn over, in a log file or a notebook, a line now and then.
    """

    def __init__(self, state: "TrainingState", world: "World") -> None:
        super().__init__(
            total=state.config.max_iters,
            initial=state.progress.step,
            unit="step",
            dynamic_ncols=True,
            disable=None if world.is_first else True,  # None: where stderr is no terminal
        )
        self.world = world
        self.losses: dict[str, str] = {}
        self.last_line = time.monotonic()

    def show(self, report: "Report") -> None:
        """Move on to the report's step."""
        losses = {"loss": report.train_loss, "val": report.val_loss}
        self.losses |= {n: f"{loss:.3f}" for n, loss in losses.items() if loss is not None}
        if self.disable:
            self._show_line(report)
        else:
            self.update(report.step - self.n)
            if report.train_loss is not None:
                self.set_postfix(self.losses, refresh=report.sample is not None)
        if report.sample is not None:
            end = "" if self.disable else "\n"
            say(f"{end}    {' '.join(report.sample.split())}", self.world)

    def _show_line(self, report: "Report") -> None:
        """Say the figures of an evaluation, and others every LINE_SECONDS."""
        is_due = time.monotonic() - self.last_line >= LINE_SECONDS
        if report.val_loss is None and (report.train_loss is None or not is_due):
            return
        self.last_line = time.monotonic()
        losses = ", ".join(f"{name} {loss}" for name, loss in self.losses.items())
        left = report.seconds / report.step * (self.total - report.step)
        times = f"{self.format_interval(report.seconds)} gone, {self.format_interval(left)} left"
        say(f"step {report.step:,} of {self.total:,}: {losses}; {times}", self.world)
