"""Say what a trained model is worth: python evaluate.py [--checkpoint FILE] [--json] [--help]."""

if __name__ == "__main__":  # before NumPy and PyTorch are loaded
    from sancho.machine.threads import configure_threads

    configure_threads()

    from sancho import cli

    cli.require_torch()

import json
import math
import time
import warnings
from collections.abc import Sequence
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
        found = dict(tqdm(stages, total=STAGES, desc="evaluating", leave=False, disable=None))
    if options.json:
        print(json.dumps(found, ensure_ascii=False, indent=1))
    else:
        print(as_text(found))
    if (seconds := time.monotonic() - begin) > 20:
        cli.say(f"(this took {seconds:.0f} seconds)")


def as_text(found: dict[str, Any]) -> str:
    """Return the report that a terminal shows of all that `measure` yields."""
    texts, losses = found["texts"], found["losses"]

    def of_texts(name: str, form: str) -> list[str]:
        return [format(text[name], form) for text in texts.values()]

    rows: list[tuple[str, ...]] = [("loss on the validation part", "nats", "bits")]
    rows += [(f"  {name}", f"{x:.3f}", f"{x / math.log(2):.3f}") for name, x in losses.items()]
    if found["measured"] < found["characters"]:
        whole, piece = f"{found['characters']:,}", f"{found['measured']:,}"
        rows += [(f"  (in windows: of {whole} characters; all else: of the first {piece})",)]
    rows += [
        ("",),
        ("the text", *texts),
        ("  words that the training part has", *of_texts("known_words", ".1%")),
        ("  different words", *of_texts("different_words", ",.0f")),
        (f"  copied, in passages of {COPY} or more", *of_texts("copied", ".1%")),
        ("  longest copied passage", *(f"{len(t['longest_copy']):,}" for t in texts.values())),
    ]
    for name, text in texts.items():
        rows += [(f"  {name + ':':<12} {' '.join(text['longest_copy'].split())[:80]}",)]
    rows += [("",), ("characters of the window before it", "nats")]
    rows += [(f"  {name}", f"{loss:.3f}") for name, loss in found["by_place"].items()]
    rows += [("",), ("kind of character", "fraction", "nats")]
    rows += [(f"  {k}", f"{part:.1%}", f"{x:.3f}") for k, (part, x) in found["by_kind"].items()]
    lines = (f"{name:<44}" + "".join(f"{cell:>11}" for cell in cells) for name, *cells in rows)
    return "\n".join(map(str.rstrip, lines))


if __name__ == "__main__":
    cli.exit_with(main)
