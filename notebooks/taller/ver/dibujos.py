"""Los cuatro dibujos del curso: el modelo, el bloque, el camino de una letra y el bucle.

Cada función dibuja una figura; con `aqui="…"` marca una de sus partes: «estás aquí». Las formas
llevan los nombres de siempre: T letras, C números por vector, V caracteres, B textos en un lote.
"""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

from ver import estilo

MODELO = (
    "tokens",
    "embedding",
    "posiciones",
    "bloque",
    "normalizacion",
    "cabeza de salida",
    "softmax",
    "eleccion",
)
BLOQUE = ("normalizacion", "atencion", "residual", "feed-forward")
CAMINO = (
    "letra",
    "identificador",
    "vector",
    "bloques",
    "logits",
    "probabilidades",
    "letra elegida",
)
BUCLE = ("lote", "modelo", "perdida", "gradiente", "optimizador", "validacion")

TINTA, SUAVE, BLANCO = "#22221f", "#5b584e", "#ffffff"
AQUI, CARTEL = "#f2bf4d", "#0b5a8f"
ANCHO = 7.5
"""Pulgadas; las coordenadas de los dibujos también lo son."""


def lienzo(alto: float, partes: tuple[str, ...], aqui: str | None) -> Axes:
    """Preparar una figura vacía; `aqui` tiene que ser una de las partes."""
    if aqui is not None and aqui not in partes:
        raise ValueError(f"aqui={aqui!r} no es una parte de este dibujo; son: {', '.join(partes)}")
    with plt.rc_context():
        estilo.usar()
        plt.rcParams["figure.constrained_layout.use"] = False
        figura = plt.figure(figsize=(ANCHO, alto))
        ejes = figura.add_axes((0, 0, 1, 1), xlim=(0, ANCHO), ylim=(0, alto))
    ejes.set_axis_off()
    return ejes


def caja(
    ejes: Axes,
    centro: tuple[float, float],
    lados: tuple[float, float],
    titulo: str,
    nota: str = "",
    forma: str = "",
    aqui: bool = False,
    cartel: float = 0,
) -> None:
    """Dibujar una caja: título arriba, nota en medio, forma abajo; marcada si es `aqui`.

    cartel: cuánto se aparta del centro, si a la caja le llega por arriba una flecha.
    """
    (x, y), (ancho, alto) = centro, lados
    ejes.add_patch(rectangulo(x, y, ancho, alto, aqui))
    letra = {"ha": "center", "color": TINTA, "zorder": 4}
    ejes.text(x, y + alto / 2 - 0.11, titulo, va="top", fontsize=9.5, weight="bold", **letra)
    medio = y + (0.02 if forma else -0.12)
    ejes.text(x, medio, nota, va="center", fontsize=9, linespacing=1.15, **letra)
    ejes.text(x, y - alto / 2 + 0.1, forma, va="bottom", fontsize=9, family="monospace", **letra)
    if aqui:
        estas_aqui(ejes, x + cartel, y + alto / 2 + 0.03)


def rectangulo(x: float, y: float, ancho: float, alto: float, aqui: bool) -> FancyBboxPatch:
    return FancyBboxPatch(
        (x - ancho / 2, y - alto / 2),
        ancho,
        alto,
        boxstyle="round,pad=0,rounding_size=0.08",
        facecolor=AQUI if aqui else BLANCO,
        edgecolor=TINTA,
        linewidth=2.4 if aqui else 1.1,
        zorder=2,
    )


def estas_aqui(ejes: Axes, x: float, y: float) -> None:
    """Poner el cartel con su punta en (x, y)."""
    punta = {"arrowstyle": "-|>", "color": CARTEL, "lw": 1.5, "shrinkA": 0, "shrinkB": 0}
    fondo = {"boxstyle": "round,pad=0.3", "facecolor": CARTEL, "edgecolor": "none"}
    ejes.annotate(
        "estás aquí",
        (x, y),
        (x, y + 0.26),
        ha="center",
        va="center",
        fontsize=9,
        weight="bold",
        color=BLANCO,
        bbox=fondo,
        arrowprops=punta,
        zorder=5,
    )


