"""The scripts as they are typed: options in, files and text out, one clear line for an error."""

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import conftest
import numpy as np
import pytest
import torch
from conftest import ROOT, SCRIPTS, TEXT, assert_refused, contents, option_names, run, succeed
from test_files import somebody

import evaluate
import train
from sancho import checkpoint
from sancho import generate as sancho_generate
from sancho.command import cli, terminal
from sancho.config import DeviceConfig, SampleConfig
from sancho.errors import UserError
from sancho.loss import validation_loss
from sancho.machine.device import choose_device
from sancho.presets import PRESETS, TrainOptions
from sancho.run import folder as run_folder
from sancho.run.report import Report
from sancho.shared.weights import count_parameters
from sancho.text import sources
from sancho.training import TrainingLoop

SampleOptions = SCRIPTS["sample.py"].SampleOptions
pytestmark = pytest.mark.usefixtures("project")

SHAPE = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 8, "ngram_rows": 16}
SHAPE |= {"ngram_dropout": 0.1}  # or it follows the text
TINY = [f"--{name}={value}" for name, value in SHAPE.items()] + ["--batch_size=2", "--device=cpu"]
OTHER = "Otro texto, que no es aquel.\n" * 30
RUN_FILES = [
    "best.safetensors",
    "corpus.txt",
    "curve.svg",
    "last.safetensors",
    "metrics.jsonl",
]
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
    return shutil.copytree(trained_files, project / "out")


def train_tiny(*args: str | Path) -> SimpleNamespace:
    """Train a tiny model, on the tiny text if `args` say nothing else."""
    return succeed("train.py", *TINY, "--corpus=tiny", *args)


def steps_in(out: Path) -> list[int]:
    return [line["step"] for line in conftest.metrics_of(out)]


def last_of(out: str | Path) -> checkpoint.Checkpoint:
    return checkpoint.load(Path(out, "last.safetensors"))


def first_line(result: SimpleNamespace) -> str:
    return result.err.splitlines()[0]


def fail(error: BaseException) -> None:
    raise error


# --- options --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["-- Bien-aventurado=x-y", "--seed is-it"])
def test_a_value_may_begin_with_dashes(value):
    line = ["--start", value, "--stop", value, "a-b", "--stop=-c", "--top_k", "5", "--min_p=.1"]
    sampling = SampleConfig(top_k=5, min_p=0.1)
    expected = SampleOptions(start=value, stop=(value, "a-b", "-c"), sampling=sampling)
    assert cli.parse(SampleOptions(), line) == expected
    assert cli.parse(SampleOptions(), ["--start=--top_k"]).start == "--top_k"


@dataclass(frozen=True, kw_only=True)
class SeveralOptions:
    """Read some texts, one after the other."""

    corpus: tuple[str, ...] = ("quijote",)
    """The texts to read."""
    also: tuple[Path, ...] = (Path("a.txt"), Path("b.txt"))
    """Files to read after them."""
    stop: tuple[str, ...] = ()
    """Where to stop reading."""


