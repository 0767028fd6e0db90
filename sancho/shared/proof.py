"""The proof in a checkpoint: logits of the model that was trained, after a fixed window of ids.

Every implementation that opens the checkpoint later computes these logits first and compares them,
because it may have been changed since, or lack an option that the model has.
"""

import base64
from collections.abc import Callable

import numpy as np

from sancho.config import ModelConfig
from sancho.errors import OtherFunction
from sancho.machine.seeds import Purpose, generator

Logits = Callable[[np.ndarray], np.ndarray]
"""A model as a function: (B, T) ids -> (B, T, V) logits."""
LONGEST = 256
"""The largest number of ids in the window, which `mini` computes in some 5 ms."""
PLACES = 16
"""The number of places in the window, besides its end, of which a logit is kept."""
TOLERANCE = 1e-3
"""How far rounding may move logits, as a fraction of the largest one, if that is more than 1."""
UNPROVEN = np.empty(0, np.float32)
"""The proof of a model whose logits are not finite."""


def proof_window(config: ModelConfig) -> np.ndarray:
    """Return the ids after which a proof has the logits, (1, T), T = min(block_size, LONGEST).

    They are drawn at random, and so depend only on T and on the size of the vocabulary.
    """
    length = min(config.block_size, LONGEST)
    numbers = generator(0, Purpose.PROOF).random(length)
    return (numbers * config.vocab_size).astype(np.int64)[None]


def proof_size(config: ModelConfig) -> int:
    """Return how many numbers a proof has."""
    return min(PLACES, proof_window(config).shape[1] - 1) + config.vocab_size


def proof_of(logits: Logits, config: ModelConfig) -> np.ndarray:
    """Return the proof of a model, (proof_size,) float32, or UNPROVEN.

    First come n logits, at places that are spread evenly over the window: at each place, the logit
    of the id that follows in the window. Then come all logits after the last id.
    """
    ids = proof_window(config)
    with np.errstate(all="ignore"):  # the result is checked for numbers that are not finite
        found = logits(ids)[0]  # (T, V)
    following = ids.shape[1] - 1
    count = min(PLACES, following)
    places = np.arange(count) * following // max(1, count)
    proof = np.concatenate((found[places, ids[0, places + 1]], found[-1])).astype(np.float32)
    return proof if np.isfinite(proof).all() else UNPROVEN


def require_proof(
    proof: np.ndarray | None, logits: Logits, config: ModelConfig, implementation: str
) -> None:
    """Raise OtherFunction if an implementation does not compute the logits of the proof.

    proof: None for a model that has none, which is not checked.
    implementation: the name of its file, with which the message begins.
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
    """Return the proof that a file holds. Raises ValueError if the text is not a proof."""
    return np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(np.float32)