def flecha(ejes: Axes, *puntos: tuple[float, float], **trazo) -> None:
    """Dibujar una flecha que pasa por unos puntos."""
    trazo = {"color": TINTA, "linewidth": 1.3, "linestyle": "-"} | trazo
    if len(puntos) > 2:
        xs, ys = zip(*puntos[:-1])
        ejes.plot(xs, ys, solid_capstyle="butt", zorder=1, **trazo)
    punta = {"arrowstyle": "-|>", "mutation_scale": 11, "shrinkA": 0, "shrinkB": 0}
    ejes.add_patch(FancyArrowPatch(*puntos[-2:], **punta, **trazo, zorder=1))


def apunte(ejes: Axes, x: float, y: float, texto: str, **opciones) -> None:
    opciones = {"ha": "center", "va": "center", "fontsize": 9, "color": SUAVE} | opciones
    ejes.text(x, y, texto, **opciones)


def modelo(aqui: str | None = None) -> None:
    """Dibujar el modelo entero, del texto a la letra siguiente."""
    ejes = lienzo(3.65 if aqui in MODELO[:4] else 3.25, MODELO, aqui)
    lados, paso = (1.38, 0.98), 1.6
    arriba, abajo = 2.65, 0.6
    notas = {
        "tokens": ("tokens", "un número\npor letra", "(T,)"),
        "embedding": ("embedding", "un vector\npor número", "(T, C)"),
        "posiciones": ("posiciones", "en qué orden\nvan", "(T, C)"),
        "bloque": ("bloque", "mirar atrás\ny pensar", "(T, C)"),
        "normalizacion": ("normalización", "vectores de\ntamaño parejo", "(T, C)"),
        "cabeza de salida": ("cabeza de salida", "un logit por\ncada carácter", "(T, V)"),
        "softmax": ("softmax", "de logits a\nprobabilidades", "(T, V)"),
        "eleccion": ("elección", "se sortea la\nsiguiente", "1 letra"),
    }
    primera, segunda = 1.82, lados[0] / 2 + 0.04
    ultima = primera + 3 * paso
    for d in (0.1, 0.05):  # los otros bloques, detrás
        ejes.add_patch(rectangulo(ultima + d, arriba - d, *lados, False))
    for i, parte in enumerate(MODELO):
        x, y = (primera + paso * i, arriba) if i < 4 else (segunda + paso * (i - 4), abajo)
        cartel = 0.3 if parte == "normalizacion" else 0
        caja(ejes, (x, y), lados, *notas[parte], aqui=aqui == parte, cartel=cartel)
        if i < 4:
            flecha(ejes, (x - paso + lados[0] / 2 + 0.08 * (i == 0), y), (x - lados[0] / 2, y))
        else:
            flecha(ejes, (x + lados[0] / 2, y), (x + paso - lados[0] / 2, y))
    apunte(ejes, 0.48, arriba, "«la Manch»", fontsize=10, color=TINTA, style="italic")
    apunte(ejes, ultima - 0.05, arriba - 0.72, "× n_layer", color=TINTA)
    salida, vuelta, llegada = ultima + 0.45, arriba - 0.92, segunda - 0.3
    codo = [(salida, arriba - 0.59), (salida, vuelta), (llegada, vuelta)]
    flecha(ejes, *codo, (llegada, abajo + lados[1] / 2))
    apunte(ejes, 6.98, abajo, "«a»", fontsize=13, color=TINTA, style="italic")
    apunte(ejes, 6.95, abajo - 0.38, "y otra vez, con\n«la Mancha»")


