"""Export to one HTML page in which the model runs, in any browser, without a network.

The scripts, as scripts.py joins them, and the parts of a style sheet are put into ui/skeleton.html,
and the weights as packing.py lays them out. The texts of the page are in ui/strings.json: each key
has a Spanish and an English text, with the same {names} to fill in. A bar in a text separates the
singular from the plural.

A Content-Security-Policy allows the page's own scripts and style, by their hashes, workers made of
its first script, and WebAssembly. The page can't send a request to any server. The content of the
checkpoint is JSON in the page.
"""

import base64
import hashlib
import html
import json
import re
import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import DEFAULT_SAMPLING, CheckpointOption, ModelConfig, TrainConfig
from sancho.convert import scripts
from sancho.convert.output import check_new, require_computed
from sancho.convert.packing import (
    PackingCost,
    PagePrecision,
    measuring_text,
    pack,
    packing_cost,
    rounded,
    stored_shapes,
)
from sancho.convert.passages import passages_of, words_in
from sancho.convert.scripts import FOLDER
from sancho.errors import OtherFunction, UserError, note
from sancho.machine.files import atomic_write, existing_file
from sancho.presets import LESS_DROPPED, MINI, MOST_DROPPED, SCALED
from sancho.run.learned import kept_corpus
from sancho.run.metrics import read_metrics
from sancho.shared.proof import in_base64, proof_of
from sancho.shared.weights import count_parameters
from sancho.text.clean import (
    A_WEB_PAGE,
    BYTE_ORDER_MARKS,
    E_BOOK,
    SEQUENCES,
    SIGNATURES,
    SUSPICIOUS,
    WEB_PAGE,
)
from sancho.text.clean import MARK as GUTENBERG
from sancho.tokenizer import CharTokenizer

UI = FOLDER / "ui"
STYLE = (
    *("colours", "base", "controls", "letters", "bars"),
    *("header", "write", "asking", "attention", "journey", "games", "teach", "switches"),
    *("surprise", "about", "print"),
)
"""The parts of the style sheet, ui/style/: each has what is seen of one thing, at every width."""
COMPUTED = {
    "norm": ("layernorm", "rmsnorm"),
    "position": ("learned", "sinusoidal", "rope"),
    "activation": ("relu", "relu2", "silu", "gelu", "geglu", "swiglu"),
}
"""The names of options that model.js knows."""
SMALLER = replace(MINI.model, n_layer=2, n_head=1, n_embd=32, ngram_rows=16384)
"""The new model that learns in the page on a slow computer."""
TUNING = replace(MINI.train, optimizer="adamw", learning_rate=1e-3, batch_size=4, look_ahead=0)
"""How the page's own model goes on with another text: with AdamW, a step of the optimizer takes an
eighth of the time that it takes with Muon, and the loss ends as low (page/README.md)."""
MARK = b'<meta name="generator" content="sancho-mini">'
PREVIEW = """<meta property="og:url" content="{page}">
<meta property="og:image" content="{picture}">
"""
TITLES = {"quijote": "Don Quijote", "shakespeare": "Shakespeare"}
SAMPLE = "apocrifo.txt"
SAMPLE_NAME = "La campana sin lengua"
"""The title of its first part, by which the page calls it."""
WITHOUT_SCRIPT = ".skip, main, footer, #ajustes { display: none; }"
"""The style of a preview, which runs no script: nothing is there that could be pressed."""
START = "En un lugar de la Mancha"
SEED = 1605


@dataclass(frozen=True, kw_only=True)
class Links:
    """The addresses of a page's links; without an address, a name has no link."""

    project: str = ""
    course: str = ""
    chapter: str = ""
    """The address of a chapter, with {file} for the name of its notebook."""
    page: str = ""
    """The page's own address, which "Copy link" uses if the page was opened from a disk."""
    picture: str = ""
    """The picture that is shown if somebody shares the address of the page."""

    @staticmethod
    def to_repository(name: str) -> "Links":
        """Return links to a repository on GitHub, OWNER/NAME. Raises UserError for another form."""
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise UserError(f"--repository is {name!r}; give it as OWNER/NAME")
        project = f"https://github.com/{name}"
        course = f"{project}/blob/main/notebooks"
        return Links(project=project, course=course, chapter=f"{course}/{{file}}.ipynb")

    @staticmethod
    def to_site(address: str) -> "Links":
        """Return links to the published site of the project."""
        address = address.rstrip("/")
        chapter = f"{address}/curso/{{file}}.html"
        index = f"{address}/index.html"
        return Links(project=index, course=index, chapter=chapter, page=f"{address}/sancho.html")


