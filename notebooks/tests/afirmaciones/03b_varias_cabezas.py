"""Lo que el capítulo 3½ dice de sus valores."""

# --- tres_cabezas -----------------------------------------------------------------------------

anterior, espacio, misma = mapas.values()
assert (anterior.diagonal(-1) > 0.99).all() and anterior[0, 0] > 0.99
for t in range(3, T):
    ultimo_espacio = comienzo.rfind(" ", 0, t + 1)
    assert espacio[t].argmax() == ultimo_espacio and espacio[t, ultimo_espacio] > 0.5
aes = [t for t in range(T) if comienzo[t] == "a"]
assert mira == aes
torch.testing.assert_close(misma[-1, aes], torch.full((len(aes),), 1 / len(aes)), atol=1e-3, rtol=0)

# --- dos_cabezas ------------------------------------------------------------------------------

assert torch.allclose(pesos_1, torch.tensor([0.4241, 0.5759]), atol=5e-5)  # los del capítulo 3
torch.testing.assert_close(K_2 @ q_2, torch.tensor([0.58, 0.29]))
for mezcla, valores in ((cabeza_1, V_1), (cabeza_2, V_2)):
    assert (valores.amin(0) <= mezcla).all() and (mezcla <= valores.amax(0)).all()

# --- concatenadas -----------------------------------------------------------------------------

assert juntas.shape == (6,) and salida.shape == (4,)

# --- por_separado -----------------------------------------------------------------------------

torch.testing.assert_close(por_separado, salida)

# --- partir_en_cabezas ------------------------------------------------------------------------

assert bien[0, 0].tolist() == [[0, 1], [4, 5]] and de_golpe[0, 0].tolist() == [[0, 1], [2, 3]]

# --- como_la_biblioteca -----------------------------------------------------------------------

assert config.position == "learned" and config.bias and not config.qk_norm
torch.testing.assert_close(tuya, de_la_biblioteca, atol=1e-4, rtol=1e-4)

# --- pesos_a_mano -----------------------------------------------------------------------------

bloque = modelo.blocks[0]
with torch.no_grad():
    flujo = modelo.token_embedding(ids) + modelo.position_embedding.weight[:T]  # (1, T, C)
    qkv = bloque.attention.qkv(bloque.norm1(flujo)).view(1, T, 3, 4, -1)
    q, k, _ = qkv.permute(2, 0, 3, 1, 4)  # cada uno (B, H, T, D)
    _, pesos_a_mano = mirar_atras(q, k, q)  # (1, H, T, T)
torch.testing.assert_close(pesos_a_mano[0], pesos_modelo, atol=1e-5, rtol=1e-3)
torch.testing.assert_close(pesos_modelo.sum(-1), torch.ones(4, T))

# --- a_que_distancia --------------------------------------------------------------------------

if corpus.name == "quijote":
    assert perfil[:, 1].max() > 0.6

# --- lo_que_vale ------------------------------------------------------------------------------

assert antes - medido > (0.25 if corpus.name == "quijote" else 0.05)

# --- controles --------------------------------------------------------------------------------

cuantos = [sum(p.numel() for p in m.parameters()) for m in (peldano, con_una)]
assert cuantos[0] == cuantos[1]
if corpus.name == "quijote":
    assert sin_posiciones - medido > 0.15 > 0.1 > antes - sin_posiciones > 0
    assert una_cabeza - medido > 0.1 > 0.05 < antes - una_cabeza
