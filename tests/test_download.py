"""Fetching the book: what can go wrong between here and there, and what happens then."""

import contextlib
import functools
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from tqdm import tqdm

from sancho import download
from sancho.corpus import prepare_files
from sancho.download import BOOK_URLS, DownloadError, check_book, fetch_book, find_corpus
from sancho.errors import MissingFile, UserError

REAL_BOOK = Path(__file__).parents[2] / "shared" / "data" / "pg2000.txt"
LINE = "que no quiero acordarme, no ha mucho tiempo que vivía un hidalgo\n"


def book_of(length: int) -> bytes:
    """A book that begins and sounds like the right one and has about `length` characters."""
    begin = f"{download.TITLE}\n\n{download.FAMOUS_WORDS}, de cuyo nombre\n"
    body = begin + LINE * ((length - len(begin)) // len(LINE))
    return (
        "\ufeffLicence\n*** START OF THE PROJECT GUTENBERG EBOOK DON QUIJOTE ***\n"
        f"{body}\n*** END OF THE PROJECT GUTENBERG EBOOK DON QUIJOTE ***\nMore licence\n"
    ).encode()


BOOK = book_of(2_110_000)


@dataclass
class Server:
    """A server on this machine; each path answers as it is told to."""

    url: str
    routes: dict[str, Callable[[BaseHTTPRequestHandler, int], None]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """(path, User-Agent) of each request, in order."""
    closing: threading.Event = field(default_factory=threading.Event)

    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def on(self, path: str, answer: Callable[[BaseHTTPRequestHandler, int], None]) -> str:
        """Let `path` answer with answer(handler, how many requests came before); return its URL."""
        self.routes[path] = answer
        return self.url + path

    def sends(self, path: str, body: bytes, status: int = 200) -> str:
        return self.on(path, lambda handler, _: send(handler, body, status))


def send(
    handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, length: int | None = None
) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    handler.end_headers()
    handler.wfile.write(body)
    handler.wfile.flush()


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            before = found.paths().count(self.path)
            found.requests.append((self.path, self.headers["User-Agent"]))
            with contextlib.suppress(ConnectionError):
                found.routes[self.path](self, before)

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
def short_waits(monkeypatch):
    monkeypatch.setattr(download, "BACK_OFF_SECONDS", 0.01)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def target(tmp_path):
    return tmp_path / "quijote" / "pg2000.txt"


@pytest.fixture
def data(tmp_path):
    """A data folder that holds the sample corpus only."""
    (tmp_path / "apocrifo.txt").write_text(LINE * 30, encoding="utf-8")
    return tmp_path


def failure(target: Path, *urls: str) -> str:
    """Fetch in vain, leave nothing behind, and return the message."""
    with pytest.raises(DownloadError) as caught:
        fetch_book(target, urls)
    assert list(target.parent.iterdir()) == []
    return str(caught.value)


@pytest.fixture
def refused():
    """The URL of a port at which nobody listens."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{nobody.getsockname()[1]}/pg2000.txt"


# --- where from -----------------------------------------------------------------------------


def test_the_book_has_three_addresses():
    assert len(BOOK_URLS) == len(set(BOOK_URLS)) == 3
    for url in BOOK_URLS:
        assert url.startswith("https://")
        assert url.endswith("pg2000.txt")


def test_without_a_network_it_is_known_within_15_seconds():
    assert len(BOOK_URLS) * download.ANSWER_SECONDS < 15


# --- all is well ----------------------------------------------------------------------------


def test_the_book_is_saved_byte_for_byte(server, target):
    assert fetch_book(target, [server.sends("/book", BOOK)]) == target
    assert target.read_bytes() == BOOK
    assert list(target.parent.iterdir()) == [target]


def test_the_server_is_told_who_asks(server, target):
    fetch_book(target, [server.sends("/book", BOOK)])
    ((_, user_agent),) = server.requests
    assert user_agent == download.USER_AGENT
    assert "sancho-mini" in user_agent


def test_the_length_need_not_be_announced(server, target):
    def answer(handler, _):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(BOOK)

    fetch_book(target, [server.on("/book", answer)])
    assert target.read_bytes() == BOOK


def test_the_progress_bar_may_be_switched_off(server, target, monkeypatch):
    # As the environment variable TQDM_DISABLE does.
    monkeypatch.setattr(download, "tqdm", functools.partial(tqdm, disable=True))
    fetch_book(target, [server.sends("/book", BOOK)])
    assert target.read_bytes() == BOOK


def test_mirrors_are_tried_in_order_until_one_has_the_book(server, target):
    urls = [
        server.sends("/first", b"not here", 404),
        server.sends("/second", b"nor here", 403),
        server.sends("/third", BOOK),
        server.sends("/fourth", BOOK),
    ]
    fetch_book(target, urls)
    assert target.read_bytes() == BOOK
    assert server.paths() == ["/first", "/second", "/third"]


# --- a server that is busy or breaks off ----------------------------------------------------


def test_a_busy_server_is_asked_again(server, target):
    def answer(handler, before):
        send(handler, b"busy" if before < 2 else BOOK, 503 if before < 2 else 200)

    fetch_book(target, [server.on("/busy", answer), server.sends("/other", BOOK)])
    assert target.read_bytes() == BOOK
    assert server.paths() == ["/busy"] * 3


def test_the_pauses_between_tries_grow(server, target, monkeypatch):
    monkeypatch.setattr(download, "BACK_OFF_SECONDS", 1.0)
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    failure(target, server.sends("/busy", b"", 503))
    assert pauses == [1.0, 2.0]


def test_a_server_that_stays_busy_is_given_up_for_the_next(server, target):
    fetch_book(target, [server.sends("/busy", b"", 503), server.sends("/other", BOOK)])
    assert target.read_bytes() == BOOK
    assert server.paths() == ["/busy"] * 3 + ["/other"]


def test_a_file_that_is_not_there_is_not_asked_for_again(server, target):
    assert "404" in failure(target, server.sends("/missing", b"", 404))
    assert server.paths() == ["/missing"]


def test_a_download_cut_off_is_tried_again(server, target):
    def answer(handler, before):
        send(handler, BOOK[:100_000] if before == 0 else BOOK, length=len(BOOK))

    fetch_book(target, [server.on("/book", answer)])
    assert target.read_bytes() == BOOK
    assert server.paths() == ["/book"] * 2


def test_a_download_cut_off_each_time_leaves_nothing(server, target):
    url = server.on("/book", lambda handler, _: send(handler, BOOK[:100_000], length=len(BOOK)))
    assert f"broke off after 100000 of {len(BOOK)} bytes" in failure(target, url)
    assert server.paths() == ["/book"] * download.TRIES


def test_a_connection_that_is_closed_without_an_answer_is_an_error(server, target):
    server.on("/book", lambda handler, _: None)
    assert "127.0.0.1" in failure(target, server.url + "/book")


def test_a_server_that_stalls_in_the_middle_is_given_up(server, target, monkeypatch):
    monkeypatch.setattr(download, "STALL_SECONDS", 0.15)

    def answer(handler, before):
        send(handler, BOOK[:100_000], length=len(BOOK))
        server.closing.wait()

    begin = time.perf_counter()
    assert "broke off" in failure(target, server.on("/book", answer))
    assert time.perf_counter() - begin < 3


def test_a_server_that_does_not_answer_is_given_up_for_the_next(server, target, monkeypatch):
    monkeypatch.setattr(download, "ANSWER_SECONDS", 0.2)
    silent = server.on("/silent", lambda handler, _: server.closing.wait())
    begin = time.perf_counter()
    assert "no answer" in failure(target, silent)
    assert time.perf_counter() - begin < 2
    monkeypatch.setattr(download, "ANSWER_SECONDS", 1.0)
    fetch_book(target, [silent, server.sends("/book", BOOK)])
    assert target.read_bytes() == BOOK


def test_a_refused_connection_is_found_out_quickly(target, refused):
    begin = time.perf_counter()
    assert "127.0.0.1" in failure(target, refused)
    assert time.perf_counter() - begin < 1


def test_a_name_that_cannot_be_looked_up_is_found_out_quickly(target, monkeypatch):
    monkeypatch.setattr(download, "ANSWER_SECONDS", 0.5)
    begin = time.perf_counter()
    assert "nonexistent.invalid: " in failure(target, "https://nonexistent.invalid/pg2000.txt")
    assert time.perf_counter() - begin < 1.5


def test_the_error_says_what_each_address_answered(server, target, refused):
    message = failure(target, server.sends("/missing", b"", 404), refused)
    first, second = message.split("; ")
    assert "404" in first
    assert second.startswith(refused.split("/")[2])


# --- the wrong text -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"<!DOCTYPE html>\n<title>Log in to the network</title>\n" * 40_000, "not Don Quijote"),
        (b"", "not Don Quijote"),
        (BOOK.replace(b"El ingenioso hidalgo", b"Segunda parte del"), "not Don Quijote"),
        (BOOK.replace(download.FAMOUS_WORDS.encode(), b"In a village"), "not Don Quijote"),
        (book_of(1_000_000), "characters, not about 2110000"),
        (book_of(4_000_000), "characters, not about 2110000"),
        (b"\x1f\x8b\x08\x00" + BOOK, "not UTF-8"),
    ],
    ids=["html", "empty", "another book", "translation", "half", "double", "compressed"],
)
def test_another_text_is_not_taken_for_the_book(server, target, body, answer):
    assert answer in failure(target, server.sends("/wrong", body))
    assert server.paths() == ["/wrong"]


def test_after_the_wrong_text_comes_the_next_mirror(server, target):
    fetch_book(target, [server.sends("/wrong", b"<html></html>"), server.sends("/right", BOOK)])
    assert target.read_bytes() == BOOK


def test_a_failure_leaves_the_book_that_was_there(server, target):
    target.parent.mkdir()
    target.write_bytes(BOOK)
    with pytest.raises(DownloadError):
        fetch_book(target, [server.sends("/wrong", b"<html></html>")])
    assert target.read_bytes() == BOOK
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.skipif(not REAL_BOOK.is_file(), reason="the book is not here")
def test_the_real_book_is_the_right_one():
    check_book(REAL_BOOK)


# --- which corpus ---------------------------------------------------------------------------


def test_don_quijote_is_fetched_once(server, data):
    urls = [server.sends("/book", BOOK)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = find_corpus(data, "quijote", urls)
        again = find_corpus(data, "quijote", urls)
    assert server.paths() == ["/book"]
    assert first.name == again.name == "quijote"
    assert np.array_equal(first.train, again.train)
    assert first.tokenizer.decode(first.train[:46]) == download.TITLE + "\n"


def test_nobody_else_is_at_the_folder_while_the_book_is_fetched(server, data):
    answers = []

    def answer(handler: BaseHTTPRequestHandler, before: int) -> None:
        with pytest.raises(UserError, match=f"quijote is in use by process {os.getpid()} on "):
            prepare_files([data / "apocrifo.txt"], data / "quijote")
        answers.append("kept out")
        send(handler, BOOK)

    # A lock of this process is another one's in another thread.
    find_corpus(data, "quijote", [server.on("/book", answer)])
    assert answers == ["kept out"]


def test_without_the_book_the_sample_corpus_takes_its_place_and_says_so(data, refused):
    with pytest.warns(UserWarning, match="DON QUIJOTE COULD NOT BE FETCHED") as caught:
        found = find_corpus(data, "quijote", [refused])
    message = str(caught[0].message)
    assert refused.split("/")[2] in message
    assert "data/apocrifo.txt" in message
    assert "python data/prepare.py" in message
    assert found.name == "apocrifo"
    assert found.tokenizer.decode(np.concatenate([found.train, found.val])) == LINE * 30
    assert not (data / "quijote").exists()


def test_the_book_is_tried_again_after_the_sample_corpus(server, data, refused):
    with pytest.warns(UserWarning, match="COULD NOT BE FETCHED"):
        find_corpus(data, "quijote", [refused])
    assert find_corpus(data, "quijote", [server.sends("/book", BOOK)]).name == "quijote"


def test_a_text_of_that_name_is_prepared_without_a_network(server, data):
    (data / "quijote.txt").write_text("mi ejemplar\n", encoding="utf-8")
    found = find_corpus(data, "quijote", [server.sends("/book", BOOK)])
    assert len(found.train) + len(found.val) == len("mi ejemplar\n")
    assert server.paths() == []


def test_another_corpus_is_never_fetched(server, data):
    with pytest.raises(MissingFile, match=r"no prepared corpus in .*novelas"):
        find_corpus(data, "novelas", [server.sends("/book", BOOK)])
    assert server.paths() == []


def test_without_the_book_and_the_sample_corpus_there_is_an_error(tmp_path, refused):
    with (
        pytest.warns(UserWarning, match="COULD NOT BE FETCHED"),
        pytest.raises(MissingFile, match="apocrifo"),
    ):
        find_corpus(tmp_path, "quijote", [refused])