def test_an_option_of_several_values_extends_and_shows_its_default_as_it_is_typed(capsys):
    assert cli.parse(SeveralOptions(), []) == SeveralOptions()
    line = "--corpus a b --also=x --corpus=c --also y".split()
    found = cli.parse(SeveralOptions(), line)
    assert found == SeveralOptions(corpus=("a", "b", "c"), also=(Path("x"), Path("y")))
    with pytest.raises(SystemExit):
        cli.parse(SeveralOptions(), ["--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert "The texts to read. (default: quijote) --also" in words
    assert "after them. (default: a.txt b.txt) --stop" in words
    assert words.endswith("Where to stop reading.")


OPTIONS = {
    "train.py": TrainOptions(),
    "sample.py": SampleOptions(),
    "evaluate.py": SCRIPTS["evaluate.py"].EvaluateOptions(),
}


@pytest.mark.parametrize(("name", "options"), OPTIONS.items())
def test_the_help_shows_all_options(trained, name, options):
    """It needs no run; of one that goes on it shows the options."""
    result = succeed(name, "--help")
    assert result.err == "" and "(default: )" not in result.out
    assert ("--checkpoint" in result.out) == ("The checkpoint to load" in result.out)  # inherited
    _, *lines = result.out.partition("options:")[2].splitlines()
    found = re.findall(r"^  (?:-\w, )?--(\w+)", "\n".join(lines), re.MULTILINE)
    assert sorted(found) == sorted([*option_names(options), "help"])
    opposites = re.findall(r"^  --\w+, --no-(\w+)", result.out, re.MULTILINE)
    owners = [options, *(value for value in vars(options).values() if is_dataclass(value))]
    switches = {field.name for owner in owners for field in fields(owner) if field.type is bool}
    assert set(opposites) == switches


CONVERSIONS = {
    f"convert.py {name}": options for name, (options, _) in SCRIPTS["convert.py"].COMMANDS.items()
}


@pytest.mark.parametrize(("name", "options"), (OPTIONS | CONVERSIONS).items())
def test_every_option_has_a_sentence_and_every_script_an_opening_one(name, options):
    assert re.match(r"[A-Z].{20,}\.$", cli.summary(options)), name
    inner = [value for value in vars(options).values() if is_dataclass(value)]
    for owner in (options, *inner):
        helps = cli._helps(type(owner))
        for option in option_names(owner) - option_names_inside(owner):
            assert re.match(r"[A-Z].{9,}[.)]$", helps.get(option, "")), f"--{option}"


def test_the_help_of_convert_opens_with_what_it_does_and_lists_every_command():
    usage, _, opening, *lines = succeed("convert.py", "--help").out.splitlines()
    assert usage.startswith("usage: convert.py COMMAND")
    assert re.match(r"[A-Z].{20,}\.$", opening)
    assert [line.split()[0] for line in lines[2:]] == list(SCRIPTS["convert.py"].COMMANDS)


def option_names_inside(owner: object) -> set[str]:
    names = set()
    for value in vars(owner).values():
        names |= option_names(value) if is_dataclass(value) else set()
    return names


def test_the_help_of_train_shows_what_holds_where_nothing_is_said(trained):
    for line, width in (("--preset=base", 384), ("--preset=classic", 128), ("--resume", 8)):
        out = succeed("train.py", "--device=cpu", *line.split(), "--help").out
        words = " ".join(out.split())
        assert f"residual stream. (default: {width})" in words
        for option in ("--ngram_dropout", "--logit_scale", "--eval_interval"):
            assert re.search(rf"{option} \w+ [^()]*\(default: auto\)", words)
    assert "going on" not in out and contents(trained).keys() == set(RUN_FILES)


# What is out of range in each option: test_config.py; what exports refuse: tests/convert.
BAD_LINES = [
    ("train.py", "--n_layr 4", "unknown option --n_layr; did you mean --n_layer?"),
    ("train.py", "spare", "spare belongs to no option; each value comes after its option"),
    ("train.py", "tiny.txt", "tiny.txt belongs to no option; give it as --corpus tiny.txt"),
    ("train.py", "x.safetensors", "give it as --init_from x.safetensors"),
    ("sample.py", "tiny.txt", "give it as --start FILE:tiny.txt"),
    ("evaluate.py", "x.safetensors", "give it as --checkpoint x.safetensors"),
    ("sample.py", "--start En un", "un belongs to no option; put a text with spaces in quotation"),
    ("sample.py", "—start En", "unknown option —start; did you mean --start?"),
    ("sample.py", "--prompt En", "unknown option --prompt; here it is called --start"),
    ("sample.py", "--promt En", "unknown option --promt; did you mean --start?"),
    ("train.py", "--data-dir x", "unknown option --data-dir; here it is called --corpus"),
    ("sample.py", "--steps 9", "unknown option --steps; --help lists all options"),
    ("train.py", "--min_lr 1", "unknown option --min_lr; --help lists all options"),
    ("train.py", "--no_qk_norm", "did you mean --no-qk_norm?"),
    ("train.py", "--compile True", "a switch takes no value: give --NAME to turn it on, or"),
    ("train.py", "--max_iters 3.000", "invalid int value: '3.000'; give a whole number, written"),
    ("train.py", "--init_from resume", "--resume continues a run"),
    ("train.py", "--corpus https://x/y.txt", "is an address; download it"),
    ("train.py", "--corpus=", "--corpus is ('',); it must be names or paths, none of them empty"),
    ("train.py", "--dataset tiny", "unknown option --dataset; here it is called --corpus"),
    ("train.py", "--preset midi --seed 1 --preset base", "--preset is given twice, as midi and as"),
    (
        "train.py",
        "--seed 1 --seed 2 --seed 1",
        "--seed is given twice, as 1 and as 2; give it once",
    ),
    ("train.py", "--qk_norm --no-qk_norm", "--qk_norm and --no-qk_norm are both given; leave one"),
    ("sample.py", "--start En --start=un", "--start is given twice, as En and as un; give it"),
    ("sample.py", "--checkpoint a --out_dir b", "--checkpoint a and --out_dir b are two values of"),
    ("evaluate.py", "--out_dir a --checkpoint b", "--out_dir a and --checkpoint b are two values"),
    (
        "train.py",
        "--validation x",
        "always the last tenth of the text (of several files, the last",
    ),
    ("train.py", "--save_interval 9", "train.py saves by itself every minute and at evaluations"),
    ("sample.py", "--seed abc", "--seed: invalid Number value: 'abc'"),
    ("sample.py", "--out-dir x", "unknown option --out-dir; did you mean --out_dir?"),
    ("sample.py", "--file x", "unknown option --file; here it is called --start FILE:PATH"),
    ("convert.py", "--out_dir x to-page", "unknown command --out_dir; the command comes first"),
    ("train.py", "--compile=False", "a switch takes no value: give --NAME to turn it on, or"),
    (
        "sample.py",
        "--temperature 0,5",
        "invalid float value: '0,5'; write the number with a decimal",
    ),
    ("sample.py", "--checkpoint MODEL --stop Ω", "--stop 'Ω' can never come up: the model does"),
    ("sample.py", r"--checkpoint MODEL --stop a\n", r"a line break is typed as $'\n' in bash"),
    ("sample.py", r"--checkpoint MODEL --start a\n", "at position 1", r"typed as $'\n' in bash"),
    ("train.py", "--n_layer four", "--n_layer: invalid int value: 'four'"),
    ("train.py", "--n_layer", "--n_layer: expected one argument; give a value that begins with -"),
    ("train.py", "--resume --overwrite", "--resume is True; ", "--overwrite"),
    ("train.py", "--corpus missing.txt", "missing.txt", "does not exist"),
    ("train.py", "--corpus Tiny", "the text Tiny does not exist;", "quijote, shakespeare, tiny"),
    ("train.py", "--threads auto", "invalid int value: 'auto'; leave the option out to have"),
    ("train.py", "--corpus tiny --out_dir tiny.txt", "tiny.txt can't be written (", "choose"),
    ("train.py", "--encoding latin-1", "--encoding is 'latin-1'", "--corpus"),
    ("sample.py", "--stop=", "--stop"),
    ("sample.py", "--checkpoint data", "the folder data has no checkpoint;"),
    ("evaluate.py", "--checkpoint MODEL", "learned from golden, but corpus.txt is not beside it"),
    ("train.py", "--corpus tiny --out_dir PRETRAINED", "is the pretrained model's; choose another"),
    ("convert.py", "", "give a command; the commands are to-page, to-huggingface, to-onnx"),
    ("convert.py", "to-pag", "unknown command to-pag; did you mean to-page?"),
]


def test_the_same_value_twice_is_one_and_what_takes_several_keeps_all(project):
    (project / "a").write_text("x")
    line = "--checkpoint out/ --seed 7 --out_dir=out --seed=7 --stop a b --stop c --stop=a".split()
    found = cli.parse(SampleOptions(), line)
    assert (found.checkpoint, found.seed, found.stop) == (Path("out"), 7, ("a", "b", "c", "a"))
    twice = ["--resume", "--resume", "--no-qk_norm", "--no-qk_norm"]
    assert not cli.parse(TrainOptions(), twice).model.qk_norm
    odd = run("sample.py", "--start", "a\nb", "--start", "x" * 99)
    assert_refused(odd, "sample.py", rf"as 'a\nb' and as {'x' * 59}…; give it once")


@pytest.mark.parametrize(
    ("name", "line", "parts"),
    [(name, line, parts) for name, line, *parts in BAD_LINES],
    ids=[f"{name} {line}"[:60] for name, line, *_ in BAD_LINES],
)
def test_a_line_that_cannot_be_used(project, name, line, parts):
    before = conftest.everything(project)
    places = {"MODEL": MODEL, "PRETRAINED": checkpoint.PRETRAINED.parent}
    args = [str(places.get(word, word)) for word in line.split()]
    assert_refused(run(name, *args), name, *parts)
    assert conftest.everything(project) == before


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
def test_a_bug_passes_through(error):
    with pytest.raises(type(error)):
        terminal.run_script(lambda: fail(error))


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


def test_a_checkpoint_that_lies_alone_asks_for_its_text(trained):
    (trained / "corpus.txt").unlink()
    words = ["learned from tiny, but corpus.txt is not beside it; give its text as --corpus"]
    for line in ("train.py --resume", "evaluate.py --checkpoint out"):
        name, *args = line.split()
        assert_refused(run(name, *args), name, *words)
    said = succeed("evaluate.py", "--checkpoint=out", "--corpus=tiny.txt").err
    assert said == "note: the model learned from tiny: its validation part is scored\n"
    succeed("train.py", "--resume", "--corpus=tiny.txt", "--max_iters=7")
    assert (trained / "corpus.txt").read_text("utf-8") == TEXT
    succeed("train.py", "--resume", "--max_iters=8")


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


# --- sample.py ------------------------------------------------------------------------------


def test_stdout_is_the_prompt_its_continuation_and_a_newline(trained):
    line = ["--start", "En un lugar", "--max_new_tokens=30"]
    result = succeed("sample.py", *line)
    read = "the model reads the last 8, as many as its context has"
    assert result.err == f"note: the start has 11 characters; {read}\n"
    assert succeed("sample.py", "--start=En un lu").err == ""
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
    line = ["--max_new_tokens=9", "--start"]
    plain = run("sample.py", *line, "Mancha,\n de").out
    raw = b"\xef\xbb\xbfMancha,\r\n de"
    (project / "mi inicio.txt").write_bytes(raw)
    assert run("sample.py", *line, "FILE:mi inicio.txt").out == plain
    assert run("sample.py", *line, "-", stdin=raw).out == plain
    # An editor and echo end the last line; of "\\n" alone nothing would be left.
    assert run("sample.py", *line, "-", stdin=raw + b"\r\n").out == plain
    assert run("sample.py", *line, "-", stdin=b"\n").out == run("sample.py", *line, "\n").out
    for stdin, words in ((b"En\xf1", "standard input is not UTF-8: byte 0xf1 at"), (b"", "empty")):
        assert_refused(run("sample.py", *line, "-", stdin=stdin), "sample.py", words)


def test_unknown_characters_named_skipped_or_replaced(trained):
    line = ["--start", "Él1", "--max_new_tokens", "0"]
    words = ("'É' at position 0", "'1' at position 2", "--unknown")
    assert_refused(run("sample.py", *line), "sample.py", *words)
    assert run("sample.py", *line, "--unknown=skip").out == "l\n"
    assert_refused(run("sample.py", *line, "--unknown=nearest"), "sample.py", "'1' at position 2")
    assert run("sample.py", "--start=Él", *line[2:], "--unknown=nearest").out == "El\n"


def test_each_of_several_samples_is_what_it_is_alone(trained):
    line = ["--start", "En un", "--max_new_tokens", "40"]
    alone, three = (run("sample.py", *line, f"--num_samples={n}") for n in (1, 3))
    assert three.err == ""
    _, *texts = re.split(r"--- \d of 3\n", three.out)  # in a file; in a terminal: on stderr
    assert texts[0] == alone.out
    assert len(set(texts)) == 3 and {len(text) for text in texts} == {46}


def test_a_text_goes_on_until_its_sentence_ends(trained):
    longer = run("sample.py", "--max_new_tokens=400").out
    found = run("sample.py", "--max_new_tokens=200", "--until_sentence").out
    page = found.removesuffix("\n")
    assert longer.startswith(page) and 201 <= len(page) <= 401
    assert len(page) == 401 or (page[-1] == "." and longer[len(page)] in " \n")


def test_a_seed_that_is_drawn_can_be_given_again(trained):
    line = ["--start=En", "--max_new_tokens=40"]
    first, other = (run("sample.py", *line, "--seed", "random") for _ in range(2))
    assert first.out != other.out
    said = re.fullmatch(
        r"note: the seed was drawn at random; (--seed \d+) gives the same .*\n", first.err
    )
    again = run("sample.py", *line, *said[1].split())
    assert (again.out, again.err) == (first.out, "")


def test_a_text_that_is_interrupted_is_no_error_with_a_traceback(trained, monkeypatch):
    whole = run("sample.py", "--max_new_tokens=20").out
    generate = sancho_generate.generate

    def generate_a_little(*args, **kwargs):
        yield from itertools.islice(generate(*args, **kwargs), 12)
        raise KeyboardInterrupt

    monkeypatch.setattr(sancho_generate, "generate", generate_a_little)
    result = run("sample.py", "--max_new_tokens=20")
    assert (result.status, result.err) == (130, "\ninterrupted\n")
    assert result.out == whole[: 1 + 12]


# --- the other scripts ----------------------------------------------------------------------


def test_without_a_network_there_is_no_shakespeare(project):
    result = run("train.py", "--corpus", "shakespeare")
    said, result.err = result.err.splitlines(keepends=True)
    assert said == "note: downloading shakespeare from raw.githubusercontent.com\n"
    todo = "and give the file as --corpus, or keep it as "
    assert_refused(result, "train.py", "not be downloaded (raw.githubusercontent.com: ", todo)
    assert not (project / "data" / "shakespeare.txt").exists()


def test_evaluate_tells_a_reader_or_a_program(trained, monkeypatch):
    monkeypatch.setattr(evaluate, "SAMPLE_LENGTH", 30)
    monkeypatch.setattr(evaluate, "LEAST_COMPARED", 100)
    result = succeed("evaluate.py")
    assert result.err == ""
    assert "validation loss" in result.out and "the author" in result.out
    about = " ".join(result.out.partition("\nThe text that was scored is ")[2].split())
    parameters = count_parameters(last_of("out").model_config)
    assert about.startswith(f"tiny. The model has {parameters:,} parameters and learned from tiny ")
    changed = "block_size 8, n_layer 1, n_embd 8, ngram_rows 16, ngram_dropout 0.1, batch_size 2"
    assert about.endswith(f"in 6 steps, with the options of the preset mini except {changed}.")
    result = succeed("evaluate.py", "--checkpoint", "out/best.safetensors", "--json")
    loss = checkpoint.load("out/best.safetensors").progress.val_loss
    assert json.loads(result.out)["loss"] == pytest.approx(loss, abs=1e-5)


def test_evaluate_scores_all_of_a_text_of_ones_own_and_writes_nothing(
    project, trained, monkeypatch
):
    monkeypatch.setattr(evaluate, "SAMPLE_LENGTH", 30)
    saved = checkpoint.load("out/best.safetensors")
    text = "".join(sorted(set(TEXT) - {"\n"})) * 60 + "\n"
    (project / "own.txt").write_text(text, encoding="utf-8")
    (project / "short.txt").write_text(text[-1000:], encoding="utf-16")
    (project / "strange.txt").write_text(f"{text}ψ", encoding="utf-8")
    (project / "empty.txt").write_text(" \n", encoding="utf-8")
    before = conftest.everything(project)
    result = succeed("evaluate.py", "--corpus", "own.txt")
    loss = validation_loss(saved.build_model(), saved.tokenizer.encode(text))
    assert result.out.startswith(f"validation loss {loss:.4f} nats")
    assert f", over {len(text):,} characters, in windows of 8\n" in result.out
    trained_on = len(sources.corpus_of("tiny").train)
    assert f"{len(text):,} of the author's and {trained_on:,} of the training part" in result.out
    line = ["--corpus=short.txt", "--encoding=utf-16", "--json"]
    short = json.loads(succeed("evaluate.py", *line).out)
    assert short["characters"]["validation"] == 1000
    refused = run("evaluate.py", "--corpus=strange.txt")
    assert_refused(refused, "evaluate.py", "unknown to this model: 'ψ' at", "go on with --unknown")
    skipped = succeed("evaluate.py", "--corpus=strange.txt", "--unknown=skip").out
    assert f"over {len(text) + 1:,} characters" in skipped  # with the line break after the ψ
    refused = run("evaluate.py", "--corpus=empty.txt")
    assert_refused(refused, "evaluate.py", "empty contains no text; give a file that does")
    assert_refused(run("evaluate.py", "--encoding=utf-16"), "evaluate.py", "--corpus names a file")
    assert conftest.everything(project) == before
    (trained / "corpus.txt").unlink()
    said = succeed("evaluate.py", "--corpus", "own.txt").out
    assert f"validation loss {loss:.4f} nats" in said
    assert "to compare it with: the text that the model learned from is not here." in said


# --- as processes of their own --------------------------------------------------------------


def test_a_second_ctrl_c_stops_at_once():
    heard = [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)]
    ours = signal.signal(heard[-1], signal.SIG_DFL)  # nohup may have started the tests
    before = [signal.getsignal(number) for number in heard]
    with terminal.stop_signals(alone=True) as received:
        for number in reversed(heard):
            signal.raise_signal(number)
        assert received == heard[::-1]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in heard] == before
    signal.signal(heard[-1], ours)


