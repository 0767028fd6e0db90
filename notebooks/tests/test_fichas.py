"""The pages to print say what the chapters say, and are those that the script makes."""

import re
from collections import Counter

import pytest
from test_notebooks import code_cells, read

import bpe
import fichas
from sancho.text.sources import corpus_of

PRINTED = fichas.FICHAS.read_text(encoding="utf-8")
UNSIGNED = re.findall(r"<h3>[ABCD]</h3><p class=\"texto\">(.*?)</p>", PRINTED, re.DOTALL)


def test_the_pages_are_those_that_the_script_makes():
    corpus = corpus_of("quijote")
    if corpus.name != "quijote":
        pytest.skip("here: the book is not in data/")
    assert fichas.hacer(corpus, corpus.tokenizer.decode(corpus.train)) == PRINTED, (
        "run: python notebooks/taller/fichas.py"
    )


def test_the_cat_weighs_what_chapter_3_says():
    printed = "".join(
        o.get("text", "") for c in code_cells(read("03_autoatencion.ipynb")) for o in c.outputs
    )
    weights = [f"{weight:.4f}" for weight in fichas.fila_de_gato(con_mascara=False)]
    assert "[" + ", ".join(weights) + "]" in printed


def test_no_word_gives_away_the_pages_that_the_model_and_the_counts_write():
    corpus = corpus_of("quijote")
    if corpus.name != "quijote":
        pytest.skip("here: the book is not in data/")
    words = set(re.findall(r"\w+", corpus.text.lower()))
    by_counts, by_cervantes, by_model, _ = UNSIGNED
    for text in (by_counts, by_cervantes, by_model):
        assert set(re.findall(r"\w+", text.lower())) <= words


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
