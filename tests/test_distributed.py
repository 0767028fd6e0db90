"""One run on several processes: the same losses, one checkpoint, one voice, and nobody waits."""

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, redirect_stdout, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
from conftest import (
    ARGS,
    ROOT,
    TEXT,
    assert_same_run,
    make_project,
    metrics_of,
    start_process,
    train_quietly,
)

import train
from sancho import checkpoint, cli, training
from sancho.errors import UserError
from sancho.machine import distributed
from sancho.machine.device import Device
from sancho.machine.distributed import World
from sancho.run import folder as run_folder
from sancho.run.folder import RunFolder

pytestmark = [
    pytest.mark.usefixtures("project", "server_of_processes"),
    pytest.mark.skipif(sys.platform == "win32", reason="here: no gloo and the signals of POSIX"),
]
slow = pytest.mark.slow
STEPS = 6
MORE = (
    "--gradient_accumulation_steps 4 --ngram_dropout 0.3 --look_ahead 1 --eval_interval 2".split()
)
FOUR = (*ARGS, *MORE)
Before = Callable[[int], object]
"""What a process does before it trains; it is told its rank. `str` does nothing."""


# --- processes ------------------------------------------------------------------------------


# Below those that systems hand out, so that nobody gets one of them by chance in between.
PORTS = itertools.count(20_000 + os.getpid() % 100 * 100)


def free_port() -> int:
    for port in PORTS:
        with suppress(OSError), socket.socket() as taken:
            taken.bind(("127.0.0.1", port))
            return port
    raise AssertionError


def at_step(number: int, acts: dict[int, Callable[[], None]], rank: int) -> None:
    """Let processes act, by their ranks, when they are about to make a step (from 0)."""
    get = training.Batches.get

    def act_and_get(batches: training.Batches, step: int, micro_step: int) -> tuple:
        if step == number and rank in acts:
            acts.pop(rank)()
        return get(batches, step, micro_step)

    training.Batches.get = act_and_get


def send(name: str) -> None:
    os.kill(os.getpid(), getattr(signal, name))


def send_twice(name: str) -> None:
    """As one gets it from the terminal and from torchrun."""
    send(name)
    send(name)


def be_one(rank: int, size: int, port: int, project: Path, before: Before, *args: str) -> None:
    """Be one of the processes that torchrun would start; what it says goes to rank.txt."""
    where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size}
    where |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in where.items()})
    train.DATA, sys.argv = project / "data", ["train.py", *args]
    before(rank)
    path = project / f"{rank}.txt"
    with path.open("w", encoding="utf-8") as said, redirect_stdout(said), redirect_stderr(said):
        try:
            cli.exit_with(train.main)
        finally:
            assert not torch.distributed.is_initialized()


class Group:
    """N processes that train together."""

    def __init__(self, size: int, project: Path, *args: str, before: Before = str) -> None:
        port = free_port()
        self.project = project
        self.members = [
            start_process(be_one, rank, size, port, project, before, *args) for rank in range(size)
        ]

    def end(self) -> list[int]:
        """Wait for all of them; return their exit statuses."""
        for member in self.members:
            member.join(60)
            assert member.exitcode is not None, "it hangs"
        return [member.exitcode for member in self.members]

    def said(self, rank: int) -> str:
        return (self.project / f"{rank}.txt").read_text("utf-8")


def run_together(size: int, project: Path, *args: str) -> None:
    group = Group(size, project, *args)
    assert group.end() == [0] * size, [group.said(rank) for rank in range(size)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory, server_of_processes) -> Path:
    """What a run of two processes leaves that nothing has interrupted."""
    project = make_project(tmp_path_factory.mktemp("expected"))
    out = project / "out"
    run_together(2, project, *FOUR, "--out_dir", str(out), f"--max_iters={STEPS}")
    return out


def assert_goes_on(project: Path, expected: Path) -> None:
    """Go on with two processes; the run ends as if nothing had interrupted it."""
    run_together(2, project, *FOUR, "--resume", f"--max_iters={STEPS}")
    assert_same_run(project / "out", expected)


# --- the same run ---------------------------------------------------------------------------


def assert_agree(ours: Path, theirs: Path) -> None:
    pairs = zip(metrics_of(ours), metrics_of(theirs), strict=True)
    for our, their in pairs:
        for name in ("train_loss", "val_loss"):
            assert our[name] == pytest.approx(their[name], abs=1e-3), our["step"]
        assert (our["step"], our["tokens"]) == (their["step"], their["tokens"])
    assert our["step"] == 20


@pytest.mark.parametrize(
    ("size", "threads", "preset"),
    [
        (2, 1, "mini"),
        pytest.param(4, 2, "mini", marks=slow),
        *(pytest.param(2, 2, preset, marks=slow) for preset in ("classic", "base")),
    ],
)
def test_so_many_processes_agree_with_one_to_rounding(project, size, threads, preset):
    """With dropout, too: a window's masks are its own, whoever computes it."""
    more = (f"--preset={preset}", "--dropout=0.3", "--dtype=float32", "--eval_interval=10")
    run_together(size, project, *FOUR, *more, f"--threads={threads}", "--max_iters=20")
    train_quietly(project, project / "one", 20, *MORE, *more, f"--threads={3 - threads}")
    assert_agree(project / "out", project / "one")


