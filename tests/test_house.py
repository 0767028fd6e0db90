import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, SCRIPTS, parse_train, random_gpt

from sancho import checkpoint, cli
from sancho.config import EvaluateOptions, ModelConfig, SampleOptions, TrainConfig, TrainOptions

MODULES = sorted(path.stem for path in (ROOT / "sancho").glob("*.py") if path.stem != "__init__")
DOORS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "sancho" / "doors").rglob("*.py")
    if path.parent != ROOT / "sancho" / "doors" or path.stem != "__init__"
)
PATHS = ("train.py", "sample.py", "evaluate.py", "convert.py", "data/prepare.py")
PAGES = ("README.md", "README.es.md")
# From the bottom up. A module imports what is below it, or beside it without a circle.
LAYERS = (
    {"config", "tokenizer", "errors", "files", "streams"},
    {
        "distributed",
        "download",
        "layout",
        "presets",
        "plain",
        "corpus",
        "device",
        "ngrams",
        "curve",
        "quality",
    },
    {"model"},
    {"objective", "optim", "evaluate", "generate", "checkpoint", "analysis", "baselines"},
    {"training", "assessment"},
    {"run_folder"},
    {"start"},
    {"cli"},
)


def tree_of(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


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


def inner_imports(module: str) -> set[str]:
    names = imports_of(f"sancho/{module}.py")
    return {name.split(".")[1] for name in names if name.startswith("sancho.")}


# --- what may import what -------------------------------------------------------------------


def test_every_module_has_its_layer():
    assert sorted(set().union(*LAYERS)) == MODULES
    assert sum(map(len, LAYERS)) == len(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downwards(module):
    level = next(number for number, layer in enumerate(LAYERS) if module in layer)
    allowed = set().union(*LAYERS[: level + 1]) - {module}
    assert inner_imports(module) <= allowed


def test_imports_go_in_no_circle():
    graph = {module: inner_imports(module) for module in MODULES}
    while graph:
        free = [module for module, needs in graph.items() if not needs & graph.keys()]
        assert free, f"a circle among {sorted(graph)}"
        for module in free:
            del graph[module]


def test_only_scripts_go_through_the_doors():
    assert DOORS
    for module in MODULES:
        assert "doors" not in inner_imports(module)


@pytest.mark.parametrize("path", DOORS)
def test_doors_are_above_the_checkpoint_and_beside_each_other(path):
    allowed = set().union(*LAYERS[:4]) | {"doors"}
    assert {name.split(".")[1] for name in imports_of(path) if name[:7] == "sancho."} <= allowed


@pytest.mark.parametrize("path", [*(f"sancho/{name}.py" for name in MODULES), *DOORS])
def test_modules_import_nothing_from_the_scripts(path):
    outer = {name.partition(".")[0] for name in imports_of(path)}
    assert not outer & {"train", "sample", "convert", "data", "prepare", "tests", "benchmarks"}


@pytest.mark.parametrize("path", [*(f"sancho/{name}.py" for name in MODULES), *DOORS, *PATHS])
def test_only_required_packages_are_imported(path):
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    required = {re.match(r"[\w-]+", line)[0].replace("-", "_") for line in lines if line.strip()}
    required -= {"pytest", "hypothesis"}
    if path in DOORS:  # theirs are extras
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        extras = re.search(r"^convert = \[(.*)\]", project, re.MULTILINE)[1]
        required |= set(re.findall(r'"(\w+)', extras))
    outer = {name.partition(".")[0] for name in imports_of(path)} - {"sancho"}
    assert outer <= required | sys.stdlib_module_names


def test_what_goes_with_the_weights_needs_only_torch_and_transformers():
    outer = {name.partition(".")[0] for name in imports_of("sancho/doors/modeling_sancho.py")}
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
    names = [f"sancho.{module}" for module in MODULES]
    names += [f"sancho.doors.{door}" for door in ("page", "huggingface", "onnx", "nanogpt")]
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


@pytest.mark.parametrize(
    "module", ["sancho.checkpoint", "sancho.generate", "sancho.plain", "sancho.cli", "convert"]
)
def test_who_writes_imports_no_torch(module):
    assert torch_modules_of(f"import {module}") == ([], "")


def test_an_import_of_torch_would_be_seen():
    assert "torch" in torch_modules_of("import sancho.model")[0]


@pytest.mark.parametrize("options", [[], ["--device=cpu"], ["--dtype=float32", "--no_stream"]])
def test_sampling_on_a_cpu_imports_no_torch(tmp_path, options):
    path = tmp_path / "best.safetensors"
    checkpoint.save(path, small_checkpoint(ngram_size=3, ngram_rows=16))
    program = "import sample\nsample.main(sys.argv[1:])"
    args = ["--checkpoint", path, "--start=ab", "--max_new_tokens=9", *options]
    modules, text = torch_modules_of(program, *args)
    assert modules == []
    assert re.fullmatch("ab[ab]{9}\r?\n", text)


def small_checkpoint(**shape) -> checkpoint.Checkpoint:
    """Return a checkpoint of a model that knows two letters."""
    config = ModelConfig(vocab_size=2, block_size=4, n_layer=1, n_head=1, n_embd=2, **shape)
    return checkpoint.Checkpoint(
        model=config,
        characters="ab",
        train=TrainConfig(),
        progress=checkpoint.Progress(),
        corpus_name="quijote",
        corpus_sha256="",
        weights=random_gpt(config).arrays(),
    )


# --- house rules ----------------------------------------------------------------------------


def functions_of(path: str) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", [*(f"sancho/{n}.py" for n in MODULES if n != "cli"), *DOORS])
def test_the_library_neither_prints_nor_exits(path):
    called = {
        ast.unparse(node.func) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)
    }
    forbidden = {"print", "exit", "quit", "input", "sys.exit", "os._exit", "os.abort"}
    forbidden |= {"sys.stdout.write", "sys.stderr.write", "SystemExit"}
    assert not called & forbidden


@pytest.mark.parametrize(
    ("script", "limit"),
    [("train.py", 80), ("sample.py", 60), ("evaluate.py", 60), ("convert.py", 60)],
)
def test_the_recipes_are_short(script, limit):
    assert len((ROOT / script).read_text(encoding="utf-8").splitlines()) <= limit


@pytest.mark.parametrize("path", [*(f"sancho/{name}.py" for name in MODULES), *DOORS])
def test_a_function_fits_on_a_screen(path):
    for function in functions_of(path):
        length = function.end_lineno - function.lineno + 1
        assert length <= 60, f"{function.name} has {length} lines"


def public_definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in body:
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if named and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node.body, f"{prefix}{node.name}.")