NOWHERE = Links()


@dataclass(frozen=True, kw_only=True)
class ToPageOptions(CheckpointOption):
    """Turn a checkpoint into one HTML file in which the model writes, in any browser, offline.

    Its learning curve is drawn from the metrics.jsonl beside the checkpoint, if there is one.
    """

    output: Path = Path("sancho.html")
    """The file to write; an older page of that name is replaced."""
    precision: PagePrecision = "float16"
    """Number type of the weights in the page; float32 keeps every bit in about twice the size."""
    repository: str = ""
    """GitHub repository, as OWNER/NAME, to which the page's links lead; empty means no links."""


def to_page(options: ToPageOptions, data: str | Path) -> list[str]:
    """Write the page; return the lines to tell the user.

    The text that the model learned from, if it is here, measures the cost of packing, and the page
    has a game with its passages. data: the folder of the sample text, which measures it otherwise.
    """
    path = checkpoint.find_checkpoint(options.checkpoint)
    saved = checkpoint.load(path)
    own = kept_corpus(path, saved)
    links = Links.to_repository(options.repository) if options.repository else NOWHERE
    passages = passages_of(own.tokenizer.decode(own.val)) if own else []
    words = words_in(own.tokenizer.decode(own.train)) if own else []
    size, cost = write_page(
        saved,
        options.output,
        precision=options.precision,
        text=measuring_text(saved, own, data),
        metrics=read_metrics(path.with_name("metrics.jsonl")),
        links=links,
        passages=passages,
        words=words,
        data=data,
    )
    lines = [f"{options.output}: {size / 1e6:.2f} MB, weights in {options.precision}"]
    if cost:
        change = f"{cost.before:.5f} → {cost.after:.5f} nats per character"
        lines.append(
            f"loss before → after packing: {change}, on {cost.characters} characters of {cost.text}"
        )
    if not passages:
        lines.append(
            "the page has no game: the model's text is not here, or has no passages for it"
        )
    return [*lines, "open it with a double click, or send it to a friend: it needs no network"]


def write_page(
    saved: Checkpoint,
    output: str | Path,
    *,
    precision: PagePrecision,
    text: tuple[str, np.ndarray] | None = None,
    metrics: list[dict] | None = None,
    links: Links = NOWHERE,
    passages: Sequence[tuple[str, str]] = (),
    words: Sequence[str] = (),
    data: str | Path = "",
) -> tuple[int, PackingCost | None]:
    """Write the page of a checkpoint; return its size in bytes and what packing costs.

    text: the name and the ids of a text to measure the cost with. metrics: the lines of
    metrics.jsonl. passages: to be guessed in a game, each after the text before it; without any,
    the page has no game. words: those that the model has read, among which are most words of a
    passage that it writes in the game. data: the folder of the sample text.
    Raises UserError if `output` exists and is not a page, or can't be made.
    """
    output = Path(output)
    require_computed(saved, COMPUTED, "page/engine/model.js")
    _check_output(output)
    packed = rounded(saved, precision)
    cost = packing_cost(saved, packed, text[1], text[0]) if text else None
    facts = page_facts(packed, precision, cost, metrics or [], links, passages, words, data)
    pairs = ((saved.weights[name], array) for name, array in packed.weights.items())
    facts["exact"] = all(np.array_equal(before, after) for before, after in pairs)
    page = assemble(facts, pack(packed, precision)).encode()
    with atomic_write(output) as file:
        file.write(page)
    return len(page), cost


