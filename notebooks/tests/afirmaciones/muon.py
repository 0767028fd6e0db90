"""Lo que la rama «Muon» afirma de sus valores."""

# --- giro_y_estiron -------------------------------------------------------------------------------
torch.testing.assert_close(G, torch.tensor([[1.2, 0.4], [1.1, 1.2]]))
torch.testing.assert_close(torch.linalg.svdvals(G), S)  # PyTorch encuentra los mismos

# --- tres_pasos -----------------------------------------------------------------------------------
torch.testing.assert_close(U @ Vt, torch.tensor([[0.96, -0.28], [0.28, 0.96]]))
torch.testing.assert_close(
    torch.linalg.svdvals(G.sign()), torch.tensor([2.0, 0.0]), atol=1e-6, rtol=0
)
torch.testing.assert_close(torch.linalg.svdvals(U @ Vt), torch.ones(2))

# --- ronda_clasica --------------------------------------------------------------------------------
antes = G / G.norm()
for _ in range(8):
    valores = torch.linalg.svdvals(antes)
    antes = ronda_clasica(antes)
    a_mano = (1.5 * valores - 0.5 * valores**3).sort(descending=True).values
    torch.testing.assert_close(torch.linalg.svdvals(antes), a_mano)
torch.testing.assert_close(X, U @ Vt, atol=1e-3, rtol=0)

# --- rondas ---------------------------------------------------------------------------------------
assert rondas_hasta(clasico, 0.03) > 2 * rondas_hasta(el_de_muon, 0.03)
assert 0.65 < s.min() and s.max() < 1.25

# --- seis_direcciones -----------------------------------------------------------------------------
torch.testing.assert_close(diagonal, torch.diag(diagonal.diag()), atol=1e-4, rtol=0)
torch.testing.assert_close(nuevas, s, atol=1e-3, rtol=0)
assert nuevas.min() > 0.65 and nuevas.max() < 1.25

# --- valle ----------------------------------------------------------------------------------------
for nombre in ("SGD", "SGD con inercia"):
    np.testing.assert_allclose(recto[nombre], torcido[nombre], rtol=1e-6)
# Muon, en los cuarenta primeros pasos: después salta de un lado a otro del fondo.
al_empezar = [carrera_en_el_valle("Muon", 0.4, girado)[:40] for girado in (False, True)]
np.testing.assert_allclose(*al_empezar, rtol=1e-3)
assert all(
    max(carrera_en_el_valle(n, 2 * tasas[n][-1], True)) > 100 for n in ("SGD", "SGD con inercia")
)
assert all(2 * recto["Adam"][-1] < recto[n][-1] for n in tasas if n != "Adam")
for nombre in ("Muon", "SGD con inercia"):
    assert 2 * torcido[nombre][-1] < torcido["Adam"][-1] < torcido["SGD"][-1] / 2
assert torcido["SGD con inercia"][-1] < 2 * torcido["Muon"][-1]

# --- carrera --------------------------------------------------------------------------------------
if corpus.name == "quijote":  # la mejor pareja es la del centro de su cruz
    for nombre in ("AdamW, dos tasas", "Muon y AdamW"):
        assert mejores[nombre][1] == next(iter(corredores[nombre]))

# --- semillas -------------------------------------------------------------------------------------
assert muon < una - 0.05 and una < mejores["SGD con inercia"][0]
if corpus.name == "quijote":
    assert all(muon < dos < una for una, dos, muon in finales.values())

# --- parte_de_las_primeras ------------------------------------------------------------------------
assert antes > 0.5 and despues < 0.3
