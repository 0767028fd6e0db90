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
import threading
import time
import unicodedata
import warnings
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import Process
from pathlib import Path
from types import SimpleNamespace

import conftest
import numpy as np
import pytest
import torch
from conftest import ROOT, SCRIPTS, TEXT, make_project, parse_train, run, use_data

import train
from sancho import checkpoint, cli
from sancho import generate as sancho_generate
from sancho.config import (
    CorpusConfig,
    DeviceConfig,
    EvaluateOptions,
    ModelConfig,
    RunConfig,
    SampleConfig,
    SampleOptions,
    TrainConfig,
    TrainOptions,
    from_dict,
)
from sancho.errors import UserError
from sancho.machine.device import choose_device
from sancho.machine.distributed import ALONE
from sancho.presets import PRESETS
from sancho.report import measures
from sancho.run import folder as run_folder
from sancho.run import setup
from sancho.run.folder import RunFolder

pytestmark = pytest.mark.usefixtures("project", "one_thread")

SHAPE = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 8, "ngram_rows": 16}
SHAPE |= {"ngram_dropout": 0.1}  # or it follows the text
TINY = [f"--{name}={value}" for name, value in SHAPE.items()] + ["--batch_size=2", "--device=cpu"]
OTHER = "Otro texto, que no es aquel.\n" * 30
RUN_FILES = ["best.safetensors", "config.json", "curve.svg", "last.safetensors", "metrics.jsonl"]
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals, pipes and forks of POSIX")


@pytest.fixture(scope="module")
def trained_files(tmp_path_factory) -> Path:
    """Return the out_dir of a run of six steps over the tiny text."""
    folder = make_project(tmp_path_factory.mktemp("trained"))
    with pytest.MonkeyPatch.context() as patch:
        use_data(patch, folder / "data")
        train_tiny("--max_iters=6", f"--out_dir={folder / 'out'}")
    return folder / "out"


@pytest.fixture
def trained(project, trained_files) -> Path:
    """Return a copy of that out_dir, project/out."""
    shutil.copytree(trained_files, project / "out")
    return project / "out"


def succeed(name: str, *args: str | Path, **options: bytes) -> SimpleNamespace:
    """Run a script that ends well."""
    result = run(name, *args, **options)
    assert result.status == 0, result.err
    return result


def train_tiny(*args: str | Path) -> SimpleNamespace:
    """Train a tiny model, on the tiny text if `args` say nothing else."""
    return succeed("train.py", *TINY, "--dataset=tiny", *args)


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files but .lock, which may stay, and on Windows can't be read where it locks."""
    paths = folder.iterdir() if folder.exists() else ()
    return {
        path.name: path.read_bytes() for path in paths if path.is_file() and path.name != ".lock"
    }


def files_in(folder: Path) -> list[str]:
    return sorted(contents(folder))


def steps_in(out: Path) -> list[int]:
    return [line["step"] for line in conftest.metrics_of(out)]


def configuration_of(out: Path) -> dict[str, dict]:
    return json.loads((out / "config.json").read_text("utf-8"))


def assert_refused(result: SimpleNamespace, name: str, *parts: str) -> None:
    """Assert status 2, nothing on stdout, and one line on stderr that holds `parts`."""
    assert result.status == 2, result.err
    assert result.out == ""
    assert result.err.startswith(f"{name}: error: ")
    assert result.err.count("\n") == 1 and result.err.endswith("\n")
    assert "Traceback" not in result.err
    for part in parts:
        assert part in result.err


# --- spellings ------------------------------------------------------------------------------


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
    assert cli.read(TrainOptions(), line.split()) == {name: value}


@pytest.mark.parametrize("value", ["-- Bien-aventurado", "-- Bien-aventurado=x-y", "--seed is-it"])
def test_a_value_is_never_respelt(value):
    assert cli.parse(SampleOptions(), ["--start", value]).start == value
    assert cli.parse(SampleOptions(), ["--stop", value, "a-b"]).stop == (value, "a-b")
    assert cli.parse(SampleOptions(), ["--start=--top-k"]).start == "--top-k"


