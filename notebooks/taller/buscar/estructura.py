"""Los tropiezos con Python que una búsqueda línea a línea no halla: un método sin self, una clase sin base.

Se miran en lo escrito, y solo cuando la comprobación no pasa: nada de esto rechaza una respuesta que
da lo que debe. `debida` es la pieza de la solución: dice qué métodos hay y qué recibe cada uno.
"""

import ast
import re
from collections.abc import Iterator
from difflib import get_close_matches

import hoja
from decir.mensaje import Mensaje


def tropiezo(escrito: str, debida: str, por_que: str = "") -> Mensaje | None:
    """Dar el primer tropiezo que explica por sí solo que algo no pase; `por_que` es lo que falla."""
    suyo, debido = leer(escrito), leer(debida)
    if suyo is None or debido is None:
        return None
    miradas = [_sin_base, _metodos, _sin_self, _sin_guardar, _sin_return, _no_se_llega]
    if re.search("gradiente|derivar", por_que):
        miradas.append(_sin_gradiente)
    for mirar in miradas:
        for hallado in mirar(suyo, debido):
            return hallado
    return _pega_el_signo(escrito)


def leer(escrito: str) -> ast.Module | None:
    try:
        return ast.parse(escrito)
    except (SyntaxError, ValueError):
        return None


def _dicho(que: str, linea: int, arreglo: str = "") -> Mensaje:
    return Mensaje(que, linea, arreglo=arreglo, es_de_python=True)


# --- los huecos -------------------------------------------------------------------------------


def hueco(escrito: str) -> Mensaje | None:
    """Dar qué queda por escribir, o por borrar, en algo escrito a medias."""
    arbol = leer(escrito)
    sin_escribir, primera = [], 0
    for funcion in _funciones_de(arbol) if arbol else ():
        huecos = [n for n in ast.walk(funcion) if _es_hueco(n)]
        if not huecos:
            continue
        if any(not _es_hueco(linea) and not hoja.venia(linea) for linea in funcion.body):
            return _dicho(f"queda el hueco de {funcion.name}", huecos[0].lineno, "borra esa línea")
        sin_escribir.append(funcion.name)
        primera = primera or huecos[0].lineno
    if sin_escribir:
        return Mensaje(f"falta escribir {' y '.join(sin_escribir)}", primera)
    return None


def _es_hueco(nodo: ast.AST) -> bool:
    return isinstance(nodo, ast.Raise) and ast.unparse(nodo).startswith(hoja.HUECO)


def _funciones_de(arbol: ast.Module) -> Iterator[ast.FunctionDef]:
    """Las de fuera y los métodos; no las que hay dentro de otra."""
    for nodo in arbol.body:
        dentro = nodo.body if isinstance(nodo, ast.ClassDef) else [nodo]
        yield from (n for n in dentro if isinstance(n, ast.FunctionDef))


# --- las clases y sus métodos -----------------------------------------------------------------


def _clase_de(arbol: ast.Module) -> ast.ClassDef | None:
    return next((n for n in arbol.body if isinstance(n, ast.ClassDef)), None)


def _metodos_de(clase: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in clase.body if isinstance(n, ast.FunctionDef)}


def _parametros_de(funcion: ast.FunctionDef) -> list[str]:
    return [uno.arg for uno in (*funcion.args.posonlyargs, *funcion.args.args)]


def _sin_base(suyo: ast.Module, debido: ast.Module) -> Iterator[Mensaje]:
    """`class Bloque:`, sin el nn.Module."""
    clase, debida = _clase_de(suyo), _clase_de(debido)
    if clase is None or debida is None or clase.bases or not debida.bases:
        return
    base = ast.unparse(debida.bases[0])
    yield _dicho(f"{clase.name} no parte de {base}", clase.lineno, f"class {clase.name}({base}):")


def _metodos(suyo: ast.Module, debido: ast.Module) -> Iterator[Mensaje]:
    """Un método con otro nombre, o con la sangría de otro sitio."""
    clase, debida = _clase_de(suyo), _clase_de(debido)
    if clase is None or debida is None:
        return
    suyos = _metodos_de(clase)
    faltan = [nombre for nombre in _metodos_de(debida) if nombre not in suyos]
    for nodo in ast.walk(suyo):
        if isinstance(nodo, ast.FunctionDef) and nodo.name in faltan:
            if nodo in suyo.body:
                arreglo = "ponle la sangría de los otros métodos"
                yield _dicho(f"{nodo.name} está fuera de la clase", nodo.lineno, arreglo)
            else:
                dentro = next(m.name for m in suyos.values() if nodo in ast.walk(m))
                yield _dicho(f"{nodo.name} está dentro de {dentro}", nodo.lineno, "quítale sangría")
    for nombre, metodo in suyos.items():
        if nombre in _metodos_de(debida):
            continue
        se_parecen = get_close_matches(nombre, faltan, 1, 0.7)
        if nombre.strip("_") in ("init", "int"):
            se_parecen = [uno for uno in faltan if uno == "__init__"]
        if se_parecen:
            que = f"el método se llama `{nombre}`, y ha de llamarse `{se_parecen[0]}`"
            yield _dicho(que, metodo.lineno)


