"""Láminas, figuras que se tocan: cada función da una, y el cuaderno la muestra si es lo último de la celda.

Una lámina es una página pequeña y completa dentro de un marco (`iframe`): no necesita ni el kernel
ni la red. Está hecha con partes de la página del proyecto (page) y con lo que hay en
la carpeta laminas/. Donde un sitio no deja pasar marcos, queda en su lugar una figura quieta.
"""

import base64
import html
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

from bpe import aprender, cortar
from sancho.convert import page, scripts
from ver import estilo

COMUNES = ("ui/elements.js", "ui/notation.js")
"""Los módulos de la página que usa comun.js."""
CARPETA = Path(__file__).resolve().parent / "laminas"
CLASE = "sancho-lamina"
"""La clase del elemento que contiene una lámina; por ella se encuentran en un cuaderno."""
MARCO = "marco.css"
PAGINA = """<!doctype html>
<html lang="es"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{titulo}</title><style>{estilo}</style></head>
<body><main id="lamina"></main>
<script type="application/json" id="datos">{datos}</script>
<script>"use strict";
{programa}</script></body></html>"""


class Lamina:
    """Una pregunta, una página que la contesta si se toca, y la respuesta plegada.

    nombre: su programa, laminas/nombre.js. partes: los módulos de la página que usa además de COMUNES.
    datos: lo que el programa lee. figura y alt: lo que se ve donde el programa no puede correr.
    """

    def __init__(
        self,
        nombre: str,
        titulo: str,
        datos: dict,
        figura: Figure,
        alt: str,
        pregunta: str,
        respuesta: str,
        partes: Sequence[str] = (),
    ):
        self.nombre, self.titulo, self.datos, self.partes = nombre, titulo, datos, partes
        self.figura, self.alt = figura, alt
        self.pregunta, self.respuesta = pregunta, respuesta

    def pagina(self) -> str:
        """Dar la página del marco, entera."""
        datos = json.dumps(self.datos, allow_nan=False, separators=(",", ":"))
        modulos = scripts.in_order(*COMUNES, *self.partes)
        programas = [scripts.joined(modulos), leer("comun.js"), leer(f"{self.nombre}.js")]
        return PAGINA.format(
            titulo=html.escape(self.titulo),
            estilo=page.style_of(["colours"]) + leer(MARCO) + leer(f"{self.nombre}.css"),
            datos=datos.replace("<", "\\u003c"),  # así ningún texto puede cerrar el <script>
            programa="".join(programas),
        )

    def html(self) -> str:
        titulo, alt = html.escape(self.titulo), html.escape(self.alt)
        marco = en_atributo(self.pagina())
        figura = base64.b64encode(png_pequeno(self.figura)).decode()
        # Sin altura hasta que su programa la pide: donde no corre, el marco no ocupa nada.
        return (
            f'<div class="{CLASE}"><p><b>Pruébalo.</b> {html.escape(self.pregunta)}</p>'
            f'<iframe title="{titulo}" width="100%" height="0" style="border:0;display:block" '
            f'srcdoc="{marco}"></iframe>'
            f'<div><img alt="{alt}" style="max-width:100%" src="data:image/png;base64,{figura}">'
            "<p><small>Para tocarla, abre el cuaderno y ejecuta la celda.</small></p></div>"
            "<details><summary>Respuesta</summary>"
            f"<p>{html.escape(self.respuesta)}</p></details></div>"
        )

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": f"{self.titulo}. {self.pregunta}"}


def png_pequeno(figura: Figure) -> bytes:
    """Dibujar una figura en pocos colores: ocupa la tercera parte."""
    entera, pequena = io.BytesIO(), io.BytesIO()
    figura.savefig(entera, format="png", dpi=90)
    imagen = Image.open(entera).convert("RGB")
    imagen.quantize(48, dither=Image.Dither.NONE).save(pequena, format="png", optimize=True)
    return pequena.getvalue()


def leer(nombre: str) -> str:
    """Leer un archivo de laminas/; vacío si una lámina no lo tiene."""
    archivo = CARPETA / nombre
    return archivo.read_text(encoding="utf-8") if archivo.exists() else ""


def en_atributo(pagina: str) -> str:
    """Dar un HTML como se escribe en un atributo de otro, entre comillas."""
    return html.escape(pagina, quote=False).replace('"', "&quot;")


@contextmanager
def figura_quieta(*forma: int, alto: float = 3) -> Iterator[tuple]:
    """Preparar una figura con el aspecto del curso, que el cuaderno no muestra por su cuenta."""
    with plt.rc_context():
        estilo.usar()
        figura = Figure(figsize=(7.5, alto))
        yield figura, figura.subplots(*forma)


def rotulo(texto: str) -> str:
    """Dar el texto con los espacios y los saltos de línea a la vista."""
    return texto.replace(" ", "·").replace("\n", "↵")


def lista(numeros: Sequence[float], cifras: int = 4) -> list[float]:
    """Dar los números como los escribe JSON, redondeados."""
    return np.asarray(numeros, dtype=float).round(cifras).tolist()


