"""Make the animation of what a model writes while it learns: python docs/make_picture.py RUN.

RUN is the folder of a run that was evaluated often, and most often at its beginning. The run of
learning.svg was `train.py --max_iters 1700 --eval_interval 4`, stopped at step 40 with Ctrl+C, then
`--resume --eval_interval 50` up to step 150, and `--resume --eval_interval 100` to the end.
"""

import json
import math
import sys
from html import escape
from itertools import pairwise
from pathlib import Path
from string import Template
from textwrap import wrap

FOLDER = Path(__file__).resolve().parent
PICTURES = {
    "learning.svg": ("step", "validation loss", "A model learns to write", "first", "in the end"),
    "es/aprendizaje.svg": (
        "paso",
        "pérdida de validación",
        "Un modelo aprende a escribir",
        "al principio",
        "al final",
    ),
}
"""The same in two languages: the words in each."""
LEFT, RIGHT, TOP, BOTTOM = 64, 612, 182, 312
"""Where the curve is, in a picture of 640 by 360."""
FRAMES, SECONDS, REST = 12, 1.6, 4.0
"""How many texts are shown; how long each is; how much longer the last one."""
MOVES = 0.6
"""When, in the time of a text, the dot goes on to the next one."""
LETTERS, LINES = 42, 2
"""Of a text at most."""
TEMPLATE = Template("""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 360" width="640" height="360" role="img" \
aria-labelledby="title words">
<title id="title">$title</title>
<desc id="words">$words</desc>
<style>
  svg { --ink: #2b2118; --soft: #85715c; --line: #e0d5c3; --paper: #fbf6ec; --mark: #a5341f; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #ede3d3; --soft: #a8977f; --line: #40372c; --paper: #1d1915; --mark: #ee8a6c; }
  }
  text { fill: var(--soft); font: 18px system-ui, sans-serif; }
  .text { fill: var(--ink); font: 26px Georgia, "Times New Roman", serif; }
  path { fill: none; stroke: var(--line); }
  .curve { stroke: var(--mark); stroke-width: 2.5; stroke-linejoin: round; }
  .dot { fill: var(--mark); transform: translate($end); }
  .cover, .paper { fill: var(--paper); }
  .cover { transform: translateX(700px); }
  .frame { opacity: 0; }
  .last { opacity: 1; }
  /* Who wants no motion sees the end of it. */
  @media (prefers-reduced-motion: no-preference) {
    .frame { animation: show ${seconds}s var(--delay) step-end infinite; }
    .last { animation-name: show-last; }
    .line0 { animation: line0 ${seconds}s var(--delay) linear infinite; }
    .line1 { animation: line1 ${seconds}s var(--delay) linear infinite; }
    .dot { animation: dot ${seconds}s linear infinite; }
    .cover { animation: cover ${seconds}s linear infinite; }
  }
$keyframes
</style>
<rect class="paper" width="640" height="360" rx="10"/>
<path class="curve" d="$line"/>
<rect class="cover" y="$top" width="700" height="$height"/>
$axes
<circle class="dot" r="6"/>
$frames
</svg>
""")


def main(run: str) -> None:
    """Draw the picture in each language."""
    raw = (Path(run) / "metrics.jsonl").read_text(encoding="utf-8")
    records = [r for r in map(json.loads, raw.splitlines()) if r["val_loss"] is not None]
    for name, words in PICTURES.items():
        (FOLDER / name).write_text(picture(records, *words), encoding="utf-8", newline="\n")


