"""Lo que falta en mi_gpt.py, pieza por pieza: python -m pytest notebooks/test_mi_gpt.py

Una pieza en blanco no es un fallo: se dice y se salta. De noche (`slow`) pasa por lo mismo la
solución, que está plegada al final del capítulo 12.
"""

import ast
import importlib.util
import math
import subprocess
import sys
import traceback
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_notebooks import code_cells, read
from torch import Tensor, nn

import escalera
import mi_gpt
from sancho.checkpoint import PRETRAINED, pretrained
from sancho.config import CorpusConfig
from sancho.corpus import open_corpus
from sancho.model import rotate

ROOT = Path(__file__).resolve().parent.parent
CAPITULO = "12_de_sancho_a_un_asistente.ipynb"
IMPORTES, CELDA, ABRIR = "cap12-02", "solucion-mi-gpt", "0bbd7e09"
"""Sus celdas: la de los `import`, la que contiene la solución y la que abre un GPT-2 con ella."""
MODERNA = {"norm": "rmsnorm", "position": "rope", "activation": "relu2"}
MODERNA |= {"qk_norm": True, "bias": False}


def forma(mio: ModuleType, **otras):
    """Una forma pequeña, con las opciones dadas."""
    medidas = {"vocab_size": 11, "block_size": 9, "n_layer": 2, "n_head": 4, "n_embd": 24}
    return mio.Forma(**(medidas | otras))


@torch.no_grad()
def sortear(modulo: nn.Module) -> nn.Module:
    """Dar a todos los parámetros valores al azar, para que ninguno pase inadvertido."""
    azar = torch.Generator().manual_seed(1605)
    for parametro in modulo.parameters():
        parametro.normal_(0, 0.3, generator=azar)
    return modulo


def azar(*ejes: int) -> Tensor:
    return torch.randn(*ejes, generator=torch.Generator().manual_seed(1605))


def son_iguales(dado: Tensor, debido: Tensor, motivo: str) -> None:
    """Protestar con el motivo si no coinciden, hasta el redondeo."""
    formas = tuple(dado.shape), tuple(debido.shape)
    assert formas[0] == formas[1], f"da la forma {formas[0]}, debería dar {formas[1]}"
    lejos = (dado - debido).abs().max().item()
    assert lejos < 1e-4, f"{motivo} (se aparta {lejos:.2g})"


# --- las piezas: lo que devuelven se imprime ----------------------------------------------------


def tokenizador(mio: ModuleType) -> str:
    """1. Tokenizador"""
    letras = mio.Tokenizador("aámn ")
    ids = letras.codificar("mañana".replace("ñ", "n"))
    assert isinstance(ids, Tensor), f"codificar da {type(ids).__name__}, debería dar un tensor"
    assert ids.dtype == torch.long, f"codificar da números {ids.dtype}, debería dar torch.long"
    assert ids.tolist() == [2, 0, 3, 0, 3, 0], f"codifica «manana» como {ids.tolist()}"
    vuelta = letras.descodificar(ids)
    assert vuelta == "manana", f"descodifica {vuelta!r}, debería dar 'manana'"
    assert letras.codificar("").shape == (0,), "codificar no sabe qué hacer con un texto vacío"
    return ""


def rotaciones(mio: ModuleType) -> str:
    """2. girar"""
    x = azar(2, 3, 7, 8)  # (B, H, T, D)
    angulos = torch.outer(torch.arange(7), 10000.0 ** (-torch.arange(0, 8, 2) / 8))
    giros = torch.stack((angulos.cos(), angulos.sin()), -1).repeat(1, 3, 1)
    debido = rotate(x.transpose(1, 2), giros).transpose(1, 2)
    dado = mio.girar(x)
    son_iguales(dado[..., :1, :], x[..., :1, :], "gira la posición 0, que no se mueve")
    son_iguales(dado, debido, "no gira cada pareja el ángulo de su posición")
    return ""


