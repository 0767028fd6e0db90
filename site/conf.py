"""Sphinx builds the site of the course from the front pages here and the chapters in notebooks/.

npm ci --prefix page
sphinx-build -nW site build/site

The chapters are not executed. If the environment has GITHUB_REPOSITORY (OWNER/NAME), the site links
to that repository, and each chapter to Colab. SITE_ADDRESS is the address at which the site will be
published; the pages state it for people who share them.
"""

import ast
import os
import re
import shutil
import sys
from base64 import b64decode
from pathlib import Path

import nbformat

SITE = Path(__file__).resolve().parent
ROOT = SITE.parent
PRINTED = "notebooks/docente/fichas.html"
NOTEBOOKS, COURSE = ROOT / "notebooks", SITE / "curso"
sys.path[:0] = [str(NOTEBOOKS / "taller"), str(ROOT)]

import curso
from sancho.convert import page

MATHJAX = ROOT / "page/node_modules/mathjax/es5/tex-svg-full.js"
REPOSITORY = os.environ.get("GITHUB_REPOSITORY", "")
PROJECT = REPOSITORY and page.Links.to_repository(REPOSITORY).project
ADDRESS = os.environ.get("SITE_ADDRESS", "").rstrip("/")
FOR_TEACHERS = ["docente/guia_docente.md"]
PAGES = ["README.md", "escalera.md", "glosario.md", "bibliografia.md", "fuentes.md", *FOR_TEACHERS]
IN_COURSE = {f"notebooks/{name}" for name in [*PAGES, *(c.archivo for c in curso.CUADERNOS)]}
DRAWINGS = {
    "modelo": "El modelo entero, del texto a la letra siguiente",
    "bloque": "Un bloque: dos subcapas, cada una con su normalización y su residual",
    "camino": "El camino de la «h» de «la Manch», hasta la «a» que el modelo elige",
    "bucle": "El bucle del entrenamiento",
}
"""The alternative texts of the drawings of dibujos.py."""

project = "sancho-mini"
language = "es"
extensions = ["myst_nb"]
templates_path = ["templates"]
nb_execution_mode = "off"
nb_code_prompt_show = "Mostrar el código"
nb_code_prompt_hide = "Ocultar el código"
myst_enable_extensions = ["dollarmath", "attrs_block", "attrs_inline"]
myst_heading_anchors = 3

html_theme = "sphinx_book_theme"
html_title = "sancho-mini"
html_baseurl = ADDRESS and f"{ADDRESS}/"
# MathJax 4 fetches fonts and speech as it runs; this file of version 3 is enough by itself.
html_static_path = ["static", str(MATHJAX)]
html_css_files = ["site.css"]
mathjax_path = MATHJAX.name
mathjax3_config = {"svg": {"fontCache": "global"}}
html_copy_source = False
html_use_index = False
html_show_sphinx = False
html_show_search_summary = False  # it would fetch pages, which a browser refuses from a disk
html_context = {"default_mode": "auto"}
html_sidebars = {"**": ["buscar.html", "sbt-sidebar-nav.html"]}
html_theme_options = {
    "navbar_persistent": [],
    "search_bar_text": "Buscar",
    "repository_url": PROJECT,
    "use_repository_button": bool(PROJECT),
    "use_download_button": False,
    "home_page_in_toc": True,
    "toc_title": "En esta página",
    "footer_content_items": ["extra-footer"],
    "extra_footer": "sancho-mini, con licencia MIT.",
}


def relink(text: str, folder: Path = NOTEBOOKS) -> str:
    """Lead links that leave the site to the repository, or keep only their words if none is known.

    Links to the page, and to the printed sheets for lessons, lead to their copies in the site.
    """
    top = Path(os.path.relpath(ROOT, folder)).as_posix()  # a page here is as deep as it is there

    def lead(match: re.Match) -> str:
        words, target, fragment = match[1], match[2], match[3] or ""
        path = Path(os.path.relpath(folder / target, ROOT)).as_posix()
        is_here = path in IN_COURSE or path.startswith("site/")
        if is_here or not (folder / target).exists():
            return match[0]
        if path == "docs/index.html":
            return f"[{words}]({top}/sancho.html){{.external}}"
        if path == PRINTED:
            return f"[{words}]({top}/fichas.html){{.external}}"
        return f"[{words}]({PROJECT}/blob/main/{path}{fragment})" if PROJECT else words

    return re.sub(r"(?<!!)\[([^\[\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)", lead, text)


def without_checks(source: str) -> str:
    """Leave out blocks that only assert that the chapter's prose fits the book, and print
    nothing."""
    lines = source.splitlines()
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "corpus.name == 'quijote'":
            block = ast.unparse(node)
            if "assert " in block and "print(" not in block:
                del lines[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines).rstrip()


def head(source: str, chapter: curso.Capitulo) -> str:
    """Return a chapter's head without its links, and with buttons to run the chapter."""
    title, _, _, minutes = source.split("\n\n")
    return "\n\n".join([title, minutes, *buttons(f"notebooks/{chapter.archivo}")])


