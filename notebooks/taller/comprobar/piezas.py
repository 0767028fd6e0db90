"""Las comprobaciones de las piezas de mi_gpt.py: una por pieza, la del capítulo y la de probar.py.

Cada una recibe el módulo con la pieza y las que esta usa. Compara lo que da, y sus gradientes, con lo
mismo calculado aparte y con todas las medidas que la pieza lee; no mira cómo está escrita. Protesta
con el primer valor que no es el que debe y, si la tabla de ideas.py sabe por qué, con la idea delante.
"""

import json
import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call

from comprobar.ideas import (
    BORRA_ANTES,
    DOS_SOFTMAX,
    NO_OLVIDA,
    SIN_PASO,
    distintos,
    iguales,
    nombrar,
)

Medidas = dict[str, tuple[int, ...]]
"""La forma de cada parámetro, por su nombre."""
Valor = int | float | bool | str

# --- con qué se comprueba ---------------------------------------------------------------------


def forma(mio: ModuleType, **otras: Valor):
    """Una forma pequeña, con las opciones dadas."""
    medidas = {"vocab_size": 11, "block_size": 7, "n_embd": 12, "n_layer": 2, "n_head": 2}
    return mio.Forma(**(medidas | otras))


def al_azar(*ejes: int) -> Tensor:
    return torch.randn(ejes, generator=torch.Generator().manual_seed(1605))


def letras_al_azar(V: int, *ejes: int) -> Tensor:
    return torch.randint(V, ejes, generator=torch.Generator().manual_seed(1605))


def de_tres_tamanos(epsilon: float, *ejes: int) -> Tensor:
    """Tres textos: de uno, una normalización ve la épsilon; de los otros, apenas."""
    return al_azar(3, *ejes) * torch.tensor([math.sqrt(epsilon), 1, 30]).view(3, *(1 for _ in ejes))


@torch.no_grad()
def sortear(modulo: nn.Module, std: float = 0.3) -> nn.Module:
    """Dar a todos los parámetros valores al azar, para que ninguno pase inadvertido."""
    azar = torch.Generator().manual_seed(1605)
    for parametro in modulo.parameters():
        parametro.normal_(0, std, generator=azar)
    return modulo


@contextmanager
def caso(cual: str) -> Iterator[None]:
    """Si lo de dentro se detiene, se dirá en qué caso."""
    try:
        yield
    except Exception as error:
        error.caso = f"{cual}, " if cual else ""
        raise


@contextmanager
def si_se_detiene(motivo: str, error: type[Exception], con: str = "") -> Iterator[None]:
    """Protestar con un motivo si lo de dentro se detiene con ese error, que dice `con`."""
    try:
        yield
    except error as levantado:
        if con not in str(levantado):
            raise
        raise AssertionError(motivo) from None


def en_que_caso(opciones: dict[str, Valor], *mas: str) -> str:
    """Decir unas opciones: «con n_head = 2 y bias = False»."""
    dichas = [f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in opciones.items()]
    *primeras, ultima = [*dichas, *mas]
    return f"con {', '.join(primeras)} y {ultima}" if primeras else f"con {ultima}"


# --- lo que se pide ---------------------------------------------------------------------------


def debe_dar(
    dado: object,
    debido: Tensor,
    con: str = "",
    de_que: str = "",
    por_que: Callable[[], str] = str,
) -> None:
    """Protestar si algo dado no es lo debido, con el primer valor en que no lo es.

    con: en qué caso; de_que: cómo se llama lo dado; por_que: la idea, si se sabe, o nada.
    """
    caso_y_nombre = f"{con}, {de_que}".strip(", ")
    tiene_forma(dado, tuple(debido.shape), f"{caso_y_nombre}{', ' if caso_y_nombre else ''}da")
    lejos = distintos(dado, debido)
    if not lejos.any():
        return
    lugar = lejos.nonzero()[0].tolist()
    uno, otro = _que_se_distingan(dado[tuple(lugar)].item(), debido[tuple(lugar)].item())
    donde = f"en {de_que}{lugar or ''} " if de_que or lugar else ""
    valor = f"{con}{', ' if con else ''}{donde}da {uno} y debería dar {otro}"
    idea = por_que()
    raise AssertionError(f"{idea}{'; ' if ':' in idea else ': '}{valor}" if idea else valor)


def _que_se_distingan(uno: float, otro: float) -> tuple[str, str]:
    """Dos números, con los decimales que hacen falta para que no parezcan el mismo."""
    for decimales in range(2, 10):
        dichos = f"{uno:.{decimales}f}", f"{otro:.{decimales}f}"
        if float(dichos[0]) != float(dichos[1]):
            return dichos
    return f"{uno:.6g}", f"{otro:.6g}"


def tiene_forma(dado: object, debida: tuple[int, ...], que: str = "da") -> None:
    assert isinstance(dado, Tensor), f"{que} {type(dado).__name__}, debería dar un tensor"
    suya = tuple(dado.shape)
    assert suya == debida, f"{que} la forma {suya}, debería dar {debida}"


def varias(dadas: object, cuantas: int, cuales: str) -> list:
    assert isinstance(dadas, tuple | list) and len(dadas) == cuantas, f"no devuelve {cuales}"
    return list(dadas)


def probar(
    mio: ModuleType,
    nombre: str,
    dar: Callable[..., object],
    debe: Callable[..., object],
    entran: dict[str, Tensor],
    con: str = "",
    salen: tuple[str, ...] = ("",),
    deriva: bool = True,
) -> None:
    """Protestar si una pieza no da lo que debe, o su gradiente es otro, o si cambia lo que recibe.

    dar(m, **entran) es lo que da la de un módulo m; debe(**entran), lo mismo calculado aparte, y en
    float64.
    """
    hojas = {k: _hoja(una, deriva) for k, una in entran.items()}
    recibe = {k: una + 0 if una.is_floating_point() else una for k, una in hojas.items()}
    with caso(con):
        dadas = _en_lista(dar(mio, **recibe))
    for cual, suya in recibe.items():
        assert torch.equal(suya, hojas[cual]), (
            f"cambia {cual}, que recibe: pon lo nuevo en otro tensor (x = x + …, y no x += …)"
        )
    dobles = {k: _hoja(una.double(), deriva) for k, una in entran.items() if k in _con_coma(entran)}
    debidas = _en_lista(debe(**(entran | dobles)))

    def por_que() -> str:
        if deriva and not all(map(iguales, dadas, _en_lista(dar(mio, **recibe)))):
            return "a lo mismo da dos cosas distintas, y aquí no hay azar, ni dropout"
        return nombrar(nombre, dadas, lambda m: _en_lista(dar(m, **recibe)))

    for cual, dada, debida in zip(salen, dadas, debidas):
        debe_dar(dada, debida, con, cual, por_que)
        assert dada.dtype == torch.float32, f"da números {dada.dtype}, debería dar torch.float32"
    if deriva:
        suyos, debidos = _gradientes(dadas, hojas), _gradientes(debidas, dobles)
        for cual, debido in debidos.items():
            assert suyos[cual] is not None or not debido.any(), f"a {cual} no le llega gradiente"
            if suyos[cual] is not None:
                debe_dar(suyos[cual], debido, con, f"{cual}.grad")


