"""El aspecto de las figuras del curso.

Colores que también se distinguen en gris y sin ver los colores (Okabe e Ito 2008), con un trazo
distinto para cada línea, sobre un fondo de papel que se lee igual de día que de noche.
"""

import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

COLORES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
TRAZOS = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)))
MAPA = "cividis"
"""Mapa de colores para cantidades: de oscuro (poco) a claro (mucho)."""
MAPA_CON_SIGNO = "PuOr"
"""Para cantidades con signo: naranja lo negativo, violeta lo positivo, claro el cero."""


def usar() -> None:
    """Dar a las figuras que siguen el aspecto del curso."""
    papel, tinta = "#fbfaf5", "#22221f"
    plt.rcParams.update(
        {
            "figure.figsize": (7.5, 4),
            "figure.dpi": 100,
            "figure.facecolor": papel,
            "savefig.facecolor": papel,
            "figure.constrained_layout.use": True,
            "axes.facecolor": papel,
            "axes.edgecolor": tinta,
            "axes.labelcolor": tinta,
            "axes.titlelocation": "left",
            "axes.titleweight": "bold",
            "axes.titlesize": "medium",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.prop_cycle": cycler(color=COLORES) + cycler(linestyle=TRAZOS),
            "grid.color": "#d9d6cb",
            "grid.linewidth": 0.6,
            "lines.linewidth": 1.8,
            "text.color": tinta,
            "xtick.color": tinta,
            "ytick.color": tinta,
            "legend.frameon": False,
            "image.cmap": MAPA,
        }
    )


def mapa_de_calor(
    ejes: Axes,
    datos: np.ndarray,
    filas: list[str] | None = None,
    columnas: list[str] | None = None,
    cifras: str = "",
    **opciones,
) -> AxesImage:
    """Dibujar una matriz (filas, columnas) con una casilla por número.

    `cifras` es el formato de los números dentro de las casillas, como ".2f"; vacío: sin números.
    Las demás opciones son las de `imshow`.
    """
    imagen = ejes.imshow(datos, **{"aspect": "auto"} | opciones)
    ejes.grid(False)
    if filas is not None:
        ejes.set_yticks(range(len(filas)), filas)
    if columnas is not None:
        ejes.set_xticks(range(len(columnas)), columnas)
    if cifras:
        for (i, j), numero in np.ndenumerate(np.asarray(datos)):
            rojo, verde, azul, _ = imagen.cmap(imagen.norm(numero))
            claro = 0.299 * rojo + 0.587 * verde + 0.114 * azul > 0.5
            texto = format(numero, cifras).replace("-", "−")
            ejes.text(j, i, texto, ha="center", va="center", color="black" if claro else "white")
    return imagen
