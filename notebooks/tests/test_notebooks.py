"""Each chapter, each branch and their solutions run in a clean kernel and print what was committed."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

import curso

FOLDER = Path(__file__).resolve().parent.parent
CHAPTERS = [chapter.archivo for chapter in curso.CUADERNOS]
"""Of the path, and then the branches."""
PAGES = [
    path.relative_to(FOLDER).as_posix()
    for folder in (".", "docente", "taller")
    for path in sorted((FOLDER / folder).glob("*.md"))
]
CELL_SECONDS = 300
"""A cell that takes longer is taken to hang. README.md says how long a whole chapter takes."""
CLAIMS = FOLDER / "tests" / "afirmaciones"
"""For each chapter, assertions about its values: `# --- name ---`, and below it those of a cell."""
LARGEST_BYTES = 1_000_000
VARIES = "varia"
"""The tag of cells whose words depend on the machine: times, losses, what a model writes."""
PUT_BY_HAND = re.compile(r"note: quijote\.txt: .* around Project Gutenberg's marks are left out\n")
"""What is said of a book that somebody put into data/ as Project Gutenberg gives it."""


def read(chapter: str) -> NotebookNode:
    return nbformat.read(FOLDER / chapter, as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def solutions(notebook: NotebookNode) -> Iterator[str]:
    """Yield the code that is folded away under the exercises."""
    for cell in notebook.cells:
        for folded in re.findall(r"<details>.*?</details>", cell.source, flags=re.DOTALL):
            if "<summary>Pista" in folded or "<summary>La pieza" in folded:  # of a turn
                continue
            yield from re.findall(r"```python\n(.*?)```", folded, flags=re.DOTALL)


def claims(chapter: str) -> dict[str, str]:
    """Return what a chapter claims of its values, by the name in the metadata of a cell.

    The assertions run behind that cell, out of the reader's sight.
    """
    path = CLAIMS / f"{Path(chapter).stem}.py"
    if not path.exists():
        return {}
    named = re.split(r"^# --- (\w+) -+\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(named[::2], named[1::2], strict=True))


def with_claims(cells: list[NotebookNode], named: dict[str, str]) -> Iterator[NotebookNode]:
    """Yield the cells of a chapter, each with its claims in a cell behind it."""
    for cell in cells:
        yield cell
        if name := cell.metadata.get("afirma"):
            yield nbformat.v4.new_code_cell(named[name])


def execute(notebook: NotebookNode, sources: list[str], folder: Path = FOLDER) -> None:
    """Run every cell, then `sources`, in one kernel that begins in `folder`."""
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in sources]
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=CELL_SECONDS, resources=resources).execute()


def outputs_of(cell: NotebookNode) -> list[tuple[str, str]]:
    """Return kind and text of each output; a stream that came in parts is one."""
    found: list[tuple[str, str]] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            kind, text = output.name, output.text
        elif output.output_type == "error":
            kind, text = "error", output.ename
        else:
            kind, text = " ".join(sorted(output.data)), output.data.get("text/plain", "")
        if found and found[-1][0] == kind and output.output_type == "stream":
            kind, text = kind, found.pop()[1] + text
        found.append((kind, text))
    return found


def without_numbers(text: str) -> str:
    """Return the words of a text: numbers as #, blanks as one."""
    text = re.sub(r"[-+−]?\d+([.,\u202f]?\d+)*(e[-+]?\d+)?", "#", text)
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_chapter_runs_and_its_outputs_are_those_committed(chapter):
    committed, fresh = read(chapter), read(chapter)
    for cell in code_cells(fresh):
        cell.outputs = []
    own = code_cells(fresh)
    fresh.cells = list(with_claims(fresh.cells, claims(chapter)))
    execute(fresh, list(solutions(fresh)), (FOLDER / chapter).parent)
    # What is committed was made with the book; without it the included text takes its place.
    with_book = (FOLDER.parent / "data" / "quijote.txt").is_file()
    for old, new in zip(code_cells(committed), own, strict=True):
        new.outputs = [o for o in new.outputs if not PUT_BY_HAND.fullmatch(o.get("text", ""))]
        old_outputs, new_outputs = outputs_of(old), outputs_of(new)
        if not with_book:
            if 'corpus.name == "quijote"' in old.source:
                continue  # what it says of the book, it says only of the book
            new_outputs = [(kind, text) for kind, text in new_outputs if kind != "stderr"]
        assert [kind for kind, _ in new_outputs] == [kind for kind, _ in old_outputs], old.source
        if with_book and VARIES not in old.metadata.get("tags", []):
            for (_, before), (_, now) in zip(old_outputs, new_outputs, strict=True):
                assert without_numbers(now) == without_numbers(before), old.source


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_claim_stands_behind_one_cell(chapter):
    names = [cell.metadata["afirma"] for cell in read(chapter).cells if "afirma" in cell.metadata]
    assert sorted(names) == sorted(claims(chapter))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_chapter_is_whole(chapter):
    notebook, text = read(chapter), (FOLDER / chapter).read_text(encoding="utf-8")
    nbformat.validate(notebook)
    assert len(text.encode()) < LARGEST_BYTES
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {kind for cell in cells for kind, _ in outputs_of(cell)}
    assert not kinds & {"error", "stderr"}
    assert not re.search(r"/(home|Users|root|tmp|work)/", text), "a path of one machine"
    exercises = sum(cell.source.count("<summary>Solución</summary>") for cell in notebook.cells)
    fewest = 1 if chapter.startswith("ramas/") else 3
    assert fewest <= exercises <= 5


