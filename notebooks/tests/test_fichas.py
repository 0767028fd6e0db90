"""The pages to print say what the chapters say, and are those that the script makes."""

import base64
import html
import json
import math
import random
import re
import statistics
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_notebooks import code_cells, read

import bpe
import fichas
from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.convert.packing import rounded
from sancho.generate import generate, softmax
from sancho.loss import character_losses
from sancho.text.sources import corpus_of

PRINTED = fichas.FICHAS.read_text(encoding="utf-8")
PAGE = (fichas.CURSO.parent / "docs" / "index.html").read_text(encoding="utf-8")
FACTS = json.loads(re.search(r'id="facts">(.*?)</script>', PAGE, re.DOTALL)[1])
OTHER_ITALICS = {"Quijote", "Releases", "la", "no"}
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
        "notebooks/docente/fichas.html is out of date; run: python notebooks/taller/fichas.py"
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
    assert f"Si sale el pasaje {fichas.PASAJE + 1}, que es el de la ficha, pulsa" in guide()


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


def copies(pupils: int) -> dict[str, int]:
    """Return how many copies of each card a class needs, as the cards say."""
    pairs, threes = math.ceil(pupils / 2), math.ceil(pupils / 3)
    each = {
        "una": 1,
        "una por alumno": pupils,
        "una por pareja": pairs,
        "una por grupo de tres": threes,
        "una por grupo de tres, y otra": threes + 1,
        "cinco, una por grupo": 5,
        "dos por alumno": 2 * pupils,
    }
    cards = re.findall(r"<h2>(.*?)</h2><p class=\"clase\">[^<]*?Copias: (.*?)</p>", PRINTED)
    longest_first = sorted(each, key=len, reverse=True)
    return {
        title: each[next(words for words in longest_first if said.startswith(words))]
        for title, said in cards
    }


def test_the_guide_counts_the_cards_and_their_copies():
    needed = copies(30)
    assert len(needed) == PRINTED.count("<section>")
    assert "se imprimen: catorce páginas" in guide()
    assert len(needed) == 14
    said = re.search(r"son (\d+) hojas; sin las de antes y después, (\d+)\. ", guide())
    twice = sum(n for title, n in needed.items() if title.startswith("Antes"))
    assert list(map(int, said.groups())) == [sum(needed.values()), sum(needed.values()) - twice]


