import io
import json
import sys
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import parse_train

from sancho import checkpoint, run_folder
from sancho.config import ModelConfig, RunConfig, TrainConfig, TrainOptions, from_dict
from sancho.corpus import Corpus, prepare
from sancho.device import Device
from sancho.errors import MissingFile, UserError
from sancho.generate import generate
from sancho.run_folder import RunFolder
from sancho.training import Report, TrainingState, fit

CPU = Device(torch.device("cpu"), torch.float32)
METRICS = [
    "step",
    "tokens",
    "seconds",
    "train_loss",
    "val_loss",
    "val_bpc",
    "lr",
    "tokens_per_second",
    "sample",
]
FILES = ["best.safetensors", "config.json", "curve.svg", "last.safetensors", "metrics.jsonl"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    text = "La razón de la sinrazón que a mi razón se hace.\n" * 20
    folder = tmp_path_factory.mktemp("data") / "tiny"
    return prepare([("tiny", io.BytesIO(text.encode()))], folder, "a test")


def options_for(corpus: Corpus, path: Path, **train) -> TrainOptions:
    shape = {"block_size": 8, "n_layer": 1, "n_head": 1, "n_embd": 4}
    shape |= {"ngram_size": 3, "ngram_rows": 16, "embedding_skip": True}
    model = ModelConfig(vocab_size=corpus.tokenizer.vocab_size, **shape)
    train = {"max_iters": 6, "batch_size": 2, "eval_interval": 3, "log_interval": 2} | train
    return TrainOptions(run=RunConfig(out_dir=path), model=model, train=TrainConfig(**train))


def train_run(corpus: Corpus, options: TrainOptions) -> tuple[RunFolder, TrainingState]:
    """Leave in options.run.out_dir what a whole run leaves there."""
    folder = RunFolder(options.run.out_dir)
    state = TrainingState.start(options.model, options.train, CPU)
    with folder.held():
        folder.begin(options)
        for report in fit(state, corpus, CPU):
            folder.record(report)
            if report.val_loss is not None:
                folder.save(state, corpus, is_best=report.is_best)
    return folder, state


def go_on(folder: RunFolder) -> TrainingState:
    """Return the state of the run in a folder, which is ready for three steps more."""
    last = folder.load_last()
    config = replace(last.train, max_iters=last.train.max_iters + 3)
    state = TrainingState.restore(last, config, CPU)
    folder.take_back(state.progress.step)
    return state


def files_in(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir() if file.name != ".lock")


def lines_of(folder: RunFolder) -> list[dict]:
    return [json.loads(line) for line in folder.metrics.read_text("utf-8").splitlines()]


def report_at(step: int, **figures) -> Report:
    plain = {"tokens": 16 * step, "seconds": 1.23456, "lr": 0.1, "tokens_per_second": 99.6}
    return Report(step=step, **(plain | figures))


def one_line(error: BaseException) -> str:
    message = str(error)
    assert "\n" not in message
    return message


# --- what is left there ---------------------------------------------------------------------


def test_a_run_leaves_five_files(tmp_path, corpus):
    folder, state = train_run(corpus, options_for(corpus, tmp_path / "runs" / "out"))
    assert files_in(folder.path) == FILES
    last, best = checkpoint.load(folder.last), checkpoint.load(folder.best)
    assert last.progress.step == 6
    assert last.optimizer
    assert not best.optimizer
    assert best.progress.best_val_loss == last.progress.best_val_loss == best.progress.val_loss
    assert last.characters == corpus.tokenizer.characters
    assert (last.corpus_name, last.corpus_sha256) == ("tiny", corpus.sha256)
    assert last.progress == state.progress


def test_the_best_model_is_not_replaced_by_a_worse_one(tmp_path, corpus):
    options = options_for(corpus, tmp_path)
    folder, state = train_run(corpus, options)
    before = folder.best.read_bytes()
    state.progress.step = 99
    folder.save(state, corpus, is_best=False)
    assert folder.best.read_bytes() == before
    assert checkpoint.load(folder.last).progress.step == 99
    folder.save(state, corpus, is_best=True)
    assert checkpoint.load(folder.best).progress.step == 99


def test_a_line_of_metrics_has_exactly_its_names(tmp_path, corpus):
    folder, _ = train_run(corpus, options_for(corpus, tmp_path))
    lines = lines_of(folder)
    assert [line["step"] for line in lines] == [2, 3, 4, 6]
    for line in lines:
        assert list(line) == METRICS
        assert (line["val_loss"] is None) == (line["val_bpc"] is None) == (line["step"] % 3 != 0)
        assert line["tokens"] == line["step"] * 8 * 2
        assert line["train_loss"] > 0
    assert folder.metrics.read_bytes().endswith(b"}\n")
    assert b"\r" not in folder.metrics.read_bytes()


def test_figures_are_written_as_they_are(tmp_path):
    folder = RunFolder(tmp_path)
    folder.record(report_at(3, train_loss=1 / 3, val_loss=2 / 3))
    (line,) = lines_of(folder)
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


def test_a_report_without_figures_writes_nothing(tmp_path):
    folder = RunFolder(tmp_path)
    folder.record(report_at(1))
    assert not folder.metrics.exists()


# --- config.json ----------------------------------------------------------------------------


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
    raw = folder.config.read_text("utf-8")
    found = json.loads(raw, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found.keys() == {"run", "data", "model", "train", "device", "compile"}
    assert from_dict(ModelConfig, found["model"]) == options.model
    assert from_dict(TrainConfig, found["train"]) == options.train

    again = []
    for part, content in found.items():
        for name, value in (content if isinstance(content, dict) else {part: content}).items():
            if isinstance(value, bool):
                again.append(f"--{'' if value else 'no_'}{name}")
            elif value is not None and name != "vocab_size":
                again.append(f"--{name}={value}")
    assert parse_train(again) == options


def test_the_configuration_holds_every_option(tmp_path, corpus):
    options = replace(
        options_for(corpus, tmp_path), run=RunConfig(out_dir=tmp_path, init_from=tmp_path / "x")
    )
    folder = RunFolder(tmp_path)
    folder.begin(options)
    found = json.loads(folder.config.read_text("utf-8"))
    assert found.keys() == {part.name for part in fields(options)}
    for part in fields(options):
        value = getattr(options, part.name)
        if is_dataclass(value):
            assert found[part.name].keys() == {option.name for option in fields(value)}
    assert found["run"]["out_dir"] == str(tmp_path)
    assert found["run"]["init_from"] == str(tmp_path / "x")
    assert found["train"] == asdict(options.train)
    assert found["compile"] is False


# --- a folder that is in use ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["best.safetensors", "last.safetensors"])
def test_a_folder_that_holds_a_run_is_refused(tmp_path, corpus, name):
    (tmp_path / name).write_text("what was there")
    (tmp_path / "config.json").write_text("how it began")
    with pytest.raises(UserError) as caught:
        RunFolder(tmp_path).begin(options_for(corpus, tmp_path))
    message = one_line(caught.value)
    assert str(tmp_path) in message
    for advice in ("--resume", "--overwrite", "--out_dir"):
        assert advice in message
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == {name: "what was there", "config.json": "how it began"}


@pytest.mark.parametrize("names", [["config.json"], ["metrics.jsonl"], [FILES[1], *FILES[2::2]]])
def test_a_folder_without_a_checkpoint_has_nothing_to_lose(tmp_path, corpus, names):
    for name in names:
        (tmp_path / name).write_text("what was there")
    folder = RunFolder(tmp_path)
    folder.begin(options_for(corpus, tmp_path))
    assert files_in(tmp_path) == ["config.json"]
    assert json.loads(folder.config.read_text("utf-8"))["train"]["max_iters"] == 6


def test_overwrite_removes_the_old_run_and_nothing_else(tmp_path, corpus):
    folder, _ = train_run(corpus, options_for(corpus, tmp_path))
    (tmp_path / "notes.txt").write_text("mine")
    options = options_for(corpus, tmp_path, max_iters=9)
    folder.begin(replace(options, run=RunConfig(out_dir=tmp_path, overwrite=True)))
    assert files_in(tmp_path) == ["config.json", "notes.txt"]
    assert json.loads(folder.config.read_text("utf-8"))["train"]["max_iters"] == 9
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_with_other_things_can_be_used(tmp_path, corpus):
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder(tmp_path).begin(options_for(corpus, tmp_path))
    assert files_in(tmp_path) == ["config.json", "notes.txt"]


@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_a_folder_below_a_file_is_refused(tmp_path, below):
    (tmp_path / "file").write_text("mine")
    path = tmp_path / "file" / below
    with pytest.raises(UserError) as caught, RunFolder(path).held():
        pass
    assert f"{path} can't be written (" in one_line(caught.value)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_is_made_to_be_held(tmp_path):
    path = tmp_path / "new" / "out"
    with RunFolder(path).held():
        assert files_in(path) == [".holder"]
    assert files_in(path) == []


# --- saving by the clock --------------------------------------------------------------------


def test_a_save_is_due_a_minute_after_the_last_one(tmp_path, corpus, monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(run_folder, "time", SimpleNamespace(monotonic=lambda: clock.now))
    options = options_for(corpus, tmp_path)
    folder = RunFolder(tmp_path)
    state = TrainingState.start(options.model, options.train, CPU)
    for _ in range(3):
        assert not folder.is_save_due
        clock.now += 59.5
        assert not folder.is_save_due
        clock.now += 0.5
        assert folder.is_save_due
        clock.now += 100
        assert folder.is_save_due
        folder.save(state, corpus, is_best=False)


# --- going on -------------------------------------------------------------------------------


def test_metrics_behind_the_checkpoint_are_taken_back(tmp_path, corpus):
    folder, _ = train_run(corpus, options_for(corpus, tmp_path))
    before = folder.metrics.read_bytes()
    for step in (7, 8, 100):
        folder.record(report_at(step, train_loss=1.0))
    assert len(lines_of(folder)) == 7
    assert go_on(folder).progress.step == 6
    assert folder.metrics.read_bytes() == before


@pytest.mark.parametrize(
    "torn",
    [
        '{"step": 7, "tok',
        '{"step": 5}',  # whole, but its newline is missing: the next line would join it
        "\0\0\0\0\n",
        "{}\n",
        "[]\n",
        "7\n",
        "\n",
        '{"step": "7"}\n',
        '{"step": null}\n',
    ],
)
def test_torn_last_lines_are_taken_back(tmp_path, corpus, torn):
    folder, _ = train_run(corpus, options_for(corpus, tmp_path))
    before = folder.metrics.read_bytes()
    with open(folder.metrics, "a", encoding="utf-8", newline="") as file:
        file.write(torn)
    go_on(folder)
    assert folder.metrics.read_bytes() == before


def test_bytes_that_are_no_text_are_taken_back(tmp_path, corpus):
    folder, _ = train_run(corpus, options_for(corpus, tmp_path))
    before = folder.metrics.read_bytes()
    folder.metrics.write_bytes(before + b"\xff\xfe\x80")
    go_on(folder)
    assert folder.metrics.read_bytes() == before


def test_a_run_whose_metrics_are_gone_goes_on(tmp_path, corpus):
    folder, _ = train_run(corpus, options_for(corpus, tmp_path))
    folder.metrics.unlink()
    assert go_on(folder).progress.step == 6
    assert not folder.metrics.exists()


def test_going_on_writes_on_behind_what_is_there(tmp_path, corpus):
    folder, _ = train_run(corpus, options_for(corpus, tmp_path))
    started = folder.config.read_bytes()
    for report in fit(go_on(folder), corpus, CPU):
        folder.record(report)
    assert [line["step"] for line in lines_of(folder)] == [2, 3, 4, 6, 8, 9]
    assert folder.config.read_bytes() == started


def test_there_is_nothing_to_go_on_with(tmp_path):
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(MissingFile) as caught:
            RunFolder(path).load_last()
        assert str(path) in one_line(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_best_model_alone_is_nothing_to_go_on_with(tmp_path, corpus):
    folder, _ = train_run(corpus, options_for(corpus, tmp_path))
    folder.last.unlink()
    with pytest.raises(MissingFile, match=r"last\.safetensors is missing"):
        folder.load_last()


# --- samples and TensorBoard ----------------------------------------------------------------


def test_an_evaluation_says_what_the_model_writes(tmp_path, corpus):
    folder, state = train_run(corpus, options_for(corpus, tmp_path))
    lines = lines_of(folder)
    assert [line["sample"] is not None for line in lines] == [False, True, False, True]
    for line in lines:
        if line["sample"] is not None:
            assert len(line["sample"]) == 80
            assert set(line["sample"]) <= set(corpus.tokenizer.characters)
    ids = generate(state.model, corpus.val[:1], max_new_tokens=80, seed=1605)
    assert lines[-1]["sample"] == corpus.tokenizer.decode([new for (new,) in ids])


def events_in(folder: RunFolder) -> dict[str, list[tuple[int, float]]]:
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = module.EventAccumulator(str(folder.events)).Reload()
    return {
        name: [(event.step, event.value) for event in found.Scalars(name)]
        for name in found.Tags()["scalars"]
    }


def with_events(corpus: Corpus, options: TrainOptions, steps: int, *, go_on: bool) -> RunFolder:
    """Train up to `steps`, as a run that was just begun or as one that goes on."""
    folder = RunFolder(options.run.out_dir, tensorboard=True)
    if go_on:
        state = TrainingState.restore(folder.load_last(), options.train, CPU)
        folder.take_back(state.progress.step)
    else:
        state = TrainingState.start(options.model, options.train, CPU)
        folder.begin(options)
    for report in fit(state, corpus, CPU):
        folder.record(report)
        if report.step == 2 and not go_on:
            folder.save(state, corpus, is_best=True)
        if report.step == steps:
            return folder


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_shows_what_metrics_hold_after_a_resume_too(tmp_path, corpus):
    pytest.importorskip("tensorboard")
    options = options_for(corpus, tmp_path, max_iters=8, log_interval=1)
    with_events(corpus, options, 5, go_on=False)  # the last save was at step 2
    folder = with_events(corpus, options, 8, go_on=True)
    found, lines = events_in(folder), lines_of(folder)
    assert [line["step"] for line in lines] == list(range(1, 9))
    for name in ("train_loss", "val_loss", "val_bpc", "lr", "tokens_per_second"):
        expected = [(line["step"], line[name]) for line in lines if line[name] is not None]
        steps, values = zip(*found.pop(name), strict=True)
        assert (steps, values) == (
            tuple(step for step, _ in expected),
            pytest.approx([value for _, value in expected], rel=1e-6),
        )
    assert not found
    folder.begin(replace(options, run=replace(options.run, overwrite=True)))
    assert not any(value for value in events_in(folder).values())


def test_tensorboard_that_is_missing_is_one_line_before_anything_is_touched(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UserError) as caught:
        RunFolder(tmp_path / "new", tensorboard=True)
    assert "pip install tensorboard" in one_line(caught.value)
    assert not (tmp_path / "new").exists()
