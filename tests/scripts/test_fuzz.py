"""Whatever is typed or handed over: it works, or it is refused in one clear line."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import (
    ARGS,
    assert_same_arrays,
    instead,
    make_project,
    option_names,
    run,
    succeed,
    use_data,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sancho import checkpoint
from sancho.errors import UserError
from sancho.presets import TrainOptions
from sancho.text.corpus import LEAST
from sancho.text.sources import corpus_of

ANYTHING = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


def few_and_many(check: Callable, few: int, many: int, **strategies: st.SearchStrategy) -> list:
    """Return a test of some examples, always the same, and a slow one of thousands of others."""
    some = settings(max_examples=few, suppress_health_check=ANYTHING)
    others = settings(max_examples=many, suppress_health_check=ANYTHING, derandomize=False)
    return [some(given(**strategies)(check)), pytest.mark.slow(others(given(**strategies)(check)))]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Iterator[Path]:
    """A folder with a small text, and a small run in out/."""
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
        assert re.match(r"(train|sample)\.py: error: .{15}", result.err.splitlines()[-1])


MARKS = "*** START OF THE PROJECT GUTENBERG EBOOK X ***\n*** END OF THE PROJECT GUTENBERG EBOOK ***"
PIECES = st.one_of(
    st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=60),
    st.sampled_from([b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"\r\n", b"\n" * 50, b"a" * 5000]),
    st.sampled_from([MARKS.encode(), MARKS[:47].encode(), MARKS[47:].encode()]),
    st.sampled_from(["e\u0301" * 30, "".join(map(chr, range(0x4E00, 0x5E00)))]).map(str.encode),
)
WORDS = st.one_of(
    st.sampled_from(
        "0 1 -1 2 1e-8 0.01 1e308 1e-308 nan inf -inf None true 0.5 1,5 ½ ٣ 1_0 0x1 cpu bfloat16 "
        "skip nearest error auto out out/last.safetensors FILE:tiny.txt FILE: - ñ tiny ../tiny "
        "layernorm rope gelu swiglu adamw mini classic".split()
    ),
    st.integers(-3, 20).map(str),
    st.floats().map(str),
    st.text(max_size=12),
)
SAMPLING = "start temperature top_k top_p min_p stop seed device dtype unknown checkpoint".split()
LEFT_OUT = {"out_dir", "corpus", "max_iters", "threads", "device", "compile", "tensorboard"}
SWITCHES = "bias no-bias qk_norm tie_embeddings resume overwrite no-embedding_skip".split()
TRAINING = sorted({*option_names(TrainOptions()), *SWITCHES, "nothing"} - LEFT_OUT)


def lines_of(names: list[str]) -> st.SearchStrategy:
    """Return command lines of up to four options."""
    option = st.tuples(st.sampled_from(names), WORDS)
    return st.lists(
        option.map(lambda pair: f"--{pair[0]}" + ("" if pair[0] in SWITCHES else f"={pair[1]}")),
        max_size=4,
    )


def check_sampling(project: Path, line: list[str], stdin: bytes) -> None:
    start = ["--start=-"] if stdin else []
    assert_clean(run("sample.py", "--max_new_tokens=3", *start, *line, stdin=stdin))


TEXTS = st.lists(PIECES, max_size=6).map(b"".join)
test_sampling_lines, test_thousands_of_sampling_lines = few_and_many(
    check_sampling, 150, 4000, line=lines_of(SAMPLING), stdin=TEXTS
)


def check_training(project: Path, line: list[str]) -> None:
    args = instead([*ARGS, "--out_dir=fuzzed", "--overwrite", "--max_iters=1"], *line)
    assert_clean(run("train.py", *args))


test_training_lines, test_thousands_of_training_lines = few_and_many(
    check_training, 40, 1500, line=lines_of(TRAINING)
)


def check_text(project: Path, content: bytes) -> None:
    path = project / "fuzzed.txt"
    path.write_bytes(content)
    try:
        corpus = corpus_of(path)
    except UserError as error:
        assert re.fullmatch(".{20,}", str(error))
        return
    length = len(corpus.text)
    assert corpus.tokenizer.decode([*corpus.train, *corpus.val]) == corpus.text
    assert len(corpus.val) == (length // 10 if length >= LEAST else 0)


test_texts, test_thousands_of_texts = few_and_many(check_text, 150, 2500, content=TEXTS)
PLACES = st.floats(0, 1, exclude_max=True)
GROWTHS = st.sampled_from([0, 0, 0, 0, 5, -5, -(10**9)])
"""How many bytes longer a file is after a change; it seldom is, or all would be found by that."""
CHANGES = st.lists(
    st.tuples(PLACES, GROWTHS, st.binary(min_size=1, max_size=9)), min_size=1, max_size=4
)


def check_changed_checkpoint(project: Path, changes: list, in_head: bool) -> None:
    raw = (project / "out" / "last.safetensors").read_bytes()
    reach = 8 + int.from_bytes(raw[:8], "little") if in_head else len(raw)
    changed = bytearray(raw)
    for place, growth, content in changes:
        at = min(int(place * reach), len(changed))
        changed[at : at + len(content) - growth] = content
    path = project / "changed.safetensors"
    path.write_bytes(changed)
    try:
        found = checkpoint.load(path)
    except UserError as error:
        assert re.fullmatch(r".*changed\.safetensors.*", str(error))
        return
    # What is not covered by the checksum (blanks in the head) may change, and nothing else.
    expected = checkpoint.load(project / "out" / "last.safetensors")
    assert found.model_config == expected.model_config
    assert_same_arrays(found.weights, expected.weights)


test_changed_checkpoints, test_thousands_of_changed_checkpoints = few_and_many(
    check_changed_checkpoint, 150, 4000, changes=CHANGES, in_head=st.booleans()
)
