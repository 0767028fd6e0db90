"""The sample corpus: enough text, all its own, in the alphabet of the book it stands in for."""

import io
import re

import pytest
from conftest import ROOT

from sancho.corpus import clean_text, load, read_text

SAMPLE = ROOT / "data" / "apocrifo.txt"
QUIJOTE = ROOT / "data" / "quijote"
ALPHABET_OF_THE_BOOK = (
    "\n !\"'(),-.01234567:;?ABCDEFGHIJLMNOPQRSTUVWXYZ]abcdefghijlmnopqrstuvxyz¡«»¿ÁÉÍÑÓÚàáéíïñóùúü—"
)
# No passage of so many characters is in both; shorter ones are the phrases of a whole century.
LONGEST_SHARED = 40


def on_one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.fixture(scope="module")
def sample() -> str:
    return SAMPLE.read_bytes().decode("utf-8")


def test_it_is_long_enough_to_train_on(sample):
    assert len(sample) >= 200_000


def test_it_is_written_in_the_alphabet_of_the_book(sample):
    assert set(sample) <= set(ALPHABET_OF_THE_BOOK)
    assert len(set(sample)) >= 88


def test_no_paragraph_comes_twice(sample):
    paragraphs = [on_one_line(paragraph).strip() for paragraph in re.split(r"\n\n+", sample)]
    assert len(paragraphs) > 100
    assert [p for p in set(paragraphs) if paragraphs.count(p) > 1] == []


def test_it_is_clean(sample):
    assert "".join(clean_text(read_text(io.BytesIO(sample.encode()), "sample"))) == sample


@pytest.mark.skipif(not (QUIJOTE / "meta.json").is_file(), reason="data/quijote is not prepared")
def test_it_has_the_alphabet_of_the_book_and_copies_nothing_from_it(sample):
    assert load(QUIJOTE).tokenizer.characters == ALPHABET_OF_THE_BOOK
    ours = on_one_line(sample)
    theirs = on_one_line((QUIJOTE / "input.txt").read_text(encoding="utf-8"))
    n = LONGEST_SHARED
    passages = {ours[i : i + n] for i in range(len(ours) - n + 1)}
    assert [theirs[i : i + n] for i in range(len(theirs)) if theirs[i : i + n] in passages] == []
