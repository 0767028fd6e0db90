"""Download with a time-out and a check, from one of several addresses."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tqdm import tqdm

from sancho.errors import UserError
from sancho.machine.files import atomic_write

USER_AGENT = "sancho-mini (a small language model that learns Spanish; Python urllib)"
ANSWER_SECONDS = 30.0  # for which a server may be silent


class DownloadError(UserError):
    """The file could not be had, or was not the right one."""


def download(urls: Sequence[str], path: Path, check: Callable[[bytes], None]) -> Path:
    """Download to `path` what the first of `urls` has that passes `check`; return `path`.

    check: raises UserError for bytes that are not the right ones. Raises DownloadError with what
    each address answered; `path` is then as it was before.
    """
    answers = []
    for url in urls:
        try:
            check(raw := _read(url))
            with atomic_write(path) as out:
                out.write(raw)
            return path
        except UserError as error:
            answers.append(f"{urlsplit(url).netloc}: {error}")
    raise DownloadError("; ".join(answers))


def check_sha256(expected: str, raw: bytes) -> None:
    """Raise UserError unless these bytes have that sha256, in hexadecimal digits."""
    if (found := hashlib.sha256(raw).hexdigest()) != expected:
        sent = f"{len(raw)} bytes with the sha256 {found[:8]}…"
        raise UserError(f"it sent another text: {sent}, not {expected[:8]}…")


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
