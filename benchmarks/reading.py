"""Measures the time and the memory that reading a text takes, as every start does.

    python benchmarks/reading.py [TEXT] [--megabytes 100]

Reads TEXT or, without one, the included text repeated to that size, into a corpus of ids: three
times, each time in a process of its own. Prints the medians of their seconds, by the clock and of
the processor, and the largest memory of any of them, a character; then one line of JSON.
"""

from common import need  # isort: skip

need("numpy")

import json
import multiprocessing
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


def write_text(path: Path, n_bytes: int) -> None:
    """Write the included text, UTF-8 with the letters of Spanish, again and again."""
    raw = SAMPLE.read_bytes()
    written = 0
    with open(path, "wb") as file:
        while written < n_bytes:
            written += file.write(raw)


def peak_bytes() -> int:
    """Return the most memory that this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def read(text: Path) -> dict[str, float]:
    """Read a text; return what that took."""
    from sancho.text.sources import corpus_of

    idle = peak_bytes()
    begin, begin_busy = time.perf_counter(), time.process_time()
    corpus = corpus_of(text)
    return {
        "seconds": time.perf_counter() - begin,
        "processor_seconds": time.process_time() - begin_busy,
        "idle_bytes": idle,
        "peak_bytes": peak_bytes(),
        "characters": len(corpus.text),
    }


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__)
    parser.add_argument("text", type=Path, nargs="?", help="a text (default: the included text)")
    parser.add_argument("--megabytes", type=int, default=100, help="size of the text without TEXT")
    options = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory() as name:
        text = options.text
        if text is None:
            text = Path(name) / "text.txt"
            write_text(text, options.megabytes * MEGABYTE)
        megabytes = text.stat().st_size / MEGABYTE
        for _ in range(REPEATS):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                runs.append(pool.apply(read, (text,)))
    seconds = statistics.median(run["seconds"] for run in runs)
    busy = statistics.median(run["processor_seconds"] for run in runs)
    peak = max(run["peak_bytes"] for run in runs)
    idle = runs[0]["idle_bytes"]
    length = runs[0]["characters"]
    print(
        f"{megabytes:,.1f} MB, {length:,} characters: {seconds:.2f} s, of which the processor "
        f"worked {busy:.2f} s: {MEGABYTE * busy / length:.3f} µs a character"
    )
    print(
        f"{peak / MEGABYTE:,.0f} MB of memory at most, {idle / MEGABYTE:.0f} MB of them before "
        f"there was a text: {(peak - idle) / length:.1f} bytes a character"
    )
    print(json.dumps({"megabytes": megabytes, "runs": runs}))


if __name__ == "__main__":
    main()
