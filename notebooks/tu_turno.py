"""Lo que escribe quien aprende: se usa si pasa su comprobación; si no, se usa la solución.

En un capítulo, cada turno son tres celdas, con los nombres siempre así:

    def mi_softmax(x): ...              # la firma y `# tu código` (etiqueta `tu-turno`)
    def softmax_solucion(x): ...        # plegada (etiqueta `solucion`)
    def comprobar_softmax(softmax): ... # `assert` con un mensaje que dice qué falla
    softmax = usar(mi_softmax, softmax_solucion, comprobar_softmax)
"""

from collections.abc import Callable
from functools import wraps

import torch


class Vacia(Exception):
    """La función no devuelve nada todavía."""


def entregada(mia: Callable) -> Callable:
    """Dar la función, que protesta si devuelve None."""

    @wraps(mia)
    def llamar(*args, **opciones):
        resultado = mia(*args, **opciones)
        if resultado is None:
            raise Vacia
        return resultado

    return llamar


def usar(mia: Callable, solucion: Callable, comprobar: Callable[[Callable], None]) -> Callable:
    """Dar `mia` si pasa `comprobar`, y si no `solucion`; una línea dice cuál, y por qué."""
    with torch.random.fork_rng(devices=[]):  # comprobar no cambia lo que se sortee después
        comprobar(solucion)
        try:
            comprobar(entregada(mia))
        except Vacia:
            motivo = "no devuelve nada todavía"
        except AssertionError as error:
            motivo = str(error) or "no da lo que debe"
        except Exception as error:
            motivo = f"se detiene con {type(error).__name__}: {error}"
        else:
            print(f"✓ {mia.__name__} pasa la comprobación: desde aquí se usa la tuya.")
            return mia
    print(f"· {mia.__name__} {motivo}. Se usa {solucion.__name__}.")
    return solucion
