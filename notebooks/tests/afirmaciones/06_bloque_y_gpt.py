"""Lo que el capítulo 6 afirma de sus valores."""

# --- copia_limpia ---------------------------------------------------------------------------------
assert limpio.tolist() == [[-1, 1], [1, -1]]

# --- conversacion ---------------------------------------------------------------------------------
a_si_mismo = math.exp(math.sqrt(2)) / (math.exp(math.sqrt(2)) + math.exp(-math.sqrt(2)))
torch.testing.assert_close(pesos, torch.tensor([[1.0, 0.0], [1 - a_si_mismo, a_si_mismo]]))

# --- servilleta -----------------------------------------------------------------------------------
# LayerNorm suma 0.00001 a la varianza: de ahí el margen.
torch.testing.assert_close(sale, meditado, rtol=0, atol=1e-4)

# --- dos_bloques ----------------------------------------------------------------------------------
assert all(getattr(classic, campo) == valor for campo, valor in vars(de_classic).items())
torch.testing.assert_close(tuyo(x), suyo(x), rtol=1e-4, atol=1e-4)

# --- formas ---------------------------------------------------------------------------------------
assert logits.shape == (1, len(frase), tokenizer.vocab_size)

# --- erratas --------------------------------------------------------------------------------------
assert ((erratas != ids).sum(1) == 1).all()
assert con_mascara.tril(-1).max() < 1e-5, "antes de la errata no se mueve nada"
desde_la_errata = torch.ones(T, T, dtype=torch.bool).triu()
assert con_mascara[desde_la_errata].min() > 1e-3, "desde la errata se mueve todo"
assert con_mascara[0, 1:].mean() > 1.5 * con_mascara[12, 13:].mean()

# --- recuento -------------------------------------------------------------------------------------
from sancho.shared.weights import count_parameters

for nombre, modelo in modelos.items():
    assert cuentas[nombre].total() == count_parameters(modelo.config)
assert cuentas["caja"].total() == 2_065_216
for c in cuentas.values():
    assert 0.62 < c["feed-forward"] / c.total() < 0.66 and 0.31 < c["atención"] / c.total() < 0.33

# --- la_tabla -------------------------------------------------------------------------------------
assert numeros(bloque.attention) == 4 * C**2 + 4 * C
assert numeros(bloque.feed_forward) == 8 * C**2 + 5 * C
assert numeros(bloque) == 12 * C**2 + 13 * C == 198_272
for n_head in (1, 2, 8):
    assert numeros(Block(replace(classic, n_head=n_head))) == numeros(bloque)

V, bloques = classic.vocab_size, classic.n_layer
total = bloques * (12 * C**2 + 13 * C) + V * C + classic.block_size * C + 2 * C + V * C
assert count_parameters(classic) == total == 825_088

c = caja.model_config
assert cuentas["caja"].total() == 12 * c.n_layer * c.n_embd**2 + 2 * c.vocab_size * c.n_embd
assert numeros(caja.build_model()) == cuentas["caja"].total()

# --- al_nacer -------------------------------------------------------------------------------------
for modelo in modelos.values():
    with torch.no_grad():
        entrada = modelo.token_embedding(ids)
        x = entrada
        for bloque in modelo.blocks:
            x = bloque(x)
        assert torch.equal(x, entrada), "lo que sale de la pila es lo que entró"
        logits = modelo(ids)
        assert (logits == 0).all()
        perdida = cross_entropy(logits, siguientes).item()
    assert math.isclose(perdida, math.log(92), abs_tol=1e-6)

# --- interruptores --------------------------------------------------------------------------------
assert len(perdidas) == 2**10 and perdidas[-1] < 2 < perdidas[0]
with torch.no_grad():
    de_la_biblioteca = F.cross_entropy(entrenado(leido[:, :-1])[0], leido[0, 1:])
torch.testing.assert_close(perdidas[-1], de_la_biblioteca, atol=1e-3, rtol=1e-4)

# --- el_mayor_dano --------------------------------------------------------------------------------
assert dano.argmax() == 0 and dano[0] > 2 * dano[1:].max()

# --- cinco_detalles -------------------------------------------------------------------------------
de_tamano = {campo: getattr(classic, campo) for campo in ("block_size", "n_layer", "n_embd")}
del_dropout = {"dropout": classic.dropout, "ngram_dropout": classic.ngram_dropout}
los_cinco = {campo: getattr(classic, campo) for campo in detalles}
assert replace(caja.model_config, **de_tamano, **del_dropout, **los_cinco) == classic
assert all(getattr(caja.model_config, campo) != valor for campo, valor in los_cinco.items())

# --- peldano_tuyo ---------------------------------------------------------------------------------
if corpus.name == "quijote" and not callado:
    assert antes - medido > 0.03

# --- tres_guardados -------------------------------------------------------------------------------
if corpus.name == "quijote":
    de_mas = numeros(peldano) - numeros(escalera.Gpt(V, 1))
    assert de_mas == 4 * escalera.ANCHO - V  # el guardado: sesgos en la cabeza, no en la atención
    assert callado or abs(con_uno - medido) < 0.1
    assert con_tres < con_uno
    rivales = [escalera.guardada(rival) for rival in (*escalera.CONTAR, "ventana de 8 y MLP")]
    assert caja.progress.best_val_loss < min(rivales) < max(rivales) < con_tres

# --- pilas ----------------------------------------------------------------------------------------
_, _, con_residual, las_dos = pilas.values()
mejor = [min(map(np.mean, por_tasa.values())) for por_tasa in pilas.values()]
un_bloque, pares = map(escalera.guardada, ("residual y normalización", "pares"))
assert mejor[2] < un_bloque < pares < min(mejor[:2])
assert abs(mejor[2] - mejor[3]) < 0.05
assert max(con_residual[0.03]) > 10 and max(las_dos[0.03]) < 2
