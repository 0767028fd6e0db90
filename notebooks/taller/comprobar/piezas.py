"""Las comprobaciones de las piezas de mi_gpt.py: una por pieza, la del capítulo y la de probar.py.

Cada una recibe el módulo con la pieza y las que esta usa, y protesta con una frase que dice qué
falla y con qué valor. No mira cómo está escrita, sino lo que da.
"""

import json
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from comprobar.ideas import iguales, nombrar

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


def tiene_forma(dado: object, debida: tuple[int, ...], que: str = "da") -> None:
    assert isinstance(dado, Tensor), f"{que} {type(dado).__name__}, debería dar un tensor"
    suya = tuple(dado.shape)
    assert suya == debida, f"{que} la forma {suya}, debería dar {debida}"


@torch.no_grad()
def con_los_de(modulo: nn.Module, otro: nn.Module) -> nn.Module:
    """Dar un módulo con los parámetros de otro, que tienen los mismos nombres."""
    suyos = dict(otro.named_parameters())
    for nombre, parametro in modulo.named_parameters():
        parametro.copy_(suyos[nombre])
    return modulo


def tiene_parametros(modulo: nn.Module, debidos: dict[str, tuple[int, ...]], con: str = "") -> None:
    """Protestar si los parámetros no son los que se piden; de lo demás puede guardar lo que quiera."""
    suyos = {nombre: tuple(p.shape) for nombre, p in modulo.named_parameters()}
    for nombre, debida in debidos.items():
        assert nombre in suyos or not _es_tensor(modulo, nombre), (
            f"{con}{nombre} no es un nn.Parameter: no se aprendería"
        )
        assert nombre in suyos, f"{con}no tiene {nombre}"
        assert suyos[nombre] == debida, (
            f"{con}tiene {nombre} de forma {suyos[nombre]}, debería ser {debida}"
        )
    de_mas = sorted(set(suyos) - set(debidos))
    assert not de_mas, f"{con}tiene de más {', '.join(de_mas)}"


def _es_tensor(modulo: nn.Module, nombre: str) -> bool:
    try:
        return isinstance(attrgetter(nombre)(modulo), Tensor)
    except AttributeError:
        return False


def con_gradiente(x: Tensor) -> Tensor:
    """Lo que entra en una pieza cuando delante hay otra que aprende."""
    return x.clone().requires_grad_() + 0


def aprende(modulo: nn.Module, sale: Tensor) -> None:
    """Protestar si el gradiente no llega a todos los parámetros."""
    assert sale.requires_grad, "lo que da no deja derivar: usa solo operaciones de PyTorch"
    sale.square().sum().backward()
    for nombre, p in modulo.named_parameters():
        assert p.grad is not None, f"a {nombre} no le llega gradiente"


def deja_derivar(funcion: Callable[[Tensor], Tensor], x: Tensor) -> None:
    sale = funcion(con_gradiente(x))
    assert sale.requires_grad, "el gradiente no la atraviesa: usa solo operaciones de PyTorch"
    sale.square().sum().backward()


def da_siempre_lo_mismo(modulo: nn.Module, x: Tensor) -> None:
    assert iguales(modulo(x.clone()), modulo(x.clone())), (
        "a lo mismo da dos cosas distintas: aquí no hay azar, ni dropout"
    )


@contextmanager
def caso(cual: str) -> Iterator[None]:
    """Si lo de dentro se detiene, se dirá en qué caso."""
    try:
        yield
    except Exception as error:
        error.caso = f"{cual}, "
        raise


@contextmanager
def si_se_detiene(motivo: str, *errores: type[Exception], con: str = "") -> Iterator[None]:
    """Protestar con un motivo si lo de dentro se detiene con uno de los errores, que dice `con`."""
    try:
        yield
    except errores as error:
        if con in str(error):
            raise AssertionError(motivo) from None
        raise


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
    suyos = getattr(letras, "caracteres", None) or ()
    assert list(suyos) == list(" amor"), "no guarda los suyos en self.caracteres"
    with si_se_detiene(
        "de «roma» no conoce las letras: si las busca en un diccionario, va de letra a número",
        ValueError,
        KeyError,
    ):
        ids = letras.codificar("roma")
    assert isinstance(ids, Tensor), f"codificar da {type(ids).__name__}, debería dar un tensor"
    assert ids.dtype == torch.long, f"codificar da números {ids.dtype}, debería dar torch.long"
    assert ids.tolist() == [4, 3, 2, 1], (
        f"codifica «roma» como {ids.tolist()}, con « amor» debería ser [4, 3, 2, 1]"
    )
    with si_se_detiene("descodificar busca con tensores: antes, ids.tolist()", KeyError):
        vuelta = letras.descodificar(torch.tensor([4, 3, 2, 1, 0]))
    assert vuelta == "roma ", f"de [4, 3, 2, 1, 0] da {vuelta!r}, debería dar 'roma '"
    desordenado = mio.Tokenizador("zña").codificar("añ").tolist()
    assert desordenado == [2, 1], (
        f"con «zña» codifica «añ» como {desordenado}: el número es el lugar en los caracteres dados"
    )
    with si_se_detiene("dos tokenizadores se estorban: guarda lo tuyo en self", ValueError):
        de_antes = letras.codificar("o").tolist()
    assert de_antes == [3], "dos tokenizadores se estorban: guarda lo tuyo en self"
    vacio = letras.codificar("")
    tiene_forma(vacio, (0,), "de un texto vacío codificar da")
    assert vacio.dtype == torch.long, (
        f"de un texto vacío codificar da {vacio.dtype}: pide dtype=torch.long"
    )
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
            raise AssertionError(
                f"de {texto!r} da {dado.tolist()}, y {desconocida!r} no se conoce: pide ValueError"
            )


def comprobar_entrada(mio: ModuleType) -> None:
    entrada = mio.Entrada(forma(mio))
    tablas = {"token_embedding.weight": (11, 24), "position_embedding.weight": (9, 24)}
    tiene_parametros(entrada, tablas)
    assert getattr(entrada, "forma", None) == forma(mio), "no guarda la forma en self.forma"
    sortear(entrada)
    letras, posiciones = entrada.token_embedding.weight, entrada.position_embedding.weight
    for B, T in ((3, 4), (1, 1), (2, 9)):
        ids = torch.randint(9, (B, T))
        with caso(f"con ids de forma {(B, T)}"):
            sale = entrada(ids)
        tiene_forma(sale, (B, T, 24), f"a ids de forma {(B, T)} da")
        if not iguales(sale, letras[ids] + posiciones[:T]):
            nombrar(
                "Entrada",
                sale,
                lambda m, ids=ids: con_los_de(m.Entrada(forma(m)), entrada)(ids),
            )
        assert iguales(sale, letras[ids] + posiciones[:T]), (
            "en la posición t no da la fila de su letra más la fila t de las posiciones"
        )
    da_siempre_lo_mismo(entrada, ids)
    aprende(entrada, sale)
    grande = mio.Entrada(forma(mio, vocab_size=80, block_size=80))
    for nombre, p in grande.named_parameters():
        desviacion, media = p.std().item(), p.mean().item()
        assert abs(media) < 0.1, (
            f"{nombre} nace con una media de {media:.2f}, debería ser 0: lo primero que recibe normal_ "
            "es la media, y la desviación típica va con std="
        )
        assert 0.17 < desviacion < 0.23, (
            f"{nombre} nace con una desviación típica de {desviacion:.2f}, debería ser 0.2"
        )
    with caso('si forma.position no es "learned"'):
        rotatoria = mio.Entrada(forma(mio, position="rope"))
        tiene_parametros(
            rotatoria, {"token_embedding.weight": (11, 24)}, 'si forma.position no es "learned" '
        )
        ids = torch.randint(11, (2, 5))
        assert iguales(rotatoria(ids), rotatoria.token_embedding(ids)), (
            'si forma.position no es "learned", no da las filas de las letras'
        )


