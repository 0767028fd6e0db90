"""El veredicto de algo escrito: si pasa y, si no, lo que se dice de ello.

De lo que no pasa se mira primero si tropieza con Python de un modo que no deja comprobarlo; si no,
se dice lo que da y lo que debería dar, y se busca la línea en que está el error.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import hoja
from buscar import busqueda, estructura
from comprobar.ideas import sin_nombrar
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
    """El de una pieza de una hoja: pasa, está en blanco, o algo se dice de ella."""

    pasa: bool = False
    en_blanco: str = ""
    """Por qué no cuenta como un fallo; vacío, si se ha escrito."""
    dicho: Mensaje | None = None
    """Lo que se dice sin comprobarla: le queda un hueco, o no está en su sitio."""
    donde: Donde = field(default_factory=lambda: Donde(""))
    pieza: Pieza | None = None
    texto: str = ""

    def mensaje(self, avisar: Callable[[], None] | None = None) -> Mensaje:
        """Dar lo que se dice de una pieza que no pasa.

        Antes de buscar la línea, que lleva unos segundos, se llama a `avisar`; sin él no se busca.
        """
        if self.dicho is not None:
            return self.dicho
        titulo, nombre = self.pieza.titulo, self.pieza.nombre
        error = _no_se_puede_ejecutar(self.pieza, self.texto) or lo_que_falla(titulo, self.texto)
        ejecutada = hoja.primera_linea(completa(titulo, self.texto)[0], nombre)
        donde = replace(self.donde, ejecutada=ejecutada)
        if avisar is None or _se_apoya_en_algo_que_falla(self.pieza, self.texto):
            return explicar(error, donde, _debida(nombre))
        return explicar(error, donde, _debida(nombre), _pasaria(self.pieza, self.texto), avisar)


def de_una_pieza(titulo: str, texto: str, primera: int = 0) -> Veredicto:
    """Dar el veredicto de una pieza de una hoja.

    `primera` es el número de su primera línea, si no es el de la hoja: en una celda es otro.
    """
    pieza = POR_TITULO[titulo]
    try:
        escrito = hoja.leer(texto, pieza.nombre)
        donde = Donde(escrito, primera or hoja.primera_linea(texto, pieza.nombre))
    except hoja.SinSitio as error:
        return Veredicto(dicho=Mensaje(f"no se encuentra: {error}"))
    if hoja.esta_en_blanco(escrito):
        return Veredicto(en_blanco="está en blanco")
    if (queda := estructura.hueco(escrito)) is not None:
        return Veredicto(dicho=queda, donde=donde)
    if not esta_escrita(titulo, escrito):
        return Veredicto(en_blanco=f"todavía no usa {pieza.con}")
    if _no_se_puede_ejecutar(pieza, texto) is None and lo_que_falla(titulo, texto) is None:
        return Veredicto(pasa=True)
    return Veredicto(donde=donde, pieza=pieza, texto=texto)


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
    dicho = detenido(error, donde)
    if (tropiezo := estructura.tropiezo(donde.escrito, debida, dicho.que)) is not None:
        return tropiezo
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


def _no_se_puede_ejecutar(pieza: Pieza, texto: str) -> Exception | None:
    """Dar por qué lo escrito de una pieza no se puede leer, o no la define."""
    nombre, escrito = pieza.nombre, hoja.leer(texto, pieza.nombre)
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
        with lo_mismo_cada_vez(), sin_nombrar():
            pieza.comprobar(modulo)
        return True

    return pasa_asi


def _debida(nombre: str) -> str:
    return hoja.leer(hoja.SOLUCION.read_text(encoding="utf-8"), nombre)