def _en_lista(dadas: object) -> list:
    return list(dadas) if isinstance(dadas, tuple | list) else [dadas]


def _con_coma(entran: dict[str, Tensor]) -> set[str]:
    return {nombre for nombre, una in entran.items() if una.is_floating_point()}


def _hoja(una: Tensor, deriva: bool) -> Tensor:
    return una.detach().clone().requires_grad_(deriva) if una.is_floating_point() else una


def _gradientes(salen: list[Tensor], hojas: dict[str, Tensor]) -> dict[str, Tensor | None]:
    """El gradiente de cada una de las que entran, si de las que salen se pide algo al azar."""
    total = sum((una * al_azar(*una.shape).to(una)).sum() for una in salen)
    assert total.requires_grad, "lo que da no deja derivar: usa solo operaciones de PyTorch"
    de_quien = _con_coma(hojas)
    de_quien = {k: una for k, una in hojas.items() if k in de_quien}
    return dict(
        zip(de_quien, torch.autograd.grad(total, list(de_quien.values()), allow_unused=True))
    )


def probar_modulo(
    mio: ModuleType,
    nombre: str,
    opciones: dict[str, Valor],
    parametros: Medidas,
    debe: Callable[..., Tensor],
    x: Tensor,
    recibe: tuple = (),
) -> None:
    """Lo mismo con una clase: sus parámetros son los que se piden, y se le dan otros al azar.

    Para hacer una recibe la forma con esas opciones; si no, lo de `recibe`.
    """
    recibe = recibe or (forma(mio, **opciones),)
    que = "x" if x.is_floating_point() else "ids"
    con = en_que_caso(opciones, f"{que} de forma {tuple(x.shape)}")
    azar = torch.Generator().manual_seed(1605)
    pesos = {k: 0.5 * torch.randn(suya, generator=azar) for k, suya in parametros.items()}

    def dar(m: ModuleType, x: Tensor, **pesos: Tensor) -> Tensor:
        return functional_call(getattr(m, nombre)(*recibe), pesos, (x,))

    with caso(con):
        tiene_parametros(getattr(mio, nombre)(*recibe), parametros, f"{con}, ")
    probar(mio, nombre, dar, debe, {"x": x} | pesos, con)


def tiene_parametros(modulo: nn.Module, debidos: Medidas, con: str = "") -> None:
    """Protestar si los parámetros no son los que se piden; de lo demás puede guardar lo que quiera."""
    suyos = dict(modulo.named_parameters(remove_duplicate=False))
    for nombre, debida in debidos.items():
        assert nombre in suyos or not _es_tensor(modulo, nombre), (
            f"{con}{nombre} no es un nn.Parameter: no se aprendería"
        )
        assert nombre in suyos, f"{con}no tiene {nombre}"
        suya = tuple(suyos[nombre].shape)
        assert suya == debida, f"{con}tiene {nombre} de forma {suya}, debería ser {debida}"
        otro = next(k for k, p in suyos.items() if p is suyos[nombre])
        assert otro == nombre, f"{con}{nombre} y {otro} son el mismo, y han de ser dos"
    de_mas = [nombre for nombre in suyos if nombre not in debidos]
    cuantos = f" y {len(de_mas) - 1} más" if len(de_mas) > 1 else ""
    assert not de_mas, f"{con}tiene de más {de_mas[0]}{cuantos}"


def _es_tensor(modulo: nn.Module, nombre: str) -> bool:
    try:
        return isinstance(attrgetter(nombre)(modulo), Tensor)
    except AttributeError:
        return False


# --- las piezas -------------------------------------------------------------------------------


def comprobar_tokenizador(mio: ModuleType) -> None:
    alfabetos = {" amor": ("roma", "o", "a mar"), "zña": ("añ", "z"), "B": ("BB",)}
    hechos = {letras: mio.Tokenizador(letras) for letras in alfabetos}
    for letras, textos in alfabetos.items():
        suyos = getattr(hechos[letras], "caracteres", None) or ()
        assert list(suyos) == list(letras), (
            f"de Tokenizador({letras!r}), self.caracteres es {suyos!r}"
        )
        for texto in (*textos, ""):
            _probar_un_texto(hechos[letras], letras, texto)
    for texto, desconocida in (("maza", "z"), ("Amor", "A"), ("amoré", "é")):
        try:
            dado = hechos[" amor"].codificar(texto)
        except ValueError as error:
            assert desconocida in str(error), f"el error de {texto!r} no nombra {desconocida!r}"
        except (KeyError, IndexError) as error:
            nombre = type(error).__name__
            raise AssertionError(f"con una letra nueva da {nombre}, pide ValueError") from None
        else:
            raise AssertionError(
                f"de {texto!r} da {dado.tolist()}, y {desconocida!r} no se conoce: pide ValueError"
            )


def _probar_un_texto(tokenizador: object, letras: str, texto: str) -> None:
    con = f"con los caracteres «{letras}»"
    with caso(con):
        ids = tokenizador.codificar(texto)
    tiene_forma(ids, (len(texto),), f"de «{texto}» codificar da")
    assert ids.dtype == torch.long, (
        f"de «{texto}» codificar da números {ids.dtype}: pide dtype=torch.long"
    )
    debidos = [letras.index(letra) for letra in texto]
    assert ids.tolist() == debidos, (
        f"{con} codifica «{texto}» como {ids.tolist()}, debería ser {debidos}"
    )
    with caso("con un tensor, como lo da codificar"):
        vuelta = tokenizador.descodificar(torch.tensor(debidos, dtype=torch.long))
    assert vuelta == texto, f"{con}, de {debidos} descodificar da {vuelta!r}, debería dar {texto!r}"


def guarda_la_forma(modulo: nn.Module, debida: object) -> None:
    assert getattr(modulo, "forma", None) == debida, "no guarda la forma en self.forma"


def nacen_pequenos(modulo: nn.Module) -> None:
    """Protestar si las tablas no nacen con media 0 y desviación típica 0.2."""
    for nombre in ("token_embedding.weight", "position_embedding.weight"):
        p = modulo.get_parameter(nombre)
        desviacion, media = p.std().item(), p.mean().item()
        assert abs(media) < 0.03, (
            f"{nombre} nace con una media de {media:.2f}, debería ser 0: lo primero que recibe normal_ "
            "es la media, y la desviación típica va con std="
        )
        assert abs(desviacion - 0.2) < 0.02, (
            f"{nombre} nace con una desviación típica de {desviacion:.2f}, debería ser 0.2"
        )