def buttons(path: str) -> list[str]:
    """Return the paragraph of links to a notebook, or [] if no repository is known."""
    if not REPOSITORY:
        return []
    colab = f"https://colab.research.google.com/github/{REPOSITORY}/blob/main/{path}"
    notebook = f"{PROJECT}/blob/main/{path}"
    return [f"{{.botones}}\n[Abrir en Colab]({colab}) [Ver el cuaderno]({notebook})"]


def description(source: str) -> str:
    """Return a description of a cell's figure: that of its drawing, or the titles in it."""
    drawing = re.search(r"dibujos\.(\w+)\((?:aqui=\"(.*?)\")?", source)
    if drawing and drawing[1] in DRAWINGS:  # and no drawing that a cell makes of its parts
        return DRAWINGS[drawing[1]] + (f"; estás aquí: {drawing[2]}" if drawing[2] else "")
    return "; ".join(re.findall(r'title[(=]\s*"([^"]+)"', source))


def dress(notebook: nbformat.NotebookNode, chapter: curso.Capitulo) -> None:
    """Fold the cells that notebooks fold, and leave out those that are only for notebooks."""
    first, *others = notebook.cells
    first.source = head(first.source, chapter)
    notebook.cells, section = [first], str(chapter)
    for cell in others:
        tags = curso.etiquetas(cell)
        if tags & {curso.PREPARAR, curso.PIE}:
            continue
        notebook.cells.append(cell)
        if cell.cell_type == "markdown":
            section = (re.findall(r"^## (.*)", cell.source, re.MULTILINE) or [section])[-1]
            cell.source = relink(cell.source, (NOTEBOOKS / chapter.archivo).parent)
            continue
        gives_away = "respuesta=" in cell.source  # the answer to a piece's question
        if cell.metadata.get("jupyter", {}).get("source_hidden") or gives_away:
            cell.metadata.tags = [*tags, "hide-input"]
        alt = description(cell.source) or f"Figura de «{section}»"
        cell.metadata["mystnb"] = {"image": {"alt": alt}}
        cell.source = without_checks(cell.source)


def picture(notebook: nbformat.NotebookNode) -> bytes:
    """Return the figure that stands for a chapter on the front pages."""
    cell = next(cell for cell in notebook.cells if "portada" in curso.etiquetas(cell))
    return b64decode(next(o.data["image/png"] for o in cell.outputs if "image/png" in o.data))


def bring_course(app: object) -> None:
    """Write chapters, their pictures and the course's pages where Sphinx reads them."""
    shutil.rmtree(COURSE, ignore_errors=True)
    for folder in ("ramas", "docente"):
        (COURSE / folder).mkdir(parents=True)
    for chapter in curso.CUADERNOS:
        path = COURSE / chapter.archivo
        notebook = nbformat.read(NOTEBOOKS / chapter.archivo, as_version=4)
        if chapter in curso.CAPITULOS:
            path.with_suffix(".png").write_bytes(picture(notebook))
        dress(notebook, chapter)
        nbformat.write(notebook, path)
    for name in PAGES:
        path = NOTEBOOKS / name
        text = relink(path.read_text(encoding="utf-8"), path.parent)
        (COURSE / name).write_text(text, encoding="utf-8")


def mend(app: object, pagename: str, template: str, context: dict, doctree: object) -> None:
    """Mark the page in English as such, and mend what screen readers would read wrongly."""
    context["language"] = "en" if pagename == "english" else language
    body = context.get("body", "").replace(' aria-label="Toggle hidden content"', "")
    body = re.sub(r'<th class="head">\s*(<p></p>)?\s*</th>', "<td></td>", body)
    # A figure opens by itself, larger, where a phone makes it small.
    figure = r'<img [^>]*src="([^"]*/[0-9a-f]{64}\.png)"[^>]*>'
    context["body"] = re.sub(figure, r'<a class="figura" href="\1">\g<0></a>', body)


def relink_front(app: object, name: str, source: list[str]) -> None:
    """Change the links of a front page as those of the course are changed."""
    if "/" not in name:
        source[0] = relink(source[0], SITE)


def bring_page(app: object, exception: Exception | None) -> None:
    """Copy the page with the model into the site, with links to the site's own pages."""
    if exception:
        return
    links = page.Links(
        project=PROJECT,
        course="index.html",
        chapter="curso/{file}.html",
        page=ADDRESS and f"{ADDRESS}/sancho.html",
        picture=ADDRESS and f"{ADDRESS}/_images/page-light.png",
    )
    text = (ROOT / "docs" / "index.html").read_text(encoding="utf-8")
    path = Path(app.outdir) / "sancho.html"
    path.write_text(page.relinked(text, links), encoding="utf-8", newline="\n")
    shutil.copy(ROOT / PRINTED, Path(app.outdir) / "fichas.html")


def setup(app: object) -> None:
    """Called by Sphinx."""
    if not MATHJAX.is_file():
        sys.exit("MathJax is missing; install it with: npm ci --prefix page")
    if REPOSITORY:
        app.tags.add("repository")
    app.connect("builder-inited", bring_course)
    app.connect("source-read", relink_front)
    app.connect("html-page-context", mend)
    app.connect("build-finished", bring_page)
