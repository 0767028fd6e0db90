"""Lo que el capítulo 8 afirma de sus valores."""

# --- una_letra ------------------------------------------------------------------------------------
torch.testing.assert_close(de_la_pieza, a_mano, rtol=1e-4, atol=1e-4)

# --- fortuna --------------------------------------------------------------------------------------
assert math.isclose(perdida, -math.log(fortuna) / 5)

# --- apostadores ----------------------------------------------------------------------------------
for nats in apostadores.values():
    assert math.isclose(2 ** (nats / math.log(2)), math.exp(nats))
if corpus.name == "quijote":
    assert V == 92 and round(math.log(V), 2) == 4.52

# --- cien_grafos ----------------------------------------------------------------------------------
assert math.isclose(hojas[0].gradiente, d_w) and math.isclose(hojas[1].gradiente, d_v)
np.testing.assert_allclose([hoja.gradiente for hoja in hojas], tensores.grad, rtol=1e-5)

azar = np.random.default_rng(1605)
for numeros in azar.normal(size=(100, 4)).tolist():  # la misma función, con tensores
    hojas = [Valor(numero) for numero in numeros]
    tensores = torch.tensor(numeros, dtype=torch.float64, requires_grad=True)
    vuelta(grafo(*hojas))
    grafo(*tensores).backward()
    np.testing.assert_allclose([hoja.gradiente for hoja in hojas], tensores.grad, atol=1e-12)

# --- dije_menos_era -------------------------------------------------------------------------------
resta = reparto - torch.tensor(lo_que_era)
torch.testing.assert_close(logits.grad, resta, rtol=1e-4, atol=1e-4)

# --- dos_caminos ----------------------------------------------------------------------------------
assert sgd[-1].norm() > 1.5 * adam[-1].norm()

# --- la_mejor_tasa --------------------------------------------------------------------------------
assert 0.0002 < mejor_tasa < 0.2
assert al_final[0.0002] > al_final[mejor_tasa] + 0.5

# --- aprende --------------------------------------------------------------------------------------
assert aprendido < nacido - 1.5  # si su cabeza de salida nace en cero, no baja tanto
if corpus.name == "quijote":
    assert apostadores["la caja"] < aprendido - 0.5

# --- dos_partes -----------------------------------------------------------------------------------
assert len(corpus.val) == total // 10
if corpus.name == "quijote":
    assert (len(corpus.train), len(corpus.val)) == (1_899_635, 211_070)

# --- de_memoria -----------------------------------------------------------------------------------
assert en_la_pagina == sorted(en_la_pagina, reverse=True)
assert en_otras[-1] > min(en_otras) + 0.5 > en_la_pagina[-1] + 0.5
assert round(pasos[-1] * 16 * 64 / 2000) == 164
if corpus.name == "quijote":
    assert 250 * 16 * 64 < len(train) / 2
