"""Los deslices de siempre, del revés: lo que podía ir en el sitio de una expresión o de una línea.

Casi todos salen del árbol: dos partes cambiadas de orden, una que sobra, la envoltura de fuera que va
dentro (`raíz(v) + ε` y `raíz(v + ε)`), otro signo, otro nombre. Lo que falta se añade de una lista.
"""

import ast
import copy
import re
from collections.abc import Iterator
from itertools import combinations

Camino = tuple[str | int, ...]
"""Cómo se llega de un nodo a una parte suya: por qué campo y, si es una lista, en qué lugar."""


def en(nodo: ast.AST, camino: Camino) -> ast.AST:
    for paso in camino:
        nodo = nodo[paso] if isinstance(paso, int) else getattr(nodo, paso)
    return nodo


def con(nodo: ast.AST | list, camino: Camino, nuevo: object) -> ast.AST:
    """Dar una copia de un nodo con otra cosa al final de un camino; None la quita de su lista."""
    paso, *resto = camino
    otro = copy.copy(nodo)
    if isinstance(paso, int):
        dentro = nodo[paso]
        puesto = [nuevo if not resto else con(dentro, tuple(resto), nuevo)]
        otro[paso : paso + 1] = [uno for uno in puesto if uno is not None]
        return otro
    setattr(otro, paso, con(getattr(nodo, paso), tuple(resto), nuevo) if resto else nuevo)
    return otro


def partes(nodo: ast.AST) -> list[Camino]:
    """Los caminos a las expresiones de que está hecha una; de `x.f()`, también a `x`."""
    caminos: list[Camino] = []
    if isinstance(nodo, ast.JoinedStr):
        return caminos
    for campo, valor in ast.iter_fields(nodo):
        if isinstance(valor, ast.expr):
            caminos.append((campo,))
            if campo == "func" and isinstance(valor, ast.Attribute):
                caminos.append((campo, "value"))
        elif isinstance(valor, list):
            caminos += [(campo, i) for i, uno in enumerate(valor) if isinstance(uno, ast.expr)]
    return caminos


SIGNOS = (
    (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult),
    (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn),
    (ast.Is, ast.IsNot),
    (ast.And, ast.Or),
    (ast.Not, ast.Invert, ast.USub),
)
NOMBRES = """
torch F math np nn
cat stack
view reshape
transpose permute
T mT
shape size
append extend add
argmax max amax
mean sum
cos sin
square sqrt
exp log
softmax log_softmax
ones zeros
triu tril
split chunk
dump dumps
load loads
strip removeprefix
items keys values
parameters named_parameters
keepdim keepdims
eval train
"""
"""Los que se toman unos por otros, en cada línea."""
DETRAS = """
() .item() .tolist() .detach() .clone() .copy() .float() .long() .bool() .mT .weight .items() .values
.shape .shape[1] .shape[-1] [0] [1] [-1] [-1:] [-2:] [...,None] [:,None] [None] [0,-1] [:,-1] .sqrt() .sum() .mean()
.flatten(-2) [::-1]
""".split()
DELANTE = "len range list tuple dict str int float sum enumerate reversed torch.tensor".split()
"""Lo que falta a veces a un lado o a otro."""
CON_NOMBRE = "std dim dtype bias generator eps".split()
"""Lo que se da por su nombre, porque por su lugar sería otra cosa."""
NO_DAN_NADA = {"append", "extend", "insert", "sort", "reverse", "update", "backward", "step"}
NO_DAN_NADA |= {"zero_grad", "__init__"}


def escrita(nodo: ast.AST) -> str:
    """El texto de un nodo, con comillas dobles si se puede."""
    texto = ast.unparse(nodo)
    return texto if '"' in texto or "\\" in texto else texto.replace("'", '"')


def parientes(nodo: ast.expr) -> Iterator[ast.AST]:
    """Dar un nombre, o lo que se pide a algo, con los nombres por los que se toma."""
    if isinstance(nodo, ast.Name):
        yield from (ast.Name(otro) for otro in _parientes(nodo.id))
    elif isinstance(nodo, ast.Attribute):
        yield from (con(nodo, ("attr",), otro) for otro in _parientes(nodo.attr))


