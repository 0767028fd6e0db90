"""Checkpoints of every format that was ever released still load, write and go on."""

from dataclasses import replace
from pathlib import Path

import pytest

from sancho import checkpoint
from sancho.config import RuntimeConfig, SampleConfig
from sancho.generate import continue_text
from sancho.runtime import make_runtime
from sancho.training import TrainingState

FOLDER = Path(__file__).resolve().parent
SENTENCE = (
    "En un lugar de la Mancha, de cuyo nombre no quiero acordarme,\n"
    "no ha mucho tiempo que vivía un hidalgo de los de lanza en astillero.\n"
)


def test_the_format_of_today_is_kept_here():
    assert (FOLDER / f"format-{checkpoint.VERSION}.safetensors").is_file()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("format-*.safetensors")), ids=lambda p: p.name)
def test_an_old_checkpoint_writes_the_same_text(path):
    saved = checkpoint.load(path)
    prompt = saved.tokenizer.encode("En un lugar")
    pieces = continue_text(
        saved.build_model(),
        saved.tokenizer,
        prompt,
        SampleConfig(temperature=0),
        max_new_tokens=len(SENTENCE) - len("En un lugar"),
    )
    assert "En un lugar" + "".join(pieces) == SENTENCE


@pytest.mark.parametrize("path", sorted(FOLDER.glob("format-*.safetensors")), ids=lambda p: p.name)
def test_an_old_run_goes_on(path):
    saved = checkpoint.load(path)
    runtime = make_runtime(RuntimeConfig(device="cpu"))
    state = TrainingState.restore(saved, replace(saved.train, max_iters=301), runtime)
    assert state.progress.step == 300
    assert not state.is_done
