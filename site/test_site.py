"""The built site: every link leads somewhere, nothing is fetched, everybody can use it."""

import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import curso
import hoja

SITE = Path(__file__).resolve().parent
ROOT = SITE.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
AXE = Path(os.environ.get("SANCHO_AXE") or ROOT / "page/node_modules/axe-core/axe.min.js")
CHAPTERS = ["03_autoatencion", "08_entrenamiento", "ramas/rayos_x"]
PAGES = ["README", "docente/guia_docente", "glosario", "fuentes"]
LOOKED_AT = ["index", "english", *(f"curso/{page}" for page in [*CHAPTERS, *PAGES])]


REPOSITORY, ADDRESS = "ana/mi-sancho", "https://example.org/mi-sancho"
PROJECT = f"https://github.com/{REPOSITORY}"
PUBLISHED = {"GITHUB_REPOSITORY": REPOSITORY, "SITE_ADDRESS": f"{ADDRESS}/"}


def build(folder: Path, source: Path = SITE, **environment: str) -> subprocess.CompletedProcess:
    """Build the site, with no address but those that are given."""
    pytest.importorskip("sphinx_book_theme", reason='pip install -e ".[site]"')
    kept = {name: value for name, value in os.environ.items() if name not in PUBLISHED}
    command = [sys.executable, "-m", "sphinx", "-nWq", "--keep-going", source, folder]
    return subprocess.run(
        command, env=kept | environment, capture_output=True, text=True, timeout=300
    )


