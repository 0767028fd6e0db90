"""Lo que se imprime para las clases de la guía docente: fichas.html, una ficha por hoja.

    python notebooks/taller/fichas.py

lo vuelve a escribir, con el libro y el modelo que viene con el proyecto. Se abre en un navegador y
se imprime en A4. Las respuestas van en la última hoja.
"""

import html
import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from sancho.checkpoint import pretrained
from sancho.config import CorpusConfig, SampleConfig
from sancho.convert.page.passages import passages_of
from sancho.corpus import Corpus
from sancho.generate import continue_texts
from sancho.sources import corpus_of

CURSO = Path(__file__).resolve().parent.parent
FICHAS = CURSO / "docente" / "fichas.html"
CONTADAS = "qze"
"""Las letras de las que se cuenta qué sigue."""
EN_LA_PAGINA, SIN_FIRMA = 2_400, 1_100
"""Letras de la página que se cuenta y de cada una de las dos sin firma."""
FUSIONES = 40
FRASE = "don Quijote mira su ordenador"
GATO = {
    "El": ([0.1, 0.2, 0.3], [0.2, 0.3, 0.1], [0.05, 0.1, 0.15]),
    "gato": ([0.5, 0.6, 0.7], [0.6, 0.5, 0.4], [0.7, 0.9, 0.2]),
    "juega": ([0.8, 0.7, 0.6], [0.9, 0.8, 0.5], [0.4, 0.8, 0.9]),
}
"""Consulta, clave y valor de cada palabra, los del capítulo 3."""

ESTILO = """\
@page { size: A4; margin: 18mm; }
body { font: 12pt/1.5 Georgia, serif; max-width: 174mm; margin: 1rem auto; padding: 0 1rem; }
section { break-after: page; padding-top: 1rem; border-top: 1px solid #999; }
section:last-child { break-after: auto; }
h2 { font-size: 16pt; margin: 0 0 .3em; }
p.clase { color: #555; margin: 0 0 1em; font-size: 10.5pt; }
table { border-collapse: collapse; margin: .6em 0; font-size: 10.5pt; }
td, th { border: 1px solid #777; padding: .15em .5em; text-align: center; }
td.alta { height: 1.8em; min-width: 1.8em; }
.texto { white-space: pre-wrap; text-align: left; }
.tarjetas { display: flex; gap: 8mm; }
.tarjetas div { border: 1px dashed #555; padding: 0 4mm; flex: 1; text-align: center; }
.tarjetas p, .tarjetas h3 { margin: .4em 0; }
.columnas { columns: 4; }
@media print { body { margin: 0; padding: 0; } section { border: 0; padding: 0; } }
"""


def seguro(texto: str) -> str:
    return html.escape(texto)


def tabla(
    filas: Iterable[Iterable[object]], cabecera: Iterable[object] = (), clase: str = ""
) -> str:
    """Una tabla de HTML. Lo que se da ya está escrito para HTML."""
    celda = f'<td class="{clase}">' if clase else "<td>"
    arriba = "".join(f"<th>{titulo}</th>" for titulo in cabecera)
    cuerpo = "".join(
        f"<tr>{''.join(f'{celda}{dato}</td>' for dato in fila)}</tr>" for fila in filas
    )
    return f"<table>{f'<tr>{arriba}</tr>' if arriba else ''}{cuerpo}</table>"


def ficha(titulo: str, clase: str, *partes: str) -> str:
    return f'<section><h2>{titulo}</h2><p class="clase">{clase}</p>{"".join(partes)}</section>\n'


# --- lo que se calcula ------------------------------------------------------------------------


def siguientes(texto: str, letra: str) -> Counter:
    """Cuántas veces sigue cada letra a una, sin distinguir mayúsculas."""
    return Counter(b for a, b in zip(texto.lower(), texto.lower()[1:]) if a == letra)


def fusionar(palabras: Counter, cuantas: int) -> list[str]:
    """Los trozos que aprende BPE, por orden: siempre la pareja de vecinos más frecuente."""
    partidas = {palabra: tuple(palabra) for palabra in palabras}
    trozos = []
    for _ in range(cuantas):
        parejas: Counter = Counter()
        for palabra, partes in partidas.items():
            for pareja in zip(partes, partes[1:]):
                parejas[pareja] += palabras[palabra]
        mejor = max(parejas, key=lambda pareja: (parejas[pareja], pareja))
        trozos.append("".join(mejor))
        partidas = {palabra: fundida(partes, mejor) for palabra, partes in partidas.items()}
    return trozos


