"""Settings that numerical libraries read when they are loaded."""

import os


def calm_threads() -> None:
    """Keep the libraries' threads from waiting in loops that take a core from other programs.

    To be called before NumPy and PyTorch are imported; what the user has set stays. OpenBLAS gets
    one thread: the matrices of an incremental decoder are too small for a second. libgomp, where it
    still divides an operation, looks 20,000 times before it sleeps, which costs no speed alone.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
