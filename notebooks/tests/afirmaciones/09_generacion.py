"""Lo que el capítulo 9 afirma de sus valores."""

# --- ocho_paginas ---------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert min(existen) > 0.9
    assert sum("—" in pagina for pagina in ocho) >= 4  # la raya de quien habla

# --- dos_repartos ---------------------------------------------------------------------------------
assert softmax(predecir(SEGURO)[0]).max() > 0.95
assert softmax(predecir(DUDOSO)[0]).max() < 0.5

# --- cuanto_se_duda -------------------------------------------------------------------------------
from sancho.generate import shape_logits

for tau in temperaturas:
    con_tau = shape_logits(logits, replace(SIN_CORTES, temperature=tau))
    np.testing.assert_allclose(softmax(logits[0] / tau), softmax(con_tau[0]), rtol=1e-9)
assert dudas == sorted(dudas) and dudas[0] < 6 < 15 < dudas[-1]

tibio, frio = softmax(logits[0]), softmax(logits[0] / 0.5)
primera, segunda = np.argsort(-tibio)[:2]
razon = tibio[primera] / tibio[segunda]
assert math.isclose(frio[primera] / frio[segunda], razon**2, rel_tol=1e-9)

helado = softmax(shape_logits(logits, replace(SIN_CORTES, temperature=0))[0])
assert helado.max() == 1 and helado.argmax() == logits.argmax()
hirviendo = softmax(shape_logits(logits, replace(SIN_CORTES, temperature=1e9))[0])
np.testing.assert_allclose(hirviendo, 1 / V, rtol=1e-6)

# --- cinco_temperaturas ---------------------------------------------------------------------------
assert min(existen[0], existen[0.5], existen[0.8]) > existen[1.2] > existen[2.0]
assert existen[2.0] < 0.75

# --- sin_azar -------------------------------------------------------------------------------------
assert sin_azar == de_la_biblioteca

# --- la_cola --------------------------------------------------------------------------------------
assert 0.75 < 1 - (1 - cola) ** 75
if corpus.name == "quijote":
    assert round(6 * (1 - (1 - cola) ** 75)) == 5
    for factor in (1 / 0.83, 1):  # sin el factor de la caja, y con él
        sin_cortar = (factor * repartos.log()).softmax(-1)
        lejos = sin_cortar < 0.01
        de_la_cola = torch.where(lejos, sin_cortar, 0).sum(-1).mean().item()
        de_cervantes = lejos.gather(-1, verdad).double().mean().item()
        assert (de_la_cola > de_cervantes) == (factor == 1)
        assert abs(de_la_cola - de_cervantes) < 0.02

# --- cinco_letras ---------------------------------------------------------------------------------
assert [quedan.sum() for quedan in ejemplos.values()] == [2, 3, 4]
del_modelo = softmax(predecir(DUDOSO)[0])
quedan_aqui = (
    los_k_mejores(del_modelo, 5),
    nucleo(del_modelo, 0.8),
    los_que_se_acercan(del_modelo, 0.1),
)
mandos = ({"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1})
for quedan_de_uno, mando in zip(quedan_aqui, mandos, strict=True):
    de_la_biblioteca = shape_logits(predecir(DUDOSO), replace(SIN_CORTES, **mando))[0]
    assert np.array_equal(quedan_de_uno, np.isfinite(de_la_biblioteca))
    nuevo = np.where(quedan_de_uno, del_modelo, 0) / del_modelo[quedan_de_uno].sum()
    np.testing.assert_allclose(nuevo, softmax(de_la_biblioteca), rtol=1e-9)

# --- se_adaptan -----------------------------------------------------------------------------------
empieza = np.array([letra in " \n" for letra in letra_escrita])  # la que viene empieza palabra
de_top_k, *de_las_otras = quedan.values()
assert (de_top_k == 10).all()
for cuantas in de_las_otras:
    assert cuantas[empieza].mean() > 2 * cuantas[~empieza].mean()

# --- el_orden_importa -----------------------------------------------------------------------------
assert cuantas_quedan(2, 0.8) > sin_calentar and valen[-1] < 0.8
todo_junto = shape_logits(veinte, replace(SIN_CORTES, temperature=2, top_p=0.8))
assert np.isfinite(todo_junto).sum() == cuantas_quedan(2, 0.8)  # la temperatura, antes

# --- la_cache -------------------------------------------------------------------------------------
np.testing.assert_allclose(mitad, entero[:, :50], rtol=1e-4, atol=1e-4)
np.testing.assert_allclose(con_la_cache, entero[0, 49:], rtol=1e-4, atol=1e-4)
medidas_de_la_caja = modelo.config
vectores = 2 * medidas_de_la_caja.n_layer * medidas_de_la_caja.block_size
assert cuantos == vectores * medidas_de_la_caja.n_embd

# --- con_tu_bucle ---------------------------------------------------------------------------------
assert len(escritas) == 200

# --- cuanto_tarda ---------------------------------------------------------------------------------
from sancho.generate import generate

assert medidas["sin caché"].sum() > 1.5 * medidas["con caché"].sum()
de_serie = [ids[0] for ids in generate(modelo, comienzo, voraz, max_new_tokens=cuantas)]
for manera in (sin_cache, con_cache):
    escrito = [int(letra) for letra in manera(lambda logits: int(logits.argmax()))]
    assert escrito == de_serie  # las dos escriben lo mismo que la biblioteca
