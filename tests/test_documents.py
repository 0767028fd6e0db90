"""The documents: whose figures they quote, and that their blocks run.

`-m slow` runs what READMEs and docs tell a reader to type, without a network, in a copy of the
project, with a few steps where it trains. Both languages have the same blocks (test_pages.py), so
the English ones are enough.
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
from conftest import ROOT
from test_pages import ALL_PAGES, PAIRS, PARSERS, commands, page, prose

MEASURED = ["benchmarks/README.md", "sancho/pretrained/README.md"]
"""Where figures stand with the command that measures them."""
QUOTING = ["README.md", "README.es.md"]
"""Pages that quote them."""
BLOCK = re.compile(r"(<!-- needs: .+ -->\n)?^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
STEPS = 3


def is_measured(figure: str, measured: str) -> bool:
    """Return whether a number in `measured` is `figure`, or becomes it by rounding."""
    places = len(figure.partition(".")[2])
    numbers = map(float, re.findall(r"\d+(?:\.\d+)?", measured.replace(",", "")))
    return any(f"{number:.{places}f}" == figure for number in numbers)


@pytest.mark.parametrize("name", QUOTING)
def test_a_figure_that_is_quoted_stands_in_a_table(name):
    """Numbers with three decimals or more, those before "times" or "veces", and times as 1:18."""
    measured = "\n".join(prose(page(source)) for source in MEASURED)
    text = prose(page(name))
    figures = re.findall(r"\d+\.\d{3,}", text) + re.findall(r"([\d.]+) (?:times|veces)", text)
    missing = {figure for figure in figures if not is_measured(figure, measured)}
    for minutes, seconds in re.findall(r"(?<![\d:])(\d+):(\d\d)(?![\d:])", text):
        duration = f"{minutes}:{seconds}"
        in_seconds = str(60 * int(minutes) + int(seconds))
        is_told = re.search(rf"(?<![\d:]){duration}(?![\d:])", measured)
        if not is_told and not is_measured(in_seconds, measured):
            missing.add(duration)
    assert missing == set()


# Commands that no test runs as they stand, and who does.
ELSEWHERE = {
    r"(\S*/)?python3? -m venv|source |(\S*/)?pip |npm |pre-commit ": "a reader: the network",
    r"(\S*/)?python -m pytest|(\S*/)?sphinx-build ": ".ci/run",
    r"(\S*/)?jupyter ": "a reader, in a browser",
    r"python notebooks/probar.py": "the course's own tests",
    r"python sancho/pretrained/make.py": "hours, once: its page says what came of it",
    r"(torchrun|python -m torch.distributed.run) ": "test_distributed.py",
    r"python train.py .*--activation mish": "test_changing.py, once there is such a name",
}


@pytest.mark.parametrize("name", ALL_PAGES)
def test_every_command_of_every_page_is_somebodys_to_try(name, tmp_path, monkeypatch):
    """A script of ours reads the options; a benchmark has them; all others stand above."""
    monkeypatch.chdir(tmp_path)
    for place in ("out/last.safetensors", "out/best.safetensors"):
        Path(place).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "tests" / "golden" / "mini.safetensors", place)
    for _, line in commands(page(name)):
        for part in re.split(r"&&|\||;", line.replace("\\", "/")):
            words = shlex.split(part)
            scripts = [word for word in words if word in PARSERS]
            if any(re.match(kind, part.strip()) for kind in ELSEWHERE):
                continue
            if scripts:
                given = words[words.index(scripts[0]) + 1 :]
                PARSERS[scripts[0]]([re.sub(r"^(cuda|mps)$", "cpu", word) for word in given])
            else:
                benchmark = re.search(r"benchmarks/\w+\.py", part)
                assert benchmark, part
                own = (ROOT / benchmark[0]).read_text(encoding="utf-8")
                shared = (ROOT / "benchmarks" / "common.py").read_text(encoding="utf-8")
                options = re.findall(r"--\w+", part.partition(" -- ")[0])
                assert [o for o in options if f'"{o}"' not in own + shared] == [], part


def as_run_here(command: str) -> list[str]:
    """Return the words of a command with a few steps of training; [] where it is left out."""
    words = shlex.split(command)
    is_the_readers = {"pytest", "venv", "git", "npm"} & {*words} or words[0].endswith("pip")
    if is_the_readers:
        return []
    python = [sys.executable, *(["-m", "torch.distributed.run"] if "torchrun" in words else [])]
    words = python + words[1:]
    if "--max_iters" in words:
        words[words.index("--max_iters") + 1] = str(2 * STEPS)
    elif "train.py" in words:
        words += ["--max_iters", str(STEPS)]
    return words


def run_block(kind: str, code: str, folder: Path) -> None:
    """Run a block as a reader would."""
    typed = [[sys.executable, "-c", code]]
    if kind == "bash":
        lines = [line for _, line in commands(f"```bash\n{code}```")]
        typed = [as_run_here(part) for line in lines for part in line.split("&&")]
    environment = os.environ | {"PYTHONPATH": "", "PYTHONUTF8": "1"}
    environment |= {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    options = {"cwd": folder, "env": environment, "encoding": "utf-8", "timeout": 900}
    for words in filter(None, typed):
        done = subprocess.run(words, capture_output=True, **options)
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stderr[-2000:]}"


@pytest.fixture
def copy(tmp_path: Path, monkeypatch) -> Path:
    """A copy of the project, with what the pages suppose a reader to have."""
    monkeypatch.syspath_prepend(ROOT / "tests" / "convert")
    from test_nanogpt import their_checkpoint, their_meta  # not above: its folder is no package

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
        run_block("bash", "python train.py --corpus apocrifo\n", copy)
    for kind, code in blocks:
        run_block(kind, code, copy)
