"""The scripts as they are typed: options in, files and text out, one clear line for an error."""

import ast
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import unicodedata
import warnings
from dataclasses import replace
from multiprocessing import Process
from pathlib import Path
from types import SimpleNamespace

import conftest
import numpy as np
import pytest
import torch
from conftest import ROOT, SCRIPTS, TEXT, assert_refused, contents, run, succeed

import evaluate
import train
from sancho import checkpoint, cli, training
from sancho import generate as sancho_generate
from sancho.config import DeviceConfig, RunConfig, SampleConfig, TrainOptions
from sancho.corpus import open_prepared
from sancho.errors import UserError
from sancho.machine.device import choose_device
from sancho.machine.distributed import World
from sancho.presets import PRESETS
from sancho.run import folder as run_folder
from sancho.run.folder import RunFolder
from sancho.training import Report

SampleOptions = SCRIPTS["sample.py"].SampleOptions
pytestmark = pytest.mark.usefixtures("project")

SHAPE = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 8, "ngram_rows": 16}
SHAPE |= {"ngram_dropout": 0.1}  # or it follows the text
TINY = [f"--{name}={value}" for name, value in SHAPE.items()] + ["--batch_size=2", "--device=cpu"]
OTHER = "Otro texto, que no es aquel.\n" * 30
RUN_FILES = ["best.safetensors", "curve.svg", "last.safetensors", "metrics.jsonl"]
MODEL = ROOT / "tests" / "golden" / "mini.safetensors"
slow = pytest.mark.slow
posix = pytest.mark.skipif(sys.platform == "win32", reason="here: no signals and pipes of POSIX")


@pytest.fixture(scope="module")
def trained_files(tmp_path_factory) -> Path:
    """Return the out_dir of a run of six steps over the tiny text."""
    folder = conftest.make_project(tmp_path_factory.mktemp("trained"))
    with pytest.MonkeyPatch.context() as patch:
        conftest.use_data(patch, folder / "data")
        train_tiny("--max_iters=6", f"--out_dir={folder / 'out'}")
    return folder / "out"


@pytest.fixture
def trained(project, trained_files) -> Path:
    """Return a copy of that out_dir, project/out."""
    shutil.copytree(trained_files, project / "out")
    return project / "out"


def train_tiny(*args: str | Path) -> SimpleNamespace:
    """Train a tiny model, on the tiny text if `args` say nothing else."""
    return succeed("train.py", *TINY, "--dataset=tiny", *args)


def steps_in(out: Path) -> list[int]:
    return [line["step"] for line in conftest.metrics_of(out)]


def last_of(out: str | Path) -> checkpoint.Checkpoint:
    return RunFolder(Path(out)).load_last()


def first_line(result: SimpleNamespace) -> str:
    return result.err.splitlines()[0]


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        *((line, "n_layer", 5) for line in ("--n_layer 5", "--n_layer=5", "--n-layer 5")),
        ("--n-layer=4 --n-layer=5", "n_layer", 5),
        ("--compile", "compile", True),
        *((f"--compile {line}", "compile", False) for line in ("--no-compile", "--no_compile")),
        ("--corpus=mi-texto.txt", "corpus", Path("mi-texto.txt")),
        ("--learning-rate 1e-2", "learning_rate", 0.01),
    ],
)
def test_spellings(line, name, value):
    assert cli.parse_typed(TrainOptions(), line.split()) == {name: value}


@pytest.mark.parametrize("value", ["-- Bien-aventurado=x-y", "--seed is-it"])
def test_a_value_is_never_respelt(value):
    line = ["--start", value, "--stop", value, "a-b", "--stop=-c", "--top-k", "5", "--min-p=.1"]
    sampling = SampleConfig(top_k=5, min_p=0.1)
    expected = SampleOptions(start=value, stop=(value, "a-b", "-c"), sampling=sampling)
    assert cli.parse(SampleOptions(), line) == expected
    assert cli.parse(SampleOptions(), ["--start=--top-k"]).start == "--top-k"


SWITCHES = (
    "resume overwrite bias ngram_vocabulary embedding_skip qk_norm tie_embeddings compile "
    "tensorboard json"
)
OPTIONS = {
    "train.py": TrainOptions(),
    "sample.py": SampleOptions(),
    "evaluate.py": SCRIPTS["evaluate.py"].EvaluateOptions(),
    "prepare.py": SCRIPTS["prepare.py"].PrepareOptions(),
}


@pytest.mark.parametrize(("name", "options"), OPTIONS.items())
def test_the_help_shows_all_options(name, options):
    result = succeed(name, "--help")
    assert result.err == ""
    assert ("--checkpoint" in result.out) == ("The checkpoint to load" in result.out)  # inherited
    _, *lines = result.out.partition("options:")[2].splitlines()
    found = re.findall(r"^  (?:-\w, )?--(\w+)", "\n".join(lines), re.MULTILINE)
    assert sorted(found) == sorted([*cli.option_names(options), "help"])
    opposites = re.findall(r"the\s+opposite:\s+--no_(\w+)", result.out)
    assert set(opposites) == set(found) & set(SWITCHES.split())
    if name == "train.py":  # what holds where the user says nothing is that of the preset
        for preset, width in (("base", 384), ("classic", 128)):
            words = succeed(name, "--device=cpu", f"--preset={preset}", "--help").out.split()
            assert f"residual stream. (default: {width})" in " ".join(words)
        said = " ".join(words)
        for option in ("--ngram_dropout", "--logit_scale", "--eval_interval"):
            assert re.search(rf"{option} \w+ [^()]*\(default: auto\)", said)


