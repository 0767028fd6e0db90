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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from sancho.config import CorpusConfig
from sancho.download import DownloadError, download
from sancho.errors import MissingFile, UserError
from sancho.files import atomic_write, existing_file, locked
from sancho.tokenizer import CharTokenizer

# Small enough for a processor's cache: the same work in pieces of 4 MB takes longer.
PIECE_BYTES = 1 << 18
BOOK = "quijote"
BOOK_URLS = (
    "https://www.gutenberg.org/cache/epub/2000/pg2000.txt",
    "https://gutenberg.pglaf.org/cache/epub/2000/pg2000.txt",
)


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

    A text of the user's goes to data/NAME, NAME being its file's name without suffix. Raises
    UserError where another text has that place.
    """
    path = options.corpus
    if path is None:
        return find_corpus(data, options.dataset)
    folder = data / existing_file(path, "the text").stem
    known = (data / f"{path.stem}.txt").resolve()
    if (
        path.stem == BOOK
        or (known.is_file() and known != path.resolve())
        or ((folder / "meta.json").is_file() and _paths_of(folder) != [_path_text(path)])
    ):
        command = f"python data/prepare.py --input {shlex.quote(str(path))} --name NAME"
        raise UserError(
            f"--corpus {path} would take the place of another text, {data.name}/{path.stem}; "
            f"rename it, or prepare it with: {command}"
        )
    return prepare_files([path], folder)


def _path_text(path: Path) -> str:
    """Return the whole path as a text that can be written to meta.json."""
    return str(path.resolve()).encode(errors="replace").decode()


def _paths_of(folder: Path) -> object:
    """Return where the files of a prepared corpus lay, or None."""
    try:
        return json.loads((folder / "meta.json").read_text(encoding="utf-8"))["paths"]
    except (ValueError, KeyError, TypeError):
        return None


def find_corpus(data: Path, name: str, urls: Sequence[str] = BOOK_URLS) -> Corpus:
    """Return the corpus data/NAME; where it is not prepared, prepare it if its text can be had.

    The text is data/NAME.txt, or for Don Quijote comes from `urls`; if none of them answers, the
    corpus that comes with the project takes its place, with a warning that says so.
    Raises MissingFile where there is no such corpus.
    """
    if name in ("", "..") or Path(name).name != name:
        raise UserError(f"--dataset is {name!r}; it must be the name of a folder under data/")
    folder, text = data / name, data / f"{name}.txt"
    if (folder / "meta.json").is_file():
        return load(folder)
    if text.is_file():
        return prepare_files([text], folder)
    if name != BOOK:
        return load(folder)
    try:
        with locked(folder):
            return prepare_files([download(urls, folder / "pg2000.txt", check_book)], folder)
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


def read_text(file: BinaryIO, name: str) -> Iterator[str]:
    """Yield the text of a UTF-8 file (with or without BOM) in pieces, with LF line endings.

    Raises UserError with the offset of the first byte that is not UTF-8, and for thousands of
    accents on one letter.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    offset, at_start = 0, True
    while True:
        raw = file.read(PIECE_BYTES)
        waiting = len(decoder.getstate()[0])
        try:
            text = decoder.decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            at = offset - waiting + error.start
            raise UserError(
                f"{name} is not UTF-8: byte 0x{error.object[error.start]:02x} at offset {at}; "
                "save it as UTF-8 and try again"
            ) from None
        if text and at_start:
            text, at_start = text.removeprefix("\ufeff"), False
        _check_accents(text, name)
        offset += len(raw)
        if text := newlines.decode(text, final=not raw):
            yield text
        if not raw:
            return


def _check_accents(text: str, name: str) -> None:
    """Raise UserError where thousands of accents stand on one letter.

    To bring them in order, NFC takes as many steps as their square: hours for a megabyte.
    """
    if any(map(unicodedata.combining, text[::1000])):
        for begin in range(0, len(text) - 999, 1000):
            if all(map(unicodedata.combining, text[begin : begin + 1000])):
                raise UserError(f"{name} has thousands of accents on one letter; take them out")


def whole_lines(pieces: Iterable[str]) -> Iterator[str]:
    """Cut the same text at other places: after a newline, or before a blank in very long lines.

    There neither a run of trailing blanks nor a letter and its accent is cut in two.
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
    book, inside = False, True
    for number, piece in enumerate(pieces):
        if number == 0 and _marker(piece, "START"):
            book, inside = True, False
        while book and (marker := _marker(piece, "END" if inside else "START")):
            if inside:
                yield piece[: marker[0]]
            piece, inside = piece[marker[1] :], not inside
        if inside:
            yield piece


def _marker(text: str, which: str) -> tuple[int, int] | None:
    """Return where the line `*** START OF THE PROJECT GUTENBERG …` begins and ends, or None."""
    found = re.search(rf"\*\*\* {which} OF (THE|THIS) PROJECT GUTENBERG[^\n]*\n?", text)
    return found.span() if found else None


def tidy(piece: str) -> str:
    """Return whole lines in NFC and without trailing blanks."""
    if " \n" in piece or "\t" in piece:
        piece = "\n".join([line.rstrip(" \t") for line in piece.split("\n")])
    return unicodedata.normalize("NFC", piece)


def clean_text(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the clean text of one raw text: no licence, tidy lines, no blank lines around it.

    It ends with one newline, or is empty.
    """
    # What follows the last word stays only if another word comes after it.
    blank_lines, blanks, begun = 0, "", False
    for piece in without_licence(whole_lines(pieces)):
        text = tidy(blanks + piece)
        body = text.rstrip(" \t\n")
        if body:
            yield "\n" * blank_lines + body if begun else body.lstrip("\n")
            blank_lines, begun = 0, True
        rest = text[len(body) :]
        blank_lines += rest.count("\n")
        blanks = rest[rest.rfind("\n") + 1 :]
    if begun:
        yield "\n"