@pytest.mark.generated
@pytest.mark.parametrize("chapter", curso.CUADERNOS, ids=CHAPTERS)
def test_the_chapter_has_the_cells_that_the_script_gives_it(chapter):
    notebook = read(chapter.archivo)
    dressed = read(chapter.archivo)
    curso.vestir(dressed, chapter)
    assert dressed == notebook, (
        f"notebooks/{chapter.archivo} is out of date; run: python notebooks/taller/curso.py"
    )


@pytest.mark.parametrize("chapter", curso.CUADERNOS, ids=CHAPTERS)
def test_the_chapter_has_its_title_and_its_sections_in_order(chapter):
    notebook = read(chapter.archivo)
    assert notebook.cells[0].source.startswith(f"# {chapter}\n")
    text = "\n".join(curso.sin_bloques(cell.source) for cell in texts(notebook))
    *sections, recap, exercises = re.findall(r"^## (.*)", text, flags=re.MULTILINE)
    numbers = [section.split()[0] for section in [*sections, recap]]
    written = f"{chapter.numero}.{{}}" if chapter.numero else "{}."
    assert numbers == [written.format(i) for i in range(1, len(numbers) + 1)]
    assert (recap.split(maxsplit=1)[1], exercises) == ("En resumen", "Ejercicios")


def says(*cells: NotebookNode) -> str:
    """Return what the head of a chapter with these cells says of minutes and seconds."""
    return curso.duracion(curso.CAPITULOS[0], list(cells))


def a_text(source: str) -> NotebookNode:
    return nbformat.v4.new_markdown_cell(source)


def a_code(lines: int, **metadata) -> NotebookNode:
    return nbformat.v4.new_code_cell("x = 1\n\n" * lines, metadata=metadata)


def test_the_head_says_how_long_to_read_words_and_the_code_that_is_seen():
    assert "Leerlo lleva unos 20 minutos; " in says(a_text("palabra " * 3_000))
    assert "Leerlo lleva unos 40 minutos; " in says(a_text("palabra " * 3_000), a_code(300))
    # A reader needed more than an hour for as much.
    assert "Leerlo lleva unos 65 minutos; " in says(a_text("palabra " * 3_300), a_code(655))


@pytest.mark.parametrize("folded", [{"jupyter": {"source_hidden": True}}, {"tags": ["hide-input"]}])
def test_folded_code_is_not_read(folded):
    seen = [a_text("palabra " * 3_000), a_code(300)]
    hint = "<details><summary>Pista</summary>\n\n```python\n{}```\n\n</details>"
    assert says(*seen, a_code(900, **folded), a_text(hint.format("x = 1\n" * 900))) == says(*seen)


def test_the_head_says_how_long_to_write_by_what_each_turn_says():
    exercise = a_text("<details><summary>Solución</summary>…</details>")
    turns = a_text("(5 minutos, fácil.) Escribe."), a_text("**Tu turno.** (15 minutos, difícil.)")
    assert "escribir lo tuyo, unos 35 (son estimaciones); " in says(*turns, *3 * [exercise])


