"""One run on several processes: the same losses, one checkpoint, one voice."""

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import conftest
import pytest
import torch
import torch.distributed as dist
from conftest import (
    ARGS,
    ROOT,
    TEXT,
    assert_same_run,
    instead,
    main_of,
    metrics_of,
    start_process,
    train_quietly,
)

from sancho import checkpoint
from sancho.command import terminal
from sancho.errors import LOG, UserError
from sancho.machine.distributed import World, process_group
from sancho.run.batches import Batches
from sancho.text import sources

pytestmark = [
    pytest.mark.usefixtures("project", "server_of_processes"),
    pytest.mark.skipif(sys.platform == "win32", reason="here: no gloo and the signals of POSIX"),
]
slow = pytest.mark.slow
STEPS = 6
MORE = "--gradient_accumulation_steps 4 --ngram_dropout 0.3 --look_ahead 1 --eval_interval 2"
FOUR = instead(ARGS, *MORE.split())
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
    get = Batches.get

    def act_and_get(batches: Batches, step: int, micro_step: int) -> tuple:
        if step == number and rank in acts:
            acts.pop(rank)()
        return get(batches, step, micro_step)

    Batches.get = act_and_get


def send(number: int, times: int = 1) -> None:
    """Send a signal to this process; twice, as from the terminal and from torchrun."""
    for _ in range(times):
        os.kill(os.getpid(), number)


def be_one(rank: int, size: int, port: int, project: Path, before: Callable, *args: str) -> None:
    """Be one of the processes that torchrun would start; what it says goes to rank.txt."""
    where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size}
    where |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in where.items()})
    sources.DATA = project / "data"
    sys.argv = ["train.py", *args]
    before(rank)
    path = project / f"{rank}.txt"
    with path.open("w", encoding="utf-8") as said, redirect_stdout(said), redirect_stderr(said):
        terminal.run_script(lambda: main_of("train.py", args))


def run_together(
    size: int, project: Path, *args: str, before: Callable[[int], object] = str
) -> tuple[list[int], list[str]]:
    """Train with N processes; return their exit statuses, and what each of them says.

    They are ended when one has failed, as by torchrun, or hangs. before: what a process does first.
    """
    more = (size, free_port(), project, before, *args)
    members = [start_process(be_one, rank, *more) for rank in range(size)]
    end = time.monotonic() + 90
    while any(member.is_alive() for member in members):
        if any(member.exitcode for member in members) or time.monotonic() > end:
            for member in members:
                member.join(1)  # it may say something
                member.kill()
        time.sleep(0.05)
    said = [(project / f"{rank}.txt").read_text("utf-8") for rank in range(size)]
    return [member.exitcode for member in members], said


def assert_goes_on(project: Path, *args: str) -> None:
    """Go on with two processes, to the end."""
    statuses, said = run_together(2, project, *FOUR, *args, f"--max_iters={STEPS}")
    assert statuses == [0, 0], said


@pytest.fixture(scope="module")
def expected(tmp_path_factory, server_of_processes) -> Path:
    """What a run of two processes leaves that nothing has interrupted."""
    project = conftest.make_project(tmp_path_factory.mktemp("expected"))
    assert_goes_on(project, f"--out_dir={project / 'out'}")
    return project / "out"


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
    more = instead(MORE.split(), *more)
    args = instead(ARGS, *more, f"--threads={threads}", "--max_iters=20")
    statuses, said = run_together(size, project, *args)
    assert statuses == [0] * size, said
    train_quietly(project, project / "one", 20, *more, f"--threads={3 - threads}")
    pairs = zip(metrics_of(project / "out"), metrics_of(project / "one"), strict=True)
    for ours, theirs in pairs:
        for name in ("train_loss", "val_loss"):
            assert ours[name] == pytest.approx(theirs[name], abs=1e-3), ours["step"]
        assert (ours["step"], ours["tokens"]) == (theirs["step"], theirs["tokens"])
    assert ours["step"] == 20


def test_each_process_reads_the_text_and_one_speaks(project):
    (project / "mine.txt").write_text(TEXT + "\0\n", encoding="utf-8")
    args = instead(FOUR, "--max_iters=2", "--corpus=mine.txt")
    statuses, (said, nothing) = run_together(2, project, *args)
    assert statuses == [0, 0], said
    assert "2 processes" in said and "validation loss" in said
    assert "note: mine has 1 NUL" in said
    assert nothing == ""
    assert checkpoint.load("out/last.safetensors").corpus_name == "mine"


def read_another_text(rank: int) -> None:
    """As on a second machine, where data/tiny.txt is another text."""
    if rank:
        text = TEXT.replace("Mancha", "Mancho")
        Path("elsewhere").mkdir()
        Path("elsewhere/tiny.txt").write_text(text, encoding="utf-8")
        sources.DATA = Path("elsewhere")


