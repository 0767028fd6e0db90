"""train.py as it is typed: runs that begin, stop, go on and are refused."""

import re
import shlex
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import conftest
import pytest
from conftest import (
    OTHER,
    RUN_FILES,
    SHAPE,
    TEXT,
    TINY,
    assert_refused,
    contents,
    first_line,
    last_of,
    run,
    steps_in,
    succeed,
    train_tiny,
)
from test_files import somebody

import evaluate
import train
from sancho import checkpoint
from sancho.config import DeviceConfig
from sancho.machine.device import choose_device
from sancho.presets import PRESETS
from sancho.run import folder as run_folder
from sancho.run.report import Report
from sancho.shared.weights import count_parameters
from sancho.text import sources
from sancho.text.corpus import Corpus
from sancho.training import TrainingLoop

pytestmark = pytest.mark.usefixtures("project")


def test_the_help_of_train_shows_what_holds_where_nothing_is_said(trained):
    for line, width in (("--preset=base", 384), ("--preset=classic", 128), ("--resume", 8)):
        out = succeed("train.py", "--device=cpu", *line.split(), "--help").out
        words = " ".join(out.split())
        assert f"residual stream. (default: {width})" in words
        for option in ("--ngram_dropout", "--logit_scale", "--eval_interval"):
            assert re.search(rf"{option} \w+ [^()]*\(default: auto\)", words)
    assert "going on" not in out and contents(trained).keys() == set(RUN_FILES)


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
    assert f"{count_parameters(best.model_config):,} parameters" in result.err
    advice = shlex.split(result.err.splitlines()[-1])
    assert advice[-1].endswith("sample.py")  # out is where it looks
    assert "step 6 of 6: loss" in result.err
    read = 6 * 2 * 8 / len(sources.corpus_of("tiny").train)
    assert f"6 steps, which read the text {read:,.1f} times" in result.err
    assert "the length of the text decides: eval_interval 6" in result.err
    assert steps_in(out) == [2, 4, 6]
    assert (best.train_config.max_iters, best.corpus_name) == (6, "tiny")
    assert best.train_config.eval_interval == 6  # it follows the length
    dtype = choose_device(DeviceConfig(device="cpu")).dtype_name
    assert best.device_config == DeviceConfig(device="cpu", dtype=dtype)
    assert best.model_config == replace(PRESETS["mini"].model, vocab_size=len(set(TEXT)), **SHAPE)


def test_resume_with_more_steps_and_another_dropout(trained):
    before = last_of(trained)
    line = "--resume --max_iters 12 --dropout 0.1 --ngram_dropout 0.3 --log_interval 1"
    said, *others = succeed("train.py", *line.split()).err.splitlines()
    assert (
        "changed: dropout 0.0 → 0.1, ngram_dropout 0.1 → 0.3, max_iters 6 → 12, log_interval 10 → 1"
    ) in others
    last = last_of(trained)
    assert last.progress.step == 12
    assert last.device_config == before.device_config
    assert last.train_config == replace(before.train_config, max_iters=12, log_interval=1)
    assert last.model_config == replace(before.model_config, dropout=0.1, ngram_dropout=0.3)
    assert said.startswith("going on with the run in out after step 6; it was done: ")
    factor = re.search(r"its learning rates rise again, to (0\.\d\d) of the peak$", said)[1]
    rates = {line["step"]: line["lr"] for line in conftest.metrics_of(trained)}
    assert list(rates) == [6, 7, 8, 9, 10, 11, 12]
    peak = last.train_config.learning_rate
    assert rates[7] == pytest.approx(float(factor) * peak, abs=0.005 * peak)
    assert rates[7] > rates[6]


@pytest.mark.parametrize("more", [(), ("--init_from=out/best.safetensors",)])
def test_resume_where_there_is_no_run_begins_one(trained, more):
    line = [*TINY, "--corpus=tiny", "--preset=auto", "--resume", "--out_dir=new", *more]
    assert first_line(succeed("train.py", *line, "--max_iters=2")) == "a new run in new"
    rate = last_of("new").train_config.learning_rate
    assert rate == pytest.approx(PRESETS["mini"].train.learning_rate * (0.2 if more else 1))
    result = succeed("train.py", *line, "--max_iters=3")
    assert first_line(result).startswith("going on with the run in new after step 2")
    assert steps_in(Path("new")) == [2, 3]
    assert last_of("new").train_config.learning_rate == rate


