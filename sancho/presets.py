"""The presets: a model, the training that suits it, and how often it may read a text."""

from dataclasses import dataclass

from sancho.config import ModelConfig, TrainConfig


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What --preset stands for."""

    model: ModelConfig
    train: TrainConfig
    passes: float
    """How often it reads a short text, at most; more, and it learns it by heart."""


MINI = Preset(
    model=ModelConfig(
        block_size=256,
        n_layer=4,
        n_head=2,
        n_embd=64,
        dropout=0.0,
        bias=False,
        norm="rmsnorm",
        position="rope",
        activation="relu2",
        ngram_size=5,
        ngram_rows=65536,
        ngram_dropout=0.1,
        embedding_skip=True,
        qk_norm=True,
        tie_embeddings=False,
    ),
    train=TrainConfig(
        max_iters=1800,
        batch_size=6,
        optimizer="muon",
        learning_rate=0.02,
        muon_learning_rate=0.015,
        ngram_learning_rate=0.15,
        weight_decay=0.0,
        beta1=0.8,
        beta2=0.95,
        warmup_iters=20,
        look_ahead=2,
        decay_fraction=0.6,
    ),
    passes=6.5,
)
"""The fast one for a CPU: a minute or two on two cores."""

CLASSIC = Preset(
    model=ModelConfig(
        block_size=64,
        n_layer=4,
        n_head=4,
        n_embd=128,
        dropout=0.0,
        bias=True,
        norm="layernorm",
        position="learned",
        activation="relu",
        ngram_size=1,
        embedding_skip=False,
        qk_norm=False,
        tie_embeddings=False,
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
        decay_fraction=0.6,
    ),
    passes=12,
)
"""The model of the course, as its chapters build it."""

BASE = Preset(
    model=ModelConfig(
        block_size=256,
        n_layer=6,
        n_head=6,
        n_embd=384,
        dropout=0.2,
        bias=False,
        norm="rmsnorm",
        position="rope",
        activation="relu2",
        ngram_size=1,
        embedding_skip=True,
        qk_norm=True,
        tie_embeddings=False,
    ),
    train=TrainConfig(
        max_iters=5000,
        batch_size=64,
        optimizer="muon",
        learning_rate=0.02,
        muon_learning_rate=0.02,
        weight_decay=0.1,
        beta1=0.8,
        beta2=0.95,
        warmup_iters=20,
        look_ahead=0,
        decay_fraction=0.6,
    ),
    passes=50,
)
"""For a CUDA GPU."""

PRESETS = {"mini": MINI, "classic": CLASSIC, "base": BASE}
