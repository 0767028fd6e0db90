"""A GPT over characters.

Axes: B batch, T time (characters), C channels (n_embd), H heads, D head size, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sancho.config import ModelConfig
from sancho.shared import ngrams
from sancho.shared.dropout import Dropout
from sancho.shared.weights import QK_EPSILON, norm_epsilon, rotary_angles, sinusoids


def make_norm(config: ModelConfig) -> nn.Module:
    """Return the normalisation over the channels.

    LayerNorm: Ba et al. 2016, arXiv:1607.06450. RMSNorm: Zhang & Sennrich 2019,
    arXiv:1910.07467; here without gains.
    """
    size = config.n_embd
    epsilon = norm_epsilon(config)
    if config.norm == "layernorm":
        return nn.LayerNorm(size, eps=epsilon, bias=config.bias)
    return nn.RMSNorm(size, eps=epsilon, elementwise_affine=False)


def rotate(x: Tensor, rotations: Tensor) -> Tensor:
    """Rotate each pair of channels (2j, 2j + 1) by its position's angle: rotary positions.

    x: (B, T, heads, D), which becomes float32 if it is less; rotations: (T, heads · D/2, 2),
    cosine and sine of each angle. Su et al. 2021, arXiv:2104.09864, section 3.2.
    """
    pairs = x.to(torch.promote_types(x.dtype, torch.float32)).reshape(*x.shape[:2], -1, 2)
    if x.is_cpu and not torch.compiler.is_compiling():  # one product, faster on a CPU
        rotated = torch.view_as_complex(pairs) * torch.view_as_complex(rotations.to(pairs.dtype))
        return torch.view_as_real(rotated).view(x.shape)
    # TorchInductor generates no code for complex numbers.
    (a, b), (cosine, sine) = pairs.unbind(-1), rotations.unbind(-1)  # each (…, T, heads · D/2)
    return torch.stack((a * cosine - b * sine, a * sine + b * cosine), dim=-1).view(x.shape)


class MultiHeadAttention(nn.Module):
    """Causal self-attention: softmax(QKᵀ/√D)V in each head (Vaswani et al. 2017, section 3.2)."""

    rotations: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.head_size = config.head_size
        self.qk_norm = config.qk_norm
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.rope = config.position == "rope"
        if self.rope:
            angles = torch.from_numpy(rotary_angles(config))  # (block, D/2)
            rotations = torch.stack((angles.cos(), angles.sin()), dim=-1).float()
            rotations = rotations.repeat(1, 2 * config.n_head, 1)  # (block, 2H · D/2, 2)
            self.register_buffer("rotations", rotations, persistent=False)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)"""
        B, T, C = x.shape
        q, k, v = self.queries_keys_values(x)  # each (B, H, T, D)
        # The weights are not dropped out: PyTorch has no fast kernel for that on a CPU.
        with torch.autocast("cpu", enabled=False):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, D)
        return self.dropout(self.proj(y.transpose(1, 2).reshape(B, T, C)))

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries, keys and values of x, (B, T, C): each (B, H, T, D)."""
        B, T, _ = x.shape
        heads = self.qkv(x).view(B, T, 3 * self.n_head, self.head_size)  # (B, T, 3H, D)
        if x.is_cpu:  # on a CPU the gradient of attention takes longer in bfloat16
            heads = heads.type_as(x)
        qk, v = heads.tensor_split((2 * self.n_head,), dim=2)  # (B, T, 2H, D), (B, T, H, D)
        if self.rope:
            qk = rotate(qk, self.rotations[:T])
        if self.qk_norm:  # Dehghani et al. 2023, arXiv:2302.05442; here RMSNorm without gains
            qk = F.rms_norm(qk, (self.head_size,), eps=QK_EPSILON)
        q, k = qk.type_as(v).transpose(1, 2).chunk(2, dim=1)
        return q, k, v.transpose(1, 2)


def relu2(x: Tensor) -> Tensor:
    """max(x, 0)²: So et al. 2021, arXiv:2109.08668."""
    return F.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "relu2": relu2,
    "geglu": F.gelu,
    "swiglu": F.silu,
}


class FeedForward(nn.Module):
    """Expand, activate, project back, on each position alone: W2 · act(W1 · x).

    Gated activations (Shazeer 2020, arXiv:2002.05202) multiply by a second expansion and are two
    thirds as wide, so that they have as many parameters.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.gated = config.is_gated
        hidden = config.hidden_size
        self.expand = nn.Linear(config.n_embd, hidden * (1 + self.gated), bias=config.bias)
        self.proj = nn.Linear(hidden, config.n_embd, bias=config.bias)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)"""
        x = self.expand(x)  # (B, T, 4C), or (B, T, 2 · 8C/3) if gated
        if self.gated:
            x, gate = x.chunk(2, dim=-1)
            return self.dropout(self.proj(self.activation(gate) * x))
        return self.dropout(self.proj(self.activation(x)))


class Block(nn.Module):
    """Attention between positions, then a feed-forward layer at each, both on a residual stream.

    Pre-norm: Xiong et al. 2020, arXiv:2002.04745.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm1 = make_norm(config)
        self.attention = MultiHeadAttention(config)
        self.norm2 = make_norm(config)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)"""
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class NgramEmbedding(nn.Embedding):
    """N-gram embedding: the sum of a vector for every n-gram that ends at a place.

    n is 2, 3, … ngram_size. It is added to the embedding of the character itself.
    """

    powers: Tensor
    keys: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.ngram_rows, config.n_embd, sparse=True)
        self.size = config.ngram_size
        no_keys = torch.full((config.ngram_rows,), ngrams.NO_KEY, dtype=torch.int32)
        self.register_buffer("keys", no_keys)
        self.dropout = Dropout(config.ngram_dropout, of_vectors=True)
        powers = torch.tensor(ngrams.signed_powers(self.size))
        self.register_buffer("powers", powers, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) ids -> (B, T, C)"""
        rows = self.rows_of(ids)  # (B, T, size − 1)
        vectors = super().forward(rows).flatten(0, 1)  # (B · T, size − 1, C)
        return self.dropout(vectors).sum(1).view(*rows.shape[:2], -1)

    def rows_of(self, ids: Tensor) -> Tensor:
        """(B, T) ids -> (B, T, size − 1) rows of the n-grams that end at each place."""
        text = F.pad(ids, (self.size - 1, 0), value=ngrams.NOTHING)  # (B, size − 1 + T)
        newest_first = text.unfold(1, self.size, 1).flip(-1)  # (B, T, size)
        return ngrams.rows_of(newest_first, self.powers, self.keys, torch)

    def learn_vocabulary(self, ids: np.ndarray) -> None:
        """Give each of the most frequent n-grams of a text, (n,), a row of its own."""
        keys = ngrams.vocabulary(ids, self.size, self.num_embeddings)
        self.keys.copy_(torch.from_numpy(keys))


