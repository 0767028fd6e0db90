"""Lo que se dice de algo que no pasa: qué da, en qué línea está el error y, si se pide, el arreglo."""

import traceback
from dataclasses import dataclass

from comprobar.plazo import NoAcaba


@dataclass(frozen=True)
class Mensaje:
    """Cada cosa que se dice, una vez."""

    que: str
    linea: int = 0
    """La de lo escrito, desde 1; 0, si no se sabe."""
    de_que_clase: str = ""
    """Lo que le pasa a esa línea, sin decir qué va en ella: «hay un signo por otro»."""
    arreglo: str = ""
    """Lo que va en esa línea; vacío, si no se sabe o no es de fiar."""
    es_de_python: bool = False
    """Un tropiezo con Python y no con la idea: su arreglo se dice a la primera."""


@dataclass(frozen=True)
class Donde:
    """Dónde está lo escrito: para decir el número de una línea, y la línea."""

    escrito: str
    primera: int = 1
    """El número de su primera línea, en la hoja o en la celda."""
    ejecutada: int = 1
    """El de la misma línea en lo que se ejecuta, que puede llevar otras piezas."""
    archivo: str = "mi_gpt.py"

    def __call__(self, linea: int) -> str:
        """Decir una línea con su número y tal como está; vacío, si no es de lo escrito."""
        lineas = self.escrito.splitlines()
        if not 1 <= linea <= len(lineas):
            return ""
        return f"línea {self.primera + linea - 1}: «{lineas[linea - 1].strip()}»"

    def de_un_error(self, error: BaseException) -> int:
        """La línea de lo escrito en que algo se ha detenido, o 0 si no es de ahí."""
        if isinstance(error, SyntaxError):
            return error.lineno or 0
        cuantas = len(self.escrito.splitlines())
        visto = error.__cause__ if isinstance(error, NoAcaba) else error
        for paso in reversed(traceback.extract_tb(visto.__traceback__)):
            linea = (paso.lineno or 0) - self.ejecutada + 1
            if paso.filename == self.archivo and 1 <= linea <= cuantas:
                return linea
        return 0


def en_lineas(mensaje: Mensaje, donde: Donde, con_arreglo: bool = False) -> list[str]:
    """Dar lo que se dice, en dos líneas: qué y dónde; y en otra el arreglo, si se pide."""
    dichas = [mensaje.que]
    if linea := donde(mensaje.linea):
        dichas.append(f"{linea}: {mensaje.de_que_clase}" if mensaje.de_que_clase else linea)
    if mensaje.arreglo and (con_arreglo or mensaje.es_de_python):
        dichas.append(f"arreglo: {mensaje.arreglo}")
    return dichas
