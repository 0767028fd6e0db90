"""The learning curve of a run: a picture of its losses in SVG."""

import math
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from string import Template

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 56, 48, 56, 48  # margins around the plot
LONGEST = 1e9  # seconds; a forged checkpoint may claim more
POINTS = 600  # more points in a line can't be seen


def draw_curve(records: Sequence[dict], run: str = "") -> str:
    """Return an SVG picture of the lines of metrics.jsonl, of which there must be one or more.

    run: the id of the run, which the picture carries.
    """
    train, val = (
        [(r["step"], r[name]) for r in records if r.get(name) is not None]
        for name in ("train_loss", "val_loss")
    )
    last = max(1, *(record["step"] for record in records))
    seconds = min(max(records[-1].get("seconds") or 0, 0), LONGEST)
    losses = [max(loss, 1e-4) for _, loss in train + val] or [1.0]
    low = 0.98 * min(losses)
    high = 1.02 * max(losses)

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(
        loss: float,
    ) -> float:  # logarithmic: the loss falls far at the beginning, but its end matters
        part = math.log(high / max(loss, low)) / math.log(high / low)
        return TOP + (HEIGHT - TOP - BOTTOM) * part

    parts = [_text(LEFT, 24, "loss in nats per character", "start")]
    parts += [_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "steps")]
    for tick in sorted({float(f"{low * (high / low) ** (k / 6):.3g}") for k in range(1, 6)}):
        parts.append(_path("grid", [(LEFT, y(tick)), (WIDTH - RIGHT, y(tick))]))
        parts.append(_text(LEFT - 8, y(tick) + 4, f"{tick:g}", "end"))
    gaps = (digit * 10**zeros for zeros in range(20) for digit in (1, 2, 5))
    gap = next(gap for gap in gaps if last <= 7 * gap)
    for step in range(0, last + 1, gap):
        parts.append(_path("grid", [(x(step), HEIGHT - BOTTOM), (x(step), HEIGHT - BOTTOM + 5)]))
        parts.append(_text(x(step), HEIGHT - BOTTOM + 20, f"{step:,}"))
    lines = ("train", "training", 90, train), ("val", "validation", 200, val)
    for name, word, right, points in lines:
        if points:
            shown = points[: -1 : len(points) // POINTS + 1] + points[-1:]
            parts.append(_path(name, [(x(step), y(loss)) for step, loss in shown]))
            parts.append(_path(f"{name} key", [(WIDTH - right - 30, 20), (WIDTH - right - 8, 20)]))
            parts.append(_text(WIDTH - right, 24, word, "start"))
    words = f"A run of {last:,} steps and {timedelta(seconds=round(seconds))}."
    if train:
        begin, end = train[0][1], train[-1][1]
        words += f" The training loss went from {begin:.3f} to {end:.3f} nats per character."
    if val:
        step, loss = min(val, key=lambda point: point[1])
        parts.append(f'<circle class="best" cx="{x(step):.1f}" cy="{y(loss):.1f}" r="7"/>')
        parts.append(_text(WIDTH / 2, 24, f"best: {loss:.4f} at step {step:,}"))
        words += f" The lowest validation loss was {loss:.4f}, at step {step:,}."
    template = Template(Path(__file__).with_name("curve.svg").read_text(encoding="utf-8"))
    return template.substitute(words=words, parts="\n".join(parts), run=run)


def run_of(path: Path) -> str:
    """Return the id of the run whose curve a picture is, or ""."""
    found = re.search(rb'data-run="(\w+)"', path.read_bytes())
    return found[1].decode() if found else ""


def _path(name: str, points: list[tuple[float, float]]) -> str:
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{name}" d="M{line}h0"/>'  # h0: a single point is seen, too


def _text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'
