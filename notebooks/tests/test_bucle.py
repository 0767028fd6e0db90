"""La comprobación del bucle del capítulo 1 dice qué falta o qué va en otro orden."""

import math
from collections.abc import Iterable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_notebooks import code_cells, read
from torch import Tensor, nn

import hoja
from comprobar.piezas import BORRA_ANTES, NO_OLVIDA, SIN_PASO, Apuntado

BORRAR = "        optimizador.zero_grad()\n"
ATRAS = "        perdida_del_lote.backward()\n"
MOVER = "        optimizador.step()\n"
APLANADOS = "modelo(leido).flatten(0, 1)"
MAL = (
    (APLANADOS, f"{APLANADOS}.softmax(-1)", "pasa dos veces por la softmax"),
    (BORRAR + ATRAS, ATRAS + BORRAR, BORRA_ANTES),
    (BORRAR, "", NO_OLVIDA),
    (ATRAS, "", "no calcula el gradiente: falta backward"),
    (MOVER, "", SIN_PASO),
    (ATRAS + MOVER, MOVER + ATRAS, "da el paso antes de calcular el gradiente"),
)


@pytest.fixture(scope="module")
def celdas() -> tuple[str, dict]:
    """La solución del turno, y lo que hay donde está su comprobación."""
    por_nombre = {celda.id: celda.source for celda in code_cells(read("01_tokens.ipynb"))}
    espacio = {"torch": torch, "nn": nn, "F": F, "Tensor": Tensor, "math": math, "np": np}
    espacio |= {"Apuntado": Apuntado, "Iterable": Iterable}
    comprobar, _, _ = por_nombre["01-turno-bucle-comprobar"].partition("\nbucle = usar")
    exec(comprobar, espacio)
    solucion = hoja.leer(hoja.TURNOS.read_text(encoding="utf-8"), "bucle")
    return solucion, espacio


def comprobar(fuente: str, espacio: dict) -> None:
    exec(fuente, espacio)
    espacio["comprobar_bucle"](espacio["bucle_solucion"])


@pytest.mark.parametrize(("bien", "mal", "frase"), MAL)
def test_lo_que_falta_o_va_en_otro_orden_se_nombra(bien, mal, frase, celdas):
    solucion, espacio = celdas
    assert bien in solucion
    with pytest.raises(AssertionError) as fallo:
        comprobar(solucion.replace(bien, mal), espacio)
    assert str(fallo.value).startswith(frase)


def test_se_puede_borrar_detras_del_paso(celdas):
    solucion, espacio = celdas
    comprobar(solucion.replace(BORRAR, "").replace(MOVER, MOVER + BORRAR), espacio)
