"""What the learner writes is used where it passes; chapters run without it, and with it."""

import re
from textwrap import indent

import pytest
import torch
from nbformat import NotebookNode
from test_notebooks import CHAPTERS, code_cells, execute, read

import curso
from respuestas import BUENAS, MALAS
from tu_turno import usar

SOLUTION = "solucion"


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


@pytest.mark.parametrize(
    ("mine", "why"),
    [
        (nada, "no devuelve nada todavía"),
        (mal, "da 5, debería dar 6"),
        (se_cae, "se detiene con AttributeError: 'Tensor' object has no attribute 'no_existe'"),
    ],
)
def test_the_solution_stands_in_for_what_does_not_pass(mine, why, capsys):
    assert usar(mine, doble_solucion, comprobar_doble) is doble_solucion
    assert capsys.readouterr().out == f"· {mine.__name__} {why}. Se usa doble_solucion.\n"


def test_what_passes_is_used(capsys):
    def mi_doble(x):
        return x + x

    assert usar(mi_doble, doble_solucion, comprobar_doble) is mi_doble
    assert "se usa la tuya" in capsys.readouterr().out


def test_a_check_that_refuses_the_solution_is_our_mistake_and_no_seed_moves():
    with pytest.raises(AssertionError, match="debería dar 6"):
        usar(doble_solucion, mal, comprobar_doble)
    torch.manual_seed(1)
    usar(lambda x: 2 * x + 0 * torch.rand(1), doble_solucion, comprobar_doble)
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


@pytest.mark.parametrize(
    ("mine", "why"), [(Nada, "no devuelve nada todavía"), (Mal, "da 3, debería dar 6")]
)
def test_the_solution_stands_in_for_a_class_that_does_not_pass(mine, why, capsys):
    assert usar(mine, DobleSolucion, comprobar_clase) is DobleSolucion
    assert capsys.readouterr().out == f"· {mine.__name__} {why}. Se usa DobleSolucion.\n"


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

    assert usar(MiDoble, DobleSolucion, comprobar_clase) is MiDoble
    assert "se usa la tuya" in capsys.readouterr().out


def called(name: str) -> tuple[str, str, str]:
    """Return the names of a turn's blank, solution and check; a class begins with a capital."""
    if name[0].isupper():
        words = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        return f"Mi{name}", f"{name}Solucion", f"comprobar_{words}"
    return f"mi_{name}", f"{name}_solucion", f"comprobar_{name}"


def turns(notebook: NotebookNode) -> dict[str, NotebookNode]:
    """Return the learner's cells by the name of the function or class, without its mi_ or Mi."""
    return {
        re.search(r"^(?:def mi_|class Mi)(\w+)[(:]", cell.source, re.MULTILINE)[1]: cell
        for cell in code_cells(notebook)
        if curso.TURNO in curso.etiquetas(cell)
    }


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_turn_is_a_blank_a_folded_solution_and_a_check(chapter):
    notebook = read(chapter)
    sources = [cell.source for cell in code_cells(notebook)]
    names = turns(notebook)
    assert len(names) in ((0, 1, 2) if chapter[0] in "AB" else (1, 2, 3))
    for name, cell in names.items():
        assert "# tu código" in cell.source and '"""' in cell.source
        mine, solved, checked = called(name)
        [place] = [
            i
            for i, source in enumerate(sources)
            if re.search(rf"^(def|class) {solved}\b", source, re.M)
        ]
        solution, check = code_cells(notebook)[place : place + 2]
        assert sources[place - 1] == cell.source
        assert SOLUTION in curso.etiquetas(solution) and solution.metadata.jupyter.source_hidden
        assert f"{name} = usar({mine}, {solved}, {checked})" in check.source
        assert f"{mine} no devuelve nada todavía. Se usa" in check.outputs[0].text


HINTS = ("Pista 1: qué", "Pista 2: cómo", "Pista 3: código")
EFFORT = re.compile(r"\d+ minutos.*(fácil|media|difícil)")


def has_hints(text: str) -> bool:
    """Return whether a turn's text has three folded hints, in order, and says what it costs."""
    folded = re.findall(r"<details>\s*<summary>(.*?)</summary>", text)
    return [hint for hint in folded if hint in HINTS] == list(HINTS) and bool(EFFORT.search(text))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_turn_has_staged_hints_and_says_its_minutes_and_difficulty(chapter):
    notebook = read(chapter)
    for name, turn in turns(notebook).items():
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
    lines = []
    for number, body in enumerate([returns_what_it_gets(turn.source), *MALAS[name]]):
        lines.append(answer(turn, f"mala_{number}", body))
        check = f"usar(mala_{number}, {solved}, {checked})"
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


WITH_TURNS = [chapter for chapter in CHAPTERS if turns(read(chapter))]


@pytest.mark.slow
def test_the_training_chapter_trains_the_gpt_that_is_pasted():
    built, notebook = turns(read("06_bloque_y_gpt.ipynb")), read("08_entrenamiento.ipynb")
    pasted = [answer(built[name], called(name)[0], BUENAS[name][0]) for name in ("Bloque", "Gpt")]
    [cell] = [cell for cell in notebook.cells if cell.id == "08-gpt-pega"]
    cell.source = "\n\n".join([cell.source, *pasted])
    execute(notebook, [])
    printed = "".join(o.get("text", "") for cell in code_cells(notebook) for o in cell.outputs)
    assert "✓ MiGpt pasa la comprobación" in printed and "MiGpt, con" in printed


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("chapter", WITH_TURNS)
def test_the_chapter_runs_with_what_a_learner_wrote_and_refuses_what_is_wrong(chapter, which):
    notebook = read(chapter)
    names = turns(notebook)
    for name, cell in names.items():
        if which == 0:
            [check] = [c for c in code_cells(notebook) if f"def {called(name)[2]}(" in c.source]
            check.source += "\n\n" + refusals(name, cell)
        cell.source = answer(cell, called(name)[0], BUENAS[name][which])
    execute(notebook, [])
    printed = "".join(o.get("text", "") for cell in code_cells(notebook) for o in cell.outputs)
    for name in names:
        assert f"✓ {called(name)[0]} pasa la comprobación" in printed
    assert "NameError" not in printed, "an answer that is wrong by accident"
