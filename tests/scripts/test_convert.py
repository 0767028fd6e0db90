"""convert.py as it is typed: its commands, and a disk that fails."""

import errno
import os
import re

import pytest
from conftest import ROOT, SCRIPTS, assert_refused, names_in, run, succeed

pytestmark = pytest.mark.usefixtures("project")


def test_the_help_of_convert_opens_with_what_it_does_and_lists_every_command():
    usage, _, opening, *lines = succeed("convert.py", "--help").out.splitlines()
    assert usage.startswith("usage: convert.py COMMAND")
    assert re.match(r"[A-Z].{20,}\.$", opening)
    assert [line.split()[0] for line in lines[2:]] == list(SCRIPTS["convert.py"].COMMANDS)


@pytest.mark.parametrize(("command", "name"), [("to-huggingface", "new"), ("to-page", "new.html")])
def test_a_disk_that_fails_is_one_line_and_leaves_nothing(project, monkeypatch, command, name):
    """os.fsync raises what the terminal of a reader does who went away."""
    before = names_in(project)

    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", failing)
    model = ROOT / "tests" / "golden" / "mini.safetensors"
    done = run("convert.py", command, "--checkpoint", model, "--output", name)
    assert_refused(done, "convert.py", os.strerror(errno.EIO))
    assert names_in(project) == before
