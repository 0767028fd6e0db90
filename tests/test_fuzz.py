"""Whatever is typed or handed over: it works, or it is refused in one clear line.

And nothing in it is executed: the audit hook of Python sees no code, no import and no process.
"""

import importlib
import os
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from audit import nothing_executed
from conftest import ARGS, assert_same_arrays, make_project, run, succeed, use_data
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sancho import checkpoint, cli
from sancho.config import TrainOptions
from sancho.corpus import prepare_files
from sancho.errors import UserError

ANYTHING = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


def few_and_many(check: Callable, few: int, many: int, **strategies: st.SearchStrategy) -> list:
    """Return a test of some examples, always the same, and a slow one of thousands of others."""
    fast, slow = given(**strategies)(check), given(**strategies)(check)
    others = settings(max_examples=many, suppress_health_check=ANYTHING, derandomize=False)(slow)
    some = settings(max_examples=few, suppress_health_check=ANYTHING)(fast)
    return [some, pytest.mark.slow(others)]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Iterator[Path]:
    """A folder with a small text, prepared, and a small run in out/."""
    folder = make_project(tmp_path_factory.mktemp("fuzz"))
    with pytest.MonkeyPatch.context() as patch:
        use_data(patch, folder / "data")
        patch.chdir(folder)
        succeed("train.py", *ARGS, "--max_iters=3")
        yield folder


def assert_clean(result: SimpleNamespace) -> None:
    """Assert success, or status 2 and one line that says what is wrong."""
    assert result.status in (0, 2), result.err
    if result.status == 2:
        last = result.err.splitlines()[-1]
        assert last.partition(": error: ")[0] in ("train.py", "sample.py"), result.err
        assert len(last) > 30


@pytest.mark.parametrize(
    "execute",
    [
        lambda: exec("1"),
        lambda: pickle.loads(b"cos\ngetcwd\n."),
        lambda: importlib.import_module("this"),
        lambda: os.system("exit"),
    ],
)
def test_what_is_executed_would_be_seen(execute):
    with pytest.raises(AssertionError), nothing_executed():
        execute()


PIECES = st.one_of(
    st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=60),
    st.sampled_from([b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"\r\n", b"\n" * 50, b"a" * 5000]),
    st.sampled_from(
        [
            " \t\u00a0\u2028".encode(),
            "e\u0301".encode() * 30,
            "En un lugar de la Mancha ".encode("utf-16"),
            b"*** START OF THE PROJECT GUTENBERG EBOOK X ***\n",
            b"*** END OF THE PROJECT GUTENBERG EBOOK X ***\n",
            "".join(map(chr, range(0x4E00, 0x5E00))).encode(),
        ]
    ),
)


# --- command lines --------------------------------------------------------------------------

OPTIONS = st.sampled_from(
    "start num_samples max_new_tokens temperature top_k top_p min_p stop seed "
    "device dtype unknown checkpoint".split()
)
VALUES = st.one_of(
    st.sampled_from(
        "0 1 -1 2 1e-8 0.01 1e308 1e-308 nan inf -inf None true 0.5 1,5 ½ ٣ 1_0 0x1 cpu bfloat16 "
        "skip nearest error out out/last.safetensors FILE:tiny.txt FILE: - ñ".split()
    ),
    st.integers(-3, 9).map(str),
    st.floats().map(str),
    st.text(max_size=12),
)


def sampling_line(pairs: list[tuple[str, str]]) -> list[str]:
    line = ["--max_new_tokens=3"]
    for name, value in pairs:
        # More characters than a test has time for are no error.
        if name in ("max_new_tokens", "num_samples") and value.strip("+-_0123456789") == "":
            value = value[-1:]
        line.append(f"--{name}={value}")
    return line


@example(line=["--checkpoint="], stdin=b"", unknown="error")
def check_sampling(project: Path, line: list[str], stdin: bytes, unknown: str) -> None:
    start = ["--start=-", f"--unknown={unknown}"] if stdin else []
    with nothing_executed():
        result = run("sample.py", *start, *line, stdin=stdin)
    assert_clean(result)


