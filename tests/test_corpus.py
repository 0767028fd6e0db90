"""From raw bytes to clean text, to a folder, to arrays."""

import errno
import hashlib
import io
import json
import os
import re
import sys
import unicodedata
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from email.message import Message
from http.client import IncompleteRead
from itertools import count, product
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request

import numpy as np
import pytest
from conftest import Bytes, Pipe, contents
from faults import Disk, fail
from hypothesis import example, given
from hypothesis import strategies as st

from sancho import corpus
from sancho.checkpoint import pretrained
from sancho.config import CorpusConfig
from sancho.corpus import Corpus, open_corpus, open_dataset, open_prepared, prepare_files
from sancho.errors import MissingFile, UserError
from sancho.machine import files
from sancho.tokenizer import CharTokenizer


def clean(raw: bytes, piece: int = corpus.PIECE, encoding: str | None = None, of=io.BytesIO) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "PIECE", piece)
        return "".join(corpus.clean_text(corpus.read_text(of(raw), "text", encoding)))


def simply_cleaned(text: str) -> str:
    """The whole text at once, as the README words it; no licence."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = [line.rstrip(" \t") for line in unicodedata.normalize("NFC", text).split("\n")]
    clean = "\n".join(lines).strip("\n")
    return clean and clean + "\n"


@pytest.fixture
def prepared(tmp_path):
    def prepare_text(text: str | bytes) -> Corpus:
        raw = text.encode() if isinstance(text, str) else text
        return corpus.prepare([("text", io.BytesIO(raw))], tmp_path / "corpus", "a source")

    return prepare_text


def text_of(result: Corpus) -> str:
    return result.tokenizer.decode(np.concatenate([result.train, result.val]))


PIECES = st.sampled_from([corpus.PIECE, 1, 2, 3, 7])


@given(
    # Short, so that a fault that doubles something with every piece does not fill the memory.
    text=st.text(alphabet=" ab\n\r\te\u0301\u0327ñé—🐴\ufeff\x0b\x85\u2028", max_size=16),
    piece=PIECES,
    of=st.sampled_from([io.BytesIO, Pipe]),
)
@example(text="\ufeff \r\n\t\n ", piece=1, of=io.BytesIO)
@example(text="\n \n  a b\tc\n \t\n\nb  c", piece=corpus.PIECE, of=Pipe)
@example(text="a\n\n\n\n\nb", piece=1, of=io.BytesIO)
@example(text="a   \t   \n   b", piece=1, of=Pipe)
@example(text="a\t\nb \t\n\tc", piece=corpus.PIECE, of=Pipe)
@example(text="a\r\n\r\r\nb\rc\r", piece=2, of=io.BytesIO)
@example(text="\ufeffae\u0327\u0301 e\u0301", piece=1, of=io.BytesIO)
def test_pieces_of_any_size_give_what_the_whole_text_gives(text, piece, of):
    once = clean(text.encode(), piece, of=of)
    assert once == simply_cleaned(text)
    if not once.startswith("\ufeff"):
        assert clean(once.encode(), piece, of=of) == once


def test_a_pile_of_accents_is_refused_and_never_brought_in_order():
    """That would take hours."""
    with pytest.raises(UserError, match="text has thousands of accents on one letter"):
        clean(("x" * 300_000 + "e" + "\u0301\u0327" * 1_000_000).encode())
    text = "x" * 300 + "e" + "\u0327" * 500 + "\u0301" * 400
    assert clean(text.encode()) == simply_cleaned(text)


# --- what Project Gutenberg puts around a text ----------------------------------------------


def gutenberg(body: str, article: str = "THE") -> str:
    return (
        f"Title: Novelas\nLicence\n*** START OF {article} PROJECT GUTENBERG EBOOK NOVELAS ***\n"
        f"{body}\n*** END OF {article} PROJECT GUTENBERG EBOOK NOVELAS ***\nMore licence\n"
    )


def test_header_and_licence_are_cut_off():
    for article in ("THE", "THIS"):
        text = gutenberg("\n\nEl licenciado\n\nVidriera\n\n", article).replace("\n", "\r\n")
        assert clean(f"\ufeff{text}".encode()) == "El licenciado\n\nVidriera\n"
    # Without an end, or without a start, a text goes to the end of the file.
    assert clean(text.partition("\n*** END")[0].encode()) == "El licenciado\n\nVidriera\n"
    text = "uno\n*** END OF THE PROJECT GUTENBERG EBOOK ***\ndos\n*** START OF SOMETHING ***\n"
    assert clean(text.encode()) == text


@pytest.mark.parametrize("piece", [200, 201, 333, 1000, 4096])
@pytest.mark.parametrize("names", [["uno"], ["uno", "dos", "tres"]])
def test_the_licence_is_found_in_whichever_piece_it_stands(names, piece):
    bodies = ["\n".join(f"{name} {n}  de la novela" for n in range(100)) for name in names]
    text = "".join(map(gutenberg, bodies, ["THE", "THIS", "THE"])) + "x\n" * 500
    assert clean(text.encode(), piece).split() == "\n".join(bodies).split()


LETTERS = "a ñ 🐴 \r\n \ufeff".split(" ")
SANCHOS = b"Sancho, Sancho\r\n" * 40_000 + "ñandú y ".encode()


@given(
    raw=st.lists(
        st.sampled_from(LETTERS).map(str.encode)
        | st.sampled_from(LETTERS).map(lambda letter: letter.encode("utf-16-be"))
        | st.sampled_from([b"\xff", b"\x80", b"\xc3", b"\xf0\x9f", b"\xed\xa0\x80", b"\0\xdc"]),
        max_size=9,
    ).map(b"".join),
    encoding=st.sampled_from(["UTF-8", "ascii", "windows-1252", "cp850", "utf-16-be", "utf-32-le"]),
    piece=PIECES,
)
@example(raw=b"a\r\n" * 40 + b"\x80b", encoding="UTF-8", piece=64)
@example(raw=b"abc" + "🐴".encode()[:3], encoding="UTF-8", piece=1)
@example(raw=b"abc" * 40 + b"\x81", encoding="windows-1252", piece=7)
@example(raw="\ufeffab".encode("utf-16") + b"\0\xdcb\0", encoding="utf-16", piece=3)
@example(raw="\ufeffñ\r\n🐴".encode("utf-16"), encoding="utf-16", piece=3)
@example(raw="\ufeffñ\r\n🐴".encode("utf-16-be")[:-1], encoding="utf-16-be", piece=2)
@example(raw=SANCHOS + b"\xf1", encoding="UTF-8", piece=corpus.PIECE)
@example(raw=SANCHOS + b"\xf1" + b"\r\n" * 5000, encoding="UTF-8", piece=corpus.PIECE)
@pytest.mark.parametrize("of", [io.BytesIO, Pipe])
def test_the_first_byte_that_is_not_of_the_encoding_is_named(raw, encoding, piece, of):
    try:
        expected = simply_cleaned(raw.decode(encoding))
    except UnicodeDecodeError as error:
        answer = f"^text is not {encoding}: byte 0x{raw[error.start]:02x} at offset {error.start};"
        with pytest.raises(UserError, match=answer):
            clean(raw, piece, encoding, of)
    else:
        assert clean(raw, piece, encoding, of) == expected


@pytest.mark.parametrize("of", [io.BytesIO, Pipe])
def test_utf_16_needs_a_byte_order_mark(of):
    words = r"^text is not utf-16: (?!byte)[^;]*BOM; if it comes from an older"
    with pytest.raises(UserError, match=words):
        clean("«¿Señor, qué gigantes?»".encode("utf-16-le"), encoding="utf-16", of=of)


# Half a character can be written in UTF-7.
@pytest.mark.parametrize("name", ["", "windos-1252", "hex", "rot13", "utf-7", "ñ", "\udcff"])
def test_an_encoding_that_is_none_of_texts(tmp_path, name):
    (tmp_path / "mine.txt").write_bytes(b"uno\n")
    with pytest.raises(UserError) as caught:
        prepare_files([tmp_path / "mine.txt"], tmp_path / "mine", name)
    words = f"--encoding is {name!r}; it must be an encoding that Python knows, as UTF-8"
    assert str(caught.value).startswith(words)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


# --- a prepared folder ----------------------------------------------------------------------


def test_a_corpus_is_four_files(prepared, tmp_path):
    result = prepared("\ufeffEn un  \r\nlugar de la Mancha. Que\u0301 🐴\r\n\r\n")
    text, folder = "En un\nlugar de la Mancha. Qué 🐴\n", tmp_path / "corpus"
    names = ["input.txt", "meta.json", "train.bin", "val.bin"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert text_of(result) == text
    assert (folder / "input.txt").read_bytes() == text.encode()
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert (result.name, result.sha256) == ("corpus", digest)
    characters = "".join(sorted(set(text)))
    assert result.tokenizer.characters == characters
    assert json.loads((folder / "meta.json").read_text(encoding="utf-8")) == {
        "characters": characters,
        "counts": [text.count(c) for c in characters],
        "n_train": 29,
        "n_val": 3,
        "sha256": digest,
        "source": "a source",
        "file_sha256": "",
    }


@pytest.mark.parametrize("piece", [corpus.PIECE, 50])
@pytest.mark.parametrize("length", [2, 9, 10, 11, 19, 20, 99, 100, 12345])
def test_the_last_tenth_is_for_validation(prepared, monkeypatch, length, piece):
    monkeypatch.setattr(corpus, "PIECE", piece)
    text = ("abcdefghij" * 2000)[: length - 1] + "\n"
    result = prepared(text)
    assert (len(result.train), len(result.val)) == (length - length // 10, length // 10)
    assert text_of(result) == text


def test_a_text_may_have_65536_characters_and_no_more(prepared):
    # Ideographs, which have no accents that could be joined.
    characters = "".join(map(chr, (*range(0x20000, 0x2A000), *range(0x30000, 0x36000))))
    result = prepared(characters[:-1] + "\n")
    assert result.tokenizer.vocab_size == 65536
    assert text_of(result) == characters[:-1] + "\n"
    with pytest.raises(UserError, match="a source has 65537 different characters; at most 65536"):
        prepared(characters)


@pytest.mark.parametrize("raw", [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf\n", b"abc\xff"])
def test_a_refused_text_leaves_the_corpus_that_was_there(prepared, tmp_path, raw):
    prepared("En un lugar de la Mancha\n")
    before = contents(tmp_path / "corpus")
    with pytest.raises(UserError, match=r"a source holds no text|text is not UTF-8"):
        prepared(raw)
    assert contents(tmp_path / "corpus") == before


def test_several_files_are_one_text_in_the_order_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("uno.txt").write_bytes("\ufeffuno\r\n\r\n".encode())
    Path("dos.txt").write_bytes(gutenberg("dos").encode())
    monkeypatch.setattr(sys, "stdin", Bytes("\ufefftres".encode()))
    inputs = ["uno.txt", tmp_path / "dos.txt", "-"]
    assert text_of(prepare_files(inputs, tmp_path / "corpus")) == "uno\ndos\ntres\n"
    meta = json.loads((tmp_path / "corpus" / "meta.json").read_text(encoding="utf-8"))
    assert meta["source"] == "uno.txt, dos.txt, standard input"
    # The one that is wrong is named.
    Path("bad.txt").write_bytes(b"mal\xff")
    monkeypatch.setattr(sys, "stdin", Bytes(b"mal\xff"))
    for path, name in (("bad.txt", "bad.txt"), ("-", "standard input")):
        with pytest.raises(UserError, match=rf"^{name} .* offset 3;"):
            prepare_files(["uno.txt", path], tmp_path / "new")
    assert contents(tmp_path / "new") == {}


def test_loaded_ids_stay_on_the_disk_and_writing_to_them_does_not_reach_it(prepared, tmp_path):
    result = prepared("En un lugar de la Mancha\n" * 10)
    before = contents(tmp_path / "corpus")
    for ids in (result.train, result.val):
        assert type(ids) is np.memmap
        ids[:] = 0
        ids.flush()
    assert contents(tmp_path / "corpus") == before


@pytest.mark.skipif(sys.platform == "win32", reason="here: Windows replaces no file that is open")
@pytest.mark.parametrize("new", ["Dulcinea\n", "En otro lugar\n" * 500])
def test_a_corpus_that_is_open_stays_what_it_is_while_it_is_prepared_anew(prepared, tmp_path, new):
    """A run may be reading it: to cut its file off would kill the run (SIGBUS)."""
    text = "En un lugar de la Mancha\n" * 400
    before = prepared(text)
    assert text_of(prepared(new)) == new
    assert text_of(before) == text


@pytest.mark.parametrize("failing", range(1, 8))
def test_a_crash_while_the_files_are_replaced_leaves_no_mixture(prepared, tmp_path, failing):
    """First it is tried whether they can be; meta.json goes then and comes last."""
    prepared("En un lugar de la Mancha\n")
    folder, moves, replace = tmp_path / "corpus", count(1), Path.replace
    before = contents(folder)

    def fail(path: Path, target: Path) -> Path:
        if next(moves) == failing:
            raise KeyboardInterrupt
        return replace(path, target)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", fail)
        prepared("No ha mucho tiempo que v\n")  # as long
    if failing <= 3:
        assert contents(folder) == before
    else:
        with pytest.raises(MissingFile):
            open_prepared(folder)
        assert contents(folder).keys() <= {"input.txt", "train.bin", "val.bin"}
    assert text_of(prepared("Dulcinea\n")) == "Dulcinea\n"


def test_a_file_that_is_open_on_windows_leaves_everything_as_it_was(
    prepared, tmp_path, monkeypatch
):
    """As train.bin while a run reads it."""
    prepared("En un lugar de la Mancha\n")
    before, disk = contents(tmp_path / "corpus"), Disk(monkeypatch, tmp_path)
    held = ("replace", tmp_path / "corpus" / "train.bin")
    disk.refuse = lambda *asked: asked == held and fail(errno.EACCES)
    with pytest.raises(UserError, match=r"^\S*train\.bin is open in another program; close it"):
        prepared("Dulcinea\n")
    assert contents(tmp_path / "corpus") == before


IDS = [None, b"", b"x", b"x" * 999]
META = [b"", b"{", b"[]", b"null", b"{}", b'{"characters": "ab"}', b"\xff"]
META += [{"characters": 5}, {"characters": "aa"}, {"n_train": "9"}, {"n_train": None}]


@pytest.mark.parametrize(
    ("name", "wrong"), [*product(["train.bin", "val.bin"], IDS), *product(["meta.json"], META)]
)
def test_a_folder_whose_files_do_not_fit_is_damaged(prepared, tmp_path, name, wrong):
    prepared("En un lugar de la Mancha\n" * 10)
    path = tmp_path / "corpus" / name
    if isinstance(wrong, dict):
        wrong = json.dumps(json.loads(path.read_bytes()) | wrong).encode()
    path.unlink() if wrong is None else path.write_bytes(wrong)
    words = name if name.endswith(".bin") else ""
    with pytest.raises(UserError, match=rf"is damaged \(.*{words}.*data/prepare\.py --overwrite"):
        open_prepared(tmp_path / "corpus")


# --- another vocabulary, and the length -----------------------------------------------------


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("En un lugar de la Mancha", "¿ABC"),
        ("En un lugar de la Mancha", "".join(map(chr, range(0x20000, 0x20000 + 300)))),
        ("bxy x\u0303 b\u0301 q\u0301 x\u0327 oq\u0301 q", "a"),
    ],
    ids="more wider accents".split(),
)
def test_the_same_text_in_the_ids_of_another_vocabulary(prepared, text, more):
    ours = prepared(text)
    theirs = CharTokenizer("".join(sorted({*ours.tokenizer.characters, *more})))
    result = corpus.remap_ids(ours, theirs)
    assert text_of(result) == text_of(ours) == text + "\n"
    assert result.tokenizer is theirs
    assert result.train.dtype == result.val.dtype == theirs.id_type
    assert (result.name, result.sha256) == (ours.name, ours.sha256)
    assert corpus.remap_ids(ours, CharTokenizer(ours.tokenizer.characters)) is ours


@pytest.mark.parametrize("block_size", [1, 8, 9, 10, 18, 27, 64, 96, 99, 256, 1000])
def test_the_length_that_is_asked_for_is_the_shortest_that_works(block_size):
    def require(length: int) -> None:
        val, train = np.split(np.zeros(length), [length // 10])
        corpus.require_length(Corpus("breve", CharTokenizer("a"), train, val, ""), block_size)

    who = "it" if block_size == 1 else f"--block_size {block_size}"
    words = f"corpus breve has 5 characters, but {who} takes at least "
    with pytest.raises(UserError, match=words) as caught:
        require(5)
    needed = int(str(caught.value).partition("takes at least ")[2].partition(":")[0])
    require(needed)
    with pytest.raises(UserError):
        require(needed - 1)


TITLE = "El ingenioso hidalgo don Quijote de la Mancha"
FAMOUS_WORDS = "En un lugar de la Mancha"
LINE = "que no quiero acordarme, no ha mucho tiempo que vivía un hidalgo\n"


def book_of(length: int) -> bytes:
    """A book that begins and sounds like the right one and has about `length` characters."""
    begin = f"{TITLE}\n\n{FAMOUS_WORDS}, de cuyo nombre\n"
    return ("\ufeff" + gutenberg(begin + LINE * ((length - len(begin)) // len(LINE)))).encode()


RIGHT_BOOK = book_of(2_110_000)
AS_LONG_AS_SHAKESPEARE = corpus.ONLINE["shakespeare"].beginning.ljust(1_115_389, "x") + "\n"


def test_don_quijote_as_project_gutenberg_has_it(tmp_path, book):
    corpus.check_text(corpus.ONLINE["quijote"], book.read_bytes())
    result = prepare_files([book], tmp_path / "quijote")
    assert (len(result.train), len(result.val)) == (1_899_635, 211_070)
    assert result.tokenizer.vocab_size == 92
    assert result.sha256 == pretrained().corpus_sha256


@pytest.mark.parametrize(
    ("name", "body", "answer"),
    [
        ("quijote", b"<!DOCTYPE html>\n<title>Log in</title>\n" * 55_000, "from '<!DOCTYPE html>"),
        ("quijote", RIGHT_BOOK.replace(TITLE.encode(), b"Segunda parte"), "from 'Segunda parte"),
        ("quijote", book_of(1_000_000), "text: 999[0-9]{3} characters from 'El ingenioso"),
        ("quijote", book_of(4_000_000), "characters from 'El ingenioso"),
        ("quijote", b"\x1f\x8b\x08\x00" + RIGHT_BOOK, "not UTF-8"),
        (
            "shakespeare",
            AS_LONG_AS_SHAKESPEARE.encode(),
            "text: 1115390 characters from 'First Citizen",
        ),
    ],
    ids="html another half double compressed long".split(),
)
def test_another_text_is_not_taken_for_the_right_one(name, body, answer):
    with pytest.raises(UserError, match=rf"^[^\n]*{answer}[^\n]*$"):
        corpus.check_text(corpus.ONLINE[name], body)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path) -> Path:
    """A data folder that holds the sample corpus only."""
    return write(tmp_path / "data" / "apocrifo.txt", LINE * 30).parent


@pytest.fixture
def urls(tmp_path) -> list[str]:
    """Addresses of nothing, of something else and of the book: files, without a network."""
    write(tmp_path / "wrong", "<html>")
    (tmp_path / "right").write_bytes(RIGHT_BOOK)
    return [(tmp_path / name).as_uri() for name in ("missing", "wrong", "right")]


def open_from(urls: list[str], data: Path, name: str) -> Corpus:
    """Open a corpus, fetched from these addresses if it is missing."""
    with pytest.MonkeyPatch.context() as patch:
        online = replace(corpus.ONLINE[name], addresses=tuple(urls))
        patch.setitem(corpus.ONLINE, name, online)
        return open_dataset(data, name)


def test_a_text_is_fetched_once_from_the_first_address_that_has_it(data, urls):
    with pytest.warns(UserWarning, match="fetching quijote from ") as caught:
        first = open_from(urls, data, "quijote")
    assert len(caught) == 3
    again = open_from([], data, "quijote")
    assert first.name == again.name == "quijote"
    assert text_of(first) == text_of(again)
    assert text_of(first).startswith(TITLE + "\n\n" + FAMOUS_WORDS)


@pytest.mark.parametrize(
    "error",
    [
        HTTPError("", 404, "Not Found", Message(), None),
        IncompleteRead(b"half of it", 999),
        TimeoutError("timed out"),
    ],
)
def test_the_error_says_what_a_server_answered(monkeypatch, error):
    def answer(request: Request, timeout: float):
        assert timeout == corpus.ANSWER_SECONDS
        raise error

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    with pytest.warns(UserWarning), pytest.raises(corpus.FetchError) as caught:
        corpus.fetch("shakespeare")
    assert f": {error});" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_the_book_the_sample_corpus_takes_its_place_and_says_so(data, urls):
    with pytest.warns(UserWarning, match="DON QUIJOTE COULD NOT BE FETCHED") as caught:
        found = open_from(urls[:2], data, "quijote")
    message = str(caught[-1].message)
    for part in ("7 characters from ", "data/apocrifo.txt", "data/prepare.py"):
        assert part in message
    assert found.name == "apocrifo"
    assert text_of(found) == LINE * 30
    # Nothing there that could be taken for a corpus, or for a part of the book.
    assert contents(data / "quijote") == {}
    assert open_from(urls, data, "quijote").name == "quijote"  # it is tried again


@pytest.mark.parametrize("name", ["quijote", "novelas"])
def test_a_text_of_that_name_is_prepared_once_and_an_edited_one_is_noticed(data, monkeypatch, name):
    monkeypatch.delattr(corpus, "fetch")
    text = write(data / f"{name}.txt", "lo de antes\n")
    for _ in range(2):
        assert text_of(open_dataset(str(data), name)) == "lo de antes\n"
        os.utime(text)
    write(text, "lo de ahora\n")
    again = rf"{name}\.txt has changed since .* prepare it anew \(data/prepare\.py --input .*--over"
    with pytest.raises(UserError, match=again):
        open_dataset(data, name)
    prepare_files([str(text)], str(data / name))
    assert text_of(open_dataset(data, name)) == "lo de ahora\n"
    text.unlink()
    assert text_of(open_dataset(data, name)) == "lo de ahora\n"
    # Prepared by an older version, which kept no sum: nothing is known of it.
    write(text, "lo de después\n")
    meta = json.loads((data / name / "meta.json").read_bytes())
    del meta["file_sha256"]
    (data / name / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    assert text_of(open_dataset(data, name)) == "lo de ahora\n"


# --- a text of the user's -------------------------------------------------------------------


def opened(data: Path, path: Path, encoding: str = "UTF-8") -> Path:
    """Open a text of the user's; return the folder, which may hold no other text."""
    result = open_corpus(data, CorpusConfig(corpus=path, encoding=encoding))
    codec = {"UTF-8": b"utf-8", "utf8": b"utf-8", "latin-1": b"iso8859-1"}[encoding]
    digest = hashlib.sha256(codec + path.read_bytes()).hexdigest()
    assert re.fullmatch(r"[\w.-]+", result.name) and result.name.endswith(f"-{digest[:8]}")
    assert text_of(result) == path.read_bytes().decode(encoding)
    return data / result.name


