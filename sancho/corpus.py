"""From raw text to arrays of character ids: find, clean, count, encode, split, read back.

Everything is streamed in pieces, so that a gigabyte of text needs no more
memory than a novel.
"""

import codecs
import hashlib
import io
import json
import re
import shlex
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sancho.config import CorpusConfig
from sancho.errors import MissingFile, UserError
from sancho.machine.download import DownloadError, download
from sancho.machine.files import atomic_write, existing_file, locked, replaced_together
from sancho.tokenizer import CharTokenizer

# Small enough for a processor's cache: the same work in pieces of 4 MB takes longer.
PIECE_BYTES = 1 << 18
BOOK = "quijote"
BOOK_URLS = (
    "https://www.gutenberg.org/cache/epub/2000/pg2000.txt",
    "https://gutenberg.pglaf.org/cache/epub/2000/pg2000.txt",
)
Texts = Iterable[tuple[str, BinaryIO]]
"""Names and binary files, read once, one after the other."""
FILES = ("meta.json", "input.txt", "train.bin", "val.bin")
"""Of a prepared folder; without the first it does not count as prepared."""
WAIT_SECONDS = 60.0
"""How long another process that prepares the same text is waited for."""
RESERVED_NAME = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9¹²³]) *(\..*)?|.*[. ]", re.I | re.S)
"""What no file can be called on Windows, besides signs that nobody puts into a name by mistake."""
SPANISH = frozenset("áéíóúüñÁÉÍÓÚÜÑ¿¡«»“”‘’–—…ºª")
DAMAGE = (ValueError, KeyError, TypeError, OSError)
"""What comes of reading a folder that was not prepared, or is damaged."""


@dataclass(frozen=True)
class Corpus:
    """A prepared folder, as training reads it."""

    name: str
    tokenizer: CharTokenizer
    train: np.ndarray
    """Ids of the first nine tenths, (n,), memory-mapped."""
    val: np.ndarray
    """Ids of the last tenth, (n,), memory-mapped."""
    sha256: str
    """Of the clean text in UTF-8."""


# --- which corpus ---------------------------------------------------------------------------


def open_corpus(data: Path, options: CorpusConfig) -> Corpus:
    """Return the corpus that the options ask for, prepared on the way where it has to be.

    A text of the user's goes to data/NAME, NAME being its file's name without suffix; where this
    content of it is there already, nothing is prepared. Raises UserError where another text has
    that place.
    """
    path = options.corpus
    if path is None:
        return find_corpus(data, options.dataset)
    folder = _place_of(data, existing_file(path, "the text"))
    if found := _load_if_of(folder, path, options.encoding):
        return found
    with locked(folder, WAIT_SECONDS):
        _place_of(data, path)  # who was waited for may have taken it for another text
        found = _load_if_of(folder, path, options.encoding)
        return found or prepare_files([path], folder, options.encoding)


def _place_of(data: Path, path: Path) -> Path:
    """Return the folder for a text of the user's. Raises UserError where another text has it."""
    name, known = path.stem, same_names(data, path.stem)
    if others := [place for place in known if place.name == BOOK or not _is_of(place, path)]:
        problem = "would take the place of another text, "
        problem += f"{data.name}/{others[0].name.removesuffix('.txt')}"
    elif not is_folder_name(name):
        problem = f"would make a folder {name!r}, which Windows does not allow"
    else:
        return next((place for place in known if place.is_dir()), data / name)
    raise UserError(
        f"--corpus {path} {problem}; rename it, or prepare it with: "
        f"python data/prepare.py --input {shlex.quote(str(path))} --name NAME"
    )


def same_names(data: Path, name: str) -> list[Path]:
    """Return the texts, and then the prepared folders and the book's, that are called so in `data`.

    Windows and macOS don't see capitals.
    """

    def seen(name: str) -> str:
        return unicodedata.normalize("NFC", name).casefold()

    texts = {path for path in data.glob("*") if path.is_file()}
    folders = {data / BOOK, *(path.parent for path in data.glob("*/meta.json"))}
    found = [path for path in sorted(texts) if seen(path.name) == seen(f"{name}.txt")]
    return found + [path for path in sorted(folders) if seen(path.name) == seen(name)]


