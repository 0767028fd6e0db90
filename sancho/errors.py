"""What the user is told: errors caused by input (one line, exit status 2), and notes."""

import logging
from contextlib import suppress

LOG = logging.getLogger("sancho")
"""The logger of all lines for the user. The scripts show all of them on stderr; elsewhere, unless a
program sets it otherwise, notes and errors are shown, and what a run tells is not."""


class UserError(ValueError):
    """Something that was given cannot be used.

    The message is one line: what is wrong, with which value, and what to do about it. The scripts
    print it and exit with status 2; every other exception is a bug.
    """


class OtherFunction(UserError):
    """An implementation does not compute the model that was trained, or does not know an option."""


class MissingFile(UserError, FileNotFoundError):
    """A file that was asked for is not there."""


def say(message: str) -> None:
    """Tell the user what a run does, in a line of the level INFO."""
    LOG.info(message)


def note(message: str) -> None:
    """Tell the user something that is not an error, but important: the level is WARNING."""
    LOG.warning(f"note: {message}")


def shown(words: object, longest: int = 200) -> str:
    """Return words of a file or a server for a message: control characters escaped, the end cut
    off."""
    text = str(words)
    with suppress(UnicodeEncodeError):  # a terminal that knows ASCII alone hands on single bytes
        text = text.encode(errors="surrogateescape").decode(errors="replace")
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
