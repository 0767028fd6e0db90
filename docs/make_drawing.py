"""Make the drawing of how the project works: python docs/make_drawing.py.

The left half shows a model, from letters to the next letter, and the right half the scripts, from a
text to more text. Each box is a link to its file.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

FOLDER = Path(__file__).resolve().parent
WIDTH, HEIGHT = 840, 660
LEFT, MIDDLE, RIGHT = 218, 424, 634
"""The x of the middle of the model, of the line beside it, and of the middle of the scripts."""
FULL, HALF, TALL = 350, 170, 56
"""The width of a box, that of one of two side by side, and the height."""
TEMPLATE = Template("""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 $width $height" width="$width" \
height="$height" role="img" aria-labelledby="title words">
<title id="title">$title</title>
<desc id="words">$words</desc>
<style>
  svg { --ink: #2b2118; --soft: #85715c; --line: #e0d5c3; --paper: #fbf6ec; --mark: #a5341f; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #ede3d3; --soft: #a8977f; --line: #40372c; --paper: #1d1915; --mark: #ee8a6c; }
  }
  text { fill: var(--soft); font: 13px system-ui, sans-serif; text-anchor: middle; }
  .head { fill: var(--ink); font-size: 17px; }
  .name { fill: var(--ink); font-size: 15px; font-weight: 600; }
  .paper { fill: var(--paper); }
  .box { fill: var(--paper); stroke: var(--soft); stroke-width: 1.5; }
  .data { stroke: none; }
  .line { fill: none; stroke: var(--line); }
  .arrow { fill: none; stroke: var(--mark); stroke-width: 1.5; marker-end: url(#tip); }
  .tip { fill: var(--mark); }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" \
orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>
<rect class="paper" width="$width" height="$height" rx="10"/>
<path class="line" d="M$middle 24V$bottom"/>
$parts
</svg>
""")


@dataclass(frozen=True)
class Box:
    """A part of the drawing: its middle, its words, and the file that it links to."""

    x: int
    y: int
    width: int
    file: str  # from the top of the project; "" for what is no file
    name: str
    told: str

    @property
    def top(self) -> int:
        """Where the box begins."""
        return self.y - TALL // 2

    @property
    def bottom(self) -> int:
        """Where the box ends."""
        return self.y + TALL // 2

    def draw(self, to_root: str) -> str:
        """Return the box, with its link."""
        kind = "box" if self.file else "box data"
        drawn = (
            f'<rect class="{kind}" x="{self.x - self.width // 2}" y="{self.top}" '
            f'width="{self.width}" height="{TALL}" rx="8"/>'
            f"{text('name', self.x, self.y - 4, self.name)}"
            f"{text('', self.x, self.y + 16, self.told)}"
        )
        return f'<a href="{to_root}{self.file}">{drawn}</a>' if self.file else drawn


ROWS = (90, 180, 270, 370, 470, 560, 630)
"""The middles of the rows; the last one is a line of text."""
PLACES = {
    "letters": (LEFT, 0, FULL, "sancho/tokenizer.py"),
    "embedding": (LEFT - 90, 1, HALF, "sancho/model.py"),
    "table": (LEFT + 90, 1, HALF, "sancho/shared/ngrams.py"),
    "sum": (LEFT, 2, FULL, ""),
    "blocks": (LEFT, 3, FULL, "sancho/model.py"),
    "head": (LEFT, 4, FULL, "sancho/model.py"),
    "draw": (LEFT, 5, FULL, "sancho/generate.py"),
    "text": (RIGHT, 0, FULL, "sancho/text/corpus.py"),
    "train": (RIGHT, 2, FULL, "train.py"),
    "out": (RIGHT, 3, FULL, "sancho/run/folder.py"),
    "sample": (RIGHT - 120, 5, 110, "sample.py"),
    "evaluate": (RIGHT, 5, 110, "evaluate.py"),
    "convert": (RIGHT + 120, 5, 110, "convert.py"),
}
"""Each part: middle, row, width, file."""
ARROWS = (
    ("letters", "embedding"),
    ("letters", "table"),
    ("embedding", "sum"),
    ("table", "sum"),
    ("sum", "blocks"),
    ("blocks", "head"),
    ("head", "draw"),
    ("text", "train"),
    ("train", "out"),
    ("out", "sample"),
    ("out", "evaluate"),
    ("out", "convert"),
)
DRAWINGS = {
    "how-it-works.svg": {
        "title": "How sancho-mini works",
        "model": "The model: from letters to the next letter",
        "scripts": "The scripts: from a text to more text",
        "again": "the new letter joins the others, and all begins again",
        "letters": ("letters → ids", "«la Manch» → 8 numbers from 0 to 91"),
        "embedding": ("embedding", "a vector for each letter"),
        "table": ("n-gram table", "vectors for 2 to 5 letters"),
        "sum": ("one vector at each place", "the sum of these"),
        "blocks": ("4 blocks", "attention looks back, feed-forward does not"),
        "head": ("output head → logits", "a number for each possible letter: 92"),
        "draw": ("the next letter", "a draw among the likelier ones: «a»"),
        "text": ("a text", "nine tenths train, one validates"),
        "train": ("train.py", "predict, compute the loss, change the weights"),
        "out": ("out/", "two checkpoints, the text, the curve"),
        "sample": ("sample.py", "writes"),
        "evaluate": ("evaluate.py", "measures"),
        "convert": ("convert.py", "page, exports"),
    },
    "es/como-funciona.svg": {
        "title": "Cómo funciona sancho-mini",
        "model": "El modelo: de las letras a la letra siguiente",
        "scripts": "Los programas: de un texto a más texto",
        "again": "la letra nueva se une a las demás, y todo vuelve a empezar",
        "letters": ("letras → ids", "«la Manch» → 8 números del 0 al 91"),
        "embedding": ("embedding", "un vector por letra"),
        "table": ("tabla de n-gramas", "vectores de 2 a 5 letras"),
        "sum": ("un vector en cada posición", "la suma de todos esos"),
        "blocks": ("4 bloques", "la atención mira atrás; la feed-forward, no"),
        "head": ("cabeza de salida → logits", "un número por letra posible: 92"),
        "draw": ("la letra siguiente", "un sorteo entre las más probables: «a»"),
        "text": ("un texto", "nueve décimas entrenan, una valida"),
        "train": ("train.py", "predice, calcula la pérdida, cambia los pesos"),
        "out": ("out/", "dos checkpoints, el texto, la curva"),
        "sample": ("sample.py", "escribe"),
        "evaluate": ("evaluate.py", "mide"),
        "convert": ("convert.py", "exporta"),
    },
}
"""The same in two languages: the words in each."""


def main() -> None:
    """Draw it in each language."""
    for name, words in DRAWINGS.items():
        path = FOLDER / name
        path.write_text(drawing(name, words), encoding="utf-8", newline="\n")


def drawing(name: str, words: dict) -> str:
    """Return the drawing of that name under docs/."""
    to_root = "../" * (name.count("/") + 1)
    boxes = {
        part: Box(x, ROWS[row], width, file, *words[part])
        for part, (x, row, width, file) in PLACES.items()
    }
    parts = [text("head", LEFT, 42, words["model"]), text("head", RIGHT, 42, words["scripts"])]
    parts += [box.draw(to_root) for box in boxes.values()]
    parts += [arrow(boxes[one], boxes[other]) for one, other in ARROWS]
    # From the last box back to the first, past the left of all.
    last, first = boxes["draw"], boxes["letters"]
    side = LEFT - FULL // 2
    parts.append(f'<path class="arrow" d="M{side} {last.y}H20V{first.y}H{side}"/>')
    parts.append(text("", LEFT, ROWS[-1] - 8, words["again"]))
    said = ((words["model"], "letters", "draw"), (words["scripts"], "text", "convert"))
    order = list(PLACES)
    told = []
    for title, begin, end in said:
        named = order[order.index(begin) : order.index(end) + 1]
        told.append(f"{title}: {'; '.join(' – '.join(words[part]) for part in named)}")
    return TEMPLATE.substitute(
        width=WIDTH,
        height=HEIGHT,
        middle=MIDDLE,
        bottom=HEIGHT - 24,
        title=escape(words["title"]),
        words=escape(". ".join(told)),
        parts="\n".join(parts),
    )


def arrow(one: Box, other: Box) -> str:
    """Return an arrow down from a box to one below it, between their nearest places."""
    narrow = min(one, other, key=lambda box: box.width)
    start, end = (narrow.x if narrow.width < box.width else box.x for box in (one, other))
    return f'<path class="arrow" d="M{start} {one.bottom}L{end} {other.top - 2}"/>'


def text(kind: str, x: float, y: float, words: str) -> str:
    """Return a text of the drawing, with its middle at x."""
    what = f'class="{kind}" ' if kind else ""
    return f'<text {what}x="{x}" y="{y}">{escape(words)}</text>'


if __name__ == "__main__":
    main()
