"""BPE (*byte pair encoding*), como en la rama otros_tokens: la usan su lámina y una ficha."""

import re
from collections import Counter
from itertools import pairwise


def cortar(texto: str) -> list[str]:
    """Partir en palabras con su espacio delante, signos y blancos, sin perder nada."""
    return re.findall(r" ?\w+| ?[^\w\s]+|\s", texto)


def fundir(tokens: tuple[str, ...], par: tuple[str, str]) -> tuple[str, ...]:
    """Juntar en un token cada aparición de la pareja, de izquierda a derecha."""
    nuevos: list[str] = []
    pendientes = list(tokens)
    while pendientes:
        juntas = tuple(pendientes[:2]) == par
        nuevos.append("".join(pendientes[: 1 + juntas]))
        del pendientes[: 1 + juntas]
    return tuple(nuevos)


def aprender(palabras: Counter[str], cuantas: int) -> list[tuple[str, str, int]]:
    """Aprender fusiones mientras una pareja se repita; dar cada una y las veces que se hizo.

    Entre parejas iguales gana la última por orden alfabético.
    """
    troceo, aprendidas = {palabra: tuple(palabra) for palabra in palabras}, []
    for _ in range(cuantas):
        pares: Counter[tuple[str, str]] = Counter()
        for palabra, tokens in troceo.items():
            for par in pairwise(tokens):
                pares[par] += palabras[palabra]
        mejor = max(pares, key=lambda par: (pares[par], par), default=None)
        if mejor is None or pares[mejor] < 2:
            break
        hechas = 0
        for palabra, tokens in troceo.items():
            troceo[palabra] = fundir(tokens, mejor)
            hechas += palabras[palabra] * (len(tokens) - len(troceo[palabra]))
        aprendidas.append((*mejor, hechas))
    return aprendidas


def trocear(palabra: str, fusiones: list[tuple[str, str, int]]) -> tuple[str, ...]:
    """Partir una palabra en tokens: las fusiones, en el orden en que se aprendieron."""
    tokens = tuple(palabra)
    for a, b, _ in fusiones:
        tokens = fundir(tokens, (a, b))
    return tokens