def test_a_run_that_patience_ended_says_so_and_how_to_go_on(project):
    """Without learning nothing gets better."""
    still = [f"--{name}learning_rate=0" for name in ("", "muon_", "ngram_")]
    train_tiny("--max_iters=6", "--eval_interval=1", "--patience=2", *still)
    said = first_line(succeed("train.py", "--resume", "--max_iters=9"))
    assert said.startswith("going on with the run in out after step 3; it is done: ")
    assert "or --patience 0" in said
    result = succeed("train.py", "--resume", "--patience=0")
    assert first_line(result) == "going on with the run in out after step 3"
    assert "changed: patience 2 → 0" in result.err.splitlines()
    assert steps_in(project / "out") == [1, 2, 3, 4, 5, 6]


def test_what_others_keep_in_out_dir_stays(project):
    """As an export for Hugging Face, which has a config.json."""
    foreign = ["config.json", "best.safetensors.bak", "tensorboard/mine", "tensorboard/events.out"]
    paths = [project / "out" / name for name in foreign]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    train_tiny("--max_iters=1")
    assert sorted(contents(project / "out")) == sorted([*foreign[:2], *RUN_FILES])
    train_tiny("--max_iters=1", "--overwrite")
    train_tiny("--resume", "--max_iters=2")
    assert [path.read_text() for path in paths] == [path.name for path in paths]


def test_a_file_of_somebodys_is_in_the_way_before_a_text_is_read(project, monkeypatch):
    monkeypatch.delattr(sources, "corpus_of")
    path = project / "out" / "metrics.jsonl"
    path.parent.mkdir()
    path.write_text('{"step": 1}')
    for more in ([], ["--overwrite"], ["--resume"]):
        done = run("train.py", *TINY, "--corpus=tiny", *more)
        assert_refused(done, "train.py", "out/metrics.jsonl is in the way: no checkpoint in out sa")
    assert contents(project / "out") == {"metrics.jsonl": b'{"step": 1}'}


