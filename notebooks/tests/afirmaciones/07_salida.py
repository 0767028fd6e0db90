"""Lo que el capítulo 7 afirma de sus valores."""

# --- normalizado ----------------------------------------------------------------------------------
torch.testing.assert_close(normalizar(x), torch.tensor([1.4, 0.2]))

# --- tres_logits ----------------------------------------------------------------------------------
torch.testing.assert_close(logits, torch.tensor([2.0, 1.0, -1.0]))

# --- diez_veces_mas_largo -------------------------------------------------------------------------
torch.testing.assert_close(cabeza @ normalizar(10 * x), logits)

# --- softmax_a_mano -------------------------------------------------------------------------------
torch.testing.assert_close(p, logits.softmax(-1))
torch.testing.assert_close(p, torch.tensor([0.7054, 0.2595, 0.0351]), rtol=0, atol=1e-4)

# --- diferencias ----------------------------------------------------------------------------------
torch.testing.assert_close(p[0] / p[1], torch.tensor(math.e))
torch.testing.assert_close((logits + 100).softmax(-1), p, rtol=1e-4, atol=0)
# Lo que los apuntes de la feed-forward dan por una softmax.
for de, debe in (([0.01, 0.02], [0.4975, 0.5025]), ([0.0, 0.05], [0.4875, 0.5125])):
    assert [round(n, 4) for n in torch.tensor(de).softmax(-1).tolist()] == debe
assert round(math.exp(0.05), 2) == 1.05

# --- voraz ----------------------------------------------------------------------------------------
assert logits.argmax() == p.argmax() == 0  # voraz: siempre la «a»

# --- la_caja --------------------------------------------------------------------------------------
from sancho.presets import PRESETS

assert count_parameters(modelo.config) == 2_065_216 and tokenizer.vocab_size == 92
forma = caja.model_config
assert (forma.n_layer, forma.n_head, forma.n_embd) == (5, 4, 184)
assert round(caja.progress.best_val_loss, 2) == 1.08
if corpus.name == "quijote":
    assert round(caja.progress.tokens / len(corpus.train)) == 31
assert not any(preajuste.model.tie_embeddings for preajuste in PRESETS.values())
assert not forma.tie_embeddings

# --- salida_a_mano --------------------------------------------------------------------------------
torch.testing.assert_close(a_mano, del_modelo, rtol=1e-3, atol=1e-3)

# --- tras_manch -----------------------------------------------------------------------------------
p_a = logits_tras("En un lugar de la Manch").softmax(-1)[tokenizer.characters.index("a")].item()
p_mejor = logits_tras("En un lugar de la ").softmax(-1).max().item()
assert p_a > 0.95 and p_mejor < 0.4

if corpus.name == "quijote":
    assert frase in corpus.text[: len(corpus.train)]
    assert (manch, mancha) == (183, 181)

# --- la_mitad -------------------------------------------------------------------------------------
assert math.isclose(p_primera(media), 0.5, rel_tol=1e-6) and 0.1 < media < 0.95

# --- sorpresas_en_bits ----------------------------------------------------------------------------
assert sorpresa(1) == 0
assert math.isclose(sorpresa(1 / 2) / math.log(2), 1)
assert math.isclose(sorpresa(1 / 8) / math.log(2), 3)
assert 0 < entropia < math.log(3)

# --- entropias ------------------------------------------------------------------------------------
assert round(math.log(92), 2) == 4.52
torch.testing.assert_close(entropia_de(logits.double()).item(), entropia)
assert entropia_de(logits_tras("En un lugar de la Manch")) < 0.14
assert entropia_de(logits_tras("En un lugar de la ")) > 2

# --- letra_a_letra --------------------------------------------------------------------------------
de_la_biblioteca = character_losses(modelo, ids[0].numpy())
np.testing.assert_allclose(sorpresas, de_la_biblioteca, rtol=1e-3, atol=1e-3)

# --- al_empezar_palabra ---------------------------------------------------------------------------
assert sorpresas[empieza].mean() > 3 * sorpresas[~empieza].mean()
assert sorpresas[m] > 2 * sorpresas[m + 1 : m + 6].sum()

# --- de_la_frase ----------------------------------------------------------------------------------
assert math.isclose(de_la_frase, sorpresas.mean(), rel_tol=1e-3)

# --- dos_bucles -----------------------------------------------------------------------------------
assert a_mano == comienzo.tolist() + de_la_biblioteca
assert len(de_la_biblioteca) == 100

# --- a_suertes ------------------------------------------------------------------------------------
assert lo_mismo

# --- fuera_de_la_diagonal -------------------------------------------------------------------------
assert distintos(texto_voraz) < distintos(texto_a_suertes) - 0.1

fuera_de_la_diagonal = []
for texto in (texto_voraz, texto_a_suertes):
    todos_los_trozos = np.array(trozos(texto))
    i, j = np.nonzero(todos_los_trozos[:, None] == todos_los_trozos)
    fuera_de_la_diagonal.append((i != j).sum())
assert fuera_de_la_diagonal[0] > 2 * fuera_de_la_diagonal[1]
