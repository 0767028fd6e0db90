"""What a run leaves in its folder, what it goes on with, and what it never touches."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import ARGS, CPU, contents, everything, folder_at, run

from sancho import checkpoint
from sancho.checkpoint import Progress
from sancho.config import ModelConfig, TrainConfig
from sancho.errors import UserError
from sancho.folder import RunFolder
from sancho.generate import generate
from sancho.training import Report, TrainingState, fit

FIGURES = ["train_loss", "val_loss", "val_bpc", "lr", "tokens_per_second"]
METRICS = ["step", "tokens", "seconds", *FIGURES, "sample"]
FILES = ["best.safetensors", "curve.svg", "last.safetensors", "metrics.jsonl"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, corpus) -> Path:
    """What a run of six steps leaves, to be copied."""
    shape = {"block_size": 8, "n_layer": 1, "n_head": 1, "n_embd": 4, "ngram_rows": 16}
    model = ModelConfig(vocab_size=corpus.tokenizer.vocab_size, **shape)
    train = TrainConfig(max_iters=6, batch_size=2, eval_interval=3, log_interval=2)
    state = TrainingState.start(model, train, CPU, corpus.train)
    with folder_at(tmp_path_factory.mktemp("runs") / "deeper" / "out") as folder:
        folder.begin(state.progress, tensorboard=False)
        for report in fit(state, corpus):
            folder.record(report)
            if report.val_loss is not None:
                folder.save(state, corpus)
    return folder.path


@pytest.fixture
def out(finished, tmp_path) -> Path:
    return shutil.copytree(finished, tmp_path / "out")


def going_on(out: Path) -> tuple[RunFolder, TrainingState]:
    """Return the folder and the state of the run, ready for three steps more."""
    folder = folder_at(out, resume=True)
    last = folder.beginning().checkpoint
    state = TrainingState.restore(last, replace(last.train_config, max_iters=9), CPU)
    folder.begin(state.progress, tensorboard=False)
    return folder, state


def lines_of(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text("utf-8").splitlines()]


def report_at(step: int, **losses) -> Report:
    rest = {"seconds": 1.23456, "lr": 0.1, "tokens_per_second": 99.6}
    return Report(step=step, tokens=16 * step, **rest, **losses)


def test_the_best_model_is_not_replaced_by_a_worse_one(out, corpus):
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
        folder.save(state, corpus)
        assert (folder.best.read_bytes() != before) == is_better
        assert checkpoint.load(folder.last).progress.step == step
    state.progress.is_evaluated = False  # the loss is that of another step
    state.progress.val_loss = 0.0
    folder.save(state, corpus)
    assert checkpoint.load(folder.best).progress.step == 98


def test_the_best_model_is_written_before_the_last_that_speaks_of_it(out, corpus, monkeypatch):
    folder, state = going_on(out)
    replace_file = Path.replace
    names = []

    def watched(path: Path, target: Path) -> Path:
        names.append(target.name)
        return replace_file(path, target)

    monkeypatch.setattr(Path, "replace", watched)
    state.progress.val_loss = 0.0
    folder.save(state, corpus)
    assert names == ["best.safetensors", "last.safetensors", "curve.svg"]


def test_metrics_hold_every_figure_of_a_run_and_what_it_wrote(out, corpus):
    lines = lines_of(out)
    assert [line["step"] for line in lines] == [2, 3, 4, 6]
    for line in lines:
        found = [line[name] is not None for name in ("val_loss", "val_bpc", "sample")]
        assert found == [line["step"] % 3 == 0] * 3
        assert line["tokens"] == line["step"] * 8 * 2
    model = checkpoint.load(out / "last.safetensors").build_model()
    ids = generate(model, corpus.val[:1], max_new_tokens=80, seed=1605)
    assert lines[-1]["sample"] == corpus.tokenizer.decode([new for (new,) in ids])
    folder = folder_at(out)
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
    (out / "best.safetensors").unlink()
    folder_at(out).require_free()  # nothing to lose
    assert sorted(contents(out)) == ["curve.svg", "metrics.jsonl"]


@pytest.mark.parametrize("name", ["tensorboard/events.out.tfevents.mine", "curve.svg"])
def test_overwrite_loses_no_checkpoint_where_a_folder_is_in_the_way(out, name):
    (out / "curve.svg").unlink()
    (out / name).mkdir(parents=True)
    before = everything(out)
    with pytest.raises(OSError, match=Path(name).name):
        folder_at(out, overwrite=True).begin(Progress(), tensorboard=False)
    assert everything(out) == before


@pytest.mark.parametrize(
    "tail",
    [
        b'{"step": 7, "val_loss": null}\n{"step": 100, "val_loss": null}\n',
        b'{"step": 6, "val_loss": 1.0}\n',  # an evaluation that was not saved
        b'{"step": 7, "tok',
        *(b"\0\0\n", b"{}\n", b"[]\n", b"7\n", b"\n", b"\xff\xfe\x80"),
    ],
)
def test_later_steps_and_incomplete_lines_are_dropped(out, tail):
    folder = folder_at(out, resume=True)
    folder.metrics.unlink()
    for step in (5, 6):
        folder.record(report_at(step, train_loss=1.0))
    before = folder.metrics.read_bytes()
    folder.metrics.write_bytes(before + tail)
    folder.begin(Progress(step=6), tensorboard=False)
    assert folder.metrics.read_bytes() == before


def test_a_run_goes_on_without_metrics_and_best_model(out, corpus):
    """A kill before the first line, a resume, another kill."""
    for path in (out / "best.safetensors", out / "curve.svg", out / "metrics.jsonl"):
        path.unlink()
    folder, state = going_on(out)
    folder.save(state, corpus)
    assert sorted(contents(out)) == ["best.safetensors", "last.safetensors", "metrics.jsonl"]


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
        *((name, "replace", errno.ENOSPC) for name in FILES[:3]),
        ("last.safetensors", "replace", errno.EIO),
        ("best.safetensors", "fsync", errno.EIO),
        ("last.safetensors", "fsync", errno.ENOSPC),
    ],
)
def test_a_save_that_is_refused_is_a_note_and_made_up_for(
    out, corpus, monkeypatch, caplog, name, way, number
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
        folder.save(state, corpus)
        assert (out / name).read_bytes() == before
        with pytest.raises(UserError, match=rf"at step 7 \({os.strerror(number)}.*--resume"):
            folder.retry_save(state, corpus)
    (said,) = caplog.messages
    assert said.startswith(
        f"note: not saved ({os.strerror(number)}: {out / name}); the run goes on"
    )
    assert sorted(contents(out)) == FILES
    state.progress.step = 8
    state.progress.val_loss = lowest - 0.1
    folder.save(state, corpus)
    assert checkpoint.load(folder.last).progress.step == 8
    best = checkpoint.load(folder.best).progress
    assert best.step == (8 if name == "best.safetensors" else 7)
    folder.retry_save(state, corpus)  # nothing is left to do


def test_a_folder_that_is_moved_or_removed_under_a_run_is_made_again(out, corpus, caplog):
    folder, state = going_on(out)
    out.rename(out.with_name("elsewhere"))
    folder.record(report_at(7, train_loss=1.0))
    state.progress.val_loss = 9.0  # the best model is gone, too: this one is better than none
    folder.save(state, corpus)
    (said,) = caplog.messages
    assert said == f"note: {out} is gone; it is made again, to hold the run from this step on"
    assert sorted(contents(out)) == FILES
    assert checkpoint.load(folder.best).progress.val_loss == 9.0


def test_where_every_save_is_refused_the_run_goes_on_and_its_end_is_an_error(project, monkeypatch):
    refuse(monkeypatch, errno.ENOSPC, lambda path: path.parent.name == "out")
    result = run("train.py", *ARGS, "--max_iters=3")
    *notes, last = [line for line in result.err.splitlines() if "No space left" in line]
    assert result.status == 2
    assert notes and all(note.startswith("note: not saved (No space left on ") for note in notes)
    assert last.startswith("train.py: error: ") and last == result.err.splitlines()[-1]
    assert [line["step"] for line in lines_of(project / "out")] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_shows_what_metrics_hold_after_a_resume_too(out):
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (out / "metrics.jsonl").unlink()
    for first, stop, options in ((1, 6, {"overwrite": True}), (3, 9, {"resume": True})):
        with folder_at(out, **options) as folder:
            folder.resumes = first > 1
            folder.begin(Progress(step=first - 1, is_evaluated=True), tensorboard=True)
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