@pytest.mark.parametrize("line", ["--resume", "--init_from=missing", "--resume --overwrites"])
def test_the_help_needs_no_run_and_no_checkpoint(line):
    result = succeed("train.py", *line.split(), "--help")
    assert result.out.startswith("usage: train.py") and result.err == ""


def test_the_help_of_a_script_with_commands():
    result = succeed("convert.py", "--help")
    for name in SCRIPTS["convert.py"].COMMANDS:
        assert f"\n  {name} " in result.out
        assert run("convert.py", name, "-h").out.startswith(f"usage: convert.py {name} ")


# --- one clear line -------------------------------------------------------------------------

# What is out of range in each option: test_config.py. MODEL is a checkpoint.
BAD_LINES = [
    ("train.py", "--n_layr 4", "unknown option --n_layr; did you mean --n_layer?"),
    ("train.py", "--no_compil", "--no_compil; did you mean --compile?"),
    ("train.py", "spare", "spare"),
    ("train.py", "--bias=true", "--bias: ", "'true'"),
    ("train.py", "--n_layer four", "--n_layer: invalid int value: 'four'"),
    ("train.py", "--n_layer", "--n_layer: expected one argument; one that begins with - is given"),
    ("train.py", "--resume --overwrite", "--resume is True; ", "--overwrite"),
    ("train.py", "--init_from missing.safetensors", "missing.safetensors", "does not exist"),
    ("train.py", "--init_from MODEL --dataset tiny --n_layer 9", "--n_layer is 9, but 2 in the"),
    ("train.py", "--dataset nobody", "nobody", "prepare.py --input"),
    ("train.py", "--corpus missing.txt", "missing.txt", "does not exist"),
    ("train.py", "--dataset tiny --out_dir tiny.txt", "tiny.txt can't be written (", "choose"),
    ("train.py", "--dataset tiny --block_size 2000", "tiny", "--block_size 2000", "at least 2223"),
    ("train.py", "--dataset tiny --encoding latin-1", "--encoding is 'latin-1'", "--corpus"),
    ("sample.py", "--compile", "unknown option --compile; --help lists all"),
    ("sample.py", "--stop=", "--stop"),
    ("sample.py", "--checkpoint data", "data", "folder"),
    ("evaluate.py", "--checkpoint MODEL", "no prepared corpus in ", "golden"),
    ("prepare.py", "--encoding=latin-1", "--encoding latin-1 needs --input: which file is it?"),
    ("prepare.py", "--name other", "--input; only quijote and shakespeare can be fetched"),
    ("prepare.py", "--input tiny.txt", "--input", "--name"),
    ("prepare.py", "--name .. --input tiny.txt", "--name is '..'; it must be the name of a folder"),
    ("prepare.py", "--name tiny --input tiny.txt", "--name tiny", "data/tiny already", "--overwri"),
    ("convert.py", "", "give a command; there is to-page, to-huggingface, to-onnx, from-nanogpt"),
    ("convert.py", "to-pag", "unknown command to-pag; did you mean to-page?"),
    ("convert.py", "to-page --checkpoint=MODEL --output=.", "--output . is a folder"),
    ("convert.py", "to-page --checkpoint=MODEL --output=tiny.txt", "tiny.txt is there and is no"),
    ("convert.py", "to-huggingface --checkpoint=MODEL --output=data", "data is a folder that is"),
    ("convert.py", "to-huggingface --checkpoint=MODEL --output=no/x", "the folder no does not ex"),
    ("convert.py", "to-page --checkpoint=none", "the checkpoint none does not exist"),
    ("convert.py", "from-nanogpt", "ckpt.pt does not exist; check the path"),
]


@pytest.mark.parametrize(
    ("name", "line", "parts"),
    [(name, line, parts) for name, line, *parts in BAD_LINES],
    ids=[f"{name} {line}"[:60] for name, line, *_ in BAD_LINES],
)
def test_a_line_that_cannot_be_used(project, name, line, parts):
    before = conftest.everything(project)
    args = [word.replace("MODEL", str(MODEL)) for word in line.split()]
    assert_refused(run(name, *args), name, *parts)
    assert conftest.everything(project) == before


