"""A lesson in the page: nothing that was learned is lost, and everybody is told what happens."""

# ruff: noqa: F401, F811  (fixtures come in by their names)

import base64
import json
import math
import re
import time
import zlib
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from test_clean import BODY, FRAMES, HEADER, NO_MARKS, odd_of
from test_clean import LICENCE as FULL_LICENCE
from test_page import (
    AXE,
    FACTS,
    LESSON,
    PASSAGES,
    PASTED,
    STRINGS,
    Tab,
    begin,
    chromium,
    lesson,
    mini,
    page_file,
    saved_file,
    send_with,
    small_checkpoint,
    tab,
    thousands,
    visit,
    words_of,
    written,
)

from sancho import checkpoint
from sancho.convert import packing, page
from sancho.loss import validation_loss
from sancho.text.clean import (
    A_WEB_PAGE,
    E_BOOK,
    SEQUENCES,
    SIGNATURES,
    SUSPICIOUS,
    clean_text,
    read_text,
)

LINE = LESSON[: LESSON.index("\n") + 1]
OTHER = "Otro texto, con otras letras: jaque, kilo, wolframio, 1605.\n" * 300
STEP = "learner.takeGradients(all);"


def test_before_a_lesson_a_recorded_one_is_seen(visit, mini):
    tab = visit(mini, "float16", data=ROOT / "data")
    recorded = json.loads((page.UI / "lesson.json").read_text("utf-8"))["writings"]
    assert words_of("wrote_then") in tab.shown("#ensena")
    for writing in recorded:
        assert writing["letters"] in "".join(tab.texts("#escrito"))
    assert tab.shown("#muestra") and tab.all("#ensena .primary", "(button) => button.id") == []
    tab.fill(pegado=LESSON, tiempo=20)
    tab.see("#leido", thousands(len(LESSON)))
    assert tab.all("#ensena .primary", "(button) => button.id") == ["aprender"]
    tab.press("#aprender")
    tab.see("#aprendizaje", words_of("learning"))
    assert words_of("writes_now") in tab.shown("#ensena")
    assert recorded[0]["letters"] not in "".join(tab.texts("#escrito"))
    stop(tab)
    assert tab.all("#ensena .primary", "(button) => button.id") == ["guardar-pagina"]


def test_the_recorded_lesson_is_of_the_sample_or_of_the_pages_own_model(lesson, tmp_path):
    """Without the sample there is none; on a page that somebody sent it is its model's own."""
    wrote = lesson.later("lesson.keeping.then(() => lesson.run.writings[0].letters)")
    stop(lesson)
    written_here = lesson.texts("#escrito p")
    assert wrote in written_here[0]
    lesson.fill(nombre="Ana")
    path = saved_file(lesson, "#guardar-pagina", tmp_path / page_file("Ana"))
    lesson.again()
    assert lesson.texts("#escrito") == [""]
    assert lesson.shown("#escribe-ahora") == words_of("writes_now")
    lesson.driver.get(path.as_uri())
    lesson.ready()
    its = words_of("model_of", name="Ana")
    assert words_of("wrote_here", name=its) in lesson.shown("#escribe-ahora")
    assert lesson.texts("#escrito p") == written_here


def take_up(tab: Tab, place: int = 0) -> None:
    """Take up a lesson of the list, of which the newest is the first."""
    tab.wait("lesson.earlier.length > arguments[0]", place)
    tab.press(f"#aprendidos li:nth-child({place + 1}) button")


def stop(tab: Tab) -> None:
    tab.press("#parar")
    tab.see("#aprendizaje", words_of("was_stopped"))


def change_engine(tab: Tab, **changes: str) -> None:
    """Let the page's next workers run other code: each name stands for a place in their scripts."""
    places = {
        "step": STEP,
        "trial": "learner.begin();\n  const times",
        "kept": "KEPT_EVERY = 8000",
        "relu2": "relu2: (x) => Math.max(x, 0) ** 2",
    }
    for name, code in changes.items():
        engine = "document.getElementById('engine').textContent"
        assert places[name] in tab.js(engine)
        tab.js(f"({engine} = {engine}.replace(...arguments), 0)", places[name], code)


def answer(tab: Tab, accepts: bool) -> str:
    """Answer what the browser asks; return the question."""
    alert = tab.driver.switch_to.alert
    question = alert.text
    alert.accept() if accepts else alert.dismiss()
    return question


def test_another_text_drops_nothing_unasked(lesson, tmp_path):
    stop(lesson)
    said = lesson.shown("#aprendizaje")
    lesson.fill(pegado=OTHER)
    lesson.see("#leido", thousands(len(OTHER)))
    assert PASTED in lesson.shown("#lo-aprendido")
    lesson.js("(lesson.isRefused = true)")
    lesson.find("#aprender").click()
    assert answer(lesson, accepts=False) == words_of("replaces_learned")
    assert lesson.shown("#aprendizaje") == said
    # The first lesson stays until the second one has something to keep.
    change_engine(lesson, trial="for (;;);\n  const times")
    lesson.find("#aprender").click()
    answer(lesson, accepts=True)
    lesson.see("#aprendizaje", words_of("trying_pace"))
    assert lesson.shown("#guardar") == ""
    lesson.press("#parar")
    lesson.see("#aprendizaje", words_of("can_go_on"))
    path = saved_file(lesson, "#guardar-modelo", tmp_path / f"{PASTED}.safetensors")
    assert checkpoint.load(path).characters == "".join(sorted(set(LESSON)))
    lesson.again()
    take_up(lesson)
    lesson.see("#aprendizaje", said)
    # What the browser keeps may go without a question, and stays in the list.
    lesson.fill(pegado=OTHER, titulo="La primera")
    lesson.see("#leido", thousands(len(OTHER)))
    kept = lesson.js("lesson.learned.key")
    lesson.find("#aprender").click()
    lesson.see("#aprendizaje", words_of("learning"))
    stop(lesson)
    lesson.wait("lesson.learned.key > arguments[0]", kept)
    lesson.see("#aprendidos li", "«La primera»")
    assert len(lesson.texts("#aprendidos li")) == 1
    other = "Otro texto, con otras letras jaque….safetensors"
    path = saved_file(lesson, "#guardar-modelo", tmp_path / other)
    assert checkpoint.load(path).characters == "".join(sorted(set(OTHER)))


