"""A GPT over characters, for transformers: this file needs torch and transformers alone.

It comes from sancho-mini, with the weights beside it. Axes: B batch, T time (new characters),
S all characters, C channels, H heads, D head size, V vocabulary.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils import can_return_tuple

FACTOR = 0x9E3779B1  # 2^32 divided by the golden ratio (Knuth, volume 3, section 6.4)
NO_KEY = 2**31 - 1  # of the rows that no n-gram has for its own
# What this version of transformers calls the cache; calls may use either name.
CACHE = "cache" if hasattr(CausalLMOutputWithPast, "cache") else "past_key_values"


class SanchoConfig(PretrainedConfig):
    """The shape of a model; config.json beside this file gives every value.

    vocab_size, block_size (longest context), n_layer, n_head, n_embd, hidden_units (of the
    feed-forward layer), bias; norm: layernorm or rmsnorm; position: learned, sinusoidal or rope;
    activation: relu, gelu, silu, relu2, geglu or swiglu; qk_norm; ngram_size and ngram_rows of the
    n-gram table (1: no table); embedding_skip.
    """

    model_type = "sancho"
    attribute_map = {  # noqa: RUF012
        "max_position_embeddings": "block_size",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "hidden_size": "n_embd",
        "intermediate_size": "hidden_units",
    }


def make_norm(config: SanchoConfig) -> nn.Module:
    """Return the normalisation over the channels; RMSNorm has no gains."""
    if config.norm == "layernorm":
        return nn.LayerNorm(config.n_embd, bias=config.bias)
    return nn.RMSNorm(config.n_embd, eps=1e-6, elementwise_affine=False)


def angles(length: int, channels: int) -> Tensor:
    """Return t / 10000^(j/channels) for t < length and even j < channels, (length, channels/2)."""
    frequencies = 10000.0 ** (-torch.arange(0, channels, 2, dtype=torch.float64) / channels)
    return torch.outer(torch.arange(length, dtype=torch.float64), frequencies)


def rotate(x: Tensor, rotations: Tensor) -> Tensor:
    """Rotate each pair of channels (2j, 2j + 1) by its position's angle: rotary positions.

    x: (B, T, heads, D); rotations: (B, T, D/2, 2), cosine and sine of each angle. These may be in
    float32 where x is in half precision; the result is then in float32.
    """
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)  # each (B, T, heads, D/2)
    cos, sin = rotations.unsqueeze(2).unbind(-1)  # each (B, T, 1, D/2)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Attention(nn.Module):
    """Self-attention: softmax(QKᵀ/√D)V in each head."""

    def __init__(self, config: SanchoConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)

    def forward(
        self, x: Tensor, mask: Tensor, rotations: Tensor | None, cache: DynamicCache | None
    ) -> Tensor:
        """(B, T, C) -> (B, T, C). mask: (B, 1, T, S), true where a query sees a key."""
        B, T, C = x.shape
        heads = self.qkv(x).view(B, T, 3 * self.config.n_head, -1)  # (B, T, 3H, D)
        qk, v = heads.tensor_split((2 * self.config.n_head,), dim=2)  # (B, T, 2H, D), (B, T, H, D)
        if rotations is not None:
            qk = rotate(qk, rotations)
        if self.config.qk_norm:
            qk = F.rms_norm(qk, qk.shape[-1:], eps=1e-6)
        q, k = qk.type_as(v).transpose(1, 2).chunk(2, dim=1)  # each (B, H, T, D)
        v = v.transpose(1, 2)
        if cache is not None:
            k, v = cache.update(k, v, self.layer)  # each (B, H, S, D)
        y = F.scaled_dot_product_attention(q, k, v, mask)  # (B, H, T, D)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "relu2": lambda x: F.relu(x) ** 2,
}
GATES = {"geglu": F.gelu, "swiglu": F.silu}


class FeedForward(nn.Module):
    """Expand, activate, project back; gated activations multiply by a second expansion."""

    def __init__(self, config: SanchoConfig) -> None:
        super().__init__()
        hidden = config.hidden_units
        self.activation = config.activation
        self.gated = config.activation in GATES
        self.expand = nn.Linear(config.n_embd, hidden * (1 + self.gated), bias=config.bias)
        self.proj = nn.Linear(hidden, config.n_embd, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)"""
        x = self.expand(x)
        if self.gated:
            x, gate = x.chunk(2, dim=-1)
            return self.proj(GATES[self.activation](gate) * x)
        return self.proj(ACTIVATIONS[self.activation](x))


