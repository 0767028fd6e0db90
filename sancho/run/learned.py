"""The text that a checkpoint learned from: beside it, or one of those that are downloaded."""

from pathlib import Path

from sancho.checkpoint import Checkpoint
from sancho.errors import MissingFile, UserError
from sancho.machine.files import existing_file
from sancho.text import sources
from sancho.text.corpus import Corpus, digest

CORPUS = "corpus.txt"
"""The file beside its checkpoints in which a run keeps its text."""


def kept_corpus(path: Path, saved: Checkpoint) -> Corpus | None:
    """Return the text that a checkpoint learned from if it is on this computer, or else None.

    It is CORPUS beside the checkpoint at `path`, which is read as it stands, or a text of ONLINE.
    Raises UserError if CORPUS is another text.
    """
    beside = path.with_name(CORPUS)
    if beside.exists():
        return _read(existing_file(beside, "the text"), path, saved)
    if (
        saved.corpus_name in sources.ONLINE
        and Path(sources.DATA, f"{saved.corpus_name}.txt").is_file()
    ):
        found = sources.corpus_of(saved.corpus_name)
        return found if found.sha256 == saved.corpus_sha256 else None
    return None


def learned_corpus(path: Path, saved: Checkpoint) -> Corpus:
    """Return the text that a checkpoint learned from; one of ONLINE is downloaded if it is missing.

    Raises UserError if CORPUS beside the checkpoint is another text, and MissingFile, which asks
    for --corpus, if the text is not here. A text of ONLINE may have changed since.
    """
    found = kept_corpus(path, saved)
    if found is None and saved.corpus_name in sources.ONLINE:
        return sources.corpus_of(saved.corpus_name)
    if found is None:
        learned = f"{path} learned from {saved.corpus_name or 'a text without a name'}"
        raise MissingFile(f"{learned}, but {CORPUS} is not beside it; give its text as --corpus")
    return found


def _read(beside: Path, path: Path, saved: Checkpoint) -> Corpus:
    """Return the corpus of the text that a run keeps, divided as it was."""
    raw = beside.read_bytes()
    text = raw.decode(errors="replace")
    lengths = saved.corpus_lengths
    if sum(lengths) != len(text) or digest(raw, lengths) != saved.corpus_sha256:
        advice = "put that text back, or move this one away and give the text as --corpus"
        raise UserError(f"{beside} is not the text that {path} learned from; {advice}")
    texts = []
    begin = 0
    for length in lengths:
        texts.append(text[begin : begin + length])
        begin += length
    return Corpus.of(saved.corpus_name, texts)
