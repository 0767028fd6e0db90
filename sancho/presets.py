"""The presets, and the options of train.py, which begin with the name of one.

A preset has a model, its training, and a limit of epochs for a short text.
"""

from dataclasses import dataclass, field
from typing import Annotated

from sancho.config import (
    Checked,
    Choices,
    CorpusConfig,
    DeviceConfig,
    FolderConfig,
    ModelConfig,
    TrainConfig,
)

# The more often a text is read, the more the n-gram table would learn it by heart: if it is read r
# times, the fraction MOST_DROPPED − LESS_DROPPED / r of the table's vectors is dropped. That is
# nothing up to 1.6 times, and 0.64 for 6.5 times, where a text of 212,000 characters ended at 1.377
# with 0.7 dropped and at 1.540 with 0.1 (benchmarks/diary.md).
# A model that learns with part of its table is too sure with all of it. So the training loss has
# logits that are larger by SCALED times the fraction, and the model learns smaller ones.
MOST_DROPPED = 0.85
LESS_DROPPED = 1.35
SCALED = 0.15


@dataclass(frozen=True, kw_only=True)
class Preset:
    """The model, training and epochs that one name of --preset stands for."""

    model: ModelConfig
    train: TrainConfig
    epochs: float
    """The largest number of epochs for a short text."""
    about: str
    """What it is for, in a few words."""


MINI = Preset(
    model=ModelConfig(),
    train=TrainConfig(),
    epochs=6.5,
    about="a minute or two on two CPU cores",
)

MIDI = Preset(
    model=ModelConfig(n_embd=144, n_head=3),
    train=TrainConfig(max_iters=5000),
    epochs=6.5,
    about="8 to 13 minutes on two CPU cores",
)

CLASSIC = Preset(
    model=ModelConfig(
        block_size=64,
        n_head=4,
        n_embd=128,
        bias=True,
        norm="layernorm",
        position="learned",
        activation="relu",
        ngram_size=1,
        embedding_skip=False,
        qk_norm=False,
    ),
    train=TrainConfig(
        max_iters=2000,
        batch_size=12,
        optimizer="adamw",
        learning_rate=1e-3,
        weight_decay=0.1,
        beta1=0.9,
        beta2=0.99,
        warmup_iters=100,
        look_ahead=0,
    ),
    epochs=12,
    about="the model of the course, as its chapters build it",
)

BASE = Preset(
    model=ModelConfig(n_layer=6, n_head=6, n_embd=384, dropout=0.2, ngram_size=1),
    train=TrainConfig(
        max_iters=5000,
        batch_size=64,
        muon_learning_rate=0.02,
        weight_decay=0.1,
        beta2=0.95,
        look_ahead=0,
    ),
    epochs=50,
    about="for a CUDA GPU",
)

PRESETS = {"mini": MINI, "midi": MIDI, "classic": CLASSIC, "base": BASE}

PRESET_NAMES = Choices(
    {"auto": "what suits the device or the checkpoint"}
    | {name: preset.about for name, preset in PRESETS.items()}
)


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Checked):
    """Train a GPT on Don Quijote, or on a text of your own, and read what it writes."""

    preset: Annotated[str, PRESET_NAMES] = "auto"
    """The model and training options to start from."""
    folder: FolderConfig = field(default_factory=FolderConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    data: CorpusConfig = field(default_factory=CorpusConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
