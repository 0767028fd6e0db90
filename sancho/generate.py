"""Autoregressive generation: logits to probabilities to the next id, one character at a time."""

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from sancho.config import DEFAULT_SAMPLING, SampleConfig
from sancho.implementation import implementation_of, torch_logits
from sancho.machine.seeds import Purpose, generator
from sancho.numpy_model import Decoder, NumpyGPT
from sancho.tokenizer import CharTokenizer

if TYPE_CHECKING:
    from sancho.model import GPT

Model: TypeAlias = "GPT | NumpyGPT"
SENTENCE_ENDS = ".!?…"
CLOSING = '»”")'
"""Characters after the end of a sentence that still belong to the sentence."""


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities, (B, V), of logits (B, V)."""
    weights = exponentials(logits)
    return weights / weights.sum(-1, keepdims=True)


def exponentials(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities, scaled so that the largest is 1: (B, V) -> (B, V)."""
    with np.errstate(over="ignore"):
        return np.exp(logits - logits.max(-1, keepdims=True))


def keep_top_k(logits: np.ndarray, k: int | np.ndarray) -> np.ndarray:
    """Keep exactly the k likeliest ids, even if some are equally likely. k: a number, or (B, 1)."""
    ranks = np.argsort(-logits, axis=-1, kind="stable").argsort(-1)
    return np.where(ranks < k, logits, -np.inf)


def keep_top_p(logits: np.ndarray, p: float) -> np.ndarray:
    """Keep the smallest set of likeliest ids with probability p or more; always the likeliest.

    Holtzman et al. 2020, arXiv:1904.09751, section 3.1.
    """
    if p == 1:
        return logits
    probabilities = softmax(-np.sort(-logits))
    before = probabilities.cumsum(-1) - probabilities  # of all that are likelier
    return keep_top_k(logits, (before < p).sum(-1, keepdims=True).clip(1))


def keep_min_p(logits: np.ndarray, p: float) -> np.ndarray:
    """Drop ids less likely than p times the likeliest one.

    Nguyen et al. 2024, arXiv:2407.01082, section 3.
    """
    return np.where(exponentials(logits) >= p, logits, -np.inf)


def shape_logits(logits: np.ndarray, config: SampleConfig) -> np.ndarray:
    """Apply temperature, top-k, top-p and min-p, in this order: (B, V) -> (B, V) float64.

    Temperature 0 keeps the likeliest id alone.
    """
    logits = logits.astype(np.float64)
    # The highest logit becomes 0, so that no temperature makes it overflow.
    logits = logits - logits.max(-1, keepdims=True)
    if config.temperature == 0:
        return keep_top_k(logits, 1)
    with np.errstate(over="ignore"):
        logits = logits / config.temperature
    if config.top_k is not None:
        logits = keep_top_k(logits, config.top_k)
    if config.top_p is not None:
        logits = keep_top_p(logits, config.top_p)
    if config.min_p is not None:
        logits = keep_min_p(logits, config.min_p)
    return logits