def softmax(
    puntuaciones: Sequence[float],
    etiquetas: Sequence[str],
    pregunta: str = "¿Hay alguna temperatura con la que la segunda opción adelante a la primera?",
    respuesta: str = (
        "Ninguna. Dividir todos los logits entre la misma τ > 0 no cambia su orden: cambia la "
        "ventaja. Con τ cerca de 0 la primera se lo lleva casi todo; cuanto mayor es τ, más se "
        "acercan todas a la misma probabilidad, sin cruzarse nunca."
    ),
) -> Lamina:
    """Repartir la probabilidad entre unas pocas opciones, con un mando para la temperatura."""
    logits = np.asarray(puntuaciones, dtype=float)
    alto = 1.3 + 0.22 * len(logits)
    with figura_quieta(1, 3, alto=alto) as (figura, ejes):
        for ax, tau in zip(ejes, (0.3, 1, 3)):
            exponenciales = np.exp((logits - logits.max()) / tau)
            barras(ax, exponenciales / exponenciales.sum(), etiquetas, f"τ = {tau}")
    return Lamina(
        "softmax",
        "Softmax con temperatura",
        {"puntuaciones": lista(logits), "etiquetas": list(etiquetas)},
        figura,
        "Las mismas puntuaciones con tres temperaturas: con 0.3 casi toda la probabilidad es de la "
        "primera opción, con 3 todas se parecen; el orden es siempre el mismo.",
        pregunta,
        respuesta,
        partes=["engine/probability.js"],
    )


def barras(
    ax, probabilidades: np.ndarray, etiquetas: Sequence[str], titulo: str, hasta: float = 1
) -> None:
    """Dibujar probabilidades, cada una con su cifra, en un eje que llega hasta una de ellas."""
    puntos = ax.barh(range(len(etiquetas)), 100 * probabilidades)
    ax.bar_label(puntos, fmt="%.1f %%", padding=3, fontsize=9)
    ax.set_yticks(range(len(etiquetas)), ["esp." if e == " " else rotulo(e) for e in etiquetas])
    ax.invert_yaxis()
    ax.set(xlim=(0, 135 * hasta), xlabel="%", title=titulo)
    ax.grid(axis="y", visible=False)


def sorteo(
    puntuaciones: Sequence[float],
    etiquetas: Sequence[str],
    pregunta: str = (
        "¿Puedes lograr, solo con la temperatura, que las letras improbables no salgan nunca y "
        "que las buenas sigan compitiendo?"
    ),
    respuesta: str = (
        "No. La temperatura encoge la cola, pero ninguna probabilidad llega a 0, y lo que quita a "
        "las improbables se lo quita también a las segundas: a fuerza de bajarla, solo queda la "
        "primera. Los otros tres mandos cortan: top-k deja siempre las mismas, top-p las que hagan "
        "falta para sumar p, y min-p las que no bajen de esa parte de la primera. Cortar y "
        "calentar se pueden combinar."
    ),
) -> Lamina:
    """Sortear la letra siguiente con temperatura, top-k, top-p y min-p."""
    logits = np.asarray(puntuaciones, dtype=float)
    orden = np.argsort(-logits, kind="stable")
    probabilidades = np.exp(logits - logits.max())[orden]
    probabilidades /= probabilidades.sum()
    suma_de_antes = probabilidades.cumsum() - probabilidades
    cortes = {"sin tocar": len(orden), "top-k = 4": 4, "top-p = 0.8": (suma_de_antes < 0.8).sum()}
    with figura_quieta(1, 3, alto=3.6) as (figura, ejes):
        for ax, (titulo, quedan) in zip(ejes, cortes.items()):
            parte = np.where(np.arange(len(orden)) < quedan, probabilidades, 0)
            nombres = [etiquetas[i] for i in orden[:12]]
            hasta = min(1, 2.5 * probabilidades[0])
            barras(ax, (parte / parte.sum())[:12], nombres, titulo, hasta)
    return Lamina(
        "sorteo",
        "El sorteo de la letra siguiente",
        {"puntuaciones": lista(logits), "etiquetas": list(etiquetas)},
        figura,
        "Las letras más probables sin tocar, con top-k = 4, que deja cuatro, y con top-p = 0.8, "
        "que deja las que hacen falta para sumar el 80 %; lo que queda se reparte de nuevo.",
        pregunta,
        respuesta,
        partes=["engine/random.js", "engine/sampler.js"],
    )