def test_micro_batches_agree_with_one_batch_to_rounding(project):
    """Two of four windows, and eight windows at once, by two threads."""
    more = ("--dropout=0.3", "--ngram_dropout=0.3", "--dtype=float32", "--eval_interval=10")
    for name, parts, size, threads in (("two", 2, 4, 1), ("one", 1, 8, 2)):
        shape = (f"--gradient_accumulation_steps={parts}", f"--batch_size={size}")
        train_quietly(project, project / name, 20, *more, *shape, f"--threads={threads}")
    assert_agree(project / "two", project / "one")


def count_saves(rank: int) -> None:
    """For the first process a minute never passes, for the other one at once."""
    run_folder.SAVE_SECONDS = 0 if rank else 1e9
    save = RunFolder.save

    def counted(folder: RunFolder, *args: object, **options: bool) -> None:
        save(folder, *args, **options)
        with open(folder.path / "saves", "a", encoding="utf-8") as file:
            file.write(f"{rank} ")

    RunFolder.save = counted


def test_the_first_process_alone_decides_when_to_save(project):
    args = ("--max_iters=9", "--eval_interval=9", "--log_interval=9")
    group = Group(2, project, *FOUR, *args, before=count_saves)
    assert group.end() == [0, 0], group.said(0)
    saves = Path("out/saves").read_text("utf-8").split()
    assert saves == ["0", "0"], "before the evaluation and after it"


def test_a_text_is_prepared_once_and_one_process_speaks(project):
    (project / "mine.txt").write_text(TEXT, encoding="utf-8")
    args = [*FOUR, "--max_iters", "2", "--dataset", "none", "--corpus", "mine.txt"]
    group = Group(2, project, *args)
    assert group.end() == [0, 0], group.said(0) + group.said(1)
    assert "2 processes" in group.said(0)
    assert "validation loss" in group.said(0)
    assert group.said(1) == ""
    assert checkpoint.load(Path("out/last.safetensors")).corpus_name.startswith("mine-")


# --- what goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "more", "words"),
    [
        (2, ("--layers", "3"), ["unknown option --layers"]),  # in the first process alone
        (3, (), ["--gradient_accumulation_steps is 4", "multiple of 3", "--batch_size"]),  # in all
        (2, (), ["holds a run already"]),  # in the first one, while the others wait for it
    ],
)
def test_what_is_wrong_is_said_once_and_all_end(project, size, more, words):
    train_quietly(project, Path("out"), 1)
    before = Path("out/last.safetensors").read_bytes()
    group = Group(size, project, *FOUR, *more)
    assert group.end() == [2, *[0] * (size - 1)]
    assert group.said(0).count("\n") == 1
    assert all(word in group.said(0) for word in words)
    assert [group.said(rank) for rank in range(1, size)] == [""] * (size - 1)
    assert Path("out/last.safetensors").read_bytes() == before


def read_losses_late(rank: int) -> None:
    """As on a GPU: the losses are read when figures are due, or when the first process saves."""
    Device.on_cpu, run_folder.SAVE_SECONDS = False, 0


@pytest.mark.parametrize(
    ("before", "interval"), [(str, 1), (read_losses_late, 100)], ids=["at once", "on saving"]
)
def test_a_loss_that_is_not_finite_ends_all_with_the_reason(project, before, interval):
    intervals = (f"--log_interval={interval}", f"--eval_interval={interval}")
    group = Group(2, project, *FOUR, *intervals, "--learning_rate", "1e30", before=before)
    statuses = group.end()
    said = group.said(0) + group.said(1)
    assert statuses[0] == 2
    assert said.count("not a finite number at step") == 1, said
    assert "go on with --resume" not in said


@pytest.mark.parametrize("killed", [0, pytest.param(1, marks=slow)])
def test_where_one_is_killed_the_others_say_so_and_the_run_goes_on(project, expected, killed):
    kill = partial(at_step, 3, {killed: partial(send, "SIGKILL")})
    group = Group(2, project, *FOUR, f"--max_iters={STEPS}", before=kill)
    statuses = group.end()
    assert statuses[killed] == -signal.SIGKILL
    assert statuses[1 - killed] == 2
    assert "another process of the run has ended" in group.said(1 - killed)
    assert "Traceback" not in group.said(1 - killed)
    assert_goes_on(project, expected)


def wait_shortly() -> None:
    """From now on this process waits for the others no longer than that."""
    group = torch.distributed.group.WORLD
    torch.distributed.distributed_c10d._set_pg_timeout(timedelta(milliseconds=100), group)