@pytest.mark.parametrize(
    ("size", "line", "words"),
    [
        (3, "", "--gradient_accumulation_steps is 4; make it a multiple of 3, since the p"),
        (2, "--out_dir=taken", "holds a run already"),  # in the first one alone
        (2, "--learning_rate=1e30", "not a finite number at step"),
        (2, "--max_iters=3", "the processes of the run read different texts"),
    ],
)
def test_what_is_wrong_is_said_once_and_all_end(project, size, line, words):
    if "taken" in line:
        train_quietly(project, Path("taken"), 1)
    before = read_another_text if "different" in words else str
    statuses, (said, *others) = run_together(size, project, *FOUR, *line.split(), before=before)
    assert statuses[0] == 2
    assert said.count("error") == 1 and words in said.splitlines()[-1]
    assert others == [""] * (size - 1)
    assert Path("out/metrics.jsonl").exists() == ("learning_rate" in line)


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("SIGKILL", {0: 1}),
        pytest.param("SIGKILL", {1: 1}, marks=slow),
        ("SIGINT", {0: 1, 1: 2}),
        pytest.param("SIGTERM", {1: 1}, marks=slow),
    ],
)
def test_a_run_that_is_killed_or_stopped_goes_on_to_the_same_bits(project, expected, name, times):
    """Where one is killed, from its last save; signals stop all at one step, saved once."""
    number = getattr(signal, name)
    before = partial(at_step, 3, {rank: partial(send, number, n) for rank, n in times.items()})
    statuses, said = run_together(2, project, *FOUR, f"--max_iters={STEPS}", before=before)
    assert "Traceback" not in said[0] + said[1]
    if name == "SIGKILL":
        assert -number in statuses
    else:
        assert statuses == [128 + number] * 2
        assert "stopped and saved at step 4; go on with: " in said[0]
        assert said[1] == ""
    assert_goes_on(project, "--resume")
    assert_same_run(project / "out", expected)


OF_TORCHRUN = """
import os, sys
from functools import partial
sys.path[:0] = [{root!r}, {tests!r}, {here!r}]
from conftest import main_of
from pathlib import Path
from sancho.command import terminal
from sancho.text import sources
from test_distributed import at_step, send
sources.DATA = Path({data!r})
if os.environ["TORCHELASTIC_RESTART_COUNT"] < os.environ["TORCHELASTIC_MAX_RESTARTS"]:
    at_step(3, {{1: partial(send, 9)}}, int(os.environ["RANK"]))
terminal.run_script(lambda: main_of("train.py", sys.argv[1:]))
"""
"""Where torchrun may restart, the second process kills itself in the first attempt."""


@slow
@pytest.mark.parametrize(
    ("restarts", "more", "words"),
    [
        (0, ["--resume", "--overwrite"], "--resume is True"),
        (1, ["--resume"], "going on with the run in out after step 2"),
    ],
)
def test_torchrun_goes_on_after_a_kill_but_not_after_an_error(
    project, expected, restarts, more, words
):
    """And its processes end in order: none of them crashes at the end of its interpreter."""
    here = ROOT / "tests" / "machine"
    paths = {"root": ROOT, "tests": here.parent, "here": here, "data": project / "data"}
    paths = {name: str(path) for name, path in paths.items()}
    script = project / "script.py"
    script.write_text(OF_TORCHRUN.format(**paths), encoding="utf-8")
    line = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    line += [f"--max-restarts={restarts}", f"--master_port={free_port()}"]
    line += [script, *FOUR, f"--max_iters={STEPS}", *more]
    result = subprocess.run(line, capture_output=True, text=True)
    assert result.stderr.count(words) == 1, result.stderr
    assert "SIGABRT" not in result.stderr
    assert result.returncode == (restarts == 0)
    if restarts:
        assert_same_run(project / "out", expected)


ALL_SET = "LOCAL_RANK=0 MASTER_ADDR=localhost MASTER_PORT=99999"  # there is no such port


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ("WORLD_SIZE=2 RANK=0", "are missing or wrong: LOCAL_RANK, MASTER_PORT; "),
        ("WORLD_SIZE=x RANK=0", "are missing or wrong: WORLD_SIZE, LOCAL_RANK, MASTER_PORT; "),
        (f"WORLD_SIZE=2 RANK=2 {ALL_SET}", "are missing or wrong: RANK; "),
        ("WORLD_SIZE=2 RANK=0 LOCAL_RANK=0 MASTER_PORT=1", "the processes can't find each other "),
        (f"WORLD_SIZE=2 RANK=0 {ALL_SET}", "the processes can't find each other "),
    ],
)
def test_what_is_left_of_torchrun_is_one_line(monkeypatch, left, words):
    for word in left.split():
        monkeypatch.setenv(*word.split("="))
    with pytest.raises(UserError, match=f"^.*{words}.* WORLD_SIZE RANK$"), process_group():
        pytest.fail("there is nobody")


