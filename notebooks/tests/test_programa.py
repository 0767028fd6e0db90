"""El programa que se escribe en el curso, mi_gpt.py: entrena el peldaño de sus piezas, y escribe."""

import json
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest
import torch
from safetensors.torch import save_file

import curso
import escalera
import hoja
import mi_escalera
import modelos
from comprobar.lista import PIEZAS
from comprobar.piezas import sortear
from mi_escalera import COMIENZO, capitulo, filas, modelo_guardado
from respuestas import OTRAS, programa
from sancho.text.corpus import Corpus

ROOT = Path(__file__).resolve().parents[2]
SOLUCION = hoja.SOLUCION.read_text(encoding="utf-8")
BLANCA = curso.hoja_en_blanco()
TEXTO = f"{COMIENZO}, de cuyo nombre no quiero acordarme.\n" * 40
LIBRO = Corpus.of("quijote", [TEXTO])
DEL_1_AL_9 = [pieza for pieza in PIEZAS if pieza.peldano <= 9]


def hasta(capitulo: int) -> str:
    """La hoja de quien ha escrito las piezas hasta un capítulo."""
    texto = BLANCA
    for pieza in PIEZAS:
        if pieza.peldano <= capitulo:
            escrito = hoja.hasta_el_9(hoja.leer(SOLUCION, pieza.nombre))
            texto = hoja.poner(texto, pieza.nombre, escrito)
    return texto


