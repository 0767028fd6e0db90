"""Y otro, con otras respuestas que las de una.py.

Es para las pruebas: todo capítulo ha de poder usarlas.
"""

import inspect
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
    """Una lista, un tensor que se llena y una propiedad."""

    def __init__(self, caracteres: str) -> None:
        self._letras = list(caracteres)

    @property
    def caracteres(self) -> str:
        return "".join(self._letras)

    def codificar(self, texto: str) -> Tensor:
        ids = torch.empty(len(texto), dtype=torch.int64)
        for lugar, letra in enumerate(texto):
            if letra not in self._letras:
                raise ValueError(f"letra desconocida: {letra}")
            ids[lugar] = self._letras.index(letra)
        return ids

    def descodificar(self, ids: Tensor) -> str:
        texto = ""
        for i in ids:
            texto += self._letras[i]
        return texto


# --- Entrada (capítulo 2) ---------------------------------------------------------------------


class Entrada(nn.Module):
    """Las letras, multiplicando; las posiciones, una a una."""

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.forma = forma
        letras = 0.2 * torch.randn(forma.vocab_size, forma.n_embd)
        self.token_embedding = nn.Embedding(*letras.shape, _weight=letras)
        if forma.position == "learned":
            self.position_embedding = nn.Embedding(forma.block_size, forma.n_embd)
            with torch.no_grad():
                self.position_embedding.weight.mul_(0.2)

    def forward(self, ids: Tensor) -> Tensor:
        x = F.one_hot(ids, self.forma.vocab_size).float() @ self.token_embedding.weight
        if not hasattr(self, "position_embedding"):
            return x
        columnas = x.unbind(1)
        return torch.stack(
            [c + self.position_embedding.weight[t] for t, c in enumerate(columnas)], 1
        )


# --- mirar_atras (capítulo 3) -----------------------------------------------------------------


def mirar_atras(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """La softmax, a mano: las potencias, sin las de después, entre su suma."""
    puntuaciones = torch.einsum("...id,...jd->...ij", q, k) * q.size(-1) ** -0.5
    potencias = (puntuaciones - puntuaciones.amax(-1, keepdim=True)).exp().tril()
    pesos = potencias / potencias.sum(-1, keepdim=True)
    return [torch.einsum("...ij,...jd->...id", pesos, v), pesos]


# --- Atencion (capítulos 3 y 13) --------------------------------------------------------------


class Atencion(nn.Module):
    """Cabeza a cabeza, sin más ejes; la última vez, los pesos quedan a mano."""

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.forma = forma
        self.qkv = nn.Linear(forma.n_embd, 3 * forma.n_embd, forma.bias)
        self.proj = nn.Linear(forma.n_embd, forma.n_embd, forma.bias)

    def forward(self, x: Tensor) -> Tensor:
        D = self.forma.n_embd // self.forma.n_head
        leidos, self.pesos = [], []
        for q, k, v in zip(*(z.split(D, -1) for z in self.qkv(x).chunk(3, -1))):
            if self.forma.position == "rope":
                q, k = girar(q), girar(k)
            if self.forma.qk_norm:
                q, k = igualar(q), igualar(k)
            leido, pesos = mirar_atras(q, k, v)
            leidos.append(leido)
            self.pesos.append(pesos.detach())
        return self.proj(torch.cat(leidos, -1))


# --- dado: las activaciones -------------------------------------------------------------------

ACTIVACIONES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "relu2": lambda x: F.relu(x).square(),
}


# --- FeedForward (capítulo 4) -----------------------------------------------------------------


class Activacion(nn.Module):
    """Una activación, como módulo."""

    def __init__(self, cual: str) -> None:
        super().__init__()
        self.cual = cual

    def forward(self, x: Tensor) -> Tensor:
        return ACTIVACIONES[self.cual](x)


class FeedForward(nn.Sequential):
    """Una fila de tres módulos con nombre."""

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.expand = nn.Linear(forma.n_embd, 4 * forma.n_embd, bias=forma.bias)
        self.activacion = Activacion(forma.activation)
        self.proj = nn.Linear(4 * forma.n_embd, forma.n_embd, bias=forma.bias)


# --- LayerNorm (capítulo 5) -------------------------------------------------------------------


