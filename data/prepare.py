"""Prepare a text for training: python data/prepare.py [--input FILE ...] [--name NAME]."""

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
    """UTF-8 text files, taken as one text in this order; - is standard input."""
    name: str = ""
    """The folder under data/ that the prepared corpus goes to; without --input, quijote."""


def main(args: Sequence[str]) -> None:
    """Prepare what `args` ask for and say what came of it."""
    options = cli.parse(PrepareOptions(), args)
    name = options.name or corpus.BOOK
    if name in (".", "..") or Path(name).name != name:
        raise UserError(f"--name is {name!r}; it must be the name of a folder, not a path")
    if options.input:
        if not options.name:
            raise UserError("--input needs --name: what is the text to be called?")
        ours = DATA / f"{name}.txt"
        if ours.is_file() and [Path(path).resolve() for path in options.input] != [ours.resolve()]:
            raise UserError(f"--name {name} is the name of {DATA.name}/{name}.txt; choose another")
        result = corpus.prepare_files(options.input, DATA / name)
    else:
        if name != corpus.BOOK:
            raise UserError(f"--name {name} needs --input: which text is it?")
        result = corpus.find_corpus(DATA, name)
    print(
        f"{DATA.name}/{result.name}: {len(result.train) + len(result.val):,} characters, "
        f"{result.tokenizer.vocab_size} different; {len(result.train):,} to train on and "
        f"{len(result.val):,} to validate",
        file=sys.stderr,
    )


if __name__ == "__main__":
    cli.exit_with(main)
