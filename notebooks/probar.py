"""Lo que falta en mi_gpt.py y lo que no da lo que debe, pieza por pieza.

    python notebooks/probar.py              todas las piezas, en unos segundos
    python notebooks/probar.py Bloque       una
    python notebooks/probar.py --largo      además entrena tu programa con el libro: un minuto o dos

Acaba con 1 si algo de lo escrito no pasa; lo que está en blanco no es un fallo.
"""

import sys

import hoja
from comprobaciones import EN_BLANCO, PIEZAS, motivo


def probar(titulos: list[str], texto: str) -> tuple[int, int]:
    """Decir de cada pieza si pasa; dar cuántas pasan y cuántas no, sin las que están en blanco."""
    pasan = fallan = 0
    for numero, pieza in enumerate(PIEZAS, 1):
        if pieza.titulo not in titulos:
            continue
        por_que = motivo(pieza.titulo, texto)
        signo = "·" if por_que == EN_BLANCO else "✗" if por_que else "✓"
        print(
            f"{signo} {numero:2}. {pieza.titulo:24} capítulo {pieza.capitulo:<3} {por_que}".rstrip()
        )
        pasan += not por_que
        fallan += signo == "✗"
    return pasan, fallan


def elegidas(pedido: str) -> list[str]:
    """Dar los títulos de las piezas que se piden; sin nada, todas."""
    titulos = [pieza.titulo for pieza in PIEZAS if pedido in ("", pieza.nombre)]
    if not titulos:
        nombres = dict.fromkeys(pieza.nombre for pieza in PIEZAS)
        sys.exit(f"{pedido!r} no es una pieza; son {', '.join(nombres)}")
    return titulos


def entrenar_con_el_libro(texto: str) -> bool:
    """Entrenar el programa como el último peldaño, decir dónde acaba y si es donde debe."""
    import numpy as np
    import torch

    sys.path.append(str(hoja.AQUI.parent))  # donde está la biblioteca, si no está instalada
    import escalera
    from sancho.config import CorpusConfig
    from sancho.corpus import open_corpus

    corpus = open_corpus(hoja.AQUI.parent / "data", CorpusConfig())
    mio = hoja.cargar(texto)
    torch.manual_seed(escalera.SEMILLA)
    medidas = {"n_embd": escalera.ANCHO, "n_layer": escalera.BLOQUES, "n_head": escalera.CABEZAS}
    forma = mio.Forma(corpus.tokenizer.vocab_size, escalera.VENTANA, **medidas)
    modelo = mio.Gpt(forma)
    ids = torch.from_numpy(np.asarray(corpus.train, dtype=np.int64))
    ajustes = {"pasos": escalera.PASOS, "lote": escalera.LOTE, "ventana": escalera.VENTANA}
    mio.entrenar(modelo, ids, **ajustes, tasa=escalera.RITMO)
    medida, debida = escalera.perdida(modelo, corpus), escalera.guardada("más bloques", corpus)
    letras = mio.Tokenizador(corpus.tokenizer.characters)
    print(f"Entrenado: {medida:.2f} nats por letra (el último peldaño del 6, {debida:.2f}).")
    print("En un lugar" + mio.generar(modelo, letras, "En un lugar", 150, temperatura=0.7))
    return medida < debida + 0.08


def main(*argumentos: str) -> int:
    if {"-h", "--help"} & set(argumentos):
        print(__doc__.strip())
        return 0
    pedido = "".join(a for a in argumentos if a != "--largo")
    titulos = elegidas(pedido)
    texto = hoja.HOJA.read_text(encoding="utf-8")
    pasan, fallan = probar(titulos, texto)
    print(f"{pasan} de {len(titulos)}", end="")
    en_blanco = len(titulos) - pasan - fallan
    print(f"; en blanco, {en_blanco}" if en_blanco else "")
    bien = not fallan
    if "--largo" in argumentos:
        if pasan < len(titulos):
            print("Para entrenarlo han de pasar todas.")
        else:
            bien = entrenar_con_el_libro(texto)
    return 0 if bien else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
