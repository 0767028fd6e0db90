"""sample.py as it is typed: what is written, and where."""

import errno
import itertools
import os
import re
import unicodedata
from pathlib import Path

import pytest
from conftest import TEXT, assert_read_in_no_time, assert_refused, run, succeed

import sample
from sancho import generate as sancho_generate

pytestmark = pytest.mark.usefixtures("project")


def test_stdout_is_the_prompt_its_continuation_and_a_newline(trained):
    line = ["--start", "En un lugar", "--max_new_tokens=30"]
    result = succeed("sample.py", *line)
    read = "the model reads the last 8, as many as its context has"
    assert result.err == f"note: the start has 11 characters; {read}\n"
    assert succeed("sample.py", "--start=En un lu").err == ""
    assert result.out.startswith("En un lugar") and result.out.endswith("\n")
    assert len(result.out) == len("En un lugar") + 30 + 1
    assert set(result.out) <= set(TEXT)
    for more in ([], ["--device=cpu", "--dtype=bfloat16"]):  # it writes in float32 always
        assert run("sample.py", *line, *more).out == result.out
    assert run("sample.py", *line, "--seed=7").out != result.out
    assert run("sample.py", "--max_new_tokens", "0").out == "\n\n"
    greedy = {run("sample.py", *line, "--temperature=0", f"--seed={seed}").out for seed in range(3)}
    assert len(greedy) == 1


def test_the_start_from_a_file_and_from_stdin(project, trained):
    line = ["--max_new_tokens=9", "--start"]
    plain = run("sample.py", *line, "Mancha,\n de").out
    raw = b"\xef\xbb\xbfMancha,\r\n de"
    (project / "mi inicio.txt").write_bytes(raw)
    assert run("sample.py", *line, "FILE:mi inicio.txt").out == plain
    assert run("sample.py", *line, "-", stdin=raw).out == plain
    # An editor and echo end the last line; of "\\n" alone nothing would be left.
    assert run("sample.py", *line, "-", stdin=raw + b"\r\n").out == plain
    assert run("sample.py", *line, "-", stdin=b"\n").out == run("sample.py", *line, "\n").out
    for stdin, words in ((b"En\xf1", "standard input is not UTF-8: byte 0xf1 at"), (b"", "empty")):
        assert_refused(run("sample.py", *line, "-", stdin=stdin), "sample.py", words)


def test_unknown_characters_named_skipped_or_replaced(trained):
    line = ["--start", "Él1", "--max_new_tokens", "0"]
    words = ("'É' at position 0", "'1' at position 2", "--unknown")
    assert_refused(run("sample.py", *line), "sample.py", *words)
    assert run("sample.py", *line, "--unknown=skip").out == "l\n"
    assert_refused(run("sample.py", *line, "--unknown=nearest"), "sample.py", "'1' at position 2")
    assert run("sample.py", "--start=Él", *line[2:], "--unknown=nearest").out == "El\n"


def test_each_of_several_samples_is_what_it_is_alone(trained):
    line = ["--start", "En un", "--max_new_tokens", "40"]
    alone, three = (run("sample.py", *line, f"--num_samples={n}") for n in (1, 3))
    assert three.err == ""
    _, *texts = re.split(r"--- \d of 3\n", three.out)  # in a file; in a terminal: on stderr
    assert texts[0] == alone.out
    assert len(set(texts)) == 3 and {len(text) for text in texts} == {46}


def test_a_text_goes_on_until_its_sentence_ends(trained):
    longer = run("sample.py", "--max_new_tokens=400").out
    found = run("sample.py", "--max_new_tokens=200", "--until_sentence").out
    page = found.removesuffix("\n")
    assert longer.startswith(page) and 201 <= len(page) <= 401
    assert len(page) == 401 or (page[-1] == "." and longer[len(page)] in " \n")


def test_a_seed_that_is_drawn_can_be_given_again(trained):
    line = ["--start=En", "--max_new_tokens=40"]
    first, other = (run("sample.py", *line, "--seed", "random") for _ in range(2))
    assert first.out != other.out
    said = re.fullmatch(
        r"note: the seed was drawn at random; (--seed \d+) gives the same .*\n", first.err
    )
    again = run("sample.py", *line, *said[1].split())
    assert (again.out, again.err) == (first.out, "")


def test_a_text_that_is_interrupted_is_no_error_with_a_traceback(trained, monkeypatch):
    whole = run("sample.py", "--max_new_tokens=20").out
    generate = sancho_generate.generate

    def generate_a_little(*args, **kwargs):
        yield from itertools.islice(generate(*args, **kwargs), 12)
        raise KeyboardInterrupt

    monkeypatch.setattr(sancho_generate, "generate", generate_a_little)
    result = run("sample.py", "--max_new_tokens=20")
    assert (result.status, result.err) == (130, "\ninterrupted\n")
    assert result.out == whole[: 1 + 12]


def test_a_stop_text_may_be_typed_with_an_accent_of_its_own():
    line = ["--checkpoint=pretrained", "--start=no tenía la raz", "--max_new_tokens=12"]
    assert succeed("sample.py", *line).out.startswith("no tenía la razón, ")
    for accent in ("ó", unicodedata.normalize("NFD", "ó")):
        assert succeed("sample.py", *line, "--stop", f"{accent}n").out == "no tenía la raz\n"


def test_a_disk_that_fails_at_the_start_text_is_one_line(project, monkeypatch):
    read_bytes = Path.read_bytes

    def reading(path: Path) -> bytes:
        if path.name == "tiny.txt":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", reading)
    done = run("sample.py", "--checkpoint=pretrained", "--start=FILE:tiny.txt")
    assert_refused(done, "sample.py", os.strerror(errno.EIO))


def test_a_long_run_of_a_character_to_continue_is_read_in_no_time():
    assert_read_in_no_time(sample.read_start)
