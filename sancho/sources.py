"""Finds texts in files, folders, data/ and on the network, and prepares them as a corpus.

    corpus_of(options)   the text of --corpus or --dataset, prepared if it is not yet
    unprepared(path)     the text of --corpus, to be scored; nothing is written
    learned_corpus(name) data/NAME, if it is the text that a checkpoint's model learned from
    find_corpus(name)    data/NAME, prepared from data/NAME.txt or from the network if it is missing
    prepare_files(paths) text files, joined to one corpus in a folder
    prepare_named(name)  data/NAME, prepared again

corpus.py opens a corpus that is prepared already.
"""

import hashlib
import http.client
import os
import re
import sys
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sancho.config import CorpusConfig
from sancho.corpus import Corpus, is_prepared, read_corpus, write_corpus
from sancho.errors import MissingFile, UserError, note, say
from sancho.files import existing_file, locked
from sancho.shell import command
from sancho.text import beginning, clean_text, codec_name, read_text, what_is_odd, without_licence
from sancho.tokenizer import CharTokenizer

DATA = Path(__file__).resolve().parent.parent / "data"
"""The folder of prepared texts."""
BOOK = "quijote"
WAIT_SECONDS = 600.0  # to wait for another process that prepares the same text
ANSWER_SECONDS = 30.0  # to wait for a silent server
USER_AGENT = "sancho-mini (a small language model that learns Spanish; Python urllib)"


@dataclass(frozen=True)
class OnlineText:
    """A text that is downloaded if it is missing, and how to recognise it."""

    addresses: tuple[str, ...]
    """The addresses, which are tried in this order."""
    beginning: str
    """The beginning of the clean text."""
    lengths: range
    """The numbers of characters that it may have."""
    sha256: str | None = None
    """The digest of the clean text in UTF-8; None if the text may change."""


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
    """A text could not be downloaded, or was not the right one."""


def corpus_of(data: str | Path, options: CorpusConfig) -> Corpus:
    """Return the corpus that the options ask for, prepared on the way where it has to be.

    A text file FILE.txt is prepared in data/FILE-1a2b3c4d. The eight digits are those of the sha256
    of its encoding and bytes (of several files, with their lengths), so that no other text is ever
    prepared in that folder.
    """
    text_file = options.corpus
    if text_file is None:
        return find_corpus(data, options.dataset)
    _require_no_name(data, text_file)
    digest = hashlib.sha256(codec_name(options.encoding).encode())
    paths = text_files(text_file)
    for path in paths:
        raw = path.read_bytes()
        if len(paths) > 1:  # the same text, divided into other files, is another corpus
            digest.update(f"{len(raw)} ".encode())
        digest.update(raw)
    stem = re.sub(r"[^\w.-]+", "_", text_file.stem)[:60]
    folder = folder_of(data, f"{stem}-{digest.hexdigest()[:8]}")
    return _open_or_prepare(folder, lambda: prepare_files(paths, folder, options.encoding))


def _require_no_name(data: str | Path, path: Path) -> None:
    """Raise UserError if a file is missing, but data/ has a text of that name."""
    of_that_name = (Path(data, f"{path}.txt"), Path(data, path, "meta.json"))
    is_name = str(path) in ONLINE or any(each.is_file() for each in of_that_name)
    if is_name and not path.exists():
        advice = f"a text of data/ is given as --dataset {path}"
        raise UserError(f"--corpus {path}: there is no such file; {advice}")


def unprepared(data: str | Path, path: Path, encoding: str) -> Corpus:
    """Return the whole text of a file, or of several, as a validation part; write nothing.

    Raises MissingFile or UserError if there is no text, or too little to predict any of it.
    """
    _require_no_name(data, path)
    texts = [_read_file(each.name, each.read_bytes(), encoding) for each in text_files(path)]
    text = "".join(texts)
    if len(text) < 2:
        raise UserError(f"{path} has {len(text)} characters; give a text with at least 2")
    tokenizer = CharTokenizer.from_text(text)
    ids = tokenizer.look_up(text).astype(tokenizer.id_type)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Corpus(path.name, tokenizer, train=ids[:0], val=ids, sha256=digest)