def when_made(folder: Path) -> int:
    return (folder / "meta.json").stat().st_mtime_ns


def test_a_text_of_the_users_is_prepared_once_and_again_when_it_was_edited(tmp_path, data):
    mine = write(tmp_path / "mine.txt", "ñandú\n")
    first = opened(data, mine)
    assert first.name.startswith("mine-")
    made = when_made(first)
    os.utime(mine)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "mine.txt").symlink_to(mine)
    for path in (mine, data / ".." / "mine.txt", tmp_path / "links" / "mine.txt"):
        assert opened(data, path) == opened(data, path, "utf8") == first
    assert opened(data, mine, "latin-1") != first
    assert opened(data, write(mine, "dos\n")) != first
    assert opened(data, write(mine, "ñandú\n")) == first
    assert when_made(first) == made
    for name in ("train.bin", "val.bin", "meta.json"):
        (first / name).write_bytes(b"")
        assert opened(data, mine) == first


def test_texts_of_one_name_are_in_nobodys_way(tmp_path, data):
    prepare_files([write(tmp_path / "c.txt", "tres\n")], data / "mine")
    texts = [write(tmp_path / name / "mine.txt", f"{name}\n") for name in ("uno", "dos")]
    texts += [write(data / "mine.txt", "cuatro\n"), write(data / "quijote.txt", "cinco\n")]
    folders = {opened(data, path) for path in texts}
    assert len(folders) == 4
    assert text_of(open_dataset(data, "mine")) == "tres\n"
    assert folders == {opened(data, path) for path in texts}


@pytest.mark.parametrize("name", ["quijote", "mine"])
def test_one_process_prepares_and_who_has_waited_finds_it(data, urls, monkeypatch, name):
    """Who wants to have the folder is let in after somebody else, who does the same."""

    def open_it() -> int:
        mine = CorpusConfig(corpus=data / "apocrifo.txt")
        found = open_corpus(data, mine) if name == "mine" else open_from(urls, data, name)
        return when_made(data / found.name)

    @contextmanager
    def locked(folder: Path, timeout: float = 0.0):
        assert timeout == corpus.WAIT_SECONDS
        monkeypatch.undo()
        made.append(open_it())
        with files.locked(folder):
            yield

    made: list[int] = []
    monkeypatch.setattr(corpus, "locked", locked)
    assert [open_it()] == made


NAMES = ["con", "NUL", "mine.", "..", "la Mancha", "a:b|c*", "-x", os.fsdecode(b"m\xf3o")]


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="here: not all are names there")
@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_text_is_called_its_folder_is_one_under_data(tmp_path, data, name):
    folder = opened(data, write(tmp_path / f"{name}.txt", "uno\n"))
    assert folder.parent == data
    assert {path.name for path in data.iterdir()} == {"apocrifo.txt", folder.name}
