"""Checks that this Python is new enough, has the packages that are needed, and can load them.

This file imports nothing of ours and has the syntax of Python 2.7, so that Python 2 can read it.
"""

import os
import re
import sys

PACKAGES = ["numpy", "safetensors", "filelock", "tqdm"]
"""What every script needs."""
LEAST = {"numpy": (2, 0), "torch": (2, 9)}
"""The oldest versions that work, as in pyproject.toml."""
LONGEST_REASON = 200  # characters
NAMES = {"numpy": "NumPy", "torch": "PyTorch"}
WITHOUT_TORCH = "; sample.py (without --device) and docs/index.html write without PyTorch"
OWN_PYTHON = os.path.join(".venv", "Scripts" if os.name == "nt" else "bin", "python")
FOR_A_CPU = " --extra-index-url https://download.pytorch.org/whl/cpu (for a GPU leave that out)"


def require(packages):
    """End the script with one line if this Python is too old, or lacks one of the packages."""
    python = _python()
    if sys.version_info < (3, 10):
        found = "%s is Python %d.%d" % ((python,) + sys.version_info[:2])
        fail("this needs Python 3.10 or later, and %s; start it with a newer one" % found)
    from importlib.util import find_spec  # not above: Python 2.7 has none

    missing = " ".join(name for name in packages if find_spec(name) is None)
    if missing and _is_managed():
        fail(
            "%s lacks %s, and the system does not let you install packages into it; make an "
            "environment of your own: %s; then start %s"
            % (python, missing, _environment(), OWN_PYTHON)
        )
    if missing:
        command = _pip("", missing)
        fail(
            "%s lacks %s; start a Python that has it, or install it: %s"
            % (python, missing, command)
        )


def problem(package):
    """Load a package that is there; return why it can't be used and what to do, or ""."""
    name = NAMES[package]
    try:
        version = __import__(package).__version__
    except Exception as error:  # a broken package may raise anything
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            raise
        what = "%s can't be loaded (%s)" % (name, _reason(error))
        command = _pip("--force-reinstall ", package)
    else:
        if tuple(int(number) for number in re.findall("[0-9]+", version)[:2]) >= LEAST[package]:
            return ""
        wanted = "%d.%d or later is needed" % LEAST[package]
        what = "%s is version %s, and %s" % (name, version, wanted)
        what += ", which no Mac with an Intel processor has" if package == "torch" else ""
        command = _pip("--upgrade ", package)
    return "%s; %s%s" % (what, command, WITHOUT_TORCH if package == "torch" else "")


def _reason(error):
    """Return the first cause of an error in a few words."""
    while error.__cause__ is not None:
        error = error.__cause__
    words = " ".join(str(error).split()) or type(error).__name__
    if os.name == "nt" and isinstance(error, OSError):
        words += "; the Visual C++ Redistributable of Microsoft may be missing"
    return words[:LONGEST_REASON]


def _pip(how, packages):
    """Return the command that installs packages for this Python."""
    if _is_managed():
        return "make an environment of your own: %s; then start %s" % (_environment(), OWN_PYTHON)
    command = "%s -m pip install %s%s" % (_python(), how, packages)
    return command + FOR_A_CPU if "torch" in packages else command


def _is_managed():
    """Return whether pip refuses to install into this Python, as on Debian (PEP 668)."""
    import sysconfig  # not above: Python 2.7 has none of these paths

    mark = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    return sys.prefix == sys.base_prefix and os.path.exists(mark)


def _environment():
    """Return the commands that make an environment with all that is needed."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    requirements = _quoted(os.path.join(os.path.relpath(root), "requirements.txt"))
    install = "%s -m pip install -r %s" % (OWN_PYTHON, requirements)
    return "%s -m venv .venv && %s%s" % (_python(), install, FOR_A_CPU)


def _python():
    """Return how this Python is called in a shell."""
    return _quoted(sys.executable)


def _quoted(path):
    return '"%s"' % path if " " in path else path


def fail(message):
    """Print one line and exit with status 2."""
    sys.stderr.write("%s: error: %s\n" % (os.path.basename(sys.argv[0]), message))
    sys.exit(2)
