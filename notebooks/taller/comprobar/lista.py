"""La lista de las piezas de mi_gpt.py: el capítulo de cada una, su comprobación y las que usa.

Una pieza se comprueba en la hoja entera, en la que están las demás que usa: las escritas, o las de la
solución si no pasan.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

import torch

import hoja
from comprobar import piezas
from comprobar.plazo import LIMITE, no_mas_de


@dataclass(frozen=True)
class Pieza:
    """Una pieza, el capítulo en que se escribe, su comprobación y las piezas que usa."""

    nombre: str
    capitulo: str
    """Su número, como se lee."""
    comprobar: Callable[[ModuleType], None]
    usa: tuple[str, ...] = ()
    con: str = ""
    """Lo que ha de nombrar para estar escrita, si es la segunda vez que se escribe."""

    @property
    def titulo(self) -> str:
        return f"{self.nombre}, con {self.con}" if self.con else self.nombre

    @property
    def peldano(self) -> int:
        """El de la escalera al que se añade: los capítulos 3 y 3½ comparten el suyo."""
        return int(self.capitulo.removesuffix("½"))

    @property
    def cuaderno(self) -> str:
        """Cómo empieza el nombre de su cuaderno."""
        return f"{self.peldano:02}{'b' if self.capitulo.endswith('½') else ''}_"


PIEZAS = (
    Pieza("Tokenizador", "1", piezas.comprobar_tokenizador),
    Pieza("Entrada", "2", piezas.comprobar_entrada),
    Pieza("mirar_atras", "3", piezas.comprobar_mirar_atras),
    Pieza("Atencion", "3½", piezas.comprobar_atencion, ("mirar_atras",)),
    Pieza("FeedForward", "4", piezas.comprobar_feed_forward),
    Pieza("LayerNorm", "5", piezas.comprobar_layer_norm),
    Pieza("Bloque", "6", piezas.comprobar_bloque, ("Atencion", "FeedForward", "LayerNorm")),
    Pieza("Gpt", "6", piezas.comprobar_gpt, ("Entrada", "Bloque")),
    Pieza("entropia_cruzada", "7", piezas.comprobar_entropia_cruzada),
    Pieza("paso_de_adam", "8", piezas.comprobar_paso_de_adam),
    Pieza("entrenar", "8", piezas.comprobar_entrenar, ("entropia_cruzada", "paso_de_adam")),
    Pieza("generar", "9", piezas.comprobar_generar, ("Tokenizador",)),
    Pieza("girar", "10", piezas.comprobar_girar),
    Pieza("igualar", "10", piezas.comprobar_igualar),
    Pieza(
        "Atencion",
        "10",
        piezas.comprobar_atencion_moderna,
        ("mirar_atras", "girar", "igualar"),
        con="girar",
    ),
    Pieza("guardar", "10", piezas.comprobar_guardar, ("Gpt", "Atencion, con girar", "Tokenizador")),
    Pieza(
        "abrir_caja",
        "10",
        piezas.comprobar_abrir_caja,
        ("Gpt", "Atencion, con girar", "Tokenizador"),
    ),
    Pieza("abrir_gpt2", "10", piezas.comprobar_abrir_gpt2, ("Gpt",)),
)
POR_TITULO = {pieza.titulo: pieza for pieza in PIEZAS}


def dependencias(pieza: Pieza) -> list[Pieza]:
    """Dar las piezas que usa una, y las que usan estas, de la primera a la última."""
    todas = {pieza}
    for otra in reversed(PIEZAS):
        if any(otra.titulo in cada.usa for cada in todas):
            todas.add(otra)
    return [otra for otra in PIEZAS if otra in todas - {pieza}]


@lru_cache(maxsize=256)
def lo_que_falla(titulo: str, texto: str) -> BaseException | None:
    """Dar lo que levanta la comprobación de una pieza de una hoja, o None si pasa."""
    pieza = POR_TITULO[titulo]
    try:
        with lo_mismo_cada_vez(), no_mas_de(LIMITE):
            pieza.comprobar(hoja.cargar(completa(titulo, texto)[0]))
    except (Exception, SystemExit) as error:
        return error
    return None


@contextmanager
def lo_mismo_cada_vez() -> Iterator[None]:
    """Comprobar con el mismo azar, con gradientes y sin los avisos de Python."""
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1605)
        yield


def pasa(titulo: str, texto: str) -> bool:
    """Decir si una pieza de una hoja está escrita y da lo que debe."""
    try:
        escrito = hoja.leer(texto, POR_TITULO[titulo].nombre)
    except hoja.SinSitio:
        return False
    return esta_escrita(titulo, escrito) and lo_que_falla(titulo, texto) is None


def esta_escrita(titulo: str, escrito: str) -> bool:
    """Decir si a una pieza no le queda ningún hueco y, la segunda vez, si usa lo que se le añade."""
    pieza = POR_TITULO[titulo]
    return not hoja.tiene_hueco(escrito) and pieza.con in escrito.replace(pieza.nombre, "")


def completa(titulo: str, texto: str) -> tuple[str, list[str]]:
    """Dar la hoja con la solución de lo que la pieza usa y no pasa, y los nombres de eso."""
    pieza = POR_TITULO[titulo]
    solucion = hoja.SOLUCION.read_text(encoding="utf-8")
    prestadas = []
    entera, _ = hoja.sanar(texto, pieza.nombre)
    for otra in dependencias(pieza):
        if otra.nombre != pieza.nombre and not pasa(otra.titulo, texto):
            entera = prestar(entera, otra.nombre, solucion)
            prestadas.append(otra.nombre)
    return entera, list(dict.fromkeys(prestadas))


def prestar(texto: str, nombre: str, solucion: str) -> str:
    """Dar la hoja con la solución de una pieza, y de lo que esta usa y está en blanco."""
    prestada = hoja.leer(solucion, nombre)
    for otra in hoja.trozos(solucion):
        if re.search(rf"\b{otra}\(", prestada) and hoja.tiene_hueco(hoja.leer(texto, otra)):
            texto = hoja.poner(texto, otra, hoja.leer(solucion, otra))
    return hoja.poner(texto, nombre, prestada)
