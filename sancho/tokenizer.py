"""Characters to integers and back."""

import unicodedata
from typing import Literal

import numpy as np

from sancho.errors import UserError

UnknownPolicy = Literal["error", "skip", "nearest"]

# What stands for what where the typography differs; each row is tried from left to right.
_EQUIVALENTS = (
    '"“”„‟«»″',
    "'‘’‚‛′´`",
    "—–―−-‐‑‒",
    " \u00a0\u2002\u2003\u2009\u202f\t",
    "\n\u2028\u2029\x0b\x0c",
    "([{",
    ")]}",
    "ckqç",
    "vwu",
    "oø",
    "lł",
)
_SPELLED_OUT = {"…": "...", "œ": "oe", "æ": "ae", "ß": "ss", "Œ": "OE", "Æ": "AE"}


class CharTokenizer:
    """A vocabulary of single characters, in the order of their code points.

    Text is brought to NFC before it is encoded, so that é is one character however it was typed.
    """

    def __init__(self, characters: str) -> None:
        """Number `characters` from 0. Raises ValueError if they are none or repeat."""
        if not characters:
            raise UserError("the vocabulary is empty: the text holds no characters")
        if len(set(characters)) != len(characters):
            raise ValueError("a character occurs twice in the vocabulary")
        self.characters = characters
        codes = np.array([ord(c) for c in characters])
        # One slot for every code point up to the highest known one, and a last one for the others.
        self._id_of_code = np.full(codes.max() + 2, -1, dtype=np.int32)
        self._id_of_code[codes] = np.arange(len(characters))
        self._code_of_id = codes.astype("<u4")

    @classmethod
    def from_text(cls, text: str) -> "CharTokenizer":
        """Return the tokenizer of all characters of `text`, sorted."""
        return cls("".join(sorted(set(unicodedata.normalize("NFC", text)))))

    @property
    def vocab_size(self) -> int:
        """Number of characters known."""
        return len(self.characters)

    @property
    def id_type(self) -> np.dtype:
        """Smallest unsigned type that holds every id: uint8, or uint16 past 256 characters."""
        return np.dtype("u1") if self.vocab_size <= 256 else np.dtype("<u2")

    def encode(self, text: str, unknown: UnknownPolicy = "error") -> np.ndarray:
        """Return the ids of `text`, (len(text),) of `id_type`, after NFC.

        Raises UserError naming the unknown characters; with `unknown` "skip" they are left out,
        with "nearest" the closest known character takes their place (error if there is none).
        """
        text = unicodedata.normalize("NFC", text)
        ids = self.look_up(text)
        if ids.min(initial=0) < 0:
            ids = self.look_up(self._resolve_unknown(text, ids, unknown))
        return ids.astype(self.id_type)

    def look_up(self, text: str) -> np.ndarray:
        """Return the id of each character as it stands, (len(text),) int32; -1 if unknown."""
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        return self._id_of_code.take(codes, mode="clip")

    def decode(self, ids) -> str:
        """Return the text of a sequence of ids. Raises ValueError for an id out of range."""
        ids = np.asarray(ids, dtype=np.int64)
        if ids.size and not 0 <= ids.min() <= ids.max() < self.vocab_size:
            raise ValueError(f"ids must lie in 0..{self.vocab_size - 1}")
        return self._code_of_id[ids].tobytes().decode("utf-32-le", "surrogatepass")

    def nearest(self, character: str) -> str | None:
        """Return what stands for an unknown character in this vocabulary, or None.

        Tried in turn: another typographic form (" for “), the letter spelled out (oe for œ), the
        compatibility form (fi for ﬁ), the letter without or with another accent (e for ê), and
        the other case.
        """
        for candidate in self._candidates(character):
            if candidate and all(c in self.characters for c in candidate):
                return candidate
        return None

    def _candidates(self, character: str):
        for row in _EQUIVALENTS:
            if character in row:
                yield from row
            elif character.lower() in row:
                yield from row.upper()
        yield _SPELLED_OUT.get(character, "")
        yield unicodedata.normalize("NFKC", character)
        base = unicodedata.normalize("NFKD", character)[0]
        yield base
        yield from (c for c in self.characters if unicodedata.normalize("NFD", c)[0] == base)
        yield character.swapcase()
        yield base.swapcase()

    def _resolve_unknown(self, text: str, ids: np.ndarray, unknown: UnknownPolicy) -> str:
        first_seen: dict[str, int] = {}
        for position in np.flatnonzero(ids < 0):
            first_seen.setdefault(text[position], int(position))
        if unknown == "skip":
            return text.translate({ord(c): None for c in first_seen})
        substitutes = {c: self.nearest(c) for c in first_seen}
        if unknown == "nearest" and None not in substitutes.values():
            return text.translate({ord(c): near for c, near in substitutes.items()})
        raise UserError(_unknown_message(first_seen, substitutes, unknown))


def _unknown_message(
    first_seen: dict[str, int], substitutes: dict[str, str | None], unknown: UnknownPolicy
) -> str:
    shown = [
        f"{_visible(c)} at position {position} "
        + (f"(nearest: {_visible(near)})" if (near := substitutes[c]) else "(nothing near it)")
        for c, position in list(first_seen.items())[:10]
    ]
    more = f" and {len(first_seen) - 10} more" if len(first_seen) > 10 else ""
    hopeless = unknown == "nearest" or None in substitutes.values()
    advice = "skip" if hopeless else "nearest or --unknown skip"
    plural = "s" if len(first_seen) > 1 else ""
    return (
        f"unknown character{plural} for this model: {', '.join(shown)}{more}; "
        f"change the text, or go on with --unknown {advice}"
    )


def _visible(character: str) -> str:
    """Return the character in quotes, or its code where it can't be shown."""
    alone = unicodedata.combining(character[0]) or not character.isprintable()
    return ascii(character) if alone else repr(character)
