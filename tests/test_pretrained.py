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

ROUNDED = "validation loss, with the weights rounded to 16 bits as they are here"
OTHER_TEXT = "loss on the validation part of `data/apocrifo.txt`, a text that it has not read"
PAGE = (PRETRAINED.parent / "README.md").read_text(encoding="utf-8")


def stated(row: str) -> float:
    """Return the first number in a row of the page's table."""
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {row} |"))
    return float(re.search(r"[\d.,]+", line.split("|")[2])[0].replace(",", ""))


@pytest.fixture(scope="module")
def box() -> Checkpoint:
    return checkpoint.pretrained()


def test_it_is_small_and_in_half_precision():
    assert PRETRAINED.stat().st_size == stated("size in bytes") <= 4_500_000
    with safetensors.safe_open(PRETRAINED, "numpy") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {np.dtype("float16")}  # noqa: SIM118


def test_it_is_a_plain_gpt_with_the_losses_that_are_stated(box):
    assert (box.model_config.ngram_size, box.model_config.embedding_skip) == (1, False)
    assert sum(array.size for array in box.weights.values()) == stated("weights")
    assert box.progress.step == stated("steps")
    assert box.corpus_sha256 in PAGE
    assert box.progress.val_loss == pytest.approx(stated("validation loss, float32"), abs=5e-5)
    assert abs(stated(ROUNDED) - box.progress.val_loss) < 0.002


def loss_on(box: Checkpoint, text: Corpus) -> float:
    """Return the loss on the last tenth of a text."""
    ids = box.tokenizer.encode(text.tokenizer.decode(np.asarray(text.val)))
    return validation_loss(box.build_model(), ids)


@pytest.mark.slow
def test_its_loss_on_the_sample_text(box):
    found = loss_on(box, sources.corpus_of(ROOT / "data" / "apocrifo.txt"))
    assert found == pytest.approx(stated(OTHER_TEXT), abs=1e-3)


@pytest.mark.slow
def test_its_loss_on_the_book(box, book):
    text = sources.corpus_of(book)
    found = loss_on(box, text)
    assert (text.sha256, text.lengths) == (box.corpus_sha256, box.corpus_lengths)
    assert found == pytest.approx(stated(ROUNDED), abs=2e-4)


def text_of(box: Checkpoint, start: str, **options) -> str:
    """Return a text that the model goes on with, as a page shows it."""
    prompt = box.tokenizer.encode(start)
    (text,) = continue_texts(box.build_numpy(), box.tokenizer, prompt, **options)
    return f"```text\n{start}{text}\n```"


def test_its_greedy_text(box):
    greedy = SampleConfig(temperature=0)
    assert text_of(box, "En un lugar de la Mancha", config=greedy, max_new_tokens=200) in PAGE


@pytest.mark.parametrize("name", ["README.md", "README.es.md"])
def test_the_first_page_that_it_writes(box, name):
    readme = (ROOT / name).read_text(encoding="utf-8")
    start, length = re.search(r'--start "(.+)" --max_new_tokens (\d+)', readme).groups()
    seed = SampleOptions().seed
    assert text_of(box, start, max_new_tokens=int(length), seed=seed) in readme


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
    assert [train.max_iters for _, train in plans] == [14_000, 4_500, 2_000, 500, 500]
