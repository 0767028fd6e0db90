"""A script and its terminal: streams, what is told on which level, and the lines about a run."""

import errno
import io
import logging
import os
import pickle
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ARGS, ROOT, instead, run
from tqdm import tqdm

from sancho.checkpoint import Progress
from sancho.command import terminal
from sancho.config import TrainConfig
from sancho.errors import LOG, UserError, note, say, shown
from sancho.run.report import Report

MODEL = ROOT / "tests" / "golden" / "mini.safetensors"
full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="here: there is no /dev/full")


class State:
    """As much of a TrainingState as the bar asks for."""

    def __init__(self, step: int = 0, max_iters: int = 100) -> None:
        self.train_config = TrainConfig(max_iters=max_iters)
        self.progress = Progress(step=step, seconds=60.0 * step)  # slower than it is today
        self.is_evaluation_due = False


def reports(steps: range, clock: list[float], seconds: float = 2.0) -> Iterator[Report]:
    begin = 60.0 * (steps[0] - 1)
    for number, step in enumerate(steps, 1):
        clock[0] += seconds
        rest = {"tokens": step, "lr": 0.1, "tokens_per_second": 1.0, "train_loss": 3.0}
        yield Report(step=step, seconds=begin + seconds * number, **rest)


def test_a_log_file_gets_a_line_every_ten_seconds_with_the_time_that_is_left(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "sancho")
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    passed = [*terminal.with_progress(reports(range(1, 31), clock), State())]
    assert len(passed) == 30
    assert [line.partition(":")[0] for line in caplog.messages] == [
        f"step {step} of 100" for step in (5, 10, 15, 20, 25, 30)
    ]
    assert caplog.messages[2] == "step 15 of 100: loss 3.000; 00:30 gone, 02:50 left"
    caplog.clear()
    [*terminal.with_progress(reports(range(41, 51), clock), State(step=40))]
    assert caplog.messages[0].endswith(" 40:10 gone, 01:50 left")  # at the speed of today


def test_the_bar_counts_steps_from_where_the_run_goes_on(monkeypatch):
    bars = []

    class Bar(tqdm):
        def __init__(self, **options: object) -> None:
            super().__init__(**options | {"disable": False, "file": io.StringIO()})
            bars.append(self)

    monkeypatch.setattr(terminal, "tqdm", Bar)
    clock = [0.0]
    state = State(step=40)
    for report in terminal.with_progress(reports(range(41, 61), clock), state):
        state.is_evaluation_due = report.step % 10 == 0
        assert bars[0].n == report.step
    evaluation = Report(step=60, tokens=1, seconds=1.0, lr=0.1, tokens_per_second=1.0, val_loss=2.0)
    [*terminal.with_progress([evaluation, evaluation], State(step=60))]
    assert (bars[0].initial, bars[0].total, bars[0].n, bars[1].n) == (40, 100, 60, 60)


# --- streams --------------------------------------------------------------------------------


@full
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "line",
    [
        "sample.py --checkpoint MODEL --start en",
        "sample.py --help",
        "train.py --help",
        "evaluate.py --help",
        "convert.py --help",
        "convert.py to-page --help",
    ],
)
def test_a_text_that_fills_the_disk_is_an_error(line, unbuffered):
    """What Python could not write it tries to write again at its end, unless it is told not to."""
    script, *args = [str(MODEL) if word == "MODEL" else word for word in line.split()]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as nowhere:
        done = subprocess.run(
            [sys.executable, ROOT / script, *args],
            stdout=nowhere,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            timeout=60,
        )
    said = f"{script}: error: standard output: No space left on device; nothing that was saved "
    assert done.stderr.startswith(said) and done.stderr.count("\n") == 1
    assert done.returncode == 2


