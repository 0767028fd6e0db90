"""Make the committed page, docs/index.html, again: python docs/make_page.py [--address ADDRESS].

With the address of the published site, as https://example.org/sancho, the page's links lead there.
Scripts, style, strings and facts are replaced by today's. The weights stay, and so do the cost of
packing, the passages and the words, which need the book, because that is not committed. If the
pretrained model itself has changed, make the page with `convert.py to-page` where data/quijote.txt
is.
"""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sancho import checkpoint
from sancho.convert import page
from sancho.machine.files import atomic_write
from sancho.run.metrics import read_metrics

PAGE = ROOT / "docs" / "index.html"
KEPT = ("cost", "passages", "words", "links")


def facts_anew(old: dict) -> dict:
    """Return the facts of a page of the pretrained model as they are today."""
    saved = checkpoint.pretrained()  # its weights are in half precision already
    metrics = read_metrics(checkpoint.PRETRAINED.with_name("metrics.jsonl"))
    facts = page.page_facts(saved, "float16", None, metrics, data=ROOT / "data")
    return facts | {name: old[name] for name in KEPT}


def main(args: list[str]) -> None:
    """Write the page over the one that is there."""
    parser = argparse.ArgumentParser(description="Make docs/index.html again.")
    parser.add_argument(
        "--address", help="Address of the published site, to which the links of the page lead."
    )
    address = parser.parse_args(args).address
    facts, weights = page.taken_apart(PAGE.read_text(encoding="utf-8"))
    made = facts_anew(facts)
    if address is not None:
        made["links"] = asdict(page.Links.to_site(address) if address else page.NOWHERE)
    with atomic_write(PAGE) as file:
        file.write(page.assemble(made, weights).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
