"""What the learner writes is used where it passes; chapters run without it, and with it."""

import builtins
import math
import re
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest
import torch
from nbformat import NotebookNode
from test_notebooks import CHAPTERS, FOLDER, claims, code_cells, execute, read, with_claims

import curso
import hoja
from comprobar.lista import POR_TITULO
from decir.frases import detenido
from decir.mensaje import Donde
from respuestas import BUENAS, MALAS, OTRAS, programa
from tu_turno import con_que, elegir, pieza

ODD_SHEETS = [programa(other) for other in OTRAS]
"""Whole programs, each with an unusual right answer for every piece."""


def doble_solucion(x):
    return 2 * x


def comprobar_doble(doble):
    dado = doble(torch.tensor(3))
    if dado != 6:  # pytest would add its own words to those of an assert
        raise AssertionError(f"da {dado}, debería dar 6")


def nada(x):
    """Doc."""


def mal(x):
    return x + 2


def se_cae(x):
    return x.no_existe


def ensena(x):
    print(2 * x)


def da_un_print(x):
    return print(2 * x)


def sin_llamar(x):
    return x + x.sum


def a_veces(x):
    if x < 0:
        return x


@pytest.mark.parametrize(
    ("mine", "what", "line"),
    [
        (mal, "da 5, debería dar 6", "return x + 2"),
        (
            se_cae,
            "con x de forma (), pide `no_existe` a algo que no lo tiene",
            "return x.no_existe",
        ),
        (ensena, "ensena enseña algo y no lo devuelve", "print(2 * x)"),
        (da_un_print, "no devuelve nada", "return print(2 * x)"),
        (sin_llamar, "con x de forma (), usa una función sin llamarla", "return x + x.sum"),
    ],
)
def test_the_solution_stands_in_for_what_does_not_pass(mine, what, line, capsys):
    assert elegir(mine, doble_solucion, comprobar_doble) is doble_solucion
    *_, who, said = capsys.readouterr().out.partition(f"· {mine.__name__} no pasa la comprobación.")
    assert who and said.startswith(" Se usa doble_solucion.\n")
    lines = [one.strip() for one in said.splitlines()[1:] if "busco la línea" not in one]
    assert lines[0].startswith(what)
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    number = int(re.match(r"línea (\d+): «", lines[1])[1])
    assert source[number - 1].strip() == line and f"«{line}»" in lines[1]


def test_a_function_that_returns_only_sometimes_is_not_blank(capsys):
    elegir(a_veces, doble_solucion, comprobar_doble)
    said = capsys.readouterr().out
    assert "a_veces no pasa la comprobación" in said and "  no devuelve nada\n" in said


def test_a_blank_turn_is_said_in_one_line(capsys):
    assert elegir(nada, doble_solucion, comprobar_doble) is doble_solucion
    assert capsys.readouterr().out == "· nada no devuelve nada todavía. Se usa doble_solucion.\n"


def test_what_passes_is_used(capsys):
    def mi_doble(x):
        return x + x

    assert elegir(mi_doble, doble_solucion, comprobar_doble) is mi_doble
    assert "se usa la tuya" in capsys.readouterr().out


def test_a_check_that_refuses_the_solution_is_our_mistake_and_no_seed_moves():
    with pytest.raises(AssertionError, match="debería dar 6"):
        elegir(doble_solucion, mal, comprobar_doble)
    torch.manual_seed(1)
    elegir(lambda x: 2 * x + 0 * torch.rand(1), doble_solucion, comprobar_doble)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert drawn == torch.rand(1)


class DobleSolucion:
    def __init__(self, x):
        self.x = x

    def dar(self):
        """Doc."""
        self.anotar()
        return 2 * self.x

    def anotar(self) -> None:
        """Doc."""


def comprobar_clase(Doble):
    dado = Doble(3).dar()
    if dado != 6:
        raise AssertionError(f"da {dado}, debería dar 6")


class Nada(DobleSolucion):
    def dar(self):
        """Doc."""


class Mal(DobleSolucion):
    def dar(self):
        """Doc."""
        return self.x


class SinSelf(DobleSolucion):
    def dar():
        """Doc."""
        return 2 * self.x  # noqa: F821


