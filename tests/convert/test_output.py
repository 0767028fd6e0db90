"""What a conversion writes: whole or not there, and never in the place of anything."""

import errno
import multiprocessing
import os
import shutil
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from conftest import ROOT, assert_refused, names_in, run, start_process
from golden.make import FOLDER

from sancho import checkpoint
from sancho.convert import output
from sancho.convert.output import new_folder
from sancho.convert.page import taken_apart, write_page
from sancho.errors import UserError
from sancho.shared.proof import UNPROVEN


@pytest.mark.parametrize("empty", [False, True])
def test_a_folder_appears_when_the_block_ends_well(tmp_path, empty):
    path, ordinary = tmp_path / "x", tmp_path / "ordinary"
    ordinary.mkdir()
    if empty:
        path.mkdir()
    with pytest.raises(KeyboardInterrupt), new_folder(path) as folder:
        (folder / "a").write_text("never whole")
        raise KeyboardInterrupt
    assert names_in(tmp_path) == ["ordinary", "x"][: 1 + empty]
    with new_folder(path) as folder:
        (folder / "b").write_text("1")
        assert not path.exists() or names_in(path) == []
    assert names_in(tmp_path) == ["ordinary", "x"]
    assert names_in(path) == ["b"]
    assert (path / "b").read_text() == "1"
    assert path.stat().st_mode == ordinary.stat().st_mode


def hold(path: Path, pipe: Connection) -> None:
    """Write a folder, but never come to its end."""
    with new_folder(path) as folder:
        (folder / "old").write_text("never whole")
        pipe.send("begun")
        pipe.recv()


def test_of_two_exports_one_is_refused_and_what_a_killed_one_left_is_removed(
    tmp_path, server_of_processes
):
    ours, theirs = multiprocessing.Pipe()
    process = start_process(hold, tmp_path / "x", theirs)
    try:
        assert ours.poll(60) and ours.recv() == "begun"
        with pytest.raises(UserError, match="is in use by another"), new_folder(tmp_path / "x"):
            pytest.fail("two are in")
        assert names_in(tmp_path / "x.sancho-new" / "x") == ["old"]
    finally:
        process.kill()
        process.join()
    assert names_in(tmp_path) == ["x.sancho-new"]
    with new_folder(tmp_path / "x") as folder:
        (folder / "b").write_text("1")
    assert names_in(tmp_path) == ["x"]
    assert names_in(tmp_path / "x") == ["b"]


@pytest.mark.parametrize("replaces", [True, False], ids=["posix", "windows"])
@pytest.mark.parametrize("empty", [True, False])
def test_where_the_new_folder_is_refused_its_place_the_old_one_stays(
    tmp_path, monkeypatch, replaces, empty
):
    path = tmp_path / "x"
    if empty:
        path.mkdir()
    monkeypatch.setattr(output, "REPLACES_FOLDERS", replaces)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    words = r"x: .* take its place \(Permission denied\); what was there is there still; choose"
    with pytest.raises(UserError, match=words), new_folder(path) as folder:
        (folder / "b").write_text("1")
    assert names_in(tmp_path) == ["x"] * empty
    assert not empty or names_in(path) == []


@pytest.mark.parametrize("replaces", [True, False], ids=["posix", "windows"])
def test_what_comes_into_the_folder_meanwhile_stays(tmp_path, monkeypatch, replaces):
    path = tmp_path / "x"
    path.mkdir()
    monkeypatch.setattr(output, "REPLACES_FOLDERS", replaces)
    with pytest.raises(UserError, match="what was there is there still"), new_folder(path) as new:
        (new / "b").write_text("1")
        (path / "mine").write_text("mine")
    assert names_in(tmp_path) == ["x"]
    assert (path / "mine").read_text() == "mine"


def test_only_what_an_export_left_is_removed(tmp_path):
    beside = tmp_path / "x.sancho-new"
    (beside / "x").mkdir(parents=True)
    (beside / "x" / "old").write_text("never whole")
    (beside / "mine").write_text("mine")
    with new_folder(tmp_path / "x") as folder:
        (folder / "b").write_text("1")
    assert names_in(tmp_path / "x") == ["b"]
    assert names_in(beside) == ["mine"]


