"""What a run leaves in its folder, what it goes on with, and what it never touches."""

import errno
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch
from conftest import (
    ARGS,
    CPU,
    assert_refused,
    be_train,
    contents,
    corpus_from,
    everything,
    folder_at,
    run,
    start_process,
    watch_reports,
)
from test_files import somebody

from sancho import checkpoint
from sancho.checkpoint import PRETRAINED, Progress
from sancho.config import ModelConfig, TrainConfig
from sancho.errors import UserError
from sancho.generate import generate
from sancho.run.folder import RunFolder
from sancho.run.report import Report
from sancho.run.state import TrainingState
from sancho.text.corpus import Corpus
from sancho.training import fit

posix = pytest.mark.skipif(sys.platform == "win32", reason="here: Windows moves no open folder")
FIGURES = ["train_loss", "val_loss", "val_bpc", "lr", "tokens_per_second"]
METRICS = ["step", "tokens", "seconds", *FIGURES, "sample"]
FILES = [
    "best.safetensors",
    "corpus.txt",
    "curve.svg",
    "last.safetensors",
    "metrics.jsonl",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, corpus) -> Path:
    """What a run of six steps leaves, to be copied."""
    shape = {"block_size": 8, "n_layer": 1, "n_head": 1, "n_embd": 4, "ngram_rows": 16}
    model = ModelConfig(vocab_size=corpus.tokenizer.vocab_size, **shape)
    train = TrainConfig(max_iters=6, batch_size=2, eval_interval=3, log_interval=2)
    state = TrainingState.start(model, train, CPU, corpus.train)
    with folder_at(tmp_path_factory.mktemp("runs") / "deeper" / "out") as folder:
        folder.begin(state, corpus, tensorboard=False)
        for report in fit(state, corpus):
            folder.record(report)
            if report.val_loss is not None:
                folder.save(state)
    return folder.path


@pytest.fixture
def out(finished, tmp_path) -> Path:
    return shutil.copytree(finished, tmp_path / "out")


@pytest.fixture
def going_on(corpus):
    """Return the folder and the state of a run, ready for three steps more."""

    def go_on(out: Path) -> tuple[RunFolder, TrainingState]:
        folder = folder_at(out, resume=True)
        last = folder.beginning().checkpoint
        state = TrainingState.restore(last, replace(last.train_config, max_iters=9), CPU)
        folder.begin(state, corpus, tensorboard=False)
        return folder, state

    return go_on


def lines_of(out: Path) -> list[dict]:
    """Return the lines of the metrics, but for the first one, which names the run."""
    lines = (out / "metrics.jsonl").read_text("utf-8").splitlines()
    first, *others = map(json.loads, lines)
    assert list(first) == ["run", "sha256", "lengths"]
    return others


def report_at(step: int, **losses) -> Report:
    rest = {"seconds": 1.23456, "lr": 0.1, "tokens_per_second": 99.6}
    return Report(step=step, tokens=16 * step, **rest, **losses)


def test_the_best_model_is_not_replaced_by_a_worse_one(out, going_on):
    assert sorted(contents(out)) == FILES
    folder, state = going_on(out)
    best = checkpoint.load(folder.best)
    assert checkpoint.load(folder.last).optimizer and not best.optimizer
    lowest = best.progress.val_loss
    assert lowest == checkpoint.load(folder.last).progress.best_val_loss
    for step, loss, is_better in ((97, lowest + 1, 0), (98, lowest - 1, 1), (99, lowest - 1, 0)):
        before = folder.best.read_bytes()
        state.progress.step = step
        state.progress.val_loss = loss
        with torch.no_grad():
            state.model.head.weight.add_(1)
        folder.save(state)
        assert (folder.best.read_bytes() != before) == is_better
        assert checkpoint.load(folder.last).progress.step == step
    state.progress.is_evaluated = False  # the loss is that of another step
    state.progress.val_loss = 0.0
    folder.save(state)
    assert checkpoint.load(folder.best).progress.step == 98


def test_the_best_model_is_written_before_the_last_that_speaks_of_it(out, going_on, monkeypatch):
    folder, state = going_on(out)
    replace_file = Path.replace
    names = []

    def watched(path: Path, target: Path) -> Path:
        names.append(target.name)
        return replace_file(path, target)

    monkeypatch.setattr(Path, "replace", watched)
    state.progress.val_loss = 0.0
    folder.save(state)
    assert names == ["best.safetensors", "last.safetensors", "curve.svg"]


