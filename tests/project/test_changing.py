"""What docs/changing.md says of an activation of one's own works, step by step, in a copy."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from sancho.convert.page import with_derived
from sancho.presets import MINI

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`((?:sancho|page)/[\w/]+\.(?:py|js))`")
NODE = shutil.which("node")
NOTE = "sancho/numpy_model.py computes another function"


def steps() -> list[tuple[str, str, str]]:
    """Return each block of the section: its kind, the last file named before it, its text."""
    page = (ROOT / "docs" / "changing.md").read_text(encoding="utf-8")
    section = page.partition("## An activation of your own\n")[2].partition("\n## ")[0]
    found = []
    for block in BLOCK.finditer(section):
        file = FILE.findall(section[: block.start()])[-1]
        found.append((block[1], file, block[2]))
    return found


def change(path: Path, line: str) -> None:
    """Put a line in the place of the one that begins alike; a new name comes after `relu2`."""
    name = line.partition(":")[0]
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    starts = [i for i, each in enumerate(lines) if each.partition(":")[0] == name]
    if starts:
        lines[starts[0]] = line
    else:
        after = next(i for i, each in enumerate(lines) if re.match(r" +\"?relu2\"?:", each))
        lines.insert(after + 1, line)
    path.write_text("".join(lines), encoding="utf-8")


def agreement(copy: Path) -> str:
    """Return what the page's lesson says of its function and the model's, before it begins."""
    program = """
      import { pathToFileURL } from 'node:url';
      const { requireAgreement } = await import(pathToFileURL(process.argv[1]));
      try {
        requireAgreement(JSON.parse(process.argv[2]), null);
        console.log('agrees');
      } catch ({ message }) {
        console.log(message);
      }
    """
    module = copy / "page" / "engine" / "agreement.js"
    config = json.dumps(with_derived(MINI.model))
    words = [str(NODE), "--no-warnings", "--input-type=module", "-e", program, str(module), config]
    return subprocess.run(words, capture_output=True, encoding="utf-8", check=True).stdout.strip()


def run(copy: Path, command: str, status: int = 0) -> str:
    """Run a command in the copy; return all that it says."""
    words = [sys.executable, *shlex.split(command)[1:]]
    words += ["--threads", "1"] if "train.py" in command and "--resume" not in command else []
    environment = os.environ | {"PYTHONPATH": "", "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}
    options = {"cwd": copy, "env": environment, "encoding": "utf-8", "timeout": 600}
    done = subprocess.run(words, capture_output=True, **options)
    assert done.returncode == status, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.slow
def test_an_activation_of_ones_own_as_the_page_says(tmp_path):
    copy = tmp_path / "sancho-mini"
    left_out = ".* node_modules build notebooks *.egg-info __pycache__ out out-*".split()
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*left_out))
    said, agreements = [], []
    for kind, file, block in steps():
        if kind == "bash":
            said += [run(copy, command) for command in block.splitlines()]
            if len(said) == 2:  # model.py alone is changed
                for command in ("to-page", "to-huggingface"):
                    export = f"python convert.py {command} --checkpoint out/mine --output no"
                    assert NOTE in run(copy, export, status=2)
        else:
            for line in block.splitlines(keepends=True):
                change(copy / file, line)
            if NODE and kind == "javascript":
                agreements.append(agreement(copy))
    trained, written, again, page, mish, resumed, by_pytorch = said
    assert NOTE in trained and NOTE in written and NOTE not in again
    assert "mine.html" in page and "lesson" not in page
    assert agreements in ([], ["other_lesson", "agrees"])
    for each in (mish, resumed, by_pytorch):
        assert "sancho/numpy_model.py does not know --activation mish" in each
    choices = run(copy, "python -m pytest tests/test_choices.py", status=1)
    for place in ("sancho/numpy_model.py", "model.js", "modeling_sancho.py", "architectures.py"):
        assert re.search(rf"{re.escape(place)}\S*: activation mish", choices)
