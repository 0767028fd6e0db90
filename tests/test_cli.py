import io
import itertools
import json
import os
import pickle
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
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT, TEXT, make_project, parse_train, run, use_data

import train
from sancho import assessment, checkpoint, cli, run_folder
from sancho import generate as sancho_generate
from sancho.config import ModelConfig, RunConfig, SampleOptions, TrainConfig, from_dict
from sancho.corpus import prepare_files
from sancho.errors import MissingFile, UserError
from sancho.presets import PRESETS
from sancho.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("project", "one_thread")

SHAPE = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 8, "ngram_rows": 16}
SHAPE |= {"ngram_dropout": 0.1}  # or it follows the text
TINY = [f"--{name}={value}" for name, value in SHAPE.items()] + ["--batch_size=2", "--device=cpu"]
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and pipes of POSIX")


@pytest.fixture(scope="module")
def trained_files(tmp_path_factory) -> Path:
    """Return the out_dir of a run of six steps over the tiny text."""
    folder = make_project(tmp_path_factory.mktemp("trained"))
    with pytest.MonkeyPatch.context() as patch:
        use_data(patch, folder / "data")
        args = ["--dataset=tiny", "--max_iters=6", f"--out_dir={folder / 'out'}"]
        result = run("train.py", *TINY, *args)
    assert result.status == 0, result.err
    return folder / "out"


@pytest.fixture
def trained(project, trained_files) -> Path:
    """Return a copy of that out_dir, project/out."""
    shutil.copytree(trained_files, project / "out")
    return project / "out"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def files_in(folder: Path) -> list[str]:
    """Return the names of all files but .lock, which may stay: it locks nobody out by itself."""
    return sorted(contents(folder).keys() - {".lock"}) if folder.exists() else []


def assert_refused(result: SimpleNamespace, name: str, *parts: str) -> None:
    """Assert status 2, nothing on stdout, and one line on stderr that holds `parts`."""
    assert result.status == 2, result.err
    assert result.out == ""
    lines = result.err.splitlines()
    assert len(lines) == 1, result.err
    assert result.err.endswith("\n")
    assert lines[0].startswith(f"{name}: error: ")
    assert "Traceback" not in lines[0]
    for part in parts:
        assert part in lines[0]


# --- spellings ------------------------------------------------------------------------------


@pytest.mark.parametrize("args", ["--n_layer 5", "--n_layer=5", "--n-layer 5", "--n-layer=5"])
def test_spellings_of_a_number(args):
    assert parse_train(args.split()).model.n_layer == 5


@pytest.mark.parametrize(
    ("arg", "value"),
    [("--compile", True), ("--no-compile", False), ("--no_compile", False)],
)
def test_spellings_of_a_switch(arg, value):
    assert parse_train([arg]).compile is value
    assert parse_train(["--compile", arg]).compile is value


@pytest.mark.parametrize("arg", ["--no-stream", "--no_stream"])
def test_spellings_of_a_switch_that_is_on(arg):
    assert cli.parse(SampleOptions(), []).stream is True
    assert cli.parse(SampleOptions(), [arg]).stream is False


def test_options_of_every_part_arrive():
    args = (
        "--preset classic --out-dir a/b --dataset otro --corpus mi.txt --n_embd=64 --position rope "
        "--bias --max_iters 7 --learning-rate 1e-2 --optimizer adamw --device cpu --dtype bfloat16"
    )
    found = parse_train(args.split())
    assert found.run == RunConfig(preset="classic", out_dir=Path("a/b"))
    assert (found.data.dataset, found.data.corpus) == ("otro", Path("mi.txt"))
    preset = PRESETS["classic"]
    assert found.model == replace(preset.model, n_embd=64, position="rope", bias=True)
    assert found.train == replace(preset.train, max_iters=7, learning_rate=0.01, optimizer="adamw")
    assert (found.device.device, found.device.dtype) == ("cpu", "bfloat16")


def test_options_of_sampling_arrive():
    args = (
        "--start=-x --num-samples 3 --max_new_tokens=0 --stop a --stop=bc --unknown nearest "
        "--seed 7 --temperature 0 --top_k 5 --top-p 0.5 --min_p=.1 --repetition_penalty 1.5"
    )
    found = cli.parse(SampleOptions(), args.split())
    assert (found.start, found.num_samples, found.max_new_tokens) == ("-x", 3, 0)
    assert (found.stop, found.unknown, found.seed) == (("a", "bc"), "nearest", 7)
    sampling = found.sampling
    assert (sampling.temperature, sampling.top_k) == (0.0, 5)
    assert (sampling.top_p, sampling.min_p, sampling.repetition_penalty) == (0.5, 0.1, 1.5)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_chooses_the_defaults(name):
    found, preset = parse_train(["--preset", name, "--device", "cpu"]), PRESETS[name]
    assert (found.model, found.train) == (preset.model, preset.train)
    assert found.run.preset == name
    found = parse_train([f"--preset={name}", "--n_layer", "2", "--seed=3", "--device=cpu"])
    assert found.model == replace(preset.model, n_layer=2)
    assert found.train == replace(preset.train, seed=3)


TRAIN_NAMES = """
    preset out_dir resume overwrite tensorboard init_from dataset corpus
    block_size n_layer n_head n_embd dropout bias norm position activation ngram_size ngram_rows
    ngram_dropout embedding_skip qk_norm tie_embeddings
    max_iters batch_size gradient_accumulation_steps optimizer learning_rate muon_learning_rate
    ngram_learning_rate weight_decay beta1 beta2 grad_clip warmup_iters look_ahead decay_fraction
    eval_interval log_interval patience seed device dtype compile
"""
SAMPLE_NAMES = """
    checkpoint start num_samples max_new_tokens stop unknown seed stream temperature top_k top_p
    min_p repetition_penalty device dtype
"""
SWITCHES = {"resume", "overwrite", "bias", "embedding_skip", "qk_norm", "tie_embeddings"}
SWITCHES |= {"compile", "stream", "tensorboard"}


@pytest.mark.parametrize(
    ("name", "names"),
    [("train.py", TRAIN_NAMES), ("sample.py", SAMPLE_NAMES), ("prepare.py", "input name")],
)
def test_the_options_are_these(name, names):
    result = run(name, "--help")
    assert (result.status, result.err) == (0, "")
    expected = {f"--{option}" for option in names.split()} | {"--help"}
    expected |= {f"--no_{option}" for option in SWITCHES.intersection(names.split())}
    # An option stands at the beginning of its line, or behind its other spelling.
    _, *lines = result.out.partition("options:")[2].splitlines()
    found = re.findall(r"^  (?:-\w, )?(--\w+)(?:, (--\w+))?", "\n".join(lines), re.MULTILINE)
    assert sorted(option for pair in found for option in pair if option) == sorted(expected)


# --- one clear line -------------------------------------------------------------------------

