"""The weights of a page: rounded, laid out, compressed; and how much loss that costs.

They are laid out as planes: the first byte of every number, then the second one of every number,
and so on. Bytes with sign and exponent are much alike, and compress well beside each other. After
the weights come the planes of the keys of n-grams, if there are any: of their differences, which
are small, for keys ascend.
"""

import base64
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from sancho.checkpoint import Checkpoint
from sancho.config import ModelConfig
from sancho.errors import UserError
from sancho.shared.weights import NGRAM_KEYS, weight_shapes
from sancho.text.corpus import Corpus

PagePrecision = Literal["float16", "float32"]
TYPES: dict[PagePrecision, np.dtype] = {"float16": np.dtype("<f2"), "float32": np.dtype("<f4")}
MEASURED = 20_000
"""Characters to measure the loss with."""


@dataclass(frozen=True, kw_only=True)
class PackingCost:
    """The loss on some text before and after packing, in nats per character."""

    text: str
    """Which text."""
    characters: int
    """How many of them were predicted."""
    before: float
    after: float


def rounded(saved: Checkpoint, precision: PagePrecision) -> Checkpoint:
    """Return the checkpoint with the weights that a page of this precision holds.

    The keys of n-grams stay whole numbers. Raises UserError where a weight is too large for half
    precision.
    """
    weights = dict(saved.weights)
    for name, array in saved.weights.items():
        if name == NGRAM_KEYS:
            continue
        with np.errstate(over="ignore"):
            weights[name] = array.astype(TYPES[precision]).astype(np.float32)
        if not np.isfinite(weights[name]).all():
            raise UserError(
                f"weight {name} reaches {np.abs(array).max():.3g}, too much for half precision; "
                "use --precision float32"
            )
    return replace(saved, weights=weights, proof=None)


def stored_shapes(config: ModelConfig) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and shape of each weight in the page, in their order.

    Without a tied head, and without the keys of n-grams, which come after them all.
    """
    shapes = weight_shapes(config)
    shapes.pop(NGRAM_KEYS, None)
    if config.tie_embeddings:
        del shapes["head.weight"]
    return list(shapes.items())


def pack(saved: Checkpoint, precision: PagePrecision) -> str:
    """Return the weights in base64: their numbers' bytes, plane after plane, compressed."""
    names = [name for name, _ in stored_shapes(saved.model_config)]
    numbers = np.concatenate([saved.weights[name].reshape(-1) for name in names])
    keys = saved.weights.get(NGRAM_KEYS, np.empty(0, np.int32))
    differences = np.diff(keys, prepend=np.int32(0))  # modulo 2^32
    content = _planes(numbers.astype(TYPES[precision])) + _planes(differences.astype("<i4"))
    return base64.b64encode(zlib.compress(content, 9)).decode()


def _planes(numbers: np.ndarray) -> bytes:
    """Return the first bytes of (n,) numbers, then the second ones, and so on."""
    return numbers.view(np.uint8).reshape(len(numbers), numbers.itemsize).T.tobytes()


def packing_cost(
    saved: Checkpoint, packed: Checkpoint, ids: np.ndarray, text: str
) -> PackingCost | None:
    """Return what packing costs on a text, (n,) ids; None where there is nothing to predict."""
    if len(ids) < 2:
        return None
    return PackingCost(
        text=text,
        characters=len(ids) - 1,
        before=_loss(saved, ids),
        after=_loss(packed, ids),
    )


def _loss(saved: Checkpoint, ids: np.ndarray) -> float:
    """Return the validation loss on (n,) ids, as loss.validation_loss(), without PyTorch."""
    model = saved.build_numpy()
    T = saved.model_config.block_size
    ids = ids.astype(np.int64)
    total = 0.0
    for first in range(0, len(ids) - 1, T):
        window = ids[first : first + T + 1]
        total += _cross_entropy(model.logits(window[None, :-1])[0], window[1:])
    return total / (len(ids) - 1)


def _cross_entropy(logits: np.ndarray, targets: np.ndarray) -> float:
    """Return the sum of −ln p(target): (T, V), (T,) -> nats."""
    logits = logits.astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    normaliser = np.log(np.exp(logits).sum(-1))
    return float((normaliser - logits[np.arange(len(targets)), targets]).sum())


def measuring_text(
    saved: Checkpoint, own: Corpus | None, data: str | Path
) -> tuple[str, np.ndarray] | None:
    """Return a name and ids, (n,): of the validation part of the model's own text if that is here.

    Else of the sample text in `data`; None where that is missing too.
    """
    if own is not None:
        text = own.tokenizer.decode(own.val[:MEASURED])
        # The model may have its characters in another order than its text.
        return own.name, saved.tokenizer.look_up(text)
    try:
        text = Path(data, "apocrifo.txt").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return "apocrifo", saved.tokenizer.encode(text[:MEASURED], "skip")
