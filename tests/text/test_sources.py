"""What --corpus stands for: names, files, folders, patterns, the network."""

import errno
import os
import shutil
import subprocess
import sys
import threading
import urllib.request
from dataclasses import replace
from http.client import IncompleteRead
from pathlib import Path

import pytest
from conftest import names_in, use_data

from sancho.checkpoint import pretrained
from sancho.errors import MissingFile, UserError
from sancho.text import sources
from sancho.text.sources import corpus_of

TITLE = "El ingenioso hidalgo don Quijote de la Mancha"
LINE = "que no quiero acordarme, no ha mucho tiempo que vivía un hidalgo\n"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def gutenberg(body: str) -> str:
    of = "OF THE PROJECT GUTENBERG EBOOK NOVELAS ***"
    return f"Title: Novelas\nLicence\n*** START {of}\n{body}\n*** END {of}\nMore licence\n"


BOOK = gutenberg(f"{TITLE}\n\n" + LINE * 3)
CLEAN = f"{TITLE}\n\n" + LINE * 3


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """A data folder that holds the included text only, beside a folder to work in."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    use_data(monkeypatch, tmp_path / "data")
    return write(tmp_path / "data" / "apocrifo.txt", LINE * 30).parent


# --- files ----------------------------------------------------------------------------------


def test_several_files_are_one_text_in_the_order_given(data):
    write(Path("uno.txt"), "\ufeffuno\r\n\r\n")
    write(Path("dos.txt"), gutenberg("dos"))
    found = corpus_of(["dos.txt", Path("uno.txt"), "apocrifo"])
    assert found.text == "dos\nuno\n" + LINE * 30
    assert (found.name, found.lengths) == ("dos, uno, apocrifo", (4, 4, 30 * len(LINE)))
    write(Path("mal.txt"), "").write_bytes(b"mal\xff")
    with pytest.raises(UserError, match=r"^mal\.txt .* offset 3;"):  # the wrong one is named
        corpus_of(["uno.txt", "mal.txt"])
    assert corpus_of("mal.txt", "latin-1").text == "malÿ\n"


def test_a_folder_or_a_pattern_means_its_texts_in_natural_order(data, caplog):
    for name in ("10.txt", "2.TXT", "c.md", "._2.txt"):
        write(Path("mine", name), f"{name}\n")
    Path("mine/more").mkdir()
    Path("mine/gone.txt").symlink_to("nowhere")
    found = corpus_of("mine")
    assert (found.name, found.text) == ("mine", "2.TXT\n10.txt\n")
    assert "note: mine: 2 files, read as one text in the order of their names" in caplog.messages
    assert corpus_of("mine/*.[tm]*").text == "10.txt\nc.md\n"  # as a shell of Windows leaves it
    assert corpus_of("m*/1*").text == "10.txt\n"
    with pytest.raises(UserError, match=r"folder mine.more has no \.txt file; give"):
        corpus_of("mine/more")
    words = r"text x\*\.txt does not exist; check the path, or give a name: apocrifo, quijote, sh"
    with pytest.raises(MissingFile, match=words):
        corpus_of("x*.txt")


@pytest.mark.parametrize("word", ["https://x.org/a.txt", "www.x.org/a.txt", "ftp://x/a"])
def test_an_address_is_no_path(data, word):
    with pytest.raises(UserError, match=f"^{word} is an address; download it, and give the path"):
        corpus_of(word)


def test_a_folder_of_one_file_is_that_file(data, caplog):
    write(Path("mine/a.txt"), "una\n")
    write(Path("mine/more/b.txt"), "otra\n")
    assert corpus_of("mine").text == "una\n"
    assert caplog.messages == []  # and no "1 files"
    Path("mine/a.txt").unlink()
    with pytest.raises(UserError, match=r"has no \.txt file; .* a pattern such as FOLDER"):
        corpus_of("mine")
    assert corpus_of("mine/**/*.txt").text == "otra\n"


def test_a_word_is_a_path_first_and_then_a_name_in_data(data):
    write(data / "mine.txt", "in data\n")
    assert corpus_of("mine").text == "in data\n"
    write(Path("mine"), "here\n")
    assert corpus_of("mine").text == "here\n"


def test_quijote_is_always_don_quijote(data):
    write(data / "quijote.txt", CLEAN)
    write(Path("quijote"), "something else\n")
    write(Path("quijote.txt"), "something else\n")
    assert corpus_of("quijote").text == corpus_of().text == CLEAN
    with pytest.raises(UserError, match="not UTF-16"):  # the encoding is that of files alone
        corpus_of(["quijote", "quijote.txt"], "UTF-16")


def test_the_same_text_twice_is_told(data, caplog):
    for name, text in {"a": "una\n", "b": "otra\n", "c": "una\n"}.items():
        write(Path("mine", f"{name}.txt"), text * 30)
    corpus_of("mine")
    assert "note: c.txt is the same text as a.txt; it is read twice" in caplog.messages


def test_what_a_licence_takes_is_told(data, caplog):
    write(Path("book.txt"), gutenberg("Sancho\n" * 20))
    left_out = len(gutenberg("Sancho\n" * 20)) - len("Sancho\n" * 20) - 1
    corpus_of("book.txt")
    said = f"note: book.txt: {left_out} characters around Project Gutenberg's marks are left out"
    assert caplog.messages == [said]


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="here: not all are names there")
@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("mine.txt", "mine"),
        ("la Mancha.md", "la Mancha.md"),
        ("a:b|c*.txt", "a_b_c*"),
        ("\x1b]0;x.txt", "_0_x"),
        (os.fsdecode(b"m\xf3o.txt"), "m_o"),
        ("x" * 99, "x" * 59 + "…"),
    ],
)
def test_a_text_is_called_by_its_file(data, file, name):
    write(Path(file), "uno\n")
    assert corpus_of([Path(file).absolute()]).name == name


def test_a_refused_reading_is_no_damage(data, monkeypatch):
    def refusing(path: Path) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(Path, "read_bytes", refusing)
    with pytest.raises(OSError, match="Input/output error"):
        corpus_of("apocrifo")


# --- the network ----------------------------------------------------------------------------


@pytest.fixture
def offer(data, monkeypatch):
    """Let the addresses of a text have these contents; there is no network."""

    def offering(*texts: str | bytes | None, name: str = "quijote") -> None:
        addresses = []
        for number, text in enumerate(texts):
            path = data.parent / f"{number} on the net"
            if text is not None:
                path.write_bytes(text.encode() if isinstance(text, str) else text)
            addresses.append(path.as_uri())
        online = replace(sources.ONLINE[name], addresses=tuple(addresses))
        if name == "quijote":
            online = replace(online, lengths=range(200, 300))
        monkeypatch.setitem(sources.ONLINE, name, online)

    return offering


def test_don_quijote_as_project_gutenberg_has_it(data, book, monkeypatch):
    online = replace(sources.ONLINE["quijote"], addresses=(book.as_uri(),))
    monkeypatch.setitem(sources.ONLINE, "quijote", online)
    found = corpus_of("quijote")
    assert (len(found.train), len(found.val)) == (1_899_635, 211_070)
    assert found.tokenizer.vocab_size == 92
    assert found.sha256 == pretrained().corpus_sha256
    assert (data / "quijote.txt").read_bytes() == found.text.encode()
    assert corpus_of("quijote").sha256 == found.sha256


def test_a_text_is_fetched_once_from_the_first_address_that_has_it(data, offer, caplog):
    offer(None, "<html>", BOOK)
    first = corpus_of("quijote")
    assert [line[:31] for line in caplog.messages] == ["note: downloading quijote from "] * 3
    assert (data / "quijote.txt").read_text("utf-8") == CLEAN
    offer()
    assert corpus_of("quijote").text == first.text == CLEAN
    assert names_in(data) == [".lock", "apocrifo.txt", "quijote.txt"]


def test_two_first_runs_at_once_download_it_once(data, offer, monkeypatch):
    offer(BOOK)
    fetch = sources.fetch
    names = []
    has_begun = threading.Event()

    def slowly(name: str) -> str:
        names.append(name)
        has_begun.set()
        other.join(0.3)  # it has to wait
        return fetch(name)

    monkeypatch.setattr(sources, "fetch", slowly)
    found = []
    other = threading.Thread(target=lambda: has_begun.wait(20) and found.append(corpus_of()))
    other.start()
    found.append(corpus_of())
    other.join()
    assert [each.text for each in found] == [CLEAN, CLEAN]
    assert names == ["quijote"]


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        ("<!DOCTYPE html>\n<title>Log in</title>\n" * 6, "the answer is a web page"),
        (BOOK.replace(TITLE, f"Segunda parte, {TITLE}"), "beginning 'Segunda parte"),
        (BOOK.replace(LINE, "", 2), "text (112 characters, beginning 'El ingenioso"),
        (b"\x1f\x8b\x08\x00" + BOOK.encode(), "the answer is a gzip file"),
        (None, "No such file"),
    ],
    ids="html another short compressed missing".split(),
)
def test_without_the_book_the_included_text_takes_its_place_and_says_so(
    data, offer, wrong, answer, caplog
):
    offer(wrong)
    found = corpus_of("quijote")
    (message,) = (line for line in caplog.messages if "BE DOWNLOADED" in line)
    for part in ("DON QUIJOTE COULD NOT BE DOWNLOADED (", answer, "data/apocrifo.txt"):
        assert part in message
    assert (found.name, found.text) == ("apocrifo", LINE * 30)
    assert names_in(data) == [".lock", "apocrifo.txt"]
    offer(BOOK)  # it is tried again
    assert corpus_of("quijote").name == "quijote"


def test_no_other_text_is_taken_for_shakespeare(data, offer):
    offer(sources.ONLINE["shakespeare"].beginning.ljust(1_115_389, "x") + "\n", name="shakespeare")
    words = r"another text \(1115390 characters, beginning 'First Citizen"
    with pytest.raises(sources.FetchError, match=words):
        corpus_of("shakespeare")


def test_the_error_says_what_a_server_answered(monkeypatch):
    def answer(request: urllib.request.Request, timeout: float):
        assert timeout <= 60  # a server that says nothing is given up
        raise IncompleteRead(b"half of it", 999)

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    words = r": IncompleteRead\(10 bytes read, 999 more expected\)\); get https://"
    with pytest.raises(sources.FetchError, match=words):
        sources.fetch("shakespeare")


def test_an_installed_package_keeps_texts_in_the_current_folder(tmp_path):
    """And not beside itself, where other packages lie."""
    package = Path(sources.__file__).parents[1]
    shutil.copytree(package, tmp_path / "site" / "sancho", ignore=shutil.ignore_patterns("__py*"))
    (tmp_path / "site" / "data").mkdir()
    code = "from sancho.text.sources import DATA; print(DATA)"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "data\n"
