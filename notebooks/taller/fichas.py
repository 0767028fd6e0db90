"""Lo que se imprime para las clases de la guía docente: fichas.html, una ficha por hoja.

    python notebooks/taller/fichas.py

lo vuelve a escribir, con el libro y el modelo que viene con el proyecto. Se abre en un navegador y
se imprime en A4. Las respuestas van en la última hoja.
"""

import html
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import bpe
from sancho.checkpoint import Checkpoint, pretrained
from sancho.config import SampleConfig
from sancho.convert.passages import passages_of
from sancho.generate import continue_texts, softmax
from sancho.text.corpus import Corpus
from sancho.text.sources import corpus_of

CURSO = Path(__file__).resolve().parents[1]
FICHAS = CURSO / "docente" / "fichas.html"
CONTADAS = "qze"
"""Las letras de las que se cuenta qué sigue."""
EN_LA_PAGINA, SIN_FIRMA = 2_400, 620
"""Letras de la página que se cuenta y de cada una de las cuatro sin firma."""
PASAJE, ADIVINADAS, POR_FILA, TOPE = 10, 75, 25, 7
"""Cuál de los pasajes de la página se adivina, cuántas letras de él, y desde cuántos intentos no se cuenta."""
TEMPERATURA, MUESTRA, MUESTRAS = 0.6, 6, 32
"""De los textos de la máquina, el primero de frases enteras y de palabras del libro, todas."""
LETRAS_ATRAS, AZAR, AZARES = 7, 1608, 25
"""Lo que recuerda quien cuenta. La semilla da un texto de palabras del libro, todas."""
APOCRIFO, CERVANTES = "Y, volviéndose a lo escuro", "Yo salí de mi patria"
"""Cómo empiezan las páginas de los otros dos."""
FUSIONES = 40
FRASE = "don Quijote mira su teléfono"
GATO = {
    "El": ([0.1, 0.2, 0.3], [0.2, 0.3, 0.1], [0.05, 0.1, 0.15]),
    "gato": ([0.5, 0.6, 0.7], [0.6, 0.5, 0.4], [0.7, 0.9, 0.2]),
    "juega": ([0.8, 0.7, 0.6], [0.9, 0.8, 0.5], [0.4, 0.8, 0.9]),
}
"""Consulta, clave y valor de cada palabra, los del capítulo 3."""

ESTILO = """\
@page { size: A4; margin: 16mm 18mm; }
body { font: 12pt/1.5 Georgia, serif; max-width: 174mm; margin: 1rem auto; padding: 0 1rem; }
section { break-after: page; padding-top: 1rem; border-top: 1px solid #999; }
section:last-child { break-after: auto; }
h2 { font-size: 18pt; margin: 0 0 .3em; }
h3 { font-size: 13pt; margin: .8em 0 .2em; }
p, ol { margin: .5em 0; }
p.clase { color: #444; margin: 0 0 .8em; font-size: 11pt; }
table { border-collapse: collapse; margin: .6em 0; font-size: 11pt; width: 100%; }
td, th { border: 1px solid #777; padding: .15em .3em; text-align: center; }
td.alta { height: 11mm; }
td.letra { height: 8mm; width: 4%; padding: 0; }
td.dado { height: 14mm; text-align: left; vertical-align: top; color: #777; }
.dados td:first-child { width: 8mm; text-align: center; vertical-align: middle; color: black; }
td.frase { text-align: left; vertical-align: top; }
.texto { white-space: pre-wrap; text-align: left; }
.contar { font-size: 13pt; line-height: 1.68; }
.tarjetas { display: flex; gap: 8mm; }
.tarjetas div { border: 1px dashed #555; padding: 0 4mm; flex: 1; text-align: center; }
.tarjetas p, .tarjetas h3 { margin: .3em 0; }
.exponenciales { font-size: 9pt; }
.exponenciales td, .exponenciales th { padding: 0; line-height: 1.25; }
.cuenta td { height: 7mm; }
.trozos td:first-child { width: 18mm; }
.apagado td:nth-child(3) { width: 24mm; }
.apagado td:last-child { width: 64mm; }
.columnas { columns: 5; line-height: 1.5; }
.hueco { border: 1px solid #777; min-height: 20mm; flex: 1; margin: .4em 0; }
@media print {
  body { margin: 0; padding: 0; max-width: none; }
  section { border: 0; padding: 0; height: 262mm; display: flex; flex-direction: column; }
}
"""


def seguro(texto: str) -> str:
    return html.escape(texto)


