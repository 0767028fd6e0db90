"""La pérdida de un modelo con más contexto, y la de quien cuenta (`sancho/measures.py`).

Las usan los capítulos, la escalera y `benchmarks/baselines.py`.
"""

import numpy as np

from sancho import measures
from sancho.loss import character_losses
from sancho.measures import MAX_ORDER
from sancho.model import GPT

__all__ = ["MAX_ORDER", "count_losses", "sliding_losses"]


def count_losses(train: np.ndarray, val: np.ndarray, vocab_size: int) -> np.ndarray:
    """Dar la pérdida media de quien cuenta, con 0, 1, 2… letras delante: (MAX_ORDER,), en nats."""
    return measures.count_losses(train, val, vocab_size).mean(1)


def sliding_losses(model: GPT, ids: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Dar la pérdida de cada letra con al menos media ventana delante: (n − 1,), en nats.

    losses: lo que da `character_losses(model, ids)`. Las de la primera mitad de una ventana se
    cambian por las de otra que empieza media ventana antes; las primeras del texto se quedan.
    """
    block = model.config.block_size
    half = block // 2
    places = np.arange(len(losses))
    early = (places % block < half) & (places >= half)
    if not early.any():
        return losses
    later = character_losses(model, ids[half:])
    return np.where(early, np.pad(later, (half, 0)), losses)
