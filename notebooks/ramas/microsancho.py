"""microsancho: `mini` en un archivo, con NumPy, del texto a la letra que sigue.

    python notebooks/ramas/microsancho.py libro.txt

aprende de un libro (sin decir cuál, de data/quijote.txt), guarda microsancho.safetensors, que
abren sample.py y evaluate.py, y escribe. Es train.py con `mini`, menos lo que cuesta líneas y quita
poco a la pérdida: cabezas que predicen letras más lejanas, dropout de la tabla, escala de los
logits, limpiar el texto, contar solo parte de uno largo, hilos, bfloat16 y, al escribir, la caché.

Ejes: B ventanas de un lote, T caracteres de cada una, C canales, H cabezas de atención, D canales
de una, V caracteres del vocabulario. `p` son los parámetros y `g` sus gradientes, por su nombre.
`d_y` es la derivada de la pérdida por `y`, y tiene su forma.
"""

import hashlib
import itertools
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.numpy

Array = np.ndarray
Arrays = dict[str, np.ndarray]


# --- Opciones: con los nombres y los valores de train.py ---
class Modelo(NamedTuple):
    vocab_size: int  # V
    block_size: int = 256  # T, como mucho
    n_layer: int = 4  # bloques
    n_head: int = 2  # H
    n_embd: int = 64  # C
    ngram_size: int = 5  # secuencias de 2 a 5 caracteres
    ngram_rows: int = 65536  # filas de su tabla


class Entrenamiento(NamedTuple):
    max_iters: int = 1700  # pasos
    batch_size: int = 8  # B
    learning_rate: float = 0.02  # la tasa más alta de AdamW
    muon_learning_rate: float = 0.015
    ngram_learning_rate: float = 0.15
    weight_decay: float = 0.0
    beta1: float = 0.8
    beta2: float = 0.98
    grad_clip: float = 1.0  # la mayor norma del gradiente
    warmup_iters: int = 20  # pasos en que la tasa sube
    decay_fraction: float = 0.6  # parte de los pasos, al final, en que baja
    seed: int = 1605


LECTURAS = 6.5  # las veces que se lee, como mucho, un texto corto
INICIO, LOTES, ESCRITURA = 0, 1, 3  # para qué es un generador


def generador(semilla: int, *para: int) -> np.random.Generator:
    """Dar números al azar que nada más usa."""
    return np.random.default_rng(np.random.SeedSequence(semilla, spawn_key=para))


# --- Del texto a los números ---
def leer(archivo: Path) -> tuple[str, str, Array]:
    """Dar un texto en UTF-8, sus caracteres y el id de cada letra, (n,): su lugar entre ellos."""
    texto = archivo.read_text(encoding="utf-8")
    caracteres = "".join(sorted(set(texto)))
    lugar = {caracter: i for i, caracter in enumerate(caracteres)}
    return texto, caracteres, np.array([lugar[caracter] for caracter in texto])


# --- La tabla de secuencias: qué fila tiene cada una ---
FACTOR = 0x9E3779B1


def claves(ids: Array, hasta: int) -> Array:
    """Las de 2, 3, … `hasta` letras que acaban en cada posición: (B, T) -> (B, T, hasta − 1).

    La suma de (id + 2) · FACTOR^edad, en 32 bits. Antes de la primera letra el id es −1.
    """
    valores = np.pad(ids + 2, ((0, 0), (hasta - 1, 0)), constant_values=1).astype(np.uint32)
    letras = np.lib.stride_tricks.sliding_window_view(valores, hasta, axis=1)[..., ::-1]
    factores = np.array([FACTOR**edad % 2**32 for edad in range(hasta)], np.uint32)
    return (letras * factores).cumsum(-1, dtype=np.uint32)[..., 1:].view(np.int32)


