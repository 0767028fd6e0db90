"""The pieces compute in a browser what Python computes; where no script runs, a figure is shown."""

import html
import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

import bpe
import curso
from sancho.checkpoint import pretrained
from sancho.config import ModelConfig, SampleConfig
from sancho.generate import shape_logits
from sancho.model import make_norm
from ver import dibujos, laminas

FOLDER = Path(__file__).resolve().parent.parent
CHAPTERS = [chapter.archivo for chapter in curso.CUADERNOS]
LARGEST_BYTES = 60_000
HOSTILE = "</script><img src=x onerror=alert(1)> \u2028 &quot; \"' {{datos}}\n"
LOGITS = [3.1, 2.2, 1.4, 0.3, -1.0]
OPTIONS = ["a", "o", " ", "e", "\n"]
MANY = np.random.default_rng(1).normal(0, 2, 40).round(2)
TWISTER = "tres tristes tigres tragaban trigo en un trigal"
TEXT = "—Señor —dijo Sancho"


def switched(sublayers: int = 6, T: int = len(TEXT)) -> dict:
    """Return made-up surprises, guesses and losses for every way to switch sublayers off."""
    rng = np.random.default_rng(2)
    surprises = rng.exponential(2, (1 << sublayers, T))
    guesses = ["".join(rng.choice(list("aeiou \n"), T)) for _ in surprises]
    return {"sorpresas": surprises, "apuestas": guesses, "perdidas": surprises.mean(1) + 1}


def weights(n_layer: int = 3, n_head: int = 4, T: int = len(TEXT)) -> np.ndarray:
    scores = torch.randn(n_layer, n_head, T, T, generator=torch.Generator().manual_seed(0)) * 2
    future = torch.ones(T, T).triu(1).bool()
    return scores.masked_fill(future, -torch.inf).softmax(-1).numpy()


MINE = "una frase que no cabe en lo ancho de un teléfono de mano"
"""What a reader asks the piece to show, beside the chapter's own."""


def mine() -> np.ndarray:
    return weights(T=len(MINE))[::-1]


WORDS = ["El", "gato", "juega"]
TABLES = torch.tensor(
    [
        [[0.1, 0.2, 0.3], [0.5, 0.6, 0.7], [0.8, 0.7, 0.6]],
        [[0.2, 0.3, 0.1], [0.6, 0.5, 0.4], [0.9, 0.8, 0.5]],
        [[0.05, 0.1, 0.15], [0.7, 0.9, 0.2], [0.4, 0.8, 0.9]],
    ]
).numpy()
"""Queries, keys and values of chapter 3."""


def pairs() -> list[tuple[str, str, np.ndarray]]:
    """Cards, what is written from them, and where each letter looks."""
    generator = torch.Generator().manual_seed(0)
    texts = (("Mãcha, la", "la Mancha"), ("gẽte, la", "la gente"), ("Pãza, Sãcho", "Sancho Panza"))
    looks = [3 * torch.randn(len(b) + 1, len(a) + 1, generator=generator) for a, b in texts]
    looks[1] = looks[1][:-1]  # a text that was cut off before its end
    return [(a, b, table.softmax(-1).numpy()) for (a, b), table in zip(texts, looks, strict=True)]


STEPS = list(range(0, 1001, 100))
LOSSES = [1.2 + 3 / (1 + n / 100) for n in STEPS]
EXAMPLES: dict[str, Callable[[], laminas.Lamina]] = {
    "bpe": lambda: laminas.bpe(TWISTER, 20),
    "giro": laminas.giro,
    "norma": laminas.norma,
    "neuronas": laminas.neuronas,
    "subcapas": lambda: laminas.subcapas(TEXT, **switched()),
    "softmax": lambda: laminas.softmax(LOGITS, OPTIONS),
    "sorteo": lambda: laminas.sorteo(MANY, [chr(0xC0 + i) for i in range(40)]),
    "atencion": lambda: laminas.atencion(TEXT, weights(), capa=1, otras=[(MINE, mine())]),
    "curva": lambda: laminas.curva(
        STEPS, LOSSES, [*LOSSES[:-1], float("nan")], [(0, "xq"), (300, "de la"), (1000, "Sancho")]
    ),
    "descenso": laminas.descenso,
    "mezcla": lambda: laminas.mezcla(WORDS, *TABLES),
    "alineamiento": lambda: laminas.alineamiento(pairs()),
}


# --- the HTML -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_piece_is_small_and_asks_for_nothing(name):
    piece = EXAMPLES[name]()
    bundle = piece._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert piece.pregunta in bundle["text/plain"]
    assert html.escape(piece.pregunta) in bundle["text/html"]
    assert html.escape(piece.respuesta) in bundle["text/html"]
    assert len(bundle["text/html"].encode()) < LARGEST_BYTES
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", bundle["text/html"])
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", piece.pagina())
    assert bundle == EXAMPLES[name]()._repr_mimebundle_()


def test_the_largest_attention_that_a_chapter_shows_is_small_too():
    text = "En un lugar de la Mancha, de cuyo nombre no quiero acordarme"
    piece = laminas.atencion(text, weights(5, 4, len(text)))
    assert len(piece.html().encode()) < 1.5 * LARGEST_BYTES


