"""Don Quijote from Project Gutenberg."""

import http.client
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tqdm import tqdm

from sancho.config import CorpusConfig
from sancho.corpus import Corpus, clean_text, load, prepare_files, read_text
from sancho.errors import UserError
from sancho.files import atomic_write, locked

BOOK_URLS = (
    "https://www.gutenberg.org/cache/epub/2000/pg2000.txt",
    "https://gutenberg.pglaf.org/cache/epub/2000/pg2000.txt",
    "https://aleph.pglaf.org/cache/epub/2000/pg2000.txt",
)
TITLE = "El ingenioso hidalgo don Quijote de la Mancha"
FAMOUS_WORDS = "En un lugar de la Mancha"
USER_AGENT = "sancho-mini (a small language model that learns Spanish; Python urllib)"
TRIES = 3
ANSWER_SECONDS = 4.0
STALL_SECONDS = 10.0
BACK_OFF_SECONDS = 1.0
BUSY = (408, 425, 429, 500, 502, 503, 504)


class DownloadError(UserError):
    """The file could not be had, or was not the right one."""


class TryAgain(DownloadError):
    """The server was busy or broke off: the next try may work."""


def open_corpus(data: Path, options: CorpusConfig) -> Corpus:
    """Return the corpus that the options ask for, prepared on the way where it has to be."""
    if options.corpus is None:
        return find_corpus(data, options.dataset)
    return prepare_files([options.corpus], data / options.corpus.stem)


def find_corpus(data: Path, name: str, urls: Sequence[str] = BOOK_URLS) -> Corpus:
    """Return the corpus data/NAME; where it is not prepared, prepare it if its text can be had.

    The text is data/NAME.txt, or for "quijote" comes from `urls`; if none of them answers, the
    sample corpus "apocrifo" takes its place, with a warning that says so.
    Raises MissingFile where there is no such corpus.
    """
    folder, text = data / name, data / f"{name}.txt"
    if (folder / "meta.json").is_file():
        return load(folder)
    if text.is_file():
        return prepare_files([text], folder)
    if name != "quijote":
        return load(folder)
    try:
        with locked(folder):
            return prepare_files([fetch_book(folder / "pg2000.txt", urls)], folder)
    except DownloadError as error:
        warnings.warn(
            f"DON QUIJOTE COULD NOT BE FETCHED ({error}). Using the short sample corpus "
            "data/apocrifo.txt instead, which 100 steps learn by heart (--max_iters 100); get the "
            "book later with: python data/prepare.py",
            stacklevel=2,
        )
        return find_corpus(data, "apocrifo")


def fetch_book(path: Path, urls: Sequence[str] = BOOK_URLS) -> Path:
    """Download the book to `path` from the first of `urls` that has it, and return `path`.

    Raises DownloadError with what each address answered.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    answers = []
    for url in urls:
        try:
            _fetch_from(url, path)
            return path
        except DownloadError as error:
            answers.append(f"{urlsplit(url).netloc}: {error}")
    raise DownloadError("; ".join(answers))


def check_book(path: Path) -> None:
    """Raise DownloadError unless the clean text of the file is the whole of Don Quijote."""
    try:
        with open(path, "rb") as file:
            text = "".join(clean_text(read_text(file, path.name)))
    except UserError as error:
        raise DownloadError(str(error)) from None
    if not text.startswith(TITLE) or FAMOUS_WORDS not in text:
        raise DownloadError("what it sent is not Don Quijote")
    if not 2_050_000 < len(text) < 2_200_000:
        raise DownloadError(f"its Don Quijote has {len(text)} characters, not about 2110000")


def _fetch_from(url: str, path: Path) -> None:
    """Download from one address, with up to TRIES tries and growing pauses between them."""
    for attempt in range(TRIES):
        try:
            with atomic_write(path) as out:
                for chunk in _download(url):
                    out.write(chunk)
                out.flush()
                check_book(Path(out.name))
            return
        except TryAgain:
            if attempt == TRIES - 1:
                raise
            time.sleep(BACK_OFF_SECONDS * 2**attempt)


def _download(url: str) -> Iterator[bytes]:
    """Yield the content of `url`. Raises TryAgain or DownloadError."""
    with _answer(url) as answer:
        length, received = int(answer.headers.get("Content-Length") or 0), 0
        with tqdm(
            total=length or None, unit="B", unit_scale=True, desc=urlsplit(url).netloc, leave=False
        ) as bar:
            try:
                while chunk := answer.read(1 << 16):
                    received += len(chunk)
                    bar.update(len(chunk))
                    yield chunk
            except (OSError, http.client.HTTPException) as error:
                raise TryAgain(f"broke off ({error})") from None
            if received < length:
                raise TryAgain(f"broke off after {received} of {length} bytes")


def _answer(url: str) -> http.client.HTTPResponse:
    """Open `url`; wait ANSWER_SECONDS at most for the beginning of the answer.

    The wait is done in a thread of its own because looking a name up has no time-out in Python.
    """
    request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT})
    result: list[object] = []

    def open_url() -> None:
        try:
            result.append(urllib.request.urlopen(request, timeout=STALL_SECONDS))
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=open_url, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    answer = result[0] if result else TimeoutError("no answer")
    if isinstance(answer, urllib.error.HTTPError):
        kind = TryAgain if answer.code in BUSY else DownloadError
        raise kind(f"answered {answer.code} {answer.reason}")
    if isinstance(answer, OSError | http.client.HTTPException):
        raise DownloadError(str(getattr(answer, "reason", answer)))
    if isinstance(answer, Exception):
        raise answer
    return answer