BAD_LINES = [
    ("train.py", "--n_layr 4", "--n_layr", "--n_layer"),
    ("train.py", "--n_layr=4", "--n_layr", "--n_layer"),
    ("train.py", "--n-layr 4", "--n-layr", "--n_layer"),
    ("train.py", "--learning_rat 4", "--learning_rate"),
    ("train.py", "--no_compil", "compile"),
    ("train.py", "--batchsize 4", "--batch_size"),
    ("train.py", "--n_lay 4", "--n_lay;", "--n_layer"),
    ("train.py", "--zzzz", "--zzzz", "--help"),
    ("train.py", "--vocab_size 5", "--vocab_size"),
    ("train.py", "spare", "spare"),
    ("train.py", "--bias true", "true"),
    ("train.py", "--bias=true", "--bias", "'true'"),
    ("train.py", "--no_bias=true", "--no_bias", "'true'"),
    ("train.py", "--n_layer four", "--n_layer", "'four'"),
    ("train.py", "--n_layer 2.5", "--n_layer", "'2.5'"),
    ("train.py", "--dropout much", "--dropout", "'much'"),
    ("train.py", "--norm batchnorm", "--norm", "layernorm", "rmsnorm"),
    ("train.py", "--preset huge", "--preset", "mini", "classic", "base"),
    ("train.py", "--device tpu", "--device", "cuda", "cpu"),
    ("train.py", "--dtype float16", "--dtype", "bfloat16"),
    ("train.py", "--optimizer sgd", "--optimizer", "muon", "adamw"),
    ("train.py", "--n_layer", "--n_layer"),
    ("train.py", "--n_layer --n_head 2", "--n_layer"),
    ("train.py", "--out_dir", "--out_dir"),
    ("train.py", "--n_layer -1", "--n_layer", "-1", "1 or more"),
    ("train.py", "--n_layer 0", "--n_layer", "1 or more"),
    ("train.py", "--n_head 5", "--n_head", "n_embd"),
    ("train.py", "--n_embd 0", "--n_embd"),
    ("train.py", "--n_embd 6 --n_head 2", "even"),
    ("train.py", "--n_embd 5 --n_head 1 --position sinusoidal", "even"),
    ("train.py", "--block_size 0", "--block_size"),
    ("train.py", "--dropout 1.5", "--dropout", "1.5"),
    ("train.py", "--dropout 1", "--dropout"),
    ("train.py", "--dropout -0.1", "--dropout"),
    ("train.py", "--dropout nan", "--dropout"),
    ("train.py", "--max_iters 0", "--max_iters"),
    ("train.py", "--batch_size -3", "--batch_size"),
    ("train.py", "--batch_size 1000000000000", "--batch_size", "less than 2^31"),
    ("train.py", f"--max_iters {'9' * 400}", "--max_iters", "less than 2^31"),
    ("train.py", "--gradient_accumulation_steps 0", "--gradient_accumulation_steps"),
    ("train.py", "--learning_rate 0", "--learning_rate"),
    ("train.py", "--learning_rate nan", "--learning_rate"),
    ("train.py", "--learning_rate inf", "--learning_rate"),
    ("train.py", "--muon_learning_rate -1", "--muon_learning_rate"),
    ("train.py", "--ngram_learning_rate 0", "--ngram_learning_rate"),
    ("train.py", "--weight_decay -1", "--weight_decay"),
    ("train.py", "--beta1 1", "--beta1"),
    ("train.py", "--beta2 -0.1", "--beta2"),
    ("train.py", "--grad_clip -1", "--grad_clip"),
    ("train.py", "--warmup_iters -1", "--warmup_iters"),
    ("train.py", "--decay_fraction 1.1", "--decay_fraction"),
    ("train.py", "--eval_interval 0", "--eval_interval"),
    ("train.py", "--log_interval 0", "--log_interval"),
    ("train.py", "--patience -1", "--patience"),
    ("train.py", "--seed -1", "--seed"),
    ("train.py", "--ngram_size 0", "--ngram_size"),
    ("train.py", "--ngram_rows 0", "--ngram_rows"),
    ("train.py", "--resume --overwrite", "--resume", "--overwrite"),
    ("train.py", "--resume --init_from x", "--resume", "--init_from"),
    ("train.py", "--resume", "out", "without --resume"),
    ("train.py", "--init_from missing.safetensors", "missing.safetensors", "does not exist"),
    ("train.py", "--dataset nobody", "nobody", "prepare.py --input"),
    ("train.py", "--corpus missing.txt", "missing.txt", "does not exist"),
    ("train.py", "--corpus data", "data", "folder"),
    ("train.py", "--dataset tiny --block_size 2000", "tiny", "--block_size 2000", "at least 2223"),
    ("sample.py", "--strt x", "--strt", "--start"),
    ("sample.py", "--compile", "--compile", "--help"),
    ("sample.py", "--top_k 0", "--top_k"),
    ("sample.py", "--top_k x", "--top_k"),
    ("sample.py", "--top_p 1.1", "--top_p"),
    ("sample.py", "--min_p -0.1", "--min_p"),
    ("sample.py", "--temperature -1", "--temperature"),
    ("sample.py", "--temperature nan", "--temperature"),
    ("sample.py", "--temperature inf", "--temperature"),
    ("sample.py", "--repetition_penalty 0", "--repetition_penalty"),
    ("sample.py", "--num_samples 0", "--num_samples"),
    ("sample.py", "--max_new_tokens -1", "--max_new_tokens"),
    ("sample.py", "--seed -1", "--seed"),
    ("sample.py", "--unknown ignore", "--unknown", "nearest", "skip"),
    ("sample.py", "--stop", "--stop"),
    ("sample.py", "--checkpoint out/best.safetensors", "out/best.safetensors", "does not exist"),
    ("sample.py", "--checkpoint data", "data", "folder"),
    ("prepare.py", "--nam x", "--nam", "--name"),
    ("prepare.py", "--name other", "--input"),
    ("prepare.py", "--input tiny.txt", "--input", "--name"),
    ("sample.py", "--num_samples 10001", "--num_samples", "10000 or less"),
    ("train.py", "--dataset ../x", "--dataset", "'../x'"),
    ("train.py", "--dataset=", "--dataset is ''"),
    ("train.py", "--out_dir -x", "--out_dir needs a value"),
    ("prepare.py", "--name ../x --input tiny.txt", "--name", "../x"),
    ("prepare.py", "--name .. --input tiny.txt", "--name"),
    ("prepare.py", "--name x --input missing.txt", "missing.txt", "does not exist"),
    ("prepare.py", "--name x --input tiny.txt missing.txt", "missing.txt", "does not exist"),
    ("prepare.py", "--name x --input data", "data", "folder"),
]


@pytest.mark.parametrize(
    ("name", "line", "parts"),
    [(name, line, parts) for name, line, *parts in BAD_LINES],
    ids=[f"{name} {line}" for name, line, *_ in BAD_LINES],
)
def test_a_line_that_cannot_be_used(project, name, line, parts):
    assert_refused(run(name, *line.split()), name, *parts)
    assert files_in(project / "out") == []


def test_a_hint_is_another_option_than_the_one_given():
    """vocab_size is decided by the text, so it is no option and must not be proposed."""
    assert "did you mean --vocab_size" not in run("train.py", "--vocab_size", "5").err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["train.py", "sample.py"])
def test_a_gpu_that_is_not_there(trained, name):
    options = ["--dataset=tiny", "--out_dir=new"] if name == "train.py" else []
    result = run(name, "--device", "cuda", *options)
    assert_refused(result, name, "--device cuda", "--device cpu")


def test_a_text_that_is_empty(project):
    (project / "empty.txt").write_bytes(b"")
    (project / "blank.txt").write_bytes(b" \n\t\n")
    for name in ("empty", "blank"):
        assert_refused(run("train.py", "--corpus", f"{name}.txt"), "train.py", f"{name}.txt")
        result = run("prepare.py", "--input", f"{name}.txt", "--name", name)
        assert_refused(result, "prepare.py", f"{name}.txt")
        assert files_in(project / "data" / name) == []
    assert not (project / "out").exists()


