"""What sancho/pretrained/README.md says of the pretrained model, computed anew."""

import re
from dataclasses import replace

import numpy as np
import pytest
import safetensors
from conftest import ROOT, parse_train, succeed

from sample import SampleOptions
from sancho import checkpoint
from sancho.checkpoint import PRETRAINED, Checkpoint
from sancho.config import SampleConfig
from sancho.generate import continue_texts
from sancho.loss import validation_loss
from sancho.pretrained import make
from sancho.run.plan import shape_options
from sancho.text import sources
from sancho.text.corpus import Corpus

PAGE = (PRETRAINED.parent / "README.md").read_text(encoding="utf-8")


def stated() -> list[float]:
    """Return the first number of each row in the page's first table, whatever it is called."""
    table = PAGE[PAGE.index("|---") :].partition("\n\n")[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")]
    figures = [re.search(r"\d[\d,]*(?:\.\d+)?", row) for row in rows]
    return [float(figure[0].replace(",", "")) for figure in figures if figure]


def is_stated(figure: float, abs: float) -> bool:
    return any(figure == pytest.approx(other, abs=abs) for other in stated())


@pytest.fixture(scope="module")
def box() -> Checkpoint:
    return checkpoint.pretrained()


def test_it_is_small_and_in_half_precision():
    size = PRETRAINED.stat().st_size
    assert size <= 4_500_000 and size in stated()
    with safetensors.safe_open(PRETRAINED, "numpy") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {np.dtype("float16")}  # noqa: SIM118


def test_it_is_a_plain_gpt_with_the_losses_that_are_stated(box):
    assert (box.model_config.ngram_size, box.model_config.embedding_skip) == (1, False)
    assert sum(array.size for array in box.weights.values()) in stated()
    assert box.progress.step in stated()
    assert box.corpus_sha256 in PAGE
    assert is_stated(box.progress.val_loss, abs=5e-5)


def loss_on(box: Checkpoint, text: Corpus) -> float:
    """Return the loss on the last tenth of a text."""
    ids = box.tokenizer.encode(text.tokenizer.decode(np.asarray(text.val)))
    return validation_loss(box.build_model(), ids)


@pytest.mark.slow
def test_its_loss_on_the_sample_text(box):
    found = loss_on(box, sources.corpus_of(ROOT / "data" / "apocrifo.txt"))
    assert is_stated(found, abs=1e-3)


@pytest.mark.slow
def test_its_loss_on_the_book(box, book):
    text = sources.corpus_of(book)
    found = loss_on(box, text)
    assert (text.sha256, text.lengths) == (box.corpus_sha256, box.corpus_lengths)
    assert is_stated(found, abs=2e-4)


def text_of(box: Checkpoint, start: str, **options) -> str:
    """Return a text that the model goes on with, as a page shows it."""
    prompt = box.tokenizer.encode(start)
    (text,) = continue_texts(box.build_numpy(), box.tokenizer, prompt, **options)
    return f"```text\n{start}{text}\n```"


def test_its_greedy_text(box):
    greedy = SampleConfig(temperature=0)
    assert text_of(box, "En un lugar de la Mancha", config=greedy, max_new_tokens=200) in PAGE


@pytest.mark.parametrize("name", ["docs/options.md", "docs/es/opciones.md"])
def test_the_first_page_that_it_writes(box, name):
    told = (ROOT / name).read_text(encoding="utf-8")
    asked = re.findall(r'--start "(.+)" --max_new_tokens (\d+)$', told, re.MULTILINE)
    start, length = asked[-1]  # in the last section
    seed = SampleOptions().seed
    assert text_of(box, start, max_new_tokens=int(length), seed=seed) in told


def test_a_run_can_begin_with_it(project, box):
    line = "--corpus tiny --max_iters 1 --batch_size 1 --device cpu --out_dir new --init_from"
    succeed("train.py", *line.split(), "pretrained")
    tuned = checkpoint.load(project / "new" / "best.safetensors")
    assert tuned.characters == box.characters
    assert tuned.model_config == replace(box.model_config, dropout=0.0)  # in so short a run


# --- how it was made ------------------------------------------------------------------------


def test_train_understands_the_runs_that_made_it(box):
    plans = [parse_train(make.options_of(run, PRETRAINED)) for run in make.RUNS]
    for model, _ in plans:
        assert shape_options(model) == shape_options(box.model_config)
    assert plans[0][1] == box.train_config  # it keeps those of its first run
    assert sum(train.max_iters for _, train in plans) == box.progress.step
