"""The page in a browser computes and writes what the model does, and can be used by everybody."""

import base64
import hashlib
import json
import os
import re
import shutil
import time
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, TEXT, random_gpt, run
from golden.make import FAMILIES, FOLDER

from sancho import checkpoint, corpus
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import DEFAULT_SAMPLING, SampleConfig, TrainConfig
from sancho.convert import page
from sancho.convert.page import packing
from sancho.errors import UserError
from sancho.generate import continue_text, shape_logits
from sancho.presets import PRESETS
from sancho.tokenizer import CharTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

CHARACTERS = CharTokenizer.from_text("\n abcdefghijklmnopqrstuvxyzñáéíóú,.;—EUM").characters
SMALL = {"block_size": 32, "n_layer": 2, "n_head": 2, "n_embd": 16, "ngram_rows": 64}
HOSTILE = "\n <>&\"'/`{}$\\!-\u2028\u2029\u202eabcs\U0001f600\u05d0"


@pytest.fixture(scope="module", autouse=True)
def nearest_found_once() -> Iterator[None]:
    """The table of what stands for unknown characters takes longer to make than a small page."""
    make = cache(lambda characters: nearest_known(CharTokenizer(characters)))
    nearest_known = page.nearest_known
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "nearest_known", lambda tokenizer: make(tokenizer.characters))
        yield


def small_checkpoint(preset: str = "mini", characters: str = CHARACTERS, **shape) -> Checkpoint:
    """A checkpoint of a small model of a preset's kind, every weight drawn."""
    shape = {"vocab_size": len(characters)} | SMALL | shape
    config = replace(PRESETS[preset].model, dropout=0.0, **shape)
    return Checkpoint(
        model=config,
        characters=characters,
        train=TrainConfig(),
        progress=Progress(step=7, tokens=7000, seconds=12.5, val_loss=2.5),
        corpus_name="prueba",
        corpus_sha256="",
        weights=random_gpt(config, seed=5).arrays(),
    )


def golden(family: str) -> tuple[Checkpoint, dict]:
    saved = checkpoint.load(FOLDER / f"{family}.safetensors")
    return saved, json.loads((FOLDER / f"{family}.json").read_text(encoding="utf-8"))


def write(saved: Checkpoint, path: Path, precision: str = "float32", **options) -> Path:
    page.write_page(saved, path, precision=precision, **options)
    return path


def part(text: str, pattern: str) -> str:
    return re.search(pattern, text, re.DOTALL)[1]


def facts_in(path: Path) -> dict:
    return json.loads(part(path.read_text("utf-8"), r'id="facts">(.*?)</script>'))


def weights_in(path: Path) -> dict[str, np.ndarray]:
    """What the page's weights are, by another way than the page's own."""
    packed = base64.b64decode(part(path.read_text("utf-8"), r'id="weights">(.*?)</script>'))
    kind = packing.TYPES[facts_in(path)["precision"]]
    planes = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(kind.itemsize, -1)
    numbers = np.ascontiguousarray(planes.T).view(kind)[:, 0].astype(np.float32)
    layout = facts_in(path)["layout"]
    ends = np.cumsum([np.prod(shape, dtype=int) for _, shape in layout])
    pieces = np.split(numbers, ends)
    assert len(pieces.pop()) == 0
    return {name: x.reshape(shape) for (name, shape), x in zip(layout, pieces, strict=True)}


def continuation(saved: Checkpoint, start: str, n: int, seed: int, **options) -> str:
    """What sample.py writes."""
    model, prompt = saved.build_numpy(), saved.tokenizer.encode(start)
    given = {"config": replace(DEFAULT_SAMPLING, **options), "max_new_tokens": n, "seed": seed}
    return "".join(continue_text(model, saved.tokenizer, prompt, **given))


def continued(saved: Checkpoint, start: str, n: int, seed: int, **options) -> str:
    """The same behind its start, whose unknown characters are left out."""
    start = "".join(c for c in start if c in saved.characters)
    return start + continuation(saved, start, n, seed, **options)


