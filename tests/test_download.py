"""Fetching a file: what can go wrong between here and there, and what happens then."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sancho.errors import UserError
from sancho.machine import download
from sancho.machine.download import DownloadError

BOOK = b"En un lugar de la Mancha, de cuyo nombre no quiero acordarme.\n" * 5_000


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.paths.append(self.path)
        assert self.headers["User-Agent"] == download.USER_AGENT
        with contextlib.suppress(ConnectionError):
            self.server.answers[self.path](self)

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    """A server on this machine; each path answers as it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Callable[[BaseHTTPRequestHandler], object]] = {}
        self.paths: list[str] = []  # that were asked for, in order
        self.closing = threading.Event()

    def on(self, path: str, answer: Callable[[BaseHTTPRequestHandler], object]) -> str:
        """Let `path` answer with answer(handler); return its URL."""
        self.answers[path] = answer
        return f"http://127.0.0.1:{self.server_port}{path}"

    def sends(self, path: str, body: bytes, status: int = 200, length: int | None = None) -> str:
        """Let `path` answer with a body, and announce its length or another one."""

        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(body) if length is None else length))
            handler.end_headers()
            handler.wfile.write(body)

        return self.on(path, answer)


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.closing.set()
        found.shutdown()
        thread.join()


def check(raw: bytes) -> None:
    """Refuse all but the book."""
    if raw != BOOK:
        raise UserError("what it sent is not Don Quijote")


def failure(*urls: str) -> str:
    """Fetch in vain and return the message."""
    with pytest.raises(DownloadError) as caught:
        download.download(urls, check)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_addresses_are_tried_in_order_until_one_has_the_book(server, capsys):
    """The user is told what is waited for, and for how long."""
    urls = [
        server.sends("/first", b"not here", 404),
        server.sends("/second", b"<html></html>"),
        server.sends("/third", BOOK[:100_000], length=len(BOOK)),
        server.sends("/fourth", BOOK),
        server.sends("/fifth", BOOK),
    ]
    assert download.download(urls, check) == BOOK
    assert server.paths == ["/first", "/second", "/third", "/fourth"]
    waiting = f"waiting for 127.0.0.1:{server.server_port} (up to 30 s)"
    assert waiting in capsys.readouterr().err


@pytest.mark.parametrize("sent", [0, 100_000])
def test_a_server_that_falls_silent_is_given_up(server, monkeypatch, sent):
    """Which never sends the rest: who waits for it waits for ever."""

    def fall_silent(handler: BaseHTTPRequestHandler) -> None:
        if sent:
            server.answers["/part"](handler)
        server.closing.wait()

    server.sends("/part", BOOK[:sent], length=len(BOOK))
    monkeypatch.setattr(download, "ANSWER_SECONDS", 0.2)
    assert "timed out" in failure(server.on("/silent", fall_silent))


def test_the_error_says_what_each_address_answered(server):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        message = failure(
            server.sends("/missing", b"", 404),
            server.sends("/busy", b"not now", 503),
            server.on("/nothing", lambda handler: None),
            server.sends("/cut", BOOK[:-1], length=len(BOOK)),
            server.sends("/wrong", b"<!DOCTYPE html>\n<title>Log in</title>\n" * 9000),
            f"http://127.0.0.1:{nobody.getsockname()[1]}/book",
        )
    *answers, last = message.split("; ")
    assert all(answer.startswith(f"127.0.0.1:{server.server_port}: ") for answer in answers)
    missing, busy, nothing, cut, wrong = (answer.partition(": ")[2] for answer in answers)
    assert missing == "answered 404 Not Found"
    assert busy == "answered 503 Service Unavailable"
    assert "closed connection" in nothing
    assert f"{len(BOOK) - 1} bytes read, 1 more expected" in cut
    assert wrong == "what it sent is not Don Quijote"
    assert "refused" in last
    assert server.paths == ["/missing", "/busy", "/nothing", "/cut", "/wrong"]  # each once
