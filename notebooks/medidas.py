"""Medidas que se ponen al lado de las de un modelo: lo que se consigue contando, y más contexto.

Las usan los capítulos, la escalera y `benchmarks/baselines.py`.
"""

import numpy as np
import torch

from sancho.model import GPT
from sancho.training import character_losses

MAX_ORDER = 8
"""Letras de las secuencias más largas que se cuentan."""


def count_losses(train: np.ndarray, val: np.ndarray, vocab_size: int) -> np.ndarray:
    """Dar la pérdida en `val` de quien ha contado secuencias de 1, 2, … letras en `train`.

    train, val: ids de un solo texto, (n,). Da (MAX_ORDER,), en nats por carácter. Es el suavizado
    de Kneser-Ney interpolado, con un descuento para cada largo (Kneser y Ney, 1995; Chen y Goodman,
    1999): lo que le sobra a una secuencia pasa a la más corta, que cuenta qué letras distintas la
    preceden. Más corta que ninguna letra: 1/V.
    """
    ids = np.concatenate((train, val)).astype(np.int64)
    n_train = len(train)
    losses = []
    grams = ids  # el número de la secuencia de m letras que acaba en cada lugar
    contexts = np.zeros_like(ids)  # el de la que forman las m − 1 letras de antes de ese lugar
    lower = np.full(len(val), 1 / vocab_size)
    for m in range(1, MAX_ORDER + 1):
        places = np.arange(m - 1, n_train)
        losses.append(-np.log(_smoothed(grams, contexts, places, lower)).mean())
        before = np.concatenate(([0], grams[:-1]))
        longer = np.unique(before * vocab_size + ids, return_inverse=True)[1]  # de m + 1 letras
        last = np.full(longer.max() + 1, -1)  # el lugar de cada una de ellas en train
        last[longer[m:n_train]] = np.arange(m, n_train)
        lower = _smoothed(grams, contexts, last[last >= 0], lower)
        grams = longer
        contexts = before
    return np.array(losses)


def _smoothed(
    grams: np.ndarray, contexts: np.ndarray, places: np.ndarray, lower: np.ndarray
) -> np.ndarray:
    """Dar la probabilidad de las últimas letras del texto, con la que dan secuencias más cortas."""
    counts = np.bincount(grams[places], minlength=grams.max() + 1)
    once = (counts == 1).sum()
    twice = (counts == 2).sum()
    discount = once / (once + 2 * twice) if once else 0.5
    context_of = np.zeros(len(counts), dtype=np.int64)
    context_of[grams] = contexts
    total = np.bincount(context_of, counts)
    followers = np.bincount(context_of, counts > 0)
    new = grams[-len(lower) :]
    old = contexts[-len(lower) :]
    discounted = (counts[new] - discount).clip(0)
    probabilities = (discounted + discount * followers[old] * lower) / total[old].clip(1)
    return np.where(total[old] > 0, probabilities, lower)


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
    later = character_losses(model, ids[half:], threads=torch.get_num_threads())
    return np.where(early, np.pad(later, (half, 0)), losses)
