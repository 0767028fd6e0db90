"""What a run leaves in its folder, what it goes on with, and what it never touches."""

import errno
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from architectures import assert_close
from conftest import ARGS, CPU, contents, everything, run, small_options
from faults import Disk, fail

from sancho import checkpoint
from sancho.errors import UserError
from sancho.generate import generate
from sancho.machine import files
from sancho.run.folder import RunFolder
from sancho.run.plan import RunPlan, make_plan
from sancho.run.state import make_state
from sancho.training import Report, TrainingState, fit

FIGURES = ["train_loss", "val_loss", "val_bpc", "lr", "tokens_per_second"]
METRICS = ["step", "tokens", "seconds", *FIGURES, "sample"]
FILES = ["best.safetensors", "curve.svg", "last.safetensors", "metrics.jsonl"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, corpus) -> Path:
    """What a run of six steps leaves, to be copied."""
    state, _ = make_state(RunPlan(small_options(), Path()), corpus, CPU)
    with RunFolder(str(tmp_path_factory.mktemp("runs") / "deeper" / "out")) as folder:
        folder.begin()
        for report in fit(state, corpus, CPU):
            folder.record(report)
            if report.val_loss is not None:
                folder.save(state, corpus, is_best=report.is_best)
    return folder.path


@pytest.fixture
def folder(finished, tmp_path) -> Iterator[RunFolder]:
    with RunFolder(shutil.copytree(finished, tmp_path / "out")) as folder:
        yield folder


def resumed(folder: RunFolder) -> TrainingState:
    """Return the state of the run, ready for three steps more."""
    last = folder.load_last()
    state = TrainingState.restore(last, replace(last.train, max_iters=9), CPU)
    folder.go_on(state.progress.step, state.progress.evaluated_step)
    return state


def lines_of(folder: RunFolder) -> list[dict]:
    return [json.loads(line) for line in folder.metrics.read_text("utf-8").splitlines()]


def report_at(step: int, **losses) -> Report:
    rest = {"seconds": 1.23456, "lr": 0.1, "tokens_per_second": 99.6}
    return Report(step=step, tokens=16 * step, **rest, **losses)


# --- what is left there ---------------------------------------------------------------------


def test_the_best_model_is_not_replaced_by_a_worse_one(folder, corpus):
    assert sorted(contents(folder.path)) == FILES
    last, best = checkpoint.load(folder.last), checkpoint.load(folder.best)
    assert last.optimizer and not best.optimizer
    assert best.progress.val_loss == last.progress.best_val_loss
    state, before = resumed(folder), folder.best.read_bytes()
    state.progress.step = 99
    folder.save(state, corpus, is_best=False)
    assert folder.best.read_bytes() == before
    assert checkpoint.load(folder.last).progress.step == 99
    folder.save(state, corpus, is_best=True)
    assert checkpoint.load(folder.best).progress.step == 99
    before = folder.best.read_bytes()
    with torch.no_grad():
        state.model.head.weight.add_(1)  # whose arrays the best model was saved from
    folder.save(state, corpus, is_best=False)
    assert folder.best.read_bytes() == before


def test_the_best_model_is_written_before_the_last_that_speaks_of_it(folder, corpus, monkeypatch):
    """Of a run that is replaced the last goes first: what is left of it can be looked at."""
    state, disk = resumed(folder), Disk(monkeypatch, folder.path)
    folder.save(state, corpus, is_best=True)
    replaced = [path.name for operation, path in disk.asked if operation == "replace"]
    assert replaced == ["best.safetensors", "last.safetensors", "curve.svg"]
    gone, unlink = [], Path.unlink

    def watched(path: Path, **options) -> None:
        gone.append(path.name)
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", watched)
    folder.begin(overwrite=True)
    assert gone == ["curve.svg", "metrics.jsonl", "last.safetensors", "best.safetensors"]


def test_metrics_hold_every_figure_of_a_run_and_what_it_wrote(folder, corpus):
    lines = lines_of(folder)
    assert [line["step"] for line in lines] == [2, 3, 4, 6]
    for line in lines:
        evaluated = line["step"] % 3 == 0
        found = [line[name] is not None for name in ("val_loss", "val_bpc", "sample")]
        assert found == [evaluated] * 3
        assert line["tokens"] == line["step"] * 8 * 2
    ids = generate(folder.load_last().build_model(), corpus.val[:1], max_new_tokens=80, seed=1605)
    assert lines[-1]["sample"] == corpus.tokenizer.decode([new for (new,) in ids])
    assert b"\r" not in folder.metrics.read_bytes()
    folder.record(report_at(7))
    folder.record(report_at(8, train_loss=1 / 3, val_loss=2 / 3))
    *before, line = lines_of(folder)
    assert before == lines and list(line) == METRICS
    figures = (8, 128, 1.235, 1 / 3, 2 / 3, report_at(8, val_loss=2 / 3).val_bpc, 0.1, 100, None)
    assert tuple(line.values()) == figures


