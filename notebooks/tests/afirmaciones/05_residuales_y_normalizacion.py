"""Lo que el capítulo 5 afirma de sus valores."""

# --- apilar ---------------------------------------------------------------------------------------
assert una_vez < pares < tres_veces

# --- gigantes -------------------------------------------------------------------------------------
assert round(30 * 1.1**25) == 325 and round(30 * 0.9**25) == 2

# --- veinticinco_matrices -------------------------------------------------------------------------
for factor, cuadraticas in recorridos.items():
    assert 0.5 < cuadraticas[-1] / factor**25 < 2  # lo previsto, con el margen del azar

from sancho.model import GPT
from sancho.presets import PRESETS

assert recorridos[2.0][-1] > 1e6 and recorridos[0.02 * math.sqrt(C)][-1] < 1e-12

torch.manual_seed(1605)
clasico = GPT(PRESETS["classic"].model)
lee = clasico.blocks[0].feed_forward.expand.weight  # una matriz que lee la señal, recién nacida
assert math.isclose(lee.std().item() * math.sqrt(C), 1, rel_tol=0.05)

# --- torres_con_residual --------------------------------------------------------------------------
solo_residual = escalera.guardada("tres bloques, solo residual", corpus)
if corpus.name == "quijote":
    assert solo_residual < 1.7 < una_vez < 2.8 < tres_veces

# --- camino_de_vuelta -----------------------------------------------------------------------------
for residual in (False, True):
    movimiento = (torre(2.001, residual) - torre(2.0, residual)) / 0.001
    x = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    torre(x, residual).backward()
    assert math.isclose(movimiento, x.grad.item(), rel_tol=1e-6)
    assert math.isclose(x.grad.item(), 1.1**25 if residual else 0.1**25, rel_tol=1e-9)

# --- dos_filas ------------------------------------------------------------------------------------
dos_filas = torch.tensor(filas)
torch.testing.assert_close(dos_filas.mean(1), torch.tensor([1.5, 6.5]))
torch.testing.assert_close(dos_filas.var(1, correction=0), torch.tensor([0.25, 6.25]))
normalizadas = F.layer_norm(dos_filas, (2,), eps=0)
torch.testing.assert_close(normalizadas, torch.tensor([[-1.0, 1.0], [-1.0, 1.0]]))

# --- entre_n_menos_1 ------------------------------------------------------------------------------
torch.testing.assert_close(m.var(1), torch.tensor([0.5, 12.5]))
torch.testing.assert_close(muestral, poblacional / math.sqrt(2))

# --- cuatro_pasos ---------------------------------------------------------------------------------
assert media == 0.5 and desviacion == 2.5
torch.testing.assert_close(torch.tensor(igualado), torch.tensor([0.2, -0.2, -1.4, 1.4]))
torch.testing.assert_close(torch.tensor(resultado), torch.tensor([0.5, 0.0, -0.4, 1.8]))

# --- tu_layernorm ---------------------------------------------------------------------------------
torch.testing.assert_close(da, torch.tensor(resultado))

# --- longitudes -----------------------------------------------------------------------------------
torch.testing.assert_close(salida.mean(dim=1), torch.zeros(5), atol=1e-5, rtol=0)
torch.testing.assert_close(salida.norm(dim=1), torch.full((5,), math.sqrt(64)))
assert lejos[0] < 1e-5 and lejos[1:].min() > 0.1

# --- con_epsilon ----------------------------------------------------------------------------------
assert math.isclose(medida, math.sqrt(6.25e-6 / (6.25e-6 + 1e-5)), rel_tol=1e-4)

# --- fuga_de_futuro -------------------------------------------------------------------------------
assert por_canales < 1e-6 and por_letras > 0.1

# --- post_norma -----------------------------------------------------------------------------------
assert abs(media_cuadratica(con_post_norma(entra, al_vecino)) - 1) < 1e-3

# --- un_piso --------------------------------------------------------------------------------------
assert tres_con < medido < una_vez - 0.03
