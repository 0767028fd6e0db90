"""Los cambios pequeños de un programa: cada constante, cada signo, cada nombre y cada línea por otra.

Es para test_ediciones.py: con cada uno de la solución se prueba la comprobación de su pieza.
"""

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import fields

import solucion

FAMILIAS = [
    familia.split()
    for familia in (
        "mean sum",
        "cos sin",
        "triu tril",
        "ones zeros",
        "sqrt square exp",
        "softmax log_softmax",
        "argmax argmin",
        "min max",
        "cat stack",
        "eval train",
        "float half double",
        "girar igualar",
        "relu gelu",
        "Atencion FeedForward",
        "items keys values",
        "endswith startswith",
        "log exp",
    )
]
"""Los nombres que se toman unos por otros."""
DE_LA_FORMA = [campo.name for campo in fields(solucion.Forma)]
CUENTAS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Pow, ast.MatMult)
COMPARACIONES = (
    (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
    (ast.In, ast.NotIn),
    (ast.Is, ast.IsNot),
)

Nodo = ast.AST
Otros = Iterator[Nodo | list[Nodo]]


def ediciones(escrito: str) -> dict[str, str]:
    """Dar los programas que salen de uno con un solo cambio, y en qué es cada uno."""
    arbol = ast.parse(escrito)
    hechas: dict[str, str] = {}
    for lugar, nodo in enumerate(ast.walk(arbol)):
        if lugar in _mudos(arbol):
            continue
        for otro in _otros(nodo, arbol):
            nuevo = _con(arbol, lugar, otro)
            if nuevo is not None and nuevo not in (*hechas.values(), ast.unparse(arbol)):
                antes = ast.unparse(nodo).strip().partition("\n")[0]
                despues = ast.unparse(otro) if isinstance(otro, ast.AST) else _en_fila(otro)
                cual = f"{getattr(nodo, 'lineno', 0)}: {antes} → {despues}"
                hechas[cual if cual not in hechas else f"{cual} ({len(hechas)})"] = nuevo
    for cual, nuevo in _otras_lineas(arbol):
        if nuevo not in hechas.values():
            hechas[cual] = nuevo
    return hechas


def _en_fila(nodos: list[Nodo]) -> str:
    return "; ".join(ast.unparse(nodo) for nodo in nodos)


def _mudos(arbol: ast.Module) -> set[int]:
    """Los lugares de los nodos que no hacen nada: los tipos y los docstrings."""
    mudos = set()
    for nodo in ast.walk(arbol):
        for tipo in (getattr(nodo, "annotation", None), getattr(nodo, "returns", None)):
            mudos |= {id(n) for n in ast.walk(tipo)} if tipo is not None else set()
        if isinstance(nodo, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(nodo):
            mudos |= {id(n) for n in ast.walk(nodo.body[0])}
    return {lugar for lugar, nodo in enumerate(ast.walk(arbol)) if id(nodo) in mudos}


def _con(arbol: ast.Module, lugar: int, otro: Nodo) -> str | None:
    """Dar el programa con otro nodo en un lugar; None, si no se puede leer."""
    copia = deepcopy(arbol)
    quitado = list(ast.walk(copia))[lugar]

    class Poner(ast.NodeTransformer):
        def visit(self, nodo: Nodo) -> Nodo:
            return deepcopy(otro) if nodo is quitado else self.generic_visit(nodo)

    try:
        nuevo = ast.unparse(ast.fix_missing_locations(Poner().visit(copia)))
        compile(nuevo, "mi_gpt.py", "exec")
    except (SyntaxError, ValueError, AttributeError):
        return None
    return nuevo


def _otros(nodo: Nodo, arbol: ast.Module) -> Iterator[Nodo]:
    """Lo que se puede escribir en lugar de una expresión."""
    de_su_clase: dict[type, Callable[[Nodo], Iterator[Nodo]]] = {
        ast.Constant: _otras_constantes,
        ast.BinOp: _otras_cuentas,
        ast.UnaryOp: lambda n: iter([n.operand]),
        ast.Compare: _otras_comparaciones,
        ast.BoolOp: lambda n: iter([*n.values, _y_por_o(n)]),
        ast.IfExp: lambda n: iter([n.body, n.orelse]),
        ast.Call: _otras_llamadas,
        ast.Tuple: lambda n: (_con_otros(n, "elts", e) for e in _cambiados(n.elts)),
        ast.Slice: _otros_trozos,
        ast.Subscript: lambda n: iter([n.value]),
    }
    yield from de_su_clase.get(type(nodo), lambda n: iter(()))(nodo)
    if isinstance(nodo, ast.Name | ast.Attribute) and isinstance(nodo.ctx, ast.Load):
        campo = "id" if isinstance(nodo, ast.Name) else "attr"
        for nombre in _parientes(getattr(nodo, campo), nodo, arbol):
            yield _con_otros(nodo, campo, nombre)
    if isinstance(nodo, ast.If):
        for verdad in (True, False):
            yield _con_otros(nodo, "test", ast.Constant(verdad))


def _con_otros(nodo: Nodo, campo: str, valor: object) -> Nodo:
    otro = deepcopy(nodo)
    setattr(otro, campo, valor)
    return otro


def _otras_constantes(nodo: ast.Constant) -> Iterator[Nodo]:
    valor = nodo.value
    if isinstance(valor, bool):
        yield ast.Constant(not valor)
    elif isinstance(valor, int | float):
        yield from map(ast.Constant, (valor + 1, valor - 1, 0, 2 * valor, valor / 2, -valor))
        yield ast.parse("forma.n_head", mode="eval").body  # que en un ejemplo puede valer lo mismo
    elif isinstance(valor, str):
        yield from map(ast.Constant, ("", valor + "x"))


def _otras_cuentas(nodo: ast.BinOp) -> Iterator[Nodo]:
    for cuenta in CUENTAS:
        yield _con_otros(nodo, "op", cuenta())
    yield ast.BinOp(nodo.right, nodo.op, nodo.left)
    yield from (nodo.left, nodo.right)


def _otras_comparaciones(nodo: ast.Compare) -> Iterator[Nodo]:
    for familia in COMPARACIONES:
        if isinstance(nodo.ops[0], familia):
            yield from (_con_otros(nodo, "ops", [una()]) for una in familia)


def _y_por_o(nodo: ast.BoolOp) -> Nodo:
    return ast.BoolOp(ast.And() if isinstance(nodo.op, ast.Or) else ast.Or(), nodo.values)


def _cambiados(cosas: list) -> Iterator[list]:
    """Una lista sin una de sus cosas, o con dos que van seguidas cambiadas."""
    for i in range(len(cosas)):
        yield cosas[:i] + cosas[i + 1 :]
        if i + 1 < len(cosas):
            yield [*cosas[:i], cosas[i + 1], cosas[i], *cosas[i + 2 :]]


def _otras_llamadas(nodo: ast.Call) -> Iterator[Nodo]:
    for argumentos in (*_cambiados(nodo.args), [*nodo.args, ast.Constant(0)]):
        yield _con_otros(nodo, "args", argumentos)
    for i in range(len(nodo.keywords)):
        yield _con_otros(nodo, "keywords", nodo.keywords[:i] + nodo.keywords[i + 1 :])
    if isinstance(nodo.func, ast.Attribute):
        yield nodo.func.value
    if nodo.args and not isinstance(nodo.args[0], ast.Starred):
        yield nodo.args[0]


def _otros_trozos(nodo: ast.Slice) -> Iterator[Nodo]:
    for campo in ("lower", "upper", "step"):
        if getattr(nodo, campo) is not None:
            yield _con_otros(nodo, campo, None)


def _parientes(nombre: str, nodo: Nodo, arbol: ast.Module) -> Iterator[str]:
    """Otros nombres de su familia, de su función o, si es de self, de su clase."""
    for familia in FAMILIAS:
        if nombre in familia:
            yield from (otro for otro in familia if otro != nombre)
    if isinstance(nodo, ast.Attribute):
        de_quien = ast.unparse(nodo.value)
        if de_quien == "forma" or de_quien.endswith(".forma"):
            yield from (otro for otro in DE_LA_FORMA if otro != nombre)
        if de_quien == "self":
            suyos = {
                n.attr
                for n in ast.walk(arbol)
                if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "self"
            }
            yield from sorted(suyos - {nombre})
        return
    for funcion in ast.walk(arbol):
        if isinstance(funcion, ast.FunctionDef) and nodo in ast.walk(funcion):
            locales = {n.arg for n in ast.walk(funcion) if isinstance(n, ast.arg)} | {
                n.id
                for n in ast.walk(funcion)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
            if nombre in locales - {"self"}:
                yield from sorted(locales - {nombre, "self"})


def _otras_lineas(arbol: ast.Module) -> Iterator[tuple[str, str]]:
    """Los programas sin una línea, con dos cambiadas, o con una que entra o sale de un for o un if."""
    for lugar, nodo in enumerate(ast.walk(arbol)):
        if not isinstance(getattr(nodo, "body", None), list) or isinstance(nodo, ast.Module):
            continue
        for campo in ("body", "orelse"):
            lineas = getattr(nodo, campo, [])
            for i, linea in enumerate(lineas):
                if i == 0 and isinstance(linea, ast.Expr) and isinstance(linea.value, ast.Constant):
                    continue
                cual = f"{linea.lineno}: {ast.unparse(linea).partition(chr(10))[0]}"
                sin_ella = lineas[:i] + lineas[i + 1 :] or [ast.Pass()]
                yield from _poniendo(arbol, lugar, campo, sin_ella, f"{cual} → nada")
                if i + 1 < len(lineas):
                    cambiadas = [*lineas[:i], lineas[i + 1], linea, *lineas[i + 2 :]]
                    yield from _poniendo(arbol, lugar, campo, cambiadas, f"{cual} → más abajo")
                if isinstance(linea, ast.For | ast.If | ast.With):
                    fuera = _con_otros(linea, "body", linea.body[:-1] or [ast.Pass()])
                    suelta = [*lineas[:i], fuera, linea.body[-1], *lineas[i + 1 :]]
                    yield from _poniendo(arbol, lugar, campo, suelta, f"{cual} → la última, fuera")
                    if i + 1 < len(lineas):
                        dentro = _con_otros(linea, "body", [*linea.body, lineas[i + 1]])
                        metida = [*lineas[:i], dentro, *lineas[i + 2 :]]
                        yield from _poniendo(
                            arbol, lugar, campo, metida, f"{cual} → la de detrás, dentro"
                        )


def _poniendo(
    arbol: ast.Module, lugar: int, campo: str, lineas: list, cual: str
) -> Iterator[tuple[str, str]]:
    nodo = list(ast.walk(arbol))[lugar]
    nuevo = _con(arbol, lugar, _con_otros(nodo, campo, lineas))
    if nuevo is not None and nuevo != ast.unparse(arbol):
        yield cual, nuevo