def is_folder_name(name: str) -> bool:
    """Return whether a folder can be called so on every system."""
    return Path(name).name == name != "" and not RESERVED_NAME.fullmatch(name)


def _is_of(place: Path, path: Path) -> bool:
    """Return whether a place is this file, or is prepared and says that it is of it alone."""
    with suppress(*DAMAGE):
        (file,) = [place] if place.is_file() else _read_meta(place)["paths"]
        return Path(file).samefile(path)
    return False


def _load_if_of(folder: Path, path: Path, encoding: str) -> Corpus | None:
    """Return the corpus in `folder` if it is of what the file holds now, read the same way."""
    codec = codec_name(encoding)
    with suppress(*DAMAGE):
        meta = _read_meta(folder)
        if codec == meta.get("encoding", "utf-8") and meta["files_sha256"] == [_sha256_of(path)]:
            return load(folder)
    return None


def _read_meta(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "meta.json").read_text(encoding="utf-8"))


def _sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while raw := file.read(PIECE_BYTES):
            digest.update(raw)
    return digest.hexdigest()


def find_corpus(data: Path, name: str, urls: Sequence[str] = BOOK_URLS) -> Corpus:
    """Return the corpus data/NAME; where it is not prepared, prepare it if its text can be had.

    The text is data/NAME.txt, or for Don Quijote comes from `urls`; if none of them answers, the
    corpus that comes with the project takes its place, with a warning that says so.
    Raises MissingFile where there is no such corpus.
    """
    if not is_folder_name(name):
        raise UserError(f"--dataset is {name!r}; it must be the name of a folder under data/")
    folder, text = data / name, data / f"{name}.txt"
    if (folder / "meta.json").is_file() or (name != BOOK and not text.is_file()):
        return load(folder)
    try:
        with locked(folder, WAIT_SECONDS):
            if (folder / "meta.json").is_file():  # who was waited for has done it
                return load(folder)
            if not text.is_file():
                text = download(urls, folder / "pg2000.txt", check_book)
            return prepare_files([text], folder)
    except DownloadError as error:
        warnings.warn(
            f"DON QUIJOTE COULD NOT BE FETCHED ({error}). Using "
            f"{data.name}/apocrifo.txt instead, a tenth as long; get the book later with: "
            "python data/prepare.py",
            stacklevel=2,
        )
        return find_corpus(data, "apocrifo")


def check_book(path: Path) -> None:
    """Raise UserError unless the clean text of the file is the whole of Don Quijote."""
    with open(path, "rb") as file:
        text = "".join(clean_text(read_text(file, path.name)))
    title = "El ingenioso hidalgo don Quijote de la Mancha"
    if not text.startswith(title) or "En un lugar de la Mancha" not in text:
        raise UserError("what it sent is not Don Quijote")
    if not 2_050_000 < len(text) < 2_200_000:
        raise UserError(f"its Don Quijote has {len(text)} characters, not about 2110000")


# --- raw bytes to clean text ----------------------------------------------------------------