def otros_arboles(nodo: ast.expr, dentro_de: ast.AST, nombres: set[str]) -> Iterator[ast.AST]:
    """Dar las expresiones que podían ir en el sitio de una. `nombres`: los del programa."""
    caminos = partes(nodo)
    for camino in caminos:
        parte = en(nodo, camino)
        yield parte
        if isinstance(camino[-1], int):
            yield con(nodo, camino, None)
            yield con(nodo, camino, ast.Starred(parte, ast.Load()))
        # La de fuera, dentro de la de dentro; en las cuentas, más hondo: `d ** 1 / 2`.
        for mas_adentro in _descendientes(parte, 3 if isinstance(nodo, ast.BinOp) else 1):
            yield con(parte, mas_adentro, con(nodo, camino, en(parte, mas_adentro)))
    for uno, otro in combinations(caminos, 2):
        if uno != otro[: len(uno)]:
            yield con(con(nodo, uno, en(nodo, otro)), otro, en(nodo, uno))
    yield from _con_otro_signo(nodo)
    if isinstance(nodo, ast.Call):
        yield from _otras_llamadas(nodo)
    elif isinstance(nodo, ast.Constant):
        valores = _otros_valores(nodo.value)
        con_signo = isinstance(dentro_de, ast.UnaryOp)
        yield from (ast.Constant(valor) for valor in valores if valor or not con_signo)
    if isinstance(nodo, ast.Name | ast.Attribute):
        yield from (ast.Name(otro) for otro in sorted(nombres - {escrita(nodo)}))
    if getattr(dentro_de, "test", None) is nodo:
        yield ast.Compare(nodo, [ast.IsNot()], [ast.Constant(None)])
        yield ast.UnaryOp(ast.Not(), nodo)


def _descendientes(nodo: ast.AST, hondura: int) -> Iterator[Camino]:
    for camino in partes(nodo):
        yield camino
        if hondura > 1:
            mas = _descendientes(en(nodo, camino), hondura - 1)
            yield from (camino + otro for otro in mas)


def otros_textos(nodo: ast.expr) -> Iterator[tuple[str, bool]]:
    """Dar los textos que podían ir en el sitio de una expresión, y si son un desliz deshecho.

    Los demás sirven para hallar la línea, y no para decir qué va en ella.
    """
    texto = escrita(nodo)
    if isinstance(getattr(nodo, "ctx", None), ast.Store):
        yield from ((nuevo, True) for nuevo in (f"{texto}, _", f"_, {texto}", f"self.{texto}"))
        return
    if isinstance(nodo, ast.Name):
        yield from ((nuevo, True) for nuevo in (f"self.{nodo.id}", f'"{nodo.id}"'))
    if isinstance(nodo, ast.Attribute):
        yield f"{texto}()", True
    if isinstance(nodo, ast.Subscript):
        yield from ((nuevo, False) for nuevo in _otros_corchetes(nodo))
    if isinstance(nodo, ast.Slice):
        yield from ((nuevo, False) for nuevo in _otros_cortes(nodo))
    elif not isinstance(nodo, ast.Starred) and len(texto) < 60:
        yield from ((nuevo, False) for nuevo in _envuelta(nodo, texto))


def _envuelta(nodo: ast.expr, escrito: str) -> Iterator[str]:
    entera = escrito
    if isinstance(nodo, ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare | ast.IfExp):
        entera = f"({escrito})"
    yield from (f"{entera}{detras}" for detras in DETRAS)
    yield from (f"{delante}({escrito})" for delante in DELANTE)
    yield from (f"*{entera}", f"**{entera}", f"{entera} + 1", f"{entera} - 1", f"1 - {entera}")
    if not isinstance(nodo, ast.Constant):
        yield f"-{entera}"
    if isinstance(nodo, ast.Constant) and isinstance(nodo.value, str):
        yield f"f{escrito}"


def _con_otro_signo(nodo: ast.AST) -> Iterator[ast.AST]:
    camino: Camino = ("ops", 0) if isinstance(nodo, ast.Compare) else ("op",)
    signo = en(nodo, camino) if hasattr(nodo, camino[0]) else None
    for familia in SIGNOS:
        if isinstance(signo, familia) or (isinstance(signo, ast.Is) and ast.Eq in familia):
            yield from (con(nodo, camino, otro()) for otro in familia)


def _otras_llamadas(nodo: ast.Call) -> Iterator[ast.AST]:
    for i in range(len(nodo.keywords)):
        yield con(nodo, ("keywords", i), None)
    if len(nodo.args) == 1:
        yield ast.Subscript(nodo.func, nodo.args[0], ast.Load())
    if isinstance(nodo.func, ast.Attribute) and nodo.func.attr == "reverse":
        yield ast.Name(f"{escrita(nodo.func.value)}[::-1]")
    if escrita(nodo.func) == "len" and nodo.args:
        yield from (ast.Name(f"{escrita(nodo.args[0])}.shape[{eje}]") for eje in (1, -1))
    dados = [[ast.Tuple(nodo.args, ast.Load())]]  # todo junto, entre paréntesis
    if len(nodo.args) == 1 and isinstance(nodo.args[0], ast.List | ast.Tuple):
        dados.append(nodo.args[0].elts)
    dados += [[*nodo.args, ast.Constant(eje)] for eje in (-1, 0, 1)]
    dados += [[ast.Constant(uno), ast.Constant(otro)] for uno, otro in ((1, 2), (-2, -1))]
    dados += [[*nodo.args, *nodo.args[-1:]]]
    con_eje = con(nodo, ("args",), [*nodo.args, ast.Constant(-1)])
    yield from (con(nodo, ("args",), otros) for otros in dados)
    for nombre in CON_NOMBRE if len(nodo.args) > 1 else ():
        ultimo = [ast.keyword(nombre, nodo.args[-1])]
        yield con(con(nodo, ("args",), nodo.args[:-1]), ("keywords",), [*nodo.keywords, *ultimo])
    for uno, nombre, valor in (
        (nodo, "keepdim", ast.Constant(True)),
        (con_eje, "keepdim", ast.Constant(True)),
        (nodo, "dtype", ast.parse("torch.long", mode="eval").body),
        (nodo, "unbiased", ast.Constant(False)),
    ):
        yield con(uno, ("keywords",), [*uno.keywords, ast.keyword(nombre, valor)])