GRANDE = {"vocab_size": 70, "block_size": 60, "n_embd": 48}
"""Para ver la media y la desviación típica de una tabla."""
POSICIONES = ("rope", "alibi", "sinusoidal")
"""Las que no son "learned": unas van delante de ella en el alfabeto, y otras detrás."""


def comprobar_entrada(mio: ModuleType) -> None:
    for B, T, opciones in (
        (3, 4, {"vocab_size": 8, "block_size": 9}),
        (1, 1, {"vocab_size": 2, "block_size": 5, "n_embd": 3}),
        (2, 5, {"vocab_size": 4, "block_size": 5, "n_embd": 6}),
        *((2, 5, {"block_size": 5, "position": otra}) for otra in POSICIONES),
    ):
        medidas = forma(mio, **opciones)
        guarda_la_forma(mio.Entrada(medidas), medidas)
        ids = letras_al_azar(medidas.vocab_size, B, T)
        probar_modulo(mio, "Entrada", opciones, _tablas(medidas), _entrada, ids)
    nacen_pequenos(mio.Entrada(forma(mio, **GRANDE)))


def _tablas(medidas) -> Medidas:
    tablas = {"token_embedding.weight": (medidas.vocab_size, medidas.n_embd)}
    if medidas.position == "learned":
        tablas["position_embedding.weight"] = (medidas.block_size, medidas.n_embd)
    return tablas


def _entrada(x: Tensor, **p: Tensor) -> Tensor:
    """Lo que debe dar Entrada, de los números de las letras y de sus tablas."""
    dado = F.embedding(x, p["token_embedding.weight"])
    if "position_embedding.weight" in p:
        dado = dado + p["position_embedding.weight"][: x.shape[1]]
    return dado


def comprobar_mirar_atras(mio: ModuleType) -> None:
    for ejes in ((4, 3), (1, 5), (2, 3, 6, 4), (3, 2, 1), (2, 8)):
        entran, con = dict(zip("qkv", al_azar(3, *ejes))), f"con q, k y v de forma {ejes}"
        salen = ("los pesos", "lo leído")
        probar(mio, "mirar_atras", _pesos_y_leido, _mirar_atras, entran, con, salen)


