import math
import re
from dataclasses import replace

import numpy as np
import pytest
from conftest import ROOT, assert_read_in_no_time, corpus_from, random_gpt

import evaluate
from evaluate import SAMPLINGS, Measures, as_text
from sancho.config import ModelConfig
from sancho.evaluation.counting import kneser_ney_losses
from sancho.evaluation.measures import (
    copied,
    different_words,
    fraction_of_known_words,
    longest_copy,
    words_of,
)
from sancho.generate import continue_texts
from sancho.loss import validation_loss
from sancho.text.corpus import Corpus

SMALL = {"block_size": 16, "n_layer": 1, "n_head": 1, "n_embd": 8}
BOOK = (
    "En un lugar de la Mancha, de cuyo nombre no quiero acordarme, no ha mucho tiempo que vivía un "
    "hidalgo de los de lanza en astillero, adarga antigua, rocín flaco y galgo corredor. Una olla "
    "de algo más vaca que carnero, salpicón las más noches, duelos y quebrantos los sábados.\n"
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    text = (ROOT / "data" / "apocrifo.txt").read_text(encoding="utf-8")[:12_000]
    return corpus_from(text)


@pytest.fixture(scope="module")
def model(corpus):
    shape = SMALL | {"ngram_size": 1, "embedding_skip": False}
    return random_gpt(ModelConfig(vocab_size=corpus.tokenizer.vocab_size, **shape))


@pytest.fixture(scope="module")
def found(corpus, model) -> Measures:
    stages = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "SAMPLE_LENGTH", 60)
        measured = evaluate.measure(model, corpus, lambda: stages.append(1))
    assert len(stages) == 6
    return measured


# --- all together ---------------------------------------------------------------------------


def test_the_texts_of_the_model_are_measured_without_what_is_left_of_a_word(corpus, model, found):
    known = set(words_of(corpus.tokenizer.decode(corpus.train)))
    by_default = found.texts["by default"]
    pieces = continue_texts(
        model,
        corpus.tokenizer,
        corpus.val[:1],
        SAMPLINGS["by default"],
        max_new_tokens=60,
        seed=1605,
        samples=range(10),
    )
    assert any(re.search(r" \S+\Z", piece) for piece in pieces)
    words = words_of("\n".join(re.sub(r" [^ ]*\Z", "", piece) for piece in pieces))
    assert by_default["different_words"] == len(set(words))
    assert by_default["known_words"] == np.mean([word in known for word in words])


def test_the_report_says_nats_bits_and_every_measure(corpus, model, found):
    assert list(found.texts) == ["by default", "plain 0.5", "plain 1.0", "the author"]
    report = as_text(found, 16)
    first_line = report.splitlines()[0]
    form = (
        r"validation loss ([\d.]+) nats per character \(([\d.]+) bits\), perplexity ([\d.]+), over "
    )
    nats, bits, perplexity, *rest = re.fullmatch(form + "(.*)", first_line).groups()
    assert float(nats) == pytest.approx(validation_loss(model, corpus.val), abs=1e-4)
    assert float(bits) == pytest.approx(found.loss / math.log(2), abs=1e-3)
    assert float(perplexity) == pytest.approx(math.exp(found.loss), rel=1e-2)
    assert rest == [f"{len(corpus.val):,} characters, in windows of 16"]
    read = f"{len(corpus.val):,} of the author's and {len(corpus.train):,} of the training part"
    assert f"(measured on 20,000 characters of each sampling, {read})" in report
    for text in found.texts.values():
        for figure in (f"{text['known_words']:.1%}", f"{text['copied']:.1%}"):
            assert figure in report
    assert max(map(len, report.splitlines())) <= 120
    counted = kneser_ney_losses(corpus.train, corpus.val, corpus.tokenizer.vocab_size).mean(1).min()
    beside = re.search(r"That is ([\d.]+) worse than ([\d.]+), the loss of counting", report)
    assert float(beside[2]) == pytest.approx(counted, abs=1e-4)
    assert float(beside[1]) == pytest.approx(found.loss - counted, abs=2e-4)
    better = as_text(replace(found, loss=counted - 0.25), 16)
    assert "That is 0.2500 better than " in better