def comprobar_mirar_atras(mio: ModuleType) -> None:
    q, k, v = al_azar(3, 7, 6)  # cada uno (7, 6)
    antes = q.clone(), k.clone(), v.clone()
    with caso("con q, k y v de forma (7, 6)"):
        dado = mio.mirar_atras(q, k, v)
    assert isinstance(dado, tuple | list) and len(dado) == 2, (
        "no devuelve dos cosas: lo leído y los pesos"
    )
    leido, pesos = dado
    assert all(map(torch.equal, (q, k, v), antes)), "cambia las q, k o v que recibe"
    assert [tuple(uno.shape) for uno in dado] != [(7, 7), (7, 6)], (
        "devuelve primero los pesos: van detrás de lo leído"
    )
    tiene_forma(leido, (7, 6), "de lo leído da")
    tiene_forma(pesos, (7, 7), "de los pesos da")
    _mirar_los_pesos(q @ k.mT, pesos, lambda m: m.mirar_atras(q, k, v)[1])
    if not iguales(leido, pesos @ v):
        nombrar("mirar_atras", leido, lambda m: m.mirar_atras(q, k, v)[0])
    assert iguales(leido, pesos @ v), "da bien los pesos, pero lo leído no es pesos @ v"
    q, k, v = al_azar(3, 2, 4, 9, 8)  # cada uno (2, 4, 9, 8)
    with caso("va bien con (T, D), pero con q, k y v de forma (2, 4, 9, 8)"):
        leido, _ = mio.mirar_atras(q, k, v)
    debido = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert iguales(leido, debido), "va bien con (T, D), y no con dos ejes más delante"
    deja_derivar(lambda una: mio.mirar_atras(una, k, v)[0], q)


def _mirar_los_pesos(
    puntuaciones: Tensor, pesos: Tensor, dar: Callable[[ModuleType], Tensor]
) -> None:
    """Protestar si no son los que deben, con (7, 6); `puntuaciones` va sin escala."""
    escaladas = puntuaciones / math.sqrt(6)
    debidos = _pesos(escaladas)
    if iguales(pesos, debidos):
        return
    assert not pesos[0].isnan().any(), (
        "la primera letra da nan: la máscara le tapa también su propia posición, o multiplica por "
        "infinito, y 0 · ∞ no es un número"
    )
    nombrar("mirar_atras", pesos, dar)
    columnas = pesos.sum(-2)
    assert not iguales(columnas, torch.ones(7)), (
        "hace la softmax por columnas: va por filas, en el último eje"
    )
    futuro = pesos.triu(1)
    assert futuro.abs().max() < 1e-6, (
        f"deja que la primera letra dé {futuro[0].max():.2g} a una de después, debería dar 0"
    )
    suma = pesos.sum(-1)
    lejos = suma[(suma - 1).abs().argmax()].item()
    assert abs(lejos - 1) < 1e-4, f"da unos pesos que suman {lejos:.2f} en una fila, no 1"
    escala = (puntuaciones[1, 0] - puntuaciones[1, 1]) / (pesos[1, 0] / pesos[1, 1]).log()
    assert not iguales(pesos, _pesos(puntuaciones / escala)), (
        f"divide las puntuaciones entre {escala:.2f}, debería entre √D = {math.sqrt(6):.2f}"
    )
    raise AssertionError("los pesos no son la softmax, por filas, de las puntuaciones")


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
    tiene_parametros(atencion, debidos, f"con bias = {medidas.bias} ")
    sortear(atencion)
    x = al_azar(2, 7, C)
    with caso(f"con n_head = {H} y n_embd = {C}"):
        sale = atencion(x.clone())
    tiene_forma(sale, (2, 7, C))
    if not iguales(sale, _atencion(atencion, _girar_e_igualar(atencion, x, medidas), H)):
        _decir_que_falla(atencion, x, sale, medidas)
    aprende(atencion, atencion(con_gradiente(x)))


def _decir_que_falla(atencion: nn.Module, x: Tensor, sale: Tensor, medidas) -> None:
    """Levantar AssertionError con lo que se ha hecho mal."""
    C, H = medidas.n_embd, medidas.n_head
    da_siempre_lo_mismo(atencion, x)
    for otras in (1, 2, 3, 4, 6, 8):
        if C % otras == 0 and otras != H:
            partes = _girar_e_igualar(atencion, x, medidas)
            assert not iguales(sale, _atencion(atencion, partes, otras)), (
                f"con n_head = {H} da lo que con n_head = {otras}"
            )
    nombrar("Atencion", sale, lambda m: con_los_de(m.Atencion(medidas), atencion)(x.clone()))
    assert iguales(sale[:, :4], atencion(x[:, :4].clone())), (
        "lo que da a una letra cambia con las de después: mira la máscara, y cómo partes y juntas"
    )
    detalles = [f"{k} = {getattr(medidas, k)!r}" for k in ("position", "qk_norm")]
    pista = (
        ": ¿giras con las cabezas ya separadas, (B, H, T, D)?" if medidas.position == "rope" else ""
    )
    raise AssertionError(f"con n_head = {H}, {' y '.join(detalles)} no da lo que debe{pista}")


def _girar_e_igualar(atencion: nn.Module, x: Tensor, medidas) -> list[Tensor]:
    """Las consultas, claves y valores que se leen, cada uno (B, T, C)."""
    q, k, v = atencion.qkv(x).chunk(3, -1)
    for hacer, activo in ((_girar, medidas.position == "rope"), (_rms, medidas.qk_norm)):
        if activo:
            q, k = (_por_cabezas(hacer, z, medidas.n_head) for z in (q, k))
    return [q, k, v]


def _por_cabezas(hacer: Callable[[Tensor], Tensor], z: Tensor, H: int) -> Tensor:
    """Hacer algo con cada cabeza: (B, T, C) -> (B, T, C)."""
    return hacer(z.unflatten(-1, (H, -1)).transpose(1, 2)).transpose(1, 2).flatten(2)


def _rms(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], eps=1e-6)


def _atencion(atencion: nn.Module, partes: Iterable[Tensor], H: int) -> Tensor:
    """Lo que debe dar con H cabezas, calculado aparte. partes: consultas, claves y valores, (B, T, C)."""
    q, k, v = (parte.unflatten(-1, (H, -1)).transpose(1, 2) for parte in partes)
    leido = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return atencion.proj(leido.transpose(1, 2).flatten(2))


