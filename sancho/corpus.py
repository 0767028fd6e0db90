"""From raw text to arrays of character ids: find, clean, count, encode, split, open."""

import codecs
import hashlib
import http.client
import io
import json
import re
import sys
import unicodedata
import urllib.request
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from sancho.config import CorpusConfig
from sancho.errors import MissingFile, UserError
from sancho.machine.files import atomic_write, existing_file, locked, require_replaceable
from sancho.tokenizer import CharTokenizer

PIECE = 1 << 18  # characters or bytes: small enough for a processor's cache
BOOK = "quijote"
Texts = Iterable[tuple[str, BinaryIO]]  # names and binary files, read once, one by one
MARKER = re.compile(r"\*\*\* (START|END) OF TH(?:E|IS) PROJECT GUTENBERG[^\n]*\n?")
WAIT_SECONDS = 60.0  # for which another process that prepares the same text is waited for
ANSWER_SECONDS = 30.0  # for which a server may be silent
USER_AGENT = "sancho-mini (a small language model that learns Spanish; Python urllib)"


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


@dataclass(frozen=True)
class OnlineText:
    """A text that is fetched if it is missing, and how to know it."""

    addresses: tuple[str, ...]
    """Asked one after the other."""
    beginning: str
    """How the clean text begins."""
    lengths: range
    """How many characters it may have."""
    sha256: str | None = None
    """Of the clean text in UTF-8; None where it may change."""


