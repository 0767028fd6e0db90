"""From raw bytes to clean text, to a folder, to arrays."""

import dataclasses
import hashlib
import io
import json
import os
import shlex
import sys
import unicodedata
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import example, given
from hypothesis import strategies as st

from sancho import corpus
from sancho.checkpoint import pretrained
from sancho.config import CorpusConfig
from sancho.corpus import (
    Corpus,
    check_book,
    find_corpus,
    load,
    open_corpus,
    prepare,
    prepare_files,
    remap_ids,
    require_length,
)
from sancho.errors import MissingFile, UserError
from sancho.machine import files
from sancho.tokenizer import CharTokenizer

QUIJOTE = ROOT / "data" / "quijote"
needs_the_book = pytest.mark.skipif(
    not (QUIJOTE / "meta.json").is_file(), reason="data/quijote is not prepared"
)


def clean(raw: bytes, piece_bytes: int | None = None, encoding: str | None = None) -> str:
    with pytest.MonkeyPatch.context() as patch:
        if piece_bytes:
            patch.setattr(corpus, "PIECE_BYTES", piece_bytes)
        return "".join(corpus.clean_text(corpus.read_text(io.BytesIO(raw), "text", encoding)))


def simply_cleaned(text: str) -> str:
    """The whole text at once, as the README words it; no licence."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = [line.rstrip(" \t") for line in unicodedata.normalize("NFC", text).split("\n")]
    while lines and not lines[0]:
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    return "".join(line + "\n" for line in lines)


@pytest.fixture
def prepared(tmp_path):
    """Prepare a text or bytes as the corpus `name` and return it."""

    def prepare_text(text: str | bytes, name: str = "corpus") -> Corpus:
        raw = text.encode() if isinstance(text, str) else text
        return prepare([("text", io.BytesIO(raw))], tmp_path / name, "a source")

    return prepare_text


def text_of(result: Corpus) -> str:
    return result.tokenizer.decode(np.concatenate([result.train, result.val]))


# --- cleaning -------------------------------------------------------------------------------


@given(
    # Short, so that a fault that doubles something with every piece does not fill the memory.
    text=st.text(alphabet=" ab\n\r\te\u0301\u0327ñé—🐴\ufeff", max_size=16),
    piece_bytes=st.sampled_from([None, 1, 2, 3, 7]),
)
@example(text="", piece_bytes=None)
@example(text="\ufeff \r\n\t\n ", piece_bytes=1)
@example(text="\n \n  a b\tc\n \t\n\nb  c", piece_bytes=None)
@example(text="a\n\n\n\n\nb", piece_bytes=1)
@example(text="a   \t   \n   b", piece_bytes=1)
@example(text="a\r\n\r\r\nb\rc\r", piece_bytes=2)
@example(text="\ufeffae\u0327\u0301 e\u0301", piece_bytes=1)
def test_pieces_of_any_size_give_what_the_whole_text_gives(text, piece_bytes):
    once = clean(text.encode(), piece_bytes)
    assert once == simply_cleaned(text)
    if not once.startswith("\ufeff"):
        assert clean(once.encode(), piece_bytes) == once


LONG = 200_000


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("a" + " " * LONG + "b", "a" + " " * LONG + "b"),
        ("a" + "\n" * LONG + "b", "a" + "\n" * LONG + "b"),
        ("a" + " \n" * (LONG // 2) + "b", "a" + "\n" * (LONG // 2) + "b"),
        ("漢" * LONG, "漢" * LONG),
    ],
    ids=["one line of blanks", "ends of lines", "lines of blanks", "one word"],
)
def test_what_waits_for_a_word_is_not_looked_at_with_each_piece(monkeypatch, raw, expected):
    """In a thousand pieces that would be a thousand times as much work."""
    work = 0

    def add(frame, event: str, argument) -> None:
        nonlocal work
        if event == "c_call" and isinstance(getattr(argument, "__self__", None), str):
            work += len(argument.__self__)

    monkeypatch.setattr(corpus, "PIECE_BYTES", LONG // 1000)
    pieces = corpus.clean_text(corpus.read_text(io.BytesIO(raw.encode()), "text"))
    sys.setprofile(add)
    text = "".join(pieces)
    sys.setprofile(None)
    assert text == expected + "\n"
    assert LONG < work < 20 * LONG


@pytest.mark.parametrize("before", ["", "x" * 300_000])
def test_a_pile_of_accents_is_refused_and_never_brought_in_order(monkeypatch, before):
    """That would take hours."""
    normalize = unicodedata.normalize

    def careful(form: str, text: str) -> str:
        assert sum(map(unicodedata.combining, text)) == 0
        return normalize(form, text)

    monkeypatch.setattr(unicodedata, "normalize", careful)
    with pytest.raises(UserError, match="text has thousands of accents on one letter"):
        clean((before + "e" + "\u0301\u0327" * 1_000_000).encode())


def test_a_letter_may_have_many_accents():
    text = "e" + "\u0327" * 500 + "\u0301" * 400
    assert clean(("x" * 300 + text).encode()) == simply_cleaned("x" * 300 + text)


# --- what Project Gutenberg puts around a text ----------------------------------------------


def gutenberg(body: str, article: str = "THE") -> str:
    return (
        f"Title: Novelas\nLicence\n*** START OF {article} PROJECT GUTENBERG EBOOK NOVELAS ***\n"
        f"{body}\n*** END OF {article} PROJECT GUTENBERG EBOOK NOVELAS ***\nMore licence\n"
    )


@pytest.mark.parametrize("article", ["THE", "THIS"])
def test_header_and_licence_are_cut_off(article):
    text = gutenberg("\n\nEl licenciado\n\nVidriera\n\n", article)
    assert clean(f"\ufeff{text}".replace("\n", "\r\n").encode()) == "El licenciado\n\nVidriera\n"


@pytest.mark.parametrize("piece_bytes", [200, 201, 333, 1000, 4096])
@pytest.mark.parametrize("names", [["uno"], ["uno", "dos", "tres"]])
def test_the_licence_is_found_in_whichever_piece_it_stands(names, piece_bytes):
    bodies = ["\n".join(f"{name} {n}  de la novela" for n in range(100)) for name in names]
    text = "".join(map(gutenberg, bodies, ["THE", "THIS", "THE"])) + "x\n" * 500
    assert clean(text.encode(), piece_bytes).split() == "\n".join(bodies).split()


def test_without_an_end_or_a_start_line_a_text_goes_to_the_end_of_the_file():
    text = gutenberg("uno\ndos").partition("\n*** END")[0]
    assert clean(text.encode()) == "uno\ndos\n"
    text = "uno\n*** END OF THE PROJECT GUTENBERG EBOOK ***\ndos\n*** START OF SOMETHING ***\n"
    assert clean(text.encode()) == text


# --- bytes that are not UTF-8 ---------------------------------------------------------------


PIECES = "a ñ 🐴 \r\n \ufeff".split(" ")


@given(
    raw=st.lists(
        st.sampled_from(PIECES).map(str.encode)
        | st.sampled_from(PIECES).map(lambda piece: piece.encode("utf-16-be"))
        | st.sampled_from([b"\xff", b"\x80", b"\xc3", b"\xf0\x9f", b"\xed\xa0\x80", b"\0\xdc"]),
        max_size=9,
    ).map(b"".join),
    encoding=st.sampled_from(["UTF-8", "ascii", "windows-1252", "cp850", "utf-16-be", "utf-32-le"]),
    piece_bytes=st.sampled_from([None, 1, 2, 3, 7]),
)
@example(raw=b"a\r\n" * 40 + b"\x80b", encoding="UTF-8", piece_bytes=64)
@example(raw="ñ".encode() * 40 + "ñ".encode()[:1], encoding="UTF-8", piece_bytes=7)
@example(raw=b"abc" + "🐴".encode()[:3], encoding="UTF-8", piece_bytes=1)
@example(raw=b"abc" * 40 + b"\x81", encoding="windows-1252", piece_bytes=None)
@example(raw="\ufeffab".encode("utf-16") + b"\0\xdcb\0", encoding="utf-16", piece_bytes=3)
@example(raw="\ufeffñ\r\n🐴".encode("utf-32-le"), encoding="utf-32-le", piece_bytes=1)
@example(raw="\ufeffñ\r\n🐴".encode("utf-16-be")[:-1], encoding="utf-16-be", piece_bytes=2)
def test_the_first_byte_that_is_not_of_the_encoding_is_named(raw, encoding, piece_bytes):
    try:
        expected = simply_cleaned(raw.decode(encoding))
    except UnicodeDecodeError as error:
        answer = f"^text is not {encoding}: byte 0x{raw[error.start]:02x} at offset {error.start};"
        with pytest.raises(UserError, match=answer):
            clean(raw, piece_bytes, encoding)
    else:
        assert clean(raw, piece_bytes, encoding) == expected


SPANISH = "«¿Señor, qué gigantes?», dijo Sancho Panza… —Aquéllos\r\nque allí ves.\r\n"
# Each stands for the encodings that a text of an old computer may be in.
ENCODINGS = ["windows-1252", "mac-roman", "cp850", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]


def encoded(name: str) -> bytes:
    """SPANISH as old computers wrote it; that of DOS had no dashes and ellipses."""
    return SPANISH.replace("…", "").replace("—", "").encode(name)


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_likely_encoding_is_named_and_reads_the_text(name):
    advice = rf"; it looks like {name}; save it as UTF-8, or read it with --encoding {name} \(data/"
    with pytest.raises(UserError, match=advice):
        clean(encoded(name), encoding="UTF-8")
    assert clean(encoded(name), encoding=name) == clean(encoded("utf-8"))


@pytest.mark.parametrize(
    ("raw", "encoding"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 9, "UTF-8"),
        ("Где ты".encode("koi8-r"), "UTF-8"),
        ("ñandú".encode() + b"\xf1", "UTF-8"),  # which was damaged
        (("señor" * 20).encode("latin-1") + b"\x81", "UTF-8"),  # which windows-1252 lacks
        (b"\xff", "UTF-8"),
        ("señor".encode("latin-1"), "ascii"),
        ("ñandú".encode("utf-16-le"), "utf-16"),  # without a byte order mark
    ],
)
def test_where_nothing_speaks_for_an_encoding_none_is_named(raw, encoding):
    answer = rf"^text is not {encoding}: [^;]*; save it as UTF-8, or .*--encoding NAME \(data/prep"
    with pytest.raises(UserError, match=answer):
        clean(raw, encoding=encoding)


def test_a_prompt_is_utf8_whatever_it_looks_like():
    answer = "offset 2; it looks like windows-1252; save it as UTF-8 and try again$"
    with pytest.raises(UserError, match=answer):
        clean("Señor".encode("windows-1252"))


@pytest.mark.parametrize("name", ["", "windos-1252", "hex", "rot13", "utf-7", "ñ", "\udcff"])
def test_an_encoding_that_is_none_of_texts(tmp_path, name):
    (tmp_path / "mine.txt").write_bytes(b"uno\n")
    with pytest.raises(UserError) as caught:
        prepare_files([tmp_path / "mine.txt"], tmp_path / "mine", name)
    assert str(caught.value) == (
        f"--encoding is {name!r}; it must be an encoding that Python knows, as UTF-8, "
        "windows-1252 or UTF-16"
    )
    assert not (tmp_path / "mine").exists()


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
    }
    again = prepare_files([folder / "input.txt"], tmp_path / "again")
    assert (text_of(again), again.sha256) == (text, digest)


@pytest.mark.parametrize("piece_bytes", [corpus.PIECE_BYTES, 50])
@pytest.mark.parametrize("length", [2, 9, 10, 11, 19, 20, 99, 100, 12345])
def test_the_last_tenth_is_for_validation(prepared, monkeypatch, length, piece_bytes):
    monkeypatch.setattr(corpus, "PIECE_BYTES", piece_bytes)
    text = ("abcdefghij" * 2000)[: length - 1] + "\n"
    result = prepared(text)
    assert (len(result.train), len(result.val)) == (length - length // 10, length // 10)
    assert text_of(result) == text


def test_ids_of_more_than_256_characters_take_two_bytes(prepared, tmp_path):
    # Ideographs, which have no accents that could be joined.
    characters = "".join(map(chr, (*range(0x20000, 0x2A000), *range(0x30000, 0x36000))))
    result = prepared(characters[:-1] + "\n")
    sizes = [(tmp_path / "corpus" / name).stat().st_size for name in ("train.bin", "val.bin")]
    assert sum(sizes) == 2 * result.tokenizer.vocab_size == 2 * 65536
    assert text_of(result) == characters[:-1] + "\n"
    with pytest.raises(UserError, match="a source has 65537 different characters; at most"):
        prepared(characters)


@pytest.mark.parametrize("raw", [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf\n", b"abc\xff"])
def test_a_refused_text_leaves_the_corpus_that_was_there(prepared, tmp_path, raw):
    text = "En un lugar de la Mancha\n"
    before = prepared(text)
    with pytest.raises(UserError, match=r"a source holds no text|text is not UTF-8"):
        prepared(raw)
    after = load(tmp_path / "corpus")
    assert text_of(after) == (tmp_path / "corpus" / "input.txt").read_text("utf-8") == text
    assert after.sha256 == before.sha256


# --- files ----------------------------------------------------------------------------------


def test_several_files_are_one_text_in_the_order_given(tmp_path, monkeypatch):
    (tmp_path / "uno.txt").write_bytes("\ufeffuno\r\n\r\n".encode())
    (tmp_path / "dos.txt").write_bytes(gutenberg("dos").encode())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("\ufefftres".encode())))
    paths = [str(tmp_path / "uno.txt"), tmp_path / "dos.txt"]
    result = prepare_files([*paths, "-"], tmp_path / "corpus")
    assert text_of(result) == "uno\ndos\ntres\n"
    meta = json.loads((tmp_path / "corpus" / "meta.json").read_text(encoding="utf-8"))
    assert meta["source"] == "uno.txt, dos.txt, standard input"
    assert meta["paths"] == [*(str(Path(path).resolve()) for path in paths), "-"]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("-", "^standard input is not UTF-8: byte 0xff at offset 3"),
        ("bad.txt", r"^bad\.txt is not UTF-8: byte 0xff at offset 3"),
        ("missing.txt", r"^the text missing\.txt does not exist"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_nothing_is_left(
    tmp_path, monkeypatch, name, answer
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"mal\xff")))
    Path("good.txt").write_bytes(b"bien")
    Path("bad.txt").write_bytes(b"mal\xff")
    with pytest.raises(UserError, match=answer):
        prepare_files(["good.txt", name], tmp_path / "corpus")
    assert [path.name for path in (tmp_path / "corpus").glob("[!.]*")] == []


# --- loading --------------------------------------------------------------------------------


def test_loaded_ids_stay_on_the_disk_and_writing_to_them_does_not_reach_it(prepared, tmp_path):
    result = prepared("En un lugar de la Mancha\n" * 10)
    for ids, name in ((result.train, "train.bin"), (result.val, "val.bin")):
        assert type(ids) is np.memmap
        assert Path(ids.filename) == tmp_path / "corpus" / name
        before = Path(ids.filename).read_bytes()
        ids[:] = 0
        ids.flush()
        assert Path(ids.filename).read_bytes() == before


@pytest.mark.skipif(sys.platform == "win32", reason="Windows replaces no file that is open")
@pytest.mark.parametrize("new", ["Dulcinea\n", "En otro lugar\n" * 500])
def test_a_corpus_that_is_open_stays_what_it_is_while_it_is_prepared_anew(prepared, tmp_path, new):
    """A run may be reading it: to cut its file off would kill the run (SIGBUS)."""
    text = "En un lugar de la Mancha\n" * 400
    before = prepared(text)
    assert text_of(prepared(new)) == new
    assert text_of(before) == text
    assert text_of(load(tmp_path / "corpus")) == new


def fail_at(patch: pytest.MonkeyPatch, failing: int, error: BaseException) -> None:
    """Let the moves of files go well until one of them fails, as where the file is open."""
    moves, replace = count(1), Path.replace

    def counted(path: Path, target: Path) -> Path:
        if path.suffix != ".tmp" and path.parent.name != ".old" and next(moves) == failing:
            raise error
        return replace(path, target)

    patch.setattr(Path, "replace", counted)


@pytest.mark.parametrize("failing", range(1, 9))
def test_where_a_file_cannot_be_replaced_the_old_corpus_stays(prepared, tmp_path, failing):
    """On Windows: a run has mapped it."""
    text, folder = "En un lugar de la Mancha\n", tmp_path / "corpus"
    prepared(text)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    error = PermissionError(13, "Permission denied", str(folder / "train.bin"))
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, failing, error)
        with pytest.raises(UserError, match=r"train\.bin can't be replaced \(Perm.*; end the run"):
            prepared("Dulcinea\n" * 9)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert text_of(load(folder)) == text
    assert text_of(prepared("Dulcinea\n")) == "Dulcinea\n"


@pytest.mark.parametrize("failing", range(1, 9))
def test_a_crash_while_the_files_are_replaced_leaves_no_mixture(prepared, tmp_path, failing):
    prepared("En un lugar de la Mancha\n")
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, failing, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            prepared("No ha mucho tiempo que v\n")  # as long
    if failing == 1:
        assert text_of(load(tmp_path / "corpus")) == "En un lugar de la Mancha\n"
    else:
        with pytest.raises(MissingFile):
            load(tmp_path / "corpus")
    assert text_of(prepared("Dulcinea\n")) == "Dulcinea\n"


def test_what_a_crash_has_left_is_in_nobodys_way(prepared, tmp_path):
    for name in (".new", ".old"):
        (tmp_path / "corpus" / name).mkdir(parents=True)
        (tmp_path / "corpus" / name / "train.bin").write_bytes(b"1234")
    assert text_of(prepared("Dulcinea\n")) == "Dulcinea\n"
    assert len(list((tmp_path / "corpus").iterdir())) == 4


@pytest.mark.parametrize("name", ["train.bin", "val.bin"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "longer", "empty"])
def test_ids_that_do_not_fit_are_damage(prepared, tmp_path, name, damage):
    prepared("En un lugar de la Mancha\n" * 10)
    path = tmp_path / "corpus" / name
    raw = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes({"truncated": raw[:-1], "longer": raw + b"\0", "empty": b""}[damage])
    with pytest.raises(UserError, match=rf"damaged \(.*{name}.*python data/prepare\.py"):
        load(tmp_path / "corpus")


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "{", "[]", "null", "{}", '{"characters": "ab"}', "\udcff"),
        *({"characters": 5}, {"characters": "aa"}, {"n_train": "9"}, {"n_train": None}),
    ],
)
def test_a_broken_meta_json_is_damage(prepared, tmp_path, wrong):
    prepared("En un lugar de la Mancha\n" * 10)
    path = tmp_path / "corpus" / "meta.json"
    if isinstance(wrong, dict):
        wrong = json.dumps(json.loads(path.read_text("utf-8")) | wrong)
    path.write_bytes(wrong.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=r"is damaged \(.*python data/prepare\.py"):
        load(tmp_path / "corpus")


# --- another vocabulary, and the length -----------------------------------------------------


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("En un lugar de la Mancha", "¿ABC"),
        ("En un lugar de la Mancha", "".join(map(chr, range(0x20000, 0x20000 + 300)))),
        ("bxy x\u0303 b\u0301 q\u0301 x\u0327 oq\u0301 q", "a"),
    ],
    ids=["new ids", "wider ids", "loose accents"],
)
def test_the_same_text_in_the_ids_of_another_vocabulary(prepared, text, more):
    ours = prepared(text)
    theirs = CharTokenizer("".join(sorted({*ours.tokenizer.characters, *more})))
    result = remap_ids(ours, theirs)
    assert text_of(result) == text_of(ours) == text + "\n"
    assert result.tokenizer is theirs
    assert result.train.dtype == result.val.dtype == theirs.id_type
    assert (result.name, result.sha256) == (ours.name, ours.sha256)
    assert remap_ids(ours, CharTokenizer(ours.tokenizer.characters)) is ours


def test_the_characters_that_the_other_vocabulary_lacks_are_named(prepared):
    ours = prepared("añb€\n")
    with pytest.raises(UserError, match="characters of corpus: 'ñ' '€'; take them out"):
        remap_ids(ours, CharTokenizer("\nab"))


def of_length(length: int) -> Corpus:
    n_val = length // 10
    ids = np.zeros(length, dtype=np.uint8)
    return Corpus("breve", CharTokenizer("a"), ids[: length - n_val], ids[length - n_val :], "")


@pytest.mark.parametrize("block_size", [1, 8, 9, 10, 18, 27, 64, 96, 99, 256, 1000])
def test_the_length_that_is_asked_for_is_the_shortest_that_works(block_size):
    words = f"corpus breve has 5 characters, but --block_size {block_size} takes at least "
    with pytest.raises(UserError, match=words) as caught:
        require_length(of_length(5), block_size)
    needed = int(str(caught.value).partition("takes at least ")[2].partition(":")[0])
    require_length(of_length(needed), block_size)
    with pytest.raises(UserError):
        require_length(of_length(needed - 1), block_size)
    with pytest.raises(UserError, match="has 2000 characters"):
        require_length(dataclasses.replace(of_length(2222), val=np.zeros(0)), 8)  # none left


# --- the book -------------------------------------------------------------------------------


TITLE = "El ingenioso hidalgo don Quijote de la Mancha"
FAMOUS_WORDS = "En un lugar de la Mancha"
LINE = "que no quiero acordarme, no ha mucho tiempo que vivía un hidalgo\n"


def book_of(length: int) -> bytes:
    """A book that begins and sounds like the right one and has about `length` characters."""
    begin = f"{TITLE}\n\n{FAMOUS_WORDS}, de cuyo nombre\n"
    return ("\ufeff" + gutenberg(begin + LINE * ((length - len(begin)) // len(LINE)))).encode()


RIGHT_BOOK = book_of(2_110_000)


@needs_the_book
def test_don_quijote_as_project_gutenberg_has_it(tmp_path):
    downloaded = QUIJOTE / "pg2000.txt"
    raw = downloaded if downloaded.is_file() else QUIJOTE / "input.txt"
    check_book(raw)
    result = prepare_files([raw], tmp_path / "quijote")
    text = text_of(result)
    assert len(text) == 2_110_705
    assert result.tokenizer.vocab_size == len(set(text)) == 92
    assert text.startswith("El ingenioso hidalgo don Quijote de la Mancha\n")
    assert text.endswith("Fin\n")
    assert "gutenberg" not in text.lower()
    assert (len(result.train), len(result.val)) == (1_899_635, 211_070)
    assert result.sha256 == load(QUIJOTE).sha256 == pretrained().corpus_sha256


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"<!DOCTYPE html>\n<title>Log in to the network</title>\n" * 40_000, "not Don Quijote"),
        (b"", "not Don Quijote"),
        (RIGHT_BOOK.replace(TITLE.encode(), b"Segunda parte"), "not Don Quijote"),
        (RIGHT_BOOK.replace(FAMOUS_WORDS.encode(), b"In a village"), "not Don Quijote"),
        (book_of(1_000_000), "characters, not about 2110000"),
        (book_of(4_000_000), "characters, not about 2110000"),
        (b"\x1f\x8b\x08\x00" + RIGHT_BOOK, "not UTF-8"),
    ],
    ids=["html", "empty", "another book", "translation", "half", "double", "compressed"],
)
def test_another_text_is_not_taken_for_the_book(tmp_path, body, answer):
    (tmp_path / "book").write_bytes(RIGHT_BOOK)
    check_book(tmp_path / "book")
    (tmp_path / "book").write_bytes(body)
    with pytest.raises(UserError, match=rf"^[^\n]*{answer}[^\n]*$"):
        check_book(tmp_path / "book")


# --- which corpus ---------------------------------------------------------------------------

NOWHERE = ["file:///nobody/pg2000.txt"]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path) -> Path:
    """A data folder that holds the sample corpus only."""
    return write(tmp_path / "data" / "apocrifo.txt", LINE * 30).parent


@pytest.fixture
def address(tmp_path) -> str:
    """An address that has the book: a file, so that no network is needed."""
    (tmp_path / "pg2000.txt").write_bytes(RIGHT_BOOK)
    return (tmp_path / "pg2000.txt").as_uri()


def test_don_quijote_is_fetched_once_from_the_first_address_that_has_it(tmp_path, data, address):
    (tmp_path / "wrong").write_bytes(b"<html></html>")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = find_corpus(data, "quijote", [(tmp_path / "wrong").as_uri(), address])
        (tmp_path / "pg2000.txt").unlink()
        again = find_corpus(data, "quijote", [address])
    assert first.name == again.name == "quijote"
    assert text_of(first) == text_of(again)
    assert text_of(first).startswith(TITLE + "\n\n" + FAMOUS_WORDS)


def others_first(monkeypatch, busy: Callable[[], object]) -> None:
    """From now on, who wants to have a folder is let in after somebody else, who does `busy`."""

    @contextmanager
    def locked(folder: Path, timeout: float = 0.0):
        assert timeout == corpus.WAIT_SECONDS
        monkeypatch.undo()
        busy()
        with files.locked(folder):
            yield

    monkeypatch.setattr(corpus, "locked", locked)


def test_the_book_is_fetched_by_one_and_who_has_waited_finds_it(data, address, monkeypatch):
    download = corpus.download

    def watched(urls: list[str], path: Path, *args) -> Path:
        assert (path.parent / ".holder").is_file()  # while it is locked
        return download(urls, path, *args)

    def fetch() -> None:
        monkeypatch.setattr(corpus, "download", watched)
        first.append(find_corpus(data, "quijote", [address]))
        monkeypatch.setattr(corpus, "download", lambda *args: pytest.fail("it is here"))

    first: list[Corpus] = []
    others_first(monkeypatch, fetch)
    assert text_of(find_corpus(data, "quijote", [address])) == text_of(first[0])


def test_without_the_book_the_sample_corpus_takes_its_place_and_says_so(tmp_path, data, address):
    (tmp_path / "wrong").write_bytes(b"<html></html>")
    with pytest.warns(UserWarning, match="DON QUIJOTE COULD NOT BE FETCHED") as caught:
        found = find_corpus(data, "quijote", [*NOWHERE, (tmp_path / "wrong").as_uri()])
    (message,) = [str(warning.message) for warning in caught]
    for part in ("nobody", "sent is not Don Quijote)", "data/apocrifo.txt", "data/prepare.py"):
        assert part in message
    assert found.name == "apocrifo"
    assert text_of(found) == LINE * 30
    # Nothing there that could be taken for a corpus, or for a part of the book.
    assert {path.name for path in (data / "quijote").iterdir()} <= {".lock"}
    assert find_corpus(data, "quijote", [address]).name == "quijote"  # it is tried again


@pytest.mark.parametrize("name", ["quijote", "novelas"])
def test_a_text_of_that_name_is_prepared_once_without_a_network(data, name):
    write(data / f"{name}.txt", "lo de antes\n")
    assert text_of(find_corpus(data, name, NOWHERE)) == "lo de antes\n"
    write(data / f"{name}.txt", "lo de ahora\n")
    assert text_of(find_corpus(data, name, NOWHERE)) == "lo de antes\n"


def test_another_corpus_is_never_fetched(data):
    with pytest.raises(MissingFile, match=r"no prepared corpus in .*--name novelas"):
        find_corpus(data, "novelas", NOWHERE)
    assert [path.name for path in data.iterdir()] == ["apocrifo.txt"]


def test_without_the_book_and_the_sample_corpus_there_is_an_error(tmp_path):
    said = pytest.warns(UserWarning, match="COULD NOT BE FETCHED")
    with said, pytest.raises(MissingFile, match="apocrifo"):
        find_corpus(tmp_path, "quijote", NOWHERE)


# --- a text of the user's -------------------------------------------------------------------


def opened(data: Path, path: Path) -> str:
    """Open a text of the user's, and return it as it was learned from."""
    result = open_corpus(data, CorpusConfig(corpus=path))
    assert result.name == path.stem
    assert text_of(result) == text_of(load(data / path.stem))
    return text_of(result)


