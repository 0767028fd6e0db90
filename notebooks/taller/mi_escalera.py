"""Tu escalera: el modelo que se hace con las piezas de mi_gpt.py, y lo que escribe en cada capítulo.

Hay un peldaño por capítulo, del 1 al 9; el 3 y el 3½ comparten el suyo. Son los de escalera.py, con
tus piezas; desde el 7, tuyas son también la pérdida, el bucle y el sorteo. Lo que falta lo presta el
taller: es lo de la solución. Al lado de la hoja quedan el último modelo entrenado y una fila por
peldaño, en mi_escalera.json.
"""

import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

import escalera
import hoja
from comprobar.lista import PIEZAS, completa, pasa, prestar
from sancho.checkpoint import pretrained
from sancho.config import SampleConfig
from sancho.generate import stream_texts
from sancho.text.clean import clean_text
from sancho.text.corpus import Corpus
from sancho.text.sources import PROJECT, corpus_of

PELDANOS = {
    1: "pares",
    2: "posiciones",
    3: "atención",
    4: "feed-forward",
    5: "residual y normalización",
    6: "más bloques",
    7: "la pérdida",
    8: "el bucle",
    9: "el sorteo",
}
"""Por capítulos; hasta el 6, con los nombres de escalera.json."""
SUYAS = [pieza for pieza in PIEZAS if pieza.peldano in PELDANOS]
NUMEROS = {peldano: str(peldano) for peldano in PELDANOS} | {
    pieza.peldano: pieza.capitulo for pieza in SUYAS
}
"""El número del capítulo que acaba en cada peldaño."""
COMIENZO = "En un lugar de la Mancha"
LETRAS, MAS_LETRAS = 200, 300
"""Las que se escriben al entrenar, siempre con la misma semilla, y con la orden de escribir."""
TEMPERATURA = 0.7
CALLADO = 8
"""Los segundos que pasan como mucho sin decir cómo va un entrenamiento."""
CAJA = PROJECT / "sancho/pretrained/sancho.safetensors"
USO = """\
python notebooks/mi_gpt.py entrenar [TEXTO]
    entrena el peldaño al que llegan tus piezas, en un minuto, y escribe 200 letras; con el Quijote
    o, si lo das, con un archivo de texto tuyo
python notebooks/mi_gpt.py escribir [COMIENZO [TEMPERATURA]]
    escribe con lo último que entrenaste; si no hay nada, con la caja. Con temperatura 0, siempre lo
    mismo
python notebooks/mi_gpt.py escalera
    tus peldaños, y lo que escriben los dos últimos"""


def modelo_guardado() -> Path:
    """Dar el archivo del último modelo entrenado, al lado de la hoja."""
    return hoja.HOJA.with_name("mi_gpt.safetensors")


def filas_guardadas() -> Path:
    """Dar el archivo de las filas, al lado de la hoja."""
    return hoja.HOJA.with_name("mi_escalera.json")


# --- las piezas -------------------------------------------------------------------------------


def peldano_tuyo(texto: str) -> int:
    """Dar hasta qué capítulo pasan todas las piezas de una hoja; 1, si no pasa ninguna."""
    faltan = (pieza.peldano for pieza in SUYAS if not pasa(pieza.titulo, texto))
    return max(1, next(faltan, 10) - 1)


def montar(texto: str, capitulo: int) -> tuple[str, list[str]]:
    """Dar la hoja con lo del taller donde falta algo tuyo, y los nombres de lo tuyo.

    Tuyas son las piezas que pasan, hasta las de ese capítulo.
    """
    tuyas = [p.nombre for p in SUYAS if p.peldano <= capitulo and pasa(p.titulo, texto)]
    entera, _ = hoja.sanar(texto)
    solucion = hoja.SOLUCION.read_text(encoding="utf-8")
    try:
        for pieza in SUYAS:
            if pieza.nombre not in tuyas:
                entera = prestar(entera, pieza.nombre, solucion)
    except hoja.SinSitio:  # a una hoja sin las líneas de sus piezas no se le puede prestar nada
        return solucion, []
    return entera, tuyas