def picture(records: list[dict], step: str, loss: str, title: str, first: str, last: str) -> str:
    """Return the picture of evaluations, in their order; x goes by the ratios of their steps."""
    shown = chosen(records)
    begin, end = (math.log(records[k]["step"]) for k in (0, -1))
    low, high = (limit(r["val_loss"] for r in records) for limit in (min, max))

    def place(number: int, of: float) -> tuple[float, float]:
        x = LEFT + (RIGHT - LEFT) * (math.log(number) - begin) / (end - begin)
        return round(x, 1), round(BOTTOM - (BOTTOM - TOP) * (of - low) / (high - low), 1)

    def numeral(number: int) -> str:
        return f"{number:,}" if step == "step" else str(number)

    points = [place(r["step"], r["val_loss"]) for r in records]
    axes = [f'<path d="M{LEFT} {BOTTOM}H{RIGHT}"/>']
    for number in (10, 100, 1000, 10_000):
        if records[0]["step"] <= number <= records[-1]["step"]:
            x, _ = place(number, low)
            axes.append(f'<path d="M{x} {BOTTOM}v6"/>')
            axes.append(text("", x, BOTTOM + 27, numeral(number), "middle"))
    axes += [text("", LEFT - 10, place(1, of)[1] + 6, f"{of:.1f}", "end") for of in (low, high)]
    frames = []
    for k, r in enumerate(shown):
        kind = "frame last" if r is shown[-1] else "frame"
        lines = [text("", 28, 44, f"{step} {numeral(r['step'])} · {loss} {r['val_loss']:.2f}")]
        for i, line in enumerate(wrap(" ".join(r["sample"].split()), LETTERS)[:LINES]):
            lines.append(text(f"text line{i}", 28, 92 + 38 * i, line))
        # How far each animation is in its round when the picture is opened.
        delay = f"--delay:{k * SECONDS - duration(shown):.1f}s"
        frames.append(f'<g class="{kind}" style="{delay}">{"".join(lines)}</g>')
    told = (
        f"{word}: {' '.join(shown[k]['sample'].split())}" for word, k in ((first, 0), (last, -1))
    )
    return TEMPLATE.substitute(
        title=title,
        words=escape("; ".join(told)),
        seconds=f"{duration(shown):.1f}",
        end="{}px, {}px".format(*points[-1]),
        keyframes=keyframes(records, shown, points),
        line="M" + "L".join(f"{x} {y}" for x, y in points),
        top=TOP - 10,
        height=BOTTOM - TOP + 20,
        axes="\n".join(axes),
        frames="\n".join(frames),
    )


def chosen(records: list[dict]) -> list[dict]:
    """Return the FRAMES evaluations that come nearest to steps of one ratio."""
    first, last = records[0]["step"], records[-1]["step"]
    wanted = [first * (last / first) ** (k / (FRAMES - 1)) for k in range(FRAMES)]
    near = [min(records, key=lambda r: abs(math.log(r["step"] / step))) for step in wanted]
    return [r for r in records if r in near]


def duration(shown: list[dict]) -> float:
    """Return the seconds of a round."""
    return SECONDS * len(shown) + REST


def keyframes(records: list[dict], shown: list[dict], points: list[tuple[float, float]]) -> str:
    """Return the style sheet's animations, in percent of a round."""
    part = 100 * SECONDS / duration(shown)
    dot, cover = [], []
    for k, (here, there) in enumerate(pairwise([*shown, None])):
        until = there["step"] if there else math.inf
        between = [i for i, r in enumerate(records) if here["step"] <= r["step"] < until]
        for nth, i in enumerate(between):
            x, y = points[i]
            # It rests where the text was written, and then goes on to the next one.
            for moment in {0, MOVES} if nth == 0 else {MOVES + (1 - MOVES) * nth / len(between)}:
                at = f"{part * (k + moment):.2f}%"
                dot.append(f"{at}{{transform:translate({x}px,{y}px)}}")
                cover.append(f"{at}{{transform:translateX({x}px)}}")
    last_one = 100 - part * (len(shown) - 1)
    rules = {
        "show": f"0%{{opacity:1}}{part:.2f}%{{opacity:0}}100%{{opacity:0}}",
        "show-last": f"0%{{opacity:1}}{last_one:.2f}%{{opacity:0}}100%{{opacity:0}}",
        "dot": "".join(dot) + "100%{" + dot[-1].partition("{")[2],
        "cover": "".join(cover) + "100%{" + cover[-1].partition("{")[2],
    }
    # A text is written letter by letter, its second line after the first.
    hidden, whole = "clip-path:inset(0 100% 0 0)", "clip-path:inset(0 -9px 0 0)"
    rules["line0"] = f"0%{{{hidden}}}{0.35 * part:.2f}%{{{whole}}}100%{{{whole}}}"
    rules["line1"] = (
        f"0%{{{hidden}}}{0.35 * part:.2f}%{{{hidden}}}{0.7 * part:.2f}%{{{whole}}}100%{{{whole}}}"
    )
    return "\n".join(f"  @keyframes {name} {{{rule}}}" for name, rule in rules.items())


def text(kind: str, x: float, y: float, words: str, anchor: str = "start") -> str:
    """Return a text of the picture."""
    what = f'class="{kind}" ' if kind else ""
    where = f'x="{x}" y="{y}"' + (f' text-anchor="{anchor}"' if anchor != "start" else "")
    return f"<text {what}{where}>{escape(words)}</text>"


if __name__ == "__main__":
    main(*sys.argv[1:])
