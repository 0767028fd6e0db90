"""Prepare a text for training: python data/prepare.py [--input FILE ...] [--name NAME]."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sancho import preflight

if __name__ == "__main__":
    preflight.check_writing()

from collections.abc import Sequence
from dataclasses import dataclass

from sancho import cli, sources, terminal
from sancho.errors import UserError


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Clean and encode a text, so that train.py --dataset NAME can learn from it.

    Without --input, the text is quijote or shakespeare, which is downloaded.
    """

    input: tuple[Path, ...] = ()  # Python 2 stops at this line: 3.10 or later is needed
    """Text files, which are joined in this order into one text; - means standard input."""
    encoding: str = "UTF-8"
    """Encoding of the input files, such as windows-1252 or UTF-16."""
    name: str = ""
    """Name of the folder under data/ for the prepared text. It is required with --input; without
    --input it is quijote or shakespeare (default: quijote)."""
    overwrite: bool = False
    """Replace the prepared text of that name."""


def main(args: Sequence[str]) -> None:
    """Prepare the text that `args` ask for, and say how long it is."""
    options = cli.parse(PrepareOptions(), args)
    name = options.name or sources.BOOK
    if not sources.is_folder_name(name):
        raise UserError(f"--name is {name!r}; it must be the name of a folder")
    if options.input:
        if not options.name:
            raise UserError("--input needs --name, the name for the prepared text")
        folder = sources.folder_of(sources.DATA, name)
        if not options.overwrite:
            sources.require_unprepared(folder)  # before a pipe is read
        text = sources.DATA / f"{name}.txt"
        if text.is_file() and text.resolve() not in [path.resolve() for path in options.input]:
            raise UserError(f"--name {name}: {text} has that name already; choose another")
        result = sources.prepare_files(
            options.input, folder, options.encoding, overwrite=options.overwrite
        )
    else:
        if options.encoding != "UTF-8":
            raise UserError(
                f"--encoding {options.encoding} needs --input, the file that has this encoding"
            )
        if name not in sources.ONLINE:
            fetched = " and ".join(sources.ONLINE)
            raise UserError(f"--name {name} needs --input; only {fetched} can be downloaded")
        make = sources.prepare_named if options.overwrite else sources.find_corpus
        result = make(sources.DATA, name)
    print(
        f"{sources.DATA.name}/{result.name}: {len(result.train) + len(result.val):,} characters, "
        f"{result.tokenizer.vocab_size} different; {len(result.train):,} to train on and "
        f"{len(result.val):,} to validate",
        file=sys.stderr,
    )


if __name__ == "__main__":
    terminal.run_script(main)
