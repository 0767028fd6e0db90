"""Compares training and writing on a CUDA GPU: the preset base and nanoGPT's character recipe.

    python benchmarks/gpu.py [--nanogpt DIR] [--texts quijote shakespeare]
        [--rows nanogpt base short table skip writing] [--options "OPTIONS"]

For each text, several models are trained on the same clean characters, each in a process of its own
and compiled, except with the n-gram table: nanoGPT with config/train_shakespeare_char.py as it is
(64 windows of 256 characters a step, 6 layers, 6 heads, 384 wide, dropout 0.2, 5,000 steps); the
preset base; base in --short steps; and base with one option changed, the n-gram table or
embedding_skip. Seconds are those of the whole process with interpreter, compilation and
evaluations. Both evaluate every 250 steps, nanoGPT on 200 random batches of both parts, base on the
whole validation text. Losses are over the whole validation text in windows of 256 characters;
nanoGPT's is that of the best model that it saved, and the others have it as their target. The speed
is that between evaluations. The fraction of the peak is the arithmetic of a step (see
throughput.py) divided by what a large matrix product reaches in bfloat16.

Then untrained models with a full context write one text, and ten texts side by side: base on the
GPU, which reads its window again for each character; base in NumPy (as in sample.py), which keeps
what it has read; and nanoGPT on the GPU. The report also says how many windows of 256 characters,
and of a single character, base reads in a second: if both are alike, kernel launches limit the
speed of writing, and not arithmetic. `--rows writing` measures only this.

OPTIONS are those of train.py; `--device cpu` only tries the script. Prints a report for each text
and one of the writing, then one line of JSON.
"""

from common import need  # isort: skip

need("numpy", "torch")

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import nanogpt
import numpy as np
import torch
from common import ROOT, median_seconds, parser_of
from throughput import peak, work
from time_to_loss import judge
from torch import nn

from sancho import checkpoint
from sancho.config import DeviceConfig, ModelConfig
from sancho.corpus import Corpus
from sancho.device import Device, choose_device
from sancho.generate import WindowDecoder, generate
from sancho.model import GPT
from sancho.presets import PRESETS
from sancho.sources import find_corpus

Row = dict[str, object]
EVERY = 250  # steps between evaluations, as in nanoGPT's recipe
# copy_with_text calls every text quijote.
NANOGPT_RECIPE = "train.py config/train_shakespeare_char.py --dataset=quijote --out_dir=out"
NANOGPT = ModelConfig(
    block_size=256,
    n_layer=6,
    n_head=6,
    n_embd=384,
    dropout=0.2,
    ngram_size=1,
    embedding_skip=False,
)
OURS = ["--preset", "base", "--eval_interval", str(EVERY)]
TABLE = ["--ngram_size", "5", "--ngram_dropout", "0.2", "--no-compile"]
WARM_UP, WRITTEN = 200, 384  # characters: after the first ones the context is refilled twice
READ = 200  # windows


def rows_of_ours(short: int) -> dict[str, tuple[str, list[str]]]:
    """Return the rows that are measured with train.py: the name of each and its options."""
    base = PRESETS["base"].model
    rows = {
        "base": ("base", []),
        "short": (f"base, {short:,} steps", ["--max_iters", str(short)]),
        "table": ("base with the table", TABLE),
        "skip": ("base with embedding_skip", ["--embedding_skip"]),
    }
    if base.ngram_size > 1:
        rows["table"] = ("base without the table", ["--ngram_size", "1"])
    if base.embedding_skip:
        rows["skip"] = ("base without embedding_skip", ["--no-embedding_skip"])
    return rows


def follow(
    arguments: list[str], folder: Path, log: Path, watched: Path
) -> tuple[list[tuple[float, str]], float]:
    """Run a Python process in a folder; its output goes to the file `log`.

    Return the lines that it adds to the file `watched`, each with the time at which it appeared,
    and the time of the whole process, in seconds. Raises SystemExit with the end of its output
    where it fails.
    """
    lines, rest, file = [], "", None
    begin = time.perf_counter()
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        ended = False
        while not ended:
            time.sleep(0.01)
            ended = process.poll() is not None
            if file is None and watched.exists():
                file = open(watched, encoding="utf-8", errors="replace")  # noqa: SIM115
            if file:
                seconds = time.perf_counter() - begin
                *whole, rest = (rest + file.read()).split("\n")
                lines += [(seconds, line) for line in whole]
    seconds = time.perf_counter() - begin
    if file:
        file.close()
    said = log.read_text(encoding="utf-8", errors="replace")
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{said[-3000:]}")
    for note in re.findall(r"^note: .*", said, flags=re.MULTILINE):
        print(note)
    return lines, seconds


