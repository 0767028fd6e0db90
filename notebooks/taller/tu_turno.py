"""Lo que escribe quien aprende: se usa si pasa su comprobación; si no, se usa la solución.

Un turno que es una pieza de mi_gpt.py son dos celdas de código. En la primera (etiqueta `tu-turno`)
está la pieza en blanco; la segunda la comprueba, la copia en la hoja y la da:

    Bloque = pieza("Bloque")

Un capítulo de después la pide igual. Un turno que no es una pieza son tres celdas:

    def mi_softmax(x): ...              # la firma y `# tu código` (etiqueta `tu-turno`)
    def softmax_solucion(x): ...        # plegada (etiqueta `solucion`)
    def comprobar_softmax(softmax): ... # `assert` con un mensaje que dice qué falla
    softmax = usar(mi_softmax, softmax_solucion, comprobar_softmax)

Si lo que se escribe ahí es una clase, con `# tu código` en uno o más métodos, se llaman así:

    class MiResidual(nn.Module): ...
    class ResidualSolucion(nn.Module): ...
    def comprobar_residual(Residual): ...
    Residual = usar(MiResidual, ResidualSolucion, comprobar_residual)
"""

import ast
import builtins
import json
import os
import re
import sys
from collections.abc import Callable
from functools import wraps
from inspect import isclass, isfunction
from types import ModuleType
from typing import Any

import torch

import hoja
from comprobaciones import EN_BLANCO, POR_TITULO, completa, motivo, prestar


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


def pieza(titulo: str) -> Any:
    """Dar una pieza de mi_gpt.py: la tuya si pasa su comprobación, y si no la solución.

    Si la acabas de escribir en una celda y pasa, se copia antes en la hoja. Una línea dice qué se usa.
    """
    nombre = POR_TITULO[titulo].nombre
    solucion = hoja.SOLUCION.read_text(encoding="utf-8")
    try:
        texto = hoja.de_la_hoja()
        celda = escrita_en_una_celda(nombre)
        # Si sigue como se copió, lo que la hoja tenga de otro modo se escribió después.
        es_nueva = celda and celda != copiadas().get(nombre)
        nueva = hoja.poner(texto, nombre, celda) if es_nueva else texto
        por_que = motivo(titulo, nueva)
        if por_que:
            print(f"· {titulo}{'' if por_que == EN_BLANCO else ':'} {por_que}. Se usa la solución.")
            nueva = prestar(texto, nombre, solucion)
        elif es_nueva:
            copiar(nombre, celda, nueva)
            print(
                f"✓ {titulo} pasa la comprobación: está en mi_gpt.py, y desde aquí se usa la tuya."
            )
        else:
            print(f"✓ {titulo}: se usa la tuya, la de mi_gpt.py.")
        entera, prestadas = completa(titulo, nueva)
        if prestadas and not por_que:
            print(f"  (Con la solución de {', '.join(prestadas)}.)")
    except (hoja.SinSitio, UnicodeDecodeError, OSError) as error:
        return getattr(la_solucion(error), nombre)
    try:
        return getattr(hoja.cargar(entera), nombre)
    except Exception as error:  # lo que haya escrito en otro sitio de la hoja
        return getattr(la_solucion(error), nombre)


def la_solucion(error: Exception) -> ModuleType:
    """Decir por qué no sirve la hoja, y dar el programa de la solución."""
    print(f"· mi_gpt.py no se puede usar: {error}. Se usa la solución.")
    return hoja.cargar(hoja.SOLUCION.read_text(encoding="utf-8"))


def escrita_en_una_celda(nombre: str) -> str:
    """Dar lo que va en la hoja de la última celda ejecutada que define `nombre`; o "".

    Una celda que deja la pieza en blanco no cuenta: la hoja puede tenerla escrita.
    """
    sesion = getattr(builtins, "get_ipython", lambda: None)()
    celdas = sesion.user_ns.get("In", []) if sesion else []
    define = re.compile(rf"^((def|class) {nombre}\b|{nombre} *=(?!=| *pieza\())", re.MULTILINE)
    for celda in map(sin_magia, reversed(celdas)):
        if define.search(celda):
            escrito = lo_de_la_hoja(celda, nombre)
            return "" if hoja.esta_en_blanco(escrito) else escrito
    return ""