def test_options_of_every_part_arrive():
    args = "--preset classic --out-dir a/b --corpus mi.txt --bias --position rope --dtype bfloat16"
    found = parse_train(args.split())
    assert found.run == RunConfig(preset="classic", out_dir=Path("a/b"))
    assert found.data == CorpusConfig(corpus=Path("mi.txt"))
    assert found.model == replace(PRESETS["classic"].model, position="rope", bias=True)
    assert found.train == PRESETS["classic"].train
    assert found.device == DeviceConfig(dtype="bfloat16")
    args = "--start=-x --stop a --stop=bc --unknown nearest --temperature 0 --top_k 5 --min_p=.1"
    sampling = SampleConfig(temperature=0.0, top_k=5, min_p=0.1)
    assert cli.parse(SampleOptions(), args.split()) == SampleOptions(
        start="-x", stop=("a", "bc"), unknown="nearest", sampling=sampling
    )


SWITCHES = "resume overwrite bias embedding_skip qk_norm tie_embeddings compile tensorboard json"
OPTIONS = {
    "train.py": TrainOptions(),
    "sample.py": SampleOptions(),
    "evaluate.py": EvaluateOptions(),
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


def test_the_help_of_training_says_what_holds_here():
    for preset, width in (("base", 384), ("classic", 128)):
        words = " ".join(
            run("train.py", "--device=cpu", f"--preset={preset}", "--help").out.split()
        )
        assert f"residual stream. (default: {width})" in words


# --- one clear line -------------------------------------------------------------------------

# What is out of range in each option: test_config.py.
BAD_LINES = [
    ("train.py", "--n_layr 4", "unknown option --n_layr; did you mean --n_layer?"),
    ("train.py", "--n-layr=4", "unknown option --n-layr; did you mean --n_layer?"),
    ("train.py", "--no_compil", "--no_compil; did you mean --compile?"),
    ("train.py", "--zzzz", "unknown option --zzzz; --help lists all options"),
    ("train.py", "--min_p 0.1", "unknown option --min_p; --help lists all options"),
    ("train.py", "--vocab_size 5", "unknown option --vocab_size; did you mean --block_size?"),
    ("train.py", "spare", "spare"),
    ("train.py", "--bias=true", "--bias is a switch and takes no value ('true')"),
    ("train.py", "--n_layer four", "--n_layer is 'four'; it must be a whole number"),
    ("train.py", "--dropout much", "--dropout is 'much'; it must be a number"),
    ("train.py", "--norm batchnorm", "--norm is 'batchnorm'; it must be one of layernorm, rmsnorm"),
    ("train.py", "--n_layer", "--n_layer needs a value (one that begins with -: --n_layer=VALUE)"),
    ("train.py", "--out_dir -x", "--out_dir needs a value"),
    ("train.py", "--dropout nan", "--dropout is nan; it must be at least 0 and less than 1"),
    ("train.py", "--resume --overwrite", "--resume and --overwrite exclude each other"),
    ("train.py", "--resume", "out", "without --resume"),
    ("train.py", "--init_from missing.safetensors", "missing.safetensors", "does not exist"),
    ("train.py", "--dataset nobody", "nobody", "prepare.py --input"),
    ("train.py", "--dataset ../x", "--dataset", "'../x'"),
    ("train.py", "--corpus missing.txt", "missing.txt", "does not exist"),
    ("train.py", "--corpus data", "data", "folder"),
    ("train.py", "--dataset tiny --out_dir tiny.txt", "tiny.txt can't be written (", "choose"),
    ("train.py", "--dataset tiny --block_size 2000", "tiny", "--block_size 2000", "at least 2223"),
    ("sample.py", "--compile", "unknown option --compile; --help lists all options"),
    ("sample.py", "--top_p 1.1", "--top_p is 1.1; it must be at least 0 and at most 1"),
    ("sample.py", "--stop=", "--stop"),
    ("sample.py", "--checkpoint out/best.safetensors", "best.safetensors does not exist"),
    ("sample.py", "--checkpoint data", "data", "folder"),
    ("evaluate.py", "--checkpoint nothing.safetensors", "nothing.safetensors", "does not exist"),
    ("prepare.py", "--name other", "--input"),
    ("prepare.py", "--input tiny.txt", "--input", "--name"),
    ("prepare.py", "--name ../x --input tiny.txt", "--name", "../x"),
    ("prepare.py", "--name nul --input tiny.txt", "--name", "Windows"),
    ("prepare.py", "--name Tiny --input tiny.txt", "--name Tiny", "data/tiny; choose another"),
    ("prepare.py", "--name Quijote --input tiny.txt", "--name Quijote", "data/quijote;"),
    ("prepare.py", "--encoding latin-1", "--encoding latin-1", "--input"),
    ("prepare.py", "--name x --input tiny.txt --encoding spanish", "--encoding", "spanish"),
    ("train.py", "--dataset tiny --encoding latin-1", "--encoding latin-1", "--corpus"),
]


@pytest.mark.parametrize(
    ("name", "line", "parts"),
    [(name, line, parts) for name, line, *parts in BAD_LINES],
    ids=[f"{name} {line}"[:60] for name, line, *_ in BAD_LINES],
)
def test_a_line_that_cannot_be_used(project, name, line, parts):
    assert_refused(run(name, *line.split()), name, *parts)
    assert files_in(project / "out") == []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("train.py", "--corpus=binary --out_dir=new"),
        ("prepare.py", "--name=new --input=binary"),
        ("sample.py", "--start=FILE:binary"),
    ],
)
def test_a_text_or_a_start_that_is_no_text(project, trained, name, line):
    (project / "binary").write_bytes(b"Quijote\n" * 40_000 + b"\xf1andu")
    parts = ("binary is not UTF-8: byte 0xf1 at offset 320000;",)
    assert_refused(run(name, *line.split()), name, *parts)
    assert not (project / "new").exists()
    assert files_in(project / "data" / "new") == files_in(project / "data" / "binary") == []


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
    threading.Thread(target=lambda: open("pipe", "wb").close(), daemon=True).start()
    for path, words in (("pipe", "a pipe"), (os.devnull, "a device"), ("circle", "does not exist")):
        assert_refused(run(name, *line.split(), prefix + path), name, path, words)
    assert not (project / "new").exists()
    os.close(os.open("pipe", os.O_RDONLY | os.O_NONBLOCK))  # and the thread ends