def test_switches_that_do_not_fit_are_refused():
    whole = switched()
    for wrong, complaint in (
        ({"perdidas": whole["perdidas"][:32]}, "32 pérdidas"),
        ({"perdidas": whole["perdidas"][1:]}, "63 pérdidas"),
        ({"sorpresas": whole["sorpresas"][:, 1:]}, "19 letras"),
        ({"apuestas": whole["apuestas"][1:]}, "una apuesta por letra"),
    ):
        with pytest.raises(ValueError, match=complaint):
            laminas.subcapas(TEXT, **whole | wrong)


def test_ten_sublayers_are_not_much_larger():
    piece = laminas.subcapas(TWISTER, **switched(10, len(TWISTER)))
    assert len(piece.html().encode()) < 2.5 * LARGEST_BYTES  # made-up guesses hardly shrink


def test_no_text_becomes_html():
    piece = laminas.softmax([1.0, 2.0], [HOSTILE, "b"], pregunta=HOSTILE, respuesta=HOSTILE)
    inside = piece.pagina()
    data = re.search(r'id="datos">(.*?)</script>', inside, re.DOTALL)[1]
    assert json.loads(data)["etiquetas"][0] == HOSTILE
    assert "<" not in data
    assert inside.count("</script>") == 2
    outside = re.sub(r' srcdoc="[^"]*"', "", piece.html())
    assert set(re.findall(r"<(\w+)", outside)) <= set(
        "div p b iframe img small details summary".split()
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_two_scripts_have_a_name_in_common(name):
    names = re.findall(
        r"^(?:async )?(?:function|class|const|let) (\w+)", EXAMPLES[name]().pagina(), re.MULTILINE
    )
    assert len(set(names)) == len(names)


def test_every_source_is_used():
    used = {"comun.js", "marco.css"} | {
        f"{name}.{kind}" for name in EXAMPLES for kind in ("js", "css")
    }
    assert {path.name for path in laminas.CARPETA.iterdir()} <= used


def test_what_cannot_be_shown_is_refused():
    with pytest.raises(ValueError, match="19 letras"):
        laminas.atencion(TEXT, np.ones((2, 3, 3)))
    with pytest.raises(ValueError, match="de mano» tiene 56 letras"):
        laminas.atencion(TEXT, weights(), otras=[(MINE, weights())])
    with pytest.raises(ValueError, match="capa=3"):
        laminas.atencion(TEXT, weights(), capa=3)
    with pytest.raises(ValueError, match="por paso"):
        laminas.curva([0, 1], [1.0], [1.0], [(0, "x")])
    with pytest.raises(ValueError, match="una fila por palabra"):
        laminas.mezcla(WORDS[:2], *TABLES)
    with pytest.raises(ValueError, match=r"de 0\.05 en 0\.05"):
        laminas.mezcla(WORDS, *TABLES + 0.02)
    for wrong in ([1, 2, 3], [1, 2, 3, 11], [1, 2, 3, 0.2]):
        with pytest.raises(ValueError, match="cuatro números"):
            laminas.norma(wrong)
    with pytest.raises(ValueError, match=r"«la» → «le», y los pesos son \(2, 2\)"):
        laminas.alineamiento([("la", "le", np.ones((2, 2)))])


# --- what Python computes -------------------------------------------------------------------


def plain_bpe(words: list[str], steps: int) -> list[tuple[str, str, int]]:
    """The plainest BPE there is: join the most frequent pair, the last one among equals."""
    words, merges = [list(word) for word in words], []
    for _ in range(steps):
        counts: dict[tuple[str, str], int] = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        times = max(counts.values())
        if times < 2:
            break
        a, b = max(pair for pair in counts if counts[pair] == times)
        before = sum(map(len, words))
        for word in words:
            for i in range(len(word) - 1, -1, -1):  # no pair of these overlaps itself
                if word[i : i + 2] == [a, b]:
                    word[i : i + 2] = [a + b]
        merges.append((a, b, before - sum(map(len, words))))
    return merges


def test_merges_are_those_of_a_plain_bpe():
    words = bpe.cortar(TWISTER)
    assert "".join(words) == TWISTER
    assert bpe.aprender(Counter(words), 20) == plain_bpe(words, 20)
    assert bpe.fundir(tuple("aaa"), ("a", "a")) == ("aa", "a")


def descend(rate: float, momentum: float, steps: int) -> list[list[float]]:
    """Where torch.optim.SGD goes."""
    curves = torch.tensor(laminas.VALLE["curvas"], dtype=torch.float64)
    ball = torch.tensor(laminas.VALLE["salida"], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([ball], lr=rate, momentum=momentum)
    path = [ball.tolist()]
    for _ in range(steps):
        optimizer.zero_grad()
        (0.5 * curves @ ball**2).backward()
        optimizer.step()
        path.append(ball.tolist())
    return path


@pytest.mark.parametrize(("rate", "momentum"), [(0.05, 0), (0.18, 0), (0.17, 0.5), (0.21, 0)])
def test_the_ball_goes_where_sgd_goes(rate, momentum):
    path = laminas.bajar(rate, momentum)
    np.testing.assert_allclose(path, descend(rate, momentum, len(path) - 1), atol=1e-9)


def test_the_answer_of_the_descent_is_true():
    def steps(rate: float, momentum: float) -> float:
        path = laminas.bajar(rate, momentum)
        arrived = 0.5 * path[-1] ** 2 @ laminas.VALLE["curvas"] < laminas.VALLE["cerca"]
        return len(path) - 1 if arrived else np.inf

    rates = np.arange(1, 41) / 100
    assert min((steps(rate, 0), rate) for rate in rates) == (22, 0.18)
    assert steps(0.2, 0) == steps(0.21, 0) == np.inf
    assert min(steps(rate, m / 20) for rate in rates for m in range(20)) == steps(0.17, 0.5) == 6


def normalize(x) -> dict[str, np.ndarray]:
    """What torch's own functions make of a vector, with the project's ε."""
    x = torch.as_tensor(x, dtype=torch.float64)
    kinds = {"LayerNorm": torch.nn.functional.layer_norm, "RMSNorm": torch.nn.functional.rms_norm}
    return {
        name: kind(x, (len(x),), eps=make_norm(small(name)).eps).numpy()
        for name, kind in kinds.items()
    }


def small(norm: str) -> ModelConfig:
    return ModelConfig(n_embd=4, n_head=1, norm=norm.lower())


VECTORS = [
    [1, 0, -3, 4],
    [3, 3, 3, 3],
    [0, 0, 0, 0],
    [-10, 10, 9.5, -0.5],
    [0.001, 0, -0.003, 0.004],  # ε counts here
    np.random.default_rng(3).normal(5, 2, 4).tolist(),
]


@pytest.mark.parametrize("x", VECTORS)
def test_the_normalizations_of_the_figure_are_those_of_torch(x):
    ours = laminas.normalizar(np.array(x, dtype=float))
    for name, theirs in normalize(x).items():
        np.testing.assert_allclose(ours[name], theirs, atol=1e-12)


def test_the_answer_of_the_normalizations_is_true():
    x = np.array([1.0, 0, -3, 4])

    def notices(name: str, changed: np.ndarray) -> bool:
        return not np.allclose(normalize(changed)[name], normalize(x)[name], atol=1e-4)

    assert not notices("LayerNorm", x + 1)
    assert not notices("LayerNorm", 2 * x)
    assert notices("RMSNorm", x + 1)
    assert not notices("RMSNorm", 2 * x)
    for equal in (3, -2):
        found = normalize(np.full(4, equal))
        assert (found["LayerNorm"] == 0).all()
        np.testing.assert_allclose(found["RMSNorm"], np.sign(equal), atol=1e-6)
    assert not any(found.any() for found in normalize(np.zeros(4)).values())


def test_the_answer_of_the_neurons_is_true():
    x, target = laminas.meta_quebrada()
    corners, slopes = (laminas.QUEBRADA[name] for name in ("esquinas", "pendientes"))
    relu = torch.relu(torch.tensor(x)[:, None] - torch.tensor(corners))
    np.testing.assert_allclose(target, relu @ torch.tensor(slopes).double())
    np.testing.assert_allclose(laminas.mejor_suma(corners), target, atol=1e-9)
    best_line = ((np.polyval(np.polyfit(x, target, 1), x) - target) ** 2).mean()
    assert ((laminas.mejor_suma([]) - target) ** 2).mean() == pytest.approx(best_line)
    # The sliders go by halves: no sum of three of their lines is better than the best of all.
    lines = [(a, c) for a in np.arange(-9, 9.5, 0.5) for c in np.arange(-9, 9.25, 0.25)]
    reached = min(((a * x + c - target) ** 2).mean() for a, c in lines)
    assert f"{best_line:.2f}" == f"{reached:.2f}" == "1.15"
    piece = laminas.neuronas()
    assert "1.15" in piece.respuesta
    assert all(
        f"{slope:g} en {corner:g}".replace("-", "−") in piece.respuesta
        for corner, slope in zip(corners, slopes)
    )


def test_the_answer_of_the_switches_is_computed():
    on = np.array([[i >> (3 - k) & 1 for k in range(4)] for i in range(16)])
    off = 1 - on
    losses = 1 + off @ [0.5, 0.1, 0.2, 0.3] + 0.7 * off[:, 0] * off[:, 3]
    answer = laminas.lo_que_se_apaga(losses)
    assert "La atención del bloque 1: sin ella la pérdida pasa de 1.00 a 1.50." in answer
    assert "La que menos, la feed-forward del bloque 1: 1.10." in answer
    assert (
        "la atención del bloque 1 vale a solas 0.50 y la feed-forward del bloque 2, 0.30" in answer
    )
    assert "sin las dos la pérdida sube 1.50" in answer


# --- the drawings ---------------------------------------------------------------------------

DRAWINGS = ("modelo", "bloque", "camino", "bucle")


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings_mark_their_parts(name):
    draw, parts = getattr(dibujos, name), getattr(dibujos, name.upper())
    for part in (None, *parts):
        assert draw(part) is None
        figure = plt.gcf()
        texts = figure.axes[0].texts
        marks = sum(text.get_text() == "estás aquí" for text in texts)
        assert (marks > 0) == (part is not None)
        assert min(text.get_fontsize() for text in texts) >= 9
        plt.close(figure)
    with pytest.raises(ValueError, match=parts[-1]):
        draw("cocina")


def test_the_path_of_a_letter_has_the_numbers_of_the_box():
    saved = pretrained()
    ids = saved.tokenizer.encode("la Manch").astype(int)
    assert ids[-1] == dibujos.IDENTIFICADOR
    with torch.no_grad():
        logits = saved.build_model().eval()(torch.tensor(ids[None]))[0, -1]
    best = logits.argsort(descending=True)[:3]
    assert tuple(saved.characters[i] for i in best) == dibujos.LETRAS
    np.testing.assert_allclose(logits[best], dibujos.LOGITS, atol=0.051)
    np.testing.assert_allclose(logits.softmax(0)[best], dibujos.PROBABILIDADES, atol=0.00051)


# --- a browser ------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
SHELL = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Cuaderno</title>'
    '<meta name="viewport" content="width=device-width"><meta name="color-scheme" '
    'content="light dark"><main>{}</main></html>'
)


@pytest.fixture(scope="module")
def chromium() -> Iterator["object"]:
    """Chromium without a window and without a network, for all tests."""
    pytest.importorskip("selenium", reason="selenium is not installed")
    if not (CHROMIUM and DRIVER):
        pytest.skip("chromium or chromedriver is not installed")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=900,900"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER)) as driver:
        driver.set_script_timeout(30)
        driver.execute_cdp_cmd("Network.enable", {})
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        yield driver


class Tab:
    """The HTML of a piece as a notebook shows it; the script looks from inside its frame."""

    def __init__(self, driver, path: Path, output: str) -> None:
        self.driver = driver
        path.write_text(SHELL.format(output), encoding="utf-8")
        driver.get_log("browser")
        driver.get(path.as_uri())

    def enter(self, number: int = 0) -> None:
        """Go into a frame, once its piece has started."""
        self.driver.switch_to.default_content()
        self.driver.switch_to.frame(number)
        self.wait("document.documentElement.classList.contains('lista')")

    def js(self, expression: str, *args):
        return self.driver.execute_script(f"return ({expression});", *args)

    def wait(self, condition: str, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not self.js(f"Boolean({condition})"):
            assert time.monotonic() < end, condition
            time.sleep(0.02)

    def find(self, selector: str):
        return self.driver.find_element("css selector", selector)

    def press(self, words: str) -> None:
        """Click a button where a finger would."""
        button = self.driver.find_element("xpath", f"//button[contains(., '{words}')]")
        self.js("arguments[0].scrollIntoView({ block: 'center' })", button)
        button.click()

    def slide(self, label: str, keys: str) -> None:
        """Move a slider by the keyboard."""
        slider = self.driver.find_element("xpath", f"//label[contains(., '{label}')]/input")
        slider.send_keys(keys)

    @property
    def status(self) -> str:
        return self.find("[role=status]").text

    def rows(self) -> list[list[str]]:
        cells = "(row) => [...row.children].map((cell) => cell.innerText.trim())"
        return self.js(f"[...document.querySelectorAll('tbody tr')].map({cells})")

    def close(self) -> None:
        self.driver.switch_to.default_content()
        assert [entry["message"] for entry in self.driver.get_log("browser")] == []


@pytest.fixture
def show(chromium, tmp_path) -> Iterator[Callable[[str], Tab]]:
    """Open the HTML of an output; at the end nothing may stand in the console."""
    tabs = []

    def open_output(output: str) -> Tab:
        tabs.append(Tab(chromium, tmp_path / f"cuaderno {len(tabs)}.html", output))
        return tabs[-1]

    yield open_output
    for tab in tabs[-1:]:
        tab.close()


def opened(show, name: str) -> Tab:
    tab = show(EXAMPLES[name]().html())
    tab.enter()
    return tab


def axe() -> Path | None:
    """axe-core is not part of the project: npm ci, or its path in SANCHO_AXE."""
    place = os.environ.get("SANCHO_AXE") or FOLDER.parent / "page/node_modules/axe-core/axe.min.js"
    return Path(place) if Path(place).is_file() else None


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (900, "light")])
def test_everybody_can_use_it(show, name, width, scheme):
    tab = show(EXAMPLES[name]().html())
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    tab.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    tab.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        tab.enter()
        tab.driver.switch_to.default_content()
        fits = "Math.abs(frames[0].document.body.offsetHeight - frames[0].innerHeight) < 2"
        tab.wait(fits)
        assert not tab.find("img").is_displayed()
        assert tab.js("document.documentElement.scrollWidth") <= width
        tab.enter()
        assert tab.js("document.documentElement.scrollWidth <= innerWidth")
        outside = "(node) => node.getBoundingClientRect().right > innerWidth + 1"
        every = "Array.from(document.querySelectorAll('td, th, p, svg, button, input, select'))"
        assert tab.js(f"{every}.filter({outside})") == []
        if axe():
            tab.driver.execute_script(axe().read_text("utf-8"))
            found = tab.driver.execute_async_script(
                "axe.run(document, { rules: { region: { enabled: false }, 'page-has-heading-one':"
                " { enabled: false } } }).then((r) => arguments[0](r.violations.map((v) =>"
                " `${v.id}: ${v.nodes.map((n) => n.target).join(' ')}`)))"
            )
            assert found == []
    finally:
        tab.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        tab.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("name", EXAMPLES)
