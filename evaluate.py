"""Say what a trained model is worth: python evaluate.py [--checkpoint FILE] [--json] [--help]."""

if __name__ == "__main__":  # before NumPy and PyTorch are loaded
    from sancho.machine.environment import calm_threads

    calm_threads()

import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from sancho import checkpoint, cli
from sancho.config import EvaluateOptions
from sancho.corpus import find_corpus, remap_ids, require_length
from sancho.errors import UserError
from sancho.generate import open_model
from sancho.machine.device import choose_device
from sancho.report.measures import STAGES, as_text, measure

DATA = Path(__file__).resolve().parent / "data"


def main(args: Sequence[str]) -> None:
    """Options → model and corpus → measures → report."""
    begin = time.monotonic()
    options = cli.parse(EvaluateOptions(), args)
    saved = checkpoint.load_or_pretrained(options.checkpoint)
    name = options.dataset or saved.corpus_name
    if not name:
        raise UserError("the checkpoint does not say what it learned from; give --dataset NAME")
    corpus = remap_ids(find_corpus(DATA, name), saved.tokenizer)
    require_length(corpus, 1)
    if corpus.sha256 != saved.corpus_sha256:
        warnings.warn(
            f"the model learned from another text than {corpus.name}; what the report calls the "
            f"training part is that of {corpus.name}",
            stacklevel=2,
        )
    device = choose_device(options.device)
    model = saved.build_model().to(device.where)
    writer, context = open_model(saved, options.device)
    with context, device.autocast():
        stages = measure(model, writer, corpus)
        found = dict(tqdm(stages, total=STAGES, desc="evaluating", leave=False, disable=None))
    if options.json:
        print(json.dumps(found, ensure_ascii=False, indent=1))
    else:
        print(as_text(found))
    if (seconds := time.monotonic() - begin) > 20:
        cli.say(f"(this took {seconds:.0f} seconds)")


if __name__ == "__main__":
    cli.exit_with(main)
