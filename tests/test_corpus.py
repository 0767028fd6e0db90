"""From raw bytes to clean text, to a folder, to arrays."""

import dataclasses
import hashlib
import io
import json
import os
import sys
import unicodedata
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sancho import corpus
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
    recode,
    require_length,
)
from sancho.download import ANSWER_SECONDS
from sancho.errors import MissingFile, UserError
from sancho.tokenizer import CharTokenizer

BOOK = Path(__file__).parents[2] / "shared" / "data" / "pg2000.txt"
# Enough for a vocabulary of every size: ideographs, which have no accents that could be joined.
IDEOGRAPHS = range(0x20000, 0x2A000), range(0x30000, 0x36001)


def clean(raw: bytes, piece_bytes: int | None = None) -> str:
    with pytest.MonkeyPatch.context() as patch:
        if piece_bytes:
            patch.setattr(corpus, "PIECE_BYTES", piece_bytes)
        return "".join(corpus.clean_text(corpus.read_text(io.BytesIO(raw), "text")))


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
@settings(deadline=None, max_examples=400)
@example(text="a\n\n\n\n\nb", piece_bytes=1)
@example(text="a   \t   \n   b", piece_bytes=1)
@example(text="a\r\n\r\nb", piece_bytes=2)
@example(text="\ufeffae\u0327\u0301 e\u0301", piece_bytes=1)
def test_pieces_of_any_size_give_what_the_whole_text_gives(text, piece_bytes):
    assert clean(text.encode(), piece_bytes) == simply_cleaned(text)


@given(
    st.lists(
        st.sampled_from(["a", "que\u0301", " ", "  ", "\t", "\n", "\r\n", "\r", "ñ", "—", "\n\n"]),
        max_size=200,
    ).map("".join)
)
@settings(deadline=None)
def test_cleaning_a_clean_text_changes_nothing(text):
    once = clean(text.encode())
    assert clean(once.encode()) == once == simply_cleaned(text)


@pytest.mark.parametrize("shift", range(-3, 4))
@pytest.mark.parametrize("seam", ["e\u0301", "é", "\r\n", "  \n", "\n\n\n", "🐴", "e\u0327\u0301"])
def test_nothing_is_cut_in_two_where_real_pieces_meet(seam, shift):
    text = "x" * (corpus.PIECE_BYTES + shift) + seam + "y z" * 100
    begin = corpus.PIECE_BYTES - 10
    assert clean(text.encode())[begin:] == simply_cleaned(text)[begin:]


def test_many_blank_lines_stay_as_many():
    blank_lines = 3 * corpus.PIECE_BYTES
    length = len(clean(b"a\n" + b"\n" * blank_lines + b"b\n"))
    assert length == len("a\nb\n") + blank_lines


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


LONG = 1_000_000


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
def test_the_licence_is_found_in_whichever_piece_it_stands(piece_bytes):
    body = "\n".join(f"renglón {number} de la novela" for number in range(200))
    text = gutenberg(body) + "x\n" * 500
    assert clean(text.encode(), piece_bytes) == body + "\n"


@pytest.mark.parametrize("first", ["THE", "THIS"])
@pytest.mark.parametrize("second", ["THE", "THIS"])
def test_several_books_in_one_file_are_all_kept(first, second):
    text = gutenberg("Rinconete", first) + gutenberg("Cortadillo", second)
    assert clean(text.encode()).split() == ["Rinconete", "Cortadillo"]


@pytest.mark.parametrize("piece_bytes", [250, 1000, 5000])
def test_several_long_books_in_one_file_are_all_kept(piece_bytes):
    bodies = ["\n".join(f"{name} {n}" for n in range(100)) for name in ("uno", "dos", "tres")]
    text = "".join(map(gutenberg, bodies))
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


@pytest.mark.parametrize("shift", [-2, -1, 0, 1, 100])
def test_the_offset_is_right_beyond_the_first_real_piece(shift):
    length = 2 * corpus.PIECE_BYTES + shift
    with pytest.raises(UserError, match=f"0xff at offset {length};"):
        clean(b"x" * length + b"\xff" + b"y" * 100)


