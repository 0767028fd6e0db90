"""La búsqueda de la línea en que está el error de algo que no pasa.

Es reparación de programas por búsqueda, como la de GenProg (Le Goues y otros, IEEE TSE 38, 2012),
con un solo cambio. Se prueban cambios de una expresión o de una línea, del más pequeño al más grande,
hasta que la comprobación pasa: los deslices de siempre, deshechos (deslices.py), y lo que hay en la
solución. La línea que cambia es la que se dice.
"""

import ast
import io
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from buscar.deslices import escrita, otras_lineas, otros_arboles, otros_textos, parientes
from comprobar.plazo import LIMITE, no_mas_de
from decir.mensaje import Mensaje

SEGUNDOS = 20
"""Lo que se busca como mucho, en segundos del procesador: no cuenta lo ocupada que esté la máquina."""
DE_RELOJ = 60
"""Lo que se busca como mucho, en segundos de reloj."""


def buscar(
    escrito: str, debida: str, pasaria: Callable[[str], bool], linea: int = 0
) -> Mensaje | None:
    """Dar la línea del primer cambio con que pasa lo escrito, y lo que va en ella, o None.

    `debida` es la solución; `pasaria` comprueba un texto, y puede levantar lo que sea; `linea` es la
    de lo escrito en que algo se detiene, si se sabe. Lo que va en la línea solo se da si es el texto
    de la solución, o un desliz deshecho: no cualquier cosa que pase.
    """
    with _en_otra_carpeta():
        procesador, reloj = time.process_time(), time.monotonic()
        _pasa(debida, pasaria, LIMITE)
        plazo = 0.5 + 3 * (time.monotonic() - reloj)
        for candidato, es_de_fiar in candidatos(escrito, debida, linea):
            if time.process_time() > procesador + SEGUNDOS or time.monotonic() > reloj + DE_RELOJ:
                return None
            if _pasa(candidato, pasaria, plazo):
                hallado = lo_que_cambia(escrito.splitlines(), candidato.splitlines(), es_de_fiar)
                arreglo = _como_en_la_solucion(hallado.arreglo, debida)
                return replace(hallado, arreglo=arreglo)
    return None


def _como_en_la_solucion(arreglo: str, debida: str) -> str:
    """Dar una línea como la escribe la solución, si en ella está: ast.unparse la escribe a su modo."""
    for linea in debida.splitlines():
        sin_comentario = re.sub(r"  # .*$", "", linea.strip())
        if (
            sin_comentario
            and (arbol := _arbol(sin_comentario)) is not None
            and arbol == _arbol(arreglo)
        ):
            return sin_comentario
    return arreglo


def _pasa(escrito: str, pasaria: Callable[[str], bool], plazo: float) -> bool:
    """Decir si un texto pasa; no, si se detiene, si tarda o si acaba con el programa."""
    try:
        with no_mas_de(plazo), redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return pasaria(escrito)
    except (Exception, SystemExit):
        return False


@contextmanager
def _en_otra_carpeta() -> Iterator[None]:
    """Que lo que se prueba no deje archivos donde se trabaja: puede escribirlos con otro nombre."""
    antes = Path.cwd()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as carpeta:
        os.chdir(carpeta)
        try:
            yield
        finally:
            os.chdir(antes)


def lo_que_cambia(suyas: list[str], buenas: list[str], es_de_fiar: bool = True) -> Mensaje:
    """Decir en qué línea se distinguen dos programas, qué clase de cambio es, y qué va en ella."""
    n = min(len(suyas), len(buenas))
    iguales = next((i for i in range(n) if suyas[i] != buenas[i]), n)
    detras = next((i for i in range(n - iguales) if suyas[-1 - i] != buenas[-1 - i]), n - iguales)
    quitadas, puestas = suyas[iguales : len(suyas) - detras], buenas[iguales : len(buenas) - detras]
    una, otra = ([linea.strip() for linea in lineas] for lineas in (quitadas, puestas))
    linea, arreglo, es_de_python = iguales + 1, "", False
    subida = len(una) > 1 and una[-1] == otra[0]
    if not una:
        es_adorno = otra[0].startswith("@")
        linea = iguales + es_adorno
        clase = f"{'delante' if es_adorno else 'detrás'} falta una línea"
        arreglo = " ".join(otra)
    elif otra in ([], ["pass"]):
        clase, arreglo = "sobra", "borra esa línea"
    elif una == otra:
        sobra = len(quitadas[0]) > len(puestas[0])
        clase = f"le {'sobra' if sobra else 'falta'} sangría"
        es_de_python = True
    elif subida and (quitadas[-1] != puestas[0] or una[0] != otra[-1]):
        linea = iguales + len(una)
        clase, arreglo = "va antes", f"ponla delante de «{otra[1]}»"
    elif len(una) > 1 and una[0] == otra[-1]:
        clase, arreglo = "va después", f"ponla detrás de «{otra[-2]}»"
    else:
        arreglo = re.sub(r"  # .*$", "", " ".join(otra))
        clase, es_de_python = _clase_del_cambio(_normal(" ".join(una)), _normal(arreglo))
    return Mensaje("", linea, clase, arreglo if es_de_fiar else "", es_de_python and es_de_fiar)


