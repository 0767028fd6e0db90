"""How long training and writing take beside other programs that need the processor.

    python benchmarks/busy.py [--steps 100] [--busy 0 1 2] [--runs 3] [--before DIR]

A busy program is a Python loop in a process of its own. For each number of them, whole processes
are timed from outside: train.py for some steps of mini on the sample corpus, and sample.py, 3,000
characters by the pretrained model; in another checkout (--before), too, alternately. The median
counts. A command that takes longer than --limit seconds is ended, and so is every busy program,
whatever happens. Prints a report, then one line of JSON.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WRITE = "sample.py --checkpoint {root}/sancho/pretrained/sancho.safetensors --max_new_tokens 3000"
TRAIN = "train.py --dataset apocrifo --max_iters {steps} --eval_interval {steps} --out_dir {folder}"


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


def seconds_of(command: str, root: Path, limit: float) -> float:
    """Return how long a command takes in a checkout; infinite if longer than `limit`."""
    begin = time.perf_counter()
    try:
        subprocess.run(
            [sys.executable, *command.split()],
            cwd=root,
            check=True,
            timeout=limit,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return float("inf")
    return time.perf_counter() - begin


def main() -> None:
    """Read the options, measure, show."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--limit", type=float, default=300, help="most seconds of a command")
    parser.add_argument("--before", type=Path, help="another checkout to compare with")
    options = parser.parse_args()
    checkouts = {"here": ROOT} | ({"before": options.before.resolve()} if options.before else {})
    figures = []
    with tempfile.TemporaryDirectory() as name:
        for count in options.busy:
            found: dict[tuple[str, str], list[float]] = {}
            with busy_programs(count):
                for run in range(options.runs):
                    for where, root in checkouts.items():
                        folder = f"{name}/{count}-{run}-{where}"
                        train = TRAIN.format(steps=options.steps, folder=folder)
                        for what, command in (("train", train), ("write", WRITE.format(root=ROOT))):
                            seconds = seconds_of(command, root, options.limit)
                            found.setdefault((what, where), []).append(seconds)
            for (what, where), seconds in found.items():
                median = statistics.median(seconds)
                figures.append({"busy": count, "what": what, "where": where, "seconds": median})
                print(f"{count} busy: {what:6} {where:7} {median:8.2f} s", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