def sin_magia(celda: str) -> str:
    """Dar el código de una celda que empieza por %%time o algo así, como lo guarda IPython."""
    try:
        [linea] = ast.parse(celda).body
        if celda.startswith("get_ipython().run_cell_magic("):
            return ast.literal_eval(linea.value.args[-1])
    except (SyntaxError, ValueError, AttributeError):
        pass
    return celda


def lo_de_la_hoja(celda: str, nombre: str) -> str:
    """Dar de una celda lo que define o trae la pieza: sin pruebas, y sin otras piezas de la hoja."""
    try:
        partes = ast.parse(celda).body
    except SyntaxError:
        return celda  # la comprobación lo dirá
    lineas = celda.splitlines()
    otras = {otra.nombre for otra in POR_TITULO.values()} - {nombre}
    for parte in reversed(partes):
        queda = isinstance(parte, SE_COPIA) and getattr(parte, "module", "") != "__future__"
        if not queda or getattr(parte, "name", "") in otras:
            primera = min([parte.lineno, *(d.lineno for d in getattr(parte, "decorator_list", []))])
            del lineas[primera - 1 : parte.end_lineno]
    return "\n".join(lineas).strip() + "\n"


SE_COPIA = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)


def copiar(nombre: str, celda: str, nueva: str) -> None:
    """Escribir la hoja. Si la pieza ya estaba escrita, la de antes queda en mi_gpt.py.antes."""
    antes = hoja.de_la_hoja()
    if not hoja.esta_en_blanco(hoja.leer(antes, nombre)):
        hoja.HOJA.with_name("mi_gpt.py.antes").write_text(antes, encoding="utf-8")
        print(f"  ({nombre} ya estaba escrita: la hoja de antes queda en mi_gpt.py.antes.)")
    hoja.HOJA.write_text(nueva, encoding="utf-8")
    todas = copiadas() | {nombre: celda}
    hoja.HOJA.with_name(COPIADAS).write_text(json.dumps(todas, ensure_ascii=False), "utf-8")
    if en_una_maquina_prestada():
        print("  Antes de cerrar: import tu_turno; tu_turno.llevarme_la_hoja()")
        print("  Otro día, para volver a ponerla: tu_turno.traer_la_hoja()")


COPIADAS = ".mi_gpt.copiadas.json"


def copiadas() -> dict[str, str]:
    """Dar lo último que se copió de una celda, por piezas."""
    ruta = hoja.HOJA.with_name(COPIADAS)
    return json.loads(ruta.read_text("utf-8")) if ruta.exists() else {}


def en_una_maquina_prestada() -> bool:
    """Decir si se está en Colab o en Binder, donde los archivos se pierden al cerrar."""
    return "google.colab" in sys.modules or "BINDER_SERVICE_HOST" in os.environ


def llevarme_la_hoja() -> None:
    """Descargar mi_gpt.py: en Colab, sin más; en otro sitio, con un enlace."""
    if "google.colab" in sys.modules:
        from google.colab import files

        files.download(str(hoja.HOJA))
        return
    from IPython.display import FileLink, display

    display(FileLink(hoja.HOJA.name))


def traer_la_hoja() -> None:
    """Volver a poner la mi_gpt.py que te llevaste: en Colab la pide; en otro sitio dice qué hacer."""
    if "google.colab" not in sys.modules:
        print("Arrastra tu mi_gpt.py a la lista de archivos, encima de la que hay.")
        return
    from google.colab import files

    [traida] = files.upload().values()
    hoja.HOJA.write_bytes(traida)
