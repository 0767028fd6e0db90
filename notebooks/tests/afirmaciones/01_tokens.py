"""Lo que el capítulo 1 dice de sus valores."""

# --- hapax ------------------------------------------------------------------------------------

if corpus.name == "quijote":
    assert len(veces) == 24491 and len(hapax) == 12213
    assert "Aquí se imprimen libros" in texto and "baciyelmo" in texto

# --- lo_nuevo ---------------------------------------------------------------------------------

if corpus.name == "quijote":
    assert (len(nuevas), len(examen)) == (1636, 37941)
    assert letras_nuevas == ["ù", "ù"] and "più" in por_leer and "giù" in por_leer

# --- lo_que_ocupa -----------------------------------------------------------------------------

assert bloques == configuracion.n_layer * 12 * C**2
if corpus.name == "quijote":
    assert 92 * C == 5888 and len(veces) * C == 1567424

# --- ida_y_vuelta -----------------------------------------------------------------------------

assert propio.descodificar(ids_propios) == texto

# --- el_de_la_biblioteca ----------------------------------------------------------------------

assert tokenizador.characters == propio.caracteres == corpus.tokenizer.characters
assert np.array_equal(tokenizador.encode(texto), ids_propios.numpy())
assert tokenizador.decode(tokenizador.encode(texto)) == texto

# Y lo que la biblioteca tiene en la memoria es el libro codificado y partido en dos.
ids_del_libro = np.concatenate([corpus.train, corpus.val])
assert np.array_equal(ids_del_libro, tokenizador.encode(texto))
assert ids_del_libro.nbytes == len(texto)  # un byte cada uno

# --- sin_saber_nada ---------------------------------------------------------------------------

if corpus.name == "quijote":
    assert round(math.log(V), 2) == 4.52

# --- lo_debido_a_mano -------------------------------------------------------------------------

# El gradiente de unos logits es su softmax menos 1 en la letra buena, y la media del lote.
logits_a_mano = [[0.0, 0.0, 0.0] for _ in range(3)]
perdidas_a_mano, gradientes_a_mano = [], []
for ventanas in lotes_de_prueba:
    gradiente_a_mano = [[0.0, 0.0, 0.0] for _ in range(3)]
    perdida_a_mano = 0.0
    for a, b in [par for ventana in ventanas for par in zip(ventana, ventana[1:])]:
        exponenciales = [math.exp(logit) for logit in logits_a_mano[a]]
        repartido = [e / sum(exponenciales) for e in exponenciales]
        perdida_a_mano -= math.log(repartido[b]) / 4
        for letra in range(3):
            gradiente_a_mano[a][letra] += (repartido[letra] - (letra == b)) / 4
    logits_a_mano = [
        [logit - 2 * derivada for logit, derivada in zip(*filas)]
        for filas in zip(logits_a_mano, gradiente_a_mano)
    ]
    perdidas_a_mano.append(perdida_a_mano)
    gradientes_a_mano.append(gradiente_a_mano)
assert np.allclose(perdidas_debidas, perdidas_a_mano, rtol=0, atol=1e-6)
assert np.allclose(primer_gradiente, gradientes_a_mano[0], rtol=0, atol=1e-6)
assert np.allclose(logits_debidos, logits_a_mano, rtol=0, atol=1e-6)

# --- letras_aprendidas ------------------------------------------------------------------------

assert abs(letras_entrenadas - letras_contando) < 0.03
assert abs(aprendidas - contadas).max() < 0.02

# --- pares_aprendidos -------------------------------------------------------------------------

assert abs(pares_entrenados - pares_contando) < 0.05
assert (apartamiento * contadas).sum() < 0.05  # cada fila pesa lo que su carácter

# --- dos_peldanos -----------------------------------------------------------------------------

assert letras_entrenadas - pares_entrenados > 0.4
if corpus.name == "quijote":
    assert 0.7 < letras_entrenadas - pares_entrenados < 0.8
    rivales = [*escalera.CONTAR, escalera.VENTANA_FIJA.nombre]
    assert max(map(escalera.guardada, rivales)) < escalera.guardada("más bloques")
    assert 3.0 < letras_entrenadas < 3.1 and 2.28 < pares_entrenados < 2.34
