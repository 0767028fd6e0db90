"""Passages for the page's game, of the validation part: the model has not read them."""

import re
from pathlib import Path

from sancho.checkpoint import Checkpoint
from sancho.convert.page.packing import own_text

MOST = 12
CONTEXT = 200
"""Characters that are shown before a passage, at most; a window of 512 holds both."""
SEARCHED = 20_000
"""Characters in which a passage is looked for."""
# Whole sentences in one paragraph, so no title, which a table of contents may repeat.
PASSAGE = re.compile(r"(?<=[.!?]\s)[^\W\d_](?:(?!\n\n).){200,299}?[.!?](?=\s)", re.DOTALL)


def find_passages(saved: Checkpoint, data: str | Path) -> list[tuple[str, str]]:
    """Return up to 12 passages, spread evenly, each after the text before it; always the same ones.

    Empty where the model's own text is not in `data`, or has no such sentences.
    """
    own = own_text(saved, data)
    if own is None:
        return []
    return passages_of(own.tokenizer.decode(own.val))


def passages_of(text: str) -> list[tuple[str, str]]:
    """Return up to 12 passages of a text, spread evenly, each after the text before it."""
    step = max(1, len(text) // MOST)
    pieces = (text[start : start + step][:SEARCHED] for start in range(0, len(text), step))
    found = (first_passage(piece) for piece in pieces)
    return [passage for passage in found if passage]


def first_passage(text: str) -> tuple[str, str] | None:
    """Return what comes before the first passage of a text, and the passage."""
    for match in PASSAGE.finditer(text, CONTEXT):
        if match[0][0].isupper():
            before = text[match.start() - CONTEXT : match.start()]
            whole_words = before.split(maxsplit=1)[-1]
            return whole_words, match[0]
    return None