def del_taller(capitulo: int, tuyas: list[str]) -> list[str]:
    """Dar lo que presta el taller a un peldaño: lo que usa y no es tuyo."""
    del_modelo = 6 if capitulo == 5 else capitulo  # en el 5, tu normalización va en un bloque
    usa = [p.nombre for p in SUYAS if p.peldano <= del_modelo or p.peldano >= 7]
    prestado = [nombre for nombre in usa if nombre not in tuyas]
    if capitulo < 5:
        prestado.insert(0, "la tabla de pares" if capitulo == 1 else "la cabeza de salida")
    return prestado


def lo_que_falta(texto: str, capitulo: int) -> str:
    """Decir qué falta, o no pasa, hasta un capítulo; vacío, si nada."""
    escrito = hoja.trozos(texto)
    malas = [p for p in SUYAS if p.peldano <= capitulo and not pasa(p.titulo, texto)]
    faltan = [p.nombre for p in malas if hoja.tiene_hueco(escrito.get(p.nombre, ""))]
    fallan = [pieza.nombre for pieza in malas if pieza.nombre not in faltan]
    dicho = [f"en blanco: {', '.join(faltan)}"] if faltan else []
    dicho += [f"no pasan su comprobación: {', '.join(fallan)}"] if fallan else []
    return "; ".join(dicho)


# --- los modelos ------------------------------------------------------------------------------


class ConPiezas(nn.Module):
    """Los peldaños 2, 3 y 4: tu entrada, lo que se va poniendo detrás, y una cabeza de salida."""

    def __init__(self, mio: ModuleType, forma: Any, capitulo: int) -> None:
        super().__init__()
        self.entrada = mio.Entrada(forma)
        self.cabeza = nn.Linear(forma.n_embd, forma.vocab_size)
        detras = [mio.Atencion(replace(forma, bias=False))] if capitulo >= 3 else []
        detras += [mio.FeedForward(forma)] if capitulo >= 4 else []
        self.detras = nn.Sequential(*detras)

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, V)
        return self.cabeza(self.detras(self.entrada(ids)))


def medidas(mio: ModuleType, capitulo: int, V: int) -> Any:
    """Dar la forma de un peldaño."""
    bloques = 1 if capitulo == 5 else escalera.BLOQUES
    return mio.Forma(V, escalera.VENTANA, escalera.ANCHO, bloques, escalera.CABEZAS)


def crear(mio: ModuleType, capitulo: int, V: int) -> nn.Module:
    """El modelo de un peldaño, sin entrenar: nace siempre igual."""
    forma = medidas(mio, capitulo, V)
    torch.manual_seed(escalera.SEMILLA)
    if capitulo == 1:
        return escalera.Pares(V)
    return ConPiezas(mio, forma, capitulo) if capitulo < 5 else mio.Gpt(forma)


def con_tus_numeros(corpus: Corpus, mio: ModuleType) -> Corpus:
    """Dar el texto con los números de tu Tokenizador."""
    ids = mio.Tokenizador(corpus.tokenizer.characters).codificar(corpus.text).numpy()
    corte = len(corpus.train)
    return replace(corpus, train=ids[:corte], val=ids[corte:])


def entrenar(mio: ModuleType, capitulo: int, corpus: Corpus) -> tuple[nn.Module, float]:
    """Entrenar un peldaño como la escalera; dar el modelo y su pérdida en validación, en nats."""
    corpus = con_tus_numeros(corpus, mio)
    modelo = crear(mio, capitulo, corpus.tokenizer.vocab_size)
    tasa = escalera.mejor_tasa(PELDANOS[min(capitulo, 6)])
    with a_la_vista(modelo):
        if capitulo < 7:
            return modelo.eval(), escalera.entrenar(modelo, corpus, tasa)
        ids = torch.from_numpy(np.asarray(corpus.train, dtype=np.int64))
        mio.entrenar(modelo, ids, escalera.PASOS, escalera.LOTE, escalera.VENTANA, tasa)
    return modelo.eval(), escalera.perdida(modelo, corpus)


