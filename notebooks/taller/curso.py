"""Los capítulos en su orden, las ramas, y lo que encabeza y cierra cada cuaderno.

    python notebooks/taller/curso.py

escribe en cada uno su cabecera (título, capítulo anterior y siguiente, mapa, lo que se tarda),
la celda que encuentra los módulos y el pie; y en cada turno que es una pieza, la pieza en blanco y,
plegada, entera. Después de cambiar aquí un título o el orden, o lo que mide un capítulo, o
solucion.py o turnos.py, basta con ejecutarlo: la hoja en blanco, mi_gpt.py, también se escribe, si
lo está.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

import hoja

CARPETA = Path(__file__).resolve().parent.parent
CABECERA, PREPARAR, PIE = "cabecera", "preparar", "pie"
"""Las etiquetas de las celdas que se escriben aquí."""
TURNO = "tu-turno"
"""La de las celdas en que escribe quien aprende."""
PIEZA = "pieza"
"""En los metadatos de la celda de un turno, el título de la pieza de mi_gpt.py que es."""
ENTERA = "<details><summary>La pieza entera</summary>"
RESUELTA = "<details><summary>La solución</summary>"
PALABRAS_POR_MINUTO, LINEAS_POR_MINUTO, MINUTOS_POR_EJERCICIO = 150, 15, 5
"""Lo que se lee de un texto con fórmulas y de código, y lo que lleva un ejercicio.

No está medido: la cabecera dice que es una estimación. Los minutos de un turno los dice él.
"""
MINUTOS_DE_UN_TURNO = re.compile(r"\((\d+) minutos, (?:fácil|media|difícil)\.\)")


@dataclass(frozen=True)
class Capitulo:
    """Un cuaderno del curso. Una rama no tiene número, y está un piso más abajo."""

    archivo: str
    numero: str
    titulo: str

    def __str__(self) -> str:
        return f"{self.numero}. {self.titulo}" if self.numero else self.titulo

    @property
    def arriba(self) -> str:
        """Con qué empiezan sus enlaces a lo que está en notebooks/."""
        return "" if self.numero else "../"


CAPITULOS = (
    Capitulo("00_primeros_pasos.ipynb", "0", "Primeros pasos"),
    Capitulo("00b_herramientas.ipynb", "0½", "Herramientas"),
    Capitulo("01_tokens.ipynb", "1", "Tokens"),
    Capitulo("02_embeddings_y_posiciones.ipynb", "2", "Embeddings y posiciones"),
    Capitulo("03_autoatencion.ipynb", "3", "Autoatención"),
    Capitulo("03b_varias_cabezas.ipynb", "3½", "Varias cabezas"),
    Capitulo("04_feed_forward.ipynb", "4", "La subcapa feed-forward"),
    Capitulo("05_residuales_y_normalizacion.ipynb", "5", "Residuales y normalización"),
    Capitulo("06_bloque_y_gpt.ipynb", "6", "El bloque y el GPT"),
    Capitulo("07_salida.ipynb", "7", "La salida"),
    Capitulo("08_entrenamiento.ipynb", "8", "Entrenamiento"),
    Capitulo("09_generacion.ipynb", "9", "Generación"),
    Capitulo("10_desde_una_pagina_en_blanco.ipynb", "10", "Desde una página en blanco"),
)
"""El camino."""
RAMAS = (
    Capitulo("ramas/otros_tokens.ipynb", "", "Otros tokens"),
    Capitulo("ramas/de_donde_sale_el_parecido.ipynb", "", "De dónde sale el parecido"),
    Capitulo("ramas/tabla_de_secuencias.ipynb", "", "La tabla de secuencias"),
    Capitulo("ramas/rope_y_qk_norm.ipynb", "", "Rope y QK-norm"),
    Capitulo("ramas/memoria_de_claves_y_valores.ipynb", "", "Una memoria de claves y valores"),
    Capitulo("ramas/rmsnorm.ipynb", "", "RMSNorm"),
    Capitulo("ramas/rayos_x.ipynb", "", "Rayos X"),
    Capitulo("ramas/codificador_y_descodificador.ipynb", "", "Codificador y descodificador"),
    Capitulo("ramas/busqueda_en_haz.ipynb", "", "Búsqueda en haz"),
    Capitulo("ramas/microsancho.ipynb", "", "Todo en un archivo"),
    Capitulo("ramas/muon.ipynb", "", "Muon"),
    Capitulo("ramas/bucle_de_la_biblioteca.ipynb", "", "El bucle de la biblioteca"),
    Capitulo("ramas/inventa_o_copia.ipynb", "", "¿Inventa o copia?"),
    Capitulo("ramas/de_sancho_a_un_asistente.ipynb", "", "De sancho a un asistente"),
)
"""Lo que sale de él, en el orden en que él lo enlaza. Cada una se lee sola."""
CUADERNOS = (*CAPITULOS, *RAMAS)

BUSCAR_LOS_MODULOS = """\
# El curso usa los módulos de notebooks/ y de sus carpetas. Si faltan, la celda dice cómo traerlos.
import os
import sys
from pathlib import Path