def test_a_text_that_is_not_utf8_leaves_no_files(prepared, tmp_path):
    with pytest.raises(UserError, match="offset 3"):
        prepared(b"abc\xff")
    assert list((tmp_path / "corpus").iterdir()) == []


# --- a prepared folder ----------------------------------------------------------------------


def test_the_corpus_is_the_clean_text(prepared, tmp_path):
    result = prepared("\ufeffEn un  \r\nlugar de la Mancha\r\n\r\n")
    folder = tmp_path / "corpus"
    assert text_of(result) == "En un\nlugar de la Mancha\n"
    assert (folder / "input.txt").read_bytes() == b"En un\nlugar de la Mancha\n"
    assert sorted(path.name for path in folder.iterdir()) == [
        "input.txt",
        "meta.json",
        "train.bin",
        "val.bin",
    ]
    assert result.name == "corpus"


@pytest.mark.parametrize("length", [2, 9, 10, 11, 19, 20, 99, 100, 12345])
def test_the_last_tenth_is_for_validation(prepared, length):
    text = ("abcdefghij" * 2000)[: length - 1] + "\n"
    result = prepared(text)
    assert (len(result.train), len(result.val)) == (length - length // 10, length // 10)
    assert text_of(result) == text


def test_the_split_is_right_where_it_falls_in_a_later_piece(prepared, monkeypatch):
    monkeypatch.setattr(corpus, "PIECE_BYTES", 50)
    text = "".join(f"renglón {number}\n" for number in range(1000))
    result = prepared(text)
    assert len(result.val) == len(text) // 10
    assert text_of(result) == text


def test_meta_says_what_the_corpus_is(prepared, tmp_path):
    result = prepared("ñoño 🐴\n")
    meta = json.loads((tmp_path / "corpus" / "meta.json").read_text(encoding="utf-8"))
    assert meta == {
        "characters": "\n oñ🐴",
        "counts": [1, 1, 2, 2, 1],
        "n_train": 7,
        "n_val": 0,
        "sha256": hashlib.sha256("ñoño 🐴\n".encode()).hexdigest(),
        "source": "a source",
        "paths": [],
    }
    assert result.sha256 == meta["sha256"]
    assert result.tokenizer.characters == meta["characters"]


def test_the_sha256_is_that_of_input_txt(prepared, tmp_path):
    result = prepared("\ufeffuno \r\nque\u0301\r\n")
    raw = (tmp_path / "corpus" / "input.txt").read_bytes()
    assert result.sha256 == hashlib.sha256(raw).hexdigest()


def test_preparing_the_clean_text_again_gives_the_same_corpus(prepared, tmp_path):
    first = prepared(gutenberg("uno  \r\n\r\ndos\r\n"), "first")
    second = prepare_files([tmp_path / "first" / "input.txt"], tmp_path / "second")
    assert second.sha256 == first.sha256
    assert text_of(second) == text_of(first) == "uno\n\ndos\n"


@pytest.mark.parametrize("size", [256, 257, 300])
def test_ids_take_two_bytes_past_256_characters(prepared, tmp_path, size):
    text = "".join(map(chr, range(0x20000, 0x20000 + size - 1))) * 3 + "\n"
    result = prepared(text)
    wide = size > 256
    assert result.tokenizer.vocab_size == size
    assert result.train.dtype == result.val.dtype == np.dtype("<u2" if wide else "u1")
    n_bytes = sum((tmp_path / "corpus" / name).stat().st_size for name in ("train.bin", "val.bin"))
    assert n_bytes == len(text) * (2 if wide else 1)
    assert text_of(result) == text


@pytest.mark.slow
def test_every_character_there_is_is_too_many(prepared):
    every = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    lines = "\n".join(every[begin : begin + 100] for begin in range(0, len(every), 100))
    with pytest.raises(UserError, match=r"has 1\d{6} different characters; at most 65536 work"):
        prepared(lines)


@pytest.mark.parametrize("text", ["\0" * 30, "a\0b\n" * 9, "\x1b[2J\x07\n" * 9, "\uffff\U0010ffff"])
def test_characters_that_cannot_be_seen_are_characters(prepared, text):
    result = prepared(text)
    assert text_of(result) == text.rstrip("\n") + "\n"


def test_65536_characters_work_and_one_more_is_refused(prepared, tmp_path):
    characters = [chr(code) for block in IDEOGRAPHS for code in block]
    text = "".join(characters[:65535]) + "\n"
    assert text_of(prepared(text, "most")) == text
    with pytest.raises(UserError, match="a source has 65537 different characters; at most 65536"):
        prepared(characters[65535] + text, "too many")
    assert not (tmp_path / "too many" / "meta.json").exists()


@pytest.mark.parametrize("raw", [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf\n"])
def test_a_text_with_nothing_to_read_is_refused(prepared, raw):
    with pytest.raises(UserError, match="a source holds no text"):
        prepared(raw)


@pytest.mark.parametrize("raw", [b"\n", b"abc\xff", "".join(map(chr, range(0x20000, 0x31000)))])
def test_a_refused_text_leaves_the_corpus_that_was_there(prepared, tmp_path, raw):
    text = "En un lugar de la Mancha\n"
    prepared(text)
    with pytest.raises(UserError):
        prepared(raw)
    result = load(tmp_path / "corpus")
    assert text_of(result) == text
    raw = (tmp_path / "corpus" / "input.txt").read_bytes()
    assert hashlib.sha256(raw).hexdigest() == result.sha256


@pytest.mark.parametrize("raw", ["\n\ufeffuno dos", "\ufeff\ufeffuno dos", "uno\n\ufeffdos"])
def test_a_byte_order_mark_in_an_odd_place_does_no_harm(prepared, raw):
    result = prepared(raw)
    assert text_of(result).replace("\ufeff", "").split() == ["uno", "dos"]


# --- files ----------------------------------------------------------------------------------


def test_several_files_are_one_text_in_the_order_given(tmp_path):
    (tmp_path / "uno.txt").write_bytes("\ufeffuno\r\n\r\n".encode())
    (tmp_path / "dos.txt").write_bytes(gutenberg("dos").encode())
    (tmp_path / "tres.txt").write_bytes("\ufefftres".encode())
    paths = [tmp_path / "uno.txt", str(tmp_path / "dos.txt"), tmp_path / "tres.txt"]
    result = prepare_files(paths, tmp_path / "corpus")
    assert text_of(result) == "uno\ndos\ntres\n"
    assert (tmp_path / "corpus" / "input.txt").read_text(encoding="utf-8") == "uno\ndos\ntres\n"
    meta = json.loads((tmp_path / "corpus" / "meta.json").read_text(encoding="utf-8"))
    assert meta["source"] == "uno.txt, dos.txt, tres.txt"
    assert meta["paths"] == [str(Path(path).resolve()) for path in paths]


def test_a_dash_is_standard_input(tmp_path, standard_input):
    standard_input(b"dos\r\n")
    (tmp_path / "uno.txt").write_text("uno", encoding="utf-8")
    result = prepare_files([tmp_path / "uno.txt", "-"], tmp_path / "corpus")
    assert text_of(result) == "uno\ndos\n"
    meta = json.loads((tmp_path / "corpus" / "meta.json").read_text(encoding="utf-8"))
    assert meta["source"] == "uno.txt, standard input"
    assert meta["paths"] == [str((tmp_path / "uno.txt").resolve()), "-"]


def test_standard_input_that_is_not_utf8_is_named(tmp_path, standard_input):
    standard_input(b"dos\xff")
    with pytest.raises(UserError, match="standard input is not UTF-8: byte 0xff at offset 3"):
        prepare_files(["-"], tmp_path / "corpus")


def test_the_file_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "good.txt").write_text("bien", encoding="utf-8")
    (tmp_path / "bad.txt").write_bytes(b"mal\xff")
    with pytest.raises(UserError, match=r"bad\.txt is not UTF-8: byte 0xff at offset 3"):
        prepare_files([tmp_path / "good.txt", tmp_path / "bad.txt"], tmp_path / "corpus")


def test_a_missing_file_is_named_before_anything_is_written(tmp_path):
    (tmp_path / "uno.txt").write_text("uno", encoding="utf-8")
    with pytest.raises(MissingFile, match=r"missing\.txt does not exist") as caught:
        prepare_files([tmp_path / "uno.txt", tmp_path / "missing.txt"], tmp_path / "corpus")
    assert isinstance(caught.value, FileNotFoundError)
    assert not (tmp_path / "corpus").exists()


def test_a_folder_is_no_text(tmp_path):
    with pytest.raises(UserError, match=f"{tmp_path.name} is a folder"):
        prepare_files([tmp_path], tmp_path / "corpus")


@pytest.mark.skipif(sys.platform == "win32", reason="devices and links of POSIX")
def test_what_only_looks_like_a_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="is a pipe or a device; give the path of a file"):
        prepare_files([os.devnull], tmp_path / "corpus")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(MissingFile, match="circle does not exist"):
        prepare_files([tmp_path / "circle"], tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize("left", [0, 100, 300_001])
def test_a_file_that_shrinks_while_it_is_read_ends_where_it_ends(tmp_path, monkeypatch, left):
    path, pieces = tmp_path / "log.txt", corpus.read_text
    path.write_bytes("ñ".encode() * 1_000_000)

    def shrink(file, name):
        for number, piece in enumerate(pieces(file, name)):
            yield piece
            if number == 0:
                os.truncate(path, left)

    monkeypatch.setattr(corpus, "read_text", shrink)
    if left % 2:
        with pytest.raises(UserError, match=f"not UTF-8: byte 0xc3 at offset {left - 1}"):
            prepare_files([path], tmp_path / "corpus")
        return
    result = prepare_files([path], tmp_path / "corpus")
    assert text_of(result) == "ñ" * (corpus.PIECE_BYTES // 2) + "\n"


# --- loading --------------------------------------------------------------------------------


def test_loading_gives_what_preparing_gave(prepared, tmp_path):
    result = prepared("En un lugar de la Mancha\n")
    again = load(tmp_path / "corpus")
    assert text_of(again) == text_of(result)
    assert (again.name, again.sha256) == (result.name, result.sha256)
    assert again.tokenizer.characters == result.tokenizer.characters


def test_the_ids_stay_on_the_disk(prepared, tmp_path):
    result = prepared("En un lugar de la Mancha\n" * 10)
    for ids, name in ((result.train, "train.bin"), (result.val, "val.bin")):
        assert type(ids) is np.memmap
        assert Path(ids.filename) == tmp_path / "corpus" / name


def test_writing_to_the_ids_does_not_reach_the_disk(prepared, tmp_path):
    result = prepared("En un lugar de la Mancha\n" * 10)
    before = (tmp_path / "corpus" / "train.bin").read_bytes()
    result.train[:] = 0
    result.train.flush()
    assert (tmp_path / "corpus" / "train.bin").read_bytes() == before


@pytest.mark.parametrize("new", ["Dulcinea\n", "En otro lugar\n" * 500])
def test_a_corpus_that_is_open_stays_what_it_is_while_it_is_prepared_anew(prepared, tmp_path, new):
    """A run may be reading it: to cut its file off would kill the run (SIGBUS)."""
    text = "En un lugar de la Mancha\n" * 400
    before = prepared(text)
    assert text_of(prepared(new)) == new
    assert text_of(before) == text
    assert text_of(load(tmp_path / "corpus")) == new


def test_a_corpus_too_short_for_validation_can_still_be_read(prepared, tmp_path):
    prepared("ab\n")
    again = load(tmp_path / "corpus")
    assert (len(again.train), len(again.val)) == (3, 0)


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
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"characters": "ab"}',
        '{"characters": 5, "n_train": 1, "n_val": 1, "sha256": ""}',
        '{"characters": "aa", "n_train": 1, "n_val": 1, "sha256": ""}',
        '{"characters": "ab", "n_train": "9", "n_val": 1, "sha256": ""}',
        '{"characters": "ab", "n_train": null, "n_val": 1, "sha256": ""}',
        "\udcff",
    ],
)
def test_a_broken_meta_json_is_damage(prepared, tmp_path, text):
    prepared("En un lugar de la Mancha\n" * 10)
    raw = text.encode("utf-8", "surrogateescape")
    (tmp_path / "corpus" / "meta.json").write_bytes(raw)
    with pytest.raises(UserError, match=r"is damaged \(.*python data/prepare\.py"):
        load(tmp_path / "corpus")