def test_without_scripts_the_figure_stands_in(show, name):
    piece = EXAMPLES[name]()
    tab = show("")
    tab.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        for output in (piece.html(), re.sub(r"<iframe.*?</iframe>", "", piece.html())):
            tab = Tab(tab.driver, Path(tab.driver.current_url[7:].replace("%20", " ")), output)
            figure = tab.find("img")
            assert figure.is_displayed()
            assert len(figure.get_attribute("alt")) > 40
            assert figure.size["width"] > 400
            for frame in tab.driver.find_elements("tag name", "iframe"):
                assert frame.size["height"] == 0
    finally:
        tab.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_softmax_is_that_of_torch(show):
    from selenium.webdriver import Keys

    tab = opened(show, "softmax")
    assert [row[0] for row in tab.rows()] == ["a", "o", "esp.", "e", "↵"]
    for keys, T in (("", 1.0), (Keys.END, 10.0), (Keys.HOME, 0.1), (Keys.ARROW_RIGHT * 14, 0.5)):
        tab.slide("Temperatura", keys)
        T = tab.js("temperatura.valor") if T == 0.5 else T
        expected = torch.softmax(torch.tensor(LOGITS) / T, 0)
        for row, p in zip(tab.rows(), expected.tolist()):
            assert row[3] == (f"{100 * p:.1f}\u00a0%" if p >= 0.0005 else "< 0.1\u00a0%")
        entropy = -(expected * expected.clamp_min(1e-30).log()).sum()
        assert f"entre {entropy.exp():.1f} opciones" in tab.status
    assert 0.45 < T < 0.55


