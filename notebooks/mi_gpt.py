"""Tu GPT, desde una página en blanco.

Aquí escribes, pieza por pieza, el programa entero del curso. Donde pone `raise NotImplementedError`
va tu código. En una terminal, desde la carpeta del proyecto,

    python -m pytest notebooks/test_mi_gpt.py

dice qué falta y qué no da lo que debe. Cuando está todo, tu programa abre el modelo que viene con el
proyecto y escribe con él. La solución está plegada al final del capítulo 12.

Se dan hechas RMSNorm, ReLU² y QK-norm, que el curso explica y no pide escribir.

Los ejes: B textos, T letras, C canales, H cabezas, D canales de una cabeza, V vocabulario.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

# --- lo que se da hecho -----------------------------------------------------------------------


@dataclass(frozen=True)
class Forma:
    """Las medidas de un GPT, y sus detalles. Los de fábrica son los de GPT-2, con ReLU."""

    vocab_size: int  # V
    block_size: int  # cuántas letras lee como mucho
    n_layer: int  # cuántos bloques
    n_head: int  # H
    n_embd: int  # C
    norm: str = "layernorm"  # o "rmsnorm"
    position: str = "learned"  # o "rope"
    activation: str = "relu"  # o "gelu", la de GPT-2, o "relu2"
    qk_norm: bool = False
    bias: bool = True
    tied: bool = False  # si el embedding y la cabeza de salida son la misma tabla


ACTIVACIONES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "relu2": lambda x: F.relu(x).square(),
}


def hacer_norma(forma: Forma) -> nn.Module:
    """La normalización de los C canales: LayerNorm, o RMSNorm sin ganancias."""
    if forma.norm == "layernorm":
        return nn.LayerNorm(forma.n_embd, bias=forma.bias)
    return nn.RMSNorm(forma.n_embd, eps=1e-6, elementwise_affine=False)


def igualar(x: Tensor) -> Tensor:
    """QK-norm: la RMSNorm de cada vector, (…, D) -> (…, D), para las consultas y las claves."""
    return F.rms_norm(x, x.shape[-1:], eps=1e-6)


NOMBRES_EN_GPT2 = {
    "token_embedding.": "wte.",
    "position_embedding.": "wpe.",
    "blocks.": "h.",
    "norm1.": "ln_1.",
    "attention.qkv.": "attn.c_attn.",
    "attention.proj.": "attn.c_proj.",
    "norm2.": "ln_2.",
    "feed_forward.expand.": "mlp.c_fc.",
    "feed_forward.proj.": "mlp.c_proj.",
    "norm.": "ln_f.",
    "head.": "wte.",
}
"""Cómo llama GPT-2 a cada parte. Su cabeza de salida es la tabla del embedding."""


# --- lo que escribes tú -----------------------------------------------------------------------


class Tokenizador:
    """De letras a números y al revés: el de una letra es su lugar en `caracteres`. Capítulo 1."""

    def __init__(self, caracteres: str) -> None:
        raise NotImplementedError

    def codificar(self, texto: str) -> Tensor:
        """Los números de las letras, (T,), enteros (torch.long)."""
        raise NotImplementedError

    def descodificar(self, ids: Tensor) -> str:
        """Las letras de unos números, (T,)."""
        raise NotImplementedError


def girar(x: Tensor) -> Tensor:
    """Posiciones rotatorias (RoPE): girar cada vector según su posición. Capítulo 3.

    x: (…, T, D). Los canales van por parejas, 2j y 2j + 1. En la posición t, la pareja (a, b) gira el
    ángulo θ = t / 10000^(2j / D): queda en (a · cos θ − b · sen θ, a · sen θ + b · cos θ).
    """
    raise NotImplementedError


def mirar_atras(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Una cabeza de atención, con su escala y su máscara causal. Capítulo 3.

    q, k y v: (…, T, D). Sale lo leído, (…, T, D).
    """
    raise NotImplementedError


class Atencion(nn.Module):
    """Atención de varias cabezas. Capítulos 3 y 6.

    Sus partes: `qkv`, una nn.Linear de C a 3C (primero las consultas de todas las cabezas, después
    las claves y después los valores), y `proj`, de C a C. Con sesgo o sin él: forma.bias.
    """

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C). Repartir en cabezas, mirar atrás con cada una, juntarlas y `proj`.

        Si forma.position es "rope", las consultas y las claves se giran; después, si forma.qk_norm,
        se igualan.
        """
        raise NotImplementedError


class FeedForward(nn.Module):
    """Ensanchar, activar y volver. Capítulo 4.

    Sus partes: `expand`, una nn.Linear de C a 4C, y `proj`, de 4C a C, con sesgo o sin él.
    """

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C), con la activación que dice la forma."""
        raise NotImplementedError


