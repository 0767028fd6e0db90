"""What several test files share: `from conftest import …`, or a fixture by its name."""

import io
import json
import multiprocessing
import os
import re
import runpy
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import is_dataclass
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace

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
from sancho import checkpoint
from sancho.command import cli, terminal
from sancho.config import EvaluateOptions, FolderConfig, ModelConfig, TrainConfig, options_of
from sancho.machine.device import Device, choose_device
from sancho.model import GPT
from sancho.presets import TrainOptions
from sancho.run.folder import RunFolder
from sancho.run.plan import NOTHING, defaults, device_config
from sancho.run.report import Report
from sancho.text import sources
from sancho.text.clean import clean_text
from sancho.text.corpus import Corpus

ROOT = Path(__file__).resolve().parent.parent
TEXT = "En un lugar de la Mancha, de cuyo nombre no quiero acordarme.\n" * 30
CPU = Device(torch.device("cpu"), torch.float32)
HERE = "here: "  # so begins the reason of a skip that is the machine's and no fault
MEMORY = Path("/dev/shm")
"""Where Linux has a file system in memory."""

# The same examples each time, on a machine that may be busy.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

# A lock between processes, as tqdm would make it, is lost where a process is killed.
tqdm.set_lock(threading.RLock())


def pytest_configure() -> None:
    """Put the folders of tests into memory where there is room."""
    torch.set_num_threads(1)
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Under SANCHO_NO_SKIPS=1, let a skip fail, but for those of this system or machine."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):  # and not expected to fail
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if os.environ.get("SANCHO_NO_SKIPS") == "1" and not reason.startswith(HERE):
            report.outcome = "failed"
            report.longrepr = f"skipped: {reason} (SANCHO_NO_SKIPS=1)"
    return report


pytest_make_collect_report = pytest_runtest_makereport


UNSAID = re.compile(
    rf"^Skipped: ({HERE})?|could not import |'|: (No module|npm ci|SANCHO_).*|\S*/", re.DOTALL
)
"""What the line about skipped tests leaves out of a reason: paths, and how to install it."""


