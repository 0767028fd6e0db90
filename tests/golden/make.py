"""Write the golden files: tiny models of every family, and what they say to a text.

    python tests/golden/make.py NAME...

It was run once for each. What it wrote stays, so that later implementations of the model are held
to the same numbers: each NAME.safetensors is a checkpoint with random weights, and NAME.json has

- ids and logits: a text as long as the block, and the logits after each of its characters,
- greedy and seeded: how the text `start` goes on, far past the block: always with the likeliest
  character, and drawn with `temperature` and `seed`.

All of it is computed in float64 by GPT.forward, which reads the whole context anew for each
character, and by the few lines below. No character is chosen so narrowly that float32 could choose
another.
"""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sancho import checkpoint, ngrams
from sancho.checkpoint import NGRAM_KEYS, Checkpoint, Progress, weight_shapes
from sancho.config import ModelConfig, TrainConfig
from sancho.model import GPT
from sancho.tokenizer import CharTokenizer

FOLDER = Path(__file__).resolve().parent
TOKENIZER = CharTokenizer.from_text("\n abcdefghijklmnopqrstuvwxyzñáé,.")
SIZE = {"vocab_size": 33, "block_size": 16, "n_layer": 2, "n_head": 2, "n_embd": 16}
PLAIN = {"ngram_size": 1, "ngram_vocabulary": False, "embedding_skip": False}
BASE = PLAIN | {"norm": "rmsnorm", "position": "rope", "activation": "relu2"}
BASE["embedding_skip"] = True
MINI = BASE | {"ngram_size": 5, "ngram_rows": 64}
GATED = PLAIN | {"norm": "layernorm", "position": "rope", "activation": "swiglu", "qk_norm": False}
SINUSOIDAL = PLAIN | {"norm": "rmsnorm", "position": "sinusoidal", "activation": "gelu"}
SINUSOIDAL["bias"] = True
FAMILIES = {
    "classic": GATED | {"position": "learned", "activation": "relu", "bias": True},
    "mini": MINI,
    "vocabulary": MINI | {"ngram_vocabulary": True},
    "base": BASE,
    "gated": GATED,
    "sinusoidal": SINUSOIDAL | {"tie_embeddings": True},
}
FAMILIES = {name: ModelConfig(**SIZE, **shape) for name, shape in FAMILIES.items()}
# Of their weights; others have little to say but one letter, over and over.
SEEDS = {"classic": 4, "mini": 4, "vocabulary": 111, "base": 9, "gated": 2, "sinusoidal": 18}
START, COUNT, TEMPERATURE, SEED = "en un lugar", 60, 0.8, 1605


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


@torch.inference_mode()
def logits_of(model: GPT, ids: list[int]) -> np.ndarray:
    """Return the logits after each of ids, (T, V)."""
    return model(torch.tensor([ids]))[0].numpy()


def likeliest(logits: np.ndarray) -> int:
    """Return the id of the highest logit."""
    second, first = np.sort(logits)[-2:]
    assert first - second > 1e-3, "a close race: take another seed"
    return int(logits.argmax())


def drawn(logits: np.ndarray, uniform: float) -> int:
    """Return the id that a number in [0, 1) draws: each has a part of that range."""
    weights = np.exp((logits - logits.max()) / TEMPERATURE)
    ends = weights.cumsum() / weights.sum()
    assert np.abs(ends - uniform).min() > 1e-5, "at the edge of two ids: take another seed"
    return int((ends <= uniform).sum())


def go_on(model: GPT, choices: Iterable[Callable[[np.ndarray], int]]) -> str:
    """Return how START goes on, each character chosen from its logits by the next of `choices`.

    When the block is full, its newest quarter is kept.
    """
    context, new = TOKENIZER.encode(START).tolist(), []
    for choose in choices:
        new.append(choose(logits_of(model, context)[-1]))
        context.append(new[-1])
        if len(context) > model.config.block_size:
            context = context[-(model.config.block_size // 4) :]
    return TOKENIZER.decode(new)


def new_checkpoint(model: ModelConfig, characters: str, weights: dict) -> Checkpoint:
    """Return the checkpoint of a run of no steps on a text without a name."""
    run = {"train": TrainConfig(), "progress": Progress(), "corpus_name": "", "corpus_sha256": ""}
    return Checkpoint(model=model, characters=characters, weights=weights, **run)


def make(name: str) -> tuple[Checkpoint, dict]:
    """Return the checkpoint of a family, and what its JSON file holds."""
    config, seed = FAMILIES[name], SEEDS[name]
    saved = new_checkpoint(config, TOKENIZER.characters, random_weights(config, seed))
    saved = replace(saved, corpus_name="golden")
    model = saved.build_model().double()
    ids = text_ids(config, seed)
    # What the generator of sampling (3) draws for the first sample (0).
    sequence = np.random.SeedSequence(SEED, spawn_key=(3, 0))
    uniforms = np.random.Generator(np.random.PCG64(sequence)).random(COUNT)
    return saved, {
        "ids": ids,
        "logits": [[float(f"{x:.6g}") for x in row] for row in logits_of(model, ids)],
        "start": START,
        "greedy": go_on(model, [likeliest] * COUNT),
        "temperature": TEMPERATURE,
        "seed": SEED,
        "seeded": go_on(model, [partial(drawn, uniform=u) for u in uniforms]),
    }


if __name__ == "__main__":
    for family in sys.argv[1:]:
        model, answers = make(family)
        checkpoint.save(FOLDER / f"{family}.safetensors", model)
        text = json.dumps(answers, ensure_ascii=False, separators=(",", ":"))
        (FOLDER / f"{family}.json").write_text(text + "\n", encoding="utf-8")