def _pesos_y_leido(m: ModuleType, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    leido, pesos = varias(m.mirar_atras(q, k, v), 2, "dos cosas: lo leído y los pesos")
    suyas = [tuple(getattr(una, "shape", ())) for una in (pesos, leido)]
    cambiadas = [tuple(q.shape), (*q.shape[:-1], q.shape[-2])]
    assert suyas != cambiadas or suyas[0] == suyas[1], (
        "devuelve primero los pesos: van detrás de lo leído"
    )
    return [pesos, leido]


def _mirar_atras(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """Lo que debe dar mirar_atras; los pesos, leyendo la matriz identidad en lugar de los valores."""
    uno = torch.eye(q.shape[-2], dtype=q.dtype).expand(*q.shape[:-1], q.shape[-2])
    return [F.scaled_dot_product_attention(q, k, de, is_causal=True) for de in (uno, v)]


FORMAS = (
    {"n_head": 2},
    {"n_head": 1, "n_embd": 6, "bias": False},
    {"n_head": 3, "n_embd": 18, "block_size": 5, "bias": False},
    {"n_head": 4, "n_embd": 8, "block_size": 1},
)
"""Medidas de una subcapa."""


def comprobar_atencion(mio: ModuleType) -> None:
    for opciones in FORMAS:
        _probar_atencion(mio, opciones)


def comprobar_atencion_moderna(mio: ModuleType) -> None:
    comprobar_atencion(mio)
    for posicion, iguala in (("rope", False), ("learned", True), ("rope", True), *_LAS_DEMAS):
        for opciones in FORMAS[:3]:
            _probar_atencion(mio, opciones | {"position": posicion, "qk_norm": iguala})


_LAS_DEMAS = (("alibi", False), ("sinusoidal", True))


def _probar_atencion(mio: ModuleType, opciones: dict[str, Valor]) -> None:
    medidas = forma(mio, **opciones)
    C = medidas.n_embd
    debidos = _lineales({"qkv": (C, 3 * C), "proj": (C, C)}, medidas)
    x = al_azar(2, medidas.block_size, C)
    probar_modulo(mio, "Atencion", opciones, debidos, partial(_atencion, medidas), x)


def _lineales(de_a: dict[str, tuple[int, int]], medidas) -> Medidas:
    """Los parámetros de unas nn.Linear, de tantos canales a tantos."""
    debidos: Medidas = {}
    for nombre, (de, a) in de_a.items():
        debidos[f"{nombre}.weight"] = (a, de)
        if medidas.bias:
            debidos[f"{nombre}.bias"] = (a,)
    return debidos


def _lineal(x: Tensor, p: dict[str, Tensor], nombre: str) -> Tensor:
    return F.linear(x, p[f"{nombre}.weight"], p.get(f"{nombre}.bias"))


def _atencion(medidas, x: Tensor, **p: Tensor) -> Tensor:
    """Lo que debe dar Atencion: (B, T, C) -> (B, T, C)."""
    q, k, v = (
        z.unflatten(-1, (medidas.n_head, -1)).transpose(1, 2)
        for z in _lineal(x, p, "qkv").chunk(3, -1)
    )
    if medidas.position == "rope":
        q, k = _girar(q), _girar(k)
    if medidas.qk_norm:
        q, k = _rms(q), _rms(k)
    leido = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return _lineal(leido.transpose(1, 2).flatten(2), p, "proj")


def _girar(x: Tensor) -> Tensor:
    """Lo que debe dar girar, con números complejos."""
    T, D = x.shape[-2:]
    angulos = torch.outer(torch.arange(T).double(), 10000.0 ** (-torch.arange(0, D, 2) / D))
    parejas = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(parejas * torch.polar(angulos**0, angulos)).flatten(-2)


def _rms(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], eps=1e-6)


ACTIVACIONES = {
    "relu": F.relu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "relu2": lambda x: F.relu(x) ** 2,
}


def comprobar_feed_forward(mio: ModuleType) -> None:
    activaciones = ("relu", "relu2", "gelu", "relu")
    for ejes, cual, de in zip(((7,), (), (2, 5), (1, 1, 3)), activaciones, FORMAS):
        opciones = de | {"activation": cual}
        medidas = forma(mio, **opciones)
        C = medidas.n_embd
        debidos = _lineales({"expand": (C, 4 * C), "proj": (4 * C, C)}, medidas)
        debe = partial(_feed_forward, ACTIVACIONES[cual])
        probar_modulo(mio, "FeedForward", opciones, debidos, debe, al_azar(*ejes, C))


def _feed_forward(activar: Callable[[Tensor], Tensor], x: Tensor, **p: Tensor) -> Tensor:
    """Lo que debe dar FeedForward."""
    return _lineal(activar(_lineal(x, p, "expand")), p, "proj")


def comprobar_layer_norm(mio: ModuleType) -> None:
    for C, ejes, opciones in (
        (8, (4,), {}),
        (5, (2, 3), {"bias": True, "epsilon": 0.3}),
        (3, (), {"bias": False, "epsilon": 1e-3}),
        (12, (4,), {"bias": False}),
        (6, (1, 2, 2), {"bias": True, "epsilon": 1e-8}),
    ):
        epsilon = opciones.get("epsilon", 1e-5)
        con_sesgo = {"bias": (C,)} if opciones.get("bias", True) else {}
        debidos, debe = {"weight": (C,)} | con_sesgo, partial(_layer_norm, epsilon)
        x, recibe = de_tres_tamanos(epsilon, *ejes, C), (C, *opciones.values())
        probar_modulo(mio, "LayerNorm", opciones, debidos, debe, x, recibe)
        norma = mio.LayerNorm(*recibe)
        assert con_sesgo or norma.bias is None, "con bias = False, self.bias no es None"
        for nombre, p in norma.named_parameters():
            debe_dar(p, torch.full((C,), float(nombre == "weight")), "al nacer", nombre)


def _layer_norm(epsilon: float, x: Tensor, **p: Tensor) -> Tensor:
    """Lo que debe dar LayerNorm."""
    return F.layer_norm(x, x.shape[-1:], **p, eps=epsilon)


FORMAS_DE_UN_BLOQUE = (
    {"n_head": 2},
    {"n_head": 3, "n_embd": 18, "activation": "gelu"},
    {"n_head": 1, "bias": False, "activation": "relu2"},
    {"n_head": 2, "norm": "rmsnorm", "position": "rope", "qk_norm": True},
)


def comprobar_bloque(mio: ModuleType) -> None:
    for opciones in FORMAS_DE_UN_BLOQUE:
        medidas = forma(mio, **opciones)
        x, debe = de_tres_tamanos(1e-5, 5, medidas.n_embd), partial(_bloque, mio, medidas)
        probar_modulo(mio, "Bloque", opciones, _de_un_bloque(medidas), debe, x)


def _de_un_bloque(medidas) -> Medidas:
    C = medidas.n_embd
    lineales = {"attention.qkv": (C, 3 * C), "attention.proj": (C, C)}
    lineales |= {"feed_forward.expand": (C, 4 * C), "feed_forward.proj": (4 * C, C)}
    return (
        _de_una_norma("norm1", medidas)
        | _de_una_norma("norm2", medidas)
        | _lineales(lineales, medidas)
    )


def _de_una_norma(nombre: str, medidas) -> Medidas:
    if medidas.norm != "layernorm":
        return {}
    cuales = ("weight", "bias") if medidas.bias else ("weight",)
    return {f"{nombre}.{cual}": (medidas.n_embd,) for cual in cuales}


def _parte(modulo: nn.Module, x: Tensor, p: dict[str, Tensor], nombre: str) -> Tensor:
    """Lo que da otra pieza, que ya ha pasado, con los parámetros que le tocan."""
    suyos = {k.removeprefix(nombre): una.float() for k, una in p.items() if k.startswith(nombre)}
    return functional_call(modulo, suyos, (x.float(),)).double()


def _norma(x: Tensor, p: dict[str, Tensor], nombre: str, medidas) -> Tensor:
    if medidas.norm != "layernorm":
        return _rms(x)
    return F.layer_norm(x, x.shape[-1:], p[f"{nombre}.weight"], p.get(f"{nombre}.bias"))


def _bloque(mio: ModuleType, medidas, x: Tensor, **p: Tensor) -> Tensor:
    """Lo que debe dar Bloque."""
    x = x + _parte(mio.Atencion(medidas), _norma(x, p, "norm1", medidas), p, "attention.")
    return x + _parte(mio.FeedForward(medidas), _norma(x, p, "norm2", medidas), p, "feed_forward.")


FORMAS_DE_UN_GPT = (
    (4, {"n_layer": 3}),
    (3, {"n_layer": 1, "n_head": 3, "vocab_size": 5, "block_size": 3, "bias": False}),
    (7, {"n_layer": 2, "norm": "rmsnorm", "position": "rope", "qk_norm": True}),
    (1, {"n_layer": 1, "position": "alibi", "activation": "gelu"}),
    (5, {"n_layer": 1, "position": "sinusoidal", "n_embd": 6, "bias": False}),
)
"""Cuántas letras se leen, y las medidas."""


def comprobar_gpt(mio: ModuleType) -> None:
    bloques = getattr(mio.Gpt(forma(mio)), "blocks", None)
    assert not isinstance(bloques, list | tuple), (
        "en una lista de Python no se ven los parámetros: blocks ha de ser una nn.ModuleList"
    )
    nacen_pequenos(mio.Gpt(forma(mio, **GRANDE)))
    for T, opciones in FORMAS_DE_UN_GPT:
        medidas = forma(mio, **opciones)
        guarda_la_forma(mio.Gpt(medidas), medidas)
        ids, debe = letras_al_azar(medidas.vocab_size, 2, T), partial(_gpt, mio, medidas)
        probar_modulo(mio, "Gpt", opciones, _de_un_gpt(mio, medidas), debe, ids)
    ids = letras_al_azar(70, 2, 60)
    al_nacer = F.cross_entropy(mio.Gpt(forma(mio, **GRANDE))(ids).mT, ids.roll(1)).item()
    assert abs(al_nacer - math.log(70)) < 0.6, (
        f"al nacer pierde {al_nacer:.2f}, lejos de ln V = {math.log(70):.2f}: deja head como la hace "
        "PyTorch"
    )


def _de_un_gpt(mio: ModuleType, medidas) -> Medidas:
    de_un_bloque = {k: tuple(p.shape) for k, p in mio.Bloque(medidas).named_parameters()}
    debidos = _tablas(medidas)
    for i in range(medidas.n_layer):
        debidos |= {f"blocks.{i}.{nombre}": suya for nombre, suya in de_un_bloque.items()}
    return (
        debidos
        | _de_una_norma("norm", medidas)
        | {"head.weight": (medidas.vocab_size, medidas.n_embd)}
    )


def _gpt(mio: ModuleType, medidas, x: Tensor, **p: Tensor) -> Tensor:
    """Los logits que debe dar Gpt."""
    x = _entrada(x, **p)
    for i in range(medidas.n_layer):
        x = _parte(mio.Bloque(medidas), x, p, f"blocks.{i}.")
    return _lineal(_norma(x, p, "norm", medidas), p, "head")


def comprobar_entropia_cruzada(mio: ModuleType) -> None:
    for B, T, V, escala in ((2, 6, 11, 3), (1, 4, 5, 1), (3, 1, 2, 3), (2, 3, 7, 1000)):
        entran = {
            "logits": escala * al_azar(B, T, V),
            "objetivos": letras_al_azar(V, B, T + 1)[:, 1:],
        }
        con = f"con B = {B}, T = {T}, V = {V}, logits de hasta {3 * escala} y objetivos = trozos[:, 1:]"
        probar(mio, "entropia_cruzada", _perdida, _entropia_cruzada, entran, con)


def _perdida(m: ModuleType, logits: Tensor, objetivos: Tensor) -> Tensor:
    return m.entropia_cruzada(logits, objetivos)


def _entropia_cruzada(logits: Tensor, objetivos: Tensor) -> Tensor:
    """Lo que debe dar entropia_cruzada."""
    return F.cross_entropy(logits.mT, objetivos)


def comprobar_paso_de_adam(mio: ModuleType) -> None:
    memorias, al_empezar = 0.5 * al_azar(2, 3, 4), torch.zeros(2, 3, 4)
    # De los gradientes pequeños se ve dónde va el 1e-8.
    pequenos = torch.tensor([1e-6, 1e-8, -3e-8, 0]).expand(3, 4)
    for g, (m, v), t, tasa, opciones in (
        # Con 0.9 y 0.99, dividir entre 1 − β es no dividir: la raíz de 100 es 10.
        (al_azar(3, 4), memorias, 4, 0.1, {"beta1": 0.8, "beta2": 0.7}),
        (al_azar(3, 4), memorias, 3, 0.2, {}),
        (al_azar(3, 4), memorias, 2, 0.2, {"encoger": 0.3}),
        (pequenos, al_empezar, 1, 1.0, {}),
        (al_azar(3, 4), memorias, 300, 0.01, {"beta2": 0.999, "encoger": 2.0}),
    ):
        medidas = {"t": t, "tasa": tasa} | opciones
        entran = {"w": al_azar(3, 4).flip(0), "g": g, "m": m, "v": v.square()}
        dar, debe = partial(_dar_un_paso, medidas), partial(_adam, **medidas)
        con, salen = en_que_caso(medidas), ("w", "m", "v")
        probar(mio, "paso_de_adam", dar, debe, entran, con, salen, deriva=False)


def _dar_un_paso(medidas: dict[str, Valor], modulo: ModuleType, **entran: Tensor) -> list[Tensor]:
    t, tasa, *_ = medidas.values()
    opciones = {k: valor for k, valor in medidas.items() if k not in ("t", "tasa")}
    dado = modulo.paso_de_adam(*entran.values(), t, tasa, **opciones)
    return varias(dado, 3, "tres cosas: w, m y v")


def _adam(w, g, m, v, t, tasa, beta1=0.9, beta2=0.99, encoger=0.0) -> list[Tensor]:
    """Lo que debe dar paso_de_adam."""
    m, v = torch.lerp(g, m, beta1), torch.lerp(g.square(), v, beta2)
    paso = m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + 1e-8)
    return [w * (1 - tasa * encoger) - tasa * paso, m, v]


