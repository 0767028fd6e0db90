"""Helpers of the benchmarks. Importing this module loads no library.

It puts sancho, and the modules of the course, on the path.

A benchmark is started as `python benchmarks/NAME.py`, so this folder is the first on sys.path.
"""

import argparse
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "data" / "apocrifo.txt"
sys.path[:0] = [str(ROOT), str(ROOT / "notebooks" / "taller")]


def need(*packages: str) -> None:
    """End the script with one line if a package is missing, before it is imported."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        script = Path(sys.argv[0]).name
        advice = "start it in the environment of README.md"
        if "selenium" in missing:
            advice += ", after: pip install selenium (and Chromium with its driver)"
        sys.exit(f"{script}: {sys.executable} lacks {' '.join(missing)}; {advice}")


def parser_of(doc: str, book: bool = False, nanogpt: bool = False) -> argparse.ArgumentParser:
    """Return a parser described by the first line of `doc`, with the arguments asked for."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    if book:
        text = "the text, such as Project Gutenberg's pg2000.txt"
        parser.add_argument("book", type=Path, help=text)
    if nanogpt:
        text = "a checkout of nanoGPT to run beside ours"
        parser.add_argument("--nanogpt", type=Path, help=text)
    return parser


def median_seconds(call: Callable[[], object], count: int, warm_up: int = 0) -> float:
    """Return the median of the seconds that a call takes, `count` times after the warm-up."""
    seconds = []
    for _ in range(warm_up + count):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[warm_up:])


def process_seconds(arguments: list[str], folder: Path, limit: float | None = None) -> float:
    """Run a whole Python process in a folder; return its seconds, infinite if above `limit`.

    Raises SystemExit with its errors if it fails.
    """
    begin = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            timeout=limit,
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
    except subprocess.TimeoutExpired:
        return math.inf
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    return seconds
