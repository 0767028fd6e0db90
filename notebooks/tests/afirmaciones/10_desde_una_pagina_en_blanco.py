"""Lo que el capítulo 10 afirma de sus valores."""

# --- tantos_como_la_caja --------------------------------------------------------------------------
assert cuantos(Gpt(forma)) == 2_065_216

# --- un_radian_mas --------------------------------------------------------------------------------
t = torch.arange(4.0)
torch.testing.assert_close(girar(flecha), torch.stack((t.cos(), t.sin()), -1))

# --- nota_el_orden --------------------------------------------------------------------------------
assert cambia["learned"] <= 1e-4 < cambia["rope"]

# --- la_caja_abierta ------------------------------------------------------------------------------
assert lo_mio == suyo

# --- guardado_y_abierto ---------------------------------------------------------------------------
if corpus.name == "quijote":
    assert medida_moderno < medida_de_fabrica - 0.05
assert despues == antes

# --- gpt2_pequeno ---------------------------------------------------------------------------------
assert total == 124_439_808

# --- los_mismos_logits ----------------------------------------------------------------------------
if importlib.util.find_spec("transformers"):
    assert lejos < 1e-4

# --- tokenizador_de_otros -------------------------------------------------------------------------
assert DeOtros(caja.tokenizer).codificar("roca").equal(letras.codificar("roca"))
