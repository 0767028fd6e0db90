"""Let a trained model write: python sample.py [--start TEXT] [--help]."""

if __name__ == "__main__":  # before NumPy and PyTorch are loaded
    from sancho.machine.threads import configure_threads

    configure_threads()

import importlib.util
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sancho import checkpoint, cli
from sancho.checkpoint import Checkpoint, count_parameters
from sancho.config import (
    DEFAULT_SAMPLING,
    CheckpointOption,
    Count,
    CountOrZero,
    DeviceConfig,
    SampleConfig,
    Seed,
    UnknownPolicy,
)
from sancho.corpus import read_text
from sancho.errors import UserError
from sancho.generate import Model, stream_texts
from sancho.machine.files import existing_file
from sancho.tokenizer import CharTokenizer

SAMPLES_AT_ONCE = 8
"""Samples in a batch, each in its own cache."""
LARGEST_ON_CPU = 15_000_000
"""Parameters of a model that writes on the CPU by default; base has 11 million. The size above
which a GPU is faster was not measured (benchmarks/gpu.py)."""


@dataclass(frozen=True, kw_only=True)
class SampleOptions(CheckpointOption):
    """Let a trained model go on with a text. The text goes to stdout, all else to stderr."""

    start: str = "\n"
    """The text to go on with; FILE:path takes it from a file, - from standard input."""
    num_samples: Count = 1
    """How many continuations."""
    max_new_tokens: CountOrZero = 500
    """Most characters in each continuation."""
    stop: tuple[str, ...] = ()
    """End before any of these texts."""
    unknown: UnknownPolicy = "error"
    """What to do with characters of the start that the model has never seen."""
    seed: Seed = 1605
    """The same seed gives the same text."""
    sampling: SampleConfig = DEFAULT_SAMPLING
    device: DeviceConfig = field(default_factory=DeviceConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("" not in self.stop, "stop", "texts of one character or more")


def main(args: Sequence[str]) -> None:
    """Options → checkpoint → prompt → model → text."""
    options = cli.parse(SampleOptions(), args)
    saved = checkpoint.load_or_pretrained(options.checkpoint)
    prompt = read_prompt(options, saved.tokenizer)
    model, context = open_model(saved, options.device)
    with context:
        for first in range(0, options.num_samples, SAMPLES_AT_ONCE):
            samples = range(first, min(first + SAMPLES_AT_ONCE, options.num_samples))
            write(model, saved.tokenizer, prompt, options, samples)


def read_prompt(options: SampleOptions, tokenizer: CharTokenizer) -> np.ndarray:
    """Return the ids of the start, (T,). Raises UserError where there are none."""
    prompt = tokenizer.encode(read_start(options.start), options.unknown)
    if not len(prompt):
        raise UserError("--start is empty, or nothing of it is known; give at least one character")
    return prompt


def write(
    model: Model,
    tokenizer: CharTokenizer,
    prompt: np.ndarray,
    options: SampleOptions,
    samples: range,
) -> None:
    """Print continuations of the prompt: the first as it comes, the others when all have ended."""
    steps = stream_texts(
        model,
        tokenizer,
        prompt,
        options.sampling,
        max_new_tokens=options.max_new_tokens,
        stop=options.stop,
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
    """Return the model and the context to write in: on a CPU NumPy's in float32, else PyTorch's."""
    is_small = count_parameters(saved.model) <= LARGEST_ON_CPU
    has_torch = importlib.util.find_spec("torch") is not None
    if options.device == "cpu" or (options.device == "auto" and (is_small or not has_torch)):
        return saved.build_numpy(), nullcontext()
    from sancho.machine.device import choose_device  # to import PyTorch takes longer than a page

    device = choose_device(options)
    return saved.build_model().to(device.torch_device), device.autocast()


def introduce(sample: int, num_samples: int) -> None:
    """Say on stderr which sample comes, where there are several."""
    if num_samples > 1:
        cli.say(f"--- {sample + 1} of {num_samples}")


def read_start(start: str) -> str:
    """Return the prompt: the text itself, FILE:path's, or standard input's for "-"."""
    if start == "-":
        return "".join(read_text(sys.stdin.buffer, "standard input"))
    if start.startswith("FILE:"):
        path = existing_file(Path(start.removeprefix("FILE:")), "the start text")
        with open(path, "rb") as file:
            return "".join(read_text(file, str(path)))
    return start


if __name__ == "__main__":
    cli.exit_with(main)