@pytest.mark.parametrize(
    ("mine", "what"),
    [
        (Nada, "no devuelve nada todavía"),
        (Mal, "da 3, debería dar 6"),
        (SinSelf, "dar no recibe self"),
    ],
)
def test_the_solution_stands_in_for_a_class_that_does_not_pass(mine, what, capsys):
    assert elegir(mine, DobleSolucion, comprobar_clase) is DobleSolucion
    said = capsys.readouterr().out
    assert (
        said.startswith(f"· {mine.__name__} ") and what in said and "Se usa DobleSolucion" in said
    )


def test_a_class_that_passes_is_used_though_it_has_methods_that_return_nothing(capsys):
    class MiDoble(DobleSolucion):
        def __init__(self, x):
            """Doc."""
            super().__init__(x)

        def dar(self):
            """Doc."""
            self.sumar()
            return self.x

        def sumar(self):
            self.x += self.x

        def anotar(self) -> None:
            """Doc."""

    assert elegir(MiDoble, DobleSolucion, comprobar_clase) is MiDoble
    assert "se usa la tuya" in capsys.readouterr().out


def called(name: str) -> tuple[str, str, str]:
    """Return the names of a turn's blank, solution and check; a class begins with a capital."""
    if name[0].isupper():
        words = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        return f"Mi{name}", f"{name}Solucion", f"comprobar_{words}"
    return f"mi_{name}", f"{name}_solucion", f"comprobar_{name}"


def turns(notebook: NotebookNode) -> dict[str, NotebookNode]:
    """Return the learner's cells by the name of the function or class, without its mi_ or Mi.

    Without those of the pieces of mi_gpt.py.
    """
    return {
        re.search(r"^(?:def mi_|class Mi)(\w+)[(:]", cell.source, re.MULTILINE)[1]: cell
        for cell in code_cells(notebook)
        if curso.TURNO in curso.etiquetas(cell) and curso.PIEZA not in cell.metadata
    }


def pieces(notebook: NotebookNode) -> dict[str, NotebookNode]:
    """Return the cells in which a piece of mi_gpt.py is written, by its title."""
    cells = [cell for cell in code_cells(notebook) if curso.PIEZA in cell.metadata]
    return {cell.metadata[curso.PIEZA]: cell for cell in cells}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_turn_is_a_blank_with_its_solution_folded_above_and_a_check(chapter):
    notebook = read(chapter)
    sources = [cell.source for cell in code_cells(notebook)]
    names = turns(notebook)
    turns_here = len(names) + len(pieces(notebook))
    fewest = 0 if chapter.startswith("ramas/") else 1
    assert fewest <= turns_here <= 3 or chapter[:2] == "10"
    for name, cell in names.items():
        assert "# tu código" in cell.source and '"""' in cell.source
        mine, solved, checked = called(name)
        check = code_cells(notebook)[sources.index(cell.source) + 1]
        assert f"{name} = usar({mine}, {checked})" in " ".join(check.source.split())
        text = notebook.cells[notebook.cells.index(cell) - 1].source
        solution = hoja.leer(hoja.TURNOS.read_text(encoding="utf-8"), name)
        assert re.search(rf"^(def|class) {solved}\b", solution, re.MULTILINE)
        assert text.endswith(f"{curso.RESUELTA}\n\n```python\n{solution}```\n\n</details>"), (
            "run: python notebooks/taller/curso.py"
        )
        assert f"{mine} no devuelve nada todavía. Se usa" in check.outputs[0].text


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_piece_is_a_blank_and_the_cell_that_checks_it(chapter):
    notebook = read(chapter)
    for title, blank in pieces(notebook).items():
        assert curso.TURNO in curso.etiquetas(blank)
        cells = code_cells(notebook)
        check = cells[cells.index(blank) + 1]
        assert f'{POR_TITULO[title].nombre} = pieza("{title}")' in check.source
        assert f"· {title} está en blanco. Se usa la solución." in check.outputs[0].text


def test_every_piece_is_asked_for_in_its_chapter_and_in_order():
    asked = [(title, c.numero) for c in curso.CAPITULOS for title in pieces(read(c.archivo))]
    assert asked == [(title, piece.capitulo) for title, piece in POR_TITULO.items()]