def test_the_index_and_the_guide_add_up_the_hours_of_the_heads():
    path = branches = exercises = 0
    for chapter in curso.CUADERNOS:
        cells = read(chapter.archivo).cells
        minutes = sum(map(int, re.findall(r"unos (\d+)(?= minutos;| \()", cells[0].source)))
        if chapter in curso.CAPITULOS:
            path += minutes
            exercises += sum(cell.source.count("<summary>Solución</summary>") for cell in cells)
        else:
            branches += minutes
    without = path - curso.MINUTOS_POR_EJERCICIO * exercises
    index, guide = text_of("README.md"), text_of("docente/guia_docente.md")
    said = [
        *re.search(
            r"unas (\d+) horas de leer y escribir, sin contar los ejercicios", index
        ).groups(),
        *re.search(
            r"unas (\d+) horas con sus ejercicios, y las ramas, unas (\d+):", guide
        ).groups(),
    ]
    assert said == [str(round(minutes / 60)) for minutes in (without, path, branches)]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_turn_says_its_minutes_where_they_are_counted(chapter):
    cells = read(chapter).cells
    blanks = [i for i, cell in enumerate(cells) if curso.TURNO in curso.etiquetas(cell)]
    assert all(len(curso.MINUTOS_DE_UN_TURNO.findall(cells[i - 1].source)) == 1 for i in blanks)
    everywhere = sum(len(curso.MINUTOS_DE_UN_TURNO.findall(cell.source)) for cell in cells)
    assert everywhere == len(blanks)


def test_the_first_cell_finds_the_copy_and_else_says_what_to_type_and_runs_nothing(tmp_path):
    look = "import sancho, escalera; from ver import estilo; print(sancho.__file__)"

    def run(code: str, folder: Path = tmp_path) -> str:
        # -I, -S: without what is installed, where sancho may be, too.
        command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", code]
        done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr
        return done.stdout

    alone = run(curso.BUSCAR_LOS_MODULOS)
    assert re.search(r" !git clone \S+ sancho-mini ", alone) and alone.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    for name in ("sancho/__init__.py", "notebooks/escalera.py", "notebooks/taller/ver/estilo.py"):
        path = tmp_path / "sancho-mini" / name
        path.parent.mkdir(parents=True)
        path.touch()
    # Beside the copy, in its root, in its folder of notebooks, and in that of the branches.
    (tmp_path / "sancho-mini/notebooks/ramas").mkdir()
    for folder in ("", "sancho-mini", "sancho-mini/notebooks", "sancho-mini/notebooks/ramas"):
        copy = run(f"{curso.BUSCAR_LOS_MODULOS}\n{look}", tmp_path / folder)
        assert Path(copy.strip()) == tmp_path.resolve() / "sancho-mini/sancho/__init__.py"


@pytest.mark.parametrize("page", [*PAGES, *CHAPTERS])
def test_links_lead_somewhere(page):
    if page.endswith(".ipynb"):
        text = "\n".join(cell.source for cell in texts(read(page)))
    else:
        text = (FOLDER / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert ((FOLDER / page).parent / target).exists(), target


def test_the_course_is_whole_and_its_index_names_every_chapter():
    files = [*FOLDER.glob("*.ipynb"), *FOLDER.glob("ramas/*.ipynb")]
    assert sorted(path.relative_to(FOLDER).as_posix() for path in files) == sorted(CHAPTERS)
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for chapter in curso.CUADERNOS:
        assert f"[{chapter}]({chapter.archivo})" in page, chapter


def cited(text: str) -> set[tuple[str, str]]:
    """Return (first author, year) of the works that a text cites."""
    name, year = r"([A-ZÁÉÍÓÚÑ][\w\-]+)", r",? \(?((?:19|20)\d\d)\b"
    both = re.findall(rf"\b{name} y otros{year}", text)
    return set(both + re.findall(rf"\b{name} y [A-Z][\w\-]+{year}", text))


def text_of(page: str) -> str:
    if page.endswith(".ipynb"):
        return "\n".join(cell.source for cell in read(page).cells)
    return (FOLDER / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [*PAGES, *CHAPTERS])
def test_what_a_page_cites_is_in_the_bibliography(page):
    bibliography = text_of("bibliografia.md")
    for author, year in cited(text_of(page)):
        assert re.search(rf"{author}\b[^\n]*\b{year}\b", bibliography), (author, year)


def test_what_the_bibliography_says_is_cited_is_cited():
    works = re.findall(
        r"^\| ([\w\-]+)[^|]*\| \d{4} \|.*\|([^|]+)\|$", text_of("bibliografia.md"), re.M
    )
    assert len(works) > 60
    for author, places in works:
        for page in re.findall(r"\(([^)]+)\)", places):
            assert author in text_of(page), (author, page)