def read_text(file: BinaryIO, name: str, encoding: str | None = None) -> Iterator[str]:
    """Yield the text of a file (with or without BOM) in pieces, with LF line endings.

    encoding: None where it can only be UTF-8, as that of a prompt.
    Raises UserError with the offset of the first byte that is not of that encoding, and for
    thousands of accents on one letter.
    """
    codec = codec_name(encoding or "UTF-8")
    decoder = codecs.getincrementaldecoder(codec)()
    decode = io.IncrementalNewlineDecoder(decoder, translate=True).decode
    offset, at_start, is_ascii, raw = 0, True, True, b"not read yet"
    while raw:
        raw = file.read(PIECE_BYTES)
        offset += len(raw)
        try:
            text = decode(raw, final=not raw)
        except UnicodeError as error:
            problem, guess = str(error), None
            if isinstance(error, UnicodeDecodeError):  # all but UTF-16 without a BOM
                known, rest = error.object[: error.start], error.object[error.start :]
                problem = f"byte 0x{rest[0]:02x} at offset {offset - len(rest)}"
                if codec == "utf-8" and is_ascii and known.isascii():  # else it was UTF-8 so far
                    guess = likely_encoding(rest + file.read(PIECE_BYTES), offset - len(rest))
            advice = _advice(guess, may_choose=encoding is not None)
            raise UserError(f"{name} is not {encoding or 'UTF-8'}: {problem}; {advice}") from None
        is_ascii = is_ascii and text.isascii()
        if text and at_start:
            text, at_start = text.removeprefix("\ufeff"), False
        # NFC sorts accents in as many steps as their square: hours for a megabyte of them.
        thousands = (text[i : i + 1000] for i in range(0, len(text) - 999, 1000))
        if any(all(map(unicodedata.combining, thousand)) for thousand in thousands):
            raise UserError(f"{name} has thousands of accents on one letter; take them out")
        if text:
            yield text


def codec_name(encoding: str) -> str:
    """Return Python's name for an encoding of texts. Raises UserError where it knows none."""
    with suppress(LookupError, ValueError):
        codec = codecs.lookup(encoding)
        try:
            "\ud800".encode(codec.name)  # half a character: an encoding of texts has none for it
        except UnicodeEncodeError:
            return codec.name
    raise UserError(
        f"--encoding is {encoding!r}; it must be an encoding that Python knows, as UTF-8, "
        "windows-1252 or UTF-16"
    )


def likely_encoding(raw: bytes, offset: int) -> str | None:
    """Return what a Spanish text may be encoded in, or None where nothing speaks for anything.

    raw: from its first byte that is not UTF-8 on, which stands at `offset` of the text.
    """
    if offset == 0 and raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-32" if raw.startswith(codecs.BOM_UTF32_LE) else "utf-16"
    for name, first in (("utf-16-le", offset + 1), ("utf-16-be", offset)):
        highs = raw[first % 2 :: 2]  # the high bytes of most letters are zero
        if highs.count(0) > len(highs) / 2:
            return name
    for name in ("windows-1252", "cp850", "mac-roman"):
        signs = [sign for sign in raw.decode(name, "replace") if not sign.isascii()]
        if "\ufffd" not in signs and sum(s in SPANISH for s in signs) > 0.9 * len(signs):
            return name
    return None


def _advice(guess: str | None, may_choose: bool) -> str:
    looks = f"it looks like {guess}; " if guess else ""
    if not may_choose:
        return f"{looks}save it as UTF-8 and try again"
    return (
        f"{looks}save it as UTF-8, or read it with --encoding {guess or 'NAME'} "
        "(data/prepare.py, train.py --corpus)"
    )


def whole_lines(pieces: Iterable[str]) -> Iterator[str]:
    """Cut the same text at other places: after a newline, or before a blank in very long lines.

    There neither trailing blanks nor a letter and its accent are cut in two.
    """
    waiting: list[str] = []
    for piece in pieces:
        cut = piece.rfind("\n") + 1 or len(piece[: piece.rfind(" ") + 1].rstrip(" \t"))
        if cut:
            yield "".join([*waiting, piece[:cut]])
            waiting = []
        waiting.append(piece[cut:])
    if rest := "".join(waiting):
        yield rest


def without_licence(pieces: Iterable[str]) -> Iterator[str]:
    """Leave out what Project Gutenberg puts around a text: all but START … END.

    A text whose first piece holds no START line passes as it is.
    """
    awaited = None
    for number, piece in enumerate(pieces):
        if number == 0 and _marker("START", piece):
            awaited = "START"
        while awaited and (marker := _marker(awaited, piece)):
            if awaited == "END":
                yield piece[: marker.start()]
            piece = piece[marker.end() :]
            awaited = "END" if awaited == "START" else "START"
        if awaited != "START":
            yield piece


