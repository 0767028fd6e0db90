"""Lo que el capítulo 2 dice de sus valores."""

# --- todas_igual_de_lejos ---------------------------------------------------------------------

distintas = ~torch.eye(V, dtype=torch.bool)
torch.testing.assert_close(distancias[distintas], torch.full((V * (V - 1),), math.sqrt(2)))

# --- copia_la_fila ----------------------------------------------------------------------------

torch.testing.assert_close(torch.tensor(por_sumas), tabla[o])

# --- tres_caminos -----------------------------------------------------------------------------

torch.testing.assert_close(con_producto, con_indice)
torch.testing.assert_close(capa(ids), con_indice)

# --- que_filas_aprenden -----------------------------------------------------------------------

veces = torch.tensor([0.0, 0.0, 0.0, 2.0, 1.0])  # espacio, a, m, o, r
torch.testing.assert_close(capa.weight.grad, veces[:, None].expand(V, C))

# --- la_misma_media ---------------------------------------------------------------------------

torch.testing.assert_close(tabla[amor].mean(0), tabla[roma].mean(0))

# --- sin_posiciones ---------------------------------------------------------------------------

assert sin_orden < 1e-5

# --- sumas ------------------------------------------------------------------------------------

esperadas = [[0.15, 0.3, 0.45, 0.6], [0.8, 1.05, 0.4, 0.75], [0.55, 1.0, 1.15, 0.6]]
torch.testing.assert_close(sumas, torch.tensor(esperadas))

# --- hace_falta_relu --------------------------------------------------------------------------

torch.testing.assert_close((al_reves + posiciones).mean(0), sumas.mean(0))
assert not torch.allclose(derecho, reves)

# --- como_classic -----------------------------------------------------------------------------

torch.testing.assert_close(copia(ids).detach(), de_classic)
try:
    clasico(torch.zeros(1, 65, dtype=torch.int64))
except ValueError:
    cabe = False
else:
    cabe = True
assert not cabe

# --- aspas_en_su_sitio ------------------------------------------------------------------------

torch.testing.assert_close(molinos[0], torch.tensor([0.0, 1.0] * 32))  # las aspas, en su sitio

# --- una_vuelta -------------------------------------------------------------------------------

assert round(2 * math.pi * 10000 ** (62 / 64)) == 47117

# --- solo_la_distancia ------------------------------------------------------------------------

torch.testing.assert_close(normas, torch.full((256,), math.sqrt(d / 2)))
distancia = torch.arange(0, 129)
cosenos = torch.cos(torch.outer(distancia, 10000.0 ** (-torch.arange(0, d, 2) / d))).sum(1)
for desde in (0, 50, 127):  # el mismo perfil desde cualquier posición
    torch.testing.assert_close(productos[desde, desde : desde + 129], cosenos, atol=1e-3, rtol=0)
assert not torch.allclose(muchas[50], muchas[0], atol=0.1)  # otra posición, otro vector
sube = (productos[0, :129].diff() > 0).nonzero().flatten() + 1  # a qué distancias
assert len(sube) == 49 and sube[0] == 6 and (sube < 16).sum() == 3
assert [round(productos[0, i].item(), 2) for i in (5, 6)] == [23.5, 23.56]
assert [round(math.cos(i), 2) for i in (1, 6)] == [0.54, 0.96]  # lo que gira el primer molino

# --- amor_y_roma ------------------------------------------------------------------------------

sin, *con, dos_bloques = resultados.values()
assert sin < 1e-5 and min(con) > 0.01 and dos_bloques > 0.01

# --- no_bajan_la_perdida ----------------------------------------------------------------------

assert abs(con_embedding - escalera.guardada("pares", corpus)) < 0.03
assert abs(con_posiciones - con_embedding) < 0.03
if corpus.name == "quijote":
    assert 2.28 < con_embedding < 2.34