LETRAS = 12
"""Las que conoce el modelo que se entrena. En el texto, que es más corto, cada una está una vez."""


def comprobar_entrenar(mio: ModuleType) -> None:
    for N, medidas in (
        (9, {"pasos": 6, "lote": 4, "ventana": 3, "tasa": 0.5}),
        (7, {"pasos": 100, "lote": 4, "ventana": 3, "tasa": 0.1}),
        (5, {"pasos": 55, "lote": 1, "ventana": 4, "tasa": 0.2}),
        (2, {"pasos": 1, "lote": 1, "ventana": 1, "tasa": 0.5}),
    ):
        con = en_que_caso(medidas, f"un texto de {N} letras")
        ids = torch.randperm(LETRAS, generator=torch.Generator().manual_seed(1605))[:N]
        de_esto = {"ids": ids, "medidas": medidas, "leidas": []}
        dar, debe = partial(_entrenar, **de_esto), partial(_entrenado, **de_esto)
        tabla, salen = {"tabla": al_azar(LETRAS, LETRAS)}, ("perdidas", "los parámetros")
        probar(mio, "entrenar", dar, debe, tabla, con, salen, deriva=False)


def _entrenar(
    m: ModuleType, tabla: Tensor, ids: Tensor, medidas: dict, leidas: list[Tensor]
) -> list[Tensor]:
    """Las pérdidas y la tabla de logits entrenada; apunta lo que se lee en cada paso."""
    debida = medidas["lote"], medidas["ventana"]

    def apuntar(_: nn.Module, entradas: tuple[Tensor]) -> None:
        suya = tuple(entradas[0].shape)
        assert suya == debida, (
            f"da al modelo entradas de forma {suya}, debería ser {debida}: lote y ventana"
        )
        leidas.append(entradas[0])

    modelo = nn.Sequential(nn.Embedding(LETRAS, LETRAS, _weight=tabla.clone()))
    modelo.register_forward_pre_hook(apuntar)
    leidas.clear()
    torch.manual_seed(1605)
    perdidas = m.entrenar(modelo, ids.clone(), *medidas.values())
    assert isinstance(perdidas, list), "no devuelve la lista de las pérdidas"
    assert len(perdidas) == medidas["pasos"] == len(leidas), (
        f"lee {len(leidas)} lotes y devuelve {len(perdidas)} pérdidas, y son {medidas['pasos']} pasos"
    )
    assert all(isinstance(p, float) for p in perdidas), "las pérdidas no son números: .item()"
    _empiezan_al_azar(torch.stack(leidas), ids, **medidas)
    return [torch.tensor(perdidas), modelo[0].weight.detach()]


def _empiezan_al_azar(leidas: Tensor, ids: Tensor, ventana: int, pasos: int, **_: float) -> None:
    """Protestar si las ventanas no son trozos del texto, o no van en cualquier orden.

    leidas: (pasos, lote, ventana).
    """
    lugar = torch.full((LETRAS,), LETRAS).scatter(0, ids, torch.arange(len(ids)))
    comienzos, sitios = lugar[leidas[..., 0]], len(ids) - ventana
    assert (lugar[leidas] == comienzos[..., None] + torch.arange(ventana)).all(), (
        "toma letras que no van seguidas en el texto"
    )
    assert (comienzos < sitios).all(), "lee una ventana a cuya última letra no sigue ninguna"
    if pasos < 100:  # son pocos para saber si van al azar
        return
    for cuando, unas, otras in (
        ("en el mismo lote", comienzos[:, :-1], comienzos[:, 1:]),
        ("en el paso siguiente", comienzos[:-1], comienzos[1:]),
    ):
        veces = torch.bincount((unas * sitios + otras).flatten(), minlength=sitios**2)
        if cuando == "en el mismo lote":
            veces += torch.eye(sitios, dtype=torch.long).flatten()  # pueden no repetirse
        debidas = unas.numel() / len(veces)
        for i, cuantas in enumerate(veces.tolist()):
            assert 0 < cuantas < 3 * debidas, (
                f"no lee ventanas al azar: a la que empieza en {i // sitios} sigue {cuando} la que "
                f"empieza en {i % sitios} {cuantas} veces, y debería unas {debidas:.0f}"
            )