UNSEEN = "a\0b\x1b[2J\x07\ufeff\u0301 \u0327\u2028\x0c\x85\n\uffff\U0010ffff\u202e"


@pytest.mark.parametrize("text", ["a" * 300, UNSEEN * 20], ids=["one character", "unseen ones"])
def test_an_odd_text_is_learned_and_written(project, text):
    (project / "odd.txt").write_text(text, encoding="utf-8")
    result = succeed("train.py", *TINY, "--corpus=odd.txt", "--max_iters=1")
    assert len(result.out) == 800  # no sentence ends in it
    assert set(result.out) <= set(unicodedata.normalize("NFC", text) + "\n")
    result = succeed("sample.py", "--start", "FILE:odd.txt", "--max_new_tokens=5")
    assert result.out.startswith(text[:3])


def test_weights_as_large_as_numbers_can_be(trained):
    """They are finite, and what is computed with them is not."""
    path = trained / "best.safetensors"
    saved = checkpoint.load(path)
    huge = {name: np.float32(3e38) * np.sign(t) for name, t in saved.weights.items()}
    checkpoint.save(path, replace(saved, weights=huge))
    result = succeed("sample.py", "--max_new_tokens=20")
    assert len(result.out) == 1 + 20 + 1
    assert all(line.startswith("note: ") for line in result.err.splitlines())


def test_a_run_is_not_lost_where_the_new_one_cannot_be(trained):
    before = contents(trained)
    line = [*TINY, "--dataset=tiny", "--overwrite", "--block_size=5000"]
    assert_refused(run("train.py", *line), "train.py", "--block_size 5000")
    assert contents(trained) == before


def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: fail(UserError("one\n  two\r\n\tthree")), "one two three\n"),
        (lambda: fail(OSError(28, "No space left", "out/last.tmp")), "out/last.tmp: No space left"),
        (lambda: np.empty(2**60, dtype=np.uint8), "not enough memory"),
        (lambda: torch.empty(2**60, dtype=torch.uint8), "not enough memory"),
        (lambda: fail(torch.OutOfMemoryError("CUDA out of memory.")), "not enough memory"),
    ],
    ids=["several lines", "a full disk", "NumPy's memory", "PyTorch's", "a GPU's"],
)
def test_what_the_user_can_mend_is_one_line(monkeypatch, act, words):
    monkeypatch.setattr(train, "main", lambda args: act())
    result = run("train.py")
    assert_refused(result, "train.py", f"error: {words}")
    assert "--" not in result.err  # other scripts lack its options


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), RuntimeError("x"), OSError()])
def test_a_bug_passes_through(monkeypatch, error):
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(type(error)):
        cli.exit_with(lambda args: fail(error))