def comprobar_feed_forward(mio: ModuleType) -> None:
    for opciones in ({}, {"activation": "gelu"}, {"activation": "relu2", "bias": False}):
        _probar_feed_forward(mio, forma(mio, **opciones))


def _probar_feed_forward(mio: ModuleType, medidas) -> None:
    subcapa = mio.FeedForward(medidas)
    debidos = {"expand.weight": (96, 24), "proj.weight": (24, 96)}
    if medidas.bias:
        debidos |= {"expand.bias": (96,), "proj.bias": (24,)}
    tiene_parametros(subcapa, debidos, f"con bias = {medidas.bias} ")
    sortear(subcapa)
    activar = mio.ACTIVACIONES[medidas.activation]
    for ejes in ((24,), (10, 24), (2, 7, 24)):
        x = al_azar(*ejes)
        with caso(f"con x de forma {ejes}"):
            sale = subcapa(x.clone())
        tiene_forma(sale, ejes, f"a {ejes} da")
        da_siempre_lo_mismo(subcapa, x)
        debido = subcapa.proj(activar(subcapa.expand(x)))
        if not iguales(sale, debido):
            nombrar(
                "FeedForward",
                sale,
                lambda m, x=x: con_los_de(m.FeedForward(medidas), subcapa)(x),
            )
        assert iguales(sale, debido), "no da proj(activación(expand(x)))"
    aprende(subcapa, subcapa(con_gradiente(x)))


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
    if not iguales(sale, F.layer_norm(x, (8,))):
        nombrar("LayerNorm", sale, lambda m: m.LayerNorm(8)(x))
    lejos = sale.mean(-1).abs().max().item()
    assert lejos < 1e-4, (
        f"deja un vector con media {lejos:.2f}, debería ser 0: un vector, una media"
    )
    _misma_epsilon(mio.LayerNorm(8), 1e-5)
    _misma_epsilon(mio.LayerNorm(8, epsilon=0.3), 0.3, "con epsilon=0.3 ")
    cuadrados = sale[0, 0].square().mean().item()
    assert iguales(sale, F.layer_norm(x, (8,))), (
        f"deja un vector con varianza {cuadrados:.2f}, debería ser 1: un vector, una varianza"
    )
    sortear(norma)
    gamma, beta, normalizado = norma.weight, norma.bias, F.layer_norm(x, (8,))
    sale = norma(x)
    if not iguales(sale, gamma * normalizado + beta):
        nombrar("LayerNorm", sale, lambda m: con_los_de(m.LayerNorm(8), norma)(x))
    assert iguales(sale, gamma * normalizado + beta), "no da γ por lo normalizado, más β"
    aprende(norma, norma(con_gradiente(x)))
    with caso("con bias=False"):
        sin_sesgo = mio.LayerNorm(8, bias=False)
        assert sin_sesgo.bias is None, "con bias=False, self.bias no es None"
        assert iguales(sin_sesgo(x), normalizado), "con bias=False no da lo mismo sin β"


def _misma_epsilon(norma: Callable[[Tensor], Tensor], epsilon: float, con: str = "") -> None:
    """Protestar si una normalización suma otra épsilon; y si la suma fuera de la raíz."""
    x = math.sqrt(epsilon) * torch.tensor([1.0, -1, 2, -2, 1, -1, 2, -2])
    cuadrados = x.square().mean()  # es también su varianza: su media es 0
    sale = norma(x)
    assert not sale.isnan().any(), (
        f"{con}da nan con números pequeños: la épsilon, {epsilon:g}, se suma dentro de la raíz"
    )
    assert not iguales(sale, x / (cuadrados.sqrt() + epsilon)), (
        "suma la épsilon fuera de la raíz; va dentro, con lo que se divide"
    )
    dada = ((x / sale).square().mean() - cuadrados).item()  # la que explica lo que sale
    if not iguales(norma(3 * x), 3 * x / (9 * cuadrados + dada).sqrt()):
        return  # no es cosa de la épsilon
    assert abs(dada) > 1e-5 * epsilon, (
        f"{con}no suma ninguna épsilon dentro de la raíz, debería sumar {epsilon:g}"
    )
    assert abs(dada - epsilon) < 0.02 * epsilon, (
        f"{con}suma una épsilon de {dada:.1g}, debería sumar {epsilon:g}"
    )


def comprobar_bloque(mio: ModuleType) -> None:
    bloque = mio.Bloque(forma(mio))
    assert getattr(bloque, "norm1", 1) is not getattr(bloque, "norm2", 2), (
        "normaliza las dos veces con la misma: norm1 y norm2 son dos"
    )
    tiene_parametros(bloque, _parametros_de_un_bloque())
    _probar_las_sumas(mio)
    for nombre in ("norm1", "norm2"):
        _misma_epsilon_ancha(getattr(bloque, nombre), f"su {nombre} ")
    x = 5 + 2 * al_azar(2, 7, 24)
    for opciones in ({}, {"n_head": 2}, {"n_head": 1}, {"activation": "gelu"}):
        medidas = forma(mio, **opciones)
        bloque = sortear(mio.Bloque(medidas)).eval()
        sale = bloque(x.clone())
        tiene_forma(sale, (2, 7, 24))
        H, activar = medidas.n_head, mio.ACTIVACIONES[medidas.activation]
        for otras in {1, 2, 3, 4} - {H}:
            assert not iguales(sale, _bloque_de_pytorch(bloque, otras, activar)(x)), (
                f"con n_head = {H} da lo que con n_head = {otras}: Atencion recibe la forma entera"
            )
        if not iguales(sale, _bloque_de_pytorch(bloque, H, activar)(x)):
            nombrar(
                "Bloque",
                sale,
                lambda m, como=(medidas, bloque): con_los_de(m.Bloque(como[0]), como[1])(x),
            )
            raise AssertionError("no da lo que el bloque de PyTorch con los mismos parámetros")
    aprende(bloque, bloque(con_gradiente(x)))
    sin_sesgos = [n for n in _parametros_de_un_bloque() if not n.endswith("bias")]
    de_norma = [n for n in _parametros_de_un_bloque() if n.startswith("norm")]
    _sin_ellos(mio.Bloque(forma(mio, norm="rmsnorm")), de_norma, 'con norm = "rmsnorm" ')
    con_sesgo = set(_parametros_de_un_bloque()) - set(sin_sesgos)
    _sin_ellos(mio.Bloque(forma(mio, bias=False)), con_sesgo, "con bias = False ")


def _sin_ellos(modulo: nn.Module, sobran: Iterable[str], con: str) -> None:
    de_mas = sorted({nombre for nombre, _ in modulo.named_parameters()} & set(sobran))
    assert not de_mas, f"{con}tiene {de_mas[0]}: las normas las da hacer_norma(forma)"


