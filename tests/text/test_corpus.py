"""From clean texts to ids: vocabulary, the two parts, and the digest of a text."""

import hashlib

import numpy as np
import pytest
from conftest import corpus_from

from sancho import tokenizer
from sancho.errors import UserError
from sancho.text import corpus
from sancho.text.corpus import Corpus, remap_ids, require_length
from sancho.tokenizer import CharTokenizer


def text_of(result: Corpus) -> str:
    return result.tokenizer.decode(np.concatenate([result.train, result.val]))


def test_a_text_becomes_ids_of_its_sorted_characters():
    text = "En un\nlugar de la Mancha. Qué 🐴\n"
    found = corpus_from("En un  \nlugar de la Mancha. Que\u0301 🐴\n\n", "quijote")
    assert (found.name, found.text, found.lengths) == ("quijote", text, (32,))
    assert found.tokenizer.characters == "".join(sorted(set(text)))
    assert text_of(found) == text
    assert found.sha256 == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("length", [2, 9, 10, 11, 19, 20, 99, 100, 12345])
def test_the_last_tenth_is_for_validation(length):
    text = ("abcdefghij" * 2000)[: length - 1] + "\n"
    found = corpus_from(text)
    n_val = length // 10 if length >= corpus.LEAST else 0
    assert (len(found.train), len(found.val)) == (length - n_val, n_val)
    assert text_of(found) == text


def test_of_several_files_the_last_tenth_of_each_is_for_validation():
    texts = ["b" * 59 + "\n", "a" * 99 + "\n", "short\n"]
    found = Corpus.of("mine", texts)
    decode = found.tokenizer.decode
    assert decode(found.val) == "b" * 5 + "\n" + "a" * 9 + "\n"
    assert decode(found.train) == "b" * 54 + "a" * 90 + "short\n"
    assert (found.text, found.lengths) == ("".join(texts), (60, 100, 6))


def test_one_text_that_is_cut_in_two_ways_is_two_texts():
    first, second = (Corpus.of("mine", ["abc\n" * n, "abc\n" * (90 - n)]) for n in (30, 60))
    assert first.sha256 != second.sha256 != corpus_from("abc\n" * 90).sha256
    raw = ("abc\n" * 90).encode() + b"[120, 240]"
    assert first.sha256 == hashlib.sha256(raw).hexdigest()


@pytest.mark.parametrize("piece", [1, 7, 2**20])
def test_a_long_text_is_looked_up_in_pieces(monkeypatch, piece):
    monkeypatch.setattr(tokenizer, "PIECE", piece)
    text = "En un lugar de la Mancha\n" * 3
    assert text_of(corpus_from(text)) == text


def test_a_text_may_have_65536_characters_and_no_more():
    # Ideographs, which have no accents that could be joined.
    characters = "".join(map(chr, (*range(0x20000, 0x2A000), *range(0x30000, 0x36000))))
    found = corpus_from(characters[:-1] + "\n")
    assert found.tokenizer.vocab_size == 65536
    assert text_of(found) == characters[:-1] + "\n"
    words = "tiny has 65537 different characters; give a text with at most 65536"
    with pytest.raises(UserError, match=words):
        corpus_from(characters)
    with pytest.raises(UserError, match="tiny contains no text"):
        corpus_from(" \n\t\n")


@pytest.mark.parametrize("more", ["¿ABC", "".join(map(chr, range(0x20000, 0x20000 + 300)))])
def test_the_same_text_in_the_ids_of_another_vocabulary(more):
    ours = corpus_from("bxy x\u0303 b\u0301 q\u0301 x\u0327 oq\u0301 q, de la Mancha")
    theirs = CharTokenizer("".join(sorted({*ours.tokenizer.characters, *more})))
    result = remap_ids(ours, theirs)
    assert text_of(result) == text_of(ours) == result.text
    assert result.tokenizer is theirs
    assert result.train.dtype == result.val.dtype == theirs.id_type
    assert (result.name, result.sha256) == (ours.name, ours.sha256)
    assert remap_ids(ours, CharTokenizer(ours.tokenizer.characters)) is ours


@pytest.mark.parametrize("block_size", [18, 27, 64, 96, 99, 256, 1000])
def test_the_length_that_is_asked_for_is_the_shortest_that_works(block_size):
    def require(length: int) -> None:
        val, train = np.split(np.zeros(length), [length // 10])
        require_length(Corpus("breve", CharTokenizer("a"), train, val), block_size)

    needed = block_size * 10 // 9 + 1
    require(needed)
    words = f"corpus breve has {needed - 1} characters, but --block_size {block_size} needs at lea"
    with pytest.raises(UserError, match=f"{words}st {needed}: "):
        require(needed - 1)
    # A trained model's block can't be made smaller.
    val, train = np.split(np.zeros(20), [2])
    short = Corpus("breve", CharTokenizer("a"), train, val)
    with pytest.raises(UserError, match=r"give a longer text, or train a model of your own$"):
        require_length(short, block_size, is_fixed=True)
    with pytest.raises(UserError, match="breve has 19 characters, but a text needs at least 20:"):
        require(19)


def test_files_that_are_all_too_short_are_told_as_such():
    with pytest.raises(UserError, match="none of its 3 files has 20: give longer ones"):
        require_length(Corpus.of("mine", ["a\n", "b\n", "c\n"]), 1)