def fundida(partes: tuple[str, ...], pareja: tuple[str, str]) -> tuple[str, ...]:
    nuevas: list[str] = []
    for parte in partes:
        if nuevas and (nuevas[-1], parte) == pareja:
            nuevas[-1] += parte
        else:
            nuevas.append(parte)
    return tuple(nuevas)


def trocear(palabra: str, trozos: list[str]) -> tuple[str, ...]:
    """Una palabra en trozos: las fusiones, en el orden en que se aprendieron."""
    partes = tuple(palabra)
    for trozo in trozos:
        for corte in range(1, len(trozo)):
            partes = fundida(partes, (trozo[:corte], trozo[corte:]))
    return partes


def fila_de_gato(con_mascara: bool) -> list[float]:
    """Los pesos con que «gato» mira a cada palabra (capítulo 3)."""
    consulta = GATO["gato"][0]
    claves = [clave for _, clave, _ in GATO.values()][: 2 if con_mascara else 3]
    puntos = [sum(a * b for a, b in zip(consulta, clave)) / math.sqrt(3) for clave in claves]
    exponenciales = [math.exp(punto) for punto in puntos]
    return [e / sum(exponenciales) for e in exponenciales]


def parrafos(texto: str, letras: int) -> str:
    """El comienzo de un texto, hasta el final de una frase, con sus renglones seguidos."""
    seguido = re.sub(r"(?<!\n)\n(?!\n)", " ", texto.strip())
    corte = seguido[:letras].rfind(".") + 1
    return seguido[: corte or letras]


# --- las fichas -------------------------------------------------------------------------------


def adivinar(pasaje: tuple[str, str]) -> str:
    antes, despues = pasaje
    renglones = re.findall(r".{1,60}(?:\s|$)", despues.replace("\n", " "))
    return ficha(
        "Adivinar la letra que sigue",
        "Clase 1, sin ordenadores. Quien dirige lo tapa con una regla y destapa una letra cada vez; "
        "apunta cuántos intentos cuesta. Antes del pasaje se lee esto:",
        f'<p class="texto"><i>… {seguro(" ".join(antes.split()))}</i></p>',
        *(f"<p>{seguro(renglon.strip())}</p>" for renglon in renglones),
        "<p>Tu apuesta para cinco comienzos de frase. La cuarta fila no es cero: algo queda para "
        "todas las demás.</p>",
        tabla(
            [[f"{n}.ª letra", *[""] * 5] for n in (1, 2, 3)]
            + [["todas las demás", *[""] * 5], ["suma", *["100 %"] * 5]],
            ["", *[f"comienzo {n}" for n in range(1, 6)]],
            "alta",
        ),
    )


def contar(pagina: str) -> str:
    cajas = tabla([[6 * f + c for c in range(1, 7)] for f in range(6)], clase="alta")
    return ficha(
        "Una página para contar",
        "Clase 2. Cada grupo elige una letra y apunta, una tras otra, todas las que la siguen.",
        f'<p class="texto">{seguro(pagina)}</p>',
    ) + ficha(
        "Sortear con dos dados",
        "Clase 2. Así se sortea según las cuentas, aunque un dado tenga seis caras.",
        "<ol><li>Escribe en las casillas las letras que siguieron a la tuya, una por cada vez que "
        "salió, desde la 1. Si son más de 36, quédate con las 36 primeras.</li>"
        "<li>Tira dos dados, uno para la fila y otro para la columna. Si la casilla está vacía, tira "
        "otra vez. La letra de la casilla es la que sigue.</li></ol>"
        "<p>Una letra que salió el doble de veces ocupa el doble de casillas, y sale el doble. El espacio "
        "también es una letra.</p>",
        cajas,
        "<p>Nuestra letra: ______</p>"
        "<p>Una línea entera, como Shannon en 1948: abre el libro por un sitio al azar, busca desde ahí la "
        "última letra que escribiste y copia la que la sigue. Así, cuarenta veces.</p>"
        "<p>La línea que ha salido: ____________________________________________________</p>",
    )


