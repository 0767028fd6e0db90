import json
import shutil
import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from conftest import ARGS, CPU, parse_train, run, small_options

from sancho import checkpoint
from sancho.config import RunConfig, TrainOptions
from sancho.errors import MissingFile, UserError
from sancho.generate import generate
from sancho.machine import files
from sancho.run import folder as run_folder
from sancho.run.folder import RunFolder, newest
from sancho.run.setup import make_state
from sancho.training import Report, TrainingState, fit

FIGURES = ["train_loss", "val_loss", "val_bpc", "lr", "tokens_per_second"]
METRICS = ["step", "tokens", "seconds", *FIGURES, "sample"]
FILES = ["best.safetensors", "config.json", "curve.svg", "last.safetensors", "metrics.jsonl"]


def options_for(path: Path, **run: bool) -> TrainOptions:
    return replace(small_options(), run=RunConfig(out_dir=path, **run))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, corpus) -> Path:
    """What a whole run of six steps leaves, to be copied."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "deeper" / "out")
    state, _ = make_state(small_options(), None, corpus, CPU)
    with folder.held():
        folder.begin(options_for(folder.path))
        for report in fit(state, corpus, CPU):
            folder.record(report)
            if report.val_loss is not None:
                folder.save(state, corpus, is_best=report.is_best)
    return folder.path


@pytest.fixture
def folder(finished, tmp_path) -> RunFolder:
    """The folder of a run of six steps."""
    return RunFolder(shutil.copytree(finished, tmp_path / "out"))


def go_on(folder: RunFolder) -> TrainingState:
    """Return the state of the run in a folder, which is ready for three steps more."""
    last = folder.load_last()
    state = TrainingState.restore(last, replace(last.train, max_iters=9), CPU)
    folder.truncate_metrics(state.progress.step)
    return state


def files_in(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir() if file.name != ".lock")


def lines_of(folder: RunFolder) -> list[dict]:
    return [json.loads(line) for line in folder.metrics.read_text("utf-8").splitlines()]


def report_at(step: int, **losses) -> Report:
    rest = {"seconds": 1.23456, "lr": 0.1, "tokens_per_second": 99.6}
    return Report(step=step, tokens=16 * step, **rest, **losses)


def refused(folder: RunFolder, options: TrainOptions) -> str:
    """Try in vain to begin a run; everything stays, and the error's one line is returned."""

    def everything() -> dict[Path, bytes | None]:
        paths = folder.path.rglob("*")
        return {path: path.read_bytes() if path.is_file() else None for path in paths}

    before = everything()
    with pytest.raises(UserError) as caught:
        folder.begin(options)
    assert everything() == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- what is left there ---------------------------------------------------------------------


def test_a_run_leaves_five_files(folder):
    assert files_in(folder.path) == FILES
    last, best = checkpoint.load(folder.last), checkpoint.load(folder.best)
    assert last.progress.step == 6
    assert last.optimizer and not best.optimizer
    assert best.progress.val_loss == last.progress.best_val_loss


def test_the_best_model_is_not_replaced_by_a_worse_one(folder, corpus):
    state, before = go_on(folder), folder.best.read_bytes()
    state.progress.step = 99
    folder.save(state, corpus, is_best=False)
    assert folder.best.read_bytes() == before
    assert checkpoint.load(folder.last).progress.step == 99
    folder.save(state, corpus, is_best=True)
    assert checkpoint.load(folder.best).progress.step == 99


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


def test_figures_are_written_as_they_are_if_there_are_any(tmp_path):
    folder = RunFolder(tmp_path)
    folder.record(report_at(1))
    assert not folder.metrics.exists()
    folder.record(report_at(3, train_loss=1 / 3, val_loss=2 / 3))
    (line,) = lines_of(folder)
    assert list(line) == METRICS
    assert line == {
        "step": 3,
        "tokens": 48,
        "seconds": 1.235,
        "train_loss": 1 / 3,
        "val_loss": 2 / 3,
        "val_bpc": report_at(3, val_loss=2 / 3).val_bpc,
        "lr": 0.1,
        "tokens_per_second": 100,
        "sample": None,
    }


