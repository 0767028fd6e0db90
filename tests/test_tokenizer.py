"""Characters to integers and back, and what happens to characters that no one has seen."""

import json
import unicodedata

import numpy as np
import pytest
from conftest import assert_read_in_no_time
from hypothesis import example, given
from hypothesis import strategies as st

from sancho.errors import UserError
from sancho.tokenizer import CharTokenizer

LETTERS = CharTokenizer.from_text("En un lugar de la Mancha, ¿eh?\n")
# By number: st.characters() first sorts all of Unicode.
CHARACTERS = st.one_of(
    st.integers(0, 0xD7FF), st.integers(0x300, 0x36F), st.integers(0xE000, 0x10FFFF)
).map(chr)
TEXTS = st.lists(CHARACTERS, min_size=1).map("".join)


def message_for(text: str, unknown="error") -> str:
    with pytest.raises(UserError) as caught:
        LETTERS.encode(text, unknown)
    return str(caught.value)


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


def test_a_vocabulary_has_each_character_once_and_no_other_ids():
    for make in (CharTokenizer, CharTokenizer.from_text):
        with pytest.raises(ValueError, match="the vocabulary is empty"):
            make("")
    with pytest.raises(ValueError, match="a character occurs twice"):
        CharTokenizer("aba")
    for ids in ([-1], [0, LETTERS.vocab_size]):
        with pytest.raises(ValueError, match=rf"0\.\.{LETTERS.vocab_size - 1}"):
            LETTERS.decode(ids)


# --- unknown characters ---------------------------------------------------------------------


def test_the_error_names_unknown_characters_and_what_is_near():
    message = message_for("En ê €\nê una 🐴")
    assert message.startswith("characters unknown to this model: ")
    for part in ("'ê' at position 3 (nearest: 'e'), ", "'🐴' at position 13 (nothing near it); "):
        assert part in message
    assert message.count("'ê'") == 1 and "--unknown nearest" not in message
    assert message.endswith("or go on with --unknown skip")
    assert message_for("una ê").endswith("or go on with --unknown nearest or --unknown skip")
    message = message_for("".join(map(chr, range(0x20000, 0x20000 + 25))))
    assert "and 15 more" in message and len(message) < 1000
    # Beyond the known ones, between two, and before the lowest.
    for character in "\U0010ffff🐴z\0\ufffe":
        assert "characters unknown to this model" in message_for(f"a{character}")


# The last ones: an accent, and what can't be printed.
@pytest.mark.parametrize("character", ["\0", "\u200b", "\ufeff", "\x1b", "\u0334", "\udcff"])
def test_what_cannot_be_seen_is_named_by_its_code(character):
    message = message_for(f"a{character}")
    assert message.isprintable() and message.encode("utf-8")
    assert f"{ord(character):02x}' at position 1" in message
    assert LETTERS.decode(LETTERS.encode(f"a{character}", "skip")) == "a"


def test_skip_leaves_out_the_unknown_characters_and_no_others():
    assert LETTERS.decode(LETTERS.encode("€En un🐴 l€ugar", "skip")) == "En un lugar"
    assert LETTERS.encode("€🐴", "skip").shape == (0,)


@pytest.mark.parametrize(
    ("known", "typed", "written"),
    [
        ("qué", "que\u0301", "qué"),
        ("eéê", "êéeê", "êéeê"),  # what is known stays as it is
        ("aenocu123", "áëñôçü１²③", "aenocu123"),
        ("é", "e", "é"),
        ("ES", "es", "ES"),
        ("Ñé", "ñÉ", "Ñé"),  # the other case has an accent, too
        ("Eé", "É", "E"),  # its own letter without the accent, before the other case
        ("éê", "è", "é"),  # of several with one base the first
        ("éÈ", "è", "é"),  # another accent before the other case
        ("E", "è", "E"),
        ("1", "½", "1"),
        ("if.", "ﬁ…", "fi..."),
        ("oeas", "œæß", "oeaess"),
        ("a b", "a\u00a0b\u202fb\u2003b\u3000b\tb", "a b b b b b"),
        ('"', "“”„‟«»″", '"' * 7),
        ("—", "-–", "——"),
        ("\n", "\u2028\u2029\x0b\x0c", "\n" * 4),
        ("kvCEOA", "qcwuÇÊŒÆ", "kkvvCEOEAE"),
    ],
)
def test_nearest_writes_what_stands_for_the_character(known, typed, written):
    tokenizer = CharTokenizer.from_text(known)
    assert tokenizer.decode(tokenizer.encode(typed, "nearest")) == written


def test_nearest_does_not_guess_where_nothing_is_near():
    message = message_for("ê🐴", "nearest")
    assert "'🐴' at position 1 (nothing near it)" in message
    assert message.endswith("--unknown skip")


def test_a_long_run_of_a_character_is_encoded_in_no_time():
    def encode(text: str) -> None:
        tokenizer = CharTokenizer.from_text(text)
        tokenizer.encode(text)
        tokenizer.require_known(text, "--stop")

    assert_read_in_no_time(encode)
