"""How long it takes to learn Spanish: seconds to a loss, and the loss after some seconds.

    python benchmarks/time_to_loss.py BOOK [--nanogpt DIR] [--seconds 130] [-- OPTIONS]

Every time is that of a whole process as a shell would see it: the interpreter, the preparation of
the text, training, evaluation, and the page that train.py writes at the end. With --nanogpt, a
checkout of https://github.com/karpathy/nanoGPT is trained in turn with ours on the same clean text,
with the recipe for a CPU from its README (its text is prepared beforehand, and not counted). Its
model computes its own logits; both models are judged over the whole validation text in windows of
64 characters, as many as nanoGPT's can read, and ours also in windows of its own length, which is
the loss that train.py tells. Prints a table, then one line of JSON.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import nanogpt  # noqa: E402

from sancho import checkpoint  # noqa: E402
from sancho.corpus import Corpus, prepare_files  # noqa: E402
from sancho.model import cross_entropy  # noqa: E402
from sancho.training import windows  # noqa: E402

# nanoGPT's README, "I only have a macbook".
NANOGPT_RECIPE = (
    "train.py config/train_shakespeare_char.py --device=cpu --compile=False --eval_iters=20 "
    "--log_interval=1 --block_size=64 --batch_size=12 --n_layer=4 --n_head=4 --n_embd=128 "
    "--max_iters=2000 --lr_decay_iters=2000 --dropout=0.0"
)
COMMON_WINDOW = 64
CALIBRATION_STEPS = 100


def timed(command: list[str], folder: Path) -> float:
    """Run a command in a folder; return its seconds. Raises SystemExit with its errors."""
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8")
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return seconds


@torch.inference_mode()
def judge(
    logits_of: Callable[[Tensor, Tensor], Tensor], ids: np.ndarray, window: int = COMMON_WINDOW
) -> float:
    """Return the mean loss in nats per character over `ids` in windows of so many characters."""
    total = 0.0
    for inputs, targets in windows(ids, window, batch_size=64):
        total += cross_entropy(logits_of(inputs, targets), targets).item() * targets.numel()
    return total / (len(ids) - 1)


def train_ours(book: Path, folder: Path, corpus: Corpus, options: list[str]) -> dict[str, float]:
    """Run train.py; return its seconds, its losses and what a step cost."""
    out = folder / "out"
    command = [sys.executable, "train.py", "--corpus", str(book), "--out_dir", str(out)]
    seconds = timed([*command, "--overwrite", *options], ROOT)
    best = checkpoint.load(out / "best.safetensors")
    model = best.build_model()
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    return {
        "seconds": seconds,
        "val_loss": best.progress.val_loss,
        "val_loss_64": judge(lambda inputs, targets: model(inputs), corpus.val),
        "steps": last["step"],
        "step_seconds": (last["seconds"] - first["seconds"]) / (last["step"] - first["step"]),
    }


def train_nanogpt(checkout: Path, folder: Path, corpus: Corpus) -> dict[str, float]:
    """Run nanoGPT's recipe on our text in a copy of a checkout; return its seconds and its loss."""
    copy = nanogpt.copy_with_text(checkout, folder, corpus)
    recipe = [*NANOGPT_RECIPE.split(), "--dataset=quijote", "--out_dir=out"]
    seconds = timed([sys.executable, *recipe], copy)
    model, steps = nanogpt.trained_model(copy)
    loss = judge(lambda inputs, targets: model(inputs, targets)[0], corpus.val)
    return {"seconds": seconds, "val_loss": loss, "val_loss_64": loss, "steps": steps}


def steps_for(seconds: float, calibration: dict[str, float]) -> int:
    """Return how many steps a process of that many seconds can make."""
    fixed = calibration["seconds"] - calibration["steps"] * calibration["step_seconds"]
    return max(1, int((seconds - fixed) / calibration["step_seconds"]))


def median(runs: list[dict[str, float]], key: str) -> float:
    """Return the median of one figure."""
    return statistics.median(run[key] for run in runs)


def show(name: str, runs: list[dict[str, float]]) -> None:
    """Print a line of the table."""
    seconds = [run["seconds"] for run in runs]
    print(
        f"{name:38}{median(runs, 'steps'):8.0f}{statistics.median(seconds):9.1f}"
        f"{f'{min(seconds):.1f} to {max(seconds):.1f}':>18}{median(runs, 'val_loss'):10.4f}"
        f"{median(runs, 'val_loss_64'):12.4f}",
        flush=True,
    )


def main() -> None:
    """Read the options, measure, show."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("book", type=Path, help="the text, such as Project Gutenberg's pg2000.txt")
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT to run beside ours")
    parser.add_argument("--target", type=float, default=1.727, help="loss to reach")
    parser.add_argument("--max_iters", type=int, default=60, help="steps to the target")
    parser.add_argument("--seconds", type=float, nargs="*", default=[], help="other budgets")
    parser.add_argument("--runs", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("options", nargs="*", help="options of train.py, after --")
    options = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # train.py prepares the text as data/STEM; no prepared text of the user has this name.
        book = folder / "time-to-loss.txt"
        shutil.copy(options.book, book)
        corpus = prepare_files([book], folder / "corpus")
        prepared = ROOT / "data" / book.stem
        shutil.rmtree(prepared, ignore_errors=True)  # of a measurement that was killed
        try:
            figures = measure(options, book, folder, corpus)
        finally:
            shutil.rmtree(prepared, ignore_errors=True)
    print(json.dumps(figures))


def measure(
    options: argparse.Namespace, book: Path, folder: Path, corpus: Corpus
) -> dict[str, object]:
    """Run everything, print the table; return all figures."""
    print(f"{'':38}{'steps':>8}{'seconds':>9}{'':18}{'val loss':>10}{'windows 64':>12}", flush=True)
    to_target = [*options.options, "--max_iters", str(options.max_iters)]
    runs: dict[str, list[dict[str, float]]] = {"target": [], "nanogpt": []}
    for _ in range(options.runs):
        runs["target"].append(train_ours(book, folder, corpus, to_target))
        if options.nanogpt:
            runs["nanogpt"].append(train_nanogpt(options.nanogpt, folder, corpus))
    show(f"sancho-mini, {options.max_iters} steps", runs["target"])
    if median(runs["target"], "val_loss") > options.target:
        print(f"that is short of the target {options.target}; give more --max_iters")
    if options.nanogpt:
        show("nanoGPT, its recipe for a CPU", runs["nanogpt"])
        ratios = [
            theirs["seconds"] / ours["seconds"]
            for ours, theirs in zip(runs["target"], runs["nanogpt"], strict=True)
        ]
        print(f"nanoGPT took {statistics.median(ratios):.1f} times as long", flush=True)
        runs["ratios"] = ratios
    for seconds in options.seconds:
        # The speed of the machine drifts, so every run is preceded by a look at it.
        found = runs[f"{seconds:g} s"] = []
        for _ in range(options.runs):
            short = [*options.options, "--max_iters", str(CALIBRATION_STEPS)]
            steps = steps_for(seconds, train_ours(book, folder, corpus, short))
            long = [*options.options, "--max_iters", str(steps), "--eval_interval", str(steps)]
            found.append(train_ours(book, folder, corpus, long))
        show(f"sancho-mini, given {seconds:g} s", found)
    return {"target": options.target, "options": options.options, "runs": runs}


if __name__ == "__main__":
    main()
