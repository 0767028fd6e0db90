"""Let a trained model write: python sample.py [--start TEXT] [--help]."""

if __name__ == "__main__":  # before NumPy and PyTorch are loaded
    from sancho.machine.environment import calm_threads

    calm_threads()

import sys
from collections.abc import Sequence
from pathlib import Path

from sancho import checkpoint, cli
from sancho.config import SampleOptions
from sancho.corpus import read_text
from sancho.errors import UserError
from sancho.generate import open_model, stream_texts
from sancho.machine.files import existing_file

SIDE_BY_SIDE = 8
"""Samples that are computed at once, each in its own cache."""


def main(args: Sequence[str]) -> None:
    """Options → model → prompt → text."""
    options = cli.parse(SampleOptions(), args)
    saved = checkpoint.load_or_pretrained(options.checkpoint)
    tokenizer = saved.tokenizer
    prompt = tokenizer.encode(read_start(options.start), options.unknown)
    if not len(prompt):
        raise UserError("--start is empty, or nothing of it is known; give at least one character")
    model, context = open_model(saved, options.device)
    with context:
        for first in range(0, options.num_samples, SIDE_BY_SIDE):
            samples = range(first, min(first + SIDE_BY_SIDE, options.num_samples))
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
            pieces = [[tokenizer.decode(prompt)] for _ in samples]
            introduce(first, options.num_samples)
            print(pieces[0][0], end="", flush=True)
            for shown, *others in steps:  # the first as it comes, the others when it has ended
                print(shown, end="", flush=True)
                for text, piece in zip(pieces[1:], others, strict=True):
                    text.append(piece)
            print(flush=True)
            for sample, text in zip(samples[1:], pieces[1:], strict=True):
                introduce(sample, options.num_samples)
                print("".join(text), flush=True)


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
