"""Lo que la rama «Rope y QK-norm» dice de sus valores."""

# --- solo_la_distancia ----------------------------------------------------------------------------
for distancia in range(38):
    misma, otra = girando.diagonal(-distancia), sumando.diagonal(-distancia)
    assert misma.max() - misma.min() < 1e-4 < 0.1 < otra.max() - otra.min()

# --- no_se_concentra ------------------------------------------------------------------------------
for factor, mayor, la_mejor_sin, la_mejor_con in medidas:
    assert mayor <= math.sqrt(D) + 1e-3
    assert la_mejor_con < 0.3 and (la_mejor_sin > 0.7) == (factor > 1)

# --- mira_al_no -----------------------------------------------------------------------------------
assert (en_bloque, cual) == (3, 1) and al_no.max() > 0.6 > 0.1 > np.sort(al_no.flatten())[-2]

# --- sino -----------------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert 0.5 < con_no < 0.55 and 0.04 < sin_no < 0.06

# --- por_ella_llegaba_el_no -----------------------------------------------------------------------
diferencias = [(con_no - con_ya).item() for con_no, con_ya in filas.values()]
assert diferencias[0] > 0.35 and abs(diferencias[1]) < 0.05 and diferencias[2] > 0.15
