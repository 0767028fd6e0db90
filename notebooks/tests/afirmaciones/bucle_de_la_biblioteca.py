"""Lo que la rama del bucle de la biblioteca afirma de sus valores."""


# --- tasa_de_la_biblioteca ------------------------------------------------------------------------
def factor_a_mano(paso, config):
    subida = (paso + 1) / (config.warmup_iters + 1)
    bajada = (config.max_iters - paso) / (config.decay_fraction * config.max_iters)
    return min(subida, 1.0, bajada)


assert factores == [factor_a_mano(paso, de_serie) for paso in pasos]
assert de_serie.decay_fraction == 0.6  # lo que dice el texto

# --- los_mismos_parametros ------------------------------------------------------------------------
for nombre, parametro in estado.model.named_parameters():
    torch.testing.assert_close(parametro, a_mano.get_parameter(nombre))

# --- de_memoria -----------------------------------------------------------------------------------
assert de_validacion[-1] > de_validacion[mejor] + 0.1 > de_entrenamiento[-1]

# --- epocas ---------------------------------------------------------------------------------------
import math

assert math.isclose(leidas, 24.576)

# --- regla_de_parada ------------------------------------------------------------------------------
assert informe.step == paso_del_mejor + 3 * de_memoria.eval_interval < de_memoria.max_iters
assert math.isclose(guardada, estado.progress.best_val_loss, rel_tol=1e-6) and guardada < ultima

# --- dropout --------------------------------------------------------------------------------------
sin, con = (sin_leer for *_, sin_leer in estudios.values())
assert con[-1] < sin[-1] - 0.3 and con[-1] < con.min() + 0.1
assert estudios["con dropout"][1][-1] > de_entrenamiento[-1] + 0.3
if corpus.name == "quijote":
    assert abs(con.min() - sin.min()) < 0.05

# --- guardar --------------------------------------------------------------------------------------
assert all(iguales)
assert leido.tokenizer.characters == corpus.tokenizer.characters
assert leido.progress.step == estado.progress.step