def test_two_tabs_keep_a_lesson_each(lesson):
    stop(lesson)
    lesson.wait("lesson.learned.key")
    first = lesson.driver.current_window_handle
    address = lesson.driver.current_url
    lesson.driver.switch_to.new_window("tab")
    lesson.driver.get(address)
    begin(lesson.ready(), OTHER)
    stop(lesson)
    lesson.wait("lesson.learned.key")
    lesson.driver.close()
    lesson.driver.switch_to.window(first)
    key = lesson.js("lesson.learned.key")
    lesson.press("#continuar")
    lesson.see("#aprendizaje", words_of("learning"))
    stop(lesson)
    said = lesson.shown("#aprendizaje")
    lesson.later("lesson.keeping.then(() => 1)")
    assert lesson.js("lesson.learned.key") == key
    lesson.again()
    for place, text in enumerate([LESSON, OTHER]):  # the one that went on last is the first
        take_up(lesson, 0)
        if not place:
            lesson.see("#aprendizaje", said)
        kinds = len(set(text))
        lesson.wait("lesson.learned?.text.characters.length === arguments[0]", kinds)
        assert lesson.js("lesson.learned.plan.config.vocab_size") == kinds
        lesson.wait("lesson.earlier.length === 1")


def test_two_lessons_of_one_title_can_be_told_apart(lesson):
    stop(lesson)
    lesson.later("lesson.keeping.then(() => keepLesson(lesson.learned, null))")
    lesson.again()
    lesson.wait("lesson.earlier.length === 2")
    items = lesson.texts("#aprendidos li")
    assert [f"«{PASTED}{n}»" in item for n, item in zip(("", " (2)"), items, strict=True)] == [
        True,
        True,
    ]
    names = lesson.all("#aprendidos button", "(button) => button.ariaLabel")
    assert len(set(names)) == 4


def test_a_lesson_is_forgotten_when_somebody_says_so(lesson):
    stop(lesson)
    lesson.wait("lesson.learned.key")
    lesson.again()
    lesson.wait("lesson.earlier.length")
    lesson.press("#aprendidos li button:nth-of-type(2)")
    lesson.wait("!lesson.earlier.length")
    assert lesson.shown("#aprendidos") == ""
    lesson.again()
    assert lesson.later("keptLessons().then((all) => all.length)") == 0


def test_letters_of_another_text_are_not_taken_up(lesson):
    stop(lesson)
    lesson.wait("lesson.learned.key")
    for other in (
        "text: {...lesson.learned.text, characters: ['a', 'b']}",
        "seconds: null",
        "plan: {}, points: [null]",
    ):
        lesson.js("(window.learned ??= lesson.learned, 0)")
        assert lesson.later(f"keepLesson({{...learned, {other.replace('lesson.', '')}}}, null)") > 0
        lesson.later("showEarlier().then(() => 1)")
        lesson.js("(lesson.learned = null, showLesson())")
        take_up(lesson)
        lesson.see("#aprendizaje", words_of("does_not_fit"))
        assert lesson.shown("#guardar") == ""
        lesson.js("(tell('goes_on'), 0)")


def test_a_paste_can_be_learned_at_once_and_a_grey_button_says_why(tab):
    assert tab.shown("#por-que") == words_of("needs_text", n=3000)
    assert tab.find("#aprender").get_attribute("aria-describedby") == "por-que"
    tab.js("arguments[0].focus()", tab.find("#pegado"))
    tab.js("document.execCommand('insertText', false, arguments[0])", LINE * 60)
    tab.see("#leido", words_of("text_taken", name=PASTED, n=60 * len(LINE)))
    assert tab.js("document.activeElement.id") == "pegado"
    assert tab.shown("#por-que") == ""
    change_engine(tab, trial="for (;;);\n  const times")
    tab.find("#aprender").click()
    tab.see("#aprendizaje", words_of("trying_pace"))
    tab.press("#parar")


def test_a_lesson_stops_while_the_pace_is_tried(tab):
    tab.fill(pegado=LESSON)
    tab.see("#leido", thousands(len(LESSON)))
    change_engine(tab, trial="for (;;);\n  const times")
    tab.press("#aprender")
    tab.see("#aprendizaje", words_of("trying_pace"))
    tab.press("#parar")
    tab.see("#aprendizaje", words_of("given_up"))
    assert tab.find("#aprender").is_enabled() and tab.shown("#parar") == ""


def give(tab: Tab, path: Path, raw: bytes) -> str:
    """Give the page a file; return what it says of it."""
    path.write_bytes(raw)
    tab.js("(lesson.given = null)")
    tab.find("#archivo").clear()
    tab.find("#archivo").send_keys(str(path))
    tab.wait(
        "lesson.given && !lesson.given.about.startsWith(arguments[0])", words_of("reading_text")
    )
    return tab.shown("#leido")


def test_a_text_that_cannot_be_learned_says_why_in_a_line(tab, tmp_path):
    path = tmp_path / "libro.txt"
    assert give(tab, path, b"corto\n") == words_of("text_too_short", n=6, least=3000)
    said = give(tab, path, LESSON.encode("windows-1252"))
    assert words_of("not_utf8", name="libro.txt") in said and not tab.find("#aprender").is_enabled()
    tab.press("#releer")
    tab.see("#leido", words_of("text_taken", name="libro", n=len(LESSON)))
    licence = f"About\r\n*** START OF THE PROJECT GUTENBERG EBOOK X ***\r\n\r\n{LESSON}"
    licence += "*** END OF THE PROJECT GUTENBERG EBOOK X ***\r\nmore"
    assert words_of("text_taken", name="libro", n=len(LESSON)) in give(tab, path, licence.encode())
    said = give(tab, path, b"\xff" + LESSON.encode())
    assert words_of("damaged_utf8", name="libro.txt", n=1) in said
    assert tab.shown("#releer") == "" and not tab.find("#aprender").is_enabled()
    said = give(tab, path, b"a" * 20_000_001)
    assert said == words_of("text_too_large", name="libro.txt", n=20)


READ = """readSource(new Blob([fromBase64(arguments[0])]), 'utf-8', app.facts.teaching.text).then(
  ({ text, odd, ...refusal }) => {
    const ids = text && [...text.train, ...text.val];
    return text ? [ids.map((id) => text.characters[id]).join(''), odd] : refusal;
  }
)"""