def _entrenado(tabla: Tensor, ids: Tensor, medidas: dict, leidas: list[Tensor]) -> list[Tensor]:
    """Lo que debe dar _entrenar, si se lee eso."""
    siguiente = torch.zeros(LETRAS, dtype=torch.long).scatter(0, ids[:-1], ids[1:])
    m, v = torch.zeros(2, *tabla.shape, dtype=tabla.dtype)
    perdidas = []
    for t, x in enumerate(leidas, 1):
        w = tabla.requires_grad_()
        perdida = F.cross_entropy(w[x].flatten(0, 1), siguiente[x].flatten())
        (g,) = torch.autograd.grad(perdida, w)
        ahora = medidas["tasa"] * min(t / 50, 1) * (1 - (t - 1) / medidas["pasos"])
        tabla, m, v = _adam(w.detach(), g, m, v, t, ahora)
        perdidas.append(perdida.detach())
    return [torch.stack(perdidas), tabla]


class Apuntado:
    """Lo que hace el bucle del capítulo 1: los gradientes que calcula, y con cuál da cada paso."""

    def __init__(self, parametro: nn.Parameter, optimizador: torch.optim.Optimizer) -> None:
        self.gradientes: list[Tensor] = []
        self.pasos: list[Tensor | None] = []
        self.calculados: list[int] = []  # cuántos había en cada paso
        parametro.register_hook(lambda gradiente: self.gradientes.append(gradiente.clone()))
        optimizador.register_step_pre_hook(lambda *_: self._dar_un_paso(parametro.grad))

    def _dar_un_paso(self, gradiente: Tensor | None) -> None:
        self.pasos.append(None if gradiente is None else gradiente.clone())
        self.calculados.append(len(self.gradientes))

    def mirar(self, primero: Tensor) -> None:
        """Protestar si algo falta o va en otro orden; `primero` es el gradiente del primer lote."""
        assert self.gradientes, "no calcula el gradiente: falta backward"
        assert self.pasos, SIN_PASO
        assert self.calculados[0], "da el paso antes de calcular el gradiente: step va detrás"
        assert all(paso is not None and paso.any() for paso in self.pasos), BORRA_ANTES
        # Si los logits son iguales, con dos softmax el gradiente es 1/V del que debe.
        dos_veces = torch.allclose(self.gradientes[0], primero / primero.shape[-1], atol=1e-6)
        assert not dos_veces, DOS_SOFTMAX
        assert torch.allclose(self.pasos[1], self.gradientes[1]), NO_OLVIDA


class DosLetras:
    """Un tokenizador cuyos tokens tienen dos letras."""

    tokens = ("ab", "cd", "ef", "gh", "ij", "kl")

    def codificar(self, texto: str) -> Tensor:
        return torch.tensor([self.tokens.index(texto[i : i + 2]) for i in range(0, len(texto), 2)])

    def descodificar(self, ids: Tensor) -> str:
        return "".join(self.tokens[i] for i in ids.tolist())


class Oraculo(nn.Module):
    """Un modelo cuyos logits dependen solo de la última letra; apunta lo que lee."""

    def __init__(self, forma: object, logits: Tensor) -> None:
        super().__init__()
        self.forma, self.logits, self.leidas = forma, logits, []

    def forward(self, ids: Tensor) -> Tensor:
        assert ids.ndim == 2, f"da a leer ids de forma {tuple(ids.shape)}, debería ser (1, T)"
        self.leidas.append(ids[0].tolist())
        return self.logits[ids]


def comprobar_generar(mio: ModuleType) -> None:
    de_una = mio.Tokenizador("abcdef")
    for tokenizador, comienzo, cuantas, block_size, temperatura in (
        (de_una, "ca", 8, 5, 0),
        (DosLetras(), "cdab", 7, 4, 0.0),
        (de_una, "fedcba", 3, 1, 0),
        (de_una, "b", 0, 9, 0),
    ):
        medidas = forma(mio, vocab_size=6, block_size=block_size)
        _probar_lo_mas_probable(mio, tokenizador, comienzo, cuantas, medidas, temperatura)
    modelo = Oraculo(forma(mio, vocab_size=3, block_size=4), DE_TRES)
    escribir = partial(mio.generar, modelo, mio.Tokenizador("abc"), "a")
    _probar_los_sorteos(mio)
    assert escribir(30, semilla=1) == escribir(30, semilla=1), (
        "con la misma semilla escribe dos cosas distintas: torch.multinomial(…, generator=…)"
    )
    assert escribir(30, semilla=1) != escribir(30, semilla=2), "con otra semilla escribe lo mismo"
    assert escribir(30) == escribir(30, 1.0, 1605), (
        "de fábrica, la temperatura es 1, y la semilla, 1605"
    )
    antes = torch.get_rng_state()
    escribir(5)
    assert torch.equal(torch.get_rng_state(), antes), (
        "mueve el azar de PyTorch: pide su propio torch.Generator"
    )


def _probar_lo_mas_probable(
    mio: ModuleType, tokenizador, comienzo: str, cuantas: int, medidas, temperatura: float
) -> None:
    """Protestar si con temperatura 0 no escribe, o no lee, lo que debe."""
    modelo = Oraculo(medidas, 2 * torch.eye(6).roll(1, 1) + al_azar(6, 6) / 9 - 3)  # tras i, i + 1
    con = f"con temperatura = {temperatura}, block_size = {medidas.block_size}"
    with (
        caso(con),
        si_se_detiene(f"{con}, divide entre 0: sin sorteo, la más probable", RuntimeError, "inf"),
    ):
        escrito = mio.generar(modelo, tokenizador, comienzo, cuantas, temperatura=temperatura)
    assert isinstance(escrito, str), f"da {type(escrito).__name__}, debería dar un texto"
    leidas = tokenizador.codificar(comienzo).tolist()
    ids = [*leidas, *((leidas[-1] + i) % 6 for i in range(1, cuantas + 1))]
    debido = tokenizador.descodificar(torch.tensor(ids[len(leidas) :], dtype=torch.long))
    assert escrito != comienzo + debido, "devuelve también el comienzo"
    for i, suyas in enumerate(modelo.leidas[:cuantas], len(leidas)):
        debidas = ids[:i][-medidas.block_size :]
        assert suyas == debidas, f"{con}, el modelo lee {suyas}, debería leer {debidas}"
    assert escrito == debido, f"{con}, sigue «{comienzo}» con «{escrito}», debería con «{debido}»"


