"""Settings that numerical libraries read when they are loaded."""

import os


def calm_threads() -> None:
    """Keep the libraries' threads from waiting in loops that take a core from other programs.

    To be called before NumPy and PyTorch are imported; what the user has set stays. OpenBLAS gets
    one thread: the matrices of an incremental decoder are too small for a second. Where an
    operation is still divided among threads, OpenMP's sleep while they wait: at once with LLVM's
    and Intel's (macOS, Windows), after 20,000 looks with libgomp (Linux). Neither costs speed
    alone.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
