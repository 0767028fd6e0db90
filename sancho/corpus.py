"""The prepared corpus: a folder with a clean text, the ids of its two parts, and what it is."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sancho.errors import MissingFile, UserError
from sancho.files import atomic_write
from sancho.tokenizer import CharTokenizer


@dataclass(frozen=True)
class Corpus:
    """A prepared folder, as training reads it."""

    name: str
    tokenizer: CharTokenizer
    train: np.ndarray
    """Ids of the first nine tenths, (n,), memory-mapped."""
    val: np.ndarray
    """Ids of the last tenth, (n,), memory-mapped."""
    sha256: str
    """Of the clean text in UTF-8."""
    source: str = ""
    """Where the text is from, in words: the name of its file."""
    file_sha256: str = ""
    """Of the bytes of that file, if it is one."""


def write_corpus(text: str, folder: str | Path, source: str, file_sha256: str = "") -> Corpus:
    """Write input.txt, train.bin, val.bin and meta.json into `folder` and return the corpus.

    text: clean. source: where it is from, in words. file_sha256: of the bytes of its one file.
    meta.json is removed before and written after the others are replaced: a folder without it does
    not count as prepared.
    Raises UserError where there is no text at all; the folder is then as it was before.
    """
    if not text:
        raise UserError(f"{source} holds no text; give a file with something to read")
    tokenizer = CharTokenizer.from_text(text)
    if tokenizer.vocab_size > 65536:
        many = f"{source} has {tokenizer.vocab_size} different characters"
        raise UserError(f"{many}; at most 65536 work")
    ids = tokenizer.look_up(text).astype(tokenizer.id_type)
    n_val = len(ids) // 10
    n_train = len(ids) - n_val
    raw = text.encode()
    meta = {
        "characters": tokenizer.characters,
        "counts": np.bincount(ids).tolist(),
        "n_train": n_train,
        "n_val": n_val,
        "sha256": hashlib.sha256(raw).hexdigest(),
        "source": source,
        "file_sha256": file_sha256,
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        atomic_write(folder / "input.txt") as out,
        atomic_write(folder / "train.bin") as train,
        atomic_write(folder / "val.bin") as val,
    ):
        out.write(raw)
        train.write(ids[:n_train].tobytes())
        val.write(ids[n_train:].tobytes())
        (folder / "meta.json").unlink(missing_ok=True)
    with atomic_write(folder / "meta.json") as out:
        # Names of files may be no text.
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
        raise MissingFile(
            f"there is no prepared corpus in {folder} (but {', '.join(there) or 'none'}); prepare "
            f"a text (data/prepare.py --input FILE --name {folder.name}), or give its file "
            "(train.py --corpus FILE)"
        )
    try:
        meta = _read_meta(folder)
        tokenizer = CharTokenizer(meta["characters"])
        train = _map(folder / "train.bin", tokenizer.id_type, meta["n_train"])
        val = _map(folder / "val.bin", tokenizer.id_type, meta["n_val"])
        about = (str(meta[name]) for name in ("sha256", "source", "file_sha256"))
        corpus = Corpus(folder.name, tokenizer, train, val, *about)
        # What prepares it meanwhile removes meta.json first and writes it last.
        if _read_meta(folder) == meta:
            return corpus
    except (ValueError, KeyError, TypeError, OSError) as error:
        if is_prepared(folder):
            advice = "remove the folder, and prepare the text anew"
            raise UserError(f"the corpus in {folder} is damaged ({error}); {advice}") from None
    raise UserError(f"{folder} is being prepared anew; try again when that has ended")


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
    return replace(corpus, tokenizer=tokenizer, train=new_id[corpus.train], val=new_id[corpus.val])


def require_length(corpus: Corpus, block_size: int, *, is_fixed: bool = False) -> None:
    """Raise UserError where the text is too short to cut one window of it, and to predict one.

    is_fixed: whether the block_size belongs to a trained model.
    """
    length = len(corpus.train) + len(corpus.val)
    if len(corpus.val) < 2:
        least = "a text takes at least 20: give a longer one"
        raise UserError(f"the corpus {corpus.name} has {length} characters, but {least}")
    if len(corpus.train) <= block_size:
        needed = block_size * 10 // 9 + 1  # a tenth, rounded down, is validation
        raise UserError(
            f"the corpus {corpus.name} has {length} characters, but --block_size {block_size} "
            f"takes at least {needed}: give a longer text"
            + (", or train a model of your own" if is_fixed else " or a smaller --block_size")
        )