def tabla(
    filas: Iterable[Iterable[object]],
    cabecera: Iterable[object] = (),
    clase: str = "",
    de_la_tabla: str = "",
) -> str:
    """Una tabla de HTML. Lo que se da ya está escrito para HTML."""
    celda = f'<td class="{clase}">' if clase else "<td>"
    arriba = "".join(f"<th>{titulo}</th>" for titulo in cabecera)
    cuerpo = "".join(
        f"<tr>{''.join(f'{celda}{dato}</td>' for dato in fila)}</tr>" for fila in filas
    )
    abre = f'<table class="{de_la_tabla}">' if de_la_tabla else "<table>"
    return f"{abre}{f'<tr>{arriba}</tr>' if arriba else ''}{cuerpo}</table>"


HUECO = '<div class="hueco"></div>'
"""Un recuadro para escribir, que ocupa lo que queda de la hoja."""


def ficha(titulo: str, clase: str, *partes: str) -> str:
    return f'<section><h2>{titulo}</h2><p class="clase">{clase}</p>{"".join(partes)}</section>\n'


# --- lo que se calcula ------------------------------------------------------------------------


def siguientes(texto: str, letra: str) -> Counter:
    """Cuántas veces sigue cada letra a una, sin distinguir mayúsculas."""
    return Counter(b for a, b in zip(texto.lower(), texto.lower()[1:]) if a == letra)


def fila_de_gato(con_mascara: bool) -> list[float]:
    """Los pesos con que «gato» mira a cada palabra (capítulo 3)."""
    consulta = GATO["gato"][0]
    claves = [clave for _, clave, _ in GATO.values()][: 2 if con_mascara else 3]
    puntos = [sum(a * b for a, b in zip(consulta, clave)) / math.sqrt(3) for clave in claves]
    exponenciales = [math.exp(punto) for punto in puntos]
    return [e / sum(exponenciales) for e in exponenciales]


def tecla(caracter: str) -> str:
    """Con qué se adivina un carácter, como en la página: sin mayúsculas ni tildes, y la ñ aparte."""
    minuscula = caracter.lower()
    if minuscula.isspace():
        return " "
    return minuscula if minuscula == "ñ" else unicodedata.normalize("NFD", minuscula)[0]


def intentos(caja: Checkpoint, antes: str, pasaje: str) -> list[int]:
    """Cuántas letras prueba la caja hasta acertar cada una del pasaje, de la más probable en adelante."""
    ids = caja.tokenizer.encode(antes + pasaje)
    repartos = softmax(caja.build_numpy().logits(ids[None, :-1])[0])
    teclas = [tecla(caracter) for caracter in caja.characters]
    cuantos = []
    for reparto, letra in zip(repartos[-len(pasaje) :], pasaje):
        de_cada_tecla: Counter = Counter()
        for una, probabilidad in zip(teclas, reparto):
            de_cada_tecla[una] += probabilidad
        suya = de_cada_tecla[tecla(letra)]
        cuantos.append(1 + sum(otra > suya for otra in de_cada_tecla.values()))
    return cuantos


def copista(libro: str, letras: int, azar: np.random.Generator) -> str:
    """Lo que escribe quien solo cuenta qué siguió a las últimas 7 letras (Shannon, 1948)."""
    comienzo = int(azar.integers(len(libro) - 100_000))
    texto = libro[comienzo : comienzo + LETRAS_ATRAS]
    while len(texto) < letras:
        por_donde_se_abre = int(azar.integers(len(libro)))
        i = libro.find(texto[-LETRAS_ATRAS:], por_donde_se_abre, len(libro) - 1)
        if i < 0:
            i = libro.find(texto[-LETRAS_ATRAS:])
        texto += libro[i + LETRAS_ATRAS]
    return texto


def desde_una_frase(texto: str) -> str:
    """El texto sin su primera frase, que puede estar empezada."""
    return re.split(r"(?<=[.!?])\s+(?=[A-ZÁÉÍÓÚ])", texto, maxsplit=1)[1]


def desde_el_parrafo(texto: str, trozo: str) -> str:
    """El trozo, con lo que le falta para empezar donde empieza su párrafo."""
    donde = texto.index(trozo)
    return texto[texto.rindex("\n\n", 0, donde) + 2 : donde] + trozo


def parrafos(texto: str, letras: int) -> str:
    """El comienzo de un texto, hasta el final de una frase, con sus renglones seguidos."""
    seguido = re.sub(r"(?<!\n)\n(?!\n)", " ", texto.strip())
    corte = seguido[:letras].rfind(".") + 1
    return seguido[: corte or letras]