class Block(GradientCheckpointingLayer):
    """Attention between positions, then a feed-forward layer at each, both on a residual stream."""

    def __init__(self, config: SanchoConfig, layer: int) -> None:
        super().__init__()
        self.norm1 = make_norm(config)
        self.attention = Attention(config, layer)
        self.norm2 = make_norm(config)
        self.feed_forward = FeedForward(config)

    def forward(
        self, x: Tensor, mask: Tensor, rotations: Tensor | None, cache: DynamicCache | None
    ) -> Tensor:
        """(B, T, C) -> (B, T, C)"""
        x = x + self.attention(self.norm1(x), mask, rotations, cache)
        return x + self.feed_forward(self.norm2(x))


class SanchoForCausalLM(PreTrainedModel, GenerationMixin):
    """Embedding, blocks, norm, output head."""

    config_class = SanchoConfig
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _input_embed_layer = "token_embedding"
    _tied_weights_keys = {"head.weight": "token_embedding.weight"}  # noqa: RUF012

    def __init__(self, config: SanchoConfig) -> None:
        super().__init__(config)
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        if config.ngram_size > 1:
            self.ngram_embedding = nn.Embedding(config.ngram_rows, config.n_embd)
            keys = torch.full((config.ngram_rows,), NO_KEY, dtype=torch.int32)  # ascending
            self.ngram_embedding.register_buffer("keys", keys)
        # Positions are saved with the weights: transformers does not compute them when it loads.
        if config.position == "learned":
            self.position_embedding = nn.Embedding(config.block_size, config.n_embd)
        elif config.position == "sinusoidal":
            a = angles(config.block_size, config.n_embd)
            positions = torch.stack((a.sin(), a.cos()), -1).flatten(1).float()
            self.register_buffer("positions", positions)
        else:
            a = angles(config.block_size, config.n_embd // config.n_head)
            self.register_buffer("turns", torch.stack((a.cos(), a.sin()), -1).float())
        if config.embedding_skip:
            self.skips = nn.Parameter(torch.zeros(config.n_layer))
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.n_layer))
        self.norm = make_norm(config)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        """Return the output head."""
        return self.head

    def set_output_embeddings(self, head: nn.Module) -> None:
        """Take another output head."""
        self.head = head

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: DynamicCache | None = None,
        previous_ids: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool = False,
        cache: DynamicCache | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: object,
    ) -> CausalLMOutputWithPast:
        """(B, T) ids -> (B, T, V) logits of the character after each.

        attention_mask: (B, S), 0 for padding, which stands at the left. With a cache, input_ids
        continue what it holds, and a model with an n-gram table needs previous_ids, the
        ngram_size − 1 ids before them, (B, …). logits_to_keep: the last so many places, 0 for all,
        or which ones. kwargs: num_items_in_batch, by which the sum of the losses is divided. Raises
        ValueError for any other, where ids are missing, and for more characters than block_size.
        """
        for name, value in kwargs.items():
            if name != "num_items_in_batch" and value is not None and value is not False:
                raise ValueError(f"this model takes no {name}")
        cache = past_key_values if cache is None else cache
        if cache is None and use_cache:
            cache = DynamicCache()
        past = 0 if cache is None else cache.get_seq_length()
        B, T = input_ids.shape
        S = past + T
        if attention_mask is None:
            attention_mask = torch.ones(B, S, dtype=torch.long, device=input_ids.device)
        real = attention_mask.bool()  # (B, S)
        positions = (real.cumsum(1) - 1).clamp(min=0)[:, past:]  # (B, T)
        if positions.max() >= self.config.block_size:
            raise ValueError(
                f"{positions.max() + 1} characters do not fit block_size, {self.config.block_size}"
            )
        embedding = self.embed(input_ids, previous_ids, real, positions)  # (B, T, C)
        causal = torch.ones(T, S, dtype=torch.bool, device=real.device).tril(past)
        itself = torch.eye(T, S, dtype=torch.bool, device=real.device).roll(past, 1)
        # Padding sees itself: the softmax of a row that sees nothing would be NaN.
        mask = (causal & real[:, None, None]) | itself  # (B, 1, T, S)
        rotations = self.turns[positions] if self.config.position == "rope" else None
        x = embedding
        states = [x]
        for layer, block in enumerate(self.blocks):
            if self.config.embedding_skip and layer:
                x = x + self.skips[layer] * embedding
            x = block(x, mask, rotations, cache=cache)
            states.append(x)
        states[-1] = self.norm(x)  # the last is normalised, as in transformers' own models
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.head(states[-1][:, keep])  # (B, T, V)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config.vocab_size, **kwargs)
        hidden = tuple(states) if output_hidden_states or self.config.output_hidden_states else None
        return CausalLMOutputWithPast(loss, logits, hidden_states=hidden, **{CACHE: cache})

    def embed(
        self, ids: Tensor, previous_ids: Tensor | None, real: Tensor, positions: Tensor
    ) -> Tensor:
        """(B, T) ids -> (B, T, C): embeddings of character, n-grams and position, added."""
        x = self.token_embedding(ids)  # (B, T, C)
        if self.config.ngram_size > 1:
            for key in self.ngram_keys(ids, previous_ids, real):
                x = x + self.ngram_embedding(self.ngram_rows(key))
        if self.config.position == "learned":
            return x + self.position_embedding(positions)
        if self.config.position == "sinusoidal":
            return x + self.positions[positions].type_as(x)
        return x

    def ngram_rows(self, key: Tensor) -> Tensor:
        """Return the rows of n-grams by their keys, (B, T): the last one for an unknown n-gram.

        The table knows the lower 32 bits of a key.
        """
        keys = self.ngram_embedding.keys
        key = key.int()
        rows = torch.searchsorted(keys, key)
        return torch.where(keys[rows] == key, rows, len(keys) - 1)

    def ngram_keys(self, ids: Tensor, previous_ids: Tensor | None, real: Tensor) -> list[Tensor]:
        """Return the keys of the n-grams of 2, 3, … ngram_size ids at each place, each (B, T).

        A key is the sum of (id + 2) · FACTOR^age modulo 2^64, age 0 being the newest;
        an id of −1 stands before the first character.
        """
        T = ids.shape[1]
        before = self.config.ngram_size - 1
        past = real.shape[1] - T
        if previous_ids is None:
            previous_ids = ids[:, :0]
        known = previous_ids.shape[1]
        if known < min(before, past):
            raise ValueError(f"with a cache this model needs {before} previous_ids; see forward()")
        text = torch.cat((previous_ids, ids), 1).masked_fill(~real[:, past - known :], -1)
        text = F.pad(text, (before - known, 0), value=-1) + 2  # (B, before + T)
        keys = text[:, before:]
        found = []
        for age in range(1, self.config.ngram_size):
            power = (FACTOR**age + 2**63) % 2**64 - 2**63  # as a signed number
            keys = keys + text[:, before - age : before - age + T] * power
            found.append(keys)
        return found

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        past_key_values: DynamicCache | None = None,
        attention_mask: Tensor | None = None,
        use_cache: bool = True,
        cache: DynamicCache | None = None,
        **kwargs: object,
    ) -> dict:
        """Return what forward() needs to go on with input_ids, (B, L), the whole text.

        When the block is full, its newest quarter is kept and read anew, as sancho-mini does.
        Raises ValueError for another cache than a DynamicCache.
        """
        cache = past_key_values if cache is None else cache
        if not isinstance(cache, DynamicCache | None):
            raise ValueError(f"this model takes a DynamicCache, and no {type(cache).__name__}")
        block = self.config.block_size
        stride = block + 1 - max(1, block // 4)
        excess = max(0, input_ids.shape[1] - block)
        start = math.ceil(excess / stride) * stride
        new = start if cache is None else start + cache.get_seq_length()
        if cache is not None:
            # Past the block, some versions leave in it the candidates of an assistant that lost.
            text = getattr(cache, "text", input_ids)
            is_other = len(text) == 1 and not text[:, :new].equal(input_ids[:, :new])
            if is_other or getattr(cache, "window", 0) != start or new >= input_ids.shape[1]:
                cache = DynamicCache()
                new = start
            cache.window = start
            cache.text = input_ids
        before = max(start, new - self.config.ngram_size + 1)
        asked = ("logits_to_keep", "output_hidden_states", "output_attentions", "position_ids")
        return {
            "input_ids": input_ids[:, new:],
            "previous_ids": input_ids[:, before:new],
            "attention_mask": None if attention_mask is None else attention_mask[:, start:],
            CACHE: cache,
            "use_cache": use_cache,
        } | {name: kwargs[name] for name in asked if name in kwargs}