# --- a folder that is in use ----------------------------------------------------------------


def test_a_best_model_alone_is_refused_too(folder):
    folder.last.unlink()
    with pytest.raises(UserError, match=r"^[^\n]*--overwrite") as caught:
        folder.begin(overwrite=False)
    assert "--resume" not in str(caught.value)
    assert sorted(contents(folder.path)) == ["best.safetensors", "curve.svg", "metrics.jsonl"]


@pytest.mark.parametrize("name", ["tensorboard/events.out.tfevents.mine", "curve.svg"])
def test_overwrite_removes_nothing_where_a_folder_is_in_the_way(folder, name):
    folder.curve.unlink()
    (folder.path / name).mkdir(parents=True)
    before = everything(folder.path)
    with pytest.raises(UserError, match=r"^[^\n]* is a folder[^\n]*$") as caught:
        folder.begin(overwrite=True)
    assert str(folder.path / name) in str(caught.value)
    assert everything(folder.path) == before


# --- going on -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tail",
    [
        b'{"step": 7, "val_loss": null}\n{"step": 100, "val_loss": null}\n',
        b'{"step": 6, "val_loss": 1.0}\n',  # an evaluation that was not saved
        b'{"step": 7, "tok',
        b'{"step": 5, "val_loss": null}',  # whole, but for its newline
        *(b"\0\0\n", b"{}\n", b"[]\n", b"7\n", b"\n", b"\xff\xfe\x80", b'{"step": null}\n'),
    ],
)
def test_later_steps_and_incomplete_lines_are_dropped(tmp_path, tail):
    folder = RunFolder(tmp_path)
    for step in (5, 6):
        folder.record(report_at(step, train_loss=1.0))
    before = folder.metrics.read_bytes()
    folder.metrics.write_bytes(before + tail)
    folder.go_on(6, 3)
    assert folder.metrics.read_bytes() == before
    folder.metrics.unlink()
    folder.go_on(6, 3)
    assert not folder.metrics.exists()


def test_what_version_2_left_beside_an_open_file_takes_its_place(folder):
    """On Windows: the newest was in best.new.safetensors where best.safetensors was open."""
    newest = folder.best.rename(folder.path / "best.new.safetensors").read_bytes()
    folder.best.write_bytes(b"older")
    folder.lock()
    assert folder.best.read_bytes() == newest
    assert sorted(contents(folder.path)) == FILES


def test_nothing_is_recorded_yet(folder, corpus):
    """A kill before the first line, a resume, another kill."""
    state = resumed(folder)
    folder.metrics.write_bytes(b"")
    folder.curve.unlink()
    folder.save(state, corpus, is_best=False)
    assert not folder.curve.exists()
    assert folder.load_last().progress.step == 6


# --- a file that another program has open, on Windows ---------------------------------------


@pytest.fixture
def open_files(tmp_path, monkeypatch) -> set[tuple[str, Path]]:
    """What the disk refuses; nobody waits for it."""
    held, disk = set(), Disk(monkeypatch, tmp_path)
    disk.refuse = lambda *asked: asked in held and fail(errno.EACCES)
    monkeypatch.setattr(files, "PATIENCE_SECONDS", 0)
    return held


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("best", r"best\.safetensors in .* not saved; .*last\.safetensors has the newest model"),
        ("last", r"last\.safetensors in .* not saved; .*best\.safetensors is the best model"),
    ],
)
def test_a_checkpoint_that_is_open_waits_in_memory(folder, corpus, open_files, name, words):
    state, path = resumed(folder), folder.path / f"{name}.safetensors"
    before = path.read_bytes()
    open_files.add(("replace", path))
    warned = pytest.warns(UserWarning, match=rf"{name}\.safetensors in .* open; close it")
    for step, is_best in ((7, True), (8, True), (9, False)):
        state.progress.step = step
        with warned as caught:
            folder.save(state, corpus, is_best=is_best)
        assert len(caught) == 1
        assert path.read_bytes() == before
        with torch.no_grad():
            state.model.head.weight.add_(1)  # which the best model must not follow
    with warned, pytest.raises(UserError, match=words):
        folder.finish(state, corpus)
    assert sorted(contents(folder.path)) == FILES
    open_files.clear()
    folder.finish(state, corpus)
    folder.finish(state, corpus)  # there is nothing left to do
    saved = checkpoint.load(path)
    assert saved.progress.step == (8 if name == "best" else 9)
    distance = 2 if name == "best" else 0
    ours = state.model.arrays()["head.weight"]
    assert_close(saved.weights["head.weight"], ours - distance, atol=1e-5)


