"""Compares ways of drawing the next character: known words, different words, copied passages.

    python benchmarks/samplers.py [CHECKPOINT] [--seeds 5] [--corpus TEXT]

The model writes 8 texts of 3,000 characters for each seed and sampler. They are compared with as
many pieces of the author's text, from the validation part, which the model has not read. Prints the
mean over the texts of a sampler and half of its 95 % interval, then one line of JSON.
"""

from common import need  # isort: skip

need("numpy", "torch")

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from common import parser_of

from sancho import checkpoint
from sancho.config import SampleConfig
from sancho.evaluation.measures import copied, fraction_of_known_words, words_of
from sancho.generate import continue_texts
from sancho.run.learned import learned_corpus
from sancho.text.sources import corpus_of

TEXTS, LENGTH = 8, 3000
SAMPLERS = [
    {"temperature": 0.0},
    {"temperature": 0.5},
    {"temperature": 0.7},
    {"temperature": 0.8},
    {"temperature": 1.0},
    {"temperature": 0.9, "min_p": 0.05},
    {"temperature": 0.9, "min_p": 0.1},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 1.0, "min_p": 0.15},
    {"temperature": 1.0, "top_k": 5},
]


def figures(texts: Iterable[str], train: str, known: set[str]) -> dict[str, tuple[float, float]]:
    """Return (mean, half of its 95 % interval) of each measure over the texts."""
    texts = list(texts)
    # The training text is searched once for all of them: "\0" is in none of its passages.
    marks = copied("\0".join(texts), train)
    parts = np.split(marks, np.cumsum([len(text) + 1 for text in texts])[:-1])
    rows = [
        (
            100 * fraction_of_known_words(text, known),
            len(set(words_of(text))),
            100 * part.sum() / len(text),
        )
        for text, part in zip(texts, parts, strict=True)
    ]
    means = np.mean(rows, axis=0)
    halves = 1.96 * np.std(rows, axis=0, ddof=1) / len(rows) ** 0.5
    names = ("known words %", "different words", "copied %")
    return {name: (float(m), float(h)) for name, m, h in zip(names, means, halves, strict=True)}


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__)
    parser.add_argument("checkpoint", type=Path, nargs="?", default=checkpoint.PRETRAINED)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--corpus", help="another text than the model's own, as for train.py")
    options = parser.parse_args()
    saved = checkpoint.load(options.checkpoint)
    if options.corpus:
        corpus = corpus_of(options.corpus)
    else:
        corpus = learned_corpus(options.checkpoint, saved)
    train, val = corpus.tokenizer.decode(corpus.train), corpus.tokenizer.decode(corpus.val)
    known = set(words_of(train))
    model, tokenizer = saved.build_numpy(), saved.tokenizer
    prompt = tokenizer.encode("\n")
    starts = np.linspace(0, len(val) - LENGTH, TEXTS * options.seeds).astype(int)
    found = {"the author": figures((val[i : i + LENGTH] for i in starts), train, known)}
    for sampler in SAMPLERS:
        texts = [
            text
            for seed in range(options.seeds)
            for text in continue_texts(
                model,
                tokenizer,
                prompt,
                SampleConfig(**sampler),
                samples=range(TEXTS),
                max_new_tokens=LENGTH,
                seed=seed,
            )
        ]
        found[", ".join(f"{name} {value}" for name, value in sampler.items())] = figures(
            texts, train, known
        )
    for name, values in found.items():
        cells = "".join(f"{mean:>10.1f} ± {half:<6.1f}" for mean, half in values.values())
        print(f"{name:28}{cells}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