class GPT(nn.Module):
    """Embedding, blocks, norm, output head.

    New weights are drawn from torch's global random generator.
    """

    positions: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        if config.ngram_size > 1:
            self.ngram_embedding = NgramEmbedding(config)
        if config.position == "learned":
            self.position_embedding = nn.Embedding(config.block_size, config.n_embd)
        elif config.position == "sinusoidal":
            positions = torch.from_numpy(sinusoids(config)).float()
            self.register_buffer("positions", positions, persistent=False)
        self.dropout = Dropout(config.dropout)
        if config.embedding_skip:  # Jordan et al. 2024, modded-nanogpt
            self.skips = nn.Parameter(torch.zeros(config.n_layer))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = make_norm(config)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        if config.tie_embeddings:  # Press & Wolf 2017, arXiv:1608.05859
            self.head.weight = self.token_embedding.weight
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        """Draw the weights so that a new model is the identity from embedding to head.

        Embeddings: normal, standard deviation 0.02 (Radford et al. 2019, GPT-2), but zero in the
        n-gram table, many rows of which are never seen. Matrices that read the residual stream:
        normal with variance 1/C, so that unit input gives unit output (LeCun et al. 1998,
        Efficient BackProp, section 4.6). Matrices that write to it, and an untied output head:
        zero (Zhang et al. 2019, arXiv:1901.09321), so that the first loss is exactly ln V.
        """
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        # A block that writes nothing yet passes its input on, so depth does no harm at first.
        for module in self.modules():
            if isinstance(module, MultiHeadAttention | FeedForward):
                nn.init.zeros_(module.proj.weight)
        if self.config.ngram_size > 1:
            nn.init.zeros_(self.ngram_embedding.weight)
        if self.config.tie_embeddings:
            nn.init.normal_(self.head.weight, std=0.02)
        else:
            nn.init.zeros_(self.head.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) ids -> (B, T, V) logits of the character after each.

        Raises ValueError for more than block_size characters.
        """
        return self.head(self.features(ids))  # (B, T, V)

    def features(self, ids: Tensor) -> Tensor:
        """(B, T) ids -> (B, T, C): what the output head reads."""
        embedding = self.dropout(self.embed(ids))  # (B, T, C)
        x = embedding
        for layer, block in enumerate(self.blocks):
            if self.config.embedding_skip and layer:
                x = x + self.skips[layer] * embedding
            x = block(x)
        return self.norm(x)

    def embed(self, ids: Tensor) -> Tensor:
        """(B, T) ids -> (B, T, C): embeddings of character, n-grams and position, added."""
        config = self.config
        T = ids.shape[1]
        if config.block_size < T:
            raise ValueError(f"{T} characters do not fit block_size")
        x = self.token_embedding(ids)  # (B, T, C)
        if config.ngram_size > 1:
            x = x + self.ngram_embedding(ids)
        if config.position == "learned":
            x = x + self.position_embedding.weight[:T]
        elif config.position == "sinusoidal":
            x = x + self.positions[:T]
        return x

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the weights by name (weights.py); on a CPU they share the model's memory."""
        return {name: weight.detach().cpu().numpy() for name, weight in self.state_dict().items()}

    @classmethod
    def with_weights(cls, config: ModelConfig, weights: dict[str, np.ndarray]) -> "GPT":
        """Return a model with copies of the given weights (weights.py), on the CPU."""
        with torch.random.fork_rng(devices=[]):
            model = cls(config)
        model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
        return model


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model in evaluation mode, without dropout, inside the block."""
    was_training = model.training
    try:
        if was_training:  # switching all modules takes as long as reading a character
            model.eval()
        yield
    finally:
        if was_training:
            model.train()