ONLINE = {
    BOOK: OnlineText(
        addresses=(
            "https://www.gutenberg.org/cache/epub/2000/pg2000.txt",
            "https://gutenberg.pglaf.org/cache/epub/2000/pg2000.txt",
        ),
        beginning="El ingenioso hidalgo",
        lengths=range(2_050_000, 2_200_000),  # misprints are mended now and then
    ),
    "shakespeare": OnlineText(
        addresses=(
            "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        ),
        beginning="First Citizen:\nBefore we proceed any further",
        lengths=range(1_115_390, 1_115_391),
        sha256="434c0554a8c4c53dc17e56a0abb0f30b88f83cbceb0289cb897db68c25e89eba",
    ),
}


class FetchError(UserError):
    """A text could not be had, or was not the right one."""


def open_corpus(data: str | Path, options: CorpusConfig) -> Corpus:
    """Return the corpus that the options ask for, prepared on the way where it has to be.

    A text file FILE.txt is prepared in data/FILE-1a2b3c4d: eight digits of the sha256 of its bytes
    and its encoding, so no other text is ever prepared in that folder.
    """
    if options.corpus is None:
        return open_dataset(data, options.dataset)
    path = existing_file(options.corpus, "the text")
    digest = _digest_of(path, codec_name(options.encoding).encode())
    stem = re.sub(r"[^\w.-]+", "_", path.stem)[:60]
    folder = Path(data) / f"{stem}-{digest[:8]}"
    with suppress(UserError):  # not there yet, or damaged
        return open_prepared(folder)
    with locked(folder, WAIT_SECONDS):
        with suppress(UserError):  # by the process that was waited for
            return open_prepared(folder)
        return prepare_files([path], folder, options.encoding)


def _digest_of(path: Path, before: bytes = b"") -> str:
    """Return the sha256 of some bytes and a file after them."""
    digest = hashlib.sha256(before)
    with open(path, "rb") as file:
        while raw := file.read(PIECE):
            digest.update(raw)
    return digest.hexdigest()


def is_folder_name(name: str) -> bool:
    """Return whether `name` is no path to somewhere else."""
    return Path(name).name == name and name not in ("", "..")


def open_dataset(data: str | Path, name: str) -> Corpus:
    """Return the corpus data/NAME; where it is not prepared, prepare it if its text can be had.

    The text is data/NAME.txt, or one of ONLINE. If Don Quijote can't be fetched, the corpus that
    comes with the project takes its place, with a warning that says so.
    Raises MissingFile where there is no such corpus, UserError where another can't be fetched or
    data/NAME.txt is no longer the text that was prepared.
    """
    if not is_folder_name(name):
        raise UserError(f"--dataset is {name!r}; it must be the name of a folder under data/")
    data = Path(data)
    folder = data / name
    text = data / f"{name}.txt"
    if is_prepared(folder) or not (name in ONLINE or text.is_file()):
        return _open_unless_edited(folder, text)
    try:
        with locked(folder, WAIT_SECONDS):
            if is_prepared(folder):  # by the process that was waited for
                return open_prepared(folder)
            return prepare_dataset(data, name)
    except FetchError as error:
        if name != BOOK:
            raise
        warnings.warn(
            f"DON QUIJOTE COULD NOT BE FETCHED ({error}). Using {data.name}/apocrifo.txt instead, "
            "a tenth as long; get the book later with data/prepare.py",
            stacklevel=2,
        )
        return open_dataset(data, "apocrifo")


def _open_unless_edited(folder: Path, text: Path) -> Corpus:
    corpus = open_prepared(folder)
    meta = _read_meta(folder)
    is_its_text = meta.get("source") == text.name and text.is_file()
    if is_its_text and meta.get("file_sha256") not in (None, _digest_of(text)):
        again = f"data/prepare.py --input {text} --name {folder.name} --overwrite"
        raise UserError(
            f"{text} has changed since {folder} was prepared from it; prepare it anew ({again}), "
            "or move it away to go on with the text as it was"
        )
    return corpus


def prepare_dataset(data: str | Path, name: str) -> Corpus:
    """Prepare data/NAME from data/NAME.txt or from the network, also where it is prepared already.

    Raises FetchError where the text can't be fetched; the folder is then as it was before.
    """
    folder = Path(data) / name
    text = Path(data) / f"{name}.txt"
    if text.is_file():
        return prepare_files([text], folder)
    with locked(folder):
        raw = fetch(name)
        return prepare([(name, io.BytesIO(raw))], folder, ONLINE[name].addresses[0])


def fetch(name: str) -> bytes:
    """Return the bytes of one of ONLINE. Raises FetchError where no address has the right ones."""
    online = ONLINE[name]
    why = ""
    for address in online.addresses:
        request = urllib.request.Request(address, headers={"User-Agent": USER_AGENT})
        host = request.host  # urlopen may put that of a proxy there
        warnings.warn(f"fetching {name} from {host}", stacklevel=2)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                raw = answer.read()
            check_text(online, raw)
            return raw
        except (OSError, http.client.HTTPException, UserError) as error:
            why = f"{host}: {str(error) or 'no answer'}"
    raise FetchError(
        f"{name} could not be fetched ({why}); get {online.addresses[0]} by hand, then "
        f"data/prepare.py --input FILE --name {name}, or train.py --corpus FILE"
    )


def check_text(online: OnlineText, raw: bytes) -> None:
    """Raise UserError unless these bytes are the text."""
    text = "".join(clean_text(read_text(io.BytesIO(raw), "the answer")))
    is_like_it = text.startswith(online.beginning) and len(text) in online.lengths
    if not is_like_it or online.sha256 not in (None, hashlib.sha256(text.encode()).hexdigest()):
        raise UserError(f"another text: {len(text)} characters from {text[:20]!r} on")


def read_text(file: BinaryIO, name: str, encoding: str | None = None) -> Iterator[str]:
    """Yield the text of a file, with or without BOM, in pieces of whole lines that end with LF.

    encoding: None where it can only be UTF-8, as that of a prompt.
    Raises UserError with the place of the first byte that is not of that encoding, and for
    thousands of accents on one letter.
    """
    decoder = codecs.getincrementaldecoder(codec_name(encoding or "UTF-8"))()
    newlines = io.IncrementalNewlineDecoder(decoder, translate=True)
    offset = 0
    is_first = True
    line = [""]
    for raw in chain(iter(lambda: file.read(PIECE), b""), [b""]):
        try:
            begun = len(decoder.getstate()[0])  # bytes of a character whose others are in `raw`
            text = newlines.decode(raw, final=not raw)
        except UnicodeError as error:
            place = str(error)  # UTF-16 without a BOM
            # Of that Python 3.13 makes a UnicodeDecodeError, at a byte that it does not mean.
            if isinstance(error, UnicodeDecodeError) and "BOM" not in place:
                byte = error.object[error.start]
                place = f"byte 0x{byte:02x} at offset {offset - begun + error.start}"
            advice = "save it as UTF-8"
            if encoding:
                advice = "if it comes from an older Windows program, try --encoding windows-1252"
            raise UserError(f"{name} is not {encoding or 'UTF-8'}: {place}; {advice}") from None
        # NFC sorts accents in as many steps as their square: hours for a megabyte of them.
        for first in range(0, len(text) - 999, 1000):
            if all(map(unicodedata.combining, text[first : first + 1000])):
                raise UserError(f"{name} has thousands of accents on one letter; take them out")
        if text and is_first:
            text = text.removeprefix("\ufeff")  # a BOM
            is_first = False
        whole, newline, rest = text.rpartition("\n")
        if newline:
            yield "".join([*line, whole, newline])
            line = []
        line.append(rest)
        offset += len(raw)
    if last := "".join(line):
        yield last


def codec_name(encoding: str) -> str:
    """Return Python's name for an encoding of texts. Raises UserError where it knows none."""
    with suppress(LookupError, ValueError):
        codec = codecs.lookup(encoding).name
        try:
            "\ud800".encode(codec)  # half a character: an encoding of texts has none for it
        except UnicodeEncodeError:
            return codec
    rule = "an encoding that Python knows, as UTF-8, windows-1252 or UTF-16"
    raise UserError(f"--encoding is {encoding!r}; it must be {rule}")


def without_licence(pieces: Iterable[str]) -> Iterator[str]:
    """Leave out what Project Gutenberg puts around a text: all but `*** START …` to `*** END …`.

    A text whose first piece holds no START line passes as it is.
    """
    pieces = iter(pieces)
    first = next(pieces, "")
    if "START" not in MARKER.findall(first):
        yield first
        yield from pieces
        return
    is_inside = False
    for piece in chain([first], pieces):
        text, *marked = MARKER.split(piece)  # text, START or END, text, …
        if is_inside:
            yield text
        for marker, text in zip(marked[::2], marked[1::2], strict=True):
            is_inside = marker == "START"
            if is_inside:
                yield text


def clean_text(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the clean text of one raw text, in pieces: no licence, NFC, no blanks at ends of lines.

    pieces: of whole lines. The clean text has no blank lines around it and ends with one newline.
    """
    blank_lines = 0  # they stay only if another word comes after them
    has_begun = False
    for piece in without_licence(pieces):
        if " \n" in piece or "\t" in piece:
            piece = "\n".join([line.rstrip(" \t") for line in piece.split("\n")])
        text = unicodedata.normalize("NFC", piece)
        if body := text.rstrip(" \t\n"):
            yield "\n" * blank_lines + body if has_begun else body.lstrip("\n")
            blank_lines = 0
            has_begun = True
        blank_lines += text.count("\n", len(body))
    if has_begun:
        yield "\n"


def prepare(
    files: Texts, folder: str | Path, source: str, encoding: str = "UTF-8", file_sha256: str = ""
) -> Corpus:
    """Write input.txt, train.bin, val.bin and meta.json into `folder` and return the corpus.

    source: where the text is from, in words. file_sha256: of the bytes of its one file. meta.json
    is removed before and written after the others are replaced: a folder without it does not count
    as prepared.
    Raises UserError where a file is not of that encoding, there is no text at all, or another
    program has the old files open on Windows; the folder is then as it was before.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        atomic_write(folder / "input.txt") as out,
        atomic_write(folder / "train.bin") as train,
        atomic_write(folder / "val.bin") as val,
    ):
        counts, digest = _write_clean(files, encoding, out)
        total = int(counts.sum())
        codes = np.flatnonzero(counts)
        if not total:
            raise UserError(f"{source} holds no text; give a file with something to read")
        if len(codes) > 65536:
            raise UserError(f"{source} has {len(codes)} different characters; at most 65536 work")
        tokenizer = CharTokenizer("".join(map(chr, codes)))
        n_train = total - total // 10
        room = n_train
        out.flush()
        with open(out.name, encoding="utf-8", newline="") as text:
            while piece := text.read(PIECE):
                ids = tokenizer.look_up(piece).astype(tokenizer.id_type)
                train.write(ids[:room].tobytes())
                val.write(ids[room:].tobytes())
                room = max(0, room - len(ids))
        train.flush()
        val.flush()
        for name in ("input.txt", "train.bin", "val.bin"):
            require_replaceable(folder / name)
        (folder / "meta.json").unlink(missing_ok=True)
    meta = {
        "characters": tokenizer.characters,
        "counts": counts[codes].tolist(),
        "n_train": n_train,
        "n_val": total - n_train,
        "sha256": digest,
        "source": source,
        "file_sha256": file_sha256,
    }
    with atomic_write(folder / "meta.json") as out:
        # Names of files may be no text.
        out.write(json.dumps(meta, ensure_ascii=False, indent=1).encode(errors="backslashreplace"))
    return open_prepared(folder)


def prepare_files(
    inputs: Iterable[str | Path], folder: str | Path, encoding: str = "UTF-8"
) -> Corpus:
    """Prepare text files, read one after the other, as one corpus; "-" is standard input.

    Raises MissingFile or UserError where a path is no readable file, and as `prepare` does.
    """
    codec_name(encoding)  # before anything is made
    files = [None if path == "-" else existing_file(path, "the text") for path in inputs]
    source = ", ".join(file.name if file else "standard input" for file in files)
    digest = _digest_of(files[0]) if len(files) == 1 and files[0] else ""
    with locked(folder):
        return prepare(_opened(files), folder, source, encoding, digest)


def _opened(files: Iterable[Path | None]) -> Texts:
    for path in files:
        if path is None:
            yield "standard input", sys.stdin.buffer
        else:
            with open(path, "rb") as file:
                yield str(path), file


def _write_clean(files: Texts, encoding: str, out: BinaryIO) -> tuple[np.ndarray, str]:
    counts = np.zeros(0x110000, dtype=np.int64)
    digest = hashlib.sha256()
    for name, file in files:
        for piece in clean_text(read_text(file, name, encoding)):
            raw = piece.encode()
            out.write(raw)
            digest.update(raw)
            found = np.bincount(np.frombuffer(piece.encode("utf-32-le"), dtype="<u4"))
            counts[: len(found)] += found
    return counts, digest.hexdigest()


def is_prepared(folder: str | Path) -> bool:
    """Return whether a folder holds a corpus."""
    return Path(folder, "meta.json").is_file()


def open_prepared(folder: str | Path) -> Corpus:
    """Open a prepared folder; the ids stay on disk and are read as they are used.

    Raises MissingFile where it was not prepared, UserError where its files do not agree.
    """
    folder = Path(folder)
    if not is_prepared(folder):
        advice = "prepare a text with data/prepare.py --input"
        raise MissingFile(f"there is no prepared corpus in {folder}; {advice}")
    try:
        meta = _read_meta(folder)
        tokenizer = CharTokenizer(meta["characters"])
        train = _map(folder / "train.bin", tokenizer.id_type, meta["n_train"])
        val = _map(folder / "val.bin", tokenizer.id_type, meta["n_val"])
        return Corpus(folder.name, tokenizer, train, val, str(meta["sha256"]))
    except (ValueError, KeyError, TypeError, OSError) as error:
        advice = "prepare it anew with data/prepare.py --overwrite"
        raise UserError(f"the corpus in {folder} is damaged ({error}); {advice}") from None


def _read_meta(folder: Path) -> dict:
    return json.loads((folder / "meta.json").read_text(encoding="utf-8"))


def _map(path: Path, id_type: np.dtype, length: int) -> np.ndarray:
    size = path.stat().st_size
    if size != length * id_type.itemsize:
        raise ValueError(f"{path.name} has {size} bytes, not {length * id_type.itemsize}")
    # An empty file can't be mapped.
    return np.memmap(path, id_type, "c", shape=(length,)) if length else np.zeros(0, id_type)


def remap_ids(corpus: Corpus, tokenizer: CharTokenizer) -> Corpus:
    """Return the corpus in the ids of another vocabulary, read into memory.

    Raises UserError naming the characters that the other one lacks.
    """
    if tokenizer.characters == corpus.tokenizer.characters:
        return corpus
    if missing := sorted(set(corpus.tokenizer.characters) - set(tokenizer.characters)):
        raise UserError(
            f"the model does not know these characters of {corpus.name}: {missing[:20]}; take them "
            "out of the text, or train the model on it first (train.py --init_from)"
        )
    new_id = tokenizer.look_up(corpus.tokenizer.characters).astype(tokenizer.id_type)
    return replace(corpus, tokenizer=tokenizer, train=new_id[corpus.train], val=new_id[corpus.val])


def require_length(corpus: Corpus, block_size: int) -> None:
    """Raise UserError where the text is too short to cut one window of it."""
    needed = max(20, block_size * 10 // 9 + 1)  # a tenth, rounded down, is validation
    length = len(corpus.train) + len(corpus.val)
    if len(corpus.train) > block_size and len(corpus.val) >= 2:
        return
    takes = f"it takes at least {needed}: give a longer text"
    if block_size > 1:  # evaluate.py asks for 1, and has no such option
        takes = f"--block_size {block_size} takes at least {needed}: give a longer text or a "
        takes += "smaller --block_size"
    raise UserError(f"the corpus {corpus.name} has {length} characters, but {takes}")
