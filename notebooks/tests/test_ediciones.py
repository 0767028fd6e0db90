"""Ningún cambio pequeño de la solución que la estropee pasa su comprobación.

De cada pieza se prueban todos los cambios de ediciones.py. Uno que pasa tiene que hacer lo mismo que
la solución, y con los mismos gradientes, con 200 entradas al azar: lo que se compara, y con qué,
está aquí y no depende de las comprobaciones.
"""

import json
import math
import random
import string
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from ediciones import ediciones
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import hoja
from comprobar.lista import POR_TITULO, lo_mismo_cada_vez
from comprobar.plazo import no_mas_de

SOLUCION = hoja.SOLUCION.read_text(encoding="utf-8")
TITULOS = [titulo for titulo in POR_TITULO if titulo != "Atencion"]
"""La segunda forma de Atencion lleva la primera dentro."""
CASOS = 200

Hacer = Callable[[ModuleType], object]
"""Lo que se hace con un módulo, y lo que se compara de ello."""


# --- con qué se prueba ------------------------------------------------------------------------


def una_forma(azar: random.Random, **fijas) -> dict:
    medidas = {
        "vocab_size": azar.randint(2, 13),
        "block_size": azar.randint(1, 9),
        "n_head": azar.randint(1, 3),
        "n_layer": azar.randint(1, 3),
        "bias": azar.random() < 0.5,
        "activation": azar.choice(["relu", "gelu", "relu2"]),
        "norm": azar.choice(["layernorm", "rmsnorm"]),
        "position": azar.choice(["learned", "learned", "rope", "rope", "alibi", "sinusoidal"]),
        "qk_norm": azar.random() < 0.5,
    } | fijas
    return {"n_embd": 2 * azar.randint(1, 4) * medidas["n_head"]} | medidas


def numeros(azar: random.Random, *ejes: int) -> Tensor:
    semilla = torch.Generator().manual_seed(azar.randrange(2**31))
    return torch.randn(ejes, generator=semilla, dtype=torch.double)


def enteros(azar: random.Random, hasta: int, *ejes: int) -> Tensor:
    semilla = torch.Generator().manual_seed(azar.randrange(2**31))
    return torch.randint(hasta, ejes, generator=semilla)


def ejes_al_azar(azar: random.Random) -> list[int]:
    return [azar.randint(1, 3) for _ in range(azar.randint(0, 2))]


def una_escala(azar: random.Random, desde: int, hasta: int) -> float:
    return 10 ** azar.uniform(desde, hasta)


@torch.no_grad()
def con_numeros(modulo: nn.Module, semilla: int) -> nn.Module:
    """Un módulo en float64, con otros parámetros: los de un mismo nombre, iguales siempre."""
    for nombre, p in modulo.double().named_parameters():
        generador = torch.Generator().manual_seed(semilla + sum(map(ord, nombre)))
        p.copy_(0.5 * torch.randn(p.shape, generator=generador, dtype=torch.double))
    return modulo


def con_gradientes(dar: Callable[..., Tensor], entran: list[Tensor], otros: list[Tensor]) -> list:
    """Lo que sale y los gradientes de lo que entra y de otros; y si ha cambiado lo que entra."""
    copias = [una.clone().requires_grad_(una.is_floating_point()) for una in entran]
    salen = dar(*(una + 0 if una.requires_grad else una for una in copias))
    salen = list(salen) if isinstance(salen, tuple | list) else [salen]
    total = sum((cada * torch.linspace(-1, 1, cada.numel()).view_as(cada)).sum() for cada in salen)
    de_quien = [una for una in (*copias, *otros) if una.requires_grad]
    gradientes = torch.autograd.grad(total, de_quien, allow_unused=True)
    return [*salen, *gradientes, *map(torch.equal, copias, entran)]


def de_un_modulo(hacer: Hacer, x: Tensor, semilla: int) -> Hacer:
    def mirar(m: ModuleType) -> object:
        modulo = con_numeros(hacer(m), semilla)
        suyos = dict(sorted(modulo.named_parameters(remove_duplicate=False)))
        return list(suyos), con_gradientes(modulo, [x], list(suyos.values()))

    return mirar


def como_nacen(hacer: Hacer) -> Hacer:
    """La media y la desviación típica de cada parámetro de un módulo recién hecho."""

    def mirar(m: ModuleType) -> object:
        suyos = hacer(m).named_parameters()
        return {n: Aproximado(p.mean().item(), p.std(correction=0).item()) for n, p in suyos}

    return mirar


