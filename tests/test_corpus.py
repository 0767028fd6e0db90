"""From raw bytes to clean text, to a folder, to arrays."""

import hashlib
import json
import os
import re
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from http.client import IncompleteRead
from itertools import count, product
from pathlib import Path

import numpy as np
import pytest
from conftest import contents, names_in, stream

from sancho import corpus, files, sources
from sancho.checkpoint import pretrained
from sancho.config import CorpusConfig
from sancho.corpus import Corpus, read_corpus
from sancho.errors import MissingFile, UserError
from sancho.sources import corpus_of, find_corpus, is_folder_name, prepare_files
from sancho.text import clean_text
from sancho.tokenizer import CharTokenizer


def text_of(result: Corpus) -> str:
    return result.tokenizer.decode(np.concatenate([result.train, result.val]))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.fixture
def prepared(tmp_path):
    def prepare_text(text: str) -> Corpus:
        return corpus.write_corpus(clean_text(text), tmp_path / "corpus", "a source")

    return prepare_text


def gutenberg(body: str) -> str:
    of = "OF THE PROJECT GUTENBERG EBOOK NOVELAS ***"
    return f"Title: Novelas\nLicence\n*** START {of}\n{body}\n*** END {of}\nMore licence\n"


def test_a_corpus_is_four_files(prepared, tmp_path):
    text = "En un\nlugar de la Mancha. Qué 🐴\n"
    folder = tmp_path / "corpus"
    result = prepared("En un  \nlugar de la Mancha. Que\u0301 🐴\n\n")
    assert sorted(contents(folder)) == ["input.txt", "meta.json", "train.bin", "val.bin"]
    assert text_of(result) == text
    assert (folder / "input.txt").read_bytes() == text.encode()
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert (result.name, result.sha256) == ("corpus", digest)
    characters = "".join(sorted(set(text)))
    assert json.loads((folder / "meta.json").read_text(encoding="utf-8")) == {
        "characters": characters,
        "counts": [text.count(c) for c in characters],
        "n_train": 29,
        "n_val": 3,
        "sha256": digest,
        "source": "a source",
        "file_sha256": "",
        "split": "whole",
        "files": [],
    }