@contextmanager
def a_la_vista(modelo: nn.Module) -> Iterator[None]:
    """Decir cómo va un entrenamiento cada pocos segundos, y cuando acaba."""
    pasos = count(1)
    ultima = time.monotonic()

    def ver(_: nn.Module, leido: tuple[Tensor], logits: Tensor) -> None:
        nonlocal ultima
        if not torch.is_grad_enabled():  # se mide, o se escribe
            return
        paso = next(pasos)
        if paso < escalera.PASOS and time.monotonic() - ultima < CALLADO:
            return
        ultima = time.monotonic()
        # Cada letra que se lee es la que seguía a la anterior: basta para saber cómo va.
        valor = F.cross_entropy(logits.detach()[:, :-1].flatten(0, 1), leido[0][:, 1:].flatten())
        print(f"paso {paso} de {escalera.PASOS}: {valor:.2f} nats por letra", flush=True)

    aviso = modelo.register_forward_hook(ver)
    try:
        yield
    finally:
        aviso.remove()


# --- lo que se guarda -------------------------------------------------------------------------


def escribir_archivo(ruta: Path, contenido: bytes) -> None:
    """Cambiar un archivo entero, o nada."""
    aparte = ruta.with_name(f"{ruta.name}.{os.getpid()}.tmp")
    aparte.write_bytes(contenido)
    aparte.replace(ruta)


def filas() -> dict[int, dict[str, Any]]:
    """Dar las filas de tu escalera, por su capítulo. ValueError, si el archivo está dañado."""
    ruta = filas_guardadas()
    if not ruta.is_file():
        return {}
    try:
        return {int(numero): fila for numero, fila in json.loads(ruta.read_text("utf-8")).items()}
    except (ValueError, AttributeError):
        raise ValueError(f"{ruta.name} está dañado: bórralo, y empieza otra") from None


def anotar(capitulo: int, fila: dict[str, Any]) -> None:
    """Poner una fila en tu escalera, y decir si cambia la que había."""
    todas = filas()
    if capitulo in todas:
        print(
            f"Cambia la fila del capítulo {NUMEROS[capitulo]}: antes, {todas[capitulo]['pérdida']:.2f}."
        )
    todas[capitulo] = fila
    escrito = json.dumps(dict(sorted(todas.items())), ensure_ascii=False, indent=1)
    escribir_archivo(filas_guardadas(), f"{escrito}\n".encode())


def guardar(
    modelo: nn.Module, capitulo: int, perdida: float, comienzo: str, letras: str, cual: str
) -> None:
    """Guardar un modelo entrenado; uno que es un Gpt lo abre también abrir_caja."""
    tensores = {f"model.{nombre}": p.detach() for nombre, p in modelo.named_parameters()}
    contenido = {
        "model": asdict(modelo.forma),
        "characters": letras,
        "capítulo": capitulo,
        "pérdida": perdida,
        "comienzo": comienzo,
        "huella": cual,
    }
    metadata = {"content": json.dumps(contenido, ensure_ascii=False)}
    escribir_archivo(modelo_guardado(), save(tensores, metadata))


def abrir() -> tuple[ModuleType, nn.Module, Any, dict[str, Any]]:
    """Abrir el último modelo: tu programa, el modelo, su tokenizador y lo que se guardó con él.

    El modelo se vuelve a hacer con las piezas que la hoja tiene hoy.
    """
    ruta = modelo_guardado()
    mio = hoja.cargar(montar(hoja.de_la_hoja(), 9)[0])
    try:
        with safe_open(ruta, "pt") as archivo, torch.random.fork_rng(devices=[]):
            contenido = json.loads(archivo.metadata()["content"])
            letras = contenido["characters"]
            modelo = crear(mio, contenido["capítulo"], len(letras))
            with torch.no_grad():
                for nombre, p in modelo.named_parameters():
                    p.copy_(archivo.get_tensor(f"model.{nombre}"))
            modelo.forma = medidas(mio, contenido["capítulo"], len(letras))  # la mira generar
    except (SafetensorError, KeyError, TypeError, RuntimeError, json.JSONDecodeError) as error:
        cual = type(error).__name__
        raise ValueError(
            f"{ruta.name} está dañado, o no es de este programa con las piezas de hoy ({cual}): "
            "entrena otra vez"
        ) from None
    return mio, modelo.eval(), mio.Tokenizador(letras), contenido


