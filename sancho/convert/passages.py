"""Passages for the page's game, of the validation part: the model has not read them."""

import re

MOST = 12
PIECE = 500
"""Characters of a text for each passage, at least: a short text has fewer passages."""
SEARCHED = 20_000
"""Characters in which a passage is looked for."""
# Whole sentences in one paragraph, so no title, which a table of contents may repeat.
SENTENCES = re.compile(r"(?<=[.!?]\s)[^\W\d_](?:(?!\n\n).){200,299}?[.!?](?=\s)", re.DOTALL)
# Chats, poems and dialogues have none: shorter ones, or lines, over several paragraphs.
LINES = re.compile(r"(?:(?<=\n)|(?<=[.!?]\s))\S.{80,299}?(?:[.!?](?=\s)|(?=\n))", re.DOTALL)
KINDS = ((SENTENCES, 200, True), (LINES, 100, True), (LINES, 100, False))
"""What passages are, the better kind first; how many characters come before them, at most; whether
they have to begin as a sentence does, as the lines of a book that were cut to a width do not."""
OPENINGS = '—–-¿¡«“"( '
"""What may stand before the capital letter of a sentence."""


def passages_of(text: str) -> list[tuple[str, str]]:
    """Return up to 12 passages of a text, spread evenly, each after the text before it."""
    count = min(MOST, max(1, len(text) // PIECE))
    step = len(text) // count
    pieces = (text[n * step :][: min(step, SEARCHED)] for n in range(count))
    found = (first_passage(piece) for piece in pieces)
    return [passage for passage in found if passage]


def first_passage(text: str) -> tuple[str, str] | None:
    """Return what comes before the first passage of a text, and the passage."""
    for kind, context, is_sentence in KINDS:
        for match in kind.finditer(text, context):
            if not is_sentence or match[0].lstrip(OPENINGS)[:1].isupper():
                before = text[match.start() - context : match.start()]
                whole_words = re.sub(r"^\S+\s+", "", before.lstrip())
                return whole_words, match[0]
    return None


def words_in(text: str) -> list[str]:
    """Return the different words of a text, of four letters or more, sorted, in small letters."""
    return sorted(set(re.findall(r"[^\W\d_]{4,}", text.lower())))