def text_files(path: str | Path) -> list[Path]:
    """Return the files that a path stands for, in the order of their names.

    The path of a folder stands for its *.txt files, and a pattern, which Windows shells do not
    expand, for the files that match it. Raises MissingFile or UserError if there are none.
    """
    path = Path(path)
    if path.is_file():
        return [path]
    if re.match(r"\w{3,}:/", str(path)):
        raise UserError(f"{path} is an address; download it, and give the path of the file")
    root = Path(path.anchor)
    inside = path.glob("*") if path.is_dir() else root.glob(str(path.relative_to(root)))
    # macOS leaves files beside others whose names begin with a dot.
    are_files = (each for each in inside if each.is_file() and not each.name.startswith("."))
    found = sorted(are_files, key=_natural)
    if path.is_dir():
        found = [each for each in found if each.suffix.lower() == ".txt"]
        if not found:
            raise UserError(f"the folder {path} has no .txt file; give the path of a text")
    elif not found:
        return [existing_file(path, "the text")]
    note(f"{path}: {len(found):,} files, read as one text in the order of their names")
    return found


def _natural(path: Path) -> list[tuple[bool, int, str]]:
    """Return a key that sorts paths so that chapter 2 comes before chapter 10."""
    parts = re.findall(r"\d+|\D+", str(path))
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def folder_of(data: str | Path, name: str) -> Path:
    """Return the folder data/NAME; if data/ can't be written, data/NAME in the current folder."""
    data = Path(data)
    folder = data / name
    if is_prepared(folder) or os.access(data if data.exists() else data.parent, os.W_OK):
        return folder
    here = Path("data", name)
    if not here.exists():
        note(f"{data} can't be written; the prepared text goes to {here}")
    return here


def _open_or_prepare(folder: Path, make: Callable[[], Corpus]) -> Corpus:
    """Open a prepared folder; if it is missing, make it, or wait for a process that makes it."""
    if not is_prepared(folder):
        with locked(folder, WAIT_SECONDS):
            if not is_prepared(folder):
                return make()
    return read_corpus(folder)


def is_folder_name(name: str) -> bool:
    """Return whether `name` is valid text, and the name of a folder rather than a path."""
    is_text = not re.search("[\ud800-\udfff]", name)  # else no checkpoint could name it
    return is_text and Path(name).name == name and name not in ("", "..")


def find_corpus(data: str | Path, name: str) -> Corpus:
    """Return the corpus data/NAME, and prepare it first if it is not prepared yet.

    Its text is data/NAME.txt, or one of ONLINE. If Don Quijote can't be downloaded, the corpus that
    comes with the project takes its place, with a note.
    Raises MissingFile if there is no such corpus, and UserError if another text can't be downloaded
    or data/NAME.txt is no longer the text that was prepared.
    """
    if not is_folder_name(name):
        rule = "the name of a folder under data/; a file is given as --corpus FILE"
        raise UserError(f"--dataset is {name!r}; it must be {rule}")
    data = Path(data)
    folder = folder_of(data, name)
    text = data / f"{name}.txt"
    try:
        if name in ONLINE or text.is_file():
            corpus = _open_or_prepare(folder, lambda: prepare_named(data, name))
        else:
            corpus = read_corpus(folder)
    except FetchError as error:
        if name != BOOK:
            raise
        note(
            f"DON QUIJOTE COULD NOT BE DOWNLOADED ({error}). Using {data.name}/apocrifo.txt "
            "instead, a tenth as long; get the book later with data/prepare.py"
        )
        return find_corpus(data, "apocrifo")
    is_its_text = corpus.source == text.name and text.is_file()
    if is_its_text and corpus.file_sha256 != hashlib.sha256(text.read_bytes()).hexdigest():
        again = command("data/prepare.py", "--input", text, "--name", name, "--overwrite")
        raise UserError(
            f"{text} has changed since {folder} was prepared from it; prepare it again ({again}), "
            f"or move {text.name} away to go on with the text as it was"
        )
    return corpus


def learned_corpus(data: str | Path, name: str, sha256: str) -> Corpus | None:
    """Return the text that a checkpoint says its model learned from, or None if it is not here.

    If its folder is damaged, a note says so.
    """
    folder = Path(data, Path(name).name)  # a name from a checkpoint leads to no other folder
    try:
        found = read_corpus(folder)
        if found.sha256 == sha256:
            found.check()
            return found
    except (MissingFile, OSError):
        return None
    except UserError as why:
        note(str(why))
    return None


