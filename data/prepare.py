"""Prepare a text for training: python data/prepare.py [--input FILE ...] [--name NAME]."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).resolve().parent
sys.path.insert(0, str(DATA.parent))

from sancho import cli, corpus  # noqa: E402
from sancho.errors import UserError  # noqa: E402


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Clean and encode a text, so that train.py --dataset NAME can learn from it.

    Without --input: Don Quijote, from Project Gutenberg.
    """

    input: tuple[str, ...] = ()
    """Text files, taken as one text in this order; - is standard input."""
    encoding: str = "UTF-8"
    """The encoding of these files, as windows-1252 or UTF-16."""
    name: str = ""
    """The folder under data/ that the prepared corpus goes to; without --input, quijote."""


def main(args: Sequence[str]) -> None:
    """Prepare what `args` ask for and say what came of it."""
    options = cli.parse(PrepareOptions(), args)
    name = options.name or corpus.BOOK
    if not corpus.is_folder_name(name):
        raise UserError(f"--name is {name!r}; it must be the name of a folder, on Windows too")
    if options.input:
        if not options.name:
            raise UserError("--input needs --name: what is the text to be called?")
        check_name(name, options.input)
        result = corpus.prepare_files(options.input, DATA / name, options.encoding)
    else:
        if options.encoding != "UTF-8":
            raise UserError(f"--encoding {options.encoding} needs --input: which file is it?")
        if name != corpus.BOOK:
            raise UserError(f"--name {name} needs --input: which text is it?")
        result = corpus.find_corpus(DATA, name)
    print(
        f"{DATA.name}/{result.name}: {len(result.train) + len(result.val):,} characters, "
        f"{result.tokenizer.vocab_size} different; {len(result.train):,} to train on and "
        f"{len(result.val):,} to validate",
        file=sys.stderr,
    )


def check_name(name: str, files: Sequence[str]) -> None:
    """Raise UserError where a name is another text's, or is but for its capitals."""
    given = [os.path.realpath(file) for file in files]
    for path in corpus.same_names(DATA, name):
        is_ours = given == [os.path.realpath(path)] if path.is_file() else path.name == name
        if not is_ours:
            taken = f"{DATA.name}/{path.name}"
            raise UserError(f"--name {name} is the name of {taken}; choose another")


if __name__ == "__main__":
    cli.exit_with(main)