def probabilities(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


# --- the file -------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "precision"), [("mini", "float16"), ("sinusoidal", "float32")])
def test_the_weights_come_back_a_tied_head_once(tmp_path, family, precision):
    saved, _ = golden(family)
    found = weights_in(write(saved, tmp_path / "page.html", precision))
    expected = packing.rounded(saved, precision).weights
    assert all((found[name] == expected[name]).all() for name in found)
    assert expected.keys() - found == ({"head.weight"} if saved.model.tie_embeddings else set())
    if precision == "float32":
        assert all((expected[name] == array).all() for name, array in saved.weights.items())


def test_weights_too_large_for_half_precision_are_refused(tmp_path):
    saved = small_checkpoint()
    saved.weights["head.weight"][3, 3] = 1e5
    with pytest.raises(UserError, match=r"head\.weight reaches 1e\+05.*--precision float32"):
        write(saved, tmp_path / "page.html", "float16")
    assert list(tmp_path.iterdir()) == []
    write(saved, tmp_path / "page.html", "float32")


def test_nothing_of_the_checkpoint_becomes_html(tmp_path):
    name = "</script><!-- <img src=x onerror=alert(1)> \u2028 {{script}} {{weights}}"
    saved = replace(small_checkpoint(characters=HOSTILE), corpus_name=name)
    text = write(saved, tmp_path / "page.html").read_text("utf-8")
    assert facts_in(tmp_path / "page.html")["corpus"] == name
    assert facts_in(tmp_path / "page.html")["characters"] == HOSTILE
    data = part(text, r'id="facts">(.*?)</script>')
    assert "<" not in data
    assert data.isascii()
    assert text.count("</script>") == 3
    assert "{{" not in text.replace(r"{{script}} {{weights}}", "")


def test_the_policy_allows_the_pages_own_script_and_style_alone(tmp_path):
    text = write(small_checkpoint(), tmp_path / "page.html").read_text("utf-8")
    policy = part(text, r'Content-Security-Policy" content="([^"]*)"')
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))

    def hash_of(pattern: str) -> str:
        digest = hashlib.sha256(part(text, pattern).encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    assert rules == {
        "default-src": "'none'",
        "script-src": hash_of(r"<script>(.*?)</script>"),
        "style-src": hash_of(r"<style>(.*?)</style>"),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text)


def test_no_two_scripts_have_a_name_in_common():
    names = []
    for script in page.SCRIPTS:
        source = (page.FOLDER / f"{script}.js").read_text("utf-8")
        names += re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", source, re.MULTILINE)
    assert len(names) > 100
    assert len(set(names)) == len(names)


def test_every_file_of_the_folder_is_part_of_the_page():
    files = {path.name for path in page.FOLDER.iterdir() if path.is_file()}
    scripts = {f"{name}.js" for name in page.SCRIPTS}
    assert files == scripts | {"__init__.py", "packing.py", "skeleton.html", "style.css"}


def test_what_stands_for_an_unknown_character_is_the_tokenizers():
    tokenizer = CharTokenizer(CHARACTERS)
    nearest = page.nearest_known(tokenizer)
    assert (nearest["ê"], nearest["…"]) == ("e", "...")
    for character in "WÑü–\t\u00a0ﬁœ€ßÀ字":
        assert nearest.get(character) == tokenizer.nearest(character)


def test_the_curve_keeps_every_evaluation_and_nothing_that_is_no_number():
    metrics = [{"step": n, "train_loss": 5.0 - n / 1000} for n in range(1000)]
    metrics[501]["val_loss"] = 2.0
    metrics.append({"step": 1000, "train_loss": float("nan"), "val_loss": 1.5})
    metrics.append({"train_loss": 3.0})
    lines = page.curve(metrics)
    assert (501, 4.499, 2.0) in lines
    assert (1000, None, 1.5) in lines
    assert 200 <= len(lines) <= 203


def test_the_cost_is_the_difference_of_two_losses():
    saved = small_checkpoint()
    ids = saved.tokenizer.encode(TEXT, "skip")[:150]
    packed = packing.rounded(saved, "float16")
    cost = packing.packing_cost(saved, packed, ids, "x")
    assert (cost.text, cost.characters) == ("x", 149)

    from sancho.training import validation_loss

    for loss, of in ((cost.before, saved), (cost.after, packed)):
        assert loss == pytest.approx(validation_loss(of.build_model(), ids), abs=1e-5)
    assert 0 < abs(cost.after - cost.before) < 0.002
    assert packing.packing_cost(saved, packed, ids[:1], "x") is None


def test_the_committed_page_is_what_to_page_makes_of_the_pretrained_model():
    path, saved = ROOT / "docs" / "index.html", checkpoint.pretrained()
    facts, text = facts_in(path), path.read_text("utf-8")
    made = page.page_facts(saved, "float16", None, [], course="../notebooks")
    # A machine decides three things: the cost is measured on the book, which is not committed; the
    # nearest characters follow Python's version of Unicode, and the bytes of base64 that of zlib.
    assert facts["cost"]["text"] == "quijote"
    latin = [[near for c, near in of["nearest"].items() if c < "\u0250"] for of in (facts, made)]
    assert latin[0] == latin[1]
    made |= {name: facts[name] for name in ("cost", "nearest")}
    assert page.assemble(made, part(text, r'id="weights">(.*?)</script>')) == text
    expected = packing.rounded(saved, "float16").weights
    assert all((numbers == expected[name]).all() for name, numbers in weights_in(path).items())


# --- the command ----------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder to work in with a checkpoint in out/; its texts are the project's own sample."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(packing, "MEASURED", 500)
    (tmp_path / "out").mkdir()
    checkpoint.save(Path("out/best.safetensors"), small_checkpoint())
    return tmp_path


def test_to_page_says_what_it_made(here):
    done = run("convert.py", "to-page")
    assert (done.status, done.out) == (0, "")
    size = (here / "sancho.html").stat().st_size / 1e6
    assert f"sancho.html: {size:.2f} MB, weights in float16" in done.err
    assert re.search(r"packing: loss \d\.\d{5} → \d\.\d{5} nats", done.err)
    assert "double click" in done.err
    assert facts_in(Path("sancho.html"))["cost"]["text"] == "apocrifo"
    assert run("convert.py", "to-page", "--precision=float32").status == 0
    assert facts_in(Path("sancho.html"))["precision"] == "float32"


def test_packing_is_measured_on_the_models_own_text(here):
    (here / "tiny.txt").write_text(TEXT, encoding="utf-8")
    made = corpus.prepare_files([here / "tiny.txt"], here / "data" / "tiny")
    saved = small_checkpoint(characters=made.tokenizer.characters)
    own = replace(saved, corpus_name="tiny", corpus_sha256=made.sha256)
    name, ids = packing.measuring_text(own, here / "data")
    assert name == "tiny"
    assert (ids == made.val).all()
    tuned = replace(own, characters=own.characters[::-1])  # it has its characters in another order
    assert tuned.tokenizer.decode(
        packing.measuring_text(tuned, here / "data")[1]
    ) == made.tokenizer.decode(made.val)
    assert packing.measuring_text(saved, here / "data") is None


def test_the_curve_lies_beside_the_checkpoint(here):
    lines = [{"step": 1, "train_loss": 3.0, "val_loss": 2.9}, {"step": 2, "train_loss": 2.0}]
    text = "\n".join(map(json.dumps, lines))
    Path("out/metrics.jsonl").write_text(text, encoding="utf-8")
    run("convert.py", "to-page")
    assert facts_in(Path("sancho.html"))["curve"] == [[1, 3.0, 2.9], [2, 2.0, None]]
    Path("out/metrics.jsonl").write_text(text[:-5], encoding="utf-8")
    assert run("convert.py", "to-page").status == 0
    assert facts_in(Path("sancho.html"))["curve"] == []


def test_links_lead_to_a_folder_from_where_the_page_lies(here):
    (here / "notebooks").mkdir()
    (here / "docs").mkdir()
    run("convert.py", "to-page", "--output", "docs/index.html")
    assert facts_in(Path("docs/index.html"))["course"] == "../notebooks"
    run("convert.py", "to-page", "--course", "https://example.org/course")
    assert facts_in(Path("sancho.html"))["course"] == "https://example.org/course"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give a command; there is to-page"),
        (["to-pag"], "unknown command to-pag; did you mean to-page?"),
        (["to-page", "--outptu=x"], "unknown option --outptu; did you mean --output?"),
        (["to-page", "--checkpoint=none"], "the checkpoint none does not exist"),
        (["to-page", "--output=."], "--output . is a folder"),
        (["to-page", "--output=no/where.html"], "the folder no does not exist"),
        (["to-page", "--output=out/best.safetensors"], "is no page of sancho-mini"),
    ],
)
def test_errors_are_one_line(here, args, message):
    before = Path("out/best.safetensors").read_bytes()
    done = run("convert.py", *args)
    assert done.status == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert Path("out/best.safetensors").read_bytes() == before