# --- las fichas -------------------------------------------------------------------------------


def adivinar(antes: str, pasaje: str, de_la_caja: list[int]) -> str:
    filas = range(0, len(pasaje), POR_FILA)

    def letra(caracter: str) -> str:
        return "␣" if caracter.isspace() else f"<b>{seguro(caracter)}</b>"

    rejillas = "".join(
        tabla(
            [
                [letra(caracter) for caracter in pasaje[n : n + POR_FILA]],
                [""] * len(pasaje[n : n + POR_FILA]),
                de_la_caja[n : n + POR_FILA],
            ],
            clase="letra",
        )
        for n in filas
    )
    comienzos = [f"{n}. ____________" for n in range(1, 6)]
    return ficha(
        "Adivinar la letra que sigue",
        "Clase 1. Copias: una, para quien dirige. Nadie más la ve.",
        f'<p class="texto">Lee en voz alta: <i>{seguro(" ".join(antes.split()))}</i></p>',
        "<ol><li>«¿Qué letra viene?» Cada pareja apunta una en grande; a tu señal, las levantan todas a la vez, y "
        "se prueba la más repetida. Si empatan, la que va antes en el abecedario.</li><li>Si no es, se prueba la "
        "segunda, y así hasta acertar. Las mayúsculas y las tildes no cuentan; el espacio (␣) y los signos, sí."
        "</li><li>Una persona cuenta los papeles, y otra escribe en la pizarra la letra buena. Tú apuntas, en el "
        f"recuadro de debajo, cuántas se probaron. Si pasan de seis, di la letra y apunta {TOPE}.</li></ol>",
        "<p>De cada tres filas: la letra; <b>la clase</b>; y <b>sancho</b>, que se dice al final.</p>",
        rejillas,
        "<p>No hace falta acabar. Donde se pare, suma la fila de la clase y la de sancho hasta ahí.</p>",
        tabla(
            [["la clase", "", "", ""], ["sancho", "", "", ""]],
            ["", "letras", "a la primera", "intentos en total"],
            "alta",
        ),
    ) + ficha(
        "Tu apuesta",
        "Clase 1. Copias: una por alumno.",
        "<p>Inventa cinco comienzos de frase que acaben a mitad de una palabra o en un espacio. De cada uno, "
        "escribe las tres letras que más esperas y cuánto (en %). La cuarta fila no es cero: algo queda para todas "
        "las demás.</p>",
        tabla(
            [[f"{n}.ª letra", *[""] * 5] for n in (1, 2, 3)]
            + [["todas las demás", *[""] * 5], ["suma", *["100 %"] * 5]],
            ["", *comienzos],
            "alta",
        ),
        "<p>¿En qué comienzo estás más seguro? ¿Y en cuál menos? ¿Por qué?</p>",
        HUECO,
    )


def contar(pagina: str) -> str:
    casillas = tabla(
        [[f"<b>{f}</b>", *(6 * (f - 1) + c for c in range(1, 7))] for f in range(1, 7)],
        ["", *range(1, 7)],
        clase="dado",
        de_la_tabla="dados",
    )
    return ficha(
        "Una página para contar",
        "Clase 2. Copias: una por pareja. Apunta, una tras otra, las letras que siguen a la que te toque. El "
        "espacio también es una letra: se escribe ␣.",
        f'<p class="texto contar">{seguro(pagina)}</p>',
    ) + ficha(
        "Sortear según lo contado",
        "Clase 2. Copias: una por pareja; y dos dados.",
        "<ol><li>Escribe en las casillas las letras que siguieron a la tuya, una por cada vez que "
        "salió, desde la 1. Si son más de 36, quédate con las 36 primeras.</li>"
        "<li>Tira dos dados: el primero dice la fila, y el segundo, la columna. Si la casilla está vacía, tira "
        "otra vez. La letra de la casilla es la que sigue.</li></ol>",
        "<p>Nuestra letra: ______. Una letra que salió el doble de veces ocupa el doble de casillas, y sale el "
        "doble.</p>",
        casillas,
        "<h3>Una línea entera, como Shannon en 1948</h3>",
        "<p>La página hace de tabla. Cierra los ojos y pon el dedo en ella: la primera letra es la que hay debajo. Para "
        "cada una de las demás, pon el dedo otra vez, busca desde ahí, hacia delante, la última letra que escribiste "
        "(si se acaba la página, sigue desde el principio) y copia la que va detrás.</p>",
        tabla([[""] * 20, [""] * 20], clase="letra"),
    )