def _parametros_de_un_bloque() -> dict[str, tuple[int, ...]]:
    """Los de un bloque de 24 canales, con su forma."""
    matrices = {"attention.qkv": (72, 24), "attention.proj": (24, 24)}
    matrices |= {"feed_forward.expand": (96, 24), "feed_forward.proj": (24, 96)}
    normas = {f"norm{i}.{cual}": (24,) for i in (1, 2) for cual in ("weight", "bias")}
    sesgos = {f"{nombre}.bias": suya[:1] for nombre, suya in matrices.items()}
    return normas | sesgos | {f"{nombre}.weight": suya for nombre, suya in matrices.items()}


def _misma_epsilon_ancha(norma: nn.Module, cual: str) -> None:
    """Lo de _misma_epsilon, con los 24 canales de una norma."""
    _misma_epsilon(lambda x: norma(x.repeat(3))[:8], 1e-5, cual)


def _con_cuatro_cuentas(bloque: nn.Module) -> nn.Module:
    """Un bloque con una cuenta sencilla en lugar de cada una de sus partes."""
    bloque.norm1, bloque.attention = Falsa(lambda y: y - 1), Falsa(lambda y: 10 * y)
    bloque.norm2, bloque.feed_forward = Falsa(lambda y: y / 2), Falsa(lambda y: y + 3)
    return bloque


def _probar_las_sumas(mio: ModuleType) -> None:
    """Qué se normaliza, qué se suma y en qué orden."""
    bloque = _con_cuatro_cuentas(mio.Bloque(forma(mio)))
    x = torch.tensor([[[2.0, -4.0]]]).repeat(1, 9, 8)  # (B, T, C)
    antes = x.clone()
    sale = bloque(x)
    assert torch.equal(x, antes), "cambia el x que entra; escribe x = x + …"
    tiene_forma(sale, (1, 9, 16))
    da_siempre_lo_mismo(bloque, x)
    escuchado = x + 10 * (x - 1)  # 2 + 10 · (2 − 1) = 12
    if torch.equal(sale, escuchado + (escuchado / 2 + 3)):  # 12 + (12 / 2 + 3) = 21
        return
    nombrar("Bloque", sale, lambda m: _con_cuatro_cuentas(m.Bloque(forma(m)))(x))
    raise AssertionError(
        f"con norm1 = y − 1, attention = 10y, norm2 = y / 2 y feed_forward = y + 3, de 2 da "
        f"{sale[0, 0, 0]:g}, debería dar 21"
    )


SUS_NOMBRES = {
    "norm1.": "norm1.",
    "norm2.": "norm2.",
    "attention.qkv.": "self_attn.in_proj_",
    "attention.proj.": "self_attn.out_proj.",
    "feed_forward.expand.": "linear1.",
    "feed_forward.proj.": "linear2.",
}
"""Cómo llama nn.TransformerEncoderLayer a las partes de un bloque."""


def _bloque_de_pytorch(
    bloque: nn.Module, n_head: int, activar: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """El bloque que trae PyTorch, con los mismos parámetros."""
    capa = nn.TransformerEncoderLayer(
        24, n_head, 96, 0.0, activar, batch_first=True, norm_first=True
    )
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
    for cuantos in (3, 1):
        tiene = len(mio.Gpt(forma(mio, n_layer=cuantos)).blocks)
        assert tiene == cuantos, f"con n_layer = {cuantos} tiene {tiene} en blocks"
    assert len({id(b) for b in bloques}) == 3, "sus bloques son el mismo: cada uno ha de ser nuevo"
    cabeza = getattr(modelo, "head", None)
    assert getattr(cabeza, "weight", None) is not modelo.token_embedding.weight, (
        "head y token_embedding comparten sus números: aquí son dos matrices"
    )
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
    _misma_epsilon_ancha(modelo.norm, "su norm ")
    ids = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(1605))
    tiene_forma(modelo(ids), (2, 9, 11))
    al_nacer = F.cross_entropy(modelo(ids).mT, ids.roll(1)).item()
    assert abs(al_nacer - math.log(11)) < 0.6, (
        f"al nacer pierde {al_nacer:.2f}, lejos de ln V = 2.40: deja head como la hace PyTorch"
    )
    sortear(modelo)
    with torch.no_grad():
        da_siempre_lo_mismo(modelo, ids)
        _probar_los_logits(modelo, ids)
        with caso("con cinco letras, menos que block_size"):
            _probar_los_logits(modelo, ids[:, :5])
        _probar_los_bloques(mio, modelo, medidas)
    aprende(modelo, modelo(ids))
    _sin_ellos(mio.Gpt(forma(mio, norm="rmsnorm")), ["norm.weight"], 'con norm = "rmsnorm" ')
    rotatorio = mio.Gpt(forma(mio, position="rope", n_layer=0))
    assert getattr(rotatorio, "position_embedding", None) is None, (
        'tiene position_embedding también si forma.position no es "learned"'
    )
    with caso('si forma.position no es "learned"'):
        rotatorio(ids)


def _probar_los_bloques(mio: ModuleType, modelo: nn.Module, medidas) -> None:
    """Protestar si los bloques no son los de la forma: con otras cabezas, por ejemplo."""
    x = al_azar(2, 7, 24)
    debido = mio.Bloque(medidas)
    for suyo, otro in zip(modelo.blocks[0].parameters(), debido.parameters()):
        otro.copy_(suyo)
    assert iguales(modelo.blocks[0](x), debido(x)), "sus bloques no son Bloque(forma)"


def _probar_los_logits(modelo: nn.Module, ids: Tensor) -> None:
    x = modelo.token_embedding.weight[ids] + modelo.position_embedding.weight[: ids.shape[1]]
    for bloque in modelo.blocks:
        x = bloque(x)
    sale = modelo(ids)
    if not iguales(sale, modelo.head(modelo.norm(x))):
        nombrar("Gpt", sale, lambda m: con_los_de(m.Gpt(modelo.forma), modelo)(ids))
        raise AssertionError("no da head(norm(los bloques(la entrada)))")


def comprobar_entropia_cruzada(mio: ModuleType) -> None:
    logits = 3 * al_azar(2, 6, 11)
    textos = torch.randint(11, (2, 7), generator=torch.Generator().manual_seed(1605))
    objetivos = textos[:, 1:].contiguous()
    antes = logits.clone()
    dada = mio.entropia_cruzada(logits, objetivos)
    tiene_forma(dada, ())
    assert torch.equal(logits, antes), "cambia los logits que recibe"
    por_letra = -logits.log_softmax(-1).gather(-1, objetivos[..., None])[..., 0]  # (B, T)
    if not iguales(dada, por_letra.mean()):
        nombrar("entropia_cruzada", dada, lambda m: m.entropia_cruzada(logits, objetivos))
    assert iguales(dada, por_letra.mean()), (
        f"da {dada.item():.3f}, la media de −ln p es {por_letra.mean().item():.3f}"
    )
    with caso("con objetivos que son un trozo de otro tensor, como trozos[:, 1:]"):
        mio.entropia_cruzada(logits, textos[:, 1:])
    otra, debida = mio.entropia_cruzada(logits[:1, :4], objetivos[:1, :4]), por_letra[:1, :4].mean()
    assert iguales(otra, debida), "va bien con B = 2 y T = 6, y no con B = 1 y T = 4"
    dada, debida = (
        hacer((1000 * logits).mT if hacer is F.cross_entropy else 1000 * logits, objetivos).item()
        for hacer in (mio.entropia_cruzada, F.cross_entropy)
    )
    assert math.isclose(dada, debida, rel_tol=1e-3), (
        f"con logits de miles da {dada:.0f}, debería dar {debida:.0f}: usa log_softmax"
    )
    logits.requires_grad_()
    assert mio.entropia_cruzada(logits, objetivos).requires_grad, (
        "no deja derivar: usa solo operaciones de PyTorch"
    )