# --- a browser ------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")


@pytest.fixture(scope="session")
def chromium() -> Iterator["object"]:
    """Chromium without a window and without a network, for all tests."""
    selenium = pytest.importorskip("selenium", reason="selenium is not installed")
    if not (CHROMIUM and DRIVER):
        pytest.skip("chromium or chromedriver is not installed")
    from selenium import webdriver

    assert selenium
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1280,900"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(DRIVER)
    with webdriver.Chrome(options=options, service=service) as driver:
        driver.set_script_timeout(30)
        driver.execute_cdp_cmd("Network.enable", {})
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        yield driver


class Tab:
    """A page as somebody uses it; at the end nothing may stand in its console."""

    def __init__(self, driver, path: Path) -> None:
        self.driver = driver
        for log in ("browser", "performance"):
            driver.get_log(log)
        driver.get(path.as_uri())
        self.wait("document.readyState === 'complete' && app.model && sancho.ready")
        assert self.later("sancho.ready.then(() => 'ready')") == "ready"

    def js(self, expression: str, *args):
        return self.driver.execute_script(f"return ({expression});", *args)

    def later(self, promise: str, *args):
        """Return what a promise comes to."""
        program = (
            "const done = arguments[arguments.length - 1];"
            f"({promise}).then(done, (error) => done('error: ' + error.message));"
        )
        return self.driver.execute_async_script(program, *args)

    def write(self, start: str, n: int, options: dict) -> str:
        return self.later("sancho.write(...[0, 1, 2].map((i) => arguments[i]))", start, n, options)

    def wait(self, condition: str, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not self.js(f"Boolean({condition})"):
            assert time.monotonic() < end, condition
            time.sleep(0.02)

    def find(self, selector: str):
        return self.driver.find_element("css selector", selector)

    def press(self, selector: str) -> None:
        """Click where a finger would: what is covered or out of sight can't be."""
        target = self.find(selector)
        self.js("arguments[0].scrollIntoView({ block: 'center', behavior: 'instant' })", target)
        target.click()

    def fill(self, selector: str, text: str) -> None:
        """Paste a text."""
        self.js(
            "(arguments[0].value = arguments[1],"
            "arguments[0].dispatchEvent(new Event('input', { bubbles: true })))",
            self.find(selector),
            text,
        )

    def rest(self) -> None:
        """Wait until nothing is written any more and the letter is shown."""
        self.wait("!story.running && story.ids.length && asking.moment?.i === asking.chosen")

    @property
    def text(self) -> str:
        return self.js("document.getElementById('texto').textContent")

    def shown(self, selector: str) -> str:
        return self.find(selector).text

    def requests(self) -> set[str]:
        """Return the schemes of all addresses that were asked for."""
        events = [
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        ]
        return {
            event["params"]["request"]["url"].partition(":")[0]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        }

    @contextmanager
    def media(self, **features: str) -> Iterator[None]:
        """Let the page see what somebody has chosen, as a dark scheme."""
        chosen = [{"name": name, "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": chosen})
        yield
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    def close(self) -> None:
        assert [entry["message"] for entry in self.driver.get_log("browser")] == []
        assert self.requests() <= {"file", "data"}


@pytest.fixture
def visit(chromium, tmp_path) -> Iterator[Callable[..., Tab]]:
    """Open the page of a checkpoint."""
    tabs = []

    def open_page(saved: Checkpoint, precision: str = "float32", **options) -> Tab:
        path = write(saved, tmp_path / f"página {len(tabs)}.html", precision, **options)
        tabs.append(Tab(chromium, path))
        return tabs[-1]

    yield open_page
    for tab in tabs[-1:]:
        tab.close()


@pytest.fixture(scope="module")
def page_of_mini(tmp_path_factory) -> tuple[Path, Checkpoint]:
    """The page that most tests open, as to-page writes it; and the model in it, rounded."""
    saved = small_checkpoint("mini")
    path = write(saved, tmp_path_factory.mktemp("page") / "página.html", "float16", course="curso")
    return path, packing.rounded(saved, "float16")


@pytest.fixture
def mini(page_of_mini) -> Checkpoint:
    """The model in that page."""
    return page_of_mini[1]


@pytest.fixture
def tab(chromium, page_of_mini) -> Iterator[Tab]:
    """That page, just opened."""
    opened = Tab(chromium, page_of_mini[0])
    yield opened
    opened.close()


def and_slow(first: str, *others: str) -> list:
    """One case now, the others when there is time."""
    return [first, *(pytest.param(x, marks=pytest.mark.slow) for x in others if x != first)]


@pytest.mark.parametrize("family", and_slow("mini", *FAMILIES))
def test_logits_are_the_golden_ones(visit, family):
    saved, answers = golden(family)
    tab = visit(saved)
    texts = [saved.tokenizer.decode(answers["ids"][: n + 1]) for n in range(len(answers["ids"]))]
    found = tab.js("arguments[0].map((text) => sancho.logits(text))", texts)
    np.testing.assert_allclose(found, answers["logits"], rtol=0, atol=1e-4)
    options = {"seed": answers["seed"], "temperature": answers["temperature"], "min_p": None}
    for settings, name in (({"temperature": 0}, "greedy"), (options, "seeded")):
        assert tab.write(answers["start"], 60, settings) == answers[name]


def test_texts_are_those_of_sample_and_errors_name_what_is_unknown(tab, mini):
    start = "".join(c for c in "En un lugar de la Mancha, de cuyo nombre no" if c in CHARACTERS)
    assert len(start) > SMALL["block_size"]
    for options in (
        {"temperature": 0},
        {"seed": 1605},
        {"seed": 2**70 + 3, "temperature": 1.2, "top_k": 9, "top_p": 0.9, "min_p": 0.01},
        {"seed": 7, "repetition_penalty": 1.3},
    ):
        given = {"seed": 0} | options
        expected = continuation(mini, start, 100, **given)
        given["seed"] = str(given["seed"])
        assert tab.write(start, 100, given) == expected
    error = tab.write("un w", 5, {})
    assert re.match(r"error: .*«w» \(letra 4; lo más parecido: «v»\)", error)
    assert tab.later("(async () => sancho.logits(''))()") == "error: El texto está vacío"


def test_probabilities_are_shaped_as_by_the_sampler(tab):
    logits = np.random.default_rng(1).normal(0, 3, (1, 30)).astype(np.float32)
    logits[0, 4] = logits[0, 9]  # two that are equally likely
    context = np.array([[4, 7, 7, 20]])
    for options in (
        {"temperature": 0},
        {"temperature": 1.7, "top_k": 5},
        {"temperature": 0.6, "top_p": 0.7, "min_p": 0.02},
        {"temperature": 1.0, "top_p": 0.0},
        {"repetition_penalty": 1.4, "top_k": 40},
        {"repetition_penalty": 1e300, "temperature": 1e-300},
    ):
        found = tab.js(
            "Array.from(shapeLogits(arguments[0], arguments[1],"
            " { ...app.facts.sampling, ...arguments[2] }), (x) => (x === -Infinity ? null : x))",
            *(logits[0].tolist(), context[0].tolist(), options),
        )
        found = np.array([-np.inf if x is None else x for x in found])
        np.testing.assert_allclose(
            found, shape_logits(logits, context, replace(DEFAULT_SAMPLING, **options))[0]
        )


def test_half_precision_is_read_bit_for_bit(tab):
    bits = np.arange(0x7C00, dtype=np.uint16)  # all that are positive and finite
    found = tab.js("Array.from({ length: 0x7c00 }, (_, bits) => halfPrecision(bits))")
    assert found == bits.view(np.float16).astype(float).tolist()


def test_the_first_text_ends_with_a_sentence_and_opens_where_the_model_hesitates(visit):
    saved = small_checkpoint(characters="\n .abs", block_size=1024)
    tab = visit(saved)
    tab.rest()
    text = tab.text
    assert text == continued(saved, "\n", len(text) - 1, 1605)
    ends = [match.end() for match in re.finditer(r"\.\s", text) if match.end() > 200]
    assert ends == [len(text)]
    p = probabilities(saved.build_numpy().logits(saved.tokenizer.encode(text)[None, :300])[0])
    assert tab.js("asking.chosen") == 1 + (-p * np.log(p)).sum(-1)[: len(text) - 1].argmax()
    assert "donde más dudó" in tab.shown("#estado")


def test_writing_stopping_going_on_and_back(tab, mini):
    tab.rest()
    first, chosen = tab.text, tab.js("asking.chosen")
    assert first == continued(mini, page.START, len(first) - len(page.START), 1605)
    tab.fill("#inicio", "un hidalgo")
    tab.press("#mandos summary")
    options = {"temperature": 0.5, "top_k": 12, "top_p": 0.9, "min_p": 0.02}
    fields = dict(zip(("temperatura", "top-k", "top-p", "min-p"), options.values(), strict=True))
    for name, value in (fields | {"semilla": 9, "cuantas": 70}).items():
        tab.fill(f"#{name}", str(value))
    assert "top-k 12" in tab.shown("#resumen")
    tab.press("#escribir")
    tab.rest()
    expected = continued(mini, "un hidalgo", 140, 9, **options)
    assert tab.text == expected[:80]
    assert "70 letras" in tab.shown("#estado")
    tab.press("#seguir")
    tab.rest()
    assert tab.text == expected
    tab.press("#volver")
    assert tab.text == first
    assert tab.js("asking.chosen") == chosen
    tab.fill("#cuantas", "100000")
    tab.press("#escribir")
    tab.wait("story.ids.length > 50")
    assert tab.shown("#escribir") == "Para"
    tab.press("#escribir")
    tab.rest()
    assert tab.shown("#escribir") == "Escribe"
    assert 50 < len(tab.text) < 90_000


def test_a_letter_is_asked_with_keys_with_buttons_and_by_pointing(tab, mini):
    from selenium.webdriver import ActionChains, Keys

    tab.rest()
    ids = mini.tokenizer.encode(tab.text)

    def verdict_of(i: int) -> str:
        logits = mini.build_numpy().logits(ids[None, max(0, tab.js("story.starts")[i]) : i])[0, -1]
        return f"Sorpresa: {-np.log2(probabilities(logits)[ids[i]]):.1f} bits."

    tab.find("#texto").send_keys(Keys.HOME + Keys.ARROW_RIGHT * 12)
    tab.wait("asking.moment?.i === 12")
    assert verdict_of(12) in tab.shown("#vista-letra")
    assert tab.find("#lugar mark").text.strip("␣↵") == tab.text[12].strip()
    tab.press("#siguiente")
    tab.wait("asking.moment?.i === 13")
    assert verdict_of(13) in tab.shown("#vista-letra")
    assert "letra 14" in tab.js("document.getElementById('dicho').textContent")
    tab.press("#texto span:nth-child(6)")
    tab.wait("asking.moment?.i === 5")
    ActionChains(tab.driver).move_to_element(tab.find("#texto span:nth-child(9)")).perform()
    tab.wait("asking.moment?.i === 8 && asking.chosen === 5")
    ActionChains(tab.driver).move_to_element(tab.find("h1")).perform()
    tab.wait("asking.moment?.i === 5")
    tab.find("#texto").send_keys(Keys.ARROW_DOWN)
    tab.wait("asking.chosen > 5")
    tab.find("#texto").send_keys(Keys.ARROW_UP)
    tab.find("#texto").send_keys(Keys.HOME)
    tab.wait("asking.chosen === 0")
    assert "nada la anuncia" in tab.shown(".asking")
    tab.find("#texto").send_keys(Keys.END)
    tab.wait(f"asking.moment?.i === {len(ids) - 1}")
    assert verdict_of(len(ids) - 1) in tab.shown("#vista-letra")


def test_another_letter_and_what_follows_from_it(tab, mini):
    tab.rest()
    before = tab.text
    tab.fill("#cuantas", "40")
    tab.js("chooseLetter(20)")
    tab.wait("asking.moment?.i === 20")
    bars = tab.js(
        "Array.from(document.querySelectorAll('.bars li:not(.absent)'), (li) => li.innerText)"
    )
    assert len(bars) in (10, 11)
    assert sum("escrita" in bar for bar in bars) == 1
    glyph = tab.shown(".bars li:nth-child(2) .glyph")
    tab.press(".bars li:nth-child(2) button")
    tab.wait("story.ids.length === 61")
    tab.rest()
    assert tab.text[:20] == before[:20]
    assert tab.text[20:] == tab.text[20] + continuation(mini, tab.text[:21], 40, 1605)
    assert tab.text[20] == {"␣": " ", "↵": "\n"}.get(glyph, glyph)
    tab.press("#volver")
    assert tab.text == before


def test_attention_is_that_of_the_model(tab, mini):
    import torch
    from selenium.webdriver import ActionChains

    from sancho.report.analysis import attention_weights, layer_logits

    tab.rest()
    tab.js("chooseLetter(25)")
    tab.press("#tab-mira")
    tab.wait("asking.moment?.i === 25 && views.mira.moment")
    tab.press(".layer:nth-of-type(2) .head:nth-of-type(2)")
    ids = torch.tensor(mini.tokenizer.encode(tab.text[:25])[None].astype(int))
    maps = attention_weights(mini.build_model(), ids)
    row = maps[1, 0, 1, -1].numpy()
    np.testing.assert_allclose(tab.js("Array.from(views.mira.weights)"), row, atol=1e-5)
    assert "Bloque 2, cabeza 2" in tab.shown("#vista-mira")
    best = int(row.argmax())
    rows = tab.shown("#vista-mira tbody").splitlines()
    assert f"{100 * row[best]:.1f} %" in rows[0]
    letter = tab.find(f"#vista-mira .letters span:nth-child({best + 1})")
    tab.js("arguments[0].scrollIntoView({ block: 'center' })", letter)
    ActionChains(tab.driver).move_to_element(letter).perform()
    assert re.search(
        r"consulta · clave / √8 = −?\d+\.\d\d; después de softmax", tab.shown(".detail")
    )
    tab.press("#vista-mira .letters .future")
    assert "−∞" in tab.shown(".detail")
    # The output head reads every residual stream.
    lens = layer_logits(mini.build_model(), ids)[:, 0, -1]
    found = tab.js(
        "[asking.moment.notes.blocks[0].input, ...asking.moment.notes.blocks.map((b) => b.output)]"
        ".map((x) => Array.from(app.model.logits(x)))"
    )
    np.testing.assert_allclose(found, lens.numpy(), atol=1e-4)
    tab.press("#tab-viaje")
    tab.wait("views.viaje.moment")
    said = tab.js(
        "views.viaje.stations.filter(({ name }) => /^Tabla|^feed/.test(name))"
        ".map(({ input }) => input.getAttribute('aria-label'))"
    )
    for station, p in zip(said, probabilities(lens.numpy()), strict=True):
        glyph = mini.characters[p.argmax()]
        name = {" ": "espacio", "\n": "salto de línea"}.get(glyph, f"«{glyph}»")
        assert f"diría {name}, " in station


@pytest.mark.parametrize("family", and_slow("mini", *FAMILIES))
def test_every_station_has_its_numbers(visit, family):
    from selenium.webdriver import ActionChains, Keys

    saved, _ = golden(family)
    tab = visit(saved, course="curso")
    tab.rest()
    tab.press("#tab-viaje")
    tab.press("[aria-label='Estación siguiente']")
    tab.press(".room summary")
    stations = tab.js(
        "views.viaje.stations.map((_, n) => { views.viaje.choose(n);"
        "const room = document.querySelector('.room'); return { title: room.querySelector('h3')"
        ".textContent, numbers: room.querySelectorAll('.vector').length,"
        "text: room.innerText, link: room.querySelector('a').href }; })"
    )
    assert len({station["title"] for station in stations}) == len(stations)
    config = saved.model
    assert len(stations) == 4 + 2 * 2 + (config.ngram_size > 1) + (config.position != "rope")
    for station in stations:
        assert station["numbers"] > 0 or station["title"] == "La letra"
        assert "NaN" not in station["text"]
        assert station["link"].endswith(".ipynb")
    tab.press("[aria-label='Estación anterior']")
    assert tab.shown(".room h3") == "Cabeza de salida"
    tab.press("[aria-label='Estación siguiente']")
    assert tab.shown(".room h3") == "Probabilidades"
    tab.press(".station.first")
    assert tab.shown(".room h3") == "Bloque 1: atención"
    ActionChains(tab.driver).send_keys(Keys.ARROW_DOWN).perform()
    assert tab.shown(".room h3") == "Bloque 1: feed-forward"
    assert re.search(r"Despiertas ahora: \d+ de \d+", tab.shown(".room"))
    tab.press(".room .numbers summary")
    tab.wait("document.querySelector('.room .numbers p')")
    assert len(tab.shown(".room .numbers p").split()) == saved.model.n_embd


def test_the_walk_begins_by_itself_and_ends_where_it_is_told_to(tab):
    tab.rest()
    tab.js("views.viaje.pause = 30")
    tab.press("#tab-viaje")
    tab.wait("views.viaje.at === views.viaje.stations.length - 1 && !views.viaje.timer")
    tab.js("views.viaje.pause = 500")
    tab.press(".walk button:nth-child(2)")
    assert tab.shown(".walk button:nth-child(2)") == "Para"
    assert tab.shown(".room h3") == "La letra"
    assert (
        tab.js("getComputedStyle(document.querySelector('.ahead .guess')).visibility") == "hidden"
    )
    tab.wait("views.viaje.at === 1")
    tab.press(".walk button:nth-child(2)")
    assert not tab.js("views.viaje.timer")
    tab.press(".walk button:nth-child(2)")
    tab.press("[aria-label='Estación siguiente']")
    assert not tab.js("views.viaje.timer")


def test_nothing_moves_for_who_asks_for_that(tab):
    moving = (
        "Array.from(document.querySelectorAll('*'))"
        ".some((node) => getComputedStyle(node).transitionDuration !== '0s')"
    )
    tab.rest()
    assert tab.js(moving)
    with tab.media(**{"prefers-reduced-motion": "reduce"}):
        tab.press("#tab-viaje")
        tab.wait("views.viaje.moment")
        assert tab.shown(".walk button:nth-child(2)") == "Recorre"
        assert not tab.js("views.viaje.timer")
        assert not tab.js(moving)


def test_two_ways_are_those_of_sample_and_mark_what_the_other_removes(visit, monkeypatch):
    from selenium.webdriver import Keys

    usual = {"temperature": 1.2, "min_p": 0.05}
    monkeypatch.setattr(page, "DEFAULT_SAMPLING", SampleConfig(**usual))
    saved = small_checkpoint(block_size=512)
    tab = visit(saved)
    tab.rest()
    assert tab.shown("#resumen") == "temperatura 1.2 · min-p 0.05 · semilla 1605"
    first = tab.text
    assert first == continued(saved, page.START, len(first) - len(page.START), 1605, **usual)

    def texts(action: str) -> list[str]:
        tab.press(action)
        tab.wait("!comparison.run && comparison.ways[1].written === 400")
        return tab.js("comparison.ways.map((way) => way.text.textContent)")

    plain, other = texts("#comparar")
    assert plain == continued(saved, page.START, 400, 1605, min_p=None)
    assert other == continued(saved, page.START, 400, 1605, **usual)
    ids = saved.tokenizer.encode(plain)
    logits = saved.build_numpy().logits(ids[None, :-1])[0, len(page.START) - 1 :]
    kept = shape_logits(logits, ids[None], SampleConfig(**usual))
    removed = kept[np.arange(400), ids[len(page.START) :]] == -np.inf
    marked = tab.js(
        "Array.from(comparison.ways[0].text.querySelectorAll('mark'), (m) => m.textContent)"
    )
    assert marked == [c for c, out in zip(plain[len(page.START) :], removed, strict=True) if out]
    assert f"B habría quitado {len(marked)}." in tab.shown("#maneras")
    assert 0 < len(marked) < 400
    assert texts("#comparar")[0] == continued(saved, page.START, 400, 1606, min_p=None)
    # A control that is moved begins both anew, with the same seed.
    tab.press("#maneras summary")
    tab.find("#A-temperatura").send_keys(Keys.HOME)
    tab.wait("!comparison.run && comparison.ways[0].written === 400")
    assert "A: temperatura 0" in tab.shown("#maneras")
    assert tab.js("comparison.ways[0].text.textContent") == continued(
        saved, page.START, 400, 0, temperature=0.0
    )


def test_every_chapter_that_is_linked_exists(tab):
    for name, title in tab.js("Object.entries(CHAPTERS)"):
        chapter = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text("utf-8"))
        assert title in "".join(chapter["cells"][0]["source"]).splitlines()[0]


