"""Characters to integers and back, and what happens to characters that no one has seen."""

import json
import unicodedata

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sancho.errors import UserError
from sancho.tokenizer import CharTokenizer

LETTERS = CharTokenizer.from_text("En un lugar de la Mancha, ¿eh?\n")
# By number, because st.characters() first sorts all of Unicode; no surrogates.
CHARACTERS = st.one_of(
    st.integers(0, 0xD7FF), st.integers(0x300, 0x36F), st.integers(0xE000, 0x10FFFF)
).map(chr)
TEXTS = st.lists(CHARACTERS, min_size=1).map("".join)


def message_for(text: str, unknown="error") -> str:
    with pytest.raises(UserError) as caught:
        LETTERS.encode(text, unknown)
    return str(caught.value)


# --- round trips ----------------------------------------------------------------------------


@given(TEXTS)
@example("e\u0301 ñ ﬁ 🐴 𝔔 \U0010ffff\0")
@example('"\\\n\u2028🐴\0')
def test_decoding_what_was_encoded_gives_the_text_in_nfc(text):
    tokenizer = CharTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    normal = unicodedata.normalize("NFC", text)
    assert tokenizer.decode(ids) == normal
    assert ids.shape == (len(normal),)
    assert ids.max() == tokenizer.vocab_size - 1
    again = CharTokenizer(json.loads(json.dumps(tokenizer.characters)))
    assert again.characters == tokenizer.characters
    assert np.array_equal(again.encode(text), ids)


def test_ids_may_be_a_list_or_an_array_and_may_be_none():
    ids = LETTERS.encode("Mancha")
    assert LETTERS.decode(ids.tolist()) == LETTERS.decode(ids.astype(np.int64)) == "Mancha"
    none = LETTERS.encode("")
    assert (none.shape, none.dtype) == ((0,), np.uint8)
    assert LETTERS.decode(none) == LETTERS.decode([]) == ""


@pytest.mark.parametrize("ids", [[-1], [0, LETTERS.vocab_size], [10**6]])
def test_an_id_out_of_range_is_an_error_that_gives_the_range(ids):
    with pytest.raises(ValueError, match=rf"0\.\.{LETTERS.vocab_size - 1}"):
        LETTERS.decode(ids)


# --- the vocabulary -------------------------------------------------------------------------


def test_the_vocabulary_is_in_the_order_of_the_code_points():
    tokenizer = CharTokenizer.from_text("y Zaragoza 🐴 ñandu\u0301\n")
    assert tokenizer.characters == "\n Zadgnoryzñú🐴"
    assert tokenizer.encode("\n Z🐴").tolist() == [0, 1, 2, 13]


@pytest.mark.parametrize(
    ("size", "id_type"), [(1, "u1"), (256, "u1"), (257, "<u2"), (65536, "<u2")]
)
def test_ids_take_one_byte_up_to_256_characters_and_two_beyond(size, id_type):
    # From 0x20000 on there are ideographs only, without accents that could be joined.
    characters = "".join(map(chr, range(0x20000, 0x20000 + size)))
    tokenizer = CharTokenizer(characters)
    ids = tokenizer.encode(characters[-1])
    assert tokenizer.id_type == ids.dtype == np.dtype(id_type)
    assert ids.tolist() == [size - 1]
    assert tokenizer.decode(ids) == characters[-1]


def test_a_vocabulary_has_characters_and_each_of_them_once():
    for make in (CharTokenizer, CharTokenizer.from_text):
        with pytest.raises(UserError, match="empty"):
            make("")
    with pytest.raises(ValueError, match="twice"):
        CharTokenizer("aba")


def test_look_up_takes_characters_as_they_stand():
    assert LETTERS.look_up("nñ").tolist() == [LETTERS.characters.index("n"), -1]
    assert LETTERS.look_up("e\u0301").tolist() == [LETTERS.characters.index("e"), -1]


