"""Lo que el capítulo 3 dice de sus valores."""

# --- norma_por_coseno -------------------------------------------------------------------------

normas = consulta_2.norm() * claves_2.norm(dim=1)
torch.testing.assert_close(productos, normas * F.cosine_similarity(consulta_2, claves_2, dim=-1))

# --- dos_repartos -----------------------------------------------------------------------------

dos_repartos = [[0.26894142, 0.73105858], [0.00669285, 0.99330715]]
assert np.allclose([softmax_a_mano(fila) for fila in dos_filas], dos_repartos, atol=1e-8)

# --- solo_las_diferencias ---------------------------------------------------------------------

for numeros in ([1, 2], [4, 5], [-3, -2]):
    assert np.allclose(softmax_a_mano(numeros), softmax_a_mano([1, 2]))

# --- no_cabe ----------------------------------------------------------------------------------

assert torch.tensor(88.0).exp().isfinite() and torch.tensor(89.0).exp().isinf()
assert softmax_ingenua(grandes).isnan().all()
torch.testing.assert_close(softmax(grandes), grandes.softmax(-1), rtol=0, atol=1e-4)

# --- sumas ------------------------------------------------------------------------------------

sumas = [[0.15, 0.3, 0.45, 0.6], [0.8, 1.05, 0.4, 0.75], [0.55, 1.0, 1.15, 0.6]]
torch.testing.assert_close(x_gato, torch.tensor(sumas))

# --- puntuaciones -----------------------------------------------------------------------------

assert np.allclose(puntuaciones, [0.35, 0.88, 1.28])

# --- a_mano -----------------------------------------------------------------------------------

assert np.allclose(a_escala, [0.20, 0.51, 0.74], atol=0.005)
assert np.allclose(pesos_gato, [0.2458, 0.3338, 0.4205], atol=5e-5)
assert np.allclose(salida_gato, [0.4141, 0.6613, 0.4820], atol=5e-5)

# --- con_matrices -----------------------------------------------------------------------------

torch.testing.assert_close(S[1], torch.tensor(puntuaciones))
torch.testing.assert_close(A[1], torch.tensor(pesos_gato))
torch.testing.assert_close(Y[1], torch.tensor(salida_gato))

# --- sdpa -------------------------------------------------------------------------------------

torch.testing.assert_close(con_sdpa, Y)
# El producto de «El» con «juega» gana al de «El» con «gato», que apunta más como ella.
de_el = F.cosine_similarity(Q[:1], K)  # (3,)
assert [round(n, 2) for n in de_el[1:].tolist()] == [0.85, 0.82]
assert [round(n, 2) for n in S[0, 1:].tolist()] == [0.28, 0.4]

# --- mascara ----------------------------------------------------------------------------------

assert torch.allclose(A_causal[1], torch.tensor([0.4241, 0.5759, 0.0]), atol=5e-5)
assert (A_causal[futuro(3)] == 0).all()
torch.testing.assert_close(A_causal.sum(-1), torch.ones(3))

# --- misma_proporcion -------------------------------------------------------------------------

torch.testing.assert_close(A_causal[1, :2], entre_dos)
torch.testing.assert_close(A_causal[2], A[2])
torch.testing.assert_close(A_causal @ V, F.scaled_dot_product_attention(Q, K, V, is_causal=True))

# --- ceros_por_mascara ------------------------------------------------------------------------

assert abs(con_ceros[1, 2] - 0.2573) < 5e-5

# --- una_media --------------------------------------------------------------------------------

torch.testing.assert_close(de_iguales @ x_gato, medias)

# --- raiz_de_D --------------------------------------------------------------------------------

for D, desviacion in zip(anchos, desviaciones, strict=True):
    assert abs(desviacion / math.sqrt(D) - 1) < 0.1
assert mayores["sin dividir"][-1] > 0.9 and mayores["entre D"][-1] < 0.08
assert max(mayores["entre √D"]) - min(mayores["entre √D"]) < 0.08

# --- pendientes -------------------------------------------------------------------------------

assert oido["entre √D"] > 5 * oido["sin dividir"]

# --- como_a_mano ------------------------------------------------------------------------------

torch.testing.assert_close(pesos, A_causal, atol=1e-4, rtol=0)
torch.testing.assert_close(leido, A_causal @ V, atol=1e-4, rtol=0)
