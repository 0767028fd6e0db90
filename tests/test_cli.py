import contextlib
import importlib.util
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
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

import sample
import train
from sancho import checkpoint, cli
from sancho import generate as sancho_generate
from sancho.config import PRESETS, ModelConfig, RunConfig, SampleOptions, TrainConfig, TrainOptions
from sancho.corpus import prepare_files
from sancho.errors import MissingFile, UserError

ROOT = Path(__file__).resolve().parent.parent
TEXT = "En un lugar de la Mancha, de cuyo nombre no quiero acordarme.\n" * 30
SHAPE = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 8, "ngram_rows": 16}
TINY = [f"--{name}={value}" for name, value in SHAPE.items()] + ["--batch_size=2", "--device=cpu"]
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and pipes of POSIX")


def load_prepare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare", ROOT / "data" / "prepare.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    before = sys.path.copy()
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


SCRIPTS = {"train.py": train, "sample.py": sample, "prepare.py": load_prepare()}


class Bytes(io.TextIOWrapper):
    """A text stream over bytes in memory, as the real stdout and stdin are over files."""

    def __init__(self, raw: bytes = b"") -> None:
        super().__init__(io.BytesIO(raw), encoding="utf-8", newline="")

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch) -> Path:
    """A folder of its own to work in, with a data/tiny that is prepared."""
    for script in (train, SCRIPTS["prepare.py"]):
        monkeypatch.setattr(script, "DATA", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "tiny.txt").write_text(TEXT, encoding="utf-8")
    prepare_files([tmp_path / "tiny.txt"], tmp_path / "data" / "tiny")
    return tmp_path


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def script(monkeypatch) -> Callable:
    """Return a function that runs a script in this process, as the shell would."""

    def run(name: str, *args: str | Path, stdin: bytes = b"") -> SimpleNamespace:
        out, err = Bytes(), Bytes()
        argv = [str(arg) for arg in args]
        with monkeypatch.context() as patch:
            for stream, value in (("stdin", Bytes(stdin)), ("stdout", out), ("stderr", err)):
                patch.setattr(sys, stream, value)
            patch.setattr(sys, "argv", [f"some/where/{name}", *argv])
            patch.setattr(warnings, "showwarning", warnings.showwarning)
            with pytest.raises(SystemExit) as stop:
                cli.run_main(SCRIPTS[name].main)
        return SimpleNamespace(status=stop.value.code or 0, out=out.text(), err=err.text())

    return run