def bpe(
    texto: str,
    fusiones: int,
    pregunta: str = "Antes de cada paso, apuesta: ¿qué pareja de tokens se va a fundir ahora?",
    respuesta: str = (
        "La que más veces aparece en ese momento, dentro de una palabra, contando como un solo "
        "token lo ya fundido; si hay empate, la última por orden alfabético. Por eso un trozo "
        "largo solo puede nacer después de sus partes. Cada fusión acorta el texto tantos tokens "
        "como veces se hace y alarga el vocabulario en uno."
    ),
) -> Lamina:
    """Fundir un texto paso a paso, hacia delante y hacia atrás."""
    palabras = cortar(texto)
    aprendidas = aprender(Counter(palabras), fusiones)
    troceo = [tuple(palabra) for palabra in palabras]
    medidas = [sum(map(len, troceo))]
    for *_, veces in aprendidas:
        medidas.append(medidas[-1] - veces)
    with figura_quieta(alto=3) as (figura, ax):
        ax.step(range(len(medidas)), medidas, where="post")
        for i, (a, b, _) in enumerate(aprendidas[:8]):
            sitio = (i + 1.5, medidas[i + 1] + 0.02 * medidas[0])
            letrero = {"fontsize": 10, "fontweight": "bold", "rotation": 90}  # de lado, no se tocan
            ax.annotate(rotulo(a + b), sitio, ha="center", va="bottom", **letrero)
        ax.set(
            title="Lo que mide el texto tras cada fusión",
            xlabel="fusiones",
            ylabel="tokens",
            ylim=(0, 1.2 * medidas[0]),
        )
    return Lamina(
        "bpe",
        "BPE paso a paso",
        {"palabras": palabras, "fusiones": aprendidas},
        figura,
        f"El texto empieza con {medidas[0]} tokens, uno por letra, y tras {len(aprendidas)} "
        f"fusiones mide {medidas[-1]}; las primeras fusiones son las que más lo acortan.",
        pregunta,
        respuesta,
    )


def giro(
    pregunta: str = (
        "Busca dos posiciones en que el producto valga 1.00. ¿Cuántas parejas hay, y qué tienen en "
        "común?"
    ),
    respuesta: str = (
        "Diez, de (3, 0) a (12, 9): todas las que cumplen m − n = 3. Mueve las dos flechas a la "
        "vez y el producto no se mueve: solo cuenta la distancia. Estas dos flechas se buscan a "
        "tres posiciones; otras, que al empezar formaran otro ángulo, a otra distancia."
    ),
) -> Lamina:
    """Girar una consulta y una clave según su posición."""
    esfera = {"paso": 15, "consulta": 0, "clave": 45, "posiciones": 12}
    with figura_quieta(1, 3, alto=3) as (figura, ejes):
        for ax, (m, n) in zip(ejes, ((4, 4), (5, 2), (10, 7))):
            dibujar_esfera(ax, esfera, m, n)
    return Lamina(
        "giro",
        "La esfera de las posiciones",
        esfera,
        figura,
        "Tres esferas con dos flechas, q y k. Con m = n = 4 el producto vale 0.71; con m = 5 y "
        "n = 2 vale 1.00, y con m = 10 y n = 7, también 1.00.",
        pregunta,
        respuesta,
    )


def dibujar_esfera(ax, esfera: dict, m: int, n: int) -> None:
    angulos = np.radians(
        (esfera["consulta"] + esfera["paso"] * m, esfera["clave"] + esfera["paso"] * n)
    )
    vuelta = np.linspace(0, 2 * np.pi, 100)
    ax.plot(np.cos(vuelta), np.sin(vuelta), color="#8b877a", lw=1, linestyle="-")
    largos = (1.25, 1.25) if np.ptp(angulos) > 0.2 else (1.15, 1.45)
    for nombre, angulo, color, grueso, largo in zip(
        "qk", angulos, estilo.COLORES, (2.5, 5), largos
    ):
        punta = {"arrowstyle": "-|>", "color": color, "lw": grueso, "shrinkA": 0, "shrinkB": 0}
        punta |= {"alpha": 1 if nombre == "q" else 0.55, "zorder": 3 if nombre == "q" else 2}
        x, y = np.cos(angulo), np.sin(angulo)
        ax.annotate("", (x, y), (0, 0), arrowprops=punta)
        ax.text(
            largo * x, largo * y, nombre, ha="center", va="center", style="italic", weight="bold"
        )
    producto = np.cos(angulos[0] - angulos[1])
    ax.set(title=f"m = {m}, n = {n}", xlabel=f"q · k = {producto:.2f}", aspect="equal")
    ax.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), xticks=(), yticks=())
    ax.spines[:].set_visible(False)


NORMALIZACIONES = {"limite": 10, "paso": 0.5, "eps": {"layernorm": 1e-5, "rmsnorm": 1e-6}}
"""Hasta dónde llega cada canal, lo que avanza, y la ε de cada normalización, la de sancho-mini."""