# --- another vocabulary, and the length -----------------------------------------------------


def test_recode_writes_the_same_text_in_other_ids(prepared):
    ours = prepared("En un lugar de la Mancha\n")
    theirs = CharTokenizer.from_text("¿" + text_of(ours) + "ABC")
    result = recode(ours, theirs)
    assert text_of(result) == text_of(ours)
    assert result.tokenizer is theirs
    assert not np.array_equal(result.train, ours.train)
    assert result.train.dtype == result.val.dtype == np.uint8
    assert (result.name, result.sha256) == (ours.name, ours.sha256)


def test_recode_widens_the_ids_where_the_vocabulary_is_large(prepared):
    ours = prepared("En un lugar de la Mancha\n")
    large = "".join(map(chr, range(0x20000, 0x20000 + 300)))
    result = recode(ours, CharTokenizer("".join(sorted(large + ours.tokenizer.characters))))
    assert text_of(result) == text_of(ours)
    assert result.train.dtype == np.dtype("<u2")


def test_recode_to_the_same_vocabulary_changes_nothing(prepared):
    ours = prepared("En un lugar de la Mancha\n")
    assert recode(ours, CharTokenizer(ours.tokenizer.characters)) is ours


@pytest.mark.parametrize("text", ["bxy x\u0303 b\u0301", "q\u0301 x\u0327", "oq\u0301 q"])
def test_recode_takes_loose_accents_one_by_one(prepared, text):
    ours = prepared(text)
    result = recode(ours, CharTokenizer.from_text(text_of(ours) + "a"))
    assert text_of(result) == text_of(ours)


