import ast
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from architectures import checkpoint_of
from conftest import ROOT

from sancho import checkpoint
from sancho.config import ModelConfig

MODULES = sorted(
    path.relative_to(ROOT / "sancho").with_suffix("").as_posix()
    for path in (ROOT / "sancho").rglob("*.py")
    if not {"convert", "pretrained"} & {*path.relative_to(ROOT).parts} and path.stem != "__init__"
)
EXPORTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "sancho" / "convert").rglob("*.py")
    if path.parent != ROOT / "sancho" / "convert" or path.stem != "__init__"
)
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
    {"run", "report", "convert"},
    {"cli"},
)
CORE = 12
"""Modules side by side in sancho/, errors.py aside."""


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
            assert node.level == 0, f"{path} has a relative import"
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


def test_twelve_modules_and_four_folders():
    rooms = {module.partition("/")[0] for module in MODULES} | {"convert"}
    assert rooms == set().union(*FLOORS)
    assert sum("/" not in module for module in MODULES) == CORE + 1


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


def test_only_scripts_use_the_exports():
    assert EXPORTS
    for module in MODULES:
        assert "convert" not in inner_imports(f"sancho/{module}.py")


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("config", {"errors"}),
        ("model", {"config", "ngrams"}),
        ("machine/device", {"config", "errors", "machine/seeds"}),
    ],
)
def test_what_the_design_says_of_single_modules(module, allowed):
    assert inner_imports(f"sancho/{module}.py") <= allowed


def test_a_checkpoint_knows_no_implementation_until_one_is_asked_for():
    top = [
        node for node in tree_of("sancho/checkpoint.py").body if isinstance(node, ast.ImportFrom)
    ]
    assert not {node.module for node in top} & {"sancho.model", "sancho.numpy_model"}


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


def test_what_goes_with_the_weights_needs_only_torch_and_transformers():
    outer = {name.partition(".")[0] for name in imports_of("sancho/convert/modeling_sancho.py")}
    assert outer == {"torch", "transformers"}


def test_the_options_need_only_the_standard_library():
    outer = {name.partition(".")[0] for name in imports_of("sancho/config.py")}
    assert outer <= {"sancho"} | sys.stdlib_module_names


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
    names += ["train", "sample", "convert"]
    result = subprocess.run(
        [sys.executable, "-c", LOOK_AROUND, *names],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        timeout=120,
    )
    assert (result.stdout, result.stderr) == (b"", b"")
    assert result.returncode == 0
    assert list(tmp_path.iterdir()) == []


# --- PyTorch takes longer to import than a page to write ------------------------------------


def torch_modules_of(program: str, *args: str | Path) -> tuple[list[str], str]:
    """Return which modules of torch a program imports in a fresh process, and what it wrote."""
    program += "\nimport json\nfound = [name for name in sys.modules if name[:5] == 'torch']"
    program += "\nprint(json.dumps(found), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}", *map(str, args)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stderr.splitlines()[-1]), done.stdout.decode()


def test_who_writes_imports_no_torch():
    modules = "sancho.checkpoint, sancho.generate, sancho.numpy_model, sancho.cli, convert"
    assert torch_modules_of(f"import {modules}") == ([], "")


def test_an_import_of_torch_would_be_seen():
    assert torch_modules_of("sys.modules['torch.nn'] = sys")[0] == ["torch.nn"]


@pytest.mark.parametrize("options", [[], ["--device=cpu", "--dtype=float32", "--num_samples=2"]])
def test_sampling_on_a_cpu_imports_no_torch(tmp_path, options):
    path = tmp_path / "best.safetensors"
    shape = {"block_size": 4, "n_layer": 1, "n_head": 1, "n_embd": 2, "ngram_size": 3}
    checkpoint.save(path, checkpoint_of(ModelConfig(vocab_size=2, **shape), "ab"))
    program = "import sample\nsample.main(sys.argv[1:])"
    args = ["--checkpoint", path, "--start=ab", "--max_new_tokens=9", *options]
    modules, text = torch_modules_of(program, *args)
    assert modules == []
    assert re.fullmatch("(ab[ab]{9}\r?\n)+", text)


# --- house rules ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path in LIBRARY if path != "sancho/cli.py"])
def test_the_library_neither_prints_nor_exits(path):
    called = {
        ast.unparse(node.func) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)
    }
    forbidden = {"print", "exit", "quit", "input", "sys.exit", "os._exit", "os.abort"}
    forbidden |= {"sys.stdout.write", "sys.stderr.write", "SystemExit"}
    assert not called & forbidden


@pytest.mark.parametrize("path", LIBRARY)
def test_a_function_fits_on_a_screen(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < 60, node.name


def test_every_option_has_its_help():
    """The help of a field stands under the field."""
    seen = 0
    for node in tree_of("sancho/config.py").body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, after in zip(node.body, [*node.body[1:], None], strict=True):
            is_field = isinstance(field, ast.AnnAssign)
            if is_field and not ast.unparse(field.annotation).endswith("Config"):
                is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                assert is_text, f"{node.name}.{ast.unparse(field.target)}"
                seen += 1
    assert seen > 40
