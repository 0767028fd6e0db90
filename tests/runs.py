"""Small training runs in this process, on every device that there is."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import CPU

from sancho import checkpoint
from sancho.config import ModelConfig, TrainConfig
from sancho.machine.device import Device, has_bfloat16
from sancho.optim import optimizer_arrays
from sancho.presets import PRESETS
from sancho.run.report import Report
from sancho.run.state import TrainingState
from sancho.text.corpus import Corpus
from sancho.tokenizer import CharTokenizer
from sancho.training import fit

slow = pytest.mark.slow
CPU_BFLOAT16 = replace(CPU, dtype=torch.bfloat16)
GPU = Device(torch.device("cuda"), torch.float32)
GPU_BFLOAT16 = replace(GPU, dtype=torch.bfloat16)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="here: there is no GPU")
needs_bfloat16 = pytest.mark.skipif(
    not (torch.cuda.is_available() and has_bfloat16("cuda")),
    reason="here: there is no GPU with bfloat16",
)
GPUS = [
    pytest.param(GPU, marks=needs_gpu, id=str(GPU)),
    pytest.param(GPU_BFLOAT16, marks=needs_bfloat16, id=str(GPU_BFLOAT16)),
]
ALL_PRESETS = [pytest.param(name, marks=() if name == "mini" else slow) for name in PRESETS]
# How far a loss between 3 and 4 may be from that of a CPU in float32: on a CPU, on a GPU.
TOLERANCE = {torch.float32: (1e-4, 1e-3), torch.bfloat16: (0.01, 0.02)}
SHAPE = {"block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 16, "ngram_rows": 64}
TOKENS_PER_STEP = 8 * 4


def corpus_of(text: str) -> Corpus:
    tokenizer = CharTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    cut = len(ids) - int(len(ids) * 0.1)
    return Corpus("hand-made", tokenizer, ids[:cut], ids[cut:], "0" * 64)


def train_config(**options) -> TrainConfig:
    defaults = {"max_iters": 8, "batch_size": 4, "warmup_iters": 3, "look_ahead": 0}
    return TrainConfig(**defaults | options)


def start(
    corpus: Corpus, config: TrainConfig, device: Device = CPU, **model_options
) -> TrainingState:
    model = ModelConfig(**SHAPE | {"vocab_size": corpus.tokenizer.vocab_size} | model_options)
    return TrainingState.start(model, config, device, corpus.train)


def start_preset(
    corpus: Corpus, preset: str, dropout: float = 0.2, device: Device = CPU, **train_options
) -> TrainingState:
    """Return a new run like that of a preset, but small, and with dropout and parts of a step."""
    shape = SHAPE | {"vocab_size": corpus.tokenizer.vocab_size, "tie_embeddings": preset == "base"}
    model = replace(PRESETS[preset].model, dropout=dropout, ngram_dropout=dropout, **shape)
    train = PRESETS[preset].train
    options = {"optimizer": train.optimizer, "look_ahead": train.look_ahead, "weight_decay": 0.1}
    options |= {"gradient_accumulation_steps": 2, "eval_interval": 5, "log_interval": 3}
    return TrainingState.start(model, train_config(**options | train_options), device, corpus.train)


def figures(report: Report) -> tuple:
    """Return all of a report that is no time."""
    losses = (report.train_loss, report.val_loss, report.is_best, report.sample)
    return (report.step, report.tokens, report.lr, *losses)


def run(state: TrainingState, corpus: Corpus, steps: int | None = None) -> list[tuple]:
    """Train to the end, or until `steps` steps are done; return the figures of each report."""
    seen = []
    for report in fit(state, corpus):
        seen.append(figures(report))
        if report.step == steps and not state.is_evaluation_due:
            break
    return seen


def tolerance(device: Device) -> float:
    on_cpu, on_gpu = TOLERANCE[device.dtype]
    return on_cpu if device.on_cpu else on_gpu


def losses_of(seen: list[tuple]) -> list[float]:
    """Return the training and validation losses that were told."""
    return [loss for figure in seen for loss in figure[3:5] if loss is not None]


def bits(arrays: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in arrays.items()}


def bits_of(state: TrainingState) -> dict[str, bytes]:
    """Return the bytes of all weights and of the optimizers' states."""
    states = optimizer_arrays(state.objective.named_trained(), state.optimizers)
    return bits(state.model.arrays() | states)


def save(path: Path, state: TrainingState, corpus: Corpus) -> Path:
    checkpoint.save(path, state.to_checkpoint(corpus))
    return path


def resume(path: Path, device: Device = CPU) -> TrainingState:
    saved = checkpoint.load(path)
    return TrainingState.restore(saved, saved.train_config, device)
