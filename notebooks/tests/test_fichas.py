"""The pages to print say what the chapters say, and are those that the script makes."""

import random
import re
import statistics
from collections import Counter

import numpy as np
import pytest
from test_notebooks import code_cells, read

import bpe
import fichas
from sancho.config import CorpusConfig
from sancho.sources import corpus_of

DATA = fichas.CURSO.parent / "data"
PRINTED = fichas.FICHAS.read_text(encoding="utf-8")


def test_the_pages_are_those_that_the_script_makes():
    corpus = corpus_of(DATA, CorpusConfig())
    if corpus.name != "quijote":
        pytest.skip("here: the book is not prepared")
    assert fichas.hacer(corpus, corpus.tokenizer.decode(corpus.train)) == PRINTED, (
        "run: python notebooks/taller/fichas.py"
    )


def test_the_cat_weighs_what_chapter_3_says():
    printed = "".join(
        o.get("text", "") for c in code_cells(read("03_autoatencion.ipynb")) for o in c.outputs
    )
    weights = [f"{weight:.4f}" for weight in fichas.fila_de_gato(con_mascara=False)]
    assert "[" + ", ".join(weights) + "]" in printed
    guide = fichas.FICHAS.with_name("guia_docente.md").read_text(encoding="utf-8")
    for masked in (True, False):
        for weight in fichas.fila_de_gato(masked):
            assert f"{weight:.2f}" in guide


def lines(page: str, counted: str) -> list[str]:
    """Write 20,000 lines with the counts of some letters, each until a letter was not counted."""
    chance = random.Random(1605)
    followers = {letter: [] for letter in counted}
    for letter, after in zip(page, page[1:]):
        followers.setdefault(letter, []).append(after)
    written = []
    for _ in range(20_000):
        line = chance.choice(counted)
        while line[-1] in counted and len(line) < 40:
            line += chance.choice(followers[line[-1]])
        written.append(line)
    return written


def test_the_guide_says_how_soon_a_line_ends_that_the_counts_of_a_few_groups_write():
    found = re.search(r"Una página para contar.*?contar\">(.*?)</p>", PRINTED, re.DOTALL)
    page = " ".join(found[1].lower().split())
    commonest = "".join(letter for letter, _ in Counter(page).most_common(8))
    lengths = [statistics.mean(map(len, lines(page, counted))) for counted in ("qze", commonest)]
    guide = " ".join(fichas.FICHAS.with_name("guia_docente.md").read_text("utf-8").split())
    said = re.search(
        r"dan (\S+) letras de media, y las de las ocho letras más frecuentes, (\S+)\. ", guide
    )
    np.testing.assert_allclose(lengths, [float(figure) for figure in said.groups()], atol=0.06)


def test_the_guide_says_how_well_sancho_guesses_the_printed_passage():
    guide = " ".join(fichas.FICHAS.with_name("guia_docente.md").read_text("utf-8").split())
    rows = re.findall(r"<tr>((?:<td class=\"letra\">\d</td>)+)</tr>", PRINTED)
    tries = [int(n) for row in rows for n in re.findall(r">(\d)<", row)]
    assert len(tries) == fichas.ADIVINADAS
    assert f"De las {len(tries)} letras acierta {tries.count(1)} a la primera" in guide
    assert f"suma {sum(tries)} intentos" in guide


def test_no_word_gives_away_the_pages_that_the_model_and_the_counts_write():
    corpus = corpus_of(DATA, CorpusConfig())
    if corpus.name != "quijote":
        pytest.skip("here: the book is not prepared")
    book = corpus.tokenizer.decode(corpus.train) + corpus.tokenizer.decode(corpus.val)
    words = set(re.findall(r"\w+", book.lower()))
    unsigned = re.findall(r"<h3>[ABCD]</h3><p class=\"texto\">(.*?)</p>", PRINTED, re.DOTALL)
    assert len(unsigned) == 4
    by_counts, by_cervantes, by_model, _ = unsigned
    for page in (by_counts, by_cervantes, by_model):
        assert set(re.findall(r"\w+", page.lower())) <= words


def test_pieces_are_learned_and_used_in_the_order_of_their_merges():
    learned = bpe.aprender(Counter({"tres": 1, "tristes": 1, "tigres": 1, "trigo": 2}), 3)
    assert learned[0] == ("t", "r", 4)
    assert "".join(bpe.trocear("trigales", learned)) == "trigales"
    merges = [("t", "r", 5), ("i", "g", 3), ("tr", "ig", 2)]
    assert bpe.trocear("trigo", merges) == ("trig", "o")


def test_counts_are_those_of_the_printed_page():
    page = re.search(r"Una página para contar.*?contar\">(.*?)</p>", PRINTED, re.DOTALL)[1]
    followers = fichas.siguientes(page, "q")
    assert set(followers) == {"u"}
    assert f"<td>«q»</td><td>{followers['u']}</td>" in PRINTED