def _parientes(nombre: str) -> Iterator[str]:
    for familia in map(str.split, NOMBRES.splitlines()):
        if nombre in familia:
            yield from (otro for otro in familia if otro != nombre)


def _otros_valores(valor: object) -> list:
    if isinstance(valor, bool):
        return [not valor]
    if isinstance(valor, int):
        return [valor + 1, valor - 1, -valor, -valor - 1]
    return []


def _otros_corchetes(nodo: ast.Subscript) -> Iterator[str]:
    cosa, dentro = escrita(nodo.value), escrita(nodo.slice)
    if isinstance(nodo.slice, ast.Tuple):
        dentro = dentro[1:-1]
        # Cada fila con lo suyo, y no todas con todo.
        if dentro.startswith(":, "):
            yield f"{cosa}[torch.arange(len({dentro[3:]})), {dentro[3:]}]"
    yield from (f"{cosa}({dentro})", f"{cosa}.get({dentro})")
    yield from (f"{cosa}[{antes}, {dentro}]" for antes in ("...", ":", ":, :", "None"))
    yield from (f"{cosa}[{dentro}, {despues}]" for despues in (":", "None", "..."))
    yield from (f"{cosa}[:{dentro}]", f"{cosa}[{dentro}:]", f"{cosa}[-{dentro}:]")


def _otros_cortes(nodo: ast.Slice) -> Iterator[str]:
    desde, hasta = (escrita(uno) if uno else "" for uno in (nodo.lower, nodo.upper))
    paso = f":{escrita(nodo.step)}" if nodo.step else ""
    yield from (f"{hasta}:{desde}{paso}", f"{desde}:{paso}", f":{hasta}{paso}", f"{desde}:{hasta}")
    yield from (f"1:{hasta}{paso}", f"{desde}:-1{paso}", f"{desde}::{hasta}")
    if hasta:
        yield from (f":-{hasta}", f"-{hasta}:", hasta)
    if desde:
        yield from (f"-{desde}:", f":-{desde}", desde)


def _no_da_nada(valor: ast.expr) -> bool:
    """Decir si es una llamada que da None: guardarlo puede pasar una comprobación, y no arregla nada."""
    metodo = valor.func if isinstance(valor, ast.Call) else None
    return isinstance(metodo, ast.Attribute) and metodo.attr in NO_DAN_NADA


def otras_lineas(linea: ast.stmt, nombres: set[str]) -> Iterator[str]:
    """Dar los textos que podían ir en el sitio de una sentencia."""
    # Un nombre que está varias veces, en todas: `math.cos(x), math.sin(x)`.
    nodos = [n.id for n in ast.walk(linea) if isinstance(n, ast.Name)]
    for repetido in sorted({nombre for nombre in nodos if nodos.count(nombre) > 1}):
        for otro in _parientes(repetido):
            yield re.sub(rf"(?<![.\w]){repetido}\b", otro, escrita(linea))
    valor = getattr(linea, "value", None) or getattr(linea, "exc", None)
    if valor is None:
        yield from ({ast.Break: ["continue"], ast.Continue: ["break"]}.get(type(linea), []))
        return
    dado = escrita(valor)
    yield from (f"return {dado}", f"raise {dado}", dado)
    if isinstance(linea, ast.Expr | ast.Return) and not _no_da_nada(valor):
        yield from (f"{nombre} = {dado}" for nombre in sorted(nombres))
    if isinstance(linea, ast.Assign):
        guardada = escrita(linea.targets[0])
        yield from (f"{guardada} += {dado}", f"{guardada}.append({dado})", f"{dado} = {guardada}")
    if isinstance(linea, ast.AugAssign):
        guardada = escrita(linea.target)
        suma = ast.BinOp(linea.target, linea.op, linea.value)
        yield from map(escrita, _con_otro_signo(linea))
        yield from (f"{guardada} = {escrita(suma)}", f"{guardada} = {dado}")
        yield f"{guardada}.append({dado})"