@pytest.mark.parametrize("path", [*(f"sancho/{name}.py" for name in MODULES), *DOORS, *PATHS])
def test_every_public_name_has_a_docstring(path):
    tree = tree_of(path)
    assert ast.get_docstring(tree)
    missing = [name for name, node in public_definitions(tree.body) if not ast.get_docstring(node)]
    assert missing == []


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


# --- the two pages --------------------------------------------------------------------------


def page(name: str) -> str:
    for path in PAGES:
        if not (ROOT / path).exists():
            pytest.skip(f"{path} is not there")
    return (ROOT / name).read_text(encoding="utf-8")


def commands(text: str) -> list[tuple[str, str]]:
    """Return (shell, line) of the fenced blocks, without comments, continued lines joined."""
    found = []
    for shell, block in re.findall(
        r"^[ >]*```(bash|powershell)\n(.*?)^[ >]*```", text, re.MULTILINE | re.DOTALL
    ):
        for line in re.sub(r"[\\`]\n\s*", " ", block).splitlines():
            # A comment may be translated; what is typed may not.
            line = re.sub(r"(^|\s)#.*", "", line).strip()
            if line:
                found.append((shell, line))
    return found


def python_commands(text: str) -> list[tuple[str, list[str]]]:
    """Return (script, arguments) of every `python SCRIPT …` in the blocks."""
    found = []
    for _, line in commands(text):
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if not set(word) <= set("|&;<>"):
                words.append(word)
                continue
            script = next((w for w in words if w.replace("\\", "/") in PATHS), None)
            if script:
                place = words.index(script)
                found.append((script.replace("\\", "/"), words[place + 1 :]))
            words = []
    return found


