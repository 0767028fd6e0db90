from conftest import assert_read_in_no_time

from sancho.convert.passages import passages_of


def test_passages_of_a_long_run_of_a_character_are_found_in_no_time():
    assert_read_in_no_time(passages_of)
