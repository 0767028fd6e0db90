"""Lo que la rama de RMSNorm afirma de sus valores."""

# --- rmsnorm_a_mano -------------------------------------------------------------------------------
assert isinstance(sin_gamma, nn.RMSNorm) and sin_gamma.eps == 1e-6
torch.testing.assert_close(sin_gamma(x), a_mano)
torch.testing.assert_close(a_mano, torch.tensor([0.3922, 0.0, -1.1767, 1.5689]), atol=1e-4, rtol=0)


# --- lamina_de_la_norma ---------------------------------------------------------------------------
def sin_media(x: Tensor) -> Tensor:
    return F.rms_norm(x, (64,), eps=0)


def con_media(x: Tensor) -> Tensor:
    return normalizar(x, epsilon=0)


v = torch.randn(5, 64, generator=torch.Generator().manual_seed(1605))
for veces in (1000, 1 / 1000):
    torch.testing.assert_close(con_media(veces * v), con_media(v), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(sin_media(veces * v), sin_media(v), atol=1e-4, rtol=1e-4)
torch.testing.assert_close(con_media(v + 7), con_media(v), atol=1e-4, rtol=1e-4)
assert not torch.allclose(sin_media(v + 7), sin_media(v), atol=0.1)

# --- teoria ---------------------------------------------------------------------------------------
for nombre, (prevista, _) in teoria.items():
    assert 1 / 3 < medidas[nombre]["señal"][-1] / prevista < 3
assert min(parecido["sin nada"], parecido["solo normalización"]) > 0.8
assert parecido["residual y normalización"] < min(parecido.values()) + 1e-6
assert gradiente["sin nada"] < 1e-3 and gradiente["solo residual"] > 100
assert 1 < gradiente["solo normalización"] < 4 < gradiente["residual y normalización"] < 6

# --- lo_que_queda ---------------------------------------------------------------------------------
for altura in (0, 2, 4, 8, 16, 32):
    assert abs(pre["original"][altura] - 1 / math.sqrt(1 + altura / 2)) < 0.1
    assert abs(post["original"][altura] - 1.5 ** (-altura / 2)) < 0.1