def una_cabeza(mio: ModuleType) -> str:
    """3. mirar_atras"""
    q, k, v = azar(3, 2, 5, 7, 6)  # cada uno (2, 5, 7, 6)
    debido = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    son_iguales(
        mio.mirar_atras(q, k, v), debido, "mira la escala, la máscara y el eje de la softmax"
    )
    son_iguales(
        mio.mirar_atras(q[0, 0], k[0, 0], v[0, 0]), debido[0, 0], "va mal con un solo texto"
    )
    return ""


def varias_cabezas(mio: ModuleType) -> str:
    """4. Atencion"""
    x = azar(2, 7, 24)
    for opciones in ({}, {"bias": False}, {"position": "rope"}, {"qk_norm": True}, MODERNA):
        atencion = sortear(mio.Atencion(forma(mio, **opciones)))
        tiene_sesgo = atencion.qkv.bias is not None
        assert tiene_sesgo == (atencion.proj.bias is not None) == opciones.get("bias", True), (
            "no mira forma.bias en qkv y en proj"
        )
        partes = (atencion.qkv(x)).chunk(3, -1)  # consultas, claves y valores
        q, k, v = (parte.unflatten(-1, (4, 6)).transpose(1, 2) for parte in partes)
        if opciones.get("position") == "rope":
            q, k = mio.girar(q), mio.girar(k)
        if opciones.get("qk_norm"):
            q, k = mio.igualar(q), mio.igualar(k)
        leido = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        debido = atencion.proj(leido.transpose(1, 2).flatten(2))
        son_iguales(atencion(x), debido, f"con {opciones or 'lo de fábrica'} no da lo que debe")
    return ""


def feed_forward(mio: ModuleType) -> str:
    """5. FeedForward"""
    x = azar(2, 7, 24)
    for opciones in ({}, {"activation": "gelu"}, {"activation": "relu2", "bias": False}):
        subcapa = sortear(mio.FeedForward(forma(mio, **opciones)))
        activar = mio.ACTIVACIONES[opciones.get("activation", "relu")]
        assert (subcapa.expand.bias is not None) == opciones.get("bias", True), "no mira forma.bias"
        oculto = F.linear(x, subcapa.expand.weight, subcapa.expand.bias)
        assert oculto.shape[-1] == 96, f"ensancha hasta {oculto.shape[-1]} canales, debería a 96"
        debido = F.linear(activar(oculto), subcapa.proj.weight, subcapa.proj.bias)
        son_iguales(subcapa(x), debido, f"con {opciones or 'lo de fábrica'} no da lo que debe")
    return ""


