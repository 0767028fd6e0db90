"""Lo que el capítulo 0 dice de sus valores."""

# --- caracteres -------------------------------------------------------------------------------

if corpus.name == "quijote":
    assert len(caracteres_distintos) == 92 and not set("kKw89") & set(texto)
    assert frecuencias.most_common(1)[0][0] == " "

# --- tras_la_q --------------------------------------------------------------------------------

if corpus.name == "quijote":
    assert set(re.findall("q(.)", texto, re.DOTALL)) == {"u"}

# --- trozos_conocidos -------------------------------------------------------------------------

assert len(por_leer) == len(corpus.val)
if corpus.name == "quijote":
    assert conocidos[3] > 0.98 and 0.4 < conocidos[10] < 0.6 and conocidos[20] < 0.1 > conocidos[30]

# --- ida_y_vuelta -----------------------------------------------------------------------------

assert tokenizador.decode(numeros) == "En un lugar"

# --- no_prefiere_ninguna ----------------------------------------------------------------------

torch.testing.assert_close(antes, torch.full((tokenizador.vocab_size,), 1 / tokenizador.vocab_size))

# --- perdida_al_nacer -------------------------------------------------------------------------

assert math.isclose(perdida, math.log(tokenizador.vocab_size), abs_tol=1e-3)

# --- escuela ----------------------------------------------------------------------------------

assert (estado.train_config.batch_size, modelo.config.block_size) == (16, 64)

# --- adelanta_a_los_pares ---------------------------------------------------------------------

assert cuando <= 150

# --- decidido ---------------------------------------------------------------------------------

decidido, por_decidir = (que_espera(modelo, frase) for frase in ("don Quijot", "don Quijote "))
assert tokenizador.decode([decidido.argmax().item()]) == "e"
assert decidido.max() > 0.8 > por_decidir.max()

# --- lo_no_leido ------------------------------------------------------------------------------

assert informe.val_loss < 2.2
if corpus.name == "quijote":
    assert 4.2 < math.exp(informe.val_loss) < 6.5

# --- barquero ---------------------------------------------------------------------------------

if corpus.name == "quijote":
    tras_dijo, tras_vio = esperan["—dijo el barquero…"], esperan["vio al barquero…"]
    assert not any(oficio in texto for oficio in oficios)
    assert tras_dijo[0] == tras_vio[0] < 0.05  # quien cuenta no los distingue
    assert tras_dijo[1] > 0.1 > 10 * tras_vio[1] and tras_dijo[2] > 0.7 > 10 * tras_vio[2]

# --- quien_duda_menos -------------------------------------------------------------------------

de_pytorch = torch.nn.functional.cross_entropy(logits, correctas).item()
assert math.isclose(perdida_de_la_caja, de_pytorch, rel_tol=1e-4)
assert perdida_de_la_caja < informe.val_loss - 0.2 < contado[1] - 0.4
if corpus.name == "quijote":
    assert 2.5 < math.exp(perdida_de_la_caja) < 3.6
    assert perdida_de_la_caja + 0.1 < contado[7] < informe.val_loss - 0.2
assert round(caja.progress.val_loss, 2) == 1.08 and caja.progress.seconds > 6 * 3600
