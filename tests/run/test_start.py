"""The lines with which a run begins: what is told of its text and its validation part."""

from pathlib import Path

import pytest
from conftest import corpus_from
from runs import start, train_config

from sancho.run.plan import NOTHING
from sancho.run.start import Run, describe, describe_text
from sancho.text.corpus import Corpus

LINE = "En un lugar de la Mancha, de cuyo nombre no quiero acordarme.\n"


def notes_on(text: str) -> list[str]:
    lines = describe_text(corpus_from(text), Path("out")).splitlines()
    return [line for line in lines if line.startswith("note: ")]


def test_a_text_is_shown_by_its_first_line_and_where_it_is_kept():
    assert describe_text(corpus_from(LINE * 20), Path("out")).splitlines() == [
        "tiny begins with «En un lugar de la Mancha, de cuyo nombre no quiero acordarme…»",
        "out keeps the text (corpus.txt): who gets the folder gets the text",
    ]


def test_characters_of_the_validation_part_alone_are_told():
    """Its loss would be high, and nothing in the training loss would say why."""
    (said,) = notes_on(LINE * 20 + "¿Ñandú?\n" * 5)
    assert said.startswith(
        "note: the validation part has characters that the training part has not"
    )
    assert said.endswith("which make its loss higher: '?' '¿' 'Ñ' 'ú'")
    assert notes_on(LINE * 400 + "ù") == []  # one letter of a book


def test_many_characters_that_occur_once_are_told_and_a_few_are_not():
    strays = "".join(chr(0x4E00 + i) for i in range(60))
    (said,) = notes_on(strays + LINE * 20)
    assert said.startswith("note: 60 characters occur only once, too seldom to be learned; if they")
    assert said.endswith("…")
    assert notes_on(strays[:20] + LINE * 20) == []


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([LINE * 20], "the last tenth of the text, 124 characters"),
        (["uno dos\n" * 60, "XYZW!\n" * 60], "the last tenth of each of 2 files, 84 characters"),
    ],
)
def test_what_is_not_trained_on_is_told(texts, words):
    corpus = Corpus.of("mine", texts)
    run = Run(start(corpus, train_config()), corpus, NOTHING, {})
    said = f"validation part: {words} that are not trained on"
    assert said in describe(run, Path("out")).splitlines()