# --- unknown characters ---------------------------------------------------------------------


def test_the_error_names_each_unknown_character_where_it_is_and_what_is_near_it():
    assert message_for("En ê €\nê una 🐴") == (
        "unknown characters for this model: 'ê' at position 3 (nearest: 'e'), '€' at position 5 "
        "(nothing near it), '🐴' at position 13 (nothing near it); change the text, or go on with "
        "--unknown skip"
    )
    assert message_for("una ê") == (
        "unknown character for this model: 'ê' at position 4 (nearest: 'e'); change the text, or "
        "go on with --unknown nearest or --unknown skip"
    )


def test_the_error_stays_readable_when_nothing_is_known():
    message = message_for("".join(map(chr, range(0x20000, 0x20000 + 25))))
    assert "and 15 more" in message
    assert len(message) < 1000


def test_every_character_that_is_not_in_the_vocabulary_is_unknown():
    # Beyond the highest known one, between two known ones, before the lowest, the very last.
    for character in "\U0010ffff🐴z\0\ufffe":
        assert "unknown character" in message_for(f"a{character}")


@pytest.mark.parametrize(
    ("character", "escape"),
    [
        ("\0", r"\x00"),
        ("\u200b", r"\u200b"),
        ("\ufeff", r"\ufeff"),
        ("\x1b", r"\x1b"),
        ("\u0334", r"\u0334"),  # an accent, which would stand on the quote
        ("\udcff", r"\udcff"),  # a lone surrogate, which can't be printed
    ],
)
def test_what_cannot_be_seen_is_named_by_its_code(character, escape):
    message = message_for(f"a{character}")
    assert f"'{escape}' at position 1" in message
    assert message.isprintable()
    assert message.encode("utf-8")
    assert LETTERS.decode(LETTERS.encode(f"a{character}", "skip")) == "a"


def test_skip_leaves_out_the_unknown_characters_and_no_others():
    ids = LETTERS.encode("€En un🐴 l€ugar", "skip")
    assert LETTERS.decode(ids) == "En un lugar"
    assert ids.dtype == LETTERS.id_type
    assert LETTERS.encode("€🐴", "skip").shape == (0,)


@pytest.mark.parametrize(
    ("known", "typed", "written"),
    [
        ("qué", "que\u0301", "qué"),
        ("eéê", "êéeê", "êéeê"),  # what is known stays as it is
        ("aenocu", "áëñôçü", "aenocu"),
        ("e", "Ê", "e"),
        ("é", "e", "é"),
        ("ES", "es", "ES"),
        ("if.", "ﬁ…", "fi..."),
        ("oeas", "œæß", "oeaess"),
        ("OEA", "ŒÆ", "OEAE"),
        ("olOL", "øłØŁ", "olOL"),
        ("a b", "a\u00a0b\u202fb\u2003b\u3000b\tb", "a b b b b b"),
        ("123", "１²③", "123"),
        ('"', "“”„‟«»″", '"' * 7),
        ("a«»", '"a', "«a"),
        ("'", "‘’‚‛′´`", "'" * 7),
        ("-", "—–―−‐‑‒", "-" * 7),
        ("—", "-–", "——"),
        ("\n", "\u2028\u2029\x0b\x0c", "\n" * 4),
        ("()", "[{}]", "(())"),
        ("c", "kqç", "ccc"),
        ("C", "KQÇ", "CCC"),
        ("kv", "qcwu", "kkvv"),
        ("V", "WU", "VV"),
    ],
)
def test_nearest_writes_what_stands_for_the_character(known, typed, written):
    tokenizer = CharTokenizer.from_text(known)
    assert tokenizer.decode(tokenizer.encode(typed, "nearest")) == written


def test_nearest_does_not_guess_where_nothing_is_near():
    message = message_for("ê🐴", "nearest")
    assert "'🐴' at position 1 (nothing near it)" in message
    assert message.endswith("--unknown skip")
