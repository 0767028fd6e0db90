"""What a script does before it imports anything else: check Python, its packages and the options.

PyTorch takes seconds to load, and a mistyped option should not wait for it. As in require.py, the
syntax is that of Python 2.7.
"""

import os
import signal
import sys

from sancho import require


def check_writing():
    """Check the requirements of a script that does not need PyTorch at its start."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    require.require(require.PACKAGES)
    # Before NumPy is loaded: the matrices of an incremental decoder are too small for two threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _load("numpy")


def check_training():
    """Check what train.py needs, and its options."""
    check_writing()
    require.require(["torch"])
    from sancho.config import TrainOptions  # not above: it needs packages that may be missing

    _check_options(TrainOptions())
    _load("torch")


def check_evaluation():
    """Check what evaluate.py needs, and its options."""
    check_writing()
    require.require(["torch"])
    from sancho.config import EvaluateOptions  # as above

    _check_options(EvaluateOptions())
    _load("torch")


def hear_interrupts():
    """Let Ctrl+C be a KeyboardInterrupt again, once all is imported."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number, frame):
    """End at once, because a package that is being imported may catch an exception."""
    sys.stderr.write("\ninterrupted\n")
    sys.stderr.flush()
    os._exit(130)


def _load(package):
    """Load a package, or end the script with one line where that fails or it is too old."""
    problem = require.problem(package)
    if problem:
        require.fail(problem)


def _check_options(default):
    """End the script with one line if an option is unknown or its value has the wrong type."""
    from sancho import cli
    from sancho.errors import UserError

    try:
        cli.check(default, sys.argv[1:])
    except UserError as error:
        require.fail(" ".join(str(error).split()))