def vocabularios(corpus: Corpus, texto: str, trozos: list[str]) -> str:
    palabras = [p for p, _ in Counter(re.findall(r"\w+", texto)).most_common(60)]
    caracteres = [c for c in corpus.tokenizer.characters if c.isalpha() or c == " "]
    numeros = {c: corpus.tokenizer.encode(c)[0] for c in caracteres}

    def lista(elementos: Iterable[tuple[object, str]]) -> str:
        filas = "<br>".join(f"{n} {seguro(e).replace(' ', '␣')}" for n, e in elementos)
        return f'<div class="columnas">{filas}</div>'

    frase = f"<p>La frase: <b>{seguro(FRASE)}</b></p>"
    trozos_y_numeros = tabla(
        [[nombre, *[""] * 10] for nombre in ("trozo", "número") * 3],
        clase="alta",
        de_la_tabla="trozos",
    )
    cuentas = "<p>¿Cuántos trozos son? ______ ¿Cuántos distintos? ______ ¿Cuántos hay en la lista? ______</p>"
    return "".join(
        ficha(
            f"Vocabulario de {nombre}",
            f"Clase 3, {cual} de tres. Copias: una por grupo de tres. {que}",
            frase,
            contenido,
            trozos_y_numeros,
            cuentas,
            HUECO,
        )
        for cual, nombre, que, contenido in (
            (
                "uno",
                "letras",
                "Las del libro, con su número (el espacio se ve como ␣). Trocea la frase.",
                lista((n, c) for c, n in numeros.items()),
            ),
            (
                "dos",
                "trozos",
                f"Las letras y los {FUSIONES} primeros trozos que aprende BPE. Busca en la frase el 101, "
                "después el 102, y así hasta el último. Lo que queda suelto va en letras, con el número de la otra ficha.",
                lista((100 + n, trozo) for n, trozo in enumerate(trozos, 1)),
            ),
            (
                "tres",
                "palabras",
                "Las 60 más frecuentes del libro. ¿Qué haces con la que no está?",
                lista(enumerate(palabras, 1)),
            ),
        )
    )


def atencion() -> str:
    def vector(numeros: list[float]) -> str:
        return " &nbsp; ".join(f"{n:g}" for n in numeros)

    tarjetas = "".join(
        f"<div><h3>{palabra}</h3><p>busco (consulta)<br><b>{vector(q)}</b></p>"
        f"<p>ofrezco (clave)<br><b>{vector(k)}</b></p><p>entrego (valor)<br><b>{vector(v)}</b></p></div>"
        for palabra, (q, k, v) in GATO.items()
    )
    exponenciales = [
        [f"<b>{fila / 10:.1f}</b>", *(f"{math.exp(fila / 10 + c / 100):.2f}" for c in range(10))]
        for fila in range(10)
    ]
    return ficha(
        "«El gato juega»: tarjetas",
        "Clase 5. Copias: una por grupo de tres, y otra, de la que se recortan las tres tarjetas.",
        "<p>«gato» multiplica su consulta por cada clave, número a número, y suma. Divide cada resultado entre "
        "√3 = 1.73, busca en la tabla su exponencial y la divide entre la suma de las tres: son los pesos.</p>",
        f'<div class="tarjetas">{tarjetas}</div>',
        "<h3>Exponenciales</h3>",
        tabla(exponenciales, ["x", *(f"0.0{c}" for c in range(10))], de_la_tabla="exponenciales"),
        "<p>La cuenta de «gato»:</p>",
        tabla(
            [
                [fila, "", "", ""]
                for fila in ("consulta · clave", "entre 1.73", "e<sup>x</sup>", "peso")
            ],
            ["", *GATO],
            de_la_tabla="cuenta",
        ),
        "<p>La mezcla: cada peso por los tres números de su valor, y se suman las tres filas.</p>",
        tabla(
            [
                [fila, "", "", ""]
                for fila in (*(f"peso de «{palabra}» × su valor" for palabra in GATO), "la mezcla")
            ],
            ["", "1.er número", "2.º número", "3.er número"],
            de_la_tabla="cuenta",
        ),
    )