@pytest.mark.parametrize("offset", [0, 5, 300_000])
def test_a_text_that_is_not_utf8(project, offset):
    (project / "latin.txt").write_bytes((b"Quijote\n" * 40_000)[:offset] + b"\xf1andu")
    for name, line in (
        ("train.py", "--corpus latin.txt"),
        ("prepare.py", "--input latin.txt --name latin"),
    ):
        result = run(name, *line.split())
        assert_refused(result, name, "latin.txt", "UTF-8", "0xf1", f"offset {offset};")
    assert sorted(path.name for path in project.iterdir()) == ["data", "latin.txt", "tiny.txt"]
    assert sorted(path.name for path in (project / "data").iterdir()) == ["latin", "tiny"]
    assert files_in(project / "data" / "latin") == []


@pytest.fixture
def pipe(project) -> Iterator[str]:
    """The name of a pipe into which nobody writes: to read it is to wait for ever.

    Somebody who opens it gets nothing, so that a test fails and does not hang.
    """
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: open("pipe", "wb").close(), daemon=True)
    writer.start()
    yield "pipe"
    with open(os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)):
        writer.join()


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
def test_a_pipe_a_device_and_a_circle_of_links(project, trained, pipe, name, line):
    prefix = "FILE:" if line.endswith("--start") else ""
    Path("circle").symlink_to("circle")
    for path, words in ((pipe, "a pipe"), (os.devnull, "a device"), ("circle", "does not exist")):
        result = run(name, *line.split(), prefix + path)
        assert_refused(result, name, path, words)
    assert not (project / "new").exists()


@posix
def test_a_folder_that_is_a_circle_of_links(project):
    Path("circle").symlink_to("circle")
    result = run("train.py", *TINY, "--dataset=tiny", "--out_dir=circle")
    assert_refused(result, "train.py", "circle can't be written (", "choose another folder")


ODD_TEXTS = {
    "one character": "a" * 300,
    "NUL": "a\0b" * 100,
    "what steers a terminal": "\x1b[2J\x07\x08\n" * 60,
    "loose accents": "\u0301 \u0327" * 100,
    "ends of lines of others": "uno\u2028dos\x0ctres\x85" * 30,
    "marks of byte order": "a\ufeffb" * 100,
    "characters that are none": "\uffff\U0010ffff" * 150,
    "from right to left": "אבג دهو \u202e" * 40,
    "500 different ones": "".join(map(chr, range(0x4E00, 0x4E00 + 500))),
}


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_an_odd_text_is_learned_and_written(project, text):
    (project / "odd.txt").write_text(text, encoding="utf-8")
    result = run("train.py", *TINY, "--corpus=odd.txt", "--max_iters=1")
    assert result.status == 0, result.err
    assert len(result.out) == 400
    assert set(result.out) <= set(unicodedata.normalize("NFC", text) + "\n")
    start = ["--start", "FILE:odd.txt", "--max_new_tokens=5"]
    result = run("sample.py", *start)
    assert result.status == 0, result.err
    assert result.out.startswith(text[:3])


@pytest.mark.parametrize(
    "raw",
    [
        b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
        b"\x1f\x8b\x08\0\0\0\0\0",
        b"PK\x03\x04\x14\0\xff\0",
        "En un lugar de la Mancha".encode("utf-16"),
        "ñandú".encode("utf-16-be"),
        "a\ud800".encode("utf-8", "surrogatepass"),
        "ñ".encode()[:1],
    ],
    ids=["PNG", "gzip", "zip", "UTF-16", "UTF-16 without a mark", "half a pair", "half a letter"],
)
def test_a_start_or_a_text_that_is_no_text(project, trained, raw):
    (project / "binary").write_bytes(raw)
    for name, line in (
        ("train.py", "--corpus=binary"),
        ("prepare.py", "--name=new --input=binary"),
        ("sample.py", "--start=FILE:binary"),
    ):
        assert_refused(run(name, *line.split()), name, "binary is not UTF-8: byte 0x")


def test_a_start_of_megabytes(project, trained):
    text = TEXT * 2_000
    (project / "long.txt").write_text(text, encoding="utf-8")
    result = run("sample.py", "--start", "FILE:long.txt", "--max_new_tokens=5")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith(text)
    assert len(result.out) == len(text) + 6
    end = run("sample.py", "--start", text[-8:], "--max_new_tokens=5")  # a block
    assert end.out == result.out[-14:]
    (project / "long.txt").write_text(text + "€", encoding="utf-8")
    result = run("sample.py", "--start", "FILE:long.txt")
    assert_refused(result, "sample.py", f"'€' at position {len(text)}")


def test_a_text_shorter_than_a_block(project):
    (project / "short.txt").write_text("Vale.\n", encoding="utf-8")
    result = run("train.py", "--corpus", "short.txt", "--block_size=96", "--out_dir", "new")
    assert_refused(result, "train.py", "short", "6 characters", "--block_size 96", "at least 107")
    assert files_in(project / "new") == []


def broken_checkpoints(good: bytes) -> dict[str, tuple[bytes, str]]:
    buffer = io.BytesIO()
    torch.save({"weights": torch.ones(2)}, buffer)
    return {
        "empty": (b"", "empty"),
        "truncated": (good[:-1], "damaged"),
        "half": (good[: len(good) // 2], "damaged"),
        "pickle": (pickle.dumps({"weights": [1.0]}), "pickle"),
        "torch": (buffer.getvalue(), "pickle"),
        "text": (TEXT.encode(), "not a safetensors file"),
    }


@pytest.mark.parametrize("kind", broken_checkpoints(b""))
def test_a_checkpoint_that_cannot_be_used(trained, kind):
    raw, word = broken_checkpoints((trained / "best.safetensors").read_bytes())[kind]
    for name in ("best", "last"):
        (trained / f"{name}.safetensors").write_bytes(raw)
    assert_refused(run("sample.py"), "sample.py", "best.safetensors", word)
    assert_refused(run("train.py", "--resume"), "train.py", "last.safetensors", word)
    result = run("train.py", "--init_from", "out/best.safetensors", "--out_dir", "new")
    assert_refused(result, "train.py", "best.safetensors", word)


@pytest.mark.parametrize("options", [[], ["--no-stream"], ["--temperature=0"], ["--top_p=0.5"]])
def test_weights_as_large_as_numbers_can_be(trained, options):
    """They are finite, and what is computed with them is not."""
    path = trained / "best.safetensors"
    saved = checkpoint.load(path)
    huge = {name: np.float32(3e38) * np.sign(t) for name, t in saved.weights.items()}
    checkpoint.save(path, replace(saved, weights=huge))
    result = run("sample.py", "--start=En", "--max_new_tokens=20", *options)
    assert result.status == 0, result.err
    assert len(result.out) == 2 + 20 + 1
    assert all(line.startswith("note: ") for line in result.err.splitlines())


@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_a_folder_that_cannot_be_written(project, below):
    path = Path("tiny.txt", below)
    result = run("train.py", *TINY, "--dataset", "tiny", "--out_dir", path)
    assert_refused(result, "train.py", f"{path} can't be written (", "choose another folder")
    assert (project / "tiny.txt").read_text(encoding="utf-8") == TEXT


@pytest.mark.parametrize("args", [[], ["--overwrite"]], ids=["", "overwrite"])
def test_a_folder_in_the_way_of_a_file(project, args):
    (project / "out" / "metrics.jsonl").mkdir(parents=True)
    result = run("train.py", *TINY, "--dataset", "tiny", *args)
    assert_refused(result, "train.py", "metrics.jsonl")
    assert (project / "out" / "metrics.jsonl").is_dir()


def test_a_folder_that_holds_a_run(trained):
    before = {path.name: path.read_bytes() for path in trained.iterdir()}
    result = run("train.py", *TINY, "--dataset", "tiny")
    assert_refused(result, "train.py", "out", "--resume", "--overwrite", "--out_dir")
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == before


def test_a_text_too_short_leaves_the_run_that_it_would_replace(trained):
    before = {path.name: path.read_bytes() for path in trained.iterdir()}
    line = ["--dataset=tiny", "--overwrite", "--block_size=5000"]
    assert_refused(run("train.py", *TINY, *line), "train.py", "--block_size 5000")
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == before


def test_a_message_of_several_lines_becomes_one(monkeypatch):
    def fail(args):
        raise UserError("one\n  two\r\n\tthree")

    monkeypatch.setattr(train, "main", fail)
    assert run("train.py").err == "train.py: error: one two three\n"


def test_a_full_disk_is_one_line(monkeypatch):
    def fail(args):
        raise OSError(28, "No space left on device", "out/last.safetensors.tmp")

    monkeypatch.setattr(train, "main", fail)
    result = run("train.py")
    assert_refused(result, "train.py", "No space left on device", "last.safetensors.tmp")


def too_much_for_a_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize(
    "take_memory",
    [
        lambda: np.empty(2**60, dtype=np.uint8),
        lambda: torch.empty(2**60, dtype=torch.uint8),
        too_much_for_a_gpu,
    ],
    ids=["numpy", "torch", "a GPU"],
)
def test_too_little_memory_is_one_line(monkeypatch, take_memory):
    monkeypatch.setattr(train, "main", lambda args: take_memory())
    assert_refused(run("train.py"), "train.py", "not enough memory", "--batch_size")


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), RuntimeError("x"), OSError()])
def test_a_bug_passes_through(monkeypatch, error):
    def fail(args):
        raise error

    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(type(error)):
        cli.exit_with(fail)


