"""One run on several processes: the same bits, one checkpoint, one voice, and nobody waits."""

import ctypes
import itertools
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from multiprocessing import Process
from pathlib import Path
from typing import IO

import pytest
import torch
from conftest import (
    ARGS,
    ROOT,
    TEXT,
    assert_same_run,
    metrics_of,
    start_process,
    train_quietly,
)

import train
from sancho import checkpoint, cli, training
from sancho.config import RunConfig, TrainOptions
from sancho.errors import UserError
from sancho.machine import distributed
from sancho.machine.device import Device
from sancho.machine.distributed import ALONE
from sancho.run import setup
from sancho.run.folder import RunFolder

pytestmark = [
    pytest.mark.usefixtures("project", "one_thread", "server_of_processes"),
    pytest.mark.skipif(sys.platform == "win32", reason="gloo and the signals of POSIX"),
]
slow = pytest.mark.slow
MORE = ("--gradient_accumulation_steps", "4", "--ngram_dropout", "0.3", "--look_ahead", "1")
FOUR = (*ARGS, *MORE)


# --- processes ------------------------------------------------------------------------------


# Below those that systems hand out, so that nobody gets one of them by chance in between.
PORTS = itertools.count(20_000 + os.getpid() % 100 * 100)


def free_port() -> int:
    for port in PORTS:
        with suppress(OSError), socket.socket() as taken:
            taken.bind(("127.0.0.1", port))
            return port
    raise AssertionError


@contextmanager
def speaking_into(path: Path) -> Iterator[IO[str]]:
    with open(path, "w", encoding="utf-8") as said, redirect_stdout(said), redirect_stderr(said):
        yield said


def be_one(rank: int, size: int, port: int, project: Path, timeout: float, *args: str) -> None:
    """Be one of the processes that torchrun would start; what it says goes to rank.txt."""
    where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size}
    where |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in where.items()})
    train.DATA, sys.argv = project / "data", ["train.py", *args]
    distributed.TIMEOUT_SECONDS = timeout
    with speaking_into(project / f"{rank}.txt"):
        try:
            cli.exit_with(train.main)
        finally:
            assert not torch.distributed.is_initialized()


class Group:
    """N processes that train together."""

    def __init__(self, size: int, project: Path, *args: str, timeout: float = 60) -> None:
        port = free_port()
        self.project = project
        self.members = [
            start_process(be_one, rank, size, port, project, timeout, *args) for rank in range(size)
        ]

    def end(self) -> list[int]:
        """Wait for all of them; return their exit statuses."""
        for member in self.members:
            member.join(60)
            assert member.exitcode is not None, "it hangs"
        return [member.exitcode for member in self.members]

    def said(self, rank: int) -> str:
        return (self.project / f"{rank}.txt").read_text("utf-8")


def wait_until(condition: Callable[[], bool]) -> None:
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() < begin + 60
        time.sleep(0.002)


def wait_for_three_steps(project: Path) -> None:
    """Wait until there are so many lines in metrics.jsonl."""
    metrics = RunFolder(project / "out").metrics
    wait_until(lambda: metrics.exists() and metrics.read_text("utf-8").count("\n") >= 3)


def is_free(out: Path) -> bool:
    """Return whether no process holds the folder."""
    try:
        with RunFolder(out).held():
            return True
    except UserError:
        return False


def run_together(size: int, project: Path, *args: str) -> None:
    group = Group(size, project, *args)
    assert group.end() == [0] * size, [group.said(rank) for rank in range(size)]


# --- the same run ---------------------------------------------------------------------------


@slow
@pytest.mark.parametrize("preset", ["classic", "base"])
def test_two_processes_without_a_table_end_with_the_bits_of_one(project, preset):
    run_together(2, project, *FOUR, "--preset", preset, "--max_iters", "6")
    train_quietly(project, project / "one", 6, *MORE, "--preset", preset)
    assert_same_run(project / "out", project / "one")


def test_one_two_and_four_processes_end_with_the_bits_of_one(project):
    run_together(2, project, *FOUR, "--max_iters", "3")
    run_together(4, project, *FOUR, "--max_iters", "6", "--resume")
    train_quietly(project, project / "out", 8, *MORE)
    # The learning rate follows max_iters, so the run to compare with has the same three parts.
    for steps in (3, 6, 8):
        train_quietly(project, project / "one", steps, *MORE)
    assert_same_run(project / "out", project / "one")


