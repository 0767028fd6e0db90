"""Download with a time-out and a check, from one of several addresses, each asked once."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from tqdm import tqdm

from sancho.errors import UserError

USER_AGENT = "sancho-mini (a small language model that learns Spanish; Python urllib)"
ANSWER_SECONDS = 30.0  # for which a server may be silent


class DownloadError(UserError):
    """The file could not be had, or was not the right one."""


def download(urls: Iterable[str], check: Callable[[bytes], None]) -> bytes:
    """Return what the first of `urls` has that passes `check`.

    check: raises UserError for bytes that are not the right ones. Raises DownloadError with what
    each address answered.
    """
    answers = []
    for url in urls:
        try:
            check(raw := _read(url))
            return raw
        except UserError as error:
            answers.append(f"{urlsplit(url).netloc}: {error}")
    raise DownloadError("; ".join(answers))


def _read(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT})
    waiting = f"waiting for {urlsplit(url).netloc} (up to {ANSWER_SECONDS:.0f} s)"
    with tqdm(desc=waiting, bar_format="{desc}", leave=False):
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            raise DownloadError(f"answered {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise DownloadError(str(getattr(error, "reason", error)) or "no answer") from None
