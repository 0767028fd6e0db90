"""What a message tells one to type works as it stands, in the shell one is in."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ARGS, ROOT, names_in, succeed

from sancho.command import shell

posix = pytest.mark.skipif(sys.platform == "win32", reason="here: no POSIX shell")


PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
"""Where the interpreter is found by its name, as in an environment that is activated."""


def typed(text: str, folder: Path) -> str:
    """Type a line as a reader would, in another process; return what it says."""
    environment = os.environ | {"PYTHONPATH": "", "https_proxy": "http://127.0.0.1:9", "PATH": PATH}
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run(["sh", "-c", text], timeout=120, **options)
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout + done.stderr


@posix
@pytest.mark.parametrize("start", ["ours", "by a link from elsewhere", "by its name"])
def test_the_interpreter_is_named_as_it_was_started(tmp_path, start):
    """Or by its path, where that name leads to another one here."""
    script = "import sys; sys.path.insert(0, sys.argv.pop()); from sancho.command import shell; "
    script += "print(shell.python())"
    named = tmp_path / "python x"
    named.symlink_to(sys.executable)
    names = {
        "ours": sys.executable,
        "by a link from elsewhere": str(named),
        "by its name": Path(sys.executable).name,
    }
    done = subprocess.run(
        [names[start], "-c", script, str(ROOT)],
        env=os.environ | {"PATH": PATH},
        capture_output=True,
        text=True,
        executable=sys.executable if start == "by its name" else None,
    )
    said = done.stdout.strip()
    assert said, done.stderr
    expected = {"ours": sys.executable, "by its name": Path(sys.executable).name}
    if start in expected:
        assert said == shlex.quote(expected[start])
    assert typed(f"{said} -c 'import sys; print(sys.version_info[:2])'", tmp_path)


@posix
def test_what_a_run_says_can_be_pasted(project, monkeypatch):
    """Also where names have blanks and quotes in them."""
    out = "it's a run"
    done = succeed("train.py", *ARGS, "--max_iters", "2", "--out_dir", out)
    line = done.err.splitlines()[-1].removeprefix("more of it: ")
    assert out in shlex.split(line)[-1]
    assert len(typed(f"{line} --max_new_tokens 5 --start E", project)) > 5
    resume = shell.resume_command(Path(out), 1)
    assert shlex.split(resume)[-4:] == [str(ROOT / "train.py"), "--resume", "--out_dir", out] or (
        shlex.split(resume)[-3:] == ["--resume", "--out_dir", out]
    )
    assert "it's a run" in names_in(project)


@posix
@pytest.mark.parametrize(("same", "expected"), [(True, "python"), (False, "{}/python3")])
def test_a_name_that_leads_to_another_interpreter_in_the_same_folder_is_not_given(
    tmp_path, monkeypatch, same, expected
):
    (tmp_path / "python3").write_text("")
    if same:
        (tmp_path / "python").symlink_to("python3")
    else:
        (tmp_path / "python").write_text("")
    (tmp_path / "python3").chmod(0o755)
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    monkeypatch.setattr(sys, "orig_argv", ["python"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shell.python() == shlex.quote(expected.format(tmp_path))


def test_a_script_is_named_by_the_shorter_of_its_paths(tmp_path, monkeypatch):
    monkeypatch.setattr(shell, "ROOT", tmp_path / "p")
    for folder, expected in (
        (tmp_path / "p", "sample.py"),
        (tmp_path / "q", str(Path("..", "p", "sample.py"))),
        (tmp_path.joinpath(*["deep"] * 60), str(tmp_path / "p" / "sample.py")),
    ):
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        assert shell.command("sample.py").endswith(f" {shell.quoted(expected)}")


def test_several_processes_are_started_by_this_pythons_torchrun(monkeypatch):
    line = shell.resume_command(Path("out"), 4)
    words = f"{shell.python()} -m torch.distributed.run --nproc_per_node 4 "
    assert line.startswith(words) and line.endswith("train.py --resume --out_dir out")
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    assert shell.resume_command(Path("out"), 4).startswith("start it again as before")
    alone = shell.resume_command(Path("out"), 1)  # where the variable is left of another run
    assert alone == shell.command("train.py", "--resume", "--out_dir", "out")
