"""Las comprobaciones de mi_gpt.py: la solución pasa, y de cada pieza se rechazan cuatro errores."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import curso
import hoja
import mi_gpt
from comprobaciones import EN_BLANCO, PIEZAS, POR_TITULO, motivo, sortear

ROOT = Path(__file__).resolve().parent.parent
SOLUCION = hoja.SOLUCION.read_text(encoding="utf-8")
BLANCA = curso.hoja_en_blanco()
TITULOS = list(POR_TITULO)


@pytest.mark.parametrize("titulo", TITULOS)
def test_la_solucion_pasa(titulo):
    assert motivo(titulo, SOLUCION) == ""


@pytest.mark.parametrize("titulo", TITULOS)
def test_en_blanco_esta_en_blanco(titulo):
    assert motivo(titulo, BLANCA) == EN_BLANCO


@pytest.mark.parametrize("titulo", TITULOS)
def test_cada_pieza_pasa_sola_con_las_demas_en_blanco(titulo):
    nombre = POR_TITULO[titulo].nombre
    sola = hoja.poner(BLANCA, nombre, hoja.leer(SOLUCION, nombre))
    assert motivo(titulo, sola) == ""


def en_blanco(fuente: str) -> str:
    """Dar un programa sin lo que hacen sus funciones: quedan sus nombres y lo que dicen de sí."""
    arbol = ast.parse(fuente)
    del arbol.body[0]  # las primeras líneas
    for nodo in ast.walk(arbol):
        if isinstance(nodo, ast.FunctionDef):
            nodo.body = nodo.body[:1] if ast.get_docstring(nodo) else [ast.Pass()]
    return ast.unparse(arbol)


def test_la_hoja_y_la_solucion_piden_lo_mismo():
    escrita = Path(mi_gpt.__file__).read_text(encoding="utf-8")
    assert en_blanco(escrita) == en_blanco(SOLUCION)
    if all(map(hoja.esta_en_blanco, hoja.trozos(escrita).values())):
        assert escrita == BLANCA, "run: python notebooks/curso.py"


def test_cada_pieza_tiene_su_sitio_en_la_hoja_y_su_capitulo():
    sitios = [linea for linea in BLANCA.splitlines() if linea.startswith("# --- ") and "(" in linea]
    debidos = {pieza.nombre: [] for pieza in PIEZAS}
    for pieza in PIEZAS:
        debidos[pieza.nombre].append(str(pieza.capitulo))
    for linea in sitios:
        nombre = linea.split()[2]
        assert all(numero in linea for numero in debidos.pop(nombre)), linea
    assert debidos == {}


ERRORES = (
    ("Tokenizador", "for letra in texto],", "for letra in sorted(texto)],", "codifica «roma»"),
    ("Entrada", "std=0.2", "std=1", "nace con una desviación típica de 1"),
    ("mirar_atras", ".triu(1)", ".triu(2)", "deja que la primera letra dé"),
    ("mirar_atras", " / math.sqrt(D)", "", "divide las puntuaciones entre 1.00"),
    ("mirar_atras", " / math.sqrt(D)", " / D", "divide las puntuaciones entre 6.00"),
    ("mirar_atras", "softmax(-1)", "softmax(-2)", "suman"),
    ("Atencion", "view(B, T, 3, H, C // H)", "view(B, T, H, 3, C // H).transpose(2, 3)", "reparte"),
    ("Atencion", "leido.transpose(1, 2).reshape", "leido.reshape", "mezcla las letras"),
    ("Atencion", "H = self.forma.n_head", "H = 2", "da lo que darían 2 cabezas"),
    ("Atencion, con girar", "q, k = igualar(q), igualar(k)", "q = igualar(q)", "qk_norm = True"),
    (
        "FeedForward",
        "self.activacion(self.expand(x))",
        "F.relu(self.expand(x))",
        "usa siempre ReLU",
    ),
    ("LayerNorm", "1e-5", "1.0", "usa una épsilon de 1"),
    (
        "Bloque",
        "self.attention(self.norm1(x))",
        "self.norm1(self.attention(x))",
        "normaliza después",
    ),
    ("Bloque", "self.feed_forward(self.norm2(x))", "self.feed_forward(x)", "no normaliza delante"),
    ("Gpt", "self.head(self.norm(x))", "self.head(x)", "no normaliza delante de la cabeza"),
    (
        "Gpt",
        "super().forward(ids)",
        "self.token_embedding(ids) + self.position_embedding.weight[: ids.shape[1]]",
        "suma posiciones también si",
    ),
    ("entropia_cruzada", ".mean()", ".sum()", "da la suma"),
    ("paso_de_adam", ".sqrt() + 1e-8)", " + 1e-8).sqrt()", "el 1e-8 se suma a la raíz, fuera"),
    ("entrenar", "optimizador.zero_grad()", "pass", "falta zero_grad"),
    ("entrenar", " * (1 - (t - 1) / pasos)", "", "la tasa no baja"),
    ("entrenar", " * min(t / 50, 1)", "", "la tasa no sube"),
    ("generar", "logits / temperatura", "logits * temperatura", "la más probable sale el"),
    ("generar", "[None, -modelo.forma.block_size :]", "[None]", "y block_size es 5"),
    ("generar", ", generator=azar", "", "con la misma semilla"),
    ("abrir_gpt2", "suyos[nombre].T if es_matriz else suyos[nombre]", "suyos[nombre]", ""),
    ("abrir_gpt2", 'activation="gelu"', 'activation="relu"', "GPT-2, con GELU"),
)


@pytest.mark.parametrize(("titulo", "bien", "mal", "frase"), ERRORES)
def test_un_error_se_nombra(titulo, bien, mal, frase):
    nombre = POR_TITULO[titulo].nombre
    escrita = hoja.leer(SOLUCION, nombre)
    assert bien in escrita
    fallo = motivo(titulo, hoja.poner(SOLUCION, nombre, escrita.replace(bien, mal)))
    assert fallo and frase in fallo, fallo


def test_abre_un_gpt2_de_otros():
    transformers = pytest.importorskip("transformers", reason='here: pip install ".[convert]"')
    suya = transformers.GPT2Config(vocab_size=95, n_positions=64, n_layer=3, n_head=4, n_embd=48)
    suyo = sortear(transformers.GPT2LMHeadModel(suya).eval())
    parametros = {n: p for n, p in suyo.state_dict().items() if n != "lm_head.weight"}
    ids = torch.randint(95, (2, 64))
    mio = hoja.cargar(SOLUCION)
    with torch.inference_mode():
        logits = mio.abrir_gpt2(parametros, n_head=4)(ids)
        torch.testing.assert_close(logits, suyo(ids).logits, rtol=1e-4, atol=1e-4)


def test_el_programa_escribe_las_letras_de_sample_py(tmp_path):
    comienzo = "En un lugar"
    mio = [sys.executable, str(hoja.SOLUCION), "escribir", comienzo, "0"]
    suyo = [
        sys.executable,
        str(ROOT / "sample.py"),
        "--checkpoint",
        "pretrained",
        "--device",
        "cpu",
    ]
    suyo += ["--temperature", "0", "--start", comienzo, "--max_new_tokens", "300"]
    escritos = [
        subprocess.run(
            orden, cwd=tmp_path, capture_output=True, encoding="utf-8", check=True
        ).stdout
        for orden in (mio, suyo)
    ]
    assert escritos[0].strip() == escritos[1].strip()


def test_el_programa_en_blanco_lo_dice(tmp_path):
    (tmp_path / "mi_gpt.py").write_text(BLANCA, encoding="utf-8")
    orden = [sys.executable, "mi_gpt.py", "escribir"]
    hecho = subprocess.run(orden, cwd=tmp_path, capture_output=True, encoding="utf-8")
    assert hecho.returncode == 1
    assert hecho.stderr == "Te falta una pieza: python notebooks/probar.py dice cuál.\n"