def bloque(aqui: str | None = None) -> None:
    """Dibujar el bloque: dos subcapas, cada una con su normalización y su residual."""
    residual = aqui == "residual"
    techo = 0.12 if aqui is None or residual else 0.55  # sobre las cajas, hasta el marco
    alto, corriente, lados = 1.85, 0.62, (1.4, 0.95)
    ejes = lienzo(alto + lados[1] / 2 + techo + 0.32, BLOQUE, aqui)
    if residual:
        ejes.plot([0.15, 7.1], [corriente] * 2, color=AQUI, lw=11, zorder=0)
        estas_aqui(ejes, 2.02, corriente + 0.1)
    flecha(ejes, (0.1, corriente), (7.4, corriente), linewidth=2.6)
    for x in (0.35, 7.15):
        apunte(ejes, x, corriente + 0.24, "(T, C)", family="monospace", color=TINTA)
    apunte(ejes, 1.2, corriente - 0.32, "corriente residual", color=TINTA, weight="bold")
    subcapas = [
        (1.2, 2.85, "atencion", "atención", "cada letra mira\na las de antes"),
        (4.65, 6.3, "feed-forward", "feed-forward", "cada letra\npiensa a solas"),
    ]
    for numero, (norma, trabajo, parte, titulo, nota) in enumerate(subcapas, start=1):
        marcada = aqui == "normalizacion"
        izquierda, abajo = norma - lados[0] / 2 - 0.1, alto - lados[1] / 2 - 0.1
        marco = (trabajo - norma + lados[0] + 0.2, lados[1] + 0.1 + techo)
        linea = {"facecolor": "none", "edgecolor": SUAVE, "linestyle": "--", "zorder": 0}
        ejes.add_patch(Rectangle((izquierda, abajo), *marco, **linea))
        sobre = abajo + marco[1] + 0.12
        apunte(ejes, izquierda, sobre, f"subcapa {numero}", weight="bold", ha="left")
        flecha(ejes, (norma, corriente), (norma, alto - lados[1] / 2))
        flecha(ejes, (norma + lados[0] / 2, alto), (trabajo - lados[0] / 2, alto))
        flecha(ejes, (trabajo, alto - lados[1] / 2), (trabajo, corriente + 0.16))
        parejo = ("normalización", "vectores de\ntamaño parejo")
        caja(ejes, (norma, alto), lados, *parejo, aqui=marcada)
        caja(ejes, (trabajo, alto), lados, titulo, nota, aqui=aqui == parte)
        suma = Circle((trabajo, corriente), 0.15, facecolor=AQUI if residual else BLANCO)
        suma.set(edgecolor=TINTA, linewidth=2.4 if residual else 1.3, zorder=3)
        ejes.add_patch(suma)
        mas = {"ha": "center", "va": "center", "color": TINTA, "zorder": 4}
        ejes.text(trabajo, corriente - 0.005, "+", fontsize=14, **mas)
        apunte(ejes, trabajo, corriente - 0.32, "se suma a lo que había")


def camino(aqui: str | None = None) -> None:
    """Dibujar el camino de la «h» de «la Manch», hasta la «a» que el modelo elige."""
    ejes = lienzo(2.75 if aqui else 2.25, CAMINO, aqui)
    centros = dict(zip(CAMINO, (0.55, 1.6, 2.65, 3.6, 4.6, 5.78, 6.95)))
    titulos = {"letra elegida": "letra\nelegida"}
    formas = ("T letras", "(T,)", "(T, C)", "(T, C)", "(T, V)", "(T, V)", "1 letra")
    medio, alto = 1.2, 1.0
    anchos = (0.8, 0.7, 0.8, 0.7, 0.9, 1.05, 0.7)
    for parte, forma, ancho in zip(CAMINO, formas, anchos):
        x = centros[parte]
        ejes.add_patch(rectangulo(x, medio, ancho, alto, aqui == parte))
        titulo = titulos.get(parte, parte)
        apunte(ejes, x, medio + alto / 2 + 0.09, titulo, va="bottom", color=TINTA, weight="bold")
        apunte(ejes, x, 0.5, forma, family="monospace", color=TINTA)
        if aqui == parte:
            estas_aqui(ejes, x, medio + alto / 2 + 0.3 + 0.15 * titulo.count("\n"))
    derechas = [centros[parte] + ancho / 2 for parte, ancho in zip(CAMINO, anchos)]
    izquierdas = [centros[parte] - ancho / 2 for parte, ancho in zip(CAMINO, anchos)]
    for desde, hasta in zip(derechas, izquierdas[1:]):
        flecha(ejes, (desde, medio), (hasta, medio))
    apunte(ejes, ANCHO / 2, 0.2, "lo mismo, a la vez, para todas las letras de «la Manch»: T = 8")
    pintar_camino(ejes, centros, medio)


IDENTIFICADOR = 54
LETRAS, LOGITS, PROBABILIDADES = ("a", "e", "u"), (9.3, 2.6, 2.0), (0.996, 0.001, 0.001)
"""De la «h», y de las tres letras que el sancho de la caja cree más probables tras «la Manch»."""


