"""The page in a browser computes and writes what the model does, and can be used by everybody."""

import base64
import json
import os
import re
import shutil
import time
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import checkpoint_of, exact_logits
from conftest import ROOT, TEXT, corpus_from, run, succeed
from golden.make import FAMILIES, FOLDER

from docs.make_page import PAGE, facts_anew
from sancho import checkpoint
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import DEFAULT_SAMPLING
from sancho.convert import packing, page, scripts
from sancho.convert.passages import passages_of, words_in
from sancho.errors import UserError
from sancho.generate import continue_texts
from sancho.loss import validation_loss
from sancho.model import GPT
from sancho.presets import PRESETS
from sancho.shared.proof import TOLERANCE, from_base64, in_base64, proof_of, proof_window
from sancho.text.corpus import Corpus
from sancho.tokenizer import CharTokenizer

CHARACTERS = CharTokenizer.from_text("\n abcdefghijklmnopqrstuvxyzñáéíóú,.;—EUM").characters
SMALL = {"block_size": 32, "n_layer": 2, "n_head": 2, "n_embd": 16, "ngram_rows": 64}
FACTS = r'id="facts">(.*?)</script>'
HOSTILE = "\n <>&\"'/`{}$\\!-\u2028\u2029\u202eabcs\U0001f600\u05d0"


def small_checkpoint(preset: str = "mini", characters: str = CHARACTERS, **shape) -> Checkpoint:
    """A checkpoint of a small model of a preset's kind, every weight drawn."""
    shape = {"vocab_size": len(characters)} | SMALL | shape
    saved = checkpoint_of(replace(PRESETS[preset].model, dropout=0.0, **shape), characters)
    return replace(saved, progress=Progress(step=7, tokens=7000, seconds=12.5, val_loss=2.5))


def written(saved: Checkpoint, start: str, n: int, seed: int = 1605, **options) -> str:
    """A start, of what is known, and what sample.py writes after it."""
    start = "".join(c for c in start if c in saved.characters)
    model, prompt = saved.build_numpy(), saved.tokenizer.encode(start)
    given = {"config": replace(DEFAULT_SAMPLING, **options), "max_new_tokens": n, "seed": seed}
    return start + continue_texts(model, saved.tokenizer, prompt, **given)[0]


def softmax(logits: np.ndarray) -> np.ndarray:
    return torch.from_numpy(logits).softmax(-1).numpy()


def assert_proves(proof: np.ndarray, saved: Checkpoint) -> None:
    """Compare a proof with that of PyTorch's model in float64."""
    model = replace(saved, proof=None).build_model()
    expected = proof_of(lambda ids: exact_logits(model, ids), saved.model_config)
    limit = TOLERANCE * max(1, np.abs(expected).max())
    np.testing.assert_allclose(proof, expected, rtol=0, atol=limit)