def norma(
    numeros: Sequence[float] = (1, 0, -3, 4),
    pregunta: str = (
        "¿Cuál de los dos botones, sumar 1 o multiplicar por 2, nota LayerNorm? ¿Y RMSNorm? Iguala "
        "después los cuatro números: ¿qué da cada una?"
    ),
    respuesta: str = (
        "LayerNorm, ninguno: la media se lleva lo que se suma a todos, y la desviación típica, lo "
        "que los multiplica, mientras la ε no cuente. RMSNorm nota la suma, porque no resta la "
        "media, y no la multiplicación. Con los cuatro iguales, LayerNorm da ceros: los desvíos "
        "son 0, y gracias a la ε no se hace 0/0. RMSNorm da cuatro unos, o cuatro −1; ceros, solo si "
        "todos son 0."
    ),
) -> Lamina:
    """Mover unos canales y ver lo que sale de LayerNorm y de RMSNorm, sin γ ni β."""
    x, limite = np.asarray(numeros, dtype=float), NORMALIZACIONES["limite"]
    if x.shape != (4,) or abs(x).max() > limite or (x % NORMALIZACIONES["paso"]).any():
        raise ValueError(f"hacen falta cuatro números de −{limite} a {limite}, de medio en medio")
    with figura_quieta(1, 3, alto=2.8) as (figura, ejes):
        cambiados = {"x": x, "x + 1": x + 1, "2x": 2 * x}
        for ax, (titulo, valores) in zip(ejes, cambiados.items()):
            salidas = normalizar(valores)
            for lado, (nombre, salida) in zip((-0.2, 0.2), salidas.items()):
                ax.bar(np.arange(4) + lado, salida, width=0.4, label=nombre)
            ax.axhline(0, color="#22221f", linewidth=1, linestyle="-")
            nombres = [f"{valor:g}".replace("-", "−") for valor in valores]
            ax.set_xticks(range(4), nombres)
            ax.set(title=titulo, xlabel="los cuatro números", ylim=(-2, 2))
            ax.grid(axis="x", visible=False)
        ejes[0].set_ylabel("lo que sale")
        ejes[0].legend(fontsize=8, loc="upper left")
    return Lamina(
        "norma",
        "LayerNorm y RMSNorm con los mismos números",
        {"numeros": lista(x), **NORMALIZACIONES},
        figura,
        "Lo que dan LayerNorm y RMSNorm con cuatro números, con los mismos más 1 y con los mismos "
        "por 2: LayerNorm da siempre lo mismo; RMSNorm cambia solo al sumar.",
        pregunta,
        respuesta,
    )


def normalizar(x: np.ndarray) -> dict[str, np.ndarray]:
    """Dar un vector normalizado de las dos maneras, sin γ ni β."""
    eps = NORMALIZACIONES["eps"]
    return {
        "LayerNorm": (x - x.mean()) / np.sqrt(x.var() + eps["layernorm"]),
        "RMSNorm": x / np.sqrt((x**2).mean() + eps["rmsnorm"]),
    }


QUEBRADA = {"esquinas": [-2, -1, 1.5], "pendientes": [2, -2, -2.5], "desde": -3, "hasta": 3}
"""La línea que hay que calcar: una neurona por esquina."""


def neuronas(
    pregunta: str = (
        "Arrastra las tres neuronas hasta que su suma calque la línea de trazos. Ahora apaga la "
        "ReLU: ¿cuánto puedes bajar el error?"
    ),
    respuesta: str = (
        "Con ReLU, hasta 0: cada esquina de la línea pide una neurona que se doble allí, con la "
        "pendiente que la línea gana o pierde: 2 en −2, −2 en −1 y −2.5 en 1.5. Sin ella no se baja "
        "de 1.15, muevas lo que muevas: la suma de tres rectas es otra recta, y ese es el error de "
        "la mejor."
    ),
) -> Lamina:
    """Calcar una línea quebrada sumando tres neuronas, con ReLU y sin ella."""
    x, meta = meta_quebrada()
    with figura_quieta(1, 2, alto=2.8) as (figura, ejes):
        for ax, esquinas in zip(ejes, ([], QUEBRADA["esquinas"])):
            suma = mejor_suma(esquinas)
            error = ((suma - meta) ** 2).mean()
            ax.plot(x, meta, "--", color=estilo.COLORES[1], lw=4, label="hay que calcar")
            ax.plot(x, suma, "-", color="#22221f", label="la suma")
            ax.set(title=f"{'Con' if len(esquinas) else 'Sin'} ReLU: error {error:.2f}", xlabel="x")
        ejes[0].legend(fontsize=8)
    return Lamina(
        "neuronas",
        "Tres neuronas que se arrastran",
        QUEBRADA,
        figura,
        "Una línea de trazos con tres esquinas. Sin ReLU, la suma de tres neuronas es una recta que "
        "deja un error de 1.15; con ReLU, la calca.",
        pregunta,
        respuesta,
    )


def meta_quebrada() -> tuple[np.ndarray, np.ndarray]:
    """Dar los puntos en que se mide el error de una suma de neuronas y lo que habría de valer."""
    x = np.linspace(QUEBRADA["desde"], QUEBRADA["hasta"], 121)
    return x, np.maximum(0, x[:, None] - QUEBRADA["esquinas"]) @ QUEBRADA["pendientes"]


def mejor_suma(esquinas: Sequence[float]) -> np.ndarray:
    """Dar la suma de neuronas con esas esquinas que mejor calca la meta; sin esquinas, la recta."""
    x, meta = meta_quebrada()
    dobladas = np.maximum(0, x[:, None] - np.array(esquinas))
    columnas = dobladas if len(esquinas) else np.stack((x, np.ones_like(x)), axis=1)
    return columnas @ np.linalg.lstsq(columnas, meta, rcond=None)[0]


def nombres_de_subcapas(cuantas: int) -> list[str]:
    """Dar los nombres de las subcapas de una pila, de abajo arriba."""
    clases = ("atención", "feed-forward")
    return [f"{clases[i % 2]} del bloque {i // 2 + 1}" for i in range(cuantas)]


