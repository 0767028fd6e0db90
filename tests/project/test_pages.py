"""The pages for readers: their links, and their commands, which both languages have."""

import re
import shlex
import shutil
from functools import cache, partial
from pathlib import Path

import pytest
from conftest import ROOT, SCRIPTS, option_names, parse_train

import convert
import sancho
from docs.make_drawing import DRAWINGS, drawing
from evaluate import EvaluateOptions
from sample import SampleOptions
from sancho.command import cli
from sancho.presets import PRESETS, TrainOptions

PAIRS = {
    "README.md": "README.es.md",
    "docs/options.md": "docs/es/opciones.md",
    "docs/how-it-works.md": "docs/es/como-funciona.md",
    "docs/running.md": "docs/es/ejecuciones.md",
    "docs/exports.md": "docs/es/exportaciones.md",
    "docs/troubleshooting.md": "docs/es/problemas.md",
}
"""English page → the same in Spanish."""
PAGES = [*PAIRS, *PAIRS.values()]
REPORTS = ["benchmarks/README.md", "data/README.md", "sancho/pretrained/README.md"]
"""In English alone. What docs/changing.md says is run by test_changing.py."""
COURSE = ["notebooks", "notebooks/docente", "notebooks/taller"]
FOLDERS = [".", ".github", "benchmarks", "data", "docs", "docs/es", "sancho/pretrained", *COURSE]
ALL_PAGES = sorted(
    path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).glob("*.md")
)
COMMANDS = {name: options for name, (options, _) in SCRIPTS["convert.py"].COMMANDS.items()}
OPTIONS = {
    "sample.py": SampleOptions(),
    "evaluate.py": EvaluateOptions(),
}
PARSERS = {name: partial(cli.parse, options) for name, options in OPTIONS.items()} | {
    "train.py": parse_train,
    "convert.py": partial(convert.parse_command, COMMANDS),
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
    """Return (shell, line) of the blocks, without comments, continued lines joined."""
    found = []
    for shell, block in FENCE.findall(text):
        # A comment may be translated.
        typed = re.sub(r"(^|\s)#.*", r"\1", re.sub(r"[\\`]\n\s*", " ", block), flags=re.MULTILINE)
        if shell in ("bash", "powershell"):
            found += [(shell, line.strip()) for line in typed.splitlines() if line.strip()]
    return found


def programs(text: str) -> list[str]:
    """Return the blocks of Python, without comments."""
    return [re.sub(r" *#.*", "", code) for kind, code in FENCE.findall(text) if kind == "python"]


def python_commands(text: str) -> list[tuple[str, list[str]]]:
    """Return (script, arguments) of every `python SCRIPT …` in the blocks."""
    found = []
    for _, line in commands(text):
        for command in re.split(r"[|&;<>]+", line.replace("\\", "/")):
            words = shlex.split(command)
            scripts = [at for at, word in enumerate(words) if word in PARSERS]
            found += [(words[at], words[at + 1 :]) for at in scripts]
    return found


def anchors(path: Path) -> list[str]:
    """Return what GitHub calls the headings of a page; equal ones get a number.

    Of a program, the lines that begin a function or a class: L12.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        numbered = enumerate(text.splitlines(), 1)
        return [f"L{n}" for n, line in numbered if re.match(" *(def|class) ", line)]
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        found.append(f"{slug}-{count}" if (count := found.count(slug)) else slug)
    return found


@pytest.mark.parametrize("name", ALL_PAGES)
def test_every_link_leads_somewhere(name):
    broken = []
    for link in LINK.findall(prose(page(name))):
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        if re.match(r"https?:", link) or (target.exists() and not anchor):
            continue
        if not target.exists() or anchor not in anchors(target):
            broken.append(link)
    assert broken == []


def named_options(text: str) -> set[str]:
    """Return our options that a page names outside its blocks, as --n_layer."""
    spans = re.findall(r"`([^`\n]+)`", prose(text))
    others = r"\S*python3? (-m|benchmarks/)|(\S*[/\\])?(pip|git|ruff|pytest|torchrun)\b"
    ours = [span for span in spans if not re.match(others, span)]
    named = {option for span in ours for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)}
    return {option.replace("-", "_").replace("__", "--", 1) for option in named}


@pytest.mark.parametrize("name", [*PAIRS, *REPORTS])
def test_every_command_of_a_page_can_be_given(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (Path("out", "last.safetensors"), Path("sancho/pretrained/sancho.safetensors")):
        path.parent.mkdir(parents=True)  # the checkpoints that a page goes on from
        shutil.copy(ROOT / "tests" / "golden" / "mini.safetensors", path)
    found = python_commands(page(name))
    assert found or name in REPORTS
    for script, args in found:
        # A page may ask for a GPU that this machine does not have.
        here = [re.sub(r"^(--device=)?(cuda|mps)$", r"\1cpu", arg) for arg in args]
        PARSERS[script](here)


@pytest.mark.parametrize("name", ALL_PAGES)
def test_no_comment_stands_behind_a_command(name):
    """zsh and cmd.exe take it for words of the command."""
    blocks = [
        block for shell, block in FENCE.findall(page(name)) if shell in ("bash", "powershell")
    ]
    assert re.findall(r"^.*\S +#.*$", "\n".join(blocks), re.MULTILINE) == []


@pytest.mark.parametrize("name", [*PAGES, *REPORTS])
def test_every_option_that_a_page_names_exists(name):
    every = [TrainOptions(), *OPTIONS.values(), *COMMANDS.values()]
    ours = {f"--{option}" for options in every for option in option_names(options)}
    named = named_options(page(name))
    theirs = {"--help", "--index_url"}  # argparse's and pip's
    assert named <= theirs | ours | {option.replace("--", "--no_") for option in ours}


@pytest.mark.parametrize("name", ["docs/options.md", "docs/es/opciones.md"])
def test_every_preset_has_a_row(name):
    rows = re.findall(r"^\| `(\w+)`", page(name), re.MULTILINE)
    lacking = PRESETS.keys() - {*rows}
    assert not lacking, f"give the table of presets in {name} a row for {lacking}"


@pytest.mark.parametrize(("english", "spanish"), PAIRS.items())
def test_both_languages_have_the_same_commands_and_lead_to_each_other(english, spanish):
    ours, theirs = page(english), page(spanish)
    assert commands(ours)
    assert commands(ours) == commands(theirs)
    assert programs(ours) == programs(theirs)
    for here, there in ((english, spanish), (spanish, english)):
        folder = (ROOT / here).parent
        assert ROOT / there in {(folder / link).resolve() for link in LINK.findall(page(here))}


@pytest.mark.generated
@pytest.mark.parametrize(("name", "words"), DRAWINGS.items())
def test_the_drawing_is_the_script_s_and_its_boxes_lead_to_files(name, words):
    path = ROOT / "docs" / name
    text = path.read_text(encoding="utf-8")
    assert text == drawing(name, words), (
        f"docs/{name} is out of date; run: python docs/make_drawing.py"
    )
    links = re.findall(r'href="([^"]+)"', text)
    assert links
    assert all((path.parent / link).is_file() for link in links)


def test_a_citation_has_the_version_of_the_project():
    cited = re.search(r"^version: (.+)", page("CITATION.cff"), re.MULTILINE)[1]
    assert cited == sancho.__version__
