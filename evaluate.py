"""Say what a trained model is worth: python evaluate.py [--checkpoint FILE] [--json] [--help]."""

import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from sancho import checkpoint, cli
from sancho.assessment import STAGES, as_table, assess
from sancho.config import EvaluateOptions
from sancho.corpus import find_corpus, recode, require_length
from sancho.device import choose_device
from sancho.generate import open_model

DATA = Path(__file__).resolve().parent / "data"


def main(args: Sequence[str]) -> None:
    """Options → model and corpus → assessment → table."""
    options, begin = cli.parse(EvaluateOptions(), args), time.monotonic()
    saved = checkpoint.load_or_pretrained(options.checkpoint)
    corpus = find_corpus(DATA, options.dataset or saved.corpus_name)
    corpus = recode(corpus, saved.tokenizer)
    require_length(corpus, 1)
    if corpus.sha256 != saved.corpus_sha256:
        warnings.warn(
            f"the model learned from another text than {corpus.name}; what the tables call the "
            f"training part is that of {corpus.name}",
            stacklevel=2,
        )
    device = choose_device(options.device)
    model = saved.build_model().to(device.where)
    writer, context = open_model(saved, options.device)
    with context, device.autocast():
        stages = assess(model, writer, corpus)
        *_, found = tqdm(stages, total=STAGES, desc="evaluating", leave=False, disable=None)
    if options.json:
        print(json.dumps(found.to_json(), ensure_ascii=False, indent=1))
    else:
        print(as_table(found))
    if (seconds := time.monotonic() - begin) > 20:
        cli.say(f"(this took {seconds:.0f} seconds)")


if __name__ == "__main__":
    cli.exit_with(main)