@posix
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("train.py", "--corpus"),
        ("train.py", "--out_dir=new --dataset=tiny --init_from"),
        ("prepare.py", "--name=new --input"),
        ("sample.py", "--checkpoint=out/best.safetensors --start"),
        ("sample.py", "--checkpoint"),
    ],
)
def test_a_pipe_a_device_and_a_circle_of_links(project, trained, name, line):
    """Who opens the pipe gets nothing from it: then this fails, and does not hang."""
    prefix = "FILE:" if line.endswith("--start") else ""
    os.mkfifo("pipe")
    Path("circle").symlink_to("circle")
    writer = threading.Thread(target=lambda: open("pipe", "wb").close(), daemon=True)
    writer.start()
    for path, words in (("pipe", "a pipe"), (os.devnull, "a device"), ("circle", "does not exist")):
        assert_refused(run(name, *line.split(), prefix + path), name, path, words)
    assert not (project / "new").exists()
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer.join()  # or it would open the pipe of the next test
    os.close(reader)


UNSEEN = "a\0b\x1b[2J\x07\ufeff\u0301 \u0327\u2028\x0c\x85\n\uffff\U0010ffff\u202e"


@pytest.mark.parametrize("text", ["a" * 300, UNSEEN * 20], ids=["one character", "unseen ones"])
def test_an_odd_text_is_learned_and_written(project, text):
    (project / "odd.txt").write_text(text, encoding="utf-8")
    result = succeed("train.py", *TINY, "--corpus=odd.txt", "--max_iters=1")
    assert len(result.out) == 800  # no sentence ends in it
    assert set(result.out) <= set(unicodedata.normalize("NFC", text) + "\n")
    result = succeed("sample.py", "--start", "FILE:odd.txt", "--max_new_tokens=5")
    assert result.out.startswith(text[:3])


def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: fail(UserError("one\n  two\r\n\tthree")), "one two three\n"),
        (lambda: fail(OSError(28, "No space left", "out/last.tmp")), "out/last.tmp: No space left"),
        (lambda: np.empty(2**60, dtype=np.uint8), "not enough memory"),
        (lambda: torch.empty(2**60, dtype=torch.uint8), "not enough memory"),
        (lambda: fail(torch.OutOfMemoryError("CUDA out of memory. Tried")), "not enough memory"),
    ],
)
def test_what_the_user_can_mend_is_one_line(monkeypatch, act, words):
    monkeypatch.setattr(train, "main", lambda args: act())
    assert_refused(run("train.py"), "train.py", f"error: {words}")


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), RuntimeError("x"), OSError()])
def test_a_bug_passes_through(monkeypatch, error):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(type(error)):
        cli.exit_with(lambda args: fail(error))


@posix
def test_a_command_to_paste_names_the_interpreter_that_runs(tmp_path, monkeypatch):
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "python").touch(0o755)
    python = str(tmp_path / "mine" / "python")
    monkeypatch.setattr(sys, "executable", python)
    for folder, expected in (("mine", "python"), ("other", python)):
        monkeypatch.setenv("PATH", str(tmp_path / folder))
        assert cli.command("sample.py").split()[0] == expected


# --- train.py -------------------------------------------------------------------------------


def test_train_from_beginning_to_end(project):
    result = train_tiny("--max_iters=6", "--log_interval=2")
    out = project / "out"
    assert first_line(result) == "a new run in out"
    assert sorted(contents(out)) == RUN_FILES
    longer = succeed("sample.py", "--max_new_tokens=800").out.removeprefix("\n")
    page = result.out
    assert longer.startswith(page) and set(page) <= set(TEXT)
    assert 400 <= len(page) <= 800
    assert len(page) == 800 or (page[-1] == "." and longer[len(page)] in " \n")
    best = checkpoint.load(out / "best.safetensors")
    assert f"{best.build_model().count_parameters():,} parameters" in result.err
    assert f" sample.py --checkpoint {Path('out', 'best.safetensors')}" in result.err
    assert "step 6 of 6: loss" in result.err
    corpus = open_prepared("data/tiny")
    assert f"6 steps, {6 * 2 * 8 / len(corpus.train):,.1f} times the text" in result.err
    assert "the length of the text decides: eval_interval 6" in result.err
    assert steps_in(out) == [2, 4, 6]
    assert (best.train.max_iters, best.corpus_name) == (6, "tiny")
    assert best.train.eval_interval == 6  # it follows the length
    dtype = choose_device(DeviceConfig(device="cpu")).dtype_name
    assert best.run == RunConfig(device="cpu", dtype=dtype, compile=False, preset="mini")
    assert best.model == replace(PRESETS["mini"].model, vocab_size=len(set(TEXT)), **SHAPE)


def test_resume_with_more_steps_and_another_dropout(trained):
    before = last_of(trained)
    line = "--resume --max_iters 12 --dropout 0.1 --ngram_dropout 0.3 --log_interval 1"
    said = first_line(succeed("train.py", *line.split()))
    last = last_of(trained)
    assert last.progress.step == 12
    assert last.run == before.run
    assert last.train == replace(before.train, max_iters=12, log_interval=1)
    assert last.model == replace(before.model, dropout=0.1, ngram_dropout=0.3)
    assert said.startswith("going on with the run in out after step 6; it was done: ")
    factor = re.search(r"its learning rates rise again, to (0\.\d\d) of the peak$", said)[1]
    rates = {line["step"]: line["lr"] for line in conftest.metrics_of(trained)}
    assert list(rates) == [6, 7, 8, 9, 10, 11, 12]
    peak = last.train.learning_rate
    assert rates[7] == pytest.approx(float(factor) * peak, abs=0.005 * peak)
    assert rates[7] > rates[6]