def characters_per_second(steps: list[tuple[int, float]], per_step: int) -> float:
    """Return the median speed of the stretches between evaluations; the first one compiles."""
    stretches: dict[int, list[tuple[int, float]]] = {}
    for step, seconds in steps:
        if step % EVERY:
            stretches.setdefault(step // EVERY, []).append((step, seconds))
    ends = [(stretch[0], stretch[-1]) for stretch in stretches.values() if len(stretch) > 1]
    return per_step * statistics.median(
        (last - first) / (end - begin) for (first, begin), (last, end) in ends[1:] or ends
    )


def train_ours(folder: Path, options: list[str]) -> Row:
    """Run train.py; return its steps, seconds, evaluations, best loss and speed."""
    out = Path(tempfile.mkdtemp(dir=folder))
    compiled = [] if "--no-compile" in options else ["--compile"]
    command = ["train.py", *OURS, *compiled, "--out_dir", str(out), *options]
    lines, seconds = follow(command, ROOT, folder / "log", out / "metrics.jsonl")
    metrics = [(when, json.loads(line)) for when, line in lines]
    best = checkpoint.load(out / "best.safetensors")
    per_step = best.train_config.characters_per_step(best.model_config)
    steps = [(line["step"], when) for when, line in metrics]
    return {
        "steps": steps[-1][0],
        "seconds": seconds,
        "evaluations": [(when, line["val_loss"]) for when, line in metrics if line["val_loss"]],
        "val_loss": best.progress.val_loss,
        "speed": characters_per_second(steps, per_step),
        "work": work(best.model_config),
    }


def train_nanogpt(checkout: Path, folder: Path, corpus: Corpus, device: Device) -> Row:
    """Run nanoGPT's recipe in a copy of a checkout; return the same."""
    copy, log = nanogpt.copy_with_text(checkout, folder, corpus), folder / "nanogpt.log"
    gpu = device.torch_device
    lines, seconds = follow([*NANOGPT_RECIPE.split(), f"--device={gpu}"], copy, log, log)
    steps, evaluations, per_step = [], [], 0
    for when, line in lines:
        if found := re.match(r"tokens per iteration will be: ([\d,]+)", line):
            per_step = int(found[1].replace(",", ""))
        elif found := re.match(r"step \d+: train loss \S+, val loss (\S+)", line):
            evaluations.append((when, float(found[1])))
        elif found := re.match(r"iter (\d+): loss", line):
            steps.append((int(found[1]), when))
    model = nanogpt.trained_model(copy)[0].to(gpu)

    def logits_of(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return model(inputs.to(gpu), targets.to(gpu))[0].float().cpu()

    with device.autocast():
        val_loss = judge(logits_of, corpus.val, NANOGPT.block_size)
    return {
        "steps": steps[-1][0],
        "seconds": seconds,
        "evaluations": evaluations,
        "val_loss": val_loss,
        "speed": characters_per_second(steps, per_step),
        "work": work(replace(NANOGPT, vocab_size=corpus.tokenizer.vocab_size)),
    }


def seconds_to(target: float | None, row: Row) -> float | None:
    """Return when an evaluation first came out at the target or below it."""
    if target is None:
        return None
    return next((when for when, loss in row["evaluations"] if loss <= target), None)


def write_ours(model: GPT, n_texts: int, device: Device) -> float:
    """Return characters per second of all texts together, the context full."""
    prompt = np.ones(model.config.block_size, dtype=np.int64)
    with device.autocast():
        texts = generate(model, prompt, max_new_tokens=WARM_UP + WRITTEN, samples=range(n_texts))
        times = [time.perf_counter() for _ in texts]
    return n_texts * WRITTEN / (times[-1] - times[WARM_UP - 1])


def read(model: GPT, n_texts: int, device: Device, length: int) -> float:
    """Return how many windows of so many characters are read per second, of all texts together."""
    ids = np.ones((n_texts, length), dtype=np.int64)
    with device.autocast():
        seconds = median_seconds(lambda: WindowDecoder(model, n_texts).read(ids), READ, WARM_UP)
    return n_texts / seconds


@torch.no_grad()
def write_nanogpt(model: nn.Module, n_texts: int, device: Device) -> float:
    """Return the same for nanoGPT."""
    context = torch.ones(n_texts, NANOGPT.block_size, dtype=torch.long, device=device.torch_device)
    with device.autocast():
        for count in (20, WRITTEN):  # the first call warms up
            begin = time.perf_counter()
            model.generate(context, count, temperature=0.8, top_k=200).cpu()
    return n_texts * WRITTEN / (time.perf_counter() - begin)


def compare_training(
    options: argparse.Namespace, text: str, folder: Path, device: Device, fastest: float
) -> list[Row]:
    """Fill the rows of a text's report and print each as it comes."""
    corpus, target, rows = find_corpus(ROOT / "data", text), options.target, []
    print(f"{corpus.name:28}{'steps':>7}{'seconds':>9}{'best loss':>11}", end="")
    print(f"{'to the target':>15}{'characters/s':>14}{'of the peak':>13}", flush=True)
    ours = rows_of_ours(options.short)
    for key in options.rows:
        if key == "nanogpt":
            name = "nanoGPT, its recipe"
            row = train_nanogpt(options.nanogpt, folder, corpus, device)
            target = row["val_loss"] if options.target is None else target
            row["to_target"] = min(row["evaluations"], key=lambda found: found[1])[0]
        else:
            name, extra = ours[key]
            given = ["--dataset", text, "--device", str(device.torch_device)]
            row = train_ours(folder, [*given, *options.options.split(), *extra])
            row["to_target"] = seconds_to(target, row)
        row |= {"text": corpus.name, "row": name, "target": target}
        row["fraction"] = row["speed"] * row["work"] / fastest
        rows.append(row)
        to_target = f"{row['to_target']:.1f}" if row["to_target"] else "–"
        print(
            f"{name:28}{row['steps']:7,}{row['seconds']:9.1f}{row['val_loss']:11.4f}"
            f"{to_target:>15}{row['speed']:14,.0f}{row['fraction']:13.0%}",
            flush=True,
        )
    return rows


def compare_writing(checkout: Path | None, device: Device) -> list[Row]:
    """Let untrained models write; print a line for each."""
    cpu, base = choose_device(DeviceConfig(device="cpu")), PRESETS["base"].model
    ours = GPT(base).to(device.torch_device).eval()
    writers = [(f"base, {device}", write_ours, ours, device)]
    for length in (base.block_size, 1):
        writers.append((f"  windows of {length} read", partial(read, length=length), ours, device))
    writers.append(("base in NumPy", write_ours, GPT(base).eval(), cpu))
    if checkout:
        theirs = nanogpt.model_module(checkout)
        names = ("block_size", "n_layer", "n_head", "n_embd", "bias")
        size = {name: getattr(NANOGPT, name) for name in names}
        model = theirs.GPT(theirs.GPTConfig(**size, vocab_size=base.vocab_size)).eval()
        writers.append((f"nanoGPT, {device}", write_nanogpt, model.to(device.torch_device), device))
    print(f"{'characters/s, writing':28}{'alone':>10}{'ten texts':>11}", flush=True)
    rows = []
    for name, write, model, where in writers:
        alone, ten = (write(model, n_texts, where) for n_texts in (1, 10))
        rows.append({"writer": name, "alone": alone, "ten": ten})
        print(f"{name:28}{alone:10,.0f}{ten:11,.0f}", flush=True)
    return rows


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__, nanogpt=True)
    keys = ["nanogpt", *rows_of_ours(0), "writing"]
    texts = ["quijote", "shakespeare"]
    parser.add_argument("--texts", nargs="+", default=texts, help="folders or texts in data/")
    parser.add_argument("--rows", nargs="+", choices=keys, default=keys, help="what to measure")
    parser.add_argument("--short", type=int, default=1000, help="steps of the row short")
    parser.add_argument("--target", type=float, help="loss to reach, if not nanoGPT's best")
    words = "cpu only tries the script"
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help=words)
    parser.add_argument("--options", default="", help='of train.py, as "--max_iters 3000"')
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(f"gpu.py needs a CUDA GPU; torch {torch.__version__} finds none here")
    device = choose_device(DeviceConfig(device=options.device))
    chosen = set(options.rows) - (set() if options.nanogpt else {"nanogpt"})
    options.rows = [key for key in keys[:-1] if key in chosen]  # nanoGPT first: it sets the target
    machine = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"{machine}, torch {torch.__version__}")
    rows, writers = [], []
    if options.rows:
        fastest = peak(device)
        print(f"A large matrix product: {fastest / 1e12:,.2f} TFLOP/s, {device}")
    for text in options.texts if options.rows else []:
        with tempfile.TemporaryDirectory() as folder:
            rows += compare_training(options, text, Path(folder), device, fastest)
    if "writing" in chosen:
        writers = compare_writing(options.nanogpt, device)
    found = {"gpu": machine, "torch": torch.__version__, "rows": rows, "writing": writers}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
