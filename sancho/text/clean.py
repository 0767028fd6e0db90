"""Text from bytes: the kind and encoding of a file, its characters, and the clean text."""

import codecs
import re
import unicodedata
from contextlib import suppress

from sancho.errors import UserError, note

# The first bytes of files that are not plain text.
SIGNATURES = {
    b"PK\x03\x04": "a zip file, as .docx, .odt and .epub are",
    b"PK\x05\x06": "an empty zip file",
    b"%PDF-": "a PDF file",
    b"{\\rtf": "an RTF file",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "a file of an older Word or Excel",
    b"\x1f\x8b": "a gzip file",
    b"BZh91AY&SY": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"7z\xbc\xaf": "a 7z file",
    b"Rar!\x1a": "a rar file",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture",
    b"%!PS": "a PostScript file",
    b"\x7fELF": "a program",
}
WEB_PAGE = re.compile(r"\s*(?:<!--[\s\S]*?-->\s*)?<(?:!doctype html|html|\?xml)\b", re.I)
E_BOOK = "an e-book"
A_WEB_PAGE = "a web page"
NO_TEXT = "open it in its program and save it as plain text"
BYTE_ORDER_MARKS = {  # the longer ones first
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
    codecs.BOM_UTF8: "UTF-8",
    b"\x84\x31\x95\x33": "GB18030",
}
CANDIDATES = ("UTF-8", "windows-1252", "cp850", "mac_roman")
"""Encodings in which texts in Spanish are found, the likelier first."""
SHOWN = 60  # characters of a line that are shown
# Characters that can't be seen in a text, or are seldom intended.
SUSPICIOUS = {
    "NUL": r"\0",
    "control characters": r"[\x01-\x08\x0b-\x1f\x7f]",
    "C1 control characters (windows-1252 read as latin-1?)": r"[\x80-\x9f]",
    "byte order marks (U+FEFF)": r"\ufeff",
    "lost characters (U+FFFD)": r"\ufffd",
    "soft hyphens (U+00AD)": r"\xad",
    "zero-width or direction marks": r"[\u200b-\u200f\u202a-\u202e\u2060-\u206f]",
    "no-break or odd blanks": r"[\xa0\u2000-\u200a\u202f\u205f\u3000]",
    "unseen separators or selectors": r"[\u2028\u2029\u3164\ufe00-\ufe0f\U000e0000-\U000e007f]",
    "private use characters": r"[\ue000-\uf8ff]",
}
# Sequences that are seldom intended: the characters that begin them, and their pattern.
SEQUENCES = {
    "escapes as \\u00f1 or &ntilde;": ("\\&", r"\\u[0-9a-fA-F]{4}|&(?:[a-zA-Z]{2,8}|#\d+);"),
    "pairs as Ã± (UTF-8 in another encoding?)": (
        "ÃÂâ├┬√",
        r"[ÃÂ][\x80-\xbf\u0152-\u02dc\u2013-\u2122]|â€|[├┬][\u2500-\u25ff\xa1-\xbf]|√[°±©≠≥∫]",
    ),
}
# Project Gutenberg's marks; a title may go on in the next two lines. A mark takes the line feed
# before it: in re.MULTILINE, the page's JavaScript would begin a line after U+2028, too.
MARK = re.compile(
    r"(?:^|\n)\*\*\* ?(?:(?P<start>START)|END) OF (?:THE|THIS) PROJECT GUTENBERG"
    r"[^*\n]*(?:\n[^*\n]*){0,2}\*\*\*[^\n]*",
    re.IGNORECASE,
)
# Only the first blank of a row begins a match: from each of a million, the others would be read
# again. The lookbehind stands after this blank, because a search that begins with a plain class of
# characters is faster.
BLANKS = re.compile(r"[ \t](?<![ \t]{2})[ \t]*$", re.MULTILINE)


