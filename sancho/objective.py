"""What training makes small: the loss of the model, and at first that of heads that look ahead."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sancho.model import GPT, cross_entropy

FIRST_SHARE = 0.3
"""What the first look-ahead head counts for at the first step; each one after it half of that."""
FADED = 0.7
"""Share of the steps after which the look-ahead heads count for nothing."""


class Objective(nn.Module):
    """A model and its look-ahead heads: linear layers that read what its own head reads.

    Head j (from 1) predicts the character j places after the next one. Nothing but training knows
    of them. Gloeckle et al. 2024, arXiv:2404.19737; for characters: Al-Rfou et al. 2018,
    arXiv:1808.04444.
    """

    def __init__(self, model: GPT, look_ahead: int) -> None:
        """Add `look_ahead` heads, all zero as the model's own."""
        super().__init__()
        self.model = model
        like = model.head.weight  # (V, C)
        self.heads = nn.ParameterList(torch.zeros_like(like) for _ in range(look_ahead))

    def forward(self, ids: Tensor, targets: Tensor, share: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the loss of the model, (), and that with the look-ahead heads, ().

        ids, targets: (B, T). share: how much of their first weight the heads have, (); None: none.
        """
        features = self.model.features(ids)  # (B, T, C)
        loss = total = cross_entropy(self.model.head(features), targets)
        if share is not None:
            for j, head in enumerate(self.heads[: ids.shape[1] - 1], 1):
                ahead = cross_entropy(F.linear(features[:, :-j], head), targets[:, j:])
                total = total + share * FIRST_SHARE / 2 ** (j - 1) * ahead
        return loss, total

    def share_at(self, step: int, max_iters: int) -> Tensor | None:
        """Return `share` for step `step` (from 0): it falls linearly from 1 to nothing."""
        share = 1 - step / (FADED * max_iters)
        return torch.tensor(share) if len(self.heads) and share > 0 else None

    def named_trained(self) -> dict[str, nn.Parameter]:
        """Return all that is trained by name: as in layout.py, then look_ahead.0, 1, …"""
        heads = {f"look_ahead.{j}": head for j, head in enumerate(self.heads)}
        return dict(self.model.named_parameters()) | heads