@pytest.fixture(scope="module")
def trained_files(tmp_path_factory) -> Path:
    """Return the out_dir of a run of six steps over the tiny text."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.txt").write_text(TEXT, encoding="utf-8")
    prepare_files([folder / "tiny.txt"], folder / "data" / "tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "DATA", folder / "data")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            args = ["--dataset=tiny", "--max_iters=6", f"--out_dir={folder / 'out'}"]
            assert train.main([*TINY, *args]) == 0
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
    return sorted(contents(folder).keys() - {".lock"})


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
    assert cli.parse_train(args.split()).model.n_layer == 5


@pytest.mark.parametrize(
    ("arg", "value"),
    [("--compile", True), ("--no-compile", False), ("--no_compile", False)],
)
def test_spellings_of_a_switch(arg, value):
    assert cli.parse_train([arg]).runtime.compile is value
    assert cli.parse_train(["--compile", arg]).runtime.compile is value


@pytest.mark.parametrize("arg", ["--no-stream", "--no_stream"])
def test_spellings_of_a_switch_that_is_on(arg):
    assert cli.parse(SampleOptions, []).stream is True
    assert cli.parse(SampleOptions, [arg]).stream is False


def test_options_of_every_part_arrive():
    args = (
        "--preset classic --out-dir a/b --dataset otro --corpus mi.txt --n_embd=64 --position rope "
        "--bias --max_iters 7 --learning-rate 1e-2 --optimizer adamw --device cpu --dtype bfloat16"
    )
    found = cli.parse_train(args.split())
    assert found.run == RunConfig(preset="classic", out_dir=Path("a/b"))
    assert (found.data.dataset, found.data.corpus) == ("otro", Path("mi.txt"))
    model, training = PRESETS["classic"]
    assert found.model == replace(model, n_embd=64, position="rope", bias=True)
    assert found.train == replace(training, max_iters=7, learning_rate=0.01, optimizer="adamw")
    assert (found.runtime.device, found.runtime.dtype) == ("cpu", "bfloat16")


def test_options_of_sampling_arrive():
    args = (
        "--start=-x --num-samples 3 --max_new_tokens=0 --stop a --stop=bc --unknown nearest "
        "--seed 7 --temperature 0 --top_k 5 --top-p 0.5 --min_p=.1 --repetition_penalty 1.5"
    )
    found = cli.parse(SampleOptions, args.split())
    assert (found.start, found.num_samples, found.max_new_tokens) == ("-x", 3, 0)
    assert (found.stop, found.unknown, found.seed) == (("a", "bc"), "nearest", 7)
    sampling = found.sampling
    assert (sampling.temperature, sampling.top_k) == (0.0, 5)
    assert (sampling.top_p, sampling.min_p, sampling.repetition_penalty) == (0.5, 0.1, 1.5)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_chooses_the_defaults(preset):
    found = cli.parse_train(["--preset", preset, "--device", "cpu"])
    assert (found.model, found.train) == PRESETS[preset]
    assert found.run.preset == preset
    found = cli.parse_train([f"--preset={preset}", "--n_layer", "2", "--seed=3"])
    model, training = PRESETS[preset]
    assert (found.model, found.train) == (replace(model, n_layer=2), replace(training, seed=3))


@pytest.mark.parametrize(("device", "preset"), [("cpu", "mini"), ("cuda", "base")])
def test_the_device_chooses_the_preset(monkeypatch, device, preset):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: device == "cuda")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for args in ([], ["--preset", "auto"], ["--device", device]):
        found = cli.parse_train(args)
        assert found.run.preset == preset
        assert (found.model, found.train) == PRESETS[preset]
    assert cli.parse_train(["--device", "cpu"]).run.preset == "mini"


TRAIN_NAMES = """
    preset out_dir resume overwrite init_from dataset corpus
    block_size n_layer n_head n_embd dropout bias norm position activation ngram_size ngram_rows
    ngram_dropout embedding_skip qk_norm tie_embeddings
    max_iters batch_size gradient_accumulation_steps optimizer learning_rate muon_learning_rate
    ngram_learning_rate weight_decay beta1 beta2 grad_clip warmup_iters decay_fraction
    eval_interval log_interval patience seed device dtype compile
"""
SAMPLE_NAMES = """
    checkpoint start num_samples max_new_tokens stop unknown seed stream temperature top_k top_p
    min_p repetition_penalty device dtype compile
