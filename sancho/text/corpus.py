"""A text in memory: its vocabulary, and the ids of its training and validation parts."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sancho.errors import UserError
from sancho.tokenizer import CharTokenizer

LEAST = 20
"""The least characters of a file of which the last tenth is validation: two are its tenth."""
MOST_CHARACTERS = 65536  # different ones, as many as ids of two bytes can number


@dataclass(frozen=True)
class Corpus:
    """A text as training reads it."""

    name: str
    tokenizer: CharTokenizer
    train: np.ndarray
    """Ids of the first nine tenths of the text, or of each of its files, (n,)."""
    val: np.ndarray
    """Ids of the last tenth of the text, or of each of its files, (n,)."""
    sha256: str = ""
    """The digest of the text, from `digest`."""
    text: str = field(default="", repr=False)
    """The clean text, both parts."""
    lengths: tuple[int, ...] = ()
    """The numbers of characters of its files, in their order."""

    @classmethod
    def of(cls, name: str, texts: Sequence[str]) -> "Corpus":
        """Return the corpus of the clean texts of some files, one after the other.

        Raises UserError if there is no text at all, or one of more than MOST_CHARACTERS different
        characters.
        """
        text = "".join(texts)
        if not text:
            raise UserError(f"{name} contains no text; give a file that does")
        tokenizer = CharTokenizer.from_text(text)
        if tokenizer.vocab_size > MOST_CHARACTERS:
            many = f"{name} has {tokenizer.vocab_size} different characters"
            raise UserError(f"{many}; give a text with at most {MOST_CHARACTERS}")
        ids = tokenizer.ids_of(text)
        lengths = tuple(map(len, texts))
        is_val = np.zeros(len(ids), dtype=bool)
        end = 0
        for length in lengths:
            end += length
            n_val = length // 10 if length >= LEAST else 0
            is_val[end - n_val : end] = True
        return cls(
            name=name,
            tokenizer=tokenizer,
            train=ids[~is_val],
            val=ids[is_val],
            sha256=digest(text.encode(), lengths),
            text=text,
            lengths=lengths,
        )


def digest(raw: bytes, lengths: Sequence[int]) -> str:
    """Return the SHA-256 of a text in UTF-8, and of the lengths of its files if it has several.

    The lengths belong to it because they decide which characters are validation.
    """
    found = hashlib.sha256(raw)
    if len(lengths) > 1:
        found.update(json.dumps(list(lengths)).encode())
    return found.hexdigest()


def remap_ids(corpus: Corpus, tokenizer: CharTokenizer) -> Corpus:
    """Return the corpus in the ids of another vocabulary.

    Raises UserError naming the characters that the other one lacks.
    """
    if tokenizer.characters == corpus.tokenizer.characters:
        return corpus
    if missing := sorted(set(corpus.tokenizer.characters) - set(tokenizer.characters)):
        raise UserError(
            f"the model does not know these characters of {corpus.name}: {missing[:20]}; take them "
            "out of the text, or train the model on it first (--init_from)"
        )
    new_id = tokenizer.ids_of(corpus.tokenizer.characters)
    train, val = new_id[corpus.train], new_id[corpus.val]
    return replace(corpus, tokenizer=tokenizer, train=train, val=val)


def require_length(corpus: Corpus, block_size: int, *, is_fixed: bool = False) -> None:
    """Raise UserError if the text is too short for one window of training and one of validation.

    is_fixed: whether the block_size belongs to a trained model.
    """
    length = len(corpus.train) + len(corpus.val)
    if len(corpus.val) < 2:
        least = f"a text needs at least {LEAST}: give a longer one"
        if len(corpus.lengths) > 1:
            least = f"none of its {len(corpus.lengths)} files has {LEAST}: give longer ones"
        raise UserError(f"the corpus {corpus.name} has {length} characters, but {least}")
    if len(corpus.train) <= block_size:
        needed = block_size * 10 // 9 + 1  # a tenth, rounded down, is validation
        raise UserError(
            f"the corpus {corpus.name} has {length} characters, but --block_size {block_size} "
            f"needs at least {needed}: give a longer text"
            + (", or train a model of your own" if is_fixed else " or a smaller --block_size")
        )
