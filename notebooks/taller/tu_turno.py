"""Lo que escribe quien aprende: se usa si pasa su comprobación; si no, se usa la solución.

Un turno que es una pieza de mi_gpt.py son dos celdas de código. En la primera (etiqueta `tu-turno`)
está la pieza en blanco; la segunda la comprueba, la copia en la hoja y la da:

    Bloque = pieza("Bloque")

Un capítulo de después la pide igual. Un turno que no es una pieza también son dos celdas:

    def mi_softmax(x): ...              # la firma y `# tu código` (etiqueta `tu-turno`)

    def comprobar_softmax(softmax): ... # `assert` con un mensaje que dice qué falla
    softmax = usar(mi_softmax, comprobar_softmax)

Su solución, `softmax_solucion`, está en turnos.py. Si lo que se escribe es una clase, con `# tu código`
en uno o más métodos, se llaman así:

    class MiResidual(nn.Module): ...

    def comprobar_residual(Residual): ...
    Residual = usar(MiResidual, comprobar_residual)

y la solución, `ResidualSolucion`.

En un cuaderno, al importarse, pide a IPython que le avise detrás de cada celda, y dice en español lo
que le pasa a la que no se puede leer.
"""

import ast
import builtins
import json
import linecache
import re
import sys
import textwrap
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache, wraps
from html import escape
from inspect import isclass, isfunction
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import hoja
from buscar import estructura
from comprobar.lista import POR_TITULO, completa, prestar
from comprobar.piezas import caso
from comprobar.plazo import LIMITE, no_mas_de
from decir.frases import detenido
from decir.mensaje import Donde, Mensaje, en_lineas
from veredicto import Veredicto, de_una_pieza, explicar


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
        with caso(con_que(mia, args)) if args else nullcontext():
            resultado = mia(*args, **opciones)
        if resultado is None:
            raise Vacia(mia)
        return resultado

    return llamar


def con_que(funcion: Callable, args: tuple) -> str:
    """Decir en corto qué ha recibido una función."""
    codigo = getattr(funcion, "__code__", None)
    dadas = list(zip(codigo.co_varnames if codigo else "xyz", args))
    if dadas and dadas[0][0] == "self":
        dadas = dadas[1:]
    dichas = " y ".join(f"{nombre} {en_corto(valor)}" for nombre, valor in dadas[:3])
    return f"con {dichas}" if dichas else "sin nada entre sus paréntesis"


def en_corto(valor: Any) -> str:
    if hasattr(valor, "shape"):
        return f"de forma {tuple(valor.shape)}"
    escrito = repr(valor)
    if len(escrito) > 40 or escrito.startswith("<") or "\n" in escrito:
        return f"({type(valor).__name__})"
    return f"= {escrito}"


def usar(mia: Callable, comprobar: Callable[[Callable], None]) -> Callable:
    """Dar `mia` si pasa `comprobar`, y si no la solución de su turno, que está en turnos.py."""
    nombre = re.sub(r"^(mi_|Mi)", "", mia.__name__)
    return elegir(mia, la_del_turno(nombre, comprobar.__globals__), comprobar)


def la_del_turno(nombre: str, espacio: dict[str, Any]) -> Callable:
    """Ejecutar la solución de un turno entre los nombres de su capítulo, y darla."""
    escrita = hoja.leer(hoja.TURNOS.read_text(encoding="utf-8"), nombre)
    archivo = f"<la solución de {nombre}>"
    linecache.cache[archivo] = (len(escrita), None, escrita.splitlines(True), archivo)
    exec(compile(escrita, archivo, "exec"), espacio)
    return espacio[f"{nombre}Solucion" if nombre[0].isupper() else f"{nombre}_solucion"]


def elegir(
    mia: Callable,
    solucion: Callable,
    comprobar: Callable[[Callable], None],
    buscar: bool = True,
) -> Callable:
    """Dar `mia` si pasa `comprobar`, y si no `solucion`; dice cuál y, si no pasa, por qué.

    Con `buscar`, de lo que no pasa se busca unos segundos la línea en que está el error.
    """
    with torch.random.fork_rng(devices=[]):  # comprobar no cambia lo que se sortee después
        comprobar(solucion)
        try:
            with no_mas_de(LIMITE):
                comprobar(entregada(mia))
        except Exception as error:
            donde, debida = lo_escrito(mia, solucion)
            if isinstance(error, Vacia):
                error = AssertionError("no devuelve nada")
                if sin_escribir(donde.escrito):
                    print(f"· {mia.__name__} {NADA_TODAVIA}. Se usa {solucion.__name__}.")
                    return solucion
            print(f"· {mia.__name__} no pasa la comprobación. Se usa {solucion.__name__}.")
            pasaria = si_pasaria(mia, comprobar) if buscar and donde.escrito else None
            ensenar(explicar(error, donde, debida, pasaria, avisar), donde)
            return solucion
        else:
            print(f"✓ {mia.__name__} pasa la comprobación: desde aquí se usa la tuya.")
            return mia


def avisar() -> None:
    print("  busco la línea…", flush=True)