# --- train.py -------------------------------------------------------------------------------


def test_train_from_beginning_to_end(project):
    result = train_tiny("--max_iters=6", "--log_interval=2")
    out = project / "out"
    assert files_in(out) == RUN_FILES
    longer = succeed("sample.py", "--max_new_tokens=800").out.removeprefix("\n")
    page = result.out
    assert longer.startswith(page) and set(page) <= set(TEXT)
    # It ends with a sentence or, where none ends, with its 800th character.
    assert 400 <= len(page) <= 800
    assert len(page) == 800 or (page[-1] == "." and longer[len(page)] in " \n")
    best = checkpoint.load(out / "best.safetensors")
    assert f"{best.progress.val_loss:.4f} nats" in result.err
    assert f"{best.progress.val_loss / 0.6931471805599453:.3f} bits" in result.err
    assert f"{best.build_model().count_parameters():,} parameters" in result.err
    assert f" sample.py --checkpoint {Path('out', 'best.safetensors')}" in result.err
    assert "step 6 of 6: loss" in result.err
    assert steps_in(out) == [2, 4, 6]
    started = configuration_of(out)
    assert (started["train"]["max_iters"], started["data"]["dataset"]) == (6, "tiny")
    assert started["run"]["preset"] == "mini"  # where the user says nothing
    assert started["train"]["eval_interval"] == 6  # it follows the length
    assert from_dict(ModelConfig, started["model"]) == best.model
    assert best.model == replace(PRESETS["mini"].model, vocab_size=len(set(TEXT)), **SHAPE)


def test_resume_with_more_steps_and_another_dropout(trained):
    line = "--resume --max_iters 8 --dropout 0.1 --ngram_dropout 0.3 --device cpu"
    succeed("train.py", *line.split())
    last = RunFolder(trained).load_last()
    assert last.progress.step == 8
    first = configuration_of(trained)["train"]
    assert (first["max_iters"], first["batch_size"]) == (6, 2)
    assert last.train == replace(from_dict(TrainConfig, first), max_iters=8)
    free = {"vocab_size": len(set(TEXT)), "dropout": 0.1, "ngram_dropout": 0.3}
    assert last.model == replace(PRESETS["mini"].model, **SHAPE | free)
    assert steps_in(trained) == [6, 8]


KEPT = "--resume --max_iters=7".split()


def test_resume_keeps_where_and_how_it_computes(trained):
    """All that no checkpoint holds; what is said now comes first, and is not kept."""
    began = configuration_of(trained)
    began["device"], began["compile"] = {"device": "cpu", "dtype": "bfloat16"}, True
    began["run"]["tensorboard"] = True
    (trained / "config.json").write_text(json.dumps(began), encoding="utf-8")

    def found(*args: str) -> tuple:
        kept = setup.kept_options(cli.parse_part(RunConfig(), args))
        device = choose_device(cli.parse_part(kept.device, args))
        with ExitStack() as held:
            options, _, _ = train.choose(args, kept, device, ALONE, held)
        assert choose_device(options.device) == device
        return str(device), options.compile, options.run.tensorboard, options.run.preset

    assert found(*KEPT) == ("bfloat16 on cpu", True, True, "mini")
    said = ["--dtype=float32", "--no_compile", "--no-tensorboard", "--preset=mini"]
    assert found(*KEPT, *said) == ("float32 on cpu", False, False, "mini")
    assert configuration_of(trained) == began


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_resume_of_a_run_of_a_gpu_where_there_is_none(trained):
    began = configuration_of(trained)
    began["device"]["device"] = "cuda"
    (trained / "config.json").write_text(json.dumps(began), encoding="utf-8")
    result = run("train.py", *KEPT)
    assert_refused(result, "train.py", "--device cuda", "--device cpu, or --device auto")
    succeed("train.py", *KEPT, "--device=auto")


@pytest.mark.parametrize(
    "damage", [None, b"", b"\xff", b"7", b"{}", b"[" * 10_000, b'{"compile": 1}', b'{"run": null}']
)
def test_resume_without_a_sound_configuration(trained, damage):
    path = trained / "config.json"
    path.unlink() if damage is None else path.write_bytes(damage)
    notes = succeed("train.py", *KEPT, "--device=cpu").err.splitlines()
    (note,) = (line for line in notes if line.startswith("note: "))
    assert "config.json is missing or damaged" in note


