"""Make the committed page, docs/index.html, again: python docs/make_page.py.

Scripts, style, strings and facts are replaced by today's. The weights stay, and so do the cost of
packing and the passages, which need the book, because that is not committed. If the pretrained
model itself has changed, prepare the book and make the page with `convert.py to-page`.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sancho import checkpoint
from sancho.convert import page
from sancho.metrics import read_metrics

PAGE = ROOT / "docs" / "index.html"
KEPT = ("cost", "passages", "links")


def facts_anew(old: dict) -> dict:
    """Return the facts of a page of the pretrained model as they are today."""
    saved = checkpoint.pretrained()  # its weights are in half precision already
    metrics = read_metrics(checkpoint.PRETRAINED.with_name("metrics.jsonl"))
    facts = page.page_facts(saved, "float16", None, metrics, data=ROOT / "data")
    return facts | {name: old[name] for name in KEPT}


def main() -> None:
    """Write the page over the one that is there."""
    facts, weights = page.taken_apart(PAGE.read_text(encoding="utf-8"))
    made = page.assemble(facts_anew(facts), weights)
    PAGE.write_text(made, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
