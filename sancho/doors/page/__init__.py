"""A checkpoint as one HTML file: the model runs in it, in any browser, without a network.

The scripts of this folder and a style sheet are put into skeleton.html one after the other, as they
are, and the weights as packing.py lays them out.

A Content-Security-Policy allows the page's own script and style, by their hashes, and nothing else:
it can't ask any server for anything. What comes from the checkpoint is JSON in the page.
"""

import base64
import hashlib
import html
import json
import math
import os
import re
import unicodedata
from dataclasses import asdict
from pathlib import Path

import numpy as np

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import PagePrecision, ToPageOptions
from sancho.doors.page.packing import (
    PackingCost,
    layout_of,
    measuring_text,
    pack,
    packing_cost,
    rounded,
)
from sancho.errors import UserError
from sancho.files import atomic_write
from sancho.layout import count_parameters
from sancho.tokenizer import CharTokenizer

FOLDER = Path(__file__).resolve().parent
SCRIPTS = (
    "vocabulary model random sampler unpack tools letters write letter attention layers journey "
    "surprise about start"
).split()
"""In the order in which they stand in the page: none uses a later one before all are read."""
MARK = b'<meta name="generator" content="sancho-mini">'
START = "En un lugar de la Mancha"


def to_page(options: ToPageOptions, data: Path) -> list[str]:
    """Do what the command to-page does; return what there is to tell the user.

    data: the folder of the texts, to measure with one of them what packing costs.
    """
    saved = checkpoint.load_or_pretrained(options.checkpoint)
    course = options.course
    if Path(course).is_dir():
        course = Path(os.path.relpath(course, options.output.parent)).as_posix()
    size, cost = write_page(
        saved,
        options.output,
        precision=options.precision,
        text=measuring_text(saved, data),
        metrics=read_metrics((options.checkpoint or checkpoint.OWN).with_name("metrics.jsonl")),
        course=course,
    )
    lines = [f"{options.output}: {size / 1e6:.2f} MB, weights in {options.precision}"]
    if cost:
        change = f"{cost.before:.5f} → {cost.after:.5f} nats per character"
        lines.append(f"packing: loss {change}, on {cost.characters} characters of {cost.text}")
    return [*lines, "open it with a double click, or send it to a friend: it needs no network"]


def read_metrics(path: Path) -> list[dict]:
    """Return the lines of a metrics.jsonl; none where there is no such file or it is damaged."""
    try:
        lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        return [line for line in lines if isinstance(line, dict)]
    except (OSError, ValueError):
        return []


def write_page(
    saved: Checkpoint,
    output: Path,
    *,
    precision: PagePrecision,
    text: tuple[str, np.ndarray] | None = None,
    metrics: list[dict] | None = None,
    course: str = "",
) -> tuple[int, PackingCost | None]:
    """Write the page; return its size in bytes and what packing costs.

    text: the name and the ids of a text to measure that with. metrics: the lines of metrics.jsonl.
    course: the address of the folder with the chapters; empty, and they are named without a link.
    Raises UserError where `output` is something else than a page, or can't be.
    """
    _check_output(output)
    packed = rounded(saved, precision)
    cost = packing_cost(saved, packed, text[1], text[0]) if text else None
    facts = page_facts(saved, precision, cost, metrics or [], course)
    page = assemble(facts, pack(packed, precision)).encode()
    with atomic_write(output) as file:
        file.write(page)
    return len(page), cost


def page_facts(
    saved: Checkpoint,
    precision: PagePrecision,
    cost: PackingCost | None,
    metrics: list[dict],
    course: str,
) -> dict:
    """Return what the page knows besides the weights."""
    config, tokenizer = saved.model, saved.tokenizer
    derived = {name: getattr(config, name) for name in ("head_size", "hidden_size", "is_gated")}
    known = all(c in saved.characters for c in START)
    return {
        "config": asdict(config) | derived,
        "characters": saved.characters,
        "nearest": nearest_known(tokenizer),
        "layout": layout_of(config),
        "precision": precision,
        "start": START if known else "",
        "parameters": count_parameters(config),
        "corpus": saved.corpus_name,
        "train": asdict(saved.train),
        "progress": {
            "step": saved.progress.step,
            "tokens": saved.progress.tokens,
            "seconds": saved.progress.seconds,
            "val_loss": saved.progress.val_loss,
        },
        "cost": asdict(cost) if cost else None,
        "curve": curve(metrics),
        "course": course,
    }


def nearest_known(tokenizer: CharTokenizer) -> dict[str, str]:
    """Return what stands for each unknown character of the scripts near to ours."""
    ranges = (range(1, 0x3000), range(0xFB00, 0xFB07), range(0xFF00, 0xFFF0))
    unknown = {chr(code) for codes in ranges for code in codes} - set(tokenizer.characters)
    unknown = [c for c in unknown if unicodedata.normalize("NFC", c) == c]
    found = ((c, tokenizer.nearest(c)) for c in sorted(unknown))
    return {c: near for c, near in found if near is not None}


def curve(metrics: list[dict]) -> list[tuple[float, float | None, float | None]]:
    """Return (step, training loss, validation loss) of at most 200 lines, every evaluation kept."""
    wanted = max(1, len(metrics) // 200)
    lines = [
        tuple(_finite(line.get(name)) for name in ("step", "train_loss", "val_loss"))
        for number, line in enumerate(metrics)
        if number % wanted == 0 or line.get("val_loss") is not None
    ]
    return [line for line in lines if line[0] is not None]


def _finite(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def assemble(facts: dict, weights: str) -> str:
    """Return the page: the skeleton with everything in its place."""
    script = "".join((FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    script = f'"use strict";\n{script}'
    style = (FOLDER / "style.css").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    # As \\u003c a < ends no script and opens no comment; all beyond ASCII is escaped anyway.
    data = json.dumps(facts, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "policy": html.escape(policy, quote=False),
        "style": style,
        "facts": data,
        "weights": weights,
        "script": script,
    }
    skeleton = (FOLDER / "skeleton.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], skeleton)


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _check_output(path: Path) -> None:
    if path.is_dir():
        raise UserError(f"--output {path} is a folder; give the path of a file")
    if not path.parent.is_dir():
        raise UserError(f"--output {path}: the folder {path.parent} does not exist; make it first")
    if not path.exists():
        return
    if not path.is_file():
        raise UserError(f"--output {path} is a pipe or a device; give the path of a file")
    with open(path, "rb") as file:
        if MARK not in file.read(4096):
            raise UserError(f"{path} is there and is no page of sancho-mini; choose another name")
