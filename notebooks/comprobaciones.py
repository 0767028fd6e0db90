"""Las comprobaciones de las piezas de mi_gpt.py: una por pieza, la del capítulo y la de probar.py.

Cada una recibe el módulo con la pieza y las que esta usa, y protesta con una frase que dice qué
falla y con qué valor. No mira cómo está escrita, sino lo que da.
"""

import json
import linecache
import math
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import hoja

MODERNA = {"norm": "rmsnorm", "position": "rope", "activation": "relu2"}
MODERNA |= {"qk_norm": True, "bias": False}
"""Los detalles de la caja."""


# --- con qué se comprueba ---------------------------------------------------------------------


def forma(mio: ModuleType, **otras):
    """Una forma pequeña, con las opciones dadas."""
    medidas = {"vocab_size": 11, "block_size": 9, "n_embd": 24, "n_layer": 2, "n_head": 4}
    return mio.Forma(**(medidas | otras))


def al_azar(*ejes: int) -> Tensor:
    return torch.randn(*ejes, generator=torch.Generator().manual_seed(1605))


@torch.no_grad()
def sortear(modulo: nn.Module, std: float = 0.3) -> nn.Module:
    """Dar a todos los parámetros valores al azar, para que ninguno pase inadvertido."""
    azar = torch.Generator().manual_seed(1605)
    for parametro in modulo.parameters():
        parametro.normal_(0, std, generator=azar)
    return modulo


def iguales(uno: Tensor, otro: Tensor) -> bool:
    return uno.shape == otro.shape and torch.allclose(uno, otro, rtol=1e-4, atol=1e-4)


def tiene_forma(dado: object, debida: tuple[int, ...], que: str = "da") -> None:
    assert isinstance(dado, Tensor), f"{que} {type(dado).__name__}, debería dar un tensor"
    suya = tuple(dado.shape)
    assert suya == debida, f"{que} la forma {suya}, debería dar {debida}"


def no_es(dado: Tensor, equivocadas: dict[str, Tensor]) -> None:
    """Protestar con su motivo si lo dado es una de las respuestas equivocadas."""
    for motivo, equivocada in equivocadas.items():
        assert not iguales(dado, equivocada), motivo


def tiene_parametros(modulo: nn.Module, debidos: dict[str, tuple[int, ...]]) -> None:
    """Protestar si los parámetros no son los que se piden; de lo demás puede guardar lo que quiera."""
    suyos = {nombre: tuple(p.shape) for nombre, p in modulo.named_parameters()}
    for nombre, debida in debidos.items():
        assert nombre in suyos, f"no tiene {nombre}"
        assert suyos[nombre] == debida, (
            f"tiene {nombre} de forma {suyos[nombre]}, debería ser {debida}"
        )
    de_mas = sorted(set(suyos) - set(debidos))
    assert not de_mas, f"tiene de más {', '.join(de_mas)}"


def aprende(modulo: nn.Module, sale: Tensor) -> None:
    """Protestar si el gradiente no llega a todos los parámetros."""
    assert sale.requires_grad, "lo que da no deja derivar: usa solo operaciones de PyTorch"
    sale.square().sum().backward()
    for nombre, p in modulo.named_parameters():
        assert p.grad is not None, f"a {nombre} no le llega gradiente"


