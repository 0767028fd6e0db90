import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from conftest import ROOT

ALL = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "sancho").rglob("*.py"))
COUNTED = [path for path in ALL if not path.startswith(("sancho/convert/", "sancho/pretrained/"))]
MODULES = [path[len("sancho/") : -len(".py")] for path in COUNTED if "__init__" not in path]
EXPORTS = [path for path in ALL if re.match(r"sancho/convert/(?!__init__)", path)]
LIBRARY = [*(f"sancho/{name}.py" for name in MODULES), *EXPORTS]
SCRIPTS = ["train.py", "sample.py", "evaluate.py", "convert.py", "data/prepare.py"]
# From the ground up. A room, a module or a folder of them, imports what is below it, or beside it
# without a circle.
FLOORS = (
    {"errors"},
    {"config", "tokenizer", "machine"},
    {"corpus", "ngrams", "presets", "numpy_model"},
    {"model"},
    {"optim", "checkpoint", "generate"},
    {"training"},
    {"run", "evaluation", "convert"},
    {"cli"},
)
CORE = 13
"""Modules side by side in sancho/."""


@cache
def tree_of(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


@cache
def imports_of(path: str) -> set[str]:
    """Return the full names of all that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
            if node.module == "sancho":
                found |= {f"sancho.{alias.name}" for alias in node.names}
    return found


def inner_imports(path: str) -> set[str]:
    """Return what a file imports of ours, as numpy_model or machine/files."""
    names = {name for name in imports_of(path) if name.startswith("sancho.")}
    paths = {name.removeprefix("sancho.").replace(".", "/") for name in names}
    return {found for found in paths if (ROOT / "sancho" / f"{found}.py").exists()} | {
        "convert" for found in paths if found.startswith("convert")
    }


# --- what may import what -------------------------------------------------------------------


def test_thirteen_modules_and_four_folders():
    rooms = {module.partition("/")[0] for module in MODULES} | {"convert"}
    assert rooms == set().union(*FLOORS)
    assert sum("/" not in module for module in MODULES) == CORE


@pytest.mark.parametrize("path", LIBRARY)
def test_imports_point_downwards(path):
    room = path.removeprefix("sancho/").removesuffix(".py").partition("/")[0]
    level = next(number for number, floor in enumerate(FLOORS) if room in floor)
    allowed = set().union(*FLOORS[: level + 1])
    assert {name.partition("/")[0] for name in inner_imports(path)} <= allowed


def test_imports_go_in_no_circle():
    graph = {module: inner_imports(f"sancho/{module}.py") for module in MODULES}
    while graph:
        free = [module for module, needs in graph.items() if not needs & graph.keys()]
        assert free, f"a circle among {sorted(graph)}"
        for module in free:
            del graph[module]


def test_a_checkpoint_knows_no_implementation_until_one_is_asked_for():
    top = tree_of("sancho/checkpoint.py").body
    names = {node.module for node in top if isinstance(node, ast.ImportFrom)}
    assert not names & {"sancho.model", "sancho.numpy_model"}


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("config", "sancho.errors numpy"),
        ("model", "sancho sancho.config sancho.ngrams numpy torch"),
        ("machine/device", "sancho.config sancho.errors sancho.machine.seeds torch"),
        # It goes with the weights to where there is no sancho.
        ("convert/modeling_sancho", "torch transformers"),
    ],
)
def test_some_modules_need_but_little(path, allowed):
    names = imports_of(f"sancho/{path}.py")
    roots = {name if name.startswith("sancho") else name.partition(".")[0] for name in names}
    assert roots - sys.stdlib_module_names <= set(allowed.split())


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


# --- importing does nothing -----------------------------------------------------------------

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
    names = [f"sancho.{module.replace('/', '.')}" for module in MODULES]
    names += [f"sancho.convert.{export}" for export in ("page", "huggingface", "onnx", "nanogpt")]
    names += ["train", "sample", "evaluate", "convert"]
    command = [sys.executable, "-c", LOOK_AROUND, *names]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert list(tmp_path.iterdir()) == []


# --- house rules ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path in LIBRARY if path != "sancho/cli.py"])
def test_the_library_does_not_exit(path):
    """Nor does it print, which ruff holds."""
    names = [n for n in ast.walk(tree_of(path)) if isinstance(n, ast.Name | ast.Attribute)]
    forbidden = "exit quit input SystemExit sys.exit os._exit os.abort sys.stdout sys.stderr"
    assert not set(map(ast.unparse, names)) & set(forbidden.split())


def lines_in(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def test_what_comes_is_paid_for():
    assert lines_in(ROOT / path for path in COUNTED) <= 4475
    assert lines_in((ROOT / "tests").rglob("*.py")) <= 10_730


@pytest.mark.parametrize("path", LIBRARY)
def test_a_function_fits_on_a_screen(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < 60, node.name
