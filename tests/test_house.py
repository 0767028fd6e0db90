import ast
import os
import re
import subprocess
import sys
from functools import cache

import pytest
from conftest import ROOT

MODULES = sorted(path.stem for path in (ROOT / "sancho").glob("*.py") if path.stem != "__init__")
EXPORTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "sancho" / "convert").rglob("*.py")
    if path.parent.name != "convert" or path.stem != "__init__"
)
LIBRARY = [*(f"sancho/{name}.py" for name in MODULES), *EXPORTS]
SCRIPTS = ["train.py", "sample.py", "evaluate.py", "convert.py"]
# From the ground up. A module, or the folder convert, imports what is below it, or beside it
# without a circle.
FLOORS = (
    {"errors", "shell"},
    {"tokenizer", "config", "device", "distributed", "seeds", "threads", "files", "text"},
    {"corpus", "ngrams", "weights", "presets", "numpy_model", "dropout", "counting", "batches"},
    {"model"},
    {"cli", "preflight", "proof"},
    {"implementation"},
    {"loss", "optim", "checkpoint", "sources", "generate"},
    {"state"},
    {"report"},
    {"training"},
    {"plan", "run", "metrics", "folder", "measures", "curve", "convert"},
    {"terminal"},
)


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


def inner_imports(path: str) -> set[str]:
    """Return the names of the modules of ours that a file imports; convert is one."""
    names = {name.split(".")[1] for name in imports_of(path) if name.startswith("sancho.")}
    return names & {*MODULES, "convert"}


@pytest.mark.parametrize("path", LIBRARY)
def test_imports_point_downwards(path):
    room = path.removesuffix(".py").split("/")[1]
    level = next(number for number, floor in enumerate(FLOORS) if room in floor)
    assert inner_imports(path) <= set().union(*FLOORS[: level + 1])


def test_only_scripts_and_their_first_check_have_a_command_line():
    assert [path for path in LIBRARY if "cli" in inner_imports(path)] == ["sancho/preflight.py"]


def test_imports_go_in_no_circle():
    graph = {module: inner_imports(f"sancho/{module}.py") for module in MODULES}
    while graph:
        free = [module for module, needs in graph.items() if not needs & graph.keys()]
        assert free, f"a circle among {sorted(graph)}"
        for module in free:
            del graph[module]


@pytest.mark.parametrize("path", LIBRARY + SCRIPTS)
def test_only_required_packages_are_imported(path):
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    required = {re.match(r"[\w-]+", line)[0].replace("-", "_") for line in lines if line.strip()}
    required -= {"pytest", "hypothesis"}
    if path in EXPORTS:  # theirs are extras
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        extras = re.search(r"^convert = \[(.*)\]", project, re.MULTILINE)[1]
        required |= set(re.findall(r'"(\w+)', extras))
    outer = {name.partition(".")[0] for name in imports_of(path)} - {"sancho"}
    assert outer <= required | sys.stdlib_module_names


@pytest.mark.parametrize("minor", [6, 7, 8, 9])
@pytest.mark.parametrize("path", [*SCRIPTS, "sancho/__init__.py", "sancho/preflight.py"])
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
    names = [f"sancho.{module}" for module in MODULES]
    names += [f"sancho.convert.{export}" for export in ("page", "huggingface", "onnx")]
    names += ["train", "sample", "evaluate", "convert"]
    command = [sys.executable, "-c", LOOK_AROUND, *names]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert list(tmp_path.iterdir()) == []
