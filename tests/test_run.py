import io
import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
import torch

from sancho import checkpoint, cli
from sancho.config import ModelConfig, RunConfig, TrainConfig, TrainOptions, from_dict
from sancho.corpus import Corpus, prepare
from sancho.errors import MissingFile, UserError
from sancho.run import RunFolder, check_corpus, check_model
from sancho.runtime import Runtime
from sancho.training import Report, TrainingState, fit

CPU = Runtime(torch.device("cpu"), torch.float32)
METRICS = [
    "step",
    "tokens",
    "seconds",
    "train_loss",
    "val_loss",
    "val_bpc",
    "lr",
    "tokens_per_second",
]
FILES = ["best.safetensors", "config.json", "last.safetensors", "metrics.jsonl"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    text = "La razón de la sinrazón que a mi razón se hace.\n" * 20
    folder = tmp_path_factory.mktemp("data") / "tiny"
    return prepare([("tiny", io.BytesIO(text.encode()))], folder, "a test")


def options_for(corpus: Corpus, path: Path, **train) -> TrainOptions:
    shape = {"block_size": 8, "n_layer": 1, "n_head": 1, "n_embd": 4, "ngram_rows": 16}
    model = ModelConfig(vocab_size=corpus.tokenizer.vocab_size, **shape)
    train = {"max_iters": 6, "batch_size": 2, "eval_interval": 3, "log_interval": 2} | train
    return TrainOptions(run=RunConfig(out_dir=path), model=model, train=TrainConfig(**train))


def train_run(corpus: Corpus, options: TrainOptions) -> tuple[RunFolder, TrainingState]:
    """Leave in options.run.out_dir what a whole run leaves there."""
    folder = RunFolder(options.run.out_dir)
    state, corpus = folder.begin(options, corpus, CPU)
    folder.open(options, state)
    for report in fit(state, corpus, CPU):
        folder.record(report)
        if report.val_loss is not None:
            folder.save(state, corpus, is_best=report.is_best)
    return folder, state


def to_go_on(options: TrainOptions, **train) -> TrainOptions:
    """Return the options of --resume with three steps more."""
    train = {"max_iters": options.train.max_iters + 3} | train
    run = replace(options.run, resume=True)
    return replace(options, run=run, train=replace(options.train, **train))


def go_on(folder: RunFolder, options: TrainOptions, corpus: Corpus) -> TrainingState:
    state, same = folder.begin(to_go_on(options), corpus, CPU)
    assert same is corpus
    folder.open(to_go_on(options), state)
    return state


def contents(path: Path) -> dict[str, tuple[bytes, int]]:
    """Return the bytes of each file of a folder, and when they were written."""
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()}


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


