"""The command line: options are read into a dataclass, or one clear line says what is wrong."""

import argparse
import ast
import difflib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar, get_args, get_origin

from sancho import __version__
from sancho.command.shell import quoted
from sancho.config import Choices, require_fit
from sancho.errors import UserError, shown

Options = TypeVar("Options")
DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2212"  # the last ones come from word processors
OTHER_NAMES = {
    "--start": "prompt prefix",
    "--start FILE:PATH": "file",
    "--corpus": "dataset data data_dir text texts input file input_file train_file",
    "--max_new_tokens": "length max_length predict n_predict",
    "--num_samples": "num_return_sequences",
    "--temperature": "temp",
    "--max_iters": "max_steps epochs num_train_epochs",
    "--learning_rate": "lr",
    "--batch_size": "per_device_train_batch_size",
    "--block_size": "ctx_size n_positions max_position_embeddings",
    "--n_layer": "num_hidden_layers",
    "--n_head": "num_attention_heads",
    "--n_embd": "hidden_size",
    "--checkpoint": "model model_name_or_path",
    "--init_from": "checkpoint model model_name_or_path",
    "--output": "outfile output_file output_dir",
    "--out_dir": "output_dir",
    "--device": "use_cpu",
    "--stop": "stop_token stop_strings reverse_prompt",
}
"""Our options and their names elsewhere, mostly in nanoGPT, transformers and llama.cpp; the first
option that the script has is suggested."""
ADVICE = {
    "validation validation_file validation_split validation_fraction val val_file val_data "
    "val_corpus val_dataset val_fraction val_split test_file test_size": (
        "the validation part is always the last tenth of the text (of several files, the last "
        "tenth of each); evaluate.py --corpus FILE scores another text"
    ),
    "save_interval save_every save_steps save_freq always_save_checkpoint checkpoint_interval": (
        "train.py saves by itself every minute and at evaluations"
    ),
}
"""Words that people look for and that are no options here, and what to do instead."""
PLACES = {".txt": ("--corpus ", "--start FILE:"), ".safetensors": ("--checkpoint ", "--init_from ")}
"""Options that may be left out before the name of such a file."""
HELP = "--help lists all options"
SWITCH = "a switch takes no value: give --NAME to turn it on, or --no-NAME to turn it off"
LONGEST_SHOWN = 60  # characters of a value in an error line
WRONG_VALUES = {  # what argparse says of a value, and what to do
    "expected": "give a value that begins with - as --name=VALUE",
    "ignored explicit argument": SWITCH,
    "invalid .* value: 'auto'": "leave the option out to have its value chosen for you",
    "invalid float value: '(?!auto')[^,]*'": "give a number, as 0.5",
    "invalid float value: '.*,.*'": "write the number with a decimal point, not a comma",
    "invalid int value: '(?!auto')": "give a whole number, written with digits only",
    "invalid Number value": "give a whole number, written with digits only, or random",
}


def read(default: object, args: Sequence[str]) -> dict[str, Any]:
    """Return the values that `args` give to options, by name, each checked against its field.

    The options are the fields of `default`, a dataclass, and of the dataclasses in it; besides, the
    value of "help" is True where --help is among `args`, and --version prints and exits. Raises
    UserError for an unknown option, for one that is given two values, and for a value that is
    missing, of the wrong type, out of range or none of the choices.
    """
    return _Parser(default).read(args)


def made(default: Options, typed: Mapping[str, Any], command: str = "") -> Options:
    """Return `default` with the values that are typed; where that is --help, print it and exit."""
    if "help" in typed:
        print_help(default, command=command)
        sys.exit(0)
    values: dict[str, Any] = {}
    for place, owner, options in _groups(default):
        own = {option.name: typed[option.name] for option in options if option.name in typed}
        values |= {place: replace(owner, **own)} if place else own
    return replace(default, **values)  # type: ignore[type-var]


def parse(default: Options, args: Sequence[str], command: str = "") -> Options:
    """Read `args`, and return `default` with the values that they give, as `made` does."""
    return made(default, read(default, args), command)


def print_version() -> None:
    """Print the name of the project and its version."""
    sys.stdout.write(f"sancho-mini {__version__}\n")