def test_surprise_is_the_validation_loss(tab, mini):
    from sancho.training import validation_loss

    text = "".join(c for c in TEXT[:400] if c in CHARACTERS)
    B = mini.model.block_size
    tab.fill("#ajeno", text)
    tab.press("#leer")
    tab.wait("!reading.run && document.querySelector('#sorprendido .letters')")
    bits = validation_loss(mini.build_model(), mini.tokenizer.encode(text)) / np.log(2)
    assert f"{bits:.2f} bits por carácter" in tab.shown("#sorprendido")
    assert f"{2.5 / np.log(2):.2f}" in tab.shown(".comparison")
    assert tab.js("reading.letters.box.textContent") == text
    # The model begins anew at each block: the page says so, and marks where.
    assert f"ventanas de {B} letras" in tab.shown("#ventanas")
    letters = (
        "Array.from(reading.letters.box.children, (span) => span.classList.contains('window'))"
    )
    assert np.flatnonzero(tab.js(letters)).tolist() == list(range(0, len(text), B))
    tab.js(f"goToPlace({2 * B + 3})")
    assert "tras leer 3 letras de su ventana" in tab.shown("#sorprendido .detail")
    tab.press(".place-link")
    assert "bits, probabilidad" in tab.shown("#sorprendido .detail")
    tab.press("#ejemplo")
    tab.wait(
        "!reading.run && reading.ids.length !== arguments[0]".replace(
            "arguments[0]", str(len(text))
        )
    )
    assert tab.js("reading.letters.box.textContent").startswith("En un lugar de la Mancha, de cuyo")
    tab.fill("#ajeno", "w")
    tab.press("#leer")
    assert "al menos dos letras" in tab.shown("#lectura")