def refused(data: Path, path: Path, name: str = "") -> None:
    """Try in vain to open a text of the user's; nothing in the data folder changes."""

    def everything() -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}

    before = everything()
    with pytest.raises(UserError) as caught:
        open_corpus(data, CorpusConfig(corpus=path))
    assert str(caught.value) == (
        f"--corpus {path} would take the place of another text, data/{name or path.stem}; "
        f"rename it, or prepare it with: python data/prepare.py --input "
        f"{shlex.quote(str(path))} --name NAME"
    )
    assert everything() == before


def test_a_text_of_the_users_is_prepared_once(tmp_path, data, monkeypatch):
    mine = write(tmp_path / "mine.txt", "uno\n")
    assert opened(data, mine) == "uno\n"
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "prepare", lambda *args: pytest.fail("there is no need to"))
        patch.setattr(corpus, "locked", lambda *args: pytest.fail("there is no need to"))
        os.utime(mine)
        assert opened(data, mine) == "uno\n"
    times = mine.stat()
    mine.write_text("dos\n", encoding="utf-8")
    os.utime(mine, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert opened(data, mine) == "dos\n"


@pytest.mark.parametrize("name", ["train.bin", "val.bin"])
def test_a_damaged_text_of_the_users_is_prepared_anew(tmp_path, data, name):
    mine = write(tmp_path / "mine.txt", "uno y dos y tres\n")
    opened(data, mine)
    (data / "mine" / name).write_bytes(b"")
    assert opened(data, mine) == "uno y dos y tres\n"


def test_a_text_that_is_read_in_another_encoding_is_prepared_anew(tmp_path, data):
    mine = tmp_path / "mine.txt"
    mine.write_bytes("ñandú\n".encode())
    for name, text in (("UTF-8", "ñandú\n"), ("latin-1", "Ã±andÃº\n"), ("utf8", "ñandú\n")):
        result = open_corpus(data, CorpusConfig(corpus=mine, encoding=name))
        assert text_of(result) == text
        meta = json.loads((data / "mine" / "meta.json").read_text("utf-8"))
        assert meta.get("encoding") == ("iso8859-1" if name == "latin-1" else None)


def test_who_waited_for_a_text_to_be_prepared_has_it_too(tmp_path, data, monkeypatch):
    mine = write(tmp_path / "mine.txt", "uno\n")

    def prepare_it() -> None:
        prepare_files([mine], data / "mine")
        monkeypatch.setattr(corpus, "prepare", lambda *args: pytest.fail("it was done"))

    others_first(monkeypatch, prepare_it)
    assert opened(data, mine) == "uno\n"


def test_where_another_text_took_the_place_meanwhile_it_keeps_it(tmp_path, data, monkeypatch):
    mine, other = write(tmp_path / "mine.txt", "uno\n"), write(tmp_path / "b" / "mine.txt", "b\n")
    others_first(monkeypatch, lambda: prepare_files([other], data / "mine"))
    with pytest.raises(UserError, match="would take the place of another text, data/mine;"):
        open_corpus(data, CorpusConfig(corpus=mine))
    assert text_of(load(data / "mine")) == "b\n"


def test_a_text_of_the_users_is_the_same_however_it_is_called(tmp_path, data, monkeypatch):
    mine = write(tmp_path / "mine.txt", "uno\n")
    write(data / "mine" / "input.txt", "medio")  # never wholly prepared: nothing to lose
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "mine.txt").symlink_to(mine)
    monkeypatch.chdir(tmp_path)
    for name in (mine, Path("mine.txt"), Path("data/../mine.txt"), Path("links/mine.txt")):
        assert opened(data, name) == "uno\n"


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names there are Unicode")
def test_a_text_with_a_name_that_is_no_text(tmp_path, data):
    mine = write(tmp_path / os.fsdecode(b"m\xf3o.txt"), "uno\n")
    assert opened(data, mine) == opened(data, mine) == "uno\n"