# --- clean text to a folder -----------------------------------------------------------------


def prepare(
    files: Iterable[tuple[str, BinaryIO]], folder: Path, source: str, paths: Sequence[str] = ()
) -> Corpus:
    """Write input.txt, train.bin, val.bin and meta.json into `folder` and return the corpus.

    files: (name, binary file) pairs, read once, one after the other.
    source, paths: where the text is from, in words and as paths, for meta.json.
    Raises UserError where a file is not UTF-8 or there is no text at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Once something large was freed, glibc keeps what each piece frees for the next one instead of
    # returning it to the system and asking again (mallopt(3), M_TRIM_THRESHOLD): twice as fast.
    np.zeros(1 << 24, dtype=np.uint8)
    with atomic_write(folder / "input.txt") as out:
        counts, digest = _write_clean(files, out)
        total, codes = int(counts.sum()), np.flatnonzero(counts)
        if not total:
            raise UserError(f"{source} holds no text; give a file with something to read")
        if len(codes) > 65536:
            raise UserError(f"{source} has {len(codes)} different characters; at most 65536 work")
        # From here until it is written anew the folder does not count as prepared.
        (folder / "meta.json").unlink(missing_ok=True)
    tokenizer = CharTokenizer("".join(map(chr, codes)))
    n_train = total - total // 10
    _write_ids(folder, tokenizer, n_train)
    meta = {
        "characters": tokenizer.characters,
        "counts": counts[codes].tolist(),
        "n_train": n_train,
        "n_val": total - n_train,
        "sha256": digest,
        "source": source.encode(errors="replace").decode(),
        "paths": list(paths),
    }
    with atomic_write(folder / "meta.json") as out:
        out.write(json.dumps(meta, ensure_ascii=False, indent=1).encode())
    return load(folder)


def prepare_files(inputs: Iterable[str | Path], folder: Path) -> Corpus:
    """Prepare text files, read one after the other, as one corpus; "-" is standard input.

    Raises MissingFile or UserError where a path is no readable file or another process is at the
    folder; see `prepare`.
    """
    inputs = list(inputs)
    for path in inputs:
        if path != "-":
            existing_file(Path(path), "the text")
    source = ", ".join("standard input" if path == "-" else Path(path).name for path in inputs)
    paths = [path if path == "-" else _path_text(Path(path)) for path in inputs]
    with locked(folder):
        return prepare(_opened(inputs), folder, source, paths)


def _opened(inputs: list[str | Path]) -> Iterator[tuple[str, BinaryIO]]:
    for path in inputs:
        if path == "-":
            yield "standard input", sys.stdin.buffer
        else:
            with open(path, "rb") as file:
                yield str(path), file


def _write_clean(files: Iterable[tuple[str, BinaryIO]], out: BinaryIO) -> tuple[np.ndarray, str]:
    """Write the clean text; return how often each code point occurs, and the sha256."""
    counts = np.zeros(0x110000, dtype=np.int64)
    digest = hashlib.sha256()
    for name, file in files:
        for text in clean_text(read_text(file, name)):
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
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        tokenizer = CharTokenizer(meta["characters"])
        train = _map(folder / "train.bin", tokenizer.id_type, meta["n_train"])
        val = _map(folder / "val.bin", tokenizer.id_type, meta["n_val"])
        return Corpus(folder.name, tokenizer, train, val, str(meta["sha256"]))
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(f"the corpus in {folder} is damaged ({error}); {advice}") from None


def recode(corpus: Corpus, tokenizer: CharTokenizer) -> Corpus:
    """Return the corpus in the ids of another vocabulary, read into memory.

    Raises UserError naming the characters that the other one lacks.
    """
    if tokenizer.characters == corpus.tokenizer.characters:
        return corpus
    if missing := sorted(set(corpus.tokenizer.characters) - set(tokenizer.characters)):
        raise UserError(
            f"the model does not know these characters of {corpus.name}: "
            f"{' '.join(map(repr, missing[:20]))}; take them out of the text or train anew"
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
    if length == 0:
        return np.zeros(0, dtype=id_type)
    return np.memmap(path, dtype=id_type, mode="c", shape=(length,))