def test_recode_names_the_characters_that_the_other_vocabulary_lacks(prepared):
    ours = prepared("añb€\n")
    with pytest.raises(UserError, match="characters of corpus: 'ñ' '€'; take them out"):
        recode(ours, CharTokenizer("\nab"))


def of_length(length: int) -> Corpus:
    n_val = length // 10
    ids = np.zeros(length, dtype=np.uint8)
    return Corpus("breve", CharTokenizer("a"), ids[: length - n_val], ids[length - n_val :], "")


def is_long_enough(length: int, block_size: int) -> bool:
    try:
        require_length(of_length(length), block_size)
    except UserError:
        return False
    return True


@pytest.mark.parametrize("block_size", [1, 8, 9, 10, 18, 27, 64, 96, 99, 256, 1000])
def test_the_length_that_is_asked_for_is_the_shortest_that_works(block_size):
    with pytest.raises(UserError) as caught:
        require_length(of_length(5), block_size)
    needed = int(str(caught.value).partition("takes at least ")[2].partition(":")[0])
    assert is_long_enough(needed, block_size)
    assert not is_long_enough(needed - 1, block_size)


def test_a_text_that_is_too_short_is_told_so():
    with pytest.raises(UserError, match="corpus breve has 50 characters, but --block_size 96"):
        require_length(of_length(50), 96)


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


