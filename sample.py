"""Let a trained model write: python sample.py [--start TEXT] [--help]."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from sancho import checkpoint, cli
from sancho.config import DeviceConfig, SampleOptions
from sancho.corpus import read_text
from sancho.errors import UserError
from sancho.files import existing_file
from sancho.generate import Model, continue_text, continue_texts
from sancho.layout import count_parameters

LARGEST_ON_CPU = 15_000_000  # parameters: the preset base has 11 million


def main(args: Sequence[str]) -> None:
    """Options → model → prompt → text."""
    options = cli.parse(SampleOptions(), args)
    saved = checkpoint.load(options.checkpoint)
    tokenizer = saved.tokenizer
    prompt = tokenizer.encode(read_start(options.start), options.unknown)
    if not len(prompt):
        raise UserError("--start is empty; give at least one character to go on from")
    common = {"max_new_tokens": options.max_new_tokens, "stop": options.stop, "seed": options.seed}
    common |= {"config": options.sampling}
    count = options.num_samples
    model, context = open_model(saved, options.device)
    with context:
        if options.stream:
            texts = (
                continue_text(model, tokenizer, prompt, sample=i, **common) for i in range(count)
            )
        else:
            texts = continue_texts(model, tokenizer, prompt, num_samples=count, **common)
        for i, text in enumerate(texts):
            if count > 1:
                cli.say(f"--- {i + 1} of {count}")
            print(tokenizer.decode(prompt), end="", flush=True)
            for piece in text:
                print(piece, end="", flush=options.stream)
            print(flush=True)


def open_model(
    saved: checkpoint.Checkpoint, options: DeviceConfig
) -> tuple[Model, AbstractContextManager]:
    """Return the model and the context to write in: on a CPU NumPy's, else PyTorch's."""
    is_small = count_parameters(saved.model) <= LARGEST_ON_CPU
    on_cpu = options.device == "cpu" or (options.device == "auto" and is_small)
    if on_cpu and options.dtype != "bfloat16":
        return saved.build_plain(), nullcontext()
    from sancho.device import choose_device  # PyTorch takes longer to import than a page to write

    device = choose_device(options)
    return saved.build_model().to(device.where), device.autocast()


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