@pytest.mark.parametrize("length", [2, 9, 10, 11, 19, 20, 99, 100, 12345])
def test_the_last_tenth_is_for_validation(prepared, length):
    text = ("abcdefghij" * 2000)[: length - 1] + "\n"
    result = prepared(text)
    assert (len(result.train), len(result.val)) == (length - length // 10, length // 10)
    assert text_of(result) == text


def test_a_text_may_have_65536_characters_and_no_more(prepared):
    # Ideographs, which have no accents that could be joined.
    characters = "".join(map(chr, (*range(0x20000, 0x2A000), *range(0x30000, 0x36000))))
    result = prepared(characters[:-1] + "\n")
    assert result.tokenizer.vocab_size == 65536
    assert text_of(result) == characters[:-1] + "\n"
    with pytest.raises(
        UserError, match="a source has 65537 different characters; give a text with at most 65536"
    ):
        prepared(characters)
    with pytest.raises(UserError, match="a source contains no text"):
        prepared(" \n\t\n")
    assert read_corpus(result.train.filename.parent).tokenizer.vocab_size == 65536


def test_several_files_are_one_text_in_the_order_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path("uno.txt"), "\ufeffuno\r\n\r\n")
    write(Path("dos.txt"), gutenberg("dos"))
    monkeypatch.setattr(sys, "stdin", stream("\ufefftres".encode()))
    result = prepare_files(["uno.txt", tmp_path / "dos.txt", "-"], tmp_path / "corpus")
    assert text_of(result) == "uno\ndos\ntres\n"
    meta = json.loads((tmp_path / "corpus" / "meta.json").read_text(encoding="utf-8"))
    assert meta["source"] == "uno.txt, dos.txt, standard input"
    # The one that is wrong is named.
    monkeypatch.setattr(sys, "stdin", stream(b"mal\xff"))
    with pytest.raises(UserError, match=r"^standard input .* offset 3;"):
        prepare_files(["uno.txt", "-"], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_loaded_ids_stay_on_the_disk_and_writing_to_them_does_not_reach_it(prepared, tmp_path):
    result = prepared("En un lugar de la Mancha\n" * 10)
    before = contents(tmp_path / "corpus")
    for ids in (result.train, result.val):
        assert type(ids) is np.memmap
        ids[:] = 0
        ids.flush()
    assert contents(tmp_path / "corpus") == before


@pytest.mark.skipif(sys.platform == "win32", reason="here: Windows replaces no file that is open")
def test_a_corpus_that_is_open_stays_what_it_is_while_it_is_prepared_anew(prepared):
    """A run may be reading it: to cut its file off would kill the run (SIGBUS)."""
    text = "En un lugar de la Mancha\n" * 400
    before = prepared(text)
    assert text_of(prepared("Dulcinea\n")) == "Dulcinea\n"
    assert text_of(before) == text


@pytest.mark.parametrize("failing", range(1, 5))
def test_a_crash_while_the_files_are_replaced_leaves_no_mixture(prepared, tmp_path, failing):
    """meta.json goes before the others and comes last."""
    prepared("En un lugar de la Mancha\n")
    folder = tmp_path / "corpus"
    moves = count(1)
    replace_file = Path.replace

    def crash(path: Path, target: Path) -> Path:
        if next(moves) == failing:
            raise KeyboardInterrupt
        return replace_file(path, target)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", crash)
        prepared("No ha mucho tiempo que v\n")  # as long
    assert sorted(contents(folder)) == ["input.txt", "train.bin", "val.bin"]
    with pytest.raises(MissingFile):
        read_corpus(folder)
    assert text_of(prepared("Dulcinea\n")) == "Dulcinea\n"


def test_who_opens_a_folder_that_is_prepared_anew_gets_no_mixture(prepared, monkeypatch):
    folder = prepared("En un lugar de la Mancha\n").train.filename.parent
    map_file = corpus._map
    opened = []

    def map_beside_another(path: Path, *args: object) -> np.ndarray:
        opened.append(path)
        if len(opened) == 2:  # between train.bin and val.bin
            prepared("No ha mucho tiempo que v\n")  # as long
        return map_file(path, *args)

    monkeypatch.setattr(corpus, "_map", map_beside_another)
    with pytest.raises(UserError, match=r"corpus is being prepared by another process; try again"):
        read_corpus(folder)


IDS = product(["train.bin", "val.bin"], [None, b"", b"x", b"x" * 999])
META = [b"", b"[]", b'{"characters": "ab"}', b"\xff", {"characters": "aa"}, {"n_train": None}]


@pytest.mark.parametrize(("name", "wrong"), [*IDS, *product(["meta.json"], META)])
def test_a_folder_whose_files_do_not_fit_is_damaged(prepared, tmp_path, name, wrong):
    prepared("En un lugar de la Mancha\n" * 10)
    path = tmp_path / "corpus" / name
    if isinstance(wrong, dict):
        wrong = json.dumps(json.loads(path.read_bytes()) | wrong).encode()
    path.unlink() if wrong is None else path.write_bytes(wrong)
    words = name if name.endswith(".bin") else ""
    with pytest.raises(UserError, match=rf"is damaged \(.*{words}.*\); remove the folder, and pre"):
        read_corpus(tmp_path / "corpus")


@pytest.mark.parametrize("more", ["¿ABC", "".join(map(chr, range(0x20000, 0x20000 + 300)))])
def test_the_same_text_in_the_ids_of_another_vocabulary(prepared, more):
    ours = prepared("bxy x\u0303 b\u0301 q\u0301 x\u0327 oq\u0301 q")
    theirs = CharTokenizer("".join(sorted({*ours.tokenizer.characters, *more})))
    result = corpus.remap_ids(ours, theirs)
    assert text_of(result) == text_of(ours)
    assert result.tokenizer is theirs
    assert result.train.dtype == result.val.dtype == theirs.id_type
    assert (result.name, result.sha256) == (ours.name, ours.sha256)
    assert corpus.remap_ids(ours, CharTokenizer(ours.tokenizer.characters)) is ours


@pytest.mark.parametrize("block_size", [18, 27, 64, 96, 99, 256, 1000])
def test_the_length_that_is_asked_for_is_the_shortest_that_works(block_size):
    def require(length: int) -> None:
        val, train = np.split(np.zeros(length), [length // 10])
        corpus.require_length(Corpus("breve", CharTokenizer("a"), train, val, ""), block_size)

    needed = block_size * 10 // 9 + 1
    require(needed)
    words = f"corpus breve has {needed - 1} characters, but --block_size {block_size} needs at lea"
    with pytest.raises(UserError, match=f"{words}st {needed}: "):
        require(needed - 1)
    # A trained model's block can't be made smaller.
    val, train = np.split(np.zeros(20), [2])
    short = Corpus("breve", CharTokenizer("a"), train, val, "")
    with pytest.raises(UserError, match=r"give a longer text, or train a model of your own$"):
        corpus.require_length(short, block_size, is_fixed=True)
    with pytest.raises(UserError, match="breve has 19 characters, but a text needs at least 20:"):
        require(19)


TITLE = "El ingenioso hidalgo don Quijote de la Mancha"
LINE = "que no quiero acordarme, no ha mucho tiempo que vivía un hidalgo\n"
BOOK = gutenberg(f"{TITLE}\n\n" + LINE * 3)


@pytest.fixture
def data(tmp_path) -> Path:
    """A data folder that holds the sample corpus only."""
    return write(tmp_path / "data" / "apocrifo.txt", LINE * 30).parent


def open_from(data: Path, *texts: str | bytes | None, name: str = "quijote") -> Corpus:
    """Open a corpus whose addresses have these texts; there is no network."""
    addresses = []
    for number, text in enumerate(texts):
        path = data.parent / f"{number} on the net"
        if text is not None:
            path.write_bytes(text.encode() if isinstance(text, str) else text)
        addresses.append(path.as_uri())
    with pytest.MonkeyPatch.context() as patch:
        online = replace(sources.ONLINE[name], addresses=tuple(addresses))
        if name == "quijote":
            online = replace(online, lengths=range(200, 300))
        patch.setitem(sources.ONLINE, name, online)
        return find_corpus(data, name)


def test_don_quijote_as_project_gutenberg_has_it(tmp_path, book, monkeypatch):
    online = replace(sources.ONLINE["quijote"], addresses=(book.as_uri(),))
    monkeypatch.setitem(sources.ONLINE, "quijote", online)
    result = find_corpus(tmp_path, "quijote")
    assert (len(result.train), len(result.val)) == (1_899_635, 211_070)
    assert result.tokenizer.vocab_size == 92
    assert result.sha256 == pretrained().corpus_sha256


def test_a_text_is_fetched_once_from_the_first_address_that_has_it(data, caplog):
    first = open_from(data, None, "<html>", BOOK)
    assert [line[:31] for line in caplog.messages] == ["note: downloading quijote from "] * 3
    again = open_from(data)
    assert first.name == again.name == "quijote"
    assert text_of(first) == text_of(again) == f"{TITLE}\n\n" + LINE * 3


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        ("<!DOCTYPE html>\n<title>Log in</title>\n" * 6, "the answer is a web page"),
        (BOOK.replace(TITLE, f"Segunda parte, {TITLE}"), "beginning 'Segunda parte"),
        (BOOK.replace(LINE, "", 2), "text (112 characters, beginning 'El ingenioso"),
        (b"\x1f\x8b\x08\x00" + BOOK.encode(), "the answer is a gzip file"),
        (None, "No such file"),
    ],
    ids="html another short compressed missing".split(),
)
def test_without_the_book_the_sample_corpus_takes_its_place_and_says_so(
    data, wrong, answer, caplog
):
    found = open_from(data, wrong)
    (message,) = (line for line in caplog.messages if "BE DOWNLOADED" in line)
    for part in ("DON QUIJOTE COULD NOT BE DOWNLOADED (", answer, "data/apocrifo.txt"):
        assert part in message
    assert found.name == "apocrifo"
    assert text_of(found) == LINE * 30
    # Nothing there that could be taken for a corpus; and it is tried again.
    assert contents(data / "quijote") == {}
    assert open_from(data, BOOK).name == "quijote"


def test_no_other_text_is_taken_for_shakespeare(data):
    wrong = sources.ONLINE["shakespeare"].beginning.ljust(1_115_389, "x") + "\n"
    words = r"another text \(1115390 characters, beginning 'First Citizen"
    with pytest.raises(sources.FetchError, match=words):
        open_from(data, wrong, name="shakespeare")


def test_the_error_says_what_a_server_answered(monkeypatch):
    def answer(request: urllib.request.Request, timeout: float):
        assert timeout <= 60  # a server that says nothing is given up
        raise IncompleteRead(b"half of it", 999)

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    words = r": IncompleteRead\(10 bytes read, 999 more expected\)\); get https://"
    with pytest.raises(sources.FetchError, match=words):
        sources.fetch("shakespeare")


@pytest.mark.parametrize("name", ["quijote", "novelas"])
def test_a_text_of_that_name_is_prepared_once_and_an_edited_one_is_noticed(data, monkeypatch, name):
    monkeypatch.delattr(sources, "fetch")
    text = write(data / f"{name}.txt", "lo de antes\n")
    for _ in range(2):
        assert text_of(find_corpus(str(data), name)) == "lo de antes\n"
        os.utime(text)
    write(text, "lo de ahora\n")
    again = (
        rf"{name}\.txt has changed since .* prepare it again \(\S+ \S*prepare\.py --input .*--over"
    )
    with pytest.raises(UserError, match=again):
        find_corpus(data, name)
    prepare_files([str(text)], str(data / name))
    assert text_of(find_corpus(data, name)) == "lo de ahora\n"
    text.unlink()
    assert text_of(find_corpus(data, name)) == "lo de ahora\n"


def opened(data: Path, path: Path, encoding: str = "UTF-8") -> Path:
    """Open a text of the user's; return the folder, which may hold no other text."""
    result = corpus_of(data, CorpusConfig(corpus=path, encoding=encoding))
    codec = {"UTF-8": b"utf-8", "utf8": b"utf-8", "latin-1": b"iso8859-1"}[encoding]
    digest = hashlib.sha256(codec + path.read_bytes()).hexdigest()
    assert re.fullmatch(r"[\w.-]+", result.name) and result.name.endswith(f"-{digest[:8]}")
    assert text_of(result) == path.read_bytes().decode(encoding)
    return data / result.name


def test_a_text_of_the_users_is_prepared_once_and_again_when_it_was_edited(tmp_path, data):
    mine = write(tmp_path / "mine.txt", "ñandú\n")
    first = opened(data, mine)
    assert first.name.startswith("mine-")
    made = (first / "meta.json").stat().st_mtime_ns
    for path in (mine, data / ".." / "mine.txt"):
        os.utime(path)
        assert opened(data, path) == opened(data, path, "utf8") == first
    assert opened(data, mine, "latin-1") != first
    assert opened(data, write(mine, "dos\n")) != first
    assert opened(data, write(mine, "ñandú\n")) == first
    assert (first / "meta.json").stat().st_mtime_ns == made


def test_one_process_prepares_and_who_has_waited_finds_it(data, monkeypatch):
    """Who wants to have the folder is let in after somebody else, who does the same."""
    mine = CorpusConfig(corpus=data / "apocrifo.txt")
    write_corpus = sources.write_corpus
    made = []
    monkeypatch.setattr(
        sources, "write_corpus", lambda *args: made.append(args) or write_corpus(*args)
    )

    @contextmanager
    def locked(folder: Path, timeout: float = 0.0):
        assert timeout >= 60  # a long text takes a while
        monkeypatch.setattr(sources, "locked", files.locked)
        corpus_of(data, mine)
        yield

    monkeypatch.setattr(sources, "locked", locked)
    corpus_of(data, mine)
    assert len(made) == 1


NAMES = ["con", "NUL", "mine.", "..", "la Mancha", "a:b|c*", "-x", os.fsdecode(b"m\xf3o")]


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="here: not all are names there")
@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_text_is_called_its_folder_is_one_under_data(tmp_path, data, name):
    folder = opened(data, write(tmp_path / f"{name}.txt", "uno\n"))
    assert folder.parent == data
    assert names_in(data) == sorted(["apocrifo.txt", folder.name])


