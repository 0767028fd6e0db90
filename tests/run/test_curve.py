import re
import xml.etree.ElementTree as ElementTree

import pytest

from docs.make_picture import PICTURES, picture
from sancho.run.curve import BOTTOM, HEIGHT, LEFT, POINTS, RIGHT, TOP, WIDTH, draw_curve

SVG = "{http://www.w3.org/2000/svg}"


def records(n: int = 40, every: int = 10, scale: float = 1.0) -> list[dict]:
    """Return lines of metrics such as a run writes, the lowest validation loss being the third."""
    return [
        {
            "step": 10 * (k + 1),
            "seconds": 2.5 * (k + 1),
            "train_loss": scale * (1 + 3 / (k + 1)),
            "val_loss": scale * (1.5 + 0.1 * abs(k - 29)) if (k + 1) % every == 0 else None,
        }
        for k in range(n)
    ]


def points(root: ElementTree.Element, name: str) -> list[tuple[float, float]]:
    (path,) = (p for p in root.iter(f"{SVG}path") if p.get("class") == name)
    pairs = re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path.get("d"))
    return [(float(x), float(y)) for x, y in pairs]


def test_it_shows_every_loss_and_the_best_and_says_so_in_words():
    root = ElementTree.fromstring(draw_curve(records()))
    train = points(root, "train")
    val = points(root, "val")
    assert (len(train), len(val)) == (40, 4)
    places = [LEFT + (WIDTH - LEFT - RIGHT) * line["step"] / 400 for line in records()]
    assert [x for x, _ in train] == pytest.approx(places, abs=0.05)
    assert [y for _, y in train] == sorted(y for _, y in train)
    for x, y in train + val:
        assert LEFT <= x <= WIDTH - RIGHT
        assert TOP <= y <= HEIGHT - BOTTOM
    (mark,) = (c for c in root.iter(f"{SVG}circle") if c.get("class") == "best")
    assert (float(mark.get("cx")), float(mark.get("cy"))) == val[2]
    words = root.find(f"{SVG}desc").text
    assert words == (
        "A run of 400 steps and 0:01:40. The training loss went from 4.000 to 1.075 nats per "
        "character. The lowest validation loss was 1.5000, at step 300."
    )
    texts = {element.text for element in root.iter(f"{SVG}text")}
    assert {"training", "validation", "steps", "best: 1.5000 at step 300"} <= texts
    assert ">validation<" not in draw_curve(records(every=99))


@pytest.mark.parametrize("n", [2, POINTS, POINTS + 1, 5001])
def test_a_long_line_is_thinned_but_for_its_ends(n):
    lines = records(n, every=1)
    lines[-1] |= {"train_loss": 0.5, "val_loss": 0.25}  # the lowest of all: nobody else's place
    picture = draw_curve(lines)
    assert len(picture) < 60_000
    line = points(ElementTree.fromstring(picture), "train")
    assert len(line) <= POINTS + 1
    assert line[0][0] == pytest.approx(LEFT + (WIDTH - LEFT - RIGHT) / n, abs=0.05)
    assert line[-1] == (WIDTH - RIGHT, max(y for _, y in line))


@pytest.mark.parametrize(
    "lines",
    [
        records(1),
        records(20, scale=1e-9),
        records(20, scale=1e30),
        [r | {"val_loss": None, "train_loss": 0.0} for r in records(3)],
        [r | {"step": r["step"] * 10**9} for r in records()],
        *([r | {"seconds": forged} for r in records()] for forged in (1e30, -1e30, None)),
    ],
)
def test_any_run_can_be_drawn(lines):
    root = ElementTree.fromstring(draw_curve(lines))
    assert 1 <= sum(p.get("class") == "grid" for p in root.iter(f"{SVG}path")) < 40
    for _, y in points(root, "train"):
        assert TOP - 0.1 <= y <= HEIGHT - BOTTOM + 0.1


@pytest.mark.parametrize("words", PICTURES.values())
def test_the_picture_that_moves_shows_the_first_text_and_the_last(words):
    lines = [line | {"sample": f"<b>{line['step']}\n&"} for line in records(every=1)]
    root = ElementTree.fromstring(picture(lines, *words))
    texts = {element.text for element in root.iter(f"{SVG}text")}
    assert {"<b>10 &", "<b>400 &"} <= texts
