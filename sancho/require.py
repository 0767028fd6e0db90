"""Whether this Python is new enough, and has the packages that are needed.

It imports nothing of ours and is written in the syntax of Python 2.7, which may be what reads it.
"""

import os
import sys

PACKAGES = ["numpy", "safetensors", "filelock", "tqdm"]
"""What every script needs."""
FOR_A_CPU = " --extra-index-url https://download.pytorch.org/whl/cpu (for a GPU leave that out)"


def require(packages):
    """End the script with one line if this Python is too old, or lacks one of the packages."""
    python = '"%s"' % sys.executable if " " in sys.executable else sys.executable
    if sys.version_info < (3, 10):
        found = "%s is Python %d.%d" % ((python,) + sys.version_info[:2])
        fail("this needs Python 3.10 or later, and %s; start it with a newer one" % found)
    from importlib.util import find_spec  # not above: Python 2.7 has none

    missing = " ".join(name for name in packages if find_spec(name) is None)
    if missing:
        command = "%s -m pip install %s" % (python, missing)
        command += FOR_A_CPU if "torch" in missing else ""
        fail("%s lacks %s; start the Python that has it, or: %s" % (python, missing, command))


def fail(message):
    """Print one line and exit with status 2."""
    sys.stderr.write("%s: error: %s\n" % (os.path.basename(sys.argv[0]), message))
    sys.exit(2)
