import ast
import os
import re
import subprocess
import sys
from functools import cache

import pytest
from conftest import ROOT

LIBRARY = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "sancho").rglob("*.py"))]
SCRIPTS = ["train.py", "sample.py", "evaluate.py", "convert.py"]


@cache
def imports_of(path: str) -> set[str]:
    """Return the full names of all that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
            if node.module == "sancho":
                found |= {f"sancho.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {ast.literal_eval(name) for name in node.args[:1]}
    return found


def room_of(module: str) -> str:
    """Return the room of a module, which is its folder, or the name of a file at the top."""
    return module.split(".")[1]


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def rooms() -> dict[str, set[str]]:
    """Return the rooms of the library, and the others that each one imports."""
    graph: dict[str, set[str]] = {}
    for path in LIBRARY:
        if path != "sancho/__init__.py":
            room = room_of(module_of(path))
            found = {name for name in imports_of(path) if name.startswith("sancho.")}
            graph.setdefault(room, set()).update({room_of(name) for name in found} - {room})
    return graph


def assert_no_circle(graph: dict[str, set[str]]) -> None:
    while graph:
        free = {name for name, needs in graph.items() if not needs & graph.keys()}
        assert free, f"a circle among {sorted(graph)}"
        graph = {name: needs for name, needs in graph.items() if name not in free}


def test_rooms_import_in_no_circle():
    assert_no_circle(rooms())


def test_modules_import_in_no_circle():
    names = {module_of(path) for path in LIBRARY}
    assert_no_circle({module_of(path): imports_of(path) & names for path in LIBRARY})


def test_only_scripts_have_a_command_line_and_exports():
    for room, needs in rooms().items():
        assert not needs & {"command", "convert"}, room


@pytest.mark.parametrize("path", LIBRARY + SCRIPTS)
def test_only_required_packages_are_imported(path):
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    required = {re.match(r"[\w-]+", line)[0].replace("-", "_") for line in lines if line.strip()}
    required -= {"pytest", "hypothesis"}
    if path.startswith("sancho/convert/"):  # theirs are extras
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        extras = re.search(r"^convert = \[(.*)\]", project, re.MULTILINE)[1]
        required |= set(re.findall(r'"(\w+)', extras))
    outer = {name.partition(".")[0] for name in imports_of(path)} - {"sancho"}
    assert outer <= required | sys.stdlib_module_names


OLD = [
    *SCRIPTS,
    "sancho/__init__.py",
    "sancho/command/__init__.py",
    "sancho/command/preflight.py",
    "sancho/machine/__init__.py",
    "sancho/machine/packages.py",
]


@pytest.mark.parametrize("minor", [6, 7, 8, 9])
@pytest.mark.parametrize("path", OLD)
def test_a_python_that_is_too_old_can_read_what_says_so(path, minor):
    """A script is read as a whole before its first line runs; test_without_torch.py runs it."""
    ast.parse((ROOT / path).read_text(encoding="utf-8"), feature_version=(3, minor))


LOOK_AROUND = """
import json, os, signal, sys, threading, warnings
import filelock, numpy, safetensors.numpy, torch, tqdm

def state():
    return {
        "seed": torch.initial_seed(),
        "stream": torch.get_rng_state().tolist(),
        "numpy": [str(part) for part in numpy.random.get_state()],
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "torch threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "precision": torch.get_float32_matmul_precision(),
        "type": str(torch.get_default_dtype()),
        "cuda": torch.cuda.is_initialized(),
        "signals": [str(signal.getsignal(number)) for number in signal.valid_signals()],
        "files": sorted(os.listdir()),
        "environment": dict(os.environ),
        "warnings": [str(warnings.showwarning), str(warnings.filters)],
        "streams": [str(sys.stdin), str(sys.stdout), str(sys.stderr)],
        "hooks": str(sys.excepthook),
    }

before = state()
for name in sys.argv[1:]:
    __import__(name)
after = state()
changed = [name for name in before if before[name] != after[name]]
sys.exit(json.dumps(changed) if changed else 0)
"""


def test_importing_does_nothing(tmp_path):
    parts = ("sancho/convert/modeling_sancho.py", "sancho/pretrained/make.py")
    names = [module_of(path) for path in LIBRARY if path not in parts]
    names += ["train", "sample", "evaluate", "convert"]
    command = [sys.executable, "-c", LOOK_AROUND, *names]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert list(tmp_path.iterdir()) == []
