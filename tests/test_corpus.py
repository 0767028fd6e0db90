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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
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
    BOOK_URLS,
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
from sancho.machine.files import locked
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


@pytest.fixture
def standard_input(monkeypatch):
    """Make bytes come from standard input."""

    def give(raw: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))

    return give


def text_of(result: Corpus) -> str:
    return result.tokenizer.decode(np.concatenate([result.train, result.val]))


# --- cleaning -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\xef\xbb\xbfHola\n", "Hola\n"),
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"a\rb\r", "a\nb\n"),
        (b"a\r\r\nb", "a\n\nb\n"),
        (b"a  \nb\t\nc \t \n", "a\nb\nc\n"),
        (b"a \r\nb", "a\nb\n"),
        (b"a\n \t\n\nb", "a\n\n\nb\n"),
        (b"\n \n  a b\n\n", "  a b\n"),
        (b"a  b\tc\n", "a  b\tc\n"),
        (b"a", "a\n"),
        ("que\u0301 n\u0303u".encode(), "qué ñu\n"),
        (b"", ""),
        (b" \r\n\t\n ", ""),
        (b"\xef\xbb\xbf", ""),
    ],
)
@pytest.mark.parametrize("piece_bytes", [None, 1, 2, 3, 7])
def test_cleaning(raw, expected, piece_bytes):
    assert clean(raw, piece_bytes) == expected


@given(
    # Short, so that a fault that doubles something with every piece does not fill the memory.
    text=st.text(alphabet=" ab\n\r\te\u0301\u0327ñé—🐴\ufeff", max_size=16),
    piece_bytes=st.sampled_from([1, 2, 3, 7]),
)
@example(text="a\n\n\n\n\nb", piece_bytes=1)
@example(text="a   \t   \n   b", piece_bytes=1)
@example(text="a\r\n\r\nb", piece_bytes=2)
@example(text="\ufeffae\u0327\u0301 e\u0301", piece_bytes=1)
def test_pieces_of_any_size_give_what_the_whole_text_gives(text, piece_bytes):
    once = clean(text.encode(), piece_bytes)
    assert once == simply_cleaned(text)
    if not once.startswith("\ufeff"):
        assert clean(once.encode(), piece_bytes) == once


class Work:
    """Counts the characters of the strings whose methods are called inside the block."""

    def __init__(self) -> None:
        self.characters = 0

    def __enter__(self) -> "Work":
        sys.setprofile(self._count)
        return self

    def __exit__(self, *exception) -> None:
        sys.setprofile(None)

    def _count(self, frame, event: str, argument) -> None:
        if event == "c_call" and isinstance(getattr(argument, "__self__", None), str):
            self.characters += len(argument.__self__)