def test_a_run_leaves_four_files(tmp_path, corpus):
    folder, state = train_run(corpus, options_for(corpus, tmp_path / "runs" / "out"))
    assert sorted(path.name for path in folder.path.iterdir()) == FILES
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
        "--learning_rate 0.003 --dataset otro --device cpu --dtype float32 --seed 7"
    )
    options = cli.parse_train([*args.split(), "--out_dir", "mi carpeta/ñ"])
    folder = RunFolder(options.run.out_dir)
    folder.open(options, TrainingState.start(options.model, options.train, CPU))
    raw = folder.config.read_text("utf-8")
    found = json.loads(raw, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found.keys() == {"run", "data", "model", "train", "runtime"}
    assert from_dict(ModelConfig, found["model"]) == options.model
    assert from_dict(TrainConfig, found["train"]) == options.train

    again = []
    for part in found.values():
        for name, value in part.items():
            if isinstance(value, bool):
                again.append(f"--{'' if value else 'no_'}{name}")
            elif value is not None and name != "vocab_size":
                again.append(f"--{name}={value}")
    assert cli.parse_train(again) == options


def test_the_configuration_holds_every_option(tmp_path, corpus):
    options = replace(
        options_for(corpus, tmp_path), run=RunConfig(out_dir=tmp_path, init_from=tmp_path / "x")
    )
    folder = RunFolder(tmp_path)
    folder.open(options, TrainingState.start(options.model, options.train, CPU))
    found = json.loads(folder.config.read_text("utf-8"))
    for part in fields(options):
        names = {option.name for option in fields(getattr(options, part.name))}
        assert found[part.name].keys() == names
    assert found["run"]["out_dir"] == str(tmp_path)
    assert found["run"]["init_from"] == str(tmp_path / "x")
    assert found["train"] == asdict(options.train)


def test_the_configuration_holds_the_model_that_is_trained(tmp_path, corpus):
    """How many characters there are is known only when the text is."""
    options = options_for(corpus, tmp_path)
    options = replace(options, model=replace(options.model, vocab_size=77))
    folder, state = train_run(corpus, options)
    assert state.model.config.vocab_size == corpus.tokenizer.vocab_size != 77
    found = json.loads(folder.config.read_text("utf-8"))
    assert from_dict(ModelConfig, found["model"]) == state.model.config


# --- a folder that is in use ----------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_folder_that_holds_a_run_is_refused(tmp_path, corpus, name):
    (tmp_path / name).write_text("what was there")
    with pytest.raises(UserError) as caught:
        RunFolder(tmp_path).begin(options_for(corpus, tmp_path), corpus, CPU)
    message = one_line(caught.value)
    assert str(tmp_path) in message
    for advice in ("--resume", "--overwrite", "--out_dir"):
        assert advice in message
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {name: "what was there"}


def test_overwrite_removes_the_old_run_and_nothing_else(tmp_path, corpus):
    folder, _ = train_run(corpus, options_for(corpus, tmp_path))
    (tmp_path / "notes.txt").write_text("mine")
    options = options_for(corpus, tmp_path, max_iters=9)
    options = replace(options, run=RunConfig(out_dir=tmp_path, overwrite=True))
    before = contents(tmp_path)
    state, _ = folder.begin(options, corpus, CPU)
    assert contents(tmp_path) == before
    folder.open(options, state)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "notes.txt"]
    assert json.loads(folder.config.read_text("utf-8"))["train"]["max_iters"] == 9
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_with_other_things_can_be_used(tmp_path, corpus):
    (tmp_path / "notes.txt").write_text("mine")
    folder, options = RunFolder(tmp_path), options_for(corpus, tmp_path)
    folder.open(options, folder.begin(options, corpus, CPU)[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "notes.txt"]


@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_a_folder_below_a_file_is_refused(tmp_path, corpus, below):
    (tmp_path / "file").write_text("mine")
    path = tmp_path / "file" / below
    folder, options = RunFolder(path), options_for(corpus, path)
    state, _ = folder.begin(options, corpus, CPU)
    for attempt in (folder.held, lambda: folder.open(options, state)):
        with pytest.raises(UserError) as caught:
            attempt()
        assert f"--out_dir {path} can't be written (" in one_line(caught.value)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_in_the_way_of_a_file_is_refused(tmp_path, corpus):
    (tmp_path / "metrics.jsonl").mkdir()
    options = options_for(corpus, tmp_path)
    options = replace(options, run=RunConfig(out_dir=tmp_path, overwrite=True))
    folder = RunFolder(tmp_path)
    state, _ = folder.begin(options, corpus, CPU)
    with pytest.raises(UserError, match="--out_dir"):
        folder.open(options, state)


# --- going on -------------------------------------------------------------------------------


def test_metrics_behind_the_checkpoint_are_taken_back(tmp_path, corpus):
    options = options_for(corpus, tmp_path)
    folder, _ = train_run(corpus, options)
    before = folder.metrics.read_bytes()
    for step in (7, 8, 100):
        folder.record(report_at(step, train_loss=1.0))
    assert len(lines_of(folder)) == 7
    assert go_on(folder, options, corpus).progress.step == 6
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
    options = options_for(corpus, tmp_path)
    folder, _ = train_run(corpus, options)
    before = folder.metrics.read_bytes()
    with open(folder.metrics, "a", encoding="utf-8", newline="") as file:
        file.write(torn)
    go_on(folder, options, corpus)
    assert folder.metrics.read_bytes() == before


def test_bytes_that_are_no_text_are_taken_back(tmp_path, corpus):
    options = options_for(corpus, tmp_path)
    folder, _ = train_run(corpus, options)
    before = folder.metrics.read_bytes()
    folder.metrics.write_bytes(before + b"\xff\xfe\x80")
    go_on(folder, options, corpus)
    assert folder.metrics.read_bytes() == before


def test_a_run_whose_metrics_are_gone_goes_on(tmp_path, corpus):
    options = options_for(corpus, tmp_path)
    folder, _ = train_run(corpus, options)
    folder.metrics.unlink()
    assert go_on(folder, options, corpus).progress.step == 6
    assert not folder.metrics.exists()


def test_going_on_writes_on_behind_what_is_there(tmp_path, corpus):
    options = options_for(corpus, tmp_path)
    folder, _ = train_run(corpus, options)
    started = folder.config.read_bytes()
    for report in fit(go_on(folder, options, corpus), corpus, CPU):
        folder.record(report)
    assert [line["step"] for line in lines_of(folder)] == [2, 3, 4, 6, 8, 9]
    assert folder.config.read_bytes() == started


def test_there_is_nothing_to_go_on_with(tmp_path, corpus):
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(MissingFile) as caught:
            RunFolder(path).begin(to_go_on(options_for(corpus, path)), corpus, CPU)
        assert str(path) in one_line(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("why", ["text", "model", "optimizer", "last.safetensors", "max_iters"])
def test_going_on_that_is_refused_changes_nothing(tmp_path, corpus, why):
    """Nor does going on that is not refused, until the folder is opened."""
    options = options_for(corpus, tmp_path / "out")
    folder, _ = train_run(corpus, options)
    folder.record(report_at(99, train_loss=1.0))
    with open(folder.metrics, "a", encoding="utf-8") as file:
        file.write('{"step": 7, "tok')
    good, before = to_go_on(options), contents(folder.path)
    assert folder.begin(good, corpus, CPU)[0].progress.step == 6
    assert contents(folder.path) == before

    if why == "last.safetensors":
        folder.last.write_bytes(folder.last.read_bytes()[:-1])
        before = contents(folder.path)
    other = prepare([("o", io.BytesIO(b"Otro texto. " * 30))], tmp_path / "other", "a test")
    asked = {
        "model": replace(good, model=replace(good.model, n_layer=3)),
        "optimizer": to_go_on(options, optimizer="adamw"),
        "max_iters": to_go_on(options, max_iters=6),
    }
    with pytest.raises(UserError, match=why.replace(".", r"\.")) as caught:
        folder.begin(asked.get(why, good), other if why == "text" else corpus, CPU)
    one_line(caught.value)
    assert contents(folder.path) == before


# --- the same model, the same text ----------------------------------------------------------


def test_differences_of_the_model_are_named(tmp_path, corpus):
    options = options_for(corpus, tmp_path)
    folder, _ = train_run(corpus, options)
    ours = replace(options, model=replace(options.model, n_layer=3, norm="layernorm"))
    with pytest.raises(UserError) as caught:
        folder.begin(to_go_on(ours), corpus, CPU)
    message = one_line(caught.value)
    assert "n_layer: 1, not 3" in message
    assert "norm: 'rmsnorm', not 'layernorm'" in message
    for same in ("n_head", "n_embd", "block_size", "dropout"):
        assert same not in message


@pytest.mark.parametrize("option", [f.name for f in fields(ModelConfig)])
def test_every_option_of_the_model_counts(tmp_path, corpus, option):
    others = {
        "vocab_size": 5,
        "block_size": 9,
        "n_layer": 2,
        "n_head": 2,
        "n_embd": 8,
        "dropout": 0.5,
        "bias": True,
        "norm": "layernorm",
        "position": "learned",
        "activation": "gelu",
        "ngram_size": 2,
        "ngram_rows": 32,
        "ngram_dropout": 0.5,
        "embedding_skip": False,
        "qk_norm": False,
        "tie_embeddings": True,
    }
    options = options_for(corpus, tmp_path)
    state = TrainingState.start(options.model, options.train, CPU)
    saved = state.to_checkpoint(corpus, with_optimizer=False)
    check_model(options.model, saved)
    with pytest.raises(UserError, match=f"{option}: .*, not "):
        check_model(replace(options.model, **{option: others[option]}), saved)


def test_another_text_is_refused(tmp_path, corpus):
    options = options_for(corpus, tmp_path)
    folder, _ = train_run(corpus, options)
    saved = folder.load_last()
    check_corpus(corpus, saved)
    check_corpus(replace(corpus, name="a copy of it"), saved)
    other = prepare([("other", io.BytesIO(b"Otro texto. " * 30))], tmp_path / "other", "a test")
    with pytest.raises(UserError) as caught:
        check_corpus(other, saved)
    message = one_line(caught.value)
    assert "other" in message
    assert "--dataset" in message


def test_the_optimizer_of_a_run_cannot_be_exchanged_unseen(tmp_path, corpus):
    """Either another optimizer starts afresh and works, or it is refused; never a crash."""
    options = options_for(corpus, tmp_path)
    folder, _ = train_run(corpus, options)
    for ours in ("adamw", "muon"):
        try:
            state, _ = folder.begin(to_go_on(options, optimizer=ours), corpus, CPU)
        except UserError as error:
            assert "optimizer" in one_line(error)
            assert ours == "adamw"
        else:
            assert [report.step for report in fit(state, corpus, CPU)] == [7, 8, 9]
