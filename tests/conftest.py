"""What several test files share: `from conftest import …`, or a fixture by its name."""

import importlib.util
import io
import json
import multiprocessing
import os
import shutil
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import forkserver
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TypeVar

# One thread for all, subprocesses too, said before anybody imports PyTorch or NumPy: sums come in
# one order, small models are faster so, and several processes don't fight for the cores.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np
import pytest
import torch
from hypothesis import settings
from tqdm import tqdm

import convert
import evaluate
import sample
import train
from sancho import checkpoint, cli
from sancho.config import (
    DeviceConfig,
    ModelConfig,
    RunConfig,
    TrainConfig,
    TrainOptions,
    with_given,
)
from sancho.corpus import Corpus, prepare, prepare_files
from sancho.machine.device import Device, choose_device
from sancho.model import GPT
from sancho.run import setup
from sancho.run.folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
TEXT = "En un lugar de la Mancha, de cuyo nombre no quiero acordarme.\n" * 30
MEMORY = Path("/dev/shm")
"""Where Linux has a file system in memory; to write and sync there takes no time."""
Module = TypeVar("Module", bound=torch.nn.Module)

# The same examples each time, on a machine that may be busy.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

# A lock between processes, as tqdm would make it, is lost where a process is killed.
tqdm.set_lock(threading.RLock())


def pytest_configure() -> None:
    """Put the folders of tests into memory where there is room; pytest numbers them by run."""
    torch.set_num_threads(1)
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


# --- models ---------------------------------------------------------------------------------


@torch.no_grad()
def randomise(module: Module, std: float = 0.3, seed: int = 0) -> Module:
    """Draw every weight anew, so that none is zero; return the module."""
    random = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.normal_(0, std, generator=random)
    return module


def random_gpt(config: ModelConfig, std: float = 0.3, seed: int = 0) -> GPT:
    """Return a model in evaluation mode, every weight of it drawn from one seeded generator."""
    return randomise(GPT(config), std, seed).eval()


@pytest.fixture(scope="session")
def one_thread() -> None:
    """PyTorch computes in one thread: sums in one order, and small models are faster so."""
    assert torch.get_num_threads() == 1


# --- a small run ----------------------------------------------------------------------------

CPU = Device(torch.device("cpu"), torch.float32)


def prepared(text: str, folder: Path) -> Corpus:
    return prepare([("a text", io.BytesIO(text.encode()))], folder, "a test")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Corpus:
    text = "La razón de la sinrazón que a mi razón se hace.\n" * 20
    return prepared(text, tmp_path_factory.mktemp("data") / "tiny")


def small_options(**train) -> TrainOptions:
    """Return options for six steps of a model with every kind of weight."""
    shape = {"block_size": 8, "n_layer": 1, "n_head": 1, "n_embd": 4}
    shape |= {"ngram_size": 3, "ngram_rows": 16, "embedding_skip": True}
    train = {"max_iters": 6, "batch_size": 2, "eval_interval": 3, "log_interval": 2} | train
    return TrainOptions(model=ModelConfig(**shape), train=TrainConfig(**train))


# --- scripts --------------------------------------------------------------------------------