def ensenar(mensaje: Mensaje, donde: Donde) -> None:
    """Escribir lo que se dice de algo que no pasa; en un cuaderno, con el arreglo plegado debajo."""
    for linea in en_lineas(mensaje, donde):
        print(f"  {linea}")
    if mensaje.arreglo and not mensaje.es_de_python and hasattr(builtins, "get_ipython"):
        from IPython.display import HTML, display

        arreglo = escape(mensaje.arreglo)
        display(HTML(f"<details><summary>El arreglo</summary><code>{arreglo}</code></details>"))


def si_pasaria(mia: Callable, comprobar: Callable[[Callable], None]) -> Callable[[str], bool]:
    """Dar una función que dice si lo tuyo, escrito de otro modo en su capítulo, pasa."""

    def pasaria(escrito: str) -> bool:
        espacio = dict(comprobar.__globals__)
        exec(hoja.compilar(escrito, "<un cambio>"), espacio)
        comprobar(entregada(espacio[mia.__name__]))
        return True

    return pasaria


NADA_TODAVIA = "no devuelve nada todavía"


def sin_escribir(escrito: str) -> bool:
    """Decir si una función está como la da el turno: con su docstring, y nada más."""
    arbol = estructura.leer(escrito)
    definida = arbol.body[0] if arbol and arbol.body else None
    if not isinstance(definida, ast.FunctionDef):
        return True
    return all(isinstance(linea, ast.Pass) or hoja.venia(linea) for linea in definida.body)


def lo_escrito(mia: Callable, solucion: Callable) -> tuple[Donde, str]:
    """Dar lo escrito en la celda de un turno, y lo de la solución con el nombre de lo tuyo."""
    donde, debida = sus_lineas(mia), sus_lineas(solucion).escrito
    cambiado = re.sub(rf"^(def|class) {solucion.__name__}", rf"\1 {mia.__name__}", debida)
    return donde, cambiado


def sus_lineas(una: Callable) -> Donde:
    """Dar las líneas de una función o de una clase, que está en una celda o en un archivo."""
    funciones = [m for m in vars(una).values() if isfunction(m)] if isclass(una) else [una]
    codigo = getattr(funciones[0], "__code__", None) if funciones else None
    if codigo is None:
        return Donde("")
    lineas = linecache.getlines(codigo.co_filename)
    for nodo in definiciones("".join(lineas)):
        primera, ultima = nodo.lineno, nodo.end_lineno or nodo.lineno
        if nodo.name == una.__name__ and primera <= codigo.co_firstlineno + 1 <= ultima + 1:
            escrito = textwrap.dedent("".join(lineas[primera - 1 : ultima]))
            return Donde(escrito, primera, primera, codigo.co_filename)
    return Donde("")


def pieza(titulo: str) -> Any:
    """Dar una pieza de mi_gpt.py: la tuya si pasa su comprobación, y si no la solución.

    Si la acabas de escribir en una celda y pasa, se copia antes en la hoja. Una línea dice qué se usa.
    """
    nombre = POR_TITULO[titulo].nombre
    try:
        texto = hoja.de_la_hoja()
        celda, primera = escrita_en_una_celda(nombre)
        # Si sigue como se copió, lo que la hoja tenga de otro modo se escribió después.
        es_nueva = bool(celda) and celda != copiadas().get(nombre)
        nueva = hoja.poner(texto, nombre, celda) if es_nueva else texto
        veredicto = de_una_pieza(titulo, nueva, primera if es_nueva else 0)
        if not veredicto.pasa:
            decir_que_no(titulo, veredicto, es_nueva)
            nueva = prestar(texto, nombre, hoja.SOLUCION.read_text(encoding="utf-8"))
        elif es_nueva:
            copiar(nombre, celda, nueva)
            print(
                f"✓ {titulo} pasa la comprobación: está en mi_gpt.py, y desde aquí se usa la tuya."
            )
        else:
            print(f"✓ {titulo}: se usa la tuya, la de mi_gpt.py.")
        entera, prestadas = completa(titulo, nueva)
        if prestadas and veredicto.pasa:
            print(f"  (Con la solución de {', '.join(prestadas)}.)")
        decir_lo_de_otros_sitios(texto, nombre, prestadas)
        return getattr(hoja.cargar(entera), nombre)
    except UnicodeDecodeError:
        return getattr(la_solucion("no está en UTF-8: guárdalo así en tu editor"), nombre)
    except (hoja.SinSitio, OSError) as error:
        return getattr(la_solucion(str(error)), nombre)


def decir_que_no(titulo: str, veredicto: Veredicto, es_nueva: bool) -> None:
    """Decir por qué se usa la solución y, si hay algo escrito, cómo probar lo tuyo."""
    nombre = POR_TITULO[titulo].nombre
    if veredicto.en_blanco:
        por_que = "" if es_nueva else lo_que_hay_en_las_celdas(titulo)
        print(
            f"· {titulo}{': ' if por_que else ' '}{por_que or veredicto.en_blanco}. Se usa la solución."
        )
        return
    print(f"· {titulo} no pasa la comprobación. Se usa la solución.")
    ensenar(veredicto.mensaje(avisar), veredicto.donde)
    otra_vez = "ejecuta otra vez su celda" if es_nueva else f"from mi_gpt import {nombre}"
    print(f"  (Desde aquí `{nombre}` es la de la solución. Para probar la tuya: {otra_vez}.)")