def test_resume_of_a_run_that_is_done_shows_its_result_again(project):
    first = train_tiny("--max_iters=6")
    before = contents(project / "out")
    again = succeed("train.py", "--resume")
    assert again.out == first.out
    assert " after step 6; it is done: to go on, give a larger" in first_line(again)
    (result,) = (line for line in first.err.splitlines() if line.startswith("validation loss "))
    assert result.endswith(" bits), at step 6")
    assert result in again.err.splitlines()
    assert contents(project / "out") == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--resume --corpus=other.txt", ["another text than other"]),
        ("--resume --seed=1", ["damaged"]),
        ("--corpus=other.txt", ["out", "--resume", "--overwrite", "--out_dir"]),
    ],
)
def test_a_run_that_is_refused_changes_nothing(project, trained, monkeypatch, line, words):
    """And where the folder is the reason, no text is read before, and no model built."""
    with open(trained / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 7, "tok')
    if words == ["damaged"]:
        path = trained / "last.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
    (project / "other.txt").write_text(OTHER, encoding="utf-8")
    if not line.startswith("--resume"):
        monkeypatch.delattr(sources, "corpus_of")
        monkeypatch.delattr(train, "make_plan")
    # But for the lock, which Python 3.10 opens for writing.
    files = [path for path in trained.iterdir() if path.name != ".lock"]
    before = {path: path.stat().st_mtime_ns for path in files}
    raw = contents(trained)
    result = run("train.py", "--max_iters=9", "--device=cpu", *line.split())
    assert_refused(result, "train.py", *words)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert contents(trained) == raw


def test_a_kill_costs_no_more_than_a_minute(project, monkeypatch):
    clock = SimpleNamespace(now=0)
    last = project / "out" / "last.safetensors"
    found = []

    def take_a_step(report: Report) -> None:
        if report.step < 8:  # then it is evaluated
            clock.now += 25  # seconds
            found.append(checkpoint.load(last).progress.step if last.exists() else 0)

    monkeypatch.setattr(run_folder, "time", SimpleNamespace(monotonic=lambda: clock.now))
    conftest.watch_reports(monkeypatch, take_a_step)
    train_tiny("--max_iters=8", "--eval_interval=8", "--log_interval=1")
    assert found == [0, 0, 0, 3, 3, 3, 6]  # each before the step's own save


@pytest.mark.parametrize(("when", "name"), [("before", "SIGINT"), ("inside", "SIGTERM")])
def test_a_run_that_was_stopped_at_an_evaluation_goes_on_to_the_same_bits(
    project, monkeypatch, when, name
):
    """It is saved before; and an evaluation that has begun comes to its end."""
    args = conftest.instead(conftest.ARGS, "--max_iters=3", "--eval_interval=2")
    succeed("train.py", *args, "--out_dir=whole")
    number = getattr(signal, name)
    write = TrainingLoop._sample

    def write_when_stopped(loop: TrainingLoop) -> str:
        signal.raise_signal(number)
        return write(loop)

    with monkeypatch.context() as patch:
        if when == "inside":
            patch.setattr(TrainingLoop, "_sample", write_when_stopped)
        else:
            conftest.watch_reports(patch, lambda r: r.step == 2 and signal.raise_signal(number))
        result = run("train.py", *args, "--out_dir=it's new")
    assert (result.status, result.out) == (128 + number, "")
    assert last_of("it's new").progress.is_evaluated == (when == "inside")
    advice = result.err.splitlines()[-1]
    assert "stopped and saved at step 2; go on with: " in advice
    _, script, *options = shlex.split(advice.partition("go on with: ")[2])
    assert script.endswith("train.py")
    succeed("train.py", *options)
    conftest.assert_same_run(project / "it's new", project / "whole")


def edited(path: Path) -> None:
    path.write_text(OTHER, encoding="utf-8")


@pytest.mark.parametrize("harm", [edited, Path.unlink, lambda path: path.rename("moved.txt")])
def test_a_run_on_a_text_of_ones_own_goes_on_without_it(project, monkeypatch, harm):
    """It is measured and becomes a page, too, in whatever folder it lies."""
    monkeypatch.setattr(evaluate, "SAMPLE_LENGTH", 30)
    raw = (TEXT + "ñ").encode("windows-1252")
    (project / "mine.txt").write_bytes(raw)
    line = [*TINY, "--max_iters=1", "--corpus=mine.txt"]
    assert_refused(run("train.py", *line), "train.py", "it may be --encoding windows-1252")
    begun = succeed("train.py", *line, "--encoding=windows-1252")
    assert "mine begins with «En un lugar de la Mancha, de cuyo" in begun.err
    assert "out keeps the text (corpus.txt): who gets the folder gets the text\n" in begun.err
    assert (project / "out" / "corpus.txt").read_text("utf-8") == f"{TEXT}ñ\n"
    harm(project / "mine.txt")
    (project / "out").rename("elsewhere")
    resumed = succeed("train.py", "--resume", "--out_dir=elsewhere", "--max_iters=2")
    assert "begins with" not in resumed.err and "keeps the text" not in resumed.err
    assert last_of("elsewhere").progress.step == 2
    assert "ñ" in last_of("elsewhere").characters
    measured = succeed("evaluate.py", "--checkpoint=elsewhere")
    assert measured.err == "" and f"over {len(TEXT) // 10:,} characters" in measured.out
    page = succeed("convert.py", "to-page", "--checkpoint=elsewhere")
    assert "characters of mine" in page.err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train.py --resume --max_iters=9", "out/corpus.txt is in the way: "),
        ("evaluate.py", "out/corpus.txt is not the text that out/best.safetensors learned from"),
        ("convert.py to-page", "out/corpus.txt is not the text that out/best.safetensors learned"),
    ],
)
def test_a_text_that_is_not_the_runs_is_an_error(trained, line, words):
    path = trained / "corpus.txt"
    path.write_text(TEXT.replace("Mancha", "mancha"), encoding="utf-8")
    before = contents(trained)
    name, *args = line.split()
    assert_refused(run(name, *args), name, words)
    assert contents(trained) == before


