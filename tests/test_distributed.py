"""One run on several processes: the same bits, one checkpoint, one voice, and nobody waits."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import ROOT, TEXT, start_process
from test_crash import ARGS, assert_same_run, metrics_of, train_quietly

import train
from sancho import checkpoint, cli, distributed, start
from sancho.config import RunConfig
from sancho.device import Device
from sancho.distributed import ALONE
from sancho.errors import UserError
from sancho.run_folder import RunFolder

pytestmark = [
    pytest.mark.usefixtures("project", "one_thread", "server_of_processes"),
    pytest.mark.skipif(sys.platform == "win32", reason="gloo and the signals of POSIX"),
]
FOUR = (*ARGS, "--gradient_accumulation_steps", "4", "--ngram_dropout", "0.3", "--look_ahead", "1")
PRESET_ARGS = {
    "mini": (),
    "classic": ("--preset", "classic"),
    "base": ("--preset", "base"),
}


# --- processes ------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def be_one(rank: int, size: int, port: int, project: Path, patience: float, *args: str) -> None:
    """Be one of the processes that torchrun would start; what it says goes to rank.txt."""
    where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size}
    where |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in where.items()})
    torch.set_num_threads(1)
    train.DATA, sys.argv = project / "data", ["train.py", *args]
    distributed.PATIENCE_SECONDS = patience
    with (
        open(project / f"{rank}.txt", "w", encoding="utf-8") as said,
        redirect_stdout(said),
        redirect_stderr(said),
    ):
        cli.exit_with(train.main)


class Group:
    """N processes that train together."""

    def __init__(self, size: int, project: Path, *args: str, patience: float = 60) -> None:
        port = free_port()
        self.project = project
        self.members = [
            start_process(be_one, rank, size, port, project, patience, *args)
            for rank in range(size)
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


def has_come_to(step: int, out: Path) -> bool:
    """Return whether a step is in metrics.jsonl."""
    metrics = RunFolder(out).metrics
    return metrics.exists() and metrics.read_text("utf-8").count("\n") >= step


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


@pytest.mark.parametrize(
    ("preset", "size"), [("mini", 2), ("mini", 4), ("classic", 2), ("base", 2)]
)
def test_several_processes_end_with_the_bits_of_one(project, preset, size):
    args = [*FOUR, *PRESET_ARGS[preset], "--max_iters", "6"]
    run_together(size, project, *args, "--out_dir", "out")
    train_quietly(project, project / "one", 6, *FOUR[len(ARGS) :], *PRESET_ARGS[preset])
    assert_same_run(project / "out", project / "one")
    assert len(metrics_of(project / "out")) == 6


def test_a_run_goes_on_with_another_number_of_processes(project):
    end = ["--out_dir", "out", "--max_iters"]
    run_together(2, project, *FOUR, *end, "3")
    run_together(4, project, *FOUR, *end, "6", "--resume")
    train_quietly(project, project / "out", 9, *FOUR[len(ARGS) :])
    # The learning rate follows max_iters, so the run to compare with has the same three parts.
    for steps in (3, 6, 9):
        train_quietly(project, project / "one", steps, *FOUR[len(ARGS) :])
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


def assert_one_line(group: Group, *words: str) -> None:
    """The first process says what is wrong, the others nothing; all end."""
    assert group.end() == [2, *[0] * (len(group.members) - 1)]
    assert group.said(0).count("\n") == 1
    for word in words:
        assert word in group.said(0)
    assert [group.said(rank) for rank in range(1, len(group.members))] == [""] * (
        len(group.members) - 1
    )


def test_micro_steps_that_cannot_be_shared_are_one_clear_line(project):
    group = Group(3, project, *FOUR)
    assert_one_line(group, "--gradient_accumulation_steps is 4", "multiple of 3", "--batch_size")
    assert not Path("out/config.json").exists()


def test_an_unknown_option_and_a_folder_that_is_taken_are_one_line(project):
    assert_one_line(Group(2, project, *FOUR, "--layers", "3"), "unknown option --layers")
    with RunFolder(Path("out")).held():
        assert_one_line(Group(2, project, *FOUR), "in use by process")
    train_quietly(project, Path("out"), 1)
    before = Path("out/last.safetensors").read_bytes()
    assert_one_line(Group(2, project, *FOUR), "holds a run already")
    assert Path("out/last.safetensors").read_bytes() == before


def test_a_loss_that_is_not_finite_ends_all(project):
    group = Group(2, project, *FOUR, "--learning_rate", "1e30")
    assert group.end() == [2, 2]
    assert "not a finite number at step" in group.said(0)


@pytest.mark.parametrize("killed", [0, 1])
def test_where_one_is_killed_the_others_say_so_and_the_run_goes_on(project, killed):
    args = [*FOUR, "--max_iters", "400", "--out_dir", "out"]
    group = Group(2, project, *args)
    wait_until(lambda: has_come_to(3, project / "out"))
    group.members[killed].kill()
    statuses = group.end()
    assert statuses[killed] == -signal.SIGKILL
    assert statuses[1 - killed] == 2
    assert "another process of the run has ended" in group.said(1 - killed)
    assert "Traceback" not in group.said(1 - killed)
    step = checkpoint.load(Path("out/last.safetensors")).progress.step
    run_together(2, project, *FOUR, "--resume", "--max_iters", str(step + 2))


def test_nobody_waits_for_ever(project):
    group = Group(2, project, *FOUR, "--max_iters", "100000", patience=2)
    wait_until(lambda: has_come_to(3, project / "out"))
    os.kill(group.members[1].pid, signal.SIGSTOP)
    group.members[0].join(30)
    group.members[1].kill()
    assert group.members[0].exitcode == 2
    assert "did not answer for 2 s" in group.said(0)


@pytest.mark.parametrize(
    ("number", "to", "status"),
    [("SIGINT", (0, 1, 1), 130), ("SIGTERM", (1,), 143), ("SIGINT", (0,), 130)],
)
def test_signals_stop_all_at_one_step_saved_once(project, number, to, status):
    group = Group(2, project, *FOUR, "--max_iters", "100000", "--eval_interval", "100000")
    wait_until(lambda: has_come_to(3, project / "out"))
    for rank in to:
        os.kill(group.members[rank].pid, getattr(signal, number))
    assert group.end() == [status, status]
    step = checkpoint.load(Path("out/last.safetensors")).progress.step
    assert f"stopped and saved at step {step}; go on with: python" in group.said(0)
    assert group.said(1) == ""
    assert metrics_of(Path("out"))[-1]["step"] == step


# --- torchrun -------------------------------------------------------------------------------


def torchrun(project: Path, *args: str, restarts: int = 0, before: str = "") -> subprocess.Popen:
    """Start the real one, on a script that trains in `project`; `before` runs in it first."""
    script = project / "script.py"
    script.write_text(
        f"import os, sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"import train\nfrom sancho import cli\n"
        f"train.DATA = train.Path({str(project / 'data')!r})\n{before}\n"
        "cli.exit_with(train.main)\n",
        encoding="utf-8",
    )
    line = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    line += ["--master_port", str(free_port()), "--max-restarts", str(restarts)]
    with open(project / "said.txt", "w", encoding="utf-8") as said:
        return subprocess.Popen(
            [*line, str(script), *args],
            cwd=project,
            stdout=said,
            stderr=said,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )


DIE = """
if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    from sancho import training
    get = training.Batches.get
    def get_or_die(batches, step, micro_step):
        if step == 5:
            os.kill(os.getpid(), 9)
        return get(batches, step, micro_step)
    training.Batches.get = get_or_die