def read_in(tab: Tab, raw: bytes) -> list | dict:
    """What the page makes of a file: its clean text and what is odd in it, or why there is none."""
    return tab.later(READ, base64.b64encode(raw).decode())


def test_a_text_is_cleaned_as_by_the_library(tab):
    texts = [f"\ufeff{HEADER}{a}\n\n\n{BODY}\n\n{b}\n{FULL_LICENCE}" for a, b in FRAMES]
    texts += [f"{HEADER}{start}\n{BODY}" for start, _ in FRAMES]
    texts += [f"{BODY}{end}\n{FULL_LICENCE}" for _, end in FRAMES]
    texts += ["".join(texts[:3]), *NO_MARKS]
    texts += [
        "",
        "\ufeff \r\n\t\n ",
        "\u200b\n\u00ad \u200b",
        "\n \n  a b\tc\n \t\n\nb  c",
        "a\r\n\r\r\nb\rc\r",
    ]
    texts += ["\ufeffae\u0327\u0301 e\u0301", "a\x0b\x85\u2028 \u00a0\nb\ufeff"]
    for text in texts:
        expected = clean_text(read_text(text.encode(), "text"))
        assert read_in(tab, text.encode())[0] == expected
        program = "cleanText(arguments[0], app.facts.teaching.text)"
        assert tab.js(program, text.removeprefix("\ufeff")) == expected


def test_what_is_odd_in_a_text_is_told_as_by_the_library(tab, tmp_path):
    parts = [
        "a\0",
        "\x0c\x1b",
        "\x93",
        "a\ufeff",
        "\ufffd",
        "\xad",
        "\u200b",
        "\ue000",
        "SeÃ±or",
        "â€™",
    ]
    parts += ["├▒ √±", "\u3000", "\u2028\ufe0f\U000e0001", r"\u00f1 &ntilde;", "ÂNIMO NÃO, R&D"]
    for part in [*parts, "".join(parts)]:
        text = clean_text(f"{LINE}{part}{LINE}{part}{LINE}")
        _, odd = read_in(tab, text.encode())
        assert ", ".join(f"{count} {name}" for name, count in odd) == odd_of(text)
    said = give(tab, tmp_path / "a.txt", LESSON.encode().decode("latin-1").encode())
    assert f"6000 {words_of('pairs as Ã± (UTF-8 in another encoding?)')}" in said
    assert tab.find("#aprender").is_enabled()


def test_long_runs_of_blanks_are_read_at_once(tab):
    blanks = " " * 300_000
    stars = f"*{' *' * 99_999}"
    for text in (f"a{blanks}b", f"***{blanks}START OF", f"*** START OF{blanks}X", stars):
        since = time.monotonic()
        assert read_in(tab, f"{text}\n".encode())[0] == f"{text}\n"
        assert time.monotonic() - since < 5


def test_every_kind_of_file_and_odd_thing_has_a_name_in_both_languages():
    names = {*SIGNATURES.values(), *SUSPICIOUS, *SEQUENCES, E_BOOK, A_WEB_PAGE}
    assert {STRINGS[name][1] for name in names} == names


def test_a_text_of_which_no_game_can_be_made_says_so(tab):
    tab.fill(pegado="sancho " * 500)
    tab.see("#leido", words_of("no_game"))
    tab.fill(pegado=LINE * 60)
    tab.wait("lesson.given.about.includes('4320')")
    assert words_of("no_game") not in tab.shown("#leido")
    # A page that begins with the text begins with a whole word of it.
    nothing = "plan: { config: {}, options: {} }, memory: {}, weights: {}, writings: []"
    facts = f"learnedFacts({{ ...lesson.given, {nothing} }})"
    assert tab.js(f"{facts}.start") == " ".join(LINE.split()[:3])
    assert tab.js("wholeWords(arguments[0])", "ase, que yo\n") == "que yo\n"


def test_a_dropped_file_is_taken_and_opens_nowhere(tab):
    drop = """((text) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([text], 'cartas.txt'));
      const init = { bubbles: true, cancelable: true, dataTransfer };
      return ['dragover', 'drop'].map((kind) =>
        document.getElementById('pegado').dispatchEvent(new DragEvent(kind, init)));
    })(arguments[0])"""
    anywhere = drop.replace("document.getElementById('pegado')", "document.querySelector('h1')")
    for where in (drop, anywhere):
        assert tab.js(where, LESSON) == [False, False]  # the browser does nothing of its own
        tab.see("#leido", words_of("text_taken", name="cartas", n=len(LESSON)))
        tab.js("(lesson.given = null, showLesson())")
    tab.wait("document.getElementById('ensena').getBoundingClientRect().top < innerHeight")


def test_an_offer_goes_with_its_file(tab, tmp_path):
    give(tab, tmp_path / "libro.txt", LESSON.encode("windows-1252"))
    assert tab.shown("#releer") == words_of("read_as", encoding="windows-1252")
    tab.fill(pegado=LESSON)
    tab.see("#leido", PASTED)
    assert tab.shown("#releer") == ""


@pytest.mark.parametrize(
    ("name", "raw", "kind"),
    [
        ("a.docx", b"PK\x03\x04" + bytes(9), "a zip file, as .docx, .odt and .epub are"),
        ("a.pdf", b"%PDF-1.7\n\xe2\xe3", "a PDF file"),
        ("a.jpg", b"\xff\xd8\xff\xe0\0", "a picture"),
        ("a.html", b"\xef\xbb\xbf\n<!-- x -->\n<html lang='es'>", "a web page"),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a file of an older Word or Excel"),
        ("a.mobi", bytes(60) + b"BOOKMOBI", "an e-book"),
        ("a.bin", bytes(range(256)) * 9, "binary_file"),
    ],
)
def test_what_is_no_text_is_named(tab, tmp_path, name, raw, kind):
    said = words_of("no_plain_text", name=name, kind=words_of(kind))
    assert said in give(tab, tmp_path / name, raw)
    assert tab.shown("#releer") == ""
    assert not tab.find("#aprender").is_enabled()