HINTS = ("Pista 1: qué", "Pista 2: cómo", "Pista 3: código")
EFFORT = re.compile(r"\d+ minutos.*(fácil|media|difícil)")


def has_hints(text: str) -> bool:
    """Return whether a turn's text has three folded hints, in order, and says what it costs."""
    folded = re.findall(r"<details>\s*<summary>(.*?)</summary>", text)
    return [hint for hint in folded if hint in HINTS] == list(HINTS) and bool(EFFORT.search(text))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_turn_has_staged_hints_and_says_its_minutes_and_difficulty(chapter):
    notebook = read(chapter)
    for name, turn in (turns(notebook) | pieces(notebook)).items():
        place = [cell.id for cell in notebook.cells].index(turn.id)
        assert has_hints(notebook.cells[place - 1].source), name


def test_hints_are_three_and_in_order():
    hints = [f"<details><summary>{hint}</summary>…</details>" for hint in HINTS]
    assert has_hints("\n".join(["10 minutos, media.", *hints]))
    assert not has_hints("\n".join(["10 minutos, media.", *hints[:2]]))
    assert not has_hints("\n".join(["10 minutos, media.", *hints[::-1]]))
    assert not has_hints("\n".join(hints))


MARK = re.compile(r"^( *)# tu código.*$", re.MULTILINE)
PIECE = "\n# ---\n"
"""Between the pieces of an answer, one for each mark of a class."""


def answer(turn: NotebookNode, name: str, body: str) -> str:
    """Return the learner's cell with a body, and with another name for the function or class."""
    pieces = body.split(PIECE)
    assert len(pieces) == len(MARK.findall(turn.source)), "a piece for each mark"
    left = iter(pieces)
    source = MARK.sub(lambda mark: indent(next(left), mark[1]), turn.source)
    return re.sub(r"^(def|class) [Mm]i_?\w+", rf"\1 {name}", source, flags=re.MULTILINE)


def returns_what_it_gets(source: str) -> str:
    """Return the answer that gives back the first argument of each function that has a mark."""
    pieces = []
    for before in MARK.split(source)[:-1:2]:
        name, first = re.findall(r"def (\w+)\(\s*(?:self\b,?\s*)?(\w*)", before)[-1]
        pieces.append("pass" if name == "__init__" or not first else f"return {first}")
    return PIECE.join(pieces)


def refusals(name: str, turn: NotebookNode) -> str:
    """Return code that asserts that the check refuses what checks nothing, or is wrong."""
    _, solved, checked = called(name)
    lines = ["from tu_turno import elegir"]
    for number, body in enumerate([returns_what_it_gets(turn.source), *MALAS[name]]):
        lines.append(answer(turn, f"mala_{number}", body))
        check = f"elegir(mala_{number}, {solved}, {checked}, buscar=False)"
        lines.append(f"assert {check} is {solved}, {body!r}")
    return "\n".join(lines)


def test_an_answer_fills_a_class_mark_by_mark():
    source = (
        "class MiSuma(Base):\n"
        "    def __init__(self, a):\n        # tu código\n\n"
        "    def dar(self, b):\n        # tu código\n"
    )
    turn = NotebookNode(source=source)
    written = answer(turn, "Suma", "self.a = a\n# ---\nc = self.a + b\nreturn c")
    space: dict = {"Base": object}
    exec(written, space)
    assert space["Suma"](2).dar(3) == 5
    exec(answer(turn, "Suma", returns_what_it_gets(source)), space)
    assert space["Suma"](2).dar(3) == 3


def test_there_are_answers_for_every_turn():
    names = [name for chapter in CHAPTERS for name in turns(read(chapter))]
    assert sorted(MALAS) == sorted(BUENAS) == sorted(names)
    assert {len(bodies) for bodies in MALAS.values()} == {4}
    assert {len(bodies) for bodies in BUENAS.values()} == {2}


