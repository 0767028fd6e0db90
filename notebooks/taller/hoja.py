"""La hoja en que se escribe, mi_gpt.py: dónde está cada pieza, y cómo se lee y se escribe una.

Una pieza va desde su línea «# --- Bloque (capítulo 6) ---» hasta la de otra, o la de algo dado, «#
--- dado: …». Está en blanco mientras no se ha escrito nada en ella.
"""

import ast
import linecache
import re
import traceback
import warnings
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

AQUI = Path(__file__).resolve().parent
HOJA = AQUI.parent / "mi_gpt.py"
SOLUCION = AQUI / "solucion.py"
TURNOS = SOLUCION.with_name("turnos.py")
"""Las soluciones de los turnos que no son piezas."""
HUECO = "raise NotImplementedError"
DESPUES = "  # capítulo 10"
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


def primera_linea(texto: str, nombre: str) -> int:
    """Dar el número, en la hoja, de la primera línea de lo escrito de una pieza."""
    comienzo, final = _lugar(texto, nombre)
    vacias = texto[comienzo:final]
    antes = comienzo + len(vacias) - len(vacias.lstrip("\n"))
    return texto.count("\n", 0, antes) + 1


def esta_en_blanco(escrito: str) -> bool:
    """Decir si algo está como lo trae la hoja: en cada función queda su hueco, y nada más."""
    try:
        arbol = ast.parse(escrito)
    except SyntaxError:
        return False
    return HUECO in escrito and ast.dump(arbol) == ast.dump(ast.parse(vaciar(escrito)))


def tiene_hueco(escrito: str) -> bool:
    """Decir si a algo escrito le queda un hueco; en un comentario no cuenta."""
    try:
        nodos = ast.walk(ast.parse(escrito))
    except SyntaxError:
        return False
    return any(isinstance(n, ast.Raise) and ast.unparse(n).startswith(HUECO) for n in nodos)


def vaciar(escrito: str) -> str:
    """Dar un programa, o una pieza, con cada función en blanco: quedan su firma y su docstring.

    De un `__init__` queda también la línea de super().__init__, y lo que no es una función.
    """
    lineas = escrito.splitlines()
    funciones = [n for n in ast.walk(ast.parse(escrito)) if isinstance(n, ast.FunctionDef)]
    for funcion in sorted(funciones, key=lambda n: n.lineno, reverse=True):
        queda = [n for n in funcion.body[:2] if venia(n)]
        desde = queda[-1].end_lineno if queda else funcion.body[0].lineno - 1
        sangria = " " * funcion.body[0].col_offset
        lineas[desde : funcion.end_lineno] = [f"{sangria}{HUECO}"]
    return "\n".join(lineas) + "\n"


def venia(linea: ast.stmt) -> bool:
    """Decir si una línea de una función es de las que trae la hoja: el docstring, o super()."""
    if not isinstance(linea, ast.Expr):
        return False
    return isinstance(linea.value, ast.Constant) or "super().__init__" in ast.unparse(linea)


def hasta_el_9(escrito: str) -> str:
    """Dar una pieza sin las líneas que se añaden en el último capítulo."""
    lineas = escrito.splitlines(True)
    return "".join(linea for linea in lineas if not linea.rstrip().endswith(DESPUES))


def cargar(texto: str) -> ModuleType:
    """Dar el módulo mi_gpt que sale de un texto. Lo que falle al ejecutarlo, se levanta."""
    modulo = ModuleType("mi_gpt")
    modulo.__file__ = str(HOJA)
    donde = "mi_gpt.py"
    # Para que un error pueda decir en qué línea.
    linecache.cache[donde] = (len(texto), None, texto.splitlines(True), donde)
    exec(compilar(texto, donde), modulo.__dict__)
    return modulo


def compilar(texto: str, donde: str = "mi_gpt.py") -> CodeType:
    """Compilar sin los avisos de Python, que son en inglés: de lo que no pasa hay otra frase."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(texto, donde, "exec")


# --- una hoja con un error en otro sitio -------------------------------------------------------


class Mal(NamedTuple):
    """Qué impide leer o ejecutar un trozo de la hoja, y en qué línea de ella está."""

    error: Exception
    linea: int


def _secciones(texto: str) -> list[tuple[str, int, int]]:
    """Dar cada trozo de una hoja: cómo se llama, dónde empieza y dónde acaba."""
    lineas = list(re.finditer(r"^# --- (\w+ (?=\()|dado: [^-\n]*).*\n", texto, re.MULTILINE))
    nombres = ["", *(una[1].strip() for una in lineas)]
    comienzos = [0, *(una.end() for una in lineas)]
    finales = [*(una.start() for una in lineas), len(texto)]
    return list(zip(nombres, comienzos, finales))


@lru_cache(maxsize=64)
def sanar(texto: str, menos: str | None = None) -> tuple[str, dict[str, Mal]]:
    """Dar la hoja con la solución de los trozos que no se pueden leer o ejecutar, y qué les pasa.

    La pieza `menos` se deja como está: de ella lo dice su comprobación.
    """
    solucion = SOLUCION.read_text(encoding="utf-8")
    buenos = {nombre: solucion[desde:hasta] for nombre, desde, hasta in _secciones(solucion)}
    males: dict[str, Mal] = {}
    sana = texto
    for nombre, desde, hasta in reversed(_secciones(texto)):
        try:
            compilar(texto[desde:hasta])
        except (SyntaxError, ValueError) as error:
            if nombre in buenos and nombre != menos:
                males[nombre] = Mal(error, texto.count("\n", 0, desde) + (_lineno(error) or 1))
                sana = sana[:desde] + buenos[nombre] + sana[hasta:]
    for _ in buenos:
        try:
            cargar(sana)
            break
        except Exception as error:
            nombre, desde, hasta, linea = _donde(sana, error)
            if nombre in males or nombre not in buenos or nombre == menos:
                break
            original = {n: d for n, d, _ in _secciones(texto)}[nombre]
            movida = texto.count("\n", 0, original) - sana.count("\n", 0, desde)
            males[nombre] = Mal(error, linea + movida)
            sana = sana[:desde] + buenos[nombre] + sana[hasta:]
    return sana, males


def _lineno(error: Exception) -> int:
    return getattr(error, "lineno", None) or 0


def _donde(texto: str, error: Exception) -> tuple[str, int, int, int]:
    """Dar el trozo de la hoja en que se ha detenido, y la línea."""
    pasos = traceback.extract_tb(error.__traceback__)
    lineas = [paso.lineno or 0 for paso in pasos if paso.filename == "mi_gpt.py"]
    # La primera: lo que se ejecuta al cargar la hoja, y no lo que eso llama.
    linea = lineas[0] if lineas else _lineno(error)
    for nombre, desde, hasta in _secciones(texto):
        if texto.count("\n", 0, desde) < linea <= texto.count("\n", 0, hasta) + 1:
            return nombre, desde, hasta, linea
    return "?", 0, 0, linea