@pytest.mark.slow
def test_a_long_text_freezes_nothing_and_can_be_stopped(visit):
    tab = visit(small_checkpoint(n_layer=1, n_embd=4, n_head=1, ngram_size=1))
    tab.rest()
    text = (
        unicodedata.normalize("NFD", "Sí, señor 👍🏽 שלום ") + "un lugar de la mancha.\n"
    ) * 2500
    tab.fill("#ajeno", text[:100_000])
    tab.js(
        "(window.gaps = [], window.last = performance.now(), setInterval(() => {"
        "const now = performance.now(); gaps.push(now - last); last = now; }, 5))"
    )
    tab.press("#leer")
    tab.wait("reading.run && document.getElementById('avance').value > 0.05")
    assert tab.shown("#leer") == "Para"
    tab.press("#leer")
    tab.wait("!reading.run && document.querySelector('#sorprendido .letters')")
    assert 1000 < tab.js("reading.ids.length") < 100_000
    assert "página 1 de" in tab.shown("#sorprendido")
    tab.press("#sorprendido .row button:last-child")
    assert "página 2 de" in tab.shown("#sorprendido")
    assert "👍" in tab.shown("#sorprendido .notice")
    assert tab.find("#ajeno").get_attribute("value") == text[:100_000]
    tab.fill("#inicio", text[:100_000])
    tab.press("#escribir")
    tab.press("#desconocidas button")
    tab.wait("story.ids.length > 3000")
    tab.rest()
    assert max(tab.js("gaps")) < 1500
    assert tab.find("#inicio").get_attribute("value") == text[:100_000]


