"""The built site: every link leads somewhere, nothing is fetched, everybody can use it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

SITE = Path(__file__).resolve().parent
ROOT = SITE.parent
sys.path.insert(0, str(ROOT / "notebooks"))

import curso  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
AXE = Path(os.environ.get("SANCHO_AXE") or ROOT / "node_modules/axe-core/axe.min.js")
CHAPTERS = ["04_autoatencion", "08_entrenamiento", "11_rayos_x"]
LOOKED_AT = ["index", "english", *(f"curso/{page}" for page in [*CHAPTERS, "guia_docente"])]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    pytest.importorskip("sphinx_book_theme", reason='pip install -e ".[site]"')
    if not (ROOT / "node_modules/mathjax").is_dir():
        pytest.skip("MathJax is not there: npm install --no-save axe-core mathjax@3")
    folder = tmp_path_factory.mktemp("site") / "el sitio"
    command = [sys.executable, "-m", "sphinx", "-nWq", "--keep-going", SITE, folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


class Page(HTMLParser):
    """What a page links to, what it loads, and the names that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links, self.loaded, self.names = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.names |= {given.get("id"), given.get("name")}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(given["href"])
        elif tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.loaded.append(given["src"])


@cache
def page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def pages(built: Path) -> list[Path]:
    return [path for path in built.rglob("*.html") if "_static" not in path.parts]


def test_every_link_leads_somewhere_and_nothing_comes_from_elsewhere(built):
    assert len(pages(built)) > len(curso.CAPITULOS) + 4
    for path in pages(built):
        found = page(path)
        assert not [url for url in found.loaded if re.match(r"(https?:)?//", url)], path
        for url in [*found.links, *found.loaded]:
            place, name = urldefrag(url)
            if url.startswith(f"{curso.DIRECCION}/blob/main/"):
                assert (ROOT / place.partition("/blob/main/")[2]).exists(), (path.name, url)
            if re.match(r"(https?|data|mailto):", url):
                continue
            place = unquote(place.partition("?")[0])
            target = path.parent / place if place else path
            assert target.is_file(), (path.name, url)
            if name and target.suffix == ".html":
                assert unquote(name) in page(target.resolve()).names, (path.name, url)
    for sheet in built.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", text), sheet


def test_the_picture_of_a_shared_link_is_on_the_site(built):
    text = (built / "sancho.html").read_text(encoding="utf-8")
    address = re.search(r'property="og:image" content="([^"]*)"', text)[1]
    assert (built / address.removeprefix(f"{curso.SITIO}/")).is_file(), address


def test_solutions_of_turns_are_folded(built):
    folded = '<details class="admonition hide above-input">'
    text = "".join(path.read_text(encoding="utf-8") for path in pages(built))
    cells = re.findall(r"tag_solucion(.{300})", text, re.DOTALL)
    assert cells and all(folded in cell and "Mostrar la solución" in cell for cell in cells)


@pytest.mark.parametrize("name", ["index.md", "english.md"])
def test_a_front_page_names_every_chapter_and_figures_that_were_measured(name):
    text = (SITE / name).read_text(encoding="utf-8")
    for chapter in curso.CAPITULOS:
        title = f"{chapter}" if name == "index.md" else f"{chapter.numero}."
        assert f"**{title}" in text and f"({'curso/' + chapter.archivo})" in text, chapter
    measured = "".join((ROOT / p).read_text("utf-8") for p in ("README.md", "benchmarks/README.md"))
    figures = re.findall(r"^- \*\*([\d.]+)|(\d+\.\d+)", text.partition("{.cifras}")[2], re.M)
    for bold, other in figures[:5]:
        assert (bold or other) in measured, bold or other


# --- in a browser, from a disk, without a network -------------------------------------------


@pytest.fixture(scope="module")
def chromium() -> Iterator["object"]:
    pytest.importorskip("selenium", reason="selenium is not installed")
    if not (CHROMIUM and DRIVER):
        pytest.skip("chromium or chromedriver is not installed")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER)) as driver:
        driver.set_script_timeout(300)
        driver.execute_cdp_cmd("Network.enable", {})
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        yield driver


READY = """
const done = arguments[0];
const frames = Array.from(document.querySelectorAll('.sancho-pieza iframe'));
const still = () =>
  frames.filter((f) => !f.contentDocument?.documentElement.classList.contains('lista')).length;
(async () => {
  await (window.MathJax?.startup?.promise ?? null);
  for (let i = 0; i < 400 && still(); i++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  done({
    still: still(),
    raw: document.querySelectorAll('.math:not(:has(mjx-container))').length,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  });
})();
"""
# axe does not see the formula in a heading of a table, which readers of screens get as MathML.
VIOLATIONS = """
const where = { exclude: ['th:has(mjx-container)'] };
axe.run(where, { iframes: false, preload: false }).then((r) => arguments[0](r.violations.map((v) =>
  `${v.id}: ${v.nodes.map((n) => n.target).slice(0, 5).join(' ')}`)));
"""


def complaints(chromium) -> list[str]:
    """Return what came to the console since the last look, but for the theme's own notes."""
    entries = chromium.get_log("browser")
    return [entry["message"] for entry in entries if "[PST]" not in entry["message"]]


@pytest.mark.parametrize("name", LOOKED_AT)
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_everybody_can_use_it(built, chromium, name, width, scheme):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    chromium.get((built / f"{name}.html").as_uri())
    assert chromium.execute_async_script(READY) == {"still": 0, "raw": 0, "wide": 0}
    assert complaints(chromium) == []
    if not AXE.is_file():
        pytest.skip(f"{AXE} is not there: npm install --no-save axe-core mathjax@3")
    chromium.execute_script(AXE.read_text("utf-8"))
    assert chromium.execute_async_script(VIOLATIONS) == []


def test_every_piece_starts_and_no_page_complains(built, chromium):
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    for path in pages(built):
        chromium.get(path.as_uri())
        found = chromium.execute_async_script(READY)
        assert (found["still"], found["raw"], complaints(chromium)) == (0, 0, []), path


def test_search_finds_a_word_from_a_disk(built, chromium):
    from selenium.webdriver.support.wait import WebDriverWait

    chromium.get(f"{(built / 'search.html').as_uri()}?q=softmax")
    # They come one by one.
    found = "return document.querySelectorAll('ul.search li').length"
    WebDriverWait(chromium, 60).until(lambda driver: driver.execute_script(found) >= 5)
