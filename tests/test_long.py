"""Long runs: memory and speed stay what they are."""

import io
import itertools
import json
import os
import statistics
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from sancho.config import PRESETS, RuntimeConfig, TrainConfig
from sancho.corpus import Corpus, load, prepare
from sancho.generate import generate
from sancho.model import GPT
from sancho.runtime import make_runtime
from sancho.training import TrainingState, fit

pytestmark = pytest.mark.slow
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def megabytes() -> float:
    """Return what this process holds in memory now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def small_corpus(tmp_path) -> Corpus:
    text = b"En un lugar de la Mancha, de cuyo nombre no quiero acordarme.\n" * 50
    return prepare([("text", io.BytesIO(text))], tmp_path / "corpus", "a test")


@linux
@pytest.mark.parametrize("preset", ["mini", "classic"])
def test_twenty_thousand_steps_hold_their_memory(tmp_path, preset):
    model, config = PRESETS[preset]
    corpus = small_corpus(tmp_path)
    shape = {"n_layer": 1, "n_head": 1, "n_embd": 8, "block_size": 8, "ngram_rows": 64}
    model = replace(model, vocab_size=corpus.tokenizer.vocab_size, dropout=0.1, **shape)
    config = replace(config, max_iters=20_000, batch_size=1, eval_interval=500, log_interval=50)
    runtime = make_runtime(RuntimeConfig(device="cpu"))
    state, held = TrainingState.start(model, config, runtime), []
    for report in fit(state, corpus, runtime):
        if report.step % 2_000 == 0:
            held.append(megabytes())
    assert len(held) == 10
    assert held[-1] - held[0] < 5, held


def megabytes_of_its_own() -> float:
    """Return what this process holds that is no file's, which the system can drop and read anew."""
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = (line for line in file if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024 / 1e6


@linux
def test_a_gigabyte_of_text_is_trained_on_where_it_lies(tmp_path):
    """The files are as large as that of a text of 1.1 GB, and take no room on the disk."""
    folder, length = tmp_path / "large", 1_000_000_000
    prepare([("text", io.BytesIO(b"En un lugar de la Mancha\n" * 50))], folder, "a test")
    for name, size in (("train.bin", length), ("val.bin", length // 10)):
        os.truncate(folder / name, size)
    meta = json.loads((folder / "meta.json").read_text("utf-8"))
    meta |= {"n_train": length, "n_val": length // 10}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")

    corpus = load(folder)
    # To evaluate on all of it takes an hour.
    corpus = replace(corpus, val=corpus.val[-200_000:])
    model = replace(PRESETS["mini"][0], vocab_size=corpus.tokenizer.vocab_size)
    model = replace(model, n_layer=1, n_head=1, n_embd=8, ngram_rows=64)
    config = TrainConfig(max_iters=600, batch_size=64, eval_interval=300, log_interval=50)
    runtime = make_runtime(RuntimeConfig(device="cpu"))
    state, held = TrainingState.start(model, config, runtime), []
    for report in fit(state, corpus, runtime):
        if report.step % 50 == 0:
            held.append(megabytes_of_its_own())
    assert len(held) == 12
    assert max(held[1:]) - held[0] < 20, held
    assert max(held) < 1000


@linux
def test_a_hundred_thousand_characters_come_at_one_speed_in_one_memory():
    model = GPT(replace(PRESETS["mini"][0], n_layer=2, n_embd=32, block_size=64, ngram_rows=512))
    stream = generate(model, np.array([1]), max_new_tokens=100_000)
    held, seconds = [], []
    for _ in range(50):
        begin = time.perf_counter()
        assert sum(1 for _ in itertools.islice(stream, 2_000)) == 2_000
        seconds.append(time.perf_counter() - begin)
        held.append(megabytes())
    assert next(stream, None) is None
    assert held[-1] - held[1] < 5, held
    # Medians of the first and the last fifth; a machine that is shared swings by a third.
    assert statistics.median(seconds[-10:]) < 1.5 * statistics.median(seconds[:10])
