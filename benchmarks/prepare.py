"""How fast a large text is prepared, and how much memory that and training from it take.

    python benchmarks/prepare.py [--megabytes 1000]

Makes a text of that size in a temporary folder (it needs three times the room), prepares it three
times, each in a process of its own, trains a few steps from the result in another, and prints what
they used: a report of the median time, then one line of JSON. Memory is the most that a process
held at once, the interpreter and the libraries included.
"""

import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# The processes that are measured import the library; this one stays small, because a new process
# counts the memory of the one that started it.
from common import SAMPLE, parser_of

MEGABYTE = 1_000_000
REPEATS = 3
TRAINING_STEPS = 20
VALIDATION_CHARACTERS = 20_000


def write_text(path: Path, n_bytes: int, seed: int = 1605) -> int:
    """Write shuffled paragraphs of the sample corpus until there are `n_bytes`; return the size."""
    raw = SAMPLE.read_bytes().strip()
    paragraphs = [paragraph + b"\n\n" for paragraph in raw.split(b"\n\n")]
    shuffle = random.Random(seed).shuffle
    written = 0
    with open(path, "wb") as file:
        while written < n_bytes:
            shuffle(paragraphs)
            written += file.write(b"".join(paragraphs))
    return written


def peak_megabytes() -> float:
    """Return the most memory that this process has held, in MB of 1,000,000 bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / MEGABYTE


def prepare(text: Path, folder: Path) -> dict[str, float]:
    """Prepare `text` into `folder` and return what it took."""
    from sancho.corpus import prepare_files

    idle, wall, cpu = peak_megabytes(), time.perf_counter(), time.process_time()
    corpus = prepare_files([text], folder)
    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "idle_megabytes": idle,
        "peak_megabytes": peak_megabytes(),
        "characters": len(corpus.train) + len(corpus.val),
    }


def train(folder: Path) -> dict[str, float]:
    """Train the mini preset from `folder` for a few steps and return what it took."""
    from dataclasses import replace

    from sancho.config import DeviceConfig
    from sancho.corpus import open_prepared
    from sancho.machine.device import choose_device
    from sancho.presets import PRESETS
    from sancho.training import TrainingState, fit

    idle, wall, cpu = peak_megabytes(), time.perf_counter(), time.process_time()
    corpus = open_prepared(folder)
    corpus = replace(corpus, val=corpus.val[:VALIDATION_CHARACTERS])
    mini = PRESETS["mini"]
    model = replace(mini.model, vocab_size=corpus.tokenizer.vocab_size)
    device = choose_device(DeviceConfig(device="cpu"))
    state = TrainingState.start(
        model, replace(mini.train, max_iters=TRAINING_STEPS), device, corpus.train
    )
    *_, last = fit(state, corpus, device)
    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "idle_megabytes": idle,
        "peak_megabytes": peak_megabytes(),
        "val_loss": last.val_loss,
    }


def in_own_process(function: Callable[..., dict[str, float]], *args: Path) -> dict[str, float]:
    """Return function(*args), computed by a fresh process that then ends."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, args)


def measure(n_bytes: int) -> dict[str, object]:
    """Make the text, prepare it, train from it; return all figures."""
    with tempfile.TemporaryDirectory() as name:
        text, folder = Path(name) / "text.txt", Path(name) / "corpus"
        megabytes = write_text(text, n_bytes) / MEGABYTE
        times = [in_own_process(prepare, text, folder) for _ in range(REPEATS)]
        trained = in_own_process(train, folder)
    # The median; the first run also fills the disk cache.
    prepared = sorted(times, key=lambda one: one["seconds"])[REPEATS // 2]
    prepared["all_seconds"] = [one["seconds"] for one in times]
    prepared["megabytes_per_second"] = megabytes / prepared["seconds"]
    prepared["megabytes_per_cpu_second"] = megabytes / prepared["cpu_seconds"]
    return {"megabytes": megabytes, "prepare": prepared, "train": trained}


def show(figures: dict[str, object]) -> None:
    """Print the report and the line of JSON."""
    prepared, trained = figures["prepare"], figures["train"]
    print(f"{'':24}{'seconds':>10}{'CPU':>10}{'MB/s':>10}{'MB/CPU s':>10}{'peak MB':>10}")
    print(
        f"{'prepare ' + format(figures['megabytes'], ',.0f') + ' MB':24}"
        f"{prepared['seconds']:10.1f}{prepared['cpu_seconds']:10.1f}"
        f"{prepared['megabytes_per_second']:10.1f}{prepared['megabytes_per_cpu_second']:10.1f}"
        f"{prepared['peak_megabytes']:10.0f}"
    )
    print(
        f"{f'train {TRAINING_STEPS} steps from it':24}"
        f"{trained['seconds']:10.1f}{trained['cpu_seconds']:10.1f}{'':20}"
        f"{trained['peak_megabytes']:10.0f}"
    )
    print(
        f"The libraries alone take {prepared['idle_megabytes']:.0f} MB of the first peak "
        f"and {trained['idle_megabytes']:.0f} MB of the second."
    )
    print(json.dumps(figures))


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__)
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the text")
    options = parser.parse_args()
    if options.megabytes < 1:
        parser.error("--megabytes must be 1 or more")
    show(measure(options.megabytes * MEGABYTE))


if __name__ == "__main__":
    main()