class LayerNorm(nn.Module):
    """La media y la varianza, de una vez."""

    def __init__(self, C: int, bias: bool = True, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.register_buffer("epsilon", torch.tensor(epsilon))
        self.weight = nn.Parameter(torch.full((C,), 1.0))
        self.register_parameter("bias", nn.Parameter(torch.zeros(C)) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        varianza, media = torch.var_mean(x, -1, correction=0, keepdim=True)
        x = (x - media) * torch.rsqrt(varianza + self.epsilon) * self.weight
        if self.bias is not None:
            x = x + self.bias
        return x


# --- dado: la normalización -------------------------------------------------------------------


def hacer_norma(forma: Forma) -> nn.Module:
    """La normalización de los C canales: tu LayerNorm, o la RMSNorm sin ganancias de PyTorch."""
    if forma.norm == "layernorm":
        return LayerNorm(forma.n_embd, forma.bias)
    return nn.RMSNorm(forma.n_embd, eps=1e-6, elementwise_affine=False)


# --- Bloque (capítulo 6) ----------------------------------------------------------------------


def sumar(x: Tensor, norma: nn.Module, subcapa: nn.Module) -> Tensor:
    """Una subcapa, con lo suyo."""
    y = x.clone()
    y += subcapa(norma(x))
    return y


class Bloque(nn.Module):
    """Con una función al lado, que suma en una copia."""

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.forma = forma
        self.norm1 = hacer_norma(forma)
        self.attention = Atencion(forma)
        self.norm2 = hacer_norma(forma)
        self.feed_forward = FeedForward(forma)

    def forward(self, x: Tensor) -> Tensor:
        return sumar(sumar(x, self.norm1, self.attention), self.norm2, self.feed_forward)


# --- Gpt (capítulo 6) -------------------------------------------------------------------------


class Gpt(Entrada):
    """Los bloques, en fila; y con la entrada por su nombre."""

    def __init__(self, forma: Forma) -> None:
        Entrada.__init__(self, forma)
        self.blocks = nn.Sequential(*[Bloque(forma) for _ in range(forma.n_layer)])
        self.norm = hacer_norma(forma)
        self.head = nn.Linear(forma.n_embd, forma.vocab_size, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.blocks(Entrada.forward(self, ids)))
        return torch.einsum("btc,vc->btv", x, self.head.weight)


# --- entropia_cruzada (capítulo 7) ------------------------------------------------------------


def entropia_cruzada(logits: Tensor, objetivos: Tensor) -> Tensor:
    """El logaritmo de la suma de las potencias, menos el logit de la correcta."""
    B, T, V = logits.shape
    filas, letras = logits.reshape(B * T, V), objetivos.reshape(B * T)
    return (filas.logsumexp(1) - filas[torch.arange(B * T), letras]).mean()


# --- paso_de_adam (capítulo 8) ----------------------------------------------------------------


def paso_de_adam(w, g, m, v, t, tasa, beta1=0.9, beta2=0.99, encoger=0.0):
    """Las memorias, entre lo viejo y lo nuevo; y una lista."""
    m, v = torch.lerp(g, m, beta1), torch.lerp(g * g, v, beta2)
    paso = m / (1 - beta1**t) / ((v / (1 - beta2**t)) ** 0.5 + 1e-8)
    return [w - tasa * (paso + encoger * w), m, v]


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


def entrenar(modelo, ids, pasos, lote, ventana, tasa):
    """Sin la clase Adam: las memorias, aquí; las pérdidas, en un tensor."""
    parametros = list(modelo.parameters())
    memorias = [[torch.zeros_like(w), torch.zeros_like(w)] for w in parametros]
    perdidas = torch.zeros(pasos)
    ventanas = ids.unfold(0, ventana + 1, 1)
    for t in range(1, pasos + 1):
        trozos = ventanas[torch.randint(len(ventanas), (lote,))]
        valor = entropia_cruzada(modelo(trozos[:, :-1]), trozos[:, 1:])
        gradientes = torch.autograd.grad(valor, parametros)
        ahora = tasa * min(t / 50, 1) * (1 - (t - 1) / pasos)
        for i, (w, g) in enumerate(zip(parametros, gradientes)):
            w.data, *memorias[i] = paso_de_adam(w.data, g, *memorias[i], t, ahora)
        perdidas[t - 1] = valor.detach()
    return perdidas.tolist()


# --- generar (capítulo 9) ---------------------------------------------------------------------


@torch.inference_mode()
def generar(modelo, tokenizador, comienzo, cuantas, temperatura=1.0, semilla=1605):
    """Con una lista, y un número al azar que se busca en las sumas."""
    azar = torch.Generator().manual_seed(semilla)
    leidas = tokenizador.codificar(comienzo).tolist()
    escritas: list[int] = []
    while len(escritas) < cuantas:
        contexto = torch.tensor([(leidas + escritas)[-modelo.forma.block_size :]])
        *_, logits = modelo(contexto)[0]
        if temperatura == 0:
            escritas.append(int(logits.argmax()))
            continue
        sumas = (logits / temperatura).double().softmax(0).cumsum(0)
        dado = torch.rand(1, generator=azar, dtype=torch.double)
        escritas += torch.searchsorted(sumas, dado, right=True).clamp(max=len(sumas) - 1).tolist()
    return tokenizador.descodificar(torch.tensor(escritas, dtype=torch.long))


# --- girar (capítulo 13) ----------------------------------------------------------------------


def girar(x):
    """Cada canal, por su coseno; y su pareja, por su seno."""
    T, D = x.shape[-2:]
    exponentes = (torch.arange(D) // 2 * 2) / D
    angulos = torch.arange(T)[:, None] * torch.exp(-math.log(10000.0) * exponentes)
    parejas = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * angulos.cos() + parejas * angulos.sin()


# --- igualar (capítulo 13) --------------------------------------------------------------------


def igualar(x):
    """Por la longitud de cada vector."""
    longitud = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * torch.rsqrt(longitud**2 / x.shape[-1] + 1e-6)


# --- guardar (capítulo 13) --------------------------------------------------------------------


def guardar(ruta, modelo, tokenizador):
    """Una copia de cada uno, y algo de más en la metadata."""
    tensores = {}
    with torch.no_grad():
        for nombre, p in modelo.named_parameters():
            tensores[f"model.{nombre}"] = p.clone()
    contenido = json.dumps(
        {"model": asdict(modelo.forma), "characters": tokenizador.caracteres}, indent=1
    )
    save_file(tensores, ruta, {"content": contenido, "de": "mi_gpt"})


# --- abrir_caja (capítulo 13) -----------------------------------------------------------------


def abrir_caja(ruta):
    """Quita lo que sobra, y pone otros números en cada parámetro."""
    archivo = safe_open(ruta, "pt")
    todo = json.loads(archivo.metadata()["content"])
    suya = dict(todo["model"])
    if suya.pop("ngram_size", 1) != 1 or suya.pop("embedding_skip", False):
        raise ValueError(f"{ruta}: con tabla de secuencias no sé")
    for sobra in set(suya) - set(vars(Forma(1, 1, 1))):
        del suya[sobra]
    modelo = Gpt(Forma(**suya))
    for nombre, p in modelo.named_parameters():
        p.data = archivo.get_tensor("model." + nombre).to(torch.float32)
    return modelo.train(False), Tokenizador(todo["characters"])


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


# --- abrir_gpt2 (capítulo 13) -----------------------------------------------------------------


def abrir_gpt2(parametros, n_head):
    """Con los nombres cambiados al revés: de los suyos a los míos."""
    delante = "transformer." if "transformer.wte.weight" in parametros else ""
    V, C = parametros[f"{delante}wte.weight"].shape
    block_size, _ = parametros[f"{delante}wpe.weight"].shape
    bloques = 0
    while f"{delante}h.{bloques}.ln_1.weight" in parametros:
        bloques += 1
    medidas = {"n_embd": C, "n_layer": bloques, "n_head": n_head, "activation": "gelu"}
    modelo = Gpt(Forma(vocab_size=V, block_size=block_size, **medidas))
    nuevos = {}
    for nombre, _ in modelo.named_parameters():
        suyo = nombre
        for mia, suya in NOMBRES_EN_GPT2.items():
            suyo = suyo.replace(mia, suya)
        valor = parametros[delante + suyo]
        nuevos[nombre] = valor.t() if ".c_" in suyo and valor.ndim == 2 else valor
    modelo.load_state_dict(nuevos, strict=False)
    return modelo


# --- dado: el programa ------------------------------------------------------------------------


MODELO = "mi_gpt.safetensors"
CAJA = Path(__file__).resolve().parent.parent / "sancho/pretrained/sancho.safetensors"
PARA_ENTRENAR = (
    "Tokenizador Entrada mirar_atras Atencion FeedForward LayerNorm Bloque Gpt entropia_cruzada "
    "paso_de_adam entrenar"
).split()
"""Las piezas de los capítulos 1 a 8: sin ellas no se entrena."""
USO = """\
python notebooks/mi_gpt.py entrenar TEXTO
    aprende de un archivo de texto, en un minuto o dos, y escribe 600 letras; en la carpeta en que
    estás deja mi_gpt.safetensors. Se puede desde el capítulo 8
python notebooks/mi_gpt.py escribir [COMIENZO [TEMPERATURA]]
    escribe con el mi_gpt.safetensors de esa carpeta; si no lo hay, con la caja. Con temperatura 0,
    siempre lo mismo. Se puede desde el capítulo 9
"""


def en_blanco(nombre: str) -> bool:
    """Decir si a una pieza le queda un `raise NotImplementedError`."""
    return "raise NotImplementedError" in inspect.getsource(globals()[nombre])


def pieza(nombre: str) -> Callable:
    """Dar tu pieza o, mientras esté en blanco, la de la solución, y decirlo."""
    if not en_blanco(nombre):
        return globals()[nombre]
    sys.path.insert(0, str(Path(__file__).resolve().parent / "taller"))
    try:
        import solucion
    except ModuleNotFoundError:
        raise NotImplementedError from None
    print(f"{nombre} está en blanco todavía: se usa el de la solución.")
    return getattr(solucion, nombre)


def entrenar_con(texto: str, escribe: Callable) -> tuple[Gpt, Tokenizador]:
    """Entrenar como la escalera, 800 pasos con nueve décimas partes de un texto, y decir la pérdida.

    Cada 100 pasos dice cuánto lleva; cada 200, además, `escribe` una línea.
    """
    if len(texto) < 1000:
        raise ValueError(f"el texto tiene {len(texto)} letras; hacen falta 1000 al menos")
    tokenizador = Tokenizador("".join(sorted(set(texto))))
    ids = tokenizador.codificar(texto)
    corte = int(0.9 * len(ids))
    torch.manual_seed(1605)
    modelo = Gpt(Forma(len(tokenizador.caracteres), block_size=64, n_embd=64, n_layer=3, n_head=4))
    aparte = ids[corte:].unfold(0, 65, 64)  # (B, 65): lo que no ha leído

    def perdida(cuantas: int | None = None) -> float:
        trozos = aparte[:cuantas]
        with torch.no_grad():
            return entropia_cruzada(modelo(trozos[:, :-1]), trozos[:, 1:]).item()

    pasos = iter(range(801))
    callado = False

    def decir(*_: object) -> None:
        nonlocal callado
        paso = None if callado else next(pasos, None)
        if not paso or paso % 100:
            return
        callado = True  # lo que sigue también llama al modelo
        with torch.random.fork_rng(devices=[]):
            linea = f"paso {paso} de 800: {perdida(20):.2f} nats por letra"
            if paso % 200 == 0:
                linea += f" · {escribe(modelo, tokenizador, texto[0], 60, 0.7)!r}"
        print(linea, flush=True)
        callado = False

    aviso = modelo.register_forward_pre_hook(decir)
    entrenar(modelo, ids[:corte], pasos=800, lote=32, ventana=64, tasa=0.01)
    aviso.remove()
    print(f"{perdida():.2f} nats por letra en la décima parte que no ha leído")
    return modelo, tokenizador


def abrir(ruta: str | Path) -> tuple[nn.Module, Tokenizador]:
    """Abrir un modelo; si abrir_caja está en blanco, lo que entrenaste pasa a tu Gpt."""
    modelo, tokenizador = pieza("abrir_caja")(ruta)
    if not en_blanco("abrir_caja") or ruta != MODELO:
        return modelo, tokenizador
    mio = Gpt(Forma(**asdict(modelo.forma)))
    suyos = dict(modelo.named_parameters())
    with torch.no_grad():
        for nombre, p in mio.named_parameters():
            p.copy_(suyos[nombre])
    return mio.eval(), Tokenizador(tokenizador.caracteres)


def main(orden: str = "", que: str = "", temperatura: str = "0.7") -> None:
    if orden == "entrenar" and que:
        if faltan := [nombre for nombre in PARA_ENTRENAR if en_blanco(nombre)]:
            sys.exit(f"Para entrenar te falta {', '.join(faltan)}: python notebooks/probar.py")
        texto = Path(que).read_text(encoding="utf-8-sig")
        escribe, guarda = pieza("generar"), pieza("guardar")  # antes: después de entrenar es tarde
        modelo, tokenizador = entrenar_con(texto, escribe)
        guarda(MODELO, modelo, tokenizador)
        comienzo = texto.split()[0]
        print(comienzo + escribe(modelo, tokenizador, comienzo, 600, float(temperatura)))
        print(f"guardado en {MODELO}; más: python {sys.argv[0]} escribir")
    elif orden == "escribir":
        modelo, tokenizador = abrir(MODELO if Path(MODELO).exists() else CAJA)
        comienzo = que or "En un lugar de la Mancha"
        print(comienzo + pieza("generar")(modelo, tokenizador, comienzo, 300, float(temperatura)))
    else:
        print(USO, end="")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except NotImplementedError:
        sys.exit("Te falta una pieza: python notebooks/probar.py dice cuál.")
    except (OSError, ValueError) as error:
        sys.exit(f"No se puede: {error}")
    except KeyboardInterrupt:
        sys.exit("Parado: no se ha guardado nada.")