def test_what_is_odd_in_a_text_is_told_when_a_run_begins_and_not_again(project):
    text = "Sancho\n" * 300 + "\ufeff\0\n" + "Sancho\n" * 300 + "\xad\n"
    (project / "long.txt").write_text(text, encoding="utf-8")
    line = [*TINY, "--corpus=long.txt", "--max_iters=1"]
    odd = "note: long has 1 NUL, 1 byte order marks (U+FEFF), 1 soft hyphens (U+00AD)\n"
    assert odd in succeed("train.py", *line).err
    assert "long has" not in succeed("train.py", "--resume", "--max_iters=2").err
    assert "long has" not in succeed("convert.py", "to-page").err


def test_without_a_network_there_is_no_shakespeare(project):
    result = run("train.py", "--corpus", "shakespeare")
    said, result.err = result.err.splitlines(keepends=True)
    assert said == "note: downloading shakespeare from raw.githubusercontent.com\n"
    todo = "and give the file as --corpus, or keep it as "
    assert_refused(result, "train.py", "not be downloaded (raw.githubusercontent.com: ", todo)
    assert not (project / "data" / "shakespeare.txt").exists()


def test_a_path_after_an_equals_sign_may_begin_at_home(project, monkeypatch):
    """A shell leaves the ~ there alone."""
    monkeypatch.setenv("HOME", str(project / "home"))
    monkeypatch.setenv("USERPROFILE", str(project / "home"))
    (project / "home").mkdir()
    shutil.copy("tiny.txt", "home/mine.txt")
    succeed("train.py", *TINY, "--corpus=~/mine.txt", "--out_dir=~/x", "--max_iters=1")
    for line in (["--checkpoint=~/x"], ["--out_dir=~/x", "--start=FILE:~/mine.txt"]):
        succeed("sample.py", "--max_new_tokens=1", *line)
    assert not (project / "~").exists()


def test_a_run_can_be_read_but_not_touched_while_it_goes_on(trained, server_of_processes):
    before = contents(trained)
    with somebody(trained):
        for mode in ("--overwrite", "--resume", "--seed=1"):
            result = run("train.py", mode, "--corpus=tiny", "--device=cpu")
            assert_refused(result, "train.py", "out is in use by another process; wait for it")
        assert len(succeed("sample.py", "--start=En", "--max_new_tokens=9").out) == 12
    assert contents(trained) == before


def test_a_run_that_was_made_while_another_began_stays(project, monkeypatch):
    corpus_of = sources.corpus_of

    def meanwhile(*args: object) -> Corpus:
        monkeypatch.setattr(sources, "corpus_of", corpus_of)
        conftest.train_quietly(project, Path("out"), 3)
        meanwhile.made = contents(Path("out"))
        return corpus_of(*args)

    monkeypatch.setattr(sources, "corpus_of", meanwhile)
    done = run("train.py", *TINY, "--corpus=tiny", "--max_iters=2")
    assert_refused(done, "train.py", "out holds a run already; go on with it (--resume)")
    assert contents(Path("out")) == meanwhile.made


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_a_run_that_is_done_shows_its_result_without_the_best(trained, harm):
    best = trained / "best.safetensors"
    best.unlink() if harm == "gone" else best.write_bytes(best.read_bytes()[:-9])
    done = succeed("train.py", "--resume")
    assert "it is done" in done.err and "validation loss" in done.err and done.out
    assert best.name in done.err.partition("note: ")[2]
    if harm == "damaged":  # it is kept: something of it may be wanted
        assert (trained / f"{best.name}.damaged").exists()


def test_a_run_whose_first_evaluation_was_the_best_is_told(project):
    """Without learning nothing gets better."""
    line = ["--max_iters=2", "--eval_interval=1"]
    still = [f"--{name}learning_rate=0" for name in ("", "muon_", "ngram_")]
    words = "note: the first evaluation, at step 1, was the best"
    assert words in train_tiny(*line, *still).err
    assert words not in train_tiny(*line, "--out_dir=other").err
    assert checkpoint.load("other/best.safetensors").progress.step == 2