def test_a_folder_or_a_pattern_means_its_texts_in_order(tmp_path, data, caplog):
    mine = tmp_path / "mine"
    for name in ("b.txt", "a.TXT", "c.md", "._b.txt"):
        write(mine / name, f"{name}\n")
    (mine / "more").mkdir()
    (mine / "gone.txt").symlink_to("nowhere")
    assert text_of(corpus_of(data, CorpusConfig(corpus=mine))) == "a.TXT\nb.txt\n"
    assert f"note: {mine}: 2 files, read as one text in the order of their names" in caplog.messages
    pattern = mine / "*.[tm]*"  # as a shell of Windows leaves it
    assert text_of(corpus_of(data, CorpusConfig(corpus=pattern))) == "b.txt\nc.md\n"
    pattern = tmp_path / "m*" / "b.*"
    assert text_of(corpus_of(data, CorpusConfig(corpus=pattern))) == "b.txt\n"
    both = prepare_files([mine, write(tmp_path / "d.txt", "d\n")], data / "both")
    assert text_of(both) == "a.TXT\nb.txt\nd\n"
    with pytest.raises(UserError, match=r"folder .*more has no \.txt file; give"):
        corpus_of(data, CorpusConfig(corpus=mine / "more"))
    with pytest.raises(MissingFile, match=r"x\*\.txt does not exist"):
        corpus_of(data, CorpusConfig(corpus=mine / "x*.txt"))


