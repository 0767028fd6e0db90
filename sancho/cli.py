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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import Field, fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, TypeVar, get_args, get_origin

from tqdm import tqdm

from sancho.errors import SaidByAnother, UserError

if TYPE_CHECKING:
    from sancho.distributed import World
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
    given = {_spelling(arg): arg for arg in args}
    found, unknown = _Parser(default, command).parse_known_args(list(map(_spelling, args)))
    if unknown:
        name = next((arg for arg in unknown if arg.startswith("-")), unknown[0])
        raise UserError(_unknown_option(given.get(name, name).partition("=")[0], default))
    return _with_values(default, vars(found))


def parse_command(commands: dict[str, Options], args: Sequence[str]) -> tuple[str, Options]:
    """Return the command that comes first in `args`, and its options.

    Raises UserError for none or an unknown one. --help in its place lists them and exits.
    """
    name = args[0].replace("_", "-") if args else ""
    if name in commands:
        return name, parse(commands[name], args[1:], name)
    if name in ("-h", "--help"):
        print(f"usage: {Path(sys.argv[0]).name} COMMAND [--help]\n\ncommands:")
        for command, options in commands.items():
            print(f"  {command:20} {inspect.getdoc(type(options))}")
        sys.exit(0)
    near = difflib.get_close_matches(name, commands, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(commands)}"
    raise UserError(f"{f'unknown command {args[0]}' if args else 'give a command'}; {hint}")


def parse_part(default: Options, args: Sequence[str]) -> Options:
    """Return the options of one dataclass among others, which are left alone, as is --help."""
    args = [arg for arg in map(_spelling, args) if arg not in ("-h", "--help")]
    return _with_values(default, vars(_Parser(default).parse_known_args(args)[0]))


def option_names(options: object) -> list[str]:
    """Return the names of all options of a dataclass."""
    return [option.name for _, group in _groups(options) for option in group]


class _Parser(argparse.ArgumentParser):
    """Options for the fields of dataclasses; what is not on the command line is left out."""

    def __init__(self, options: object, command: str = "") -> None:
        super().__init__(
            prog=f"{Path(sys.argv[0]).name} {command}".strip(),
            description=inspect.getdoc(type(options)),
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34),
        )
        for owner, group in _groups(options):
            title = inspect.getdoc(type(owner)).partition("\n")[0].rstrip(".")
            target = self if owner is options else self.add_argument_group(title)
            helps = _helps(type(owner))
            for option in group:
                _add(target, option, getattr(owner, option.name), helps[option.name])

    def error(self, message: str) -> NoReturn:
        """Raise UserError."""
        message = re.sub(r"^argument (\S+: (?=--))?", "", message)
        needs = r"\1 needs a value (one that begins with -: \1=VALUE)"
        message = re.sub(r"^(\S+): expected .*", needs, message)
        switch = r"\1 is a switch and takes no value (\2)"
        raise UserError(re.sub(r"^(\S+): ignored explicit argument (.*)", switch, message))


class _Switch(argparse.Action):
    """--name and --no_name."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: object) -> None:
        names = [*option_strings, f"--no_{dest}"]
        super().__init__(names, dest, nargs=0, **settings)

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        setattr(namespace, self.dest, not option_string.startswith("--no_"))


def _groups(options: object) -> Iterator[tuple[object, list[Field]]]:
    """Yield each dataclass in `options`, itself first, with the fields that are options."""
    inner = [field for field in fields(options) if is_dataclass(getattr(options, field.name))]
    own = [f for f in fields(options) if f not in inner and f.name not in NO_OPTIONS]
    yield options, own
    for field in inner:
        yield from _groups(getattr(options, field.name))


def _add(target: argparse._ActionsContainer, option: Field, default: object, text: str) -> None:
    name, kind = f"--{option.name}", option.type
    if default not in ((), None):
        shown = default if str(default).isprintable() else repr(default)
        text += f" (default: {shown})"
    text = text.replace("%", "%%")
    if kind is bool:
        target.add_argument(name, action=_Switch, help=text)
        return
    if get_origin(kind) is tuple:
        target.add_argument(name, nargs="+", action="extend", metavar="TEXT", help=text)
        return
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    kind = next((part for part in get_args(kind) if part is not type(None)), kind)
    metavar = f"{{{','.join(choices)}}}" if choices else kind.__name__.upper()
    convert = str if choices else _converter(name, kind)
    target.add_argument(name, type=convert, metavar=metavar, help=text)


def _converter(name: str, kind: type) -> Callable[[str], object]:
    """Return a function from a word of the command line to a value."""
    rule = {int: "a whole number", float: "a number"}.get(kind)

    def convert(word: str) -> object:
        try:
            return kind(word)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{name} is {word!r}; it must be {rule}") from None

    return convert


@cache
def _helps(cls: type) -> dict[str, str]:
    """Return the help of each field: the text that stands under it."""
    body = ast.parse(inspect.cleandoc(inspect.getsource(cls))).body[0].body
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def _with_values(options: Options, values: dict[str, object]) -> Options:
    """Return `options` with the named values, at whatever depth they stand."""
    changes = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if is_dataclass(value):
            changes[field.name] = _with_values(value, values)
        elif field.name in values:
            new = values[field.name]
            changes[field.name] = tuple(new) if isinstance(new, list) else new
    return replace(options, **changes)


def _spelling(arg: str) -> str:
    """Return --n-layer=2 as --n_layer=2."""
    if not arg.startswith("--"):
        return arg
    name, sign, value = arg.partition("=")
    return "--" + name[2:].replace("-", "_") + sign + value


def _unknown_option(name: str, options: object) -> str:
    names = [f"--{name}" for name in option_names(options)]
    near = difflib.get_close_matches(_spelling(name), names, n=1)
    hint = f"did you mean {near[0]}?" if near else "--help lists all options"
    return f"unknown option {name}; {hint}"


# --- running a script -----------------------------------------------------------------------


def exit_with(main: Callable[[Sequence[str]], int | None]) -> None:
    """Run a script's main(args) and exit: 0, or 2 and one line for what the user can mend.

    Everything else that is raised is a bug and keeps its traceback.
    """
    warnings.showwarning = _show_warning
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
        _fail("not enough memory; a smaller model, --batch_size or --num_samples takes less")
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)


def say(message: str, world: "World | None" = None) -> None:
    """Tell the user something; stdout is kept for the text that a model writes.

    Of the processes of a `world` only the first one speaks.
    """
    if world is None or world.is_first:
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
        self.steps, self.losses = state.config.max_iters, {}
        self.bar = tqdm(
            total=self.steps,
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
        if report.train_loss is not None:
            self.losses["loss"] = f"{report.train_loss:.3f}"
        if report.val_loss is not None:
            self.losses["val"] = f"{report.val_loss:.3f}"
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
        now = time.monotonic()
        is_due = report.train_loss is not None and now - self.last_line >= LINE_SECONDS
        if not is_due and report.val_loss is None:
            return
        self.last_line = now
        losses = ", ".join(f"{name} {loss}" for name, loss in self.losses.items())
        left = report.seconds / report.step * (self.steps - report.step)
        say(
            f"step {report.step:,} of {self.steps:,}: {losses}; "
            f"{tqdm.format_interval(report.seconds)} gone, {tqdm.format_interval(left)} left",
            self.world,
        )
