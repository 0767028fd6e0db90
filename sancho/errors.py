"""What the user is told: errors caused by input (one line, exit status 2), and notes."""

import logging

LOG = logging.getLogger("sancho")
"""The logger of all lines for the user; they go to stderr unless a program sets it otherwise."""


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
    """Tell the user something in a line. It is no error if nobody can read it any more."""
    LOG.warning(message)


def note(message: str) -> None:
    """Tell the user something that is not an error, but important."""
    say(f"note: {message}")
