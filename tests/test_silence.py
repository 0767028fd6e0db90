"""Nothing ends in silence: what fails is told with status 2, and nobody's data is replaced."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import (
    ARGS,
    ROOT,
    assert_refused,
    contents,
    run,
    succeed,
    train_quietly,
    watch_reports,
)

from sancho import checkpoint
from sancho.text import sources
from sancho.text.corpus import Corpus

TRAIN = [*ARGS, "--max_iters", "2"]
BEST, LAST = "best.safetensors", "last.safetensors"
posix = pytest.mark.skipif(sys.platform == "win32", reason="here: Windows moves no open folder")


def failing(*_: object) -> None:
    """As os.fsync, a read or a write of a disk that fails: without the name of a file."""
    raise OSError(errno.EIO, os.strerror(errno.EIO))


# --- a disk that fails ----------------------------------------------------------------------


def test_a_refused_save_after_others_says_how_to_go_on(project, monkeypatch):
    succeed("train.py", *TRAIN)
    watch_reports(monkeypatch, lambda report: monkeypatch.setattr(os, "fsync", failing))
    done = run("train.py", "--resume", "--max_iters", "4")
    assert done.status == 2
    assert done.err.splitlines()[-1].endswith(
        "go on with --resume --out_dir out: what was saved before is intact"
    )


@pytest.mark.parametrize(
    "line",
    [
        "convert.py to-huggingface --checkpoint MODEL --output new",
        "convert.py to-page --checkpoint MODEL --output new.html",
    ],
)
def test_a_disk_that_fails_at_a_write_is_no_reader_who_went_away(project, monkeypatch, line):
    monkeypatch.setattr(os, "fsync", failing)
    model = str(ROOT / "tests" / "golden" / "mini.safetensors")
    name, *args = [model if word == "MODEL" else word for word in line.split()]
    done = run(name, *args)
    assert_refused(done, name, os.strerror(errno.EIO))
    assert not (project / "new").exists() and not (project / "new.html").exists()


@pytest.mark.parametrize(
    "line",
    [
        "train.py --corpus tiny.txt",
        "sample.py --checkpoint pretrained --start FILE:tiny.txt",
    ],
)
def test_a_disk_that_fails_at_a_read_is_no_reader_who_went_away(project, monkeypatch, line):
    read_bytes = Path.read_bytes

    def reading(path: Path) -> bytes:
        return failing() if path.name == "tiny.txt" else read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", reading)
    name, *args = line.split()
    assert_refused(run(name, *args), name, os.strerror(errno.EIO))


# --- check, then lock -----------------------------------------------------------------------


def test_a_run_that_was_made_while_another_began_stays(project, monkeypatch):
    corpus_of = sources.corpus_of

    def meanwhile(*args: object) -> Corpus:
        monkeypatch.setattr(sources, "corpus_of", corpus_of)
        train_quietly(project, Path("out"), 3)
        meanwhile.made = contents(Path("out"))
        return corpus_of(*args)

    monkeypatch.setattr(sources, "corpus_of", meanwhile)
    done = run("train.py", *TRAIN)
    assert_refused(done, "train.py", "out holds a run already; go on with it (--resume)")
    assert contents(Path("out")) == meanwhile.made


# --- best.safetensors and metrics.jsonl -----------------------------------------------------


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_a_run_that_is_done_shows_its_result_without_the_best(project, harm):
    succeed("train.py", *TRAIN)
    best = Path("out", BEST)
    best.unlink() if harm == "gone" else best.write_bytes(best.read_bytes()[:-9])
    done = succeed("train.py", "--resume")
    assert "it is done" in done.err and "validation loss" in done.err and done.out
    assert BEST in done.err.partition("note: ")[2]
    if harm == "damaged":  # it is kept: something of it may be wanted
        assert Path("out", f"{BEST}.damaged").exists()


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 1}',
        '{"step": 1, "val_loss": "low"}',
        '{"step": 0, "train_loss": 1.0, "seconds": 1}',
        '{"step": 1, "train_loss": [1], "seconds": 1e30}',
        '{"step": 1, "train_loss": -3, "seconds": -1e30}',
        '{"step": 1' + "0" * 40 + "}",
        "[" * 100_000,
    ],
)
def test_a_line_that_somebody_added_to_the_metrics_ends_no_run(project, line):
    succeed("train.py", *TRAIN)
    with open("out/metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(line + "\n")
    succeed("train.py", "--resume", "--max_iters", "3")
    assert "<svg" in Path("out/curve.svg").read_text(encoding="utf-8")


# --- memory, and Ctrl+C before anything has begun -------------------------------------------


class PanicException(BaseException):
    """As safetensors raises it, which is written in Rust."""


def test_memory_that_is_short_at_a_save_is_a_note_and_the_run_goes_on(project, monkeypatch):
    save = checkpoint.safetensors.numpy.save
    calls = []

    def saving(*args: object) -> bytes:
        calls.append(args)
        if len(calls) == 2:  # the first one is its step 0
            raise PanicException("capacity overflow")
        return save(*args)

    monkeypatch.setattr(checkpoint.safetensors.numpy, "save", saving)
    done = succeed("train.py", *TRAIN)
    assert "note: not saved (not enough memory); the run goes on" in done.err
    assert checkpoint.load("out/last.safetensors").progress.step == 2


def test_memory_that_is_short_at_a_load_is_one_line(project, monkeypatch):
    succeed("train.py", *TRAIN)

    def opening(*_: object) -> None:
        raise PanicException("capacity overflow")

    monkeypatch.setattr(checkpoint.safetensors.numpy, "load", opening)
    assert_refused(run("sample.py"), "sample.py", "not enough memory")


INTERRUPTED = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)"


@posix
@pytest.mark.parametrize("script", ["train.py", "sample.py", "evaluate.py", "convert.py"])
def test_an_interrupt_while_packages_are_imported_is_one_line(tmp_path, script):
    (tmp_path / "numpy.py").write_text(INTERRUPTED)
    command = [sys.executable, ROOT / script, *(["to-page"] if script == "convert.py" else [])]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=60,
        # Where the tests run in the background, the signal is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"\ninterrupted\n")


def test_a_run_says_what_validates_and_whether_the_first_evaluation_was_the_best(project):
    Path("mine").mkdir()
    Path("mine/a.txt").write_text("uno dos\n" * 60, encoding="utf-8")
    Path("mine/b.txt").write_text("XYZW! " * 60, encoding="utf-8")
    size = "--n_layer=1 --n_head=1 --n_embd=8 --block_size=8 --ngram_rows=16 --threads=1".split()
    options = ["--max_iters=4", "--eval_interval=2", "--learning_rate=9", "--muon_learning_rate=9"]
    done = succeed("train.py", "--corpus=mine", *size, *options)
    assert "validation part: the last tenth of each of 2 files, 84 characters" in done.err
    last = checkpoint.load("out/last.safetensors").progress
    told = "note: the first evaluation, at step 2, was the best" in done.err
    assert told == (last.evaluations_since_best > 0)
    one = succeed("train.py", *ARGS, "--max_iters=2", "--out_dir=other")
    assert "validation part: the last tenth of the text, 186 characters" in one.err
