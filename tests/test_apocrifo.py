"""The sample corpus: enough text, all its own, in the alphabet of the book it stands in for."""

import io
import re
from pathlib import Path

import pytest

from sancho.corpus import clean_text, read_text

SAMPLE = Path(__file__).parents[1] / "data" / "apocrifo.txt"
BOOK = Path(__file__).parents[2] / "shared" / "data" / "pg2000.txt"
ALPHABET_OF_THE_BOOK = (
    "\n !\"'(),-.01234567:;?ABCDEFGHIJLMNOPQRSTUVWXYZ]abcdefghijlmnopqrstuvxyz¡«»¿ÁÉÍÑÓÚàáéíïñóùúü—"
)
# No run of so many characters is in both; shorter ones are the turns of phrase of a whole century.
LONGEST_SHARED_RUN = 40


def cleaned(path: Path) -> str:
    with open(path, "rb") as file:
        return "".join(clean_text(read_text(file, path.name)))


def on_one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.fixture(scope="module")
def sample() -> str:
    return SAMPLE.read_bytes().decode("utf-8")


def test_it_is_long_enough_to_train_on(sample):
    assert len(sample) >= 200_000


def test_it_is_written_in_the_alphabet_of_the_book(sample):
    assert len(set(ALPHABET_OF_THE_BOOK)) == 92
    assert sorted(set(sample) - set(ALPHABET_OF_THE_BOOK)) == []
    assert len(set(sample)) >= 88


def test_no_paragraph_comes_twice(sample):
    paragraphs = [on_one_line(paragraph).strip() for paragraph in sample.split("\n\n")]
    paragraphs = [paragraph for paragraph in paragraphs if paragraph]
    assert len(paragraphs) > 100
    assert [p for p in set(paragraphs) if paragraphs.count(p) > 1] == []


def test_it_is_clean(sample):
    assert "".join(clean_text(read_text(io.BytesIO(sample.encode()), "sample"))) == sample
    assert "\r" not in sample


@pytest.mark.skipif(not BOOK.is_file(), reason="the book is not here")
def test_the_alphabet_is_that_of_the_book():
    assert "".join(sorted(set(cleaned(BOOK)))) == ALPHABET_OF_THE_BOOK


@pytest.mark.skipif(not BOOK.is_file(), reason="the book is not here")
def test_it_copies_nothing_from_the_book(sample):
    ours, theirs = on_one_line(sample), on_one_line(cleaned(BOOK))
    n = LONGEST_SHARED_RUN
    runs = {ours[i : i + n] for i in range(len(ours) - n + 1)}
    assert [theirs[i : i + n] for i in range(len(theirs)) if theirs[i : i + n] in runs] == []