def comprobar_paso_de_adam(mio: ModuleType) -> None:
    w, g = torch.tensor([[1.0, -3.0], [0.5, 2.0]]), torch.tensor([[0.5, -2.0], [1.0, 0.25]])
    m, v = torch.tensor([[0.3, 1.0], [-0.5, 0.1]]), torch.tensor([[0.4, 2.0], [0.3, 0.2]])
    antes = [una.clone() for una in (w, g, m, v)]
    dado = mio.paso_de_adam(w, g, m, v, 3, 0.1, encoger=0.3)
    assert isinstance(dado, tuple | list) and len(dado) == 3, "no devuelve tres cosas: w, m y v"
    assert all(map(torch.equal, (w, g, m, v), antes)), "cambia lo que recibe"
    # Con 0.9 y 0.99, dividir entre 1 − β es no dividir: la raíz de 100 es 10.
    for opciones in ({"beta1": 0.8, "beta2": 0.7}, {"beta1": 0.9, "beta2": 0.99}):
        _mirar_un_paso(mio, (w, g, m, v, 3, 0.2), opciones)
    nuevo, _, _ = mio.paso_de_adam(torch.zeros(2), torch.tensor([1e-6, 0.0]), *al_nacer(2), 1, 1.0)
    assert not nuevo.isnan().any(), "con gradiente 0 da nan: falta el 1e-8, sumado a la raíz"
    assert abs(nuevo[0].item() + 0.9901) < 1e-3, (
        f"con un gradiente de 1e-6 se mueve {-nuevo[0].item():.3f}, debería 0.990: el 1e-8 se suma "
        "a la raíz, fuera"
    )
    _mirar_un_paso(mio, (w, g, m, v, 3, 0.2), {"encoger": 0.3})


def al_nacer(n: int) -> tuple[Tensor, Tensor]:
    """Las dos memorias antes del primer paso."""
    return torch.zeros(n), torch.zeros(n)


def _mirar_un_paso(mio: ModuleType, recibe: tuple, opciones: dict[str, float]) -> None:
    """Protestar si las memorias o los parámetros no son los que deben."""
    dados, debidos = mio.paso_de_adam(*recibe, **opciones), _adam(*recibe, **opciones)
    con = "con " + " y ".join(f"{nombre} = {valor}" for nombre, valor in opciones.items())
    for i, cual in ((1, "m"), (2, "v"), (0, "w")):
        dado, debido = dados[i], debidos[i]
        if not iguales(dado, debido):
            nombrar("paso_de_adam", dado, lambda m, i=i: m.paso_de_adam(*recibe, **opciones)[i])
            raise AssertionError(
                f"{con} {cual} es {_en_corto(dado)}, debería ser {_en_corto(debido)}"
            )


def _adam(w, g, m, v, t, tasa, beta1=0.9, beta2=0.99, encoger=0.0) -> tuple[Tensor, ...]:
    """Lo que debe dar paso_de_adam, calculado aparte."""
    m, v = torch.lerp(g, m, beta1), torch.lerp(g.square(), v, beta2)
    paso = m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + 1e-8)
    return w * (1 - tasa * encoger) - tasa * paso, m, v


def _en_corto(numeros: Tensor) -> str:
    return str([round(n, 3) for n in numeros.flatten().tolist()])


LETRAS = 60
"""Las del texto con que se entrena: 0, 1, 2… y cada una está una sola vez."""


def comprobar_entrenar(mio: ModuleType) -> None:
    tabla = nn.Embedding(LETRAS, LETRAS, _weight=torch.zeros(LETRAS, LETRAS))  # logits por letra
    leidas, gradientes = [], []
    tabla.register_forward_pre_hook(lambda _, entradas: _apuntar_el_lote(leidas, entradas[0]))
    tabla.weight.register_hook(lambda gradiente: gradientes.append(gradiente.clone()))
    del_final = "lee detrás del final del texto: torch.randint(len(ids) - ventana, …) no se sale"
    with (
        _apuntando_los_pasos(mio) as pasos,
        si_se_detiene(del_final, IndexError, con=f"with size {LETRAS}"),
        si_se_detiene(del_final, RuntimeError, con="stack expects each tensor"),
    ):
        perdidas = mio.entrenar(tabla, torch.arange(LETRAS), pasos=200, lote=8, ventana=5, tasa=0.1)
    _mirar_los_lotes(leidas)
    assert isinstance(perdidas, list), "no devuelve la lista de las pérdidas"
    una_menos = ": range(1, n) acaba en n − 1" if len(perdidas) == 199 else ""
    assert len(perdidas) == 200, (
        f"devuelve {len(perdidas)} de las 200 pérdidas, una por paso{una_menos}"
    )
    assert all(isinstance(p, float) for p in perdidas), "las pérdidas no son números: .item()"
    assert math.isclose(perdidas[0], math.log(LETRAS), rel_tol=1e-4), (
        f"empieza con una pérdida de {perdidas[0]:.2f}, debería ser ln 60 = 4.09"
    )
    assert len(gradientes) == 200, (
        f"llama a backward {len(gradientes)} veces, deberían ser 200, una por paso"
    )
    _mirar_el_gradiente(leidas[0], gradientes[0])
    nunca = sorted(set(range(LETRAS - 6)) - set(torch.cat(leidas)[:, 0].tolist()))
    assert not nunca, (
        f"nunca empieza una ventana en {len(nunca)} sitios de los 55 en que cabe, como el {nunca[-1]}"
    )
    _mirar_los_pasos(pasos, tabla.weight, gradientes[1])
    predichas = tabla.weight.argmax(1)[:-1]
    bien = (predichas == torch.arange(1, LETRAS)).sum().item()
    assert bien >= LETRAS - 3, f"al acabar acierta la letra que sigue a {bien} de 59"
    final = sum(perdidas[-20:]) / 20
    assert final < 1, f"acaba con una pérdida de {final:.2f}, debería bajar de 1"