def apagar() -> str:
    columnas = ("qué se apaga", "puesto", "bits", "cuánto sube", "qué le pasa a lo que escribe")
    filas = [
        ["nada", "—", "", "—", ""],
        *([f"bloque {n}", "", "", "", ""] for n in range(1, 6)),
        ["el ____ y el ____", "—", "", "", ""],
    ]
    return ficha(
        "Apagar para entender",
        "Clase 6. Copias: cinco, una por grupo.",
        "<p>Antes de mirar, el puesto: 1 para el bloque que más falta hace y 5 para el que menos. Los bits son por "
        "carácter, en este texto: ______________________________</p>",
        tabla(filas, columnas, "alta", "apagado"),
        "<p>Lo que subían esos dos por separado, sumado: ________. ¿Es lo que suben juntos? ________</p>",
        "<p>Una frase que alguien creería y que la tabla <i>no</i> permite decir:</p>",
        HUECO,
        "<p>¿Qué prueba faltaría?</p>",
        HUECO,
    )


def sin_firma(paginas: dict[str, str]) -> str:
    letras = list(zip("ABCD", paginas.values()))
    return "".join(
        ficha(
            f"Sin firma: {dos[0][0]} y {dos[1][0]}",
            "Clase 8. Copias: una por pareja. De las cuatro páginas, una es de Cervantes; otra, una imitación de "
            "hoy; otra, de quien solo cuenta letras; y otra, de la máquina. Subraya en qué se nota.",
            *(
                f'<h3>{letra}</h3><p class="texto">{seguro(pagina)}</p>'
                "<p>Es de ______________________, porque:</p>" + HUECO
                for letra, pagina in dos
            ),
        )
        for dos in (letras[:2], letras[2:])
    )


CLASES = (
    (
        "A. Piensa o sabe como una persona",
        "entiende, quiere, recuerda, se inspira",
        "«Sabe de qué va y lo cuenta a su manera.»",
    ),
    ("B. Busca o copia", "internet, corta y pega", "«Encuentra frases parecidas y las junta.»"),
    (
        "C. Sigue reglas escritas por alguien",
        "programadores, gramática",
        "«Le han programado cómo se hace una frase.»",
    ),
    (
        "D. Ha aprendido probabilidades de datos",
        "texto leído, probabilidad, sorteo",
        "«Calcula qué letra suele seguir, sortea una y repite.»",
    ),
    (
        "E. Da un nombre, y no dice cómo",
        "es una IA, la han entrenado, un algoritmo",
        "«Es una inteligencia artificial: la han entrenado.»",
    ),
    ("En blanco", "", ""),
)
"""Las clases de respuestas a la primera pregunta de antes y después."""


def antes_y_despues() -> str:
    return ficha(
        "Antes y después",
        "Copias: dos por alumno, una antes de la primera clase y otra después de la última. No hay nota: se trata de "
        "ver qué cambia. Si te falta sitio, sigue por detrás.",
        "<p><b>Clave</b> (un nombre inventado, el mismo las dos veces): ______________________________</p>",
        "<p>1. Una máquina acaba de escribir una página. ¿Cómo lo ha hecho, paso a paso?</p>",
        HUECO,
        "<p>2. ¿Qué sabe esa máquina? ¿Cómo lo comprobarías?</p>",
        HUECO,
    ) + ficha(
        "Antes y después: para quien corrige",
        "Copias: una.",
        "<p>Cada respuesta va a una clase. Si tiene señales de varias, va a la que explica cómo escribe la máquina. Las "
        "que están en blanco se cuentan aparte.</p>",
        tabla(
            [[*clase, "", ""] for clase in CLASES],
            ["clase", "señales en la respuesta", "ejemplo", "antes", "después"],
            "frase alta",
        ),
        "<p>Quien corrige no debe saber qué respuestas son de antes: que otra persona las numere, apunte cuáles son y "
        "las baraje.</p>",
        "<p>Lo que llama la atención:</p>",
        HUECO,
    )


