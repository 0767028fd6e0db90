"""Long runs: memory stays what it is."""

import itertools
import json
import os
import sys
from dataclasses import replace

import numpy as np
import pytest
from conftest import CPU, TEXT, prepared
from runs import corpus_of

from sancho.config import TrainConfig
from sancho.corpus import open_prepared
from sancho.generate import generate
from sancho.model import GPT
from sancho.numpy_model import NumpyGPT
from sancho.presets import PRESETS
from sancho.training import TrainingState, fit

pytestmark = pytest.mark.slow
linux = pytest.mark.skipif(sys.platform != "linux", reason="here: there is no /proc")


def megabytes() -> float:
    """Return what this process holds that is no file's, which the system can drop and read anew."""
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = (line for line in file if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024 / 1e6


@linux
@pytest.mark.parametrize("preset", ["mini", "classic"])
def test_twenty_thousand_steps_hold_their_memory(preset):
    corpus = corpus_of(TEXT)
    shape = {"n_layer": 1, "n_head": 1, "n_embd": 8, "block_size": 8, "ngram_rows": 64}
    shape |= {"vocab_size": corpus.tokenizer.vocab_size, "dropout": 0.1}
    options = {"max_iters": 20_000, "batch_size": 1, "eval_interval": 500, "log_interval": 50}
    model = replace(PRESETS[preset].model, **shape)
    config = replace(PRESETS[preset].train, **options)
    state = TrainingState.start(model, config, CPU, corpus.train)
    reports = (report for report in fit(state, corpus, CPU) if report.evaluated is None)
    held = [megabytes() for report in reports if report.step % 2_000 == 0]
    assert len(held) == 10
    assert held[-1] - held[0] < 5, held


@linux
def test_a_gigabyte_of_text_is_trained_on_where_it_lies(tmp_path):
    """The files are as large as that of a text of 1.1 GB, and take no room on the disk."""
    folder, length = tmp_path / "large", 1_000_000_000
    prepared("En un lugar de la Mancha\n" * 50, folder)
    for name, size in (("train.bin", length), ("val.bin", length // 10)):
        os.truncate(folder / name, size)
    meta = json.loads((folder / "meta.json").read_text("utf-8"))
    meta |= {"n_train": length, "n_val": length // 10}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")

    corpus = open_prepared(folder)
    shape = {"n_layer": 1, "n_head": 1, "n_embd": 8, "ngram_rows": 64}
    model = replace(PRESETS["mini"].model, vocab_size=corpus.tokenizer.vocab_size, **shape)
    config = TrainConfig(max_iters=600, batch_size=64, eval_interval=300, log_interval=50)
    state = TrainingState.start(model, config, CPU, corpus.train)
    reports = (report for report in fit(state, corpus, CPU) if report.evaluated is None)
    held = [megabytes() for report in reports if report.step % 50 == 0]
    assert len(held) == 12
    assert max(held[1:]) - held[0] < 20, held
    assert max(held) < 1000


@linux
def test_a_hundred_thousand_characters_are_written_in_one_memory():
    shape = {"n_layer": 2, "n_embd": 32, "block_size": 64, "ngram_rows": 512}
    config, held = replace(PRESETS["mini"].model, **shape), []
    model = NumpyGPT(config, GPT(config).arrays())
    characters = generate(model, np.array([1]), max_new_tokens=100_000)
    for _ in range(50):
        assert sum(1 for _ in itertools.islice(characters, 2_000)) == 2_000
        held.append(megabytes())
    assert next(characters, None) is None
    assert held[-1] - held[1] < 5, held