@pytest.mark.parametrize("more", [(), ("--init_from=out/best.safetensors",)])
def test_resume_where_there_is_no_run_begins_one(trained, more):
    line = [*TINY, "--dataset=tiny", "--preset=auto", "--resume", "--out_dir=new", *more]
    assert first_line(succeed("train.py", *line, "--max_iters=2")) == "a new run in new"
    rate, peak = last_of("new").train.learning_rate, PRESETS["mini"].train.learning_rate
    assert rate == pytest.approx(0.2 * peak if more else peak)
    result = succeed("train.py", *line, "--max_iters=3")
    assert first_line(result).startswith("going on with the run in new after step 2")
    assert steps_in(Path("new")) == [2, 3]
    assert last_of("new").train.learning_rate == rate


def test_a_run_that_patience_ended_says_so_and_how_to_go_on(project):
    """Without learning nothing gets better."""
    still = [f"--{name}learning_rate=0" for name in ("", "muon_", "ngram_")]
    train_tiny("--max_iters=6", "--eval_interval=1", "--patience=2", *still)
    for _ in range(2):
        assert last_of("out").progress.step == 3
        said = first_line(succeed("train.py", "--resume", "--max_iters=9"))
    assert said.startswith("going on with the run in out after step 3; it is done: ")
    assert "--patience 2 ended it; --patience 0 goes on" in said
    result = succeed("train.py", "--resume", "--patience=0")
    assert first_line(result) == "going on with the run in out after step 3"
    assert steps_in(project / "out") == [1, 2, 3, 4, 5, 6]


def test_resume_keeps_where_and_how_it_computes(project):
    pytest.importorskip("tensorboard")
    train_tiny("--max_iters=1", "--dtype=bfloat16", "--tensorboard", "--preset=mini")
    result = succeed("train.py", "--resume", "--max_iters=2")
    assert "bfloat16 on cpu" in result.err.splitlines()
    assert len(list(project.glob("out/tensorboard/events*"))) == 2
    result = succeed("train.py", "--resume", "--max_iters=3", "--dtype=float32", "--no-tensorboard")
    assert "float32 on cpu" in result.err.splitlines()
    assert len(list(project.glob("out/tensorboard/events*"))) == 2