def bloque(mio: ModuleType) -> str:
    """6. Bloque"""
    uno = sortear(mio.Bloque(forma(mio))).eval()
    capa = nn.TransformerEncoderLayer(24, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
    sus_nombres = {
        "norm1.": "norm1.",
        "norm2.": "norm2.",
        "attention.qkv.": "self_attn.in_proj_",
        "attention.proj.": "self_attn.out_proj.",
        "feed_forward.expand.": "linear1.",
        "feed_forward.proj.": "linear2.",
    }
    mios = uno.state_dict()
    capa.load_state_dict(
        {
            suyo + final: mios[propio + final]
            for propio, suyo in sus_nombres.items()
            for final in ("weight", "bias")
        }
    )
    x = 5 + 2 * azar(2, 7, 24)
    tapado = torch.ones(7, 7, dtype=torch.bool).triu(1)
    capa.eval()
    son_iguales(
        uno(x).detach(),
        capa(x, src_mask=tapado, is_causal=True).detach(),
        "no es el bloque de PyTorch: mira qué se normaliza y qué se suma",
    )
    return ""


def gpt(mio: ModuleType) -> str:
    """7. Gpt"""
    torch.manual_seed(1605)
    ids = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(1605))
    recien_nacido = mio.Gpt(forma(mio))
    assert recien_nacido.forma == forma(mio), "no guarda la forma en self.forma"
    desviacion = recien_nacido.token_embedding.weight.std().item()
    assert 0.15 < desviacion < 0.25, f"el embedding nace con desviación {desviacion:.2f}, no 0.2"
    al_nacer = F.cross_entropy(recien_nacido(ids).mT, ids.roll(1)).item()
    assert abs(al_nacer - math.log(11)) < 0.6, (
        f"al nacer pierde {al_nacer:.2f}, lejos de ln V, 2.40"
    )
    cuentas = {}
    for nombre, opciones in (("classic", {}), ("moderna", MODERNA), ("atada", {"tied": True})):
        modelo = sortear(mio.Gpt(forma(mio, **opciones)))
        x = modelo.token_embedding.weight[ids]
        if nombre != "moderna":
            x = x + modelo.position_embedding.weight[:9]
        for cada in modelo.blocks:
            x = cada(x)
        cabeza = modelo.token_embedding if nombre == "atada" else modelo.head
        debido = modelo.norm(x) @ cabeza.weight.T
        son_iguales(modelo(ids), debido, f"no da lo que debe ({nombre})")
        son_iguales(modelo(ids[:, :4]), debido[:, :4], "una letra de después cambia lo de antes")
        cuentas[nombre] = sum(p.numel() for p in modelo.parameters())
    debidas = {"classic": 15_240, "moderna": 14_352, "atada": 14_976}
    for nombre, cuenta in cuentas.items():
        assert cuenta == debidas[nombre], (
            f"la forma {nombre} tiene {cuenta} parámetros, debería tener {debidas[nombre]}"
        )
    return ""


def la_perdida(mio: ModuleType) -> str:
    """8. perdida"""
    logits, objetivos = 3 * azar(2, 5, 11), torch.randint(11, (2, 5))
    debida = -logits.log_softmax(-1).gather(-1, objetivos[..., None]).mean()
    son_iguales(mio.perdida(logits, objetivos), debida, "no es la media de −ln p")
    enormes = mio.perdida(1000 * logits, objetivos)
    assert enormes.isfinite(), f"con logits de miles da {enormes.item()}"
    return ""


def adam(mio: ModuleType) -> str:
    """9. paso_de_adam"""
    destino = azar(4, 3)
    parametro = nn.Parameter(torch.zeros(4, 3))
    oficial = torch.optim.Adam([parametro], lr=0.1, betas=(0.9, 0.99))
    w, m, v = torch.zeros(3, 4, 3)
    for t in range(1, 21):
        w, m, v = mio.paso_de_adam(w, w - destino, m, v, t, 0.1)
        parametro.grad = parametro.detach() - destino
        oficial.step()
        son_iguales(w, parametro.detach(), f"en el paso {t} no está donde el Adam de PyTorch")
    return ""


def entrenamiento(mio: ModuleType) -> str:
    """10. entrenar"""
    texto = torch.tensor([0, 1, 2, 3] * 50)  # a cada letra le sigue siempre la misma
    tabla = nn.Embedding(4, 4, _weight=torch.zeros(4, 4))  # una fila de logits por letra
    leidas = []
    tabla.register_forward_pre_hook(lambda _, entradas: leidas.append(entradas[0]))
    perdidas = mio.entrenar(tabla, texto, pasos=100, lote=8, ventana=5, tasa=0.2)
    formas = {tuple(x.shape) for x in leidas}
    assert formas == {(8, 5)}, f"da al modelo entradas de forma {formas}, debería ser (8, 5)"
    assert len({tuple(x.flatten().tolist()) for x in leidas}) > 1, "lee siempre el mismo lote"
    assert len(perdidas) == 100, f"da {len(perdidas)} pérdidas, debería dar una por paso"
    assert math.isclose(perdidas[0], math.log(4), rel_tol=1e-4), "la primera no es ln 4"
    predichas = tabla.weight.argmax(1).tolist()
    assert predichas == [1, 2, 3, 0], f"tras 0, 1, 2, 3 predice {predichas}"
    movido = nn.Embedding(4, 4, _weight=torch.zeros(4, 4))
    mio.entrenar(movido, texto, pasos=1, lote=8, ventana=5, tasa=1.0)
    primero = movido.weight.abs().max().item()  # el primer paso de Adam mide lo que la tasa
    assert abs(primero - 1 / 50) < 1e-4, f"el primer paso mide {primero:.3f}, debería medir 1/50"
    return ""


