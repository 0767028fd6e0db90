"""Autoregressive generation: logits to probabilities to the next id, one character at a time.

What shapes the distribution are pure functions of logits (B, V) that return logits (B, V).
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from sancho.checkpoint import Checkpoint, count_parameters
from sancho.config import DEFAULT_SAMPLING, DeviceConfig, SampleConfig
from sancho.errors import UserError
from sancho.machine.seeds import Purpose, generator
from sancho.numpy_model import NumpyGPT
from sancho.tokenizer import CharTokenizer

if TYPE_CHECKING:
    from sancho.model import GPT

Model: TypeAlias = "GPT | NumpyGPT"
LARGEST_ON_CPU = 15_000_000  # parameters: the preset base has 11 million


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities, (B, V), of logits (B, V)."""
    weights = _exponentials(logits)
    return weights / weights.sum(-1, keepdims=True)


def _exponentials(logits: np.ndarray) -> np.ndarray:
    """Return what probabilities are proportional to, at most 1."""
    with np.errstate(over="ignore"):
        return np.exp(logits - logits.max(-1, keepdims=True))


def penalise_repetition(logits: np.ndarray, context: np.ndarray, penalty: float) -> np.ndarray:
    """Divide the positive logits of ids in `context` (B, S) by `penalty`, multiply the negative.

    Keskar et al. 2019, CTRL, arXiv:1909.05858, section 4.1, divide all of them; but to divide a
    negative logit would raise it.
    """
    seen = np.zeros(logits.shape, dtype=bool)
    np.put_along_axis(seen, context, True, axis=-1)
    with np.errstate(over="ignore"):
        penalised = np.where(logits > 0, logits / penalty, logits * penalty)
    limit = np.finfo(logits.dtype).max / 4  # differences of two logits stay finite
    return np.where(seen, penalised, logits).clip(-limit, limit)


def keep_top_k(logits: np.ndarray, k: int) -> np.ndarray:
    """Keep the k likeliest ids, exactly k even where several are equally likely."""
    dropped = np.argsort(-logits, axis=-1, kind="stable")[:, k:]
    kept = logits.copy()
    np.put_along_axis(kept, dropped, -np.inf, axis=-1)
    return kept


def keep_top_p(logits: np.ndarray, p: float) -> np.ndarray:
    """Keep the smallest set of likeliest ids with probability p or more; always the likeliest.

    Holtzman et al. 2020, arXiv:1904.09751, section 3.1.
    """
    if p == 1:
        return logits
    order = np.argsort(-logits, axis=-1, kind="stable")
    probabilities = softmax(np.take_along_axis(logits, order, axis=-1))
    keep = probabilities.cumsum(-1) - probabilities < p
    keep[:, 0] = True
    unordered = np.empty_like(keep)
    np.put_along_axis(unordered, order, keep, axis=-1)
    return np.where(unordered, logits, -np.inf)


def keep_min_p(logits: np.ndarray, p: float) -> np.ndarray:
    """Drop ids less likely than p times the likeliest one.

    Nguyen et al. 2024, arXiv:2407.01082, section 3.
    """
    probabilities = softmax(logits)
    keep = probabilities >= p * probabilities.max(-1, keepdims=True)
    return np.where(keep, logits, -np.inf)


def shape_logits(logits: np.ndarray, context: np.ndarray, config: SampleConfig) -> np.ndarray:
    """Apply penalty, temperature, top-k, top-p and min-p, in this order; return float64.

    logits: (B, V); context: (B, S), the ids that the model has read. Temperature 0 keeps the
    likeliest id alone.
    """
    logits = logits.astype(np.float64)
    if config.repetition_penalty != 1:
        logits = penalise_repetition(logits, context, config.repetition_penalty)
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