def test_the_policy_allows_the_pages_own_script_and_style_alone(tmp_path):
    saved, path = small_checkpoint(), tmp_path / "page.html"
    page.write_page(saved, path, precision="float16")
    text = path.read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    # A browser runs neither where its hash is another one.
    assert re.sub(r"'sha256-[^']*'", "HASH", policy) == (
        "default-src 'none'; script-src HASH HASH 'wasm-unsafe-eval'; worker-src blob:; "
        "style-src HASH HASH; img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    # Weights too large for half precision are refused.
    saved.weights["head.weight"][3, 3] = 1e5
    with pytest.raises(UserError, match=r"head\.weight reaches 1e\+05.*--precision float32"):
        page.write_page(saved, path, precision="float16")
    assert (list(tmp_path.iterdir()), path.read_text("utf-8")) == ([path], text)


@pytest.mark.generated
def test_the_committed_page_is_what_to_page_makes_of_the_pretrained_model():
    text, saved = PAGE.read_text("utf-8"), checkpoint.pretrained()
    facts, weights = page.taken_apart(text)
    outdated = "docs/index.html is out of date; run: python docs/make_page.py"
    made = facts_anew(facts)
    assert made["teaching"], "no lesson: LEARNED_OPTIONS or LEARNED_MODELS lacks an option of mini"
    assert facts.keys() == made.keys() | {"strings"}, outdated
    # A machine decides three things more: nearest characters follow Python's Unicode, the bytes of
    # base64 its zlib, and the last bits of the proof its processor.
    assert facts["passages"] and facts["cost"]["text"] == facts["corpus"]
    assert facts["corpus"] == "Don Quijote"
    latin = [[near for c, near in of["nearest"].items() if c < "\u0250"] for of in (facts, made)]
    assert latin[0] == latin[1], outdated
    samples = [of["teaching"].pop("sample") for of in (facts, made)]
    sample, remade = (zlib.decompress(base64.b64decode(packed)) for packed in samples)
    assert remade == (ROOT / "data" / page.SAMPLE).read_bytes()
    assert sample == remade, outdated
    made["teaching"]["sample"] = samples[0]
    assert_proves(from_base64(facts["proof"]), saved)
    made |= {name: facts[name] for name in ("nearest", "proof")}
    assert page.assemble(made, weights) == text, outdated
    expected = packing.pack(packing.rounded(saved, "float16"), "float16")
    found, expected = (zlib.decompress(base64.b64decode(x)) for x in (weights, expected))
    assert found == expected, (
        "docs/index.html has other weights than the pretrained model; run: "
        "python convert.py to-page --checkpoint pretrained --output docs/index.html"
    )
    for name in set(re.findall(CHAPTER, text)):
        assert (ROOT / "notebooks" / f"{name}.ipynb").is_file()


STRINGS = json.loads((page.UI / "strings.json").read_text("utf-8"))
SCRIPTS = "".join(scripts.of_page())
CHAPTER = r"'((?:\d\d_|ramas/)\w+)'"
"""In a script, the name of a chapter or of a branch of the course to which it leads."""
RECORDED = json.loads((page.UI / "lesson.json").read_text("utf-8"))


def words_of(name: str, language: int = 0, /, **values: object) -> str:
    """Return what the page says by a name, so that tests hold no wording.

    Where a value is not given, it is the longest part between such values.
    """
    one, _, many = STRINGS[name][language].partition("|")
    text = (many or one) if values.get("n") != 1 else one
    given = {k: thousands(v) if isinstance(v, int) else str(v) for k, v in values.items()}
    parts = re.split(rf"\{{(?!(?:{'|'.join(given)})\}})\w+\}}", text)
    filled = [re.sub(r"\{(\w+)\}", lambda found: given[found[1]], part) for part in parts]
    return max(filled, key=len).strip()


def test_what_the_page_says_stands_in_one_table_in_both_languages():
    for both in STRINGS.values():
        spanish, english = (sorted(re.findall(r"\{\w+\}|\|", text)) for text in both)
        assert spanish == english, both
    assert "(?<" not in SCRIPTS  # not every browser can look behind
    assert set(re.findall(r"\bsay\('(\w+)'", SCRIPTS)) <= STRINGS.keys()


BEST = Path("out/best.safetensors")


@pytest.fixture
def here(project) -> Checkpoint:
    """A folder to work in: in out/ a model, and the text that it has read."""
    tiny = corpus_from(TEXT)
    # A tuned model may have its characters in another order than its text.
    saved = small_checkpoint(characters=tiny.tokenizer.characters[::-1])
    BEST.parent.mkdir()
    return saved_with(saved, tiny)


def saved_with(saved: Checkpoint, text: Corpus) -> Checkpoint:
    """Save a checkpoint that learned from a text, with that text beside it."""
    identity = {"corpus_sha256": text.sha256, "corpus_lengths": text.lengths}
    saved = replace(saved, corpus_name=text.name, **identity)
    checkpoint.save(BEST, saved)
    BEST.with_name("corpus.txt").write_text(text.text, encoding="utf-8")
    return saved


def made(*args: str) -> dict:
    """Make a page by the command; return its facts."""
    assert run("convert.py", "to-page", *args).status == 0
    return json.loads(re.search(FACTS, Path("sancho.html").read_text("utf-8"))[1])


def test_no_browser_fills_a_field_of_its_own_accord():
    """Firefox would put back the name of a file that is given no more, and hide what was typed."""
    skeleton = (page.UI / "skeleton.html").read_text("utf-8")
    fields = re.findall(r"<(?:input|textarea|select)\b[^>]*>", skeleton)
    typed = [field for field in fields if "readonly" not in field]
    assert typed
    assert [field for field in typed if 'autocomplete="off"' not in field] == []


def test_the_seed_is_said_to_give_the_text_of_sample_where_it_does(visit, mini):
    assert visit(mini, "float16").texts("#semilla-nota") == [words_of("seed_hint")]
    whole = small_checkpoint()
    assert visit(whole).texts("#semilla-nota") == [words_of("seed_hint")]
    assert visit(whole, "float16").texts("#semilla-nota") == [words_of("seed_hint_here")]


def test_to_page_says_what_it_made_and_what_packing_costs(here):
    done = run("convert.py", "to-page")
    assert re.search(
        r"loss before → after packing: \d\.\d{5} → \d\.\d{5} nats .* of tiny", done.err
    )
    assert not any(made()["links"].values())
    links, name = made("--repository=ana/sancho")["links"], "ana/sancho"
    assert links["chapter"] == f"https://github.com/{name}/blob/main/notebooks/{{file}}.ipynb"
    assert "give it as OWNER/NAME" in run("convert.py", "to-page", "--repository=sancho").err
    assert [page.title(name) for name in ("quijote", "mis cartas")] == ["Don Quijote", "mis cartas"]
    # It is measured on the model's own text, or else on the sample text.
    cost = made()["cost"]
    text = TEXT[-cost["characters"] - 1 :]
    for name, of in (("before", here), ("after", packing.rounded(here, "float16"))):
        loss = validation_loss(of.build_model(), here.tokenizer.encode(text))
        assert cost[name] == pytest.approx(loss, abs=1e-5)
    assert cost["text"] == "tiny"
    assert 0 < abs(cost["after"] - cost["before"]) < 0.002
    BEST.with_name("corpus.txt").unlink()
    assert made()["cost"] is None
    Path("data/apocrifo.txt").write_text(TEXT, encoding="utf-8")
    assert made("--precision=float32")["cost"]["text"] == "apocrifo"


def test_a_page_that_would_teach_another_model_has_no_lesson_and_to_page_says_why(
    here, monkeypatch
):
    assert made()["teaching"]["models"]
    changed = replace(page.MINI, train=replace(page.MINI.train, patience=5))
    monkeypatch.setattr(page, "MINI", changed)
    assert made()["teaching"] is None
    done = run("convert.py", "to-page")
    why = "page/engine/train.js does not learn with --patience 5"
    assert f"note: the page has no lesson: {why}" in done.err


def test_the_curve_lies_beside_the_checkpoint_and_keeps_every_evaluation(here):
    metrics = [{"step": n, "train_loss": 5.0 - n / 1000} for n in range(1000)]
    metrics[501]["val_loss"] = 2.0
    metrics += [{"step": 1000, "train_loss": float("nan"), "val_loss": 1.5}, {"train_loss": 3.0}]
    text = "\n".join(map(json.dumps, metrics))
    BEST.with_name("metrics.jsonl").write_text(text, encoding="utf-8")
    curve = made()["curve"]
    assert [501, 4.499, 2.0] in curve
    assert [1000, None, 1.5] in curve
    assert 200 <= len(curve) <= 203
    assert made("--checkpoint=pretrained")["curve"][-1] == [14000, None, 1.106]


def test_passages_are_sentences_of_the_validation_part_and_no_titles(here):
    story = "Dijo {0} que no. Y volvió a decir " + "una y otra vez " * 14 + "que no.\n\n"
    book = "".join(f"Capítulo {n}. Qué pasó.\n\n{story.format(n)}" for n in range(1000))
    own = corpus_from(book, "libro")
    saved_with(here, own)
    passages = made()["passages"]
    assert len(passages) == 12
    for before, passage in passages:  # and before them whole words
        assert len(re.findall(rf"\s{before}{passage}", own.tokenizer.decode(own.val))) == 1
        assert re.fullmatch(r"Y volvió .{200,300} que no\.", passage)
    BEST.with_name("corpus.txt").unlink()
    assert made()["passages"] == []


ABBREVIATED = "y pasó un rato, etc. " * 30
SENTENCE = "Al fin volvió " + "una y otra vez " * 14 + "y calló."


def test_a_passage_begins_where_a_sentence_does_and_not_after_any_point():
    before = ABBREVIATED[-200:].partition(" ")[2]
    assert passages_of(f"{ABBREVIATED}{SENTENCE}\n") == [(before, SENTENCE)]


# --- a browser ------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def chromium() -> Iterator["Tab"]:
    """Chromium without a window."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options, driver = webdriver.ChromeOptions(), shutil.which("chromedriver")
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser")
    if not (options.binary_location and driver):
        pytest.skip("chromium or chromedriver is not installed")
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1280,900"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.add_experimental_option("prefs", {"intl.accept_languages": "es"})
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as browser:
        browser.set_script_timeout(110)  # for slow machines; selenium itself gives up after 120
        yield Tab(browser)


AXE = Path(os.environ.get("SANCHO_AXE") or ROOT / "page/node_modules/axe-core/axe.min.js")


class Tab:
    """A page as somebody uses it, and of its script `window.sancho` alone."""

    def __init__(self, driver) -> None:
        self.driver = driver

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def js(self, expression: str, *args):
        return self.driver.execute_script(f"return ({expression});", *args)

    def later(self, promise: str, *args):
        done = "arguments[arguments.length - 1]"
        program = f"({promise}).catch((error) => 'error: ' + error.message).then({done})"
        return self.driver.execute_async_script(program, *args)

    def unusable(self, where: str) -> list[str]:
        """Return what axe-core finds that not everybody can use."""
        self.driver.execute_script(AXE.read_text("utf-8"))
        names = "(v) => `${v.id}: ${v.nodes.map((n) => n.target).join(' ')}`"
        return self.later(f"axe.run({where}).then((r) => r.violations.map({names}))")

    def write(self, start: str, n: int, options: dict) -> str:
        return self.later("sancho.write(...arguments)", start, n, options)

    def look(self, text: str) -> dict:
        return self.js("sancho.look(arguments[0])", text)

    def wait(self, condition: str, *args) -> None:
        look = f"const look = () => ({condition}) ? resolve() : setTimeout(look, 10);"
        assert self.later(f"new Promise((resolve) => {{ {look} look(); }})", *args) is None

    def ready(self) -> "Tab":
        assert self.later("sancho.ready.then(() => true)") is True
        self.rest()
        return self

    def again(self) -> None:
        """Load the page of this address anew."""
        self.driver.refresh()
        self.ready()

    def arrive(self, condition: str = "window.sancho") -> "Tab":
        """Wait for a page that is on its way: a script that waits in the one before it is lost."""
        error = pytest.importorskip("selenium.common.exceptions").JavascriptException
        until = time.monotonic() + 180
        while time.monotonic() < until:
            with suppress(error):
                if self.js(condition):
                    return self.ready()
            time.sleep(0.05)
        raise AssertionError(f"no page came of which {condition}")

    def follow(self, selector: str) -> str:
        """Press what opens another tab, and go there; return the handle of this one."""
        here = self.driver.current_window_handle
        before = set(self.driver.window_handles)
        self.press(selector)
        until = time.monotonic() + 180
        while not (opened := set(self.driver.window_handles) - before):
            assert time.monotonic() < until
            time.sleep(0.05)
        self.driver.switch_to.window(opened.pop())
        return here

    def rest(self) -> None:
        """Wait until all is written and read, and the chosen letter shown."""
        self.wait("!sancho.busy")

    def see(self, selector: str, words: str) -> None:
        there = "document.querySelector(arguments[0])"
        self.wait(f"{there}?.innerText.includes(arguments[1])", selector, words)

    def find(self, selector: str):
        """Return what is there, in the middle of the window."""
        found = self.driver.find_element("css selector", selector)
        self.js("arguments[0].scrollIntoView({ block: 'center', behavior: 'instant' })", found)
        return found

    def press(self, *selectors: str) -> None:
        """Click where a finger would: what is covered can't be."""
        for selector in selectors:
            self.find(selector).click()
            self.rest()

    def keys(self, selector: str, *names: str) -> None:
        keys = pytest.importorskip("selenium.webdriver").Keys
        self.find(selector).send_keys([getattr(keys, name, name) for name in names])
        self.rest()

    def point(self, selector: str) -> None:
        """Hold the mouse over it."""
        mouse = pytest.importorskip("selenium.webdriver").ActionChains(self.driver)
        mouse.move_to_element(self.find(selector)).perform()

    def fill(self, **texts: object) -> None:
        """Paste texts into fields."""
        for name, text in texts.items():
            field = self.driver.find_element("id", name)
            self.js("arguments[0].value = arguments[1]", field, str(text))
            self.js("arguments[0].dispatchEvent(new Event('input', { bubbles: true }))", field)

    def shown(self, selector: str) -> str:
        return self.driver.find_element("css selector", selector).text

    def all(self, selector: str, look: str) -> list:
        return self.js(f"Array.from(document.querySelectorAll(arguments[0]), {look})", selector)

    def texts(self, selector: str) -> list[str]:
        return self.all(selector, "(node) => node.textContent")

    @property
    def text(self) -> str:
        return "".join(self.texts("#texto"))

    @property
    def chosen(self) -> int:
        """How many of its letters come before the chosen one."""
        return len(self.texts("#texto :has(~ .chosen-letter)"))

    def show_as(self, width: int = 0, media: str = "", **features: str) -> None:
        """Let the page see a width, if any, a medium, and what somebody prefers."""
        prefers = {f"prefers-{name}".replace("_", "-"): value for name, value in features.items()}
        seen = {"media": media, "features": [{"name": n, "value": v} for n, v in prefers.items()]}
        size = {"width": width, "height": 0, "deviceScaleFactor": 0, "mobile": 0 < width < 500}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", seen)
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.fixture
def visit(chromium, tmp_path) -> Iterator[Callable[..., Tab]]:
    """Open the page of a checkpoint, which says nothing in its console and asks for no file."""
    path = tmp_path / "página.html"

    def open_page(saved: Checkpoint, precision="float32", address="", **options) -> Tab:
        page.write_page(saved, path, precision=precision, **options)
        chromium.console()
        chromium.driver.get(path.as_uri() + address)
        return chromium.ready()

    yield open_page
    chromium.show_as()
    chromium.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})  # the height, too
    kept = {"origin": "file://", "storageTypes": "local_storage,indexeddb"}
    chromium.driver.execute_cdp_cmd("Storage.clearDataForOrigin", kept)
    assert chromium.console() == []
    assert chromium.js("performance.getEntriesByType('resource')") == []


@pytest.fixture(scope="module")
def mini() -> Checkpoint:
    """The model that most tests open; many of its characters are equally likely."""
    saved = small_checkpoint()
    saved.weights["head.weight"][10:] = 0
    return packing.rounded(saved, "float16")


LINKS = page.Links(
    project="a.html",
    course="index.html",
    chapter="curso/{file}.html",
    page="https://example.org/page.html",
)


@pytest.fixture
def tab(visit, mini) -> Tab:
    """That page, just opened."""
    return visit(mini, "float16", links=LINKS)


PASSAGES = [("un lugar ", "de la mancha " * 9)] * 2
"""One for each game."""

FAST = "mini"
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES if name != FAST]
of_each_family = pytest.mark.parametrize("family", [FAST, *SLOW])


@of_each_family
def test_logits_are_the_golden_ones(visit, family):
    saved = checkpoint.load(FOLDER / f"{family}.safetensors")
    answers = json.loads((FOLDER / f"{family}.json").read_text(encoding="utf-8"))
    tab, text = visit(saved), saved.tokenizer.decode(answers["ids"])
    found = [tab.look(text[:n])["logits"][-1] for n in range(1, len(text) + 1)]
    np.testing.assert_allclose(found, answers["logits"], rtol=0, atol=1e-4)
    options = {"seed": answers["seed"], "temperature": answers["temperature"], "min_p": None}
    for settings, name in (({"temperature": 0}, "greedy"), (options, "seeded")):
        assert tab.write(answers["start"], 60, settings) == answers[name]


def test_every_bit_of_a_half_precision_weight_comes_back(visit):
    saved = small_checkpoint("classic")
    largest = np.finfo(np.float16).max.view(np.uint16)
    numbers = np.linspace(0, largest, len(CHARACTERS)).astype(np.uint16)
    numbers[::2] |= 1 << 15  # the sign
    # Where what leaves the last block counts for nothing, logits are weights.
    saved.weights["norm.weight"][:] = 0
    saved.weights["norm.bias"][:] = np.eye(SMALL["n_embd"])[0]
    saved.weights["head.weight"][:, 0] = numbers.view(np.float16)
    found = visit(saved, "float16").look("un lugar")["logits"][-1]
    assert found == saved.weights["head.weight"][:, 0].tolist()


