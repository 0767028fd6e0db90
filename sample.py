"""Let a trained model write: python sample.py [--start TEXT] [--help]."""

import sys
from collections.abc import Sequence
from pathlib import Path

from sancho import checkpoint, cli
from sancho.config import SampleOptions
from sancho.corpus import read_text
from sancho.errors import UserError
from sancho.files import existing_file
from sancho.generate import continue_text, continue_texts, open_model


def main(args: Sequence[str]) -> None:
    """Options → model → prompt → text."""
    options = cli.parse(SampleOptions(), args)
    saved = checkpoint.load_or_pretrained(options.checkpoint)
    tokenizer = saved.tokenizer
    prompt = tokenizer.encode(read_start(options.start), options.unknown)
    if not len(prompt):
        raise UserError("--start is empty, or nothing of it is known; give at least one character")
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
