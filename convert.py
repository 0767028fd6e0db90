"""Take a trained model elsewhere: python convert.py to-page [--help]."""

from collections.abc import Sequence
from pathlib import Path

from sancho import cli
from sancho.config import ToPageOptions
from sancho.doors.page import to_page

DATA = Path(__file__).resolve().parent / "data"
COMMANDS = {"to-page": (ToPageOptions(), lambda options: to_page(options, DATA))}


def main(args: Sequence[str]) -> None:
    """Command → checkpoint → what others read."""
    defaults = {name: options for name, (options, _) in COMMANDS.items()}
    name, options = cli.parse_command(defaults, args)
    for line in COMMANDS[name][1](options):
        cli.say(line)


if __name__ == "__main__":
    cli.exit_with(main)