def _normal(linea: str) -> str:
    """Dar una línea como la escribe ast.unparse, que pone paréntesis a su modo."""
    try:
        return ast.unparse(ast.parse(linea))
    except SyntaxError:  # la de un for o un if, sola
        return re.sub(r"  # .*$", "", linea)


SIMBOLOS = re.compile(r"\*\*|//|[=!<>+\-*/]=|\w+|[^\w\s]")
DE_PYTHON = ("self .", '" "', "' '", ",", "return", "= ==", "== =")
"""Lo que cambia, en símbolos, si el tropiezo es con Python y no con la idea."""


def _clase_del_cambio(suya: str, buena: str) -> tuple[str, bool]:
    """Decir en qué se distinguen dos líneas, sin decir qué va, y si es un tropiezo con Python."""
    una, otra = SIMBOLOS.findall(suya), SIMBOLOS.findall(buena)
    quitados: list[str] = []
    puestos: list[str] = []
    for que, a, b, c, d in SequenceMatcher(None, una, otra, autojunk=False).get_opcodes():
        if que != "equal":
            quitados += una[a:b]
            puestos += otra[c:d]
    # Unos paréntesis vacíos llaman a algo; los demás agrupan, y eso es cosa de la idea.
    llama = suya.replace("()", "") == buena.replace("()", "")
    es_de_python = llama or " ".join(quitados + puestos) in DE_PYTHON
    if sorted(quitados) == sorted(puestos):
        return "algo va en otro orden", es_de_python
    if not quitados:
        return "le falta algo", es_de_python
    if not puestos:
        return "le sobra algo", es_de_python
    for patron, clase in (
        (r"\d+", "hay un número por otro"),
        (r"\W+", "hay un signo por otro"),
        (r"\w+", "hay un nombre por otro"),
    ):
        if all(re.fullmatch(patron, uno) for uno in quitados + puestos):
            return clase, es_de_python
    return "", es_de_python


# --- lo que se prueba -------------------------------------------------------------------------


class Edicion(NamedTuple):
    """Poner un texto en el sitio de unos bytes, y lo que cuesta, en caracteres."""

    desde: int
    hasta: int
    nuevo: str
    coste: float
    es_de_fiar: bool = True
    """Si es el texto de la solución, o un desliz deshecho, y no cualquier cosa que pueda pasar."""


OTRO_NOMBRE = 1
"""Lo que cuesta un nombre que se toma por otro, como strip por removeprefix."""
MOVER = 3
"""Lo que cuesta como mucho lo que se hace con lo que hay, sin añadir nada: mover una línea, o una parte."""
ANADIR = 2
"""Lo que cuesta al menos añadir algo."""
BORRAR = 2
DE_MAS = 4
"""Lo que se añade a lo que no es de fiar: antes se prueba lo que lo es."""
LEJOS = 15
"""Lo que se añade por cambiar una línea que está igual en la solución."""
CERCA = 4
"""Lo que se quita si es la línea en que algo se detiene."""


def candidatos(escrito: str, debida: str, linea: int = 0) -> Iterator[tuple[str, bool]]:
    """Dar lo escrito con cada cambio, del más pequeño al más grande, y si el cambio es de fiar."""
    suyo, debido = Programa(escrito), Programa(debida)
    buenas = {_cabecera(una) for una in debido.lineas}
    iguales = [suyo.cabecera(una) for una in suyo.lineas if _cabecera(una) in buenas]
    costes: dict[tuple[int, int, str], tuple[float, bool]] = {}
    for edicion, en_ella in (
        *((una, True) for una in _deslices(suyo)),
        *((una, True) for una in _de_la_solucion(suyo, debido)),
        *((una, True) for una in _lineas_de_otro_modo(suyo)),
        *((una, False) for una in _lineas_de_la_solucion(suyo, debido)),
        *((una, False) for una in _lineas_movidas(suyo)),
    ):
        desde, hasta, nuevo, coste, es_de_fiar = edicion
        coste += DE_MAS * (not es_de_fiar)
        coste += LEJOS * (en_ella and any(uno <= desde < otro for uno, otro in iguales))
        coste -= CERCA * (suyo.linea(desde) == linea)
        este = (coste, not es_de_fiar)
        costes[desde, hasta, nuevo] = min(este, costes.get((desde, hasta, nuevo), este))
    vistos = {None, ast.dump(suyo.arbol)}
    for desde, hasta, nuevo in sorted(costes, key=costes.__getitem__):
        candidato = suyo.trozo(0, desde) + nuevo + suyo.trozo(hasta, None)
        arbol = _arbol(candidato)
        if arbol not in vistos:
            vistos.add(arbol)
            yield candidato, not costes[desde, hasta, nuevo][1]


