"""Checkpoints of every format that was ever released still load, write and go on."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import CPU

from sancho import checkpoint
from sancho.config import RunConfig, SampleConfig
from sancho.corpus import Corpus
from sancho.generate import continue_texts
from sancho.training import TrainingState, fit

FOLDER = Path(__file__).resolve().parent
START = "En un lugar"
SENTENCE = (
    "En un lugar de la Mancha, de cuyo nombre no quiero acordarme,\n"
    "no ha mucho tiempo que vivía un hidalgo de los de lanza en astillero.\n"
)
# Of each: its run; what it draws at temperature 2, by the seed 1605; and the losses of the steps
# that came next with the program that wrote the checkpoint.
FORMATS = {
    "format-2": (
        RunConfig(),  # which it did not keep
        "En un lugar de cuyo nombre rqu empopo Eno hmde,\n"
        "ayosoycrc cugutezago nopo \n"
        "arza un hipo mutzo da,o  en.tiin lghaihombre no En qg ue",
        {301: 0.118633, 302: 0.161160, 303: 0.142592},
    ),
    "format-3": (
        RunConfig(device="cpu", compile=False, preset="mini", tensorboard=True),
        "En un lugar de de loss de lanza en un hidaluchha,rlyo de cosEyo yostilllga ero.\n"
        "yo idn acorvíar de  quipiera u la mpo tiempgo qe viv",
        {301: 0.092295, 302: 0.130382, 303: 0.130507},
    ),
}
all_formats = pytest.mark.parametrize("name", FORMATS)


def kept(name: str) -> checkpoint.Checkpoint:
    return checkpoint.load(FOLDER / f"{name}.safetensors")


def test_the_format_of_today_is_kept_here():
    assert {path.stem for path in FOLDER.glob("format-*")} == FORMATS.keys()
    assert f"format-{checkpoint.VERSION}" in FORMATS


@all_formats
@pytest.mark.parametrize("precision", ["numpy float32", "torch float64"])
@pytest.mark.parametrize("temperature", [0, 2.0])
def test_an_old_checkpoint_writes_the_same_text(name, precision, temperature):
    saved, config = kept(name), SampleConfig(temperature=temperature)
    text = FORMATS[name][1] if temperature else SENTENCE
    model = saved.build_numpy() if "numpy" in precision else saved.build_model().double()
    options = {"max_new_tokens": len(text) - len(START), "seed": 1605}
    prompt = saved.tokenizer.encode(START)
    assert continue_texts(model, saved.tokenizer, prompt, config, **options) == [text[len(START) :]]


@all_formats
def test_an_old_run_goes_on_where_it_was(name):
    saved, (run, _, losses) = kept(name), FORMATS[name]
    assert saved.run == run
    ids = saved.tokenizer.encode(SENTENCE * 10)
    corpus = Corpus("a text", saved.tokenizer, ids[:-100], ids[-100:], saved.corpus_sha256)
    config = replace(saved.train, max_iters=600, log_interval=1, threads=1)
    state = TrainingState.restore(saved, config, CPU)
    reports = itertools.islice(fit(state, corpus, CPU), len(losses))
    found = {report.step: report.train_loss for report in reports}
    assert found == pytest.approx(losses, abs=1e-4)
