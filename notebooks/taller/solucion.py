"""La solución de mi_gpt.py: el programa entero, para quien ya lo ha intentado.

Lo que va al final de una línea, «capítulo 10», se añade en ese capítulo.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

try:
    import torch
except ModuleNotFoundError:
    sys.exit("este programa necesita PyTorch; antes de empezarlo: source .venv/bin/activate")
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn


@dataclass(frozen=True)
class Forma:
    """Las medidas de un GPT, y sus detalles. Los de fábrica son los de GPT-2, con ReLU."""

    vocab_size: int  # V, cuántas letras conoce
    block_size: int  # cuántas lee como mucho
    n_embd: int  # C, los canales de cada vector
    n_layer: int = 1  # cuántos bloques
    n_head: int = 1  # H, las cabezas de cada uno
    bias: bool = True
    activation: str = "relu"  # o "gelu", la de GPT-2, o "relu2"
    norm: str = "layernorm"  # o "rmsnorm"
    position: str = "learned"  # o "rope"
    qk_norm: bool = False


# --- Tokenizador (capítulo 1) -----------------------------------------------------------------


class Tokenizador:
    """De letras a números y al revés: el de una letra es su lugar en `caracteres`."""

    def __init__(self, caracteres: str) -> None:
        """Guarda los caracteres que conoce, en self.caracteres."""
        self.caracteres = caracteres
        self.numero = {letra: i for i, letra in enumerate(caracteres)}

    def codificar(self, texto: str) -> Tensor:
        """Los números de las letras, (T,), enteros (torch.long).

        Si una no está, ValueError, con ella en el mensaje.
        """
        for letra in texto:
            if letra not in self.numero:
                raise ValueError(f"{letra!r} no está entre los caracteres que conozco")
        return torch.tensor([self.numero[letra] for letra in texto], dtype=torch.long)

    def descodificar(self, ids: Tensor) -> str:
        """Las letras de unos números, (T,)."""
        return "".join(self.caracteres[i] for i in ids.tolist())


# --- Entrada (capítulo 2) ---------------------------------------------------------------------


class Entrada(nn.Module):
    """El vector de cada letra, más el de su posición.

    token_embedding: nn.Embedding, V filas de C canales. position_embedding: otra, block_size filas;
    solo si forma.position es "learned". Nacen al azar (nn.init.normal_), con desviación típica 0.2.
    Guarda además la forma, en self.forma.
    """

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.forma = forma
        self.token_embedding = nn.Embedding(forma.vocab_size, forma.n_embd)
        nn.init.normal_(self.token_embedding.weight, std=0.2)
        if forma.position == "learned":
            self.position_embedding = nn.Embedding(forma.block_size, forma.n_embd)
            nn.init.normal_(self.position_embedding.weight, std=0.2)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, C), con T de 1 a block_size."""
        x = self.token_embedding(ids)  # (B, T, C)
        if self.forma.position == "learned":
            x = x + self.position_embedding.weight[: ids.shape[1]]
        return x


# --- mirar_atras (capítulo 3) -----------------------------------------------------------------