def test_metrics_hold_every_figure_of_a_run_and_what_it_wrote(out, corpus, going_on):
    lines = lines_of(out)
    assert [line["step"] for line in lines] == [2, 3, 4, 6]
    for line in lines:
        found = [line[name] is not None for name in ("val_loss", "val_bpc", "sample")]
        assert found == [line["step"] % 3 == 0] * 3
        assert line["tokens"] == line["step"] * 8 * 2
    model = checkpoint.load(out / "last.safetensors").build_model()
    ids = generate(model, corpus.val[:1], max_new_tokens=80, seed=1605)
    assert lines[-1]["sample"] == corpus.tokenizer.decode([new for (new,) in ids])
    folder, _ = going_on(out)
    folder.record(report_at(7))
    folder.record(report_at(8, train_loss=1 / 3, val_loss=2 / 3))
    *before, line = lines_of(out)
    assert before == lines and list(line) == METRICS
    figures = (8, 128, 1.235, 1 / 3, 2 / 3, report_at(8, val_loss=2 / 3).val_bpc, 0.1, 100, None)
    assert tuple(line.values()) == figures
    assert b"\r" not in folder.metrics.read_bytes()


def test_a_run_that_is_there_is_claimed_by_nobody_else(out):
    folder_at(out, resume=True).require_free()
    folder_at(out, overwrite=True).require_free()
    words = r"^\S*out holds a run already; go on with it \(--resume\), replace it \(--overwrite\)"
    with pytest.raises(UserError, match=words):
        folder_at(out).require_free()
    (out / "last.safetensors").unlink()
    for options in ({}, {"resume": True}):  # there is none to go on with
        with pytest.raises(UserError, match=r"already; begin with its model \(--init_from"):
            folder_at(out, **options).require_free()


@pytest.mark.parametrize(
    "name",
    ["corpus.txt", "curve.svg", "metrics.jsonl", "tensorboard/events.out.tfevents.1.host.2.0"],
)
@pytest.mark.parametrize("beside", [True, False])
def test_a_file_of_somebodys_is_in_the_way_of_a_run(out, name, beside):
    """Whether a run is there too, which may be replaced, or not."""
    if not beside:
        shutil.rmtree(out)
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    (out / name).write_text("mine")
    before = everything(out)
    words = rf"^\S*{Path(name).name} is in the way: no checkpoint in \S*out says that a run wrote"
    for how in ("resume", "overwrite"):
        with folder_at(out, **{how: True}) as folder, pytest.raises(UserError, match=words):
            folder.require_free()
    assert everything(out) == before


@pytest.mark.parametrize("name", ["last.safetensors", "best.safetensors"])
@pytest.mark.parametrize("content", [b"", b"mine", (8).to_bytes(8, "little") + b'{"a": 1}'])
def test_a_file_that_is_no_checkpoint_is_in_the_way_of_a_run(tmp_path, name, content):
    path = tmp_path / "out" / name
    path.parent.mkdir()
    path.write_bytes(content)
    folder = folder_at(path.parent, overwrite=True)
    with folder, pytest.raises(UserError, match=f"{name} is in the way: "):
        folder.require_free()
    assert path.read_bytes() == content


def test_the_folder_of_the_pretrained_model_is_refused():
    for path in (PRETRAINED.parent, Path(os.path.relpath(PRETRAINED.parent))):
        with pytest.raises(UserError, match="is the pretrained model's; choose another"):
            folder_at(path)
    assert not (PRETRAINED.parent / ".lock").exists()


def begin_another(out: Path, corpus: Corpus, seed: int = 7) -> None:
    """Begin a run that replaces the one in a folder."""
    last = checkpoint.load(out / "last.safetensors")
    train = replace(last.train_config, seed=seed)
    state = TrainingState.start(last.model_config, train, CPU, corpus.train)
    with folder_at(out, overwrite=True) as folder:
        folder.begin(state, corpus, tensorboard=False)


def test_a_run_has_its_step_0_and_its_text_before_its_first_step(out, corpus):
    (out / "mine.txt").write_text("mine")
    begin_another(out, corpus)
    assert sorted(contents(out)) == ["corpus.txt", "last.safetensors", "metrics.jsonl", "mine.txt"]
    saved = checkpoint.load(out / "last.safetensors")
    assert (saved.progress, saved.train_config.seed) == (Progress(), 7)
    assert (saved.corpus_name, saved.corpus_sha256) == (corpus.name, corpus.sha256)
    assert (out / "corpus.txt").read_text("utf-8") == corpus.text
    assert lines_of(out) == []