def test_nobody_waits_for_ever(project):
    """The second process stops, and the first one has patience with it, but not for long."""
    stop = partial(at_step, 3, {0: wait_shortly, 1: partial(send, "SIGSTOP")})
    group = Group(2, project, *FOUR, before=stop)
    group.members[0].join(60)
    group.members[1].kill()
    assert group.members[0].exitcode == 2
    assert "did not answer for 600 s" in group.said(0)


@pytest.mark.parametrize(
    ("number", "to", "status"),
    [
        ("SIGINT", (0, 1), 130),
        pytest.param("SIGTERM", (1,), 143, marks=slow),
        pytest.param("SIGINT", (0,), 130, marks=slow),
    ],
)
def test_signals_stop_all_at_one_step_saved_once(project, expected, number, to, status):
    acts = {rank: partial(send_twice if rank else send, number) for rank in to}
    signals = partial(at_step, 2, acts)
    group = Group(2, project, *FOUR, f"--max_iters={STEPS}", before=signals)
    assert group.end() == [status, status]
    assert checkpoint.load(Path("out/last.safetensors")).progress.step == 3
    assert "stopped and saved at step 3; go on with: " in group.said(0)
    assert group.said(1) == ""
    assert metrics_of(Path("out"))[-1]["step"] == 3
    assert_goes_on(project, expected)


# --- torchrun -------------------------------------------------------------------------------


OF_TORCHRUN = """
import os, sys
from functools import partial
sys.path[:0] = [{root!r}, {tests!r}]
import train
from sancho import cli
from test_distributed import at_step, send
train.DATA = train.Path({data!r})
if os.environ["TORCHELASTIC_RESTART_COUNT"] < os.environ["TORCHELASTIC_MAX_RESTARTS"]:
    at_step(3, {{1: partial(send, "SIGKILL")}}, int(os.environ["RANK"]))
cli.exit_with(train.main)
"""
"""Where torchrun may restart, the second process kills itself in the first attempt."""


@slow
@pytest.mark.parametrize(
    ("size", "restarts", "more", "words"),
    [
        (2, 0, (), "a new run in out"),
        (3, 0, (), "multiple of 3"),
        (2, 1, ("--resume",), "going on with the run in out after step 2"),
        (2, 1, (), "holds a run already"),
    ],
)
def test_torchrun_goes_on_after_a_kill_where_the_line_says_so(
    project, expected, size, restarts, more, words
):
    """And its processes end in order: none of them crashes at the end of its interpreter."""
    paths = {"root": str(ROOT), "tests": str(ROOT / "tests"), "data": str(project / "data")}
    script = project / "script.py"
    script.write_text(OF_TORCHRUN.format(**paths), encoding="utf-8")
    line = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={size}"]
    line += [f"--max-restarts={restarts}", f"--master_port={free_port()}"]
    line += [script, *FOUR, f"--max_iters={STEPS}", *more]
    result = subprocess.run(line, capture_output=True, text=True)
    assert result.stderr.count(words) == 1, result.stderr
    assert "SIGABRT" not in result.stderr
    goes_through = size == 2 and bool(more) == bool(restarts)
    assert result.returncode == (0 if goes_through else 1)
    if goes_through:
        assert_same_run(project / "out", expected)
    elif restarts:
        assert_goes_on(project, expected)


# --- a world of its own ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "device", "words"),
    [
        ("0", "mps", "--device mps works in one process"),
        ("2", "cuda", "there are 2 GPUs; give --nproc_per_node 2 or less"),
        ("1", "cuda", None),
        ("9", "cpu", None),
    ],
)
def test_each_process_needs_a_gpu_of_its_own(monkeypatch, place, device, words):
    chosen = []
    monkeypatch.setenv("LOCAL_RANK", place)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    with pytest.raises(UserError, match=words) if words else nullcontext():
        World(int(place), 10).choose_gpu(torch.device(device))
    assert chosen == ([1] if (place, device) == ("1", "cuda") else [])
    World().choose_gpu(torch.device(device))  # alone anything goes


def test_one_process_of_torchrun_is_alone(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    with distributed.process_group() as world:
        assert world == World()


def test_our_own_errors_keep_their_traceback():
    with pytest.raises(RuntimeError, match="invalid tensor size"), distributed._explained():
        raise RuntimeError("invalid tensor size")


def be_impatient(rank: int) -> None:
    distributed.TIMEOUT_SECONDS = 5.0


@slow
def test_kills_of_each_process_at_random_moments_lose_nothing(project):
    chance, kills = random.Random(1605), 40
    args = [*FOUR, "--max_iters=300"]
    for _ in range(kills):
        # If one dies before they have met, the others' time must run out; torchrun would kill them.
        group = Group(2, project, *args, "--resume", before=be_impatient)
        time.sleep(chance.uniform(0.2, 1.5))
        group.members[chance.randrange(2)].kill()
        group.end()
    run_together(2, project, *args, "--resume")
    run_together(2, project, *args, "--out_dir=whole")
    assert_same_run(project / "out", project / "whole")