def test_what_others_keep_in_out_dir_stays(project):
    """As an export for Hugging Face, which has a config.json, and another program's events."""
    foreign = ["config.json", "notes.txt", "best.safetensors.bak", "x.sancho", "tensorboard/mine"]
    foreign += ["tensorboard/profile/events.out.tfevents.1", "tensorboard/events.out"]
    paths = [project / "out" / name for name in foreign]
    events = project / "out" / "tensorboard" / "events.out.tfevents.17.host.1.0"
    for path in [*paths, project / "out" / "metrics.jsonl"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    train_tiny("--max_iters=1")  # without a checkpoint there is nothing to lose
    events.write_text("of the run that is replaced")
    train_tiny("--max_iters=1", "--overwrite")
    assert sorted(contents(project / "out")) == sorted([*foreign[:4], *RUN_FILES])
    assert not events.exists()
    train_tiny("--resume", "--max_iters=2")
    assert [path.read_text() for path in paths] == [path.name for path in paths]


def test_resume_of_a_run_that_is_done_shows_its_result_again(project):
    first = train_tiny("--max_iters=6")
    before = contents(project / "out")
    again = succeed("train.py", "--resume")
    assert again.out == first.out
    assert first_line(again).endswith(" after step 6; it is done: a larger --max_iters goes on")
    (result,) = (line for line in first.err.splitlines() if line.startswith("validation loss "))
    assert result in again.err.splitlines()
    assert contents(project / "out") == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--resume --corpus=other.txt", ["another text than other"]),
        ("--resume --seed=1", ["damaged"]),
        ("--overwrite --dataset=tiny --block_size=5000", ["--block_size 5000"]),
        ("--dataset=tiny", ["out", "--resume", "--overwrite", "--out_dir"]),
    ],
)
def test_a_run_that_is_refused_changes_nothing(project, trained, line, words):
    with open(trained / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 7, "tok')
    if words == ["damaged"]:
        path = trained / "last.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
    (project / "other.txt").write_text(OTHER, encoding="utf-8")
    paths = [path for path in trained.iterdir() if path.name != ".lock"]  # which may be touched
    before, raw = {path: path.stat().st_mtime_ns for path in paths}, contents(trained)
    result = run("train.py", "--max_iters=9", "--device=cpu", *line.split())
    assert_refused(result, "train.py", *words)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert contents(trained) == raw


def test_a_kill_costs_no_more_than_a_minute(project, monkeypatch):
    clock, last, found = SimpleNamespace(now=0), project / "out" / "last.safetensors", []

    def take_a_step(report: Report) -> None:
        if report.step < 8:  # then it is evaluated
            clock.now += 25  # seconds
            found.append(checkpoint.load(last).progress.step if last.exists() else 0)

    monkeypatch.setattr(run_folder, "time", SimpleNamespace(monotonic=lambda: clock.now))
    conftest.watch_reports(monkeypatch, take_a_step)
    train_tiny("--max_iters=8", "--eval_interval=8", "--log_interval=1")
    assert found == [0, 0, 0, 3, 3, 3, 6]  # each before the step's own save


def test_an_evaluation_can_be_stopped_and_goes_on(project, monkeypatch):
    """It was saved before; the figures and bits are those of a run that nobody stopped."""
    monkeypatch.setattr(training, "EVALUATED_AT_ONCE", 2)
    args = [*conftest.ARGS, "--max_iters=2", "--eval_interval=2"]
    succeed("train.py", *args, "--out_dir=whole")
    saved = []

    def stop(report: Report) -> None:
        if report.evaluated:
            saved.append((report.evaluated, last_of("out").progress))
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        conftest.watch_reports(patch, stop)
        result = run("train.py", *args)
    assert result.status == 143
    assert "stopped and saved at step 2; go on with: " in result.err
    ((evaluated, progress),) = saved
    assert 0 < evaluated < 0.5
    assert (progress.step, progress.evaluated_step) == (2, 0)
    succeed("train.py", "--resume")
    conftest.assert_same_run(project / "out", project / "whole")


def test_a_run_that_was_stopped_before_its_first_evaluation_ends_well(project, monkeypatch):
    with monkeypatch.context() as patch:
        conftest.watch_reports(
            patch, lambda report: report.step == 2 and signal.raise_signal(signal.SIGINT)
        )
        assert run("train.py", *TINY, "--dataset=tiny", "--max_iters=9").status == 130
    result = succeed("train.py", "--resume", "--max_iters=2")
    assert "validation loss" in result.err
    assert last_of("out").progress.evaluated_step == 2


def report_at(step: int, **found) -> Report:
    return Report(step=step, tokens=step, seconds=60.0, lr=0.1, tokens_per_second=1, **found)


def test_where_lines_cannot_be_drawn_over_there_is_one_now_and_then(monkeypatch, capsys):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(cli, "time", SimpleNamespace(monotonic=lambda: clock.now))
    state = SimpleNamespace(config=SimpleNamespace(max_iters=100), progress=SimpleNamespace(step=0))
    reports = [
        *(report_at(step, train_loss=1.5) for step in (10, 20, 30)),
        *(report_at(40, evaluated=evaluated) for evaluated in (0.0, 0.25)),
        report_at(40, train_loss=1.25, val_loss=1.75, sample="a\n b"),
    ]
    for _ in cli.with_progress(iter(reports), state):
        clock.now += 6
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "step 30 of 100: loss 1.500; 01:00 gone, 02:20 left",
        "step 40 of 100: loss 1.500, evaluating 25%; 01:00 gone, 01:30 left",
        "step 40 of 100: loss 1.250, val 1.750; 01:00 gone, 01:30 left",
        "    a b",
    ]


def test_the_best_model_is_that_of_the_lowest_loss(project):
    """On a text whose end is ever less likely, the more is learned of its beginning."""
    text = "a" * 900 + "b" * 100
    (project / "ab.txt").write_text(text, encoding="utf-8")
    succeed("train.py", *TINY, "--corpus=ab.txt", "--max_iters=20", "--eval_interval=2")
    losses = [line["val_loss"] for line in conftest.metrics_of(project / "out") if line["val_loss"]]
    best = checkpoint.load("out/best.safetensors").progress
    assert best.val_loss == min(losses) == losses[0]
    assert last_of("out").progress.val_loss == losses[-1] > losses[0]


def test_a_run_on_a_text_of_ones_own_goes_on_without_it(project):
    (project / "mine.txt").write_text(OTHER, encoding="utf-8")
    succeed("train.py", *TINY, "--max_iters=1", "--corpus=mine.txt")
    (project / "mine.txt").unlink()  # what was prepared is enough
    succeed("train.py", "--resume", "--max_iters=2")
    assert last_of("out").progress.step == 2


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("train.py", [*TINY, "--max_iters=1", "--corpus=new.txt"]),
        ("prepare.py", ["--input=new.txt", "--name=new"]),
    ],
)
def test_a_text_in_another_encoding_is_read_by_its_name(project, name, line):
    (project / "new.txt").write_bytes((TEXT + "ñ").encode("windows-1252"))
    assert_refused(run(name, *line), name, "try --encoding windows-1252")
    succeed(name, *line, "--encoding=windows-1252")
    (path,) = project.glob("data/new*/input.txt")
    assert path.read_text("utf-8").rstrip("\n") == TEXT + "ñ"


# --- sample.py ------------------------------------------------------------------------------


