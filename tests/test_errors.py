"""What a program that uses the library can catch."""

import pytest

from sancho import checkpoint
from sancho.text.sources import corpus_of, text_files


@pytest.mark.parametrize(
    "read", [checkpoint.load, checkpoint.find_checkpoint, corpus_of, text_files]
)
def test_a_missing_file_is_caught_under_the_name_that_python_has_for_it(tmp_path, read):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read(tmp_path / "x")


def test_a_folder_without_a_checkpoint_is_a_missing_file_too(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no checkpoint"):
        checkpoint.find_checkpoint(tmp_path)