def _mirar_el_gradiente(x: Tensor, gradiente: Tensor) -> None:
    """Qué letra se hace adivinar, por el gradiente del primer paso: ahí todas las p son iguales."""

    def debido(x: Tensor, cuanto: int) -> Tensor:
        p = torch.full((x.numel(), LETRAS), 1 / LETRAS)
        p[torch.arange(x.numel()), (x.flatten() + cuanto) % LETRAS] -= 1
        return torch.zeros(LETRAS, LETRAS).index_add(0, x.flatten(), p / x.numel())

    equivocadas = {
        "hace adivinar a cada letra ella misma: los objetivos van una letra por delante": 0,
        "hace adivinar la letra de antes, debería la siguiente": -1,
        "hace adivinar la letra que va dos más allá, debería la siguiente": 2,
    }
    for motivo, cuanto in equivocadas.items():
        assert not torch.allclose(gradiente, debido(x, cuanto), atol=1e-5), motivo
    _sin_softmax_delante(gradiente, debido(x, 1), LETRAS)
    assert not torch.allclose(gradiente, debido(x[:, -1:], 1), atol=1e-5), (
        "cuenta solo la última letra de cada ventana, deberían contar todas"
    )
    assert torch.allclose(gradiente, debido(x, 1), atol=1e-5), (
        "la pérdida no es la entropía cruzada de todas las letras del lote con la que les sigue"
    )


def _sin_softmax_delante(gradiente: Tensor, debido: Tensor, V: int) -> None:
    """Protestar si los logits pasan dos veces por la softmax: si son iguales, el gradiente es 1/V."""
    assert not torch.allclose(gradiente, debido / V, atol=1e-6), (
        "pasa dos veces por la softmax: F.cross_entropy ya la hace, y quiere los logits"
    )


BORRA_ANTES = "borra el gradiente antes de usarlo: zero_grad va delante de backward"
SIN_PASO = "no mueve los parámetros: falta optimizador.step()"
NO_OLVIDA = "llega al paso 2 sin olvidar el gradiente del 1: falta zero_grad"


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
        _sin_softmax_delante(self.gradientes[0], primero, primero.shape[-1])
        assert torch.allclose(self.pasos[1], self.gradientes[1]), NO_OLVIDA


class Paso(NamedTuple):
    """Con qué se llama a paso_de_adam."""

    t: int
    tasa: float
    gradiente: Tensor
    sin_memorias: bool


@contextmanager
def _apuntando_los_pasos(mio: ModuleType) -> Iterator[list[Paso]]:
    """Dentro se apunta cada paso de Adam."""
    paso_de_adam = mio.paso_de_adam
    pasos = []

    def apuntar(w, g, m, v, t, tasa, *otros, **mas):
        pasos.append(Paso(t, float(tasa), g.clone(), not v.any()))
        return paso_de_adam(w, g, m, v, t, tasa, *otros, **mas)

    mio.paso_de_adam = apuntar
    try:
        yield pasos
    finally:
        mio.paso_de_adam = paso_de_adam


def _apuntar_el_lote(leidas: list[Tensor], x: Tensor) -> None:
    assert x.shape == (8, 5), (
        f"da al modelo entradas de forma {tuple(x.shape)}, debería ser (8, 5): lote y ventana"
    )
    leidas.append(x)


def _mirar_los_lotes(leidas: list[Tensor]) -> None:
    assert leidas, "no pasa nada por el modelo"
    assert all((x == x[:, :1] + torch.arange(5)).all() for x in leidas), (
        "toma letras que no van seguidas en el texto"
    )
    comienzos = torch.stack([x[:, 0] for x in leidas])  # (pasos, lote)
    assert (comienzos != comienzos[:, :1]).any(), "repite una ventana en todo el lote"
    assert (comienzos != comienzos[0]).any(), "lee siempre el mismo lote"
    saltos = (comienzos[:, 1:] - comienzos[:, :-1]) % (LETRAS - 5)
    assert (saltos != saltos[:, :1]).any(), "las ventanas van en fila, deberían empezar al azar"


def _mirar_los_pasos(pasos: list[Paso], w: Tensor, gradiente_2: Tensor) -> None:
    assert pasos or not w.any(), "mueve los parámetros con otra cosa que tu Adam"
    assert pasos or w.grad is not None, BORRA_ANTES
    assert pasos, SIN_PASO
    assert len(pasos) == 200, f"da {len(pasos)} pasos de Adam, deberían ser 200"
    assert torch.allclose(pasos[1].gradiente, gradiente_2), NO_OLVIDA
    assert not pasos[1].sin_memorias, (
        "olvida las memorias de Adam en cada paso: el optimizador se hace una vez"
    )
    numeros = [paso.t for paso in pasos]
    assert numeros == list(range(1, 201)), f"cuenta los pasos de Adam así: {numeros[:3]}…"
    tasas = [paso.tasa for paso in pasos]
    assert len({round(tasa, 8) for tasa in tasas}) > 1, "la tasa no cambia nunca: ni sube ni baja"

    debidas = [0.1 * min(t / 50, 1) * (1 - (t - 1) / 200) for t in range(1, 201)]
    if not _cerca(tasas, debidas):
        nombrar("entrenar", 10 * torch.tensor(tasas), _tasas)
    for t, (tasa, debida) in enumerate(zip(tasas, debidas), 1):
        assert math.isclose(tasa, debida, rel_tol=1e-3, abs_tol=1e-9), (
            f"en el paso {t}, con tasa 0.1 y 200 pasos, la tasa es {tasa:.5f}, debería ser {debida:.5f}"
        )


def _tasas(mio: ModuleType) -> Tensor:
    """Las tasas de 200 pasos, por diez, para que se distingan mejor: (200,)."""
    tabla = nn.Embedding(LETRAS, LETRAS)
    with _apuntando_los_pasos(mio) as pasos:
        mio.entrenar(tabla, torch.arange(LETRAS), pasos=200, lote=8, ventana=5, tasa=0.1)
    return 10 * torch.tensor([paso.tasa for paso in pasos])


def _cerca(unas: list[float], otras: list[float]) -> bool:
    return all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-9) for a, b in zip(unas, otras))


def _la_que_sigue(mio: ModuleType, leidas: list[Tensor]) -> nn.Module:
    """Un modelo de tres letras que apunta lo que lee."""

    class SigueA(nn.Module):
        """Tras la letra i da a i + 1 nueve veces más probabilidad que a cada una de las otras."""

        forma = forma(mio, vocab_size=3, block_size=5)

        def forward(self, ids: Tensor) -> Tensor:
            assert ids.ndim == 2, f"da a leer ids de forma {tuple(ids.shape)}, debería ser (1, T)"
            assert ids.shape[1] <= 5, f"da a leer {ids.shape[1]} letras, y block_size es 5"
            leidas.append(ids[0].clone())
            return math.log(9) * F.one_hot((ids + 1) % 3, 3)

    return SigueA()


def comprobar_generar(mio: ModuleType) -> None:
    leidas: list[Tensor] = []
    modelo, letras = _la_que_sigue(mio, leidas), mio.Tokenizador("abc")
    _mirar_lo_mas_probable(mio, modelo, letras, leidas)
    _mirar_los_sorteos(mio, modelo, letras)
    dos = [mio.generar(modelo, letras, "a", 50, semilla=s) for s in (1, 1, 2)]
    assert dos[0] == dos[1], (
        "con la misma semilla escribe dos cosas distintas: torch.multinomial(…, generator=…)"
    )
    assert dos[0] != dos[2], "con otra semilla escribe lo mismo"
    torch.manual_seed(0)
    dado = torch.rand(1)
    torch.manual_seed(0)
    mio.generar(modelo, letras, "a", 5)
    assert torch.rand(1) == dado, "mueve el azar de PyTorch: pide su propio torch.Generator"