def test_stdout_is_the_prompt_its_continuation_and_a_newline(trained):
    line = ["--start", "En un lugar", "--max_new_tokens=30"]
    result = succeed("sample.py", *line)
    assert result.err == ""
    assert result.out.startswith("En un lugar") and result.out.endswith("\n")
    assert len(result.out) == len("En un lugar") + 30 + 1
    assert set(result.out) <= set(TEXT)
    for more in ([], ["--device=cpu", "--dtype=bfloat16"]):  # it writes in float32 always
        assert run("sample.py", *line, *more).out == result.out
    assert run("sample.py", *line, "--seed=7").out != result.out
    assert run("sample.py", "--max_new_tokens", "0").out == "\n\n"
    greedy = {run("sample.py", *line, "--temperature=0", f"--seed={seed}").out for seed in range(3)}
    assert len(greedy) == 1


def test_the_start_from_a_file_and_from_stdin(project, trained):
    plain = run("sample.py", "--start", "Mancha,\n de", "--max_new_tokens", "9").out
    raw = b"\xef\xbb\xbfMancha,\r\n de"
    (project / "mi inicio.txt").write_bytes(raw)
    line = ["--start", "FILE:mi inicio.txt", "--max_new_tokens", "9"]
    assert run("sample.py", *line).out == plain
    assert run("sample.py", "--start", "-", "--max_new_tokens", "9", stdin=raw).out == plain


@pytest.mark.parametrize(
    ("start", "stdin", "parts"),
    [
        ("FILE:binary", b"", ["binary is not UTF-8: byte 0xf1 at offset 320000;"]),
        ("-", b"En\xf1", ["standard input is not UTF-8: byte 0xf1 at offset 2; save it as UTF-8"]),
        ("-", b"", ["--start is empty"]),
        ("", b"", ["--start is empty"]),
        ("En 1605 Ñ", b"", ["'1' at position 3", "'6'", "'5'", "'Ñ' at position 8", "--unknown"]),
    ],
)
def test_a_start_that_cannot_be_used(project, trained, start, stdin, parts):
    (project / "binary").write_bytes(b"Quijote\n" * 40_000 + b"\xf1andu")
    assert_refused(run("sample.py", f"--start={start}", stdin=stdin), "sample.py", *parts)


def test_unknown_characters_skipped_or_replaced(trained):
    line = ["--start", "Él1", "--max_new_tokens", "0", "--unknown"]
    assert run("sample.py", *line, "skip").out == "l\n"
    assert_refused(run("sample.py", *line, "nearest"), "sample.py", "'1' at position 2")
    assert run("sample.py", "--start", "Él", *line[2:], "nearest").out == "El\n"


@pytest.mark.parametrize("options", [[], ["--stop", "a"], ["--temperature=0", "--stop=, "]])
def test_each_of_several_samples_is_what_it_is_alone(trained, options):
    line = ["--start", "En un", "--max_new_tokens", "40", *options]
    alone, three, ten = (run("sample.py", *line, f"--num_samples={n}") for n in (1, 3, 10))
    assert three.err == "--- 1 of 3\n--- 2 of 3\n--- 3 of 3\n"
    assert three.out.startswith(alone.out) and ten.out.startswith(three.out)
    assert ten.out.count("En un") >= 10
    if not options:
        texts = {ten.out[first : first + 46] for first in range(0, 460, 46)}
        assert len(texts) == 10 and len(ten.out) == 460


def test_a_text_that_is_interrupted_is_no_error_with_a_traceback(trained, monkeypatch):
    generate, whole = sancho_generate.generate, run("sample.py", "--max_new_tokens=20").out

    def generate_a_little(*args, **kwargs):
        yield from itertools.islice(generate(*args, **kwargs), 12)
        raise KeyboardInterrupt

    monkeypatch.setattr(sancho_generate, "generate", generate_a_little)
    result = run("sample.py", "--max_new_tokens=20")
    assert (result.status, result.err) == (130, "\ninterrupted\n")
    assert result.out == whole[: 1 + 12]


def test_a_large_model_writes_where_there_is_a_gpu_and_a_small_one_on_the_cpu(monkeypatch):
    from sancho.machine import device

    asked, sample = [], SCRIPTS["sample.py"]
    saved = checkpoint.load(MODEL)
    choose = device.choose_device
    monkeypatch.setattr(device, "choose_device", lambda o: asked.append(o) or choose(o))
    for largest in (saved.build_model().count_parameters(), 1):
        monkeypatch.setattr(sample, "LARGEST_ON_CPU", largest)
        sample.open_model(saved, DeviceConfig())
        sample.open_model(saved, DeviceConfig(device="cpu"))
    assert asked == [DeviceConfig()]


# --- data/prepare.py ------------------------------------------------------------------------


def test_prepare_several_files_and_stdin(project):
    odd = os.fsdecode(b"\xf1.txt") if sys.platform == "linux" else "ñ.txt"
    (project / odd).write_text("Dulcinea\n", encoding="utf-8")
    line = ["--name", "new", "--input", odd, "-", odd]
    result = succeed("prepare.py", *line, stdin="Sancho, ñ\n".encode())
    assert result.out == ""
    text = (project / "data" / "new" / "input.txt").read_text("utf-8")
    assert text == "Dulcinea\nSancho, ñ\nDulcinea\n"
    n_val = len(text) // 10
    assert f"data/new: {len(text)} characters, {len(set(text))} different" in result.err
    assert f"{len(text) - n_val} to train on and {n_val} to validate" in result.err


