"""Lo que falta en mi_gpt.py y lo que no da lo que debe, pieza por pieza.

    python notebooks/probar.py              todas las piezas, en unos segundos
    python notebooks/probar.py Bloque Gpt   solo esas
    python notebooks/probar.py --largo      además entrena tu programa con el libro, desde el capítulo 9

Cada pieza se comprueba con las demás que usa: las tuyas, o las de la solución si no pasan. De una
que no pasa se busca, veinte segundos como mucho, en qué línea está el error.
Acaba con 1 si algo de lo escrito no pasa; lo que está en blanco no es un fallo.
"""

import sys
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "taller"))

from entorno import preparar

preparar("numpy", "torch")

import hoja
from comprobaciones import PIEZAS, Donde, completa, en_espanol, motivo, sin_empezar

PROYECTO = Path(__file__).resolve().parent.parent


def probar(titulos: list[str], texto: str) -> tuple[int, int]:
    """Decir de cada pieza si pasa; dar cuántas pasan y cuántas no, sin las que están en blanco."""
    pasan = fallan = 0
    for numero, pieza in enumerate(PIEZAS, 1):
        if pieza.titulo not in titulos:
            continue
        por_que = motivo(pieza.titulo, texto)
        signo = "·" if sin_empezar(por_que) else "✗" if por_que else "✓"
        nota = por_que if signo == "·" else "" if por_que else con_la_solucion(pieza.titulo, texto)
        linea = f"{signo} {numero:2}. {pieza.titulo:20} capítulo {pieza.capitulo:<3} {nota}"
        print(linea.rstrip())
        if signo == "✗":
            print(f"      {por_que}")
        pasan += signo == "✓"
        fallan += signo == "✗"
    return pasan, fallan


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
            donde = Donde(texto)(mal.linea)
            sys.exit(f"{hoja.HOJA.name} {en_espanol(mal.error, Donde(''))}{donde}")
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


def entrenar_con_el_libro(texto: str) -> bool:
    """Entrenar el programa como el último peldaño, decir dónde acaba y si es donde debe."""
    import numpy as np
    import torch

    sys.path.append(str(PROYECTO))  # donde está la biblioteca, si no está instalada
    import escalera
    from sancho.text.sources import corpus_of

    corpus = corpus_of("quijote")
    mio = hoja.cargar(texto)
    torch.manual_seed(escalera.SEMILLA)
    medidas = {"n_embd": escalera.ANCHO, "n_layer": escalera.BLOQUES, "n_head": escalera.CABEZAS}
    forma = mio.Forma(corpus.tokenizer.vocab_size, escalera.VENTANA, **medidas)
    modelo = mio.Gpt(forma)
    ids = torch.from_numpy(np.asarray(corpus.train, dtype=np.int64))
    ajustes = {"pasos": escalera.PASOS, "lote": escalera.LOTE, "ventana": escalera.VENTANA}
    lecturas = count(1)

    def decir(*_: object) -> None:
        if (paso := next(lecturas)) % 100 == 0:
            print(f"paso {paso} de {escalera.PASOS}", flush=True)

    aviso = modelo.register_forward_pre_hook(decir)
    mio.entrenar(modelo, ids, **ajustes, tasa=escalera.mejor_tasa("más bloques", corpus))
    aviso.remove()
    medida, debida = escalera.perdida(modelo, corpus), escalera.guardada("más bloques", corpus)
    letras = mio.Tokenizador(corpus.tokenizer.characters)
    print(f"Entrenado: {medida:.2f} nats por letra (el último peldaño del 6, {debida:.2f}).")
    print("En un lugar" + mio.generar(modelo, letras, "En un lugar", 150, temperatura=0.7))
    return medida < debida + 0.08


def main(*argumentos: str) -> int:
    if {"-h", "--help"} & set(argumentos):
        print(__doc__.strip())
        return 0
    largo = "--largo" in argumentos
    pedidas = [argumento for argumento in argumentos if argumento != "--largo"]
    if largo and pedidas:
        sys.exit("--largo entrena el programa entero: va sin nombres de piezas")
    titulos = elegidas(pedidas)
    texto = leer_la_hoja()
    pasan, fallan = probar(titulos, texto)
    en_blanco = len(titulos) - pasan - fallan
    print(f"Pasan {pasan} de {len(titulos)}; no pasan {fallan}; en blanco, {en_blanco}.")
    hacen_falta = [] if pedidas else [una.titulo for una in PIEZAS if una.capitulo <= 9]
    faltan = [titulo for titulo in hacen_falta if motivo(titulo, texto)]
    if largo and faltan:
        print(f"Para entrenarlo han de pasar antes: {', '.join(faltan)}.")
    elif largo:
        fallan += not entrenar_con_el_libro(texto)
    elif pasan == len(PIEZAS):
        print("Tu programa está entero: python notebooks/probar.py --largo lo entrena.")
    elif not pedidas and not faltan:
        print("Ya se puede entrenar: python notebooks/probar.py --largo.")
    return 1 if fallan else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # una terminal puede no tener ✓
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("Parado.")
