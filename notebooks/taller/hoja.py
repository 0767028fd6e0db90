"""La hoja en que se escribe, mi_gpt.py: dónde está cada pieza, y cómo se lee y se escribe una.

Una pieza va desde su línea «# --- Bloque (capítulo 6) ---» hasta la de otra, o la de algo dado, «#
--- dado: …». Está en blanco mientras le queda un `raise NotImplementedError`.
"""

import ast
import linecache
import re
from pathlib import Path
from types import ModuleType

AQUI = Path(__file__).resolve().parent
HOJA = AQUI.parent / "mi_gpt.py"
SOLUCION = AQUI / "solucion.py"
HUECO = "raise NotImplementedError"
DESPUES = "  # capítulo 13"
"""Cómo acaba, en la solución, una línea que se añade en el último capítulo."""


class SinSitio(Exception):
    """La hoja no tiene una vez la línea en que empieza una pieza."""


def de_la_hoja() -> str:
    """Dar lo escrito en la hoja."""
    return HOJA.read_text(encoding="utf-8-sig")


def _lugar(texto: str, nombre: str) -> tuple[int, int]:
    """Dar dónde empieza y dónde acaba lo escrito de una pieza, sin las líneas «# ---»."""
    lineas = list(re.finditer(rf"^# --- {nombre} \(.*(\n|$)", texto, re.MULTILINE))
    if len(lineas) != 1:
        raise SinSitio(
            f"la línea «# --- {nombre} (capítulo …) ---» está {len(lineas)} veces, debería una"
        )
    siguiente = re.compile(r"^# --- (\w+ \(|dado:)", re.MULTILINE).search(texto, lineas[0].end())
    return lineas[0].end(), siguiente.start() if siguiente else len(texto)


def leer(texto: str, nombre: str) -> str:
    """Dar lo escrito de una pieza. SinSitio, si la hoja no tiene su línea."""
    comienzo, final = _lugar(texto, nombre)
    return texto[comienzo:final].strip("\n") + "\n"


def trozos(texto: str) -> dict[str, str]:
    """Dar lo escrito de todas las piezas, por su nombre y en su orden."""
    nombres = re.findall(r"^# --- (\w+) \(", texto, re.MULTILINE)
    return {nombre: leer(texto, nombre) for nombre in nombres}


def poner(texto: str, nombre: str, escrito: str) -> str:
    """Dar la hoja con otra cosa en el sitio de una pieza."""
    comienzo, final = _lugar(texto, nombre)
    return f"{texto[:comienzo]}\n\n{escrito.strip()}\n\n\n{texto[final:]}"


def esta_en_blanco(escrito: str) -> bool:
    """Decir si a algo escrito le queda un hueco; en un comentario no cuenta."""
    try:
        lineas = ast.walk(ast.parse(escrito))
    except SyntaxError:
        return HUECO in escrito
    return any(isinstance(n, ast.Raise) and ast.unparse(n).startswith(HUECO) for n in lineas)


def vaciar(escrito: str) -> str:
    """Dar un programa, o una pieza, con cada función en blanco: quedan su firma y su docstring.

    De un `__init__` queda también la línea de super().__init__, y lo que no es una función.
    """
    lineas = escrito.splitlines()
    funciones = [n for n in ast.walk(ast.parse(escrito)) if isinstance(n, ast.FunctionDef)]
    for funcion in sorted(funciones, key=lambda n: n.lineno, reverse=True):
        queda = [n for n in funcion.body[:2] if _se_queda(n)]
        desde = queda[-1].end_lineno if queda else funcion.body[0].lineno - 1
        sangria = " " * funcion.body[0].col_offset
        lineas[desde : funcion.end_lineno] = [f"{sangria}{HUECO}"]
    return "\n".join(lineas) + "\n"


def _se_queda(linea: ast.stmt) -> bool:
    if not isinstance(linea, ast.Expr):
        return False
    return isinstance(linea.value, ast.Constant) or "super().__init__" in ast.unparse(linea)


def hasta_el_12(escrito: str) -> str:
    """Dar una pieza sin las líneas que se añaden en el último capítulo."""
    return "".join(linea for linea in escrito.splitlines(True) if not _es_del_13(linea))


def _es_del_13(linea: str) -> bool:
    return linea.rstrip().endswith(DESPUES)


def cargar(texto: str) -> ModuleType:
    """Dar el módulo mi_gpt que sale de un texto. Lo que falle al ejecutarlo, se levanta."""
    modulo = ModuleType("mi_gpt")
    modulo.__file__ = str(HOJA)
    donde = "mi_gpt.py"
    # Para que un error pueda decir en qué línea.
    linecache.cache[donde] = (len(texto), None, texto.splitlines(True), donde)
    exec(compile(texto, donde, "exec"), modulo.__dict__)
    return modulo
