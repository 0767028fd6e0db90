"""The names and shapes of a model's weights: what a file holds and every implementation reads."""

import math

from sancho.config import ModelConfig

Shapes = dict[str, tuple[int, ...]]
NGRAM_KEYS = "ngram_embedding.keys"


def weight_shapes(config: ModelConfig) -> Shapes:
    """Return the shape of every weight by its name, in the order of the forward pass.

    All are float32, row after row, but for the keys of n-grams, which are int32. With C = n_embd,
    H heads of D = C / H channels, V characters:

    - A matrix of shape (out, in) maps x, (…, in), to x · Wᵀ + bias, as torch.nn.Linear does.
    - `attention.qkv` gives the queries of all heads, then the keys, then the values: 3·H·D rows.
    - Rotary positions rotate the channels (2j, 2j + 1) of queries and keys together, by the angle
      t / 10000^(2j/D) at position t, before they are normalised.
    - `feed_forward.expand` of a gated activation gives the factors first and then the gates: the
      output is factor · activation(gate).
    - `ngram_embedding` is the table of ngrams.py; `skips` are the strengths with which the
      embedding is added before each block (the first one is not used).
    - A tied output head is stored twice.
    """
    C, V, hidden = config.n_embd, config.vocab_size, config.hidden_size

    def linear(name: str, *shape: int) -> Shapes:
        bias: Shapes = {f"{name}.bias": shape[:1]} if config.bias else {}
        return {f"{name}.weight": shape} | bias

    def norm(name: str) -> Shapes:
        return linear(name, C) if config.norm == "layernorm" else {}

    shapes: Shapes = {"token_embedding.weight": (V, C)}
    if config.ngram_size > 1:
        shapes["ngram_embedding.weight"] = (config.ngram_rows, C)
        shapes[NGRAM_KEYS] = (config.ngram_rows,)
    if config.position == "learned":
        shapes["position_embedding.weight"] = (config.block_size, C)
    if config.embedding_skip:
        shapes["skips"] = (config.n_layer,)
    for layer in range(config.n_layer):
        block = f"blocks.{layer}"
        shapes |= norm(f"{block}.norm1")
        shapes |= linear(f"{block}.attention.qkv", 3 * C, C)
        shapes |= linear(f"{block}.attention.proj", C, C)
        shapes |= norm(f"{block}.norm2")
        shapes |= linear(f"{block}.feed_forward.expand", hidden * (1 + config.is_gated), C)
        shapes |= linear(f"{block}.feed_forward.proj", C, hidden)
    return shapes | norm("norm") | {"head.weight": (V, C)}


def count_parameters(config: ModelConfig) -> int:
    """Return the number of trained weights, those of a tied head once."""
    shapes = weight_shapes(config)
    total = sum(math.prod(shape) for name, shape in shapes.items() if name != NGRAM_KEYS)
    return total - config.tie_embeddings * config.vocab_size * config.n_embd
