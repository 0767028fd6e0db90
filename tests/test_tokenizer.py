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


def message_for(tokenizer: CharTokenizer, text: str, unknown="error") -> str:
    with pytest.raises(UserError) as caught:
        tokenizer.encode(text, unknown)
    return str(caught.value)


# --- round trips ----------------------------------------------------------------------------


@given(st.text(min_size=1))
@example("e\u0301 ñ ﬁ 🐴 𝔔 \U0010ffff\0")
def test_decoding_what_was_encoded_gives_the_text_in_nfc(text):
    tokenizer = CharTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    normal = unicodedata.normalize("NFC", text)
    assert tokenizer.decode(ids) == normal
    assert ids.shape == (len(normal),)
    assert ids.max() == tokenizer.vocab_size - 1


@given(st.text(min_size=1))
@example('"\\\n\u2028🐴\0')
def test_the_vocabulary_survives_json(text):
    tokenizer = CharTokenizer.from_text(text)
    again = CharTokenizer(json.loads(json.dumps(tokenizer.characters)))
    assert again.characters == tokenizer.characters
    assert np.array_equal(again.encode(text), tokenizer.encode(text))


def test_all_ways_to_give_the_ids_decode_to_the_same_text():
    ids = LETTERS.encode("Mancha")
    assert LETTERS.decode(ids.tolist()) == LETTERS.decode(ids.astype(np.int64)) == "Mancha"
    assert LETTERS.decode(tuple(map(int, ids))) == "Mancha"


def test_the_empty_text_has_no_ids_and_no_ids_are_the_empty_text():
    ids = LETTERS.encode("")
    assert ids.shape == (0,)
    assert ids.dtype == np.uint8
    assert LETTERS.decode(ids) == LETTERS.decode([]) == ""


# --- the vocabulary -------------------------------------------------------------------------


def test_the_vocabulary_is_in_the_order_of_the_code_points():
    tokenizer = CharTokenizer.from_text("ñandú 🐴 y Zaragoza\n")
    assert tokenizer.characters == "\n Zadgnoryzñú🐴"
    assert tokenizer.vocab_size == 14
    assert tokenizer.encode("\n Z🐴").tolist() == [0, 1, 2, 13]


def test_the_vocabulary_does_not_depend_on_the_order_of_the_text():
    assert CharTokenizer.from_text("abc").characters == CharTokenizer.from_text("cabba").characters


def test_the_vocabulary_is_made_of_whole_letters_however_they_were_typed():
    assert CharTokenizer.from_text("que\u0301").characters == "qué"


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


def test_no_characters_are_no_vocabulary():
    with pytest.raises(UserError, match="empty"):
        CharTokenizer("")
    with pytest.raises(UserError, match="empty"):
        CharTokenizer.from_text("")


def test_a_character_may_not_have_two_ids():
    with pytest.raises(ValueError, match="twice"):
        CharTokenizer("aba")


# --- NFC ------------------------------------------------------------------------------------


def test_a_decomposed_letter_is_the_same_as_the_composed_one():
    tokenizer = CharTokenizer.from_text("qué ñu")
    assert tokenizer.encode("que\u0301 n\u0303u").tolist() == tokenizer.encode("qué ñu").tolist()


def test_look_up_takes_characters_as_they_stand():
    assert LETTERS.look_up("nñ").tolist() == [LETTERS.characters.index("n"), -1]
    assert LETTERS.look_up("e\u0301").tolist() == [LETTERS.characters.index("e"), -1]


# --- unknown characters ---------------------------------------------------------------------


def test_the_error_names_each_unknown_character_where_it_is_and_what_is_near_it():
    message = message_for(LETTERS, "En ê €\nê una 🐴")
    assert "'ê' at position 3 (nearest: 'e')" in message
    assert "'€' at position 5 (nothing near it)" in message
    assert "'🐴' at position 13 (nothing near it)" in message
    assert message.count("'ê' at") == 1
    assert "--unknown skip" in message
    assert "--unknown nearest" not in message  # it would be of no use
    assert "--unknown nearest" in message_for(LETTERS, "ê")
    assert "--unknown skip" in message
    assert "'u'" not in message
    assert "\n" not in message


