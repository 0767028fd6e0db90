"""Lo que falta en mi_gpt.py y lo que no da lo que debe, pieza por pieza.

    python notebooks/probar.py              todas las piezas, en unos segundos
    python notebooks/probar.py Bloque Gpt   solo esas
    python notebooks/probar.py Bloque --arreglo   y lo que va en la línea en que está el error

Cada pieza se comprueba con las demás que usa: las tuyas, o las de la solución si no pasan. De una
que no pasa se dice qué da y qué debería dar, y se busca en qué línea está el error.
Acaba con 1 si algo de lo escrito no pasa; lo que está en blanco no es un fallo.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "taller"))

from entorno import preparar

preparar("numpy", "torch")

import hoja
from comprobar.lista import PIEZAS, completa
from decir.frases import detenido
from decir.mensaje import Donde, en_lineas
from veredicto import de_una_pieza


def probar(titulos: list[str], texto: str, con_arreglo: bool = False) -> tuple[int, int]:
    """Decir de cada pieza si pasa; dar cuántas pasan y cuántas no, sin las que están en blanco."""
    pasan, fallan, fallidas = 0, 0, set()
    for numero, pieza in enumerate(PIEZAS, 1):
        if pieza.titulo not in titulos:
            continue
        principio = f"{numero:2}. {pieza.titulo:20} capítulo {pieza.capitulo:<3}"
        if pieza.nombre in fallidas:
            print(f"✗ {principio} lo mismo que antes")
            fallan += 1
            continue
        veredicto = de_una_pieza(pieza.titulo, texto)
        if veredicto.pasa:
            pasan += 1
            print(f"✓ {principio} {con_la_solucion(pieza.titulo, texto)}".rstrip())
        elif veredicto.en_blanco:
            print(f"· {principio} {veredicto.en_blanco}")
        else:
            fallan += 1
            fallidas.add(pieza.nombre)
            print(f"✗ {principio}".rstrip())
            for linea in en_lineas(veredicto.mensaje(avisar), veredicto.donde, con_arreglo):
                print(f"      {linea}")
    return pasan, fallan


def avisar() -> None:
    """Decir que se busca, que lleva unos segundos; en una terminal, donde alguien espera."""
    if sys.stdout.isatty():
        print("      busco la línea…", flush=True)


def con_la_solucion(titulo: str, texto: str) -> str:
    """Decir qué piezas de la solución usa una que pasa, porque las de la hoja no pasan."""
    _, prestadas = completa(titulo, texto)
    return f"con la solución de {', '.join(prestadas)}" if prestadas else ""


def elegidas(pedidas: list[str]) -> list[str]:
    """Dar los títulos de las piezas que se piden, en mayúsculas o no; sin nada, todas."""
    nombres = {cual.lower(): p.nombre for p in PIEZAS for cual in (p.nombre, p.titulo)}
    for pedida in pedidas:
        if pedida.lower() not in nombres:
            sys.exit(
                f"{pedida!r} no es una pieza; son {', '.join(dict.fromkeys(nombres.values()))}"
            )
    suyos = {nombres[pedida.lower()] for pedida in pedidas} or set(nombres.values())
    return [pieza.titulo for pieza in PIEZAS if pieza.nombre in suyos]


def leer_la_hoja() -> str:
    """Dar lo escrito en mi_gpt.py; si no es posible, o falla lo dado, salir con una línea que lo dice."""
    try:
        texto = hoja.de_la_hoja()
    except OSError:
        sys.exit(f"No está la hoja, {hoja.HOJA}")
    except UnicodeDecodeError:
        sys.exit(f"{hoja.HOJA.name} no está en UTF-8: guárdalo así en tu editor.")
    nombres = {pieza.nombre for pieza in PIEZAS}
    for nombre, mal in hoja.sanar(texto)[1].items():
        if nombre not in nombres:  # lo de una pieza lo dice su comprobación
            que = detenido(mal.error, Donde("")).que
            sys.exit(f"{hoja.HOJA.name} {que}; {Donde(texto)(mal.linea)}")
    return texto


def probar_todas() -> None:
    """Probar todas las piezas desde un cuaderno; si la hoja no se puede leer, una línea lo dice."""
    try:
        texto = leer_la_hoja()
    except SystemExit as error:
        print(error)
        return
    pasan, fallan = probar([pieza.titulo for pieza in PIEZAS], texto)
    print(f"{pasan} pasan, {fallan} no, y {len(PIEZAS) - pasan - fallan} están en blanco")


def main(*argumentos: str) -> int:
    if {"-h", "--help"} & set(argumentos):
        print(__doc__.strip())
        return 0
    con_arreglo = "--arreglo" in argumentos
    titulos = elegidas([argumento for argumento in argumentos if argumento != "--arreglo"])
    pasan, fallan = probar(titulos, leer_la_hoja(), con_arreglo)
    en_blanco = len(titulos) - pasan - fallan
    print(f"Pasan {pasan} de {len(titulos)}; no pasan {fallan}; en blanco, {en_blanco}.")
    if fallan and not con_arreglo:
        print("Lo que va en la línea lo dice --arreglo, detrás del nombre de la pieza.")
    return 1 if fallan else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # una terminal puede no tener ✓
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("Parado.")
