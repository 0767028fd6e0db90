"""Say what a trained model is worth: python evaluate.py [--checkpoint FILE] [--json] [--help]."""

from sancho import preflight

if __name__ == "__main__":
    preflight.check_evaluation()

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tqdm import tqdm

from sancho import checkpoint, cli, sources, terminal
from sancho.config import DEFAULT_SAMPLING, EvaluateOptions, SampleConfig
from sancho.corpus import Corpus, remap_ids, require_length
from sancho.counting import MAX_ORDER, kneser_ney_losses
from sancho.device import open_device
from sancho.errors import UserError, note, say
from sancho.generate import continue_texts
from sancho.loss import validation_loss
from sancho.measures import (
    COPY,
    copied,
    different_words,
    fraction_of_known_words,
    longest_copy,
    whole_words,
    words_of,
)
from sancho.model import GPT

LONG = 20
"""Seconds from which a report says how many it took."""
SAMPLINGS = {
    "by default": DEFAULT_SAMPLING,
    "plain 0.5": SampleConfig(temperature=0.5),
    "plain 1.0": SampleConfig(temperature=1.0),
}
"""How texts are written to be measured; plain: at that temperature and nothing else."""
SAMPLES = 10
"""Texts of each sampling."""
SAMPLE_LENGTH = 2000
"""Characters in each of them."""
SEED = 1605
LONGEST_TRAINING = 10_000_000  # Python 2 stops at this line: 3.10 or later is needed
"""Characters at the end of the training part that texts are compared with: about 1 GB of memory."""
LONGEST_VALIDATION = 500_000
"""Characters at the beginning of the validation part that are the author's text."""


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What was measured of a model; losses in nats per character."""

    loss: float
    """Of the whole validation part."""
    bits_per_character: float
    """The same in bits."""
    characters: dict[str, int]
    """Of the training and of the validation part."""
    compared: dict[str, int]
    """Those of them that texts are compared with, and that are the author's text."""
    counting: float
    """The loss of counting (counting.py) on the author's text."""
    texts: dict[str, dict[str, Any]]
    """The measures of the model's text by each sampling, and of the author's."""


def main(args: Sequence[str]) -> None:
    """Options → model and corpus → measures → report."""
    begin = time.monotonic()
    options = cli.parse(EvaluateOptions(), args)
    saved = checkpoint.load(checkpoint.find_checkpoint(options.checkpoint))
    name = options.dataset or saved.corpus_name
    if not name:
        raise UserError("the checkpoint does not say what it learned from; give --dataset NAME")
    corpus = sources.find_corpus(sources.DATA, name)
    corpus.check()
    corpus = remap_ids(corpus, saved.tokenizer)
    require_length(corpus, 1)
    if corpus.sha256 != saved.corpus_sha256:
        note(
            f"the model learned from another text than {corpus.name}; what the report calls the "
            f"training part is that of {corpus.name}"
        )
    device = open_device(options.device)
    model = saved.build_model().to(device.torch_device)
    stages = 2 + len(SAMPLINGS) + 1  # the loss, counting, the model's texts and the author's
    bar = tqdm(total=stages, desc="evaluating", leave=False, disable=None)
    with bar, device.autocast():
        found = measure(model, corpus, tell=bar.update)
    if options.json:
        print(json.dumps(asdict(found), ensure_ascii=False, indent=1))
    else:
        print(as_text(found, saved.model_config.block_size))
    seconds = time.monotonic() - begin
    if seconds > LONG:
        say(f"(this took {seconds:.0f} seconds)")


def measure(model: GPT, corpus: Corpus, tell: Callable[[], object]) -> Measures:
    """Measure a model on a text that is in its ids; `tell` is called after each stage."""
    train = corpus.train[-LONGEST_TRAINING:]
    val = corpus.val[:LONGEST_VALIDATION]
    loss = validation_loss(model, corpus.val)
    tell()
    counting = float(kneser_ney_losses(train, val, corpus.tokenizer.vocab_size).mean(1).min())
    tell()
    author = corpus.tokenizer.decode(val)
    length = min(len(author), SAMPLES * SAMPLE_LENGTH)  # of texts that are compared
    train_text = corpus.tokenizer.decode(train)
    known = set(words_of(train_text))
    texts = {}
    for name, sampling in SAMPLINGS.items():
        pieces = continue_texts(
            model,
            corpus.tokenizer,
            val[:1],
            sampling,
            max_new_tokens=SAMPLE_LENGTH,
            seed=SEED,
            samples=range(SAMPLES),
        )
        text = "\n".join(map(whole_words, pieces))
        texts[name] = measures_of_text(text, train_text, known, length)
        tell()
    texts["the author"] = measures_of_text(author, train_text, known, length)
    tell()
    return Measures(
        loss=loss,
        bits_per_character=loss / math.log(2),
        characters={"training": len(corpus.train), "validation": len(corpus.val)},
        compared={"training": len(train), "validation": len(val)},
        counting=counting,
        texts=texts,
    )


def measures_of_text(text: str, train_text: str, known: set[str], length: int) -> dict[str, Any]:
    """Return the measures of a text beside the training part, the words of which are `known`.

    Different words are counted in pieces of `length` characters.
    """
    return {
        "known_words": fraction_of_known_words(text, known),
        "different_words": different_words(text, length),
        "copied": float(copied(text, train_text).mean()),
        "longest_copy": longest_copy(text, train_text),
    }


def as_text(found: Measures, block_size: int) -> str:
    """Return the report that a terminal shows of it."""
    characters = found.characters
    compared = found.compared
    texts = found.texts
    lines = [
        f"validation loss {found.loss:.4f} nats per character "
        f"({found.bits_per_character:.3f} bits), in windows of {block_size}",
        in_words(found),
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


def in_words(found: Measures) -> str:
    """Return in two sentences how good that is: beside counting, and beside the author."""
    better = found.counting - found.loss
    said = f"{abs(better):.4f} {'better' if better > 0 else 'worse'}"
    ours = found.texts["by default"]
    author = found.texts["the author"]
    words = [f"{text['known_words']:.1%}" for text in (ours, author)]
    copies = [f"{text['copied']:.1%}" for text in (ours, author)]
    return (
        f"That is {said} than counting what follows up to {MAX_ORDER - 1} characters, which "
        f"reaches {found.counting:.4f}.\n"
        f"Of its words {words[0]} stand in the training part (of the author's: {words[1]}).\n"
        f"Of its text {copies[0]} is copied from there (of the author's: {copies[1]})."
    )


def row(name: str, cells: Iterable[str]) -> str:
    """Return a line of the table of texts."""
    return f"{name:<44}" + "".join(f"{cell:>11}" for cell in cells)


def cells(texts: dict[str, dict[str, Any]], measure: str, form: str) -> list[str]:
    """Return a measure of each text, formatted."""
    return [format(text[measure], form) for text in texts.values()]


if __name__ == "__main__":
    terminal.run_script(main)