def test_errors_keep_their_python_classes():
    assert issubclass(UserError, ValueError)
    with pytest.raises(MissingFile):
        parse_train(["--resume", "--out_dir", "nothing/there"])


# --- train.py -------------------------------------------------------------------------------


def test_train_from_beginning_to_end(project):
    result = run("train.py", *TINY, "--dataset=tiny", "--max_iters=6", "--log_interval=2")
    assert result.status == 0
    assert files_in(project / "out") == [
        "best.safetensors",
        "config.json",
        "curve.svg",
        "last.safetensors",
        "metrics.jsonl",
    ]
    assert len(result.out) == 400
    assert set(result.out) <= set(TEXT)
    best = checkpoint.load(project / "out" / "best.safetensors")
    assert f"{best.progress.val_loss:.4f} nats" in result.err
    assert f"{best.progress.val_loss / 0.6931471805599453:.3f} bits" in result.err
    assert f"{best.build_model().count_parameters():,} parameters" in result.err
    assert f"python sample.py --checkpoint {Path('out', 'best.safetensors')}" in result.err
    assert "step 6 of 6: loss" in result.err
    assert "Traceback" not in result.err
    lines = (project / "out" / "metrics.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4, 6]
    started = json.loads((project / "out" / "config.json").read_text("utf-8"))
    assert started["train"]["max_iters"] == 6
    assert started["data"]["dataset"] == "tiny"
    assert from_dict(ModelConfig, started["model"]) == best.model
    assert best.model == replace(PRESETS["mini"].model, vocab_size=len(set(TEXT)), **SHAPE)


def test_a_text_is_prepared_on_the_way(project):
    (project / "mine.txt").write_text(TEXT[:600], encoding="utf-8")
    result = run("train.py", *TINY, "--corpus", "mine.txt", "--max_iters", "1")
    assert result.status == 0
    assert (project / "data" / "mine" / "meta.json").is_file()
    assert checkpoint.load(project / "out" / "last.safetensors").corpus_name == "mine"
    again = run("train.py", "--resume", "--max_iters", "2", "--device", "cpu")
    assert again.status == 0, again.err
    assert checkpoint.load(project / "out" / "last.safetensors").progress.step == 2


def configuration(project: Path, *args: str) -> SimpleNamespace:
    """Return the options that a run with a text of 60 characters has written down."""
    (project / "short.txt").write_text(TEXT[:59] + "\n", encoding="utf-8")
    shape = [option for option in TINY if "dropout" not in option]
    result = run("train.py", *shape, "--corpus=short.txt", "--overwrite", *args)
    assert result.status == 0, result.err
    found = json.loads((project / "out" / "config.json").read_text("utf-8"))
    return SimpleNamespace(**found["model"] | found["train"])


def test_a_short_text_makes_a_short_run(project):
    found = configuration(project)
    wanted, per_step = PRESETS["mini"].passes * 54, 2 * 8  # 54 characters to train on
    assert (found.max_iters - 1) * per_step < wanted <= found.max_iters * per_step
    last = (project / "out" / "metrics.jsonl").read_text("utf-8").splitlines()[-1]
    assert json.loads(last)["step"] == found.max_iters


def test_what_the_user_says_comes_before_what_suits_the_text(project):
    assert configuration(project, "--max_iters=7").max_iters == 7
    assert configuration(project, "--max_iters=100").max_iters == 100
    found = configuration(project, "--eval_interval=900", "--ngram_dropout=0.33")
    assert (found.eval_interval, found.ngram_dropout) == (900, 0.33)


def test_evaluations_and_dropout_follow_the_length_that_the_user_says(project):
    short, long = configuration(project), configuration(project, "--max_iters=300")
    assert long.max_iters == 300 > 5 * short.max_iters
    assert -(-long.max_iters // long.eval_interval) <= 10
    assert long.ngram_dropout > short.ngram_dropout


def test_resume_with_more_steps(project, trained):
    result = run("train.py", "--resume", "--max_iters", "8", "--device", "cpu")
    assert result.status == 0, result.err
    last = checkpoint.load(trained / "last.safetensors")
    assert last.progress.step == 8
    first = json.loads((trained / "config.json").read_text("utf-8"))["train"]
    assert (first["max_iters"], first["batch_size"]) == (6, 2)
    assert last.train == replace(from_dict(TrainConfig, first), max_iters=8)
    assert last.model == replace(PRESETS["mini"].model, vocab_size=len(set(TEXT)), **SHAPE)
    lines = (trained / "metrics.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [6, 8]


def test_resume_cannot_take_back_steps(trained):
    result = run("train.py", "--resume", "--max_iters=5", "--device=cpu")
    assert_refused(result, "train.py", "--max_iters is 5", "6 steps")


def test_a_text_of_the_project_is_not_replaced_by_preparing(project):
    (project / "data" / "apocrifo.txt").write_text(TEXT, encoding="utf-8")
    line = ["--name", "apocrifo", "--input"]
    assert_refused(run("prepare.py", *line, "tiny.txt"), "prepare.py", "--name apocrifo")
    assert run("prepare.py", *line, "data/apocrifo.txt").status == 0


def test_resume_of_a_run_that_is_done_shows_its_result_again(project):
    first = run("train.py", *TINY, "--dataset=tiny", "--max_iters=6")
    assert first.status == 0, first.err
    before = contents(project / "out")
    again = run("train.py", "--resume", "--device=cpu")
    assert (again.status, again.out) == (0, first.out), again.err
    (result,) = (line for line in first.err.splitlines() if line.startswith("validation loss "))
    assert result in again.err.splitlines()
    assert contents(project / "out") == before


def test_resume_with_another_model_lists_what_differs(trained):
    before = (trained / "last.safetensors").read_bytes()
    line = "--resume --max_iters 9 --n_layer 3 --norm layernorm --n_head 2"
    result = run("train.py", *line.split())
    assert_refused(result, "train.py", "n_layer: 1, not 3", "norm: 'rmsnorm', not 'layernorm'")
    assert "n_head" not in result.err
    assert (trained / "last.safetensors").read_bytes() == before


def test_resume_with_another_text(project, trained):
    (project / "other.txt").write_text("Otro texto. " * 40, encoding="utf-8")
    result = run("train.py", "--resume", "--max_iters=9", "--corpus", "other.txt")
    assert_refused(result, "train.py", "other", "--dataset")


def test_resume_with_another_optimizer_is_refused(trained):
    before = contents(trained)
    line = "--resume --max_iters 8 --optimizer adamw --device cpu"
    assert_refused(
        run("train.py", *line.split()), "train.py", "--optimizer that the run began with"
    )
    assert contents(trained) == before


def test_resume_with_other_look_ahead_heads_is_refused(trained):
    before = contents(trained)
    line = "--resume --max_iters 8 --look_ahead 3 --device cpu"
    assert_refused(run("train.py", *line.split()), "train.py", "--look_ahead is 3", "has 2")
    assert contents(trained) == before


@pytest.mark.parametrize("why", ["text", "model", "optimizer", "last.safetensors"])
def test_going_on_that_is_refused_changes_nothing(project, trained, why):
    """Not even lines of figures that a run which goes on would take back."""
    with open(trained / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 7, "tok')
    if why == "last.safetensors":
        path = trained / "last.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
    (project / "other.txt").write_text("Otro texto. " * 40, encoding="utf-8")
    args = {"text": "--corpus=other.txt", "model": "--n_layer=3", "optimizer": "--optimizer=adamw"}
    before = {file: (trained / file).stat().st_mtime_ns for file in files_in(trained)}
    raw = contents(trained)
    result = run("train.py", "--resume", "--max_iters=9", args.get(why, "--device=cpu"))
    assert_refused(result, "train.py", why)
    assert {file: (trained / file).stat().st_mtime_ns for file in files_in(trained)} == before
    assert contents(trained).items() >= raw.items()


def test_resume_with_another_dropout(trained):
    line = "--resume --max_iters 8 --dropout 0.1 --ngram_dropout 0.3 --device cpu"
    before = checkpoint.load(trained / "last.safetensors")
    result = run("train.py", *line.split())
    assert result.status == 0, result.err
    after = checkpoint.load(trained / "last.safetensors")
    assert after.model == replace(before.model, dropout=0.1, ngram_dropout=0.3)
    assert after.progress.step == 8


def small_classic(monkeypatch) -> None:
    """Let the preset classic be a model that is trained in no time, and no other preset's."""
    classic = PRESETS["classic"]
    model = replace(classic.model, n_layer=1, n_head=1, n_embd=4, block_size=8)
    training = replace(classic.train, batch_size=3)
    monkeypatch.setitem(PRESETS, "classic", replace(classic, model=model, train=training))


def announced(result: SimpleNamespace) -> str:
    """Return what a run of train.py that went well called its model."""
    assert result.status == 0, result.err
    (line,) = (line for line in result.err.splitlines() if " parameters" in line)
    return line.partition(": ")[0]


def test_a_run_that_goes_on_is_called_what_it_is(monkeypatch):
    small_classic(monkeypatch)
    result = run("train.py", "--preset=classic", "--dataset=tiny", "--max_iters=2", "--device=cpu")
    assert announced(result) == "classic"
    assert announced(run("train.py", "--resume", "--max_iters=3", "--device=cpu")) == "classic"


def test_a_run_from_other_weights_has_their_preset(project, monkeypatch):
    small_classic(monkeypatch)
    line = ["--dataset=tiny", "--max_iters=2", "--device=cpu"]
    assert run("train.py", "--preset=classic", *line).status == 0
    line += ["--init_from=out/best.safetensors", "--out_dir"]
    assert announced(run("train.py", *line, "new")) == "classic"
    found = json.loads((project / "new" / "config.json").read_text("utf-8"))
    assert found["run"]["preset"] == "classic"
    assert (found["train"]["optimizer"], found["train"]["batch_size"]) == ("adamw", 3)

    # Another preset's training, if the user says so.
    assert announced(run("train.py", *line, "newer", "--preset=mini")) == "classic"
    found = json.loads((project / "newer" / "config.json").read_text("utf-8"))
    assert found["run"]["preset"] == "mini"
    assert (found["train"]["optimizer"], found["train"]["batch_size"]) == ("muon", 6)


def test_a_model_of_no_preset_is_called_by_its_shape():
    result = run("train.py", *TINY, "--dataset=tiny", "--max_iters=1", "--n_layer=3")
    assert announced(result) == "3 layers × 2 heads × 8 wide"


@pytest.mark.parametrize("args", [[], ["--preset=auto"]], ids=["nothing said", "auto said"])
def test_the_preset_that_was_chosen_is_written_down(project, args):
    result = run("train.py", *TINY, "--dataset=tiny", "--max_iters=1", *args)
    assert result.status == 0, result.err
    found = json.loads((project / "out" / "config.json").read_text("utf-8"))
    assert found["run"]["preset"] == "mini"


def test_a_folder_with_a_configuration_alone_is_begun_anew(project):
    """So a run that is killed before its first save leaves it."""
    (project / "out").mkdir()
    (project / "out" / "config.json").write_text("what was there")
    (project / "out" / "metrics.jsonl").write_text("what was there")
    result = run("train.py", *TINY, "--dataset=tiny", "--max_iters=1")
    assert result.status == 0, result.err
    found = json.loads((project / "out" / "config.json").read_text("utf-8"))
    assert found["train"]["max_iters"] == 1
    (line,) = (project / "out" / "metrics.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["step"] == 1


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
    expected = ["config.json", "curve.svg", "last.safetensors", "metrics.jsonl"]
    assert files_in(project / "out") == expected

    assert run("train.py", "--resume", "--device=cpu").status == 0
    assert run("train.py", *line, "--out_dir=whole").status == 0
    for name in ("best", "last"):
        ours, theirs = (checkpoint.load(Path(f, f"{name}.safetensors")) for f in ("out", "whole"))
        assert ours.weights.keys() == theirs.weights.keys()
        assert all(np.array_equal(ours.weights[key], theirs.weights[key]) for key in ours.weights)
        assert ours.progress.val_loss == theirs.progress.val_loss


OTHER = "Otro texto, que no es aquel.\n" * 30


def refused_corpus(path: str | Path) -> None:
    line = ["--max_iters=1", "--out_dir=new", "--corpus", path]
    result = run("train.py", *TINY, *line)
    parts = (f"--corpus {path} ", f"data/{Path(path).stem};", "data/prepare.py --input")
    assert_refused(result, "train.py", *parts)
    assert not Path("new").exists()


@pytest.mark.parametrize("prepared", [False, True], ids=["not prepared", "prepared"])
@pytest.mark.parametrize("name", ["quijote", "apocrifo"])
def test_a_text_of_ours_is_not_replaced(project, name, prepared):
    """data/apocrifo.txt lies in data/; data/quijote can be had whenever it is missing."""
    text = project / "data" / "apocrifo.txt"
    text.write_text(TEXT, encoding="utf-8")
    if prepared:
        prepare_files([text], project / "data" / name)
    before = contents(project / "data" / name) if prepared else {}
    (project / f"{name}.txt").write_text(OTHER, encoding="utf-8")
    for path in (f"{name}.txt", project / f"{name}.txt", project / "data" / ".." / f"{name}.txt"):
        refused_corpus(path)
    folder = project / "data" / name
    assert (contents(folder) if folder.exists() else {}) == before


def test_a_text_that_lies_in_data_may_be_given(project):
    (project / "data" / "apocrifo.txt").write_text(OTHER, encoding="utf-8")
    line = [*TINY, "--max_iters=1", "--overwrite", "--corpus"]
    for path in ("data/apocrifo.txt", "data/tiny/../apocrifo.txt"):
        result = run("train.py", *line, path)
        assert result.status == 0, result.err
        assert (project / "data" / "apocrifo" / "input.txt").read_text("utf-8") == OTHER


@pytest.mark.parametrize("first", ["a/mine.txt", "mine.md", "two files", "standard input"])
def test_a_text_of_the_same_name_from_elsewhere_replaces_nothing(project, first):
    (project / "a").mkdir()
    for path in ("a/mine.txt", "mine.md"):
        (project / path).write_text(TEXT, encoding="utf-8")
    (project / "mine.txt").write_text(OTHER, encoding="utf-8")
    if first in ("two files", "standard input"):
        files = ["a/mine.txt", "mine.txt"] if first == "two files" else ["-"]
        result = run("prepare.py", "--name=mine", "--input", *files, stdin=TEXT.encode())
    else:
        result = run("train.py", *TINY, "--max_iters=1", "--corpus", first)
    assert result.status == 0, result.err
    before = contents(project / "data" / "mine")
    refused_corpus("mine.txt")
    assert contents(project / "data" / "mine") == before


def test_a_text_that_was_edited_is_prepared_again(project):
    (project / "mine.txt").write_text(TEXT, encoding="utf-8")
    line = [*TINY, "--max_iters=1", "--overwrite", "--corpus"]
    assert run("train.py", *line, "mine.txt").status == 0
    (project / "mine.txt").write_text(OTHER, encoding="utf-8")
    for path in ("mine.txt", project / "data" / ".." / "mine.txt"):
        result = run("train.py", *line, path)
        assert result.status == 0, result.err
        assert (project / "data" / "mine" / "input.txt").read_text("utf-8") == OTHER
    assert checkpoint.load(Path("out/last.safetensors")).characters == "".join(sorted(set(OTHER)))


def test_overwrite_begins_anew(trained):
    result = run("train.py", *TINY, "--dataset=tiny", "--max_iters=2", "--overwrite")
    assert result.status == 0
    assert checkpoint.load(trained / "last.safetensors").progress.step == 2
    assert len((trained / "metrics.jsonl").read_text("utf-8").splitlines()) == 1


def test_init_from_takes_weights_and_vocabulary(project, trained):
    (project / "other.txt").write_text("una mancha del lugar. " * 40, encoding="utf-8")
    line = "--init_from out/best.safetensors --corpus other.txt --out_dir new --max_iters 3"
    line += " --batch_size 2 --device cpu --dropout 0.1 --ngram_dropout 0.2"
    result = run("train.py", *line.split())
    assert result.status == 0, result.err
    new, old = (checkpoint.load(path / "last.safetensors") for path in (project / "new", trained))
    assert new.characters == old.characters
    assert new.model == replace(old.model, dropout=0.1, ngram_dropout=0.2)
    assert new.progress.step == 3
    assert new.corpus_name == "other"


def test_init_from_refuses_what_does_not_fit(project, trained):
    line = "--init_from out/best.safetensors --dataset tiny --out_dir new --device cpu"
    result = run("train.py", *line.split(), "--n_embd", "16")
    assert_refused(result, "train.py", "n_embd: 8, not 16")
    (project / "other.txt").write_text("¿Qué? ¡Así! " * 40, encoding="utf-8")
    result = run("train.py", *line.split(), "--corpus", "other.txt")
    assert_refused(result, "train.py", "'¿'", "other")
    assert files_in(project / "new") == []


def test_the_command_to_go_on_can_be_pasted():
    for folder in ("out", "mi carpeta", "it's"):
        python, name, *args = shlex.split(RunFolder(Path(folder)).to_go_on)
        assert (python, name) == ("python", "train.py")
        assert args == ["--resume", "--out_dir", folder]


def test_a_diverging_run_is_one_line_and_keeps_what_was_saved(project):
    line = "--dataset=tiny --max_iters=50 --eval_interval=1 --learning_rate=1e30"
    result = run("train.py", *TINY, *line.split())
    assert result.status == 2
    assert "Traceback" not in result.err
    last = result.err.splitlines()[-1]
    assert last.startswith("train.py: error: ")
    assert "--learning_rate" in last
    for path in (project / "out").glob("*.safetensors"):
        checkpoint.load(path)


# --- sample.py ------------------------------------------------------------------------------


def test_stdout_is_the_prompt_its_continuation_and_a_newline(trained):
    result = run("sample.py", "--start", "En un lugar", "--max_new_tokens", "30")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("En un lugar")
    assert result.out.endswith("\n")
    assert len(result.out) == len("En un lugar") + 30 + 1
    assert set(result.out) <= set(TEXT)
    assert run("sample.py", "--start", "En un lugar", "--max_new_tokens=30").out == result.out
    other = run("sample.py", "--start", "En un lugar", "--max_new_tokens=30", "--seed=7")
    assert other.out != result.out


def test_no_new_characters_leave_the_prompt(trained):
    assert run("sample.py", "--start", "Mancha", "--max_new_tokens", "0").out == "Mancha\n"
    assert run("sample.py", "--max_new_tokens", "0").out == "\n\n"


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
        ("FILE:missing.txt", b"", ["missing.txt", "does not exist"]),
        ("FILE:data", b"", ["data", "folder"]),
        ("FILE:latin.txt", b"", ["latin.txt", "UTF-8", "offset 1;"]),
        ("-", b"En\xf1", ["standard input", "UTF-8", "offset 2;"]),
        ("-", b"", ["--start is empty"]),
        ("", b"", ["--start is empty"]),
        ("En 1605 Ñ", b"", ["'1' at position 3", "'6'", "'5'", "'Ñ' at position 8", "--unknown"]),
    ],
)
def test_a_start_that_cannot_be_used(project, trained, start, stdin, parts):
    (project / "latin.txt").write_bytes(b"E\xf1")
    result = run("sample.py", f"--start={start}", stdin=stdin)
    assert_refused(result, "sample.py", *parts)


def test_unknown_characters_skipped_or_replaced(trained):
    line = ["--start", "Él1", "--max_new_tokens", "0", "--unknown"]
    assert run("sample.py", *line, "skip").out == "l\n"
    assert_refused(run("sample.py", *line, "nearest"), "sample.py", "'1' at position 2")
    assert run("sample.py", "--start", "Él", *line[2:], "nearest").out == "El\n"


@pytest.mark.parametrize("options", [[], ["--stop", "a"], ["--temperature=0", "--stop=, "]])
def test_streamed_or_not_it_is_the_same(trained, options):
    line = ["--start", "En un", "--num_samples", "2", "--max_new_tokens", "40", *options]
    streamed, whole = run("sample.py", *line), run("sample.py", *line, "--no-stream")
    assert streamed.status == whole.status == 0
    assert streamed.out == whole.out
    assert streamed.err == whole.err == "--- 1 of 2\n--- 2 of 2\n"
    assert streamed.out.count("En un") >= 2
    if not options:
        first, second = streamed.out[:46], streamed.out[46:]
        assert len(second) == 46
        assert first != second
        assert run("sample.py", *line, "--num_samples", "1").out == first


def test_stop_ends_the_text_before_the_stop(trained):
    line = ["--start", "En un", "--max_new_tokens", "60"]
    whole = run("sample.py", *line).out[len("En un") : -1]
    for stop in (whole[20:22], whole[7]):
        expected = "En un" + whole[: whole.index(stop)] + "\n"
        assert run("sample.py", *line, "--stop", stop).out == expected
    both = run("sample.py", *line, "--stop", whole[30:33], "--stop", whole[12:15]).out
    ends = min(whole.index(whole[30:33]), whole.index(whole[12:15]))
    assert both == "En un" + whole[:ends] + "\n"


@pytest.mark.parametrize("options", [[], ["--no-stream"]], ids=["streamed", "whole"])
def test_an_empty_stop_is_refused_before_anything_is_written(trained, options):
    assert_refused(run("sample.py", "--stop", "", *options), "sample.py", "--stop")


def test_temperature_zero_needs_no_seed(trained):
    line = ["--start", "En un", "--max_new_tokens", "20", "--temperature", "0"]
    texts = {run("sample.py", *line, "--seed", str(seed)).out for seed in range(3)}
    assert len(texts) == 1


@posix
def test_a_file_whose_name_is_not_utf8(project):
    name = os.fsdecode(b"\xf1.txt")
    try:
        (project / name).write_text(TEXT, encoding="utf-8")
    except OSError:
        pytest.skip("this file system takes no such name")
    result = run("prepare.py", "--input", name, "--name", "new")
    assert result.status == 0, result.err


def test_in_bfloat16_a_cpu_writes_too(trained):
    line = ["--start", "En un", "--max_new_tokens=20", "--device=cpu"]
    result, plain = run("sample.py", *line, "--dtype=bfloat16"), run("sample.py", *line)
    assert (result.status, result.err) == (plain.status, plain.err) == (0, "")
    assert len(result.out) == len(plain.out) == 5 + 20 + 1
    assert set(result.out) <= set(TEXT)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which rounds otherwise")
def test_a_model_too_large_for_numpy_writes_the_same_text(trained, monkeypatch):
    line = ["--start", "En un", "--max_new_tokens=20"]
    plain = run("sample.py", *line).out
    monkeypatch.setattr(sancho_generate, "LARGEST_ON_CPU", 0)
    result = run("sample.py", *line)
    assert (result.status, result.err, result.out) == (0, "", plain)


# --- data/prepare.py ------------------------------------------------------------------------


def test_prepare_several_files_and_stdin(project):
    (project / "b.txt").write_text("Dulcinea\n", encoding="utf-8")
    line = ["--name", "new", "--input", "b.txt", "-", "b.txt"]
    result = run("prepare.py", *line, stdin="Sancho, ñ\n".encode())
    assert (result.status, result.out) == (0, "")
    text = (project / "data" / "new" / "input.txt").read_text("utf-8")
    assert text == "Dulcinea\nSancho, ñ\nDulcinea\n"
    assert f"{len(text)} characters, {len(set(text))} different" in result.err
    assert files_in(project / "data" / "new") == [
        "input.txt",
        "meta.json",
        "train.bin",
        "val.bin",
    ]


def test_prepare_says_what_it_has_found():
    result = run("prepare.py", "--input", "tiny.txt", "--name", "again")
    n_val = len(TEXT) // 10
    assert f"data/again: {len(TEXT):,} characters" in result.err
    assert f"{len(TEXT) - n_val:,} to train on and {n_val:,} to validate" in result.err


# --- as processes of their own --------------------------------------------------------------


@pytest.fixture
def own_project(project) -> Path:
    """Copy the scripts there, so that what they write under data/ is not written here."""
    shutil.copytree(ROOT / "sancho", project / "sancho", ignore=shutil.ignore_patterns("__py*"))
    for name in ("train.py", "sample.py", "data/prepare.py"):
        shutil.copy(ROOT / name, project / name)
    return project


def start_process(folder: Path, *args: str, **options) -> subprocess.Popen:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "LC_ALL": "C", "PYTHONUTF8": "0"}
    environment |= {"PYTHONIOENCODING": "ascii"}
    return subprocess.Popen(
        [sys.executable, *args],
        cwd=folder,
        env=environment,
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        **options,
    )


def finish(process: subprocess.Popen) -> SimpleNamespace:
    out, err = process.communicate(timeout=120)
    return SimpleNamespace(
        status=process.returncode, out=(out or b"").decode(), err=err.decode("utf-8")
    )


@posix
@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_saves_and_the_run_goes_on(own_project, number, status):
    line = "--dataset=tiny --max_iters=1000000 --log_interval=1 --eval_interval=1000000"
    process = start_process(own_project, "train.py", *TINY, *line.split(), "--out_dir", "new")
    metrics = own_project / "new" / "metrics.jsonl"
    begin = time.monotonic()
    while not metrics.exists() and process.poll() is None and time.monotonic() < begin + 60:
        time.sleep(0.02)
    process.send_signal(getattr(signal, number))
    result = finish(process)
    assert result.status == status, result.err
    assert result.out == ""
    assert "Traceback" not in result.err
    last = checkpoint.load(own_project / "new" / "last.safetensors")
    step = last.progress.step
    assert step >= 1
    lines = metrics.read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, step + 1))
    advice = result.err.splitlines()[-1]
    assert f"stopped and saved at step {step}; " in advice
    command = shlex.split(advice.partition("python train.py ")[2])
    again = run("train.py", *command, f"--max_iters={step + 2}", "--device=cpu")
    assert again.status == 0, again.err
    assert checkpoint.load(own_project / "new" / "last.safetensors").progress.step == step + 2


