"""Small things that a user would feel: lines of a log, what is counted, locks, what is read."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
import unicodedata
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist
from conftest import (
    ARGS,
    ROOT,
    assert_refused,
    be_train,
    contents,
    run,
    start_process,
    succeed,
)

from sancho import checkpoint
from sancho.command import terminal
from sancho.errors import LOG, UserError
from sancho.evaluation.counting import kneser_ney_losses
from sancho.machine.distributed import World, process_group
from sancho.machine.files import locked
from sancho.machine.threads import thread_pool
from sancho.run.folder import RunFolder
from sancho.shared import ngrams

posix = pytest.mark.skipif(sys.platform == "win32", reason="here: no links, no such errors")


# --- what is counted ------------------------------------------------------------------------


def test_sequences_of_eight_characters_are_counted():
    """The eighth is sure after these seven, and after no six."""
    random = np.random.default_rng(3)
    pieces = [np.append(random.integers(2, size=7), 0) for _ in range(4000)]
    for piece in pieces:
        piece[7] = 2 + piece[0]  # what comes follows from seven characters before
    ids = np.concatenate(pieces)
    losses = kneser_ney_losses(ids[:-800], ids[-800:], 4)
    assert len(losses) == 8
    at_ends = losses[:, 7::8].mean(1)
    assert at_ends[7] < 0.2 < at_ends[6]


def test_ngrams_of_all_of_a_book_are_counted():
    """As of 2^23 characters; so the last sentence of a book has its rows, too."""
    ids = np.tile(np.arange(1, 5, dtype=np.uint8), 2**19)  # two million characters
    ids[-64:] = np.tile(np.array([7, 9], np.uint8), 32)
    keys = ngrams.vocabulary(ids, 2, 64)
    powers = np.array(ngrams.signed_powers(2))
    wanted = ngrams.ngram_keys(np.array([[9, 7]]), powers).astype(np.int32)
    assert wanted[0, 0] in keys


def test_a_stop_text_may_be_typed_with_an_accent_of_its_own():
    line = ["--checkpoint=pretrained", "--start=no tenía la raz", "--max_new_tokens=12"]
    assert succeed("sample.py", *line).out.startswith("no tenía la razón, ")
    for accent in ("ó", unicodedata.normalize("NFD", "ó")):
        assert succeed("sample.py", *line, "--stop", f"{accent}n").out == "no tenía la raz\n"


# --- locks ----------------------------------------------------------------------------------


@posix
def test_a_link_to_a_folder_is_the_folder(tmp_path):
    """To other processes, and to this one: else it would wait for itself."""
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    lock = f"FolderLock({str(tmp_path / 'link')!r}).acquire()"
    code = f"from sancho.machine.files import FolderLock; {lock}"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"]
    with locked(tmp_path / "folder"), locked(tmp_path / "link"):
        done = subprocess.run(command, capture_output=True, text=True)
    assert "is in use by another process" in done.stderr
    assert subprocess.run(command).returncode == 0


@posix
@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES], ids=errno.errorcode.get)
def test_a_folder_that_cannot_be_written_is_an_error_and_no_note(project, monkeypatch, number):
    def refusing(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("filelock.FileLock.acquire", refusing)
    done = run("train.py", *ARGS, "--max_iters=2")
    words = f"out can't be written ({os.strerror(number)}); choose another folder"
    assert_refused(done, "train.py", words)
    assert contents(project / "out") == {}


def wait_for(*paths: Path) -> None:
    """Wait until one of them is there."""
    end = time.monotonic() + 60
    while not any(path.exists() for path in paths):
        assert time.monotonic() < end, paths
        time.sleep(0.001)


def begin_beside(project: Path, me: int) -> None:
    """Begin a run when the other one is about to, and make no step until that has begun or ended.

    Neither sees anything of the other in the folder, whichever is the faster one.
    """
    mine, others = (str(project / f"{number} ") for number in (me, 1 - me))
    begin = RunFolder.begin

    def begin_together(*args: object, **options: object) -> None:
        Path(f"{mine}is ready").touch()
        wait_for(Path(f"{others}is ready"))
        begin(*args, **options)
        Path(f"{mine}has begun").touch()
        wait_for(Path(f"{others}has begun"), Path(f"{others}has ended"))

    RunFolder.begin = begin_together
    try:
        be_train(project, str(me), *ARGS, "--max_iters=2", f"--out_dir={project / 'both'}")
    finally:
        Path(f"{mine}has ended").touch()


@posix
def test_of_two_runs_in_one_new_folder_one_is_refused(project, server_of_processes):
    processes = [start_process(begin_beside, project, me) for me in range(2)]
    for process in processes:
        process.join(120)
    assert sorted(process.exitcode for process in processes) == [0, 2]
    refused = [process.exitcode for process in processes].index(2)
    said = (project / f"{refused}.txt").read_text(encoding="utf-8").splitlines()[-1]
    assert "both is in use by another process" in said
    assert checkpoint.load(project / "both" / "last.safetensors").progress.step == 2


# --- several threads and processes ----------------------------------------------------------


def test_a_pool_has_as_many_threads_as_were_asked_for():
    barrier = threading.Barrier(3, timeout=20)
    with thread_pool(3) as parallel_map:
        names = parallel_map(lambda _: barrier.wait() >= 0 and threading.get_ident(), range(3))
    assert len(set(names)) == 3


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


@pytest.fixture
def second_of_two(monkeypatch) -> dict:
    """This process is the second of two that torchrun started for a third attempt."""
    seen: dict = {"slept": []}
    names = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "1"}
    for name, value in (names | {"TORCHELASTIC_RESTART_COUNT": "3"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(dist, "rendezvous", lambda how: iter([("a store", 1, 2)]))
    monkeypatch.setattr(dist, "PrefixStore", lambda prefix, store: (prefix, store))
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **how: seen.update(how))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: seen.update(left=True))
    monkeypatch.setattr(time, "sleep", seen["slept"].append)
    monkeypatch.setattr(LOG, "disabled", False)
    return seen


def test_an_error_in_all_processes_is_told_by_the_first_while_the_others_wait(second_of_two):
    """torchrun ends all of them as soon as one has ended, perhaps before it has spoken."""
    with pytest.raises(UserError, match="wrong"), process_group() as world:
        assert (world.rank, world.size, LOG.disabled) == (1, 2, True)
        raise UserError("something is wrong")
    assert sum(second_of_two["slept"]) >= 5 and second_of_two["left"]


def test_an_attempt_of_torchrun_does_not_read_what_the_one_before_has_left(second_of_two):
    with process_group():
        pass
    assert second_of_two["store"] == ("attempt 3", "a store")
    assert second_of_two["slept"] == []


@posix
@pytest.mark.parametrize("alone", [True, False])
def test_after_the_block_only_a_run_of_one_process_hears_signals(alone):
    """None of several is killed while another one still saves."""
    after = []
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    ours = {number: signal.signal(number, lambda n, _: after.append(n)) for number in numbers}
    try:
        with terminal.stop_signals(alone=alone) as received:
            signal.raise_signal(signal.SIGTERM)
        for number in numbers:
            signal.raise_signal(number)
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
    assert received[0] == signal.SIGTERM
    assert after == (numbers if alone else [])