def read_text(raw: bytes, name: str, encoding: str = "") -> str:
    """Return the text of a file's bytes, without BOM, its lines ended by LF.

    encoding: empty if only UTF-8 is possible, as for a prompt.
    Raises UserError for bytes that are not text, or not in that encoding, and says what they may
    be.
    """
    asked = encoding or "UTF-8"
    codec = codec_name(asked)
    kinds = [what for signature, what in SIGNATURES.items() if raw.startswith(signature)]
    if raw[60:68] == b"BOOKMOBI":
        kinds = [E_BOOK]
    if WEB_PAGE.match(raw[:1000].removeprefix(codecs.BOM_UTF8).decode("latin-1")):
        kinds = [A_WEB_PAGE]
    if kinds:
        raise UserError(f"{name} is {kinds[0]}: {NO_TEXT}")
    if (found := _unicode_of(raw)) and not codec.startswith(codecs.lookup(found).name):
        advice = f"give --encoding {found}, or save it as UTF-8" if encoding else "save it as UTF-8"
        raise UserError(f"{name} is {found}, not {asked}: {advice}")
    try:
        text = raw.decode(codec)
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else 0
        place = f"byte 0x{raw[start]:02x} at offset {start}"
        advice = _advice(raw, start, codec) if encoding else "save it as UTF-8"
        raise UserError(f"{name} is not {asked}: {place}; {advice}") from None
    if found and text.startswith("\ufffe"):  # a byte order mark, read in the other order
        raise UserError(f"{name} is {found}, not {asked}: give --encoding {found}")
    text = text.removeprefix("\ufeff")
    if WEB_PAGE.match(text[:1000]):  # one in UTF-16
        raise UserError(f"{name} is {A_WEB_PAGE}: {NO_TEXT}")
    if not (codec.startswith("utf-8") or b"\0" in raw or raw.isascii()):
        with suppress(UnicodeError):
            raw.decode()
            note(f"{name} is read as {asked}, but its bytes are UTF-8, too")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _unicode_of(raw: bytes) -> str:
    """Return the encoding that a BOM or NULs in the first bytes prove, or ""."""
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if raw.startswith(mark):
            return encoding
    begin = raw[:4096]
    even = begin[::2].count(0)
    odd = begin[1::2].count(0)
    if max(even, odd) > len(begin) // 5 and min(even, odd) < len(begin) // 100 + 1:
        return "UTF-16-LE" if odd > even else "UTF-16-BE"
    return ""


def _advice(raw: bytes, start: int, tried: str) -> str:
    """Return what to do about a byte at `start` that is wrong in the encoding `tried`."""
    text = raw.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    if tried == "utf-8" and 2 * damaged < sum(c > "\x7f" for c in text):
        return f"it is UTF-8 but for {damaged} damaged places: mend them in an editor"
    # How the line would read in two or three other encodings.
    begin = max(raw.rfind(b"\n", 0, start), raw.rfind(b"\r", 0, start), start - SHOWN // 2 - 1) + 1
    found: dict[str, str] = {}
    for encoding in CANDIDATES:
        with suppress(UnicodeError):
            raw.decode(encoding)
            line = raw[begin : begin + SHOWN].decode(encoding, "ignore")
            reading = re.sub(r"[\t\xa0\xad]+", " ", re.split(r"[\r\n]", line)[0]).strip()
            if reading.isprintable() and codec_name(encoding) != tried:
                found.setdefault(reading, f"--encoding {encoding} («{reading}»)")
    if found:
        return f"it may be {', '.join([*found.values()][:3])}, or another"
    return f"it is no plain text: {NO_TEXT}" if b"\0" in raw[:4096] else "save it as UTF-8"


def codec_name(encoding: str) -> str:
    """Return Python's name for a text encoding. Raises UserError if Python does not know it."""
    with suppress(LookupError, ValueError):
        codec = codecs.lookup(encoding).name
        try:
            "\ud800".encode(codec)  # half a character, which no text encoding can encode
        except UnicodeEncodeError:
            return codec
    rule = "an encoding that Python knows, as UTF-8, windows-1252 or UTF-16"
    raise UserError(f"--encoding is {encoding!r}; it must be {rule}")


def without_licence(text: str) -> str:
    """Leave out what Project Gutenberg puts around a text, or around each of several.

    If no mark says where a text begins, it begins at once and ends at the first mark.
    """
    first, *rest = MARK.split(text)  # the `start` of each mark, and what follows the mark
    books = [after for start, after in zip(rest[::2], rest[1::2], strict=True) if start]
    return "".join(books) if books else first


def clean_text(text: str) -> str:
    """Return the clean text of a raw one: no licence, NFC, no blanks at the ends of lines.

    It has no blank lines around it and ends with one newline. A text of invisible characters only
    becomes "".
    """
    text = without_licence(text)
    text = BLANKS.sub("", text)
    text = unicodedata.normalize("NFC", text).strip("\n")
    return f"{text}\n" if any(c.isprintable() and c != " " for c in text) else ""


def what_is_odd(text: str, characters: str) -> str:
    """Return a line that counts the invisible or suspicious characters of a text, or "".

    characters: the distinct ones of the text. What they rule out is not looked for.
    """
    counts = {
        name: sum(map(text.count, re.findall(odd, characters))) for name, odd in SUSPICIOUS.items()
    }
    for name, (begins, sequence) in SEQUENCES.items():
        if any(c in characters for c in begins):
            counts[name] = sum(1 for _ in re.finditer(sequence, text))
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


def beginning(text: str) -> str:
    """Return the first line of a text, shortened to what a terminal shows."""
    line = text.partition("\n")[0]
    shown = line if line.isprintable() else repr(line)[1:-1]
    return f"«{shown[:SHOWN]}{'…' * (len(shown) > SHOWN)}»"
