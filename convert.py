"""Take a trained model elsewhere: python convert.py to-page [--help]."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from sancho import checkpoint, cli, corpus
from sancho.config import ToPageOptions
from sancho.doors import page

DATA = Path(__file__).resolve().parent / "data"
LENGTH = 20_000  # characters to measure with


def main(args: Sequence[str]) -> None:
    """Command → checkpoint → what others read."""
    _, options = cli.parse_command({"to-page": ToPageOptions()}, args)
    saved = checkpoint.load(options.checkpoint)
    course = options.course
    if Path(course).is_dir():
        course = Path(os.path.relpath(course, options.output.parent)).as_posix()
    size, cost = page.write_page(
        saved,
        options.output,
        precision=options.precision,
        text=measuring_text(saved),
        metrics=read_metrics(options.checkpoint.with_name("metrics.jsonl")),
        course=course,
    )
    cli.say(f"{options.output}: {size / 1e6:.2f} MB, weights in {options.precision}")
    if cost:
        change = f"{cost.before:.5f} → {cost.after:.5f} nats per character"
        cli.say(f"packing: loss {change}, on {cost.characters} characters of {cost.text}")
    cli.say("open it with a double click, or send it to a friend: it needs no network")


def measuring_text(saved: checkpoint.Checkpoint) -> tuple[str, np.ndarray] | None:
    """Return a name and ids: of the model's own validation part, if that text is here."""
    folder = DATA / Path(saved.corpus_name).name
    with suppress(ValueError, OSError):
        found = corpus.load(folder)
        if found.sha256 == saved.corpus_sha256:
            return found.name, np.array(found.val[:LENGTH])
    with suppress(OSError):
        text = (DATA / "apocrifo.txt").read_text(encoding="utf-8")
        return "apocrifo", saved.tokenizer.encode(text[:LENGTH], "skip")


def read_metrics(path: Path) -> list[dict]:
    """Return the lines of a metrics.jsonl; none where there is no such file."""
    with suppress(OSError, ValueError):
        lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        return [line for line in lines if isinstance(line, dict)]
    return []


if __name__ == "__main__":
    cli.exit_with(main)
