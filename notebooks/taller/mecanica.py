"""Los tropiezos con Python, que no son de matemáticas, dichos por su nombre.

Aquí están los que explican por sí solos que algo no pase; los que solo pueden explicarlo están en
detalles.py.

Se miran en lo escrito, y solo cuando la comprobación no pasa: nada de esto rechaza una respuesta
que da lo que debe. `debida` es la pieza de la solución: dice qué métodos hay y qué recibe cada uno.
"""

import ast
import builtins
import math
import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

import hoja


class Tropiezo(NamedTuple):
    """Qué pasa, y en qué línea de lo escrito."""

    que: str
    linea: int


Funcion = ast.FunctionDef | ast.AsyncFunctionDef


def tropiezo(escrito: str, debida: str) -> Tropiezo | None:
    """Dar el primer tropiezo que explica por sí solo que algo no pase."""
    suyo, debido = leer(escrito), leer(debida)
    if suyo is None or debido is None:
        return None
    for mirar in (
        _sin_base,
        _metodos,
        _sin_self,
        _clases_sin_hacer,
        _clases_mal_usadas,
        _en_init,
        _lineas,
        _super,
    ):
        for hallado in mirar(suyo, debido):
            return hallado
    return _pega_el_signo(escrito)


def leer(escrito: str) -> ast.Module | None:
    try:
        return ast.parse(escrito)
    except SyntaxError:
        return None


# --- los huecos -------------------------------------------------------------------------------


def hueco(escrito: str) -> Tropiezo | None:
    """Dar qué queda por escribir, o por borrar, en algo escrito a medias."""
    arbol = leer(escrito)
    sin_escribir, primera = [], 0
    for funcion in funciones_de(arbol) if arbol else ():
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


def funciones_de(arbol: ast.Module) -> Iterator[ast.FunctionDef]:
    """Las de fuera y los métodos; no las que hay dentro de otra."""
    for nodo in arbol.body:
        dentro = nodo.body if isinstance(nodo, ast.ClassDef) else [nodo]
        yield from (n for n in dentro if isinstance(n, ast.FunctionDef))


# --- los métodos ------------------------------------------------------------------------------


def clase_de(arbol: ast.Module) -> ast.ClassDef | None:
    return next((n for n in arbol.body if isinstance(n, ast.ClassDef)), None)


def los_metodos(clase: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in clase.body if isinstance(n, ast.FunctionDef)}


def parametros_de(funcion: ast.FunctionDef) -> list[str]:
    return [uno.arg for uno in (*funcion.args.posonlyargs, *funcion.args.args)]