OPTIONS = {
    "train.py": TrainOptions(),
    "sample.py": SampleOptions(),
    "evaluate.py": EvaluateOptions(),
    "data/prepare.py": SCRIPTS["prepare.py"].PrepareOptions(),
}


COMMANDS = {name: options for name, (options, _) in SCRIPTS["convert.py"].COMMANDS.items()}


def option_names() -> set[str]:
    all_options = [*OPTIONS.values(), *COMMANDS.values()]
    names = [name for options in all_options for name in cli.option_names(options)]
    spellings = {spelling for name in names for spelling in (name, f"no_{name}")}
    return {f"--{name}" for name in spellings} | {"--help"}


def parse_as_the_script_does(script: str, args: list[str]) -> None:
    if script == "train.py":
        parse_train(args)
    elif script == "convert.py":
        cli.parse_command(COMMANDS, args)
    else:
        cli.parse(OPTIONS[script], args)


@pytest.fixture
def some_run(tmp_path, monkeypatch) -> Path:
    """Work in a folder where every checkpoint that a page speaks of is there."""
    monkeypatch.chdir(tmp_path)
    saved = small_checkpoint()
    for name in PAGES:
        for script, args in python_commands(page(name)):
            if script == "train.py":
                joined = " ".join(args)
                folder = re.search(r"--out[_-]dir[ =](\S+)", joined)
                source = re.search(r"--init[_-]from[ =](\S+)", joined)
                paths = [Path(folder[1] if folder else "out", "last.safetensors")]
                for path in [*paths, *([Path(source[1])] if source else [])]:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    checkpoint.save(path, saved)
    return tmp_path


def test_both_pages_have_the_same_commands():
    english, spanish = (commands(page(name)) for name in PAGES)
    assert english, "no commands were found"
    assert english == spanish


@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_a_page_can_be_given(name, some_run):
    found = python_commands(page(name))
    assert found, "no commands were found"
    for script, args in found:
        # A page may ask for a GPU; whether this machine has one is another question.
        here = [re.sub(r"^(--device=)?(cuda|mps)$", r"\1cpu", arg) for arg in args]
        parse_as_the_script_does(script, here)


@pytest.mark.parametrize("name", PAGES)
def test_every_option_that_a_page_names_exists(name):
    text = page(name)
    prose = re.sub(r"^[ >]*```.*?^[ >]*```", "", text, flags=re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", prose)
    # pip, git, pytest and torchrun have options of their own.
    ours = [s for s in spans if not re.match(r"(python -m|pip|git|ruff|pytest|torchrun)\b", s)]
    named = {option for span in ours for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)}
    assert {option.replace("-", "_").replace("__", "--", 1) for option in named} <= option_names()


def test_the_reader_of_pages_finds_what_it_should():
    text = (
        "```bash\n# a comment\npython train.py --n_layer 2 \\\n  --bias  # one more\n"
        "cat x | python sample.py --start - | head\n```\n"
        "```text\npython train.py --wrong\n```\n"
        "- in a list:\n  ```powershell\n  python data\\prepare.py --name x\n  ```\n"
    )
    assert commands(text) == [
        ("bash", "python train.py --n_layer 2  --bias"),
        ("bash", "cat x | python sample.py --start - | head"),
        ("powershell", "python data\\prepare.py --name x"),
    ]
    assert python_commands(text.replace("\\p", "/p")) == [
        ("train.py", ["--n_layer", "2", "--bias"]),
        ("sample.py", ["--start", "-"]),
        ("data/prepare.py", ["--name", "x"]),
    ]
    assert json.dumps(sorted(option_names())).count("--n_layer") == 1