def _mirar_lo_mas_probable(mio: ModuleType, modelo, letras, leidas: list[Tensor]) -> None:
    with si_se_detiene(
        "con temperatura 0 divide entre 0: es la más probable", RuntimeError, con="inf"
    ):
        voraz = mio.generar(modelo, letras, "ca", 8, temperatura=0)
    assert isinstance(voraz, str), f"da {type(voraz).__name__}, debería dar un texto"
    assert not voraz.startswith("ca") or len(voraz) == 8, "devuelve también el comienzo"
    assert len(voraz) == 8, (
        f"con temperatura 0 sigue «ca» con «{voraz}», de {len(voraz)} letras, y se le piden 8"
    )
    for escritas, dadas in enumerate(leidas[:8], 2):
        debidas = letras.codificar(("ca" + voraz)[:escritas][-5:]).tolist()
        assert dadas.tolist() == debidas, (
            f"de «{('ca' + voraz)[:escritas]}» lee «{letras.descodificar(dadas)}», debería leer las "
            f"{len(debidas)} últimas letras"
        )
    assert voraz == "bcabcabc", f"con temperatura 0 sigue «ca» con «{voraz}», debería «bcabcabc»"
    with si_se_detiene(
        "con temperatura 0.0 divide entre 0: compara con ==", RuntimeError, con="inf"
    ):
        mio.generar(modelo, letras, "a", 2, temperatura=0.0)


def _mirar_los_sorteos(mio: ModuleType, modelo, letras) -> None:
    for temperatura, debida in ((1.0, 9 / 11), (2.0, 3 / 5)):
        escrito = "a" + mio.generar(modelo, letras, "a", 2000, temperatura=temperatura)
        pares = [(ord(b) - ord(a)) % 3 == 1 for a, b in zip(escrito, escrito[1:])]
        parte = sum(pares) / len(pares)
        assert parte < 0.995, (
            f"con temperatura {temperatura:g} elige siempre la más probable: se sortea, con las p"
        )
        assert parte > 0.005, "saca siempre el mismo número al azar: el Generator se hace una vez"
        assert abs(parte - 81 / 83) > 0.01 or temperatura == 1, (
            "multiplica los logits por la temperatura: se dividen"
        )
        assert abs(parte - 9 / 11) > 0.05 or temperatura == 1, (
            "no hace caso de la temperatura: los logits se dividen por ella antes de la softmax"
        )
        assert abs(parte - debida) < 0.05, (
            f"con temperatura {temperatura:g}, la más probable sale el {parte:.0%} de las veces, "
            f"debería salir el {debida:.0%}"
        )


def comprobar_girar(mio: ModuleType) -> None:
    x = al_azar(2, 3, 7, 8)  # (B, H, T, D)
    antes = x.clone()
    with caso("con x de forma (2, 3, 7, 8)"):
        dado = mio.girar(x)
    assert torch.equal(x, antes), "cambia la x que recibe"
    tiene_forma(dado, (2, 3, 7, 8))
    bien = _girar(x)
    if not iguales(dado, bien):
        nombrar("girar", dado, lambda m: m.girar(x))
    lejos = (dado.norm(dim=-1) - x.norm(dim=-1)).abs().max().item()
    assert lejos < 1e-4, f"cambia la longitud de un vector en {lejos:.2f}: girar no la cambia"
    assert iguales(dado[..., :1, :], x[..., :1, :]), "gira la posición 0, que no se mueve"
    assert iguales(dado, bien), "no gira cada pareja t / 10000^(2j / D)"
    uno = al_azar(9, 6)
    with caso("va bien con (2, 3, 7, 8), pero con un solo texto, (9, 6)"):
        assert iguales(mio.girar(uno), _girar(uno)), "va mal con un solo texto, (T, D)"
    deja_derivar(mio.girar, x)


def _girar(x: Tensor) -> Tensor:
    """Lo que debe dar girar, con números complejos."""
    T, D = x.shape[-2:]
    angulos = torch.outer(torch.arange(T), 10000.0 ** (-torch.arange(0, D, 2) / D))
    giros = torch.polar(torch.ones_like(angulos), angulos)
    parejas = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(parejas * giros).flatten(-2)


def comprobar_igualar(mio: ModuleType) -> None:
    x = 3 + al_azar(2, 4, 7, 6)
    antes = x.clone()
    dado = mio.igualar(x)
    assert torch.equal(x, antes), "cambia la x que recibe"
    tiene_forma(dado, (2, 4, 7, 6))
    if not iguales(dado, _rms(x)):
        nombrar("igualar", dado, lambda m: m.igualar(x))
    assert torch.allclose(dado, _rms(x), atol=0.1), "no es la RMSNorm de cada vector"
    _misma_epsilon(mio.igualar, 1e-6)
    assert iguales(dado, _rms(x)), "no es la RMSNorm de cada vector"
    otra = al_azar(3, 10)
    with caso("va bien con (2, 4, 7, 6), pero con (3, 10)"):
        assert iguales(mio.igualar(otra), _rms(otra)), "va bien con (2, 4, 7, 6), y no con (3, 10)"
    pequenos = x / 1000
    assert iguales(mio.igualar(pequenos), _rms(pequenos)), (
        "con números pequeños no da lo que debe: la épsilon, 1e-6, va dentro de la raíz"
    )
    deja_derivar(mio.igualar, x)


def comprobar_guardar(mio: ModuleType) -> None:
    no_es_suyo = "no escribe un archivo safetensors: usa save_file"
    for opciones in ({}, MODERNA):
        modelo = sortear(mio.Gpt(forma(mio, **opciones)))
        with tempfile.TemporaryDirectory() as carpeta:
            ruta = Path(carpeta) / "mio.safetensors"
            tokenizador = mio.Tokenizador("aábcdefghij")
            mio.guardar(ruta, modelo, tokenizador)
            assert ruta.is_file(), "no escribe el archivo en la ruta dada"
            with si_se_detiene(no_es_suyo, SafetensorError):
                tensores = load_file(ruta)
            with safe_open(ruta, "pt") as archivo:
                metadata = archivo.metadata() or {}
        assert "content" in metadata, 'en su metadata falta "content"'
        with si_se_detiene('"content" no está en JSON: usa json.dumps', json.JSONDecodeError):
            contenido = json.loads(metadata["content"])
        assert isinstance(contenido, dict), 'en "content" no hay un diccionario'
        letras = contenido.get("characters")
        suyas_no_son_texto = not isinstance(tokenizador.caracteres, str)
        assert isinstance(letras, str) or suyas_no_son_texto, (
            f'en "characters" debería haber un texto, las letras, y hay {letras!r:.40}'
        )
        assert list(letras or ()) == list("aábcdefghij"), (
            f'en "characters" hay otras letras: {letras!r}'
        )
        _misma_forma(contenido.get("model"), vars(modelo.forma))
        for nombre, p in modelo.named_parameters():
            assert nombre not in tensores, f'a {nombre} le falta "model." delante'
            guardado = tensores.get(f"model.{nombre}")
            assert guardado is not None, (
                f"no guarda model.{nombre}; guarda {', '.join(sorted(tensores)[:2]) or 'ninguno'}"
            )
            assert guardado.dtype == p.dtype, f"guarda model.{nombre} en {guardado.dtype}"
            assert torch.equal(guardado, p), f"de model.{nombre} guarda otros números"