class Falsa(nn.Module):
    """Una subcapa que hace una cuenta sencilla."""

    def __init__(self, cuenta: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.cuenta = cuenta

    def forward(self, x: Tensor) -> Tensor:
        return self.cuenta(x)


# --- las piezas -------------------------------------------------------------------------------


def comprobar_tokenizador(mio: ModuleType) -> None:
    letras = mio.Tokenizador(" amor")
    assert getattr(letras, "caracteres", None) == " amor", "no guarda los suyos en self.caracteres"
    ids = letras.codificar("roma")
    assert isinstance(ids, Tensor), f"codificar da {type(ids).__name__}, debería dar un tensor"
    assert ids.dtype == torch.long, f"codificar da números {ids.dtype}, debería dar torch.long"
    assert ids.tolist() == [4, 3, 2, 1], (
        f"codifica «roma» como {ids.tolist()}, con « amor» debería ser [4, 3, 2, 1]"
    )
    vuelta = letras.descodificar(torch.tensor([4, 3, 2, 1, 0]))
    assert vuelta == "roma ", f"de [4, 3, 2, 1, 0] da {vuelta!r}, debería dar 'roma '"
    desordenado = mio.Tokenizador("zña").codificar("añ").tolist()
    assert desordenado == [2, 1], (
        f"con «zña» codifica «añ» como {desordenado}: el número es el lugar en los caracteres dados"
    )
    assert letras.codificar("o").tolist() == [3], "cada tokenizador guarda sus caracteres"
    vacio = letras.codificar("")
    tiene_forma(vacio, (0,), "de un texto vacío codificar da")
    assert letras.descodificar(vacio) == "", "de ningún número sale un texto vacío"
    for desconocida, texto in (("z", "maza"), ("A", "Amor"), ("é", "amoré")):
        try:
            dado = letras.codificar(texto)
        except ValueError as error:
            assert desconocida in str(error), f"el error de {texto!r} no nombra {desconocida!r}"
        except (KeyError, IndexError) as error:
            nombre = type(error).__name__
            raise AssertionError(f"con una letra nueva da {nombre}, pide ValueError") from None
        else:
            raise AssertionError(f"de {texto!r} da {dado}, y {desconocida!r} no se conoce")


def comprobar_entrada(mio: ModuleType) -> None:
    entrada = mio.Entrada(forma(mio))
    tablas = {"token_embedding.weight": (11, 24), "position_embedding.weight": (9, 24)}
    tiene_parametros(entrada, tablas)
    sortear(entrada)
    letras, posiciones = entrada.token_embedding.weight, entrada.position_embedding.weight
    for B, T in ((1, 1), (3, 4), (2, 9)):
        ids = torch.randint(11, (B, T))
        sale = entrada(ids)
        tiene_forma(sale, (B, T, 24), f"a ids de forma {(B, T)} da")
        equivocadas = {"no suma las posiciones": letras[ids]}
        if T < 9:
            del_final = letras[ids] + posiciones[-T:]
            equivocadas["toma las posiciones por el final: la primera letra va en la 0"] = del_final
        no_es(sale, equivocadas)
        assert iguales(sale, letras[ids] + posiciones[:T]), (
            "en la posición t no da la fila de su letra más la fila t de las posiciones"
        )
    aprende(entrada, sale)
    grande = mio.Entrada(forma(mio, vocab_size=80, block_size=80))
    for nombre, p in grande.named_parameters():
        desviacion = p.std().item()
        assert 0.17 < desviacion < 0.23, (
            f"{nombre} nace con una desviación típica de {desviacion:.2f}, debería ser 0.2"
        )
    rotatoria = mio.Entrada(forma(mio, position="rope"))
    assert not hasattr(rotatoria, "position_embedding"), (
        'tiene position_embedding también si forma.position no es "learned"'
    )
    ids = torch.randint(11, (2, 5))
    assert iguales(rotatoria(ids), rotatoria.token_embedding(ids)), (
        'si forma.position no es "learned", no da las filas de las letras'
    )


def comprobar_mirar_atras(mio: ModuleType) -> None:
    q, k, v = al_azar(3, 7, 6)  # cada uno (7, 6)
    antes = q.clone(), k.clone(), v.clone()
    dado = mio.mirar_atras(q, k, v)
    assert isinstance(dado, tuple) and len(dado) == 2, "no devuelve dos cosas: lo leído y los pesos"
    leido, pesos = dado
    assert all(map(torch.equal, (q, k, v), antes)), "cambia las q, k o v que recibe"
    tiene_forma(leido, (7, 6), "de lo leído da")
    tiene_forma(pesos, (7, 7), "de los pesos da")
    futuro = pesos.triu(1)
    assert futuro.abs().max() < 1e-6, (
        f"deja que la primera letra dé {futuro[0].max():.2f} a una de después, debería dar 0"
    )
    suma = pesos.sum(-1)
    lejos = suma[(suma - 1).abs().argmax()].item()
    assert abs(lejos - 1) < 1e-4, f"da unos pesos que suman {lejos:.2f} en una fila, no 1"
    assert abs(pesos[0, 0] - 1) < 1e-4, "la primera letra solo se ve a sí misma: no se da un 1"
    puntuaciones = q @ k.mT
    debidos = _pesos(puntuaciones / math.sqrt(6))
    if not iguales(pesos, debidos):
        no_es(pesos, {"pregunta con k y contesta con q": _pesos(puntuaciones.mT / math.sqrt(6))})
        escala = (puntuaciones[1, 0] - puntuaciones[1, 1]) / (pesos[1, 0] / pesos[1, 1]).log()
        if iguales(pesos, _pesos(puntuaciones / escala)):
            raise AssertionError(
                f"divide las puntuaciones entre {escala:.2f}, debería entre √D = {math.sqrt(6):.2f}"
            )
        raise AssertionError("los pesos no son la softmax, por filas, de las puntuaciones")
    assert iguales(leido, pesos @ v), "da bien los pesos, pero lo leído no es la mezcla de los v"
    q, k, v = al_azar(3, 2, 4, 9, 8)  # cada uno (2, 4, 9, 8)
    leido, _ = mio.mirar_atras(q, k, v)
    debido = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert iguales(leido, debido), "va bien con (T, D), y no con dos ejes más delante"
    q.requires_grad_()
    leido, _ = mio.mirar_atras(q, k, v)
    assert leido.requires_grad, "el gradiente no la atraviesa: usa solo operaciones de PyTorch"


def _pesos(puntuaciones: Tensor) -> Tensor:
    """La softmax, por filas, de unas puntuaciones con el futuro tapado: (…, T, T)."""
    futuro = torch.ones_like(puntuaciones, dtype=torch.bool).triu(1)
    return puntuaciones.masked_fill(futuro, -math.inf).softmax(-1)


def comprobar_atencion(mio: ModuleType) -> None:
    for opciones in ({}, {"bias": False}, {"n_head": 1}, {"n_head": 8}, {"n_embd": 32}):
        _probar_atencion(mio, forma(mio, **opciones))


def comprobar_atencion_moderna(mio: ModuleType) -> None:
    comprobar_atencion(mio)
    for opciones in ({"position": "rope"}, {"qk_norm": True}, MODERNA):
        _probar_atencion(mio, forma(mio, **opciones))


def _probar_atencion(mio: ModuleType, medidas) -> None:
    C, H = medidas.n_embd, medidas.n_head
    atencion = mio.Atencion(medidas)
    debidos = {"qkv.weight": (3 * C, C), "proj.weight": (C, C)}
    if medidas.bias:
        debidos |= {"qkv.bias": (3 * C,), "proj.bias": (C,)}
    tiene_parametros(atencion, debidos)
    sortear(atencion)
    x = al_azar(2, 7, C)
    sale = atencion(x.clone())
    tiene_forma(sale, (2, 7, C))
    qkv = atencion.qkv(x)
    partes = qkv.chunk(3, -1)  # consultas, claves y valores
    if not iguales(sale, _atencion(atencion, partes, medidas, H)):
        _decir_que_falla(atencion, sale, qkv, medidas)
    aprende(atencion, sale)


def _decir_que_falla(atencion: nn.Module, sale: Tensor, qkv: Tensor, medidas) -> None:
    """Levantar AssertionError con lo que se ha hecho mal."""
    C, H = medidas.n_embd, medidas.n_head
    partes = qkv.chunk(3, -1)
    for otras in (1, 2, 3, 4, 6, 8):
        if C % otras == 0 and otras != H:
            assert not iguales(sale, _atencion(atencion, partes, medidas, otras)), (
                f"con n_head = {H} da lo que darían {otras} cabezas"
            )
    por_cabezas = qkv.unflatten(-1, (H, 3, C // H))
    mezcladas = [por_cabezas[..., i, :].flatten(-2) for i in range(3)]
    q, k, v = partes
    equivocadas = {
        "reparte la salida de qkv primero por cabezas; van todas las consultas, las claves y los "
        "valores": _atencion(atencion, mezcladas, medidas, H),
        "cambia el orden: en qkv van consultas, claves y valores": _atencion(
            atencion, [k, q, v], medidas, H
        ),
        "al juntar las cabezas mezcla las letras: antes se cambian los ejes": _atencion(
            atencion, partes, medidas, H, sin_cambiar_ejes=True
        ),
        "no pasa lo leído por proj": _atencion(atencion, partes, medidas, H, proj=lambda z: z),
    }
    no_es(sale, equivocadas)
    una_menos = _atencion(atencion, [z[:, :-1] for z in partes], medidas, H)
    assert iguales(sale[:, :-1], una_menos) or iguales(sale[:, 0], una_menos[:, 0]), (
        "la primera letra no da lo que da ella sola: mira la máscara"
    )
    detalles = [f"{k} = {getattr(medidas, k)!r}" for k in ("position", "qk_norm")]
    raise AssertionError(f"con n_head = {H} y {', '.join(detalles)} no da lo que debe")


def _atencion(
    atencion: nn.Module,
    partes: list[Tensor] | tuple[Tensor, ...],
    medidas,
    H: int,
    sin_cambiar_ejes: bool = False,
    proj: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Lo que debe dar, calculado aparte. partes: consultas, claves y valores, (B, T, C)."""
    q, k, v = (parte.unflatten(-1, (H, -1)).transpose(1, 2) for parte in partes)
    if medidas.position == "rope":
        q, k = _girar(q), _girar(k)
    if medidas.qk_norm:
        q, k = (F.rms_norm(z, z.shape[-1:], eps=1e-6) for z in (q, k))
    leido = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, D)
    if not sin_cambiar_ejes:
        leido = leido.transpose(1, 2)
    return (proj or atencion.proj)(leido.reshape(partes[0].shape))


def comprobar_feed_forward(mio: ModuleType) -> None:
    for opciones in ({}, {"activation": "gelu"}, {"activation": "relu2", "bias": False}):
        medidas = forma(mio, **opciones)
        subcapa = mio.FeedForward(medidas)
        debidos = {"expand.weight": (96, 24), "proj.weight": (24, 96)}
        if medidas.bias:
            debidos |= {"expand.bias": (96,), "proj.bias": (24,)}
        tiene_parametros(subcapa, debidos)
        sortear(subcapa)
        activar = mio.ACTIVACIONES[medidas.activation]
        for ejes in ((24,), (10, 24), (2, 7, 24)):
            x = al_azar(*ejes)
            sale = subcapa(x.clone())
            tiene_forma(sale, ejes, f"a {ejes} da")
            oculto = subcapa.expand(x)
            equivocadas = {
                "no activa: sin activación, dos matrices seguidas son una": subcapa.proj(oculto),
                "activa también la salida": activar(subcapa.proj(activar(oculto))),
                "activa la entrada, y no lo ensanchado": subcapa.proj(subcapa.expand(activar(x))),
            }
            if medidas.activation != "relu":
                sin_mirar = subcapa.proj(oculto.relu())
                equivocadas["usa siempre ReLU: la activación la dice forma.activation"] = sin_mirar
            no_es(sale, equivocadas)
            debido = subcapa.proj(activar(oculto))
            assert iguales(sale, debido), "no da proj(activación(expand(x)))"
        aprende(subcapa, sale)


def comprobar_layer_norm(mio: ModuleType) -> None:
    norma = mio.LayerNorm(8)
    tiene_parametros(norma, {"weight": (8,), "bias": (8,)})
    assert (norma.weight == 1).all(), "weight no empieza en 1"
    assert (norma.bias == 0).all(), "bias no empieza en 0"
    x = 3 + 2 * al_azar(3, 5, 8)
    antes = x.clone()
    sale = norma(x)
    assert torch.equal(x, antes), "cambia la x que recibe: resta sin tocarla"
    tiene_forma(sale, (3, 5, 8))
    lejos = sale.mean(-1).abs().max().item()
    assert lejos < 1e-4, (
        f"deja un vector con media {lejos:.2f}, debería ser 0: un vector, una media"
    )
    pequena = 0.002 * al_azar(8)  # su varianza es como la épsilon
    _misma_epsilon(mio.LayerNorm(8)(pequena), pequena, 1e-5, "de fábrica")
    _misma_epsilon(mio.LayerNorm(8, epsilon=6.25)(al_azar(8)), al_azar(8), 6.25, "dada, 6.25")
    cuadrados = sale[0, 0].square().mean().item()
    de_muestra = abs(cuadrados - 7 / 8) < 1e-3
    assert not de_muestra, "divide la varianza entre C − 1, debería dividir entre C: la poblacional"
    assert abs(cuadrados - 1) < 1e-3, f"deja un vector con varianza {cuadrados:.2f}, debería ser 1"
    sortear(norma)
    debido = F.layer_norm(x, (8,), norma.weight, norma.bias)
    assert iguales(norma(x), debido), "con otras γ y β no da γ por lo normalizado, más β"
    aprende(norma, norma(x))
    sin_sesgo = mio.LayerNorm(8, bias=False)
    assert sin_sesgo.bias is None, "con bias=False, self.bias no es None"
    assert iguales(sin_sesgo(x), F.layer_norm(x, (8,))), "con bias=False no da lo mismo sin β"


def _misma_epsilon(sale: Tensor, x: Tensor, epsilon: float, cual: str) -> None:
    desvios, varianza = x - x.mean(), x.var(correction=0)
    fuera = desvios / (varianza.sqrt() + epsilon)
    assert not iguales(sale, fuera), "suma la épsilon fuera de la raíz; va dentro, con la varianza"
    dada = ((desvios / sale).square().mean() - varianza).item()  # la que explica lo que sale
    assert abs(dada - epsilon) < 0.02 * epsilon, (
        f"usa una épsilon de {dada:.1g}, debería usar la {cual}: {epsilon:g}"
    )


def comprobar_bloque(mio: ModuleType) -> None:
    medidas = forma(mio)
    bloque = mio.Bloque(medidas)
    normas = {f"norm{i}.{cual}": (24,) for i in (1, 2) for cual in ("weight", "bias")}
    matrices = {"attention.qkv": (72, 24), "attention.proj": (24, 24)}
    matrices |= {"feed_forward.expand": (96, 24), "feed_forward.proj": (24, 96)}
    sesgos = {f"{nombre}.bias": (forma_suya[0],) for nombre, forma_suya in matrices.items()}
    pesos = {f"{nombre}.weight": forma_suya for nombre, forma_suya in matrices.items()}
    assert getattr(bloque, "norm1", 1) is not getattr(bloque, "norm2", 2), (
        "normaliza las dos veces con la misma: norm1 y norm2 son dos"
    )
    tiene_parametros(bloque, normas | pesos | sesgos)
    _probar_las_sumas(mio.Bloque(medidas))
    x = 5 + 2 * al_azar(2, 7, 24)
    for n_head in (4, 2, 1):
        bloque = sortear(mio.Bloque(forma(mio, n_head=n_head))).eval()
        sale = bloque(x.clone())
        tiene_forma(sale, (2, 7, 24))
        for otras in {1, 2, 3, 4} - {n_head}:
            assert not iguales(sale, _bloque_de_pytorch(bloque, otras)(x)), (
                f"con n_head = {n_head} da lo que daría con {otras} cabezas"
            )
        assert iguales(sale, _bloque_de_pytorch(bloque, n_head)(x)), (
            "no da lo que el bloque de PyTorch con los mismos parámetros"
        )
    pequena = 0.003 * al_azar(1, 1, 24)
    debida = F.layer_norm(pequena, (24,), bloque.norm1.weight, bloque.norm1.bias)
    assert iguales(bloque.norm1(pequena), debida), "su norm1 tiene otra épsilon: no es 1e-5"
    aprende(bloque, sale)


def _probar_las_sumas(bloque: nn.Module) -> None:
    """Qué se normaliza, qué se suma y en qué orden, con cuatro partes de cuentas sencillas."""

    def norm1(y):
        return y - 1

    def attention(y):
        return 10 * y

    def norm2(y):
        return y / 2

    def feed_forward(y):
        return y + 3

    bloque.norm1, bloque.norm2 = Falsa(norm1), Falsa(norm2)
    bloque.attention, bloque.feed_forward = Falsa(attention), Falsa(feed_forward)
    x = torch.tensor([[[2.0, -4.0]]])  # (B, T, C)
    escuchado = x + attention(norm1(x))
    # x' = 2 + 10 · (2 − 1) = 12, y x'' = 12 + (12 / 2 + 3) = 21
    bien = torch.tensor([[[21.0, -78.0]]])
    post = norm1(x + attention(x))
    limpio = norm2(norm1(x) + attention(norm1(x)))
    sale = bloque(x)
    assert x.tolist() == [[[2, -4]]], "cambia el x que entra; escribe x = x + …"
    equivocadas = {
        "devuelve lo que da la última subcapa sin sumarlo": feed_forward(norm2(escuchado)),
        "no suma en ningún sitio": feed_forward(norm2(attention(norm1(x)))),
        "da a las subcapas lo que hay sin normalizar": (
            x + attention(x) + feed_forward(x + attention(x))
        ),
        "hace leer a la feed-forward lo que entró, y no lo que dejó la atención": (
            escuchado + feed_forward(norm2(x))
        ),
        "normaliza las sumas: el original se pierde": norm2(post + feed_forward(post)),
        "normaliza después de la atención, y no antes": (
            x + norm1(attention(x)) + feed_forward(norm2(x + norm1(attention(x))))
        ),
        "no normaliza delante de la feed-forward": escuchado + feed_forward(escuchado),
        "suma a la copia normalizada, y no al original": limpio + feed_forward(limpio),
        "se para después de la atención": escuchado,
        "devuelve lo que recibe": x,
    }
    for motivo, equivocada in equivocadas.items():
        assert not torch.equal(sale, equivocada), motivo
    assert torch.equal(sale, bien), f"da {sale.tolist()}, debería dar {bien.tolist()}"


SUS_NOMBRES = {
    "norm1.": "norm1.",
    "norm2.": "norm2.",
    "attention.qkv.": "self_attn.in_proj_",
    "attention.proj.": "self_attn.out_proj.",
    "feed_forward.expand.": "linear1.",
    "feed_forward.proj.": "linear2.",
}
"""Cómo llama nn.TransformerEncoderLayer a las partes de un bloque."""


def _bloque_de_pytorch(bloque: nn.Module, n_head: int) -> Callable[[Tensor], Tensor]:
    """El bloque que trae PyTorch, con los mismos parámetros."""
    capa = nn.TransformerEncoderLayer(24, n_head, 96, 0.0, batch_first=True, norm_first=True)
    mios = dict(bloque.named_parameters())
    suyos = {
        suyo + final: mios[mio + final]
        for mio, suyo in SUS_NOMBRES.items()
        for final in ("weight", "bias")
    }
    capa.load_state_dict(suyos)
    tapado = torch.ones(7, 7, dtype=torch.bool).triu(1)
    return lambda x: capa.eval()(x, src_mask=tapado, is_causal=True)


def comprobar_gpt(mio: ModuleType) -> None:
    medidas = forma(mio, n_layer=3)
    modelo = mio.Gpt(medidas)
    assert getattr(modelo, "forma", None) == medidas, "no guarda la forma en self.forma"
    bloques = getattr(modelo, "blocks", None)
    assert bloques is not None, "no tiene blocks"
    assert isinstance(bloques, nn.Module), (
        "en una lista de Python no se ven los parámetros: blocks ha de ser una nn.ModuleList"
    )
    assert len(bloques) == 3, f"con n_layer = 3 tiene {len(bloques)} bloques"
    assert len({id(b) for b in bloques}) == 3, "sus bloques son el mismo: cada uno ha de ser nuevo"
    debidos = {"token_embedding.weight": (11, 24), "position_embedding.weight": (9, 24)}
    debidos |= {"norm.weight": (24,), "norm.bias": (24,), "head.weight": (11, 24)}
    de_un_bloque = {n: tuple(p.shape) for n, p in mio.Bloque(medidas).named_parameters()}
    debidos |= {f"blocks.{i}.{n}": f for i in range(3) for n, f in de_un_bloque.items()}
    tiene_parametros(modelo, debidos)
    for nombre in ("token_embedding", "position_embedding"):
        desviacion = getattr(modelo, nombre).weight.std().item()
        assert 0.14 < desviacion < 0.26, (
            f"{nombre} nace con una desviación típica de {desviacion:.2f}, debería ser 0.2"
        )
    ids = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(1605))
    tiene_forma(modelo(ids), (2, 9, 11))
    al_nacer = F.cross_entropy(modelo(ids).mT, ids.roll(1)).item()
    assert abs(al_nacer - math.log(11)) < 0.6, (
        f"al nacer pierde {al_nacer:.2f}, lejos de ln V, 2.40"
    )
    sortear(modelo)
    with torch.no_grad():
        _probar_los_logits(modelo, ids)
        _probar_los_logits(modelo, ids[:, :5])
    aprende(modelo, modelo(ids))
    _probar_sin_posiciones(sortear(mio.Gpt(forma(mio, position="ninguna"))), ids)


@torch.no_grad()
def _probar_sin_posiciones(modelo: nn.Module, ids: Tensor) -> None:
    x = modelo.token_embedding(ids)
    for bloque in modelo.blocks:
        x = bloque(x)
    motivo = (
        'suma posiciones también si forma.position no es "learned": Entrada ya lo mira, y basta '
        "con super().forward(ids)"
    )
    try:
        sale = modelo(ids)
    except AttributeError:
        raise AssertionError(motivo) from None
    assert iguales(sale, modelo.head(modelo.norm(x))), motivo


def _probar_los_logits(modelo: nn.Module, ids: Tensor) -> None:
    T = ids.shape[1]
    letras, posiciones = modelo.token_embedding.weight[ids], modelo.position_embedding.weight

    def por_los_bloques(x: Tensor, bloques) -> Tensor:
        for bloque in bloques:
            x = bloque(x)
        return x

    entra = letras + posiciones[:T]
    sale = modelo(ids)
    fondo = por_los_bloques(entra, modelo.blocks)
    debidos = modelo.head(modelo.norm(fondo))
    no_es(
        sale,
        {
            "no suma las posiciones": modelo.head(
                modelo.norm(por_los_bloques(letras, modelo.blocks))
            ),
            "da probabilidades; han de ser los logits, sin softmax": debidos.softmax(-1),
            "no normaliza delante de la cabeza de salida": modelo.head(fondo),
            "no pasa por los bloques": modelo.head(modelo.norm(entra)),
            "pasa solo por el primer bloque": modelo.head(modelo.norm(modelo.blocks[0](entra))),
            "pasa por los bloques al revés": modelo.head(
                modelo.norm(por_los_bloques(entra, list(modelo.blocks)[::-1]))
            ),
        },
    )
    assert iguales(sale, debidos), "no da head(norm(los bloques(la entrada)))"


def comprobar_entropia_cruzada(mio: ModuleType) -> None:
    logits = 3 * al_azar(2, 5, 11)
    objetivos = torch.randint(11, (2, 5), generator=torch.Generator().manual_seed(1605))
    dada = mio.entropia_cruzada(logits, objetivos)
    tiene_forma(dada, ())
    por_letra = -logits.log_softmax(-1).gather(-1, objetivos[..., None])[..., 0]  # (B, T)
    log_2 = math.log(2)
    no_es(
        dada,
        {
            "da el logaritmo sin cambiarle el signo": -por_letra.mean(),
            "da la suma, debería dar la media de todas las letras": por_letra.sum(),
            "suma las letras de un texto y hace la media de los textos": por_letra.sum(1).mean(),
            "da bits, debería dar nats: el logaritmo es el natural": por_letra.mean() / log_2,
            "da la media de las p correctas, sin logaritmo": (-por_letra).exp().mean(),
            "da −ln de la media de las p, debería dar la media de los −ln": (
                -(-por_letra).exp().mean().log()
            ),
            "toma los logits por logaritmos: falta dividir entre la suma": (
                -logits.gather(-1, objetivos[..., None]).mean()
            ),
        },
    )
    assert iguales(dada, por_letra.mean()), (
        f"da {dada.item():.3f}, la media de −ln p es {por_letra.mean().item():.3f}"
    )
    enormes = mio.entropia_cruzada(1000 * logits, objetivos).item()
    assert math.isfinite(enormes), f"con logits de miles da {enormes}: usa log_softmax"
    logits.requires_grad_()
    assert mio.entropia_cruzada(logits, objetivos).requires_grad, "no deja derivar: sin .item()"


def comprobar_paso_de_adam(mio: ModuleType) -> None:
    g = torch.tensor([0.5, -2.0, 0.0])
    quieto, w = torch.zeros(3), torch.ones(3)
    dado = mio.paso_de_adam(w, g, quieto, quieto, 1, 0.1, encoger=0.3)
    assert isinstance(dado, tuple | list) and len(dado) == 3, "no devuelve tres cosas: w, m y v"
    recibido = [g.tolist(), quieto.tolist(), w.tolist()]
    assert recibido == [[0.5, -2, 0], [0, 0, 0], [1, 1, 1]], "cambia lo que recibe"
    nuevo, m, v = mio.paso_de_adam(w, g, quieto, quieto, 1, 0.1)
    assert iguales(m, 0.1 * g), f"m es {_en_corto(m)}, debería ser la décima parte de g"
    assert iguales(v, 0.01 * g**2), f"v es {_en_corto(v)}, debería ser 0.01 · g²"
    bien = torch.tensor([0.9, 1.1, 1.0])
    assert iguales(nuevo, bien), (
        "en el primer paso todos se mueven la tasa (las memorias, entre 1 − β^t): "
        f"da {_en_corto(nuevo)}, debería dar {_en_corto(bien)}"
    )
    diminuta = torch.tensor([1e-6])
    nuevo, _, _ = mio.paso_de_adam(torch.zeros(1), diminuta, *torch.zeros(2, 1), 1, 1.0)
    assert abs(nuevo.item() + 0.9901) < 1e-3, (
        f"con una pendiente de 1e-6 se mueve {-nuevo.item():.3f}, debería 0.990: el 1e-8 se suma a "
        "la raíz, fuera"
    )
    for encoger in (0.0, 0.3):
        parametro = nn.Parameter(torch.tensor([[1.0, -3.0], [0.5, 2.0]]))
        oficial = torch.optim.AdamW([parametro], lr=0.2, betas=(0.8, 0.9), weight_decay=encoger)
        w, (m, v) = parametro.detach().clone(), torch.zeros(2, 2, 2)
        for t in range(1, 6):
            w, m, v = mio.paso_de_adam(w, w**2 - 1, m, v, t, 0.2, 0.8, 0.9, encoger)
            parametro.grad = parametro.detach() ** 2 - 1
            oficial.step()
            assert iguales(w, parametro.detach()), (
                f"con encoger = {encoger}, en el paso {t} da {_en_corto(w)}, y el AdamW de PyTorch "
                f"da {_en_corto(parametro)}"
            )


def _en_corto(numeros: Tensor) -> str:
    return str([round(n, 3) for n in numeros.flatten().tolist()])


def comprobar_entrenar(mio: ModuleType) -> None:
    # A cada letra le sigue siempre la misma (salvo una vez), y las cuatro últimas están al final.
    texto = torch.tensor([0, 1, 2, 3] * 40 + [4, 5, 6, 7] * 10)
    sigue = torch.tensor([1, 2, 3, 0, 5, 6, 7, 4])
    tabla = nn.Embedding(8, 8, _weight=torch.zeros(8, 8))  # una fila de logits por letra
    leidas, nuevos, llevados = [], [], []
    tabla.register_forward_pre_hook(lambda _, entradas: leidas.append(entradas[0]))
    tabla.weight.register_hook(lambda gradiente: nuevos.append(gradiente.clone()))
    tabla.weight.register_post_accumulate_grad_hook(lambda w: llevados.append(w.grad.clone()))
    with _apuntando_los_pasos(mio) as pasos:
        perdidas = mio.entrenar(tabla, texto, pasos=200, lote=8, ventana=5, tasa=0.1)
    _mirar_los_lotes(leidas, sigue)
    assert isinstance(perdidas, list), "no devuelve la lista de las pérdidas"
    assert len(perdidas) == 200, f"da {len(perdidas)} pérdidas, deberían ser 200, una por paso"
    assert all(isinstance(p, float) for p in perdidas), "las pérdidas no son números: .item()"
    assert math.isclose(perdidas[0], math.log(8), rel_tol=1e-4), (
        f"empieza con una pérdida de {perdidas[0]:.2f}, debería ser ln 8 = 2.08"
    )
    assert len(llevados) == 200, f"va hacia atrás {len(llevados)} veces, deberían ser 200"
    assert torch.allclose(nuevos[1], llevados[1]), (
        "llega al paso 2 sin olvidar el gradiente del 1: falta zero_grad"
    )
    veces = leidas[0].flatten().bincount(minlength=8)  # de cada letra, en las 40 del primer lote
    assert torch.allclose(8 * nuevos[0].diag(), veces / 40, atol=1e-4), (
        "la pérdida no es la entropía cruzada de todas las letras del lote con la que les sigue"
    )
    _mirar_los_pasos(pasos)
    predichas = tabla.weight.argmax(1).tolist()
    assert predichas == sigue.tolist(), (
        f"tras 0, 1, 2… 7 predice {predichas}, debería {sigue.tolist()}"
    )
    final = sum(perdidas[-20:]) / 20
    assert final < 0.2, f"acaba con una pérdida de {final:.2f}, debería bajar de 0.2"


@contextmanager
def _apuntando_los_pasos(mio: ModuleType) -> Iterator[list[tuple[int, float, bool]]]:
    """Dentro se apunta de cada paso de Adam su número, su tasa y si sus memorias están a cero."""
    paso_de_adam = mio.paso_de_adam
    pasos = []

    def apuntar(w, g, m, v, t, tasa, *otros, **mas):
        pasos.append((t, float(tasa), not v.any()))
        return paso_de_adam(w, g, m, v, t, tasa, *otros, **mas)

    mio.paso_de_adam = apuntar
    try:
        yield pasos
    finally:
        mio.paso_de_adam = paso_de_adam


def _mirar_los_lotes(leidas: list[Tensor], sigue: Tensor) -> None:
    formas = {tuple(x.shape) for x in leidas}
    assert formas == {(8, 5)}, f"da al modelo entradas de forma {formas}, debería ser (8, 5)"
    seguidas = all(((x[:, 1:] == sigue[x[:, :-1]]) | (x[:, 1:] == 4)).all() for x in leidas)
    assert seguidas, "toma letras que no van seguidas en el texto"
    assert max(len(x.unique(dim=0)) for x in leidas) > 1, "repite una ventana en todo el lote"
    lotes = {tuple(x.flatten().tolist()) for x in leidas}
    assert len(lotes) > 1, "lee siempre el mismo lote"
    assert len(torch.cat(leidas).unique()) == 8, "hay partes del texto que no lee nunca"


def _mirar_los_pasos(pasos: list[tuple[int, float, bool]]) -> None:
    assert pasos, "no mueve los parámetros con tu Adam"
    assert len(pasos) == 200, f"da {len(pasos)} pasos de Adam, deberían ser 200"
    assert not pasos[1][2], (
        "olvida las memorias de Adam en cada paso: el optimizador se hace una vez"
    )
    numeros = [t for t, _, _ in pasos]
    assert numeros == list(range(1, 201)), f"cuenta los pasos de Adam así: {numeros[:3]}…"
    tasas = [tasa for _, tasa, _ in pasos]
    assert len({round(tasa, 8) for tasa in tasas}) > 1, "la tasa no cambia nunca: ni sube ni baja"
    debidas = [0.1 * min(t / 50, 1) * (1 - (t - 1) / 200) for t in range(1, 201)]
    sin_bajar = [0.1 * min(t / 50, 1) for t in range(1, 201)]
    sin_subir = [0.1 * (1 - (t - 1) / 200) for t in range(1, 201)]
    assert not _cerca(tasas, sin_bajar), "la tasa no baja hasta cero: falta · (1 − (t − 1) / pasos)"
    assert not _cerca(tasas, sin_subir), "la tasa no sube en los 50 primeros pasos: min(t / 50, 1)"
    for t, (tasa, debida) in enumerate(zip(tasas, debidas), 1):
        assert math.isclose(tasa, debida, rel_tol=1e-3, abs_tol=1e-9), (
            f"en el paso {t}, con tasa 0.1, da un paso de {tasa:.5f}, debería ser de {debida:.5f}"
        )


def _cerca(unas: list[float], otras: list[float]) -> bool:
    return all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-9) for a, b in zip(unas, otras))


class DeDosEnDos:
    """Un tokenizador de subpalabras: un número para cada dos letras."""

    def codificar(self, texto: str) -> Tensor:
        return torch.tensor(["abc".index(a) for a in texto[::2]])

    def descodificar(self, ids: Tensor) -> str:
        return "".join(2 * "abc"[i] for i in ids.tolist())


def comprobar_generar(mio: ModuleType) -> None:
    class SigueA(nn.Module):
        """Tras la letra i da a i + 1 nueve veces más probabilidad que a cada una de las otras."""

        forma = forma(mio, vocab_size=3, block_size=5)

        def forward(self, ids: Tensor) -> Tensor:
            assert ids.ndim == 2, f"da a leer ids de forma {tuple(ids.shape)}, debería ser (1, T)"
            assert ids.shape[1] <= 5, f"da a leer {ids.shape[1]} letras, y block_size es 5"
            return math.log(9) * F.one_hot((ids + 1) % 3, 3)

    modelo, letras = SigueA(), mio.Tokenizador("abc")
    voraz = mio.generar(modelo, letras, "ca", 8, temperatura=0)
    assert isinstance(voraz, str), f"da {type(voraz).__name__}, debería dar un texto"
    assert not voraz.startswith("ca") or len(voraz) == 8, "devuelve también el comienzo"
    assert voraz == "bcabcabc", f"con temperatura 0 sigue «ca» con «{voraz}», debería «bcabcabc»"
    for temperatura, debida in ((1.0, 9 / 11), (2.0, 3 / 5)):
        escrito = "a" + mio.generar(modelo, letras, "a", 2000, temperatura=temperatura)
        pares = [(ord(b) - ord(a)) % 3 == 1 for a, b in zip(escrito, escrito[1:])]
        parte = sum(pares) / len(pares)
        assert abs(parte - debida) < 0.05, (
            f"con temperatura {temperatura}, la más probable sale el {parte:.0%} de las veces, "
            f"debería salir el {debida:.0%}"
        )
    dos = [mio.generar(modelo, letras, "a", 50, semilla=s) for s in (1, 1, 2)]
    assert dos[0] == dos[1], "con la misma semilla escribe dos cosas distintas"
    assert dos[0] != dos[2], "con otra semilla escribe lo mismo"
    torch.manual_seed(0)
    dado = torch.rand(1)
    torch.manual_seed(0)
    mio.generar(modelo, letras, "a", 5)
    assert torch.rand(1) == dado, "mueve el azar de PyTorch: pide su propio torch.Generator"
    subpalabras = mio.generar(modelo, DeDosEnDos(), "aabb", 3, temperatura=0)
    assert subpalabras == "ccaabb", (
        f"con un número cada dos letras, sigue «aabb» con «{subpalabras}», debería «ccaabb»: lo "
        "escrito empieza detrás de los números del comienzo"
    )


def comprobar_girar(mio: ModuleType) -> None:
    x = al_azar(2, 3, 7, 8)  # (B, H, T, D)
    antes = x.clone()
    dado = mio.girar(x)
    assert torch.equal(x, antes), "cambia la x que recibe"
    tiene_forma(dado, (2, 3, 7, 8))
    lejos = (dado.norm(dim=-1) - x.norm(dim=-1)).abs().max().item()
    assert lejos < 1e-4, f"cambia la longitud de un vector en {lejos:.2f}: girar no la cambia"
    assert iguales(dado[..., :1, :], x[..., :1, :]), "gira la posición 0, que no se mueve"
    mitades = torch.stack(x.chunk(2, -1), -1).flatten(-2)
    no_es(
        dado,
        {
            "no gira nada": x,
            "gira al revés: mira el signo de los senos": _girar(x, sentido=-1),
            "hace las parejas con las dos mitades; son los canales 2j y 2j + 1": torch.cat(
                _girar(mitades).unflatten(-1, (4, 2)).unbind(-1), -1
            ),
            "gira todas las parejas el mismo ángulo": _girar(x, base=1.0),
        },
    )
    assert iguales(dado, _girar(x)), "no gira cada pareja el ángulo de su posición"
    assert iguales(mio.girar(x[0, 0]), _girar(x[0, 0])), "va mal con un solo texto, (T, D)"


def _girar(x: Tensor, sentido: int = 1, base: float = 10000.0) -> Tensor:
    """Lo que debe dar girar, con números complejos."""
    T, D = x.shape[-2:]
    angulos = torch.outer(torch.arange(T), base ** (-torch.arange(0, D, 2) / D))
    giros = torch.polar(torch.ones_like(angulos), sentido * angulos)
    parejas = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(parejas * giros).flatten(-2)


def comprobar_igualar(mio: ModuleType) -> None:
    x = 3 + al_azar(2, 4, 7, 6)
    antes = x.clone()
    dado = mio.igualar(x)
    assert torch.equal(x, antes), "cambia la x que recibe"
    tiene_forma(dado, (2, 4, 7, 6))
    centrado = x - x.mean(-1, keepdim=True)
    no_es(
        dado,
        {
            "resta la media, y RMSNorm no la resta": F.rms_norm(centrado, (6,), eps=1e-6),
            "deja cada vector con longitud 1; lo que vale 1 es la media de los cuadrados": (
                F.normalize(x, dim=-1)
            ),
            "divide entre la media de los cuadrados, sin su raíz": (
                x / x.square().mean(-1, keepdim=True)
            ),
            "junta todas las posiciones: cada vector va por su cuenta": F.rms_norm(
                x, x.shape[-2:], eps=1e-6
            ),
        },
    )
    assert iguales(dado, F.rms_norm(x, (6,), eps=1e-6)), "no es la RMSNorm de cada vector"
    pequena = torch.full((6,), 1e-3)  # la media de sus cuadrados es la épsilon
    cuanto = mio.igualar(pequena)[0].item()
    assert abs(cuanto - math.sqrt(1 / 2)) < 1e-2, (
        f"hace de seis 0.001 seis {cuanto:.2f}, debería 0.71: la épsilon es 1e-6, dentro de la raíz"
    )


def comprobar_guardar(mio: ModuleType) -> None:
    for opciones in ({}, MODERNA):
        modelo = sortear(mio.Gpt(forma(mio, **opciones)))
        with tempfile.TemporaryDirectory() as carpeta:
            ruta = Path(carpeta) / "mio.safetensors"
            mio.guardar(ruta, modelo, mio.Tokenizador("aábcdefghij"))
            assert ruta.is_file(), "no escribe el archivo"
            tensores = load_file(ruta)
            with safe_open(ruta, "pt") as archivo:
                metadata = archivo.metadata() or {}
        assert "content" in metadata, 'en su metadata falta "content"'
        contenido = json.loads(metadata["content"])
        assert contenido.get("characters") == "aábcdefghij", 'en "characters" no están las letras'
        suya = contenido.get("model")
        assert suya == vars(modelo.forma), f'en "model" no está la forma, sino {suya}'
        for nombre, p in modelo.named_parameters():
            guardado = tensores.get(f"model.{nombre}")
            assert guardado is not None, f"no guarda model.{nombre}"
            assert torch.equal(guardado, p), f"de model.{nombre} guarda otros números"


def comprobar_abrir_caja(mio: ModuleType) -> None:
    with tempfile.TemporaryDirectory() as carpeta:
        ruta = Path(carpeta) / "mio.safetensors"
        for opciones in ({}, MODERNA):
            modelo = sortear(mio.Gpt(forma(mio, **opciones)))
            tensores = {f"model.{nombre}": p.detach() for nombre, p in modelo.named_parameters()}
            de_mas = {"dropout": 0.1, "ngram_size": 1, "embedding_skip": False}
            contenido = {"characters": "aábcdefghij", "model": vars(modelo.forma) | de_mas}
            en_16_bits = {nombre: p.bfloat16() for nombre, p in tensores.items()}
            save_file(en_16_bits, ruta, {"content": json.dumps(contenido)})
            abierto = mio.abrir_caja(ruta)
            assert isinstance(abierto, tuple) and len(abierto) == 2, (
                "no devuelve dos cosas: el modelo y el tokenizador"
            )
            suyo, letras = abierto
            assert suyo.forma == modelo.forma, f"abre la forma {suyo.forma}, es {modelo.forma}"
            for nombre, p in suyo.named_parameters():
                assert p.dtype == torch.float32, f"{nombre} se queda en {p.dtype}: pide .float()"
                assert torch.equal(p, en_16_bits[f"model.{nombre}"].float()), (
                    f"{nombre} no tiene los números del archivo"
                )
            assert letras.caracteres == "aábcdefghij", "el tokenizador tiene otras letras"
            assert not suyo.training, "el modelo está en modo de entrenamiento: .eval()"
        contenido["model"]["ngram_size"] = 6
        save_file(en_16_bits, ruta, {"content": json.dumps(contenido)})
        try:
            mio.abrir_caja(ruta)
        except ValueError:
            return
        except Exception as error:
            nombre = type(error).__name__
            raise AssertionError(f"de un modelo con tabla da {nombre}, pide ValueError") from None
        raise AssertionError("abre un modelo que tiene una tabla de secuencias; pide ValueError")


def comprobar_abrir_gpt2(mio: ModuleType) -> None:
    suyos = _un_gpt2(V=31, ventana=12, C=24, bloques=3)
    ids = torch.randint(31, (2, 12), generator=torch.Generator().manual_seed(1605))
    antes = {nombre: p.clone() for nombre, p in suyos.items()}
    for prefijo in ("", "transformer."):
        modelo = mio.abrir_gpt2({prefijo + nombre: p for nombre, p in suyos.items()}, n_head=4)
        assert all(torch.equal(antes[nombre], p) for nombre, p in suyos.items()), (
            "cambia los parámetros que recibe"
        )
        medidas = modelo.forma
        assert (medidas.n_layer, medidas.n_head) == (3, 4), (
            f"hace {medidas.n_layer} bloques de {medidas.n_head} cabezas, deberían ser 3 y 4"
        )
        assert medidas.block_size == 12, f"hace una ventana de {medidas.block_size}, son 12"
        with torch.no_grad():
            sale = modelo(ids)
            no_es(sale, {"activa con ReLU; GPT-2, con GELU": _leer_gpt2(suyos, ids, 4, F.relu)})
            gelu = mio.ACTIVACIONES["gelu"]
            assert iguales(sale, _leer_gpt2(suyos, ids, 4, gelu)), "sus logits no son los de GPT-2"


def _un_gpt2(V: int, ventana: int, C: int, bloques: int) -> dict[str, Tensor]:
    """Los parámetros de un GPT-2 pequeño y al azar, con sus nombres; sus matrices son (entran, salen)."""
    formas: dict[str, tuple[int, ...]] = {"wte.weight": (V, C), "wpe.weight": (ventana, C)}
    matrices = {"attn.c_attn": (C, 3 * C), "attn.c_proj": (C, C)}
    matrices |= {"mlp.c_fc": (C, 4 * C), "mlp.c_proj": (4 * C, C)}
    for i in range(bloques):
        for nombre, suya in matrices.items():
            formas[f"h.{i}.{nombre}.weight"] = suya
            formas[f"h.{i}.{nombre}.bias"] = suya[1:]
        for nombre in ("ln_1", "ln_2"):
            formas[f"h.{i}.{nombre}.weight"] = formas[f"h.{i}.{nombre}.bias"] = (C,)
    formas["ln_f.weight"] = formas["ln_f.bias"] = (C,)
    azar = torch.Generator().manual_seed(1605)
    return {nombre: 0.3 * torch.randn(suya, generator=azar) for nombre, suya in formas.items()}


def _leer_gpt2(suyos: dict[str, Tensor], ids: Tensor, H: int, activar: Callable) -> Tensor:
    """Los logits de un GPT-2, calculados sin ninguna clase: (B, T) -> (B, T, V)."""

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
        oculto = activar(por(norma(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"))
        x = x + por(oculto, f"h.{i}.mlp.c_proj")
    return norma(x, "ln_f") @ suyos["wte.weight"].T


# --- la lista ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pieza:
    """Una pieza, el capítulo en que se escribe, su comprobación y las piezas que usa."""

    nombre: str
    capitulo: int
    comprobar: Callable[[ModuleType], None]
    usa: tuple[str, ...] = ()
    con: str = ""
    """Lo que ha de nombrar para estar escrita, si es la segunda vez que se escribe."""

    @property
    def titulo(self) -> str:
        return f"{self.nombre}, con {self.con}" if self.con else self.nombre


PIEZAS = (
    Pieza("Tokenizador", 1, comprobar_tokenizador),
    Pieza("Entrada", 2, comprobar_entrada),
    Pieza("mirar_atras", 3, comprobar_mirar_atras),
    Pieza("Atencion", 3, comprobar_atencion, ("mirar_atras",)),
    Pieza("FeedForward", 4, comprobar_feed_forward),
    Pieza("LayerNorm", 5, comprobar_layer_norm),
    Pieza("Bloque", 6, comprobar_bloque, ("Atencion", "FeedForward", "LayerNorm")),
    Pieza("Gpt", 6, comprobar_gpt, ("Entrada", "Bloque")),
    Pieza("entropia_cruzada", 7, comprobar_entropia_cruzada),
    Pieza("paso_de_adam", 8, comprobar_paso_de_adam),
    Pieza("entrenar", 8, comprobar_entrenar, ("entropia_cruzada", "paso_de_adam")),
    Pieza("generar", 9, comprobar_generar, ("Tokenizador",)),
    Pieza("girar", 13, comprobar_girar),
    Pieza("igualar", 13, comprobar_igualar),
    Pieza(
        "Atencion", 13, comprobar_atencion_moderna, ("mirar_atras", "girar", "igualar"), con="girar"
    ),
    Pieza("guardar", 13, comprobar_guardar, ("Gpt", "Atencion, con girar", "Tokenizador")),
    Pieza("abrir_caja", 13, comprobar_abrir_caja, ("Gpt", "Atencion, con girar", "Tokenizador")),
    Pieza("abrir_gpt2", 13, comprobar_abrir_gpt2, ("Gpt",)),
)
POR_TITULO = {pieza.titulo: pieza for pieza in PIEZAS}
EN_BLANCO = "está en blanco"


def dependencias(pieza: Pieza) -> list[Pieza]:
    """Dar las piezas que usa una, y las que usan estas, de la primera a la última."""
    todas = {pieza}
    for otra in reversed(PIEZAS):
        if any(otra.titulo in cada.usa for cada in todas):
            todas.add(otra)
    return [otra for otra in PIEZAS if otra in todas - {pieza}]


def completa(titulo: str, texto: str) -> tuple[str, list[str]]:
    """Dar la hoja con la solución de lo que la pieza usa y no pasa, y los nombres de eso."""
    solucion = hoja.SOLUCION.read_text(encoding="utf-8")
    prestadas = []
    for otra in dependencias(POR_TITULO[titulo]):
        if otra.nombre != POR_TITULO[titulo].nombre and motivo(otra.titulo, texto):
            texto = hoja.poner(texto, otra.nombre, hoja.leer(solucion, otra.nombre))
            prestadas.append(otra.nombre)
    return texto, list(dict.fromkeys(prestadas))


@lru_cache(maxsize=256)
def motivo(titulo: str, texto: str) -> str:
    """Dar por qué no pasa una pieza de una hoja, o "" si pasa. Lo que se sortee después no cambia."""
    pieza = POR_TITULO[titulo]
    try:
        escrito = hoja.leer(texto, pieza.nombre)
        if hoja.esta_en_blanco(escrito) or pieza.con not in escrito.replace(pieza.nombre, ""):
            return EN_BLANCO
        entera, _ = completa(titulo, texto)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1605)
            pieza.comprobar(hoja.cargar(entera))
    except AssertionError as error:
        return str(error) or "no da lo que debe"
    except Exception as error:
        return _en_espanol(error)
    return ""


def _en_espanol(error: Exception) -> str:
    """Dar en una línea qué ha detenido la comprobación, y dónde."""
    if isinstance(error, hoja.SinSitio):
        return f"no se encuentra: {error}"
    if isinstance(error, SyntaxError):
        return f"no se puede leer: {error.msg}, en la línea {error.lineno}: {error.text or ''}".rstrip()
    donde = [m for m in traceback.extract_tb(error.__traceback__) if m.filename == "mi_gpt.py"]
    linea = donde and linecache.getline("mi_gpt.py", donde[-1].lineno).strip()
    en = f", en «{linea}»" if linea else ""
    if isinstance(error, NameError):
        nombre = re.search(r"'(\w+)'", str(error))
        return f"usa `{nombre[1] if nombre else error}`, que en mi_gpt.py no está{en}"
    if "NoneType" in str(error) or "cannot unpack non-iterable" in str(error):
        return f"no devuelve nada, o algo que no se esperaba: ¿falta un return? ({error}{en})"
    return f"se detiene con {type(error).__name__}: {error}{en}"
