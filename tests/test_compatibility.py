"""Checkpoints of every format that was ever released still load, write and go on."""

from dataclasses import replace
from pathlib import Path

import pytest

from sancho import checkpoint
from sancho.config import DeviceConfig, SampleConfig
from sancho.generate import continue_text
from sancho.machine.device import choose_device
from sancho.training import TrainingState

pytestmark = pytest.mark.usefixtures("one_thread")

FOLDER = Path(__file__).resolve().parent
START = "En un lugar"
SENTENCE = (
    "En un lugar de la Mancha, de cuyo nombre no quiero acordarme,\n"
    "no ha mucho tiempo que vivía un hidalgo de los de lanza en astillero.\n"
)
PATHS = sorted(FOLDER.glob("format-*.safetensors"))

all_formats = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)


def test_the_format_of_today_is_kept_here():
    assert (FOLDER / f"format-{checkpoint.VERSION}.safetensors").is_file()


@all_formats
@pytest.mark.parametrize("precision", ["numpy float32", "torch float64"])
def test_an_old_checkpoint_writes_the_same_text(path, precision):
    saved, greedy = checkpoint.load(path), SampleConfig(temperature=0)
    model = saved.build_numpy() if "numpy" in precision else saved.build_model().double()
    prompt, rest = saved.tokenizer.encode(START), len(SENTENCE) - len(START)
    pieces = continue_text(model, saved.tokenizer, prompt, greedy, max_new_tokens=rest)
    assert START + "".join(pieces) == SENTENCE


@all_formats
def test_an_old_run_goes_on(path):
    saved = checkpoint.load(path)
    device = choose_device(DeviceConfig(device="cpu"))
    state = TrainingState.restore(saved, replace(saved.train, max_iters=301), device)
    assert state.progress.step == 300
    assert not state.is_done
