"""Each chapter and its solutions run in a clean kernel and print what was committed."""

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

FOLDER = Path(__file__).resolve().parent
CHAPTERS = [chapter.archivo for chapter in curso.CAPITULOS]
PAGES = ["README.md", "guia_docente.md", "glosario.md", "bibliografia.md"]
CELL_SECONDS = 300
"""A cell that takes longer is taken to hang. README.md says how long a whole chapter takes."""
LARGEST_BYTES = 1_000_000
VARIES = "varia"
"""The tag of cells whose words depend on the machine: times, losses, what a model writes."""


def read(chapter: str) -> NotebookNode:
    return nbformat.read(FOLDER / chapter, as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def solutions(notebook: NotebookNode) -> Iterator[str]:
    """Yield the code that is folded away under the exercises."""
    for cell in notebook.cells:
        for folded in re.findall(r"<details>.*?</details>", cell.source, flags=re.DOTALL):
            if "<summary>Pista" in folded:  # a line of code that stands in a function to be written
                continue
            yield from re.findall(r"```python\n(.*?)```", folded, flags=re.DOTALL)


def execute(notebook: NotebookNode, sources: list[str]) -> None:
    """Run every cell, then `sources`, in one kernel."""
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in sources]
    resources = {"metadata": {"path": str(FOLDER)}}
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
    execute(fresh, list(solutions(fresh)))
    # What is committed was made with the book; without it the sample corpus takes its place.
    with_book = (FOLDER.parent / "data" / "quijote" / "meta.json").is_file()
    for old, new in zip(code_cells(committed), code_cells(fresh), strict=False):
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
    assert 3 <= exercises <= 5


@pytest.mark.parametrize("chapter", curso.CAPITULOS, ids=CHAPTERS)
def test_the_chapter_has_its_head_its_sections_in_order_and_its_foot(chapter):
    notebook = read(chapter.archivo)
    dressed = read(chapter.archivo)
    curso.vestir(dressed, chapter)
    assert dressed == notebook, "run: python notebooks/curso.py"
    assert notebook.cells[0].source.startswith(f"# {chapter}\n")
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    *sections, recap, exercises = re.findall(r"^## (.*)", text, flags=re.MULTILINE)
    numbers = [section.split()[0] for section in [*sections, recap]]
    assert numbers == [f"{chapter.numero}.{i}" for i in range(1, len(numbers) + 1)]
    assert (recap.split(maxsplit=1)[1], exercises) == ("En resumen", "Ejercicios")


def test_the_head_says_how_long_to_read_and_how_long_to_write():
    text = nbformat.v4.new_markdown_cell("palabra " * 1_800)
    blank = nbformat.v4.new_code_cell("# tu código", metadata={"tags": ["tu-turno"]})
    exercise = nbformat.v4.new_markdown_cell("<details><summary>Solución</summary>…</details>")

    def says(*cells: NotebookNode) -> str:
        return curso.duracion(curso.CAPITULOS[0], list(cells))

    assert says(text).startswith("Leerlo lleva unos 10 minutos; escribir lo tuyo, unos 0 ")
    both = says(text, blank, blank, exercise, exercise, exercise)
    assert "unos 10 minutos" in both and "unos 35 (una estimación)" in both


def test_the_first_cell_finds_the_copy_and_else_says_what_to_type_and_runs_nothing(tmp_path):
    look = "import sancho, estilo; print(sancho.__file__)"

    def run(code: str) -> str:
        # -I, -S: without what is installed, where sancho may be, too.
        command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr
        return done.stdout

    alone = run(curso.BUSCAR_LOS_MODULOS)
    assert "!git clone DIRECCIÓN sancho-mini" in alone and alone.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    for name in ("sancho/__init__.py", "notebooks/estilo.py"):
        path = tmp_path / "sancho-mini" / name
        path.parent.mkdir(parents=True)
        path.touch()
    copy = run(f"{curso.BUSCAR_LOS_MODULOS}\n{look}")
    assert Path(copy.strip()) == tmp_path.resolve() / "sancho-mini/sancho/__init__.py"


@pytest.mark.parametrize("page", [*PAGES, *CHAPTERS])
def test_links_lead_somewhere(page):
    if page.endswith(".ipynb"):
        text = "\n".join(c.source for c in read(page).cells if c.cell_type == "markdown")
    else:
        text = (FOLDER / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (FOLDER / target).exists(), target


def test_the_course_is_whole_and_its_index_names_every_chapter():
    assert sorted(path.name for path in FOLDER.glob("*.ipynb")) == sorted(CHAPTERS)
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for chapter in curso.CAPITULOS:
        assert f"[{chapter}]({chapter.archivo})" in page, chapter


def cited(text: str) -> set[tuple[str, str]]:
    """Return (first author, year) of the works that a text cites."""
    name, year = r"([A-ZÁÉÍÓÚÑ][\w\-]+)", r",? \(?((?:19|20)\d\d)\b"
    both = re.findall(rf"\b{name} y otros{year}", text)
    return set(both + re.findall(rf"\b{name} y [A-Z][\w\-]+{year}", text))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_what_a_chapter_cites_is_in_the_bibliography(chapter):
    text = "\n".join(cell.source for cell in read(chapter).cells)
    bibliography = (FOLDER / "bibliografia.md").read_text(encoding="utf-8")
    for author, year in cited(text):
        assert re.search(rf"{author}\b[^\n]*\b{year}\b", bibliography), (author, year)
