"""Measures how fast each preset trains, and which operations take the time of a step.

    python benchmarks/throughput.py [--presets mini classic] [--device cpu] [--dtype bfloat16]

Trains each preset for some steps on the included text. The operations are those that PyTorch's
profiler sees in ten more steps. On a CPU these steps use one thread, and the times are its CPU
time; they are longer than without a profiler. The fraction of the peak is the arithmetic of a step
(for each character 6 operations for each weight of a matrix product, and 12 · n_layer · n_embd ·
block_size for attention: Chowdhery et al. 2022, arXiv:2204.02311, appendix B) divided by what a
large matrix product reaches on the same device in the same number type. Prints a report, then one
line of JSON.
"""

from common import need  # isort: skip

need("numpy", "torch")

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from common import SAMPLE, median_seconds, parser_of
from torch.profiler import ProfilerActivity, profile

from sancho.config import DeviceConfig, ModelConfig
from sancho.machine.device import Device, choose_device
from sancho.presets import PRESETS
from sancho.run.report import Report
from sancho.run.state import TrainingState
from sancho.shared.weights import weight_shapes
from sancho.text.corpus import Corpus
from sancho.text.sources import corpus_of
from sancho.training import fit

STEPS, WARM_UP, PROFILED = 60, 10, 10
SHOWN = 12


def seconds_of(function: Callable[[], object], device: Device) -> float:
    """Return the median of the seconds that a call takes, its work on a GPU included."""

    def call() -> None:
        function()
        if not device.on_cpu:
            torch.cuda.synchronize()

    return median_seconds(call, STEPS, WARM_UP)


def peak(device: Device) -> float:
    """Return the floating-point operations a second of a large matrix product."""
    size = 2048 if device.on_cpu else 8192
    matrix = torch.ones(size, size, device=device.torch_device, dtype=device.dtype)
    return 2 * size**3 / seconds_of(lambda: matrix @ matrix, device)


def work(config: ModelConfig) -> int:
    """Return the floating-point operations that training on one character needs."""
    shapes = weight_shapes(config).items()
    products = [s for name, s in shapes if name.startswith(("blocks.", "head.")) and len(s) == 2]
    weights = sum(map(math.prod, products))
    return 6 * weights + 12 * config.n_layer * config.n_embd * config.block_size


def kind_of(operation: str) -> str:
    """Return what an operation of PyTorch's counts as in the report."""
    name = operation.removeprefix("aten::")
    if name in ("mm", "addmm", "bmm"):
        return "matrix products"
    return "attention" if "scaled_dot_product" in name else name


def operations(reports: Iterator[Report], device: Device) -> dict[str, float]:
    """Return the seconds that each kind of operation takes of a step, the longest first."""
    for _ in range(WARM_UP):
        next(reports)
    activity = ProfilerActivity.CPU if device.on_cpu else ProfilerActivity.CUDA
    with profile(activities=[activity]) as found:
        for _ in range(PROFILED):
            next(reports)
    seconds: Counter[str] = Counter()
    for event in found.key_averages():
        own = event.self_cpu_time_total if device.on_cpu else event.self_device_time_total
        seconds[kind_of(event.key)] += own / 1e6 / PROFILED
    return dict(seconds.most_common())


def measure(preset: str, corpus: Corpus, device: Device, compile: bool) -> dict[str, object]:
    """Return characters and operations per second, the seconds of a step, and of its operations."""

    def steps_on(threads: int) -> Iterator[Report]:
        train = replace(config, threads=threads, compile=compile)
        state = TrainingState.start(model_config, train, device, corpus.train)
        return fit(state, replace(corpus, val=corpus.val[:1000]))

    model_config = replace(PRESETS[preset].model, vocab_size=corpus.tokenizer.vocab_size)
    config, steps = PRESETS[preset].train, STEPS + WARM_UP
    config = replace(config, max_iters=steps, eval_interval=steps)
    reports = steps_on(0)
    step = seconds_of(lambda: next(reports), device)
    speed = config.characters_per_step(model_config) / step
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    parts = operations(steps_on(1), device)
    torch.set_num_threads(threads)
    flops = speed * work(model_config)
    return {"tokens_per_second": speed, "flops": flops, "step": step, "parts": parts}


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__)
    parser.add_argument("--presets", nargs="+", default=["mini", "classic"], choices=list(PRESETS))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda", "mps"])
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--compile", action="store_true", help="which no n-gram table can be")
    options = parser.parse_args()
    device = choose_device(DeviceConfig(device=options.device, dtype=options.dtype))
    fastest = peak(device)
    print(f"A large matrix product: {fastest / 1e9:,.0f} GFLOP/s, {device}")
    figures = {"peak": fastest, "device": str(device), "presets": {}}
    corpus = corpus_of(SAMPLE)
    for preset in options.presets:
        found = figures["presets"][preset] = measure(preset, corpus, device, options.compile)
        print(
            f"{preset}: {found['tokens_per_second']:,.0f} characters/s, "
            f"{1000 * found['step']:.1f} ms a step, {found['flops'] / 1e9:,.0f} GFLOP/s "
            f"({found['flops'] / fastest:.0%} of the peak)"
        )
        total = sum(found["parts"].values())
        print(f"    operations of one thread, {1000 * total:.1f} ms in all")
        for part, seconds in list(found["parts"].items())[:SHOWN]:
            print(f"    {part:32}{1000 * seconds:8.1f} ms{seconds / total:7.0%}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
