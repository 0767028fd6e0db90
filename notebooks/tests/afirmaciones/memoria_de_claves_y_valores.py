"""Lo que la rama «Una memoria de claves y valores» afirma de sus valores."""

# --- suma_de_recuerdos ----------------------------------------------------------------------------
assert lejos < 1e-5

# --- cuando_pasan ---------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert partes[1] > 0.6

# --- barajadas ------------------------------------------------------------------------------------
assert suyas > 1.5 * al_azar