def huella(entera: str, capitulo: int, corpus: Corpus) -> str:
    """Dar lo que distingue un modelo entrenado de otro: el texto, el modelo y las piezas que lo hacen."""
    piezas = [hoja.leer(entera, pieza.nombre) for pieza in SUYAS if pieza.peldano < 9]
    que = [str(min(capitulo, 7)), corpus.sha256, str(escalera.PASOS), *piezas]
    return hashlib.sha256("\n".join(que).encode()).hexdigest()


def ya_entrenado(cual: str) -> tuple[nn.Module, float] | None:
    """Dar el último modelo y su pérdida, si es el de esa huella."""
    try:
        _, modelo, _, contenido = abrir()
    except (OSError, ValueError):
        return None
    return (modelo, contenido["pérdida"]) if contenido.get("huella") == cual else None


# --- un peldaño entero ------------------------------------------------------------------------


def subir(
    texto: str,
    capitulo: int,
    corpus: Corpus,
    hecho: tuple[nn.Module, float] | None = None,
    repetir: bool = True,
) -> None:
    """Entrenar un peldaño, guardarlo, escribir con él y anotar su fila.

    hecho: el modelo y su pérdida, si ya se ha entrenado. Sin `repetir`, lo es también el último que
    se guardó, si lo hicieron las mismas piezas con el mismo texto.
    """
    filas()  # si el archivo está dañado, se sabe antes de entrenar
    entera, tuyas = montar(texto, capitulo)
    mio = hoja.cargar(entera)
    prestado = del_taller(capitulo, tuyas)
    print(f"Peldaño del capítulo {NUMEROS[capitulo]}, {PELDANOS[capitulo]}, con {corpus.name}.")
    print(f"Tuyo: {', '.join(tuyas) or 'nada todavía'}.")
    print(f"Del taller: {', '.join(prestado) or 'nada'}.", flush=True)
    cual = huella(entera, capitulo, corpus)
    with torch.random.fork_rng(devices=[]):
        if hecho is None and not repetir:
            hecho = ya_entrenado(cual)
        if hecho is not None:
            print("Es el último que se ha entrenado: no hace falta repetirlo.")
        modelo, perdida = hecho or entrenar(mio, capitulo, corpus)
    print(f"{perdida:.2f} nats por letra en lo que no ha leído.")
    letras = corpus.tokenizer.characters
    modelo.forma = medidas(mio, capitulo, len(letras))  # la mira generar
    comienzo = el_comienzo(corpus)
    guardar(modelo, capitulo, perdida, comienzo, letras, cual)
    escrito = mio.generar(modelo, mio.Tokenizador(letras), comienzo, LETRAS, TEMPERATURA)
    fila = {
        "peldaño": PELDANOS[capitulo],
        "tuyo": tuyas,
        "del taller": prestado,
        "texto": corpus.name,
        "pérdida": round(perdida, 4),
        "escribe": comienzo + escrito,
    }
    anotar(capitulo, fila)


def el_comienzo(corpus: Corpus) -> str:
    """Dar siempre el mismo comienzo; si el texto no tiene sus letras, su primera línea."""
    if set(COMIENZO) <= set(corpus.tokenizer.characters):
        return COMIENZO
    return corpus.text.splitlines()[0][: escalera.VENTANA]


# --- lo que se ve -----------------------------------------------------------------------------


def tabla(todas: dict[int, dict[str, Any]]) -> None:
    """Escribir una fila por peldaño."""
    print(f"capítulo  {'peldaño':26}{'pérdida':>7}  {'texto':12}  del taller")
    for numero, fila in todas.items():
        prestado = ", ".join(fila["del taller"]) or "nada"
        nombre, texto = fila["peldaño"], fila["texto"]
        print(f"{NUMEROS[numero]:<8}  {nombre:26}{fila['pérdida']:7.2f}  {texto:12}  {prestado}")


