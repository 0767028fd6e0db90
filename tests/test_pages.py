"""The pages for readers: their links, their commands, and that both languages say the same."""

import re
import shlex
import shutil
from functools import cache, partial
from pathlib import Path

import pytest
from conftest import ROOT, SCRIPTS, parse_train

from sancho import cli
from sancho.config import EvaluateOptions, SampleOptions, TrainOptions

PAIRS = {
    "README.md": "README.es.md",
    "docs/options.md": "docs/es/opciones.md",
    "docs/processes.md": "docs/es/procesos.md",
    "docs/exports.md": "docs/es/exportaciones.md",
    "docs/measurements.md": "docs/es/medidas.md",
}
"""English page → the same in Spanish."""
PAGES = [*PAIRS, *PAIRS.values()]
REPORTS = ["benchmarks/README.md", "data/README.md", "sancho/pretrained/README.md"]
"""In English alone."""
ALL_PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (".", "benchmarks", "data", "docs", "docs/es", "notebooks", "sancho/pretrained")
    for path in (ROOT / folder).glob("*.md")
)
COMMANDS = {name: options for name, (options, _) in SCRIPTS["convert.py"].COMMANDS.items()}
OPTIONS = {
    "sample.py": SampleOptions(),
    "evaluate.py": EvaluateOptions(),
    "data/prepare.py": SCRIPTS["prepare.py"].PrepareOptions(),
}
PARSERS = {name: partial(cli.parse, options) for name, options in OPTIONS.items()} | {
    "train.py": parse_train,
    "convert.py": partial(cli.parse_command, COMMANDS),
}
FENCE = re.compile(r"^[ >]*```(\w*)\n(.*?)^[ >]*```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


@cache
def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def prose(text: str) -> str:
    """Return a page without its fenced blocks."""
    return FENCE.sub("", text)


def commands(text: str) -> list[tuple[str, str]]:
    """Return (shell, line) of the fenced blocks, without comments, continued lines joined."""
    found = []
    for shell, block in FENCE.findall(text):
        # A comment may be translated; what is typed may not.
        typed = re.sub(r"(^|\s)#.*", r"\1", re.sub(r"[\\`]\n\s*", " ", block), flags=re.MULTILINE)
        if shell in ("bash", "powershell"):
            found += [(shell, line.strip()) for line in typed.splitlines() if line.strip()]
    return found


def python_commands(text: str) -> list[tuple[str, list[str]]]:
    """Return (script, arguments) of every `python SCRIPT …` in the blocks."""
    found: list[tuple[str, list[str]]] = []
    for _, line in commands(text):
        lexer = shlex.shlex(line.replace("\\", "/"), posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        is_ours = False
        for word in lexer:
            if set(word) <= set("|&;<>"):
                is_ours = False
            elif is_ours:
                found[-1][1].append(word)
            elif word in PARSERS:
                is_ours = True
                found.append((word, []))
    return found


def test_commands_are_found():
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
    assert python_commands(text) == [
        ("train.py", ["--n_layer", "2", "--bias"]),
        ("sample.py", ["--start", "-"]),
        ("data/prepare.py", ["--name", "x"]),
    ]


# --- links ----------------------------------------------------------------------------------


def anchors(text: str) -> list[str]:
    """Return what GitHub calls the headings of a page; equal ones are told apart by a number."""
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        found.append(f"{slug}-{count}" if (count := found.count(slug)) else slug)
    return found


def broken_links(name: str) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    broken = []
    for link in LINK.findall(prose(page(name))):
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        if re.match(r"https?:", link) or (target.exists() and not anchor):
            continue
        if not target.exists() or anchor not in anchors(target.read_text(encoding="utf-8")):
            broken.append(link)
    return broken


def test_anchors_are_those_of_github():
    text = "# A *b*: `c d.py`\n```bash\n# no heading\n```\n## [Más](x.md) y_z\n## Más y_z\n"
    assert anchors(text) == ["a-b-c-dpy", "más-y_z", "más-y_z-1"]


@pytest.mark.parametrize("name", ALL_PAGES)
def test_every_link_leads_somewhere(name):
    assert broken_links(name) == []


@pytest.mark.parametrize("name", ["README.md", "README.es.md"])
def test_a_readme_is_short_and_leads_to_every_page_and_module(name):
    text = page(name)
    assert text.count("\n") <= 200
    pages = PAIRS if name == "README.md" else PAIRS.values()
    wanted = {path for path in pages if path.startswith("docs")}
    for path in (ROOT / "sancho").rglob("*.py"):
        is_page = "page" in path.relative_to(ROOT).parts  # one row for its files
        module = path.parent if is_page else path
        if module.stem != "__init__":
            wanted.add(module.relative_to(ROOT).as_posix())
    linked = {link.partition("#")[0] for link in LINK.findall(text)}
    assert wanted <= linked


# --- commands and options -------------------------------------------------------------------


def option_names() -> set[str]:
    every = [TrainOptions(), *OPTIONS.values(), *COMMANDS.values()]
    return {f"--{name}" for options in every for name in cli.option_names(options)}


def named_options(text: str) -> set[str]:
    """Return the options of ours that a page names outside its blocks, as --n_layer."""
    spans = re.findall(r"`([^`\n]+)`", prose(text))
    others = r"\S*python3? (-m|benchmarks/)|(pip|git|ruff|pytest|torchrun)\b"  # have their own
    ours = [span for span in spans if not re.match(others, span)]
    named = {option for span in ours for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)}
    return {option.replace("-", "_").replace("__", "--", 1) for option in named}


@pytest.fixture
def some_run(tmp_path, monkeypatch) -> None:
    """Work in a folder where the checkpoints are that a page goes on from."""
    monkeypatch.chdir(tmp_path)
    for path in (Path("out", "last.safetensors"), Path("sancho/pretrained/sancho.safetensors")):
        path.parent.mkdir(parents=True)
        shutil.copy(ROOT / "tests" / "golden" / "mini.safetensors", path)


@pytest.mark.parametrize("name", [*PAIRS, *REPORTS])
def test_every_command_of_a_page_can_be_given(name, some_run):
    for script, args in python_commands(page(name)):
        # A page may ask for a GPU; whether this machine has one is another question.
        here = [re.sub(r"^(--device=)?(cuda|mps)$", r"\1cpu", arg) for arg in args]
        PARSERS[script](here)


@pytest.mark.parametrize("name", [*PAGES, *REPORTS])
def test_every_option_that_a_page_names_exists(name):
    spellings = {spelling for o in option_names() for spelling in (o, o.replace("--", "--no_"))}
    assert named_options(page(name)) <= spellings | {"--help"}


@pytest.mark.parametrize("name", ["docs/options.md", "docs/es/opciones.md"])
def test_the_page_of_options_names_them_all(name):
    assert option_names() <= named_options(page(name))


# --- both languages -------------------------------------------------------------------------


def figures(text: str) -> list[list[str]]:
    """Return the numbers in each row of the tables; 1,800 and 1 800 are written 1800."""
    rows = re.findall(r"^\|.*\|$", prose(text), re.MULTILINE)
    plain = [re.sub(r"(?<=\d)[,\s](?=\d{3}\b)", "", row) for row in rows]
    return [re.findall(r"\d+(?:[.:]\d+)*", row) for row in plain]


@pytest.mark.parametrize(("english", "spanish"), PAIRS.items())
def test_both_languages_say_the_same_and_lead_to_each_other(english, spanish):
    ours, theirs = page(english), page(spanish)
    assert commands(ours)
    assert commands(ours) == commands(theirs)
    assert named_options(ours) == named_options(theirs)
    assert figures(ours) == figures(theirs)
    for here, there in ((english, spanish), (spanish, english)):
        folder = (ROOT / here).parent
        assert ROOT / there in {(folder / link).resolve() for link in LINK.findall(page(here))}
