"""Checkpoints of every format that was ever released still load, write and go on."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import CPU

from sancho import checkpoint
from sancho.config import RunConfig, SampleConfig
from sancho.corpus import Corpus
from sancho.generate import continue_text
from sancho.training import TrainingState, fit

pytestmark = pytest.mark.usefixtures("one_thread")

FOLDER = Path(__file__).resolve().parent
START = "En un lugar"
SENTENCE = (
    "En un lugar de la Mancha, de cuyo nombre no quiero acordarme,\n"
    "no ha mucho tiempo que vivía un hidalgo de los de lanza en astillero.\n"
)
# At temperature 2, by the seed 1605.
DRAWN = (
    "En un lugar de cuyo nombre rqu empopo Eno hmde,\n"
    "ayosoycrc cugutezago nopo \n"
    "arza un hipo mutzo da,o  en.tiin lghaihombre no En qg ue"
)
# Of the steps that came next with the program that wrote the checkpoint.
LOSSES = {301: 0.118633, 302: 0.161160, 303: 0.142592}

all_formats = pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("format-*.safetensors")), ids=lambda path: path.name
)


def test_the_format_of_today_is_kept_here():
    assert (FOLDER / f"format-{checkpoint.VERSION}.safetensors").is_file()


@all_formats
@pytest.mark.parametrize("precision", ["numpy float32", "torch float64"])
@pytest.mark.parametrize(("temperature", "text"), [(0, SENTENCE), (2.0, DRAWN)])
def test_an_old_checkpoint_writes_the_same_text(path, precision, temperature, text):
    saved, config = checkpoint.load(path), SampleConfig(temperature=temperature)
    model = saved.build_numpy() if "numpy" in precision else saved.build_model().double()
    options = {"max_new_tokens": len(text) - len(START), "seed": 1605}
    prompt = saved.tokenizer.encode(START)
    pieces = continue_text(model, saved.tokenizer, prompt, config, **options)
    assert START + "".join(pieces) == text


@all_formats
def test_an_old_run_goes_on_where_it_was(path):
    saved = checkpoint.load(path)
    assert saved.run == RunConfig()  # which it did not keep
    ids = saved.tokenizer.encode(SENTENCE * 10)
    corpus = Corpus("a text", saved.tokenizer, ids[:-100], ids[-100:], saved.corpus_sha256)
    config = replace(saved.train, max_iters=600, log_interval=1, threads=1)
    state = TrainingState.restore(saved, config, CPU)
    reports = itertools.islice(fit(state, corpus, CPU), len(LOSSES))
    found = {report.step: report.train_loss for report in reports}
    assert found == pytest.approx(LOSSES, abs=1e-4)
