"""From bytes to clean text: encodings, what is no text, what cannot be seen, licences."""

import codecs
import gzip
import re
import time

import pytest
from conftest import assert_read_in_no_time
from hypothesis import given
from hypothesis import strategies as st

from sancho.errors import UserError
from sancho.text.clean import (
    WEB_PAGE,
    beginning,
    clean_text,
    codec_name,
    read_text,
    what_is_odd,
)

LINE = "«¿Señor, qué gigantes?», dijo Sancho Panza\n"


def clean(raw: bytes, encoding: str = "UTF-8") -> str:
    return clean_text(read_text(raw, "text", encoding))


def odd_of(text: str) -> str:
    return what_is_odd(text, "".join(sorted(set(text))))


def refused(raw: bytes, encoding: str = "UTF-8") -> str:
    with pytest.raises(UserError) as error:
        read_text(raw, "text", encoding)
    return str(error.value)


CLEANED = [
    ("", ""),
    ("\ufeff \r\n\t\n ", ""),
    ("\u200b\n\u00ad \u200b", ""),
    ("\n \n  a b\tc\n \t\n\nb  c", "  a b\tc\n\n\nb  c\n"),
    ("a   \t   \n   b\n\n\n", "a\n   b\n"),
    ("a\r\n\r\r\nb\rc\r", "a\n\n\nb\nc\n"),
    ("\ufeffae\u0327\u0301 e\u0301", "aȩ\u0301 é\n"),
    ("a\x0b\x85\u2028 \u00a0\nb\ufeff", "a\x0b\x85\u2028 \u00a0\nb\ufeff\n"),
]


@pytest.mark.parametrize(("raw", "expected"), CLEANED)
def test_a_text_is_cleaned(raw, expected):
    assert clean(raw.encode()) == expected


@given(st.text(alphabet=" ab\n\r\te\u0301\u0327ñé—🐴\x0b\x85\u2028", max_size=16))
def test_what_is_clean_stays_as_it_is(text):
    once = clean(text.encode())
    assert clean(once.encode()) == once


@pytest.mark.parametrize("encoding", ["UTF-8", "utf-16", "utf-16-be", "windows-1252", "latin-1"])
def test_a_text_in_any_encoding(encoding):
    assert clean("¿Señor,\r\nqué?".encode(encoding), encoding) == "¿Señor,\nqué?\n"


@pytest.mark.parametrize("tried", ["UTF-8", "windows-1252", "latin-1"])
@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "gb18030", "utf-8-sig"]
)
def test_what_the_first_bytes_say_is_what_is_advised(encoding, tried):
    """Advice that works, whatever was tried; and no other encoding is taken at its word."""
    mark = "\ufeff" if encoding == "gb18030" else ""
    raw = (mark + LINE * 3).encode(encoding)
    if encoding == "utf-8-sig" and tried == "UTF-8":
        assert clean(raw) == LINE * 3
        return
    advice = re.fullmatch(r"text is (\S+), not .*: give --encoding (\S+), .*", refused(raw, tried))
    assert advice[1] == advice[2]
    assert clean(raw, advice[2]) == LINE * 3


def test_utf_16_in_the_other_order_than_asked_for_is_refused():
    for encoding, other in (("utf-16-be", "utf-16-le"), ("utf-16-le", "utf-16-be")):
        raw = ("\ufeff" + LINE).encode(encoding)
        assert refused(raw, other) == f"text is UTF-16, not {other}: give --encoding UTF-16"
        assert clean(raw, "UTF-16") == clean(raw, encoding) == LINE


def test_utf_16_without_a_byte_order_mark_has_its_order_named():
    raw = LINE.encode("utf-16-be")
    assert "give --encoding UTF-16-BE" in refused(raw, "utf-16")
    assert clean(raw, "UTF-16-BE") == LINE


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"PK\x03\x04\x14\0\x06\0", "a zip file, as .docx, .odt and .epub are"),
        (b"%PDF-1.7\n%\xe2\xe3", "a PDF file"),
        (gzip.compress(LINE.encode(), mtime=0), "a gzip file"),
        (rb"{\rtf1\ansi Se\'f1or}", "an RTF file"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "a file of an older Word"),
        (b"\xef\xbb\xbf\r\n<!DOCTYPE html><title>Log in</title>", "a web page"),
        (b"<?xml version='1.0'?><html/>", "a web page"),
        (b"\x89PNG\r\n\x1a\n", "a picture"),
    ],
)
def test_what_is_no_plain_text_is_named(raw, kind):
    for encoding in ("UTF-8", "windows-1252", ""):
        said = refused(raw, encoding)
        assert said.startswith(f"text is {kind}") and said.endswith("save it as plain text")


