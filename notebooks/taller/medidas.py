"""La pérdida de un modelo con más contexto. La usan los capítulos y `benchmarks/baselines.py`."""

import numpy as np

from sancho.loss import character_losses
from sancho.model import GPT


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
