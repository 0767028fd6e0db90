"""Measure how good a trained model is: python evaluate.py [--corpus FILE] [--json] [--help]."""

from sancho.command import preflight

if __name__ == "__main__":
    typed = preflight.check_evaluation()

import json
import math
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.command import cli, terminal
from sancho.config import DEFAULT_SAMPLING, EvaluateOptions, SampleConfig
from sancho.errors import note, say
from sancho.evaluation.counting import MAX_ORDER, kneser_ney_losses
from sancho.evaluation.measures import (
    COPY,
    copied,
    different_words,
    fraction_of_known_words,
    longest_copy,
    whole_words,
    words_of,
)
from sancho.generate import continue_texts
from sancho.loss import validation_loss
from sancho.machine.device import open_device
from sancho.model import GPT
from sancho.presets import PRESETS
from sancho.run.learned import kept_corpus, learned_corpus
from sancho.run.plan import changes
from sancho.shared.weights import count_parameters
from sancho.text import sources
from sancho.text.corpus import Corpus, remap_ids, require_length

LONG = 20
"""Seconds above which the time that it took is printed."""
SAMPLINGS = {
    "by default": DEFAULT_SAMPLING,
    "plain 0.5": SampleConfig(temperature=0.5),
    "plain 1.0": SampleConfig(temperature=1.0),
}
"""The sampling options of the texts that are measured; plain means the temperature alone."""
SAMPLES = 10
"""Number of texts that are written with each sampling."""
SAMPLE_LENGTH = 2000
"""Characters in each of these texts."""
LEAST_COMPARED = 1000
"""Shorter texts are not compared with anything, because chance would decide."""
SEED = 1605
LONGEST_TRAINING = 10_000_000
"""Characters at the end of the training part that texts are compared with, in about 1 GB."""
LONGEST_VALIDATION = 500_000
"""Characters at the beginning of the validation part that serve as the author's text."""
NOT_TOLD = "vocab_size preset max_iters eval_interval log_interval threads".split()
"""Options that the report does not list, because it has them elsewhere or they change no weight."""


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The measures of a model; losses are in nats per character."""

    loss: float
    """The loss over the whole validation part, or over a text of one's own."""
    bits_per_character: float
    """The loss in bits."""
    perplexity: float
    """The loss as the number of equally likely characters that would have it."""
    characters: dict[str, int]
    """The lengths of the training part, and of the text that was scored (validation)."""
    compared: dict[str, int]
    """How many of these characters are compared with, and serve as the author's text."""
    counting: float | None
    """The loss of counting (counting.py) on the author's text; None if nothing is compared."""
    texts: dict[str, dict[str, Any]]
    """The measures of the model's text with each sampling, and of the author's text, if
    compared."""
    not_compared: str
    """The reason why nothing is compared, or empty."""


def main(typed: Mapping[str, Any]) -> None:
    """Typed options → model and corpus → measures → report."""
    begin = time.monotonic()
    options = cli.made(EvaluateOptions(), typed)
    path = checkpoint.find_checkpoint(options.checkpoint)
    saved = checkpoint.load(path)
    corpus = scored_corpus(options, path, saved)
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
        print(f"\n{about(saved, corpus)}")
    seconds = time.monotonic() - begin
    if seconds > LONG:
        say(f"(this took {seconds:.0f} seconds)")


def scored_corpus(options: EvaluateOptions, path: Path, saved: Checkpoint) -> Corpus:
    """Return the corpus whose validation part is scored, in the ids of the model.

    Of another text than the one that the model learned from, all is validation; its training part
    is that of the text which the model learned from if that is here, and otherwise empty.
    """
    if not options.corpus:
        corpus = learned_corpus(path, saved)
        if corpus.sha256 != saved.corpus_sha256:
            note(
                f"the model learned from another text than {corpus.name}; what the report calls "
                f"the training part is that of {corpus.name}"
            )
    else:
        corpus = sources.corpus_of(options.corpus, options.encoding)
        if corpus.sha256 != saved.corpus_sha256:
            ids = saved.tokenizer.encode(corpus.text, options.unknown)
            learned = kept_corpus(path, saved)
            train = remap_ids(learned, saved.tokenizer).train if learned else ids[:0]
            return replace(corpus, tokenizer=saved.tokenizer, train=train, val=ids)
        note(f"the model learned from {corpus.name}: its validation part is scored")
    require_length(corpus, 1)
    return remap_ids(corpus, saved.tokenizer)


def measure(model: GPT, corpus: Corpus, tell: Callable[[], object]) -> Measures:
    """Measure a model on a text that has its ids; `tell` is called after each stage."""
    loss = validation_loss(model, corpus.val)
    tell()
    of_the_loss = Measures(
        loss=loss,
        bits_per_character=loss / math.log(2),
        perplexity=math.exp(min(loss, 700)),  # more has no exponential
        characters={"training": len(corpus.train), "validation": len(corpus.val)},
        compared={"training": 0, "validation": 0},
        counting=None,
        texts={},
        not_compared=why_not_compared(corpus),
    )
    if of_the_loss.not_compared:
        return of_the_loss
    train = corpus.train[-LONGEST_TRAINING:]
    val = corpus.val[:LONGEST_VALIDATION]
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
    compared = {"training": len(train), "validation": len(val)}
    return replace(of_the_loss, compared=compared, counting=counting, texts=texts)