def pintar_camino(ejes: Axes, centros: dict[str, float], medio: float) -> None:
    """Pintar lo que hay dentro de cada caja del camino."""
    dentro = {"ha": "center", "va": "center", "zorder": 4}
    ejes.text(centros["letra"], medio + 0.1, "h", fontsize=22, style="italic", **dentro)
    ejes.text(centros["letra"], medio - 0.32, "la Manch", fontsize=9, style="italic", **dentro)
    ejes.text(centros["identificador"], medio, str(IDENTIFICADOR), fontsize=16, **dentro)
    alturas = 0.34 * np.sin(np.arange(1, 10) ** 2.0)
    x = centros["vector"] + 0.075 * np.arange(-4, 5)
    ejes.bar(x, alturas, 0.05, bottom=medio, color=TINTA, zorder=4)
    for i in (-1, 0, 1):
        ejes.add_patch(
            Rectangle(
                (centros["bloques"] - 0.25, medio + 0.26 * i - 0.1),
                0.5,
                0.2,
                facecolor="#d9d6cb",
                edgecolor=TINTA,
                zorder=4,
            )
        )
    for parte, numeros, escala, cifras in (
        ("logits", LOGITS, 0.3 / LOGITS[0], "{:.1f}".format),
        ("probabilidades", PROBABILIDADES, 0.34, lambda p: f"{100 * p:.1f}\u202f%"),
    ):
        for i, (letra, numero) in enumerate(zip(LETRAS, numeros)):
            y = medio + 0.28 - 0.22 * i
            izquierda = centros[parte] - (0.36 if parte == "logits" else 0.45)
            ejes.text(izquierda, y, letra, fontsize=9, style="italic", **dentro | {"ha": "left"})
            ejes.barh(y, escala * numero, 0.12, left=izquierda + 0.13, color=TINTA, zorder=4)
            donde = izquierda + 0.16 + escala * numero
            ejes.text(donde, y, cifras(numero), fontsize=9, **dentro | {"ha": "left"})
        apunte(ejes, centros[parte], medio - 0.4, "…", zorder=4)
    ejes.text(centros["letra elegida"], medio, "a", fontsize=22, style="italic", **dentro)


def bucle(aqui: str | None = None) -> None:
    """Dibujar el bucle del entrenamiento."""
    ejes = lienzo(3.7 if aqui in ("lote", "modelo", "perdida") else 3.25, BUCLE, aqui)
    lados = (1.75, 0.98)
    izquierda, centro, derecha = 0.95, 3.7, 6.5
    arriba, abajo = 2.65, 0.6
    cajas = {
        "lote": (izquierda, arriba, "lote", "B trozos\ndel libro", "(B, T)"),
        "modelo": (centro, arriba, "modelo", "adivina cada\nletra siguiente", "(B, T, V)"),
        "perdida": (derecha, arriba, "pérdida", "cuánto se\nequivoca", "1 número"),
        "gradiente": (
            derecha,
            abajo,
            "gradiente",
            "hacia dónde sube\nla pérdida",
            "1 por parámetro",
        ),
        "optimizador": (centro, abajo, "optimizador", "mueve un poco\ncada parámetro", ""),
        "validacion": (
            izquierda,
            abajo,
            "validación",
            "la pérdida en texto\nque no ha visto",
            "1 número",
        ),
    }
    for parte, (x, y, *textos) in cajas.items():
        cartel = -0.48 if parte in ("gradiente", "optimizador") else 0
        caja(ejes, (x, y), lados, *textos, aqui=aqui == parte, cartel=cartel)
    w, h = lados[0] / 2, lados[1] / 2
    flecha(ejes, (izquierda + w, arriba), (centro - w, arriba))
    flecha(ejes, (centro + w, arriba), (derecha - w, arriba))
    flecha(ejes, (derecha, arriba - h), (derecha, abajo + h))
    flecha(ejes, (derecha - w, abajo), (centro + w, abajo))
    flecha(ejes, (centro, abajo + h), (centro, arriba - h))
    apunte(ejes, centro + 0.08, 1.63, "parámetros\nnuevos", ha="left")
    apunte(ejes, (centro + derecha) / 2 + 0.3, 1.72, "y vuelta,\ncon otro lote")
    codo = [(centro - w + 0.2, arriba - h), (centro - w + 0.2, 1.64), (izquierda + 0.6, 1.64)]
    flecha(ejes, *codo, (izquierda + 0.6, abajo + h), linestyle="--")
    apunte(ejes, (izquierda + centro) / 2 - 0.05, 1.77, "de vez en cuando")