def test_a_text_is_prepared_once_and_one_process_speaks(project):
    (project / "mine.txt").write_text(TEXT, encoding="utf-8")
    args = [*FOUR, "--max_iters", "2", "--dataset", "none", "--corpus", "mine.txt"]
    group = Group(2, project, *args)
    assert group.end() == [0, 0], group.said(0) + group.said(1)
    assert "2 processes" in group.said(0)
    assert "validation loss" in group.said(0)
    assert group.said(1) == ""
    assert checkpoint.load(Path("out/last.safetensors")).corpus_name == "mine"


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


def test_a_loss_that_is_not_finite_ends_all(project):
    group = Group(2, project, *FOUR, "--learning_rate", "1e30")
    assert group.end() == [2, 2]
    assert "not a finite number at step" in group.said(0)


@pytest.mark.parametrize("killed", [0, pytest.param(1, marks=slow)])
def test_where_one_is_killed_the_others_say_so_and_the_run_goes_on(project, killed):
    group = Group(2, project, *FOUR, "--max_iters", "400")
    wait_for_three_steps(project)
    group.members[killed].kill()
    statuses = group.end()
    assert statuses[killed] == -signal.SIGKILL
    assert statuses[1 - killed] == 2
    assert "another process of the run has ended" in group.said(1 - killed)
    assert "Traceback" not in group.said(1 - killed)
    step = checkpoint.load(Path("out/last.safetensors")).progress.step
    train_quietly(project, project / "out", step + 2, *MORE)


def test_nobody_waits_for_ever(project):
    group = Group(2, project, *FOUR, "--max_iters", "100000", timeout=3)
    wait_for_three_steps(project)
    os.kill(group.members[1].pid, signal.SIGSTOP)
    group.members[0].join(30)
    group.members[1].kill()
    assert group.members[0].exitcode == 2
    assert "did not answer for 3 s" in group.said(0)


@pytest.mark.parametrize(
    ("number", "to", "status"),
    [
        ("SIGINT", (0, 1, 1), 130),  # from the terminal and from torchrun
        ("SIGTERM", (1,), 143),
        pytest.param("SIGINT", (0,), 130, marks=slow),
    ],
)
def test_signals_stop_all_at_one_step_saved_once(project, number, to, status):
    group = Group(2, project, *FOUR, "--max_iters", "100000", "--eval_interval", "100000")
    wait_for_three_steps(project)
    for rank in to:
        os.kill(group.members[rank].pid, getattr(signal, number))
    assert group.end() == [status, status]
    step = checkpoint.load(Path("out/last.safetensors")).progress.step
    assert f"stopped and saved at step {step}; go on with: " in group.said(0)
    assert group.said(1) == ""
    assert metrics_of(Path("out"))[-1]["step"] == step


# --- torchrun -------------------------------------------------------------------------------


def torchrun_here(project: Path, restarts: int, die_at: int, *args: str) -> None:
    """Be torchrun, but for the interpreters: its processes are copies of this one."""
    from torch.distributed import run

    line = ["--nproc_per_node=2", f"--master_port={free_port()}", f"--max-restarts={restarts}"]
    config, _, _ = run.config_from_args(run.parse_args([*line, "train.py"]))
    config.start_method = "fork"
    logging.disable()  # to tell of a failure it would import PyTorch's compiler
    with speaking_into(project / "said.txt") as said:
        os.dup2(said.fileno(), 2)
        run.elastic_launch(config, be_one_of_torchrun)(project, die_at, *args)