def test_unknown_characters_are_named_and_nothing_at_all_is_enough(tab, mini):
    tab.rest()
    tab.fill("#cuantas", "10")
    tab.fill("#inicio", "wn lugar…")
    tab.press("#escribir")
    notice = tab.shown("#desconocidas")
    assert "«w» (letra 1; lo más parecido: «v»)" in notice
    assert "«…» (letra 9; lo más parecido: «...»)" in notice
    tab.press("#desconocidas button:first-of-type")
    tab.rest()
    assert tab.text.startswith("vn lugar...")
    tab.press("#escribir")
    tab.press("#desconocidas button:last-of-type")
    tab.rest()
    assert tab.text.startswith("n lugar")
    tab.fill("#inicio", "")
    tab.press("#escribir")
    tab.wait("story.ids.length === 11")
    tab.rest()
    assert tab.text == "\n" + continuation(mini, "\n", 10, 1605)


@pytest.mark.slow
def test_hostile_characters_stay_letters(visit):
    name = "</script><img src=x onerror=alert(1)>"
    saved = replace(small_checkpoint(characters=HOSTILE), corpus_name=name)
    tab = visit(saved)
    tab.rest()
    assert tab.text == continued(saved, "\n", len(tab.text) - 1, 1605)
    for view in ("mira", "viaje"):
        tab.press(f"#tab-{view}")
    tab.fill("#ajeno", HOSTILE * 20)
    tab.press("#leer")
    tab.wait("!reading.run && document.querySelector('#sorprendido .letters')")
    assert tab.js("document.querySelectorAll('img, iframe, script').length") == 3
    assert name in tab.shown("#lema")


