"""Let a trained model write: python sample.py [--start TEXT] [--help]."""

from sancho.command import preflight

if __name__ == "__main__":
    preflight.check_writing()

import re
import secrets
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.command import cli, terminal
from sancho.config import (
    DEFAULT_SAMPLING,
    SEEDS,
    CheckpointOption,
    Count,
    CountOrZero,
    DeviceConfig,
    SampleConfig,
    UnknownPolicy,
)
from sancho.errors import UserError, note, say
from sancho.generate import Model, stream_texts
from sancho.machine.files import existing_file
from sancho.text.clean import read_text
from sancho.tokenizer import CharTokenizer

SAMPLES_AT_ONCE = 8
"""Samples that are written together in a batch; the cache of each takes memory."""


class Number(int):
    """A whole number; the word "random" draws one."""

    is_drawn: bool

    def __new__(cls, number: str | int) -> "Number":
        """Return the number that a word stands for. Raises ValueError if it is neither."""
        is_drawn = number == "random"
        found = super().__new__(cls, secrets.randbits(32) if is_drawn else number)
        found.is_drawn = is_drawn
        return found


SEED = Number(1605)


@dataclass(frozen=True, kw_only=True)
class SampleOptions(CheckpointOption):
    """Let a trained model continue a text.

    The text is printed on standard output, and everything else on standard error. If there are
    several texts, a line such as "--- 2 of 3" comes before each; where standard output is not a
    terminal, that line is part of it.
    """

    start: str = "\n"
    """The text to continue; FILE:path reads it from a file, and - from standard input."""
    num_samples: Count = 1
    """Number of continuations to write."""
    max_new_tokens: CountOrZero = 500
    """Largest number of characters in each continuation."""
    stop: tuple[str, ...] = ()
    """End a continuation as soon as one of these texts comes up; that text is left out."""
    unknown: UnknownPolicy = "error"
    """What to do with characters of the start that the model has never seen."""
    until_sentence: bool = False
    """After max_new_tokens, continue until a sentence ends, for at most as many characters
    again."""
    seed: Annotated[Number, SEEDS] = SEED
    """The same seed gives the same text; random draws a seed and tells you which."""
    sampling: SampleConfig = DEFAULT_SAMPLING
    device: DeviceConfig = field(default_factory=DeviceConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("" not in self.stop, "stop", "texts of one character or more")


def main(args: Sequence[str]) -> None:
    """Options → checkpoint → prompt → model → text."""
    options = cli.parse(SampleOptions(), args)
    if options.seed.is_drawn:
        note(f"the seed was drawn at random; --seed {options.seed} gives the same text again")
    saved = checkpoint.load(checkpoint.find_checkpoint(options.checkpoint))
    prompt = read_prompt(options, saved.tokenizer)
    for text in options.stop:
        saved.tokenizer.require_known(text, "--stop")
    block_size = saved.model_config.block_size
    if len(prompt) > block_size:
        read = f"the model reads the last {block_size}, as many as its context has"
        note(f"the start has {len(prompt):,} characters; {read}")
    model, context = open_model(saved, options.device)
    with context:
        for first in range(0, options.num_samples, SAMPLES_AT_ONCE):
            samples = range(first, min(first + SAMPLES_AT_ONCE, options.num_samples))
            write(model, saved.tokenizer, prompt, options, samples)


def read_prompt(options: SampleOptions, tokenizer: CharTokenizer) -> np.ndarray:
    """Return the ids of the start, (T,). Raises UserError if there are none."""
    prompt = tokenizer.encode(read_start(options.start), options.unknown)
    if not len(prompt):
        raise UserError(
            "--start is empty, or the model knows none of its characters; give one that it knows"
        )
    return prompt


def write(
    model: Model,
    tokenizer: CharTokenizer,
    prompt: np.ndarray,
    options: SampleOptions,
    samples: range,
) -> None:
    """Print continuations of the prompt: the first as it comes, the others at the end."""
    steps = stream_texts(
        model,
        tokenizer,
        prompt,
        options.sampling,
        max_new_tokens=options.max_new_tokens,
        stop=options.stop,
        until_sentence=options.until_sentence,
        seed=options.seed,
        samples=samples,
    )
    texts = [[tokenizer.decode(prompt)] for _ in samples]
    introduce(samples[0], options.num_samples)
    print(texts[0][0], end="", flush=True)
    for pieces in steps:
        print(pieces[0], end="", flush=True)
        for text, piece in zip(texts, pieces, strict=True):
            text.append(piece)
    print(flush=True)
    for sample, text in zip(samples[1:], texts[1:], strict=True):
        introduce(sample, options.num_samples)
        print("".join(text), flush=True)


def open_model(saved: Checkpoint, options: DeviceConfig) -> tuple[Model, AbstractContextManager]:
    """Return the model and the context to write in: on a CPU NumPy's model if that is possible."""
    if options.device in ("auto", "cpu"):  # on a GPU only if --device names it
        return saved.build_implementation(), nullcontext()
    checkpoint.require_torch()
    from sancho.machine.device import (
        open_device,  # importing PyTorch takes longer than writing a page
    )

    device = open_device(options)
    return saved.build_model().to(device.torch_device), device.autocast()


def introduce(sample: int, num_samples: int) -> None:
    """Say which of several samples follows, on stdout, or on stderr if stdout is a terminal."""
    if num_samples > 1:
        line = f"--- {sample + 1} of {num_samples}"
        if sys.stdout.isatty():
            say(line)
        else:
            print(line)


def read_start(start: str) -> str:
    """Return the prompt: the text itself, that of the file in FILE:path, or standard input for "-".

    A line break at the end of the last two is left out, because an editor or echo puts it there.
    """
    if start == "-":
        text = read_text(sys.stdin.buffer.read(), "standard input")
    elif start.startswith("FILE:"):
        path = existing_file(Path(start.removeprefix("FILE:")).expanduser(), "the start text")
        text = read_text(path.read_bytes(), str(path))
    else:
        if re.fullmatch(r"file:.*|\S+\.txt", start, re.IGNORECASE):
            note(
                f"the model continues these letters; to continue a file, give --start FILE:{start}"
            )
        return start
    return text if text == "\n" else text.removesuffix("\n")


if __name__ == "__main__":
    terminal.run_script(lambda: main(sys.argv[1:]))
