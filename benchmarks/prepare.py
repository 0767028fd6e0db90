"""Measures the time and the memory that preparing a large text takes.

    python benchmarks/prepare.py [--megabytes 200]

Makes a text of that size from shuffled paragraphs of the sample corpus, in a temporary folder, and
prepares it three times, each time in a process of its own. Prints the median of their seconds and
the largest memory of any of them, including the interpreter and the libraries; then one line of
JSON.
"""

from common import need  # isort: skip

need("numpy")

import json
import multiprocessing
import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

# The processes that are measured import the library; this one stays small, because a new process
# counts the memory of the one that started it.
from common import SAMPLE, parser_of

MEGABYTE = 1_000_000
REPEATS = 3


def write_text(path: Path, n_bytes: int, seed: int = 1605) -> None:
    """Write shuffled paragraphs of the sample corpus until there are `n_bytes`."""
    raw = SAMPLE.read_bytes().strip()
    paragraphs = [paragraph + b"\n\n" for paragraph in raw.split(b"\n\n")]
    shuffle = random.Random(seed).shuffle
    written = 0
    with open(path, "wb") as file:
        while written < n_bytes:
            shuffle(paragraphs)
            written += file.write(b"".join(paragraphs))


def peak_megabytes() -> float:
    """Return the most memory that this process has held, in MB of 1,000,000 bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / MEGABYTE


def prepare(text: Path, folder: Path) -> dict[str, float]:
    """Prepare a text; return what that took."""
    from sancho.sources import prepare_files

    idle = peak_megabytes()
    begin = time.perf_counter()
    corpus = prepare_files([text], folder)
    return {
        "seconds": time.perf_counter() - begin,
        "idle_megabytes": idle,
        "peak_megabytes": peak_megabytes(),
        "characters": len(corpus.train) + len(corpus.val),
    }


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__)
    parser.add_argument("--megabytes", type=int, default=200, help="size of the text")
    options = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "text.txt"
        write_text(text, options.megabytes * MEGABYTE)
        for _ in range(REPEATS):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                runs.append(pool.apply(prepare, (text, Path(name) / "corpus")))
    seconds = statistics.median(run["seconds"] for run in runs)
    peak = max(run["peak_megabytes"] for run in runs)
    idle = runs[0]["idle_megabytes"]
    length = runs[0]["characters"]
    print(f"{options.megabytes} MB of text, {length:,} characters: {seconds:.1f} s")
    print(
        f"{peak:,.0f} MB of memory at most, {idle:.0f} MB of them before there was a text: "
        f"{(peak - idle) * MEGABYTE / length:.1f} bytes a character"
    )
    print(json.dumps({"megabytes": options.megabytes, "runs": runs}))


if __name__ == "__main__":
    main()
