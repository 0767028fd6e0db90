"""Measures a baseline that only counts: its loss, its time, and how much its text copies.

    python benchmarks/counting.py BOOK [--checkpoint FILE] [--length 7]

The baseline is interpolated Kneser-Ney with one discount for each length (counting.py). Its
time is that of a whole process, run three times: the interpreter, the reading of the text, the
counts, and the loss over the validation part. Then counts of up to --length characters write ten
texts of 2,000 characters with each sampling of evaluate.py. They are compared with the text of a
checkpoint (by default the pretrained model) and with the author's. For each text the report has the
measures of evaluate.py, the fraction in copied passages of SHORT characters or more, and the loss
of the pretrained model, which judges whether the text is coherent.

Before the texts, the checkpoint and the counts are mixed: w times the probability by the checkpoint
plus 1 − w times that by counts of up to LONGEST characters. w is fitted on one half of the
validation part and measured on the other, and the other way round. Prints a report, then one line
of JSON.
"""

from common import need  # isort: skip

need("numpy", "torch")

import json
import statistics
import sys
from pathlib import Path

import numpy as np
from common import ROOT, parser_of, process_seconds

from evaluate import SAMPLE_LENGTH, SAMPLES, SAMPLINGS, SEED, measures_of_text
from sancho import checkpoint
from sancho.config import SampleConfig
from sancho.evaluation.counting import kneser_ney_losses
from sancho.evaluation.measures import copied as is_copied
from sancho.evaluation.measures import whole_words, words_of
from sancho.generate import continue_texts, sample_ids, shape_logits
from sancho.loss import character_losses, validation_loss
from sancho.machine.seeds import Purpose, generator
from sancho.text.corpus import Corpus
from sancho.text.sources import corpus_of

RUNS = 3
CHECKED = 1_000  # characters on which both ways of counting are compared
SHORT = 16
LONGEST = 12  # characters of a sequence in the mixture
WEIGHTS = np.linspace(0, 1, 101)


class Counts:
    """The distribution of the next character by counts of all lengths up to `length`.

    A sequence of m characters is a number of m bytes, whose highest byte is the oldest character.
    """

    def __init__(self, ids: np.ndarray, length: int, vocab_size: int) -> None:
        self.length = length
        self.vocab_size = vocab_size
        self.sequences = []  # of each length: ascending, (n,)
        self.counts = []
        self.discounts = []
        longest = np.zeros(len(ids) - length, np.uint64)  # the sequences of length + 1
        for age in range(length + 1):
            longest = longest << np.uint64(8) | ids[age : len(ids) - length + age].astype(np.uint64)
        before = np.unique(longest)
        for m in range(length, 0, -1):
            here = longest if m == length else before
            # Shorter ones count once for each character that stands before them.
            found, counts = np.unique(here & np.uint64(2 ** (8 * m) - 1), return_counts=True)
            once = (counts == 1).sum()
            self.sequences.insert(0, found)
            self.counts.insert(0, counts)
            self.discounts.insert(0, once / (once + 2 * (counts == 2).sum()) if once else 0.5)
            before = found

    def probabilities(self, context: list[int]) -> np.ndarray:
        """Return the probability of each character, (V,), after so many or more."""
        result = np.full(self.vocab_size, 1 / self.vocab_size)
        for m in range(1, self.length + 1):
            known = int.from_bytes(bytes(context[len(context) - m + 1 :]), "big") << 8
            sequences = self.sequences[m - 1]
            ends = np.array([known, known + 256], np.uint64)
            first, last = np.searchsorted(sequences, ends)
            if last == first:
                break
            next_ids = (sequences[first:last] & np.uint64(255)).astype(int)
            counts = self.counts[m - 1][first:last]
            discount = self.discounts[m - 1]
            result = result * discount * len(counts) / counts.sum()
            result[next_ids] += (counts - discount) / counts.sum()
        return result

    def write(self, context: list[int], sampling: SampleConfig, sample: int) -> list[int]:
        """Return SAMPLE_LENGTH ids that go on after a context."""
        random = generator(SEED, Purpose.SAMPLING, sample)
        ids = list(context)
        for _ in range(SAMPLE_LENGTH):
            logits = np.log(self.probabilities(ids[-self.length :]))[None]
            ids += sample_ids(shape_logits(logits, sampling), np.array([random.random()])).tolist()
        return ids[len(context) :]


def best_loss(corpus: Corpus) -> tuple[int, float]:
    """Return the length with the lowest loss over the validation part, and that loss."""
    losses = kneser_ney_losses(corpus.train, corpus.val, corpus.tokenizer.vocab_size).mean(1)
    return int(losses.argmin()) + 1, float(losses.min())


def check(counts: Counts, corpus: Corpus) -> None:
    """Raise SystemExit unless these are the counts of `kneser_ney_losses`, but at the ends."""
    some = corpus.val[:CHECKED]
    expected = kneser_ney_losses(corpus.train, some, counts.vocab_size)[counts.length - 1].mean()
    ids = np.concatenate((corpus.train[-counts.length :], some)).tolist()
    places = range(counts.length, len(ids))
    found = [counts.probabilities(ids[i - counts.length : i])[ids[i]] for i in places]
    if abs(-np.log(found).mean() - expected) > 1e-3:
        raise SystemExit(f"counted otherwise: {-np.log(found).mean():.4f}, not {expected:.4f}")


