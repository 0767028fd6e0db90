"""What several test files share: `from conftest import …`, or a fixture by its name."""

import importlib.util
import io
import multiprocessing
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TypeVar

import pytest
import torch

import convert
import evaluate
import sample
import train
from sancho import cli, start
from sancho.config import DeviceConfig, ModelConfig, RunConfig, TrainOptions
from sancho.corpus import prepare_files
from sancho.device import choose_device
from sancho.model import GPT

ROOT = Path(__file__).resolve().parent.parent
TEXT = "En un lugar de la Mancha, de cuyo nombre no quiero acordarme.\n" * 30
Module = TypeVar("Module", bound=torch.nn.Module)


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


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """One thread for PyTorch: sums in one order, and small models are faster so."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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


@pytest.fixture(scope="session")
def server_of_processes() -> None:
    """Start it in the project's folder, where it finds what it is to import once for all."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(["train"])
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        forkserver.ensure_running()
    finally:
        os.chdir(before)


def start_process(target: Callable, *args: object) -> multiprocessing.Process:
    """Call `target` in a process that need not import PyTorch first."""
    process = multiprocessing.get_context("forkserver").Process(target=target, args=args)
    process.start()
    return process


def parse_train(args: Sequence[str]) -> TrainOptions:
    """Return the options that train.py finds in `args`, as they are before it sees the text."""
    run = cli.parse_part(RunConfig(), args)
    device = choose_device(cli.parse_part(DeviceConfig(), args))
    return train.parse(start.default_options(run, device, start.find_source(run)), args)