class Bloque(nn.Module):
    """Las dos subcapas, cada una con su normalización delante y sumada a lo que había. Capítulo 6.

    Sus partes: `norm1`, `attention`, `norm2` y `feed_forward`.
    """

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)"""
        raise NotImplementedError


class Gpt(nn.Module):
    """El modelo entero. Capítulo 6.

    Sus partes: `token_embedding`; `position_embedding`, solo si forma.position es "learned";
    `blocks`, una lista de PyTorch (nn.ModuleList); `norm`; y `head`, la cabeza de salida, una
    nn.Linear sin sesgo. Si forma.tied, `head.weight` es `token_embedding.weight`, la misma tabla.
    Además guarda la forma, en `forma`.

    Los embeddings nacen al azar, con una desviación típica de 0.2 (nn.init.normal_), como en la
    escalera; lo demás, como lo hace nacer PyTorch.
    """

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, V): los logits de la letra que sigue a cada una."""
        raise NotImplementedError


def perdida(logits: Tensor, objetivos: Tensor) -> Tensor:
    """La media de −ln p de las letras correctas: (B, T, V) y (B, T) -> (). Capítulos 0 y 7."""
    raise NotImplementedError


def paso_de_adam(
    w: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    t: int,
    tasa: float,
    beta1: float = 0.9,
    beta2: float = 0.99,
) -> tuple[Tensor, Tensor, Tensor]:
    """Un paso de Adam: los parámetros nuevos y las dos memorias nuevas, (w, m, v). Capítulo 8.

    w: los parámetros. g: su gradiente. m y v: las memorias de g y de su cuadrado. t: el número del
    paso, desde 1. A la raíz se le suma 1e-8, para no dividir entre cero.
    """
    raise NotImplementedError


def entrenar(
    modelo: nn.Module, ids: Tensor, pasos: int, lote: int, ventana: int, tasa: float
) -> list[float]:
    """Entrenar el modelo con tu Adam, y dar la pérdida de cada paso. Capítulo 8.

    ids: el texto, (N,). Cada paso lee `lote` ventanas de `ventana` letras, que empiezan al azar
    (torch.randint). La tasa de un paso sube en los 50 primeros hasta `tasa`, y a la vez baja en línea
    recta hasta cero: en el paso t, desde 1, es tasa · min(t / 50, 1) · (1 − (t − 1) / pasos).
    Un parámetro se cambia sin grabarlo: with torch.no_grad(): parametro.copy_(nuevo).
    """
    raise NotImplementedError


@torch.inference_mode()
def generar(
    modelo: nn.Module,
    tokenizador: Tokenizador,
    comienzo: str,
    cuantas: int,
    temperatura: float = 1.0,
    semilla: int = 1605,
) -> str:
    """Las `cuantas` letras con que el modelo sigue el comienzo. Capítulo 9.

    Con temperatura 0, siempre la más probable; con otra, se dividen por ella los logits y se sortea
    (torch.multinomial, con un torch.Generator que lleva la semilla). De lo escrito, el modelo lee
    como mucho las modelo.forma.block_size últimas letras.
    """
    raise NotImplementedError


def abrir_caja(ruta: str | Path) -> tuple[Gpt, Tokenizador]:
    """El modelo de un archivo de train.py, y su tokenizador: así se abre la caja. Capítulo 12.

    El archivo se abre con safe_open(ruta, "pt"). Su metadata()["content"] es un texto en JSON: en
    "characters" están las letras, y en "model", las medidas y los detalles, con los nombres de Forma
    (pero `tied` se llama ahí "tie_embeddings", y sobran otros). Cada tensor se lee con get_tensor, y
    keys() da los nombres: los tuyos con "model." delante. Vienen en 16 bits; pásalos con .float().
    """
    raise NotImplementedError


def abrir_gpt2(parametros: dict[str, Tensor], n_head: int) -> Gpt:
    """Tu modelo, con los parámetros de un GPT-2. Capítulo 12.

    Sus nombres son los de NOMBRES_EN_GPT2, a veces con "transformer." delante. Las medidas las dicen sus
    tablas: "wte.weight" es (V, C), "wpe.weight" es (block_size, C), y hay tantos bloques como
    "h.0.ln_1.weight", "h.1.ln_1.weight"… GPT-2 usa GELU y una sola tabla para el embedding y la
    cabeza de salida, y guarda traspuestas las matrices cuyo nombre lleva ".c_".
    """
    raise NotImplementedError