@pytest.mark.parametrize("pupils", [24, 25, 30])
def test_the_guide_says_how_many_copies_a_class_of_any_size_needs(pupils):
    assert (
        "n copias de *Tu apuesta*; p de cada ficha de la clase 2 y de la 8; g de cada vocabulario, y g + 1 de "
        "*«El gato juega»*; 5 de *Apagar*, y 2n de *Antes y después*. De las demás, una." in guide()
    )
    p, g = -(-pupils // 2), -(-pupils // 3)
    said = {"Tu apuesta": pupils, "Una página": p, "Sortear": p, "Sin firma": p}
    said |= {"Vocabulario": g, "«El gato juega»": g + 1, "Apagar": 5, "Antes y después": 2 * pupils}
    for title, needed in copies(pupils).items():
        names = [name for name in said if title.startswith(name) and "corrige" not in title]
        assert needed == (said[names[0]] if names else 1), title


def path(number: int, factor: float, steps: int) -> list[float]:
    """Return where somebody is who begins at 0 and moves by a factor of what is missing."""
    places = [0.0]
    for _ in range(steps):
        places.append(places[-1] + factor * (number - places[-1]))
    return places[1:]


def test_the_paths_of_class_7_are_those_that_the_guide_says_and_fit_its_axis():
    paths = "; ".join(
        ", ".join(f"{place:.0f}" for place in path(40, factor, 3)).replace("-", "−")
        for factor in (0.5, 2, 2.5)
    )
    assert f"Con el 40: {paths.replace('35;', '35…;').replace('80; 100', '80…; 100')}. |" in guide()
    low, high, least, most = map(
        int, re.search(r"eje de −(\d+) a (\d+)\. .*? del (\d+) al (\d+);", guide()).groups()
    )
    for factor, steps in ((0.5, 4), (2, 4), (2.5, 3)):
        for number in range(least, most + 1):
            assert all(-low <= place <= high for place in path(number, factor, steps))
    assert path(most, 2.5, 4)[-1] < -low


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


def written(saved: Checkpoint, letters: int, seed: int) -> str:
    """Return the beginning of what the page writes with a seed."""
    start = saved.tokenizer.encode(FACTS["start"])
    ids = generate(saved.build_numpy(), start, max_new_tokens=letters - len(start), seed=seed)
    return saved.tokenizer.decode([*start, *(letter for (letter,) in ids)])


@pytest.fixture(scope="module")
def first_text(shown) -> str:
    """The text with which the page opens: it ends with a sentence, after so many letters."""
    least = len(FACTS["start"]) + int(re.search(r"const FIRST_TEXT = \[(\d+),", PAGE)[1])
    text = written(shown, shown.model_config.block_size, FACTS["seed"])
    return text[: re.compile(r"[.!?]\s").search(text, least).end()]


def test_the_guide_says_what_a_block_that_is_off_costs(shown, first_text):
    text = first_text[: constant("EXAMINED")]
    said = re.search(
        r"cuesta (\S+) bits.*?sin el bloque 1, (\S+); sin el 2, (\S+); sin el 3, (\S+); "
        r"sin el 4, (\S+); sin el 5, (\S+)\. .*?(\S+) y (\S+); juntos, (\S+) \((\S+)\)"
        r".*?el bloque 1 sube (\S+); el 3, (\S+)\)",
        guide(),
    )
    whole, *others, both = (
        bits_of(shown, text, off) for off in ((), (1,), (2,), (3,), (4,), (5,), (2, 5))
    )
    first, second, third, _, fifth = (other - whole for other in others)
    figures = [float(figure) for figure in said.groups()]
    np.testing.assert_allclose(figures[:6], [whole, *others], atol=6e-4)
    np.testing.assert_allclose(figures[6:9], [second, fifth, both - whole], atol=6e-3)
    np.testing.assert_allclose(figures[9:], [both, first, third], atol=1.1e-3)


@pytest.mark.slow
def test_the_guide_says_in_how_many_texts_block_3_costs_more_than_block_4(shown):
    said = re.search(
        r"De veinte, con las semillas de (\d+) a (\d+), en (\d+) hace más falta el 3", guide()
    )
    first, last, found = map(int, said.groups())
    assert last - first + 1 == 20
    texts = [written(shown, constant("EXAMINED"), seed) for seed in range(first, last + 1)]
    assert sum(bits_of(shown, text, (3,)) > bits_of(shown, text, (4,)) for text in texts) == found


def test_the_guide_names_a_head_that_mostly_looks_at_the_letter_before(shown, first_text):
    block, head = re.search(r"prueba la cabeza (\d) del bloque (\d)", guide()).groups()[::-1]
    model, seen = shown.build_model().eval(), []

    def look(attention: torch.nn.Module, given: tuple) -> None:
        queries, keys, _ = attention.queries_keys_values(given[0])
        scores = queries[0, int(head) - 1] @ keys[0, int(head) - 1].T
        seen.append(scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf))

    model.blocks[int(block) - 1].attention.register_forward_pre_hook(look)
    ids = np.array([shown.tokenizer.encode(first_text)], np.int64)
    with torch.no_grad():
        model(torch.from_numpy(ids))
    most = seen[0].argmax(-1)[1:].numpy()
    assert np.mean(most == np.arange(len(most))) > 0.5


def test_the_guide_says_how_much_each_unsigned_page_surprises_the_model(shown):
    said = re.search(r"A, (\S+); B, (\S+); C, (\S+); D, (\S+)\. ", guide())
    bits = [bits_of(shown, html.unescape(text)) for text in UNSIGNED]
    np.testing.assert_allclose(bits, [float(figure) for figure in said.groups()], atol=6e-3)


def test_the_guide_says_how_the_recorded_lesson_went():
    recorded = FACTS["teaching"]["recorded"]["writings"]
    seconds, losses = zip(*((each["seconds"], each["loss"]) for each in recorded))
    first = ", ".join(map(str, seconds[:-1])) + f" y {seconds[-1]} segundos"
    points = ", ".join(f"{loss:.2f}" for loss in losses[:-1]) + f" y {losses[-1]:.2f} nats"
    assert first in guide()
    assert points in guide()
    # The lowest loss stands at the bottom of the curve that the page draws.
    curve = [loss for _, _, loss in FACTS["curve"]]
    begins, axis = f"{curve[0]:.2f}", f"{min(curve):.2f}"
    assert f"empieza en {begins}, y su eje de abajo no es el 0, sino {axis}" in guide()


