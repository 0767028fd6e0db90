"""The pages to print say what the chapters say, and are those that the script makes."""

import re

import pytest
from test_notebooks import code_cells, read

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


def test_pieces_are_learned_and_used_in_the_order_of_their_merges():
    learned = fichas.fusionar({"tres": 1, "tristes": 1, "tigres": 1, "trigo": 2}, 3)
    assert learned[0] == "tr"
    assert "".join(fichas.trocear("trigales", learned)) == "trigales"
    assert fichas.trocear("trigo", ["tr", "ig", "trig"]) == ("trig", "o")


def test_counts_are_those_of_the_printed_page():
    page = re.search(r"Una página para contar.*?texto\">(.*?)</p>", PRINTED, re.DOTALL)[1]
    followers = fichas.siguientes(page, "q")
    assert set(followers) == {"u"}
    assert f"<td>«q»</td><td>{followers['u']}</td>" in PRINTED