def why_not_compared(corpus: Corpus) -> str:
    """Return why a model's text is not compared with a corpus; "" if it is."""
    if len(corpus.val) < LEAST_COMPARED:
        return f"{len(corpus.val):,} characters are too few; a comparison needs {LEAST_COMPARED:,}"
    if not len(corpus.train):
        return "the text that the model learned from is not here"
    return ""


def measures_of_text(text: str, train_text: str, known: set[str], length: int) -> dict[str, Any]:
    """Return the measures of a text against the training part, whose words are `known`.

    Different words are counted in pieces of `length` characters.
    """
    return {
        "known_words": fraction_of_known_words(text, known),
        "different_words": different_words(text, length),
        "copied": float(copied(text, train_text).mean()),
        "longest_copy": longest_copy(text, train_text),
    }


def as_text(found: Measures, block_size: int) -> str:
    """Return the report of the measures for a terminal."""
    perplexity = format(found.perplexity, ".2f" if found.perplexity < 1e6 else ".0e")
    first_line = (
        f"validation loss {found.loss:.4f} nats per character ({found.bits_per_character:.3f} "
        f"bits), perplexity {perplexity}, over {found.characters['validation']:,} "
        f"characters, in windows of {block_size}"
    )
    if found.not_compared:
        return f"{first_line}\nThere is nothing to compare it with: {found.not_compared}."
    compared = found.compared
    texts = found.texts
    lines = [
        first_line,
        in_words(found),
        "",
        row("the text", texts),
        row("  words that occur in the training part", cells(texts, "known_words", ".1%")),
        row("  different words", cells(texts, "different_words", ",.0f")),
        row(f"  copied, in passages of {COPY}+ characters", cells(texts, "copied", ".1%")),
        row("  longest copied passage", [f"{len(t['longest_copy']):,}" for t in texts.values()]),
    ]
    for name, text in texts.items():
        passage = " ".join(text["longest_copy"].split())
        lines.append(f"  {name + ':':<12} {passage[:80]}".rstrip())
    lines.append(
        f"  (measured on {SAMPLES * SAMPLE_LENGTH:,} characters of each sampling, "
        f"{compared['validation']:,} of the author's and {compared['training']:,} of the training "
        "part)"
    )
    if compared != found.characters:
        lines.append(
            "  (the first characters of the author's text, and the last of the training part)"
        )
    return "\n".join(lines)


def about(saved: Checkpoint, corpus: Corpus) -> str:
    """Return a few lines about the text that was scored, the model, and how it was trained."""
    preset = PRESETS[saved.train_config.preset]
    changed = changes(preset.model, saved.model_config) | changes(preset.train, saved.train_config)
    options = [f"{name} {value}" for name, (_, value) in changed.items() if name not in NOT_TOLD]
    return textwrap.fill(
        f"The text that was scored is {corpus.name}. The model has "
        f"{count_parameters(saved.model_config):,} parameters and learned from "
        f"{saved.corpus_name or 'a text without a name'} in {saved.progress.step:,} steps, with "
        f"the options of the preset {saved.train_config.preset}"
        f"{' except ' if options else ''}{', '.join(options)}.",
        width=100,
        break_on_hyphens=False,
    )


def in_words(found: Measures) -> str:
    """Return sentences that compare the model with counting and with the author."""
    assert found.counting is not None
    better = found.counting - found.loss
    said = f"{abs(better):.4f} {'better' if better > 0 else 'worse'}"
    ours = found.texts["by default"]
    author = found.texts["the author"]
    words = [f"{text['known_words']:.1%}" for text in (ours, author)]
    copies = [f"{text['copied']:.1%}" for text in (ours, author)]
    return (
        f"That is {said} than {found.counting:.4f}, the loss of counting which character follows "
        f"each sequence of up to {MAX_ORDER - 1} characters.\n"
        f"{words[0]} of the words that the model writes occur in the training part (of the "
        f"author's words, {words[1]}).\n"
        f"{copies[0]} of its text is copied from the training part (of the author's text, "
        f"{copies[1]})."
    )


def row(name: str, cells: Iterable[str]) -> str:
    """Return a line of the table of texts."""
    return f"{name:<44}" + "".join(f"{cell:>11}" for cell in cells)


def cells(texts: dict[str, dict[str, Any]], measure: str, form: str) -> list[str]:
    """Return a measure of each text, formatted."""
    return [format(text[measure], form) for text in texts.values()]


if __name__ == "__main__":
    terminal.run_script(lambda: main(typed))
