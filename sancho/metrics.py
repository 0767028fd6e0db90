"""metrics.jsonl: a line for each report of a run that has losses."""

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sancho.checkpoint import Progress
from sancho.files import atomic_write

if TYPE_CHECKING:
    from sancho.training import Report

METRICS = "train_loss val_loss val_bpc lr tokens_per_second".split()
"""What a line says of training, besides how far it is."""


def as_record(report: "Report") -> dict:
    """Return what the line of a report holds."""
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
    """Return the lines of a metrics.jsonl that are whole; none where there is no such file."""
    records = []
    with suppress(OSError):
        for line in Path(path).read_bytes().splitlines():
            with suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and isinstance(record.get("step"), int):
                    records.append(record)
    return records


def trim_metrics(path: Path, progress: Progress) -> None:
    """Drop the lines of what is done again: later steps, and the evaluation that comes next."""
    kept = []
    for record in read_metrics(path):
        is_evaluation = record.get("val_loss") is not None
        last = progress.step - (is_evaluation and not progress.is_evaluated)
        if record["step"] <= last:
            kept.append(json.dumps(record) + "\n")
    with atomic_write(path) as out:
        out.write("".join(kept).encode())
