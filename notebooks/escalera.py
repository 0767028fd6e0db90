"""La escalera: un solo programa que crece, de contar letras a un GPT pequeño.

Cada peldaño es un modelo con una pieza más que el anterior. Todos se entrenan con la misma función,
cada uno con su mejor tasa de aprendizaje, y se miden igual: la pérdida en la parte de validación, en
nats por carácter. Lo que baja al subir un peldaño es lo que vale su pieza.

    python notebooks/escalera.py    # mide lo que falte en escalera.json; si falta todo, más de una hora
"""

import json
import re
import sys
import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent / "taller"))

from entorno import preparar

preparar("numpy", "torch")

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sancho.evaluation.counting import kneser_ney_losses
from sancho.text.corpus import Corpus
from sancho.text.sources import corpus_of

AQUI = Path(__file__).resolve().parent

ANCHO = 64
"""Canales de cada vector (C)."""
VENTANA = 64
"""Caracteres que se leen de una vez (T)."""
CABEZAS = 4
BLOQUES = 3
"""Los del último peldaño."""
ATRAS = 8
"""Letras que lee la ventana fija, el rival de la atención."""

PASOS = 800
LOTE = 32
"""Ventanas por paso (B)."""
CALENTAMIENTO = 50
"""Pasos que tarda la tasa de aprendizaje en subir hasta la mayor; luego baja hasta cero."""
SEMILLA = 1605
"""La de todo lo que se entrena en el curso."""
SEMILLAS = (SEMILLA, 1, 2)
"""Las tres con que se mide cada peldaño: cuánto cambia su pérdida de una a otra es su margen."""
TASAS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Las tasas que pueden probarse: se empieza por PRIMERAS y se sigue mientras gane la de un extremo."""
PRIMERAS = (0.003, 0.01, 0.03, 0.1)

# --- los peldaños -----------------------------------------------------------------------------


class Letras(nn.Module):
    """Cuán frecuente es cada carácter: siempre los mismos V logits, se lea lo que se lea."""

    def __init__(self, V: int):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(V))

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, V)
        return self.logits.expand(*ids.shape, -1)


class Pares(nn.Module):
    """Qué suele seguir a cada carácter: una tabla con una fila de V logits para cada uno."""

    def __init__(self, V: int):
        super().__init__()
        self.tabla = nn.Parameter(torch.zeros(V, V))

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, V)
        return self.tabla[ids]


def vectores(filas: int) -> nn.Embedding:
    """Una tabla con un vector por fila, al azar y pequeños para empezar."""
    tabla = nn.Embedding(filas, ANCHO)
    nn.init.normal_(tabla.weight, std=0.2)
    return tabla


class ConEmbedding(nn.Module):
    """Cada carácter se vuelve un vector, y una cabeza de salida da los logits."""

    def __init__(self, V: int):
        super().__init__()
        self.embedding = vectores(V)
        self.cabeza = nn.Linear(ANCHO, V)

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, V)
        return self.cabeza(self.embedding(ids))


class ConPosiciones(ConEmbedding):
    """Lo mismo, y al vector de cada carácter se suma el de su posición en la ventana."""

    def __init__(self, V: int):
        super().__init__(V)
        self.posicion = vectores(VENTANA)

    def entrada(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, C)
        T = ids.shape[1]
        return self.embedding(ids) + self.posicion.weight[:T]

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, V)
        return self.cabeza(self.entrada(ids))


class ConMedia(ConPosiciones):
    """Un control: mirar a todas por igual. La media de lo leído, sola o sumada a la última letra."""

    def __init__(self, V: int, residual: bool):
        super().__init__(V)
        self.matriz = nn.Linear(ANCHO, ANCHO, bias=False)
        self.residual = residual

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, V)
        x = self.entrada(ids)  # (B, T, C)
        cuantas = torch.arange(1, x.shape[1] + 1)  # (T,)
        media = self.matriz(x.cumsum(1) / cuantas[:, None])  # de la primera letra a cada una
        return self.cabeza(x + media if self.residual else media)


class ConVentana(nn.Module):
    """Un rival sin atención: las últimas letras, en orden, y un MLP (Bengio y otros, 2003)."""

    def __init__(self, V: int):
        super().__init__()
        self.embedding = vectores(V + 1)  # la última fila, para donde aún no hay letra
        self.oculta = nn.Linear(ATRAS * ANCHO, 4 * ANCHO)
        self.cabeza = nn.Linear(4 * ANCHO, V)

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, V)
        hueco = self.embedding.num_embeddings - 1
        ventanas = F.pad(ids, (ATRAS - 1, 0), value=hueco).unfold(1, ATRAS, 1)  # (B, T, ATRAS)
        return self.cabeza(F.relu(self.oculta(self.embedding(ventanas).flatten(2))))


class Atencion(nn.Module):
    """Cada posición mira a las anteriores y a sí misma, con varias cabezas."""

    def __init__(self, cabezas: int = CABEZAS):
        super().__init__()
        self.cabezas = cabezas
        self.qkv = nn.Linear(ANCHO, 3 * ANCHO, bias=False)
        self.salida = nn.Linear(ANCHO, ANCHO, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        B, T, C = x.shape
        por_cabezas = (B, T, self.cabezas, C // self.cabezas)
        q, k, v = (parte.view(por_cabezas).transpose(1, 2) for parte in self.qkv(x).chunk(3, -1))
        mirado = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, D)
        return self.salida(mirado.transpose(1, 2).reshape(B, T, C))


class ConAtencion(ConPosiciones):
    """Entre la entrada y la cabeza de salida, las posiciones se miran."""

    def __init__(self, V: int, cabezas: int = CABEZAS):
        super().__init__(V)
        self.atencion = Atencion(cabezas)

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, V)
        return self.cabeza(self.atencion(self.entrada(ids)))


class SinPosiciones(ConEmbedding):
    """Un control: la misma atención, sin posiciones."""

    def __init__(self, V: int):
        super().__init__(V)
        self.atencion = Atencion()

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, V)
        return self.cabeza(self.atencion(self.embedding(ids)))


def feed_forward() -> nn.Sequential:
    """Ensanchar cuatro veces, activar y volver: cada posición a solas."""
    return nn.Sequential(nn.Linear(ANCHO, 4 * ANCHO), nn.ReLU(), nn.Linear(4 * ANCHO, ANCHO))


class ConFeedForward(ConAtencion):
    """Después de mirar, cada posición piensa a solas lo que ha visto."""

    def __init__(self, V: int):
        super().__init__(V)
        self.feed_forward = feed_forward()

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, V)
        return self.cabeza(self.feed_forward(self.atencion(self.entrada(ids))))


class SinActivacion(ConFeedForward):
    """Un control: la misma feed-forward sin su activación, dos matrices seguidas."""

    def __init__(self, V: int):
        super().__init__(V)
        ensanchar, _, volver = self.feed_forward
        self.feed_forward = nn.Sequential(ensanchar, volver)


class Bloque(nn.Module):
    """Las mismas dos subcapas, ahora con su normalización y sumadas a lo que había."""

    def __init__(self):
        super().__init__()
        self.normalizacion_1 = nn.LayerNorm(ANCHO)
        self.atencion = Atencion()
        self.normalizacion_2 = nn.LayerNorm(ANCHO)
        self.feed_forward = feed_forward()

    def forward(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        x = x + self.atencion(self.normalizacion_1(x))
        return x + self.feed_forward(self.normalizacion_2(x))


class Gpt(ConPosiciones):
    """Uno o más bloques, una última normalización y la cabeza de salida."""

    def __init__(self, V: int, bloques: int):
        super().__init__(V)
        self.bloques = nn.Sequential(*[Bloque() for _ in range(bloques)])
        self.normalizacion = nn.LayerNorm(ANCHO)

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, V)
        return self.cabeza(self.normalizacion(self.bloques(self.entrada(ids))))


class Pila(ConPosiciones):
    """Los controles: varios bloques, con residual o sin él, con normalización o sin ella."""

    def __init__(self, V: int, bloques: int, residual: bool, normalizacion: bool):
        super().__init__(V)
        self.residual = residual
        subcapas = [capa for _ in range(bloques) for capa in (Atencion(), feed_forward())]
        self.subcapas = nn.ModuleList(subcapas)
        hacer = nn.LayerNorm if normalizacion else nn.Identity
        self.normalizaciones = nn.ModuleList(hacer(ANCHO) for _ in subcapas)
        self.ultima = hacer(ANCHO)

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, V)
        x = self.entrada(ids)
        for normalizar, subcapa in zip(self.normalizaciones, self.subcapas, strict=True):
            sumando = subcapa(normalizar(x))
            x = x + sumando if self.residual else sumando
        return self.cabeza(self.ultima(x))


class Peldano(NamedTuple):
    """Un modelo de la escalera, el capítulo que lo construye y cómo se hace para V caracteres."""

    nombre: str
    capitulo: str
    crear: Callable[[int], nn.Module]


def pila(nombre: str, bloques: int, residual: bool, normalizacion: bool) -> Peldano:
    """Un control: unos bloques a los que les falta algo."""
    return Peldano(nombre, "06_bloque_y_gpt", lambda V: Pila(V, bloques, residual, normalizacion))


PELDANOS = [
    Peldano("letras", "01_tokens", Letras),
    Peldano("pares", "01_tokens", Pares),
    Peldano("embeddings", "02_embeddings_y_posiciones", ConEmbedding),
    Peldano("posiciones", "02_embeddings_y_posiciones", ConPosiciones),
    Peldano("atención", "03b_varias_cabezas", ConAtencion),
    Peldano("feed-forward", "04_feed_forward", ConFeedForward),
    Peldano("residual y normalización", "06_bloque_y_gpt", lambda V: Gpt(V, bloques=1)),
    Peldano("más bloques", "06_bloque_y_gpt", lambda V: Gpt(V, bloques=BLOQUES)),
]
VENTANA_FIJA = Peldano("ventana de 8 y MLP", "ramas/de_donde_sale_el_parecido", ConVentana)
TRES_BLOQUES = [
    pila(
        "tres bloques, sin residual ni normalización", BLOQUES, residual=False, normalizacion=False
    ),
    pila("tres bloques, solo normalización", BLOQUES, residual=False, normalizacion=True),
    pila("tres bloques, solo residual", BLOQUES, residual=True, normalizacion=False),
    PELDANOS[-1],
]
"""Con residual o sin él, con normalización o sin ella: lo que hace falta para apilar."""
CONTROLES = [
    Peldano("media", "ramas/de_donde_sale_el_parecido", lambda V: ConMedia(V, residual=False)),
    Peldano("media con residual", "ramas/de_donde_sale_el_parecido", lambda V: ConMedia(V, True)),
    Peldano("atención sin posiciones", "03b_varias_cabezas", SinPosiciones),
    Peldano("atención de una cabeza", "03b_varias_cabezas", lambda V: ConAtencion(V, cabezas=1)),
    Peldano("feed-forward sin activación", "04_feed_forward", SinActivacion),
    # Un bloque sin ninguno de los dos es el peldaño «feed-forward».
    pila("un bloque, solo normalización", 1, residual=False, normalizacion=True),
    pila("un bloque, solo residual", 1, residual=True, normalizacion=False),
    *TRES_BLOQUES[:-1],
]
"""Los que se miden al lado de los peldaños."""
TODOS = [*PELDANOS, VENTANA_FIJA, *CONTROLES]
CONTAR = {"contar, 4 letras": 4, "contar, 7 letras": 7}
"""Los rivales que no son redes: contar qué sigue a las últimas k letras (Kneser y Ney, 1995)."""

# --- entrenar y medir -------------------------------------------------------------------------


def lote(ids: Tensor, azar: torch.Generator) -> tuple[Tensor, Tensor]:
    """Ventanas al azar del texto: lo que se lee y lo que sigue a cada carácter, (B, T) los dos."""
    inicio = torch.randint(len(ids) - VENTANA, (LOTE, 1), generator=azar)
    ventanas = ids[inicio + torch.arange(VENTANA + 1)]
    return ventanas[:, :-1], ventanas[:, 1:]


def bucle(
    modelo: nn.Module,
    optimizador: torch.optim.Optimizer,
    lotes: Iterable[tuple[Tensor, Tensor]],
) -> list[float]:
    """Dar un paso con cada lote; sale la pérdida de cada uno, antes de su paso."""
    perdidas = []
    for leido, siguiente in lotes:
        perdida_del_lote = F.cross_entropy(modelo(leido).flatten(0, 1), siguiente.flatten())
        optimizador.zero_grad()
        perdida_del_lote.backward()
        optimizador.step()
        perdidas.append(perdida_del_lote.item())
    return perdidas


def entrenar(modelo: nn.Module, corpus: Corpus, tasa: float, bucle: Callable = bucle) -> float:
    """Entrenar el modelo y dar su pérdida en validación, en nats por carácter.

    `tasa` es la mayor tasa de aprendizaje. Los lotes son siempre los mismos; los parámetros con que
    empieza el modelo dependen de la semilla que se puso antes de crearlo, que en el curso es SEMILLA.
    """
    ids = torch.from_numpy(np.asarray(corpus.train, dtype=np.int64))
    azar = torch.Generator().manual_seed(SEMILLA)
    optimizador = torch.optim.AdamW(modelo.parameters(), betas=(0.9, 0.99), weight_decay=0)
    pasos = count()

    def poner_tasa(optimizador: torch.optim.Optimizer, *_) -> None:
        paso = next(pasos)
        for grupo in optimizador.param_groups:
            grupo["lr"] = tasa * min((paso + 1) / CALENTAMIENTO, 1) * (1 - paso / PASOS)

    optimizador.register_step_pre_hook(poner_tasa)
    bucle(modelo, optimizador, (lote(ids, azar) for _ in range(PASOS)))
    return perdida(modelo, corpus)


@torch.no_grad()
def perdida(modelo: nn.Module, corpus: Corpus) -> float:
    """La pérdida media en toda la validación, leída en ventanas seguidas, en nats por carácter."""
    ids = torch.from_numpy(np.asarray(corpus.val, dtype=np.int64))
    leido, siguiente = ids[:-1].unfold(0, VENTANA, VENTANA), ids[1:].unfold(0, VENTANA, VENTANA)
    suma = 0.0
    for x, y in zip(leido.split(LOTE), siguiente.split(LOTE)):
        suma += F.cross_entropy(modelo(x).flatten(0, 1), y.flatten(), reduction="sum").item()
    return suma / siguiente.numel()


@torch.no_grad()
def escribir_ids(modelo: nn.Module, ids: Tensor, cuantas: int = 150) -> Tensor:
    """Los números de lo que un modelo escribe tras otros, sorteados uno a uno con SEMILLA.

    ids: (n,), uno al menos. Da (cuantas,).
    """
    azar = torch.Generator().manual_seed(SEMILLA)
    leidos = len(ids)
    for _ in range(cuantas):
        logits = modelo(ids[None, -VENTANA:])[0, -1]  # (V,): solo ve las últimas
        nueva = torch.multinomial(logits.softmax(-1), 1, generator=azar)
        ids = torch.cat((ids, nueva))
    return ids[leidos:]


def escribir(modelo: nn.Module, corpus: Corpus, cuantas: int = 150) -> str:
    """Las letras que escribe un modelo desde un salto de línea."""
    ids = torch.from_numpy(np.asarray(corpus.tokenizer.encode("\n"), dtype=np.int64))
    return corpus.tokenizer.decode(escribir_ids(modelo, ids, cuantas))


# --- lo medido --------------------------------------------------------------------------------

ARCHIVO = AQUI / "escalera.json"


def _guardado(archivo: Path = ARCHIVO) -> dict[str, dict[str, Any]]:
    """Por corpus y por nombre: los parámetros, y las pérdidas por tasa y por semilla.

    Los rivales que cuentan no tienen tasa ni semilla: solo una pérdida.
    """
    return json.loads(archivo.read_text(encoding="utf-8")) if archivo.is_file() else {}


def _fila(nombre: str, corpus: Corpus | None) -> dict[str, Any]:
    return _guardado()["quijote" if corpus is None else corpus.name][nombre]


def medidas(nombre: str, corpus: Corpus | None = None) -> dict[float, list[float]]:
    """Las pérdidas de un peldaño o de un control por tasa; la primera es la de SEMILLA.

    Sin corpus, las del *Quijote*.
    """
    por_tasa = _fila(nombre, corpus)["pérdidas"]
    return {float(tasa): list(por_semilla.values()) for tasa, por_semilla in por_tasa.items()}


def mejor_tasa(nombre: str, corpus: Corpus | None = None) -> float:
    """La tasa con menos pérdida, con SEMILLA: la que se da a `entrenar`."""
    por_tasa = medidas(nombre, corpus)
    return min(por_tasa, key=lambda tasa: por_tasa[tasa][0])


def de_tres_semillas(nombre: str) -> dict[float, list[float]]:
    """Las pérdidas con el *Quijote*, por tasa, de las tasas que se midieron con todas las semillas."""
    return {t: todas for t, todas in medidas(nombre).items() if len(todas) == len(SEMILLAS)}


def guardada(nombre: str, corpus: Corpus | None = None) -> float:
    """La pérdida de un peldaño, de un control o de un rival, con su mejor tasa y con SEMILLA."""
    if nombre in CONTAR:
        return _fila(nombre, corpus)["pérdida"]
    return medidas(nombre, corpus)[mejor_tasa(nombre, corpus)][0]


def con_miles(numero: int) -> str:
    """Un número; desde cinco cifras, con un espacio fino entre los miles."""
    return f"{numero:,}".replace(",", "\u202f" if numero >= 10_000 else "")


def tabla(
    hasta: str, medido: float, corpus: Corpus | None = None, parametros: int | None = None
) -> None:
    """Escribir la escalera hasta un peldaño: lo de antes, guardado; lo suyo, recién medido.

    `parametros` son los del modelo medido, si no tiene los del peldaño guardado.
    """
    if hasta not in (peldano.nombre for peldano in PELDANOS):
        raise ValueError(f"no hay un peldaño que se llame {hasta!r}")
    guardado = _guardado()["quijote" if corpus is None else corpus.name]
    print(f"{'peldaño':26}{'parámetros':>11}{'tasa':>6}{'pérdida':>9}{'vale':>7}")
    anterior = None
    for nombre in (peldano.nombre for peldano in PELDANOS):
        valor, cuantos = guardada(nombre, corpus), guardado[nombre]["parámetros"]
        if nombre == hasta:
            valor, cuantos = medido, parametros or cuantos
        # Lo que una pieza quita a la pérdida; los números pequeños y el −0.00 son ruido.
        vale = "" if anterior is None else f"{round(anterior - valor, 2) + 0.0:.2f}"
        fila = f"{nombre:26}{con_miles(cuantos):>11}{mejor_tasa(nombre, corpus):>6}{valor:>9.2f}"
        print(fila + f"{vale.replace('-', '−'):>7}".rstrip())
        if nombre == hasta:
            break
        anterior = valor
    for rival in (*CONTAR, VENTANA_FIJA.nombre):
        cuantos = con_miles(guardado[rival]["parámetros"])
        tasa = "" if rival in CONTAR else mejor_tasa(rival, corpus)
        print(f"{'rival: ' + rival:26}{cuantos:>11}{tasa:>6}{guardada(rival, corpus):>9.2f}")


def secuencias(ids: np.ndarray, hasta: int) -> int:
    """Cuántas secuencias distintas, de una letra a `hasta`, hay en el texto: las cuentas que guarda."""
    claves, total = np.zeros(len(ids), dtype=np.int64), 0
    for largo in range(hasta):
        claves = claves[: len(ids) - largo] * (int(ids.max()) + 1) + ids[largo:]
        _, claves = np.unique(claves, return_inverse=True)
        total += int(claves.max()) + 1
    return total


# --- medir ------------------------------------------------------------------------------------


def medir_una(peldano: Peldano, corpus: Corpus, tasa: float, semilla: int, archivo: Path) -> float:
    """La pérdida de un peldaño con una tasa y una semilla; si no está en el archivo, se mide."""
    todo = _guardado(archivo)
    fila = todo.setdefault(corpus.name, {}).setdefault(peldano.nombre, {})
    perdidas = fila.setdefault("pérdidas", {}).setdefault(str(tasa), {})
    if str(semilla) in perdidas:
        return perdidas[str(semilla)]
    torch.manual_seed(semilla)
    modelo = peldano.crear(corpus.tokenizer.vocab_size)
    fila["parámetros"] = sum(p.numel() for p in modelo.parameters())
    comienzo = time.perf_counter()
    medida = perdidas[str(semilla)] = round(entrenar(modelo, corpus, tasa), 4)
    segundos = time.perf_counter() - comienzo
    guardar(todo, archivo)
    print(f"{peldano.nombre:32}{tasa:>8}{semilla:>6}{medida:10.4f}{segundos:7.1f} s", flush=True)
    return medida


def guardar(todo: dict[str, Any], archivo: Path) -> None:
    """Escribir lo medido, con las pérdidas de cada tasa en una línea y de menor tasa a mayor."""
    for por_nombre in todo.values():
        for fila in por_nombre.values():
            if "pérdidas" in fila:
                fila["pérdidas"] = dict(sorted(fila["pérdidas"].items(), key=lambda f: float(f[0])))
    escrito = json.dumps(todo, ensure_ascii=False, indent=2)
    escrito = re.sub(r"\{[^{}]*\}", lambda uno: " ".join(uno[0].split()), escrito)
    aparte = archivo.with_suffix(".json.parte")
    aparte.write_text(escrito + "\n", encoding="utf-8")
    aparte.replace(archivo)


def buscar_tasa(peldano: Peldano, corpus: Corpus, archivo: Path) -> int:
    """El lugar, en TASAS, de la que menos pierde con SEMILLA: las de los dos lados son peores."""
    primera, ultima = TASAS.index(PRIMERAS[0]), TASAS.index(PRIMERAS[-1])
    while True:
        lugares = range(primera, ultima + 1)
        mejor = min(lugares, key=lambda i: medir_una(peldano, corpus, TASAS[i], SEMILLA, archivo))
        if mejor == primera and primera > 0:
            primera -= 1
        elif mejor == ultima and ultima < len(TASAS) - 1:
            ultima += 1
        else:
            return mejor


def medir(corpus: Corpus, archivo: Path = ARCHIVO) -> None:
    """Medir cada peldaño y cada control con su mejor tasa y con todas las semillas, y contar.

    Con tres bloques se miden así también las dos tasas vecinas. Cada entrenamiento se guarda en
    cuanto acaba: si se para, se sigue donde estaba.
    """
    for peldano in TODOS:
        mejor = buscar_tasa(peldano, corpus, archivo)
        vecinas = 1 if peldano in TRES_BLOQUES else 0
        for tasa in TASAS[max(mejor - vecinas, 0) : mejor + vecinas + 1]:
            for semilla in SEMILLAS:
                medir_una(peldano, corpus, tasa, semilla, archivo)
    todo = _guardado(archivo)
    contado = kneser_ney_losses(corpus.train, corpus.val, corpus.tokenizer.vocab_size).mean(1)
    for nombre, letras in CONTAR.items():
        todo[corpus.name][nombre] = {
            "parámetros": secuencias(np.asarray(corpus.train, dtype=np.int64), letras + 1),
            "pérdida": round(float(contado[letras]), 4),
        }
    guardar(todo, archivo)
    print(f"Todo lo de {corpus.name} está medido, en {archivo}.")


if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        medir(corpus_of("quijote"))
    except KeyboardInterrupt:
        sys.exit(f"Parado: lo medido hasta aquí está en {ARCHIVO}.")
