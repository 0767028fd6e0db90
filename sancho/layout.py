"""What a model's weights are: their names, shapes and order, for every hand that computes it.

All are float32, row after row. With C = n_embd, H heads of D = C / H channels, V characters:

- A matrix of shape (out, in) maps x, (…, in), to x · Wᵀ + bias, as torch.nn.Linear does.
- `attention.qkv` gives the queries of all heads, then the keys, then the values: 3 · H · D rows.
- Rotary positions turn the channels (2j, 2j + 1) of queries and keys together, by the angle
  t / 10000^(2j/D) at position t, before they are normalised.
- `feed_forward.expand` of a gated activation gives the factors first and then the gates: the
  output is factor · activation(gate).
- `ngram_embedding` is the table of ngrams.py; `skips` are the strengths in which the embedding is
  added before each block (the first one is not used).
- A tied head is stored twice.
"""

import math

from sancho.config import ModelConfig


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight by its name, in the order of the forward pass."""
    C, V = config.n_embd, config.vocab_size
    shapes: dict[str, tuple[int, ...]] = {"token_embedding.weight": (V, C)}
    if config.ngram_size > 1:
        shapes["ngram_embedding.weight"] = (config.ngram_rows, C)
    if config.position == "learned":
        shapes["position_embedding.weight"] = (config.block_size, C)
    if config.embedding_skip:
        shapes["skips"] = (config.n_layer,)
    for layer in range(config.n_layer):
        block, hidden = f"blocks.{layer}", config.hidden_size
        expanded = 2 * hidden if config.is_gated else hidden
        shapes |= _norm(f"{block}.norm1", config)
        shapes |= _linear(f"{block}.attention.qkv", 3 * C, C, config.bias)
        shapes |= _linear(f"{block}.attention.proj", C, C, config.bias)
        shapes |= _norm(f"{block}.norm2", config)
        shapes |= _linear(f"{block}.feed_forward.expand", expanded, C, config.bias)
        shapes |= _linear(f"{block}.feed_forward.proj", C, hidden, config.bias)
    return shapes | _norm("norm", config) | _linear("head", V, C, bias=False)


def count_parameters(config: ModelConfig) -> int:
    """Return the number of trained numbers, those of a tied head once."""
    total = sum(math.prod(shape) for shape in weight_shapes(config).values())
    return total - config.tie_embeddings * config.vocab_size * config.n_embd


def _linear(name: str, rows: int, columns: int, bias: bool) -> dict[str, tuple[int, ...]]:
    weight = {f"{name}.weight": (rows, columns)}
    return weight | ({f"{name}.bias": (rows,)} if bias else {})


def _norm(name: str, config: ModelConfig) -> dict[str, tuple[int, ...]]:
    if config.norm == "rmsnorm":
        return {}
    weight = {f"{name}.weight": (config.n_embd,)}
    return weight | ({f"{name}.bias": (config.n_embd,)} if config.bias else {})