def vocabulario(ids: Array, modelo: Modelo) -> Array:
    """Las claves de las secuencias más frecuentes de un texto, en orden: (ngram_rows,)."""
    del_texto = claves(ids[None], modelo.ngram_size)[0]  # (n, ngram_size − 1)
    todas = []
    veces = []
    for n in range(2, modelo.ngram_size + 1):
        distintas, cuantas = np.unique(del_texto[n - 1 :, n - 2], return_counts=True)
        todas.append(distintas[cuantas > 1])  # la que sale una vez se sabría de memoria
        veces.append(cuantas[cuantas > 1])
    orden = np.argsort(-np.concatenate(veces), kind="stable")[: modelo.ngram_rows - 1]
    elegidas = np.sort(np.concatenate(todas)[orden])
    return np.pad(elegidas, (0, modelo.ngram_rows - len(elegidas)), constant_values=2**31 - 1)


def filas_de(ids: Array, frecuentes: Array, modelo: Modelo) -> Array:
    """La fila de cada secuencia, (B, T) -> (B, T, ngram_size − 1); las raras, todas la última."""
    buscadas = claves(ids, modelo.ngram_size)
    lugar = frecuentes.searchsorted(buscadas)
    return np.where(frecuentes[lugar] == buscadas, lugar, modelo.ngram_rows - 1)


# --- El modelo: sus parámetros ---
def parametros_nuevos(modelo: Modelo, frecuentes: Array, azar: np.random.Generator) -> Arrays:
    """Un modelo que no sabe nada: su primera pérdida es ln V. Las matrices son (sale, entra)."""
    C, V = modelo.n_embd, modelo.vocab_size
    p = {"token_embedding.weight": azar.normal(0, 0.02, (V, C))}
    p["ngram_embedding.weight"] = np.zeros((modelo.ngram_rows, C))
    p["skips"] = np.zeros(modelo.n_layer)
    for b in range(modelo.n_layer):
        p[f"blocks.{b}.attention.qkv.weight"] = azar.normal(0, C**-0.5, (3 * C, C))
        p[f"blocks.{b}.attention.proj.weight"] = np.zeros((C, C))
        p[f"blocks.{b}.feed_forward.expand.weight"] = azar.normal(0, C**-0.5, (4 * C, C))
        p[f"blocks.{b}.feed_forward.proj.weight"] = np.zeros((C, 4 * C))
    p["head.weight"] = np.zeros((V, C))
    p = {nombre: parametro.astype(np.float32) for nombre, parametro in p.items()}
    return p | {"ngram_embedding.keys": frecuentes}


# --- El modelo: cada pieza hacia delante y, debajo, hacia atrás ---
# Hacia delante da y, y los apuntes para volver. Hacia atrás recibe d_y, anota en g y da d_x.
def lineal_atras(d_y: Array, x: Array, p: Arrays, g: Arrays, nombre: str) -> Array:
    """De y = x · wᵀ: d_w = d_yᵀ · x, sumado sobre todas las posiciones, y d_x = d_y · w."""
    g[nombre] = d_y.reshape(-1, d_y.shape[-1]).T @ x.reshape(-1, x.shape[-1])
    return d_y @ p[nombre]


def normalizar(x: Array) -> tuple[Array, Array]:
    """RMSNorm: y = r · x, con r = 1 / √(media de x² + 10⁻⁶). Da y, r."""
    r = 1 / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-6)
    return r * x, r


def normalizar_atras(d_y: Array, y: Array, r: Array) -> Array:
    """d_x = r · (d_y − y · media de d_y · y): alargar x no cambia nada."""
    return r * (d_y - y * (d_y * y).mean(-1, keepdims=True))


def girar(x: Array, sentido: int) -> Array:
    """Posiciones rotatorias: cada dos canales, un número complejo que gira. Atrás, sentido −1."""
    _, T, _, D = x.shape
    angulos = np.outer(np.arange(T), 10000.0 ** (-np.arange(0, D, 2) / D))
    giros = np.exp(1j * sentido * angulos).astype(np.complex64)[:, None]  # (T, 1, D/2)
    pares = np.ascontiguousarray(x).view(np.result_type(x, np.complex64))
    return (pares * giros).view(x.dtype)