def test_resume_with_the_preset_of_another_run(trained):
    before = contents(trained)
    result = run("train.py", *KEPT, "--preset=classic", "--device=cpu")
    assert_refused(result, "train.py", "--preset classic is not the preset of the run in out;")
    assert contents(trained).items() >= before.items()
    succeed("train.py", *KEPT, "--preset=mini", "--device=cpu")  # its own, if in another shape


@pytest.mark.parametrize(
    "line", ["--batch_size=2000000000", "--ngram_rows=2000000000 --n_embd=65536"]
)
def test_what_no_memory_holds_is_refused_at_once(project, monkeypatch, line):
    monkeypatch.setattr(train, "open_corpus", lambda *args: pytest.fail("that takes time"))
    result = run("train.py", "--dataset=tiny", "--device=cpu", *line.split())
    assert_refused(result, "train.py", "GiB of memory", "--batch_size")
    assert files_in(project / "out") == []


def test_resume_of_a_run_that_is_done_shows_its_result_again(project):
    first = train_tiny("--max_iters=6")
    before = contents(project / "out")
    again = succeed("train.py", "--resume", "--device=cpu")
    assert again.out == first.out
    (result,) = (line for line in first.err.splitlines() if line.startswith("validation loss "))
    assert result in again.err.splitlines()
    assert contents(project / "out") == before
    (project / "out" / "best.safetensors").rename("out/best.new.safetensors")  # as on Windows
    again = succeed("train.py", "--resume", "--device=cpu")
    assert again.out == first.out
    assert again.err.rstrip().endswith(str(Path("out", "best.new.safetensors")))


@pytest.mark.parametrize(
    ("line", "words"),
    [("--corpus=other.txt", "another text than other"), ("--seed=1", "damaged")],
)
def test_going_on_that_is_refused_changes_nothing(project, trained, line, words):
    """Not even lines of figures that a run which goes on would take back."""
    with open(trained / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 7, "tok')
    if words == "damaged":
        path = trained / "last.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
    (project / "other.txt").write_text(OTHER, encoding="utf-8")
    before, raw = {path: path.stat().st_mtime_ns for path in trained.iterdir()}, contents(trained)
    result = run("train.py", "--resume", "--max_iters=9", "--device=cpu", line)
    assert_refused(result, "train.py", words)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert contents(trained).items() >= raw.items()


def test_a_run_is_called_by_its_preset_and_hands_it_on_with_its_weights(project, monkeypatch):
    classic = PRESETS["classic"]
    model = replace(classic.model, n_layer=1, n_head=1, n_embd=4, block_size=8)
    small = replace(classic, model=model, train=replace(classic.train, batch_size=3))
    monkeypatch.setitem(PRESETS, "classic", small)
    line = ["--dataset=tiny", "--max_iters=2", "--device=cpu"]
    for args in (["--preset=classic"], ["--init_from=out/best.safetensors", "--out_dir=new"]):
        result = succeed("train.py", *line, *args)
        assert re.search("^classic: [0-9,]+ parameters", result.err, re.MULTILINE)
    found = configuration_of(project / "new")
    assert found["run"]["preset"] == "classic"
    assert (found["train"]["optimizer"], found["train"]["batch_size"]) == ("adamw", 3)


class Killed(BaseException):
    """Nobody catches it, as nobody catches SIGKILL."""


def test_a_kill_costs_no_more_than_a_minute(project, monkeypatch):
    """There is one evaluation, at the end. A step takes 25 seconds by the clock of this test."""
    clock = SimpleNamespace(now=0)
    show, last = cli.ProgressBar.show, project / "out" / "last.safetensors"
    found = []

    def show_a_step_later(bar, report) -> None:
        show(bar, report)
        clock.now += 25
        found.append(checkpoint.load(last).progress.step if last.exists() else 0)
        if report.step == 8:
            raise Killed

    line = [*TINY, "--dataset=tiny", "--max_iters=10", "--dropout=0.1"]
    line += ["--eval_interval=10", "--log_interval=1"]
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(run_folder, "time", SimpleNamespace(monotonic=lambda: clock.now))
        patch.setattr(cli.ProgressBar, "show", show_a_step_later)
        train.main(line)
    assert found == [0, 0, 0, 3, 3, 3, 6, 6]  # each before the step's own save
    assert files_in(project / "out") == RUN_FILES[1:]


# Which texts may take which place under data/: test_corpus.py.


def test_a_text_of_ones_own_is_prepared_on_the_way_and_again_when_it_was_edited(project):
    for text, path in ((TEXT, "mine.txt"), (OTHER, project / "data" / ".." / "mine.txt")):
        (project / "mine.txt").write_text(text, encoding="utf-8")
        succeed("train.py", *TINY, "--max_iters=1", "--overwrite", "--corpus", path)
        assert (project / "data" / "mine" / "input.txt").read_text("utf-8") == text
        last = RunFolder(project / "out").load_last()
        assert (last.corpus_name, last.characters) == ("mine", "".join(sorted(set(text))))
    succeed("train.py", "--resume", "--max_iters=2", "--device=cpu")
    assert RunFolder(project / "out").load_last().progress.step == 2


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("train.py", [*TINY, "--max_iters=1", "--corpus=new.txt"]),
        ("prepare.py", ["--input=new.txt", "--name=new"]),
    ],
)
def test_a_text_in_another_encoding_is_read_by_its_name(project, name, line):
    (project / "new.txt").write_bytes((TEXT + "ñ").encode("windows-1252"))
    assert_refused(run(name, *line), name, "--encoding windows-1252")
    succeed(name, *line, "--encoding=windows-1252")
    text = (project / "data" / "new" / "input.txt").read_text("utf-8")
    assert text.rstrip("\n") == TEXT + "ñ"