@pytest.mark.skipif(not BOOK.is_file(), reason="the book is not here")
def test_don_quijote_as_project_gutenberg_has_it(tmp_path):
    result = prepare_files([BOOK], tmp_path / "quijote")
    text = text_of(result)
    assert len(text) == 2_110_705
    assert result.tokenizer.vocab_size == len(set(text)) == 92
    assert text.startswith("El ingenioso hidalgo don Quijote de la Mancha\n")
    assert "En un lugar de la Mancha" in text
    assert text.endswith("Fin\n")
    assert "gutenberg" not in text.lower()
    assert (len(result.train), len(result.val)) == (1_899_635, 211_070)
    assert result.train.dtype == np.uint8
    raw = (tmp_path / "quijote" / "input.txt").read_bytes()
    assert raw.decode() == text
    assert hashlib.sha256(raw).hexdigest() == result.sha256


@pytest.mark.skipif(not BOOK.is_file(), reason="the book is not here")
def test_the_real_book_is_the_right_one():
    check_book(BOOK)


def test_a_book_like_it_is_the_right_one(tmp_path):
    (tmp_path / "book").write_bytes(RIGHT_BOOK)
    check_book(tmp_path / "book")


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
    (tmp_path / "book").write_bytes(body)
    with pytest.raises(UserError, match=answer) as caught:
        check_book(tmp_path / "book")
    assert "\n" not in str(caught.value)