def _marker(which: str, text: str) -> re.Match[str] | None:
    """Find the line `*** START OF THE PROJECT GUTENBERG …`, or that with END."""
    return re.search(rf"\*\*\* {which} OF (THE|THIS) PROJECT GUTENBERG[^\n]*\n?", text)


def clean_text(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the clean text of one raw text: no licence, NFC, no blanks at the ends of lines.

    It has no blank lines around it and ends with one newline, or is empty.
    """
    blank_lines, begun = 0, False  # blank lines stay only if another word comes after them
    for piece in without_licence(whole_lines(pieces)):
        if " \n" in piece or "\t" in piece:
            piece = "\n".join([line.rstrip(" \t") for line in piece.split("\n")])
        text = unicodedata.normalize("NFC", piece)
        if body := text.rstrip(" \t\n"):
            yield "\n" * blank_lines + body if begun else body.lstrip("\n")
            blank_lines, begun = 0, True
        blank_lines += text.count("\n", len(body))
    if begun:
        yield "\n"


# --- clean text to a folder -----------------------------------------------------------------


def prepare(
    files: Texts, folder: Path, source: str, encoding: str = "UTF-8", **notes: object
) -> Corpus:
    """Write input.txt, train.bin, val.bin and meta.json into `folder` and return the corpus.

    source, notes: where the text is from, in words and as entries of meta.json.
    Raises UserError where a file is not of that encoding or there is no text at all; the folder
    is then as it was before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Once something large was freed, glibc keeps what each piece frees for the next one instead of
    # returning it to the system and asking again (mallopt(3), M_TRIM_THRESHOLD): twice as fast.
    np.zeros(1 << 24, dtype=np.uint8)
    with replaced_together(folder, FILES) as new:
        with atomic_write(new / "input.txt") as out:
            counts, digest = _write_clean(files, encoding, out)
        total, codes = int(counts.sum()), np.flatnonzero(counts)
        if not total:
            raise UserError(f"{source} holds no text; give a file with something to read")
        if len(codes) > 65536:
            raise UserError(f"{source} has {len(codes)} different characters; at most 65536 work")
        tokenizer = CharTokenizer("".join(map(chr, codes)))
        n_train = total - total // 10
        _write_ids(new, tokenizer, n_train)
        meta = {
            "characters": tokenizer.characters,
            "counts": counts[codes].tolist(),
            "n_train": n_train,
            "n_val": total - n_train,
            "sha256": digest,
            "source": source,
            **notes,
        }
        if (codec := codec_name(encoding)) != "utf-8":
            meta["encoding"] = codec
        content = json.dumps(meta, ensure_ascii=False, indent=1)
        with atomic_write(new / "meta.json") as out:
            # Names of files may be no text.
            out.write(content.encode(errors="backslashreplace"))
    return load(folder)


def prepare_files(inputs: Iterable[str | Path], folder: Path, encoding: str = "UTF-8") -> Corpus:
    """Prepare text files, read one after the other, as one corpus; "-" is standard input.

    Raises MissingFile or UserError where a path is no readable file or another process is at the
    folder; see `prepare`.
    """
    codec_name(encoding)  # before anything is made
    files = [None if path == "-" else existing_file(Path(path), "the text") for path in inputs]
    source = ", ".join(file.name if file else "standard input" for file in files)
    with locked(folder):
        paths = [str(file.resolve()) if file else "-" for file in files]
        digests = [_sha256_of(file) if file else "-" for file in files]
        return prepare(_opened(files), folder, source, encoding, paths=paths, files_sha256=digests)


def _opened(files: Iterable[Path | None]) -> Texts:
    for path in files:
        if path is None:
            yield "standard input", sys.stdin.buffer
        else:
            with open(path, "rb") as file:
                yield str(path), file


def _write_clean(files: Texts, encoding: str, out: BinaryIO) -> tuple[np.ndarray, str]:
    """Write the clean text; return how often each code point occurs, and the sha256."""
    counts = np.zeros(0x110000, dtype=np.int64)
    digest = hashlib.sha256()
    for name, file in files:
        for text in clean_text(read_text(file, name, encoding)):
            raw = text.encode()
            out.write(raw)
            digest.update(raw)
            found = np.bincount(np.frombuffer(text.encode("utf-32-le"), dtype="<u4"))
            counts[: len(found)] += found
    return counts, digest.hexdigest()


def _write_ids(folder: Path, tokenizer: CharTokenizer, n_train: int) -> None:
    """Encode input.txt into train.bin (the first n_train ids) and val.bin (the others)."""
    room = n_train
    with (
        open(folder / "input.txt", encoding="utf-8", newline="") as file,
        atomic_write(folder / "train.bin") as train,
        atomic_write(folder / "val.bin") as val,
    ):
        while text := file.read(PIECE_BYTES):
            ids = tokenizer.look_up(text).astype(tokenizer.id_type)
            train.write(ids[:room].tobytes())
            val.write(ids[room:].tobytes())
            room = max(0, room - len(ids))


# --- a folder to arrays ---------------------------------------------------------------------


def load(folder: Path) -> Corpus:
    """Open a prepared folder; the ids stay on disk and are read as they are used.

    Raises MissingFile where it was not prepared, UserError where its files do not agree.
    """
    advice = f"prepare it with: python data/prepare.py --input FILE --name {folder.name}"
    if not (folder / "meta.json").is_file():
        raise MissingFile(f"there is no prepared corpus in {folder}; {advice}")
    try:
        meta = _read_meta(folder)
        tokenizer = CharTokenizer(meta["characters"])
        train = _map(folder / "train.bin", tokenizer.id_type, meta["n_train"])
        val = _map(folder / "val.bin", tokenizer.id_type, meta["n_val"])
        return Corpus(folder.name, tokenizer, train, val, str(meta["sha256"]))
    except DAMAGE as error:
        raise UserError(f"the corpus in {folder} is damaged ({error}); {advice}") from None


def remap_ids(corpus: Corpus, tokenizer: CharTokenizer) -> Corpus:
    """Return the corpus in the ids of another vocabulary, read into memory.

    Raises UserError naming the characters that the other one lacks.
    """
    if tokenizer.characters == corpus.tokenizer.characters:
        return corpus
    if missing := sorted(set(corpus.tokenizer.characters) - set(tokenizer.characters)):
        raise UserError(
            f"the model does not know these characters of {corpus.name}: "
            f"{' '.join(map(repr, missing[:20]))}; take them out of the text, or "
            "train the model on it first: python train.py --init_from CHECKPOINT"
        )
    new_id = tokenizer.look_up(corpus.tokenizer.characters).astype(tokenizer.id_type)
    return replace(corpus, tokenizer=tokenizer, train=new_id[corpus.train], val=new_id[corpus.val])


def require_length(corpus: Corpus, block_size: int) -> None:
    """Raise UserError where the text is too short to cut one window of it."""
    needed = max(20, block_size * 10 // 9 + 1)  # a tenth, rounded down, is validation
    length = len(corpus.train) + len(corpus.val)
    if len(corpus.train) <= block_size or len(corpus.val) < 2:
        raise UserError(
            f"the corpus {corpus.name} has {length} characters, but --block_size {block_size} "
            f"takes at least {needed}: give a longer text or a smaller --block_size"
        )


def _map(path: Path, id_type: np.dtype, length: int) -> np.ndarray:
    size = path.stat().st_size
    if size != length * id_type.itemsize:
        raise ValueError(f"{path.name} has {size} bytes, not {length * id_type.itemsize}")
    # An empty file can't be mapped.
    return np.memmap(path, id_type, "c", shape=(length,)) if length else np.zeros(0, id_type)