@pytest.mark.parametrize(
    ("raw", "encoding", "byte", "offset"),
    [
        (b"abc" + "🐴".encode()[:3], "UTF-8", "f0", 3),
        (b"Sancho, Sancho\r\n" * 40_000 + b"\xf1" + b"\r\n" * 5000, "UTF-8", "f1", 640_000),
        (b"\xed\xa0\x80", "UTF-8", "ed", 0),
        (b"a\xf1", "ascii", "f1", 1),
        (b"\xf1\x81", "windows-1252", "81", 1),
        (b"\xff\xfea\0\0\xdcb\0", "utf-16", "00", 4),
        ("ñ🐴".encode("utf-16-be")[:-1], "utf-16-be", "d8", 2),
    ],
)
def test_the_first_byte_that_is_not_of_the_encoding_is_named(raw, encoding, byte, offset):
    assert refused(raw, encoding).startswith(
        f"text is not {encoding}: byte 0x{byte} at offset {offset}; "
    )


@pytest.mark.parametrize("written", ["windows-1252", "cp850", "mac_roman"])
@pytest.mark.parametrize("tried", ["UTF-8", "windows-1252", "cp1252", "ascii"])
def test_a_line_is_shown_in_each_encoding_that_fits_and_none_that_was_tried(written, tried):
    raw = ("Primero\n" * 20 + LINE.replace("«", '"').replace("»", '"')).encode(written)
    try:
        raw.decode(tried)
    except UnicodeDecodeError:
        said = refused(raw, tried)
    else:
        return
    shown = dict(re.findall(r"--encoding (\S+) \(«(.*?)»\)", said))
    assert shown[written].startswith('"¿Señor, qué gigantes?", dijo')
    assert codec_name(tried) not in map(codec_name, shown)
    assert 1 <= len(shown) <= 3


# Half a character can be written in UTF-7.
@pytest.mark.parametrize("name", ["windos-1252", "hex", "rot13", "utf-7", "ñ", "\udcff", "\0"])
def test_an_encoding_that_is_none_of_texts(name):
    words = f"--encoding is {name!r}; it must be an encoding that Python knows, as UTF-8"
    assert refused(b"uno", name).startswith(words)


@pytest.mark.parametrize(
    ("part", "count", "name"),
    [
        ("a\0", 1, "NUL"),
        ("\x0c\x1a\x1b", 3, "control characters"),
        ("\x93Se\x94", 2, "C1 control characters"),
        ("a\ufeff", 1, "byte order marks"),
        ("\ufffd", 1, "lost characters"),
        ("qui\xadjote", 1, "soft hyphens"),
        ("a\u200bb\u200e", 2, "zero-width"),
        ("\ue000", 1, "private use"),
        ("SeÃ±or, quÃ©", 2, "pairs as Ã±"),
        ("Â¿quien?", 1, "pairs as Ã±"),
        ("donâ€™t", 1, "pairs as Ã±"),
        ("se├▒or", 1, "pairs as Ã±"),
        ("┬┐quien?", 1, "pairs as Ã±"),
        ("se√±or", 1, "pairs as Ã±"),
        ("a\xa0b\u3000", 2, "no-break or odd blanks"),
        ("a\u2028\ufe0f", 2, "unseen separators or selectors"),
        (r"Se\u00f1or", 1, r"escapes as \u00f1"),
        ("Se&ntilde;or, Se&#241;or", 2, r"escapes as \u00f1"),
    ],
)
def test_what_cannot_be_seen_is_counted(part, count, name):
    assert odd_of(f"{LINE}{part}{LINE}{part}").startswith(f"{2 * count} {name}")
    assert odd_of(f"{LINE}ÂNIMO NÃO, R&D; y\n") == ""


def test_a_damaged_place_in_utf_8_is_said_and_no_other_encoding():
    raw = (LINE * 9).encode()
    for bad in (raw + b"\xe9 fin\n", raw[:50] + b"\xff" + raw[50:], codecs.BOM_UTF8 + raw[:-8]):
        said = refused(bad + b"\xc3")
        assert re.search(
            r"; it is UTF-8 but for [12] damaged places: mend them in an editor$", said
        )


def test_a_line_with_blanks_of_word_or_ended_as_on_a_mac_is_shown_too():
    for text in ("El\xa0señor\tdijo: «Sí».\n", "Señor\rdon Quijote\rniño\r", "\tel\xad señor\n"):
        said = refused(text.encode("windows-1252"))
        assert "; it may be --encoding windows-1252 («" in said and said.endswith(", or another")


def test_another_encoding_on_what_is_utf_8_is_noted(caplog):
    for tried in ("cp850", "latin-1", "mac_roman"):
        read_text(LINE.encode(), "text", tried)
        said = f"note: text is read as {tried}, but its bytes are UTF-8, too"
        assert caplog.messages == [said]
        caplog.clear()
    read_text(LINE.encode("latin-1"), "text", "latin-1")
    read_text(LINE.encode(), "text", "utf-8-sig")
    assert caplog.messages == []