WITH_TURNS = [chapter for chapter in CHAPTERS if turns(read(chapter)) or pieces(read(chapter))]


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("chapter", WITH_TURNS)
def test_the_chapter_runs_with_what_a_learner_wrote_and_refuses_what_is_wrong(
    chapter, which, tmp_path
):
    notebook = read(chapter)
    names = turns(notebook)
    for name, cell in names.items():
        if which == 0:
            [check] = [c for c in code_cells(notebook) if f"def {called(name)[2]}(" in c.source]
            check.source += "\n\n" + refusals(name, cell)
        cell.source = answer(cell, called(name)[0], BUENAS[name][which])
    # The pieces are written in the cells of one chapter; or all of them are in the sheet.
    sheet, odd = tmp_path / "mi_gpt.py", ODD_SHEETS[which]
    sheet.write_text(odd if which else curso.hoja_en_blanco(), encoding="utf-8")
    use = f"import hoja\nfrom pathlib import Path\nhoja.HOJA = Path({str(sheet)!r})"
    notebook.cells.insert(2, nbformat.v4.new_code_cell(use))
    if which == 0:
        for title, cell in pieces(notebook).items():
            cell.source = hoja.leer(odd, POR_TITULO[title].nombre)
    notebook.cells = list(with_claims(notebook.cells, claims(chapter)))
    execute(notebook, [], (FOLDER / chapter).parent)
    printed = "".join(o.get("text", "") for cell in code_cells(notebook) for o in cell.outputs)
    for name in names:
        assert f"✓ {called(name)[0]} pasa la comprobación" in printed
    for title in pieces(notebook):
        said = ": se usa la tuya, la de mi_gpt.py" if which else " pasa la comprobación"
        assert f"✓ {title}{said}" in printed
    assert "NameError" not in printed, "an answer that is wrong by accident"


# --- the sheet ------------------------------------------------------------------------------------

DOUBLED = """\
def igualar(x):
    # a comment of one's own
    return F.rms_norm(x, x.shape[-1:], eps=1e-6)
"""


@pytest.fixture
def sheet(tmp_path, monkeypatch) -> Path:
    path = tmp_path / "mi_gpt.py"
    path.write_text(curso.hoja_en_blanco(), encoding="utf-8")
    monkeypatch.setattr(hoja, "HOJA", path)
    return path


def run_cells(monkeypatch, *cells: str) -> None:
    """Let these be the cells that the notebook has run."""
    session = SimpleNamespace(user_ns={"In": ["", *cells]})
    monkeypatch.setattr(builtins, "get_ipython", lambda: session, raising=False)


def test_a_piece_that_passes_is_copied_to_its_place_as_it_was_written(sheet, monkeypatch, capsys):
    run_cells(monkeypatch, DOUBLED, 'igualar = pieza("igualar")')
    igualar = pieza("igualar")
    torch.testing.assert_close(igualar(torch.ones(3)), torch.ones(3))
    assert "✓ igualar pasa la comprobación: está en mi_gpt.py" in capsys.readouterr().out
    written = sheet.read_text(encoding="utf-8")
    assert hoja.leer(written, "igualar") == DOUBLED
    others = {n: p for n, p in hoja.trozos(written).items() if n != "igualar"}
    blank = hoja.trozos(curso.hoja_en_blanco())
    assert others == {n: p for n, p in blank.items() if n != "igualar"}
    pieza("igualar")  # once more: nothing is written, nothing is lost
    assert "se usa la tuya, la de mi_gpt.py" in capsys.readouterr().out
    assert sheet.read_text(encoding="utf-8") == written
    assert not sheet.with_name("mi_gpt.py.antes").exists()


def test_a_piece_that_does_not_pass_is_not_copied_and_what_was_there_stays(
    sheet, monkeypatch, capsys
):
    run_cells(monkeypatch, DOUBLED)
    pieza("igualar")
    written = sheet.read_text(encoding="utf-8")
    run_cells(monkeypatch, DOUBLED.replace("F.rms_norm(x, x.shape[-1:], eps=1e-6)", "x"))
    pieza("igualar")
    assert "· igualar no pasa la comprobación. Se usa la solución." in capsys.readouterr().out
    assert sheet.read_text(encoding="utf-8") == written


