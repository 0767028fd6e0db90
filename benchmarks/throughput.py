"""How fast each preset trains, and where the time of a step goes.

    python benchmarks/throughput.py [--presets mini classic] [--device cpu] [--compile]

Trains each preset for some steps on the sample corpus. The parts of a step are timed alone, on
tensors of the same shapes: attention and feed-forward, each with its norm, forward and back, times
the number of layers; the optimizers; drawing a batch. The rest is embedding, head and loss, the
residual stream, clipping, and Python. The fraction of the peak is the arithmetic of a step (for
each character 6 operations for each weight of a matrix product, and 12 · n_layer · n_embd ·
block_size for attention: Chowdhery et al. 2022, arXiv:2204.02311, appendix B) divided by what a
large matrix product reaches on the same device in the same number type. Prints a report, then one
line of JSON.
"""

import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from common import SAMPLE, median_seconds, parser_of
from torch import nn

from sancho.checkpoint import weight_shapes
from sancho.config import DeviceConfig, ModelConfig
from sancho.corpus import Corpus, prepare_files
from sancho.machine.device import Device, choose_device
from sancho.model import cross_entropy
from sancho.presets import PRESETS
from sancho.training import Batches, TrainingState, fit

STEPS, WARM_UP = 60, 10


def seconds_of(function: Callable[[], object], device: Device) -> float:
    """Return the median of the seconds that a call takes, its work on a GPU included."""

    def call() -> None:
        function()
        if device.torch_device.type == "cuda":
            torch.cuda.synchronize()

    return median_seconds(call, STEPS, WARM_UP)


def peak(device: Device) -> float:
    """Return the floating-point operations a second of a large matrix product."""
    size = 2048 if device.torch_device.type == "cpu" else 8192
    matrix = torch.ones(size, size, device=device.torch_device, dtype=device.dtype)
    return 2 * size**3 / seconds_of(lambda: matrix @ matrix, device)


def work(config: ModelConfig) -> int:
    """Return the floating-point operations that training on one character needs."""
    shapes = weight_shapes(config).items()
    products = [s for name, s in shapes if name.startswith(("blocks.", "head.")) and len(s) == 2]
    weights = sum(map(math.prod, products))
    return 6 * weights + 12 * config.n_layer * config.n_embd * config.block_size


def forward_and_back(layers: Callable, shape: tuple[int, ...], device: Device) -> float:
    """Return the seconds of layers forward and back on a tensor of `shape`."""
    x = torch.randn(shape, device=device.torch_device, requires_grad=True)

    def call() -> None:
        with device.autocast(training=True):
            y = layers(x)
        y.backward(y.detach())

    return seconds_of(call, device)


def measure(preset: str, corpus: Corpus, device: Device, compile: bool) -> dict[str, float]:
    """Return tokens per second, operations per second and the seconds of each part of a step."""
    model_config = replace(PRESETS[preset].model, vocab_size=corpus.tokenizer.vocab_size)
    config, steps = PRESETS[preset].train, STEPS + WARM_UP
    config = replace(config, max_iters=steps, eval_interval=steps)
    state = TrainingState.start(model_config, config, device)
    reports = fit(state, replace(corpus, val=corpus.val[:1000]), device, compile=compile)
    step = seconds_of(lambda: next(reports), device)
    model, block = state.model, state.model.blocks[0]
    shape = (config.batch_size, model_config.block_size, model_config.n_embd)
    batches = Batches(corpus.train, model_config.block_size, config, device.torch_device)
    attention = nn.Sequential(block.norm1, block.attention)
    feed_forward = nn.Sequential(block.norm2, block.feed_forward)
    inputs, targets = batches.get(0, 0)
    with device.autocast(training=True):
        cross_entropy(model(inputs), targets).backward()

    def move() -> None:
        with device.autocast():
            for optimizer in state.optimizers:
                optimizer.step()

    parts = {
        "attention": model_config.n_layer * forward_and_back(attention, shape, device),
        "feed-forward": model_config.n_layer * forward_and_back(feed_forward, shape, device),
        "optimizers": seconds_of(move, device),
        "data": seconds_of(lambda: batches.get(0, 0), device),
    }
    parts["rest"] = step - sum(parts.values())
    speed = config.characters_per_step(model_config) / step
    flops = speed * work(model_config)
    return {"tokens_per_second": speed, "flops": flops, "step": step, "parts": parts}


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__)
    parser.add_argument("--presets", nargs="+", default=["mini", "classic"], choices=list(PRESETS))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda", "mps"])
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    options = parser.parse_args()
    device = choose_device(DeviceConfig(device=options.device))
    fastest = peak(device)
    print(f"A large matrix product: {fastest / 1e9:,.0f} GFLOP/s, {device}")
    figures = {"peak": fastest, "device": options.device, "presets": {}}
    with tempfile.TemporaryDirectory() as name:
        corpus = prepare_files([SAMPLE], Path(name) / "corpus")
        for preset in options.presets:
            found = measure(preset, corpus, device, options.compile)
            figures["presets"][preset] = found
            fraction = found["flops"] / fastest
            print(
                f"{preset}: {found['tokens_per_second']:,.0f} characters/s, "
                f"{1000 * found['step']:.1f} ms a step, {found['flops'] / 1e9:,.0f} GFLOP/s "
                f"({fraction:.0%} of the peak)"
            )
            for part, seconds in found["parts"].items():
                fraction = seconds / found["step"]
                print(f"    {part:14}{1000 * seconds:8.1f} ms{fraction:7.0%}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
