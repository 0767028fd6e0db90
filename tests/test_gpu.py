"""A CUDA GPU does what the CPU does. Without one all of this is skipped.

More: test_training.py (compiled runs too), test_model.py, test_optim.py, test_device.py.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import CPU, TEXT, random_gpt
from runs import (
    GPU,
    GPUS,
    SHAPE,
    bits_of,
    corpus_of,
    losses_of,
    needs_gpu,
    resume,
    run,
    save,
    start_preset,
    tolerance,
)

from sancho.config import SampleConfig
from sancho.corpus import Corpus
from sancho.generate import generate, incremental_decoder
from sancho.model import CachedDecoder
from sancho.presets import PRESETS
from sancho.training import Batches, NonFiniteLoss, fit

pytestmark = [needs_gpu, pytest.mark.usefixtures("exact_products")]
presets = pytest.mark.parametrize("preset", sorted(PRESETS))


@pytest.fixture(scope="module")
def exact_products() -> None:
    """Products of float32 in float32 and not in fewer bits, as "auto" would have them."""
    torch.set_float32_matmul_precision("highest")


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return corpus_of(TEXT)


# --- training -------------------------------------------------------------------------------


@presets
def test_a_run_begins_with_the_weights_that_it_has_on_a_cpu(corpus, preset):
    ours, theirs = (start_preset(corpus, preset, device=device) for device in (GPU, CPU))
    assert bits_of(ours) == bits_of(theirs)


def test_a_text_of_many_characters_is_cut_into_the_windows_of_the_cpu():
    config = PRESETS["mini"].train
    for ids in (np.arange(256, dtype=np.uint8), np.arange(65536, dtype="<u2")):
        ours, theirs = (Batches(ids, 8, config, device.torch_device) for device in (GPU, CPU))
        for place in ((0, 0), (3, 1)):
            for here, there in zip(ours.get(*place), theirs.get(*place), strict=True):
                assert here.device.type == "cuda"
                assert torch.equal(here.cpu(), there)


def test_losses_are_read_in_one_copy(corpus):
    state = start_preset(corpus, "base", device=GPU)
    state.unread_losses = list(torch.arange(8.0, device=GPU.torch_device))
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with pytest.warns(UserWarning, match="called a synchronizing") as caught:
            state.sync_losses()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(caught) == 1
    assert state.progress.recent_losses == list(range(8))


def test_between_two_reports_no_loss_is_read(corpus):
    """To read one makes the GPU wait."""
    state = start_preset(corpus, "base", device=GPU, log_interval=4, eval_interval=100)
    for report in fit(state, corpus, GPU):
        assert len(state.unread_losses) == report.step % 4


def test_a_bad_loss_is_found_at_the_next_report_and_named_by_its_step(corpus):
    state = start_preset(corpus, "base", device=GPU, log_interval=8, eval_interval=100)
    told = []
    with pytest.raises(NonFiniteLoss, match="at step 4;"):
        for report in fit(state, corpus, GPU):
            told.append(report.step)
            if report.step == 3:
                with torch.no_grad():
                    state.model.head.weight[0, 0] = float("nan")
    assert told == list(range(1, 8))


@pytest.mark.parametrize(("first", "second"), [(GPU, CPU), (CPU, GPU)], ids=str)
@presets
def test_a_run_goes_on_elsewhere(tmp_path, corpus, preset, first, second):
    expected = losses_of(run(start_preset(corpus, preset, 0.0), corpus))
    state = start_preset(corpus, preset, 0.0, first)
    seen = run(state, corpus, 4, first)
    state = resume(save(tmp_path / "x", state, corpus), second)
    found = losses_of(seen + run(state, corpus, device=second))
    assert found == pytest.approx(expected, abs=tolerance(GPU))


# --- evaluating and writing -----------------------------------------------------------------


@pytest.mark.parametrize("device", GPUS, ids=str)
@presets
def test_a_decoder_predicts_what_the_cpu_predicts(preset, device):
    model = random_gpt(replace(PRESETS[preset].model, **SHAPE))
    ids = torch.randint(model.config.vocab_size, (3, 8), generator=torch.Generator().manual_seed(1))
    pieces = [piece.numpy() for piece in ids.split([3, 1, 1, 2, 1], dim=1)]
    decoder = incremental_decoder(model, 3)
    expected = [decoder.read(piece) for piece in pieces]
    with device.autocast():
        decoder = incremental_decoder(model.to(device.torch_device), 3)
        assert isinstance(decoder, CachedDecoder)
        for _ in range(2):
            found = [decoder.read(piece) for piece in pieces]
            decoder.restart()
    scale = np.abs(expected).max()
    near = {torch.float32: 1e-4, torch.bfloat16: 0.05}[device.dtype]
    assert {logits.dtype for logits in found} == {np.dtype("f4")}
    np.testing.assert_allclose(found, expected, rtol=0, atol=near * scale)


@presets
def test_a_model_writes_what_it_writes_on_a_cpu(preset):
    """Beyond the length of its block, two texts side by side."""
    model = random_gpt(replace(PRESETS[preset].model, **SHAPE))
    options = {"max_new_tokens": 40, "seed": 7, "samples": (0, 3)}
    prompt = np.array([5, 6, 7])
    for config in (SampleConfig(temperature=0), SampleConfig()):
        expected = list(generate(model.to(CPU.torch_device), prompt, config, **options))
        assert list(generate(model.to(GPU.torch_device), prompt, config, **options)) == expected
