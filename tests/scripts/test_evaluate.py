"""evaluate.py as it is typed: its report, and the text that it scores."""

import json

import conftest
import pytest
from conftest import (
    TEXT,
    assert_refused,
    last_of,
    run,
    succeed,
)

import evaluate
from sancho import checkpoint
from sancho.loss import validation_loss
from sancho.shared.weights import count_parameters
from sancho.text import sources

pytestmark = pytest.mark.usefixtures("project")


def test_a_checkpoint_that_lies_alone_asks_for_its_text(trained):
    (trained / "corpus.txt").unlink()
    words = ["learned from tiny, but corpus.txt is not beside it; give its text as --corpus"]
    for line in ("train.py --resume", "evaluate.py --checkpoint out"):
        name, *args = line.split()
        assert_refused(run(name, *args), name, *words)
    said = succeed("evaluate.py", "--checkpoint=out", "--corpus=tiny.txt").err
    assert said == "note: the model learned from tiny: its validation part is scored\n"
    succeed("train.py", "--resume", "--corpus=tiny.txt", "--max_iters=7")
    assert (trained / "corpus.txt").read_text("utf-8") == TEXT
    succeed("train.py", "--resume", "--max_iters=8")


def test_evaluate_tells_a_reader_or_a_program(trained, monkeypatch):
    monkeypatch.setattr(evaluate, "SAMPLE_LENGTH", 30)
    monkeypatch.setattr(evaluate, "LEAST_COMPARED", 100)
    result = succeed("evaluate.py")
    assert result.err == ""
    assert "validation loss" in result.out and "the author" in result.out
    about = " ".join(result.out.partition("\nThe text that was scored is ")[2].split())
    parameters = count_parameters(last_of("out").model_config)
    assert about.startswith(f"tiny. The model has {parameters:,} parameters and learned from tiny ")
    changed = "block_size 8, n_layer 1, n_embd 8, ngram_rows 16, ngram_dropout 0.1, batch_size 2"
    assert about.endswith(f"in 6 steps, with the options of the preset mini except {changed}.")
    result = succeed("evaluate.py", "--checkpoint", "out/best.safetensors", "--json")
    loss = checkpoint.load("out/best.safetensors").progress.val_loss
    assert json.loads(result.out)["loss"] == pytest.approx(loss, abs=1e-5)


def test_evaluate_scores_all_of_a_text_of_ones_own_and_writes_nothing(
    project, trained, monkeypatch
):
    monkeypatch.setattr(evaluate, "SAMPLE_LENGTH", 30)
    saved = checkpoint.load("out/best.safetensors")
    text = "".join(sorted(set(TEXT) - {"\n"})) * 60 + "\n"
    (project / "own.txt").write_text(text, encoding="utf-8")
    (project / "short.txt").write_text(text[-1000:], encoding="utf-16")
    (project / "strange.txt").write_text(f"{text}ψ", encoding="utf-8")
    (project / "empty.txt").write_text(" \n", encoding="utf-8")
    before = conftest.everything(project)
    result = succeed("evaluate.py", "--corpus", "own.txt")
    loss = validation_loss(saved.build_model(), saved.tokenizer.encode(text))
    assert result.out.startswith(f"validation loss {loss:.4f} nats")
    assert f", over {len(text):,} characters, in windows of 8\n" in result.out
    trained_on = len(sources.corpus_of("tiny").train)
    assert f"{len(text):,} of the author's and {trained_on:,} of the training part" in result.out
    line = ["--corpus=short.txt", "--encoding=utf-16", "--json"]
    short = json.loads(succeed("evaluate.py", *line).out)
    assert short["characters"]["validation"] == 1000
    refused = run("evaluate.py", "--corpus=strange.txt")
    assert_refused(refused, "evaluate.py", "unknown to this model: 'ψ' at", "go on with --unknown")
    skipped = succeed("evaluate.py", "--corpus=strange.txt", "--unknown=skip").out
    assert f"over {len(text) + 1:,} characters" in skipped  # with the line break after the ψ
    refused = run("evaluate.py", "--corpus=empty.txt")
    assert_refused(refused, "evaluate.py", "empty contains no text; give a file that does")
    assert_refused(run("evaluate.py", "--encoding=utf-16"), "evaluate.py", "--corpus names a file")
    assert conftest.everything(project) == before
    (trained / "corpus.txt").unlink()
    said = succeed("evaluate.py", "--corpus", "own.txt").out
    assert f"validation loss {loss:.4f} nats" in said
    assert "to compare it with: the text that the model learned from is not here." in said