def respuestas(
    pagina: str,
    fusiones: list[tuple[str, str, int]],
    sancho: list[int],
    paginas: dict[str, str],
) -> str:
    cuentas = [
        [
            f"«{letra}»",
            sum(seguidas.values()),
            ", ".join(f"{'␣' if c == ' ' else c} {n}" for c, n in seguidas.most_common(6)),
        ]
        for letra in CONTADAS
        for seguidas in [siguientes(pagina, letra)]
    ]
    troceada = " | ".join(
        "|".join(bpe.trocear(p, fusiones)).replace(" ", "␣") for p in re.findall(r" ?\w+", FRASE)
    )
    con, sin = (
        ", ".join(f"{palabra} {peso:.2f}" for palabra, peso in zip(GATO, fila_de_gato(mascara)))
        for mascara in (True, False)
    )
    valores = [valor for _, _, valor in GATO.values()]
    mezcla = ", ".join(
        f"{sum(peso * valor[i] for peso, valor in zip(fila_de_gato(False), valores)):.2f}"
        for i in range(3)
    )
    return ficha(
        "Respuestas",
        "Copias: una, para quien da la clase.",
        "<h3>Clase 1</h3>",
        f"<p>En las {len(sancho)} letras, sancho acierta {sancho.count(1)} a la primera; con el mismo tope de {TOPE}, "
        f"suma {sum(sancho)} intentos. El pasaje es el {PASAJE + 1} de la página, y no lo leyó al aprender.</p>",
        "<h3>Clase 2: la página para contar</h3>",
        tabla(cuentas, ["letra", "veces", "le siguen"]).replace(" ", " "),
        "<h3>Clase 3</h3>",
        f"<p>La frase tiene {len(FRASE)} letras. En trozos: {seguro(troceada)}</p>",
        "<h3>Clase 5</h3>",
        f"<p>Pesos de «gato», sin máscara: {sin}; la mezcla es {mezcla}. Con máscara: {con}.</p>",
        "<h3>Clase 8</h3>",
        "<p>" + "; ".join(f"{letra}: {quien}" for letra, quien in zip("ABCD", paginas)) + ".</p>",
        f"<p>Para que ninguna se delate por una palabra que no existe, la de la máquina se eligió entre {MUESTRAS} "
        f"(temperatura {TEMPERATURA:g}) y la de quien cuenta entre {AZARES}: todas sus palabras están en el libro. "
        "La de Cervantes y la imitación empiezan a mitad de un capítulo.</p>",
    )


def paginas_sin_firma(caja: Checkpoint, libro: str, apartado: str) -> dict[str, str]:
    """Las cuatro páginas de la clase 8, cada una con quien la escribió."""
    [de_la_caja] = continue_texts(
        caja.build_implementation(),
        caja.tokenizer,
        caja.tokenizer.encode("\n\n"),
        max_new_tokens=1_300,
        config=SampleConfig(temperature=TEMPERATURA),
        seed=1605,
        samples=(MUESTRA,),
    )
    contado = copista(libro, 1_400, np.random.default_rng(AZAR))
    apocrifo = (CURSO.parent / "data" / "apocrifo.txt").read_text(encoding="utf-8")
    textos = {
        "quien cuenta": desde_una_frase(contado),
        "Cervantes": apartado[apartado.index(CERVANTES) :],
        "la máquina": desde_una_frase(de_la_caja),
        "una imitación de hoy": apocrifo[apocrifo.index(APOCRIFO) :],
    }
    return {quien: parrafos(texto, SIN_FIRMA) for quien, texto in textos.items()}


def hacer(corpus: Corpus, texto: str) -> str:
    """El HTML de todas las fichas. texto: el libro, en que no está lo de la validación."""
    caja = pretrained()
    apartado = corpus.tokenizer.decode(corpus.val)
    pagina = parrafos(texto[texto.index("En un lugar de la Mancha") :], EN_LA_PAGINA)
    palabras = Counter(re.findall(r" ?\w+", texto[:300_000]))
    fusiones = bpe.aprender(palabras, FUSIONES)
    antes, pasaje = passages_of(apartado)[PASAJE]
    pasaje = pasaje[:ADIVINADAS]
    de_la_caja = [min(n, TOPE) for n in intentos(caja, antes, pasaje)]
    paginas = paginas_sin_firma(caja, texto, apartado)
    fichas = [
        adivinar(desde_el_parrafo(apartado, antes), pasaje, de_la_caja),
        contar(pagina),
        vocabularios(corpus, texto, [a + b for a, b, _ in fusiones]),
        atencion(),
        apagar(),
        sin_firma(paginas),
        antes_y_despues(),
        respuestas(pagina, fusiones, de_la_caja, paginas),
    ]
    return (
        '<!doctype html>\n<html lang="es"><head><meta charset="utf-8"><title>Fichas</title>'
        f"<style>\n{ESTILO}</style></head><body>\n{''.join(fichas)}</body></html>\n"
    )


if __name__ == "__main__":
    corpus = corpus_of("quijote")
    FICHAS.write_text(hacer(corpus, corpus.tokenizer.decode(corpus.train)), encoding="utf-8")
    print(FICHAS)