@posix
def test_where_nohup_keeps_a_closed_terminal_from_us_it_is_not_heard(monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with terminal.stop_signals(alone=True) as received:
        signal.raise_signal(signal.SIGHUP)
    assert received == []
    signal.signal(signal.SIGHUP, before)


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


@pytest.mark.parametrize("script", ["sample.py", "evaluate.py"])
def test_threads_are_configured_before_the_libraries_are_loaded(tmp_path, monkeypatch, script):
    """What the user has set stays."""
    numpy = "import os, sys; sys.exit('threads ' + os.environ['OPENBLAS_NUM_THREADS'])"
    (tmp_path / "numpy.py").write_text(numpy)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    for expected in ("7", "1"):
        # In the project's folder: it need not be installed.
        command = [sys.executable, ROOT / script]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert done.stderr.strip() == f"threads {expected}"
        monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)


def start_python(script: str, *args: str) -> subprocess.Popen:
    """Start a script in a terminal that knows ASCII alone."""
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, ROOT / script, *args], env=environment, **pipes)


@slow
def test_text_is_utf8_whatever_the_terminal_is(project):
    text = "El ñandú bebió agua fría y «cantó» a la cigüeña.\n" * 9
    (project / "bird.txt").write_text(text, encoding="utf-8")
    succeed("train.py", *TINY, "--corpus", "bird.txt", "--max_iters=1")
    process = start_python("sample.py", "--start=-", "--max_new_tokens=99")
    out, err = process.communicate("«ñandú".encode(), timeout=120)
    assert (process.returncode, err) == (0, b"")
    written = out.decode().replace(os.linesep, "\n")
    assert written.startswith("«ñandú") and len(written) == 6 + 99 + 1
    _, err = start_python("sample.py", "--stañt", "x").communicate(timeout=120)
    assert err.decode().startswith("sample.py: error: unknown option --stañt; did you mean --sta")


