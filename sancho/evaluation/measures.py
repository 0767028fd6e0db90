"""Measures of a trained model: its loss, and its text's words and verbatim copies."""

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from sancho.config import DEFAULT_SAMPLING, SampleConfig
from sancho.corpus import Corpus
from sancho.generate import continue_texts
from sancho.model import GPT
from sancho.training import validation_loss

SAMPLINGS = {
    "by default": DEFAULT_SAMPLING,
    "plain 0.5": SampleConfig(temperature=0.5),
    "plain 1.0": SampleConfig(temperature=1.0),
}
"""How texts are written to be measured; plain: at that temperature and nothing else."""
STAGES = 1 + len(SAMPLINGS) + 1
"""What is measured: the loss, the text of each sampling, and the author's."""
SAMPLES = 10
"""Texts of each sampling."""
SAMPLE_LENGTH = 2000
"""Characters in each of them."""
SEED = 1605
LONGEST_TRAINING = 10_000_000
"""Characters at the end of the training part that texts are compared with: about 1 GB of memory."""
LONGEST_VALIDATION = 500_000
"""Characters at the beginning of the validation part that are the author's text."""
COPY = 32
"""Characters from which a passage of the training part counts as copied."""


def measure(model: GPT, corpus: Corpus) -> Iterator[dict[str, Any]]:
    """Yield all that has been measured so far, after each of STAGES; the last is the whole.

    loss: nats per character of the whole validation part, and the same in bits. characters: of both
    parts; compared: those of them that texts are compared with, and that are the author's. texts:
    the measures of the model's text by each sampling, and of the author's.
    """
    train = corpus.train[-LONGEST_TRAINING:]
    val = corpus.val[:LONGEST_VALIDATION]
    loss = validation_loss(model, corpus.val, threads=torch.get_num_threads())
    texts: dict[str, dict[str, Any]] = {}
    found = {
        "loss": loss,
        "bits_per_character": loss / math.log(2),
        "characters": {"training": len(corpus.train), "validation": len(corpus.val)},
        "compared": {"training": len(train), "validation": len(val)},
        "texts": texts,
    }
    yield found
    train_text = corpus.tokenizer.decode(train)
    known = set(words_of(train_text))
    for name, sampling in SAMPLINGS.items():
        pieces = continue_texts(
            model,
            corpus.tokenizer,
            val[:1],
            sampling,
            max_new_tokens=SAMPLE_LENGTH,
            seed=SEED,
            samples=range(SAMPLES),
        )
        text = "\n".join(map(whole_words, pieces))
        texts[name] = measures_of_text(text, train_text, known)
        yield found
    texts["the author"] = measures_of_text(corpus.tokenizer.decode(val), train_text, known)
    yield found


def measures_of_text(text: str, train_text: str, known: set[str]) -> dict[str, Any]:
    """Return the measures of a text beside the training part, the words of which are `known`."""
    return {
        "known_words": fraction_of_known_words(text, known),
        "different_words": different_words(text, min(len(text), SAMPLES * SAMPLE_LENGTH)),
        "copied": float(copied(text, train_text).mean()),
        "longest_copy": longest_copy(text, train_text),
    }


def whole_words(text: str) -> str:
    """Return a text without what comes after its last blank: the beginning of a word, perhaps."""
    if " " not in text:
        return text
    return text[: text.rindex(" ")]


def words_of(text: str) -> list[str]:
    """Return the words of a text, sequences of letters, in lower case."""
    return re.findall(r"[^\W\d_]+", text.lower())


def fraction_of_known_words(text: str, known: set[str]) -> float:
    """Return which fraction of the words of a text is in `known`; 0 for a text without words."""
    words = words_of(text)
    return sum(word in known for word in words) / max(1, len(words))


def different_words(text: str, length: int) -> float:
    """Return how many different words a whole piece of `length` characters has, in the mean."""
    starts = range(0, max(1, len(text) - length + 1), length)
    return float(np.mean([len(set(words_of(text[i : i + length]))) for i in starts]))


def copied(text: str, source: str, length: int = COPY) -> np.ndarray:
    """Return which characters of `text` lie in passages of `length` or more of `source`, (n,)."""
    inside = np.zeros(len(text), dtype=bool)
    for i in _common_windows(text, source, length):
        inside[i : i + length] = True
    return inside


def longest_copy(text: str, source: str, length: int = COPY) -> str:
    """Return the first of the longest passages, of `length` or more, that stand in `source`."""
    starts = _common_windows(text, source, length)
    known = set(starts)
    longest = ""
    for start in starts:
        end = start + max(length, len(longest) + 1)
        # A longer passage ends with a window that stands there, too: else it need not be searched.
        while end - length in known and text[start:end] in source:
            longest = text[start:end]
            end += 1
    return longest


def _common_windows(text: str, source: str, length: int) -> list[int]:
    """Return where windows of `length` characters of `text` begin that stand in `source`."""
    windows = [text[i : i + length] for i in range(len(text) - length + 1)]
    starts = range(len(source) - length + 1)
    found = set(windows).intersection(source[j : j + length] for j in starts)
    return [i for i, window in enumerate(windows) if window in found]
