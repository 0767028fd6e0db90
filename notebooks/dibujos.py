"""Los cuatro dibujos del curso: el modelo, el bloque, el camino de una letra y el bucle.

Cada función dibuja una figura; con `aqui="…"` marca una parte: «estás aquí».
"""

import estilo
from matplotlib import pyplot as plt

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


def cajas(partes: tuple[str, ...], aqui: str | None) -> None:
    if aqui is not None and aqui not in partes:
        raise ValueError(f"aqui={aqui!r} no es una parte del dibujo; son {', '.join(partes)}")
    with plt.rc_context():
        estilo.usar()
        _, ejes = plt.subplots(figsize=(7.5, 0.5 * len(partes)))
        ejes.set_axis_off()
        for i, parte in enumerate(partes):
            color = "#F0C04D" if parte == aqui else "#ffffff"
            texto = parte + ("   ← estás aquí" if parte == aqui else "")
            ejes.text(0.5, -i, texto, ha="center", bbox={"facecolor": color}, fontsize=10)
        ejes.set(xlim=(0, 1), ylim=(-len(partes), 1))


def modelo(aqui: str | None = None) -> None:
    cajas(MODELO, aqui)


def bloque(aqui: str | None = None) -> None:
    cajas(BLOQUE, aqui)


def camino(aqui: str | None = None) -> None:
    cajas(CAMINO, aqui)


def bucle(aqui: str | None = None) -> None:
    cajas(BUCLE, aqui)
