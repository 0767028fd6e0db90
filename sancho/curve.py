"""The learning curve of a run as an SVG picture: losses over steps, with the time above them."""

import bisect
import math
from collections.abc import Callable, Sequence

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 56, 96, 64, 48  # margins around the plot
POINTS = 600  # a line of more can't be told from one of so many
TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
ROUND = tuple(k * 10.0**e for e in range(-6, 40) for k in (1, 2, 5))
STYLE = """
  svg { --ink: #1a1a1a; --soft: #8a8a8a; --line: #dddddd; --paper: #ffffff; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #eeeeee; --soft: #8f8f8f; --line: #3a3a3a; --paper: #161616; }
  }
  text { fill: var(--ink); font: 13px system-ui, sans-serif; }
  text { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; }
  .grid { stroke: var(--line); }
  .train { fill: none; stroke: var(--soft); stroke-width: 1.2; }
  .val { fill: none; stroke: var(--ink); stroke-width: 2; }
  .dot { fill: var(--ink); }
  .best { fill: none; stroke: var(--ink); stroke-width: 1.5; }
  .soft { fill: var(--soft); }
"""


def draw_curve(records: Sequence[dict]) -> str:
    """Return the picture of the lines of metrics.jsonl, in the order of their steps.

    It is in two greys told apart by their names and their strength, light or dark as the reader's
    screen, and says in words what it shows. Raises ValueError for no lines.
    """
    if not records:
        raise ValueError("a curve needs at least one line of metrics")
    train = [(r["step"], r["train_loss"]) for r in records]
    val = [(r["step"], r["val_loss"]) for r in records if r["val_loss"] is not None]
    last_step, losses = records[-1]["step"], [loss for _, loss in train + val]
    low, high = max(min(losses), 1e-4) * 0.98, max(*losses, 1e-4) * 1.02

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last_step

    def y(loss: float) -> float:  # by ratios: the beginning falls far, the end matters
        return TOP + (HEIGHT - TOP - BOTTOM) * math.log(high / max(loss, low)) / math.log(
            high / low
        )

    best = min(val, key=lambda point: point[1], default=None)
    parts = [
        '<rect width="100%" height="100%" fill="var(--paper)"/>',
        _text(LEFT, 24, "loss in nats per character", "start"),
        _text(WIDTH - RIGHT, 24, "time", "end", "soft"),
        *(_loss_tick(loss, y(loss)) for loss in _loss_ticks(low, high)),
        *(_step_tick(step, x(step)) for step in _step_ticks(last_step)),
        *_time_ticks(records, x),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "steps"),
        _line("train", [(x(step), y(loss)) for step, loss in _thinned(train)]),
        _line("val", [(x(step), y(loss)) for step, loss in _thinned(val)]),
        *(f'<circle class="dot" cx="{x(s):.1f}" cy="{y(v):.1f}" r="3"/>' for s, v in val[-100:]),
        *_names(train, val, y),
    ]
    if best:
        at_x, at_y = x(best[0]), y(best[1])
        parts.append(f'<circle class="best" cx="{at_x:.1f}" cy="{at_y:.1f}" r="7"/>')
        anchor = "end" if at_x > WIDTH / 2 else "start"
        parts.append(_text(at_x, at_y - 20, f"best: {best[1]:.4f} at step {best[0]:,}", anchor))
    return _picture(_in_words(records, train, best), parts)


def _picture(words: str, parts: list[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="title words">\n'
        f'<title id="title">Learning curve</title>\n<desc id="words">{words}</desc>\n'
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def _in_words(records: Sequence[dict], train: list[tuple], best: tuple | None) -> str:
    words = (
        f"In {records[-1]['step']:,} steps and {_time(records[-1]['seconds'])} the training loss "
        f"went from {train[0][1]:.3f} to {train[-1][1]:.3f} nats per character."
    )
    if best:
        words += f" The lowest validation loss was {best[1]:.4f}, at step {best[0]:,}."
    return words


def _names(train: list[tuple], val: list[tuple], y: Callable) -> list[str]:
    """Return the names of the curves, each at its right end and not on the other one."""
    right = WIDTH - RIGHT + 10
    if not val:
        return [_text(right, y(train[-1][1]) + 4, "training", "start")]
    at, other = y(val[-1][1]), y(train[-1][1])
    if abs(at - other) < 18:
        middle, sign = (at + other) / 2, 1 if at > other else -1
        at, other = middle + 9 * sign, middle - 9 * sign
    return [
        _text(right, at + 4, "validation", "start"),
        _text(right, other + 4, "training", "start", "soft"),
    ]


def _loss_tick(loss: float, y: float) -> str:
    line = f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
    return line + _text(LEFT - 8, y + 4, f"{loss:g}", "end")


def _step_tick(step: int, x: float) -> str:
    line = f'<path class="grid" d="M{x:.1f} {HEIGHT - BOTTOM}v5"/>'
    return line + _text(x, HEIGHT - BOTTOM + 20, f"{step:,}")


def _time_ticks(records: Sequence[dict], x: Callable) -> list[str]:
    """Return marks along the upper edge: when a step was done."""
    seconds, end = [r["seconds"] for r in records], records[-1]["seconds"]
    gap = next((time for time in TIMES if end / time <= 6), 86400 * math.ceil(end / 86400 / 6))
    parts = []
    for k in range(1, int(end // gap) + 1):
        after = min(bisect.bisect_left(seconds, k * gap), len(records) - 1)
        here, before = records[after], records[after - 1] if after else {"step": 0, "seconds": 0}
        share = (k * gap - before["seconds"]) / ((here["seconds"] - before["seconds"]) or 1)
        at = x(before["step"] + share * (here["step"] - before["step"]))
        parts.append(f'<path class="grid" d="M{at:.1f} {TOP}v-5"/>')
        parts.append(_text(at, TOP - 10, _time(k * gap), "middle", "soft"))
    return parts


def _loss_ticks(low: float, high: float) -> list[float]:
    """Return round losses, at most one in an eighth of the height."""
    room = math.log(high / low) / 8
    gap = next(gap for gap in ROUND if math.log1p(gap / low) >= room)
    ticks, lowest = [], low
    while (tick := math.ceil(lowest / gap) * gap) <= high:
        ticks.append(tick)
        lowest = tick * math.exp(room)
    return ticks


def _step_ticks(last: int) -> range:
    gap = next((int(gap) for gap in ROUND if gap >= 1 and last / gap <= 6), last)
    return range(0, last + 1, gap)


def _thinned(points: list[tuple]) -> list[tuple]:
    stride = math.ceil(len(points) / POINTS) or 1
    return points[::stride] + (points[-1:] if (len(points) - 1) % stride else [])


def _line(name: str, points: list[tuple]) -> str:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{name}" d="M{path}"/>' if points else ""


def _text(x: float, y: float, words: str, anchor: str = "middle", name: str = "") -> str:
    kind = f' class="{name}"' if name else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def _time(seconds: float) -> str:
    """Return 75 as 1:15, and 4000 as 1:06:40."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
