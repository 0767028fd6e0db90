"""Lo que la rama de la búsqueda en haz afirma de sus valores."""

# --- lo_no_leido ----------------------------------------------------------------------------------
assert nats_del_libro < 1.9

# --- en_haz ---------------------------------------------------------------------------------------
from sancho import generate
from sancho.config import SampleConfig

voraz = generate.generate(
    modelo, tokenizer.encode(comienzos[0]), SampleConfig(temperature=0), max_new_tokens=60
)
del_haz_de_uno, _ = en_haz(comienzos[0], 60, ancho=1)
assert del_haz_de_uno[-60:] == [i for (i,) in voraz]  # un haz de uno: el voraz
assert np.mean(nats[4]) < np.mean(nats[1]) - 5 and max(nats[4]) < 60 * nats_del_libro