def test_the_draw_is_that_of_the_sampler(show):
    from selenium.webdriver import Keys

    tab = opened(show, "sorteo")
    source = np.random.SeedSequence(1605, spawn_key=(3, 0))
    numbers = np.random.Generator(np.random.PCG64(source)).random(100)
    settings = {}
    for label, name, keys, value in (
        ("Temperatura", "temperature", Keys.ARROW_LEFT * 8, 0.6),
        ("top-k", "top_k", Keys.ARROW_LEFT * 30, 10),
        ("top-p", "top_p", Keys.ARROW_LEFT * 4, 0.8),
        ("min-p", "min_p", Keys.ARROW_RIGHT * 20, 0.2),
    ):
        tab.slide(label, keys)
        settings[name] = value
        options = {"temperature": 1.0} | settings
        shaped = shape_logits(MANY[None].astype(np.float32), SampleConfig(**options))[0]
        found = tab.js("Array.from(softmax(conMandos()))")
        expected = torch.softmax(torch.tensor(np.asarray(shaped, float)), 0).numpy()
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert f"Pueden salir {(expected > 0).sum()} de 40" in tab.status
        tab.press("Sortea")
        drawn = np.searchsorted(expected.cumsum(), numbers, side="right")
        counts = np.bincount(drawn, minlength=40)
        assert f"salieron {(counts > 0).sum()}" in tab.status
        best = np.argsort(-MANY, kind="stable")[:14]
        for row, i in zip(tab.rows(), best):
            assert row[1] == (str(counts[i]) if expected[i] else "fuera")