def load_prepare() -> ModuleType:
    """Return data/prepare.py as a module; data/ is no package."""
    spec = importlib.util.spec_from_file_location("prepare", ROOT / "data" / "prepare.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    before = sys.path.copy()
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


SCRIPTS = {
    "train.py": train,
    "sample.py": sample,
    "evaluate.py": evaluate,
    "convert.py": convert,
    "prepare.py": load_prepare(),
}


def make_project(folder: Path) -> Path:
    """Write tiny.txt and prepare it as data/tiny in a folder, and return the folder."""
    (folder / "tiny.txt").write_text(TEXT, encoding="utf-8")
    prepare_files([folder / "tiny.txt"], folder / "data" / "tiny")
    return folder


def use_data(patch: pytest.MonkeyPatch, data: Path) -> None:
    """Let the scripts keep their corpora in another folder than the repository's data/."""
    for name in ("train.py", "evaluate.py", "convert.py", "prepare.py"):
        patch.setattr(SCRIPTS[name], "DATA", data)


@pytest.fixture(scope="session")
def pristine_project(tmp_path_factory) -> Path:
    """A project to copy: to prepare one for each test takes ten times as long."""
    return make_project(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def project(pristine_project, tmp_path, monkeypatch) -> Path:
    """A folder of its own to work in, with a data/tiny that is prepared and used."""
    use_data(monkeypatch, tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(pristine_project, tmp_path, dirs_exist_ok=True)


class Bytes(io.TextIOWrapper):
    """A text stream over bytes in memory, as the real stdout and stdin are over files."""

    def __init__(self, raw: bytes = b"") -> None:
        super().__init__(io.BytesIO(raw), encoding="utf-8", newline="")

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()


def run(name: str, *args: str | Path, stdin: bytes = b"") -> SimpleNamespace:
    """Run one of SCRIPTS in this process, as the shell would; return its status, out and err."""
    out, err = Bytes(), Bytes()
    with pytest.MonkeyPatch.context() as patch:
        for stream, value in (("stdin", Bytes(stdin)), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, stream, value)
        patch.setattr(sys, "argv", [f"some/where/{name}", *map(str, args)])
        patch.setattr(warnings, "showwarning", warnings.showwarning)
        with pytest.raises(SystemExit) as stop:
            cli.exit_with(SCRIPTS[name].main)
    return SimpleNamespace(status=stop.value.code or 0, out=out.text(), err=err.text())


def parse_train(args: Sequence[str]) -> TrainOptions:
    """Return the options that train.py finds in `args`, as they are before it sees the text."""
    run = cli.parse_part(RunConfig(), args)
    device = choose_device(cli.parse_part(DeviceConfig(), args))
    defaults = setup.default_options(run, device, setup.find_initial(run))
    return with_given(defaults, cli.read(defaults, args) | vars(defaults.run))


# --- processes ------------------------------------------------------------------------------


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin early with what takes seconds."""
    if any("server_of_processes" in getattr(item, "fixturenames", ()) for item in session.items):
        start_server()


@pytest.fixture(scope="session")
def server_of_processes() -> None:
    """The processes of `start_process` need not import anything: their server has done so."""
    start_server()


def start_server() -> None:
    """Start it, unless it runs already, where it finds what it is to import; Windows has none."""
    if sys.platform == "win32":
        return
    multiprocessing.get_context("forkserver").set_forkserver_preload(["conftest"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
        forkserver.ensure_running()


def start_process(target: Callable, *args: object) -> multiprocessing.Process:
    """Call `target` in a process that need not import PyTorch first, but on Windows."""
    how = "spawn" if sys.platform == "win32" else "forkserver"
    process = multiprocessing.get_context(how).Process(target=target, args=args)
    process.start()
    return process


# --- training runs --------------------------------------------------------------------------

# All that has a state: dropout, parts of a step, both optimizers and the table; saved every step.
ARGS = (
    "--dataset tiny --n_layer 1 --n_head 2 --n_embd 8 --block_size 8 --ngram_rows 16 --batch_size 2"
    " --dropout 0.1 --gradient_accumulation_steps 2 --eval_interval 1 --log_interval 1 --device cpu"
).split()


def train_quietly(project: Path, out: Path, max_iters: int, *more: str) -> int:
    """Run train.py in this process; go on with what is in `out`, or begin anew.

    What was killed before its first checkpoint needs no --overwrite.
    """
    train.DATA = project / "data"
    args = [*ARGS, "--out_dir", str(out), "--max_iters", str(max_iters), *more]
    if any(out.glob("*.safetensors")):
        args.append("--resume" if RunFolder(out).last.exists() else "--overwrite")
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return train.main(args)


def what_was_saved(out: Path) -> list[checkpoint.Checkpoint]:
    """Load every checkpoint that is there."""
    folder = RunFolder(out)
    return [checkpoint.load(path) for path in (folder.best, folder.last) if path.exists()]


def metrics_of(out: Path) -> list[dict]:
    """Read metrics.jsonl without what depends on the clock."""
    lines = RunFolder(out).metrics.read_text("utf-8").splitlines()
    clock = {"seconds", "tokens_per_second"}
    return [{k: v for k, v in json.loads(line).items() if k not in clock} for line in lines]


def assert_same_run(out: Path, expected: Path) -> None:
    """Compare weights, optimizer, losses and metrics bit for bit."""
    for ours, theirs in zip(what_was_saved(out), what_was_saved(expected), strict=True):
        for part in ("weights", "optimizer"):
            ours_part, theirs_part = getattr(ours, part), getattr(theirs, part)
            assert ours_part.keys() == theirs_part.keys()
            assert all(np.array_equal(ours_part[name], theirs_part[name]) for name in ours_part)
        assert ours.progress.step == theirs.progress.step
        assert ours.progress.best_val_loss == theirs.progress.best_val_loss
    assert metrics_of(out) == metrics_of(expected)
