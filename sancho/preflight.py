"""What a script does before it imports anything else: check Python, its packages and the options.

PyTorch takes seconds to load, and a mistyped option should not wait for it. The syntax is that of
Python 3.6, so that an older Python can say in one line that a newer one is needed.
"""

import os
import re
import signal
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ["numpy", "safetensors", "filelock", "tqdm"]
"""What every script needs."""
LEAST = {"numpy": (2, 0), "torch": (2, 9)}
"""The oldest versions that work, as in pyproject.toml."""
LONGEST_REASON = 200  # characters
NAMES = {"numpy": "NumPy", "torch": "PyTorch"}
WITHOUT_TORCH = "; sample.py (without --device) and docs/index.html write without PyTorch"
OWN_PYTHON = Path(".venv", "Scripts" if os.name == "nt" else "bin", "python")
FOR_A_CPU = " --extra-index-url https://download.pytorch.org/whl/cpu (for a GPU leave that out)"


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
        found = f"{_python()} is Python {sys.version_info[0]}.{sys.version_info[1]}"
        _fail(f"this needs Python 3.10 or later, and {found}; start it with a newer one")
    missing = " ".join(name for name in packages if find_spec(name) is None)
    if missing:
        todo = "; start a Python that has it, or install it: "
        if _is_managed():
            todo = ", and the system does not let you install packages into it; "
        _fail(f"{_python()} lacks {missing}{todo}{_installation(missing)}")


def problem(package: str) -> str:
    """Load a package that is there; return why it can't be used and what to do, or ""."""
    name = NAMES[package]
    try:
        version = __import__(package).__version__
    except Exception as error:  # a broken package may raise anything
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            raise
        what = f"{name} can't be loaded ({_reason(error)})"
        todo = _installation(f"--force-reinstall {package}")
    else:
        if tuple(int(number) for number in re.findall("[0-9]+", version)[:2]) >= LEAST[package]:
            return ""
        major, minor = LEAST[package]
        what = f"{name} is version {version}, and {major}.{minor} or later is needed"
        what += ", which no Mac with an Intel processor has" if package == "torch" else ""
        todo = _installation(f"--upgrade {package}")
    return f"{what}; {todo}{WITHOUT_TORCH if package == 'torch' else ''}"


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
    from sancho import cli  # not above: an older Python can't read them
    from sancho.errors import UserError

    try:
        return cli.read(default, sys.argv[1:])
    except UserError as error:
        _fail(" ".join(str(error).split()))


def _reason(error: BaseException) -> str:
    """Return the first cause of an error in a few words."""
    while error.__cause__ is not None:
        error = error.__cause__
    words = " ".join(str(error).split()) or type(error).__name__
    if os.name == "nt" and isinstance(error, OSError):
        words += "; the Visual C++ Redistributable of Microsoft may be missing"
    return words[:LONGEST_REASON]


def _installation(packages: str) -> str:
    """Return the command that installs packages for this Python, or for one that may have them."""
    cpu = FOR_A_CPU if "torch" in packages else ""
    if not _is_managed():
        return f"{_python()} -m pip install {packages}{cpu}"
    root = Path(__file__).resolve().parent.parent
    requirements = _quoted(os.path.relpath(root / "requirements.txt"))
    environment = f"{_python()} -m venv .venv && {OWN_PYTHON} -m pip install -r {requirements}"
    return f"make an environment of your own: {environment}{FOR_A_CPU}; then start {OWN_PYTHON}"


def _is_managed() -> bool:
    """Return whether pip refuses to install into this Python, as on Debian (PEP 668)."""
    mark = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    return sys.prefix == sys.base_prefix and mark.exists()


def _python() -> str:
    """Return how this Python is called in a shell."""
    return _quoted(sys.executable)


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path


def _fail(message: str) -> None:
    """Print one line and exit with status 2."""
    sys.stderr.write(f"{Path(sys.argv[0]).name}: error: {message}\n")
    sys.exit(2)
