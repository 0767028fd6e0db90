"""The text that a checkpoint learned from: beside it, or one of those that are downloaded."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sancho.checkpoint import Checkpoint, pretrained
from sancho.errors import MissingFile, UserError
from sancho.run.learned import kept_corpus, learned_corpus
from sancho.text import sources
from sancho.text.corpus import Corpus


def checkpoint_of(corpus: Corpus) -> Checkpoint:
    return replace(
        pretrained(),
        corpus_name=corpus.name,
        corpus_sha256=corpus.sha256,
        corpus_lengths=corpus.lengths,
    )


def test_the_text_beside_a_checkpoint_is_read_as_it_stands(project):
    """It was clean; what would be cleaned off today stays."""
    ours = Corpus.of("mine", ["uno  \n" * 9, "dos\n" * 9])
    path = Path("best.safetensors")
    Path("corpus.txt").write_bytes(ours.text.encode())
    found = kept_corpus(path, checkpoint_of(ours))
    assert (found.name, found.text, found.lengths) == (ours.name, ours.text, ours.lengths)
    assert (found.sha256, found.val.tolist()) == (ours.sha256, ours.val.tolist())
    assert learned_corpus(path, checkpoint_of(ours)).text == ours.text


@pytest.mark.parametrize("lengths", [(54, 36), (36, 54), (90,), (89,), ()])
@pytest.mark.parametrize("change", [lambda text: text, lambda text: text.replace("o", "a", 1)])
def test_a_text_beside_a_checkpoint_that_is_another_is_an_error(project, lengths, change):
    ours = Corpus.of("mine", ["uno  \n" * 9, "dos\n" * 9])
    Path("corpus.txt").write_bytes(change(ours.text).encode())
    saved = replace(checkpoint_of(ours), corpus_lengths=lengths)
    if change("o") == "o" and lengths == ours.lengths:
        assert kept_corpus(Path("x"), saved)
        return
    with pytest.raises(UserError, match=r"corpus\.txt is not the text that x learned from; put"):
        kept_corpus(Path("x"), saved)


def test_a_refused_reading_is_no_damage(project, monkeypatch):
    ours = Corpus.of("mine", ["uno\n" * 9])
    Path("corpus.txt").write_bytes(ours.text.encode())

    def refusing(path: Path) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(Path, "read_bytes", refusing)
    for read in (kept_corpus, learned_corpus):
        with pytest.raises(OSError, match="Input/output error"):
            read(Path("x"), checkpoint_of(ours))


def test_a_checkpoint_that_lies_alone_asks_for_its_text_or_finds_it_by_name(project, monkeypatch):
    path = Path("best.safetensors")
    alone = checkpoint_of(Corpus.of("mine", ["uno\n" * 9]))
    assert kept_corpus(path, alone) is None
    words = r"best.safetensors learned from mine, but corpus.txt is not beside it; give .* --corpus"
    with pytest.raises(MissingFile, match=words):
        learned_corpus(path, alone)
    with pytest.raises(MissingFile, match="learned from a text without a name"):
        learned_corpus(path, replace(alone, corpus_name=""))
    text = "En un lugar de la Mancha\n"
    monkeypatch.setattr(sources, "fetch", lambda name: text)
    quijote = checkpoint_of(Corpus.of("quijote", [text]))
    assert kept_corpus(path, quijote) is None  # nothing is downloaded
    assert learned_corpus(path, quijote).text == text
    assert kept_corpus(path, quijote).text == text
    assert kept_corpus(path, replace(quijote, corpus_sha256="0" * 64)) is None
