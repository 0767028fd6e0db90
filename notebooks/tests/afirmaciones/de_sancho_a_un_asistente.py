"""Lo que la rama «De sancho a un asistente» afirma de sus valores."""

# --- la_caja --------------------------------------------------------------------------------------
assert count_parameters(modelo_de_la_caja.config) == 2_065_216 and len(caja.characters) == 92

# --- tasas ----------------------------------------------------------------------------------------
if MI_TEXTO.name == "apocrifo.txt":  # con otro texto, las cifras son otras
    assert medidas["una décima"][0] < medidas["sin afinar"][0] - 0.02  # aprende tu texto
    assert medidas["la tasa entera"][0] > medidas["sin afinar"][0] + 0.01  # empeora hasta en él
if corpus.name == "quijote" and MI_TEXTO.name == "apocrifo.txt":
    assert abs(medidas["una décima"][1] - medidas["sin afinar"][1]) < 0.06  # y apenas olvida
    assert medidas["la tasa entera"][1] > medidas["una décima"][1] + 0.05

# --- dialogos -------------------------------------------------------------------------------------
assert "".join(dialogos) == archivo
assert len(dialogos) == 5 * len(respuestas) == 220
assert nuevas == "<>|"

# --- fila_nueva -----------------------------------------------------------------------------------
assert torch.equal(logits_despues[:2], logits_antes)  # los de antes no cambian
assert logits_despues[2] == logits_antes.mean()  # el de la nueva es la media de los demás

# --- tres_letras ----------------------------------------------------------------------------------
assert lejos < 1e-3
assert count_parameters(modelo.config) - count_parameters(modelo_de_la_caja.config) == 2 * 3 * 184
assert a_las_nuevas < 1e-3

# --- media_a_mano ---------------------------------------------------------------------------------
assert math.isclose(perdidas.mean(), 1.55)
assert math.isclose((perdidas * es_de_sancho).sum() / es_de_sancho.sum(), 0.6)

# --- callar ---------------------------------------------------------------------------------------
torch.testing.assert_close(logits.grad[0, 1:], a_mano)
assert (logits.grad[0, 0] == 0).all()

# --- lote_de_dialogos -----------------------------------------------------------------------------
contadas = (objetivos[0] != CALLA).sum().item()
assert contadas == len(respuesta_de(dialogos[0])) + len("\n" + FIN + "\n")

# --- grupos ---------------------------------------------------------------------------------------
assert (len(vistos), len(otras_palabras), len(temas_nuevos)) == (45, 30, 29)
assert not {pregunta_de(d) for d in vistos} & {
    pregunta_de(d) for d in otras_palabras + temas_nuevos
}
assert {respuesta_de(d) for d in otras_palabras} <= respuestas_vistas
assert not {respuesta_de(d) for d in temas_nuevos} & respuestas_vistas

# --- antes ----------------------------------------------------------------------------------------
assert all(perdida > 1.5 and enteras == 0 for perdida, enteras in antes.values())

# --- sin_afinar -----------------------------------------------------------------------------------
assert not sin_afinar.endswith(FIN)

# --- muestras -------------------------------------------------------------------------------------
assert not muestras[0][1].endswith(FIN) and muestras[-1][1].endswith(FIN)

# --- despues --------------------------------------------------------------------------------------
assert despues["vistos"][0] < 0.2 and despues["vistos"][1] > 0.6
assert despues["otras palabras"][0] < 0.5 and despues["otras palabras"][1] > 0.35
assert despues["temas nuevos"][0] > 2 and despues["temas nuevos"][1] == 0
assert despues["otras palabras"][0] - despues["vistos"][0] < 0.3
assert abs(despues["temas nuevos"][0] - antes["temas nuevos"][0]) < 0.3  # apenas se mueve
assert despues["vistos"][1] > despues["otras palabras"][1] > despues["temas nuevos"][1]
assert del_nacido["otras palabras"][1] < despues["otras palabras"][1] - 0.2
if corpus.name == "quijote":
    assert libro_nacido > libro_despues + 0.5
    assert 0.2 < libro_despues - libro_antes < 0.45

# --- limpiar --------------------------------------------------------------------------------------
assert conversacion(trampa).count(TURNO) == 2
assert conversacion(limpiar(trampa)).count(TURNO) == 1

# --- buscador -------------------------------------------------------------------------------------
assert trios("hola") == {"hol", "ola"}
assert np.mean(aciertos) > 0.7 and np.mean(con_marca) > 0.8 and np.mean(recitadas) > 0.7
assert despues["otras palabras"][1] < np.mean(aciertos) + 0.15  # no le gana, o por poco

# --- sigmoide -------------------------------------------------------------------------------------
assert math.isclose(sigmoide(1), 0.7311, abs_tol=1e-4)
assert sigmoide(0) == 0.5

# --- preferir -------------------------------------------------------------------------------------
assert nueva not in (no_lo_se, la_suya) and nueva not in respuestas_vistas
assert math.isclose(perdidas[0], math.log(2), rel_tol=1e-3) and perdidas[-1] < 0.3
assert finales[0] - finales[1] > iniciales[0] - iniciales[1] + 5
assert iniciales[0] < iniciales[1] - 20 and finales[0] < finales[1]
assert (callar[1] > callar[0]).all()  # detrás de todas

# --- gastos ---------------------------------------------------------------------------------------
assert 3_500 < siglos < 4_500 and caja.progress.tokens > 10_000_000
if corpus.name == "quijote":
    assert round(lecturas) == 31

# --- pagina ---------------------------------------------------------------------------------------
pagina = (carpeta / "sancho.html").read_text(encoding="utf-8")
assert pagina.lower().startswith("<!doctype html>") and "Content-Security-Policy" in pagina

# --- transformers ---------------------------------------------------------------------------------
if importlib.util.find_spec("transformers"):
    assert suyo == nuestro

# --- revisar --------------------------------------------------------------------------------------
assert revisar("k" * 30)["que la caja no conoce"] == "k"
