"""Errors caused by input: one line, exit status 2."""


class UserError(ValueError):
    """Something that was given cannot be used.

    The message is one line: what is wrong, with which value, and what to do about it. The scripts
    print it and exit with status 2; every other exception is a bug.
    """


class FailedInAllProcesses(UserError):
    """What every process of a run finds out at the same step, so that one of them says it."""


class AnotherProcessFailed(Exception):
    """Another process of the run has failed and says why; this one only ends."""


class MissingFile(UserError, FileNotFoundError):
    """A file that was asked for is not there."""
