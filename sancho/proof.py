"""The proof in a checkpoint: logits of the model that was trained, after a fixed window of ids.

Whatever computes the model later computes these logits first and compares them: it may have been
changed since, or lack an option that the model has.
"""

import base64
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sancho.config import ModelConfig
from sancho.errors import OtherFunction
from sancho.seeds import Purpose, generator

if TYPE_CHECKING:
    from sancho.model import GPT

Logits = Callable[[np.ndarray], np.ndarray]
"""A model as a function: (B, T) ids -> (B, T, V) logits."""
LONGEST = 256
"""Most ids in the window; to compute it, `mini` takes some 5 ms."""
PLACES = 16
"""Places of the window, besides its end, of which a logit is kept."""
TOLERANCE = 1e-3
"""How far rounding may move logits, as a fraction of the largest one, if that is more than 1."""
UNPROVEN = np.empty(0, np.float32)
"""The proof of a model whose logits are not finite, or of which an older file says that only a
changed sancho/model.py computes it."""


def proof_window(config: ModelConfig) -> np.ndarray:
    """Return the ids of which a proof has the logits, (1, T), T = min(block_size, LONGEST).

    They are drawn at random, and so depend on the size of the vocabulary alone.
    """
    length = min(config.block_size, LONGEST)
    numbers = generator(0, Purpose.PROOF).random(length)
    return (numbers * config.vocab_size).astype(np.int64)[None]


def proof_size(config: ModelConfig) -> int:
    """Return how many numbers a proof has."""
    return min(PLACES, proof_window(config).shape[1] - 1) + config.vocab_size


def proof_of(logits: Logits, config: ModelConfig) -> np.ndarray:
    """Return the proof of a model, (proof_size,) float32, or UNPROVEN.

    First come logits of n places that are spread evenly over the window, at each that of the id
    which follows in the window; then all logits after the last id.
    """
    ids = proof_window(config)
    with np.errstate(all="ignore"):  # what is not finite is seen in the result
        found = logits(ids)[0]  # (T, V)
    following = ids.shape[1] - 1
    count = min(PLACES, following)
    places = np.arange(count) * following // max(1, count)
    proof = np.concatenate((found[places, ids[0, places + 1]], found[-1])).astype(np.float32)
    return proof if np.isfinite(proof).all() else UNPROVEN


def require_proof(
    proof: np.ndarray | None, logits: Logits, config: ModelConfig, implementation: str
) -> None:
    """Raise OtherFunction where an implementation computes another function than the proof's.

    proof: None for a model of an older file, which is taken as it was.
    implementation: the name of its file, which the message begins with.
    """
    if proof is None:
        return
    if not len(proof):
        raise OtherFunction(f"no proof in the checkpoint says what {implementation} should compute")
    found = proof_of(logits, config)
    if not len(found):
        raise OtherFunction(f"{implementation} computes logits that are not finite")
    difference = np.abs(found - proof).max()
    if difference > TOLERANCE * max(1, np.abs(proof).max()):
        raise OtherFunction(
            f"{implementation} computes another function than the one that was trained: its logits "
            f"differ by up to {difference:.2g}"
        )


def in_base64(proof: np.ndarray) -> str:
    """Return a proof as files hold it: float32, the lowest byte first, in base64."""
    return base64.b64encode(proof.astype("<f4").tobytes()).decode()


def from_base64(text: str) -> np.ndarray:
    """Return the proof that a file holds. Raises ValueError for what is none."""
    return np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(np.float32)


def torch_logits(model: "GPT", ids: np.ndarray) -> np.ndarray:
    """Return the logits of model.py, (B, T) ids -> (B, T, V) float32.

    In evaluation mode, on the device of the model, and in float32 but for autocast.
    """
    import torch  # not above: to write on a CPU takes no PyTorch

    from sancho.model import evaluating

    with evaluating(model), torch.inference_mode():
        tensor = torch.from_numpy(ids).to(model.head.weight.device)
        return model(tensor).float().cpu().numpy()


def model_proof(model: "GPT") -> np.ndarray:
    """Return the proof of what model.py computes, in float32 on the CPU, or UNPROVEN."""
    import torch  # as above

    if model.head.weight.device.type != "cpu":
        model = deepcopy(model).to("cpu")
    with torch.autocast("cpu", enabled=False):
        return proof_of(partial(torch_logits, model), model.config)