def page_facts(
    saved: Checkpoint,
    precision: PagePrecision,
    cost: PackingCost | None,
    metrics: list[dict],
    links: Links = NOWHERE,
    passages: Sequence[tuple[str, str]] = (),
    words: Sequence[str] = (),
    data: str | Path = "",
) -> dict:
    """Return the facts in the page, besides the weights, which are rounded already."""
    config = saved.model_config
    known = all(c in saved.characters for c in START)
    measured = asdict(cost) | {"text": title(cost.text)} if cost else None
    return {
        "config": with_derived(config),
        "characters": saved.characters,
        "proof": in_base64(proof_of(saved.build_numpy().logits, config)),
        "nearest": nearest_known(saved.tokenizer),
        "layout": stored_shapes(config),
        "precision": precision,
        "exact": True,
        "start": START if known else "",
        "sampling": asdict(DEFAULT_SAMPLING),
        "seed": SEED,
        "parameters": count_parameters(config),
        "corpus": title(saved.corpus_name),
        "progress": {
            "step": saved.progress.step,
            "tokens": saved.progress.tokens,
            "seconds": saved.progress.seconds,
            "val_loss": saved.progress.val_loss,
        },
        "cost": measured,
        "curve": curve(metrics),
        "links": asdict(links),
        "passages": passages,
        "words": " ".join(words),
        "teaching": _teaching_or_note(data, config),
    }


def with_derived(config: ModelConfig) -> dict:
    """Return the options of a model, and the values that the page needs derived from them."""
    derived = ("head_size", "hidden_size", "is_gated")
    return asdict(config) | {name: getattr(config, name) for name in derived}


def _teaching_or_note(data: str | Path, config: ModelConfig) -> dict | None:
    """Return the facts for training in a page; None and a note where its scripts can't do that."""
    try:
        return teaching_facts(data, config)
    except OtherFunction as why:
        note(f"the page has no lesson: {why}")
        return None


def can_be_tuned(config: ModelConfig) -> bool:
    """Return whether the scripts train such a model, with whose weights a lesson can begin."""
    try:
        require_learned(replace(config, dropout=0.0), "LEARNED_MODELS", "engine/gradients.js")
    except OtherFunction:
        return False
    return True


def teaching_facts(data: str | Path, own: ModelConfig = MINI.model) -> dict:
    """Return the facts for training in a page, with the sample text of `data` if there is one.

    `own` is the page's own model, which a lesson goes on with where the scripts can train it.
    Raises OtherFunction where the page's scripts don't train `mini` as the library does.
    """
    train = replace(MINI.train, look_ahead=0)
    require_learned(MINI.model, "LEARNED_MODELS", "engine/gradients.js")
    require_learned(train, "LEARNED_OPTIONS", "engine/train.js")
    require_learned(TUNING, "LEARNED_OPTIONS", "engine/train.js")
    sample = Path(data) / SAMPLE
    text = zlib.compress(sample.read_bytes(), 9) if sample.is_file() else b""
    return {
        "models": [with_derived(MINI.model), with_derived(SMALLER)],
        "train": asdict(train),
        "tuning": asdict(TUNING) if can_be_tuned(own) else None,
        "dropout": {"most": MOST_DROPPED, "less": LESS_DROPPED},
        "scale": SCALED,
        "kernel": base64.b64encode((FOLDER / "engine" / "kernel.wasm").read_bytes()).decode(),
        "text": text_rules(),
        "recorded": json.loads((UI / "lesson.json").read_text(encoding="utf-8")),
        "sample_name": SAMPLE_NAME,
        "sample": base64.b64encode(text).decode(),
    }


def require_learned(config: ModelConfig | TrainConfig, table: str, module: str) -> None:
    """Raise OtherFunction for an option that a table in a script does not have with its value."""
    known = scripts.table(table, module)
    for option, value in asdict(config).items():
        values = known.get(option, [])
        if values is not None and value not in values:
            raise OtherFunction(
                f"page/{module} does not learn with --{option} {value}, which the "
                "preset mini has; change the preset, or that file"
            )


def text_rules() -> dict:
    """Return the tables of clean.py as the page's script reads them."""

    def in_javascript(pattern: str) -> str:
        named = pattern.replace("(?P<", "(?<")
        return re.sub(r"\\U000([0-9a-f]{5})", r"\\u{\1}", named)

    def of_bytes(table: dict[bytes, str]) -> list[tuple[str, str]]:
        return [(begin.decode("latin-1"), what) for begin, what in table.items()]

    odd = SUSPICIOUS | {name: sequence for name, (_, sequence) in SEQUENCES.items()}
    return {
        "signatures": of_bytes(SIGNATURES),
        "marks": of_bytes(BYTE_ORDER_MARKS),
        "e_book": E_BOOK,
        "web_page": A_WEB_PAGE,
        "web_page_begins": in_javascript(WEB_PAGE.pattern),
        "suspicious": [(name, in_javascript(x)) for name, x in odd.items()],
        "gutenberg": in_javascript(GUTENBERG.pattern),
    }


