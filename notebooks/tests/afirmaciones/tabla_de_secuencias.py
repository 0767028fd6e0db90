"""Lo que la rama «La tabla de secuencias» afirma de sus valores."""

# --- aciertos_con ---------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert list(proporcion.values()) == sorted(proporcion.values())
    assert 0.25 < proporcion[1] < 0.33 and 0.55 < proporcion[5] < 0.6

# --- secuencias_posibles --------------------------------------------------------------------------
if corpus.name == "quijote":
    assert secuencias_posibles == 6_663_241_680

# --- fila_de --------------------------------------------------------------------------------------
assert filas[0, -1].tolist() == a_mano
assert all(fila_de("amor"[-largo:]) != fila_de("roma"[-largo:]) for largo in range(2, 5))

# --- suma_de_la_tabla -----------------------------------------------------------------------------
assert lejos < 1e-5
assert mini.ngram_embedding.weight.count_nonzero() == 0
assert numeros["ngram_embedding.weight"] == 65_536 * 64

# --- filas_propias --------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert propias == sorted(propias, reverse=True) and propias[0] > 0.99 and propias[3] > 0.75

# --- sin_lista ------------------------------------------------------------------------------------
assert abs(len(ocupadas) - previstas) < 4 * math.sqrt(len(distintas) - previstas)

# --- filas_compartidas ----------------------------------------------------------------------------
if corpus.name == "quijote":
    assert len(primeras) > 3 * FILAS and de_la_duena > 0.85

# --- tres_modelos ---------------------------------------------------------------------------------
sin_tabla = resultados["la atención sola"]
assert max(resultados["la tabla sola"], resultados["las dos juntas"]) < sin_tabla - 0.1
assert dados["la tabla sola"] > 2 * dados["la atención sola"]

# --- mismos_pasos ---------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert resultados["la tabla sola"] < con_menos_pasos - 0.03
    assert abs(con_menos_pasos - resultados["las dos juntas"]) < 0.15

# --- contar ---------------------------------------------------------------------------------------
assert contadas.min() < sin_tabla - 0.1
if corpus.name == "quijote":
    assert 1.2 < contadas.min() < 1.4

# --- la_caja --------------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert sancho.config.ngram_size == 1 and perdida_caja < contadas.min() - 0.1

# --- contexto -------------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert con_cinco.mean() > contadas[5] + 2 * error
    assert con_veinte > 0.6 * ganado

# --- mezcla ---------------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert -np.log(mezcla).mean() < -np.log(p_red[medir]).mean() - 0.01
    assert 0.5 < w < 1