def test_another_answer_takes_the_place_of_the_first_which_is_kept(sheet, monkeypatch, capsys):
    run_cells(monkeypatch, DOUBLED)
    pieza("igualar")
    first = sheet.read_text(encoding="utf-8")
    run_cells(monkeypatch, DOUBLED, DOUBLED.replace("a comment", "another comment"))
    pieza("igualar")
    assert "queda en mi_gpt.py.antes" in capsys.readouterr().out
    assert sheet.with_name("mi_gpt.py.antes").read_text(encoding="utf-8") == first
    assert "another comment" in sheet.read_text(encoding="utf-8")


def test_what_an_editor_improved_is_not_lost_to_the_cell_it_came_from(sheet, monkeypatch, capsys):
    run_cells(monkeypatch, DOUBLED)
    pieza("igualar")
    improved = sheet.read_text("utf-8").replace("a comment of one's own", "better words")
    sheet.write_text(improved, encoding="utf-8")
    capsys.readouterr()
    pieza("igualar")
    assert capsys.readouterr().out == "✓ igualar: se usa la tuya, la de mi_gpt.py.\n"
    assert sheet.read_text("utf-8") == improved


def test_only_what_belongs_to_the_piece_is_copied(sheet, monkeypatch, capsys):
    cell = "\n".join(
        [
            "from __future__ import annotations",
            "import math",
            "EPSILON = 1e-6",
            "get_ipython().system('ls')",
            "def girar(x):\n    return x",
            "def raiz(x):\n    return x.sqrt()",
            "# --- mine",
            "def igualar(x):\n    return x / raiz(x.square().mean(-1, keepdim=True) + EPSILON)",
            "print(igualar(torch.ones(3)))",
            "assert of_the_chapter",
        ]
    )
    run_cells(monkeypatch, f"get_ipython().run_cell_magic('time', '', {cell!r})")
    pieza("igualar")
    assert "✓ igualar pasa" in capsys.readouterr().out
    written = hoja.leer(sheet.read_text("utf-8"), "igualar")
    kept = ("import math", "EPSILON = 1e-6", "def raiz(x)", "# --- mine", "def igualar(x)")
    assert all(line in written for line in kept)
    left = ("__future__", "get_ipython", "def girar", "print", "of_the_chapter")
    assert not any(line in written for line in left)


def test_the_last_cell_counts_though_it_cannot_be_read(sheet, monkeypatch, capsys):
    run_cells(monkeypatch, DOUBLED, "def igualar(x:\n    return x")
    pieza("igualar")
    assert "  no se puede leer: los paréntesis no cuadran\n" in capsys.readouterr().out


def test_a_hole_left_in_a_comment_is_no_hole(sheet, monkeypatch, capsys):
    run_cells(monkeypatch, DOUBLED.replace("# a comment", "# raise NotImplementedError"))
    pieza("igualar")
    assert "✓ igualar pasa" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"\xf1", None])
def test_a_sheet_in_another_encoding_or_missing_is_said(sheet, content, capsys):
    sheet.unlink()
    if content:
        sheet.write_bytes(content)
    assert pieza("igualar")(torch.ones(3)).shape == (3,)
    assert "· mi_gpt.py no se puede usar: " in capsys.readouterr().out


