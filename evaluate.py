"""Say what a trained model is worth: python evaluate.py [--checkpoint FILE] [--json] [--help]."""

if __name__ == "__main__":  # before NumPy and PyTorch are loaded
    from sancho.machine.threads import configure_threads

    configure_threads()

    from sancho import cli

    cli.require_torch()

import json
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sancho import checkpoint, cli
from sancho.config import CheckpointOption, DeviceConfig
from sancho.corpus import open_dataset, remap_ids, require_length
from sancho.errors import UserError
from sancho.evaluation.measures import COPY, STAGES, measure
from sancho.machine.device import choose_device

DATA = Path(__file__).resolve().parent / "data"
LONG = 20
"""Seconds from which a report says how many it took."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(CheckpointOption):
    """Say what a trained model is worth: its loss, and the text that it writes."""

    dataset: str | None = None
    """A prepared folder under data/ (default: the one that the model learned from)."""
    json: bool = False
    """Write JSON instead of the report."""
    device: DeviceConfig = field(default_factory=DeviceConfig)


def main(args: Sequence[str]) -> None:
    """Options → model and corpus → measures → report."""
    begin = time.monotonic()
    options = cli.parse(EvaluateOptions(), args)
    saved = checkpoint.load_or_pretrained(options.checkpoint)
    name = options.dataset or saved.corpus_name
    if not name:
        raise UserError("the checkpoint does not say what it learned from; give --dataset NAME")
    corpus = remap_ids(open_dataset(DATA, name), saved.tokenizer)
    require_length(corpus, 1)
    if corpus.sha256 != saved.corpus_sha256:
        warnings.warn(
            f"the model learned from another text than {corpus.name}; what the report calls the "
            f"training part is that of {corpus.name}",
            stacklevel=2,
        )
    device = choose_device(options.device)
    model = saved.build_model().to(device.torch_device)
    with device.autocast():
        stages = measure(model, corpus)
        for found in tqdm(stages, total=STAGES, desc="evaluating", leave=False, disable=None):
            report = found
    if options.json:
        print(json.dumps(report, ensure_ascii=False, indent=1))
    else:
        print(as_text(report, saved.model.block_size))
    seconds = time.monotonic() - begin
    if seconds > LONG:
        cli.say(f"(this took {seconds:.0f} seconds)")


def as_text(found: dict[str, Any], block_size: int) -> str:
    """Return the report that a terminal shows of what `measure` yields last."""
    characters = found["characters"]
    compared = found["compared"]
    texts = found["texts"]
    lines = [
        f"validation loss {found['loss']:.4f} nats per character "
        f"({found['bits_per_character']:.3f} bits), in windows of {block_size}",
        "",
        row("the text", texts),
        row("  words that the training part has", cells(texts, "known_words", ".1%")),
        row("  different words", cells(texts, "different_words", ",.0f")),
        row(f"  copied, in passages of {COPY} or more", cells(texts, "copied", ".1%")),
        row("  longest copied passage", [f"{len(t['longest_copy']):,}" for t in texts.values()]),
    ]
    for name, text in texts.items():
        passage = " ".join(text["longest_copy"].split())
        lines.append(f"  {name + ':':<12} {passage[:80]}".rstrip())
    if compared != characters:
        lines.append(
            f"  (the training part: its last {compared['training']:,} characters; the author: the "
            f"first {compared['validation']:,} of the validation part)"
        )
    return "\n".join(lines)


def row(name: str, cells: Iterable[str]) -> str:
    """Return a line of the table of texts."""
    return f"{name:<44}" + "".join(f"{cell:>11}" for cell in cells)


def cells(texts: dict[str, dict[str, Any]], measure: str, form: str) -> list[str]:
    """Return a measure of each text, formatted."""
    return [format(text[measure], form) for text in texts.values()]


if __name__ == "__main__":
    cli.exit_with(main)
