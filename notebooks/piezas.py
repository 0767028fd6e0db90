"""Piezas que se tocan: cada función devuelve una, y el cuaderno la muestra.

Una pieza es una página pequeña y completa dentro de un marco (`iframe`): no necesita ni el kernel
ni la red. Donde no dejan entrar marcos o programas, queda en su lugar una figura quieta.
"""

import base64
import html
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

import estilo
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from sancho.doors import page

CARPETA = Path(__file__).resolve().parent / "piezas"
CLASE = "sancho-pieza"


class Pieza:
    """Una pregunta, una página que se toca, una figura que la sustituye y una respuesta plegada."""

    def __init__(self, titulo: str, figura: Figure, alt: str, pregunta: str, respuesta: str):
        self.titulo, self.alt = titulo, alt
        self.pregunta, self.respuesta = pregunta, respuesta
        png = io.BytesIO()
        figura.savefig(png, format="png")
        self.png = base64.b64encode(png.getvalue()).decode()

    def html(self) -> str:
        pregunta, respuesta, alt = map(html.escape, (self.pregunta, self.respuesta, self.alt))
        return (
            f'<div class="{CLASE}"><p><b>Pruébalo.</b> {pregunta}</p>'
            f'<img alt="{alt}" src="data:image/png;base64,{self.png}">'
            f"<details><summary>Respuesta</summary><p>{respuesta}</p></details></div>"
        )

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": f"{self.titulo}: {self.pregunta}"}


def quieta(titulo: str) -> Figure:
    with plt.rc_context():
        estilo.usar()
        figura = Figure(figsize=(7.5, 3))
        figura.subplots().set(title=titulo)
    return figura


def bpe(
    texto: str,
    fusiones: int,
    pregunta: str = "¿Qué se une primero?",
    respuesta: str = "Lo más frecuente.",
) -> Pieza:
    return Pieza("BPE", quieta("BPE"), "BPE", pregunta, respuesta)


def giro(pregunta: str = "¿De qué depende el producto?", respuesta: str = "De m − n.") -> Pieza:
    return Pieza("Giro", quieta("Giro"), "Giro", pregunta, respuesta)


def softmax(
    puntuaciones: Sequence[float],
    etiquetas: Sequence[str],
    pregunta: str = "¿Qué hace la temperatura?",
    respuesta: str = "Afila o aplana.",
) -> Pieza:
    return Pieza("Softmax", quieta("Softmax"), "Softmax", pregunta, respuesta)


def sorteo(
    puntuaciones: Sequence[float],
    etiquetas: Sequence[str],
    pregunta: str = "¿Qué queda?",
    respuesta: str = "Depende.",
) -> Pieza:
    return Pieza("Sorteo", quieta("Sorteo"), "Sorteo", pregunta, respuesta)


def atencion(
    texto: str,
    pesos: np.ndarray,
    capa: int = 0,
    pregunta: str = "¿A dónde mira?",
    respuesta: str = "Atrás.",
) -> Pieza:
    return Pieza("Atención", quieta("Atención"), "Atención", pregunta, respuesta)


def curva(
    pasos: Sequence[int],
    entrenamiento: Sequence[float],
    validacion: Sequence[float],
    muestras: Sequence[tuple[int, str]],
    pregunta: str = "¿Cuándo aprende palabras?",
    respuesta: str = "Pronto.",
) -> Pieza:
    return Pieza("Curva", quieta("Curva"), "Curva", pregunta, respuesta)


def descenso(pregunta: str = "¿Cuándo diverge?", respuesta: str = "Al pasar de 2/c.") -> Pieza:
    return Pieza("Descenso", quieta("Descenso"), "Descenso", pregunta, respuesta)