def generacion(mio: ModuleType) -> str:
    """11. generar"""

    class SigueA(nn.Module):
        """Tras la letra i da a i + 1 nueve veces más probabilidad que a cada una de las otras."""

        forma = forma(mio, vocab_size=3, block_size=5)

        def forward(self, ids: Tensor) -> Tensor:
            assert ids.shape[1] <= 5, f"da a leer {ids.shape[1]} letras, y block_size es 5"
            return math.log(9) * F.one_hot((ids + 1) % 3, 3)

    letras = mio.Tokenizador("abc")
    voraz = mio.generar(SigueA(), letras, "a", 8, temperatura=0)
    assert voraz == "bcabcabc", f"con temperatura 0 sigue «a» con «{voraz}»"
    for temperatura, debida in ((1.0, 9 / 11), (2.0, 3 / 5)):
        escrito = "a" + mio.generar(SigueA(), letras, "a", 2000, temperatura=temperatura)
        pares = [(ord(b) - ord(a)) % 3 == 1 for a, b in zip(escrito, escrito[1:])]
        parte = sum(pares) / len(pares)
        assert abs(parte - debida) < 0.05, (
            f"con temperatura {temperatura}, la más probable sale el {parte:.0%} de las veces, "
            f"debería salir el {debida:.0%}"
        )
    dos = [mio.generar(SigueA(), letras, "a", 50, semilla=s) for s in (1, 1, 2)]
    assert dos[0] == dos[1] != dos[2], "la semilla no decide lo que sale"
    return ""


def caja(mio: ModuleType) -> str:
    """12. abrir_caja"""
    modelo, letras = mio.abrir_caja(PRETRAINED)
    suya = pretrained()
    ids = letras.codificar("En un lugar de la Mancha")
    assert ids.tolist() == suya.tokenizer.encode("En un lugar de la Mancha").tolist()
    with torch.inference_mode():
        debido = suya.build_model().eval()(ids[None])
        son_iguales(
            modelo(ids[None]), debido, "abre la caja, y sus logits no son los de la biblioteca"
        )
    orden = [sys.executable, str(ROOT / "sample.py"), "--checkpoint", str(PRETRAINED)]
    orden += ["--temperature", "0", "--start", "En un lugar", "--max_new_tokens", "200"]
    orden += ["--device", "cpu"]
    escrito = subprocess.run(orden, capture_output=True, encoding="utf-8", check=True).stdout
    mias = "En un lugar" + mio.generar(modelo, letras, "En un lugar", 200, temperatura=0)
    assert mias.strip() == escrito.strip(), f"escribe {mias!r}; sample.py, {escrito!r}"
    return mias


def libro(mio: ModuleType) -> str:
    """13. Entrenado con el libro"""
    corpus = open_corpus(ROOT / "data", CorpusConfig())
    torch.manual_seed(escalera.SEMILLA)
    modelo = mio.Gpt(
        mio.Forma(
            corpus.tokenizer.vocab_size,
            escalera.VENTANA,
            escalera.BLOQUES,
            escalera.CABEZAS,
            escalera.ANCHO,
        )
    )
    ids = torch.from_numpy(np.asarray(corpus.train, dtype=np.int64))
    ajustes = {"pasos": escalera.PASOS, "lote": escalera.LOTE, "ventana": escalera.VENTANA}
    mio.entrenar(modelo, ids, **ajustes, tasa=escalera.RITMO)
    medida = escalera.perdida(modelo, corpus)
    debida = escalera.guardada("más bloques", corpus)
    assert medida < debida + 0.08, (
        f"acaba en {medida:.2f}, y el último peldaño del 6, en {debida:.2f}"
    )
    letras = mio.Tokenizador(corpus.tokenizer.characters)
    escrito = mio.generar(modelo, letras, "En un lugar", 150, temperatura=0.7)
    return f"{medida:.2f} nats por carácter (el último peldaño del 6, {debida:.2f})\nEn un lugar{escrito}"


