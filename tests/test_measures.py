import importlib
import json
import lzma
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from architectures import checkpoint_of
from conftest import ROOT, TEXT, assert_refused, prepared, random_gpt, run, succeed

import evaluate
from evaluate import SAMPLINGS, STAGES, as_text
from sancho import checkpoint
from sancho.config import ModelConfig
from sancho.corpus import Corpus
from sancho.evaluation.measures import (
    copied,
    different_words,
    fraction_of_known_words,
    longest_copy,
    words_of,
)
from sancho.generate import continue_texts
from sancho.training import validation_loss

SMALL = {"block_size": 16, "n_layer": 1, "n_head": 1, "n_embd": 8}
LENGTH = 60
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
    shape = SMALL | {"ngram_size": 1, "embedding_skip": False}
    return random_gpt(ModelConfig(vocab_size=corpus.tokenizer.vocab_size, **shape))


def measure_all(model, corpus, **limits) -> dict:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ({"SAMPLE_LENGTH": LENGTH} | limits).items():
            patch.setattr(evaluate, name, value)
        stages = list(evaluate.measure(model, corpus))
    assert len(stages) == STAGES
    return stages[-1]


@pytest.fixture(scope="module")
def found(corpus, model):
    return measure_all(model, corpus)


# --- all together ---------------------------------------------------------------------------


def test_the_loss_is_that_of_the_whole_validation_part(corpus, model, found):
    assert found["loss"] == pytest.approx(validation_loss(model, corpus.val), abs=1e-5)
    assert found["bits_per_character"] == pytest.approx(found["loss"] / math.log(2))


def test_the_texts_of_the_model_are_measured_without_what_is_left_of_a_word(corpus, model, found):
    known = set(words_of(corpus.tokenizer.decode(corpus.train)))
    by_default = found["texts"]["by default"]
    pieces = continue_texts(
        model,
        corpus.tokenizer,
        corpus.val[:1],
        SAMPLINGS["by default"],
        max_new_tokens=LENGTH,
        seed=1605,
        samples=range(10),
    )
    assert any(re.search(r" \S+\Z", piece) for piece in pieces)
    words = words_of("\n".join(re.sub(r" [^ ]*\Z", "", piece) for piece in pieces))
    assert by_default["different_words"] == len(set(words))
    assert by_default["known_words"] == np.mean([word in known for word in words])


def test_texts_of_the_model_stand_beside_the_authors(found):
    assert list(found["texts"]) == ["by default", "plain 0.5", "plain 1.0", "the author"]
    author = found["texts"]["the author"]
    assert author["known_words"] > found["texts"]["plain 1.0"]["known_words"]


def test_the_report_says_nats_bits_and_every_measure(found):
    report = as_text(json.loads(json.dumps(found)), 16)
    nats, bits = re.search(r"loss ([\d.]+) nats per character \(([\d.]+) bits\)", report).groups()
    assert float(nats) == pytest.approx(found["loss"], abs=1e-4)
    assert float(bits) == pytest.approx(found["loss"] / math.log(2), abs=1e-3)
    for text in found["texts"].values():
        for figure in (f"{text['known_words']:.1%}", f"{text['copied']:.1%}"):
            assert figure in report
    assert max(map(len, report.splitlines())) <= 120
    assert "its last" not in report


def test_of_a_long_text_all_is_read_for_the_loss_and_the_report_says_what_else_is(
    corpus, model, found
):
    n_val, n_train = 300, 2000
    cut = measure_all(model, corpus, LONGEST_VALIDATION=n_val, LONGEST_TRAINING=n_train)
    short = replace(corpus, train=corpus.train[-n_train:], val=corpus.val[:n_val])
    small = measure_all(model, short)
    assert cut["loss"] == found["loss"] != small["loss"]
    assert cut["texts"] == small["texts"] != found["texts"]
    report = as_text(cut, 16)
    assert "its last 2,000 characters" in report and "the first 300 of" in report


def test_a_checkpoint_that_names_no_corpus_needs_a_dataset(project, monkeypatch):
    monkeypatch.setattr(evaluate, "SAMPLE_LENGTH", 30)
    characters = "".join(sorted(set(TEXT)))
    saved = checkpoint_of(ModelConfig(vocab_size=len(characters), **SMALL), characters)
    checkpoint.save(Path("nameless.safetensors"), saved)
    line = ("evaluate.py", "--checkpoint=nameless.safetensors")
    assert_refused(run(*line), "evaluate.py", "--dataset NAME")
    assert "validation loss" in succeed(*line, "--dataset=tiny").out


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


# --- the benchmark beside which they stand --------------------------------------------------


@pytest.fixture
def baselines(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("baselines")


def test_baselines_of_another_text_are_computed_from_it_alone(baselines, corpus):
    found = baselines.baselines(corpus)
    counts = np.bincount(corpus.train, minlength=corpus.tokenizer.vocab_size)
    assert found["nothing known"] == pytest.approx(math.log2(len(counts)))
    # Smoothing takes a little from each count.
    entropy = -np.log2(counts[corpus.val].clip(0.5) / counts.sum()).mean()
    assert found["how often each letter occurs"] == pytest.approx(entropy, rel=0.01)
    assert not any("PPMd" in name for name in found)  # that holds for one book alone


def test_published_figures_stand_beside_the_book_as_in_the_documentation(baselines, corpus):
    book = replace(corpus, sha256=checkpoint.pretrained().corpus_sha256)
    found = baselines.baselines(book)
    for page in ("measurements.md", "es/medidas.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        for row in ("PPMd", "nanoGPT"):
            (bits,) = (bits for name, bits in found.items() if row in name)
            assert re.search(rf"^\|.*{row}.* \| {bits:.3f} \|$", text, re.MULTILINE), row


def test_xz_packs_what_it_has_read_already_into_nothing(baselines):
    text = random_text(4000, 0, "abcdefghijklmnop")
    alone = 8 * len(lzma.compress(text[2000:].encode())) / 2000
    assert 3.9 < baselines.xz_bits(text[:2000], text[2000:]) < alone + 0.3
    assert baselines.xz_bits(text, text) < 0.2