def subcapas(
    texto: str,
    sorpresas: np.ndarray,
    apuestas: Sequence[str],
    perdidas: Sequence[float],
    pregunta: str = (
        "Apaga las subcapas de una en una: ¿sin cuál sube más la pérdida? Y si apagas dos a la vez, "
        "¿sube la pérdida lo que suben las dos por separado?"
    ),
    respuesta: str | None = None,
) -> Lamina:
    """Encender y apagar las subcapas de un modelo, y ver qué letras se le vuelven difíciles.

    Hay una fila por cada manera de apagar, en el orden de itertools.product((False, True), …):
    la primera con todo apagado, la última con todo encendido. sorpresas: (2**n, T), en nats, las
    de las letras del texto. apuestas: lo que el modelo habría escrito en el lugar de cada una.
    perdidas: las de un texto que puede ser más largo.
    """
    sorpresas, perdidas = np.asarray(sorpresas, dtype=float), np.asarray(perdidas, dtype=float)
    cuantas = len(perdidas).bit_length() - 1
    if len(perdidas) != 1 << cuantas or cuantas % 2:
        raise ValueError(f"hay {len(perdidas)} pérdidas, y no son las de unos bloques enteros")
    if sorpresas.shape != (len(perdidas), len(texto)):
        raise ValueError(f"{len(texto)} letras, y las sorpresas son {sorpresas.shape}")
    if {len(apuesta) for apuesta in apuestas} != {len(texto)} or len(apuestas) != len(perdidas):
        raise ValueError("hace falta una apuesta por letra y por manera de apagar")
    letras = sorted(set("".join(apuestas)))
    lugar = {letra: i for i, letra in enumerate(letras)}
    elegidas = np.array([[lugar[letra] for letra in apuesta] for apuesta in apuestas])
    sin_una = perdidas[[-1 - (1 << i) for i in reversed(range(cuantas))]]
    with figura_quieta(alto=0.26 * cuantas + 0.9) as (figura, ax):
        puntos = ax.barh(range(cuantas), sin_una)
        ax.bar_label(puntos, fmt="%.2f", padding=3, fontsize=9)
        ax.axvline(perdidas[-1], color="#22221f", linestyle=":", label="sin apagar ninguna")
        ax.set_yticks(range(cuantas), nombres_de_subcapas(cuantas))
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.set(title="La pérdida al apagar cada subcapa", xlabel="nats por carácter")
        ax.set_xlim(0, 1.15 * sin_una.max())
        ax.legend(fontsize=9)
    return Lamina(
        "subcapas",
        "Una pila con interruptores",
        {
            "texto": texto,
            "subcapas": cuantas,
            "perdidas": lista(perdidas, 3),
            "tintes": comprimir(np.digitize(sorpresas, TINTES)),
            "letras": letras,
            "apuestas": comprimir(elegidas),
        },
        figura,
        f"La pérdida sin apagar nada es {perdidas[-1]:.2f}. Una barra por subcapa dice cuánto es "
        f"sin ella: de {sin_una.min():.2f} a {sin_una.max():.2f}.",
        pregunta,
        respuesta if respuesta is not None else lo_que_se_apaga(perdidas),
        partes=["engine/base64.js"],
    )


TINTES = (0.7, 1.4, 2.8, 4.2, 6.3)
"""Los nats de sorpresa desde los que una letra se tiñe más: uno, dos, cuatro, seis y nueve bits."""


def comprimir(numeros: np.ndarray) -> str:
    """Dar una tabla de números menores que 256 como los lee unpack.js, columna tras columna."""
    columnas = np.ascontiguousarray(numeros.T, dtype=np.uint8)
    return base64.b64encode(zlib.compress(columnas.tobytes(), 9)).decode()


def lo_que_se_apaga(perdidas: np.ndarray) -> str:
    """Decir sin qué subcapa sube más la pérdida, sin cuál sube menos, y si los daños se suman."""
    cuantas = len(perdidas).bit_length() - 1
    nombres, enteras = nombres_de_subcapas(cuantas), perdidas[-1]
    bits = [1 << i for i in reversed(range(cuantas))]
    dano = perdidas[[-1 - bit for bit in bits]] - enteras
    parejas = [(i, j) for j in range(cuantas) for i in range(j)]
    juntas = [perdidas[-1 - bits[i] - bits[j]] - enteras for i, j in parejas]
    de_mas = [junta - dano[i] - dano[j] for junta, (i, j) in zip(juntas, parejas)]
    raro = int(np.argmax(np.abs(de_mas)))
    i, j = parejas[raro]
    peor, mejor = int(dano.argmax()), int(dano.argmin())
    return (
        f"La {nombres[peor]}: sin ella la pérdida pasa de {enteras:.2f} a "
        f"{enteras + dano[peor]:.2f}. La que menos, la {nombres[mejor]}: "
        f"{enteras + dano[mejor]:.2f}. Los daños no se suman: la {nombres[i]} vale a solas "
        f"{dano[i]:.2f} y la {nombres[j]}, {dano[j]:.2f}; sin las dos la pérdida sube "
        f"{juntas[raro]:.2f}. Cada subcapa lee lo que han sumado las de antes, así que quitar una "
        "cambia lo que leen las demás."
    ).replace("-0.", "−0.")


