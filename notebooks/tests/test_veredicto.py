"""De lo que no pasa se dice qué, en qué línea y, si se pide, el arreglo: puesto en la hoja, pasa."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hoja
from buscar import busqueda, estructura
from comprobar.ideas import ERRORES
from comprobar.lista import POR_TITULO
from decir.mensaje import Donde, Mensaje, en_lineas
from respuestas import OTRAS, programa
from veredicto import de_una_pieza

OTRA = programa(Path(__file__).resolve().parent / "otras" / "otra.py")
SOLUCION = hoja.SOLUCION.read_text(encoding="utf-8")


def con_el_desliz(titulo: str, bien: str, mal: str) -> str:
    """La hoja con un desliz en una pieza: de la solución o, si no está así en ella, de otra respuesta."""
    nombre = POR_TITULO[titulo].nombre
    texto = SOLUCION if bien in hoja.leer(SOLUCION, nombre) else OTRA
    escrita = hoja.leer(texto, nombre)
    assert bien in escrita
    return hoja.poner(texto, nombre, escrita.replace(bien, mal, 1))


def lo_dicho(titulo: str, texto: str) -> tuple[Mensaje, Donde]:
    """Dar lo que se dice de una pieza que no pasa, con la línea buscada, y dónde está."""
    veredicto = de_una_pieza(titulo, texto)
    assert not veredicto.pasa
    return veredicto.mensaje(avisar=lambda: None), veredicto.donde


@pytest.fixture(autouse=True)
def sin_prisa(monkeypatch):
    """Lo que se halla no depende de lo rápida que sea la máquina."""
    monkeypatch.setattr(busqueda, "SEGUNDOS", 300)
    monkeypatch.setattr(busqueda, "DE_RELOJ", 600)


DE_UNA_LINEA = (
    # En la solución.
    ("Tokenizador", "{letra: i for i, letra", "{i: letra for i, letra"),
    ("Tokenizador", '"".join(self.caracteres[i] for i in ids.tolist())', "str(ids.tolist())"),
    ("Tokenizador", 'ValueError(f"', 'ValueError("'),
    ("Entrada", "weight, std=0.2)", "weight, 0.2)"),
    ("Entrada", '.position == "learned"', '.position == "Learned"'),
    ("Entrada", ".weight[: ids.shape[1]]", "(torch.arange(len(ids)))"),
    ("mirar_atras", "T, D = q.shape[-2:]", "D, T = q.shape[-2:]"),
    ("mirar_atras", "softmax(-1)", "softmax(1)"),
    ("Atencion", "leido, _ = mirar_atras", "leido = mirar_atras"),
    ("LayerNorm", "x.mean(-1, keepdim=True)", "x.mean(-1)"),
    ("LayerNorm", "return x if self.bias is None else x + self.bias", "return x + self.bias"),
    ("Bloque", "self.norm2 = hacer_norma(forma)", "self.norm2 = self.norm1"),
    (
        "entropia_cruzada",
        "-log_p.gather(-1, objetivos[..., None]).mean()",
        "F.cross_entropy(objetivos, logits.mT)",
    ),
    ("paso_de_adam", "g**2", "g * 2"),
    ("girar", "x[..., 0::2], x[..., 1::2]", "x[0::2], x[1::2]"),
    ("girar", "angulos.cos(), angulos.sin()", "angulos.cos, angulos.sin"),
    ("igualar", "+ 1e-6", "+ 1e6"),
    ("guardar", "json.dumps(contenido)", "str(contenido)"),
    ("abrir_caja", "modelo.eval(), Tokenizador", "modelo.eval, Tokenizador"),
    ("abrir_gpt2", 'removeprefix("transformer.")', 'strip("transformer.")'),
    # En otra respuesta, que en nada se parece a la solución.
    ("Entrada", ".unbind(1)", ".unbind(0)"),
    ("mirar_atras", "sum(-1, keepdim=True)", "sum(-1)"),
    ("Atencion", "torch.cat(leidos, -1)", "torch.cat(leidos)"),
    ("LayerNorm", "varianza, media = torch", "media, varianza = torch"),
    ("entropia_cruzada", "logsumexp(1)", "logsumexp(0)"),
    ("paso_de_adam", "(1 - beta1**t) / (", "(1 - beta1**t) * ("),
    ("girar", "torch.arange(D) // 2 * 2", "torch.arange(D) / 2 * 2"),
    ("igualar", "longitud**2 / x.shape[-1]", "longitud**2 / x.shape[0]"),
)


@pytest.mark.parametrize(("titulo", "bien", "mal"), DE_UNA_LINEA)
def test_con_el_arreglo_pasa(titulo, bien, mal):
    texto = con_el_desliz(titulo, bien, mal)
    que, donde, arreglo = en_lineas(*lo_dicho(titulo, texto), con_arreglo=True)
    numero, suya = re.match(r"línea (\d+): «(.*)»", donde).groups()
    lineas = texto.splitlines()
    linea = lineas[int(numero) - 1]
    assert linea.strip() == suya and mal.splitlines()[0].strip() in suya
    sangria = " " * (len(linea) - len(linea.lstrip()))
    lineas[int(numero) - 1] = sangria + arreglo.removeprefix("arreglo: ")
    assert de_una_pieza(titulo, "\n".join(lineas)).pasa
    assert suya not in que and arreglo not in que  # cada cosa, una vez


def test_el_arreglo_de_una_idea_se_dice_si_se_pide_y_el_de_python_a_la_primera():
    de_una_idea = lo_dicho("paso_de_adam", con_el_desliz("paso_de_adam", "g**2", "g * 2"))
    assert len(en_lineas(*de_una_idea)) == 2
    assert len(en_lineas(*de_una_idea, con_arreglo=True)) == 3
    de_python = lo_dicho("Bloque", con_el_desliz("Bloque", "self.norm1(x)", "norm1(x)"))
    assert len(en_lineas(*de_python)) == 3


def test_no_se_da_por_arreglo_cualquier_cosa_que_pase():
    """`-0` en lugar de `1`, por ejemplo: la línea sí, y el arreglo solo si es el de la solución."""
    texto = con_el_desliz("mirar_atras", ".triu(1)", ".triu(0)")
    assert "triu(1)" in lo_dicho("mirar_atras", texto)[0].arreglo
    bien, mal = "filas[torch.arange(B * T), letras]", "filas[:, letras]"
    mensaje, _ = lo_dicho("entropia_cruzada", con_el_desliz("entropia_cruzada", bien, mal))
    assert mensaje.linea and mensaje.arreglo == ""


AL_NACER = "    azar = torch.Generator().manual_seed(semilla)\n"
SEGUIDAS = "    ids = tokenizador.codificar(comienzo)\n    leidas = len(ids)\n    for _ in range(cuantas):\n"
DE_OTRO_MODO = (
    ("entrenar", "        perdidas.append", "    perdidas.append", "le falta sangría"),
    ("entrenar", "    return perdidas", "        return perdidas", "le sobra sangría"),
    ("entropia_cruzada", "    return", "    log_p = log_p.exp() ** 2\n    return", "sobra"),
    ("entrenar", "        optimizador.zero_grad()\n", "", "detrás falta una línea"),
    ("LayerNorm", "        self.epsilon = epsilon\n", "", "detrás falta una línea"),
    ("generar", AL_NACER + SEGUIDAS, f"{SEGUIDAS}    {AL_NACER}", "va antes"),
    ("LayerNorm", "x.mean(-1, keepdim=True)", "x.mean(-1)", "le falta algo"),
    ("mirar_atras", "T, D = q.shape[-2:]", "D, T = q.shape[-2:]", "algo va en otro orden"),
    ("mirar_atras", "pesos @ v, pesos", "pesos * v, pesos", "hay un signo por otro"),
    ("girar", "angulos.sin()", "angulos.tan()", "hay un nombre por otro"),
)


@pytest.mark.parametrize(("titulo", "bien", "mal", "clase"), DE_OTRO_MODO)
def test_de_una_linea_se_dice_que_le_pasa_sin_decir_lo_que_va(titulo, bien, mal, clase):
    mensaje, _ = lo_dicho(titulo, con_el_desliz(titulo, bien, mal))
    assert mensaje.de_que_clase == clase


def test_una_frase_de_la_tabla_va_con_su_linea():
    texto = con_el_desliz("FeedForward", "self.activacion(self.expand(x))", "self.expand(x)")
    mensaje, donde = lo_dicho("FeedForward", texto)
    assert any(mensaje.que.startswith(frase) for frase, *_ in ERRORES["FeedForward"])
    assert "return self.proj(self.expand(x))" in donde(mensaje.linea)


def test_si_se_detiene_en_otra_linea_se_dice_la_de_la_causa():
    texto = con_el_desliz("girar", "angulos.cos(), angulos.sin()", "angulos.cos, angulos.sin")
    mensaje, donde = lo_dicho("girar", texto)
    assert "«coseno, seno = angulos.cos, angulos.sin»" in donde(mensaje.linea)


def test_de_una_pieza_que_se_apoya_en_otra_que_falla_no_se_busca():
    texto = con_el_desliz("Atencion", "leido.transpose(1, 2).reshape", "leido.reshape")
    escrita = hoja.leer(texto, "Bloque").replace("self.norm2(x)", "self.norm1(x)")
    texto = hoja.poner(texto, "Bloque", escrita)
    avisos = []
    de_una_pieza("Bloque", texto).mensaje(lambda: avisos.append("Bloque"))
    assert avisos == []
    de_una_pieza("Atencion", texto).mensaje(lambda: avisos.append("Atencion"))
    assert avisos == ["Atencion"]


def test_lo_que_se_prueba_no_se_escribe_ni_acaba_con_el_programa(capsys):
    texto = con_el_desliz("igualar", "    return x /", "    print(x.sum())\n    return 2 * x /")
    assert lo_dicho("igualar", texto)[0].arreglo
    assert capsys.readouterr().out.count("\n") < 30  # las veces que la comprobación la llama
    sale = "    exit() if x is None else 0\n    return 2 * x /"
    assert lo_dicho("igualar", con_el_desliz("igualar", "    return x /", sale))[0].arreglo


def test_lo_que_se_prueba_no_deja_archivos_donde_se_trabaja(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def pasaria(escrito: str) -> bool:
        Path("dejado").write_text(escrito, encoding="utf-8")
        return False

    una, otra = "def f(x):\n    return x\n", "def f(x):\n    return 2 * x\n"
    assert busqueda.buscar(una, otra, pasaria) is None
    assert list(tmp_path.iterdir()) == []
    assert Path.cwd() == tmp_path


def test_lo_que_se_prueba_va_siempre_en_el_mismo_orden():
    programa = (
        "import hashlib, hoja\n"
        "from itertools import islice\n"
        "from buscar import busqueda\n"
        "escrito = hoja.leer(hoja.SOLUCION.read_text(encoding='utf-8'), 'generar')\n"
        "todos = busqueda.candidatos(escrito.replace('ids', 'numeros'), escrito)\n"
        "print(hashlib.md5(repr(list(islice(todos, 999))).encode()).hexdigest())"
    )
    dados = set()
    for semilla in ("1", "2"):
        entorno = os.environ | {"PYTHONHASHSEED": semilla, "PYTHONPATH": str(hoja.AQUI)}
        orden = [sys.executable, "-c", programa]
        dados.add(subprocess.run(orden, env=entorno, check=True, capture_output=True).stdout)
    assert len(dados) == 1


# --- los tropiezos con Python -----------------------------------------------------------------

CON_PYTHON = (
    ("Gpt", "self.norm(x))", "self.norm(x))\n        raise NotImplementedError", "queda el hueco"),
    (
        "Tokenizador",
        '        return "".join(',
        "        raise NotImplementedError\n        (",
        "queda el hueco",
    ),
    ("Bloque", "self.norm1 = ", "norm1 = ", "`norm1` se pierde al acabar __init__"),
    ("Bloque", "__init__(self, forma", "_init_(self, forma", "ha de llamarse `__init__`"),
    ("Atencion", "forward(self", "foward(self", "ha de llamarse `forward`"),
    ("FeedForward", "forward(self, x", "forward(x", "forward no recibe self"),
    ("Bloque", "class Bloque(nn.Module)", "class Bloque", "Bloque no parte de nn.Module"),
    ("FeedForward", "return self.proj", "self.proj", "forward no devuelve nada"),
    ("Gpt", "return self.head(self.norm(x))", "print(self.head(self.norm(x)))", "no lo devuelve"),
    ("Entrada", "x = x + self", "x =+ self", "=+ guarda, y no suma"),
    (
        "Bloque",
        "x = x + self.attention(self.norm1(x))",
        "return x + self.attention(self.norm1(x))",
        "lo que va detrás de un return no se ejecuta",
    ),
    (
        "FeedForward",
        "    def forward",
        "    @torch.no_grad()\n    def forward",
        "forward no deja derivar lo que da",
    ),
    ("FeedForward", "4 * forma", "4 forma", "¿falta una coma, o un signo como *?"),
    ("FeedForward", "    def forward", "        def forward", "la sangría no cuadra"),
    ("Atencion", "3, H, C // H)", "3, H, C // H", "los paréntesis no cuadran"),
    (
        "entropia_cruzada",
        ".mean()",
        ".mean()\n\xa0   x = 2",
        "hay un espacio que no es el corriente",
    ),
)


@pytest.mark.parametrize(("titulo", "bien", "mal", "frase"), CON_PYTHON)
def test_un_tropiezo_con_python_se_dice_con_su_linea_y_sin_buscar(titulo, bien, mal, frase):
    avisos = []
    veredicto = de_una_pieza(titulo, con_el_desliz(titulo, bien, mal))
    mensaje = veredicto.mensaje(avisar=lambda: avisos.append(1))
    assert frase in mensaje.que and veredicto.donde(mensaje.linea)
    assert avisos == []


@pytest.mark.parametrize("nombre", hoja.trozos(SOLUCION))
def test_una_respuesta_buena_no_tiene_tropiezos(nombre):
    debida = hoja.leer(SOLUCION, nombre)
    for otra in OTRAS:
        buena = hoja.leer(otra.read_text(encoding="utf-8"), nombre)
        assert estructura.tropiezo(buena, debida) is None
    assert estructura.tropiezo(debida, debida) is None