def pytest_terminal_summary(terminalreporter) -> None:
    """Say in one line how many tests were skipped, and why."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped and os.environ.get("SANCHO_NO_SKIPS") != "1":
        reasons = Counter(UNSAID.sub("", report.longrepr[2]) for report in skipped)
        said = ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
        how = ".github/CONTRIBUTING.md says how to install what is missing"
        terminalreporter.write_line(f"{len(skipped)} skipped: {said}; {how}")


@torch.no_grad()
def randomise(module: torch.nn.Module, std: float = 0.3, seed: int = 0) -> torch.nn.Module:
    """Draw every weight anew, so that none is zero; return the module."""
    random = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.normal_(0, std, generator=random)
    return module


def random_gpt(config: ModelConfig, std: float = 0.3, seed: int = 0) -> GPT:
    """Return a model in evaluation mode with random weights, and the n-grams of a random text."""
    model = randomise(GPT(config), std, seed).eval()
    if config.ngram_size > 1:
        model.ngram_embedding.learn_vocabulary(np.random.default_rng(1).integers(11, size=99))
    return model


def assert_same_arrays(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    """Compare names, types, shapes and bits."""
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        other = theirs[name]
        assert (array.dtype, array.shape) == (other.dtype, other.shape), name
        assert array.tobytes() == other.tobytes(), name


def corpus_from(text: str, name: str = "tiny") -> Corpus:
    return Corpus.of(name, [clean_text(text)])


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return corpus_from("La razón de la sinrazón que a mi razón se hace.\n" * 20)


SCRIPTS = {f"{each.__name__}.py": each for each in (train, sample, evaluate, convert)}
READ_BEFORE = {"train.py": TrainOptions(), "evaluate.py": EvaluateOptions()}
"""Options that are read before PyTorch is loaded."""


def main_of(name: str, args: Sequence[str]) -> int | None:
    """Run the main function of one of SCRIPTS on the arguments of a command line."""
    options = READ_BEFORE.get(name)
    return SCRIPTS[name].main(cli.read(options, args) if options else args)


def make_project(folder: Path) -> Path:
    """Write tiny.txt into a folder and into its data/, and return the folder."""
    (folder / "data").mkdir()
    for path in (folder / "tiny.txt", folder / "data" / "tiny.txt"):
        path.write_text(TEXT, encoding="utf-8")
    return folder


def use_data(patch: pytest.MonkeyPatch, data: Path) -> None:
    """Let the scripts find and keep their texts in another folder."""
    patch.setattr(sources, "DATA", data)


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A folder to work in, with a data/tiny.txt that is used, where no network answers."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    use_data(monkeypatch, tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return make_project(tmp_path)


def stream(raw: bytes = b"") -> io.TextIOWrapper:
    """Return a text stream over bytes, as the real stdout and stdin are."""
    return io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8", newline="", write_through=True)


def run(name: str, *args: str | Path, stdin: bytes = b"") -> SimpleNamespace:
    """Run one of SCRIPTS as the shell would, in this process."""
    out = stream()
    err = stream()
    with pytest.MonkeyPatch.context() as patch:
        for where, file in (("stdin", stream(stdin)), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, where, file)
        patch.setattr(sys, "argv", [f"some/where/{name}", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            terminal.run_script(lambda: main_of(name, sys.argv[1:]))
    said = {"out": out.buffer.getvalue().decode(), "err": err.buffer.getvalue().decode()}
    return SimpleNamespace(status=stop.value.code or 0, **said)


def succeed(name: str, *args: str | Path, stdin: bytes = b"") -> SimpleNamespace:
    """Run a script that ends well."""
    result = run(name, *args, stdin=stdin)
    assert result.status == 0, result.err
    return result


def assert_refused(result: SimpleNamespace, name: str, *parts: str) -> None:
    """Assert status 2, nothing on stdout, and one line on stderr that holds `parts`."""
    assert (result.status, result.out) == (2, ""), result.err
    assert result.err.endswith("\n")
    (said,) = result.err.splitlines(keepends=True)
    assert said.startswith(f"{name}: error: ")
    for part in parts:
        assert part in said


class Hostile:
    """A pickle of it makes a folder when it is opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.folder,)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def everything(folder: Path) -> dict[Path, bytes]:
    """Return all files but .lock, which Windows can't read where it locks."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder): path.read_bytes() for path in files}


def contents(folder: Path) -> dict[str, bytes]:
    """Return those of a folder itself, without its folders."""
    return {path.name: raw for path, raw in everything(folder).items() if len(path.parts) == 1}


def option_names(options: object) -> set[str]:
    """Return the fields of a dataclass and of those in it, but for what no user decides."""
    names = set()
    for name, value in vars(options).items():
        names |= option_names(value) if is_dataclass(value) else {name}
    return names - {"vocab_size"}


def parse_train(args: Sequence[str]) -> tuple[ModelConfig, TrainConfig]:
    """Return the options of model and training that train.py has before it sees the text."""
    typed = cli.read(TrainOptions(), args)
    usual = defaults(typed, choose_device(device_config(typed, NOTHING)))
    values = usual | typed | {"preset": usual["preset"]}
    return options_of(ModelConfig, values), options_of(TrainConfig, values)


@pytest.fixture(scope="session")
def book() -> Path:
    """A file with Don Quijote: SANCHO_BOOK, or data/quijote.txt."""
    paths = ROOT / os.environ.get("SANCHO_BOOK", ""), ROOT / "data" / "quijote.txt"
    found = next((path for path in paths if path.is_file()), None)
    if found is None:  # which the network decides
        pytest.skip(f"{HERE}no Don Quijote: SANCHO_BOOK names no file, nor is it in data/")
    return found


@pytest.fixture(scope="session")
def server_of_processes() -> None:
    """It imports what the processes of `start_process` need."""
    if sys.platform == "win32":
        return
    multiprocessing.get_context("forkserver").set_forkserver_preload(["conftest"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
        forkserver.ensure_running()


def start_process(target: Callable, *args: object) -> multiprocessing.Process:
    """Call `target` in a process that need not import PyTorch first."""
    how = "spawn" if sys.platform == "win32" else "forkserver"
    process = multiprocessing.get_context(how).Process(target=target, args=args)
    process.start()
    return process


# All that has a state: dropout, parts of a step, both optimizers and the table.
ARGS = (
    "--corpus tiny --n_layer 1 --n_head 2 --n_embd 8 --block_size 8 --ngram_rows 16 --batch_size 2"
    " --dropout 0.1 --gradient_accumulation_steps 2 --eval_interval 1 --log_interval 1 --device cpu"
).split()


def instead(line: Sequence[str], *more: str) -> list[str]:
    """Return a command line with more options; those of the same names give place to them."""
    given = {_name(word) for word in more}
    kept: list[str] = []
    is_kept = True
    for word in line:
        is_kept = _name(word) not in given if word.startswith("--") else is_kept
        kept += [word] * is_kept
    return [*kept, *more]


def _name(word: str) -> str:
    return word.partition("=")[0].replace("--no-", "--", 1)


def train_quietly(project: Path, out: Path, max_iters: int, *more: str) -> int:
    """Run train.py in this process; go on with what is in `out`, or begin anew."""
    sources.DATA = project / "data"
    how = ["--out_dir", str(out), "--max_iters", str(max_iters), "--resume"]
    args = instead([*ARGS, *how], *more)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return main_of("train.py", args)


def be_train(project: Path, name: str, *args: str) -> None:
    """Be a process that runs the file train.py; what it says goes to project/NAME.txt."""
    sources.DATA = project / "data"
    sys.argv = ["train.py", *args]
    path = project / f"{name}.txt"
    with path.open("w", encoding="utf-8") as said, redirect_stdout(said), redirect_stderr(said):
        runpy.run_path(str(ROOT / "train.py"), run_name="__main__")


def watch_reports(patch: pytest.MonkeyPatch, act: Callable[[Report], object]) -> None:
    """Let train.py call `act` with each report before it is recorded."""
    with_progress = terminal.with_progress

    def watched(reports: Iterable[Report], *others: object) -> Iterator[Report]:
        for report in with_progress(reports, *others):
            act(report)
            yield report

    patch.setattr(terminal, "with_progress", watched)


def folder_at(out: Path, **options: bool) -> RunFolder:
    return RunFolder(FolderConfig(out_dir=out, **options))


def what_was_saved(out: Path) -> list[checkpoint.Checkpoint]:
    """Load every checkpoint that is there."""
    folder = folder_at(out)
    return [checkpoint.load(path) for path in (folder.best, folder.last) if path.exists()]


def metrics_of(out: Path) -> list[dict]:
    """Read metrics.jsonl without what depends on the clock."""
    _, *lines = folder_at(out).metrics.read_text("utf-8").splitlines()  # the first names the run
    clock = {"seconds", "tokens_per_second"}
    return [{k: v for k, v in json.loads(line).items() if k not in clock} for line in lines]


def assert_same_run(out: Path, expected: Path) -> None:
    """Compare weights, optimizer, losses and metrics bit for bit."""
    for ours, theirs in zip(what_was_saved(out), what_was_saved(expected), strict=True):
        assert_same_arrays(ours.weights, theirs.weights)
        assert_same_arrays(ours.optimizer, theirs.optimizer)
        assert ours.progress.step == theirs.progress.step
        assert ours.progress.best_val_loss == theirs.progress.best_val_loss
    assert metrics_of(out) == metrics_of(expected)


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
    return shutil.copytree(trained_files, project / "out")


def train_tiny(*args: str | Path) -> SimpleNamespace:
    """Train a tiny model, on the tiny text if `args` say nothing else."""
    return succeed("train.py", *TINY, "--corpus=tiny", *args)


def steps_in(out: Path) -> list[int]:
    return [line["step"] for line in metrics_of(out)]


def last_of(out: str | Path) -> checkpoint.Checkpoint:
    return checkpoint.load(Path(out, "last.safetensors"))


def first_line(result: SimpleNamespace) -> str:
    return result.err.splitlines()[0]


# How what the regular expressions of the project look for begins, and what they repeat.
BEGINNINGS = (
    "",
    "x",
    "*",
    "*** START OF",
    "*** START OF THE PROJECT GUTENBERG EBOOK",
    "<!--",
    "&#",
    "Dijo. Yo",
    "file:",
)
REPEATED = [*' \t\n\\*><[-.!?…»”")1&;xÃÂ\u0301', "* ", ". a", ".»", "&#1", "-->", "- "]
REPEATED += ["*** END OF THE PROJECT GUTENBERG\n", ".txt"]


def assert_read_in_no_time(read: Callable[[str], object]) -> None:
    """Assert that a text takes as long as it is, and not as the square of that.

    20 seconds are ten times what all these texts take; a single one takes longer in its square.
    """
    begun = time.process_time()
    for beginning in BEGINNINGS:
        for repeated in REPEATED:
            read(f"{beginning}{repeated * (30_000 // len(repeated))}x\n")
            assert time.process_time() - begun < 20, (beginning, repeated)