def test_a_text_that_lies_in_data_may_be_given(project):
    (project / "data" / "apocrifo.txt").write_text(OTHER, encoding="utf-8")
    path = "data/tiny/../apocrifo.txt"
    succeed("train.py", *TINY, "--max_iters=1", "--corpus", path)
    assert (project / "data" / "apocrifo" / "input.txt").read_text("utf-8") == OTHER
    line = ["--name", "apocrifo", "--input"]
    assert_refused(run("prepare.py", *line, "tiny.txt"), "prepare.py", "--name apocrifo")
    line[1] = "Apocrifo"
    assert_refused(run("prepare.py", *line, "tiny.txt"), "prepare.py", "data/apocrifo.txt;")
    line[1] = "apocrifo"
    succeed("prepare.py", *line, path)


# --- sample.py ------------------------------------------------------------------------------


def test_stdout_is_the_prompt_its_continuation_and_a_newline(trained):
    line = ["--start", "En un lugar", "--max_new_tokens=30"]
    result = succeed("sample.py", *line)
    assert result.err == ""
    assert result.out.startswith("En un lugar") and result.out.endswith("\n")
    assert len(result.out) == len("En un lugar") + 30 + 1
    assert set(result.out) <= set(TEXT)
    assert run("sample.py", *line).out == result.out
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
        ("-", b"En\xf1", ["standard input", "UTF-8", "offset 2;"]),
        ("-", b"", ["--start is empty"]),
        ("", b"", ["--start is empty"]),
        ("En 1605 Ñ", b"", ["'1' at position 3", "'6'", "'5'", "'Ñ' at position 8", "--unknown"]),
    ],
)
def test_a_start_that_cannot_be_used(trained, start, stdin, parts):
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
    assert three.out.startswith(alone.out)
    assert ten.out.startswith(three.out)
    assert ten.out.count("En un") >= 10
    if not options:
        texts = {ten.out[first : first + 46] for first in range(0, 460, 46)}
        assert len(texts) == 10 and len(ten.out) == 460


