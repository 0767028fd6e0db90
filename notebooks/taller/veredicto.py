"""El veredicto de algo escrito: si pasa y, si no, lo que se dice de ello.

De lo que no pasa se mira primero si tropieza con Python de un modo que no deja comprobarlo; si no,
se dice lo que da y lo que debería dar, y se busca la línea en que está el error.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import hoja
from buscar import busqueda, estructura
from comprobar.lista import (
    POR_TITULO,
    Pieza,
    completa,
    dependencias,
    esta_escrita,
    lo_mismo_cada_vez,
    lo_que_falla,
    pasa,
    prestar,
)
from decir.frases import detenido
from decir.mensaje import Donde, Mensaje


@dataclass(frozen=True)
class Veredicto:
    """Si una pieza está en blanco o, si no pasa, lo que se dice de ella."""

    en_blanco: str = ""
    """Por qué no cuenta como un fallo; vacío, si se ha escrito."""
    mensaje: Mensaje | None = None
    donde: Donde | None = None

    @property
    def pasa(self) -> bool:
        return not self.en_blanco and self.mensaje is None


def de_una_pieza(
    titulo: str, texto: str, primera: int = 0, avisar: Callable[[], None] | None = None
) -> Veredicto:
    """Dar el veredicto de una pieza de una hoja.

    `primera` es el número de su primera línea, si no es el de la hoja: en una celda es otro. Antes de
    buscar, que lleva unos segundos, se llama a `avisar`; sin él no se busca.
    """
    pieza = POR_TITULO[titulo]
    try:
        escrito = hoja.leer(texto, pieza.nombre)
        donde = Donde(escrito, primera or hoja.primera_linea(texto, pieza.nombre))
    except hoja.SinSitio as error:
        return Veredicto(mensaje=Mensaje(f"no se encuentra: {error}"))
    if hoja.esta_en_blanco(escrito):
        return Veredicto("está en blanco")
    if (queda := estructura.hueco(escrito)) is not None:
        return Veredicto(mensaje=queda, donde=donde)
    if not esta_escrita(titulo, escrito):
        return Veredicto(f"todavía no usa {pieza.con}")
    error = _no_se_puede_ejecutar(pieza.nombre, escrito) or lo_que_falla(titulo, texto)
    if error is None:
        return Veredicto()
    donde = replace(donde, ejecutada=hoja.primera_linea(completa(titulo, texto)[0], pieza.nombre))
    se_busca = avisar is not None and not _se_apoya_en_algo_que_falla(pieza, texto)
    pasaria = _pasaria(pieza, texto) if se_busca else None
    return Veredicto(
        mensaje=explicar(error, donde, _debida(pieza.nombre), pasaria, avisar), donde=donde
    )


def explicar(
    error: BaseException,
    donde: Donde,
    debida: str,
    pasaria: Callable[[str], bool] | None = None,
    avisar: Callable[[], None] | None = None,
) -> Mensaje:
    """Dar lo que se dice de algo que no pasa.

    `debida` es la solución; `pasaria` dice si lo escrito de otro modo pasa, y sin él no se busca.
    """
    if (tropiezo := estructura.tropiezo(donde.escrito, debida)) is not None:
        return tropiezo
    dicho = detenido(error, donde)
    if pasaria is None or estructura.leer(donde.escrito) is None:
        return dicho
    if avisar is not None:
        avisar()
    hallado = _buscar(donde.escrito, debida, pasaria, dicho.linea)
    if hallado is None:
        return dicho
    return replace(hallado, que=dicho.que)


@lru_cache(maxsize=64)
def _buscar(
    escrito: str, debida: str, pasaria: Callable[[str], bool], linea: int
) -> Mensaje | None:
    return busqueda.buscar(escrito, debida, pasaria, linea)


def _no_se_puede_ejecutar(nombre: str, escrito: str) -> Exception | None:
    """Dar por qué lo escrito no se puede leer, o no define la pieza."""
    try:
        hoja.compilar(escrito)
    except (SyntaxError, ValueError) as error:
        return error
    if re.search(rf"^((def|class) {nombre}\b|{nombre} *=)", escrito, re.MULTILINE):
        return None
    definidos = re.findall(r"^(?:def|class) (\w+)", escrito, re.MULTILINE)
    if definidos:
        return AssertionError(
            f"debajo de su línea se define {definidos[-1]}: ha de llamarse {nombre}"
        )
    return AssertionError(f"no está debajo de su línea, «# --- {nombre} (capítulo …) ---»")


def _se_apoya_en_algo_que_falla(pieza: Pieza, texto: str) -> bool:
    """Decir si usa otra pieza que está escrita y no pasa: el error puede no estar en esta."""
    for otra in dependencias(pieza):
        escrita = hoja.leer(texto, otra.nombre)
        if esta_escrita(otra.titulo, escrita) and not pasa(otra.titulo, texto):
            return True
    return False


@lru_cache(maxsize=64)
def _pasaria(pieza: Pieza, texto: str) -> Callable[[str], bool]:
    """Dar una función que dice si una pieza de esta hoja, escrita de otro modo, pasa."""
    prestada = prestar(texto, pieza.nombre, hoja.SOLUCION.read_text(encoding="utf-8"))
    modulo = hoja.cargar(completa(pieza.titulo, prestada)[0])

    def pasa_asi(escrito: str) -> bool:
        codigo = hoja.compilar(escrito)
        modulo.__dict__.pop(pieza.nombre, None)
        exec(codigo, modulo.__dict__)
        with lo_mismo_cada_vez():
            pieza.comprobar(modulo)
        return True

    return pasa_asi


def _debida(nombre: str) -> str:
    return hoja.leer(hoja.SOLUCION.read_text(encoding="utf-8"), nombre)