def lo_que_hay_en_las_celdas(titulo: str) -> str:
    """Decir si la pieza que falta está en una celda con otro nombre, o en una sin ejecutar."""
    pieza = POR_TITULO[titulo]
    solucion = ast.parse(hoja.leer(hoja.SOLUCION.read_text(encoding="utf-8"), pieza.nombre))
    suyo = ast.get_docstring(solucion.body[0])
    celdas = ejecutadas()
    for celda in reversed(celdas):
        for nodo in definiciones(celda):
            if nodo.name == pieza.nombre:
                return ""
            if suyo and ast.get_docstring(nodo) == suyo:
                return f"la celda define {nodo.name}: ha de llamarse {pieza.nombre}"
    if any(celda.strip() in solo_de_un_capitulo(pieza.cuaderno) for celda in celdas):
        return "su celda no se ha ejecutado"
    return ""


def definiciones(celda: str) -> list[ast.FunctionDef | ast.ClassDef]:
    """Dar las funciones y las clases que se definen en una celda."""
    try:
        nodos = ast.walk(ast.parse(celda))
    except SyntaxError:
        return []
    return [nodo for nodo in nodos if isinstance(nodo, ast.FunctionDef | ast.ClassDef)]


@lru_cache
def solo_de_un_capitulo(cuaderno: str) -> set[str]:
    """Dar las celdas de código que están en un capítulo y en ningún otro: dicen que es el abierto."""
    suyas: set[str] = set()
    ajenas: set[str] = set()
    for ruta in CUADERNOS.glob("*.ipynb"):
        celdas = json.loads(ruta.read_text(encoding="utf-8"))["cells"]
        de_codigo = {"".join(c["source"]).strip() for c in celdas if c["cell_type"] == "code"}
        (suyas if ruta.name.startswith(cuaderno) else ajenas).update(de_codigo)
    return suyas - ajenas


CUADERNOS = Path(__file__).resolve().parent.parent


def decir_lo_de_otros_sitios(texto: str, nombre: str, prestadas: list[str]) -> None:
    """Decir qué hay mal en la hoja que no toca a la pieza, con su línea."""
    for otro, mal in hoja.sanar(texto, nombre)[1].items():
        if otro not in prestadas:
            que = detenido(mal.error, Donde("")).que
            print(f"  (En otro sitio de mi_gpt.py: {que}; {Donde(texto)(mal.linea)}.)")


def la_solucion(por_que: str) -> ModuleType:
    """Decir por qué no sirve la hoja, y dar el programa de la solución."""
    print(f"· mi_gpt.py no se puede usar: {por_que}. Se usa la solución.")
    return hoja.cargar(hoja.SOLUCION.read_text(encoding="utf-8"))


def ejecutadas() -> list[str]:
    """Dar las celdas que se han ejecutado, de la primera a la última."""
    sesion = getattr(builtins, "get_ipython", lambda: None)()
    return [sin_magia(celda) for celda in sesion.user_ns.get("In", [])] if sesion else []


def escrita_en_una_celda(nombre: str) -> tuple[str, int]:
    """Dar lo que va en la hoja de la última celda ejecutada que define `nombre`, y su primera línea.

    Una celda que deja la pieza en blanco no cuenta: la hoja puede tenerla escrita.
    """
    define = re.compile(rf"^((def|class) {nombre}\b|{nombre} *=(?!=| *pieza\())", re.MULTILINE)
    for celda in reversed(ejecutadas()):
        if define.search(celda):
            escrito = lo_de_la_hoja(celda, nombre)
            if hoja.esta_en_blanco(escrito):
                return "", 0
            lineas = celda.splitlines()
            return escrito, 1 + lineas.index(escrito.strip().splitlines()[0])
    return "", 0


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
    """Decir si se está en Colab, donde los archivos se pierden al cerrar."""
    return "google.colab" in sys.modules


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


def decir_en_espanol(resultado: Any) -> None:
    """Tras una celda que no se puede leer, o a la que le falta la de un turno, decirlo en español."""
    error = resultado.error_before_exec or resultado.error_in_exec
    if isinstance(error, SyntaxError):
        donde = Donde(sin_magia(resultado.info.raw_cell))
        mensaje = detenido(error, donde)
        print(f"· Esta celda {mensaje.que}; {donde(mensaje.linea)}.")
    elif isinstance(error, NameError) and re.match("mi_|Mi[A-Z]", error.name or ""):
        print(
            f"· {error.name} no está: su celda no se ha ejecutado, o se detuvo, o define otro nombre."
        )


if sesion := getattr(builtins, "get_ipython", lambda: None)():
    sesion.events.register("post_run_cell", decir_en_espanol)
