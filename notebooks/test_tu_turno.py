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


def turns(notebook: NotebookNode) -> dict[str, NotebookNode]:
    """Return the learner's cells by the name of the function, without its mi_."""
    return {
        re.search(r"^def mi_(\w+)\(", cell.source, re.MULTILINE)[1]: cell
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
        [place] = [i for i, source in enumerate(sources) if f"def {name}_solucion(" in source]
        solution, check = code_cells(notebook)[place : place + 2]
        assert sources[place - 1] == cell.source
        assert SOLUTION in curso.etiquetas(solution) and solution.metadata.jupyter.source_hidden
        assert f"{name} = usar(mi_{name}, {name}_solucion, comprobar_{name})" in check.source
        assert f"mi_{name} no devuelve nada todavía. Se usa" in check.outputs[0].text


def answer(turn: NotebookNode, name: str, body: str) -> str:
    """Return the learner's cell with a body, and with another name for the function."""
    source = turn.source.replace("    # tu código", indent(body, "    "))
    return re.sub(r"^def mi_\w+", f"def {name}", source, flags=re.MULTILINE)


def refusals(name: str, turn: NotebookNode) -> str:
    """Return code that asserts that the check refuses what checks nothing, or is wrong."""
    wrong = ["return " + re.search(r"\(\s*(\w+):", turn.source)[1], *MALAS[name]]  # what it got
    lines = []
    for number, body in enumerate(wrong):
        lines.append(answer(turn, f"mala_{number}", body))
        check = f"usar(mala_{number}, {name}_solucion, comprobar_{name})"
        lines.append(f"assert {check} is {name}_solucion, {body!r}")
    return "\n".join(lines)


def test_there_are_answers_for_every_turn():
    names = [name for chapter in CHAPTERS for name in turns(read(chapter))]
    assert sorted(MALAS) == sorted(BUENAS) == sorted(names)
    assert {len(bodies) for bodies in MALAS.values()} == {4}
    assert {len(bodies) for bodies in BUENAS.values()} == {2}


WITH_TURNS = [chapter for chapter in CHAPTERS if turns(read(chapter))]


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("chapter", WITH_TURNS)
def test_the_chapter_runs_with_what_a_learner_wrote_and_refuses_what_is_wrong(chapter, which):
    notebook = read(chapter)
    names = turns(notebook)
    for name, cell in names.items():
        if which == 0:
            [check] = [c for c in code_cells(notebook) if f"def comprobar_{name}(" in c.source]
            check.source += "\n\n" + refusals(name, cell)
        cell.source = answer(cell, f"mi_{name}", BUENAS[name][which])
    execute(notebook, [])
    printed = "".join(o.get("text", "") for cell in code_cells(notebook) for o in cell.outputs)
    for name in names:
        assert f"✓ mi_{name} pasa la comprobación" in printed
    assert "NameError" not in printed, "an answer that is wrong by accident"
