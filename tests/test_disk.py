"""Disks that are full or cannot be written: one clear line, and nothing that was saved is lost."""

import contextlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import sample
import train
from sancho import checkpoint, cli
from sancho.corpus import load, prepare_files
from sancho.errors import MissingFile
from sancho.run import RunFolder

ROOT = Path(__file__).resolve().parent.parent
TEXT = "En un lugar de la Mancha, de cuyo nombre no quiero acordarme.\n" * 30
ARGS = (
    "--dataset tiny --n_layer 1 --n_head 2 --n_embd 8 --block_size 8 --ngram_rows 16 --batch_size 2"
    " --dropout 0.1 --eval_interval 1 --log_interval 1 --device cpu"
).split()
PAGE = 4096  # of which such a file system is made


def load_prepare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare", ROOT / "data" / "prepare.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    before = sys.path.copy()
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


prepare = load_prepare()


def mount(*args: str | Path) -> bool:
    """Return whether the system could be asked for it and did it."""
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("mount"):
        return False
    return subprocess.run(["mount", *map(str, args)], capture_output=True).returncode == 0


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch) -> Path:
    """A folder of its own to work in, with a data/tiny that is prepared."""
    torch.set_num_threads(1)
    (tmp_path / "tiny.txt").write_text(TEXT, encoding="utf-8")
    prepare_files([tmp_path / "tiny.txt"], tmp_path / "data" / "tiny")
    monkeypatch.setattr(train, "DATA", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A file system of its own, of 256 kB."""
    path = tmp_path / "disk"
    path.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=256k", "tmpfs", path):
        pytest.skip("to mount a file system takes root on Linux")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def run(script: ModuleType, *args: str | Path) -> tuple[int, str]:
    """Run a script as the shell would; return its status and what it wrote to stderr."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["script", *map(str, args)])
        patch.setattr(warnings, "showwarning", warnings.showwarning)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                cli.run_main(script.main)
            except SystemExit as stop:
                return int(stop.code or 0), err.getvalue()
    raise AssertionError("run_main always exits")


def assert_refused(result: tuple[int, str], words: str) -> None:
    status, err = result
    last = err.splitlines()[-1]
    assert status == 2, err
    assert last.startswith("script: error: "), err
    assert words in last
    assert "Traceback" not in err


def fill(disk: Path, room: int) -> None:
    """Leave `room` bytes."""
    free = os.statvfs(disk)
    (disk / "filler").write_bytes(b"\0" * (free.f_bavail * free.f_frsize - room))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def checkpoints_in(out: Path) -> dict[str, bytes]:
    """Assert that each checkpoint can be loaded, and return them."""
    found = {name: raw for name, raw in contents(out).items() if name.endswith(".safetensors")}
    for name in found:
        checkpoint.load(out / name)
    return found


def figures_in(out: Path) -> list[dict]:
    """Read metrics.jsonl without what depends on the clock."""
    lines = RunFolder(out).metrics.read_text("utf-8").splitlines()
    clock = {"seconds", "tokens_per_second"}
    return [{k: v for k, v in json.loads(line).items() if k not in clock} for line in lines]


# --- full -----------------------------------------------------------------------------------


def fills_up(monkeypatch, disk: Path, room: int) -> None:
    """From now on, when the second step is done somebody else fills the disk."""
    show = cli.ProgressBar.show

    def show_and_fill(bar, report) -> None:
        show(bar, report)
        if report.step == 2:
            fill(disk, room)

    monkeypatch.setattr(cli.ProgressBar, "show", show_and_fill)


def test_a_disk_that_fills_up_while_training(project, disk, monkeypatch):
    out, expected, refused = disk / "out", project / "expected", 0
    line = [*ARGS, "--max_iters=4", "--out_dir"]
    assert run(train, *line, expected)[0] == 0
    for room in range(0, 20 * PAGE, PAGE):
        with monkeypatch.context() as patch:
            fills_up(patch, disk, room)
            result = run(train, *line, out)
        if result[0] == 0:
            break
        refused += 1
        assert_refused(result, "No space left on device; nothing that was saved before is lost")
        assert sorted(checkpoints_in(out)) == ["best.safetensors", "last.safetensors"]
        assert checkpoint.load(out / "last.safetensors").progress.step == 1
        assert not list(out.glob("*.tmp"))
        before = checkpoints_in(out)
        if room == 0:
            assert_refused(run(train, "--resume", "--out_dir", out), "No space left on device")
            assert checkpoints_in(out) == before

        (disk / "filler").unlink()
        result = run(train, "--resume", "--device=cpu", "--out_dir", out)
        assert result[0] == 0, result[1]
        assert_same_run(out, expected)
        shutil.rmtree(out)
    assert 3 <= refused < 20
    assert_same_run(out, expected)


def assert_same_run(out: Path, expected: Path) -> None:
    for name in ("best", "last"):
        ours, theirs = (checkpoint.load(path / f"{name}.safetensors") for path in (out, expected))
        for part in ("weights", "optimizer"):
            mine, other = getattr(ours, part), getattr(theirs, part)
            assert mine.keys() == other.keys()
            assert all(torch.equal(mine[key], other[key]) for key in mine)
    assert figures_in(out) == figures_in(expected)


def test_a_disk_that_is_full_from_the_beginning(disk):
    fill(disk, 0)
    line = [*ARGS, "--max_iters=1", "--out_dir", disk / "out"]
    assert_refused(run(train, *line), "No space left on device")
    (disk / "filler").unlink()
    status, err = run(train, *line)
    assert status == 0, err


@pytest.mark.parametrize("old", [False, True], ids=["a new text", "a text that is there"])
def test_preparing_a_text_for_which_there_is_no_room(project, disk, monkeypatch, old):
    for script in (train, prepare):
        monkeypatch.setattr(script, "DATA", disk)
    old_text, new_text = "Rinconete y Cortadillo\n", TEXT * 10
    (project / "mine.txt").write_text(new_text, encoding="utf-8")
    refused, states = 0, set()
    for room in range(0, 64 * PAGE, 2 * PAGE):
        shutil.rmtree(disk / "mine", ignore_errors=True)
        if old:
            (project / "old.txt").write_text(old_text, encoding="utf-8")
            prepare_files([project / "old.txt"], disk / "mine")
        fill(disk, room)
        result = run(prepare, "--input", "mine.txt", "--name", "mine")
        if result[0] == 0:
            break
        refused += 1
        assert_refused(result, "No space left on device; nothing that was saved before is lost")
        line = [*ARGS, "--max_iters=1", "--corpus", "mine.txt"]
        assert_refused(run(train, *line), "No space left on device")
        assert not list(disk.rglob("*.tmp"))
        states.add(state_of(disk / "mine", old_text))
        (disk / "filler").unlink()
    assert refused >= 4
    assert states == ({"the old text", "not prepared"} if old else {"not prepared"})
    assert (disk / "mine" / "input.txt").read_text("utf-8") == new_text
    assert len(load(disk / "mine").train) + len(load(disk / "mine").val) == len(new_text)


def state_of(folder: Path, old_text: str) -> str:
    """Say what a prepared folder holds; it is never half of one thing and half of another."""
    try:
        found = load(folder)
    except MissingFile:
        return "not prepared"
    assert found.tokenizer.decode([*found.train, *found.val]) == old_text
    assert (folder / "input.txt").read_text("utf-8") == old_text
    return "the old text"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_text_that_cannot_be_written(project):
    status, err = run(train, *ARGS, "--max_iters=1")
    assert status == 0, err
    line = [sys.executable, ROOT / "sample.py", "--checkpoint", "out/best.safetensors"]
    with open("/dev/full", "wb") as full:
        result = subprocess.run(line, stdout=full, stderr=subprocess.PIPE)
    assert result.stderr.decode().splitlines() == [
        "sample.py: error: No space left on device; nothing that was saved before is lost"
    ]
    assert result.returncode == 2


# --- read-only ------------------------------------------------------------------------------


def test_a_disk_that_is_read_only(project, disk, monkeypatch):
    monkeypatch.setattr(prepare, "DATA", disk / "data")
    shutil.copytree(project / "data", disk / "data")
    out = disk / "out"
    assert run(train, *ARGS, "--max_iters=2", "--out_dir", out)[0] == 0
    before = contents(out)
    assert mount("-o", "remount,ro", disk)
    words = "Read-only file system"
    for mode in ("--resume", "--overwrite", "--dataset=tiny"):
        line = [*ARGS, "--max_iters=4", mode, "--out_dir"]
        assert_refused(run(train, *line, out), words)
        if mode != "--resume":
            assert_refused(run(train, *line, disk / "another"), words)
    for name in ("tiny", "another"):
        assert_refused(run(prepare, "--input", "tiny.txt", "--name", name), words)
    monkeypatch.setattr(train, "DATA", disk / "data")
    assert_refused(run(train, *ARGS, "--corpus", "tiny.txt", "--out_dir=here"), words)
    assert contents(out) == before

    # What only reads works.
    status, err = run(sample, "--checkpoint", out / "best.safetensors", "--max_new_tokens=9")
    assert status == 0, err
    line = [*ARGS, "--max_iters=1", "--init_from", out / "best.safetensors", "--out_dir=here"]
    status, err = run(train, *line)
    assert status == 0, err

    assert mount("-o", "remount,rw", disk)
    status, err = run(train, "--resume", "--max_iters=4", "--device=cpu", "--out_dir", out)
    assert status == 0, err