class Refusing(io.StringIO):
    """The output of a script, whose device refuses to take it."""

    def __init__(self, descriptor: int, number: int) -> None:
        super().__init__()
        self.descriptor = descriptor
        self.number = number

    def fileno(self) -> int:
        return self.descriptor

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO, errno.EINVAL])
def test_a_reader_may_go_away_but_the_disk_of_a_file_may_not_fail(tmp_path, monkeypatch, number):
    """A pipe or a terminal without a reader raises what a file does whose disk is broken."""
    reading, writing = os.pipe()
    file = os.open(tmp_path / "x", os.O_CREAT | os.O_WRONLY)
    monkeypatch.setattr(sys, "argv", ["x.py"])
    words = f"x.py: error: standard output: {os.strerror(number)}; nothing that was saved"
    for descriptor, status, said in ((writing, 0, ""), (file, 2, words)):
        errors = io.StringIO()
        monkeypatch.setattr(sys, "stdout", Refusing(descriptor, number))
        monkeypatch.setattr(sys, "stderr", errors)
        with pytest.raises(SystemExit) as stop:
            terminal.run_script(lambda: print("a text"))
        assert (stop.value.code, errors.getvalue()[: len(words)]) == (status, said)
    for descriptor in (reading, writing, file):
        os.close(descriptor)


def test_after_a_script_the_streams_are_what_they_were(monkeypatch):
    """As in a notebook, whose %run goes on; and no line is shown twice."""
    monkeypatch.setattr(sys, "argv", ["x.py"])
    streams = sys.stdin, sys.stdout, sys.stderr
    handlers = list(LOG.handlers)
    for _ in range(2):
        with pytest.raises(SystemExit):
            terminal.run_script(lambda: None)
    assert (sys.stdin, sys.stdout, sys.stderr) == streams
    assert LOG.handlers == handlers


def test_errors_notes_and_what_is_told_have_levels_of_their_own(caplog, monkeypatch):
    """So a program that silences notes still hears errors; the scripts show all three."""

    def main() -> None:
        say("told")
        note("noted")
        raise UserError("wrong")

    monkeypatch.setattr(sys, "argv", ["x.py"])
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    with pytest.raises(SystemExit):
        terminal.run_script(main)
    assert errors.getvalue() == "told\nnote: noted\nx.py: error: wrong\n"
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "WARNING", "ERROR"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sancho ñ 🐴", "Sancho ñ 🐴"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\u202eevil\x9b", r"\u202eevil\x9b"),
        ("x" * 300, "x" * 199 + "…"),
        ("\udcc3\udcb1and\u00fa \udc9b", "ñandú \ufffd"),  # bytes of a command line
        ("a\ud800", r"a\ud800"),
    ],
)
def test_foreign_words_control_no_terminal_and_are_cut(text, expected):
    assert shown(text) == expected


def test_no_line_of_a_script_controls_the_terminal(project):
    done = run("sample.py", "--checkpoint", "\x1b[2J" + "x" * 5000)
    assert "\x1b" not in done.err and r"\x1b[2J" in done.err
    assert len(done.err) < 2100 and done.status == 2


@pytest.mark.skipif(sys.platform == "win32", reason="here: no terminals of POSIX")
def test_a_command_in_a_notebook_prints_lines_and_no_bar(project, monkeypatch):
    """It has a terminal, which keeps whatever was drawn."""
    reading, writing = pty.openpty()
    environment = os.environ | {"JPY_PARENT_PID": "1"}
    args = instead(ARGS, "--corpus=tiny.txt", "--max_iters=3")
    command = [sys.executable, ROOT / "train.py", *args]
    process = subprocess.Popen(command, stderr=writing, stdout=writing, env=environment)
    os.close(writing)
    said = b""
    while True:
        try:
            said += os.read(reading, 9999)
        except OSError:  # the terminal is closed
            break
    assert process.wait() == 0
    assert b"step 3 of 3: loss" in said and b"%|" not in said


def test_a_model_can_be_pickled():
    import torch
    from conftest import random_gpt

    from sancho import checkpoint
    from sancho.config import ModelConfig

    ids = torch.arange(6)[None]
    size = {"vocab_size": 9, "block_size": 8, "n_layer": 1, "n_head": 1, "n_embd": 8}
    for options in ({}, {"activation": "relu", "bias": True, "norm": "layernorm"}):
        model = random_gpt(ModelConfig(**size, **options, ngram_size=1))
        copy = pickle.loads(pickle.dumps(model))
        assert torch.equal(copy(ids), model(ids))
    ours = checkpoint.load(MODEL).build_numpy()
    copy = pickle.loads(pickle.dumps(ours))
    assert (copy.logits(ids.numpy()) == ours.logits(ids.numpy())).all()
