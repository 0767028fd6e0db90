"""metrics.jsonl: a first line that names the run, and a line for each report with losses."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sancho.checkpoint import Origin, Progress
from sancho.machine.files import atomic_write

if TYPE_CHECKING:
    from sancho.run.report import Report

METRICS = "train_loss val_loss val_bpc lr tokens_per_second".split()
"""The figures of a line, besides step, tokens and seconds."""
LONGEST_LINE = 10**6  # bytes of the first line, in which each file of the text has its length
LARGEST = 1e12
"""Larger figures are not taken for those of a run."""


def as_record(report: "Report") -> dict:
    """Return a report as the dictionary for its line."""
    names = ("step", "tokens", "seconds", *METRICS, "sample")
    record = {name: getattr(report, name) for name in names}
    record["seconds"] = round(report.seconds, 3)
    record["tokens_per_second"] = round(report.tokens_per_second)
    return record


def append_record(path: Path, record: dict) -> None:
    """Write a line at the end of the file. Raises OSError where the system refuses it."""
    with open(path, "a", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(record) + "\n")


def read_metrics(path: str | Path) -> list[dict]:
    """Return the lines of a metrics.jsonl that have a step; [] for a missing file.

    Impossible figures, which another program may have written, become None.
    """
    found = []
    for _, record in _lines_of(Path(path)):
        figures = {name: _finite(record.get(name)) for name in ("seconds", *METRICS)}
        found.append(record | figures)
    return found


def _finite(value: Any) -> float | None:
    return value if type(value) in (int, float) and abs(value) < LARGEST else None


def begin_metrics(path: Path, origin: Origin, progress: Progress) -> None:
    """Write the first line of a run, and keep those of its lines that it does not write again.

    A run that goes on writes the later steps again, and the next evaluation.
    """
    kept = [json.dumps(asdict(origin)).encode() + b"\n"]
    for line, record in _lines_of(path):
        is_evaluation = record.get("val_loss") is not None
        last = progress.step - (is_evaluation and not progress.is_evaluated)
        if record["step"] <= last:
            kept.append(line + b"\n")
    with atomic_write(path) as out:
        out.write(b"".join(kept))


def origin_of(path: Path) -> Origin | None:
    """Return the run whose metrics a file holds, or None if its first line names none."""
    with open(path, "rb") as file, suppress(ValueError, TypeError, LookupError, RecursionError):
        line = json.loads(file.readline(LONGEST_LINE))
        return Origin(str(line["run"]), str(line["sha256"]), tuple(line["lengths"]))
    return None


def _lines_of(path: Path) -> Iterator[tuple[bytes, dict]]:
    """Yield each intact line that has a step, as bytes and as a dictionary."""
    with suppress(FileNotFoundError):
        for line in path.read_bytes().splitlines():
            with suppress(ValueError, RecursionError):
                record = json.loads(line)
                step = record.get("step") if isinstance(record, dict) else None
                if type(step) is int and 0 <= step < LARGEST:
                    yield line, record