def prepare_named(data: str | Path, name: str) -> Corpus:
    """Prepare data/NAME from data/NAME.txt or from the network, even if it is prepared already.

    Raises FetchError if the text can't be downloaded; the folder is then left as it was.
    """
    folder = folder_of(data, name)
    text = Path(data) / f"{name}.txt"
    if text.is_file():
        return prepare_files([text], folder, encoding="")  # --encoding is not for data/NAME.txt
    with locked(folder):
        return write_corpus(fetch(name), folder, ONLINE[name].addresses[0])


def fetch(name: str) -> str:
    """Return the clean text of one of ONLINE. Raises FetchError if no address has the right
    text."""
    online = ONLINE[name]
    why = ""
    for address in online.addresses:
        request = urllib.request.Request(address, headers={"User-Agent": USER_AGENT})
        host = request.host  # read now, because urlopen may replace it by that of a proxy
        note(f"downloading {name} from {host}")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                text = clean_text(read_text(answer.read(), "the answer"))
            digest = hashlib.sha256(text.encode()).hexdigest()
            is_like_it = text.startswith(online.beginning) and len(text) in online.lengths
            if is_like_it and online.sha256 in (None, digest):
                return text
            why = f"{host} sent another text ({len(text)} characters, beginning {text[:20]!r})"
        except (OSError, http.client.HTTPException, UserError) as error:
            why = f"{host}: {str(error) or 'no answer'}"
    raise FetchError(
        f"{name} could not be downloaded ({why}); get {online.addresses[0]} yourself, then run "
        f"data/prepare.py --input FILE --name {name}, or train.py --corpus FILE"
    )


def prepare_files(
    inputs: Iterable[str | Path],
    folder: str | Path,
    encoding: str = "UTF-8",
    *,
    overwrite: bool = True,
) -> Corpus:
    """Prepare text files, read one after the other, as one corpus; "-" is standard input.

    Raises MissingFile or UserError if a path is not a readable file, if `write_corpus` does, or if
    the folder holds a corpus already and `overwrite` is False.
    """
    raws: list[tuple[str, bytes]] = []
    for path in inputs:
        if str(path) == "-":
            raws.append(("standard input", sys.stdin.buffer.read()))
        else:
            raws += [(each.name, each.read_bytes()) for each in text_files(path)]
    digest = hashlib.sha256(raws[0][1]).hexdigest() if len(raws) == 1 else ""
    texts = [_read_file(name, raw, encoding) for name, raw in raws]
    names = [name for name, _ in raws]
    _tell_repetitions(names, texts)
    files = [(name, len(text)) for name, text in zip(names, texts, strict=True)]
    text = "".join(texts)
    with locked(folder):
        if not overwrite:
            require_unprepared(folder)  # another process may have made it since
        several = files if len(files) > 1 else []
        corpus = write_corpus(text, folder, ", ".join(names), digest, several)
    say(f"{corpus.name} begins with {beginning(text)}")
    if odd := what_is_odd(text):
        note(f"{corpus.name} has {odd}")
    return corpus


def _read_file(name: str, raw: bytes, encoding: str) -> str:
    """Return the clean text of a file; say what is left out of it."""
    whole = read_text(raw, name, encoding)
    if left_out := len(whole) - len(without_licence(whole)):
        note(f"{name}: {left_out:,} characters around Project Gutenberg's marks are left out")
    return clean_text(whole)


def _tell_repetitions(names: Sequence[str], texts: Sequence[str]) -> None:
    """Note which files have the same text, because repeated text makes the loss too low."""
    first: dict[str, str] = {}
    for name, text in zip(names, texts, strict=True):
        if text in first:
            note(f"{name} is the same text as {first[text]}; it is read twice")
        first.setdefault(text, name)


def require_unprepared(folder: str | Path) -> None:
    """Raise UserError if a folder holds a corpus."""
    folder = Path(folder)
    if is_prepared(folder):
        there = f"there is a corpus in {folder.parent.name}/{folder.name} already"
        raise UserError(
            f"--name {folder.name}: {there}; choose another name, or replace it (--overwrite)"
        )
