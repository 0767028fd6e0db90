"""Between the command line and the library: options in, one clear line out, Ctrl+C in order."""

import argparse
import ast
import difflib
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
from dataclasses import Field, fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args, get_origin

from tqdm import tqdm

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

    Its fields become options, and so do those of the dataclasses in it. Raises UserError for an
    unknown option, a value of the wrong type or out of range. --help prints the help and exits.
    """
    parser = _Parser(default, command)
    found, unknown = parser.parse_known_args(list(map(parser.respelt, args)))
    if unknown:
        name = next((arg for arg in unknown if arg.startswith("-")), unknown[0]).partition("=")[0]
        known = [f"--{option}" for option in option_names(default)]
        hint = _nearest(name, known, otherwise="--help lists all options")
        raise UserError(f"unknown option {name}; {hint}")
    return _with_values(default, vars(found))


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


def parse_part(default: Options, args: Sequence[str]) -> Options:
    """Return the options of one dataclass among others, which are left alone, as is --help."""
    parser = _Parser(default, add_help=False)
    return _with_values(default, vars(parser.parse_known_args(list(map(parser.respelt, args)))[0]))


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

    def respelt(self, arg: str) -> str:
        """Return --n-layer=2 as --n_layer=2, and what names no option as it is."""
        name, sign, value = arg.partition("=")
        respelt = name[:2] + name[2:].replace("-", "_")
        return respelt + sign + value if respelt in self._option_string_actions else arg

    def error(self, message: str) -> NoReturn:
        """Raise UserError: an option has no value, or a switch has one."""
        name, _, problem = message.removeprefix("argument ").partition(": ")
        if problem.startswith("expected"):
            raise UserError(f"{name} needs a value (one that begins with -: {name}=VALUE)")
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
    name, opposite, kind = f"--{option.name}", f"--no_{option.name}", _kind(option)
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
    else:
        choices = ",".join(get_args(kind))
        shown = f"{{{choices}}}" if choices else kind.__name__.upper()
        target.add_argument(name, metavar=shown, help=text)


def _kind(option: Field[Any]) -> Any:
    """Return the type of a field's value where it is not None."""
    return get_args(option.type)[0] if isinstance(option.type, UnionType) else option.type


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


def _with_values(options: Any, values: Mapping[str, object]) -> Any:
    """Return `options` with what is given for them, at whatever depth they stand."""
    changes = {}
    for option in fields(options):
        value = getattr(options, option.name)
        if is_dataclass(value):
            changes[option.name] = _with_values(value, values)
        elif option.name in values:
            changes[option.name] = _read(option, values[option.name])
    return replace(options, **changes)


def _read(option: Field[Any], given: Any) -> object:
    """Return what the words of the command line mean for a field; a switch's value as it is."""
    kind = _kind(option)
    if get_origin(kind) is tuple:
        return tuple(given)
    if kind not in (int, float, Path):
        return given
    try:
        return kind(given)
    except ValueError:
        rule = "a whole number" if kind is int else "a number"
        raise UserError(f"--{option.name} is {given!r}; it must be {rule}") from None


def _nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    near = difflib.get_close_matches(name, known, n=1)
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
        _fail("not enough memory; a smaller model, batch or text, or fewer samples, take less")
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)


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


class StopSignals:
    """Inside the block, Ctrl+C and SIGTERM only set `received`; a second Ctrl+C stops at once.

    Of several processes each may get one Ctrl+C twice, from the terminal and from torchrun, so for
    them it is one; and they stay deaf until they end, so that none is killed while another leaves.
    """

    def __init__(self, world: "World") -> None:
        self.received = 0
        """The number of the signal, or 0."""
        self.is_alone = world.size == 1

    def __enter__(self) -> "StopSignals":
        self._before = {
            number: signal.signal(number, self._receive)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *exception) -> None:
        if self.is_alone:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame) -> None:
        if self.is_alone and self.received == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number


class ProgressBar:
    """Steps done and left, losses, time left and samples, on stderr.

    Where lines can't be drawn over, in a log file or a notebook, a line now and then.
    """

    def __init__(self, state: "TrainingState", world: "World") -> None:
        self.world = world
        self.losses: dict[str, str] = {}
        self.bar = tqdm(
            total=state.config.max_iters,
            initial=state.progress.step,
            unit="step",
            dynamic_ncols=True,
            disable=None if world.is_first else True,  # None: where stderr is no terminal
        )
        self.last_line = time.monotonic()

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *exception) -> None:
        self.bar.close()

    def show(self, report: "Report") -> None:
        """Move on to the report's step."""
        for name, loss in (("loss", report.train_loss), ("val", report.val_loss)):
            if loss is not None:
                self.losses[name] = f"{loss:.3f}"
        if self.bar.disable:
            self._show_line(report)
        else:
            self.bar.update(report.step - self.bar.n)
            if report.train_loss is not None:
                self.bar.set_postfix(self.losses, refresh=report.sample is not None)
        if report.sample is not None:
            end = "" if self.bar.disable else "\n"
            say(f"{end}    {' '.join(report.sample.split())}", self.world)

    def _show_line(self, report: "Report") -> None:
        """Say the figures of an evaluation, and others every LINE_SECONDS."""
        is_due = time.monotonic() - self.last_line >= LINE_SECONDS
        if report.val_loss is None and (report.train_loss is None or not is_due):
            return
        self.last_line = time.monotonic()
        losses = ", ".join(f"{name} {loss}" for name, loss in self.losses.items())
        left = report.seconds / report.step * (self.bar.total - report.step)
        times = f"{tqdm.format_interval(report.seconds)} gone, {tqdm.format_interval(left)} left"
        say(f"step {report.step:,} of {self.bar.total:,}: {losses}; {times}", self.world)