@pytest.mark.parametrize("preset", ["classic", "mini"])
def test_faint_streams_are_normalised_as_the_model_does(visit, preset):
    saved = small_checkpoint(preset)
    for name, array in saved.weights.items():
        if "embedding" in name and not name.endswith("keys"):
            array *= 0.003  # beside the squares of these, what a norm adds to them counts
    text = "un lugar de la mancha"
    logits = exact_logits(saved.build_model(), saved.tokenizer.encode(text)[None].astype(int))
    found = visit(saved).look(text)["logits"][-1]
    np.testing.assert_allclose(found, logits[0, -1], atol=1e-4)


@pytest.mark.parametrize(
    "saved",
    [
        pytest.param(lambda: checkpoint.load(FOLDER / "mini.safetensors"), id="golden"),
        pytest.param(lambda: small_checkpoint("classic", HOSTILE, block_size=300), id="long"),
        pytest.param(lambda: small_checkpoint("mini", HOSTILE[:9], block_size=1), id="short"),
    ],
)
def test_the_window_and_the_proof_are_those_of_the_library(visit, saved):
    saved = saved()
    tab = visit(saved)
    assert tab.js("proofWindow(app.model.config)") == proof_window(saved.model_config)[0].tolist()
    assert_proves(from_base64(tab.later("proofOf(app.model)")), saved)


def change_facts(path: Path, change: Callable[[dict], object]) -> None:
    """Let a page say something else of its model."""
    text = path.read_text("utf-8")
    facts = json.loads(re.search(FACTS, text)[1])
    change(facts)
    before, _, after = re.split(r'(?<=id="facts">)(.*?)(?=</script>)', text, maxsplit=1)
    path.write_text(before + json.dumps(facts) + after, encoding="utf-8")


def change_proof(place: int, facts: dict) -> None:
    proof = from_base64(facts["proof"])
    proof[place] += 2 * TOLERANCE * max(1, np.abs(proof).max())
    facts["proof"] = in_base64(proof)


OTHER = words_of("other_function")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda facts: facts["config"].update(norm="mish"), "norm=mish", id="norm"),
        pytest.param(lambda facts: facts["config"].update(position="alibi"), "alibi", id="alibi"),
        pytest.param(lambda facts: facts["config"].update(activation="mish"), "=mish", id="mish"),
        pytest.param(lambda facts: facts["config"].update(activation="relu"), OTHER, id="relu"),
        pytest.param(partial(change_proof, 0), OTHER, id="beginning"),
        pytest.param(partial(change_proof, -1), OTHER, id="end"),  # which is looked at later
    ],
)
def test_a_page_that_computes_another_model_says_so_and_writes_nothing(
    visit, tmp_path, change, said
):
    tab = visit(small_checkpoint(block_size=64))
    assert tab.shown("#texto")
    change_facts(tmp_path / "página.html", change)
    tab.driver.refresh()
    tab.see("header + .notice", said)
    assert tab.shown("main") == tab.shown("nav") == ""


def test_texts_are_those_of_sample(tab, mini):
    start = "un lugar de la mancha, de cuyo nombre"
    assert len(start) > SMALL["block_size"]
    for options in (
        {"seed": 1, "temperature": 0},
        {"seed": 2, "temperature": 1e-300},
        {"seed": 3, "temperature": 1.7, "top_k": 9},
        {"seed": 4, "temperature": 0.6, "top_p": 0.7, "min_p": 0.02},
        {"seed": 5, "top_k": 99, "top_p": 0.0},
        {"seed": 6, "min_p": 1.0},
        {"seed": 2**70 + 3, "temperature": 1.2, "top_k": 9, "top_p": 0.9, "min_p": 0.01},
    ):
        given = options | {"seed": str(options["seed"])}
        assert start + tab.write(start, 100, given) == written(mini, start, 100, **options)


ADDRESS = "https://example.org/sancho.html"


@pytest.mark.parametrize("address", ["", ADDRESS])
def test_without_an_address_nothing_is_dead(visit, mini, tmp_path, address):
    known = {"page": address, "picture": "https://example.org/a.png"}
    links = page.Links(**known) if address else page.Links()
    tab = visit(mini, links=links, passages=PASSAGES)
    assert tab.all("a", "(a) => a.getAttribute('href')[0]").count("#") == len(tab.texts("a")) - 1
    text = tab.js("document.querySelector('main').textContent")
    assert [name for name in re.findall(CHAPTER, SCRIPTS) if words_of(name) in text] == []
    if address:
        tab.js("navigator.clipboard.writeText = async (text) => (window.copied = text)")
        tab.press("#enlace")
        tab.see("#estado", words_of("link_copied"))
        assert tab.js("copied") == address + tab.js("location.hash")
    assert bool(tab.shown("#enlace")) == bool(address)
    tab.driver.execute_script("showScore({ number: 1, yours: [1], models: [2] })")
    score = tab.find("#resultado textarea").get_attribute("value")
    assert score.endswith(f"\n{address}#game=2") == bool(address)
    text = (tmp_path / "página.html").read_text("utf-8")
    assert [word in text for word in ("og:url", "og:image")] == [bool(address)] * 2
    elsewhere = page.relinked(text, LINKS)
    assert page.relinked(elsewhere, links) == text != elsewhere


def open_changed(tab: Tab, source: str) -> None:
    """Load the page anew in a browser that a script changes before."""
    tell = tab.driver.execute_cdp_cmd
    changed = tell("Page.addScriptToEvaluateOnNewDocument", {"source": source})
    tab.driver.refresh()
    tell("Page.removeScriptToEvaluateOnNewDocument", changed)


def test_what_a_browser_lacks_is_said_in_the_language_of_the_page(tab):
    open_changed(tab, "delete window.Worker")
    assert words_of("no_worker") in tab.ready().shown("#ensena")
    open_changed(tab, "delete window.DecompressionStream")
    tab.see("header + .notice", words_of("missing", names="DecompressionStream"))


@pytest.mark.parametrize(
    "source",
    ["delete window.WebAssembly", "WebAssembly.Module = class { constructor() { throw Error() } }"],
    ids=["lacks", "forbids"],
)
def test_a_browser_that_has_no_webassembly_or_compiles_none_writes_the_same(tab, source):
    text = tab.text
    assert tab.js("app.model.matrices !== null")
    open_changed(tab, source)
    assert tab.ready().text == text
    assert tab.js("app.model.matrices === null")


def test_a_preview_without_scripts_says_what_to_do_and_nothing_else(chromium, mini, tmp_path):
    """Mails and phones show a page first without its scripts."""
    path, tell = tmp_path / "página.html", chromium.driver.execute_cdp_cmd
    page.write_page(mini, path, precision="float16")
    try:
        tell("Emulation.setScriptExecutionDisabled", {"value": True})
        chromium.driver.get(path.as_uri())
        nodes = tell("Accessibility.getFullAXTree", {})["nodes"]
    finally:
        tell("Emulation.setScriptExecutionDisabled", {"value": False})
    seen = [(x["role"]["value"], x["name"]["value"]) for x in nodes if not x["ignored"]]
    said = {name for role, name in seen if role == "StaticText"}
    notices = {words_of("no_script"), words_of("no_script", 1)}
    assert said == notices | {words_of("heading", name="Sancho"), words_of("motto")}
    assert {role for role, _ in seen} & {"link", "button", "textbox", "progressbar"} == set()


def test_writing_going_on_back_another_way_and_stopping(tab, mini):
    first, chosen = tab.text, tab.chosen
    assert first[chosen - 2 : chosen + 1].isalpha()  # within a word
    assert first == written(mini, page.START, len(first) - len(page.START))
    options = {"temperature": 0.5, "top_k": 12, "top_p": 0.9, "min_p": 0.02}
    tab.fill(inicio="un hidalgo", semilla=9, cuantas=70, temperatura=0.5)
    tab.fill(**{"top-k": 12, "top-p": 0.9, "min-p": 0.02})
    tab.press("#escribir")
    expected = written(mini, "un hidalgo", 140, 9, **options)
    assert tab.text == expected[:80]
    tab.press("#seguir")
    assert tab.text == expected
    tab.press("#volver")
    assert (tab.text, tab.chosen) == (first, chosen)
    # Another letter, and what follows from it.
    tab.fill(cuantas=40, semilla=1605)
    tab.press("#texto span:nth-child(21)")
    bars = tab.texts(".bars li:not(.absent)")
    assert sum(words_of("written") in bar for bar in bars) == 1
    glyph = tab.shown(".bars li:nth-child(2) .glyph")
    other = {"␣": " ", "↵": "\n"}.get(glyph, glyph)
    tab.press(".bars li:nth-child(2) button", "#texto span:nth-child(31)", "#seguir", "#enlace")
    text = written(mini, first[:20] + other, 80, **options)
    assert (tab.text, tab.chosen) == (text, 30)  # what is chosen stays
    tab.again()  # the address is a link to what was shown
    assert (tab.text, tab.chosen) == (text, 30)
    tab.fill(temperatura=1.5, cuantas=9, semilla="x")
    assert words_of("wrong_seed", seed=1605) in tab.texts("#semilla-mal:not([hidden])")[0]
    tab.press("#seguir", "#enlace")  # what was written in two ways is given as a whole
    assert "letras=0&" in tab.js("location.hash")
    tab.js("(location.hash = '#inicio=la+mancha&letras=5&semilla=7&top-k=1')")
    tab.wait("document.getElementById('texto').children.length === 14 && !sancho.busy")
    assert tab.text == written(mini, "la mancha", 5, 7, top_k=1)
    tab.fill(cuantas=100_000)
    tab.find("#escribir").click()
    tab.wait("document.getElementById('texto').children.length > 50")
    assert tab.shown("#escribir") == words_of("stop")
    tab.press("#escribir")
    tab.see("#escribir", words_of("write_another"))
    assert 50 < len(text := tab.text) < 90_000
    tab.fill(inicio="otra cosa")
    tab.press("nav summary", "nav [href='#sorpresa']")  # who comes back finds what was typed
    back = "addEventListener('hashchange', () => done()); history.back();"
    tab.later(f"new Promise((done) => {{ {back} }})")
    tab.rest()
    typed = tab.find("#inicio").get_attribute("value")
    assert (tab.text, typed) == (text, "otra cosa")