def test_a_blank_cell_takes_nothing_from_what_an_editor_wrote(sheet, monkeypatch, capsys):
    sheet.write_text(hoja.poner(sheet.read_text("utf-8"), "igualar", DOUBLED), encoding="utf-8")
    blank = hoja.leer(curso.hoja_en_blanco(), "igualar")
    run_cells(monkeypatch, blank)
    pieza("igualar")
    assert capsys.readouterr().out == "✓ igualar: se usa la tuya, la de mi_gpt.py.\n"


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("def igualar(x):\n    return softmax(x)\n", "usa `softmax`, que no está definido"),
        ("def igualar(x):\n    x * 2\n", "igualar no devuelve nada"),
        ("def igualar(x):\n    return x.nada\n", "pide `nada` a algo que no lo tiene"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_how_to_try_ones_own(
    written, why, sheet, monkeypatch, capsys
):
    run_cells(monkeypatch, written)
    pieza("igualar")
    first, *told, last = capsys.readouterr().out.splitlines()
    assert first == "· igualar no pasa la comprobación. Se usa la solución."
    assert why in "\n".join(told) and "  línea 2: «" in "\n".join(told)
    assert last == (
        "  (Desde aquí `igualar` es la de la solución. Para probar la tuya: ejecuta otra vez su celda.)"
    )


def test_a_slip_in_another_piece_is_said_with_its_line_and_stops_nothing(sheet, capsys):
    sheet.write_text(sheet.read_text("utf-8").replace("class Entrada(", "class Entrada(("), "utf-8")
    sheet.write_text(hoja.poner(sheet.read_text("utf-8"), "igualar", DOUBLED), encoding="utf-8")
    assert pieza("igualar")(torch.ones(3)).shape == (3,)
    lines = sheet.read_text("utf-8").splitlines()
    number = lines.index("class Entrada((nn.Module):") + 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == "✓ igualar: se usa la tuya, la de mi_gpt.py."
    assert second.startswith("  (En otro sitio de mi_gpt.py: no se puede leer: ")
    assert second.endswith(f"; línea {number}: «class Entrada((nn.Module):».)")


def test_a_line_elsewhere_that_fails_stops_no_chapter(sheet, capsys):
    sheet.write_text(sheet.read_text("utf-8") + "\nno_existe()\n", encoding="utf-8")
    assert pieza("igualar")(torch.ones(3)).shape == (3,)
    number = sheet.read_text("utf-8").count("\n")
    said = (
        "  (En otro sitio de mi_gpt.py: usa `no_existe`, que no está definido; línea "
        f"{number}: «no_existe()».)\n"
    )
    assert capsys.readouterr().out.endswith(said)


SOURCE = hoja.SOLUCION.read_text(encoding="utf-8")
BLANK_CELL = hoja.leer(curso.hoja_en_blanco(), "entropia_cruzada")
WRITTEN_CELL = hoja.leer(SOURCE, "entropia_cruzada")
CHECK_CELL = 'entropia_cruzada = pieza("entropia_cruzada")'
STATES = (
    ([BLANK_CELL], "· entropia_cruzada está en blanco. Se usa la solución."),
    (
        [f"{WRITTEN_CELL}    raise NotImplementedError\n"],
        "queda el hueco de entropia_cruzada\n  línea 5: «",
    ),
    (
        [WRITTEN_CELL.replace("    log_p", "    raise NotImplementedError\n    log_p", 1)],
        "queda el hueco de entropia_cruzada\n  línea 3: «",
    ),
    (
        [BLANK_CELL, WRITTEN_CELL.replace("def entropia_cruzada", "def entropia")],
        "la celda define entropia: ha de llamarse entropia_cruzada",
    ),
    ([], "· entropia_cruzada: su celda no se ha ejecutado. Se usa la solución."),
    (["x = 2"], "· entropia_cruzada: su celda no se ha ejecutado. Se usa la solución."),
)


@pytest.mark.parametrize(("cells", "said"), STATES)
def test_only_what_was_not_touched_is_blank(cells, said, sheet, monkeypatch, capsys):
    [check] = [
        cell.source
        for cell in code_cells(read("07_salida.ipynb"))
        if cell.source.startswith(CHECK_CELL)
    ]
    run_cells(monkeypatch, imports_of("07_salida"), *cells, check)
    pieza("entropia_cruzada")
    assert said in capsys.readouterr().out


def imports_of(chapter: str) -> str:
    """Return the cell of a chapter that imports what it uses."""
    sources = [cell.source for cell in code_cells(read(f"{chapter}.ipynb"))]
    return next(source for source in sources if "from tu_turno import" in source)


def test_a_piece_of_an_earlier_chapter_is_blank_and_no_cell_of_its_own_is_missed(
    sheet, monkeypatch, capsys
):
    run_cells(monkeypatch, imports_of("06_bloque_y_gpt"), 'Entrada = pieza("Entrada")')
    pieza("Entrada")
    assert capsys.readouterr().out == "· Entrada está en blanco. Se usa la solución.\n"


def test_a_sheet_without_the_line_of_a_piece_is_said(sheet, monkeypatch, capsys):
    sheet.write_text(sheet.read_text("utf-8").replace("# --- igualar", "# ---"), encoding="utf-8")
    run_cells(monkeypatch, DOUBLED)
    assert pieza("igualar")(torch.ones(3)).shape == (3,)
    said = "no se puede usar: la línea «# --- igualar (capítulo …) ---» está 0 veces, debería una"
    assert said in capsys.readouterr().out


def test_a_piece_uses_the_solution_of_those_that_are_blank(sheet, monkeypatch, capsys):
    source = hoja.SOLUCION.read_text(encoding="utf-8")
    run_cells(monkeypatch, hoja.leer(source, "Gpt"))
    Gpt = pieza("Gpt")
    assert "(Con la solución de Entrada, mirar_atras, Atencion" in capsys.readouterr().out
    forma = hoja.cargar(source).Forma(11, 9, 24)
    assert Gpt(forma)(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 5, 11)


def test_in_a_notebook_a_cell_becomes_a_piece(sheet):
    cells = [
        curso.BUSCAR_LOS_MODULOS,
        f"import hoja, pathlib\nhoja.HOJA = pathlib.Path({str(sheet)!r})\n"
        "from torch.nn import functional as F\nfrom tu_turno import pieza",
        DOUBLED,
        'igualar = pieza("igualar")',
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    execute(notebook, [])
    assert "✓ igualar pasa" in notebook.cells[-1].outputs[0].text
    assert DOUBLED in sheet.read_text(encoding="utf-8")


def test_what_a_function_was_given_is_said_also_when_it_is_nothing():
    def dar(self, x, y):
        """Doc."""

    assert con_que(dar, (object(), 2, torch.ones(3, 1))) == "con x = 2 y y de forma (3, 1)"
    assert con_que(dar, (object(),)) == "sin nada entre sus paréntesis"


def test_in_a_notebook_a_turn_that_cannot_be_read_or_was_not_run_is_said_in_spanish():
    cells = [
        curso.BUSCAR_LOS_MODULOS,
        "from tu_turno import usar",
        "def mi_doble(x:\n    return 2 * x",
        "doble = usar(mi_doble, print)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    for cell in notebook.cells[2:]:
        cell.metadata["tags"] = ["raises-exception"]
    execute(notebook, [])
    unreadable, missing = (
        "".join(o.get("text", "") for o in cell.outputs) for cell in notebook.cells[2:]
    )
    assert "· Esta celda no se puede leer: los paréntesis no cuadran; línea 1: «" in unreadable
    assert "· mi_doble no está: su celda no se ha ejecutado" in missing


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: np.ones((2, 3)) * np.ones((4, 3)), "junta arrays que no encajan: (2,3) y (4,3)"),
        (lambda: np.ones((2, 3)) @ np.ones((2, 3)), "esas matrices no se pueden multiplicar"),
        (lambda: bool(np.ones(2)), "¿falta .mean(), .all() o .any()?"),
        (lambda: list("ab")[0.5], "busca en una lista con algo de tipo float"),
        (lambda: math.log([1]), "math quiere un solo número, y se le da algo de tipo list"),
        (
            lambda: range([1]),
            "da algo de tipo list donde va un entero: ¿falta len(…), o sobra range?",
        ),
        (lambda: range(1.5), "/ lleva decimales, // no"),
        (lambda: torch.optim.SGD.zero_grad(), "usa una clase donde va uno hecho con ella"),
        (
            lambda: torch.ones(2) - torch.ones(2).max(0),
            "max da dos cosas, los valores y sus lugares",
        ),
        (lambda: torch.ones(2)(3), "llama a algo de tipo Tensor como a una función: ¿falta un *"),
        (
            lambda: torch.randint(9, 2),
            "randint quiere la forma entre paréntesis, con su coma: (n,)",
        ),
        (lambda: torch.Generator.manual_seed(1), "llama a manual_seed de la clase"),
        (lambda: torch.ones(2).mean(0, keep_dim=True), "que no conoce: ¿se escribe así?"),
    ],
)
def test_what_numpy_and_pytorch_say_in_english_is_told_in_spanish(wrong, said):
    with pytest.raises(Exception) as caught:
        wrong()
    assert said in detenido(caught.value, Donde("")).que
