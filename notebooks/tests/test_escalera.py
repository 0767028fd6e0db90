"""The ladder of the course: causal, shown as it is, and as good as its table says."""

import inspect
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch

import escalera
from sancho.text.sources import corpus_of
from sancho.tokenizer import CharTokenizer

FOLDER = Path(__file__).resolve().parent.parent

SHOWN = {
    "01_tokens": ["Letras", "Pares", "entrenar"],
    "02_embeddings_y_posiciones": ["vectores", "ConEmbedding"],
    "ramas/de_donde_sale_el_parecido": ["ConMedia", "ConVentana"],
    # Their attention is the piece that the learner writes.
    "03b_varias_cabezas": ["ConAtencion.forward", "SinPosiciones.forward"],
    "04_feed_forward": ["ConFeedForward"],
    "06_bloque_y_gpt": ["Pila"],
}
"""What each chapter shows in full."""
V = 50
LADDER = [rung.nombre for rung in escalera.PELDANOS]
RUNGS = escalera.TODOS
MIXERS = (escalera.Atencion, escalera.ConMedia, escalera.ConVentana)
"""What lets a position see others."""
BOOK = FOLDER.parent / "data" / "quijote.txt"


def at_random(rung: escalera.Peldano) -> torch.nn.Module:
    """Return the model of a rung, none of its parameters zero."""
    torch.manual_seed(1)
    model = rung.crear(V)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def two_texts() -> tuple[torch.Tensor, torch.Tensor]:
    """Return texts that differ in the character at 30 alone."""
    ids = torch.randint(V, (2, escalera.VENTANA))
    other = ids.clone()
    other[:, 30] = (other[:, 30] + 1) % V
    return ids, other


@pytest.mark.parametrize(
    "chapter, name", [(chapter, name) for chapter in SHOWN for name in SHOWN[chapter]]
)
def test_the_chapter_shows_the_code_as_it_is(chapter, name):
    notebook = nbformat.read(FOLDER / f"{chapter}.ipynb", as_version=4)
    source = inspect.getsource(attrgetter(name)(escalera)).strip()
    assert any(source in cell.source for cell in notebook.cells if cell.cell_type == "code")


def test_every_chapter_with_a_rung_shows_something():
    assert {rung.capitulo for rung in RUNGS} == set(SHOWN)


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.nombre)
def test_a_rung_never_looks_ahead(rung):
    model = at_random(rung)
    ids, other = two_texts()
    before, after = model(ids), model(other)
    assert before.shape == (2, escalera.VENTANA, V)
    torch.testing.assert_close(before[:, :30], after[:, :30])
    if rung.nombre != "letras":
        assert not torch.allclose(before[:, 30], after[:, 30])


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.nombre)
def test_only_attention_and_the_mean_mix_positions(rung):
    model = at_random(rung)
    ids, other = two_texts()
    mixes = not torch.allclose(model(ids)[:, 31:], model(other)[:, 31:])
    assert mixes == any(isinstance(part, MIXERS) for part in model.modules())


def best_losses(corpus: str) -> dict[str, float]:
    """Return the loss of each rung, control and rival at its best rate."""
    of = SimpleNamespace(name=corpus)
    return {name: escalera.guardada(name, of) for name in escalera._guardado()[corpus]}


@pytest.mark.parametrize("corpus", ["quijote", "apocrifo"])
def test_the_saved_table_has_every_rung_with_its_parameters(corpus):
    saved = escalera._guardado()[corpus]
    assert list(saved) == [*(rung.nombre for rung in RUNGS), *escalera.CONTAR]
    assert all(0 < loss < 5 for loss in best_losses(corpus).values())
    if corpus == "quijote":
        for rung in RUNGS:
            parameters = sum(p.numel() for p in rung.crear(92).parameters())
            assert saved[rung.nombre]["parámetros"] == parameters


def test_what_the_pieces_are_worth():
    letters, pairs, embeddings, positions, *rest = map(escalera.guardada, LADDER)
    assert letters - pairs > 0.5
    assert abs(pairs - embeddings) < 0.02 and abs(embeddings - positions) < 0.02
    for worse, better in zip([positions, *rest], rest):
        assert worse - better > 0.04


@pytest.mark.parametrize("corpus", ["quijote", "apocrifo"])
def test_attention_needs_positions_and_a_mean_is_not_attention(corpus):
    saved = best_losses(corpus)
    without, attention = saved["atención sin posiciones"], saved["atención"]
    assert without - attention > 0.15 > saved["posiciones"] - without > 0
    assert without < saved["media con residual"] < saved["pares"] < saved["media"]