def test_letters_that_begin_as_a_signature_does_are_text():
    for text in ("PK, dijo Sancho\n", "BZhang\n", "GIFT\n"):
        assert clean(text.encode()) == text


def test_what_only_its_program_reads_is_no_text():
    for raw in (b"\0" * 60 + b"BOOKMOBI", b"\x7fELF\0", b"PK\5\6\0", bytes(range(256)) * 9):
        assert "open it in its program and save it as plain text" in refused(raw)
    assert refused("<html lang='es'>".encode("utf-16"), "utf-16").startswith("text is a web page")


def test_the_first_line_is_shown_so_that_all_of_it_can_be_read():
    assert beginning(LINE) == f"«{LINE[:-1]}»"
    assert beginning("x" * 200) == f"«{'x' * 60}…»"
    assert beginning("s\0a\x1b[2J\n") == r"«s\x00a\x1b[2J»"


BODY = "Capítulo primero\n\nde lo que trata\n\n* * *\n\n***\n\nFin del libro primero\n"
HEADER = "The Project Gutenberg EBook of Novelas\nProduced by somebody\n"
LICENCE = "START: FULL LICENSE\nwarranties and redistribution\n" * 40
OF = "OF THE PROJECT GUTENBERG EBOOK NOVELAS"
FRAMES = [
    (f"*** START {OF} ***", f"*** END {OF} ***"),
    (f"***START {OF}***", f"***END {OF}***"),
    (f"*** START {OF} ***".lower(), f"*** end {OF} ***".lower()),
    (
        "*** START OF THIS PROJECT GUTENBERG EBOOK X ***",
        "*** END OF THIS PROJECT GUTENBERG EBOOK X ***",
    ),
    (f"*** START {OF}\nSIGUE AQUÍ *** ", f"*** END {OF}\nSIGUE AQUÍ *** "),
    (f"*** START {OF}\nSIGUE\nY SIGUE ***", f"*** END {OF}\nSIGUE\nY SIGUE ***"),
]


NO_MARKS = [
    "*** START OF SOMETHING ***",
    f"dos *** START {OF} ***",
    f"dos\u2028*** START {OF} ***",
    f"*** START {OF}",
    f"*** START {OF}\n\n\n***",
    "End of the Project Gutenberg EBook of Novelas",
]


@pytest.mark.parametrize(("start", "end"), FRAMES)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_header_and_licence_are_cut_off(start, end, line_end):
    raw = f"\ufeff{HEADER}{start}\n\n\n{BODY}\n\n{end}\n{LICENCE}".replace("\n", line_end)
    assert clean(raw.encode()) == BODY
    # Without an end, a text goes to the end of the file; without a start, it begins with it.
    assert clean(raw.partition(end.replace("\n", line_end))[0].encode()) == BODY
    assert clean(f"{BODY}\n{end}\n{LICENCE}".encode()) == BODY


def test_several_books_in_one_text_are_kept_and_what_is_no_mark_is_text():
    frames = "".join(f"{HEADER}{a}\n{n}\n{b}\n{LICENCE}" for n, (a, b) in enumerate(FRAMES[:3]))
    assert clean(frames.encode()).split() == ["0", "1", "2"]
    for line in NO_MARKS:
        text = f"uno\n{line}\nfin de la obra\n"
        assert clean(text.encode()) == text
    assert codecs.lookup(codec_name("latin1")).name == "iso8859-1"


def test_a_text_of_another_encoding_is_not_called_damaged_for_two_letters_that_are_utf_8():
    """É» in windows-1252 are the bytes of ɻ in UTF-8."""
    said = refused((LINE * 3 + "«¡SÍ, Y POR QUÉ»\n").encode("windows-1252"))
    assert "; it may be --encoding windows-1252 («" in said and "damaged" not in said


@pytest.mark.parametrize(
    "read",
    [
        clean_text,
        odd_of,
        WEB_PAGE.match,
        lambda text: read_text(text.encode("windows-1252", "replace"), "text", "cp850"),
    ],
)
def test_a_long_run_of_a_character_is_read_in_no_time(read):
    assert_read_in_no_time(read)


def test_a_text_laid_out_with_blanks_is_read_in_no_time():
    """As pdftotext -layout does, which puts 80 of them before a line."""
    begun = time.process_time()
    text = (" " * 80 + "de cuyo nombre no quiero acordarme\n") * 8000
    text += f"En un lugar{' ' * 1_000_000}de la Mancha\n"
    assert clean_text(text) == text
    assert time.process_time() - begun < 2