def test_merges_in_the_browser_are_those_of_python(show):
    tab = opened(show, "bpe")
    words = bpe.cortar(TWISTER)
    merges = plain_bpe(words, 20)
    pieces = [tuple(word) for word in words]
    shown = "[...document.querySelectorAll('.palabra')].map((w) => [...w.children].map((p) => p.textContent))"
    for step, (a, b, times) in enumerate(merges, start=1):
        assert tab.js("contarPares(despuesDe(paso))[0]") == [a, b, times]
        tab.press("Funde")
        pieces = [bpe.fundir(word, (a, b)) for word in pieces]
        assert tab.js(shown) == [[p.replace(" ", "·") for p in word] for word in pieces]
        assert f"Fusión {step}" in tab.status
        assert f"El texto mide {sum(map(len, pieces))} tokens" in tab.find("main").text
    assert not tab.find(".primary").is_enabled()
    tab.press("Deshaz")
    assert f"Fusión {len(merges) - 1}" in tab.status
    tab.js("mando.mover(0)")
    assert f"El texto mide {len(TWISTER)} tokens" in tab.find("main").text


def test_the_product_depends_on_the_difference_alone(show):
    from selenium.webdriver import Keys

    tab = opened(show, "giro")
    found = np.array(
        tab.js(
            "Array.from({ length: 13 }, (_, a) => Array.from({ length: 13 }, (_, b) =>"
            " { m.mover(a); n.mover(b); return escalar(...angulos()); }))"
        )
    )

    def turned(vector: np.ndarray, position: int) -> np.ndarray:
        angle = np.radians(15 * position)
        return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ vector

    q, k = np.array([1.0, 0.0]), np.array([1.0, 1.0]) / np.sqrt(2)
    expected = [[turned(q, m) @ turned(k, n) for n in range(13)] for m in range(13)]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    for d in range(-12, 13):
        np.testing.assert_allclose(np.diagonal(found, d), np.diagonal(found, d)[0], atol=1e-12)
    ones = np.argwhere(found > 0.995)
    assert len(ones) == 10
    assert set(ones[:, 0] - ones[:, 1]) == {3}
    tab.js("(m.mover(5), n.mover(2))")
    assert tab.status == "q · k = 1.00"
    tab.press("las dos →")
    assert tab.status == "q · k = 1.00"
    assert tab.rows()[0] == ["6", "3", "3", "1.00"]
    tab.slide("Clave", Keys.ARROW_RIGHT)
    assert tab.status == f"q · k = {np.cos(np.radians(15)):.2f}"