@pytest.mark.parametrize(
    ("raw", "encoding", "is_offered"),
    [
        (LESSON.encode("utf-32"), "UTF-32", False),
        (("\ufeff" + LESSON).encode("gb18030"), "GB18030", True),
        (LESSON.encode("utf-16"), "UTF-16LE", True),
        (LESSON.encode("utf-16-be"), "UTF-16BE", True),
    ],
)
def test_a_text_that_is_not_in_utf_8_is_named(tab, tmp_path, raw, encoding, is_offered):
    said = words_of("other_unicode", name="a.txt", encoding=encoding)
    assert said in give(tab, tmp_path / "a.txt", raw)
    assert tab.shown("#releer") == (words_of("read_as", encoding=encoding) if is_offered else "")
    assert not tab.find("#aprender").is_enabled()
    if is_offered:
        tab.press("#releer")
        tab.see("#leido", words_of("text_taken", name="a", n=len(LESSON)))


def test_no_text_stops_the_page(tab):
    """Neither blanks, which a regular expression tried one by one, nor a large text."""
    watch = "window.gap = 0; let last = performance.now(); setInterval(() => {"
    watch += "gap = Math.max(gap, performance.now() - last); last = performance.now(); }, 5)"
    tab.js(f"(() => {{ {watch} }})()")
    since = time.monotonic()
    tab.js("void take('a' + ' '.repeat(300000) + 'b', 'blancos')")
    tab.see("#leido", words_of("text_taken", name="blancos", n=300_003))
    assert time.monotonic() - since < 10
    tab.js("void take(arguments[0].repeat(180), 'grande')", LESSON)
    tab.see("#leido", words_of("text_taken", name="grande", n=180 * len(LESSON)))
    assert tab.js("gap") < 2000
    tab.js("void take('a'.repeat(2e7 + 1), 'tu texto')")
    tab.see("#leido", words_of("text_too_large", name="tu texto", n=20))


def test_a_lesson_ends_once_the_loss_on_what_is_not_read_no_longer_falls(tab):
    """The page keeps the best that was measured, and says why there is time left."""
    tab.fill(pegado=LESSON[:4000] + OTHER[:500], tiempo=20)  # what it does not read is another text
    tab.wait("lesson.given?.text")
    tab.press("#aprender")
    tab.see("#aprendizaje", words_of("was_enough"))
    losses = tab.js("lesson.learned.points.map(([, , unread]) => unread).filter((x) => x !== null)")
    assert tab.js("lesson.learned.loss") == min(losses) == losses[-4]
    measured = "lesson.keeping.then(() => measured(lesson.learned))"
    assert tab.later(measured) == pytest.approx(min(losses), abs=1e-4)
    step = tab.js("lesson.learned.memory.step")
    tab.press("#continuar")  # as long again
    tab.wait("lesson.run === null && lesson.learned.memory.step > arguments[0]", step)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("setTimeout(() => { throw new Error('dead'); });", words_of("worker_died")),
        ("learner.flatGradients[3] = NaN;", words_of("not_finite")),
    ],
)
def test_after_a_fault_the_last_good_state_goes_on(tab, fault, said):
    tab.fill(pegado=LESSON, tiempo=20)
    tab.see("#leido", thousands(len(LESSON)))
    whole = tab.js("document.getElementById('engine').textContent")
    change_engine(tab, kept="KEPT_EVERY = 300", step=f"{STEP} if (memory.step > 20) {fault}")
    tab.press("#aprender")
    tab.see("#aprendizaje", said)
    assert words_of("can_go_on") in tab.shown("#aprendizaje")
    assert tab.js("Object.values(lesson.learned.weights).every((w) => w.every(Number.isFinite))")
    tab.js("(document.getElementById('engine').textContent = arguments[0], 0)", whole)
    tab.press("#continuar")
    tab.see("#aprendizaje", words_of("learning"))
    stop(tab)
    tab.console()


