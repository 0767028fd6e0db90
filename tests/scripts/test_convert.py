"""convert.py as it is typed: its commands."""

import re

import pytest
from conftest import SCRIPTS, succeed

pytestmark = pytest.mark.usefixtures("project")


def test_the_help_of_convert_opens_with_what_it_does_and_lists_every_command():
    usage, _, opening, *lines = succeed("convert.py", "--help").out.splitlines()
    assert usage.startswith("usage: convert.py COMMAND")
    assert re.match(r"[A-Z].{20,}\.$", opening)
    assert [line.split()[0] for line in lines[2:]] == list(SCRIPTS["convert.py"].COMMANDS)
