"""The pages to print say what the chapters say, and are those that the script makes."""

import html
import json
import random
import re
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from test_notebooks import code_cells, read

import bpe
from imprimir import fichas
from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.convert.packing import rounded
from sancho.convert.page import SEED, START, UI
from sancho.generate import generate, softmax
from sancho.loss import character_losses
from sancho.text.sources import corpus_of

PRINTED = fichas.FICHAS.read_text(encoding="utf-8")
UNSIGNED = re.findall(r"<h3>[ABCD]</h3><p class=\"texto\">(.*?)</p>", PRINTED, re.DOTALL)


def guide() -> str:
    """Return the guide for teachers, in one line."""
    return " ".join(fichas.FICHAS.with_name("guia_docente.md").read_text("utf-8").split())


@pytest.mark.generated
def test_the_pages_are_those_that_the_script_makes():
    corpus = corpus_of("quijote")
    if corpus.name != "quijote":
        pytest.skip("here: there is no data/quijote.txt")
    assert fichas.hacer(corpus, corpus.tokenizer.decode(corpus.train)) == PRINTED, (
        "notebooks/docente/fichas.html is out of date; run: python notebooks/taller/imprimir/fichas.py"
    )


def test_the_cat_weighs_what_chapter_3_says():
    printed = "".join(
        o.get("text", "") for c in code_cells(read("03_autoatencion.ipynb")) for o in c.outputs
    )
    weights = [f"{weight:.4f}" for weight in fichas.fila_de_gato(con_mascara=False)]
    assert "[" + ", ".join(weights) + "]" in printed
    for masked in (True, False):
        for weight in fichas.fila_de_gato(masked):
            assert f"{weight:.2f}" in guide()


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
    said = re.search(
        r"dan (\S+) letras de media, y las de las ocho letras más frecuentes, (\S+)\. ", guide()
    )
    np.testing.assert_allclose(lengths, [float(figure) for figure in said.groups()], atol=0.06)


def test_the_guide_says_how_well_sancho_guesses_the_printed_passage():
    rows = re.findall(r"<tr>((?:<td class=\"letra\">\d</td>)+)</tr>", PRINTED)
    tries = [int(n) for row in rows for n in re.findall(r">(\d)<", row)]
    assert len(tries) == fichas.ADIVINADAS
    assert f"De las {len(tries)} letras acierta {tries.count(1)} a la primera" in guide()
    assert f"suma {sum(tries)} intentos" in guide()


def test_no_word_gives_away_the_pages_that_the_model_and_the_counts_write():
    corpus = corpus_of("quijote")
    if corpus.name != "quijote":
        pytest.skip("here: there is no data/quijote.txt")
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


# --- what the guide reads on docs/index.html ------------------------------------------------


@pytest.fixture(scope="module")
def shown() -> Checkpoint:
    """The model in that page."""
    return rounded(checkpoint.pretrained(), "float16")


def bits_of(saved: Checkpoint, text: str, off: Iterable[int] = ()) -> float:
    """Return the mean bits per character; off: blocks, from 1, that add nothing."""
    silent = [
        f"blocks.{n - 1}.{part}.proj.weight" for n in off for part in ("attention", "feed_forward")
    ]
    weights = saved.weights | {name: np.zeros_like(saved.weights[name]) for name in silent}
    model = replace(saved, weights=weights).build_model().eval()
    return character_losses(model, saved.tokenizer.encode(text)).mean() / np.log(2)


def test_the_guide_says_which_letters_the_page_expects(shown):
    model, tokenizer = shown.build_numpy(), shown.tokenizer
    said = re.search(r"con «a» en (\d+) %.*?«q» \(«u», (\d+) %\).*?\(«a», (\d+) %\)", guide())
    starts = {"z": "a", "q": "u", "En un lugar de la Manch": "a"}
    for (start, letter), percent in zip(starts.items(), said.groups(), strict=True):
        (chances,) = softmax(model.logits(np.array([tokenizer.encode(start)]))[:, -1])
        assert f"{chances[tokenizer.encode(letter)[0]]:.0%}" == f"{percent}%"


def test_the_guide_says_what_a_block_that_is_off_costs(shown):
    start = shown.tokenizer.encode(START)
    written = generate(shown.build_numpy(), start, max_new_tokens=200 - len(start), seed=SEED)
    text = shown.tokenizer.decode([*start, *(letter for (letter,) in written)])
    said = re.search(
        r"cuesta (\S+) bits.*?sin el bloque 1, (\S+); sin el 2, (\S+); sin el 3, (\S+); "
        r"sin el 4, (\S+); sin el 5, (\S+)\. .*?(\S+) y (\S+); juntos, (\S+) \((\S+)\)",
        guide(),
    )
    whole, *others, both = (
        bits_of(shown, text, off) for off in ((), (1,), (2,), (3,), (4,), (5,), (2, 5))
    )
    alone = [others[n - 1] - whole for n in (2, 5)]
    figures = [float(figure) for figure in said.groups()]
    np.testing.assert_allclose(figures[:6], [whole, *others], atol=6e-4)
    np.testing.assert_allclose(figures[6:9], [*alone, both - whole], atol=6e-3)
    np.testing.assert_allclose(figures[9], both, atol=6e-4)


def test_the_guide_says_how_much_each_unsigned_page_surprises_the_model(shown):
    said = re.search(r"A, (\S+); B, (\S+); C, (\S+); D, (\S+)\. ", guide())
    bits = [bits_of(shown, html.unescape(text)) for text in UNSIGNED]
    np.testing.assert_allclose(bits, [float(figure) for figure in said.groups()], atol=6e-3)


def test_the_guide_says_how_the_recorded_lesson_went():
    lesson = json.loads((UI / "lesson.json").read_text(encoding="utf-8"))
    seconds, losses = zip(*((each["seconds"], each["loss"]) for each in lesson["writings"]))
    first = ", ".join(map(str, seconds[:-1])) + f" y {seconds[-1]} segundos"
    points = ", ".join(f"{loss:.2f}" for loss in losses[:-1]) + f" y {losses[-1]:.2f} nats"
    assert first in guide()
    assert points in guide()
