"""A script and its terminal: streams, what is told on which level, and the lines about a run."""

import errno
import io
import logging
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ARGS, ROOT, TINY, assert_refused, instead, run, succeed
from tqdm import tqdm

import train
from sancho import checkpoint
from sancho.checkpoint import Progress
from sancho.command import terminal
from sancho.config import TrainConfig
from sancho.errors import LOG, UserError, note, say, shown
from sancho.run.report import Report

slow = pytest.mark.slow
posix = pytest.mark.skipif(sys.platform == "win32", reason="here: no signals and pipes of POSIX")
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


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: fail(UserError("one\n  two\r\n\tthree")), "one two three\n"),
        (lambda: fail(OSError(28, "No space left", "out/last.tmp")), "out/last.tmp: No space left"),
        (lambda: fail(OSError(errno.EIO, "Input/output error")), "Input/output error; nothing"),
        (lambda: np.empty(2**60, dtype=np.uint8), "not enough memory"),
        (lambda: torch.empty(2**60, dtype=torch.uint8), "not enough memory"),
        (lambda: fail(torch.OutOfMemoryError("CUDA out of memory. Tried")), "not enough memory"),
    ],
)
def test_what_the_user_can_mend_is_one_line(monkeypatch, act, words):
    monkeypatch.setattr(train, "main", lambda args: act())
    assert_refused(run("train.py"), "train.py", f"error: {words}")


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), RuntimeError("x"), OSError()])
def test_a_bug_passes_through(error):
    with pytest.raises(type(error)):
        terminal.run_script(lambda: fail(error))


def test_a_second_ctrl_c_stops_at_once():
    heard = [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)]
    ours = signal.signal(heard[-1], signal.SIG_DFL)  # nohup may have started the tests
    before = [signal.getsignal(number) for number in heard]
    with terminal.stop_signals(alone=True) as received:
        for number in reversed(heard):
            signal.raise_signal(number)
        assert received == heard[::-1]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in heard] == before
    signal.signal(heard[-1], ours)


@posix
def test_after_the_block_one_of_several_processes_hears_no_signal():
    """So that none is killed while another one still saves."""
    after = []
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    ours = {number: signal.signal(number, lambda n, _: after.append(n)) for number in numbers}
    try:
        with terminal.stop_signals(alone=False) as received:
            signal.raise_signal(signal.SIGTERM)
        for number in numbers:
            signal.raise_signal(number)
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
    assert received[0] == signal.SIGTERM
    assert after == []


@posix
def test_where_nohup_keeps_a_closed_terminal_from_us_it_is_not_heard(monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with terminal.stop_signals(alone=True) as received:
        signal.raise_signal(signal.SIGHUP)
    assert received == []
    signal.signal(signal.SIGHUP, before)


def start_python(script: str, *args: str) -> subprocess.Popen:
    """Start a script in a terminal that knows ASCII alone."""
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, ROOT / script, *args], env=environment, **pipes)


@slow
def test_text_is_utf8_whatever_the_terminal_is(project):
    text = "El ñandú bebió agua fría y «cantó» a la cigüeña.\n" * 9
    (project / "bird.txt").write_text(text, encoding="utf-8")
    succeed("train.py", *TINY, "--corpus", "bird.txt", "--max_iters=1")
    process = start_python("sample.py", "--start=-", "--max_new_tokens=99")
    out, err = process.communicate("«ñandú".encode(), timeout=120)
    assert (process.returncode, err) == (0, b"")
    written = out.decode().replace(os.linesep, "\n")
    assert written.startswith("«ñandú") and len(written) == 6 + 99 + 1
    _, err = start_python("sample.py", "--stañt", "x").communicate(timeout=120)
    assert err.decode().startswith("sample.py: error: unknown option --stañt; did you mean --sta")


@slow
@posix
@pytest.mark.parametrize("seen", [0, 20])
def test_a_reader_that_goes_away_is_no_error(trained, seen):
    process = start_python("sample.py", "--start=En un lu", "--max_new_tokens=100000000")
    assert process.stdout.read(seen)[:8] == b"En un lu"[:seen]
    process.stdout.close()
    err = process.stderr.read().decode()
    assert (process.wait(timeout=120), err) == (0, "")


@posix
@pytest.mark.parametrize("way", ["pipe", pytest.param("terminal", marks=slow)])
def test_no_screen_that_goes_away_ends_a_run(project, way):
    """A reader that has seen enough (| head), or a terminal that is closed, with SIGHUP ignored."""
    reading, writing = os.pipe() if way == "pipe" else os.openpty()
    command = [sys.executable, "-c", RUN_TRAIN, *TINY, "--corpus=tiny", "--max_iters=40"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    screen = {"stdin": writing, "stdout": writing, "stderr": writing}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **screen)
    os.close(writing)
    assert os.read(reading, 1)
    os.close(reading)
    assert process.wait(timeout=120) == 0
    last = checkpoint.load(project / "out" / "last.safetensors")
    assert last.progress.step == 40


@posix
@pytest.mark.parametrize(
    ("closed", "status", "out"), [(0, 2, b""), (1, 0, b""), (2, 0, b"en")], ids="in out err".split()
)
def test_a_stream_that_is_closed_is_nothing_and_stays_so(tmp_path, closed, status, out):
    """No file that is opened takes its place, and only sample.py's text goes to stdout."""
    start = "-" if closed == 0 else "en"
    line = ["--checkpoint", MODEL, "--start", start, "--max_new_tokens=0", "--seed=1"]
    command = [sys.executable, ROOT / "sample.py", *line]
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, preexec_fn=lambda: os.close(closed), **pipes)
    said, err = process.communicate(timeout=120)
    assert (process.returncode, said.rstrip(b"\n")) == (status, out)
    assert err.count(b"\n") == (closed == 0) and b"Traceback" not in err


RUN_TRAIN = """
import signal, sys
from pathlib import Path
from conftest import main_of
from sancho.command import terminal
from sancho.text import sources
signal.signal(signal.SIGHUP, signal.SIG_IGN)
sources.DATA = Path("data")
terminal.run_script(lambda: main_of("train.py", sys.argv[1:]))
"""