def title(corpus: str) -> str:
    """Return the title of a text."""
    return TITLES.get(corpus, corpus)


def nearest_known(tokenizer: CharTokenizer) -> dict[str, str]:
    """Return the nearest known characters for unknown ones of ours and similar scripts."""
    ranges = (range(1, 0x3000), range(0xFB00, 0xFB07), range(0xFF00, 0xFFF0))
    unknown = {chr(code) for codes in ranges for code in codes} - set(tokenizer.characters)
    composed = (c for c in sorted(unknown) if unicodedata.normalize("NFC", c) == c)
    found = ((c, tokenizer.nearest(c)) for c in composed)
    return {c: near for c, near in found if near is not None}


def curve(metrics: list[dict]) -> list[tuple[float, float | None, float | None]]:
    """Return (step, training loss, validation loss) of at most 200 lines, every evaluation kept."""
    stride = max(1, len(metrics) // 200)
    return [
        (line["step"], line.get("train_loss"), line.get("val_loss"))
        for number, line in enumerate(metrics)
        if number % stride == 0 or line.get("val_loss") is not None
    ]


def style_of(parts: Sequence[str]) -> str:
    """Return parts of the style sheet as one."""
    return "".join((UI / "style" / f"{part}.css").read_text(encoding="utf-8") for part in parts)


def assemble(facts: dict, weights: str) -> str:
    """Return the page: the skeleton with everything in its place."""
    engine, script = scripts.of_page()
    style = style_of(STYLE)
    policy = (
        f"default-src 'none'; script-src {_hash(engine)} {_hash(script)} 'wasm-unsafe-eval'; "
        f"worker-src blob:; style-src {_hash(style)} {_hash(WITHOUT_SCRIPT)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    strings = json.loads((UI / "strings.json").read_text(encoding="utf-8"))
    # A < that is written as \\u003c neither ends the script nor opens a comment.
    data = json.dumps(facts | {"strings": strings}, allow_nan=False, separators=(",", ":"))
    parts = {
        "policy": html.escape(policy, quote=False),
        "preview": PREVIEW.format(**facts["links"]) if facts["links"]["page"] else "",
        "style": style,
        "without_script": WITHOUT_SCRIPT,
        "no_script": html.escape(strings["no_script"][1]),
        "facts": data.replace("<", "\\u003c"),
        "weights": weights,
        "engine": engine,
        "script": script,
    }
    skeleton = (UI / "skeleton.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], in_spanish(skeleton, strings))


def taken_apart(page: str) -> tuple[dict, str]:
    """Return the facts and the weights of a page that was made before."""
    facts, weights = (
        page.partition(f'id="{name}">')[2].partition("</script>")[0]
        for name in ("facts", "weights")
    )
    return json.loads(facts), weights


def relinked(page: str, links: Links) -> str:
    """Return a page that was made before, leading elsewhere."""
    facts, weights = taken_apart(page)
    return assemble(facts | {"links": asdict(links)}, weights)


def in_spanish(skeleton: str, strings: dict[str, list[str]]) -> str:
    """Return the skeleton with its texts and labels as they are without scripts."""

    def escaped(text: str) -> str:
        return html.escape(re.sub(r"\{(name|Name|whose)\}", "Sancho", text))

    spanish = {key: escaped(text) for key, (text, _) in strings.items()}

    def with_text(mark: re.Match) -> str:
        return f"{mark[0]}{spanish[mark[1]]}"

    def with_label(mark: re.Match) -> str:
        return f'{mark[0]} aria-label="{spanish[mark[1]]}"'

    skeleton = re.sub(r'data-text="(\w+)">', with_text, skeleton)
    return re.sub(r'data-label="(\w+)"', with_label, skeleton)


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    in_base64 = base64.b64encode(digest).decode()
    return f"'sha256-{in_base64}'"


def _check_output(path: Path) -> None:
    """Raise UserError unless a page can be written to `path`: a new file, or over an older page."""
    if path.is_symlink() or not path.exists():
        check_new(path)
        return
    with open(existing_file(path, "--output"), "rb") as file:
        if MARK not in file.read(4096):
            raise UserError(f"{path} is there and is no page of sancho-mini; choose another name")
