import json
import lzma
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import checkpoint_of, exact_logits
from conftest import ROOT, TEXT, assert_refused, prepared, random_gpt, run, succeed

from evaluate import as_text
from sancho import checkpoint
from sancho.config import ModelConfig
from sancho.corpus import Corpus
from sancho.evaluation import measures
from sancho.evaluation.measures import MAX_ORDER, STAGES, copied, longest_copy, words_of
from sancho.training import character_losses, validation_loss

SMALL = {"block_size": 16, "n_layer": 1, "n_head": 1, "n_embd": 8}
BOOK = (
    "En un lugar de la Mancha, de cuyo nombre no quiero acordarme, no ha mucho tiempo que vivía un "
    "hidalgo de los de lanza en astillero, adarga antigua, rocín flaco y galgo corredor. Una olla "
    "de algo más vaca que carnero, salpicón las más noches, duelos y quebrantos los sábados.\n"
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    text = (ROOT / "data" / "apocrifo.txt").read_text(encoding="utf-8")[:6000]
    return prepared(text, tmp_path_factory.mktemp("data") / "tiny")


@pytest.fixture(scope="module")
def model(corpus):
    return random_gpt(ModelConfig(vocab_size=corpus.tokenizer.vocab_size, **SMALL))


def measure_all(model, corpus, **limits) -> dict:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ({"SAMPLE_LENGTH": 60} | limits).items():
            patch.setattr(measures, name, value)
        stages = list(measures.measure(model, corpus))
    assert len(stages) == STAGES
    return dict(stages)


@pytest.fixture(scope="module")
def found(corpus, model):
    return measure_all(model, corpus)


# --- all together ---------------------------------------------------------------------------


def test_losses_are_those_of_the_model_and_of_guessing(corpus, model, found):
    names = list(found["losses"])
    assert found["losses"][names[0]] == pytest.approx(math.log(corpus.tokenizer.vocab_size))
    expected = validation_loss(model, corpus.val)
    assert found["losses"]["this model, in windows of 16"] == pytest.approx(expected, abs=1e-5)
    assert not any("PPMd" in name for name in names)  # that holds for one book alone


def test_parts_make_up_the_whole(corpus, found):
    n = len(corpus.val) - 1
    assert sum(fraction for fraction, _ in found["by_kind"].values()) == pytest.approx(1)
    whole = sum(fraction * loss for fraction, loss in found["by_kind"].values())
    assert whole == pytest.approx(found["losses"]["this model, after at least 8"], abs=1e-5)
    assert list(found["by_place"]) == ["1", "2–3", "4–7", "8–16"]
    places = np.arange(n) % 16 + 1
    counts = [((places >= a) & (places <= b)).sum() for a, b in ((1, 1), (2, 3), (4, 7), (8, 16))]
    mean = np.dot(counts, list(found["by_place"].values())) / n
    assert mean == pytest.approx(found["losses"]["this model, in windows of 16"], abs=1e-5)


def test_texts_of_the_model_stand_beside_the_authors(found):
    assert list(found["texts"]) == ["by default", "plain 0.5", "plain 1.0", "the author"]
    author = found["texts"]["the author"]
    assert author["known_words"] > found["texts"]["plain 1.0"]["known_words"]
    assert author["copied"] == found["copied"]


def test_report_and_json_hold_every_figure(found):
    report, raw = as_text(found), json.loads(json.dumps(found))
    for name, loss in found["losses"].items():
        assert f"{loss:.3f}" in report and name in report
        assert raw["bits_per_character"][name] == pytest.approx(loss / math.log(2))
    assert max(map(len, report.splitlines())) <= 120
    assert "all else" not in report


def test_a_long_text_is_measured_in_part_and_the_report_says_so(corpus, model, found):
    n_val, n_train = 300, 2000
    cut = measure_all(model, corpus, LONGEST_VALIDATION=n_val, LONGEST_TRAINING=n_train)
    short = replace(corpus, train=corpus.train[-n_train:], val=corpus.val[:n_val])
    small = measure_all(model, short)
    whole = "this model, in windows of 16"
    assert cut["losses"].pop(whole) == found["losses"][whole]
    assert small["losses"].pop(whole) != found["losses"][whole]
    assert cut["losses"] == small["losses"]
    assert (cut["texts"], cut["by_kind"]) == (small["texts"], small["by_kind"])
    assert (cut["by_place"], cut["characters"]) == (found["by_place"], len(corpus.val))
    assert f"of {len(corpus.val):,} characters; all else: of the first 300" in as_text(cut)


@pytest.mark.parametrize("block_size", [1, 2, 5, 16])
@pytest.mark.parametrize("n", [2, 3, 9, 16, 17, 18, 40])
def test_sliding_losses_are_those_of_a_long_context(corpus, block_size, n):
    shape = SMALL | {"block_size": block_size, "vocab_size": corpus.tokenizer.vocab_size}
    model, half = random_gpt(ModelConfig(**shape)), block_size // 2
    ids = np.asarray(corpus.val[:n]).astype(np.int64)
    losses = measures.sliding_losses(model, ids, character_losses(model, ids))
    assert losses.shape == (n - 1,)
    for i in range(n - 1):  # what is predicted is character i + 1
        begin = i - i % block_size
        if i - begin < half <= i:
            begin = i - half - (i - half) % block_size + half
        assert i - begin >= min(i, half)
        logits = torch.from_numpy(exact_logits(model, ids[None, begin : i + 1])[0, -1])
        assert losses[i] == pytest.approx(-logits.log_softmax(0)[ids[i + 1]].item(), abs=1e-5)


def test_a_checkpoint_that_names_no_corpus_needs_a_dataset(project, monkeypatch):
    monkeypatch.setattr(measures, "SAMPLE_LENGTH", 30)
    characters = "".join(sorted(set(TEXT)))
    saved = checkpoint_of(ModelConfig(vocab_size=len(characters), **SMALL), characters)
    checkpoint.save(Path("nameless.safetensors"), saved)
    line = ("evaluate.py", "--checkpoint=nameless.safetensors")
    assert_refused(run(*line), "evaluate.py", "--dataset NAME")
    assert "nothing known" in succeed(*line, "--dataset=tiny").out


# --- words and copies -----------------------------------------------------------------------


def test_words_are_made_of_letters_in_small_letters():
    words = words_of("¡Ñandú, 3_b2 —dijo él—, ÉL!\nd'or")
    assert words == ["ñandú", "b", "dijo", "él", "él", "d", "or"]


def test_fraction_of_known_words():
    known = set(words_of(BOOK))
    assert measures.fraction_of_known_words("En UN lugar de Toledo", known) == 0.8
    assert measures.fraction_of_known_words("… 12 —", known) == 0


def test_different_words_are_counted_in_pieces_of_one_length():
    text = "a b a b c c c c d "  # six characters a piece: a b a · b c c · c c d
    assert measures.different_words(text, 6) == pytest.approx((2 + 2 + 2) / 3)
    assert measures.different_words(text + "e f ", 6) == pytest.approx((2 + 2 + 2) / 3)
    assert measures.different_words(text, 100) == 4


def copied_by_hand(text: str, source: str, length: int) -> list[bool]:
    covered = [False] * len(text)
    for i in range(len(text) - length + 1):
        if text[i : i + length] in source:
            covered[i : i + length] = [True] * length
    return covered


def longest_by_hand(text: str, source: str, length: int) -> str:
    n = len(text)
    passages = (text[i:j] for i in range(n) for j in range(i + length, n + 1))
    return max((passage for passage in passages if passage in source), key=len, default="")


def random_text(n: int, seed: int, letters: str = "ab ") -> str:
    return "".join(np.random.default_rng(seed).choice(list(letters), n))


@pytest.mark.parametrize("length", [1, 2, 7, 32])
@pytest.mark.parametrize("seed", range(4))
def test_copies_are_those_found_by_trying_all(seed, length):
    source = random_text(300, seed) + BOOK
    text = random_text(60, seed + 100) + BOOK[20 : 40 + 14 * seed] + "x" + BOOK[3:40]
    expected = copied_by_hand(text, source, length)
    assert copied(text, source, length).tolist() == expected
    assert any(expected) and not all(expected)
    assert longest_copy(text, source, length) == longest_by_hand(text, source, length)


@pytest.mark.parametrize(
    ("text", "source", "longest"),
    [
        ("", "abc", ""),
        ("abc", "", ""),
        ("xyz", "abc", ""),
        ("abc", "abc", "abc"),
        ("abxcd", "cdab", "ab"),
        ("😀ñ—", "x😀ñ—", "😀ñ—"),
        (BOOK * 3, BOOK * 2, BOOK * 2),
    ],
)
def test_short_and_repeated_texts(text, source, longest):
    assert longest_copy(text, source, 1) == longest
    assert longest_copy(text, source) == (longest if len(longest) >= 32 else "")
    assert copied(text, source).tolist() == [len(longest) >= 32] * len(text)


# --- baselines ------------------------------------------------------------------------------


def kneser_ney(train: tuple[int, ...], context: tuple[int, ...], new: int, below: float) -> float:
    """The probability of `new` as it is written down, with counters; `below`: without a context.

    Sequences that are shorter than the longest are counted once for each letter before them.
    """
    n = len(context) + 1
    for m in range(1, n + 1):
        width, before = min(m + 1, n), context[n - m :]
        found = [train[i : i + width] for i in range(len(train) - width + 1)]
        counts = Counter(found if m == n else (longer[1:] for longer in set(found)))
        rows = {key[-1]: count for key, count in counts.items() if key[:-1] == before}
        if rows:
            once, twice = (sum(count == k for count in counts.values()) for k in (1, 2))
            discount = once / (once + 2 * twice) if once else 0.5
            left = discount * len(rows) * below
            below = (max(rows.get(new, 0) - discount, 0) + left) / sum(rows.values())
    return below


def ids_of(text: str) -> tuple[np.ndarray, int]:
    characters = sorted(set(text))
    return np.array([characters.index(c) for c in text], dtype=np.uint8), len(characters)


def test_counts_are_those_of_the_written_formula():
    ids, V = ids_of(BOOK)
    train, val = ids[:220], ids[220:]
    losses = measures.count_losses(train, val, V)
    assert losses.shape == (MAX_ORDER,)
    for n in range(1, MAX_ORDER + 1):
        contexts = [tuple(ids[i - n + 1 : i].tolist()) for i in range(220, len(ids))]
        known = tuple(train.tolist())
        chances = [kneser_ney(known, c, new, 1 / V) for c, new in zip(contexts, val, strict=True)]
        assert losses[n - 1] == pytest.approx(-np.log(chances).mean(), rel=1e-9), n


@pytest.mark.parametrize("n_train", [0, 1, 5])
def test_almost_nothing_to_count(n_train):
    ids, V = ids_of(BOOK)
    losses = measures.count_losses(ids[:n_train], ids[n_train:60], V)
    assert np.isfinite(losses).all()
    if not n_train:
        np.testing.assert_allclose(losses, math.log(V))


def test_xz_packs_what_it_has_read_already_into_nothing():
    text = random_text(4000, 0, "abcdefghijklmnop")
    alone = 8 * len(lzma.compress(text[2000:].encode())) / 2000
    assert 3.9 < measures.xz_loss(text[:2000], text[2000:]) < alone + 0.3
    assert measures.xz_loss(text, text) < 0.2
