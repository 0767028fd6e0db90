"""Checkpoints of every format that was ever released still load, write and go on."""

from dataclasses import replace
from pathlib import Path

import pytest

from sancho import checkpoint
from sancho.config import DeviceConfig, SampleConfig
from sancho.device import choose_device
from sancho.generate import continue_text
from sancho.training import TrainingState

pytestmark = pytest.mark.usefixtures("one_thread")

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
    for model in (saved.build_plain(), saved.build_model(), saved.build_model().double()):
        pieces = continue_text(
            model,
            saved.tokenizer,
            prompt,
            SampleConfig(temperature=0),
            max_new_tokens=len(SENTENCE) - len("En un lugar"),
        )
        assert "En un lugar" + "".join(pieces) == SENTENCE


@pytest.mark.parametrize("path", sorted(FOLDER.glob("format-*.safetensors")), ids=lambda p: p.name)
def test_an_old_run_goes_on(path):
    saved = checkpoint.load(path)
    device = choose_device(DeviceConfig(device="cpu"))
    state = TrainingState.restore(saved, replace(saved.train, max_iters=301), device)
    assert state.progress.step == 300
    assert not state.is_done
