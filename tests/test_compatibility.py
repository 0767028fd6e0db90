"""A checkpoint that was written once still loads, writes and goes on: what is promised of files."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from architectures import ReadByTorch
from conftest import CPU
from golden.writing import assert_writes

from sancho import checkpoint
from sancho.config import DeviceConfig
from sancho.run.state import TrainingState
from sancho.text.corpus import Corpus
from sancho.training import fit

SENTENCE = (
    "En un lugar de la Mancha, de cuyo nombre no quiero acordarme,\n"
    "no ha mucho tiempo que vivía un hidalgo de los de lanza en astillero.\n"
)
# What it draws at temperature 2, by the seed 1605.
DRAWN = (
    "En un lugar de de loss de lanza en un hidaluchha,rlyo de cosEyo yostilllga ero.\n"
    "yo idn acorvíar de  quipiera u la mpo tiempgo qe viv"
)
# The losses of the steps that came next with the program that wrote it.
LOSSES = {301: 0.092295, 302: 0.130382, 303: 0.130507}


@pytest.fixture
def kept() -> checkpoint.Checkpoint:
    return checkpoint.load(Path(__file__).with_name(f"format-{checkpoint.VERSION}.safetensors"))


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(("temperature", "text"), [(0.0, SENTENCE), (2.0, DRAWN)])
def test_it_writes_the_same_text(kept, library, temperature, text):
    model = kept.build_numpy() if library == "numpy" else ReadByTorch(kept.build_model())
    start = "En un lugar"
    text = text.removeprefix(start)
    assert_writes(model, kept.tokenizer, start, temperature, 1605, text)


def test_its_run_goes_on_where_it_was(kept):
    assert kept.device_config == DeviceConfig(device="cpu")
    assert (kept.train_config.preset, kept.train_config.tensorboard) == ("mini", True)
    ids = kept.tokenizer.encode(SENTENCE * 10)
    corpus = Corpus("a text", kept.tokenizer, ids[:-100], ids[-100:], kept.corpus_sha256)
    config = replace(kept.train_config, max_iters=600, log_interval=1, threads=1)
    state = TrainingState.restore(kept, config, CPU)
    reports = itertools.islice(fit(state, corpus), len(LOSSES))
    found = {report.step: report.train_loss for report in reports}
    assert found == pytest.approx(LOSSES, abs=1e-4)
