"""De lo que no pasa se dice la línea y lo que va en ella: puesto en la hoja, pasa."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import reparacion
from comprobaciones import POR_TITULO, motivo
from errores import ERRORES

import hoja
from respuestas import programa

OTRA = programa(Path(__file__).resolve().parent / "otras" / "otra.py")
SOLUCION = hoja.SOLUCION.read_text(encoding="utf-8")


def con_el_desliz(titulo: str, bien: str, mal: str) -> str:
    """La hoja con un desliz en una pieza: de la solución o, si no está así en ella, de otra respuesta."""
    nombre = POR_TITULO[titulo].nombre
    texto = SOLUCION if bien in hoja.leer(SOLUCION, nombre) else OTRA
    escrita = hoja.leer(texto, nombre)
    assert bien in escrita
    return hoja.poner(texto, nombre, escrita.replace(bien, mal, 1))


@pytest.fixture(autouse=True)
def sin_prisa(monkeypatch):
    """Lo que se halla no depende de lo rápida que sea la máquina."""
    monkeypatch.setattr(reparacion, "SEGUNDOS", 300)


DE_UNA_LINEA = (
    # En la solución.
    ("Tokenizador", "letra not in self.numero", "letra not in self.numero.values()"),
    ("Tokenizador", "{letra: i for i, letra", "{i: letra for i, letra"),
    ("Tokenizador", '"".join(self.caracteres[i] for i in ids.tolist())', "str(ids.tolist())"),
    ("Tokenizador", 'ValueError(f"', 'ValueError("'),
    ("Entrada", "weight, std=0.2)", "weight, 0.2)"),
    ("Entrada", '.position == "learned"', '.position == "Learned"'),
    ("Entrada", ".weight[: ids.shape[1]]", "(torch.arange(len(ids)))"),
    ("mirar_atras", "T, D = q.shape[-2:]", "D, T = q.shape[-2:]"),
    ("mirar_atras", "pesos @ v, pesos", "pesos * v, pesos"),
    ("mirar_atras", "softmax(-1)", "softmax(1)"),
    ("Atencion", "leido, _ = mirar_atras", "leido = mirar_atras"),
    ("LayerNorm", "x.mean(-1, keepdim=True)", "x.mean(-1)"),
    ("LayerNorm", "square().mean(-1, keepdim=True)", "square().mean()"),
    ("LayerNorm", "return x if self.bias is None else x + self.bias", "return x + self.bias"),
    ("Bloque", "self.norm2 = hacer_norma(forma)", "self.norm2 = self.norm1"),
    ("Gpt", "Bloque(forma) for _ in range(forma.n_layer)", "[Bloque(forma)] * forma.n_layer"),
    (
        "entropia_cruzada",
        "-log_p.gather(-1, objetivos[..., None]).mean()",
        "F.cross_entropy(objetivos, logits.mT)",
    ),
    ("paso_de_adam", "g**2", "g * 2"),
    ("entrenar", "range(1, pasos + 1)", "range(1, pasos)"),
    ("entrenar", "tasa * min(t / 50", "tasa * min(t // 50"),
    ("entrenar", "perdidas.append(valor.item())", "perdidas.append(valor)"),
    ("generar", "[None, -modelo.forma.block_size :]", "[None, : -modelo.forma.block_size]"),
    ("generar", "ids[leidas:]", "ids"),
    (
        "Entrada",
        ".position_embedding.weight[: ids.shape[1]]",
        ".position_embedding.weight[: len(ids)]",
    ),
    ("girar", "x[..., 0::2], x[..., 1::2]", "x[0::2], x[1::2]"),
    ("girar", "angulos.cos(), angulos.sin()", "angulos.cos, angulos.sin"),
    ("igualar", "+ 1e-6", "+ 1e6"),
    ("Atencion, con girar", "girar(q), girar(k)", "girar(q, k)"),
    ("guardar", "json.dumps(contenido)", "str(contenido)"),
    ("guardar", "tokenizador.caracteres", "tokenizador"),
    ("abrir_caja", 'json.loads(archivo.metadata()["content"])', 'archivo.metadata()["content"]'),
    ("abrir_caja", "modelo.eval(), Tokenizador", "modelo.eval, Tokenizador"),
    ("abrir_gpt2", 'removeprefix("transformer.")', 'strip("transformer.")'),
    ("abrir_gpt2", "C, bloques, n_head", "C, n_head, bloques"),
    # En otra respuesta, que en nada se parece a la solución.
    ("Tokenizador", "self._letras.index(letra)", "self._letras.find(letra)"),
    ("Entrada", ".unbind(1)", ".unbind(0)"),
    ("mirar_atras", "q.size(-1) ** -0.5", "q.size(1) ** -0.5"),
    ("mirar_atras", "sum(-1, keepdim=True)", "sum(-1)"),
    ("Atencion", "torch.cat(leidos, -1)", "torch.cat(leidos)"),
    ("LayerNorm", "varianza, media = torch", "media, varianza = torch"),
    ("Gpt", "nn.Sequential(*[", "nn.Sequential(["),
    ("entropia_cruzada", "logsumexp(1)", "logsumexp(0)"),
    ("entropia_cruzada", "filas[torch.arange(B * T), letras]", "filas[:, letras]"),
    ("paso_de_adam", "(1 - beta1**t) / (", "(1 - beta1**t) * ("),
    ("entrenar", "perdidas[t - 1]", "perdidas[t]"),
    ("girar", "torch.arange(D) // 2 * 2", "torch.arange(D) / 2 * 2"),
    ("igualar", "longitud**2 / x.shape[-1]", "longitud**2 / x.shape[0]"),
)


@pytest.mark.parametrize(("titulo", "bien", "mal"), DE_UNA_LINEA)
def test_con_lo_que_se_dice_pasa(titulo, bien, mal):
    texto = con_el_desliz(titulo, bien, mal)
    fallo = motivo(titulo, texto)
    dicho = re.search(r".*en la línea (\d+), «(.*)»: con «(.*)» pasa$", fallo)
    assert dicho, fallo
    lineas = texto.splitlines()
    numero = int(dicho[1]) - 1
    assert lineas[numero].strip() == dicho[2]
    assert mal.splitlines()[0].strip() in dicho[2]
    sangria = " " * (len(lineas[numero]) - len(lineas[numero].lstrip()))
    lineas[numero] = sangria + dicho[3]
    assert motivo(titulo, "\n".join(lineas)) == ""


AL_NACER = "    azar = torch.Generator().manual_seed(semilla)\n"
DE_OTRO_MODO = (
    ("entrenar", "        perdidas.append", "    perdidas.append", "le falta sangría"),
    ("entropia_cruzada", "    return", "    log_p = log_p.exp() ** 2\n    return", "sobra"),
    (
        "entrenar",
        "        optimizador.zero_grad()\n",
        "",
        "detrás falta «optimizador.zero_grad()»",
    ),
    ("LayerNorm", "        self.epsilon = epsilon\n", "", "detrás falta «self.epsilon = epsilon»"),
    (
        "generar",
        f"{AL_NACER}    ids = tokenizador.codificar(comienzo)\n    leidas = len(ids)\n    for _ in range(cuantas):\n",
        f"    ids = tokenizador.codificar(comienzo)\n    leidas = len(ids)\n    for _ in range(cuantas):\n    {AL_NACER}",
        "«azar = torch.Generator().manual_seed(semilla)»: va delante de «",
    ),
)


@pytest.mark.parametrize(("titulo", "bien", "mal", "frase"), DE_OTRO_MODO)
def test_una_linea_puede_faltar_sobrar_o_ir_en_otro_sitio(titulo, bien, mal, frase):
    fallo = motivo(titulo, con_el_desliz(titulo, bien, mal))
    assert re.search(r"en la línea \d+, «.*»", fallo), fallo
    assert frase in fallo


DE_LA_TABLA = (
    ("LayerNorm", "desvios.square().mean(-1, keepdim=True)", "x.var(-1, keepdim=True)"),
    ("Atencion, con girar", "q, k = girar(q), girar(k)", "q, k = girar(k), girar(q)"),
    ("FeedForward", "self.activacion(self.expand(x))", "self.expand(x)"),
    ("Gpt", "self.norm(self.blocks(", "self.blocks(self.norm("),
)


@pytest.mark.parametrize(("titulo", "bien", "mal"), DE_LA_TABLA)
def test_una_frase_de_la_tabla_lleva_la_linea_y_no_la_respuesta(titulo, bien, mal):
    texto = con_el_desliz(titulo, bien, mal)
    frase, linea = motivo(titulo, texto).split(", en la línea ")
    assert frase in [una for filas in ERRORES.values() for una, *_ in filas]
    suya = next(una.strip() for una in texto.splitlines() if mal in una)
    assert linea.endswith(f", «{suya}»")


def test_si_se_detiene_en_otra_linea_se_dice_la_de_la_causa():
    texto = con_el_desliz("girar", "angulos.cos(), angulos.sin()", "angulos.cos, angulos.sin")
    donde = {una: i for i, una in enumerate(texto.splitlines(), 1)}
    se_detiene = donde[next(una for una in donde if "girado = torch.stack" in una)]
    esta = donde[next(una for una in donde if "coseno, seno =" in una)]
    assert re.search(
        rf"en la línea {se_detiene}, «.*; la causa está en la línea {esta}, «",
        motivo("girar", texto),
    )


def test_lo_que_se_prueba_no_se_escribe_ni_acaba_con_el_programa(capsys):
    texto = con_el_desliz("igualar", "    return x /", "    print(x.sum())\n    return 2 * x /")
    assert "pasa" in motivo("igualar", texto)
    assert capsys.readouterr().out.count("\n") < 9  # las veces que la comprobación la llama
    texto = con_el_desliz(
        "igualar", "    return x /", "    exit() if x is None else 0\n    return 2 * x /"
    )
    assert "pasa" in motivo("igualar", texto)


def test_lo_que_se_prueba_no_deja_archivos_donde_se_trabaja(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def pasaria(escrito: str) -> bool:
        Path("dejado").write_text(escrito, encoding="utf-8")
        return False

    assert (
        reparacion.reparar("def f(x):\n    return x\n", "def f(x):\n    return 2 * x\n", pasaria)
        is None
    )
    assert list(tmp_path.iterdir()) == []
    assert Path.cwd() == tmp_path


def test_no_se_guarda_lo_que_da_una_llamada_que_no_da_nada():
    bien = "        self.bias = nn.Parameter(torch.zeros(C)) if bias else None\n"
    mal = "        if bias:\n            self.bias = nn.Parameter(torch.zeros(C))\n"
    fallo = motivo("LayerNorm", con_el_desliz("LayerNorm", bien, mal))
    assert "LayerNorm no tiene `bias`" in fallo
    assert "__init__" not in fallo  # self.bias = super().__init__() es None, y pasaría


def test_lo_que_se_prueba_va_siempre_en_el_mismo_orden():
    programa = (
        "import hashlib, hoja, reparacion\n"
        "escrito = hoja.leer(hoja.SOLUCION.read_text(encoding='utf-8'), 'generar')\n"
        "todos = reparacion.candidatos(escrito.replace('ids', 'numeros'), escrito)\n"
        "print(hashlib.md5(''.join(todos).encode()).hexdigest())"
    )
    dados = set()
    for semilla in ("1", "2"):
        entorno = os.environ | {"PYTHONHASHSEED": semilla, "PYTHONPATH": str(hoja.AQUI)}
        orden = [sys.executable, "-c", programa]
        dados.add(subprocess.run(orden, env=entorno, check=True, capture_output=True).stdout)
    assert len(dados) == 1
