"""A table of character sequences: what the last 2, 3, … characters mean together.

Beside the embedding of each character stands the sum of one vector for every sequence that ends
with it. Sequences are too many for a row each, so a hash gives each of them one of `ngram_rows`
rows, and some share theirs. Hash n-gram embeddings: Pagnoni et al. 2024, arXiv:2412.09871,
section 3.2.1.
"""

import torch
from torch import Tensor, nn

from sancho.config import ModelConfig

FACTOR = 0x9E3779B1  # 2^32 divided by the golden ratio (Knuth, volume 3, section 6.4)


class NgramEmbedding(nn.Embedding):
    """The table, as a layer: ids to the summed vectors of the sequences that end there."""

    def __init__(self, config: ModelConfig) -> None:
        """Make a table of (ngram_rows, C), to be initialised by who uses it."""
        super().__init__(config.ngram_rows, config.n_embd, sparse=True)
        self.size = config.ngram_size
        self.dropout = nn.Dropout1d(config.ngram_dropout)  # drops whole vectors
        powers = [_signed(FACTOR**age) for age in range(self.size)]
        self.register_buffer("powers", torch.tensor(powers), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, size − 1 + T) ids, of which the first size − 1 only go before -> (B, T, C)."""
        rows = self.rows(ids)  # (B, T, size − 1)
        found = super().forward(rows).flatten(0, 1)  # (B · T, size − 1, C)
        return self.dropout(found).sum(1).view(*rows.shape[:2], -1)

    def rows(self, ids: Tensor) -> Tensor:
        """Return the rows of the last 2, 3, … `size` ids at each place but the first ones.

        (B, size − 1 + T) -> (B, T, size − 1). An id of −1 stands before the first character. A
        sequence's key is the sum of (id + 2) · FACTOR^age, age 0 being the newest, modulo 2^64.
        """
        newest_first = (ids + 2).unfold(1, self.size, 1).flip(-1)  # (B, T, size)
        keys = (newest_first * self.powers).cumsum(-1)[..., 1:]
        return (((keys ^ (keys >> 17)) * 0x85EBCA6B) & 0x7FFFFFFF) % self.num_embeddings


def _signed(number: int) -> int:
    """Return what a signed 64-bit integer holds of a larger number."""
    return (number + 2**63) % 2**64 - 2**63