def test_the_network_is_shut(tab):
    for request in ("fetch('https://example.org')", "fetch('data:,x')"):
        assert tab.later(f"{request}.then(() => 'open')").startswith("error")
    messages = [entry["message"] for entry in tab.driver.get_log("browser")]
    assert all("Content Security Policy" in message for message in messages)
    assert messages


def axe() -> Path | None:
    """axe-core is not part of the project: npm install axe-core, or its path in SANCHO_AXE."""
    place = os.environ.get("SANCHO_AXE") or ROOT / "node_modules" / "axe-core" / "axe.min.js"
    return Path(place) if Path(place).is_file() else None


@pytest.mark.slow
@pytest.mark.skipif(not axe(), reason="axe-core is not there: npm install axe-core")
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_everybody_can_use_it(visit, request, width, scheme):
    tab = visit(
        small_checkpoint(),
        text=("x", np.arange(40) % 9),
        metrics=[{"step": n, "train_loss": 3 - n / 9, "val_loss": 3 - n / 10} for n in range(5)],
    )
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    tab.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    request.addfinalizer(
        lambda: tab.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    )
    tab.driver.execute_script(axe().read_text("utf-8"))
    with tab.media(**{"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}):
        tab.rest()
        tab.press("#mandos summary")
        tab.fill("#ajeno", "un lugar de la mancha " * 200)
        tab.press("#leer")
        tab.wait("!reading.run && document.querySelector('#sorprendido .letters')")
        tab.press("#comparar")
        tab.wait("!comparison.run && comparison.ways[1].written")
        tab.press("#maneras summary")
        for view in ("letra", "mira", "viaje"):
            tab.press(f"#tab-{view}")
            where = "document" if view == "letra" else "'.asking'"
            found = tab.later(
                f"axe.run({where}).then((r) => r.violations.map((v) =>"
                " `${v.id}: ${v.nodes.map((n) => n.target).join(' ')}`))"
            )
            assert found == []
            assert tab.js("document.documentElement.scrollWidth") <= width
            outside = "(node) => node.getBoundingClientRect().right > innerWidth + 1"
            assert (
                tab.js(f"Array.from(document.querySelectorAll('td, th, p, svg')).filter({outside})")
                == []
            )
