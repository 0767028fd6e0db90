"""What sancho/pretrained/README.md says of the pretrained model, computed anew."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import safetensors
from conftest import ROOT, parse_train, succeed

from sample import SampleOptions
from sancho import checkpoint, corpus
from sancho.checkpoint import PRETRAINED, Checkpoint
from sancho.config import ModelConfig, SampleConfig, TrainConfig
from sancho.generate import continue_texts
from sancho.pretrained import make
from sancho.training import validation_loss

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


def loss_on(box: Checkpoint, path: Path, folder: Path) -> float:
    """Return the loss on the last tenth of a text."""
    text = corpus.prepare_files([path], folder)
    ids = box.tokenizer.encode(text.tokenizer.decode(np.asarray(text.val)))
    return validation_loss(box.build_model(), ids)


@pytest.mark.slow
def test_its_loss_on_the_sample_text(box, tmp_path):
    found = loss_on(box, ROOT / "data" / "apocrifo.txt", tmp_path)
    assert found == pytest.approx(stated("loss on the last tenth of data/apocrifo.txt"), abs=1e-3)


@pytest.mark.slow
def test_its_loss_on_the_book(box, book, tmp_path):
    found = loss_on(box, book, tmp_path)
    assert corpus.open_prepared(tmp_path).sha256 == box.corpus_sha256
    assert found == pytest.approx(stated("validation loss, as it is here"), abs=2e-4)


def test_its_greedy_text(box):
    start, greedy = "En un lugar de la Mancha", SampleConfig(temperature=0)
    prompt = box.tokenizer.encode(start)
    (text,) = continue_texts(box.build_numpy(), box.tokenizer, prompt, greedy, max_new_tokens=200)
    assert f"```text\n{start}{text}\n```" in PAGE


@pytest.mark.parametrize("name", ["README.md", "README.es.md"])
def test_the_first_page_that_it_writes(box, name):
    readme = (ROOT / name).read_text(encoding="utf-8")
    start, length = re.search(r'--start "(.+)" --max_new_tokens (\d+)', readme).groups()
    options = {"max_new_tokens": int(length), "seed": SampleOptions().seed}
    prompt = box.tokenizer.encode(start)
    (text,) = continue_texts(box.build_numpy(), box.tokenizer, prompt, **options)
    assert f"```text\n{start}{text}\n```" in readme


def test_sample_lets_it_write_where_nothing_is_trained(project):
    result = succeed("sample.py", "--max_new_tokens=50", "--seed=3")
    (line,) = result.err.splitlines()
    for part in ("best.safetensors yet", "comes with the project", " train.py"):
        assert part in line
    again = succeed("sample.py", "--checkpoint", PRETRAINED, "--max_new_tokens=50", "--seed=3")
    assert (again.out, again.err) == (result.out, "")


def test_a_run_can_begin_with_it(project, box):
    line = "--dataset tiny --max_iters 1 --batch_size 1 --device cpu --out_dir new --init_from"
    succeed("train.py", *line.split(), "pretrained")
    tuned = checkpoint.load(project / "new" / "best.safetensors")
    assert tuned.characters == box.characters
    assert tuned.model == replace(box.model, dropout=0.0)  # in a run as short as this


# --- how it was made ------------------------------------------------------------------------


def resolved(line: list[str]) -> tuple[ModelConfig, TrainConfig]:
    """Return the model and the training that train.py makes of its options."""
    options = parse_train(line)
    return options.model, options.train


def test_the_runs_that_make_it_are_those_that_made_it(box, tmp_path):
    begin = tmp_path / "begin.safetensors"
    first, train = resolved(make.options_of(make.RUNS[0], begin))
    assert train == box.train  # which keeps the options of its first run
    for name in asdict(first).keys() - {"ngram_rows", "ngram_dropout"}:  # there is no table
        assert getattr(first, name) == getattr(box.model, name), name
    checkpoint.save(begin, replace(box, model=first))
    found = [resolved(make.options_of(run, begin)) for run in make.RUNS]
    kept = json.loads((ROOT / "tests" / "pretrained_runs.json").read_text(encoding="utf-8"))
    assert [{"model": asdict(m), "train": asdict(t)} for m, t in found] == kept


def test_means_of_the_runs_begin_later_ones_and_are_saved(monkeypatch, tmp_path):
    def best(folder: Path, number: int) -> Checkpoint:
        """Return a model all of whose weights are 1, 2, 4, 8 or 16, by the run's number."""
        saved = checkpoint.load(ROOT / "tests" / "golden" / "base.safetensors")
        return replace(saved, weights={n: 0 * w + 2**number for n, w in saved.weights.items()})

    monkeypatch.setattr(make, "best", best)
    shares = [*(run.begins_with for run in make.RUNS[1:]), make.SAVED]
    means = [make.mean(tmp_path, each).weights["skips"][0] for each in shares]
    assert means == pytest.approx([1, 5 / 3, 17 / 6, 17 / 6, 161 / 18])
