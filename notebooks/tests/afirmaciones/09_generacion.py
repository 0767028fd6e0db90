"""Lo que el capítulo 9 afirma de sus valores."""

# --- ocho_paginas ---------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert min(existen) > 0.9
    assert sum("—" in pagina for pagina in ocho) >= 4  # la raya de quien habla

# --- dos_repartos ---------------------------------------------------------------------------------
assert softmax(predecir(SEGURO)[0]).max() > 0.95
assert softmax(predecir(DUDOSO)[0]).max() < 0.5

# --- cuanto_se_duda -------------------------------------------------------------------------------
for tau in temperaturas:
    con_tau = shape_logits(logits, replace(SIN_CORTES, temperature=tau))
    np.testing.assert_allclose(softmax(logits[0] / tau), softmax(con_tau[0]), rtol=1e-9)
assert dudas == sorted(dudas) and dudas[0] < 6 < 15 < dudas[-1]

# --- frio_y_calor ---------------------------------------------------------------------------------
tibio, frio = softmax(logits[0]), softmax(logits[0] / 0.5)
primera, segunda = np.argsort(-tibio)[:2]
razon = tibio[primera] / tibio[segunda]
assert math.isclose(frio[primera] / frio[segunda], razon**2, rel_tol=1e-9)

helado = softmax(shape_logits(logits, replace(SIN_CORTES, temperature=0))[0])
assert helado.max() == 1 and helado.argmax() == logits.argmax()
np.testing.assert_allclose(hirviendo, 1 / V, rtol=1e-6)

# --- cinco_temperaturas ---------------------------------------------------------------------------
assert min(existen[0], existen[0.5], existen[0.8]) > existen[1.2] > existen[2.0]
assert existen[2.0] < 0.75

# --- sin_azar -------------------------------------------------------------------------------------
assert sin_azar == de_la_biblioteca

# --- la_cola --------------------------------------------------------------------------------------
assert (1 - cola) ** 75 < 0.25
if corpus.name == "quijote":
    for factor in (1 / 0.83, 1):
        repartos = (factor * logits_de_val).softmax(-1)
        en_la_cola = repartos < 0.01
        cola = torch.where(en_la_cola, repartos, 0).sum(-1).mean().item()
        acierta = en_la_cola.gather(-1, verdad).double().mean().item()
        assert (cola > acierta) == (factor == 1) and abs(cola - acierta) < 0.02

# --- palabras_raras -------------------------------------------------------------------------------
raras = {}
for autor, paginas in veinticuatro.items():
    halladas, todas = con_letra_de_la_cola(paginas)
    nuevas = [palabra for palabra in halladas if palabra not in conocidas]
    raras[autor] = (len(halladas) / todas, len(nuevas) / len(halladas))
if corpus.name == "quijote":
    np.testing.assert_allclose(raras["la caja"][0], raras["Cervantes"][0], atol=0.03)
    np.testing.assert_allclose(raras["la caja"][1], raras["Cervantes"][1], atol=0.15)

# --- cinco_letras ---------------------------------------------------------------------------------
assert [quedan.sum() for quedan in ejemplos.values()] == [2, 3, 4]

# --- tres_reglas ----------------------------------------------------------------------------------
mandos = (("top_k", 5), ("top_p", 0.8), ("min_p", 0.1))
for (quedan, cortados), (mando, valor) in zip(reglas.values(), mandos, strict=True):
    assert np.array_equal(quedan, np.isfinite(cortados[0]))
    nuevo = np.where(quedan, p, 0) / p[quedan].sum()
    todo_junto = softmax(shape_logits(logits, replace(SIN_CORTES, **{mando: valor}))[0])
    np.testing.assert_allclose(nuevo, todo_junto, rtol=1e-9)

# --- se_adaptan -----------------------------------------------------------------------------------
de_top_k, *de_las_otras = quedan.values()
assert (de_top_k == 10).all()
for cuantas in de_las_otras:
    assert cuantas[empieza].mean() > 2 * cuantas[~empieza].mean()

# --- el_orden_importa -----------------------------------------------------------------------------
assert cuantas_quedan(2, 0.8) > sin_calentar and valen[-1] < 0.8
todo_junto = shape_logits(veinte, replace(SIN_CORTES, temperature=2, top_p=0.8))
assert np.isfinite(todo_junto).sum() == cuantas_quedan(2, 0.8)  # la temperatura, antes

# --- cuanto_existe_y_varia ------------------------------------------------------------------------
if corpus.name == "quijote":
    existe = {nombre: par[0] for nombre, par in balance.items()}
    distinta = {nombre: par[1] for nombre, par in balance.items()}
    for con_corte in ("τ = 1, top-p 0.9", "τ = 1, min-p 0.1"):
        assert existe[con_corte] > existe["τ = 1"] and distinta[con_corte] > distinta["τ = 0.5"]
        assert abs(existe[con_corte] - existe["τ = 0.8"]) < 0.03
        assert abs(distinta[con_corte] - distinta["τ = 0.8"]) < 0.1
    assert existe["τ = 0.8"] > existe["τ = 1"] and distinta["τ = 0.8"] < distinta["τ = 1"] + 0.03

# --- el_ultimo_cuarto -----------------------------------------------------------------------------
assert ventana == 512 and sierra[caidas[0] + 1] == 128
assert (np.diff(caidas) == 385).all()

# --- cuarenta_letras ------------------------------------------------------------------------------
assert len(iguales) == 40 and iguales.all()

# --- la_cache -------------------------------------------------------------------------------------
np.testing.assert_allclose(mitad, entero[:, :50], rtol=1e-4, atol=1e-4)
np.testing.assert_allclose(con_la_cache, entero[0, 49:], rtol=1e-4, atol=1e-4)
medidas_de_la_caja = modelo.config
vectores = 2 * medidas_de_la_caja.n_layer * medidas_de_la_caja.block_size
assert cuantos == vectores * medidas_de_la_caja.n_embd

# --- con_tu_bucle ---------------------------------------------------------------------------------
assert len(escritas) == 200

# --- cuanto_tarda ---------------------------------------------------------------------------------
assert medidas["sin caché, en NumPy"].sum() > 1.5 * medidas["con caché, en NumPy"].sum()
de_serie = [ids[0] for ids in generate(modelo, comienzo, voraz, max_new_tokens=cuantas)]
for manera in (con_pytorch, sin_cache, con_cache):
    escrito = [int(letra) for letra in manera(lambda logits: int(logits.argmax()))]
    assert escrito == de_serie  # las tres escriben lo mismo que la biblioteca

# --- senal_de_fin ---------------------------------------------------------------------------------
assert len(fin) == 7

# --- la_puerta ------------------------------------------------------------------------------------
assert bien == 300

# --- tres_paradas ---------------------------------------------------------------------------------
parrafo_entero, frase_sola, veinte_letras = escritos
assert "\n\n" not in parrafo_entero and not set(".;") & set(frase_sola)
assert "." not in veinte_letras
assert max(map(len, escritos)) <= 600 and len(veinte_letras) <= 20
assert parrafo_entero.startswith(frase_sola) and frase_sola.startswith(veinte_letras)
assert len(parrafo_entero) > len(frase_sola) > len(veinte_letras)

# --- la_misma_semilla -----------------------------------------------------------------------------
assert otra_vez == tres
assert otra_semilla[0] != tres[0]
las_de_antes = opciones | {"seed": 1605}
for i, pagina in enumerate(tres):
    sola = continue_texts(modelo, tokenizer, numeros(DUDOSO), config, samples=[i], **las_de_antes)
    assert sola == [pagina]
