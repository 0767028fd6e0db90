"""Characters to integers and back."""

import unicodedata
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from sancho.config import UnknownPolicy
from sancho.errors import UserError

# Equivalents that Unicode's decompositions lack: an unknown character is replaced by the first
# known one of its row.
_EQUIVALENTS = (
    '"“”„‟«»″',
    "'‘’‚‛′´`",
    "—–―−-‐‑‒",
    " \t",
    "\n\u2028\u2029\x0b\x0c",
    "([{",
    ")]}",
    *("ckq", "CKQ", "vwu", "VWU"),
)
_SPELLED_OUT = {"œ": "oe", "æ": "ae", "ø": "o", "ł": "l", "ß": "ss"}
_SPELLED_OUT |= {letter.upper(): letters.upper() for letter, letters in _SPELLED_OUT.items()}


PIECE = 2**20  # characters that are looked up at once


class CharTokenizer:
    """A vocabulary of single characters; the id of each is its position.

    Text is normalised to NFC before it is encoded, so that é is one character however it was typed.
    """

    def __init__(self, characters: str) -> None:
        """Number `characters` from 0. Raises ValueError if it is empty or repeats one."""
        if not characters or len(set(characters)) != len(characters):
            raise ValueError("the vocabulary is empty, or a character occurs twice in it")
        self.characters = characters
        self._known = set(characters)
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

        Raises UserError with the unknown characters. If `unknown` is "skip", they are left
        out; if it is "nearest", each is replaced by the closest known character (an error if there
        is none).
        """
        text = unicodedata.normalize("NFC", text)
        if not self._known.issuperset(text):
            text = self._replace_unknown(text, unknown)
        return self.ids_of(text)

    def require_known(self, text: str, what: str) -> None:
        """Raise UserError if `text`, which the message calls `what`, has unknown characters."""
        text = unicodedata.normalize("NFC", text)
        if missing := [c for c in dict.fromkeys(text) if c not in self._known]:
            named = ", ".join(map(_visible, missing[:10]))
            never = f"{what} {text!r} can never come up: the model does not know {named}"
            raise UserError(f"{never}{_line_break(text) or '; change it'}")

    def look_up(self, text: str) -> np.ndarray:
        """Return the id of each character as it stands, (len(text),) int32; -1 if unknown."""
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        return self._id_of_code.take(codes, mode="clip")

    def ids_of(self, text: str) -> np.ndarray:
        """Return the ids of known characters as they stand, (len(text),) of `id_type`."""
        ids = np.empty(len(text), self.id_type)
        for first in range(0, len(text), PIECE):  # a character takes 20 bytes meanwhile
            piece = text[first : first + PIECE]
            ids[first : first + PIECE] = self.look_up(piece)
        return ids

    def decode(self, ids: ArrayLike) -> str:
        """Return the text of a sequence of ids. Raises ValueError for an id out of range."""
        ids = np.asarray(ids, dtype=np.int64)
        if ids.size and not 0 <= ids.min() <= ids.max() < self.vocab_size:
            raise ValueError(f"ids must lie in 0..{self.vocab_size - 1}")
        return self._code_of_id[ids].tobytes().decode("utf-32-le", "surrogatepass")

    def nearest(self, character: str) -> str | None:
        """Return the known text that is nearest to an unknown character, or None.

        Tried in turn: another typographic form (" for “), the letter spelled out (oe for œ), the
        compatibility form (fi for ﬁ), the letter without or with another accent (e for ê), and
        the other case.
        """
        base = unicodedata.normalize("NFKD", character)[0]
        candidates = (
            *(other for row in _EQUIVALENTS if character in row for other in row),
            _SPELLED_OUT.get(character, character),
            unicodedata.normalize("NFKC", character),
            base,
            self._first_with_base.get(base, base),
            character.swapcase(),
            base.swapcase(),
        )
        return next((near for near in candidates if set(near) <= self._known), None)

    @cached_property
    def _first_with_base(self) -> dict[str, str]:
        return {unicodedata.normalize("NFD", c)[0]: c for c in reversed(self.characters)}

    def _replace_unknown(self, text: str, unknown: UnknownPolicy) -> str:
        replacements = dict.fromkeys(c for c in text if c not in self._known)  # None: left out
        if unknown != "skip":
            replacements = {c: self.nearest(c) for c in replacements}
            if unknown == "error" or None in replacements.values():
                raise UserError(_unknown_message(text, replacements))
        return text.translate(str.maketrans(replacements))


def _unknown_message(text: str, nearest: dict[str, str | None]) -> str:
    shown = [
        f"{_visible(c)} at position {text.index(c)} "
        + (f"(nearest: {_visible(near)})" if near else "(nothing near it)")
        for c, near in list(nearest.items())[:10]
    ]
    if len(nearest) > 10:
        shown.append(f"and {len(nearest) - 10} more")
    advice = "skip" if None in nearest.values() else "nearest or --unknown skip"
    known = _line_break(text) or f"; change the text, or go on with --unknown {advice}"
    return f"characters unknown to this model: {', '.join(shown)}{known}"


def _line_break(text: str) -> str:
    """Return how to type a line break, if a text has a backslash and an n instead."""
    typed = "$'\\n' in bash or zsh, \"`n\" in PowerShell"
    return f"; a line break is typed as {typed}" if "\\n" in text else ""


def _visible(characters: str) -> str:
    return ascii(characters) if unicodedata.combining(characters[0]) else repr(characters)
