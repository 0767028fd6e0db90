"""Lo que escribe quien aprende: se usa si pasa su comprobación; si no, se usa la solución.

En un capítulo, cada turno son tres celdas, con los nombres siempre así:

    def mi_softmax(x): ...              # la firma y `# tu código` (etiqueta `tu-turno`)
    def softmax_solucion(x): ...        # plegada (etiqueta `solucion`)
    def comprobar_softmax(softmax): ... # `assert` con un mensaje que dice qué falla
    softmax = usar(mi_softmax, softmax_solucion, comprobar_softmax)

Si lo que se escribe es una clase, con `# tu código` en uno o más métodos, se llaman así:

    class MiAtencion(nn.Module): ...
    class AtencionSolucion(nn.Module): ...
    def comprobar_atencion(Atencion): ...
    Atencion = usar(MiAtencion, AtencionSolucion, comprobar_atencion)
"""

from collections.abc import Callable
from functools import wraps
from inspect import isclass, isfunction

import torch


class Vacia(Exception):
    """La función, o un método de la clase, no devuelve nada todavía."""


def entregada(mia: Callable) -> Callable:
    """Dar la función, que protesta si devuelve None; o la clase, si lo devuelve un método suyo.

    De una clase cuentan los métodos con docstring, que son los del enunciado, salvo `__init__` y los
    que dicen `-> None`.
    """
    if isclass(mia):
        metodos = {
            nombre: entregada(metodo)
            for nombre, metodo in vars(mia).items()
            if isfunction(metodo) and metodo.__doc__ and nombre != "__init__"
            if metodo.__annotations__.get("return", ...) is not None
        }
        return type(mia)(mia.__name__, (mia,), metodos)

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
