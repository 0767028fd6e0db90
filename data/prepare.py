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
    name: str = "quijote"
    """The folder under data/ that the prepared corpus goes to."""


def main(args: Sequence[str]) -> None:
    """Prepare what `args` ask for and say what came of it."""
    options = cli.parse(PrepareOptions(), args)
    if options.name in ("", ".", "..") or Path(options.name).name != options.name:
        raise UserError(f"--name is {options.name!r}; it must be the name of a folder, not a path")
    folder = DATA / options.name
    if options.input:
        result = corpus.prepare_files(options.input, folder)
    else:
        if options.name != corpus.BOOK:
            raise UserError(f"--name {options.name} needs --input: which text is it?")
        result = corpus.find_corpus(DATA, corpus.BOOK)
    print(
        f"{DATA.name}/{result.name}: {len(result.train) + len(result.val):,} characters, "
        f"{result.tokenizer.vocab_size} different; {len(result.train):,} to train on and "
        f"{len(result.val):,} to validate",
        file=sys.stderr,
    )


if __name__ == "__main__":
    cli.exit_with(main)