def test_one_unknown_character_is_not_called_many():
    assert "unknown character for" in message_for(LETTERS, "€")
    assert "unknown characters for" in message_for(LETTERS, "€🐴")


def test_the_error_stays_readable_when_nothing_is_known():
    message = message_for(LETTERS, "".join(map(chr, range(0x20000, 0x20000 + 25))))
    assert "and 15 more" in message
    assert len(message) < 1000


def test_every_character_that_is_not_in_the_vocabulary_is_unknown():
    # Beyond the highest known one, between two known ones, before the lowest, the very last.
    for character in "\U0010ffff🐴z\0\ufffe":
        assert "unknown character" in message_for(LETTERS, f"a{character}")


@pytest.mark.parametrize(
    ("character", "escape"),
    [("\0", r"\x00"), ("\u200b", r"\u200b"), ("\ufeff", r"\ufeff"), ("\x1b", r"\x1b")],
)
def test_what_cannot_be_seen_is_named_by_its_code(character, escape):
    message = message_for(LETTERS, f"a{character}")
    assert f"'{escape}' at position 1" in message
    assert message.isprintable()


def test_a_lone_surrogate_is_unknown_and_its_message_can_be_printed():
    message = message_for(LETTERS, "a\udcff")
    assert r"'\udcff' at position 1" in message
    assert message.encode("utf-8")
    assert LETTERS.decode(LETTERS.encode("a\udcff", "skip")) == "a"


def test_skip_leaves_out_the_unknown_characters_and_no_others():
    ids = LETTERS.encode("€En un🐴 l€ugar", "skip")
    assert LETTERS.decode(ids) == "En un lugar"
    assert ids.dtype == LETTERS.id_type
    assert LETTERS.encode("€🐴", "skip").shape == (0,)


@pytest.mark.parametrize(
    ("known", "typed", "written"),
    [
        ("qué", "que\u0301", "qué"),
        ('a"', "“a”", '"a"'),
        ("a«»", '"a', "«a"),
        ("e", "ê", "e"),
        ("é", "e", "é"),
        ("e.", "e…", "e..."),
        ("if", "ﬁ", "fi"),
        ("oe", "œ", "oe"),
        ("ES", "es", "ES"),
        ("e", "Ê", "e"),
        ("a b", "a\u00a0b", "a b"),
        ("a-", "a—", "a-"),
        ("o'", "o’", "o'"),
        ("BCVO", "KWØ", "CVO"),
    ],
)
def test_nearest_writes_what_stands_for_the_character(known, typed, written):
    tokenizer = CharTokenizer.from_text(known)
    assert tokenizer.decode(tokenizer.encode(typed, "nearest")) == written


def test_nearest_leaves_the_known_characters_alone():
    tokenizer = CharTokenizer.from_text("eéê")
    assert tokenizer.decode(tokenizer.encode("êéeë", "nearest"))[:3] == "êée"


def test_nearest_does_not_guess_where_nothing_is_near():
    message = message_for(LETTERS, "ê🐴", "nearest")
    assert "'🐴' at position 1 (nothing near it)" in message
    assert "--unknown skip" in message
    assert "--unknown nearest" not in message


@given(st.characters())
def test_nearest_is_made_of_known_characters(character):
    near = LETTERS.nearest(character)
    assert near is None or (near and set(near) <= set(LETTERS.characters))


# --- decoding -------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [[-1], [0, LETTERS.vocab_size], [10**6]])
def test_an_id_out_of_range_is_an_error_that_gives_the_range(ids):
    with pytest.raises(ValueError, match=rf"0\.\.{LETTERS.vocab_size - 1}"):
        LETTERS.decode(ids)
