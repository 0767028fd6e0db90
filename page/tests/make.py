"""What Python says to the cases on which the engine is tried: python page/tests/make.py.

It stands in cases.json, so that `node --test` needs no Python. tests/page/test_scripts.py tells
where it is out of date.
"""

import json
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "text")]

from golden.make import FAMILIES, TOKENIZER
from test_clean import CLEANED, FRAMES, LINE, NO_MARKS

from sancho.config import SampleConfig
from sancho.convert.page import nearest_known, text_rules, with_derived
from sancho.generate import shape_logits
from sancho.machine import seeds
from sancho.text.clean import clean_text, read_text

CASES = FOLDER / "cases.json"
PLACES = [(0, (4,)), (1605, (3, 0)), (2**64 - 1, (1, 70_000)), (2**70, (2, 3, 2**33))]
LOGITS = [3.1, 2.2, 2.2, 0.3, -1.0, -30.0]
UNTOUCHED = {"temperature": 1.0, "top_k": None, "top_p": None, "min_p": None}
OPTIONS = [
    {"temperature": 0.0},
    {"temperature": 0.8},
    {"temperature": 1.5, "top_k": 2},
    {"top_p": 0.6},
    {"min_p": 0.1},
    {"temperature": 1.2, "top_k": 4, "top_p": 0.9, "min_p": 0.05},
]
TEXTS = ["un lugar", "en un an\u0303o, ¡qué «lugar»!", "😀", ""]


def random_numbers() -> list[dict]:
    """Return the first numbers of some generators; a seed as a string, as it may be a large one."""
    return [
        {"seed": str(seed), "key": key, "numbers": seeds.generator(seed, *key).random(5).tolist()}
        for seed, key in PLACES
    ]


def shaped_logits() -> list[dict]:
    """Return logits after the options of a sampler; null for what is dropped."""
    cases = []
    for options in OPTIONS:
        config = SampleConfig(**(UNTOUCHED | options))
        shaped = shape_logits(np.array([LOGITS]), config)[0].tolist()
        kept = [logit if np.isfinite(logit) else None for logit in shaped]
        cases.append({"options": UNTOUCHED | options, "shaped": kept})
    return cases


def cleaned_texts() -> list[list[str]]:
    """Return texts, and each as it is after cleaning."""
    framed = [f"{start}\n{LINE}\n{end}\n" for start, end in FRAMES]
    framed += [f"uno\n{line}\n{LINE}" for line in NO_MARKS]
    texts = [raw for raw, _ in CLEANED] + framed + ["".join(framed[:3])]
    return [[text, clean_text(read_text(text.encode(), "text"))] for text in texts]


def cases() -> dict:
    """Return all of them, as JSON has them."""
    found = {
        "characters": TOKENIZER.characters,
        "nearest": nearest_known(TOKENIZER),
        "encoded": [
            {"text": text, "ids": TOKENIZER.encode(text, "skip").tolist()} for text in TEXTS
        ],
        "random": random_numbers(),
        "logits": LOGITS,
        "shaped": shaped_logits(),
        "rules": text_rules(),
        "cleaned": cleaned_texts(),
        "configs": {name: with_derived(config) for name, config in FAMILIES.items()},
    }
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    CASES.write_text(json.dumps(cases(), indent=1) + "\n", encoding="utf-8", newline="\n")