class Aproximado(tuple):
    """Lo que depende del azar: basta con que se parezca."""

    def __new__(cls, media: float, desviacion: float) -> "Aproximado":
        return super().__new__(cls, (media, desviacion))


# --- una por pieza ----------------------------------------------------------------------------


def tokenizador(azar: random.Random) -> Hacer:
    letras = azar.sample(string.ascii_letters + " ñáé,.", azar.randint(1, 12))
    otras = azar.sample(string.ascii_letters, 5)
    texto = "".join(azar.choices(letras, k=azar.randint(0, 9)))
    if azar.random() < 0.3:
        texto = texto + azar.choice("ÑÚ9!") + azar.choice(letras)
    ids = enteros(azar, len(letras), azar.randint(0, 9))

    def mirar(m: ModuleType) -> object:
        mio = m.Tokenizador("".join(letras))
        m.Tokenizador("".join(otras))
        try:
            dado = mio.codificar(texto)
        except ValueError as error:
            dado = [letra for letra in "ÑÚ9!" if letra in str(error)]
        return list(mio.caracteres), dado, mio.descodificar(ids)

    return mirar


def entrada(azar: random.Random) -> Hacer:
    forma = una_forma(azar)
    ids = enteros(
        azar, forma["vocab_size"], azar.randint(1, 3), azar.randint(1, forma["block_size"])
    )
    if azar.random() < 0.1:
        ancha = forma | {"vocab_size": 70, "block_size": 70, "n_embd": 60}
        return como_nacen(lambda m: m.Entrada(m.Forma(**ancha)))

    def mirar(m: ModuleType) -> object:
        mia = m.Entrada(m.Forma(**forma))
        return vars(mia.forma), de_un_modulo(lambda _: mia, ids, 1)(m)

    return mirar


def mirar_atras(azar: random.Random) -> Hacer:
    ejes = [*ejes_al_azar(azar), azar.randint(1, 7), azar.randint(1, 7)]
    entran = [numeros(azar, *ejes) for _ in "qkv"]
    return lambda m: con_gradientes(m.mirar_atras, entran, [])


def atencion(azar: random.Random) -> Hacer:
    forma = una_forma(azar)
    ejes = azar.randint(1, 3), azar.randint(1, forma["block_size"]), forma["n_embd"]
    return de_un_modulo(lambda m: m.Atencion(m.Forma(**forma)), numeros(azar, *ejes), 2)


def feed_forward(azar: random.Random) -> Hacer:
    forma = una_forma(azar)
    x = numeros(azar, *ejes_al_azar(azar), forma["n_embd"])
    return de_un_modulo(lambda m: m.FeedForward(m.Forma(**forma)), x, 3)


def layer_norm(azar: random.Random) -> Hacer:
    C = azar.randint(2, 9)
    opciones = {"bias": azar.random() < 0.5, "epsilon": una_escala(azar, -8, 1)}
    for cual in azar.sample(sorted(opciones), azar.randint(0, 2)):
        del opciones[cual]
    x = una_escala(azar, -4, 2) * numeros(azar, *ejes_al_azar(azar), C) + azar.choice([0, 3])
    if azar.random() < 0.2:
        return como_nacen(lambda m: m.LayerNorm(C, **opciones))
    return de_un_modulo(lambda m: m.LayerNorm(C, **opciones), x, 4)


def bloque(azar: random.Random) -> Hacer:
    forma = una_forma(azar)
    ejes = azar.randint(1, 3), azar.randint(1, forma["block_size"]), forma["n_embd"]
    x = una_escala(azar, -3, 1) * numeros(azar, *ejes)
    return de_un_modulo(lambda m: m.Bloque(m.Forma(**forma)), x, 5)


def gpt(azar: random.Random) -> Hacer:
    forma = una_forma(azar)
    ids = enteros(
        azar, forma["vocab_size"], azar.randint(1, 3), azar.randint(1, forma["block_size"])
    )
    if azar.random() < 0.1:
        ancha = forma | {"vocab_size": 70, "block_size": 70, "n_embd": 60}
        return como_nacen(lambda m: m.Gpt(m.Forma(**ancha)))

    def mirar(m: ModuleType) -> object:
        mio = m.Gpt(m.Forma(**forma))
        return vars(mio.forma), len(mio.blocks), de_un_modulo(lambda _: mio, ids, 6)(m)

    return mirar


def entropia_cruzada(azar: random.Random) -> Hacer:
    B, T, V = azar.randint(1, 4), azar.randint(1, 6), azar.randint(1, 9)
    logits, objetivos = una_escala(azar, -1, 3) * numeros(azar, B, T, V), enteros(azar, V, B, T)
    return lambda m: con_gradientes(m.entropia_cruzada, [logits, objetivos], [])


