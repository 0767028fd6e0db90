"""Compares the losses on nanoGPT's own text, Shakespeare, with nanoGPT and PPMd.

    python benchmarks/shakespeare.py [--without_table] [--midi] [--nanogpt DIR] [--ppmd]
        [-- OPTIONS]

Runs whole processes, `python train.py --corpus shakespeare OPTIONS`, one for each seed, with a
block size of 64 or more; the text is downloaded beforehand. Everything else runs once, with the
first seed: --without_table adds a run without the n-gram table, and --midi one of `--preset midi`
with its own number of steps. --nanogpt names a checkout of https://github.com/karpathy/nanoGPT,
whose recipe for a CPU is run on the same characters; its own seed is fixed. All losses are in nats
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
from time_to_loss import train_nanogpt, train_ours

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
    """Return a row in Markdown: the figures of each run, and the mean of several losses."""

    def each(key: str, form: str) -> str:
        return ", ".join(format(run[key], form) for run in runs)

    losses = each("val_loss", ".4f")
    if len(runs) > 1:
        losses += f": mean {statistics.mean(run['val_loss'] for run in runs):.4f}"
    return (
        f"| {name} | {runs[0]['steps']:,.0f} | {each('seconds', '.1f')} | {losses} "
        f"| {each('val_loss_64', '.4f')} |"
    )


def measure(
    options: argparse.Namespace, corpus: Corpus, folder: Path
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the name and the figures of each run: ours for each seed, the others for the first."""
    seeds = list(map(str, options.seeds))
    line = ["--corpus", "shakespeare", *options.options]
    for seed in seeds:
        yield "sancho-mini", train_ours(folder, corpus, [*line, "--seed", seed])
    if options.without_table:
        without = [*line, "--ngram_size", "1", "--seed", seeds[0]]
        yield "sancho-mini without its n-gram table", train_ours(folder, corpus, without)
    if options.midi:
        midi = ["--corpus", "shakespeare", "--preset", "midi", "--seed", seeds[0]]
        yield "sancho-mini, midi", train_ours(folder, corpus, midi)
    if options.nanogpt:
        yield "nanoGPT, its recipe for a CPU", train_nanogpt(options.nanogpt, folder, corpus)


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__, nanogpt=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1605, 1, 2])
    parser.add_argument("--without_table", action="store_true", help="also --ngram_size 1")
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