@pytest.mark.parametrize("corpus", ["quijote", "apocrifo"])
def test_so_small_a_ladder_loses_to_counting_and_to_a_window(corpus):
    saved = best_losses(corpus)
    window = saved[escalera.VENTANA_FIJA.nombre]
    assert saved["contar, 4 letras"] < window < saved["más bloques"]
    assert saved["atención"] < saved["atención de una cabeza"] - 0.1  # heads of the same width
    assert saved["feed-forward"] < saved["feed-forward sin activación"] - 0.1
    assert abs(saved["atención"] - saved["feed-forward sin activación"]) < 0.02


def test_sequences_are_those_that_counting_keeps():
    ids = torch.randint(4, (300,)).numpy()
    text = "".join(map(str, ids))
    kept = {text[i : i + n] for n in (1, 2, 3) for i in range(len(text) - n + 1)}
    assert escalera.secuencias(ids, 3) == len(kept)


def test_the_table_grows_to_the_rung_asked_for(capsys):
    for upto, rung in enumerate(escalera.PELDANOS):
        escalera.tabla(rung.nombre, 1.23)
        head, *rows = capsys.readouterr().out.splitlines()
        *rows, four, seven, window = rows
        assert [row.split()[-1] for row in (four, seven, window)] == ["1.40", "1.31", "1.53"]
        assert head.split() == ["peldaño", "parámetros", "tasa", "pérdida", "vale"]
        assert len(rows) == upto + 1
        assert all(row.startswith(known.nombre) for row, known in zip(rows, escalera.PELDANOS))
        assert rows[-1].split()[-2 if upto else -1] == "1.23"
    with pytest.raises(ValueError, match="tejado"):
        escalera.tabla("tejado", 1.0)


def test_the_table_shows_the_parameters_of_the_model_that_was_measured(capsys):
    escalera.tabla("feed-forward", 1.23, parametros=77)
    *_, row, _, _, _ = capsys.readouterr().out.splitlines()
    assert row.split()[:4] == ["feed-forward", "77", "0.03", "1.23"]


def test_a_stack_with_both_is_the_last_rung_and_with_neither_a_chain():
    ids, _ = two_texts()
    logits = []
    for make in (lambda: escalera.Gpt(V, 2), lambda: escalera.Pila(V, 2, True, True)):
        torch.manual_seed(1)
        logits.append(make()(ids))
    torch.testing.assert_close(*logits)
    chain = escalera.Pila(V, 2, residual=False, normalizacion=False)
    by_hand = chain.cabeza(torch.nn.Sequential(*chain.subcapas)(chain.entrada(ids)))
    torch.testing.assert_close(chain(ids), by_hand)


def test_three_blocks_need_the_residual_and_were_measured_beside_their_best_rate():
    means = []
    for stack in escalera.TRES_BLOQUES:
        three = escalera.de_tres_semillas(stack.nombre)
        assert list(three)[1] == escalera.mejor_tasa(stack.nombre) and len(three) == 3
        below, best, above = (sum(losses) / 3 for losses in three.values())
        assert best < min(below, above)
        means.append(best)
    neither, normalised, residual, both = means
    assert max(residual, both) < escalera.guardada("pares") < min(neither, normalised)


def test_what_is_written_is_drawn_from_the_model_that_reads_one_window():
    read = []

    class Next(torch.nn.Module):
        """Sure that the letter after number i is number i + 1."""

        def forward(self, ids):
            read.append(ids.shape[1])
            return 1000.0 * torch.nn.functional.one_hot((ids + 1) % 4, 4)

    corpus = SimpleNamespace(tokenizer=CharTokenizer.from_text("\nabc"))
    assert escalera.escribir(Next(), corpus, 70) == ("abc\n" * 18)[:70]
    assert max(read) == escalera.VENTANA and read[:3] == [1, 2, 3]


def test_a_batch_is_a_text_and_what_follows():
    ids = torch.arange(1000)
    read, following = escalera.lote(ids, torch.Generator().manual_seed(1))
    assert read.shape == following.shape == (escalera.LOTE, escalera.VENTANA)
    assert torch.equal(read + 1, following)


@pytest.mark.skipif(not BOOK.is_file(), reason="needs the book")
@pytest.mark.parametrize("rung", escalera.PELDANOS[:2], ids=lambda rung: rung.nombre)
def test_training_again_gives_the_saved_loss(rung):
    corpus = corpus_of("quijote")
    torch.manual_seed(escalera.SEMILLA)
    loss = escalera.entrenar(
        rung.crear(corpus.tokenizer.vocab_size), corpus, escalera.mejor_tasa(rung.nombre)
    )
    assert loss == pytest.approx(escalera.guardada(rung.nombre), abs=0.02)