def paso_de_adam(azar: random.Random) -> Hacer:
    ejes = ejes_al_azar(azar)
    w, g, m0, v0 = (numeros(azar, *ejes) for _ in "wgmv")
    escala = una_escala(azar, -10, 2)
    recibe = [w, escala * g, escala * m0, (escala * v0) ** 2]
    if azar.random() < 0.3:
        recibe[2:] = torch.zeros_like(w), torch.zeros_like(w)
    sueltos = azar.randint(1, 300), una_escala(azar, -4, 1)
    opciones = {nombre: azar.uniform(0.1, 0.99) for nombre in ("beta1", "beta2", "encoger")}
    for cual in azar.sample(sorted(opciones), azar.randint(0, 3)):
        del opciones[cual]

    def mirar(m: ModuleType) -> object:
        copias = [una.clone() for una in recibe]
        return *m.paso_de_adam(*copias, *sueltos, **opciones), copias

    return mirar


def entrenar(azar: random.Random) -> Hacer:
    V, ventana, pasos = azar.randint(2, 9), azar.randint(1, 5), azar.choice([1, 2, 3, 7] * 4 + [55])
    ids = enteros(azar, V, ventana + azar.randint(1, 6))
    letras, canales = numeros(azar, V, 4), numeros(azar, V, 4)
    sueltos = pasos, azar.randint(1, 4), ventana, una_escala(azar, -3, 0)
    semilla = azar.randrange(1000)

    def mirar(m: ModuleType) -> object:
        modelo = nn.Sequential(nn.Embedding(V, 4), nn.Linear(4, V)).double()
        with torch.no_grad():
            modelo[0].weight.copy_(letras)
            modelo[1].weight.copy_(canales)
            modelo[1].bias.zero_()
        torch.manual_seed(semilla)
        perdidas = m.entrenar(modelo, ids.clone(), *sueltos)
        return perdidas, *modelo.parameters()

    return mirar