def test_another_text_of_the_same_name_is_refused(tmp_path, data):
    mine = write(tmp_path / "mine.txt", "uno\n")
    for other in (tmp_path / "b" / "mine.txt", tmp_path / "mine.md", data / "mine.txt"):
        opened(data, mine)
        refused(data, write(other, "uno\n"))
        other.unlink()
    assert opened(data, mine) == "uno\n"


@pytest.mark.parametrize("is_prepared", [False, True])
@pytest.mark.parametrize("name", ["quijote", "apocrifo"])
def test_a_text_that_is_called_like_one_of_the_data_folder_is_refused(
    tmp_path, data, name, is_prepared
):
    own = data / f"{name}.txt"
    if is_prepared:
        find_corpus(data, write(own, LINE).stem)
    refused(data, write(tmp_path / f"{name.upper()}.txt", "otro\n"), name)
    if own.is_file():
        refused(data, write(tmp_path / f"{name}.md", "otro\n"))
    if name == "quijote":
        refused(data, write(own, LINE))
    else:
        assert opened(data, write(own, LINE)) == LINE


CAPITALS = [("Misericordia", "misericordia"), ("CORAZO\u0301N", "corazón"), ("straße", "STRASSE")]


@pytest.mark.parametrize(("name", "known"), CAPITALS)
def test_names_that_differ_in_capitals_are_the_same(tmp_path, data, name, known):
    """They are on macOS and Windows, where one folder would be the other's."""
    mine = write(tmp_path / "a" / f"{name}.txt", "uno\n")
    prepare_files([write(tmp_path / "b" / f"{known}.txt", "dos\n")], data / known)
    refused(data, mine, known)
    (data / known / "meta.json").unlink()
    assert opened(data, mine) == "uno\n"