def mixed(saved: checkpoint.Checkpoint, corpus: Corpus) -> dict[str, float]:
    """Print and return the losses of the checkpoint and of its mixture, each half by the other's w.

    Raises SystemExit if the checkpoint has another alphabet than the book.
    """
    if saved.characters != corpus.tokenizer.characters:
        raise SystemExit("the checkpoint has other characters than the book; train it on this book")
    by_model = np.exp(-character_losses(saved.build_model(), corpus.val).astype(float))
    V = corpus.tokenizer.vocab_size
    by_counts = np.exp(-kneser_ney_losses(corpus.train, corpus.val, V, LONGEST)[-1])
    halves = np.array_split(np.array([by_model, by_counts[1:]]), 2, axis=1)
    fitted = [min(WEIGHTS, key=lambda w, half=half: mixture_loss(half, w)) for half in halves]
    model = float(-np.log(by_model).mean())
    by_the_other = zip(halves, fitted[::-1], strict=True)
    both = float(np.mean([mixture_loss(half, w) for half, w in by_the_other]))
    weights = " and ".join(f"{w:.2f}" for w in fitted)
    print(f"{model:.4f} alone, {both:.4f} with counts of up to {LONGEST} (w {weights})", flush=True)
    return {"alone": model, "mixed": both}


def mixture_loss(both: np.ndarray, weight: float) -> float:
    """Return the loss of a mixture, in nats. both: probabilities by model and by counts, (2, n)."""
    return float(-np.log(weight * both[0] + (1 - weight) * both[1]).mean())


def main() -> None:
    """Read the options, measure, show."""
    parser = parser_of(__doc__, book=True)
    parser.add_argument("--checkpoint", type=Path, default=checkpoint.PRETRAINED)
    parser.add_argument("--length", type=int, default=7, help="characters of a sequence, at most")
    parser.add_argument("--once", action="store_true", help="only count, and print the loss")
    options = parser.parse_args()
    if options.once:
        print(*best_loss(corpus_of(options.book)))
        return
    line = [str(Path(__file__).resolve()), str(options.book.resolve()), "--once"]
    seconds = [process_seconds(line, ROOT) for _ in range(RUNS)]
    corpus = corpus_of(options.book)
    length, loss = best_loss(corpus)
    print(f"counts of up to {length} characters: {loss:.4f} nats per character")
    print(f"whole processes, seconds: {', '.join(f'{s:.1f}' for s in seconds)}", flush=True)
    mixture = mixed(checkpoint.load(options.checkpoint), corpus)
    texts = texts_of(options, corpus)
    found = mixture | {"loss": loss, "length": length, "seconds": statistics.median(seconds)}
    print(json.dumps(found | {"texts": texts}, ensure_ascii=False))


def texts_of(options: object, corpus: Corpus) -> dict[str, dict]:
    """Print and return the measures of each text."""
    counts = Counts(corpus.train, options.length, corpus.tokenizer.vocab_size)
    check(counts, corpus)
    saved = checkpoint.load(options.checkpoint)
    train = corpus.tokenizer.decode(corpus.train)
    author = corpus.tokenizer.decode(corpus.val)
    known = set(words_of(train))
    start = corpus.train[-options.length :].tolist()
    prompt = saved.tokenizer.encode(author[:1])
    settings = {"max_new_tokens": SAMPLE_LENGTH, "seed": SEED, "samples": range(SAMPLES)}
    judge = checkpoint.pretrained()
    judging = judge.build_model()
    texts = {"the author": [author[: SAMPLES * SAMPLE_LENGTH]]}
    for name, sampling in SAMPLINGS.items():
        written = (counts.write(start, sampling, sample) for sample in range(SAMPLES))
        texts[f"counting, {name}"] = [corpus.tokenizer.decode(ids) for ids in written]
        model = saved.build_numpy()
        pieces = continue_texts(model, saved.tokenizer, prompt, sampling, **settings)
        texts[f"{options.checkpoint.stem}, {name}"] = pieces
    found = {}
    for name, pieces in texts.items():
        text = "\n".join(map(whole_words, pieces))
        measures = measures_of_text(text, train, known, SAMPLES * SAMPLE_LENGTH)
        measures["copied_short"] = float(is_copied(text, train, SHORT).mean())
        losses = [validation_loss(judging, judge.tokenizer.encode(piece)) for piece in pieces]
        measures["judged"] = statistics.mean(losses)
        found[name] = measures
        print(
            f"{name:28} known words {measures['known_words']:.1%}, different "
            f"{measures['different_words']:,.0f}, copied {measures['copied']:.1%} (from {SHORT} on "
            f"{measures['copied_short']:.1%}), longest {len(measures['longest_copy'])}, judged "
            f"{measures['judged']:.3f}",
            flush=True,
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