def atencion(
    texto: str,
    pesos: np.ndarray,
    capa: int = 0,
    otras: Sequence[tuple[str, np.ndarray]] = (),
    pregunta: str = (
        "Toca varias letras: ¿hay alguna cabeza que mire siempre al mismo sitio, sea cual sea la "
        "letra que pregunta?"
    ),
    respuesta: str = (
        "Compara las cifras de «hace»: si al cambiar de letra una cabeza sigue mirando a la misma "
        "distancia (la letra anterior, ella misma), va por la posición; si la distancia cambia y lo "
        "mirado se parece (un espacio, una vocal, una letra igual), va por el contenido. Suele haber "
        "de las dos, y muchas que reparten su atención un poco por todas partes."
    ),
) -> Lamina:
    """Tocar una letra y ver a dónde mira cada cabeza, con un mismo tinte para un mismo peso.

    pesos: (n_layer, n_head, T, T) o (n_head, T, T), una fila por letra que pregunta. capa: el
    bloque por el que se empieza. otras: frases entre las que elegir, cada una con sus pesos.
    """
    pesos = np.asarray(pesos, dtype=float)
    if pesos.ndim == 3:
        pesos = pesos[None]
    if not 0 <= capa < len(pesos):
        raise ValueError(f"capa={capa}, y hay pesos de {len(pesos)} bloques")
    forma, T = pesos.shape[:2], len(texto)
    frases = [
        {"texto": frase, "pesos": triangulos(frase, suyos, forma)}
        for frase, suyos in ((texto, pesos), *otras)
    ]
    with figura_quieta(alto=0.5 * pesos.shape[1] + 1.2) as (figura, ax):
        cabezas = [f"cabeza {i + 1}" for i in range(pesos.shape[1])]
        ultima = pesos[capa, :, -1]
        letras = [rotulo(c) for c in texto]
        imagen = estilo.mapa_de_calor(ax, ultima, cabezas, letras, vmin=0, vmax=1)
        ax.tick_params(axis="x", labelsize=min(10, 430 / T))
        ax.set_title(
            f"A dónde mira la última letra, «{rotulo(texto[-1])}», en el bloque {capa + 1}"
        )
        figura.colorbar(imagen, label="peso")
    return Lamina(
        "atencion",
        "A dónde mira cada cabeza",
        {"frases": frases, "forma": forma, "capa": capa},
        figura,
        f"Un mapa con una fila por cabeza: los pesos con que la última letra de «{texto}» mira a "
        "cada una de las anteriores.",
        pregunta,
        respuesta,
        partes=["engine/sampler.js", "engine/base64.js", "ui/letters.js"],
    )


def triangulos(frase: str, pesos: np.ndarray, forma: tuple[int, int]) -> str:
    """Dar los pesos de una frase en bytes comprimidos, sin el futuro, que vale 0."""
    T = len(frase)
    if pesos.shape != (*forma, T, T):
        raise ValueError(f"«{frase}» tiene {T} letras y los pesos son {pesos.shape}")
    filas, columnas = np.tril_indices(T)
    bytes_ = np.rint(255 * pesos[:, :, filas, columnas]).astype(np.uint8).tobytes()
    return base64.b64encode(zlib.compress(bytes_, 9)).decode()


def curva(
    pasos: Sequence[int],
    entrenamiento: Sequence[float],
    validacion: Sequence[float],
    muestras: Sequence[tuple[int, str]],
    pregunta: str = (
        "Recorre la curva leyendo lo que escribe el modelo: ¿qué aprende mientras la pérdida se "
        "desploma, y qué mientras apenas baja?"
    ),
    respuesta: str = (
        "En la caída, lo que más se repite: qué letras son frecuentes, dónde van los espacios, "
        "sílabas, palabras cortas. En la parte casi llana, lo que cuesta más y se repite menos: "
        "palabras largas bien escritas, concordancias, un diálogo que abre con raya. Una décima "
        "menos al final se nota más al leer que un nat entero al principio."
    ),
) -> Lamina:
    """Recorrer la curva de aprendizaje leyendo una muestra en cada punto.

    Una pérdida que en un paso no se midió es None o NaN.
    """
    perdidas = [np.array(valores, dtype=float) for valores in (entrenamiento, validacion)]
    if not {len(pasos)} == {len(valores) for valores in perdidas}:
        raise ValueError("hace falta una pérdida de cada clase por paso")
    muestras = sorted((int(paso), texto) for paso, texto in muestras)
    with figura_quieta(alto=3.2) as (figura, ax):
        for nombre, valores in zip(("entrenamiento", "validación"), perdidas):
            medidas = np.isfinite(valores)
            ax.plot(np.asarray(pasos)[medidas], valores[medidas], label=nombre)
        for paso, _ in muestras:
            ax.axvline(paso, color="#8b877a", lw=1, linestyle=":")
        ax.set(title="La curva de aprendizaje", xlabel="paso", ylabel="nats por carácter")
        ax.set_ylim(0)
        ax.legend()
    nulos = [[v if np.isfinite(v) else None for v in lista(valores)] for valores in perdidas]
    return Lamina(
        "curva",
        "La curva de aprendizaje",
        {
            "pasos": [int(paso) for paso in pasos],
            "entrenamiento": nulos[0],
            "validacion": nulos[1],
            "muestras": muestras,
        },
        figura,
        f"La pérdida de entrenamiento y la de validación, del paso {pasos[0]} al {pasos[-1]}: caen "
        "deprisa al principio y despacio después. Unas líneas marcan los pasos de las muestras.",
        pregunta,
        respuesta,
    )