def _sin_self(suyo: ast.Module, debido: ast.Module) -> Iterator[Mensaje]:
    """Un método que no recibe self."""
    clase, debida = _clase_de(suyo), _clase_de(debido)
    if clase is None or debida is None:
        return
    debidos = _metodos_de(debida)
    for nombre, metodo in _metodos_de(clase).items():
        recibe = _parametros_de(metodo)
        if metodo.decorator_list or recibe[:1] == ["self"]:
            continue
        pocos = nombre in debidos and len(recibe) < len(_parametros_de(debidos[nombre]))
        usa_self = any(isinstance(n, ast.Name) and n.id == "self" for n in ast.walk(metodo))
        if pocos or usa_self:
            bien = ", ".join(["self", *recibe])
            yield _dicho(f"{nombre} no recibe self", metodo.lineno, f"def {nombre}({bien}):")


def _sin_guardar(suyo: ast.Module, debido: ast.Module) -> Iterator[Mensaje]:
    """`norm1 = hacer_norma(forma)` en __init__: sin self., se pierde al acabar."""
    clase, debida = _clase_de(suyo), _clase_de(debido)
    if clase is None or debida is None or "__init__" not in _metodos_de(clase):
        return
    hacer = _metodos_de(clase)["__init__"]
    suyos = {n.attr for n in ast.walk(clase) if _es_de_self(n) and isinstance(n.ctx, ast.Load)}
    con_comillas = {n.value for n in ast.walk(hacer) if isinstance(n, ast.Constant)}
    # Con register_buffer se guarda con su nombre entre comillas.
    buscados = (suyos | _guardados(debida)) - _guardados(clase) - con_comillas
    for nodo in ast.walk(hacer):
        if isinstance(nodo, ast.Name) and isinstance(nodo.ctx, ast.Store) and nodo.id in buscados:
            que = f"`{nodo.id}` se pierde al acabar __init__: no se guarda en self"
            yield _dicho(que, nodo.lineno, f"self.{nodo.id} = …")


def _es_de_self(nodo: ast.AST) -> bool:
    return isinstance(nodo, ast.Attribute) and ast.unparse(nodo.value) == "self"


def _guardados(clase: ast.ClassDef) -> set[str]:
    nodos = (n for n in ast.walk(clase) if _es_de_self(n))
    return {n.attr for n in nodos if isinstance(n.ctx, ast.Store)}


# --- lo que se devuelve -----------------------------------------------------------------------


def _sin_return(suyo: ast.Module, debido: ast.Module) -> Iterator[Mensaje]:
    """Una función que no devuelve nada, y debería."""
    dan = {f.name for f in _funciones_de(debido) if _vueltas_de(f)}
    for funcion in _funciones_de(suyo):
        if funcion.name in dan and (hallado := sin_return(funcion)) is not None:
            yield hallado


def sin_return(funcion: ast.FunctionDef) -> Mensaje | None:
    """Decir por qué una función no devuelve nada, o nada si devuelve algo."""
    if _vueltas_de(funcion):
        return None
    for nodo in ast.walk(funcion):
        if isinstance(nodo, ast.Call) and ast.unparse(nodo.func) == "print":
            return _dicho(f"{funcion.name} enseña algo y no lo devuelve", nodo.lineno, "return …")
    return _dicho(f"{funcion.name} no devuelve nada", funcion.body[-1].lineno, "return …")


def _vueltas_de(funcion: ast.FunctionDef) -> list[ast.Return]:
    """Los return que dan algo; no los de una función que haya dentro."""
    otras = [n for n in ast.walk(funcion) if isinstance(n, ast.FunctionDef) and n is not funcion]
    de_dentro = {nodo for otra in otras for nodo in ast.walk(otra)}
    todos = (n for n in ast.walk(funcion) if isinstance(n, ast.Return) and n not in de_dentro)
    return [n for n in todos if n.value is not None]


def _no_se_llega(suyo: ast.Module, _: ast.Module) -> Iterator[Mensaje]:
    """Líneas detrás de un return."""
    for nodo in ast.walk(suyo):
        cuerpo = getattr(nodo, "body", None)
        for linea, siguiente in zip(cuerpo, cuerpo[1:]) if isinstance(cuerpo, list) else ():
            if isinstance(linea, ast.Return):
                yield _dicho("lo que va detrás de un return no se ejecuta", siguiente.lineno)


def _sin_gradiente(suyo: ast.Module, debido: ast.Module) -> Iterator[Mensaje]:
    """`@torch.no_grad()` delante de una función que la solución deja derivar."""
    deben = {f.name for f in _funciones_de(debido) if not f.decorator_list}
    for funcion in _funciones_de(suyo):
        for adorno in funcion.decorator_list if funcion.name in deben else ():
            if re.search("no_grad|inference_mode", ast.unparse(adorno)):
                que = f"{funcion.name} no deja derivar lo que da"
                yield _dicho(que, adorno.lineno, "borra esa línea")


def _pega_el_signo(escrito: str) -> Mensaje | None:
    """`x =+ 1`, que no suma: guarda +1."""
    for numero, linea in enumerate(escrito.splitlines(), 1):
        if (hallado := re.match(r"\s*[\w.\[\]]+ *=([+-]) ", linea)) is not None:
            signo = hallado[1]
            return _dicho(
                f"={signo} guarda, y no {'suma' if signo == '+' else 'resta'}", numero, f"{signo}="
            )
    return None