"""
SWITCHES = {"resume", "overwrite", "bias", "embedding_skip", "qk_norm", "tie_embeddings"}
SWITCHES |= {"compile", "stream"}


@pytest.mark.parametrize(
    ("name", "names"),
    [("train.py", TRAIN_NAMES), ("sample.py", SAMPLE_NAMES), ("prepare.py", "input name")],
)
def test_the_options_are_these(script, name, names):
    result = script(name, "--help")
    assert (result.status, result.err) == (0, "")
    expected = {f"--{option}" for option in names.split()} | {"--help"}
    expected |= {f"--no_{option}" for option in SWITCHES.intersection(names.split())}
    # An option stands at the beginning of its line, or behind its other spelling.
    found = re.findall(r"^[│ ]*(?:-\w, )?(--\w+)(?:, (--\w+))?", result.out, re.MULTILINE)
    assert {option for pair in found for option in pair if option} == expected


# --- one clear line -------------------------------------------------------------------------

BAD_LINES = [
    ("train.py", "--n_layr 4", "--n_layr", "--n_layer"),
    ("train.py", "--n_layr=4", "--n_layr", "--n_layer"),
    ("train.py", "--n-layr 4", "--n-layr", "--n_layer"),
    ("train.py", "--learning_rat 4", "--learning_rate"),
    ("train.py", "--no_compil", "compile"),
    ("train.py", "--batchsize 4", "--batch_size"),
    ("train.py", "--zzzz", "--zzzz", "--help"),
    ("train.py", "--vocab_size 5", "--vocab_size"),
    ("train.py", "spare", "spare"),
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
    ("sample.py", "", "out/best.safetensors", "does not exist"),
    ("sample.py", "--checkpoint data", "data", "folder"),
    ("prepare.py", "--nam x", "--nam", "--name"),
    ("prepare.py", "--name other", "--input"),
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
def test_a_line_that_cannot_be_used(script, project, name, line, parts):
    assert_refused(script(name, *line.split()), name, *parts)
    assert not (project / "out").exists()


def test_a_hint_is_another_option_than_the_one_given(script):
    """vocab_size is decided by the text, so it is no option and must not be proposed."""
    assert "did you mean --vocab_size" not in script("train.py", "--vocab_size", "5").err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["train.py", "sample.py"])
def test_a_gpu_that_is_not_there(script, trained, name):
    options = ["--dataset=tiny", "--out_dir=new"] if name == "train.py" else []
    result = script(name, "--device", "cuda", *options)
    assert_refused(result, name, "--device cuda", "--device cpu")


def test_a_text_that_is_empty(script, project):
    (project / "empty.txt").write_bytes(b"")
    (project / "blank.txt").write_bytes(b" \n\t\n")
    for name in ("empty", "blank"):
        assert_refused(script("train.py", "--corpus", f"{name}.txt"), "train.py", f"{name}.txt")
        result = script("prepare.py", "--input", f"{name}.txt", "--name", name)
        assert_refused(result, "prepare.py", f"{name}.txt")
        assert not (project / "data" / name).exists()
    assert not (project / "out").exists()


@pytest.mark.parametrize("offset", [0, 5, 300_000])
def test_a_text_that_is_not_utf8(script, project, offset):
    (project / "latin.txt").write_bytes((b"Quijote\n" * 40_000)[:offset] + b"\xf1andu")
    for name, line in (
        ("train.py", "--corpus latin.txt"),
        ("prepare.py", "--input latin.txt --name latin"),
    ):
        result = script(name, *line.split())
        assert_refused(result, name, "latin.txt", "UTF-8", "0xf1", f"offset {offset};")
    assert sorted(path.name for path in project.iterdir()) == ["data", "latin.txt", "tiny.txt"]
    assert [path.name for path in (project / "data").iterdir()] == ["tiny"]


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
def test_a_pipe_a_device_and_a_circle_of_links(script, project, trained, pipe, name, line):
    prefix = "FILE:" if line.endswith("--start") else ""
    Path("circle").symlink_to("circle")
    for path, words in ((pipe, "a pipe"), (os.devnull, "a device"), ("circle", "does not exist")):
        result = script(name, *line.split(), prefix + path)
        assert_refused(result, name, path, words)
    assert not (project / "new").exists()


@posix
def test_a_folder_that_is_a_circle_of_links(script, project):
    Path("circle").symlink_to("circle")
    result = script("train.py", *TINY, "--dataset=tiny", "--out_dir=circle")
    assert_refused(result, "train.py", "--out_dir circle", "choose another one")


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
def test_an_odd_text_is_learned_and_written(script, project, text):
    (project / "odd.txt").write_text(text, encoding="utf-8")
    result = script("train.py", *TINY, "--corpus=odd.txt", "--max_iters=1")
    assert result.status == 0, result.err
    assert len(result.out) == 400
    assert set(result.out) <= set(unicodedata.normalize("NFC", text) + "\n")
    start = ["--start", "FILE:odd.txt", "--max_new_tokens=5"]
    result = script("sample.py", *start)
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
def test_a_start_or_a_text_that_is_no_text(script, project, trained, raw):
    (project / "binary").write_bytes(raw)
    for name, line in (
        ("train.py", "--corpus=binary"),
        ("prepare.py", "--name=new --input=binary"),
        ("sample.py", "--start=FILE:binary"),
    ):
        assert_refused(script(name, *line.split()), name, "binary is not UTF-8: byte 0x")


def test_a_start_of_megabytes(script, project, trained):
    text = TEXT * 2_000
    (project / "long.txt").write_text(text, encoding="utf-8")
    result = script("sample.py", "--start", "FILE:long.txt", "--max_new_tokens=5")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith(text)
    assert len(result.out) == len(text) + 6
    end = script("sample.py", "--start", text[-8:], "--max_new_tokens=5")  # a block
    assert end.out == result.out[-14:]
    (project / "long.txt").write_text(text + "€", encoding="utf-8")
    result = script("sample.py", "--start", "FILE:long.txt")
    assert_refused(result, "sample.py", f"'€' at position {len(text)}")


def test_a_text_shorter_than_a_block(script, project):
    (project / "short.txt").write_text("Vale.\n", encoding="utf-8")
    result = script("train.py", "--corpus", "short.txt", "--block_size=96", "--out_dir", "new")
    assert_refused(result, "train.py", "short", "6 characters", "--block_size 96", "at least 107")
    assert not (project / "new").exists()


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
def test_a_checkpoint_that_cannot_be_used(script, trained, kind):
    raw, word = broken_checkpoints((trained / "best.safetensors").read_bytes())[kind]
    for name in ("best", "last"):
        (trained / f"{name}.safetensors").write_bytes(raw)
    assert_refused(script("sample.py"), "sample.py", "best.safetensors", word)
    assert_refused(script("train.py", "--resume"), "train.py", "last.safetensors", word)
    result = script("train.py", "--init_from", "out/best.safetensors", "--out_dir", "new")
    assert_refused(result, "train.py", "best.safetensors", word)


@pytest.mark.parametrize("options", [[], ["--no-stream"], ["--temperature=0"], ["--top_p=0.5"]])
def test_weights_as_large_as_numbers_can_be(script, trained, options):
    """They are finite, and what is computed with them is not."""
    path = trained / "best.safetensors"
    saved = checkpoint.load(path)
    huge = {name: 3e38 * t.sign() for name, t in saved.weights.items()}
    checkpoint.save(path, replace(saved, weights=huge))
    result = script("sample.py", "--start=En", "--max_new_tokens=20", *options)
    assert result.status == 0, result.err
    assert len(result.out) == 2 + 20 + 1
    assert all(line.startswith("note: ") for line in result.err.splitlines())


@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_a_folder_that_cannot_be_written(script, project, below):
    path = Path("tiny.txt", below)
    result = script("train.py", *TINY, "--dataset", "tiny", "--out_dir", path)
    assert_refused(result, "train.py", f"--out_dir {path}")
    assert (project / "tiny.txt").read_text(encoding="utf-8") == TEXT


def test_a_folder_that_holds_a_run(script, trained):
    before = {path.name: path.read_bytes() for path in trained.iterdir()}
    result = script("train.py", *TINY, "--dataset", "tiny")
    assert_refused(result, "train.py", "out", "--resume", "--overwrite", "--out_dir")
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == before


def test_a_text_too_short_leaves_the_run_that_it_would_replace(script, trained):
    before = {path.name: path.read_bytes() for path in trained.iterdir()}
    line = ["--dataset=tiny", "--overwrite", "--block_size=5000"]
    assert_refused(script("train.py", *TINY, *line), "train.py", "--block_size 5000")
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == before


def test_a_message_of_several_lines_becomes_one(script, monkeypatch):
    def fail(args):
        raise UserError("one\n  two\r\n\tthree")

    monkeypatch.setattr(train, "main", fail)
    assert script("train.py").err == "train.py: error: one two three\n"


def test_a_full_disk_is_one_line(script, monkeypatch):
    def fail(args):
        raise OSError(28, "No space left on device", "out/last.safetensors.tmp")

    monkeypatch.setattr(train, "main", fail)
    result = script("train.py")
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
def test_too_little_memory_is_one_line(script, monkeypatch, take_memory):
    monkeypatch.setattr(train, "main", lambda args: take_memory())
    assert_refused(script("train.py"), "train.py", "not enough memory", "--batch_size")


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), RuntimeError("x"), OSError()])
def test_a_bug_passes_through(monkeypatch, error):
    def fail(args):
        raise error

    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(type(error)):
        cli.run_main(fail)


def test_errors_keep_their_python_classes():
    assert issubclass(UserError, ValueError)
    with pytest.raises(MissingFile):
        cli.parse_train(["--resume", "--out_dir", "nothing/there"])


# --- train.py -------------------------------------------------------------------------------


def test_train_from_beginning_to_end(script, project):
    result = script("train.py", *TINY, "--dataset=tiny", "--max_iters=6", "--log_interval=2")
    assert result.status == 0
    assert files_in(project / "out") == [
        "best.safetensors",
        "config.json",
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
    assert "6/6" in result.err
    assert "Traceback" not in result.err
    lines = (project / "out" / "metrics.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4, 6]
    started = json.loads((project / "out" / "config.json").read_text("utf-8"))
    assert started["train"]["max_iters"] == 6
    assert started["data"]["dataset"] == "tiny"
    assert started["model"] == {**started["model"], **SHAPE}
    assert best.model == ModelConfig(vocab_size=len(set(TEXT)), **SHAPE)


def test_a_text_is_prepared_on_the_way(script, project):
    (project / "mine.txt").write_text(TEXT[:600], encoding="utf-8")
    result = script("train.py", *TINY, "--corpus", "mine.txt", "--max_iters", "1")
    assert result.status == 0
    assert (project / "data" / "mine" / "meta.json").is_file()
    assert checkpoint.load(project / "out" / "last.safetensors").corpus_name == "mine"
    again = script("train.py", "--resume", "--max_iters", "2", "--device", "cpu")
    assert again.status == 0, again.err
    assert checkpoint.load(project / "out" / "last.safetensors").progress.step == 2


def test_resume_with_more_steps(script, project, trained):
    result = script("train.py", "--resume", "--max_iters", "8", "--device", "cpu")
    assert result.status == 0, result.err
    last = checkpoint.load(trained / "last.safetensors")
    assert last.progress.step == 8
    assert last.train == TrainConfig(max_iters=8, batch_size=2)
    assert last.model == ModelConfig(vocab_size=len(set(TEXT)), **SHAPE)
    lines = (trained / "metrics.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [6, 8]


def test_resume_of_a_run_that_is_done(script, trained):
    assert_refused(script("train.py", "--resume"), "train.py", "6 steps", "--max_iters")


def test_resume_with_another_model_lists_what_differs(script, trained):
    before = (trained / "last.safetensors").read_bytes()
    line = "--resume --max_iters 9 --n_layer 3 --norm layernorm --n_head 2"
    result = script("train.py", *line.split())
    assert_refused(result, "train.py", "n_layer: 1, not 3", "norm: 'rmsnorm', not 'layernorm'")
    assert "n_head" not in result.err
    assert (trained / "last.safetensors").read_bytes() == before


def test_resume_with_another_text(script, project, trained):
    (project / "other.txt").write_text("Otro texto. " * 40, encoding="utf-8")
    result = script("train.py", "--resume", "--max_iters=9", "--corpus", "other.txt")
    assert_refused(result, "train.py", "other", "--dataset")


def test_resume_with_another_optimizer_works_or_is_refused(script, trained):
    line = "--resume --max_iters 8 --optimizer adamw --device cpu"
    result = script("train.py", *line.split())
    if result.status:
        assert_refused(result, "train.py", "optimizer")
    else:
        assert checkpoint.load(trained / "last.safetensors").progress.step == 8


def test_overwrite_begins_anew(script, trained):
    result = script("train.py", *TINY, "--dataset=tiny", "--max_iters=2", "--overwrite")
    assert result.status == 0
    assert checkpoint.load(trained / "last.safetensors").progress.step == 2
    assert len((trained / "metrics.jsonl").read_text("utf-8").splitlines()) == 1


def test_init_from_takes_weights_and_vocabulary(script, project, trained):
    (project / "other.txt").write_text("una mancha del lugar. " * 40, encoding="utf-8")
    line = "--init_from out/best.safetensors --corpus other.txt --out_dir new --max_iters 3"
    result = script("train.py", *line.split(), "--batch_size=2", "--device=cpu", "--dropout=0.1")
    assert result.status == 0, result.err
    new, old = (checkpoint.load(path / "last.safetensors") for path in (project / "new", trained))
    assert new.characters == old.characters
    assert new.model == replace(old.model, dropout=0.1)
    assert new.progress.step == 3
    assert new.corpus_name == "other"


def test_init_from_refuses_what_does_not_fit(script, project, trained):
    line = "--init_from out/best.safetensors --dataset tiny --out_dir new --device cpu"
    result = script("train.py", *line.split(), "--n_embd", "16")
    assert_refused(result, "train.py", "n_embd: 8, not 16")
    (project / "other.txt").write_text("¿Qué? ¡Así! " * 40, encoding="utf-8")
    result = script("train.py", *line.split(), "--corpus", "other.txt")
    assert_refused(result, "train.py", "'¿'", "other")
    assert not (project / "new").exists()


def test_the_command_to_go_on_can_be_pasted():
    for folder in ("out", "mi carpeta", "it's"):
        options = TrainOptions(run=RunConfig(out_dir=Path(folder)))
        python, name, *args = shlex.split(train.resume(options))
        assert (python, name) == ("python", "train.py")
        assert args == ["--resume", "--out_dir", folder]


def test_a_diverging_run_is_one_line_and_keeps_what_was_saved(script, project):
    line = "--dataset=tiny --max_iters=50 --eval_interval=1 --learning_rate=1e30"
    result = script("train.py", *TINY, *line.split())
    assert result.status == 2
    assert "Traceback" not in result.err
    last = result.err.splitlines()[-1]
    assert last.startswith("train.py: error: ")
    assert "--learning_rate" in last
    for path in (project / "out").glob("*.safetensors"):
        checkpoint.load(path)


# --- sample.py ------------------------------------------------------------------------------


def test_stdout_is_the_prompt_its_continuation_and_a_newline(script, trained):
    result = script("sample.py", "--start", "En un lugar", "--max_new_tokens", "30")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("En un lugar")
    assert result.out.endswith("\n")
    assert len(result.out) == len("En un lugar") + 30 + 1
    assert set(result.out) <= set(TEXT)
    assert script("sample.py", "--start", "En un lugar", "--max_new_tokens=30").out == result.out
    other = script("sample.py", "--start", "En un lugar", "--max_new_tokens=30", "--seed=7")
    assert other.out != result.out


def test_no_new_characters_leave_the_prompt(script, trained):
    assert script("sample.py", "--start", "Mancha", "--max_new_tokens", "0").out == "Mancha\n"
    assert script("sample.py", "--max_new_tokens", "0").out == "\n\n"


def test_the_start_from_a_file_and_from_stdin(script, project, trained):
    plain = script("sample.py", "--start", "Mancha,\n de", "--max_new_tokens", "9").out
    raw = b"\xef\xbb\xbfMancha,\r\n de"
    (project / "mi inicio.txt").write_bytes(raw)
    line = ["--start", "FILE:mi inicio.txt", "--max_new_tokens", "9"]
    assert script("sample.py", *line).out == plain
    assert script("sample.py", "--start", "-", "--max_new_tokens", "9", stdin=raw).out == plain


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
def test_a_start_that_cannot_be_used(script, project, trained, start, stdin, parts):
    (project / "latin.txt").write_bytes(b"E\xf1")
    result = script("sample.py", f"--start={start}", stdin=stdin)
    assert_refused(result, "sample.py", *parts)


def test_unknown_characters_skipped_or_replaced(script, trained):
    line = ["--start", "Él1", "--max_new_tokens", "0", "--unknown"]
    assert script("sample.py", *line, "skip").out == "l\n"
    assert_refused(script("sample.py", *line, "nearest"), "sample.py", "'1' at position 2")
    assert script("sample.py", "--start", "Él", *line[2:], "nearest").out == "El\n"


@pytest.mark.parametrize("options", [[], ["--stop", "a"], ["--temperature=0", "--stop=, "]])
def test_streamed_or_not_it_is_the_same(script, trained, options):
    line = ["--start", "En un", "--num_samples", "2", "--max_new_tokens", "40", *options]
    streamed, whole = script("sample.py", *line), script("sample.py", *line, "--no-stream")
    assert streamed.status == whole.status == 0
    assert streamed.out == whole.out
    assert streamed.err == whole.err == "--- 1 of 2\n--- 2 of 2\n"
    assert streamed.out.count("En un") >= 2
    if not options:
        first, second = streamed.out[:46], streamed.out[46:]
        assert len(second) == 46
        assert first != second
        assert script("sample.py", *line, "--num_samples", "1").out == first


def test_stop_ends_the_text_before_the_stop(script, trained):
    line = ["--start", "En un", "--max_new_tokens", "60"]
    whole = script("sample.py", *line).out[len("En un") : -1]
    for stop in (whole[20:22], whole[7]):
        expected = "En un" + whole[: whole.index(stop)] + "\n"
        assert script("sample.py", *line, "--stop", stop).out == expected
    both = script("sample.py", *line, "--stop", whole[30:33], "--stop", whole[12:15]).out
    ends = min(whole.index(whole[30:33]), whole.index(whole[12:15]))
    assert both == "En un" + whole[:ends] + "\n"


@pytest.mark.parametrize("options", [[], ["--no-stream"]], ids=["streamed", "whole"])
def test_an_empty_stop_is_refused_before_anything_is_written(script, trained, options):
    assert_refused(script("sample.py", "--stop", "", *options), "sample.py", "--stop")


def test_temperature_zero_needs_no_seed(script, trained):
    line = ["--start", "En un", "--max_new_tokens", "20", "--temperature", "0"]
    texts = {script("sample.py", *line, "--seed", str(seed)).out for seed in range(3)}
    assert len(texts) == 1


@posix
def test_a_file_whose_name_is_not_utf8(script, project):
    name = os.fsdecode(b"\xf1.txt")
    try:
        (project / name).write_text(TEXT, encoding="utf-8")
    except OSError:
        pytest.skip("this file system takes no such name")
    result = script("prepare.py", "--input", name, "--name", "new")
    assert result.status == 0, result.err


# --- data/prepare.py ------------------------------------------------------------------------


def test_prepare_several_files_and_stdin(script, project):
    (project / "b.txt").write_text("Dulcinea\n", encoding="utf-8")
    line = ["--name", "new", "--input", "b.txt", "-", "b.txt"]
    result = script("prepare.py", *line, stdin="Sancho, ñ\n".encode())
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


def test_prepare_says_what_it_has_found(script):
    result = script("prepare.py", "--input", "tiny.txt", "--name", "again")
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
def test_a_signal_saves_and_the_run_goes_on(own_project, script, number, status):
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
    again = script("train.py", *command, f"--max_iters={step + 2}", "--device=cpu")
    assert again.status == 0, again.err
    assert checkpoint.load(own_project / "new" / "last.safetensors").progress.step == step + 2


@posix
@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_at_the_last_step_finds_the_run_done(script, project, monkeypatch, number, status):
    show = cli.ProgressBar.show

    def show_and_stop(bar, report) -> None:
        show(bar, report)
        if report.step == 6:
            signal.raise_signal(getattr(signal, number))

    monkeypatch.setattr(cli.ProgressBar, "show", show_and_stop)
    line = "--dataset=tiny --max_iters=6 --log_interval=2"
    result = script("train.py", *TINY, *line.split())
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
def test_a_run_can_be_read_but_not_touched_while_it_goes_on(own_project, script):
    """The first process is halted meanwhile, so that whatever changes is the second's doing."""
    out, line = own_project / "my out", "--dataset=tiny --max_iters=1000000 --eval_interval=1"
    process = start_process(own_project, "train.py", *TINY, *line.split(), "--out_dir", out)
    wait_for(out / "last.safetensors", process)
    process.send_signal(signal.SIGSTOP)
    before = contents(out)
    for mode in ("--overwrite", "--resume", "--dataset=tiny"):
        result = script("train.py", "--out_dir", "my out", mode, "--device=cpu")
        assert_refused(result, "train.py", "my out", f"process {process.pid} on ")
        assert contents(out) == before
    best = out / "best.safetensors"
    result = script("sample.py", "--checkpoint", best, "--start=En", "--max_new_tokens=9")
    assert (result.status, len(result.out)) == (0, 12), result.err
    assert contents(out) == before

    process.kill()
    finish(process)
    assert ".holder" in files_in(out)
    step = checkpoint.load(out / "last.safetensors").progress.step
    result = script("train.py", "--out_dir", out, "--resume", f"--max_iters={step + 1}")
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
        "last.safetensors",
        "metrics.jsonl",
    ]
    assert checkpoint.load(own_project / "new" / "last.safetensors").progress.step == 3
    assert len((own_project / "new" / "metrics.jsonl").read_text("utf-8").splitlines()) == 1