def test_the_configuration_is_enough_to_start_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = (
        "--preset classic --n_layer 2 --dropout 0.1 --tie_embeddings --no_bias --max_iters 7 "
        "--learning_rate 0.003 --dataset otro --device cpu --dtype float32 --seed 7 --compile"
    )
    options = parse_train([*args.split(), "--out_dir", "mi carpeta/ñ"])
    folder = RunFolder(options.run.out_dir)
    with folder.held():
        folder.begin(options)
    found = json.loads(folder.config.read_text("utf-8"))
    assert found == json.loads(json.dumps(asdict(options), default=str))
    again, parts = [], [part for part in found.values() if isinstance(part, dict)]
    for name, value in [item for part in [found, *parts] for item in part.items()]:
        if isinstance(value, bool):
            again.append(f"--{'' if value else 'no_'}{name}")
        elif value is not None and name != "vocab_size" and not isinstance(value, dict):
            again.append(f"--{name}={value}")
    assert parse_train(again) == options


# --- a folder that is in use ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["best.safetensors", "last.safetensors"])
def test_a_folder_that_holds_a_run_is_refused(tmp_path, name):
    (tmp_path / name).write_text("what was there")
    (tmp_path / "config.json").write_text("how it began")
    message = refused(RunFolder(tmp_path), options_for(tmp_path))
    for advice in (str(tmp_path), "--resume", "--overwrite", "--out_dir"):
        assert advice in message


@pytest.mark.parametrize("names", [[], ["metrics.jsonl"], [FILES[1], *FILES[2::2]]])
def test_a_folder_without_a_checkpoint_has_nothing_to_lose(tmp_path, names):
    for name in ("notes.txt", *names):
        (tmp_path / name).write_text("what was there")
    folder = RunFolder(tmp_path)
    folder.begin(options_for(tmp_path))
    assert files_in(tmp_path) == ["config.json", "notes.txt"]
    assert json.loads(folder.config.read_text("utf-8"))["train"]["max_iters"] == 6


def test_overwrite_removes_the_old_run_and_nothing_else(folder):
    (folder.path / "notes.txt").write_text("mine")
    folder.events.mkdir()
    (folder.events / "events.out").write_text("of the old run")
    for name in ("best", "last"):  # which could not be replaced once, on Windows
        shutil.copy(folder.last, folder.path / f"{name}.new.safetensors")
    folder.begin(options_for(folder.path, overwrite=True))
    assert files_in(folder.path) == ["config.json", "notes.txt", "tensorboard"]
    assert files_in(folder.events) == []
    assert json.loads(folder.config.read_text("utf-8"))["run"]["overwrite"]


@pytest.mark.parametrize("name", ["tensorboard/mine", "curve.svg"])
def test_overwrite_removes_nothing_where_a_folder_is_in_the_way(folder, name):
    folder.curve.unlink()
    (folder.path / name).mkdir(parents=True)
    message = refused(folder, options_for(folder.path, overwrite=True))
    assert f"{folder.path / name} is a folder" in message


# --- going on -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tail",
    [
        b'{"step": 7, "train_loss": 1.0}\n{"step": 100}\n',
        b'{"step": 7, "tok',
        b'{"step": 5}',  # whole, but its newline is missing: the next line would join it
        *(b"\0\0\n", b"{}\n", b"[]\n", b"7\n", b"\n", b"\xff\xfe\x80"),
        *(b'{"step": "7"}\n', b'{"step": null}\n'),
    ],
)
def test_later_steps_and_incomplete_lines_are_dropped(tmp_path, tail):
    folder = RunFolder(tmp_path)
    for step in (5, 6):
        folder.record(report_at(step, train_loss=1.0))
    before = folder.metrics.read_bytes()
    folder.metrics.write_bytes(before + tail)
    folder.truncate_metrics(6)
    assert folder.metrics.read_bytes() == before
    folder.metrics.unlink()
    folder.truncate_metrics(6)
    assert not folder.metrics.exists()