DE_TRES = torch.tensor([[0.0, 1.9, -0.7], [-0.7, 0, 1.9], [1.9, -0.7, 0]])
"""Los logits de tres letras: los de la siguiente, la otra y ella misma son los mismos tras cada una."""


def _probar_los_sorteos(mio: ModuleType) -> None:
    for temperatura in (1.0, 2.0):
        sorteadas = _sortear(mio, temperatura)
        partes = torch.bincount(sorteadas[0].diff() % 3, minlength=3) / 600
        debidas = (DE_TRES[0] / temperatura).softmax(0)
        for parte, debida, cual in zip(partes.tolist(), debidas.tolist(), "abc"):
            if abs(parte - debida) < 0.1:
                continue
            idea = nombrar("generar", sorteadas, partial(_sortear, temperatura=temperatura))
            raise AssertionError(
                f"{idea}{': ' if idea else ''}con temperatura = {temperatura}, a una letra sigue la "
                f"que a «a» es «{cual}» el {parte:.0%} de las veces, y debería el {debida:.0%}"
            )


def _sortear(m: ModuleType, temperatura: float) -> list[Tensor]:
    """Seiscientas letras, por sus números, detrás de una «a»."""
    modelo = Oraculo(forma(m, vocab_size=3), DE_TRES)
    escrito = m.generar(modelo, m.Tokenizador("abc"), "a", 600, temperatura=temperatura)
    return [torch.tensor([ord(letra) for letra in "a" + escrito])]


def comprobar_girar(mio: ModuleType) -> None:
    for ejes in ((2, 3, 7, 8), (9, 6), (1, 2), (3000, 4)):
        con = f"con x de forma {ejes}"
        probar(mio, "girar", lambda m, x: m.girar(x), _girar, {"x": al_azar(*ejes)}, con)


def comprobar_igualar(mio: ModuleType) -> None:
    for ejes in ((2, 4, 7, 6), (3, 10), (5,), (4, 1)):
        x = de_tres_tamanos(1e-6, *ejes) + (len(ejes) == 4) / 1000
        con = f"con x de forma {tuple(x.shape)}"
        probar(mio, "igualar", lambda m, x: m.igualar(x), _rms, {"x": x}, con)
    con = "con un vector suelto"
    probar(mio, "igualar", lambda m, x: m.igualar(x), _rms, {"x": al_azar(6)}, con)


MODERNA = {"norm": "rmsnorm", "position": "rope", "activation": "relu2"}
MODERNA |= {"qk_norm": True, "bias": False}
"""Los detalles de la caja."""
DEL_ARCHIVO = "aábcdefghij"


def comprobar_guardar(mio: ModuleType) -> None:
    for opciones in ({}, {"n_head": 3, "block_size": 5, "n_layer": 1} | MODERNA):
        modelo = sortear(mio.Gpt(forma(mio, **opciones)))
        with tempfile.TemporaryDirectory() as carpeta:
            ruta = Path(carpeta) / "mio.safetensors"
            tokenizador = mio.Tokenizador(DEL_ARCHIVO)
            mio.guardar(ruta, modelo, tokenizador)
            assert ruta.is_file(), "no escribe el archivo en la ruta dada"
            with si_se_detiene("no escribe un archivo safetensors: usa save_file", SafetensorError):
                tensores = load_file(ruta)
            with safe_open(ruta, "pt") as archivo:
                metadata = archivo.metadata() or {}
        _mirar_el_contenido(metadata, tokenizador, modelo)
        for nombre, p in modelo.named_parameters():
            assert nombre not in tensores, f'a {nombre} le falta "model." delante'
            guardado = tensores.get(f"model.{nombre}")
            assert guardado is not None, (
                f"no guarda model.{nombre}; guarda {', '.join(sorted(tensores)[:2]) or 'ninguno'}"
            )
            assert guardado.dtype == p.dtype, f"guarda model.{nombre} en {guardado.dtype}"
            debe_dar(guardado, p, de_que=f"model.{nombre}")


def _mirar_el_contenido(metadata: dict[str, str], tokenizador: object, modelo: nn.Module) -> None:
    assert "content" in metadata, 'en su metadata falta "content"'
    with si_se_detiene('"content" no está en JSON: usa json.dumps', json.JSONDecodeError):
        contenido = json.loads(metadata["content"])
    assert isinstance(contenido, dict), 'en "content" no hay un diccionario'
    letras = contenido.get("characters")
    suyas_no_son_texto = not isinstance(tokenizador.caracteres, str)
    assert isinstance(letras, str) or suyas_no_son_texto, (
        f'en "characters" debería haber un texto, las letras, y hay {letras!r:.40}'
    )
    assert list(letras or ()) == list(DEL_ARCHIVO), f'en "characters" hay otras letras: {letras!r}'
    suya, debida = contenido.get("model"), vars(modelo.forma)
    assert isinstance(suya, dict), (
        f'en "model" debería haber un diccionario, asdict(modelo.forma), y hay {suya!r:.40}'
    )
    faltan = sorted(set(debida) - set(suya))
    assert not faltan, f'en "model" falta {", ".join(faltan)}'
    for campo, valor in debida.items():
        assert suya[campo] == valor, (
            f'en "model", {campo} es {suya[campo]!r}, debería ser {valor!r}'
        )


def comprobar_abrir_caja(mio: ModuleType) -> None:
    for de_mas, tipo, opciones in (
        ({"dropout": 0.1, "ngram_size": 1, "embedding_skip": False}, torch.bfloat16, {}),
        ({}, torch.float32, {"n_head": 3, "block_size": 5, "n_layer": 1}),
        ({"dropout": 0.1, "embedding_skip": False}, torch.half, MODERNA),
    ):
        modelo = sortear(mio.Gpt(forma(mio, **opciones)))
        con = f'con "model" que dice {de_mas}' if de_mas else "con un archivo de guardar"
        with caso(con):
            _mirar_lo_abierto(modelo, _abrir(mio, modelo, tipo, de_mas), tipo)
    for de_mas in (
        {"ngram_size": 2},
        {"ngram_size": 6, "embedding_skip": False},
        {"ngram_size": 1, "embedding_skip": True},
        {"embedding_skip": True},
    ):
        try:
            _abrir(mio, modelo, tipo, de_mas)
        except ValueError:
            continue
        except Exception as error:
            nombre = type(error).__name__
            raise AssertionError(
                f"de un archivo con {de_mas} da {nombre}, pide ValueError"
            ) from None
        raise AssertionError(f"abre un archivo con {de_mas}, que tiene una tabla: pide ValueError")