def test_back_and_forth_keep_all_texts_and_what_was_given_is_told_from_what_was_written(tab):
    def shown() -> tuple:
        rows = "(span) => [span.textContent, span.className.replace(/ ?chosen-letter/, '')]"
        field = tab.find("#inicio").get_attribute("value")
        place = tab.shown("#lugar mark")
        return tab.all("#texto span", rows), tab.chosen, field, tab.shown("#estado"), place

    def told(i: int) -> list[str]:
        return tab.texts("#texto span:not(.written)")[i:]

    first, n = shown(), len(page.START)
    assert "".join(told(0)) == page.START
    tab.fill(inicio="la mancha", cuantas=30)
    tab.press("#escribir")
    second = shown()
    assert second[0] != first[0] and second[2] == "la mancha"
    tab.press("#volver")
    assert shown() == first
    assert (tab.find("#volver").is_enabled(), tab.find("#avanzar").is_enabled()) == (False, True)
    # Another letter: all before it is as it was, and it was given.
    tab.press(f"#texto span:nth-child({n + 20})")
    first = shown()
    tab.press(".bars li:not(.drawn, .absent) button")
    third = shown()
    assert tab.chosen == n + 19  # it is the one that the panel shows
    assert third[0][: n + 19] == first[0][: n + 19]
    assert len(told(n)) == 1 and third[0][n + 19][1] == ""
    assert third[2] == page.START and words_of("letters", n=30) in third[3]
    tab.fill(inicio="un borrador")  # which is not lost either
    for button, text in (
        ("#volver", first),
        ("#avanzar", (*third[:2], "un borrador", *third[3:])),
        ("#avanzar", second),
        ("#volver", (*third[:2], "un borrador", *third[3:])),
    ):
        tab.press(button)
        assert shown() == text
    # What is written on after coming back is no longer what a seed alone gives.
    tab.press("#seguir", "#enlace")
    assert len(tab.text) == len(third[0]) + 30
    assert "letras=0&" in tab.js("location.hash")
    tab.fill(cuantas=100_000)
    tab.find("#escribir").click()
    assert tab.shown("#lugar") == words_of("none_chosen")  # nothing of another text
    tab.wait("document.getElementById('texto').children.length > 50")
    tab.press("#volver", "#avanzar")
    assert len(tab.text) > 50 and not tab.js("story.running")


@pytest.mark.parametrize(("width", "height"), [(360, 740), (1280, 720), (1280, 900)])
def test_the_text_begins_on_the_first_screen_and_stays_where_controls_open(tab, width, height):
    size = {"width": width, "height": height, "deviceScaleFactor": 0, "mobile": width < 500}
    tab.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    tab.again()
    top = "document.querySelector('#texto span').getBoundingClientRect().top + scrollY"
    before = tab.js(top)
    assert tab.js("scrollY") == 0
    box = "document.querySelector('{}').getBoundingClientRect()".format
    if width < 500:
        assert tab.js(f"{box('#texto')}.top") < 150
        assert tab.js(f"{box('#ajustes')}.bottom <= {box('#lema')}.top")  # beside the title
        lines = "(node) => node.offsetHeight / parseFloat(getComputedStyle(node).lineHeight)"
        assert max(tab.all("h1, #lema, #colores", lines)) < 1.5
    else:  # what leads to the games is there, too
        assert before < 240
        assert tab.js(f"{box('#juegos')}.bottom") < height
    opener = tab.driver.find_element("css selector", "#mandos summary")
    tab.js("arguments[0].scrollIntoView({ block: 'end', behavior: 'instant' })", opener)
    opener.click()
    if width > 1000:  # the opened controls come onto the screen, and the text stays on it
        tab.wait(f"{box('.controls')}.bottom <= innerHeight")
        assert tab.js(f"{box('#texto')}.top") >= 0
    tab.js("scrollTo({ top: 0, behavior: 'instant' })")
    assert tab.js(top) == before
    assert tab.js("document.querySelector('#texto').clientHeight") > 90
    # What one presses stays under the finger, however much comes below it.
    opener.click()
    button = f"{box('#escribir')}.top + scrollY"
    where = tab.js(button)
    tab.driver.find_element("id", "escribir").click()
    tab.wait("!document.getElementById('volver').hidden && !sancho.busy")
    assert tab.js(button) == where


def test_three_cards_lead_to_the_games_that_are_there(visit, mini):
    card = "#juegos a:not([hidden])"
    assert visit(mini).texts(f"{card} b") == [words_of("to_teach")]
    tab = visit(mini, passages=PASSAGES)
    duel = words_of("book_or_sancho")
    assert tab.texts(f"{card} b") == [words_of("to_guess"), duel, words_of("to_teach")]
    assert tab.shown("#duelo-titulo") == duel
    for part in ("adivina", "duelo", "ensena"):
        tab.press(f"#juegos [href='#{part}']")
        tab.wait(f"Math.abs(document.getElementById('{part}').getBoundingClientRect().top) < 40")


def test_what_the_looks_of_a_letter_mean_is_said_above_the_text(tab):
    look = """(node) => {
      const { backgroundColor, textDecorationLine } = getComputedStyle(node);
      return [backgroundColor, textDecorationLine];
    }"""
    swatches = tab.all("#colores .swatch", look)
    assert len({*map(tuple, swatches)}) == len(tab.js("TINTS")) == len(swatches)
    weight = "(node) => getComputedStyle(node).fontWeight"
    assert tab.all("#colores b", weight) == tab.all("#texto span:first-child", weight)
    edge = "document.querySelector('{}').getBoundingClientRect().{}".format
    assert tab.js(f"{edge('#colores', 'bottom')} <= {edge('#texto', 'top')}")
    tab.fill(ajeno="un lugar de la mancha")
    tab.press("#leer")
    assert tab.all("#sorprendido .swatch", look)[1:] == swatches


def test_sentences_call_controls_as_they_are_labelled():
    for language, (first, last) in enumerate(("«»", "“”")):
        labels = {words_of(name, language) for name in ("temperature", "controls")}
        for name in ("as_drawn", "with_controls", "switch_off_intro"):
            quoted = re.findall(f"{first}([^{last}]+){last}", words_of(name, language))
            assert {*quoted} == labels


def test_enter_writes_and_with_shift_begins_a_line(tab, mini):
    tab.fill(cuantas=20, inicio="la mancha")
    tab.keys("#inicio", "END", "ENTER")
    assert tab.text == written(mini, "la mancha", 20)
    shift = pytest.importorskip("selenium.webdriver").Keys.SHIFT
    before = tab.js("document.getElementById('inicio').clientHeight")
    tab.find("#inicio").send_keys(shift, "\n")
    assert tab.find("#inicio").get_attribute("value") == "la mancha\n"
    assert tab.js("document.getElementById('inicio').clientHeight") > before
    assert tab.text == written(mini, "la mancha", 20)


def test_a_beginning_is_tried_with_one_press(visit):
    tab = visit(small_checkpoint(characters=f"{CHARACTERS}H"))
    offered = tab.texts("#comienzos button")
    known = [start for start in tab.js("BEGINNINGS") if {*start} <= {*CHARACTERS, "H"}]
    assert offered == known != tab.js("BEGINNINGS")
    tab.fill(cuantas=20)
    tab.press("#comienzos button:last-child")
    assert tab.text.startswith(offered[-1])
    assert len(tab.text) == len(offered[-1]) + 20
    assert tab.find("#inicio").get_attribute("value") == offered[-1]


def test_the_bars_follow_the_temperature_at_once(tab):
    width = "document.querySelector('#vista-letra li .after > span').style.width"
    tab.fill(temperatura=2)
    flat = float(tab.js(width).rstrip("%"))
    tab.fill(temperatura=0)
    assert float(tab.js(width).rstrip("%")) == 100
    assert flat < 100
    assert not tab.js("document.getElementById('mandos').open")


def test_who_presses_again_gets_another_text_and_may_have_the_same_one(tab, mini):
    """The first text, and that of a link, have the seed that the page says."""
    first = tab.text
    tab.fill(cuantas=60)
    seeds = [1605]
    for _ in range(3):
        assert tab.shown("#escribir") == words_of("write_another")
        tab.press("#escribir")
        seeds.append(int(tab.find("#semilla").get_attribute("value")))
        text = written(mini, page.START, 60, seeds[-1])
        assert tab.text == text and not first.startswith(text)
        assert tab.shown("#otra-vez") == words_of("write_again", seed=str(seeds[-1]))
        tab.press("#otra-vez")
        assert tab.text == text
    assert len(set(seeds)) == 4
    tab.press("#enlace")
    tab.again()
    assert tab.text == text
    # What somebody changes is written as asked for.
    tab.fill(semilla=1605)
    assert (tab.shown("#escribir"), tab.shown("#otra-vez")) == (words_of("write"), "")
    tab.press("#escribir")
    assert tab.text == written(mini, page.START, len(tab.text) - len(page.START))
    tab.fill(inicio="la mancha")
    tab.press("#escribir")
    assert tab.find("#semilla").get_attribute("value") == "1605"
    assert tab.text == written(mini, "la mancha", len(tab.text) - 9)


def test_who_begins_is_offered_letters_and_told_which_are_unknown(tab, mini):
    tab.fill(inicio="")
    for keys, text in (("un l", "un l"), ("u", "un lu"), ("\b" * 4 + "x", "ux")):
        tab.find("#inicio").send_keys(keys)
        logits = mini.build_numpy().logits(mini.tokenizer.encode(text)[None])[0, -1]
        best = "document.querySelector('#candidatas:not([hidden]) button')?.ariaLabel"
        share = f"{100 * softmax(logits).max():.1f}\u00a0%"
        tab.wait(f"{best}?.endsWith(arguments[0])", share)
    tab.press("#candidatas button")
    assert tab.js("document.getElementById('inicio').value") == text + CHARACTERS[logits.argmax()]
    tab.fill(cuantas=10, inicio="wn lugar…")
    tab.press("#escribir")
    notice = tab.shown("#desconocidas")
    for letter, n, near in (("«w»", 1, "«v»"), ("«…»", 9, "«...»")):
        near = words_of("nearest", letter=near)
        assert words_of("unknown_letter", letter=letter, n=n, nearest=near) in notice
    tab.press("#desconocidas button:last-of-type")
    assert tab.text.startswith("n lugar")
    unknown = "w…Wａü–\t\u00a0ﬁœ€ßÀ字êo\u0301"
    composed = unicodedata.normalize("NFC", unknown)
    nearest = (c if c in CHARACTERS else mini.tokenizer.nearest(c) for c in composed)
    tab.fill(inicio=unknown)
    tab.press("#escribir", "#desconocidas button:first-of-type")
    assert tab.text.startswith("".join(near or "" for near in nearest))
    for start, read in (("", "\n"), (unicodedata.normalize("NFD", "así"), "así")):
        tab.fill(inicio=start)
        tab.press("#escribir")
        assert tab.text == written(mini, read, 10)