VALLE = {"curvas": [1, 10], "salida": [-9, 2], "cerca": 0.01, "lejos": 100, "limite": 300}
"""La bola sale de `salida`, llega si la altura baja de `cerca` y diverge si se multiplica por `lejos`."""


def descenso(
    pregunta: str = (
        "Sin inercia, ¿cuál es la tasa que lleva la bola al fondo en menos pasos? ¿Y cuántos te "
        "ahorras si añades inercia?"
    ),
    respuesta: str = (
        "Sin inercia, la de 0.18: 22 pasos. Más allá manda la pared empinada, cuya curvatura es "
        "10: con 0.20 = 2/10 la bola salta de un lado a otro sin bajar, y con más sale disparada. "
        "Con inercia 0.50 y tasa 0.17 bastan 6: lo que la bola lleva de velocidad la empuja por "
        "el fondo llano y frena sus saltos en lo empinado. Demasiada inercia la pasa de largo."
    ),
) -> Lamina:
    """Bajar por un valle alargado eligiendo la tasa de aprendizaje y la inercia."""
    x, y = np.meshgrid(np.linspace(-10, 10, 81), np.linspace(-4.2, 4.2, 41))
    c1, c2 = VALLE["curvas"]
    with figura_quieta(1, 3, alto=2.4) as (figura, ejes):
        for ax, tasa, inercia in zip(ejes, (0.05, 0.18, 0.17), (0, 0, 0.5)):
            niveles = 1.5 * np.arange(1, 8) ** 2
            alturas = (c1 * x**2 + c2 * y**2) / 2
            ax.contour(x, y, alturas, levels=niveles, colors="#8b877a", linewidths=0.7)
            camino = np.array(bajar(tasa, inercia))
            ax.plot(*camino.T, "o-", color=estilo.COLORES[1], markersize=3, lw=1.2)
            ax.set_title(f"tasa {tasa:.2f}, inercia {inercia:.2f}", fontsize=10)
            ax.set(xlabel=f"{len(camino) - 1} pasos", xticks=(), yticks=())
            ax.set(xlim=(-10, 10), ylim=(-4.2, 4.2))
    return Lamina(
        "descenso",
        "La bola que baja",
        VALLE,
        figura,
        "Tres caminos de una bola por un valle alargado: con tasa 0.05 baja despacio, con 0.18 salta "
        "de una pared a otra, y con inercia 0.50 llega al fondo en 6 pasos.",
        pregunta,
        respuesta,
    )


def bajar(tasa: float, inercia: float) -> list[np.ndarray]:
    """Dar el camino de la bola hasta que llega, diverge o se cansa."""
    curvas = np.array(VALLE["curvas"])
    camino, velocidad = [np.array(VALLE["salida"], dtype=float)], np.zeros(2)
    alturas = [camino[0] ** 2 @ curvas / 2]
    while VALLE["cerca"] <= alturas[-1] < VALLE["lejos"] * alturas[0]:
        if len(camino) > VALLE["limite"]:
            break
        velocidad = inercia * velocidad + curvas * camino[-1]
        camino.append(camino[-1] - tasa * velocidad)
        alturas.append(camino[-1] ** 2 @ curvas / 2)
    return camino


MANDOS_DE_MEZCLA = {"menor": -1, "mayor": 2, "paso": 0.05}
"""Hasta dónde llega, por abajo y por arriba, y lo que avanza cada número de la mezcla."""


def mezcla(
    palabras: Sequence[str],
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    quien: int = 1,
    pregunta: str = (
        "Con la máscara puesta, haz que «gato» dé a «El» más de la mitad, moviendo un solo número. "
        "¿Con cuál basta moverse menos? ¿Y con cuáles no se consigue nunca?"
    ),
    respuesta: str = (
        "Con el tercero de una de las dos claves: subiendo el de «El» de 0.10 a 0.90, o bajando el "
        "de «gato» de 0.40 a −0.40. Es el que multiplica el mayor número de la consulta de «gato», "
        "0.70. Con la consulta hay que moverse más. No se consigue nunca con un valor: los valores "
        "cambian lo que sale, no los pesos. Tampoco con nada de «juega», que está tapada, ni "
        "quitando la raíz, que no cambia qué puntuación es la mayor."
    ),
) -> Lamina:
    """Hacer la cuenta de la atención mientras se mueven las consultas, las claves y los valores.

    Q, K y V: (T, d), una fila por palabra. quien: la palabra por la que se empieza a preguntar.
    """
    tablas = {nombre: np.asarray(tabla, dtype=float) for nombre, tabla in zip("qkv", (Q, K, V))}
    formas = {tabla.shape for tabla in tablas.values()}
    if len(formas) > 1 or len(palabras) not in {forma[0] for forma in formas}:
        raise ValueError(f"hace falta una fila por palabra, y las tablas son {sorted(formas)}")
    numeros = np.stack(list(tablas.values()))
    menor, mayor, paso = MANDOS_DE_MEZCLA.values()
    cerca = np.isclose(numeros / paso, (numeros / paso).round(), atol=1e-4)
    if not cerca.all() or numeros.min() < menor or numeros.max() > mayor:
        raise ValueError(f"los números van de {menor} a {mayor}, de {paso} en {paso}")
    return Lamina(
        "mezcla",
        "La cuenta de la atención",
        {
            "palabras": list(palabras),
            "quien": quien,
            **MANDOS_DE_MEZCLA,
            **{nombre: lista(tabla) for nombre, tabla in tablas.items()},
        },
        dibujar_mezcla(palabras, *numeros),
        f"Cuatro tablas con una fila por palabra, {', '.join(palabras)}: los productos de consultas "
        "y claves, lo mismo a escala y con el futuro tapado, los pesos que da softmax y la mezcla de "
        "los valores.",
        pregunta,
        respuesta,
        partes=["engine/probability.js"],
    )