def built_site(folder: Path, **environment: str) -> Path:
    if not (ROOT / "page/node_modules/mathjax").is_dir():
        pytest.skip("MathJax is not there: npm ci")
    done = build(folder, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The site as it is built in a folder of which nobody knows an address."""
    return built_site(tmp_path_factory.mktemp("site") / "el sitio")


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    """The site as the workflow builds it."""
    return built_site(tmp_path_factory.mktemp("site") / "publicado", **PUBLISHED)


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


@pytest.mark.parametrize("which", ["built", "published"])
def test_every_link_leads_somewhere_and_nothing_comes_from_elsewhere(which, request):
    site = request.getfixturevalue(which)
    assert len(pages(site)) > len(curso.CUADERNOS) + 4
    for path in pages(site):
        found = page(path)
        assert not [url for url in found.loaded if re.match(r"(https?:)?//", url)], path
        for url in [*found.links, *found.loaded]:
            place, name = urldefrag(url)
            if url.startswith(f"{PROJECT}/blob/main/"):
                assert (ROOT / place.partition("/blob/main/")[2]).exists(), (path.name, url)
            if re.match(r"(https?|data|mailto):", url):
                continue
            place = unquote(place.partition("?")[0])
            target = path.parent / place if place else path
            assert target.is_file(), (path.name, url)
            if name and target.suffix == ".html":
                assert unquote(name) in page(target.resolve()).names, (path.name, url)
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", text), sheet


@pytest.mark.parametrize("which", ["built", "published"])
def test_the_page_leads_to_the_chapters_beside_it(which, request):
    site = request.getfixturevalue(which)
    text = (site / "sancho.html").read_text(encoding="utf-8")
    links = json.loads(re.search(r'id="facts">(.*?)</script>', text)[1])["links"]
    chapters = set(re.findall(r"'((?:\d\d_|ramas/)\w+)'", text))
    assert len(chapters) > 6
    for file in chapters:
        assert (site / links["chapter"].format(file=file)).is_file(), file
    assert (site / links["course"]).is_file()


def test_what_needs_an_address_appears_where_one_is_known_and_only_there(built, published):
    chapter = "curso/03_autoatencion.html"
    for site, project, address in ((built, "", ""), (published, PROJECT, ADDRESS)):
        text = "".join(path.read_text(encoding="utf-8") for path in pages(site))
        canonical = re.findall(r'rel="canonical" href="([^"]*)"', text)
        assert {url.startswith(f"{address}/") for url in canonical} == (
            {True} if address else set()
        )
        links = [url for path in pages(site) for url in page(path).links]
        for beginning in (
            f"https://github.com/{REPOSITORY}/blob/main/",
            f"https://colab.research.google.com/github/{REPOSITORY}/blob/main/",
        ):
            assert any(url.startswith(beginning) for url in links) == bool(project), beginning
        assert (project in page(site / chapter).links) == bool(project)  # in the head
        shared = re.findall(r'property="og:(?:url|image)" content="([^"]*)"', text)
        assert len(shared) == (2 if address else 0)
        for url in shared:
            assert (site / url.removeprefix(f"{address}/")).is_file(), url


def test_without_mathjax_the_build_stops_with_one_line(tmp_path):
    shutil.copytree(SITE, tmp_path / "site", ignore=shutil.ignore_patterns("curso"))
    for name in ("notebooks", "sancho"):
        (tmp_path / name).symlink_to(ROOT / name)
    done = build(tmp_path / "built", tmp_path / "site")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "npm ci" in line


def test_solutions_of_turns_are_folded(built):
    text = "".join(path.read_text(encoding="utf-8") for path in pages(built))
    turns = hoja.trozos(hoja.TURNOS.read_text(encoding="utf-8"))
    assert text.count("<summary>La solución</summary>") == len(turns)


@pytest.mark.parametrize(("name", "other"), [("index", "english"), ("english", "index")])
def test_a_front_page_leads_to_its_twin(built, name, other):
    assert f"{other}.html" in page(built / f"{name}.html").links


@pytest.mark.parametrize("name", ["index", "english"])
def test_a_front_page_shows_no_class_as_text(built, name):
    assert "{." not in (built / f"{name}.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["index.md", "english.md"])
def test_a_front_page_leads_to_every_chapter_and_every_branch(name):
    text = (SITE / name).read_text(encoding="utf-8")
    for chapter in curso.CUADERNOS:
        assert f"({'curso/' + chapter.archivo})" in text, chapter


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
const frames = Array.from(document.querySelectorAll('.sancho-lamina iframe'));
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
        pytest.skip(f"{AXE} is not there: npm ci")
    chromium.execute_script(AXE.read_text("utf-8"))
    assert chromium.execute_async_script(VIOLATIONS) == []


def test_every_piece_starts_and_no_page_complains(built, chromium):
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    for path in pages(built):
        chromium.get(path.as_uri())
        found = chromium.execute_async_script(READY)
        assert (found["still"], found["raw"], complaints(chromium)) == (0, 0, []), path


def test_each_sheet_for_the_class_is_printed_on_one_page(built, chromium):
    chromium.get((built / "fichas.html").as_uri())
    sheets = chromium.execute_script("return document.querySelectorAll('section').length")
    letter = {"paperWidth": 8.5, "paperHeight": 11}  # inches
    for paper in ({"preferCSSPageSize": True}, letter):
        printed = chromium.execute_cdp_cmd("Page.printToPDF", paper)
        assert len(re.findall(rb"/Type ?/Page\b", b64decode(printed["data"]))) == sheets
    # What is too tall for its sheet would be printed over the next one.
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    size = {"width": 658, "height": 1000, "deviceScaleFactor": 1, "mobile": False}  # 174 mm
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    too_tall = """return Array.from(document.querySelectorAll('section'))
        .filter((s) => s.scrollHeight > s.clientHeight).map((s) => s.firstChild.textContent)"""
    assert chromium.execute_script(too_tall) == []
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_search_finds_a_word_from_a_disk(built, chromium):
    from selenium.webdriver.support.wait import WebDriverWait

    chromium.get(f"{(built / 'search.html').as_uri()}?q=softmax")
    # They come one by one.
    found = "return document.querySelectorAll('ul.search li').length"
    WebDriverWait(chromium, 60).until(lambda driver: driver.execute_script(found) >= 5)