def test_in_bfloat16_a_cpu_writes_too(trained):
    result = succeed("sample.py", "--max_new_tokens=20", "--device=cpu", "--dtype=bfloat16")
    assert (result.err, len(result.out)) == ("", 1 + 20 + 1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which rounds otherwise")
def test_a_model_too_large_for_numpy_writes_the_same_text(trained, monkeypatch):
    line = ["--start", "En un", "--max_new_tokens=20"]
    plain = run("sample.py", *line).out
    monkeypatch.setattr(sancho_generate, "LARGEST_ON_CPU", 0)
    result = succeed("sample.py", *line)
    assert (result.err, result.out) == ("", plain)


def test_a_text_that_is_interrupted_is_no_error_with_a_traceback(trained, monkeypatch):
    generate, whole = sancho_generate.generate, run("sample.py", "--max_new_tokens=20").out

    def generate_a_little(*args, **kwargs):
        yield from itertools.islice(generate(*args, **kwargs), 12)
        raise KeyboardInterrupt

    monkeypatch.setattr(sancho_generate, "generate", generate_a_little)
    result = run("sample.py", "--max_new_tokens=20")
    assert (result.status, result.err) == (130, "\ninterrupted\n")
    assert result.out == whole[: 1 + 12]


# --- data/prepare.py ------------------------------------------------------------------------


def test_prepare_several_files_and_stdin(project):
    (project / "b.txt").write_text("Dulcinea\n", encoding="utf-8")
    line = ["--name", "new", "--input", "b.txt", "-", "b.txt"]
    result = succeed("prepare.py", *line, stdin="Sancho, ñ\n".encode())
    assert result.out == ""
    text = (project / "data" / "new" / "input.txt").read_text("utf-8")
    assert text == "Dulcinea\nSancho, ñ\nDulcinea\n"
    n_val = len(text) // 10
    assert f"data/new: {len(text)} characters, {len(set(text))} different" in result.err
    assert f"{len(text) - n_val} to train on and {n_val} to validate" in result.err
    assert files_in(project / "data" / "new") == ["input.txt", "meta.json", "train.bin", "val.bin"]


@posix
def test_a_file_whose_name_is_not_utf8(project):
    name = os.fsdecode(b"\xf1.txt")
    try:
        (project / name).write_text(TEXT, encoding="utf-8")
    except OSError:
        pytest.skip("this file system takes no such name")
    succeed("prepare.py", "--input", name, "--name", "new")
    assert (project / "data" / "new" / "input.txt").read_text("utf-8") == TEXT


# --- evaluate.py ----------------------------------------------------------------------------


def test_evaluate_writes_a_report_or_json(trained, monkeypatch):
    monkeypatch.setattr(measures, "SAMPLE_LENGTH", 30)
    result = succeed("evaluate.py")
    assert result.err == ""
    assert "nothing known" in result.out and "the author" in result.out
    result = succeed("evaluate.py", "--checkpoint", "out/best.safetensors", "--json")
    loss = checkpoint.load(Path("out/best.safetensors")).progress.val_loss
    losses = json.loads(result.out)["losses"]
    assert losses["this model, in windows of 8"] == pytest.approx(loss, abs=1e-5)


def test_evaluate_on_another_text_says_so(project, trained, monkeypatch):
    monkeypatch.setattr(measures, "SAMPLE_LENGTH", 30)
    other = "".join(sorted(set(TEXT))) * 20
    (project / "data" / "other.txt").write_text(other, encoding="utf-8")
    result = succeed("evaluate.py", "--dataset", "other")
    assert "learned from another text than other" in result.err


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("strange", "ψ" + TEXT, ["strange", "does not know", "'ψ'"]),
        ("short", TEXT[:9], ["short", "characters"]),
    ],
)
def test_evaluate_refuses_a_text_in_one_line(project, trained, name, text, words):
    (project / "data" / f"{name}.txt").write_text(text, encoding="utf-8")
    assert_refused(run("evaluate.py", "--dataset", name), "evaluate.py", *words)


# --- as processes of their own --------------------------------------------------------------


def be(name: str, folder: Path, *args: str) -> None:
    """Be the process of a script that works in `folder` and leaves its out and err there."""
    os.chdir(folder)
    for number, file in enumerate(("out", "err"), 1):
        os.dup2(os.open(f"{os.getpid()}.{file}", os.O_WRONLY | os.O_CREAT), number)
    torch.set_num_threads(1)
    use_data(pytest.MonkeyPatch(), folder / "data")
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


@posix
@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_saves_and_the_run_goes_on(project, server_of_processes, number, status):
    out, args = project / "new", "--log_interval=1 --eval_interval=1000000 --out_dir=new".split()
    process = start_training(project, out / "metrics.jsonl", *args)
    os.kill(process.pid, getattr(signal, number))
    process.join(120)
    written, said = (Path(f"{process.pid}.{file}").read_text("utf-8") for file in ("out", "err"))
    assert (process.exitcode, written) == (status, ""), said
    assert "Traceback" not in said
    step = RunFolder(out).load_last().progress.step
    assert step >= 1
    assert steps_in(out) == list(range(1, step + 1))
    advice = said.splitlines()[-1]
    assert f"stopped and saved at step {step}; " in advice
    command = shlex.split(advice.partition(" train.py ")[2])
    succeed("train.py", *command, f"--max_iters={step + 2}", "--device=cpu")
    assert RunFolder(out).load_last().progress.step == step + 2