def vocabularios(corpus: Corpus, texto: str, trozos: list[str]) -> str:
    palabras = [p for p, _ in Counter(re.findall(r"\w+", texto)).most_common(60)]
    caracteres = [c for c in corpus.tokenizer.characters if c.isalpha() or c == " "]
    numeros = {c: corpus.tokenizer.encode(c)[0] for c in caracteres}

    def lista(elementos: Iterable[tuple[object, str]]) -> str:
        filas = "<br>".join(f"{n} {seguro(e).replace(' ', '␣')}" for n, e in elementos)
        return f'<div class="columnas">{filas}</div>'

    frase = f"<p>La frase: <b>{seguro(FRASE)}</b></p>"
    return "".join(
        ficha(f"Vocabulario de {nombre}", f"Clase 3, {cual} de tres. {que}", frase, contenido)
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
                f"Las letras y los {FUSIONES} primeros trozos que aprende BPE. Toma primero el de "
                "arriba; lo que no tiene trozo se queda en letras, con el número de la otra ficha.",
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
        "Clase 5. Se recortan. «gato» multiplica su consulta por cada clave, número a número, y "
        "suma; divide entre √3 = 1.73; busca en la tabla la exponencial; y divide cada una entre la "
        "suma de todas. Con esos pesos mezcla los valores.",
        f'<div class="tarjetas">{tarjetas}</div>',
        "<h3>Exponenciales</h3>",
        tabla(exponenciales, ["x", *(f"0.0{c}" for c in range(10))]),
        "<p>La cuenta de «gato»:</p>",
        tabla(
            [
                [fila, "", "", ""]
                for fila in ("consulta · clave", "entre 1.73", "e<sup>x</sup>", "peso")
            ],
            ["", *GATO],
            "alta",
        ),
        "<p>La mezcla (cada peso por su valor, y se suma): ______ &nbsp; ______ &nbsp; ______</p>",
    )


def sin_firma(paginas: tuple[str, str]) -> str:
    return "".join(
        ficha(
            f"Sin firma, {letra}",
            "Clase 8. ¿Del libro o de la máquina? Subraya en qué se nota.",
            f'<p class="texto">{seguro(pagina)}</p>',
        )
        for letra, pagina in zip("AB", paginas)
    )


def respuestas(pagina: str, trozos: list[str], de_la_maquina: str) -> str:
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
        "|".join(trocear(p, trozos)).replace(" ", "␣") for p in re.findall(r" ?\w+", FRASE)
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
        "Para quien da la clase.",
        "<h3>La página para contar</h3>",
        tabla(cuentas, ["letra", "veces", "le siguen"]).replace(" ", " "),
        f"<p>La frase tiene {len(FRASE)} letras. En trozos: {seguro(troceada)}</p>",
        f"<p>Pesos de «gato», sin máscara: {sin}; la mezcla es {mezcla}. Con máscara: {con}.</p>",
        f"<p>La página de la máquina es la {de_la_maquina}.</p>",
    )


def hacer(corpus: Corpus, texto: str) -> str:
    """El HTML de todas las fichas. texto: el libro, en que no está lo de la validación."""
    caja = pretrained()
    apartado = corpus.tokenizer.decode(corpus.val)
    pagina = parrafos(texto[texto.index("En un lugar de la Mancha") :], EN_LA_PAGINA)
    palabras = Counter(re.findall(r" ?\w+", texto[:300_000]))
    trozos = fusionar(palabras, FUSIONES)
    comienzo, pasaje = passages_of(apartado)[5]
    ajustes = SampleConfig(temperature=0.7)
    ids = caja.tokenizer.encode(comienzo)
    [escrito] = continue_texts(
        caja.build_implementation(),
        caja.tokenizer,
        ids,
        max_new_tokens=SIN_FIRMA,
        config=ajustes,
        seed=1605,
    )
    libro = parrafos(apartado[apartado.index(pasaje) :], SIN_FIRMA)
    fichas = [
        adivinar(passages_of(apartado)[0]),
        contar(pagina),
        vocabularios(corpus, texto, trozos),
        atencion(),
        sin_firma((parrafos(escrito, SIN_FIRMA), libro)),
        respuestas(pagina, trozos, "A"),
    ]
    return (
        '<!doctype html>\n<html lang="es"><head><meta charset="utf-8"><title>Fichas</title>'
        f"<style>\n{ESTILO}</style></head><body>\n{''.join(fichas)}</body></html>\n"
    )


if __name__ == "__main__":
    corpus = corpus_of(CURSO.parent / "data", CorpusConfig())
    FICHAS.write_text(hacer(corpus, corpus.tokenizer.decode(corpus.train)), encoding="utf-8")
    print(FICHAS)