def sample_ids(logits: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Return the ids, (B,), that uniform numbers in [0, 1), (B,), pick from logits (B, V).

    Inverse transform sampling: the first id at which the cumulated probability passes the number.
    """
    cumulated = exponentials(logits).cumsum(-1)  # (B, V)
    thresholds = uniforms[:, None] * cumulated[:, -1:]
    return (cumulated <= thresholds).sum(-1)


class WindowDecoder:
    """Reads B growing texts with PyTorch, and for each new character all of them again."""

    def __init__(self, model: "GPT", batch_size: int) -> None:
        self.model = model
        self.ids = np.empty((batch_size, 0), np.int64)

    def restart(self) -> None:
        """Begin new texts."""
        self.ids = self.ids[:, :0]

    def read(self, ids: np.ndarray) -> np.ndarray:
        """Append the next ids of each text, (B, T); return the logits after the last, (B, V)."""
        self.ids = np.concatenate((self.ids, ids), axis=1)
        return torch_logits(self.model, self.ids)[:, -1]


def incremental_decoder(model: Model, batch_size: int) -> Decoder | WindowDecoder:
    """Return a decoder of B texts: if possible NumPy's, which computes each character only once.

    A PyTorch model on a GPU, or one that numpy_model.py does not compute, reads its whole window
    again for each character.
    """
    if not isinstance(model, NumpyGPT) and model.head.weight.device.type == "cpu":
        model = implementation_of(model, tell=lambda why: None)  # who opened the model has told it
    if isinstance(model, NumpyGPT):
        return model.decoder(batch_size)
    return WindowDecoder(model, batch_size)


def generate(
    model: Model,
    prompt: np.ndarray,
    config: SampleConfig = DEFAULT_SAMPLING,
    *,
    max_new_tokens: int,
    seed: int = 0,
    samples: Sequence[int] = (0,),
) -> Iterator[list[int]]:
    """Yield the next id of every sample, max_new_tokens times.

    prompt: (T,) ids, T ≥ 1, the same for all samples. Sample number i draws from a random generator
    of its own, which depends only on (seed, i). When the context exceeds block_size characters,
    only its newest quarter is kept, so it always holds between a quarter of a block and a block.
    Raises ValueError for an empty prompt, and TypeError for a text in place of ids.
    """
    if isinstance(prompt, str):
        raise TypeError("the prompt is a text; give its ids: tokenizer.encode(prompt)")
    if not len(prompt):
        raise ValueError("the prompt is empty")
    generators = [generator(seed, Purpose.SAMPLING, i) for i in samples]
    block_size = model.config.block_size
    newest = np.asarray(prompt[-block_size:], dtype=np.int64)
    context = np.tile(newest, (len(generators), 1))  # (B, S): what the model may see
    unread = context
    decoder = incremental_decoder(model, len(generators))
    for _ in range(max_new_tokens):
        logits = shape_logits(decoder.read(unread), config)  # (B, V)
        uniforms = np.array([g.random() for g in generators])
        ids = sample_ids(logits, uniforms)  # (B,)
        yield ids.tolist()
        unread = ids[:, None]
        context = np.concatenate((context, unread), axis=1)
        if context.shape[1] > block_size:
            # Its positions begin at 0 again, so all that is kept is read anew. A quarter makes that
            # rare, every 3/4 of a block, and still holds a sentence or two.
            context = context[:, -max(1, block_size // 4) :]
            unread = context
            decoder.restart()


class StopAt:
    """Passes characters on until a stop string appears, which is withheld.

    strings: none of them empty. sentence_after: after this many characters, the blank or line break
    after a sentence stops, too.
    """

    def __init__(self, strings: Iterable[str], sentence_after: int | None = None) -> None:
        self.strings = [unicodedata.normalize("NFC", s) for s in strings]
        self.sentence_after = math.inf if sentence_after is None else sentence_after
        self.count = 0
        """Number of characters that were taken in."""
        self.is_sentence = False
        """Whether the last one of them ends a sentence, or belongs to its end."""
        self.pending = ""
        self.stopped = False

    def push(self, character: str) -> str:
        """Take in a character; return the characters that can be shown now.

        The first string that is complete ends the text; if two end together, the longer.
        """
        if self.stopped:
            return ""
        if self.count >= self.sentence_after and self.is_sentence and character.isspace():
            self.stopped = True
            shown, self.pending = self.pending, ""  # no stop string is completed any more
            return shown
        self.count += 1
        if character not in CLOSING:
            self.is_sentence = character in SENTENCE_ENDS
        text = self.pending + character
        complete = [s for s in self.strings if text.endswith(s)]
        self.stopped = bool(complete)
        begun = [
            s[:n]
            for s in self.strings
            for n in range(min(len(s), len(text) + 1))
            if text.endswith(s[:n])
        ]
        withheld = max(complete or begun, key=len, default="")
        self.pending = "" if self.stopped else withheld
        return text.removesuffix(withheld)


def stream_texts(
    model: Model,
    tokenizer: CharTokenizer,
    prompt: np.ndarray,
    config: SampleConfig = DEFAULT_SAMPLING,
    *,
    max_new_tokens: int,
    seed: int = 0,
    stop: Sequence[str] = (),
    until_sentence: bool = False,
    samples: Sequence[int] = (0,),
) -> Iterator[list[str]]:
    """Yield continuations of a prompt, a piece of each sample at a time.

    stop: a continuation ends before the first of these strings. until_sentence: after
    max_new_tokens, each continues until a sentence ends, for at most as many characters again. The
    other arguments are those of `generate`. A piece is "" if a stop string may have begun or the
    sample has ended. To read a single text: `for (piece,) in stream_texts(…)`.
    """
    gates = [StopAt(stop, max_new_tokens if until_sentence else None) for _ in samples]
    max_new_tokens *= 2 if until_sentence else 1
    steps = generate(
        model, prompt, config, max_new_tokens=max_new_tokens, seed=seed, samples=samples
    )
    for ids in steps:
        characters = tokenizer.decode(ids)
        yield [gate.push(c) for gate, c in zip(gates, characters, strict=True)]
        if all(gate.stopped for gate in gates):
            return
    yield [gate.pending for gate in gates]


def continue_texts(*prompt: Any, **options: Any) -> list[str]:
    """Return continuations of a prompt, one for each sample. Arguments: as in `stream_texts`."""
    return ["".join(pieces) for pieces in zip(*stream_texts(*prompt, **options), strict=True)]
