"""Write the golden files, a snapshot of GPT.forward: models of every family, and what they say.

    python tests/golden/make.py NAME...

It was run once for each. What it wrote stays, so that later implementations of the model are held
to the same numbers: each NAME.safetensors is a checkpoint with random weights, and NAME.json has

- ids and logits: a text as long as the block, and the logits after each of its characters, in
  float64 by GPT.forward,
- greedy and seeded: how the text `start` goes on, far past the block: always with the likeliest
  character, and drawn with `temperature` and `seed`. With these seeds no character is chosen so
  narrowly that float32 could choose another.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sancho import checkpoint
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import ModelConfig, SampleConfig, TrainConfig
from sancho.generate import continue_texts
from sancho.shared import ngrams
from sancho.shared.weights import NGRAM_KEYS, weight_shapes
from sancho.tokenizer import CharTokenizer

FOLDER = Path(__file__).resolve().parent
TOKENIZER = CharTokenizer.from_text("\n abcdefghijklmnopqrstuvwxyzñáé,.")
SIZE = {"vocab_size": 33, "block_size": 16, "n_layer": 2, "n_head": 2, "n_embd": 16}
BASE = {"norm": "rmsnorm", "position": "rope", "activation": "relu2", "ngram_size": 1}
PLAIN = {"ngram_size": 1, "embedding_skip": False}
GATED = PLAIN | {"norm": "layernorm", "position": "rope", "activation": "swiglu", "qk_norm": False}
CLASSIC = GATED | {"position": "learned", "activation": "relu", "bias": True}
SINUSOIDAL = PLAIN | {"position": "sinusoidal", "activation": "gelu", "bias": True}
FAMILIES = {
    "classic": ModelConfig(**SIZE, **CLASSIC),
    "mini": ModelConfig(**SIZE, ngram_rows=64),
    "base": ModelConfig(**SIZE, **BASE),
    "gated": ModelConfig(**SIZE, **GATED),
    "sinusoidal": ModelConfig(**SIZE, **SINUSOIDAL, tie_embeddings=True),
}
# Of their weights; others have little to say but one letter, over and over.
SEEDS = {"classic": 4, "mini": 111, "base": 9, "gated": 2, "sinusoidal": 18}
START = "en un lugar"
COUNT = 60
TEMPERATURE = 0.8
SEED = 1605


def random_weights(config: ModelConfig, seed: int) -> dict[str, np.ndarray]:
    """Return weights with a standard deviation of 0.3, and gains around 1.

    Evenly distributed, which takes no logarithm: the same on every machine, to the last bit.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    weights = {}
    for name, shape in weight_shapes(config).items():
        if name == NGRAM_KEYS:
            weights[name] = half_known(config, seed)
            continue
        centre = 1 if name.endswith(("norm.weight", "norm1.weight", "norm2.weight")) else 0
        values = centre + 0.3 * 3**0.5 * (2 * random.random(shape) - 1)
        weights[name] = values.astype(np.float32)
    if config.tie_embeddings:
        weights["head.weight"] = weights["token_embedding.weight"].copy()
    return weights


def text_ids(config: ModelConfig, seed: int) -> list[int]:
    """Return a text as long as the block."""
    random = np.random.Generator(np.random.PCG64(seed + 1000))
    return (random.random(config.block_size) * config.vocab_size).astype(int).tolist()


def half_known(config: ModelConfig, seed: int) -> np.ndarray:
    """Return the keys of a vocabulary: the text's first half, and two of each character in a row.

    So some n-grams of what is read and written have a row of their own, and others have not.
    """
    half = text_ids(config, seed)[: config.block_size // 2]
    thrice = [i for i in range(config.vocab_size) for _ in range(3)]
    return ngrams.vocabulary(np.array(2 * half + thrice), config.ngram_size, config.ngram_rows)


def go_on(saved: Checkpoint, temperature: float) -> str:
    """Return how START goes on."""
    prompt = saved.tokenizer.encode(START)
    config = SampleConfig(temperature=temperature)
    options = {"max_new_tokens": COUNT, "seed": SEED}
    return continue_texts(saved.build_model(), saved.tokenizer, prompt, config, **options)[0]


def new_checkpoint(model: ModelConfig, characters: str, weights: dict) -> Checkpoint:
    """Return the checkpoint of a run of no steps on a text without a name."""
    run = {"train_config": TrainConfig(), "progress": Progress()}
    text = {"characters": characters, "corpus_name": "", "corpus_sha256": ""}
    return Checkpoint(model_config=model, weights=weights, **run, **text)


def make(name: str) -> tuple[Checkpoint, dict]:
    """Return the checkpoint of a family, and what its JSON file holds."""
    config = FAMILIES[name]
    seed = SEEDS[name]
    saved = new_checkpoint(config, TOKENIZER.characters, random_weights(config, seed))
    saved = replace(saved, corpus_name="golden")
    ids = text_ids(config, seed)
    with torch.inference_mode():
        logits = saved.build_model().double()(torch.tensor([ids]))[0]
    return saved, {
        "ids": ids,
        "logits": [[float(f"{x:.6g}") for x in row] for row in logits.tolist()],
        "start": START,
        "greedy": go_on(saved, 0.0),
        "temperature": TEMPERATURE,
        "seed": SEED,
        "seeded": go_on(saved, TEMPERATURE),
    }


if __name__ == "__main__":
    for family in sys.argv[1:]:
        model, answers = make(family)
        checkpoint.save(FOLDER / f"{family}.safetensors", model)
        text = json.dumps(answers, ensure_ascii=False, separators=(",", ":"))
        (FOLDER / f"{family}.json").write_text(text + "\n", encoding="utf-8")