@pytest.mark.parametrize("name", ["best.safetensors", "corpus.txt"])
def test_an_old_file_that_cannot_be_replaced_is_told_as_what_it_is(out, corpus, monkeypatch, name):
    """By then the old run is no longer whole, so nobody says that nothing is lost."""

    def refusing(path: Path, *args: object, **options: object) -> None:
        if name in (path.name, *(Path(str(each)).name for each in args)):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return own(path, *args, **options)

    with monkeypatch.context() as patch:
        how = "unlink" if name == "best.safetensors" else "replace"
        own = getattr(Path, how)
        patch.setattr(Path, how, refusing)
        with pytest.raises(UserError, match=rf"can't be replaced \(Permission denied: .*{name}"):
            begin_another(out, corpus)
    begin_another(out, corpus, seed=8)
    assert checkpoint.load(out / "last.safetensors").train_config.seed == 8


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.parametrize("failing", range(1, 20))
def test_a_run_that_is_killed_as_it_replaces_another_goes_on(
    out, corpus, going_on, monkeypatch, failing
):
    """Until its step 0 is saved the old run is whole; from then on the new one goes on."""
    before = contents(out)
    other = corpus_from(2 * corpus.text)
    calls = count(1)

    def killing(act: Callable) -> Callable:
        def acting(*args: object, **options: object) -> object:
            if next(calls) == failing:
                raise Killed
            result = act(*args, **options)
            if next(calls) == failing:
                raise Killed
            return result

        return acting

    with monkeypatch.context() as patch:
        for name in ("replace", "unlink"):
            patch.setattr(Path, name, killing(getattr(Path, name)))
        with suppress(Killed):
            begin_another(out, other)
    last = checkpoint.load(out / "last.safetensors")
    if last.progress.step:  # the old one
        assert {name: contents(out)[name] for name in FILES} == before
        going_on(out)
        return
    state = TrainingState.restore(last, last.train_config, CPU)
    with folder_at(out, resume=True) as folder:
        folder.require_free()
        folder.begin(state, other, tensorboard=False)
    assert {*contents(out)} - {".lock"} == {"corpus.txt", "last.safetensors", "metrics.jsonl"}
    assert (out / "corpus.txt").read_text("utf-8") == other.text
    assert lines_of(out) == []
    begin_another(out, corpus)  # and it can be replaced in its turn


@pytest.mark.parametrize(
    "tail",
    [
        b'{"step": 7, "val_loss": null}\n{"step": 100, "val_loss": null}\n',
        b'{"step": 7, "tok',
        *(b"\0\0\n", b"{}\n", b"[]\n", b"7\n", b"\n", b"\xff\xfe\x80"),
    ],
)
def test_later_steps_and_incomplete_lines_are_dropped(out, going_on, tail):
    metrics = out / "metrics.jsonl"
    before = metrics.read_bytes()
    metrics.write_bytes(before + tail)
    last = checkpoint.load(out / "last.safetensors")
    progress = replace(last.progress, is_evaluated=True)
    checkpoint.save(out / "last.safetensors", replace(last, progress=progress))
    going_on(out)
    assert metrics.read_bytes() == before


def test_a_run_goes_on_without_metrics_and_best_model(out, going_on):
    """A kill before the first line, a resume, another kill."""
    for name in ("best.safetensors", "curve.svg", "metrics.jsonl", "corpus.txt"):
        (out / name).unlink()
    folder, state = going_on(out)
    folder.save(state)
    names = ["best.safetensors", "corpus.txt", "last.safetensors", "metrics.jsonl"]
    assert sorted(contents(out)) == names


def refuse(patch: pytest.MonkeyPatch, number: int, is_refused: Callable[[Path], bool]) -> None:
    """Let the system refuse to let some files take their places."""
    replace_file = Path.replace

    def refusing(path: Path, target: Path) -> Path:
        if is_refused(Path(target)):
            raise OSError(number, os.strerror(number), str(target))
        return replace_file(path, target)

    patch.setattr(Path, "replace", refusing)


