"""One file from the first address that has it."""

import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tqdm import tqdm

from sancho.errors import UserError
from sancho.files import atomic_write

USER_AGENT = "sancho-mini (a small language model that learns Spanish; Python urllib)"
ANSWER_SECONDS = 4.0
STALL_SECONDS = 10.0


class DownloadError(UserError):
    """The file could not be had, or was not the right one."""


def download(urls: Sequence[str], path: Path, check: Callable[[Path], None]) -> Path:
    """Download to `path` what the first of `urls` has that passes `check`; return `path`.

    check: raises UserError for a file that is not the right one. Raises DownloadError with what
    each address answered.
    """
    answers = []
    for url in urls:
        try:
            with atomic_write(path) as out:
                for chunk in _read(url):
                    out.write(chunk)
                out.flush()
                check(Path(out.name))
            return path
        except UserError as error:
            answers.append(f"{urlsplit(url).netloc}: {error}")
    raise DownloadError("; ".join(answers))


def _read(url: str) -> Iterator[bytes]:
    """Yield the content of `url`. Raises DownloadError."""
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
                raise DownloadError(f"broke off ({error})") from None
            if received < length:
                raise DownloadError(f"broke off after {received} of {length} bytes")


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
        raise DownloadError(f"answered {answer.code} {answer.reason}")
    if isinstance(answer, OSError | http.client.HTTPException):
        raise DownloadError(str(getattr(answer, "reason", answer)))
    if isinstance(answer, Exception):
        raise answer
    return answer
