"""A text of one's own on top of a trained model, from the command line."""

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ARGS, assert_same_run, instead, run, succeed, watch_reports

from sancho import checkpoint

NEW_TEXT = "¿Qué kilómetro 8 dice el œil?\n" * 30
SHORT = "--max_iters 3 --batch_size 2 --eval_interval 1 --log_interval 1 --device cpu".split()


@pytest.fixture
def trained(project) -> Path:
    """A project with a tiny model."""
    succeed("train.py", *ARGS, "--max_iters=2")
    return project


def tune(text: str, *more: str) -> SimpleNamespace:
    Path("mine.txt").write_text(text, encoding="utf-8")
    line = ["--init_from=out/best.safetensors", "--corpus=mine.txt", "--out_dir=tuned"]
    return run("train.py", *instead([*line, *SHORT], *more))


def new_characters(result: SimpleNamespace) -> list[str]:
    return [line for line in result.err.splitlines() if "did not know: " in line]


def test_a_text_with_new_characters(trained):
    before = checkpoint.load(Path("out/best.safetensors"))
    tuned = tune(NEW_TEXT)
    assert tuned.status == 0, tuned.err
    (said,) = new_characters(tuned)
    best = checkpoint.load(Path("tuned/best.safetensors"))
    new = best.characters.removeprefix(before.characters)
    assert new == "".join(sorted(set(NEW_TEXT) - set(before.characters)))
    assert said.endswith(f": {' '.join(map(repr, new))}")
    this = "--checkpoint=tuned/best.safetensors"
    assert succeed("sample.py", this, "--start", new).out.startswith(new)
    succeed("convert.py", "to-page", this, "--output=page.html")
    again = tune(NEW_TEXT, "--init_from=tuned/best.safetensors", "--out_dir=again")
    assert again.status == 0, again.err
    assert not new_characters(again)


def test_of_thousands_of_new_characters_forty_are_listed(trained):
    ideographs = "".join(map(chr, range(0x4E00, 0x4E00 + 5000)))
    (said,) = new_characters(tune(ideographs, "--max_iters=1"))
    shown = " ".join(map(repr, ideographs[:40]))
    assert said == f"5,000 characters that the model did not know: {shown} …"


def test_such_a_run_goes_on_with_the_same_bits(trained, monkeypatch):
    tune(NEW_TEXT)
    Path("tuned").rename("at once")
    with monkeypatch.context() as patch:
        watch_reports(patch, lambda report: signal.raise_signal(signal.SIGINT))
        assert tune(NEW_TEXT).status == 130
    assert checkpoint.load(Path("tuned/last.safetensors")).progress.step == 1
    assert not new_characters(succeed("train.py", "--resume", "--out_dir=tuned", "--device=cpu"))
    assert_same_run(Path("tuned"), Path("at once"))