def test_normalizations_in_the_browser_are_those_of_torch(show):
    from selenium.webdriver import Keys

    tab = opened(show, "norma")
    for x in VECTORS:
        found = tab.js("[layerNorm(arguments[0]), rmsNorm(arguments[0])]", x)
        np.testing.assert_allclose(found, list(normalize(x).values()), atol=1e-12)

    def written(number: float) -> str:
        return f"{number:.2f}".replace("-0.00", "0.00").replace("-", "−")

    def check(*x: float) -> None:
        columns = [np.array(x, dtype=float), *normalize(x).values()]
        *channels, mean, deviation, rms = tab.rows()
        for i, row in enumerate(channels):
            assert row == [str(i + 1), *(written(column[i]) for column in columns)]
        assert mean == ["media", *(written(c.mean()) for c in columns)]
        assert deviation == ["desviación típica", *(written(c.std()) for c in columns)]
        means_of_squares = [(c**2).mean() for c in columns]
        assert rms == ["media cuadrática", *(written(m**0.5) for m in means_of_squares)]

    check(1, 0, -3, 4)
    tab.press("Suma 1")
    check(2, 1, -2, 5)
    tab.press("Multiplica")
    check(4, 2, -4, 10)
    assert "hidden" in tab.find("[role=status]").get_attribute("class")
    tab.press("Multiplica")
    assert tab.status == "No cabe: alguno se saldría de −10 a 10."
    check(4, 2, -4, 10)
    tab.slide("Canal 3", Keys.HOME + Keys.ARROW_RIGHT * 2)
    check(4, 2, -9, 10)
    said = ", ".join(written(y) for y in normalize([4, 2, -9, 10])["LayerNorm"])
    assert tab.js("frase.textContent").startswith(f"LayerNorm da {said}. RMSNorm da ")
    for channel in range(1, 5):
        tab.slide(f"Canal {channel}", Keys.END)
    check(10, 10, 10, 10)
    tab.find("button:last-of-type").send_keys(Keys.ENTER)
    check(1, 0, -3, 4)


def test_three_neurons_are_dragged_onto_the_line(show):
    from selenium.webdriver import ActionChains, Keys

    tab = opened(show, "neuronas")

    def error(activation: Callable[[np.ndarray], np.ndarray]) -> str:
        x, target = laminas.meta_quebrada()
        corners, slopes = (
            tab.js(f"neuronas.map((n) => n.{name}.valor)") for name in ("esquina", "pendiente")
        )
        total = activation(x[:, None] - corners) @ slopes
        return f"{((total - target) ** 2).mean():.2f}"

    assert f"cuadrados): {error(lambda z: np.maximum(z, 0))}. " in tab.status
    tab.slide("Esquina 2", Keys.ARROW_RIGHT * 2)
    tab.slide("Pendiente 3", Keys.ARROW_LEFT)
    assert tab.js("formula.textContent") == "1 · ReLU(x + 1.5) − 2 · ReLU(x − 1) + 1 · ReLU(x − 2)"
    assert f"cuadrados): {error(lambda z: np.maximum(z, 0))}. " in tab.status
    tab.find("input[type=checkbox]").click()
    assert f"cuadrados): {error(lambda z: z)}. " in tab.status
    assert f"sin ReLU, {error(lambda z: z)}." in tab.status
    tab.find("input[type=checkbox]").click()
    handle = tab.find("circle.n1")
    unit = tab.js("partes.getScreenCTM().a")
    ActionChains(tab.driver).click_and_hold(handle).move_by_offset(
        round(-0.5 * unit), round(-unit)
    ).release().perform()
    assert tab.js("[neuronas[0].esquina.valor, neuronas[0].pendiente.valor]") == [-2, 2]
    tab.js(
        "[[-1, -2], [1.5, -2.5]].map(([e, v], i) =>"
        " (neuronas[i + 1].esquina.mover(e), neuronas[i + 1].pendiente.mover(v)))"
    )
    assert "cuadrados): 0.00. Lo más bajo hasta ahora: con ReLU, 0.00;" in tab.status


def test_switches_show_what_was_computed(show):
    tab = opened(show, "subcapas")
    given = switched()
    losses = given["perdidas"].round(3)
    whole = losses[-1]
    buttons = tab.driver.find_elements("css selector", ".interruptor")
    assert [button.get_attribute("aria-pressed") for button in buttons] == ["true"] * 6
    tints = [0, 18, 38, 65, 100, 100]
    for press, number in ((None, 63), (0, 31), (5, 30), (2, 22), (0, 54)):
        if press is not None:
            buttons[press].click()
        assert f"Pérdida: {losses[number]:.2f} nats por carácter" in tab.status
        guesses = given["apuestas"][number]
        right = [guess == letter for guess, letter in zip(guesses, TEXT)]
        assert f"De las {len(TEXT)} letras de abajo acierta {sum(right)}." in tab.status
        shown = tab.js(
            "[...document.querySelectorAll('.palabra > span')].map((s) =>"
            " [s.children[0].textContent, s.children[1].textContent,"
            " s.children[0].style.getPropertyValue('--tint-share')])"
        )
        levels = np.digitize(given["sorpresas"][number], laminas.TINTES)
        for (letter, guess, tint), expected, said, level in zip(shown, TEXT, guesses, levels):
            assert letter == expected
            assert guess == (" " if said == expected else laminas.rotulo(said))
            assert tint == f"{tints[level]}%"
        rise = f"{losses[number] - whole:.2f}".replace("-", "−")
        assert tab.rows()[0][1:] == [f"{losses[number]:.2f}", rise]
    assert [row[0] for row in tab.rows()] == [
        "atención 2, feed-forward 3",
        "atención 1, atención 2, feed-forward 3",
        "atención 1, feed-forward 3",
        "atención 1",
    ]
    tab.press("Apaga todo")
    assert tab.rows()[0][:2] == ["todo", f"{losses[0]:.2f}"]
    buttons[1].click()
    assert tab.rows()[0][:2] == ["todo menos feed-forward 1", f"{losses[16]:.2f}"]
    tab.press("Enciende todo")
    assert tab.rows()[0] == ["nada", f"{whole:.2f}", "0.00"]