def _misma_forma(suya: object, debida: dict) -> None:
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
    de_mas = {"dropout": 0.1, "ngram_size": 1, "embedding_skip": False}
    with tempfile.TemporaryDirectory() as carpeta:
        ruta = Path(carpeta) / "mio.safetensors"
        # El segundo trae menos que los de train.py: es de guardar.
        for opciones, otras in (({}, de_mas), ({}, {}), (MODERNA, de_mas)):
            modelo = sortear(mio.Gpt(forma(mio, **opciones)))
            _escribir_caja(ruta, modelo, otras)
            with (
                caso("con un archivo de train.py" if otras else "con un archivo de guardar"),
                si_se_detiene(
                    "rechaza un archivo sin tabla: ngram_size es 1, y embedding_skip, falso",
                    ValueError,
                    con=str(ruta),
                ),
            ):
                abierto = mio.abrir_caja(ruta)
            _mirar_lo_abierto(modelo, abierto)
        for que, con_tabla in (
            ("ngram_size = 6", {**de_mas, "ngram_size": 6}),
            ("embedding_skip", {**de_mas, "embedding_skip": True}),
        ):
            _escribir_caja(ruta, modelo, con_tabla)
            try:
                mio.abrir_caja(ruta)
            except ValueError:
                continue
            except Exception as error:
                nombre = type(error).__name__
                raise AssertionError(
                    f"de un archivo con {que} da {nombre}, pide ValueError"
                ) from None
            raise AssertionError(f"abre un archivo con {que}, que tiene una tabla; pide ValueError")


def _escribir_caja(ruta: Path, modelo: nn.Module, otras: dict) -> None:
    """Un archivo como los de train.py, en 16 bits; `otras` es lo que dice además de la forma."""
    tensores = {f"model.{nombre}": p.detach().bfloat16() for nombre, p in modelo.named_parameters()}
    contenido = {"characters": "aábcdefghij", "model": vars(modelo.forma) | otras}
    save_file(tensores, ruta, {"content": json.dumps(contenido)})


def _mirar_lo_abierto(modelo: nn.Module, abierto: object) -> None:
    assert isinstance(abierto, tuple) and len(abierto) == 2, (
        "no devuelve dos cosas: el modelo y el tokenizador"
    )
    suyo, letras = abierto
    assert not isinstance(letras, nn.Module), (
        "devuelve primero el tokenizador: va detrás del modelo"
    )
    de_que = ": le faltan los paréntesis, .eval()" if type(suyo).__name__ == "method" else ""
    assert isinstance(suyo, nn.Module), f"devuelve {type(suyo).__name__}, y no el modelo{de_que}"
    for campo, valor in vars(modelo.forma).items():
        dado = getattr(suyo.forma, campo)
        assert dado == valor, f"abre un modelo con {campo} = {dado!r}, en el archivo es {valor!r}"
    for nombre, p in suyo.named_parameters():
        assert p.dtype == torch.float32, f"{nombre} se queda en {p.dtype}: pide .float()"
        assert torch.equal(p, modelo.get_parameter(nombre).bfloat16().float()), (
            f"{nombre} no tiene los números del archivo"
        )
    dadas = getattr(letras, "caracteres", None)
    assert dadas is not None, f"devuelve {type(letras).__name__}, y no el tokenizador"
    assert list(dadas) == list("aábcdefghij"), f"el tokenizador tiene otras letras: {dadas!r}"
    assert not suyo.training, "el modelo está en modo de entrenamiento: .eval()"


def comprobar_abrir_gpt2(mio: ModuleType) -> None:
    suyos = _un_gpt2(V=31, ventana=12, C=24, bloques=3)
    ids = torch.randint(31, (2, 12), generator=torch.Generator().manual_seed(1605))
    antes = {nombre: p.clone() for nombre, p in suyos.items()}
    for prefijo in ("", "transformer."):
        recibidos = {prefijo + nombre: p for nombre, p in suyos.items()}
        con = caso('con "transformer." delante de los nombres') if prefijo else nullcontext()
        sin_girar = "no traspone las matrices cuyo nombre lleva «.c_»"
        with (
            con,
            si_se_detiene(
                sin_girar, RuntimeError, con="a (24) must match the size of tensor b (72)"
            ),
        ):
            modelo = mio.abrir_gpt2(recibidos, n_head=4)
        sin_tocar = all(torch.equal(antes[nombre], p) for nombre, p in suyos.items())
        assert sin_tocar and len(recibidos) == len(suyos), "cambia los parámetros que recibe"
        assert isinstance(modelo, nn.Module), f"da {type(modelo).__name__}, debería dar el modelo"
        medidas = modelo.forma
        assert (medidas.n_layer, medidas.n_head) == (3, 4), (
            f"hace {medidas.n_layer} bloques de {medidas.n_head} cabezas, deberían ser 3 y 4"
        )
        assert medidas.block_size == 12, f"hace una ventana de {medidas.block_size}, son 12"
        assert modelo.head.weight is not modelo.token_embedding.weight, (
            "ata head a token_embedding: cópiale sus números, que guardar la busca"
        )
        _mirar_los_numeros(mio, modelo, suyos)
        with torch.no_grad():
            sale = modelo(ids)
            if not iguales(sale, _leer_gpt2(suyos, ids, 4)):
                nombrar("abrir_gpt2", sale, lambda m: m.abrir_gpt2(suyos, 4)(ids))
                raise AssertionError("sus logits no son los de GPT-2")


def _mirar_los_numeros(mio: ModuleType, modelo: nn.Module, suyos: dict[str, Tensor]) -> None:
    """Protestar con el primer parámetro que no tiene los números del suyo."""
    for nombre, _ in mio.Gpt(modelo.forma).named_parameters():
        suyo = nombre
        for mia, otra in mio.NOMBRES_EN_GPT2.items():
            suyo = suyo.replace(mia, otra)
        p, debido = modelo.get_parameter(nombre), suyos[suyo]
        es_matriz = ".c_" in suyo and debido.ndim == 2
        assert not es_matriz or not torch.equal(p, debido), f"no traspone {suyo}"
        assert torch.equal(p, debido.T if es_matriz else debido), (
            f"{nombre} no tiene los números de {suyo}"
        )


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


def _leer_gpt2(suyos: dict[str, Tensor], ids: Tensor, H: int) -> Tensor:
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
        oculto = F.gelu(por(norma(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh")
        x = x + por(oculto, f"h.{i}.mlp.c_proj")
    return norma(x, "ln_f") @ suyos["wte.weight"].T
