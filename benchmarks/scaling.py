"""Compares model sizes after equal time, and measures what a longer context costs.

    python benchmarks/scaling.py BOOK [--seconds 30 120] [-- WIDTH:LAYERS:HEADS ...]

First, models of several sizes are trained for an equal time, and their loss over the whole
validation text is measured. The number of steps that fit into the time is found from the speed of
the first ones; the training is that of the preset `mini`. The time includes only training, not
start-up and evaluation. Second, the time per character is measured for several block sizes, with an
equal number of characters a step. Prints two reports, then one line of JSON.
"""

from common import need  # isort: skip

need("numpy", "torch")

import json
import time
from dataclasses import replace

from common import median_seconds, parser_of

from sancho.config import DeviceConfig, ModelConfig, TrainConfig
from sancho.machine.device import choose_device
from sancho.model import GPT
from sancho.presets import PRESETS
from sancho.run.state import TrainingState
from sancho.text.corpus import Corpus
from sancho.text.sources import corpus_of
from sancho.training import fit

SIZES = ("48:3:1", "64:4:2", "96:4:2", "128:4:4", "192:4:6")
BLOCKS = (32, 64, 128, 256, 512)
WARM_UP, LOOK = 10, 30  # steps


def step_seconds(model: ModelConfig, config: TrainConfig, corpus: Corpus) -> float:
    """Return the median time of a training step."""
    device = choose_device(DeviceConfig(device="cpu"))
    config = replace(config, max_iters=WARM_UP + LOOK + 1)
    reports = fit(TrainingState.start(model, config, device, corpus.train), corpus)
    return median_seconds(lambda: next(reports), LOOK, WARM_UP)


def train_for(
    seconds: float, model: ModelConfig, config: TrainConfig, corpus: Corpus
) -> dict[str, float]:
    """Train for about that many seconds; return steps, seconds and the losses."""
    steps = max(2, int(seconds / step_seconds(model, config, corpus)))
    device = choose_device(DeviceConfig(device="cpu"))
    log = max(1, steps // 10)
    config = replace(config, max_iters=steps, eval_interval=steps, log_interval=log)
    state = TrainingState.start(model, config, device, corpus.train)
    begin = time.perf_counter()
    for report in fit(state, corpus):
        if report.step == steps - 1:
            spent = time.perf_counter() - begin
    return {
        "steps": steps,
        "seconds": spent,
        "train_loss": report.train_loss,
        "val_loss": report.val_loss,
    }


def compare_sizes(sizes: list[str], budgets: list[float], corpus: Corpus) -> list[dict]:
    """Train every size for every budget; print a line for each."""
    print(f"{'width':>6}{'layers':>8}{'heads':>7}{'weights':>11}", end="")
    print(f"{'seconds':>9}{'steps':>8}{'train':>9}{'val loss':>10}", flush=True)
    rows = []
    mini = PRESETS["mini"]
    for budget in budgets:
        for size in sizes:
            width, layers, heads = map(int, size.split(":"))
            model = replace(mini.model, n_embd=width, n_layer=layers, n_head=heads)
            model = replace(model, vocab_size=corpus.tokenizer.vocab_size)
            weights = sum(p.numel() for p in GPT(model).blocks.parameters())
            found = train_for(budget, model, mini.train, corpus)
            rows.append({"size": size, "weights": weights, "budget": budget, **found})
            print(
                f"{width:6}{layers:8}{heads:7}{weights:11,}{found['seconds']:9.1f}"
                f"{found['steps']:8}{found['train_loss']:9.4f}{found['val_loss']:10.4f}",
                flush=True,
            )
    return rows


def compare_blocks(corpus: Corpus) -> dict[int, float]:
    """Time a step at each block size; print a line for each."""
    print(f"{'block size':>10}{'batch size':>12}{'µs per character':>18}")
    mini = PRESETS["mini"]
    characters, found = mini.train.characters_per_step(mini.model), {}
    for block_size in BLOCKS:
        model = replace(mini.model, block_size=block_size, vocab_size=corpus.tokenizer.vocab_size)
        batch = characters // block_size
        seconds = step_seconds(model, replace(mini.train, batch_size=batch), corpus)
        found[block_size] = seconds / (batch * block_size)
        print(f"{block_size:10}{batch:12}{1e6 * found[block_size]:18.1f}", flush=True)
    return found


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__, book=True)
    parser.add_argument("--seconds", type=float, nargs="*", default=[30, 120], help="budgets")
    parser.add_argument("sizes", nargs="*", default=SIZES, help="WIDTH:LAYERS:HEADS, after --")
    options = parser.parse_intermixed_args()
    corpus = corpus_of(options.book)
    rows = compare_sizes(options.sizes, options.seconds, corpus)
    blocks = compare_blocks(corpus)
    print(json.dumps({"sizes": rows, "blocks": blocks}))


if __name__ == "__main__":
    main()