@slow
@posix
@pytest.mark.parametrize("seen", [0, 20])
def test_a_reader_that_goes_away_is_no_error(trained, seen):
    process = start_python("sample.py", "--start=En un lu", "--max_new_tokens=100000000")
    assert process.stdout.read(seen)[:8] == b"En un lu"[:seen]
    process.stdout.close()
    err = process.stderr.read().decode()
    assert (process.wait(timeout=120), err) == (0, "")


@posix
@pytest.mark.parametrize("way", ["pipe", pytest.param("terminal", marks=slow)])
def test_no_screen_that_goes_away_ends_a_run(project, way):
    """A reader that has seen enough (| head), or a terminal that is closed, with SIGHUP ignored."""
    reading, writing = os.pipe() if way == "pipe" else os.openpty()
    command = [sys.executable, "-c", RUN_TRAIN, *TINY, "--corpus=tiny", "--max_iters=40"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    screen = {"stdin": writing, "stdout": writing, "stderr": writing}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **screen)
    os.close(writing)
    assert os.read(reading, 1)
    os.close(reading)
    assert process.wait(timeout=120) == 0
    last = checkpoint.load(project / "out" / "last.safetensors")
    assert last.progress.step == 40


@posix
@pytest.mark.parametrize(
    ("closed", "status", "out"), [(0, 2, b""), (1, 0, b""), (2, 0, b"en")], ids="in out err".split()
)
def test_a_stream_that_is_closed_is_nothing_and_stays_so(tmp_path, closed, status, out):
    """No file that is opened takes its place, and only sample.py's text goes to stdout."""
    start = "-" if closed == 0 else "en"
    line = ["--checkpoint", MODEL, "--start", start, "--max_new_tokens=0", "--seed=1"]
    command = [sys.executable, ROOT / "sample.py", *line]
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, preexec_fn=lambda: os.close(closed), **pipes)
    said, err = process.communicate(timeout=120)
    assert (process.returncode, said.rstrip(b"\n")) == (status, out)
    assert err.count(b"\n") == (closed == 0) and b"Traceback" not in err


RUN_TRAIN = """
import signal, sys
from pathlib import Path
from conftest import main_of
from sancho.command import terminal
from sancho.text import sources
signal.signal(signal.SIGHUP, signal.SIG_IGN)
sources.DATA = Path("data")
terminal.run_script(lambda: main_of("train.py", sys.argv[1:]))
"""
