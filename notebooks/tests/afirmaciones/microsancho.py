"""Lo que la rama «Todo en un archivo» afirma de sus valores."""

# --- formas ---------------------------------------------------------------------------------------
assert abs(perdida - np.log(chico.vocab_size)) < 1e-5
for nombre, gradiente in g.items():
    assert gradiente.shape == p[nombre].shape  # cada gradiente tiene la forma de su parámetro

# --- moviendo_un_numero ---------------------------------------------------------------------------
for nombre, movida in medida.items():
    mayor = np.abs(g[nombre]).argmax()
    assert abs(movida - g[nombre].flat[mayor]) < 1e-6

# --- gradientes_de_pytorch ------------------------------------------------------------------------
assert lejos.keys() == g.keys() and max(lejos.values()) < 1e-9

# --- aprende --------------------------------------------------------------------------------------
assert perdidas[-1] < 2.5 < perdidas[0]
