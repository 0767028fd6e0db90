"""Lo que la rama «De dónde sale el parecido» dice de sus valores."""

# --- vecina_de_su_clase -----------------------------------------------------------------------

if corpus.name == "quijote":
    assert de_su_clase == len(minusculas) == 29

# --- gato_y_perro -----------------------------------------------------------------------------

assert abs((gato - perro).norm() - (0.1**2 + 0.05**2 + 0.05**2) ** 0.5) < 1e-5
assert coseno(gato, perro) > 0.99 > 0.9 > coseno(gato, juega)

# --- el_y_juega -------------------------------------------------------------------------------

assert coseno(el_4, juega_4) > coseno(gato_4, juega_4) and al_azar.mean() > 0.7
assert (gato_4 - juega_4).norm() < (el_4 - juega_4).norm()
torch.testing.assert_close(coseno(gato_4 @ giro, juega_4 @ giro), coseno(gato_4, juega_4))
torch.testing.assert_close((gato_4 @ giro - juega_4 @ giro).norm(), (gato_4 - juega_4).norm())

# --- vecinas_en_la_caja -----------------------------------------------------------------------

assert de_su_clase >= 26 > 20 > por_azar[0] and con_la_suya > 12 > 3 > por_azar[1]
assert "t" in mas_cercanas(de_la_caja, "d", consonantes, 3)

# --- mirar_atras_sin_atencion -----------------------------------------------------------------

una, sola, sumada, en_orden, ultimo = al_lado.values()
assert 0.95 < parametros[0] / parametros[1] < 1.05
assert sola > una + 0.3 > una > sumada > en_orden
if corpus.name == "quijote":
    assert en_orden < una - 0.7 and en_orden < ultimo - 0.05