@pytest.fixture(params=[0])
def one_of_two(request, monkeypatch) -> SimpleNamespace:
    """Be a process of two, the first if nothing else is said, that have found each other."""
    rank = request.param
    seen = SimpleNamespace(slept=0, left=0, store=None)
    found = dist.HashStore()
    for name, value in {
        "WORLD_SIZE": 2,
        "RANK": rank,
        "LOCAL_RANK": rank,
        "MASTER_PORT": 1,
    }.items():
        monkeypatch.setenv(name, str(value))

    def begin(backend: str, *, store: dist.Store, **options: object) -> None:
        seen.store = store

    def sleep(seconds: float) -> None:
        seen.slept += seconds

    def leave() -> None:
        seen.left += 1

    monkeypatch.setattr(dist, "rendezvous", lambda address: iter([(found, rank, 2)]))
    monkeypatch.setattr(dist, "init_process_group", begin)
    monkeypatch.setattr(dist, "destroy_process_group", leave)
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(LOG, "disabled", False)
    return seen


def test_what_an_attempt_of_torchrun_has_left_is_not_read_by_the_next(one_of_two, monkeypatch):
    """Its processes find each other at the same place as those of the attempt before."""
    for attempt in ("2", "3"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", attempt)
        with process_group():
            assert not one_of_two.store.check(["left"])
            one_of_two.store.set("left", attempt)
    assert one_of_two.left == 2


@pytest.mark.parametrize("one_of_two", [0, 1], indirect=True)
def test_an_error_in_all_processes_is_told_by_the_first_while_the_others_wait(one_of_two):
    """torchrun ends all of them as soon as one has ended, perhaps before it has spoken."""
    with pytest.raises(UserError, match="wrong"), process_group() as world:
        assert LOG.disabled == (not world.is_first)
        raise UserError("something is wrong")
    assert (one_of_two.slept >= 5) == (not world.is_first)
    assert one_of_two.left == 1


# What gloo says, and NCCL in the last one.
OF_A_LOST_PROCESS = [
    "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:42318",
    "[gloo/transport/tcp/pair.cc:553] Read error [127.0.0.1]:5218: Connection reset by peer",
    "[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation",
    "Socket Timeout\nException raised from doWait",
    "[gloo/transport/tcp/pair.cc:600] writev [127.0.0.1]:5218: Broken pipe",
    "[gloo/transport/tcp/loop.cc:71] connect [127.0.0.1]:5218: Connection refused",
    "[gloo/transport/tcp/pair.cc:144] connect [10.0.0.2]:5218: Network is unreachable",
    "NCCL communicator was aborted on rank 0.",
]


@pytest.mark.parametrize("words", OF_A_LOST_PROCESS)
def test_a_process_that_is_lost_is_one_line_that_says_how_to_go_on(one_of_two, words):
    first_line = re.escape(words.splitlines()[0])
    expected = rf"^another process of the run has ended \({first_line}\); .* go on with --resume$"
    with pytest.raises(UserError, match=expected), process_group():
        raise dist.DistBackendError(words)


def test_an_error_of_another_kind_stays_what_it_is(one_of_two):
    with pytest.raises(RuntimeError, match=r"^mat1 and mat2 shapes") as caught, process_group():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)")
    assert not isinstance(caught.value, UserError)


@pytest.mark.parametrize("left", ["WORLD_SIZE= RANK=", "WORLD_SIZE=1 RANK=0", "WORLD_SIZE= RANK=1"])
def test_one_process_is_alone(monkeypatch, left):
    for word in left.split():
        monkeypatch.setenv(*word.split("="))
    with process_group() as world:
        assert world == World()


def test_each_process_needs_a_gpu_of_its_own(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for place, device in (("1", "cuda"), ("9", "cpu")):
        monkeypatch.setenv("LOCAL_RANK", place)
        World(int(place), 10).choose_gpu(torch.device(device))
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(UserError, match="there are 2 CUDA GPUs; give --nproc_per_node 2 or less"):
        World(2, 10).choose_gpu(torch.device("cuda"))
    World().choose_gpu(torch.device("cuda"))  # alone anything goes
    assert chosen == [1]


@pytest.mark.parametrize("place", [None, *range(15)])
def test_texts_whose_digests_differ_in_a_digit_are_different(monkeypatch, place):
    """Of two processes, each of which gives its numbers to the other."""
    ours = "0123456789abcdef" * 4
    theirs = ours if place is None else f"{ours[:place]}f{ours[place + 1 :]}"
    given = []
    monkeypatch.setattr(World, "max", lambda self, number: given.append(number) or number)
    World(1, 2).require_same_text(theirs)
    others = iter(given)
    monkeypatch.setattr(World, "max", lambda self, number: max(number, next(others)))
    expected = nullcontext() if place is None else pytest.raises(UserError, match="different texts")
    with expected:
        World(0, 2).require_same_text(ours)
