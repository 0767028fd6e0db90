"""Times training and writing while other programs use the processor.

    python benchmarks/busy.py [--steps 100] [--busy 0 1 2] [--runs 3] [--before DIR]

A busy program is a Python loop in a process of its own. For each number of them, whole processes
are timed from outside: train.py for some steps of mini on the included text, and sample.py for
3,000 characters of the pretrained model. With --before, the commands also run in another checkout,
in turn. A command that takes longer than --limit seconds is ended. Prints a report of the medians,
then one line of JSON.
"""

from common import need  # isort: skip

need("numpy")

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common import ROOT, parser_of, process_seconds

WRITE = "sample.py --checkpoint {root}/sancho/pretrained/sancho.safetensors --max_new_tokens 3000"
TRAIN = "train.py --corpus apocrifo --max_iters {steps} --eval_interval {steps} --out_dir {folder}"


@contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """Keep so many processes busy while the block runs."""
    loop = [sys.executable, "-c", "while True: pass"]
    programs = [subprocess.Popen(loop) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def measure(
    options: argparse.Namespace, checkouts: dict[str, Path], folder: str
) -> dict[tuple[str, str], list[float]]:
    """Return the seconds of every run of each command in each checkout."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in range(options.runs):
        for where, root in checkouts.items():
            train = TRAIN.format(steps=options.steps, folder=f"{folder}/{run}-{where}")
            for what, command in (("train", train), ("write", WRITE.format(root=ROOT))):
                seconds = process_seconds(command.split(), root, options.limit)
                found.setdefault((what, where), []).append(seconds)
    return found


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=int, default=3, help="runs of each, for the median")
    parser.add_argument("--limit", type=float, default=300, help="longest seconds of a command")
    parser.add_argument("--before", type=Path, help="another checkout to compare with")
    options = parser.parse_args()
    checkouts = {"here": ROOT} | ({"before": options.before.resolve()} if options.before else {})
    figures = []
    for count in options.busy:
        with tempfile.TemporaryDirectory() as folder, busy_programs(count):
            found = measure(options, checkouts, folder)
        for (what, where), seconds in found.items():
            median = statistics.median(seconds)
            figures.append({"busy": count, "what": what, "where": where, "seconds": median})
            print(f"{count} busy: {what:6} {where:7} {median:8.2f} s", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
