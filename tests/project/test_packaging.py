"""What is installed: pyproject.toml, requirements.txt, the pages and the package's files agree."""

import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from conftest import HERE, ROOT
from test_pages import ALL_PAGES, commands, page, prose

from sancho.machine.packages import LEAST

tomllib = pytest.importorskip("tomllib", reason=f"{HERE}Python has it since 3.11")

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
FOR_TESTS = {"pytest", "pytest-xdist", "hypothesis"}


def test_the_one_line_of_readme_installs_the_dependencies_and_what_tests_need():
    lines = set((ROOT / "requirements.txt").read_text(encoding="utf-8").split("\n")) - {""}
    assert lines == {*PROJECT["dependencies"], *FOR_TESTS}


def test_pages_know_one_way_to_install_pytorch():
    pages = [page(name) for name in (*ALL_PAGES, "site/index.md", "site/english.md")]
    lines = [line for text in pages for _, line in commands(text) if "pytorch.org" in line]
    assert len({line.partition(" torch ")[0] for line in lines}) == 1


@pytest.mark.parametrize("name", [*ALL_PAGES, "site/index.md", "site/english.md"])
def test_what_a_page_lets_pip_install_is_there(name):
    """Files with requirements, and extras of the project."""
    lines = [line for _, line in commands(page(name))]
    lines += re.findall(r"`([^`\n]+)`", prose(page(name)))
    lines = [line for line in lines if re.search(r"\bpip install ", line)]
    for line in lines:
        for path in re.findall(r"-r (\S+)", line):
            assert (ROOT / path).is_file(), line
        for extras in re.findall(r"\.\[([\w,-]+)\]", line):
            assert {*extras.split(",")} <= PROJECT["optional-dependencies"].keys(), line


def test_who_uses_sancho_gets_no_tool_of_those_who_change_it():
    names = {re.match(r"[\w-]+", line)[0] for line in PROJECT["dependencies"]}
    assert names == {"torch", "numpy", "filelock", "safetensors", "tqdm"}
    # An old upper bound would ask for a PyTorch that a new Python or GPU does not have.
    assert not [line for line in PROJECT["dependencies"] if "<" in line or "==" in line]


def test_what_is_asked_of_a_package_that_is_there_is_what_is_installed():
    wanted = {re.match(r"\w+", line)[0]: line for line in PROJECT["dependencies"]}
    for name, (major, minor) in LEAST.items():
        assert wanted[name] == f"{name}>={major}.{minor}"


def test_every_file_of_the_package_is_installed():
    """A folder with an __init__.py is a package; every other file of it is named as data."""
    where = {package: package.replace(".", "/") for package in SETUPTOOLS["packages"]}
    where |= SETUPTOOLS["package-dir"]
    data = [
        f"{where[package]}/{pattern}"
        for package, patterns in SETUPTOOLS["package-data"].items()
        for pattern in patterns
    ]
    for pattern in data:
        assert any(ROOT.glob(pattern)), f"{pattern} fits no file"
    of_page = [path for part in ("engine", "ui") for path in (ROOT / "page" / part).rglob("*")]
    for path in [*(ROOT / "sancho").rglob("*"), *of_page]:
        if path.is_file() and "__pycache__" not in path.parts:
            inside = path.relative_to(ROOT)
            is_module = path.suffix == ".py" and inside.parent.as_posix() in where.values()
            assert is_module or any(inside.match(p) for p in data), path


@pytest.mark.slow
def test_a_wheel_makes_a_page(tmp_path):
    """A page needs scripts, strings and style, which are files beside the modules."""
    pytest.importorskip("setuptools")
    tree = tmp_path / "tree"
    for name in ("sancho", "page"):
        left_out = shutil.ignore_patterns("node_modules", "__pycache__")
        shutil.copytree(ROOT / name, tree / name, ignore=left_out)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    build = [sys.executable, "-m", "pip", "wheel", str(tree), "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--quiet", "--wheel-dir", str(tmp_path)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    program = (
        "from sancho import checkpoint\n"
        "from sancho.convert import page\n"
        "assert 'installed' in page.__file__\n"
        "page.write_page(checkpoint.pretrained(), 'page.html', precision='float16')\n"
    )
    path = str(tmp_path / "installed")
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        check=True,
    )
    text = (tmp_path / "page.html").read_text("utf-8")
    assert 'id="engine"' in text
    assert "class GPT" in text
