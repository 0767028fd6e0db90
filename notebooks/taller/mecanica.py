"""Los tropiezos con Python, que no son de matemáticas, dichos por su nombre.

Se miran en lo escrito, y solo cuando la comprobación no pasa: nada de esto rechaza una respuesta
que da lo que debe. `debida` es la pieza de la solución: dice qué métodos hay y qué recibe cada uno.
"""

import ast
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import NamedTuple

from torch import Tensor, nn

import hoja


class Tropiezo(NamedTuple):
    """Qué pasa, y en qué línea de lo escrito."""

    que: str
    linea: int


Funcion = ast.FunctionDef | ast.AsyncFunctionDef


def tropiezo(escrito: str, debida: str) -> Tropiezo | None:
    """Dar el primer tropiezo que explica por sí solo que algo no pase."""
    suyo, debido = _leer(escrito), _leer(debida)
    if suyo is None or debido is None:
        return None
    for mirar in (_sin_base, _metodos, _sin_self, _clases_sin_hacer, _en_init, _lineas, _super):
        for hallado in mirar(suyo, debido):
            return hallado
    return None


def detalle(escrito: str, debida: str) -> Tropiezo | None:
    """Dar lo que puede explicarlo, para decirlo detrás de lo que falla."""
    suyo, debido = _leer(escrito), _leer(debida)
    if suyo is None or debido is None:
        return None
    for mirar in (_sin_return, _hecha_en_forward, _se_pierde):
        for hallado in mirar(suyo, debido):
            return hallado
    return None


def _leer(escrito: str) -> ast.Module | None:
    try:
        return ast.parse(escrito)
    except SyntaxError:
        return None


# --- los huecos -------------------------------------------------------------------------------


def hueco(escrito: str) -> Tropiezo | None:
    """Dar qué queda por escribir, o por borrar, en algo escrito a medias."""
    arbol = _leer(escrito)
    sin_escribir, primera = [], 0
    for funcion in _funciones(arbol) if arbol else ():
        huecos = [n for n in ast.walk(funcion) if _es_hueco(n)]
        if not huecos:
            continue
        if any(not _es_hueco(linea) and not hoja.venia(linea) for linea in funcion.body):
            que = f"queda un `{hoja.HUECO}` en {funcion.name}: bórralo"
            return Tropiezo(que, huecos[0].lineno)
        sin_escribir.append(funcion.name)
        primera = primera or huecos[0].lineno
    if sin_escribir:
        return Tropiezo(f"falta escribir {' y '.join(sin_escribir)}", primera)
    return None


def _es_hueco(nodo: ast.AST) -> bool:
    return isinstance(nodo, ast.Raise) and ast.unparse(nodo).startswith(hoja.HUECO)


def _funciones(arbol: ast.Module) -> Iterator[ast.FunctionDef]:
    """Las de fuera y los métodos; no las que hay dentro de otra."""
    for nodo in arbol.body:
        dentro = nodo.body if isinstance(nodo, ast.ClassDef) else [nodo]
        yield from (n for n in dentro if isinstance(n, ast.FunctionDef))


# --- los métodos ------------------------------------------------------------------------------


def _clase(arbol: ast.Module) -> ast.ClassDef | None:
    return next((n for n in arbol.body if isinstance(n, ast.ClassDef)), None)


def _los_metodos(clase: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in clase.body if isinstance(n, ast.FunctionDef)}


def _recibe(funcion: ast.FunctionDef) -> list[str]:
    return [uno.arg for uno in (*funcion.args.posonlyargs, *funcion.args.args)]