def be_one_of_torchrun(project: Path, die_at: int, *args: str) -> None:
    """Train; the second process kills itself before the step `die_at` of the first attempt."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, 0)  # real ones get no signal where torchrun dies
    train.DATA, sys.argv = project / "data", ["train.py", *args]
    get, launcher = training.Batches.get, os.getppid()
    place = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]

    def get_or_die(batches: training.Batches, step: int, micro_step: int) -> tuple:
        if (step, *place) == (die_at, "1", "0"):
            os.kill(os.getpid(), signal.SIGKILL)
        return get(batches, step, micro_step)

    training.Batches.get = get_or_die
    try:
        cli.exit_with(train.main)
    finally:
        if os.getppid() != launcher:
            os._exit(0)  # or it would wait until torchrun has seen that it ends


def torchrun(project: Path, *args: str, restarts: int = 0, die_at: int = -1) -> Process:
    return start_process(torchrun_here, project, restarts, die_at, *args)


def said(project: Path) -> str:
    return (project / "said.txt").read_text("utf-8")


def test_after_a_kill_torchrun_goes_on_by_itself_and_ends_with_the_same_bits(project):
    process = torchrun(project, *FOUR, "--max_iters=6", "--overwrite", restarts=1, die_at=3)
    process.join(100)
    assert process.exitcode == 0, said(project)
    train_quietly(project, project / "one", 6, *MORE)
    assert_same_run(project / "out", project / "one")


def test_without_its_launcher_a_run_comes_to_its_end(project):
    process = torchrun(project, *FOUR, "--max_iters=12")
    wait_for_three_steps(project)
    process.kill()
    process.join()
    wait_until(lambda: is_free(project / "out"))
    train_quietly(project, project / "one", 12, *MORE)
    assert_same_run(project / "out", project / "one")


def test_a_restart_does_not_go_on_with_another_run(project):
    train_quietly(project, project / "out", 2)
    before = (project / "out" / "last.safetensors").read_bytes()
    process = torchrun(project, *FOUR, "--max_iters=4", restarts=1)
    process.join(100)
    assert process.exitcode == 1
    assert (project / "out" / "last.safetensors").read_bytes() == before
    assert said(project).count("holds a run already") == 2


@slow
@pytest.mark.parametrize(("size", "status"), [(2, 0), (3, 1)])
def test_the_real_torchrun_does_so_too(project, size, status):
    """And its processes end in order: none of them crashes at the end of its interpreter."""
    script = project / "script.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nimport train\nfrom sancho import cli\n"
        f"train.DATA = train.Path({str(project / 'data')!r})\ncli.exit_with(train.main)\n",
        encoding="utf-8",
    )
    line = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={size}"]
    line += [f"--master_port={free_port()}", script, *FOUR, "--max_iters=4"]
    result = subprocess.run(line, capture_output=True, text=True)
    assert result.returncode == status, result.stderr
    assert result.stderr.count("multiple of 3") == status
    assert "SIGABRT" not in result.stderr
    if status == 0:
        train_quietly(project, project / "one", 4, *MORE)
        assert_same_run(project / "out", project / "one")


def test_what_is_started_again_goes_on_with_what_it_began(monkeypatch):
    folder, run = RunFolder(Path("out")), RunConfig(overwrite=True)
    assert setup.after_restart(run) == run
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert setup.after_restart(run) == run
    folder.path.mkdir()
    folder.begin(TrainOptions(run=run))
    assert setup.after_restart(RunConfig()) == RunConfig(overwrite=True)  # nothing saved yet
    folder.last.touch()
    assert setup.after_restart(run) == RunConfig(resume=True)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
    assert setup.after_restart(run) == run


def test_on_gpus_there_is_a_micro_step_for_each():
    run, gpu = RunConfig(preset="base"), Device(torch.device("cuda"), torch.bfloat16)
    options = setup.default_options(run, gpu, None, 8)
    assert options.train.gradient_accumulation_steps == 8
    assert setup.default_options(run, gpu, None).train.gradient_accumulation_steps == 1


# --- a world of its own ---------------------------------------------------------------------


def test_alone_there_is_nothing_to_do(monkeypatch):
    with distributed.joined(torch.device("cpu")) as world:
        assert world is ALONE
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    with distributed.joined(torch.device("cpu")) as world:
        assert world is ALONE
    assert ALONE.broadcast_from_first(lambda: "made") == "made"
    assert ALONE.all_reduce_max(15) == 15
    with pytest.raises(UserError, match="mine"), ALONE.together():
        raise UserError("mine")
    ALONE.check(1)


def test_our_own_errors_keep_their_traceback():
    with pytest.raises(RuntimeError, match="invalid tensor size"), distributed._others():
        raise RuntimeError("invalid tensor size")


@pytest.mark.slow
def test_kills_of_each_process_at_random_moments_lose_nothing(project):
    chance, steps, kills = random.Random(1605), 300, 40
    args = [*FOUR, "--max_iters", str(steps)]
    for _ in range(kills):
        resume = ["--resume"] if Path("out/last.safetensors").exists() else ["--overwrite"]
        size = chance.choice([2, 4])
        # If one dies before they have met, the others' time must run out; torchrun would kill them.
        group = Group(size, project, *args, *resume, timeout=5)
        time.sleep(chance.uniform(0.2, 1.5))
        group.members[chance.randrange(size)].kill()
        group.end()
    train_quietly(project, project / "out", steps, *MORE)
    train_quietly(project, project / "one", steps, *MORE)
    assert_same_run(project / "out", project / "one")
