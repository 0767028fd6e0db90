"""La escalera: un solo programa que crece, de contar letras a un GPT pequeño.

Cada peldaño es un modelo con una pieza más que el anterior. Todos se entrenan con la misma función
y se miden igual: la pérdida en la parte de validación, en nats por carácter. Lo que baja al subir un
peldaño es lo que vale su pieza.

    python notebooks/escalera.py          # los mide todos y escribe escalera.json
    python notebooks/escalera.py pilas    # mide qué hace falta para apilar: unos veinte minutos
    python notebooks/escalera.py tasas    # busca la mejor tasa de cada peldaño: más de una hora
"""

import json
import sys
import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent / "taller"))

from entorno import preparar

preparar("numpy", "torch")

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sancho.config import CorpusConfig
from sancho.corpus import Corpus
from sancho.counting import kneser_ney_losses
from sancho.sources import corpus_of

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
RITMO = 0.01
"""La mayor tasa de aprendizaje: sube hasta ella y luego baja hasta cero."""
RITMO_DE_TABLA = 0.1
"""La de los dos primeros peldaños: solo tienen logits, que parten de cero y han de ir lejos."""
CALENTAMIENTO = 50
"""Pasos que tarda en subir."""
SEMILLA = 1605

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
    ritmo: float = RITMO