def choose(logits: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Return the ids, (B,), that uniform numbers in [0, 1), (B,), pick from logits (B, V).

    Inverse transform sampling: the first id at which the cumulated probability passes the number.
    """
    cumulated = _exponentials(logits).cumsum(-1)  # (B, V)
    thresholds = uniforms[:, None] * cumulated[:, -1:]
    return (cumulated <= thresholds).sum(-1)


class Decoder(Protocol):
    """An incremental decoder: reads texts side by side, each with its own context."""

    def read(self, ids: np.ndarray) -> np.ndarray:
        """Append the next ids of each text, (B, T); return the logits after the last, (B, V)."""

    def restart(self) -> None:
        """Begin new texts."""


def open_model(saved: Checkpoint, options: DeviceConfig) -> tuple[Model, AbstractContextManager]:
    """Return the model and the context to write in: on a CPU NumPy's, else PyTorch's."""
    is_small = count_parameters(saved.model) <= LARGEST_ON_CPU
    on_cpu = options.device == "cpu" or (options.device == "auto" and is_small)
    if on_cpu and options.dtype != "bfloat16":
        return saved.build_numpy(), nullcontext()
    from sancho.machine.device import choose_device  # to import PyTorch takes longer than a page

    device = choose_device(options)
    return saved.build_model().to(device.where), device.autocast()


def incremental_decoder(model: Model, batch_size: int) -> Decoder:
    """Return the fastest decoder of B texts: NumPy's for float32 on a CPU, else PyTorch's.

    Use it before the weights change.
    """
    if isinstance(model, NumpyGPT):
        return model.decoder(batch_size)
    import torch  # not above: a NumpyGPT writes without it

    weight = model.head.weight
    autocast = torch.is_autocast_enabled(weight.device.type)
    if weight.device.type == "cpu" and weight.dtype == torch.float32 and not autocast:
        return NumpyGPT(model.config, model.arrays()).decoder(batch_size)
    return model.decoder(batch_size)


def generate(
    model: Model,
    prompt: np.ndarray,
    config: SampleConfig = DEFAULT_SAMPLING,
    *,
    max_new_tokens: int,
    seed: int = 0,
    samples: Iterable[int] = (0,),
) -> Iterator[list[int]]:
    """Yield the next id of every sample, max_new_tokens times.

    prompt: (T,) ids, T ≥ 1, the same for all samples. Sample number i draws from a random generator
    of its own, decided by (seed, i) alone. Once block_size characters are in the context, the
    newest quarter of them is kept, so it always holds between a quarter of a block and a block.
    Raises ValueError for an empty prompt.
    """
    if not len(prompt):
        raise ValueError("the prompt is empty")
    generators = [generator(seed, Purpose.SAMPLING, i) for i in samples]
    block_size = model.config.block_size
    newest = np.asarray(prompt[-block_size:], dtype=np.int64)
    context = unread = np.tile(newest, (len(generators), 1))  # (B, S): what the model may see
    decoder = incremental_decoder(model, len(generators))
    for _ in range(max_new_tokens):
        logits = shape_logits(decoder.read(unread), context, config)
        ids = choose(logits, np.array([g.random() for g in generators]))  # (B,)
        yield ids.tolist()
        unread = ids[:, None]
        context = np.concatenate((context, unread), axis=1)
        if context.shape[1] > block_size:
            context = unread = context[:, -max(1, block_size // 4) :]
            decoder.restart()


class StopAt:
    """Lets characters through until one of some strings appears, which is held back."""

    def __init__(self, strings: Iterable[str]) -> None:
        """Raises UserError for an empty string."""
        self.strings = [unicodedata.normalize("NFC", s) for s in strings]
        if "" in self.strings:
            raise UserError("--stop is ''; it must be a text of one character or more")
        self.held = ""
        self.stopped = False

    def push(self, character: str) -> str:
        """Take in a character; return what can be shown now of all that was taken in.

        The first string that is complete ends the text; where two end at one character, the longer.
        """
        if self.stopped:
            return ""
        self.held += character
        complete = [len(s) for s in self.strings if self.held.endswith(s)]
        self.stopped = bool(complete)
        # What may be the beginning of a stop string waits for the next character.
        begun = (n for s in self.strings for n in range(1, len(s)) if self.held.endswith(s[:n]))
        cut = len(self.held) - (max(complete) if complete else max(begun, default=0))
        shown = self.held[:cut]
        self.held = "" if complete else self.held[cut:]
        return shown


def stream_texts(
    model: Model,
    tokenizer: CharTokenizer,
    prompt: np.ndarray,
    config: SampleConfig = DEFAULT_SAMPLING,
    *,
    max_new_tokens: int,
    stop: Iterable[str] = (),
    seed: int = 0,
    samples: Iterable[int] = (0,),
) -> Iterator[list[str]]:
    """Yield continuations of `prompt`, (T,) ids, side by side: a piece of each sample at a time.

    A piece is "" where a stop string may have begun or the sample has ended. See `generate`.
    """
    samples = list(samples)
    gates = [StopAt(stop) for _ in samples]
    for ids in generate(
        model, prompt, config, max_new_tokens=max_new_tokens, seed=seed, samples=samples
    ):
        yield [gate.push(c) for gate, c in zip(gates, tokenizer.decode(ids), strict=True)]
        if all(gate.stopped for gate in gates):
            return
    yield [gate.held for gate in gates]


def continue_text(
    model: Model,
    tokenizer: CharTokenizer,
    prompt: np.ndarray,
    config: SampleConfig = DEFAULT_SAMPLING,
    *,
    sample: int = 0,
    **options: Any,
) -> Iterator[str]:
    """Yield one continuation of `prompt`, piece by piece. options: as in `stream_texts`."""
    for (piece,) in stream_texts(model, tokenizer, prompt, config, samples=(sample,), **options):
        if piece:
            yield piece


def continue_texts(
    model: Model,
    tokenizer: CharTokenizer,
    prompt: np.ndarray,
    config: SampleConfig = DEFAULT_SAMPLING,
    *,
    num_samples: int,
    **options: Any,
) -> list[str]:
    """Return several continuations of `prompt`. options: as in `stream_texts`."""
    samples = range(num_samples)
    steps = stream_texts(model, tokenizer, prompt, config, samples=samples, **options)
    return ["".join(pieces) for pieces in zip(*steps, strict=True)]


def until_sentence_ends(pieces: Iterable[str], least: int) -> Iterator[str]:
    """Pass pieces of a text on until a sentence ends, with `least` characters or more before."""
    text = ""
    for piece in pieces:
        if len(text) >= least and piece.isspace() and re.search(r"[.!?…][»”\")]*\Z", text):
            return
        yield piece
        text += piece