def test_the_book_has_two_addresses():
    """The second is the second try."""
    assert len(BOOK_URLS) == len(set(BOOK_URLS)) == 2
    for url in BOOK_URLS:
        assert url.startswith("https://")
        assert url.endswith("pg2000.txt")


def test_without_a_network_it_is_known_within_ten_seconds():
    assert len(BOOK_URLS) * ANSWER_SECONDS < 10


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


def test_don_quijote_is_fetched_once(tmp_path, data, address):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = find_corpus(data, "quijote", [address])
        (tmp_path / "pg2000.txt").unlink()
        again = find_corpus(data, "quijote", [address])
    assert first.name == again.name == "quijote"
    assert text_of(first) == text_of(again)
    assert text_of(first).startswith(TITLE + "\n\n" + FAMOUS_WORDS)


def test_after_the_wrong_text_comes_the_next_address(tmp_path, data, address):
    (tmp_path / "wrong").write_bytes(b"<html></html>")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = find_corpus(data, "quijote", [(tmp_path / "wrong").as_uri(), address])
    assert found.name == "quijote"


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


def test_without_the_book_the_sample_corpus_takes_its_place_and_says_so(data, no_address):
    with pytest.warns(UserWarning, match="DON QUIJOTE COULD NOT BE FETCHED") as caught:
        found = find_corpus(data, "quijote", [no_address])
    message = str(caught[0].message)
    assert "nobody" in message
    assert "data/apocrifo.txt" in message
    assert "python data/prepare.py" in message
    assert found.name == "apocrifo"
    assert text_of(found) == LINE * 30
    # Nothing there that could be taken for a corpus, or for a part of the book.
    assert {path.name for path in (data / "quijote").iterdir()} <= {".lock"}


def test_a_page_that_is_not_the_book_is_not_prepared(tmp_path, data):
    (tmp_path / "wrong").write_bytes(b"<html></html>")
    with pytest.warns(UserWarning, match=r"what it sent is not Don Quijote\)"):
        found = find_corpus(data, "quijote", [(tmp_path / "wrong").as_uri()])
    assert found.name == "apocrifo"
    assert {path.name for path in (data / "quijote").iterdir()} <= {".lock"}


def test_the_book_is_tried_again_after_the_sample_corpus(data, address, no_address):
    with pytest.warns(UserWarning, match="COULD NOT BE FETCHED"):
        find_corpus(data, "quijote", [no_address])
    assert find_corpus(data, "quijote", [address]).name == "quijote"