@pytest.fixture
def carpeta(monkeypatch, tmp_path) -> Path:
    """Una hoja en una carpeta suya, un libro corto y tres pasos."""
    monkeypatch.setattr(hoja, "HOJA", tmp_path / "mi_gpt.py")
    monkeypatch.setattr(escalera, "PASOS", 3)
    monkeypatch.setattr(mi_escalera, "corpus_of", lambda nombre: LIBRO)
    monkeypatch.setattr(torch, "set_num_threads", lambda cuantos: None)
    monkeypatch.setattr(plt, "show", lambda: None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ejecutar(carpeta, capsys):
    """Ejecutar lo que hace la hoja en una terminal, y dar lo que escribe."""

    def hacer(texto: str, *orden: str) -> str:
        hoja.HOJA.write_text(texto, encoding="utf-8")
        mi_escalera.programa(hoja.HOJA, *orden)
        return capsys.readouterr().out

    return hacer


# --- entrenar ---------------------------------------------------------------------------------


@pytest.mark.parametrize("escritas, peldano", [(0, 1), (1, 1), (4, 4), (6, 6), (9, 9)])
def test_se_entrena_el_peldano_al_que_llegan_las_piezas(escritas, peldano, ejecutar):
    dicho = ejecutar(hasta(escritas), "entrenar")
    [(numero, fila)] = filas().items()
    assert numero == peldano
    assert fila["tuyo"] == [p.nombre for p in DEL_1_AL_9 if p.peldano <= escritas]
    assert ("Tuyo: nada todavía." in dicho) == (escritas == 0)
    assert "paso 3 de 3: " in dicho and fila["texto"] == "quijote"
    assert fila["escribe"].startswith(COMIENZO) and fila["escribe"] in dicho
    assert len(fila["escribe"]) == len(COMIENZO) + 200
    assert 0 < fila["pérdida"] < 5
    siguientes = [p.nombre for p in DEL_1_AL_9 if escritas < p.peldano <= peldano + 1]
    falta = f"Para seguir subiendo, en blanco: {', '.join(siguientes)} ("
    assert (falta in dicho) == (escritas < 9)


def test_lo_que_presta_el_taller_se_dice():
    todas = [pieza.nombre for pieza in DEL_1_AL_9]
    ultimas = ["entropia_cruzada", "paso_de_adam", "entrenar", "generar"]
    assert mi_escalera.del_taller(1, []) == ["la tabla de pares", "Tokenizador", *ultimas]
    assert mi_escalera.del_taller(2, todas[:2]) == ["la cabeza de salida", *ultimas]
    # El bloque que lleva tu normalización lo presta el taller hasta el capítulo 6.
    assert mi_escalera.del_taller(5, todas[:6]) == ["Bloque", "Gpt", *ultimas]
    assert mi_escalera.del_taller(6, todas[:8]) == ultimas
    assert mi_escalera.del_taller(9, todas) == []


@pytest.mark.parametrize("numero", range(1, 10))
def test_un_peldano_lleva_tuyo_lo_de_su_capitulo_y_los_de_antes(numero):
    texto = SOLUCION
    for pieza in DEL_1_AL_9:
        texto = hoja.poner(texto, pieza.nombre, hoja.leer(texto, pieza.nombre) + "# la mía\n")
    entera, tuyas = mi_escalera.montar(texto, numero)
    assert tuyas == [p.nombre for p in DEL_1_AL_9 if p.peldano <= numero]
    con_marca = [p.nombre for p in DEL_1_AL_9 if "# la mía" in hoja.leer(entera, p.nombre)]
    assert con_marca == tuyas


@pytest.mark.parametrize("numero", range(1, 10))
def test_cada_peldano_es_el_de_la_escalera(numero):
    V, mio = 50, hoja.cargar(SOLUCION)
    modelo = mi_escalera.crear(mio, numero, V)
    nombre = mi_escalera.PELDANOS[min(numero, 6)]
    [suyo] = [peldano.crear(V) for peldano in escalera.PELDANOS if peldano.nombre == nombre]
    cuantos = [sum(p.numel() for p in uno.parameters()) for uno in (modelo, suyo)]
    # En un Gpt tuyo los sesgos están en la atención, y no en la cabeza de salida.
    bloques = 0 if numero < 5 else 1 if numero == 5 else 3
    assert cuantos[0] - cuantos[1] == bloques * 4 * escalera.ANCHO - V * (bloques > 0)
    otra_vez = mi_escalera.crear(mio, numero, V)
    assert all(map(torch.equal, modelo.parameters(), otra_vez.parameters()))


@pytest.mark.parametrize("numero", [6, 7, 8, 9])
def test_desde_el_7_los_pasos_los_da_entrenar(numero, carpeta, monkeypatch):
    """En el 7 es el del taller, con tu pérdida; hasta el 6, los da la escalera."""
    llamadas = []
    mio = hoja.cargar(SOLUCION)
    mio.entrenar = lambda *args: llamadas.append(args[2:])
    monkeypatch.setattr(escalera, "entrenar", lambda *args: llamadas.append("escalera"))
    mi_escalera.entrenar(mio, numero, LIBRO)
    assert llamadas == [(3, 32, 64, 0.01) if numero >= 7 else "escalera"]


def test_se_ve_como_va(ejecutar, monkeypatch):
    monkeypatch.setattr(mi_escalera, "CALLADO", 0)
    dicho = ejecutar(hasta(0), "entrenar")
    assert [linea.split(":")[0] for linea in dicho.splitlines()[3:6]] == [
        f"paso {paso} de 3" for paso in (1, 2, 3)
    ]
    assert "paso 1 de 3: 3." in dicho  # quien no sabe nada: ln 22


def test_una_segunda_vez_cambia_su_fila_y_lo_dice(ejecutar):
    assert "Cambia la fila" not in ejecutar(hasta(0), "entrenar")
    primera = filas()
    assert "Cambia la fila del capítulo 1: antes, " in ejecutar(hasta(0), "entrenar")
    assert filas() == primera
    assert "Cambia la fila" not in ejecutar(hasta(2), "entrenar")
    assert list(filas()) == [1, 2]


def test_lo_que_no_pasa_no_es_tuyo_y_se_dice(ejecutar):
    mal = hoja.leer(SOLUCION, "Entrada").replace("x = x +", "x = x -")
    dicho = ejecutar(hoja.poner(hasta(4), "Entrada", mal), "entrenar")
    assert list(filas()) == [1]
    assert "Para seguir subiendo, no pasan su comprobación: Entrada (" in dicho


def test_un_texto_tuyo_empieza_por_su_primera_linea_si_le_faltan_letras(ejecutar, carpeta):
    lineas = "la casa baja\ny la otra\n" * 60
    (carpeta / "mio.txt").write_text(lineas, encoding="utf-8")
    ejecutar(hasta(1), "entrenar", "mio.txt")
    assert filas()[1]["texto"] == "mio.txt"
    assert filas()[1]["escribe"].startswith("la casa baja")
    assert ejecutar(hasta(1), "escribir").startswith("la casa baja")


def test_lo_que_se_pide_mal_es_una_linea(ejecutar, carpeta):
    (carpeta / "otro.txt").write_bytes("año ".encode("cp1252") * 500)
    (carpeta / "corto.txt").write_text("poco", encoding="utf-8")
    for orden, frase in (
        (("entrenar", "otro.txt"), "otro.txt no está en UTF-8"),
        (("entrenar", "no_esta.txt"), "no hay ningún archivo no_esta.txt"),
        (("entrenar", "corto.txt"), "hacen falta 1000 al menos"),
        (("escribir", "En", "caliente"), "0 o mayor, y 'caliente' no lo es"),
        (("escribir", "En", "-1"), "la temperatura es un número, 0 o mayor, y '-1' no lo es"),
        (("escribir", "漢"), "'漢' no está entre los caracteres que conoce la caja"),
        (("escalera",), "todavía no tienes ningún peldaño"),
        (("bailar",), "'bailar' no es una orden; son entrenar, escribir, escalera"),
        (("escribir", "En", "un", "lugar"), "escribir recibe 2 cosas como mucho, y se le dan 3"),
    ):
        with pytest.raises(SystemExit) as salida:
            ejecutar(BLANCA, *orden)
        assert frase in salida.value.code and "\n" not in salida.value.code
    assert ejecutar(BLANCA) == f"{mi_escalera.USO}\n"


# --- lo que se guarda -------------------------------------------------------------------------


@pytest.mark.parametrize("escritas", [0, 4, 6])
def test_lo_ultimo_que_se_entrena_escribe(escritas, ejecutar, capsys):
    entrenado = ejecutar(hasta(escritas), "entrenar")
    # Con la misma semilla empieza como al entrenar, y sigue cien letras más.
    escrito = ejecutar(hasta(escritas), "escribir")
    fila = filas()[max(1, escritas)]
    assert fila["escribe"] in entrenado and escrito.startswith(fila["escribe"])
    assert len(escrito) == len(COMIENZO) + 300 + 1
    modelo, letras = modelos.el_tuyo()
    assert letras.caracteres == LIBRO.tokenizer.characters
    assert modelo.forma.block_size == escalera.VENTANA


def test_sin_entrenar_nada_no_hay_un_modelo_tuyo(carpeta):
    assert modelos.el_tuyo() is None


def test_abrir_caja_abre_lo_que_se_entrena(ejecutar):
    ejecutar(hasta(6), "entrenar")
    modelo, letras = hoja.cargar(SOLUCION).abrir_caja(modelo_guardado())
    suyo, _ = modelos.el_tuyo()
    assert letras.caracteres == LIBRO.tokenizer.characters
    assert all(map(torch.equal, modelo.parameters(), suyo.parameters()))


@pytest.mark.parametrize("contenido", [b"", b"no es un safetensors", None])
def test_un_modelo_danado_o_de_otros_es_una_linea(contenido, ejecutar, capsys):
    if contenido is None:
        save_file({"w": torch.zeros(2)}, modelo_guardado())
    else:
        modelo_guardado().write_bytes(contenido)
    with pytest.raises(SystemExit, match=r"mi_gpt\.safetensors está dañado, o no es de este"):
        ejecutar(BLANCA, "escribir")
    assert modelos.el_tuyo() is None
    assert "entrena otra vez" in capsys.readouterr().out


def test_una_escalera_danada_se_sabe_antes_de_entrenar(ejecutar):
    mi_escalera.filas_guardadas().write_text("[", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"mi_escalera\.json está dañado"):
        ejecutar(BLANCA, "entrenar")
    assert not modelo_guardado().exists()


def test_la_tabla_tiene_una_fila_por_peldano_y_debajo_los_dos_ultimos_textos(ejecutar):
    for escritas in (4, 1, 2):  # en cualquier orden
        ejecutar(hasta(escritas), "entrenar")
    dicho = ejecutar(hasta(4), "escalera")
    _, *lineas = dicho.splitlines()
    assert [linea.split()[:2] for linea in lineas[:3]] == [
        ["1", "pares"],
        ["2", "posiciones"],
        ["4", "feed-forward"],
    ]
    todas = filas()
    assert dicho.index(todas[2]["escribe"]) < dicho.index(todas[4]["escribe"])
    assert todas[1]["escribe"] not in dicho


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


@pytest.mark.parametrize("otra", OTRAS, ids=lambda ruta: ruta.stem)
def test_otros_programas_tambien_se_entrenan_y_escriben(otra, ejecutar):
    for texto in (programa(otra), SOLUCION):  # y lo que entrena uno lo abre otro
        assert "Del taller: nada." in ejecutar(texto, "entrenar")
        escrito = ejecutar(SOLUCION, "escribir", "En un lugar", "0")
        assert ejecutar(programa(otra), "escribir", "En un lugar", "0") == escrito


# --- en blanco --------------------------------------------------------------------------------


def test_un_hueco_lo_dice_el_codigo_y_no_lo_que_esta_escrito():
    for pieza in DEL_1_AL_9:
        assert hoja.tiene_hueco(hoja.leer(BLANCA, pieza.nombre)), pieza.nombre
        assert not hoja.tiene_hueco(hoja.leer(SOLUCION, pieza.nombre)), pieza.nombre
    assert not hoja.tiene_hueco(
        'def f():\n    """raise NotImplementedError"""\n    # raise NotImplementedError'
    )


# --- en un capítulo ---------------------------------------------------------------------------


def test_un_capitulo_sube_a_su_peldano_y_dibuja_la_escalera(carpeta, capsys):
    hoja.HOJA.write_text(hasta(1), encoding="utf-8")
    capitulo(1, LIBRO)
    capitulo(9, LIBRO)  # lo de después no se ve en el 3
    capitulo(2, Corpus.of("otro", [TEXTO]))  # sus nats no se comparan con los del libro
    capsys.readouterr()
    plt.close("all")
    capitulo(3, LIBRO)
    dicho = capsys.readouterr().out
    assert "Tuyo: Tokenizador.\n" in dicho
    assert "Del taller: la cabeza de salida, Entrada, mirar_atras, Atencion, " in dicho
    todas = filas()
    assert dicho.index(todas[2]["escribe"]) < dicho.index(todas[3]["escribe"])
    assert todas[9]["escribe"] not in dicho
    [linea] = plt.gca().get_lines()
    assert linea.get_xdata().tolist() == [1, 3]
    assert linea.get_ydata().tolist() == [todas[1]["pérdida"], todas[3]["pérdida"]]
    plt.close("all")


def test_un_capitulo_no_entrena_dos_veces_lo_mismo(carpeta, capsys, monkeypatch):
    hechos = []
    entrenar = mi_escalera.entrenar
    monkeypatch.setattr(
        mi_escalera, "entrenar", lambda *args: hechos.append(args[1]) or entrenar(*args)
    )
    hoja.HOJA.write_text(hasta(9), encoding="utf-8")
    for numero in (6, 8, 9, 9):  # el 9 cambia cómo se escribe, y no lo que se entrena
        capitulo(numero, LIBRO)
    assert hechos == [6, 8]
    capitulo(9, Corpus.of("otro", [TEXTO + "Fin.\n"]))
    hoja.HOJA.write_text(hasta(9).replace("def mirar_atras(", "# otra\ndef mirar_atras("), "utf-8")
    capitulo(9, Corpus.of("otro", [TEXTO + "Fin.\n"]))
    assert hechos == [6, 8, 9, 9]
    # Y el que el capítulo acaba de entrenar es ese.
    pares = escalera.Pares(LIBRO.tokenizer.vocab_size)
    capitulo(1, LIBRO, pares, 2.5)
    assert hechos == [6, 8, 9, 9] and filas()[1]["pérdida"] == 2.5
    assert torch.equal(modelos.el_tuyo()[0].tabla, pares.tabla)
    plt.close("all")


def test_un_capitulo_no_mueve_el_azar_y_la_orden_entrena_siempre(ejecutar, monkeypatch):
    ejecutar(hasta(1), "entrenar")
    torch.manual_seed(0)
    dado = torch.rand(1)
    torch.manual_seed(0)
    capitulo(1, LIBRO)
    capitulo(2, LIBRO)
    assert torch.rand(1) == dado
    monkeypatch.setattr(mi_escalera, "CALLADO", 0)
    ejecutar(hasta(1), "entrenar")
    assert "paso 3 de 3" in ejecutar(hasta(1), "entrenar")
    plt.close("all")


@pytest.mark.parametrize("texto", [b"\xff", b"import math\n", None])
def test_con_una_hoja_que_no_se_puede_usar_todo_lo_presta_el_taller(texto, carpeta, capsys):
    if texto is not None:
        hoja.HOJA.write_bytes(texto)
    capitulo(4, LIBRO)
    assert "Tuyo: nada todavía." in capsys.readouterr().out
    plt.close("all")


@pytest.mark.parametrize("peldano, numero", mi_escalera.NUMEROS.items())
def test_cada_peldano_cierra_su_capitulo(peldano, numero):
    [uno] = [capitulo for capitulo in curso.CAPITULOS if capitulo.numero == numero]
    celdas = nbformat.read(curso.CARPETA / uno.archivo, as_version=4).cells
    sitios = [i for i, celda in enumerate(celdas) if "mi_escalera.capitulo(" in celda.source]
    [sitio] = sitios
    assert f"mi_escalera.capitulo({peldano}, corpus" in celdas[sitio].source
    assert celdas[sitio].metadata["tags"] == ["varia"]
    assert "En resumen" in celdas[sitio - 2].source
    assert celdas[sitio + 1].source.startswith("## Ejercicios")


# --- desde una terminal -----------------------------------------------------------------------


@pytest.fixture
def copia(tmp_path) -> Path:
    """Una copia del proyecto: la biblioteca, el taller y un sitio para la hoja."""
    (tmp_path / "sancho").symlink_to(ROOT / "sancho", target_is_directory=True)
    (tmp_path / "notebooks").mkdir()
    for nombre in ("taller", "escalera.py", "escalera.json"):
        (tmp_path / "notebooks" / nombre).symlink_to(ROOT / "notebooks" / nombre)
    return tmp_path


def en_una_terminal(
    carpeta: Path, texto: str, *orden: str, hoja_en: str = "notebooks/mi_gpt.py"
) -> subprocess.CompletedProcess:
    (carpeta / hoja_en).write_text(texto, encoding="utf-8")
    programa = [sys.executable, hoja_en, *orden]
    return subprocess.run(programa, cwd=carpeta, capture_output=True, encoding="utf-8")


@pytest.mark.parametrize("texto, con", [(BLANCA, "la biblioteca"), (SOLUCION, "tu programa")])
def test_sin_un_modelo_tuyo_escribe_la_caja_las_letras_de_sample_py(texto, con, copia):
    hecho = en_una_terminal(copia, texto, "escribir", "En un lugar", "0")
    assert hecho.returncode == 0
    assert hecho.stderr.startswith(f"Escribe la caja, con {con}: ")
    suyo = f"{ROOT / 'sample.py'} --checkpoint pretrained --device cpu --temperature 0"
    orden = [sys.executable, *suyo.split(), "--start", "En un lugar", "--max_new_tokens", "300"]
    de_sample = subprocess.run(
        orden, cwd=copia, capture_output=True, encoding="utf-8", check=True
    ).stdout
    assert hecho.stdout.strip() == de_sample.strip()


def test_la_hoja_sola_dice_en_una_linea_que_falta(tmp_path):
    hecho = en_una_terminal(tmp_path, SOLUCION, "escribir", hoja_en="mi_gpt.py")
    assert hecho.returncode == 1
    assert "falta la carpeta taller/" in hecho.stderr and hecho.stderr.count("\n") == 1


def test_lo_guardado_queda_al_lado_de_la_hoja_que_se_ejecuta(copia):
    guardada = {"peldaño": "pares", "del taller": [], "texto": "mío", "pérdida": 2.0}
    todas = json.dumps({"1": guardada | {"escribe": "hola"}})
    (copia / "notebooks/mi_escalera.json").write_text(todas, encoding="utf-8")
    hecho = en_una_terminal(copia, BLANCA, "escalera")
    assert (hecho.returncode, hecho.stderr) == (0, "") and hecho.stdout.endswith("hola\n")
