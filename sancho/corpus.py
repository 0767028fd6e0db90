"""The prepared corpus: a folder with a clean text, the ids of its two parts, and meta.json."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sancho.errors import MissingFile, UserError, note
from sancho.files import atomic_write
from sancho.tokenizer import CharTokenizer

# What reading a changed meta.json can raise.
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OSError, OverflowError, RecursionError)
PIECE = 2**20  # ids that are counted at once
MOST_COUNTED = 2**28  # bytes of a corpus that are counted when it is checked
LEAST = 20  # characters; shorter files of a corpus have no validation part


@dataclass(frozen=True)
class Corpus:
    """A prepared folder, as training reads it."""

    name: str
    tokenizer: CharTokenizer
    train: np.ndarray
    """Ids of the first nine tenths (of each file, if there are several), (n,), memory-mapped."""
    val: np.ndarray
    """Ids of the last tenth (of each file, if there are several), (n,), memory-mapped."""
    sha256: str
    """Digest of the clean text in UTF-8, followed by the lengths of the files if it has several."""
    source: str = ""
    """Where the text comes from: the names of its files, or an address."""
    file_sha256: str = ""
    """Digest of the bytes of its file, if it has only one."""
    n_files: int = 1
    """Number of files whose last tenths are the validation part."""
    counts: np.ndarray | None = None
    """How often each id occurs in both parts, (V,); None if they were not counted."""

    def check(self) -> None:
        """Raise UserError if the ids on disk are not those that were prepared.

        A corpus of more than MOST_COUNTED bytes is not checked here: its ids are compared with the
        vocabulary as batches are read.
        """
        if self.counts is None or self.train.nbytes + self.val.nbytes > MOST_COUNTED:
            return
        found = np.zeros(len(self.counts), np.int64)
        for part in (self.train, self.val):
            for first in range(0, len(part), PIECE):
                require_ids(part[first : first + PIECE], self)
                found += np.bincount(part[first : first + PIECE], minlength=len(found))
        if (found != self.counts).any():
            other = self.tokenizer.characters[int((found != self.counts).argmax())]
            raise damaged(self.name, f"{other!r} does not occur as often as in the text")


def damaged(name: str | Path, why: object) -> UserError:
    """Return the error for a prepared folder whose files were changed."""
    advice = "remove the folder, and prepare the text again"
    return UserError(f"the corpus in {name} is damaged ({why}); {advice}")


def require_ids(ids: np.ndarray, corpus: Corpus) -> None:
    """Raise UserError for ids that the vocabulary of a corpus does not have."""
    highest = int(ids.max(initial=0))
    if highest >= corpus.tokenizer.vocab_size:
        raise damaged(corpus.name, f"its ids go up to {highest}, but it has no such character")


def write_corpus(
    text: str,
    folder: str | Path,
    source: str,
    file_sha256: str = "",
    files: Sequence[tuple[str, int]] = (),
) -> Corpus:
    """Write input.txt, train.bin, val.bin and meta.json into `folder` and return the corpus.

    text: the clean text. source: where it comes from. file_sha256: digest of the bytes of its file,
    if it has only one. files: if it has several, the name and number of characters of each, in
    order; the last tenth of each file is validation, unless the file is shorter than LEAST.
    meta.json is removed before the other files are replaced, and written after them: a folder
    without it does not count as prepared.
    Raises UserError if there is no text at all; the folder is then left as it was.
    """
    if not text:
        raise UserError(f"{source} contains no text; give a file that does")
    tokenizer = CharTokenizer.from_text(text)
    if tokenizer.vocab_size > 65536:
        many = f"{source} has {tokenizer.vocab_size} different characters"
        raise UserError(f"{many}; give a text with at most 65536")
    ids = tokenizer.look_up(text).astype(tokenizer.id_type)
    is_val = np.zeros(len(ids), dtype=bool)
    end = 0
    for _, length in files or [("", len(ids))]:
        end += length
        n_val = length // 10 if length >= LEAST or not files else 0
        is_val[end - n_val : end] = True
    raw = text.encode()
    lengths = json.dumps([length for _, length in files]) if files else ""
    meta = {
        "characters": tokenizer.characters,
        "counts": np.bincount(ids).tolist(),
        "n_train": int((~is_val).sum()),
        "n_val": int(is_val.sum()),
        "sha256": hashlib.sha256(raw + lengths.encode()).hexdigest(),
        "source": source,
        "file_sha256": file_sha256,
        "split": "by file" if files else "whole",
        "files": [{"name": name, "characters": length} for name, length in files],
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        atomic_write(folder / "input.txt") as out,
        atomic_write(folder / "train.bin") as train,
        atomic_write(folder / "val.bin") as val,
    ):
        out.write(raw)
        train.write(ids[~is_val].tobytes())
        val.write(ids[is_val].tobytes())
        (folder / "meta.json").unlink(missing_ok=True)
    with atomic_write(folder / "meta.json") as out:
        # A file's name may have bytes that are not UTF-8.
        out.write(json.dumps(meta, ensure_ascii=False, indent=1).encode(errors="backslashreplace"))
    return read_corpus(folder)


def is_prepared(folder: str | Path) -> bool:
    """Return whether a folder holds a corpus."""
    return Path(folder, "meta.json").is_file()


def read_corpus(folder: str | Path) -> Corpus:
    """Open a prepared folder; the ids stay on disk and are read as they are used.

    Raises MissingFile where it was not prepared, UserError where its files do not agree.
    """
    folder = Path(folder)
    if not is_prepared(folder):
        there = sorted(path.parent.name for path in folder.parent.glob("*/meta.json"))
        others = f" (only {', '.join(there)})" if there else ""
        raise MissingFile(
            f"there is no prepared corpus in {folder}{others}; prepare a text (data/prepare.py "
            f"--input FILE --name {folder.name}), or give its file as --corpus FILE"
        )
    try:
        meta = _read_meta(folder)
        corpus = _corpus_of(folder, meta)
        # Another process that prepares it removes meta.json first and writes it last.
        if _read_meta(folder) == meta:
            return corpus
    except DAMAGE as error:
        if is_prepared(folder):
            why = f"{error} is missing" if isinstance(error, KeyError) else error
            raise damaged(folder, why) from None
    raise UserError(f"{folder} is being prepared by another process; try again when that has ended")


def _corpus_of(folder: Path, meta: dict) -> Corpus:
    tokenizer = CharTokenizer(meta["characters"])
    counts = np.array(meta["counts"])
    is_counted = counts.shape == (tokenizer.vocab_size,) and counts.dtype.kind == "i"
    if not is_counted or counts.min() < 1 or counts.sum() != meta["n_train"] + meta["n_val"]:
        raise ValueError("the counts in meta.json are not those of the text")
    if not re.fullmatch("[0-9a-f]{64}", meta["sha256"]):
        raise ValueError(f"its sha256 is {meta['sha256']!r}")
    files = meta.get("files", [])
    if "split" not in meta and not meta["file_sha256"] and ", " in meta["source"]:
        note(
            f"{folder} was prepared by an earlier version: its validation part is the last tenth "
            "of all its files together; if you prepare it again, it is the last tenth of each"
        )
    return Corpus(
        name=folder.name,
        tokenizer=tokenizer,
        train=_map(folder / "train.bin", tokenizer.id_type, meta["n_train"]),
        val=_map(folder / "val.bin", tokenizer.id_type, meta["n_val"]),
        sha256=meta["sha256"],
        source=str(meta["source"]),
        file_sha256=str(meta["file_sha256"]),
        n_files=max(1, len(files)),
        counts=counts,
    )


def _read_meta(folder: Path) -> dict:
    return json.loads((folder / "meta.json").read_text(encoding="utf-8"))


def _map(path: Path, id_type: np.dtype, length: int) -> np.ndarray:
    size = path.stat().st_size
    if size != length * id_type.itemsize:
        raise ValueError(f"{path.name} has {size} bytes, not {length * id_type.itemsize}")
    # An empty file can't be mapped.
    return np.memmap(path, id_type, "c", shape=(length,)) if length else np.zeros(0, id_type)


def remap_ids(corpus: Corpus, tokenizer: CharTokenizer) -> Corpus:
    """Return the corpus in the ids of another vocabulary, read into memory.

    Raises UserError naming the characters that the other one lacks.
    """
    if tokenizer.characters == corpus.tokenizer.characters:
        return corpus
    if missing := sorted(set(corpus.tokenizer.characters) - set(tokenizer.characters)):
        raise UserError(
            f"the model does not know these characters of {corpus.name}: {missing[:20]}; take them "
            "out of the text, or train the model on it first (train.py --init_from)"
        )
    new_id = tokenizer.look_up(corpus.tokenizer.characters).astype(tokenizer.id_type)
    train, val = new_id[corpus.train], new_id[corpus.val]
    return replace(corpus, tokenizer=tokenizer, train=train, val=val, counts=None)


def require_length(corpus: Corpus, block_size: int, *, is_fixed: bool = False) -> None:
    """Raise UserError if the text is too short for one window of training and one of validation.

    is_fixed: whether the block_size belongs to a trained model.
    """
    length = len(corpus.train) + len(corpus.val)
    if len(corpus.val) < 2:
        least = f"a text needs at least {LEAST}: give a longer one"
        if corpus.n_files > 1:
            least = f"none of its {corpus.n_files} files has {LEAST}: give longer ones"
        raise UserError(f"the corpus {corpus.name} has {length} characters, but {least}")
    if len(corpus.train) <= block_size:
        needed = block_size * 10 // 9 + 1  # a tenth, rounded down, is validation
        raise UserError(
            f"the corpus {corpus.name} has {length} characters, but --block_size {block_size} "
            f"needs at least {needed}: give a longer text"
            + (", or train a model of your own" if is_fixed else " or a smaller --block_size")
        )
