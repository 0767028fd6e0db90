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

assert tokenizador.decode([decidido.argmax().item()]) == "e"
assert decidido.max() > 0.8 > por_decidir.max()

# --- lo_no_leido ------------------------------------------------------------------------------

assert informe.val_loss < 2.2
if corpus.name == "quijote":
    assert 4.2 < math.exp(informe.val_loss) < 6.5
