"""Fetching a file: what can go wrong between here and there, and what happens then."""

import contextlib
import functools
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from tqdm import tqdm

from sancho import download
from sancho.download import DownloadError
from sancho.errors import UserError

BOOK = b"En un lugar de la Mancha, de cuyo nombre no quiero acordarme.\n" * 5_000


@dataclass
class Server:
    """A server on this machine; each path answers as it is told to."""

    url: str
    routes: dict[str, Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """(path, User-Agent) of each request, in order."""
    closing: threading.Event = field(default_factory=threading.Event)

    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def on(self, path: str, answer: Callable[[BaseHTTPRequestHandler], None]) -> str:
        """Let `path` answer with answer(handler); return its URL."""
        self.routes[path] = answer
        return self.url + path

    def sends(self, path: str, body: bytes, status: int = 200, length: int | None = None) -> str:
        """Let `path` answer with a body, and announce its length or another one."""
        return self.on(path, lambda handler: send(handler, body, status, length))


def send(
    handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, length: int | None = None
) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    handler.end_headers()
    handler.wfile.write(body)
    handler.wfile.flush()


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            found.requests.append((self.path, self.headers["User-Agent"]))
            with contextlib.suppress(ConnectionError):
                found.routes[self.path](self)

        def log_message(self, *args):
            pass

    http_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http_server.daemon_threads = True
    found = Server(f"http://127.0.0.1:{http_server.server_port}")
    thread = threading.Thread(target=http_server.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.closing.set()
    http_server.shutdown()
    thread.join()
    http_server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def target(tmp_path) -> Path:
    (tmp_path / "quijote").mkdir()
    return tmp_path / "quijote" / "pg2000.txt"


def check(path: Path) -> None:
    """Refuse all but the book."""
    if path.read_bytes() != BOOK:
        raise UserError("what it sent is not Don Quijote")


def fetch(target: Path, *urls: str) -> None:
    """Fetch the book; nothing else may lie in the folder then."""
    assert download.download(urls, target, check) == target
    assert target.read_bytes() == BOOK
    assert list(target.parent.iterdir()) == [target]


def failure(target: Path, *urls: str) -> str:
    """Fetch in vain, leave nothing behind, and return the message."""
    with pytest.raises(DownloadError) as caught:
        download.download(urls, target, check)
    assert list(target.parent.iterdir()) == []
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def refused() -> Iterator[str]:
    """The URL of a port at which nobody listens."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{nobody.getsockname()[1]}/pg2000.txt"


# --- all is well ----------------------------------------------------------------------------


def test_the_book_is_saved_byte_for_byte(server, target):
    fetch(target, server.sends("/book", BOOK))
    assert server.paths() == ["/book"]


def test_the_server_is_told_who_asks(server, target):
    fetch(target, server.sends("/book", BOOK))
    ((_, user_agent),) = server.requests
    assert user_agent == download.USER_AGENT
    assert "sancho-mini" in user_agent


def test_the_length_need_not_be_announced(server, target):
    def answer(handler):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(BOOK)

    fetch(target, server.on("/book", answer))


def test_the_progress_bar_may_be_switched_off(server, target, monkeypatch):
    # As the environment variable TQDM_DISABLE does.
    monkeypatch.setattr(download, "tqdm", functools.partial(tqdm, disable=True))
    fetch(target, server.sends("/book", BOOK))


def test_addresses_are_tried_in_order_until_one_has_the_book(server, target):
    fetch(
        target,
        server.sends("/first", b"not here", 404),
        server.sends("/second", b"nor here", 403),
        server.sends("/third", BOOK),
        server.sends("/fourth", BOOK),
    )
    assert server.paths() == ["/first", "/second", "/third"]


def test_one_address_may_be_given_twice(server, target):
    """As the book's are: the second is the second try."""
    bodies = [BOOK[:100_000], BOOK]
    url = server.on("/book", lambda handler: send(handler, bodies.pop(0), length=len(BOOK)))
    fetch(target, url, url)
    assert server.paths() == ["/book"] * 2


# --- a server that is busy or breaks off ----------------------------------------------------


@pytest.mark.parametrize("status", [403, 404, 408, 429, 500, 503])
def test_an_address_without_the_book_is_asked_once(server, target, status):
    url = server.sends("/busy", b"not now", status)
    assert f"answered {status} " in failure(target, url)
    assert server.paths() == ["/busy"]
    fetch(target, url, server.sends("/other", BOOK))
    assert server.paths() == ["/busy", "/busy", "/other"]


@pytest.mark.parametrize("sent", [0, 1, 100_000, len(BOOK) - 1])
def test_a_download_cut_off_leaves_nothing(server, target, sent):
    url = server.sends("/book", BOOK[:sent], length=len(BOOK))
    assert f"broke off after {sent} of {len(BOOK)} bytes" in failure(target, url)
    assert server.paths() == ["/book"]


def test_a_download_cut_off_goes_on_with_the_next_address_from_its_beginning(server, target):
    cut_off = server.sends("/cut_off", BOOK[:100_000], length=len(BOOK))
    fetch(target, cut_off, server.sends("/book", BOOK))
    assert server.paths() == ["/cut_off", "/book"]


def test_a_connection_that_is_closed_without_an_answer_is_an_error(server, target):
    assert "127.0.0.1" in failure(target, server.on("/book", lambda handler: None))


def test_a_server_that_stalls_in_the_middle_is_given_up(server, target, monkeypatch):
    """Which never sends the rest: who waits for it waits for ever."""
    monkeypatch.setattr(download, "STALL_SECONDS", 0.5)

    def answer(handler):
        send(handler, BOOK[:100_000], length=len(BOOK))
        server.closing.wait()

    assert "broke off" in failure(target, server.on("/book", answer))


def test_a_server_that_does_not_answer_is_given_up(server, target, monkeypatch):
    monkeypatch.setattr(download, "ANSWER_SECONDS", 0.1)
    silent = server.on("/silent", lambda handler: server.closing.wait())
    assert "127.0.0.1" in (message := failure(target, silent))
    assert message.endswith(": no answer")


def test_after_a_server_that_does_not_answer_comes_the_next(server, target, monkeypatch):
    asked, waits = threading.Event(), []

    def say_nothing(handler):
        asked.set()
        server.closing.wait()

    class Thread(threading.Thread):
        """Its first wait is over when the server was asked, its second when that has answered."""

        def join(self, timeout: float) -> None:
            waits.append(timeout)
            if len(waits) == 1:
                asked.wait()
            else:
                super().join()

    monkeypatch.setattr(download, "threading", SimpleNamespace(Thread=Thread))
    fetch(target, server.on("/silent", say_nothing), server.sends("/book", BOOK))
    assert waits == [download.ANSWER_SECONDS] * 2


def test_a_refused_connection_is_not_waited_for(target, refused, monkeypatch):
    monkeypatch.setattr(download, "ANSWER_SECONDS", threading.TIMEOUT_MAX)
    assert "127.0.0.1" in failure(target, refused)


URL_OF_NOBODY = "https://nonexistent.invalid/pg2000.txt"


def test_a_name_that_nobody_has_is_not_waited_for(target, monkeypatch):
    def look_up(*args):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(download, "ANSWER_SECONDS", threading.TIMEOUT_MAX)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    message = failure(target, URL_OF_NOBODY)
    assert message.startswith("nonexistent.invalid: ")
    assert "Name or service not known" in message


def test_a_name_that_is_looked_up_for_ever_is_given_up(target, monkeypatch):
    found = threading.Event()

    def look_up(*args):
        found.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(download, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert failure(target, URL_OF_NOBODY) == "nonexistent.invalid: no answer"
    found.set()


def test_the_error_says_what_each_address_answered(server, target, refused):
    message = failure(target, server.sends("/missing", b"", 404), refused)
    first, second = message.split("; ")
    assert "404" in first
    assert second.startswith(refused.split("/")[2])


# --- the wrong text -------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"<!DOCTYPE html>\n<title>Log in</title>\n" * 9000, b""])
def test_another_text_is_not_taken_for_the_book(server, target, body):
    message = failure(target, server.sends("/wrong", body))
    assert message.endswith(": what it sent is not Don Quijote")
    assert server.paths() == ["/wrong"]


def test_after_the_wrong_text_comes_the_next_address(server, target):
    fetch(target, server.sends("/wrong", b"<html></html>"), server.sends("/right", BOOK))
    assert server.paths() == ["/wrong", "/right"]


def test_a_failure_leaves_the_book_that_was_there(server, target):
    target.write_bytes(BOOK)
    with pytest.raises(DownloadError):
        download.download([server.sends("/wrong", b"<html></html>")], target, check)
    assert target.read_bytes() == BOOK
    assert list(target.parent.iterdir()) == [target]


def test_the_whole_file_is_checked_before_it_takes_its_place(server, target):
    seen = []

    def look(path: Path) -> None:
        seen.append((path.read_bytes(), path.parent, target.exists()))

    download.download([server.sends("/book", BOOK)], target, look)
    assert seen == [(BOOK, target.parent, False)]


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_what_is_no_answer_of_an_address_is_not_taken_for_one(server, target, error):
    def fail(path: Path) -> None:
        raise error("mine")

    urls = [server.sends("/book", BOOK), server.sends("/other", BOOK)]
    with pytest.raises(error, match="mine"):
        download.download(urls, target, fail)
    assert server.paths() == ["/book"]
    assert list(target.parent.iterdir()) == []