def _arbol(escrito: str) -> str | None:
    """El árbol de un texto, que no cambia con sus espacios; None si no es Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.dump(ast.parse(escrito))
    except (SyntaxError, ValueError):
        return None


def _cabecera(linea: ast.stmt) -> str:
    """El texto de una sentencia; de un for o un if, sin lo de dentro."""
    escrito = escrita(linea)
    return escrito.partition(":\n")[0] if hasattr(linea, "body") else escrito


class Programa:
    """Un texto con su árbol: sus sentencias, sus expresiones, y el sitio de cada una en bytes."""

    def __init__(self, escrito: str) -> None:
        self.bytes = escrito.encode()
        self.arbol = ast.parse(escrito)
        self._comienzos = [0]
        for linea in self.bytes.splitlines(True):
            self._comienzos.append(self._comienzos[-1] + len(linea))
        nodos = list(ast.walk(self.arbol))
        self.padres = {id(hijo): nodo for nodo in nodos for hijo in ast.iter_child_nodes(nodo)}
        funciones = [n for n in nodos if isinstance(n, ast.FunctionDef)]
        self.funciones = {funcion.name: funcion for funcion in funciones}
        self.expresiones = list(_expresiones(funciones))
        self.lineas = [n for funcion in funciones for n in _sentencias(funcion)]
        leidos = (n for n in self.expresiones if isinstance(n, ast.Name | ast.Attribute))
        self.nombres = {uno for uno in map(escrita, leidos) if re.fullmatch(r"(self\.)?\w+", uno)}
        guardados = (
            n for n in self.expresiones if isinstance(n, ast.Name) and _uso(n) is ast.Store
        )
        self.variables = {n.id for n in guardados} | {
            n.arg for n in nodos if isinstance(n, ast.arg)
        }
        self.nombres |= self.variables

    def sitio(self, nodo: ast.AST) -> tuple[int, int]:
        desde = self._comienzos[nodo.lineno - 1] + nodo.col_offset
        return desde, self._comienzos[nodo.end_lineno - 1] + nodo.end_col_offset

    def entera(self, nodo: ast.stmt) -> tuple[int, int]:
        """El sitio de las líneas de una sentencia, con su sangría y su final."""
        return self._comienzos[nodo.lineno - 1], self._comienzos[nodo.end_lineno]

    def cabecera(self, nodo: ast.stmt) -> tuple[int, int]:
        """Lo mismo; de un for o un if, sin las de dentro."""
        desde, hasta = self.entera(nodo)
        dentro = getattr(nodo, "body", None)
        return desde, self._comienzos[dentro[0].lineno - 1] if dentro else hasta

    def en_un_bucle(self, nodo: ast.AST) -> bool:
        while not isinstance(nodo, ast.FunctionDef | ast.For | ast.While):
            nodo = self.padres[id(nodo)]
        return not isinstance(nodo, ast.FunctionDef)

    def linea(self, desde: int) -> int:
        return self.bytes.count(b"\n", 0, desde) + 1

    def trozo(self, desde: int, hasta: int | None) -> str:
        return self.bytes[desde:hasta].decode()


def _expresiones(funciones: list[ast.FunctionDef]) -> Iterator[ast.expr]:
    """Las que se pueden cambiar: ni anotaciones, ni docstrings, ni lo de dentro de un texto con f."""
    pendientes: list[ast.AST] = []
    for funcion in funciones:
        pendientes += [*funcion.args.defaults, *funcion.body]
    while pendientes:
        nodo = pendientes.pop()
        if isinstance(nodo, ast.FunctionDef) or _es_docstring(nodo):
            continue
        if isinstance(nodo, ast.expr):
            yield nodo
        if isinstance(nodo, ast.Attribute) and isinstance(nodo.ctx, ast.Store):
            continue  # de `self.x = …` no se cambia el self, que podría tocar lo de otros
        if not isinstance(nodo, ast.JoinedStr):
            pendientes += ast.iter_child_nodes(nodo)


def _sentencias(nodo: ast.AST) -> Iterator[ast.stmt]:
    for bloque in (getattr(nodo, "body", []), getattr(nodo, "orelse", [])):
        for linea in bloque if isinstance(bloque, list) else []:
            if not isinstance(linea, ast.FunctionDef) and not _es_docstring(linea):
                yield linea
                yield from _sentencias(linea)


def _es_docstring(nodo: ast.AST) -> bool:
    return isinstance(nodo, ast.Expr) and isinstance(nodo.value, ast.Constant)


def _deslices(suyo: Programa) -> Iterator[Edicion]:
    """Lo que podía ir en el sitio de cada expresión."""
    for nodo in suyo.expresiones:
        viejo = escrita(nodo)
        for otro in parientes(nodo):
            yield from _poner(escrita(otro), nodo, suyo, OTRO_NOMBRE)
        for otro in otros_arboles(nodo, suyo.padres[id(nodo)], suyo.nombres):
            nuevo = escrita(otro)
            coste = min(_caracteres_que_cambian(viejo, nuevo), MOVER)
            if isinstance(otro, ast.Tuple):
                yield from _poner(nuevo[1:-1], nodo, suyo, coste)
            yield from _poner(nuevo, nodo, suyo, coste)
        for nuevo, es_de_fiar in otros_textos(nodo):
            coste = max(_caracteres_que_cambian(viejo, nuevo), ANADIR)
            yield from _poner(nuevo, nodo, suyo, coste, es_de_fiar)


def _poner(
    nuevo: str, nodo: ast.expr, suyo: Programa, coste: float, es_de_fiar: bool = True
) -> Iterator[Edicion]:
    """Poner un texto en el sitio de una expresión; si es una cuenta, también entre paréntesis."""
    desde, hasta = suyo.sitio(nodo)
    yield Edicion(desde, hasta, nuevo, coste, es_de_fiar)
    if " " in nuevo and isinstance(suyo.padres[id(nodo)], ast.expr):
        yield Edicion(desde, hasta, f"({nuevo})", coste + 0.5, es_de_fiar)


def _caracteres_que_cambian(uno: str, otro: str) -> int:
    """Los que hay entre lo que empieza igual y lo que acaba igual."""
    n = min(len(uno), len(otro))
    delante = next((i for i in range(n) if uno[i] != otro[i]), n)
    detras = next((i for i in range(n - delante) if uno[-1 - i] != otro[-1 - i]), n - delante)
    return len(uno) + len(otro) - 2 * (delante + detras)


def _de_la_solucion(suyo: Programa, debido: Programa) -> Iterator[Edicion]:
    """Una expresión de la solución, en el sitio de una que se le parece."""
    donantes: dict[tuple[str, type], ast.expr] = {}
    for nodo in debido.expresiones:
        donantes.setdefault((escrita(nodo), _uso(nodo)), nodo)
    for nodo in suyo.expresiones:
        viejo = escrita(nodo)
        for (limpio, uso), buena in donantes.items():
            es_fija = isinstance(nodo, ast.Constant) and isinstance(buena, ast.Attribute)
            coste = MOVER if uso is ast.Store or es_fija else _lo_que_va(viejo, limpio)
            if uso is not _uso(nodo) or limpio == viejo or coste is None:
                continue
            for nuevo in _con_sus_nombres(buena, suyo, debido):
                yield from _poner(nuevo, nodo, suyo, coste)


def _uso(nodo: ast.expr) -> type:
    return type(getattr(nodo, "ctx", ast.Load()))


def _lo_que_va(uno: str, otro: str) -> float | None:
    """Lo que cuesta poner, en el sitio de un texto, otro de la solución; None si no se parecen."""
    largo = len(uno) + len(otro)
    if largo < 14:
        return largo / 2
    parecido = SequenceMatcher(None, uno, otro, autojunk=False)
    if parecido.real_quick_ratio() < 0.5 or parecido.ratio() < 0.5:
        return None
    return (1 - parecido.ratio()) * largo / 4


def _con_sus_nombres(buena: ast.expr, suyo: Programa, debido: Programa) -> Iterator[str]:
    """El texto de una expresión de la solución; si usa una variable que en lo escrito no hay, con otras."""
    texto = debido.trozo(*debido.sitio(buena))
    yield texto
    usadas = {n.id for n in ast.walk(buena) if isinstance(n, ast.Name)}
    ajenas = usadas & debido.variables - suyo.nombres
    if len(ajenas) == 1:
        [ajena] = ajenas
        for propia in sorted(suyo.variables):
            yield re.sub(rf"(?<![.\w]){ajena}\b", propia, texto)


def _lineas_de_la_solucion(suyo: Programa, debido: Programa) -> Iterator[Edicion]:
    """Una línea de la solución que falta, o en el sitio de una que se le parece."""
    escritas = set(map(escrita, suyo.lineas))
    faltan = [linea for linea in debido.lineas if escrita(linea) not in escritas]
    for linea in suyo.lineas:
        desde, hasta = suyo.entera(linea)
        for buena in faltan:
            texto = escrita(buena)
            nueva = "".join(f"{' ' * linea.col_offset}{una}\n" for una in texto.split("\n"))
            if texto.count("\n") < 3 and not _taparia(buena, suyo):
                yield Edicion(desde, desde, nueva, len(texto) / 2)
                yield Edicion(hasta, hasta, nueva, len(texto) / 2)
            coste = _lo_que_va(escrita(linea), texto)
            if coste is not None and not hasattr(linea, "body") and not hasattr(buena, "body"):
                yield Edicion(desde, hasta, nueva, coste)
    for nombre in sorted(suyo.funciones.keys() & debido.funciones.keys()):
        funcion = suyo.funciones[nombre]
        adornos = {f"@{escrita(uno)}" for uno in debido.funciones[nombre].decorator_list}
        for adorno in sorted(adornos):
            desde = suyo.entera(funcion)[0]
            yield Edicion(desde, desde, f"{' ' * funcion.col_offset}{adorno}\n", MOVER)


def _taparia(buena: ast.stmt, suyo: Programa) -> bool:
    """Decir si añadir una línea dejaría sin efecto lo escrito: un return, u otro valor para lo mismo."""
    guardadas = {escrita(uno) for uno in getattr(buena, "targets", ())}
    suyas = {escrita(n) for n in suyo.expresiones if _uso(n) is ast.Store}
    return isinstance(buena, ast.Return) or bool(guardadas & suyas)


def _lineas_de_otro_modo(suyo: Programa) -> Iterator[Edicion]:
    """Cada línea, borrada o escrita de otro modo."""
    for linea in suyo.lineas:
        desde, hasta = suyo.entera(linea)
        sangria, texto = " " * linea.col_offset, suyo.trozo(desde, hasta)
        yield Edicion(desde, hasta, f"{sangria}pass\n", BORRAR)
        yield Edicion(desde, hasta, "", BORRAR)
        for nueva in otras_lineas(linea, suyo.nombres):
            coste = min(_caracteres_que_cambian(texto.strip(), nueva), MOVER)
            yield Edicion(desde, hasta, f"{sangria}{nueva}\n", coste, es_de_fiar=False)


def _lineas_movidas(suyo: Programa) -> Iterator[Edicion]:
    """Cada línea en otro sitio, o con una salida del bucle detrás; y un elif que era otro if."""
    for linea in suyo.lineas:
        desde, hasta = suyo.entera(linea)
        sangria, texto = " " * linea.col_offset, suyo.trozo(desde, hasta)
        for salida in ("continue", "break") if suyo.en_un_bucle(linea) else ():
            yield Edicion(hasta, hasta, f"{sangria}{salida}\n", MOVER + 1, es_de_fiar=False)
        if texto.lstrip().startswith("elif"):
            yield Edicion(desde, hasta, texto.replace("elif", "if", 1), 0)
        for otra in suyo.lineas:
            yield from _mover(linea, otra, suyo)


def _mover(linea: ast.stmt, otra: ast.stmt, suyo: Programa) -> Iterator[Edicion]:
    """Poner una línea delante o detrás de otra, con la sangría de esta; cuesta más cuanto más lejos."""
    desde, hasta = suyo.entera(linea)
    de_mas = otra.col_offset - linea.col_offset
    suyas = suyo.trozo(desde, hasta).splitlines(True)
    movida = "".join(" " * de_mas + una if de_mas > 0 else una[-de_mas:] for una in suyas)
    for lugar in suyo.entera(otra):
        coste = MOVER * min(1, abs(suyo.linea(lugar) - linea.lineno) / 10)
        # Lo que va detrás de un return no se ejecuta: moverla ahí sería borrarla.
        if lugar <= desde and not (isinstance(linea, ast.Return) and de_mas == 0):
            yield Edicion(lugar, hasta, movida + suyo.trozo(lugar, desde), coste)
        elif lugar >= hasta and not isinstance(otra, ast.Return):
            yield Edicion(desde, lugar, suyo.trozo(hasta, lugar) + movida, coste)