def _sin_base(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """`class Bloque:`, sin el nn.Module."""
    clase, debida = _clase(suyo), _clase(debido)
    if clase is None or debida is None or clase.bases or not debida.bases:
        return
    base = ast.unparse(debida.bases[0])
    que = f"{clase.name} no parte de {base}: class {clase.name}({base})"
    yield Tropiezo(que, clase.lineno)


def _metodos(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """Un método con otro nombre, o con la sangría de otro sitio."""
    clase, debida = _clase(suyo), _clase(debido)
    if clase is None or debida is None:
        return
    suyos, faltan = _los_metodos(clase), {}
    faltan = {n: m for n, m in _los_metodos(debida).items() if n not in suyos}
    for nombre in faltan:
        for nodo in ast.walk(suyo):
            if not isinstance(nodo, ast.FunctionDef) or nodo.name != nombre:
                continue
            if nodo in suyo.body:
                yield Tropiezo(
                    f"{nombre} está fuera de la clase: le falta sangría, la de sus otros métodos",
                    nodo.lineno,
                )
                return
            dentro = next(m.name for m in suyos.values() if nodo in ast.walk(m))
            yield Tropiezo(f"{nombre} está dentro de {dentro}: le sobra sangría", nodo.lineno)
    for nombre, metodo in suyos.items():
        if nombre in _los_metodos(debida):
            continue
        if nombre.strip("_") in ("init", "int") and "__init__" in faltan:
            que = f"el método `{nombre}` ha de llamarse `__init__`, con dos rayas a cada lado"
            yield Tropiezo(que, metodo.lineno)
        elif parecido := get_close_matches(nombre, faltan, 1, 0.7):
            yield Tropiezo(f"el método `{nombre}` ha de llamarse `{parecido[0]}`", metodo.lineno)


def _sin_self(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """Un método que no recibe self, o una llamada que lo da dos veces."""
    clase, debida = _clase(suyo), _clase(debido)
    if clase is None:
        return
    debidos = _los_metodos(debida) if debida else {}
    for nombre, metodo in _los_metodos(clase).items():
        recibe = _recibe(metodo)
        if metodo.decorator_list or recibe[:1] == ["self"]:
            continue
        pocos = nombre in debidos and len(recibe) < len(_recibe(debidos[nombre]))
        usa_self = any(isinstance(n, ast.Name) and n.id == "self" for n in ast.walk(metodo))
        if pocos or usa_self:
            bien = ", ".join(["self", *recibe])
            yield Tropiezo(f"a {nombre} le falta self: def {nombre}({bien})", metodo.lineno)
    for nodo in ast.walk(clase):
        if not isinstance(nodo, ast.Call) or not _es_de_self(nodo.func) or not nodo.args:
            continue
        if ast.unparse(nodo.args[0]) == "self":
            que = f"{ast.unparse(nodo.func)} ya lleva self delante: quítalo de sus paréntesis"
            yield Tropiezo(que, nodo.lineno)


def _es_de_self(nodo: ast.AST) -> bool:
    return isinstance(nodo, ast.Attribute) and ast.unparse(nodo.value) == "self"


def _super(suyo: ast.Module, _: ast.Module) -> Iterator[Tropiezo]:
    for nodo in ast.walk(suyo):
        if isinstance(nodo, ast.Attribute) and ast.unparse(nodo.value) == "super":
            yield Tropiezo("super lleva paréntesis: super().__init__()", nodo.lineno)


# --- lo que se guarda -------------------------------------------------------------------------

CLASES = {"Tokenizador", "Entrada", "Atencion", "FeedForward", "LayerNorm", "Bloque", "Gpt", "Adam"}
HACEN = CLASES | {"hacer_norma", "list", "dict", "set"}


def _clases_sin_hacer(suyo: ast.Module, _: ast.Module) -> Iterator[Tropiezo]:
    """`self.attention = Atencion`: la clase, donde va uno hecho con ella."""
    for funcion in _funciones(suyo):
        for nodo in ast.walk(funcion):
            if not isinstance(nodo, ast.Assign) or not _es_una_clase(nodo.value):
                continue
            guardada, clase = ast.unparse(nodo.targets[0]), ast.unparse(nodo.value)
            # Otro nombre para la clase, con el que después se hace uno, vale.
            if isinstance(nodo.targets[0], ast.Name) and f"{guardada}(" in ast.unparse(funcion):
                continue
            que = f"en {guardada} guarda {clase}, y no uno hecho: faltan sus paréntesis, {clase}(…)"
            yield Tropiezo(que, nodo.lineno)


def _es_una_clase(valor: ast.expr) -> bool:
    escrito = ast.unparse(valor)
    de_nn = isinstance(valor, ast.Attribute) and escrito.startswith("nn.")
    return escrito in HACEN or (de_nn and isinstance(getattr(nn, valor.attr, None), type))


def _en_init(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """`norm1 = hacer_norma(forma)` en __init__: sin self., se pierde al acabar."""
    clase, debida = _clase(suyo), _clase(debido)
    if clase is None or debida is None or "__init__" not in _los_metodos(clase):
        return
    hacer = _los_metodos(clase)["__init__"]
    suyos = {n.attr for n in ast.walk(clase) if _es_de_self(n) and isinstance(n.ctx, ast.Load)}
    buscados = (suyos | _atributos(debida)) - _atributos(clase)
    for nodo in ast.walk(hacer):
        if isinstance(nodo, ast.Name) and isinstance(nodo.ctx, ast.Store) and nodo.id in buscados:
            que = f"en __init__, a `{nodo.id} = …` le falta self.: sin él se pierde al acabar"
            yield Tropiezo(que, nodo.lineno)


def _atributos(clase: ast.ClassDef) -> set[str]:
    """Lo que una clase guarda en self."""
    nodos = (n for n in ast.walk(clase) if _es_de_self(n))
    return {n.attr for n in nodos if isinstance(n.ctx, ast.Store)}


def suelto(nombre: str, escrito: str, debida: str) -> str:
    """Decir qué le pasa a un nombre que no se conoce; "", si no se sabe."""
    suyo, debido = _leer(escrito), _leer(debida)
    clase = _clase(suyo) if suyo else None
    if clase is None:
        return ""
    de_la_debida = _clase(debido) if debido else None
    suyos = _atributos(clase) | (_atributos(de_la_debida) if de_la_debida else set())
    metodos = _los_metodos(clase)
    recibe = _recibe(metodos["__init__"])[1:] if "__init__" in metodos else []
    if nombre in _atributos(clase) or (nombre in suyos and nombre not in recibe):
        return f"usa `{nombre}` sin self.: es self.{nombre}"
    if nombre in metodos:
        return f"llama a `{nombre}` sin self.: es self.{nombre}(…)"
    if nombre in recibe:
        return (
            f"`{nombre}` solo se conoce en __init__, que es quien la recibe: guárdala allí, "
            f"self.{nombre} = {nombre}, y usa self.{nombre}"
        )
    return ""


# --- las líneas -------------------------------------------------------------------------------

NO_DAN_NADA = {"append", "extend", "insert", "sort", "reverse", "update", "backward", "step"}
NO_DAN_NADA |= {"zero_grad"}


def _lineas(suyo: ast.Module, _: ast.Module) -> Iterator[Tropiezo]:
    """Líneas que no hacen lo que parece."""
    for nodo in ast.walk(suyo):
        if isinstance(nodo, ast.Expr):
            yield from _sin_parentesis_o_con_dos_iguales(nodo)
        elif isinstance(nodo, ast.Assign):
            yield from _guarda_nada_o_una_tupla(nodo)
        elif isinstance(nodo, ast.For):
            yield from _un_for_del_reves_o_de_una_vuelta(nodo)
        elif isinstance(nodo, ast.Return) and _es_un_error(nodo.value):
            que = "devuelve un error en vez de lanzarlo: es raise, y no return"
            yield Tropiezo(que, nodo.lineno)
        elif isinstance(nodo, ast.Return) and _es_de_uno(nodo.value):
            que = "la coma del final hace de lo que devuelve una tupla de uno: quítala"
            yield Tropiezo(que, nodo.lineno)


def _un_for_del_reves_o_de_una_vuelta(bucle: ast.For) -> Iterator[Tropiezo]:
    if _es_de_self(bucle.target):
        cosa = ast.unparse(bucle.target)
        yield Tropiezo(f"el for va del revés: for uno in {cosa}", bucle.lineno)
    for linea in bucle.body:
        if isinstance(linea, ast.Return):
            que = "el return está dentro del for, que acaba en la primera vuelta: le sobra sangría"
            yield Tropiezo(que, linea.lineno)


def _es_un_error(valor: ast.expr | None) -> bool:
    """Decir si es `ValueError(…)`, o un error así."""
    llamada = ast.unparse(valor.func) if isinstance(valor, ast.Call) else ""
    return llamada.endswith("Error")


def _sin_parentesis_o_con_dos_iguales(nodo: ast.Expr) -> Iterator[Tropiezo]:
    escrito = ast.unparse(nodo.value)
    if isinstance(nodo.value, ast.Attribute):
        yield Tropiezo(f"`{escrito}` no llama a nada: le faltan los paréntesis", nodo.lineno)
    # También en `B, T, C == x.shape`, que es una tupla con la comparación al final.
    comparada = nodo.value.elts[-1] if isinstance(nodo.value, ast.Tuple) else nodo.value
    if isinstance(comparada, ast.Compare) and isinstance(comparada.ops[0], ast.Eq):
        yield Tropiezo("== compara y no guarda: para guardar es un solo =", nodo.lineno)


def _guarda_nada_o_una_tupla(nodo: ast.Assign) -> Iterator[Tropiezo]:
    guardada, valor = ast.unparse(nodo.targets[0]), nodo.value
    if isinstance(valor, ast.Call) and isinstance(valor.func, ast.Attribute):
        metodo = valor.func.attr
        if metodo in NO_DAN_NADA:
            con_listas = " cambia una lista (un tensor no lo tiene: torch.cat)"
            hace = con_listas if metodo in ("append", "extend") else " hace lo suyo"
            que = f"{metodo}{hace} y no da nada: quita «{guardada} =» de delante"
            yield Tropiezo(que, nodo.lineno)
    if isinstance(nodo.targets[0], ast.Attribute | ast.Name) and _es_de_uno(valor):
        yield Tropiezo(f"la coma del final hace de {guardada} una tupla: quítala", nodo.lineno)


def _es_de_uno(valor: ast.expr | None) -> bool:
    """Decir si es una tupla de una sola cosa, y no la de un desempaquetado."""
    return (
        isinstance(valor, ast.Tuple)
        and len(valor.elts) == 1
        and not isinstance(valor.elts[0], ast.Starred)
    )


def _sin_return(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """Una función que no devuelve nada, y debería."""
    dan = {f.name for f in _funciones(debido) if _vueltas(f)}
    for funcion in _funciones(suyo):
        if funcion.name not in dan:
            continue
        yield from sin_return(funcion)


def sin_return(funcion: ast.FunctionDef) -> Iterator[Tropiezo]:
    vueltas = _vueltas(funcion)
    escritos = [n for n in ast.walk(funcion) if _es_print(n)]
    de_print = [v for v in vueltas if _es_print(v.value)]
    if de_print:
        que = f"{funcion.name} devuelve lo que da print, que no da nada: quita el print"
        yield Tropiezo(que, de_print[0].lineno)
    elif not vueltas and escritos:
        que = f"¿print en vez de return en {funcion.name}?: print lo enseña, return lo da"
        yield Tropiezo(que, escritos[0].lineno)
    elif not vueltas:
        ultima = funcion.body[-1]
        yield Tropiezo(f"a {funcion.name} le falta el return", ultima.lineno)


def _vueltas(funcion: ast.FunctionDef) -> list[ast.Return]:
    """Los return que dan algo; no los de una función que haya dentro."""
    dentro = {n for f in ast.walk(funcion) if f is not funcion for n in _si_es_funcion(f)}
    todos = (n for n in ast.walk(funcion) if isinstance(n, ast.Return) and n not in dentro)
    return [n for n in todos if n.value is not None]


def _si_es_funcion(nodo: ast.AST) -> list[ast.AST]:
    return list(ast.walk(nodo)) if isinstance(nodo, Funcion) else []


def _es_print(nodo: ast.AST | None) -> bool:
    return isinstance(nodo, ast.Call) and ast.unparse(nodo.func) == "print"


CON_PARAMETROS = CLASES | {"nn.Linear", "nn.Embedding", "nn.LayerNorm", "nn.Parameter"}


def _hecha_en_forward(suyo: ast.Module, _: ast.Module) -> Iterator[Tropiezo]:
    """`nn.Linear(x)` en forward: una capa nueva en cada llamada, donde va la de __init__."""
    clase = _clase(suyo)
    metodo = _los_metodos(clase).get("forward") if clase else None
    for nodo in ast.walk(metodo) if metodo else ():
        if isinstance(nodo, ast.Call) and ast.unparse(nodo.func) in CON_PARAMETROS:
            cual = ast.unparse(nodo.func)
            que = f"en forward hace otra {cual}: se hace una vez, en __init__, y aquí se usa con self."
            yield Tropiezo(que, nodo.lineno)


# Lo que hay con el mismo nombre en una lista o en un módulo cambia su objeto, y puede ir solo.
CAMBIAN = set(dir(list)) | set(dir(dict)) | set(dir(nn.Module))
CAMBIAN |= {"backward", "retain_grad", "register_hook", "apply_"}
DAN_OTRO = {n for n in dir(Tensor) if not n.startswith("_") and not n.endswith("_")} - CAMBIAN
DE_TORCH = {"cat", "stack", "where", "softmax"}


def _se_pierde(suyo: ast.Module, _: ast.Module) -> Iterator[Tropiezo]:
    """Una llamada que da algo, y nadie lo guarda."""
    clase = _clase(suyo)
    metodos = {f"self.{nombre}" for nombre in _los_metodos(clase)} if clase else set()
    for nodo in ast.walk(suyo):
        if isinstance(nodo, ast.Expr) and isinstance(nodo.value, ast.BinOp):
            yield Tropiezo("hace una cuenta y no guarda lo que da: ¿falta x = …?", nodo.lineno)
        if not isinstance(nodo, ast.Expr) or not isinstance(nodo.value, ast.Call):
            continue
        llamada = nodo.value.func
        quien = ast.unparse(llamada)
        if isinstance(llamada, ast.Attribute) and llamada.attr in DAN_OTRO:
            cosa = ast.unparse(llamada.value)
            que = f"{llamada.attr} no cambia {cosa}: da otro, y aquí se pierde; ¿falta {cosa} = …?"
            yield Tropiezo(que, nodo.lineno)
        elif (_es_de_self(llamada) and quien not in metodos) or quien in {
            f"torch.{n}" for n in DE_TORCH
        }:
            yield Tropiezo(f"lo que da {quien}(…) se pierde: nadie lo guarda", nodo.lineno)


def con_linea(hallado: Tropiezo, donde: Callable[[int], str]) -> str:
    """Dar la frase de un tropiezo, con su línea."""
    return f"{hallado.que}{donde(hallado.linea)}"