def gpt2(mio: ModuleType) -> str:
    """14. abrir_gpt2"""
    transformers = pytest.importorskip("transformers", reason='here: pip install ".[convert]"')
    suya = transformers.GPT2Config(vocab_size=95, n_positions=64, n_layer=3, n_head=4, n_embd=48)
    suyo = sortear(transformers.GPT2LMHeadModel(suya).eval())
    ids = torch.randint(95, (2, 64))
    parametros = {
        nombre: p for nombre, p in suyo.state_dict().items() if nombre != "lm_head.weight"
    }
    sin_prefijo = {nombre.removeprefix("transformer."): p for nombre, p in parametros.items()}
    with torch.inference_mode():
        for cuales in (parametros, sin_prefijo):
            dado = mio.abrir_gpt2(cuales, n_head=4)(ids)
            son_iguales(dado, suyo(ids).logits, "sus logits no son los de GPT-2")
    return ""


PIEZAS = (tokenizador, rotaciones, una_cabeza, varias_cabezas, feed_forward, bloque, gpt)
PIEZAS += (la_perdida, adam, entrenamiento, generacion, caja, libro, gpt2)


def en_blanco_esta(error: NotImplementedError) -> str:
    """Dar el nombre de lo que está en blanco: puede ser otra pieza, que esta usa."""
    *_, (marco, _) = traceback.walk_tb(error.__traceback__)
    de_quien = marco.f_locals.get("self")
    clase = "" if de_quien is None else f"{type(de_quien).__name__}."
    return clase + marco.f_code.co_name


@pytest.mark.parametrize("pieza", PIEZAS, ids=lambda pieza: pieza.__name__)
def test_mi_gpt(pieza, capsys):
    try:
        escrito = pieza(mi_gpt)
    except NotImplementedError as error:
        falta = f"te falta: {pieza.__doc__} ({en_blanco_esta(error)})"
        with capsys.disabled():
            print(f"\n{falta}", end=" ")
        pytest.skip(f"here: {falta}")
    with capsys.disabled():
        print(f"\n✓ {pieza.__doc__} {escrito}", end=" ")


# --- la solución ------------------------------------------------------------------------------


def solucion() -> str:
    [celda] = [c for c in code_cells(read(CAPITULO)) if c.id == CELDA]
    assert celda.metadata.jupyter.source_hidden
    return celda.source + "\n"


def modulo(fuente: str, carpeta: Path) -> ModuleType:
    """Dar el módulo que hay en un texto."""
    ruta = carpeta / "escrito.py"
    ruta.write_text(fuente, encoding="utf-8")
    descripcion = importlib.util.spec_from_file_location("escrito", ruta)
    escrito = importlib.util.module_from_spec(descripcion)
    descripcion.loader.exec_module(escrito)
    return escrito


@pytest.mark.slow
@pytest.mark.parametrize("pieza", PIEZAS, ids=lambda pieza: pieza.__name__)
def test_la_solucion_tiene_todas_las_piezas(pieza, tmp_path):
    pieza(modulo(solucion(), tmp_path))


def en_blanco(fuente: str) -> str:
    """Dar un programa sin lo que hacen sus funciones: quedan sus nombres y lo que dicen de sí."""
    arbol = ast.parse(fuente)
    if ast.get_docstring(arbol):
        del arbol.body[0]  # las primeras líneas de la hoja
    for nodo in ast.walk(arbol):
        if isinstance(nodo, ast.FunctionDef):
            nodo.body = nodo.body[:1] if ast.get_docstring(nodo) else [ast.Pass()]
    return ast.unparse(arbol)


