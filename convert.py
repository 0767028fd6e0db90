"""Export a trained model to other programs: python convert.py to-page [--help]."""

from sancho.command import preflight

if __name__ == "__main__":
    preflight.check_writing()

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sancho.command import cli, terminal
from sancho.convert.huggingface import ToHuggingFaceOptions, to_huggingface
from sancho.convert.onnx import ToOnnxOptions, to_onnx
from sancho.convert.page import ToPageOptions, to_page
from sancho.errors import UserError, say
from sancho.text import sources

Command = tuple[Any, Callable[[Any], list[str]]]
COMMANDS: dict[str, Command] = {
    "to-page": (ToPageOptions(), lambda options: to_page(options, sources.DATA)),
    "to-huggingface": (ToHuggingFaceOptions(), to_huggingface),
    "to-onnx": (ToOnnxOptions(), to_onnx),
}


DESCRIPTION = "Export a trained model to other programs."


def parse_command(commands: Mapping[str, Any], args: Sequence[str]) -> tuple[str, Any]:
    """Return the command that comes first in `args`, and its options.

    Raises UserError if there is none, or an unknown one. --help alone lists all commands and
    exits, and --version prints the version.
    """
    name = args[0].replace("_", "-") if args else ""
    if name in commands:
        return name, cli.parse(commands[name], args[1:], name)
    if name == "--version":
        cli.print_version()
        sys.exit(0)
    if name in ("-h", "--help", "help"):
        lines = [f"  {name:20} {cli.summary(options)}" for name, options in commands.items()]
        usage = f"usage: {Path(sys.argv[0]).name} COMMAND [--help]"
        print(usage, "", DESCRIPTION, "", "commands:", *lines, sep="\n")
        sys.exit(0)
    first = "the command comes first; " if name.startswith("-") else ""
    otherwise = f"{first}the commands are {', '.join(commands)}"
    hint = cli.nearest(name, {each: each for each in commands}, otherwise)
    raise UserError(f"{f'unknown command {args[0]}' if args else 'give a command'}; {hint}")


def main(args: Sequence[str]) -> None:
    """Command → model → exported files."""
    defaults = {name: options for name, (options, _) in COMMANDS.items()}
    name, options = parse_command(defaults, args)
    for line in COMMANDS[name][1](options):
        say(line)


if __name__ == "__main__":
    terminal.run_script(lambda: main(sys.argv[1:]))