def refuse_to_sync(patch: pytest.MonkeyPatch, number: int, path: Path) -> None:
    """Let the system refuse to bring a file to the disk. Such an error names no file."""
    sync = os.fsync

    def refusing(descriptor: int) -> None:
        written = path.with_name(f"{path.name}.sancho-tmp")
        if written.exists() and os.path.samestat(os.fstat(descriptor), written.stat()):
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    patch.setattr(os, "fsync", refusing)


@pytest.mark.parametrize(
    ("name", "way", "number"),
    [
        *((name, "replace", errno.ENOSPC) for name in (FILES[0], FILES[3])),
        ("last.safetensors", "replace", errno.EIO),
        ("best.safetensors", "fsync", errno.EIO),
        ("last.safetensors", "fsync", errno.ENOSPC),
    ],
)
def test_a_save_that_is_refused_is_a_note_and_made_up_for(
    out, going_on, monkeypatch, caplog, name, way, number
):
    """A best model that was refused does not keep a worse one out that is better than the saved."""
    folder, state = going_on(out)
    lowest = state.progress.best_val_loss
    before = (out / name).read_bytes()
    state.progress.step = 7
    state.progress.val_loss = lowest - 0.2
    with monkeypatch.context() as patch:
        if way == "fsync":
            refuse_to_sync(patch, number, out / name)
        else:
            refuse(patch, number, lambda path: path.name == name)
        folder.save(state)
        assert (out / name).read_bytes() == before
        with pytest.raises(UserError, match=rf"at step 7 \({os.strerror(number)}.*--resume"):
            folder.retry_save(state)
    (said,) = caplog.messages
    assert said.startswith(
        f"note: not saved ({os.strerror(number)}: {out / name}); the run goes on"
    )
    assert sorted(contents(out)) == FILES
    state.progress.step = 8
    state.progress.val_loss = lowest - 0.1
    folder.save(state)
    assert checkpoint.load(folder.last).progress.step == 8
    best = checkpoint.load(folder.best).progress
    assert best.step == (8 if name == "best.safetensors" else 7)
    folder.retry_save(state)  # nothing is left to do


def test_memory_that_is_short_at_a_save_ends_no_run(out, going_on, monkeypatch, caplog):
    folder, state = going_on(out)
    before = contents(out)

    def save(*args: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save)
        folder.save(state)
        with pytest.raises(UserError, match=r"at step 6 \(not enough memory\).*--resume"):
            folder.retry_save(state)
    (said,) = caplog.messages
    assert said.startswith("note: not saved (not enough memory); the run goes on")
    assert contents(out) == before
    state.progress.step = 7
    folder.save(state)
    assert checkpoint.load(folder.last).progress.step == 7


def test_a_curve_that_is_refused_is_a_note_and_the_run_is_saved(out, going_on, monkeypatch, caplog):
    folder, state = going_on(out)
    state.progress.step = 7
    refuse(monkeypatch, errno.EACCES, lambda path: path.name == "curve.svg")
    folder.save(state)
    (said,) = caplog.messages
    assert (
        said
        == f"note: the curve is not drawn (Permission denied: {out}/curve.svg); the run is saved"
    )
    assert checkpoint.load(folder.last).progress.step == 7
    folder.retry_save(state)  # nothing is left to do


def test_a_folder_that_is_moved_or_removed_under_a_run_is_made_again(out, going_on, caplog):
    folder, state = going_on(out)
    out.rename(out.with_name("elsewhere"))
    folder.record(report_at(7, train_loss=1.0))
    state.progress.val_loss = 9.0  # the best model is gone, too: this one is better than none
    folder.save(state)
    (said,) = caplog.messages
    assert said == f"note: {out} is gone; it is made again, to hold the run from this step on"
    folder.record(report_at(8, train_loss=1.0))
    folder.save(state)
    assert sorted(contents(out)) == FILES
    assert [line["step"] for line in lines_of(out)] == [8]
    assert checkpoint.load(folder.best).progress.val_loss == 9.0