def textos(todas: dict[int, dict[str, Any]]) -> None:
    """Escribir, uno debajo de otro, los textos de los dos últimos peldaños."""
    for numero, fila in list(todas.items())[-2:]:
        print(
            f"\n--- capítulo {NUMEROS[numero]}, {fila['peldaño']}, {fila['pérdida']:.2f} nats por letra"
        )
        print(fila["escribe"])


def capitulo(
    numero: int, corpus: Corpus, modelo: nn.Module | None = None, perdida: float = math.nan
) -> None:
    """Subir al peldaño de un capítulo, y ver la escalera hasta él.

    modelo y perdida: si el capítulo acaba de entrenar ese peldaño, los suyos.
    """
    try:
        texto = hoja.de_la_hoja()
    except (OSError, UnicodeDecodeError):  # de una hoja así, todo lo presta el taller
        texto = ""
    subir(texto, numero, corpus, (modelo, perdida) if modelo else None, repetir=False)
    hasta_aqui = {otro: fila for otro, fila in filas().items() if otro <= numero}
    textos(hasta_aqui)
    dibujar({n: fila for n, fila in hasta_aqui.items() if fila["texto"] == corpus.name})


def dibujar(todas: dict[int, dict[str, Any]]) -> None:
    """Dibujar la pérdida de cada peldaño."""
    import matplotlib.pyplot as plt  # la terminal no la necesita

    _, ejes = plt.subplots(figsize=(7.5, 2.6))
    perdidas = [fila["pérdida"] for fila in todas.values()]
    ejes.plot(list(todas), perdidas, marker="o")
    for numero, fila in todas.items():
        sitio = {"xytext": (0, 7), "textcoords": "offset points", "ha": "center"}
        ejes.annotate(f"{fila['pérdida']:.2f}", (numero, fila["pérdida"]), **sitio)
    ejes.set(title="Tu escalera", xlabel="capítulo", ylabel="nats por letra")
    ejes.set_xticks(list(NUMEROS), NUMEROS.values())
    ejes.set(xlim=(0.5, 9.5), ylim=(min(perdidas) - 0.1, max(perdidas) + 0.2))
    plt.show()


# --- el programa ------------------------------------------------------------------------------


def programa(la_hoja: Path, orden: str = "", *resto: str) -> None:
    """Hacer lo que se pide a mi_gpt.py en una terminal; `la_hoja` es el archivo que se ejecuta."""
    sys.stdout.reconfigure(errors="replace")  # una terminal puede no tener alguna letra
    hoja.HOJA = la_hoja.resolve()
    torch.set_num_threads(1)
    hacer = {"entrenar": orden_entrenar, "escribir": orden_escribir, "escalera": orden_escalera}
    if not orden:
        print(USO)
        return
    if orden not in hacer:
        sys.exit(f"{orden!r} no es una orden; son {', '.join(hacer)}")
    if len(resto) > (caben := {"entrenar": 1, "escribir": 2, "escalera": 0}[orden]):
        sys.exit(f"{orden} recibe {caben} cosas como mucho, y se le dan {len(resto)}: usa comillas")
    try:
        hacer[orden](*resto)
    except (OSError, ValueError, hoja.SinSitio) as error:
        sys.exit(f"No se puede: {error}")
    except KeyboardInterrupt:
        sys.exit("\nParado.")


def orden_entrenar(archivo: str = "") -> None:
    """Entrenar el peldaño al que llegan las piezas de la hoja."""
    corpus = de_un_archivo(archivo) if archivo else corpus_of("quijote")
    texto = hoja.de_la_hoja()
    numero = peldano_tuyo(texto)
    subir(texto, numero, corpus)
    print(f"\n{filas()[numero]['escribe']}")
    if falta := lo_que_falta(texto, min(numero + 1, 9)):
        print(f"\nPara seguir subiendo, {falta} (python notebooks/probar.py dice más).")