def test_attention_is_what_was_given(show):
    from selenium.webdriver import Keys

    tab = opened(show, "atencion")
    given = weights()
    T = len(TEXT)
    found = tab.js(
        "[0, 1, 2].map((l) => [0, 1, 2, 3].map((h) => Array.from(letras, (_, t) => filaDe(l, h, t))))"
    )
    for layer in range(3):
        for head in range(4):
            for t in range(T):
                np.testing.assert_allclose(
                    found[layer][head][t], given[layer, head, t, : t + 1], atol=0.5 / 255 + 1e-6
                )
    assert tab.js("bloque.value") == "1"
    tab.find(".grande span:nth-child(5)").click()
    assert "letra 5, «o»" in tab.status
    tab.find(".grande").send_keys(Keys.ARROW_RIGHT)
    assert "letra 6, «r»" in tab.status
    heads = [head.text for head in tab.driver.find_elements("css selector", ".dos .cifras")]
    tints = tab.js(
        "cabezas.map(({texto}) => Array.from(texto.querySelectorAll('span'), "
        "(span) => parseFloat(span.style.getPropertyValue('--tint-share'))))"
    )
    for head, text in enumerate(heads):
        row = given[1, head, 5, :6]
        # One scale for all heads: a tint says the weight, whichever the greatest of its head is.
        rounded = np.rint(255 * row) / 255  # the piece has them in bytes
        np.testing.assert_allclose(tints[head][:6], 100 * np.sqrt(rounded), atol=0.51)
        percent = 100 * np.rint(255 * row.max()) / 255
        assert re.search(rf"\b{percent:.0f}\s%", text.split(" · ")[0])
        assert TEXT[int(row.argmax())] in text.split(" · ")[0]
    tab.find(".dos .letters span:nth-child(3)").click()  # what a head looks at can be asked, too
    assert "letra 3, " in tab.status


def test_another_sentence_can_be_chosen(show):
    from selenium.webdriver.support.ui import Select

    tab = opened(show, "atencion")
    sentences = Select(tab.find("#cual"))
    assert [option.text for option in sentences.options] == [
        text.replace(" ", "·") for text in (TEXT, MINE)
    ]
    for text, given in ((MINE, mine()), (TEXT, weights()), (MINE, mine())):
        sentences.select_by_visible_text(text.replace(" ", "·"))
        T = len(text)
        tab.wait(f"letras.length === {T}")
        assert f"letra {T}, «{text[-1]}»" in tab.status
        assert tab.find(".grande").text.replace("\n", "") in (text, text.replace(" ", "·"))
        found = tab.js("[0, 1, 2].map((l) => filaDe(l, 3, letras.length - 1))")
        np.testing.assert_allclose(found, given[:, 3, -1], atol=0.5 / 255 + 1e-6)


def test_the_curve_shows_what_was_written_there(show):
    from selenium.webdriver import ActionChains, Keys

    tab = opened(show, "curva")
    assert tab.status == "Paso 0: entrenamiento 4.20, validación 4.20 nats por carácter."
    tab.slide("Punto", Keys.ARROW_RIGHT)
    assert tab.find("blockquote").text == "de la"
    assert "Paso 300: entrenamiento 1.95" in tab.status
    ActionChains(tab.driver).move_to_element(tab.find("circle:last-of-type")).perform()
    assert tab.find("blockquote").text == "Sancho"
    assert f"Paso 1000: entrenamiento {LOSSES[-1]:.2f}, validación {LOSSES[-2]:.2f}" in tab.status


def test_the_ball_in_the_browser_goes_where_sgd_goes(show):
    from selenium.webdriver import Keys

    tab = opened(show, "descenso")
    for rate, momentum, end in (
        (0.05, 0, "Llegó"),
        (0.18, 0, "fondo en 22 pasos"),
        (0.17, 0.5, "fondo en 6 pasos"),
        (0.2, 0, "No ha llegado"),
        (0.21, 0, "Diverge"),
    ):
        tab.js("(tasa.mover(arguments[0]), inercia.mover(arguments[1]))", rate, momentum)
        tab.press("Un paso")
        first = descend(rate, momentum, 1)[-1]
        loss = 0.5 * (first[0] ** 2 + 10 * first[1] ** 2)
        assert f"Paso 1: pérdida {loss:.3f}" in tab.status
        tab.driver.execute_script("while (!estado()) dar();")
        assert end in tab.status
        path = tab.js("camino")
        np.testing.assert_allclose(
            path, descend(rate, momentum, len(path) - 1), rtol=1e-6, atol=1e-9
        )
    tab.slide("Tasa", Keys.HOME)
    assert "Paso 0" in tab.status
    tab.press("Corre")
    tab.wait("camino.length > 3")
    tab.press("Para")
    tab.press("Al principio")
    assert "Paso 0" in tab.status