"""


def test_after_a_kill_torchrun_goes_on_by_itself_and_ends_with_the_same_bits(project):
    args = [*FOUR, "--max_iters", "8", "--out_dir", "out"]
    process = torchrun(project, *args, "--overwrite", restarts=1, before=DIE)
    assert process.wait(100) == 0, (project / "said.txt").read_text("utf-8")
    train_quietly(project, project / "one", 8, *FOUR[len(ARGS) :])
    assert_same_run(project / "out", project / "one")


def test_without_its_launcher_a_run_comes_to_its_end(project):
    process = torchrun(project, *FOUR, "--max_iters", "30", "--out_dir", "out")
    wait_until(lambda: has_come_to(3, project / "out"))
    process.kill()
    process.wait()
    wait_until(lambda: is_free(project / "out"))
    train_quietly(project, project / "one", 30, *FOUR[len(ARGS) :])
    assert_same_run(project / "out", project / "one")


def test_a_restart_does_not_go_on_with_another_run(project):
    train_quietly(project, project / "out", 2)
    before = (project / "out" / "last.safetensors").read_bytes()
    assert torchrun(project, *FOUR, "--max_iters", "4", restarts=1).wait(100) == 1
    assert (project / "out" / "last.safetensors").read_bytes() == before
    assert (project / "said.txt").read_text("utf-8").count("holds a run already") == 2


def test_what_is_started_again_goes_on_with_what_it_began(monkeypatch):
    folder, run = RunFolder(Path("out")), RunConfig(overwrite=True)
    assert start.after_restart(run) == run
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert start.after_restart(run) == run
    folder.path.mkdir()
    folder.begin(replace(train_options(), run=run))
    assert start.after_restart(RunConfig()) == RunConfig(overwrite=True)  # nothing saved yet
    folder.last.touch()
    assert start.after_restart(run) == RunConfig(resume=True)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
    assert start.after_restart(run) == run


def train_options():
    device = Device(torch.device("cpu"), torch.float32)
    return start.default_options(RunConfig(), device, None)


def test_on_gpus_there_is_a_micro_step_for_each():
    run, gpu = RunConfig(preset="base"), Device(torch.device("cuda"), torch.bfloat16)
    options = start.default_options(run, gpu, None, 8)
    assert options.train.gradient_accumulation_steps == 8
    assert start.default_options(run, gpu, None).train.gradient_accumulation_steps == 1


# --- a world of its own ---------------------------------------------------------------------


def test_alone_there_is_nothing_to_do(monkeypatch):
    with distributed.joined(torch.device("cpu")) as world:
        assert world is ALONE
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    with distributed.joined(torch.device("cpu")) as world:
        assert world is ALONE
    assert ALONE.from_first(lambda: "made") == "made"
    assert ALONE.highest(15) == 15
    with pytest.raises(UserError, match="mine"), ALONE.together():
        raise UserError("mine")
    ALONE.check(1)


def test_our_own_errors_keep_their_traceback():
    with pytest.raises(RuntimeError, match="invalid tensor size"), distributed._others():
        raise RuntimeError("invalid tensor size")


@pytest.mark.slow
def test_kills_of_each_process_at_random_moments_lose_nothing(project):
    chance, steps, kills = random.Random(1605), 300, 40
    args = [*FOUR, "--max_iters", str(steps), "--out_dir", "out"]
    for _ in range(kills):
        resume = ["--resume"] if Path("out/last.safetensors").exists() else ["--overwrite"]
        size = chance.choice([2, 4])
        # If one dies before they have met, the others' patience must end; torchrun would kill them.
        group = Group(size, project, *args, *resume, patience=5)
        time.sleep(chance.uniform(0.2, 1.5))
        group.members[chance.randrange(size)].kill()
        group.end()
    train_quietly(project, project / "out", steps, *FOUR[len(ARGS) :])
    train_quietly(project, project / "one", steps, *FOUR[len(ARGS) :])
    assert_same_run(project / "out", project / "one")
