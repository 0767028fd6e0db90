"""El programa que se escribe en el curso, mi_gpt.py, desde la terminal: entrena, se guarda y escribe."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import curso
import hoja
from comprobar.lista import PIEZAS
from comprobar.piezas import sortear
from respuestas import OTRAS, programa

ROOT = Path(__file__).resolve().parents[2]
SOLUCION = hoja.SOLUCION.read_text(encoding="utf-8")
BLANCA = curso.hoja_en_blanco()


@pytest.fixture
def copia(tmp_path) -> Path:
    """Una copia del proyecto, con la biblioteca y la carpeta en que está la hoja."""
    (tmp_path / "sancho").symlink_to(ROOT / "sancho", target_is_directory=True)
    (tmp_path / "notebooks").mkdir()
    return tmp_path


def test_el_programa_escribe_las_letras_de_sample_py(copia):
    comienzo = "En un lugar"
    shutil.copy(hoja.SOLUCION, copia / "notebooks/mi_gpt.py")
    mio = [sys.executable, "notebooks/mi_gpt.py", "escribir", comienzo, "0"]
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
        subprocess.run(orden, cwd=copia, capture_output=True, encoding="utf-8", check=True).stdout
        for orden in (mio, suyo)
    ]
    assert escritos[0].strip() == escritos[1].strip()


@pytest.mark.parametrize("otra", OTRAS, ids=lambda ruta: ruta.stem)
def test_los_otros_programas_escriben_las_letras_de_la_solucion(otra, copia):
    escritos = []
    for texto in (SOLUCION, programa(otra)):
        hecho = ejecutar(copia, texto, "escribir", "En un lugar", "0")
        assert hecho.returncode == 0, hecho.stderr
        escritos.append(hecho.stdout)
    assert escritos[0] == escritos[1] and len(escritos[0]) > 300


@pytest.mark.parametrize("otra", OTRAS, ids=lambda ruta: ruta.stem)
def test_lo_que_guarda_un_programa_lo_abre_otro(otra, tmp_path):
    solucion, suyo = hoja.cargar(SOLUCION), hoja.cargar(programa(otra))
    ids = torch.randint(5, (1, 9))
    for uno, dos in ((suyo, suyo), (suyo, solucion), (solucion, suyo)):
        ruta = tmp_path / "un.safetensors"
        modelo = uno.Gpt(uno.Forma(5, 9, 24, n_layer=2, n_head=4, position="rope", qk_norm=True))
        uno.guardar(ruta, sortear(modelo), uno.Tokenizador("abcde"))
        abierto, letras = dos.abrir_caja(ruta)
        assert letras.caracteres == "abcde"
        torch.testing.assert_close(abierto(ids), modelo(ids), rtol=1e-4, atol=1e-4)


def test_el_programa_en_blanco_lo_dice(tmp_path):
    (tmp_path / "mi_gpt.py").write_text(BLANCA, encoding="utf-8")
    orden = [sys.executable, "mi_gpt.py", "escribir"]
    hecho = subprocess.run(orden, cwd=tmp_path, capture_output=True, encoding="utf-8")
    assert hecho.returncode == 1
    assert hecho.stderr == "Te falta una pieza: python notebooks/probar.py dice cuál.\n"


def hasta(capitulo: int) -> str:
    """La hoja de quien ha escrito las piezas hasta un capítulo."""
    texto = BLANCA
    for pieza in PIEZAS:
        if pieza.capitulo <= capitulo:
            escrito = hoja.hasta_el_12(hoja.leer(SOLUCION, pieza.nombre))
            texto = hoja.poner(texto, pieza.nombre, escrito)
    return texto


def ejecutar(copia: Path, hoja_escrita: str, *orden: str) -> subprocess.CompletedProcess:
    (copia / "notebooks/mi_gpt.py").write_text(hoja_escrita, encoding="utf-8")
    programa = [sys.executable, "notebooks/mi_gpt.py", *orden]
    return subprocess.run(programa, cwd=copia, capture_output=True, encoding="utf-8")


TEXTO = "En un lugar de la Mancha, de cuyo nombre no quiero acordarme.\n" * 40


def test_lo_que_falta_se_dice_antes_de_entrenar(copia):
    (copia / "texto.txt").write_text(TEXTO, encoding="utf-8")
    hecho = ejecutar(copia, hasta(7), "entrenar", "texto.txt")
    assert (hecho.returncode, hecho.stdout) == (1, "")
    falta = "Para entrenar te falta paso_de_adam, entrenar: python notebooks/probar.py\n"
    assert hecho.stderr == falta
    # Sin las del 9 y del 13, copiada sola a otro sitio, tampoco entrena en vano.
    hecho = ejecutar(copia, hasta(8), "entrenar", "texto.txt")
    assert (hecho.returncode, hecho.stdout) == (1, "")
    assert hecho.stderr.startswith("Te falta una pieza")


@pytest.mark.slow
def test_lo_que_se_entrena_en_el_8_se_oye_y_en_el_9_escribe(copia):
    (copia / "texto.txt").write_text(TEXTO, encoding="utf-8")
    (copia / "notebooks/taller").symlink_to(ROOT / "notebooks/taller", target_is_directory=True)
    hecho = ejecutar(copia, hasta(8), "entrenar", "texto.txt")
    assert (hecho.returncode, hecho.stderr) == (0, "")
    lineas = hecho.stdout.splitlines()
    assert lineas[:2] == [
        f"{nombre} está en blanco todavía: se usa el de la solución."
        for nombre in ("generar", "guardar")
    ]
    assert [linea.split(":")[0] for linea in lineas[2:9]] == [
        f"paso {paso} de 800" for paso in range(100, 800, 100)
    ]
    assert "En un lugar de la Mancha, de cuyo nombre no quiero acordarme." in hecho.stdout
    assert len(hecho.stdout) > 600
    hecho = ejecutar(copia, hasta(9), "escribir", "En un lugar", "0")
    assert (hecho.returncode, hecho.stderr) == (0, "")
    assert "En un lugar de la Mancha, de cuyo nombre no quiero acordarme." in hecho.stdout


def test_sin_un_modelo_se_dice_como_entrenarlo(copia):
    (copia / "mi_gpt.py").write_text(SOLUCION, encoding="utf-8")  # sola, sin la caja
    hecho = subprocess.run(
        [sys.executable, "mi_gpt.py", "escribir"], cwd=copia, capture_output=True, encoding="utf-8"
    )
    assert hecho.returncode == 1
    no_hay = "En esta carpeta no hay mi_gpt.safetensors: antes, python mi_gpt.py entrenar TEXTO\n"
    assert hecho.stderr == no_hay


@pytest.mark.parametrize("contenido", [b"", b"no es un safetensors"])
def test_un_archivo_danado_es_una_linea(contenido, copia):
    (copia / "mi_gpt.safetensors").write_bytes(contenido)
    hecho = ejecutar(copia, SOLUCION, "escribir")
    assert hecho.returncode == 1
    assert "está dañado" in hecho.stderr and hecho.stderr.count("\n") == 1


def test_un_safetensors_de_otros_es_una_linea(copia):
    save_file({"w": torch.zeros(2)}, copia / "mi_gpt.safetensors")
    hecho = ejecutar(copia, SOLUCION, "escribir")
    assert hecho.returncode == 1
    assert "no es de este programa" in hecho.stderr and hecho.stderr.count("\n") == 1


def test_lo_que_se_pide_mal_es_una_linea(copia):
    (copia / "otro.txt").write_bytes("año ".encode("cp1252") * 500)
    for argumentos, frase in (
        (("entrenar", "otro.txt"), "otro.txt no está en UTF-8"),
        (("entrenar", "no_esta.txt"), "no hay ningún archivo no_esta.txt"),
        (("escribir", "En", "caliente"), "la temperatura es un número, y 'caliente' no lo es"),
    ):
        hecho = ejecutar(copia, SOLUCION, *argumentos)
        assert hecho.returncode == 1 and frase in hecho.stderr and hecho.stderr.count("\n") == 1


def test_un_guardar_que_falla_se_sabe_antes_de_entrenar(copia):
    mal = hoja.leer(SOLUCION, "guardar").replace("save_file(", "no_guarda(")
    hecho = ejecutar(
        copia, hoja.poner(SOLUCION, "guardar", mal), "entrenar", str(ROOT / "data/apocrifo.txt")
    )
    assert hecho.returncode == 1
    assert "paso" not in hecho.stdout and "no_guarda" in hecho.stderr
    assert not (copia / "mi_gpt.safetensors").exists()


def test_un_comentario_no_deja_una_pieza_en_blanco(copia):
    escrita = hoja.leer(SOLUCION, "generar")
    con_comentario = escrita.replace("    azar =", "    # raise NotImplementedError\n    azar =", 1)
    assert con_comentario != escrita
    texto = hoja.poner(SOLUCION, "generar", con_comentario)
    hecho = ejecutar(copia, texto, "escribir", "En un lugar", "0")
    assert (hecho.returncode, hecho.stderr) == (0, "") and "en blanco" not in hecho.stdout