def test_la_hoja_y_la_solucion_piden_lo_mismo():
    hoja = Path(mi_gpt.__file__).read_text(encoding="utf-8")
    assert en_blanco(hoja) == en_blanco(solucion())
    assert 150 <= len(ast.unparse(ast.parse(solucion())).splitlines()) <= 320


ERRORES = (
    (tokenizador, "for letra in texto]", "for letra in sorted(texto)]"),
    (rotaciones, "a * seno + b * coseno", "a * seno - b * coseno"),
    (rotaciones, "x[..., 0::2], x[..., 1::2]", "*x.chunk(2, -1),"),
    (una_cabeza, ".triu(1)", ".triu(2)"),
    (una_cabeza, " / math.sqrt(D)", ""),
    (varias_cabezas, "view(B, T, 3, H, C // H)", "view(B, T, H, 3, C // H).transpose(2, 3)"),
    (varias_cabezas, "q, k = igualar(q), igualar(k)", "q = igualar(q)"),
    (varias_cabezas, "leido.transpose(1, 2).reshape", "leido.reshape"),
    (feed_forward, "self.activacion(self.expand(x))", "F.relu(self.expand(x))"),
    (bloque, "self.attention(self.norm1(x))", "self.norm1(self.attention(x))"),
    (bloque, "self.feed_forward(self.norm2(x))", "self.feed_forward(x)"),
    (gpt, "self.head(self.norm(x))", "self.head(x)"),
    (gpt, "self.head.weight = self.token_embedding.weight", "pass"),
    (gpt, "std=0.2", "std=1"),
    (la_perdida, "F.cross_entropy(", "F.multi_margin_loss("),
    (adam, "(v / (1 - beta2**t))", "v"),
    (entrenamiento, "trozos[:, 1:])", "trozos[:, :-1])"),
    (entrenamiento, "min(t / 50, 1)", "1"),
    (generacion, "logits / temperatura", "logits * temperatura"),
    (generacion, "ids[None, -modelo.forma.block_size :]", "ids[None]"),
    (generacion, ", generator=azar", ""),
    (gpt2, "suyos[suyo].T if es_matriz else suyos[suyo]", "suyos[suyo]"),
    (gpt2, 'activation="gelu"', 'activation="relu"'),
)


@pytest.mark.parametrize(
    ("pieza", "bien", "mal"), ERRORES, ids=lambda algo: getattr(algo, "__name__", str(algo)[:40])
)
def test_un_error_se_nota(pieza, bien, mal, tmp_path):
    fuente = solucion()
    assert bien in fuente
    with pytest.raises((AssertionError, RuntimeError)):
        pieza(modulo(fuente.replace(bien, mal), tmp_path))


@pytest.mark.parametrize(
    ("escrito", "quien"),
    [
        (solucion(), "✓ lo abre tu mi_gpt.py"),
        (
            Path(mi_gpt.__file__).read_text(encoding="utf-8"),
            "(NotImplementedError): lo abre la sol",
        ),
        ("def abrir_gpt2(parametros, n_head)", "(SyntaxError): lo abre la solución"),
    ],
    ids=("escrita", "en blanco", "a medias"),
)
def test_el_capitulo_abre_gpt2_con_lo_que_hay_escrito(
    escrito, quien, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("transformers", reason='here: pip install ".[convert]"')
    (tmp_path / "mi_gpt.py").write_text(escrito, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "mi_gpt")
    monkeypatch.syspath_prepend(str(tmp_path))
    celdas = {celda.id: celda.source for celda in code_cells(read(CAPITULO))}
    espacio = {"__name__": "capitulo"}
    for cual in (IMPORTES, CELDA, ABRIR):
        exec(celdas[cual], espacio)  # con un error de más de 1e-4, protesta
    assert quien in capsys.readouterr().out