def _sin_base(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """`class Bloque:`, sin el nn.Module."""
    clase, debida = clase_de(suyo), clase_de(debido)
    if clase is None or debida is None or clase.bases or not debida.bases:
        return
    base = ast.unparse(debida.bases[0])
    que = f"{clase.name} no parte de {base}: class {clase.name}({base})"
    yield Tropiezo(que, clase.lineno)


def _metodos(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """Un método con otro nombre, o con la sangría de otro sitio."""
    clase, debida = clase_de(suyo), clase_de(debido)
    if clase is None or debida is None:
        return
    suyos, faltan = los_metodos(clase), {}
    faltan = {n: m for n, m in los_metodos(debida).items() if n not in suyos}
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
        if nombre in los_metodos(debida):
            continue
        if nombre.strip("_") in ("init", "int") and "__init__" in faltan:
            que = f"el método `{nombre}` ha de llamarse `__init__`, con dos rayas a cada lado"
            yield Tropiezo(que, metodo.lineno)
        elif parecido := get_close_matches(nombre, faltan, 1, 0.7):
            yield Tropiezo(f"el método `{nombre}` ha de llamarse `{parecido[0]}`", metodo.lineno)


def _sin_self(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """Un método que no recibe self, o una llamada que lo da dos veces."""
    clase, debida = clase_de(suyo), clase_de(debido)
    if clase is None:
        return
    debidos = los_metodos(debida) if debida else {}
    for nombre, metodo in los_metodos(clase).items():
        recibe = parametros_de(metodo)
        if metodo.decorator_list or recibe[:1] == ["self"]:
            continue
        pocos = nombre in debidos and len(recibe) < len(parametros_de(debidos[nombre]))
        usa_self = any(isinstance(n, ast.Name) and n.id == "self" for n in ast.walk(metodo))
        if pocos or usa_self:
            bien = ", ".join(["self", *recibe])
            yield Tropiezo(f"a {nombre} le falta self: def {nombre}({bien})", metodo.lineno)
    for nodo in ast.walk(clase):
        if not isinstance(nodo, ast.Call) or not nodo.args or ast.unparse(nodo.args[0]) != "self":
            continue
        quien = ast.unparse(nodo.func)
        if es_de_self(nodo.func) or quien.startswith("super()."):
            yield Tropiezo(f"{quien} ya lleva self delante: quítalo de sus paréntesis", nodo.lineno)


def es_de_self(nodo: ast.AST) -> bool:
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
    for funcion in funciones_de(suyo):
        for nodo in ast.walk(funcion):
            if not isinstance(nodo, ast.Assign) or not _es_una_clase(nodo.value):
                continue
            guardada, clase = ast.unparse(nodo.targets[0]), ast.unparse(nodo.value)
            # Otro nombre para la clase, con el que después se hace uno, vale.
            if isinstance(nodo.targets[0], ast.Name) and f"{guardada}(" in ast.unparse(funcion):
                continue
            que = f"en {guardada} guarda {clase}, y no uno hecho: faltan sus paréntesis, {clase}(…)"
            yield Tropiezo(que, nodo.lineno)


MEDIDAS = {"vocab_size", "block_size", "n_embd", "n_layer", "n_head", "bias", "activation", "norm"}
MEDIDAS |= {"position", "qk_norm"}


def _clases_mal_usadas(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """Una clase donde va lo que se recibe, o la capa que se hace donde va lo que da."""
    for nodo in ast.walk(suyo):
        es_forma = isinstance(nodo, ast.Attribute) and ast.unparse(nodo.value) == "Forma"
        if isinstance(nodo, ast.Assign) and ast.unparse(nodo.value) == "Forma":
            que = "guarda la clase Forma, y no la forma que recibe: va con minúscula"
            yield Tropiezo(que, nodo.lineno)
        elif es_forma and nodo.attr in MEDIDAS:
            que = f"pide {nodo.attr} a la clase Forma: lo tiene la forma que se recibe"
            yield Tropiezo(que, nodo.lineno)
    for nodo in llamadas(suyo):
        quien = nodo.func.value if isinstance(nodo.func, ast.Attribute) else None
        es_clase = isinstance(quien, ast.Name) and quien.id in CLASES
        if es_clase and not (nodo.args and ast.unparse(nodo.args[0]) == "self"):
            que = f"llama a {nodo.func.attr} de la clase {quien.id}: lo tiene uno hecho con ella"
            yield Tropiezo(que, nodo.lineno)
    yield from _capas_con_lo_que_leen(suyo)


def _capas_con_lo_que_leen(suyo: ast.Module) -> Iterator[Tropiezo]:
    """`nn.ReLU(x)`: lo que se da al hacer la capa son sus medidas, y lo que lee, al llamarla."""
    for funcion in funciones_de(suyo):
        lee = set(parametros_de(funcion)) - {"self", "forma"}
        for nodo in llamadas(funcion) if funcion.name != "__init__" else ():
            capa = ast.unparse(nodo.func)
            if not _es_una_clase(nodo.func) or not capa.startswith("nn.") or capa in CON_PARAMETROS:
                continue
            for dado in nodo.args:
                nombres = {n.id for n in ast.walk(dado) if isinstance(n, ast.Name)}
                if nombres & lee and not re.search(r"shape|size|len\(", ast.unparse(dado)):
                    que = f"{capa}(…) hace la capa; lo que lee va en otros paréntesis: {capa}()(…)"
                    yield Tropiezo(que, nodo.lineno)
                    return


def llamadas(arbol: ast.AST) -> Iterator[ast.Call]:
    return (n for n in ast.walk(arbol) if isinstance(n, ast.Call))


CON_PARAMETROS = CLASES | {"nn.Linear", "nn.Embedding", "nn.LayerNorm", "nn.Parameter"}


def _es_una_clase(valor: ast.expr) -> bool:
    escrito = ast.unparse(valor)
    de_nn = isinstance(valor, ast.Attribute) and escrito.startswith("nn.")
    return escrito in HACEN or (de_nn and isinstance(getattr(nn, valor.attr, None), type))


def _en_init(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """`norm1 = hacer_norma(forma)` en __init__: sin self., se pierde al acabar."""
    clase, debida = clase_de(suyo), clase_de(debido)
    if clase is None or debida is None or "__init__" not in los_metodos(clase):
        return
    hacer = los_metodos(clase)["__init__"]
    suyos = {n.attr for n in ast.walk(clase) if es_de_self(n) and isinstance(n.ctx, ast.Load)}
    con_comillas = {n.value for n in ast.walk(hacer) if isinstance(n, ast.Constant)}
    buscados = (suyos | atributos(debida)) - atributos(clase) - con_comillas  # register_buffer
    for nodo in ast.walk(hacer):
        if isinstance(nodo, ast.Name) and isinstance(nodo.ctx, ast.Store) and nodo.id in buscados:
            que = f"en __init__, a `{nodo.id} = …` le falta self.: sin él se pierde al acabar"
            if f"{nodo.id} = self.{nodo.id}" in map(ast.unparse, ast.walk(hacer)):
                que = f"guarda del revés: lo recibido va a self, self.{nodo.id} = {nodo.id}"
            yield Tropiezo(que, nodo.lineno)


def atributos(clase: ast.ClassDef) -> set[str]:
    """Lo que una clase guarda en self."""
    nodos = (n for n in ast.walk(clase) if es_de_self(n))
    return {n.attr for n in nodos if isinstance(n.ctx, ast.Store)}


def suelto(nombre: str, escrito: str, debida: str) -> str:
    """Decir qué le pasa a un nombre que no se conoce; "", si no se sabe."""
    suyo, debido = leer(escrito), leer(debida)
    if suyo is None:
        return ""
    de_la_clase = _suelto_en_una_clase(nombre, suyo, debido)
    return de_la_clase or _suelto_en_python(nombre, suyo, debido)


def _suelto_en_una_clase(nombre: str, suyo: ast.Module, debido: ast.Module | None) -> str:
    clase = clase_de(suyo)
    if clase is None:
        return ""
    de_la_debida = clase_de(debido) if debido else None
    suyos = atributos(clase) | (atributos(de_la_debida) if de_la_debida else set())
    metodos = los_metodos(clase)
    recibe = parametros_de(metodos["__init__"])[1:] if "__init__" in metodos else []
    if nombre in atributos(clase) or (nombre in suyos and nombre not in recibe):
        de_la_forma = nombre in MEDIDAS and f"forma.{nombre}" in ast.unparse(debido or clase)
        return f"usa `{nombre}` sin {'forma' if de_la_forma else 'self'}.: es " + (
            f"forma.{nombre}" if de_la_forma else f"self.{nombre}"
        )
    if nombre in metodos:
        return f"llama a `{nombre}` sin self.: es self.{nombre}(…)"
    if nombre in recibe:
        return (
            f"`{nombre}` solo se conoce en __init__, que es quien la recibe: guárdala allí, "
            f"self.{nombre} = {nombre}, y usa self.{nombre}"
        )
    return ""


EN_PYTHON = {"true": "True", "false": "False", "none": "None", "null": "None"}
EN_PYTHON |= {"inf": 'float("inf")', "sen": "sin", "ln": "log", "tg": "tan", "longitud": "len"}


def _suelto_en_python(nombre: str, suyo: ast.Module, debido: ast.Module | None) -> str:
    """Lo que se escribe con comillas, con lo de delante, o de otra manera."""
    nodos = [n for arbol in (suyo, debido) if arbol for n in ast.walk(arbol)]
    textos = {n.value for n in nodos if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    de_algo = [n for n in nodos if isinstance(n, ast.Attribute) and n.attr == nombre]
    definidos = {n.id for n in ast.walk(suyo) if isinstance(n, ast.Name) and n.id != nombre}
    if nombre == "self":
        return "usa `self`, que solo hay en los métodos de una clase"
    if nombre in EN_PYTHON:
        return f"usa `{nombre}`: en Python es {EN_PYTHON[nombre]}"
    if nombre in textos:
        return f'`{nombre}` es un texto: va entre comillas, "{nombre}"'
    if de_algo and isinstance(de_algo[-1].value, ast.Name):
        return f"usa `{nombre}` sin decir de quién: ¿es {ast.unparse(de_algo[-1])}?"
    for modulo, suyos in (("math", math), ("torch", torch), ("F", F), ("nn", nn)):
        if hasattr(suyos, nombre):
            return f"usa `{nombre}` sin decir de dónde: ¿es {modulo}.{nombre}?"
    if parecido := get_close_matches(nombre, definidos, 1, 0.75):
        return f"usa `{nombre}`, que no está definido: ¿es `{parecido[0]}`?"
    return ""


def sin_valor(nombre: str, linea: int, escrito: str, debida: str) -> str:
    """Decir por qué una variable de una función no tiene valor todavía; "", si no se sabe."""
    arbol = leer(escrito)
    ramas = {ast.If: "if", ast.For: "for", ast.While: "while", ast.Try: "try"}
    for nodo in ast.walk(arbol) if arbol else ():
        antes = type(nodo) in ramas and (nodo.end_lineno or 0) < linea
        if antes and any(_guarda(n, nombre) for n in ast.walk(nodo)):
            return (
                f"`{nombre}` no tiene valor si no se entra en el {ramas[type(nodo)]} que se lo da"
            )
    return _suelto_en_una_clase(nombre, arbol, leer(debida)) if arbol else ""


def _guarda(nodo: ast.AST, nombre: str) -> bool:
    return isinstance(nodo, ast.Name) and isinstance(nodo.ctx, ast.Store) and nodo.id == nombre


def sin_atributo(nombre: str, cosa: object, linea: str, escrito: str) -> str:
    """Decir qué pasa con algo que se pide detrás de un punto y no está; "", si no se sabe."""
    arbol = leer(escrito)
    clase = clase_de(arbol) if arbol else None
    de_self = clase is not None and type(cosa).__name__ == clase.name
    if de_self and re.search(rf"self\.{nombre}\b", linea) and nombre not in atributos(clase):
        if parecido := get_close_matches(nombre, atributos(clase), 1, 0.75):
            return f"pide self.{nombre}, y lo que se guarda se llama self.{parecido[0]}"
        de_la_hoja = rf"^(?:def|class) {nombre}\b"
        if re.search(de_la_hoja, hoja.SOLUCION.read_text(encoding="utf-8"), re.MULTILINE):
            return f"{nombre} no es de self: se usa sin self."
        return f"pide self.{nombre}, que no se ha guardado: en __init__, self.{nombre} = …"
    if cosa is None or de_self:
        return ""
    quien = getattr(cosa, "__name__", None) or type(cosa).__name__
    otro = EN_PYTHON.get(nombre, "")
    if hasattr(cosa, otro):
        return f"{quien} no tiene `{nombre}`: en inglés, {otro}"
    if nombre in ("len", "sum", "max", "min", "sorted", "abs", "range") and hasattr(
        builtins, nombre
    ):
        return f"{quien} no tiene `{nombre}`: va delante, {nombre}(…)"
    suyos = [n for n in dir(cosa) if n[0] != "_"]
    iguales = [n for n in suyos if n.lower() == nombre.lower()]
    mas_cortos = sorted((n for n in suyos if len(n) > 2 and nombre.startswith(n)), key=len)[-1:]
    if parecido := iguales or get_close_matches(nombre, suyos, 1, 0.8) or mas_cortos:
        return f"{quien} no tiene `{nombre}`: ¿es `{parecido[0]}`?"
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
        elif isinstance(nodo, ast.Return) and isinstance(nodo.value, ast.Set):
            dadas = ", ".join(map(ast.unparse, nodo.value.elts))
            que = f"las llaves hacen un conjunto, que no tiene orden: return {dadas}"
            yield Tropiezo(que, nodo.lineno)
    for funcion in funciones_de(suyo):
        for vuelta in vueltas_de(funcion):
            if _es_de_uno(vuelta.value):
                que = "la coma del final hace de lo que devuelve una tupla de uno: quítala"
                yield Tropiezo(que, vuelta.lineno)
            for dado in _listas_de_uno(vuelta.value):
                que = f"los corchetes de [{dado}] hacen de lo que devuelve una lista: quítalos"
                yield Tropiezo(que, vuelta.lineno)
    for nodo in llamadas(suyo):
        de_un_tensor = isinstance(nodo.func, ast.Attribute) and nodo.func.attr in SOLO_SE_PIDEN
        if de_un_tensor and not nodo.args:
            yield Tropiezo(f"{nodo.func.attr} no se llama: va sin paréntesis", nodo.lineno)


SIN_PARENTESIS = {"T", "mT", "H", "mH", "shape", "grad", "data", "dtype", "device", "ndim"}
"""Lo que se pide a un tensor sin llamarlo."""
SOLO_SE_PIDEN = SIN_PARENTESIS - {"device", "data", "grad"}
"""De eso, lo que no es además una función con otro dueño."""


def _pega_el_signo(escrito: str) -> Tropiezo | None:
    """`x =+ 1`, que no suma: guarda +1."""
    for numero, linea in enumerate(escrito.splitlines(), 1):
        if (hallado := re.match(r"\s*[\w.\[\]]+ *=([+-]) ", linea)) is not None:
            signo = hallado[1]
            hace = "suma" if signo == "+" else "resta"
            return Tropiezo(f"={signo} no {hace}: para eso es {signo}=", numero)
    return None


def _un_for_del_reves_o_de_una_vuelta(bucle: ast.For) -> Iterator[Tropiezo]:
    if re.search(r"\.(reverse|sort)\(\)$", ast.unparse(bucle.iter)):
        metodo = bucle.iter.func.attr
        como = {"reverse": "reversed", "sort": "sorted"}[metodo]
        yield Tropiezo(f"{metodo} cambia la lista y no da nada: {como}(…) da otra", bucle.lineno)
    if es_de_self(bucle.target):
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
    if isinstance(nodo.value, ast.Attribute) and nodo.value.attr not in SIN_PARENTESIS:
        yield Tropiezo(f"`{escrito}` no llama a nada: le faltan los paréntesis", nodo.lineno)
    # También en `B, T, C == x.shape`, que es una tupla con la comparación al final.
    comparada = nodo.value.elts[-1] if isinstance(nodo.value, ast.Tuple) else nodo.value
    if isinstance(comparada, ast.Compare) and isinstance(comparada.ops[0], ast.Eq):
        yield Tropiezo("== compara y no guarda: para guardar es un solo =", nodo.lineno)


def _guarda_nada_o_una_tupla(nodo: ast.Assign) -> Iterator[Tropiezo]:
    guardada, valor = ast.unparse(nodo.targets[0]), nodo.value
    if isinstance(valor, ast.Call) and isinstance(valor.func, ast.Attribute):
        metodo = valor.func.attr
        de_quien = re.match(r"\w+", ast.unparse(valor.func.value))
        if metodo in NO_DAN_NADA and (de_quien is None or de_quien[0] not in ("np", "torch")):
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


def _listas_de_uno(valor: ast.expr | None) -> list[str]:
    """Lo que va solo entre corchetes en una de las cosas de una tupla."""
    dadas = valor.elts if isinstance(valor, ast.Tuple) else []
    unas = [n.elts[0] for n in dadas if isinstance(n, ast.List) and len(n.elts) == 1]
    return [ast.unparse(n) for n in unas]


def vueltas_de(funcion: ast.FunctionDef) -> list[ast.Return]:
    """Los return que dan algo; no los de una función que haya dentro."""
    dentro = {n for f in ast.walk(funcion) if f is not funcion for n in _si_es_funcion(f)}
    todos = (n for n in ast.walk(funcion) if isinstance(n, ast.Return) and n not in dentro)
    return [n for n in todos if n.value is not None]


def _si_es_funcion(nodo: ast.AST) -> list[ast.AST]:
    return list(ast.walk(nodo)) if isinstance(nodo, Funcion) else []