def test_a_best_model_that_stays_open_to_the_end_is_an_error(project, monkeypatch):
    disk = Disk(monkeypatch, project / "out")
    is_best = ("replace", project / "out" / "best.safetensors")
    disk.refuse = lambda *asked: asked == is_best and fail(errno.EACCES)
    monkeypatch.setattr(files, "PATIENCE_SECONDS", 0)
    result = run("train.py", *ARGS, "--max_iters=2", f"--out_dir={project / 'out'}")
    assert result.status == 2
    assert "best.safetensors" in result.err.splitlines()[-1]
    assert "not saved" in result.err.splitlines()[-1]


def test_a_curve_that_is_open_is_drawn_at_the_next_save(folder, corpus, open_files):
    state = resumed(folder)
    folder.curve.write_text("old")
    open_files.add(("replace", folder.curve))
    folder.save(state, corpus, is_best=False)
    assert folder.curve.read_text() == "old"
    open_files.clear()
    folder.save(state, corpus, is_best=False)
    assert folder.curve.read_text("utf-8").startswith("<svg")


# --- TensorBoard ----------------------------------------------------------------------------


def events_in(folder: RunFolder) -> dict[str, list[tuple[int, float]]]:
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = module.EventAccumulator(str(folder.events)).Reload()
    return {
        name: [(event.step, event.value) for event in found.Scalars(name)]
        for name in found.Tags()["scalars"]
    }


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_shows_what_metrics_hold_after_a_resume_too(tmp_path):
    pytest.importorskip("tensorboard")
    with RunFolder(tmp_path) as folder:
        folder.begin()
        folder.write_events(0)
        for step in range(1, 6):
            folder.record(report_at(step, train_loss=1 / step))
    with RunFolder(tmp_path) as folder:
        folder.go_on(2, 2)
        folder.write_events(2)
        for step in range(3, 9):
            val_loss = 1 + step if step % 3 else None
            folder.record(report_at(step, train_loss=2 / step, val_loss=val_loss))
    found, lines = events_in(folder), lines_of(folder)
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert sorted(found) == sorted(FIGURES)
    for name in FIGURES:
        expected = [(line["step"], line[name]) for line in lines if line[name] is not None]
        assert found[name] == [(step, pytest.approx(value, rel=1e-6)) for step, value in expected]
    with RunFolder(tmp_path) as folder:
        folder.begin(overwrite=True)
    assert not any(events_in(folder).values())


@pytest.mark.parametrize("ends", ["well", "in an error"])
def test_a_run_lets_go_of_the_file_of_events(project, monkeypatch, ends):
    said = []

    def writer(*args, **options) -> SimpleNamespace:
        written = {name: lambda *_: said.append("written") for name in ("add_scalar", "flush")}
        return SimpleNamespace(close=lambda: said.append("closed"), **written)

    module = SimpleNamespace(SummaryWriter=writer)
    monkeypatch.setattr("sancho.run.plan.find_spec", lambda name: True)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    rate = ["--learning_rate=1e30"] if ends == "in an error" else []
    result = run("train.py", *ARGS, "--max_iters=2", "--tensorboard", *rate)
    assert (result.status == 0) == (ends == "well"), result.err
    assert said.index("closed") == len(said) - 1


def test_tensorboard_that_is_missing_is_one_line(corpus, finished, tmp_path, monkeypatch):
    monkeypatch.setattr("sancho.run.plan.find_spec", lambda name: None)
    monkeypatch.setattr("sancho.run.plan.open_corpus", lambda *args: corpus)
    for folder in (RunFolder(tmp_path / "new"), RunFolder(finished)):
        typed = {"tensorboard": True, "resume": True, "out_dir": folder.path, "device": "cpu"}
        with folder, pytest.raises(UserError, match=r"^[^\n]*pip install tensorboard[^\n]*$"):
            make_plan(typed, folder, tmp_path)
    assert not (tmp_path / "new").exists()
