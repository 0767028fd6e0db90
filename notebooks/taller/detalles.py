"""Lo que puede explicar que algo no pase, para decirlo detrás de lo que falla, con su línea.

Como en mecanica.py, se mira en lo escrito y solo cuando la comprobación no pasa. `debida` es la pieza
de la solución.
"""

import ast
import builtins
import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches

from torch import Tensor, nn

from mecanica import (
    CON_PARAMETROS,
    SIN_PARENTESIS,
    Tropiezo,
    atributos,
    clase_de,
    es_de_self,
    funciones_de,
    leer,
    llamadas,
    los_metodos,
    parametros_de,
    vueltas_de,
)


def detalle(escrito: str, debida: str, por_que: str) -> Tropiezo | None:
    """Dar lo que puede explicar lo que falla, para decirlo detrás."""
    suyo, debido = leer(escrito), leer(debida)
    if suyo is None or debido is None:
        return None
    for cuando, mirar in DETALLES:
        if not re.search(cuando, por_que):
            continue
        for hallado in mirar(suyo, debido):
            return hallado
    return None


# --- lo que no se devuelve o se pierde --------------------------------------------------------


def _sin_return(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """Una función que no devuelve nada, y debería."""
    dan = {f.name for f in funciones_de(debido) if vueltas_de(f)}
    for funcion in funciones_de(suyo):
        if funcion.name not in dan:
            continue
        yield from sin_return(funcion)


def sin_return(funcion: ast.FunctionDef) -> Iterator[Tropiezo]:
    vueltas = vueltas_de(funcion)
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
    elif isinstance(funcion.body[-1], ast.If) and not funcion.body[-1].orelse:
        dentro = [v for v in vueltas if v in ast.walk(funcion.body[-1])]
        if dentro:
            que = "el return está dentro del if: si no se entra en él, no se devuelve nada"
            yield Tropiezo(que, dentro[-1].lineno)


def _es_print(nodo: ast.AST | None) -> bool:
    return isinstance(nodo, ast.Call) and ast.unparse(nodo.func) == "print"


def _hecha_en_forward(suyo: ast.Module, _: ast.Module) -> Iterator[Tropiezo]:
    """`nn.Linear(x)` en forward: una capa nueva en cada llamada, donde va la de __init__."""
    clase = clase_de(suyo)
    metodo = los_metodos(clase).get("forward") if clase else None
    for nodo in ast.walk(metodo) if metodo else ():
        if isinstance(nodo, ast.Call) and ast.unparse(nodo.func) in CON_PARAMETROS:
            cual = ast.unparse(nodo.func)
            que = f"en forward hace otra {cual}: se hace una vez, en __init__, y aquí se usa con self."
            yield Tropiezo(que, nodo.lineno)


# Lo que hay con el mismo nombre en una lista o en un módulo cambia su objeto, y puede ir solo.
CAMBIAN = set(dir(list)) | set(dir(dict)) | set(dir(set)) | set(dir(nn.Module))
CAMBIAN |= {"backward", "retain_grad", "register_hook", "apply_"}
DAN_OTRO = {n for n in (*dir(Tensor), *dir(str)) if not n.startswith("_") and not n.endswith("_")}
DAN_OTRO -= CAMBIAN
CAMBIAN_ALGO = re.compile(r"(torch|F)\.(manual_seed|set_\w+|use_\w+|seed|\w+_|save)")


def _se_pierde(suyo: ast.Module, _: ast.Module) -> Iterator[Tropiezo]:
    """Una llamada que da algo, y nadie lo guarda."""
    clase = clase_de(suyo)
    metodos = {f"self.{nombre}" for nombre in dir(nn.Module)}
    metodos |= {f"self.{nombre}" for nombre in los_metodos(clase)} if clase else set()
    recorridos = {ast.unparse(n.target) for n in ast.walk(suyo) if isinstance(n, ast.For)}
    for nodo in ast.walk(suyo):
        if not isinstance(nodo, ast.Expr):
            continue
        valor = nodo.value
        if isinstance(valor, ast.BinOp):
            yield Tropiezo("hace una cuenta y no guarda lo que da: ¿falta x = …?", nodo.lineno)
        if isinstance(valor, ast.Attribute) and valor.attr in DAN_OTRO & SIN_PARENTESIS:
            yield Tropiezo(_da_otro(valor), nodo.lineno)
        if isinstance(valor, ast.Tuple) and all(isinstance(n, ast.Call) for n in valor.elts):
            yield Tropiezo("lo que dan esas llamadas se pierde: nadie lo guarda", nodo.lineno)
        if not isinstance(valor, ast.Call):
            continue
        llamada, quien = valor.func, ast.unparse(valor.func)
        de_torch = re.fullmatch(r"(torch|F|math)\.\w+", quien) and not CAMBIAN_ALGO.fullmatch(quien)
        if de_torch or (es_de_self(llamada) and quien not in metodos) or quien in recorridos:
            yield Tropiezo(f"lo que da {quien}(…) se pierde: nadie lo guarda", nodo.lineno)
        elif isinstance(llamada, ast.Attribute) and llamada.attr in DAN_OTRO:
            yield Tropiezo(_da_otro(llamada), nodo.lineno)


def _da_otro(nodo: ast.Attribute) -> str:
    cosa = ast.unparse(nodo.value)
    return f"{nodo.attr} no cambia {cosa}: da otro, y aquí se pierde; ¿falta {cosa} = …?"


# --- los bucles y las variables ---------------------------------------------------------------


def _vuelta_a_vuelta(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """Lo que se pierde de una vuelta de un bucle a otra."""
    for bucle in (n for n in ast.walk(suyo) if isinstance(n, ast.For | ast.While)):
        yield from _se_vacia(bucle)
        if not isinstance(bucle, ast.For):
            continue
        suya = ast.unparse(bucle.target)
        for linea in bucle.body:
            for nodo in ast.walk(linea):
                if _cambia(nodo, suya) and "range" in ast.unparse(bucle.iter):
                    que = f"cambiar `{suya}` dentro del for no sirve: la vuelta siguiente la pone el for"
                    yield Tropiezo(f"{que}; con while sí", nodo.lineno)
                elif (  # con += puede cambiar en su sitio lo que recorre
                    isinstance(nodo, ast.Assign)
                    and _cambia(nodo, suya)
                    and not _se_lee_despues(suya, nodo, bucle)
                ):
                    que = f"`{suya} = …` solo cambia ese nombre, y no lo que recorre el for"
                    yield Tropiezo(que, nodo.lineno)
                if isinstance(nodo, ast.Call) and ast.unparse(nodo.func) == "torch.manual_seed":
                    yield Tropiezo("pone la misma semilla en cada vuelta", nodo.lineno)


def _se_lee_despues(nombre: str, linea: ast.stmt, bucle: ast.For) -> bool:
    """Decir si en lo que queda del bucle se usa un nombre."""
    leidos = (n for n in ast.walk(bucle) if isinstance(n, ast.Name) and n.id == nombre)
    return any(n.lineno > linea.lineno and isinstance(n.ctx, ast.Load) for n in leidos)


def _cambia(nodo: ast.AST, nombre: str) -> bool:
    """Decir si una línea da otro valor a una variable a partir del que tiene."""
    if isinstance(nodo, ast.AugAssign):
        return ast.unparse(nodo.target) == nombre
    if not isinstance(nodo, ast.Assign) or ast.unparse(nodo.targets[0]) != nombre:
        return False
    return any(isinstance(n, ast.Name) and n.id == nombre for n in ast.walk(nodo.value))


def _se_vacia(bucle: ast.For | ast.While) -> Iterator[Tropiezo]:
    """`suma = 0` o `lista = []` dentro del bucle que la va llenando."""
    for lugar, linea in enumerate(bucle.body):
        if not isinstance(linea, ast.Assign) or not isinstance(linea.targets[0], ast.Name):
            continue
        nombre, valor = linea.targets[0].id, ast.unparse(linea.value)
        if valor not in ("0", "0.0", "1", "[]", "''", "()", "{}", "list()"):
            continue
        detras = bucle.body[lugar + 1 :]
        llena = [n for n in detras if _cambia(n, nombre) or _es_append(n, nombre)]
        if llena:
            que = f"`{nombre} = {valor}` está dentro del bucle, y la vacía en cada vuelta: va antes"
            yield Tropiezo(que, linea.lineno)


def _es_append(nodo: ast.AST, nombre: str) -> bool:
    return isinstance(nodo, ast.Expr) and ast.unparse(nodo).startswith(f"{nombre}.append(")


def _cambia_lo_que_recibe(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """`tasa = tasa * …` en un bucle: la vuelta siguiente ya no parte de la que se recibió."""
    for funcion, bien in _parejas(suyo, debido):
        recibe = set(parametros_de(funcion))
        buenas = {ast.unparse(n.targets[0]) for n in ast.walk(bien) if isinstance(n, ast.Assign)}
        for bucle in (n for n in ast.walk(funcion) if isinstance(n, ast.For)):
            for nodo in ast.walk(bucle):
                for nombre in recibe - buenas:
                    if isinstance(nodo, ast.Assign) and _cambia(nodo, nombre):
                        de_quien = _de_algo_y_no_suelto(nombre, buenas, funcion)
                        que = (
                            f"`{nombre}` es otra en cada vuelta: guarda lo que das en otra variable"
                        )
                        if de_quien:
                            que = f"`{nombre} = …` no cambia {de_quien}, que es lo que hay que cambiar"
                        yield Tropiezo(que, nodo.lineno)


def _de_algo_y_no_suelto(nombre: str, buenas: set[str], funcion: ast.FunctionDef) -> str:
    """El `optimizador.tasa` de la solución, si en lo escrito no se guarda nada ahí."""
    suyas = {ast.unparse(n.targets[0]) for n in ast.walk(funcion) if isinstance(n, ast.Assign)}
    return next((buena for buena in buenas - suyas if buena.endswith(f".{nombre}")), "")


def _parejas(suyo: ast.Module, debido: ast.Module) -> Iterator[tuple[ast.FunctionDef, ...]]:
    """Cada función escrita, con la de la solución que se llama igual."""
    buenas = {f.name: f for f in funciones_de(debido)}
    for funcion in funciones_de(suyo):
        if funcion.name in buenas:
            yield funcion, buenas[funcion.name]


def _hace_otro(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """`w = w - …` donde hay que cambiar el w que se recibe."""
    for funcion, bien in _parejas(suyo, debido):
        en_su_sitio = {
            ast.unparse(n.target) for n in ast.walk(bien) if isinstance(n, ast.AugAssign)
        }
        for nodo in ast.walk(funcion):
            for nombre in en_su_sitio & set(parametros_de(funcion)):
                if isinstance(nodo, ast.Assign) and _cambia(nodo, nombre):
                    que = f"`{nombre} = …` hace otro tensor, y el que se recibe no cambia: {nombre} -= …"
                    yield Tropiezo(que, nodo.lineno)


def _otro_nombre_para_el_parametro(suyo: ast.Module, _: ast.Module) -> Iterator[Tropiezo]:
    """`p = tensor` con los de named_parameters: el modelo no se entera."""
    for bucle in (n for n in ast.walk(suyo) if isinstance(n, ast.For)):
        nombre = ast.unparse(bucle.target).split(", ")[-1].strip("()")
        if "parameters()" not in ast.unparse(bucle.iter):
            continue
        for nodo in ast.walk(bucle):
            if isinstance(nodo, ast.Assign) and ast.unparse(nodo.targets[0]) == nombre:
                que = f"`{nombre} = …` no cambia el parámetro, solo el nombre: {nombre}.copy_(…)"
                yield Tropiezo(que, nodo.lineno)


def _dos_veces(suyo: ast.Module, _: ast.Module) -> Iterator[Tropiezo]:
    """Dos funciones con el mismo nombre: vale la última."""
    for dueno in (suyo, *(n for n in suyo.body if isinstance(n, ast.ClassDef))):
        vistas = set()
        for funcion in (n for n in dueno.body if isinstance(n, ast.FunctionDef)):
            if funcion.name in vistas:
                que = f"{funcion.name} está escrita dos veces, y vale la última"
                yield Tropiezo(que, funcion.lineno)
            vistas.add(funcion.name)


def _no_se_llega(suyo: ast.Module, _: ast.Module) -> Iterator[Tropiezo]:
    """Líneas detrás de un return."""
    for nodo in ast.walk(suyo):
        cuerpo = getattr(nodo, "body", None)
        for linea, siguiente in zip(cuerpo, cuerpo[1:]) if isinstance(cuerpo, list) else ():
            if isinstance(linea, ast.Return):
                yield Tropiezo("lo que va detrás de un return no se ejecuta", siguiente.lineno)


def _calla_el_error(suyo: ast.Module, _: ast.Module) -> Iterator[Tropiezo]:
    for nodo in ast.walk(suyo):
        if isinstance(nodo, ast.ExceptHandler) and all(isinstance(n, ast.Pass) for n in nodo.body):
            yield Tropiezo("ese except calla el error: con pass no se sabe de él", nodo.lineno)


def _compartido(suyo: ast.Module, _: ast.Module) -> Iterator[Tropiezo]:
    """Una lista o un diccionario de la clase, o de fábrica en un parámetro: es siempre el mismo."""
    clase = clase_de(suyo)
    for nodo in clase.body if clase else ():
        if isinstance(nodo, ast.Assign) and isinstance(nodo.value, ast.Dict | ast.List):
            nombre = ast.unparse(nodo.targets[0])
            que = f"`{nombre}` es de la clase, y la comparten todos: en __init__, self.{nombre} = …"
            yield Tropiezo(que, nodo.lineno)
    for funcion in funciones_de(suyo):
        for de_fabrica in funcion.args.defaults:
            if isinstance(de_fabrica, ast.Dict | ast.List):
                que = (
                    f"el {ast.unparse(de_fabrica)} de los parámetros se hace una vez, y es de todos"
                )
                yield Tropiezo(que, funcion.lineno)


# --- los tensores -----------------------------------------------------------------------------

CORTAN = r"\.item\(|\.detach\(|\.data\b|\.numpy\(|no_grad|inference_mode|torch\.tensor\((?!-?(?:math|torch|float|\d))"


def _corta_el_gradiente(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """`.item()` y otros, que la solución no usa."""
    buenos = set(re.findall(CORTAN, ast.unparse(debido)))
    iniciales = [f for f in funciones_de(suyo) if f.name == "__init__"]
    al_nacer = {n.lineno for f in iniciales for n in ast.walk(f) if isinstance(n, ast.stmt)}
    for numero, linea in _lineas_de(suyo):
        if numero in al_nacer:
            continue
        for cual in re.findall(CORTAN, linea) if not re.search(r"append\(|float\(", linea) else ():
            if cual not in buenos:
                quien = cual.strip(".(") if cual != "torch.tensor(" else "torch.tensor(…)"
                yield Tropiezo(f"{quien} corta el gradiente", numero)


def _lineas_de(arbol: ast.AST) -> Iterator[tuple[int, str]]:
    """Cada línea de un programa, como la escribe ast.unparse, con el número de la original."""
    for nodo in ast.walk(arbol):
        if isinstance(nodo, ast.stmt) and not hasattr(nodo, "body"):
            yield nodo.lineno, ast.unparse(nodo)
        elif isinstance(nodo, ast.With):
            yield nodo.lineno, " ".join(ast.unparse(uno) for uno in nodo.items)
        elif isinstance(nodo, ast.FunctionDef):
            yield from ((uno.lineno, ast.unparse(uno)) for uno in nodo.decorator_list)


def _en_su_sitio(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """`x -= …`, `x[…] = …` o `x.add_(…)`, que cambian lo que se recibe."""
    for funcion, bien in _parejas(suyo, debido):
        de_fuera = set(parametros_de(funcion)) - {_cambiado(n) for n in _sentencias(bien)}
        for nodo in sorted(_sentencias(funcion), key=lambda n: n.lineno):
            if isinstance(nodo, ast.Assign) and isinstance(nodo.targets[0], ast.Name):
                nombre = nodo.targets[0].id  # si es otro nombre de lo recibido, también lo cambia
                otro_nombre = ast.unparse(nodo.value) in de_fuera
                de_fuera = de_fuera | {nombre} if otro_nombre else de_fuera - {nombre}
            elif isinstance(nodo, ast.Assign) and isinstance(nodo.targets[0], ast.Tuple):
                de_fuera -= {ast.unparse(uno) for uno in nodo.targets[0].elts}
            elif _cambiado(nodo) in de_fuera:
                yield Tropiezo("ahí se cambia en su sitio: haz otro", nodo.lineno)


def _sentencias(arbol: ast.AST) -> list[ast.stmt]:
    return [n for n in ast.walk(arbol) if isinstance(n, ast.stmt)]


def _cambiado(nodo: ast.stmt) -> str:
    """Lo que una línea cambia en su sitio, o ""."""
    if isinstance(nodo, ast.AugAssign):
        return re.split(r"[.\[]", ast.unparse(nodo.target))[0]
    if isinstance(nodo, ast.Assign) and isinstance(nodo.targets[0], ast.Subscript):
        return ast.unparse(nodo.targets[0].value)
    en_su_sitio = re.match(r"(\w+)\.(?:\w+_|sort)\(", ast.unparse(nodo))
    return en_su_sitio[1] if en_su_sitio and isinstance(nodo, ast.Expr) else ""


def lo_cambia_en_su_sitio(escrito: str) -> int:
    """La última línea que cambia un tensor en su sitio, o 0."""
    arbol = leer(escrito)
    lineas = [0]
    for nodo in ast.walk(arbol) if arbol else ():
        con_indices = isinstance(nodo, ast.Assign) and isinstance(nodo.targets[0], ast.Subscript)
        if isinstance(nodo, ast.AugAssign) or con_indices:
            lineas.append(nodo.lineno)
    return max(lineas)


def _de_otra_celda(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """En un turno, una variable que no es suya: la tiene el capítulo, y vale otra cosa."""
    buenos = {n.id for n in ast.walk(debido) if isinstance(n, ast.Name)}
    for funcion in funciones_de(suyo):
        if not funcion.name.startswith("mi_"):
            continue
        suyos = {n.arg for n in ast.walk(funcion) if isinstance(n, ast.arg)} | set(dir(builtins))
        suyos |= {n.name for n in ast.walk(funcion) if isinstance(n, ast.FunctionDef)}
        leidos = [n for n in ast.walk(funcion) if isinstance(n, ast.Name)]
        suyos |= {n.id for n in leidos if isinstance(n.ctx, ast.Store)} | buenos
        llamados = {id(n.func) for n in llamadas(funcion)}
        con_punto = {id(n.value) for n in ast.walk(funcion) if isinstance(n, ast.Attribute)}
        for nodo in leidos:
            corto = re.fullmatch(r"[a-z]\w?", nodo.id)
            if corto and nodo.id not in suyos and id(nodo) not in llamados | con_punto:
                yield Tropiezo(f"`{nodo.id}` no es de la función: es la de otra celda", nodo.lineno)


def _docstrings(*arboles: ast.Module) -> str:
    """Lo que dicen de sí las clases y las funciones."""
    con_docstring = (ast.ClassDef, ast.FunctionDef)
    nodos = [n for arbol in arboles for n in ast.walk(arbol) if isinstance(n, con_docstring)]
    return "\n".join(ast.get_docstring(nodo) or "" for nodo in nodos)


# --- lo que se aprende ------------------------------------------------------------------------


def _no_se_aprende(suyo: ast.Module, debido: ast.Module) -> Iterator[Tropiezo]:
    """Un parámetro con otro nombre, en una lista o que es un tensor corriente."""
    clase, debida = clase_de(suyo), clase_de(debido)
    if clase is None or debida is None:
        return
    suyos, debidos = atributos(clase), atributos(debida)
    for nodo in ast.walk(clase):
        if not isinstance(nodo, ast.Assign) or not es_de_self(nodo.targets[0]):
            continue
        nombre, valor = nodo.targets[0].attr, ast.unparse(nodo.value)
        parecido = get_close_matches(nombre, debidos - suyos, 1, 0.8)
        pedido = parecido and re.search(rf"\b{parecido[0]}\b", _docstrings(suyo, debido))
        if nombre not in debidos and pedido:
            yield Tropiezo(f"¿self.{nombre} es self.{parecido[0]}?", nodo.lineno)
        if isinstance(nodo.value, ast.List | ast.ListComp) and valor != "[]":
            que = f"en una lista de Python, self.{nombre}, no se ven los parámetros"
            yield Tropiezo(que, nodo.lineno)
        corriente = re.match(r"torch\.(ones|zeros|randn|rand|tensor|full)\(", valor)
        if corriente and re.search(rf"self\.{nombre} = nn\.Parameter", ast.unparse(debida)):
            que = f"un tensor corriente no se aprende: self.{nombre} = nn.Parameter(…)"
            yield Tropiezo(que, nodo.lineno)


DETALLES: tuple[tuple[str, Callable[[ast.Module, ast.Module], Iterator[Tropiezo]]], ...] = (
    ("", _dos_veces),
    ("", _sin_return),
    ("", _hecha_en_forward),
    ("", _se_pierde),
    ("", _vuelta_a_vuelta),
    ("", _cambia_lo_que_recibe),
    ("", _no_se_llega),
    (r"gradiente|deriva|da float|da ndarray", _corta_el_gradiente),
    (r"^cambia", _en_su_sitio),
    (r"no tiene|aprende|parámetros|no se ven|no guarda", _no_se_aprende),
    ("no tiene los números", _otro_nombre_para_el_parametro),
    ("deja w y b", _hace_otro),
    ("", _compartido),
    ("", _calla_el_error),
    ("", _de_otra_celda),
)
"""Lo que se mira, y con qué frases de lo que falla; "" es con todas."""