def test_no_training_loss_is_told_as_that_of_what_it_has_not_read(tab, tmp_path):
    """A lesson that was broken off is measured when it is taken up, or nothing is said of it."""
    change_engine(tab, kept="KEPT_EVERY = 300")
    tab.fill(pegado=LESSON + OTHER, tiempo=20)  # what it has not read is another text
    tab.see("#leido", thousands(len(LESSON + OTHER)))
    tab.press("#aprender")
    tab.wait("lesson.learned?.key && (giveUp('worker_died'), true)")
    loss = "lesson.keeping.then(() => keptLesson(lesson.learned.key)).then((kept) => kept.loss)"
    assert tab.later(loss) is None
    facts = "learnedFacts(lesson.learned)"
    assert tab.js(f"{facts}.progress.val_loss") is None
    assert tab.js("(introduce({ ...app.facts, ...arguments[0] }), 0)", tab.js(facts)) == 0
    assert words_of("doubts") not in tab.shown("#lema")
    assert words_of("doubts", n=1) not in tab.shown("#lema")
    tab.js("(tellLearned(), 0)")
    assert words_of("unread_unmeasured") in tab.shown("#aprendizaje")
    tab.again()
    take_up(tab)
    tab.see("#aprendizaje", words_of("unread_measured"))
    kept = {"behavior": "allow", "downloadPath": str(tmp_path)}
    tab.driver.execute_cdp_cmd("Browser.setDownloadBehavior", kept)
    path = saved_file(tab, "#guardar-modelo", tmp_path / f"{PASTED}.safetensors")
    saved = checkpoint.load(path)
    ids = saved.tokenizer.encode(LESSON + OTHER)
    unread = ids[len(ids) - len(ids) // 10 :]
    loss = tab.js(f"{facts}.progress.val_loss")
    assert loss == pytest.approx(validation_loss(saved.build_model(), unread), abs=1e-3)
    assert words_of("unread_measured", nats=f"{loss:.2f}") in tab.shown("#aprendizaje")


def test_a_lesson_of_another_function_or_with_an_unknown_option_says_so_and_does_not_begin(tab):
    tab.fill(pegado=LESSON, tiempo=20)
    tab.see("#leido", thousands(len(LESSON)))
    tab.js("(app.facts.teaching.train.optimizer = 'lion')")
    tab.press("#aprender")
    tab.see("#aprendizaje", words_of("not_learned", option="optimizer", value="lion"))
    tab.js("(app.facts.teaching.train.optimizer = 'muon')")
    change_engine(tab, relu2="relu2: (x) => Math.max(x, 0.1 * x) ** 2")
    tab.press("#aprender")
    tab.see("#aprendizaje", words_of("other_lesson"))
    assert tab.js("lesson.learned") is None and tab.shown("#parar") == ""


def test_what_was_learned_is_not_measured_by_another_function(lesson):
    stop(lesson)
    lesson.wait("lesson.learned.key")
    measured = "lesson.keeping.then(() => measured(lesson.learned))"
    assert lesson.later(measured) == pytest.approx(lesson.js("lesson.learned.loss"))
    change_engine(lesson, relu2="relu2: (x) => Math.max(x, 0.1 * x) ** 2")
    assert lesson.later(measured) is None


def test_a_page_without_a_lesson_has_all_the_rest(visit, mini, monkeypatch):
    norm = replace(page.MINI.model, norm="layernorm")
    monkeypatch.setattr(page, "MINI", replace(page.MINI, model=norm))
    tab = visit(mini)
    assert tab.text and tab.shown("#sobre")
    assert tab.shown("#ensena") == tab.shown("nav [href='#ensena']") == ""
    tab.press("#escribir")


def test_a_full_store_is_told_and_the_lesson_goes_on(tab):
    full = "() => { throw new DOMException('full', 'QuotaExceededError'); }"
    tab.js(f"(IDBObjectStore.prototype.put = {full}, 0)")
    change_engine(tab, kept="KEPT_EVERY = 300")
    begin(tab)
    tab.wait("!document.getElementById('no-guarda').hidden")
    assert words_of("not_kept") in tab.shown("#no-guarda")
    stop(tab)
    assert PASTED in tab.shown("#lo-aprendido")


def test_a_screen_reader_hears_of_a_lesson_every_ten_seconds_at_most(tab):
    watch = """(() => {
      window.began = performance.now();
      window.heard = [];
      window.seen = 0;
      const hear = (changes) => heard.push(...changes.map(({ target }) => target.textContent));
      for (const node of document.querySelectorAll('#ensena [role=status]')) {
        new MutationObserver(hear).observe(node, { childList: true });
      }
      const line = document.getElementById('aprendizaje');
      new MutationObserver(() => seen++).observe(line, { childList: true });
    })()"""
    tab.fill(pegado=LESSON, tiempo=20)
    tab.see("#leido", thousands(len(LESSON)))
    tab.js(watch)
    tab.press("#aprender")
    tab.wait("seen > 20")
    stop(tab)
    seconds = tab.js("(performance.now() - began) / 1000")
    # Beside the progress: that it tries, that it ends, that it has stopped.
    assert len(tab.js("heard")) <= 4 + seconds / 10
    assert tab.js("heard").count(tab.shown("#aprendizaje")) == 1


def test_a_page_of_its_own_speaks_as_one_reads_and_is_not_saved_yet(visit, mini, tmp_path):
    tab = visit(mini, address="?lang=en")
    kept = {"behavior": "allow", "downloadPath": str(tmp_path)}
    tab.driver.execute_cdp_cmd("Browser.setDownloadBehavior", kept)
    tab.fill(pegado=LESSON, tiempo=20)
    tab.see("#leido", words_of("text_taken", 1, name=PASTED, n=f"{len(LESSON):,}"))
    tab.press("#aprender")
    tab.see("#aprendizaje", words_of("learning", 1))
    tab.press("#parar")
    tab.see("#aprendizaje", words_of("was_stopped", 1))
    tab.js("(URL.revokeObjectURL = (address) => (window.revoked = address), 0)")
    here = tab.follow("#abrir-pagina")
    assert words_of("not_saved_yet", 1) in tab.arrive().shown("header") and asks(tab)
    tab.fill(ajeno="a draft")
    names = "write_another", "other_language"
    texts = {
        code: tuple(words_of(name, n) for name in names) for n, code in enumerate(("es", "en"))
    }
    addresses = []
    for language in ("en", "es", "en"):
        tab.arrive(f"window.sancho && document.documentElement.lang === '{language}'")
        assert (tab.shown("#escribir"), tab.shown("#idioma")) == texts[language]
        addresses.append(tab.js("location.href.split('#')[0]"))
        assert tab.js("document.getElementById('ajeno').value") == "a draft"
        tab.find("#idioma").click()
    assert all(address.startswith("blob:") for address in addresses)
    tab.arrive("window.sancho && document.documentElement.lang === 'es'")
    path = saved_file(tab, "#guardar-esta", tmp_path / page_file())
    assert tab.shown("#sin-guardar") == "" and asks(tab)
    tab.fill(ajeno="")  # which was nowhere else
    assert not asks(tab)
    tab.driver.close()
    tab.driver.switch_to.window(here)
    tab.wait("window.revoked === arguments[0]", addresses[0])
    tab.driver.get(path.as_uri())
    assert tab.ready().shown("#sin-guardar") == ""


def test_where_no_checkpoint_can_be_sealed_the_page_says_so_and_is_kept(lesson, tmp_path):
    stop(lesson)
    lesson.js("(Object.defineProperty(crypto, 'subtle', { value: undefined }), 0)")  # as by http
    lesson.press("#guardar-modelo")
    lesson.see("#aprendizaje", words_of("no_seal"))
    assert words_of("learned_of", name=PASTED) in lesson.shown("#guardar")
    saved_file(lesson, "#guardar-pagina", tmp_path / page_file())
    assert not list(tmp_path.glob("*.safetensors"))


def test_the_keyboard_alone_teaches_stops_and_keeps(tab, tmp_path):
    kept = {"behavior": "allow", "downloadPath": str(tmp_path)}
    tab.driver.execute_cdp_cmd("Browser.setDownloadBehavior", kept)

    def usable() -> None:
        for width, scheme in product((360, 1280), ("light", "dark")):
            tab.show_as(width, color_scheme=scheme)
            assert not AXE.is_file() or tab.unusable("'#ensena'") == [], (width, scheme)
        tab.show_as()

    def press(*names: str) -> str:
        focused = tab.driver.switch_to.active_element.get_attribute("id")
        tab.keys(f"#{focused}", *names)
        return tab.js("document.activeElement.id")

    usable()
    tab.js("arguments[0].focus()", tab.find("#tiempo"))
    long = LESSON * 5  # so that it does not end meanwhile
    tab.fill(pegado=long, tiempo=20)
    tab.see("#leido", thousands(len(long)))
    assert press("TAB") == "desde-cero"
    assert press("TAB") == "aprender"
    assert press("ENTER") == "parar"
    tab.see("#aprendizaje", words_of("learning"))
    usable()
    press("ENTER")
    tab.see("#aprendizaje", words_of("was_stopped"))
    assert tab.js("document.activeElement.id") == "continuar"
    usable()
    assert [press("TAB") for _ in range(2)][-1] == "guardar-modelo"
    press("ENTER")
    tab.wait("lesson.learned.isSaved")


def test_what_it_wrote_after_5_10_20_40_seconds_stays(tab):
    program = """((times) => {
      const text = { characters: ['a', 'b'] };
      const run = newRun({ text, plan: null, points: [], writings: [], seconds: 0 });
      run.points.push([1, 0.5, null]);
      return times.map((seconds) => {
        Object.assign(run, { seconds, since: performance.now() });
        takeWriting(run, [1, 0]);
        return run.writings.map((writing) => Math.floor(writing.seconds));
      });
    })(arguments[0])"""
    found = tab.js(program, [0, 5, 11, 16, 22, 27, 32, 43, 48, 81])
    assert found[:4] == [[0], [0, 5], [0, 5, 11], [0, 5, 11, 16]]
    assert found[6:] == [
        [0, 5, 11, 22, 32],
        [0, 5, 11, 22, 43],
        [0, 5, 11, 22, 43, 48],
        [0, 5, 11, 22, 43, 81],
    ]


def test_one_button_teaches_the_sample_and_what_it_wrote_is_copied(visit, mini):
    tab = visit(mini, data=ROOT / "data")
    tab.press("#muestra")
    tab.see("#leido", "La campana sin lengua")
    tab.see("#escrito", words_of("seconds", n=0))
    tab.see("#aprendizaje", words_of("learning"))
    stop(tab)
    kinds = len(set((ROOT / "data/apocrifo.txt").read_text("utf-8")))
    shown = tab.shown("#escrito")
    at_first = words_of("written_after", time=words_of("seconds", n=0), nats=f"{np.log(kinds):.2f}")
    assert shown.startswith(at_first)
    assert len(tab.texts("#escrito p")) > 1
    tab.press("#copiar-escrito")
    assert tab.shown("#escrito-copiado") == words_of("copied")
    assert tab.js("getSelection().toString()").startswith(at_first)
    tab.wait("lesson.learned?.key")
    tab.again()
    take_up(tab)
    tab.see("#aprendizaje", words_of("was_stopped"))  # until then a recorded lesson stands there
    assert tab.shown("#escrito") == shown


# --- a page of its own, to send -------------------------------------------------------------


def test_a_kept_page_says_what_it_is_and_writes_what_its_model_would(lesson, tmp_path):
    stop(lesson)
    assert words_of("opens_in_browser") in lesson.shown("#guardar")
    lesson.fill(titulo="Mis: cartas")
    assert words_of("learned_of", name="Mis: cartas") in lesson.shown("#guardar")
    name = "</script><img src=x onerror=alert(1)> \"'&amp;{n}|\U0001f600"
    lesson.fill(nombre=f" {name} ")
    lesson.js("(app.facts.links.page = 'https://another.example/')")
    loss = lesson.js("lesson.learned.loss")
    model = saved_file(lesson, "#guardar-modelo", tmp_path / "Mis cartas.safetensors")
    file = re.sub(r'[\\/:*?"<>|\s]+', " ", page_file(name))
    path = saved_file(lesson, "#guardar-pagina", tmp_path / file)
    lesson.see("#guardado", words_of("is_kept", file=file))
    lesson.driver.get(path.as_uri())
    start = lesson.ready().find("#inicio").get_attribute("value")
    assert start in LESSON and len(start.split()) == 3
    assert lesson.text[: len(start) + 200] == written(checkpoint.load(model), start, 200)
    title = words_of("title_of", name=name)
    assert [lesson.js("document.title"), *lesson.texts("h1"), lesson.texts("img")] == [
        title,
        title,
        [],
    ]
    doubts = round(math.exp(loss))
    for said in ("Mis: cartas", words_of("letters", n=len(LESSON)), words_of("doubts", n=doubts)):
        assert said in lesson.shown("#lema")
    assert lesson.js("pageAddress()") == ""  # of another model
    assert "float16" in lesson.shown("#ficha")
    lesson.press("#ejemplo")
    assert lesson.find("#ajeno").get_attribute("value") in LESSON
    # Its model is nobody's Sancho.
    shown = lesson.shown("main").replace(lesson.shown("#escrito"), "")  # another's lesson
    assert "Sancho" not in shown.replace("sancho", "")
    assert lesson.shown("#adivina h2") == words_of("game", whose=words_of("model_of", name=name))
    lesson.keys("#pasaje", *"abcdefghijklmnopqrstuvwxyz")
    its = words_of("the_model").capitalize()
    assert its in lesson.js("scoreLines({ number: 0, yours: [1], models: [2] }).join()")
    # Of weights in half precision, sample.py may write another text.
    assert lesson.js("app.facts.exact") is False
    assert lesson.texts("#semilla-nota") == [words_of("seed_hint_here")]
    assert lesson.shown("#duelo-titulo") == words_of("taught_book_or_sancho", name=name)
    lesson.press("#pareja button")
    whose = {words_of("taught_of_sancho"), words_of("taught_of_the_book", name=name)}
    assert set(lesson.texts("#pareja b")) == whose
    lesson.driver.get(f"{path.as_uri()}?lang=en")
    lesson.ready()
    assert lesson.texts("h1") == [words_of("title_of", 1, name=name)]
    assert words_of("letters", 1, n=f"{len(LESSON):,}") in lesson.shown("#lema")


def sent_page(tab: Tab, folder: Path, **fields: str) -> None:
    """Save the page of a lesson that was stopped, and open it."""
    stop(tab)
    tab.fill(**fields)
    file = page_file(fields.get("nombre", ""), fields.get("titulo", PASTED))
    path = saved_file(tab, "#guardar-pagina", folder / file)
    tab.driver.get(path.as_uri())
    tab.ready()


def test_a_sent_page_opens_on_its_game_and_leads_on(lesson, tmp_path):
    sent_page(lesson, tmp_path, nombre="Ana", titulo="Cartas")
    first = "document.querySelector('main').firstElementChild.id"
    assert lesson.js(first) == "duelo"
    assert lesson.shown("#duelo-titulo") == words_of("taught_book_or_sancho", name="Ana")
    passages = lesson.js("app.facts.passages")
    order = lesson.js("app.deck.drawn.duel.concat(Array.from(app.deck.left).reverse())")
    unread = LESSON[len(LESSON) - len(LESSON) // 10 :]
    for n in range(5):
        assert lesson.shown("#fallo").startswith(
            words_of("taught_which_is_real", round=n + 1, all=5, name="Ana")
        )
        before, passage = passages[order[n]]
        assert before + passage in unread
        whose = lesson.texts("#pareja b")
        place = whose.index(words_of("taught_of_the_book", name="Ana"))
        shown = lesson.texts("#pareja button")[place]
        assert passage.startswith(shown.partition(" …")[0][:40])
        lesson.press(f"#pareja button:nth-child({1 + place if n else 2 - place})")
        lesson.press("#ronda") if n < 4 else None
    found = words_of("n_of", n=4, all=5)
    assert (
        lesson.shown("#fallo") == f"{words_of('was_right')} {words_of('you_found', score=found)}."
    )
    told = [words_of("taught_duel_score", name="Ana", score=found), "🟥" + "🟩" * 4]
    sent = send_with(lesson, files=True)  # the page itself, to whoever may find out
    assert sent["text"] == "\n".join([*told, words_of("and_you")])
    assert [name for name, *_ in sent["files"]] == [page_file("Ana", "Cartas")]
    lesson.press("#duelo-sigue [href='#ensena']")
    assert lesson.js("location.hash") == "#ensena"
    assert lesson.shown("#ensena h2")


def test_without_a_name_somebody_wrote_it(lesson, tmp_path):
    sent_page(lesson, tmp_path)
    title = words_of("taught_book_or_sancho", name=words_of("somebody"))
    assert lesson.shown("#duelo-titulo") == title


def test_a_text_of_few_passages_opens_on_the_text_and_says_why(lesson, tmp_path):
    lesson.wait("passagesOf(unreadOf(lesson.run.text)).length > 2")
    lesson.js("(lesson.run.text.val = lesson.run.text.val.slice(0, 900), 0)")
    sent_page(lesson, tmp_path)
    assert lesson.js("document.querySelector('main').firstElementChild.id") == "escribe"
    assert lesson.shown("#duelo") == ""
    passages = lesson.js("app.facts.passages.length")
    assert words_of("few_rounds", n=passages, least=3) in lesson.shown("header")
    assert lesson.text


def test_who_saves_a_page_sees_which_fragments_it_carries(lesson, tmp_path):
    stop(lesson)
    lesson.press("#lleva summary")
    facts = lesson.js("learnedFacts(lesson.learned)")
    assert lesson.texts("#lleva p") == ["".join(pair) for pair in facts["passages"]]
    carried = words_of("carries", n=len(facts["passages"]))
    assert lesson.shown("#lleva summary") == carried


def test_a_page_without_a_name_is_its_texts(lesson, tmp_path):
    stop(lesson)
    lesson.js("(lesson.learned.text.name = arguments[0])", "nombre_largo_" * 5)
    path = saved_file(lesson, "#guardar-pagina", tmp_path / page_file(corpus="nombre_largo_" * 5))
    lesson.driver.get(path.as_uri())
    lesson.ready().show_as(320)
    assert lesson.texts("h1") == [
        words_of("title_of", name=words_of("reader_of", corpus="nombre_largo_" * 5))
    ]
    assert lesson.js("document.documentElement.scrollWidth") <= 320


def test_a_word_that_no_line_holds_is_broken(lesson, tmp_path):
    sent_page(lesson, tmp_path)
    lesson.show_as(320)
    lesson.js("document.querySelector('#pareja .written').append('ñ'.repeat(80))")
    assert lesson.js("document.documentElement.scrollWidth") <= 320


@pytest.mark.parametrize(("added", "precision"), [(0, "float16"), (2048, "float32")])
def test_a_page_has_half_precision_where_its_first_letters_stay(visit, added, precision):
    """Of 2,048 and a little more, half precision keeps whole even numbers alone."""
    saved = small_checkpoint()
    saved.weights["head.weight"] += added
    made = "pageOf(app.model.weights, { config: app.facts.config }).then((page) => page.text())"
    text = visit(saved).later(made)
    assert json.loads(re.search(FACTS, text)[1])["precision"] == precision
    weights = re.search(r'id="weights">(.*?)</', text)[1]
    expected = packing.pack(packing.rounded(saved, precision), precision)
    found, expected = (zlib.decompress(base64.b64decode(x)) for x in (weights, expected))
    assert found == expected


def test_a_page_of_mini_is_small_enough_for_a_mail(visit, mini):
    program = """((config) => {
      const ids = Int32Array.from({ length: 9e5 }, (_, i) => (i * i) % 96);
      const { 'ngram_embedding.keys': keys, ...weights } = newWeights(config, ids, 1);
      let bits = 1;
      const next = () => (bits = Math.imul(bits, 1664525) + 1013904223) / 2 ** 34;
      for (const array of Object.values(weights)) array.forEach((_, i) => (array[i] = next()));
      weights['ngram_embedding.keys'] = keys;
      return pageOf(weights, { config, characters: arguments[0] }).then(({ size }) => size);
    })({ ...app.facts.teaching.models[0], vocab_size: 96 })"""
    characters = "".join(map(chr, range(32, 128)))
    tab = visit(mini, data=ROOT / "data")
    assert 8e6 < tab.later(program, characters) <= 11e6


# --- one click loses nothing ----------------------------------------------------------------


def asks(tab: Tab) -> bool:
    """Whether the browser would ask before the page is left."""
    leave = "new Event('beforeunload', { cancelable: true })"
    return not tab.js(f"dispatchEvent({leave})")


def fields(tab: Tab) -> list[str]:
    return [tab.js("document.getElementById(arguments[0]).value", id) for id in DRAFTS]


DRAFTS = ["inicio", "cuantas", "pegado", "ajeno", "tiempo", "nombre"]


def test_what_was_typed_outlives_a_reload_and_the_other_language(tab):
    typed = ["un hidalgo", "77", LINE * 60, "la mancha", "5", "Ana"]
    tab.press("#escribir")
    tab.fill(**dict(zip(DRAFTS, typed, strict=True)))
    tab.wait("location.hash.includes('letras=600&')")  # the address follows the text a little later
    shown = tab.text
    for leave in (tab.driver.refresh, lambda: tab.find("#idioma").click()):
        tab.js("(window.sancho = null)")
        leave()
        assert (tab.arrive().text, fields(tab)) == (shown, typed)
        tab.wait("lesson.given?.text")
        assert not asks(tab)
    assert tab.shown("#idioma") == words_of("other_language", 1)
    # A link to another text has the start of that one.
    tab.driver.get(tab.driver.current_url.split("?")[0] + "#inicio=la+mancha&letras=5")
    tab.driver.refresh()
    assert fields(tab.ready())[:3] == ["la mancha", *typed[1:3]]
    tab.js("(Storage.prototype.setItem = () => { throw new Error('full'); }, 0)")
    assert asks(tab)
    tab.js(
        "(drafts.isCarried = true)"
    )  # a browser asks nobody who has touched nothing, and says so


def test_a_lesson_is_not_broken_off_unasked(lesson):
    stop(lesson)
    lesson.wait("lesson.learned.key")
    assert not asks(lesson)
    lesson.js("(lesson.isRefused = true)")
    assert asks(lesson)
    lesson.js("(lesson.learned.isSaved = true)")
    assert not asks(lesson)


def test_a_page_that_a_browser_has_saved_is_the_page(visit, mini, tmp_path):
    """What the scripts have added to it is not added once more."""
    tab = visit(
        mini, "float16", passages=PASSAGES, metrics=[{"step": n, "val_loss": 3 - n} for n in (1, 2)]
    )
    nodes = "(node) => node.tagName + node.id + node.hidden + (node.disabled ?? '')"
    count, first = tab.all("body *", nodes), tab.text
    tab.fill(inicio="wn lugar", ajeno="un lugar de la mancha")
    tab.press("#escribir", "#tema", "#mandos summary", "#interruptores label", "#leer", "#tab-mira")
    tab.keys("#pasaje", "d")
    path = tmp_path / "guardada.html"
    for _ in range(2):
        path.write_text("<!DOCTYPE html>" + tab.js("document.documentElement.outerHTML"), "utf-8")
        tab.js("(sessionStorage.clear(), localStorage.clear())")
        tab.driver.get(path.as_uri())
        assert tab.ready().text == first
        assert tab.all("body *", nodes) == count
        assert tab.js("blankPage.querySelector('#as-made')") is None
        assert all("style" in message for message in tab.console())
    text = tab.later("thisPage('es').text()")
    path.write_text(text, "utf-8")
    tab.driver.get(path.as_uri())
    assert (tab.ready().text, tab.all("body *", nodes)) == (first, count)


# --- a lesson that begins from the page's own model --------------------------------------------

OF_FEW_LETTERS = "la casa de la dama es de cal, y sal de la salada mesa.\n"
SENTENCES = OF_FEW_LETTERS * 150 + "la kasa es de cal.\n" * 20


@pytest.fixture
def reader(visit, tmp_path) -> Tab:
    """A page of a model without a table that expects all letters alike, and knows only a few."""
    characters = "".join(sorted(set(OF_FEW_LETTERS)))
    saved = replace(small_checkpoint("base", characters, n_layer=2), corpus_name="quijote")
    saved.weights["head.weight"][:] = 0
    tab = visit(packing.rounded(saved, "float16"), "float16")
    kept = {"behavior": "allow", "downloadPath": str(tmp_path)}
    tab.driver.execute_cdp_cmd("Browser.setDownloadBehavior", kept)
    tab.fill(pegado=SENTENCES, tiempo=20)
    tab.wait("lesson.given?.text")
    return tab


def test_a_text_that_the_pages_model_can_read_is_learned_from_it(reader, tmp_path):
    """What learns is a model of its kind, with rows for the letters that it lacked."""
    known = len(set(OF_FEW_LETTERS))
    reader.press("#aprender")
    reader.see("#aprendizaje", words_of("begins_tuned", name="Sancho"))
    reader.wait("lesson.run.plan.options.max_iters > 0 && lesson.run.points.length > 5")
    assert reader.js("lesson.run.plan.loss") == pytest.approx(math.log(known + 1))
    assert reader.js("lesson.run.plan.config.ngram_size") == 1
    stop(reader)
    assert reader.js("lesson.learned.loss") < math.log(known) - 0.3
    assert reader.js("lesson.learned.text.characters.at(-1)") == "k"
    reader.fill(nombre="Ana")
    title = reader.js("lesson.learned.text.name")
    path = saved_file(reader, "#guardar-modelo", tmp_path / f"{title}.safetensors")
    saved = checkpoint.load(path)
    ids = saved.tokenizer.encode(SENTENCES)
    unread = ids[len(ids) - len(ids) // 10 :]
    loss = validation_loss(saved.build_model(), unread)
    assert loss == pytest.approx(reader.js("lesson.learned.loss"), abs=0.05)
    path = saved_file(reader, "#guardar-pagina", tmp_path / page_file("Ana"))
    reader.driver.get(path.as_uri())
    reader.ready()
    assert words_of("read_before") in reader.shown("#lema")
    assert reader.text and reader.js("app.facts.teaching.tuning") is not None


# What a window takes, in seconds: on a slow machine a smaller model would learn.
NEVER_SLOW = "return 0.001;\n  learner.begin();\n  const times"


def test_a_new_model_learns_where_somebody_asks_for_one(reader):
    """Before its first step it expects all letters alike, and writes them so."""
    change_engine(reader, trial=NEVER_SLOW)
    reader.find("#desde-cero").click()
    reader.press("#aprender")
    reader.see("#aprendizaje", words_of("begins_new"))
    first = reader.js("lesson.run.writings[0]")
    assert first["loss"] == pytest.approx(math.log(len(set(SENTENCES))))
    assert reader.js("lesson.run.plan.config.ngram_size") == 5
    stop(reader)


def test_a_new_model_learns_a_text_that_the_pages_model_cannot_read(tab):
    change_engine(tab, trial=NEVER_SLOW)
    begin(tab, OTHER)
    assert words_of("begins_unknown", name="Sancho") in tab.shown("#aprendizaje")
    stop(tab)
