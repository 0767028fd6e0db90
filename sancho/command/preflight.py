"""What a script does before it imports anything else: check Python, its packages and the options.

PyTorch takes seconds to load, and a mistyped option should not wait for it. The syntax is that of
Python 3.6, so that an older Python can say in one line that a newer one is needed.
"""

import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

from sancho.machine.packages import lack, problem, python

PACKAGES = ["numpy", "safetensors", "filelock", "tqdm"]
"""What every script needs."""


def check_writing(*more: str) -> None:
    """Check what every script needs, and that the packages `more` are there, too."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    require(*PACKAGES, *more)
    # Before NumPy is loaded: the matrices of an incremental decoder are too small for two threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _load("numpy")


def check_training():
    """Check what train.py needs; return the options that are typed, by name."""
    check_writing("torch")
    from sancho.presets import TrainOptions  # not above: an older Python can't read it

    typed = _read_options(TrainOptions())
    _load("torch")
    return typed


def check_evaluation():
    """Check what evaluate.py needs; return the options that are typed, by name."""
    check_writing("torch")
    from sancho.config import EvaluateOptions  # as above

    typed = _read_options(EvaluateOptions())
    _load("torch")
    return typed


def hear_interrupts() -> None:
    """Let Ctrl+C be a KeyboardInterrupt again, once all is imported."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def require(*packages: str) -> None:
    """End the script with one line if this Python is too old, or lacks one of the packages."""
    if sys.version_info < (3, 10):
        found = f"{python()} is Python {sys.version_info[0]}.{sys.version_info[1]}"
        _fail(f"this needs Python 3.10 or later, and {found}; start it with a newer one")
    missing = " ".join(name for name in packages if find_spec(name) is None)
    if missing:
        _fail(lack(missing))


def _end(number: int, frame: object) -> None:
    """End at once, because a package that is being imported may catch an exception."""
    sys.stderr.write("\ninterrupted\n")
    sys.stderr.flush()
    os._exit(130)


def _load(package: str) -> None:
    """Load a package, or end the script with one line where that fails or it is too old."""
    why = problem(package)
    if why:
        _fail(why)


def _read_options(default: object):
    """Return the options that are typed, or end the script with one line if one is wrong."""
    from sancho.command import cli  # not above: an older Python can't read them
    from sancho.errors import UserError

    try:
        return cli.read(default, sys.argv[1:])
    except UserError as error:
        _fail(" ".join(str(error).split()))


def _fail(message: str) -> None:
    """Print one line and exit with status 2."""
    sys.stderr.write(f"{Path(sys.argv[0]).name}: error: {message}\n")
    sys.exit(2)