if Path("sancho-mini/notebooks").is_dir():
    os.chdir("sancho-mini/notebooks")
elif Path("notebooks/taller").is_dir():
    os.chdir("notebooks")
elif Path("../taller").is_dir():
    os.chdir("..")  # de la carpeta de las ramas
sys.path[:0] = [str(Path(carpeta).resolve()) for carpeta in (".", "taller", "ramas", "..")]
if not Path("taller/ver/estilo.py").is_file():
    print(
        "Falta el proyecto. Escribe en otra celda  !git clone DIRECCIÓN sancho-mini  (la DIRECCIÓN "
        "de la copia que lees), ejecútala, y vuelve a ejecutar esta."
    )"""
"""Lo que hay en la red no se ejecuta sin que alguien lo escriba."""


PRINCIPIO = """\
Tu GPT: el programa que se escribe en el curso, una pieza en cada turno.

Donde pone `raise NotImplementedError` va tu código. Lo que escribes en un capítulo, y pasa su
comprobación, se copia aquí; también puedes escribirlo aquí, con tu editor. En una terminal,

    python notebooks/probar.py

dice qué falta y qué no da lo que debe. La solución está en taller/solucion.py. Desde el capítulo 1,
tus piezas se entrenan y escriben; lo que todavía falta lo presta el taller, y se dice:

    python notebooks/mi_gpt.py entrenar
    python notebooks/mi_gpt.py escribir
    python notebooks/mi_gpt.py escalera