def test_nothing_moves_where_reduced_motion_is_asked_for(show):
    tab = show("")
    media = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    tab.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        tab = opened(show, "descenso")
        tab.js("tasa.mover(0.18)")
        tab.press("Corre")
        assert "fondo en 22 pasos" in tab.status
    finally:
        tab.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def attend(tables: list, scaled: bool = True, masked: bool = True) -> tuple[torch.Tensor, ...]:
    """Products, scores, weights and outputs, as PyTorch's own attention has them."""
    q, k, v = (torch.as_tensor(table, dtype=torch.float64) for table in tables)
    scale = q.shape[-1] ** -0.5 if scaled else 1.0
    identity = torch.eye(len(v), dtype=torch.float64)
    attention = torch.nn.functional.scaled_dot_product_attention
    weights = attention(q, k, identity, is_causal=masked, scale=scale)
    outputs = attention(q, k, v, is_causal=masked, scale=scale)
    scores = (q @ k.T * scale).masked_fill(weights == 0, -torch.inf)
    return q @ k.T, scores, weights, outputs


def test_attention_in_the_browser_is_that_of_torch(show):
    from selenium.webdriver import Keys

    def check(tables, **how) -> None:
        found = tab.js("Object.values(calcular()).map((m) => m.map((row) => row.map(String)))")
        for ours, theirs in zip(found, attend(tables, **how), strict=True):
            ours = [[float(x.replace("Infinity", "inf")) for x in row] for row in ours]
            np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-6)

    tab = opened(show, "mezcla")
    tables = TABLES.astype(float)
    check(tables)
    assert tab.status == "«gato» da 42.4 % a «El», 57.6 % a «gato». Sale [0.42, 0.56, 0.18]."
    check_box = "//label[contains(., '{}')]/input"
    for label, how in (("máscara", {"masked": False}), ("÷", {"masked": False, "scaled": False})):
        tab.driver.find_element("xpath", check_box.format(label)).click()
        check(tables, **how)
    assert "% a «juega»" in tab.status
    tab.press("valor de juega")
    tab.slide("número 2", Keys.HOME)
    tables[2, 2, 1] = -1
    check(tables, masked=False, scaled=False)
    tab.press("consulta de gato")
    assert tab.js("numeros.map((n) => n.valor)") == [0.5, 0.6, 0.7]
    tab.slide("número 3", Keys.END)
    tables[0, 1, 2] = 2
    check(tables, masked=False, scaled=False)
    tab.press("Como al principio")
    check(TABLES, masked=False, scaled=False)


def test_the_answer_of_the_mixture_is_true():
    assert attend(TABLES)[2][1, 0] < 0.5
    least = {}
    for place in np.ndindex(*TABLES.shape):
        for steps in range(1, 61):
            for value in (TABLES[place] + 0.05 * steps, TABLES[place] - 0.05 * steps):
                moved = TABLES.astype(float)
                moved[place] = round(float(value), 2)
                if -1 <= moved[place] <= 2 and attend(moved)[2][1, 0] > 0.5:
                    least.setdefault(place, (steps, moved[place]))
    best = min(steps for steps, _ in least.values())
    assert {place: to for place, (steps, to) in least.items() if steps == best} == {
        (1, 0, 2): 0.9,
        (1, 1, 2): -0.4,
    }
    assert {(table, word) for table, word, _ in least} == {(0, 1), (1, 0), (1, 1)}


def test_the_alignment_is_what_was_given(show):
    from selenium.webdriver import Keys

    tab = opened(show, "alineamiento")
    given = pairs()
    shown = "[...document.querySelectorAll('.letters')].map((box) => box.innerText)"
    for number, (card, text, looks) in enumerate(given):
        tab.js(f"((cual.value = {number}), cambiar())")
        assert tab.js(shown) == [card + "■", text + "■" * (number != 1)]
        found = tab.js(f"Array.from({{ length: {len(looks)} }}, (_, t) => miradaDe({number}, t))")
        np.testing.assert_allclose(found, looks, atol=0.5 / 255 + 1e-6)
    tab.js("((cual.value = 0), cambiar())")
    card, text, looks = given[0]
    tab.find("[role=textbox] span:nth-child(5)").click()
    assert "la 5.ª letra, «a», mira a" in tab.status
    tab.find("[role=textbox]").send_keys(Keys.ARROW_RIGHT)
    best = int(looks[5].argmax())
    name = "el final" if best == len(card) else f"«{card[best]}»"
    percent = 100 * np.rint(255 * looks[5, best]) / 255
    assert f"la 6.ª letra, «n», mira a {name} ({best + 1}.ª) {percent:.0f}" in tab.status
    tab.find("[role=textbox]").send_keys(Keys.END)
    assert "Para escribir el final" in tab.status
    tab.find("[role=img] span:nth-child(2)").click()
    assert tab.js("elegida") == int(looks[:, 1].argmax())


# --- the chapters ---------------------------------------------------------------------------


def pieces_of(chapter: str) -> list[str]:
    """Return the HTML of every piece that a committed chapter shows."""
    notebook = nbformat.read(FOLDER / chapter, as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    texts = [output.get("data", {}).get("text/html", "") for output in outputs]
    return [text for text in texts if f'class="{laminas.CLASE}"' in text]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_piece_of_the_chapter_starts(chapter, request):
    outputs = pieces_of(chapter)
    if not outputs:
        pytest.skip("no piece in this chapter")
    tab = request.getfixturevalue("show")("\n".join(outputs))
    for number in range(len(outputs)):
        tab.enter(number)
    tab.driver.switch_to.default_content()
    assert not any(figure.is_displayed() for figure in tab.driver.find_elements("tag name", "img"))