@pytest.mark.parametrize("line", ["train.py --dataset", "prepare.py --name"])
def test_without_a_network_there_is_no_shakespeare(project, line):
    name, option = line.split()
    result = run(name, option, "shakespeare")
    said, result.err = result.err.splitlines(keepends=True)
    assert said == "note: fetching shakespeare from raw.githubusercontent.com\n"
    todo = "then data/prepare.py --input FILE --name shakespeare, or train.py --corpus FILE"
    assert_refused(result, name, "not be fetched (raw.githubusercontent.com: ", todo)
    assert contents(project / "data" / "shakespeare") == {}


def test_overwriting_the_book_without_a_network_leaves_it_as_it_was(project):
    text = project / "data" / "quijote.txt"
    text.write_text(OTHER, encoding="utf-8")
    succeed("prepare.py")
    text.unlink()
    before = conftest.everything(project)
    result = run("prepare.py", "--overwrite")
    assert result.status == 2
    assert "prepare.py: error: quijote could not be fetched (" in result.err.splitlines()[-1]
    assert conftest.everything(project) == before


def test_a_damaged_book_is_prepared_anew(project):
    (project / "data" / "quijote.txt").write_text(OTHER, encoding="utf-8")
    succeed("prepare.py")
    (project / "data" / "quijote" / "train.bin").write_bytes(b"")
    assert_refused(run("train.py"), "train.py", "is damaged", "data/prepare.py --overwrite")
    succeed("prepare.py", "--overwrite")
    assert (project / "data" / "quijote" / "train.bin").stat().st_size > 0


# --- evaluate.py ----------------------------------------------------------------------------


def test_evaluate_writes_a_report_or_json(trained, monkeypatch):
    monkeypatch.setattr(evaluate, "SAMPLE_LENGTH", 30)
    result = succeed("evaluate.py")
    assert result.err == ""
    assert "validation loss" in result.out and "the author" in result.out
    result = succeed("evaluate.py", "--checkpoint", "out/best.safetensors", "--json")
    loss = checkpoint.load(Path("out/best.safetensors")).progress.val_loss
    assert json.loads(result.out)["loss"] == pytest.approx(loss, abs=1e-5)


def test_evaluate_on_another_text(project, trained, monkeypatch):
    monkeypatch.setattr(evaluate, "SAMPLE_LENGTH", 30)
    other = "".join(sorted(set(TEXT))) * 20
    for name, text in (("other", other), ("strange", "ψ" + TEXT), ("short", TEXT[:9])):
        (project / "data" / f"{name}.txt").write_text(text, encoding="utf-8")
    said = succeed("evaluate.py", "--dataset", "other").err
    assert "learned from another text than other" in said and said.startswith("note: ")
    for name, words in (("strange", ["does not know", "'ψ'"]), ("short", ["characters"])):
        assert_refused(run("evaluate.py", "--dataset", name), "evaluate.py", name, *words)


# --- as processes of their own --------------------------------------------------------------


def be(name: str, folder: Path, *args: str) -> None:
    """Be the process of a script; leave its out and err in the folder."""
    os.chdir(folder)
    for number, file in enumerate(("out", "err"), 1):
        os.dup2(os.open(f"{os.getpid()}.{file}", os.O_WRONLY | os.O_CREAT), number)
    torch.set_num_threads(1)
    conftest.use_data(pytest.MonkeyPatch(), folder / "data")
    sys.argv = [name, *args]
    cli.exit_with(SCRIPTS[name].main)


def start_training(project: Path, made: Path, *args: str) -> Process:
    """Start a run that goes on for ever, and wait until it has made a file."""
    line = [*TINY, "--dataset=tiny", "--max_iters=1000000", *args]
    process, begin = conftest.start_process(be, "train.py", project, *line), time.monotonic()
    while not made.exists():
        assert process.is_alive() and time.monotonic() < begin + 60
        time.sleep(0.01)
    return process


@slow
@posix
@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_saves_and_the_run_goes_on(project, server_of_processes, number, status):
    out, args = project / "it's new", "--log_interval=1 --eval_interval=1000000".split()
    process = start_training(project, out / "metrics.jsonl", *args, f"--out_dir={out.name}")
    os.kill(process.pid, getattr(signal, number))
    process.join(120)
    written, said = (Path(f"{process.pid}.{file}").read_text("utf-8") for file in ("out", "err"))
    assert (process.exitcode, written) == (status, ""), said
    assert "Traceback" not in said
    step = last_of(out).progress.step
    assert step >= 1
    assert steps_in(out) == list(range(1, step + 1))
    advice = said.splitlines()[-1]
    assert f"stopped and saved at step {step}; " in advice
    command = shlex.split(advice.partition(" train.py ")[2])
    succeed("train.py", *command, f"--max_iters={step + 2}", "--device=cpu")
    assert last_of(out).progress.step == step + 2