@posix
@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_at_the_last_step_finds_the_run_done(project, monkeypatch, number, status):
    show = cli.ProgressBar.show

    def show_and_stop(bar, report) -> None:
        show(bar, report)
        if report.step == 6:
            signal.raise_signal(getattr(signal, number))

    monkeypatch.setattr(cli.ProgressBar, "show", show_and_stop)
    line = "--dataset=tiny --max_iters=6 --log_interval=2"
    result = run("train.py", *TINY, *line.split())
    assert (result.status, result.out) == (status, "")
    assert result.err.splitlines()[-1] == "stopped and saved at step 6; the run is done"
    for name in ("best", "last"):
        assert checkpoint.load(project / "out" / f"{name}.safetensors").progress.step == 6
    lines = (project / "out" / "metrics.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4, 6]
    assert ".holder" not in files_in(project / "out")


def wait_for(path: Path, process: subprocess.Popen) -> None:
    """Wait until a process has made a file."""
    begin = time.monotonic()
    while not path.exists():
        assert process.poll() is None and time.monotonic() < begin + 60, process.stderr.read()
        time.sleep(0.02)


@posix
def test_a_run_can_be_read_but_not_touched_while_it_goes_on(own_project):
    """The first process is halted meanwhile, so that whatever changes is the second's doing."""
    out, line = own_project / "my out", "--dataset=tiny --max_iters=1000000 --eval_interval=1"
    process = start_process(own_project, "train.py", *TINY, *line.split(), "--out_dir", out)
    wait_for(out / "last.safetensors", process)
    process.send_signal(signal.SIGSTOP)
    before = contents(out)
    for mode in ("--overwrite", "--resume", "--seed=1"):
        result = run("train.py", "--out_dir", "my out", mode, "--dataset=tiny", "--device=cpu")
        assert_refused(result, "train.py", "my out", f"process {process.pid} on ")
        assert contents(out) == before
    best = out / "best.safetensors"
    result = run("sample.py", "--checkpoint", best, "--start=En", "--max_new_tokens=9")
    assert (result.status, len(result.out)) == (0, 12), result.err
    assert contents(out) == before

    process.kill()
    finish(process)
    assert ".holder" in files_in(out)
    step = checkpoint.load(out / "last.safetensors").progress.step
    result = run("train.py", "--out_dir", out, "--resume", f"--max_iters={step + 1}")
    assert result.status == 0, result.err
    assert checkpoint.load(out / "last.safetensors").progress.step == step + 1
    assert ".holder" not in files_in(out)


def test_of_two_that_start_at_once_one_trains(own_project):
    line = [*TINY, "--dataset=tiny", "--max_iters=3", "--out_dir=new"]
    processes = [start_process(own_project, "train.py", *line) for _ in range(2)]
    first, second = sorted(map(finish, processes), key=lambda result: result.status)
    assert first.status == 0, first.err
    assert_refused(second, "train.py", "new")
    assert files_in(own_project / "new") == [
        "best.safetensors",
        "config.json",
        "curve.svg",
        "last.safetensors",
        "metrics.jsonl",
    ]
    assert checkpoint.load(own_project / "new" / "last.safetensors").progress.step == 3
    assert len((own_project / "new" / "metrics.jsonl").read_text("utf-8").splitlines()) == 1


@pytest.mark.parametrize("new", [True, False], ids=["a new text", "a text that is there"])
def test_a_text_that_is_being_prepared_is_kept_from_others(own_project, new):
    folder = own_project / "data" / "slow"
    shutil.copy("tiny.txt", "slow.txt")
    if not new:
        assert run("prepare.py", "--input", "slow.txt", "--name", "slow").status == 0
    line = ["data/prepare.py", "--input", "-", "--name", "slow"]
    process = start_process(own_project, *line, stdin=subprocess.PIPE)
    wait_for(folder / "input.txt.tmp", process)
    before = contents(folder)
    for name, args in (
        ("prepare.py", ["--input", "tiny.txt", "--name", "slow"]),
        ("train.py", [*TINY, "--corpus", "slow.txt"]),
    ):
        result = run(name, *args)
        assert_refused(result, name, str(folder), f"process {process.pid} on ")
        assert contents(folder) == before
    assert not (own_project / "out").exists()

    _, err = process.communicate(b"Dulcinea\n" * 30, timeout=120)
    assert process.returncode == 0, err
    assert files_in(folder) == ["input.txt", "meta.json", "train.bin", "val.bin"]
    assert (folder / "input.txt").read_text("utf-8") == "Dulcinea\n" * 30


def test_an_error_of_a_real_process(own_project):
    result = finish(start_process(own_project, "data/prepare.py", "--nañe", "x"))
    assert_refused(result, "prepare.py", "--nañe", "--name")


def test_text_is_utf8_whatever_the_terminal_is(own_project):
    text = "El ñandú bebió agua fría y «cantó» a la cigüeña.\n" * 9
    (own_project / "bird.txt").write_text(text, encoding="utf-8")
    result = finish(
        start_process(own_project, "train.py", *TINY, "--corpus", "bird.txt", "--max_iters=1")
    )
    assert result.status == 0, result.err
    assert len(result.out) == 400
    assert set("«ñúü") & set(result.out)


def test_a_bug_keeps_its_traceback(own_project):
    code = (
        "import sys, train\n"
        "from sancho import cli\n"
        "def buggy(*arguments): raise ValueError('a bug of ours')\n"
        "train.open_corpus = buggy\n"
        "sys.argv = ['train.py']\n"
        "cli.exit_with(train.main)\n"
    )
    result = finish(start_process(own_project, "-c", code))
    assert result.status == 1
    assert "Traceback" in result.err
    assert "in buggy" in result.err
    assert result.err.splitlines()[-1] == "ValueError: a bug of ours"
    assert "train.py: error:" not in result.err


@pytest.mark.parametrize("options", [[], ["--no-stream"]], ids=["streamed", "whole"])
def test_a_text_that_is_interrupted_is_no_error_with_a_traceback(trained, monkeypatch, options):
    generate, whole = sancho_generate.generate, run("sample.py", "--max_new_tokens=20").out

    def generate_a_little(*args, **kwargs):
        yield from itertools.islice(generate(*args, **kwargs), 12)
        raise KeyboardInterrupt

    monkeypatch.setattr(sancho_generate, "generate", generate_a_little)
    result = run("sample.py", "--max_new_tokens=20", *options)
    assert (result.status, result.err) == (130, "\ninterrupted\n")
    assert result.out == whole[: 0 if options else 1 + 12]


@posix
@pytest.mark.slow
def test_ctrl_c_ends_a_text_where_it_is(own_project, trained):
    line = ["--start=En un lugar", "--max_new_tokens=100000000"]
    process = start_process(own_project, "sample.py", *line)
    seen = process.stdout.read(50)
    process.send_signal(signal.SIGINT)
    result = finish(process)
    assert (result.status, result.err) == (130, "\ninterrupted\n")
    text = seen.decode() + result.out
    expected = run("sample.py", line[0], f"--max_new_tokens={len(text)}").out
    assert expected.startswith(text)


@posix
@pytest.mark.slow
def test_a_reader_that_is_gone_from_the_beginning_is_no_error(own_project, trained):
    process = start_process(own_project, "sample.py", "--no-stream")
    process.stdout.close()
    err = process.stderr.read().decode()
    assert (process.wait(timeout=120), err) == (0, "")


@posix
def test_a_reader_that_goes_away_is_no_error(own_project, trained):
    """So much is never written: only the closed pipe can end it."""
    line = ["--start=En un lugar", "--max_new_tokens=100000000"]
    process = start_process(own_project, "sample.py", *line)
    head = subprocess.run(
        ["head", "-c", "20"], stdin=process.stdout, capture_output=True, check=True, timeout=120
    )
    process.stdout.close()
    err = process.stderr.read().decode()
    assert process.wait(timeout=120) == 0, err
    assert len(head.stdout) == 20
    assert head.stdout.startswith(b"En un lugar")
    assert "Error" not in err
    assert "Traceback" not in err


def test_a_start_does_not_load_the_machinery_of_torch_compile(project):
    """It would take one to two seconds of every start."""
    begin = [*TINY, "--dataset=tiny", "--max_iters=2"]
    program = (
        "import sys, train, sample\n"
        f"train.DATA = train.Path({str(project / 'data')!r})\n"
        f"train.main({begin!r})\n"
        "sample.main(['--max_new_tokens=3'])\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


# --- evaluate.py ----------------------------------------------------------------------------


def test_evaluate_writes_a_table_or_json(trained, monkeypatch):
    monkeypatch.setattr(assessment, "SAMPLE_LENGTH", 30)
    result = run("evaluate.py")
    assert (result.status, result.err) == (0, "")
    assert "nothing known" in result.out and "the author" in result.out
    result = run("evaluate.py", "--checkpoint", "out/best.safetensors", "--json")
    loss = checkpoint.load(Path("out/best.safetensors")).progress.val_loss
    losses = json.loads(result.out)["losses"]
    assert losses["this model, in windows of 8"] == pytest.approx(loss, abs=1e-5)


def test_evaluate_on_another_text_says_so(project, trained, monkeypatch):
    monkeypatch.setattr(assessment, "SAMPLE_LENGTH", 30)
    other = "".join(sorted(set(TEXT))) * 20
    (project / "data" / "other.txt").write_text(other, encoding="utf-8")
    result = run("evaluate.py", "--dataset", "other")
    assert result.status == 0
    assert "learned from another text than other" in result.err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--dataset nothing", ["nothing", "prepare.py"]),
        ("--checkpoint nothing.safetensors", ["nothing.safetensors", "does not exist"]),
        ("--dataset strange", ["strange", "does not know", "'ψ'"]),
        ("--dataset short", ["short", "characters"]),
        ("--tables", ["--tables"]),
    ],
)
def test_evaluate_refuses_in_one_line(project, trained, line, words):
    for name, text in (("strange", "ψ" + TEXT), ("short", TEXT[:9])):
        (project / "data" / f"{name}.txt").write_text(text, encoding="utf-8")
    assert_refused(run("evaluate.py", *line.split()), "evaluate.py", *words)