def _abrir(mio: ModuleType, modelo: nn.Module, tipo: torch.dtype, de_mas: dict) -> object:
    """Abrir un archivo como los de train.py; `de_mas` es lo que dice además de la forma."""
    tensores = {f"model.{nombre}": p.detach().to(tipo) for nombre, p in modelo.named_parameters()}
    contenido = {"characters": DEL_ARCHIVO, "model": vars(modelo.forma) | de_mas}
    with tempfile.TemporaryDirectory() as carpeta:
        ruta = Path(carpeta) / "mio.safetensors"
        save_file(tensores, ruta, {"content": json.dumps(contenido)})
        return mio.abrir_caja(ruta)


def _mirar_lo_abierto(modelo: nn.Module, abierto: object, tipo: torch.dtype) -> None:
    suyo, letras = varias(abierto, 2, "dos cosas: el modelo y el tokenizador")
    assert not isinstance(letras, nn.Module), (
        "devuelve primero el tokenizador: va detrás del modelo"
    )
    es_un_modelo(suyo, modelo.forma)
    for nombre, p in suyo.named_parameters():
        assert p.dtype == torch.float32, f"{nombre} se queda en {p.dtype}: pide .float()"
        debe_dar(p, modelo.get_parameter(nombre).to(tipo).float(), de_que=nombre)
    dadas = getattr(letras, "caracteres", None)
    assert dadas is not None, f"devuelve {type(letras).__name__}, y no el tokenizador"
    assert list(dadas) == list(DEL_ARCHIVO), f"el tokenizador tiene otras letras: {dadas!r}"
    assert not suyo.training, "el modelo está en modo de entrenamiento: .eval()"


def es_un_modelo(suyo: object, debida: object) -> None:
    """Protestar si algo no es un Gpt de la forma debida."""
    de_que = ": le faltan los paréntesis, .eval()" if type(suyo).__name__ == "method" else ""
    assert isinstance(suyo, nn.Module), f"devuelve {type(suyo).__name__}, y no el modelo{de_que}"
    for campo, valor in vars(debida).items():
        dado = getattr(suyo.forma, campo)
        assert dado == valor, f"el modelo tiene {campo} = {dado!r}, debería ser {valor!r}"


def comprobar_abrir_gpt2(mio: ModuleType) -> None:
    for opciones, prefijo in (
        ({"vocab_size": 31, "block_size": 12, "n_embd": 24, "n_layer": 3, "n_head": 4}, ""),
        (
            {"vocab_size": 5, "block_size": 3, "n_embd": 6, "n_layer": 1, "n_head": 3},
            "transformer.",
        ),
        ({"vocab_size": 7, "block_size": 9, "n_embd": 4, "n_layer": 2, "n_head": 1}, ""),
    ):
        medidas = mio.Forma(**opciones, activation="gelu")
        suyos = _un_gpt2(medidas)
        nombres = {k: _en_gpt2(mio, k) for k, _ in mio.Gpt(medidas).named_parameters()}
        ids = letras_al_azar(medidas.vocab_size, 2, medidas.block_size)
        dar = partial(_abrir_gpt2, medidas=medidas, prefijo=prefijo, ids=ids)
        debe = partial(_leer_gpt2, H=medidas.n_head, nombres=nombres, ids=ids)
        con, salen = en_que_caso(opciones, f'"{prefijo}wte.weight"'), (*nombres, "los logits")
        probar(mio, "abrir_gpt2", dar, debe, suyos, con, salen, deriva=False)


def _abrir_gpt2(m: ModuleType, medidas, prefijo: str, ids: Tensor, **suyos: Tensor) -> list[Tensor]:
    """Los parámetros que abre, y los logits."""
    recibidos = {prefijo + nombre: p for nombre, p in suyos.items()}
    modelo = m.abrir_gpt2(recibidos, medidas.n_head)
    assert len(recibidos) == len(suyos), "cambia el diccionario que recibe"
    es_un_modelo(modelo, medidas)
    debidos = {k: tuple(p.shape) for k, p in m.Gpt(medidas).named_parameters()}
    tiene_parametros(modelo, debidos)
    return [*(modelo.get_parameter(nombre).detach() for nombre in debidos), modelo(ids).detach()]


def _en_gpt2(mio: ModuleType, nombre: str) -> str:
    for mia, suya in mio.NOMBRES_EN_GPT2.items():
        nombre = nombre.replace(mia, suya)
    return nombre


def _un_gpt2(medidas) -> dict[str, Tensor]:
    """Los parámetros de un GPT-2 pequeño y al azar, con sus nombres; sus matrices son (entran, salen)."""
    V, C = medidas.vocab_size, medidas.n_embd
    formas: Medidas = {"wte.weight": (V, C), "wpe.weight": (medidas.block_size, C)}
    matrices = {"attn.c_attn": (C, 3 * C), "attn.c_proj": (C, C)}
    matrices |= {"mlp.c_fc": (C, 4 * C), "mlp.c_proj": (4 * C, C)}
    for i in range(medidas.n_layer):
        for nombre, suya in matrices.items():
            formas[f"h.{i}.{nombre}.weight"] = suya
            formas[f"h.{i}.{nombre}.bias"] = suya[1:]
        for nombre in ("ln_1", "ln_2"):
            formas[f"h.{i}.{nombre}.weight"] = formas[f"h.{i}.{nombre}.bias"] = (C,)
    formas["ln_f.weight"] = formas["ln_f.bias"] = (C,)
    azar = torch.Generator().manual_seed(1605)
    return {nombre: 0.3 * torch.randn(suya, generator=azar) for nombre, suya in formas.items()}


def _leer_gpt2(H: int, nombres: dict[str, str], ids: Tensor, **suyos: Tensor) -> list[Tensor]:
    """Los parámetros de un GPT-2, con los nombres de aquí, y sus logits, calculados sin ninguna clase."""

    def norma(x: Tensor, nombre: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], suyos[f"{nombre}.weight"], suyos[f"{nombre}.bias"])

    def por(x: Tensor, nombre: str) -> Tensor:
        return x @ suyos[f"{nombre}.weight"] + suyos[f"{nombre}.bias"]

    x = suyos["wte.weight"][ids] + suyos["wpe.weight"][: ids.shape[1]]
    for i in range(sum(nombre.endswith("ln_1.weight") for nombre in suyos)):
        qkv = por(norma(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
        q, k, v = (z.unflatten(-1, (H, -1)).transpose(1, 2) for z in qkv.chunk(3, -1))
        leido = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + por(leido, f"h.{i}.attn.c_proj")
        oculto = F.gelu(por(norma(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh")
        x = x + por(oculto, f"h.{i}.mlp.c_proj")
    logits = norma(x, "ln_f") @ suyos["wte.weight"].T
    suyas = (suyos[suyo] for suyo in nombres.values())
    return [
        *(p.T if ".c_" in s and p.ndim == 2 else p for s, p in zip(nombres.values(), suyas)),
        logits,
    ]