def test_a_second_ctrl_c_stops_at_once():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with cli.stop_signals(World()) as received:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        assert received == [signal.SIGTERM, signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@slow
@posix
def test_a_run_can_be_read_but_not_touched_while_it_goes_on(project, server_of_processes):
    """The first process is halted meanwhile, so that whatever changes is the second's doing."""
    out, args = project / "my out", ["--eval_interval=1", "--out_dir=my out"]
    process = start_training(project, out / "best.safetensors", *args)
    os.kill(process.pid, signal.SIGSTOP)
    before = contents(out)
    for mode in ("--overwrite", "--resume", "--seed=1"):
        result = run("train.py", "--out_dir", "my out", mode, "--dataset=tiny", "--device=cpu")
        assert_refused(result, "train.py", "my out is in use by another process; wait for it")
        assert contents(out) == before
    best = out / "best.safetensors"
    result = succeed("sample.py", "--checkpoint", best, "--start=En", "--max_new_tokens=9")
    assert len(result.out) == 12
    assert contents(out) == before
    process.kill()
    process.join()


SETTINGS = {"OPENBLAS_NUM_THREADS": "1", "GOMP_SPINCOUNT": "20000", "KMP_BLOCKTIME": "0"}
WITHOUT_LIBRARIES = """
import os, runpy, sys
sys.modules["numpy"] = sys.modules["torch"] = None  # whoever imports them gets an ImportError
try:
    runpy.run_path(sys.argv[1], run_name="__main__")
except ImportError:
    print([os.environ.get(name) for name in sys.argv[2:]])
"""


@pytest.mark.parametrize("script", ["train.py", "sample.py", "evaluate.py"])
def test_threads_are_configured_before_the_libraries_are_loaded(script):
    """What the user has set stays."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    command = [sys.executable, "-c", WITHOUT_LIBRARIES, ROOT / script, *SETTINGS]
    for of_the_user in ({}, {"GOMP_SPINCOUNT": "7"}):
        # In the project's folder: it need not be installed.
        done = subprocess.run(command, capture_output=True, env=environment | of_the_user, cwd=ROOT)
        assert ast.literal_eval(done.stdout.decode()) == [*(SETTINGS | of_the_user).values()]


def write_and_look(project: Path) -> None:
    """Train and write; end with 0 if nothing has imported the machinery of torch.compile."""
    os.chdir(project)
    conftest.use_data(pytest.MonkeyPatch(), project / "data")
    train.main([*TINY, "--dataset=tiny", "--max_iters=2"])
    SCRIPTS["sample.py"].main(["--max_new_tokens=3"])
    sys.exit("torch._dynamo" in sys.modules)


@slow
@posix
def test_a_start_does_not_load_the_machinery_of_torch_compile(project, server_of_processes):
    """It would take one to two seconds of every start."""
    process = conftest.start_process(write_and_look, project)
    process.join(120)
    assert process.exitcode == 0


@pytest.fixture
def own_project(project) -> Path:
    """Copy the scripts there, for a data/ of their own."""
    shutil.copytree(ROOT / "sancho", project / "sancho", ignore=shutil.ignore_patterns("__py*"))
    for name in ("sample.py", "data/prepare.py"):
        shutil.copy(ROOT / name, project / name)
    return project


def start_python(folder: Path, *args: str) -> subprocess.Popen:
    """Start a Python in a terminal that knows ASCII alone."""
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    environment.pop("PYTHONPATH", None)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, *args], cwd=folder, env=environment, **pipes)


@slow
def test_text_is_utf8_whatever_the_terminal_is(own_project):
    text = "El ñandú bebió agua fría y «cantó» a la cigüeña.\n" * 9
    (own_project / "bird.txt").write_text(text, encoding="utf-8")
    succeed("train.py", *TINY, "--corpus", "bird.txt", "--max_iters=1")
    process = start_python(own_project, "sample.py", "--start=-", "--max_new_tokens=99")
    out, err = process.communicate("«ñandú".encode(), timeout=120)
    assert (process.returncode, err) == (0, b"")
    written = out.decode().replace(os.linesep, "\n")
    assert written.startswith("«ñandú") and len(written) == 6 + 99 + 1
    process = start_python(own_project, "data/prepare.py", "--nañe", "x")
    out, err = process.communicate(timeout=120)
    assert err.decode().startswith("prepare.py: error: unknown option --nañe; did you mean --name?")


@slow
@posix
@pytest.mark.parametrize("seen", [0, 20])
def test_a_reader_that_goes_away_is_no_error(own_project, trained, seen):
    line = ["--start=En un lugar", "--max_new_tokens=100000000"]
    process = start_python(own_project, "sample.py", *line)
    assert process.stdout.read(seen)[:11] == b"En un lugar"[:seen]
    process.stdout.close()
    err = process.stderr.read().decode()
    assert (process.wait(timeout=120), err) == (0, "")


def test_windows_calls_a_closed_pipe_an_invalid_argument():
    program = """
import sys
from sancho import cli
def main(args):
    sys.platform = "win32"
    raise OSError(22, "Invalid argument")
cli.exit_with(main)"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
