"""A checkpoint as one HTML file: the model runs in it, in any browser, without a network.

The scripts of this folder and a style sheet are put into skeleton.html one after the other, as they
are. The weights are rounded to half precision (or keep every bit), and laid out as planes: the
first byte of every number, then the second one of every number, and so on. The byte with sign and
exponent repeats itself, and among its like it compresses; then come zlib and base64.

A Content-Security-Policy allows the page's own script and style, by their hashes, and nothing else:
it can't ask any server for anything. What comes from the checkpoint is JSON in the page.
"""

import base64
import hashlib
import html
import json
import math
import re
import unicodedata
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from sancho.checkpoint import Checkpoint
from sancho.config import ModelConfig, PagePrecision
from sancho.errors import UserError
from sancho.files import atomic_write
from sancho.layout import count_parameters, weight_shapes
from sancho.tokenizer import CharTokenizer

FOLDER = Path(__file__).resolve().parent
SCRIPTS = (
    "vocabulary model random sampler unpack tools letters write letter attention layers journey "
    "surprise about start"
).split()
"""In the order in which they stand in the page: none uses a later one before all are read."""
TYPES = {"float16": np.dtype("<f2"), "float32": np.dtype("<f4")}
MARK = b'<meta name="generator" content="sancho-mini">'
START = "En un lugar de la Mancha"


@dataclass(frozen=True, kw_only=True)
class PackingCost:
    """The loss on some text before and after packing, in nats per character."""

    text: str
    """Which text."""
    characters: int
    """How many of them were predicted."""
    before: float
    after: float


# --- the weights ----------------------------------------------------------------------------


def rounded(saved: Checkpoint, precision: PagePrecision) -> Checkpoint:
    """Return the checkpoint with the weights that a page of this precision holds.

    Raises UserError where a weight is too large for half precision.
    """
    kind, weights = TYPES[precision], {}
    for name, array in saved.weights.items():
        with np.errstate(over="ignore"):
            weights[name] = array.astype(kind).astype(np.float32)
        if not np.isfinite(weights[name]).all():
            raise UserError(
                f"weight {name} reaches {np.abs(array).max():.3g}, too much for half precision; "
                "use --precision float32"
            )
    return replace(saved, weights=weights)


def layout_of(config: ModelConfig) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and shape of each weight in the page, in their order; a tied head is left out."""
    shapes = weight_shapes(config)
    if config.tie_embeddings:
        del shapes["head.weight"]
    return list(shapes.items())


def pack(saved: Checkpoint, precision: PagePrecision) -> str:
    """Return the weights in base64: their numbers' bytes, plane after plane, compressed."""
    names = [name for name, _ in layout_of(saved.model)]
    numbers = np.concatenate([saved.weights[name].reshape(-1) for name in names])
    numbers = numbers.astype(TYPES[precision])
    planes = numbers.view(np.uint8).reshape(len(numbers), -1).T  # (bytes of a number, numbers)
    return base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode()


def packing_cost(
    saved: Checkpoint, packed: Checkpoint, ids: np.ndarray, text: str
) -> PackingCost | None:
    """Return what packing costs on a text, (n,) ids; None where there is nothing to predict."""
    if len(ids) < 2:
        return None
    losses = [_loss(checkpoint, ids) for checkpoint in (saved, packed)]
    return PackingCost(text=text, characters=len(ids) - 1, before=losses[0], after=losses[1])


def _loss(saved: Checkpoint, ids: np.ndarray) -> float:
    """Return the mean loss over the windows of `evaluate`, in nats per character."""
    model, T, total = saved.build_plain(), saved.model.block_size, 0.0
    ids = ids.astype(np.int64)
    for first in range(0, len(ids) - 1, T):
        window = ids[first : first + T + 1]
        total += _surprise(model.logits(window[None, :-1])[0], window[1:])
    return total / (len(ids) - 1)


def _surprise(logits: np.ndarray, targets: np.ndarray) -> float:
    """Return the sum of −ln p(target): (T, V), (T,) -> nats."""
    logits = logits.astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    normaliser = np.log(np.exp(logits).sum(-1))
    return float((normaliser - logits[np.arange(len(targets)), targets]).sum())


# --- the page -------------------------------------------------------------------------------


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
