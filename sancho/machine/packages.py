"""Whether a package can be used, and the command that installs it.

The syntax is that of Python 3.6, as in preflight.py, which needs this.
"""

import os
import re
import sys
import sysconfig
from pathlib import Path

LEAST = {"numpy": (2, 0), "torch": (2, 9)}
"""The oldest versions that work, as in pyproject.toml."""
LONGEST_REASON = 200  # characters
NAMES = {"numpy": "NumPy", "torch": "PyTorch"}
WITHOUT_TORCH = "; sample.py (without --device) and docs/index.html write without PyTorch"
OWN_PYTHON = Path(".venv", "Scripts" if os.name == "nt" else "bin", "python")
FOR_A_CPU = "--index-url https://download.pytorch.org/whl/cpu (for a GPU leave that out)"


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


def lack(packages: str) -> str:
    """Return what to say where packages are not there."""
    todo = "; start a Python that has it, or install it: "
    if _is_managed():
        todo = ", and the system does not let you install packages into it; "
    return f"{python()} lacks {packages}{todo}{_installation(packages)}"


def _reason(error: BaseException) -> str:
    """Return the first cause of an error in a few words."""
    while error.__cause__ is not None:
        error = error.__cause__
    words = " ".join(str(error).split()) or type(error).__name__
    if os.name == "nt" and isinstance(error, OSError):
        words += "; the Visual C++ Redistributable of Microsoft may be missing"
    return words[:LONGEST_REASON]


def _installation(packages: str) -> str:
    """Return the commands that install packages for this Python, or for one that may have them."""
    if not _is_managed():
        return ", then ".join(_commands(python(), packages))
    root = Path(__file__).resolve().parents[2]
    requirements = _quoted(os.path.relpath(root / "requirements.txt"))
    commands = [f"{python()} -m venv .venv"]
    commands += _commands(str(OWN_PYTHON), f"torch -r {requirements}")
    return f"make an environment of your own: {', then '.join(commands)}; then start {OWN_PYTHON}"


def _commands(interpreter: str, packages: str):
    """Return the commands of pip for packages; PyTorch comes from an index of its own."""
    words = packages.split()
    options = [word for word in words if word.startswith("--")]
    others = [word for word in words if word not in ["torch", *options]]
    commands = []
    if "torch" in words:
        commands.append([*options, "torch", FOR_A_CPU])
    if others:
        commands.append([*options, *others])
    return [f"{interpreter} -m pip install {' '.join(line)}" for line in commands]


def _is_managed() -> bool:
    """Return whether pip refuses to install into this Python, as on Debian (PEP 668)."""
    mark = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    return sys.prefix == sys.base_prefix and mark.exists()


def python() -> str:
    """Return how this Python is called in a shell."""
    return _quoted(sys.executable)


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path
