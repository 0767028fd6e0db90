"""Measures how many characters a second the sampler writes.

    python benchmarks/sampling.py [--nanogpt DIR]

The models have four layers, 128 channels and a context of 256, and are untrained (the speed does
not depend on what was learned). They write one text, and ten side by side. The first 100 characters
are timed, including all that is set up, and those after 2,000, when the context is full. With
--nanogpt, `generate` of a checkout of https://github.com/karpathy/nanoGPT does the same at the same
size, in turn with ours. Also measures how fast the weights can be read from memory, which limits
every sampler that reads them there. Prints a report, then one line of JSON.
"""

from common import need  # isort: skip

need("numpy", "torch")

import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import nanogpt
import numpy as np
import torch
from common import median_seconds, parser_of

from sancho.config import ModelConfig
from sancho.generate import generate
from sancho.model import GPT
from sancho.presets import PRESETS

SIZE = {"n_layer": 4, "n_embd": 128, "block_size": 256}
FIRST, LATER = 100, 2_000
# Past the block every character costs nanoGPT the same; ours come in cycles of 3/4 of a block.
NANOGPT_COUNT, CYCLES = 50, 512


def config_of(preset: str) -> ModelConfig:
    """Return the model of a preset in the size that is measured."""
    return replace(PRESETS[preset].model, **SIZE)


def time_ours(model: GPT, n_texts: int) -> dict[str, float]:
    """Return characters per second of all texts together, at the beginning and later.

    Their growth is the cost of the 5,000th character divided by that of the 100th, both means over
    the characters around them.
    """
    prompt = np.array([1])
    times = [time.perf_counter()]
    for _ in generate(model, prompt, max_new_tokens=5_000 + CYCLES, samples=range(n_texts)):
        times.append(time.perf_counter())

    def cost(begin: int, end: int) -> float:
        return (times[end] - times[begin]) / (end - begin)

    return {
        "first": n_texts / cost(0, FIRST),
        "later": n_texts / cost(LATER, LATER + CYCLES),
        "growth": cost(5_000 - CYCLES, 5_000 + CYCLES) / cost(50, 150),
    }


def make_nanogpt(checkout: Path, vocab_size: int) -> torch.nn.Module:
    """Return nanoGPT's model in the size that is measured."""
    theirs = nanogpt.model_module(checkout)
    return theirs.GPT(theirs.GPTConfig(**SIZE, n_head=4, vocab_size=vocab_size, bias=False)).eval()


@torch.no_grad()
def time_nanogpt(model: torch.nn.Module, n_texts: int) -> dict[str, float]:
    """Return characters per second of all texts together, at the beginning and later."""
    speeds = {}
    for name, length, count in (("first", 1, FIRST), ("later", LATER, NANOGPT_COUNT)):
        context = torch.ones(n_texts, length, dtype=torch.long)
        begin = time.perf_counter()
        model.generate(context, count, temperature=0.8, top_k=200)
        speeds[name] = n_texts * count / (time.perf_counter() - begin)
    return speeds


def memory_bandwidth() -> float:
    """Return how many bytes a second a matrix-vector product reads from memory."""
    matrix, vector = torch.ones(8192, 8192), torch.ones(8192)
    return 4 * matrix.numel() / median_seconds(lambda: matrix @ vector, 7)


def measure(checkout: Path | None, runs: int) -> dict[str, object]:
    """Return all figures; the samplers take turns."""
    samplers = {
        f"sancho-mini, {name}": (GPT(config_of(name)).eval(), time_ours)
        for name in ("mini", "classic")
    }
    if checkout:
        vocab_size = config_of("mini").vocab_size
        samplers["nanoGPT"] = (make_nanogpt(checkout, vocab_size), time_nanogpt)
    rows = []
    for n_texts in (1, 10):
        found = {name: [] for name in samplers}
        for _ in range(runs):
            for name, (model, function) in samplers.items():
                found[name].append(function(model, n_texts))
        for name, times in found.items():
            medians = {key: statistics.median(run[key] for run in times) for key in times[0]}
            rows.append({"sampler": name, "texts": n_texts, **medians, "runs": times})
    blocks = samplers["sancho-mini, mini"][0].blocks
    n_bytes = sum(4 * p.numel() for p in blocks.parameters())
    return {"rows": rows, "weight_bytes": n_bytes, "bandwidth": memory_bandwidth()}


def show(figures: dict[str, object]) -> None:
    """Print the report and the line of JSON."""
    print(
        f"{'characters per second':24}{'texts':>8}{'first 100':>11}{'after 2,000':>13}"
        f"{'÷ nanoGPT':>11}{'cost, 5,000th ÷ 100th':>24}"
    )
    theirs = {row["texts"]: row["later"] for row in figures["rows"] if row["sampler"] == "nanoGPT"}
    for row in figures["rows"]:
        ratio = f"{row['later'] / theirs[row['texts']]:.1f}" if theirs else ""
        growth = f"{row['growth']:.2f}" if "growth" in row else ""
        print(
            f"{row['sampler']:24}{row['texts']:8}{row['first']:11,.0f}{row['later']:13,.0f}"
            f"{ratio:>11}{growth:>24}"
        )
    limit = figures["bandwidth"] / figures["weight_bytes"]
    print(
        f"The blocks' weights, {figures['weight_bytes'] / 1e6:.1f} MB, could be read from memory "
        f"({figures['bandwidth'] / 1e9:.1f} GB/s) {limit:,.0f} times a second."
    )
    print(json.dumps(figures))


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__, nanogpt=True)
    parser.add_argument("--runs", type=int, default=3, help="runs of each, for the median")
    options = parser.parse_args()
    show(measure(options.nanogpt, options.runs))


if __name__ == "__main__":
    main()