@pytest.mark.skipif(os.name == "nt", reason="here: Windows has no such call for folders")
def test_what_is_whole_is_on_the_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    asked: list[object] = []
    replace = Path.replace

    def sync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        for path in (tmp_path, *tmp_path.rglob("*")):
            asked.extend([path] * os.path.samestat(path.stat(), status))

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", lambda *paths: asked.append("replace") or replace(*paths))
    with new_folder(tmp_path / "x") as folder:
        (folder / "inside").write_text("new")
    assert asked == [folder / "inside", folder, "replace", tmp_path]


def test_a_folder_takes_no_place_of_anything(tmp_path, monkeypatch):
    full, file, link, here = (tmp_path / name for name in ("full", "file", "link", "here"))
    for folder in (full, here, tmp_path / "empty"):
        folder.mkdir()
    (full / "mine").write_text("mine")
    file.write_text("mine")
    link.symlink_to(tmp_path / "empty")
    (tmp_path / "broken").symlink_to("nowhere")
    monkeypatch.chdir(here)
    before = names_in(tmp_path)
    for path, words in (
        (full, "not empty"),
        (file, "exists already"),
        (link, "or a link"),
        (tmp_path / "broken", "exists already"),
        (here, "the current folder"),
        (Path(), "the current folder"),
        (tmp_path / "no" / "x", "no does not exist"),
        (file / "x", "file does not exist"),
    ):
        with pytest.raises(UserError, match=words), new_folder(path):
            pytest.fail("it can't be made")
    assert names_in(tmp_path) == before
    assert (full / "mine").read_text() == file.read_text() == "mine"


THESIS = "<!doctype html>\n<title>Mi tesis, hecha con sancho-mini</title>\n"


@pytest.mark.parametrize(
    ("command", "name", "words"),
    [
        ("to-page", "thesis.html", "is there and is no page of sancho-mini; choose another name"),
        ("to-page", "link.html", "exists already; choose another name"),
        ("to-page", "folder", "is a folder"),
        ("to-onnx", "thesis.onnx", "exists already; choose another name"),
        ("to-onnx", "folder", "exists already; choose another name"),
    ],
)
def test_a_file_takes_no_place_of_anything(tmp_path, command, name, words):
    """But a page that of an older page."""
    if command == "to-onnx":
        pytest.importorskip("onnxscript")
    path = tmp_path / name
    for each in ("thesis.html", "thesis.onnx", "thesis.safetensors"):
        (tmp_path / each).write_text(THESIS)
    (tmp_path / "link.html").symlink_to(ROOT / "docs" / "index.html")
    (tmp_path / "folder").mkdir()
    before = names_in(tmp_path)
    done = run("convert.py", command, "--checkpoint", FOLDER / "mini.safetensors", "--output", path)
    assert_refused(done, "convert.py", words)
    assert names_in(tmp_path) == before
    assert path.is_dir() or path.is_symlink() or path.read_text() == THESIS
    assert (tmp_path / "link.html").is_symlink()


def test_a_page_takes_the_place_of_an_older_page(tmp_path):
    path = tmp_path / "sancho.html"
    shutil.copy(ROOT / "docs" / "index.html", path)
    saved = checkpoint.load(FOLDER / "mini.safetensors")
    write_page(saved, path, precision="float16")
    facts, _ = taken_apart(path.read_text(encoding="utf-8"))
    assert facts["characters"] == saved.characters
    assert names_in(tmp_path) == ["sancho.html"]


@pytest.mark.parametrize("command", ["to-page", "to-huggingface"])
def test_what_a_model_py_of_ones_own_computes_is_refused(tmp_path, command):
    saved = checkpoint.load(FOLDER / "mini.safetensors")
    checkpoint.save(tmp_path / "own", replace(saved, proof=UNPROVEN))
    args = ("--checkpoint", tmp_path / "own", "--output", tmp_path / "x")
    done = run("convert.py", command, *args)
    assert_refused(done, "convert.py", "no proof in the checkpoint")
    assert names_in(tmp_path) == ["own"]