class DeVariasLetras:
    """Un tokenizador cuyos tokens tienen varias letras."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens

    def codificar(self, texto: str) -> Tensor:
        ids = []
        while texto:
            ids.append(next(i for i, token in enumerate(self.tokens) if texto.startswith(token)))
            texto = texto.removeprefix(self.tokens[ids[-1]])
        return torch.tensor(ids)

    def descodificar(self, ids: Tensor) -> str:
        return "".join(self.tokens[i] for i in ids.tolist())


class Sumador(nn.Module):
    """Un modelo en que cada posición depende de todas las anteriores, y que apunta lo que lee."""

    def __init__(self, forma: object, logits: Tensor) -> None:
        super().__init__()
        self.forma, self.logits, self.leido = forma, logits, []

    def forward(self, ids: Tensor) -> Tensor:
        self.leido.append(ids.clone())
        return self.logits[(ids * (1 + torch.arange(ids.shape[1]))).cumsum(1) % len(self.logits)]


def generar(azar: random.Random) -> Hacer:
    V = azar.randint(2, 6)
    tokens = ["".join(letra * azar.randint(1, 3)) for letra in string.ascii_letters[:V]]
    comienzo = "".join(azar.choices(tokens, k=azar.randint(1, 6)))
    logits = 2 * numeros(azar, 17, V)
    opciones = {"temperatura": azar.choice([0, 0.0, una_escala(azar, -2, 1)]), "semilla": 3}
    for cual in azar.sample(sorted(opciones), azar.randint(0, 2)):
        del opciones[cual]
    cuantas, forma = azar.randint(0, 12), una_forma(azar)

    def mirar(m: ModuleType) -> object:
        modelo = Sumador(m.Forma(**forma | {"vocab_size": V}), logits)
        torch.manual_seed(1)
        escrito = m.generar(modelo, DeVariasLetras(tokens), comienzo, cuantas, **opciones)
        return escrito, modelo.leido, torch.rand(1)

    return mirar


def girar(azar: random.Random) -> Hacer:
    x = numeros(azar, *ejes_al_azar(azar), azar.randint(1, 9), 2 * azar.randint(1, 5))
    return lambda m: con_gradientes(m.girar, [x], [])


def igualar(azar: random.Random) -> Hacer:
    x = una_escala(azar, -5, 2) * numeros(azar, *ejes_al_azar(azar), azar.randint(1, 9))
    x = x + azar.choice([0, 0, 3])
    return lambda m: con_gradientes(m.igualar, [x], [])


def guardar(azar: random.Random) -> Hacer:
    forma = una_forma(azar)
    letras = "".join(azar.sample(string.ascii_letters + "áñ «", forma["vocab_size"]))

    def mirar(m: ModuleType) -> object:
        modelo = m.Gpt(m.Forma(**forma))
        for nombre, p in modelo.named_parameters():
            p.data = torch.full_like(p, sum(map(ord, nombre)))
        with tempfile.TemporaryDirectory() as carpeta:
            m.guardar(Path(carpeta) / "m", modelo, m.Tokenizador(letras))
            with safe_open(Path(carpeta) / "m", "pt") as archivo:
                tensores = {nombre: archivo.get_tensor(nombre) for nombre in archivo.keys()}  # noqa: SIM118
                contenido = json.loads(archivo.metadata()["content"])
        return tensores, contenido

    return mirar


def abrir_caja(azar: random.Random) -> Hacer:
    forma = una_forma(azar)
    letras = "".join(azar.sample(string.ascii_letters + "áñ «", forma["vocab_size"]))
    de_mas = {"dropout": 0.1, "ngram_size": azar.choice([1, 1, 1, 2, 3, 6])}
    de_mas |= {"embedding_skip": azar.random() < 0.3}
    de_mas = dict(azar.sample(sorted(de_mas.items()), azar.randint(0, 3)))
    tipo = azar.choice([torch.float, torch.half, torch.bfloat16])

    def mirar(m: ModuleType) -> object:
        tensores = {}
        for nombre, p in m.Gpt(m.Forma(**forma)).named_parameters():
            tensores[f"model.{nombre}"] = torch.full_like(p, sum(map(ord, nombre))).to(tipo)
        contenido = {"characters": letras, "model": forma | de_mas}
        with tempfile.TemporaryDirectory() as carpeta:
            save_file(tensores, Path(carpeta) / "m", {"content": json.dumps(contenido)})
            try:
                modelo, suyo = m.abrir_caja(Path(carpeta) / "m")
            except ValueError:
                return "ValueError"
        return vars(modelo.forma), dict(modelo.named_parameters()), modelo.training, suyo.caracteres

    return mirar


def abrir_gpt2(azar: random.Random) -> Hacer:
    V, ventana, bloques, H = (azar.randint(1, 9) for _ in range(4))
    C, bloques = H * azar.randint(1, 4), min(bloques, 3)
    medidas = {"wte.weight": (V, C), "wpe.weight": (ventana, C), "ln_f.weight": (C,)}
    medidas["ln_f.bias"] = (C,)
    for i in range(bloques):
        for nombre, suya in (
            ("ln_1.weight", (C,)),
            ("ln_2.weight", (C,)),
            ("attn.c_attn.weight", (C, 3 * C)),
            ("attn.c_proj.weight", (C, C)),
            ("mlp.c_fc.weight", (C, 4 * C)),
            ("mlp.c_proj.weight", (4 * C, C)),
        ):
            medidas[f"h.{i}.{nombre}"] = suya
            medidas[f"h.{i}.{nombre.replace('weight', 'bias')}"] = suya[-1:]
    delante = azar.choice(["", "transformer."])
    suyos = {delante + nombre: numeros(azar, *suya).float() for nombre, suya in medidas.items()}
    ids = enteros(azar, V, 2, azar.randint(1, ventana))

    def mirar(m: ModuleType) -> object:
        recibe = {nombre: valor.clone() for nombre, valor in suyos.items()}
        modelo = m.abrir_gpt2(recibe, H)
        return vars(modelo.forma), modelo.double()(ids), recibe

    return mirar


ARNESES = {
    "Tokenizador": tokenizador,
    "Entrada": entrada,
    "mirar_atras": mirar_atras,
    "FeedForward": feed_forward,
    "LayerNorm": layer_norm,
    "Bloque": bloque,
    "Gpt": gpt,
    "entropia_cruzada": entropia_cruzada,
    "paso_de_adam": paso_de_adam,
    "entrenar": entrenar,
    "generar": generar,
    "girar": girar,
    "igualar": igualar,
    "Atencion, con girar": atencion,
    "guardar": guardar,
    "abrir_caja": abrir_caja,
    "abrir_gpt2": abrir_gpt2,
}
"""Por título de la pieza, lo que da al azar qué se hace con un módulo y se compara."""


# --- la prueba --------------------------------------------------------------------------------


def iguales(uno: object, otro: object) -> bool:
    if isinstance(uno, Tensor) and isinstance(otro, Tensor):
        if uno.shape != otro.shape or uno.dtype != otro.dtype:
            return False
        # En girar, los cosenos son float32: girar e igualar, o al revés, es lo mismo salvo por eso.
        mayor = otro.double().abs().max().item() if otro.numel() else 0
        return torch.allclose(uno, otro, rtol=1e-6, atol=1e-6 * mayor, equal_nan=True)
    if isinstance(uno, Aproximado) and isinstance(otro, Aproximado):
        cerca = 0.01 + 0.05 * max(uno[1], otro[1])
        return all(abs(a - b) <= cerca for a, b in zip(uno, otro))
    if isinstance(uno, dict) and isinstance(otro, dict):
        return uno.keys() == otro.keys() and all(iguales(uno[k], otro[k]) for k in uno)
    if isinstance(uno, list | tuple) and isinstance(otro, list | tuple):
        return len(uno) == len(otro) and all(map(iguales, uno, otro))
    if isinstance(uno, float) and isinstance(otro, float):
        return math.isclose(uno, otro, rel_tol=1e-9, abs_tol=1e-12)
    return type(uno) is type(otro) and uno == otro


def lo_que_hace(modulo: ModuleType, mirar: Hacer) -> object:
    with lo_mismo_cada_vez():
        try:
            return mirar(modulo)
        except Exception as error:
            return f"se detiene con {type(error).__name__}"


def es_equivalente(titulo: str, texto: str, casos: int = CASOS) -> bool:
    """Decir si una hoja hace lo mismo que la solución con entradas al azar."""
    suyo, debido = hoja.cargar(texto), hoja.cargar(SOLUCION)
    azar = random.Random(1605)
    for _ in range(casos):
        mirar = ARNESES[titulo](azar)
        if not iguales(lo_que_hace(debido, mirar), lo_que_hace(suyo, mirar)):
            return False
    return True


def test_las_ediciones_son_cada_cambio_pequeno():
    escrito = "def f(a, b, si=True):\n    c = a + 2\n    return g(b, c) if si else c"
    salen = "\n".join(ediciones(escrito).values())
    for uno in ("si=False", "a - 2", "2 + a", "a + 3", "b + 2", "g(c, b)", "g(b)", "return c\n"):
        assert uno in salen, uno
    assert not {escrito, ""} & set(ediciones(escrito).values())


def test_hay_un_arnes_por_pieza():
    assert list(ARNESES) == TITULOS


@pytest.mark.parametrize("titulo", TITULOS)
def test_la_solucion_no_se_detiene_con_lo_que_se_prueba(titulo):
    modulo, azar = hoja.cargar(SOLUCION), random.Random(1605)
    for _ in range(10):
        ARNESES[titulo](azar)(modulo)
    assert es_equivalente(titulo, SOLUCION, casos=10)


@pytest.mark.parametrize(
    ("titulo", "bien", "mal"),
    [
        ("Entrada", '== "learned"', '<= "learned"'),
        ("FeedForward", "4 * forma", "forma.n_head * forma"),
        ("LayerNorm", "(varianza + self.epsilon).sqrt()", "(varianza.sqrt() - self.epsilon)"),
        ("entrenar", "len(ids) - ventana", "len(ids) - ventana - 1"),
        ("generar", "len(ids)", "len(comienzo)"),
    ],
)
def test_lo_que_da_otra_cosa_no_es_equivalente(titulo, bien, mal):
    nombre = POR_TITULO[titulo].nombre
    escrito = hoja.leer(SOLUCION, nombre)
    assert bien in escrito
    mala = hoja.poner(SOLUCION, nombre, escrito.replace(bien, mal))
    assert not es_equivalente(titulo, mala)


def pasa(titulo: str, modulo: ModuleType, escrito: str) -> bool:
    """Decir si una pieza escrita de otro modo pasa su comprobación."""
    pieza = POR_TITULO[titulo]
    try:
        with lo_mismo_cada_vez(), no_mas_de(5):
            exec(hoja.compilar(escrito), modulo.__dict__)
            pieza.comprobar(modulo)
    except (Exception, SystemExit):
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("titulo", TITULOS)
def test_ningun_cambio_que_la_estropea_pasa(titulo):
    nombre, modulo = POR_TITULO[titulo].nombre, hoja.cargar(SOLUCION)
    huecos = [
        cual
        for cual, escrito in ediciones(hoja.leer(SOLUCION, nombre)).items()
        if pasa(titulo, modulo, escrito)
        and not es_equivalente(titulo, hoja.poner(SOLUCION, nombre, escrito))
    ]
    assert not huecos, f"{len(huecos)}: {huecos}"