def print_help(
    default: object, values: Mapping[str, object] | None = None, command: str = ""
) -> None:
    """Print the options of `default`; `values` has other defaults than its own, by name."""
    sys.stdout.write(_Parser(default, values or {}, command).format_help())


class _Parser(argparse.ArgumentParser):
    """A parser of options for the fields of dataclasses; it returns only what is typed."""

    def __init__(
        self, options: object, values: Mapping[str, object] | None = None, command: str = ""
    ) -> None:
        super().__init__(
            prog=f"{Path(sys.argv[0]).name} {command}".strip(),
            description=inspect.getdoc(type(options)),
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
            add_help=False,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34),
        )
        self.add_argument("-h", "--help", action="store_true", help="show this help and exit")
        self.add_argument("--version", action="store_true", help="show the version and exit")
        for place, owner, group in _groups(options):
            target = self.add_argument_group(summary(owner).rstrip(".")) if place else self
            helps = _helps(owner.__class__)
            for option in group:
                default = (values or {}).get(option.name, getattr(owner, option.name))
                _add(target, option, default, helps[option.name])
        if "--checkpoint" in self._option_string_actions:  # where train.py was told to keep it
            self.add_argument(
                "--out_dir",
                action=_Once,
                dest="checkpoint",
                type=_path,
                metavar="PATH",
                help="Another name of --checkpoint, for the folder of a run.",
            )
        self.fields = [option for _, _, group in _groups(options) for option in group]
        self.known = list(self._option_string_actions)
        self.given: dict[str, tuple[str, object]] = {}
        """What the line gives to each option so far: the name that it has there, and its value."""

    def read(self, args: Sequence[str]) -> dict[str, Any]:
        """Return the values that `args` give. Raises UserError for what is no option."""
        namespace, unknown = self.parse_known_args(args)
        if "version" in namespace:
            print_version()
            sys.exit(0)
        found = {n: tuple(x) if isinstance(x, list) else x for n, x in vars(namespace).items()}
        for option in self.fields:
            if option.name in found:
                require_fit(option, found[option.name])
        if "help" in found:  # for what is typed wrong, too
            return found
        options = [arg.partition("=")[0] for arg in unknown if arg.startswith(tuple(DASHES))]
        if options:
            raise UserError(f"unknown option {options[0]}; {self._hint(options[0])}")
        if unknown:
            raise UserError(f"{unknown[0]} belongs to no option; {self._hint_at_word(unknown[0])}")
        return found

    def take(self, place: str, option: str, value: object) -> None:
        """Raise UserError for a second value of an option; it would silently replace the first."""
        first, other = self.given.setdefault(place, (option, value))
        if value == other:
            return
        if isinstance(value, bool):
            raise UserError(f"{first} and {option} are both given; leave one of them out")
        if first != option:
            both = f"{first} {_shown(other)} and {option} {_shown(value)}"
            raise UserError(f"{both} are two values of one option; give one of them")
        both = f"as {_shown(other)} and as {_shown(value)}"
        raise UserError(f"{option} is given twice, {both}; give it once")

    def _hint(self, name: str) -> str:
        word = name.strip(DASHES).replace("-", "_")
        for words, advice in ADVICE.items():
            if word in words.split():
                return advice
        names: dict[str, str] = {}
        for option, others in reversed(OTHER_NAMES.items()):  # the first one that is here wins
            if option.split()[0] in self.known:
                names |= dict.fromkeys(others.split(), option)
        names |= {option.strip(DASHES): option for option in self.known}
        option = names.get(word, "")
        if option not in ("", f"--{word}"):
            return f"here it is called {option}"
        return nearest(word, names, otherwise=HELP)

    def _hint_at_word(self, word: str) -> str:
        if word.lower() in ("true", "false"):
            return SWITCH
        for option in PLACES.get(Path(word).suffix.lower(), ()):
            if option.split()[0] in self.known:
                return f"give it as {option}{quoted(word)}"
        if "--start" in self.known:
            return 'put a text with spaces in quotation marks, as in --start "En un lugar"'
        return f"each value comes after its option; {HELP}"

    def error(self, message: str) -> NoReturn:
        """Raise UserError: a value is missing, of the wrong type, or given to a switch."""
        hints = [hint for said, hint in WRONG_VALUES.items() if re.search(said, message)]
        raise UserError("; ".join([message.removeprefix("argument "), *hints]))