def softmax(x: Array) -> Array:
    """Números positivos que suman 1, sobre el último eje."""
    y = np.exp(x - x.max(-1, keepdims=True))
    return y / y.sum(-1, keepdims=True)


def atencion(x: Array, p: Arrays, nombre: str, H: int) -> tuple[Array, tuple]:
    """x + atención(normalizar(x)): cada posición mira a las de antes y a sí misma, (B, T, C)."""
    B, T, C = x.shape
    normal, r = normalizar(x)
    cabezas = (normal @ p[f"{nombre}.qkv.weight"].T).reshape(B, T, 3 * H, C // H)
    qk, r_qk = normalizar(girar(cabezas[:, :, : 2 * H], 1))  # (B, T, 2H, D)
    q, k = np.split(qk.swapaxes(1, 2), 2, axis=1)  # (B, H, T, D), como v
    v = cabezas[:, :, 2 * H :].swapaxes(1, 2)
    puntuaciones = q / math.sqrt(C // H) @ k.mT  # (B, H, T, T)
    pesos = softmax(np.where(np.tri(T, dtype=bool), puntuaciones, -np.inf))
    mirado = (pesos @ v).swapaxes(1, 2).reshape(B, T, C)
    y = mirado @ p[f"{nombre}.proj.weight"].T
    return x + y, (normal, r, qk, r_qk, q, k, v, pesos, mirado)


def atencion_atras(d_y: Array, apuntes: tuple, p: Arrays, g: Arrays, nombre: str) -> Array:
    """La derivada de una softmax es pesos · (d_pesos − media de d_pesos con esos pesos)."""
    normal, r, qk, r_qk, q, k, v, pesos, mirado = apuntes
    B, H, T, D = q.shape
    d_mirado = lineal_atras(d_y, mirado, p, g, f"{nombre}.proj.weight")
    d_mirado = d_mirado.reshape(B, T, H, D).swapaxes(1, 2)
    d_v = pesos.mT @ d_mirado
    d_pesos = d_mirado @ v.mT
    d_puntuaciones = pesos * (d_pesos - np.vecdot(d_pesos, pesos)[..., None])
    d_qk = np.concatenate((d_puntuaciones @ k, d_puntuaciones.mT @ q), axis=1) / math.sqrt(D)
    d_qk = girar(normalizar_atras(d_qk.swapaxes(1, 2), qk, r_qk), -1)
    d_cabezas = np.concatenate((d_qk, d_v.swapaxes(1, 2)), axis=2)  # (B, T, 3H, D)
    d_normal = lineal_atras(d_cabezas.reshape(B, T, -1), normal, p, g, f"{nombre}.qkv.weight")
    return d_y + normalizar_atras(d_normal, normal, r)


def feed_forward(x: Array, p: Arrays, nombre: str) -> tuple[Array, tuple]:
    """x + relu(normalizar(x) · expandᵀ)² · projᵀ: cada posición a solas, (B, T, C)."""
    normal, r = normalizar(x)
    positivo = np.maximum(normal @ p[f"{nombre}.expand.weight"].T, 0)  # (B, T, 4C)
    activo = np.square(positivo)
    return x + activo @ p[f"{nombre}.proj.weight"].T, (normal, r, positivo, activo)


def feed_forward_atras(d_y: Array, apuntes: tuple, p: Arrays, g: Arrays, nombre: str) -> Array:
    """La derivada de relu² es 2 · relu."""
    normal, r, positivo, activo = apuntes
    d_activo = lineal_atras(d_y, activo, p, g, f"{nombre}.proj.weight")
    d_normal = lineal_atras(2 * positivo * d_activo, normal, p, g, f"{nombre}.expand.weight")
    return d_y + normalizar_atras(d_normal, normal, r)


def adelante(p: Arrays, ids: Array, modelo: Modelo) -> tuple[Array, tuple]:
    """ids (B, T) -> los logits de la letra que sigue a cada una, (B, T, V)."""
    filas = filas_de(ids, p["ngram_embedding.keys"], modelo)
    embedding = p["token_embedding.weight"][ids] + p["ngram_embedding.weight"][filas].sum(2)
    x = embedding
    bloques = []
    for b in range(modelo.n_layer):
        if b > 0:
            x = x + p["skips"][b] * embedding
        x, de_atencion = atencion(x, p, f"blocks.{b}.attention", modelo.n_head)
        x, de_feed_forward = feed_forward(x, p, f"blocks.{b}.feed_forward")
        bloques.append((de_atencion, de_feed_forward))
    normal, r = normalizar(x)
    return normal @ p["head.weight"].T, (ids, filas, embedding, bloques, normal, r)


def atras(p: Arrays, d_logits: Array, apuntes: tuple) -> tuple[Arrays, tuple]:
    """Dar los gradientes; el de la tabla, aparte: (filas que se leyeron, el de cada una)."""
    ids, filas, embedding, bloques, normal, r = apuntes
    g = {"skips": np.zeros_like(p["skips"])}
    d_x = normalizar_atras(lineal_atras(d_logits, normal, p, g, "head.weight"), normal, r)
    d_embedding = np.zeros_like(embedding)
    for b, (de_atencion, de_feed_forward) in reversed(list(enumerate(bloques))):
        d_x = feed_forward_atras(d_x, de_feed_forward, p, g, f"blocks.{b}.feed_forward")
        d_x = atencion_atras(d_x, de_atencion, p, g, f"blocks.{b}.attention")
        if b > 0:
            g["skips"][b] = (d_x * embedding).sum()
            d_embedding += p["skips"][b] * d_x
    d_embedding += d_x
    leidas, suyos = sumar_por_filas(ids[..., None], d_embedding)
    g["token_embedding.weight"] = np.zeros_like(p["token_embedding.weight"])
    g["token_embedding.weight"][leidas] = suyos
    return g, sumar_por_filas(filas, d_embedding)


def sumar_por_filas(filas: Array, d_vectores: Array) -> tuple[Array, Array]:
    """Una fila recibe lo de cada posición que la leyó: (B, T, k) y (B, T, C) -> (n,) y (n, C)."""
    orden = np.argsort(filas, axis=None, kind="stable")
    leidas, comienzos = np.unique(filas.reshape(-1)[orden], return_index=True)
    de_cada_vez = d_vectores.reshape(-1, d_vectores.shape[-1])[orden // filas.shape[-1]]
    return leidas, np.add.reduceat(de_cada_vez, comienzos, axis=0)


def entropia_cruzada(logits: Array, objetivos: Array) -> tuple[float, Array]:
    """Dar la media de −ln p(objetivo), en nats, y d_logits: p, menos 1 en el objetivo."""
    p = softmax(logits)
    lugar = objetivos[..., None]
    del_objetivo = np.take_along_axis(p, lugar, axis=-1)
    np.put_along_axis(p, lugar, del_objetivo - 1, axis=-1)
    return -float(np.log(del_objetivo).mean()), p / objetivos.size


# --- Los optimizadores: cada uno cambia w en su sitio ---
def adamw(w: Array, g: Array, memoria: dict, tasa: float, o: Entrenamiento) -> None:
    """La media de los gradientes, entre la raíz de la media de sus cuadrados."""
    paso = memoria["paso"] = memoria.get("paso", 0) + 1
    m = memoria["m"] = o.beta1 * memoria.get("m", 0) + (1 - o.beta1) * g
    v = memoria["v"] = o.beta2 * memoria.get("v", 0) + (1 - o.beta2) * np.square(g)
    if w.ndim == 2:
        w *= 1 - tasa * o.weight_decay
    m = m / (1 - o.beta1**paso)  # las memorias empiezan en cero: se corrige
    w -= tasa * m / (np.sqrt(v / (1 - o.beta2**paso)) + 1e-8)


def muon(w: Array, g: Array, memoria: dict, tasa: float, o: Entrenamiento) -> None:
    """Inercia, y un paso que va igual de lejos en todas las direcciones de la matriz."""
    m = memoria["m"] = 0.95 * memoria.get("m", 0) + 0.05 * g
    w *= 1 - tasa * o.weight_decay
    w -= tasa * math.sqrt(max(1, w.shape[0] / w.shape[1])) * ortogonalizar(0.95 * m + 0.05 * g)


def ortogonalizar(matriz: Array) -> Array:
    """Llevar los valores singulares s cerca de 1: cinco veces 3.44 s − 4.78 s³ + 2.03 s⁵."""
    x = matriz.T if matriz.shape[0] > matriz.shape[1] else matriz
    x = x / (math.sqrt(np.square(x).sum()) + 1e-7)
    for _ in range(5):
        cuadrado = x @ x.T
        x = 3.4445 * x + (2.0315 * cuadrado @ cuadrado - 4.7750 * cuadrado) @ x
    return x.T if matriz.shape[0] > matriz.shape[1] else x


def adagrad(w: Array, filas: Array, g: Array, memoria: dict, tasa: float) -> None:
    """Cada vez que una fila de la tabla aprende, su paso siguiente es más corto."""
    suma = memoria.setdefault("suma", np.zeros(len(w), w.dtype))
    suma[filas] += np.square(g).mean(1)
    w[filas] -= tasa * g / np.sqrt(suma[filas] + 1e-20)[:, None]


def mover(p: Arrays, g: Arrays, tabla: tuple, memoria: dict, paso: int, o: Entrenamiento) -> None:
    """Un paso: las matrices de los bloques con Muon, la tabla con Adagrad, lo demás con AdamW."""
    sube = (paso + 1) / (o.warmup_iters + 1)
    baja = (o.max_iters - paso) / (o.decay_fraction * o.max_iters)
    factor = min(1, sube, baja)
    norma = math.sqrt(sum(np.square(gradiente).sum() for gradiente in g.values()))
    for nombre, gradiente in g.items():
        gradiente = gradiente * min(1, o.grad_clip / (norma + 1e-6))
        suya = memoria.setdefault(nombre, {})
        if nombre.startswith("blocks."):
            muon(p[nombre], gradiente, suya, factor * o.muon_learning_rate, o)
        else:
            adamw(p[nombre], gradiente, suya, factor * o.learning_rate, o)
    suya = memoria.setdefault("tabla", {})
    adagrad(p["ngram_embedding.weight"], *tabla, suya, factor * o.ngram_learning_rate)


# --- Entrenar y medir ---
def comienzos(n: int, T: int, semilla: int) -> Iterator[int]:
    """Dar dónde empieza cada ventana de un texto de n letras: todas, en otro orden cada vez."""
    for lectura in itertools.count():
        azar = generador(semilla, LOTES, lectura)
        lugares = azar.permutation((n - 1) // T) * T
        yield from (lugares + azar.integers(T)) % (n - T)


def entrenar(p: Arrays, ids: Array, modelo: Modelo, o: Entrenamiento) -> Iterator[float]:
    """Cambiar los parámetros paso a paso y dar la pérdida de cada lote."""
    memoria = {}
    lugares = comienzos(len(ids), modelo.block_size, o.seed)
    for paso in range(o.max_iters):
        primeros = np.array([next(lugares) for _ in range(o.batch_size)])
        ventanas = ids[primeros[:, None] + np.arange(modelo.block_size + 1)]  # (B, T + 1)
        logits, apuntes = adelante(p, ventanas[:, :-1], modelo)
        perdida, d_logits = entropia_cruzada(logits, ventanas[:, 1:])
        mover(p, *atras(p, d_logits, apuntes), memoria, paso, o)
        yield perdida


def validar(p: Arrays, ids: Array, modelo: Modelo) -> float:
    """Dar la pérdida media de un texto, (n,), leído ventana a ventana, en nats por carácter."""
    suma = 0.0
    for primero in range(0, len(ids) - 1, modelo.block_size):
        ventana = ids[None, primero : primero + modelo.block_size + 1]
        logits, _ = adelante(p, ventana[:, :-1], modelo)
        suma += entropia_cruzada(logits, ventana[:, 1:])[0] * logits.shape[1]
    return suma / (len(ids) - 1)


# --- Escribir y guardar ---
def escribir(p: Arrays, ids: Array, modelo: Modelo, n: int, temperatura: float = 1) -> Iterator:
    """Seguir un texto, (n,), letra a letra. Si el contexto se llena, se queda con un cuarto."""
    azar = generador(0, ESCRITURA, 0)
    contexto = list(ids[-modelo.block_size :])
    for _ in range(n):
        logits = adelante(p, np.array([contexto]), modelo)[0][0, -1].astype(np.float64)
        # La más probable vale 1, y la que no llega a 0.1 no sale; con temperatura 0, solo aquella.
        relativas = np.exp((logits - logits.max()) / max(temperatura, 1e-9))
        acumuladas = np.where(relativas < 0.1, 0, relativas).cumsum()
        contexto.append(int((acumuladas <= azar.random() * acumuladas[-1]).sum()))
        yield contexto[-1]
        if len(contexto) > modelo.block_size:
            contexto = contexto[-(modelo.block_size // 4) :]


def guardar(archivo: Path, p: Arrays, texto: str, modelo: Modelo, o: Entrenamiento) -> None:
    """Escribir un checkpoint: los parámetros, las opciones y la suma que los comprueba."""
    contenido = {"model": modelo._asdict(), "train": o._asdict(), "device": {}, "run": ""}
    contenido["progress"] = {"step": o.max_iters}
    contenido["characters"] = "".join(sorted(set(texto)))
    suma = hashlib.sha256(texto.encode()).hexdigest()
    contenido["corpus"] = {"name": "", "sha256": suma, "lengths": [len(texto)]}
    datos = {"format": "sancho-mini", "version": "5", "content": json.dumps(contenido)}
    comprobacion = hashlib.sha256(datos["content"].encode())
    tensores = {f"model.{nombre}": p[nombre] for nombre in sorted(p)}
    for nombre, tensor in tensores.items():
        comprobacion.update(f"{nombre} torch.{tensor.dtype} {tensor.shape}".encode())
        comprobacion.update(tensor.tobytes())
    datos["sha256"] = comprobacion.hexdigest()
    safetensors.numpy.save_file(tensores, archivo, datos)


def principal(libro: str = "data/quijote.txt") -> None:
    """Leer un libro, aprender de nueve décimos, guardar, medirse en el último y escribir."""
    texto, caracteres, ids = leer(Path(libro))
    de_entrenar, de_validar = np.split(ids, [len(ids) - len(ids) // 10])
    modelo = Modelo(vocab_size=len(caracteres))
    if len(de_entrenar) <= modelo.block_size:
        sys.exit(f"{libro} es demasiado corto: solo tiene {len(ids)} caracteres")
    o = Entrenamiento()
    pasos = math.ceil(LECTURAS * len(de_entrenar) / (modelo.block_size * o.batch_size))
    o = o._replace(max_iters=min(o.max_iters, pasos))
    p = parametros_nuevos(modelo, vocabulario(de_entrenar, modelo), generador(o.seed, INICIO))
    for paso, perdida in enumerate(entrenar(p, de_entrenar, modelo, o), 1):
        if paso % 20 == 0:
            print(f"paso {paso} de {o.max_iters}: {perdida:.3f} nats por carácter")
    guardar(Path("microsancho.safetensors"), p, texto, modelo, o)
    print(f"en la validación: {validar(p, de_validar, modelo):.4f} nats por carácter")
    for i in escribir(p, ids[-1:], modelo, 400):
        print(caracteres[i], end="", flush=True)


if __name__ == "__main__":
    principal(*sys.argv[1:2])