def de_un_archivo(archivo: str) -> Corpus:
    """Dar el texto de un archivo. ValueError, si no se puede leer o es corto."""
    if not Path(archivo).is_file():
        raise ValueError(f"no hay ningún archivo {archivo}")
    try:
        texto = clean_text(Path(archivo).read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError(f"{archivo} no está en UTF-8: guárdalo así en tu editor") from None
    if len(texto) < 1000:
        raise ValueError(f"el texto tiene {len(texto)} letras; hacen falta 1000 al menos")
    return Corpus.of(Path(archivo).name, [texto])


def orden_escribir(comienzo: str = "", temperatura: str = str(TEMPERATURA)) -> None:
    """Escribir, letra por letra, con el último modelo o, si no lo hay, con la caja."""
    tibia = grados(temperatura)
    texto = hoja.de_la_hoja()
    if modelo_guardado().is_file():
        mio, modelo, letras, contenido = abrir()
        numero = contenido["capítulo"]
        decir(f"Escribe tu peldaño del capítulo {NUMEROS[numero]}, {PELDANOS[numero]}.")
        a_mano(mio, modelo, letras, comienzo or contenido["comienzo"], tibia)
    elif pasa("abrir_caja", texto) and pasa("generar", texto):
        decir("Escribe la caja, con tu programa: todavía no has entrenado el tuyo.")
        mio = hoja.cargar(completa("abrir_caja", texto)[0])
        a_mano(mio, *mio.abrir_caja(CAJA), comienzo or COMIENZO, tibia)
    else:
        decir("Escribe la caja, con la biblioteca: todavía no has entrenado lo tuyo.")
        con_la_biblioteca(comienzo or COMIENZO, tibia)


def grados(temperatura: str) -> float:
    """Dar una temperatura. ValueError, si no es un número, o es negativo."""
    try:
        tibia = float(temperatura)
    except ValueError:
        tibia = math.nan
    if not tibia >= 0:
        raise ValueError(f"la temperatura es un número, 0 o mayor, y {temperatura!r} no lo es")
    return tibia


def decir(frase: str) -> None:
    """Decir algo que no es el texto que se escribe."""
    print(frase, file=sys.stderr, flush=True)


def a_mano(mio: ModuleType, modelo: nn.Module, letras: Any, comienzo: str, tibia: float) -> None:
    """Escribir con un generar que da el texto al final; cada letra se ve cuando el modelo la lee."""
    letras.codificar(comienzo)  # una letra que no conoce, antes de empezar
    print(comienzo, end="", flush=True)
    vistas = count()

    def ver(_: nn.Module, leido: tuple[Tensor]) -> None:
        if next(vistas):  # la primera vez, la última que lee es del comienzo
            print(letras.descodificar(leido[0][0, -1:]), end="", flush=True)

    modelo.register_forward_pre_hook(ver)
    escrito = mio.generar(modelo, letras, comienzo, MAS_LETRAS, tibia)
    print(escrito[next(vistas) - 1 :])


def con_la_biblioteca(comienzo: str, tibia: float) -> None:
    """Escribir con la caja, que con la biblioteca no vuelve a leer lo leído."""
    caja = pretrained()
    if ajenas := sorted(set(comienzo) - set(caja.tokenizer.characters)):
        raise ValueError(f"{ajenas[0]!r} no está entre los caracteres que conoce la caja")
    print(comienzo, end="", flush=True)
    trozos = stream_texts(
        caja.build_model(),
        caja.tokenizer,
        caja.tokenizer.encode(comienzo),
        SampleConfig(temperature=tibia),
        max_new_tokens=MAS_LETRAS,
        seed=escalera.SEMILLA,
    )
    for (trozo,) in trozos:
        print(trozo, end="", flush=True)
    print()


def orden_escalera() -> None:
    """Escribir tu escalera."""
    todas = filas()
    if not todas:
        raise ValueError("todavía no tienes ningún peldaño: python notebooks/mi_gpt.py entrenar")
    tabla(todas)
    textos(todas)
