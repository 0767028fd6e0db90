"""Take a trained model elsewhere, or bring one in: python convert.py to-page [--help]."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sancho import cli
from sancho.convert.huggingface import ToHuggingFaceOptions, to_huggingface
from sancho.convert.nanogpt import FromNanogptOptions, from_nanogpt
from sancho.convert.onnx import ToOnnxOptions, to_onnx
from sancho.convert.page import ToPageOptions, to_page

DATA = Path(__file__).resolve().parent / "data"
COMMANDS: dict[str, tuple[Any, Callable[[Any], list[str]]]] = {
    "to-page": (ToPageOptions(), lambda options: to_page(options, DATA)),
    "to-huggingface": (ToHuggingFaceOptions(), to_huggingface),
    "to-onnx": (ToOnnxOptions(), to_onnx),
    "from-nanogpt": (FromNanogptOptions(), from_nanogpt),
}


def main(args: Sequence[str]) -> None:
    """Command → model → what others read, or what we read."""
    defaults = {name: options for name, (options, _) in COMMANDS.items()}
    name, options = cli.parse_command(defaults, args)
    for line in COMMANDS[name][1](options):
        cli.say(line)


if __name__ == "__main__":
    cli.exit_with(main)