def test_a_model_begins_with_the_logarithm_of_its_characters():
    sample = zlib.decompress(base64.b64decode(FACTS["teaching"]["sample"])).decode("utf-8")
    of_lesson, of_page = len(set(sample)), len(FACTS["characters"])
    assert f"tiene {of_lesson}: ln {of_lesson} = {math.log(of_lesson):.2f} nats" in guide()
    assert f"tiene {of_page}: ln {of_page} = {math.log(of_page):.2f}. " in guide()
    begins = FACTS["teaching"]["recorded"]["writings"][0]["loss"]
    assert begins == pytest.approx(math.log(of_lesson), abs=5e-3)


def constant(name: str) -> int:
    """Return a constant of the scripts of the page."""
    return int(re.search(rf"const {name} = (\d+);", PAGE)[1])


def test_what_the_guide_sets_in_italics_stands_on_the_page_or_on_a_card():
    plain = re.sub(r"```.*?```|\*\*.*?\*\*", "", guide())
    italics = {said for said in re.findall(r"\*([^*]+)\*", plain) if "](" not in said}
    forms = {f for texts in FACTS["strings"].values() for text in texts for f in text.split("|")}
    titles = re.findall(r"<h2>(.*?)</h2>", PRINTED)

    def stands(said: str) -> bool:
        begins = (said + ":", said + "…")
        return said in forms or any(f.startswith(begins) for f in forms)

    assert {"Escribe", "Desde cero", "Mira por dentro", "Tu apuesta"} <= italics
    on_cards = {said for said in italics if any(title.startswith(said) for title in titles)}
    assert {said for said in italics - on_cards if not stands(said)} == OTHER_ITALICS


def test_the_guide_leads_to_the_parts_of_the_page_by_the_menu_that_it_has():
    menu = re.search(r"<nav .*?</nav>", PAGE, re.DOTALL)[0]
    games, inside = menu.split("<details>")
    assert re.findall(r'<a [^>]*href="#(\w+)"', games) == ["adivina", "duelo", "ensena"]
    keys = re.findall(r'data-text="(\w+)"', inside)
    door, *parts = (FACTS["strings"][key][0] for key in keys)
    names = f"*{parts[0]}*, *{parts[1]}* y *{parts[2]}*"
    assert f"Debajo, *{door}* se abre, y lleva a las demás partes: {names}." in guide()


def test_the_guide_asks_for_what_stays_in_sight_of_a_lesson():
    first, minute = constant("STAYS"), 60
    stays = [first * 2**n for n in range(10) if first * 2**n < minute]
    assert f"lo de los {', '.join(map(str, stays[:-1]))} y {stays[-1]} segundos" in guide()
    words = {"diez": 10, "veinte": 20, "treinta": 30, "cuarenta": 40}
    asked = re.search(
        r"tres textos \(el de los (\w+) segundos, el de los (\w+) y el último\)", guide()
    )
    assert {words[word] for word in asked.groups()} <= set(stays)


def test_the_guide_gives_the_numbers_of_the_page():
    config, characters = FACTS["config"], FACTS["characters"]
    hours = FACTS["progress"]["seconds"] / 3600
    words = {4: "cuatro", 5: "cinco", 30: "treinta"}
    wide = re.search(r"@media screen and \(min-width: (\d+)rem\) \{\s*#escribe", PAGE)[1]
    for said in (
        f"En la pizarra, {words[config['n_layer']]} bloques",
        f"En cada uno, {words[config['n_head']]} cabezas",
        f"en una ficha ({len(characters)} caracteres)",
        f"Este, {hours:.1f} horas de un servidor",
        f"las {constant('EXAMINED')} letras de un solo texto",
        f"La página lee las primeras {constant('EXAMINED')} letras",
        f"Con {words[constant('SCORED')]} letras, la página da una tarjeta",
        f"Hacen falta {constant('LEAST_LETTERS')} letras o más",
        f"una ventana de {16 * int(wide)} píxeles o más",
        f"en la ficha («a», {characters.index('a')})",
        f"El {characters.index('e')} de la «e» no vale más que el {characters.index('a')} de la «a»",
    ):
        assert said in guide()