@pytest.mark.parametrize("new", [True, False], ids=["a new text", "a text that is there"])
def test_a_text_that_is_being_prepared_is_kept_from_others(own_project, script, new):
    folder = own_project / "data" / "slow"
    shutil.copy("tiny.txt", "slow.txt")
    if not new:
        assert script("prepare.py", "--input", "slow.txt", "--name", "slow").status == 0
    line = ["data/prepare.py", "--input", "-", "--name", "slow"]
    process = start_process(own_project, *line, stdin=subprocess.PIPE)
    wait_for(folder / "input.txt.tmp", process)
    before = contents(folder)
    for name, args in (
        ("prepare.py", ["--input", "tiny.txt", "--name", "slow"]),
        ("train.py", [*TINY, "--corpus", "slow.txt"]),
    ):
        result = script(name, *args)
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
        "cli.run_main(train.main)\n"
    )
    result = finish(start_process(own_project, "-c", code))
    assert result.status == 1
    assert "Traceback" in result.err
    assert "in buggy" in result.err
    assert result.err.splitlines()[-1] == "ValueError: a bug of ours"
    assert "train.py: error:" not in result.err


@pytest.mark.parametrize("options", [[], ["--no-stream"]], ids=["streamed", "whole"])
def test_a_text_that_is_interrupted_is_no_error_with_a_traceback(
    script, trained, monkeypatch, options
):
    generate, whole = sancho_generate.generate, script("sample.py", "--max_new_tokens=20").out

    def generate_a_little(*args, **kwargs):
        yield from itertools.islice(generate(*args, **kwargs), 12)
        raise KeyboardInterrupt

    monkeypatch.setattr(sancho_generate, "generate", generate_a_little)
    result = script("sample.py", "--max_new_tokens=20", *options)
    assert (result.status, result.err) == (130, "\ninterrupted\n")
    assert result.out == whole[: 0 if options else 1 + 12]


@posix
@pytest.mark.slow
def test_ctrl_c_ends_a_text_where_it_is(own_project, trained, script):
    line = ["--start=En un lugar", "--max_new_tokens=100000000"]
    process = start_process(own_project, "sample.py", *line)
    seen = process.stdout.read(50)
    process.send_signal(signal.SIGINT)
    result = finish(process)
    assert (result.status, result.err) == (130, "\ninterrupted\n")
    text = seen.decode() + result.out
    expected = script("sample.py", line[0], f"--max_new_tokens={len(text)}").out
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