def test_the_best_rate_has_worse_on_both_sides_and_a_second_start_goes_on(monkeypatch, tmp_path):
    corpus = SimpleNamespace(name="uno", tokenizer=SimpleNamespace(vocab_size=V))
    tried = []

    def train(model, corpus, rate):
        tried.append(rate)
        if len(tried) == 3:
            raise KeyboardInterrupt
        return abs(rate - 0.001)

    monkeypatch.setattr(escalera, "entrenar", train)
    saved = tmp_path / "escalera.json"
    letters = escalera.PELDANOS[0]
    with pytest.raises(KeyboardInterrupt):
        escalera.buscar_tasa(letters, corpus, saved)
    assert escalera.TASAS[escalera.buscar_tasa(letters, corpus, saved)] == 0.001
    first, second, interrupted, *rest = tried
    assert [first, second, interrupted] == [*escalera.PRIMERAS[:3]]
    assert rest == [*escalera.PRIMERAS[2:], 0.001, 0.0003]  # nothing twice but the interrupted one
    row = escalera._guardado(saved)["uno"]["letras"]
    assert row["parámetros"] == V
    assert list(row["pérdidas"]) == ["0.0003", "0.001", "0.003", "0.01", "0.03", "0.1"]
    assert [*saved.parent.iterdir()] == [saved]


def test_every_rung_and_control_is_at_its_best_rate_with_three_seeds():
    for rung in RUNGS:
        by_rate = escalera.medidas(rung.nombre)
        rates = sorted(by_rate)
        best = rates.index(escalera.mejor_tasa(rung.nombre))
        assert 0 < best < len(rates) - 1, rung.nombre
        assert len(by_rate[rates[best]]) == len(escalera.SEMILLAS), rung.nombre


PAGE_NAMES = {
    "letras: cuán frecuente es cada una": "letras",
    "pares: qué sigue a cada letra": "pares",
    "embeddings": "embeddings",
    "+ posiciones": "posiciones",
    "*control: media en vez de atención*": "media",
    "*control: lo mismo, con residual*": "media con residual",
    "*control: atención sin posiciones*": "atención sin posiciones",
    "*control: atención de una cabeza*": "atención de una cabeza",
    "+ atención (cuatro cabezas)": "atención",
    "*control: feed-forward sin activación*": "feed-forward sin activación",
    "+ feed-forward": "feed-forward",
    "*control: un bloque, solo con normalización*": "un bloque, solo normalización",
    "*control: un bloque, solo con residual*": "un bloque, solo residual",
    "+ residual y normalización (un bloque)": "residual y normalización",
    "*control: tres bloques sin residual ni normalización*": "tres bloques, sin residual ni normalización",
    "*control: tres bloques, solo con normalización*": "tres bloques, solo normalización",
    "*control: tres bloques, solo con residual*": "tres bloques, solo residual",
    "+ más bloques (tres)": "más bloques",
    "**rival**: contar, con 4 letras": "contar, 4 letras",
    "**rival**: contar, con 7 letras": "contar, 7 letras",
    "**rival**: ventana de 8 letras y MLP": "ventana de 8 y MLP",
}


def test_the_page_has_the_saved_figures():
    section = (FOLDER / "escalera.md").read_text(encoding="utf-8")
    lines = section.split("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    shown = {row[0]: row[1:] for row in rows[2:] if len(row) == 7 and row[1].startswith("[")}
    assert shown.keys() == PAGE_NAMES.keys()
    saved = escalera._guardado()["quijote"]
    assert saved.keys() == set(PAGE_NAMES.values())
    before = None
    for title, (_, parameters, rate, loss, spread, worth) in shown.items():
        name = PAGE_NAMES[title]
        assert parameters.split(" cuentas")[0] == escalera.con_miles(saved[name]["parámetros"])
        assert loss == f"{escalera.guardada(name):.2f}"
        if name in escalera.CONTAR:
            assert (rate, spread) == ("", "")
            continue
        assert rate == str(escalera.mejor_tasa(name))
        losses = escalera.medidas(name)[float(rate)]
        assert spread == f"{min(losses):.3f}–{max(losses):.3f}"
        if name in LADDER:
            now = escalera.guardada(name)
            assert worth == ("" if before is None else f"{round(before - now, 2) + 0.0:.2f}")
            before = now


def test_the_page_says_what_the_pieces_are_worth_with_the_other_corpus():
    other = SimpleNamespace(name="apocrifo")
    losses = [escalera.guardada(name, other) for name in LADDER]
    *_, attention, feed_forward, block, more = (a - b for a, b in zip(losses, losses[1:]))
    said = " ".join((FOLDER / "escalera.md").read_text(encoding="utf-8").split())
    assert (
        f"la atención vale {attention:.2f}; la feed-forward, {feed_forward:.2f}; un bloque, {block:.2f}; "
        f"y más bloques, {more:.2f}."
    ) in said