def test_a_letter_is_asked_with_keys_buttons_and_the_mouse(tab, mini):
    ids, B = mini.tokenizer.encode(tab.text), mini.model_config.block_size
    last, began = len(ids) - 1, 0  # where the context of the last letter began
    for i in range(len(page.START), last):
        if i + 1 - began > B:
            began = i + 1 - B // 4

    def see(i: int, began: int = 0) -> None:
        p = softmax(mini.build_numpy().logits(ids[None, began:i])[0, -1])
        tab.see("#vista-letra", words_of("surprise_of", bits=f"{-np.log2(p[ids[i]]):.1f}"))

    tab.press("#vista-letra summary")
    tab.keys("#texto", "HOME", *["ARROW_RIGHT"] * 12)
    see(12)
    tab.press("#siguiente")
    see(13)
    assert re.search(r"\b14\b", tab.texts("#dicho")[0])
    tab.press("#texto span:nth-child(6)")
    see(5)
    tab.point("#texto span:nth-child(9)")
    see(8)
    tab.point("h1")
    see(5)
    tab.keys("#texto", "ARROW_DOWN")
    assert tab.chosen > 5
    tab.keys("#texto", "HOME")
    assert words_of("first_of_text") in tab.shown(".asking")
    tab.keys("#texto", "END")
    see(last, began)


