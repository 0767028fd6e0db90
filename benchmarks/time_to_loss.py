"""Measures how long learning takes: the seconds to a loss, and the loss after some seconds.

    python benchmarks/time_to_loss.py BOOK [--nanogpt DIR] [--seconds 130] [-- OPTIONS]

Every time is that of a whole process, from its start to its end: the interpreter, the reading of
the text, training, evaluation, saving, and the text that the new model writes at the end. With
--nanogpt, a checkout of https://github.com/karpathy/nanoGPT is trained alternately with ours on the
same clean text, with the recipe for a CPU from its README (its ids are written beforehand, and not
counted). Each model computes its own logits. Both are measured over the whole validation text in
windows of 64 characters, which is all that nanoGPT's model can read; ours also in windows of its
own length, which gives the loss that train.py prints. Prints a report, then one line of JSON.
"""

from common import need  # isort: skip

need("numpy", "torch")

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import nanogpt
import numpy as np
import torch
from common import ROOT, parser_of, process_seconds
from torch import Tensor

from sancho import checkpoint
from sancho.loss import cross_entropy, windows
from sancho.run.metrics import read_metrics
from sancho.text.corpus import Corpus
from sancho.text.sources import corpus_of

# nanoGPT's README, "I only have a macbook".
NANOGPT_RECIPE = (
    "train.py config/train_shakespeare_char.py --device=cpu --compile=False --eval_iters=20 "
    "--log_interval=1 --block_size=64 --batch_size=12 --n_layer=4 --n_head=4 --n_embd=128 "
    "--max_iters=2000 --lr_decay_iters=2000 --dropout=0.0"
)
COMMON_WINDOW = 64
CALIBRATION_STEPS = 100


@torch.inference_mode()
def judge(
    logits_of: Callable[[Tensor, Tensor], Tensor], ids: np.ndarray, window: int = COMMON_WINDOW
) -> float:
    """Return the mean loss in nats per character over `ids` in windows of so many characters."""
    total = 0.0
    for inputs, targets in windows(ids, window, batch_size=64):
        total += cross_entropy(logits_of(inputs, targets), targets).item() * targets.numel()
    return total / (len(ids) - 1)


def train_ours(folder: Path, corpus: Corpus, options: list[str]) -> dict[str, float]:
    """Run train.py on the text that `options` name; return its seconds and losses, and a step's."""
    out = folder / "out"
    command = ["train.py", *options, "--out_dir", str(out), "--overwrite"]
    seconds = process_seconds(command, ROOT)
    best = checkpoint.load(out / "best.safetensors")
    model = best.build_model()
    records = read_metrics(out / "metrics.jsonl")
    first, last = records[0], records[-1]
    n_steps = max(1, last["step"] - first["step"])  # 0 where a run is over at its first report
    return {
        "seconds": seconds,
        "val_loss": best.progress.val_loss,
        "val_loss_64": judge(lambda inputs, targets: model(inputs), corpus.val),
        "steps": last["step"],
        "step_seconds": (last["seconds"] - first["seconds"]) / n_steps,
    }


def train_nanogpt(checkout: Path, folder: Path, corpus: Corpus) -> dict[str, float]:
    """Run nanoGPT's recipe on our text in a copy of a checkout; return its seconds and its loss."""
    copy = nanogpt.copy_with_text(checkout, folder, corpus)
    recipe = [*NANOGPT_RECIPE.split(), "--dataset=quijote", "--out_dir=out"]
    seconds = process_seconds(recipe, copy)
    model, steps = nanogpt.trained_model(copy)
    loss = judge(lambda inputs, targets: model(inputs, targets.contiguous())[0], corpus.val)
    return {"seconds": seconds, "val_loss": loss, "val_loss_64": loss, "steps": steps}


def steps_for(seconds: float, calibration: dict[str, float]) -> int:
    """Return how many steps a process of that many seconds can make."""
    fixed = calibration["seconds"] - calibration["steps"] * calibration["step_seconds"]
    return max(1, int((seconds - fixed) / calibration["step_seconds"]))


def median(runs: list[dict[str, float]], key: str) -> float:
    """Return the median of one figure."""
    return statistics.median(run[key] for run in runs)


def show(name: str, runs: list[dict[str, float]]) -> None:
    """Print a line of the report."""
    seconds = [run["seconds"] for run in runs]
    print(
        f"{name:38}{median(runs, 'steps'):8.0f}{statistics.median(seconds):9.1f}"
        f"{f'{min(seconds):.1f} to {max(seconds):.1f}':>18}{median(runs, 'val_loss'):10.4f}"
        f"{median(runs, 'val_loss_64'):12.4f}",
        flush=True,
    )


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__, book=True, nanogpt=True)
    parser.add_argument("--target", type=float, default=1.727, help="loss to reach")
    parser.add_argument("--max_iters", type=int, default=38, help="steps to the target")
    parser.add_argument("--seconds", type=float, nargs="*", default=[], help="other budgets")
    parser.add_argument("--runs", type=int, default=3, help="runs of each, for the median")
    parser.add_argument("options", nargs="*", help="options of train.py, after --")
    options = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(options, Path(folder))))


def measure(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Run everything, print the report; return all figures."""
    print(f"{'':38}{'steps':>8}{'seconds':>9}{'':18}{'val loss':>10}{'windows 64':>12}", flush=True)
    corpus = corpus_of(options.book)
    ours = ["--corpus", str(options.book.resolve()), *options.options]
    to_target = [*ours, "--max_iters", str(options.max_iters)]
    runs: dict[str, list[dict[str, float]]] = {"target": [], "nanogpt": []}
    for _ in range(options.runs):
        runs["target"].append(train_ours(folder, corpus, to_target))
        if options.nanogpt:
            runs["nanogpt"].append(train_nanogpt(options.nanogpt, folder, corpus))
    show(f"sancho-mini, {options.max_iters} steps", runs["target"])
    if median(runs["target"], "val_loss") > options.target:
        print(f"the loss is above the target {options.target}; give more --max_iters")
    if options.nanogpt:
        show("nanoGPT, its recipe for a CPU", runs["nanogpt"])
        ratios = [
            theirs["seconds"] / ours["seconds"]
            for ours, theirs in zip(runs["target"], runs["nanogpt"], strict=True)
        ]
        print(f"nanoGPT took {statistics.median(ratios):.1f} times as long", flush=True)
        runs["ratios"] = ratios
    for seconds in options.seconds:
        # The speed of the machine drifts, so it is measured anew before every run.
        found = runs[f"{seconds:g} s"] = []
        for _ in range(options.runs):
            short = [*ours, "--max_iters", str(CALIBRATION_STEPS)]
            steps = steps_for(seconds, train_ours(folder, corpus, short))
            long = [*ours, "--max_iters", str(steps), "--eval_interval", str(steps)]
            found.append(train_ours(folder, corpus, long))
        show(f"sancho-mini, given {seconds:g} s", found)
    return {"target": options.target, "options": options.options, "runs": runs}


if __name__ == "__main__":
    main()