def mirar_atras(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Una cabeza de atención, con su escala y su máscara causal.

    q, k y v: (…, T, D). Devuelve lo leído, (…, T, D), y los pesos, (…, T, T).
    """
    T, D = q.shape[-2:]
    puntuaciones = q @ k.mT / math.sqrt(D)  # (…, T, T)
    futuro = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1)
    pesos = puntuaciones.masked_fill(futuro, -math.inf).softmax(-1)
    return pesos @ v, pesos


# --- Atencion (capítulos 3½ y 10) -------------------------------------------------------------


class Atencion(nn.Module):
    """Atención de varias cabezas: cada posición mira a las anteriores y a sí misma.

    qkv: nn.Linear de C a 3C; salen las consultas de todas las cabezas, después las claves y después
    los valores. proj: nn.Linear de C a C. Con sesgo o sin él, según forma.bias.
    """

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.forma = forma
        self.qkv = nn.Linear(forma.n_embd, 3 * forma.n_embd, bias=forma.bias)
        self.proj = nn.Linear(forma.n_embd, forma.n_embd, bias=forma.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C): partir en cabezas, mirar_atras con cada una, juntarlas y proj.

        En el capítulo 10: si forma.position es "rope", las consultas y las claves se giran; después,
        si forma.qk_norm, se igualan.
        """
        B, T, C = x.shape
        H = self.forma.n_head
        qkv = self.qkv(x).view(B, T, 3, H, C // H)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # con los ejes en ese orden; salen tres (B, H, T, D)
        if self.forma.position == "rope":  # capítulo 10
            q, k = girar(q), girar(k)  # capítulo 10
        if self.forma.qk_norm:  # capítulo 10
            q, k = igualar(q), igualar(k)  # capítulo 10
        leido, _ = mirar_atras(q, k, v)  # (B, H, T, D)
        return self.proj(leido.transpose(1, 2).reshape(B, T, C))


# --- dado: las activaciones -------------------------------------------------------------------

ACTIVACIONES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "relu2": lambda x: F.relu(x).square(),
}


# --- FeedForward (capítulo 4) -----------------------------------------------------------------


class FeedForward(nn.Module):
    """Ensanchar cuatro veces, activar y volver: cada posición a solas.

    expand: nn.Linear de C a 4C. proj: nn.Linear de 4C a C. Con sesgo o sin él, según forma.bias.
    """

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.activacion = ACTIVACIONES[forma.activation]
        self.expand = nn.Linear(forma.n_embd, 4 * forma.n_embd, bias=forma.bias)
        self.proj = nn.Linear(4 * forma.n_embd, forma.n_embd, bias=forma.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(…, C) -> (…, C). La activación es ACTIVACIONES[forma.activation]: de fábrica, ReLU."""
        return self.proj(self.activacion(self.expand(x)))


# --- LayerNorm (capítulo 5) -------------------------------------------------------------------


class LayerNorm(nn.Module):
    """LayerNorm: cada vector del último eje, con media 0 y varianza 1, por γ y más β.

    weight: γ, un nn.Parameter de C unos. bias: β, de C ceros, o None si `bias` es falso.
    """

    def __init__(self, C: int, bias: bool = True, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(C))
        self.bias = nn.Parameter(torch.zeros(C)) if bias else None
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """(…, C) -> (…, C).

        Se resta la media y se divide entre la raíz de la varianza (la poblacional) más épsilon.
        """
        desvios = x - x.mean(-1, keepdim=True)
        varianza = desvios.square().mean(-1, keepdim=True)
        x = self.weight * desvios / (varianza + self.epsilon).sqrt()
        return x if self.bias is None else x + self.bias


# --- dado: la normalización -------------------------------------------------------------------


def hacer_norma(forma: Forma) -> nn.Module:
    """La normalización de los C canales: tu LayerNorm, o la RMSNorm sin ganancias de PyTorch."""
    if forma.norm == "layernorm":
        return LayerNorm(forma.n_embd, forma.bias)
    return nn.RMSNorm(forma.n_embd, eps=1e-6, elementwise_affine=False)


# --- Bloque (capítulo 6) ----------------------------------------------------------------------


class Bloque(nn.Module):
    """Las dos subcapas, cada una con su normalización delante y sumada a lo que había.

    norm1 y norm2: las que da hacer_norma(forma). attention: Atencion. feed_forward: FeedForward.
    """

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.norm1 = hacer_norma(forma)
        self.attention = Atencion(forma)
        self.norm2 = hacer_norma(forma)
        self.feed_forward = FeedForward(forma)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C). El x que entra no se cambia."""
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


# --- Gpt (capítulo 6) -------------------------------------------------------------------------


class Gpt(Entrada):
    """El modelo entero: lo que hace Entrada, y lo que va detrás.

    blocks: nn.ModuleList, n_layer bloques. norm: la que da hacer_norma(forma). head: la cabeza de
    salida, nn.Linear de C a V, sin sesgo.
    """

    def __init__(self, forma: Forma) -> None:
        super().__init__(forma)
        self.blocks = nn.ModuleList(Bloque(forma) for _ in range(forma.n_layer))
        self.norm = hacer_norma(forma)
        self.head = nn.Linear(forma.n_embd, forma.vocab_size, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, V): los logits de la letra que sigue a cada una."""
        x = super().forward(ids)  # (B, T, C)
        for bloque in self.blocks:
            x = bloque(x)
        return self.head(self.norm(x))


# --- entropia_cruzada (capítulo 7) ------------------------------------------------------------


def entropia_cruzada(logits: Tensor, objetivos: Tensor) -> Tensor:
    """La pérdida: la media de −ln p de las letras correctas, (B, T, V) y (B, T) -> ()."""
    log_p = logits.log_softmax(-1)  # (B, T, V)
    return -log_p.gather(-1, objetivos[..., None]).mean()


# --- paso_de_adam (capítulo 8) ----------------------------------------------------------------


def paso_de_adam(
    w: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    t: int,
    tasa: float,
    beta1: float = 0.9,
    beta2: float = 0.99,
    encoger: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """El paso t (desde 1) de AdamW: los parámetros y las dos memorias nuevas, (w, m, v).

    w: los parámetros; g: su gradiente; m y v: las memorias de g y de su cuadrado. Todos tienen la
    misma forma, y ninguno se cambia. Épsilon es 1e-8.
    """
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    w = w - tasa * encoger * w
    w = w - tasa * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + 1e-8)
    return w, m, v


# --- dado: el optimizador ---------------------------------------------------------------------


class Adam:
    """Un optimizador: da tu paso con cada parámetro, y guarda sus dos memorias."""

    def __init__(self, parametros: Iterable[Tensor], tasa: float) -> None:
        self.parametros = list(parametros)
        self.tasa = tasa  # se puede cambiar antes de cada paso
        self.t = 0
        self.memorias = [(torch.zeros_like(w), torch.zeros_like(w)) for w in self.parametros]

    def zero_grad(self) -> None:
        for w in self.parametros:
            w.grad = None

    @torch.no_grad()
    def step(self) -> None:
        self.t += 1
        for i, w in enumerate(self.parametros):
            if w.grad is not None:
                nuevo, *self.memorias[i] = paso_de_adam(
                    w, w.grad, *self.memorias[i], self.t, self.tasa
                )
                w.copy_(nuevo)


# --- entrenar (capítulo 8) --------------------------------------------------------------------


def entrenar(
    modelo: nn.Module, ids: Tensor, pasos: int, lote: int, ventana: int, tasa: float
) -> list[float]:
    """Entrenar un modelo, que pasa de ids (B, T) a logits (B, T, V), y dar la pérdida de cada paso.

    ids: el texto, (N,). Cada paso lee `lote` ventanas de `ventana` letras, que empiezan al azar. La
    tasa sube en los 50 primeros pasos y a la vez baja en línea recta hasta cero: en el paso t, desde
    1, es tasa · min(t / 50, 1) · (1 − (t − 1) / pasos). De mover los parámetros se encarga Adam.
    """
    optimizador = Adam(modelo.parameters(), tasa)
    perdidas = []
    for t in range(1, pasos + 1):
        comienzos = torch.randint(len(ids) - ventana, (lote, 1))
        trozos = ids[comienzos + torch.arange(ventana + 1)]  # (B, T + 1)
        valor = entropia_cruzada(modelo(trozos[:, :-1]), trozos[:, 1:])
        optimizador.zero_grad()
        valor.backward()
        optimizador.tasa = tasa * min(t / 50, 1) * (1 - (t - 1) / pasos)
        optimizador.step()
        perdidas.append(valor.item())
    return perdidas


# --- generar (capítulo 9) ---------------------------------------------------------------------


@torch.inference_mode()
def generar(
    modelo: nn.Module,
    tokenizador: Tokenizador,
    comienzo: str,
    cuantas: int,
    temperatura: float = 1.0,
    semilla: int = 1605,
) -> str:
    """Las `cuantas` letras con que el modelo sigue el comienzo, que tiene una al menos.

    Con temperatura 0, siempre la más probable; con otra, se dividen por ella los logits y se sortea
    (torch.multinomial, con un torch.Generator que lleva la semilla). De lo escrito, el modelo lee
    como mucho las modelo.forma.block_size últimas letras. Con otro tokenizador, una «letra» de estas
    puede ser un trozo de varias: se cuentan los números de codificar, y no los caracteres.
    """
    azar = torch.Generator().manual_seed(semilla)
    ids = tokenizador.codificar(comienzo)
    leidas = len(ids)
    for _ in range(cuantas):
        logits = modelo(ids[None, -modelo.forma.block_size :])[0, -1]  # (V,)
        if temperatura == 0:
            nueva = logits.argmax(keepdim=True)
        else:
            probabilidades = (logits / temperatura).softmax(-1)
            nueva = torch.multinomial(probabilidades, 1, generator=azar)
        ids = torch.cat((ids, nueva))
    return tokenizador.descodificar(ids[leidas:])


# --- girar (capítulo 10) ----------------------------------------------------------------------


def girar(x: Tensor) -> Tensor:
    """Posiciones rotatorias (RoPE): girar cada vector según su posición.

    x: (…, T, D). Los canales van por parejas, 2j y 2j + 1. En la posición t, la pareja (a, b) gira el
    ángulo θ = t / 10000^(2j / D): queda en (a · cos θ − b · sen θ, a · sen θ + b · cos θ).
    """
    T, D = x.shape[-2:]
    frecuencias = 10000.0 ** (-torch.arange(0, D, 2, device=x.device) / D)  # (D/2,)
    angulos = torch.outer(torch.arange(T, device=x.device), frecuencias)  # (T, D/2)
    coseno, seno = angulos.cos(), angulos.sin()
    a, b = x[..., 0::2], x[..., 1::2]  # (…, T, D/2)
    girado = torch.stack((a * coseno - b * seno, a * seno + b * coseno), -1)
    return girado.flatten(-2)


# --- igualar (capítulo 10) --------------------------------------------------------------------


def igualar(x: Tensor) -> Tensor:
    """QK-norm: la RMSNorm de cada vector, (…, D) -> (…, D), sin ganancias y con épsilon 1e-6."""
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


# --- guardar (capítulo 10) --------------------------------------------------------------------


def guardar(ruta: str | Path, modelo: Gpt, tokenizador: Tokenizador) -> None:
    """Guardar un modelo y sus letras en un archivo que abrir_caja abre.

    save_file(tensores, ruta, metadata) lo escribe. tensores: los de modelo.named_parameters(), con
    "model." delante del nombre. metadata: {"content": un texto en JSON} con dos cosas: "characters",
    las letras, y "model", la forma (asdict(modelo.forma)).
    """
    tensores = {f"model.{nombre}": p.detach() for nombre, p in modelo.named_parameters()}
    contenido = {"characters": tokenizador.caracteres, "model": asdict(modelo.forma)}
    save_file(tensores, ruta, {"content": json.dumps(contenido)})


# --- abrir_caja (capítulo 10) -----------------------------------------------------------------


def abrir_caja(ruta: str | Path) -> tuple[Gpt, Tokenizador]:
    """El modelo de un archivo, tuyo o de train.py, y su tokenizador: así se abre la caja.

    safe_open(ruta, "pt") abre el archivo, que es como lo escribe guardar. Su "model" trae además
    otras cosas, que sobran. get_tensor(nombre) da cada tensor; puede venir en 16 bits: .float(). El
    modelo se devuelve con .eval(), que apaga lo que solo sirve para entrenar.
    Se abren la caja y `classic`. Si el archivo dice ngram_size mayor que 1 o embedding_skip, como
    `mini`, ValueError: tiene una tabla de secuencias, que tu Gpt no tiene.
    """
    with safe_open(ruta, "pt") as archivo:
        contenido = json.loads(archivo.metadata()["content"])
        suya = contenido["model"]
        if suya.get("ngram_size", 1) > 1 or suya.get("embedding_skip"):
            raise ValueError(f"{ruta} tiene una tabla de secuencias, y este Gpt no")
        forma = Forma(**{campo: suya[campo] for campo in Forma.__annotations__})
        modelo = Gpt(forma)
        with torch.no_grad():
            for nombre, p in modelo.named_parameters():
                p.copy_(archivo.get_tensor(f"model.{nombre}").float())
    return modelo.eval(), Tokenizador(contenido["characters"])


# --- dado: los nombres de GPT-2 ---------------------------------------------------------------

NOMBRES_EN_GPT2 = {
    "token_embedding.": "wte.",
    "position_embedding.": "wpe.",
    "blocks.": "h.",
    "norm1.": "ln_1.",
    "attention.qkv.": "attn.c_attn.",
    "attention.proj.": "attn.c_proj.",
    "norm2.": "ln_2.",
    "feed_forward.expand.": "mlp.c_fc.",
    "feed_forward.proj.": "mlp.c_proj.",
    "norm.": "ln_f.",
    "head.": "wte.",
}
"""Cómo llama GPT-2 a cada parte. Su cabeza de salida es la tabla del embedding."""


# --- abrir_gpt2 (capítulo 10) -----------------------------------------------------------------


def abrir_gpt2(parametros: dict[str, Tensor], n_head: int) -> Gpt:
    """Tu modelo, con los parámetros de un GPT-2.

    Sus nombres son los de NOMBRES_EN_GPT2, a veces con "transformer." delante. Las medidas las dicen
    sus tablas: "wte.weight" es (V, C), "wpe.weight" es (block_size, C), y hay tantos bloques como
    "h.0.ln_1.weight", "h.1.ln_1.weight"… GPT-2 usa GELU, y guarda traspuestas las matrices cuyo
    nombre lleva ".c_".
    """
    suyos = {nombre.removeprefix("transformer."): valor for nombre, valor in parametros.items()}
    V, C = suyos["wte.weight"].shape
    bloques = sum(nombre.endswith("ln_1.weight") for nombre in suyos)
    forma = Forma(V, len(suyos["wpe.weight"]), C, bloques, n_head, activation="gelu")
    modelo = Gpt(forma)
    with torch.no_grad():
        for nombre, p in modelo.named_parameters():
            for mia, suya in NOMBRES_EN_GPT2.items():
                nombre = nombre.replace(mia, suya)
            es_matriz = ".c_" in nombre and nombre.endswith("weight")
            p.copy_(suyos[nombre].T if es_matriz else suyos[nombre])
    return modelo.eval()


# --- dado: el programa ------------------------------------------------------------------------

if __name__ == "__main__":
    taller = Path(__file__).resolve().parent / "taller"
    if not taller.is_dir():
        sys.exit(
            "Aquí falta la carpeta taller/: para entrenar y escribir, devuelve la hoja a notebooks/."
        )
    sys.path.insert(0, str(taller))
    import mi_escalera

    mi_escalera.programa(Path(__file__), *sys.argv[1:])
