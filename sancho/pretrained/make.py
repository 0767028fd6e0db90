"""Make the pretrained model: python sancho/pretrained/make.py [--out_dir FOLDER].

Five runs of train.py on Don Quijote. Each but the first begins with a mean of the weights of runs
before it (a model soup: Wortsman et al. 2022, arXiv:2203.05482, section 2), and so does what is
saved; one number then makes its probabilities as sure as they should be (temperature scaling: Guo
et al. 2017, arXiv:1706.04599, section 4.2). Started again, it goes on where it was stopped.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from sancho import checkpoint  # noqa: E402
from sancho.checkpoint import PRETRAINED, Checkpoint, Progress  # noqa: E402
from sancho.loss import validation_loss  # noqa: E402
from sancho.text.sources import corpus_of  # noqa: E402

# All that decides a run stands here, so that no default of today changes it.
MODEL = (
    "--n_layer 5 --n_head 4 --n_embd 184 --block_size 512 --no-bias --norm rmsnorm --position rope "
    "--activation relu2 --qk_norm --ngram_size 1 --no-embedding_skip --no-tie_embeddings"
)
TRAINING = (
    "--preset mini --optimizer muon --beta1 0.8 --beta2 0.95 --grad_clip 1 --logit_scale 1 "
    "--gradient_accumulation_steps 1 --log_interval 50 --patience 0"
)
FROM_NOTHING = (
    "--dropout 0.1 --weight_decay 0.02 --batch_size 4 --warmup_iters 20 --decay_fraction 0.7 "
    "--look_ahead 2 --eval_interval 1000 --dtype float32 --threads 0 --seed 1605 "
    "--muon_learning_rate 0.015 --learning_rate 0.02"
)
GO_ON = (
    "--dropout 0.2 --weight_decay 0.1 --batch_size 8 --warmup_iters 100 --decay_fraction 1 "
    "--look_ahead 0 --eval_interval 500 --dtype bfloat16 --threads 1"
)
HIGH = f"{GO_ON} --muon_learning_rate 0.0075 --learning_rate 0.01"
MIDDLE = f"{GO_ON} --muon_learning_rate 0.004 --learning_rate 0.0055"
LOW = f"{GO_ON} --muon_learning_rate 0.003 --learning_rate 0.004"


@dataclass(frozen=True)
class Run:
    """A run of train.py."""

    steps: int
    options: str
    begins_with: Mapping[int, int]
    """The shares of earlier runs, counted from 0, in its first weights."""


RUNS = (
    Run(14_000, FROM_NOTHING, {}),
    Run(4_500, f"{HIGH} --seed 1", {0: 1}),
    Run(2_000, f"{MIDDLE} --seed 4", {0: 1, 1: 2}),
    Run(500, f"{LOW} --seed 6", {0: 1, 1: 2, 2: 3}),
    Run(500, f"{LOW} --seed 7", {0: 1, 1: 2, 2: 3}),
)
SAVED = {0: 1, 1: 2, 2: 3, 3: 6, 4: 6}
"""The shares of the runs in what is saved."""
SCALE = 0.83
"""Factor of the logits, the best for the validation part."""


def options_of(run: Run, begin: Path) -> list[str]:
    """Return the options of train.py for a run; `begin` holds its first weights, if it has any."""
    line = f"--corpus quijote --max_iters {run.steps} {MODEL} {TRAINING} {run.options}"
    options = line.split()
    if run.begins_with:
        options += ["--init_from", str(begin)]
    return options


def best(folder: Path, number: int) -> Checkpoint:
    """Return the best checkpoint of a run."""
    return checkpoint.load(folder / f"run-{number}" / "best.safetensors")


def mean(folder: Path, shares: Mapping[int, int]) -> Checkpoint:
    """Return the mean of the best weights of some runs, which is the model of no run."""
    found = [best(folder, number) for number in shares]
    weights = {}
    for name in found[0].weights:
        arrays = [saved.weights[name] for saved in found]
        average = np.average(arrays, axis=0, weights=list(shares.values()))
        weights[name] = average.astype(np.float32)
    return replace(found[0], run="", weights=weights, optimizer={})


def train(folder: Path, number: int) -> None:
    """Train a run to its end, from its beginning or from where it was stopped."""
    run = RUNS[number]
    out = folder / f"run-{number}"
    last = out / "last.safetensors"
    if last.exists():
        if checkpoint.load(last).progress.step == run.steps:
            return
        options = ["--resume"]
    else:
        begin = folder / f"begin-{number}.safetensors"
        options = options_of(run, begin)
        if run.begins_with:
            checkpoint.save(begin, mean(folder, run.begins_with))
    line = [sys.executable, str(ROOT / "train.py"), *options, "--out_dir", str(out)]
    subprocess.run(line, check=True)


def main() -> None:
    """Train what is not there yet, take the mean, scale its output, measure, save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out_dir", type=Path, default=Path("out-pretrained"))
    parser.add_argument("--output", type=Path, default=PRETRAINED)
    options = parser.parse_args()
    options.out_dir.mkdir(exist_ok=True)
    for number in range(len(RUNS)):
        train(options.out_dir, number)
    made = mean(options.out_dir, SAVED)
    made.weights["head.weight"] *= SCALE
    loss = validation_loss(made.build_model(), corpus_of("quijote").val)
    runs = [best(options.out_dir, number).progress for number in range(len(RUNS))]
    progress = Progress(
        step=sum(run.step for run in runs),
        tokens=sum(run.tokens for run in runs),
        seconds=sum(run.seconds for run in runs),
        val_loss=loss,
        best_val_loss=loss,
    )
    halves = {name: weight.astype(np.float16) for name, weight in made.weights.items()}
    checkpoint.save(options.output, replace(made, progress=progress, weights=halves, optimizer={}))
    print(f"{options.output}: validation loss {loss:.4f}")


if __name__ == "__main__":
    main()
