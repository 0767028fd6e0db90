"""Compares the losses on nanoGPT's own text, Shakespeare, with nanoGPT and PPMd.

    python benchmarks/shakespeare.py [--without_table] [--midi] [--nanogpt DIR] [--ppmd]
        [-- OPTIONS]

Runs whole processes, `python train.py --corpus shakespeare OPTIONS`, one for each seed, with a
block size of 64 or more; the text is downloaded beforehand. --without_table adds runs without the
n-gram table, and --midi runs of `--preset midi` with its own number of steps. --nanogpt names a
checkout of https://github.com/karpathy/nanoGPT, whose recipe for a CPU is run on the same
characters, in turn with ours; its seed is fixed, so only its seconds differ. All losses are in nats
per character over the whole validation part, in windows as long as the model's context; in the last
column, in windows of 64 characters, which is all that nanoGPT's model can read. --ppmd (pip install
pyppmd) adds what the validation part adds to the training part when PPMd compresses both (variant
H, as in 7-Zip), at the order that is best for the validation part.
Prints each run, then a table in Markdown, then one line of JSON.
"""

from common import need  # isort: skip

need("numpy", "torch")

import argparse
import json
import math
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from common import parser_of
from time_to_loss import median, train_nanogpt, train_ours

from sancho.text.corpus import Corpus
from sancho.text.sources import corpus_of

ORDERS = range(2, 17)
MEMORY = 1 << 28  # bytes, more than any of these orders fills


def ppmd_losses(corpus: Corpus) -> dict[int, float]:
    """Return order → nats per character that PPMd adds for the validation part to the other."""
    try:
        from pyppmd import compress
    except ImportError:
        raise SystemExit("--ppmd needs a package: pip install pyppmd") from None
    train, val = corpus.tokenizer.decode(corpus.train), corpus.tokenizer.decode(corpus.val)

    def bits(text: str, order: int) -> int:
        return 8 * len(compress(text, max_order=order, mem_size=MEMORY, variant="H"))

    added = {order: bits(train + val, order) - bits(train, order) for order in ORDERS}
    return {order: math.log(2) * bits / len(val) for order, bits in added.items()}


def as_row(name: str, runs: list[dict[str, float]]) -> str:
    """Return a row in Markdown: median seconds (lowest to highest), mean losses (each)."""
    seconds = [run["seconds"] for run in runs]
    losses = ", ".join(f"{run['val_loss']:.4f}" for run in runs)
    keys = ("val_loss", "val_loss_64")
    mean, mean_64 = (statistics.mean(run[key] for run in runs) for key in keys)
    return (
        f"| {name} | {median(runs, 'steps'):,.0f} "
        f"| {statistics.median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f}) "
        f"| {mean:.4f} ({losses}) | {mean_64:.4f} |"
    )


def measure(
    options: argparse.Namespace, corpus: Corpus, folder: Path
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the name and the figures of each run, in alternation, seed by seed."""
    line = ["--corpus", "shakespeare", *options.options]
    for seed in map(str, options.seeds):
        yield "sancho-mini", train_ours(folder, corpus, [*line, "--seed", seed])
        if options.without_table:
            without = [*line, "--ngram_size", "1", "--seed", seed]
            yield "sancho-mini without its n-gram table", train_ours(folder, corpus, without)
        if options.midi:
            midi = ["--corpus", "shakespeare", "--preset", "midi", "--seed", seed]
            yield "sancho-mini, midi", train_ours(folder, corpus, midi)
        if options.nanogpt:
            yield "nanoGPT, its recipe for a CPU", train_nanogpt(options.nanogpt, folder, corpus)


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__, nanogpt=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1605, 1, 2])
    parser.add_argument("--without_table", action="store_true", help="also with --ngram_size 1")
    parser.add_argument("--midi", action="store_true", help="also --preset midi")
    parser.add_argument("--ppmd", action="store_true", help="also PPMd")
    parser.add_argument("options", nargs="*", help="options of train.py, after --")
    options = parser.parse_args()
    corpus = corpus_of("shakespeare")
    ppmd = ppmd_losses(corpus) if options.ppmd else {}
    runs: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        for what, found in measure(options, corpus, Path(name)):
            runs.setdefault(what, []).append(found)
            print(f"{what}: {found['val_loss']:.4f} in {found['seconds']:.1f} s", flush=True)
    print("\n| what | steps | seconds | validation loss | in windows of 64 |")
    print("|---|---|---|---|---|")
    for what, rows in runs.items():
        print(as_row(what, rows))
    if ppmd:
        order = min(ppmd, key=ppmd.__getitem__)
        print(f"| PPMd, order {order} | | | {ppmd[order]:.4f} | |")
    print(json.dumps({"options": options.options, "runs": runs, "ppmd": ppmd}))


if __name__ == "__main__":
    main()