@pytest.fixture
def no_download(monkeypatch) -> None:
    monkeypatch.setattr(corpus, "download", lambda *args: pytest.fail("there is no need to"))


@pytest.mark.usefixtures("no_download")
def test_a_text_of_that_name_is_prepared_without_a_network(data):
    (data / "quijote.txt").write_text("mi ejemplar\n", encoding="utf-8")
    assert text_of(find_corpus(data, "quijote")) == "mi ejemplar\n"


@pytest.mark.usefixtures("no_download")
def test_a_prepared_corpus_comes_before_a_text_of_that_name(data):
    (data / "novelas.txt").write_text("lo de antes\n", encoding="utf-8")
    find_corpus(data, "novelas")
    (data / "novelas.txt").write_text("lo de ahora\n", encoding="utf-8")
    assert text_of(find_corpus(data, "novelas")) == "lo de antes\n"


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


def refused(data: Path, path: Path) -> None:
    """Try in vain to open a text of the user's; nothing in the data folder changes."""

    def everything() -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}

    before = everything()
    with pytest.raises(UserError) as caught:
        open_corpus(data, CorpusConfig(corpus=path))
    assert str(caught.value) == (
        f"--corpus {path} would take the place of another text, data/{path.stem}; "
        f"rename it, or prepare it with: python data/prepare.py --input {path} --name NAME"
    )
    assert everything() == before


@pytest.mark.usefixtures("no_download")
def test_without_a_text_of_the_users_the_dataset_is_opened(data):
    prepare_files([write(data / "novelas.txt", "Rinconete\n")], data / "novelas")
    result = open_corpus(data, CorpusConfig(dataset="novelas"))
    assert (result.name, text_of(result)) == ("novelas", "Rinconete\n")
    assert open_corpus(data, CorpusConfig(dataset="apocrifo")).name == "apocrifo"


def test_a_text_of_the_users_is_prepared_anew_each_time(tmp_path, data, monkeypatch):
    mine = write(tmp_path / "mine.txt", "uno\n")
    assert opened(data, mine) == "uno\n"
    mine.write_text("dos\n", encoding="utf-8")
    assert opened(data, mine) == "dos\n"
    monkeypatch.chdir(tmp_path)  # however it is called
    assert opened(data, Path("mine.txt")) == "dos\n"
    assert opened(data, Path("data") / ".." / "mine.txt") == "dos\n"


def test_a_link_to_a_text_is_that_text(tmp_path, data):
    mine = write(tmp_path / "mine.txt", "uno\n")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "mine.txt").symlink_to(mine)
    assert opened(data, mine) == opened(data, tmp_path / "links" / "mine.txt") == "uno\n"


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
def test_a_text_that_is_called_like_the_book_is_refused(tmp_path, data, is_prepared):
    if is_prepared:
        write(data / "quijote.txt", "mi ejemplar\n")
        find_corpus(data, "quijote")
        refused(data, data / "quijote.txt")
    refused(data, write(tmp_path / "quijote.txt", "otro\n"))


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_text_that_is_called_like_one_in_the_data_folder_is_refused(tmp_path, data, is_prepared):
    if is_prepared:
        assert opened(data, data / "apocrifo.txt") == LINE * 30
    refused(data, write(tmp_path / "apocrifo.txt", "otro\n"))
    refused(data, write(tmp_path / "apocrifo.md", "otro\n"))
    assert opened(data, data / "apocrifo.txt") == LINE * 30


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


def test_what_was_never_wholly_prepared_has_nothing_to_lose(tmp_path, data):
    mine = write(tmp_path / "mine.txt", "uno\n")
    write(data / "mine" / "input.txt", "medio")
    assert opened(data, mine) == "uno\n"


def test_a_text_that_is_not_there_is_missing(tmp_path, data):
    with pytest.raises(MissingFile, match=r"mine\.txt does not exist"):
        open_corpus(data, CorpusConfig(corpus=tmp_path / "mine.txt"))
    assert [path.name for path in data.iterdir()] == ["apocrifo.txt"]