test_command_lines, test_thousands_of_command_lines = few_and_many(
    check_sampling,
    150,
    4000,
    line=st.lists(st.tuples(OPTIONS, VALUES), max_size=4).map(sampling_line),
    stdin=st.lists(PIECES, max_size=3).map(b"".join),
    unknown=st.sampled_from(["error", "skip", "nearest"]),
)

LEFT_OUT = {"out_dir", "corpus", "max_iters", "threads", "device", "compile", "tensorboard"}
SWITCHES = "bias no_bias qk_norm tie_embeddings resume overwrite embedding_skip".split()
TRAINING = st.sampled_from(
    sorted({*cli.option_names(TrainOptions()), *SWITCHES, "nothing"} - LEFT_OUT)
)
TRAINING_VALUES = st.one_of(
    st.integers(-2, 20).map(str),
    st.floats(-2, 2).map(str),
    st.sampled_from(
        "0 1e308 nan inf None layernorm rope sinusoidal gelu swiglu adamw tiny nada ../tiny out "
        "out/best.safetensors auto mini classic ½".split()
    ),
)


def check_training(project: Path, pairs: list[tuple[str, str]]) -> None:
    line = [*ARGS, "--out_dir=fuzzed", "--overwrite", "--max_iters=1"]
    line += [f"--{name}" if name in SWITCHES else f"--{name}={value}" for name, value in pairs]
    assert_clean(run("train.py", *line))


test_training_lines, test_thousands_of_training_lines = few_and_many(
    check_training,
    40,
    1500,
    pairs=st.lists(st.tuples(TRAINING, TRAINING_VALUES), max_size=4),
)


# --- texts ----------------------------------------------------------------------------------


def check_text(project, content):
    path = project / "fuzzed.txt"
    path.write_bytes(content)
    try:
        with nothing_executed():
            corpus = prepare_files([path], project / "data" / "fuzzed")
    except UserError as error:
        assert re.fullmatch(".{20,}", str(error))
        return
    clean = (project / "data" / "fuzzed" / "input.txt").read_text("utf-8")
    assert corpus.tokenizer.decode([*corpus.train, *corpus.val]) == clean
    assert len(corpus.val) == len(clean) // 10


test_texts, test_thousands_of_texts = few_and_many(
    check_text, 150, 2500, content=st.lists(PIECES, max_size=6).map(b"".join)
)


# --- checkpoints ----------------------------------------------------------------------------

PLACES = st.floats(0, 1, exclude_max=True)
GROWTHS = st.sampled_from([0, 0, 0, 0, 5, -5, -(10**9)])
"""How many bytes longer a file is after a change; it seldom is, or all would be found by that."""
CHANGES = st.lists(
    st.tuples(PLACES, GROWTHS, st.binary(min_size=1, max_size=9)), min_size=1, max_size=4
)


def check_changed_checkpoint(project, changes, in_head):
    raw = (project / "out" / "last.safetensors").read_bytes()
    reach = 8 + int.from_bytes(raw[:8], "little") if in_head else len(raw)
    changed = bytearray(raw)
    for place, growth, content in changes:
        at = min(int(place * reach), len(changed))
        changed[at : at + len(content) - growth] = content
    path = project / "changed.safetensors"
    path.write_bytes(changed)
    try:
        with nothing_executed():
            found = checkpoint.load(path)
    except UserError as error:
        assert re.fullmatch(r".*changed\.safetensors.*", str(error))
        return
    # What is not covered by the checksum (blanks in the head) may change, and nothing else.
    expected = checkpoint.load(project / "out" / "last.safetensors")
    assert found.model == expected.model
    assert_same_arrays(found.weights, expected.weights)


test_changed_checkpoints, test_thousands_of_changed_checkpoints = few_and_many(
    check_changed_checkpoint, 150, 4000, changes=CHANGES, in_head=st.booleans()
)