def test_a_text_that_was_prepared_in_small_letters_is_found_there(tmp_path, data):
    mine = write(tmp_path / "Misericordia.txt", "uno\n")
    prepare_files([mine], data / "misericordia")
    for text in ("uno\n", "dos\n"):
        found = open_corpus(data, CorpusConfig(corpus=write(mine, text)))
        assert (found.name, text_of(found)) == ("misericordia", text)
    assert [path.name for path in data.glob("[Mm]is*")] == ["misericordia"]


FORBIDDEN = ["con", "NUL", "Aux", "com1", "LPT9", "prn.2", "con .x", "mine.", "mine ", "..", "a\n "]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files there")
@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_name_that_windows_forbids_is_refused_on_every_system(tmp_path, data, name):
    mine = write(tmp_path / f"{name}.txt", "uno\n")
    if mine.stem != name:
        pytest.skip("this Python sees no suffix there")
    with pytest.raises(UserError, match=r"a folder '.*', which Windows does not allow; rename it"):
        open_corpus(data, CorpusConfig(corpus=mine))
    with pytest.raises(UserError, match=r"--dataset is .*; it must be the name of a folder"):
        find_corpus(data, name)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["data"]


@pytest.mark.parametrize("name", ["cono", "auxilio", "com", "lpt10", ".mine", "a.con", "la Mancha"])
def test_other_names_are_as_good_as_any(tmp_path, data, name):
    assert opened(data, write(tmp_path / f"{name}.txt", "uno\n")) == "uno\n"


@pytest.mark.parametrize(
    "meta",
    [
        *("", "[]", "{}", '{"paths": null}', '{"paths": []}', '{"paths": ["-"]}', "\udcff"),
        *('{"paths": ["MINE", "more.txt"]}', '{"paths": ["more.txt", "MINE"]}'),
    ],
)
def test_a_corpus_that_does_not_say_that_it_is_of_this_text_alone_is_not_replaced(
    tmp_path, data, meta
):
    mine = write(tmp_path / "mine.txt", "uno\n")
    opened(data, mine)
    raw = meta.replace("MINE", mine.as_posix()).encode("utf-8", "surrogateescape")
    (data / "mine" / "meta.json").write_bytes(raw)
    refused(data, mine)
