"""metrics.jsonl: what is read of it, whatever it holds, and how a run that goes on begins it."""

import errno
import json
import os
from pathlib import Path

import pytest

from sancho.checkpoint import Origin, Progress
from sancho.run.curve import draw_curve
from sancho.run.metrics import begin_metrics, origin_of, read_metrics

ORIGIN = Origin("a1", "0" * 64, (3,))
NESTED = "[" * 100_000


@pytest.fixture
def path(tmp_path) -> Path:
    """The metrics of a run of four steps."""
    path = tmp_path / "metrics.jsonl"
    begin_metrics(path, ORIGIN, Progress())
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"step": step, "lr": 0.1}) + "\n" for step in range(1, 5))
    return path


def steps_in(path: Path) -> list[int]:
    return [record["step"] for record in read_metrics(path)]


def test_a_line_that_nests_without_end_is_no_line_of_a_run(path):
    path.write_text(f"{path.read_text('utf-8')}{NESTED}\n", encoding="utf-8")
    assert steps_in(path) == [1, 2, 3, 4]
    assert origin_of(path) == ORIGIN
    begin_metrics(path, ORIGIN, Progress(step=3))
    assert steps_in(path) == [1, 2, 3] and NESTED not in path.read_text("utf-8")


@pytest.mark.parametrize("line", [NESTED, '{"run": "a1"}', "7", "mine", ""])
def test_a_first_line_that_names_no_run_is_somebodys(path, line):
    path.write_text(f"{line}\n", encoding="utf-8")
    assert origin_of(path) is None


@pytest.mark.parametrize("forged", ["1e30", "-1e30", "1e400", "NaN", "true", '"low"', "[1]"])
def test_figures_that_no_run_has_are_not_read(path, forged):
    path.write_text(f'{{"step": 1, "seconds": {forged}, "lr": 0.5}}\n', encoding="utf-8")
    (record,) = read_metrics(path)
    assert (record["seconds"], record["lr"]) == (None, 0.5)


@pytest.mark.parametrize(("owner", "call"), [(os, "fsync"), (Path, "replace")])
def test_where_the_disk_refuses_the_lines_of_a_run_that_goes_on_they_stay(
    path, monkeypatch, owner, call
):
    before = path.read_bytes()

    def refuse(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(owner, call, refuse)
    with pytest.raises(OSError, match="No space left"):
        begin_metrics(path, ORIGIN, Progress(step=2))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 1}',
        '{"step": 1, "val_loss": "low"}',
        '{"step": 0, "train_loss": 1.0, "seconds": 1}',
        '{"step": 1, "train_loss": [1], "seconds": 1e30}',
        '{"step": 1, "train_loss": -3, "seconds": -1e30}',
        '{"step": 1' + "0" * 40 + "}",
        NESTED,
    ],
)
def test_whatever_line_somebody_added_the_run_goes_on_and_has_its_curve(path, line):
    path.write_text(f"{path.read_text('utf-8')}{line}\n", encoding="utf-8")
    assert "<svg" in draw_curve(read_metrics(path))
    begin_metrics(path, ORIGIN, Progress(step=4))
    assert steps_in(path)[:4] == [1, 2, 3, 4]