PELDANOS = [
    Peldano("letras", "01_tokens", Letras, RITMO_DE_TABLA),
    Peldano("pares", "01_tokens", Pares, RITMO_DE_TABLA),
    Peldano("embeddings", "02_embeddings_y_posiciones", ConEmbedding),
    Peldano("posiciones", "02_embeddings_y_posiciones", ConPosiciones),
    Peldano("atención", "03_autoatencion", ConAtencion),
    Peldano("feed-forward", "04_feed_forward", ConFeedForward),
    Peldano("residual y normalización", "06_bloque_y_gpt", lambda V: Gpt(V, bloques=1)),
    Peldano("más bloques", "06_bloque_y_gpt", lambda V: Gpt(V, bloques=BLOQUES)),
]
CONTROL = Peldano(
    "sin residual ni normalización",
    "06_bloque_y_gpt",
    lambda V: Pila(V, BLOQUES, residual=False, normalizacion=False),
    ritmo=0.003,  # la mejor de tres
)
"""No es un peldaño: los bloques de «más bloques» sin lo que trae el anterior."""
CONTROLES = [
    Peldano("media", "02_embeddings_y_posiciones", lambda V: ConMedia(V, residual=False)),
    Peldano("media con residual", "02_embeddings_y_posiciones", lambda V: ConMedia(V, True)),
    Peldano("atención sin posiciones", "03_autoatencion", SinPosiciones),
    Peldano("atención de una cabeza", "03_autoatencion", lambda V: ConAtencion(V, cabezas=1)),
    Peldano("feed-forward sin activación", "04_feed_forward", SinActivacion),
    CONTROL,
]
"""Los que se miden al lado de los peldaños."""
VENTANA_FIJA = Peldano("ventana de 8 y MLP", "02_embeddings_y_posiciones", ConVentana)
PILAS = {
    "ninguno de los dos": (False, False, (0.001, 0.003, 0.01)),
    "solo normalización": (False, True, (0.0003, 0.001, 0.003)),
    "solo residual": (True, False, (0.003, 0.01, 0.03)),
    "los dos": (True, True, (0.003, 0.01, 0.03)),
}
"""Con residual o no, con normalización o no, y las tasas que se prueban con cada pila."""
SEMILLAS = (SEMILLA, 1, 2)
TASAS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Las tasas que pueden probarse: se empieza por PRIMERAS y se sigue mientras gane la de un extremo."""
PRIMERAS = (0.003, 0.01, 0.03, 0.1)
DE_UN_BLOQUE = [
    Peldano("solo residual", "06_bloque_y_gpt", lambda V: Pila(V, 1, True, False)),
    Peldano("solo normalización", "06_bloque_y_gpt", lambda V: Pila(V, 1, False, True)),
]
"""Un bloque con una sola de las dos; sin ninguna es «feed-forward», y con las dos, el peldaño."""
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


def entrenar(
    modelo: nn.Module, corpus: Corpus, ritmo: float = RITMO, bucle: Callable = bucle
) -> float:
    """Entrenar el modelo y dar su pérdida en validación, en nats por carácter.

    Los lotes son siempre los mismos; los parámetros con que empieza el modelo dependen de la
    semilla que se puso antes de crearlo, que en el curso es SEMILLA.
    """
    ids = torch.from_numpy(np.asarray(corpus.train, dtype=np.int64))
    azar = torch.Generator().manual_seed(SEMILLA)
    optimizador = torch.optim.AdamW(modelo.parameters(), betas=(0.9, 0.99), weight_decay=0)
    pasos = count()

    def poner_ritmo(optimizador: torch.optim.Optimizer, *_) -> None:
        paso = next(pasos)
        for grupo in optimizador.param_groups:
            grupo["lr"] = ritmo * min((paso + 1) / CALENTAMIENTO, 1) * (1 - paso / PASOS)

    optimizador.register_step_pre_hook(poner_ritmo)
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


# --- la tabla ---------------------------------------------------------------------------------


def _guardado() -> dict:
    return json.loads((AQUI / "escalera.json").read_text(encoding="utf-8"))


def guardada(nombre: str, corpus: Corpus | None = None) -> float:
    """La pérdida de un peldaño (o de un control) medida antes; sin corpus, la del *Quijote*."""
    return _guardado()["quijote" if corpus is None else corpus.name][nombre]["pérdida"]


def pilas() -> dict[str, dict[str, list[float]]]:
    """Las pérdidas de las pilas, medidas antes con el *Quijote*, por pila y por tasa."""
    return _guardado()["pilas"]


def con_miles(numero: int) -> str:
    """Un número; desde cinco cifras, con un espacio fino entre los miles."""
    return f"{numero:,}".replace(",", "\u202f" if numero >= 10_000 else "")


def tabla(
    hasta: str, medido: float, corpus: Corpus | None = None, parametros: int | None = None
) -> None:
    """Escribir la escalera hasta un peldaño: lo de antes, guardado; lo suyo, recién medido.

    `parametros` son los del modelo medido, si no tiene los del peldaño guardado.
    """
    resultados = _guardado()["quijote" if corpus is None else corpus.name]
    print(f"{'peldaño':26}{'parámetros':>11}{'pérdida':>9}{'vale':>8}")
    anterior = None
    for peldano in PELDANOS:
        resultado = resultados[peldano.nombre]
        valor, cuantos = resultado["pérdida"], resultado["parámetros"]
        if peldano.nombre == hasta:
            valor, cuantos = medido, parametros or cuantos
        # Lo que una pieza quita a la pérdida; los números pequeños y el −0.00 son ruido.
        vale = "" if anterior is None else f"{round(anterior - valor, 2) + 0.0:.2f}"
        print(
            f"{peldano.nombre:26}{con_miles(cuantos):>11}{valor:>9.2f}{vale.replace('-', '−'):>8}"
        )
        if peldano.nombre == hasta:
            break
        anterior = valor
    else:
        raise ValueError(f"no hay un peldaño que se llame {hasta!r}")
    for rival in (*CONTAR, VENTANA_FIJA.nombre):
        resultado = resultados[rival]
        print(
            f"{'rival: ' + rival:26}{con_miles(resultado['parámetros']):>11}{resultado['pérdida']:>9.2f}"
        )


def secuencias(ids: np.ndarray, hasta: int) -> int:
    """Cuántas secuencias distintas, de una letra a `hasta`, hay en el texto: las cuentas que guarda."""
    claves, total = np.zeros(len(ids), dtype=np.int64), 0
    for largo in range(hasta):
        claves = claves[: len(ids) - largo] * (int(ids.max()) + 1) + ids[largo:]
        _, claves = np.unique(claves, return_inverse=True)
        total += int(claves.max()) + 1
    return total


def medir(corpus: Corpus) -> dict[str, dict[str, float]]:
    """Entrenar todos los peldaños y los controles, y contar."""
    resultados = {}
    for peldano in [*PELDANOS, VENTANA_FIJA, *CONTROLES]:
        torch.manual_seed(SEMILLA)
        modelo = peldano.crear(corpus.tokenizer.vocab_size)
        comienzo = time.perf_counter()
        resultados[peldano.nombre] = {
            "parámetros": sum(p.numel() for p in modelo.parameters()),
            "pérdida": round(entrenar(modelo, corpus, peldano.ritmo), 4),
        }
        segundos = time.perf_counter() - comienzo
        print(f"{peldano.nombre:32}{resultados[peldano.nombre]['pérdida']:8.4f}{segundos:7.1f} s")
    contado = kneser_ney_losses(corpus.train, corpus.val, corpus.tokenizer.vocab_size).mean(1)
    for nombre, letras in CONTAR.items():
        resultados[nombre] = {
            "parámetros": secuencias(np.asarray(corpus.train, dtype=np.int64), letras + 1),
            "pérdida": round(float(contado[letras]), 4),
        }
    return resultados


def medir_pilas(corpus: Corpus) -> dict[str, dict[str, list[float]]]:
    """Entrenar cada pila con tres tasas y tres semillas; dar las pérdidas por pila y por tasa."""
    resultados: dict[str, dict[str, list[float]]] = {}
    for nombre, (residual, normalizacion, tasas) in PILAS.items():
        resultados[nombre] = {}
        for tasa in tasas:
            perdidas = []
            for semilla in SEMILLAS:
                torch.manual_seed(semilla)
                pila = Pila(corpus.tokenizer.vocab_size, BLOQUES, residual, normalizacion)
                perdidas.append(round(entrenar(pila, corpus, tasa), 4))
            resultados[nombre][str(tasa)] = perdidas
            print(f"{nombre:20}{tasa:8}", *perdidas)
    return resultados


def medidas(archivo: Path) -> dict[tuple[str, float, int], float]:
    """Las pérdidas que ya están en el archivo, por nombre, tasa y semilla."""
    if not archivo.is_file():
        return {}
    filas = map(json.loads, archivo.read_text(encoding="utf-8").splitlines())
    return {(fila["nombre"], fila["tasa"], fila["semilla"]): fila["pérdida"] for fila in filas}


def medir_una(peldano: Peldano, corpus: Corpus, tasa: float, semilla: int, archivo: Path) -> float:
    """La pérdida de un peldaño con una tasa y una semilla; si no está en el archivo, se mide."""
    hechas = medidas(archivo)
    if (peldano.nombre, tasa, semilla) in hechas:
        return hechas[peldano.nombre, tasa, semilla]
    torch.manual_seed(semilla)
    medida = round(entrenar(peldano.crear(corpus.tokenizer.vocab_size), corpus, tasa), 4)
    fila = {"nombre": peldano.nombre, "tasa": tasa, "semilla": semilla, "pérdida": medida}
    with archivo.open("a", encoding="utf-8") as salida:
        salida.write(json.dumps(fila, ensure_ascii=False) + "\n")
    print(*fila.values(), flush=True)
    return medida


def mejor_tasa(peldano: Peldano, corpus: Corpus, archivo: Path) -> float:
    """La tasa con menos pérdida, con SEMILLA, y con otras peores a ambos lados."""
    primera, ultima = TASAS.index(PRIMERAS[0]), TASAS.index(PRIMERAS[-1])
    while True:
        tasas = TASAS[primera : ultima + 1]
        mejor = min(tasas, key=lambda tasa: medir_una(peldano, corpus, tasa, SEMILLA, archivo))
        if mejor == tasas[0] and primera > 0:
            primera -= 1
        elif mejor == tasas[-1] and ultima < len(TASAS) - 1:
            ultima += 1
        else:
            return mejor


def medir_tasas(corpus: Corpus, nombres: Iterable[str]) -> None:
    """Buscar la mejor tasa de cada peldaño y medirla con todas las semillas.

    Cada entrenamiento se escribe en cuanto acaba: si se para, se sigue donde estaba.
    """
    archivo = AQUI / f"tasas_{corpus.name}.jsonl"
    todos = [*PELDANOS, VENTANA_FIJA, *CONTROLES, *DE_UN_BLOQUE]
    torch.set_num_threads(1)
    for peldano in todos:
        if nombres and peldano.nombre not in nombres:
            continue
        tasa = mejor_tasa(peldano, corpus, archivo)
        for semilla in SEMILLAS:
            medir_una(peldano, corpus, tasa, semilla, archivo)


def main(que: str = "peldaños", *nombres: str) -> None:
    """Medir la escalera, o las pilas, con el corpus que haya, y guardarlo sin tocar lo demás."""
    corpus = corpus_of(AQUI.parent / "data", CorpusConfig())
    if que == "tasas":
        medir_tasas(corpus, nombres)
        return
    archivo = AQUI / "escalera.json"
    todo = _guardado() if archivo.is_file() else {}
    if que == "pilas":
        if corpus.name != "quijote":
            raise SystemExit("las pilas se miden con el Quijote: python data/prepare.py")
        todo["pilas"] = medir_pilas(corpus)
    else:
        todo[corpus.name] = medir(corpus)
    archivo.write_text(json.dumps(todo, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
