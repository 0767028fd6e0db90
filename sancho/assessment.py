"""What a model is worth: its losses beside what others reach, its text beside the author's."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import numpy as np

from sancho.analysis import character_losses, sliding_losses
from sancho.baselines import DON_QUIJOTE, PUBLISHED, count_losses, xz_loss
from sancho.config import SampleConfig
from sancho.corpus import Corpus
from sancho.generate import Model, continue_texts
from sancho.model import GPT
from sancho.quality import COPY, Source, different_words, share_of_known_words, words_of

TEMPERATURES = (0.5, 0.8, 1.0)
SAMPLES, SAMPLE_LENGTH = 10, 2000
"""Texts that are written at each temperature, and their characters."""
SEED = 1605
LONGEST_TEXT = 20_000_000
"""Characters at the end of a training text that are counted and searched."""


@dataclass
class TextWorth:
    """The measures of a text beside the training text."""

    known_words: float
    """Share of its words that occur there."""
    different_words: float
    """Different words in a piece of SAMPLES · SAMPLE_LENGTH characters."""
    copied: float
    """Share of its characters in runs of 32 or more that stand there."""
    longest_run: str
    """The longest run of it that stands there."""


@dataclass
class Assessment:
    """All that evaluate.py says. Losses in nats per character."""

    characters: int
    """Characters of the validation part, of which the first is only read."""
    losses: dict[str, float] = field(default_factory=dict)
    """What reaches which loss, the worst first."""
    copied: float = 0.0
    """Share of the validation part in runs of 32 or more that stand in the training part."""
    by_place: dict[str, float] = field(default_factory=dict)
    """Loss by how many characters stand before one in its window, in windows as in training."""
    by_kind: dict[str, tuple[float, float]] = field(default_factory=dict)
    """(share of the characters, loss with sliding windows) by the kind of character."""
    texts: dict[str, TextWorth] = field(default_factory=dict)
    """By who wrote them: the model at each temperature, and the author."""

    def to_json(self) -> dict:
        """Return it as what a JSON file holds, with the losses in bits too."""
        bits = {name: loss / math.log(2) for name, loss in self.losses.items()}
        return asdict(self) | {"bits_per_character": bits}


def assess(model: GPT, writer: Model, corpus: Corpus) -> Iterator[Assessment]:
    """Yield the assessment, which grows, after each of its STAGES.

    corpus: in the ids of the model. writer: the model in whatever form writes fastest.
    """
    train, val = np.asarray(corpus.train[-LONGEST_TEXT:]), np.asarray(corpus.val)
    tokenizer, found = corpus.tokenizer, Assessment(characters=len(corpus.val))
    train_text, val_text = tokenizer.decode(train), tokenizer.decode(val)
    found.losses = _baselines(corpus, train, val, train_text, val_text)
    yield found
    in_windows = character_losses(model, val)
    block = model.config.block_size
    found.losses[f"this model, in windows of {block}"] = float(in_windows.mean())
    found.by_place = _by_place(in_windows, block)
    yield found
    sliding = sliding_losses(model, val, in_windows)
    found.losses[f"this model, after at least {block // 2}"] = float(sliding.mean())
    found.by_kind = _by_kind(sliding, val_text)
    yield found
    source, known = Source(train_text), set(words_of(train_text))
    new = ~source.copied(val_text)
    found.copied = float(1 - new.mean())
    if new[1:].any():
        name = f"the same, without runs of {COPY} that it has read"
        found.losses[name] = float(sliding[new[1:]].mean())
    yield found
    for temperature in TEMPERATURES:
        text = _write(writer, corpus, temperature)
        found.texts[f"at {temperature}"] = _worth(text, source, known)
        yield found
    found.texts["the author"] = _worth(val_text, source, known)
    yield found


STAGES = 5 + len(TEMPERATURES)


def _baselines(
    corpus: Corpus, train: np.ndarray, val: np.ndarray, train_text: str, val_text: str
) -> dict[str, float]:
    """Return the losses that need no network, and for Don Quijote those that others reached."""
    counted = count_losses(train, val, corpus.tokenizer.vocab_size)
    best = int(counted.argmin())
    losses = {
        "nothing known": math.log(corpus.tokenizer.vocab_size),
        "how often each letter occurs": float(counted[0]),
        "pairs of letters": float(counted[1]),
        f"counts of up to {best + 1} letters (Kneser-Ney)": float(counted[best]),
        "xz -9e, after the nine tenths before": xz_loss(train_text, val_text) * math.log(2),
    }
    if corpus.sha256 == DON_QUIJOTE:
        losses |= {name: bits * math.log(2) for name, bits in PUBLISHED.items()}
    return dict(sorted(losses.items(), key=lambda item: -item[1]))


def _by_place(losses: np.ndarray, block: int) -> dict[str, float]:
    """Return the mean loss after 1, 2–3, 4–7, … characters, up to a block, of the window."""
    before = np.arange(len(losses)) % block + 1
    groups, first = {}, 1
    while first <= block:
        last = block if 4 * first > block else 2 * first - 1
        here = losses[(before >= first) & (before <= last)]
        if len(here):
            groups[f"{first}–{last}" if last > first else f"{first}"] = float(here.mean())
        first = last + 1
    return groups


def _by_kind(losses: np.ndarray, text: str) -> dict[str, tuple[float, float]]:
    """Return (share, mean loss) of letters inside words, first letters, blanks and signs.

    losses: of every character of `text` but the first, (n − 1,).
    """
    is_letter = np.array([c.isalpha() for c in text])
    is_blank = np.array([c.isspace() for c in text])[1:]
    letters, after_letter = is_letter[1:], is_letter[:-1]
    kinds = {
        "inside a word": letters & after_letter,
        "first letters": letters & ~after_letter,
        "blanks": is_blank,
        "signs": ~letters & ~is_blank,
    }
    return {
        name: (float(mask.mean()), float(losses[mask].mean()))
        for name, mask in kinds.items()
        if mask.any()
    }


def _write(writer: Model, corpus: Corpus, temperature: float) -> str:
    """Return texts that the model writes side by side, whole words, one below the other."""
    texts = continue_texts(
        writer,
        corpus.tokenizer,
        corpus.val[:1],
        SampleConfig(temperature=temperature),
        num_samples=SAMPLES,
        max_new_tokens=SAMPLE_LENGTH,
        seed=SEED,
    )
    return "\n".join(text[: text.rfind(" ")] if " " in text else text for text in texts)


def _worth(text: str, source: Source, known: set[str]) -> TextWorth:
    return TextWorth(
        known_words=share_of_known_words(text, known),
        # A little less than was written, because what is left of a last word is cut off.
        different_words=different_words(text, min(len(text), SAMPLES * SAMPLE_LENGTH)),
        copied=float(source.copied(text).mean()),
        longest_run=source.longest_run(text),
    )


def as_table(found: Assessment) -> str:
    """Return what a terminal shows."""
    lines = [_row("loss on the validation part", "nats", "bits")]
    lines += [
        _row(f"  {name}", f"{loss:.3f}", f"{loss / math.log(2):.3f}")
        for name, loss in found.losses.items()
    ]
    lines += ["", _row("the text", *found.texts)]
    texts = found.texts.values()
    lines += [
        _row("  words that the training part has", *(f"{t.known_words:.1%}" for t in texts)),
        _row("  different words", *(f"{t.different_words:,.0f}" for t in texts)),
        _row(f"  copied, in runs of {COPY} or more", *(f"{t.copied:.1%}" for t in texts)),
        _row("  longest run copied", *(f"{len(t.longest_run):,}" for t in texts)),
    ]
    for name, text in found.texts.items():
        lines.append(f"  {name + ':':<12} {' '.join(text.longest_run.split())[:80]}")
    lines += ["", _row("characters of the window before it", *found.by_place, width=8)]
    lines += [_row("  nats", *(f"{loss:.3f}" for loss in found.by_place.values()), width=8)]
    lines += ["", _row("kind of character", "share", "nats")]
    for name, (share, loss) in found.by_kind.items():
        lines.append(_row(f"  {name}", f"{share:.1%}", f"{loss:.3f}"))
    return "\n".join(lines)


def _row(name: str, *cells: str, width: int = 11) -> str:
    return f"{name:<44}" + "".join(f"{cell:>{width}}" for cell in cells)
