"""probar.py, como lo usa quien aprende: en otra carpeta, y sin pytest ni nbformat."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import curso
import hoja
from comprobar.lista import PIEZAS
from probar import probar_todas as desde_el_cuaderno

FOLDER = Path(__file__).resolve().parent.parent
MODULOS = [
    "probar.py",
    *(f"taller/{nombre}.py" for nombre in ("entorno", "hoja", "solucion", "veredicto")),
    *(
        modulo.relative_to(FOLDER).as_posix()
        for sala in ("buscar", "comprobar", "decir")
        for modulo in sorted((FOLDER / "taller" / sala).glob("*.py"))
    ),
]
"""Los que necesita."""
SOLUCION = hoja.SOLUCION.read_text(encoding="utf-8")
BLANCA = curso.hoja_en_blanco()
SOLO_LO_SUYO = """
import atexit, sys

def mirar():
    de_mas = {"pytest", "nbformat", "torch._dynamo"} & set(sys.modules)
    print("de mas:", *sorted(de_mas), file=sys.stderr)

atexit.register(mirar)
"""


@pytest.fixture
def carpeta(tmp_path) -> Path:
    (tmp_path / "taller").mkdir()
    for modulo in MODULOS:
        (tmp_path / modulo).parent.mkdir(exist_ok=True)
        shutil.copy(FOLDER / modulo, tmp_path / modulo)
    (tmp_path / "sitecustomize.py").write_text(SOLO_LO_SUYO, encoding="utf-8")
    return tmp_path


def probar(
    carpeta: Path, texto: str | None, *argumentos: str, **entorno: str
) -> tuple[int, str, str]:
    """Dar cómo acaba, lo que dice y lo que dice por la salida de los errores."""
    if texto is not None:
        (carpeta / "mi_gpt.py").write_text(texto, encoding="utf-8")
    hecho = subprocess.run(
        [sys.executable, "-X", "utf8", str(carpeta / "probar.py"), *argumentos],
        cwd=carpeta.parent,
        env={**os.environ, "PYTHONPATH": str(carpeta), **entorno},
        capture_output=True,
        encoding="utf-8",
    )
    errores, marca, de_mas = hecho.stderr.partition("de mas:")
    assert marca and de_mas.strip() == ""
    return hecho.returncode, hecho.stdout, errores


def con_la_solucion_de(*nombres: str) -> str:
    texto = BLANCA
    for nombre in nombres:
        texto = hoja.poner(texto, nombre, hoja.leer(SOLUCION, nombre))
    return texto


def test_una_hoja_en_blanco(carpeta):
    acaba, dice, errores = probar(carpeta, BLANCA)
    assert (acaba, errores) == (0, "")
    *lineas, resumen = dice.splitlines()
    assert len(lineas) == 18
    for linea, pieza in zip(lineas, PIEZAS, strict=True):
        assert linea.startswith("·") and f" {pieza.titulo} " in linea
        assert linea.endswith("está en blanco")
    assert resumen == "Pasan 0 de 18; no pasan 0; en blanco, 18."


def test_media_hoja_con_un_error(carpeta):
    texto = con_la_solucion_de("Tokenizador", "mirar_atras", "LayerNorm", "Bloque")
    acaba, dice, _ = probar(
        carpeta, texto.replace("puntuaciones.masked_fill(futuro, -math.inf)", "puntuaciones")
    )
    assert acaba == 1
    lineas = dice.splitlines()
    assert [linea for linea in lineas if linea[0] in "✓✗"] == [
        "✓  1. Tokenizador          capítulo 1",
        "✗  3. mirar_atras          capítulo 3",
        "✓  6. LayerNorm            capítulo 5",
        "✓  7. Bloque               capítulo 6   con la solución de mirar_atras, Atencion, FeedForward",
    ]
    assert lineas[3].startswith("      no tapa el futuro")
    assert re.match(r"      línea \d+: «pesos = puntuaciones.softmax\(-1\)»", lineas[4])
    assert lineas[-2:] == [
        "Pasan 3 de 18; no pasan 1; en blanco, 14.",
        "Lo que va en la línea lo dice --arreglo, detrás del nombre de la pieza.",
    ]


def test_el_arreglo_se_dice_si_se_pide_y_de_dos_capitulos_una_vez(carpeta):
    texto = SOLUCION.replace("leido.transpose(1, 2).reshape", "leido.reshape")
    _, dice, _ = probar(carpeta, texto, "Atencion")
    assert dice.count("✗") == 2 and dice.count("línea ") == 2 and "lo mismo que antes" in dice
    assert "arreglo: " not in dice
    _, dice, _ = probar(carpeta, texto, "Atencion", "--arreglo")
    assert "      arreglo: return self.proj(leido.transpose(1, 2).reshape(B, T, C))\n" in dice


def test_la_hoja_entera(carpeta):
    acaba, dice, errores = probar(carpeta, SOLUCION)
    assert (acaba, errores) == (0, "")
    assert dice.count("✓") == 18 and "con la solución" not in dice
    assert dice.endswith("Pasan 18 de 18; no pasan 0; en blanco, 0.\n")


def test_unas_piezas_y_sus_mayusculas(carpeta):
    acaba, dice, _ = probar(carpeta, con_la_solucion_de("girar", "Atencion"), "atencion", "Girar")
    assert acaba == 0
    assert [linea.split()[2] for linea in dice.splitlines()[:-1]] == [
        "Atencion",
        "girar",
        "Atencion,",
    ]
    assert dice.endswith("Pasan 3 de 3; no pasan 0; en blanco, 0.\n")


EN_UNA_PIEZA = (
    ("LayerNorm", "class LayerNorm(", "class LayerNorm((", "no se puede leer: eso no es Python"),
    ("Entrada", "        return x\n", "      return x\n", "la sangría no cuadra"),
    ("Gpt", "class Gpt(Entrada)", "class Gpt(Salida)", "usa `Salida`, que no está definido"),
    ("Bloque", "class Bloque(nn.Module):", "class Bloque(nn.Module)", "faltan dos puntos"),
)


@pytest.mark.parametrize(("nombre", "bien", "mal", "frase"), EN_UNA_PIEZA)
def test_lo_que_no_se_lee_de_una_pieza_lo_dice_ella_y_las_demas_pasan(
    nombre, bien, mal, frase, carpeta
):
    texto = SOLUCION.replace(bien, mal, 1)
    acaba, dice, errores = probar(carpeta, texto)
    assert (acaba, errores) == (1, "")
    fallan = [linea.split()[2] for linea in dice.splitlines() if linea[0] == "✗"]
    assert fallan == [nombre]
    numero = next(i for i, linea in enumerate(texto.splitlines(), 1) if mal.strip() in linea)
    assert frase in dice and f"línea {numero}: «" in dice


UNA_LINEA = (
    (SOLUCION.replace("import json", "import jsom"), "ModuleNotFoundError: No module named 'jsom'"),
    (SOLUCION + "\nno_existe()\n", "usa `no_existe`, que no está definido; línea"),
    (None, "No está la hoja"),
)


@pytest.mark.parametrize(("texto", "frase"), UNA_LINEA)
def test_lo_que_falla_fuera_de_las_piezas_es_una_linea(texto, frase, carpeta):
    acaba, dice, errores = probar(carpeta, texto)
    assert (acaba, dice) == (1, "")
    assert frase in errores and errores.count("\n") == 1


def test_una_hoja_que_no_esta_en_utf_8(carpeta):
    (carpeta / "mi_gpt.py").write_bytes(SOLUCION.replace("…", "...").encode("cp1252", "replace"))
    acaba, _, errores = probar(carpeta, None)
    assert acaba == 1
    assert errores == "mi_gpt.py no está en UTF-8: guárdalo así en tu editor.\n"


def test_lo_que_no_se_conoce_es_una_linea(carpeta):
    acaba, dice, errores = probar(carpeta, BLANCA, "Bloqe")
    assert (acaba, dice) == (1, "")
    assert errores.startswith("'Bloqe' no es una pieza; son Tokenizador, Entrada, mirar_atras, ")
    assert errores.count("\n") == 1


def test_la_ayuda_dice_sus_ordenes(carpeta):
    acaba, dice, errores = probar(carpeta, BLANCA, "--help")
    assert (acaba, errores) == (0, "")
    assert dice.count("python notebooks/probar.py") == 3 and "--arreglo" in dice


def test_una_terminal_sin_esos_signos(carpeta):
    acaba, dice, errores = probar(
        carpeta, BLANCA, "girar", PYTHONUTF8="0", PYTHONIOENCODING="ascii"
    )
    assert (acaba, errores) == (0, "")
    assert "13. girar" in dice


def test_desde_un_cuaderno_una_hoja_que_no_se_lee_es_una_linea(tmp_path, monkeypatch, capsys):
    mi_hoja = tmp_path / "mi_gpt.py"
    monkeypatch.setattr(hoja, "HOJA", mi_hoja)
    mi_hoja.write_bytes("# año\n".encode("cp1252"))
    desde_el_cuaderno()
    assert capsys.readouterr().out == "mi_gpt.py no está en UTF-8: guárdalo así en tu editor.\n"
    mi_hoja.write_text(BLANCA, encoding="utf-8-sig")  # con BOM
    desde_el_cuaderno()
    assert capsys.readouterr().out.endswith("0 pasan, 0 no, y 18 están en blanco\n")
