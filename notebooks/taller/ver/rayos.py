"""Rayos X de un modelo: los pesos de la atención, la corriente residual y la lente de logits.

Cada función ejecuta el modelo y apunta con ganchos (*hooks*) lo que pasa por dentro. Nada cambia en
él: el dropout se apaga mientras tanto, y después todo queda como estaba.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from sancho.model import GPT, MultiHeadAttention


def attention_weights(modelo: GPT, ids: Tensor) -> Tensor:
    """Dar los pesos de cada cabeza de atención: ids (B, T) -> (n_layer, B, H, T, T).

    La fila t de una cabeza tiene sus pesos para los caracteres hasta el t, que suman 1.
    """

    def pesos(atencion: MultiHeadAttention, recibe: tuple[Tensor, ...], _: Tensor) -> Tensor:
        q, k, _ = atencion.queries_keys_values(recibe[0])  # (B, H, T, D)
        puntuaciones = q @ k.mT / math.sqrt(atencion.head_size)  # (B, H, T, T)
        futuro = torch.ones_like(puntuaciones, dtype=torch.bool).triu(1)
        return puntuaciones.masked_fill(futuro, -math.inf).softmax(-1)

    atenciones = (modulo for modulo in modelo.modules() if isinstance(modulo, MultiHeadAttention))
    return torch.stack(_espiar(modelo, ids, atenciones, pesos))


def residual_streams(modelo: GPT, ids: Tensor) -> Tensor:
    """Dar la corriente residual antes del primer bloque y tras cada uno: (n_layer + 1, B, T, C)."""
    antes = _espiar(modelo, ids, [modelo.blocks[0]], lambda _, recibe, __: recibe[0])
    despues = _espiar(modelo, ids, modelo.blocks, lambda _, __, entrega: entrega)
    return torch.stack(antes + despues)


@torch.inference_mode()
def layer_logits(modelo: GPT, ids: Tensor) -> Tensor:
    """Dar los logits que la cabeza de salida saca de cada corriente: (n_layer + 1, B, T, V).

    Los últimos son los del modelo. Es la lente de logits: nostalgebraist 2020, Interpreting GPT.
    """
    return modelo.head(modelo.norm(residual_streams(modelo, ids)))


@torch.inference_mode()
def _espiar(
    modelo: GPT, ids: Tensor, modulos: Iterable[nn.Module], apuntar: Callable[..., Tensor]
) -> list[Tensor]:
    """Ejecutar el modelo y dar `apuntar(modulo, recibe, entrega)` de cada uno de los módulos."""
    apuntado: list[Tensor] = []

    def gancho(modulo: nn.Module, recibe: tuple[Tensor, ...], entrega: Tensor) -> None:
        apuntado.append(apuntar(modulo, recibe, entrega))

    aprendia = modelo.training
    asas = [modulo.register_forward_hook(gancho) for modulo in modulos]
    try:
        modelo.eval()
        modelo(ids)
    finally:
        modelo.train(aprendia)
        for asa in asas:
            asa.remove()
    return apuntado