@posix
@pytest.mark.parametrize("way", ["another run", "a stranger's file", "a lock", "a link"])
def test_a_folder_that_was_replaced_under_a_run_is_left_alone(
    out, going_on, corpus, server_of_processes, way
):
    """As after Ctrl+Z, a move, another run in the same folder, and fg."""
    other = shutil.copytree(out, out.with_name("other"))
    shutil.rmtree(out.with_name("other"))
    folder, state = going_on(out)
    out.rename(out.with_name("moved"))
    out.mkdir()
    holder = nullcontext()
    if way == "a stranger's file":
        (out / "metrics.jsonl").write_text("mine")
    elif way == "a lock":
        holder = somebody(out)
    else:
        place = other if way == "a link" else out
        begin_alone(place, corpus)
        if way == "a link":
            out.rmdir()
            out.symlink_to(other)
    before = everything(out)
    with holder:
        folder.record(report_at(7, val_loss=1.0))
        with pytest.raises(UserError, match=r"^the run ends at step 6, because its folder was mo"):
            folder.save(state)
    assert everything(out) == before
    assert sorted(contents(out.with_name("moved"))) == FILES
    folder.close()


def begin_alone(out: Path, corpus: Corpus) -> None:
    """Begin a run of its own in a new folder."""
    model = ModelConfig(vocab_size=corpus.tokenizer.vocab_size, block_size=8, n_layer=1, n_embd=4)
    train = TrainConfig(max_iters=6, batch_size=2)
    state = TrainingState.start(replace(model, ngram_size=1), train, CPU, corpus.train)
    with folder_at(out) as folder:
        folder.begin(state, corpus, tensorboard=False)


@posix
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_folder_that_is_made_again_is_locked_to_the_end_of_the_run(
    out, going_on, server_of_processes, is_elsewhere
):
    folder, state = going_on(out)
    shutil.rmtree(out)
    if is_elsewhere:
        out.with_name("elsewhere").mkdir()
        out.symlink_to(out.with_name("elsewhere"))
    folder.save(state)
    with somebody(out, "out is in use by another process"):
        pass
    folder.close()
    with somebody(out):
        pass


@posix
def test_a_lock_that_somebody_removed_drives_no_run_away(out, going_on, caplog):
    folder, state = going_on(out)
    (out / ".lock").unlink()
    folder.save(state)
    assert caplog.messages == []
    folder.close()


def test_where_every_save_is_refused_the_run_goes_on_and_its_end_is_an_error(project, monkeypatch):
    def refuse_from_now_on(report: Report) -> None:
        refuse(monkeypatch, errno.ENOSPC, lambda path: path.parent.name == "out")

    watch_reports(monkeypatch, refuse_from_now_on)
    result = run("train.py", *ARGS, "--max_iters=3")
    *notes, last = [line for line in result.err.splitlines() if "No space left" in line]
    assert result.status == 2
    assert notes and all(note.startswith("note: not saved (No space left on ") for note in notes)
    assert last.startswith("train.py: error: ") and last == result.err.splitlines()[-1]
    assert last.endswith("go on with --resume --out_dir out: what was saved before is intact")
    assert [line["step"] for line in lines_of(project / "out")] == [1, 2, 3]


def test_a_run_that_can_save_nothing_does_not_begin(project, monkeypatch):
    refuse(monkeypatch, errno.ENOSPC, lambda path: path.parent.name == "out")
    assert_refused(run("train.py", *ARGS, "--max_iters=3"), "train.py", "last.safetensors: No sp")
    assert contents(project / "out") == {}


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_shows_what_metrics_hold_after_a_resume_too(out, corpus):
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    last = checkpoint.load(out / "last.safetensors")
    for first, stop, how in ((1, 6, "overwrite"), (3, 9, "resume")):
        state = TrainingState.restore(last, last.train_config, CPU)
        state.progress = Progress(step=first - 1, is_evaluated=True)
        with folder_at(out, **{how: True}) as folder:
            folder.begin(state, corpus, tensorboard=True)
            for step in range(first, stop):
                val_loss = 1 + step if step % 3 else None
                folder.record(report_at(step, train_loss=first / step, val_loss=val_loss))
    lines = lines_of(out)
    assert [line["step"] for line in lines] == list(range(1, 9))
    found = module.EventAccumulator(str(folder.events)).Reload()
    assert sorted(found.Tags()["scalars"]) == sorted(FIGURES)
    for name in FIGURES:
        expected = [(line["step"], line[name]) for line in lines if line[name] is not None]
        seen = [(event.step, event.value) for event in found.Scalars(name)]
        assert seen == [(step, pytest.approx(value, rel=1e-6)) for step, value in expected]
    begin_another(out, corpus)  # it removes the events, which are those of the run that it replaces
    assert [*folder.events.iterdir()] == []


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
