"""Measures what a second process costs and gains on one machine, and the bytes that it sends.

    python benchmarks/processes.py [--presets mini classic base] [--rounds 2]

Trains each preset's model on the included text with two micro-steps a step, alternately: one
process with one thread, one with two, and two processes with one thread each, which torchrun
starts. The two processes also sum gradients of the model's size, as training does after the last
micro-step (World.sum_gradients). Last comes how long that would take on other networks, calculated
from the bytes alone. Prints a report, then one line of JSON.
"""

from common import need  # isort: skip

need("numpy", "torch")

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import replace

import torch
from common import SAMPLE, median_seconds, parser_of
from torch import nn

from sancho.machine.device import Device
from sancho.machine.distributed import World, process_group
from sancho.presets import PRESETS
from sancho.run.state import TrainingState
from sancho.shared.weights import weight_shapes
from sancho.text.corpus import Corpus
from sancho.text.sources import corpus_of
from sancho.training import fit

WAYS = {"1 process, 1 thread": (1, 1), "1 process, 2 threads": (1, 2), "2 processes": (2, 1)}
STEPS = {"mini": 40, "classic": 40, "base": 3}
MICRO_STEPS = 2
NETWORKS = {  # in each direction, of one GPU or one machine
    "NVLink 4, 8 GPUs (450 GB/s)": (8, 450e9),
    "8 machines, 400 Gbit/s": (8, 50e9),
    "8 machines, 10 Gbit/s": (8, 1.25e9),
    "8 machines, 1 Gbit/s": (8, 0.125e9),
}


def step_seconds(preset: str, corpus: Corpus, world: World) -> float:
    """Return the median of the seconds of a step; the first one warms up and does not count."""
    steps, train = STEPS[preset], PRESETS[preset].train
    config = replace(
        train,
        gradient_accumulation_steps=MICRO_STEPS,
        batch_size=train.batch_size // MICRO_STEPS,
        max_iters=steps + 2,
        eval_interval=steps + 2,
    )
    model = replace(PRESETS[preset].model, vocab_size=corpus.tokenizer.vocab_size)
    device = Device(torch.device("cpu"), torch.float32)
    state = TrainingState.start(model, config, device, corpus.train)
    reports = fit(state, corpus, world=world)
    return median_seconds(lambda: next(reports), steps, warm_up=1)


def exchange_seconds(preset: str, world: World) -> float:
    """Return the median of the seconds in which the processes sum their dense gradients."""
    parameter = nn.Parameter(torch.zeros(dense_size(preset)))
    parameter.grad = torch.zeros_like(parameter)
    return median_seconds(lambda: world.sum_gradients([parameter]), 7)


def dense_size(preset: str) -> int:
    """Return how many numbers have a gradient that is not sparse."""
    shapes = weight_shapes(PRESETS[preset].model).items()
    return sum(torch.Size(shape).numel() for name, shape in shapes if "ngram" not in name)


def sent_bytes(preset: str, processes: int) -> float:
    """Return the bytes that one process sends in a step: all-reduce of the dense gradients, in a
    ring, and its own rows of the n-gram table to each of the others.
    """
    config, train = PRESETS[preset].model, PRESETS[preset].train
    fraction = (processes - 1) / processes
    lookups = train.batch_size * config.block_size * (config.ngram_size - 1)
    row_bytes = 8 + 4 * config.n_embd
    return 2 * fraction * 4 * dense_size(preset) + (processes - 1) * lookups * row_bytes


def be_measured(presets: list[str], exchange: bool) -> None:
    """Measure as one of the processes; the first one prints what it found as JSON."""
    with process_group() as world:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        corpus = corpus_of(SAMPLE)
        found = {}
        for preset in presets:
            found[preset] = {"step": step_seconds(preset, corpus, world)}
            if exchange:
                found[preset]["exchange"] = exchange_seconds(preset, world)
        if world.is_first:
            print(json.dumps(found))


def start(processes: int, threads: int, *args: str) -> dict:
    """Run this script once more as `be_measured`, in as many processes; return what it found."""
    line = [sys.executable, __file__, "--be_measured", *args]
    if processes > 1:
        line[1:1] = ["-m", "torch.distributed.run", "--nproc_per_node", str(processes)]
        line += ["--exchange"]
    env = os.environ | {"OMP_NUM_THREADS": str(threads)}
    return json.loads(subprocess.run(line, env=env, check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    """Read the options, measure alternately, show."""
    parser = parser_of(__doc__)
    parser.add_argument("--presets", nargs="+", default=list(PRESETS), choices=list(PRESETS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--be_measured", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--exchange", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be_measured:
        be_measured(options.presets, options.exchange)
        return
    found = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way, how in WAYS.items():
            found[way].append(start(*how, "--presets", *options.presets))
    for preset in options.presets:
        print(f"{preset}, {MICRO_STEPS} micro-steps a step, {dense_size(preset):,} dense gradients")
        for way, rounds in found.items():
            steps = [1000 * each[preset]["step"] for each in rounds]
            middle, spread = statistics.median(steps), f"{min(steps):.1f} to {max(steps):.1f}"
            print(f"    {way:30}{middle:10.1f} ms a step ({spread})")
        times = [1000 * each[preset]["exchange"] for each in found["2 processes"]]
        print(f"    {'sum of the gradients':30}{statistics.median(times):10.1f} ms")
        for network, (processes, speed) in NETWORKS.items():
            size = sent_bytes(preset, processes)
            print(f"    {network:30}{1000 * size / speed:10.2f} ms for {size / 1e6:,.1f} MB")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