def dibujar_mezcla(palabras: Sequence[str], q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Figure:
    """Dibujar los cuatro pasos de la atención con máscara; q, k y v: (T, d)."""
    productos = q @ k.T
    futuro = np.triu(np.ones_like(productos, dtype=bool), 1)
    escaladas = np.where(futuro, -np.inf, productos / np.sqrt(q.shape[1]))
    pesos = np.exp(escaladas - escaladas.max(1, keepdims=True))
    pesos /= pesos.sum(1, keepdims=True)
    with figura_quieta(1, 4, alto=2.3) as (figura, ejes):
        numeradas = [str(i + 1) for i in range(q.shape[1])]
        dibujadas = (
            ("1. q · k", productos, palabras),
            (f"2. ÷ √{q.shape[1]}, máscara", escaladas, palabras),
            ("3. softmax: pesos", pesos, palabras),
            ("4. mezcla de v", pesos @ v, numeradas),
        )
        for ax, (titulo, matriz, columnas) in zip(ejes, dibujadas):
            filas = palabras if ax is ejes[0] else [""] * len(palabras)
            estilo.mapa_de_calor(ax, matriz, filas, columnas, ".2f", vmin=0, vmax=1.6)
            ax.set_title(titulo, fontsize=10)
            ax.tick_params(length=0)
            ax.set_facecolor(plt.get_cmap(estilo.MAPA)(0))  # tras lo tapado, que no tiene color
            for texto in ax.texts:
                texto.set_text(texto.get_text().replace("inf", "∞"))
    return figura


def alineamiento(
    casos: Sequence[tuple[str, str, np.ndarray]],
    elegida: int = 0,
    pregunta: str = (
        "Recorre lo escrito letra a letra: ¿dónde salta la mirada hacia atrás? Después cambia de "
        "original: ¿salta en la misma letra?"
    ),
    respuesta: str = (
        "Salta al pasar del final del original a su principio. Si lo de detrás de la coma crece o "
        "mengua, el salto llega después o antes: no sigue un número de letra, sigue lo que lee."
    ),
) -> Lamina:
    """Tocar una letra de lo escrito y ver a qué letras del original mira.

    casos: (original, copia, pesos), con pesos (letras de la copia + 1, letras del original + 1);
    lo que está de más es el final. Una copia que no llegó al suyo tiene una fila menos. elegida:
    la letra de la copia por la que se empieza.
    """
    textos, bytes_ = [], b""
    for original, copia, pesos in casos:
        pesos = np.asarray(pesos, dtype=float)
        acaba = len(pesos) == len(copia) + 1
        if pesos.shape != (len(copia) + acaba, len(original) + 1):
            raise ValueError(f"«{original}» → «{copia}», y los pesos son {pesos.shape}")
        textos.append([original + "■", copia + "■" * acaba])
        bytes_ += np.rint(255 * pesos).astype(np.uint8).tobytes()
    (original, copia), pesos = textos[0], casos[0][2]
    with figura_quieta(alto=4.6) as (figura, ax):
        filas, columnas = list(rotulo(copia)), list(rotulo(original))
        imagen = estilo.mapa_de_calor(
            ax, np.asarray(pesos), filas, columnas, aspect="equal", vmin=0, vmax=1
        )
        ax.tick_params(labelsize=9, length=0)
        ax.set(title="A dónde mira cada letra que se escribe", xlabel="letra del original")
        ax.set_ylabel("letra que se escribe")
        figura.colorbar(imagen, label="peso")
    return Lamina(
        "alineamiento",
        "De qué letra sale cada letra",
        {
            "casos": textos,
            "elegida": elegida,
            "pesos": base64.b64encode(zlib.compress(bytes_, 9)).decode(),
        },
        figura,
        f"Un mapa con una fila por letra de «{copia}» y una columna por letra de «{original}»: los "
        "pesos de la atención cruzada. El cuadrito ■ es el final.",
        pregunta,
        respuesta,
        partes=["engine/sampler.js", "engine/base64.js", "ui/letters.js"],
    )