def test_there_is_nothing_to_go_on_with(tmp_path, folder):
    with pytest.raises(MissingFile, match=r"nothing holds no run .*; start one without --resume"):
        RunFolder(tmp_path / "nothing").load_last()
    assert not (tmp_path / "nothing").exists()
    folder.last.unlink()  # a best model alone does not help
    with pytest.raises(MissingFile, match=r"last\.safetensors is missing.*--overwrite"):
        folder.load_last()


# --- a file that another program has open, on Windows ---------------------------------------


@pytest.fixture
def open_files(monkeypatch) -> set[Path]:
    """Files that can't be replaced as long as they are in this set; nobody waits for them."""
    held, replace_file = set(), Path.replace

    def replace_unless_open(path: Path, target: Path) -> Path:
        if target in held:
            raise PermissionError(13, "Access is denied", str(target))
        return replace_file(path, target)

    monkeypatch.setattr(Path, "replace", replace_unless_open)
    monkeypatch.setattr(files, "PATIENCE_SECONDS", 0)
    return held


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["best", "last"])
def test_a_checkpoint_that_is_open_does_not_end_the_run(folder, corpus, open_files, name):
    state, path = go_on(folder), folder.path / f"{name}.safetensors"
    before, beside = path.read_bytes(), folder.path / f"{name}.new.safetensors"
    open_files.add(path)
    for step in (7, 8):
        state.progress.step = step
        with pytest.warns(UserWarning, match=rf"{name}\.new\.safetensors until") as caught:
            folder.save(state, corpus, is_best=True)
        assert len(caught) == 1
        assert path.read_bytes() == before
        assert checkpoint.load(beside).progress.step == step
        assert newest(path) == beside
    assert folder.load_last().progress.step == 8

    folder.save(state, corpus, is_best=False)  # it stays open until the next one
    open_files.clear()
    state.progress.step = 9
    folder.save(state, corpus, is_best=False)
    assert files_in(folder.path) == FILES
    assert newest(path) == path
    assert checkpoint.load(path).progress.step == (8 if name == "best" else 9)


def test_a_curve_that_is_open_is_drawn_at_the_next_save(folder, corpus, open_files):
    state = go_on(folder)
    folder.curve.write_text("old")
    open_files.add(folder.curve)
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
    with closing(RunFolder(tmp_path, tensorboard=True)) as folder:
        folder.begin(options_for(tmp_path))
        for step in range(1, 6):
            folder.record(report_at(step, train_loss=1 / step))
    with closing(RunFolder(tmp_path, tensorboard=True)) as folder:
        folder.truncate_metrics(2)
        for step in range(3, 9):
            val_loss = 1 + step if step % 3 else None
            folder.record(report_at(step, train_loss=2 / step, val_loss=val_loss))
    found, lines = events_in(folder), lines_of(folder)
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert sorted(found) == sorted(FIGURES)
    for name in FIGURES:
        expected = [(line["step"], line[name]) for line in lines if line[name] is not None]
        assert found[name] == [(step, pytest.approx(value, rel=1e-6)) for step, value in expected]
    with closing(RunFolder(tmp_path, tensorboard=True)) as folder:
        folder.begin(options_for(tmp_path, overwrite=True))
    assert not any(events_in(folder).values())


@pytest.mark.parametrize("ends", ["well", "in an error"])
def test_a_run_lets_go_of_the_file_of_events(project, monkeypatch, ends):
    """However it ends: on Windows nobody could remove it before."""
    said = []

    class Writer:
        def __init__(self, *args, **options) -> None:
            self.add_scalar = self.flush = lambda *args: said.append("written")
            self.close = lambda: said.append("closed")

    monkeypatch.setattr(run_folder, "_find_tensorboard", lambda: Writer)
    rate = ["--learning_rate=1e30"] if ends == "in an error" else []
    result = run("train.py", *ARGS, "--max_iters=2", "--tensorboard", *rate)
    assert (result.status == 0) == (ends == "well"), result.err
    assert said.index("closed") == len(said) - 1


def test_tensorboard_that_is_missing_is_one_line_before_anything_is_touched(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UserError, match=r"^[^\n]*pip install tensorboard[^\n]*$"):
        RunFolder(tmp_path / "new", tensorboard=True)
    assert not (tmp_path / "new").exists()
