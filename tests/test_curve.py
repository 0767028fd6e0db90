import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from sancho.curve import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, draw_curve

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


def parse(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture)


def points(root: ElementTree.Element, name: str) -> list[tuple[float, float]]:
    (path,) = (p for p in root.iter(f"{SVG}path") if p.get("class") == name)
    pairs = re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path.get("d"))
    return [(float(x), float(y)) for x, y in pairs]


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text for element in root.iter(f"{SVG}text")]


def test_every_loss_is_a_point_and_lower_losses_lie_lower():
    root, lines = parse(draw_curve(records())), records()
    train, val = points(root, "train"), points(root, "val")
    assert (len(train), len(val)) == (40, 4)
    assert [x for x, _ in train] == pytest.approx(
        [LEFT + (WIDTH - LEFT - RIGHT) * line["step"] / 400 for line in lines], abs=0.05
    )
    assert [y for _, y in train] == sorted(y for _, y in train)
    for x, y in train + val:
        assert LEFT <= x <= WIDTH - RIGHT
        assert TOP <= y <= HEIGHT - BOTTOM


def test_it_says_in_words_what_it_shows():
    root = parse(draw_curve(records()))
    words = root.find(f"{SVG}desc").text
    for part in ("400 steps", "1:40", "4.000", "1.075", "1.5000", "step 300"):
        assert part in words
    assert root.find(f"{SVG}title").text
    assert root.get("role") == "img"
    assert "best: 1.5000 at step 300" in texts(root)
    assert {"training", "validation", "steps", "time", "0:30"} <= set(texts(root))


@pytest.mark.parametrize(
    "lines",
    [
        records(1),
        records(1, every=1),
        records(10, every=99),
        records(5000, every=1),
        records(20, scale=1e-9),
        records(20, scale=1e30),
        [r | {"val_loss": None, "train_loss": 0.0} for r in records(3)],
        [r | {"train_loss": 1.25} for r in records(30, every=99)],
        [r | {"seconds": 0.0} for r in records()],
        [r | {"seconds": r["seconds"] * 1e6} for r in records()],
        [r | {"step": r["step"] * 10**9} for r in records()],
    ],
    ids="one evaluated no-validation long tiny huge zero flat no-time years steps".split(),
)
def test_any_run_can_be_drawn(lines):
    picture = draw_curve(lines)
    root = parse(picture)
    assert len(picture) < 60_000
    assert 1 <= sum(p.get("class") == "grid" for p in root.iter(f"{SVG}path")) < 40
    for _, y in points(root, "train"):
        assert TOP - 0.1 <= y <= HEIGHT - BOTTOM + 0.1


def test_nothing_to_draw_is_an_error():
    with pytest.raises(ValueError, match="one line"):
        draw_curve([])


def test_a_line_of_metrics_is_all_it_takes():
    line = json.dumps(records(1)[0])
    assert parse(draw_curve([json.loads(line)])).tag == f"{SVG}svg"
