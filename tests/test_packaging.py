"""What is installed: pyproject.toml, requirements.txt, the package's files, and CI agree."""

import re
from pathlib import Path

import pytest
from conftest import HERE, ROOT

tomllib = pytest.importorskip("tomllib", reason=f"{HERE}Python has it since 3.11")

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, SETUPTOOLS = PYPROJECT["project"], PYPROJECT["tool"]["setuptools"]
EXTRAS = PROJECT["optional-dependencies"]
FOR_TESTS = {"pytest", "pytest-xdist", "hypothesis"}


def test_the_one_line_of_readme_installs_the_dependencies_and_what_tests_need():
    lines = set((ROOT / "requirements.txt").read_text(encoding="utf-8").split("\n")) - {""}
    assert lines == {*PROJECT["dependencies"], *FOR_TESTS}


def test_who_uses_sancho_gets_no_tool_of_those_who_change_it():
    names = {re.match(r"[\w-]+", line)[0] for line in PROJECT["dependencies"]}
    assert names == {"torch", "numpy", "filelock", "safetensors", "tqdm"}
    for path in (".ci/run", ".github/workflows/ci.yml"):  # torch aside, what writes needs them all
        (found,) = re.findall(r"install.* (numpy .*)", (ROOT / path).read_text(encoding="utf-8"))
        assert {*found.split()} == names - {"torch"} | {"pytest"}
    # An old upper bound would ask for a PyTorch that a new Python or GPU does not have.
    assert not [line for line in PROJECT["dependencies"] if "<" in line or "==" in line]
    assert set(EXTRAS["dev"]) >= FOR_TESTS  # who changes it gets the other extras, too
    (own,) = (line for line in EXTRAS["dev"] if line.startswith(PROJECT["name"]))
    assert set(re.search(r"\[(.*)\]", own)[1].split(",")) == EXTRAS.keys() - {"dev"}


def test_every_extra_that_a_page_or_an_error_names_exists():
    paths = [*ROOT.glob("*.md"), *ROOT.glob("notebooks/*.md"), *ROOT.glob("sancho/**/*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    named = re.findall(r'install (?:-e )?"?\.\[([\w,]+)\]', text)
    assert "convert" in named
    assert {extra for names in named for extra in names.split(",")} <= EXTRAS.keys()


ADDRESSES = {
    "a paper, a book or a page that is cited": """
        arxiv.org cdn.openai.com d2l.ai doi.org jfly.uni-koeln.de jmlr.org karpathy.ai
        kellerjordan.github.io nlp.seas.harvard.edu papers.nips.cc poloclub.github.io
        transformer-circuits.pub www.cs.toronto.edu www.jmlr.org www.lesswrong.com www.mathnet.ru
        github.com/kingoflolz/mesh-transformer-jax github.com/rasbt/LLMs-from-scratch""",
    "a text to train on, downloaded": """
        gutenberg.pglaf.org www.gutenberg.org raw.githubusercontent.com/karpathy/char-rnn""",
    "a tool, or the program that figures are compared with": """
        download.pytorch.org github.com/huggingface/safetensors github.com/karpathy/nanoGPT
        pytorch.org""",
    "a licence, or a rule that is followed": "creativecommons.org keepachangelog.com semver.org",
    "where a repository that somebody names is found": """
        colab.research.google.com/github/{} github.com/{} mybinder.org/v2/gh/{}""",
    "a name, which nobody opens": "example.org www.w3.org x",
    "this machine": "127.0.0.1 localhost",
}
"""Why → the hosts, or the beginnings of addresses, that the tree may name: none of its own."""
TEXTS = """
    *.md *.py *.toml *.txt .binder/* .ci/* .github/**/*.* benchmarks/*.* data/*.* docs/**/*.*
    notebooks/*.* notebooks/piezas/*.* sancho/**/*.* site/*.* site/*/*.css site/*/*.html tests/*.*
"""


def test_every_absolute_address_has_a_reason():
    known = {address for listed in ADDRESSES.values() for address in listed.split()}
    named: dict[str, set[str]] = {}
    found = {path for pattern in TEXTS.split() for path in ROOT.glob(pattern)}
    texts = {path for path in found if path.suffix not in (".png", ".safetensors", ".wasm", ".pyc")}
    for path in filter(Path.is_file, texts):
        for address in re.findall(r"https?://([\w.{}/-]+)", path.read_text(encoding="utf-8")):
            address = re.sub(r"\{\w*\}", "{}", address)
            parts = address.split("/")
            if not known & {"/".join(parts[:n]) for n in range(1, 6)}:
                named.setdefault(path.relative_to(ROOT).as_posix(), set()).add(address)
    assert named == {}


def test_every_file_of_the_package_is_installed():
    """A folder with an __init__.py is a package; every other file of it is named as data."""
    assert SETUPTOOLS["packages"]["find"] == {"include": ["sancho*"], "namespaces": False}
    data = [
        f"{package.replace('.', '/')}/{pattern}"
        for package, patterns in SETUPTOOLS["package-data"].items()
        for pattern in patterns
    ]
    for pattern in data:
        assert any(ROOT.glob(pattern)), f"{pattern} fits no file"
    for path in (ROOT / "sancho").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            is_module = path.suffix == ".py" and (path.parent / "__init__.py").exists()
            assert is_module or any(path.relative_to(ROOT).match(p) for p in data), path


def test_the_changelog_knows_the_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased, *released = re.findall(r"^## ([\w.]+)", text, re.MULTILINE)
    assert (unreleased, released[0]) == ("Unreleased", PROJECT["version"])


def test_ci_tries_the_oldest_python_that_is_promised():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    oldest = re.search(r'python: \["([\d.]+)"', text)[1]
    assert PROJECT["requires-python"] == f">={oldest}"
    ruff = PYPROJECT["tool"]["ruff"]["target-version"]
    assert ruff == f"py{oldest.replace('.', '')}"


def test_the_paths_that_contributing_names_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:sancho|tests|benchmarks|notebooks)/[a-z0-9_/.]*)`", text)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []
