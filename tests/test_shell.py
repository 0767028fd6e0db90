"""Commands that can be pasted, whatever the interpreter, the folder and the shell."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from sancho.machine import shell
from sancho.machine.shell import command


@pytest.fixture
def environments(tmp_path, monkeypatch) -> Path:
    """A folder to be in; environments in it whose interpreters are links to one file."""
    real = tmp_path / "python3.99"
    real.touch(0o755)
    for link in (".venv/python", ".venv/python3", "other/python", "third/python3"):
        (tmp_path / link).parent.mkdir(exist_ok=True)
        (tmp_path / link).symlink_to(real)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setenv("PATH", "")
    return tmp_path


posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows finds programs by their suffix")


@posix
@pytest.mark.parametrize(
    ("path", "python", "expected"),
    [
        ("", ".venv/python", ".venv/python"),
        ("other", ".venv/python", ".venv/python"),  # another environment's
        (".venv", ".venv/python", "python"),
        (".venv", ".venv/python3", "python"),
        ("third", "third/python3", "python3"),
        ("other:.venv", ".venv/python", ".venv/python"),
        ("", "python3.99", "python3.99"),
    ],
)
def test_the_interpreter_is_the_one_that_runs(environments, monkeypatch, path, python, expected):
    folders = [str(environments / folder) for folder in path.split(":") if folder]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    monkeypatch.setattr(sys, "executable", str(environments / python))
    assert command("train.py") == f"{expected} train.py"


@posix
def test_an_interpreter_that_is_elsewhere_or_unknown(environments, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(environments / ".venv/python"))
    monkeypatch.chdir(environments / "other")
    assert command("train.py") == f"{environments}/.venv/python train.py"
    for unknown in ("", None):
        monkeypatch.setattr(sys, "executable", unknown)
        assert command("train.py") == "python train.py"


@pytest.fixture
def known(monkeypatch) -> None:
    """The interpreter is called python."""
    monkeypatch.setattr(shell, "_python", lambda: "python")


def test_a_script_is_where_the_one_that_runs_is(tmp_path, monkeypatch, known):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my code").mkdir()
    (tmp_path / "my code" / "sample.py").touch()
    for folder in (Path("my code"), tmp_path / "my code"):
        monkeypatch.setattr(sys, "argv", [str(folder / "train.py")])
        assert command("sample.py") == f"python {quoted(folder / 'sample.py')}"
    for other in ("", "-c", "/usr/lib/ipykernel_launcher.py"):  # as in a notebook
        monkeypatch.setattr(sys, "argv", [other])
        assert command("sample.py") == "python sample.py"


def quoted(path: Path) -> str:
    return f'"{path}"' if shell.ON_WINDOWS else shlex.quote(str(path))


@pytest.mark.parametrize("word", ["out", "mi carpeta", "it's", "R&D", "$HOME", "ñ", "a;b", 'a"b'])
def test_words_come_through_the_shell_of_unix(monkeypatch, known, word):
    monkeypatch.setattr(shell, "ON_WINDOWS", False)
    line = command("train.py", "--out_dir", Path(word))
    assert shlex.split(line) == ["python", "train.py", "--out_dir", word]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("out", "out"),
        (r"C:\Users\ñ\out-1", r"C:\Users\ñ\out-1"),
        ("mi carpeta", '"mi carpeta"'),
        ("it's", '"it\'s"'),
        ("R&D", '"R&D"'),
        ("a,b", '"a,b"'),
        ("", '""'),
    ],
)
def test_on_windows_words_stand_in_double_quotes(monkeypatch, known, word, expected):
    monkeypatch.setattr(shell, "ON_WINDOWS", True)
    assert command("train.py", "--out_dir", word) == f"python train.py --out_dir {expected}"