class _Once(argparse.Action):
    """Stores the value of an option that takes one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        value: Any,
        option: str | None = None,
    ) -> None:
        assert isinstance(parser, _Parser) and option
        parser.take(self.dest, option, value)
        setattr(namespace, self.dest, value)


class _Switch(argparse.BooleanOptionalAction):
    """Stores True for --name and False for --no-name."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        value: Any,
        option: str | None = None,
    ) -> None:
        assert isinstance(parser, _Parser) and option
        parser.take(self.dest, option, not option.startswith("--no-"))
        super().__call__(parser, namespace, value, option)


def summary(options: object) -> str:
    """Return the first line of a dataclass's docstring."""
    return (inspect.getdoc(type(options)) or "").partition("\n")[0]


def _groups(options: Any) -> Iterator[tuple[str, Any, list[Field[Any]]]]:
    """Yield a dataclass and those in it, each with the name of its field and its own options.

    If two of them have a field of the same name, the first one is the option.
    """
    inner = [field for field in fields(options) if is_dataclass(getattr(options, field.name))]
    seen = {"vocab_size"}
    for place in ("", *(field.name for field in inner)):
        owner = getattr(options, place) if place else options
        group = [f for f in fields(owner) if f not in inner and f.name not in seen]
        seen |= {field.name for field in group}
        yield place, owner, group


def _add(target: argparse._ActionsContainer, option: Field[Any], default: Any, text: str) -> None:
    kind: Any = option.type
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    while type(None) in get_args(kind) or get_origin(kind) is Annotated:
        rule = get_args(kind)[1]
        if isinstance(rule, Choices):
            choices = tuple(rule.meanings)
            text += f" {rule.sentence}"
        kind = get_args(kind)[0]  # without its rule, or its None
    if isinstance(default, tuple):
        default = " ".join(map(str, default))
    if default not in (None, ""):
        text += f" (default: {default if str(default).isprintable() else repr(default)})"
    how: dict[str, Any] = {"help": text.replace("%", "%%")}
    if kind is bool:
        how["action"] = _Switch
    elif choices:
        how["action"] = _Once
        how["metavar"] = f"{{{','.join(choices)}}}"
    else:
        how["action"] = _Once
        if get_origin(kind) is tuple:
            kind = get_args(kind)[0]
            how |= {"nargs": "+", "action": "extend"}
        how["metavar"] = "TEXT" if kind is str else kind.__name__.upper()
        how["type"] = _path if kind is Path else kind
    target.add_argument(f"--{option.name}", **how)


def _path(word: str) -> Path:
    """Return a path with its ~ expanded, which a shell does not do in --name=~/x."""
    if not word:
        raise argparse.ArgumentTypeError("the path is empty")
    with suppress(RuntimeError):  # nobody's home is known
        return Path(word).expanduser()
    return Path(word)


@cache
def _helps(cls: type) -> dict[str, str]:
    """Return the help of each field, inherited ones included: the string below it in the source."""
    helps = {}
    for owner in filter(is_dataclass, reversed(cls.__mro__)):
        (definition,) = ast.parse(inspect.getsource(owner)).body
        for pair in pairwise(ast.iter_child_nodes(definition)):
            match pair:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    helps[name] = " ".join(text.split())
    return helps


def _shown(value: object) -> str:
    """Return a value for an error line, in quotation marks if it has blanks or odd characters."""
    text = str(value)
    return shown(text if text.isprintable() and " " not in text else repr(text), LONGEST_SHOWN)


def nearest(word: str, names: Mapping[str, str], otherwise: str) -> str:
    """Return a hint with what the name that is most like `word` stands for, or `otherwise`."""
    near = difflib.get_close_matches(word.strip(DASHES).lower(), names, n=1, cutoff=0.7)
    return f"did you mean {names[near[0]]}?" if near else otherwise
