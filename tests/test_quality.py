import numpy as np
import pytest

from sancho.quality import Source, different_words, share_of_known_words, words_of

BOOK = (
    "En un lugar de la Mancha, de cuyo nombre no quiero acordarme, no ha mucho tiempo que vivía "
    "un hidalgo de los de lanza en astillero, adarga antigua, rocín flaco y galgo corredor.\n"
)


def copied_by_hand(text: str, source: str, length: int) -> list[bool]:
    covered = [False] * len(text)
    for i in range(len(text) - length + 1):
        if text[i : i + length] in source:
            covered[i : i + length] = [True] * length
    return covered


def longest_by_hand(text: str, source: str) -> str:
    runs = (text[i:j] for i in range(len(text)) for j in range(i, len(text) + 1))
    return max((run for run in runs if run in source), key=len)


def random_text(n: int, seed: int, letters: str = "ab ") -> str:
    return "".join(np.random.default_rng(seed).choice(list(letters), n))


def test_words_are_runs_of_letters_in_small_letters():
    words = words_of("¡Ñandú, 3_b2 —dijo él—, ÉL!\nd'or")
    assert words == ["ñandú", "b", "dijo", "él", "él", "d", "or"]


def test_share_of_known_words():
    known = set(words_of(BOOK))
    assert share_of_known_words("En UN lugar de Toledo", known) == 0.8
    assert share_of_known_words("… 12 —", known) == 0


def test_different_words_are_counted_in_pieces_of_one_length():
    text = "a b a b c c c c d "  # six characters a piece: a b a · b c c · c c d
    assert different_words(text, 6) == pytest.approx((2 + 2 + 2) / 3)
    assert different_words(text + "e f ", 6) == pytest.approx((2 + 2 + 2) / 3)
    assert different_words(text, 100) == 4


@pytest.mark.parametrize("length", [1, 2, 8, 32])
@pytest.mark.parametrize("seed", range(4))
def test_copies_are_those_found_one_by_one(length, seed):
    source = random_text(300, seed) + BOOK
    text = random_text(150, seed + 100) + BOOK[20:90] + "x" + BOOK[3:40] + random_text(9, seed)
    expected = copied_by_hand(text, source, length)
    assert Source(source).copied(text, length).tolist() == expected
    assert any(expected) and not all(expected)


@pytest.mark.parametrize("seed", range(6))
def test_the_longest_run_is_the_one_found_by_trying_all(seed):
    source = random_text(200, seed) + BOOK
    text = random_text(60, seed + 50) + (BOOK[10 : 10 + 7 * seed] if seed else "")
    found = Source(source).longest_run(text)
    assert len(found) == len(longest_by_hand(text, source))
    assert found in text and found in source


@pytest.mark.parametrize(
    ("text", "source", "longest"),
    [
        ("", "abc", ""),
        ("abc", "", ""),
        ("xyz", "abc", ""),
        ("abc", "abc", "abc"),
        ("zzabczz", "abc", "abc"),
        ("abc", "zzabczz", "abc"),
        ("b", "abc", "b"),
        ("😀ñ—", "x😀ñ—", "😀ñ—"),
        ("aaaa", "aaaaaaaa", "aaaa"),
    ],
)
def test_short_and_empty_texts(text, source, longest):
    assert Source(source).longest_run(text) == longest
    assert Source(source).copied(text).tolist() == [False] * len(text)


def test_equal_hashes_alone_are_no_copy(monkeypatch):
    from sancho import quality

    monkeypatch.setattr(
        quality, "_hashes", lambda codes, n: np.zeros(len(codes) - n + 1, np.uint64)
    )
    assert not Source("abcdefgh" * 8).copied("hgfedcba" * 8).any()