def test_the_report_says_what_counts_as_copied_and_how_far_counting_looks_back(tmp_path):
    """In letters at random no passage of 16 comes twice by chance."""
    text = random_text(10_000, 7, "abcdefghijklmnop")
    train, val = text[:9000], text[9000:]
    val = f"{train[500:531]}q{val[32:500]}q{train[700:732]}q{val[534:999]}\n"
    corpus = corpus_from(train + val, "letters")
    shape = SMALL | {"ngram_size": 1, "embedding_skip": False}
    model = random_gpt(ModelConfig(vocab_size=corpus.tokenizer.vocab_size, **shape))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "SAMPLE_LENGTH", 20)
        report = as_text(evaluate.measure(model, corpus, lambda: None), 16)
    assert "the loss of counting which character follows each sequence of up to 7" in report
    (copied_line,) = re.findall(
        r"^  copied, in passages of 32\+ characters .*", report, re.MULTILINE
    )
    assert copied_line.split()[-1] == "3.2%"  # 32 characters of 1,000, but not the 31
    (longest_line,) = re.findall(r"^  longest copied passage .*", report, re.MULTILINE)
    assert longest_line.split()[-1] == "32"


@pytest.mark.parametrize(
    ("val", "train", "words"),
    [
        (999, 9000, "999 characters are too few; a comparison needs 1,000"),
        (1000, 0, "learned from is not here"),
    ],
)
def test_too_little_is_compared_with_nothing(corpus, model, val, train, words):
    parts = {"val": corpus.val[:val], "train": corpus.train[:train]}
    found = evaluate.measure(model, replace(corpus, **parts), lambda: None)
    assert found.loss == pytest.approx(validation_loss(model, parts["val"]))
    assert (found.counting, found.texts) == (None, {})
    _, reason = as_text(found, 16).splitlines()
    assert reason.startswith("There is nothing to compare it with: ") and words in reason


def test_different_words_of_a_short_validation_part_are_those_of_texts_as_long(
    corpus, model, monkeypatch
):
    monkeypatch.setattr(evaluate, "SAMPLE_LENGTH", 400)
    monkeypatch.setattr(evaluate, "LEAST_COMPARED", 600)
    val = corpus.val[:600]
    found = evaluate.measure(model, replace(corpus, val=val), lambda: None)
    author = corpus.tokenizer.decode(val)
    assert found.texts["the author"]["different_words"] == len(set(words_of(author)))
    assert found.compared["validation"] == 600
    ours = found.texts["by default"]["different_words"]
    assert ours < 600 / 2  # of pieces of 600 characters, not of all 4,000


# --- words and copies -----------------------------------------------------------------------


def test_words_are_made_of_letters_in_small_letters():
    words = words_of("¡Ñandú, 3_b2 —dijo él—, ÉL!\nd'or")
    assert words == ["ñandú", "b", "dijo", "él", "él", "d", "or"]


def test_fraction_of_known_words():
    known = set(words_of(BOOK))
    assert fraction_of_known_words("En UN lugar de Toledo", known) == 0.8
    assert fraction_of_known_words("… 12 —", known) == 0


def test_different_words_are_counted_in_pieces_of_one_length():
    text = "a b a b c c c c d "  # six characters a piece: a b a · b c c · c c d
    assert different_words(text, 6) == pytest.approx((2 + 2 + 2) / 3)
    assert different_words(text + "e f ", 6) == pytest.approx((2 + 2 + 2) / 3)
    assert different_words(text, 100) == 4


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


def test_words_of_a_long_run_of_a_character_are_found_in_no_time():
    assert_read_in_no_time(words_of)
