"""Finds texts by name, in files and on the network, and reads them into memory."""

import http.client
import re
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sancho.errors import MissingFile, UserError, note
from sancho.machine.files import atomic_write, existing_file, locked
from sancho.text.clean import clean_text, read_text, without_licence
from sancho.text.corpus import Corpus, digest

PROJECT = Path(__file__).resolve().parents[2]
INCLUDED = "apocrifo"
"""The text that comes with the project."""
DATA = PROJECT / "data" if (PROJECT / "data" / f"{INCLUDED}.txt").is_file() else Path("data")
"""The folder of texts that have a name: the project's, or with an installed package that of the
current folder."""
BOOK = "quijote"
WAIT_SECONDS = 600.0  # to wait for another process that downloads the same text
ANSWER_SECONDS = 30.0  # to wait for a silent server
LONGEST_NAME = 60  # characters of the name of a text
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


def corpus_of(words: str | Path | Sequence[str | Path] = BOOK, encoding: str = "UTF-8") -> Corpus:
    """Return the text that one word, or several in this order, stand for.

    A word is a name of ONLINE, whose text is downloaded if it is not in DATA yet, or else a path:
    of a file, of a folder, which stands for its *.txt files, or a pattern. Where there is no such
    path, it is the name of a file in DATA, without its .txt.

    encoding: of the files; a text of ONLINE is kept in UTF-8. If Don Quijote can't be downloaded,
    the text that comes with the project takes its place, with a note.
    Raises MissingFile, FetchError, or UserError for a file that can't be read as text.
    """
    names = []
    texts: list[tuple[str, str]] = []
    for word in [words] if isinstance(words, str | Path) else words:
        if str(word) in ONLINE:
            name, path = _kept_online(str(word))
            texts.append(_read_file(path, encoding=""))
        else:
            name = _name_of(str(word))
            texts += [_read_file(path, encoding) for path in _files_of(str(word))]
        names.append(name)
    _tell_repetitions(texts)
    return Corpus.of(_shortened(", ".join(names)), [text for _, text in texts])


def _name_of(word: str) -> str:
    """Return the name of the text of a path: the last part, without .txt and odd characters."""
    last = Path(word).absolute().name.removesuffix(".txt")
    return _shortened(re.sub(r"[^\w.,*?+ -]+", "_", last))


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _files_of(word: str) -> list[Path]:
    """Return the files that a path stands for, or that of the text in DATA with this name."""
    if re.match(r"(\w{3,}:/|www\.)", word) and not Path(word).exists():
        raise UserError(f"{word} is an address; download it, and give the path of the file")
    path = Path(word).expanduser()
    named = DATA / f"{word}.txt"
    if named.is_file() and not path.exists():
        return [named]
    return text_files(path)


def text_files(path: str | Path) -> list[Path]:
    """Return the files that a path stands for, in the order of their names.

    The path of a folder stands for its *.txt files, and a pattern, which Windows shells do not
    expand, for the files that match it. Raises MissingFile or UserError if there are none.
    """
    path = Path(path)
    if path.is_file():
        return [path]
    root = Path(path.anchor)
    inside = path.glob("*") if path.is_dir() else root.glob(str(path.relative_to(root)))
    # macOS leaves files beside others whose names begin with a dot.
    are_files = (each for each in inside if each.is_file() and not each.name.startswith("."))
    found = sorted(are_files, key=_natural)
    if path.is_dir():
        found = [each for each in found if each.suffix.lower() == ".txt"]
        if not found:
            deeper = "a pattern such as FOLDER/**/*.txt finds those in folders inside it"
            raise UserError(f"the folder {path} has no .txt file; give another path; {deeper}")
    elif not found:
        return [_existing_text(path)]
    if len(found) > 1:
        note(f"{path}: {len(found):,} files, read as one text in the order of their names")
    return found


def _existing_text(path: Path) -> Path:
    """Return `path` if it is a file. Raises UserError, or MissingFile with the names in DATA."""
    if path.exists():
        return existing_file(path, "the text")
    names = ", ".join(sorted({*ONLINE, *(each.stem for each in DATA.glob("*.txt"))}))
    raise MissingFile(f"the text {path} does not exist; check the path, or give a name: {names}")


def _natural(path: Path) -> list[tuple[bool, int, str]]:
    """Return a key that sorts paths so that chapter 2 comes before chapter 10."""
    parts = re.findall(r"\d+|\D+", str(path))
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def _kept_online(name: str) -> tuple[str, Path]:
    """Return name and file of a text of ONLINE, downloaded if it is not there yet.

    For Don Quijote, they may be those of the included text. Raises FetchError.
    """
    kept = DATA / f"{name}.txt"
    if kept.is_file():
        return name, kept
    try:
        with locked(DATA, WAIT_SECONDS):
            if not kept.is_file():  # another process may have downloaded it meanwhile
                text = fetch(name)
                with atomic_write(kept) as out:
                    out.write(text.encode())
    except FetchError as error:
        included = DATA / f"{INCLUDED}.txt"
        if name != BOOK or not included.is_file():
            raise
        note(
            f"DON QUIJOTE COULD NOT BE DOWNLOADED ({error}). Using {DATA.name}/{included.name} "
            "instead, a tenth as long"
        )
        return INCLUDED, included
    return name, kept


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
            is_like_it = text.startswith(online.beginning) and len(text) in online.lengths
            if is_like_it and online.sha256 in (None, digest(text.encode(), ())):
                return text
            why = f"{host} sent another text ({len(text)} characters, beginning {text[:20]!r})"
        except (OSError, http.client.HTTPException, UserError) as error:
            why = f"{host}: {str(error) or 'no answer'}"
    raise FetchError(
        f"{name} could not be downloaded ({why}); get {online.addresses[0]} yourself, and give the "
        f"file as --corpus, or keep it as {DATA / name}.txt"
    )


def _read_file(path: Path, encoding: str) -> tuple[str, str]:
    """Return the name of a file and its clean text; say what is left out of it.

    encoding: empty if only UTF-8 is possible.
    """
    whole = read_text(path.read_bytes(), path.name, encoding)
    if left_out := len(whole) - len(without_licence(whole)):
        note(f"{path.name}: {left_out:,} characters around Project Gutenberg's marks are left out")
    return path.name, clean_text(whole)


def _tell_repetitions(texts: Sequence[tuple[str, str]]) -> None:
    """Note which files have the same text, because repeated text makes the loss too low."""
    first: dict[str, str] = {}
    for name, text in texts:
        if text in first:
            note(f"{name} is the same text as {first[text]}; it is read twice")
        first.setdefault(text, name)
