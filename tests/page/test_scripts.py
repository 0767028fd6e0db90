"""The page's scripts are modules that can be put into one scope, and pass their own checks."""

import json
import re
import runpy
import shutil
import subprocess

import pytest
from conftest import ROOT

from sancho.convert import scripts

MODULES = [
    path.relative_to(scripts.FOLDER).as_posix()
    for folder in ("engine", "ui")
    for path in sorted((scripts.FOLDER / folder).glob("*.js"))
]
TOP_LEVEL = re.compile(
    r"^(export )?(?:async )?(?:function\*?|class|const|let) (?:(\w+|\$)|[\[{]([^\]}]*)[\]}])", re.M
)
COMMENT = re.compile(r"^ *(?://|/?\*).*\n", re.M)


def declared(module: str, *, exported: bool = False) -> list[str]:
    """Return what a module names at its top level, or what of it others may import."""
    return [
        name
        for export, one, several in TOP_LEVEL.findall(scripts.source(module))
        if export or not exported
        for name in ([one] if one else re.findall(r"\w+", several))
    ]


def test_modules_can_be_joined_to_one_script():
    names = [name for module in MODULES for name in declared(module)]
    assert len(set(names)) == len(names) > 200
    assert sorted(scripts.in_order(scripts.WORKER, scripts.START)) == MODULES
    for module in MODULES:
        text = COMMENT.sub("", scripts.source(module))
        body = scripts.EXPORT.sub("", scripts.IMPORT.sub("", text)).replace("...", " ")
        assert not re.findall(r"^\s*(?:import|export)\b.*|\bimport\(.*", body, re.M), module
        for imported, wanted in scripts.imports(module):
            assert set(wanted) <= set(declared(imported, exported=True)), (module, imported)
            assert imported.startswith("engine/") or module.startswith("ui/"), (module, imported)
            for name in wanted:
                assert re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", body), (module, name)
        if module.startswith("engine/"):
            assert not re.search(r"\b(?:document|window)\.", body), module


def test_no_module_imports_itself_by_way_of_others():
    left = {module: {imported for imported, _ in scripts.imports(module)} for module in MODULES}
    while left:
        free = [module for module, needs in left.items() if not needs & left.keys()]
        assert free, f"a circle among {sorted(left)}"
        for module in free:
            del left[module]


def run_node(*words: str) -> None:
    """Run a program of Node.js and show its output if it fails."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    done = subprocess.run(
        [node, *words], cwd=ROOT / "page", capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def tool(path: str) -> str:
    """Return the path of a tool that `npm ci` installs."""
    if not (ROOT / "page" / "node_modules" / path).is_file():
        pytest.skip(f"page/node_modules/{path} is not there: npm ci")
    return f"node_modules/{path}"


@pytest.mark.generated
def test_the_engine_is_tried_on_what_python_computes():
    make = runpy.run_path(str(ROOT / "page" / "tests" / "make.py"))
    assert json.loads(make["CASES"].read_text("utf-8")) == make["cases"](), (
        "page/tests/cases.json is out of date; run: python page/tests/make.py"
    )


def test_the_engine_computes_what_python_computes():
    run_node("--test", "--test-force-exit", "tests/")


def test_the_linter_finds_nothing():
    run_node(tool("eslint/bin/eslint.js"), ".")


def test_the_types_of_the_engine_fit():
    run_node(tool("typescript/bin/tsc"))
