"""Compares the loss of a model with counting, xz, PPMd and nanoGPT on the same text.

    python benchmarks/baselines.py [CHECKPOINT] [--corpus TEXT]

All baselines learn from the whole training part and are measured on the whole validation part.
Counting is interpolated Kneser-Ney (counting.py). For xz and PPMd, the figure is what the
validation part adds to the compressed training part. The figures of PPMd and nanoGPT were measured
earlier and hold only for the text of Don Quijote that the pretrained model learned from. The model
is measured in three ways: in windows, as in evaluate.py; with at least half a window before each
character; and the same without passages that occur in the training part, too. Prints a table, then
one line of JSON.
"""

from common import need  # isort: skip

need("numpy", "torch")

import json
import lzma
import math
from pathlib import Path

import numpy as np
import torch
from common import parser_of

from medidas import sliding_losses
from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.evaluation.counting import kneser_ney_losses
from sancho.evaluation.measures import copied
from sancho.loss import character_losses
from sancho.run.learned import learned_corpus
from sancho.text.corpus import Corpus, remap_ids
from sancho.text.sources import corpus_of

PUBLISHED = {"PPMd, order 12, after the training part": 1.780, "nanoGPT's recipe for a CPU": 2.498}
"""Bits per character on the last tenth of Don Quijote: PPMd variant H, as in 7-Zip, which goes on
learning as it reads; nanoGPT by time_to_loss.py, 2,000 steps."""


def baselines(corpus: Corpus) -> dict[str, float]:
    """Return bits per character of the baselines."""
    tokenizer = corpus.tokenizer
    losses = kneser_ney_losses(corpus.train, corpus.val, tokenizer.vocab_size)
    counted = losses.mean(1) / math.log(2)
    best = int(counted.argmin())
    found = {
        "nothing known": math.log2(tokenizer.vocab_size),
        "how often each letter occurs": counted[0],
        "pairs of letters": counted[1],
        f"counts of up to {best + 1} letters (Kneser-Ney)": counted[best],
        "xz -9e, after the training part": xz_bits(
            tokenizer.decode(corpus.train), tokenizer.decode(corpus.val)
        ),
    }
    if corpus.sha256 == checkpoint.pretrained().corpus_sha256:
        found |= PUBLISHED
    return {name: float(bits) for name, bits in found.items()}


def xz_bits(train: str, val: str) -> float:
    """Return how many bits per character xz -9e takes for `val` once it has packed `train`."""
    best = 9 | lzma.PRESET_EXTREME
    before = len(lzma.compress(train.encode(), preset=best))
    after = len(lzma.compress((train + val).encode(), preset=best))
    return 8 * (after - before) / len(val)


def bits_of_model(saved: Checkpoint, corpus: Corpus) -> dict[str, float]:
    """Return bits per character of a model, in three ways."""
    model = saved.build_model()
    block = model.config.block_size
    in_windows = character_losses(model, corpus.val, threads=torch.get_num_threads())
    sliding = sliding_losses(model, corpus.val, in_windows)
    decode = corpus.tokenizer.decode
    is_new = ~copied(decode(corpus.val), decode(corpus.train))[1:]
    losses = {
        f"the model, in windows of {block}": in_windows,
        f"the model, after at least {block // 2} characters": sliding,
        "the same, without copied passages": sliding[is_new],
    }
    return {name: float(part.mean(dtype=np.float64)) / math.log(2) for name, part in losses.items()}


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__)
    parser.add_argument("checkpoint", type=Path, nargs="?", default=checkpoint.PRETRAINED)
    parser.add_argument("--corpus", help="another text than the model's own, as for train.py")
    options = parser.parse_args()
    saved = checkpoint.load(options.checkpoint)
    if options.corpus:
        corpus = corpus_of(options.corpus)
    else:
        corpus = learned_corpus(options.checkpoint, saved)
    found = baselines(corpus)
    found = dict(sorted(found.items(), key=lambda item: -item[1]))
    found |= bits_of_model(saved, remap_ids(corpus, saved.tokenizer))
    print(f"{corpus.name}: bits per character of the validation part")
    for name, bits in found.items():
        print(f"  {name:44}{bits:8.3f}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