@posix
@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_at_the_last_step_finds_the_run_done(project, monkeypatch, number, status):
    show = cli.ProgressBar.show

    def show_and_stop(bar, report) -> None:
        show(bar, report)
        if report.step == 6:
            signal.raise_signal(getattr(signal, number))

    monkeypatch.setattr(cli.ProgressBar, "show", show_and_stop)
    result = run("train.py", *TINY, "--dataset=tiny", "--max_iters=6", "--log_interval=2")
    assert (result.status, result.out) == (status, "")
    assert result.err.splitlines()[-1] == "stopped and saved at step 6; the run is done"
    for name in ("best", "last"):
        assert checkpoint.load(project / "out" / f"{name}.safetensors").progress.step == 6


def test_a_second_ctrl_c_stops_at_once():
    with cli.stop_signals(ALONE) as received:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        assert received == [signal.SIGTERM, signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@posix
def test_a_run_can_be_read_but_not_touched_while_it_goes_on(project, server_of_processes):
    """The first process is halted meanwhile, so that whatever changes is the second's doing."""
    out, args = project / "my out", ["--eval_interval=1", "--out_dir=my out"]
    process = start_training(project, out / "last.safetensors", *args)
    os.kill(process.pid, signal.SIGSTOP)
    before = contents(out)
    for mode in ("--overwrite", "--resume", "--seed=1"):
        result = run("train.py", "--out_dir", "my out", mode, "--dataset=tiny", "--device=cpu")
        assert_refused(result, "train.py", "my out", f"process {process.pid} on ")
        assert contents(out) == before
    best = out / "best.safetensors"
    result = succeed("sample.py", "--checkpoint", best, "--start=En", "--max_new_tokens=9")
    assert len(result.out) == 12
    assert contents(out) == before

    process.kill()
    process.join()
    assert ".holder" in files_in(out)
    step = RunFolder(out).load_last().progress.step
    succeed("train.py", "--out_dir", out, "--resume", f"--max_iters={step + 1}")
    assert RunFolder(out).load_last().progress.step == step + 1
    assert ".holder" not in files_in(out)


def write_and_look(project: Path) -> None:
    """Train and write; end with 0 if nothing has imported the machinery of torch.compile."""
    os.chdir(project)
    use_data(pytest.MonkeyPatch(), project / "data")
    train.main([*TINY, "--dataset=tiny", "--max_iters=2"])
    SCRIPTS["sample.py"].main(["--max_new_tokens=3"])
    sys.exit("torch._dynamo" in sys.modules)


@posix
def test_a_start_does_not_load_the_machinery_of_torch_compile(project, server_of_processes):
    """It would take one to two seconds of every start."""
    process = conftest.start_process(write_and_look, project)
    process.join(120)
    assert process.exitcode == 0


@pytest.fixture
def own_project(project) -> Path:
    """Copy the scripts there, so that what they write under data/ is not written here."""
    shutil.copytree(ROOT / "sancho", project / "sancho", ignore=shutil.ignore_patterns("__py*"))
    for name in ("sample.py", "data/prepare.py"):
        shutil.copy(ROOT / name, project / name)
    return project


def start_python(folder: Path, *args: str) -> subprocess.Popen:
    """Start a Python that imports no PyTorch, in a terminal that knows ASCII alone."""
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    environment.pop("PYTHONPATH", None)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, *args], cwd=folder, env=environment, **pipes)


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


@posix
@pytest.mark.parametrize("seen", [0, 20])
def test_a_reader_that_goes_away_is_no_error(own_project, trained, seen):
    """So much is never written: only the closed pipe can end it."""
    line = ["--start=En un lugar", "--max_new_tokens=100000000"]
    process = start_python(own_project, "sample.py", *line)
    assert process.stdout.read(seen)[:11] == b"En un lugar"[:seen]
    process.stdout.close()
    err = process.stderr.read().decode()
    assert (process.wait(timeout=120), err) == (0, "")


@pytest.mark.parametrize(("platform", "status"), [("win32", 0), ("linux", 2)])
def test_windows_calls_a_closed_pipe_an_invalid_argument(platform, status):
    """In a process of its own: what is left of the text goes nowhere."""
    program = f"""
import sys
from sancho import cli
def main(args):
    sys.platform = "{platform}"
    raise OSError(22, "Invalid argument")
cli.exit_with(main)"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, bool(done.stderr)) == (status, status == 2)