def test_where_nobody_may_write_in_data_a_text_is_prepared_in_the_current_folder(
    tmp_path, data, monkeypatch, caplog
):
    prepare_files([write(tmp_path / "uno.txt", "uno\n")], data / "uno")
    monkeypatch.chdir(tmp_path)
    mine = data.rename(tmp_path / "project")
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != mine)
    assert text_of(find_corpus(mine, "uno")) == "uno\n"  # what is there is read
    assert caplog.messages == ["uno begins with «uno»"]
    for _ in range(2):
        assert text_of(find_corpus(mine, "apocrifo")) == LINE * 30
    (said,) = (line for line in caplog.messages if "can't be written" in line)
    assert said.endswith(f"the prepared text goes to {Path('data', 'apocrifo')}")
    assert names_in(mine) == ["apocrifo.txt", "uno"]
    assert names_in(tmp_path / "data") == ["apocrifo"]


def test_a_new_text_is_shown_with_what_cannot_be_seen_in_it(tmp_path, data, caplog):
    text = "\x93Sancho\x94\n\n\ufffd\n".encode()
    prepare_files([write(tmp_path / "a.txt", text.decode())], data / "a")
    assert caplog.messages[0] == r"a begins with «\x93Sancho\x94»"
    assert caplog.messages[1].startswith("note: a has 2 C1 control characters (windows-1252 read")
    assert caplog.messages[1].endswith("), 1 lost characters (U+FFFD)")


def test_the_name_of_a_folder_is_a_text_and_no_path():
    """One with half a character could be written into no checkpoint."""
    for name in ("quijote", "El ñandú 2", ".x", "🐴"):
        assert is_folder_name(name)
    for name in ("", ".", "..", "a/b", "/a", "a/", "Don\udcf1", "\ud83d"):
        assert not is_folder_name(name)
