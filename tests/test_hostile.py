"""What is read takes as long as it is, and not as the square of that, whatever it holds."""

import time
from collections.abc import Callable

import pytest
from test_clean import odd_of

import sample
from sancho.convert.passages import passages_of
from sancho.evaluation.measures import words_of
from sancho.generate import StopAt
from sancho.text.clean import WEB_PAGE, clean_text, read_text
from sancho.tokenizer import CharTokenizer

LONG = 30_000
SECONDS = 20.0
"""Ten times what all the runs take together; a single one takes longer in its square."""
# How what the regular expressions look for begins, and what they repeat.
BEGINNINGS = (
    "",
    "x",
    "*",
    "*** START OF",
    "*** START OF THE PROJECT GUTENBERG EBOOK",
    "<!--",
    "&#",
    "Dijo. Yo",
    "file:",
)
REPEATED = [*' \t\n\\*><[-.!?…»”")1&;xÃÂ\u0301', "* ", ". a", ".»", "&#1", "-->", "- "]
REPEATED += ["*** END OF THE PROJECT GUTENBERG\n", ".txt"]


def stopping(text: str) -> None:
    """Stop at the text, of which three characters came."""
    gate = StopAt([text])
    for character in text[:3]:
        gate.push(character)


def tokenized(text: str) -> None:
    tokenizer = CharTokenizer.from_text(text)
    tokenizer.encode(text)
    tokenizer.require_known(text, "--stop")


@pytest.mark.parametrize(
    "read",
    [
        clean_text,
        odd_of,
        words_of,
        passages_of,
        WEB_PAGE.match,
        stopping,
        sample.read_start,
        tokenized,
        lambda text: read_text(text.encode("windows-1252", "replace"), "text", "cp850"),
    ],
)
def test_a_long_run_of_a_character_is_read_in_no_time(read: Callable[[str], object]):
    begun = time.process_time()
    for beginning in BEGINNINGS:
        for repeated in REPEATED:
            read(f"{beginning}{repeated * (LONG // len(repeated))}x\n")
            spent = time.process_time() - begun
            assert spent < SECONDS, (beginning, repeated)


def test_a_text_laid_out_with_blanks_is_read_in_no_time():
    """As pdftotext -layout does, which puts 80 of them before a line."""
    begun = time.process_time()
    text = (" " * 80 + "de cuyo nombre no quiero acordarme\n") * 8000
    text += f"En un lugar{' ' * 1_000_000}de la Mancha\n"
    assert clean_text(text) == text
    assert time.process_time() - begun < 2
