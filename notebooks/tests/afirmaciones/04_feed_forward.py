"""Lo que el capítulo 4 dice de sus valores."""

# --- ensancha ---------------------------------------------------------------------------------

for C in (512, 1024):
    grande = biblioteca.FeedForward(replace(PRESETS["classic"].model, n_embd=C))
    assert (grande.expand.out_features, grande.proj.out_features) == (4 * C, C)

# --- a_mano -----------------------------------------------------------------------------------

assert ensanchado == [1.0, -1.0, 2.0] and activo == [1.0, 0.0, 2.0] and salida == [1.5, 4.0]

# --- columnas_o_filas -------------------------------------------------------------------------

assert columna.tolist() == fila[0].tolist() == con_linear[0].tolist() == [1.5, 4.0]

# --- dos_son_una ------------------------------------------------------------------------------

torch.testing.assert_close(dos, una, atol=1e-5, rtol=1e-4)
assert not torch.allclose(con_relu, una, atol=0.1)

# --- pico -------------------------------------------------------------------------------------

torch.testing.assert_close(pico, (1 - eje_x.abs()).relu(), atol=1e-5, rtol=0)

# --- xor --------------------------------------------------------------------------------------

torch.testing.assert_close(neuronas, discuerdan)
torch.testing.assert_close(lineal, torch.full((4,), 0.5))

# --- por_formula ------------------------------------------------------------------------------

for nombre, valores in por_formula.items():
    torch.testing.assert_close(ACTIVATIONS[nombre](z), valores, atol=1e-5, rtol=1e-5)

# --- a_solas ----------------------------------------------------------------------------------

assert (mapas["Atención"].tril() > 0.01).sum() == 36 and mapas["Atención"].triu(1).max() < 1e-6
fuera = mapas["Feed-forward"] - mapas["Feed-forward"].diag().diag()
assert fuera.max() < 1e-5 < mapas["Feed-forward"].diag().min()

# --- cuantos_parametros -----------------------------------------------------------------------

for C in (32, 128, 512, 1024):
    de_ancho = replace(PRESETS["classic"].model, n_embd=C)
    ff, at = contar(biblioteca.FeedForward(de_ancho)), contar(MultiHeadAttention(de_ancho))
    assert ff == 8 * C**2 + 5 * C and at == 4 * C**2 + 4 * C

# --- como_la_biblioteca -----------------------------------------------------------------------

with torch.no_grad():
    torch.testing.assert_close(tuya(x_dos), capa(x_dos), atol=1e-5, rtol=1e-4)

# --- lo_que_vale ------------------------------------------------------------------------------

if corpus.name == "quijote":
    assert antes - medido > 0.05

# --- sin_activacion ---------------------------------------------------------------------------

assert contar(control) == contar(peldano)
if corpus.name == "quijote":
    assert abs(sin_activacion - antes) < 0.05 and sin_activacion - medido > 0.08
