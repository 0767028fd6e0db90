"""What sancho/pretrained/README.md says of the pretrained model, computed anew."""

import re
from dataclasses import replace

import numpy as np
import pytest
import safetensors
from conftest import ROOT, run

from sancho import checkpoint, corpus
from sancho.checkpoint import PRETRAINED
from sancho.config import SampleConfig, SampleOptions
from sancho.generate import continue_text
from sancho.training import validation_loss

BOOK = ROOT / "data" / "quijote"
PAGE = (PRETRAINED.parent / "README.md").read_text(encoding="utf-8")


def stated(row: str) -> float:
    """Return the first number in a row of the page's table."""
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {row} |"))
    return float(re.search(r"[\d.,]+", line.split("|")[2])[0].replace(",", ""))


@pytest.fixture(scope="module")
def box():
    return checkpoint.pretrained()


def test_it_is_small_and_in_half_precision():
    assert PRETRAINED.stat().st_size == stated("size in bytes") <= 4_500_000
    with safetensors.safe_open(PRETRAINED, "numpy") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {np.dtype("float16")}  # noqa: SIM118


def test_it_is_a_plain_gpt_with_the_losses_that_are_stated(box):
    assert (box.model.ngram_size, box.model.embedding_skip) == (1, False)
    assert sum(array.size for array in box.weights.values()) == stated("weights")
    assert box.progress.step == stated("steps")
    assert box.corpus_sha256 in PAGE
    assert box.progress.val_loss == pytest.approx(stated("validation loss, float32"), abs=5e-5)
    assert abs(stated("validation loss, as it is here") - box.progress.val_loss) < 0.002


@pytest.mark.slow
def test_its_loss_on_the_sample_text(box, tmp_path):
    text = corpus.prepare_files([ROOT / "data" / "apocrifo.txt"], tmp_path)
    ids = box.tokenizer.encode(text.tokenizer.decode(np.asarray(text.val)))
    found = validation_loss(box.build_model(), ids)
    assert found == pytest.approx(stated("loss on the last tenth of data/apocrifo.txt"), abs=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(not (BOOK / "meta.json").is_file(), reason="data/quijote is not prepared")
def test_its_loss_on_the_book(box):
    book = corpus.load(BOOK)
    assert book.sha256 == box.corpus_sha256
    found = validation_loss(box.build_model(), np.asarray(book.val))
    assert found == pytest.approx(stated("validation loss, as it is here"), abs=2e-4)


def test_its_greedy_text(box):
    start, greedy = "En un lugar de la Mancha", SampleConfig(temperature=0)
    prompt = box.tokenizer.encode(start)
    pieces = continue_text(box.build_numpy(), box.tokenizer, prompt, greedy, max_new_tokens=200)
    assert f"```text\n{start}{''.join(pieces)}\n```" in PAGE


@pytest.mark.parametrize("name", ["README.md", "README.es.md"])
def test_the_first_page_that_it_writes(box, name):
    readme = (ROOT / name).read_text(encoding="utf-8")
    length = int(re.search(r"sample\.py --max_new_tokens (\d+)", readme)[1])
    start, seed = box.tokenizer.encode(SampleOptions().start), SampleOptions().seed
    pieces = continue_text(
        box.build_numpy(), box.tokenizer, start, max_new_tokens=length, seed=seed
    )
    text = "".join(pieces)
    assert f"```text\n{text.lstrip()}\n```" in readme
    assert re.search(r"[.?!]$", text)


def test_sample_lets_it_write_where_nothing_is_trained(project):
    result = run("sample.py", "--max_new_tokens=50", "--seed=3")
    assert result.status == 0
    assert len(result.err.splitlines()) == 1
    for part in ("best.safetensors yet", "comes with the project", " train.py"):
        assert part in result.err
    again = run("sample.py", "--checkpoint", PRETRAINED, "--max_new_tokens=50", "--seed=3")
    assert (again.out, again.err) == (result.out, "")


def test_a_run_can_begin_with_it(project):
    line = "--dataset tiny --max_iters 1 --batch_size 1 --device cpu --out_dir new --init_from"
    result = run("train.py", *line.split(), "pretrained")
    assert result.status == 0, result.err
    tuned, box = checkpoint.load(project / "new" / "best.safetensors"), checkpoint.pretrained()
    assert tuned.characters == box.characters
    assert tuned.model == replace(box.model, dropout=0.0)  # in a run as short as this