@torch.no_grad()
def watched(model: GPT, ids: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return what PyTorch's hooks see when the last of ids, (T,), is read.

    The attention weights (n_layer, H, T), and the logits of each residual stream (n_layer + 1, V).
    """
    streams, weights = [], []

    def attend(attention, args) -> None:
        q, k, _ = attention.queries_keys_values(args[0])  # each (1, H, T, D)
        scores = q[0, :, -1:] @ k[0].mT / attention.head_size**0.5  # (H, 1, T)
        weights.append(scores.softmax(-1)[:, 0].numpy())

    model.blocks[0].register_forward_pre_hook(lambda _, x: streams.append(x[0]))
    for block in model.blocks:
        block.register_forward_hook(lambda _, x, y: streams.append(y))
        block.attention.register_forward_pre_hook(attend)
    model(ids[None])
    return np.array(weights), model.head(model.norm(torch.stack(streams)))[:, 0, -1].numpy()


def test_attention_and_lens_are_those_of_the_model(tab, mini):
    read = tab.text[:25]
    ids = torch.tensor(mini.tokenizer.encode(read).astype(int))
    weights, logits = watched(mini.build_model(), ids)
    np.testing.assert_allclose(tab.look(read)["attention"], weights, atol=1e-5)
    np.testing.assert_allclose(tab.look(read)["logits"], logits, atol=1e-4)
    tab.press("#texto span:nth-child(26)", "#tab-mira")
    tab.press(".layer:nth-of-type(2) .head:nth-of-type(2)")
    order = weights[1, 1].argsort()[::-1]
    figures = [f"{100 * weights[1, 1, s]:.1f}\u00a0%" for s in order[:3]]
    assert tab.texts("#vista-mira tbody td:nth-child(4)")[:3] == figures
    tab.point(f"#vista-mira .letters span:nth-child({order[0] + 1})")
    formula = r"√8 = −?\d+\.\d\d"
    told = "Array.from(document.querySelectorAll('#vista-mira p')).at(-1).textContent"
    tab.wait(f"/{formula}/.test({told})")
    tab.press("#vista-mira .letters .future")
    assert "−∞" in tab.shown(".detail")


def test_on_paper_are_the_whole_text_and_the_answer_in_dark_ink(tab):
    tab.press("#tema")
    tab.show_as(794, media="print")
    assert tab.js("getComputedStyle(document.getElementById('preguntas')).position") == "static"
    (hidden,) = tab.all("#texto", "(node) => node.scrollHeight - node.clientHeight")
    ink = tab.js("getComputedStyle(document.body).color")
    assert (tab.find(".bars").is_displayed(), hidden, ink) == (True, 0, "rgb(43, 33, 26)")
    assert tab.js("getComputedStyle(document.documentElement).colorScheme") == "light"
    gone = "#escribir, #seguir, #mandos, #vistas, #ensena, #apaga, #sorpresa"
    assert set(tab.all(gone, "(node) => node.getClientRects().length")) == {0}
    for part in ("#texto", "#lugar", ".bars button", "#ficha"):
        assert tab.find(part).is_displayed()


WALK, ON = (f".walk button:nth-child({n})" for n in (2, 3))
STATION = ".stop h3"


@of_each_family
def test_every_station_says_what_it_does_and_nothing_moves_unasked(visit, family):
    saved = checkpoint.load(FOLDER / f"{family}.safetensors")
    tab = visit(saved, links=LINKS)
    moves = "(node) => getComputedStyle(node).transitionDuration"
    assert set(tab.all("*", moves)) > {"0s"}
    tab.show_as(reduced_motion="reduce")
    tab.press("#tab-viaje")
    assert tab.shown(WALK) == words_of("walk")
    assert set(tab.all("*", moves)) == {"0s"}
    tab.press(ON)
    titles = []
    place = "document.querySelector('{}').getBoundingClientRect()".format
    for n in range(len(tab.texts(".station input"))):
        tab.press(f".station [value='{n}']")
        titles.append(tab.shown(STATION))
        letter, stop = (tab.js(place(part)) for part in (".walker", ".station:has(:checked)"))
        assert abs(letter["top"] + letter["bottom"] - stop["top"] - stop["bottom"]) < 3
        assert tab.shown(".stop p") and "NaN" not in tab.shown(".stop")
        assert tab.find(".stop a").get_attribute("href").endswith(".html")
    config = saved.model_config
    assert len(tab.texts(".machine .block")) == config.n_layer
    stations = 4 + 2 * 2 + (config.ngram_size > 1) + (config.position != "rope")
    assert len(set(titles)) == len(titles) == stations
    tab.press(".walk button:first-child")
    assert tab.shown(STATION) == words_of("station_head")


def test_while_it_walks_a_station_says_a_sentence_and_all_words_where_it_stands_still(tab):
    walking = [key for key in STRINGS if re.match("walk_", key)]
    assert [key for key in walking if max(len(text.split()) for text in STRINGS[key]) > 12] == []
    tab.show_as(360)
    tab.js("(journeyView.pause = 150)")
    tab.press("#texto span:nth-child(60)", "#tab-viaje")  # it begins by itself
    seen = """new Promise((resolve) => {
      const [said, cut] = [new Set(), []];
      const look = () => {
        const box = document.querySelector('.walking + .stop');
        if (!box) return resolve([Array.from(said), cut]);
        said.add(box.querySelector('p').textContent);
        const { top, bottom } = box.querySelector('p').getBoundingClientRect();
        const sheet = document.getElementById('preguntas').getBoundingClientRect();
        if (top < sheet.top || bottom > sheet.bottom || box.scrollHeight > box.clientHeight) {
          cut.push(box.textContent);
        }
        requestAnimationFrame(look);
      };
      look();
    })"""
    said, cut = tab.later(seen)
    assert cut == []
    assert {words_of(key) for key in walking} - {words_of("walk_position")} >= {*said}
    assert len(said) >= 5
    assert tab.shown(".stop p") == words_of("say_softmax", letter=tab.js("spoken(letterAt(59))"))
    assert tab.texts(".stop .guesses")


def test_on_a_wide_screen_all_views_of_a_letter_stand_side_by_side(tab):
    views = [f"#vista-{name}" for name in ("letra", "mira", "viaje")]
    assert [bool(tab.shown(view)) for view in views] == [True, False, False]
    tab.show_as(1920)
    tab.wait("document.getElementById('vistas').hidden")
    tab.press("#texto span:nth-child(60)")
    assert tab.shown("#vistas") == ""
    for view, name in zip(views, ("this_letter", "where_it_looks", "journey"), strict=True):
        assert tab.shown(f"{view} > h3") == words_of(name)
    heads = tab.all("[role='tabpanel'] > h3", "(name) => name.getBoundingClientRect().toJSON()")
    assert len({head["top"] for head in heads}) == 1
    assert heads[0]["right"] <= heads[1]["left"] and heads[1]["right"] <= heads[2]["left"]
    assert tab.shown("#vista-letra .verdict") and tab.shown("#vista-mira .verdict")
    assert tab.shown(WALK) == words_of("walk")  # it waits until it is asked to
    assert tab.js("document.documentElement.scrollWidth") <= 1920
    assert not AXE.is_file() or tab.unusable("'.asking'") == []
    tab.show_as(1280)
    tab.wait("!document.getElementById('vistas').hidden")
    assert [bool(tab.shown(view)) for view in views] == [True, False, False]


def test_on_a_phone_the_sheets_head_stays_in_sight_and_back_closes_it(tab):
    tab.show_as(360)
    where = "document.querySelector('{}').getBoundingClientRect().{}".format

    def tap(n: int) -> None:
        tab.press(f"#texto span:nth-child({n})")
        assert tab.shown("#cerrar") == words_of("close")

    tap(60)
    text = tab.text
    tab.press("#tab-mira")
    tab.js("(document.getElementById('preguntas').scrollTop = 1e6)")
    assert tab.js("document.getElementById('preguntas').scrollTop") > 50
    for part in ("#cerrar", "#tab-letra", "#lugar"):
        assert tab.js(where(part, "top")) >= tab.js(where("#preguntas", "top"))
    tab.press("#tab-letra")
    tab.driver.back()
    tab.wait("!document.querySelector('#preguntas.open')")
    assert (tab.text, tab.chosen) == (text, 59)
    tap(70)
    tab.wait("location.hash.includes('letra=70&')")  # of the sheet, which is left
    tab.press("#cerrar")
    tab.wait("history.state === SEEN")
    assert tab.shown("#cerrar") == ""
    tab.wait("location.hash.includes('letra=70&')")
    tap(80)
    tab.js("document.querySelector('nav [href=\"#sorpresa\"]').click()")  # who goes elsewhere
    tab.wait("!document.querySelector('#preguntas.open')")
    assert tab.js("location.hash") == "#sorpresa"
    tab.driver.back()
    tab.driver.back()
    assert (tab.text, tab.chosen) == (text, 79)


def test_surprise_is_the_validation_loss(tab, mini):
    text = "".join(c for c in TEXT[:400] if c in CHARACTERS)
    B = mini.model_config.block_size
    tab.fill(ajeno=text)
    tab.press("#leer")
    bits = validation_loss(mini.build_model(), mini.tokenizer.encode(text)) / np.log(2)
    assert words_of("bits_each", bits=f"{bits:.2f}") in tab.shown("#medias")
    assert f"{2.5 / np.log(2):.2f}" in tab.shown(".comparison")
    assert words_of("letters", n=len(text) - 1) in tab.shown("#lectura")
    assert tab.texts("#sorprendido .letters") == [text]
    # The model begins anew at each block: the page says so, and marks where.
    assert words_of("letters", n=B) in tab.shown("#sorprendido")
    letter = "#sorprendido .letters span:nth-child"
    windows = len(tab.texts(".letters .window"))
    assert windows == len(tab.texts(f"{letter}({B}n + 1).window")) == len(text[::B])
    tab.press(f"{letter}({2 * B + 4})")
    assert words_of("letters", n=3) in tab.shown("#sorprendido .detail")


def test_a_text_that_can_not_be_read_leaves_no_figure_of_the_one_before(tab):
    tab.fill(ajeno="un lugar de la mancha")
    tab.press("#leer")
    assert tab.shown("#medias") and tab.shown("#sorprendido")
    tab.fill(ajeno="字")
    tab.press("#leer")
    assert tab.shown("#lectura") == words_of("too_short")
    assert tab.shown("#medias") == tab.shown("#sorprendido") == ""


HEBREW = "\n אבגדהוזחטיכלמנסעפצקרשת."


def test_a_text_that_is_read_from_the_right_begins_there(visit):
    tab = visit(small_checkpoint(characters=HEBREW))
    tab.fill(inicio="שלום לך ", pegado="שלום", ajeno="שלום", cuantas=40)
    tab.press("#escribir", "#texto span:nth-child(20)")
    direction = "(node) => getComputedStyle(node).direction"
    assert set(tab.all("#inicio, #pegado, #ajeno, #texto, #lugar", direction)) == {"rtl"}
    left = tab.all("#lugar > *", "(node) => node.getBoundingClientRect().left")
    assert left == sorted(left, reverse=True)
    tab.fill(inicio="12")
    assert tab.all("#inicio", direction) == ["ltr"]


def test_a_link_with_a_seed_that_is_none_opens_at_once(visit, mini):
    for digits in ("9" * 1_000_000, str(2**128)):
        since = time.monotonic()
        tab = visit(mini, address=f"#inicio=la+mancha&letras=5&semilla={digits}")
        assert time.monotonic() - since < 15
        assert tab.text == written(mini, "la mancha", 5)
        assert tab.texts("#semilla-mal:not([hidden])") == [words_of("wrong_seed", seed="1605")]


def folded(text: str) -> str:
    """As it is guessed: without capitals and accents."""
    return text.lower().translate(str.maketrans("áéíóú\n", "aeiou "))


@torch.no_grad()
def tries_of(saved: Checkpoint, before: str, passage: str) -> list[int]:
    """Return how many tries PyTorch's model needs for each letter of a passage."""
    model, B, tries, start = saved.build_model(), saved.model_config.block_size, [], 0
    ids = torch.tensor(saved.tokenizer.encode(before + passage).astype(int))
    keys = [folded(character) for character in saved.characters]
    for at in range(len(before), len(ids)):
        start = at - B // 2 if at - start > B else start  # of a full window the newer half stays
        chances = dict.fromkeys(keys, 0.0)
        for key, p in zip(keys, model(ids[None, start:at])[0, -1].softmax(-1), strict=True):
            chances[key] += p.item()
        tries.append(1 + sum(p > chances[keys[ids[at]]] for p in chances.values()))
    return tries


def test_shannons_game_is_played_to_its_score(visit):
    saved, before, passage = small_checkpoint(), "Era\nun lugar. ", TEXT[:100].replace("o", "ó")
    assert visit(saved).shown("#adivina") == ""
    tab = visit(saved, passages=[("Uno. ", "dos"), (before, passage)])
    tab.js("(location.hash = '#game=2')")
    tab.see("#pasaje", "Era un lugar.")
    tab.keys("#pasaje", "w")
    assert tab.shown("#acierto") == words_of("no_key", letter="«w»")
    # By touch: what was tried is grey, and counts once. Then with the keys of a keyboard.
    wrong, right = (f"#teclas [aria-label='«{key}»']" for key in "xe")
    tab.press("nav [href='#adivina']")  # who types then, guesses
    tab.driver.switch_to.active_element.send_keys("x")
    wrong_once = words_of("wrong", letter="«x»", n=1)
    tab.see("#acierto", wrong_once)
    tab.press(wrong)
    assert tab.find(wrong).get_attribute("aria-disabled") == "true"
    assert tab.shown("#acierto") == wrong_once
    tab.press(right)
    tries, models = [2, 1, 3, 1, 3, 1, 2, 1, 3, 1] * 10, tries_of(saved, before, passage)
    typed = ["xz"[: n - 1] + folded(c) for n, c in zip(tries, passage, strict=True)]
    tab.keys("#pasaje", *typed[1:29])
    assert tab.shown("#resultado") == ""
    tab.keys("#pasaje", typed[29])
    tab.press("#resultado .row button")
    text = tab.find("#resultado textarea").get_attribute("value")
    ours = words_of("score_line", name=words_of("me"), first=15, mean="1.80")
    mean = f"{np.mean(models[:30]):.2f}"
    its = words_of("score_line", name="Sancho", first=models[:30].count(1), mean=mean)
    assert f"\n{ours}\n{its}\n{words_of('and_you')}" in text and words_of("letters", n=30) in text
    tenths = [(tries[n : n + 3].count(1), models[n : n + 3].count(1)) for n in range(0, 30, 3)]
    marks = ["=✓✗"[(mine > its) - (mine < its)] for mine, its in tenths]
    assert tab.texts("#resultado .squares span") == marks
    in_text = "".join(dict(zip("=✓✗", "🟨🟩🟥", strict=True))[mark] for mark in marks)
    assert words_of("score_squares", squares=in_text, name="Sancho") in text
    assert tab.texts("#resultado .score b") == ["15", str(models[:30].count(1))]
    verdict = words_of("sancho_first_you_fewer", name="Sancho", Name="Sancho")
    assert tab.js("verdict({ yours: [2, 2], models: [1, 9] })") == verdict
    tab.keys("#teclas [tabindex='0']", "ARROW_RIGHT")  # the tab key reaches one
    assert tab.driver.switch_to.active_element.text == "e"
    assert tab.all("#teclas button", "(key) => key.tabIndex").count(0) == 1
    tab.keys("#pasaje", *typed[30:])
    each = (
        words_of("you_and_sancho", yours=yours, name="Sancho", its=its)
        for yours, its in zip(tries, models, strict=True)
    )
    assert tab.all("#pasaje [title]", "(node) => node.title") == [*each]
    # Fractions of 0.5, 0.2, 0.3 are sorted: 2 · (0.3 − 0.2) · log2(2) + 3 · 0.2 · log2(3) bits at
    # least, 0.5 · log2(2) + 0.3 · log2(1/0.3) + 0.2 · log2(5) at most.
    assert tab.texts("#marcador td")[-8:-4] == [
        words_of("you"),
        words_of("n_of", n=50, all=100),
        "1.80",
        words_of("n_to", low="1.15", high="1.49"),
    ]


def send_with(tab: Tab, *, files: bool) -> dict:
    """Send the result of the duel, in a browser that can send files or not; return what is sent."""
    tab.driver.execute_script(
        """navigator.canShare = () => arguments[0];
        window.sent = null;
        const content = async (file) => [file.name, file.type, await file.text()];
        navigator.share = async ({ text, files = [] }) => {
          window.sent = { text, files: await Promise.all(files.map(content)) };
        };""",
        files,
    )
    tab.press("#duelo-final .row button")
    tab.wait("window.sent")
    return tab.js("window.sent")


def test_the_books_passage_is_found_beside_one_that_the_model_writes(visit, tmp_path):
    saved, before = small_checkpoint(), "Era un lugar. "
    passages = [(before, f"Un{c} en el lugar " + "de la mancha, " * 9) for c in "abcdefghijklm"]
    tab = visit(saved, passages=passages)
    first = tab.js("[duel.seed, ...app.deck.left]")
    tab.again()
    there = tab.js("[duel.seed, ...app.deck.left]")
    assert there[0] != first[0] and there[1:] != first[1:]  # each visit has its own
    tab.js("(duel.seed = 1605)")
    order = tab.js("[board.game.number, ...Array.from(app.deck.left).reverse()]")
    assert sorted(order) == [*range(13)]
    for n, (_, passage) in enumerate(passages[number] for number in order[1:11]):
        tab.press("#ronda")
        assert tab.texts("#rondas span") == ["✗"] * (n > 0) + ["✓"] * (n - 1) + [""] * (10 - n)
        assert (tab.shown("#ronda"), tab.js("document.activeElement.parentNode.id")) == (
            "",
            "pareja",
        )
        start = passage[: passage.index("lugar")]
        rival = written(saved, before + start, 120 - len(start), 1605 + n, temperature=0.7)
        rival = rival.removeprefix(before)
        shown = [text.partition(" … ")[0] for text in tab.texts("#pareja button")]
        assert {" ".join(passage.split())[:80], " ".join(rival.split())[:80]} == {
            text[:80] for text in shown
        }
        place = 1 + ["de la mancha, de la" in text for text in shown].index(n > 0)
        tab.press(f"#pareja button:nth-child({place})")
        assert tab.all("#pareja button", "(b) => b.ariaPressed")[place - 1] == "true"
        assert tab.js("document.activeElement.id") == "ronda"
    right, found = words_of("was_right"), words_of("n_of", n=9, all=10)
    assert tab.shown("#fallo").startswith(right) and found in tab.shown("#fallo")
    assert tab.shown("#duelo-final .score") == f"9 {words_of('of_all', all=10)}"
    assert tab.texts("#duelo-final .squares span") == ["✗", *"✓" * 9]
    assert tab.shown("#duelo-final textarea") == ""
    tab.press("#duelo-final .row button")  # where a browser sends nothing, it copies
    assert tab.shown("#duelo-final [role='status']") == words_of("copied")
    score = words_of("duel_score", duel=words_of("book_or_sancho"), score=found)
    told = [score, "🟥" + "🟩" * 9, words_of("and_you")]
    assert tab.js("getSelection().toString()") == "\n".join(told)
    assert send_with(tab, files=False) == {"text": "\n".join(told), "files": []}
    # Where it can send a file, the page goes along, of which nobody has an address.
    ((name, kind, text),) = send_with(tab, files=True)["files"]
    assert (name, kind) == (f"{words_of('title')}.html", "text/html")
    tab.js("(app.facts.links.page = 'https://example.org/')")
    assert send_with(tab, files=True)["files"] == []
    (tmp_path / name).write_text(text, encoding="utf-8")
    tab.driver.get((tmp_path / name).as_uri())
    assert tab.ready().text.startswith(page.START)


def test_the_rival_is_the_drawing_with_the_fewest_invented_words(visit):
    saved = small_checkpoint()
    before, passage = "y luego ", "Un dia en el lugar " + "de la mancha, " * 9
    start = "Un dia en "
    drawn = [
        written(saved, before + start, 120 - len(start), 1605 + n, temperature=0.7)
        for n in range(16)
    ]
    drawn = [text.removeprefix(before) for text in drawn]
    words = words_in(" ".join(drawn[5:7]))  # these two have no other words
    tab = visit(saved, passages=[(before, passage)] * 3, words=words)
    tab.js("(duel.seed = 1605)")
    rival = tab.later(f"rivalOf({json.dumps([before, passage])})")
    assert rival == drawn[5]
    assert tab.js("duel.ever") == 6  # a better one cannot come


def test_where_the_model_writes_the_passages_themselves_the_page_says_so(visit):
    """A table that was learned by heart; and one passage alone is that of the other game."""
    table = "".join(f"2026-01-{day},Madrid,30.1,14.5\n" for day in range(10, 15))
    tab = visit(small_checkpoint(), passages=[("", table)] * 3)
    tab.js("(canBeToldApart = () => false)")
    tab.press("#ronda")
    assert (tab.shown("#fallo"), tab.texts("#pareja *")) == (words_of("all_alike"), [])
    tab = visit(small_checkpoint(), passages=[("", table)])
    assert words_of("few_rounds", n=1, least=2) in tab.shown("header")
    assert tab.shown("#duelo") == tab.shown("nav [href='#duelo']") == ""


def test_what_is_switched_off_adds_nothing(visit):
    saved, off = small_checkpoint(), small_checkpoint()
    tab = visit(saved)

    def see(start: str = page.START, **options) -> None:
        ids = saved.tokenizer.encode(tab.text[:200])
        for n, of in enumerate((saved, off)):
            bits = validation_loss(of.build_model(), ids) / np.log(2)
            assert tab.texts("#dos-modelos .figure")[n] == words_of("bits_each", bits=f"{bits:.3f}")
            assert tab.texts("#dos-modelos .letters")[n] == written(of, start, 200, **options)

    for switch, part, columns in (
        ("0.1", "blocks.0.attention", slice(8, 16)),
        ("1.f", "blocks.1.feed_forward", slice(16 * 4)),
        ("1", "blocks.1.attention", slice(16)),
    ):
        off.weights[f"{part}.proj.weight"][:, columns] = 0
        tab.press(f"#interruptores [value='{switch}']")
        see()
    tab.fill(inicio="la mancha", temperatura=0.5)  # what stands above is followed
    for button in (".figure", "#escribir"):
        tab.press(button)
        see("la mancha", temperature=0.5)
    tab.press("#volver")
    see(temperature=0.5)
    tab.press("#encender")
    assert tab.shown("#dos-modelos") == ""
    # What is in a block that is off looks off, says so, and stays as it is.
    look = "(node) => node.ariaDisabled + getComputedStyle(node.parentNode).background"
    tab.press("#interruptores [value='1']")
    first, second = (set(tab.all(f"#interruptores [value^='{n}.']", look)) for n in (0, 1))
    assert first.isdisjoint(second)
    assert {each.partition("rgb")[0] for each in second} == {"true"}
    tab.press("#interruptores [value='1.0']")
    assert tab.all("#interruptores input:not(:checked)", "(box) => box.value") == ["1"]
    tab.press("#encender")
    first, second = (set(tab.all(f"#interruptores [value^='{n}.']", look)) for n in (0, 1))
    assert first == second
    # The tab key reaches one switch of each block, the arrow keys the others.
    assert tab.all("#interruptores input", "(box) => box.tabIndex").count(0) == 2
    tab.keys("#interruptores [value='1']", "ARROW_RIGHT", "ARROW_RIGHT", " ")
    assert tab.all("#interruptores input:not(:checked)", "(box) => box.value") == ["1.1"]


def test_hostile_characters_stay_letters_and_the_network_is_shut(visit):
    name = "</script><!-- <img src=x onerror=alert(1)> \u2028 {{script}} {{weights}}"
    saved = replace(small_checkpoint(characters=HOSTILE), corpus_name=name)
    usual = len(visit(small_checkpoint()).texts("img, iframe, script"))
    tab = visit(saved)
    assert tab.text == written(saved, "\n", len(tab.text) - 1)
    tab.press("#tab-mira", "#tab-viaje")
    tab.fill(ajeno=HOSTILE * 20)
    tab.press("#leer")
    assert tab.texts("#sorprendido .letters") == [HOSTILE * 20]
    assert f"«{name}»" in tab.texts("#lema")[0]
    assert len(tab.texts("img, iframe, script")) == usual
    assert tab.console() == []
    for request in ("fetch('https://example.org')", "fetch('data:,x')"):
        refused = "new Promise((resolve) => addEventListener('securitypolicyviolation', resolve))"
        both = f"Promise.all([{request}.catch(() => 'error'), {refused}])"
        assert tab.later(f"{both}.then(([answer]) => answer)") == "error"
    messages = tab.console()
    assert messages and all("Content Security Policy" in message for message in messages)


CONTROLS = "a:not(.skip), button, summary, input, select, textarea, [tabindex]"
COVERED = """(node) => {
    if (!node.checkVisibility({ visibilityProperty: true })) return null;
    node.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
    const { left, right, top, bottom } = node.getClientRects()[0];
    const at = (x) => document.elementFromPoint(x, (top + bottom) / 2);
    const isFree = [left + 3, (left + right) / 2, right - 3].every((x) => node.contains(at(x)));
    return isFree ? null : node.outerHTML;
}"""


def test_the_style_has_one_set_of_widths_and_no_part_is_left_out():
    folder = page.UI / "style"
    assert {path.stem for path in folder.iterdir()} == {*page.STYLE}
    sheet = page.style_of(page.STYLE)
    widths = {"max-width: 39.99rem", "min-width: 40rem", "max-width: 61.99rem", "min-width: 62rem"}
    widths.add("min-width: 100rem")  # where all views stand side by side
    queries = re.findall(r"@media ([^{]*)", sheet)
    assert {
        each for query in queries for each in re.findall(r"m\w+-width: [\d.]+rem", query)
    } == widths


TITLE_AND_SETTINGS = """(() => {
  const range = document.createRange();
  range.selectNodeContents(document.querySelector('h1'));
  const boxes = [range, ...document.querySelectorAll('#ajustes > *')];
  return boxes.map((box) => box.getBoundingClientRect().toJSON());
})()"""


@pytest.mark.parametrize("language", ["es", "en"])
def test_nothing_lies_on_the_title_on_any_low_screen(visit, mini, language):
    tab = visit(mini, address=f"?lang={language}")
    for title in ("", "Lo que escribe alguien con un nombre de cuarenta letras"):
        tab.js("arguments[0] && (document.querySelector('h1').textContent = arguments[0])", title)
        for width, height in (
            (320, 256),
            (320, 454),
            (360, 440),
            (640, 360),
            (740, 360),
            (990, 400),
        ):
            size = {"width": width, "height": height, "deviceScaleFactor": 0, "mobile": True}
            tab.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            text, *controls = tab.js(TITLE_AND_SETTINGS)
            for box in controls:
                beside = box["left"] >= text["right"] or box["right"] <= text["left"]
                below = box["top"] >= text["bottom"] or box["bottom"] <= text["top"]
                assert beside or below, (width, height, title)


def test_nothing_covers_a_control_at_any_width(visit, mini):
    for language in ("es", "en"):
        tab = visit(mini, address=f"?lang={language}", passages=PASSAGES)
        for width in range(320, 1601, 80):
            tab.show_as(width, reduced_motion="reduce")
            covered = [node for node in tab.all(CONTROLS, COVERED) if node]
            assert (width, covered) == (width, [])


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_everybody_can_use_it_in_english_too(visit, width, scheme):
    if not AXE.is_file():
        pytest.skip(f"{AXE} is not there: npm ci, and SANCHO_AXE=…/axe.min.js")
    is_english = scheme == "dark"
    texts = zip(*STRINGS.values(), strict=True)
    spanish, english = (set(re.findall(r"[^\W\d_]{4,}", str(those))) for those in texts)
    tab = visit(
        small_checkpoint(characters=f"{CHARACTERS}¿"),
        address="?lang=en" * is_english,
        text=("x", np.arange(40) % 9),
        metrics=[{"step": n, "train_loss": 3 - n / 9, "val_loss": 3 - n / 10} for n in range(5)],
        passages=PASSAGES,
    )
    tab.show_as(width, reduced_motion="reduce", color_scheme="light")
    tab.press(*["#tema"] * (scheme == "dark"))
    tab.again()  # the choice is remembered
    tab.wait("story.chosen !== null")
    assert tab.js("scrollY") == 0  # it opens at its title
    tab.keys("#pasaje", "de la mancha " * 8 + "x")
    paper = tab.js("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(243, 234, 215)", "dark": "rgb(28, 23, 18)"}[scheme]
    assert (words_of("in_spanish", 1) in tab.shown("#lema")) == is_english
    tab.press("nav summary")
    first, *others = tab.all("section", "(part) => part.id")
    assert (first, tab.all("nav a", "(a) => a.hash.slice(1)")) == ("escribe", others)
    right = tab.all("nav a", "(a) => a.getBoundingClientRect().right")
    assert min(right) > 0 and max(right) <= width  # all parts are seen on a phone
    tab.fill(ajeno="un lugar de la mancha " * 92)
    tab.press("#mandos summary", "#interruptores label", "#ronda", "#pareja button")
    tab.press("#leer", "#sorprendido .row button:last-child")  # a page of a few letters
    if width == 360:  # the answer comes as a sheet that leaves the letter in sight
        tab.press("#texto span:nth-child(150)")
        edge = "document.querySelector('{}').getBoundingClientRect().{}".format
        tab.wait(f"{edge('.chosen-letter', 'bottom')} <= {edge('#preguntas', 'top')}")
        sizes = "(x) => [x.ariaLabel || x.innerText, x.offsetWidth, x.offsetHeight]"
        found = tab.all("button, summary, input:not([type=radio]), .station, .head", sizes)
        assert [x for x in found if 0 < min(x[1:]) < 24] == []
    said = "(node) => node.ariaLabel ?? node.innerText"
    for view in ("letra", "mira", "viaje"):
        tab.press(f"#tab-{view}")
        words = set(re.findall(r"\w+", " ".join(tab.all("body, [aria-label]", said))))
        words -= {*re.findall(r"\w+", str(RECORDED)), *page.START.split()}  # they are the model's
        assert not is_english or words & (spanish - english) == set()
        where = "document" if view == "letra" else "'.asking'"
        for _ in range(2):  # in the colours for the other light, too
            assert tab.unusable(where) == []
            tab.js("document.getElementById('tema').click()")
        assert tab.js("document.documentElement.scrollWidth") <= width
        right = tab.all("td, th, p, svg", "(node) => node.getBoundingClientRect().right")
        assert max(right) <= width + 1


# --- a model that learns --------------------------------------------------------------------

LESSON = "LA razón de la sinrazón que a mi razón se hace, y de mi razón me quejo.\n" * 1500
PASTED = "LA razón de la sinrazón que a mi razón…"
"""What the page calls it, by its first words."""


def page_file(name: str = "", corpus: str = PASTED, language: int = 0) -> str:
    """The file of a page to send: its title, of whoever has a name, or of a reader of the text."""
    reader = words_of("reader_of", language, corpus=corpus)
    return f"{words_of('title_of', language, name=name or reader)}.html"


@pytest.fixture
def lesson(tab, tmp_path) -> Tab:
    """A page that has learned a little of a text and was stopped; files are saved in `tmp_path`."""
    kept = {"behavior": "allow", "downloadPath": str(tmp_path)}
    tab.driver.execute_cdp_cmd("Browser.setDownloadBehavior", kept)
    begin(tab)
    tab.wait("document.querySelector('#curva path.learning')")
    return tab


def begin(tab: Tab, text: str = LESSON) -> None:
    """Begin a lesson of twenty minutes: one of a minute may end by itself on a slow machine."""
    tab.fill(pegado=text, tiempo=20)
    tab.see("#leido", thousands(len(text)))
    tab.press("#aprender")
    tab.see("#aprendizaje", words_of("learning"))


def thousands(n: int) -> str:
    """Spanish sets groups of three digits apart from five digits on."""
    return f"{n:,}".replace(",", "\u202f") if n > 9999 else str(n)


def saved_file(tab: Tab, button: str, path: Path) -> Path:
    tab.press(button)
    until = time.monotonic() + 180
    while time.monotonic() < until:
        if path.exists():
            return path
        time.sleep(0.05)
    raise AssertionError(f"{path.name} was not saved")


@pytest.mark.parametrize(("width", "height"), [(360, 740), (1280, 720)])
def test_a_lesson_shows_what_it_writes_and_how_it_is_stopped(lesson, width, height):
    size = {"width": width, "height": height, "deviceScaleFactor": 0, "mobile": width < 500}
    lesson.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    lesson.wait("document.getElementById('escrito').textContent")
    lesson.js("document.getElementById('parar').scrollIntoView({ behavior: 'instant' })")
    box = "document.getElementById('{}').getBoundingClientRect()".format
    assert lesson.js(f"{box('parar')}.top") >= 0
    assert lesson.js(f"{box('escrito')}.top") < height - 60
    assert bool(lesson.shown("#curva")) == (width > 1000)
    # Where it ends, and where it goes on, the line stays on the screen.
    is_seen = f"{box('aprendizaje')}.top > 0 && {box('aprendizaje')}.bottom < {height}"
    lesson.driver.find_element("id", "parar").click()  # where it is
    lesson.see("#aprendizaje", words_of("was_stopped"))
    assert lesson.js(is_seen)
    if width > 1000:  # and so does what to do next
        assert lesson.js(f"{box('guardar-pagina')}.bottom < {height}")
    lesson.press("#continuar")
    lesson.wait(f"{box('parar')}.top >= 0 && {box('parar')}.bottom < {height}")
    lesson.see("#aprendizaje", words_of("learning"))
    assert lesson.js(is_seen)


@pytest.mark.parametrize("size", [(740, 360), (360, 740)])
def test_on_a_phone_the_text_is_seen_at_once_and_fingers_find_all(visit, mini, size):
    tab = visit(mini, "float16", passages=PASSAGES)
    phone = dict(zip(("width", "height"), size, strict=True), deviceScaleFactor=0, mobile=True)
    tab.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    finger = {"enabled": True, "maxTouchPoints": 5}
    tab.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", finger)
    tab.again()
    assert tab.js("matchMedia('(pointer: coarse)').matches")
    letter = "document.querySelector('#texto span').getBoundingClientRect()"
    assert tab.js(f"{letter}.bottom") <= size[1]
    tall = tab.all(
        "nav a, summary, #comienzos button, #interruptores label", "(x) => x.offsetHeight"
    )
    assert min(height for height in tall if height) >= 38
    tab.js("(document.documentElement.style.fontSize = '130%')")  # as somebody sets the system's
    assert tab.js("document.documentElement.scrollWidth") <= size[0]
    keys = tab.all("#teclas button", "(key) => key.getBoundingClientRect().right")
    assert max(keys) <= size[0]
    tab.js("(document.documentElement.style.fontSize = '')")
    tab.press("#interruptores label")
    told = "document.getElementById('apagado').getBoundingClientRect().bottom"
    assert tab.js(told) <= size[1]
    tab.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_what_learned_in_the_page_goes_on_and_is_kept(lesson, tmp_path):
    """The checkpoint and the page of its own write the same letters; loss and proof are theirs."""
    said = r"(\d+).* (\d\.\d\d) "  # step and loss
    lesson.press("#parar")
    lesson.see("#aprendizaje", words_of("was_stopped"))
    assert not AXE.is_file() or lesson.unusable("'#ensena'") == []
    first = int(re.search(said, lesson.shown("#aprendizaje"))[1])
    lesson.press("#continuar")
    lesson.see("#aprendizaje", words_of("learning"))
    lesson.press("#parar")
    lesson.see("#aprendizaje", words_of("was_stopped"))
    step, loss = re.search(said, lesson.shown("#aprendizaje")).groups()
    assert int(step) > first
    path = saved_file(lesson, "#guardar-modelo", tmp_path / f"{PASTED}.safetensors")
    saved = checkpoint.load(path)
    assert (saved.progress.step, saved.characters) == (int(step), "".join(sorted(set(LESSON))))
    ids = saved.tokenizer.encode(LESSON)
    unread = ids[len(ids) - len(ids) // 10 :]
    ours = validation_loss(saved.build_model(), unread)
    assert ours == pytest.approx(float(loss), abs=6e-3)
    expected = written(saved, "la razón", 80, temperature=0)
    assert_proves(saved.proof, saved)
    args = ("--start=la razón", "--max_new_tokens=80", "--temperature=0")
    done = succeed("sample.py", "--checkpoint", path, *args)
    assert (done.out, done.err) == (f"{expected}\n", "")
    succeed("convert.py", "to-page", "--checkpoint", path, "--output", tmp_path / "other.html")
    here = lesson.follow("#abrir-pagina")
    lesson.arrive("location.protocol === 'blob:' && window.sancho")
    assert "la razón" + lesson.write("la razón", 80, {"temperature": 0}) == expected
    assert not lesson.js("document.getElementById('adivina').hidden")  # passages of its own text
    lesson.driver.close()
    lesson.driver.switch_to.window(here)
    path = saved_file(lesson, "#guardar-pagina", tmp_path / page_file())
    lesson.driver.get(path.as_uri())
    lesson.ready()
    assert "la razón" + lesson.write("la razón", 80, {"temperature": 0}) == expected
    assert PASTED in lesson.shown("#ficha")
    facts = lesson.js("app.facts")
    assert_proves(from_base64(facts["proof"]), packing.rounded(saved, facts["precision"]))


def test_what_was_learned_is_taken_up_after_a_reload(lesson):
    lesson.press("#parar")
    lesson.see("#aprendizaje", words_of("was_stopped"))
    said = lesson.shown("#aprendizaje")
    lesson.wait("!document.querySelector('#guardar').hidden && lesson.learned.key")
    lesson.again()
    lesson.wait("lesson.earlier.length")
    lesson.press("#aprendidos button")
    lesson.see("#aprendizaje", said)
    lesson.press("#continuar")
    lesson.see("#aprendizaje", words_of("learning"))


APOCRIFO = (ROOT / "data/apocrifo.txt").read_text(encoding="utf-8")
CHAT = "".join(f"[12:{n}] Ana: vale 😀, nos vemos {'luego ' * (n % 5)}\n" for n in range(10, 60))
POEM = ("Con diez cañones por banda,\nviento en popa, a toda vela,\n\n" * 9) + "no corta el mar\n"
TALK = "—¿Vienes? —dijo él.\n\n—No —dijo ella—. Mañana será otro día…\n\n" * 30


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param(APOCRIFO, 12, id="book"),
        pytest.param(APOCRIFO[-1000:], 2, id="tenth-of-10-KB"),
        pytest.param(APOCRIFO[-2000:], 4, id="tenth-of-20-KB"),
        pytest.param(APOCRIFO[-6000:], 12, id="tenth-of-60-KB"),
        pytest.param(f"{ABBREVIATED}{SENTENCE}\n", 1, id="abbreviations"),
        pytest.param(CHAT, 4, id="chat"),
        pytest.param(CHAT[:300], 1, id="short-chat"),
        pytest.param(POEM, 1, id="poem"),
        pytest.param(TALK, 3, id="dialogue"),
        pytest.param("\n" * 300 + "a b. " * 9 + "C" * 90 + "\n", 1, id="blank"),
        pytest.param("a" * 999 + "\n", 0, id="a-word"),
        pytest.param("", 0, id="nothing"),
    ],
)
def test_passages_of_a_learned_text_are_those_of_the_exporter(tab, text, count):
    expected = [list(passage) for passage in passages_of(text)]
    assert tab.js("passagesOf(arguments[0])", text) == expected
    assert len(expected) == count
    if text in APOCRIFO:  # its lines are cut to a width, and few of them begin a sentence
        begins = [re.match(r"[—¿¡ ]*[A-ZÁÉÍÓÚ]", passage) for _, passage in expected]
        assert begins.count(None) <= 1  # a piece of one sentence has no other beginning
    where = 0
    for before, passage in expected:  # one after the other, and each after what comes before it
        where = text.index(before + passage, where) + len(before + passage)
        assert 80 < len(passage) <= 301
