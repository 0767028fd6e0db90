"""The included text: enough text, all its own, in the alphabet of the book it stands in for."""

import re

import pytest
from conftest import ROOT

from sancho.text.clean import clean_text
from sancho.text.sources import corpus_of

ALPHABET_OF_THE_BOOK = (
    "\n !\"'(),-.01234567:;?ABCDEFGHIJLMNOPQRSTUVWXYZ]abcdefghijlmnopqrstuvxyz¡«»¿ÁÉÍÑÓÚàáéíïñóùúü—"
)


def on_one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.fixture(scope="module")
def sample() -> str:
    return (ROOT / "data" / "apocrifo.txt").read_bytes().decode("utf-8")


def test_it_is_long_clean_and_repeats_nothing(sample):
    assert len(sample) >= 200_000
    assert set(sample) <= set(ALPHABET_OF_THE_BOOK)
    assert clean_text(sample) == sample
    paragraphs = [on_one_line(paragraph).strip() for paragraph in re.split(r"\n\n+", sample)]
    assert len(set(paragraphs)) == len(paragraphs)


def test_it_has_the_alphabet_of_the_book_and_copies_nothing_from_it(sample, book):
    quijote = corpus_of(book)
    assert quijote.tokenizer.characters == ALPHABET_OF_THE_BOOK
    ours = on_one_line(sample)
    theirs = on_one_line(quijote.text)
    n = 40  # no passage of so many is in both; shorter ones are the phrases of a whole century
    passages = {ours[i : i + n] for i in range(len(ours) - n + 1)}
    assert [theirs[i : i + n] for i in range(len(theirs)) if theirs[i : i + n] in passages] == []
