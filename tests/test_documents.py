"""The documents: how many words they have, whose figures they quote, and that their blocks run.

`-m slow` runs what READMEs and docs tell a reader to type, in a copy of the project, with a few
steps where it trains. What needs pip is left out, unless SANCHO_NETWORK=1 says that there is a
network. Both languages have the same blocks (test_pages.py), so the English ones are enough.
"""

import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import HERE, ROOT
from test_nanogpt import their_checkpoint, their_meta
from test_pages import ALL_PAGES, PAIRS, commands, page, prose

UNCOUNTED = {"notebooks/glosario.md", "notebooks/bibliografia.md", "benchmarks/diary.md"}
COUNTED = sorted({*ALL_PAGES, "site/index.md", "site/english.md"} - UNCOUNTED)
MOST_WORDS = 23_400
MEASURED = ["benchmarks/README.md", "docs/measurements.md", "sancho/pretrained/README.md"]
"""Where figures stand with the command that measures them."""
QUOTING = ["README.md", "README.es.md", "site/index.md", "site/english.md"]
"""Pages that quote them."""
BLOCK = re.compile(r"(<!-- needs: .+ -->\n)?^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
STEPS = 3
NETWORK = "SANCHO_NETWORK"


def test_the_documents_together_are_short():
    words = {name: len(page(name).split()) for name in COUNTED}
    assert len(words) > 15
    assert sum(words.values()) <= MOST_WORDS, words


# --- figures --------------------------------------------------------------------------------


def losses(text: str) -> set[str]:
    """Return the numbers with three decimals or more, and those before "times" or "veces"."""
    return set(re.findall(r"\d+\.\d{3,}", text)) | set(
        re.findall(r"([\d.]+) (?:times|veces)", text)
    )


def durations(text: str) -> set[str]:
    """Return what stands as 1:18, minutes and seconds."""
    return set(re.findall(r"(?<![\d:])\d+:\d\d(?![\d:])", text))


def is_measured(figure: str, measured: str) -> bool:
    """Return whether a number in `measured` is `figure`, or becomes it by rounding."""
    places = len(figure.partition(".")[2])
    numbers = map(float, re.findall(r"\d+(?:\.\d+)?", measured.replace(",", "")))
    return any(f"{number:.{places}f}" == figure for number in numbers)


@pytest.mark.parametrize("name", QUOTING)
def test_a_figure_that_is_quoted_stands_in_a_table(name):
    measured = "\n".join(prose(page(source)) for source in MEASURED)
    text = prose(page(name))
    missing = {figure for figure in losses(text) if not is_measured(figure, measured)}
    for duration in durations(text) - durations(measured):
        minutes, seconds = map(int, duration.split(":"))
        if not is_measured(str(60 * minutes + seconds), measured):
            missing.add(duration)
    assert missing == set()


def test_figures_are_found_and_a_wrong_one_is_seen():
    text = "14 times, 1.436 in 2:18, on Python 3.10 with 4.1 MB"
    assert (losses(text), durations(text)) == ({"14", "1.436"}, {"2:18"})
    assert is_measured("1.436", "| 1.4360 |") and is_measured("14", "14.2 times")
    assert not is_measured("1.437", "| 1.4360 |")


@pytest.mark.parametrize("name", ["README.md", "README.es.md"])
def test_a_readme_says_how_many_lines_the_code_has(name):
    told = re.findall(r"\]\((sancho/\w+\.py)\)\D*?(\d+)(?!\d)", page(name))
    assert [path for path, _ in told] == ["sancho/model.py", "sancho/training.py"]
    for path, lines in told:
        assert len(page(path).splitlines()) == pytest.approx(int(lines), rel=0.15), path


# --- blocks ---------------------------------------------------------------------------------


def as_run_here(command: str, with_network: bool) -> list[str]:
    """Return the words of a command with a few steps of training; [] where it is left out."""
    words = shlex.split(command)
    if "pytest" in words:  # this is it
        return []
    if not with_network:
        if {"venv", "git", "npm"} & {*words} or words[0].endswith("pip"):
            return []
        python = [sys.executable, *(["-m", "torch.distributed.run"] if "torchrun" in words else [])]
        words = python + words[1:]
    if "--max_iters" in words:
        words[words.index("--max_iters") + 1] = str(2 * STEPS)
    elif "train.py" in words:
        words += ["--max_iters", str(STEPS)]
    return words


def run_block(kind: str, code: str, folder: Path, with_network: bool) -> None:
    """Run a block as a reader would, without a network unless there is one."""
    if kind == "python":
        typed = [[sys.executable, "-c", code]]
    else:
        lines = [line for _, line in commands(f"```bash\n{code}```")]
        parts = [part for line in lines for part in line.split("&&")]
        typed = [as_run_here(part, with_network) for part in parts]
    environment = os.environ | {"PYTHONPATH": "", "PYTHONUTF8": "1"}
    if not with_network:
        environment |= {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    for words in filter(None, typed):
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=900
        )
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stderr[-2000:]}"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the project, with what the pages suppose a reader to have."""
    folder = tmp_path / "sancho-mini"
    left_out = ".* node_modules build out out-* *.egg-info __pycache__ *.ipynb".split()
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*left_out))
    for path in (folder / "data").iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    text = (ROOT / "data" / "apocrifo.txt").read_text(encoding="utf-8")
    for name in ("my_text.txt", "part1.txt", "part2.txt"):
        (folder / name).write_text(name + text[:60_000], encoding="utf-8")
    torch.save(their_checkpoint(), folder / "ckpt.pt")
    (folder / "meta.pkl").write_bytes(pickle.dumps(their_meta()))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_the_blocks_of_a_page_run(name, copy):
    blocks = [(kind, code) for needs, kind, code in BLOCK.findall(page(name)) if not needs]
    assert blocks
    if "onnxruntime" in page(name):
        pytest.importorskip("onnxruntime")
        pytest.importorskip("transformers")
    if not any("train.py" in code for _, code in blocks):
        run_block("bash", "python train.py --dataset apocrifo\n", copy, False)
    for kind, code in blocks:
        run_block(kind, code, copy, False)


@pytest.mark.slow
@pytest.mark.skipif(NETWORK not in os.environ, reason=f"{HERE}{NETWORK}=1 says there is a network")
def test_the_lines_of_readme_install_what_they_need(copy):
    for needs, kind, code in BLOCK.findall(page("README.md")):
        if not needs and ".venv" in code:
            run_block(kind, code, copy, True)
