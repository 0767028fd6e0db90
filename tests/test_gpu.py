"""A CUDA GPU does what the CPU does. Without one all of this is skipped."""

import importlib.util
import io
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import random_gpt

from sancho import checkpoint
from sancho.config import SampleConfig
from sancho.corpus import Corpus, prepare
from sancho.generate import generate
from sancho.machine.device import Device, has_bfloat16
from sancho.model import CachedDecoder
from sancho.presets import PRESETS
from sancho.training import Batches, NonFiniteLoss, TrainingState, fit

has_gpu = torch.cuda.is_available()
pytestmark = [
    pytest.mark.skipif(not has_gpu, reason="there is no CUDA GPU"),
    pytest.mark.usefixtures("one_thread", "exact_products"),
]
TEXT = "En un lugar de la Mancha, de cuyo nombre no quiero acordarme, no ha mucho tiempo.\n" * 30
CPU = Device(torch.device("cpu"), torch.float32)
GPU = Device(torch.device("cuda"), torch.float32)
GPU_BFLOAT16 = replace(GPU, dtype=torch.bfloat16)
SHAPE = {"block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 16, "ngram_rows": 64}
presets = pytest.mark.parametrize("preset", sorted(PRESETS))
# How far a loss between 3 and 4 may be from the CPU's in float32.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.02}
needs_bfloat16 = pytest.mark.skipif(
    has_gpu and not has_bfloat16(), reason="the GPU does not compute in bfloat16"
)
devices = pytest.mark.parametrize(
    "device", [GPU, pytest.param(GPU_BFLOAT16, marks=needs_bfloat16)], ids=str
)


@pytest.fixture(scope="module")
def exact_products() -> Iterator[None]:
    """Products of float32 in float32 and not in fewer bits, as choose_device would have them."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    folder = tmp_path_factory.mktemp("data") / "tiny"
    return prepare([("tiny", io.BytesIO(TEXT.encode()))], folder, "a test")


def start(
    corpus: Corpus, preset: str, device: Device, dropout: float = 0.0, **options
) -> TrainingState:
    """Return a new run of a preset, but small and short."""
    short = {"max_iters": 12, "batch_size": 4, "gradient_accumulation_steps": 2}
    short |= {"warmup_iters": 3, "eval_interval": 5, "log_interval": 1}
    rates = {"dropout": dropout, "ngram_dropout": dropout}
    vocab_size = corpus.tokenizer.vocab_size
    model = replace(PRESETS[preset].model, vocab_size=vocab_size, **SHAPE, **rates)
    return TrainingState.start(model, replace(PRESETS[preset].train, **(short | options)), device)


def losses(
    state: TrainingState, corpus: Corpus, device: Device, steps: int = 12, **options
) -> list[float]:
    """Train until `steps` steps are done; return the losses, those of evaluations too."""
    found = []
    for report in fit(state, corpus, device, **options):
        found += [loss for loss in (report.train_loss, report.val_loss) if loss is not None]
        if report.step == steps:
            break
    return found


# --- training -------------------------------------------------------------------------------


@presets
def test_a_run_begins_with_the_weights_that_it_has_on_a_cpu(corpus, preset):
    ours, theirs = (start(corpus, preset, device).model.arrays() for device in (GPU, CPU))
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


@devices
@presets
def test_training_and_evaluation_give_the_losses_of_the_cpu(corpus, preset, device):
    state = start(corpus, preset, device)
    assert {p.device.type for p in state.model.parameters()} == {device.where.type}
    found = losses(state, corpus, device)
    expected = losses(start(corpus, preset, CPU), corpus, CPU)
    assert len(found) == len(expected) == 12 + 3
    assert found == pytest.approx(expected, abs=TOLERANCE[device.dtype])
    assert {p.dtype for p in state.model.parameters()} == {torch.float32}


def test_a_text_of_many_characters_is_cut_into_the_windows_of_the_cpu():
    config = PRESETS["mini"].train
    for ids in (np.arange(256, dtype=np.uint8), np.arange(65536, dtype="<u2")):
        ours, theirs = (Batches(ids, 8, config, device.where) for device in (GPU, CPU))
        for place in ((0, 0), (3, 1)):
            for here, there in zip(ours.get(*place), theirs.get(*place), strict=True):
                assert here.device.type == GPU.where.type
                assert torch.equal(here.cpu(), there)


def test_between_two_reports_no_loss_is_read(corpus):
    """To read one makes the GPU wait."""
    state = start(corpus, "base", GPU, log_interval=4, eval_interval=100)
    for report in fit(state, corpus, GPU):
        assert len(state.unread_losses) == report.step % 4


def test_a_bad_loss_is_found_at_the_next_report_and_named_by_its_step(corpus):
    state = start(corpus, "base", GPU, log_interval=8, eval_interval=100)
    told = []
    with pytest.raises(NonFiniteLoss, match="at step 4;"):
        for report in fit(state, corpus, GPU):
            told.append(report.step)
            if report.step == 3:
                with torch.no_grad():
                    state.model.head.weight[0, 0] = float("nan")
    assert told == list(range(1, 8))


@pytest.mark.parametrize(
    ("first", "second", "dropout"),
    [
        (GPU, GPU, 0.2),  # drawn on the GPU
        pytest.param(GPU_BFLOAT16, GPU_BFLOAT16, 0.2, marks=needs_bfloat16),
        (GPU, CPU, 0.0),
        (CPU, GPU, 0.0),
    ],
    ids=str,
)
@presets
def test_a_run_that_is_resumed_here_or_elsewhere_is_the_same(
    tmp_path, corpus, preset, first, second, dropout
):
    expected = losses(start(corpus, preset, first, dropout), corpus, first)
    state = start(corpus, preset, first, dropout)
    found = losses(state, corpus, first, steps=7)
    checkpoint.save(tmp_path / "x", state.to_checkpoint(corpus, with_optimizer=True))
    saved = checkpoint.load(tmp_path / "x")
    found += losses(TrainingState.restore(saved, saved.train, second), corpus, second)
    # Some sums on a GPU come in any order.
    assert found == pytest.approx(expected, abs=TOLERANCE[first.dtype])


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="there is no Triton")
@devices
@presets
def test_a_compiled_run_has_the_losses_of_the_cpu(corpus, recwarn, preset, device):
    torch.compiler.reset()
    found = losses(start(corpus, preset, device), corpus, device, compile=True)
    assert [str(w.message) for w in recwarn if "going on without" in str(w.message)] == []
    expected = losses(start(corpus, preset, CPU), corpus, CPU)
    assert found == pytest.approx(expected, abs=TOLERANCE[device.dtype])
    torch.compiler.reset()


# --- evaluating and writing -----------------------------------------------------------------


@devices
@presets
def test_a_decoder_predicts_what_the_cpu_predicts(preset, device):
    model = random_gpt(replace(PRESETS[preset].model, **SHAPE))
    ids = torch.randint(model.config.vocab_size, (3, 8), generator=torch.Generator().manual_seed(1))
    pieces = [piece.numpy() for piece in ids.split([3, 1, 1, 2, 1], dim=1)]
    decoder = model.decoder(3)
    expected = [decoder.read(piece) for piece in pieces]
    with device.autocast():
        decoder = model.to(device.where).decoder(3)
        assert isinstance(decoder, CachedDecoder)
        for _ in range(2):
            found = [decoder.read(piece) for piece in pieces]
            decoder.restart()
    scale = np.abs(expected).max()
    tolerance = {torch.float32: 1e-4, torch.bfloat16: 0.05}[device.dtype]
    assert {logits.dtype for logits in found} == {np.dtype("f4")}
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


@presets
def test_a_model_writes_what_it_writes_on_a_cpu(preset):
    """Beyond the length of its block, two texts side by side."""
    model = random_gpt(replace(PRESETS[preset].model, **SHAPE))
    options = {"max_new_tokens": 40, "seed": 7, "samples": (0, 3)}
    prompt = np.array([5, 6, 7])
    for config in (SampleConfig(temperature=0), SampleConfig()):
        expected = list(generate(model.to(CPU.where), prompt, config, **options))
        assert list(generate(model.to(GPU.where), prompt, config, **options)) == expected