LONG = 200_000


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("a" + " " * LONG + "b", "a" + " " * LONG + "b"),
        ("a" + "\n" * LONG + "b", "a" + "\n" * LONG + "b"),
        ("a" + " \n" * (LONG // 2) + "b", "a" + "\n" * (LONG // 2) + "b"),
    ],
    ids=["one line of blanks", "ends of lines", "lines of blanks"],
)
def test_what_waits_for_a_word_is_not_looked_at_with_each_piece(monkeypatch, raw, expected):
    """In a thousand pieces that would be a thousand times as much work."""
    monkeypatch.setattr(corpus, "PIECE_BYTES", LONG // 1000)
    pieces = corpus.clean_text(corpus.read_text(io.BytesIO(raw.encode()), "text"))
    with Work() as work:
        text = "".join(pieces)
    assert text == expected + "\n"
    assert LONG < work.characters < 20 * LONG


@pytest.mark.parametrize("unit", ["abcdefgh", "漢字"])
def test_a_long_line_without_a_blank(unit):
    text = unit * (1_000_000 // len(unit))
    assert clean(text.encode()) == text + "\n"


@pytest.mark.parametrize("accents", ["\u0301", "\u0301\u0327"])
@pytest.mark.parametrize("before", ["", "x" * 300_000])
def test_a_pile_of_accents_is_refused_and_never_brought_in_order(monkeypatch, before, accents):
    """That would take hours."""
    normalize = unicodedata.normalize

    def careful(form: str, text: str) -> str:
        assert sum(map(unicodedata.combining, text)) == 0
        return normalize(form, text)

    monkeypatch.setattr(unicodedata, "normalize", careful)
    with pytest.raises(UserError, match="text has thousands of accents on one letter"):
        clean((before + "e" + accents * 1_000_000).encode())


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
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_header_and_licence_are_cut_off(article, newline):
    raw = gutenberg("\n\nEl licenciado\n\nVidriera\n\n", article).replace("\n", newline).encode()
    assert clean(raw) == "El licenciado\n\nVidriera\n"
    assert clean(b"\xef\xbb\xbf" + raw) == "El licenciado\n\nVidriera\n"


@pytest.mark.parametrize("piece_bytes", [200, 201, 333, 1000, 4096])
@pytest.mark.parametrize("names", [["uno"], ["uno", "dos", "tres"]])
def test_the_licence_is_found_in_whichever_piece_it_stands(names, piece_bytes):
    bodies = ["\n".join(f"{name} {n}  de la novela" for n in range(100)) for name in names]
    text = "".join(map(gutenberg, bodies, ["THE", "THIS", "THE"])) + "x\n" * 500
    assert clean(text.encode(), piece_bytes).split() == "\n".join(bodies).split()


def test_a_book_without_an_end_line_goes_to_the_end_of_the_file():
    text = gutenberg("uno\ndos").partition("\n*** END")[0]
    assert clean(text.encode()) == "uno\ndos\n"


def test_a_text_without_a_start_line_stays_whole():
    text = "uno\n*** END OF THE PROJECT GUTENBERG EBOOK ***\ndos\n*** START OF SOMETHING ***\n"
    assert clean(text.encode()) == text


# --- bytes that are not UTF-8 ---------------------------------------------------------------


@pytest.mark.parametrize("piece_bytes", [None, 1, 2, 3, 7, 64])
@pytest.mark.parametrize(
    ("raw", "byte", "offset"),
    [
        (b"a\xff", "0xff", 1),
        ("coraz\u00f3n".encode("latin-1"), "0xf3", 5),
        ("ñ".encode() * 50 + b"\xe9 a", "0xe9", 100),
        (b"a\r\n" * 40 + b"\x80b", "0x80", 120),
        ("\ufeffñ".encode() + b"\xc3(", "0xc3", 5),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "0x89", 0),
        (b"\x1f\x8b\x08\0\0", "0x8b", 1),
        ("En un lugar".encode("utf-16"), "0xff", 0),
        ("\ufeffEn un".encode("utf-16-be"), "0xfe", 0),
        ("a\ud800b".encode("utf-8", "surrogatepass"), "0xed", 1),
        # A last character of which the end is missing.
        ("ñ".encode() * 40 + "ñ".encode()[:1], "0xc3", 80),
        (b"abc" + "🐴".encode()[:3], "0xf0", 3),
    ],
)
def test_the_first_byte_that_is_not_utf8_is_named_with_its_offset(raw, byte, offset, piece_bytes):
    with pytest.raises(UserError, match=rf"text is not UTF-8: byte {byte} at offset {offset};"):
        clean(raw, piece_bytes)


SPANISH = "«¿Señor, qué gigantes?», dijo Sancho Panza… —Aquéllos\r\nque allí ves.\r\n"
# Each stands for the encodings that a text of an old computer may be in.
ENCODINGS = ["windows-1252", "mac-roman", "cp850", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]


def encoded(name: str) -> bytes:
    """SPANISH as old computers wrote it; that of DOS had no dashes and ellipses."""
    return SPANISH.replace("…", "").replace("—", "").encode(name)


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_likely_encoding_is_named_and_reads_the_text(name):
    raw = encoded(name)
    with pytest.raises(UserError) as caught:
        "".join(corpus.read_text(io.BytesIO(raw), "text", "UTF-8"))
    assert str(caught.value).partition("; ")[2] == (
        f"it looks like {name}; save it as UTF-8, or read it with --encoding {name} "
        "(data/prepare.py, train.py --corpus)"
    )
    for piece_bytes in (None, 1, 2, 3, 7):
        assert clean(raw, piece_bytes, name) == clean(encoded("utf-8"))


@pytest.mark.parametrize("name", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le"])
def test_a_byte_order_mark_of_any_encoding_is_dropped(name):
    for piece_bytes in (None, 1, 2, 3, 7):
        assert clean(("\ufeff" + SPANISH).encode(name), piece_bytes, name) == clean(
            SPANISH.encode()
        )


@pytest.mark.parametrize(
    "raw",
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 9,
        "Где ты".encode("koi8-r"),
        "ñandú".encode() + b"\xf1",  # UTF-8 that was damaged
        "señor".encode("latin-1") + b"\x81",  # which windows-1252 lacks
        b"\xff",
    ],
)
def test_where_nothing_speaks_for_an_encoding_none_is_named(raw):
    answer = r"offset \d+; save it as UTF-8, or read it with --encoding NAME \("
    with pytest.raises(UserError, match=answer):
        "".join(corpus.read_text(io.BytesIO(raw), "text", "UTF-8"))


def test_a_prompt_is_utf8_whatever_it_looks_like():
    answer = "offset 2; it looks like windows-1252; save it as UTF-8 and try again$"
    with pytest.raises(UserError, match=answer):
        clean("Señor".encode("windows-1252"))


@pytest.mark.parametrize("piece_bytes", [None, 1, 2, 3, 7, 64])
@pytest.mark.parametrize(
    ("raw", "name", "problem"),
    [
        (b"abc" * 40 + b"\x81", "windows-1252", "byte 0x81 at offset 120"),
        ("ñ".encode(), "ascii", "byte 0xc3 at offset 0"),
        ("\ufeffab".encode("utf-16-le") + b"\0\xdcb\0", "utf-16", "byte 0x00 at offset 6"),
        ("abc".encode("utf-16-be")[:5], "utf-16-be", "byte 0x00 at offset 4"),
        ("ñandú".encode("utf-16-le"), "utf-16", ".*BOM"),
    ],
)
def test_a_text_that_is_not_of_the_encoding_that_was_named(raw, name, problem, piece_bytes):
    with pytest.raises(UserError, match=rf"^text is not {name}: {problem}; .*--encoding NAME \("):
        clean(raw, piece_bytes, name)


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


def test_the_same_text_in_another_encoding_is_the_same_corpus(tmp_path):
    found = {}
    for name in ("utf-8", "UTF8", "Windows-1252", "utf-16"):
        (tmp_path / name).write_bytes(encoded(name))
        found[name] = prepare_files([tmp_path / name], tmp_path / "corpus", name).sha256
        meta = json.loads((tmp_path / "corpus" / "meta.json").read_text("utf-8"))
        expected = {"Windows-1252": "cp1252", "utf-16": "utf-16"}.get(name)
        assert meta.get("encoding") == expected
    assert len(set(found.values())) == 1


def test_an_encoding_without_a_text_to_read_is_refused():
    with pytest.raises(UserError, match="--encoding windows-1252 needs --corpus"):
        CorpusConfig(dataset="mine", encoding="windows-1252")


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


@pytest.mark.parametrize(("size", "width"), [(256, 1), (257, 2), (65536, 2)])
def test_ids_take_one_byte_or_two(prepared, tmp_path, size, width):
    # Ideographs, which have no accents that could be joined.
    characters = "".join(map(chr, (*range(0x20000, 0x2A000), *range(0x30000, 0x36000))))
    text = characters[: size - 1] + "\n"
    result = prepared(text)
    assert result.tokenizer.vocab_size == size
    assert result.train.dtype == result.val.dtype == np.dtype(f"<u{width}")
    n_bytes = sum((tmp_path / "corpus" / name).stat().st_size for name in ("train.bin", "val.bin"))
    assert n_bytes == size * width
    assert text_of(result) == text
    if size == 65536:
        with pytest.raises(UserError, match="a source has 65537 different characters; at most"):
            prepared(characters)


@pytest.mark.parametrize("text", ["\0" * 30, "a\0b\n" * 9, "\x1b[2J\x07\n" * 9, "\uffff\U0010ffff"])
def test_characters_that_cannot_be_seen_are_characters(prepared, text):
    result = prepared(text)
    assert text_of(result) == text.rstrip("\n") + "\n"


@pytest.mark.parametrize("raw", [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf\n", b"abc\xff"])
def test_a_refused_text_leaves_the_corpus_that_was_there(prepared, tmp_path, raw):
    text = "En un lugar de la Mancha\n"
    before = prepared(text)
    with pytest.raises(UserError, match=r"a source holds no text|text is not UTF-8"):
        prepared(raw)
    after = load(tmp_path / "corpus")
    assert text_of(after) == (tmp_path / "corpus" / "input.txt").read_text("utf-8") == text
    assert after.sha256 == before.sha256


@pytest.mark.parametrize("raw", ["\n\ufeffuno dos", "\ufeff\ufeffuno dos", "uno\n\ufeffdos"])
def test_a_byte_order_mark_in_an_odd_place_does_no_harm(prepared, raw):
    result = prepared(raw)
    assert text_of(result).replace("\ufeff", "").split() == ["uno", "dos"]


# --- files ----------------------------------------------------------------------------------


def test_several_files_are_one_text_in_the_order_given(tmp_path, standard_input):
    (tmp_path / "uno.txt").write_bytes("\ufeffuno\r\n\r\n".encode())
    (tmp_path / "dos.txt").write_bytes(gutenberg("dos").encode())
    standard_input("\ufefftres".encode())
    paths = [str(tmp_path / "uno.txt"), tmp_path / "dos.txt"]
    result = prepare_files([*paths, "-"], tmp_path / "corpus")
    assert text_of(result) == "uno\ndos\ntres\n"
    assert (tmp_path / "corpus" / "input.txt").read_text(encoding="utf-8") == "uno\ndos\ntres\n"
    meta = json.loads((tmp_path / "corpus" / "meta.json").read_text(encoding="utf-8"))
    assert meta["source"] == "uno.txt, dos.txt, standard input"
    assert meta["paths"] == [*(str(Path(path).resolve()) for path in paths), "-"]


@pytest.mark.parametrize(("name", "named"), [("-", "standard input"), ("bad.txt", "bad.txt")])
def test_the_file_that_is_not_utf8_is_named_and_nothing_is_left(
    tmp_path, monkeypatch, standard_input, name, named
):
    monkeypatch.chdir(tmp_path)
    standard_input(b"mal\xff")
    Path("good.txt").write_bytes(b"bien")
    Path("bad.txt").write_bytes(b"mal\xff")
    with pytest.raises(UserError, match=f"^{named} is not UTF-8: byte 0xff at offset 3"):
        prepare_files(["good.txt", name], tmp_path / "corpus")
    assert [path.name for path in (tmp_path / "corpus").glob("[!.]*")] == []


def test_what_is_no_file_is_named_before_anything_is_written(tmp_path):
    (tmp_path / "uno.txt").write_text("uno", encoding="utf-8")
    wrong = [("missing.txt", MissingFile, "missing.txt does not exist")]
    wrong += [(".", UserError, "is a folder; give the path of a file")]
    if sys.platform != "win32":
        (tmp_path / "circle").symlink_to(tmp_path / "circle")
        wrong += [("circle", MissingFile, "circle does not exist")]
        wrong += [(os.devnull, UserError, "is a pipe or a device; give the path of a file")]
    for name, error, answer in wrong:
        with pytest.raises(error, match=answer):
            prepare_files([tmp_path / "uno.txt", tmp_path / name], tmp_path / "corpus")
    assert issubclass(MissingFile, FileNotFoundError)
    assert not (tmp_path / "corpus").exists()


# --- loading --------------------------------------------------------------------------------


def test_loaded_ids_stay_on_the_disk_and_writing_to_them_does_not_reach_it(prepared, tmp_path):
    text = "En un lugar de la Mancha\n" * 10
    prepared(text)
    result = load(tmp_path / "corpus")
    assert text_of(result) == text
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


class Replacements:
    """Lets the moves of files go well until one that fails, as where the file is open."""

    def __init__(self, patch: pytest.MonkeyPatch, failing: int, error: BaseException) -> None:
        self.count, replace = 0, Path.replace

        def counted(path: Path, target: Path) -> Path:
            if path.suffix == ".tmp" or path.parent.name == ".old":
                return replace(path, target)
            self.count += 1
            if self.count == failing:
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
        Replacements(patch, failing, error)
        with pytest.raises(UserError, match=r"train\.bin can't be replaced \(Perm.*; end the run"):
            prepared("Dulcinea\n" * 9)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert text_of(load(folder)) == text
    assert text_of(prepared("Dulcinea\n")) == "Dulcinea\n"


@pytest.mark.parametrize("failing", range(1, 9))
def test_a_crash_while_the_files_are_replaced_leaves_no_mixture(prepared, tmp_path, failing):
    prepared("En un lugar de la Mancha\n")
    with pytest.MonkeyPatch.context() as patch:
        Replacements(patch, failing, KeyboardInterrupt())
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


def test_a_folder_that_was_not_prepared_is_missing(tmp_path):
    with pytest.raises(MissingFile, match=r"no prepared corpus in .*--name novelas"):
        load(tmp_path / "novelas")
    (tmp_path / "novelas").mkdir()
    with pytest.raises(MissingFile, match=r"no prepared corpus in .*--name novelas"):
        load(tmp_path / "novelas")


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
        *((text, "a") for text in ("bxy x\u0303 b\u0301", "q\u0301 x\u0327", "oq\u0301 q")),
    ],
    ids=["new ids", "wider ids", *["a loose accent"] * 3],
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


def test_a_corpus_without_validation_is_too_short():
    whole = of_length(100)
    with pytest.raises(UserError, match="breve has 90 characters"):
        require_length(dataclasses.replace(whole, val=whole.val[:0]), 8)


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


def test_the_book_has_two_addresses():
    """The second is the second try."""
    first, second = BOOK_URLS
    assert first != second
    assert all(url.startswith("https://") and url.endswith("pg2000.txt") for url in BOOK_URLS)


# --- which corpus ---------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path) -> Path:
    """A data folder that holds the sample corpus only."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "apocrifo.txt").write_text(LINE * 30, encoding="utf-8")
    return folder


@pytest.fixture
def address(tmp_path) -> str:
    """An address that has the book: a file, so that no network is needed."""
    (tmp_path / "pg2000.txt").write_bytes(RIGHT_BOOK)
    return (tmp_path / "pg2000.txt").as_uri()


@pytest.fixture
def no_address(tmp_path) -> str:
    return (tmp_path / "nobody" / "pg2000.txt").as_uri()


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


def test_nobody_else_is_at_the_folder_while_the_book_is_fetched(data, address, monkeypatch):
    """A lock of this process is another one's in another thread."""
    download, kept_out = corpus.download, []

    def crowded(*args) -> Path:
        with ThreadPoolExecutor() as others:
            other = others.submit(prepare_files, [data / "apocrifo.txt"], data / "quijote")
            kept_out.append(str(other.exception()))
        return download(*args)

    monkeypatch.setattr(corpus, "download", crowded)
    assert find_corpus(data, "quijote", [address]).name == "quijote"
    (message,) = kept_out
    assert f"quijote is in use by process {os.getpid()} on " in message


def test_who_comes_while_the_book_is_fetched_waits_and_has_it_too(data, address, monkeypatch):
    download = corpus.download

    def crowded(*args) -> Path:
        monkeypatch.setattr(corpus, "download", lambda *args: pytest.fail("it is here"))
        second.append(others.submit(find_corpus, data, "quijote", [address]))
        assert waiting.wait(30)
        return download(*args)

    waiting, second = Event(), []
    monkeypatch.setattr(corpus, "download", crowded)
    monkeypatch.setattr(warnings, "warn", lambda *args, **_: waiting.set())
    with ThreadPoolExecutor() as others:
        first = find_corpus(data, "quijote", [address])
        assert text_of(second[0].result()) == text_of(first)


def test_without_the_book_the_sample_corpus_takes_its_place_and_says_so(
    tmp_path, data, address, no_address
):
    (tmp_path / "wrong").write_bytes(b"<html></html>")
    with pytest.warns(UserWarning, match="DON QUIJOTE COULD NOT BE FETCHED") as caught:
        found = find_corpus(data, "quijote", [no_address, (tmp_path / "wrong").as_uri()])
    (message,) = [str(warning.message) for warning in caught]
    for part in ("nobody", "sent is not Don Quijote)", "data/apocrifo.txt", "data/prepare.py"):
        assert part in message
    assert found.name == "apocrifo"
    assert text_of(found) == LINE * 30
    # Nothing there that could be taken for a corpus, or for a part of the book.
    assert {path.name for path in (data / "quijote").iterdir()} <= {".lock"}
    assert find_corpus(data, "quijote", [address]).name == "quijote"  # it is tried again


@pytest.fixture
def no_download(monkeypatch) -> None:
    monkeypatch.setattr(corpus, "download", lambda *args: pytest.fail("there is no need to"))


@pytest.mark.usefixtures("no_download")
@pytest.mark.parametrize("name", ["quijote", "novelas"])
def test_a_text_of_that_name_is_prepared_once_without_a_network(data, name):
    (data / f"{name}.txt").write_text("lo de antes\n", encoding="utf-8")
    assert text_of(find_corpus(data, name)) == "lo de antes\n"
    (data / f"{name}.txt").write_text("lo de ahora\n", encoding="utf-8")
    assert text_of(find_corpus(data, name)) == "lo de antes\n"


@pytest.mark.usefixtures("no_download")
def test_another_corpus_is_never_fetched(data):
    with pytest.raises(MissingFile, match=r"no prepared corpus in .*novelas"):
        find_corpus(data, "novelas")
    assert [path.name for path in data.iterdir()] == ["apocrifo.txt"]


def test_without_the_book_and_the_sample_corpus_there_is_an_error(tmp_path, no_address):
    with (
        pytest.warns(UserWarning, match="COULD NOT BE FETCHED"),
        pytest.raises(MissingFile, match="apocrifo"),
    ):
        find_corpus(tmp_path, "quijote", [no_address])


# --- a text of the user's -------------------------------------------------------------------


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


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


def test_without_a_text_of_the_users_the_dataset_is_opened(data):
    assert open_corpus(data, CorpusConfig(dataset="apocrifo")).name == "apocrifo"


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


def open_while(data: Path, file: Path, busy: Callable[[], object]) -> Corpus:
    """Open a text while somebody else has its folder, who does `busy` when we begin to wait."""
    waiting, ready = Event(), Event()

    def other() -> None:
        with locked(data / file.stem):
            ready.set()
            assert waiting.wait(30)
            busy()

    with ThreadPoolExecutor() as others, pytest.MonkeyPatch.context() as patch:
        patch.setattr(warnings, "warn", lambda message, **_: (words.append(message), waiting.set()))
        words: list[str] = []
        done = others.submit(other)
        assert ready.wait(30)
        try:
            return open_corpus(data, CorpusConfig(corpus=file))
        finally:
            waiting.set()
            done.result()
            (message,) = words
            assert f"mine is in use by process {os.getpid()} on " in message
            assert message.endswith("; waiting")


def test_who_comes_while_a_text_is_prepared_waits_and_has_it_too(tmp_path, data, monkeypatch):
    """A lock of this process is another one's in another thread."""
    mine, prepare_in_vain = write(tmp_path / "mine.txt", "uno\n"), corpus.prepare

    def once(*args) -> Corpus:
        monkeypatch.setattr(corpus, "prepare", lambda *args: pytest.fail("it was done"))
        return prepare_in_vain(*args)

    monkeypatch.setattr(corpus, "prepare", once)
    assert text_of(open_while(data, mine, lambda: prepare_files([mine], data / "mine"))) == "uno\n"


def test_where_another_text_took_the_place_meanwhile_it_keeps_it(tmp_path, data):
    mine, other = write(tmp_path / "mine.txt", "uno\n"), write(tmp_path / "b" / "mine.txt", "b\n")
    with pytest.raises(UserError, match="would take the place of another text, data/mine;"):
        open_while(data, mine, lambda: prepare_files([other], data / "mine"))
    assert text_of(load(data / "mine")) == "b\n"


def test_nobody_is_waited_for_in_vain(tmp_path, data, monkeypatch):
    monkeypatch.setattr(corpus, "WAIT_SECONDS", 0.01)
    mine = write(tmp_path / "mine.txt", "uno\n")
    waited = pytest.warns(UserWarning, match="waiting")
    with ThreadPoolExecutor() as others, locked(data / "mine"), waited:
        done = others.submit(open_corpus, data, CorpusConfig(corpus=mine))
        assert "mine is in use by process " in str(done.exception())


def test_a_text_of_the_users_is_prepared_anew_when_it_was_edited(tmp_path, data, monkeypatch):
    mine = write(tmp_path / "mine.txt", "uno\n")
    write(data / "mine" / "input.txt", "medio")  # never wholly prepared: nothing to lose
    assert opened(data, mine) == "uno\n"
    mine.write_text("dos\n", encoding="utf-8")
    assert opened(data, mine) == "dos\n"
    monkeypatch.chdir(tmp_path)  # however it is called
    assert opened(data, Path("mine.txt")) == "dos\n"
    assert opened(data, Path("data") / ".." / "mine.txt") == "dos\n"
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "mine.txt").symlink_to(mine)
    assert opened(data, tmp_path / "links" / "mine.txt") == "dos\n"


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
    for other in (f"{name}.txt", f"{name}.md")[: 2 if own.is_file() else 1]:
        refused(data, write(tmp_path / other, "otro\n"))
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


@pytest.mark.parametrize("name", ["Quijote", "QUIJOTE", "Apocrifo", "DIALOGOS"])
def test_texts_that_come_with_the_project_keep_their_names_in_capitals_too(tmp_path, data, name):
    write(data / "dialogos.txt", "uno\n")
    refused(data, write(tmp_path / f"{name}.txt", "dos\n"), name.lower())


def test_a_text_that_was_prepared_in_small_letters_is_found_there(tmp_path, data):
    mine = write(tmp_path / "Misericordia.txt", "uno\n")
    prepare_files([mine], data / "misericordia")
    assert open_corpus(data, CorpusConfig(corpus=mine)).name == "misericordia"
    mine.write_text("dos\n", encoding="utf-8")
    assert text_of(open_corpus(data, CorpusConfig(corpus=mine))) == "dos\n"
    assert text_of(load(data / "misericordia")) == "dos\n"
    assert not (data / "Misericordia").is_dir() or (data / "misericordia").samefile(
        data / "Misericordia"
    )


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


@pytest.mark.parametrize("others", [["-"], ["mine.txt", "more.txt"], ["more.txt", "mine.txt"]])
def test_a_corpus_of_other_texts_is_not_replaced(tmp_path, data, standard_input, others):
    standard_input(b"uno\n")
    files = [write(tmp_path / name, "uno\n") for name in ("mine.txt", "more.txt")]
    prepare_files([name if name == "-" else tmp_path / name for name in others], data / "mine")
    refused(data, files[0])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"paths": null}', "\udcff"])
def test_a_corpus_that_does_not_say_of_which_texts_it_is_is_not_replaced(tmp_path, data, text):
    mine = write(tmp_path / "mine.txt", "uno\n")
    opened(data, mine)
    raw = text.encode("utf-8", "surrogateescape")
    (data / "mine" / "meta.json").write_bytes(raw)
    refused(data, mine)


def test_a_text_that_is_not_there_is_missing(tmp_path, data):
    with pytest.raises(MissingFile, match=r"mine\.txt does not exist"):
        open_corpus(data, CorpusConfig(corpus=tmp_path / "mine.txt"))
    assert [path.name for path in data.iterdir()] == ["apocrifo.txt"]