Los ejes: B textos, T letras, C canales, H cabezas, D canales de una cabeza, V vocabulario.
"""
"""Cómo empieza mi_gpt.py."""


def vecinos(capitulo: Capitulo) -> tuple[Capitulo | None, Capitulo | None]:
    """Dar el capítulo anterior y el siguiente; una rama no los tiene."""
    if capitulo not in CAPITULOS:
        return None, None
    lugar = CAPITULOS.index(capitulo)
    anterior = CAPITULOS[lugar - 1] if lugar else None
    return anterior, CAPITULOS[lugar + 1] if lugar + 1 < len(CAPITULOS) else None


def pasos(capitulo: Capitulo) -> str:
    """Dar la línea que lleva al capítulo anterior, al índice y al siguiente."""
    anterior, siguiente = vecinos(capitulo)
    atras = [f"[← {anterior}]({anterior.archivo})"] if anterior else []
    adelante = [f"[{siguiente} →]({siguiente.archivo})"] if siguiente else []
    return " · ".join([*atras, f"[Índice]({capitulo.arriba}README.md)", *adelante])


def mapa(capitulo: Capitulo) -> str:
    """Dar los números de todos los capítulos, con este en negrita."""
    arriba = capitulo.arriba
    numeros = [
        f"**{otro.numero}**" if otro == capitulo else f"[{otro.numero}]({arriba}{otro.archivo})"
        for otro in CAPITULOS
    ]
    paginas = [f"[Glosario]({arriba}glosario.md)", f"[Bibliografía]({arriba}bibliografia.md)"]
    return " · ".join([*numeros, *paginas])


def lectura(celdas: list[NotebookNode]) -> tuple[int, int]:
    """Dar cuántas palabras y cuántas líneas de código hay a la vista: lo plegado no se lee."""
    plegado = re.compile(r"<details>.*?</details>", re.DOTALL)
    palabras = lineas = 0
    for una in celdas:
        if una.cell_type == "markdown":
            a_la_vista = plegado.sub(lambda hallado: sin_bloques(hallado[0]), una.source)
            palabras += len(a_la_vista.split())
        elif not esta_plegada(una):
            lineas += sum(bool(linea.strip()) for linea in una.source.splitlines())
    return palabras, lineas


def esta_plegada(celda: NotebookNode) -> bool:
    """Decir si el código de una celda no está a la vista, en el cuaderno o en el sitio."""
    return bool(celda.metadata.get("jupyter", {}).get("source_hidden")) or (
        "hide-input" in etiquetas(celda)
    )


def sin_bloques(texto: str) -> str:
    """Quitar de un texto los bloques de código."""
    return re.sub(r"^```.*?^```", "", texto, flags=re.MULTILINE | re.DOTALL)


def duracion(capitulo: Capitulo, celdas: list[NotebookNode]) -> str:
    """Dar los minutos de leer y los de escribir, y los segundos de cálculo que dice el índice."""
    palabras, lineas = lectura(celdas)
    leer = palabras / PALABRAS_POR_MINUTO + lineas / LINEAS_POR_MINUTO
    texto = "\n".join(c.source for c in celdas if c.cell_type == "markdown")
    turnos = sum(map(int, MINUTOS_DE_UN_TURNO.findall(texto)))
    ejercicios = texto.count("<summary>Solución</summary>")
    escribir = turnos + MINUTOS_POR_EJERCICIO * ejercicios
    indice = (CARPETA / "README.md").read_text(encoding="utf-8")
    fila = re.search(rf"\({re.escape(capitulo.archivo)}\).*\| (\d+) \|$", indice, re.MULTILINE)
    return (
        f"Leerlo lleva unos {de_cinco_en_cinco(leer)} minutos; escribir lo tuyo, unos "
        f"{de_cinco_en_cinco(escribir)} (son estimaciones); ejecutar sus celdas, unos {fila[1]} segundos."
    )


def de_cinco_en_cinco(minutos: float) -> int:
    """Redondear unos minutos, que no son nunca cero."""
    return 5 * max(1, round(minutos / 5))


def cabecera(capitulo: Capitulo, celdas: list[NotebookNode]) -> str:
    """Dar el texto de la primera celda; `celdas` son las que vienen detrás."""
    partes = [f"# {capitulo}", pasos(capitulo), f"Capítulos: {mapa(capitulo)}"]
    return "\n\n".join([*partes, duracion(capitulo, celdas)])


def vestir(cuaderno: NotebookNode, capitulo: Capitulo) -> None:
    """Poner al día en un cuaderno la cabecera, la celda que busca los módulos y el pie."""
    celdas = [c for c in cuaderno.cells if not {CABECERA, PREPARAR, PIE} & etiquetas(c)]
    if celdas[0].source.startswith("# ") and "\n" not in celdas[0].source.strip():
        del celdas[0]  # el título solo, como lo deja quien escribe un capítulo
    cuaderno.cells = [
        celda("markdown", cabecera(capitulo, celdas), CABECERA),
        celda("code", BUSCAR_LOS_MODULOS, PREPARAR),
        *celdas,
        celda("markdown", pasos(capitulo), PIE),
    ]
    for antes, turno in zip(cuaderno.cells, cuaderno.cells[1:]):
        if PIEZA in turno.metadata:
            poner_pieza(antes, turno)
        elif TURNO in etiquetas(turno):
            poner_solucion(antes, turno)
    numero = 0
    for otra in cuaderno.cells:
        otra.metadata.pop("execution", None)  # a qué hora se ejecutó
        if otra.cell_type == "code":
            numero += 1
            otra.execution_count = numero
            for salida in otra.outputs:
                if "execution_count" in salida:
                    salida.execution_count = numero


def poner_pieza(texto: NotebookNode, turno: NotebookNode) -> None:
    """Poner la pieza en blanco en la celda de su turno y, plegada, entera al final de su texto."""
    titulo = turno.metadata[PIEZA]
    nombre = titulo.partition(",")[0]
    entera = hoja.leer(hoja.SOLUCION.read_text(encoding="utf-8"), nombre)
    if titulo == nombre:
        entera = hoja.hasta_el_9(entera)
    turno.source = hoja.vaciar(entera).rstrip("\n")
    plegar(texto, ENTERA, entera)


def poner_solucion(texto: NotebookNode, turno: NotebookNode) -> None:
    """Poner, plegada, la solución de un turno que no es una pieza al final de su texto."""
    nombre = re.search(r"^(?:def mi_|class Mi)(\w+)[(:]", turno.source, re.MULTILINE)
    if nombre is None:
        raise ValueError(f"no es un turno: {turno.source[:80]!r}")
    plegar(texto, RESUELTA, hoja.leer(hoja.TURNOS.read_text(encoding="utf-8"), nombre[1]))


def plegar(texto: NotebookNode, resumen: str, codigo: str) -> None:
    """Poner al final de un texto, o cambiar, lo que se abre con un clic."""
    sin_ella = texto.source.partition(resumen)[0].rstrip()
    texto.source = f"{sin_ella}\n\n{resumen}\n\n```python\n{codigo}```\n\n</details>"


def hoja_en_blanco() -> str:
    """Dar mi_gpt.py como está antes de escribir nada: la solución, vacía y con otro comienzo."""
    solucion = hoja.SOLUCION.read_text(encoding="utf-8")
    _, _, solucion = solucion.partition('"""\n\nimport')
    trozos = re.split(r"^(?=# ---)", f"import{solucion}", flags=re.MULTILINE)
    vacios = [
        trozo if not re.match(r"# --- \w+ \(", trozo) else f"{hoja.vaciar(trozo).rstrip()}\n\n\n"
        for trozo in trozos
    ]
    return f'"""{PRINCIPIO}"""\n\n{"".join(vacios).rstrip()}\n'


def celda(tipo: str, texto: str, etiqueta: str) -> NotebookNode:
    """Dar una celda nueva, siempre con el mismo nombre y plegada si es de código."""
    crear = nbformat.v4.new_code_cell if tipo == "code" else nbformat.v4.new_markdown_cell
    nueva = crear(texto, id=etiqueta, metadata={"tags": [etiqueta]})
    if tipo == "code":
        nueva.metadata["jupyter"] = {"source_hidden": True}
    return nueva


def etiquetas(celda: NotebookNode) -> set[str]:
    return set(celda.metadata.get("tags", []))


if __name__ == "__main__":
    escrita = hoja.de_la_hoja()
    if all(map(hoja.esta_en_blanco, hoja.trozos(escrita).values())):
        hoja.HOJA.write_text(hoja_en_blanco(), encoding="utf-8")
    for capitulo in CUADERNOS:
        ruta = CARPETA / capitulo.archivo
        cuaderno = nbformat.read(ruta, as_version=4)
        vestir(cuaderno, capitulo)
        nbformat.write(cuaderno, ruta)
