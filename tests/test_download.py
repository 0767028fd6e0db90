"""Fetching a file: what can go wrong between here and there, and what happens then."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sancho.errors import UserError
from sancho.machine import download
from sancho.machine.download import DownloadError

BOOK = b"En un lugar de la Mancha, de cuyo nombre no quiero acordarme.\n" * 5_000


@dataclass
class Server:
    """A server on this machine; each path answers as it is told to."""

    url: str
    routes: dict[str, Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    """Those that were asked for, in order."""
    user_agents: set[str] = field(default_factory=set)
    closing: threading.Event = field(default_factory=threading.Event)

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
            found.paths.append(self.path)
            found.user_agents.add(self.headers["User-Agent"])
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


def test_the_book_is_saved_byte_for_byte(server, target, capsys):
    """The server is told who asks, and the user what is waited for."""
    fetch(target, server.sends("/book", BOOK))
    assert server.paths == ["/book"]
    assert server.user_agents == {download.USER_AGENT}
    assert "sancho-mini" in download.USER_AGENT
    assert "waiting for 127.0.0.1:" in capsys.readouterr().err


def test_the_length_need_not_be_announced(server, target):
    def answer(handler):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(BOOK)

    fetch(target, server.on("/book", answer))


def test_addresses_are_tried_in_order_until_one_has_the_book(server, target):
    fetch(
        target,
        server.sends("/first", b"not here", 404),
        server.sends("/second", b"<html></html>"),
        server.sends("/third", BOOK[:100_000], length=len(BOOK)),
        server.sends("/fourth", BOOK),
        server.sends("/fifth", BOOK),
    )
    assert server.paths == ["/first", "/second", "/third", "/fourth"]


def test_one_address_may_be_given_twice(server, target):
    """As the book's are: the second is the second try."""
    bodies = [BOOK[:100_000], BOOK]
    url = server.on("/book", lambda handler: send(handler, bodies.pop(0), length=len(BOOK)))
    fetch(target, url, url)
    assert server.paths == ["/book"] * 2


# --- a server that is busy, slow or breaks off ----------------------------------------------


@pytest.mark.parametrize("status", [403, 404, 408, 429, 500, 503])
def test_an_address_without_the_book_is_asked_once(server, target, status):
    assert f"answered {status} " in failure(target, server.sends("/busy", b"not now", status))
    assert server.paths == ["/busy"]


@pytest.mark.parametrize("sent", [0, 1, 100_000, len(BOOK) - 1])
def test_a_download_cut_off_leaves_nothing(server, target, sent):
    url = server.sends("/book", BOOK[:sent], length=len(BOOK))
    assert f"{sent} bytes read, {len(BOOK) - sent} more expected" in failure(target, url)
    assert server.paths == ["/book"]


def test_a_connection_that_is_closed_without_an_answer_is_an_error(server, target):
    assert "127.0.0.1" in failure(target, server.on("/book", lambda handler: None))


@pytest.mark.parametrize("sent", [0, 100_000])
def test_a_server_that_falls_silent_is_given_up_and_the_next_asked(
    server, target, monkeypatch, sent
):
    """Which never sends the rest: who waits for it waits for ever."""

    def fall_silent(handler):
        if sent:
            send(handler, BOOK[:sent], length=len(BOOK))
        server.closing.wait()

    def read_soon(url, read=download._read):
        monkeypatch.setattr(download, "ANSWER_SECONDS", 0.2 if url == silent else 30)
        return read(url)

    silent = server.on("/silent", fall_silent)
    monkeypatch.setattr(download, "_read", read_soon)
    assert "timed out" in failure(target, silent)
    fetch(target, silent, server.sends("/book", BOOK))


def test_a_slow_network_is_waited_for(server, target):
    """The corpus that stands in for the book is another text, so it is no way out of a pause."""

    def take_a_while(handler):
        time.sleep(0.3)
        send(handler, BOOK)

    fetch(target, server.on("/slow", take_a_while))
    assert download.ANSWER_SECONDS == 30


def test_a_refused_connection_is_not_waited_for(target, refused):
    assert "refused" in failure(target, refused)


def test_a_name_that_nobody_has_is_not_waited_for(target, monkeypatch):
    def look_up(*args):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    message = failure(target, "https://nonexistent.invalid/pg2000.txt")
    assert message.startswith("nonexistent.invalid: ")
    assert "Name or service not known" in message


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
    assert server.paths == ["/wrong"]


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
    assert server.paths == ["/book"]
    assert list(target.parent.iterdir()) == []
